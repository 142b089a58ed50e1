"""Items ranked by the suspicion that their labels are wrong, and what the order is based on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import check_count
from irtcat.bank import ItemBank
from irtcat.diagnose.labels.check import Check, posterior, share_wrong
from irtcat.diagnose.labels.inputs import LabelData
from irtcat.diagnose.labels.orders import ORDERS, sort_key


@dataclass(frozen=True, eq=False)
class LabelRanking:
    """The result of `rank`.

    Attributes:
        table: one row per item, the most suspect first; see `rank`.
        bank: the calibrated items; None if right and wrong answers did not count.
        prior: prior probabilities of a wrong key, and of an item unrelated to ability.
        by: the order of the table (see `rank`).
        checks: what each order finds of the planted wrong labels, one row per order: found (share
            among as many suspects as there are wrong labels, which estimates the precision there),
            low and high (95 % interval), found by kind of wrong label, difference (from the default
            order), se (of the difference) and chosen; None without a check.
        n_planted: number of planted labels.
        share_wrong: estimated share of wrong labels; NaN without a check.
        source: what the suspicion is computed from: "answers", "classes" or "planted"; "none" if
            there is no suspicion.
        confusions: estimated probability of each label by right class; None without predicted
            classes.
    """

    table: pd.DataFrame
    bank: ItemBank | None
    prior: tuple[float, float]
    by: str = "answers"
    checks: pd.DataFrame | None = None
    n_planted: int = 0
    share_wrong: float = float("nan")
    source: str = "answers"
    confusions: pd.DataFrame | None = None

    def first(self, n: int = 10) -> pd.DataFrame:
        """The n most suspect items."""
        check_count("n", n)
        return self.table.head(n)

    def to_frame(self) -> pd.DataFrame:
        """The table of items."""
        return self.table.copy()

    def __repr__(self) -> str:
        text = f"{len(self.table)} items by {self.by}"
        if self.source != "none":
            n = int((self.table["suspicion"] > 0.5).sum())
            text += f", {n} more likely bad than not"
        return f"LabelRanking({text})"

    @property
    def order(self) -> str:
        """The order in words, what the check says of it, and what the suspicion is based on."""
        text = "the mean rank in several orders" if self.by == "all" else ORDERS[self.by].text
        sentences = [f"Ordered by {text}."]
        if self.checks is not None:
            row = self.checks.loc[self.by]
            interval = f"95 % interval {100 * row['low']:.0f} to {100 * row['high']:.0f}"
            sentences.append(
                f"Of {self.n_planted} planted wrong labels this order finds "
                f"{100 * row['found']:.0f} % ({interval}) among as many suspects as there are "
                f"wrong labels (about {100 * self.share_wrong:.1f} %)."
            )
        return " ".join([*sentences, SOURCES[self.source]])


FEW_ANSWERS = 5
"""Items with fewer answers get a remark."""

Z = 1.645
"""One-sided 5 % point of the Normal."""

LOW_CONFIDENCE = 0.25
"""Items with a lower mean probability of the label in training get a remark."""


def reasons(row: dict[Any, Any], slope: float, p_fit: float) -> Iterator[str]:
    """Evidence against an item, as text."""
    if row["n"] == 0:
        yield "no answers"
        return
    if "a" in row:
        if row["n"] < FEW_ANSWERS:
            yield f"only {row['n']} answer{'' if row['n'] == 1 else 's'}"
        yield from _reasons_by_answers(row, slope)
    if row.get("confidence", 1.0) < LOW_CONFIDENCE:
        yield f"learners give the label a mean probability of only {row['confidence']:.2f}"
    if row.get("top_z", 0.0) < -Z:
        result = f"{row['top_right']:.0f} of the best {row['top_n']} are right"
        yield f"{result}, where {row['top_expected']:.1f} would be expected"
    if row.get("p_other_class", 0.0) > 0.5:
        yield f"learners predict {row['suggested']}"
    if row.get("p_wrong_key", 0.0) > 0.5:
        yield "answers are those to another key"
    elif row.get("p_unrelated", 0.0) > 0.5:
        yield "ability does not decide the answers"
    if p_fit < 0.01:
        yield f"does not fit the model (p = {p_fit:.2g})"


def _reasons_by_answers(row: dict[Any, Any], slope: float) -> Iterator[str]:
    """Evidence of the share right, the slope and the upper asymptote."""
    if row["share"] in (0.0, 1.0):
        yield "nobody is right" if row["share"] == 0 else "everybody is right"
    a, se = row["a"], row["se_a"]
    has_se = np.isfinite(se)
    size = f"(a = {a:.2f}, SE {se:.2f})" if has_se else f"(a = {a:.2f})"
    if a < 0:
        yield f"{'clearly ' if has_se and a + Z * se < 0 else ''}negative discrimination {size}"
    elif has_se and a + Z * se < slope / 2:
        yield f"hardly discriminates {size}"
    if row["feasibility"] < 0.7:
        yield f"even the best are right {100 * row['feasibility']:.0f} % of the time at most"


SOURCES = {
    "answers": "Suspicion by the answers, which are taken to be independent given ability.",
    "classes": "Suspicion by the predicted classes and the estimated confusion of the classes.",
    "planted": "Suspicion by where planted wrong labels stand in this order.",
    "none": "Without probabilities of wrong labels: learners remember labels that they were "
    "trained on. To have them, plant wrong labels before training (labels.plant, planted=).",
}
"""What the suspicion is computed from."""


def share_of_wrong(data: LabelData, table: pd.DataFrame, check: Check, default: str) -> float:
    """The share of wrong labels: by the predicted classes, or by where planted ones are found."""
    if data.model is not None:
        return float(table["p_other_class"].mean())
    return float(share_wrong(check.position[default].to_numpy(), len(table)))


def with_suspicion(table: pd.DataFrame, source: str, by: str, check: Check | None) -> pd.DataFrame:
    """The table with the suspicion by its source; its two terms keep their proportion."""
    if source in ("answers", "none"):
        return table.copy()
    if source == "classes":
        suspicion = table["p_other_class"].to_numpy(float)
    else:
        assert check is not None
        key = pd.Series(sort_key(table, by)).rank(na_option="bottom")
        position = (key.to_numpy() - 0.5) / len(key)
        suspicion = posterior(check.position[by].to_numpy(), len(table), position)
    if "p_wrong_key" not in table:  # the answers did not count
        table = table.copy()
        table.insert(0, "suspicion", suspicion)
        return table
    scale = suspicion / (table["p_wrong_key"] + table["p_unrelated"])
    terms = {name: table[name] * scale for name in ("p_wrong_key", "p_unrelated")}
    return table.assign(suspicion=suspicion, **terms)

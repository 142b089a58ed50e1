"""Items ranked by the suspicion that their labels are wrong, and what the order is based on."""

from dataclasses import dataclass

import pandas as pd

from irtcat._common.checks import check_count
from irtcat.bank import ItemBank
from irtcat.diagnose.labels.orders import ORDERS
from irtcat.diagnose.labels.suspicion import SOURCES


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

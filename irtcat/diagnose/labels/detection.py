"""Wrong labels: items ranked by the suspicion of their key or question, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count, check_interval
from irtcat._common.progress import ProgressOption, part_of, with_progress
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, ItemBank
from irtcat.diagnose.labels.answers import answer_evidence, kind_shares
from irtcat.diagnose.labels.evidence import top_columns
from irtcat.diagnose.labels.inputs import LabelData, read_data
from irtcat.diagnose.labels.orders import ORDERS, best_order, missing_evidence, order_keys, sort_key
from irtcat.diagnose.labels.planted_check import check_after_planting
from irtcat.diagnose.labels.plants import (
    MIN_GAIN,
    NEVER,
    Check,
    Planted,
    check_planted,
    choose,
    posterior,
    share_wrong,
)
from irtcat.io.convert import ResponsesLike


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


@with_progress("Ranking labels")
def rank(
    responses: ResponsesLike,
    bank: BankLike | None = None,
    *,
    prior: tuple[float, float] = (0.05, 0.05),
    top: float = 0.25,
    misfit: Any = None,
    dynamics: Any = None,
    feasibility: ItemBank | bool = False,
    by: str = "auto",
    planted: Planted | None = None,
    alternatives: int | None = None,
    seed: int = 0,
    mismatch: str = "refuse",
    progress: ProgressOption = None,
) -> LabelRanking:
    """Rank items by the probability that their labels are wrong, with reasons.

    Three hypotheses about each item are compared by Bayes' rule, with abilities estimated from the
    other items (above 100 items: from all): the item is sound (P(right) increases with ability), a
    wrong answer is the key (P("right") decreases), or the answers are unrelated to ability (an
    ambiguous item, a coin flip). Parameters are integrated out, so that ten subjects give cautious
    probabilities and a thousand decisive ones. A very hard item and a wrong key look alike if
    nobody is right; otherwise the abilities of those who are right distinguish them. With fewer
    than 50 subjects, more than 100 items and no bank, abilities and the distribution of slopes and
    difficulties are estimated together and every item is integrated out, since it has too few
    answers for calibration.

    These probabilities are for tests and benchmarks. Subjects that err together count less, by the
    correlations of their residuals; similar learners still make the same errors. For a crowd of
    learners (`irtcat.training.crowd`) the suspicion comes from their probabilities of the classes
    instead, calibrated on the labels, with the confusion of the classes by those who labelled
    estimated at the same time (Rodrigues & Pereira 2018 and Dawid & Skene 1979 are related). If
    only right and wrong answers of learners are known, it comes from the check, as described below.

    The order is chosen by a check, since no order is the best for all data: wrong labels are
    planted in the data, all evidence is computed as if they had been there, and the orders are
    compared by how many of them they find. The default is "classes" for predicted classes, "share"
    for answers of learners, and otherwise "wrong-key" if the estimated share of wrong keys among
    the items is above that of items unrelated to ability, else "answers". With predicted classes it
    is replaced by an order that finds more by 2 standard errors and 5 points, since planted labels
    are not quite like wrong ones. They leave no trace in the table. Right and wrong answers alone
    do not say which wrong answers agree: then the order stays the default. With fewer than 40 items
    there is no check, and "answers" is the order of tests.

    Of a crowd of fewer than 10 members, such as one matrix of probabilities of cross-validation,
    only the predicted classes count (see `irtcat.training.audit`).

    Wrong labels can be planted afterwards only if learners were not trained on the items in
    question. With ``dynamics``, which come from training, the default is "confidence", without a
    check; for one, plant labels before training (`plant`) and pass them as ``planted``. Training
    dynamics alone give an order, and without planted labels no suspicion.

    Args:
        responses: right/wrong, of at least 3 items; or a crowd, whose predicted classes then count
            as well; or training dynamics alone (`irtcat.training.dynamics`).
        bank: the calibrated items, unidimensional; by default a 2PL is fitted to these responses,
            whose slopes may be negative. A bank with slopes constrained to be positive hides the
            sign.
        prior: prior probabilities of a wrong key and of an unrelated item; both above 0, with a
            sum below 1.
        top: share of the subjects that counts as the best.
        misfit: p-values of a test of item fit, by item id (a Series or mapping), for the reasons.
        dynamics: training dynamics of the items, from `irtcat.training.dynamics` (or a table by
            item with a column confidence); NaN for items without any.
        feasibility: True to also fit the feasibility model to the responses, or a bank of it.
        by: the order: "auto" (the default described above), "answers" (suspicion by the hypotheses
            above; the other orders do not enter it), "wrong-key" (that hypothesis against the two
            others; it finds more flipped labels), lowest "discrimination" (signed), "feasibility",
            "confidence" or "share" right first; for a crowd "classes" (highest probability of
            another class), lowest "margin" (relative difference to the best other class) or "aum"
            (the members' mean difference); or "all": the lowest mean rank in discrimination,
            feasibility, confidence and the answers, as far as available.
        planted: labels that were planted before training. Their items are removed from the table.
        alternatives: number of answers to choose from, which decides how many subjects a planted
            wrong key makes right; by default the classes of a crowd, else unknown.
        seed: seed of the planted labels.
        mismatch: as for `irtcat.score`, for ``bank`` and a bank of ``feasibility``.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` in the fits, for the blocks of answers whose evidence
            is computed, and for the rounds of planted labels.

    Returns:
        Indexed by item: suspicion (posterior probability that the item is not sound, 0 to 1),
        p_wrong_key, p_unrelated (its two terms), log_odds (of not sound against sound by the
        answers: distinguishes items with a suspicion near 0 or 1), log_odds_wrong_key (of a wrong
        key against the others), a and se_a, share (right), n (answers), feasibility (upper
        asymptote; NaN without a model that has one), top_right of top_n best subjects, top_expected
        (for an item of median slope and this share right), top_z, with ``dynamics`` or a crowd
        confidence, variability and correctness as far as known, with a crowd label, suggested (the
        most probable class), p_other_class, margin and aum, and reasons (may be empty). The
        suspicion of an item without answers is the prior. Where right and wrong answers do not
        count (few members, dynamics alone), the columns that come from them are left out.

    Raises:
        InputError: for graded responses, a bank without some of the items, or a prior or share out
            of range.

    Example:
        >>> from irtcat import Responses
        >>> bank = ItemBank.from_parameters(b=np.linspace(-1, 1, 20))
        >>> X = bank.simulate(np.linspace(-2, 2, 100)).to_numpy()
        >>> X[:, 4] = 1 - X[:, 4]  # a wrong key
        >>> rank(Responses.from_array(X)).first(1).index.tolist()
        ['i5']

    References:
        Rodriguez et al. (2021), ACL, and Lalor et al. (2024), EACL tutorial (negative and low
        discrimination, feasibility); Kass & Raftery (1995), Journal of the American Statistical
        Association 90, 773-795 (comparing hypotheses); Dawid & Skene (1979), Applied Statistics 28,
        20-28 (confusion of classes by EM); Elkan & Noto (2008), KDD (posterior from labelled and
        unlabelled examples); Pleiss et al. (2020), NeurIPS (area under the margin).
    """
    check_interval("top", top)
    check_choice("by", by, ("auto", *ORDERS, "all"))
    check_count("seed", seed, 0)
    if alternatives is not None:
        check_count("alternatives", alternatives, 2)
    data = read_data(responses, bank, prior, dynamics, feasibility, by, planted)
    if by in ORDERS and not data.has(by):  # before any fit
        raise missing_evidence(by)
    data.check_conditions(mismatch)
    p_fit = _misfit(misfit, data.item_ids)
    plants = by == "auto" and data.can_plant()
    parts = [part_of(progress, part, 1 + plants) for part in range(1 + plants)]
    found, slope = None, np.nan
    if data.uses_answers:
        found = answer_evidence(
            data.answers(), data.bank, data.prior, feasibility, progress=parts[0]
        )
        slope = _slope(found.table["a"].to_numpy(float), found.bank)
        table = found.table.assign(**top_columns(data.answers(), found.ability, slope, top))
        table = table.assign(**data.columns())
    else:
        index = pd.Index(data.item_ids, name="item")
        table = pd.DataFrame(data.columns(), index).assign(**data.counts())
    check = None
    if plants:
        check = check_after_planting(data, table, alternatives, seed, parts[1])
    elif by == "auto" and data.planted is not None:
        check = check_planted(order_keys(table, data.orders), data.planted)
    wrong_keys = False
    if found is not None and plants:
        of_wrong_keys, of_unrelated = kind_shares(table, data.prior)
        wrong_keys = of_wrong_keys > of_unrelated
    default = best_order(data.subjects(), table.columns, wrong_keys)
    share, checks = np.nan, None
    if check is not None:
        share = share_of_wrong(data, table, check, default)
        # Which wrong answers agree is unknown without predicted classes: orders that were chosen
        # by planted keys found less than the default (experiments/label_detectors for learners,
        # experiments/benchmark_labels for others).
        gain = NEVER if plants and data.model is None else MIN_GAIN
        by, checks = choose(check, default, share, gain)
    elif by == "auto":
        by = default
    if data.planted is not None:
        sound = np.delete(np.arange(len(table)), data.planted)
        table, p_fit = table.iloc[sound], p_fit[sound]
    source = data.source(check)
    table = with_suspicion(table, source, by, check)
    rows = zip(table.to_dict("records"), p_fit, strict=True)
    table["reasons"] = ["; ".join(reasons(row, slope, p)) for row, p in rows]
    order = np.argsort(sort_key(table, by), kind="stable")  # NaN sorts last
    return LabelRanking(
        table=table.iloc[order],
        bank=None if found is None else found.bank,
        prior=data.prior,
        by=by,
        checks=checks,
        n_planted=0 if check is None else len(check.kind),
        share_wrong=share,
        source=source,
        confusions=data.confusions(),
    )


def _slope(a: FloatArray, bank: ItemBank) -> float:
    """The slope of a typical item."""
    return float(np.median(a[a > 0])) if (a > 0).any() else 1 / bank.population.sd


def _misfit(misfit: Any, ids: np.ndarray) -> FloatArray:
    """P-values of item fit in the items' order; NaN for items without one."""
    if misfit is None:
        return np.full(len(ids), np.nan)
    try:
        series = pd.Series(misfit, dtype=float)
        by_id = series.set_axis(series.index.astype(str))
        values = by_id.reindex(ids.astype(str)).to_numpy(float)
    except (TypeError, ValueError):  # text, or repeated items
        raise argument_error("misfit", "p-values from 0 to 1 by item id", misfit) from None
    if np.isnan(values).all() or (values < 0).any() or (values > 1).any():
        raise argument_error("misfit", "p-values from 0 to 1 by item id", misfit)
    return values

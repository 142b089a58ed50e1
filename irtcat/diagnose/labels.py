"""Wrong labels: items with a suspect key or question."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logsumexp

from irtcat._checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    check_count,
    check_interval,
)
from irtcat._progress import FitProgress, Progress, part_of, with_progress
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.diagnose._label_evidence import LONG, Evidence, item_evidence, top_subjects
from irtcat.diagnose._label_few import few_evidence
from irtcat.diagnose._label_orders import (
    ORDERS,
    average_precision,
    best_order,
    missing_evidence,
    precision_at,
    read_dynamics,
    recall_at,
    sort_key,
)
from irtcat.fitting import fit
from irtcat.fitting._priors import FEW_RESPONSES
from irtcat.responses import Responses
from irtcat.scoring import score

__all__ = ["ORDERS", "LabelRanking", "average_precision", "precision_at", "rank", "recall_at"]

FEW_ANSWERS = 5
"""Items with fewer answers get a remark."""
ORDER_TEXTS = {
    "answers": "Ordered by suspicion: the probability of a wrong key or an unrelated item.",
    "confidence": "Ordered by the learners' mean probability of the label, lowest first.",
    "share": "Ordered by the share of learners that predict the label, lowest first: learners that "
    "were trained on labels rarely reproduce a wrong one.",
}
Z = 1.645
"""One-sided 5 % point of the Normal."""
LOW_CONFIDENCE = 0.25
"""Items with a lower mean probability of the label in training get a remark."""


@dataclass(frozen=True, eq=False)
class LabelRanking:
    """The result of `rank`.

    Attributes:
        table: one row per item, the most suspect first; see `rank`.
        bank: the calibrated items.
        prior: prior probabilities of a wrong key, and of an item unrelated to ability.
        by: the order of the table (see `rank`).
    """

    table: pd.DataFrame
    bank: ItemBank
    prior: tuple[float, float]
    by: str = "answers"

    def first(self, n: int = 10) -> pd.DataFrame:
        """The n most suspect items."""
        check_count("n", n)
        return self.table.head(n)

    def to_frame(self) -> pd.DataFrame:
        """The table of items."""
        return self.table.copy()

    def __repr__(self) -> str:
        n = int((self.table["suspicion"] > 0.5).sum())
        return f"LabelRanking({len(self.table)} items by {self.by}, {n} more likely bad than not)"

    @property
    def order(self) -> str:
        """The order in words."""
        return ORDER_TEXTS.get(self.by, f"Ordered by {self.by}.")


def rank(
    responses: Responses,
    bank: ItemBank | None = None,
    *,
    prior: tuple[float, float] = (0.05, 0.05),
    top: float = 0.25,
    misfit: Any = None,
    dynamics: Any = None,
    feasibility: ItemBank | bool = False,
    by: str = "auto",
    progress: Progress | bool | None = None,
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

    These probabilities are for tests and benchmarks, where hard items are common. They assume that
    answers are independent given ability, so that a crowd of similar learners, with similar errors,
    makes them overconfident; and learners trained on the labels themselves rarely reproduce a wrong
    one. So the default order depends on what is given: with ``dynamics`` the lowest confidence
    first; for the responses of a crowd (`irtcat.training.crowd`, by the columns size and noise of
    its members) the lowest share right; otherwise the suspicion. With 5 to 20 % of the labels
    flipped, in four crowds of learners, confidence found 76 to 90 % of them, the share right 71 to
    89 % and the suspicion 7 to 69 %; in simulated tests the share right found at most 24 % and the
    suspicion at least 97 % (``experiments/label_detectors``).

    Args:
        responses: right/wrong, of at least 3 items.
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
            "confidence" or "share" right first, or "all": the lowest mean rank in discrimination,
            feasibility, confidence and the answers, as far as available.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` in the fits and for the blocks of answers whose evidence
            is computed.

    Returns:
        Indexed by item: suspicion (posterior probability that the item is not sound, 0 to 1),
        p_wrong_key, p_unrelated (its two terms), log_odds (of not sound against sound:
        distinguishes items with a suspicion near 0 or 1), log_odds_wrong_key (of a wrong key
        against the others), a and se_a, share (right), n (answers), feasibility (upper asymptote;
        NaN without a model that has one), top_right of top_n best subjects, top_expected (for an
        item of median slope and this share right), top_z, with ``dynamics`` confidence, variability
        and correctness, and reasons (may be empty). The suspicion of an item without answers is the
        prior.

    Raises:
        InputError: for graded responses, a bank without some of the items, or a prior or share out
            of range.

    Example:
        >>> bank = ItemBank.from_parameters(b=np.linspace(-1, 1, 20))
        >>> X = bank.simulate(np.linspace(-2, 2, 100)).to_numpy()
        >>> X[:, 4] = 1 - X[:, 4]  # a wrong key
        >>> rank(Responses.from_array(X)).first(1).index.tolist()
        ['i5']

    References:
        Rodriguez et al. (2021), ACL, and Lalor et al. (2024), EACL tutorial (negative and low
        discrimination, feasibility); Kass & Raftery (1995), Journal of the American Statistical
        Association 90, 773-795 (comparing hypotheses).
    """
    if isinstance(progress, bool):
        return with_progress(rank, "Ranking labels", locals())
    _check(responses, prior)
    check_interval("top", top)
    check_choice("by", by, ("auto", *ORDERS, "all"))
    _check_feasibility(feasibility)
    read = None if dynamics is None else read_dynamics(dynamics, responses.item_ids)
    missing = {"confidence": read is None, "feasibility": feasibility is False and bank is None}
    if missing.get(by, False):  # before any fit
        raise missing_evidence(by)
    if by == "auto":
        by = best_order(responses.subjects, read is not None)
    p_fit = _misfit(misfit, responses.item_ids)
    few = bank is None and responses.n_subjects < FEW_RESPONSES and responses.n_items > LONG
    has_bank = bank is not None
    n_parts = 3 - has_bank - (feasibility is not True)
    parts = [part_of(progress, part, n_parts) for part in range(n_parts)]
    bank = _bank_of(responses, bank, parts[0])
    ability = score(bank, responses)
    if few:
        priors = (float(prior[0]), float(prior[1]))
        evidence = few_evidence(responses.to_numpy(), priors, parts[1 - has_bank])
    else:
        evidence = item_evidence(bank, responses, ability, parts[1 - has_bank])
    table = _posterior(evidence, prior).set_axis(pd.Index(responses.item_ids, name="item"))
    frame, X = bank.to_frame(), responses.to_numpy()
    a = frame["a"].to_numpy(float)
    table["a"], table["se_a"] = a, frame["se_a"].to_numpy(float)
    table["n"] = (~np.isnan(X)).sum(axis=0)
    table["share"] = np.nansum(X, axis=0) / np.where(table["n"] > 0, table["n"], np.nan)
    table["feasibility"] = _feasibility(frame, responses, feasibility, parts[-1])
    slope = float(np.median(a[a > 0])) if (a > 0).any() else 1 / bank.population_sd
    n, right, expected, sd = top_subjects(responses, ability, slope, top)
    table["top_n"], table["top_right"], table["top_expected"] = n.astype(int), right, expected
    table["top_z"] = np.where(sd > 0.1, (right - expected) / np.where(sd > 0, sd, 1), np.nan)
    if read is not None:
        table[read.columns.tolist()] = read
    rows = zip(table.to_dict("records"), p_fit, strict=True)
    table["reasons"] = ["; ".join(_reasons(row, slope, p)) for row, p in rows]
    order = np.argsort(sort_key(table, by), kind="stable")  # NaN sorts last
    return LabelRanking(table.iloc[order], bank, (float(prior[0]), float(prior[1])), by)


def _check(responses: Any, prior: Any) -> None:
    if not isinstance(responses, Responses):
        raise argument_error("responses", "Responses", type(responses).__name__)
    if not responses.is_binary or responses.trials is not None:
        raise argument_error("responses", "right/wrong", responses.kind)
    if responses.n_items < 3:
        raise argument_error("responses", "of at least 3 items", f"{responses.n_items}")
    real = np.ndim(prior) == 1 and np.asarray(prior).dtype.kind in "iuf"
    numbers = np.asarray(prior, float) if real else np.zeros(0)
    if numbers.shape != (2,) or not (numbers > 0).all() or not numbers.sum() < 1:
        raise argument_error("prior", "two numbers above 0 with a sum below 1", prior)


def _check_feasibility(feasibility: Any) -> None:
    if not isinstance(feasibility, (bool, ItemBank)):
        must = "True, False or a bank of the feasibility model"
        raise argument_error("feasibility", must, type(feasibility).__name__)


def _bank_of(responses: Responses, bank: Any, progress: Progress | None) -> ItemBank:
    """The items of the responses, calibrated."""
    if bank is None:
        return fit(responses, "2pl", progress=FitProgress.of(progress)).bank
    if not isinstance(bank, ItemBank):
        raise argument_error("bank", "an ItemBank", type(bank).__name__)
    if bank.model.dims != 1 or bank.model.takes != "right/wrong":
        raise argument_error("bank", "of unidimensional right/wrong items", bank)
    missing = np.setdiff1d(responses.item_ids.astype(str), bank.item_ids)
    if len(missing):
        must = f"have all items of the responses. It has no {brief(missing[0])}"
        raise InputError(f"The `bank` argument must {must}.")
    return bank.subset(responses.item_ids.astype(str))


def _feasibility(
    frame: pd.DataFrame, responses: Responses, feasibility: Any, progress: Progress | None
) -> FloatArray:
    """Upper asymptotes of the feasibility model, if requested, or of the bank; NaN without."""
    if feasibility is True:
        feasibility = fit(responses, "feasibility", progress=FitProgress.of(progress)).bank
    if feasibility is not False:
        frame = _bank_of(responses, feasibility, None).to_frame()
    d = frame["d"].to_numpy(float)
    return d if (d < 1).any() else np.full(len(d), np.nan)


def _posterior(evidence: Evidence, prior: tuple[float, float]) -> pd.DataFrame:
    """Bayes' rule for the three hypotheses."""
    log_prior = np.log([1 - prior[0] - prior[1], *prior])
    log_joint = np.stack(evidence) + log_prior[:, None]
    p = np.exp(log_joint - logsumexp(log_joint, axis=0))
    odds = logsumexp(log_joint[1:], axis=0) - log_joint[0]
    odds_wrong_key = log_joint[1] - logsumexp(log_joint[[0, 2]], axis=0)
    columns = {"suspicion": expit(odds), "p_wrong_key": p[1], "p_unrelated": p[2]}
    return pd.DataFrame({**columns, "log_odds": odds, "log_odds_wrong_key": odds_wrong_key})


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


def _reasons(row: dict[Any, Any], slope: float, p_fit: float) -> Iterator[str]:
    """Evidence against an item, as text."""
    if row["n"] == 0:
        yield "no answers"
        return
    if row["n"] < FEW_ANSWERS:
        yield f"only {row['n']} answer{'' if row['n'] == 1 else 's'}"
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
    if row.get("confidence", 1.0) < LOW_CONFIDENCE:
        yield f"while training, a mean probability of only {row['confidence']:.2f} for the label"
    if row["top_z"] < -Z:
        result = f"{row['top_right']:.0f} of the best {row['top_n']} are right"
        yield f"{result}, where {row['top_expected']:.1f} would be expected"
    if row["p_wrong_key"] > 0.5:
        yield "answers are those to another key"
    elif row["p_unrelated"] > 0.5:
        yield "ability does not decide the answers"
    if p_fit < 0.01:
        yield f"does not fit the model (p = {p_fit:.2g})"

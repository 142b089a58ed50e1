"""Planning: number of items needed to rank a gap right, by design-based formulas."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from irtcat._common.checks import argument_error, check_count, check_interval
from irtcat._common.progress import ProgressOption, Steps, with_progress
from irtcat._common.types import FloatArray, IntArray
from irtcat.io import as_responses
from irtcat.leaderboard.gaps import check_confidence, order_curve, smallest_gap
from irtcat.prediction import full_scores
from irtcat.responses import Responses
from irtcat.responses._matrix import observed
from irtcat.selection import expectation_of

DESIGNS = ("random", "stratified")
N_STRATA = 10
"""Strata of proportion correct of the design "stratified"."""

MOST_SUBJECTS = 600
"""Maximum number of subjects whose pairs are used; more are subsampled, and flagged."""

FEWEST_PAIRS = 30
"""Minimum number of close pairs; if fewer are close the closest ones are used."""

SHARE_EXPECTED, FEWEST_EXPECTED = 1 / 3, 10
"""Share of the subjects, and their least number, that stand for stronger or weaker new ones: fewer
have too few close pairs."""

NORMAL_SIZE = 10
"""Below this number of items the normal approximation of a difference of means is flagged."""


class PairVariances(NamedTuple):
    """Input of the design-based formulas for each pair of subjects.

    Attributes:
        gap: absolute difference of the means over shared items.
        variance: variance over items of the difference (divisor n - 1), within strata for a
            stratified sample.
        share: shared items as a share of all items.
        one: position of one subject.
        other: position of the other.
    """

    gap: FloatArray
    variance: FloatArray
    share: FloatArray
    one: IntArray
    other: IntArray

    def standard_errors(self, k: int, n_items: int) -> FloatArray:
        """SD of the difference of both means over k of N items, ``S sqrt((1 - k/N) / k)``."""
        return np.sqrt(self.variance * (1 - k / n_items) / np.maximum(k * self.share, 1e-300))

    def chances(self, k: int, n_items: int, gap: FloatArray | float | None = None) -> FloatArray:
        """Probability that k items rank each pair right, ``Phi(gap / SE)``."""
        gaps = self.gap if gap is None else gap
        error = self.standard_errors(k, n_items)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(error > 0, ndtr(gaps / error), np.where(np.asarray(gaps) > 0, 1.0, 0.5))


@dataclass(frozen=True, eq=False)
class Plan:
    """Number of items needed to rank a gap right.

    Attributes:
        table: one row per design (see `to_frame`).
        curve: one row per design and k: ``chance``, the probability of ranking the gap right.
        gap: the gap between full scores, in score units.
        confidence: required probability of the right order.
        n_items: number of items in the full benchmark.
        n_pairs: number of pairs of subjects used.
        flags: warnings.
    """

    table: pd.DataFrame
    curve: pd.DataFrame
    gap: float
    confidence: float
    n_items: int
    n_pairs: int
    flags: tuple[str, ...]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {k}" for name, k in self.table["n_items"].items())
        return (
            f"Plan(a gap of {100 * self.gap:g} points ranked right with chance "
            f"{self.confidence:g}: {counts} of {self.n_items} items)"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per design: number of items needed.

        Returns:
            Indexed by design: n_items (k), with lower and upper ends of its bootstrap interval
            over subjects; n_items_typical and n_items_hard, which are enough for 50 % and for 90 %
            of the individual pairs; share = k / N; margin, half the width in points of a 95 %
            interval for the difference of two subjects at that k (root mean square over pairs).
        """
        return self.table.copy()


@with_progress("Planning")
def plan(
    responses: Responses,
    gap: float = 0.02,
    confidence: float = 0.8,
    *,
    designs: tuple[str, ...] = DESIGNS,
    expect: str | None = None,
    n: int = 200,
    seed: int = 0,
    level: float = 0.9,
    progress: ProgressOption = None,
) -> Plan:
    """Number of items that two subjects must answer to rank a gap between them right.

    Both answer the same k of N items and their means are compared. Over repeated samples the
    difference has variance ``(1 - k/N) S^2 / k``, S^2 the variance over items of
    ``x_il - x_jl``, which for right/wrong items is the share of items on which the two disagree,
    less gap^2. Two subjects with a true gap g are ranked right with probability ``Phi(g / SE)``;
    with a flat prior this is also the probability that an observed gap of g has the right sign. The
    result is the smallest k for which the mean of this probability, over pairs of subjects at most
    twice the gap apart, reaches ``confidence``. Sampling proportionally within ten strata of
    proportion correct replaces S^2 by its mean within strata.

    The result is valid for the mean of a probability sample; for other strategies and estimators
    measure it with `evaluate`, `reliable_gaps` and `items_needed`.

    Args:
        responses: responses to the full benchmark, of at least 2 different subjects.
        gap: gap between full scores, in score units: .02 is 2 points.
        confidence: required probability of the right order, above 1/2 and below 1.
        designs: "random", "stratified" or both.
        expect: what is known of the subjects to be ranked: if "stronger" or "weaker", the strongest
            or weakest third of the subjects stands for them.
        n: number of bootstrap resamples of the subjects, at least 2.
        seed: seed of the resamples.
        level: probability of the bootstrap interval.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` for the numbers of items of each design.

    Returns:
        The plan: `to_frame()`, and ``curve`` with the probability at every k.

    Raises:
        InputError: for numbers out of range, an unknown design, or responses without two subjects
            that share items.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 1000))
        >>> plan(bank.simulate(np.linspace(-1, 1, 60)), gap=0.02)
        Plan(a gap of 2 points ranked right with chance 0.8: random 395, stratified 394 of 1000
        items)

    References:
        Cochran (1977), Sampling Techniques, sections 2.6 and 5.3 (finite population, strata);
        Card et al. (2020), With Little Power Comes Great Responsibility, EMNLP.
    """
    if not isinstance(gap, (int, float)) or not 0 < gap < 1:
        raise argument_error("gap", "a difference of scores between 0 and 1 (.02 is 2 points)", gap)
    check_confidence(confidence)
    check_count("n", n, 2)
    check_interval("level", level)
    designs = _check_designs(designs)
    unique, flags = _thinned(_expected(as_responses(responses, name="responses"), expect), seed)
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(unique.n_subjects, np.full(unique.n_subjects, 1 / unique.n_subjects), n)
    tail = (1 - level) / 2
    n_items = _sizes(unique.n_items)
    begin = Steps(progress, len(designs) * len(n_items))
    rows, curves, n_pairs = [], [], 0
    for design in designs:
        pairs = _close(pair_variances(unique, design), gap, flags)
        n_pairs = len(pairs.gap)
        chances = np.empty((len(n_items), n_pairs))
        for row, k in enumerate(n_items):
            begin(f"Design {design}: {k} of {unique.n_items} items")
            chances[row] = pairs.chances(k, unique.n_items, gap)
        weights = np.vstack([np.ones(n_pairs), draws[:, pairs.one] * draws[:, pairs.other]])
        mass = weights.sum(axis=1)
        mean = (chances @ weights[mass > 0].T) / mass[mass > 0]
        sizes = n_items[np.argmax(mean >= confidence, axis=0)]
        # Within a pair: phi(gap / SE) >= confidence solved for k.
        pair_sizes = _pair_sizes(pairs, gap, confidence, unique.n_items)
        low, high = np.quantile(sizes[1:], [tail, 1 - tail]) if len(sizes) > 1 else (0, 0)
        k = int(sizes[0])
        square = np.mean(pairs.standard_errors(k, unique.n_items) ** 2)
        rows.append(
            {
                "design": design,
                "n_items": k,
                "lower": int(np.floor(low)),
                "upper": int(np.ceil(high)),
                "n_items_typical": int(np.quantile(pair_sizes, 0.5, method="inverted_cdf")),
                "n_items_hard": int(np.quantile(pair_sizes, 0.9, method="inverted_cdf")),
                "share": k / unique.n_items,
                "margin": 100 * ndtri(0.975) * np.sqrt(square),
            }
        )
        if k < NORMAL_SIZE:
            flags.append(f"{design}: fewer than {NORMAL_SIZE} items, a rough answer")
        curves.append(pd.DataFrame({"design": design, "n_items": n_items, "chance": mean[:, 0]}))
    table = pd.DataFrame(rows).set_index("design")
    curve = pd.concat(curves, ignore_index=True)
    notes = tuple(dict.fromkeys(flags))
    return Plan(
        table=table,
        curve=curve,
        gap=float(gap),
        confidence=float(confidence),
        n_items=unique.n_items,
        n_pairs=n_pairs,
        flags=notes,
    )


def _expected(responses: Responses, expect: str | None) -> Responses:
    """The subjects that stand for the expected ones: all, or a third of them."""
    expectation = expectation_of(expect)
    if expectation is None or expectation.direction == 0:
        return responses
    unique = responses.without_duplicate_subjects()
    scores = expectation.direction * full_scores(unique)
    order = np.argsort(-scores, kind="stable")[: np.count_nonzero(~np.isnan(scores))]
    nearest = order[: max(FEWEST_EXPECTED, round(len(order) * SHARE_EXPECTED))]
    return unique.subset(subjects=np.sort(nearest))


def design_gaps(
    responses: Responses,
    n_items: tuple[int, ...] = (10, 30, 60, 100),
    confidence: float = 0.8,
    design: str = "random",
    seed: int = 0,
) -> pd.DataFrame:
    """The smallest gap that the mean of k sampled items ranks right, by formula.

    The same curve as in `reliable_gaps`, with the probability ``Phi(gap / SE)`` of each pair
    instead of observed rankings: a check of it without a draw, and a prediction for a planned
    sample.

    Args:
        responses: responses to the full benchmark.
        n_items: numbers of items, from 1 to all.
        confidence: required probability of the right order.
        design: "random" or "stratified".
        seed: seed of the subsample of very many subjects.

    Returns:
        Indexed by n_items: gap in points (infinite if no pair is far enough apart) and flag.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> r = ItemBank.from_parameters(b=np.linspace(-2, 2, 200)).simulate(np.linspace(-1, 1, 80))
        >>> design_gaps(r, (10, 40))["gap"].round(1).tolist()
        [15.8, 7.2]
    """
    check_confidence(confidence)
    design = _check_designs((design,))[0]
    unique, flags = _thinned(as_responses(responses, name="responses"), seed)
    pairs = pair_variances(unique, design)
    rows = []
    for k in n_items:
        check_count("n_items", k, 1, unique.n_items)
        keep = pairs.gap > 0
        curve = order_curve(pairs.gap[keep], pairs.chances(k, unique.n_items)[keep])
        smallest = smallest_gap(*curve, confidence)
        note = [] if np.isfinite(smallest) else ["no pair is far enough apart"]
        rows.append({"n_items": k, "gap": 100 * smallest, "flag": "; ".join([*flags, *note])})
    return pd.DataFrame(rows).set_index("n_items")


def pair_variances(responses: Responses, design: str = "random") -> PairVariances:
    """Gap and variance of the difference over items, for all pairs of subjects that share 2 items.

    ``sum_l (x_il - x_jl)^2`` over shared items by matrix products, also with missing responses.
    """
    x = responses.to_numpy() / max(responses.n_categories - 1, 1)
    is_observed = observed(responses.values).astype(float)
    x = np.where(is_observed > 0, x, 0.0)
    one, other = np.triu_indices(len(x), 1)
    strata = [np.arange(x.shape[1])]
    if design == "stratified":
        counts = is_observed.sum(axis=0)
        share = np.divide(x.sum(axis=0), counts, out=np.full(x.shape[1], np.nan), where=counts > 0)
        order = np.argsort(share, kind="stable")
        strata = np.array_split(order, min(N_STRATA, max(x.shape[1] // 2, 1)))
    number = total = weighted = np.zeros(len(one))
    for items in strata:
        n, first, second = _moments(x[:, items], is_observed[:, items], one, other)
        spread = np.maximum(second - np.divide(first**2, n, out=np.zeros_like(n), where=n > 0), 0)
        within = np.divide(spread, n - 1, out=spread.copy(), where=n > 1)
        number, total, weighted = number + n, total + first, weighted + n * within
    keep = number > 1
    number, one, other = number[keep], one[keep], other[keep]
    if not len(number):
        must = "responses of at least 2 subjects that share 2 items"
        raise argument_error("responses", must, responses)
    gap = np.round(np.abs(total[keep]) / number, 12)
    return PairVariances(gap, weighted[keep] / number, number / x.shape[1], one, other)


def _moments(
    x: FloatArray, is_observed: FloatArray, one: IntArray, other: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Number, sum and sum of squares of the difference over shared items, for each pair."""
    square, cross = (x * x) @ is_observed.T, x @ is_observed.T
    number, first = is_observed @ is_observed.T, cross - cross.T
    second = square + square.T - 2 * (x @ x.T)
    return number[one, other], first[one, other], second[one, other]


def _close(pairs: PairVariances, gap: float, flags: list[str]) -> PairVariances:
    """The pairs at most twice the gap apart, or the closest ones if these are few."""
    keep = np.flatnonzero(pairs.gap <= 2 * gap + 1e-9)
    if len(keep) < FEWEST_PAIRS:
        keep = np.argsort(pairs.gap, kind="stable")[:FEWEST_PAIRS]
        flags.append(f"few pairs are close: the closest {len(keep)} are used")
    selected = PairVariances(
        pairs.gap[keep], pairs.variance[keep], pairs.share[keep], pairs.one[keep], pairs.other[keep]
    )
    # S^2 is centred at the pair's mean difference; centred at a gap of `gap` it is this.
    about_gap = np.maximum(selected.variance + selected.gap**2 - gap**2, 0)
    if (selected.variance == 0).any():
        flags.append("pairs of equal responses are among those compared")
    return selected._replace(variance=about_gap)


def _sizes(n_items: int) -> IntArray:
    """Every k up to 2,000, then about a thousand values up to N."""
    if n_items <= 2000:
        return np.arange(1, n_items + 1)
    sparse = np.unique(np.geomspace(2000, n_items, 1000).round().astype(int))
    return np.unique(np.r_[np.arange(1, 2001), sparse, n_items])


def _pair_sizes(pairs: PairVariances, gap: float, confidence: float, n_items: int) -> FloatArray:
    """Number of items needed for each pair: ``1/k = (gap / z S)^2 + 1/N`` solved for k."""
    infinite_size = (
        pairs.variance * ndtri(confidence) ** 2 / gap**2 / np.maximum(pairs.share, 1e-300)
    )
    return np.ceil(np.maximum(infinite_size / (1 + infinite_size / n_items), 1.0) - 1e-9)


def _check_designs(designs: tuple[str, ...]) -> tuple[str, ...]:
    """The unique designs; raises an error for unknown ones."""
    if isinstance(designs, str) or not designs or set(designs) - set(DESIGNS):
        raise argument_error("designs", f"some of {', '.join(DESIGNS)}", designs)
    return tuple(dict.fromkeys(designs))


def _thinned(responses: Responses, seed: int) -> tuple[Responses, list[str]]:
    """The responses of different subjects, at most `MOST_SUBJECTS`, and flags."""
    unique = responses.without_duplicate_subjects()
    if unique.n_subjects < 2:
        must = "responses of at least 2 different subjects"
        raise argument_error("responses", must, f"{unique.n_subjects} that differ")
    if unique.n_subjects <= MOST_SUBJECTS:
        return unique, []
    rows = np.random.default_rng(seed).permutation(unique.n_subjects)[:MOST_SUBJECTS]
    flag = f"{MOST_SUBJECTS} of {unique.n_subjects} subjects, drawn at random"
    return unique.subset(subjects=np.sort(rows)), [flag]

"""Planning: number of items, and of trials of each, needed to rank a gap right.

By design-based formulas: no answers are drawn.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from irtcat._common.checks import (
    argument_error,
    check_choice,
    check_count,
    check_interval,
    is_number,
)
from irtcat._common.progress import ProgressOption, Steps, with_progress
from irtcat._common.types import FloatArray, IntArray
from irtcat.diagnose import Reruns
from irtcat.diagnose import reruns as diagnose_reruns
from irtcat.diagnose.rerun_noise import moments, run_variance
from irtcat.io import as_responses
from irtcat.leaderboard.board import subject_draws
from irtcat.leaderboard.gaps import check_confidence, check_gap, order_curve, smallest_gap
from irtcat.prediction import full_scores
from irtcat.prediction.estimands import ESTIMANDS
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

MAX_TRIALS = 10
"""Most trials of an item in a plan, by default."""

ALPHA, POWER = 0.05, 0.8
"""Two-sided level of the test whose power is given, and the power of the smallest difference."""

AIMS = {"order": 0.0, "verdict": float(ndtri(1 - ALPHA / 2))}
"""How many standard errors the observed difference must exceed: 0 to rank right, or those of the
95 % interval, so that it lies on the right side of 0."""

NORMAL_SIZE = 10
"""Below this number of items the normal approximation of a difference of means is flagged."""


class _Aim(NamedTuple):
    """What a plan is to reach.

    Attributes:
        gap: the gap between two subjects.
        confidence: probability or power.
        width: how many standard errors the observed difference must exceed.
    """

    gap: float
    confidence: float
    width: float

    @property
    def measure(self) -> str:
        """The column of a table of splits that must reach the confidence."""
        return "power" if self.width else "chance"


class PairVariances(NamedTuple):
    """Input of the design-based formulas for each pair of subjects.

    Attributes:
        gap: absolute difference of the means over shared items.
        variance: variance over items of the difference (divisor n - 1), within strata for a
            stratified sample.
        share: shared items as a share of all items.
        one: position of one subject.
        other: position of the other.
        trial: variance of the difference of two trials of an item; 0 for the run at hand.
        run: variance of the difference of two whole runs.
        closes: whether all items leave no error of their choice, as for the scores on these items;
            not for the domain, nor where the variance over items is the bound of the runs' noise.
    """

    gap: FloatArray
    variance: FloatArray
    share: FloatArray
    one: IntArray
    other: IntArray
    trial: FloatArray | float = 0.0
    run: float = 0.0
    closes: bool = True

    def standard_errors(self, k: int, n_items: int, n_trials: int = 1) -> FloatArray:
        """SD of the difference of both means over r trials of k of N items.

        ``S^2 (1 - k/N) / k + V_trial / (k r) + V_run / r``, the square of it; without k/N where
        all items leave an error.
        """
        k_shared = np.maximum(k * self.share, 1e-300)
        of_items = self.variance * (1 - self.closes * k / n_items) / k_shared
        return np.sqrt(of_items + (self.trial / k_shared + self.run) / n_trials)

    def chances(
        self,
        k: int,
        n_items: int,
        gap: FloatArray | float | None = None,
        n_trials: int = 1,
        width: float = 0.0,
    ) -> FloatArray:
        """Probability that each pair differs by more than ``width`` SE, in the right order.

        ``Phi(gap / SE - width)``; with a width of 0 that k items rank the pair right.
        """
        gaps = self.gap if gap is None else gap
        error = self.standard_errors(k, n_items, n_trials)
        with np.errstate(divide="ignore", invalid="ignore"):
            certain = np.where(np.asarray(gaps) > 0, 1.0, 0.5)
            return np.where(error > 0, ndtr(gaps / error - width), certain)


@dataclass(frozen=True, eq=False)
class Plan:
    """Number of items needed to rank a gap right.

    Attributes:
        table: one row per design (see `to_frame`).
        curve: one row per design and k: ``chance``, the probability of reaching the aim.
        gap: the gap between full scores, in score units.
        confidence: required probability of the aim.
        n_items: number of items in the full benchmark.
        n_pairs: number of pairs of subjects used.
        flags: warnings.
        aim: "order" or "verdict".
        estimand: whose scores the gap is of: "run", "model" or "domain".
        splits: with ``reruns``, one row per design and number of trials: n_items, the smallest
            number that reaches ``confidence`` (with a budget: all that it pays); cost; se, the
            standard error of a difference in points; chance of the right order; power of a
            two-sided test at 5 % to find the gap, in the right direction; smallest_gap, in points,
            that the test finds with a power of 80 %; best. Rows that cannot reach ``confidence``
            are of all items.
    """

    table: pd.DataFrame
    curve: pd.DataFrame
    gap: float
    confidence: float
    n_items: int
    n_pairs: int
    flags: tuple[str, ...]
    aim: str = "order"
    estimand: str = "run"
    splits: pd.DataFrame | None = None

    def __str__(self) -> str:
        return f"{self!r}\nThe gap is of {ESTIMANDS[self.estimand].format(n=self.n_items)}."

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{row.Index} {row.n_items}"
            if self.splits is None
            else f"{row.Index} {row.n_items} x {row.n_trials} trials (power {row.power:.2f})"
            for row in self.table.itertuples()
        )
        reached = "ranked right with chance" if self.aim == "order" else "found with power"
        return (
            f"Plan(a gap of {100 * self.gap:g} points {reached} "
            f"{self.confidence:g}: {counts} of {self.n_items} items)"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per design: number of items needed.

        Returns:
            Indexed by design: n_items (k), with lower and upper ends of its bootstrap interval
            over subjects; n_items_typical and n_items_hard, which are enough for 50 % and for 90 %
            of the individual pairs; share = k / N; margin, half the width in points of a 95 %
            interval for the difference of two subjects at that k (root mean square over pairs).
            With ``reruns`` also n_trials of each item, cost, power and smallest_gap (see
            ``splits``); with a budget no bounds and no other numbers of items.
        """
        return self.table.copy()


@with_progress("Planning")
def plan(
    responses: Responses,
    gap: float = 0.02,
    confidence: float = 0.8,
    *,
    designs: tuple[str, ...] = DESIGNS,
    aim: str = "order",
    expect: str | None = None,
    n: int = 200,
    seed: int = 0,
    level: float = 0.9,
    estimand: str | None = None,
    reruns: Any = None,
    costs: tuple[float, float] = (0.0, 1.0),
    budget: float | None = None,
    max_trials: int = MAX_TRIALS,
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

    By default this is about the run at hand: with all items it is certain. With ``reruns`` the gap
    is that of the expected scores over reruns, and the plan splits the work between items and
    trials of each: with r trials of each item the variance is ``(1 - k/N) S^2 / k + V_trial / (k r)
    + V_run / r``, S^2 without the noise of trials, and the cost ``k (c_item + r c_trial)``. The
    cheapest k and r that reach ``confidence`` are chosen, or with a budget those with the best
    chance. With many items and no run effect r is near ``sqrt(c_item V_trial / (c_trial S^2))``.

    | estimand | the gap is of | variance |
    |---|---|---|
    | run | the scores of two runs on all items | as above; without ``reruns`` |
    | model | the expected scores on these items, over reruns | as above; if nothing is known of \
reruns ``S^2 / k``, as `compare` takes it |
    | domain | the expected scores on items like these | as above, without ``1 - k/N`` |

    The result is valid for the mean of a probability sample; for other strategies and estimators
    measure it with `evaluate`, `reliable_gaps` and `items_needed`.

    Args:
        responses: responses to the full benchmark, of at least 2 different subjects.
        gap: gap between full scores, in score units: .02 is 2 points.
        confidence: required probability of the aim, above 1/2 and below 1.
        designs: "random", "stratified" or both.
        aim: "order", that the two are ranked right; or "verdict", that a 95 % interval of the
            difference lies on the right side of 0: ``confidence`` is then the power of the test.
        expect: what is known of the subjects to be ranked: if "stronger" or "weaker", the strongest
            or weakest third of the subjects stands for them.
        n: number of bootstrap resamples of the subjects, at least 2.
        seed: seed of the resamples.
        level: probability of the bootstrap interval.
        estimand: whose scores the gap is of: "run", "model" or "domain"; by default "model" with
            ``reruns``, else "run". For "model" and "domain" repeated trials in ``responses`` count
            as ``reruns``.
        reruns: what is known of the noise of reruns: `irtcat.diagnose.Reruns`, responses with
            repeated trials (of any subjects) to estimate it from, or an ICC from 0 to 1, the
            correlation of two runs over items (1: deterministic).
        costs: cost of an item, whatever its number of trials, and of a trial of it.
        budget: what both subjects may cost each, in the same unit; by default no limit.
        max_trials: most trials of an item.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` for the numbers of items of each design.

    Returns:
        The plan: `to_frame()`, ``curve`` with the probability at every k, and ``splits``.

    Raises:
        InputError: for numbers out of range, an unknown design, responses without two subjects that
            share items, a budget that does not pay one item, or ``reruns`` for one run.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 1000))
        >>> plan(bank.simulate(np.linspace(-1, 1, 60)), gap=0.02)
        Plan(a gap of 2 points ranked right with chance 0.8: random 395, stratified 394 of 1000
        items)
        >>> answers = bank.simulate(np.linspace(-1, 1, 60))
        >>> designs = ("random",)
        >>> plan(answers, 0.05, designs=designs, aim="verdict", reruns=0.5, costs=(4, 1))
        Plan(a gap of 5 points found with power 0.8: random 468 x 3 trials (power 0.80) of 1000
        items)

    References:
        Cochran (1977), Sampling Techniques, sections 2.6, 5.3 and 10.3 (finite population, strata,
        best numbers of two stages);
        Card et al. (2020), With Little Power Comes Great Responsibility, EMNLP.
    """
    check_gap(gap)
    check_confidence(confidence)
    check_count("n", n, 2)
    check_count("seed", seed, 0)
    check_interval("level", level)
    designs = _check_designs(designs)
    check_choice("aim", aim, AIMS)
    goal = _Aim(gap, confidence, AIMS[aim])
    check_count("max_trials", max_trials)
    responses = as_responses(responses, name="responses")
    estimand, reruns = _whose(estimand, reruns, responses)
    if reruns is None and budget is not None:
        raise argument_error("budget", "given with reruns", budget)
    noise = None if reruns is None else _noise_of(reruns, seed)
    closes = estimand == "run" or (estimand == "model" and noise is not None)
    prices = _Prices.of(costs, budget)
    unique, flags = _thinned(_expected(responses, expect), seed)
    draws = subject_draws(unique.n_subjects, n, seed)
    tail = (1 - level) / 2
    n_items = _sizes(unique.n_items)
    begin = Steps(progress, len(designs) * len(n_items))
    rows, curves, splits, n_pairs = [], [], [], 0
    for design in designs:
        pairs = _close(pair_variances(unique, design), gap, flags)._replace(closes=closes)
        n_pairs = len(pairs.gap)
        best: Mapping[Any, Any] = {}
        if noise is not None:
            pairs = _with_noise(pairs, unique, noise)
            table = _splits(pairs, n_items, goal, prices, max_trials)
            splits.append(table.assign(design=design))
            best = dict(table[table["best"]].iloc[0])
            if best[goal.measure] < confidence:
                flags.append(f"{design}: no split reaches the confidence")
        n_trials = int(best.get("n_trials", 1))
        chances = np.empty((len(n_items), n_pairs))
        for row, k in enumerate(n_items):
            begin(f"Design {design}: {k} of {unique.n_items} items")
            chances[row] = pairs.chances(k, unique.n_items, gap, n_trials, goal.width)
        weights = np.vstack([np.ones(n_pairs), draws[:, pairs.one] * draws[:, pairs.other]])
        mass = weights.sum(axis=1)
        mean = (chances @ weights[mass > 0].T) / mass[mass > 0]
        reached = mean >= confidence
        if noise is None and not reached[-1, 0]:
            flags.append(f"{design}: all items do not reach the confidence")
        sizes = np.where(reached.any(axis=0), n_items[np.argmax(reached, axis=0)], unique.n_items)
        # Within a pair: phi(gap / SE) >= confidence solved for k.
        pair_sizes = _pair_sizes(pairs, goal, unique.n_items, n_trials)
        low, high = np.quantile(sizes[1:], [tail, 1 - tail]) if len(sizes) > 1 else (0, 0)
        k = int(best.get("n_items", sizes[0]))
        square = np.mean(pairs.standard_errors(k, unique.n_items, n_trials) ** 2)
        more = {
            "lower": int(np.floor(low)),
            "upper": int(np.ceil(high)),
            "n_items_typical": int(np.quantile(pair_sizes, 0.5, method="inverted_cdf")),
            "n_items_hard": int(np.quantile(pair_sizes, 0.9, method="inverted_cdf")),
        }
        rows.append(
            {
                "design": design,
                "n_items": k,
                **(more if prices.budget is None else {}),
                "share": k / unique.n_items,
                "margin": 100 * ndtri(0.975) * np.sqrt(square),
                **({"n_trials": n_trials} if best else {}),
                **{name: best[name] for name in SPLIT if name in best},
            }
        )
        if k < NORMAL_SIZE:
            flags.append(f"{design}: fewer than {NORMAL_SIZE} items, a rough answer")
        curves.append(pd.DataFrame({"design": design, "n_items": n_items, "chance": mean[:, 0]}))
    return Plan(
        table=pd.DataFrame(rows).set_index("design"),
        curve=pd.concat(curves, ignore_index=True),
        gap=float(gap),
        confidence=float(confidence),
        n_items=unique.n_items,
        n_pairs=n_pairs,
        flags=tuple(dict.fromkeys(flags)),
        aim=aim,
        estimand=estimand,
        splits=pd.concat(splits).set_index(["design", "n_trials"]) if splits else None,
    )


SPLIT = ("cost", "power", "smallest_gap")
"""Columns of a split that the table of designs has too."""


def _whose(estimand: str | None, reruns: Any, responses: Responses) -> tuple[str, Any]:
    """Whose scores are planned for, and what is known of their reruns."""
    if estimand is None:
        return ("run" if reruns is None else "model"), reruns
    check_choice("estimand", estimand, ESTIMANDS)
    if estimand == "run" and reruns is not None:
        raise argument_error("estimand", '"model" or "domain" with reruns', estimand)
    is_repeated = responses.trials is not None and bool((responses.trials > 1).any())
    is_known = estimand != "run" and reruns is None and is_repeated
    return estimand, responses if is_known else reruns


class _Prices(NamedTuple):
    """What items and their trials cost, and what there is to spend."""

    item: float
    trial: float
    budget: float | None

    @classmethod
    def of(cls, costs: Any, budget: Any) -> "_Prices":
        """The checked costs.

        Raises:
            InputError: for other things than two costs, or a budget that does not pay one item.
        """
        must = "two costs of 0 or more, of an item and of a trial, not both 0"
        try:
            item, trial = (float(cost) for cost in costs)
        except (TypeError, ValueError):
            raise argument_error("costs", must, costs) from None
        if not (0 <= item < np.inf and 0 <= trial < np.inf and item + trial > 0):
            raise argument_error("costs", must, costs)
        if budget is None:
            return cls(item, trial, None)
        least = f"at least {item + trial:g}, the cost of one trial of one item"
        if not is_number(budget) or not item + trial <= budget < np.inf:
            raise argument_error("budget", least, budget)
        return cls(item, trial, float(budget))


class _Noise(NamedTuple):
    """What is known of the noise of reruns.

    Attributes:
        icc: correlation of two runs over items, for subjects of whom nothing else is known.
        trial: variance of the trials of an item by subject.
        run: variance of whole runs.
    """

    icc: float
    trial: pd.Series
    run: float


def _noise_of(reruns: Any, seed: int) -> _Noise:
    """The noise of reruns, whatever it is given by.

    Raises:
        InputError: for an ICC out of range, or responses without repeated trials.
    """
    if isinstance(reruns, (int, float, np.floating)) and not isinstance(reruns, bool):
        if not 0 <= reruns <= 1:
            raise argument_error("reruns", "an ICC from 0 to 1", reruns)
        return _Noise(float(reruns), pd.Series(dtype=float), 0.0)
    found = reruns if isinstance(reruns, Reruns) else diagnose_reruns(reruns, n=2, seed=seed)
    icc = 1.0 if np.isnan(found.icc) else found.icc
    trial = found.subjects["trial_variance"].dropna()
    return _Noise(icc, trial, run_variance(found.components, found.p_run))


def _with_noise(pairs: PairVariances, responses: Responses, noise: _Noise) -> PairVariances:
    """The pairs with the variance of trials, which that of the items is without."""
    cells = moments(responses)
    n, mean, square = cells.n, cells.mean, cells.square
    known = n > 0
    count = np.maximum(known.sum(axis=1), 1)
    average = np.sum(mean, axis=1, where=known) / count
    total = np.sum(square, axis=1, where=known) / count - average**2
    inverse = np.sum(1 / np.maximum(n, 1), axis=1, where=known) / count
    ids = pd.Index(responses.subject_ids.astype(str))
    own = noise.trial.set_axis(noise.trial.index.map(str)).reindex(ids).to_numpy()
    trial = np.where(np.isnan(own), (1 - noise.icc) * total, own)
    observed_noise = (trial * inverse)[pairs.one] + (trial * inverse)[pairs.other]
    trial = np.maximum(trial - noise.run, 0)  # of whole runs separately
    return pairs._replace(
        variance=np.maximum(pairs.variance - observed_noise, 0),
        trial=trial[pairs.one] + trial[pairs.other],
        run=2 * noise.run,
    )


def _splits(
    pairs: PairVariances, n_items: IntArray, aim: _Aim, prices: _Prices, max_trials: int
) -> pd.DataFrame:
    """The number of items for each number of trials, and the best of them."""
    most, rows = int(n_items[-1]), []
    for r in range(1, max_trials + 1):
        cost = prices.item + r * prices.trial
        if prices.budget is None:
            k = _smallest(pairs, n_items, aim, r)
        elif cost > prices.budget:
            continue
        else:
            k = int(min(most, np.floor(prices.budget / cost + 1e-9)))
        error = pairs.standard_errors(k, most, r)
        with np.errstate(divide="ignore"):
            z = aim.gap / error
        of_test = AIMS["verdict"]
        typical = np.sqrt(np.mean(error**2))
        rows.append(
            {
                "n_trials": r,
                "n_items": k,
                "cost": k * cost,
                "se": 100 * typical,
                "chance": float(np.mean(ndtr(z))),
                "power": float(np.mean(ndtr(z - of_test))),
                "smallest_gap": 100 * (of_test + ndtri(POWER)) * typical,
            }
        )
    table = pd.DataFrame(rows)
    reached = table[aim.measure]
    is_enough = (reached >= aim.confidence).to_numpy()
    if prices.budget is not None or not is_enough.any():
        # Rounded: differences that are rounding do not decide for more trials.
        order = np.lexsort((table["cost"], -reached.round(9)))
    else:
        order = np.lexsort((-reached, table["cost"].where(is_enough, np.inf)))
    return table.assign(best=table.index == order[0])


def _smallest(pairs: PairVariances, n_items: IntArray, aim: _Aim, n_trials: int) -> int:
    """The smallest number of items that reaches the confidence, by bisection; all if none does."""
    total = int(n_items[-1])

    def chance(k: int) -> float:
        return float(pairs.chances(int(k), total, aim.gap, n_trials, aim.width).mean())

    return int(n_items[bisect_left(n_items[:-1], aim.confidence, key=chance)])


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
    for k in np.atleast_1d(np.asarray(n_items, object)):
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
    x = responses.to_numpy() / responses.highest
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
    by_pair: Any = [values[keep] for values in pairs[:5]]
    selected = PairVariances(*by_pair)
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


def _pair_sizes(pairs: PairVariances, aim: _Aim, n_items: int, n_trials: int) -> FloatArray:
    """Number of items needed for each pair: ``SE(k) = gap / z`` solved for k; at most all."""
    share = np.maximum(pairs.share, 1e-300)
    allowed = aim.gap**2 / (ndtri(aim.confidence) + aim.width) ** 2 - pairs.run / n_trials
    square = (pairs.variance + pairs.trial / n_trials) / share
    of_all = pairs.closes * pairs.variance / share / n_items
    size = square / np.maximum(allowed + of_all, 1e-300)
    return np.ceil(np.clip(size, 1.0, n_items) - 1e-9)


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

"""Which models of a leaderboard cannot be distinguished: rank intervals and letters."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, stdtr

from irtcat._common.checks import argument_error, check_choice, check_count, check_interval
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.agreement import benjamini_hochberg, holm
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.leaderboard.compared_models import MIN_CLUSTERS, cluster_labels, few_clusters
from irtcat.leaderboard.comparison import t_quantile
from irtcat.prediction.estimands import ESTIMANDS
from irtcat.prediction.intervals import mean_variance, total_of, wilson_interval
from irtcat.prediction.run_noise import Answers, noise_of_score, read_reruns, run_effect
from irtcat.responses import Responses
from irtcat.responses._trials import exact_shares

ADJUSTMENTS = ("max-t", "holm", "benjamini-hochberg")
"""How p-values are adjusted for the number of pairs."""

MAX_LETTERS = 2_000
"""Groups above which they are not listed: rank intervals are then what can be read."""

CERTAIN = 0.01
"""Share of the least p-value of the draws, 1 / (n + 1), below which a pair needs no draws."""

CELLS = 4_000_000
"""Cells of a block of draws."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Models of a leaderboard, and which of them cannot be distinguished.

    Attributes:
        table: one row per model, the best first: ``score``, with an interval (``lower``,
            ``upper``); ``rank``, that of the scores; ``rank_lower`` and ``rank_upper``, the best
            and the worst rank that it may have; ``letters``: two models that share a letter cannot
            be distinguished; two without a common letter can.
        p_values: adjusted p-value of the difference of each two models, models x models, in the
            order of the table; NaN on the diagonal.
        members: groups x models, which models are in each group (a letter).
        estimand: whose scores: "run", "model" or "domain".
        adjust: how the p-values were adjusted.
        level: probability of the intervals; of all rank intervals together, but for
            "benjamini-hochberg".
        n_items: number of items that all models answered.
        df: degrees of freedom of the differences.
        flags: warnings.
    """

    table: pd.DataFrame
    p_values: pd.DataFrame
    members: BoolArray
    estimand: str
    adjust: str
    level: float
    n_items: int
    df: float
    flags: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[list[str]]:
        """The models of each group, the best group first."""
        names = self.table.index.to_numpy()
        return ([str(name) for name in names[row]] for row in self.members)

    def __repr__(self) -> str:
        return f"Groups({len(self)} models in {len(self.members)} groups, {self.adjust})"

    def __str__(self) -> str:
        best = self.table["rank_lower"].eq(1)
        first = int(best.sum())
        names = ", ".join(map(str, self.table.index[best][:3])) + (", ..." if first > 3 else "")
        what = ESTIMANDS[self.estimand].format(n=self.n_items)
        may = "is the best" if first == 1 else f"may be the best ({first} of {len(self)} models)"
        return f"{names} {may}.\nCompared are {what}."

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()


class GroupSpread(NamedTuple):
    """The covariance of the models' mean scores, as the product of a factor with itself.

    Attributes:
        factor: units x models; the covariance is ``factor' factor``.
        df: degrees of freedom.
        unit: score difference of one trial, 0 for scores that are not counted.
        n_items: number of items.
        n_trials: number of independent answers of each model.
        has_run_effects: whether whole runs differ by more than their answers.
    """

    factor: FloatArray
    df: float
    unit: float
    n_items: int
    n_trials: FloatArray
    has_run_effects: bool = False

    def n_answers(self, score: FloatArray, level: float) -> FloatArray:
        """The number of answers, of a share s, that have each score's variance.

        ``s (1 - s) / V``, and fewer for an interval of V with few degrees of freedom. Independent
        answers to items of any difficulties vary by ``s (1 - s) / n`` at most: it is n at least.
        """
        z = float(ndtri(0.5 + level / 2))
        variance = (self.factor**2).sum(axis=0) * (t_quantile(self.df, 0.5 + level / 2) / z) ** 2
        most = score * (1 - score)
        is_known = (most > 0) & (variance > 0)
        n = np.divide(most, variance, out=self.n_trials.copy(), where=is_known)
        return n if self.has_run_effects else np.maximum(n, self.n_trials)

    @property
    def variances(self) -> FloatArray:
        """Variance of the difference of each two models."""
        covariance = self.factor.T @ self.factor
        own = np.diag(covariance)
        return np.maximum(own[:, None] + own[None, :] - 2 * covariance, 0)


def groups(
    responses: ResponsesLike,
    *,
    estimand: str = "model",
    adjust: str = "max-t",
    clusters: Any = None,
    reruns: Any = None,
    level: float = 0.95,
    n: int = 1000,
    seed: int = 0,
) -> Groups:
    """Find which models of a leaderboard cannot be distinguished.

    All pairs of models are tested on the items that all of them answered. The statistic of two
    models is ``t = d / se``, that of `irtcat.leaderboard.compare` for all items: the difference of
    their means with one more item on either side on which they differ by one trial. The p-values
    are adjusted for the number of pairs:

    | adjust | the probability of ... is at most ``1 - level`` |
    |---|---|
    | max-t | any false difference, or one of the wrong sign; knows that pairs are correlated |
    | holm | any false difference |
    | benjamini-hochberg | a difference that was found being false, on average |

    max-t is step-down: with the pairs in order of t, ``p_(j)`` is the greatest over i <= j of
    ``P(max(t*_(i), t*_(i+1), ..., -t*_(m), ..., -t*_(1)) >= t_(i))``. The ``t*`` are of draws from
    the bootstrap of the items (or clusters) with Normal weights, divided by the root of a
    chi-square over its degrees of freedom: for two models this is the t test.

    A model's rank is from 1 + the number of models that are shown to be better, to the number of
    models less those shown to be worse: with max-t all of these intervals hold together. Models
    share a letter if no difference between them is shown.

    Args:
        responses: responses of the models to the whole benchmark, of any kind that
            `irtcat.as_responses` takes; trials are used where there are any. Items that are not
            answered by all models are left out. Of a part of the benchmark the models'
            scores on it are compared; with "domain" those on the whole, if it was drawn at random.
        estimand: whose scores: "model", the expected ones on these items over reruns; "domain", on
            items like these; "run": these runs, whose scores are known.
        adjust: how p-values are adjusted for the number of pairs.
        clusters: as for `irtcat.leaderboard.compare`.
        reruns: as for `irtcat.leaderboard.compare`. For "model", the noise of runs is estimated if
            all models have several trials of each item, or ``reruns`` says what it is; else the
            variance over items is taken, which is greater.
        level: probability of the intervals.
        n: number of draws of "max-t", at least 100.
        seed: seed of the draws.

    Returns:
        The models with their ranks and letters.

    Raises:
        InputError: for fewer than 2 models or items that all of them answered, or a number out of
            range.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 400))
        >>> found = groups(bank.simulate([-1.0, 0.0, 0.1, 0.9, 1.0], seed=1))
        >>> found.to_frame()[["rank", "rank_lower", "rank_upper", "letters"]].values.tolist()
        [[1, 1, 2, 'a'], [2, 1, 2, 'a'], [3, 3, 4, 'b'], [4, 3, 4, 'b'], [5, 5, 5, 'c']]

    References:
        Romano & Wolf (2005), Econometrica 73, 1237-1282 (step-down); Mogstad, Romano, Shaikh &
        Wilhelm (2024), Review of Economic Studies 91, 476-518 (ranks); Hothorn, Bretz & Westfall
        (2008), Biometrical Journal 50, 346-363 (max-t); Piepho (2004), Journal of Computational
        and Graphical Statistics 13, 456-466 (letters); Chernozhukov, Chetverikov & Kato (2013),
        Annals of Statistics 41, 2786-2819 (Normal weights).
    """
    check_choice("estimand", estimand, ESTIMANDS)
    check_choice("adjust", adjust, ADJUSTMENTS)
    check_interval("level", level)
    # The least p-value of the bootstrap is 1 / (n + 1): more is needed to distinguish anything.
    check_count("n", n, max(100, math.ceil(1 / (1 - level) - 1e-9) if adjust == "max-t" else 0))
    check_count("seed", seed, 0)
    data, flags = complete_items(as_responses_like(responses, "responses", None))
    score = np.round(scores_of(data), 12)
    order = np.lexsort((np.arange(len(score)), -score))
    if estimand == "run":
        spread = None
        p = np.where(score[order][:, None] == score[order][None, :], 1.0, 0.0)
    else:
        labels, notes = cluster_labels(clusters, (data,), data.item_ids)
        flags += notes
        spread, notes = spread_of(data, estimand, labels, reruns)
        flags += notes
        if few := few_clusters(labels):
            flags.append(f"{few} clusters are too few for a verdict: {MIN_CLUSTERS} are needed")
            p = np.ones((len(score), len(score)))
        else:
            ordered = spread._replace(factor=spread.factor[:, order])
            p = _pair_values(score[order], ordered, adjust, n, seed)
    apart = p < 1 - level
    np.fill_diagonal(p, np.nan)
    lower, upper = (score, score) if spread is None else score_interval(score, spread, level)
    better = np.tril(apart, -1).sum(axis=1)  # the table is in the order of the scores
    worse = np.triu(apart, 1).sum(axis=1)
    members = letter_groups(apart)
    if members is None:
        flags.append(f"more than {MAX_LETTERS} groups: only the rank intervals are given")
        members = np.zeros((0, len(score)), bool)
    index = pd.Index(data.subject_ids[order], dtype=object, name="subject")
    table = pd.DataFrame(
        {
            "score": score[order],
            "lower": lower[order],
            "upper": upper[order],
            "rank": 1 + np.searchsorted(-score[order], -score[order]),
            "rank_lower": 1 + better,
            "rank_upper": len(score) - worse,
            "letters": letters_of(members),
        },
        index=index,
    )
    return Groups(
        table=table,
        p_values=pd.DataFrame(p, index=index, columns=index.rename(None)),
        members=members,
        estimand=estimand,
        adjust=adjust,
        level=float(level),
        n_items=data.n_items,
        df=np.inf if spread is None else float(spread.df),
        flags=tuple(flags),
    )


def complete_items(data: Responses) -> tuple[Responses, list[str]]:
    """The items that all models answered, and a flag where there are others."""
    if data.n_subjects < 2:
        raise argument_error("responses", "answers of at least 2 models", data.n_subjects)
    complete = data.observed.all(axis=0)
    kept = int(complete.sum())
    if kept < 2:
        advice = "Leave models with few answers out."
        must = "answers of all models to at least 2 items"
        raise argument_error("responses", must, f"{kept} such items", advice)
    if kept == data.n_items:
        return data, []
    note = f"{data.n_items - kept} of {data.n_items} items not answered by all models"
    return data.subset(items=np.flatnonzero(complete)), [note]


def scores_of(data: Responses) -> FloatArray:
    """Mean score of each model, from 0 to 1."""
    return np.array([answers_of(data, row).mean.mean() for row in range(data.n_subjects)])


def unit_of(data: Responses) -> float:
    """Difference of one trial of an item; 0 for scores that are neither counts nor categories."""
    if data.trials is not None:
        return 1 / float(np.median(data.trials))
    return 0.0 if data.is_fractional else 1.0


def step_of(data: Responses) -> float:
    """Least difference of two answers to an item; 0 for scores that may be any number.

    The `unit_of` a category is a whole answer, and that of different numbers of trials a usual one.
    """
    if data.trials is None:
        return 0.0 if data.is_fractional else 1 / data.highest
    return 1 / math.lcm(*np.unique(data.trials).tolist()) if data.is_counted else 0.0


def answers_of(data: Responses, row: int) -> Answers:
    """A model's answers to all items."""
    trials = np.ones(data.n_items, int) if data.trials is None else data.trials[row].astype(int)
    x = exact_shares(data.values[row], trials) / data.highest
    scores = None if data.trial_values is None else data.trial_values[row].astype(float)
    return Answers(x, trials, scores)


def spread_of(
    data: Responses, estimand: str, clusters: IntArray | None, reruns: Any
) -> tuple[GroupSpread, list[str]]:
    """The covariance of the mean scores, over reruns or over items, and flags.

    Over items (or clusters g of n_g items) the factor is ``sum_{i in g} (x_i - mean) / (N sqrt(1 -
    n_g / N))``, which is CR2 for a mean; over reruns it is diagonal.

    Args:
        data: complete answers.
        estimand: "model" or "domain".
        clusters: number of the cluster of each item; None if each is its own.
        reruns: what is known of reruns.
    """
    n_models, n_items = data.shape
    known = read_reruns(reruns, (data,), data, "refuse")
    weights = np.full(n_items, 1 / n_items)
    models = [answers_of(data, row) for row in range(n_models)]
    noises = [noise_of_score(model, weights, known) for model in models]
    of_runs = run_effect([(model, weights) for model in models])
    flags: list[str] = []
    if estimand == "model" and all(noise is not None for noise in noises):
        totals = [total_of(noise, of_runs) for noise in noises if noise is not None]
        df = min(total.df for total in totals)
        factor = np.diag(np.sqrt([total.value for total in totals]))
        unit = 0.0  # the odd trials are in the variances already
        n_trials = n_items * np.array([model.n_trials.mean() for model in models])
    else:
        if estimand == "model" and any(model.is_repeated for model in models):
            flags.append("some models have one trial: the variance is that over the items")
        labels = np.arange(n_items) if clusters is None else clusters
        sizes = np.bincount(labels)
        centred = [model.mean - model.mean.mean() for model in models]
        factor = np.stack([np.bincount(labels, row) for row in centred], axis=1)
        factor /= (n_items * np.sqrt(1 - sizes / n_items))[:, None]
        df = mean_variance(weights, centred[0], clusters).df
        if of_runs.value:
            factor = np.vstack([factor, np.sqrt(of_runs.value) * np.eye(n_models)])
            df = min(df, of_runs.df)
        unit, n_trials = unit_of(data), np.full(n_models, float(len(sizes)))
    return GroupSpread(
        factor=factor,
        df=max(df, 1.0),
        unit=unit,
        n_items=n_items,
        n_trials=n_trials,
        has_run_effects=of_runs.value > 0,
    ), flags


def score_interval(
    score: FloatArray, spread: GroupSpread, level: float
) -> tuple[FloatArray, FloatArray]:
    """An interval of each score: Wilson's (see `Spread.n_answers`), exact at 0 and 1.

    Of n answers that are all wrong the upper end is ``1 - ((1 - level) / 2)^(1 / n)`` (Clopper &
    Pearson 1934), which holds for items of any difficulties (Hoeffding 1956).
    """
    lower, upper = wilson_interval(score, spread.n_answers(score, level), level)
    exact = 1 - ((1 - level) / 2) ** (1 / spread.n_trials)
    lower = np.where(score == 1, 1 - exact, np.where(score == 0, 0, lower))
    return lower, np.where(score == 0, exact, np.where(score == 1, 1, upper))


def _pair_values(
    score: FloatArray, spread: GroupSpread, adjust: str, n: int, seed: int
) -> FloatArray:
    """Adjusted p-values of all pairs of models, the best first, models x models."""
    one, other = np.triu_indices(len(score), 1)
    variance = spread.variances[one, other]
    n_items, d = spread.n_items, score[one] - score[other]
    se = np.sqrt(variance)
    if spread.unit:
        d = d * n_items / (n_items + 2)
        se = np.sqrt(n_items**2 * variance + 2 * spread.unit**2) / (n_items + 2)
    t = np.divide(d, se, out=np.where(d > 0, np.inf, 0.0), where=se > 0)
    single = 2 * (ndtr(-t) if np.isinf(spread.df) else stdtr(spread.df, -t))
    if adjust == "max-t":
        found = np.full(len(t), 1 / (n + 1))
        # The others are far below the least p-value that n draws can give.
        open_ones = single * len(t) >= CERTAIN / (n + 1)
        inverse = np.divide(1, np.sqrt(variance), out=np.zeros(len(t)), where=variance > 0)
        if open_ones.any():
            pairs = [values[open_ones] for values in (t, one, other, inverse)]
            found[open_ones] = _max_t(pairs, spread, n, seed)
    else:
        found = holm(single) if adjust == "holm" else benjamini_hochberg(single)
    p = np.ones((len(score), len(score)))
    p[one, other] = p[other, one] = found
    return p


def _max_t(pairs: list[Any], spread: GroupSpread, n: int, seed: int) -> FloatArray:
    """Step-down p-values of pairs of models by draws from the bootstrap with Normal weights.

    Of each pair there are the statistic, the better and the other model, and 1 / SE of their
    difference.

    The hypotheses are of both signs of each pair. Those of the wrong sign are never rejected: the
    greatest of them counts in each step.
    """
    rng = np.random.default_rng(seed)
    order = np.argsort(pairs[0], kind="stable")
    rising, one, other, inverse = (values[order] for values in pairs)
    count = np.zeros(len(order), np.int64)
    units, done = len(spread.factor), 0
    while done < n:
        size = min(max(CELLS // units, 1), n - done)
        draws = rng.standard_normal((size, units)) @ spread.factor
        if np.isfinite(spread.df):
            draws /= np.sqrt(rng.chisquare(spread.df, size) / spread.df)[:, None]
        for draw in draws:
            drawn = (draw[one] - draw[other]) * inverse
            reversed_max = -drawn.min()
            np.maximum.accumulate(drawn, out=drawn)
            count += np.maximum(drawn, reversed_max, out=drawn) >= rising
        done += size
    stepwise = np.maximum.accumulate(((count + 1) / (n + 1))[::-1])[::-1]
    p = np.empty(len(order))
    p[order] = stepwise
    return p


def letter_groups(apart: BoolArray) -> BoolArray | None:
    """The greatest sets of models of which no two are apart, groups x models; None if too many.

    Insert and absorb: a group with a model and others that are apart from it is split into one
    without it and one without those; what is within another group is left out.

    Args:
        apart: which two models are distinguished, models x models.

    Example:
        >>> apart = np.zeros((3, 3), bool)
        >>> apart[0, 2] = apart[2, 0] = True
        >>> letter_groups(apart).astype(int).tolist()
        [[1, 1, 0], [0, 1, 1]]
    """
    members: BoolArray = np.ones((1, len(apart)), bool)
    for model, others in enumerate(apart):
        split = members[:, model] & (members & others).any(axis=1)
        if not split.any():
            continue
        with_it, without = members[split] & ~others, members[split].copy()
        without[:, model] = False
        kept = members[~split]
        both = np.vstack([with_it, without])
        new = both[list({row.tobytes(): at for at, row in enumerate(both)}.values())]
        rows = np.vstack([kept, new])
        absorbed = [_is_within(row, rows) for row in new]
        members = np.vstack([kept, new[~np.array(absorbed)]])
        if len(members) > MAX_LETTERS:
            return None
    return members[np.lexsort((~members).T[::-1])]


def _is_within(row: BoolArray, rows: BoolArray) -> bool:
    """Whether a set is part of a greater one."""
    if not row.any():
        return True
    candidates = rows[rows[:, int(np.argmax(row))]]
    size = int(row.sum())
    candidates = candidates[candidates.sum(axis=1) > size]
    return bool((candidates[:, row].sum(axis=1) == size).any())


def letters_of(members: BoolArray) -> list[str]:
    """The letters of each model: a to z, a1 to z1, ....

    Example:
        >>> letters_of(np.array([[1, 1, 0], [0, 1, 1]], bool))
        ['a', 'ab', 'b']
    """
    names = [
        ascii_lowercase[group % 26] + (str(group // 26) if group >= 26 else "")
        for group in range(len(members))
    ]
    return ["".join(names[group] for group in np.flatnonzero(column)) for column in members.T]

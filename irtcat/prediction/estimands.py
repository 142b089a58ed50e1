"""Whose score it is: that of this run, of the model over reruns, or on items like these."""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from irtcat._common.positions import places_of
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.prediction.intervals import total_of, wilson_interval
from irtcat.prediction.run_noise import Answers, Reliability, Weighted, noise_of_score, run_effect
from irtcat.responses import Responses
from irtcat.responses._matrix import observed, row_blocks
from irtcat.responses._trials import exact_shares

if TYPE_CHECKING:
    from irtcat.prediction.task import Task

ESTIMANDS = {
    "run": "the scores of these runs on all {n} items",
    "model": "the models' expected scores on all {n} items, over reruns",
    "domain": "the models' expected scores on items like these {n}, over reruns",
}
"""Whose score is estimated, and how it is called in the output."""

SOURCES = ("bound", "reruns", "trials")
"""How the noise of runs is known, that which says least first."""

PRIOR_ITEMS = 10
"""Items that the calibrated subjects' noise counts for beside a subject's own answers: from few
items the variance that is left of them is hardly known."""


class RunNoise(NamedTuple):
    """How far scores may be from those of the estimand because of the run.

    Attributes:
        new: half widths of the interval below and above each new subject's score, 2 x subjects.
        calibrated: those of the calibrated subjects that have a score.
        source: how the noise is known: "trials", "reruns", or "bound" where any subject has one
            trial and nothing is known of reruns.
    """

    new: FloatArray
    calibrated: FloatArray
    source: str


class Leftover(NamedTuple):
    """What items' shares right leave of each subject's answers.

    Attributes:
        residual: sum of squares that is left.
        total: that of the answers less their mean.
        n: number of answers.
    """

    residual: FloatArray
    total: FloatArray
    n: FloatArray

    def variance(self, score: FloatArray, share: float) -> FloatArray:
        """Variance of an answer that is left, with `PRIOR_ITEMS` of the usual share of s(1 - s)."""
        prior = PRIOR_ITEMS * share * score * (1 - score)
        return np.asarray((self.residual + prior) / (np.maximum(self.n - 2, 0) + PRIOR_ITEMS))

    @property
    def share(self) -> float:
        """The usual share of the variance of answers that is left; 1 where none is known."""
        known = self.n > 2
        total = float((self.total / np.maximum(self.n - 1, 1))[known].sum())
        left = float((self.residual / np.maximum(self.n - 2, 1))[known].sum())
        return min(left / total, 1.0) if total > 0 else 1.0


def leftover(data: Responses, counts: BoolArray, totals: FloatArray, *, own: bool) -> Leftover:
    """The residuals of regressions of each subject's answers on the items' shares right.

    Answers at random have no part that a covariate of the items explains: the variance that is left
    is at least their mean noise.

    Args:
        data: the answers.
        counts: which items count.
        totals: sum of the calibrated subjects' scores on each item, and their number, 2 x items.
        own: whether the totals have the subject's own answer, which is then left out.
    """
    rows = []
    total, n_total = totals[:, counts]
    for block in row_blocks(data.shape):
        values = data.values[block][:, counts]
        seen = observed(values)
        x = np.where(seen, values, 0) / data.highest
        n = seen.sum(axis=1).astype(float)
        others = n_total - seen if own else np.broadcast_to(n_total, x.shape)
        share = np.divide(
            total - x if own else total, others, out=np.full(x.shape, 0.5), where=others > 0
        )
        size = np.maximum(n, 1)[:, None]
        x = np.where(seen, x - x.sum(axis=1, keepdims=True) / size, 0)
        share = np.where(seen, share, 0)
        share = np.where(seen, share - share.sum(axis=1, keepdims=True) / size, 0)
        spread, square = (x**2).sum(axis=1), (share**2).sum(axis=1)
        explained = np.divide(
            (x * share).sum(axis=1) ** 2, square, out=np.zeros(len(n)), where=square > 1e-12
        )
        rows.append((np.maximum(spread - explained, 0), spread, n))
    return Leftover(*map(np.concatenate, zip(*rows, strict=True)))


def item_totals(data: Responses) -> FloatArray:
    """Sum of the scores on each item, and their number, 2 x items."""
    out = np.zeros((2, data.n_items))
    for block in row_blocks(data.shape):
        seen = observed(data.values[block])
        out[0] += data.values[block].sum(axis=0, where=seen, dtype=float) / data.highest
        out[1] += seen.sum(axis=0)
    return out


def noise_halves(
    data: Responses,
    score: FloatArray,
    weights: FloatArray,
    bound: FloatArray,
    *,
    estimand: str,
    level: float,
    reruns: Reliability | None,
    square: float | None = None,
) -> tuple[FloatArray, str]:
    """Half widths of the run's part of each score's interval, below and above, and their source.

    ``V = v sum_i t_i^2`` with v the variance of an answer in a rerun and t the items' weights in
    the score; for the domain v is the variance of answers over items. The half widths are those of
    Wilson's interval of a proportion s from ``s (1 - s) / V`` answers: at 0 of n and n of n those
    from n answers.

    Args:
        data: the answers that were given.
        score: the subjects' full scores.
        weights: weight of each of these items in the score.
        bound: variance of an answer of subjects of whose reruns nothing is known.
        estimand: "model" or "domain".
        level: probability of the intervals.
        reruns: what is known of reruns.
        square: sum of the squared weights of all items; by default that of the answered ones.
    """
    n, counts, moments = data.n_subjects, weights > 0, []
    for block in row_blocks(data.shape):
        seen = observed(data.values[block]) & counts
        x = np.where(seen, data.values[block], 0) / data.highest
        size = np.maximum(seen.sum(axis=1), 1)
        mean = x.sum(axis=1) / size
        moments.append(
            (seen @ weights, seen @ weights**2, mean, (x**2).sum(axis=1) / size - mean**2)
        )
    total, squares, mean, spread = map(np.concatenate, zip(*moments, strict=True))
    own = np.divide(squares, total**2, out=np.ones(n), where=total > 0)
    every = own if square is None else np.full(n, square)
    variance, df, trials = bound * every, np.full(n, np.inf), np.ones(n)
    models: dict[int, Weighted] = {}
    if data.trials is not None or reruns is not None:
        for row in np.flatnonzero(total > 0).tolist():
            model, at = _answers(data, row, counts)
            models[row] = model, weights[at] / weights[at].sum()
            trials[row] = model.n_trials.mean()
    of_runs, sources = run_effect(list(models.values())), set()
    for row in range(n):
        found = noise_of_score(*models[row], reruns) if row in models else None
        if found is None:
            sources.add("bound")
            continue
        sources.add("trials" if models[row][0].is_repeated else "reruns")
        variance[row], df[row] = total_of(found.times(every[row] / own[row]), of_runs)
    if estimand == "domain":
        # s (1 - s) is the variance of answers over items, and less for other scores than 0 and 1.
        most = mean * (1 - mean)
        part = np.divide(spread, most, out=np.ones(n), where=most > 0)
        variance = score * (1 - score) * part * every + of_runs.value
        df, trials = np.full(n, np.inf), np.ones(n)
    z, tail = float(ndtri(0.5 + level / 2)), 0.5 + level / 2
    t = np.where(np.isinf(df), z, stdtrit(np.where(np.isinf(df), 1.0, np.maximum(df, 1)), tail))
    variance = variance * (t / z) ** 2
    halves = wilson_halves(score, variance, trials / every, level)
    if estimand == "model" and reruns is not None and reruns.icc == 1:
        halves[:, variance == 0] = 0.0
    return halves, worst_source(sources)


def noise_of_task(
    task: "Task", score: FloatArray, estimand: str, reruns: Reliability | None
) -> RunNoise:
    """The noise of the runs of new and calibrated subjects."""
    calibrated = task.calibration
    if len(task.usable) < calibrated.n_subjects:
        calibrated = calibrated.subset(subjects=task.usable)
    weights, field = task.item_weights, task.all_targets[task.usable]
    score = np.nan_to_num(score)
    totals = item_totals(calibrated)
    old = leftover(calibrated, weights > 0, totals, own=True)
    old_bound = old.variance(field, old.share)
    new = leftover(task.answers, task.weights_of_chosen > 0, totals[:, task.chosen], own=False)
    new_bound = new.variance(score, old.share)
    if task.known is not None:  # the totals have its own answers
        rows = places_of(task.answers.subject_ids[task.known], calibrated.subject_ids)
        new_bound[task.known] = old_bound[rows]
    halves = partial(noise_halves, estimand=estimand, level=task.level, reruns=reruns)
    square = float(weights @ weights)
    of_new, source = halves(task.answers, score, task.weights_of_chosen, new_bound, square=square)
    of_old, old_source = halves(calibrated, field, weights, old_bound)
    return RunNoise(of_new, of_old, worst_source({source, old_source}))


def wilson_halves(
    score: FloatArray, variance: FloatArray, n: FloatArray | float, level: float
) -> FloatArray:
    """Half widths of Wilson's interval from s (1 - s) / V answers, below and above each score.

    Args:
        score: from 0 to 1.
        variance: variance V of each.
        n: number of answers where all are right, or none.
        level: probability of the interval.
    """
    most = score * (1 - score)
    inside = (most > 0) & (variance > 0)
    n_answers = np.where(inside, most / np.where(inside, variance, 1), n)
    lower, upper = wilson_interval(score, n_answers, level)
    return np.maximum(np.stack([score - lower, upper - score]), 0.0)


def worst_source(sources: set[str]) -> str:
    """The source that says least of the runs' noise."""
    return next((name for name in SOURCES if name in sources), SOURCES[-1])


def _answers(data: Responses, row: int, counts: BoolArray) -> tuple[Answers, IntArray]:
    """A subject's answers to the items that count, and their positions."""
    at: IntArray = np.flatnonzero(observed(data.values[row]) & counts)
    n_trials = np.ones(len(at), int) if data.trials is None else data.trials[row, at].astype(int)
    x = exact_shares(data.values[row, at], n_trials) / data.highest
    scores = None if data.trial_values is None else data.trial_values[row, at].astype(float)
    return Answers(x, n_trials, scores), at

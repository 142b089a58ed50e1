"""Score-optimal strategies: the items that minimise the uncertainty of the full score.

The covariance of items over the calibration subjects, shrunk to its diagonal, is taken as the
covariance of a new subject's answers. A greedy choice then conditions a Gaussian on one item after
another ("sensor placement"). The covariance is never formed: with X the centred subjects x items
matrix,

    Sigma = (1 - s) X' M X + diag(e),        s = .3,

one column of it takes one product with X, and the conditioning is a pivoted Cholesky factorisation
with ``n_items`` columns.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtr

from irtcat._checks import InputError
from irtcat._matrix import row_blocks
from irtcat._types import BoolArray, FloatArray, IntArray
from irtcat.responses import Responses
from irtcat.selection._constraints import Constraints
from irtcat.selection._dense import Scores, centred_scores
from irtcat.selection._greedy import argbest_anywhere, grow, run
from irtcat.selection._task import Choice, Task
from irtcat.selection.sampling import choose_stratified, difficulty_strata, draw

__all__ = [
    "SHRINKAGE",
    "Conditioning",
    "by_score",
    "choose_rank_optimal",
    "choose_robust",
    "choose_score_optimal",
    "continued",
]

SHRINKAGE = 0.3
"""Share s by which the covariance is shrunk to its diagonal."""

LEVELS = 1000
"""Score levels of "rank-optimal"."""

BLOCK = 16
"""Columns of Sigma that are computed at a time."""


class Conditioning:
    """Posterior variance of the full score given the chosen items (a `Criterion`).

    With d the posterior variances of the items and t their posterior covariances with the full
    score, item j reduces the variance of the score by ``t_j^2 / d_j``. Conditioning on it subtracts
    ``l = Sigma[:, j | chosen] / sqrt(d_j)``: ``t -= l t_j / sqrt(d_j)``, ``d -= l^2``.

    Columns of Sigma are computed ``BLOCK`` at a time, for the items with the greatest gains: one
    matrix product is several times faster than as many products with a vector.

    Args:
        scores: scores of the calibration subjects.
        mix: applies the symmetric subjects x subjects matrix M to the columns of a matrix.
        variances: the diagonal of X' M X.
        scale: scale of M relative to a covariance, applied to the noise of imputed cells.
    """

    def __init__(
        self,
        scores: Scores,
        mix: Callable[[FloatArray], FloatArray],
        variances: FloatArray,
        scale: float = 1.0,
    ):
        noise = scale * scores.noise
        self._x, self._mix = scores.centred, mix
        self._own = SHRINKAGE * variances + noise
        answered = scores.answers > 0
        self._d = np.where(answered, variances + noise, 0.0)
        weight = answered / max(answered.sum(), 1)
        full_score = self._x @ weight.astype(np.float32)
        self._t = self._shared(full_score[:, None])[0] + self._own * weight
        self.prior = float(self._t @ weight)
        self._tiny = 1e-6 * self._d.max(initial=0.0)
        self._factor = np.empty((BLOCK, len(self._d)), np.float32)
        self._rank = 0
        self._columns: dict[int, FloatArray] = {}

    def _shared(self, v: FloatArray) -> FloatArray:
        """``(1 - s) v' M X``, one row per column of v."""
        return np.float32(1 - SHRINKAGE) * (self._mix(v).T @ self._x)

    @property
    def gains(self) -> FloatArray:
        """Reduction of the posterior variance of the full score by each item."""
        usable = self._d > self._tiny
        return np.divide(self._t**2, self._d, out=np.zeros_like(self._d), where=usable)

    def best(self, items: IntArray, costs: FloatArray | None) -> tuple[int, float]:
        """See `Criterion`."""
        gains = self.gains[items]
        item, gain = argbest_anywhere(gains, items, costs)
        if gain > 0 and item not in self._columns:
            order = gains if costs is None else gains / np.maximum(costs[items], 1e-12)
            top = items[np.argsort(-order, kind="stable")[:BLOCK]]
            batch = np.union1d([item], [j for j in top if j not in self._columns]).astype(int)
            columns = self._shared(np.ascontiguousarray(self._x[:, batch]))
            self._columns.update(zip(batch.tolist(), columns, strict=True))
        return item, gain

    def add(self, item: int) -> None:
        """See `Criterion`."""
        if self._d[item] <= self._tiny:
            return
        column = self._columns.pop(item, None)
        if column is None:
            column = self._shared(np.ascontiguousarray(self._x[:, [item]]))[0]
        column = column.astype(float)
        column[item] += self._own[item]
        earlier = self._factor[: self._rank]
        column -= earlier[:, item] @ earlier
        factor = column / np.sqrt(self._d[item])
        self._t -= factor * (self._t[item] / np.sqrt(self._d[item]))
        self._d = np.maximum(self._d - factor**2, 0.0)
        self._d[item] = 0.0
        if self._rank == len(self._factor):
            self._factor = np.concatenate([self._factor, np.empty_like(self._factor)])
        self._factor[self._rank] = factor
        self._rank += 1


def by_score(task: Task) -> Conditioning:
    """The criterion with the covariance over subjects."""
    scores = task.scores
    n = np.float32(len(scores.centred))
    return Conditioning(scores, lambda v: v / n, scores.variances)


def choose_score_optimal(task: Task) -> Choice:
    """Greedy minimisation of the posterior variance of the full score.

    Each step takes the item with the greatest ``cov(j, full mean)^2 / var(j)`` and conditions on
    it. The covariance is that of the calibration subjects' scores, shrunk by 30 % to its diagonal;
    missing responses are imputed from item and subject effects (`irtcat.selection._dense`). Once no
    item reduces the variance (constant items, or one subject) items follow in random order. The
    criterion is the reduction of the variance, on the squared 0-1 scale.

    References:
        Krause, Singh & Guestrin (2008), Near-optimal sensor placements in Gaussian processes,
        section 3 (variance reduction); Das & Kempe (2011), Submodular meets spectral, section 2
        (greedy subset selection for one target); Ledoit & Wolf (2004) (shrinkage).
    """
    return _grown(task, lambda: by_score(task))


def continued(
    responses: Responses, first: IntArray, allowed: BoolArray, k: int, seed: int
) -> IntArray:
    """Positions of the k items that most reduce the variance of the full score given the first."""
    scores = centred_scores(responses)
    n = np.float32(len(scores.centred))
    criterion = Conditioning(scores, lambda v: v / n, scores.variances)
    for item in first:
        criterion.add(int(item))
    limits = Constraints.plain(k, allowed)
    filler = np.random.default_rng(seed).permutation(len(allowed))
    ledger = limits.open()
    run(criterion, ledger, k, filler=filler)
    return np.array(ledger.chosen, int)


def choose_rank_optimal(task: Task) -> Choice:
    """Greedy minimisation of the posterior variance of score *differences* of close pairs.

    The difference of two random subjects has twice the covariance of the items, which gives the
    same choice. A ranking depends on the differences of close subjects: for a pair (i, i') weighted
    by the probability w that k random items misrank it, the vector of differences ``x_i - x_i'``
    has the covariance

        sum w (x_i - x_i')(x_i - x_i')' / sum w = X' (2 L / sum w) X,    L = diag(W 1) - W,

    with L the graph Laplacian of the pairs. It contains little of the ability that separates strong
    from weak subjects; the differences between neighbours remain. The greedy conditioning of
    "score-optimal" on this covariance (with the same shrinkage) minimises the mean squared error of
    the predicted difference of a close pair. ``w = Phi(-|s_i - s_i'| / sqrt(2 v / k))`` with v the
    mean variance of an answer about its subject's score; scores are rounded to thousandths, so that
    W has at most 1,001 levels for any number of subjects.
    """
    scores = task.scores
    level, kernel, degree, total = _close_pairs(scores, task.limits.n_items)
    if total <= 0:
        return _grown(task, lambda: by_score(task))

    member = csr_array((np.ones(len(level), np.float32), (level, np.arange(len(level)))))

    def mix(v: FloatArray) -> FloatArray:
        spread = (kernel @ (member @ v))[level]
        return np.float32(2 / total) * (degree[:, None] * v - spread)

    variances = np.zeros(scores.centred.shape[1])
    for columns in row_blocks(scores.centred.shape[::-1]):
        block = scores.centred[:, columns]
        variances[columns] = np.einsum("ij,ij->j", block, mix(block), dtype=float)
    variances = np.maximum(variances, 0.0)
    return _grown(task, lambda: Conditioning(scores, mix, variances, scale=2.0))


def _close_pairs(scores: Scores, k: int) -> tuple[IntArray, FloatArray, FloatArray, float]:
    """Score levels and degrees of the subjects, weights of pairs of levels, the total weight."""
    answered = scores.answers > 0
    if not answered.any():
        return np.zeros(len(scores.centred), int), np.zeros((1, 1)), np.zeros(1), 0.0
    score = scores.centred[:, answered].mean(axis=1, dtype=float) + scores.means[answered].mean()
    score = np.clip(score, 0.0, 1.0)
    mean_square = (scores.variances.sum() + (scores.means[answered] ** 2).sum()) / answered.sum()
    spread = np.sqrt(max(2 * (mean_square - (score**2).mean()) / k, 1e-12))
    values, level = np.unique(np.round(score * LEVELS), return_inverse=True)
    kernel = ndtr(-np.abs(values[:, None] - values) / LEVELS / spread).astype(np.float32)
    degree = (kernel @ np.bincount(level).astype(np.float32))[level]
    total = float(degree.sum(dtype=float) - 0.5 * len(level))
    return level, kernel, degree, total if len(level) > 1 else 0.0


def _grown(task: Task, make: Callable[[], Conditioning]) -> Choice:
    filler = task.rng.permutation(len(task.item_ids))
    ledger, gains = grow(make, task.limits, filler)
    return Choice(np.array(ledger.chosen, int), gains)


def choose_robust(task: Task) -> Choice:
    """Part score-optimal, part a probability sample of all other items.

    ``k - round(share k)`` items are chosen score-optimally, independent of the draw. The rest is a
    sample of the remaining items, stratified by difficulty, with exact inclusion probabilities. The
    weights are design-based: a chosen item has weight 1 / N, and the sampled ones have the
    remaining weight in proportion to 1 / probability. So the weighted mean is unbiased for the mean
    of the allowed items (under quotas up to the bias of a ratio, of order 1 / k), for any new
    subject and without a model. The first part uses at most the share 1 - ``share`` of quotas and
    budget.
    """
    limits, share = task.limits, task.share
    n_sampled = min(limits.n_items, int(np.floor(share * limits.n_items + 0.5)))
    if n_sampled == limits.n_items:
        return choose_stratified(task)
    upper = np.floor((1 - share) * limits.upper + 1e-9).astype(int)
    filler = task.rng.permutation(len(task.item_ids))
    budget_first = (1 - share) * limits.budget if np.isfinite(limits.budget) else np.inf
    first = limits if n_sampled == 0 else limits.capped(upper)
    n_first = limits.n_items - n_sampled
    ledger, gains = grow(lambda: by_score(task), first, filler, budget_first, n_first)
    chosen = np.array(ledger.chosen, int)
    try:
        remaining = limits.after(chosen)
        if n_sampled == 0 or remaining is None:
            return Choice(chosen, gains)
        sample = draw(remaining, task.rng, difficulty_strata(task))
    except InputError:  # the rest of the budget affords no sample: draw all items as one
        return choose_stratified(task)
    assert sample.probabilities is not None
    inverse = 1 / sample.probabilities
    n_remaining = int(limits.allowed.sum()) - len(chosen)
    weights = np.concatenate([np.ones(len(chosen)), inverse * n_remaining / inverse.sum()])
    return Choice(
        np.concatenate([chosen, sample.chosen]),
        np.concatenate([gains, sample.criterion]),
        np.concatenate([np.full(len(chosen), np.nan), sample.probabilities]),
        weights,
    )

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
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
import scipy
from scipy.special import ndtr

from irtcat._common.checks import InputError
from irtcat._common.progress import Progress, part_of
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.responses import Responses
from irtcat.responses._matrix import row_blocks
from irtcat.selection.constraints import FREE, Constraints, Picks, better_picks
from irtcat.selection.dense import Scores, centred_scores
from irtcat.selection.sampling import choose_stratified, difficulty_strata, draw
from irtcat.selection.task import Choice, Task

SHRINKAGE = 0.3
"""Share s by which the covariance is shrunk to its diagonal, since the greatest of many thousand
covariances are so by chance. Errors of ridge predictions (simulated: 300 items of two abilities, 50
or 200 subjects, 20 or 60 items chosen) differ by 6 % from .3 to .8, and are up to 14 % greater at
.02."""

LEVELS = 1000
"""Score levels of "rank-optimal", so that pairs of levels take at most 4 MB."""

BLOCK = 16
"""Columns of Sigma that are computed at a time, for the items that are likely to be chosen next:
one matrix product is several times faster than as many products with a vector."""

POOL, SMALL = 128, 2**20
"""Items with the greatest gains among which the next `BLOCK` choices are looked for, and the number
of responses below which the greatest gains themselves are taken. Of 5,000 x 30,000 simulated
responses, 300 items then take 350 columns and half the time of the 523 for the greatest gains; for
300 x 500 the search would take longer than the columns."""

TIE = 1e-6
"""Gains with a smaller relative difference are ties: they are computed in single precision."""

HASH = np.uint64(0x9E3779B97F4A7C15)
"""Multiplier of Fibonacci hashing, 2^64 / golden ratio. Ties are broken by a hash, not by the
position: tables are often sorted by date or topic, and items that few answered are often tied."""

LEAST_VARIANCE = 1e-6
"""Items with a smaller share of the greatest variance are known already, up to single precision."""

NO_ITEMS: IntArray = np.zeros(0, int)


class GaussianCovariance(NamedTuple):
    """The covariance Sigma of the items, as what is needed to compute its columns.

    Attributes:
        scores: scores of the calibration subjects; ``scores.centred`` is X.
        variances: the diagonal of X' M X.
        mix: applies the symmetric subjects x subjects matrix M to the columns of a matrix; None
            divides by the number of subjects, which gives the covariance over the subjects.
        scale: scale of M relative to a covariance, applied to the noise of imputed cells.
    """

    scores: Scores
    variances: FloatArray
    mix: Callable[[FloatArray], FloatArray] | None = None
    scale: float = 1.0

    def shared(self, v: FloatArray, x: FloatArray | None = None) -> FloatArray:
        """``(1 - s) v' M X``, one row per column of v; X is that of all items by default."""
        x = self.scores.centred if x is None else x
        mixed = v / np.float32(len(x)) if self.mix is None else self.mix(v)
        return np.float32(1 - SHRINKAGE) * (mixed.T @ x)


def conditioned(
    sigma: GaussianCovariance,
    limits: Constraints,
    filler: IntArray,
    *,
    by_cost: bool = False,
    n_items: int | None = None,
    max_cost: float = np.inf,
    first: IntArray = NO_ITEMS,
    progress: Progress | None = None,
) -> Picks:
    """The items that most reduce the posterior variance of the full score, one after another.

    With d the posterior variances of the items and t their posterior covariances with the full
    score, item j reduces the variance of the score by ``t_j^2 / d_j``. Conditioning on it subtracts
    ``l = Sigma[:, j | chosen] / sqrt(d_j)``: ``t -= l t_j / sqrt(d_j)``, ``d -= l^2``. The vectors
    l are the rows of the factor.

    All is one loop over arrays, since a cross-validation chooses many times: the constraints are
    asked again only where minima or a budget may reserve something. Columns are computed and
    conditioned on the choices so far for a block of items at a time (a blocked factorisation).

    Args:
        sigma: the covariance of the items.
        limits: the constraints on the choice.
        filler: rank of each item; the order in which items are taken once no item has a gain.
        by_cost: compare gains per cost.
        n_items: maximum number of items, if less than that of the constraints.
        max_cost: maximum total cost, if less than the budget.
        first: items to condition on before the choice.
        progress: called as each item is chosen.
    """
    x, group = sigma.scores.centred, limits.group
    noise, answered = sigma.scale * sigma.scores.noise, sigma.scores.answers > 0
    diagonal = SHRINKAGE * sigma.variances + noise
    weight = answered / max(answered.sum(), 1)
    d = np.where(answered, sigma.variances + noise, 0.0)
    t = sigma.shared((x @ weight.astype(np.float32))[:, None])[0] + diagonal * weight
    least_variance = LEAST_VARIANCE * d.max(initial=0.0)
    unit = np.ones(len(d)) if limits.costs is None or not by_cost else limits.costs
    unit = np.maximum(unit, FREE)
    hashes = np.arange(1, len(d) + 1, dtype=np.uint64) * HASH
    columns: dict[int, tuple[int, FloatArray]] = {}  # with the rank at which it was computed
    is_computed = np.zeros(len(d), bool)
    factor, rank = np.empty((BLOCK, len(d)), np.float32), 0
    chosen: list[int] = []
    gains: list[float] = []
    candidates, room = limits.candidates(max_cost=max_cost), limits.upper.copy()
    is_reserved = limits.costs is not None or limits.lower.any()
    # Steps below 0 condition on the first items, which are not part of the choice.
    n_items = limits.n_items if n_items is None else n_items
    for step in range(-len(first), n_items):
        items = candidates if step >= 0 else first[step:][:1]
        if not len(items):
            break
        gain = np.zeros(len(items))
        np.divide(t[items] ** 2, d[items], out=gain, where=d[items] > least_variance)
        value = gain / unit[items]
        ties = np.flatnonzero(value >= value.max() - TIE * value.max())
        best = ties[np.argmin(hashes[items[ties]])]
        if gain[best] <= 0:
            best = np.argmin(filler[items])
        item = int(items[best])
        if d[item] > least_variance:  # else nothing is left to condition on
            if item not in columns:
                top = items[np.argsort(-value, kind="stable")[:POOL]]
                if step < 0:
                    following = first[step:]
                elif x.size < SMALL:
                    following = top
                else:
                    following = _next_choices(sigma, top, d, t, diagonal, unit, factor[:rank])
                is_computed[item] = True
                others = np.asarray(following[:BLOCK], int)
                batch = np.append(item, others[~is_computed[others]])
                is_computed[batch] = True
                products = sigma.shared(np.ascontiguousarray(x[:, batch]))
                products -= factor[:rank, batch].T @ factor[:rank]
                columns.update(zip(batch.tolist(), zip(repeat(rank), products), strict=True))
            start, product = columns.pop(item)
            column = product.astype(float)
            column[item] += diagonal[item]
            column -= factor[start:rank, item] @ factor[start:rank]
            sd = np.sqrt(d[item])
            row = column / sd
            t -= row * (t[item] / sd)
            d = np.maximum(d - row**2, 0.0)
            d[item] = 0.0
            if rank == len(factor):
                factor = np.concatenate([factor, np.empty_like(factor)])
            factor[rank] = row
            rank += 1
        if step < 0:
            continue
        if progress is not None:
            progress(step, n_items, f"Item {step + 1} of {n_items}")
        chosen.append(item)
        gains.append(float(gain[best]))
        room[group[item]] -= 1
        if is_reserved:
            candidates = limits.candidates(chosen, max_cost)
        elif room[group[item]]:
            candidates = items[items != item]
        else:
            candidates = items[group[items] != group[item]]
    return np.array(chosen, int), np.array(gains)


def _next_choices(
    sigma: GaussianCovariance,
    items: IntArray,
    d: FloatArray,
    t: FloatArray,
    diagonal: FloatArray,
    unit: FloatArray,
    factor: FloatArray,
) -> IntArray:
    """The next `BLOCK` choices if they are all among these items and no constraint binds.

    The same conditioning as in `conditioned`, on the covariance of these items alone.
    """
    x = sigma.scores.centred[:, items]
    covariance = sigma.shared(x, x) - factor[:, items].T @ factor[:, items]
    covariance[np.diag_indices(len(items))] += diagonal[items]
    d, t, unit = d[items], t[items], unit[items]
    least_variance = LEAST_VARIANCE * d.max()
    chosen: list[int] = []
    while len(chosen) < min(BLOCK, len(items)):
        gain = np.divide(t**2, d, out=np.zeros(len(d)), where=d > least_variance)
        best = int(np.argmax(gain / unit))
        if gain[best] <= 0:
            break
        sd = float(np.sqrt(d[best]))
        row = covariance[best] / sd  # float32
        t = t - row * (t[best] / sd)
        covariance -= np.outer(row, row)
        d = np.maximum(d - row**2, 0.0)
        d[best] = 0.0
        chosen.append(best)
    return items[chosen]


def greedy(
    sigma: GaussianCovariance,
    limits: Constraints,
    filler: IntArray,
    n_items: int | None = None,
    max_cost: float = np.inf,
    progress: Progress | None = None,
) -> Picks:
    """The `conditioned` choice; under a cost budget the better of those by gain and per cost."""
    choice = partial(conditioned, sigma, limits, filler, n_items=n_items, max_cost=max_cost)

    def choose(by_cost: bool) -> Picks:
        part = progress if limits.costs is None else part_of(progress, by_cost, 2)
        return choice(by_cost=by_cost, progress=part)

    return better_picks(choose, limits)


def choose_score_optimal(task: Task) -> Choice:
    """Greedy minimisation of the posterior variance of the full score.

    Each step takes the item with the greatest ``cov(j, full mean)^2 / var(j)`` and conditions on
    it. The covariance is that of the calibration subjects' scores, shrunk by 30 % to its diagonal;
    missing responses are imputed from item and subject effects (`irtcat.selection.dense`). Once no
    item reduces the variance (constant items, or one subject) items follow in random order. The
    criterion is the reduction of the variance, on the squared 0-1 scale.

    References:
        Krause, Singh & Guestrin (2008), Near-optimal sensor placements in Gaussian processes,
        section 3 (variance reduction); Das & Kempe (2011), Submodular meets spectral, section 2
        (greedy subset selection for one target); Ledoit & Wolf (2004) (shrinkage).
    """
    scores, filler = task.scores, task.rng.permutation(len(task.item_ids))
    sigma = GaussianCovariance(scores, scores.variances)
    return Choice(*greedy(sigma, task.limits, filler, progress=task.progress))


def continued(
    responses: Responses, first: IntArray, allowed: BoolArray, k: int, seed: int
) -> IntArray:
    """Positions of the k items that most reduce the variance of the full score given the first."""
    filler = np.random.default_rng(seed).permutation(len(allowed))
    scores, limits = centred_scores(responses), Constraints.plain(k, allowed)
    return conditioned(GaussianCovariance(scores, scores.variances), limits, filler, first=first)[0]


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
        return choose_score_optimal(task)

    cells = (np.ones(len(level), np.float32), (level, np.arange(len(level))))
    member = scipy.sparse.csr_array(cells)

    def mix(v: FloatArray) -> FloatArray:
        spread = (kernel @ (member @ v))[level]
        return np.float32(2 / total) * (degree[:, None] * v - spread)

    variances = np.zeros(scores.centred.shape[1])
    for columns in row_blocks(scores.centred.shape[::-1]):
        block = scores.centred[:, columns]
        variances[columns] = np.einsum("ij,ij->j", block, mix(block), dtype=float)
    variances = np.maximum(variances, 0.0)
    filler = task.rng.permutation(len(task.item_ids))
    sigma = GaussianCovariance(scores, variances, mix, scale=2.0)
    return Choice(*greedy(sigma, task.limits, filler, progress=task.progress))


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
    filler = task.rng.permutation(len(task.item_ids))
    n_first, budget_first = limits.n_items - n_sampled, (1 - share) * limits.budget
    upper = np.minimum(limits.upper, np.floor((1 - share) * limits.upper + 1e-9).astype(int))
    first = limits if n_sampled == 0 else replace(limits, upper=upper)
    sigma = GaussianCovariance(task.scores, task.scores.variances)
    chosen, gains = greedy(sigma, first, filler, n_first, budget_first, task.progress)
    try:
        remaining = None if n_sampled == 0 else limits.after(chosen)
        if remaining is None:
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

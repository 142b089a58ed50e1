"""Representatives of clusters of items, weighted by their clusters' shares.

All three strategies divide the items into k clusters of points, choose one item to represent each,
and weight it by the cluster's share of all items. Distances are squared Euclidean throughout: ``1 -
r`` of two items is half of that of their standardised columns, and the member of a cluster with the
least sum of ``1 - r`` is then the one nearest to the cluster's mean.
"""

import numpy as np

from irtcat._types import BoolArray, FloatArray, IntArray
from irtcat.selection._task import Choice, Task

__all__ = [
    "choose_anchor_points",
    "choose_kmeans_correctness",
    "choose_kmeans_irt",
    "cluster",
    "k_medoids",
    "sketch",
]

SKETCH = 512
"""Most coordinates with many items: more subjects are randomly projected (see `sketch`)."""

SWAP_ITEMS = 2500
"""Up to this many items: no projection, several starts and, for medoids, swaps, for which all
distances are kept (25 MB)."""

STARTS, STEPS, TOLERANCE = 3, 25, 1e-4
"""Starts of k-means and of Voronoi iterations, which end after so many steps, or when the total
falls by less than the tolerance, relatively."""

NUDGE = 0.01
"""Weight of the mean score as a coordinate: distances change by at most 1e-4, which breaks ties."""


def choose_anchor_points(task: Task) -> Choice:
    """Anchor points: k-medoids on ``1 - correlation`` of the items over the calibration subjects.

    Clusters include all items, medoids only allowed ones. An item without variance has no
    correlation: its distance to others is that of uncorrelated items, and it is near to constant
    items of the same mean score; ties go to the medoid with the nearest mean score. Up to 2,500
    items, Voronoi iterations from several starts are followed by swaps until none helps; with more
    items there are only Voronoi iterations, on random projections of the columns (`sketch`).

    References:
        Vivek et al. (2024), Anchor Points: benchmarking models with much fewer examples, section
        3; Park & Jun (2009) (Voronoi iteration); Schubert & Rousseeuw (2021) (swaps).
    """
    scores = task.scores
    scale = np.sqrt(scores.variances * len(scores.centred))
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 1e-6)
    points = sketch(scores.centred, task.rng, inverse)
    constant = inverse == 0
    extra_coordinates = [constant, constant * scores.means, NUDGE * scores.means]
    points = np.column_stack([points, *extra_coordinates]).astype(np.float32)
    medoids = k_medoids(points, task.limits.n_items, task.rng, task.limits.allowed)
    return _represent(task, points, points[medoids])


def choose_kmeans_correctness(task: Task) -> Choice:
    """The item nearest to each centre of k-means on the items' columns of scores.

    The squared distance of two items is the mean squared difference of their scores.

    References:
        Maia Polo et al. (2024), tinyBenchmarks, section 3.2 (clustering, correctness).
    """
    scores = task.scores
    n = len(scores.centred)
    points = sketch(scores.centred, task.rng, np.full(len(scores.means), 1 / np.sqrt(n)))
    points = np.column_stack([points, scores.means]).astype(np.float32)
    return _represent(task, points, cluster(points, task.limits.n_items, task.rng))


def choose_kmeans_irt(task: Task) -> Choice:
    """The item nearest to each centre of k-means on the items' parameters.

    The unconstrained parameters (slopes, intercepts, logits of asymptotes) are not rescaled: the
    squared distance of two items' slopes and intercepts is then the mean squared distance of their
    logits over a standard normal population. Missing parameters are replaced by the mean of the
    other items.

    References:
        Maia Polo et al. (2024), tinyBenchmarks, section 3.2 (clustering, IRT).
    """
    points = task.any_bank.parameters().astype(float)
    finite = np.isfinite(points)
    count = np.maximum(finite.sum(axis=0), 1)
    means = np.where(finite, points, 0.0).sum(axis=0) / count
    points = np.where(finite, points, means).astype(np.float32)
    return _represent(task, points, cluster(points, task.limits.n_items, task.rng))


def sketch(centred: FloatArray, rng: np.random.Generator, scale: FloatArray) -> FloatArray:
    """The scaled columns of a matrix as points, items x coordinates.

    With more than 2,500 items and 512 subjects, 512 random projections are used (Johnson &
    Lindenstrauss 1984): squared distances are unbiased, with a relative SD of ``sqrt(2 / 512)``, 6
    %.
    """
    n = len(centred)
    if n <= SKETCH or centred.shape[1] <= SWAP_ITEMS:
        return centred.T * scale[:, None].astype(np.float32)
    project = rng.standard_normal((SKETCH, n), np.float32) / np.float32(np.sqrt(SKETCH))
    return (project @ centred).T * scale[:, None].astype(np.float32)


def _distances(
    points: FloatArray, centres: FloatArray, norms: FloatArray | None = None
) -> FloatArray:
    """Squared distances, points x centres; values within rounding error of 0 are set to 0."""
    norms = _norms(points) if norms is None else norms
    d = points @ (-2 * centres.T)
    d += norms[:, None]
    d += _norms(centres)
    d[d <= 1e-5 * max(norms.mean(), 1e-12)] = 0.0
    return d


def _norms(points: FloatArray) -> FloatArray:
    return np.einsum("ij,ij->i", points, points)


def _distant_starts(
    points: FloatArray, k: int, rng: np.random.Generator, mask: BoolArray | None
) -> IntArray:
    """Distant starting items (k-means++); fewer than k if fewer points differ."""
    allowed = np.ones(len(points)) if mask is None else mask.astype(float)
    chosen = [int(rng.choice(len(points), p=allowed / allowed.sum()))]
    norms = _norms(points)
    nearest = _distances(points, points[chosen], norms)[:, 0]
    while len(chosen) < k:
        odds = (nearest * allowed).astype(float)
        if odds.sum() <= 0:
            break
        chosen.append(int(rng.choice(len(points), p=odds / odds.sum())))
        nearest = np.minimum(nearest, _distances(points, points[chosen[-1:]], norms)[:, 0])
    return np.array(chosen)


def _means(points: FloatArray, labels: IntArray, centres: FloatArray) -> FloatArray:
    """Mean of each cluster; an empty one keeps its centre."""
    order = np.argsort(labels, kind="stable")
    nonempty, first = np.unique(labels[order], return_index=True)
    counts = np.diff(np.append(first, len(labels)))
    out = centres.copy()
    out[nonempty] = np.add.reduceat(points[order], first, axis=0) / counts[:, None]
    return out.astype(np.float32)


def cluster(points: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """Centres of k-means (Lloyd 1982, k-means++ starts); the best of three runs for few points."""
    best, least, norms = points[:0], np.inf, _norms(points)
    for _ in range(STARTS if len(points) <= SWAP_ITEMS else 1):
        centres = points[_distant_starts(points, k, rng, None)]
        total = np.inf
        for _ in range(STEPS):
            distances = _distances(points, centres, norms)
            new_total = float(distances.min(axis=1).sum(dtype=float))
            if new_total >= total * (1 - TOLERANCE):
                break
            total = new_total
            centres = _means(points, distances.argmin(axis=1), centres)
        if total < least:
            best, least = centres, total
    return best


def k_medoids(
    points: FloatArray, k: int, rng: np.random.Generator, mask: BoolArray | None = None
) -> IntArray:
    """Positions of the items that minimise the sum of squared distances to the nearest of them.

    Returns:
        At most k positions; fewer if fewer points differ.
    """
    allowed = np.arange(len(points)) if mask is None else np.flatnonzero(mask)
    best: IntArray = allowed[:0]
    least = np.inf
    small = len(points) <= SWAP_ITEMS
    for _ in range(STARTS if small else 1):
        medoids, total = _voronoi(points, _distant_starts(points, k, rng, mask), allowed)
        if total < least:
            best, least = medoids, total
    return _swap(_distances(points, points), best, allowed) if small else best


def _voronoi(points: FloatArray, medoids: IntArray, allowed: IntArray) -> tuple[IntArray, float]:
    """Voronoi iterations: assign to the nearest medoid, move it next to its cluster's mean."""
    distances = _distances(points, points[medoids])
    total = float(distances.min(axis=1).sum(dtype=float))
    norms = _norms(points)
    for _ in range(STEPS):
        means = _means(points, distances.argmin(axis=1), points[medoids])
        moved = np.unique(allowed[_distances(points[allowed], means).argmin(axis=0)])
        if len(moved) < len(medoids):
            break
        distances = _distances(points, points[moved], norms)
        new_total = float(distances.min(axis=1).sum(dtype=float))
        if new_total >= total * (1 - TOLERANCE):
            break
        medoids, total = moved, new_total
    return medoids, total


def _swap(distances: FloatArray, medoids: IntArray, allowed: IntArray) -> IntArray:
    """Exchange medoids for other items while that lowers the total (eager swaps)."""
    medoids, rows = medoids.copy(), np.arange(len(distances))
    state = _two_nearest(distances[:, medoids], rows)
    n_tried = position = 0
    while n_tried < len(allowed):
        item = allowed[position % len(allowed)]
        n_tried, position = n_tried + 1, position + 1
        if item in medoids:
            continue
        change = _changes(distances[:, item], *state, len(medoids))
        replaced = int(np.argmin(change))
        if change[replaced] < -1e-6 * (1 + state[1].sum()):
            medoids[replaced] = item
            state, n_tried = _two_nearest(distances[:, medoids], rows), 0
    return medoids


def _two_nearest(to: FloatArray, rows: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Nearest medoid of each item, its distance, and the distance of the second nearest."""
    near = to.argmin(axis=1)
    first = to[rows, near]
    to[rows, near] = np.inf
    return near, first, to.min(axis=1)


def _changes(
    to: FloatArray, near: IntArray, first: FloatArray, second: FloatArray, k: int
) -> FloatArray:
    """Change of the total if an item at distances ``to`` replaced each medoid."""
    closer = to < first
    gained = float((to - first)[closer].sum(dtype=float))
    lost = np.where(closer, 0.0, np.minimum(to, second) - first)
    return gained + np.bincount(near, lost, minlength=k)


def _represent(task: Task, points: FloatArray, centres: FloatArray) -> Choice:
    """One item for each centre, weighted by the share of all items that it represents.

    The largest clusters come first; each takes the nearest item that the constraints still allow
    (so under a budget small clusters may have none). If fewer than k items are chosen, the item
    farthest from all chosen ones is added. A chosen item represents itself; every other item is
    assigned to the nearest centre with an item. The criterion is the distance to the centre.
    """
    distances = _distances(points, centres)
    sizes = np.bincount(distances.argmin(axis=1), minlength=len(centres))
    chosen: list[int] = []
    used_clusters, criterion = [], []
    for c in np.argsort(-sizes, kind="stable"):
        items = task.limits.candidates(chosen)
        if not len(items):
            break
        chosen.append(int(items[np.argmin(distances[items, c])]))
        used_clusters.append(int(c))
        criterion.append(float(distances[chosen[-1], c]))
    centres = centres[used_clusters]
    filler = task.rng.permutation(len(points))
    nearest = _distances(points, points[chosen]).min(axis=1)
    while len(items := task.limits.candidates(chosen)):
        item = int(items[np.lexsort((filler[items], -nearest[items]))[0]])
        chosen.append(item)
        criterion.append(0.0)
        centres = np.concatenate([centres, points[[item]]])
        nearest = np.minimum(nearest, _distances(points, points[[item]])[:, 0])
    labels = _distances(points, centres).argmin(axis=1)
    labels[chosen] = np.arange(len(chosen))
    weights = np.bincount(labels, minlength=len(chosen)) / len(points)
    return Choice(np.array(chosen, int), np.array(criterion), None, weights)

"""Representatives of clusters of items, weighted by their clusters' shares.

Each of the three strategies represents the items as points, divides the points into k clusters,
chooses one item for each cluster, and weights it by the cluster's share of all items.

All distances are squared Euclidean. This includes anchor points: ``1 - r`` of two items is half of
the squared distance of their standardised columns. The member of a cluster with the least sum of
distances to the others, its medoid, is then the one nearest to the cluster's mean.
"""

from typing import NamedTuple

import numpy as np

from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.selection.task import Choice, Task

SKETCH = 512
"""Most coordinates of a point if there are many items (see `sketch`)."""

SWAP_ITEMS = 2500
"""Up to this many items there are several starts, no random projection and, for medoids, swaps.
Swaps need the distances of all pairs of items: 25 MB for 2,500 items."""

STARTS, STEPS, TOLERANCE = 3, 25, 1e-4
"""Number of starts of k-means and of Voronoi iterations, and when each ends: after so many steps,
or when the total distance falls by less than this fraction of itself."""

SWAP_TOLERANCE = 1e-6
"""A swap must lower the total distance d by this fraction of 1 + d, more than rounding could."""

MEAN_WEIGHT = 0.01
"""Weight of the mean score as a coordinate, which breaks ties; distances change by at most 1e-4."""


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
    # A constant item is the zero vector, and the others have length 1. The first extra coordinate
    # makes its squared distance to them 2, that of uncorrelated items; the second separates
    # constant items by their mean scores.
    constant = inverse == 0
    extra_coordinates = [constant, constant * scores.means, MEAN_WEIGHT * scores.means]
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
    # The mean squared difference of two columns is that of the centred columns plus the squared
    # difference of their means.
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
    """The columns of a matrix (subjects x items) as points, items x coordinates.

    With more than 2,500 items and more than 512 subjects, the coordinates are 512 random
    projections of the columns (Johnson & Lindenstrauss 1984): squared distances are unbiased, with
    a relative SD of ``sqrt(2 / 512)``, 6 %. Otherwise they are the columns themselves.

    Args:
        centred: the matrix.
        rng: draws the projections.
        scale: factor by which the column of each item is multiplied.
    """
    n = len(centred)
    if n <= SKETCH or centred.shape[1] <= SWAP_ITEMS:
        return centred.T * scale[:, None].astype(np.float32)
    project = rng.standard_normal((SKETCH, n), np.float32) / np.float32(np.sqrt(SKETCH))
    return (project @ centred).T * scale[:, None].astype(np.float32)


def _distances(
    points: FloatArray, centres: FloatArray, norms: FloatArray | None = None
) -> FloatArray:
    """Squared distances, points x centres; values within rounding error of 0 are set to 0.

    They are computed as ``|p|^2 - 2 p'c + |c|^2``, one matrix product, whose float32 rounding error
    grows with the squared lengths. ``norms`` are those of the points, if known.
    """
    norms = _norms(points) if norms is None else norms
    distances = points @ (-2 * centres.T)
    distances += norms[:, None]
    distances += _norms(centres)
    distances[distances <= 1e-5 * max(norms.mean(), 1e-12)] = 0.0
    return distances


def _norms(points: FloatArray) -> FloatArray:
    """Squared lengths of the points."""
    return np.einsum("ij,ij->i", points, points)


def _distant_starts(
    points: FloatArray, k: int, rng: np.random.Generator, mask: BoolArray | None
) -> IntArray:
    """Distant starting items; fewer than k if fewer points differ.

    Each is drawn with probability proportional to its squared distance to the nearest one drawn
    before (k-means++, Arthur & Vassilvitskii 2007), only from the items of the mask.
    """
    allowed = np.ones(len(points)) if mask is None else mask.astype(float)
    chosen = [int(rng.choice(len(points), p=allowed / allowed.sum()))]
    norms = _norms(points)
    nearest = _distances(points, points[chosen], norms)[:, 0]
    while len(chosen) < k:
        weights = (nearest * allowed).astype(float)
        if weights.sum() <= 0:
            break
        chosen.append(int(rng.choice(len(points), p=weights / weights.sum())))
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
    """Voronoi iterations from these medoids; the last medoids and the total distance to them.

    In each step every item is assigned to its nearest medoid, then each medoid moves to the allowed
    item nearest to its cluster's mean.
    """
    distances = _distances(points, points[medoids])
    total = float(distances.min(axis=1).sum(dtype=float))
    norms = _norms(points)
    for _ in range(STEPS):
        means = _means(points, distances.argmin(axis=1), points[medoids])
        moved = np.unique(allowed[_distances(points[allowed], means).argmin(axis=0)])
        if len(moved) < len(medoids):  # two clusters would share a medoid
            break
        distances = _distances(points, points[moved], norms)
        new_total = float(distances.min(axis=1).sum(dtype=float))
        if new_total >= total * (1 - TOLERANCE):
            break
        medoids, total = moved, new_total
    return medoids, total


def _swap(distances: FloatArray, medoids: IntArray, allowed: IntArray) -> IntArray:
    """Exchange medoids for other items while that lowers the total distance.

    The items are tried in turn, and a swap that helps is made at once (the eager swaps of Schubert
    & Rousseeuw 2021). It ends when all items were tried since the last swap.
    """
    medoids = medoids.copy()
    two_nearest = _two_nearest(distances[:, medoids])
    n_tried = position = 0
    while n_tried < len(allowed):
        item = allowed[position % len(allowed)]
        n_tried, position = n_tried + 1, position + 1
        if item in medoids:
            continue
        changes = _swap_changes(distances[:, item], two_nearest, len(medoids))
        replaced = int(np.argmin(changes))
        if changes[replaced] < -SWAP_TOLERANCE * (1 + two_nearest.distance.sum()):
            medoids[replaced] = item
            two_nearest, n_tried = _two_nearest(distances[:, medoids]), 0
    return medoids


class _TwoNearest(NamedTuple):
    """The two medoids nearest to each item.

    Attributes:
        medoid: number of the nearest medoid.
        distance: its distance.
        second_distance: distance of the second nearest; inf if there is only one medoid.
    """

    medoid: IntArray
    distance: FloatArray
    second_distance: FloatArray


def _two_nearest(distances: FloatArray) -> _TwoNearest:
    """Find the two nearest medoids, given distances items x medoids, which are overwritten."""
    rows = np.arange(len(distances))
    medoid = distances.argmin(axis=1)
    distance = distances[rows, medoid]
    distances[rows, medoid] = np.inf
    return _TwoNearest(medoid, distance, distances.min(axis=1))


def _swap_changes(distances: FloatArray, two_nearest: _TwoNearest, k: int) -> FloatArray:
    """Change of the total distance if a candidate replaced each of the k medoids.

    Items nearer to the candidate than to every medoid move to it whichever medoid it replaces. The
    others change only if their own medoid is replaced: they go to the candidate or to their second
    nearest medoid.

    Args:
        distances: of all items to the candidate.
        two_nearest: the present medoids nearest to each item.
        k: number of medoids.
    """
    nearest = two_nearest.distance
    is_nearer = distances < nearest
    gain = float((distances - nearest)[is_nearer].sum(dtype=float))
    loss = np.where(is_nearer, 0.0, np.minimum(distances, two_nearest.second_distance) - nearest)
    return gain + np.bincount(two_nearest.medoid, loss, minlength=k)


def _represent(task: Task, points: FloatArray, centres: FloatArray) -> Choice:
    """One item for each centre, weighted by the share of all items that it represents.

    The largest clusters come first. Each takes the item nearest to its centre that the constraints
    still allow, so under a budget small clusters may have none. While more items are allowed, the
    one farthest from all chosen items is added, as a cluster of its own. A chosen item represents
    itself; every other item is assigned to the nearest centre with an item. The criterion is the
    distance to the centre.
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
    tie_order = task.rng.permutation(len(points))  # equally distant items: in random order
    nearest = _distances(points, points[chosen]).min(axis=1)
    while len(items := task.limits.candidates(chosen)):
        item = int(items[np.lexsort((tie_order[items], -nearest[items]))[0]])
        chosen.append(item)
        criterion.append(0.0)
        centres = np.concatenate([centres, points[[item]]])
        nearest = np.minimum(nearest, _distances(points, points[[item]])[:, 0])
    labels = _distances(points, centres).argmin(axis=1)
    labels[chosen] = np.arange(len(chosen))
    weights = np.bincount(labels, minlength=len(chosen)) / len(points)
    return Choice(np.array(chosen, int), np.array(criterion), None, weights)

"""Moments of the answers of groups beside those under a model, their covariance and derivatives.

Moments are those of the items' codes, ``E x_i`` and ``E x_i x_j`` ("M2*", which for right/wrong
items is M2), or the shares of all categories and ``E x_i x_j`` ("C2").
"""

from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import ItemBank, Population
from irtcat.diagnose.chi_square import Coded, curves, population_nodes
from irtcat.diagnose.estimated_parameters import Free
from irtcat.models import ItemModel, as_points, filled, pack, unpack

BLOCK_ROWS = 4096
"""Subjects per block, which limits memory."""


class Conditional(NamedTuple):
    """Expected statistics of the answers at each node.

    Attributes:
        weights: of the nodes; they sum to 1.
        mean: items x nodes, expected code.
        square: items x nodes, expected square of the code.
        single: the univariate statistics, statistics x nodes.
        item: the item of each of them.
        single_square: expected square of each.
        single_code: expected product of each with its item's code.
    """

    weights: FloatArray
    mean: FloatArray
    square: FloatArray
    single: FloatArray
    item: IntArray
    single_square: FloatArray
    single_code: FloatArray


def conditional(p: FloatArray, weights: FloatArray, categories: IntArray, kind: str) -> Conditional:
    """The curves of the statistics from the probabilities, items x nodes x categories."""
    codes = np.arange(p.shape[2], dtype=float)
    mean, square = p @ codes, p @ codes**2
    if kind == "C2":
        item, category = _categories(categories)
        single = p[item, :, category]
        single_square, single_code = single, single * category[:, None]
    else:
        item = np.arange(len(p))
        single, single_square, single_code = mean, square, square
    return Conditional(
        weights, mean, square, single, item, single_square=single_square, single_code=single_code
    )


def _categories(categories: IntArray) -> tuple[IntArray, IntArray]:
    """Item and number of every category but 0."""
    item = np.repeat(np.arange(len(categories)), categories - 1)
    return item, np.concatenate([np.arange(1, k) for k in categories])


def model_moments(c: Conditional) -> FloatArray:
    """All moments: the univariate ones, then ``E x_i x_j`` for i < j."""
    first, second = np.triu_indices(len(c.mean), 1)
    cross = (c.mean * c.weights) @ c.mean.T
    return np.concatenate([c.single @ c.weights, cross[first, second]])


def _single_statistics(
    values: np.ndarray, categories: IntArray, kind: str
) -> tuple[IntArray, FloatArray]:
    """The item of each univariate statistic, and the statistics of subjects; 0 where missing."""
    if kind == "C2":
        item, category = _categories(categories)
        return item, (values[:, item] == category).astype(float)
    return np.arange(values.shape[1]), np.maximum(values, 0).astype(float)


def observed_moments(
    values: np.ndarray, categories: IntArray, kind: str, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray | float]:
    """The same moments in the data, each over the subjects who answered its items.

    Args:
        values: the answers, -1 where missing.
        categories: number of categories of each item.
        kind: which moments.
        weights: survey weights of the subjects, where no answer is missing.

    Returns:
        The moments, NaN where nobody answered both items; and moments x moments the subjects
        behind both, or their number (the sum of their weights) where no answer is missing.
    """
    answered = values >= 0
    x = np.where(answered, values, 0).astype(float)
    first, second = np.triu_indices(x.shape[1], 1)
    item, single = _single_statistics(values, categories, kind)
    w = np.ones(len(x)) if weights is None else weights
    sums = np.concatenate([w @ single, (x.T @ (w[:, None] * x))[first, second]])
    if answered.all():
        return sums / w.sum(), float(w.sum())
    behind = np.zeros((len(sums), len(sums)))
    for start in range(0, len(x), BLOCK_ROWS):
        seen = answered[start : start + BLOCK_ROWS].astype(np.float32)
        marks = np.concatenate([seen[:, item], seen[:, first] * seen[:, second]], axis=1)
        behind += marks.T @ marks  # counts below 2^24 are exact
    own = np.diagonal(behind)
    return np.where(own > 0, sums / np.maximum(own, 1.0), np.nan), behind


def sampling_covariance(
    values: np.ndarray, categories: IntArray, kind: str, weights: FloatArray
) -> FloatArray:
    """Covariance of weighted moments over samples of subjects, ``sum_i w_i^2 d_i d_i' / n^2``.

    d_i are the subject's statistics less their weighted means, n is the sum of the weights.
    """
    moments, n = observed_moments(values, categories, kind, weights)
    first, second = np.triu_indices(values.shape[1], 1)
    total = np.zeros((len(moments), len(moments)))
    for start in range(0, len(values), BLOCK_ROWS):
        x = values[start : start + BLOCK_ROWS].astype(float)
        single = _single_statistics(x, categories, kind)[1]
        statistics = np.concatenate([single, x[:, first] * x[:, second]], axis=1) - moments
        statistics *= weights[start : start + BLOCK_ROWS, None]
        total += statistics.T @ statistics
    return total / n**2


def moment_covariance(c: Conditional) -> FloatArray:
    """Covariance of one subject's statistics under the model.

    Answers are independent at a node: means of products over different items are products of means.
    Pairs that share an item have its mean square instead of the squared mean.
    """
    n = len(c.mean)
    first, second = np.triu_indices(n, 1)
    w, mean, excess = c.weights, c.mean, c.square - c.mean**2
    pair = mean[first] * mean[second]
    statistics = np.concatenate([c.single, pair])
    raw = (statistics * w) @ statistics.T
    m = len(c.single)
    same = c.item[:, None] == c.item
    raw[:m, :m][same] = 0.0
    raw[:m, :m][np.diag_indices(m)] = c.single_square @ w
    pair_index = np.zeros((n, n), int)
    pair_index[first, second] = pair_index[second, first] = m + np.arange(len(first))
    for i in range(n):
        others = np.delete(np.arange(n), i)
        pairs = pair_index[i, others]
        raw[np.ix_(pairs, pairs)] += (mean[others] * (excess[i] * w)) @ mean[others].T
        singles = np.flatnonzero(c.item == i)
        difference = c.single_code[singles] - c.single[singles] * mean[i]
        extra = (difference * w) @ mean[others].T
        raw[np.ix_(singles, pairs)] += extra
        raw[np.ix_(pairs, singles)] += extra.T
    # A pair with itself has both items' squares.
    both = (excess[first] * excess[second]) @ w
    raw[m + np.arange(len(first)), m + np.arange(len(first))] += both
    moments = statistics @ w
    return raw - np.outer(moments, moments)


@jit
def _derivatives(model: ItemModel, params: jax.Array, nodes: jax.Array) -> jax.Array:
    """Derivatives of all category probabilities, items x params x nodes x categories."""

    def one(phi: jax.Array, item: Any) -> jax.Array:
        return jnp.exp(jax.vmap(unpack(item, phi).log_probs)(nodes))

    return jnp.moveaxis(jax.vmap(jax.jacfwd(one))(params, model), -1, 1)


def probability_derivatives(bank: ItemBank, points: FloatArray) -> FloatArray:
    """Derivatives of all category probabilities by the parameters of their item."""
    with precision("float64"):
        nodes = as_points(jnp.asarray(points))
        model = jax.tree.map(jnp.asarray, filled(bank.model))
        dp = _derivatives(model, pack(model), nodes)
        return np.nan_to_num(np.asarray(dp)[: bank.n_items])


def derivatives(dp: FloatArray, c: Conditional, categories: IntArray, kind: str) -> FloatArray:
    """Derivatives of the moments by all items' parameters: moments x (items * params)."""
    n, n_params = dp.shape[:2]
    d_mean = dp @ np.arange(dp.shape[3], dtype=float)  # items, params, nodes
    first, second = np.triu_indices(n, 1)
    m, n_pairs = len(c.single), len(first)
    out = np.zeros((m + n_pairs, n, n_params))
    if kind == "C2":
        item, category = _categories(categories)
        d_single = dp[item, :, :, category] @ c.weights
    else:
        item, d_single = np.arange(n), d_mean @ c.weights
    out[np.arange(m), item] = d_single
    cross = np.einsum("ipq,jq->ijp", d_mean * c.weights, c.mean, optimize=True)
    rows = m + np.arange(n_pairs)
    out[rows, first] = cross[first, second]
    out[rows, second] = cross[second, first]
    return out.reshape(m + n_pairs, n * n_params)


def independent(
    values: np.ndarray, categories: IntArray, kind: str, weights: FloatArray | None = None
) -> tuple[Conditional, FloatArray]:
    """The moments of independent items with the observed shares, and derivatives by the shares."""
    n, n_categories = len(categories), int(categories.max())
    w = np.ones(len(values)) if weights is None else weights
    counts = np.stack([w @ (values == k) for k in range(n_categories)], axis=1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-12)
    c = conditional(shares[:, None, :], np.ones(1), categories, kind)
    dp = np.zeros((n, n_categories - 1, 1, n_categories))
    for k in range(1, n_categories):
        exists = categories > k
        dp[exists, k - 1, 0, k], dp[exists, k - 1, 0, 0] = 1.0, -1.0
    exists = (np.arange(1, n_categories) < categories[:, None]).ravel()
    return c, derivatives(dp, c, categories, kind)[:, exists]


def whiten(covariance: FloatArray, columns: FloatArray) -> FloatArray:
    """``L^-1 columns``, with L L' the covariance.

    Raises:
        numpy.linalg.LinAlgError: if the covariance is singular.
    """
    from scipy.linalg import cholesky, solve_triangular

    return np.asarray(solve_triangular(cholesky(covariance, lower=True), columns, lower=True))


def projected(y: FloatArray, design: FloatArray, n_free: int) -> tuple[float, bool]:
    """The squared length of whitened residual moments after regression on the parameters.

    ``e' (S - S D (D' S D)^-1 D' S) e`` with e the residual, S the inverse of the covariance L L':
    the squared residual of the regression of ``L^-1 e`` on ``L^-1 D``.

    Returns:
        The squared length, and whether the parameters are identified (the first ``n_free``
        directions of D are not null).
    """
    directions, identified = fitted_directions(design, n_free)
    fitted = directions.T @ y
    return max(float(y @ y - fitted @ fitted), 0.0), identified


def fitted_directions(design: FloatArray, n_free: int) -> tuple[FloatArray, bool]:
    """An orthonormal basis of what the parameters fit, and whether they are identified."""
    if n_free == 0:
        return np.zeros((len(design), 0)), True
    scale = np.linalg.norm(design, axis=0)
    design = design / np.where(scale > 0, scale, 1.0)
    directions, lengths, _ = np.linalg.svd(design, full_matrices=False)
    return directions[:, :n_free], bool(lengths[n_free - 1] > 1e-10 * lengths[0])


STEP = 1e-4
"""Step of the central differences by parameters of the population."""

Place = tuple[str, str, tuple[int, int]]
"""An estimated parameter of a population: its label, the field, and the abilities that it is of."""


def population_places(bank: ItemBank, free: Free) -> list[Place]:
    """The estimated parameters of all populations."""
    reference, *_ = bank.populations
    names = {"sd": free.sd, "correlations": free.n_correlations}
    fields = {reference: [name for name, is_free in names.items() if is_free]}
    fields |= {label: ["mean", "sd", "correlations"] for label in free.groups}
    places: list[Place] = []
    for label, own in fields.items():
        dims, correlations = bank.populations[label].dims, bank.populations[label].correlations
        pairs = [] if correlations is None else list(combinations(range(dims), 2))
        axes = [(axis, axis) for axis in range(dims)]
        for name in own:
            places += [(label, name, at) for at in (pairs if name == "correlations" else axes)]
    return places


def _moved(old: Population, name: str, at: tuple[int, int], step: float) -> Population:
    """The population after a change in one of its means, SDs or correlations."""
    value: Any = np.array(getattr(old, name), float)
    if name == "correlations":
        value[at] = value[at[::-1]] = value[at] + step
    else:
        value = value + step * np.eye(old.dims)[at[0]]
    return replace(old, **{name: value})


class MarginMoments(NamedTuple):
    """Moments of a group.

    Attributes:
        conditional: expected statistics at the nodes of its population.
        observed: moments of its answers; NaN where nobody answered both items.
        jacobian: derivatives of the expected moments, moments x all estimated parameters.
        counts: moments x moments, subjects behind both; their number alone where all answers count.
        sampling: covariance of the observed moments of weighted subjects; None without weights.
    """

    conditional: Conditional
    observed: FloatArray
    jacobian: FloatArray
    counts: FloatArray | float
    sampling: FloatArray | None = None

    @property
    def n(self) -> int:
        """Number of moments."""
        return int(np.isfinite(self.observed).sum())


class GroupAnswers(NamedTuple):
    """The answers of a group that count.

    Attributes:
        part: the group.
        values: the answers of some of its subjects.
        weights: survey weights of these, if any.
    """

    part: Coded
    values: np.ndarray
    weights: FloatArray | None


def group_moments(
    data: Coded, answers: GroupAnswers, free: Free, places: list[Place], kind: str
) -> MarginMoments:
    """The moments of a group under the model, and their derivatives."""
    part = answers.part
    points, weights = population_nodes(part.bank)
    c = conditional(curves(part.bank, points), weights, part.categories, kind)
    n_moments = len(model_moments(c))
    columns: list[FloatArray] = [np.zeros((n_moments, 0))]
    if free.mask.any():
        dp = probability_derivatives(part.bank, points)
        by_item = derivatives(dp, c, part.categories, kind)
        # The group's items are some of the bank's, where these differ between groups.
        at = data.bank.positions(part.bank.item_ids)[:, None] * dp.shape[1] + np.arange(dp.shape[1])
        columns.append(by_item @ free.design()[at.ravel()])
    columns += [_by_population(part, kind, place)[:, None] for place in places]
    return moments_beside(answers, kind, c, np.concatenate(columns, axis=1))


def moments_beside(
    answers: GroupAnswers, kind: str, c: Conditional, jacobian: FloatArray
) -> MarginMoments:
    """The moments of answers beside those of a model."""
    part, values, weights = answers
    observed, counts = observed_moments(values, part.categories, kind, weights)
    sampling = None
    if weights is not None:
        sampling = sampling_covariance(values, part.categories, kind, weights)
    return MarginMoments(c, observed, jacobian, counts, sampling)


def _by_population(part: Coded, kind: str, place: Place) -> FloatArray:
    """Derivative of a group's moments by a parameter of a population, by a central difference."""
    label, name, at = place
    populations = part.bank.populations
    own = next(iter(populations)) if len(populations) == 1 else label
    if part.groups[0].label not in ("", label):
        return np.zeros(len(_expected(part, part.bank, kind)))

    def moments(step: float) -> FloatArray:
        changed = {**populations, own: _moved(populations[own], name, at, step)}
        return _expected(part, replace(part.bank, populations=changed), kind)

    return (moments(STEP) - moments(-STEP)) / (2 * STEP)


def _expected(part: Coded, bank: ItemBank, kind: str) -> FloatArray:
    """The moments under the model."""
    points, weights = population_nodes(bank)
    return model_moments(conditional(curves(bank, points), weights, part.categories, kind))


def whitened(moments: MarginMoments) -> FloatArray:
    """Residual moments and derivatives of a group with the identity as covariance."""
    residual = moments.observed - model_moments(moments.conditional)
    columns = np.column_stack([residual, moments.jacobian])
    covariance = moment_covariance(moments.conditional)
    if isinstance(moments.counts, float):
        return whiten(covariance / moments.counts, columns)
    seen = np.isfinite(residual)
    counts = moments.counts[np.ix_(seen, seen)]
    own = np.diagonal(counts)
    return whiten(covariance[np.ix_(seen, seen)] * counts / np.outer(own, own), columns[seen])

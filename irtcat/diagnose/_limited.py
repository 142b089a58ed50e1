"""Univariate and bivariate moments of the answers: what they are under a model, and how they vary.

Moments are those of the items' codes, ``E x_i`` and ``E x_i x_j`` ("M2*", which for right/wrong
items is M2), or the shares of all categories and ``E x_i x_j`` ("C2").
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._compile import jit
from irtcat._precision import precision
from irtcat._types import FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.models import ItemModel, as_points, filled, pack, unpack

__all__ = [
    "Conditional",
    "conditional",
    "derivatives",
    "independent",
    "model_moments",
    "moment_covariance",
    "observed_moments",
    "projected",
]


class Conditional(NamedTuple):
    """What is expected of the answers at each node.

    Attributes:
        weights: of the nodes; they sum to 1.
        mean: items x nodes, expected code.
        square: items x nodes, expected square of the code.
        single: the univariate statistics, statistics x nodes.
        item: which item each of them is of.
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
        return Conditional(weights, mean, square, single, item, single, single * category[:, None])
    item = np.arange(len(p))
    return Conditional(weights, mean, square, mean, item, square, square)


def _categories(categories: IntArray) -> tuple[IntArray, IntArray]:
    """Item and number of every category but 0."""
    item = np.repeat(np.arange(len(categories)), categories - 1)
    return item, np.concatenate([np.arange(1, k) for k in categories])


def model_moments(c: Conditional) -> FloatArray:
    """All moments: the univariate ones, then ``E x_i x_j`` for i < j."""
    first, second = np.triu_indices(len(c.mean), 1)
    cross = (c.mean * c.weights) @ c.mean.T
    return np.concatenate([c.single @ c.weights, cross[first, second]])


def observed_moments(values: np.ndarray, categories: IntArray, kind: str) -> FloatArray:
    """The same moments of complete data."""
    x = values.astype(float)
    first, second = np.triu_indices(x.shape[1], 1)
    cross = (x.T @ x / len(x))[first, second]
    if kind == "C2":
        item, category = _categories(categories)
        single = (values[:, item] == category).mean(axis=0)
    else:
        single = x.mean(axis=0)
    return np.concatenate([single, cross])


def moment_covariance(c: Conditional) -> FloatArray:
    """Covariance of one subject's statistics under the model.

    Answers are independent at a node: products over different items are products of their means.
    Pairs that share an item take its mean square in place of the squared mean.
    """
    n = len(c.mean)
    first, second = np.triu_indices(n, 1)
    w, mean, excess = c.weights, c.mean, c.square - c.mean**2
    pair = mean[first] * mean[second]
    everything = np.concatenate([c.single, pair])
    raw = (everything * w) @ everything.T
    m = len(c.single)
    same = c.item[:, None] == c.item
    raw[:m, :m][same] = 0.0
    raw[:m, :m][np.diag_indices(m)] = c.single_square @ w
    place = np.zeros((n, n), int)
    place[first, second] = place[second, first] = m + np.arange(len(first))
    for i in range(n):
        others = np.delete(np.arange(n), i)
        at = place[i, others]
        raw[np.ix_(at, at)] += (mean[others] * (excess[i] * w)) @ mean[others].T
        own = np.flatnonzero(c.item == i)
        gap = c.single_code[own] - c.single[own] * mean[i]
        extra = (gap * w) @ mean[others].T
        raw[np.ix_(own, at)] += extra
        raw[np.ix_(at, own)] += extra.T
    # A pair with itself: both items' squares.
    both = (excess[first] * excess[second]) @ w
    raw[m + np.arange(len(first)), m + np.arange(len(first))] += both
    moments = everything @ w
    return raw - np.outer(moments, moments)


@jit
def _derivatives(model: ItemModel, params: jax.Array, nodes: jax.Array) -> jax.Array:
    """Derivatives of all category probabilities, items x params x nodes x categories."""

    def one(phi: jax.Array, item: Any) -> jax.Array:
        return jnp.exp(jax.vmap(unpack(item, phi).log_probs)(nodes))

    return jnp.moveaxis(jax.vmap(jax.jacfwd(one))(params, model), -1, 1)


def probability_derivatives(bank: ItemBank, points: FloatArray) -> FloatArray:
    """Derivatives of all category probabilities by each item's own parameters."""
    with precision("float64"):
        nodes = as_points(jnp.asarray(points))
        model = jax.tree.map(jnp.asarray, filled(bank.model))
        found = _derivatives(model, pack(model), nodes)
        return np.nan_to_num(np.asarray(found)[: bank.n_items])


def derivatives(dp: FloatArray, c: Conditional, categories: IntArray, kind: str) -> FloatArray:
    """Derivatives of the moments by all items' parameters: moments x (items * params)."""
    n, n_params = dp.shape[:2]
    d_mean = dp @ np.arange(dp.shape[3], dtype=float)  # items, params, nodes
    first, second = np.triu_indices(n, 1)
    m, pairs = len(c.single), m_pairs(n)
    out = np.zeros((m + pairs, n, n_params))
    if kind == "C2":
        item, category = _categories(categories)
        each = dp[item, :, :, category] @ c.weights
    else:
        item, each = np.arange(n), d_mean @ c.weights
    out[np.arange(m), item] = each
    cross = np.einsum("ipq,jq->ijp", d_mean * c.weights, c.mean, optimize=True)
    rows = m + np.arange(pairs)
    out[rows, first] = cross[first, second]
    out[rows, second] = cross[second, first]
    return out.reshape(m + pairs, n * n_params)


def m_pairs(n: int) -> int:
    """Number of pairs."""
    return n * (n - 1) // 2


def independent(
    values: np.ndarray, categories: IntArray, kind: str
) -> tuple[Conditional, FloatArray]:
    """The model of independent items with the observed shares, and its derivatives by them."""
    n, room = len(categories), int(categories.max())
    shares = np.stack([(values == k).mean(axis=0) for k in range(room)], axis=1)
    c = conditional(shares[:, None, :], np.ones(1), categories, kind)
    dp = np.zeros((n, room - 1, 1, room))
    for k in range(1, room):
        has = categories > k
        dp[has, k - 1, 0, k], dp[has, k - 1, 0, 0] = 1.0, -1.0
    own = (np.arange(1, room) < categories[:, None]).ravel()
    return c, derivatives(dp, c, categories, kind)[:, own]


def projected(
    gap: FloatArray, covariance: FloatArray, jacobian: FloatArray, n_free: int
) -> tuple[float, bool]:
    """The part of the gap that no parameter could close, in units of its covariance.

    ``gap' (S - S D (D' S D)^-1 D' S) gap`` with S the inverse of the covariance: the squared length
    of what is left of ``L^-1 gap`` after regression on ``L^-1 D``, L L' the covariance.

    Returns:
        The squared length, and whether the parameters can be told apart (the first ``n_free``
        directions of D are not null).

    Raises:
        numpy.linalg.LinAlgError: when the covariance is singular.
    """
    from scipy.linalg import cholesky, solve_triangular

    lower = cholesky(covariance, lower=True)
    left = solve_triangular(lower, np.column_stack([gap, jacobian]), lower=True)
    rest, design = left[:, 0], left[:, 1:]
    if n_free == 0:
        return float(rest @ rest), True
    scale = np.linalg.norm(design, axis=0)
    design = design / np.where(scale > 0, scale, 1.0)
    directions, lengths, _ = np.linalg.svd(design, full_matrices=False)
    told_apart = bool(lengths[n_free - 1] > 1e-10 * lengths[0])
    fitted = directions[:, :n_free].T @ rest
    return float(max(rest @ rest - fitted @ fitted, 0.0)), told_apart

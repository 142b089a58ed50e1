"""Curves of items: functions of a model and of abilities, below the engine."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import jit
from irtcat._common.types import FloatArray
from irtcat.bank import item_information
from irtcat.models import ItemModel

Matrices = Float[Array, "items dims dims"]


def category_terms(item: ItemModel, theta: Array) -> tuple[Array, Array, Array, Array]:
    """Log-probabilities of one item, their derivative, Fisher information and Warm's J.

    ``I = sum P'^2 / P`` and ``J = sum P' P'' / P``.
    """

    def curve(t: Array) -> Array:
        return item.log_probs(t[None])  # type: ignore[attr-defined]

    def slope(t: Array) -> tuple[Array, Array]:
        value, rate = jax.jvp(curve, (t,), (jnp.ones_like(t),))
        return rate, value

    d1, d2, log_p = jax.jvp(slope, (theta,), (jnp.ones_like(theta),), has_aux=True)
    p = jnp.exp(log_p)
    return log_p, d1, (p * d1**2).sum(), (p * d1 * (d2 + d1**2)).sum()


def answer_terms(model: ItemModel, answers: Array, theta: Array) -> tuple[Array, Array, Array]:
    """Derivatives of the log-probabilities of answers, Fisher information and Warm's J of items.

    In closed form for the logistic family: with the derivatives R and W of ``log P`` and
    ``log (1 - P)``, ``I = -R W`` and ``J = -a tanh(z / 2) I``.
    """
    if not model.has_logistic_link:
        _, d1, information, warm = jax.vmap(category_terms, (0, None))(model, theta)
        return jnp.take_along_axis(d1, answers[:, None], axis=1)[:, 0], information, warm
    a, intercept, c, d = LogisticCurves.of(model)
    z = a * theta + intercept
    # A wrong answer is a right one to the item with -z, 1 - d and 1 - c.
    right = answers > 0
    sign = jnp.where(right, 1, -1).astype(z.dtype)
    slope, tanh = _log_slope(sign * z, jnp.where(right, c, 1 - d), jnp.where(right, d, 1 - c))
    other, _ = _log_slope(-sign * z, jnp.where(right, 1 - d, c), jnp.where(right, 1 - c, d))
    information = a**2 * slope * other
    return sign * a * slope, information, -a * sign * tanh * information


@jax.custom_jvp
def _log_slope(z: Array, c: Array, d: Array) -> tuple[Array, Array]:
    """``R = d log P / dz`` of ``P = c + (d - c) / (1 + exp(-z))``, and ``tanh(z / 2)``.

    With s = exp(-|z|), ``R = (d - c) s / ((1 + s) (c s + d))`` above 0, and below 0 the same over
    ``c + d s``, where both vanish with s if c = 0.
    """
    up = z > 0
    s = jnp.exp(-jnp.abs(z))
    numerator = jnp.where(up | (c > 0), s, 1)
    denominator = jnp.where(up, c * s + d, jnp.where(c > 0, c + d * s, d))
    slope = (d - c) * numerator / ((1 + s) * denominator)
    return slope, jnp.where(up, 1 - s, s - 1) / (1 + s)


@_log_slope.defjvp
def _(primals: Any, tangents: Any) -> Any:
    """``dR = -R (tanh + R) dz``; the asymptotes are constants."""
    slope, tanh = _log_slope(*primals)
    dz = tangents[0]
    return (slope, tanh), (-slope * (tanh + slope) * dz, 0.5 * (1 - tanh**2) * dz)


def information_matrices(model: ItemModel, theta: Float[Array, " dims"]) -> Matrices:
    """Information matrices of items at one ability vector."""

    def one(item: ItemModel) -> Array:
        slope = jax.jacfwd(lambda at: item.natural(at)[1:])(theta)
        return slope.T @ item.variance(theta) @ slope

    return jax.vmap(one)(model)


def information_at(model: ItemModel, theta: Float[Array, ""]) -> Float[Array, " items"]:
    """Fisher information of all items at one ability.

    Uses the closed form of the link where one exists (forty times as fast), else derivatives.
    """
    if model.has_logistic_link:
        return LogisticCurves.of(model).information(theta)
    if model.members or not model.has_predictors:
        return item_information(model, theta[None])[:, 0]
    coefficients, gaps = jax.vmap(lambda item: item.predictors())(model)
    intercepts, slopes = (list(jnp.moveaxis(coefficients[..., i], 1, 0)) for i in (0, 1))
    z = [d[None] + a * theta for d, a in zip(intercepts, slopes, strict=True)]
    link = model.link  # type: ignore[attr-defined]
    terms = link.terms(z, list(gaps.T), jnp.zeros_like(jnp.stack(z)), jnp.ones_like(z[0]))
    total = jnp.zeros_like(slopes[0])
    for (m, n), weight in terms.weight.items():
        total = total + (1 if m == n else 2) * slopes[m] * slopes[n] * weight[0]
    return total


class LogisticCurves(NamedTuple):
    """Discriminations, intercepts and asymptotes of items of the logistic family."""

    a: Any
    intercept: Any
    c: Any
    d: Any

    @staticmethod
    def of(model: Any) -> "LogisticCurves":
        """Those of a model that has a logistic link."""
        table = model.irt_parameters()
        return LogisticCurves(table["a"], model.intercept, table["c"], table["d"])

    def at(self, items: Any) -> "LogisticCurves":
        """Those of some items."""
        return LogisticCurves(*(parameter[items] for parameter in self))

    def information(self, theta: Any, np_or_jnp: Any = jnp) -> Any:
        """``P'^2 / (P Q)`` with one exponential and one division.

        With s = exp(-|z|), and (A, B) = (1, s) where z > 0, else (s, 1): ``P = (c B + d A) / (1 +
        s)``, ``Q = ((1 - c) B + (1 - d) A) / (1 + s)``.
        """
        a, intercept, c, d = self
        z = a * theta + intercept
        s = np_or_jnp.exp(-abs(z))
        up, down = np_or_jnp.where(z > 0, 1.0, s), np_or_jnp.where(z > 0, s, 1.0)
        both = (c * down + d * up) * ((1 - c) * down + (1 - d) * up) * (1 + s) ** 2
        return (a * (d - c) * s) ** 2 / np_or_jnp.maximum(both, np_or_jnp.finfo(s.dtype).tiny)


class Curves(NamedTuple):
    """The curves of all items at the nodes of a belief.

    Attributes:
        log_p: log-probabilities of the answers, items x categories x nodes.
        p: the probabilities.
        information: Fisher information, items x nodes; with several abilities its trace.
        entropy: entropy of the answer, items x nodes.
        warm: Warm's J, items x nodes; None where no estimator needs it.
        mean: expected score on the benchmark's scale (0 to 1), items x nodes.
        variance: variance of that score.
    """

    log_p: Array
    p: Array
    information: Array
    entropy: Array
    warm: Array | None
    mean: Array
    variance: Array


@functools.partial(jit, static_argnames=("peaks", "warm"))
def tabulate(
    model: ItemModel,
    nodes: Float[Array, " nodes"],
    top: Float[Array, " items"],
    peaks: bool = True,
    warm: bool = True,
) -> tuple[Curves, Array]:
    """Curves of all items on the grid of one ability, and the ability of greatest information.

    Args:
        model: the items.
        nodes: the grid.
        top: highest category of each item, at least 1.
        peaks: compute the ability of greatest information to machine precision; otherwise take the
            best node.
        warm: compute Warm's J.

    Returns:
        The curves, and for each item the ability of greatest information.
    """
    curves = _logistic_curves if model.has_logistic_link else _any_curves
    log_p, information, bias = curves(model, nodes)
    best = jnp.argmax(information, axis=1)
    theta = nodes[best]
    if peaks:
        low = nodes[jnp.maximum(best - 1, 0)]
        high = nodes[jnp.minimum(best + 1, len(nodes) - 1)]
        theta = jax.vmap(_peak)(model, low, high)
    return _curves_of(log_p, information, bias if warm else None, top), theta


def curves_at(model: ItemModel, nodes: Float[Array, "nodes dims"], top: Array) -> Curves:
    """Curves of all items at ability vectors; the information is the trace.

    Args:
        model: the items.
        nodes: the abilities.
        top: highest category of each item, at least 1.
    """

    def one(item: Any) -> tuple[Array, Array]:
        single_item = jax.tree.map(lambda leaf: leaf[None], item)

        def at(theta: Array) -> tuple[Array, Array]:
            return item.log_probs(theta), jnp.trace(information_matrices(single_item, theta)[0])

        return jax.vmap(at, out_axes=-1)(nodes)

    log_p, information = jax.lax.map(one, model)
    return _curves_of(log_p, information, None, top)


def _curves_of(log_p: Array, information: Array, warm: Array | None, top: Array) -> Curves:
    """The curves, including those derived from the log-probabilities."""
    p = jnp.exp(log_p)
    entropy = -(p * jnp.where(p > 0, log_p, 0)).sum(axis=1)
    score = jnp.arange(p.shape[1], dtype=p.dtype) / top[:, None]
    mean, square = ((p * power[:, :, None]).sum(axis=1) for power in (score, score**2))
    variance = jnp.maximum(square - mean**2, 0)
    return Curves(log_p, p, information, entropy, warm, mean=mean, variance=variance)


def _any_curves(model: ItemModel, nodes: Array) -> tuple[Array, Array, Array]:
    """Log-probabilities, information and Warm's J, by automatic differentiation."""

    def one(item: ItemModel) -> tuple[Array, Array, Array]:
        at_nodes = jax.vmap(functools.partial(category_terms, item), out_axes=-1)
        log_p, _, information, warm = at_nodes(nodes)
        return log_p, information, warm

    return jax.lax.map(one, model, batch_size=64)


def _logistic_curves(model: Any, nodes: Array) -> tuple[Array, Array, Array]:
    """The same for the logistic family, ten times as fast: ``J = -a tanh(z / 2) I``."""

    def one(item: Any) -> Array:
        return jax.vmap(lambda t: item.log_probs(t[None]), out_axes=-1)(nodes)

    log_p = jax.vmap(one)(model)
    curves = LogisticCurves(*(values[:, None] for values in LogisticCurves.of(model)))
    information = curves.information(nodes)
    tanh = jnp.tanh(0.5 * (curves.a * nodes + curves.intercept))
    return log_p, information, -curves.a * tanh * information


def _peak(item: ItemModel, low: Array, high: Array) -> Array:
    """Ability of the greatest information of one item between two abilities, by bisection."""

    def rises(t: Array) -> Array:
        return jax.jvp(lambda u: category_terms(item, u)[2], (t,), (jnp.ones_like(t),))[1] > 0

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        up = rises(middle)
        return jnp.where(up, middle, ends[0]), jnp.where(up, ends[1], middle)

    low, high = jax.lax.fori_loop(0, 52, halve, (low, high))
    return 0.5 * (low + high)


def trapezoid(nodes: FloatArray) -> FloatArray:
    """Trapezoid weights of evenly spaced nodes.

    Example:
        >>> trapezoid(np.array([0.0, 1.0, 2.0])).tolist()
        [0.5, 1.0, 0.5]
    """
    weights = np.full(len(nodes), nodes[1] - nodes[0])
    weights[[0, -1]] *= 0.5
    return weights

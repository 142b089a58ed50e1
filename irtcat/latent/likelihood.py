"""The log-likelihood of response rows on the common grid, as matrix products.

In general (rows x items) @ (items x nodes) for each contrast curve. Where the contrasts are
straight lines in theta (canonical links: 1PL, 2PL, partial credit, nominal) two sums a row take the
place of these products, and for complete responses the base is the same for all rows, so that no
product as wide as the window remains.
"""

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from irtcat._common.compilation import jit, namespace
from irtcat.latent.linear_predictors import one_answer, part_terms, parts_of
from irtcat.models import ItemModel, as_points
from irtcat.models.base import Mask, Statistics

# Grid from -6.4 to 6.4, in population SDs. Wide posteriors are integrated on fewer nodes.
SPACING = 0.1
LIMIT = 6.4
N_NODES = 129


class Curves(NamedTuple):
    """The items' `natural` curves on the grid: the base and the contrasts."""

    base: Float[Any, "nodes items"]
    contrast: Float[Any, "contrasts nodes items"]


@functools.cache
def grid_points(dtype: np.dtype, n_nodes: int = N_NODES) -> Float[np.ndarray, " nodes"]:
    """The common grid on the standardised scale, in numpy."""
    return np.linspace(-LIMIT, LIMIT, n_nodes, dtype=dtype)


def grid_nodes(dtype: np.dtype, n_nodes: int = N_NODES) -> Float[Any, " nodes"]:
    """The common grid on the standardised scale."""
    return jax.device_put(grid_points(dtype, n_nodes))


def item_curves(model: ItemModel, nodes: Float[Any, "nodes *dims"]) -> Curves:
    """Evaluate the items on the nodes, nodes first."""
    xp = namespace(nodes)
    if model.closed_form == "logistic":  # (-log(1 + exp z), z), which takes a third of the time
        slope, intercept = model.slope, model.intercept  # type: ignore[attr-defined]
        if model.dims == 1:
            z = as_points(nodes) * slope + intercept
        else:  # not a matrix product: accelerators would round it to fewer digits
            z = (nodes[:, None] * slope).sum(2) + intercept
        return Curves(-xp.logaddexp(z, 0), z[None])
    if xp is np:
        return _curves_of_parts(model, as_points(nodes))
    at_node = jax.vmap(lambda item, theta: item.natural(theta), (None, 0))
    curves = jax.vmap(at_node, (0, None))(model, as_points(nodes))
    return Curves(curves[..., 0].T, jnp.moveaxis(curves[..., 1:], (0, 1, 2), (2, 1, 0)))


def _curves_of_parts(model: ItemModel, nodes: Float[np.ndarray, "nodes dims"]) -> Curves:
    """The curves of links with terms in numpy, which are linear in the statistics."""
    answers = one_answer(model, nodes.dtype)
    terms = (part_terms(part, nodes, *answers, only_values=True) for part in parts_of(model))
    values: Any = sum(of_part.value for of_part in terms)
    return Curves(values[0], values[1:])


def log_likelihood(statistics: Statistics, mask: Mask, curves: Curves) -> Float[Any, "rows nodes"]:
    """Log-likelihood of each row at each node of the curves."""
    products = (h @ c.T for h, c in zip(statistics, curves.contrast, strict=True))
    out = functools.reduce(operator.iadd, products)  # no further arrays of all rows in numpy
    out += careful_sum(curves.base) if mask is None else mask @ curves.base.T
    return out


@functools.partial(jit, static_argnames=("has_missing",))
def log_likelihoods(
    model: ItemModel, x: Any, nodes: Float[Any, "nodes *dims"], has_missing: bool
) -> Float[Any, "rows nodes"]:
    """Log-likelihood of each row of responses at each node."""
    statistics, mask = model.sufficient_statistics(
        x, model.n_categories - 1, has_missing, nodes.dtype
    )
    return log_likelihood(statistics, mask, item_curves(model, nodes))


def careful_sum(array: Float[Any, "nodes items"]) -> Float[Any, " nodes"]:
    """Sum over the items in two levels.

    One long float32 sum has the same rounding error for all subjects, which adds up in the
    log-likelihood.
    """
    if namespace(array) is np:  # its sums are pairwise
        return array.sum(1)
    n_nodes, n_items = array.shape
    size = max(1, int(n_items**0.5))
    padded = jnp.pad(array, ((0, 0), (0, -n_items % size)))
    return padded.reshape(n_nodes, -1, size).sum(2).sum(1)


def _two_level(x: Float[Any, "rows items"], f: Float[Any, " items"]) -> Float[Any, " rows"]:
    """``x @ f``, each sum over the items in two levels."""
    if namespace(x) is np:  # its sums are of short parts
        return x @ f
    n_items = x.shape[-1]
    size = max(1, int(n_items**0.5))
    n_grouped = n_items - n_items % size
    inner = jnp.einsum(
        "rcj,cj->rc", x[:, :n_grouped].reshape(len(x), -1, size), f[:n_grouped].reshape(-1, size)
    )
    return inner.sum(1) + x[:, n_grouped:] @ f[n_grouped:]


def _careful_log_likelihood(statistics: Statistics, mask: Mask, at: Curves) -> Float[Any, " rows"]:
    """Log-likelihood of each row at one node, each sum over the items in two levels."""
    out = sum(_two_level(h, c[0]) for h, c in zip(statistics, at.contrast, strict=True))
    return out + (careful_sum(at.base)[0] if mask is None else _two_level(mask, at.base[0]))


class Lines(NamedTuple):
    """Curves of items whose contrasts are straight lines in theta.

    The log-likelihood is then (t . slope) theta + t . intercept + the base, with the statistics t
    of all contrasts: only two sums per row are needed.

    Attributes:
        base: see `Curves`.
        slope: slopes of the contrasts.
        intercept: their values at 0.
        total: sums of the base over all items, for complete rows.
        steps: differences of these sums between neighbouring nodes.
    """

    base: Float[Any, "nodes items"]
    slope: Float[Any, "contrasts items"]
    intercept: Float[Any, "contrasts items"]
    total: Float[Any, " nodes"]
    steps: Float[Any, " steps"]

    def sums(self, statistics: Statistics) -> tuple[Any, Any]:
        """The two sums of each row."""
        return tuple(
            sum(_two_level(h, f) for h, f in zip(statistics, by_contrast, strict=True))
            for by_contrast in (self.slope, self.intercept)
        )

    def rise(self, first: Int[Any, ""], window: int) -> Float[Any, " window"]:
        """The base's sum in a window, less that at its middle.

        Summed from the middle outwards, so that it is most accurate near the posterior.
        """
        steps, centre = jax.lax.dynamic_slice(self.steps, (first,), (window - 1,)), window // 2
        below = -jnp.cumsum(steps[:centre][::-1])[::-1]
        return jnp.concatenate([below, jnp.zeros(1, steps.dtype), jnp.cumsum(steps[centre:])])


def weighted_curves(
    model: ItemModel, nodes: Float[Any, " nodes"], item_weights: Float[Any, " items"]
) -> Curves | Lines:
    """The curves of items of one ability times the items' weights, as lines where they are."""
    xp = namespace(nodes)
    if model.closed_form == "logistic":
        base = item_curves(model, nodes).base
        slope, intercept = model.slope[None], model.intercept[None]  # type: ignore[attr-defined]
    elif model.has_canonical_link:
        (part,) = parts_of(model)
        slope, intercept = part.rows[:, :, 1].T, part.rows[:, :, 0].T
        none = xp.zeros((len(slope), 1, 1), nodes.dtype)
        one = xp.ones((1, 1), nodes.dtype)
        base = part_terms(part, as_points(nodes), none, one, only_values=True).value
    else:
        return Curves(*(curve * item_weights for curve in item_curves(model, nodes)))
    base, slope, intercept = (xp.asarray(a * item_weights) for a in (base, slope, intercept))
    return Lines(base, slope, intercept, careful_sum(base), careful_sum(xp.diff(base, axis=0)))


def grid_likelihood(
    statistics: Statistics, mask: Mask, curves: Curves | Lines, nodes: Float[Any, " nodes"]
) -> Float[Any, "rows nodes"]:
    """Log-likelihood of each row on the whole grid."""
    if isinstance(curves, Curves):
        return log_likelihood(statistics, mask, curves)
    slope, intercept = curves.sums(statistics)
    base = curves.total if mask is None else mask @ curves.base.T
    if namespace(slope) is np and mask is None:  # one product instead of three arrays
        ones = np.ones_like(slope)
        return np.stack([slope, intercept, ones], 1) @ np.stack([nodes, np.ones_like(nodes), base])
    return slope[:, None] * nodes + intercept[:, None] + base


def window_likelihood(
    statistics: Statistics, mask: Mask, curves: Curves | Lines, first: Int[Any, ""], window: int
) -> tuple[Float[Any, "rows window"], Float[Any, " rows"]]:
    """Log-likelihood of each row in a window less that at its middle, and the latter.

    Differences to the window's middle are small numbers: the rounding error in float32 is then a
    constant of each row, which cancels in the posterior.
    """
    if isinstance(curves, Lines):
        return _linear_window_likelihood(statistics, mask, curves, first, window)
    n_items, centre, zero = curves.base.shape[1], window // 2, jnp.int32(0)
    base = jax.lax.dynamic_slice(curves.base, (first, zero), (window, n_items))
    shape = (curves.contrast.shape[0], window, n_items)
    contrast = jax.lax.dynamic_slice(curves.contrast, (zero, first, zero), shape)
    middle = Curves(base[centre : centre + 1], contrast[:, centre : centre + 1])
    relative = Curves(base - middle.base, contrast - middle.contrast)
    at_middle = _careful_log_likelihood(statistics, mask, middle)
    return log_likelihood(statistics, mask, relative), at_middle


def _linear_window_likelihood(statistics, mask, lines, first, window):
    """The same by two sums a row; with missing responses also the base's product with the mask."""
    centre, n_items = window // 2, lines.base.shape[1]
    slope, intercept = lines.sums(statistics)
    away = SPACING * (jnp.arange(window, dtype=slope.dtype) - centre)
    theta = (first + centre) * SPACING - LIMIT
    at_middle = slope * theta.astype(slope.dtype) + intercept
    if mask is None:
        rise = lines.rise(first, window)
        return slope[:, None] * away + rise, at_middle + lines.total[first + centre]
    base = jax.lax.dynamic_slice(lines.base, (first, jnp.int32(0)), (window, n_items))
    rise = mask @ (base - base[centre]).T
    return slope[:, None] * away + rise, at_middle + _two_level(mask, base[centre])

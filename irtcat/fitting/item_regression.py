"""Regressions of the items on abilities that do not change: sums at nodes, and Newton steps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import jit
from irtcat._common.types import FloatArray
from irtcat.fitting.em.covariance import complete_information, inverse_blocks
from irtcat.fitting.em.m_step import CompleteData, log_prior, m_step, penalised_terms
from irtcat.fitting.em.rows import Rows
from irtcat.fitting.outcome import Ending, until_small
from irtcat.fitting.solvers import EM
from irtcat.fitting.specification import Specification
from irtcat.latent import item_curves
from irtcat.latent.line import STENCIL
from irtcat.models import ItemModel

N_NODES = 257
"""Smallest number of grid nodes; where distinct abilities are no more than these, they are the
nodes themselves."""

MOST_NODES = 8192
"""Most cells of the grid, whatever the spacing."""

WIDEST_SPACING = 0.125
"""Spacing of the grid, in SDs of the abilities."""

BLOCK_CELLS = 2**22
"""Cells of the statistics that are computed at a time."""

STEPS = 8
"""Newton steps of each M-step."""

TOLERANCE = 1e-4
"""Default tolerance of the first Newton step, in standard errors."""


def spread(theta: FloatArray) -> tuple[FloatArray, Callable[[np.ndarray], FloatArray]]:
    """Nodes for the abilities, and a function for the interpolation weights.

    Args:
        theta: the abilities.

    Returns:
        The nodes, and a function from row numbers to weights (rows x nodes) whose rows sum to 1:
        ``weights @ f(nodes)`` is ``f(theta)`` for every smooth curve ``f``.
    """
    distinct, which = np.unique(theta, return_inverse=True)
    reach = float(np.ptp(theta))
    # A few extreme abilities must not widen the spacing of all others.
    quarters = float(np.subtract(*np.percentile(theta, [75, 25]))) / 1.35
    sd = min(theta.std(), quarters) if quarters > 0 else theta.std()
    spacing = max(WIDEST_SPACING * sd, reach / MOST_NODES)
    n_nodes = max(N_NODES, int(np.ceil(reach / spacing)) + 1 if spacing else 0)
    if len(distinct) <= n_nodes:
        return distinct, lambda rows: 1.0 * (which[rows, None] == np.arange(len(distinct)))
    nodes = np.linspace(theta.min(), theta.max(), n_nodes)
    u = (theta - nodes[0]) / (nodes[1] - nodes[0])
    first = np.clip(np.floor(u).astype(int) - STENCIL // 2 + 1, 0, n_nodes - STENCIL)

    def weights(rows: np.ndarray) -> FloatArray:
        out = np.zeros((len(rows), n_nodes))
        index = first[rows, None] + np.arange(STENCIL)
        np.put_along_axis(out, index, _lagrange(u[rows] - first[rows]), axis=1)
        return out

    return nodes, weights


def _lagrange(v: FloatArray) -> FloatArray:
    """Weights of the nodes 0..7 that interpolate at ``v``, always in float64."""
    k = np.arange(STENCIL)
    columns = [np.prod((v[:, None] - k[k != i]) / (i - k[k != i]), axis=1, dtype=float) for i in k]
    return np.stack(columns, axis=1)


@jit
def _add(sums: Any, statistics: Array, mask: Array | None, weights: Array) -> Any:
    """Add a block of rows to the sums at the nodes."""
    counts = jnp.einsum("ng,cnj->cgj", weights, statistics)
    here = weights.sum(0) if mask is None else weights.T @ mask
    return sums[0] + counts, sums[1] + here


def collect(
    template: ItemModel, rows: Rows, theta: FloatArray, dtype: np.dtype
) -> tuple[Array, Array, Array]:
    """Nodes, sums of the statistics at them and numbers of subjects, in one pass over the rows."""
    x, has_missing = rows.x, rows.has_missing
    points, weights_of = spread(theta)
    nodes = jnp.asarray(points, dtype)
    n_contrasts = jax.eval_shape(item_curves, template, nodes).contrast.shape[0]
    n_nodes, n_items = len(points), x.shape[1]
    sums: Any = jnp.zeros((n_contrasts, n_nodes, n_items), dtype), jnp.zeros(n_nodes, dtype)
    if has_missing:
        sums = sums[0], jnp.zeros((n_nodes, n_items), dtype)
    size = max(1, BLOCK_CELLS // (n_contrasts * max(n_items, n_nodes)))
    for begin in range(0, len(x), size):
        block = np.arange(begin, min(begin + size, len(x)))
        statistics, mask = template.sufficient_statistics(
            jnp.asarray(x[block]), n_contrasts, has_missing, dtype
        )
        weights = rows.weights[block, None] * weights_of(block)
        sums = _add(sums, statistics, mask, jnp.asarray(weights, dtype))
    return nodes, *sums


@jit
def _values(data: CompleteData) -> tuple[Array, Array]:
    """Log-likelihood and log-posterior, summed over the items."""
    value, _, _ = penalised_terms(data)
    return (value - log_prior(data.params, data.constraints)).sum(), value.sum()


_m_step = jit(m_step, static_argnames=("tied",))


def climb(
    data: CompleteData, tied: tuple[int, ...], specification: Specification[EM]
) -> tuple[CompleteData, float, Ending]:
    """Repeat M-steps until the first Newton step is within the tolerance.

    Returns:
        The data with the parameters reached, the log-likelihood there, and how it ended.
    """
    solver = specification.solver
    tolerance = TOLERANCE if solver.tolerance is None else solver.tolerance
    everyone = jnp.ones(data.params.shape[0], data.params.dtype)
    likelihood = np.nan

    def take() -> tuple[float, float]:
        nonlocal data, likelihood
        moved = _m_step(data, everyone, tied=tied, n_steps=jnp.int32(STEPS))
        data = data._replace(params=moved.params)
        likelihood, posterior = map(float, _values(data))
        return posterior, float(moved.step)

    ending = until_small(take, tolerance, solver.max_iterations, specification.progress)
    return data, likelihood, ending


def covariance_given_theta(
    data: CompleteData, tied: tuple[int, ...], which: str
) -> FloatArray | None:
    """Inverse of the observed information of each item at the fixed theta."""
    if which == "none":
        return None
    information = np.asarray(complete_information(data), float)
    return inverse_blocks(information, np.asarray(data.constraints.free), tied)

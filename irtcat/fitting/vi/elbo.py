"""The evidence lower bound: expected log-likelihood of a batch, prior terms and entropy.

Nothing is sampled: expectations over an item's parameters are cubatures of degree 5. There are two
methods for the expected log-likelihood:

* rows: the expected curves of all items on a grid of abilities, one matrix product with the
  responses (as in the E-step of EM), and Gauss-Hermite on nodes of each subject, interpolated;
* cells: single (subject, item, response) triples, so that missing responses cost nothing, with
ability as a further dimension of the cubature.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irtcat.fitting.vi.guide import (
    Chart,
    Guide,
    NormalPrior,
    cubature,
    guide_entropy,
    item_factors,
    item_points,
    learned_log_prior,
    normal_log_prior,
    param_columns,
)
from irtcat.latent.likelihood import Curves, grid_nodes, item_curves, log_likelihood
from irtcat.latent.line import LIMIT, N_NODES, SPACING, STENCIL
from irtcat.models import Asymptotes, ItemModel, unpack

ROW_NODES = 9
"""Gauss-Hermite nodes over each subject's guide."""


class Cells(NamedTuple):
    """Observed responses one by one.

    Attributes:
        subject: row number.
        item: column number.
        value: the response, 0 to 1.
        weight: 1, or 0 for a filler.
    """

    subject: Int[Array, "*cells"]
    item: Int[Array, "*cells"]
    value: Float[Array, "*cells"]
    weight: Float[Array, "*cells"]


def _hermite(n: int, dtype: np.dtype) -> tuple[Array, Array]:
    """Gauss-Hermite nodes and weights of a standard Normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return jnp.asarray(nodes, dtype), jnp.asarray(weights / weights.sum(), dtype)


def _expected_curves(template: ItemModel, guide: Guide, chart: Chart, nodes: Array) -> Curves:
    """`natural` of all items at the nodes, expected over the items' guides."""
    points, weights = cubature(guide.mean.shape[1])
    dtype = guide.mean.dtype
    params = item_points(guide, chart, jnp.asarray(points, dtype))

    def add(total: Curves, point: tuple[Array, Array]) -> tuple[Curves, None]:
        curves = item_curves(unpack(template, point[0]), nodes)
        return jax.tree.map(lambda t, c: t + point[1] * c, total, curves), None

    shape = jax.eval_shape(lambda p: item_curves(unpack(template, p), nodes), params[0])
    empty = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shape)
    step = jax.checkpoint(add)  # keeps memory at one point's curves
    return jax.lax.scan(step, empty, (params, jnp.asarray(weights, dtype)))[0]


def expected_rows(
    template: ItemModel,
    guide: Guide,
    chart: Chart,
    x: Array,
    rows: Int[Array, " rows"],
    weight: Float[Array, " rows"],
    has_missing: bool,
) -> Float[Array, ""]:
    """Expected log-likelihood of the responses of some subjects."""
    dtype = guide.mean.dtype
    centre, scale = _population(guide)
    curves = _expected_curves(template, guide, chart, centre + scale * grid_nodes(dtype))
    statistics, mask = template.sufficient_statistics(
        x[rows], curves.contrast.shape[0], has_missing, dtype
    )
    table = log_likelihood(statistics, mask, curves)
    z, w = _hermite(ROW_NODES, dtype)
    theta = guide.theta[rows][:, None] + jnp.exp(guide.log_sd[rows])[:, None] * z
    u = ((theta - centre) / scale + LIMIT) / SPACING
    u = jnp.clip(u, 0, N_NODES - 1)
    first = jnp.clip(jnp.floor(u).astype(jnp.int32) - 3, 0, N_NODES - STENCIL)
    stencil = _stencil(u - first)
    index = first[..., None] + jnp.arange(STENCIL, dtype=jnp.int32)
    at = jnp.take_along_axis(table, index.reshape(len(rows), -1), axis=1).reshape(index.shape)
    return weight @ ((at * stencil).sum(-1) @ w)


def _stencil(v: Float[Array, "*points"]) -> Float[Array, "*points stencil"]:
    """Lagrange weights of the nodes 0..7 that interpolate at ``v``, as polynomials in v - 3.5.

    Written as one product, so that its derivative compiles quickly.
    """
    middle = (STENCIL - 1) / 2
    nodes = np.arange(STENCIL) - middle
    coefficients = np.linalg.inv(np.vander(nodes, increasing=True))
    power, powers = jnp.ones_like(v), []
    for _ in range(STENCIL):
        powers.append(power)
        power = power * (v - middle)
    return jnp.stack(powers, -1) @ jnp.asarray(coefficients, v.dtype)


def _population(guide: Guide) -> tuple[Array, Array]:
    """Mean and SD of ability over the subjects, posterior variance included; no gradient."""
    theta, log_sd = jax.lax.stop_gradient((guide.theta, guide.log_sd))
    centre = theta.mean()
    return centre, jnp.sqrt(((theta - centre) ** 2 + jnp.exp(2 * log_sd)).mean())


def expected_cells(
    template: ItemModel, guide: Guide, chart: Chart, cells: Cells
) -> Float[Array, ""]:
    """Expected log-likelihood of some responses, ability and item integrated together."""
    dtype = guide.mean.dtype
    n = guide.mean.shape[1]
    mean, factor = item_factors(guide, chart)
    # Parameters first: arrays with the few parameters on the last axis are slow.
    at, below = mean.T[:, cells.item], jnp.moveaxis(factor, 0, -1)[..., cells.item]
    theta, sd = guide.theta[cells.subject], jnp.exp(guide.log_sd[cells.subject])

    def add(total: Array, point: tuple[Array, Array]) -> tuple[Array, None]:
        z, weight = point
        u = [at[p] + sum(below[p, r] * z[r + 1] for r in range(p + 1)) for p in range(n)]
        columns = param_columns(chart, u)
        value = _cell_values(template, chart, columns, theta + sd * z[0], cells)
        return total + weight * (value @ cells.weight), None

    points = tuple(jnp.asarray(array, dtype) for array in cubature(n + 1))
    # One point at a time, with the gradient's intermediates recomputed, so that all stays in cache.
    return jax.lax.scan(jax.checkpoint(add), jnp.zeros((), dtype), points)[0]


def _cell_values(
    template: ItemModel, chart: Chart, columns: list[Array], theta: Array, cells: Cells
) -> Float[Array, " cells"]:
    """Log-probability of every response."""
    if template.closed_form == "logistic":  # several times faster than the general case
        eta = columns[chart.slope] * theta + columns[chart.intercept]
        return cells.value * eta - jnp.maximum(eta, 0) - jnp.log1p(jnp.exp(-jnp.abs(eta)))
    if template.has_logistic_link:  # likewise
        eta = columns[chart.slope] * theta + columns[chart.intercept]
        logits = [z for p, z in enumerate(columns) if p not in (chart.slope, chart.intercept)]
        link = template.link  # type: ignore[attr-defined]
        return _asymptote_values(link, eta, logits, cells.value)

    def one(item: ItemModel, phi: Array, theta: Array, value: Array) -> Array:
        natural = unpack(item, phi).natural(theta[None])
        return natural[0] + value * natural[1]

    items = jax.tree.map(lambda leaf: leaf[cells.item], template)
    return jax.vmap(one)(items, jnp.stack(columns, -1), theta, cells.value)


def _asymptote_values(
    link: Asymptotes, eta: Array, logits: list[Array], value: Array
) -> Float[Array, "*cells"]:
    """`_cell_values` of curves between asymptotes; their logits come in the order lower, upper."""
    up = jax.nn.log_sigmoid(eta)
    down = up - eta
    # P(right) = c s(-eta) + d s(eta), P(wrong) = (1 - c) s(-eta) + (1 - d) s(eta): sums of
    # logarithms where the asymptote is 0 or 1, of positive terms where it is not.
    right, wrong = up, down
    if link.lower:
        wrong = down + jax.nn.log_sigmoid(-logits[0])
    if link.upper:
        right = up + jax.nn.log_sigmoid(logits[-1])
        wrong = jnp.logaddexp(wrong, up + jax.nn.log_sigmoid(-logits[-1]))
    if link.lower:
        right = jnp.logaddexp(right, down + jax.nn.log_sigmoid(logits[0]))
    return wrong + value * (right - wrong)


def log_prior_terms(
    guide: Guide, chart: Chart, prior: NormalPrior, learned: tuple[int, ...], theta_learned: bool
) -> Array:
    """Expected log-density of the priors of subjects and items."""
    mean, factor = item_factors(guide, chart)
    variance = (factor**2).sum(-1)
    theta_variance = jnp.exp(2 * guide.log_sd)
    if theta_learned:
        total = learned_log_prior(guide.theta, theta_variance)[0]
    else:
        zero, one = jnp.zeros((), mean.dtype), jnp.ones((), mean.dtype)
        total = normal_log_prior(guide.theta, theta_variance, zero, one)
    for column in range(mean.shape[1]):
        rows = slice(1) if column in chart.tied else slice(None)
        moments = mean[rows, column], variance[rows, column]
        if column in learned:
            total += learned_log_prior(*moments)[0]
        else:
            total += normal_log_prior(*moments, prior.mean[column], prior.sd[column])
    return total


def prior_and_entropy(
    guide: Guide, chart: Chart, prior: NormalPrior, learned: tuple[int, ...], theta_learned: bool
) -> Float[Array, ""]:
    """Minus the Kullback-Leibler terms of the bound."""
    stated = log_prior_terms(guide, chart, prior, learned, theta_learned)
    return stated + guide_entropy(guide, chart)

"""Items calibrated at a fixed theta: one regression per item.

A fixed theta needs no integration: the log-likelihood is a sum over items, ``sum_i log P(x_ij |
theta_i)``. It is collected once, as sums of the statistics at nodes: the distinct abilities where
they are few, otherwise a grid fine enough for exact interpolation of the curves (Lagrange, degree
7). The transpose of the interpolation spreads the responses over the nodes, and the M-step of EM
estimates the items.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from irtcat._common.checks import InputError, argument_error
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.fitting.assembly import Estimates, Latent, fit_of
from irtcat.fitting.em.covariance import Covariance, complete_information, inverse_blocks
from irtcat.fitting.em.identification import with_ties
from irtcat.fitting.em.m_step import Constraints, at_bounds, log_prior, m_step, penalised_terms
from irtcat.fitting.em.rows import Rows
from irtcat.fitting.em.setup import FitData, FitSetup, read_data, set_up
from irtcat.fitting.em.start import Start, further_start
from irtcat.fitting.outcome import Ending, until_small
from irtcat.fitting.result import Fit
from irtcat.fitting.solvers import EM
from irtcat.fitting.specification import Specification
from irtcat.latent import item_curves
from irtcat.latent.line import STENCIL
from irtcat.models import STANDARD_FORM, ItemModel, field_columns, pack, unpack
from irtcat.responses import Responses
from irtcat.scoring import Ability

N_NODES = 257
"""Smallest number of grid nodes; up to this many distinct abilities are the nodes themselves."""
WIDEST_SPACING = 0.125
"""Spacing of the grid, in SDs of the abilities."""
BLOCK_CELLS = 2**22
"""Cells of the statistics that are computed at a time."""
STEPS = 8
"""Newton steps of each M-step."""
TOLERANCE = 1e-4


class _Regression(NamedTuple):
    """Inputs of every step: the items, the sums of their responses, the constraints."""

    template: ItemModel
    nodes: Array
    counts: Array
    totals: Array
    constraints: Constraints
    tied: tuple[int, ...]


class _Climbed(NamedTuple):
    """Result of the Newton steps."""

    params: Array
    log_likelihood: float
    ending: Ending


def fixed_theta(responses: Responses, theta: Any) -> FloatArray:
    """The fixed ability of every subject, in the order of the responses.

    Raises:
        InputError: for a subject without one, or one that is not a finite number.
    """
    ids = pd.Index(responses.subject_ids)
    if isinstance(theta, Ability):
        if theta.theta.ndim > 1:
            raise argument_error("theta", "one number a subject", f"{theta.theta.shape[1]}")
        theta = pd.Series(theta.theta, index=pd.Index(theta.subject_ids, dtype=object))
    if isinstance(theta, pd.Series) and not isinstance(theta.index, pd.RangeIndex):
        index = pd.Index(theta.index.map(str), dtype=object)
        if index.has_duplicates:
            twice = index[index.duplicated()][0]
            raise argument_error("theta", "one number a subject", f"several for {twice!r}")
        at = index.get_indexer(ids.map(str))
        if (at < 0).any():
            missing_id = str(ids[int((at < 0).argmax())])
            raise argument_error("theta", "of every subject", f"none for {missing_id!r}")
        theta = theta.iloc[at]
    try:
        values = np.asarray(theta, float)
    except (TypeError, ValueError):
        raise argument_error("theta", "numbers", theta) from None
    if values.shape != (len(ids),):
        raise argument_error("theta", f"{len(ids)} numbers, one a subject", values.shape)
    if not np.isfinite(values).all():
        at = int(np.isfinite(values).argmin())
        raise argument_error(
            "theta",
            "finite",
            f"{values[at]} for {str(ids[at])!r}",
            "Leave such subjects out with responses.subset.",
        )
    return values


def spread(theta: FloatArray) -> tuple[FloatArray, Callable[[np.ndarray], FloatArray]]:
    """Nodes for the abilities, and a function for the interpolation weights.

    Args:
        theta: the abilities.

    Returns:
        The nodes, and a function from row numbers to weights (rows x nodes) whose rows sum to 1:
        ``weights @ f(nodes)`` is ``f(theta)`` for every smooth curve ``f``.
    """
    distinct, which = np.unique(theta, return_inverse=True)
    if len(distinct) <= N_NODES:
        return distinct, lambda rows: np.eye(len(distinct))[which[rows]]
    reach = float(np.ptp(theta))
    n_nodes = max(N_NODES, int(np.ceil(reach / (WIDEST_SPACING * theta.std()))) + 1)
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


def _collect(
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
def _values(regression: _Regression, params: Array) -> tuple[Array, Array]:
    """Log-likelihood and log-posterior, summed over the items."""
    template, nodes, counts, totals, constraints, _ = regression
    value, _, _ = penalised_terms(template, params, counts, totals, constraints, nodes)
    return (value - log_prior(params, constraints)).sum(), value.sum()


_m_step = jit(m_step, static_argnames=("tied",))


def _climb(regression: _Regression, params: Array, specification: Specification[EM]) -> _Climbed:
    """Repeat M-steps until the first Newton step is within the tolerance."""
    solver = specification.solver
    tolerance = TOLERANCE if solver.tolerance is None else solver.tolerance
    template, nodes, counts, totals, constraints, tied = regression
    everyone = jnp.ones(params.shape[0], params.dtype)
    regression = regression._replace(tied=())
    likelihood = np.nan

    def take() -> tuple[float, float]:
        nonlocal params, likelihood
        moved = _m_step(
            template,
            params,
            counts,
            totals,
            constraints,
            everyone,
            tied=tied,
            n_steps=jnp.int32(STEPS),
            nodes=nodes,
        )
        params = moved.params
        likelihood, posterior = map(float, _values(regression, params))
        return posterior, float(moved.step)

    ending = until_small(take, tolerance, solver.max_iterations, specification.progress)
    return _Climbed(params, likelihood, ending)


def _first_guess(
    data: FitData, setup: FitSetup, start: Start, theta: FloatArray, population: Latent
) -> FloatArray:
    """The guess on standardised scores, converted to the scale of theta."""
    template, prior, weights = setup.template, setup.prior, data.rows.weights
    centre, unit = population
    scores = start.mean - np.average(start.mean, weights=weights)
    if not setup.tied and weights @ (scores * (theta - centre)) < 0:
        unit = -unit  # lower is better on the scale of theta
    model = unpack(template, jnp.asarray(start.params))
    moved = np.array(pack(model.rescale(jnp.asarray(-centre / unit), jnp.asarray(1 / unit))), float)
    limits = (
        np.asarray(bound, float) for bound in (prior.constraints.lower, prior.constraints.upper)
    )
    moved = prior.with_held(template, np.clip(moved, *limits))
    moved = with_ties(moved, setup.tied, prior.constraints)
    return np.where(np.isnan(setup.fixed), moved, setup.fixed)


def _check(responses: Any, cls: type[ItemModel], specification: Specification[EM]) -> None:
    """Reject arguments that do not apply to a fixed theta."""
    if not isinstance(responses, Responses):
        raise argument_error("theta", "None for responses that are read in passes", "some")
    solver = specification.solver
    others = {
        "anchors": specification.anchors,
        "groups": specification.grouping,
        "checkpoint": solver.checkpoint,
        "devices": solver.devices,
    }
    for name, value in others.items():
        if value is not None:
            raise InputError(
                f"The `{name}` argument is not for a fixed theta. Got both. Leave out either "
                f"`{name}` or `theta`."
            )
    errors = specification.standard_errors
    if errors.endswith("sandwich"):
        raise argument_error("standard_errors", "auto, full, block or none with `theta`", errors)


def _with_unit_slopes(setup: FitSetup, cls: type[ItemModel]) -> FitSetup:
    """The set-up with slopes of 1 in the standard form: theta already has a unit."""
    fixed = setup.fixed.copy()
    if cls in STANDARD_FORM:
        fixed[:, list(field_columns(setup.template, ["slope"]))] = 1.0
    prior = setup.prior.without(~np.isnan(fixed))
    free = np.asarray(prior.constraints.free)
    tied = tuple(p for p in setup.tied if free[:, p].any())
    return replace(setup, fixed=fixed, prior=prior, tied=tied)


def fit_fixed_theta(responses: Any, cls: type[ItemModel], specification: Specification[EM]) -> Fit:
    """Calibrate items at a fixed theta (see `irtcat.fit`)."""
    _check(responses, cls, specification)
    values = fixed_theta(responses, specification.theta)
    used = values[responses.observed.any(axis=1)]
    population = Latent(float(used.mean()), float(used.std()))
    if not population.sd > 0:
        raise argument_error("theta", "different from one another", used[0])
    data = read_data(responses, cls, replace(specification, theta=values))
    # The sums are cheap, and float64 lets the steps converge exactly.
    data = replace(data, precision="float64")
    theta = np.unique(values)[data.rows.group]
    with precision(data.precision) as dtype:
        setup = set_up(data, 1, dtype, positive=specification.positive)
        setup = _with_unit_slopes(setup, cls)
        start = further_start(setup.start, setup.template, specification)
        params = _first_guess(data, setup, start, theta, population)
        nodes, counts, totals = _collect(setup.template, data.rows, theta, dtype)
        regression = _Regression(
            template=setup.template,
            nodes=nodes,
            counts=counts,
            totals=totals,
            constraints=setup.prior.constraints,
            tied=setup.tied,
        )
        ended = _climb(regression, jnp.asarray(params, dtype), specification)
        covariance = _covariance(regression, ended.params, specification.standard_errors)
    estimates = Estimates(
        blank=setup.blank,
        categories=data.categories,
        params=np.asarray(ended.params, float),
        covariance=Covariance(
            blocks=covariance, how="none" if covariance is None else "given abilities"
        ),
        start=start,
        prior=setup.prior,
        tied=setup.tied,
        at_bound=at_bounds(ended.params, setup.prior.constraints),
        ending=ended.ending,
        log_likelihood=ended.log_likelihood,
        log_posterior=float(ended.ending.trace[-1]),
        n_subjects=data.rows.n_subjects,
        method="fixed theta",
    )
    return fit_of(responses, cls, estimates, precision=data.precision, latent=population)


def _covariance(regression: _Regression, params: Array, which: str) -> FloatArray | None:
    """Inverse of the observed information of each item at the fixed theta."""
    if which == "none":
        return None
    template, nodes, counts, totals, constraints, tied = regression
    information = complete_information(template, params, counts, totals, constraints, nodes)
    return inverse_blocks(np.asarray(information, float), np.asarray(constraints.free), tied)

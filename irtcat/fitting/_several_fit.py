"""Marginal maximum likelihood in several dimensions, from responses to a `Fit`."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array

from irtcat._checks import argument_error, check_count
from irtcat._compile import jit
from irtcat._precision import choose_precision, precision
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting._loop import Ended
from irtcat.fitting._options import Options
from irtcat.fitting._pattern import LatentDesign, latent_design
from irtcat.fitting._priors import PriorTable, prior_table
from irtcat.fitting._record import item_flags, item_statistics
from irtcat.fitting._result import Fit
from irtcat.fitting._rows import Rows, categories_of, distinct_rows
from irtcat.fitting._several import MultiProblem, run_multi_e_step
from irtcat.fitting._several_errors import multi_covariance
from irtcat.fitting._several_population import correlation_root, free_correlations
from irtcat.fitting._several_work import Workspace, iterate, state_of
from irtcat.fitting._start import Start, jittered, start_params, starting_point
from irtcat.fitting.em import EMPoint, EMState
from irtcat.models import (
    Design,
    ItemModel,
    column_names,
    field_columns,
    in_precision,
    unpack,
)
from irtcat.responses import Responses
from irtcat.scoring import (
    AdaptiveQuadrature,
    BifactorQuadrature,
    GridQuadrature,
    adaptive_posterior,
    adaptive_quadrature,
    grid_step,
    n_nodes,
    posterior_modes,
    row_blocks,
    row_chunks,
)

__all__ = ["fit_multidimensional"]

CHECK_WORK = 4e9
"""Maximum of nodes x responses for the finer quadrature that estimates the integration error."""


def _factor_start(x: np.ndarray, weights: FloatArray, dims: int) -> FloatArray:
    """Slopes from principal factors of the items' (pairwise) correlations."""
    values = np.asarray(x, float)
    answered = np.isfinite(values) & (values >= 0)
    values = np.where(answered, values, 0.0)
    w = weights[:, None]
    n = np.maximum((w * answered).T @ answered, 1.0)
    both = (w * values).T @ values / n
    first = (w * values).T @ answered / n
    spread = np.sqrt(np.maximum(first - first**2, 1e-4))
    phi = np.clip((both - first * first.T) / (spread * spread.T), -0.95, 0.95)
    # Dichotomising attenuates a correlation: about by this factor at the middle, more towards the
    # ends.
    rough = np.clip(np.sin(np.pi / 2 * phi), -0.95, 0.95)
    h2 = np.clip(np.abs(rough - np.diag(np.diagonal(rough))).max(axis=1), 0.05, 0.9)
    for _ in range(20):
        matrix = rough.copy()
        np.fill_diagonal(matrix, h2)
        values_, vectors = np.linalg.eigh(matrix)
        loadings = vectors[:, -dims:] * np.sqrt(np.maximum(values_[-dims:], 1e-3))
        h2 = np.clip((loadings**2).sum(axis=1), 0.01, 0.85)
    shrink = np.sqrt(np.minimum(1.0, 0.85 / np.maximum((loadings**2).sum(axis=1), 1e-9)))
    loadings = loadings * shrink[:, None]
    return 1.702 * loadings / np.sqrt(1 - (loadings**2).sum(axis=1, keepdims=True))


def _start_params(
    template: ItemModel, rows: Rows, start: Start, design: LatentDesign, dtype: np.dtype
) -> FloatArray:
    """Starting values of the items; without a pattern the slopes must differ by dimension."""
    if not design.exploratory:
        return start.params
    slopes = _factor_start(rows.x, rows.weights, design.dims)
    shares = ((start.counts + 0.5) / (start.item_n + 1)).T
    params = start_params(template, np.asarray(shares, dtype), np.asarray(slopes, dtype))
    return np.asarray(params, float)


def _constraints(prior: PriorTable, design: LatentDesign, template: ItemModel) -> PriorTable:
    """Hold the slopes outside the pattern; centre the priors if the axes may be rotated."""
    slopes = list(field_columns(template, ["slope"]))
    c = prior.constraints
    free = np.array(c.free)
    free[:, slopes] = design.pattern != 0
    mean = np.array(c.prior_mean)
    if design.exploratory:
        if "slope" in prior.description and (mean[:, slopes][free[:, slopes]] != 0).any():
            stated = prior.description["slope"]
            raise argument_error(
                "priors['slope']", "of mean 0 where the axes may be rotated", stated
            )
        mean[:, slopes] = 0.0
    weights = np.where(free, np.asarray(c.prior_precision), 0.0)
    held = c._replace(
        prior_mean=jnp.asarray(mean, c.prior_mean.dtype),
        prior_precision=jnp.asarray(weights, c.prior_precision.dtype),
        free=jnp.asarray(free),
    )
    return prior._replace(constraints=held)


def _identified(
    work: Workspace, template: ItemModel, params: FloatArray, correlations: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Identified axes: echelon form without a pattern, directed towards more right answers.

    Without a pattern the axes are rotated so that one item has slope 0 on all but the first, a
    second one on all but the first two, and so on; the items are the most informative ones (pivoted
    QR), so that the constraint costs no precision.

    Returns:
        Parameters, correlations, and the pattern.
    """
    columns = list(field_columns(template, ["slope"]))
    params, pattern = params.copy(), work.design.pattern.copy()
    slopes = params[:, columns]
    if work.design.exploratory:
        rotation, _, pivots = scipy.linalg.qr(slopes.T, pivoting=True, mode="economic")
        slopes = slopes @ rotation
        for k in range(slopes.shape[1]):
            pattern[pivots[k], k + 1 :] = 0.0
        slopes = np.where(pattern != 0, slopes, 0.0)
    sign = np.where(slopes.sum(axis=0) < 0, -1.0, 1.0)
    params[:, columns] = slopes * sign
    return params, correlations * np.outer(sign, sign), pattern


def _evaluate(
    problem: MultiProblem, params: FloatArray, correlations: FloatArray, ended: Ended
) -> Ended:
    """The E-step at the identified parameters with all items, including those set aside."""
    dtype = problem.weights.dtype
    free = ended.point.population
    if problem.correlated:
        free = free_correlations(jnp.asarray(correlations, dtype))
    everyone = problem._replace(item_weights=jnp.ones_like(problem.item_weights))
    state = state_of(EMPoint(jnp.asarray(params, dtype), free), ended.belief)
    if isinstance(problem.rule, AdaptiveQuadrature):
        # The axes may have been rotated: place the nodes again.
        root = correlation_root(free, problem.template.dims)
        zero = jnp.zeros(problem.template.dims, dtype)
        model = unpack(problem.template, state.point.params).rescale(zero, root)
        modes = posterior_modes(
            model, problem.x, problem.chunks, jnp.zeros((), dtype), has_missing=problem.has_missing
        )
        state = EMState(state.point, np.asarray(modes.mode), np.asarray(modes.covariance))
        state = state_of(state.point, run_multi_e_step(everyone, state, 0.0, 0, False)[1])
    update, belief = run_multi_e_step(everyone, state, 0.0, 0, False)
    return ended._replace(point=state.point, update=update, belief=belief)


@functools.partial(jit, static_argnames=("has_missing",))
def _grid_log_z(*args: Any, has_missing: bool) -> Array:
    """The subjects' log-likelihoods only, which compiles fast."""
    return grid_step(*args, has_missing=has_missing).log_z


def _finer_log_likelihood(
    work: Workspace, problem: MultiProblem, ended: Ended, nodes: int | None
) -> float:
    """The log-likelihood by a quadrature twice as fine (NaN where that would be slow)."""
    rule, dims = problem.rule, work.design.dims
    if isinstance(rule, AdaptiveQuadrature):
        finer: Any = adaptive_quadrature(dims, nodes, finer=True)
    else:
        line = rule.general.nodes if isinstance(rule, BifactorQuadrature) else rule.nodes
        inner = np.unique(np.asarray(line, float)[:, 0].round(6))
        spacing = float(inner[1] - inner[0]) / 2
        finer = spacing
    fine = work.rule(finer)
    if float(n_nodes(fine)) * work.rows.x.size > CHECK_WORK:
        return np.nan
    n_points = n_nodes(fine) * (
        work.rows.x.shape[1] * 4 if isinstance(fine, AdaptiveQuadrature) else 1
    )
    other = problem._replace(
        rule=fine,
        chunks=jnp.asarray(row_chunks(len(work.rows.x), n_points)),
        item_weights=jnp.ones_like(problem.item_weights),
    )
    state = state_of(ended.point, ended.belief)
    root = correlation_root(state.point.population, dims)
    if isinstance(fine, GridQuadrature):
        zero = jnp.zeros(dims, root.dtype)
        model = unpack(problem.template, state.point.params).rescale(zero, root)
        args = model, other.x, other.weights, other.item_weights, fine, other.chunks
        log_z = _grid_log_z(*args, has_missing=problem.has_missing)
    elif isinstance(fine, AdaptiveQuadrature):
        model = unpack(problem.template, state.point.params).rescale(jnp.zeros(dims), root)
        on_grid_scale = ended.belief.mean, ended.belief.covariance
        log_z = adaptive_posterior(
            model, work.x, *on_grid_scale, fine, other.chunks, has_missing=problem.has_missing
        )[2]
    else:
        log_z = run_multi_e_step(other, state, 0.0, 0, False)[1].log_z
    return float(work.rows.weights @ np.asarray(log_z, float))


def _check(responses: Any, cls: type[ItemModel], options: Options) -> None:
    must = "left out for a multidimensional model"
    if not isinstance(responses, Responses):
        raise argument_error("responses", "Responses for a multidimensional model", "a source")
    for name in ("positive", "devices", "groups", "anchors", "fixed", "equal"):
        if getattr(options, name) not in (None, False, ()):
            raise argument_error(name, must, type(getattr(options, name)).__name__)
    if options.standard_errors == "sandwich" and cls.key == "bifactor":
        must = "auto, full, block or none for the bifactor model"
        raise argument_error("standard_errors", must, "sandwich")
    if options.nodes is not None:
        check_count("nodes", options.nodes, least=3)


def fit_multidimensional(responses: Responses, cls: type[ItemModel], options: Options) -> Fit:
    """Marginal maximum likelihood of a multidimensional model (see `irtcat.fit`)."""
    _check(responses, cls, options)
    design = latent_design(responses, cls, options.dims, options.pattern, options.correlated)
    rows = distinct_rows(responses, cls, None)
    name = choose_precision(options.precision, rows.x.size)
    categories = categories_of(responses, cls)
    with precision(name) as dtype:
        settings = {"pattern": design.pattern}
        blank = cls.blank(Design(categories, design.dims, settings))
        template = in_precision(blank, dtype)
        x = jax.device_put(rows.x, may_alias=True)
        blocks = jnp.asarray(row_blocks(len(rows.x), rows.x.shape[1], dtype.itemsize))
        start = starting_point(
            template, x, rows.weights, blocks, rows.has_missing, dtype, False, categories
        )
        table = prior_table(
            template, start.counts, start.item_n, options.priors, options.weak_priors, False, dtype,
            responses.item_ids,
        )  # fmt: skip
        prior = _constraints(table, design, template)
        work = Workspace(rows, design, template, dtype)
        params = _start_params(template, rows, start, design, dtype)
        params = jittered(params, template, options)
        problem, ended = iterate(work, template, params, prior, options)
        params = work.widen(np.asarray(ended.point.params, float))
        root = np.asarray(correlation_root(ended.point.population, design.dims), float)
        params, correlations, pattern = _identified(work, template, params, root @ root.T)
        ended = _evaluate(problem, work.shrink(params), correlations, ended)
        finer = _finer_log_likelihood(work, problem, ended, options.nodes)
        free = np.array(prior.constraints.free)
        free[:, list(field_columns(template, ["slope"]))] = pattern != 0
        inner = np.take_along_axis(free, work.columns, axis=1) if work.bifactor else free
        covariance, errors, how = multi_covariance(
            problem, ended.point, ended.belief, inner, options.standard_errors
        )
    if covariance is not None:
        covariance = work.widen_covariance(covariance)
    n_pairs = design.dims * (design.dims - 1) // 2 if design.correlated else 0
    log_likelihood = float(rows.weights @ np.asarray(ended.belief.log_z, float))
    assert ended.at_bound is not None
    at_bound = work.widen(ended.at_bound.astype(float)) > 0
    if design.exploratory:  # the axes have been rotated since
        slopes = list(field_columns(template, ["slope"]))
        at_bound[:, slopes] = at_bound[:, slopes].any(axis=1, keepdims=True)
    flags = _multi_flags(prior, start, params, covariance, free, template, at_bound)
    statistics = item_statistics(responses, categories, start, flags)
    bank = ItemBank(
        model=replace(unpack(blank, params), pattern=pattern),  # type: ignore[call-arg]
        item_ids=np.asarray(responses.item_ids, dtype=str),
        covariance=covariance,
        items=responses.items,
        statistics=statistics,
        correlations=correlations if design.correlated else None,
        provenance={
            "model": cls.key,
            "method": "em",
            "n_subjects": int(rows.weights.sum()),
            "log_likelihood": log_likelihood,
            "integration_error": finer - log_likelihood,
            "nodes": n_nodes(problem.rule),
            "nodes_are": _NODE_KINDS[type(problem.rule)],
            "factors": design.factors,
            "converged": ended.converged,
            "n_iterations": ended.n_iterations,
            "priors": {
                k: v if isinstance(v, str) else list(v) for k, v in prior.description.items()
            },
            "n_sparse": int(prior.sparse.sum()),
            "standard_errors": how,
            "se_correlations": None if errors is None else errors.tolist(),
            "precision": name,
        },
    )
    return Fit(
        bank=bank,
        responses=responses,
        log_likelihood=log_likelihood,
        log_posterior=log_likelihood + float(ended.update.log_prior),
        converged=ended.converged,
        n_iterations=ended.n_iterations,
        n_parameters=int((free & prior.informed).sum()) + n_pairs,
        message=ended.message,
        latent_mean=np.nan,
        latent_sd=np.nan,
        priors=prior.description,
        n_sparse=int(prior.sparse.sum()),
        precision=name,
        trace=ended.trace,
    )


_NODE_KINDS = {
    GridQuadrature: "one grid",
    BifactorQuadrature: "pairs of general and specific",
    AdaptiveQuadrature: "each subject's own",
}


def _multi_flags(
    prior: PriorTable,
    start: Start,
    params: FloatArray,
    covariance: FloatArray | None,
    free: np.ndarray,
    template: ItemModel,
    at_bound: np.ndarray,
) -> list[str]:
    """The flags of each item; held parameters are not flagged for missing standard errors."""
    if covariance is not None:
        covariance = covariance.copy()
        held = ~free
        diagonal = np.einsum("jpp->jp", covariance)
        diagonal[held] = 1.0
    return item_flags(
        prior, start, params, covariance, column_names(template),
        field_columns(template, ["slope"]), at_bound,
    )  # fmt: skip

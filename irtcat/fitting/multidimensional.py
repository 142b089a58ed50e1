"""EM of several abilities: design, starts, iterations, identified axes, and populations."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy

from irtcat._common.checks import argument_error, check_count
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank, Population
from irtcat.fitting.assembly import Estimates, estimates_of_em
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.density import density_table
from irtcat.fitting.em.driver import Ended
from irtcat.fitting.em.iteration import EMPoint, EMState, Problem, em_step, sums_at
from irtcat.fitting.em.m_step import averaged
from irtcat.fitting.em.multidimensional_curvature import Multidimensional
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.setup import FitData, FitSetup, set_up
from irtcat.fitting.em.start import Start, jittered, points_of
from irtcat.fitting.multidimensional_data import Workspace, iterate, iterate_density, slopes_by_item
from irtcat.fitting.problem.loading_pattern import LatentDesign, latent_design
from irtcat.fitting.solvers import EM
from irtcat.fitting.specification import Specification
from irtcat.latent import (
    Density,
    GridQuadrature,
    PopulationDesign,
    Populations,
    adaptive_quadrature,
    correlation_root,
    density_of,
    n_nodes,
    population_numbers,
    populations_of,
    posterior_modes,
    root_slopes,
    row_chunks,
)
from irtcat.models import (
    ItemModel,
    field_columns,
    fitted_form,
    pack,
    parameter_matrix,
    parameter_names,
    unpack,
)
from irtcat.responses import Responses

CHECK_WORK = 4e9
"""Maximum of adaptive nodes x responses for the finer ones that estimate the integration error."""

START_CELLS = 4_000_000
"""Maximum number of responses behind the factors of a start; beyond it, every k-th row is used."""


def _factor_start(x: np.ndarray, weights: FloatArray, categories: Any, dims: int) -> FloatArray:
    """Slopes from principal factors of the items' (pairwise) correlations."""
    points, answered = points_of(x, categories)
    w = weights[:, None]
    n = np.maximum((w * answered).T @ answered, 1.0)
    both = (w * points).T @ points / n
    first = (w * points).T @ answered / n
    square = (w * points**2).T @ answered / n
    spread = np.sqrt(np.maximum(square - first**2, 1e-4))
    phi = np.clip((both - first * first.T) / (spread * spread.T), -0.95, 0.95)
    # Dichotomising attenuates a correlation: about by this factor at the middle, more towards the
    # ends; with more categories less.
    rough = np.where(categories > 2, phi, np.sin(np.pi / 2 * phi))
    rough = np.clip((rough + rough.T) / 2, -0.95, 0.95)
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


def _sample(work: Workspace) -> tuple[np.ndarray, FloatArray]:
    """Rows that determine the factors of a start."""
    block = next(iter(work.blocks()))
    n = block.rows.stop - block.rows.start
    every = max(1, int(n * block.x.shape[1] // START_CELLS))
    return np.asarray(block.x)[:n:every], np.asarray(block.weights, float)[:n:every]


def _start_params(work: Workspace, start: Start, categories: Any) -> FloatArray:
    """Starting values of the items; without a pattern the slopes must differ by dimension."""
    if not work.design.exploratory:
        return start.params
    slopes = _factor_start(*_sample(work), categories, work.design.dims)
    used = np.arange(len(start.counts))[:, None] < categories
    shares = np.where(used, start.counts + 1 / np.asarray(categories), 0) / (start.item_n + 1)
    return np.asarray(parameter_matrix(work.full_template.start(shares.T, slopes)), float)


def _constraints(prior: PriorTable, template: ItemModel, design: LatentDesign) -> PriorTable:
    """Hold the slopes outside the pattern; centre the priors if the axes may be rotated."""
    slopes = list(field_columns(template, ["slope"]))
    n_steps = len(slopes) // design.dims
    c = prior.constraints
    free = np.array(c.free)
    free[:, slopes] &= np.repeat(design.pattern != 0, n_steps, axis=1)
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
        prior_mean=jax.device_put(mean.astype(c.prior_mean.dtype)),
        prior_precision=jax.device_put(weights.astype(c.prior_precision.dtype)),
        free=jax.device_put(free),
    )
    return prior._replace(constraints=held)


def _identified(
    work: Workspace, params: FloatArray, populations: Populations
) -> tuple[FloatArray, Populations, BoolArray]:
    """Identified axes: echelon form without a pattern, directed towards more right answers.

    Without a pattern the axes are rotated so that one item has slope 0 on all but the first, a
    second one on all but the first two, and so on; the items are the most informative ones (pivoted
    QR), so that the constraint costs no precision.

    Returns:
        Parameters, populations, and the mask of the slopes that are not held at 0.
    """
    template = work.full_template
    columns = list(field_columns(template, ["slope"]))
    slopes = slopes_by_item(template, params)
    dims, n_steps = slopes.shape[1:]
    pattern = np.repeat(work.design.pattern[:, :, None] != 0, n_steps, axis=2)
    mean, covariance = (
        np.asarray(part, float) for part in (populations.mean, populations.covariance)
    )
    turn = np.eye(dims)
    if work.design.exploratory:
        by_row = np.moveaxis(slopes, 1, 2).reshape(-1, dims)
        turn, _, pivots = scipy.linalg.qr(by_row.T, pivoting=True, mode="economic")
        for k in range(dims):
            item, step = divmod(int(pivots[k]), n_steps)
            pattern[item, k + 1 :, step] = False
    slopes = np.where(pattern, np.einsum("jds,de->jes", slopes, turn), 0.0)
    sign = np.where(slopes.sum(axis=(0, 2)) < 0, -1.0, 1.0)
    sign = sign if work.setup.has_free_scale else np.ones(dims)
    turn = turn * sign
    params = params.copy()
    params[:, columns] = (slopes * sign[:, None]).reshape(len(params), -1)
    mean, covariance = mean @ turn, turn.T @ covariance @ turn
    root = np.linalg.cholesky(covariance)  # numpy: used outside of the precision too
    return (params, Populations(mean, root), pattern.reshape(len(params), -1))


def _at_identified(
    work: Workspace, problem: Problem, params: FloatArray, populations: Populations, ended: Ended
) -> Ended:
    """The E-step at the identified parameters with all items, including those set aside."""
    dtype = problem.weights.dtype
    mean, covariance = (
        np.asarray(part, dtype) for part in (populations.mean, populations.covariance)
    )
    numbers = population_numbers(mean, covariance, work.population)
    everyone = problem.of_all_items()
    state = EMState.of(EMPoint(jnp.asarray(params, dtype), numbers), ended.belief)
    if problem.rule.is_adaptive:
        # The axes may have been rotated: place the nodes again.
        state = EMState(state.point, *_modes_by_group(work, problem, state.point))
        state = EMState.of(state.point, sums_at(everyone, state).belief)
    update, belief = em_step(everyone, state, 0.0, 0, False)
    return ended._replace(point=state.point, update=update, belief=belief)


def _at_standardised(
    problem: Problem, density: Density, ended: Ended
) -> tuple[Problem, Ended, pd.DataFrame]:
    """The E-step with the items and the density on the scale where its mean is 0 and its SD 1."""
    curve, mean, sd = density_table(density, np.asarray(ended.point.population, float))
    dtype = problem.weights.dtype
    nodes = jnp.asarray(curve["theta"].to_numpy()[:, None], dtype)
    rule = GridQuadrature(nodes, problem.rule.log_prior)
    model = unpack(problem.template, ended.point.params)
    params = pack(model.rescale(jnp.asarray(mean, dtype), jnp.asarray(sd, dtype)))
    everyone = problem.of_all_items()._replace(rule=rule)
    point = EMPoint(params, jnp.zeros((1, 2), dtype))
    state = EMState.of(point, ended.belief)
    update, belief = em_step(everyone, state, 0.0, 0, False)
    return everyone, ended._replace(point=point, update=update, belief=belief), curve


def _modes_by_group(
    work: Workspace, problem: Problem, point: EMPoint
) -> tuple[FloatArray, FloatArray]:
    """Posterior modes and covariances of all rows, each on the z scale of its group."""
    # In numpy, as every operation of JAX outside of a compiled function is compiled by itself.
    numbers = populations_of(point.population, work.design.dims)
    populations = jax.tree.map(np.asarray, numbers)
    items = unpack(jax.tree.map(np.asarray, problem.template), np.asarray(point.params))
    n_cells = work.rows.shape[1] * (work.design.dims + 2) ** 2
    n_cells *= problem.template.n_categories - 1
    means, covariances = [], []
    for block in problem.blocks():
        n = block.rows.stop - block.rows.start
        mode = np.zeros((n, work.design.dims))
        covariance = np.zeros((n, work.design.dims, work.design.dims))
        chunks = row_chunks(len(block.x), n_cells)
        for group in range(work.population.n_groups):
            model = items.rescale(populations.mean[group], populations.root[group])
            unit = np.zeros((), work.dtype)
            modes = posterior_modes(model, block.x, chunks, unit, has_missing=problem.has_missing)
            here = block.group[:n] == group
            mode[here] = np.asarray(modes.mode, float)[:n][here]
            covariance[here] = np.asarray(modes.covariance, float)[:n][here]
        means.append(mode)
        covariances.append(covariance)
    return np.concatenate(means), np.concatenate(covariances)


def _finer_log_likelihood(work: Workspace, problem: Problem, ended: Ended) -> float:
    """The log-likelihood by twice as many nodes (NaN where that would be slow).

    The other half of the nodes of a grid is the same grid moved by half of its spacing along every
    axis, where the leading errors have the other sign; it takes the same program as the iterations.
    """
    rule, weights = problem.rule, work.rows.weights
    state, everyone = EMState.of(ended.point, ended.belief), problem.of_all_items()
    if not rule.is_adaptive:
        moved = sums_at(everyone._replace(rule=rule.shifted()), state).belief
        both = np.logaddexp(*(np.asarray(at.log_z, float) for at in (ended.belief, moved)))
        return float(weights @ (both - np.log(2)))
    nodes = work.specification.solver.nodes
    fine = work.rule(adaptive_quadrature(work.design.dims, nodes, finer=True))
    if float(n_nodes(fine)) * np.prod(work.rows.shape) > CHECK_WORK:
        return np.nan
    belief = sums_at(everyone._replace(rule=fine), state).belief
    return float(weights @ np.asarray(belief.log_z, float))


def check_space(cls: type[ItemModel], specification: Specification[EM]) -> None:
    """Refuse what cannot be fitted with several abilities."""
    if specification.density is not None and (specification.grouping, specification.anchors) != (
        None,
        None,
    ):
        must = "normal for several groups and with anchors"
        raise argument_error("density", must, specification.density)
    if "slope" not in parameter_names(fitted_form(cls)[0]) or not cls.has_categories:
        raise argument_error(
            "dims", f"1 for the {cls.key} model", specification.dims or "a pattern"
        )
    if jax.process_count() > 1:
        raise argument_error(
            "devices", "of one process for several abilities", f"{jax.process_count()} processes"
        )
    errors = specification.standard_errors
    if errors.endswith("sandwich") and specification.structure is not None:
        must = "auto, full, block or none for a bifactor or two-tier structure"
        raise argument_error("standard_errors", must, errors)
    if specification.positive and specification.pattern is None:
        raise argument_error("positive", "left out where the axes may be rotated", True)
    if specification.solver.nodes is not None:
        check_count("nodes", specification.solver.nodes, least=3)


def _anchored_design(
    specification: Specification[EM], responses: Responses, bank: ItemBank
) -> LatentDesign:
    """The design of new items on the abilities of anchors: their axes cannot be rotated."""
    dims = bank.model.dims
    if specification.dims not in (None, dims):
        raise argument_error(
            "dims", f"{dims}, as the anchors have, or left out", specification.dims
        )
    factors = list(bank.factors)
    if specification.pattern is not None:
        design = latent_design(responses, dims, specification.pattern, True)
        return design._replace(factors=factors or design.factors)
    if specification.structure is not None:
        raise argument_error("pattern", f"given for the {specification.structure} structure", None)
    pattern = np.ones((responses.n_items, dims))
    names = factors or [f"F{i + 1}" for i in range(dims)]
    return LatentDesign(pattern, names, False, True)


def _check_common_slopes(tied: tuple[int, ...], template: ItemModel, design: LatentDesign) -> None:
    """Common slopes need a pattern that says which items share them."""
    slopes = set(field_columns(template, ["slope"]))
    if slopes & set(tied) and design.exploratory:
        must = "given where items share a slope (rasch, 1pl, pcm, rsm, equal=)"
        raise argument_error("pattern", must, None)


def _design_of(data: FitData) -> LatentDesign:
    """Which item measures which ability."""
    specification, responses = data.specification, data.responses
    if data.anchor_bank is not None and isinstance(responses, Responses):
        return _anchored_design(specification, responses, data.anchor_bank)
    if specification.density is not None:
        return LatentDesign(np.ones((responses.n_items, 1)), ["F1"], False, False)
    return latent_design(
        responses,
        specification.dims,
        specification.pattern,
        specification.correlated,
        specification.structure,
    )


def _first_params(work: Workspace) -> FloatArray:
    """Starting values of the items, with fixed and shared parameters as they must be."""
    setup, data = work.setup, work.setup.data
    template, prior, fixed = setup.template, setup.prior, setup.fixed
    params = _start_params(work, setup.start, data.categories)
    params = jittered(params, template, data.specification)
    params = prior.with_held(template, np.where(np.isnan(fixed), params, fixed))
    free = np.asarray(prior.constraints.free)
    return averaged(params, free, setup.tied, prior.constraints.shared)


def _normal(work: Workspace, params: FloatArray) -> "SpaceSolution":
    """EM with Normal populations, on identified axes."""
    first = np.asarray(_first_population(work.population, work.specification.anchors), float)
    problem, ended = iterate(work, params, first)
    params = work.widen(np.asarray(ended.point.params, float))
    populations = jax.tree.map(np.asarray, populations_of(ended.point.population, work.design.dims))
    params, populations, slopes_free = _identified(work, params, populations)
    ended = _at_identified(work, problem, work.shrink(params), populations, ended)
    return SpaceSolution(
        work=work,
        problem=problem,
        ended=ended,
        params=params,
        slopes_free=slopes_free,
        finer=_finer_log_likelihood(work, problem, ended),
        n_latent=work.population.size,
        populations=populations,
    )


def _with_density(work: Workspace, params: FloatArray, name: str) -> "SpaceSolution":
    """EM with an estimated density of one ability, on the scale of its mean and SD."""
    density = density_of(name, work.specification.solver.nodes)
    problem, ended = iterate_density(work, density, params)
    problem, ended, curve = _at_standardised(problem, density, ended)
    return SpaceSolution(
        work=work,
        problem=problem,
        ended=ended,
        params=np.asarray(ended.point.params, float),
        slopes_free=np.array(True),
        finer=np.nan,
        n_latent=density.n_free,
        density=curve,
    )


class SpaceSolution(NamedTuple):
    """What EM reached for several abilities, or for a density, on the scale and axes of the bank.

    Attributes:
        work: what was fitted: data and design, from which problems are built.
        problem: the problem in its last form.
        ended: the end of the iterations, evaluated at these parameters.
        params: parameters of the items.
        slopes_free: the slopes that are not held at 0, items x slopes (or all).
        finer: log-likelihood by twice as many nodes; NaN where it was not computed.
        n_latent: number of free numbers of the population.
        populations: mean and root of each group's abilities; None with a density.
        density: table of the latent density; None for Normal populations.
    """

    work: Workspace
    problem: Problem
    ended: Ended
    params: FloatArray
    slopes_free: BoolArray
    finer: float
    n_latent: int
    populations: Populations | None = None
    density: pd.DataFrame | None = None

    @property
    def setup(self) -> FitSetup:
        """First guesses, priors and fixed parameters of the items."""
        return self.work.setup

    @property
    def free(self) -> BoolArray:
        """Which parameters are identified."""
        free = np.array(self.setup.prior.constraints.free)
        free[:, list(field_columns(self.setup.template, ["slope"]))] &= self.slopes_free
        return free

    @property
    def curvature(self) -> Multidimensional:
        """The log-posterior around the estimates."""
        free = self.work.shrink_mask(self.free)
        return Multidimensional(self.problem, self.ended.point, self.ended.belief, free)

    def on_bank_scale(self, covariance: Covariance) -> tuple[Estimates, Any, dict[str, Any]]:
        """The estimates; means, SDs and correlations of groups; what else a `Fit` has."""
        setup, work, ended = self.setup, self.work, self.ended
        data, prior = setup.data, setup.prior
        design, populations = work.design, self.populations
        blocks = None if covariance.blocks is None else work.widen_covariance(covariance.blocks)
        at_bound = work.widen(ended.at_bound.astype(float)) > 0
        slopes = list(field_columns(setup.template, ["slope"]))
        if design.exploratory:  # the axes have been rotated since
            at_bound[:, slopes] = at_bound[:, slopes].any(axis=1, keepdims=True)
        errors = _population_errors(work.population, ended.point, covariance)
        constraints = prior.constraints._replace(free=jax.device_put(self.free))
        estimates = estimates_of_em(
            setup,
            ended,
            covariance._replace(blocks=blocks),
            params=self.params,
            start=setup.start,
            prior=prior._replace(constraints=constraints),
            at_bound=at_bound,
            ending=ended.ending,
            n_further=self.n_latent,
        )
        density = data.specification.density
        details = {
            "integration_error": self.finer - estimates.log_likelihood,
            "nodes": n_nodes(self.problem.rule),
            "nodes_are": self.problem.rule.kind,
            **({"density": density} if density is not None else {}),
            "se_correlations": None if errors is None else errors["correlation"][0].tolist(),
        }
        bank: dict[str, Any] = {"structure": design.structure, "factors": tuple(design.factors)}
        if data.grouping is None:  # else those of the groups, also of one group with anchors
            bank["populations"] = _bank_population(self)
        moments = None if populations is None else (_group_moments(populations), errors)
        return (
            estimates,
            moments,
            {
                "bank": bank,
                "details": details,
                "populations": populations if data.grouping is not None else None,
                "density": self.density,
            },
        )


def solve_space(data: FitData, dtype: np.dtype) -> SpaceSolution:
    """Fit several abilities, or a density that is estimated."""
    specification, design = data.specification, _design_of(data)
    population = PopulationDesign(
        design.dims,
        design.n_correlated,
        design.correlated,
        1 if data.grouping is None else len(data.grouping.labels),
        first_is_free=data.anchor_bank is not None,
        full=design.exploratory or design.correlated,
    )
    setup = set_up(
        data,
        design.dims,
        dtype,
        positive=False,
        pattern=design.pattern if specification.density is None else None,
        restrict=functools.partial(_constraints, design=design),
    )
    template = setup.template
    _check_common_slopes(field_columns(template, data.shared), template, design)
    work = Workspace(setup, design, population)
    params = _first_params(work)
    if specification.density is None:
        return _normal(work, params)
    return _with_density(work, params, specification.density)


def _bank_population(reached: SpaceSolution) -> Population:
    """The population of the bank, where there is one group."""
    design = reached.work.design
    if reached.density is not None:
        nodes, weights = (reached.density[name].to_numpy() for name in ("theta", "probability"))
        return Population(nodes=nodes, weights=weights)
    if design.correlated and reached.populations is not None:
        correlations = np.asarray(reached.populations.covariance[0], float)
        return Population(np.zeros(design.dims), 1.0, correlations)
    return Population()


def _group_moments(populations: Populations) -> dict[str, FloatArray]:
    """Means, SDs and correlations of each group."""
    mean, covariance = (np.asarray(a, float) for a in (populations.mean, populations.covariance))
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    correlation = covariance / (sd[:, :, None] * sd[:, None, :])
    return {"mean": mean, "sd": sd, "correlation": correlation}


def _first_population(design: PopulationDesign, anchors: ItemBank | None) -> Any:
    """The numbers at the start: all groups as the anchors' population, or standard Normal."""
    eye = np.eye(design.dims)
    first = eye if anchors is None else anchors.population.covariance
    covariance = np.tile(first, (design.n_groups, 1, 1))
    return population_numbers(np.zeros((design.n_groups, design.dims)), covariance, design)


def _moment_slopes(numbers: FloatArray, dims: int) -> dict[str, FloatArray]:
    """Derivatives of means, SDs and correlations of each group by the populations' numbers."""
    n_groups, size = numbers.shape
    out = {
        name: np.zeros((n_groups, *shape, n_groups, size))
        for name, shape in (("mean", [dims]), ("sd", [dims]), ("correlation", [dims, dims]))
    }
    for group, (logs, free) in enumerate(zip(*np.split(numbers[:, dims:], [dims], 1), strict=True)):
        out["mean"][group, :, group, :dims] = np.eye(dims)
        out["sd"][group, :, group, dims : 2 * dims] = np.diag(np.exp(logs))
        change: Any = correlation_root(free, dims) @ root_slopes(free, dims).swapaxes(1, 2)
        both = np.moveaxis(change + change.swapaxes(1, 2), 0, -1)
        out["correlation"][group, :, :, group, 2 * dims :] = both
    return out


def _population_errors(
    design: PopulationDesign, point: EMPoint, covariance: Covariance
) -> dict[str, FloatArray] | None:
    """Standard errors of means, SDs and correlations of each group, by the delta method."""
    if covariance.latent is None:
        return None

    def error(slopes: Any) -> FloatArray:
        flat = np.asarray(slopes, float).reshape(-1, design.estimated.size)
        flat = np.where(design.estimated.ravel(), flat, 0.0)
        latent = np.nan_to_num(np.asarray(covariance.latent))
        variance = np.einsum("ij,jk,ik->i", flat, latent, flat)
        known = np.abs(flat).max(axis=1) > 1e-9  # rounding of a constant
        errors = np.sqrt(np.where(known, np.maximum(variance, 0), np.nan))
        return errors.reshape(slopes.shape[:-2])

    by_number = _moment_slopes(np.asarray(point.population, float), design.dims)
    errors = {name: error(slopes) for name, slopes in by_number.items()}
    errors["correlation"] = np.nan_to_num(errors["correlation"])
    return errors

"""The data and the design of a fit of several abilities: quadrature, reduced items, iterations."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.density import density_map, with_density
from irtcat.fitting.em.driver import Ended, checkpoint_of, loop_settings, named_settings, run_em
from irtcat.fitting.em.iteration import CAN_BE_LENGTHENED, EMPoint, EMState, Problem, StepRule
from irtcat.fitting.em.m_step import shared_cells
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.setup import FitSetup
from irtcat.fitting.outcome import Outcome
from irtcat.fitting.problem.loading_pattern import LatentDesign
from irtcat.latent import (
    FINEST_PRODUCT,
    AdaptiveQuadrature,
    Density,
    PopulationDesign,
    Quadrature,
    adaptive_quadrature,
    as_rule,
    choose_nodes,
    group_items,
    n_nodes,
    narrowest_sd,
    populations_of,
    posterior_modes,
    row_chunks,
)
from irtcat.models import (
    ItemModel,
    column_names,
    field_columns,
    parameter_matrix,
    restricted,
    unpack,
)

REFINEMENTS = 4
"""Maximum number of quadratures: EM is run again where the nodes prove too coarse."""

ROOM = 1.15
"""Lines of nodes that were fine enough at the start stay, where the last posteriors are narrower by
up to this factor, as abilities correlate (the error is then 3e-7 of a likelihood), or slopes are
steeper than the first ones: other nodes would take another program, and many iterations."""

AHEAD = 0.6
"""Where the population becomes as narrow as the spacing of the lines, the next ones are made for a
population narrower by this factor."""

HISTOGRAM_TOLERANCE = 0.005
"""Default tolerance with an empirical histogram, in standard errors: hundreds of further iterations
raise the log-likelihood by less than .2 (1,200 subjects, 15 items, two modes), by spikes."""

ADAPTIVE_NOISE = 5e-6
"""Adaptive nodes move with the posteriors, and the objective changes by their error (relative)."""


def slopes_by_item(template: ItemModel, params: FloatArray) -> FloatArray:
    """The slopes of packed parameters, items x abilities x steps (one step unless nominal)."""
    slopes = params[:, list(field_columns(template, ["slope"]))]
    return slopes.reshape(len(params), template.dims, -1)


class Workspace:
    """Data and design of a fit, from which its problem is built for any quadrature.

    With a two-tier structure the iterated items are *reduced*: each has the general abilities and
    its own specific one, so that parameters, constraints and quadrature are of that many abilities.
    """

    def __init__(self, setup: FitSetup, design: LatentDesign, population: PopulationDesign):
        self.setup, self.design, self.population = setup, design, population
        self.rows, self.dtype, self.blocks = setup.data.rows, setup.dtype, setup.blocks
        self.specification = setup.data.specification
        template = self.full_template = setup.template
        self.is_reduced = bool(design.structure) and population.n_groups == 1
        self.is_reduced &= not population.first_is_free
        self.n_general = design.n_general if self.is_reduced else design.dims
        self.is_simple = self.is_product = False
        self.template, self.columns = template, None
        if self.is_reduced:
            self.group = group_items(design.pattern, self.n_general)[0]
            specific = np.minimum(self.n_general + self.group, design.dims - 1)
            general = np.tile(np.arange(self.n_general), (len(specific), 1))
            abilities = np.column_stack([general, specific])
            self.template = restricted(template, abilities)
            n_params = len(column_names(template))
            numbers = np.broadcast_to(np.arange(float(n_params)), (len(specific), n_params))
            numbered = unpack(jax.tree.map(np.asarray, template), numbers)
            self.columns = parameter_matrix(restricted(numbered, abilities)).astype(int)

    def integrate_together(self) -> None:
        """Give up the reduction, where its grid would be too large for narrow posteriors."""
        self.is_reduced, self.n_general = False, self.design.dims
        self.template, self.columns = self.full_template, None

    def integrate_by_lines(self, params: FloatArray) -> None:
        """Use a line for each ability, if no item measures several of them.

        With few abilities they are also integrated on the product of the lines.
        """
        slopes = slopes_by_item(self.full_template, params)
        measured = (self.design.pattern != 0) | (slopes != 0).any(axis=2)
        self.is_simple = not self.is_reduced and bool((measured.sum(axis=1) <= 1).all())
        self.is_product = self.is_simple and self.design.dims in FINEST_PRODUCT

    def _line_roots(self, population: Any) -> FloatArray:
        """Roots of the correlations of each group, the population on the scale of the lines."""
        root = np.asarray(populations_of(population, self.design.dims).root, float)
        return root / np.sqrt((root**2).sum(axis=2, keepdims=True))

    def narrowest(self, covariance: FloatArray, population: Any) -> float:
        """SD of the narrowest posteriors on the scale of the nodes, from covariances on scale z."""
        if self.is_product:
            root = self._line_roots(population)
            group = self.rows.group if len(root) > 1 else np.zeros(len(covariance), int)
            root = root[group]
            covariance = root @ covariance @ root.swapaxes(1, 2)
        return narrowest_sd(covariance)

    def narrowest_population(self, population: Any) -> float:
        """SD of the populations in their narrowest direction, on the scale of the lines."""
        return float(np.linalg.svd(self._line_roots(population), compute_uv=False).min())

    def choose(self, narrowest: float, steepest: float) -> Any:
        """The quadrature (or its spacing) for posteriors of this SD and items of this slope."""
        n_gridded = self.n_general + 1 if self.is_reduced else self.design.dims
        nodes, dims = self.specification.solver.nodes, self.design.dims
        return choose_nodes(n_gridded, dims, narrowest, steepest, nodes, self.is_product)

    def rule(self, chosen: float | AdaptiveQuadrature) -> Quadrature:
        """The nodes themselves, in working precision."""
        by_lines = self.is_product if isinstance(chosen, float) else self.is_simple
        return as_rule(chosen, self.design.pattern, self.n_general, self.dtype, by_lines)

    @property
    def tied(self) -> tuple[int, ...]:
        """Columns of the iterated parameters that some items share."""
        if self.columns is None:
            return self.setup.tied
        is_tied = np.isin(self.columns, self.setup.tied).any(axis=0)
        return tuple(np.flatnonzero(is_tied).tolist())

    @property
    def expands(self) -> bool:
        """Whether the latent scale is estimated and removed, if the steps are not lengthened."""
        is_free = self.setup.has_free_scale and not self.setup.prior.scaled
        return self.specification.solver.expand and is_free

    @property
    def step_rule(self) -> StepRule:
        """The step rule of the fit."""
        plain = not self.is_reduced and self.setup.data.engine is None and not self.tied
        plain &= self.population.n_groups == 1 and not self.population.first_is_free
        can_be = type(self.template) in CAN_BE_LENGTHENED
        return StepRule(
            lengthen=self.specification.solver.accelerate and plain and can_be,
            rescale=self.expands,
            full=self.design.exploratory,
        )

    def problem(self, rule: Quadrature, step_rule: StepRule) -> Problem:
        """Everything that is constant during the iterations."""
        specific = is_too_coarse = None
        if self.is_product:
            spacing = rule.spacing

            def is_too_coarse(population: Any) -> bool:
                return self.narrowest_population(population) < spacing

        if self.is_reduced:
            specific = jnp.asarray(np.minimum(self.group, self.design.dims - self.n_general - 1))
        return self.setup.problem(
            self.reduced(self.setup.prior),
            template=self.template,
            tied=self.tied,
            rule=rule,
            population=self.population,
            step_rule=step_rule,
            specific=specific,
            is_too_coarse=is_too_coarse,
        )

    def reduced(self, prior: PriorTable) -> PriorTable:
        """The constraints of the iterated parameters."""
        if self.columns is None:
            return prior
        c, at = prior.constraints, self.columns
        row = np.arange(len(at))[:, None]
        shared = shared_cells(at[:, list(self.tied)], self.dtype) if self.tied else None
        family = None if c.family is None else jax.device_put(np.asarray(c.family)[row, at])
        return prior._replace(
            constraints=c._replace(
                prior_mean=jax.device_put(np.asarray(c.prior_mean)[row, at]),
                prior_precision=jax.device_put(np.asarray(c.prior_precision)[row, at]),
                free=jax.device_put(np.asarray(c.free)[row, at] & self._has),
                lower=jax.device_put(np.asarray(c.lower)[at[0]]),
                upper=jax.device_put(np.asarray(c.upper)[at[0]]),
                family=family,
                shared=shared,
            )
        )

    @functools.cached_property
    def _has(self) -> np.ndarray:
        """Which of the iterated parameters the items have: some have no specific ability."""
        assert self.columns is not None
        has = np.ones(self.columns.shape, bool)
        slopes = np.array(field_columns(self.template, ["slope"]))
        by_axis = slopes.reshape(self.template.dims, -1)
        has[:, by_axis[-1]] = (self.group < self.design.dims - self.n_general)[:, None]
        return has

    def shrink(self, params: FloatArray) -> FloatArray:
        """The iterated parameters from all parameters."""
        if self.columns is None:
            return params
        return np.take_along_axis(params, self.columns, axis=1) * self._has

    def shrink_mask(self, free: BoolArray) -> BoolArray:
        """Which of the iterated parameters are free, from the same of all parameters."""
        if self.columns is None:
            return free
        return np.take_along_axis(free, self.columns, axis=1) & self._has

    def widen(self, params: FloatArray) -> FloatArray:
        """Undo `shrink`."""
        if self.columns is None:
            return params
        out = np.zeros((len(params), len(column_names(self.full_template))))
        np.put_along_axis(out, self.columns, params, axis=1)
        return out

    def widen_covariance(self, covariance: FloatArray) -> FloatArray:
        """Blocks of all parameters from those of the iterated ones, NaN elsewhere."""
        if self.columns is None:
            return covariance
        n_params = len(column_names(self.full_template))
        out = np.full((len(covariance), n_params, n_params), np.nan)
        row = np.arange(len(covariance))[:, None, None]
        out[row, self.columns[:, :, None], self.columns[:, None, :]] = covariance
        return out


def _steepest(template: ItemModel, params: FloatArray) -> float:
    slopes = slopes_by_item(template, params)
    if slopes.shape[2] > 1:
        slopes = np.diff(slopes, axis=2, prepend=0.0)
    return float(np.quantile(np.abs(slopes).max(axis=(1, 2)), 0.9))


def first_modes(work: Workspace, params: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior modes and covariances of all rows under a standard Normal population."""
    model = unpack(work.full_template, np.asarray(params, work.dtype))
    n_cells = work.rows.shape[1] * (work.design.dims + 2) ** 2 * (model.n_categories - 1)
    parts = []
    for block in work.blocks():
        chunks = jax.device_put(row_chunks(len(block.x), n_cells))
        modes = posterior_modes(
            model, block.x, chunks, np.zeros((), work.dtype), has_missing=work.rows.has_missing
        )
        n = block.rows.stop - block.rows.start
        parts.append([np.asarray(array, float)[:n] for array in (modes.mode, modes.covariance)])
    mean, covariance = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return mean, covariance


def iterate_density(work: Workspace, density: Density, params: FloatArray) -> tuple[Problem, Ended]:
    """Run EM of the items and of a density on its fixed nodes."""
    solver, name = work.specification.solver, work.specification.density
    step_rule = work.step_rule._replace(lengthen=False, rescale=False)
    start = density.start()
    problem = with_density(work.problem(work.rule(1.0), step_rule), density, start)
    settings = loop_settings(solver, str(work.dtype), work.expands)
    if solver.tolerance is None and not density.degree:
        settings = settings._replace(tolerance=HISTOGRAM_TOLERANCE)
    named = {"model": work.template.key, "density": name, "nodes": len(density.nodes)}
    named = named_settings(problem, settings, **named)
    checkpoint = checkpoint_of(problem, work.rows, solver, named, work.design.pattern)
    point = EMPoint(jnp.asarray(params, work.dtype), jnp.asarray(start, work.dtype))
    n_rows = work.rows.shape[0]
    state = EMState(point, np.zeros((n_rows, 1)), np.ones((n_rows, 1, 1)))
    step_map = density_map(density, settings.tolerance)
    ended = run_em(problem, state, settings, work.specification.progress, checkpoint, step_map)
    return with_density(problem, density, np.asarray(ended.point.population)), ended


def _first_quadrature(
    work: Workspace, params: FloatArray, population: FloatArray
) -> tuple[float | AdaptiveQuadrature, FloatArray, FloatArray]:
    """The first quadrature (or its spacing), and the posteriors that it was chosen for."""
    dims, chosen = work.design.dims, None
    work.integrate_by_lines(params)
    if work.specification.solver.nodes is not None:
        chosen = work.choose(1.0, 1.0)
    if isinstance(chosen, float):  # the spacing of a given grid does not depend on the posteriors
        return chosen, np.zeros((0, dims)), np.zeros((0, dims, dims))
    mean, covariance = first_modes(work, params)
    steepest = _steepest(work.full_template, params) * (ROOM if work.is_product else 1.0)
    chosen = work.choose(work.narrowest(covariance, population), steepest)
    if work.is_reduced and not isinstance(chosen, float):
        work.integrate_together()
    work.is_product &= isinstance(chosen, float)
    return chosen, mean, covariance


def _next_quadrature(
    work: Workspace, rule: Quadrature, ended: Ended, is_first: bool
) -> tuple[float | AdaptiveQuadrature, bool]:
    """The quadrature for the posteriors at the end of the iterations; whether ``rule`` will do."""
    stopped, population = ended.ending.outcome is Outcome.TOO_COARSE, ended.point.population
    covariance = np.asarray(ended.belief.covariance, float)
    spread = work.narrowest(covariance, population)
    if work.is_product:
        narrowest = work.narrowest_population(population)
        spread = min(ROOM * spread, narrowest * AHEAD) if stopped else ROOM * spread
    params = work.widen(np.asarray(ended.point.params, float))
    steepest = _steepest(work.full_template, params)
    finer = work.choose(spread, steepest)
    fails = not isinstance(finer, float) or (stopped and (not is_first or finer >= rule.spacing))
    if work.is_product and fails:
        # Abilities are correlated too strongly: narrow on their own scales, not on scale z.
        work.is_product = False
        return work.choose(narrowest_sd(np.asarray(ended.belief.covariance)), steepest), False
    if rule.is_adaptive:
        return finer, True
    if not isinstance(finer, float):
        return finer, work.is_reduced  # the iterated items have no other quadrature
    return finer, n_nodes(work.rule(finer)) <= n_nodes(rule)


def iterate(work: Workspace, params: FloatArray, population: FloatArray) -> tuple[Problem, Ended]:
    """Run EM; refine the quadrature and continue where it proves too coarse for the posteriors.

    Each quadrature is a separate turn for the checkpoint, which records the turn.
    """
    solver = work.specification.solver
    chosen, mean, covariance = _first_quadrature(work, params, population)
    point = EMPoint(
        jnp.asarray(work.shrink(params), work.dtype), jnp.asarray(population, work.dtype)
    )
    start = state = EMState(point, mean, covariance)
    step_rule = work.step_rule
    first, used = 0, 0
    problem = work.problem(work.rule(chosen), step_rule)
    checkpoint = checkpoint_of(problem, work.rows, solver, {}, work.design.pattern)
    saved = {} if checkpoint is None or not checkpoint.saved else checkpoint.saved[0]["settings"]
    if "turn" in saved:
        first, used, work.is_product = saved["turn"], saved["used"], saved["lines"]
        chosen = saved["spacing"] or adaptive_quadrature(work.design.dims, solver.nodes)
    for turn in range(first, REFINEMENTS):
        rule = work.rule(chosen)
        problem = work.problem(rule, step_rule)
        settings = loop_settings(
            solver,
            str(work.dtype),
            step_rule.lengthen or step_rule.rescale,
            ADAPTIVE_NOISE if rule.is_adaptive else 0.0,
        )
        left = settings._replace(max_iterations=max(1, settings.max_iterations - used))
        if checkpoint is not None:
            named = (
                step_rule._asdict()
                | work.population._asdict()
                | {
                    "model": work.template.key,
                    "tied": list(problem.tied),
                    "turn": turn,
                    "used": used,
                    "nodes": solver.nodes,
                    "lines": work.is_product,
                    "spacing": chosen if isinstance(chosen, float) else None,
                }
            )
            named = named_settings(problem, settings, **named)
            checkpoint.identity = checkpoint.identity._replace(settings=named)
        ended = run_em(problem, state, left, work.specification.progress, checkpoint)
        used += ended.ending.n_iterations
        if checkpoint is not None:
            checkpoint.saved = None  # the next turn starts from its own state
        outcome = ended.ending.outcome
        chosen, good = _next_quadrature(work, rule, ended, turn == 0)
        good |= turn + 1 == REFINEMENTS or outcome is Outcome.INTERRUPTED
        if good or used >= solver.max_iterations:
            break
        stopped = outcome is Outcome.TOO_COARSE
        state = start if stopped else EMState.of(ended.point, ended.belief)
    return problem, ended._replace(ending=ended.ending._replace(n_iterations=used))

"""The data and the design of a fit of several abilities: quadrature, and items as iterated."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.types import FloatArray
from irtcat.fitting.em.m_step import shared_cells
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.problem import Problem, StepRule
from irtcat.fitting.em.setup import FitSetup
from irtcat.fitting.em.steps import CAN_BE_LENGTHENED
from irtcat.fitting.problem.loading_pattern import LatentDesign
from irtcat.latent import (
    FINEST_PRODUCT,
    AdaptiveQuadrature,
    PopulationDesign,
    Populations,
    Quadrature,
    as_rule,
    choose_nodes,
    group_items,
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
        is_free = is_free and not self.setup.fixes_scale  # equal intercepts would become unequal
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
        tables = {name: getattr(c, name) for name in ("prior_mean", "prior_precision", "family")}
        arrays = jax.tree.map(lambda table: np.asarray(table)[row, at], tables)
        arrays["free"] = np.asarray(c.free)[row, at] & self._has
        arrays["lower"], arrays["upper"] = np.asarray(c.lower)[at[0]], np.asarray(c.upper)[at[0]]
        constraints = c._replace(**jax.device_put(arrays), shared=shared)
        return prior._replace(constraints=constraints)

    @functools.cached_property
    def _has(self) -> np.ndarray:
        """Which of the iterated parameters the items have: some have no specific ability."""
        assert self.columns is not None
        has = np.ones(self.columns.shape, bool)
        slopes = np.array(field_columns(self.template, ["slope"]))
        by_axis = slopes.reshape(self.template.dims, -1)
        has[:, by_axis[-1]] = (self.group < self.design.dims - self.n_general)[:, None]
        return has

    def shrink(self, params: np.ndarray) -> np.ndarray:
        """The iterated parameters from all parameters, or masks of them."""
        if self.columns is None:
            return params
        return np.take_along_axis(params, self.columns, axis=1) * self._has

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


def modes_of(
    work: Workspace, params: FloatArray, populations: Populations | None = None
) -> tuple[FloatArray, FloatArray]:
    """Posterior modes and covariances of all rows, each on the z scale of its group.

    Args:
        work: the data and the design.
        params: all parameters of the items.
        populations: mean and root of each group, in numpy; None where all are standard Normal.
    """
    # In numpy, as every operation of JAX outside of a compiled function is compiled by itself.
    items = unpack(jax.tree.map(np.asarray, work.full_template), np.asarray(params, work.dtype))
    models = [items]
    if populations is not None:
        both = zip(populations.mean, populations.root, strict=True)
        models = [items.rescale(mean, root) for mean, root in both]
    dims = work.design.dims
    n_cells = work.rows.shape[1] * (dims + 2) ** 2 * (items.n_categories - 1)
    means, covariances = [], []
    for block in work.blocks():
        n = block.rows.stop - block.rows.start
        mode, covariance = np.zeros((n, dims)), np.zeros((n, dims, dims))
        chunks = jax.device_put(row_chunks(len(block.x), n_cells))
        for group, model in enumerate(models):
            modes = posterior_modes(
                model, block.x, chunks, np.zeros((), work.dtype), has_missing=work.rows.has_missing
            )
            here = block.group[:n] == group if len(models) > 1 else np.ones(n, bool)
            mode[here] = np.asarray(modes.mode, float)[:n][here]
            covariance[here] = np.asarray(modes.covariance, float)[:n][here]
        means.append(mode)
        covariances.append(covariance)
    return np.concatenate(means), np.concatenate(covariances)

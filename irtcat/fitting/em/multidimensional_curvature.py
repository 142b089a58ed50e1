"""The curvature of a fit of several abilities, by any of their quadratures."""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import SMALL, jit
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.covariance import (
    Covariance,
    Curvature,
    complete_information,
    inverse_blocks,
    item_gradient,
    with_priors,
)
from irtcat.fitting.em.m_step import plus_diagonal, prior_slopes
from irtcat.fitting.em.multidimensional_scores import (
    adaptive_score_sums,
    items_by_ability,
    product_score_sums,
)
from irtcat.fitting.em.problem import EMPoint, EMState, Problem, sums_at
from irtcat.fitting.em.score_sums import grid_score_sums, parameter_chain
from irtcat.latent import (
    EStep,
    ExpectedSums,
    PopulationDesign,
    filled,
    has_lines,
    is_adaptive,
    n_nodes,
    population_gradient,
    population_log_density,
)

STEP = 1e-4
"""Step of the central differences."""


class Multidimensional(Curvature):
    """The curvature of a fit of several abilities, by any of their quadratures."""

    def __init__(self, problem: Problem, point: EMPoint, belief: EStep, free: BoolArray):
        # The errors are those of the estimates from all items, also of those that were set aside.
        super().__init__(problem.of_all_items(), point, belief, free)
        rule, design = problem.rule, problem.population
        several = design.n_groups > 1
        self.is_two_tier = problem.specific is not None
        self.is_adaptive = is_adaptive(rule)
        # Observed and expected information of the complete data are equal for linear predictors.
        differs = self.is_adaptive and problem.template.closed_form != "logistic"
        self.by_lines = has_lines(rule) and point.params.dtype == np.float64
        self.by_differences = (self.is_two_tier or several or differs) and not self.by_lines

    def is_full(self, which: str) -> bool:
        """See `Curvature`; adaptive and two-tier quadrature need float64 for it."""
        on_grid = not self.is_adaptive and not self.is_two_tier
        exact = on_grid or self.point.params.dtype == np.float64
        return exact and (which != "auto" or self.is_affordable(self._work()))

    def _work(self) -> float:
        """Approximate number of operations for the full matrix."""
        problem, n_free = self.problem, self.n_free
        n_rows, n_items = len(problem.weights), len(problem.item_weights)
        n_predictors = problem.template.n_categories - 1
        nodes = float(n_nodes(problem.rule)) * problem.population.n_groups
        if self.by_lines:
            dims, size = len(problem.rule.members), len(problem.rule.line.nodes)
            numbers = 2.0 * n_items * n_predictors
            products = numbers * size * (size * (dims - 1) + numbers * (dims + 1) / dims)
            if self.is_canonical:
                products = 2 * dims**2 * nodes + 4 * numbers * (size * dims + numbers)
            return n_rows * (products + 12 * nodes * int(self.estimated.sum()))
        if self.by_differences:
            cost = 60 if self.is_adaptive else 8
            return 2.0 * n_free * cost * n_rows * nodes * n_items * n_predictors
        if self.is_adaptive:
            return 2.0 * n_rows * nodes * n_free**2
        if self.is_canonical:
            scores = float(n_items * n_predictors * (1 + problem.population.dims))
            return n_rows * (4 * nodes * scores + 4 * scores**2) + 2 * nodes * scores**2
        return nodes * (2 * n_rows * (n_items * n_predictors) ** 2 + 3 * self.free.size**2)

    def _sums(self, full: bool) -> tuple[FloatArray, FloatArray]:
        """Sums over all subjects."""
        problem, point, blocks = self.problem, self.point, []
        cells = np.flatnonzero(self.free)
        if has_lines(problem.rule):
            problem = problem._replace(rule=problem.rule.on_one_grid())
        items, design = problem.items(point.params), problem.population
        static: Any = {"design": design, "full": full}
        for block in problem.blocks():
            n_cells = n_nodes(problem.rule)
            if self.is_adaptive:
                n_cells *= point.params.size
            rows = block.in_chunks(design.n_groups, n_cells, problem.has_missing)
            common: Any = items, point.population, rows, problem.rule
            if self.is_adaptive:
                nodes = tuple(
                    filled(array[block.rows], len(block.x), point.params.dtype)
                    for array in self.belief[:2]
                )
                here = adaptive_score_sums(*common, nodes, cells, **static)
            else:
                here = grid_score_sums(*common, **static, is_canonical=full and self.is_canonical)
            blocks.append(here)
        first, second = self.added(blocks)
        if not self.is_adaptive or not full:
            return first, second
        n = self.free.size
        at = np.append(cells, n + np.arange(point.population.size))
        out = np.zeros((2, n + point.population.size, n + point.population.size))
        out[0][np.ix_(at, at)], out[1][np.ix_(at, at)] = first, second
        return out[0], out[1]

    def observed(self, sandwich: bool) -> tuple[FloatArray, FloatArray | None]:
        """See `Curvature`."""
        if self.by_differences:
            return self._differenced(), self.outer_products(full=True) if sandwich else None
        problem, point = self.problem, self.point
        outer: FloatArray | None = None
        if self.by_lines and not sandwich:
            score_covariance = self._product_covariance()
        else:
            score_covariance, outer = self._sums(full=True)
        if sandwich and problem.squares is not None:
            outer = self.outer_products(full=True)
        sums = sums_at(problem, EMState.of(point, self.belief))
        if sums.information is None:
            data = problem.complete_data(point.params, sums.belief, sums.theta)
            complete = complete_information(data)
        else:
            complete = with_priors(sums.information, point.params, problem.constraints)
        population: Any = 0.0
        by_differences = self.by_lines and not sandwich  # below
        if self.estimated.any() and not by_differences:
            population = _population_information(point.population, sums, design=problem.population)
        information = self.louis(complete, population, score_covariance)
        if by_differences:
            numbers = np.arange(len(information)) >= point.params.size
            by_numbers = self._differenced(numbers)[numbers]
            information[numbers], information[:, numbers] = by_numbers, by_numbers.T
        return information, outer if sandwich else None

    def _product_covariance(self) -> FloatArray:
        """Posterior covariance of the scores by the items, 0 for those by the populations."""
        problem, point = self.problem, self.point
        rule, design = problem.rule, problem.population
        own, valid = items_by_ability(np.asarray(rule.members))
        items = problem.items(point.params)
        blocks = []
        for block in problem.blocks():
            n_cells = len(rule.line.nodes) * point.params.size * len(rule.members)
            rows = block.in_chunks(design.n_groups, n_cells, problem.has_missing)
            common = items, point.population, rows, rule, (own, valid)
            blocks.append(
                product_score_sums(*common, design=design, is_canonical=self.is_canonical)
            )
        sums = np.sum([np.asarray(block, float) for block in blocks], axis=0)
        ability, slot = (at[np.argsort(own[valid])] for at in np.nonzero(valid))
        sums = sums.transpose(0, 2, 1, 3, 4, 6, 5, 7)[ability, slot][:, :, :, ability, slot]
        sums = sums.reshape(len(slot), sums.shape[1] * 2, len(slot), -1)
        chain = parameter_chain(problem.template, np.asarray(point.params, float))
        own_chain = np.stack([chain[:, :, 0], chain[np.arange(len(chain)), :, 1 + ability]], 2)
        own_chain = own_chain.reshape(len(chain), -1, chain.shape[3])
        size = point.params.size
        out = np.zeros((size + point.population.size,) * 2)
        out[:size, :size] = np.einsum(
            "jap,jalb,lbq->jplq", own_chain, sums, own_chain, optimize=True
        ).reshape(size, size)
        return out

    def _score(self, vector: FloatArray) -> FloatArray:
        """Gradient of the marginal log-posterior by all parameters, the population's last."""
        problem, like = self.problem, self.point.params
        params = np.asarray(vector[: like.size].reshape(like.shape), like.dtype)
        population = vector[like.size :].reshape(self.point.population.shape).astype(like.dtype)
        point = EMPoint(*map(jax.device_put, (params, population)))
        sums = sums_at(problem, EMState.of(point, self.belief))
        moments = sums.moments(problem.population)
        moments = jax.tree.map(lambda array: np.asarray(array, float), moments)
        by_numbers = population_gradient(np.asarray(population, float), moments)
        score = self._item_gradient(params, sums), by_numbers
        return np.concatenate([np.asarray(part, float).ravel() for part in score])

    def _item_gradient(self, params: FloatArray, sums: ExpectedSums) -> Any:
        """Gradient of the log-posterior by the items."""
        constraints = self.problem.constraints
        if sums.gradient is not None:
            return np.asarray(sums.gradient) + np.asarray(prior_slopes(params, constraints)[0])
        return item_gradient(self.problem.complete_data(params, sums.belief, sums.theta))

    def _differenced(self, which: Any = True) -> FloatArray:
        """Minus the derivative of the score; 0 for parameters that are not free, and for others.

        Args:
            which: the parameters by which the derivative is taken.
        """
        at = np.concatenate([np.asarray(part, float).ravel() for part in self.point])
        information = np.zeros((len(at), len(at)))
        taken = self.spread.any(axis=1) & which
        for k in np.flatnonzero(taken):
            step = STEP * (np.arange(len(at)) == k)
            information[k] = -(self._score(at + step) - self._score(at - step)) / (2 * STEP)
        both = taken[:, None] & taken
        return np.where(both, (information + information.T) / 2, information)

    def by_item(self, sandwich: bool) -> Covariance:
        """See `Curvature`; two-tier quadrature does not give the scores of single subjects."""
        if self.is_two_tier:
            return Covariance()
        # The precision of a prior that is not Normal is not its curvature.
        params, c = jax.tree.map(np.asarray, (self.point.params, self.problem.constraints))
        curvature = np.asarray(prior_slopes(params, c)[1], float)
        information = plus_diagonal(self._sums(full=False)[1], curvature)
        outer = self.outer_products(full=False) if sandwich else None
        how = "block sandwich" if sandwich else "block"
        return Covariance(blocks=inverse_blocks(information, self.free, (), outer), how=how)


@functools.partial(jit, static_argnames=("design",), options=SMALL)
def _population_information(
    population: Array, sums: ExpectedSums, *, design: PopulationDesign
) -> Float[Array, "free free"]:
    """Information of the complete data on the populations."""
    moments, size = sums.moments(design), population.size
    by_numbers = jax.hessian(population_log_density)(population, moments)
    return -by_numbers.reshape(size, size)

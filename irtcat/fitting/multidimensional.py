"""EM of several abilities, and what it reached on the scale and axes of a bank."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import Population
from irtcat.fitting.assembly import Estimates, estimates_of_em
from irtcat.fitting.density import at_standardised, iterate_density
from irtcat.fitting.design import first_params, workspace_of
from irtcat.fitting.em.covariance import Covariance, population_errors
from irtcat.fitting.em.driver import Ended
from irtcat.fitting.em.multidimensional_curvature import Multidimensional
from irtcat.fitting.em.problem import Problem
from irtcat.fitting.em.rows import FitData
from irtcat.fitting.em.setup import FitSetup
from irtcat.fitting.refinement import at_identified, finer_log_likelihood, identified, iterate
from irtcat.fitting.workspace import Workspace
from irtcat.latent import (
    KINDS,
    Populations,
    density_of,
    n_nodes,
    population_numbers,
    populations_of,
)
from irtcat.latent.population import group_moments
from irtcat.models import field_columns


def _normal(work: Workspace, params: FloatArray) -> "SpaceSolution":
    """EM with Normal populations, on identified axes."""
    first = np.asarray(_first_population(work), float)
    problem, ended = iterate(work, params, first)
    params = work.widen(np.asarray(ended.point.params, float))
    populations = jax.tree.map(np.asarray, populations_of(ended.point.population, work.design.dims))
    params, populations, slopes_free = identified(work, params, populations)
    ended = at_identified(work, problem, work.shrink(params), populations, ended)
    return SpaceSolution(
        work=work,
        problem=problem,
        ended=ended,
        params=params,
        slopes_free=slopes_free,
        finer=finer_log_likelihood(work, problem, ended),
        n_latent=work.population.size,
        populations=populations,
    )


def _with_density(work: Workspace, params: FloatArray, name: str) -> "SpaceSolution":
    """EM with an estimated density of one ability, which defines the scale where that is free."""
    density = density_of(name, work.specification.solver.nodes)
    problem, ended = iterate_density(work, density, params)
    free_scale = not (work.setup.fixes_scale or work.setup.prior.scaled)
    problem, ended, curve = at_standardised(problem, density, ended, free_scale)
    return SpaceSolution(
        work=work,
        problem=problem,
        ended=ended,
        params=np.asarray(ended.point.params, float),
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
        n_latent: number of free numbers of the population.
        slopes_free: the slopes that are not held at 0, items x slopes (or all).
        finer: log-likelihood by twice as many nodes; NaN where it was not computed.
        populations: mean and root of each group's abilities; None with a density.
        density: table of the latent density; None for Normal populations.
    """

    work: Workspace
    problem: Problem
    ended: Ended
    params: FloatArray
    n_latent: int
    slopes_free: BoolArray = np.array(True)
    finer: float = np.nan
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
        free = self.work.shrink(self.free)
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
        errors = population_errors(work.population, ended.point, covariance)
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
        error = self.finer - estimates.log_likelihood
        details = {
            "integration_error": error,
            "nodes": n_nodes(self.problem.rule),
            "nodes_are": KINDS[type(self.problem.rule)],
            **({"density": density} if density is not None else {}),
            "se_correlations": None if errors is None else errors["correlation"][0].tolist(),
        }
        bank: dict[str, Any] = {"structure": design.structure, "factors": tuple(design.factors)}
        if data.grouping is None:  # else those of the groups, also of one group with anchors
            bank["populations"] = _bank_population(self)
        moments = None if populations is None else (group_moments(populations), errors)
        fields = {
            "bank": bank,
            "details": details,
            "populations": populations if data.grouping is not None else None,
            "density": self.density,
            "integration_error": error,
        }
        return estimates, moments, fields


def solve_space(data: FitData, dtype: np.dtype) -> SpaceSolution:
    """Fit several abilities, or a density that is estimated."""
    work = workspace_of(data, dtype)
    params, density = first_params(work), data.specification.density
    return _normal(work, params) if density is None else _with_density(work, params, density)


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


def _first_population(work: Workspace) -> Any:
    """The numbers at the start: all groups as the anchors' population, or standard Normal."""
    design, anchors = work.population, work.specification.anchors
    first = np.eye(design.dims) if anchors is None else anchors.population.covariance
    covariance = np.tile(first, (design.n_groups, 1, 1))
    return population_numbers(np.zeros((design.n_groups, design.dims)), covariance, design)

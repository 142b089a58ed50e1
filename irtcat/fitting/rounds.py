"""Rounds of a fit with features: EM under priors by the features, and regressions on them."""

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import jit
from irtcat._common.types import FloatArray, IntArray
from irtcat.fitting.em.driver import Ended, Settings, run_em
from irtcat.fitting.em.identification import is_covered, recentred
from irtcat.fitting.em.m_step import Constraints
from irtcat.fitting.em.problem import EMPoint, EMState, Problem, StepRule
from irtcat.fitting.em.unidimensional_curvature import OneAbility
from irtcat.fitting.features.columns import Features
from irtcat.fitting.features.regression import (
    Column,
    NormalData,
    Regression,
    WideTable,
    layout_of,
    regress,
    wide_table,
)
from irtcat.fitting.outcome import Outcome
from irtcat.fitting.specification import Progress
from irtcat.latent import PopulationDesign
from irtcat.models import ItemModel, column_names, field_columns, pack, unpack

LEAST_PRECISION, NARROWEST = 1e-6, 1e-6
"""Precision of a subject whose posterior is not narrower than the prior, and the SD of a posterior
below which only rounding is left."""

LEAST_SHARE = 0.1
"""Least residual SD, as a share of the SD of all subjects: the spacing of the quadrature nodes."""

MOST_ROUNDS, TOLERANCE = 40, 1e-3
"""Rounds end when no mean has changed by more than this share of its standard error."""

SAMPLED_ROWS = 500
"""Number of items whose standard errors stand for those of all."""

MANY_ROUNDS, LOOSE = 10, 1e-2
"""After so many rounds this share is enough: few subjects leave EM's own tolerance visible."""

QUICK_ITERATIONS, NEAR = 2, 0.1
"""Until the means change by less than this share, EM takes so many E-steps a round.

With 1 the parameters of the items are never extrapolated, and fits take more E-steps in all.
"""

FULL_ROUNDS = 6
"""After so many rounds the scale moves half of the way: with few subjects and slopes without a
residual, scale and slopes may otherwise overshoot in turn."""

EXPLAINED = ("intercept", "location", "slope")
"""Parameters of items that features explain, where an item has one of each."""


def explained_columns(template: ItemModel) -> dict[str, int]:
    """Columns of the parameters that features can explain."""
    columns = {name: field_columns(template, [name]) for name in EXPLAINED}
    return {name: at[0] for name, at in columns.items() if len(at) == 1}


@jit
def _rescaled(template: ItemModel, params: Array, free: Array, mean: Array, sd: Array) -> Array:
    """Free parameters on the scale on which abilities of this mean and SD have mean 0 and SD 1."""
    return jnp.where(free, pack(unpack(template, params).rescale(mean, sd)), params)


@dataclass
class Rounds:
    """The rounds of a fit with features.

    Attributes:
        problem: what EM iterates on.
        ended: its last end.
        features: of subjects and items.
        group: the subject with the same features of each row.
        share: share of the responses that are observed.
        free_scale: whether the scale is free.
        subject: the last regression of the abilities.
        items: the last regressions of the items' parameters.
        pseudo_data: what these are fitted to.
        is_held: whether the residual SD of the abilities is held at its least value.
    """

    problem: Problem
    ended: Ended
    features: Features
    group: IntArray
    share: float
    free_scale: bool
    subject: Regression | None = None
    items: dict[str, Regression] = field(default_factory=dict)
    pseudo_data: dict[str, NormalData] = field(default_factory=dict)
    is_held: bool = False

    def __post_init__(self) -> None:
        features, group, problem = self.features, self.group, self.problem
        self.subject_matrix: FloatArray = np.zeros((1, 0))
        self.subject_layout = Column(np.zeros(0, int), np.zeros(0, bool))
        weights = np.asarray(problem.weights, float)
        if features.subject is not None:
            design, self.subject_matrix = features.subject
            has_rows = len(np.unique(group[weights > 0]))
            self.subject_layout = layout_of(design, has_rows, "ability")
        n = len(self.subject_matrix)
        self.weights = np.bincount(group, weights, n)
        # Without subject features the one population is N(0, 1), as without any features.
        self.problem = problem._replace(
            group=None if features.subject is None else jax.device_put(group),
            population=PopulationDesign(1, 1, n_groups=n, is_known=True),
            step_rule=StepRule(),
        )
        point = EMPoint(self.ended.point.params, jnp.zeros((n, 2), problem.dtype))
        self.ended = self.ended._replace(point=point)
        self.item_layouts: dict[str, Column] = {}
        self.wide: WideTable | None = None
        if features.item is not None:
            design, x = features.item
            all_fixed = not features.has_residual
            for name in self.explained:
                self.item_layouts[name] = layout_of(design, len(x), name, all_fixed)
            self.wide = wide_table(x)

    @functools.cached_property
    def explained(self) -> dict[str, int]:
        """Columns of the item parameters that features explain."""
        if self.features.item is None:
            return {}
        columns, tied = explained_columns(self.problem.template), self.problem.tied
        return {name: column for name, column in columns.items() if column not in tied}

    @functools.cached_property
    def untied(self) -> list[int]:
        """Columns of the parameters that items do not share."""
        n_params = len(column_names(self.problem.template))
        return [p for p in range(n_params) if p not in self.problem.tied]

    def item_data(self) -> tuple[FloatArray, FloatArray]:
        """Information of each item, priors included, and that times the posterior mode.

        Where EM has not converged, Newton's step leads to the mode.
        """
        curvature = OneAbility(self.problem, self.ended.point, self.ended.belief, self.share)
        information, gradient = curvature.item_information(), curvature.item_gradient()
        params = np.asarray(self.ended.point.params, float)
        free = np.asarray(self.problem.constraints.free)
        both = free[:, :, None] & free[:, None, :]
        information = np.where(both, information, np.eye(free.shape[1]) * ~free[:, :, None])
        untied = self.untied
        information, params = information[:, untied][:, :, untied], params[:, untied]
        gradient = np.where(free, gradient, 0.0)[:, untied]
        return information, np.einsum("jpq,jq->jp", information, params) + gradient

    def regress_items(self) -> None:
        """Regress the explained parameters, one after another, and set the priors of the next."""
        assert self.features.item is not None
        information, weighted = self.data
        untied, old = self.untied, self.problem.constraints
        mean = np.array(old.prior_mean, float)
        precision = np.array(old.prior_precision, float)
        for name, column in self.explained.items():
            at = untied.index(column)
            others = [p for p in range(len(untied)) if p != at]
            prior_precision = precision[:, column]
            likelihood = information[:, at, at] - prior_precision
            data_weighted = weighted[:, at] - prior_precision * mean[:, column]
            if others:
                rest = information[:, others][:, :, others]
                cross = information[:, at][:, others]
                solved = np.linalg.solve(rest, cross[..., None])[..., 0]
                likelihood = likelihood - (cross * solved).sum(axis=1)
                data_weighted = data_weighted - (solved * weighted[:, others]).sum(axis=1)
            # Rounding leaves a little where nobody answered.
            known = likelihood > 1e-8 * information[:, at, at]
            data = NormalData(np.where(known, likelihood, 0.0), np.where(known, data_weighted, 0.0))
            self.pseudo_data[name] = data
            self.items[name] = self._regressed(
                name, self.wide is None or not self.features.has_residual
            )
        for name, column in self.explained.items():
            mean[:, column] = self.items[name].mean(self.features.item[1])
            precision[:, column] = self.items[name].residual_sd ** -2
        mean, precision = (np.where(np.asarray(old.free), v, 0.0) for v in (mean, precision))
        dtype = self.problem.dtype
        constraints = old._replace(
            prior_mean=jax.device_put(mean.astype(dtype)),
            prior_precision=jax.device_put(precision.astype(dtype)),
        )
        everyone = jnp.ones_like(self.problem.item_weights)
        self.problem = self.problem._replace(constraints=constraints, item_weights=everyone)

    def _regressed(self, name: str, has_covariance: bool) -> Regression:
        """The regression of a parameter of the items on their features."""
        assert self.features.item is not None
        return regress(
            self.features.item[1],
            self.pseudo_data[name],
            self.item_layouts[name],
            residual=self.features.has_residual,
            start=self.items.get(name),
            wide=self.wide,
            has_covariance=has_covariance,
        )

    def move_items(self, old: Constraints) -> None:
        """Move the items to the mode under their new priors, by one step of Newton's method.

        Args:
            old: constraints with the priors of the last EM.
        """
        new, untied = self.problem.constraints, self.untied
        arrays = (old.prior_precision, old.prior_mean, new.prior_precision, new.prior_mean)
        before, before_mean, after, mean = (np.asarray(x, float)[:, untied] for x in arrays)
        information, weighted = self.data
        change = (after - before)[:, :, None] * np.eye(len(untied))
        weighted = weighted + after * mean - before * before_mean
        mode = np.linalg.solve(information + change, weighted[..., None])[..., 0]
        lower, upper = (np.asarray(bound, float)[untied] for bound in (new.lower, new.upper))
        params = np.array(self.ended.point.params, float)
        free = np.asarray(new.free)[:, untied]
        params[:, untied] = np.where(free, np.clip(mode, lower, upper), params[:, untied])
        point = self.ended.point._replace(params=jnp.asarray(params, self.problem.dtype))
        self.ended = self.ended._replace(point=point)

    def regress_subjects(self) -> None:
        """Regress the abilities, and set the populations of the next round."""
        problem, x = self.problem, self.subject_matrix
        at, unit = problem.rule.place
        mean, sd = self.ended.belief.on_line()
        theta, sd = at + unit * mean, np.maximum(unit * sd, NARROWEST)
        variance = sd**2
        population = np.asarray(self.ended.point.population, float)
        group, weights = self.group, np.asarray(problem.weights, float)
        prior = np.exp(-2 * population[group, 1])
        precision = np.maximum(1 / variance - prior, LEAST_PRECISION)
        weighted = theta / variance - population[group, 0] * prior
        # Subjects with equal features share a row; a row of weight w stands for w subjects.
        rows = np.repeat(np.arange(len(group)), np.round(weights).astype(int))
        data = NormalData(precision[rows], weighted[rows])
        self.subject = regress(
            x[group[rows]], data, self.subject_layout, reml=False, start=self.subject
        )
        mean = self.subject.mean(x)
        share = self.weights / self.weights.sum()
        self.mean = float(share @ mean)
        spread = float(share @ (mean - self.mean) ** 2)
        self.sd = float(np.sqrt(spread + self.subject.residual_sd**2))
        if self.free_scale and self.n_rounds > FULL_ROUNDS:
            self.mean, self.sd = self.mean / 2, float(np.sqrt(self.sd))
        log_sd = np.full_like(mean, np.log(self.subject.residual_sd))
        params = self.ended.point.params
        if self.free_scale:
            # `move_items` takes explained items to the new scale.
            params = params if self.explained else self._rescaled(params)
            self._rescale_priors()
            mean, log_sd = (mean - self.mean) / self.sd, log_sd - np.log(self.sd)
        least = np.log(LEAST_SHARE * np.hypot(np.exp(log_sd[0]), np.sqrt(share @ mean**2)))
        self.is_held, log_sd = bool(log_sd[0] < least), np.maximum(log_sd, least)
        new = jnp.asarray(np.stack([mean, log_sd], axis=1), problem.dtype)
        self.ended = self.ended._replace(point=EMPoint(params, new))

    def _rescaled(self, params: Any) -> Any:
        """The items on the scale on which all subjects have mean 0 and SD 1."""
        mean, sd = (jnp.asarray(value, self.problem.dtype) for value in (self.mean, self.sd))
        return _rescaled(self.problem.template, params, self.problem.constraints.free, mean, sd)

    def _rescale_priors(self) -> None:
        """The means of the items' priors on that scale, and their SDs."""
        old, columns = self.problem.constraints, list(self.explained.values())
        if not columns:
            return
        params = np.array(self.ended.point.params, float)
        params[:, columns] = np.asarray(old.prior_mean, float)[:, columns]
        mean, precision = np.array(old.prior_mean), np.array(old.prior_precision)
        mean[:, columns] = np.asarray(self._rescaled(jnp.asarray(params, self.problem.dtype)))[
            :, columns
        ]
        if "slope" in self.explained:
            precision[:, self.explained["slope"]] /= self.sd**2
        mean[precision == 0] = 0.0
        self.problem = self.problem._replace(
            constraints=old._replace(
                prior_mean=jax.device_put(mean), prior_precision=jax.device_put(precision)
            )
        )

    def targets(self) -> FloatArray:
        """Prior means in SDs: what must no longer change."""
        parts: list[FloatArray] = []
        if self.features.subject is not None:
            mean, log_sd = np.asarray(self.ended.point.population, float).T
            parts += [(mean * np.exp(-log_sd))[self.weights > 0], log_sd[:1]]
        elif not self.free_scale:
            parts += [np.array([self.mean, np.log(self.sd)])]
        for name, column in self.explained.items():
            mean = np.asarray(self.problem.constraints.prior_mean, float)[:, column]
            regression = self.items[name]
            assert self.features.item is not None
            x = self.features.item[1]
            rows = np.linspace(0, len(x) - 1, min(len(x), SAMPLED_ROWS)).astype(int)
            variance = regression.residual_sd**2
            if len(regression.covariance):  # wide tables leave it out, which is stricter
                variance += float(regression.variance(x[rows]).mean())
            parts += [mean / np.sqrt(variance)]
            if self.features.has_residual:
                parts += [np.log([regression.residual_sd])]
        return np.concatenate(parts)

    def run(self, settings: Settings, progress: Progress | None) -> None:
        """Iterate to convergence."""
        before, is_last, change = None, False, np.inf
        settings = settings._replace(expand=self.free_scale)
        quick = settings._replace(max_iterations=QUICK_ITERATIONS)
        n_iterations = self.ended.ending.n_iterations
        state = EMState.of(self.ended.point, self.ended.belief)
        for self.n_rounds in range(1, MOST_ROUNDS + 1):
            old = self.problem.constraints
            if self.features.item is not None:
                self.data = self.item_data()
                self.regress_items()
            self.regress_subjects()
            if self.features.item is not None:
                self.move_items(old)
            targets = self.targets()
            if before is not None:
                change = float(np.abs(targets - before).max())
                enough = TOLERANCE if self.n_rounds <= MANY_ROUNDS else LOOSE
                is_last = change < max(enough, settings.tolerance)
            before = targets
            state = EMState.of(self.ended.point, self.ended.belief)
            if not is_covered(self.problem, state.point):
                self.problem, state = recentred(self.problem, state, 1.1)
            near = is_last or change < NEAR
            self.ended = run_em(self.problem, state, settings if near else quick, progress)
            n_iterations += self.ended.ending.n_iterations
            if not self.explained and not self.ended.ending.converged:
                image = self.ended.update.plain.params
                self.ended = self.ended._replace(point=self.ended.point._replace(params=image))
            if is_last or self.ended.ending.outcome is Outcome.INTERRUPTED:
                break
        ending = self.ended.ending._replace(n_iterations=n_iterations)
        if not (is_last and ending.converged) and ending.outcome is not Outcome.INTERRUPTED:
            ending = ending._replace(outcome=Outcome.OUT_OF_ROUNDS)
        self.ended = self.ended._replace(ending=ending)
        if self.wide is not None:
            self.items = {name: self._regressed(name, True) for name in self.items}

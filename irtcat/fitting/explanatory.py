"""Explanatory item response models: what features of subjects and items say of them.

The ability of a subject and the parameters of an item are regressed on features (De Boeck & Wilson
2004: latent regression; the linear logistic test model with error). With features z of subjects
and w of items,

    theta_i ~ N(z_i' gamma, sigma^2),  d_j ~ N(w_j' delta, tau_d^2),  a_j ~ N(w_j' alpha, tau_a^2).

The likelihood is maximised in rounds. Each round fits the items by EM with these distributions as
the populations and the priors, then regresses on the features what the responses alone say: the
pseudo-data, whose Normal likelihood has the posterior's moments (subjects) or its mode and
curvature (items) once the Normal prior is divided out. A point that a round does not change is a
maximum of the marginal likelihood in gamma and sigma: both scores depend on posterior means and
variances only. For items it is the maximum of the likelihood after a Laplace approximation of the
integral over each item's parameters.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.checks import InputError, argument_error, brief
from irtcat._common.compilation import jit
from irtcat._common.types import FloatArray, IntArray
from irtcat.features import Design
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.driver import Ended, Settings, run_em
from irtcat.fitting.em.identification import is_covered, recentred, run_covered
from irtcat.fitting.em.iteration import EMPoint, EMState, Problem, StepRule
from irtcat.fitting.em.m_step import Constraints
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.setup import FitSetup
from irtcat.fitting.em.unidimensional_curvature import OneAbility
from irtcat.fitting.features.columns import FeatureRegression, Features, with_centred_levels
from irtcat.fitting.features.regression import (
    Column,
    NormalData,
    Regression,
    WideTable,
    regress,
    sample_size,
    wide_table,
)
from irtcat.fitting.outcome import Outcome
from irtcat.fitting.specification import Progress, Specification
from irtcat.latent import PopulationDesign
from irtcat.models import ItemModel, column_names, field_columns, pack, unpack

FIXED_SHARE = {"ability": 0.2, "intercept": 0.2, "location": 0.2, "slope": 0.0}
"""Columns of numbers have fixed coefficients up to this many per row, else random ones.

Measured on tasks that nobody tried (experiments/explanatory, GSO: 15 columns, 81 tasks, 15 agents):
random coefficients of the intercept lose .01 of AUC, fixed ones of the slope .14.
"""

LEAST_PRECISION, NARROWEST = 1e-6, 1e-6
"""Precision of a subject whose posterior is not narrower than the prior, and the SD of a posterior
below which only rounding is left."""

LEAST_SHARE = 0.1
"""Least residual SD, as a share of the SD of all subjects: the spacing of the quadrature nodes."""

HELD = (
    "The features explain all that the responses show of ability: the residual SD is held at a "
    "tenth of the SD of all subjects."
)

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

FIRST_ITERATIONS = 2
"""E-steps without features, from whose estimates the rounds begin."""

FULL_ROUNDS = 6
"""After so many rounds the scale moves half of the way: with few subjects and slopes without a
residual, scale and slopes may otherwise overshoot in turn."""

EXPLAINED = ("intercept", "location", "slope")
"""Parameters of items that features explain, where an item has one of each."""


def _explained_columns(template: ItemModel) -> dict[str, int]:
    """Columns of the parameters that features can explain."""
    columns = {name: field_columns(template, [name]) for name in EXPLAINED}
    return {name: at[0] for name, at in columns.items() if len(at) == 1}


def _layout(design: Design, n_rows: int, target: str, all_fixed: bool = False) -> Column:
    """Which blocks have fixed coefficients: few columns of numbers."""
    sizes = np.array([len(block.columns) for block in design.blocks])
    is_category = np.array([block.is_category for block in design.blocks])
    n_rows = sample_size(n_rows, int(sizes.sum()))
    fixed = ~is_category & (sizes <= FIXED_SHARE[target] * n_rows)
    return Column(design.block_of, fixed | all_fixed)


@dataclass(frozen=True)
class Explained:
    """The outcome of the rounds.

    Attributes:
        problem: the problem of the last round.
        ended: its EM.
        prior: the priors of the items in it.
        subject: regression of the abilities, on the scale of the iterations; None without features.
        items: regressions of the parameters of the items.
        centre: mean of the population of all subjects on the scale of ``subject``.
        unit: its SD there.
        mean: mean of that population on the scale of the items.
        sd: its SD there.
        columns: columns of these parameters.
        population: mean and log SD for each row of subject features, on the scale of the items.
        n_parameters: number of coefficients and SDs of the regression of the abilities, and of the
            coefficients that replace the parameters of items without residuals.
        note: a remark, or empty.
    """

    problem: Problem
    ended: Ended
    prior: PriorTable
    subject: Regression | None
    items: dict[str, Regression]
    columns: dict[str, int]
    centre: float
    unit: float
    mean: float
    sd: float
    population: FloatArray
    n_parameters: int
    note: str

    def fields(self, specification: Specification[Any], sign: int, factor: float) -> dict[str, Any]:
        """The fields of `Fit` that say what features explain, on the bank's scale.

        Args:
            specification: the arguments of the fit.
            sign: -1 where the scale is reversed.
            factor: slope that becomes 1 (Rasch).
        """
        features = specification.features
        fields: dict[str, Any] = {}
        assert features is not None
        if features.subject is not None and self.subject is not None:
            scale, unit = sign * factor / self.unit, np.exp(self.population[:, 1])
            regression = FeatureRegression(
                "ability", features.subject[0], self.subject, scale, -scale * self.centre
            )
            mean = sign * factor * self.population[:, 0]
            fields["subject_regression"] = regression
            fields["subject_prior"] = np.stack([mean, factor * unit])[:, features.codes]
        if features.item is not None:
            fields["facets"] = specification.facets
            design = features.item[0]
            fields["item_regressions"] = {
                name: FeatureRegression(
                    name, design, with_centred_levels(item, design), sign if name == "slope" else 1
                )
                for name, item in self.items.items()
            }
        return fields

    def with_uncertain_means(self, covariance: Covariance, features: Features) -> Covariance:
        """The covariance of the items when the means of their priors are estimates too.

        Where m are these means and V is their covariance, the posterior modes have the derivative
        ``S P`` in m, with S their covariance for known means and P the priors' precision, so that
        ``S P V P S`` is added (Morris 1983, JASA 78, 47-55, of empirical Bayes estimates).
        """
        if features.item is None or covariance.blocks is None:
            return covariance
        x = features.item[1]
        blocks, full = covariance.blocks, covariance.full
        precision = np.asarray(self.prior.constraints.prior_precision, float)
        n_items, n_params = precision.shape
        for name, column in self.columns.items():
            regression = self.items[name]
            weight = np.nan_to_num(covariance.blocks[:, :, column]) * precision[:, [column]]
            spread = weight[:, :, None] * weight[:, None, :]
            blocks = blocks + regression.variance(x)[:, None, None] * spread
            if covariance.full is not None and full is not None:
                at = np.arange(n_items) * n_params + column
                change = np.nan_to_num(covariance.full[:, at]) * precision[:, column]
                added = change @ regression.mean_covariance(x) @ change.T
                # Under a narrow prior the inverses are not quite symmetric.
                full = full + (added + added.T) / 2
        return covariance._replace(blocks=blocks, full=full)


@jit
def _rescaled(template: ItemModel, params: Array, free: Array, mean: Array, sd: Array) -> Array:
    """Free parameters on the scale on which abilities of this mean and SD have mean 0 and SD 1."""
    return jnp.where(free, pack(unpack(template, params).rescale(mean, sd)), params)


class _Rounds:
    """The rounds of a fit with features."""

    def __init__(
        self,
        problem: Problem,
        ended: Ended,
        features: Features,
        group: IntArray,
        share: float,
        free_scale: bool,
    ):
        self.features, self.share = features, share
        self.free_scale = free_scale
        self.names = column_names(problem.template)
        self.subject_matrix: FloatArray = np.zeros((1, 0))
        self.subject_layout = Column(np.zeros(0, int), np.zeros(0, bool))
        if features.subject is not None:
            self.subject_matrix = features.subject[1]
        n = len(self.subject_matrix)
        self.weights = np.bincount(group, np.asarray(problem.weights, float), n)
        dtype = problem.dtype
        self.group = group
        # Without subject features the one population is N(0, 1), as without any features.
        self.problem = problem._replace(
            group=None if features.subject is None else jax.device_put(group),
            population=PopulationDesign(1, 1, n_groups=n, is_known=True),
            step_rule=StepRule(),
        )
        population = jnp.zeros((n, 2), dtype)
        self.ended = ended._replace(point=EMPoint(ended.point.params, population))
        self.subject: Regression | None = None
        self.items: dict[str, Regression] = {}
        self.item_layouts: dict[str, Column] = {}
        self.pseudo_data: dict[str, NormalData] = {}
        self.wide: WideTable | None = None
        if features.subject is not None:
            has_rows = int((self.weights > 0).sum())
            self.subject_layout = _layout(features.subject[0], has_rows, "ability")
        if features.item is not None:
            design, x = features.item
            all_fixed = not features.has_residual
            for name in self.explained:
                self.item_layouts[name] = _layout(design, len(x), name, all_fixed)
            self.wide = wide_table(x)
        self.mean, self.sd, self.n_rounds = 0.0, 1.0, 0
        self.is_held = False
        self.data: tuple[FloatArray, FloatArray] = (np.zeros((0, 0, 0)), np.zeros((0, 0)))

    @functools.cached_property
    def explained(self) -> dict[str, int]:
        """Columns of the item parameters that features explain."""
        if self.features.item is None:
            return {}
        columns, tied = _explained_columns(self.problem.template), self.problem.tied
        return {name: column for name, column in columns.items() if column not in tied}

    @functools.cached_property
    def untied(self) -> list[int]:
        """Columns of the parameters that items do not share."""
        return [p for p in range(len(self.names)) if p not in self.problem.tied]

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


def explain(
    setup: FitSetup,
    features: Features,
    problem: Problem,
    state: EMState,
    share: float,
    settings: Settings,
    free_scale: bool,
) -> Explained:
    """Fit with features, from a few iterations without them.

    Args:
        setup: what is fitted.
        features: the features.
        problem: the problem without features.
        state: its first state.
        share: share of the responses that are observed.
        settings: stopping rule and options of EM.
        free_scale: whether the scale is that of the subjects.

    Returns:
        The fit.
    """
    prior, progress = setup.prior, setup.data.specification.progress
    first = settings._replace(max_iterations=min(FIRST_ITERATIONS, settings.max_iterations))
    problem, ended = run_covered(problem, state, first, progress, None)
    rounds = _Rounds(problem, ended, features, setup.data.rows.group, share, free_scale)
    rounds.run(settings, progress)
    description, no_items = dict(prior.description), np.zeros_like(prior.sparse)
    for name, regression in rounds.items.items():
        description[name] = f"regression on features, residual SD {regression.residual_sd:.3g}"
    if features.item is not None:
        prior = prior._replace(
            constraints=rounds.problem.constraints,
            sparse=no_items,
            aside=no_items,
            scaled=False,
            description=description,
        )
    moments, standard = (rounds.mean, rounds.sd), (0.0, 1.0)
    (mean, sd), (centre, unit) = (standard, moments) if free_scale else (moments, standard)
    n_parameters = 0
    if features.item is not None and not features.has_residual:
        informed = prior.informed.copy()
        x = np.insert(features.item[1], 0, 1.0, axis=1)
        for column in rounds.explained.values():
            n_parameters += int(np.linalg.matrix_rank(x[informed[:, column]]))
            informed[:, column] = False
        prior = prior._replace(informed=informed)
    if features.subject is not None and rounds.subject is not None:
        # The intercept and the residual SD define the scale where it is free.
        layout = rounds.subject.layout
        n_parameters = int(layout.fixed[layout.block].sum() + (~layout.fixed).sum())
        n_parameters += 0 if free_scale else 2
    return Explained(
        problem=rounds.problem,
        ended=rounds.ended,
        prior=prior,
        subject=None if features.subject is None else rounds.subject,
        items=rounds.items,
        columns=rounds.explained,
        centre=centre,
        unit=unit,
        mean=mean,
        sd=sd,
        population=np.asarray(rounds.ended.point.population, float),
        n_parameters=n_parameters,
        note=HELD if rounds.is_held else "",
    )


def check_explained(template: ItemModel, prior: PriorTable) -> None:
    """Reject models and priors that item features do not go with.

    Raises:
        InputError: for a model without one intercept an item, or priors on what features explain.
    """
    if template.members or not set(_explained_columns(template)) - {"slope"}:
        must = "left out with models that have several intercepts an item"
        advice = "Fit graded items by 'graded' or 'rsm'."
        raise argument_error("item_features", must, f"a {template.key} model", advice)
    stated = [name for name in EXPLAINED if name in prior.description]
    if stated:
        raise InputError(
            f"The `priors` argument must be without {stated[0]} where item_features explain it. "
            f"Got {brief(prior.description[stated[0]])}."
        )

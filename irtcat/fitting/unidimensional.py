"""Marginal maximum likelihood by EM, from responses to a `Fit`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.fitting.assembly import Estimates, Latent, fit_of
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.curvature import OneAbility, covariance_of
from irtcat.fitting.em.directions import MOST_ITEMS, MOST_ROWS, highest_start, item_directions
from irtcat.fitting.em.driver import Ended, Settings, checkpoint_of, loop_settings
from irtcat.fitting.em.identification import (
    best_latent,
    first_population,
    fixes_the_scale,
    is_covered,
    populations,
    recentred,
    reflected,
    run_covered,
    start_on_scale,
    with_ties,
)
from irtcat.fitting.em.iteration import EMState, Problem, StepRule, run_e_step
from irtcat.fitting.em.padding import ItemFill
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.rows import Rows
from irtcat.fitting.em.setup import FitData, FitSetup, read_data, set_up
from irtcat.fitting.em.start import Start, further_start, points_of
from irtcat.fitting.em.steep_items import steep_likelihood
from irtcat.fitting.explanatory import (
    FIRST_ITERATIONS,
    Explained,
    check_explained,
    explain,
    with_uncertain_means,
)
from irtcat.fitting.features.columns import FeatureRegression, with_centred_levels
from irtcat.fitting.outcome import Ending, Outcome
from irtcat.fitting.problem.groups import group_table, populations_by_group
from irtcat.fitting.result import Fit
from irtcat.fitting.solvers import EM
from irtcat.fitting.specification import Specification
from irtcat.io.source import ResponseSource
from irtcat.latent import LIMIT, LayoutPlan, LineQuadrature, PopulationDesign, RowBlock
from irtcat.latent.line import N_NODES
from irtcat.models import STANDARD_FORM, ItemModel, field_columns, pack, unpack
from irtcat.responses import Responses

POPULATION_ROUNDS, CLOSE = 30, 1e-4
ABOVE = 1e-6
NARROWEST, FARTHEST = 0.05, 5.0
"""Smallest SD and largest mean of a population; beyond these almost all subjects answered alike."""


class _Begun(NamedTuple):
    """A problem with the state of its best start.

    Attributes:
        problem: the problem.
        state: its first state.
        settings: of the iterations.
        start: the starting values of the first start.
        note: which start was chosen, if not the first.
        fixes_scale: whether fixed or shared parameters fix the scale.
    """

    problem: Problem
    state: EMState
    settings: Settings
    start: Start
    note: str
    fixes_scale: bool


class _Reached(NamedTuple):
    """Where the iterations ended.

    Attributes:
        problem: the problem in its last form.
        ended: the end of the iterations.
        prior: the priors of the items.
        latent: the population of all subjects on the scale of the items.
        best: the population that fits best with these items; NaN where the scale is fixed.
        explained: what features say; None without any.
    """

    problem: Problem
    ended: Ended
    prior: PriorTable
    latent: Latent
    best: Latent
    explained: Explained | None


def _too_narrow(problem: Problem, ended: Ended) -> IntArray:
    """Numbers of the groups whose population is narrower than the spacing of the nodes."""
    spacing = problem.rule.place[1] * 2 * LIMIT / (N_NODES - 1)
    return np.flatnonzero(np.exp(np.asarray(ended.point.population, float)[:, 1]) < spacing)


def _sign(template: ItemModel, ended: Ended, score: FloatArray) -> int:
    """-1 where the scale must be reversed, so that higher ability means more right answers."""
    mean = ended.belief.on_line()[0]
    slopes = field_columns(template, ["slope"])
    upright = not slopes or (mean - mean.mean()) @ (score - score.mean()) >= 0
    return 1 if upright else -1


def _population(problem: Problem, ended: Ended) -> tuple[Latent, Ended]:
    """Estimate the population where the priors fixed the scale.

    EM for the mean and SD of the abilities with the items held fixed: each round rescales the items
    to the current population. Also returns the E-step under that population.
    """
    latent, first = Latent(), ended
    model = unpack(problem.template, ended.point.params)
    state = EMState.of(ended.point, ended.belief)
    for _ in range(POPULATION_ROUNDS):
        mean, sd = (jnp.asarray(value, problem.dtype) for value in latent)
        moved = problem.start(pack(model.rescale(mean, sd)))
        _, belief = run_e_step(problem, state._replace(point=moved), 0.1, 0, False)
        ended = ended._replace(belief=belief)
        state = EMState.of(moved, belief)
        new, moved_by = _next_latent(latent, *best_latent(problem, ended))
        if new is None:
            return Latent(), first
        latent = new
        if moved_by < CLOSE:
            break
    return latent, ended


def _group_populations(problem: Problem, ended: Ended) -> tuple[Problem, Ended]:
    """The same of several groups: the population of each, the reference's too."""
    first = problem, ended
    n_groups = problem.population.n_groups
    for _ in range(POPULATION_ROUNDS):
        mean, log_sd = np.asarray(ended.point.population, float).T
        steps = [
            _next_latent(Latent(m, s), *best_latent(problem, ended, group), np.exp(log_sd).max())
            for group, m, s in zip(range(n_groups), mean, np.exp(log_sd), strict=True)
        ]
        found = np.array([new for new, _ in steps if new is not None])
        if len(found) < n_groups:
            return first
        population = jnp.asarray(
            np.stack([found[:, 0], np.log(found[:, 1])], axis=1), problem.dtype
        )
        point = ended.point._replace(population=population)
        state = EMState.of(point, ended.belief)
        if not is_covered(problem, point):
            problem, state = recentred(problem, state, 1.1)
        update, belief = run_e_step(problem, state, 0.1, 0, False)
        ended = ended._replace(point=point, belief=belief, update=update)
        if max(moved_by for _, moved_by in steps) < CLOSE:
            break
    return problem, ended


def _next_latent(
    latent: Latent, shift: float, factor: float, widest: float = 1.0
) -> tuple[Latent | None, float]:
    """The population after a step, and its length; None where it is not determined.

    Nearly equal subjects do not determine a population, whose mean may be `FARTHEST` SDs of the
    widest one from 0.
    """
    factor = float(np.clip(factor, 0.5, 2.0))
    new = Latent(latent.mean + latent.sd * shift, latent.sd * factor)
    if not np.isfinite(new).all() or new.sd < NARROWEST or abs(new.mean) > FARTHEST * widest:
        return None, np.inf
    return new, max(abs(shift), abs(factor - 1))


def _count_aside(problem: Problem, ended: Ended) -> Ended:
    """The E-step with all items, including those that were set aside."""
    state = EMState.of(ended.point, ended.belief)
    update, belief = run_e_step(problem.of_all_items(), state, 0.1, 0, False)
    return ended._replace(belief=belief, update=update)


def _problem(data: FitData, setup: FitSetup, dtype: np.dtype) -> Problem:
    """Everything that is constant during the iterations."""
    rows, prior, engine = data.rows, setup.prior, data.engine
    size, n_groups = dtype.itemsize, None if data.grouping is None else len(data.grouping.labels)
    plan = engine.make_plan(size) if engine else LayoutPlan(*rows.shape, size)
    weights, item_weights, group = jax.device_put(
        (
            rows.weights.astype(dtype),
            (~prior.aside).astype(dtype),
            None if n_groups is None else rows.group,
        )
    )
    n = len(rows.weights)
    x: Any = setup.x
    everyone = RowBlock(slice(0, n), x, weights, np.zeros(n, np.int32))
    return Problem(
        template=setup.template,
        blocks=lambda: [everyone],
        x=setup.x,
        weights=weights,
        item_weights=item_weights,
        has_missing=rows.has_missing,
        constraints=prior.constraints,
        tied=setup.tied,
        rule=LineQuadrature(plan),
        population=PopulationDesign(1, 1, n_groups=n_groups or 1, first_is_free=bool(n_groups)),
        step_rule=StepRule(scaled=prior.scaled),
        group=group,
        fill=ItemFill(len(prior.aside), n if engine is None else np.inf),
        engine=engine,
        squares=None if rows.squares is None else jax.device_put(rows.squares.astype(dtype)),
    )


def _may_have_modes(problem: Problem, specification: Specification[EM]) -> bool:
    """Whether other starts are tried: items have free slopes and a free scale."""
    slopes = set(field_columns(problem.template, ["slope"]))
    small = problem.engine is None and len(problem.item_weights) <= MOST_ITEMS
    has_free_slopes = bool(slopes - set(problem.tied))
    return small and has_free_slopes and specification.start == 0 and specification.anchors is None


def _other_starts(
    guess: Callable[..., Start], rows: Rows, categories: IntArray, counting: BoolArray
) -> list[Start]:
    """Starts from other weightings of the items, where the likelihood may have several modes."""
    stride = -(-len(rows.x) // MOST_ROWS)
    points, observed = points_of(rows.x[::stride], categories)
    shares = points / np.maximum(observed, 1)  # of trials, where there are several
    directions = item_directions(shares, 1.0 * (observed > 0), rows.weights[::stride], counting)
    return [guess(direction=direction) for direction in directions]


def _regressions(
    explained: Explained, specification: Specification[EM], sign: int, factor: float
) -> dict[str, Any]:
    """The fields of `Fit` that say what features explain, on the bank's scale.

    Args:
        explained: the rounds.
        specification: the arguments of the fit.
        sign: -1 where the scale is reversed.
        factor: slope that becomes 1 (Rasch).
    """
    features = specification.features
    fields: dict[str, Any] = {}
    assert features is not None
    if features.subject is not None and explained.subject is not None:
        scale, unit = sign * factor / explained.unit, np.exp(explained.population[:, 1])
        regression = FeatureRegression(
            "ability", features.subject[0], explained.subject, scale, -scale * explained.centre
        )
        mean = sign * factor * explained.population[:, 0]
        fields["subject_regression"] = regression
        fields["subject_prior"] = np.stack([mean, factor * unit])[:, features.codes]
    if features.item is not None:
        fields["facets"] = specification.facets
        design = features.item[0]
        fields["item_regressions"] = {
            name: FeatureRegression(
                name, design, with_centred_levels(item, design), sign if name == "slope" else 1
            )
            for name, item in explained.items.items()
        }
    return fields


def _begin(data: FitData, setup: FitSetup, dtype: np.dtype) -> _Begun:
    """Choose the start with the highest objective."""
    specification, responses = data.specification, data.responses
    template, prior, tied, fixed = setup.template, setup.prior, setup.tied, setup.fixed
    start = further_start(setup.start, template, specification)
    known = None
    if setup.anchors is not None and isinstance(responses, Responses):
        known = first_population(setup.anchors.bank, responses, dtype)
    fixes_scale = fixes_the_scale(template, fixed, tied)
    problem = _problem(data, setup, dtype)
    # Groups under priors that fix the scale are fitted on the reference's scale from the start.
    expands = specification.solver.expand and not fixes_scale
    expands &= data.grouping is None or not prior.scaled
    settings = loop_settings(specification.solver, data.precision, expands)
    starts = [start]
    if _may_have_modes(problem, specification):
        starts += _other_starts(setup.guess, data.rows, data.categories, ~prior.aside)
    begun = []
    for one in starts:
        params = with_ties(prior.with_held(template, one.params), tied, prior.constraints)
        begun.append(start_on_scale(problem, one._replace(params=params), fixed, expands, known))
    problem, state, note = highest_start(begun, settings)
    return _Begun(
        problem=problem,
        state=state,
        settings=settings,
        start=start,
        note=note,
        fixes_scale=fixes_scale,
    )


def _iterate(data: FitData, setup: FitSetup, begun: _Begun, share: float) -> _Reached:
    """EM, and the rounds of the regressions on features."""
    specification, prior, settings = data.specification, setup.prior, begun.settings
    features, progress = specification.features, specification.progress
    stated = settings._asdict() | {"model": data.cls.key, "precision": data.precision}
    del stated["max_iterations"]
    solver = specification.solver
    checkpoint = checkpoint_of(begun.problem, data.rows, solver, stated, setup.fixed)
    first = settings
    if features is not None:
        first = settings._replace(max_iterations=min(FIRST_ITERATIONS, settings.max_iterations))
    problem, ended = run_covered(begun.problem, begun.state, first, progress, checkpoint)
    if features is not None:
        is_free = features.item is not None or not (prior.scaled or begun.fixes_scale)
        explained = explain(
            problem, ended, prior, features, data.rows.group, share, settings, progress, is_free
        )
        return _Reached(
            problem=explained.problem,
            ended=explained.ended,
            prior=explained.prior,
            latent=Latent(explained.mean, explained.sd),
            best=Latent(np.nan, np.nan),
            explained=explained,
        )
    is_free = setup.anchors is not None or not (prior.scaled or begun.fixes_scale)
    best = Latent(*best_latent(problem, ended)) if is_free else Latent(np.nan, np.nan)
    return _Reached(
        problem=problem, ended=ended, prior=prior, latent=Latent(), best=best, explained=None
    )


def _with_population(reached: _Reached, fixes_scale: bool) -> _Reached:
    """Count the items that were set aside, and estimate the population that priors have fixed."""
    problem, ended, prior, latent = reached[:4]
    scaled_by_priors = prior.scaled and (prior.sparse.any() or prior.few_subjects)
    if prior.aside.any():
        ended = _count_aside(problem, ended)
    elif scaled_by_priors and not fixes_scale and problem.group is None:
        latent, ended = _population(problem, ended)
    elif scaled_by_priors and not fixes_scale:
        problem, ended = _group_populations(problem, ended)
    means, log_sds = np.asarray(ended.point.population, float).T
    population = np.stack([means, np.exp(log_sds)])
    if problem.group is None:
        population = np.array([[latent.mean], [latent.sd]])
    ended = steep_likelihood(problem, ended, population)
    return reached._replace(problem=problem, ended=ended, latent=latent)


def _ending(data: FitData, reached: _Reached, log_likelihood: float) -> Ending:
    """The end of the iterations, not converged where the likelihood is not integrated."""
    most = ABOVE * data.rows.weights.sum()
    if log_likelihood > most and not data.cls.is_density:
        return reached.ended.ending._replace(outcome=Outcome.OFF_THE_GRID)
    narrow = _too_narrow(reached.problem, reached.ended)
    if data.grouping is not None and len(narrow):
        label = data.grouping.labels[narrow[0]]
        return reached.ended.ending._replace(outcome=Outcome.TOO_NARROW, group=label)
    return reached.ended.ending


def fit_em(
    responses: Responses | ResponseSource, cls: type[ItemModel], specification: Specification[EM]
) -> Fit:
    """Marginal maximum likelihood by EM (see `irtcat.fit`)."""
    if specification.anchors is not None and specification.equal:
        got = specification.equal
        raise argument_error("equal", "left out with anchors, which keep their own", got)
    data = read_data(responses, cls, specification)
    blank, features = data.blank(dims=1), specification.features
    with precision(data.precision) as dtype:
        setup = set_up(data, blank, dtype, positive=specification.positive)
        if features is not None and features.item is not None:
            check_explained(setup.template, setup.prior)
        begun = _begin(data, setup, dtype)
        share = _share_observed(data, blank, begun.start)
        reached = _with_population(_iterate(data, setup, begun, share), begun.fixes_scale)
        problem, ended, explained = reached.problem, reached.ended, reached.explained
        curvature = OneAbility(problem, ended.point, ended.belief, share)
        covariance = covariance_of(curvature, specification.standard_errors)
        if explained is not None and features is not None:
            covariance = with_uncertain_means(covariance, explained, features)
        sign = 1
        if np.isnan(setup.fixed).all():
            sign = _sign(setup.template, ended, begun.start.mean)
    return _fitted(data, setup, begun, reached, covariance, sign)


def _share_observed(data: FitData, blank: ItemModel, start: Start) -> float:
    """The share of the cells (of the trials, where those are counted) that are observed."""
    most = getattr(blank, "trials", 1.0)
    return float((start.item_n / most).sum() / (data.rows.weights.sum() * data.rows.x.shape[1]))


def _fitted(
    data: FitData,
    setup: FitSetup,
    begun: _Begun,
    reached: _Reached,
    covariance: Covariance,
    sign: int,
) -> Fit:
    """The `Fit`, on the bank's scale: reversed where ``sign`` is -1."""
    cls, rows, grouping = data.cls, data.rows, data.grouping
    problem, ended, explained = reached.problem, reached.ended, reached.explained
    slopes = field_columns(setup.template, ["slope"])
    params = np.asarray(ended.point.params, float)
    if sign < 0:
        params, covariance = reflected(params, slopes, covariance)
    table, bank = None, {}
    if grouping is not None:
        common = slopes[0] if cls in STANDARD_FORM else None
        values, errors = (
            dict(zip(("mean", "sd"), numbers, strict=True))
            for numbers in populations(ended.point, sign, covariance, common)
        )
        n = np.bincount(rows.group, rows.weights, len(grouping.labels)).astype(float)
        table = group_table(grouping, n, values, errors)
        bank["populations"] = populations_by_group(grouping, n, **values)
    regressions: dict[str, Any] = {}
    if explained is not None:
        factor = float(params[:, slopes].mean()) if cls in STANDARD_FORM else 1.0
        regressions = _regressions(explained, data.specification, sign, factor)
    log_likelihood = float(rows.weights @ np.asarray(ended.belief.log_z, float))
    estimates = Estimates(
        blank=data.blank(dims=1),
        categories=data.categories,
        params=params,
        covariance=covariance,
        start=begun.start,
        prior=reached.prior,
        tied=problem.tied,
        at_bound=ended.at_bound,
        ending=_ending(data, reached, log_likelihood),
        log_likelihood=log_likelihood,
        log_posterior=log_likelihood + float(ended.update.log_prior),
        n_subjects=rows.n_subjects,
        n_further=problem.population.size + (0 if explained is None else explained.n_parameters),
    )
    return fit_of(
        data.responses,
        cls,
        estimates,
        method="em",
        precision=data.precision,
        standard_errors=covariance.how,
        latent=reached.latent._replace(mean=sign * reached.latent.mean),
        bank=bank,
        anchors=setup.anchors,
        latent_mean=reached.best.mean,
        latent_sd=reached.best.sd,
        groups=table,
        grouping=grouping,
        notes=(begun.note, ended.note, "" if explained is None else explained.note),
        **regressions,
    )

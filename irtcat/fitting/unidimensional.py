"""Marginal maximum likelihood by EM, from responses to a `Fit`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.checks import argument_error
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.fitting.assembly import (
    Latent,
    bank_of,
    fit_of,
    item_states,
    item_statistics,
    n_parameters,
)
from irtcat.fitting.em.checkpoint import Checkpoint, Identity, digest
from irtcat.fitting.em.curvature import OneAbility, covariance_of
from irtcat.fitting.em.directions import MOST_ITEMS, MOST_ROWS, highest_start, item_directions
from irtcat.fitting.em.driver import Ended, Settings
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
    with_anchors,
    with_ties,
)
from irtcat.fitting.em.iteration import EMProblem, EMState, run_e_step
from irtcat.fitting.em.options import Options, loop_settings
from irtcat.fitting.em.padding import ItemFill
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.rows import Rows
from irtcat.fitting.em.setup import read_data, set_up
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
from irtcat.fitting.problem.groups import group_table, populations_by_group
from irtcat.fitting.problem.uncategorised import share_at_edge
from irtcat.fitting.result import Fit
from irtcat.io.source import ResponseSource
from irtcat.latent import LIMIT, LayoutPlan
from irtcat.latent.line import N_NODES
from irtcat.models import (
    STANDARD_FORM,
    Beta,
    Binomial,
    ItemModel,
    column_names,
    field_columns,
    pack,
    unpack,
)
from irtcat.responses import Responses

POPULATION_ROUNDS, CLOSE = 30, 1e-4
ABOVE = 1e-6
IMPOSSIBLE = (
    "Not converged: the log-likelihood is above 0, which is impossible for categories: "
    "a population or an item has moved beyond the quadrature grid. Keep the weak "
    "priors, or leave out items that a group answered alike."
)
NOT_INTEGRATED = (
    "Not converged: the population of group {!r} is narrower than the spacing of the quadrature "
    "nodes, so that the log-likelihood is not right. Keep the weak priors, "
    "or leave out items that a group answered alike."
)
NARROWEST, FARTHEST = 0.05, 5.0
"""Smallest SD and largest mean of a population; beyond these almost all subjects answered alike."""


def _too_narrow(problem: EMProblem, ended: Ended) -> IntArray:
    """Numbers of the groups whose population is narrower than the spacing of the nodes."""
    unit = 1.0 if problem.transform is None else float(problem.transform.sd)
    spacing = unit * 2 * LIMIT / (N_NODES - 1)
    return np.flatnonzero(np.exp(np.asarray(ended.point.population, float)[1]) < spacing)


def _sign(template: ItemModel, ended: Ended, score: FloatArray) -> int:
    """-1 where the scale must be reversed, so that higher ability means more right answers."""
    mean = np.asarray(ended.belief.mean, float)
    slopes = field_columns(template, ["slope"])
    upright = not slopes or (mean - mean.mean()) @ (score - score.mean()) >= 0
    return 1 if upright else -1


def _population(problem: EMProblem, ended: Ended) -> tuple[Latent, Ended]:
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


def _group_populations(problem: EMProblem, ended: Ended) -> tuple[EMProblem, Ended]:
    """The same of several groups: the population of each, the reference's too."""
    first = problem, ended
    n_groups = len(problem.held)
    for _ in range(POPULATION_ROUNDS):
        mean, log_sd = np.asarray(ended.point.population, float)
        steps = [
            _next_latent(Latent(m, s), *best_latent(problem, ended, group), np.exp(log_sd).max())
            for group, m, s in zip(range(n_groups), mean, np.exp(log_sd), strict=True)
        ]
        found = np.array([new for new, _ in steps if new is not None])
        if len(found) < n_groups:
            return first
        population = jnp.asarray(np.stack([found[:, 0], np.log(found[:, 1])]), problem.dtype)
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


def _count_aside(problem: EMProblem, ended: Ended) -> Ended:
    """The E-step with all items, including those that were set aside."""
    everyone = problem._replace(item_weights=jax.device_put(np.ones_like(problem.item_weights)))
    state = EMState.of(ended.point, ended.belief)
    update, belief = run_e_step(everyone, state, 0.1, 0, False)
    return ended._replace(belief=belief, update=update)


def _problem(
    rows: Rows,
    prior: PriorTable,
    template: ItemModel,
    x: Array | None,
    dtype: np.dtype,
    engine: Any,
    n_groups: int | None,
    tied: tuple[int, ...],
) -> EMProblem:
    """Everything that is constant during the iterations."""
    size = dtype.itemsize
    plan = engine.make_plan(size) if engine else LayoutPlan(*rows.shape, size)
    weights, item_weights, group, held = jax.device_put(
        (
            rows.weights.astype(dtype),
            (~prior.aside).astype(dtype),
            None if n_groups is None else rows.group,
            np.full(n_groups or 1, n_groups is None),
        )
    )
    return EMProblem(
        template=template,
        x=x,
        weights=weights,
        item_weights=item_weights,
        has_missing=rows.has_missing,
        constraints=prior.constraints,
        tied=tied,
        plan=plan,
        dtype=dtype,
        group=group,
        held=held,
        scaled=prior.scaled,
        fill=ItemFill(len(prior.aside), len(rows.weights) if engine is None else np.inf),
        engine=engine,
    )


def _may_have_modes(problem: EMProblem, options: Options) -> bool:
    """Whether other starts are tried: items have free slopes and a free scale."""
    slopes = set(field_columns(problem.template, ["slope"]))
    small = problem.engine is None and len(problem.item_weights) <= MOST_ITEMS
    has_free_slopes = bool(slopes - set(problem.tied))
    return small and has_free_slopes and options.start == 0 and options.anchors is None


def _other_starts(
    guess: Callable[..., Start], rows: Rows, categories: IntArray, counting: BoolArray
) -> list[Start]:
    """Starts from other weightings of the items, where the likelihood may have several modes."""
    stride = -(-len(rows.x) // MOST_ROWS)
    points, observed = points_of(rows.x[::stride], categories)
    shares = points / np.maximum(observed, 1)  # of trials, where there are several
    directions = item_directions(shares, 1.0 * (observed > 0), rows.weights[::stride], counting)
    return [guess(direction=direction) for direction in directions]


def _checkpoint(
    problem: EMProblem,
    cls: type[ItemModel],
    settings: Settings,
    options: Options,
    rows: Rows,
    known: FloatArray,
) -> Checkpoint | None:
    """The checkpoint of the fit, if one is written."""
    if options.checkpoint is None:
        return None
    arrays = (problem.template, problem.item_weights, problem.constraints, problem.held, known)
    stated = settings._asdict() | {"model": cls.key, "precision": problem.dtype.name}
    del stated["max_iterations"]
    data = problem.engine.data if problem.engine else digest(rows.x, rows.weights)
    identity = Identity(
        data, digest(arrays, problem.transform, problem.tied, problem.group), stated
    )
    return Checkpoint(options.checkpoint, options.resume, identity)


def _regressions(
    explained: Explained, options: Options, sign: int, factor: float
) -> dict[str, Any]:
    """The fields of `Fit` that say what features explain, on the bank's scale.

    Args:
        explained: the rounds.
        options: the arguments of the fit.
        sign: -1 where the scale is reversed.
        factor: slope that becomes 1 (Rasch).
    """
    features = options.features
    fields: dict[str, Any] = {}
    assert features is not None
    if features.subject is not None and explained.subject is not None:
        scale, unit = sign * factor / explained.unit, np.exp(explained.population[1])
        regression = FeatureRegression(
            "ability", features.subject[0], explained.subject, scale, -scale * explained.centre
        )
        mean = sign * factor * explained.population[0]
        fields["subject_regression"] = regression
        fields["subject_prior"] = np.stack([mean, factor * unit])[:, features.codes]
    if features.item is not None:
        fields["facets"] = options.facets
        design = features.item[0]
        fields["item_regressions"] = {
            name: FeatureRegression(
                name, design, with_centred_levels(item, design), sign if name == "slope" else 1
            )
            for name, item in explained.items.items()
        }
    return fields


def fit_em(responses: Responses | ResponseSource, cls: type[ItemModel], options: Options) -> Fit:
    """Marginal maximum likelihood by EM (see `irtcat.fit`)."""
    if options.anchors is not None and options.equal:
        raise argument_error("equal", "left out with anchors, which keep their own", options.equal)
    data = read_data(responses, cls, options)
    rows, categories, grouping = data.rows, data.categories, data.grouping
    name, blank = data.precision, data.blank(dims=1)
    with precision(name) as dtype:
        setup = set_up(data, blank, dtype, positive=options.positive)
        template, tied, prior = setup.template, setup.tied, setup.prior
        anchors, held = setup.anchors, setup.fixed
        if options.features is not None and options.features.item is not None:
            check_explained(template, prior)
        start = further_start(setup.start, template, options)
        known = None
        if anchors is not None and isinstance(responses, Responses):
            known = first_population(anchors.bank, responses, dtype)
        fixed_scale = fixes_the_scale(template, held, tied)
        n_groups = None if grouping is None else len(grouping.labels)
        problem = _problem(rows, prior, template, setup.x, dtype, data.engine, n_groups, tied)
        # Groups under priors that fix the scale are fitted on the reference's scale from the start.
        free_scale = options.expand and (grouping is None or not prior.scaled) and not fixed_scale
        settings = loop_settings(options, name, free_scale)

        def begin(start: Start) -> tuple[EMProblem, EMState]:
            first = with_ties(prior.with_held(template, start.params), tied, prior.constraints)
            return start_on_scale(problem, start._replace(params=first), held, free_scale, known)

        others: list[Start] = []
        if _may_have_modes(problem, options):
            others = _other_starts(setup.guess, rows, categories, ~prior.aside)
        problem, state, note = highest_start(
            [begin(start_values) for start_values in (start, *others)], settings
        )
        checkpoint = _checkpoint(problem, cls, settings, options, rows, held)
        first = settings
        if options.features is not None:
            first = settings._replace(max_iterations=min(FIRST_ITERATIONS, settings.max_iterations))
        problem, ended = run_covered(problem, state, first, options.progress, checkpoint)
        most = blank.trials if isinstance(blank, Binomial) else 1.0
        share = float((start.item_n / most).sum() / (rows.weights.sum() * rows.x.shape[1]))
        latent, explained = Latent(), None
        if options.features is not None:
            is_free = options.features.item is not None or not (prior.scaled or fixed_scale)
            explained = explain(
                problem, ended, prior, options.features, rows.group, share, settings,
                options.progress, is_free,
            )  # fmt: skip
            problem, ended, prior = explained.problem, explained.ended, explained.prior
            latent = Latent(explained.mean, explained.sd)
        scale_is_free = anchors is not None or not (prior.scaled or fixed_scale)
        scale_is_free &= explained is None
        latent_mean, latent_sd = np.nan, np.nan
        if scale_is_free:
            latent_mean, latent_sd = best_latent(problem, ended)
        scaled_by_priors = prior.scaled and (prior.sparse.any() or prior.few_subjects)
        if prior.aside.any():
            ended = _count_aside(problem, ended)
        elif scaled_by_priors and not fixed_scale and problem.group is None:
            latent, ended = _population(problem, ended)
        elif scaled_by_priors and not fixed_scale:
            problem, ended = _group_populations(problem, ended)
        groups = np.asarray(ended.point.population, float)
        group_populations = np.stack([groups[0], np.exp(groups[1])])
        alone = np.array([[latent.mean], [latent.sd]])
        ended = steep_likelihood(
            problem, ended, alone if problem.group is None else group_populations
        )
        curvature = OneAbility(problem, ended.point, ended.belief, share)
        covariance = covariance_of(curvature, options.standard_errors)
        if explained is not None and options.features is not None:
            covariance = with_uncertain_means(covariance, explained, options.features)
        sign = 1 if not np.isnan(held).all() else _sign(template, ended, start.mean)
    names = column_names(template)
    slopes = field_columns(template, ["slope"])
    params = np.asarray(ended.point.params, float)
    if sign < 0:
        params, covariance = reflected(params, slopes, covariance)
    at_bound = np.zeros(params.shape, bool) if ended.at_bound is None else ended.at_bound
    states = item_states(prior, start, params, covariance.blocks, names, slopes, at_bound)
    if isinstance(blank, Beta):
        states["at_edge"] = share_at_edge(rows.x, blank.edge)
    statistics = item_statistics(responses, categories, start, states)
    latent = latent._replace(mean=sign * latent.mean)
    bank = bank_of(
        responses, cls, blank, params, covariance.blocks, covariance.full, latent, statistics
    )
    table = None
    if grouping is not None:
        common = slopes[0] if cls in STANDARD_FORM else None
        values, errors = populations(ended.point, sign, covariance, common)
        n = np.bincount(rows.group, rows.weights, len(grouping.labels)).astype(float)
        table = group_table(grouping, n, values, errors)
        bank = replace(bank, populations=populations_by_group(grouping, n, *values))
    if anchors is not None:
        bank = with_anchors(bank, anchors)
    regressions: dict[str, Any] = {}
    if explained is not None:
        factor = float(params[:, slopes].mean()) if cls in STANDARD_FORM else 1.0
        regressions = _regressions(explained, options, sign, factor)
    log_likelihood = float(rows.weights @ np.asarray(ended.belief.log_z, float))
    narrow = _too_narrow(problem, ended)
    if grouping is not None and len(narrow):
        text = NOT_INTEGRATED.format(grouping.labels[narrow[0]])
        ended = ended._replace(converged=False, message=text)
    if log_likelihood > ABOVE * rows.weights.sum() and not isinstance(blank, Beta):
        ended = ended._replace(converged=False, message=IMPOSSIBLE)
    return fit_of(
        responses,
        cls,
        bank,
        prior,
        method="em",
        n_subjects=int(rows.weights.sum()),
        log_likelihood=log_likelihood,
        log_posterior=log_likelihood + float(ended.update.log_prior),
        converged=ended.converged,
        n_iterations=ended.n_iterations,
        n_parameters=n_parameters(prior, problem.tied)
        + problem.n_latent
        + (0 if explained is None else explained.n_parameters),
        message=ended.message,
        standard_errors=covariance.how,
        precision=name,
        trace=ended.trace,
        latent_mean=latent_mean,
        latent_sd=latent_sd,
        groups=table,
        grouping=grouping,
        notes=tuple(filter(None, [note, "" if explained is None else explained.note])),
        **regressions,
    )

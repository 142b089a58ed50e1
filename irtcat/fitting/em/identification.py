"""What defines the scale of a fit: the only population, the reference group, or anchor items."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.compilation import jit
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.bank.item_states import with_states
from irtcat.fitting.em.checkpoint import Checkpoint
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.driver import Ended, Settings, run_em
from irtcat.fitting.em.iteration import EMPoint, EMState, Problem
from irtcat.fitting.em.m_step import Constraints
from irtcat.fitting.em.priors import scale_columns, ties_fix_the_scale
from irtcat.fitting.em.shared_parameters import averaged
from irtcat.fitting.em.start import Start
from irtcat.fitting.outcome import Outcome
from irtcat.fitting.problem.user_priors import FAMILIES
from irtcat.fitting.specification import Progress
from irtcat.latent import LIMIT, ScaleTransform
from irtcat.models import ItemModel, column_names, item_categories, pack, tied_parameters, unpack
from irtcat.responses import Responses
from irtcat.scoring import match, posterior, standardised

SAMPLE = 4_000_000
"""Maximum number of responses (minimum 100 subjects) used to guess the first population."""

GRID_SDS, NARROWEST = 6.0, 0.3
"""SDs that the grid reaches on either side of a population, and the smallest SD used for it."""

MAX_PLACEMENTS = 5
"""Maximum number of times that the grid is moved and EM is run again."""


@dataclass(frozen=True)
class Anchors:
    """Items whose parameters are fixed.

    Attributes:
        bank: the anchor items that occur in the responses.
        params: their unconstrained parameters, NaN in the rows of the other items.
    """

    bank: ItemBank
    params: FloatArray

    @property
    def known(self) -> BoolArray:
        """Which parameters are known."""
        return ~np.isnan(self.params)


def check_anchors(bank: ItemBank, responses: Responses, cls: type[ItemModel]) -> ItemBank:
    """Anchor items that occur in the responses, in the arrays of the model.

    Raises:
        InputError: for a model whose items share their steps, other codes, or no item in common.
    """
    if "step" in tied_parameters(cls):
        advice = "Calibrate the items together, or link the banks afterwards."
        must = "left out for a model whose items share their steps"
        raise argument_error("anchors", must, f"a {cls.key} model", advice)
    codes = bank.codes or responses.codes
    if bank.model.n_categories > 2 and codes[0] != responses.codes[0]:
        must = f"in codes from {codes[0]} on, as the anchors are"
        advice = "Pass codes= to Responses.from_array."
        raise argument_error("responses", must, f"codes from {responses.codes[0]} on", advice)
    shared = np.isin(bank.item_ids, np.asarray(responses.item_ids, str))
    if shared.any():
        bank = bank.subset(shared)
        bank = bank.in_form_of(cls, int(item_categories(bank.model).max()))
    return match(bank, responses)[0]


def known_categories(
    bank: ItemBank, responses: Responses, observed_categories: IntArray
) -> IntArray:
    """Number of categories of each item; anchor items take theirs from the bank."""
    categories = observed_categories.copy()
    at = _item_columns(bank, responses)
    categories[at] = item_categories(bank.model)
    return categories


def _item_columns(bank: ItemBank, responses: Responses) -> IntArray:
    """Columns of the bank's items in the responses."""
    return pd.Index(np.asarray(responses.item_ids, str)).get_indexer(pd.Index(bank.item_ids))


def anchor_items(
    bank: ItemBank, responses: Responses, template: ItemModel, tied: tuple[int, ...]
) -> Anchors:
    """Parameters of the anchor items, in the rows of the responses' items."""
    names = list(column_names(template))
    params = np.full((responses.n_items, len(names)), np.nan)
    at = _item_columns(bank, responses)
    anchor_params = bank.parameters()
    columns = [names.index(name) for name in column_names(bank.model)]
    params[np.ix_(at, np.array(columns))] = (
        np.clip(anchor_params, -30.0, 30.0) if anchor_params.size else anchor_params
    )
    if tied:  # all items share the bank's slope
        unit = column_names(bank.model) != column_names(template)
        shared = [columns.index(column) for column in tied if column in columns]
        params[:, list(tied)] = 1.0 if unit else anchor_params[:, shared].mean()
    return Anchors(bank, params)


class ScaleMap(NamedTuple):
    """One scale in terms of another: z = mean + sd * theta."""

    mean: float
    sd: float


def first_population(bank: ItemBank, responses: Responses, dtype: np.dtype) -> ScaleMap:
    """Population mean and SD on the scale of the anchor items, by EM on a sample of subjects."""
    bank, matched = match(bank, responses)
    rows = np.flatnonzero(matched.observed.any(axis=1))
    if len(rows) == 0:
        return ScaleMap(bank.population.mean, bank.population.sd)
    most = max(100, SAMPLE // matched.n_items)
    x = matched.values[rows[:: -(-len(rows) // most)]]
    mean, sd = bank.population.mean, bank.population.sd
    model = standardised(bank)
    at, unit = mean, sd
    for _ in range(20):
        moved = model.rescale(jnp.asarray((mean - at) / unit), jnp.asarray(sd / unit))
        post = posterior(moved, x, True, dtype)
        centre = (post.weights * post.nodes).sum(1)
        variance = (post.weights * (post.nodes - centre[:, None]) ** 2).sum(1)
        shift, factor = centre.mean(), float(np.sqrt(centre.var() + variance.mean()))
        mean, sd = mean + sd * shift, max(sd * factor, 1e-3)
        if abs(shift) < 0.02 and abs(factor - 1) < 0.02:
            break
    return ScaleMap(float(mean), float(sd))


def _moved(problem: Problem, point: EMPoint, by: ScaleMap) -> tuple[Problem, EMPoint]:
    """Items, populations and grid on the scale theta, converted from the grid's scale z."""
    mean, sd = by
    transform = _as_transform(-mean / sd, 1 / sd, problem.dtype)
    point = _rescaled(problem.template, point, _as_transform(mean, sd, problem.dtype))
    return problem._replace(rule=problem.rule._replace(transform=transform)), point


@jit
def _rescaled(template: ItemModel, point: EMPoint, by: ScaleTransform) -> EMPoint:
    """Items and populations on the scale theta, from the scale z = mean + sd * theta."""
    params = pack(unpack(template, point.params).rescale(by.mean, by.sd))
    mean, log_sd = point.population.T
    return EMPoint(params, jnp.stack([(mean - by.mean) / by.sd, log_sd - jnp.log(by.sd)], 1))


def _by_group(theta: FloatArray, weights: FloatArray, group: IntArray, n: int) -> FloatArray:
    """Mean and log SD of the first guesses in each group."""
    total = np.bincount(group, weights, n)
    mean = np.bincount(group, weights * theta, n) / total
    square = np.bincount(group, weights * theta**2, n) / total
    return np.stack([mean, 0.5 * np.log(np.maximum(square - mean**2, 0.04))], axis=1)


def _as_transform(mean: Any, sd: Any, dtype: np.dtype) -> ScaleTransform:
    return ScaleTransform(
        jax.device_put(np.asarray(mean, dtype)), jax.device_put(np.asarray(sd, dtype))
    )


def recentred(problem: Problem, state: EMState, margin: float) -> tuple[Problem, EMState]:
    """Make the grid reach six SDs (times a margin) on either side of every population."""
    mean, log_sd = np.asarray(state.point.population, float).T
    reach = GRID_SDS * margin * np.maximum(np.exp(log_sd), NARROWEST)
    low, high = (mean - reach).min(), (mean + reach).max()
    centre, sd = (low + high) / 2, (high - low) / (2 * LIMIT)
    at, unit = problem.rule.place
    theta, spread = state.posteriors()
    moved = EMState.on_line(state.point, (at + unit * theta - centre) / sd, unit * spread / sd)
    transform = _as_transform(centre, sd, problem.dtype)
    return problem._replace(rule=problem.rule._replace(transform=transform)), moved


def with_ties(params: FloatArray, tied: tuple[int, ...], constraints: Constraints) -> FloatArray:
    """First guesses, made positive where required, and equal where items share a parameter."""
    params = params.copy()
    if constraints.family is not None:
        above = np.asarray(constraints.family) == FAMILIES.index("lognormal")
        params[above] = np.maximum(params[above], 0.2)
    return averaged(params, np.ones(params.shape, bool), tied, constraints.shared)


def fixes_the_scale(template: ItemModel, fixed: FloatArray, tied: tuple[int, ...]) -> bool:
    """Whether fixed or equal parameters fix the scale: no latent mean and SD can be removed."""
    known = ~np.isnan(fixed)
    if known.any() and known[:, list(scale_columns(template, np.nan_to_num(fixed)))].any():
        return True
    return ties_fix_the_scale(template, tied)


def is_covered(problem: Problem, point: EMPoint) -> bool:
    """Whether the grid reaches five SDs on either side of every population."""
    if problem.group is None:
        return True
    at, unit = problem.rule.place
    mean, log_sd = np.asarray(point.population, float).T
    ends = np.abs(np.stack([mean, mean]) + np.outer([-5, 5], np.exp(log_sd)) - at)
    return bool((ends <= LIMIT * unit).all())


def start_on_scale(
    problem: Problem, start: Start, fixed: FloatArray, free_scale: bool, known: ScaleMap | None
) -> tuple[Problem, EMState]:
    """Problem and first state on the scale of the iterations.

    Args:
        problem: the problem, its grid not yet placed.
        start: first guesses, on the scale of the pooled subjects.
        fixed: parameters that are known; NaN for the others.
        free_scale: whether the scale is that of the pooled subjects until the end (parameter
            expansion); otherwise it is the reference group's, or the anchors'.
        known: population on the anchors' scale; None without anchors.

    Returns:
        Problem and state; a problem without groups and anchors is unchanged.
    """
    first = np.where(np.isnan(fixed), start.params, fixed)
    if problem.group is None:
        return problem, EMState.on_line(problem.start(first), start.mean, start.sd)
    params = jax.device_put(first.astype(problem.dtype))
    weights, group = np.asarray(problem.weights, float), np.asarray(problem.group)
    population = _by_group(start.mean, weights, group, len(problem.held))
    point = EMPoint(params, jnp.asarray(population, problem.dtype))
    if free_scale:
        return problem, EMState.on_line(point, start.mean, start.sd)
    if known is None:
        problem, point = _with_standard_reference(problem, point)
    else:
        problem, point = _moved(problem, point, ScaleMap(-known.mean / known.sd, 1 / known.sd))
    values = np.nan_to_num(fixed).astype(problem.dtype)
    point = point._replace(params=jnp.where(np.isnan(fixed), point.params, values))
    return recentred(problem, EMState.on_line(point, start.mean, start.sd), 1.2)


def run_covered(
    problem: Problem,
    state: EMState,
    settings: Settings,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
) -> tuple[Problem, Ended]:
    """Iterate to convergence on the reported scale, on a grid that reaches every population.

    Where the estimates lie beyond the grid, the grid is moved and EM continues.
    """
    ended = run_em(problem, state, settings, progress, checkpoint)
    problem, ended = on_reference_scale(problem, ended)
    for _ in range(MAX_PLACEMENTS):
        if is_covered(problem, ended.point) or ended.ending.outcome is Outcome.INTERRUPTED:
            break
        problem, state = recentred(problem, EMState.of(ended.point, ended.belief), 1.1)
        continued = run_em(problem, state, settings._replace(expand=False), progress, None)
        used = ended.ending.n_iterations + continued.ending.n_iterations
        ended = continued._replace(ending=continued.ending._replace(n_iterations=used))
    return problem, ended


def on_reference_scale(problem: Problem, ended: Ended) -> tuple[Problem, Ended]:
    """Make the first group's population N(0, 1), if the scale was that of the pooled subjects."""
    if problem.group is None or problem.rule.transform is not None:
        return problem, ended
    problem, point = _with_standard_reference(problem, ended.point)
    return problem, ended._replace(point=point)


def _with_standard_reference(problem: Problem, point: EMPoint) -> tuple[Problem, EMPoint]:
    """The scale on which the first group has N(0, 1) by definition, without rounding."""
    mean, log_sd = map(float, np.asarray(point.population)[0])
    problem, point = _moved(problem, point, ScaleMap(mean, float(np.exp(log_sd))))
    design = problem.population._replace(first_is_free=False)
    population = jnp.where(design.estimated, point.population, 0.0)
    return problem._replace(population=design), point._replace(population=population)


def best_latent(problem: Problem, ended: Ended, group: int = 0) -> tuple[float, float]:
    """Latent mean and SD that fit best with the items held fixed, by one Newton step each.

    With theta ~ N(0, s^2) and items fixed, d log L / d log s = sum E[theta^2] - n, and the
    observed information is 2 sum E[theta^2] - sum Var(theta^2) (Louis 1982). With groups, both
    refer to this group, in units of its SD.
    """
    weights = np.asarray(problem.weights, float)
    mean, sd = ended.belief.on_line()
    square_variance = np.asarray(ended.belief.square_variance, float)
    if problem.group is not None:
        at, unit = problem.rule.place
        centre, log_sd = np.asarray(ended.point.population, float)[group]
        mean = (at + unit * mean - centre) * np.exp(-log_sd)
        sd = unit * sd * np.exp(-log_sd)
        square_variance = 4 * mean**2 * sd**2 + 2 * sd**4  # if the posteriors were Normal
        weights = weights * (np.asarray(problem.group) == group)
    square = weights @ (mean**2 + sd**2)
    information = 2 * square - weights @ square_variance
    shift_information = weights.sum() - weights @ sd**2
    log_sd = (square - weights.sum()) / information if information > 0 else np.nan
    shift = weights @ mean / shift_information if shift_information > 0 else np.nan
    return float(shift), float(np.exp(log_sd))


def reflected(
    params: FloatArray, slopes: tuple[int, ...], covariance: Covariance
) -> tuple[FloatArray, Covariance]:
    """Items on the reversed scale (theta to -theta), with their covariance."""
    sign = np.ones(params.shape[1])
    sign[list(slopes)] = -1.0
    blocks, full, latent = covariance.blocks, covariance.full, covariance.latent
    if blocks is not None:
        blocks = blocks * np.outer(sign, sign)
    if full is not None:
        signs = np.tile(sign, len(params))
        full = full * np.outer(signs, signs)
    if latent is not None:
        n_groups = (len(latent) - len(sign)) // 2
        signs = np.concatenate([sign, np.tile([-1.0, 1.0], n_groups)])
        latent = latent * np.outer(signs, signs)
    return params * sign, covariance._replace(blocks=blocks, full=full, latent=latent)


def populations(
    point: EMPoint, sign: int, covariance: Covariance, common: int | None
) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of each group on the reported scale, and their standard errors.

    Args:
        point: the estimates.
        sign: -1 where the scale is reversed.
        covariance: of the estimates.
        common: column of the slope that becomes 1 (Rasch), if any.

    Returns:
        Both two x groups; a standard error is NaN where the value is not estimated.
    """
    mean, log_sd = np.asarray(point.population, float).T
    factor = 1.0 if common is None else float(point.params[0, common])
    values = np.stack([sign * mean, np.exp(log_sd)], axis=1) * factor
    n_groups, size = len(mean), point.params.shape[1]
    if covariance.latent is None:
        return values.T, np.full_like(values.T, np.nan)
    slopes = np.zeros((2 * n_groups, size + 2 * n_groups))
    slopes[:, size:] = np.diag(np.column_stack([np.full(n_groups, factor), values[:, 1]]).ravel())
    if common is not None:
        slopes[:, common] = values.ravel() / factor
    estimated = np.isfinite(np.diagonal(covariance.latent))
    variance = np.einsum("ij,jk,ik->i", slopes, np.nan_to_num(covariance.latent), slopes)
    has_error = ((slopes != 0) & estimated).any(axis=1) & (variance > 0)
    return values.T, np.sqrt(np.where(has_error, variance, np.nan)).reshape(values.shape).T


def with_anchors(bank: ItemBank, anchors: Anchors) -> ItemBank:
    """The bank with its anchor items unchanged, covariance included, and marked."""
    at = bank.positions(anchors.bank.item_ids)
    names = list(column_names(bank.model))
    columns = np.array([names.index(name) for name in column_names(anchors.bank.model)])
    params = bank.parameters().copy()
    params[np.ix_(at, columns)] = anchors.bank.parameters()
    covariance = bank.covariance
    if covariance is not None:
        covariance = np.array(covariance)
        covariance[at] = np.nan
        if anchors.bank.covariance is not None:
            covariance[np.ix_(at, columns, columns)] = anchors.bank.covariance
    # Which categories have no estimate is a property of the anchors, not of these responses.
    unused = bank.statistics.get("unused", pd.Series([()] * bank.n_items)).tolist()
    for j, row in zip(at, anchors.bank.unused_categories, strict=True):
        unused[j] = tuple(np.flatnonzero(row).tolist())
    anchored = np.isin(np.arange(bank.n_items), at)
    statistics = with_states(bank.statistics, {"anchored": anchored, "unused": unused})
    return replace(
        bank,
        model=unpack(bank.model, params),
        covariance=covariance,
        full_covariance=None,
        statistics=statistics,
    )

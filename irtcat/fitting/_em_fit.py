"""Marginal maximum likelihood by EM, from responses to a `Fit`."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from irtcat._checks import argument_error
from irtcat._precision import choose_precision, precision
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting._checkpoint import Checkpoint, Identity, digest
from irtcat.fitting._groups import Grouping, group_table
from irtcat.fitting._item_errors import block_covariance
from irtcat.fitting._kinds import QUASI, add_edge_flags, likelihood_notes, settings_of
from irtcat.fitting._latent import (
    anchor_items,
    best_latent,
    first_population,
    mind_the_scale,
    place_start,
    populations,
    run_covered,
    turned,
    with_anchors,
    with_ties,
)
from irtcat.fitting._loop import Ended, Settings
from irtcat.fitting._mixing import check_kinds
from irtcat.fitting._mstep import Constraints
from irtcat.fitting._options import Options
from irtcat.fitting._priors import PriorTable, prior_table
from irtcat.fitting._result import Fit
from irtcat.fitting._shard import Sharded, mesh_of
from irtcat.fitting._start import Start, starting_point
from irtcat.fitting._stated import fixed_values
from irtcat.fitting._stream import Streamed
from irtcat.fitting.em import EMProblem, EMState, run_e_step
from irtcat.fitting.standard_errors import Covariance, full_covariance, is_affordable
from irtcat.io.source import ResponseSource
from irtcat.models import (
    STANDARD_FORM,
    Beta,
    Binomial,
    Design,
    ItemModel,
    column_names,
    design_of,
    field_columns,
    pack,
    parameter_names,
    unpack,
)
from irtcat.responses import Responses
from irtcat.scoring import LayoutPlan, cells_of, row_blocks

__all__ = ["fit_em"]

MANY_ITEMS_FOR_PATTERNS = 24
TOLERANCE = {"float64": 1e-4, "float32": 5e-2}
NOISE = {"float64": 1e-12, "float32": 1e-7}
FIRST_JUMP = {"float64": 2, "float32": 6}
POPULATION_ROUNDS = 30


class _Rows(NamedTuple):
    """Distinct response rows, how many subjects gave each, and what is known of them.

    ``x`` is what this process has in memory; the others are about all rows, wherever they are.
    """

    x: np.ndarray
    weights: FloatArray
    gaps: bool
    group: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and items."""
        return len(self.weights), self.x.shape[1]


def _distinct_rows(responses: Responses, cls: type[ItemModel], group: np.ndarray | None) -> _Rows:
    """Leave out subjects without a response; join equal patterns of short tests."""
    observed = responses.observed
    used = observed.any(axis=1)
    x, gaps = cells_of(cls, responses, settings_of(responses, cls).get("trials"))
    x = x if used.all() else x[used]
    group = np.zeros(len(x), np.int32) if group is None else group[used]
    if cls.takes != "counts":  # whose mask is also for unequal numbers of trials
        gaps = bool(gaps and not observed[used].all())
    if x.shape[1] <= MANY_ITEMS_FOR_PATTERNS and x.dtype.kind == "i":
        both = np.column_stack([x, group]) if group.any() else x
        patterns, counts = np.unique(both, axis=0, return_counts=True)
        if 2 * len(patterns) <= len(x):
            # The number of patterns differs from one data set to the next: rows of weight 0 round
            # it up, so that shapes recur and nothing is compiled again.
            extra = -len(patterns) % max(16, 2 ** (len(patterns).bit_length() - 3))
            padded = np.concatenate([patterns, np.repeat(patterns[:1], extra, axis=0)])
            weights = np.concatenate([counts, np.zeros(extra)])
            own = padded[:, x.shape[1] :].astype(np.int32).sum(1, dtype=np.int32)
            return _Rows(padded[:, : x.shape[1]].astype(x.dtype), weights, gaps, own)
    return _Rows(x, np.ones(len(x)), gaps, group)


def _flags(
    prior: PriorTable,
    start: Start,
    params: FloatArray,
    covariance: FloatArray | None,
    names: tuple[str, ...],
    slopes: tuple[int, ...],
) -> list[str]:
    """What is to be said of each item."""
    lower = np.asarray(prior.constraints.lower, float)
    upper = np.asarray(prior.constraints.upper, float)
    flags: list[list[str]] = [[] for _ in params]

    def mark(which: Any, text: str) -> None:
        for j in np.flatnonzero(which):
            flags[j].append(text)

    constant = start.counts.max(0) >= start.item_n
    mark(start.item_n == 0, "no responses")
    mark(constant & (start.item_n > 0), "constant")
    mark(prior.sparse, "weak prior")
    if len(start.counts) > 2:
        for category in range(len(start.counts)):
            mark(prior.empty[category], f"category {category + 1} of its answers never used")
    free = np.asarray(prior.constraints.free)
    for column, name in enumerate(names):
        at_bound = (params[:, column] <= lower[column]) | (params[:, column] >= upper[column])
        mark(at_bound & free[:, column], f"{name} at its bound")
    if len(slopes) == 1:
        mark(params[:, slopes[0]] < 0, "negative slope")
    if covariance is not None:
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        mark((free & ~(variance > 0)).any(axis=1), "no standard error: its information is singular")
    return ["; ".join(texts) for texts in flags]


def _covariance(
    problem: EMProblem, ended: Ended, which: str, share: float
) -> tuple[Covariance | None, str]:
    """Covariance of the estimates, and how it was computed."""
    point = ended.point
    n_params = int(np.asarray(problem.constraints.free).sum()) + 2 * int((~problem.held).sum())
    if which == "none":
        return None, "none"
    sandwich = which == "sandwich"
    affordable = is_affordable(len(problem.weights), n_params)
    if which == "full" or (which in ("auto", "sandwich") and affordable):
        whole = full_covariance(problem, point, ended.belief, sandwich)
        if whole is not None:
            return whole, "full sandwich" if sandwich else "full"
    blocks = block_covariance(problem, point, ended.belief, share, sandwich)
    return blocks, "block sandwich" if sandwich else "block"


def _sign(template: ItemModel, ended: Ended, score: FloatArray) -> int:
    """-1 where the scale is to be turned round, so that higher ability means more right."""
    mean = np.asarray(ended.belief.mean, float)
    slopes = field_columns(template, ["slope"])
    upright = not slopes or (mean - mean.mean()) @ (score - score.mean()) >= 0
    return 1 if upright else -1


class _Latent(NamedTuple):
    """Mean and SD of the population on the scale of the items."""

    mean: float = 0.0
    sd: float = 1.0


def _population(problem: EMProblem, ended: Ended) -> tuple[_Latent, Ended]:
    """Estimate the population where the priors, not it, have fixed the scale.

    EM for the mean and SD of the abilities with the items as they are: each round rescales the
    items to the population found so far. Also gives the E-step under that population.
    """
    latent = _Latent()
    model = unpack(problem.template, ended.point.params)
    state = EMState(ended.point, np.asarray(ended.belief.mean), np.asarray(ended.belief.sd))
    for _ in range(POPULATION_ROUNDS):
        mean, sd = (jnp.asarray(value, problem.dtype) for value in latent)
        moved = problem.start(pack(model.rescale(mean, sd)))
        _, belief = run_e_step(problem, state._replace(point=moved), 0.1, 0, False)
        ended = ended._replace(belief=belief)
        state = EMState(moved, np.asarray(belief.mean, float), np.asarray(belief.sd, float))
        shift, factor = best_latent(problem, ended)
        if not np.isfinite([shift, factor]).all():
            break
        factor = float(np.clip(factor, 0.5, 2.0))
        latent = _Latent(latent.mean + latent.sd * shift, latent.sd * factor)
        if abs(shift) < 1e-4 and abs(factor - 1) < 1e-4:
            break
    return latent, ended


def _count_aside(problem: EMProblem, ended: Ended) -> Ended:
    """The E-step with all items, those that were set aside included."""
    everyone = problem._replace(item_weights=jnp.ones_like(problem.item_weights))
    state = EMState(
        ended.point, np.asarray(ended.belief.mean, float), np.asarray(ended.belief.sd, float)
    )
    update, belief = run_e_step(everyone, state, 0.1, 0, False)
    return ended._replace(belief=belief, update=update)


def _problem(
    rows: _Rows,
    prior: PriorTable,
    template: ItemModel,
    x: Array | None,
    dtype: np.dtype,
    engine: Any,
    n_groups: int | None,
    tied: tuple[int, ...],
) -> EMProblem:
    """All that stays the same during the iterations."""
    size = dtype.itemsize
    plan = engine.make_plan(size) if engine else LayoutPlan(*rows.shape, size)
    return EMProblem(
        template,
        x,
        jnp.asarray(rows.weights, dtype),
        jnp.asarray(~prior.aside, dtype),
        rows.gaps,
        prior.constraints,
        tied,
        plan,
        dtype,
        None if n_groups is None else jnp.asarray(rows.group),
        jnp.asarray(np.full(n_groups or 1, n_groups is None)),
        prior.scaled,
        engine,
    )


def _checkpoint(
    problem: EMProblem, cls: type[ItemModel], settings: Settings, options: Options, rows: _Rows
) -> Checkpoint | None:
    """Where the state is kept, if it is."""
    if options.checkpoint is None:
        return None
    given = (problem.template, problem.item_weights, problem.constraints, problem.held)
    stated = settings._asdict() | {"model": cls.key, "precision": problem.dtype.name}
    del stated["max_iterations"]
    data = problem.engine.data if problem.engine else digest(rows.x, rows.weights)
    identity = Identity(data, digest(given, problem.place, problem.tied, problem.group), stated)
    return Checkpoint(options.checkpoint, options.resume, identity)


def _categories(responses: Responses, cls: type[ItemModel]) -> np.ndarray:
    """Number of categories of each item: one more than its highest code, where they may differ."""
    if cls.takes != "graded":
        return np.full(responses.n_items, 2)
    return np.maximum(responses.values.max(axis=0).astype(int) + 1, 2)


def _rows_of(
    responses: Responses | ResponseSource,
    cls: type[ItemModel],
    options: Options,
    grouping: Grouping | None,
) -> tuple[_Rows, np.ndarray, Any]:
    """The rows, the number of categories of each item, and what does the passes over the rows."""
    if isinstance(responses, ResponseSource):
        stream = Streamed(responses, cls.takes == "graded", options.checkpoint is not None)
        group = np.zeros(len(stream.weights), np.int32)
        rows = _Rows(stream.stand_in, stream.weights, stream.gaps, group)
        return rows, stream.categories, stream
    rows = _distinct_rows(responses, cls, None if grouping is None else grouping.codes)
    categories = _categories(responses, cls)
    if options.devices is None:
        return rows, categories, None
    engine = Sharded(
        mesh_of(options.devices), rows.x, rows.weights, rows.gaps, categories, responses.item_ids
    )
    return _Rows(rows.x, engine.weights, engine.gaps, rows.group), engine.categories, engine


def _grouping(responses: Responses | ResponseSource, options: Options) -> Grouping | None:
    """The groups, where populations are estimated; with anchors one for all at least."""
    if options.groups is None and options.anchors is None:
        return None
    if isinstance(responses, ResponseSource) or options.devices is not None:
        raise argument_error(
            "groups" if options.anchors is None else "anchors",
            "None for responses that are read in passes or spread over devices",
            "some",
            "Read them into memory, and fit on one device.",
        )
    if options.groups is not None:
        return options.groups
    return Grouping(("all",), np.zeros(responses.n_subjects, np.int32))


def fit_em(responses: Responses | ResponseSource, cls: type[ItemModel], options: Options) -> Fit:
    """Marginal maximum likelihood by EM (see `irtcat.fit`)."""
    grouping = _grouping(responses, options)
    rows, categories, engine = _rows_of(responses, cls, options, grouping)
    if "categories" not in cls.fixed:  # the same number for all
        categories = np.full_like(categories, categories.max())
    name = choose_precision(options.precision, rows.shape[0] * rows.shape[1])
    if cls.takes == "fractions" and options.precision == "auto":
        name = "float64"  # log-densities are small differences of large numbers
    # A Rasch model is the 1PL on a scale where the common slope is 1: the same likelihood.
    work = STANDARD_FORM.get(cls, cls)
    settled = settings_of(responses, cls)
    if options.kinds is not None:
        check_kinds(cls, options.kinds, categories, responses.item_ids)
        settled = {**settled, "kind": options.kinds}
    blank = work.blank(Design(categories, settings=settled))
    with precision(name) as dtype:
        template = jax.tree.map(lambda leaf: jnp.asarray(leaf, _kind(leaf, dtype)), blank)
        x = blocks = None
        if engine is None:
            x = jax.device_put(rows.x, may_alias=True)  # in place if memory allows, never written
            blocks = jnp.asarray(row_blocks(len(rows.x), rows.x.shape[1], dtype.itemsize))
        start = starting_point(
            template, x, rows.weights, blocks, rows.gaps, dtype, options.positive, categories,
            engine,
        )  # fmt: skip
        prior = prior_table(
            template,
            start.counts,
            start.item_n,
            options.priors,
            options.weak_priors,
            options.positive,
            dtype,
            responses.item_ids,
            options.equal,
        )
        anchors, known = None, None
        if options.anchors is not None and isinstance(responses, Responses):
            anchors = anchor_items(options.anchors, responses, cls.key, template)
            known = first_population(anchors.bank, responses, dtype)
        held = fixed_values(options.fixed or {}, template, parameter_names(cls), responses.item_ids)
        if anchors is not None:
            held = np.where(anchors.known, anchors.params, held)
        prior = prior.without(~np.isnan(held))
        tied = field_columns(template, (*template.tied, *options.equal))
        start = start._replace(params=with_ties(start.params, tied, prior.constraints))
        minds = mind_the_scale(template, held, tied)
        n_groups = None if grouping is None else len(grouping.labels)
        problem = _problem(rows, prior, template, x, dtype, engine, n_groups, tied)
        # Groups under priors that mind the scale are fitted on the reference's from the start.
        free_scale = options.expand and (grouping is None or not prior.scaled) and not minds
        problem, state = place_start(problem, start, held, free_scale, known)
        settings = Settings(
            TOLERANCE[name] if options.tolerance is None else options.tolerance,
            options.max_iterations,
            FIRST_JUMP[name] if options.accelerate else None,
            free_scale,
            NOISE[name],
        )
        checkpoint = _checkpoint(problem, cls, settings, options, rows)
        problem, ended = run_covered(problem, state, settings, options.progress, checkpoint)
        latent = _Latent()
        told = anchors is not None or not (prior.scaled or minds)
        check = best_latent(problem, ended) if told else (np.nan, np.nan)
        if prior.aside.any():
            ended = _count_aside(problem, ended)
        elif problem.group is None and prior.scaled and prior.sparse.any():
            latent, ended = _population(problem, ended)
        most = blank.trials if isinstance(blank, Binomial) else 1.0
        share = float((start.item_n / most).sum() / (rows.weights.sum() * rows.x.shape[1]))
        covariance, how = _covariance(problem, ended, options.standard_errors, share)
        sign = 1 if not np.isnan(held).all() else _sign(template, ended, start.mean)
    names = column_names(template)
    slopes = field_columns(template, ["slope"])
    params = np.asarray(ended.point.params, float)
    if sign < 0:
        params, covariance = turned(params, slopes, covariance)
    items = None if covariance is None else covariance.blocks
    whole = None if covariance is None else covariance.full
    flags = _flags(prior, start, params, items, names, slopes)
    if isinstance(blank, Beta):
        flags = add_edge_flags(flags, rows.x, blank.edge)
    statistics = _statistics(responses, categories, start, flags)
    latent = latent._replace(mean=sign * latent.mean)
    bank = _bank(responses, cls, blank, params, items, whole, latent, statistics)
    table = None
    if grouping is not None:
        common = slopes[0] if cls in STANDARD_FORM else None
        values, errors = populations(ended.point, sign, covariance, common)
        n = np.bincount(rows.group, rows.weights, len(grouping.labels)).astype(float)
        table = group_table(grouping, n, values, errors)
        bank = replace(bank, population_mean=values[0, 0], population_sd=values[1, 0])
    if anchors is not None:
        bank = with_anchors(bank, anchors)
    notes = likelihood_notes(responses, cls)
    log_likelihood = float(rows.weights @ np.asarray(ended.belief.log_z, float))
    bank = replace(
        bank,
        provenance={
            "model": cls.key,
            "method": "em",
            "n_subjects": int(rows.weights.sum()),
            "log_likelihood": log_likelihood,
            "converged": ended.converged,
            "n_iterations": ended.n_iterations,
            "priors": {
                k: v if isinstance(v, str) else list(v) for k, v in prior.description.items()
            },
            "n_sparse": int(prior.sparse.sum()),
            "standard_errors": how,
            "precision": name,
            "codes": list(getattr(responses, "codes", range(int(categories.max())))),
            **notes,
        },
    )
    return Fit(
        bank,
        responses,
        log_likelihood,
        log_likelihood + float(ended.update.log_prior),
        ended.converged,
        ended.n_iterations,
        _n_parameters(prior.constraints, problem.tied) + 2 * int((~problem.held).sum()),
        " ".join([ended.message, *([QUASI] if QUASI in notes.values() else [])]),
        *check,
        prior.description,
        int(prior.sparse.sum()),
        name,
        ended.trace,
        table,
        grouping,
    )


def _kind(leaf: np.ndarray, dtype: np.dtype) -> np.dtype:
    """The working type of a field: parameters in working precision, labels as they are."""
    own = np.asarray(leaf).dtype
    return dtype if own.kind == "f" else jax.dtypes.canonicalize_dtype(own)


def _n_parameters(constraints: Constraints, tied: tuple[int, ...]) -> int:
    """Number of parameters that are estimated; tied ones count once."""
    free = np.asarray(constraints.free).sum(axis=0)
    free[list(tied)] = np.minimum(free[list(tied)], 1)
    return int(free.sum())


def _statistics(
    responses: Responses | ResponseSource,
    categories: np.ndarray,
    start: Start,
    flags: list[str],
) -> pd.DataFrame:
    """What the bank records of each item's calibration data."""
    share = np.full(len(start.item_n), np.nan)
    np.divide(start.item_right, start.item_n, out=share, where=start.item_n > 0)
    columns: dict[str, Any] = {
        "n_responses": start.item_n.round().astype(int),
        "proportion_correct": share,
    }
    if isinstance(responses, Responses) and responses.trials is not None:
        columns["n_responses"] = responses.observed.sum(axis=0)
        columns["n_trials"] = responses.trials.sum(axis=0, dtype=np.int64)
    if (categories > 2).any():
        columns["n_categories"] = categories
    columns["flags"] = flags
    return pd.DataFrame(columns, index=pd.Index(responses.item_ids, dtype=object))


def _bank(
    responses: Responses | ResponseSource,
    cls: type[ItemModel],
    blank: ItemModel,
    params: FloatArray,
    covariance: FloatArray | None,
    full: FloatArray | None,
    latent: _Latent,
    statistics: pd.DataFrame,
) -> ItemBank:
    """The items on the bank's scale; a Rasch bank takes the common slope into its population."""
    mean, sd, keep = latent.mean, latent.sd, list(range(params.shape[1]))
    if cls in STANDARD_FORM:
        slope = field_columns(blank, ["slope"])
        factor = float(params[:, slope].mean())
        mean, sd, keep = mean * factor, sd * factor, [p for p in keep if p not in slope]
        blank = cls.blank(design_of(blank))
    if covariance is not None:
        covariance = covariance[:, keep][:, :, keep]
    if full is not None:
        every = (np.arange(len(params))[:, None] * params.shape[1] + keep).ravel()
        full = full[np.ix_(every, every)]
    return ItemBank(
        unpack(blank, params[:, keep]),
        np.asarray(responses.item_ids, dtype=str),
        mean,
        sd,
        covariance,
        responses.items,
        statistics,
        full_covariance=full,
    )

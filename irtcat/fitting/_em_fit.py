"""Marginal maximum likelihood by EM, from responses to a `Fit`."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from irtcat._precision import choose_precision, precision
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting._loop import Ended, Settings, run_em
from irtcat.fitting._options import Options
from irtcat.fitting._priors import PriorTable, prior_table
from irtcat.fitting._result import Fit
from irtcat.fitting._start import Start, starting_point
from irtcat.fitting.em import EMProblem, EMState, run_e_step
from irtcat.fitting.standard_errors import block_covariance, full_covariance, is_affordable
from irtcat.models import ItemModel, OnePL, Rasch, pack, parameter_names, unpack
from irtcat.responses import Responses
from irtcat.scoring import LayoutPlan, row_blocks

__all__ = ["fit_em"]

MANY_ITEMS_FOR_PATTERNS = 24
TOLERANCE = {"float64": 1e-4, "float32": 5e-2}
NOISE = {"float64": 1e-12, "float32": 1e-7}
FIRST_JUMP = {"float64": 2, "float32": 6}
POPULATION_ROUNDS = 30


class _Rows(NamedTuple):
    """Distinct response rows, how many subjects gave each, and which subjects are used."""

    x: np.ndarray
    weights: FloatArray
    gaps: bool


def _distinct_rows(responses: Responses) -> _Rows:
    """Leave out subjects without a response; join equal patterns of short tests."""
    observed = responses.observed
    used = observed.any(axis=1)
    x = responses.values if used.all() else responses.values[used]
    gaps = bool(responses.has_missing and not observed[used].all())
    if x.shape[1] <= MANY_ITEMS_FOR_PATTERNS and x.dtype == np.int8:
        patterns, counts = np.unique(x, axis=0, return_counts=True)
        if 2 * len(patterns) <= len(x):
            # The number of patterns differs from one data set to the next: rows of weight 0 round
            # it up, so that shapes recur and nothing is compiled again.
            extra = -len(patterns) % max(16, 2 ** (len(patterns).bit_length() - 3))
            padded = np.concatenate([patterns, np.repeat(patterns[:1], extra, axis=0)])
            return _Rows(padded, np.concatenate([counts, np.zeros(extra)]), gaps)
    return _Rows(x, np.ones(len(x)), gaps)


def _flags(
    prior: PriorTable,
    start: Start,
    params: FloatArray,
    covariance: FloatArray | None,
    names: tuple[str, ...],
) -> list[str]:
    """What is to be said of each item."""
    lower = np.asarray(prior.constraints.lower, float)
    upper = np.asarray(prior.constraints.upper, float)
    flags: list[list[str]] = [[] for _ in params]

    def mark(which: Any, text: str) -> None:
        for j in np.flatnonzero(which):
            flags[j].append(text)

    constant = (start.item_right <= 0) | (start.item_right >= start.item_n)
    mark(start.item_n == 0, "no responses")
    mark(constant & (start.item_n > 0), "constant")
    mark(prior.sparse, "weak prior")
    for column, name in enumerate(names):
        at_bound = (params[:, column] <= lower[column]) | (params[:, column] >= upper[column])
        mark(at_bound, f"{name} at its bound")
    if "slope" in names:
        mark(params[:, names.index("slope")] < 0, "negative slope")
    if covariance is not None:
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        mark(~(variance > 0).all(axis=1), "no standard error: its information is singular")
    return ["; ".join(texts) for texts in flags]


def _best_latent(problem: EMProblem, ended: Ended) -> tuple[float, float]:
    """Latent mean and SD that fit best with the items as they are, by one Newton step each.

    With theta ~ N(0, s^2) and items fixed, d log L / d log s = sum E[theta^2] - n, and the
    observed information is 2 sum E[theta^2] - sum Var(theta^2) (Louis 1982).
    """
    weights = np.asarray(problem.weights, float)
    mean, sd = np.asarray(ended.belief.mean, float), np.asarray(ended.belief.sd, float)
    lost = np.asarray(ended.belief.square_variance, float)
    square = weights @ (mean**2 + sd**2)
    information = 2 * square - weights @ lost
    shift_information = weights.sum() - weights @ sd**2
    log_sd = (square - weights.sum()) / information if information > 0 else np.nan
    shift = weights @ mean / shift_information if shift_information > 0 else np.nan
    return float(shift), float(np.exp(log_sd))


def _covariance(
    problem: EMProblem, ended: Ended, which: str, share: float
) -> tuple[FloatArray | None, str]:
    """Covariance of each item's parameters, and how it was computed."""
    n_items, n_params = ended.params.shape
    if which == "none":
        return None, "none"
    n_rows = problem.x.shape[0]
    if which == "full" or (which == "auto" and is_affordable(n_rows, n_items * n_params)):
        whole = full_covariance(problem, ended.params, ended.belief)
        if whole is not None:
            at = np.arange(n_items * n_params).reshape(n_items, n_params)
            return whole[at[:, :, None], at[:, None, :]], "full"
    return block_covariance(problem, ended.params, ended.belief, share), "block"


def _orient(
    ended: Ended, covariance: FloatArray | None, score: FloatArray, names: tuple[str, ...]
) -> tuple[FloatArray, FloatArray | None, int]:
    """Turn the scale round where higher ability would mean fewer right answers.

    Returns:
        Parameters, covariance, and the sign (-1 where the scale was turned).
    """
    params, mean = np.asarray(ended.params, float), np.asarray(ended.belief.mean, float)
    if "slope" not in names or (mean - mean.mean()) @ (score - score.mean()) >= 0:
        return params, covariance, 1
    turn = np.where(np.array(names) == "slope", -1.0, 1.0)
    if covariance is not None:
        covariance = covariance * np.outer(turn, turn)
    return params * turn, covariance, -1


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
    model = unpack(problem.cls, ended.params)
    state = EMState(ended.params, np.asarray(ended.belief.mean), np.asarray(ended.belief.sd))
    for _ in range(POPULATION_ROUNDS):
        mean, sd = (jnp.asarray(value, problem.dtype) for value in latent)
        moved = pack(model.rescale(mean, sd))
        _, belief = run_e_step(problem, state._replace(params=moved), 0.1, 0, False)
        ended = ended._replace(belief=belief)
        state = EMState(moved, np.asarray(belief.mean, float), np.asarray(belief.sd, float))
        shift, factor = _best_latent(problem, ended)
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
        ended.params, np.asarray(ended.belief.mean, float), np.asarray(ended.belief.sd, float)
    )
    update, belief = run_e_step(everyone, state, 0.1, 0, False)
    return ended._replace(belief=belief, update=update)


def _problem(
    rows: _Rows, start: Start, prior: PriorTable, work: type[ItemModel], x: Array, dtype: np.dtype
) -> EMProblem:
    """All that stays the same during the iterations."""
    names = parameter_names(work)
    return EMProblem(
        work,
        x,
        jnp.asarray(rows.weights, dtype),
        jnp.asarray(~prior.aside, dtype),
        rows.gaps,
        prior.constraints,
        tuple(names.index(t) for t in work.tied),
        LayoutPlan(len(rows.x), rows.x.shape[1], dtype.itemsize),
        dtype,
    )


def fit_em(responses: Responses, cls: type[ItemModel], options: Options) -> Fit:
    """Marginal maximum likelihood by EM (see `irtcat.fit`)."""
    rows = _distinct_rows(responses)
    name = choose_precision(options.precision, rows.x.size)
    # A Rasch model is the 1PL on a scale where the common slope is 1: the same likelihood.
    work: type[ItemModel] = OnePL if cls is Rasch else cls
    with precision(name) as dtype:
        x = jax.device_put(rows.x, may_alias=True)  # in place where memory allows, never written
        blocks = jnp.asarray(row_blocks(len(rows.x), rows.x.shape[1], dtype.itemsize))
        start = starting_point(work, x, rows.weights, blocks, rows.gaps, dtype, options.positive)
        prior = prior_table(
            work,
            start.item_right,
            start.item_n,
            options.priors,
            options.weak_priors,
            options.positive,
            dtype,
        )
        problem = _problem(rows, start, prior, work, x, dtype)
        settings = Settings(
            TOLERANCE[name] if options.tolerance is None else options.tolerance,
            options.max_iterations,
            FIRST_JUMP[name] if options.accelerate else None,
            options.expand and not prior.scaled,
            NOISE[name],
        )
        state = EMState(jnp.asarray(start.params, dtype), start.mean, start.sd)
        ended = run_em(problem, state, settings, options.progress)
        latent = _Latent()
        check = _best_latent(problem, ended) if not prior.scaled else (np.nan, np.nan)
        if prior.aside.any():
            ended = _count_aside(problem, ended)
        elif prior.scaled and prior.sparse.any():
            latent, ended = _population(problem, ended)
        share = float(start.item_n.sum() / (rows.weights.sum() * rows.x.shape[1]))
        covariance, how = _covariance(problem, ended, options.standard_errors, share)
    names = parameter_names(work)
    params, covariance, sign = _orient(ended, covariance, start.mean, names)
    statistics = _statistics(responses, prior, start, params, covariance, names)
    latent = latent._replace(mean=sign * latent.mean)
    bank = _bank(responses, cls, params, covariance, latent, statistics)
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
            "priors": {k: list(v) for k, v in prior.description.items()},
            "n_sparse": int(prior.sparse.sum()),
            "standard_errors": how,
            "precision": name,
        },
    )
    return Fit(
        bank,
        responses,
        log_likelihood,
        log_likelihood + float(ended.update.log_prior),
        ended.converged,
        ended.n_iterations,
        responses.n_items * (len(names) - len(work.tied)) + len(work.tied),
        ended.message,
        *check,
        prior.description,
        int(prior.sparse.sum()),
        name,
        ended.trace,
    )


def _statistics(
    responses: Responses,
    prior: PriorTable,
    start: Start,
    params: FloatArray,
    covariance: FloatArray | None,
    names: tuple[str, ...],
) -> pd.DataFrame:
    """What the bank records of each item's calibration data."""
    share = np.full(len(start.item_n), np.nan)
    np.divide(start.item_right, start.item_n, out=share, where=start.item_n > 0)
    columns = {
        "n_responses": start.item_n.round().astype(int),
        "proportion_correct": share,
        "flags": _flags(prior, start, params, covariance, names),
    }
    return pd.DataFrame(columns, index=pd.Index(responses.item_ids, dtype=object))


def _bank(
    responses: Responses,
    cls: type[ItemModel],
    params: FloatArray,
    covariance: FloatArray | None,
    latent: _Latent,
    statistics: pd.DataFrame,
) -> ItemBank:
    """The items on the bank's scale; a Rasch bank takes the common slope into its population."""
    mean, sd, keep = latent.mean, latent.sd, list(range(params.shape[1]))
    if cls is Rasch:
        factor = float(params[:, 0].mean())
        mean, sd, keep = mean * factor, sd * factor, [1]
    if covariance is not None:
        covariance = covariance[:, keep][:, :, keep]
    return ItemBank(
        unpack(cls, params[:, keep]),
        np.asarray(responses.item_ids, dtype=str),
        mean,
        sd,
        covariance,
        responses.items,
        statistics,
    )

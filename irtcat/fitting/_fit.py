"""`fit`: from responses to a calibrated bank."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    check_positive,
)
from irtcat._precision import choose_precision, precision
from irtcat._types import BoolArray, FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting._loop import Ended, Progress, Settings, run_em
from irtcat.fitting._priors import PriorTable, check_priors, prior_table
from irtcat.fitting._result import Fit
from irtcat.fitting._start import Start, starting_point
from irtcat.fitting.em import EMProblem, EMState
from irtcat.fitting.standard_errors import block_covariance, full_covariance, is_affordable
from irtcat.models import ItemModel, OnePL, Rasch, get_model, parameter_names, unpack
from irtcat.responses import Responses
from irtcat.scoring import LayoutPlan, row_blocks

__all__ = ["FITTERS", "fit"]

MANY_ITEMS_FOR_PATTERNS = 24
TOLERANCE = {"float64": 1e-4, "float32": 5e-2}
NOISE = {"float64": 1e-12, "float32": 1e-7}
FIRST_JUMP = {"float64": 2, "float32": 6}


@dataclass(frozen=True)
class Options:
    """The arguments of `fit` that a method needs."""

    priors: Mapping[str, tuple[float, float] | None] | None
    weak_priors: bool
    positive: bool
    standard_errors: str
    tolerance: float | None
    max_iterations: int
    precision: str
    accelerate: bool
    expand: bool
    seed: int
    progress: Progress | None


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


def _flags(prior: PriorTable, start: Start, ended: Ended, names: tuple[str, ...]) -> list[str]:
    """What is to be said of each item."""
    params = np.asarray(ended.params, float)
    lower = np.asarray(prior.constraints.lower, float)
    upper = np.asarray(prior.constraints.upper, float)
    flags: list[list[str]] = [[] for _ in params]

    def mark(which: BoolArray, text: str) -> None:
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
    params: FloatArray, mean: FloatArray, score: FloatArray, names: tuple[str, ...]
) -> FloatArray:
    """Turn the scale round where higher ability would mean fewer right answers."""
    if "slope" not in names or (mean - mean.mean()) @ (score - score.mean()) >= 0:
        return params
    params = params.copy()
    params[:, names.index("slope")] *= -1
    return params


def _fit_em(responses: Responses, cls: type[ItemModel], options: Options) -> Fit:
    """Marginal maximum likelihood by EM."""
    rows = _distinct_rows(responses)
    name = choose_precision(options.precision, rows.x.size)
    # A Rasch model is the 1PL on a scale where the common slope is 1: the same likelihood.
    work: type[ItemModel] = OnePL if cls is Rasch else cls
    names = parameter_names(work)
    with precision(name) as dtype:
        x = jax.device_put(rows.x, may_alias=True)  # in place where memory allows, never written
        n_rows, n_items = rows.x.shape
        blocks = jnp.asarray(row_blocks(n_rows, n_items, dtype.itemsize))
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
        problem = EMProblem(
            work,
            x,
            jnp.asarray(rows.weights, dtype),
            rows.gaps,
            prior.constraints,
            tuple(names.index(t) for t in work.tied),
            LayoutPlan(n_rows, n_items, dtype.itemsize),
            dtype,
        )
        settings = Settings(
            TOLERANCE[name] if options.tolerance is None else options.tolerance,
            options.max_iterations,
            FIRST_JUMP[name] if options.accelerate else None,
            options.expand and prior.share_scaled <= 0.5,
            NOISE[name],
        )
        state = EMState(jnp.asarray(start.params, dtype), start.mean, start.sd)
        ended = run_em(problem, state, settings, options.progress)
        share = float(start.item_n.sum() / (rows.weights.sum() * n_items))
        covariance, how = _covariance(problem, ended, options.standard_errors, share)
    return _assemble(
        responses, cls, work, options, rows, start, prior, problem, ended, covariance, how, name
    )


def _assemble(
    responses: Responses,
    cls: type[ItemModel],
    work: type[ItemModel],
    options: Options,
    rows: _Rows,
    start: Start,
    prior: PriorTable,
    problem: EMProblem,
    ended: Ended,
    covariance: FloatArray | None,
    how: str,
    name: str,
) -> Fit:
    """Put the result together on the bank's scale."""
    names = parameter_names(work)
    params = np.asarray(ended.params, float)
    sign = _orient(params, np.asarray(ended.belief.mean, float), start.mean, names)
    if covariance is not None and sign is not params:
        slope = names.index("slope")
        covariance[:, slope, :] *= -1
        covariance[:, :, slope] *= -1
    population_sd, keep = 1.0, list(range(len(names)))
    if cls is Rasch:
        population_sd, keep = float(params[:, 0].mean()), [1]
    if covariance is not None:
        covariance = covariance[:, keep][:, :, keep]
    log_posterior = float(ended.trace[-1]) if len(ended.trace) else np.nan
    log_likelihood = log_posterior - float(ended.update.log_prior)
    n_parameters = len(params) * (len(names) - len(work.tied)) + len(work.tied)
    latent_mean, latent_sd = _best_latent(problem, ended)
    statistics = pd.DataFrame(
        {
            "n_responses": start.item_n.astype(int),
            "proportion_correct": np.divide(
                start.item_right,
                start.item_n,
                out=np.full(len(params), np.nan),
                where=start.item_n > 0,
            ),
            "flags": _flags(prior, start, ended, names),
        },
        index=pd.Index(responses.item_ids, dtype=object),
    )
    bank = ItemBank(
        unpack(cls, sign[:, keep]),  # type: ignore[arg-type]
        np.asarray(responses.item_ids, dtype=str),
        0.0,
        population_sd,
        covariance,
        responses.items,
        statistics,
        {
            "model": cls.key,
            "method": "em",
            "n_subjects": int(rows.weights.sum()),
            "log_likelihood": log_likelihood,
            "converged": ended.converged,
            "n_iterations": ended.n_iterations,
            "priors": {k: list(v) for k, v in prior.description.items()},
            "standard_errors": how,
            "precision": name,
        },
    )
    return Fit(
        bank,
        responses,
        log_likelihood,
        log_posterior,
        ended.converged,
        ended.n_iterations,
        n_parameters,
        ended.message,
        latent_mean,
        latent_sd,
        prior.description,
        int(prior.sparse.sum()),
        name,
        ended.trace,
    )


FITTERS: dict[str, Callable[[Responses, type[ItemModel], Options], Fit]] = {"em": _fit_em}
"""Fitting methods by name; to add one, add a row."""


def _check_data(responses: Responses, cls: type[ItemModel]) -> None:
    """Refuse what cannot be calibrated."""
    if not isinstance(responses, Responses):
        raise argument_error(
            "responses",
            "Responses",
            type(responses).__name__,
            "Build them with Responses.from_array.",
        )
    if responses.n_categories != cls.n_categories:
        raise InputError(
            f"The {cls.key} model is for {cls.n_categories} categories, but the responses have "
            f"{responses.n_categories} (codes {', '.join(map(str, responses.codes))}). "
            "Score them right/wrong first, or use a model for graded items."
        )
    n_used = int(responses.observed.any(axis=1).sum())
    if n_used < 2:
        raise argument_error(
            "responses",
            "answers of at least 2 subjects",
            n_used,
            "To score one subject on calibrated items use irtcat.score.",
        )


def fit(
    responses: Responses,
    model: str = "2pl",
    method: str = "em",
    *,
    priors: Mapping[str, tuple[float, float] | None] | None = None,
    weak_priors: bool = True,
    positive: bool = False,
    standard_errors: str = "auto",
    tolerance: float | None = None,
    max_iterations: int = 2000,
    precision: str = "auto",
    accelerate: bool = True,
    expand: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Calibrate items: estimate their parameters from the responses of many subjects.

    ``em`` maximises the marginal likelihood ``prod_i int prod_j P(x_ij | theta) phi(theta) dtheta``
    (times the priors, where there are any). The ability scale is that of the calibration subjects:
    mean 0, SD 1 (for "rasch": slopes 1, SD estimated).

    Args:
        responses: right/wrong (or fractional) responses of at least 2 subjects; missing ones are
            skipped, subjects without any are left out.
        model: "rasch", "1pl", "2pl", "3pl" or "4pl".
        method: "em".
        priors: Normal priors by parameter name ("slope", "intercept", "logit_lower",
            "logit_upper") as (mean, SD), added to or replacing the model's own; None switches
            one off. On by default: logit c ~ N(-1.1, 0.5) in the 3PL and 4PL, logit d ~ N(3, 0.5)
            in the 4PL, nothing else.
        weak_priors: put slope ~ N(1, 1) and intercept ~ N(0, 3) on items with fewer than 50
            responses or fewer than 10 of the rarer answer (constant items are among them), which
            are flagged "weak prior"; without, such items may run to the parameter's bound.
        positive: keep slopes at or above 0.001 (default: they may be negative, which tells of
            wrong keys).
        standard_errors: "auto" ("full" where it takes about a second at most, else "block"),
            "full" (observed information of all parameters), "block" (item by item) or "none".
        tolerance: largest last step in standard errors; 1e-4 in float64, 0.05 in float32.
        max_iterations: E-steps at most.
        precision: "float64", "float32" or "auto" (float64 up to a million responses on a CPU).
        accelerate: extrapolate (SQUAREM), guarded by the objective.
        expand: estimate the latent mean and SD in each iteration and remove them (not where most
            items have a prior on slope or intercept: it then speeds nothing up).
        seed: for methods that draw; "em" does not.
        progress: called as ``progress(iteration, log_posterior, step)``.

    Returns:
        The fit: ``bank``, ``abilities``, ``log_likelihood``, ``converged``, ``n_iterations``, ....

    Raises:
        InputError: for an unknown model, method or option, fewer than 2 subjects with responses,
            or graded responses.

    Example:
        >>> from irtcat.datasets import load
        >>> f = fit(load("lsat7"), "2pl")
        >>> f.converged, round(f.log_likelihood, 2)
        (True, -2658.81)
        >>> f.bank.to_frame()[["a", "b"]].round(2).iloc[0].tolist()
        [0.99, -1.88]

    References:
        Bock & Aitkin (1981), Psychometrika 46, 443-459. Liu, Rubin & Wu (1998), Biometrika 85,
        755-770. Louis (1982), JRSS B 44, 226-233.
    """
    cls = get_model(model)
    check_choice("method", method, FITTERS)
    check_choice("standard_errors", standard_errors, ("auto", "full", "block", "none"))
    check_count("max_iterations", max_iterations)
    if tolerance is not None:
        check_positive("tolerance", tolerance)
    _check_data(responses, cls)
    check_priors(priors or {}, parameter_names(cls))
    options = Options(
        priors,
        weak_priors,
        positive,
        standard_errors,
        tolerance,
        max_iterations,
        precision,
        accelerate,
        expand,
        seed,
        progress,
    )
    return FITTERS[method](responses, cls, options)

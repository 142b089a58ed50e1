"""`score`: abilities of subjects on a calibrated bank, by any of the estimators."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from irtcat._common.checks import argument_error, brief, check_choice, check_count, check_interval
from irtcat._common.precision import choose_precision, precision
from irtcat._common.progress import Progress, ProgressOption, Steps, with_progress
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank, Population, as_bank, check_needs
from irtcat.bank.needs import row_for
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.io.source import ResponseSource, chunks
from irtcat.latent import cells_of, log_likelihoods
from irtcat.models import in_precision, item_categories
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.scoring.ability import Ability, joined_abilities
from irtcat.scoring.groups import (
    Members,
    members_of_groups,
    mixture_note,
    refuse_versions,
    warn_of_mixture,
)
from irtcat.scoring.points import point_estimates
from irtcat.scoring.posteriors import Posterior, posterior, quantile, standardised
from irtcat.scoring.score_vectors import score_multidimensional
from irtcat.scoring.sum_scores import check_has_sum_scores, sum_scores

CHUNK_CELLS = 2**26
"""Responses scored at a time, where they are read in passes."""

UNUSED_CATEGORY = "used a category that nobody used in calibration"

PER_SUBJECT = [
    "subject_ids",
    "theta",
    "se",
    "lower",
    "upper",
    "percentile",
    "n_items",
    "flag",
    "at_bound",
]


class _Task(NamedTuple):
    """The inputs of an estimator."""

    bank: ItemBank
    responses: Responses
    level: float
    theta_bounds: tuple[float, float]
    dtype: str
    prior: tuple[FloatArray, FloatArray] | None = None
    """Mean and SD of each subject's prior; the population for all if None."""


class _Estimate(NamedTuple):
    """The result of an estimator; flags are empty strings where nothing is flagged."""

    theta: FloatArray
    se: FloatArray
    lower: FloatArray
    upper: FloatArray
    flag: np.ndarray
    post: Posterior | None = None
    at_bound: BoolArray | None = None


def match(bank: ItemBank, responses: Responses) -> tuple[ItemBank, Responses]:
    """Bank and responses restricted to the items they share, in the bank's order.

    Predicted items are replaced by their expected curves.

    Raises:
        InputError: when they share no item, or the responses do not fit the bank's model.
    """
    shared = pd.Index(bank.item_ids).isin(pd.Index(responses.item_ids))
    if not shared.any():
        raise argument_error(
            "responses",
            "answers to items of the bank",
            responses.item_ids,
            f"The bank's items are {bank.item_ids[:3].tolist()} ...",
        )
    bank = (bank if shared.all() else bank.subset(shared)).expected_curves()
    if not np.array_equal(bank.item_ids, np.asarray(responses.item_ids, dtype=str)):
        responses = responses.subset(items=bank.item_ids)
    return bank, _in_codes_of(bank, responses)


def _in_codes_of(bank: ItemBank, responses: Responses) -> Responses:
    """The responses with categories numbered as in the bank, checked against each item's number."""
    n_categories = bank.model.n_categories
    # Graded items may have two categories among responses that have more.
    right_wrong = n_categories == 2 and (
        responses.n_categories == 2 or not bank.model.is_polytomous
    )
    if right_wrong or responses.is_fractional:
        if responses.n_categories != n_categories:
            raise argument_error(
                "responses",
                f"of {n_categories} categories, as a {bank.model.key} bank needs",
                "fractions" if responses.is_fractional else f"{responses.n_categories} categories",
            )
        return responses
    codes = bank.codes
    if not codes:
        if responses.n_categories != n_categories and responses.codes[0] != 0:
            must = f"in declared codes, since they have fewer categories than the {n_categories}"
            advice = "Pass codes= to Responses.from_array."
            got = f"codes {responses.codes[0]} to {responses.codes[-1]}"
            raise argument_error("responses", f"{must} of the bank", got, advice)
        codes = (responses.codes[0], responses.codes[0] + n_categories - 1)
    shift = responses.codes[0] - codes[0]
    n_codes = item_categories(bank.model)
    observed = responses.observed
    values = responses.values.astype(int) + shift
    wrong = observed & ((values < 0) | (values >= n_codes))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        highest = codes[0] + n_codes[column] - 1
        must = f"{codes[0]} to {highest} for item {brief(bank.item_ids[column])}"
        subject = responses.subject_ids[row]
        advice = f"It is subject {brief(subject)}'s; the item was calibrated with no other codes."
        raise argument_error("responses", must, int(values[row, column]) + codes[0], advice)
    if shift == 0:
        return responses
    return replace(
        responses,
        values=np.where(observed, values, -1).astype(np.int8),
        n_categories=n_categories,
        codes=tuple(range(codes[0], codes[0] + n_categories)),
    )


def _bank_posterior(task: _Task) -> Posterior:
    """Posterior of each subject on the bank's scale."""
    population = task.bank.population
    if task.prior is None and population.nodes is not None:
        return _density_posterior(task, population)
    with precision(task.dtype) as dtype:
        model = standardised(task.bank)
        mean, sd = population.mean, population.sd
        prior: tuple[FloatArray, ...] | None = None
        if task.prior is not None:
            prior = (task.prior[0] - mean) / sd, np.log(task.prior[1] / sd)
        elif population.parts:
            prior = _standardised_parts(population)
        post = posterior(model, *cells_of(model, task.responses), dtype, prior)
    return post._replace(nodes=mean + sd * post.nodes, mean=mean + sd * post.mean, sd=sd * post.sd)


def _standardised_parts(population: Population) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Means, log SDs and log shares of a mixture, on the scale where its mean is 0 and its SD 1."""
    if not all(part.is_normal for part in population.parts):
        must = "given for a bank of several populations with densities"
        raise argument_error("groups", must, None)
    means, sds = (
        np.array([getattr(part, name) for part in population.parts]) for name in ("mean", "sd")
    )
    standard = (means - population.mean) / population.sd
    return standard, np.log(sds / population.sd), np.log(population.shares)


def _density_posterior(task: _Task, population: Population) -> Posterior:
    """Posterior of each subject under a density, which has mass at its nodes alone."""
    assert population.nodes is not None
    assert population.weights is not None
    nodes = population.nodes
    with np.errstate(divide="ignore"):
        log_prior = np.log(population.weights)
    with precision(task.dtype) as dtype:
        model = in_precision(task.bank.model, dtype)
        cells = cells_of(task.bank.model, task.responses)
        log_lik = log_likelihoods(model, cells.x, nodes.astype(dtype), cells.has_missing)
    log_post = np.asarray(log_lik, float) + log_prior
    top = log_post.max(axis=1, keepdims=True)
    weights = np.exp(log_post - top)
    total = weights.sum(axis=1, keepdims=True)
    weights /= total
    mean = weights @ nodes
    sd = np.sqrt(np.maximum(weights @ nodes**2 - mean**2, 0.0))
    return Posterior(
        nodes=np.broadcast_to(nodes, weights.shape),
        weights=weights,
        log_z=(top + np.log(total))[:, 0],
        mean=mean,
        sd=sd,
        beyond=np.zeros(len(mean), bool),
        coarse=sd < np.diff(nodes).max(),
    )


def _eap(task: _Task) -> _Estimate:
    """Posterior mean, SD and quantiles."""
    post = _bank_posterior(task)
    tail = (1 - task.level) / 2
    lower, upper = quantile(post, tail), quantile(post, 1 - tail)
    flags = _grid_flags(post.beyond, post.coarse)
    return _Estimate(theta=post.mean, se=post.sd, lower=lower, upper=upper, flag=flags, post=post)


def _grid_flags(beyond: BoolArray, coarse: BoolArray) -> np.ndarray:
    """Flags of posteriors beyond the range or resolution of all grids."""
    flags = _no_flags(len(beyond))
    flags[coarse], flags[beyond] = "posterior narrower than the grid", "posterior beyond the grid"
    return flags


def _no_flags(n: int) -> np.ndarray:
    return np.full(n, "", dtype=object)


def _point(task: _Task, kind: str) -> _Estimate:
    """A point estimate with its Wald interval.

    At a bound, and where the objective is flat, the curvature says nothing of the uncertainty: the
    interval is then the likelihood-ratio one, and the SE infinite.
    """
    population = task.bank.population
    prior = np.array([population.mean, population.sd])
    if kind == "map" and not population.is_normal:
        prior = np.stack(population.components)
    z = ndtri(0.5 + task.level / 2)
    drop = z**2 / 2  # half the chi-squared quantile, df = 1
    with precision(task.dtype) as dtype:
        x = cells_of(task.bank.model, task.responses).x
        out = point_estimates(task.bank.model, x, kind, task.theta_bounds, prior, drop, dtype)
    information = np.where(out.information > 0, out.information, out.expected)
    with np.errstate(divide="ignore"):
        se = np.where(information > 0, 1 / np.sqrt(np.maximum(information, 0)), np.inf)
    low, high = task.theta_bounds
    theta, flags = out.theta, _no_flags(len(se))
    at_low, at_high = theta <= low, theta >= high
    flat = ~at_low & ~at_high & (np.isinf(se) | (out.tied & (se > high - low)))
    by_fall = at_low | at_high | flat
    open_low = at_low | out.flat | (out.lower <= low)
    open_high = at_high | out.flat | (out.upper >= high)
    lower = np.where(by_fall, np.where(open_low, -np.inf, out.lower), theta - z * se)
    upper = np.where(by_fall, np.where(open_high, np.inf, out.upper), theta + z * se)
    flags[at_low], flags[at_high] = "at the lower bound", "at the upper bound"
    flags[flat] = "flat likelihood"
    se = np.where(by_fall, np.inf, se)
    return _Estimate(
        theta=theta, se=se, lower=lower, upper=upper, flag=flags, at_bound=at_low | at_high
    )


def _map(task: _Task) -> _Estimate:
    """Posterior mode; SE from the curvature of the log-posterior."""
    return _point(task, "map")


def _likelihood_only(task: _Task, kind: str) -> _Estimate:
    """ML or WLE; NaN for subjects without responses."""
    estimate = _point(task, kind)
    none = ~task.responses.observed.any(axis=1)
    values = (np.nan, np.nan, -np.inf, np.inf)
    columns = zip(values, estimate[:4], strict=True)
    theta, se, lower, upper = (np.where(none, value, column) for value, column in columns)
    return estimate._replace(theta=theta, se=se, lower=lower, upper=upper)


def _ml(task: _Task) -> _Estimate:
    """Maximum likelihood within the bounds."""
    return _likelihood_only(task, "ml")


def _wle(task: _Task) -> _Estimate:
    """Warm's weighted likelihood estimate within the bounds."""
    return _likelihood_only(task, "wle")


def _eapsum(task: _Task) -> _Estimate:
    """EAP from the sum score, with one table for each pattern of answered items."""
    if task.responses.is_fractional:
        raise argument_error("method", "other than eapsum for fractional responses", "eapsum")
    check_has_sum_scores(task.bank)
    values = task.responses.values
    observed = values >= 0
    points = np.where(observed, values, 0).sum(axis=1, dtype=int)
    n = len(values)
    columns: dict[str, Any] = {name: np.empty(n) for name in ("theta", "se", "lower", "upper")}
    columns |= {name: np.zeros(n, bool) for name in ("beyond", "coarse")}
    patterns, which = np.unique(observed, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows = np.flatnonzero(which.ravel() == number)
        if pattern.any():
            table = sum_scores(task.bank.subset(pattern), level=task.level)
        else:
            population = task.bank.population
            lower, upper = _interval(population, task.level)
            ends: dict[str, Any] = {"theta": population.mean, "se": population.sd}
            ends |= {"lower": lower, "upper": upper}
            ends |= {"beyond": False, "coarse": False}
            table = {name: np.array([value]) for name, value in ends.items()}
        for name, column in columns.items():
            column[rows] = table[name][points[rows]]
    flags = _grid_flags(columns.pop("beyond"), columns.pop("coarse"))
    return _Estimate(**columns, flag=flags)


def _interval(population: Population, level: float) -> tuple[float, float]:
    """The interval of a population with equal tails."""
    if population.is_normal:
        half = ndtri(0.5 + level / 2) * population.sd
        return population.mean - half, population.mean + half
    nodes, weights = population.quadrature(0)
    order = np.argsort(nodes[:, 0])
    below = np.cumsum(weights[order]) - 0.5 * weights[order]
    lower, upper = np.interp([(1 - level) / 2, (1 + level) / 2], below, nodes[order, 0])
    return float(lower), float(upper)


def _flag_unused(flags: np.ndarray, bank: ItemBank, matched: Responses) -> np.ndarray:
    """The flags, with a note for subjects who used a category that nobody used in calibration."""
    hit = np.zeros(matched.n_subjects, bool)
    for item, category in np.argwhere(bank.unused_categories):
        hit |= matched.values[:, item] == category
    if not hit.any():
        return flags
    flags = flags.astype(object)
    flags[hit] = ["; ".join(filter(None, [text, UNUSED_CATEGORY])) for text in flags[hit]]
    return flags


METHODS: dict[str, Callable[[_Task], _Estimate]] = {
    "eap": _eap,
    "map": _map,
    "ml": _ml,
    "wle": _wle,
    "eapsum": _eapsum,
}
"""Ability estimators by name; to add one, add a row."""


@with_progress("Scoring")
def score(
    bank: ItemBank | Any,
    responses: ResponsesLike,
    method: str = "eap",
    *,
    prior: Any = None,
    groups: Any = None,
    level: float = 0.95,
    theta_bounds: tuple[float, float] = (-6.0, 6.0),
    precision: str = "auto",
    mismatch: str = "refuse",
    progress: ProgressOption = None,
) -> Ability:
    """Estimate the ability of every subject from its responses to items of the bank.

    | method | theta | se | interval |
    |---|---|---|---|
    | eap | posterior mean | posterior SD | posterior quantiles |
    | map | posterior mode | curvature of the log-posterior | normal |
    | ml | maximum of the likelihood within ``theta_bounds`` | observed information | normal |
    | wle | root of score + J / (2 I) (Warm 1989) | its slope there | normal |
    | eapsum | posterior mean given the sum score only | posterior SD | posterior quantiles |

    Args:
        bank: the calibrated items: a bank, the fit that holds it, or a file.
        responses: the responses, of any kind that `irtcat.as_responses` takes; items not in the
            bank are ignored, missing responses skipped. Columns without ids are the bank's items,
            in its order. A `irtcat.io.ResponseSource` is read in blocks (without the posteriors).
        method: one of the above.
        prior: for ``eap`` with one ability, what is known of each subject besides its responses:
            a table indexed by subject id with columns mean and sd (see `Fit.predict_subjects`), or
            (mean, SD), each a number or one per subject. By default the bank's population.
        groups: on a bank of several populations, the group of each subject, whose population is
            its prior: a column of ``responses.subjects``, a mapping by subject id, or one label
            each. Without it the prior is the mixture of the populations, weighted by their numbers
            of subjects, as ``Ability.note`` says. ``map`` is the mode under a density or mixture
            as well (`Population.log_density`); with several abilities it takes a mixture as the
            Normal with its mean and covariance, as the note says.
        level: probability of the interval, in (0, 1).
        theta_bounds: range of ``ml``, ``map`` and ``wle`` estimates.
        precision: "float64", "float32", or "auto" (float32 from a million responses on).
        mismatch: where responses and bank say under which conditions the items were answered
            (metric, filter, number of examples, version and hash of the data, as
            `irtcat.read_responses` keeps them of logs) and these differ: "refuse", or "accept".
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` for the blocks of a `ResponseSource`; responses in
            memory are scored by one compiled program.

    Returns:
        The abilities. An ``ml``, ``wle`` or ``map`` estimate at a bound is flagged; its SE is
        infinite, and its interval is the likelihood-ratio (posterior-ratio) interval, open
        (infinite) at every bound it reaches. Where the likelihood is flat to the last bit at all
        abilities within the bounds, the estimate is the bound on the side of the maximum, which is
        searched beyond them. A maximum that is flat to the last bit between the bounds is flagged
        "flat likelihood", and its SE is infinite too. ``eap`` and ``eapsum`` are integrated on as
        fine and wide a grid as the items and answers need; a posterior that no grid resolves is
        flagged "posterior narrower than the grid" or "posterior beyond the grid". Without any
        response ``ml`` and ``wle`` are NaN and flagged; the others give the population.
        Subjects who used a category that nobody used in calibration are flagged: its curve is not
        an estimate. On a multidimensional bank ``eap`` and ``map`` give vectors with their
        covariance, and normal intervals.

    Raises:
        InputError: for an unknown method, an interval outside (0, 1), bounds out of order,
            responses that share no item with the bank, or answers under other conditions.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 1.0, 2.0], b=[-1.0, 0.0, 1.0])
        >>> r = Responses.from_array([[1, 1, 0], [1, 1, 1]], item_ids=["i1", "i2", "i3"])
        >>> score(bank, r).to_frame()[["theta", "se"]].round(2).values.tolist()
        [[0.22, 0.72], [1.22, 0.71]]

    References:
        Bock & Mislevy (1982) (EAP); Warm (1989), Psychometrika 54, 427-450, eq. 8 (WLE);
        Thissen et al. (1995) (EAP for summed scores).
    """
    check_choice("method", method, METHODS)
    check_interval("level", level)
    bank = as_bank(bank)
    responses = as_responses_like(responses, "responses", bank, sources=True)
    if prior is not None and groups is not None:
        raise argument_error("groups", "left out where priors are given", groups)
    if prior is not None:
        if method != "eap":
            raise argument_error("prior", "left out but for eap", f"one for {method}")
        check_needs(bank.model, ["one ability"], "priors of subjects")
    if isinstance(responses, ResponseSource):
        for name, value in (("prior", prior), ("groups", groups)):
            if value is not None:
                raise argument_error(name, "left out for responses read in passes", "some")
        return _in_passes(bank, responses, method, level, theta_bounds, precision, progress)
    low, high = (
        (float(theta_bounds[0]), float(theta_bounds[1]))
        if len(theta_bounds) == 2
        else (np.nan, np.nan)
    )
    if not (np.isfinite([low, high]).all() and low < high):
        raise argument_error("theta_bounds", "two finite numbers in rising order", theta_bounds)
    check_conditions(bank.items, responses.items, mismatch, source="bank")
    if groups is not None:
        members = members_of_groups(bank, responses, groups)
        parts = [
            score(
                part.bank,
                part.responses,
                method,
                level=level,
                theta_bounds=theta_bounds,
                precision=precision,
                mismatch="accept",
            )
            for part in members
        ]
        return joined_abilities(parts, [part.rows for part in members])
    refuse_versions(bank, responses)
    bank, matched = match(bank, responses)
    dtype = choose_precision(precision, matched.values.size)
    subject_prior = None if prior is None else subject_priors(prior, matched.subject_ids)
    task = _Task(bank, matched, float(level), (low, high), dtype, prior=subject_prior)
    return row_for(bank.model, SCORERS)(task, method)


def subject_priors(prior: Any, subject_ids: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of each subject's prior.

    Raises:
        InputError: where a subject has none, or an SD is not above 0.
    """
    must = "a table of mean and sd by subject id, or (means, SDs)"
    if isinstance(prior, pd.DataFrame):
        if not {"mean", "sd"} <= set(prior.columns):
            raise argument_error("prior", must, f"the columns {list(prior.columns)}")
        table = prior.set_axis(prior.index.map(str), axis=0)
        if table.index.has_duplicates:
            twice = table.index[table.index.duplicated()][0]
            raise argument_error("prior", "one row a subject", f"several for {twice!r}")
        ids = pd.Index([str(subject) for subject in subject_ids])
        missing = ids[~ids.isin(table.index)]
        if len(missing):
            raise argument_error("prior", "a prior of every subject", f"none for {missing[0]!r}")
        mean, sd = (table.loc[ids, name].to_numpy(float) for name in ("mean", "sd"))
    else:
        try:
            mean, sd = (
                np.broadcast_to(np.asarray(part, float), len(subject_ids)) for part in prior
            )
        except (TypeError, ValueError):
            raise argument_error("prior", must, prior) from None
    wrong = ~np.isfinite(mean) | ~np.isfinite(sd) | ~(sd > 0)
    if wrong.any():
        at = int(wrong.argmax())
        got = f"mean {mean[at]} and SD {sd[at]} for subject {brief(subject_ids[at])}"
        raise argument_error("prior", "of finite means and SDs above 0", got)
    return mean, sd


def _abilities(task: _Task, method: str) -> Ability:
    """The abilities of an estimator, with flags and percentiles."""
    bank, matched, estimate = task.bank, task.responses, METHODS[method](task)
    n_items = matched.observed.sum(axis=1)
    flags = np.where(n_items == 0, "no responses", estimate.flag)
    flags = _flag_unused(flags, bank, matched)
    percentile = bank.population.percentile(estimate.theta)
    post = estimate.post
    return Ability(
        subject_ids=matched.subject_ids,
        theta=estimate.theta,
        se=estimate.se,
        lower=estimate.lower,
        upper=estimate.upper,
        percentile=percentile,
        n_items=n_items,
        flag=flags,
        method=method,
        level=task.level,
        nodes=None if post is None else post.nodes,
        weights=None if post is None else post.weights,
        at_bound=None if estimate.at_bound is None else estimate.at_bound & (n_items > 0),
        note=mixture_note(bank) if task.prior is None else "",
    )


def _ability_vectors(task: _Task, method: str) -> Ability:
    """The abilities on a multidimensional bank, with flags."""
    bank, matched = task.bank, task.responses
    abilities = score_multidimensional(bank, matched, method, task.level, task.dtype)
    return replace(abilities, flag=_flag_unused(abilities.flag, bank, matched))


SCORERS = {"one ability": _abilities, "several abilities": _ability_vectors}
"""How subjects are scored, by what it needs of the bank."""


def _in_passes(
    bank: ItemBank,
    source: ResponseSource,
    method: str,
    level: float,
    theta_bounds: tuple[float, float],
    precision: str,
    progress: Progress | None,
) -> Ability:
    """`score` of a `ResponseSource`, a chunk of subjects at a time."""
    rows = int(min(source.n_subjects, max(1, CHUNK_CELLS // source.n_items)))
    dtype = choose_precision(precision, source.n_subjects * source.n_items)
    items, scored_blocks = np.asarray(source.item_ids, dtype=object), []
    begin = Steps(progress, -(-source.n_subjects // rows))
    for k, chunk in enumerate(chunks(source, rows)):
        begin(f"Subjects from number {k * rows + 1} of {source.n_subjects}")
        ids = source.subject_ids[k * rows : (k + 1) * rows]
        filled = np.append(ids, [f"\n{i}" for i in range(rows - len(ids))])
        subjects = pd.DataFrame(index=pd.Index(filled, dtype=object))
        codes = tuple(range(source.n_categories))
        block = Responses(
            values=chunk,
            subject_ids=filled,
            item_ids=items,
            n_categories=len(codes),
            codes=codes,
            subjects=subjects,
            items=source.items,
        )
        scored = score(bank, block, method, level=level, theta_bounds=theta_bounds, precision=dtype)
        columns = {name: getattr(scored, name) for name in PER_SUBJECT}
        scored_blocks.append({k: v[: len(ids)] for k, v in columns.items() if v is not None})
    named: dict[str, Any] = {
        name: np.concatenate([block[name] for block in scored_blocks]) for name in scored_blocks[0]
    }
    return Ability(**named, method=method, level=float(level))


def plausible_values(
    bank: ItemBank,
    responses: Responses,
    n: int = 5,
    seed: int = 0,
    precision: str = "auto",
    mismatch: str = "refuse",
    *,
    groups: Any = None,
) -> pd.DataFrame:
    """Draw abilities from every subject's posterior.

    Args:
        bank: the calibrated items.
        responses: the responses.
        n: number of draws per subject, at least 1.
        seed: seed of the draws.
        precision: see `score`.
        mismatch: see `score`.
        groups: the group of each subject, as for `score`; without it a bank of several populations
            warns that the prior is their mixture.

    Returns:
        One row per subject, columns pv1, pv2, ....

    Raises:
        InputError: for ``n`` below 1, or responses that share no item with the bank.

    Example:
        >>> bank = ItemBank.from_parameters(b=[-1.0, 0.0, 1.0])
        >>> r = Responses.from_array([[1, 1, 0]], item_ids=["i1", "i2", "i3"])
        >>> plausible_values(bank, r, n=3, seed=1).shape
        (1, 3)

    References:
        Mislevy (1991), Psychometrika 56, 177-196.
    """
    check_count("n", n)
    check_needs(bank.model, ["one ability"], "plausible values")
    check_conditions(bank.items, responses.items, mismatch, source="bank")
    if groups is None:
        refuse_versions(bank, responses)
        warn_of_mixture(bank)
        parts = [Members("", np.arange(responses.n_subjects), bank, responses)]
    else:
        parts = members_of_groups(bank, responses, groups)
    key_draws = np.random.default_rng(seed).random((responses.n_subjects, n))
    draws = np.empty(key_draws.shape)
    for part in parts:
        items, matched = match(part.bank, part.responses)
        dtype = choose_precision(precision, matched.values.size)
        post = _bank_posterior(_Task(items, matched, 0.95, (-6.0, 6.0), dtype))
        for i in range(n):
            draws[part.rows, i] = _inverse(post, key_draws[part.rows, i])
    index = pd.Index(responses.subject_ids, dtype=object, name="subject")
    return pd.DataFrame(draws, index=index, columns=[f"pv{i + 1}" for i in range(n)])


def _inverse(post: Posterior, probability: FloatArray) -> FloatArray:
    """Each subject's posterior quantile at its own probability."""
    return quantile(post, probability[:, None])

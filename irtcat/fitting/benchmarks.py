"""One bank over several benchmarks: an ability for each of them, correlated in the population.

Every item measures the ability of its own benchmark, and the abilities of a subject are Normal,

    theta_i ~ N(mu, Sigma),

with Sigma free ("correlated"), or with a general ability and a specific one for each benchmark
("general"),

    theta_ib = mu_b + lambda_b g_i + sqrt(psi_b) s_ib,  so that  Sigma = lambda lambda' + diag(psi),

the second-order form of a bifactor model, in which the general and the specific slopes of the items
of a benchmark are proportional (Yung, Thissen & McLeod 1999).

A benchmark has many items, so that the likelihood of its ability is nearly Normal. That makes the
fit fast: the items of each benchmark are calibrated by EM with one ability, and expectation
propagation (Minka 2001) exchanges what a subject shows between its benchmarks. The likelihood of
each ability is replaced by the Normal one that gives the posterior its mean and variance under the
prior that the other benchmarks imply. With these, mu and Sigma have EM steps in closed form, also
for subjects that ran only some of the benchmarks.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, shorten
from irtcat._common.per_item import per_item
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank, Population
from irtcat.fitting.calibrate import fit
from irtcat.fitting.result import Fit
from irtcat.fitting.specification import Progress
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.models import MODELS, Design, column_names, design_of, parameter_matrix, unpack
from irtcat.responses import Responses
from irtcat.scoring import score

BENCHMARK_STRUCTURES = {
    "correlated": "a correlation for every two benchmarks",
    "general": "a general ability and a specific one for each benchmark",
}
"""What the covariance of the abilities may be."""

ROUNDS, ENOUGH = 8, 2e-3
"""Rounds of expectation propagation end when no correlation changes by more than this."""

EM_STEPS, EM_TOLERANCE = 2000, 1e-5
"""EM of mean and covariance: most steps, and the largest change of the last one."""

FOLDS = 5
FEWEST_SHARED = 10
"""Subjects that a benchmark must share with others: fewer say next to nothing of a correlation."""

AXIS_STEPS = 200
LEAST_REST = 1e-3
"""Least share of an ability's variance that is specific."""

LEAST_PRECISION = 1e-6
PRIOR_SUBJECTS = 1.0
"""Weight of the prior that keeps Sigma positive definite: so many subjects without correlation."""


class _Sites(NamedTuple):
    """The Normal likelihoods of the abilities, subjects x benchmarks.

    Attributes:
        precision: 1 / variance; 0 where the subject did not run the benchmark.
        weighted: precision times the mean.
    """

    precision: FloatArray
    weighted: FloatArray


class _Population(NamedTuple):
    """Mean and covariance of the abilities, on the scales of the benchmarks."""

    mean: FloatArray
    covariance: FloatArray


@dataclass(frozen=True, eq=False)
class BenchmarkFit:
    """The outcome of `fit_benchmarks`.

    Attributes:
        bank: all items, each with a slope on the ability of its benchmark; the abilities have mean
            0, SD 1 and `correlations` in the population.
        benchmarks: their names, in the order of the bank's abilities.
        structure: "correlated" or "general".
        correlations: of the abilities, benchmarks x benchmarks.
        general: correlation of each ability with the general one; NaN for "correlated".
        comparison: for each structure the log-likelihood of a left-out subject (mean over subjects
            in five folds) and its difference to the better one with its standard error.
        subjects: number of subjects that ran each benchmark.
        fits: the calibration of each benchmark on its own.
        converged: whether all calibrations, and the rounds between benchmarks, converged.
    """

    bank: ItemBank
    benchmarks: tuple[str, ...]
    structure: str
    correlations: pd.DataFrame
    general: pd.Series
    comparison: pd.DataFrame
    subjects: pd.Series
    fits: Mapping[str, Fit]
    converged: bool

    def __repr__(self) -> str:
        """What was fitted, in one line."""
        state = "converged" if self.converged else "not converged"
        return (
            f"BenchmarkFit({len(self.benchmarks)} benchmarks, {self.bank.n_items} items, "
            f"{BENCHMARK_STRUCTURES[self.structure]}, {state})"
        )


NOT_WITH = {
    *("subject_weights", "groups", "reference", "invariance", "density", "theta"),
    *("subject_features", "dims", "pattern", "correlated"),
}
"""Arguments of `irtcat.fit` that `fit_benchmarks` takes only with their defaults."""


def fit_benchmarks(
    responses: ResponsesLike,
    benchmarks: Any = "benchmark",
    model: str = "2pl",
    *,
    structure: str | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> BenchmarkFit:
    """Calibrate several benchmarks together: one bank with an ability for each.

    Subjects may lack whole benchmarks. With the bank, `irtcat.predict` with ``estimator="irt"`` and
    ``groups`` predicts every benchmark, also one that a subject has not run, from its answers to
    all others, and ``weights`` any average of them; `irtcat.score` and adaptive tests give the
    abilities. The default estimator of `irtcat.predict` needs no bank for that: it regresses the
    score of each benchmark on all answers, which is more exact for subjects like those calibrated.

    Args:
        responses: subjects x items of all benchmarks, of any kind that `irtcat.as_responses` takes;
            or a mapping from the name of each benchmark to its responses, which are matched by
            subject id.
        benchmarks: the benchmark of each item: a column of ``responses.items``, a Series by item
            id, or one label per item. Not used with a mapping.
        model: a model that has slopes for several abilities, such as 2pl, 3pl or graded.
        structure: "correlated" or "general" (see the module); by default the one that predicts
            subjects better that are left out, with five folds.
        progress: as for `irtcat.fit`, for the calibration of each benchmark.
        options: more arguments of `irtcat.fit` for every benchmark, those of `NOT_WITH` only with
            their defaults: each benchmark has one ability, of one Normal population.

    Returns:
        The fit.

    Raises:
        InputError: for fewer than two benchmarks, a benchmark that shares fewer than 10 subjects
            with the others, or a model without slopes for several abilities.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> theta = rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(300, 2))
        >>> x = np.repeat(theta, 30, axis=1) + rng.logistic(size=(300, 60)) > 0
        >>> r = Responses.from_array(x.astype(int))
        >>> f = fit_benchmarks(r, ["maths"] * 30 + ["code"] * 30, structure="correlated")
        >>> float(f.correlations.loc["maths", "code"].round(1))  # 1 / 1.25 in truth
        0.8

    References:
        Yung, Thissen & McLeod (1999), Psychometrika 64, 113-128; Minka (2001), Expectation
        propagation for approximate Bayesian inference, UAI 17, 362-369.
    """
    if structure is not None:
        check_choice("structure", structure, BENCHMARK_STRUCTURES)
    parts = _parts(responses, benchmarks)
    names = tuple(parts)
    if structure is not None and structure not in _possible(len(names)):
        raise argument_error("structure", "correlated with two benchmarks", structure)
    is_run = _runs(parts)
    able = [key for key, cls in MODELS.items() if _takes_abilities(cls)]
    if model not in able:
        raise argument_error("model", f"one of {', '.join(able)}", model)
    defaults = inspect.signature(fit).parameters
    for name in sorted(NOT_WITH & options.keys()):
        if options[name] is defaults[name].default:
            continue
        must = "left out: each benchmark has one ability, of one Normal population"
        raise argument_error(name, must, options[name])
    fits = {name: fit(part, model, progress=progress, **options) for name, part in parts.items()}
    chosen = structure or "correlated"
    sites, population, converged = _propagated(fits, parts, is_run, chosen)
    comparison = _compared(sites, population)
    best = str(comparison["log_likelihood"].idxmax())
    if structure is None and best != chosen:
        chosen = best
        sites, population, converged = _propagated(fits, parts, is_run, chosen)
    sd = np.sqrt(np.diagonal(population.covariance))
    correlations = _correlations(population)
    np.fill_diagonal(correlations, 1.0)
    banks = [
        _on_axis(fits[name].bank, axis, population.mean[axis], sd[axis], correlations)
        for axis, name in enumerate(names)
    ]
    provenance = {"model": model, "benchmarks": list(names), "population": chosen}
    bank = replace(reduce(ItemBank.join, banks), provenance=provenance)
    general = np.full(len(names), np.nan)
    if chosen == "general":
        general = _factor(population.covariance)[0] / sd
    return BenchmarkFit(
        bank=bank,
        benchmarks=names,
        structure=chosen,
        correlations=pd.DataFrame(correlations, index=names, columns=names),
        general=pd.Series(general, index=names, name="general"),
        comparison=comparison,
        subjects=pd.Series(is_run.sum(axis=0), index=names, name="subjects"),
        fits=fits,
        converged=converged and all(f.converged for f in fits.values()),
    )


def _parts(responses: Any, benchmarks: Any) -> dict[str, Responses]:
    """The responses to each benchmark of the subjects that ran it, by name.

    Raises:
        InputError: for fewer than two, an item in two of them, or an item without one.
    """
    if isinstance(responses, Mapping) and not isinstance(responses, Responses):
        parts = {
            str(name): as_responses_like(part, f"responses[{str(name)!r}]")
            for name, part in responses.items()
        }
        if len(parts) < len(responses):  # of 1 and "1" the last would be left
            raise argument_error("responses", "of names that differ as text", [*responses])
        owner: dict[Any, str] = {}
        for name, part in parts.items():
            for item in part.item_ids:
                if item in owner:
                    got = f"{shorten(str(item))} in {owner[item]} and {name}"
                    raise argument_error("responses", "of items of one benchmark each", got)
                owner[item] = name
    else:
        responses = as_responses_like(responses, "responses")
        labels = per_item(
            "benchmarks", benchmarks, responses.item_ids, [responses.items], "label"
        ).astype(object)
        if pd.isna(labels).any():
            item = responses.item_ids[int(np.argmax(pd.isna(labels)))]
            must = "a benchmark for every item"
            raise argument_error("benchmarks", must, f"none for item {item}")
        labels = labels.astype(str)  # 1 and "1" are one benchmark
        parts = {
            str(label): responses.subset(items=np.flatnonzero(labels == label))
            for label in pd.unique(labels)
        }
    if len(parts) < 2:
        raise argument_error("benchmarks", "two or more", shorten(list(parts)))
    return {
        name: part.subset(subjects=np.flatnonzero(part.answered)) for name, part in parts.items()
    }


def _runs(parts: Mapping[str, Responses]) -> BoolArray:
    """Which subject ran which benchmark, subjects in the order of `_subjects`.

    Raises:
        InputError: for a benchmark that shares too few subjects with the others.
    """
    index = _subjects(parts)
    is_run = np.stack([index.isin(part.subject_ids) for part in parts.values()], axis=1)
    for column, name in enumerate(parts):
        others = np.delete(is_run, column, axis=1).any(axis=1)
        shared = int((is_run[:, column] & others).sum())
        if shared < FEWEST_SHARED:
            must = f"benchmarks that share at least {FEWEST_SHARED} subjects with the others"
            raise argument_error("responses", must, f"{shared} for {name}")
    return is_run


def _subjects(parts: Mapping[str, Responses]) -> pd.Index:
    """All subjects, in the order of their first benchmark."""
    ids = np.concatenate([np.asarray(part.subject_ids, dtype=object) for part in parts.values()])
    return pd.Index(pd.unique(ids))


def _takes_abilities(cls: Any) -> bool:
    """Whether a model has a slope for each ability, and a scale that `ItemBank.rescale` moves."""
    design = Design(np.full(1, 2), dims=2)
    if "slope" not in cls.parameters or cls.parameters["slope"].tied or cls.members:
        return False
    try:
        blank = cls.blank(design)
    except (TypeError, ValueError, KeyError):
        return False
    return bool(blank.dims == design.dims and np.shape(blank.slope) == design.slope_shape)


def _on_axis(
    bank: ItemBank, axis: int, mean: float, sd: float, correlations: FloatArray
) -> ItemBank:
    """The items of one ability as items of several, with slopes on one of them.

    Args:
        bank: the items.
        axis: number of their ability.
        mean: its mean in the population, on the scale of the bank.
        sd: its SD there.
        correlations: of the abilities.
    """
    standard = bank.rescale(1 / sd, -mean / sd)
    design, dims = design_of(standard.model), len(correlations)
    blank = type(standard.model).blank(design._replace(dims=dims))
    old, new = column_names(standard.model), column_names(blank)
    to = np.array([new.index(f"slope_{axis + 1}" if name == "slope" else name) for name in old])
    params = np.zeros((standard.n_items, len(new)))
    params[:, to] = parameter_matrix(standard.model)
    covariance = None
    if standard.covariance is not None:
        covariance = np.full((standard.n_items, len(new), len(new)), np.nan)
        covariance[:, to[:, None], to] = standard.covariance
    return replace(
        standard,
        model=unpack(blank, params),
        populations=Population(np.zeros(dims), 1.0, correlations),
        covariance=covariance,
        full_covariance=None,
    )


def _propagated(
    fits: Mapping[str, Fit], parts: Mapping[str, Responses], is_run: BoolArray, structure: str
) -> tuple[_Sites, _Population, bool]:
    """Expectation propagation between the benchmarks, with EM of the population in each round."""
    index, n = _subjects(parts), len(fits)
    rows = [index.get_indexer(pd.Index(part.subject_ids)) for part in parts.values()]
    sites = _Sites(np.zeros(is_run.shape), np.zeros(is_run.shape))
    population = _Population(np.zeros(n), np.eye(n))
    for number in range(ROUNDS):
        mean, covariance = _posterior(sites, population)
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        # What the other benchmarks and the population say of each ability.
        without = np.maximum(1 / variance - sites.precision, LEAST_PRECISION)
        centre = (mean / variance - sites.weighted) / without
        new = _Sites(np.zeros(is_run.shape), np.zeros(is_run.shape))
        for column, (f, part) in enumerate(zip(fits.values(), parts.values(), strict=True)):
            at = rows[column]
            prior = centre[at, column], 1 / np.sqrt(without[at, column])
            ability = score(f.bank, part, prior=prior)
            precision = 1 / np.asarray(ability.se, float) ** 2
            site = np.maximum(precision - without[at, column], LEAST_PRECISION)
            shown = precision * np.asarray(ability.theta, float)
            new.precision[at, column] = site
            new.weighted[at, column] = shown - without[at, column] * centre[at, column]
        before, sites = population, new
        # The general ability starts at that of free correlations: without any, EM would not move.
        now = structure if number else "correlated"
        population = _fitted_population(sites, now, population)
        if np.abs(_correlations(population) - _correlations(before)).max() < ENOUGH:
            return sites, population, True
    return sites, population, False


def _correlations(population: _Population) -> FloatArray:
    sd = np.sqrt(np.diagonal(population.covariance))
    return population.covariance / np.outer(sd, sd)


def _posterior(sites: _Sites, population: _Population) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of the abilities of each subject."""
    prior = np.linalg.inv(population.covariance)
    n = len(prior)
    covariance = np.linalg.inv(prior + sites.precision[:, :, None] * np.eye(n))
    shown = sites.weighted + prior @ population.mean
    return np.einsum("nab,nb->na", covariance, shown), covariance


def _fitted_population(sites: _Sites, structure: str, start: _Population) -> _Population:
    """Mean and covariance of the abilities by EM, with a weak prior on the covariance."""
    population, n = start, len(sites.precision)
    if structure == "general":
        loading, rest = _factor(start.covariance)
    for _ in range(EM_STEPS):
        mean, covariance = _posterior(sites, population)
        centre = mean.mean(axis=0)
        second = (mean - centre).T @ (mean - centre) + covariance.sum(axis=0)
        prior = PRIOR_SUBJECTS * np.diag(np.diagonal(second)) / n
        second = (second + prior) / (n + PRIOR_SUBJECTS)
        if structure == "general":
            loading, rest = _factor_step(second, loading, rest)
            second = np.outer(loading, loading) + np.diag(rest)
        before, population = population, _Population(centre, second)
        change = np.abs(population.covariance - before.covariance).max()
        if max(change, np.abs(population.mean - before.mean).max()) < EM_TOLERANCE:
            break
    return population


def _factor(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Loadings and rest of a covariance with one factor, by iterated principal axes.

    Exact where the covariance has this form; first guesses for EM where it does not.
    """
    sd = np.sqrt(np.diagonal(covariance))
    reduced = covariance / np.outer(sd, sd)
    off = reduced - np.diag(np.diagonal(reduced))
    np.fill_diagonal(reduced, np.abs(off).max(axis=1))
    for _ in range(AXIS_STEPS):
        values, vectors = np.linalg.eigh(reduced)
        loading = vectors[:, -1] * np.sqrt(max(values[-1], 1e-6))
        np.fill_diagonal(reduced, np.minimum(loading**2, 1 - LEAST_REST))
    loading = loading * sd * (np.sign(loading.sum()) or 1.0)
    variance = np.diagonal(covariance)
    return loading, np.maximum(variance - loading**2, LEAST_REST * variance)


def _factor_step(
    second: FloatArray, loading: FloatArray, rest: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """One step of EM of a factor analysis of these second moments (Rubin & Thayer 1982)."""
    weights = loading / rest / (1 + (loading**2 / rest).sum())
    shown = second @ weights
    factor = 1 - weights @ loading + weights @ shown
    new = shown / factor
    return new, np.maximum(np.diagonal(second) - new * shown, LEAST_REST * np.diagonal(second))


def _log_density(sites: _Sites, population: _Population) -> FloatArray:
    """Log-likelihood of the Normal sites of each subject, without constants of the sites."""
    covariance, mean = population.covariance, population.mean
    n = len(mean)
    eye = np.eye(n)
    # N(y; mu, Sigma + 1 / P) up to factors of P alone: finite where a precision is 0.
    scaled = eye + sites.precision[:, :, None] * covariance
    off = sites.weighted - sites.precision * mean
    solved = np.linalg.solve(np.swapaxes(scaled, 1, 2), (off @ covariance)[..., None])[..., 0]
    square = (off * solved).sum(axis=1)
    linear = sites.weighted @ mean - 0.5 * sites.precision @ mean**2
    return linear + 0.5 * square - 0.5 * np.linalg.slogdet(scaled)[1]


def _possible(n_benchmarks: int) -> list[str]:
    """The structures: one correlation does not identify a general ability."""
    return ["correlated"] if n_benchmarks == 2 else list(BENCHMARK_STRUCTURES)


def _compared(sites: _Sites, start: _Population) -> pd.DataFrame:
    """The structures by the log-likelihood of subjects that are left out."""
    n = len(sites.precision)
    fold = np.random.default_rng(0).permutation(n) % FOLDS
    values = {structure: np.zeros(n) for structure in _possible(sites.precision.shape[1])}
    for k in range(FOLDS):
        kept, left_out = (
            _Sites(*(part[rows] for part in sites)) for rows in (fold != k, fold == k)
        )
        population = start
        for structure, value in values.items():
            population = _fitted_population(kept, structure, population)
            value[fold == k] = _log_density(left_out, population)
    best = max(values.values(), key=lambda value: value.mean())
    rows = {
        name: {
            "log_likelihood": value.mean(),
            "difference": (value - best).mean(),
            "se": (value - best).std() / np.sqrt(n),
        }
        for name, value in values.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("structure")

"""One scale over benchmarks: an index of models, with anchors, intervals, domains and a trend."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, brief, check_interval, is_number, shorten
from irtcat._common.types import FloatArray, IntArray
from irtcat.leaderboard.compared_models import groups_of
from irtcat.leaderboard.completion import RANK, Completion, completed, fitted_factors
from irtcat.leaderboard.trends import Dated, Trend, TrendScale
from irtcat.responses._frames import cells_table

ALL = "all"
"""Name of the index over all domains."""

DRAWS = 800
"""Draws of the posterior: the ends of a 90 % interval then have an error of about .08 SD."""

FLAT = 1e-6
"""Slope below which a benchmark does not depend on the index."""

LEAST_INFORMATION = 0.05
"""Share of the prior variance that the scores of a model must take away for it to count in a trend:
with less, nothing but the prior is known of it."""


@dataclass(frozen=True, eq=False)
class Index:
    """Models and benchmarks on one scale.

    Attributes:
        models: ids of the models.
        domains: names of the scales: ``all``, then the domains, if there are any.
        value: domains x models: the index.
        draws: draws x domains x models: the index, drawn from its posterior.
        unit: mean logits (of one domain, or all) are this times the index, apart from a shift.
        unit_draws: its draws; 1 without anchors.
        prior_variance: of each domain's index, without any score of a model.
        benchmarks: one row for each benchmark: its domain; its difficulty, the index with which a
            model is expected to have half of the points (percent and share) or the mean score
            (other units), with its interval, lower and upper; and its slope, in logits (in SDs of
            the score) per point of the index.
        anchors: the models and benchmarks with fixed values.
        level: probability of the intervals.
        completion: measured and predicted scores of all models on all benchmarks.
        flags: what is uncertain.
    """

    models: np.ndarray
    domains: tuple[str, ...]
    value: FloatArray
    draws: FloatArray
    unit: float
    unit_draws: FloatArray
    prior_variance: FloatArray
    benchmarks: pd.DataFrame
    anchors: Mapping[str, float]
    level: float
    completion: Completion
    flags: tuple[str, ...]

    def __repr__(self) -> str:
        n, n_domains = len(self.models), len(self.domains) - 1
        domains = f", {n_domains} domains" if n_domains else ""
        return f"Index({n} models, {len(self.benchmarks)} benchmarks{domains})"

    def to_frame(self) -> pd.DataFrame:
        """One row for each model, the best first.

        Returns:
            Indexed by model: index, lower, upper, n_scores, and the index in each domain, by its
            name. An anchor has no interval.
        """
        lower, upper = _ends(self.draws[:, 0], self.level)
        columns: dict[str, Any] = {
            "index": self.value[0],
            "lower": lower,
            "upper": upper,
            "n_scores": self.completion.observed.sum(axis=1),
        }
        columns |= dict(zip(self.domains[1:], self.value[1:], strict=True))
        frame = pd.DataFrame(columns, index=pd.Index(self.models, name="model", dtype=object))
        return frame.sort_values("index", ascending=False, kind="stable")

    def domains_to_frame(self) -> pd.DataFrame:
        """One row for each model and domain, ``all`` among them.

        Returns:
            domain, model, index, lower, upper.
        """
        lower, upper = _ends(self.draws, self.level)
        values = {"index": self.value, "lower": lower, "upper": upper}
        return cells_table({"domain": self.domains, "model": self.models}, values)

    def trend(
        self,
        dates: Any,
        families: Any = None,
        *,
        domain: str = ALL,
        change: bool = True,
        seed: int = 0,
    ) -> Trend:
        """How the index grows with the dates of the models: points in a year.

        Each model's index counts with what its scores alone say: the prior, which pulls models with
        few scores to the mean, is divided out (fits with dates as `model_features` would use them
        twice). The rest is as in `Horizons.trend`.

        Args:
            dates: a mapping from models to dates (or years).
            families: a mapping from models to families, such as providers.
            domain: the scale.
            change: whether to look for a change of the pace.
            seed: seed of the test for a change.

        Returns:
            The trend. Models without a date, or of whose index the scores say hardly anything, are
            left out, with a flag.

        Raises:
            InputError: for dates that are none, an unknown domain, and too few models or dates.
        """
        if domain not in self.domains:
            raise argument_error("domain", f"one of {', '.join(self.domains)}", domain)
        estimate, covariance, cross, informed = self._without_prior(self.domains.index(domain))
        spread = float(np.var(np.log(np.abs(self.unit_draws))))
        dated = Dated(
            ids=self.models,
            tables=[],
            kind="model",
            estimates=estimate,
            covariance=covariance,
            usable=informed,
            scale=TrendScale(self.unit, cross, spread),
        )
        return dated.trend(
            dates,
            families,
            "with hardly any score",
            unit="points",
            level=self.level,
            change=change,
            seed=seed,
        )

    def _without_prior(self, domain: int) -> tuple[FloatArray, FloatArray, FloatArray, np.ndarray]:
        """What the scores alone say of each model, in mean logits.

        Also the covariance, that with the log of the unit, and who has enough scores.
        """
        draws = self.draws[:, domain] * self.unit_draws[:, None]
        draws = draws - draws.mean(axis=1, keepdims=True)
        value = self.value[domain] * self.unit
        value = value - value.mean()
        cov = np.cov(draws, rowvar=False)
        prior = float(self.prior_variance[domain]) * self.unit**2
        variance = np.diagonal(cov)
        informed = variance < (1 - LEAST_INFORMATION) * prior
        kept = np.where(informed, 1 - variance / prior, 1.0)
        logs = np.log(np.abs(self.unit_draws))
        cross = (draws - draws.mean(axis=0)).T @ (logs - logs.mean()) / len(logs)
        return value / kept, cov / np.sqrt(np.outer(kept, kept)), cross / kept, informed


class _Places(NamedTuple):
    """Models and benchmarks on the scale of the mean logit; axes of draws may come first.

    Attributes:
        value: domains x models.
        difficulty: of the benchmarks.
        slope: of the benchmarks.
        prior: variance of each domain's index for a model without scores.
    """

    value: FloatArray
    difficulty: FloatArray
    slope: FloatArray
    prior: FloatArray


def index(
    scores: Any,
    anchors: Mapping[str, float] | None = None,
    *,
    domains: Any = None,
    level: float = 0.9,
    units: Any = None,
    model_features: Any = None,
    rank: int = RANK,
    seed: int = 0,
) -> Index:
    """Put models and benchmarks on one scale, from the scores there are.

    The model is that of `irtcat.leaderboard.complete`: a few abilities of a model decide its scores
    on all benchmarks, as logits, whether it was run on them or not. The index of a model is the
    mean of its expected logits over all benchmarks, each domain with the same weight; so it does
    not depend on which benchmarks a model was run on. A benchmark's difficulty is the index with
    which a model is expected to have half of the points.

    Two anchors fix the scale: ``{"GPT-4": 100, "GPT-5": 150}``. They have their values without an
    error, and the intervals of all others are those of their distance from them. Without anchors
    the scale is that of the mean logit.

    Intervals are quantiles of draws of the abilities and loadings from their posterior, each put on
    the scale of the anchors. They say how uncertain the expected scores are, given that scores are
    missing for reasons unrelated to their values.

    Args:
        scores: models x benchmarks, as for `irtcat.leaderboard.complete`.
        anchors: a mapping from two models or benchmarks to their values: a model's index, or a
            benchmark's difficulty.
        domains: a mapping from benchmarks to domains; all must have one. The index of a domain is
            on the same scale: models have the same mean and SD in all domains.
        level: probability of the intervals.
        units: as for `irtcat.leaderboard.complete`.
        model_features: as for `irtcat.leaderboard.complete`.
        rank: number of abilities.
        seed: seed of the draws.

    Returns:
        The index; `Index.trend` gives its growth.

    Raises:
        InputError: as `irtcat.leaderboard.complete`; for anchors that are not two known names with
            different values in the order of the scores; for benchmarks without a domain.

    Example:
        >>> scores = pd.DataFrame(
        ...     {"maths": [20, 40, 60, 80], "code": [30, 50, 70, None], "law": [40, 61, 79, 90]},
        ...     index=["small", "medium", "large", "new"],
        ... )
        >>> found = index(scores, {"small": 0, "large": 100})
        >>> found.to_frame()["index"].round().to_dict()
        {'new': 151.0, 'large': 100.0, 'medium': 51.0, 'small': 0.0}
        >>> found.benchmarks["difficulty"].round().to_dict()
        {'maths': 73.0, 'code': 50.0, 'law': 24.0}

    References:
        Ghahramani & Beal (2000), Variational inference for Bayesian mixtures of factor analysers,
        NeurIPS 12, section 3; Ho et al. (2025), A Rosetta Stone for AI Benchmarks,
        arXiv:2512.00193 (the task, with one ability and least squares).
    """
    check_interval("level", level)
    table, factors = fitted_factors(scores, units, model_features, rank)
    names, of_domain = _domains(domains, table.benchmarks)
    chosen = _anchors(anchors, table.models, table.benchmarks)
    weights = np.array([of_domain == i for i in range(len(names))], float)
    weights /= weights.sum(axis=1, keepdims=True)
    if len(names) > 1:
        weights = np.vstack([weights.mean(axis=0), weights])
    typical = factors.abilities.typical()
    mean, cov = typical.mean[0], typical.cov[0]
    places = _places(factors.loadings, factors.abilities.mean, weights, mean, cov)
    estimate, unit = _anchored(places, chosen)
    if unit <= 0 or not np.isfinite(unit):
        must = "in the order that the scores give them, the higher one better or harder"
        got = f"the reverse for {' and '.join(brief(anchor.name) for anchor in chosen)}"
        raise argument_error("anchors", must, got)
    loadings, theta = factors.draws(DRAWS, seed)
    mean = theta.mean(axis=1)
    centred = theta - mean[:, None]
    cov = np.einsum("dmk,dml->dkl", centred, centred) / (theta.shape[1] - 1)
    draws, unit_draws = _anchored(_places(loadings, theta, weights, mean, cov), chosen)
    lower, upper = _ends(draws.difficulty, level)
    benchmarks = pd.DataFrame(
        {
            "domain": [names[i] for i in of_domain],
            "difficulty": estimate.difficulty,
            "lower": lower,
            "upper": upper,
            "slope": estimate.slope,
        },
        index=pd.Index(table.benchmarks, name="benchmark", dtype=object),
    )
    return Index(
        models=table.models,
        domains=(ALL, *(names if len(names) > 1 else ())),
        value=estimate.value,
        draws=draws.value,
        unit=float(1 / unit),
        unit_draws=1 / unit_draws,
        prior_variance=estimate.prior,
        benchmarks=benchmarks if len(names) > 1 else benchmarks.drop(columns="domain"),
        anchors={anchor.name: anchor.value for anchor in chosen},
        level=float(level),
        completion=completed(table, factors, level),
        flags=table.flags,
    )


def _domains(domains: Any, benchmarks: np.ndarray) -> tuple[list[str], IntArray]:
    """Names of the domains, and the number of each benchmark's."""
    if domains is None:
        return [ALL], np.zeros(len(benchmarks), int)
    values = groups_of(domains, "domains", [], benchmarks, "benchmark")
    missing = values.isna().to_numpy()
    if missing.any():
        got = f"none of {brief(benchmarks[int(missing.argmax())])}"
        raise argument_error("domains", "a domain of every benchmark", got)
    codes, names = pd.factorize(values.astype(str), sort=True)
    if ALL in names:
        raise argument_error("domains", f"other names than {ALL!r}, the index of all", ALL)
    return [str(name) for name in names], codes


def _places(
    loadings: FloatArray, theta: FloatArray, weights: FloatArray, mean: FloatArray, cov: FloatArray
) -> _Places:
    """Models and benchmarks on the scale of the mean logit.

    A domain's index has the mean and SD over models that the general one has. The slope of a
    benchmark is that of the regression of its scores on the index over models, and its difficulty
    the index at which that is 0.

    Args:
        loadings: the intercept first.
        theta: factor scores of the models.
        weights: of the benchmarks in each domain, the general index first.
        mean: of the factor scores over models.
        cov: their covariance.
    """
    combined = weights @ loadings  # (..., domains, 1 + factors)
    gradient = combined[..., 1:]
    raw = combined[..., :1] + np.einsum("...dk,...mk->...dm", gradient, theta)
    sd = np.sqrt(np.einsum("...dk,...kl,...dl->...d", gradient, cov, gradient))
    centre = combined[..., 0] + np.einsum("...dk,...k->...d", gradient, mean)
    stretch = sd[..., :1] / np.maximum(sd, FLAT)
    value = centre[..., :1, None] + stretch[..., None] * (raw - centre[..., None])
    slope = np.einsum("...jk,...kl,...l->...j", loadings[..., 1:], cov, gradient[..., 0, :])
    slope = slope / np.maximum(sd[..., :1], FLAT) ** 2
    at_mean = loadings[..., 0] + np.einsum("...jk,...k->...j", loadings[..., 1:], mean)
    # A benchmark that hardly depends on the index has no difficulty on it.
    steep = np.where(np.abs(slope) > FLAT, slope, np.nan)
    prior = stretch**2 * (gradient**2).sum(axis=-1)
    return _Places(value, centre[..., :1] - at_mean / steep, slope, prior)


class _Anchor(NamedTuple):
    """A model or benchmark with a fixed value, and its position: models before benchmarks."""

    name: str
    value: float
    position: int


def _anchors(anchors: Any, models: np.ndarray, benchmarks: np.ndarray) -> list[_Anchor]:
    """The checked anchors."""
    if anchors is None:
        return []
    if not isinstance(anchors, (Mapping, pd.Series)) or len(anchors) != 2:
        raise argument_error("anchors", "a mapping from two names to their values", anchors)
    at_model = {str(name): i for i, name in enumerate(models)}
    at_benchmark = {str(name): j for j, name in enumerate(benchmarks, len(models))}
    chosen = []
    for name, value in ((str(name), value) for name, value in anchors.items()):
        if name not in at_model and name not in at_benchmark:
            raise argument_error("anchors", "models or benchmarks of `scores`", brief(name))
        if name in at_model and name in at_benchmark:
            must = "names of a model or of a benchmark"
            raise argument_error("anchors", must, f"{brief(name)}, which is both")
        if not is_number(value):
            got = f"{shorten(value)} for {brief(name)}"
            raise argument_error("anchors", "finite numbers", got)
        chosen.append(_Anchor(name, float(value), {**at_model, **at_benchmark}[name]))
    if chosen[0].value == chosen[1].value:
        raise argument_error("anchors", "two different values", f"{chosen[0].value:g} twice")
    return chosen


def _anchored(places: _Places, anchors: list[_Anchor]) -> tuple[_Places, FloatArray]:
    """The places on the scale of the anchors, and its points per mean logit."""
    if not anchors:
        return places, np.ones(places.slope.shape[:-1])
    on_scale = np.concatenate([places.value[..., 0, :], places.difficulty], axis=-1)
    ends = [on_scale[..., anchor.position] for anchor in anchors]
    low, high = (anchor.value for anchor in anchors)
    unit = (high - low) / (ends[1] - ends[0])
    moved = _Places(
        value=low + (places.value - ends[0][..., None, None]) * unit[..., None, None],
        difficulty=low + (places.difficulty - ends[0][..., None]) * unit[..., None],
        slope=places.slope / unit[..., None],
        prior=places.prior * unit[..., None] ** 2,
    )
    return moved, unit


def _ends(draws: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Ends of the intervals of quantities, by draws along the first axis."""
    low, high = np.nanquantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high

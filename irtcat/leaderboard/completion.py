"""Completion of a table of scores, and the choice of the benchmarks to run next."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from irtcat._common.checks import argument_error, brief, check_count, check_interval, check_positive
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.leaderboard.score_factors import DF, Abilities, ScoreFactors, fit_score_factors
from irtcat.leaderboard.score_table import ScoreTable, costs_of, feature_columns, score_table

RANK = 4
"""Number of factors. Those that the scores do not need shrink to 0: on the public scores of
experiments/several_benchmarks ranks from 3 to 6 predict alike."""

MEDIAN_ERROR = float(stdtrit(DF, 0.75))
"""Median absolute error of a prediction, as a multiple of the scale of its t distribution."""


@dataclass(frozen=True, eq=False)
class Completion:
    """Scores of all models on all benchmarks, measured or predicted.

    Attributes:
        models: ids of the models.
        benchmarks: ids of the benchmarks.
        units: unit of each benchmark.
        score: models x benchmarks: the measured score, or the median of the predicted one.
        lower: lower end of its interval; the score itself where measured.
        upper: upper end.
        observed: whether the score was measured.
        level: probability of the intervals.
        flags: what is uncertain, such as models with one score.
    """

    models: np.ndarray
    benchmarks: np.ndarray
    units: np.ndarray
    score: FloatArray
    lower: FloatArray
    upper: FloatArray
    observed: BoolArray
    level: float
    flags: tuple[str, ...]

    def __repr__(self) -> str:
        n, n_benchmarks = self.score.shape
        return (
            f"Completion({n} models x {n_benchmarks} benchmarks, {self.observed.mean():.0%} "
            f"measured, {self.level:.0%} intervals)"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row for each model and benchmark.

        Returns:
            model, benchmark, score, lower, upper, observed.
        """
        n, n_benchmarks = self.score.shape
        columns = {
            "model": np.repeat(self.models, n_benchmarks),
            "benchmark": np.tile(self.benchmarks, n),
            "score": self.score.ravel(),
            "lower": self.lower.ravel(),
            "upper": self.upper.ravel(),
            "observed": self.observed.ravel(),
        }
        return pd.DataFrame(columns)


@dataclass(frozen=True, eq=False)
class ProbePlan:
    """Benchmarks to run next.

    Attributes:
        table: one row for each chosen benchmark (see `to_frame`).
        error_before: expected error without any of them, as ``expected_error`` of the table.
        flags: what is uncertain.
    """

    table: pd.DataFrame
    error_before: float
    flags: tuple[str, ...]

    @property
    def benchmarks(self) -> list[str]:
        """The chosen benchmarks in order."""
        return list(self.table.index)

    def __repr__(self) -> str:
        after = self.table["expected_error"].iloc[-1]
        names = ", ".join(brief(name) for name in self.benchmarks)
        return f"ProbePlan({names}: expected error {self.error_before:.1f} -> {after:.1f})"

    def to_frame(self) -> pd.DataFrame:
        """One row for each chosen benchmark, in the order to run them.

        Returns:
            Indexed by benchmark: cost; total_cost up to this one; expected_error: the median
            absolute error to expect of the scores that are still predicted after it, their mean
            weighted by the number of scores on each benchmark, in percent of the scale (of a SD if
            no benchmark is in percent or share).
        """
        return self.table.copy()


def complete(
    scores: Any,
    level: float = 0.9,
    *,
    units: Any = None,
    model_features: Any = None,
    rank: int = RANK,
) -> Completion:
    """Predict the missing scores of models on benchmarks from all scores there are.

    Scores in percent are modelled as logits, ``log((s + .5) / (100 - s + .5))``, scores in other
    units are standardised. Then ``y_mj = intercept_j + loading_j . theta_m + e_mj``: a few
    abilities of a model decide all its scores, and ``theta_m ~ N(B' x_m, I)`` for known features
    ``x_m`` of the model. Intercepts, loadings and residual variances of benchmarks are shrunk
    towards those of other benchmarks, the more the fewer their scores. Residuals are t distributed,
    so single odd scores count less. The fit is variational and takes the uncertainty of all
    parameters into the intervals, which are quantiles of the t distribution.

    A model without scores is predicted from its features, or as a model like the others. A
    benchmark with the score of one model is predicted mainly from the other benchmarks. Both are
    flagged, and have wide intervals.

    Args:
        scores: models x benchmarks, missing where unknown: a data frame with the models in its
            index, in a column ``model`` or in a first column of texts, or with a row for each score
            and the columns model, benchmark and score; a mapping from models to mappings from
            benchmarks to scores; or an array.
        level: probability of the intervals.
        units: unit of the benchmarks that are not in percent: a mapping from benchmarks to "share"
            (0 to 1) or a name for anything else (such as "elo"), or a table with the columns
            benchmark and unit.
        model_features: what is known of the models besides their scores, a table by model: numbers,
            dates (such as the release), and categories (such as the provider); missing numbers
            count as the mean.
        rank: number of abilities.

    Returns:
        The completion; `Completion.to_frame` has a row for each cell.

    Raises:
        InputError: for scores that are no numbers or are repeated, for a score outside 0 to 100 of
            a benchmark that ``units`` does not name, for a benchmark without scores, for fewer than
            2 different scores in other units, and for a model without features.

    Example:
        >>> scores = pd.DataFrame(
        ...     {
        ...         "maths": [20, 40, 60, 80],
        ...         "code": [30, 50, 70, None],
        ...         "chat": [1200, 1250, 1300, None],
        ...     },
        ...     index=["small", "medium", "large", "new"],
        ... )
        >>> result = complete(scores, units={"chat": "elo"})
        >>> result
        Completion(4 models x 3 benchmarks, 83% measured, 90% intervals)
        >>> frame = result.to_frame()
        >>> bool(frame.loc[~frame["observed"], "score"].iloc[0] > 70)
        True

    References:
        Ghahramani & Beal (2000), Variational inference for Bayesian mixtures of factor analysers,
        NeurIPS 12, section 3 (without mixtures); Lange, Little & Taylor (1989), Robust statistical
        modeling using the t distribution, JASA 84, section 2.
    """
    check_interval("level", level)
    table, factors = fitted_factors(scores, units, model_features, rank)
    return completed(table, factors, level)


def completed(table: ScoreTable, factors: ScoreFactors, level: float) -> Completion:
    """The measured scores, and the predicted ones with their intervals."""
    mean, squared_scale = factors.predict(factors.abilities)
    half = stdtrit(DF, (1 + level) / 2) * np.sqrt(squared_scale)
    observed = np.isfinite(table.values)
    measured = np.where(observed, table.values, 0.0)
    score, lower, upper = (
        np.where(observed, measured, table.restored(y)) for y in (mean, mean - half, mean + half)
    )
    return Completion(
        models=table.models,
        benchmarks=table.benchmarks,
        units=table.units,
        score=score,
        lower=lower,
        upper=upper,
        observed=observed,
        level=float(level),
        flags=table.flags,
    )


def probe(
    scores: Any,
    n_benchmarks: int,
    costs: Any = None,
    *,
    model: str | None = None,
    candidates: Sequence[str] | None = None,
    budget: float | None = None,
    units: Any = None,
    model_features: Any = None,
    rank: int = RANK,
) -> ProbePlan:
    """Choose the benchmarks whose scores say most about the scores on all others.

    Benchmarks are taken one by one, each time the one that most lowers, for its cost, the sum of
    the expected errors on benchmarks that are still to be predicted, each weighted by the number of
    its scores: errors count where models are compared. Scores in other units than percent and share
    can be chosen, but their errors do not count, unless there are no others. With the model of
    `complete`, the abilities of a new model have covariance ``C``, and a score adds
    ``loading loading' / v_j`` to its inverse; a prediction then has variance
    ``loading' C loading + v_j``, and its median error in points is the root of that, times .73 (of
    the t distribution) and the mean slope of the scale.

    Args:
        scores: scores of known models, as in `complete`.
        n_benchmarks: the number of benchmarks to choose; fewer if the budget ends first.
        costs: a mapping from benchmarks to the cost of running them; by default all cost 1.
        model: the model to be probed, one of those with scores, whose scores are taken as known;
            by default a new model like the others.
        candidates: the benchmarks that can be run; by default all (without those that ``model`` has
            been run on).
        budget: the most that all of them may cost.
        units: as in `complete`.
        model_features: as in `complete`.
        rank: as in `complete`.

    Returns:
        The plan; its ``benchmarks`` are in the order to run them.

    Raises:
        InputError: as in `complete`; and for unknown models or candidates, candidates without a
            cost, and a budget below all costs.

    Example:
        >>> scores = pd.DataFrame(
        ...     {"maths": [20, 40, 60, 80], "code": [31, 49, 71, 80], "chat": [64, 50, 70, 55]},
        ...     index=["small", "medium", "large", "new"],
        ... )
        >>> probe(scores, 1, costs={"maths": 1, "code": 30, "chat": 30}).benchmarks
        ['maths']

    References:
        Krause, Singh & Guestrin (2008), Near-optimal sensor placements in Gaussian processes, JMLR
        9, section 3; Zeng & Papailiopoulos (2026), You don't need to run every eval,
        arXiv:2606.24020, section 5 (the task).
    """
    check_count("n_benchmarks", n_benchmarks)
    table, factors = fitted_factors(scores, units, model_features, rank)
    row = None
    if model is not None:
        at = {name: i for i, name in enumerate(table.models)}
        if str(model) not in at:
            raise argument_error("model", "one of the models with scores", model)
        row = at[str(model)]
    known = np.isfinite(table.values[row]) if row is not None else np.zeros(len(table.units), bool)
    positions = _candidates(candidates, table, known)
    cost = np.full(len(table.units), np.nan)
    cost[positions] = costs_of(costs, table.benchmarks[positions])
    limit = np.inf
    if budget is not None:
        check_positive("budget", budget)
        limit = float(budget)
        if limit < cost[positions].min():
            must = f"at least {cost[positions].min():g}, the lowest cost of a candidate"
            raise argument_error("budget", must, budget)
    weights = _weights(table, known)
    chosen, errors = _greedy(_Probing(table, factors, row), n_benchmarks, cost, limit, weights)
    frame = pd.DataFrame(
        {"cost": cost[chosen], "total_cost": np.cumsum(cost[chosen]), "expected_error": errors[1:]},
        index=pd.Index(table.benchmarks[chosen], name="benchmark", dtype=object),
    )
    return ProbePlan(frame, errors[0], table.flags)


def fitted_factors(
    scores: Any, units: Any, model_features: Any, rank: int
) -> tuple[ScoreTable, ScoreFactors]:
    """The checked scores and their factor analysis."""
    check_count("rank", rank)
    table = score_table(scores, units)
    features = feature_columns(model_features, table.models)
    return table, fit_score_factors(table.modelled(), features, rank)


def _candidates(candidates: Any, table: ScoreTable, known: BoolArray) -> IntArray:
    """Positions of the benchmarks that can be chosen."""
    if candidates is None:
        positions = np.flatnonzero(~known)
    else:
        if isinstance(candidates, (str, Mapping)) or not isinstance(candidates, Iterable):
            raise argument_error("candidates", "a list of benchmarks", candidates)
        at = {name: j for j, name in enumerate(table.benchmarks)}
        for name in candidates:
            if str(name) not in at:
                raise argument_error("candidates", "benchmarks of `scores`", str(name))
        positions = np.unique([at[str(name)] for name in candidates]).astype(int)
        positions = positions[~known[positions]]
    if not len(positions):
        raise argument_error("candidates", "benchmarks without a score of the model", "none")
    return positions


class _Probing:
    """Expected errors of a model's predictions after scores on some benchmarks."""

    def __init__(self, table: ScoreTable, factors: ScoreFactors, row: int | None) -> None:
        beliefs = factors.abilities
        slopes = table.slopes(factors.predict(beliefs)[0])
        if row is None:  # a new model: as the others
            typical = beliefs.typical()
            self.slopes = slopes.mean(axis=0)
        else:
            typical = Abilities(beliefs.mean[[row]], beliefs.cov[[row]])
            self.slopes = slopes[row]
        self.loadings = factors.loadings[:, 1:]
        self.information = factors.information(typical)
        self.precision = np.linalg.inv(typical.cov[0])
        total = factors.predict(typical)[1][0]
        self.residual = total - self._explained(typical.cov[0])

    def _explained(self, cov: FloatArray) -> FloatArray:
        """Variance of each benchmark's score that comes from the abilities."""
        return np.einsum("jk,...kl,jl->...j", self.loadings, cov, self.loadings)

    def errors(self, precision: FloatArray) -> FloatArray:
        """Median absolute error of each benchmark by the precision of the abilities."""
        variance = self._explained(np.linalg.inv(precision)) + self.residual
        return MEDIAN_ERROR * self.slopes * np.sqrt(variance)


def _weights(table: ScoreTable, known: BoolArray) -> FloatArray:
    """Weights of the errors of benchmarks: the number of their scores, 0 where the model has one.

    Errors in SDs of a unit without a scale do not add up with those in percent: they count only
    where there are no others.
    """
    weights = np.isfinite(table.values).sum(axis=0) * ~known.astype(bool)
    on_a_scale = weights * table.bounded
    return (on_a_scale if on_a_scale.any() else weights).astype(float)


def _greedy(
    probing: _Probing, n_benchmarks: int, cost: FloatArray, budget: float, weights: FloatArray
) -> tuple[list[int], list[float]]:
    """The chosen benchmarks, and the mean expected error before them and after each."""
    precision, weights, left = probing.precision, weights.copy(), budget
    chosen: list[int] = []
    path = [_mean(probing.errors(precision), weights)]
    can_run = np.isfinite(cost)
    while len(chosen) < n_benchmarks and (can_run & (cost <= left)).any():
        options = np.flatnonzero(can_run & (cost <= left))
        after = probing.errors(precision + probing.information[options]) * weights
        after[np.arange(len(options)), options] = 0.0  # measured then
        before = (probing.errors(precision) * weights).sum()
        best = int(options[((before - after.sum(axis=1)) / cost[options]).argmax()])
        chosen.append(best)
        precision = precision + probing.information[best]
        left -= cost[best]
        weights[best], can_run[best] = 0.0, False
        path.append(_mean(probing.errors(precision), weights))
    return chosen, path


def _mean(errors: FloatArray, weights: FloatArray) -> float:
    """Weighted mean; 0 if nothing is left to predict."""
    return float(np.average(errors, weights=weights)) if weights.any() else 0.0

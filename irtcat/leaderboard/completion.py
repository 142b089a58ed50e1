"""Completion of a table of scores, models x benchmarks, and the benchmarks to run next.

Tables are read, checked, and modelled on the scale of logits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from irtcat._common.checks import (
    argument_error,
    brief,
    check_count,
    check_ids,
    check_interval,
    check_positive,
    check_unique,
    is_number,
    shorten,
)
from irtcat._common.dates import as_years
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.features import check_features, design_of
from irtcat.leaderboard.score_factors import DF, Abilities, ScoreFactors, fit_score_factors
from irtcat.responses._frames import as_pandas, cells_table

LONG = ("model", "benchmark", "score")
"""Columns of a table with a row for each score."""

BOUNDED = {"percent": 100.0, "share": 1.0}
"""Units with a scale from 0, and its end; any other unit has no bounds."""

OFFSET = 0.005
"""Added to right and wrong answers as a share of the scale, since the logits of 0 and 1 are
infinite. Errors on public scores (experiments/several_benchmarks) hardly depend on it from .002 to
.02."""


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores with ids and units.

    Attributes:
        values: models x benchmarks, NaN where missing.
        models: ids of the models.
        benchmarks: ids of the benchmarks.
        units: unit of each benchmark.
        flags: what is uncertain.
    """

    values: FloatArray
    models: np.ndarray
    benchmarks: np.ndarray
    units: np.ndarray
    flags: tuple[str, ...]

    @property
    def tops(self) -> FloatArray:
        """Upper end of each benchmark's scale; infinite without one."""
        return np.array([BOUNDED.get(unit, np.inf) for unit in self.units])

    @property
    def bounded(self) -> BoolArray:
        """Benchmarks whose unit has a scale from 0 to an end."""
        return np.isfinite(self.tops)

    def _scale(self) -> tuple[FloatArray, FloatArray]:
        """Mean and SD of the benchmarks without bounds; 0 and 1 for the others."""
        centre, scale = np.zeros(len(self.units)), np.ones(len(self.units))
        free = ~self.bounded
        if free.any():
            centre[free] = np.nanmean(self.values[:, free], axis=0)
            scale[free] = np.nanstd(self.values[:, free], axis=0, ddof=1)
        return centre, scale

    def modelled(self) -> FloatArray:
        """Logits of bounded scores, others standardised."""
        centre, scale = self._scale()
        share = np.where(self.bounded, self.values / self.tops, 0.5)
        logits = np.log((share + OFFSET) / (1 - share + OFFSET))
        return np.where(self.bounded, logits, (self.values - centre) / scale)

    def restored(self, modelled: FloatArray) -> FloatArray:
        """Scores of values on the scale of `modelled`."""
        centre, scale = self._scale()
        share = (1 + 2 * OFFSET) / (1 + np.exp(-np.clip(modelled, -30, 30))) - OFFSET
        tops = np.where(self.bounded, self.tops, 1.0)
        return np.where(self.bounded, np.clip(share, 0, 1) * tops, centre + scale * modelled)

    def slopes(self, modelled: FloatArray) -> FloatArray:
        """Change of the score for a unit of `modelled`, in percent of the scale or of the SD."""
        share = 1 / (1 + np.exp(-np.clip(modelled, -30, 30)))
        return 100 * np.where(self.bounded, share * (1 - share), 1.0)


def score_table(scores: Any, units: Any = None) -> ScoreTable:
    """Read and check a table of scores.

    Args:
        scores: see `irtcat.leaderboard.complete`.
        units: see there.
    """
    values, models, benchmarks = _values(scores)
    if len(models) < 2 or len(benchmarks) < 2:
        got = f"{len(models)} x {len(benchmarks)}"
        raise argument_error("scores", "of at least 2 models and 2 benchmarks", got)
    flags = []
    per_model = np.isfinite(values).sum(axis=1)
    for count, what in ((0, "no score"), (1, "one score")):
        if (rows := models[per_model == count]).size:
            flags.append(f"models with {what}, predicted mainly by the others: {shorten(rows)}")
    if (single := benchmarks[np.isfinite(values).sum(axis=0) == 1]).size:
        flags.append(f"benchmarks with the score of one model: {shorten(single)}")
    table = ScoreTable(values, models, benchmarks, _units(units, benchmarks), tuple(flags))
    _check_ranges(table)
    return table


def _values(scores: Any) -> tuple[FloatArray, np.ndarray, np.ndarray]:
    """Numbers and ids of a table of scores."""
    must = "a table of models x benchmarks, or a table with the columns model, benchmark and score"
    frame = as_pandas(scores)
    if frame is None and isinstance(scores, Mapping):
        by_model = {str(model): dict(row) for model, row in scores.items()}
        frame = pd.DataFrame.from_dict(by_model, orient="index")
    if frame is None:
        try:
            matrix = np.asarray(scores, float)
        except (TypeError, ValueError):
            raise argument_error("scores", must, type(scores).__name__) from None
        if matrix.ndim != 2:
            raise argument_error("scores", must, f"an array of {matrix.ndim} dimensions")
        rows, columns = (range(1, size + 1) for size in matrix.shape)
        names = [f"model{i}" for i in rows], [f"benchmark{j}" for j in columns]
        frame = pd.DataFrame(matrix, *names)
    if set(LONG) <= set(frame.columns):
        frame = _pivoted(frame)
    elif "model" in frame.columns:
        frame = frame.set_index("model")
    elif isinstance(frame.index, pd.RangeIndex) and _has_texts_first(frame):
        frame = frame.set_index(frame.columns[0])
    models = check_unique("scores", check_ids("scores", list(frame.index), len(frame), "model"))
    ids = check_ids("scores", list(frame.columns), frame.shape[1], "benchmark")
    return _as_numbers(frame, models, check_unique("scores", ids)), models, ids


def _has_texts_first(frame: pd.DataFrame) -> bool:
    """Whether the first column has texts that are no numbers: ids."""
    if not frame.shape[1]:
        return False
    first = frame.iloc[:, 0]
    return bool(first.notna().any() and pd.to_numeric(first, errors="coerce").isna().all())


def _pivoted(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with a row for each score as models x benchmarks, in the order of appearance."""
    missing = frame[["model", "benchmark"]].isna().any(axis=1).to_numpy()
    if missing.any():
        got = f"an empty one in row {int(missing.argmax()) + 1}"
        raise argument_error("scores", "a table with a model and a benchmark in every row", got)
    twice = frame.duplicated(["model", "benchmark"]).to_numpy()
    if twice.any():
        row = frame.iloc[int(twice.argmax())]
        got = f"two of {brief(row['model'])} on {brief(row['benchmark'])}"
        raise argument_error("scores", "one score for each model and benchmark", got)
    (rows, models), (columns, names) = (pd.factorize(frame[n]) for n in ("model", "benchmark"))
    cells = np.full((len(models), len(names)), None, dtype=object)
    cells[rows, columns] = frame["score"].tolist()
    return pd.DataFrame(cells, index=models, columns=names)


def _as_numbers(frame: pd.DataFrame, models: np.ndarray, benchmarks: np.ndarray) -> FloatArray:
    """The cells as numbers, NaN where missing."""
    values = np.full(frame.shape, np.nan)
    for j, benchmark in enumerate(benchmarks):
        for i, cell in enumerate(frame.iloc[:, j].tolist()):
            if pd.isna(cell):
                continue
            try:
                values[i, j] = float(cell)
            except (TypeError, ValueError):
                values[i, j] = np.inf
            if not np.isfinite(values[i, j]):
                got = f"{shorten(cell)} for {brief(models[i])} on {brief(benchmark)}"
                raise argument_error("scores", "numbers, empty where missing", got)
    return values


def _units(units: Any, benchmarks: np.ndarray) -> np.ndarray:
    """The unit of each benchmark."""
    out = np.full(len(benchmarks), "percent", dtype=object)
    if units is None:
        return out
    frame = as_pandas(units)
    if frame is not None:
        columns = [name for name in ("benchmark", "id") if name in frame.columns]
        if "unit" not in frame.columns:
            must = "a mapping from benchmarks to units, or a table of them with the column unit"
            raise argument_error("units", must, f"the columns {shorten(list(frame.columns))}")
        units = frame.set_index(columns[0])["unit"] if columns else frame["unit"]
    if not isinstance(units, (Mapping, pd.Series)):
        raise argument_error("units", "a mapping from benchmarks to units", units)
    position = {name: j for j, name in enumerate(benchmarks)}
    for name, unit in units.items():
        if not isinstance(unit, str) or not unit.strip():
            got = f"{shorten(unit)} for {brief(name)}"
            raise argument_error("units", "names such as percent, share or elo", got)
        if str(name) not in position:
            got = f"the unknown {shorten(str(name))}"
            raise argument_error("units", "a mapping from benchmarks of `scores` to units", got)
        out[position[str(name)]] = unit.strip().lower()
    return out


def _check_ranges(table: ScoreTable) -> None:
    """Raise for a benchmark without scores, outside its scale, or without a scale."""
    values, benchmarks = table.values, table.benchmarks
    observed = np.isfinite(values)
    if not observed.any(axis=0).all():
        name = benchmarks[~observed.any(axis=0)][0]
        raise argument_error("scores", "of benchmarks with at least one score", brief(name))
    outside = observed & table.bounded & ((values < 0) | (values > table.tops))
    if outside.any():
        columns = np.flatnonzero(outside.any(axis=0))
        j = int(columns[0])
        i = int(outside[:, j].argmax())
        unit, top = table.units[j], table.tops[j]
        got = f"{values[i, j]:g} for {brief(table.models[i])} on {brief(benchmarks[j])}"
        declared = ", ".join(f"{str(name)!r}: 'elo'" for name in benchmarks[columns[:5]])
        rest = f" (and {len(columns) - 5} more)" if len(columns) > 5 else ""
        advice = f"Declare scores in other units: units={{{declared}}}{rest}."
        raise argument_error("scores", f"between 0 and {top:g} where in {unit}", got, advice)
    percent = table.units == "percent"
    if percent.any() and 0 < np.nanmax(values[:, percent]) <= 1:
        must = "in percent, from 0 to 100, where `units` declares nothing else"
        advice = "Multiply shares by 100, or declare them: units={..., 'share'}."
        raise argument_error("scores", must, "no score above 1", advice)
    for name in benchmarks[~table.bounded]:
        column = values[:, benchmarks == name]
        if len(np.unique(column[np.isfinite(column)])) < 2:
            must = "at least two different scores on a benchmark that is neither percent nor share"
            raise argument_error("scores", must, f"one on {brief(name)}")


def feature_columns(table: Any, models: np.ndarray) -> FloatArray:
    """What is known of the models as centred columns (models x features).

    Texts that are all dates become years.
    """
    if table is None:
        return np.zeros((len(models), 0))
    frame = check_features(table, "model_features", "model")
    missing = [model for model in models if model not in frame.index]
    if missing:
        got = f"none of {brief(missing[0])}"
        raise argument_error("model_features", "a row of every model", got)
    frame = frame.loc[list(models)]
    for name in frame.columns:
        if frame[name].dtype == object or pd.api.types.is_string_dtype(frame[name]):
            years, wrong = as_years(frame[name])
            frame = frame.assign(**{name: years}) if wrong is None else frame
    matrix = design_of(frame, "model_features").matrix(frame)
    return matrix - matrix.mean(axis=0)


def costs_of(costs: Any, benchmarks: np.ndarray) -> FloatArray:
    """The cost of each benchmark, 1 without costs."""
    if costs is None:
        return np.ones(len(benchmarks))
    if isinstance(costs, pd.DataFrame) and costs.shape[1] == 1:
        costs = costs.iloc[:, 0]
    if not isinstance(costs, (Mapping, pd.Series)):
        raise argument_error("costs", "a mapping from benchmarks to costs", costs)
    known = {str(name): cost for name, cost in costs.items()}
    for name in benchmarks:
        if name not in known or (not isinstance(known[name], str) and pd.isna(known[name])):
            advice = "Leave those that cannot be run out of `candidates`."
            must = "the cost of every candidate"
            raise argument_error("costs", must, f"none of {brief(name)}", advice)
        if not is_number(known[name]) or known[name] <= 0:
            got = f"{shorten(known[name])} for {brief(name)}"
            raise argument_error("costs", "finite numbers above 0", got)
    return np.array([known[name] for name in benchmarks], float)


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
        values = {name: getattr(self, name) for name in ("score", "lower", "upper", "observed")}
        return cells_table({"model": self.models, "benchmark": self.benchmarks}, values)


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
    slack = 1e-9 * budget if np.isfinite(budget) else 0.0  # rounding of sums
    while len(chosen) < n_benchmarks and (can_run & (cost <= left + slack)).any():
        options = np.flatnonzero(can_run & (cost <= left + slack))
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

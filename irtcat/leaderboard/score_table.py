"""Tables of scores, models x benchmarks: reading, checks, and the scale that is modelled."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, brief, check_ids, check_unique, is_number, shorten
from irtcat._common.dates import as_years
from irtcat._common.types import BoolArray, FloatArray
from irtcat.features import check_features, design_of
from irtcat.responses._frames import as_pandas

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
    names = _units(units, benchmarks)
    table = ScoreTable(values, models, benchmarks, names, ())
    _check_ranges(table)
    flags = []
    per_model = np.isfinite(values).sum(axis=1)
    for count, what in ((0, "no score"), (1, "one score")):
        if (rows := models[per_model == count]).size:
            flags.append(f"models with {what}, predicted mainly by the others: {shorten(rows)}")
    if (single := benchmarks[np.isfinite(values).sum(axis=0) == 1]).size:
        flags.append(f"benchmarks with the score of one model: {shorten(single)}")
    return ScoreTable(values, models, benchmarks, names, tuple(flags))


def _values(scores: Any) -> tuple[FloatArray, np.ndarray, np.ndarray]:
    """Numbers and ids of a table of scores."""
    must = "a table of models x benchmarks, or a table with the columns model, benchmark and score"
    frame = as_pandas(scores)
    if frame is None and isinstance(scores, Mapping):
        frame = pd.DataFrame.from_dict(
            {str(model): dict(row) for model, row in scores.items()}, orient="index"
        )
    if frame is None:
        try:
            matrix = np.asarray(scores, float)
        except (TypeError, ValueError):
            raise argument_error("scores", must, type(scores).__name__) from None
        if matrix.ndim != 2:
            raise argument_error("scores", must, f"an array of {matrix.ndim} dimensions")
        rows, columns = (range(1, size + 1) for size in matrix.shape)
        frame = pd.DataFrame(
            matrix, [f"model{i}" for i in rows], [f"benchmark{j}" for j in columns]
        )
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
        raise argument_error(
            "model_features", "a row of every model", f"none of {brief(missing[0])}"
        )
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

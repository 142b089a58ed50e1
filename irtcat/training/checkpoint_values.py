"""Reading the values of checkpoints from arrays, tables and files."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    float_array,
    shorten,
)
from irtcat._common.positions import first_repeated
from irtcat._common.types import FloatArray, IntArray
from irtcat._files.archives import array_file, read_npy
from irtcat._files.reading import numbered_lines, parse_json
from irtcat.io.parquet import open_parquet, parquet_batches, reading_parquet
from irtcat.io.text import read_table
from irtcat.responses._cells import Coding
from irtcat.responses._frames import as_pandas, frame_kind
from irtcat.responses._table import ITEM_NAMES, SUBJECT_NAMES, normalized
from irtcat.training.dynamics import FLOOR
from irtcat.training.learners import read_item_ids

TOLERANCE = 1e-5
"""Values may be this far out of range by rounding, as probabilities in float32 are."""


class Unit(NamedTuple):
    """A unit of values.

    Attributes:
        logs: values as logarithms of probabilities.
        low: smallest valid value.
        high: largest valid value.
        must: what the values must be, for messages.
        sums: whether values may be sums over tokens.
        names: usual names of a column of them.
    """

    logs: Callable[[FloatArray], FloatArray]
    low: float
    high: float
    must: str
    sums: bool
    names: tuple[str, ...]


UNITS: dict[str, Unit] = {
    "probability": Unit(
        logs=lambda p: np.log(np.clip(p, FLOOR, 1)),
        low=0.0,
        high=1.0,
        must="a probability from 0 to 1",
        sums=False,
        names=("probability", "prob", "p", "confidence", "probability_of_label"),
    ),
    "loss": Unit(
        logs=lambda loss: -loss,
        low=0.0,
        high=np.inf,
        must="a loss of at least 0",
        sums=True,
        names=("loss", "nll", "cross_entropy", "ce"),
    ),
    "bits": Unit(
        logs=lambda bits: -np.log(2.0) * bits,
        low=0.0,
        high=np.inf,
        must="a loss of at least 0 bits",
        sums=True,
        names=("bits", "loss_bits"),
    ),
    "log-likelihood": Unit(
        logs=lambda logs: logs,
        low=-np.inf,
        high=0.0,
        must="a log-likelihood of at most 0",
        sums=True,
        names=("log_likelihood", "loglikelihood", "log_prob", "logprob", "log_probability", "ll"),
    ),
    "perplexity": Unit(
        logs=lambda perplexity: -np.log(np.maximum(perplexity, 1)),
        low=1.0,
        high=np.inf,
        must="a perplexity of at least 1",
        sums=False,
        names=("perplexity", "ppl"),
    ),
}
"""Units by name."""

NAMES = {
    "step": {"step", "global_step", "epoch", "checkpoint", "checkpoint_id", "iteration"},
    "run": {"run", "run_id", "run_name", "seed"},
    "item": set(ITEM_NAMES) | {"id", "uid", "guid", "idx"},
}
"""Usual names of columns."""


class _Raw(NamedTuple):
    """Values as they are in the source.

    Attributes:
        values: checkpoints x items.
        steps: one per row; None for 1, 2, ….
        runs: one per row; None for one run.
        item_ids: None for i1, i2, ….
        position: position in the source of a row and column of ``values``, for messages.
    """

    values: FloatArray
    steps: Any
    runs: Any
    item_ids: Any
    position: Callable[[int, int], str]


def unit_of(columns: Sequence[str]) -> str | None:
    """The unit of a long table of checkpoints by its columns; None for any other table.

    It has a column of items and one of steps, one whose name is that of a single unit, and none of
    subjects.

    Example:
        >>> unit_of(["epoch", "example_id", "loss"]), unit_of(["model", "item", "epoch", "score"])
        ('loss', None)
    """
    names = {normalized(name) for name in columns}
    units = [unit for unit, row in UNITS.items() if names & set(row.names)]
    roles = all(names & NAMES[role] for role in ("step", "item"))
    return units[0] if roles and len(units) == 1 and not names & SUBJECT_NAMES else None


def is_step(column: str) -> bool:
    """Whether a column has a usual name of epochs or other steps."""
    return normalized(column) in NAMES["step"]


def read_checkpoints(
    source: Any, unit: str, steps: Any, runs: Any, item_ids: Any, columns: Mapping[str, str]
) -> tuple[_Raw, np.ndarray]:
    """Read and check values; order them by runs and steps.

    Args:
        source: see `irtcat.training.crowd.from_checkpoints`.
        unit: a name in `UNITS`.
        steps: one per row of an array.
        runs: one per row of an array.
        item_ids: one per column of an array.
        columns: names of the columns of a table by role.

    Returns:
        The values with all that belongs to them, and unique ids of the checkpoints.

    Raises:
        InputError: see `irtcat.training.crowd.from_checkpoints`.
    """
    check_choice("unit", unit, UNITS)
    raw = _read(source, unit, columns)
    for name, passed, has in (
        ("steps", steps, raw.steps),
        ("runs", runs, raw.runs),
        ("item_ids", item_ids, raw.item_ids),
    ):
        if passed is not None and has is not None:
            raise argument_error(name, "None for values that have their own", passed)
    n, n_items = raw.values.shape
    names = read_item_ids(item_ids if raw.item_ids is None else raw.item_ids, n_items)
    run = _column("runs", runs if raw.runs is None else raw.runs, n)
    run = np.full(n, "1", object) if run is None else np.array([str(r) for r in run], object)
    step = _steps(steps if raw.steps is None else raw.steps, run)
    _check_range(raw, UNITS[unit], step, names)
    order = np.lexsort((step, pd.factorize(run)[0]))
    several = len(set(run.tolist())) > 1
    labels = [
        f"{r}/step {s:.15g}" if several else f"step {s:.15g}"  # tokens seen need all digits
        for r, s in zip(run, step, strict=True)
    ]
    if (twice := first_repeated(pd.Index(labels))) is not None:
        raise argument_error("steps", "different for all checkpoints of a run", f"{twice} twice")
    values, runs, steps = raw.values[order], run[order], step[order]
    ordered = raw._replace(values=values, steps=steps, runs=runs, item_ids=names)
    return ordered, np.array(labels, object)[order]


def _column(name: str, values: Any, n: int) -> Any:
    """One value per checkpoint, none missing; None if there are none."""
    if values is None:
        return None
    column = np.asarray(values)
    if column.shape != (n,):
        raise argument_error(name, f"{n} values, one per checkpoint", f"shape {column.shape}")
    if pd.isna(column).any():
        got = f"none in row {int(np.argmax(pd.isna(column))) + 1}"
        raise argument_error(name, "given for every checkpoint", got)
    return column


def _steps(steps: Any, runs: np.ndarray) -> np.ndarray:
    """Steps as numbers; by default the order of the checkpoints in their run."""
    column = _column("steps", steps, len(runs))
    if column is None:
        return pd.Series(runs).groupby(runs, sort=False).cumcount().to_numpy() + 1
    try:
        numbers = column.astype(float)
    except (TypeError, ValueError):
        raise argument_error("steps", "numbers, such as epochs", column) from None
    if not np.isfinite(numbers).all():
        raise argument_error("steps", "finite numbers", numbers)
    whole = numbers.astype(np.int64)
    return whole if (whole == numbers).all() else numbers


def _check_range(raw: _Raw, unit: Unit, steps: np.ndarray, items: np.ndarray) -> None:
    """Raise at the first value out of range."""
    values = raw.values
    with np.errstate(invalid="ignore"):
        invalid = (values < unit.low - TOLERANCE) | (values > unit.high + TOLERANCE)
    invalid |= np.isinf(values)
    if invalid.any():
        row, column = np.argwhere(invalid)[0].tolist()
        about = f"step {steps[row]:.15g}, item {brief(items[column])}"
        raise InputError(
            f"The `values` argument must be {unit.must}, or missing. "
            f"Got {values[row, column]:g} in {raw.position(row, column)} ({about})."
        )


def _read(source: Any, unit: str, columns: Mapping[str, str]) -> _Raw:
    """Values by the type of the source."""
    if isinstance(source, (str, os.PathLike)):
        return _from_file(Path(source), unit, columns)
    frame = as_pandas(source)
    if frame is not None:
        return _from_frame(frame, frame_kind(source), unit, columns)
    if isinstance(source, (list, tuple)) and source and isinstance(source[0], Mapping):
        return _from_frame(pd.DataFrame(list(source)), "list of records", unit, columns)
    return _from_array(source)


def _from_array(source: Any) -> _Raw:
    """A matrix."""
    values = float_array("values", "numbers in rows of equal length", source)
    if values.ndim != 2 or 0 in values.shape:
        raise argument_error("values", "checkpoints x items", f"shape {values.shape}")
    return _Raw(values, None, None, None, lambda row, column: f"row {row + 1}, column {column + 1}")


def _from_file(path: Path, unit: str, columns: Mapping[str, str]) -> _Raw:
    """A file, by its extension."""
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise argument_error("values", f"a file that ends in {', '.join(READERS)}", path.name)
    try:
        read = READERS[suffix](path, columns["item"])
        if isinstance(read, pd.DataFrame):
            read = _from_frame(read, str(path), unit, columns)
        raw = read if isinstance(read, _Raw) else _from_array(read)
    except InputError as error:
        text = str(error)
        raise InputError(text if str(path) in text else f"{path}: {text}") from None
    return raw._replace(position=lambda row, column: f"{raw.position(row, column)} of {path}")


def _npz(path: Path, item: str) -> _Raw:
    """The arrays values, steps, runs and items."""

    def damaged(why: str) -> InputError:
        return InputError(f"{path}: the archive is damaged: {why}. Write it again.")

    with array_file(path, damaged) as archive:
        if "values" not in archive.names:
            raise InputError(f"{path}: expected an array `values`. Got {shorten(archive.names)}.")
        arrays = archive.read("values", "steps", "runs", "items")
    return _from_array(arrays["values"])._replace(
        steps=arrays.get("steps"), runs=arrays.get("runs"), item_ids=arrays.get("items")
    )


def _csv(path: Path, item: str) -> pd.DataFrame:
    header = map(str, read_table(path, nrows=0))
    ids = [h for h in header if h == item or normalized(h) in NAMES["item"]]
    frame = read_table(path, text=ids)  # as numbers 01 and 1 would be one item
    cells = {name: frame[name].where(frame[name] != "") for name in ids}
    return frame.assign(**cells)


def _parquet(path: Path, item: str) -> pd.DataFrame:
    with reading_parquet(path):
        batches = list(parquet_batches(path, open_parquet(path), 2**16))
        frame = pd.concat([batch.to_pandas(ignore_metadata=True) for batch in batches])
    texts = {name: frame[name].astype(object) for name in frame if frame[name].dtype == "category"}
    return frame.assign(**texts).reset_index(drop=True)


def _json_lines(path: Path, item: str) -> pd.DataFrame:
    records = []
    for line, raw, _ in numbered_lines(path):
        record = parse_json(raw, f"{path}, line {line}")
        if not isinstance(record, dict):
            raise InputError(f"{path}, line {line}: expected an object. Got {shorten(record)}.")
        records.append(record)
    if not records:
        raise InputError(f"{path}: expected a line per value. Got an empty file.")
    return pd.DataFrame(records)


READERS: dict[str, Callable[[Path, str], Any]] = {
    ".npy": lambda path, item: read_npy(path),
    ".npz": _npz,
    ".csv": _csv,
    ".parquet": _parquet,
    ".pq": _parquet,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
}
"""Readers by extension: functions of the file and the column of items."""


def _from_frame(frame: pd.DataFrame, name: str, unit: str, columns: Mapping[str, str]) -> _Raw:
    """A wide or a long table."""
    if not len(frame):
        raise argument_error("values", "a table with rows", "none")
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    if (repeated := first_repeated(frame.columns)) is not None:
        raise argument_error("values", "a table of unique columns", f"{repeated!r} twice")
    usual = {"value": {"value", *UNITS[unit].names}, **NAMES}
    roles = ("value", "item", "step", "run")
    found = {role: _find(frame, name, role, columns, usual[role]) for role in roles}
    if found["value"] is not None and found["item"] is not None:
        return _from_long(frame, name, found)
    step, run = found["step"], found["run"]
    steps: Any = None if step is None else frame[step].to_numpy()
    if step is None and not frame.index.equals(pd.RangeIndex(len(frame))):
        steps = frame.index.to_numpy()
    others = frame.drop(columns=[column for column in (step, run) if column is not None])
    if not others.columns.size:
        raise argument_error("values", "a table with a column per item", list(frame.columns))

    def position(row: int, column: int) -> str:
        return f"row {row + 1}, column {others.columns[column]!r}"

    values = _numbers(others, name)
    runs = None if run is None else frame[run].to_numpy()
    return _Raw(values, steps, runs, others.columns.to_numpy(), position)


def _numbers(block: pd.DataFrame, name: str) -> FloatArray:
    """The cells of a table as numbers; raises about one that is none."""

    def report(row: int, column: int, expected: str) -> NoReturn:
        got = shorten(block.iloc[row, column])
        where = f"{name}, row {row + 1}, column {shorten(block.columns[column])}"
        raise InputError(f"{where}: expected a number or nothing. Got {got}.")

    return Coding().numbers(block, report)


def _find(
    frame: pd.DataFrame, name: str, role: str, columns: Mapping[str, str], usual: set[str]
) -> str | None:
    """The column of a role; None if there is none."""
    wanted = columns[role]
    if wanted in frame:
        return wanted
    if wanted != role:
        raise argument_error(role, f"a column of {name}, which has {shorten([*frame])}", wanted)
    matches = [column for column in map(str, frame) if normalized(column) in usual]
    if len(matches) > 1:
        names = " and ".join(map(repr, matches))
        raise InputError(f"{name}: {names} could all be the {role} column. Choose with {role}=.")
    return matches[0] if matches else None


def _from_long(frame: pd.DataFrame, name: str, columns: Mapping[str, str | None]) -> _Raw:
    """A table of one row per value."""
    if columns["step"] is None:
        raise InputError(f"{name}: a long table needs a column for the step. Name it with step=.")
    keys = [columns[role] for role in ("run", "step", "item") if columns[role] is not None]
    absent = frame[keys].isna().to_numpy()
    if absent.any():
        row, column = np.argwhere(absent)[0].tolist()
        raise InputError(f"{name}, row {row + 1}: expected a value of {keys[column]}. Got none.")
    values = _numbers(frame[[columns["value"]]], name)
    checkpoints = list(zip(*(frame[key].tolist() for key in keys[:-1]), strict=True))
    rows, kept = pd.factorize(pd.Series(checkpoints, dtype=object))
    cols, items = pd.factorize(frame[columns["item"]].map(str))
    matrix = np.full((len(kept), len(items)), np.nan)
    source: IntArray = np.full(matrix.shape, -1)
    order = np.arange(len(frame))[::-1].copy()  # written in reverse, so the first row remains
    source[rows[order], cols[order]] = order
    matrix[rows, cols] = values[:, 0]
    first = values[source[rows, cols], 0]
    conflicting = (first != values[:, 0]) & ~(np.isnan(first) & np.isnan(values[:, 0]))
    if conflicting.any():
        row = int(np.argmax(conflicting))
        earlier = int(source[rows[row], cols[row]]) + 1
        about = ", ".join(f"{key} {shorten(frame[key].iloc[row])}" for key in keys)
        raise InputError(
            f"{name}, row {row + 1}: {about} has another value in row {earlier}. Name the run of "
            "each row with run=, or keep one."
        )

    def position(row: int, column: int) -> str:
        return f"row {source[row, column] + 1}"

    steps = np.array([checkpoint[-1] for checkpoint in kept], dtype=object)
    runs = None
    if columns["run"] is not None:
        runs = np.array([str(checkpoint[0]) for checkpoint in kept], dtype=object)
    return _Raw(matrix, steps, runs, np.asarray(items, dtype=object), position)

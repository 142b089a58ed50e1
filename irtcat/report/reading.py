"""Reading saved results, whose kind is detected by content, not by name."""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat import cat
from irtcat._common.checks import InputError, is_number, shorten
from irtcat._files.archives import array_names
from irtcat._files.reading import check_path, opened, read_json
from irtcat.io.text import column_numbers, read_table
from irtcat.leaderboard.metrics import METRICS

KINDS = {
    "bank": "an item bank (irtcat fit --out BANK.npz)",
    "scores": "abilities (irtcat score --out)",
    "groups": "models that cannot be distinguished (irtcat groups --out)",
    "best": "the best of several models (irtcat best --out)",
    "predictions": "predicted scores and ranks (irtcat predict --out)",
    "subset": "selected items (irtcat select --out)",
    "board": "a leaderboard of item subsets (irtcat leaderboard --out)",
    "gaps": "the smallest gaps ranked right (leaderboard.reliable_gaps)",
    "headroom": "the headroom of test sets (irtcat headroom --out)",
    "options": "the options of multiple-choice items (diagnose.distractors)",
    "comparison": "a comparison of two models (irtcat compare --out)",
    "labels": "suspect labels (irtcat audit --out)",
    "drift": "items that drift with the date (irtcat audit --drift)",
    "contamination": "subjects that have seen items (irtcat audit --contamination)",
    "plan": "the items needed for a gap (irtcat plan --out)",
    "link": "the common items of two banks (irtcat link --table)",
    "kept": "selected training examples (irtcat filter --out)",
    "simulation": "the folder of irtcat simulate",
    "scale": "the folder of irtcat scale",
    "sessions": "a store of adaptive sessions (.db)",
    "evaluation": "the folder of irtcat evaluate",
}
"""The results that a report can show, by kind."""

TABLES = {
    "board": {"strategy", "estimator", "n_items", "kendall"},
    "gaps": {"strategy", "estimator", "n_items", "gap", "lower", "upper"},
    "groups": {"subject", "score", "lower", "upper", "rank_lower", "rank_upper", "letters"},
    "best": {"model", "observed", "score", "n_models"},
    "predictions": {"subject", "score", "lower", "upper", "rank"},
    "simulation": {"subject", "truth", "theta", "n_items", "stop"},
    "labels": {"item", "suspicion", "reasons"},
    "headroom": {"headroom", "headroom_se", "b_p50", "a_p50"},
    "comparison": {"new", "verdict", "difference"},
    "options": {"item", "option", "key", "point_biserial", "share"},
    "scores": {"subject", "theta", "se"},
    "subset": {"item", "weight"},
    "plan": {"design", "n_items", "n_items_typical", "n_items_hard"},
    "link": {"item", "difference", "robust_z", "used"},
    "kept": {"item", "value"},
    "drift": {"item", "drift", "drifts"},
    "contamination": {"subject", "excess", "contaminated"},
}
"""Columns by which the kind of a table is detected; the first match is used."""

NUMBERS = frozenset(
    {
        *METRICS,
        *(f"{name}_sd" for name in METRICS),
        *("theta", "se", "lower", "upper", "percentile", "truth", "suspicion", "observed"),
        *("score", "score_sd", "full_score", "rank", "rank_lower", "rank_upper", "gap"),
        *("n_items", "items", "rmse", "bias", "rate", "retained"),
    }
)
"""Columns that must be numeric in all tables, because the report computes with them."""

REQUIRED = frozenset({"n_items", "items", "rate", "retained"})
"""Those of them without missing values."""

SIMULATED: dict[str, set[str]] = {
    "sessions": {"subject", "n_items"},
    "by_theta": set(),
    "by_length": {"items"},
    "exposure": {"item", "rate"},
    "summary": set(),
}
SCALED = {
    "scales": {"scale", "items", "retained", "status"},
    "decisions": {"scale", "item", "action"},
    "items": {"item"},
}
"""Tables in the folders of irtcat simulate and scale, and their required columns."""

NOT_OVER = "The run is not over: repeat the same irtcat evaluate command to continue it."


@dataclass(frozen=True, eq=False)
class Result:
    """A result that was read.

    Attributes:
        kind: one of `KINDS`.
        name: its origin, for headings.
        value: a bank, a table, a folder's tables by name, a store or a session.
        path: the file or folder; None for an object.
        flags: warnings about the result.
        level: probability of its intervals; None if not known.
    """

    kind: str
    name: str
    value: Any
    path: Path | None = None
    flags: tuple[str, ...] = ()
    level: float | None = None


def read(source: Any) -> Result:
    """Read a saved result, or wrap an object, and detect its kind.

    Args:
        source: a path, or an object of the package: a bank, a table (pandas), `Ability`,
            `Prediction`, `Subset`, `Leaderboard`, `Comparison`, `LabelRanking`, `Scales`, a CAT
            `Report`, `Session` or `Store`.

    Returns:
        The result and its kind.

    Raises:
        InputError: for a missing or unreadable file, or an unknown kind of result.

    Example:
        >>> from irtcat import ItemBank
        >>> read(ItemBank.from_parameters(b=[0.0, 1.0])).kind
        'bank'
        >>> read(pd.DataFrame({"subject": ["x"], "theta": [0.1], "se": [0.3]})).kind
        'scores'
    """
    if not isinstance(source, (str, os.PathLike)):
        return _from_object(source)
    path = check_path(source)
    if path.is_dir():
        return _from_folder(path)
    with opened(path) as file:
        start = file.read(16)
    if start == b"SQLite format 3\0":
        return Result("sessions", path.stem, path, path)
    if start.startswith(b"\x80"):
        raise InputError(f"{path}: pickles run code when they are loaded, and are never read.")
    if start.startswith(b"PK"):
        return _from_archive(path)
    table = read_csv(path)
    return Result(_kind_of(table, str(path)), path.stem, table, path, level=_level_in(table))


def read_csv(path: Path) -> pd.DataFrame:
    """Read a table written by the commands; ids remain text."""
    # As text, because an id may be "NA", and an empty cell means no flags.
    texts = (
        *("subject", "item", "option", "model", "new", "old", "letters"),
        *("flag", "reasons", "undefined", "estimand", "ranks_of"),
    )
    return _with_numbers(read_table(path, texts), str(path))


def _with_numbers(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Convert the columns in `NUMBERS` to numbers; raise if a cell is not a number."""
    converted: dict[str, np.ndarray] = {}
    for key in NUMBERS & set(map(str, table.columns)):
        column = table[key]
        numbers = column_numbers(column)
        if pd.api.types.is_numeric_dtype(column.dtype):
            invalid = np.zeros(len(column), bool)
        else:  # column_numbers returns infinity for text, unless the cell is infinity
            infinite = column.astype(str).str.strip(" -").isin(("inf", "Infinity")).to_numpy(bool)
            invalid = np.isinf(numbers) & ~infinite
        if key in REQUIRED:
            invalid = invalid | ~np.isfinite(numbers)
        if invalid.any():
            row = int(np.argmax(invalid))
            got = "nothing" if pd.isna(column.iloc[row]) else shorten(str(column.iloc[row]))
            where = f"{name}, row {row + 1}, column {key}"
            raise InputError(f"{where}: expected a number. Got {got}.")
        if not isinstance(column.dtype, np.dtype) or column.dtype.kind not in "iuf":
            converted[key] = numbers
    return table.assign(**converted)


def _kind_of(table: pd.DataFrame, name: str) -> str:
    """The kind of a table, by its columns."""
    columns = {str(column) for column in table.columns}
    for kind, required in TABLES.items():
        if required <= columns:
            if not len(table):
                raise InputError(f"{name}: the table has no rows.")
            return kind
    if {"subject", "theta_1", "se_1"} <= columns and len(table):
        return "scores"
    if {"item", "a", "b"} <= columns:
        raise InputError(f"{name}: a table of items. Give the bank itself (irtcat fit --out).")
    shown = ", ".join(sorted(columns)[:8])
    known = "; ".join(KINDS.values())
    raise InputError(
        f"{name}: not a result of irtcat (columns: {shown}). Pass responses as --responses. "
        f"Known results: {known}."
    )


def _from_archive(path: Path) -> Result:
    """Read a bank; raise for other archives."""
    names = array_names(path)
    if "meta" not in names and "X" in names:
        raise InputError(f"{path}: responses, not a result. Pass them as --responses.")
    from irtcat.bank import ItemBank  # needs JAX, which tables do not

    return Result("bank", path.stem, ItemBank.load(path), path)


def _from_folder(path: Path) -> Result:
    """Read the output folder of a command, detected by its files."""
    names = {file.name for file in path.iterdir()}
    if "sessions.csv" in names and "summary.csv" in names:
        return Result("simulation", path.name, _simulated(path, names), path)
    if "decisions.csv" in names and "scales.csv" in names:
        tables = {file.stem: read_csv(file) for file in sorted(path.glob("*.csv"))}
        _check_columns(path, tables, SCALED)
        from irtcat.bank import ItemBank

        banks = {file.stem: ItemBank.load(file) for file in sorted(path.glob("*.npz"))}
        return Result("scale", path.name, {"tables": tables, "banks": banks}, path)
    if "result.json" in names or {"manifest.json", "sessions.db"} <= names:
        return Result("evaluation", path.name, _evaluation(path), path)
    if not names:
        raise InputError(f"{path}: not a folder of results: it is empty.")
    known = "; ".join(text for text in KINDS.values() if "folder" in text)
    files = sorted(file.name for file in path.iterdir() if file.suffix in (".npz", ".csv", ".db"))
    advice = f" Pass the files in it one by one: {', '.join(files[:6])}" if files else ""
    more = ", …" if len(files) > 6 else "." if files else ""
    raise InputError(f"{path}: not a folder of results. Known folders: {known}.{advice}{more}")


def _simulated(path: Path, names: set[str]) -> dict[str, pd.DataFrame]:
    """The tables of irtcat simulate."""
    tables = {n: read_csv(path / f"{n}.csv") for n in SIMULATED if f"{n}.csv" in names}
    _check_columns(path, tables, SIMULATED)
    for name in ("sessions", "exposure"):
        if name in tables and not len(tables[name]):
            raise InputError(f"{path / name}.csv: the table has no rows.")
    return tables


def _check_columns(
    path: Path, tables: dict[str, pd.DataFrame], required: dict[str, set[str]]
) -> None:
    """Raise if a table of a folder lacks required columns."""
    for name, columns in required.items():
        missing = sorted(columns - set(tables[name])) if name in tables else []
        if missing:
            raise InputError(f"{path / name}.csv: the table lacks the column {', '.join(missing)}.")


def _evaluation(path: Path) -> dict[str, Any]:
    """Read the folder of irtcat evaluate: the result, the tables and the stores that exist."""
    if not (path / "result.json").exists():
        result = {"notes": [NOT_OVER]}
        return {"result": result, "tables": {}, "stores": [path / "sessions.db"]}
    result = read_json(path / "result.json")
    if not isinstance(result, dict):
        kinds = {list: "a list", str: "a text", bool: "true or false"}
        got = kinds.get(type(result), "a number or null")
        raise InputError(f"{path / 'result.json'}: expected an object. Got {got}.")
    tables = {file.stem: read_csv(file) for file in sorted(path.glob("*.csv"))}
    stores = [file for file in sorted(path.iterdir()) if file.is_file() and _is_store(file)]
    return {"result": result, "tables": tables, "stores": stores}


def _is_store(path: Path) -> bool:
    """Whether a file is a store of sessions."""
    if path.suffix in (".db-wal", ".db-shm"):
        return False
    with path.open("rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            return False
    try:
        with sqlite3.connect(path) as db:
            names = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    except (sqlite3.Error, UnicodeDecodeError):  # UnicodeDecodeError: a name that is not text
        return False
    return {"meta", "sessions", "events"} <= names


def _from_object(source: Any) -> Result:
    """Wrap an object of the package as a result."""
    if isinstance(source, Result):
        return source
    result = None if isinstance(source, pd.DataFrame) else _from_model(source)
    if result is not None:
        return result
    table = source.to_frame() if hasattr(source, "to_frame") else source
    if not isinstance(table, pd.DataFrame):
        raise InputError(f"A report shows results of irtcat. Got {type(source).__name__}.")
    frame = table.reset_index() if table.index.names[0] is not None else table
    frame = _with_numbers(frame, "The table")
    frame = frame.assign(**_whose(source))
    flags = getattr(source, "flags", ())
    kind = _kind_of(frame, "The table")
    level = getattr(source, "level", None)
    return Result(
        kind=kind,
        name=kind,
        value=frame,
        flags=flags if isinstance(flags, tuple) else (),
        level=level if isinstance(level, float) else _level_in(frame),
    )


def _level_in(table: pd.DataFrame) -> float | None:
    """The probability of the intervals of a table that the commands wrote."""
    levels: list[Any] = table["level"].unique().tolist() if "level" in table else []
    is_one = len(levels) == 1 and is_number(levels[0]) and 0 < levels[0] < 1
    return float(levels[0]) if is_one else None


def _whose(source: Any) -> dict[str, str]:
    """Whose scores and ranks a result has, as the columns that the commands write."""
    found = {name: getattr(source, name, None) for name in ("estimand", "ranks_of")}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _from_model(source: Any) -> Result | None:
    """Wrap a bank, sessions, a simulation or scales; None for other objects."""
    from irtcat.bank import ItemBank
    from irtcat.scale import Scales, file_names

    if isinstance(source, ItemBank):
        return Result("bank", "bank", source)
    if isinstance(source, (cat.Session, cat.Store)):
        return Result("sessions", "sessions", source)
    if isinstance(source, cat.Report):
        return Result("simulation", "simulation", simulation_tables(source))
    if isinstance(source, Scales):
        return Result("scale", "scales", _scale_contents(source, file_names(source.scales)))
    return None


def simulation_tables(report: "cat.Report") -> dict[str, pd.DataFrame]:
    """The tables of a simulation, by the stems of the files of irtcat simulate."""
    return {
        "sessions": report.to_frame().reset_index(),
        "by_theta": report.by_theta(),
        "by_length": report.by_length().reset_index(),
        "exposure": report.exposure().reset_index(),
        "summary": pd.DataFrame([report.summary()]),
    }


def _scale_contents(scales: Any, stems: dict[str, str]) -> dict[str, Any]:
    """The tables and banks of `Scales`, by the stems of the files of `Scales.save`."""
    tables = {
        "decisions": scales.decisions,
        "items": scales.items().reset_index(),
        "scales": scales.to_frame().reset_index(),
    }
    banks = {}
    for name, scale in scales.scales.items():
        if scale.bank is None:
            continue
        banks[stems[name]] = scale.bank
        for attribute in ("information", "curves", "abilities"):
            table = getattr(scale, attribute)
            tables[f"{stems[name]}_{attribute}"] = (
                table.reset_index() if table.index.name is not None else table
            )
    return {"tables": tables, "banks": banks}

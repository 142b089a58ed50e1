"""What a saved result is, told by its content and not by its name."""

import os
import sqlite3
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, shorten
from irtcat._reading import check_path, opened, read_json
from irtcat.bank import ItemBank
from irtcat.io._text import column_numbers, read_table
from irtcat.leaderboard import METRICS

__all__ = ["KINDS", "Result", "read"]

KINDS = {
    "bank": "an item bank (irtcat fit --out BANK.npz)",
    "scores": "abilities (irtcat score --out)",
    "predictions": "predicted scores and ranks (irtcat predict --out)",
    "subset": "the items chosen (irtcat select --out)",
    "board": "how well subsets keep the ranking (irtcat leaderboard --out)",
    "gaps": "the smallest gaps ranked right (leaderboard.reliable_gaps)",
    "headroom": "test sets side by side (irtcat headroom --out)",
    "comparison": "an old and a new model (irtcat compare --out)",
    "labels": "suspect labels (irtcat audit --out)",
    "plan": "how many items a gap takes (irtcat plan --out)",
    "link": "the items that link two banks (irtcat link --table)",
    "kept": "the training examples kept (irtcat filter --out)",
    "simulation": "the folder of irtcat simulate",
    "scale": "the folder of irtcat scale",
    "sessions": "a store of adaptive sessions (.db)",
    "evaluation": "the folder of irtcat evaluate",
}
"""What a report can show, by kind."""

TABLES = {
    "board": {"strategy", "estimator", "n_items", "kendall"},
    "gaps": {"strategy", "estimator", "n_items", "gap", "lower", "upper"},
    "predictions": {"subject", "score", "lower", "upper", "rank"},
    "simulation": {"subject", "truth", "theta", "n_items", "stop"},
    "labels": {"item", "suspicion", "reasons"},
    "headroom": {"headroom", "headroom_se", "b_p50", "a_p50"},
    "comparison": {"new", "verdict", "difference"},
    "scores": {"subject", "theta", "se"},
    "subset": {"item", "weight"},
    "plan": {"design", "n_items", "n_items_typical", "n_items_hard"},
    "link": {"item", "difference", "robust_z", "used"},
    "kept": {"item", "value"},
}
"""Columns by which tables are known; the first that fits is taken."""

NUMBERS = frozenset(
    {*METRICS, *(f"{name}_sd" for name in METRICS), "theta", "se", "lower", "upper", "percentile",
     "score", "rank", "rank_lower", "rank_upper", "gap", "n_items", "truth", "full_score",
     "score_sd", "items", "rmse", "bias", "rate", "suspicion", "retained", "observed"}
)  # fmt: skip
"""Columns that a report computes with, in whatever table."""

FILLED = frozenset({"n_items", "items", "rate", "retained"})
"""Those of them in which no cell is empty."""

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
"""Tables of the folders of irtcat simulate and scale, and the columns that are relied on."""

NOT_OVER = "The run is not over: the same irtcat evaluate command, given again, goes on with it."


@dataclass(frozen=True, eq=False)
class Result:
    """One result, read.

    Attributes:
        kind: one of `KINDS`.
        name: where it came from, for headings.
        value: a bank, a table, a folder's tables by name, a store or a session.
        path: the file or folder; None for what was passed as an object.
        flags: what is to be said of the whole.
    """

    kind: str
    name: str
    value: Any
    path: Path | None = None
    flags: tuple[str, ...] = field(default=())


def read(source: Any) -> Result:
    """Read a result, or say what it is not.

    Args:
        source: a path, or an object of the package: a bank, a table (pandas), `Ability`,
            `Prediction`, `Subset`, `Leaderboard`, `Comparison`, `LabelRanking`, `Scales`, a CAT
            `Report`, `Session` or `Store`.

    Returns:
        The result and its kind.

    Raises:
        InputError: for a missing or unreadable file, or one of none of these kinds.

    Example:
        >>> read(ItemBank.from_parameters(b=[0.0, 1.0])).kind
        'bank'
        >>> read(pd.DataFrame({"subject": ["x"], "theta": [0.1], "se": [0.3]})).kind
        'scores'
    """
    if not isinstance(source, (str, os.PathLike)):
        return _of_object(source)
    path = check_path(source)
    if path.is_dir():
        return _of_folder(path)
    with opened(path) as file:
        start = file.read(16)
    if start == b"SQLite format 3\0":
        return Result("sessions", path.stem, path, path)
    if start.startswith(b"\x80"):
        raise InputError(f"{path}: pickles run code when they are loaded, and are never read.")
    if start.startswith(b"PK"):
        return _of_archive(path)
    table = read_csv(path)
    return Result(_kind_of(table, str(path)), path.stem, table, path)


def read_csv(path: Path) -> pd.DataFrame:
    """A table as the commands write it; ids stay text."""
    # an id may be "NA", and no flag is the empty text
    texts = ("subject", "item", "flags", "reasons", "undefined", "new", "old")
    return _with_numbers(read_table(path, texts), str(path))


def _with_numbers(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The table, its columns in `NUMBERS` as numbers; raises where a cell is something else."""
    made: dict[str, np.ndarray] = {}
    for key in NUMBERS & set(map(str, table.columns)):
        column = table[key]
        numbers = column_numbers(column)
        if pd.api.types.is_numeric_dtype(column.dtype):
            bad = np.zeros(len(column), bool)
        else:  # infinite stands for something else, unless the cell says so
            said = column.astype(str).str.strip(" -").isin(("inf", "Infinity")).to_numpy(bool)
            bad = np.isinf(numbers) & ~said
        if key in FILLED:
            bad = bad | ~np.isfinite(numbers)
        if bad.any():
            row = int(np.argmax(bad))
            got = "nothing" if pd.isna(column.iloc[row]) else shorten(str(column.iloc[row]))
            where = f"{name}, row {row + 1}, column {key}"
            raise InputError(f"{where}: expected a number. Got {got}.")
        if not isinstance(column.dtype, np.dtype) or column.dtype.kind not in "iuf":
            made[key] = numbers
    return table.assign(**made)


def _kind_of(table: pd.DataFrame, name: str) -> str:
    """Which table this is."""
    have = {str(column) for column in table.columns}
    for kind, need in TABLES.items():
        if need <= have:
            if not len(table):
                raise InputError(f"{name}: the table has no rows.")
            return kind
    if {"subject", "theta_1", "se_1"} <= have and len(table):
        return "scores"
    if {"item", "a", "b"} <= have:
        raise InputError(f"{name}: a table of items. Give the bank itself (irtcat fit --out).")
    shown = ", ".join(sorted(have)[:8])
    known = "; ".join(KINDS.values())
    raise InputError(
        f"{name}: no result of irtcat (its columns: {shown}). Responses go to --responses. "
        f"Known are: {known}."
    )


def _of_archive(path: Path) -> Result:
    """A bank; other archives are refused."""
    names: set[str] = set()
    if zipfile.is_zipfile(path):  # `load` says so where it is none
        try:
            with zipfile.ZipFile(path) as archive:
                names = set(archive.namelist())
        except (ValueError, NotImplementedError, zipfile.BadZipFile):
            names = set()
    if names and "meta.npy" not in names and "X.npy" in names:
        raise InputError(f"{path}: responses, no result. Pass them as --responses.")
    return Result("bank", path.stem, ItemBank.load(path), path)


def _of_folder(path: Path) -> Result:
    """The folder of a command, known by its files."""
    have = {each.name for each in path.iterdir()}
    if "sessions.csv" in have and "summary.csv" in have:
        tables = {n: read_csv(path / f"{n}.csv") for n in SIMULATED if f"{n}.csv" in have}
        _check_columns(path, tables, SIMULATED)
        for name in ("sessions", "exposure"):
            if name in tables and not len(tables[name]):
                raise InputError(f"{path / name}.csv: the table has no rows.")
        return Result("simulation", path.name, tables, path)
    if "decisions.csv" in have and "scales.csv" in have:
        tables = {each.stem: read_csv(each) for each in sorted(path.glob("*.csv"))}
        _check_columns(path, tables, SCALED)
        banks = {each.stem: ItemBank.load(each) for each in sorted(path.glob("*.npz"))}
        return Result("scale", path.name, {"tables": tables, "banks": banks}, path)
    if "result.json" in have or {"manifest.json", "sessions.db"} <= have:
        return Result("evaluation", path.name, _evaluation(path), path)
    if not have:
        raise InputError(f"{path}: no folder of results: it is empty.")
    wanted = "; ".join(text for text in KINDS.values() if "folder" in text)
    files = sorted(each.name for each in path.iterdir() if each.suffix in (".npz", ".csv", ".db"))
    named = f" Name the files in it one by one: {', '.join(files[:6])}" if files else ""
    more = ", …" if len(files) > 6 else "." if files else ""
    raise InputError(f"{path}: no folder of results. Known are: {wanted}.{named}{more}")


def _check_columns(
    path: Path, tables: dict[str, pd.DataFrame], needed: dict[str, set[str]]
) -> None:
    """Raise where a table of a folder lacks what the command writes."""
    for name, need in needed.items():
        lost = sorted(need - set(tables[name])) if name in tables else []
        if lost:
            raise InputError(f"{path / name}.csv: the table lacks the column {', '.join(lost)}.")


def _evaluation(path: Path) -> dict[str, Any]:
    """What irtcat evaluate left: its result, its items and its store, those that are there."""
    if not (path / "result.json").exists():
        result = {"notes": [NOT_OVER]}
        return {"result": result, "tables": {}, "stores": [path / "sessions.db"]}
    result = read_json(path / "result.json")
    if not isinstance(result, dict):
        raise InputError(f"{path / 'result.json'}: expected an object. Got {_json_name(result)}.")
    tables = {each.stem: read_csv(each) for each in sorted(path.glob("*.csv"))}
    stores = [each for each in sorted(path.iterdir()) if each.is_file() and _is_store(each)]
    return {"result": result, "tables": tables, "stores": stores}


def _json_name(value: Any) -> str:
    """What a JSON value is called."""
    return {list: "a list", str: "a text", bool: "true or false"}.get(
        type(value), "a number or null"
    )


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
    except (sqlite3.Error, UnicodeDecodeError):  # a name that is no text
        return False
    return {"meta", "sessions", "events"} <= names


def _of_object(source: Any) -> Result:
    """A result that was not saved."""
    from irtcat.cat import Report, Session, Store
    from irtcat.scale import Scales, file_names

    if isinstance(source, Result):
        return source
    if isinstance(source, ItemBank):
        return Result("bank", "bank", source)
    if isinstance(source, (Session, Store)):
        return Result("sessions", "sessions", source)
    if isinstance(source, Report):
        tables = {"sessions": source.to_frame().reset_index(), "by_theta": source.by_theta(),
                  "by_length": source.by_length().reset_index(),
                  "exposure": source.exposure().reset_index(),
                  "summary": pd.DataFrame([source.summary()])}  # fmt: skip
        return Result("simulation", "simulation", tables)
    if isinstance(source, Scales):
        return Result("scale", "scales", _scale_parts(source, file_names(source.scales)))
    table = source.to_frame() if hasattr(source, "to_frame") else source
    if not isinstance(table, pd.DataFrame):
        raise InputError(f"A report shows results of irtcat. Got {type(source).__name__}.")
    named = table.reset_index() if table.index.names[0] is not None else table
    named = _with_numbers(named, "The table given")
    flags = getattr(source, "flags", ())
    told = tuple(flags) if isinstance(flags, tuple) else ()
    kind = _kind_of(named, "The table given")
    return Result(kind, kind, named, None, told)


def _scale_parts(scales: Any, stems: dict[str, str]) -> dict[str, Any]:
    """The tables and banks of `Scales` by the names that `Scales.save` gives their files."""
    tables = {"decisions": scales.decisions, "items": scales.items().reset_index(),
              "scales": scales.to_frame().reset_index()}  # fmt: skip
    banks = {}
    for name, scale in scales.scales.items():
        if scale.bank is None:
            continue
        banks[stems[name]] = scale.bank
        for what in ("information", "curves", "abilities"):
            table = getattr(scale, what)
            tables[f"{stems[name]}_{what}"] = (
                table.reset_index() if table.index.name is not None else table
            )
    return {"tables": tables, "banks": banks}

"""`read_parameters`: items that another tool calibrated, as a bank."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_choice, shorten
from irtcat._common.numbers import number_in
from irtcat._common.registry import documented
from irtcat._common.types import FloatArray
from irtcat._files.reading import MOST_BYTES, check_path
from irtcat.bank import ItemBank, Population
from irtcat.io.parameters.dialects import DIALECTS, ROLES, Dialect, Place, id_column
from irtcat.io.parameters.files import OpenedFile, open_parameters, recognised
from irtcat.io.parameters.items import FormItems, Reading, bank_of, model_names
from irtcat.responses._cells import MISSING

CATEGORY_MODELS = ("graded", "gpcm", "nominal")
"""Models of items with several categories that a user can state for a file."""

LIKE_T_SCORES = 15.0
"""Thresholds of this size on a scale with SD 1 are far from everybody; T scores are about 50."""

UNLIKELY_UPPER = 0.5
"""An upper asymptote below is far more likely the probability of a slip, which is 1 minus it."""


@documented(DIALECTS)
def read_parameters(
    path: str | os.PathLike[str],
    *,
    dialect: str = "auto",
    model: str | None = None,
    scaling: float = 1.0,
    columns: Mapping[str, str] | None = None,
    populations: Any = None,
    max_bytes: int = MOST_BYTES,
) -> ItemBank:
    r"""Read item parameters that another tool estimated.

    A table (CSV, or JSON of columns or of items) with a row for each item, py-irt's
    ``best_parameters.json`` or flexMIRT's ``-prm.txt``. Whose it is says the header; several
    abilities have several columns of slopes; items with different models may be in one file:

    {table}

    ``{k}`` stands for the number of a category, ``{m}`` of an ability. All other columns become
    metadata of the items; standard errors are not read.

    Args:
        path: the file, UTF-8.
        dialect: whose columns they are; "auto" recognises them.
        model: "graded", "gpcm" or "nominal": of items with several categories, where the file does
            not say it. Graded and partial credit items have the same columns a, b1, b2, ....
        scaling: the constant D of ``P = sigmoid(D a (theta - b))``; 1 or 1.7 are usual. The bank
            has D = 1: its slopes are D a.
        columns: what columns hold, by role: {"slope": "disc.2pl", "difficulty": "loc"}. A wrong
            role lists all of them.
        populations: abilities of the calibration on the scale of the file, as of `ItemBank`; by
            default those in the file, else N(0, 1).
        max_bytes: the greatest size of the file.

    Returns:
        The bank, in the order of the file and without standard errors. Its ``provenance`` says how
        the file was read: dialect, scaling, columns and notes.

    Raises:
        InputError: for columns that are not recognised, naming them and what to do; for impossible
            numbers, naming the item.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "items.csv"
        >>> size = path.write_text('"","a1","d","g","u"\n"q1",1.5,-0.75,0,1\n"q2",2,1,0.2,1\n')
        >>> bank = read_parameters(path)
        >>> bank.to_frame()[["a", "b", "c"]].values.round(2).tolist()
        [[1.5, 0.5, 0.0], [2.0, -0.5, 0.2]]
        >>> bank.provenance["dialect"]
        'mirt'
    """
    check_choice("dialect", dialect, ("auto", *DIALECTS))
    if model is not None:
        check_choice("model", model, CATEGORY_MODELS)
    is_number = isinstance(scaling, (int, float)) and not isinstance(scaling, bool)
    if not (is_number and 0 < scaling < np.inf):
        raise argument_error("scaling", "a number above 0, such as 1 or 1.7", scaling)
    file = check_path(path)
    if file.is_dir():
        raise argument_error("path", "a file of item parameters", f"the folder {file}")
    opened = open_parameters(file, max_bytes)
    if dialect != "auto" and DIALECTS[dialect].file != opened.file:
        got = f"a file of the type {opened.file}"
        raise argument_error("dialect", f"that of {path}", f"{dialect}, for {got}")
    row, places = recognised(path, opened, dialect, columns)
    if scaling != 1 and not row.scaling:
        raise argument_error("scaling", f"1 for files of {row.name}", scaling)
    is_sure = dialect != "auto" or bool(columns)
    return _bank(path, opened, row, places, model, float(scaling), populations, is_sure)


def _codes(row: Dialect, parts: Sequence[FormItems]) -> tuple[int, ...]:
    """The response codes of a dialect that does not count from 0."""
    n_categories = 1 + max(part.intercept.shape[1] for part in parts)
    return tuple(range(row.first_code, row.first_code + n_categories)) if row.first_code else ()


def _model_of_columns(row: Dialect, parameters: Mapping[Place, str]) -> str:
    """The item model that the names of the columns imply; "" if none."""
    implied = {
        column.model
        for column in row.columns
        for place, header in parameters.items()
        if place.role in ("threshold", "offset", "fall") and column.place(header) == place
    }
    return next(iter(implied - {""}), "")


def _further_columns(opened: OpenedFile, used: set[str | None], notes: list[str]) -> pd.DataFrame:
    """The columns that no parameter uses, as metadata of the items: numbers where all cells are."""
    rest = [header for header in opened.headers if header not in used and header.strip()]
    if rest:
        notes.append(f"columns kept as metadata of the items: {shorten(rest)}")
    out = pd.DataFrame(index=range(len(opened.table)))
    for name, column in opened.table[rest].items():
        numbers = [number_in(str(cell)) for cell in column]
        out[name] = column.to_list() if None in numbers else numbers
    return out


def _bank(
    path: Any,
    opened: OpenedFile,
    row: Dialect,
    places: dict[Place, str],
    model: str | None,
    scaling: float,
    populations: Any,
    is_sure: bool,
) -> ItemBank:
    """The bank of a file whose columns are known."""
    table, notes = opened.table, [*row.notes, *opened.notes]
    id_header = places.get(Place("item"))
    if id_header is None:
        id_header = id_column(opened.headers, places.values())
    ids = _ids(path, table, id_header, notes)

    def where(i: int) -> str:
        return f"{path}, row {i + 1}, item {shorten(str(ids[i]))}"

    named = places.get(Place("model"))
    texts = pd.Series([""] * len(table)) if named is None else table[named]
    names = model_names(texts, where)
    parameters = {p: h for p, h in places.items() if p.role not in ("item", "model")}
    arrays = {place: _numbers(table[header], header, where) for place, header in parameters.items()}
    if not is_sure:
        _check_sizes(row, arrays, parameters, where)
    has_slopes = any(place.m for place in arrays)
    if not has_slopes:
        notes.append("no column of slopes: all are 1")
    default = model or row.model or _model_of_columns(row, parameters)
    if scaling == 1 and row.scaling:
        notes.append("scaling constant D = 1, as no other was stated")
    arrays = {place: a * (scaling if place.role in SCALED else 1) for place, a in arrays.items()}
    reading = Reading(arrays, len(table), names, default, where)
    parts = reading.to_items()
    if scaling != 1 and not has_slopes:
        raise argument_error("scaling", "1 for a file without a column of slopes", scaling)
    metadata = _further_columns(opened, {id_header, *places.values()}, notes)
    known = opened.populations if populations is None else populations
    if known is None:
        notes.append("population N(0, 1), as the file does not state it" + _fixed_unit(parts))
        known = Population().of_dims(parts[0].slope.shape[1])
    bank = bank_of(parts, reading.names, ids, metadata, known, _codes(row, parts))
    provenance = {
        "method": "imported",
        "dialect": row.name,
        "scaling": scaling,
        "columns": {_role_text(place): header for place, header in places.items()},
        "notes": notes,
    }
    return replace(bank, provenance=provenance)


def _fixed_unit(parts: list[FormItems]) -> str:
    """What else to know of the population where all slopes are 1, as in Rasch models."""
    if any(part.kind == "nominal" or (part.slope != 1).any() for part in parts):
        return ""
    return "; as all slopes are 1, its SD was probably estimated: state it by populations="


SCALED = ("slope", "category_slope", "intercept", "step", "category_difficulty")
"""Roles on the scale of the log-odds, which the scaling constant multiplies."""


def _role_text(place: Place) -> str:
    """A role with its numbers."""
    k = str(place.k) if place.role in CATEGORY_ROLES else ""
    return f"{place.role}{k}_{place.m}" if place.m else f"{place.role}{k}"


CATEGORY_ROLES = {form.partition("{")[0] for form in ROLES if "{k}" in form}


def _ids(path: Any, table: pd.DataFrame, header: str | None, notes: list[str]) -> np.ndarray:
    """The ids of the items."""
    if header is None:
        notes.append("no column of ids: i1, i2, ...")
        return np.array([f"i{i + 1}" for i in range(len(table))], dtype=object)
    ids = table[header].astype(str).str.strip()
    empty, repeated = (ids == ""), ids.duplicated()
    for wrong, got in ((empty, "an empty cell"), (repeated, "one that occurs twice")):
        if wrong.any():
            i = int(np.argmax(wrong))
            name = f" ({shorten(ids[i])})" if ids[i] else ""
            where = f"{path}, row {i + 1}, column {header or 1}"
            raise InputError(f"{where}: expected an id. Got {got}{name}.")
    return ids.to_numpy(object)


def _numbers(column: pd.Series, header: str, where: Any) -> FloatArray:
    """A column of numbers; NaN in empty cells."""
    out = np.full(len(column), np.nan)
    for i, text in enumerate(column):
        cell = str(text).strip()
        if cell in MISSING or cell.lower() in ("", "na", "nan", "null"):
            continue
        number = number_in(cell)
        if number is None or abs(number) > MAX_SIZE:
            raise InputError(
                f"{where(i)}, column {header}: expected a number. Got {shorten(cell)}."
            )
        out[i] = number
    return out


MAX_SIZE = 1e100
"""No parameter is larger; products of larger numbers would not be finite."""


def _check_sizes(
    row: Dialect, arrays: Mapping[Place, FloatArray], headers: Mapping[Place, str], where: Any
) -> None:
    """Raise for numbers of the size of T scores, and slips in place of upper asymptotes."""
    for place, values in arrays.items():
        if row.name == "promis" and place.role == "threshold":
            middle = np.nanmedian(np.abs(values)) if np.isfinite(values).any() else 0.0
            if middle > LIKE_T_SCORES:
                raise InputError(
                    f"{where(0)}: the thresholds in {headers[place]} look like T scores (median "
                    f"{middle:g}). Convert them to thetas, (T - 50) / 10, with slopes per SD."
                )
        if headers[place].lower() == "slipping" and (values < UNLIKELY_UPPER).any():
            i = int(np.argmax(values < UNLIKELY_UPPER))
            raise InputError(
                f"{where(i)}: slipping is the upper asymptote in jsCAT, which is seldom below .5. "
                f"Got {values[i]:g}. Is it the probability of a slip? Then write 1 minus it."
            )

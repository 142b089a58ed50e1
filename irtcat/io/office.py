"""Spreadsheets of Excel, and files of SPSS, Stata and SAS, with the optional extra ``office``."""

import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, one_line, shorten
from irtcat._common.lazy import optional_module
from irtcat._files.reading import MOST_BYTES, allowed_bytes, opened, too_large
from irtcat.io.frames import from_frame
from irtcat.responses import Responses
from irtcat.responses._cells import folded, scale_of
from irtcat.responses._key import KEY_ROWS, Key, key_of_rows
from irtcat.responses._table import ReadingOptions

READERS = {
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".por": "read_por",
    ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
"""Functions of pyreadstat by the extension of the file."""

NO_ANSWER = frozenset(
    ("missing", "no answer", "no response", "refused", "not applicable", "not administered")
)
"""Labels of values that are no response."""


class Sheet(NamedTuple):
    """A table of a file.

    Attributes:
        frame: its rows.
        rows: what messages call a row, by its number from 0.
        labels: the labels of the values of columns; empty for a spreadsheet.
    """

    frame: pd.DataFrame
    rows: Callable[[int], str]
    labels: Mapping[str, Mapping[float, str]] = {}


def read_excel(path: Path, options: ReadingOptions, max_bytes: int = MOST_BYTES) -> Responses:
    """Read a sheet of an Excel workbook, wide or long.

    A second sheet named key is the answer key.

    Raises:
        InputError: openpyxl is not installed, several sheets have cells, or naming the cell.
    """
    sheets = _sheets(path, max_bytes)
    if options.sheet is not None and options.sheet not in sheets:
        got = f"{shorten(options.sheet)}; it has {shorten(list(sheets))}"
        raise InputError(f"The `sheet` argument must be a sheet of {path}. Got {got}.")
    keys = [name for name in sheets if folded(name) in KEY_ROWS and name != options.sheet]
    others = [name for name in sheets if name not in keys or len(sheets) == 1]
    if options.sheet is None and len(others) > 1:
        got = f"the sheets {shorten(others)}"
        raise InputError(f"{path}: expected one sheet with cells. Got {got}. Choose with sheet=.")
    sheet = sheets[options.sheet or others[0]]
    if len(keys) == 1 and options.key is None and not options.words:
        options = replace(options, key=_key(sheets[keys[0]], path))
    return from_frame(sheet.frame, str(path), options, sheet.rows, "table")


def read_labelled(path: Path, options: ReadingOptions, max_bytes: int = MOST_BYTES) -> Responses:
    """Read a file of SPSS, Stata or SAS, wide or long.

    Values are codes, except where their labels are known words in another order (1 = yes, 2 = no).
    Values that the file declares as missing are missing.

    Raises:
        InputError: pyreadstat is not installed, or naming the row and the column.
    """
    sheet = _labelled(path, max_bytes)
    frame, said = _by_labels(sheet, options)
    responses = from_frame(frame, str(path), options, sheet.rows, "table")
    if said:
        warnings.warn(f"{path}: {said}.", UserWarning, stacklevel=4)
    return replace(responses, origin="; ".join(filter(None, [responses.origin, said])))


def office_header(path: Path) -> tuple[str, ...]:
    """The columns of a table; of the first sheet of a workbook."""
    if path.suffix.lower() in READERS:
        return tuple(map(str, _labelled(path, MOST_BYTES).frame.columns))
    return tuple(map(str, next(iter(_sheets(path, MOST_BYTES).values())).frame.columns))


def read_key_sheet(path: Path) -> Key:
    """The key of a workbook: its only sheet, or the one named key."""
    sheets = _sheets(path, MOST_BYTES)
    keys = [name for name in sheets if folded(name) in KEY_ROWS or len(sheets) == 1]
    if len(keys) != 1:
        got = f"the sheets {shorten(list(sheets))}"
        raise InputError(f"{path}: expected one sheet, or one that is named key. Got {got}.")
    return _key(sheets[keys[0]], path)


def _key(sheet: Sheet, path: Path) -> Key:
    rows = sheet.frame.astype(object).to_numpy().tolist()
    return key_of_rows([str(name) for name in sheet.frame.columns], rows, str(path))


def _module(path: Path, name: str, what: str) -> Any:
    """A module of the extra."""
    advice = "Install it: pip install 'irtcat[office]'. Or export the sheet as CSV."
    return optional_module(name, f"{path}: reading {what} needs {name}. {advice}")


def _sheets(path: Path, max_bytes: int) -> dict[str, Sheet]:
    """The sheets of a workbook that have cells."""
    _module(path, "openpyxl", "Excel files")
    with opened(path) as file:
        most = allowed_bytes(file, max_bytes)
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > most:
            raise too_large(f"{path}: the workbook", most)
        found = pd.read_excel(
            path,
            sheet_name=None,
            header=None,
            dtype=object,
            engine="openpyxl",
            keep_default_na=False,
            na_values=[""],
        )
    except InputError:
        raise
    except Exception:  # openpyxl raises whatever a damaged or encrypted file leads to
        advice = "Save it again without a password, or export the sheet as CSV."
        raise InputError(f"{path}: the workbook cannot be read. {advice}") from None
    sheets = {name: frame for name, frame in found.items() if frame.notna().to_numpy().any()}
    if not sheets:
        raise InputError(f"{path}: expected a header and rows. Got empty sheets.")
    return {name: _sheet(path, frame) for name, frame in sheets.items()}


def _sheet(path: Path, cells: pd.DataFrame) -> Sheet:
    """A table from the cells of a sheet; empty rows and columns are left out."""
    cells = cells.loc[cells.notna().any(axis=1), cells.notna().any(axis=0)].map(_written)
    n_names = int(cells.iloc[0].notna().sum())
    if n_names == 1 < cells.shape[1]:
        where = f"{path}, row {cells.index[0] + 1}"
        got = shorten(str(cells.iloc[0].dropna().iloc[0]))
        advice = "Remove the rows above the names of the columns."
        raise InputError(f"{where}: expected the names of the columns. Got only {got}. {advice}")
    header = ["" if pd.isna(name) else str(name).strip() for name in cells.iloc[0]]
    numbers = [f"row {number + 1}" for number in cells.index[1:]]
    frame = cells.iloc[1:].reset_index(drop=True).set_axis(header, axis=1)
    return Sheet(frame.astype(object).where(frame.notna(), None), numbers.__getitem__)


def _written(cell: Any) -> Any:
    """A cell; a date without a time as a CSV file has it, so that ids agree.

    Example:
        >>> _written(datetime(2024, 1, 2)), _written(datetime(2024, 1, 2, 9, 30)), _written(3)
        ('2024-01-02', '2024-01-02 09:30:00', 3)
    """
    if not isinstance(cell, datetime) or pd.isna(cell):
        return cell
    return str(cell.date() if cell.time() == time.min else cell)


def _labelled(path: Path, max_bytes: int) -> Sheet:
    """The table of a file of SPSS, Stata or SAS."""
    pyreadstat = _module(path, "pyreadstat", "files of SPSS, Stata and SAS")
    with opened(path) as file:
        most = allowed_bytes(file, max_bytes)
    read = getattr(pyreadstat, READERS[path.suffix.lower()])
    try:
        about = read(path, metadataonly=True)[1]
        rows, columns = about.number_rows or 0, about.number_columns or 0
        if 8 * rows * columns > most:
            raise too_large(f"{path}: the table", most)
        frame, about = read(path)
    except InputError:
        raise
    except Exception as error:  # pyreadstat has errors of its own, and those of codecs
        raise InputError(f"{path}: the file cannot be read ({one_line(error)}).") from None
    for name, column in frame.items():
        if column.dtype.kind == "f" and column.notna().all() and (column % 1 == 0).all():
            frame[name] = column.astype(np.int64)  # an id is 17, not 17.0
    labels = {name: dict(table) for name, table in about.variable_value_labels.items()}
    return Sheet(frame, lambda row: f"row {row + 1}", labels)


def _by_labels(sheet: Sheet, options: ReadingOptions) -> tuple[pd.DataFrame, str]:
    """The table with the meaning of labelled values, and what was guessed of them."""
    frame = sheet.frame.copy(deep=False)
    said: dict[str, None] = {}
    unused: dict[str, str] = {}
    asked = set(options.words) if options.key is None else options.key.texts
    for name, labels in sheet.labels.items():
        if name not in frame or name in options.ignore:
            continue
        column, texts = frame[name], {value: folded(str(text)) for value, text in labels.items()}
        if name in options.subject_columns or asked & set(texts.values()):
            frame[name] = column.astype(object).map(lambda x, by=labels: by.get(x, x))
            continue
        absent, texts = _without_answer(texts)
        if absent and column.isin(absent).any():
            column = column.astype(object).where(~column.isin(absent), None)
            frame[name] = column
            said |= {f"{labels[value]} = missing": None for value in absent}
        if asked or not _are_labelled(column, texts):
            continue
        scale = scale_of(set(texts.values()))
        if scale is None:
            unused[", ".join(f"{value:g} = {text}" for value, text in labels.items())] = name
            continue
        numbers = {value: scale[text] for value, text in texts.items()}
        if sorted(numbers) == sorted(numbers, key=numbers.__getitem__):
            continue  # the codes have this order already
        frame[name] = column.map(numbers)
        said |= {f"{text} = {number:g}": None for text, number in scale.items()}
    parts = [f"labelled values were read as {', '.join(said)}"] if said else []
    for of_first, name in list(unused.items())[:1]:
        parts.append(
            f"values were read as codes, not by their labels ({name}: {of_first}); if they are "
            "choices, name the right ones with key="
        )
    return frame, "; ".join(parts)


def _without_answer(texts: Mapping[Any, str]) -> tuple[list[Any], dict[Any, str]]:
    """The values whose labels say that there is no answer, and the labels of the others."""
    absent = [value for value, text in texts.items() if text in NO_ANSWER]
    return absent, {value: text for value, text in texts.items() if value not in absent}


def _are_labelled(column: pd.Series, texts: Mapping[Any, str]) -> bool:
    """Whether all values of a column have labels, of which there are two or more."""
    return len(texts) > 1 and bool(pd.Series(column.dropna().unique()).isin(list(texts)).all())

"""Responses from data frames: from memory, or read from files of records and spreadsheets."""

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, resolve_duplicates
from irtcat.responses import Responses, frame_table, long_responses, responses_of
from irtcat.responses._table import (
    ID_NAMES,
    ITEM_NAMES,
    SUBJECT_NAMES,
    ReadingOptions,
    SourceTable,
    check_names,
    find_long_columns,
    normalized,
)
from irtcat.responses.responses import RowName, row_name
from irtcat.responses.wide import form_of, has_first_item, has_ids, read_wide

ROWS_ARE_SUBJECTS = "one row per subject"
ROWS_ARE_ITEMS = "one row per item, transposed"


def from_frame(
    frame: pd.DataFrame,
    name: str,
    options: ReadingOptions,
    rows: RowName = row_name,
    kind: str = "",
) -> Responses:
    """A wide or a long data frame.

    Args:
        frame: the table.
        name: what messages call it: its type, or the file that it was read from.
        options: column names, layout and what to do with repeated ids.
        rows: what messages call a row, by its number from 0.
        kind: what ``Responses.origin`` calls it; its name by default.
    """
    header = tuple(map(str, frame.columns))
    if frame.index.nlevels > 1 or _has_other_role(frame):
        frame = frame.reset_index()
    table = frame_table(name, frame, rows, kind=kind)
    long = find_long_columns(table, options)
    if long is not None:
        return _from_long(table, frame, long[2], options)
    about = options.subject_columns
    check_names(name, map(str, frame.columns), options)
    is_form = form_of(header, frame, options.aside) is not None
    if is_form and isinstance(frame.index, pd.RangeIndex):
        cells = read_wide(table, [frame], options)
        return responses_of(cells, options.duplicates, origin=cells.origin, codes=options.codes)
    columns = frame.columns.map(str)
    known, frame = frame.loc[:, columns.isin(about)], frame.loc[:, ~columns.isin(options.aside)]
    frame, ids = _with_id_index(frame, name, options)
    by_item = is_item_name(frame.index.name) or is_subject_name(frame.columns.name)
    if by_item and about:
        must = "given with a table of one row per subject"
        raise argument_error("subject_columns", must, ROWS_ARE_ITEMS)
    if by_item:
        frame = frame.T
    origin = f"{kind or name} of {ROWS_ARE_ITEMS if by_item else ROWS_ARE_SUBJECTS}; ids = {ids}"
    responses = from_wide(frame, name, options, origin, rows, header)
    if not about:
        return responses
    labels = np.array([str(label) for label in frame.index], object)
    kept = resolve_duplicates("subject_ids", labels, options.duplicates)[1]
    known = known.iloc[kept].set_axis(list(about), axis=1)
    return replace(responses, subjects=known.set_axis(responses.subjects.index, axis=0))


def _from_long(
    table: SourceTable, frame: pd.DataFrame, response: int, options: ReadingOptions
) -> Responses:
    """A table of one row per response, whose column of responses is at a position."""
    cells, codes, said = _in_order(frame.iloc[:, [response]], options)
    if said:
        frame = frame.copy(deep=False)
        frame.isetitem(response, cells.iloc[:, 0].to_numpy())
    responses = long_responses(table, frame, options, codes=codes)
    return replace(responses, origin=responses.origin + said)


def _in_order(cells: pd.DataFrame, options: ReadingOptions) -> tuple[pd.DataFrame, Any, str]:
    """Columns of ordered categories as codes 0, 1, ..., all codes, and what is said of them.

    Ordered categories that are numbers are these numbers.
    """
    codes = options.codes
    kinds = [kind for kind in cells.dtypes if isinstance(kind, pd.CategoricalDtype)]
    kinds = [kind for kind in kinds if kind.ordered and len(kind.categories)]
    if not kinds or options.is_coded:
        return cells, codes, ""
    if all(pd.api.types.is_numeric_dtype(kind.categories.dtype) for kind in kinds):
        return cells.astype({n: float for n, k in cells.dtypes.items() if k in kinds}), codes, ""
    first = 0 if codes is None else codes[0]
    coded = [  # names may repeat
        column.cat.codes.where(column.notna()) + first if column.dtype in kinds else column
        for _, column in cells.items()
    ]
    said = f"; ordered categories were read as {_code_text(kinds, first)}"
    most = max(len(kind.categories) for kind in kinds)
    if codes is None and len(kinds) == cells.shape[1] and most > 2:
        codes = tuple(range(most))
    return pd.concat(coded, axis=1).set_axis(cells.columns, axis=1), codes, said


def _code_text(kinds: list[pd.CategoricalDtype], first: int) -> str:
    """The codes of the categories, where all columns have the same ones."""
    labels = list(kinds[0].categories) if len(set(kinds)) == 1 else []
    pairs = ", ".join(f"{label} = {code + first}" for code, label in enumerate(labels))
    return pairs or f"{first}, {first + 1}, ..."


def _has_other_role(frame: pd.DataFrame) -> bool:
    """Whether a long table has its subjects in its index and items in a column, or vice versa."""
    columns = list(frame.columns)
    return (is_subject_name(frame.index.name) and any(map(is_item_name, columns))) or (
        is_item_name(frame.index.name) and any(map(is_subject_name, columns))
    )


def from_wide(
    frame: pd.DataFrame,
    kind: str,
    options: ReadingOptions,
    origin: str,
    rows: RowName = row_name,
    header: tuple[str, ...] = (),
) -> Responses:
    """A table of one row per subject, with the ids as its index and columns."""
    frame, codes, said = _in_order(frame, options)
    origin += said
    if not options.is_coded and all(pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes):
        responses = Responses.from_array(frame, duplicates=options.duplicates, codes=codes)
        return replace(responses, origin=origin)
    table = frame.reset_index(names="id")  # text, objects: cells are read like those of a file
    source = frame_table(kind, table, rows, header)
    wide = replace(options, layout="wide", ignore=(), subject_columns=())
    cells = read_wide(source, [table], wide)
    origin += f"; {cells.said}" if cells.said else ""
    return responses_of(cells, options.duplicates, origin=origin, codes=codes)


def _with_id_index(
    frame: pd.DataFrame, kind: str, options: ReadingOptions
) -> tuple[pd.DataFrame, str]:
    """The frame with its ids as the index, and where they were found."""
    if not isinstance(frame.index, pd.RangeIndex):
        return frame, "its index"
    names = [str(column) for column in frame.columns]
    usual = [
        i for i, text in enumerate(names) if text == options.subject or normalized(text) in ID_NAMES
    ]
    if not usual and len(names) and (is_item_name(names[0]) or _has_ids(frame, names, options)):
        usual = [0]
    if not usual:
        if frame.columns.size and kind.startswith("pandas"):
            return frame, "the row numbers"
        numbered = pd.Index([f"s{row}" for row in range(1, len(frame) + 1)], dtype=object)
        return frame.set_axis(numbered), "s1, s2, ..."
    column = frame.columns[usual[0]]
    return frame.set_index(column), f"the column {column}"


def _has_ids(frame: pd.DataFrame, names: list[str], options: ReadingOptions) -> bool:
    """Whether the first column of a table holds ids (see `irtcat.responses.wide.has_ids`)."""
    if len(names) < 2 or getattr(frame.dtypes.iloc[0], "ordered", False):
        return False
    others = frame.iloc[:, 1:]
    if options.key is not None:
        return not has_first_item(options.key, tuple(names))
    coding = options.coding_of(others)
    numbers = others.select_dtypes(["number", "bool"])
    highest = np.nanmax(numbers.to_numpy(float, na_value=np.nan), initial=1) if numbers.size else 1
    first = [cell for cell in frame.iloc[:, 0].tolist() if isinstance(cell, (str, Real, np.bool_))]
    return bool(first) and has_ids(names, first, float(highest), options.subject, coding.number)


def is_item_name(label: Any) -> bool:
    return isinstance(label, str) and normalized(label) in ITEM_NAMES


def is_subject_name(label: Any) -> bool:
    return isinstance(label, str) and normalized(label) in SUBJECT_NAMES

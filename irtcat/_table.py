"""Tables of responses, wide or long, whether read from a file or given as a data frame."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, NoReturn

import numpy as np
import pandas as pd

from irtcat._cells import block_numbers, compact, is_missing_text, stack
from irtcat._checks import InputError, shorten
from irtcat._numbers import number_in, whole_number_in

__all__ = [
    "ITEM_NAMES",
    "SUBJECT_NAMES",
    "CellMatrix",
    "Options",
    "Table",
    "find_long_columns",
    "normalized",
    "read_long",
    "read_wide",
]


def _roles(stems: str, suffixes: str) -> frozenset[str]:
    """Column names: each stem alone and with each suffix."""
    return frozenset(stem + end for stem in stems.split() for end in ("", *suffixes.split()))


SUBJECT_NAMES = _roles(
    "subject model user person student respondent participant examinee", "_id id _name"
)
ITEM_NAMES = _roles("item question problem sample example instance", "_id id _name") | {"doc_id"}
RESPONSE_NAMES = _roles("response score correct value outcome result", "_value") | {"is_correct"}


@dataclass(frozen=True)
class Options:
    """The caller's options: column names, layout and treatment of repeated ids."""

    subject: str = "subject"
    item: str = "item"
    response: str = "response"
    layout: str | None = None
    duplicates: str = "refuse"


class CellMatrix(NamedTuple):
    """The responses of a table, not yet checked.

    Attributes:
        name: the table, for messages.
        matrix: subjects x items, -1 or NaN where missing.
        subjects: ids of the rows.
        items: ids of the columns.
        fail: raises about the response in a row and a column: what was expected, and advice.
    """

    name: str
    matrix: np.ndarray
    subjects: np.ndarray
    items: np.ndarray
    fail: Callable[[int, int, str, str], NoReturn]


@dataclass(frozen=True)
class Table:
    """A table, in a file or in memory: its header, and a function that locates cells for messages.

    Attributes:
        name: the file as the caller wrote it, or the kind of the data frame.
        header: the column names, exactly as they are there.
        cell: returns the position ("line 4") and the text of a cell by row (-1 = header) and
            column.
    """

    name: str
    header: tuple[str, ...]
    cell: Callable[[int, int], tuple[str, str]]

    def fail(self, row: int, column: int, expected: str, advice: str = "") -> NoReturn:
        """Raise about one cell."""
        position, text = self.cell(row, column)
        where = f"{self.name}, {position}, column {column + 1} ({shorten(self.header[column])})"
        got = shorten(text) if text.strip(" ") else "an empty cell"
        raise InputError(f"{where}: expected {expected}. Got {got}. {advice}".rstrip())

    def fail_header(self, sentence: str) -> NoReturn:
        """Raise about the header."""
        raise InputError(f"{self.name}, {self.cell(-1, 0)[0]}: {sentence}")

    def check_ids(self, ids: pd.Series, start: int, column: int) -> np.ndarray:
        """Return ids as text; raise if one is empty or a missing value."""
        codes, unique = pd.factorize(ids.to_numpy(dtype=object), use_na_sentinel=False)
        texts = np.array(["" if pd.isna(value) else str(value) for value in unique], dtype=object)
        missing = np.array([is_missing_text(text) for text in texts])[codes]
        if missing.any():
            self.fail(start + int(np.argmax(missing)), column, "an id, not NA, NaN or null")
        return texts[codes]


def normalized(name: str) -> str:
    """A column name in the form in which it is compared with the usual names."""
    return name.strip().lower().replace(" ", "_").replace("-", "_").replace(".", "_")


def find_long_columns(table: Table, options: Options) -> tuple[int, int, int] | None:
    """Find the subject, item and response columns of a long table; None if it is wide.

    Example:
        >>> table = Table("a.csv", ("score", "model", "item_id"), lambda row, column: ("", ""))
        >>> find_long_columns(table, Options())
        (1, 2, 0)
    """
    if options.layout == "wide":
        return None
    roles = {
        "subject": (options.subject, SUBJECT_NAMES),
        "item": (options.item, ITEM_NAMES),
        "response": (options.response, RESPONSE_NAMES),
    }
    normals = [normalized(name) for name in table.header]
    candidates_by_role = {
        role: _candidates(table.header, normals, *names) for role, names in roles.items()
    }
    explicit = {role: names[0] for role, names in roles.items() if names[0] != role}
    for role, name in explicit.items():
        if name not in table.header:
            columns = shorten(list(table.header))
            must = f"a column of {table.name}, which has {columns}"
            raise InputError(f"The `{role}` argument must be {must}. Got {shorten(name)}.")
    lacking = [role for role, candidates in candidates_by_role.items() if not candidates]
    if lacking:
        is_narrow = len(table.header) <= 12  # in a wide table, "item" and "score" may be items
        looks_long = (
            bool(candidates_by_role["item"] and candidates_by_role["response"]) and is_narrow
        )
        if looks_long or explicit or options.layout == "long":
            advice = f"Name it with {lacking[0]}="
            advice += "." if options.layout == "long" else ", or pass format='wide'."
            table.fail_header(f"a long table needs a column for the {lacking[0]}. {advice}")
        return None
    for role, candidates in candidates_by_role.items():
        if len(candidates) > 1:
            names = " and ".join(repr(table.header[column]) for column in candidates)
            table.fail_header(f"{names} could all be the {role} column. Choose with {role}=.")
    return (
        candidates_by_role["subject"][0],
        candidates_by_role["item"][0],
        candidates_by_role["response"][0],
    )


def _candidates(
    header: tuple[str, ...], normals: list[str], name: str, usual: frozenset[str]
) -> list[int]:
    """Columns of exactly this name, else those with a usual name."""
    exact = [column for column, text in enumerate(header) if text == name]
    return exact or [column for column, text in enumerate(normals) if text in usual]


def check_wide_header(table: Table, options: Options) -> None:
    """Raise if the header of a wide table is missing, transposed, or repeats an id."""
    header = table.header
    if len(header) < 2:
        table.fail_header("expected a subject id and at least one item, with commas or tabs.")
    first, rest = normalized(header[0]), header[1:]
    if first not in SUBJECT_NAMES | {"id", "name", options.subject} and _is_data(header):
        advice = "Add a header line: subject, then the item ids."
        table.fail_header(f"expected a header. Got what looks like responses. {advice}")
    if options.layout != "wide" and first in ITEM_NAMES:
        advice = "Transpose it, pandas.read_csv(FILE, index_col=0).T, or pass format='wide'."
        table.fail_header(
            f"rows look like items, since the first column is {shorten(header[0])}. {advice}"
        )
    for column, name in enumerate(rest, start=1):
        if not name.strip():
            table.fail_header(f"column {column + 1} has an empty item id.")
        if options.layout != "wide" and normalized(name) in SUBJECT_NAMES:
            advice = "Move the subject ids to column 1, or pass format='wide'."
            table.fail_header(f"column {column + 1} is named {shorten(name)}. {advice}")
    repeated = [name for name, count in Counter(rest).items() if count > 1]
    if repeated and options.duplicates == "refuse":
        columns = [str(i + 1) for i, name in enumerate(header) if i and name == repeated[0]]
        places = f"columns {' and '.join(columns)}"
        table.fail_header(f"the item id {shorten(repeated[0])} occurs in {places}. {_ADVICE}")


_ADVICE = 'Pass duplicates="first" to keep the first, or duplicates="suffix" to rename.'


def _is_data(header: tuple[str, ...]) -> bool:
    """Whether a header looks like a row of responses: numbers that cannot be item numbers."""
    numbers = [0.0 if is_missing_text(text) else number_in(text) for text in header[1:]]
    if any(number is None for number in numbers):
        return all(text.strip().lower() in ("true", "false", "0", "1") for text in header[1:])
    if is_missing_text(header[0]):
        return False  # pandas writes an unnamed index and numbered columns in this way
    known = [number for number in numbers if number is not None]
    small = max(known) <= 1
    rising = all(a < b for a, b in pairwise(known))
    return small or not rising or whole_number_in(header[0]) is not None


def read_wide(table: Table, blocks: Iterable[pd.DataFrame], options: Options) -> CellMatrix:
    """Read a table of one row per subject, in blocks of rows; column 1 contains the ids."""
    check_wide_header(table, options)
    ids: list[np.ndarray] = []
    matrices: list[np.ndarray] = []
    start = 0
    for block in blocks:
        offset = start  # bound as a default below: a closure would see later values of start

        def report(row: int, column: int, expected: str, offset: int = offset) -> NoReturn:
            table.fail(offset + row, column + 1, expected)

        ids.append(table.check_ids(block.iloc[:, 0], start, 0))
        matrices.append(compact(block_numbers(block.iloc[:, 1:], report)))
        start += len(block)
    if not matrices or not start:
        raise InputError(f"{table.name}: expected rows below the header. Got none.")
    subjects = np.concatenate(ids)
    if options.duplicates == "refuse":
        _check_rows_unique(table, subjects)

    def fail(row: int, column: int, expected: str, advice: str) -> NoReturn:
        table.fail(row, column + 1, expected, advice)

    items = np.array(table.header[1:], dtype=object)
    return CellMatrix(table.name, stack(matrices), subjects, items, fail)


def _check_rows_unique(table: Table, subjects: np.ndarray) -> None:
    """Raise naming a repeated subject and its first two lines."""
    repeated = pd.Series(subjects).duplicated().to_numpy()
    if repeated.any():
        subject = subjects[repeated][0]
        positions = [table.cell(int(row), 0)[0] for row in np.flatnonzero(subjects == subject)[:2]]
        where = f"{table.name}, {positions[1]}"
        raise InputError(
            f"{where}: the subject id {shorten(subject)} occurs in {positions[0]} too. {_ADVICE}"
        )


def read_long(
    table: Table, block: pd.DataFrame, columns: tuple[int, int, int], options: Options
) -> CellMatrix:
    """Read a table of one row per response; ``block`` contains subject, item and response.

    A pair that occurs twice must have equal responses; with duplicates="first" the first is used.
    """
    if not len(block):
        raise InputError(f"{table.name}: expected rows below the header. Got none.")

    def report(row: int, column: int, expected: str) -> NoReturn:
        table.fail(row, columns[2], expected)

    rows, subjects = pd.factorize(table.check_ids(block.iloc[:, 0], 0, columns[0]))
    cols, items = pd.factorize(table.check_ids(block.iloc[:, 1], 0, columns[1]))
    numbers = block_numbers(block.iloc[:, [2]], report)[:, 0]
    order = np.flatnonzero(~np.isnan(numbers))[::-1]  # written in reverse, so the first remains
    values = compact(numbers)
    missing = -1 if values.dtype.kind == "i" else np.nan
    matrix = np.full((len(subjects), len(items)), missing, dtype=values.dtype)
    matrix[rows[order], cols[order]] = values[order]
    conflicting = matrix[rows[order], cols[order]] != values[order]
    if conflicting.any() and options.duplicates != "first":
        row = int(order[conflicting][-1])
        same = (rows == rows[row]) & (cols == cols[row]) & ~np.isnan(numbers)
        earlier = table.cell(int(np.argmax(same)), columns[2])
        pair = f"subject {shorten(subjects[rows[row]])} and item {shorten(items[cols[row]])}"
        advice = (
            f'{pair} have {shorten(earlier[1])} in {earlier[0]}. duplicates="first" keeps that.'
        )
        table.fail(row, columns[2], "the same response as before", advice)

    def fail(row: int, column: int, expected: str, advice: str) -> NoReturn:
        source = int(np.argmax((rows == row) & (cols == column) & ~np.isnan(numbers)))
        table.fail(source, columns[2], expected, advice)

    return CellMatrix(table.name, matrix, subjects, items, fail)

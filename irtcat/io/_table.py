"""Tables of responses, wide or long, whatever file they came from."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

import numpy as np
import pandas as pd

from irtcat._checks import InputError, ResponseError, shorten
from irtcat._numbers import number_in, whole_number_in
from irtcat.io._cells import block_numbers, compact, is_missing_text, stack
from irtcat.responses import Responses

__all__ = ["Options", "Table", "read_long", "read_wide", "to_responses"]


def _roles(stems: str, suffixes: str) -> frozenset[str]:
    """Column names that are a stem alone or with a suffix."""
    return frozenset(stem + end for stem in stems.split() for end in ("", *suffixes.split()))


SUBJECT_NAMES = _roles(
    "subject model user person student respondent participant examinee", "_id id _name"
)
ITEM_NAMES = _roles("item question problem sample example instance", "_id id _name") | {"doc_id"}
RESPONSE_NAMES = _roles("response score correct value outcome result", "_value") | {"is_correct"}


@dataclass(frozen=True)
class Options:
    """What the caller said about a file: column names, layout and repeated ids."""

    subject: str = "subject"
    item: str = "item"
    response: str = "response"
    layout: str | None = None
    duplicates: str = "refuse"


@dataclass(frozen=True)
class Table:
    """A table on disk: its header, and where a cell stands.

    Attributes:
        name: the file as the caller wrote it.
        header: the column names, exactly as in the file.
        cell: gives the place ("line 4") and the text of a cell by row (-1 = header) and column.
    """

    name: str
    header: tuple[str, ...]
    cell: Callable[[int, int], tuple[str, str]]

    def fail(self, row: int, column: int, expected: str, advice: str = "") -> NoReturn:
        """Raise about one cell."""
        place, text = self.cell(row, column)
        where = f"{self.name}, {place}, column {column + 1} ({shorten(self.header[column])})"
        got = shorten(text) if text.strip(" ") else "an empty cell"
        raise InputError(f"{where}: expected {expected}. Got {got}. {advice}".rstrip())

    def fail_header(self, sentence: str) -> NoReturn:
        """Raise about the header."""
        raise InputError(f"{self.name}, {self.cell(-1, 0)[0]}: {sentence}")

    def check_ids(self, ids: pd.Series, start: int, column: int) -> np.ndarray:
        """Return ids as text; raise where one is empty or stands for a missing value."""
        where, found = pd.factorize(ids.to_numpy(dtype=object), use_na_sentinel=False)
        texts = np.array(["" if pd.isna(value) else str(value) for value in found], dtype=object)
        absent = np.array([is_missing_text(text) for text in texts])[where]
        if absent.any():
            self.fail(start + int(np.argmax(absent)), column, "an id, not NA, NaN or null")
        return texts[where]


def _plain(name: str) -> str:
    """A column name as compared with the usual ones."""
    return name.strip().lower().replace(" ", "_").replace("-", "_").replace(".", "_")


def find_long_columns(table: Table, options: Options) -> tuple[int, int, int] | None:
    """Find the subject, item and response columns of a long table; None where it is wide.

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
    found = {role: _candidates(table.header, *names) for role, names in roles.items()}
    named = {role: names[0] for role, names in roles.items() if names[0] != role}
    for role, name in named.items():
        if name not in table.header:
            columns = shorten(list(table.header))
            must = f"a column of {table.name}, which has {columns}"
            raise InputError(f"The `{role}` argument must be {must}. Got {shorten(name)}.")
    lacking = [role for role, candidates in found.items() if not candidates]
    if lacking:
        few = len(table.header) <= 12  # among many columns, "item" and "score" may be items
        looks_long = bool(found["item"] and found["response"]) and few
        if looks_long or named or options.layout == "long":
            advice = f"Name it with {lacking[0]}=, or pass format='wide'."
            table.fail_header(f"a long table needs a column for the {lacking[0]}. {advice}")
        return None
    for role, candidates in found.items():
        if len(candidates) > 1:
            names = " and ".join(repr(table.header[column]) for column in candidates)
            table.fail_header(f"{names} could all be the {role} column. Choose with {role}=.")
    return found["subject"][0], found["item"][0], found["response"][0]


def _candidates(header: tuple[str, ...], name: str, usual: frozenset[str]) -> list[int]:
    """Columns of exactly that name, else those with a usual one."""
    exact = [column for column, text in enumerate(header) if text == name]
    return exact or [column for column, text in enumerate(header) if _plain(text) in usual]


def check_wide_header(table: Table, options: Options) -> None:
    """Raise where the header of a wide table is absent, transposed, or names no id twice."""
    header = table.header
    if len(header) < 2:
        table.fail_header("expected a subject id and at least one item, with commas or tabs.")
    first, rest = _plain(header[0]), header[1:]
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
        if options.layout != "wide" and _plain(name) in SUBJECT_NAMES:
            advice = "Move the subject ids to column 1, or pass format='wide'."
            table.fail_header(f"column {column + 1} is named {shorten(name)}. {advice}")
    repeated = [name for name, count in Counter(rest).items() if count > 1]
    if repeated and options.duplicates == "refuse":
        columns = [str(i + 1) for i, name in enumerate(header) if i and name == repeated[0]]
        places = f"columns {' and '.join(columns)}"
        table.fail_header(f"the item id {shorten(repeated[0])} stands in {places}. {_ADVICE}")


_ADVICE = 'Pass duplicates="first" to keep the first, or duplicates="suffix" to rename.'


def _is_data(header: tuple[str, ...]) -> bool:
    """Whether a header is rather a row of responses: numbers that cannot be item numbers."""
    numbers = [0.0 if is_missing_text(text) else number_in(text) for text in header[1:]]
    if any(number is None for number in numbers):
        return all(text.strip().lower() in ("true", "false", "0", "1") for text in header[1:])
    if is_missing_text(header[0]):
        return False  # an unnamed index before numbered items, as data frames are written
    known = [number for number in numbers if number is not None]
    small = max(known) <= 1
    rising = all(a < b for a, b in pairwise(known))
    return small or not rising or whole_number_in(header[0]) is not None


def read_wide(table: Table, blocks: Iterable[pd.DataFrame], options: Options) -> Responses:
    """Read a table of one row per subject, in blocks of rows; column 1 holds the ids."""
    check_wide_header(table, options)
    ids: list[np.ndarray] = []
    parts: list[np.ndarray] = []
    start = 0
    for block in blocks:
        offset = start  # bound now: the closure below is called within this turn only

        def report(row: int, column: int, expected: str, offset: int = offset) -> NoReturn:
            table.fail(offset + row, column + 1, expected)

        ids.append(table.check_ids(block.iloc[:, 0], start, 0))
        parts.append(compact(block_numbers(block.iloc[:, 1:], report)))
        start += len(block)
    if not parts or not start:
        raise InputError(f"{table.name}: expected rows below the header. Got none.")
    subjects = np.concatenate(ids)
    if options.duplicates == "refuse":
        _check_rows_unique(table, subjects)

    def fail(row: int, column: int, expected: str, advice: str) -> NoReturn:
        table.fail(row, column + 1, expected, advice)

    items = np.array(table.header[1:], dtype=object)
    return to_responses(table.name, stack(parts), subjects, items, options.duplicates, fail)


def _check_rows_unique(table: Table, subjects: np.ndarray) -> None:
    """Raise naming a repeated subject and its first two lines."""
    repeated = pd.Series(subjects).duplicated().to_numpy()
    if repeated.any():
        subject = subjects[repeated][0]
        places = [table.cell(int(row), 0)[0] for row in np.flatnonzero(subjects == subject)[:2]]
        where = f"{table.name}, {places[1]}"
        raise InputError(
            f"{where}: the subject id {shorten(subject)} stands in {places[0]} too. {_ADVICE}"
        )


def read_long(
    table: Table, block: pd.DataFrame, columns: tuple[int, int, int], options: Options
) -> Responses:
    """Read a table of one row per response; ``block`` holds subject, item and response.

    A pair that comes twice must agree; with duplicates="first" the first one counts.
    """
    if not len(block):
        raise InputError(f"{table.name}: expected rows below the header. Got none.")

    def report(row: int, column: int, expected: str) -> NoReturn:
        table.fail(row, columns[2], expected)

    rows, subjects = pd.factorize(table.check_ids(block.iloc[:, 0], 0, columns[0]))
    cols, items = pd.factorize(table.check_ids(block.iloc[:, 1], 0, columns[1]))
    numbers = block_numbers(block.iloc[:, [2]], report)[:, 0]
    order = np.flatnonzero(~np.isnan(numbers))[::-1]  # written backwards: the first one stays
    values = compact(numbers)
    missing = -1 if values.dtype.kind == "i" else np.nan
    matrix = np.full((len(subjects), len(items)), missing, dtype=values.dtype)
    matrix[rows[order], cols[order]] = values[order]
    unlike = matrix[rows[order], cols[order]] != values[order]
    if unlike.any() and options.duplicates != "first":
        row = int(order[unlike][-1])
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

    return to_responses(table.name, matrix, subjects, items, options.duplicates, fail)


def to_responses(
    name: str,
    matrix: np.ndarray,
    subjects: np.ndarray,
    items: np.ndarray,
    duplicates: str,
    fail: Callable[[int, int, str, str], NoReturn],
) -> Responses:
    """Build the responses; what is wrong with a cell is said about its place in the file."""
    try:
        return Responses.from_array(matrix, subjects, items, duplicates=duplicates)
    except ResponseError as error:
        found = error
    if found.row is not None and found.column is not None:
        fail(found.row, found.column, found.must, found.advice)
    text = f"{name}: expected {found.must}. Got {found.got}. {found.advice}"
    raise InputError(text.rstrip())

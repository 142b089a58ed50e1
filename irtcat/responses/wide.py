"""Tables of one row per subject: where the ids, the responses and the rest are, and reading them.

Exports of forms and learning platforms have columns that are no answers.
"""

import datetime
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from irtcat._common.checks import LEAVE_OUT, InputError, shorten
from irtcat._common.numbers import number_in, whole_number_in
from irtcat.responses._cells import (
    Coding,
    are_numeric,
    cell_number,
    compact,
    folded,
    is_missing,
    stack,
)
from irtcat.responses._key import KEY_ROWS, Key, ScoredChoices, key_of_rows
from irtcat.responses._table import (
    ID_NAMES,
    ITEM_NAMES,
    NAME_THEM,
    NARROW,
    SUBJECT_NAMES,
    CellMatrix,
    ReadingOptions,
    SourceTable,
    check_names,
    metadata_column,
    normalized,
    say_guesses,
)

TIME = re.compile(
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}[ t,]+\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*([ap]\.?m\.?)?"
    r"\s*(z|gmt|utc)?\s*([-+]\d{1,2}(:?\d{2})?)?"
    r"|\d{1,2} [a-z]+\.? \d{4},?\s+\d{1,2}:\d{2}(:\d{2})?\s*([ap]m)?"
)
EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
OUT_OF = re.compile(r"\d+(\.\d+)?\s*/\s*\d+(\.\d+)?")

IDS = (
    *("student_id", "respondent_id", "response_id", "responseid", "record_id", "subject_id"),
    *("participant_id", "user_id", "id_number", "username"),
    *("student", "respondent", "subject", "participant", "id"),
)
"""Names of columns of ids, the most certain first."""

_OTHERS = """
    name first_name last_name surname full_name username email email_address score total_points
    total_score quiz_feedback ip_address ipaddress status progress finished state time_taken
    duration duration_(in_seconds) language userlanguage last_modified_time start_time startdate
    enddate completion_time recordeddate collector_id distributionchannel recipientlastname
    recipientfirstname recipientemail externalreference locationlatitude locationlongitude
    institution department group started_on completed submitdate startlanguage lastpage seed
    custom_data id_number student_id respondent_id response_id responseid record_id
"""
OTHERS = frozenset(_OTHERS.split())
"""Names of columns beside the questions of a form, besides time stamps and e-mail addresses."""

BESIDE = re.compile(r"(grade|points|feedback)\s*[-/].*|.*\[(score|feedback)\]")


HEADINGS = frozenset(("response", "open-ended response"))
"""What SurveyMonkey writes below the questions, in a row without an id."""

MOST_HEADINGS = 2
"""Rows of headings that an export may have below the names of its columns."""


def n_headings(block: pd.DataFrame) -> int:
    """The number of rows of headings at the start of an export, below the names of its columns.

    Qualtrics writes the questions and then JSON with an "ImportId".

    Example:
        >>> n_headings(pd.DataFrame({"id": ["", "7"], "q1": ["Response", "Yes"]}))
        1
    """
    for row in range(min(MOST_HEADINGS, len(block))):
        cells = [cell for cell in block.iloc[row].tolist() if isinstance(cell, str)]
        if any(cell.startswith('{"ImportId"') for cell in cells):
            return row + 1
    cells = [folded(str(cell)) for cell in block.iloc[0].tolist() if not is_missing(cell)]
    return int(bool(cells) and set(cells) <= HEADINGS)


class Form(NamedTuple):
    """The columns of a form.

    Attributes:
        aside: positions of those that are no answers.
        ids: the position of the ids of the subjects; None without any.
    """

    aside: tuple[int, ...]
    ids: int | None


def form_of(header: Sequence[str], block: pd.DataFrame, ignore: Sequence[str]) -> Form | None:
    """The columns of a form; None of a table without time stamps and e-mail addresses.

    Args:
        header: names of the columns.
        block: the rows.
        ignore: names of columns that are left out already.
    """
    texts = _text_columns(header, block, ignore)
    emails = [j for j in texts if _are(block.iloc[:, j], EMAIL)]
    found = {*emails, *(j for j in texts if _are(block.iloc[:, j], TIME))}
    if not found:
        return None
    names = {
        j: folded(name).replace(" ", "_") for j, name in enumerate(header) if name not in ignore
    }
    aside = [
        j
        for j, name in names.items()
        if j in found
        or name in OTHERS
        or BESIDE.fullmatch(folded(header[j]))
        or (j in texts and _are(block.iloc[:, j], OUT_OF))
    ]
    ids = _id_column(names, emails, block)
    return Form(tuple(j for j in aside if j != ids), ids)


def _text_columns(header: Sequence[str], block: pd.DataFrame, ignore: Sequence[str]) -> list[int]:
    """The positions of columns that are not of numbers."""
    columns = enumerate(zip(header, are_numeric(block), strict=True))
    return [j for j, (name, is_number) in columns if not is_number and name not in ignore]


def _id_column(names: dict[int, str], emails: list[int], block: pd.DataFrame) -> int | None:
    """The position of the first usual column of ids that names each subject."""
    named = sorted((IDS.index(name), j) for j, name in names.items() if name in IDS)
    usual = [j for _, j in named] + emails + [j for j, name in names.items() if name == "name"]
    cells = {j: list(_texts(block.iloc[:, j])) for j in usual}
    are_unique = [j for j in usual if len(set(cells[j])) == len(block)]
    are_whole = [j for j in emails if len(cells[j]) == len(block)]  # repeated ones are refused
    return next(iter(are_unique + are_whole), None)


def _texts(column: pd.Series) -> Iterator[str]:
    """The cells of a column as text, without missing ones."""
    for cell in column.tolist():
        if not is_missing(cell):
            yield _stamp(cell)


def _stamp(cell: Any) -> str:
    """A cell as text; a date as a time stamp."""
    if isinstance(cell, datetime.date):
        return f"{cell:%Y-%m-%d %H:%M:%S}"
    return folded(str(cell))


def _are(column: pd.Series, pattern: "re.Pattern[str]") -> bool:
    """Whether a column has texts and all of them have a form."""
    texts = _texts(column)
    return bool(pattern.fullmatch(next(texts, ""))) and all(map(pattern.fullmatch, texts))


REPEATED_ADVICE = 'Pass duplicates="first" to keep the first, or duplicates="suffix" to rename.'


def check_wide_header(table: SourceTable, options: ReadingOptions) -> None:
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
            table.fail_header(f"column {table.place(column)} has an empty item id.")
        if options.layout != "wide" and normalized(name) in SUBJECT_NAMES:
            advice = "Move the subject ids to column 1, or pass format='wide'."
            table.fail_header(f"column {table.place(column)} is named {shorten(name)}. {advice}")
    repeated = [name for name, count in Counter(rest).items() if count > 1]
    if repeated and options.duplicates == "refuse":
        columns = [i for i, name in enumerate(header) if i and name == repeated[0]]
        places = f"columns {' and '.join(str(table.place(i)) for i in columns)}"
        table.fail_header(
            f"the item id {shorten(repeated[0])} occurs in {places}. {REPEATED_ADVICE}"
        )


def _is_data(header: tuple[str, ...]) -> bool:
    """Whether a header looks like a row of responses: numbers that cannot be item numbers."""
    numbers = [0.0 if is_missing(text) else number_in(text) for text in header[1:]]
    if any(number is None for number in numbers):
        return all(text.strip().lower() in ("true", "false", "0", "1") for text in header[1:])
    if is_missing(header[0]):
        return False  # pandas writes an unnamed index and numbered columns in this way
    known = [number for number in numbers if number is not None]
    small = max(known) <= 1
    rising = all(a < b for a, b in pairwise(known))
    return small or not rising or whole_number_in(header[0]) is not None


def has_ids(
    header: Sequence[str],
    first: Iterable[Any],
    highest: float,
    subject: str,
    number: Callable[[Any], float | None] = cell_number,
) -> bool:
    """Whether the first column of a wide table holds the ids of its rows, not responses.

    It does if it has a usual name (subject, student, id, ..., or none, as pandas writes an index),
    or a text that is no response. Numbers are ids if they are whole, at least half of them
    different, and one of them above every response of the other columns; not if the column is named
    and numbered like the next one (Q1, Q2).

    Args:
        header: names of the columns.
        first: the different cells of the first column.
        highest: highest response of the other columns.
        subject: the name that the caller gave for ids.
        number: the number of a cell.

    Example:
        >>> has_ids(("code", "q1"), ["17", "18"], 1, ""), has_ids(("Q1", "Q2"), ["0", "1"], 1, "")
        (True, False)
    """
    name = header[0].strip()
    if not name or name == subject or normalized(name) in ID_NAMES | ITEM_NAMES:
        return True
    cells = list(first)
    counts = Counter(cells)
    numbers = [number(cell) for cell in counts]
    if any(value is None for value in numbers):
        return True
    stems = [re.sub(r"\d+", "#", text) for text in (name, header[1])]
    if "#" in stems[0] and stems[0] == stems[1]:
        return False
    known = [value for value in numbers if value is not None and value == value]
    is_whole = all(value == round(value) for value in known if np.isfinite(value))
    return bool(known) and is_whole and 2 * len(known) >= len(cells) and max(known) > highest


class WideLayout(NamedTuple):
    """Where the ids, the responses and the rest of a wide table are.

    Attributes:
        full: the table with all columns.
        table: the table of ids, if it has any, and responses.
        kept: the positions of these columns in the full table.
        n_ids: 1 if the first of them may hold ids, else 0.
        aside: positions of the columns of the subjects.
        skipped: rows of headings below the header.
        form: the form that the table was exported from, if it is recognised.
    """

    full: SourceTable
    table: SourceTable
    kept: list[int]
    n_ids: int
    aside: list[int]
    skipped: int
    form: Form | None

    @property
    def columns(self) -> "slice | list[int]":
        """The positions of the responses."""
        is_whole = self.kept == list(range(len(self.full.header)))
        return slice(self.n_ids, None) if is_whole else self.kept[self.n_ids :]  # views, no copies


def wide_layout(
    table: SourceTable, blocks: Iterator[pd.DataFrame], options: ReadingOptions
) -> tuple[WideLayout, pd.DataFrame]:
    """The layout of a wide table by its header and first block, and the block without headings.

    A block has millions of cells: what occurs at all is in the first one.
    """
    if options.facets:
        table.fail_header("facets are columns of a long table, of one row per response.")
    check_names(table.name, table.header, options)
    if len(set(table.header) - set(options.aside)) < 2:
        check_wide_header(table.without(options.aside), options)
    opening = next(blocks, None)
    if opening is None or not len(opening):
        check_wide_header(table.without(options.aside), options)
        raise InputError(f"{table.name}: expected rows below the header. Got none.")
    skipped = n_headings(opening)
    opening = opening.iloc[skipped:]
    form = form_of(table.header, opening, options.aside)
    aside = [*map(table.header.index, options.subject_columns), *(form.aside if form else ())]
    left = {*aside, *(j for j, name in enumerate(table.header) if name in options.aside)}
    kept = [j for j in range(len(table.header)) if j not in left]
    if form is not None and form.ids is not None:
        kept = [form.ids, *(j for j in kept if j != form.ids)]
    narrowed = table.only(kept)
    check_wide_header(narrowed, options if form is None else replace(options, layout="wide"))
    is_numbered = form is not None and form.ids is None
    n_ids = 0 if is_numbered or has_first_item(options.key, narrowed.header) else 1
    layout = WideLayout(
        full=table, table=narrowed, kept=kept, n_ids=n_ids, aside=aside, skipped=skipped, form=form
    )
    return layout, opening


def has_first_item(key: Key | None, header: tuple[str, ...]) -> bool:
    """Whether the first column of a table is one of the items of a key."""
    if key is None:
        return False
    if key.order:
        return len(key.order) == len(header)
    return folded(header[0]) in {folded(item) for item in key.credits}


class _WideCells:
    """How the cells of a wide table become numbers: coded, or scored by a key.

    A row of the right answers (see `KEY_ROWS`) is the key if none is given.
    """

    def __init__(self, layout: WideLayout, opening: pd.DataFrame, options: ReadingOptions) -> None:
        table, cells = layout.table, opening.iloc[:, layout.columns]
        self.layout, self.opening = layout, opening
        self.coding, self.scored = Coding(codes=options.codes), None
        key, self.key_row = options.key, None
        if layout.n_ids and key is None and not options.words:
            self.key_row = _key_row(opening.iloc[:, layout.kept[0]].tolist())
            if self.key_row is not None:
                key = key_of_rows(table.header[1:], [cells.iloc[self.key_row].tolist()], table.name)
        if key is not None:
            items = table.header[layout.n_ids :]
            self.scored = ScoredChoices(key, items, table.name, options.missing)
        else:
            self.coding = options.coding_of(cells)

    def numbers(self, block: pd.DataFrame, start: int) -> np.ndarray:
        """The responses of a block, whose first row has this number in the table."""
        cells = block.iloc[:, self.layout.columns]
        if self.scored is None:

            def report(row: int, column: int, expected: str) -> NoReturn:
                table = self.layout.table
                advice = _cell_advice(table, self.opening.iloc[:, self.layout.kept], self.coding)
                table.fail(start + row, column + self.layout.n_ids, expected, advice)

            return compact(self.coding.numbers(cells, report))
        if self.key_row is not None and block is self.opening:
            cells = cells.astype(object)
            cells.iloc[self.key_row] = None
        return compact(self.scored.numbers(cells))

    def first_has_ids(self, first: np.ndarray, matrix: np.ndarray, subject: str) -> bool:
        """Whether the first column has the ids of the rows, not responses."""
        if not self.layout.n_ids or self.scored is not None or self.layout.form is not None:
            return bool(self.layout.n_ids)
        highest = float(np.fmax.reduce(matrix, axis=None, initial=0))
        header = self.layout.table.header
        return has_ids(header, first.tolist(), highest, subject, self.coding.number)

    def guesses(self, first: np.ndarray) -> list[str]:
        """What was guessed of the table."""
        layout = self.layout
        guessed = self.coding.remarks
        if layout.form is not None and layout.form.aside:
            names = shorten([layout.full.header[j] for j in layout.form.aside])
            guessed.append(f"columns of the form were kept with the subjects: {names}")
        if layout.skipped:
            guessed.append(f"{layout.skipped} rows of headings were left out")
        if self.key_row is not None:
            guessed.append(f"the row {shorten(str(first[self.key_row]))} was read as the key")
        if self.scored is not None:
            guessed += filter(None, [self.scored.check()])
        return guessed


def read_wide(
    table: SourceTable, blocks: Iterable[pd.DataFrame], options: ReadingOptions
) -> CellMatrix:
    """Read a table of one row per subject, in blocks of rows.

    Column 1 contains the ids (see `has_ids`); without ids the rows are numbered s1, s2, ... Columns
    of a form that are no answers are set aside (see `form_of`).
    """
    rest = iter(blocks)
    layout, opening = wide_layout(table, rest, options)
    table, skipped = layout.table, layout.skipped
    cells = _WideCells(layout, opening, options)
    firsts: list[np.ndarray] = []
    matrices: list[np.ndarray] = []
    others: list[pd.DataFrame] = []
    start = skipped
    for block in chain([opening], rest):
        if layout.aside:
            others.append(block.iloc[:, layout.aside])
        firsts.append(block.iloc[:, layout.kept[0]].to_numpy(dtype=object))
        matrices.append(cells.numbers(block, start))
        start += len(block)
    first, matrix = np.concatenate(firsts), stack(matrices)
    is_id = cells.first_has_ids(first, matrix, options.subject)
    if is_id:
        subjects = table.check_ids(pd.Series(first), skipped, 0)
        if options.duplicates == "refuse":
            _check_rows_unique(table, subjects, skipped)
    else:
        if layout.n_ids:
            numbers = np.array([cells.coding.number(cell) for cell in first], float)[:, None]
            matrix = stack([compact(numbers), matrix], axis=1)
        subjects = np.array([f"s{row}" for row in range(1, len(first) + 1)], dtype=object)
    items = np.array(table.header[int(is_id) :], dtype=object)
    rows = np.arange(len(first))
    if cells.key_row is not None:
        rows = np.delete(rows, cells.key_row)
        matrix, subjects = matrix[rows], subjects[rows]

    def fail(row: int, column: int, expected: str, advice: str) -> NoReturn:
        table.fail(skipped + int(rows[row]), column + is_id, expected, advice)

    about = None
    if layout.aside:
        frame = pd.concat(others, ignore_index=True).iloc[rows]
        frame = frame.set_axis([layout.full.header[j] for j in layout.aside], axis=1)
        about = frame.apply(metadata_column)
    where = f"the column {table.header[0] or 1}" if is_id else "s1, s2, ... (no column has ids)"
    if not is_id:
        got = f"no column has ids, so the rows are s1, s2, ... and all {len(items)} columns items"
        warnings.warn(f"{table.name}: {got}.", UserWarning, stacklevel=2)
    said = say_guesses(table, cells.guesses(first))
    end = f"; {said}" if said else ""
    scored = cells.scored
    return CellMatrix(
        name=table.name,
        matrix=matrix,
        subjects=subjects,
        items=items,
        fail=fail,
        about=about,
        origin=f"{table.kind} of one row per subject; ids = {where}{end}",
        codes=cells.coding.codes if scored is None else scored.codes,
        said=said,
        choices=None if scored is None else scored.choices(scored.matrix()[rows]),
    )


def _key_row(ids: list[Any]) -> int | None:
    """The row of the right answers; None if there is none, or more than one."""
    rows = [row for row, text in enumerate(ids) if folded(str(text)) in KEY_ROWS]
    return rows[0] if len(rows) == 1 else None


def _cell_advice(table: SourceTable, cells: pd.DataFrame, coding: Coding) -> str:
    """What to do about a cell that is no response."""
    ids, others = (coding.unknown(part) for part in (cells.iloc[:, :1], cells.iloc[:, 1:]))
    is_item = set(ids) <= set(others)  # a first column of the same words is no column of ids
    if len(table.header) <= NARROW and cells.iloc[:, 0].duplicated().any() and not is_item:
        return f"If a row is one response, name its columns with {NAME_THEM}."
    is_word = [
        any(isinstance(cell, str) and coding.number(cell) is None for cell in column.head(50))
        for _, column in cells.items()
        if not pd.api.types.is_numeric_dtype(column.dtype)
    ]
    if 2 * sum(is_word) < cells.shape[1]:
        return LEAVE_OUT
    return coding.advice(cells.iloc[:, 1:])


def _check_rows_unique(table: SourceTable, subjects: np.ndarray, start: int) -> None:
    """Raise naming a repeated subject and its first two lines."""
    repeated = pd.Series(subjects).duplicated().to_numpy()
    if repeated.any():
        subject = subjects[repeated][0]
        rows = start + np.flatnonzero(subjects == subject)[:2]
        positions = [table.cell(int(row), 0)[0] for row in rows]
        where = f"{table.name}, {positions[1]}"
        advice = REPEATED_ADVICE
        if len(table.header) <= NARROW:
            advice = f"If a row is one response, name its columns with {NAME_THEM}. Else: {advice}"
        raise InputError(
            f"{where}: the subject id {shorten(subject)} occurs in {positions[0]} too. {advice}"
        )

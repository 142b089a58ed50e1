"""Where the ids, the responses and the rest of a table of one row per subject are."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd

from irtcat._common.checks import InputError, shorten
from irtcat._common.numbers import number_in, whole_number_in
from irtcat.responses._cells import cell_number, is_missing_text
from irtcat.responses._forms import Form, form_of, n_headings
from irtcat.responses._key import Key
from irtcat.responses._table import (
    ID_NAMES,
    ITEM_NAMES,
    SUBJECT_NAMES,
    ReadingOptions,
    SourceTable,
    checked_names,
    normalized,
)
from irtcat.responses._words import folded

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
    numbers = [0.0 if is_missing_text(text) else number_in(text) for text in header[1:]]
    if any(number is None for number in numbers):
        return all(text.strip().lower() in ("true", "false", "0", "1") for text in header[1:])
    if is_missing_text(header[0]):
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
    is_whole = all(value == round(value) for value in known if abs(value) < math.inf)
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
    _, about = checked_names(table.name, table.header, options)
    if len(set(table.header) - set(options.aside)) < 2:
        check_wide_header(table.without(options.aside), options)
    opening = next(blocks, None)
    if opening is None or not len(opening):
        check_wide_header(table.without(options.aside), options)
        raise InputError(f"{table.name}: expected rows below the header. Got none.")
    skipped = n_headings(opening)
    opening = opening.iloc[skipped:]
    form = form_of(table.header, opening, options.aside)
    aside = [*map(table.header.index, about), *(form.aside if form else ())]
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

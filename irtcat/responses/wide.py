"""Tables of one row per subject."""

import warnings
from collections.abc import Iterable
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from irtcat._common.checks import LEAVE_OUT, InputError, shorten
from irtcat.responses._cells import compact, same_kind, stack
from irtcat.responses._key import KEY_ROWS, ScoredChoices, key_of_rows
from irtcat.responses._layout import REPEATED_ADVICE, WideLayout, has_ids, wide_layout
from irtcat.responses._table import (
    NAME_THEM,
    NARROW,
    CellMatrix,
    ReadingOptions,
    SourceTable,
    coded_numbers,
    joined,
    metadata_column,
    say_guesses,
)
from irtcat.responses._words import Coding, coding_of, folded, unknown_words, words_advice


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
            self.coding = coding_of(cells, options.words, options.codes, options.missing)

    def numbers(self, block: pd.DataFrame, start: int) -> np.ndarray:
        """The responses of a block, whose first row has this number in the table."""
        cells = block.iloc[:, self.layout.columns]
        if self.scored is None:

            def report(row: int, column: int, expected: str) -> NoReturn:
                table = self.layout.table
                advice = _cell_advice(table, self.opening.iloc[:, self.layout.kept], self.coding)
                table.fail(start + row, column + self.layout.n_ids, expected, advice)

            return compact(coded_numbers(cells, report, self.coding))
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
            matrix = np.concatenate(same_kind([compact(numbers), matrix]), axis=1)
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
    scored = cells.scored
    return CellMatrix(
        name=table.name,
        matrix=matrix,
        subjects=subjects,
        items=items,
        fail=fail,
        about=about,
        origin=joined(f"{table.kind} of one row per subject; ids = {where}", said),
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
    ids, others = (unknown_words(part, coding) for part in (cells.iloc[:, :1], cells.iloc[:, 1:]))
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
    return words_advice(cells.iloc[:, 1:], coding)


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

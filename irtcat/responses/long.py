"""Tables of one row per response."""

from typing import NoReturn

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, shorten
from irtcat._common.numbers import number_in
from irtcat.responses._cells import Coding, compact
from irtcat.responses._key import ScoredChoices
from irtcat.responses._table import (
    BASE_ITEM,
    JUDGE_NAMES,
    ROLES,
    CellMatrix,
    ReadingOptions,
    SourceTable,
    context_columns,
    metadata_column,
    normalized,
    say_guesses,
)

SPARSE_CELLS, SPARSE = 2**24, 16
"""Scores by trial number are refused if they take more cells than this (64 MiB) of which less than
one in 16 has a score: then the numbers are not those of a few runs."""


def read_long(
    table: SourceTable, block: pd.DataFrame, columns: tuple[int, ...], options: ReadingOptions
) -> CellMatrix:
    """Read a table of one row per response.

    ``block`` contains ``columns`` (subject, item, response and perhaps trial), then
    `further_columns`. A combination of an item and its facets is an item.

    Two rows of a pair, or of a trial of it, that differ in a column of `context_columns` are two
    responses, even if they are equal.

    A pair, or a trial of it, that occurs twice must have equal responses; with duplicates="first"
    the first is used. Trials are numbered within each subject, in the order of numbers, or of
    first appearance of text.
    """
    if not len(block):
        raise InputError(f"{table.name}: expected rows below the header. Got none.")

    cells = block.iloc[:, [2]]
    coding, scored = Coding(codes=options.codes), None
    if options.key is None:
        coding = options.coding_of(cells)

    def report(row: int, column: int, expected: str) -> NoReturn:
        is_word = any(isinstance(x, str) and coding.number(x) is None for x in cells.iloc[:50, 0])
        table.fail(row, columns[2], expected, coding.advice(cells) if is_word else "")

    rows, subjects = pd.factorize(table.check_ids(block.iloc[:, 0], 0, columns[0]))
    cols, items, facets = _items_of(table, block, columns, options)
    if options.key is None:
        numbers, chosen = coding.numbers(cells, report)[:, 0], np.zeros(0)
    else:
        base = items if facets is None else facets[BASE_ITEM].to_numpy(dtype=object)
        scored = ScoredChoices(options.key, base.tolist(), table.name, options.missing)
        numbers, chosen = scored.column(cells.iloc[:, 0].to_numpy(dtype=object), cols)
    order = np.flatnonzero(~np.isnan(numbers))[::-1]  # written in reverse, so the first remains
    values = compact(numbers)
    missing = -1 if values.dtype.kind == "i" else np.nan
    shape: tuple[int, ...] = (len(subjects), len(items))
    at: tuple[np.ndarray, ...] = (rows, cols)
    labels = None if len(columns) < 4 else table.check_ids(block.iloc[:, 3], 0, columns[3])
    answered, pair = ~np.isnan(numbers), rows * len(items) + cols
    _check_contexts(table, columns, options, block, pair, labels, answered)
    if labels is not None:
        trials = _numbered(rows, labels)
        key = pair[order] * (trials.max() + 1) + trials[order]
        pairs = np.unique(key) // (trials.max() + 1)
        if (pairs[1:] == pairs[:-1]).any():
            shape, at = (*shape, int(trials.max()) + 1), (*at, trials)
            _check_scores(table, columns, numbers, shape)
    matrix = np.full(shape, missing, dtype=values.dtype)
    matrix[tuple(index[order] for index in at)] = values[order]
    conflicting = matrix[tuple(index[order] for index in at)] != values[order]
    if conflicting.any() and options.duplicates != "first":
        row = int(order[conflicting][-1])
        earlier = table.cell(_first_like(row, answered, at), columns[2])
        twice = f"subject {shorten(subjects[rows[row]])} and item {shorten(items[cols[row]])}"
        advice = _twice_advice(earlier, twice, None if labels is None else labels[row])
        table.fail(row, columns[2], "the same response as before", advice)

    def fail(row: int, column: int, expected: str, advice: str) -> NoReturn:
        source = int(np.argmax((rows == row) & (cols == column) & ~np.isnan(numbers)))
        table.fail(source, columns[2], expected, advice)

    guessed = coding.remarks
    choices = None
    if scored is not None:
        guessed += filter(None, [scored.check()])
        if len(at) == 2:  # which trial had which choice is not kept
            codes = np.full(shape, -1, np.int32)
            codes[rows[order], cols[order]] = chosen[order]
            choices = scored.choices(codes)
    said = say_guesses(table, guessed)
    end = f"; {said}" if said else ""
    return CellMatrix(
        name=table.name,
        origin=f"{table.kind} of one row per response; {_roles(table, columns)}{end}",
        codes=coding.codes if scored is None else scored.codes,
        said=said,
        choices=choices,
        matrix=matrix[..., 0] if len(at) > 2 else matrix,
        subjects=subjects,
        items=items,
        fail=fail,
        about=_about(table, block, columns, rows, subjects, options),
        scores=matrix if len(at) > 2 else None,
        facets=facets,
    )


def _first_like(row: int, answered: np.ndarray, at: tuple[np.ndarray, ...]) -> int:
    """The first row with an answer of the same pair, or of the same trial of it."""
    return int(np.argmax(np.logical_and.reduce([answered, *(i == i[row] for i in at)])))


def _roles(table: SourceTable, columns: tuple[int, ...]) -> str:
    """What the columns are, as text."""
    roles = zip(ROLES, columns, strict=False)
    return ", ".join(f"{role} = {table.header[column]}" for role, column in roles)


def _twice_advice(earlier: tuple[str, str], pair: str, trial: str | None) -> str:
    """What to do about a response that differs from an earlier one of its pair, or trial of it."""
    twice = pair if trial is None else f"{pair} in trial {trial}"
    advice = f'{twice} have {shorten(earlier[1])} in {earlier[0]}. duplicates="first" keeps that.'
    if trial is None:
        advice += " If they are repeated trials, name the column of their numbers with trial=."
    return advice


def _items_of(
    table: SourceTable, block: pd.DataFrame, columns: tuple[int, ...], options: ReadingOptions
) -> tuple[np.ndarray, np.ndarray, pd.DataFrame | None]:
    """The number of the item of each row, the items, and their facets if there are any."""
    item = table.check_ids(block.iloc[:, 1], 0, columns[1])
    if not options.facets:
        return *pd.factorize(item), None
    parts = {BASE_ITEM: item}
    for at, name in enumerate(options.facets, start=len(columns)):
        parts[name] = table.check_ids(block.iloc[:, at], 0, table.header.index(name))
    frame = pd.DataFrame(parts, dtype=object)
    combined = item
    for name in options.facets:
        combined = combined + " / " + parts[name]
    cols, items = pd.factorize(combined)
    first = np.unique(cols, return_index=True)[1]
    return cols, items, frame.iloc[first].set_axis(pd.Index(items, dtype=object), axis=0)


def _check_contexts(
    table: SourceTable,
    columns: tuple[int, ...],
    options: ReadingOptions,
    block: pd.DataFrame,
    pair: np.ndarray,
    labels: np.ndarray | None,
    answered: np.ndarray,
) -> None:
    """Raise for two answers of a pair, or of a trial of it, that differ in a context.

    They would otherwise be one response wherever they are equal.

    Args:
        table: the table.
        columns: see `read_long`.
        options: of the caller.
        block: the rows.
        pair: a number for the subject and the item of each row.
        labels: of the trials, if there are any.
        answered: which rows have a response.
    """
    contexts = context_columns(table, columns, options)
    if options.duplicates == "first" or not contexts:
        return
    runs = np.zeros(len(pair), int) if labels is None else pd.factorize(labels)[0]
    key = (pair * (runs.max() + 1) + runs)[answered]
    block = block.set_axis(range(len(block)), axis=0)[answered]
    order = np.argsort(key, kind="stable")
    is_again = key[order][1:] == key[order][:-1]
    for at, column in enumerate(contexts, start=block.shape[1] - len(contexts)):
        codes = pd.factorize(block.iloc[:, at].to_numpy(dtype=object), use_na_sentinel=False)[0]
        differ = is_again & (codes[order][1:] != codes[order][:-1])
        if differ.any():
            earlier, row = (order[start:][int(np.argmax(differ))] for start in (0, 1))
            name = shorten(table.header[column])
            where = [table.cell(int(block.index[k]), column) for k in (earlier, row)]
            which = " and ".join(
                f"{role} {shorten(str(block.iloc[row, k]))}"
                for k, role in enumerate(("subject", "item"))
            )
            got = f"{shorten(where[0][1])} ({where[0][0]}) and {shorten(where[1][1])}"
            is_judge = normalized(table.header[column]) in JUDGE_NAMES
            says = "who judged" if is_judge else "what more was asked"
            raise InputError(
                f"{table.name}, {where[1][0]}: expected one response of {which}. Got one for each "
                f"of {name} = {got}. If {name} says {says}, name it with facets=. If it numbers "
                "repeated trials, name it with trial=; else leave it out with ignore=."
            )


def _numbered(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The number of each label, from 0, among those of its subject.

    Example:
        >>> _numbered(np.array([0, 0, 0, 1]), np.array(["10", "9", "9", "9"])).tolist()
        [1, 0, 0, 0]
    """
    codes, unique = pd.factorize(labels)
    numbers = [number for text in unique if (number := number_in(text)) is not None]
    if len(numbers) == len(unique):
        codes = np.argsort(np.argsort(numbers, kind="stable"))[codes]
    subject, rank = np.unique(rows * len(unique) + codes, return_inverse=True)
    first = np.searchsorted(subject // len(unique), rows)
    return np.asarray(rank - first)


def _check_scores(
    table: SourceTable, columns: tuple[int, ...], numbers: np.ndarray, shape: tuple[int, ...]
) -> None:
    """Raise where a score is not from 0 to 1, or where nearly all trials are missing."""
    wrong = (numbers < 0) | (numbers > 1)
    if wrong.any():
        name = shorten(table.header[columns[3]])
        advice = f"The column {name} numbers repeated trials, of which the mean is taken."
        table.fail(int(np.argmax(wrong)), columns[2], "a score from 0 to 1", advice)
    cells = int(np.prod(shape))
    if cells > max(SPARSE_CELLS, SPARSE * len(numbers)):
        table.fail_header(
            f"the column {shorten(table.header[columns[3]])} has up to {shape[2]} numbers a "
            f"subject, but the rows are {len(numbers)} of {cells} trials. Choose a column that "
            "numbers the repeats of an item with trial=, or leave it out with ignore=."
        )


def _about(
    table: SourceTable,
    block: pd.DataFrame,
    columns: tuple[int, ...],
    rows: np.ndarray,
    subjects: np.ndarray,
    options: ReadingOptions,
) -> pd.DataFrame | None:
    """The columns of the subjects, one row for each, if any; raise if a subject has two values."""
    names = list(options.subject_columns)
    if not names:
        return None
    start = len(columns) + len(options.facets)
    further = block.iloc[:, start : start + len(names)]
    frame = further.set_axis(names, axis=1).apply(metadata_column)
    first = ~pd.Series(rows).duplicated().to_numpy()
    about = frame[first].reset_index(drop=True)
    for name in frame:
        given, expected = frame[name].to_numpy(), about[name].to_numpy()[rows]
        differ = (given != expected) & ~(pd.isna(given) & pd.isna(expected))
        if differ.any():
            row = int(np.argmax(differ))
            must = f"one value for the subject {shorten(subjects[rows[row]])}"
            table.fail(row, table.header.index(str(name)), must)
    return about

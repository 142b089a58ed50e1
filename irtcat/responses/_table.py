"""Tables of responses, wide or long, whether read from a file or given as a data frame."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from irtcat._common.checks import LEAVE_OUT, InputError, argument_error, shorten
from irtcat._common.numbers import number_in, whole_number_in
from irtcat.responses._cells import (
    Report,
    block_numbers,
    cell_number,
    compact,
    is_missing_text,
    same_kind,
    stack,
)
from irtcat.responses._forms import form_of, n_headings
from irtcat.responses._key import KEY_ROWS, Choices, Key, ScoredChoices, key_of_rows
from irtcat.responses._words import Coding, coding_of, folded, unknown_words, words_advice


def _roles(stems: str, suffixes: str) -> frozenset[str]:
    """Column names: each stem alone and with each suffix."""
    return frozenset(stem + end for stem in stems.split() for end in ("", *suffixes.split()))


SUBJECT_NAMES = _roles(
    "subject model user person student respondent participant examinee candidate learner pupil",
    "_id id _name",
)
ITEM_NAMES = _roles("item question problem prompt sample example instance", "_id id _name") | {
    "doc_id"
}
ID_NAMES = SUBJECT_NAMES | {"id", "name"}
RESPONSE_NAMES = _roles("response score correct value outcome result", "_value") | {
    "is_correct",
    "resp",
}
SCORED_NAMES = frozenset(("correct", "is_correct", "score"))
"""Names of columns of responses that cannot be answers themselves."""

TRIAL_NAMES = _roles(
    "trial epoch repeat repetition rerun run replicate attempt", "_id _number _index _no"
)
JUDGE_NAMES = _roles("judge rater grader annotator assessor", "_id _name _model")
CONTEXT_NAMES = JUDGE_NAMES | _roles(
    "condition wave occasion task dataset benchmark subset template variant form", "_id _name"
)
"""Columns that say in what else two rows of a pair differ."""

OTHER_NAMES = {
    "subject": frozenset({"id", "name"}),
    "item": _roles("task", "_id _name"),
    "response": frozenset(
        ["label", "answer", "rating", "reward", "passed", "accuracy", "acc", "grade", "points"]
    ),
}
"""Names that are a role only where no column has one of the names above, and two other roles do:
alone they may as well be items of a wide table, or something else of a long one."""

NARROW = 12
"""Columns up to which a table may have one row per response: a wide one has more items, and
"item" and "score" may be two of them."""

BASE_ITEM = "base_item"
"""Column of the metadata of items that are combinations with facets: the item alone."""

NAME_THEM = "subject=, item= and response="
"""How messages name the options for the columns of a table of one row per response."""

SPARSE_CELLS, SPARSE = 2**24, 16
"""Scores by trial number are refused if they take more cells than this (64 MiB) of which less than
one in 16 has a score: then the numbers are not those of a few runs."""


@dataclass(frozen=True)
class Options:
    """The caller's options: column names, layout and treatment of repeated ids.

    Attributes:
        subject: name of the subject column of a long table.
        item: name of its item column.
        response: name of its response column.
        trial: name of the column that numbers the trials of a pair, if there is one.
        layout: "wide", "long", or None to detect it.
        duplicates: treatment of repeated ids.
        ignore: names of columns to leave out.
        subject_columns: names of columns with what is known of the subjects.
        facets: names of columns with what else a response depends on, such as its judge.
        words: numbers of labels, if they are declared.
        codes: all codes that a response can have, if they are declared.
        missing: texts of cells without a response, besides the usual ones.
        encoding: of a file of text.
        key: the right answers, if cells are choices.
        sheet: of a workbook.
    """

    subject: str = "subject"
    item: str = "item"
    response: str = "response"
    trial: str = "trial"
    layout: str | None = None
    duplicates: str = "refuse"
    ignore: tuple[str, ...] = ()
    subject_columns: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    words: Mapping[str, float] = field(default_factory=dict)
    codes: tuple[int, ...] | None = None
    missing: tuple[str, ...] = ()
    encoding: str | None = None
    key: Key | None = None
    sheet: str | None = None

    @property
    def is_coded(self) -> bool:
        """Whether cells are not the responses themselves."""
        return bool(self.words or self.missing or self.key)

    @property
    def aside(self) -> tuple[str, ...]:
        """Names of the columns that hold no responses."""
        return (*self.ignore, *self.subject_columns)


class CellMatrix(NamedTuple):
    """The responses of a table, not yet checked.

    Attributes:
        name: the table, for messages.
        matrix: subjects x items, -1 or NaN where missing.
        subjects: ids of the rows.
        items: ids of the columns.
        fail: raises about the response in a row and a column: what was expected, and advice.
        about: columns of the subjects, one row for each row; None without any.
        origin: how the table was read.
        scores: subjects x items x trials, instead of the matrix, where pairs have several trials.
        facets: the item alone and its facets, one row for each column; None without facets.
        codes: all codes that a response can have; None for those that occur.
        said: what was guessed of the cells.
        choices: the choices that a key scored; None without a key.
    """

    name: str
    matrix: np.ndarray
    subjects: np.ndarray
    items: np.ndarray
    fail: Callable[[int, int, str, str], NoReturn]
    about: pd.DataFrame | None = None
    origin: str = ""
    scores: np.ndarray | None = None
    facets: pd.DataFrame | None = None
    codes: tuple[int, ...] | None = None
    said: str = ""
    choices: Choices | None = None


@dataclass(frozen=True)
class Table:
    """A table, in a file or in memory: its header, and a function that locates cells for messages.

    Attributes:
        name: the file as the caller wrote it, or the kind of the data frame.
        header: the column names, exactly as they are there.
        cell: returns the position ("line 4") and the text of a cell by row (-1 = header) and
            column.
        places: the positions of the columns in the file, where some are left out.
        kind: what ``Responses.origin`` calls the table.
    """

    name: str
    header: tuple[str, ...]
    cell: Callable[[int, int], tuple[str, str]]
    places: tuple[int, ...] = ()
    kind: str = "table"

    def place(self, column: int) -> int:
        """The number of a column in the file, from 1."""
        return 1 + (self.places[column] if self.places else column)

    def without(self, names: tuple[str, ...]) -> "Table":
        """The table without the columns of these names."""
        return self.only([j for j, name in enumerate(self.header) if name not in names])

    def only(self, kept: Sequence[int]) -> "Table":
        """The table with the columns at these positions."""
        return Table(
            self.name,
            tuple(self.header[j] for j in kept),
            lambda row, column: self.cell(row, kept[column]),
            tuple(self.place(j) - 1 for j in kept),
            self.kind,
        )

    def fail(self, row: int, column: int, expected: str, advice: str = "") -> NoReturn:
        """Raise about one cell."""
        position, text = self.cell(row, column)
        heading = shorten(self.header[column])
        where = f"{self.name}, {position}, column {self.place(column)} ({heading})"
        got = shorten(text) if text.strip(" ") else "an empty cell"
        raise InputError(f"{where}: expected {expected}. Got {got}. {advice}".rstrip())

    def fail_header(self, sentence: str) -> NoReturn:
        """Raise about the header."""
        raise InputError(f"{self.name}, {self.cell(-1, 0)[0]}: {sentence}")

    def check_ids(self, ids: pd.Series, start: int, column: int) -> np.ndarray:
        """Return ids as text; raise if one is empty or a missing value."""
        cells, nested = ids.to_numpy(dtype=object), -1
        try:
            codes, unique = pd.factorize(cells, use_na_sentinel=False)
        except TypeError:  # a list or an object of JSON
            nested = [pd.api.types.is_scalar(cell) for cell in cells].index(False)
        if nested >= 0:
            self.fail(start + nested, column, "an id, a text or a number")
        texts = np.array(["" if pd.isna(value) else str(value) for value in unique], dtype=object)
        missing = np.array([is_missing_text(text) for text in texts])[codes]
        if missing.any():
            self.fail(start + int(np.argmax(missing)), column, "an id, not NA, NaN or null")
        return texts[codes]


def normalized(name: str) -> str:
    """A column name in the form in which it is compared with the usual names."""
    return name.strip().lower().replace(" ", "_").replace("-", "_").replace(".", "_")


def find_long_columns(table: Table, options: Options) -> tuple[int, ...] | None:
    """Find the subject, item, response and (if any) trial columns of a long table; None if wide.

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
        "trial": (options.trial, TRIAL_NAMES),
    }
    normals = ["" if name in options.aside else normalized(name) for name in table.header]
    candidates_by_role = {
        role: _candidates(table.header, normals, *names) for role, names in roles.items()
    }
    explicit = {role: names[0] for role, names in roles.items() if names[0] != role}
    _check_named(table, explicit)
    used = {candidates_by_role[role][0] for role in list(roles)[:3] if candidates_by_role[role]}
    trials = [
        column
        for column in candidates_by_role.pop("trial")
        if column not in used and table.header[column] not in options.facets
    ]
    _check_response(table, options, candidates_by_role["response"], normals)
    lacking = [role for role, candidates in candidates_by_role.items() if not candidates]
    is_narrow = len(table.header) <= NARROW
    if len(lacking) == 1 and (is_narrow or options.layout == "long"):
        taken = {*used, *trials}
        others = [
            column
            for column, text in enumerate(normals)
            if text in OTHER_NAMES[lacking[0]] and column not in taken
        ]
        candidates_by_role[lacking[0]] = others
        lacking = [] if others else lacking
    if lacking:
        may_be_items = OTHER_NAMES["item"] | ({"id"} if candidates_by_role["subject"] else set())
        looks_long = is_narrow and bool(
            candidates_by_role["response"]
            and (candidates_by_role["item"] or may_be_items.intersection(normals))
        )
        if looks_long or explicit or options.layout == "long":
            advice = f"Name them with {NAME_THEM}"
            advice += "." if options.layout == "long" else ", or pass format='wide'."
            got = f"Got the columns {shorten(list(table.header))}"
            table.fail_header(f"a long table needs a column for the {lacking[0]}. {got}. {advice}")
        return None
    _check_single(table, {**candidates_by_role, "trial": trials})
    return (
        candidates_by_role["subject"][0],
        candidates_by_role["item"][0],
        candidates_by_role["response"][0],
        *trials,
    )


def find_judge(
    name: str,
    header: Sequence[str],
    *,
    format: str | None = None,
    ignore: Any = (),
    subject_columns: Any = (),
    **roles: Any,
) -> str | None:
    """The column of a long table that by its name says who judged; None without one.

    Args:
        name: the table, for messages.
        header: its columns.
        format: "wide" or "long", if known.
        ignore: names of columns that are left out.
        subject_columns: names of columns of the subjects.
        roles: names of the columns of subjects, items, responses and trials; others are ignored.

    Example:
        >>> find_judge("a.csv", ("model", "question", "rater", "score"))
        'rater'
        >>> find_judge("a.csv", ("model", "q1", "rater"))
    """
    named = {
        role: roles[role] for role in ("subject", "item", "response", "trial") if role in roles
    }
    aside: dict[str, Any] = {
        "ignore": tuple(ignore or ()),
        "subject_columns": tuple(subject_columns or ()),
    }
    options = Options(layout=format if format == "wide" else None, **named, **aside)
    table = Table(name, tuple(header), lambda row, column: ("line 1", header[column]))
    columns = find_long_columns(table, options)
    if columns is None:
        return None
    used = {*options.aside, *(header[column] for column in columns)}
    usual = (name for name in header if normalized(name) in JUDGE_NAMES and name not in used)
    return next(usual, None)


def _check_named(table: Table, explicit: dict[str, str]) -> None:
    """Raise for a column that the user named and the table lacks."""
    for role, name in explicit.items():
        if name not in table.header:
            columns = shorten(list(table.header))
            must = f"a column of {table.name}, which has {columns}"
            raise InputError(f"The `{role}` argument must be {must}. Got {shorten(name)}.")


def _check_response(
    table: Table, options: Options, candidates: list[int], normals: list[str]
) -> None:
    """Raise if a column named response has a further one that says what was right.

    Then the former may be the answer itself, and a number of it the choice.
    """
    scored = [j for j, text in enumerate(normals) if text in SCORED_NAMES]
    is_usual = candidates and normals[candidates[0]] == "response" == options.response
    if is_usual and scored and options.key is None and len(table.header) <= NARROW:
        _check_single(table, {"response": [candidates[0], scored[0]]})


def _check_single(table: Table, candidates_by_role: dict[str, list[int]]) -> None:
    """Raise for a role that several columns may have."""
    for role, candidates in candidates_by_role.items():
        if len(candidates) > 1:
            names = " and ".join(repr(table.header[column]) for column in candidates)
            advice = f"Choose with {role}=, or leave one out with ignore=."
            got = f"Got the columns {shorten(list(table.header))}"
            table.fail_header(f"{names} could all be the {role} column. {got}. {advice}")


def _candidates(
    header: tuple[str, ...], normals: list[str], name: str, usual: frozenset[str]
) -> list[int]:
    """Columns of exactly this name, else those with a usual name."""
    exact = [column for column, text in enumerate(header) if text == name and normals[column]]
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
            table.fail_header(f"column {table.place(column)} has an empty item id.")
        if options.layout != "wide" and normalized(name) in SUBJECT_NAMES:
            advice = "Move the subject ids to column 1, or pass format='wide'."
            table.fail_header(f"column {table.place(column)} is named {shorten(name)}. {advice}")
    repeated = [name for name, count in Counter(rest).items() if count > 1]
    if repeated and options.duplicates == "refuse":
        columns = [i for i, name in enumerate(header) if i and name == repeated[0]]
        places = f"columns {' and '.join(str(table.place(i)) for i in columns)}"
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


def names_of(argument: str, names: Any) -> tuple[str, ...]:
    """Names of columns, as text: one, or several.

    Example:
        >>> names_of("ignore", "Total"), names_of("ignore", ["Class", 7]), names_of("ignore", None)
        (('Total',), ('Class', '7'), ())
    """
    if names is None:
        return ()
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Iterable):
        raise argument_error(argument, "names of columns", names)
    return tuple(str(name) for name in names)


def checked_names(
    name: str, header: Iterable[str], options: Options
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns to leave out and those of the subjects.

    Raises:
        InputError: for a name that is no column, or in both.
    """
    known = set(header)
    for argument in ("ignore", "subject_columns"):
        for column in getattr(options, argument):
            if column not in known:
                must = f"names of columns of {name}, which has {shorten(list(header))}"
                raise argument_error(argument, must, column)
    if both := [column for column in options.ignore if column in options.subject_columns]:
        raise argument_error("ignore", "names of other columns than subject_columns", both[0])
    return options.ignore, options.subject_columns


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


def read_wide(table: Table, blocks: Iterable[pd.DataFrame], options: Options) -> CellMatrix:
    """Read a table of one row per subject, in blocks of rows.

    Column 1 contains the ids (see `has_ids`); without ids the rows are numbered s1, s2, ... Columns
    of a form that are no answers are set aside (see `form_of`). A row of the right answers (see
    `KEY_ROWS`) is the key.
    """
    if options.facets:
        table.fail_header("facets are columns of a long table, of one row per response.")
    full, (_, about) = table, checked_names(table.name, table.header, options)
    if len(set(table.header) - set(options.aside)) < 2:
        check_wide_header(full.without(options.aside), options)
    rest = iter(blocks)
    opening = next(rest, None)
    if opening is None or not len(opening):
        check_wide_header(full.without(options.aside), options)
        raise InputError(f"{table.name}: expected rows below the header. Got none.")
    # A block has millions of cells: what occurs at all is in the first one.
    skipped = n_headings(opening)
    opening = opening.iloc[skipped:]
    form = form_of(full.header, opening, options.aside)
    aside = [*map(full.header.index, about), *(form.aside if form else ())]
    kept = [j for j, name in enumerate(full.header) if name not in options.aside and j not in aside]
    if form is not None and form.ids is not None:
        kept = [form.ids, *(j for j in kept if j != form.ids)]
    table = full.only(kept)
    check_wide_header(table, options if form is None else replace(options, layout="wide"))
    is_numbered = form is not None and form.ids is None
    n_ids = 0 if is_numbered or has_first_item(options.key, table.header) else 1
    is_whole = kept == list(range(opening.shape[1]))
    columns: Any = slice(n_ids, None) if is_whole else kept[n_ids:]  # a slice takes no copy
    cells = opening.iloc[:, columns]
    key, key_row = options.key, None
    if n_ids and key is None and not options.words:
        key_row = _key_row(opening.iloc[:, kept[0]].tolist())
        if key_row is not None:
            key = key_of_rows(table.header[1:], [cells.iloc[key_row].tolist()], table.name)
    coding, scored = Coding(codes=options.codes), None
    if key is not None:
        scored = ScoredChoices(key, table.header[n_ids:], table.name, options.missing)
    else:
        coding = coding_of(cells, options.words, options.codes, options.missing)
    firsts: list[np.ndarray] = []
    matrices: list[np.ndarray] = []
    others: list[pd.DataFrame] = []
    start = skipped
    for block in chain([opening], rest):
        offset = start  # bound as a default below: a closure would see later values of start

        def report(row: int, column: int, expected: str, offset: int = offset) -> NoReturn:
            advice = _cell_advice(table, opening.iloc[:, kept], coding)
            table.fail(offset + row, column + n_ids, expected, advice)

        if aside:
            others.append(block.iloc[:, aside])
        firsts.append(block.iloc[:, kept[0]].to_numpy(dtype=object))
        cells = block.iloc[:, columns]
        if scored is None:
            matrices.append(compact(coded_numbers(cells, report, coding)))
        else:
            if key_row is not None and block is opening:
                cells = cells.astype(object)
                cells.iloc[key_row] = None
            matrices.append(compact(scored.numbers(cells)))
        start += len(block)
    first, matrix = np.concatenate(firsts), stack(matrices)
    highest = float(np.fmax.reduce(matrix, axis=None, initial=0))
    is_id = bool(n_ids) and (
        scored is not None
        or form is not None
        or has_ids(table.header, first.tolist(), highest, options.subject, coding.number)
    )
    if is_id:
        subjects = table.check_ids(pd.Series(first), skipped, 0)
        if options.duplicates == "refuse":
            _check_rows_unique(table, subjects, skipped)
    else:
        if n_ids:
            numbers = np.array([coding.number(cell) for cell in first], float)[:, None]
            matrix = np.concatenate(same_kind([compact(numbers), matrix]), axis=1)
        subjects = np.array([f"s{row}" for row in range(1, len(first) + 1)], dtype=object)
    items = np.array(table.header[int(is_id) :], dtype=object)
    rows = np.arange(len(first))
    if key_row is not None:
        rows = np.delete(rows, key_row)
        matrix, subjects = matrix[rows], subjects[rows]

    def fail(row: int, column: int, expected: str, advice: str) -> NoReturn:
        table.fail(skipped + int(rows[row]), column + is_id, expected, advice)

    known = None
    if aside:
        frame = pd.concat(others, ignore_index=True).iloc[rows]
        frame = frame.set_axis([full.header[j] for j in aside], axis=1)
        known = frame.apply(metadata_column)
    where = f"the column {table.header[0] or 1}" if is_id else "s1, s2, ... (no column has ids)"
    if not is_id:
        got = f"no column has ids, so the rows are s1, s2, ... and all {len(items)} columns items"
        warnings.warn(f"{table.name}: {got}.", UserWarning, stacklevel=2)
    guessed = [f"cells were read as {coding.said}"] if coding.said else []
    if form is not None:
        names = shorten([full.header[j] for j in form.aside])
        guessed.append(f"columns of the form were kept with the subjects: {names}")
    if skipped:
        guessed.append(f"{skipped} rows of headings were left out")
    if key_row is not None:
        guessed.append(f"the row {shorten(str(first[key_row]))} was read as the key")
    if scored is not None:
        guessed += filter(None, [scored.check()])
    said = say_guesses(table, guessed)
    return CellMatrix(
        name=table.name,
        matrix=matrix,
        subjects=subjects,
        items=items,
        fail=fail,
        about=known,
        origin=_joined(f"{table.kind} of one row per subject; ids = {where}", said),
        codes=coding.codes if scored is None else scored.codes,
        said=said,
        choices=None if scored is None else scored.choices(scored.matrix()[rows]),
    )


def _joined(*texts: str) -> str:
    """Texts that are not empty, with semicolons between them."""
    return "; ".join(filter(None, texts))


def has_first_item(key: Key | None, header: tuple[str, ...]) -> bool:
    """Whether the first column of a table is one of the items of a key."""
    if key is None:
        return False
    if key.order:
        return len(key.order) == len(header)
    return folded(header[0]) in {folded(item) for item in key.credits}


def _key_row(ids: list[Any]) -> int | None:
    """The row of the right answers; None if there is none, or more than one."""
    rows = [row for row, text in enumerate(ids) if folded(str(text)) in KEY_ROWS]
    return rows[0] if len(rows) == 1 else None


def coded_numbers(cells: pd.DataFrame, report: Report, coding: Coding) -> np.ndarray:
    """Cells as numbers, NaN where missing."""
    return block_numbers(cells, report, coding.number, coding.expected, coding.is_plain)


def say_guesses(table: Table, guessed: list[str]) -> str:
    """Warn of what was guessed of a table, and return it for ``Responses.origin``."""
    text = "; ".join(guessed)
    if text:
        options = "codes=, missing=, key=, subject= or ignore="
        advice = f"If that is wrong, say it with {options}."
        warnings.warn(f"{table.name}: {text}. {advice}", UserWarning, stacklevel=3)
    return text


def _cell_advice(table: Table, cells: pd.DataFrame, coding: Coding) -> str:
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


def further_columns(table: Table, columns: tuple[int, ...], options: Options) -> tuple[int, ...]:
    """The positions of the facets, columns of the subjects and contexts of a long table.

    Raises:
        InputError: for a name that is no column besides ``columns``, or is given twice.
    """
    checked_names(table.name, table.header, options)
    used = [table.header[column] for column in columns]
    for name in options.facets:
        usable = name in table.header and name not in (*used, *options.aside, BASE_ITEM)
        if not usable or options.facets.count(name) > 1:
            must = f"different columns of {table.name} besides {', '.join(used)}"
            raise argument_error("facets", must, name)
    names = (*options.facets, *options.subject_columns)
    contexts = context_columns(table, columns, options)
    return (*(table.header.index(name) for name in names), *contexts)


def context_columns(table: Table, columns: tuple[int, ...], options: Options) -> tuple[int, ...]:
    """The positions of further columns of a long table by which rows of a pair may differ."""
    used = {*columns, *map(table.header.index, (*options.facets, *options.aside))}
    return tuple(
        column
        for column, name in enumerate(table.header)
        if normalized(name) in CONTEXT_NAMES and column not in used
    )


def metadata_column(column: pd.Series) -> pd.Series:
    """A column of the subjects: numbers if all its cells are, else text; empty cells are missing.

    Example:
        >>> metadata_column(pd.Series(["12", "", "13"])).tolist()
        [12.0, nan, 13.0]
        >>> metadata_column(pd.Series(["7b", "NA"])).tolist()
        ['7b', None]
    """
    cells = [
        None if pd.api.types.is_scalar(cell) and pd.isna(cell) else cell for cell in column.tolist()
    ]
    cells = [None if isinstance(c, str) and is_missing_text(c) else c for c in cells]
    texts = [cell for cell in cells if isinstance(cell, str)]
    numbers = {text: number_in(text) for text in set(texts)}
    if texts and all(number is not None for number in numbers.values()):
        cells = [numbers[cell] if isinstance(cell, str) else cell for cell in cells]
    elif texts:
        cells = [cell if cell is None else str(cell) for cell in cells]
        return pd.Series(cells, index=column.index, dtype=object)
    values = pd.Series(cells, index=column.index).infer_objects()
    if values.dtype.kind == "f" and (values == values.round()).all():
        return values.astype(int)
    return values


def _check_rows_unique(table: Table, subjects: np.ndarray, start: int) -> None:
    """Raise naming a repeated subject and its first two lines."""
    repeated = pd.Series(subjects).duplicated().to_numpy()
    if repeated.any():
        subject = subjects[repeated][0]
        rows = start + np.flatnonzero(subjects == subject)[:2]
        positions = [table.cell(int(row), 0)[0] for row in rows]
        where = f"{table.name}, {positions[1]}"
        advice = _ADVICE
        if len(table.header) <= NARROW:
            advice = f"If a row is one response, name its columns with {NAME_THEM}. Else: {advice}"
        raise InputError(
            f"{where}: the subject id {shorten(subject)} occurs in {positions[0]} too. {advice}"
        )


def read_long(
    table: Table, block: pd.DataFrame, columns: tuple[int, ...], options: Options
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
        coding = coding_of(cells, options.words, options.codes, options.missing)
    is_word = any(isinstance(x, str) and coding.number(x) is None for x in cells.iloc[:50, 0])

    def report(row: int, column: int, expected: str) -> NoReturn:
        table.fail(row, columns[2], expected, words_advice(cells, coding) if is_word else "")

    rows, subjects = pd.factorize(table.check_ids(block.iloc[:, 0], 0, columns[0]))
    cols, items, facets = _items_of(table, block, columns, options)
    if options.key is None:
        numbers, chosen = coded_numbers(cells, report, coding)[:, 0], np.zeros(0)
    else:
        names = items if facets is None else facets[BASE_ITEM].to_numpy(dtype=object)
        scored = ScoredChoices(options.key, names.tolist(), table.name, options.missing)
        numbers, chosen = scored.column(cells.iloc[:, 0].to_numpy(dtype=object), cols)
    order = np.flatnonzero(~np.isnan(numbers))[::-1]  # written in reverse, so the first remains
    values = compact(numbers)
    missing = -1 if values.dtype.kind == "i" else np.nan
    shape: tuple[int, ...] = (len(subjects), len(items))
    at: tuple[np.ndarray, ...] = (rows, cols)
    labels = None if len(columns) < 4 else table.check_ids(block.iloc[:, 3], 0, columns[3])
    if options.duplicates != "first" and context_columns(table, columns, options):
        runs = np.zeros(len(rows), int) if labels is None else pd.factorize(labels)[0]
        answered = ~np.isnan(numbers)
        pair = (rows * len(items) + cols) * (runs.max() + 1) + runs
        numbered = block.set_axis(range(len(block)), axis=0)
        _check_contexts(table, columns, options, numbered[answered], pair[answered])
    if labels is not None:
        trials = _numbered(rows, labels)
        key = (rows[order] * len(items) + cols[order]) * (trials.max() + 1) + trials[order]
        pairs = np.unique(key) // (trials.max() + 1)
        if (pairs[1:] == pairs[:-1]).any():
            shape, at = (*shape, int(trials.max()) + 1), (*at, trials)
            _check_scores(table, columns, numbers, shape)
    matrix = np.full(shape, missing, dtype=values.dtype)
    matrix[tuple(index[order] for index in at)] = values[order]
    conflicting = matrix[tuple(index[order] for index in at)] != values[order]
    if conflicting.any() and options.duplicates != "first":
        row = int(order[conflicting][-1])
        same = np.logical_and.reduce([~np.isnan(numbers), *(index == index[row] for index in at)])
        earlier = table.cell(int(np.argmax(same)), columns[2])
        twice = f"subject {shorten(subjects[rows[row]])} and item {shorten(items[cols[row]])}"
        twice += "" if labels is None else f" in trial {labels[row]}"
        advice = (
            f'{twice} have {shorten(earlier[1])} in {earlier[0]}. duplicates="first" keeps that.'
        )
        if labels is None:
            advice += " If they are repeated trials, name the column of their numbers with trial=."
        table.fail(row, columns[2], "the same response as before", advice)

    def fail(row: int, column: int, expected: str, advice: str) -> NoReturn:
        source = int(np.argmax((rows == row) & (cols == column) & ~np.isnan(numbers)))
        table.fail(source, columns[2], expected, advice)

    about = None
    if options.subject_columns:
        start = len(columns) + len(options.facets)
        further = block.iloc[:, start : start + len(options.subject_columns)]
        about = _constant(table, further, rows, subjects, options)
    roles = ", ".join(
        f"{role} = {table.header[column]}"
        for role, column in zip(("subject", "item", "response", "trial"), columns, strict=False)
    )
    guessed = [f"cells were read as {coding.said}"] if coding.said else []
    choices = None
    if scored is not None:
        guessed += filter(None, [scored.check()])
        if len(at) == 2:  # which trial had which choice is not kept
            codes = np.full(shape, -1, np.int32)
            codes[rows[order], cols[order]] = chosen[order]
            choices = scored.choices(codes)
    said = say_guesses(table, guessed)
    return CellMatrix(
        name=table.name,
        origin=_joined(f"{table.kind} of one row per response", roles, said),
        codes=coding.codes if scored is None else scored.codes,
        said=said,
        choices=choices,
        matrix=matrix[..., 0] if len(at) > 2 else matrix,
        subjects=subjects,
        items=items,
        fail=fail,
        about=about,
        scores=matrix if len(at) > 2 else None,
        facets=facets,
    )


def _items_of(
    table: Table, block: pd.DataFrame, columns: tuple[int, ...], options: Options
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
    table: Table, columns: tuple[int, ...], options: Options, block: pd.DataFrame, key: np.ndarray
) -> None:
    """Raise for two rows of a pair, or of a trial of it, that differ in a context.

    They would otherwise be one response wherever they are equal.

    Args:
        table: the table.
        columns: see `read_long`.
        options: of the caller.
        block: the rows that have a response.
        key: a number for each pair, or trial of it.
    """
    contexts = context_columns(table, columns, options)
    order = np.argsort(key, kind="stable")
    is_again = key[order][1:] == key[order][:-1]
    for at, column in enumerate(contexts, start=block.shape[1] - len(contexts)):
        codes = pd.factorize(block.iloc[:, at].to_numpy(dtype=object), use_na_sentinel=False)[0]
        differ = is_again & (codes[order][1:] != codes[order][:-1])
        if differ.any():
            earlier, row = (order[start:][int(np.argmax(differ))] for start in (0, 1))
            name = shorten(table.header[column])
            where = [table.cell(int(block.index[k]), column) for k in (earlier, row)]
            pair = " and ".join(
                f"{role} {shorten(str(block.iloc[row, k]))}"
                for k, role in enumerate(("subject", "item"))
            )
            got = f"{shorten(where[0][1])} ({where[0][0]}) and {shorten(where[1][1])}"
            says = (
                "who judged"
                if normalized(table.header[column]) in JUDGE_NAMES
                else "what more was asked"
            )
            raise InputError(
                f"{table.name}, {where[1][0]}: expected one response of {pair}. Got one for each "
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
    table: Table, columns: tuple[int, ...], numbers: np.ndarray, shape: tuple[int, ...]
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


def _constant(
    table: Table, block: pd.DataFrame, rows: np.ndarray, subjects: np.ndarray, options: Options
) -> pd.DataFrame:
    """The columns of the subjects, one row for each; raise if a subject has two values."""
    frame = block.set_axis(list(options.subject_columns), axis=1).apply(metadata_column)
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

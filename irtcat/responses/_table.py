"""Tables of responses, wide or long, whether read from a file or given as a data frame."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, shorten
from irtcat._common.numbers import number_in
from irtcat.responses._cells import (
    Coding,
    coding_of,
    declared_codes,
    is_missing,
    is_missing_text,
    missing_texts,
)
from irtcat.responses._key import Choices, Key, key_of


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

ROLES = ("subject", "item", "response", "trial")
"""What the columns of a table of one row per response are; the names of options, too."""

NAME_THEM = "subject=, item= and response="
"""How messages name the options for the columns of a table of one row per response."""


@dataclass(frozen=True)
class ReadingOptions:
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

    @classmethod
    def of(cls, *, codes: Any, missing: Any, key: Any, **others: Any) -> "ReadingOptions":
        """The options that the arguments of a reader give (see `irtcat.as_responses`)."""
        words, all_codes = declared_codes(codes)
        others |= {"words": words, "codes": all_codes, "missing": missing_texts(missing)}
        for name in ("ignore", "subject_columns", "facets"):
            others[name] = names_of(name, others[name])
        return cls(**others, key=key_of(key))

    @property
    def is_coded(self) -> bool:
        """Whether cells are not the responses themselves."""
        return bool(self.words or self.missing or self.key)

    def coding_of(self, cells: pd.DataFrame) -> Coding:
        """How the cells of a table become numbers."""
        return coding_of(cells, self.words, self.codes, self.missing)

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
class SourceTable:
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

    def without(self, names: tuple[str, ...]) -> "SourceTable":
        """The table without the columns of these names."""
        return self.only([j for j, name in enumerate(self.header) if name not in names])

    def only(self, kept: Sequence[int]) -> "SourceTable":
        """The table with the columns at these positions."""
        return replace(
            self,
            header=tuple(self.header[j] for j in kept),
            cell=lambda row, column: self.cell(row, kept[column]),
            places=tuple(self.place(j) - 1 for j in kept),
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


def find_long_columns(table: SourceTable, options: ReadingOptions) -> tuple[int, ...] | None:
    """Find the subject, item, response and (if any) trial columns of a long table; None if wide.

    Example:
        >>> table = SourceTable("a.csv", ("score", "model", "item_id"), lambda *at: ("", ""))
        >>> find_long_columns(table, ReadingOptions())
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
    explicit = _named(table, {role: name for role, (name, _) in roles.items()})
    used = _first_columns(candidates_by_role[role] for role in list(roles)[:3])
    facets = {column for column, name in enumerate(table.header) if name in options.facets}
    trials = _except(candidates_by_role.pop("trial"), used | facets)
    _check_response(table, options, candidates_by_role["response"], normals)
    lacking = [role for role, candidates in candidates_by_role.items() if not candidates]
    if len(lacking) == 1 and (len(table.header) <= NARROW or options.layout == "long"):
        others = [c for c, text in enumerate(normals) if text in OTHER_NAMES[lacking[0]]]
        candidates_by_role[lacking[0]] = _except(others, {*used, *trials})
        lacking = [] if candidates_by_role[lacking[0]] else lacking
    if lacking:
        if explicit or _looks_long(table, options, candidates_by_role, normals):
            _fail_lacking(table, options, lacking[0])
        return None
    _check_single(table, {**candidates_by_role, "trial": trials})
    return (
        candidates_by_role["subject"][0],
        candidates_by_role["item"][0],
        candidates_by_role["response"][0],
        *trials,
    )


def _first_columns(candidates: Iterable[list[int]]) -> set[int]:
    return {columns[0] for columns in candidates if columns}


def _except(columns: list[int], taken: set[int]) -> list[int]:
    return [column for column in columns if column not in taken]


def _fail_lacking(table: SourceTable, options: ReadingOptions, role: str) -> NoReturn:
    advice = f"Name them with {NAME_THEM}"
    advice += "." if options.layout == "long" else ", or pass format='wide'."
    got = f"Got the columns {shorten(list(table.header))}"
    table.fail_header(f"a long table needs a column for the {role}. {got}. {advice}")


def _looks_long(
    table: SourceTable,
    options: ReadingOptions,
    candidates_by_role: dict[str, list[int]],
    normals: list[str],
) -> bool:
    """Whether a table without a column of some role is, or looks like, one row per response."""
    if options.layout == "long":
        return True
    if len(table.header) > NARROW or not candidates_by_role["response"]:
        return False
    may_be_items = OTHER_NAMES["item"] | ({"id"} if candidates_by_role["subject"] else set())
    return bool(candidates_by_role["item"] or may_be_items.intersection(normals))


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
    named = {role: name for role, name in roles.items() if role in ROLES}
    aside: dict[str, Any] = {
        "ignore": tuple(ignore or ()),
        "subject_columns": tuple(subject_columns or ()),
    }
    options = ReadingOptions(layout=format if format == "wide" else None, **named, **aside)
    table = SourceTable(name, tuple(header), lambda row, column: ("line 1", header[column]))
    columns = find_long_columns(table, options)
    if columns is None:
        return None
    used = {*options.aside, *(header[column] for column in columns)}
    usual = (name for name in header if normalized(name) in JUDGE_NAMES and name not in used)
    return next(usual, None)


def _named(table: SourceTable, names: dict[str, str]) -> dict[str, str]:
    """The columns that the user named; raise if the table lacks one."""
    explicit = {role: name for role, name in names.items() if name != role}
    for role, name in explicit.items():
        if name not in table.header:
            must = f"a column of {table.name}, which has {shorten(list(table.header))}"
            raise InputError(f"The `{role}` argument must be {must}. Got {shorten(name)}.")
    return explicit


def _check_response(
    table: SourceTable, options: ReadingOptions, candidates: list[int], normals: list[str]
) -> None:
    """Raise if a column named response has a further one that says what was right.

    Then the former may be the answer itself, and a number of it the choice.
    """
    scored = [j for j, text in enumerate(normals) if text in SCORED_NAMES]
    is_usual = candidates and normals[candidates[0]] == "response" == options.response
    if is_usual and scored and options.key is None and len(table.header) <= NARROW:
        _check_single(table, {"response": [candidates[0], scored[0]]})


def _check_single(table: SourceTable, candidates_by_role: dict[str, list[int]]) -> None:
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


def check_names(name: str, header: Iterable[str], options: ReadingOptions) -> None:
    """Raise for columns to leave out or of the subjects that are no columns, or in both."""
    known = set(header)
    for argument in ("ignore", "subject_columns"):
        for column in getattr(options, argument):
            if column not in known:
                must = f"names of columns of {name}, which has {shorten(list(header))}"
                raise argument_error(argument, must, column)
    if both := [column for column in options.ignore if column in options.subject_columns]:
        raise argument_error("ignore", "names of other columns than subject_columns", both[0])


def say_guesses(table: SourceTable, guessed: list[str]) -> str:
    """Warn of what was guessed of a table, and return it for ``Responses.origin``."""
    text = "; ".join(guessed)
    if text:
        options = "codes=, missing=, key=, subject= or ignore="
        advice = f"If that is wrong, say it with {options}."
        warnings.warn(f"{table.name}: {text}. {advice}", UserWarning, stacklevel=3)
    return text


def further_columns(
    table: SourceTable, columns: tuple[int, ...], options: ReadingOptions
) -> tuple[int, ...]:
    """The positions of the facets, columns of the subjects and contexts of a long table.

    Raises:
        InputError: for a name that is no column besides ``columns``, or is given twice.
    """
    check_names(table.name, table.header, options)
    used = [table.header[column] for column in columns]
    for name in options.facets:
        usable = name in table.header and name not in (*used, *options.aside, BASE_ITEM)
        if not usable or options.facets.count(name) > 1:
            must = f"different columns of {table.name} besides {', '.join(used)}"
            raise argument_error("facets", must, name)
    names = (*options.facets, *options.subject_columns)
    contexts = context_columns(table, columns, options)
    return (*(table.header.index(name) for name in names), *contexts)


def context_columns(
    table: SourceTable, columns: tuple[int, ...], options: ReadingOptions
) -> tuple[int, ...]:
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
    cells = [None if is_missing(cell) else cell for cell in column.tolist()]
    texts = [cell for cell in cells if isinstance(cell, str)]
    numbers = {text: number_in(text) for text in set(texts)}
    if texts and all(number is not None for number in numbers.values()):
        cells = [numbers[cell] if isinstance(cell, str) else cell for cell in cells]
    elif texts:
        cells = [cell if cell is None else str(cell) for cell in cells]
        return pd.Series(cells, index=column.index, dtype=object)
    values = pd.Series(cells, index=column.index).infer_objects()
    # Beyond 2^53 a float is no longer the whole number that it was read from.
    if (
        values.dtype.kind == "f"
        and (values == values.round()).all()
        and (abs(values) < 2**53).all()
    ):
        return values.astype(int)
    return values

"""Columns of exports of forms and learning platforms that are no answers."""

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from irtcat.responses._cells import is_missing_text
from irtcat.responses._words import folded

TIME = re.compile(
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}[ t,]+\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*([ap]\.?m\.?)?"
    r"\s*(z|gmt|utc)?\s*([-+]\d{1,2}(:?\d{2})?)?"
    r"|\d{1,2} [a-z]+\.? \d{4},?\s+\d{1,2}:\d{2}(:\d{2})?\s*([ap]m)?"
)
EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
OUT_OF = re.compile(r"\d+(\.\d+)?\s*/\s*\d+(\.\d+)?")

IDS = (
    "student_id",
    "respondent_id",
    "response_id",
    "responseid",
    "record_id",
    "subject_id",
    "participant_id",
    "user_id",
    "id_number",
    "username",
    "student",
    "respondent",
    "subject",
    "participant",
    "id",
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
    cells = [folded(str(cell)) for cell in block.iloc[0].tolist() if not _is_missing(cell)]
    return int(bool(cells) and set(cells) <= HEADINGS)


def _is_missing(cell: Any) -> bool:
    if isinstance(cell, str):
        return is_missing_text(cell)
    return bool(pd.api.types.is_scalar(cell) and pd.isna(cell))


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
    is_number = {dtype: pd.api.types.is_numeric_dtype(dtype) for dtype in block.dtypes.unique()}
    columns = enumerate(zip(header, block.dtypes, strict=True))
    return [j for j, (name, dtype) in columns if not is_number[dtype] and name not in ignore]


def _id_column(names: Mapping[int, str], emails: list[int], block: pd.DataFrame) -> int | None:
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
        if not _is_missing(cell):
            yield _stamp(cell)


def _stamp(cell: Any) -> str:
    """A cell as text; a date as a time stamp."""
    if isinstance(cell, datetime.date):
        return f"{cell:%Y-%m-%d %H:%M:%S}"
    return folded(str(cell))


def _are(column: pd.Series, pattern: "re.Pattern[str]") -> bool:
    """Whether a column has texts and all of them have a form."""
    n = 0
    for text in _texts(column):
        if not pattern.fullmatch(text):
            return False
        n += 1
    return n > 0

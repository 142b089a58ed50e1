"""What the readers of harness logs share: bounded reading, runs, and the items they are about."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from irtcat._checks import InputError, shorten
from irtcat._numbers import number_in

__all__ = [
    "Answers",
    "Column",
    "CutError",
    "Items",
    "Rows",
    "Run",
    "as_object",
    "as_text",
    "score_number",
    "show_settings",
    "when",
]

Column = tuple[str, str]
"""A filter or scorer, and a metric; either may be empty."""

MOST_TEXT = 4000
"""Texts of items are kept up to this many characters."""


class CutError(InputError):
    """A log of a run that did not end, or of which only the beginning is there."""


@dataclass
class Answers:
    """The values of one metric in one run.

    Attributes:
        items: positions in `Items`, one per value; an item comes as often as it was tried.
        values: the scores, NaN where there is none.
        flaw: why they cannot be used, with file and line; empty where they can.
    """

    items: np.ndarray
    values: np.ndarray
    flaw: str = ""


@dataclass
class Run:
    """One model's answers to one task in one file.

    Attributes:
        name_source: where the model's name comes from: "log"; "made up", where every model
            without a name gets the same; or "folder", where no log says it.
    """

    file: str
    format: str
    task: str
    model: str
    date: str = ""
    session: str = ""
    version: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    columns: dict[Column, Answers] = field(default_factory=dict)
    lower_is_better: set[str] = field(default_factory=set)
    name_source: str = "log"
    unscored: int = 0
    cut: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class About:
    """What is known of an item."""

    task: str
    key: str
    format: str
    hash: str = ""
    sample: str | None = None
    trust: int = -1
    text: str | None = None
    target: str | None = None
    differs: bool = False


class Items:
    """The items of all runs, each once, in order of first appearance."""

    def __init__(self) -> None:
        self.all: list[About] = []
        self._where: dict[tuple[str, str], int] = {}

    def find(self, task: str, key: str) -> About | None:
        """The item of this key, if it has been seen."""
        place = self._where.get((task, key))
        return None if place is None else self.all[place]

    def place(self, about: About) -> int:
        """Position of the item; what is known better now is kept."""
        where = self._where.setdefault((about.task, about.key), len(self.all))
        if where == len(self.all):
            self.all.append(about)
            return where
        known = self.all[where]
        if about.trust > known.trust:
            known.sample, known.trust = about.sample, about.trust
        if known.text is None:
            known.text, known.target = about.text, about.target
        elif about.text is not None and about.text != known.text and not known.hash:
            known.differs = True  # equal hashes are of equal documents, however they are shown
        return where


class Rows:
    """The values of a file as they are read, before it is known that the file is whole."""

    def __init__(self) -> None:
        self._cells: dict[Column, tuple[list[int], list[float]]] = {}
        self._flaws: dict[Column, str] = {}

    def add(self, column: Column, item: int, value: Any, place: str) -> None:
        """Add a value; one that is no score between 0 and 1 is a flaw of its column."""
        items, values = self._cells.setdefault(column, ([], []))
        number = score_number(value)
        if number is None or not (number != number or 0.0 <= number <= 1.0):
            name = column[1] or column[0]
            must = f"expected {name} to be a score from 0 to 1. Got {shorten(value)}."
            self._flaws.setdefault(column, f"{place}: {must}")
            number = np.nan
        items.append(item)
        values.append(number)

    def columns(self) -> dict[Column, Answers]:
        """Everything as arrays."""
        return {
            column: Answers(
                np.array(items, np.int32), np.array(values), self._flaws.get(column, "")
            )
            for column, (items, values) in self._cells.items()
        }


def score_number(value: Any) -> float | None:
    """The number that a score is, NaN for none, None where it is something else.

    Example:
        >>> [score_number(v) for v in (True, "1.0", "False", None, [1, 2])]
        [1.0, 1.0, 0.0, nan, None]
    """
    if value is None:
        return float("nan")
    if isinstance(value, str):
        text = value.strip(" ").lower()
        if text in ("true", "false"):
            return float(text == "true")
        return float("nan") if text == "nan" else number_in(text)
    if not isinstance(value, (bool, int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def as_object(value: Any, place: str, what: str) -> dict[str, Any]:
    """The value if it is a JSON object, else an error."""
    if not isinstance(value, dict):
        raise InputError(f"{place}: expected {what} to be an object. Got {shorten(value)}.")
    return value


def as_text(value: Any, place: str, what: str) -> str:
    """The value as an id or name that is not empty, else an error."""
    named = isinstance(value, (str, int)) and not isinstance(value, bool)
    if not named or not str(value).strip() or "\0" in str(value):
        raise InputError(f"{place}: expected {what} to be a name. Got {shorten(value)}.")
    return str(value)


def clip(value: Any) -> str | None:
    """A text of at most `MOST_TEXT` characters; what is no text becomes JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 2] + " …"


def when(value: Any) -> str:
    """A date as ISO text in UTC, of seconds since 1970 or of ISO text; empty where it is neither.

    Example:
        >>> when(0.5), when("1970-01-01T01:00:00+01:00"), when("soon")
        ('1970-01-01T00:00:00.500000', '1970-01-01T00:00:00', '')
    """
    if isinstance(value, bool):
        return ""
    try:
        if isinstance(value, str) and number_in(value) is None:
            found = datetime.fromisoformat(value)
            found = found.astimezone(UTC) if found.tzinfo else found
        else:
            found = datetime.fromtimestamp(float(value), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
    return found.replace(tzinfo=None).isoformat()


def show_settings(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Settings that are set, each a number or a short text."""
    kept: dict[str, Any] = {}
    for name, value in pairs:
        if value is None or value == {} or value == [] or value == "":
            continue
        plain = isinstance(value, (bool, int, float)) and abs(value) < 2**53
        kept[name] = value if plain else str(clip(value))[:300]
    return kept

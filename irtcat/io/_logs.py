"""Shared by the readers of harness logs: runs, items, and parsing of values."""

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
    "iso_date",
    "score_number",
    "show_settings",
]

Column = tuple[str, str]
"""A filter or scorer, and a metric; either may be empty."""

MOST_TEXT = 4000
"""Texts of items are truncated to this many characters."""


class CutError(InputError):
    """A truncated log, or the log of a run that did not end."""


@dataclass
class Answers:
    """The values of one metric in one run.

    Attributes:
        items: positions in `Items`, one per value; an item occurs once per trial.
        values: the scores, NaN where missing.
        flaw: why they are invalid, with file and line; empty if they are valid.
    """

    items: np.ndarray
    values: np.ndarray
    flaw: str = ""


@dataclass
class Run:
    """One model's answers to one task in one file.

    Attributes:
        name_source: where the model's name comes from: "log"; "made up", if every model
            without a name gets the same; or "folder", if no log contains it.
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
    """Metadata of an item."""

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
    """The items of all runs without repeats, in order of first appearance."""

    def __init__(self) -> None:
        self.all: list[About] = []
        self._positions: dict[tuple[str, str], int] = {}

    def find(self, task: str, key: str) -> About | None:
        """The item with this key, or None."""
        position = self._positions.get((task, key))
        return None if position is None else self.all[position]

    def add(self, about: About) -> int:
        """Add an item, or complete the metadata of the existing one; returns its position."""
        position = self._positions.setdefault((about.task, about.key), len(self.all))
        if position == len(self.all):
            self.all.append(about)
            return position
        known = self.all[position]
        if about.trust > known.trust:
            known.sample, known.trust = about.sample, about.trust
        if known.text is None:
            known.text, known.target = about.text, about.target
        elif about.text is not None and about.text != known.text and not known.hash:
            known.differs = True  # with a hash, the documents are equal although the texts differ
        return position


class Rows:
    """Collects the values of a file while it is read."""

    def __init__(self) -> None:
        self._cells: dict[Column, tuple[list[int], list[float]]] = {}
        self._flaws: dict[Column, str] = {}

    def add(self, column: Column, item: int, value: Any, location: str) -> None:
        """Add a value; one that is not a score from 0 to 1 makes its column invalid."""
        items, values = self._cells.setdefault(column, ([], []))
        number = score_number(value)
        if number is None or not (number != number or 0.0 <= number <= 1.0):
            name = column[1] or column[0]
            must = f"expected {name} to be a score from 0 to 1. Got {shorten(value)}."
            self._flaws.setdefault(column, f"{location}: {must}")
            number = np.nan
        items.append(item)
        values.append(number)

    def columns(self) -> dict[Column, Answers]:
        """The collected values as arrays."""
        return {
            column: Answers(
                np.array(items, np.int32), np.array(values), self._flaws.get(column, "")
            )
            for column, (items, values) in self._cells.items()
        }


def score_number(value: Any) -> float | None:
    """Convert a score to a number; NaN if it is missing, None if it is not a number.

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


def as_object(value: Any, location: str, key: str) -> dict[str, Any]:
    """Return the value if it is a JSON object, else raise."""
    if not isinstance(value, dict):
        raise InputError(f"{location}: expected {key} to be an object. Got {shorten(value)}.")
    return value


def as_text(value: Any, location: str, key: str) -> str:
    """Return an id or name that is not empty as text, else raise."""
    is_name = isinstance(value, (str, int)) and not isinstance(value, bool)
    if not is_name or not str(value).strip() or "\0" in str(value):
        raise InputError(f"{location}: expected {key} to be a name. Got {shorten(value)}.")
    return str(value)


def clip(value: Any) -> str | None:
    """Truncate a text to `MOST_TEXT` characters; other values are converted to JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 2] + " …"


def iso_date(value: Any) -> str:
    """Convert seconds since 1970 or ISO text to ISO text in UTC; empty for anything else.

    Example:
        >>> iso_date(0.5), iso_date("1970-01-01T01:00:00+01:00"), iso_date("soon")
        ('1970-01-01T00:00:00.500000', '1970-01-01T00:00:00', '')
    """
    if isinstance(value, bool):
        return ""
    try:
        if isinstance(value, str) and number_in(value) is None:
            date = datetime.fromisoformat(value)
            date = date.astimezone(UTC) if date.tzinfo else date
        else:
            date = datetime.fromtimestamp(float(value), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
    return date.replace(tzinfo=None).isoformat()


def show_settings(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Settings that are not empty, as numbers or short texts."""
    settings: dict[str, Any] = {}
    for name, value in pairs:
        if value is None or value == {} or value == [] or value == "":
            continue
        plain = isinstance(value, (bool, int, float)) and abs(value) < 2**53
        settings[name] = value if plain else str(clip(value))[:300]
    return settings

"""Fields of a test definition: texts, ids and times."""

import itertools
import re
from typing import Any
from unicodedata import category

from irtcat._common.checks import InputError, is_number, shorten
from irtcat.service.base import records
from irtcat.service.base.records import Invalid, RecordError


class DefinitionError(RecordError):
    """A test definition that cannot be used; the message lists all faults."""

    noun = "The test definition has"


class Record(records.Record):
    """A record of a test definition."""

    error = DefinitionError


def text(value: Any, where: str = "", faults: Any = ()) -> str:
    """Reads a text of several lines; it may be empty."""
    if not isinstance(value, str) or any(
        category(character) in ("Cc", "Cs") and character not in "\r\n\t" for character in value
    ):
        raise Invalid("text without control characters", value)
    return value.replace("\r\n", "\n")


def line(value: Any, where: str = "", faults: Any = ()) -> str:
    """Reads a text of one line, not empty."""
    if not isinstance(value, str) or not value.strip() or "\n" in value or "\t" in value:
        raise Invalid("one line of text, not empty", value)
    return text(value).strip()


def ids(value: Any, where: str = "", faults: Any = ()) -> tuple[str, ...]:
    """Reads ids that differ; whole numbers become text."""
    if not isinstance(value, (list, tuple)):
        raise Invalid("a list of ids", value)
    out = []
    for entry in value:
        is_text = isinstance(entry, str) and entry.strip() and entry.isprintable()
        if not is_text and (not isinstance(entry, int) or isinstance(entry, bool)):
            raise Invalid("a list of ids as text, none empty", entry)
        out.append(str(entry))
    repeated = sorted({entry for entry in out if out.count(entry) > 1})
    if repeated:
        raise Invalid("a list with every id once", repeated)
    return tuple(out)


UNITS = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
}
"""Seconds of each unit of time; the plural of the long names is accepted too."""

SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
DURATION = 'seconds as a number above 0, or a time such as "45 min" or "1 h 30 min"'


def seconds_of(value: Any) -> float:
    """A time in seconds, from a number of seconds or text.

    Args:
        value: seconds, or numbers with units: s, sec, second(s), min, minute(s), h, hour(s), each
            unit once and larger ones first.

    Raises:
        InputError: for other text, or a time that is not above 0 and finite.

    Example:
        >>> seconds_of("1 h 30 min"), seconds_of(90), seconds_of("2.5 minutes")
        (5400.0, 90.0, 150.0)
    """
    try:
        return duration(value)
    except Invalid as wrong:
        raise InputError(f"A time must be {wrong.must}. Got {shorten(wrong.got)}.") from None


def duration(value: Any, where: str = "", faults: Any = ()) -> float:
    """Reads a time; see `seconds_of`."""
    seconds = value
    if isinstance(value, str):
        spans = SPAN.findall(value.lower())
        rest = SPAN.sub("", value.lower())
        sizes = [UNITS.get(unit, UNITS.get(unit.removesuffix("s") or unit)) for _, unit in spans]
        rising = any(
            after is None or before is None or after >= before
            for before, after in itertools.pairwise(sizes)
        )
        if not spans or rest.strip() or None in sizes or rising:
            raise Invalid(DURATION, value)
        seconds = sum(
            float(amount) * size for (amount, _), size in zip(spans, sizes, strict=True) if size
        )
    if not is_number(seconds) or seconds <= 0:
        raise Invalid(DURATION, value)
    return float(seconds)

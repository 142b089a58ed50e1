"""Checks of user input, and their errors."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import category

import numpy as np

from irtcat._common.errors import InputError as InputError
from irtcat._common.errors import argument_error as argument_error
from irtcat._common.errors import brief as brief
from irtcat._common.errors import one_line as one_line
from irtcat._common.errors import shorten as shorten
from irtcat._common.errors import visible as visible
from irtcat._common.types import FloatArray

DUPLICATES = ("refuse", "first", "suffix")
"""What can be done with repeated ids."""


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    options: Sequence[str] = list(choices)
    if value not in options:
        raise argument_error(name, f"one of {', '.join(options)}", value)


def float_array(name: str, must: str, value: Any) -> FloatArray:
    """Convert to an array of floats, or raise.

    Args:
        name: the argument's name.
        must: what it must be, to follow "must be".
        value: the value received.

    Example:
        >>> float_array("weights", "numbers", ["1", 2])
        array([1., 2.])
    """
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError):
        raise argument_error(name, must, value) from None


def finite_vector(name: str, value: Any) -> np.ndarray:
    """Convert a number or a sequence to a vector of finite numbers, or raise.

    Example:
        >>> finite_vector("theta", 1)
        array([1.])
    """
    vector = np.atleast_1d(float_array(name, "a number or a vector of numbers", value))
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise argument_error(name, "a number or a vector of finite numbers", value)
    return vector


def is_whole(value: Any) -> bool:
    """Whether a value is an integer and not a bool.

    Example:
        >>> [is_whole(value) for value in (1, np.int8(-1), 1.0, True, "1")]
        [True, True, False, False, False]
    """
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_count(name: str, value: Any, least: int = 1, most: int | None = None) -> None:
    """Raise unless ``value`` is a whole number in [least, most]."""
    if not is_whole(value) or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"between {least} and {most}"
        raise argument_error(name, f"a whole number {limits}", value)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number and not a bool.

    Example:
        >>> [is_number(value) for value in (1, 0.5, True, float("nan"), "1", 10**400)]
        [True, True, False, False, False, False]
    """
    number = isinstance(value, (int, float, np.integer, np.floating))
    return number and not isinstance(value, bool) and bool(abs(value) <= sys.float_info.max)


def check_interval(name: str, value: Any) -> None:
    """Raise unless ``value`` is a probability strictly between 0 and 1."""
    if not is_number(value) or not 0.0 < value < 1.0:
        raise argument_error(name, "a number strictly between 0 and 1", value)


def check_positive(name: str, value: Any) -> None:
    """Raise unless ``value`` is a finite number above 0."""
    if not is_number(value) or value <= 0:
        raise argument_error(name, "a finite number above 0", value)


def rising_pair(name: str, must: str, value: Any) -> tuple[float, float]:
    """Two finite numbers of which the first is lower."""
    try:
        low, high = map(float, value)
    except (TypeError, ValueError):
        low = high = np.nan
    if not (np.isfinite([low, high]).all() and low < high):
        raise argument_error(name, must, value)
    return low, high


LEAVE_OUT = (
    "If the column is no item, leave it out with ignore=, or keep it as a column of the subjects "
    "with subject_columns=."
)
"""Advice about a column without responses; arguments of the functions that read tables."""


class ResponseError(InputError):
    """An invalid response and its position, so that a file reader can name the line.

    Attributes:
        must: what the matrix must contain.
        got: the value received.
        row: index of the invalid subject, or None if the error is about the whole matrix.
        column: index of the invalid item, or None.
        advice: an optional further sentence.
    """

    def __init__(
        self,
        must: str,
        got: str,
        row: int | None = None,
        column: int | None = None,
        advice: str = "",
        location: str = "",
    ):
        self.must, self.got, self.row, self.column, self.advice = must, got, row, column, advice
        if not location and row is not None and column is not None:
            location = f"row {row + 1}, column {column + 1}"
        where = f" at {location}" if location else ""
        super().__init__(
            f"The `X` argument must be a matrix of {must}. Got {got}{where}. {advice}".rstrip()
        )


def check_id(name: str, value: Any) -> str:
    r"""Return a single id (of a session or its subject) as text, or raise.

    Raises:
        InputError: it is empty, NaN, or has control characters, line separators or lone surrogates,
            which files, terminals and databases may change.

    Example:
        >>> check_id("session_id", 7)
        '7'
        >>> check_id("session_id", "a\nb")
        Traceback (most recent call last):
        irtcat._common.errors.InputError: The `session_id` argument must be text, not empty and ...
    """
    text = _id_text(value)
    if not text.strip() or any(category(c) in ("Cc", "Cs", "Zl", "Zp") for c in text):
        raise argument_error(name, "text, not empty and without control characters", value)
    return text


def check_ids(name: str, ids: Any, n: int, kind: str) -> np.ndarray:
    """Return ``n`` ids as text, or raise naming an id that is empty or NaN.

    Args:
        name: the argument's name.
        ids: the ids, one per subject or item; numbers become text.
        n: the required number.
        kind: "subject" or "item", for the message.

    Returns:
        A one-dimensional object array of str.

    Raises:
        InputError: the count is wrong or an id is empty or NaN.

    Example:
        >>> check_ids("item_ids", [7, "007"], 2, "item").tolist()
        ['7', '007']
    """
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__len__") or np.ndim(ids) > 1:
        raise argument_error(name, f"a list of one id per {kind}", ids)
    if len(ids) != n:
        raise argument_error(name, f"{n} ids, one per {kind}", f"{len(ids)} ids")
    text = np.empty(n, dtype=object)
    values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    if set(map(type, values)) <= {str} and all(map(str.strip, values)):
        together = "".join(values)  # a million texts in a third of the time of the loop
        if "\0" not in together and _is_utf8(together):
            text[:] = values
            return text
    for position, value in enumerate(ids):
        text[position] = _id_text(value)
        if not text[position].strip() or "\0" in text[position] or not _is_utf8(text[position]):
            got = f"{shorten(value)} at position {position + 1}"
            raise InputError(f"The `{name}` argument must be ids, none empty or NaN. Got {got}.")
    return text


def is_unicode(array: np.ndarray) -> bool:
    r"""Whether an array of text is valid Unicode: numpy accepts any number as a character.

    Example:
        >>> is_unicode(np.array(["é", "a"])), is_unicode(np.array(["\ud800"]))
        (True, False)
    """
    if array.size == 0 or array.dtype.itemsize == 0:
        return True
    codes = np.ascontiguousarray(array).reshape(-1).view(f"{array.dtype.str[0]}u4")
    return not ((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))).any()


SURROGATE = re.compile("[\ud800-\udfff]")


def _is_utf8(text: str) -> bool:
    """Whether a text can be encoded as UTF-8: it has no lone surrogate."""
    return text.isascii() or SURROGATE.search(text) is None


def _id_text(value: Any) -> str:
    """Convert an id to text, and a missing one (None, NaN, NA, NaT) to empty text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    text = str(value)
    missing = not isinstance(value, str) and text.lower() in ("none", "nan", "<na>", "nat")
    return "" if missing else text


def resolve_duplicates(
    name: str, ids: np.ndarray, duplicates: str
) -> tuple[np.ndarray, np.ndarray | slice]:
    """Make ids unique: raise, keep the first of each, or rename the later ones to ``id#2``.

    Returns:
        The unique ids, and the positions to keep, as an index.

    Example:
        >>> ids, keep = resolve_duplicates("item_ids", np.array(["a", "b", "a"]), "suffix")
        >>> ids.tolist()
        ['a', 'b', 'a#2']
    """
    check_choice("duplicates", duplicates, DUPLICATES)
    counts = Counter(ids.tolist())
    if len(counts) == len(ids):
        return ids, slice(None)
    if duplicates == "refuse":
        advice = 'Pass duplicates="first" to keep the first, or duplicates="suffix" to rename.'
        check_unique(name, ids, advice)
    if duplicates == "first":
        keep = np.sort(np.unique(ids, return_index=True)[1])
        return ids[keep], keep
    return _with_suffixes(ids, set(counts)), slice(None)


def check_unique(name: str, ids: np.ndarray, advice: str = "") -> np.ndarray:
    """Return the ids, or raise naming those that repeat.

    Example:
        >>> check_unique("item_ids", np.array(["a", "b"])).tolist()
        ['a', 'b']
    """
    repeated = [value for value, count in Counter(ids.tolist()).items() if count > 1]
    if repeated:
        text = f"The `{name}` argument must be unique ids. Got repeats of {shorten(repeated)}."
        raise InputError(f"{text} {advice}".rstrip())
    return ids


def _with_suffixes(ids: np.ndarray, used_ids: set[str]) -> np.ndarray:
    """Rename the second, third, … occurrence of an id to the next free ``id#2``, ``id#3``, …."""
    renamed = np.array(ids, dtype=object)
    occurrences: Counter[str] = Counter()
    for position, value in enumerate(ids.tolist()):
        occurrences[value] += 1
        if occurrences[value] > 1:
            while f"{value}#{occurrences[value]}" in used_ids:
                occurrences[value] += 1
            renamed[position] = f"{value}#{occurrences[value]}"
            used_ids.add(renamed[position])
    return renamed

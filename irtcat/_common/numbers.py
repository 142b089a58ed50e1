"""Numbers in ASCII digits, stricter than ``float`` and ``int``, and truth values in texts.

Without numpy: the command line parses options with it.
"""

import re
from typing import Any

NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
WHOLE = re.compile(r"[-+]?[0-9]{1,18}")  # more digits than any count or seed has


def number_in(text: str) -> float | None:
    """Parse a number, ignoring blanks around it; None if the text is not a number.

    Python also accepts "1_0", "infinity", "\uff11" (a full-width digit) and control characters
    around a number. None of these is meant as a number in a data file or an option.

    Example:
        >>> [number_in(text) for text in (" 1 ", "-.5e1", "1_0", "\uff11", "inf", "0x10", "")]
        [1.0, -5.0, None, None, None, None, None]
    """
    text = text.strip(" ")
    return float(text) if NUMBER.fullmatch(text) else None


TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def truth_in(value: Any) -> bool | None:
    """Parse true or false; None if the value is neither.

    Example:
        >>> [truth_in(value) for value in (True, 0, 1.0, " Yes", "no", "FALSE", 2, "x")]
        [True, False, True, True, False, False, None, None]
    """
    text = str(value).strip().lower()
    return TRUTH.get(text.removesuffix(".0"))


def whole_number_in(text: str) -> int | None:
    """Parse a whole number; None if the text is not one.

    Example:
        >>> [whole_number_in(text) for text in ("12", "-1", "1.0", "1_0", "\u0663")]
        [12, -1, None, None, None]
    """
    text = text.strip(" ")
    return int(text) if WHOLE.fullmatch(text) else None

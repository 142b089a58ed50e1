"""Errors about user input, and their messages: what is required, what was received, what to do.

The command line imports this at start-up, so that it imports no NumPy.
"""

from typing import Any
from unicodedata import category


class InputError(ValueError):
    """Input that cannot be used; the message is one sentence that says what to do."""

    def __init__(self, message: str = ""):
        super().__init__(
            visible(message)
        )  # ids in it could carry escape sequences to a terminal or log


def argument_error(name: str, must: str, got: Any, advice: str = "") -> InputError:
    """Build the error for an invalid argument in the standard wording.

    Args:
        name: the argument's name as the caller typed it.
        must: what it must be, to follow "must be".
        got: the value received (shortened if long).
        advice: an optional further sentence.

    Returns:
        The exception, to be raised by the caller.

    Example:
        >>> print(argument_error("k", "a whole number of at least 1", 0))
        The `k` argument must be a whole number of at least 1. Got 0.
    """
    text = f"The `{name}` argument must be {must}. Got {shorten(got)}."
    return InputError(f"{text} {advice}" if advice else text)


def visible(text: str, keep: str = "") -> str:
    r"""Escape control characters, so that a terminal prints the text instead of obeying it.

    Escaped are ANSI sequences and all other control characters, line breaks, marks of writing
    direction and other invisible characters.

    Args:
        text: the text.
        keep: characters to leave as they are.

    Example:
        >>> print(visible("red \x1b[31m, two\nlines"))
        red \x1b[31m, two\nlines
    """
    if text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if c not in keep and category(c) in INVISIBLE else c for c in text)


INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of invisible characters."""


def one_line(error: BaseException) -> str:
    """The message of another library's error on one line."""
    return " ".join(str(error).split())


def brief(value: Any, most: int = 80) -> str:
    """Format an id for a message: no quotes, control characters escaped, ``most`` characters.

    Example:
        >>> brief("quiz/7"), brief("abc" * 40, most=12)
        ('quiz/7', 'abcabcab ...')
    """
    text = visible(str(value))
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def shorten(value: Any, most: int = 80) -> str:
    """Format a value in at most ``most`` characters; a list by its first five elements.

    Example:
        >>> shorten("abc" * 40, most=12)
        "'abcabc ...'"
        >>> shorten([f"item{i}" for i in range(9)])
        'item0, item1, item2, item3, item4 and 4 more'
    """
    if isinstance(value, str):
        text = repr(value)
        return text if len(text) <= most else f"{text[: most - 5]} ...'"
    # The attribute is of NumPy's arrays; at start-up nothing imports NumPy.
    if isinstance(value, (list, tuple, set)) or hasattr(value, "__array_finalize__"):
        values = [brief(v, most) for v in list(value)[:5]]
        rest = len(value) - len(values)
        text = ", ".join(values) if values else "nothing"
        return f"{text} and {rest} more" if rest > 0 else text
    return brief(value, most)

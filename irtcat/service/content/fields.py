"""Records to and from JSON documents, with checked fields."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any

from irtcat._common.checks import InputError, brief, is_number, shorten


def content_error(where: str, expected: str, got: Any = None, advice: str = "") -> InputError:
    """The error for a field of an item, a key or a file.

    Example:
        >>> print(content_error("item q1", "at least two choices", "1 choice"))
        item q1: expected at least two choices. Got 1 choice.
    """
    text = f"{where}: expected {expected}."
    text += f" Got {got}." if got is not None else ""
    return InputError(f"{text} {advice}." if advice else text)


MOST_FAULTS = 100
"""Faults that a message lists; the others are counted."""


class ContentError(InputError):
    """Items that cannot be used; the message lists all faults.

    Attributes:
        faults: a sentence for each, which names the file and the field.
    """

    def __init__(self, faults: Sequence[str]):
        self.faults = tuple(faults)
        listed = list(self.faults[:MOST_FAULTS])
        if len(self.faults) > 1:
            listed = [f"({number}) {fault}" for number, fault in enumerate(listed, start=1)]
            listed = [f"The items have {len(self.faults)} faults:", *listed]
        if len(self.faults) > MOST_FAULTS:
            listed.append(f"({len(self.faults) - MOST_FAULTS} more)")
        super().__init__(" ".join(listed))


class FaultList:
    """Faults of several files, collected so that all of them can be corrected at once.

    Example:
        >>> faults = FaultList()
        >>> for name in ("q1", "q2"):
        ...     with faults.collected():
        ...         raise content_error(name, "a prompt")
        >>> faults.check()
        Traceback (most recent call last):
        irtcat.service.content.fields.ContentError: The items have 2 faults: (1) q1: expected a
        prompt. (2) q2: expected a prompt.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Add the fault that ends the block, if one does."""
        try:
            yield
        except ContentError as error:
            self.faults.extend(error.faults)
        except InputError as error:
            self.faults.append(str(error))

    def check(self) -> None:
        """Raise if there are faults.

        Raises:
            ContentError: listing all of them.
        """
        if self.faults:
            raise ContentError(self.faults)


def record_fields(cls: type, document: Any, where: str) -> dict[str, Any]:
    """The fields of a record from a JSON document.

    Raises:
        InputError: the document is not an object, a field is unknown or a required one is missing.
    """
    if not isinstance(document, Mapping):
        raise content_error(where, f"an object with the fields of {cls.__name__}", brief(document))
    known = {field.name: field for field in fields(cls)}
    unknown = sorted(str(name) for name in document if name not in known)
    if unknown:
        raise content_error(where, f"the fields {', '.join(known)}", shorten(unknown))
    needed = [
        name
        for name, field in known.items()
        if field.default is MISSING and field.default_factory is MISSING and name not in document
    ]
    if needed:
        raise content_error(where, f"the field {needed[0]}", "none")
    return dict(document)


def checked_text(where: str, name: str, value: Any, most: int) -> str:
    """A text of at most ``most`` characters without control characters other than white space."""
    if not isinstance(value, str):
        raise content_error(where, f"{name} as text", shorten(value))
    if len(value) > most:
        raise content_error(where, f"{name} of at most {most:,} characters", f"{len(value):,}")
    if any(
        (c < " " and c not in "\n\r\t") or c == "\x7f" or "\ud800" <= c < "\ue000" for c in value
    ):
        raise content_error(where, f"{name} without control characters", shorten(value))
    return value


def checked_number(where: str, name: str, value: Any) -> float:
    """A finite number."""
    if not is_number(value):
        raise content_error(where, f"{name} as a finite number", shorten(value))
    return float(value)


def checked_whole(where: str, name: str, value: Any, least: int, most: int) -> int:
    """A whole number in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        must = f"{name} as a whole number from {least:,} to {most:,}"
        raise content_error(where, must, shorten(value))
    return value

"""Records to and from JSON documents, with checked fields."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from irtcat._common.checks import InputError, brief, check_id
from irtcat.service.base import records
from irtcat.service.base.records import Fault, Invalid, Reader, RecordError, faults_of


def content_error(where: str, expected: str, got: Any = None, advice: str = "") -> InputError:
    """The error for a field of an item, a key or a file.

    Example:
        >>> print(content_error("item q1", "at least two choices", "1 choice"))
        item q1: expected at least two choices. Got 1 choice.
    """
    text = f"{where}: expected {expected}."
    text += f" Got {got}." if got is not None else ""
    return InputError(f"{text} {advice}." if advice else text)


class ContentError(RecordError):
    """Items that cannot be used; the message lists all faults.

    Attributes:
        faults: a sentence for each, which names the file and the field.
    """

    noun = "The items have"


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
        except InputError as error:
            self.faults += map(str, faults_of(error))

    def check(self) -> None:
        """Raise if there are faults.

        Raises:
            ContentError: listing all of them.
        """
        if self.faults:
            raise ContentError(self.faults)


class Record(records.Record):
    """A record of an item set that is stored as a JSON document.

    Attributes:
        identity: what messages call it, and the field with its id.
    """

    error = ContentError
    identity: ClassVar[tuple[str, str]]

    @property
    def where(self) -> str:
        """The record in messages."""
        noun, name = self.identity
        return f"{noun} {brief(getattr(self, name))}"

    def __post_init__(self) -> None:
        """Check all fields, and then what must hold between them."""
        super().__post_init__()
        self.check(self.where)

    def check(self, where: str) -> None:
        """Check what must hold between valid fields."""

    def located(self, fault: Fault) -> str:
        """A fault with the record in front."""
        return f"{self.where}: {fault}"


def set_field(record: Any, name: str, value: Any) -> None:
    """Set a field of a frozen record, while it is made."""
    object.__setattr__(record, name, value)


def identifier(value: Any, where: str = "", faults: Any = ()) -> str:
    """Reads an id."""
    try:
        return check_id("id", value)
    except InputError:
        raise Invalid("text, not empty and without control characters", value) from None


def text_of(most: int) -> Reader:
    """Reads a text without control characters other than white space."""

    def read(value: Any, where: str, faults: list[Fault]) -> str:
        if not isinstance(value, str):
            raise Invalid("text", value)
        if len(value) > most:
            raise Invalid(f"of at most {most:,} characters", f"{len(value):,} characters")
        if any(
            (c < " " and c not in "\n\r\t") or c == "\x7f" or "\ud800" <= c < "\ue000"
            for c in value
        ):
            raise Invalid("text without control characters", value)
        return value

    return read


def matching(pattern: str, must: str) -> Reader:
    """Reads a text that fits a regular expression as a whole."""

    def read(value: Any, where: str, faults: list[Fault]) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise Invalid(must, value)
        return value

    return read

"""Records that are read from a document: their fields, checks, defaults, and unknown names.

A record is a frozen dataclass whose fields are declared by `setting`. The same checks run when a
record is built in Python and when it is read from TOML or JSON, where all faults are collected.
"""

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Self

from irtcat._common.checks import InputError, is_number, shorten
from irtcat._files import json_value

MOST_FAULTS = 100
"""Faults that a message lists; the others are counted."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with one field of a record.

    Attributes:
        field: the field, such as ``sections[3].items``; sections and cuts are counted from 1.
        message: what it must be, what it is, and what to do.
    """

    field: str
    message: str

    @staticmethod
    def of(field: str, must: str, got: Any, advice: str = "") -> "Fault":
        """The fault in the standard wording.

        Example:
            >>> print(Fault.of("score.sd", "a number above 0", 0))
            The `score.sd` field must be a number above 0. Got 0.
        """
        if isinstance(got, float) and got.is_integer():
            got = int(got)
        message = f"The `{field}` field must be {must}. Got {shorten(got)}."
        return Fault(field, f"{message} {advice}".strip())

    def __str__(self) -> str:
        return self.message

    def within(self, record: str) -> "Fault":
        """The same fault of a record that is itself a field."""
        if not record:
            return self
        new = _joined(record, self.field)
        return Fault(new, self.message.replace(f"`{self.field}`", f"`{new}`", 1))


class RecordError(InputError):
    """Something that cannot be used; the message lists all faults.

    Attributes:
        faults: the faults.
    """

    noun: ClassVar[str] = "The record has"

    def __init__(self, faults: Iterable[Any], title: str = ""):
        self.faults = tuple(faults)
        listed = list(map(str, self.faults[:MOST_FAULTS]))
        if len(self.faults) > 1:
            listed = [f"({number}) {message}" for number, message in enumerate(listed, start=1)]
            listed = [f"{self.noun} {len(self.faults)} faults:", *listed]
        if len(self.faults) > MOST_FAULTS:
            listed.append(f"({len(self.faults) - MOST_FAULTS} more)")
        super().__init__(" ".join([*([f"{title}:"] if title else []), *listed]))


def faults_of(error: InputError) -> tuple[Any, ...]:
    """The faults that an error lists, or the error itself."""
    return error.faults if isinstance(error, RecordError) else (error,)


class Invalid(Exception):  # noqa: N818 (not an error of its own: the record's reader reports it)
    """A value that a field does not accept.

    Attributes:
        must: what the field must be.
        got: the value, or the part of it that is wrong.
        advice: an optional further sentence.
    """

    def __init__(self, must: str, got: Any, advice: str = ""):
        self.must, self.got, self.advice = must, got, advice
        super().__init__(must)


Reader = Callable[[Any, str, list[Fault]], Any]
"""Reads the value of a field: (value, name of the field, faults) -> checked value."""


def setting(read: Reader, default: Any = MISSING, *, key: str = "", repr: bool = True) -> Any:
    """A field of a record that is read from a document.

    Its name in documents is ``key``, where this is not the attribute's; without a default it is
    required.
    """
    return field(default=default, repr=repr, metadata={"read": read, "key": key})


def _joined(record: str, name: str) -> str:
    return f"{record}.{name}" if record and name else record or name


def key_of(entry: Field[Any]) -> str:
    """The name of a field in documents."""
    return entry.metadata["key"] or entry.name


class Record:
    """A record whose fields are declared by `setting`.

    Attributes:
        error: the class of its errors.
        rare: fields that documents leave out where they have their default.
    """

    error: ClassVar[type[RecordError]] = RecordError
    rare: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Check all fields, and convert them to their canonical form."""
        faults: list[Fault] = []
        for entry in _settings(type(self)):
            value = _read(entry, getattr(self, entry.name), "", faults)
            object.__setattr__(self, entry.name, value)
        if not faults:
            faults = list(self.faults())
        if faults:
            raise self.error(map(self.located, faults))

    def faults(self) -> Iterable[Fault]:
        """What is wrong between fields that are each valid."""
        return ()

    def located(self, fault: Fault) -> Any:
        """A fault as the error lists it."""
        return fault

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON document."""
        values = [(entry, getattr(self, entry.name)) for entry in _settings(type(self))]
        return {
            key_of(entry): json_value(value)
            for entry, value in values
            if entry.name not in self.rare or value != entry.default
        }

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """A record from a document such as the output of `to_json`; fields may be left out.

        Raises:
            RecordError: listing all fields that are unknown, missing or invalid.
        """
        faults: list[Fault] = []
        value = read_record(cls, document, "", faults)
        if faults:
            raise cls.error(faults)
        return value


def _settings(cls: type) -> tuple[Field[Any], ...]:
    return tuple(entry for entry in fields(cls) if "read" in entry.metadata)


def _read(entry: Field[Any], value: Any, where: str, faults: list[Fault]) -> Any:
    return reported(entry.metadata["read"], value, _joined(where, key_of(entry)), faults)


def reported(read: Reader, value: Any, name: str, faults: list[Fault]) -> Any:
    """The value that a reader returns; where it refuses the value, a fault of the field."""
    try:
        return read(value, name, faults)
    except Invalid as wrong:
        faults.append(Fault.of(name, wrong.must, wrong.got, wrong.advice))
        return value


def hint(name: Any, known: Iterable[str]) -> str:
    """A sentence with the known name that is nearest to an unknown one, or with all of them.

    Example:
        >>> hint("timelimit", ["title", "time_limit"])
        'Did you mean `time_limit`?'
    """
    names = list(known)
    close = difflib.get_close_matches(str(name).lower(), names, n=1)
    return f"Did you mean `{close[0]}`?" if close else f"Known are {', '.join(names)}."


def unknown_fields(document: Iterable[Any], known: Collection[str], where: str) -> list[Fault]:
    """A fault for each field of a document that is not among the known ones."""
    unknown = {key: _joined(where, str(key)) for key in document if key not in known}
    return [
        Fault(name, f"The `{name}` field is unknown. {hint(key, known)}")
        for key, name in unknown.items()
    ]


def read_record(cls: Any, document: Any, where: str, faults: list[Fault]) -> Any:
    """A record from a mapping; None where it has faults, which are appended."""
    known = {key_of(entry): entry for entry in _settings(cls)}
    if not isinstance(document, Mapping):
        faults.append(Fault.of(where or cls.__name__, f"a table of {', '.join(known)}", document))
        return None
    before = len(faults)
    faults += unknown_fields(document, known, where)
    for key, entry in known.items():
        if key not in document and entry.default is MISSING:
            name = _joined(where, key)
            faults.append(Fault(name, f"The `{name}` field is missing."))
    given = [(entry, document[key]) for key, entry in known.items() if key in document]
    if len(faults) > before:
        for entry, value in given:
            _read(entry, value, where, faults)
        return None
    try:
        return cls(**{entry.name: value for entry, value in given})
    except RecordError as error:
        faults += [
            it.within(where) if isinstance(it, Fault) else Fault(where, it) for it in error.faults
        ]
    except InputError as error:
        faults.append(Fault(where, str(error)))
    return None


def record(cls: Any) -> Reader:
    """Reads a record of a class: a record, or a table of its fields."""

    def read(value: Any, where: str, faults: list[Fault]) -> Any:
        return value if isinstance(value, cls) else read_record(cls, value, where, faults)

    return read


def list_of(member: Reader, contents: str) -> Reader:
    """Reads a list, whose members are named by their number from 1."""

    def read(value: Any, where: str, faults: list[Fault]) -> Any:
        if not isinstance(value, (list, tuple)):
            raise Invalid(f"a list of {contents}", value)
        named = ((f"{where}[{number}]", entry) for number, entry in enumerate(value, start=1))
        return tuple(reported(member, entry, name, faults) for name, entry in named)

    return read


def optional(read: Reader) -> Reader:
    """Reads a value that may be absent (None)."""
    return lambda value, where, faults: None if value is None else read(value, where, faults)


def flag(value: Any, where: str = "", faults: Any = ()) -> bool:
    """Reads true or false."""
    if not isinstance(value, bool):
        raise Invalid("true or false", value)
    return value


def number(
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    whole: bool = False,
    unit: str = "",
) -> Reader:
    """Reads a finite number within limits."""
    limits = {"of at least": least, "above": above, "of at most": most, "below": below}
    given = {word: limit for word, limit in limits.items() if math.isfinite(limit)}
    bounds = " and ".join(f"{word} {limit:g}" for word, limit in given.items())
    words = ("a whole number" if whole else "a finite number", unit and f"of {unit}", bounds)
    must = " ".join(filter(None, words))

    def read(value: Any, where: str, faults: list[Fault]) -> Any:
        if not is_number(value) or (whole and value != int(value)):
            raise Invalid(must, value)
        out = int(value) if whole else float(value)
        if not (least <= out <= most and above < out < below):
            raise Invalid(must, value)
        return out

    return read


def one_of(names: Iterable[str]) -> Reader:
    """Reads one of several names."""
    known = list(names)

    def read(value: Any, where: str, faults: list[Fault]) -> str:
        if not isinstance(value, str) or value not in known:
            raise Invalid(f"one of {', '.join(known)}", value)
        return value

    return read

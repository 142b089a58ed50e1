"""The log of a session: the fields of its events, its clock, and its digests.

A digest is SHA-256, which finds accidents and edits by hand; with a key it is HMAC-SHA-256, which
only who has the key can compute.
"""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from irtcat._checks import argument_error

__all__ = [
    "Clock",
    "Event",
    "Key",
    "as_key",
    "digest_after",
    "document_digest",
    "field_fault",
    "first_digest",
    "is_digest",
    "is_duration",
    "seal_of",
    "seconds_between",
    "system_clock",
]

Event = dict[str, Any]
Key = str | bytes | None

Clock = Callable[[], tuple[datetime, float]]
"""A function that gives the time in UTC, and the seconds of a clock that never goes back."""


def system_clock() -> tuple[datetime, float]:
    """The clocks of this machine."""
    return datetime.now(UTC), time.monotonic()


def seconds_between(earlier: str, later: datetime) -> float:
    """Seconds from a time stamp of the log to a time; 0 where the clock was set back."""
    return max((later - datetime.fromisoformat(earlier)).total_seconds(), 0.0)


def as_key(key: Key) -> bytes | None:
    """The key as bytes.

    Raises:
        InputError: for an empty key, or what is no text and no bytes; the key is not shown.
    """
    if key is None:
        return None
    data = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key
    if not isinstance(data, bytes) or not data:
        got = "an empty key" if data in ("", b"") else type(key).__name__
        raise argument_error("key", "text or bytes, not empty", got)
    return data


def _digest(text: str, key: bytes | None) -> str:
    data = text.encode()
    if key is None:
        return hashlib.sha256(data).hexdigest()
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def is_digest(found: Any, right: str) -> bool:
    """Whether a digest is the right one, in constant time."""
    return isinstance(found, str) and hmac.compare_digest(found.encode(), right.encode())


def first_digest(head: Mapping[str, Any], key: bytes | None = None) -> str:
    """Digest of what is frozen when a session begins: the start of its chain."""
    return _digest(json.dumps(head, sort_keys=True), key)


def digest_after(last: str, text: str, key: bytes | None = None) -> str:
    """Digest of an event and all before it."""
    return _digest(f"{last}\n{text}", key)


def seal_of(last: str, key: bytes | None = None) -> str:
    """Digest that says where a log ends, by that of its last event."""
    return digest_after(last, "end", key)  # no event has this text: an event is a JSON object


def document_digest(document: Mapping[str, Any], key: bytes | None = None) -> str:
    """Digest of a session as JSON, but for its own field.

    Neither the order of fields nor whether a whole number is written 1 or 1.0 counts: other
    programs change both when they pass JSON on.
    """
    rest = {name: value for name, value in document.items() if name != "digest"}
    return _digest("irtcat-session\n" + json.dumps(_plain(rest), sort_keys=True), key)


def _plain(value: Any) -> Any:
    """A JSON value with whole numbers as integers."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_duration(value: Any) -> bool:
    """Whether a value is a time in seconds: a number, not negative, of less than 30,000 years."""
    number = isinstance(value, (int, float, np.integer, np.floating))
    return number and not isinstance(value, bool) and bool(0 <= value < 1e12)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_text, value))


def _time(value: Any) -> bool:
    try:
        return _text(value) and datetime.fromisoformat(value).utcoffset() == timedelta(0)
    except ValueError:
        return False


FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "ask": {"items": _texts},
    "answer": {"item": _text, "code": _whole, "seconds": is_duration},
    "stop": {"reason": _text},
    "infeasible": {"items": _texts, "rules": _texts},
}
"""The fields of every kind of event, and what they may hold."""

OPTIONAL: dict[str, dict[str, Callable[[Any], bool]]] = {"ask": {"cell": _whole}}
"""Fields that only some events of a kind have."""

TIMES: dict[str, Callable[[Any], bool]] = {"at": _time, "elapsed": is_duration}
"""When an event was written, and the seconds since the event before it."""


def field_fault(event: Any, dated: bool) -> str:
    """What is wrong with the fields of an event; empty where nothing is.

    Args:
        event: what was read.
        dated: whether it must have time stamps (sessions of version 1 had none).

    Example:
        >>> field_fault({"kind": "stop", "reason": 1}, dated=False)
        'has no valid reason'
    """
    kind = event.get("kind") if isinstance(event, Mapping) else None
    if not isinstance(kind, str) or kind not in FIELDS:
        return f"is none of {', '.join(FIELDS)}"
    needed = FIELDS[kind] | (TIMES if dated else {})
    known = needed | OPTIONAL.get(kind, {}) | TIMES
    for name, valid in known.items():
        if not valid(event[name]) if name in event else name in needed:
            return f"has no valid {name}"
    unknown = sorted(str(name) for name in event.keys() - known.keys() - {"kind"})
    return f"has an unknown field ({unknown[0]})" if unknown else ""

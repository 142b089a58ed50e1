"""The log of a session: the fields of its events, and its digests.

A digest is SHA-256, which detects accidents and manual edits; with a key it is HMAC-SHA-256, which
cannot be computed without the key.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from irtcat._common.checks import argument_error
from irtcat._common.clock import is_duration
from irtcat._files.formats import FileFormat
from irtcat._files.json import json_text

Event = dict[str, Any]
"""An event of a log: its fields by name."""

Key = str | bytes | None
"""A secret key of digests; None for digests without one."""


def as_key(key: Key) -> bytes | None:
    """The key as bytes.

    Raises:
        InputError: for an empty key, or one that is neither text nor bytes; the key is not shown.
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


def is_digest(value: Any, expected: str) -> bool:
    """Whether a digest is the right one, in constant time."""
    return isinstance(value, str) and hmac.compare_digest(value.encode(), expected.encode())


def first_digest(head: Mapping[str, Any], key: bytes | None = None) -> str:
    """Digest of the head of a session: the start of its chain of digests."""
    return _digest(json.dumps(head, sort_keys=True), key)


def digest_after(last: str, text: str, key: bytes | None = None) -> str:
    """Digest of an event and all before it."""
    return _digest(f"{last}\n{text}", key)


def seal_of(last: str, key: bytes | None = None) -> str:
    """Digest that marks the end of a log, from the digest of its last event."""
    return digest_after(last, "end", key)  # no event has this text: an event is a JSON object


def status_digest(last: str, text: str, key: bytes | None = None) -> str:
    """Digest of the status of a session, with the digest of the event that it follows."""
    return digest_after(last, f"status\n{text}", key)  # no event has this text


def document_digest(document: Mapping[str, Any], key: bytes | None = None) -> str:
    """Digest of a session document without its ``digest`` field.

    It does not depend on the order of fields, nor on whether a whole number is written 1 or 1.0:
    other programs may change both when they pass JSON on.
    """
    rest = {name: value for name, value in document.items() if name != "digest"}
    return _digest("irtcat-session\n" + json_text(_whole(rest), sort_keys=True), key)


def _whole(value: Any) -> Any:
    """A JSON value with whole numbers as integers."""
    if isinstance(value, Mapping):
        return {name: _whole(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole(entry) for entry in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _is_time(value: Any) -> bool:
    try:
        return _is_text(value) and datetime.fromisoformat(value).utcoffset() == timedelta(0)
    except ValueError:
        return False


FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "ask": {"items": _is_texts},
    "answer": {"item": _is_text, "code": _is_integer, "seconds": is_duration},
    "stop": {"reason": _is_text},
    "infeasible": {"items": _is_texts, "rules": _is_texts},
}
"""The fields of every kind of event, and a check of their values."""

OPTIONAL: dict[str, dict[str, Callable[[Any], bool]]] = {"ask": {"cell": _is_integer}}
"""Fields that only some events of a kind have."""

TIMES: dict[str, Callable[[Any], bool]] = {"at": _is_time, "elapsed": is_duration}
"""When an event was written, and the seconds since the event before it."""


SESSION = FileFormat("irtcat-session", "a session", "Give what to_json returned.")


def field_fault(event: Any) -> str:
    """What is wrong with the fields of an event; empty if they are valid.

    Example:
        >>> field_fault({"kind": "stop", "reason": 1})
        'has no valid reason'
    """
    kind = event.get("kind") if isinstance(event, Mapping) else None
    if not isinstance(kind, str) or kind not in FIELDS:
        return f"is none of {', '.join(FIELDS)}"
    needed = FIELDS[kind] | TIMES
    known = needed | OPTIONAL.get(kind, {})
    for name, valid in known.items():
        if not valid(event[name]) if name in event else name in needed:
            return f"has no valid {name}"
    unknown = sorted(str(name) for name in event.keys() - known.keys() - {"kind"})
    return f"has an unknown field ({unknown[0]})" if unknown else ""

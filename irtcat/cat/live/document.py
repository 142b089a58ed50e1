"""Document of a session: its head and its events as JSON, with a digest of both."""

from collections.abc import Mapping, Sequence
from typing import Any

from irtcat._common.checks import InputError, argument_error
from irtcat._common.clock import Clock
from irtcat._files.json import json_value
from irtcat.bank import ItemBank
from irtcat.cat.belief.pool import Pool
from irtcat.cat.engine.config import Config
from irtcat.cat.live.course import Course
from irtcat.cat.live.head import REQUIRED, check_head
from irtcat.cat.live.log import SESSION, Event, Key, as_key, document_digest, is_digest


def document_of(head: Mapping[str, Any], events: Sequence[Event], key: Key) -> dict[str, Any]:
    """The document of a session, with its digest."""
    document = json_value({**head, "events": events})
    return {**document, "digest": document_digest(document, as_key(key))}


def read_document(
    bank: ItemBank, document: Mapping[str, Any], pool: Pool | None, key: Key, clock: Clock
) -> Course:
    """The course of the session that a document holds (see `Session.from_json`)."""
    _check_document(bank, document, key)
    head = {k: v for k, v in document.items() if k not in ("events", "digest")}
    try:
        config = Config.from_json(head["config"])
        check_head(bank, config, head)
        course = Course(bank, config, head, pool, clock)
    except InputError as error:
        raise InputError(f"The document holds no valid session. {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        got = f"{type(error).__name__}: {error}"
        raise argument_error("document", "a session as returned by to_json", got) from None
    course.apply_events(document["events"])
    if not course.events:
        raise argument_error("document", "a session with its first item asked", "no event")
    return course


def _check_document(bank: ItemBank, document: Any, key: Key) -> None:
    """Raise unless a document is an unchanged session on this bank."""
    secret = as_key(key)
    SESSION.check_argument("document", document)
    must = "a session as returned by to_json"
    for name in (*REQUIRED, "events", "digest"):
        if name not in document:
            raise argument_error("document", must, f"one without {name}")
    if not isinstance(document["events"], list):
        raise argument_error("document", "a session with a list of events", document["events"])
    if bank.hash() != document["bank"]:
        raise argument_error("bank", "the bank on which the session was begun", bank)
    try:
        right = document_digest(document, secret)
    except (RecursionError, TypeError, ValueError) as error:
        raise argument_error("document", must, f"no JSON ({error})") from None
    if not is_digest(document["digest"], right):
        raise InputError(
            "The `document` argument must be as to_json wrote it, with the same key. Its digest "
            "does not verify: it was changed, or written with another key."
        )

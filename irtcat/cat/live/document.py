"""Document of a session: its head, which is fixed when it begins, and its events, as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from irtcat._common.checks import InputError, argument_error, check_count, check_id
from irtcat._common.clock import Clock, utc_text
from irtcat._files.json import json_value
from irtcat.bank import ItemBank
from irtcat.cat.belief.priors import frozen_prior, prior_note
from irtcat.cat.belief.state import Counts, Pool
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.exposure_parameters import ExposureParameters, session_counts
from irtcat.cat.live.course import Course
from irtcat.cat.live.log import SESSION, Event, Key, as_key, document_digest, field_fault, is_digest
from irtcat.cat.rules.exposure import blank_counts

SessionT = TypeVar("SessionT", bound=Course)

REQUIRED = (
    *SESSION.head,
    *("id", "subject", "bank", "config", "config_hash", "seed", "prior", "started"),
)
"""Required fields of a head; for some exposure rules it also has ``counts``."""


def new_head(
    bank: ItemBank,
    config: Config,
    counts: Counts | ExposureParameters | None,
    clock: Clock,
    **identity: Any,
) -> dict[str, Any]:
    """The head of a session that begins now.

    Args:
        bank: the items.
        config: the configuration.
        counts: exposure so far, as for `session_counts`.
        clock: returns the time.
        **identity: ``seed``, ``prior``, ``session_id`` and ``subject``, as for `Session.begin`.
    """
    checked = session_counts(bank, config, counts)
    return _head(bank, config, checked, utc_text(clock()[0]), **identity)


def _head(
    bank: ItemBank,
    config: Config,
    counts: Counts | None,
    started: str,
    *,
    seed: int,
    prior: Any,
    session_id: str,
    subject: str,
) -> dict[str, Any]:
    """The head of a session, checked."""
    check_count("seed", seed, 0)
    head: dict[str, Any] = {
        **SESSION.head,
        "id": check_id("session_id", session_id),
        "subject": check_id("subject", subject) if subject else "",
        "bank": bank.hash(),
        "config": config.to_json(),
        "config_hash": config.hash(),
        "seed": int(seed),
        "prior": frozen_prior(bank, prior),
        "started": started,
    }
    if counts is not None:
        arrays = [np.asarray(count, float) for count in counts]
        blank = blank_counts(config.exposure, bank.n_items)
        # The limit of sympson-hetter has no initial value; it has the shape of the other counts.
        shapes = [np.shape(blank.administered if count is None else count) for count in blank]
        if [array.shape for array in arrays] != shapes:
            raise argument_error("counts", "counts for the bank and the exposure rule", shapes)
        if not all(np.isfinite(array).all() and (array >= 0).all() for array in arrays):
            raise argument_error("counts", "finite and not negative", "other numbers")
        head["counts"] = [array.tolist() for array in arrays]
    return head


def prior_flag(bank: ItemBank, head: Mapping[str, Any]) -> list[str]:
    """A warning where the prior is the bank's population, but not as it is."""
    note = prior_note(bank, None)
    is_own = bool(note) and head["prior"] == frozen_prior(bank, None)
    return [f"{note[0].upper()}{note[1:]}."] if is_own else []


def check_head(bank: ItemBank, config: Config, head: Mapping[str, Any]) -> None:
    """Raise unless the head equals the one that `_head` makes of its fields."""
    counts = head.get("counts")
    recomputed = _head(
        bank,
        config,
        None if counts is None else Counts(*counts),
        head["started"],
        seed=head["seed"],
        prior=head["prior"],
        session_id=head["id"],
        subject=head["subject"],
    )
    for name in head.keys() - {"config_hash"}:  # of a text where other programs may write 1 as 1.0
        if name not in recomputed or recomputed[name] != head[name]:
            raise argument_error("document", f"a session with a valid {name}", head[name])
    started = {"kind": "stop", "reason": "", "at": head["started"], "elapsed": 0}
    if field_fault(started):
        raise argument_error("document", "a session with a valid start time", head["started"])


def document_of(head: Mapping[str, Any], events: Sequence[Event], key: Key) -> dict[str, Any]:
    """The document of a session, with its digest."""
    document = json_value({**head, "events": events})
    return {**document, "digest": document_digest(document, as_key(key))}


def read_document(
    kind: type[SessionT],
    bank: ItemBank,
    document: Mapping[str, Any],
    pool: Pool | None,
    key: Key,
    clock: Clock,
) -> SessionT:
    """The session that a document holds (see `Session.from_json`)."""
    _check_document(bank, document, key)
    head = {k: v for k, v in document.items() if k not in ("events", "digest")}
    try:
        config = Config.from_json(head["config"])
        check_head(bank, config, head)
        session = kind(bank, config, head, pool, clock)
    except InputError as error:
        raise InputError(f"The document holds no valid session. {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        got = f"{type(error).__name__}: {error}"
        raise argument_error("document", "a session as returned by to_json", got) from None
    session.apply_events(document["events"])
    if not session.events:
        raise argument_error("document", "a session with its first item asked", "no event")
    return session


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

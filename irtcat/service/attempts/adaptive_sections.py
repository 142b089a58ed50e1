"""Sections and sessions of clients that only delegate the selection of items (1EdTech CAT 1.0).

The client shows the items and scores the responses; here are the bank, the configuration and the
engine. A session is one of the store, so that every score is on disk before it is acknowledged.

Every response returns a *state*, a sealed handle of the session and the number of its events, which
the next request sends back. With an older one, results that are recorded change nothing, so that a
request may be repeated; other results are a conflict.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from irtcat._common.checks import is_number, shorten
from irtcat.bank import ItemBank
from irtcat.cat import Config, ExposureParameters, Session, prepare
from irtcat.models import item_categories
from irtcat.service.attempts.library import published_test, stored_bank
from irtcat.service.base.errors import ConflictError, NotFoundError, ServiceError, found
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, held, new_id

MUST = 'Base64 of {"test": ID}, {"test": ID, "section": N} or {"bank": HASH, "config": {...}}'
"""What a section's configuration must be."""

MOST_PRIOR = 10.0
"""Largest initial ability that a client may state, in SDs of the bank's population."""

STATE = "cat session state"
"""Purpose of the seals of states."""

PRIOR = "initialEstimatedAbility"
"""Key of the initial ability in the data about a person; TAO's client sends it with 0.0."""


@dataclass(frozen=True)
class AdaptiveSection:
    """A section of a client.

    ``sent`` is what the client sent, to be sent back.
    """

    id: str
    bank: ItemBank
    config: Config
    sent: Mapping[str, Any]
    exposure: ExposureParameters | None


@dataclass(frozen=True)
class Turn:
    """What a client does next.

    Attributes:
        session: id of the session.
        items: ids of the items to show; none at the end.
        state: the handle for the next request.
        theta: estimate of each ability; empty before the first score.
        se: their standard errors.
        n_items: number of scores so far.
        reason: the stopping rule that ended the session; empty while it is running.
    """

    session: str
    items: list[str]
    state: str
    theta: tuple[float, ...]
    se: tuple[float, ...]
    n_items: int
    reason: str


def _configured(service: Service, text: str) -> dict[str, Any]:
    """What is stored of a section's configuration: its bank, config, test and section.

    The text is Base64 of JSON: ``{"test": ID}`` (the first adaptive section of a published test),
    ``{"test": ID, "section": N}`` (its section N, from 1), or ``{"bank": HASH, "config": {...}}``.
    """
    try:
        document = json.loads(_decoded(text))
    except (ValueError, RecursionError):
        raise ServiceError(f"The `sectionConfiguration` must be {MUST}.") from None
    names = set(document) if isinstance(document, dict) else set()
    if names in ({"test"}, {"test", "section"}) and isinstance(document["test"], str):
        test = published_test(service, _text(document["test"]))
        numbers = [at + 1 for at in test.pools]
        number = document.get("section", numbers[0] if numbers else None)
        if isinstance(number, bool) or number not in numbers:
            raise ServiceError("The `sectionConfiguration` must name an adaptive section.")
        section = test.definition.adaptive[number - 1]
        bank = service.store.add_bank(test.pools[number - 1])
        return {"bank": bank, "config": section.config.to_json(), "test": test.id, "at": number - 1}
    if names == {"bank", "config"} and isinstance(document["bank"], str):
        config = Config.from_json(document["config"])
        prepare(stored_bank(service, _text(document["bank"])), config)  # refuses what cannot run
        return {"bank": document["bank"], "config": config.to_json()}
    raise ServiceError(f"The `sectionConfiguration` must be {MUST}.")


def _text(value: str) -> str:
    """An id that a database can look up."""
    if not value.isascii() or not value.isprintable():
        raise NotFoundError("There is nothing with this id.")
    return value


def _decoded(text: str) -> bytes:
    """The bytes of Base64, with or without its padding and line breaks, also its form for URLs."""
    packed = "".join(text.split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ServiceError("The `sectionConfiguration` must be Base64.") from None


def create_section(service: Service, client: str, document: Mapping[str, Any]) -> str:
    """Create a section; return its id.

    Only this client may use it. The document has ``sectionConfiguration`` and what else was
    sent.

    Raises:
        NotFoundError: for an unknown test or bank.
        InputError: for a configuration that cannot be used.
    """
    configured = _configured(service, str(document["sectionConfiguration"]))
    name = new_id("s")
    with service.recorded(f"client:{client}", "section created", section=name):
        row = {"id": name, "client": client, "bank": configured["bank"], "status": "open"}
        stored = json.dumps({**configured, "sent": dict(document)})
        service.insert(tables.sections, **row, document=stored, created=service.now())
    return name


def section_of(service: Service, client: str, name: str) -> AdaptiveSection:
    """A section of a client.

    Raises:
        NotFoundError: for an unknown or deleted section, or one of another client.
    """
    row = service.get(tables.sections, name)
    found(row is not None and row.client == client and row.status == "open", "section")
    document = json.loads(row.document)
    exposure = None
    if "test" in document:
        exposure = published_test(service, document["test"]).exposure.get(document["at"])
    return AdaptiveSection(
        id=name,
        bank=service.store.bank(row.bank),
        config=Config.from_json(document["config"]),
        sent=document["sent"],
        exposure=exposure,
    )


def delete_section(service: Service, client: str, name: str) -> None:
    """Delete a section; its sessions end with it, their logs stay.

    Raises:
        NotFoundError: as `section_of` does.
    """
    section_of(service, client, name)
    with service.recorded(f"client:{client}", "section deleted", section=name):
        service.change(tables.sections, name, status="deleted")


def _turn(service: Service, session: Session) -> Turn:
    n_items = sum(event["kind"] == "answer" for event in session.events)
    estimate = session.estimate() if n_items else {"theta": [], "se": []}
    return Turn(
        session=session.id,
        items=[] if session.is_over else list(session.asked),
        state=service.sealed(STATE, [session.id, len(session.events)]),
        theta=tuple(np.ravel(estimate["theta"]).tolist()),
        se=tuple(np.ravel(estimate["se"]).tolist()),
        n_items=n_items,
        reason=session.reason,
    )


def begin_session(
    service: Service, client: str, section: str, prior: Sequence[Mapping[str, Any]] = ()
) -> Turn:
    """Begin a session of a section.

    ``prior`` has pairs of ``key`` and ``value`` about the person: ``initialEstimatedAbility``
    is the mean of the prior, in the bank's metric; others are ignored.

    Raises:
        NotFoundError: as `section_of` does.
        InputError: for an initial ability that is no number, or an absurd one.
    """
    it = section_of(service, client, section)
    with service.database.writing():
        session = service.store.begin(
            it.bank,
            it.config,
            session_id=f"{section}.{new_id('x')}",
            prior=_prior(it.bank, prior),
            counts=it.exposure,
        )
        service.acted(f"client:{client}", "session begun", section=section, session=session.id)
    return _turn(service, session)


def _prior(bank: ItemBank, prior: Sequence[Mapping[str, Any]]) -> list[float] | None:
    stated = [entry["value"] for entry in prior if entry["key"] == PRIOR]
    if not stated or np.ndim(bank.population.mean):
        return None
    try:
        mean = float(stated[-1])
    except (TypeError, ValueError):
        mean = float("nan")
    low, sd = float(bank.population.mean), float(bank.population.sd)
    if not is_number(mean) or abs(mean - low) > MOST_PRIOR * sd:
        raise ServiceError(f"The prior datum {PRIOR} must be an ability of the bank's scale.")
    return None if mean == low else [mean, sd]


def _check_session(service: Service, client: str, section: str, name: str) -> None:
    """Raise unless a session of a section is under way."""
    section_of(service, client, section)
    found(name.startswith(f"{section}.") and name in service.store, "session")
    if service.get(tables.ended_sessions, name) is not None:
        raise NotFoundError("The session has ended.")


@contextmanager
def _locked(service: Service, name: str) -> Iterator[Session]:
    """A session within one transaction, in which no other process changes it."""
    with held(service.sessions, name) as loaded, service.database.writing():
        if loaded.value is None:
            loaded.value = service.store.resume(name)
        service.store.lock(loaded.value)
        yield loaded.value


def submit(
    service: Service,
    client: str,
    section: str,
    session: str,
    scores: Sequence[tuple[str, float]],
    state: str | None,
) -> Turn:
    """Record scores of items, and return what to do next.

    ``state`` is that of the response before.

    Raises:
        NotFoundError: for an unknown section or session, also one of another client.
        ConflictError: for an old state with other results, or an item that is not asked.
        InputError: for a state of another session, or a score that the item cannot have.
    """
    _check_session(service, client, section, session)
    with _locked(service, session) as it:
        is_latest = state is None or _events_of(service, session, state) == len(it.events)
        known = {e["item"]: e["code"] for e in it.events if e["kind"] == "answer"}
        first_code = it.bank.first_code
        for item, score in scores:
            code, shown = _category(it.bank, item, score), shorten(item)
            if item in known and known[item] != code:
                raise ConflictError(f"The item {shown} has another score, which stands.")
            if item in known:
                continue  # a repeat, or a client that sends all its results again
            if not is_latest:
                raise ConflictError("The `sessionState` is not the latest one.")
            if item not in it.asked:
                asked = shorten(", ".join(it.asked) or "none: the session is over")
                raise ConflictError(f"The item {shown} is not asked. Expected {asked}.")
            it.answer(item, code + first_code)
            known[item] = code
        return _turn(service, it)


def _events_of(service: Service, session: str, state: str) -> int:
    """The number of events that a state is sealed for."""
    known = service.unsealed(STATE, state)
    if known is None:
        raise ServiceError("The `sessionState` must be the one of the response before.")
    name, at = known
    if name != session:
        raise ServiceError("The `sessionState` is of another session.")
    return int(at)


def _category(bank: ItemBank, item: str, score: float) -> int:
    """The category of a score.

    Raises:
        ServiceError: for an unknown item, or a score that it cannot have.
    """
    where = np.flatnonzero(np.asarray(bank.item_ids, dtype=object) == item)
    if not len(where):
        raise ServiceError(f"The item {shorten(item)} is not in the section.")
    highest = int(item_categories(bank.model)[where[0]]) - 1
    if not 0 <= score <= highest or score != int(score):
        must = f"must be a whole number from 0 to {highest}"
        raise ServiceError(f"The SCORE of the item {shorten(item)} {must}.")
    return int(score)


def end_session(service: Service, client: str, section: str, session: str) -> None:
    """End a session; its log stays.

    Raises:
        NotFoundError: for an unknown section or session, or one that has ended.
    """
    with service.recorded(f"client:{client}", "session ended", session=session):
        _check_session(service, client, section, session)
        service.insert(tables.ended_sessions, session=session, ended=service.now())

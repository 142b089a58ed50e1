"""Events: who publishes them does not know who subscribes, and both are stored or neither."""

import pytest
import sqlalchemy as sa

from irtcat.service.assembly import SUBSCRIBERS, open_service
from irtcat.service.attempts import people, proctoring
from irtcat.service.outbox import webhooks
from irtcat.service.outbox.audit import audit_entries
from irtcat.service.storage import context, tables
from irtcat.service.storage.context import Acted, AttemptChanged, Service
from tests.service.helpers import HandClock, publish
from tests.service.test_taking import Taker, ticket, to_adaptive


class Published:
    """Every event that a service published, with those of the package's subscribers."""

    def __init__(self):
        self.events = []
        self.subscribers = {
            cls: (*subscribers, lambda _, event: self.events.append(event))
            for cls, subscribers in SUBSCRIBERS.items()
        }

    def of(self, cls):
        return [event for event in self.events if isinstance(event, cls)]


class FullError(Exception):
    """What a subscriber fails with."""


def fail(service, event):
    raise FullError


@pytest.fixture
def published():
    return Published()


@pytest.fixture
def service(database, published):
    with Service(database, published.subscribers, create=True, clock=HandClock()) as opened:
        yield opened


def counts(service, *names):
    with service.database.reading():
        return [
            service.database.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in names
        ]


def test_every_event_has_subscribers():
    assert set(SUBSCRIBERS) == set(context.ServiceEvent.__subclasses__())
    assert all(SUBSCRIBERS.values())


def test_an_event_without_a_row_is_refused(service):
    with pytest.raises(KeyError):
        service.publish("something")


def test_a_service_is_opened_with_all_subscribers(database):
    with open_service(database, create=True) as service:
        service.publish(Acted("account:ada", "bank added", {"bank": "b"}))
        (entry,) = audit_entries(service).to_dict("records")
    assert (entry["actor"], entry["action"]) == ("account:ada", "bank added")
    assert entry["details"] == {"bank": "b"}


def test_a_published_test_reaches_audit_and_webhooks(service, published):
    webhooks.add_webhook(service, "https://receiver.example/", ["test.published"], actor="ada")
    test = publish(service)
    assert published.of(context.TestPublished) == [context.TestPublished(test, "test")]
    (first, *_) = audit_entries(service).to_dict("records")
    assert (first["action"], first["details"]) == ("test published", {"test": test})
    assert counts(service, "deliveries") == [1]


@pytest.mark.slow
def test_an_attempt_publishes_the_kinds_of_its_events(service, published):
    test = publish(service)
    taker = Taker(service, ticket(service, test).token)
    to_adaptive(taker)
    taker.answer()
    proctoring.void(service, taker.attempt, actor="account:ada", reason="tried")
    changed = published.of(AttemptChanged)
    person = service.scalar(sa.select(tables.attempts.c.person))
    about = {(event.attempt, event.test, event.person) for event in changed}
    assert about == {(taker.attempt, test, person)}
    assert changed[0].kinds == ("begin", "section")
    assert ("answer", "show") in [event.kinds for event in changed]
    assert changed[-1].kinds == ("void",)
    (act,) = (event for event in published.of(Acted) if "attempt" in event.details)
    assert (act.actor, act.action) == ("account:ada", "attempt voided")


@pytest.mark.slow
def test_where_a_subscriber_fails_nothing_is_stored(service, published):
    test = publish(service)
    taker = Taker(service, ticket(service, test).token)
    names = ("attempt_events", "events", "audit_events", "people")
    to_adaptive(taker)
    before = counts(service, *names)
    shown = taker("current")
    published.subscribers[AttemptChanged] = (*SUBSCRIBERS[AttemptChanged], fail)
    with pytest.raises(FullError):
        taker.answer()
    assert counts(service, *names) == before
    published.subscribers[Acted] = (*SUBSCRIBERS[Acted], fail)
    with pytest.raises(FullError):
        people.add_person(service, name="Ann", actor="account:ada")
    assert counts(service, *names) == before
    published.subscribers |= SUBSCRIBERS
    assert taker("current") == shown
    taker.answer()
    assert counts(service, *names)[:2] == [before[0] + 2, before[1] + 2]

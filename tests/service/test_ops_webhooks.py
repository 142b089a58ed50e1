"""Webhooks: written with what they report, signed, repeated, never sent into private networks."""

import base64
import hashlib
import hmac
import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
import sqlalchemy as sa

from irtcat import InputError
from irtcat.service.attempts import proctoring
from irtcat.service.base.errors import ConflictError, NotFoundError
from irtcat.service.outbox import addresses, webhooks
from irtcat.service.outbox.addresses import AddressError, checked_address
from irtcat.service.outbox.sending import CLAIM, DELIVERIES, PAUSES
from irtcat.service.outbox.webhooks import deliver_due
from irtcat.service.storage import tables
from tests.service.helpers import publish
from tests.service.test_taking import Taker, ticket, to_adaptive

URL = "https://receiver.example/hook"


def messages(service):
    rows = service.rows(sa.select(tables.deliveries).order_by(tables.deliveries.c.due))
    return [json.loads(row.body) for row in rows]


def statuses(service):
    return [row.status for row in service.rows(sa.select(tables.deliveries.c.status))]


class Receiver:
    """A receiver that answers with the statuses that a test gives it."""

    def __init__(self, *answers):
        self.answers, self.requests = list(answers), []

    def __call__(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else 204
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer, content=b"x" * 1000)

    def client(self):
        return httpx.Client(transport=httpx.MockTransport(self))


@pytest.fixture(autouse=True)
def public(monkeypatch):
    """receiver.example has a public address."""
    known = {"receiver.example": ["93.184.216.34"], "inner.example": ["93.184.216.34", "10.0.0.5"]}
    real = socket.getaddrinfo

    def resolve(host, port, *positional, **options):
        if host in known:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in known[host]]
        if host.endswith(".example"):
            raise socket.gaierror("unknown")
        return real(host, port, *positional, **options)

    monkeypatch.setattr(addresses.socket, "getaddrinfo", resolve)


@pytest.mark.slow
def test_messages_are_written_with_what_they_report(service):
    added = webhooks.add_webhook(service, URL, list(webhooks.EVENTS), actor="account:ada")
    test = publish(service)
    taker = Taker(service, ticket(service, test).token)
    proctoring.void(service, taker.attempt, actor="account:ada", reason="tried")
    found = {message["type"]: message["data"] for message in messages(service)}
    about = {"attempt": taker.attempt, "test": test}
    assert found["test.published"] == {"test": test}
    assert {k: v for k, v in found["attempt.started"].items() if k != "person"} == about
    assert set(found) == {"test.published", "attempt.started", "attempt.voided"}
    row = service.row(sa.select(tables.deliveries))
    assert row.webhook == added.id
    assert added.secret not in row.body


@pytest.mark.slow
def test_a_finished_attempt_is_reported_once(service):
    webhooks.add_webhook(service, URL, ["attempt.finished"], actor="test")
    taker = Taker(service, ticket(service, publish(service)).token)
    to_adaptive(taker)
    for _ in range(4):
        taker.answer()
    taker("proceed")
    for _ in range(3):
        taker.answer()
    assert messages(service) == []
    taker("proceed")
    taker("current")
    assert [m["type"] for m in messages(service)] == ["attempt.finished"]


def test_a_message_about_what_was_rolled_back_is_not_sent(service):
    webhooks.add_webhook(service, URL, list(webhooks.EVENTS), actor="test")

    def fails():
        with service.database.writing():
            webhooks.notify(service, "test.published", test="test_x")
            raise ConflictError("no")

    with pytest.raises(ConflictError):
        fails()
    assert messages(service) == []


def as_received(secret):
    """The key of a secret, as the libraries of receivers read it."""
    return base64.b64decode(secret.removeprefix("whsec_"), validate=True)


def test_secrets_are_in_the_alphabet_that_receivers_read(service):
    added = [webhooks.add_webhook(service, URL, ["test.published"], actor="t") for _ in range(20)]
    assert {len(as_received(webhook.secret)) for webhook in added} == {24}


def test_messages_are_signed_as_standard_webhooks(service, clock):
    added = webhooks.add_webhook(service, URL, ["test.published"], actor="test")
    webhooks.notify(service, "test.published", test="test_x")
    receiver = Receiver()
    assert deliver_due(service, client=receiver.client()) == 1
    (request,) = receiver.requests
    headers, body = request.headers, request.content.decode()
    assert int(headers["webhook-timestamp"]) == int(clock.utc.timestamp())
    key = as_received(added.secret)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert json.loads(body)["data"] == {"test": "test_x"}
    # The connection goes to the address that was checked, for the name that was asked for.
    assert request.url.host == "93.184.216.34"
    assert headers["host"] == "receiver.example"
    assert request.extensions["sni_hostname"] == "receiver.example"
    assert deliver_due(service, client=receiver.client()) == 0
    assert statuses(service) == ["delivered"]


def test_a_message_is_repeated_with_growing_pauses_and_its_webhook_is_then_disabled(service, clock):
    webhooks.add_webhook(service, URL, ["test.published"], actor="test")
    webhooks.notify(service, "test.published", test="test_x")
    tried = 0
    for pause in PAUSES:
        receiver = Receiver(500)
        assert deliver_due(service, client=receiver.client()) == 0
        tried += len(receiver.requests)
        clock.move(pause - 1)
        receiver = Receiver(500)
        deliver_due(service, client=receiver.client())
        assert receiver.requests == []
        clock.move(2)
    assert list(PAUSES) == sorted(PAUSES)
    assert tried == len(PAUSES)
    deliver_due(service, client=Receiver(httpx.ConnectError("away")).client())
    assert statuses(service) == ["failed"]
    assert webhooks.webhook_table(service)["status"].tolist() == ["disabled"]
    webhooks.notify(service, "test.published", test="test_y")
    assert len(messages(service)) == 1


@pytest.mark.parametrize("answer", [301, 400, 404, 500, httpx.ReadTimeout("slow")])
def test_only_success_counts(service, clock, answer):
    webhooks.add_webhook(service, URL, ["test.published"], actor="test")
    webhooks.notify(service, "test.published", test="test_x")
    assert deliver_due(service, client=Receiver(answer).client()) == 0
    clock.move(PAUSES[0] + 1)
    assert deliver_due(service, client=Receiver(200).client()) == 1


def test_a_message_that_another_process_has_is_left_to_it(service, clock):
    webhooks.add_webhook(service, URL, ["test.published"], actor="test")
    webhooks.notify(service, "test.published", test="test_x")
    rows = sa.select(tables.deliveries)
    claimed = [list(DELIVERIES.claimed(service, rows, lambda: False)) for _ in range(2)]
    assert [len(found) for found in claimed] == [1, 0]
    assert deliver_due(service, client=Receiver().client()) == 0
    clock.move(CLAIM + 1)  # the process died
    assert deliver_due(service, client=Receiver().client()) == 1


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "10.1.2.3",
        "192.168.0.1",
        "172.16.9.9",
        "169.254.169.254",
        "::1",
        "fd00::1",
        "fe80::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "100.64.0.1",
        "224.0.0.1",
        "2130706433",
        "0x7f.1",
        "inner.example",
        "nowhere.example",
        "::ffff:169.254.169.254",
        "2002:7f00:1::",
        "64:ff9b::a00:1",
        "64:ff9b:1::808:808",
        "::127.0.0.1",
        "fec0::1",
    ],
)
def test_private_addresses_are_refused(host):
    with pytest.raises(AddressError):
        checked_address(host, 443, private=False)


def test_public_addresses_are_permitted():
    assert checked_address("receiver.example", 443, private=False) == "93.184.216.34"
    assert checked_address("8.8.8.8", 443, private=False) == "8.8.8.8"
    assert checked_address("64:ff9b::808:808", 443, private=False) == "64:ff9b::808:808"
    assert checked_address("127.0.0.1", 443, private=True) == "127.0.0.1"


@contextmanager
def listening():
    """A server on this machine, and the bodies that it received."""
    bodies = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_nothing_reaches_a_server_of_this_machine_unless_it_is_permitted(service, clock):
    with listening() as (url, bodies):
        with pytest.raises(InputError, match="an address with https"):
            webhooks.add_webhook(service, url, ["test.published"], actor="test")
        webhooks.add_webhook(service, url, ["test.published"], actor="test", private=True)
        webhooks.notify(service, "test.published", test="test_x")
        assert deliver_due(service) == 0
        assert bodies == []
        clock.move(PAUSES[0] + 1)
        assert deliver_due(service, private=True) == 1
        assert [json.loads(body)["type"] for body in bodies] == ["test.published"]


@pytest.mark.parametrize(
    ("url", "events"),
    [
        ("ftp://receiver.example", ["test.published"]),
        ("receiver.example", ["test.published"]),
        ("https://", ["test.published"]),
        ("https://receiver.example:99999/", ["test.published"]),
        ("https://receiver.example:port/", ["test.published"]),
        ("https://user:word@receiver.example", ["test.published"]),
        ("https://receiver.example/\n", ["test.published"]),
        ("https://inner.example/", ["test.published"]),
        ("https://[64:ff9b::a00:1]/", ["test.published"]),
        ("http://receiver.example/", ["test.published"]),
        ("https://receiver.example/" + "x" * 3000, ["test.published"]),
        (None, ["test.published"]),
        (URL, []),
        (URL, ["test.deleted"]),
    ],
)
def test_invalid_webhooks_are_refused(service, url, events):
    with pytest.raises(InputError, match="must be"):
        webhooks.add_webhook(service, url, events, actor="test")
    assert len(webhooks.webhook_table(service)) == 0


def test_webhooks_are_changed_and_removed(service):
    added = webhooks.add_webhook(service, URL, ["test.published"], actor="test")
    webhooks.change_webhook(service, added.id, actor="test", status="disabled")
    webhooks.notify(service, "test.published", test="test_x")
    assert messages(service) == []
    with pytest.raises(InputError, match="a public address"):
        webhooks.change_webhook(service, added.id, actor="test", url="https://[fec0::1]/")
    webhooks.change_webhook(service, added.id, actor="test", status="open")
    webhooks.notify(service, "test.published", test="test_x")
    table = webhooks.webhook_table(service)
    assert table["waiting"].tolist() == [1]
    assert "secret" not in table
    webhooks.remove_webhook(service, added.id, actor="test")
    assert messages(service) == []
    with pytest.raises(NotFoundError):
        webhooks.remove_webhook(service, added.id, actor="test")

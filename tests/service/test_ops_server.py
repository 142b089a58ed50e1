"""The server: limits, metrics, logs without personal data, warm-up, graceful stop."""

import gc
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from opentelemetry import trace

from irtcat.cat import Session, StoreError
from irtcat.service.accounts.accounts import BROWSER, PROGRAM, add_account, issue_token, sign_in
from irtcat.service.accounts.credentials import service_cookie
from irtcat.service.assembly import open_service
from irtcat.service.attempts import library, people
from irtcat.service.base import limits
from irtcat.service.base.errors import TooManyError, UnauthorizedError
from irtcat.service.base.limits import ADDRESS, DEVICE, SIGN_IN, TICKET
from irtcat.service.base.metrics import JsonFormatter
from irtcat.service.middleware import Observing, RateLimits
from irtcat.service.operations import background
from irtcat.service.operations import server as workers
from irtcat.service.operations.server import ENVIRONMENT, STARTED, Settings, application
from tests.service.helpers import HandClock, bank, definition, items, publish

SETTLED = background._settled  # before a fixture replaces it
WORDS = "correct horse battery"


# --- limits ----------------------------------------------------------------------------------


def test_failed_sign_ins_are_limited_in_all_processes(address):
    clock = HandClock()
    one = open_service(address, create=True, clock=clock)
    two = open_service(address, clock=clock)
    add_account(one, "ada", password=WORDS, roles=["admin"], actor="test")
    add_account(one, "bob", password=WORDS, roles=["proctor"], actor="test")
    for at in range(int(SIGN_IN.burst)):
        with pytest.raises(UnauthorizedError):
            sign_in((one, two)[at % 2], "ada", "wrong words here")
    for service in (one, two):
        with pytest.raises(TooManyError) as error:
            sign_in(service, "ada", WORDS)  # not even with the right one
        assert error.value.headers == {"Retry-After": "36"}
    assert sign_in(two, "bob", WORDS).name == "bob"
    clock.move(37)
    assert sign_in(one, "ada", WORDS).name == "ada"
    for _ in range(int(SIGN_IN.burst)):  # the bucket is full again after a success
        with pytest.raises(UnauthorizedError):
            sign_in(one, "ada", "wrong words here")
    one.close(), two.close()


def test_unknown_names_are_limited_too(database):
    service = open_service(database, create=True, clock=HandClock())
    for _ in range(int(SIGN_IN.burst)):
        with pytest.raises(UnauthorizedError):
            sign_in(service, "nobody", WORDS)
    with pytest.raises(TooManyError):
        sign_in(service, "nobody", WORDS)
    with service.database.reading():
        (row,) = service.database.execute("SELECT name FROM limits").fetchall()
    assert "nobody" not in row[0]


def limited(clock):
    app = FastAPI()

    @app.api_route("/t/{ticket}", methods=["GET", "POST"])
    @app.get("/page/{name}")
    def page(ticket: str = "", name: str = "") -> str:
        if "bad" in (ticket, name):
            raise HTTPException(404)
        return "page"

    @app.get("/test/{key}")
    def test(key: str) -> str:
        return "test"

    @app.get("/credential/{name}")
    def credential(name: str) -> str:
        if name == "wrong":
            raise HTTPException(401)
        return "page"

    @app.api_route("/staff/sign-in", methods=["GET", "POST"])
    def password(request: Request) -> str:
        if request.method == "POST" and "x-right" not in request.headers:
            raise HTTPException(401)
        return "page"

    app.add_middleware(RateLimits, clock=clock)
    return app


def statuses(client, method, path, n, **options):
    return [client.request(method, path, **options).status_code for _ in range(n)]


def test_requests_over_a_limit_are_refused_with_the_time_to_wait():
    now = 0.0
    app = limited(lambda: now)
    client = TestClient(app)
    n = int(TICKET.burst)
    assert statuses(client, "POST", "/t/ticket-number-one", n + 1) == [200] * n + [429]
    assert statuses(client, "POST", "/t/ticket-number-two", 1) == [200]
    assert statuses(client, "GET", "/t/ticket-number-one", 3) == [200] * 3
    response = client.post("/t/ticket-number-one")
    assert response.headers["retry-after"] == "5"
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == 429
    assert "default-src 'none'" in response.headers["content-security-policy"]
    now = 5.0
    assert statuses(client, "POST", "/t/ticket-number-one", 2) == [200, 429]


@pytest.mark.slow
def test_wrong_tickets_of_an_address_are_limited_and_nothing_else_is():
    app = limited(lambda: 0.0)
    client = TestClient(app)
    n = int(ADDRESS.burst)
    assert statuses(client, "GET", "/page/bad", 2 * n) == [404] * 2 * n
    assert statuses(client, "GET", "/t/bad", n + 1) == [404] * n + [429]
    assert statuses(client, "POST", "/t/bad", 1) == [429]
    assert statuses(client, "GET", "/t/right", 1) == [200]  # nobody guesses 192 bits
    assert statuses(client, "GET", "/page/fine", 3 * n) == [200] * 3 * n
    assert statuses(client, "GET", "/credential/wrong", 1) == [401]
    assert statuses(client, "POST", "/staff/sign-in", 1) == [401]
    other = TestClient(app, client=("2001:db8::1", 50000))
    assert statuses(other, "GET", "/t/bad", 1) == [404]


@pytest.mark.slow
def test_random_cookies_do_not_pass_the_limits_of_guesses():
    client = TestClient(limited(lambda: 0.0))
    for path, code in (("/t/bad", 404), ("/credential/wrong", 401)):
        got = []
        for at in range(200):
            key = f"{at:016x}"
            cookie = f"irtcat_device=x{at}; irtcat_device_01234567_{key}=a.{at}"
            got += statuses(client, "GET", path, 1, headers={"cookie": cookie})
        assert got == [code] * int(ADDRESS.burst) + [429] * (200 - int(ADDRESS.burst))
    assert statuses(client, "GET", "/credential/right", 1) == [200]  # who is signed in


def test_passwords_over_the_limit_are_not_looked_at():
    client = TestClient(limited(lambda: 0.0))
    n = int(ADDRESS.burst)
    assert statuses(client, "POST", "/staff/sign-in", n) == [401] * n
    right = {"headers": {"x-right": "1"}}
    assert statuses(client, "POST", "/staff/sign-in", 1, **right) == [429]
    assert statuses(client, "GET", "/staff/sign-in", 1) == [200]


@pytest.mark.slow
def test_addresses_of_one_ipv6_network_share_a_limit():
    app = limited(lambda: 0.0)
    for host in range(int(ADDRESS.burst)):
        TestClient(app, client=(f"2001:db8::{host + 1:x}", 1)).get("/t/bad")
    assert TestClient(app, client=("2001:db8::ffff", 1)).get("/t/bad").status_code == 429
    assert TestClient(app, client=("2001:db8:0:1::1", 1)).get("/t/bad").status_code == 404


def test_ipv4_addresses_of_a_socket_for_both_versions_have_a_limit_each():
    app = limited(lambda: 0.0)
    one, other = (TestClient(app, client=(f"::ffff:192.0.2.{at}", 1)) for at in (1, 2))
    n = int(ADDRESS.burst)
    assert statuses(one, "GET", "/t/bad", n + 1) == [404] * n + [429]
    assert statuses(other, "GET", "/t/bad", 1) == [404]


@pytest.mark.slow
def test_requests_of_one_device_are_limited():
    client = TestClient(limited(lambda: 0.0))
    one, two = "0" * 16, "1" * 16
    both = {
        "headers": {"cookie": f"irtcat_device_01234567_{one}=a.b; irtcat_device_01234567_{two}=c.d"}
    }
    n = int(DEVICE.burst)
    assert statuses(client, "GET", f"/test/{one}", n + 1, **both) == [200] * n + [429]
    assert statuses(client, "GET", f"/test/{two}", 1, **both) == [200]
    assert statuses(client, "GET", "/page/fine", n + 1, **both) == [200] * (n + 1)


@pytest.mark.slow
def test_a_classroom_with_wrong_tickets(settings):
    """Whoever is signed in at the same address works on, and a right ticket opens its test."""
    with open_service(settings.address) as service:
        test = service.rows(library.sa.select(library.tables.tests.c.id))[0][0]
        right = people.issue_ticket(service, test, actor="test").token
        proctor = add_account(service, "pia", password=WORDS, roles=["proctor"], actor="test")
        token, browser = (issue_token(service, proctor, kind=kind) for kind in (PROGRAM, BROWSER))
    with TestClient(application(settings), client=("203.0.113.9", 5)) as client:
        n = int(ADDRESS.burst)
        wrong = [client.get(f"/t/{at:032x}").status_code for at in range(n + 5)]
        assert wrong == [404] * n + [429] * 5
        assert client.get("/health/ready").status_code == 200
        style = re.search(r'href="(/static/[^"]+css)"', client.get("/").text)[1]
        assert client.get(style).status_code == 200
        headers = {"Authorization": f"Bearer {token}"}
        assert client.get("/api/v1/board", headers=headers).status_code == 200
        cookie = {"cookie": f"{service_cookie(service, 'staff')}={browser}"}
        assert client.get("/staff/board", headers=cookie).status_code == 200
        body = {"name": "pia", "password": WORDS}
        assert client.post("/api/v1/tokens", json=body).status_code == 201
        assert client.post(f"/api/v1/take/{right}").status_code == 200


def test_buckets_do_not_grow_without_end(monkeypatch):
    monkeypatch.setattr(limits, "KEPT", 10)
    buckets = limits.Buckets(DEVICE, clock=lambda: 0.0)
    for at in range(100):
        buckets.take(str(at))
    assert len(buckets._levels) == 10


# --- the application -------------------------------------------------------------------------


@pytest.fixture
def settings(address):
    with open_service(address, create=True) as service:
        publish(service)
    return Settings(address=address, secure=False)


@pytest.mark.slow
def test_the_engine_is_warm_before_it_is_ready(settings, monkeypatch):
    begun = []
    real = Session.begin.__func__

    def begin(cls, *arguments, **options):
        begun.append(arguments)
        return real(cls, *arguments, **options)

    monkeypatch.setattr(Session, "begin", classmethod(begin))
    app = application(settings)
    assert TestClient(app).get("/health/ready").status_code == 503
    assert TestClient(app).get("/health/live").status_code == 200
    with TestClient(app) as client:
        assert client.get("/health/ready").json() == {"status": "ready"}
        assert len(begun) == 1
    assert TestClient(app).get("/health/ready").status_code == 503


def test_what_is_loaded_is_not_searched_for_garbage(monkeypatch):
    monkeypatch.setattr(gc, "collect", lambda: 0)  # of all that the tests before have left
    before, loaded = gc.get_threshold(), gc.get_freeze_count()
    with SETTLED():
        assert gc.get_threshold() == background.SEARCH_AFTER
        assert gc.get_freeze_count() > loaded
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_tests_published_later_are_warmed_too(settings):
    with open_service(settings.address) as service:
        done = set()
        background.warm_open_tests(service, done)
        assert len(done) == 1
        changed = definition(title="Second test")
        library.publish(service, changed, bank(), items(), actor="test", n_simulated=20)
        background.warm_open_tests(service, done)
        assert len(done) == 2


def test_a_test_that_cannot_be_warmed_does_not_stop_the_server(settings, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(background, "warm", broken)
    with TestClient(application(settings)) as client:
        assert client.get("/health/ready").status_code == 200
    assert "warming failed" in caplog.text


def test_metrics_are_for_this_machine_or_with_a_token(settings):
    app = application(Settings(**{**vars(settings), "metrics_token": "m-secret"}))
    with TestClient(app, client=("203.0.113.9", 5)) as client:
        assert client.get("/metrics").status_code == 403
        wrong = {"authorization": "Bearer wrong"}
        assert client.get("/metrics", headers=wrong).status_code == 403
        right = {"authorization": "Bearer m-secret"}
        assert client.get("/metrics", headers=right).status_code == 200
    with TestClient(application(settings), client=("127.0.0.1", 5)) as client:
        client.get("/nowhere/ada@example.org")
        text = client.get("/metrics").text
    assert 'irtcat_attempts{status="running"} 0.0' in text
    assert "irtcat_request_seconds_bucket" in text
    assert re.search(
        r'irtcat_requests_total\{method="GET",route="\(unknown\)",status="404"\}', text
    )
    assert "ada@example.org" not in text


@pytest.mark.slow
def test_answers_and_engine_time_are_counted(address):
    from prometheus_client import REGISTRY

    from tests.service.test_taking import Taker, ticket, to_adaptive

    def value(name, **labels):
        return REGISTRY.get_sample_value(name, labels) or 0.0

    service = open_service(address, create=True)
    taker = Taker(service, ticket(service, publish(service)).token)
    before = value("irtcat_answers_total", section="adaptive")
    seconds = value("irtcat_engine_seconds_count", step="answer")
    to_adaptive(taker)
    taker.answer()
    taker.answer()
    assert value("irtcat_answers_total", section="adaptive") == before + 2
    assert value("irtcat_engine_seconds_count", step="answer") == seconds + 2
    service.close()


@pytest.mark.slow
def test_the_access_log_holds_no_personal_data(settings, caplog):
    with open_service(settings.address) as service:
        test = service.rows(library.sa.select(library.tables.tests.c.id))[0][0]
        secret = people.issue_ticket(service, test, actor="test").token
    caplog.set_level(logging.INFO, logger="irtcat.access")
    caplog.clear()
    with TestClient(application(settings), client=("203.0.113.9", 5)) as client:
        client.cookies.set("irtcat_device", "device-secret")
        client.get(f"/t/{secret}?name=olga", headers={"user-agent": "browser of olga"})
        client.get(f"/nowhere/{secret}")
        client.get("/health/ready")
    lines = [JsonFormatter().format(r) for r in caplog.records if r.name == "irtcat.access"]
    assert len(lines) == 2
    document = json.loads(lines[-1])
    assert {"at", "level", "method", "route", "status", "ms", "request"} <= set(document)
    assert document["status"] == 404
    for private in (secret, "olga", "203.0.113.9", "device-secret", "browser"):
        assert private not in "".join(lines)


def test_log_lines_are_json_with_errors():
    try:
        raise ValueError("a\nb")
    except ValueError:
        record = logging.LogRecord("irtcat", 40, "f", 1, "it %s", ("failed",), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    document = json.loads(line)
    assert document["message"] == "it failed"
    assert "ValueError" in document["error"]


def test_spans_are_made_for_a_configured_sdk(monkeypatch):
    spans = []

    class Span(trace.NonRecordingSpan):
        def __init__(self):
            super().__init__(trace.INVALID_SPAN_CONTEXT)
            self.name, self.attributes = "", {}
            spans.append(self)

        def update_name(self, name):
            self.name = name

        def set_attribute(self, key, value):
            self.attributes[key] = value

    class Tracer(trace.NoOpTracer):
        def start_as_current_span(self, *_, **__):
            return trace.use_span(Span())

    monkeypatch.setattr(trace, "get_tracer", lambda _: Tracer())
    app = FastAPI()
    app.get("/page/{name}")(lambda name: name)
    app.add_middleware(Observing, traced=True)
    TestClient(app).get("/page/ada")
    (span,) = spans
    assert span.name == "GET /page/{name}"
    assert span.attributes["http.response.status_code"] == 200


# --- as processes ----------------------------------------------------------------------------


@pytest.fixture
def started(settings, tmp_path):
    """A function that starts a server; it returns the process and the address."""
    processes = []

    def start(**options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with open(tmp_path / "server.log", "w") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", STARTED], stdin=subprocess.PIPE, stderr=log, text=True
            )
        processes.append(process)
        with process.stdin as stream:
            json.dump([vars(settings), {"port": port, **options}], stream)
        base = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 200
        while time.monotonic() < end:
            try:
                if httpx.get(f"{base}/health/ready", timeout=5, trust_env=False).is_success:
                    return process, base
            except httpx.HTTPError:
                time.sleep(0.2)
        raise AssertionError((tmp_path / "server.log").read_text())

    yield start
    for process in processes:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


@pytest.mark.slow
def test_workers_are_replaced_and_stop_gracefully(started, tmp_path):
    process, base = started(workers=2)

    def workers():
        lines = (tmp_path / "server.log").read_text().splitlines()
        found = [re.search(r"Started server process \[(\d+)\]", line) for line in lines]
        return [int(match[1]) for match in found if match]

    first = workers()
    assert first
    os.kill(first[0], signal.SIGKILL)
    end = time.monotonic() + 200
    while len(set(workers())) < 3 and time.monotonic() < end:
        time.sleep(0.2)
    assert len(set(workers())) >= 3
    with httpx.Client(trust_env=False) as client:
        assert client.get(f"{base}/health/ready", timeout=60).is_success
        assert "irtcat_requests_total" in client.get(f"{base}/metrics", timeout=60).text
    process.terminate()
    assert process.wait(60) in (0, -signal.SIGTERM)
    for line in (tmp_path / "server.log").read_text().splitlines():
        json.loads(line)


@pytest.mark.slow
def test_requests_under_way_are_finished_when_the_server_stops(started):
    """A server that is told to stop answers what it has received."""
    process, base = started()
    statuses = []

    def ask():
        with httpx.Client(trust_env=False) as client:
            while True:
                try:
                    statuses.append(client.get(f"{base}/health/ready").status_code)
                except httpx.ConnectError:
                    return  # it listens no more
                except httpx.HTTPError as error:
                    statuses.append(repr(error))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    process.terminate()
    assert process.wait(60) in (0, -signal.SIGTERM)
    for thread in threads:
        thread.join()
    broken = [s for s in statuses if s not in (200, 503)]
    # A kept connection may be closed while a client sends its next request on it.
    assert all("RemoteProtocolError" in str(s) or "ReadError" in str(s) for s in broken), broken
    assert len(broken) <= len(threads)
    assert statuses.count(200) > 20


def test_workers_know_their_settings_from_the_environment(settings, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, json.dumps(vars(settings)))
    app = application()
    assert app.state.secure is False
    assert app.state.service.database.label
    app.state.service.close()


def test_a_worker_that_starts_waits_for_the_database(monkeypatch):
    """One that failed to start would stop all workers."""
    monkeypatch.setattr(workers.time, "sleep", lambda seconds: None)
    tries = []

    def opens(address, **options):
        tries.append(address)
        if len(tries) < 3:
            raise StoreError("the database system is starting up.")
        return "the service"

    monkeypatch.setattr(workers, "open_service", opens)
    settings = workers.Settings(address="postgresql://host/tests")
    assert workers._opened(settings) == "the service"
    tries.clear()
    with pytest.raises(StoreError):  # a file does not appear by waiting
        workers._opened(workers.Settings(address="tests.db"))
    assert len(tries) == 1

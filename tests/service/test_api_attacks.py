"""Attacks on both interfaces: foreign credentials and ids, sizes, types, hostile texts."""

import json
import re

import pytest
from fastapi.testclient import TestClient

from irtcat.service.accounts import accounts, clients
from irtcat.service.accounts.credentials import service_cookie
from irtcat.service.assembly import open_service
from irtcat.service.attempts import people, taking
from irtcat.service.middleware import MOST_BODY
from irtcat.service.outbox.audit import audit_entries
from tests.service.helpers import HandClock, publish

HOSTILE = [
    "'; DROP TABLE attempts; --",
    '" OR "1"="1',
    "<script>alert(1)</script>",
    "{{7*7}}${7*7}",
    "../../../../etc/passwd",
    "=cmd|' /C calc'!A0",
    "\u202egnp.exe",
    "%s%n%x",
    "\U0001f600" * 20,
]


@pytest.fixture
def service(database):
    it = open_service(database, create=True, clock=HandClock())
    it.published = publish(it)
    return it


@pytest.fixture
def http(app):
    return TestClient(app, base_url="https://testserver", raise_server_exceptions=False)


def staff(service, *roles):
    name = "-".join(roles) or "nobody"
    account = accounts.add_account(service, name, password="x" * 12, roles=roles, actor="test")
    return {"Authorization": f"Bearer {accounts.issue_token(service, account)}"}


def taker(service):
    started = taking.begin(
        service, people.issue_ticket(service, service.published, actor="test").token
    )
    return {"Authorization": f"Bearer {started.attempt}.{started.secret}"}


def client(service):
    name, secret = clients.add_client(service, "x", actor="test")
    token, _ = clients.access_token(service, name, secret, "")
    return {"Authorization": f"Bearer {token}"}


def operations(app, *prefixes):
    """All operations of the document under some paths, with ids filled in."""
    for path, methods in app.openapi()["paths"].items():
        if path.startswith(prefixes):
            filled = re.sub(r"\{[^}]*\}", "a_123456789012345678901234", path)
            for method in methods:
                yield method.upper(), filled


OPEN = {"/api/v1/tokens", "/oauth/token"}
"""Where one asks for credentials."""


@pytest.mark.slow
def test_a_token_of_one_kind_opens_nothing_of_another(app, http, service):
    staff_cookie = service_cookie(service, "staff")
    headers = {
        "taker": taker(service),
        "client": client(service),
        "staff": staff(service, "admin"),
        "nobody": {},
        "cookie": {"Cookie": f"{staff_cookie}={taker(service)['Authorization'].split()[1]}"},
    }
    foreign = {
        "/api/v1/take/": ("client", "staff", "nobody", "cookie"),
        "/ims/": ("taker", "staff", "nobody", "cookie"),
        "/api/v1/": ("taker", "client", "nobody", "cookie"),
    }
    seen = 0
    for method, path in operations(app, "/api/v1", "/ims"):
        kinds = next(kinds for prefix, kinds in foreign.items() if path.startswith(prefix))
        if path in OPEN or re.fullmatch("/api/v1/take/a_[0-9]+", path):
            continue
        for kind in kinds:
            sent = {**headers[kind], "Idempotency-Key": "k"}
            # Without a body: credentials are checked before anything else is read.
            reply = http.request(method, path, headers=sent)
            assert reply.status_code in (401, 403, 404, 422), (kind, method, path)
            if reply.status_code == 422:
                reply = http.request(method, path, headers=sent, json=ANY)
            if reply.status_code == 422:  # a body that is read before the credentials are
                assert not reply.json().get("items"), path
            else:
                assert reply.status_code in (401, 403, 404), (kind, method, path)
            seen += 1
    assert seen > 200


ANY = {
    "reason": "x",
    "seconds": 1,
    "text": "x",
    "name": "x",
    "roles": ["author"],
    "test": "x",
    "definition": "x",
    "bank": "x",
    "items": "x",
    "item": "x",
    "score": 1,
}


@pytest.mark.slow
def test_no_role_does_more_than_it_may(app, http, service):
    """Every operation of staff is refused to accounts whose roles do not hold its permission."""
    from irtcat.service.accounts.accounts import PERMISSIONS, ROLES
    from irtcat.service.api import actions
    from irtcat.service.api import staff as lists

    permissions = {}
    for route in [route for part in (lists, actions) for route in part.router.routes]:
        for dependency in getattr(getattr(route, "dependant", None), "dependencies", ()):
            closure = getattr(dependency.call, "__closure__", None) or ()
            names = [c.cell_contents for c in closure if isinstance(c.cell_contents, str)]
            for method in route.methods if names else ():
                permissions[method, route.path] = names[0]
    permissions = {key: name for key, name in permissions.items() if name in PERMISSIONS}
    assert len(permissions) > 40
    for role in ROLES:
        headers = staff(service, role)
        for (method, path), permission in permissions.items():
            may = role == "admin" or role in PERMISSIONS[permission]
            if may:
                continue
            filled = re.sub(r"\{[^}]*\}", "a_1", path)
            reply = http.request(method, filled, headers=headers)
            assert reply.status_code in (403, 422), (role, method, path)
            if reply.status_code == 422 and method != "GET":
                continue  # without a body
            assert reply.status_code == 403, (role, method, path)


@pytest.mark.slow
def test_auditors_change_nothing(app, http, service):
    headers = staff(service, "auditor")
    before = len(audit_entries(service))
    for method, path in operations(app, "/api/v1"):
        if method != "GET" and path not in OPEN and "/take/" not in path:
            if path == "/api/v1/tokens/current":
                continue
            reply = http.request(method, path, headers=headers)
            assert reply.status_code in (403, 422), (method, path)
    assert len(audit_entries(service)) == before


@pytest.mark.slow
def test_ids_of_others(http, service):
    """Another taker's attempt id with one's own secret opens nothing."""
    first, second = taker(service), taker(service)
    own = second["Authorization"].split()[1].split(".")
    other = first["Authorization"].split()[1].split(".")
    mixed = {"Authorization": f"Bearer {other[0]}.{own[1]}"}
    assert http.get("/api/v1/take/current", headers=mixed).status_code == 401
    unknown = {"Authorization": f"Bearer a_unknown.{own[1]}"}
    assert http.get("/api/v1/take/current", headers=unknown).status_code == 401


@pytest.mark.slow
def test_large_bodies(http, service):
    headers = {**staff(service, "admin"), "Content-Type": "application/json"}
    body = b'{"name": "' + b"x" * MOST_BODY + b'"}'
    assert http.post("/api/v1/people", content=body, headers=headers).status_code == 413
    chunks = (body[at : at + 65536] for at in range(0, len(body), 65536))
    reply = http.post("/api/v1/people", content=chunks, headers=headers)  # without a length
    assert reply.status_code == 413
    assert reply.json()["detail"] == "A body has at most 1,000,000 bytes."
    for length in ("9" * 30, "1000001"):
        sent = {**headers, "Content-Length": length}
        assert http.post("/api/v1/people", content=b"{}", headers=sent).status_code == 413
    # Uploads may be larger, but only after the credentials are checked.
    upload = {"Content-Type": "application/zip"}
    reply = http.post("/api/v1/uploads/items", content=body, headers=upload)
    assert reply.status_code == 401
    reply = http.post("/api/v1/uploads/items", content=body, headers={**headers, **upload})
    assert reply.status_code == 422


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "multipart/form-data", ""])
def test_wrong_content_types(http, service, kind):
    headers = {**staff(service, "admin"), "Content-Type": kind}
    reply = http.post("/api/v1/people", content=b'{"name": "x"}', headers=headers)
    assert reply.status_code in (400, 415, 422)
    reply = http.post("/api/v1/uploads/banks", content=b"x", headers=headers)
    assert reply.status_code == 415


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"a": ' * 50_000,
        b"NaN",
        b'{"name": "\\ud800"}',
        b'{"name": "\\u0000"}',
        b'{"name": 1e999}',
        b"9" * 5000,
    ],
)
def test_bodies_that_are_no_json(http, service, body):
    headers = {**staff(service, "admin"), "Content-Type": "application/json"}
    reply = http.post("/api/v1/people", content=body, headers=headers)
    assert reply.status_code in (400, 422)
    assert reply.headers["content-type"] == "application/problem+json"
    reply = http.post(
        "/ims/cat/v1p0/sections",
        content=body,
        headers=client(service) | {"Content-Type": "application/json"},
    )
    assert reply.status_code in (400, 422)
    assert reply.json()["imsx_codeMajor"] == "failure"


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_only_texts(http, service, text):
    headers = staff(service, "admin")
    made = http.post(
        "/api/v1/people", json={"name": text, "email": text, "external": text}, headers=headers
    )
    assert made.status_code == 201
    rows = http.get("/api/v1/people", headers=headers).json()["items"]
    assert {rows[-1][name] for name in ("name", "email", "external")} == {text}
    device = taker(service)
    attempt = device["Authorization"].split()[1].split(".")[0]
    noted = http.post(f"/api/v1/attempts/{attempt}/note", json={"text": text}, headers=headers)
    assert noted.status_code == 204
    events = http.get(f"/api/v1/attempts/{attempt}/events", headers=headers).json()["items"]
    assert events[-1]["details"]["text"] == text.strip()
    for path in ("attempts/{}/result", "tests/{}", "banks/{}", "board?test={}"):
        address = f"/api/v1/{path.format(text.replace('/', '%2F').replace('?', '%3F'))}"
        assert http.get(address, headers=headers).status_code in (404, 422)
    answer = {"number": 1, "response": text}
    sent = {**device, "Idempotency-Key": "k1"}
    assert http.post("/api/v1/take/answers", json=answer, headers=sent).status_code == 409
    reply = http.post("/api/v1/tokens", json={"name": text, "password": text})
    assert reply.status_code == 401
    with service.database.reading():
        assert "attempts" in service.database.tables()


@pytest.mark.slow
def test_errors_name_no_internals(http, service):
    headers = staff(service, "admin")
    for path in ("/api/v1/tests/x", "/api/v1/nothing", "/api/v1/banks/x", "/ims/cat/v1p0/x"):
        reply = http.get(path, headers=headers)
        assert reply.status_code in (401, 404)
        text = reply.text.lower()
        assert not re.search(r"traceback|sqlalchemy|select |/home|/tmp|\.py", text)


def test_headers_of_every_response(app, http, service):
    headers = staff(service, "admin")
    for path in ("/api/v1/me", "/api/v1/nothing", "/api/openapi.json", "/ims/cat/v1p0/sections/x"):
        reply = http.get(path, headers=headers)
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert reply.headers["cache-control"] == "no-store"
        assert "max-age" in reply.headers["strict-transport-security"]
        assert "server" not in reply.headers
    # No other site's script may read anything.
    sent = {**headers, "Origin": "https://evil.example.org"}
    reply = http.get("/api/v1/me", headers=sent)
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.slow
def test_no_error_when_the_database_is_gone(http, service, monkeypatch):
    from irtcat.cat import StoreError

    headers = staff(service, "admin")

    def gone(*_):
        raise StoreError("secret-host: connection refused")

    monkeypatch.setattr(service, "frame", gone)
    reply = http.get("/api/v1/people", headers=headers)
    assert reply.status_code == 503
    assert "secret-host" not in reply.text
    assert json.loads(reply.text)["title"] == "Not available"

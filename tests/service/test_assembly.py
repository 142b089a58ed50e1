"""Parts that few use: a start imports none of them, and they are there when they are asked for."""

import json
import subprocess
import sys

import pytest
from fastapi.testclient import TestClient

from irtcat.service.app import create_app
from irtcat.service.assembly import open_service
from tests.service.helpers import publish

PARTS = (
    "irtcat.service.lti",
    "irtcat.service.api.cat",
    "irtcat.service.accounts.oidc",
    "irtcat.service.api.ratings",
    "irtcat.service.api.webhooks",
    "irtcat.service.attempts.ratings",
    "irtcat.service.outbox.addresses",
    "irtcat.service.outbox.webhooks",
    "irtcat.service.pages.staff.scoring",
    "authlib",
    "joserfc",
)

USED = """
import json, sys, time
from fastapi.testclient import TestClient
from irtcat.service.operations.server import Settings, application
from irtcat.service.attempts.people import issue_ticket
from irtcat.service.storage.context import Service

app = application(Settings(address=sys.argv[1], secure=False))
token = issue_ticket(app.state.service, sys.argv[2], actor="test").token
with TestClient(app) as http:
    started = http.post(f"/api/v1/take/{token}")
    time.sleep(1.2)  # the outboxes were looked into
    pages = [http.get(path).status_code for path in ("/", "/staff/sign-in")]
    modules = sorted(sys.modules)
    late = [http.get("/lti/jwks").status_code, http.post("/oauth/token").status_code]
print(json.dumps([modules, [started.status_code, pages, late]]))
"""


@pytest.mark.slow
def test_a_service_in_use_imports_no_part_that_it_does_not_need(tmp_path):
    path = str(tmp_path / "tests.db")
    with open_service(path, create=True) as service:
        test = publish(service)
    done = subprocess.run(
        [sys.executable, "-c", USED, path, test], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    modules, (started, pages, late) = json.loads(done.stdout)
    assert (started, pages, late) == (200, [200, 200], [200, 400])
    assert [name for name in modules if name.startswith(PARTS)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/lti/configuration", 200),
        ("GET", "/ims/cat/v1p0/unknown", 404),
        ("POST", "/oauth/token", 400),
        ("GET", "/api/v1/webhooks", 401),
        ("GET", "/api/v1/attempts/x/ratings/task?item=a", 401),
        ("GET", "/api/v1/tests/x/ratings", 401),
        ("GET", "/staff/scoring", 200),
        ("GET", "/auth/oidc/login", 404),
    ],
)
def test_a_part_is_there_when_it_is_asked_for(tmp_path, method, path, status):
    with open_service(tmp_path / "tests.db", create=True) as service:
        http = TestClient(create_app(service, secure=False))
        first, second = (http.request(method, path).status_code for _ in range(2))
    assert (first, second) == (status, status)


def test_the_provider_that_the_environment_names_has_routes(tmp_path, monkeypatch):
    monkeypatch.setenv("IRTCAT_OIDC_ISSUER", "https://id.example.org")
    monkeypatch.setenv("IRTCAT_OIDC_CLIENT_ID", "cat")
    with open_service(tmp_path / "tests.db", create=True) as service:
        http = TestClient(create_app(service, secure=False))
        assert "/auth/oidc/login" in http.get("/staff/sign-in").text
        assert http.get("/auth/oidc/callback").status_code == 401

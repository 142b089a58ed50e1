"""Schemathesis over both interfaces: whatever is sent, no response is a server error."""

import os
from collections import Counter
from itertools import cycle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from irtcat.service.accounts import accounts, clients
from irtcat.service.app import create_app
from irtcat.service.assembly import open_service
from irtcat.service.attempts import library, people, taking
from irtcat.service.attempts.adaptive_sections import begin_session, create_section
from tests.service.helpers import bank, definition, items
from tests.service.test_cat_api import encoded

schemathesis = pytest.importorskip("schemathesis", reason="make test-service installs it")

EXAMPLES = int(os.environ.get("IRTCAT_FUZZ_EXAMPLES", "120"))
"""Requests of each kind, valid and invalid, for each operation: more than 10,000 in all."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of the libraries that schemathesis uses
]


class Target:
    """A service with a test, an attempt, a section, and credentials of all kinds."""

    def __init__(self, address):
        self.service = open_service(address, create=True)
        self.test, _ = library.publish(
            self.service, definition(), bank(), items(), actor="test", n_simulated=20
        )
        self.retired, _ = library.publish(
            self.service, definition(version="2"), bank(), items(), actor="test", n_simulated=20
        )
        self.account = accounts.add_account(
            self.service, "root", password="x" * 12, roles=["admin"], actor="test"
        )
        self.client, secret = clients.add_client(self.service, "x", actor="test")
        self.access, _ = clients.access_token(self.service, self.client, secret, "")
        self.staff = accounts.issue_token(self.service, self.account)
        self.bank = library.bank_hashes(self.service)[0]
        self.renew()
        self.app = create_app(self.service)
        self.statuses, self.failures = Counter(), []

    def renew(self):
        """New objects, since a request may have ended those before."""
        ticket = people.issue_ticket(self.service, self.test, actor="test")
        started = taking.begin(self.service, ticket.token)
        document = {
            "sectionConfiguration": encoded({"bank": self.bank, "config": {"max_items": 3}})
        }
        section = create_section(self.service, self.client, document)
        session = begin_session(self.service, self.client, section).session
        self.device = started.token
        self.ids = {
            "attempt": started.attempt,
            "test": self.test,
            "bank": self.bank,
            "person": ticket.person,
            "ticket": ticket.id,
            "section": section,
            "session": session,
        }

    def token(self, path):
        if path.startswith("/ims/"):
            return self.access
        if path.startswith("/api/v1/take/"):
            return self.device
        if path == "/api/v1/tokens/current":
            return accounts.issue_token(self.service, self.account)
        return self.staff

    def send(self, operation, case, use_known):
        """Send a request; note its status, and what failed."""
        if use_known:
            for name in case.path_parameters or {}:
                if name in self.ids:
                    case.path_parameters[name] = self.ids[name]
            if operation.path.endswith("/retire"):
                case.path_parameters["test"] = self.retired
        headers = {"Authorization": f"Bearer {self.token(operation.path)}"}
        response = case.call(headers=headers)
        self.statuses[response.status_code] += 1
        if response.status_code >= 500:
            self.failures.append(
                f"{operation.label} {case.path_parameters} {case.query} {case.body!r:.300}"
                f"\n{response.status_code} {response.text:.300}"
            )


OPTIONS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def fuzzed(target, operation, mode):
    """Requests of one kind to an operation; two of three with ids that exist."""
    known = cycle([True, True, False])

    @OPTIONS
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case):
        target.send(operation, case, next(known))

    send()


def test_no_server_errors(address):
    target = Target(address)
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", target.app)
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode:
            target.renew()
            try:
                fuzzed(target, operation, mode)
            except Unsatisfiable:
                continue  # nothing invalid can be sent to an operation without parameters
    n_requests = sum(target.statuses.values())
    print(f"{n_requests} requests: {dict(target.statuses)}")
    assert not target.failures, "\n\n".join(target.failures[:20])
    assert EXAMPLES < 100 or n_requests > 10_000

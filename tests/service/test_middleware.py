"""The middleware of the application: what a request passes, and in which order."""

import logging

import pytest
from fastapi.testclient import TestClient
from prometheus_client.registry import REGISTRY

from irtcat import InputError
from irtcat.service.app import create_app
from irtcat.service.assembly import open_service
from irtcat.service.base.limits import ADDRESS
from irtcat.service.middleware import MOST_BODY


@pytest.fixture
def service(database):
    with open_service(database, create=True) as opened:
        yield opened


def client(service, **options):
    return TestClient(create_app(service, **options), base_url="https://testserver")


def refused(service, **options):
    """The response to a wrong password when an address had as many as it may have.

    More attempts are allowed while they are made: on a busy machine, some ten or twenty.
    """
    http = client(service, **options)
    for n in range(2 * int(ADDRESS.burst)):  # an account has a limit of its own
        body = {"name": f"ada{n}", "password": "wrong words here"}
        response = http.post("/api/v1/tokens", json=body)
        if response.status_code == 429:
            break
    return response


def n_requests(status):
    labels = {"method": "POST", "route": "(unknown)", "status": status}
    return REGISTRY.get_sample_value("irtcat_requests_total", labels) or 0


@pytest.mark.slow
def test_what_the_rate_limits_refuse_is_observed_and_has_the_headers_of_all_responses(
    service, caplog
):
    before = n_requests("429")
    with caplog.at_level(logging.INFO, logger="irtcat.access"):
        response = refused(service, observed=True, limited=True)
    assert response.status_code == 429
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert n_requests("429") == before + 1
    (line,) = (line for line in caplog.records if line.status == 429)
    assert (line.method, line.route, line.request) == ("POST", "(unknown)", "")


@pytest.mark.slow
def test_an_application_without_them_neither_limits_nor_observes(service, caplog):
    with caplog.at_level(logging.INFO, logger="irtcat.access"):
        response = refused(service)
    assert response.status_code == 401
    assert "irtcat.access" not in {line.name for line in caplog.records}


def test_links_and_addresses_are_those_of_the_public_url_whatever_a_request_says(service):
    http = client(service, url="https://tests.example.org/")
    wrong = {"host": "evil.example", "x-forwarded-host": "evil.example"}
    configuration = http.get("/lti/configuration", headers=wrong).text
    assert "https://tests.example.org/lti/launch" in configuration
    assert "evil" not in configuration
    assert "evil.example/lti" in client(service).get("/lti/configuration", headers=wrong).text


@pytest.mark.parametrize(
    "url",
    [
        "tests.example.org",
        "ftp://a.example",
        "https://a.example/tests",
        "https://u@a.example",
        "https://[",
        "https://a.example:x",
        "https://a.example?x",
    ],
)
def test_addresses_that_are_no_public_url(service, url):
    with pytest.raises(InputError, match="The `url` argument must be an address such as"):
        create_app(service, url=url)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long_gets_a_response_with_all_headers(service, chunked):
    data = b"x" * (MOST_BODY + 1)
    content = iter([data]) if chunked else data
    response = client(service).post("/api/v1/tokens", content=content)
    assert response.status_code == 413
    assert len(response.headers["x-request-id"]) == 32
    assert response.headers["x-frame-options"] == "DENY"
    assert "strict-transport-security" in response.headers
    plain = client(service, secure=False).get("/health/live")
    assert "strict-transport-security" not in plain.headers

"""LTI 1.3: launches by a platform that the tests run, and grades that go back to it."""

import base64
import hmac
import json
import re

import httpx
import lxml.html as lxml_html
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey
from typer.testing import CliRunner

from irtcat._common.checks import InputError
from irtcat.cli._app import app as cli
from irtcat.service.app import create_app
from irtcat.service.attempts import library, people, proctoring, taking
from irtcat.service.attempts.attempt import attempt_of, opened
from irtcat.service.attempts.taking import attempt_key
from irtcat.service.base.errors import ConflictError, NotFoundError
from irtcat.service.lti import platforms as registered
from irtcat.service.lti.attempts import _comment, send_again, send_due
from irtcat.service.lti.connection import Connection, PlatformError
from irtcat.service.lti.platforms import add_platform
from irtcat.service.operations.background import end_due
from irtcat.service.outbox.audit import audit_entries
from irtcat.service.outbox.sending import PAUSES
from irtcat.service.storage import tables
from tests.service.helpers import publish
from tests.service.lms import (
    CLAIM,
    CLIENT,
    DEEP_LINKING,
    DEPLOYMENT,
    GRADES,
    ISSUER,
    LINE_ITEM,
    ROLE,
    SCORE,
    TOOL,
    URLS,
    Lms,
    Person,
    new_key,
)


@pytest.fixture
def lms(clock):
    return Lms(clock)


def register(service, **changes):
    fields = {"name": "LMS", "issuer": ISSUER, "client_id": CLIENT, "deployments": [DEPLOYMENT]}
    return add_platform(service, **{**fields, **URLS, **changes}, actor="test")


@pytest.fixture
def platform(service):
    return register(service)


@pytest.fixture
def app(service, lms, clock):
    made = create_app(service)
    made.state.lti = Connection(service, lms.transport, seconds=lambda: clock()[1])
    return made


@pytest.fixture
def browser(app, lms, platform):
    """Makes the browsers of people."""
    return lambda: Person(app, lms)


@pytest.fixture
def person(browser):
    return browser()


def attempts(service):
    return [row[0] for row in service.rows(tables.lti_attempts.select())]


def logged(service, attempt):
    """The events of an attempt's log, verified."""
    with service.database.reading():
        return proctoring.attempt_events(service, attempt)


def state_of_grade(service):
    [row] = service.rows(tables.lti_attempts.select())
    return row.grade


def device_cookie(person):
    """Name and value of the newest cookie of a device in a browser."""
    [*_, cookie] = [c for c in person.client.cookies.items() if c[0].startswith("irtcat_device_")]
    return cookie


def test_page(person):
    """The address of the newest test in a browser."""
    return f"/test/{attempt_key(device_cookie(person)[1].split('.')[0])}"


test_page.__test__ = False


def take(service, person, right=2):
    """Finish the test that a browser has; the first answers are right."""
    attempt, device = device_cookie(person)[1].split(".")

    def act(action, **options):
        return getattr(taking, action)(service, attempt, device, lambda name: name, **options)

    view, n = act("current"), 0
    while view["page"] not in ("finished", "waiting"):
        item = view["item"]
        if item is None:
            view = act("proceed")
            continue
        wanted = "B" if n < right else "A"
        name = next(c["id"] for c in item["choices"] if c["content"].endswith(wanted))
        view, n = act("answer", number=item["number"], response=name), n + 1
    return attempt, view


# Login and launch


@pytest.mark.slow
def test_login_goes_to_the_platform(person):
    sent = person.login()
    assert sent["client_id"] == CLIENT
    assert sent["redirect_uri"] == f"{TOOL}/lti/launch"
    assert sent["login_hint"] == "hint"
    assert sent["lti_message_hint"] == "message hint"
    fixed = {"scope": "openid", "response_type": "id_token", "response_mode": "form_post"}
    assert fixed.items() <= sent.items()
    assert sent["prompt"] == "none"
    other = person.login()
    assert {sent["state"], sent["nonce"]}.isdisjoint({other["state"], other["nonce"]})
    response = person.client.get(
        "/lti/login", params={"iss": ISSUER, "login_hint": "x"}, follow_redirects=False
    )
    assert response.status_code == 303
    cookie = response.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "Secure", "SameSite=lax", "Path=/lti"))


def test_logins_that_are_refused(person, service):
    for changes in (
        {"iss": "https://other.example"},
        {"client_id": "another"},
        {"iss": ""},
        {"login_hint": ""},
        {"target_link_uri": "https://elsewhere.example/lti/launch"},
    ):
        fields = {"iss": ISSUER, "client_id": CLIENT, "login_hint": "x"} | changes
        response = person.client.post("/lti/login", data=fields, follow_redirects=False)
        assert response.status_code == 403, changes
        assert "location" not in response.headers
    assert not service.rows(tables.lti_launches.select())


@pytest.mark.slow
def test_an_issuer_with_two_clients_needs_the_client_id(person, service):
    register(service, client_id="client-2")
    fields = {"iss": ISSUER, "login_hint": "x"}
    assert person.client.get("/lti/login", params=fields).status_code == 403
    assert person.login()["client_id"] == CLIENT


@pytest.mark.slow
def test_learner_takes_the_test_and_the_grade_goes_back(person, service, published, lms, app):
    page = person.launch(published)
    assert page.status_code == 200
    assert "Small test" in page.text
    assert "Start the test" in page.text
    assert not attempts(service)  # opening the page begins nothing
    response = person.start(page)
    assert response.status_code == 303
    assert response.headers["location"] == test_page(person)
    assert "SameSite=strict" in response.headers["set-cookie"]
    assert "Read" in person.client.get(test_page(person)).text
    [attempt] = attempts(service)
    assert send_due(app.state.lti) == 0
    _, view = take(service, person)
    assert state_of_grade(service) == "waiting"
    assert send_due(app.state.lti) == 1
    [score] = lms.scores
    shown = view["report"]["score"]
    assert score["scoreGiven"] == pytest.approx(100 * (shown - 200) / 600, abs=1e-4)
    assert score["scoreMaximum"] == 100
    assert (score["activityProgress"], score["gradingProgress"]) == ("Completed", "FullyGraded")
    assert score["userId"] == "user-1"
    assert score["comment"].startswith(f"{shown:g} (")
    assert re.fullmatch(r"2026-11-23T[\d:]+\.\d{3}\+00:00", score["timestamp"])
    assert state_of_grade(service) == "sent"
    assert send_due(app.state.lti) == 0
    external = service.scalar(tables.people.select().with_only_columns(tables.people.c.external))
    assert external == f"{ISSUER}|user-1"
    assert list(people.people_table(service)["name"]) == [""]
    log = json.dumps(logged(service, attempt))
    assert "user-1" not in log
    assert "user-1" not in audit_entries(service, verified=True).to_json()


@pytest.mark.slow
def test_a_second_launch_continues_the_attempt(browser, service, published):
    first, second = browser(), browser()
    first.start(first.launch(published))
    again = first.launch(published)
    assert "Continue the test" in again.text
    before = device_cookie(first)
    assert first.start(again).headers["location"] == test_page(first)
    assert device_cookie(first) == before  # the device that has it keeps it
    second.start(second.launch(published))
    [attempt] = attempts(service)
    assert second.client.get(test_page(second)).status_code == 200
    assert first.client.get(test_page(first)).status_code == 401
    events = logged(service, attempt)
    assert [event["kind"] for event in events].count("device") == 1
    other = browser()
    other.start(other.launch(published, sub="user-2"))
    other.start(other.launch(published, sub="user-2", resource_link={"id": "link-2"}))
    assert len(set(attempts(service))) == 3
    assert len(people.people_table(service)) == 2


@pytest.mark.slow
def test_two_launches_in_one_browser(person, service, published):
    """An answer in the first tab is recorded in its attempt, not in that of the second launch."""
    place = person.start(person.launch(published)).headers["location"]
    other = person.launch(published, resource_link={"id": "link-2", "title": "Week 2"})
    assert person.start(other).headers["location"] != place
    assert len(attempts(service)) == 2
    first = next(name for name in attempts(service) if place == f"/test/{attempt_key(name)}")
    before = {name: len(logged(service, name)) for name in attempts(service)}
    form = lxml_html.fromstring(person.client.get(place).text).forms[0]
    person.client.post(form.get("action"), data=dict(form.fields))
    after = {name: len(logged(service, name)) for name in attempts(service)}
    assert {name for name in after if after[name] > before[name]} == {first}


@pytest.mark.slow
def test_a_finished_attempt_shows_its_result_again(browser, service, published):
    person = browser()
    person.start(person.launch(published))
    take(service, person)
    elsewhere = browser()
    page = elsewhere.launch(published)
    assert "You have finished this test." in page.text
    elsewhere.start(page)
    [attempt] = attempts(service)
    assert elsewhere.client.get(test_page(elsewhere)).status_code == 200
    assert logged(service, attempt)[-1]["kind"] == "finish"


def test_a_voided_attempt_is_not_begun_again(person, service, published):
    page = person.launch(published)
    person.start(page)
    [attempt] = attempts(service)
    proctoring.void(service, attempt, actor="test", reason="cheating")
    assert "was ended by the staff" in person.launch(published).text
    del person.client.cookies[device_cookie(person)[0]]
    assert person.start(page).status_code == 410
    assert attempts(service) == [attempt]


def test_instructor_sees_a_summary(browser, service, published):
    learner, teacher = browser(), browser()
    learner.start(learner.launch(published))
    page = teacher.launch(published, sub="teacher", roles=[f"{ROLE}Instructor"])
    assert page.status_code == 200
    assert f'href="/staff/tests/{published}/results"' in page.text
    assert re.search(r"Attempts under way</dt><dd>1<", page.text)
    token = learner.launch(published)
    forged = {"token": token.text.split('name="token" value="')[1].split('"')[0]}
    response = teacher.client.post(teacher.page, data=forged)
    assert response.status_code == 403
    assert len(attempts(service)) == 1


@pytest.mark.slow
def test_people_without_a_role_in_the_course_are_refused(person, published, service):
    institution = "http://purl.imsglobal.org/vocab/lis/v2/institution/person#Instructor"
    for roles in ([], None, [f"{ROLE}Mentor"], [institution], "Learner", [{"role": "Learner"}]):
        assert person.launch(published, roles=roles).status_code == 403, roles
    assert not attempts(service)


@pytest.mark.slow
def test_accommodations_come_from_the_custom_parameters(person, service, published):
    custom = {"accommodations": "extra_time_50, pause", "other": "$User.id"}
    person.start(person.launch(published, custom))
    [attempt] = attempts(service)
    head = attempt_of(service, attempt).head
    assert head["accommodations"] == ["extra_time_50", "pause"]


@pytest.mark.slow
def test_accommodations_that_the_test_does_not_allow(person, service, published):
    page = person.launch(published, {"accommodations": "untimed"})
    response = person.start(page)
    assert response.status_code == 403
    assert "accommodations" in response.text
    assert not attempts(service)


@pytest.mark.slow
def test_links_without_a_test(person):
    for test in (None, "test_unknown", "$Canvas.x"):
        assert person.launch(test).status_code == 403, test


@pytest.mark.slow
def test_a_platform_may_be_limited_to_some_tests(person, service, published, platform):
    other = publish(service, title="Another test")
    registered.change_platform(service, platform.id, actor="test", tests=[other])
    response = person.launch(published)
    assert response.status_code == 403
    assert "may not open" in response.text
    assert person.launch(other).status_code == 200


def test_a_closed_test_takes_no_new_attempts(person, service, published):
    page = person.launch(published)
    library.retire(service, published, actor="test")
    assert person.start(page).status_code == 409
    assert not attempts(service)


# Messages that are not accepted


@pytest.mark.slow
def test_a_message_is_accepted_once(person, service, published, lms):
    sent = person.login()
    token = lms.signed(lms.claims(sent["nonce"], custom={"test": published}))
    assert person.post(sent["state"], token).status_code == 303
    assert person.post(sent["state"], token).status_code == 403  # the state was used
    other = person.login()
    refused = person.post(other["state"], token)  # the nonce is that of another login
    assert refused.status_code == 403
    assert "invalid_claim nonce" in refused.text
    good = lms.signed(lms.claims(other["nonce"], custom={"test": published}))
    assert person.post(other["state"], good).status_code == 403  # one message per login
    assert person.post("", token).status_code == 403
    assert person.post("unknown", token).status_code == 403


WRONG_CLAIMS = [
    ({"iss": "https://other.example"}, "iss"),
    ({"aud": "another"}, "aud"),
    ({"aud": ["another", "third"]}, "aud"),
    ({"aud": [CLIENT, "another"]}, "azp"),
    ({"aud": [CLIENT, "another"], "azp": "another"}, "azp"),
    ({"azp": "another"}, "azp"),
    ({"aud": None}, "missing_claim aud"),
    ({"deployment_id": "another"}, "deployment"),
    ({"deployment_id": None}, "deployment"),
    ({"deployment_id": [DEPLOYMENT]}, "deployment"),
    ({"exp": 1}, "expired_token"),
    ({"exp": None}, "missing_claim exp"),
    ({"exp": "never"}, "exp"),
    ({"iat": 4_000_000_000}, "iat"),
    ({"iat": None}, "missing_claim iat"),
    ({"nonce": "guessed"}, "nonce"),
    ({"nonce": None}, "missing_claim nonce"),
    ({"sub": None}, "missing_claim sub"),
    ({"sub": 5}, "invalid_claim sub"),
    ({"sub": "a\nb"}, "who opened"),
    ({"sub": "x" * 300}, "who opened"),
    ({"version": "1.1"}, "1.3.0"),
    ({"message_type": "LtiSubmissionReviewRequest"}, "neither"),
    ({"resource_link": None}, "resource_link"),
    ({"resource_link": "link-1"}, "resource_link"),
]


@pytest.mark.slow
def test_messages_with_wrong_claims(person, service, published):
    for changes, reason in WRONG_CLAIMS:
        response = person.launch(published, **changes)
        assert response.status_code == 403, changes
        assert reason in response.text, changes
    assert not service.rows(tables.lti_launches.select())


@pytest.mark.slow
def test_several_audiences_with_the_authorized_party(person, published):
    assert person.launch(published, aud=[CLIENT, "another"], azp=CLIENT).status_code == 200


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(claims, **header):
    """A message without its last part; libraries refuse to make some of these."""
    parts = ({"typ": "JWT"} | header, claims)
    return ".".join(encoded(json.dumps(part).encode()) for part in parts)


@pytest.mark.slow
def test_messages_with_wrong_signatures(person, published, lms):
    foreign = new_key()  # with the name of the platform's key
    public = lms.key.as_pem(private=False)

    def hs256(claims):
        """Signed with the public key as a shared secret."""
        text = unsigned(claims, alg="HS256", kid="key-1")
        return f"{text}.{encoded(hmac.digest(public, text.encode(), 'sha256'))}"

    def carried(claims):
        """Signed by a key that the message itself carries."""
        return lms.signed(claims, key=foreign, jwk=foreign.as_dict(private=False))

    def linked(claims):
        return lms.signed(claims, key=foreign, jku="https://attacker.example/keys")

    def changed(claims):
        head, _, tail = lms.signed(claims).split(".")
        body = encoded(json.dumps({**claims, "sub": "user-2"}).encode())
        return f"{head}.{body}.{tail}"

    ways = [
        lambda claims: unsigned(claims, alg="none") + ".",
        lambda claims: unsigned(claims, alg="none", kid="key-1") + ".",
        hs256,
        carried,
        linked,
        changed,
        lambda claims: lms.signed(claims, key=foreign),
        lambda claims: lms.signed(claims, key=new_key("unknown")),
        lambda claims: "not a token",
        lambda claims: "a.b.c",
        lambda claims: "x" * 300_000,
        lambda claims: "",
    ]
    for way in ways:
        sent = person.login()
        claims = lms.claims(sent["nonce"], custom={"test": published})
        response = person.post(sent["state"], way(claims))
        assert response.status_code == 403, way
    assert {request for request in lms.requests} == {"GET /keys"}


@pytest.mark.slow
def test_a_symmetric_key_among_the_public_ones_is_not_used(person, published, lms):
    shared = OctKey.import_key("a-shared-key-that-everybody-knows", {"kid": "shared"})
    lms.published = [shared, lms.key]
    sent = person.login()
    claims = lms.claims(sent["nonce"])
    token = jwt.encode({"alg": "HS256", "kid": "shared"}, claims, shared, algorithms=["HS256"])
    assert person.post(sent["state"], token).status_code == 403
    assert person.launch(published).status_code == 200


@pytest.mark.slow
def test_the_platform_changes_its_key(person, published, lms, clock):
    assert person.launch(published).status_code == 200
    lms.key = new_key("key-2")
    lms.published = [lms.key]
    assert person.launch(published).status_code == 403  # keys were read just now
    clock.move(31)
    assert person.launch(published).status_code == 200
    assert lms.requests.count("GET /keys") == 2


@pytest.mark.slow
def test_the_platform_is_away(person, published, lms):
    lms.published = []
    response = person.launch(published)
    assert response.status_code == 403
    assert "public keys" in response.text


@pytest.mark.slow
def test_another_browser_cannot_use_a_launch(browser, published, service):
    person, other = browser(), browser()
    page = person.launch(published)
    assert page.status_code == 200
    refused = other.client.get(person.page)
    assert refused.status_code == 403
    assert "browser" in refused.text
    other.page = person.page
    token = other.launch(published, sub="user-2")
    other.page = person.page
    assert other.start(token).status_code == 403
    assert not attempts(service)


@pytest.mark.slow
def test_logins_and_launches_end(person, service, published, lms, clock):
    sent = person.login()
    clock.move(601)
    token = lms.signed(lms.claims(sent["nonce"], custom={"test": published}))
    assert person.post(sent["state"], token).status_code == 403
    assert person.launch(published).status_code == 200
    clock.move(3601)
    assert person.client.get(person.page).status_code == 403
    person.login()
    assert len(service.rows(tables.lti_launches.select())) == 1  # old ones are deleted


@pytest.mark.slow
def test_the_button_needs_the_token_of_the_form(person, published, service):
    person.launch(published)
    assert person.client.post(person.page, data={}).status_code == 403
    assert person.client.post(person.page, data={"token": "x"}).status_code == 403
    assert not attempts(service)


@pytest.mark.slow
def test_errors_of_the_platform_and_links_outside(person):
    response = person.client.post("/lti/launch", data={"error": "login_<b>required", "state": "x"})
    assert response.status_code == 403
    assert "login_&lt;b&gt;required" in response.text
    assert person.client.get("/lti/launch").status_code == 403
    assert person.client.get("/lti/open/unknown").status_code == 403


def test_a_closed_platform_opens_nothing(person, service, published, platform, lms):
    sent = person.login()
    registered.change_platform(service, platform.id, actor="test", status="closed")
    token = lms.signed(lms.claims(sent["nonce"], custom={"test": published}))
    assert person.post(sent["state"], token).status_code == 403
    assert person.client.get("/lti/login", params={"iss": ISSUER, "login_hint": "x"}).status_code
    assert not service.rows(tables.lti_launches.select())


# Choosing a test


def choosing(person, **changes):
    settings = {
        "deep_link_return_url": f"{ISSUER}/return?id=4",
        "accept_types": ["link", "ltiResourceLink"],
        "accept_presentation_document_targets": ["window"],
        "data": "opaque",
    } | changes
    return person.launch(
        message_type="LtiDeepLinkingRequest",
        resource_link=None,
        roles=[f"{ROLE}Instructor"],
        **{f"{DEEP_LINKING}deep_linking_settings": settings},
    )


def test_an_instructor_chooses_a_test(person, service, published, lms):
    page = choosing(person)
    assert page.status_code == 200
    assert f'action="{ISSUER}/return?id=4"' in page.text
    assert f"form-action {ISSUER};" in page.headers["content-security-policy"]
    token = page.text.split('name="JWT" value="')[1].split('"')[0]
    keys = KeySet.import_key_set(lms.tool_keys)
    claims = jwt.decode(token, keys, algorithms=["RS256"]).claims
    assert (claims["iss"], claims["aud"]) == (CLIENT, ISSUER)
    assert claims[f"{CLAIM}deployment_id"] == DEPLOYMENT
    assert claims[f"{CLAIM}message_type"] == "LtiDeepLinkingResponse"
    assert claims[f"{DEEP_LINKING}data"] == "opaque"
    [item] = claims[f"{DEEP_LINKING}content_items"]
    assert item["custom"] == {"test": published}
    assert item["url"] == f"{TOOL}/lti/launch"
    assert item["lineItem"]["scoreMaximum"] == 100
    assert person.launch(item["custom"]["test"]).status_code == 200
    library.retire(service, published, actor="test")
    assert 'name="JWT"' not in choosing(person).text


@pytest.mark.slow
def test_choices_that_are_refused(person, published):
    assert choosing(person, deep_link_return_url="http://lms.example/return").status_code == 403
    assert choosing(person, deep_link_return_url="javascript:alert(1)").status_code == 403
    assert choosing(person, accept_types=["link"]).status_code == 403
    settings = {"deep_link_return_url": f"{ISSUER}/return", "accept_types": ["ltiResourceLink"]}
    response = person.launch(
        message_type="LtiDeepLinkingRequest", **{f"{DEEP_LINKING}deep_linking_settings": settings}
    )
    assert response.status_code == 403


# Grades


def finished(service, person, published, **changes):
    person.start(person.launch(published, **changes))
    return take(service, person)[0]


@pytest.mark.slow
def test_a_platform_that_fails_is_asked_again(person, service, published, lms, app, clock):
    finished(service, person, published)
    lms.answers = [500, 503, 429]
    assert send_due(app.state.lti) == 0
    assert send_due(app.state.lti) == 0  # not due yet
    assert lms.answers == [503, 429]
    for seconds in PAUSES[:2]:
        clock.move(seconds - 1)
        send_due(app.state.lti)
        waiting = len(lms.answers)
        clock.move(2)
        send_due(app.state.lti)
        assert len(lms.answers) == waiting - 1
    assert not lms.scores
    clock.move(PAUSES[2])
    assert send_due(app.state.lti) == 1
    assert len(lms.scores) == 1


@pytest.mark.slow
def test_a_grade_fails_in_the_end_and_can_be_sent_again(
    person, service, published, lms, app, clock, platform
):
    finished(service, person, published)
    lms.answers = [500] * (len(PAUSES) + 1)
    for seconds in (0, *PAUSES):
        clock.move(seconds)
        assert send_due(app.state.lti) == 0
    assert not lms.answers
    assert state_of_grade(service) == "failed"
    clock.move(10**6)
    assert send_due(app.state.lti) == 0
    assert int(registered.platforms(service)["failed"].iloc[0]) == 1
    assert send_again(service, platform.id) == 1
    assert send_due(app.state.lti) == 1


@pytest.mark.slow
def test_a_refused_grade_is_not_repeated(person, service, published, lms, app):
    finished(service, person, published)
    lms.answers = [422]
    assert send_due(app.state.lti) == 0
    assert state_of_grade(service) == "failed"


@pytest.mark.slow
def test_an_access_token_that_ended_is_replaced(person, service, published, lms, app, clock):
    finished(service, person, published)
    send_due(app.state.lti)
    finished(service, person, published, sub="user-2")
    lms.token = "token-2"
    assert send_due(app.state.lti) == 0  # refused with the old token
    clock.move(PAUSES[0])
    assert send_due(app.state.lti) == 1
    assert len(lms.assertions) == len(set(lms.assertions)) == 2
    assert [score["userId"] for score in lms.scores] == ["user-1", "user-2"]


@pytest.mark.slow
def test_two_processes_send_a_grade_once(person, service, published, lms, app):
    finished(service, person, published)
    inner = []

    def during(request):
        if request.url.path.endswith("/scores"):
            inner.append(send_due(app.state.lti))
        return lms.transport.handle_request(request)

    assert send_due(Connection(service, httpx.MockTransport(during))) == 1
    assert inner == [0]
    assert len(lms.scores) == 1


@pytest.mark.slow
def test_a_change_while_a_grade_is_sent_is_sent_as_well(person, service, published, lms, clock):
    attempt = finished(service, person, published)

    def during(request):
        if request.url.path.endswith("/scores") and not lms.scores:
            clock.move(1)
            proctoring.void(service, attempt, actor="test", reason="cheating")
        return lms.transport.handle_request(request)

    connection = Connection(service, httpx.MockTransport(during))
    send_due(connection)
    assert state_of_grade(service) == "waiting"
    assert send_due(connection) == 1
    first, second = lms.scores
    assert "scoreGiven" in first
    assert "scoreGiven" not in second
    assert (second["activityProgress"], second["gradingProgress"]) == ("Initialized", "NotReady")
    assert second["timestamp"] > first["timestamp"]


@pytest.mark.slow
def test_the_grade_of_an_attempt_out_of_time_is_sent(person, service, published, lms, app, clock):
    person.start(person.launch(published))
    clock.move(3600)
    end_due(service)
    assert state_of_grade(service) == "waiting"
    assert send_due(app.state.lti) == 1
    assert lms.scores[-1]["activityProgress"] == "Completed"


def test_a_comment_has_all_digits_of_the_score():
    report = {"score": 12345.67, "lower": 12300.0, "upper": 1234567.25}
    assert _comment(report) == "12345.67 (12300 to 1234567.25)"


def test_an_attempt_that_is_reopened_has_no_grade_until_its_end(
    person, service, published, lms, app, clock
):
    person.start(person.launch(published))
    attempt, device = device_cookie(person)[1].split(".")
    clock.move(601)
    assert taking.current(service, attempt, device, str)["page"] == "finished"
    assert send_due(app.state.lti) == 1
    clock.move(1)
    proctoring.reopen(service, attempt, actor="test", reason="network", seconds=60)
    send_due(app.state.lti)
    assert lms.scores[-1]["activityProgress"] == "InProgress"
    assert "scoreGiven" not in lms.scores[-1]


@pytest.mark.slow
def test_people_have_to_score_first(person, service, published, lms, app, clock, monkeypatch):
    attempt = finished(service, person, published)
    name = next(iter(attempt_of(service, attempt).progress.answers))
    from irtcat.service.lti import attempts

    monkeypatch.setattr(attempts, "waiting_items", lambda attempt: [name])
    send_due(app.state.lti)
    assert lms.scores[-1]["gradingProgress"] == "PendingManual"
    assert "scoreGiven" not in lms.scores[-1]
    monkeypatch.undo()
    clock.move(1)
    with opened(service, attempt, actor="account:rater") as it:
        it.add("rating", item=name, code=1)
    assert send_due(app.state.lti) == 1
    assert lms.scores[-1]["gradingProgress"] == "FullyGraded"
    assert lms.scores[-1]["timestamp"] > lms.scores[0]["timestamp"]


@pytest.mark.slow
def test_an_erased_person_is_not_sent(person, service, published, lms, app):
    attempt = finished(service, person, published)
    people.erase(service, attempt_of(service, attempt).head["person"], actor="test")
    assert send_due(app.state.lti) == 0
    assert state_of_grade(service) == "failed"
    assert not [request for request in lms.requests if "scores" in request]


@pytest.mark.slow
def test_courses_that_take_no_grades(person, service, published, app):
    claims = [
        None,
        {"scope": [], "lineitem": LINE_ITEM},
        {"scope": [SCORE]},
        {"scope": [SCORE], "lineitem": "http://lms.example/lineitems/7"},
        "text",
    ]
    for n, claim in enumerate(claims):
        person.start(person.launch(published, sub=f"user-{n}", **{GRADES: claim}))
    take(service, person)
    assert {row.grade for row in service.rows(tables.lti_attempts.select())} == {""}
    assert send_due(app.state.lti) == 0
    page = person.launch(published, roles=[f"{ROLE}Instructor"], **{GRADES: None})
    assert "accepts no grades" in page.text


@pytest.mark.slow
def test_a_gradebook_that_is_set_up_later_gets_the_grade(person, service, published, lms, app):
    page = person.launch(published, **{GRADES: None})
    person.start(page)
    take(service, person)
    del person.client.cookies[device_cookie(person)[0]]
    person.start(person.launch(published))
    assert send_due(app.state.lti) == 1


def test_line_items_inside_the_own_network_get_nothing(
    person, service, published, platform, lms, app
):
    connection = app.state.lti
    for host in ("127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "[::ffff:10.0.0.1]"):
        with pytest.raises(PlatformError, match="private address"):
            connection.post_score(platform, f"https://{host}/lineitems/7", {})
    with pytest.raises(PlatformError, match="no https"):
        connection.post_score(platform, "http://lms.example/lineitems/7", {})
    assert not lms.requests
    claim = {"scope": [SCORE], "lineitem": "https://10.0.0.1/lineitems/7"}
    finished(service, person, published, **{GRADES: claim})
    assert send_due(connection) == 0
    assert state_of_grade(service) == "waiting"
    assert not [request for request in lms.requests if "lineitems" in request]


def test_grades_are_sent_while_the_application_runs(person, service, published, lms, app):
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from irtcat.service.operations.server import OUTBOXES, sending

    finished(service, person, published)

    async def run():
        async with sending(*OUTBOXES[1])(app):
            for _ in range(100):
                await asyncio.sleep(0.1)
                if lms.scores:
                    return

    with ThreadPoolExecutor(1) as pool:  # a browser's tests leave a loop running in this thread
        pool.submit(asyncio.run, run()).result()
    assert len(lms.scores) == 1


# Platforms and keys


@pytest.mark.slow
def test_public_keys_hold_nothing_secret(person, service, app):
    [key] = person.client.get("/lti/jwks").json()["keys"]
    assert set(key) <= {"kty", "n", "e", "kid", "use", "alg"}
    assert person.client.get("/lti/jwks").json()["keys"] == [key]
    document = person.client.get("/lti/configuration").json()
    assert document["oidc_initiation_url"] == f"{TOOL}/lti/login"
    assert document["public_jwk_url"] == f"{TOOL}/lti/jwks"


def test_platforms_that_are_refused(service):
    wrong = [
        ({"issuer": "lms"}, "issuer"),
        ({"auth_url": "http://lms.example/auth"}, "auth_url"),
        ({"token_url": "https://user:password@lms.example/"}, "token_url"),
        ({"jwks_url": "file:///etc/passwd"}, "jwks_url"),
        ({"client_id": ""}, "client_id"),
        ({"client_id": "x" * 300}, "client_id"),
        ({"deployments": []}, "deployments"),
        ({"deployments": ["a\nb"]}, "deployments"),
        ({"name": " "}, "name"),
        ({"origin": "https://lms.example/path"}, "origin"),
        ({"origin": "https://lms.example;script-src *"}, "origin"),
        ({"origin": "*"}, "origin"),
    ]
    for changes, field in wrong:
        with pytest.raises(InputError, match=f"`{field}` argument must be"):
            register(service, **changes)
    assert registered.platforms(service).empty


@pytest.mark.parametrize("host", ["10.0.0.8", "[::ffff:10.0.0.8]", "[fec0::1]", "[64:ff9b::a00:1]"])
def test_private_addresses_of_platforms(service, host):
    """They are refused when they are saved, unless it is said that they may be."""
    urls = {"jwks_url": f"https://{host}/keys"}
    with pytest.raises(
        InputError, match=r"`jwks_url` argument must be a public address .*--private"
    ):
        register(service, **urls)
    added = register(service, **urls, private=True)
    registered.change_platform(service, added.id, actor="test", status="closed")
    with pytest.raises(InputError, match="`token_url` argument must be a public address"):
        registered.change_platform(
            service,
            added.id,
            actor="test",
            token_url=f"https://{host}/t",
            jwks_url=URLS["jwks_url"],
        )
    registered.change_platform(
        service, added.id, actor="test", token_url="http://localhost:8080/t", private=True
    )


@pytest.mark.slow
def test_platforms_are_listed_changed_and_removed(service, platform, published, person):
    with pytest.raises(ConflictError):
        register(service)
    with pytest.raises(NotFoundError):
        register(service, client_id="another", tests=["test_unknown"])
    changed = registered.change_platform(
        service, platform.id, actor="test", deployments=["a", "b"], name="New"
    )
    assert changed == registered.platform(service, platform.id)
    assert changed.deployments == ("a", "b")
    [row] = registered.platforms(service).to_dict("records")
    assert (row["name"], row["attempts"], row["waiting"]) == ("New", 0, 0)
    with pytest.raises(InputError, match="status"):
        registered.change_platform(service, platform.id, actor="test", status="x")
    with pytest.raises(InputError, match="fields of a platform"):
        registered.change_platform(service, platform.id, actor="test", key="x")
    registered.change_platform(service, platform.id, actor="test", deployments=[DEPLOYMENT])
    person.start(person.launch(published))
    with pytest.raises(ConflictError, match="opened attempts"):
        registered.remove_platform(service, platform.id, actor="test")
    other = register(service, client_id="another")
    registered.remove_platform(service, other.id, actor="test")
    with pytest.raises(NotFoundError):
        registered.platform(service, other.id)
    actions = set(audit_entries(service)["action"])
    assert {"LTI platform added", "LTI platform changed", "LTI platform removed"} <= actions


# Embedding


@pytest.mark.slow
def test_no_page_is_embedded_by_default(person, published):
    page = person.launch(published)
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"


def test_a_platform_with_its_origin_embeds_the_pages_of_tests(service, published, lms, app):
    origin = "https://lms.example"
    register(service, origin=origin)
    person = Person(app, lms)
    person.client.headers["Sec-Fetch-Dest"] = "iframe"
    page = person.launch(published)
    assert f"frame-ancestors {origin}" in page.headers["content-security-policy"]
    assert "x-frame-options" not in page.headers
    response = person.start(page)
    for sent in (page, response):
        for cookie in sent.headers.get_list("set-cookie"):
            assert cookie.endswith("SameSite=None; Secure; Partitioned"), cookie
            assert cookie.lower().count("samesite") == 1
            assert "HttpOnly" in cookie
    assert person.client.get(test_page(person)).status_code == 200
    staff = person.client.get("/staff", follow_redirects=False)
    assert "frame-ancestors 'none'" in staff.headers["content-security-policy"]
    assert staff.headers["x-frame-options"] == "DENY"
    window = Person(app, lms)
    response = window.start(window.launch(published, sub="user-2"))
    assert "SameSite=strict" in response.headers["set-cookie"]


# The command


def test_the_command_registers_lists_closes_and_removes(address, published, database):
    def run(*words):
        result = CliRunner().invoke(cli, ["service", "lti", address, *words, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    options = [
        "--name",
        "Moodle",
        "--kind",
        "moodle",
        "--issuer",
        "https://moodle.example",
        "--client-id",
        "c1",
        "--deployments",
        "1, 2",
        "--url",
        TOOL,
    ]
    document = run(*options)
    assert document["addresses"]["Initiate login URL"] == f"{TOOL}/lti/login"
    [row] = document["platforms"]
    assert row["jwks_url"] == "https://moodle.example/mod/lti/certs.php"
    assert (row["deployments"], row["status"]) == ("1, 2", "open")
    assert run("--close", row["id"])["platforms"][0]["status"] == "closed"
    missing = CliRunner().invoke(cli, ["service", "lti", address, "--name", "x"])
    assert missing.exit_code == 2
    assert "--issuer" in missing.output
    assert run("--remove", row["id"])["platforms"] == []
    again = CliRunner().invoke(cli, ["service", "lti", address, "--remove", row["id"]])
    assert again.exit_code == 1
    assert "no such platform" in again.stderr

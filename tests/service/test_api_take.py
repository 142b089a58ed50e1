"""The taker's interface, over HTTP, on both databases."""

import json
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from irtcat.service.app import create_app
from irtcat.service.assembly import open_service
from irtcat.service.attempts import people, proctoring
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.content import ItemSet, Media
from tests.service.helpers import items, publish

TAKE = "/api/v1/take"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><title>A bar</title><rect width="9"/></svg>'


@pytest.fixture
def picture():
    return Media.from_bytes(SVG, "bar.svg")


@pytest.fixture
def published(service, picture):
    plain = items()
    first = plain.items["q0"]
    image = f'<p>Question q0 <img src="media:{picture.name}" alt="A bar"></p>'
    listed = [replace(first, prompt=image), *list(plain.items.values())[1:]]
    with_picture = ItemSet(listed, plain.keys, {}, [picture])
    return publish(service, with_picture)


@pytest.fixture
def ticket(service, published):
    return people.issue_ticket(service, published, actor="test").token


class Browser:
    """A browser with cookies, which sends the token against forged requests back."""

    def __init__(self, app):
        self.http = TestClient(app, base_url="https://testserver")
        self.count = 0
        self.csrf = ""
        self.view = {}

    def take(self, ticket):
        reply = self.http.post(f"{TAKE}/{ticket}")
        assert reply.status_code == 200, reply.text
        self.csrf, self.view = reply.headers["X-CSRF-Token"], reply.json()["view"]
        return self.view

    def post(self, path, body=None, status=200, key=None, **headers):
        self.count += 1
        headers = {"X-CSRF-Token": self.csrf, "Idempotency-Key": key or f"r{self.count}", **headers}
        reply = self.http.post(f"{TAKE}/{path}", json=body, headers=headers)
        assert reply.status_code == status, reply.text
        if status == 200:
            self.view = reply.json()
        return reply.json() if reply.content else None

    def answer(self, right=True, **options):
        item = self.view["item"]
        wanted = "B" if right else "A"
        place = next(c["id"] for c in item["choices"] if c["content"].endswith(wanted))
        return self.post("answers", {"number": item["number"], "response": place}, **options)


@pytest.fixture
def browser(app, ticket):
    it = Browser(app)
    it.take(ticket)
    return it


def attempt_in(browser):
    """The id of the only attempt in a browser."""
    (value,) = [v for name, v in browser.http.cookies.items() if name.startswith("irtcat_device_")]
    return value.split(".")[0]


def to_adaptive(browser):
    browser.post("proceed")
    browser.answer()
    assert browser.view["section"]["kind"] == "adaptive"


def to_fixed(browser):
    to_adaptive(browser)
    for _ in range(4):
        browser.answer()
    browser.post("proceed")
    assert browser.view["section"]["kind"] == "fixed"


@pytest.mark.slow
def test_a_whole_test(browser):
    assert browser.view["page"] == "instructions"
    assert browser.view["text"] == "<p>Read <em>well</em>.</p>"
    to_fixed(browser)
    browser.answer()
    browser.post("flag", {"number": browser.view["item"]["number"], "flagged": True})
    assert browser.view["item"]["flagged"] is True
    browser.answer()
    browser.answer()
    assert browser.view["page"] == "answers"
    assert [row["answered"] for row in browser.view["items"]] == [True] * 3
    browser.post("go", {"place": 1})
    assert browser.view["item"]["answered"]
    browser.post("finish")
    assert browser.view["page"] == "finished"
    assert set(browser.view["report"]) == {"score", "lower", "upper", "interval_level", "level"}
    assert browser.http.get(f"{TAKE}/current").json() == browser.view


@pytest.mark.slow
def test_the_cookie(app, ticket):
    reply = TestClient(app, base_url="https://testserver").post(f"{TAKE}/{ticket}")
    cookie = reply.headers["set-cookie"]
    for part in ("irtcat_device_", "HttpOnly", "SameSite=strict", "Secure", "Path=/"):
        assert part in cookie
    assert "token" not in reply.json()
    assert cookie.split("=")[1].split(";")[0] not in reply.text


@pytest.mark.slow
def test_a_program(app, ticket, service):
    http = TestClient(app, base_url="https://testserver")
    reply = http.post(f"{TAKE}/{ticket}", json={"credential": "bearer"})
    assert "set-cookie" not in reply.headers
    headers = {"Authorization": f"Bearer {reply.json()['token']}", "Idempotency-Key": "k1"}
    assert http.post(f"{TAKE}/proceed", headers=headers).json()["page"] == "item"
    # Repeated, it does not end the next section, too.
    assert http.post(f"{TAKE}/proceed", headers=headers).json()["page"] == "item"
    assert http.get(f"{TAKE}/current", headers=headers).json()["section"]["kind"] == "practice"
    assert "X-CSRF-Token" not in http.get(f"{TAKE}/current", headers=headers).headers
    for wrong in ("Bearer x", "Bearer a.b", "Basic YTpi", "Bearer", "Bearer \u00e4.b"):
        headers = {"Authorization": wrong.encode("utf-8")}
        assert http.get(f"{TAKE}/current", headers=headers).status_code == 401


@pytest.mark.slow
def test_forged_requests_are_refused(app, browser, service, published):
    browser.csrf, token = "", browser.csrf
    for forged in ("", "x", token[:-1], token.upper()):
        browser.csrf = forged
        problem = browser.post("proceed", status=403)
        assert problem["title"] == "Not permitted"
    other = Browser(app)
    other.take(people.issue_ticket(service, published, actor="test").token)
    browser.csrf = other.csrf
    browser.post("proceed", status=403)
    browser.csrf = token
    browser.post("proceed")
    new = people.issue_ticket(service, published, actor="test").token
    sent = browser.http.post(f"{TAKE}/{new}", headers={"Sec-Fetch-Site": "cross-site"})
    assert sent.status_code == 403
    assert browser.http.post(f"{TAKE}/{new}").status_code == 200


@pytest.mark.slow
def test_answers_need_an_id(browser):
    to_adaptive(browser)
    body = {"number": browser.view["item"]["number"], "response": "c1"}
    headers = {"X-CSRF-Token": browser.csrf}
    reply = browser.http.post(f"{TAKE}/answers", json=body, headers=headers)
    assert reply.status_code == 422
    assert "Idempotency-Key" in reply.json()["detail"]
    assert reply.headers["content-type"] == "application/problem+json"
    for bad in ("a b", "x" * 101):
        browser.post("answers", body, status=422, key=bad)


@pytest.mark.slow
def test_repeats_and_conflicts(browser, service):
    to_adaptive(browser)
    before = browser.view
    first = browser.answer(key="a1")
    browser.view = before
    assert browser.answer(key="a1") == first
    browser.view = before
    assert browser.answer(right=False, key="a2", status=409)["title"] == "Conflict"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("answers", {"number": 2, "response": "c1", "theta": 3}),
        ("answers", {"number": "x", "response": "c1"}),
        ("answers", {"number": 2}),
        ("answers", {"number": 2, "response": {"a": 1}}),
        ("answers", {"number": 2, "response": 3}),
        ("answers", {"number": 2, "response": "a\x00b"}),
        ("answers", {"number": 10**30, "response": "c1"}),
        ("answers", []),
        ("go", {"place": -1}),
        ("flag", {"number": 2, "flagged": "perhaps"}),
    ],
)
def test_invalid_bodies(browser, path, body):
    to_adaptive(browser)
    problem = browser.post(path, body, status=422)
    assert problem["errors"]
    assert problem["request"]


def test_go_flag_and_finish_out_of_place(browser):
    to_adaptive(browser)
    browser.post("go", {"place": 1}, status=409)
    browser.post("flag", {"number": 2, "flagged": True}, status=409)
    browser.post("finish", status=409)
    browser.post("pause", status=409)
    browser.post("resume", status=409)


@pytest.mark.slow
def test_finish_is_of_the_last_section(browser):
    problem = browser.post("finish", status=409)
    assert problem["detail"] == "There are sections after this one."


@pytest.mark.slow
def test_a_pause(app, service, published):
    browser = Browser(app)
    ticket = people.issue_ticket(service, published, actor="test", accommodations=["pause"])
    browser.take(ticket.token)
    to_adaptive(browser)
    assert browser.post("pause")["page"] == "paused"
    assert browser.post("resume")["page"] == "item"


@pytest.mark.slow
def test_the_heartbeat_writes_nothing(browser, service, clock):
    to_adaptive(browser)
    attempt = attempt_in(browser)
    events = len(proctoring.attempt_events(service, attempt))
    clock.move(5)
    beat = browser.post("heartbeat")
    assert set(beat) == {"status", "time"}
    assert (beat["time"]["test"], beat["time"]["item"]) == (595, 55)
    clock.move(10_000)
    assert browser.post("heartbeat")["time"]["test"] == 0
    assert len(proctoring.attempt_events(service, attempt)) == events
    assert browser.http.get(f"{TAKE}/current").json()["page"] == "finished"
    assert browser.post("heartbeat")["status"] == "finished"


@pytest.mark.slow
def test_the_heartbeat_sees_what_others_did(browser, service, clock, database):
    """Staff add time in another process; the cached attempt reads the new events only."""
    to_adaptive(browser)
    attempt = attempt_in(browser)
    browser.post("heartbeat")
    other = open_service(database, clock=clock)
    proctoring.extend(other, attempt, seconds=60, actor="test", reason="noise")
    assert browser.post("heartbeat")["time"]["test"] == 660


def test_another_device_and_release(app, browser, ticket, service):
    second = Browser(app)
    reply = second.http.post(f"{TAKE}/{ticket}")
    assert reply.status_code == 409
    attempt = attempt_in(browser)
    proctoring.release(service, attempt, actor="proctor")
    second.take(ticket)
    browser.post("proceed", status=401)
    assert browser.http.get(f"{TAKE}/current").status_code == 401
    second.post("proceed")


@pytest.mark.slow
def test_a_lost_reply_to_the_begin(app, service, published):
    ticket = people.issue_ticket(service, published, actor="test").token
    http = TestClient(app, base_url="https://testserver")

    def begin(key):
        headers = {"Idempotency-Key": key} if key else {}
        body = {"credential": "bearer"}
        return http.post(f"{TAKE}/{ticket}", json=body, headers=headers)

    first = begin("f0e1d2c3b4a59687-begin")
    assert begin("f0e1d2c3b4a59687-begin").json() == first.json()
    assert begin("").status_code == 409
    assert begin("f0e1d2c3b4a59687-other").status_code == 409
    assert begin("short").status_code == 422


def test_tickets_that_are_not_valid(app, service, published):
    http = TestClient(app, base_url="https://testserver")
    revoked = people.issue_ticket(service, published, actor="test")
    people.revoke_ticket(service, revoked.id, actor="test")
    assert http.post(f"{TAKE}/{revoked.token}").status_code == 410
    assert http.post(f"{TAKE}/{'x' * 32}").status_code == 404
    assert http.post(f"{TAKE}/%00{'x' * 32}").status_code == 422
    assert http.post(f"{TAKE}/{revoked.token}", json={"extra": 1}).status_code == 422


def test_two_tests_in_one_browser(app, browser, service, published):
    """The token names the test: an answer of one tab is not recorded in the attempt of another."""
    to_adaptive(browser)
    first = attempt_in(browser)
    other = Browser(app)
    other.http = browser.http
    other.take(people.issue_ticket(service, published, actor="test").token)
    to_adaptive(other)
    other.answer()
    assert browser.answer()["saved"] == 1  # that of practice is not counted
    assert len(attempt_of(service, first).progress.answers) == 2
    current = browser.http.get(f"{TAKE}/current")
    assert current.status_code == 409
    for it in (browser, other):
        reply = it.http.get(f"{TAKE}/current", headers={"X-CSRF-Token": it.csrf})
        assert reply.json()["saved"] == it.view["saved"]
        assert reply.headers["X-CSRF-Token"] == it.csrf
    wrong = browser.http.get(f"{TAKE}/current", headers={"X-CSRF-Token": "x"})
    assert wrong.status_code == 403
    assert (
        browser.http.post(f"{TAKE}/leave", headers={"X-CSRF-Token": browser.csrf}).status_code
        == 204
    )
    assert other.http.get(f"{TAKE}/current").status_code == 200


@pytest.mark.slow
def test_leave(browser):
    headers = {"X-CSRF-Token": browser.csrf}
    reply = browser.http.post(f"{TAKE}/leave", headers=headers)
    assert reply.status_code == 204
    assert not [name for name in browser.http.cookies if name.startswith("irtcat_device_")]
    assert browser.http.get(f"{TAKE}/current").status_code == 401


def to_picture(browser):
    to_fixed(browser)
    prompt = browser.view["item"]["prompt"]
    return prompt.split('src="')[1].split('"')[0]


def test_media(browser, picture, clock, monkeypatch):
    address = to_picture(browser)
    reply = browser.http.get(address)
    assert reply.status_code == 200
    assert reply.content == picture.data
    assert reply.headers["content-type"].startswith("image/svg+xml")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-disposition"] == "inline"
    assert "sandbox" in reply.headers["content-security-policy"]
    part = browser.http.get(address, headers={"Range": "bytes=5-8"})
    assert (part.status_code, part.content) == (206, picture.data[5:9])
    assert part.headers["content-range"] == f"bytes 5-8/{len(picture.data)}"
    tail = browser.http.get(address, headers={"Range": "bytes=-4"})
    assert (tail.status_code, tail.content) == (206, picture.data[-4:])
    beyond = browser.http.get(address, headers={"Range": "bytes=99999-"})
    assert beyond.status_code == 416
    assert beyond.headers["content-range"] == f"bytes */{len(picture.data)}"
    odd = browser.http.get(address, headers={"Range": "bytes=0-1,3-4"})
    assert (odd.status_code, odd.content) == (200, picture.data)


@pytest.mark.slow
def test_addresses_of_media_are_signed_for_one_file_and_some_hours(browser, picture, monkeypatch):
    address = to_picture(browser)
    _, _, signature, name = address.split("/")
    # Not the last character: two of its six bits are padding that no reader looks at.
    for changed in (
        f"/media/{signature}/{'0' * 64}.svg",
        f"/media/{signature[:-9]}{'A' if signature[-9] != 'A' else 'B'}{signature[-8:]}/{name}",
        f"/media/x/{name}",
        f"/media/{signature}/..%2F..%2Fetc%2Fpasswd",
        f"/media/{signature}/../../etc/passwd",
        "/media/%2e%2e/%2e%2e/etc/passwd",
    ):
        assert browser.http.get(changed).status_code in (404, 422), changed
    monkeypatch.setattr("irtcat.service.attempts.view.MEDIA_LASTS", -1)
    assert browser.http.get(address).status_code == 404


SECRET = {
    "key",
    "correct",
    "theta",
    "se",
    "a",
    "b",
    "difficulty",
    "code",
    "points",
    "criterion",
    "reason",
    "session",
    "seed",
    "bank",
}


def names_in(value):
    """All field names of a JSON document."""
    if isinstance(value, dict):
        return set(value) | set().union(*map(names_in, value.values()), set())
    return set().union(*map(names_in, value), set()) if isinstance(value, list) else set()


@pytest.mark.slow
def test_a_field_that_the_domain_adds_does_not_leak(browser, monkeypatch):
    """The models list what leaves the service, whatever the view holds one day."""
    from irtcat.service.attempts import taking

    original = taking.taker_view

    def leaking(attempt, *arguments):
        view = original(attempt, *arguments)
        view["theta"] = view["time"]["se"] = 1.0
        if view["item"]:
            view["item"] |= {"key": "B", "id": "q1"}
            view["item"]["choices"][0]["correct"] = True
        if view["report"] is not None:
            view["report"]["theta"] = 0.3
        return view

    monkeypatch.setattr(taking, "taker_view", leaking)
    seen = [browser.post("proceed"), browser.answer()]
    seen += [browser.answer() for _ in range(4)]
    seen += [browser.post("proceed"), browser.answer(), browser.answer(), browser.answer()]
    seen.append(browser.post("finish"))
    for view in seen:
        assert not names_in(view) & SECRET
        text = json.dumps({**view, "item": None})
        assert '"q' not in text


@pytest.mark.slow
def test_the_document_describes_every_operation(app):
    document = TestClient(app).get("/api/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert document["components"]["schemas"]["Problem"]["properties"]["detail"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation.get("description"), where
            assert {"422", "413"} <= set(operation["responses"]), where
            for code, response in operation["responses"].items():
                if int(code) < 400:
                    continue
                forms = {"application/problem+json"}
                if path == "/oauth/token" or path.startswith("/ims/"):
                    forms.add("application/json")  # of RFC 6749 and of 1EdTech's CAT
                assert forms & set(response["content"]), where
    text = json.dumps(document)
    assert "HTTPValidationError" not in text


@pytest.mark.slow
def test_responses_are_whole_on_both_sides_of_a_restart(app, browser, service, clock, database):
    to_adaptive(browser)
    other = Browser(create_app(open_service(database, clock=clock)))
    other.http.cookies, other.csrf, other.view = browser.http.cookies, browser.csrf, browser.view
    other.answer(key="of-the-other-worker")
    assert browser.http.get(f"{TAKE}/current").json() == other.view
    attempt = attempt_in(browser)
    assert len(attempt_of(service, attempt).progress.answers) == 2

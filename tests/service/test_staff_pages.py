"""The staff's pages: every page for every role, forms, and what each role may see."""

import io
import re
import zipfile

import numpy as np
import pytest
from fastapi.testclient import TestClient
from lxml import html as lxml_html

from irtcat._common.checks import InputError
from irtcat.bank import ItemBank
from irtcat.cat import CRITERIA
from irtcat.service.accounts import clients
from irtcat.service.accounts.accounts import (
    BROWSER,
    PERMISSIONS,
    ROLES,
    account_table,
    add_account,
    issue_token,
)
from irtcat.service.accounts.credentials import service_cookie
from irtcat.service.app import create_app
from irtcat.service.assembly import open_service
from irtcat.service.attempts import library, people, proctoring
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.base.errors import UnauthorizedError
from irtcat.service.content import Item, ItemSet, Key
from irtcat.service.definition import publish_report
from irtcat.service.outbox.audit import audit_entries
from irtcat.service.pages.staff import PARTS, scoring
from irtcat.service.pages.staff.base import Requires, criterion_words
from tests.service import helpers
from tests.service.helpers import definition
from tests.service.test_taking import Taker, to_adaptive

PASSWORD = "a long enough password"
ESSAY = "essay"


class Browser:
    """A browser in which an account of some roles is signed in."""

    def __init__(self, app, *roles):
        self.client = TestClient(app, base_url="http://testserver")
        self.service = app.state.service
        if roles:
            name = "-".join(roles)
            known = account_table(self.service)["name"].tolist()
            account = (
                add_account(self.service, name, password=PASSWORD, roles=roles, actor="test")
                if name not in known
                else type("Known", (), {"name": name, "actor": f"account:{name}"})
            )
            self.sign_in(account)

    def sign_in(self, account):
        secret = issue_token(self.service, account, kind=BROWSER)
        self.client.cookies.set(service_cookie(self.service, "staff"), secret)

    def get(self, path, status=200):
        response = self.client.get(path, follow_redirects=False)
        assert response.status_code == status, f"{path}: {response.status_code} {response.text}"
        return response

    def page(self, path, status=200):
        response = self.get(path, status)
        check_page(response)
        return lxml_html.fromstring(response.text)

    def token(self):
        if service_cookie(self.service, "form") not in self.client.cookies:
            self.client.get("/staff/sign-in")
        text = self.client.get("/staff/sign-in").text
        return re.search(r'name="token" value="([^"]+)"', text)[1]

    def post(self, path, status=303, files=None, token=None, **fields):
        data = {**fields, "token": self.token() if token is None else token}
        response = self.client.post(path, data=data, files=files, follow_redirects=False)
        assert response.status_code == status, f"{path}: {response.status_code} {response.text}"
        if status != 303:
            check_page(response)
        return response


def check_page(response):
    """No inline script or style, no foreign address, one main and one heading."""
    assert "default-src 'none'" in response.headers["content-security-policy"]
    if not response.headers.get("content-type", "").startswith("text/html"):
        return
    tree = lxml_html.fromstring(response.text)
    for script in tree.iter("script"):
        assert script.get("src", "").startswith("/static/")
        assert not (script.text or "").strip()
    assert not list(tree.iter("style"))
    for element in tree.iter():
        for name, value in element.attrib.items():
            assert name != "style"
            assert not name.startswith("on")
            if name in ("src", "action") or (name == "href" and element.tag == "link"):
                assert value.startswith("/"), value
    ids = tree.xpath("//@id")
    assert len(ids) == len(set(ids))
    if not tree.xpath("//main"):  # a part that the script exchanges
        return
    assert len(tree.xpath("//main")) == len(tree.xpath("//h1")) == 1
    for control in tree.xpath("//input[not(@type='hidden')] | //select | //textarea"):
        named = control.get("aria-label") or control.xpath("ancestor::label")
        labelled = named or tree.xpath(f"//label[@for='{control.get('id')}']")
        assert labelled, lxml_html.tostring(control)


@pytest.fixture
def service(tmp_path, clock):
    with open_service(str(tmp_path / "tests.db"), create=True, clock=clock) as opened:
        yield opened


@pytest.fixture
def app(service):
    return create_app(service, secure=False)


@pytest.fixture
def admin(app):
    return Browser(app, "admin")


@pytest.fixture
def taker(service, published):
    person = people.add_person(service, name="Ada Lovelace", external="s-1", actor="test")
    given = people.issue_ticket(service, published, person=person, actor="test")
    return Taker(service, given.token)


def finish(taker, clock):
    to_adaptive(taker)
    for right in (True, False, True, True):
        clock.move(7)
        taker.answer(right)
    taker("proceed")
    for _ in range(3):
        taker.answer()
    taker("proceed")


def routes():
    """Method, path and permissions of every route of staff."""
    for part in (*PARTS, scoring.router):
        for route in part.routes:
            needs = [d.call for d in route.dependant.dependencies if isinstance(d.call, Requires)]
            yield from ((method, route.path, needs) for method in route.methods)


OPEN = {("GET", "/staff/sign-in"), ("POST", "/staff/sign-in"), ("POST", "/staff/sign-out")}


def test_every_page_requires_an_account_and_every_form_a_token():
    checked = 0
    for part in (*PARTS, scoring.router):
        for route in part.routes:
            calls = [d.call for d in route.dependant.dependencies]
            needs = [call for call in calls if isinstance(call, Requires)]
            for method in route.methods:
                if (method, route.path) not in OPEN:
                    assert len(needs) == 1, route.path
                    checked += 1
                if method == "POST":
                    assert "_checked_form" in [getattr(c, "__name__", "") for c in calls]
    assert checked > 40


def allowed(role, permissions):
    held = {p for p, roles in PERMISSIONS.items() if role in roles or role == "admin"}
    return not permissions or bool(held & set(permissions))


@pytest.mark.slow
def test_every_page_for_every_role(app, service, published, taker, clock):
    finish(taker, clock)
    second = Taker(service, people.issue_ticket(service, published, actor="test").token)
    to_adaptive(second)
    person = people.people_table(service)["id"][0]
    concrete = {
        "{test}": published,
        "{attempt}": taker.attempt,
        "{section}": "3",
        "{person}": person,
        "{ticket}": "t_none",
        "{action}": "note",
        "/export/{name}": "/export/results.csv",
        "/figures/{name}.svg": "/figures/errors.svg",
        "/media/{name}": "/media/none.svg",
    }
    missing = {
        "/media/",
        "/scoring/{attempt}",
        "/results/scores.svg",
    }  # 404 for those who are permitted
    query = {"/item": "?id=q1", "/item/preview": "?id=q1", "/item/curve.svg": "?id=q1"}
    browsers = {role: Browser(app, role) for role in ROLES}
    stranger = Browser(app)
    checked = 0
    for method, path, needs in routes():
        if (method, path) in OPEN:
            continue
        address = path
        for part, value in concrete.items():
            address = address.replace(part, value)
        address += next((q for end, q in query.items() if path.endswith(end)), "")
        permissions = needs[0].permissions
        for role, browser in browsers.items():
            if method == "GET":
                response = browser.client.get(address, follow_redirects=False)
                expected = 200 if allowed(role, permissions) else 403
                if expected == 200 and any(part in path for part in missing):
                    expected = 404
                if expected == 200 and path.endswith("/scoring/next"):
                    expected = 303
            else:
                response = browser.client.post(address, data={}, follow_redirects=False)
                expected = 403  # without a token whatever the role
            assert response.status_code == expected, f"{role} {method} {address}: {response.text}"
            check_page(response)
            checked += 1
        response = (
            stranger.client.get(address, follow_redirects=False)
            if method == "GET"
            else (stranger.client.post(address, data={}, follow_redirects=False))
        )
        assert response.status_code in (303, 403)
        if method == "GET":
            assert response.headers["location"].startswith("/staff/sign-in?to=")
    assert checked > 6 * 40


def test_roles_see_only_what_they_may(app, published, taker, clock):
    finish(taker, clock)
    test, attempt = f"/staff/tests/{published}", f"/staff/attempts/{taker.attempt}"
    proctor, author = Browser(app, "proctor"), Browser(app, "author")
    auditor, psychometrician = Browser(app, "auditor"), Browser(app, "psychometrician")
    # A proctor sees names, but neither results nor which answers are right.
    text = proctor.get(attempt).text
    assert "Ada Lovelace" in text
    assert not re.search(r"θ|Category|Score</dt>", text)
    assert "Report of publishing" not in proctor.get(test).text
    # Those who see results do not see who it was.
    text = auditor.get(attempt).text
    assert "Ada Lovelace" not in text
    assert re.search("θ.*Category", text, re.S)
    assert "<form" not in text.split("<main")[1]  # and an auditor changes nothing
    assert "Ada" not in auditor.get(f"{test}/results").text
    # An author sees keys, but no parameters and no report.
    text = author.get(f"{test}/item?id=q1").text
    assert "Key: the whole response" in text
    assert "Parameters and use" not in text
    assert "Difficulty" not in author.get(f"{test}/items").text
    assert "Report of publishing" not in author.get(test).text
    author.get(f"{test}/figures/information.svg", 403)
    assert "Parameters and use" in psychometrician.get(f"{test}/item?id=q1").text
    assert "bookmark table" in psychometrician.get(test).text


def test_sign_in_and_out(app, service):
    add_account(service, "ada", password=PASSWORD, roles=["proctor"], actor="test")
    browser, cookie_name = Browser(app), service_cookie(service, "staff")
    response = browser.get("/staff/board", 303)
    assert response.headers["location"] == "/staff/sign-in?to=%2Fstaff%2Fboard"
    page = browser.page(response.headers["location"])
    assert page.xpath("//input[@name='to']/@value") == ["/staff/board"]
    wrong = browser.post("/staff/sign-in", 401, name="ada", password="wrong", to="/staff")
    assert "The name or the password is wrong." in wrong.text
    assert cookie_name not in browser.client.cookies
    done = browser.post("/staff/sign-in", name="ada", password=PASSWORD, to="/staff/board")
    assert done.headers["location"] == "/staff/board"
    cookie = next(c for c in done.headers.get_list("set-cookie") if c.startswith(cookie_name))
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    asked = "/staff/attempts?test=&status=running"
    to = Browser(app).get(asked, 303).headers["location"]
    assert Browser(app).page(to).xpath("//input[@name='to']/@value") == [asked]
    done = browser.post("/staff/sign-in", name="ada", password=PASSWORD, to=asked)
    assert done.headers["location"] == asked
    browser.page("/staff/board")
    browser.get("/staff/audit", 403)
    for elsewhere in ("//evil.example", "https://evil.example/", "/t/x", "/staffing"):
        done = browser.post("/staff/sign-in", name="ada", password=PASSWORD, to=elsewhere)
        assert done.headers["location"] == "/staff"
    secret = browser.client.cookies[cookie_name]
    browser.post("/staff/sign-out")
    browser.client.cookies.set(cookie_name, secret)
    browser.get("/staff/board", 303)  # the token itself is gone


@pytest.mark.slow
def test_forms_need_a_token_of_the_browser(app, admin, published):
    other = Browser(app, "proctor").token()
    for token in ("", "wrong", other):
        admin.post(f"/staff/tests/{published}/retire", 403, token=token)
    admin.post(f"/staff/tests/{published}/retire")


def confirmed(browser, **fields):
    """Send the form of tickets, then the page that confirms it as a browser does."""
    page = lxml_html.fromstring(browser.post("/staff/tickets/new", 200, **fields).text)
    assert not page.xpath("//span[@class='link']")
    hidden = page.xpath("//form//input[@type='hidden' and @name!='token']")
    return browser.post(
        "/staff/tickets/new", 200, **{e.get("name"): e.get("value") for e in hidden}
    )


def test_tickets(app, service, published, clock):
    proctor = Browser(app, "proctor")
    answer = confirmed(
        proctor,
        test=published,
        people="Ada, ada@example.org, s-1\nEmmy\n",
        accommodations="extra_time_50",
        opens="2026-11-23T09:00",
        zone="Europe/Berlin",
    )
    links = lxml_html.fromstring(answer.text).xpath("//span[@class='link']/text()")
    assert len(links) == 2
    assert all(link.startswith("http://testserver/t/") for link in links)
    table = people.ticket_table(service)
    assert table["accommodations"].tolist() == [["extra_time_50"]] * 2
    assert table["opens"][0].startswith("2026-11-23T08:00")
    assert set(people.people_table(service)["name"]) == {"Ada", "Emmy"}
    taker = Taker(service, links[0].rsplit("/", 1)[1])
    assert attempt_of(service, taker.attempt).progress.accommodations == ("extra_time_50",)
    listed = proctor.page("/staff/tickets").text_content()
    assert "Emmy" in listed
    assert links[1].rsplit("/", 1)[1] not in listed
    unused = people.ticket_table(service).query("status == 'open'")["id"].iloc[0]
    proctor.post(f"/staff/tickets/{unused}/revoke")
    assert set(people.ticket_table(service)["status"]) == {"used", "revoked"}
    assert "The ticket is revoked." in proctor.post(f"/staff/tickets/{unused}/revoke", 409).text
    assert len(people.ticket_table(service)) == 2
    for fields, fault in [
        ({"count": "0"}, "from 1 to 500"),
        ({"count": "x"}, "from 1 to 500"),
        ({"people": "a,b,c,d"}, "a name, an e-mail and an id"),
        ({"people": "Ada\nMüller, Anna"}, "Line 2: an e-mail address has an @"),
        ({"people": "Ada; ada@example.org; s-1"}, "Line 1: cells must be separated by commas"),
        (
            {"people": "Grace, , s-1"},
            "Line 1: The id &#39;s-1&#39; is known with name &#39;Ada&#39;",
        ),
        ({"people": ", ,"}, "enter 1 to 500 lines"),
        ({"count": "1", "opens": "soon"}, "enter a date"),
        ({"count": "1", "opens": "2026-11-23T09:00", "zone": "../x"}, "enter a date"),
        ({"count": "1", "accommodations": "untimed"}, "extra_time_50"),
        ({"count": "1", "test": "test_none"}, "no such test"),
    ]:
        page = proctor.post("/staff/tickets/new", 422, **{"test": published, **fields})
        assert fault in page.text
    assert len(people.ticket_table(service)) == 2


def test_people_are_shown_before_tickets_are_issued(app, service, published):
    proctor = Browser(app, "proctor")
    people.add_person(service, name="Ada", external="s-1", actor="test")
    fields = {"test": published, "people": '"Müller, Anna", anna@example.org\r\n\r\n,,s-1\r\n'}
    page = lxml_html.fromstring(proctor.post("/staff/tickets/new", 200, **fields).text)
    rows = [[cell.text for cell in row.iter("td")] for row in page.xpath("//tbody/tr")]
    assert rows == [
        ["1", "new", "Müller, Anna", "anna@example.org", None],
        ["3", "known: Ada", None, None, "s-1"],
    ]
    assert "1 person is added, 1 is known" in page.text_content()
    assert people.people_table(service)["name"].tolist() == ["Ada"]
    assert people.ticket_table(service).empty
    # The form again, with what was entered.
    form = lxml_html.fromstring(proctor.post("/staff/tickets/new", 200, **fields, change="1").text)
    assert form.xpath("//textarea/text()")[0].startswith('"Müller, Anna", anna')
    # Somebody adds the person meanwhile: that is shown before anything is issued.
    seen = page.xpath("//input[@name='seen']/@value")[0]
    people.erase(service, people.people_table(service)["id"][0], actor="test")
    answer = proctor.post("/staff/tickets/new", 200, **fields, seen=seen)
    assert "2 people are added" in answer.text
    assert people.ticket_table(service).empty
    links = lxml_html.fromstring(confirmed(proctor, **fields).text).xpath("//ol/li/strong/text()")
    assert links == ["Müller, Anna", "s-1"]
    assert people.people_table(service)["name"].tolist() == ["Müller, Anna", ""]


def test_people(app, service, published, taker):
    proctor = Browser(app, "proctor")
    proctor.post("/staff/people/add", name="<b>Emmy</b>", email="", external="")
    page = proctor.page("/staff/people?find=emmy")
    assert "<b>Emmy</b>" in page.text_content()
    assert "Ada" not in page.text_content()
    proctor.post("/staff/people/add", 422)
    frame = people.people_table(service).set_index("name")
    ada = frame.loc["Ada Lovelace", "id"]
    assert "1 attempt stays" in proctor.page(f"/staff/people/{ada}/erase").text_content()
    proctor.post(f"/staff/people/{ada}/erase", 422)
    proctor.post(f"/staff/people/{ada}/erase", confirm="erase")
    assert "Ada" not in proctor.page("/staff/people").text_content()
    proctor.page(f"/staff/people/{ada}/erase", 404)


def test_searching_among_no_people(app):
    page = Browser(app, "proctor").page("/staff/people?find=emmy")
    assert "emmy" in page.xpath("//input[@name='find']/@value")


def test_board_and_actions(app, service, taker, clock):
    to_adaptive(taker)
    clock.move(1)
    taker.answer()
    proctor = Browser(app, "proctor")
    row = proctor.page("/staff/board/live").xpath("//tbody/tr")[0].text_content()
    assert "Ada Lovelace" in row
    assert "1 answer too fast" in row
    page = f"/staff/attempts/{taker.attempt}"
    proctor.post(f"{page}/pause", reason="fire alarm")
    assert taker("current")["page"] == "paused"
    assert "The attempt is paused." in proctor.get(f"{page}?done=pause").text
    assert "The attempt is paused" not in proctor.get(page).text
    proctor.post(f"{page}/pause", 409, reason="again")
    proctor.post(f"{page}/resume")
    left = taker("current")["time"]["test"]
    proctor.post(f"{page}/extend", minutes="5", reason="lost time")
    assert taker("current")["time"]["test"] == left + 300
    for minutes in ("0", "-1", "x", "1441", "٣"):
        proctor.post(f"{page}/extend", 422, minutes=minutes, reason="no")
    proctor.post(f"{page}/extend", 422, minutes="5", reason=" ")
    proctor.post(f"{page}/note", text="<script>alert(1)</script>")
    assert "<script>alert" not in proctor.get(page).text
    for table in proctor.page(page).xpath("//table"):  # answers, and the log
        assert len(table.xpath(".//time")) == len(table.xpath("tbody/tr"))
    proctor.post(f"{page}/release")
    assert "no device" in proctor.get("/staff/board").text
    proctor.post(f"{page}/finish", 422, reason=" ")
    proctor.post(f"{page}/finish", reason="went home")
    assert attempt_of(service, taker.attempt).progress.reason == "by staff"
    assert "by staff" in proctor.get(page).text
    proctor.post(f"{page}/void", reason="copied")
    assert attempt_of(service, taker.attempt).progress.status == "void"
    proctor.post(f"{page}/reopen", reason="it was not them", minutes="10")
    assert attempt_of(service, taker.attempt).progress.status == "running"
    proctor.post(f"{page}/delete", 404)
    actions = audit_entries(service, n=8)["action"].tolist()
    assert actions[:2] == ["attempt reopened", "attempt voided"]
    assert audit_entries(service, n=1)["actor"][0] == "account:proctor"
    Browser(app, "scorer").post(f"{page}/void", 403, reason="no")


def test_replay_and_figures(app, taker, clock):
    finish(taker, clock)
    analyst = Browser(app, "psychometrician")
    page = analyst.page(f"/staff/attempts/{taker.attempt}/replay/3")
    steps = page.xpath("//ol[@class='steps']/li")
    assert len(steps) == 4
    assert "Why this item: The greatest value by mfi" in steps[0].text_content()
    assert "Chosen by Fisher information at the estimate (mfi)." in page.text_content()
    assert "It ended because 4 scored items are answered." in page.text_content()
    assert len(re.findall("SE −?0", page.text_content())) == 4
    analyst.page(f"/staff/attempts/{taker.attempt}/replay/5", 404)
    figure = analyst.get(f"/staff/attempts/{taker.attempt}/replay/3/path.svg")
    assert figure.headers["content-type"] == "image/svg+xml"
    assert figure.content.startswith(b"<?xml")
    assert "sandbox" in figure.headers["content-security-policy"]


def test_results_and_exports(app, service, published, taker, clock, monkeypatch):
    analyst = Browser(app, "psychometrician")
    test = f"/staff/tests/{published}"
    assert "No attempt is finished yet." in analyst.get(f"{test}/results").text
    analyst.get(f"{test}/results/scores.svg", 404)
    finish(taker, clock)
    monkeypatch.setattr("irtcat.service.pages.staff.attempts.LEAST_DRAWN", 1)
    score = taker.view["report"]["score"]
    row = analyst.page(f"{test}/results").xpath("//tbody/tr")[0].text_content()
    assert f"{score:.0f}" in row
    analyst.get(f"{test}/results/scores.svg")
    analyst.get(f"{test}/export/results.csv?names=1", 403)
    for name in ("results", "answers"):
        named = Browser(app, "admin").get(f"{test}/export/{name}.csv?names=1").text.splitlines()
        columns = named[0].split(",")
        assert columns[columns.index("person") + 1 :][:2] == ["name", "external"]
    table = analyst.get(f"{test}/export/results.csv")
    assert taker.attempt in table.text
    assert table.headers["content-disposition"].startswith("attachment")
    assert analyst.get(f"{test}/export/responses.npz").content[:2] == b"PK"
    assert len(analyst.get(f"{test}/export/answers.csv").text.splitlines()) == 9
    assert (
        b"assessmentResult" in analyst.get(f"/staff/attempts/{taker.attempt}/results.xml").content
    )
    assert audit_entries(service, n=1)["action"][0] == "results exported"


def archive(items):
    """A zipped folder of choice items with their keys."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name in items:
            file.writestr(
                f"items/{name}.md", f'+++\nkey = "B"\n+++\nQuestion {name}\n\n- (A) a\n- (B) b\n'
            )
    return out.getvalue()


TOML = """
title = "Uploaded"
[[sections]]
kind = "adaptive"
config = { max_items = 3 }
"""


@pytest.mark.slow
def test_publish_from_files(app, service, tmp_path):
    analyst = Browser(app, "psychometrician")
    names = [f"u{i}" for i in range(6)]
    path = tmp_path / "bank.npz"
    ItemBank.from_parameters(b=np.linspace(-1, 1, 6), item_ids=names).save(path)
    bank = path.read_bytes()

    def send(status, definition=TOML, bank=bank, items=None, n="20"):
        files = {
            "definition": ("test.toml", definition.encode()),
            "bank": ("bank.npz", bank),
            "items": ("items.zip", archive(names) if items is None else items),
        }
        return analyst.post("/staff/uploads/test", status, files=files, n_simulated=n)

    faulty = TOML.replace("max_items", "max_item") + 'colour = "red"\n'
    page = send(422, definition=faulty + '[[sections]]\nkind = "fixed"\nitems = []\n').text
    assert page.count("<li>The `") == 3  # every fault
    assert "max_item" in page
    assert "colour" in page
    assert "must be TOML" in send(422, definition="title =").text
    assert "bank" in send(422, bank=b"no bank").text
    assert "/tmp" not in send(422, bank=b"no bank").text
    assert "u5" in send(422, items=archive(names[:5])).text
    assert "from 20 to" in send(422, n="5").text
    assert "choose a file" in analyst.post("/staff/uploads/test", 422, n_simulated="20").text
    assert library.published_tests(service).empty
    address = send(303).headers["location"]
    page = analyst.page(address).text_content()
    assert "The test is published." in page
    assert "Accuracy" not in page  # no cuts
    assert "Errors along the scale" in page
    test = address.split("?")[0]
    assert len(analyst.page(f"{test}/items").xpath("//tbody/tr")) == 6
    for name in ("errors", "information"):
        analyst.get(f"{test}/figures/{name}.svg")
    analyst.page(f"{test}/retire")
    analyst.post(f"{test}/retire")
    assert library.published_tests(service)["status"].tolist() == ["retired"]


def test_every_criterion_has_words():
    words = {name: criterion_words(name) for name in CRITERIA}
    assert words["mei-fisher"] == "expected Fisher information after the answer (mei-fisher)"
    assert all(text.endswith(f" ({name})") for name, text in words.items())
    assert len(set(words.values())) == len(words)


def test_items_are_shown_as_takers_see_them(app, published):
    author = Browser(app, "author")
    page = author.page(f"/staff/tests/{published}/item/preview?id=q2")
    assert page.xpath("//fieldset[@disabled]//input[@type='radio']")
    assert "Question q2" in page.text_content()
    text = author.page(f"/staff/tests/{published}/item?id=q2").text_content()
    assert "Next: q3" in text
    author.page(f"/staff/tests/{published}/item?id=none", 404)
    author.page(f"/staff/tests/{published}/item/preview?id=none", 404)


def essay_test(service):
    names = [f"q{i}" for i in range(12)]
    bank = helpers.bank().join(ItemBank.from_parameters(a=1.0, b=0.0, item_ids=[ESSAY]))
    given = [helpers.items().items[name] for name in names]
    keys = [helpers.items().keys[name] for name in names]
    essay = Item(id=ESSAY, kind="essay", prompt="<p>Describe your way.</p>")
    key = Key(item=ESSAY, kind="rubric", max_score=1, rubric="<p>One point for a way.</p>")
    test = definition(sections=[{"kind": "fixed", "items": ["q0", ESSAY]}])
    report = publish_report(test, bank, 20)
    content = ItemSet([*given, essay], [*keys, key])
    return library.publish(service, test, bank, content, actor="test", report=report)[0]


def test_two_people_score_and_a_third_decides(app, service):
    taker = Taker(service, people.issue_ticket(service, essay_test(service), actor="test").token)
    taker.answer()
    taker("answer", number=2, response="Past the <i>mill</i>.")
    assert taker.view["report"] == {"waiting": True}
    page = f"/staff/scoring/{taker.attempt}"
    scorers = [Browser(app, "scorer")]
    for name in ("emmy", "sofia"):
        scorers.append(Browser(app))
        account = add_account(service, name, password=PASSWORD, roles=["scorer"], actor="test")
        scorers[-1].sign_in(account)
    first, second, third = scorers
    assert first.get("/staff/scoring/next", 303).headers["location"] == f"{page}?item={ESSAY}"
    text = first.page(f"{page}?item={ESSAY}").text_content()
    assert "Past the <i>mill</i>." in text
    assert "One point for a way." in text
    first.post(page, 422, item=ESSAY, score="2")
    first.post(page, 422, item=ESSAY)
    first.post(page, item=ESSAY, score="1", comment="clear")
    assert "No response waits for you." in first.get("/staff/scoring").text
    assert "clear" not in second.get(f"{page}?item={ESSAY}").text
    second.post(page, item=ESSAY, score="0")
    assert taker("current")["report"] == {"waiting": True}
    assert "decision" in third.get("/staff/scoring").text
    third.post(page, item=ESSAY, score="1")
    assert taker("current")["report"]["score"] is not None
    assert "Agreement in" in first.get("/staff/scoring").text
    third.get(f"{page}?item={ESSAY}", 404)


@pytest.mark.slow
def test_the_next_response_may_be_of_an_item_with_any_id(app, service, monkeypatch):
    monkeypatch.setitem(globals(), "ESSAY", "a+b & c #2 100%")
    taker = Taker(service, people.issue_ticket(service, essay_test(service), actor="test").token)
    taker.answer()
    taker("answer", number=2, response="Past the mill.")
    scorer = Browser(app, "scorer")
    address = scorer.get("/staff/scoring/next", 303).headers["location"]
    assert "Past the mill." in scorer.page(address).text_content()


def test_half_points_on_the_pages(app, service):
    names = [f"q{i}" for i in range(12)]
    half = ItemBank.from_thresholds(1.0, [[-0.5, 0.5]], "gpcm", item_ids=[ESSAY])
    given = [helpers.items().items[name] for name in names]
    keys = [helpers.items().keys[name] for name in names]
    essay = Item(id=ESSAY, kind="essay", prompt="<p>Describe your way.</p>")
    key = Key(item=ESSAY, kind="rubric", criteria={"way": 0.75, "style": 0.25}, unit=0.25)
    bank = helpers.bank().join(
        ItemBank.from_thresholds(1.0, [np.linspace(-1, 1, 4)], "gpcm", item_ids=[ESSAY])
    )
    test = definition(sections=[{"kind": "fixed", "items": ["q0", ESSAY]}])
    content, wrong = ItemSet([*given, essay], [*keys, key]), helpers.bank().join(half)
    report = publish_report(test, bank, 20)
    with pytest.raises(InputError, match=r"A rubric with half points has the unit 0\.5"):
        library.publish(service, test, wrong, content, actor="test", report=report)
    name = library.publish(service, test, bank, content, actor="test", report=report)[0]
    taker = Taker(service, people.issue_ticket(service, name, actor="test").token)
    taker.answer()
    taker("answer", number=2, response="Past the mill.")
    page = f"/staff/scoring/{taker.attempt}"
    scorer = Browser(app, "scorer")
    tree = scorer.page(f"{page}?item={ESSAY}")
    assert tree.xpath("//input[@name='score']/@value") == ["0", "0.25", "0.5", "0.75", "1"]
    assert [text.text_content() for text in tree.xpath("//label[@class='check']")][1:3] == [
        " 0.25",
        " 0.5",
    ]
    assert "0.75" in tree.xpath("//table")[0].text_content()
    scorer.post(page, 422, item=ESSAY, score="0.3")
    scorer.post(page, item=ESSAY, score="0.75")
    other = Browser(app)
    account = add_account(service, "emmy", password=PASSWORD, roles=["scorer"], actor="test")
    other.sign_in(account)
    other.post(page, item=ESSAY, score="0.75")
    assert taker("current")["report"]["score"] is not None
    agreement = scorer.page("/staff/scoring").text_content()
    assert "0.75" in agreement
    item = Browser(app, "author").page(f"/staff/tests/{name}/item?id={ESSAY}").text_content()
    assert "in steps of" in item


@pytest.mark.slow
def test_recalibration_pages(app, service, published, clock):
    analyst = Browser(app, "psychometrician")
    page = f"/staff/tests/{published}/recalibration"
    assert len(analyst.page(page).xpath("//input[@name='items']")) == 12
    assert "at least one id" in analyst.post(page, 422, least="2").text
    assert "No finished attempt" in analyst.post(page, 422, least="30", items="q4").text
    for right in (True, False, True, False):
        taker = Taker(service, people.issue_ticket(service, published, actor="test").token)
        taker("proceed")
        taker.answer()
        for _ in range(4):
            taker.answer(right)
        taker("proceed")
        for at in range(3):
            taker.answer(right if at else not right)
        taker("proceed")
    done = analyst.post(page, 200, least="2", items=["q0"])
    tree = lxml_html.fromstring(done.text)
    assert "From 4 finished attempts." in tree.text_content()
    bank = tree.xpath("//input[@name='bank']/@value")[0]
    published_page = analyst.post(f"{page}/publish", bank=bank, version="2", retire="yes")
    assert "done=published" in published_page.headers["location"]
    frame = library.published_tests(service)
    frame = frame.sort_values("version", ascending=False)
    assert frame[["version", "status"]].to_numpy().tolist() == [["2", "open"], ["1", "retired"]]
    analyst.post(f"{page}/publish", 422, bank=bank, version="1")
    analyst.post(f"{page}/publish", 404, bank="0" * 64, version="3")


def test_audit_log(app, service, published):
    auditor = Browser(app, "auditor")
    assert "test published" in auditor.page("/staff/audit").text_content()
    assert "digests of the whole log are valid" in auditor.get("/staff/audit?verify=1").text
    auditor.get("/staff/audit?before=x", 422)


def test_credentials_of_programs_are_made_and_revoked(app, service, admin):
    made = lxml_html.fromstring(admin.post("/staff/programs/add", 200, name="TAO").text)
    client, secret = made.xpath("//dl//code/text()")
    token = clients.access_token(service, client, secret, "")[0]
    assert clients.client_of_token(service, token).id == client
    later = admin.page("/staff/programs").text_content()
    assert "TAO" in later
    assert "http://testserver/ims/cat/v1p0" in later
    assert secret not in later
    admin.post(f"/staff/programs/{client}/revoke")
    with pytest.raises(UnauthorizedError):
        clients.client_of_token(service, token)
    assert not admin.page("/staff/programs").xpath("//button[.='Revoke']")
    Browser(app, "proctor").get("/staff/programs", 403)


def test_accounts(app, service, admin):
    admin.post("/staff/accounts/add", name="ada", password=PASSWORD, roles=["proctor", "scorer"])
    table = account_table(service).set_index("name")
    assert table.loc["ada", "roles"] == ["proctor", "scorer"]
    for fields in (
        {"name": "x", "password": "short", "roles": "proctor"},
        {"name": "x", "password": PASSWORD},
        {"name": "x", "roles": "proctor"},
        {"name": "x", "password": PASSWORD, "roles": "king"},
    ):
        admin.post("/staff/accounts/add", 422, **fields)
    admin.post("/staff/accounts/add", 409, name="ada", password=PASSWORD, roles="proctor")
    ada = Browser(app)
    ada.post("/staff/sign-in", name="ada", password=PASSWORD, to="/staff")
    admin.post("/staff/accounts/change", name="ada", roles="auditor")
    ada.get("/staff/account", 303)  # signed out
    ada.post("/staff/sign-in", name="ada", password=PASSWORD, to="/staff")
    ada.page("/staff/audit")
    ada.post("/staff/account/password", 422, present="wrong", password="x" * 12, repeated="x" * 12)
    ada.post("/staff/account/password", 422, present=PASSWORD, password="x" * 12, repeated="y" * 12)
    ada.post("/staff/account/password", present=PASSWORD, password="x" * 12, repeated="x" * 12)
    ada.post("/staff/sign-in", 401, name="ada", password=PASSWORD, to="/staff")
    admin.post("/staff/accounts/change", name="ada", is_open="no")
    ada.post("/staff/sign-in", 401, name="ada", password="x" * 12, to="/staff")
    admin.post("/staff/accounts/change", 409, name="admin", is_open="no")
    admin.post("/staff/accounts/change", 422, name="ada", action="rename")
    admin.post("/staff/accounts/change", 422, name="ada", is_open="maybe")
    refused = lxml_html.fromstring(admin.post("/staff/tickets/t_x/revoke", 404).text)
    assert refused.xpath("//main//a/@href") == ["/staff/tickets"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "' OR 1=1 --", "{{ 7 * 7 }}", "\u202eabc", "a" * 3000]
)
@pytest.mark.parametrize("path", ["/staff/board", "/staff/attempts", "/staff/tickets"])
def test_hostile_filters_are_text(admin, published, path, text):
    for name in ("test", "status", "person"):
        response = admin.client.get(path, params={name: text}, follow_redirects=False)
        assert response.status_code in (200, 404)
        assert "<script>alert" not in response.text
        check_page(response)


def test_board_lists_all_alarms_of_the_domain(app, service, taker):
    frame = proctoring.live_board(service)
    text = Browser(app, "auditor").get("/staff/board/live").text
    assert f"{len(frame)} attempt under way" in text

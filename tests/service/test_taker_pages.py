"""The taker's pages as a browser without JavaScript meets them: plain forms and links."""

import re
import shutil
import sys
from gettext import c2py
from pathlib import Path

import lxml.etree
import lxml.html
import pytest
from fastapi.testclient import TestClient

from irtcat.service.accounts.credentials import service_cookie
from irtcat.service.attempts import people, proctoring, results
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.definition import TRANSLATED
from irtcat.service.pages import MESSAGES
from irtcat.service.pages.translations import catalog, translations
from irtcat.service.storage.context import new_secret
from tests.service.helpers import HandClock
from tests.service.site import ADAPTIVE, ESSAY, FIXED, PRACTICE, Site, check_no_secret

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tools"))
from catalogues import strings_in_use

UNKNOWN_TAG = "HTML_UNKNOWN_TAG"
"""libxml2 knows the elements of HTML 4; newer ones are no error."""


def check_page(html):
    """A page is well formed, has no inline script or style, and names no secret."""
    parser = lxml.etree.HTMLParser()
    root = lxml.etree.fromstring(html.encode(), parser)
    errors = [e for e in parser.error_log if e.type_name != UNKNOWN_TAG]
    assert not errors, errors
    for element in root.iter(lxml.etree.Element):
        if element.tag == "script":
            assert element.get("src", "").startswith("/static/")
            assert not element.text
        assert element.tag != "style"
        for name in element.attrib:
            assert name != "style"
            assert not name.startswith("on")
    ids = root.xpath("//@id")
    assert len(set(ids)) == len(ids)
    assert len(root.xpath("//h1")) == 1
    assert len(root.xpath("//main")) == 1
    assert root.get("lang") in TRANSLATED
    for field in root.xpath("//input[not(@type='hidden')]|//select|//textarea"):
        labels = root.xpath(f"//label[@for='{field.get('id')}']") if field.get("id") else []
        named = labels or field.get("aria-label") or field.xpath("ancestor::label")
        assert named, lxml.etree.tostring(field)
    for attribute in ("aria-labelledby", "aria-describedby"):
        for value in root.xpath(f"//@{attribute}"):
            assert set(value.split()) <= set(ids)
    check_no_secret(html)


class Browser:
    """A browser without JavaScript, which checks every page that it gets."""

    def __init__(self, site, **headers):
        self.site = site
        self.client = TestClient(site.app, headers=headers, base_url="http://testserver")
        self.response, self.test = None, "/test"

    def get(self, path):
        return self.show(self.client.get(self.address(path)))

    def show(self, response):
        assert response.status_code < 500
        self.response, self.html = response, response.text
        check_page(self.html)
        policy = response.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        self.root = lxml.html.fromstring(self.html, base_url=str(response.url))
        self.test = next(iter(self.root.xpath("//body/@data-address")), self.test)
        return self

    @property
    def heading(self):
        return " ".join(self.root.xpath("//h1")[0].text_content().split())

    def text(self, path="//main"):
        return " ".join(" ".join(e.text_content() for e in self.root.xpath(path)).split())

    def form(self, action):
        """The form of an action; "/test/..." stands for that of this page's attempt."""
        wanted = self.address(action)
        return next(f for f in self.root.forms if (f.get("action") or "") == wanted)

    def address(self, path):
        """The address of a page below that of this page's attempt."""
        return re.sub("^/test", self.test, path)

    def cookies(self, kind):
        return [name for name in self.client.cookies if name.startswith(f"irtcat_{kind}_")]

    def fields(self, action):
        return dict(self.form(action).fields)

    def submit(self, action, button=None, **values):
        """Send a form as the browser would, with the value of the button that is pressed."""
        form = self.form(action)
        data = []
        for name, value in form.form_values():
            if name not in values:
                data.append((name, value))
        for name, value in values.items():
            name = name.replace("position_", "position.")
            data += [(name, each) for each in (value if isinstance(value, list) else [value])]
        if button is not None:
            data.append(button)
        body = {name: [v for n, v in data if n == name] for name, _ in data}
        url = form.get("action") or str(self.response.url.path)
        return self.show(self.client.post(url, data=body))

    def answer(self, action="next", **values):
        return self.submit("/test/answer", ("action", action), **values)

    def start(self, ticket):
        self.get(f"/t/{ticket}")
        if not self.root.forms:  # it is not offered
            self.get("/")
        fields = {"token": self.root.forms[0].fields["token"]}
        return self.show(self.client.post(f"/t/{ticket}", data=fields))

    def choose(self, text):
        """The value of the choice with a text."""
        for label in self.root.xpath("//label[contains(@class, 'choice')]"):
            if label.text_content().strip() == text:
                return label.xpath(".//input/@value")[0]
        raise AssertionError(text)

    def first(self):
        return self.root.xpath("//input[@name='response']/@value")[0]

    def to_adaptive(self, ticket):
        self.start(ticket).submit("/test/proceed")
        return self.answer(response=self.first())

    def to_fixed(self, ticket):
        self.to_adaptive(ticket)
        for _ in range(3):
            self.answer(response=self.first())
        return self.submit("/test/proceed")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The file of a service with a test: publishing takes longer than taking the test."""
    path = tmp_path_factory.mktemp("published") / "tests.db"
    Site(str(path), clock=HandClock(), essay=True).service.close()
    return path


@pytest.fixture
def site(tmp_path, clock, published):
    path = shutil.copy(published, tmp_path / "tests.db")
    opened = Site(str(path), clock=clock, essay=True)
    yield opened
    opened.service.close()


@pytest.fixture
def browser(site):
    return Browser(site)


def answers_of(site):
    (name,) = site.attempts()
    return attempt_of(site.service, name).progress.answers


@pytest.mark.slow
def test_a_whole_test_without_javascript(site, browser, clock):
    ticket = site.ticket()
    browser.get("/")
    assert browser.heading == "Start a test"
    browser.submit("/", code=f"https://example.org/t/{ticket}")
    assert browser.response.url.path == f"/t/{ticket}"
    assert "You have 30 minutes for the test." in browser.text()
    assert not site.attempts()  # opening the link has begun nothing
    browser.start(ticket)
    assert re.fullmatch(r"/test/[0-9a-f]{16}", browser.response.url.path)
    assert browser.heading == "Instructions"
    assert browser.root.xpath("//main//em/text()") == ["calmly"]
    browser.submit("/test/proceed")
    assert browser.heading == "Question 1 of 1"
    assert "Practice, not scored" in browser.text("//header")
    browser.answer(response=browser.choose("4"))
    for at in range(3):
        assert browser.heading == f"Question {at + 1}"
        assert "at most 3 questions" in browser.text()
        assert browser.root.xpath("//progress/@value") == [str(at)]
        assert (f"{at} answer" if at else "No answers yet") in browser.text("//p[@id='saved']")
        clock.move(20)
        browser.answer(response=browser.first())
    assert browser.heading == "Break"
    assert "5:00" in browser.text("//header")
    assert browser.root.xpath("//noscript/meta/@content") == ["301"]
    browser.submit("/test/proceed")
    assert browser.heading == "Question 1 of 6"
    assert "The tram runs" in browser.text("//section[@aria-label]")
    two, three = browser.choose("2"), browser.choose("3")
    browser.answer(response=[two, three])
    positions = {"position_c1": "2", "position_c2": "4", "position_c3": "1", "position_c4": "3"}
    browser.answer(**positions)
    assert [e.text_content() for e in browser.root.xpath("//label[@class='toggle']")] == [
        "cat",
        "sleeps",
        "rains & pours",
    ]
    browser.answer(response=["c2", "c3"])
    browser.answer(response=" 16 ")
    assert browser.root.xpath("//div[@id='prompt']/@dir") == ["rtl"]
    assert browser.root.xpath("//div[@id='prompt']/@lang") == ["ar"]
    browser.answer(response=browser.choose("القاهرة"))
    assert browser.root.xpath("//textarea/@rows") == ["6"]
    browser.answer(response="First the bus,\r\nthen the tram.")
    assert browser.heading == "Your answers"
    assert "All questions have an answer." in browser.text()
    browser.submit("/test/proceed")
    assert browser.heading == "The test is finished"
    assert "Your result is not ready yet" in browser.text()
    answers = answers_of(site)
    assert answers["secret-choices"].response == ["keyA", "keyB"]
    assert answers["secret-choices"].code == 1
    assert answers["secret-order"].response == ["keyC", "keyA", "keyD", "keyB"]
    assert answers["secret-order"].code == 1
    assert answers["secret-hot"].code == answers["secret-text"].code == 1
    assert answers["secret-arabic"].code == 1
    assert answers[ESSAY].response == "First the bus,\nthen the tram."
    assert len([name for name in answers if name in ADAPTIVE]) == 3
    browser.submit("/test/leave")
    assert browser.heading == "Start a test"
    assert browser.get("/test").response.status_code == 401
    assert browser.start(ticket).response.status_code == 410


def test_the_score_report(tmp_path, clock):
    site = Site(str(tmp_path / "tests.db"), clock=clock)
    browser = Browser(site).to_fixed(site.ticket())
    for _ in FIXED:
        browser.answer("list")
        browser.submit("/test/go", ("place", "1"))
    browser.answer("list")
    assert "5 questions have no answer." in browser.text()
    browser.submit("/test/proceed")
    assert browser.heading == "The test is finished"
    report = browser.root.xpath("//dd/text()")
    score = int(report[0])
    assert score == results.result_table(site.service, site.test)["score"][0]
    assert report[1] == ("Beginner" if score < 450 else "Basic")
    found = re.search(r"in the range from (\d+) to (\d+) \(95% interval\)", browser.text())
    lower, upper = map(int, found.groups())
    assert lower <= score <= upper
    site.service.close()


def test_topics_and_missing_scores(browser, site, monkeypatch):
    from irtcat.service.attempts import taking

    browser.start(site.ticket())
    real = taking.current

    def finished(*arguments):
        report = {
            "score": None,
            "lower": None,
            "upper": None,
            "interval_level": 0.9,
            "level": None,
            "topics": {"<b>Algebra": {"score": 512.5, "lower": 1.0, "upper": 2.0, "n_items": 3}},
        }
        return {**real(*arguments), "page": "finished", "status": "finished", "report": report}

    monkeypatch.setattr(taking, "current", finished)
    browser.get(f"/language/de?to={browser.test}")
    assert "zu wenige Antworten" in browser.text()
    cells = [e.text_content() for e in browser.root.xpath("//tbody//*[self::td or self::th]")]
    assert cells == ["<b>Algebra", "512,5", "1 bis 2", "3"]


def test_review_marks_and_navigation(browser, site):
    browser.to_fixed(site.ticket())
    browser.answer("flag", response=["c1"])
    assert browser.heading == "Question 1 of 6 ⚑ marked for review"
    assert browser.root.xpath("//input[@checked]/@value") == ["c1"]  # kept with the mark
    browser.answer("go.4")
    assert browser.heading == "Question 4 of 6"
    browser.answer("previous")  # without an answer none is recorded
    assert browser.heading == "Question 3 of 6"
    assert "secret-text" not in answers_of(site)
    browser.answer("go.1")
    browser.answer("unflag")
    assert browser.heading == "Question 1 of 6"
    browser.answer("previous", response=[])  # nothing selected any more: the answer is withdrawn
    assert answers_of(site)["secret-choices"].response is None
    assert browser.heading == "Your answers"
    assert "6 questions have no answer." in browser.text()
    browser.submit("/test/go", ("place", "6"))
    browser.answer(response="A text")
    assert browser.heading == "Your answers"
    browser.submit("/test/go", ("place", "6"))
    assert browser.root.xpath("//textarea")[0].value.strip() == "A text"


@pytest.mark.slow
def test_a_changed_answer_counts(browser, site):
    browser.to_fixed(site.ticket())
    browser.answer("go.4", response=["c1"])
    browser.answer("previous", response="15")
    browser.answer("go.4")
    assert browser.root.xpath("//input[@id='response']/@value") == ["15"]
    fields = browser.fields("/test/answer")
    browser.answer(response="16")
    assert answers_of(site)["secret-text"].response == "16"
    # The page from before, sent with another answer, is another request; sent again, the same.
    for response in ("17", "17"):
        browser.show(
            browser.client.post(
                browser.address("/test/answer"), data={**fields, "response": response}
            )
        )
    assert answers_of(site)["secret-text"].response == "17"


@pytest.mark.slow_cases("(?!4-values3-Enter a number without$).*")
@pytest.mark.parametrize(
    ("place", "values", "advice"),
    [
        (1, {"response": ["c1", "c2", "c3", "c4"]}, "Select from 1 to 3 answers."),
        (2, {"position_c1": "1", "position_c2": "1"}, "Give every entry its own position"),
        (2, {"position_c1": "1", "position_c2": "2"}, "Give every entry its own position"),
        (4, {"response": "sixteen"}, "Enter a number without"),
        (5, {"response": "c9"}, "Select an answer to continue."),
    ],
)
def test_invalid_answers_are_explained_and_kept(browser, site, place, values, advice):
    browser.to_fixed(site.ticket())
    browser.answer(f"go.{place}")
    browser.answer(**values)
    assert browser.response.status_code == 422
    assert advice in browser.text("//div[@id='error']")
    assert browser.root.xpath("//title/text()")[0].startswith("Error:")
    assert browser.root.xpath("//*[@aria-invalid='true']")
    assert not set(answers_of(site)) & set(FIXED)
    if place == 1:
        assert len(browser.root.xpath("//input[@checked]")) == 4
    if place == 2:
        chosen = browser.root.xpath("//option[@selected]/@value")
        assert chosen == [values["position_c1"], values["position_c2"]]
    if place == 4:
        assert browser.root.xpath("//input[@id='response']/@value") == ["sixteen"]


def test_an_answer_is_required(browser, site):
    browser.to_adaptive(site.ticket())
    assert not browser.root.xpath("//button[@value='skip']")
    browser.answer()
    assert browser.response.status_code == 422
    assert "Select an answer to continue." in browser.text()
    assert browser.answer("skip", response=browser.first()).response.status_code == 422


@pytest.mark.slow
def test_a_form_sent_twice_counts_once(browser, site):
    browser.to_adaptive(site.ticket())
    fields = {**browser.fields("/test/answer"), "response": "c1"}
    for _ in range(3):
        browser.show(browser.client.post(browser.address("/test/answer"), data=fields))
        assert browser.heading == "Question 2"
    browser.show(
        browser.client.post(browser.address("/test/answer"), data={**fields, "response": "c2"})
    )
    assert browser.response.status_code == 409
    assert browser.heading == "Question 2"
    assert "Your last answer was not recorded" in browser.text("//div[@role='alert']")
    assert len(answers_of(site)) == 2


def test_instructions_sent_twice_do_not_skip_the_next_page(browser, site):
    browser.start(site.ticket())
    fields = browser.fields("/test/proceed")
    for extra in ({}, {}, {"request": "another"}):
        browser.show(
            browser.client.post(browser.address("/test/proceed"), data={**fields, **extra})
        )
        assert browser.heading == "Question 1 of 1"


@pytest.mark.slow
def test_answers_for_the_script_come_as_pages(browser, site):
    browser.to_adaptive(site.ticket())
    fields = {**browser.fields("/test/answer"), "response": "c1"}
    headers = {"X-Irtcat-Page": "1"}
    reply = browser.client.post(
        browser.address("/test/answer"), data=fields, headers=headers, follow_redirects=False
    )
    assert reply.status_code == 200
    assert browser.show(reply).heading == "Question 2"


def test_time(browser, site, clock):
    browser.to_adaptive(site.ticket(accommodations=["extra_time_50"]))
    reply = browser.client.get(browser.address("/test/time")).json()
    assert reply == {"status": "running", "time": {"item": 450, "section": None, "test": 2700}}
    assert browser.root.xpath("//li[@data-scope='test']/@data-warnings") == ["300 60"]
    assert "45:00" in browser.text("//header")
    fields = {**browser.fields("/test/answer"), "response": "c1"}
    clock.move(460)
    assert browser.client.get(browser.address("/test/time")).json()["time"]["item"] == 0
    browser.show(browser.client.post(browser.address("/test/answer"), data=fields))
    assert browser.response.status_code == 409
    assert "its time was over" in browser.text()
    assert browser.heading == "Question 2"


def test_pauses(site, clock):
    browser = Browser(site).to_adaptive(site.ticket(accommodations=["pause"]))
    browser.submit("/test/pause")
    assert browser.heading == "The test is paused"
    browser.submit("/test/resume")
    assert browser.heading == "Question 1"
    fields = {**browser.fields("/test/answer"), "response": "c1"}
    (attempt,) = site.attempts()
    proctoring.pause(site.service, attempt, actor="proctor", reason="alarm")
    browser.show(browser.client.post(browser.address("/test/answer"), data=fields))
    assert browser.response.status_code == 409
    assert "The test is paused. Your last answer was not recorded." in browser.text()
    assert not [
        form for form in browser.root.forms if form.get("action") == browser.address("/test/resume")
    ]
    # A pause by staff is not ended by the taker, whatever their accommodations.
    browser.show(
        browser.client.post(browser.address("/test/resume"), data={"token": fields["token"]})
    )
    assert browser.response.status_code == 409
    assert browser.heading == "The test is paused"
    proctoring.resume(site.service, attempt, actor="proctor")
    assert browser.get("/test").heading == "Question 1"


def test_two_tickets_in_one_browser(site):
    """An answer is recorded in the attempt and for the item of the page that it was given on."""
    first = Browser(site).to_adaptive(site.ticket())
    second = Browser(site)
    second.client = first.client  # another tab
    second.to_adaptive(site.ticket())
    second.answer(response=second.first())
    one, two = site.attempts()
    if attempt_of(site.service, one).progress.answers.keys() > {PRACTICE}:
        one, two = two, one

    def answers(name):
        return attempt_of(site.service, name).progress.answers

    before = dict(answers(two))
    first.answer(response=first.first())
    assert first.heading == second.heading == "Question 2"
    assert len(answers(one)) == 2
    assert answers(two) == before
    # A form whose address is that of the other attempt is not of an item that is shown there.
    for number in ("1", "99"):
        fields = {**first.fields("/test/answer"), "number": number, "response": "c1"}
        first.client.post(second.address("/test/answer"), data=fields)
    assert {**answers(two), PRACTICE: before[PRACTICE]} == before
    assert second.get("/test").heading == "Question 2"
    listed = first.get("/").root.xpath("//main//a[@class='button']/@href")
    assert sorted(listed) == sorted([first.test, second.test])
    assert first.client.get("/test", follow_redirects=False).headers["location"] == "/"
    proctoring.void(site.service, two, actor="proctor", reason="fraud")
    assert second.get("/test").heading == "This test was cancelled"
    second.submit("/test/leave")
    assert first.get("/test").heading == "Question 2"
    assert Browser.show(first, first.client.get("/test/" + "0" * 16)).response.status_code == 401


def test_a_browser_keeps_only_tests_under_way(site):
    browser = Browser(site).start(site.ticket())
    (over,) = site.attempts()
    proctoring.void(site.service, over, actor="proctor", reason="fraud")
    browser.start(site.ticket())
    assert len(browser.cookies("device")) == 1
    browser.start(site.ticket())
    assert len(browser.cookies("device")) == 2


@pytest.mark.slow
def test_two_services_on_one_host(site, tmp_path, published):
    """Browsers send a cookie to every port of a host, and to what runs there the next day."""
    other = Site(str(shutil.copy(published, tmp_path / "other.db")), clock=HandClock(), essay=True)
    other.service.secret = new_secret()  # the copy is a service of its own
    first, second = Browser(site), Browser(other)
    second.client._cookies = first.client._cookies
    first.to_adaptive(site.ticket())
    second.to_adaptive(other.ticket())
    for browser in (first, second):
        browser.answer(response=browser.first())
        assert browser.heading == "Question 2"
        browser.get("/language/de?to=/")
    assert first.get("/").root.get("lang") == "de"
    names = set(first.client.cookies)
    made = {service_cookie(it.service, "staff").split("_")[-1] for it in (site, other)}
    assert {name.split("_")[2] for name in names} == made
    assert len(made) == 2
    other.service.close()


def test_devices(browser, site):
    ticket = site.ticket()
    browser.to_adaptive(ticket)
    # The same device opens the link again, from a mail: it continues.
    assert "Continue the test" in browser.get(f"/t/{ticket}").text()
    assert browser.start(ticket).heading == "Question 1"
    assert "A test is open on this device." in browser.get("/").text()
    other = Browser(site).get(f"/t/{ticket}")
    assert "open on another device" in other.text()
    assert not other.root.xpath("//main//button")  # what would be refused is not offered
    other.start(ticket)
    assert other.response.status_code == 409
    assert "open on another device" in other.text()
    (attempt,) = site.attempts()
    proctoring.release(site.service, attempt, actor="proctor")
    assert other.start(ticket).heading == "Question 1"
    browser.get("/test")
    assert browser.response.status_code == 401
    assert browser.heading == "This device does not have the test"


def test_a_test_that_is_over_is_not_continued(browser, site):
    ticket = site.ticket()
    browser.start(ticket)
    (attempt,) = site.attempts()
    proctoring.void(site.service, attempt, actor="proctor", reason="fraud")
    assert browser.get(f"/t/{ticket}").root.xpath("//main//button")[0].text == "Show the last page"
    assert "The test is over." in browser.get("/").text()
    other = Browser(site).get(f"/t/{ticket}")
    assert "The test was taken with this ticket." in other.text()
    assert not other.root.xpath("//main//button")


@pytest.mark.slow
def test_a_part_with_a_title_has_no_other_number(browser, site):
    browser.to_adaptive(site.ticket())
    assert " ".join(browser.text("//p[@class='soft small']").split())[:7] == "Numbers"
    assert "Part 2 of" not in browser.html
    assert browser.root.xpath("//button[.='End the practice']") == []


def test_a_start_whose_reply_was_lost(browser, site):
    ticket = site.ticket()
    browser.start(ticket)
    browser.client.cookies.delete(*browser.cookies("device"))
    assert browser.start(ticket).response.status_code == 200
    assert len(browser.cookies("device")) == 1
    assert len(site.attempts()) == 1


@pytest.mark.slow
def test_a_void_test(browser, site):
    browser.to_adaptive(site.ticket())
    (attempt,) = site.attempts()
    proctoring.void(site.service, attempt, actor="proctor", reason="fraud")
    assert browser.get("/test").heading == "This test was cancelled"
    browser.submit("/test/leave")
    assert not browser.cookies("device")


@pytest.mark.slow
def test_forms_of_other_sites_are_refused(browser, site):
    ticket = site.ticket()
    attacker = Browser(site).get("/")
    stolen = attacker.fields("/")["token"]
    for data in ({}, {"token": ""}, {"token": stolen}, {"token": "ü"}, {"token": "0" * 64}):
        assert (
            Browser(site)
            .show(TestClient(site.app).post(f"/t/{ticket}", data=data))
            .response.status_code
            == 403
        )
    browser.to_adaptive(ticket)
    fields = {**browser.fields("/test/answer"), "response": "c1"}
    for path in (
        "/test/answer",
        "/test/go",
        "/test/proceed",
        "/test/pause",
        "/test/resume",
        "/test/leave",
        "/",
        f"/t/{ticket}",
    ):
        reply = browser.client.post(browser.address(path), data={**fields, "token": stolen})
        assert reply.status_code == 403
    assert len(answers_of(site)) == 1
    client = TestClient(site.app)
    form = client.get("/").headers["set-cookie"]
    language = client.get("/language/de", follow_redirects=False).headers["set-cookie"]
    device = browser.client.post(
        f"/t/{site.ticket()}", data=fields, follow_redirects=False
    ).headers["set-cookie"]
    for cookie, same_site in ((form, "lax"), (language, "strict"), (device, "strict")):
        assert "HttpOnly" in cookie
        assert f"SameSite={same_site}" in cookie
    assert "set-cookie" not in client.get("/").headers  # the secret stays while it is sent


def test_malformed_forms_make_no_server_errors(browser, site):
    browser.to_adaptive(site.ticket())
    fields = browser.fields("/test/answer")
    wrong = [
        {"number": "x"},
        {"number": "9" * 400},
        {"number": "-1"},
        {"kind": "order", "position.c1": "x" * 300},
        {"kind": "order", "position.<b>": "1"},
        {"kind": "choices", "response": ["c1", "c1"]},
        {"kind": "<script>", "response": "<script>alert(1)</script>"},
        {"kind": "hottext", "response": ["\x00"]},
        {"response": "c1", "action": "go.x"},
        {"action": "go.99999999999999999999"},
        {"action": "list"},
        {"action": "flag"},
        {"request": "r" * 100_000, "response": "zz"},
    ]
    for data in wrong:
        reply = browser.client.post(browser.address("/test/answer"), data={**fields, **data})
        assert reply.status_code in (200, 409, 422), data
        browser.show(reply)
        assert "<script>alert" not in reply.text
    files = {"response": ("a.txt", b"x"), "token": (None, fields["token"])}
    assert browser.client.post(browser.address("/test/answer"), files=files).status_code == 409
    reply = browser.client.post(
        browser.address("/test/answer"),
        content=b"\xff\xfe",
        headers={"content-type": "multipart/form-data; boundary=x"},
    )
    assert reply.status_code == 400
    assert browser.client.get("/language/xx").status_code == 404
    for to in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:1"):
        reply = browser.client.get("/language/de", params={"to": to}, follow_redirects=False)
        assert reply.headers["location"] == "/"
    for path in ("/t/x", "/t/%00", "/nothing", "/static/0/taker.css", "/static/x/..%2ftaker.py"):
        assert browser.get(path).response.status_code == 404


def test_static_files_are_kept_for_ever(browser):
    browser.get("/")
    address = browser.root.xpath("//link[@rel='stylesheet']/@href")[0]
    reply = browser.client.get(address)
    assert reply.status_code == 200
    assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert reply.headers["content-type"].startswith("text/css")
    assert browser.response.headers["cache-control"] == "no-store"
    assert browser.client.get(address.replace("/static/", "/static/0")).status_code == 404


# Languages


@pytest.mark.slow
def test_languages(tmp_path, clock):
    site = Site(str(tmp_path / "tests.db"), clock=clock, language="es")
    ticket = site.ticket()
    browser = Browser(site, **{"accept-language": "fr, de-AT;q=0.8"})
    assert browser.get("/").root.get("lang") == "de"
    assert browser.start(ticket).root.get("lang") == "es"  # the test's own language
    assert browser.heading == "Instrucciones"
    browser.get(f"/language/de?to={browser.test}")
    assert browser.heading == "Anleitung"
    browser.submit("/test/proceed")
    browser.answer(response="c1")
    assert "Dieser Teil hat höchstens 3 Fragen." in browser.text()
    assert browser.text("//p[@id='saved']") == "Noch keine Antworten"
    assert browser.root.xpath("//p[@class='title']/span/@lang") == ["es"]
    browser.answer()
    assert "Fehler: Wählen Sie eine Antwort aus" in browser.text("//div[@id='error']")
    assert browser.get("/t/none").text().startswith("Nicht gefunden Dieses Ticket gibt es nicht.")
    site.service.close()


@pytest.mark.slow
def test_a_test_in_a_language_without_translation(tmp_path, clock):
    site = Site(str(tmp_path / "tests.db"), clock=clock, language="fa", title="آزمون")
    browser = Browser(site).start(site.ticket())
    assert browser.root.get("lang") == "en"
    assert browser.root.get("dir") == "ltr"
    assert browser.root.xpath("//p[@class='title']/span/@dir") == ["rtl"]
    site.service.close()


@pytest.mark.slow
def test_a_test_and_its_pages_from_right_to_left(tmp_path, clock):
    site = Site(str(tmp_path / "tests.db"), clock=clock, language="ar", title="اختبار")
    browser = Browser(site).start(site.ticket())
    assert (browser.root.get("lang"), browser.root.get("dir")) == ("ar", "rtl")
    assert browser.root.xpath("//p[@class='title']/span/@dir") == ["rtl"]
    assert browser.heading == "التعليمات"
    site.service.close()


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 ثانية"),
        (1, "ثانية واحدة"),
        (2, "ثانيتان"),
        (3, "3 ثوانٍ"),
        (10, "10 ثوانٍ"),
        (11, "11 ثانية"),
        (100, "100 ثانية"),
        (103, "103 ثوانٍ"),
        (111, "111 ثانية"),
    ],
)
def test_plural_forms_of_arabic(n, text):
    assert translations("ar").ngettext("%(n)d second", "%(n)d seconds", n) % {"n": n} == text


@pytest.mark.slow
@pytest.mark.parametrize("language", TRANSLATED[1:])
def test_translations_are_complete(language):
    used, known = strings_in_use(), catalog(language)
    assert {entry.id for entry in used if entry.id} == {entry.id for entry in known if entry.id}
    assert len(used) > 100
    for entry in known:
        if not entry.id:
            continue
        assert not entry.fuzzy
        sources = entry.id if entry.pluralizable else (entry.id,)
        texts = entry.string if entry.pluralizable else (entry.string,)
        assert all(texts), entry.id
        plural = c2py(re.search(r"plural=(.*?);?$", known.plural_forms)[1])
        for form, text in enumerate(texts):
            # A form for one number only may have it in words.
            if not entry.pluralizable or sum(plural(n) == form for n in range(200)) > 1:
                fields = {
                    field
                    for source in sources
                    for field in re.findall(r"%\(\w+\)[sd]|\{\w+\}", source)
                }
                assert all(field in text for field in fields), entry.id
        assert not list(entry.check(known))


def test_messages_of_the_service_are_translated():
    german = translations("de")
    for text in MESSAGES:
        assert german.gettext(text) != text
    modules = ("attempt", "taking")
    from pathlib import Path

    import irtcat.service

    folder = Path(irtcat.service.__file__).parent / "attempts"
    source = "".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in modules)
    missing = [text for text in MESSAGES if "ticket" in text and text not in source]
    assert not missing, "messages that the service no longer has"


@pytest.mark.slow
def test_errors_of_takers_name_no_item(browser, site, monkeypatch):
    from irtcat._common.checks import InputError
    from irtcat.service.attempts import taking

    browser.start(site.ticket())

    def broken(*arguments, **options):
        raise InputError("response to item secret-01: expected one of keyA, keyB.")

    monkeypatch.setattr(taking, "current", broken)
    browser.get("/test")  # `check_page` looks for the names
    assert browser.response.status_code == 422


def test_an_unknown_ticket_and_one_that_is_revoked(browser, site):
    assert browser.get("/t/" + "x" * 32).response.status_code == 404
    token = site.ticket()
    ticket = people.ticket_table(site.service)["id"][0]
    people.revoke_ticket(site.service, ticket, actor="test")
    assert browser.get(f"/t/{token}").response.status_code == 410
    assert "no longer valid" in browser.text()

"""People take the test in a browser: on a desktop and a phone, by keyboard, without network."""

import os
import re
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from irtcat.service.attempts import proctoring
from irtcat.service.attempts.attempt import attempt_of
from tests.service.browser.accessibility import check_accessible
from tests.service.browser.conftest import Served
from tests.service.site import ADAPTIVE, ESSAY, FIXED, PRACTICE, check_no_secret

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}

SHOTS = os.environ.get("IRTCAT_SCREENSHOTS", "")
"""A folder to which screenshots are written; none by default."""


class Taker:
    """A person with a browser. Every page is searched for secrets."""

    def __init__(self, chromium, served, name="", **options):
        self.context = chromium.new_context(base_url=served.url, locale="en-GB", **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.served, self.name, self.shots, self.problems = served, name, 0, []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("response", self._search)
        self.bodies = []

    def _console(self, message):
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def _search(self, response):
        if response.status not in (204, 301, 302, 303):
            self.bodies.append(response)

    def close(self):
        for response in self.bodies:
            kind = response.headers.get("content-type", "")
            if "html" in kind or "json" in kind:
                try:
                    check_no_secret(response.text())
                except Exception as error:
                    if "No resource" not in str(error) and "No data" not in str(error):
                        raise
        self.context.close()
        assert not self.problems, self.problems

    def start(self, ticket):
        self.page.goto(f"/t/{ticket}")
        self.look()
        self.page.get_by_role("button", name=re.compile("the test")).click()
        self.page.wait_for_url("**/test/*")
        return self

    def heading(self, text):
        name = re.compile(rf"^{text}( ⚑ marked for review)?$")
        self.page.get_by_role("heading", level=1, name=name).wait_for()
        self.look()
        return self

    def press(self, name):
        self.page.get_by_role("button", name=name, exact=True).click()
        return self

    def look(self):
        """A screenshot, and the checks that every page passes."""
        page = self.page
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"scrolls sideways by {wide} pixels"
        if SHOTS and self.name:
            self.shots += 1
            folder = Path(SHOTS)
            folder.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(folder / f"{self.name}-{self.shots:02}.png"), full_page=True)
        check_accessible(page, f"{page.url} {page.locator('h1').inner_text()}")

    def answers(self):
        """The answers that the server has, by item."""
        return attempt_of(self.served.service, self.served.attempts()[-1]).progress.answers

    def text(self):
        return self.page.locator("body").inner_text()


@pytest.fixture
def taker(chromium, served):
    people = []

    def new(name="", **options):
        people.append(Taker(chromium, served, name, **{**DESKTOP, **options}))
        return people[-1]

    yield new
    for person in people:
        person.close()


def to_numbers(person):
    """Through the instructions and the practice."""
    person.heading("Instructions").press("Continue")
    person.heading("Question 1 of 1")
    person.page.get_by_label("4", exact=True).check()
    person.press("Next")
    person.heading("Question 1")
    return person


def numbers(person):
    """Through the adaptive section and the break."""
    for at in range(3):
        person.heading(f"Question {at + 1}")
        person.page.get_by_role("radio").first.check()
        person.press("Next")
    person.heading("Break").press("End the break")
    return person


def reading(person):
    """Through the section with review."""
    page = person.page
    person.heading("Question 1 of 5")
    page.get_by_label("2", exact=True).check()
    page.get_by_label("3", exact=True).check()
    person.press("Save and continue").heading("Question 2 of 5")
    # Mercury, Venus, Earth, Mars
    page.get_by_role("button", name="Move up: Mercury").click()
    page.get_by_role("button", name="Move up: Mercury").click()
    page.get_by_role("button", name="Move down: Mars").click()
    person.look()
    person.press("Save and continue").heading("Question 3 of 5")
    page.get_by_label("sleeps").check()
    page.get_by_label("rains & pours").check()
    person.look()
    person.press("Mark for review").heading("Question 3 of 5").page.get_by_text(
        "⚑ marked"
    ).wait_for()
    person.press("Save and continue").heading("Question 4 of 5")
    page.get_by_label("Your answer").fill("sixteen")
    person.press("Save and continue")
    page.get_by_text("Enter a number without").wait_for()
    person.look()
    assert page.evaluate("document.activeElement.id") == "error"
    page.get_by_label("Your answer").fill("16")
    page.keyboard.press("Enter")
    person.heading("Question 5 of 5")
    page.get_by_label("القاهرة").check()
    person.look()
    person.press("Save and continue").heading("Your answers")
    person.page.get_by_text("All questions have an answer.").wait_for()
    return person


def finish(person):
    person.press("End this part").heading("The test is finished")
    assert re.search(r"from \d+ to \d+ \(95% interval\)", person.text())
    answers = person.answers()
    assert [answers[name].code for name in FIXED] == [1] * 5
    return person


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("desktop", DESKTOP),
        ("phone", PHONE),
        ("dark", {**DESKTOP, "color_scheme": "dark"}),
        ("zoom", {"viewport": {"width": 320, "height": 256}}),  # 1280 x 1024 at 400 %
    ],
)
def test_a_whole_test(taker, served, name, options):
    person = taker(name, **options).start(served.ticket())
    finish(reading(numbers(to_numbers(person))))
    assert person.page.evaluate("Object.keys(localStorage).length") == 0


def tab_to(page, matches, most=60):
    """Press Tab until the element with the focus fulfils a condition."""
    for _ in range(most):
        if page.evaluate(f"(() => {{ const e = document.activeElement; return {matches}; }})()"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"no element with {matches} is reached by Tab")


def button_with(text):
    return f"e.tagName === 'BUTTON' && e.textContent.trim() === '{text}'"


def test_by_keyboard_alone(taker, served):
    person = taker("keyboard")
    page = person.page
    page.goto(f"/t/{served.ticket()}")
    tab_to(page, button_with("Start the test"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/test/*")
    tab_to(page, button_with("Continue"))
    page.keyboard.press("Enter")
    for at in range(4):  # the practice, and three numbers
        person.heading("Question 1 of 1" if at == 0 else f"Question {at}")
        page.wait_for_function("document.activeElement.id === 'heading'")
        tab_to(page, "e.type === 'radio'")
        page.keyboard.press("Space")
        page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.checked")
        person.look()
        tab_to(page, button_with("Next"))
        page.keyboard.press("Enter")
        if at == 1:  # the practice does not count
            page.get_by_text("1 answer saved").wait_for()
    person.heading("Break")
    tab_to(page, button_with("End the break"))
    page.keyboard.press("Enter")
    person.heading("Question 1 of 5")
    for _ in range(2):
        tab_to(page, "e.type === 'checkbox' && !e.checked")
        page.keyboard.press("Space")
    tab_to(page, button_with("Save and continue"))
    page.keyboard.press("Enter")
    person.heading("Question 2 of 5")
    # Venus, Mars, Mercury, Earth -> Mercury, Venus, Earth, Mars
    mercury = "e.className === 'up' && e.closest('li').textContent.includes('Mercury')"
    tab_to(page, mercury)
    page.keyboard.press("Enter")
    page.get_by_text("Now at position 2 of 4.").wait_for()
    assert page.evaluate(f"(() => {{ const e = document.activeElement; return {mercury}; }})()")
    page.keyboard.press("Enter")
    tab_to(page, "e.className === 'down' && e.closest('li').textContent.includes('Mars')")
    page.keyboard.press("Space")
    tab_to(page, button_with("Save and continue"))
    page.keyboard.press("Enter")
    person.heading("Question 3 of 5")
    tab_to(page, "e.type === 'checkbox' && e.value === 'c2'")
    page.keyboard.press("Space")
    tab_to(page, "e.type === 'checkbox' && e.value === 'c3'")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    person.heading("Question 4 of 5")
    tab_to(page, "e.id === 'response'")
    page.keyboard.type("16")
    page.keyboard.press("Enter")
    person.heading("Question 5 of 5")
    tab_to(page, "e.type === 'radio'")
    page.keyboard.press("Space")
    tab_to(page, button_with("Save and continue"))
    page.keyboard.press("Enter")
    person.heading("Your answers")
    tab_to(page, button_with("End this part"))
    page.keyboard.press("Enter")
    person.heading("The test is finished")
    answers = person.answers()
    assert [answers[name].code for name in FIXED] == [1] * 5


def test_without_network_for_ten_seconds(taker, served):
    person = to_numbers(taker("offline").start(served.ticket()))
    page = person.page
    page.get_by_role("radio").nth(1).check()
    before = len(person.answers())
    person.context.set_offline(True)
    person.press("Next")
    page.get_by_text("Your answer is kept on this device").wait_for()
    person.look()
    page.get_by_role("button", name="Next", exact=True).click()  # impatient
    time.sleep(10)
    assert len(person.answers()) == before
    assert page.evaluate("Object.keys(localStorage).some((key) => key.endsWith('.pending'))")
    person.context.set_offline(False)
    person.heading("Question 2")
    assert not page.get_by_text("Your answer is kept on this device").is_visible()
    assert len(person.answers()) == before + 1
    assert not page.evaluate("Object.keys(localStorage).some((key) => key.endsWith('.pending'))")


def test_a_reply_that_is_lost_and_a_reload(taker, served):
    """The answer is on the server; the page is closed before it knows, and opened again."""
    person = to_numbers(taker().start(served.ticket()))
    page = person.page
    page.get_by_role("radio").first.check()

    def lose(route):
        route.fetch()
        route.abort()

    page.route("**/test/*/answer", lose)
    person.press("Next")
    page.get_by_text("Your answer is kept on this device").wait_for()
    assert len(person.answers()) == 2
    page.unroute("**/test/*/answer")
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto("/test")
    person.heading("Question 2")
    page.wait_for_function("!Object.keys(localStorage).some((key) => key.endsWith('.pending'))")
    assert len(person.answers()) == 2
    assert "was not recorded" not in person.text()


def test_a_draft_survives_a_reload(taker, served):
    person = numbers(to_numbers(taker().start(served.ticket())))
    page = person.page
    person.heading("Question 1 of 5").press("Question 4, not answered")
    person.heading("Question 4 of 5")
    page.get_by_label("Your answer").fill("16 spiders")
    page.reload()
    person.heading("Question 4 of 5")
    assert page.get_by_label("Your answer").input_value() == "16 spiders"


def test_what_is_kept_expires(taker, served):
    """With the attempt: it is abandoned after the same time."""
    person = numbers(to_numbers(taker().start(served.ticket())))
    page = person.page
    person.heading("Question 1 of 5").press("Question 4, not answered")
    person.heading("Question 4 of 5")
    page.get_by_label("Your answer").fill("16 spiders")
    stored = page.evaluate(
        "Object.entries(localStorage).map(([key, text]) => [key, JSON.parse(text)])"
    )
    assert [key.rpartition(".")[2] for key, _ in stored] == ["draft"]
    days = (stored[0][1]["expires"] / 1000 - time.time()) / (24 * 3600)
    assert days == pytest.approx(7, abs=0.01)  # the default of abandoned_after
    page.evaluate(
        """(key) => {
          const old = JSON.stringify({ value: { number: "1", fields: [] }, expires: 1000 });
          localStorage.setItem("irtcat.another.draft", old);
          localStorage.setItem("irtcat.another.pending", "{}");
          localStorage.setItem("another.page", "1");
          const entry = JSON.parse(localStorage.getItem(key));
          localStorage.setItem(key, JSON.stringify({ ...entry, expires: Date.now() + 60000 }));
        }""",
        stored[0][0],
    )
    page.reload()
    person.heading("Question 4 of 5")
    assert page.get_by_label("Your answer").input_value() == "16 spiders"
    assert sorted(page.evaluate("Object.keys(localStorage)")) == sorted(
        ["another.page", stored[0][0]]
    )
    page.evaluate(
        """(key) => {
          const entry = JSON.parse(localStorage.getItem(key));
          localStorage.setItem(key, JSON.stringify({ ...entry, expires: Date.now() - 1 }));
        }""",
        stored[0][0],
    )
    page.reload()
    person.heading("Question 4 of 5")
    assert page.get_by_label("Your answer").input_value() == ""


def test_on_another_device_after_release(taker, served):
    ticket = served.ticket()
    first = to_numbers(taker().start(ticket))
    second = taker("second", **PHONE)
    second.page.goto(f"/t/{ticket}")
    second.page.get_by_text("open on another device").wait_for()
    assert second.page.get_by_role("main").get_by_role("button").count() == 0
    second.look()
    attempt = served.attempts()[-1]
    proctoring.release(served.service, attempt, actor="proctor")
    second.page.goto(f"/t/{ticket}")
    second.press("Continue the test")
    second.heading("Question 1")
    first.page.get_by_role("radio").first.check()
    first.press("Next").heading("This device does not have the test")
    finish(reading(numbers(second)))


def test_staff_pause_and_the_test_continues_by_itself(taker, served):
    person = to_numbers(taker("paused").start(served.ticket()))
    attempt = served.attempts()[-1]
    proctoring.pause(served.service, attempt, actor="proctor", reason="alarm")
    person.page.evaluate("window.dispatchEvent(new Event('online'))")  # looks at the server now
    person.heading("The test is paused")
    proctoring.resume(served.service, attempt, actor="proctor")
    person.page.evaluate("window.dispatchEvent(new Event('online'))")
    person.heading("Question 1")


def test_the_time_of_an_item_ends(chromium, tmp_path):
    """What is entered when the time is over is sent; an item without an answer is left."""
    section = {
        "kind": "adaptive",
        "items": ADAPTIVE,
        "config": {"max_items": 3},
        "item_time_limit": 4,
        "allow_skip": True,
    }
    sections = [{"kind": "practice", "items": [PRACTICE]}, section]
    site = Served(str(tmp_path / "tests.db"), sections=sections)
    person = Taker(chromium, site, **DESKTOP).start(site.ticket())
    person.heading("Question 1 of 1")
    person.page.get_by_label("4", exact=True).check()
    person.press("Next").heading("Question 1")
    person.page.get_by_role("radio").nth(1).check()
    person.heading("Question 2")  # by itself
    person.heading("Question 3")
    given = [answer.response for name, answer in person.answers().items() if name in ADAPTIVE]
    assert given[0] is not None
    assert given[1] is None
    person.close()
    site.close()


def test_an_essay_is_saved_when_the_time_is_over(chromium, tmp_path):
    sections = [
        {"kind": "fixed", "items": [ESSAY], "time_limit": 14},
        {"kind": "adaptive", "items": ADAPTIVE, "config": {"max_items": 3}},
    ]
    site = Served(str(tmp_path / "tests.db"), essay=True, sections=sections)
    person = Taker(chromium, site, "essay", **DESKTOP).start(site.ticket())
    person.heading("Question 1 of 1")
    field = person.page.get_by_label("Your answer")
    field.fill("First the bus, then")
    assert person.page.locator(".words").inner_text() == "Words: 4"
    field.press_sequentially(" the tram.")
    assert person.page.locator(".words").inner_text() == "Words: 6"
    person.look()
    person.heading("Question 1")  # of the next part, without a click
    assert person.answers()[ESSAY].response == "First the bus, then the tram."
    person.close()
    site.close()


def test_time_warnings_are_announced(taker, served):
    person = to_numbers(taker().start(served.ticket()))
    person.page.evaluate("document.querySelector('[data-scope=test]').dataset.left = '301'")
    reply = person.page.request.get(person.page.url).text()
    assert 'data-name="test.300"' in reply
    # The script begins anew with a page whose clock is just above the warning.
    page = person.page
    page.route("**/test/*/pause", lambda route: route.abort())
    page.route(
        "**/test/*",
        lambda route: route.fulfill(
            body=re.sub(
                r'data-scope="test" data-left="\d+"', 'data-scope="test" data-left="302"', reply
            ),
            content_type="text/html",
        ),
    )
    page.goto(person.page.url)  # a redirect from /test would not be intercepted
    page.get_by_text("5 minutes left for the test.").wait_for(state="attached")
    assert page.locator("#live").inner_text() == "5 minutes left for the test."


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_before_a_test(taker, scheme):
    person = taker(f"before-{scheme}", color_scheme=scheme)
    for path in ("/", "/t/unknown", "/test", "/nothing"):
        person.page.goto(path)
        person.look()


def test_results_by_topic_and_void_attempts(taker, chromium, tmp_path):
    """The report that waits for people, the one with topics, and the page of a void attempt."""
    shown = ["score", "interval", "level", "topics"]
    scale = {"mean": 500, "sd": 100, "lowest": 200, "highest": 800}
    score = {**scale, "show": shown, "below": "Beginner", "topics": "part"}
    section = {"kind": "adaptive", "items": ADAPTIVE, "config": {"max_items": 3}}
    site = Served(str(tmp_path / "tests.db"), sections=[section], score=score)
    person = Taker(chromium, site, "topics", **DESKTOP).start(site.ticket())
    for at in range(3):
        person.heading(f"Question {at + 1}")
        person.page.get_by_role("radio").first.check()
        person.press("Next")
    person.heading("The test is finished")
    person.page.get_by_role("heading", name="Result by topic").wait_for()
    assert person.page.locator("tbody tr").count() == 1
    person.close()
    other = Taker(chromium, site, "void", **DESKTOP).start(site.ticket())
    other.heading("Question 1")
    proctoring.void(site.service, site.attempts()[-1], actor="proctor", reason="impostor")
    other.page.reload()
    other.heading("This test was cancelled")
    other.close()
    site.close()


@pytest.mark.parametrize("language", ["de", "es"])
def test_other_languages(taker, served, language):
    person = taker(language)
    page = person.page
    page.goto(f"/language/{language}?to=/")
    page.goto(f"/t/{served.ticket()}")
    person.look()
    for _ in range(2):
        page.locator("button.primary").click()
        page.wait_for_url("**/test/*")
    page.locator("input[type=radio]").nth(1).check()
    person.look()
    page.locator("button[value=next]").click()
    page.wait_for_function("document.querySelector('h1').textContent.trim().endsWith(' 1')")
    person.look()
    assert page.locator("html").get_attribute("lang") == language


def test_right_to_left(taker, served):
    """The page in Arabic, from right to left: nothing overlaps."""
    person = numbers(to_numbers(taker("rtl").start(served.ticket())))
    page = person.page
    person.heading("Question 1 of 5").press("Question 5, not answered")
    person.heading("Question 5 of 5")
    page.goto(f"{served.url}/language/ar?to={urlsplit(page.url).path}")
    person.heading("السؤال 5 من 5")
    assert page.locator("html").get_attribute("dir") == "rtl"
    person.look()
    radio = page.get_by_role("radio").first.bounding_box()
    label = page.locator(".choice .content").first.bounding_box()
    assert radio["x"] > label["x"] + label["width"] - 1

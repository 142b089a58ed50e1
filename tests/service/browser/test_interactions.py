"""Items with pairs, areas and several answer fields in a browser: by mouse, touch and keyboard."""

import pytest

from irtcat.service.attempts.attempt import attempt_of
from tests.service.browser.conftest import Served
from tests.service.browser.test_taker import DESKTOP, PHONE, Taker
from tests.service.interactions import InteractionSite


class ServedInteractions(Served, InteractionSite):
    """The test of these items with a server."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = ServedInteractions(str(tmp_path_factory.mktemp("served") / "tests.db"))
    yield site
    site.close()


@pytest.mark.parametrize(("name", "options"), [("pairs-desktop", DESKTOP), ("pairs-phone", PHONE)])
def test_a_whole_test(chromium, site, name, options):
    """Every page is looked at; areas of a picture select their choice, also by a tap."""
    person = Taker(chromium, site, name, **options)
    page = person.start(site.ticket()).page

    def go_on(number):
        person.look()
        person.press("Save and continue")
        if number < 8:
            person.heading(f"Question {number + 1} of 8")

    for entry, option in {"camel": "desert", "seal": "sea", "chamois": "mountains"}.items():
        row = page.locator(".rows > li", has_text=entry).first
        row.locator("select").select_option(label=f"In the {option}")
    go_on(1)
    for row, texts in (("6", ("even", "a multiple of 3")), ("9", ("a multiple of 3", "a square"))):
        for text in texts:
            page.get_by_role("group", name=row, exact=True).get_by_label(text, exact=True).check()
    go_on(2)
    page.get_by_label("Gap 1").select_option(label="rises")
    page.get_by_label("Gap 2").select_option(label="sets")
    go_on(3)
    page.locator("svg.areas rect.line").click()
    assert page.get_by_label("Area 2").is_checked()
    assert page.locator("svg.areas g.chosen").count() == 1
    go_on(4)
    page.locator(".order > li", has_text="Area 3").get_by_text("↑").focus()
    page.keyboard.press("Enter")
    go_on(5)
    page.locator("svg.areas circle.line").click()
    assert page.evaluate("document.activeElement.name") == "pair.c1"
    page.locator("[name='pair.c1']").select_option(label="B: disc")
    page.locator("[name='pair.c3']").select_option(label="A: triangle")
    go_on(6)
    for at, (one, other) in enumerate((("hot", "cold"), ("dry", "wet")), start=1):
        page.get_by_label(f"Pair {at}, first entry").select_option(label=one)
        page.get_by_label(f"Pair {at}, second entry").select_option(label=other)
    page.reload()  # a draft survives it
    assert page.locator("[name='join.2.b']").input_value() != ""
    go_on(7)
    page.get_by_label("Answer 1").fill("16")
    page.get_by_label("Answer 2").select_option(label="eight")
    page.get_by_label("flies").check()
    go_on(8)
    page.get_by_text("8 answers saved").wait_for()
    answers = attempt_of(site.service, site.attempts()[-1]).progress.answers
    assert [answer.code for answer in answers.values()] == [1, 1, 1, 1, 1, 2, 1, 2]
    person.close()

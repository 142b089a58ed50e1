"""The administration of a whole test in Chromium: publish, ticket, watch, extend, result.

The taker's part is played through the taker's interface. Every page of staff is checked by axe-core
in light and dark, and for the width of a phone.
"""

import os
import re
import zipfile
from pathlib import Path

import httpx
import numpy as np
import pytest

from irtcat.service import example
from irtcat.service.accounts.accounts import add_account
from irtcat.service.attempts import taking
from tests.service.browser.accessibility import check_accessible
from tests.service.browser.conftest import Served
from tests.service.site import ADAPTIVE, ESSAY

PASSWORD = "a long enough password"

NARROW = 320
"""CSS pixels of a phone, and of a desktop at 400 %."""

SLOW = 120_000
"""Milliseconds to wait: publishing simulates, and the first replay compiles."""

SHOTS = os.environ.get("IRTCAT_SCREENSHOTS", "")
"""A folder for pictures of all pages, to be looked at."""


@pytest.fixture
def page(served, chromium):
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(SLOW)
    opened = context.new_page()
    opened.faults = []
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    opened.on(
        "console", lambda entry: opened.faults.append(entry.text) if entry.type == "error" else None
    )
    yield opened
    context.close()


def check(page, name):
    """No finding of axe-core, no sideways scrolling on a phone, no error in the console."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        check_accessible(page, f"{name}, {scheme}")
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / f"{name}-{scheme}.png", full_page=True)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": NARROW, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW, name
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}-{NARROW}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.faults == []


def example_items(folder):
    """The items of the example as one file."""
    path = folder / "items.zip"
    source = example.folder() / "items"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(source.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, f"items/{file.relative_to(source).as_posix()}")
    return path


class Taker:
    """A program that takes the test through the taker's interface."""

    def __init__(self, url, link):
        self.client = httpx.Client(base_url=url, timeout=60)
        begin = f"/api/v1/take/{link.rsplit('/', 1)[1]}"
        started = self.client.post(begin, json={"credential": "bearer"}).json()
        self.client.headers["Authorization"] = f"Bearer {started['token']}"
        self.view, self.n = started["view"], 0

    def _send(self, path, body):
        self.n += 1
        headers = {"Idempotency-Key": f"r{self.n}"}
        response = self.client.post(f"/api/v1/take/{path}", json=body, headers=headers)
        assert response.status_code == 200, response.text
        self.view = response.json()

    def current(self):
        self.view = self.client.get("/api/v1/take/current").json()
        return self.view

    def step(self):
        """Go on by one page; the first choices are the answers."""
        item = self.view["item"]
        if item is None:
            self._send("proceed", {})
            return
        places = [choice["id"] for choice in item["choices"]]
        response = {
            "choice": places[:1] and places[0],
            "choices": places[: max(item["min_choices"] or 1, 1)],
            "hottext": places[: max(item["min_choices"] or 1, 1)],
            "order": places,
        }.get(item["kind"], "7")
        self._send("answers", {"number": item["number"], "response": response})


def test_a_whole_test_is_administered(served, page, tmp_path):
    add_account(served.service, "ada", password=PASSWORD, roles=["admin"], actor="test")
    page.goto(f"{served.url}/staff/tests/new")
    check(page, "sign-in")
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Sign in").click()
    assert page.get_by_role("alert").is_visible()
    page.faults.clear()  # the browser reports the status 401
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()

    # Publish the example: first a definition with a fault, then the right one.
    page.get_by_role("heading", name="Publish a test").wait_for()
    check(page, "publish")
    faulty = tmp_path / "faulty.toml"
    source = (example.folder() / "math.toml").read_text(encoding="utf-8")
    faulty.write_text(source.replace("max_items", "max_item"), encoding="utf-8")
    for definition in (faulty, example.folder() / "math.toml"):
        page.get_by_label("Test definition").set_input_files(definition)
        page.get_by_label("Item bank").set_input_files(example.folder() / "bank.npz")
        page.get_by_label("Items", exact=True).set_input_files(example_items(tmp_path))
        page.get_by_label("Simulated takers").fill("100")
        page.get_by_role("button", name="Check and publish").click()
        if definition == faulty:
            assert "max_item" in page.get_by_role("alert").inner_text()
            page.faults.clear()
            check(page, "publish-faults")
    page.get_by_role("heading", name="Report of publishing").wait_for()
    assert page.get_by_text("The test is published.").is_visible()
    check(page, "test")
    test = page.url.split("?")[0]

    # A ticket for one person, with more time.
    page.get_by_role("link", name="Issue tickets").click()
    check(page, "ticket")
    page.get_by_label("People").fill("Emmy Noether, emmy@example.org, s-7")
    page.get_by_label("all time limits are 25 % longer").check()
    page.get_by_role("button", name="Issue").click()
    page.get_by_role("cell", name="new", exact=True).wait_for()
    check(page, "confirm-ticket")
    page.get_by_role("button", name="Issue").click()
    link = page.locator(".link").inner_text()
    check(page, "links")

    # The board follows the taker without a reload.
    page.goto(f"{served.url}/staff/board?test={test.rsplit('/', 1)[1]}")
    assert page.get_by_text("Nobody is taking a test").is_visible()
    taker = Taker(served.url, link)
    while taker.view["section"]["kind"] != "adaptive":
        taker.step()
    for _ in range(3):
        taker.step()
    page.get_by_role("link", name="Emmy Noether").wait_for()
    assert page.get_by_text("3 answers too fast").is_visible()
    check(page, "board")
    page.get_by_role("button", name="Stop refreshing").click()
    assert page.locator("[data-pause]").get_attribute("aria-pressed") == "true"

    # Pause, resume, extend: each with its effect on the taker.
    page.get_by_role("link", name="Emmy Noether").click()
    check(page, "running")
    panel = page.get_by_role("form", name="Pause")
    panel.get_by_label("Reason").fill("fire alarm")
    panel.get_by_role("button").click()
    page.get_by_text("The attempt is paused.").wait_for()
    assert taker.current()["page"] == "paused"
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("The attempt continues.").wait_for()
    before = taker.current()["time"]["test"]
    panel = page.get_by_role("form", name="Extend")
    panel.get_by_label("Minutes").fill("15")
    panel.get_by_label("Reason").fill("lost time")
    panel.get_by_role("button").click()
    page.get_by_text("The time is extended.").wait_for()
    assert before + 870 < taker.current()["time"]["test"] <= before + 900

    # The result, the reasons, and the items.
    while taker.view["status"] == "running":
        taker.step()
    page.goto(f"{test}/results")
    score = taker.view["report"]["score"]
    assert f"{score:.0f}" in page.locator("tbody tr").first.inner_text()
    check(page, "results")
    with page.expect_download() as download:
        page.get_by_role("link", name="Results with names (CSV)").click()
    table = Path(download.value.path()).read_text(encoding="utf-8")
    assert all(text in table for text in (f"{score:.0f}", "Emmy Noether", "s-7"))
    page.get_by_role("link", name="Emmy Noether").click()
    check(page, "finished")
    page.get_by_role("link", name="Replay section 3").click()
    assert page.get_by_text("Why this item:").first.is_visible()
    check(page, "replay")
    others = {
        "start": "/staff",
        "tests": "/staff/tests",
        "tickets": "/staff/tickets",
        "people": "/staff/people",
        "attempts": "/staff/attempts",
        "scoring": "/staff/scoring",
        "audit": "/staff/audit?verify=1",
        "accounts": "/staff/accounts",
        "account": "/staff/account",
    }
    of_test = {
        "items": "/items",
        "item": "/item?id=m16",
        "preview": "/item/preview?id=m16",
        "recalibration": "/recalibration",
        "retire": "/retire",
    }
    addresses = {name: f"{served.url}{path}" for name, path in others.items()}
    addresses |= {name: f"{test}{path}" for name, path in of_test.items()}
    for name, address in addresses.items():
        assert page.goto(address).status == 200, name
        check(page, name)
    taker.client.close()


def sign_in(page, site, name):
    page.goto(f"{site.url}/staff/sign-in")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Overview").wait_for()


def sign_out(page):
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Password").wait_for()


def test_an_essay_is_scored_by_three(page, tmp_path):
    """Two raters differ, a third decides; the score is in the agreement and the result."""
    sections = [
        {"kind": "adaptive", "items": ADAPTIVE, "config": {"max_items": 3}},
        {"kind": "fixed", "items": [ESSAY]},
    ]
    site = Served(str(tmp_path / "tests.db"), essay=True, sections=sections)
    taker = Taker(site.url, f"/t/{site.ticket()}")
    while taker.view["status"] == "running":
        taker.step()
    assert taker.view["report"] == {"waiting": True}
    for name, points in (("ann", 0), ("bob", 1), ("cleo", 1)):
        add_account(site.service, name, password=PASSWORD, roles=["scorer"], actor="test")
        sign_in(page, site, name)
        page.goto(f"{site.url}/staff/scoring")
        check(page, f"scoring-{name}")
        page.goto(f"{site.url}/staff/scoring/next")
        page.get_by_role("heading", name=f"Score item {ESSAY}").wait_for()
        check(page, f"response-{name}")
        page.get_by_role("radio", name=str(points), exact=True).check()
        page.get_by_label("Comment").fill("because of the tram")
        page.get_by_role("button", name="Save and go on").click()
        page.get_by_role("heading", name="Scoring", exact=True).wait_for()
        if name != "cleo":
            assert taker.current()["report"] == {"waiting": True}
        check(page, f"scored-{name}")
        sign_out(page)
    assert taker.current()["report"]["score"] >= 200
    taker.client.close()
    site.close()


def test_recalibration_by_hand(page, tmp_path):
    """Thirty people take the test; staff recalibrate two items, and see old and new parameters."""
    sections = [{"kind": "fixed", "items": ADAPTIVE}]
    site = Served(str(tmp_path / "tests.db"), sections=sections)
    rng = np.random.default_rng(3)
    for ability in rng.normal(size=40):
        started = taking.begin(site.service, site.ticket())
        about = (site.service, started.attempt, started.secret, str)
        view = taking.current(*about)
        while view["page"] == "item":
            right = rng.random() < 1 / (1 + np.exp(-ability))
            shown = {choice["content"] for choice in view["item"]["choices"]}
            assert len(shown) == 3
            double = str(2 * (int(re.search(r"number (\d+)", view["item"]["prompt"])[1])))
            is_double = [
                double in re.findall(r"\d+", c["content"]) for c in view["item"]["choices"]
            ]
            chosen = is_double.index(True) if right else is_double.index(False)
            view = taking.answer(*about, number=view["item"]["number"], response=f"c{chosen + 1}")
    add_account(site.service, "psy", password=PASSWORD, roles=["psychometrician"], actor="test")
    sign_in(page, site, "psy")
    page.goto(f"{site.url}/staff/tests/{site.test}/recalibration")
    for name in ADAPTIVE[2:4]:
        page.get_by_role("checkbox", name=name).check()
    check(page, "recalibration")
    page.get_by_role("button", name="Recalibrate").click()
    page.get_by_role("table", name="Parameters").wait_for()
    check(page, "recalibrated")
    assert page.locator("tbody tr").count() >= 4  # a and b of both items
    site.close()


def test_staff_by_keyboard(served, page):
    """Sign in and open a page without a mouse; the skip link leads to the content."""
    known = "emmy"
    add_account(served.service, known, password=PASSWORD, roles=["proctor"], actor="test")
    page.goto(f"{served.url}/staff/sign-in")
    page.get_by_label("Name").focus()
    page.keyboard.type(known)
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Tickets":
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Tickets", exact=True).wait_for()
    assert page.get_by_role("link", name="Audit log").count() == 0  # not a proctor's page

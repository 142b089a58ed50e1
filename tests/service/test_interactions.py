"""Items with pairs, areas and several answer fields: pages without JavaScript, API, results."""

import csv
import io
import json
import zipfile
from dataclasses import replace

import lxml.etree
import pytest

from irtcat.service.api.take import TakerView
from irtcat.service.attempts import library, results, taking
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.content import write_qti
from irtcat.service.content.reading import uploaded_items
from irtcat.service.pages.fields import area_shape
from tests.service.interactions import InteractionSite, content, item_bank
from tests.service.site import check_no_secret
from tests.service.test_api_staff import Client as Program
from tests.service.test_staff_pages import Browser as Staff
from tests.service.test_taker_pages import Browser


@pytest.fixture
def site(tmp_path):
    site = InteractionSite(str(tmp_path / "tests.db"))
    yield site
    site.service.close()


@pytest.fixture
def browser(site):
    return Browser(site).start(site.ticket())


def option(browser, text):
    """The value of a menu's entry, or of a checkbox, by its text."""
    for entry in browser.root.xpath("//option | //label[contains(@class, 'choice')]"):
        if entry.text_content().strip() == text:
            return entry.get("value") or entry.xpath(".//input/@value")[0]
    raise AssertionError(text)


def entry(browser, text):
    """The name of the field of an entry with a text."""
    for row in browser.root.xpath("//ul[@class='rows']/li"):
        if row.text_content().strip().startswith(text):
            return row.xpath(".//select/@name")[0]
    raise AssertionError(text)


def send(browser, fields):
    return browser.answer(**fields)


def whole_test(browser):
    """Answer all items right."""
    wanted = {"The camel": "In the desert", "The seal": "In the sea"}
    wanted["The chamois"] = "In the mountains"
    send(browser, {entry(browser, t): option(browser, o) for t, o in wanted.items()})
    names = {"6": ("even", "a multiple of 3"), "9": ("a multiple of 3", "a square")}
    rows = browser.root.xpath("//ul[@class='rows']/li")
    fields = {}
    for row, texts in zip(rows, names.values(), strict=True):
        boxes = row.xpath(".//label[.//input]")
        fields[boxes[0].xpath(".//input/@name")[0]] = [
            box.xpath(".//input/@value")[0] for box in boxes if box.text_content().strip() in texts
        ]
    send(browser, fields)
    gaps = browser.root.xpath("//div[contains(@class, 'gaps')]//select/@name")
    send(browser, dict(zip(gaps, [option(browser, "rises"), option(browser, "sets")], strict=True)))
    send(browser, {"response": option(browser, "Area 2")})
    send(browser, {"position.c1": "1", "position.c3": "2", "position.c2": "3"})
    menus = {"Area 1": "B: disc", "Area 3": "A: triangle"}
    send(browser, {entry(browser, t): option(browser, o) for t, o in menus.items()})
    joined = [("hot", "cold"), ("wet", "dry")]
    send(
        browser,
        {
            f"join.{at}.{end}": option(browser, text)
            for at, pair in enumerate(joined, start=1)
            for end, text in zip("ab", pair, strict=True)
        },
    )
    fields = {"p1.response": "16", "p2.response": option(browser, "eight")}
    return send(browser, fields | {"p3.response": [option(browser, "flies")]})


@pytest.mark.slow
def test_a_whole_test_without_javascript(site, browser):
    whole_test(browser)
    (attempt,) = site.attempts()
    answers = attempt_of(site.service, attempt).progress.answers
    assert [answer.code for answer in answers.values()] == [1, 1, 1, 1, 1, 2, 1, 2]
    assert answers["secret-00"].response == ["keyA sand", "keyB sea", "keyC hills"]
    assert answers["secret-06"].response == ["keyA keyC", "keyB keyD"]
    assert answers["secret-07"].response == {"keyA": "16", "keyB": "eight", "keyC": ["fly"]}
    for place in range(1, 9):  # what was answered is shown again
        if place == 1:
            browser.submit("/test/go", ("place", "1"))
        else:
            browser.submit("/test/answer", ("action", f"go.{place}"))
        shown = browser.root.xpath("//*[@checked] | //option[@selected and @value != '']")
        assert len(shown) == [3, 4, 2, 1, 3, 2, 4, 2][place - 1]
    browser.answer("list").submit("/test/proceed")
    rows = list(csv.DictReader(io.StringIO(results.answers_csv(site.service, site.test))))
    found = {row["item"]: row["response"] for row in rows}
    assert found["secret-02"] == "keyA rises|keyB sets"
    assert found["secret-07"] == "keyA=16; keyB=eight; keyC=fly"
    program = Program(site.app, "reader", "admin")
    listed = program("GET", f"attempts/{attempt}/result")["answers"]
    assert listed[-1]["response"] == {"keyA": "16", "keyB": "eight", "keyC": ["fly"]}
    staff = Staff(site.app, "psychometrician", "auditor", "proctor")
    assert "keyB: eight" in staff.page(f"/staff/attempts/{attempt}").text_content()
    assert results.responses_of(site.service, site.test).values.tolist() == [
        [1, 1, 1, 1, 1, 2, 1, 2]
    ]
    report = lxml.etree.fromstring(results.qti_results(site.service, attempt))
    declared = {
        (item.get("identifier"), it.get("identifier")): (it.get("cardinality"), it.get("baseType"))
        for item in report.iterfind("{*}itemResult")
        for it in item.iterfind("{*}responseVariable")
    }
    assert declared["secret-00", "RESPONSE"] == ("multiple", "directedPair")
    assert declared["secret-06", "RESPONSE"] == ("multiple", "pair")
    assert declared["secret-07", "keyC"] == ("multiple", "identifier")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "fields", "advice"),
    [
        (3, {"pair.c1": "o1", "pair.c2": "o1"}, "use each entry as often as it may be used"),
        (3, {"pair.c1": "o7"}, "Give complete pairs"),
        (7, {"join.1.a": "c1"}, "Give complete pairs"),
        (7, {"join.1.a": "c1", "join.1.b": "c1"}, "Give complete pairs"),
        (8, {"p1.response": "eight"}, "a number is written without separators"),
    ],
)
def test_wrong_answers_are_explained_and_kept(browser, place, fields, advice):
    if place > 1:
        browser.submit("/test/answer", ("action", f"go.{place}"))
    send(browser, fields)
    assert browser.response.status_code == 422
    assert advice in browser.text("//div[@id='error']")
    kept = browser.fields("/test/answer")
    for name, value in fields.items():
        assert kept[name] == ("" if value == "o7" else value)


def test_forms_that_no_page_makes(browser):
    """They are answers that cannot be, not errors of the server."""
    browser.submit("/test/answer", ("action", "go.8"))
    for fields in (
        {"kind": "match", "pair.c1": "o1"},
        {"kind": "several", "p1.kind": "match", "p1.pair.c1": "o1"},
        {"kind": "several", "p99.kind": "text", "p99.response": "x"},
        {"kind": "associate", "join.1.a": ["c1", "c2"]},
    ):
        send(browser, fields)
        assert browser.response.status_code in (303, 409, 422)


@pytest.mark.slow
def test_the_api(site):
    """A program gets and gives the same, in the taker's names."""
    started = taking.begin(site.service, site.ticket(), "program")
    at = (site.service, started.attempt, started.secret, str)
    for place in range(1, 9):
        view = TakerView.model_validate(taking.go(*at, place=place)).model_dump()
        check_no_secret(json.dumps(view))
    assert [part["kind"] for part in view["item"]["parts"]] == ["text", "choice", "choices"]
    assert 'data-part="p2"' in view["item"]["prompt"]
    view = taking.answer(
        *at, number=view["item"]["number"], response={"p1": "16", "p2": "c2"}, request="r1"
    )
    answers = attempt_of(site.service, started.attempt).progress.answers
    assert answers["secret-07"].response == {"keyA": "16", "keyB": "eight"}
    assert answers["secret-07"].code == 1


def test_staff_see_content_key_and_preview(site):
    author = Staff(site.app, "author")
    path = f"/staff/tests/{site.test}/item"
    for at in range(8):
        preview = author.page(f"{path}/preview?id=secret-0{at}")
        assert preview.xpath("//fieldset[@disabled]//form[@id='answer']")
        author.page(f"{path}?id=secret-0{at}")
    assert "response processing of QTI" in author.page(f"{path}?id=secret-07").text_content()
    assert "keyA rises, keyB sets" in author.page(f"{path}?id=secret-02").text_content()


@pytest.mark.slow
def test_what_is_left_out_is_told_to_staff(site, tmp_path):
    """On the page of the test, and in the reply to an upload."""
    items = content()
    path = write_qti(items, tmp_path / "items.zip")
    with zipfile.ZipFile(path, "a") as archive:
        manifest = archive.read("imsmanifest.xml").decode()
        drawing = archive.read("items/i4.xml").decode().replace("hotspot-inter", "drawing-inter")
        archive.writestr("items/d.xml", drawing)
    entry = '<resource identifier="d" type="imsqti_item_xmlv3p0" href="items/d.xml"/></resources>'
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "more.zip", "w") as new:
        for name in old.namelist():
            text = manifest.replace("</resources>", entry).encode()
            new.writestr(name, text if name == "imsmanifest.xml" else old.read(name))
    data = (tmp_path / "more.zip").read_bytes()
    uploaded = uploaded_items(data, is_table=False)
    (note,) = uploaded.notes
    assert note.startswith("items.zip, items/d.xml: not automatic: no rule scores <qti-drawing")
    author = Staff(site.app, "psychometrician", "author")
    path = f"/staff/tests/{site.test}"
    assert "Left out when" not in author.page(path).text_content()
    definition = replace(site.definition, version="2")
    test, _ = library.publish(
        site.service, definition, item_bank(uploaded), uploaded, actor="test", n_simulated=20
    )
    assert note in author.page(f"/staff/tests/{test}").text_content()
    program = Program(site.app, "uploads", "admin")
    headers = {"Content-Type": "application/zip"}
    assert program("POST", "uploads/items", content=data, headers=headers)["notes"] == [note]


def test_shapes_of_areas():
    assert area_shape("poly 0,0,30,0,0,30", 50, 50)["at"] == (10, 10)
    assert area_shape("ellipse 5,6,3,2", 50, 50)["attributes"] == {
        "cx": 5,
        "cy": 6,
        "rx": 3,
        "ry": 2,
    }
    assert area_shape("default", 50, 40)["attributes"]["height"] == 40

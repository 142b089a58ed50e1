"""The report in a browser: nothing is loaded, tables sort and search, everybody can read it.

Needs playwright, axe (axe-playwright-python brings it) and a Chromium; skipped where one is
missing. ``IRTCAT_CHROMIUM`` names a browser that is not on the path.
"""

import os
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import ItemBank, report
from irtcat.cat import Config, Store
from irtcat.models import MODELS, Design, unpack
from irtcat.report.bank import item_curves

N = 5000
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BAD = {"serious", "critical"}


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = os.environ.get("IRTCAT_CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), None
    )
    if program is None:
        pytest.skip("needs Chromium: none on the path, and IRTCAT_CHROMIUM is not set")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(4)
    ids = [f"item{i:04d}" for i in range(N)]
    made = ItemBank.from_parameters(rng.lognormal(0, 0.3, N), rng.normal(size=N), 0.2, 0.98, ids)
    negative = np.arange(N) % 100 == 7
    items = pd.DataFrame(
        {
            "topic": [f"topic {i % 5}" for i in range(N)],
            "question": [f"Question {i}: which of these? <b>{'x' * 300}</b>" for i in range(N)],
        }
    )
    return replace(made, statistics=pd.DataFrame({"negative_slope": negative}), items=items)


@pytest.fixture(scope="module")
def path(bank, tmp_path_factory):
    """A page with every kind of block."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(5)
    score = np.sort(rng.uniform(size=60))[::-1]
    predictions = pd.DataFrame(
        {
            "subject": [f"model {i}" for i in range(60)],
            "score": score,
            "lower": score - 0.05,
            "upper": score + 0.05,
            "rank": np.arange(1, 61),
            "flag": "",
        }
    )
    scores = pd.DataFrame({"subject": [f"m{i}" for i in range(60)], "theta": score * 4, "se": 0.2})
    board = pd.DataFrame(
        [
            {
                "seed": seed,
                "strategy": s,
                "estimator": e,
                "n_items": k,
                "kendall": 0.5 + k / 300 + seed / 50,
                "mae": 9 - k / 20,
            }
            for seed in (0, 1)
            for s in ("random", "balanced")
            for e in ("mean", "auto")
            for k in (10, 30, 100)
        ]
    )
    small = bank.subset(np.arange(30))
    with Store(folder / "tests.db") as store:
        session = store.begin(small, Config(max_items=4), session_id="one", seed=1)
        for value in (1, 0, 1, 1):
            session.answer(session.asked[0], value)
    found = irtcat.cat.simulate(small, rng.normal(size=40), Config(max_items=4), seed=0)
    X = (rng.uniform(size=(60, 20)) < score[:, None]).astype(int)
    data = irtcat.Responses.from_array(X, subject_ids=predictions["subject"])
    results = [bank, predictions, scores, board, folder / "tests.db", found]
    return report.write(results, folder / "report.html", title="Five <thousand>", responses=data)


@pytest.fixture
def page(browser, path):
    """The page opened; errors and requests are noted, and none may come."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    wrong, asked = [], []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("figure svg")
    yield page
    context.close()
    assert wrong == []
    assert asked == [path.as_uri()]


def items_of(page):
    section = page.locator("section", has_text="Items: bank")
    return section.locator(":scope > .block > .block > div > .scroll > table")


def heard(page, text):
    """Wait until a screen reader is told so."""
    page.locator("#live", has_text=text).wait_for(state="attached")


def first_cells(table, n=5):
    return table.locator("tbody tr:not(.details) > :first-child").all_inner_texts()[:n]


def test_everything_is_drawn(page, path):
    assert path.stat().st_size < report.LIMIT
    assert page.title() == "Five <thousand>"
    kinds = page.evaluate("blocks.flat().map((block) => block.t)")
    assert {"table", "points", "row", "choice"} <= set(kinds)
    assert page.locator("figure").count() >= 10
    assert (
        page.locator("figure svg").count()
        == page.locator("figure").count() + page.locator(".legend svg").count()
    )
    assert page.locator("body").inner_text().count("NaN") == 0


def test_sorting(page, bank):
    table = items_of(page)
    head = table.locator("thead th", has_text="Difficulty b")
    b = bank.to_frame()["b"]
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert first_cells(table) == b.sort_values(ascending=False).index[:5].tolist()
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert first_cells(table) == b.sort_values().index[:5].tolist()
    assert "Sorted by Difficulty b, ascending" in page.locator("#live").inner_text()
    assert table.locator("[aria-sort]").count() == 1


def test_search_and_filters(page, bank):
    table, section = items_of(page), page.locator("section", has_text="Items: bank")
    section.get_by_label("Search items").fill("item0123")
    heard(page, "of 1 ")
    assert first_cells(table) == ["item0123"]
    section.get_by_label("Search items").fill("")
    section.get_by_label("Flag").select_option("negative slope")
    section.get_by_label("Topic").select_option("topic 2")
    section.get_by_label("Difficulty b, at least").fill("0.5")
    frame = bank.to_frame()
    fits = frame[(frame["flag"] != "") & (frame["topic"] == "topic 2") & (frame["b"] >= 0.5)]
    text = f"of {len(fits)} (of 5,000)"
    heard(page, text)
    assert first_cells(table, 99) == fits.index[:25].tolist()
    section.get_by_label("Search items").fill("nothing is called so")
    heard(page, "No rows")
    assert "No matching rows." in table.inner_text()


def test_pages_are_turned_quickly(page):
    table, section = items_of(page), page.locator("section", has_text="Items: bank")
    section.get_by_role("button", name="Next").click()
    assert first_cells(table, 1) == ["item0025"]
    section.get_by_label("Rows a page").select_option("500")
    assert table.locator("tbody tr").count() == 500
    section.get_by_label("Rows a page").select_option("25")
    took = page.evaluate("""() => {
        const buttons = [...document.querySelectorAll('th button')].filter(
            (one) => one.textContent.startsWith('Difficulty b'));
        const start = performance.now();
        buttons.at(-1).click();
        return performance.now() - start;
    }""")
    assert took < 1000


def test_an_item_opens(page):
    table = items_of(page)
    button = table.get_by_role("button", name="item0002")
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    assert page.evaluate("document.activeElement.textContent") == "item0002"
    details = table.locator("tr.details")
    details.locator("figure svg").first.wait_for()
    assert details.locator("figure > div > svg").count() == 2
    assert "Question 2: which of these? <b>" in details.inner_text()
    details.get_by_text("Curve of item0002 as a table").click()
    details.locator("details table tbody tr").nth(20).wait_for()
    page.keyboard.press("Tab")
    button.click()
    assert details.count() == 0


@pytest.mark.parametrize("model", ["4pl", "2pl", "m2pl", "gpcm", "binomial", "beta"])
def test_curves_are_the_packages(page, model):
    rng = np.random.default_rng(6)
    made = {
        "4pl": lambda: ItemBank.from_parameters(
            [1.5, -1.0, 0.0],
            [0.3, 1.0, 0.0],
            [0.2, 0, 0.1],
            [0.9, 1, 0.8],
            population_mean=0.5,
            population_sd=1.3,
        ),
        "2pl": lambda: ItemBank.from_parameters([1.5, 3.0], [0.3, -1.0]),
        "m2pl": lambda: ItemBank.from_slopes(rng.uniform(0.2, 1.5, (3, 2)), [0.0, 1.0, -0.5]),
        "gpcm": lambda: ItemBank.from_thresholds(
            [1.0, 1.5], [[-1, 0.5, 1.0], [0, 1, np.nan]], model="gpcm"
        ),
        "binomial": lambda: ItemBank(
            unpack(
                MODELS["binomial"].blank(
                    Design(np.full(3, 2), settings={"trials": np.array([1, 5, 20])})
                ),
                np.array([[1.0, 0.2], [0.8, -1.0], [1.5, 0.0]]),
            ),
            ["x", "y", "z"],
        ),
        "beta": lambda: ItemBank(
            unpack(
                MODELS["beta"].blank(Design(np.full(2, 2))),
                np.array([[1.0, 0.2, 2.0], [0.8, -1.0, 1.0]]),
            ),
            ["x", "y"],
        ),
    }
    bank = made[model]()
    curves = item_curves(bank, bank.to_frame())
    for i in range(len(bank)):
        told = page.evaluate("([curves, i]) => itemCurve(curves, i)", [curves, i])
        theta = np.array(told["theta"], float)
        one = bank.subset([i])
        if model == "m2pl":
            slope = np.array(one.to_frame()[["a_1", "a_2"]])[0]
            points = theta[:, None] * slope / np.linalg.norm(slope)
            expected = one.probability(points)[0]
            unit = slope / np.linalg.norm(slope)
            information = irtcat.test_information(one, points, unit)
        else:
            expected = one.probability(theta)[0]
            information = irtcat.fisher_information(one, theta)[0]
        if model == "gpcm":
            every = one.category_probabilities(theta)[0]
            top = 3 if i == 0 else 2
            expected = every @ np.arange(every.shape[1]) / top
        np.testing.assert_allclose(told["p"], expected, atol=2e-3)
        np.testing.assert_allclose(told["information"], information, atol=3e-3)


def test_why_and_measures(page):
    section = page.locator("section", has_text="Adaptive sessions")
    section.locator("tbody button").first.click()
    assert "The best candidates at this step" in section.inner_text()
    board = page.locator("section", has_text="Leaderboard of subsets")
    board.get_by_label("Measure").select_option(label="Mean absolute error (percentage points)")
    label = board.locator("figure svg[role=img]").first.get_attribute("aria-label")
    assert "Mean absolute error" in label


def test_a_point_leads_to_its_row(page):
    section = page.locator("section", has_text="Predicted scores and ranks")
    surface = section.locator("svg rect.pick").last
    surface.scroll_into_view_if_needed()
    box = surface.bounding_box()
    found = None
    for share in np.linspace(0.05, 0.95, 40):
        surface.click(
            position={"x": box["width"] * share, "y": box["height"] * (0.04 + 0.9 * share)}
        )
        found = page.locator("#live").inner_text()
        if "shown" in found:
            break
    assert "shown" in found


@pytest.mark.parametrize("how", ["light", "dark", "phone"])
def test_everybody_can_read_it(browser, path, how):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe")
    size = {"width": 390, "height": 844} if how == "phone" else {"width": 1200, "height": 900}
    scheme = "dark" if how == "dark" else "light"
    context = browser.new_context(viewport=size, color_scheme=scheme)
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("figure svg")
    for button in page.locator("section tbody button").all()[:3]:
        button.click()
    page.wait_for_timeout(200)
    found = axe.Axe().run(page).response["violations"]
    serious = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in BAD]
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    context.close()
    assert serious == []
    assert wide <= 0


def test_long_ids_leave_room_on_a_phone(browser, tmp_path):
    """The id column stays and is cut to four lines; an open row shows all of the id, and why."""
    ids = ["x" * 300, "many words " * 25, "short"]
    bank = ItemBank.from_parameters(b=[0.0, 1.0, 2.0], item_ids=ids)
    with Store(tmp_path / "tests.db") as store:
        session = store.begin(bank, Config(max_items=2), session_id="one", seed=1)
        session.answer(session.asked[0], 1)
    path = report.write([bank, tmp_path / "tests.db"], tmp_path / "page.html")
    context = browser.new_context(viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("figure svg")
    steps, items = (
        page.locator(f"table:has(> caption:text-is('{each}'))") for each in ("Steps", "Items")
    )
    cells = items.locator("tbody > tr:not(.details) > th").all()
    boxes = [cell.bounding_box() for cell in cells]
    assert max(box["width"] for box in boxes) < 170
    assert max(box["height"] for box in boxes) < 130
    items.get_by_role("button", name="x" * 300).click()
    assert items.locator(".inside dd").first.inner_text() == "x" * 300
    steps.locator("tbody button").first.click()
    assert "The greatest value by mfi" in steps.locator(".inside .why").inner_text()
    inner = steps.locator(".inside table tbody th").first.bounding_box()
    assert inner["width"] > 60
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    context.close()


CUT = """() => [...document.querySelectorAll('.scroll')].filter(
    (one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent.slice(0, 30))"""


def ranking_heads(page):
    return page.locator("#section-1 thead th").all_inner_texts()


@pytest.mark.parametrize("width", [1280, 390])
def test_no_column_is_cut(browser, path, width):
    """What does not fit is in the details of the row, and the page says so."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("figure svg")
    page.wait_for_timeout(200)
    assert page.evaluate(CUT) == []
    if width == 390:
        heads = [head.strip() for head in ranking_heads(page)]
        assert heads == ["Model", "Score", "Interval"]
        several = page.locator("main > section > .block > .block table:has(tbody tr)").all()
        for table in several:
            assert table.locator("thead tr").first.locator("th").count() <= 3
        first = page.locator("#section-1 tbody tr").first
        assert "Open a row for more: Rank" in page.locator("#section-1 .more").first.inner_text()
        first.get_by_role("button").click()
        details = page.locator("#section-1 tr.details")
        assert "Rank" in details.locator("dt").all_inner_texts()
        page.set_viewport_size({"width": 1280, "height": 900})
        page.wait_for_timeout(200)
    assert "Rank" in " ".join(ranking_heads(page))
    assert page.evaluate(CUT) == []
    context.close()


def test_texts_stand_for_hashes(browser, tmp_path):
    ids = [f"task:{i:012x}" for i in range(7_000_000, 7_000_012)]
    items = pd.DataFrame({"question": [f"What is {i}? <i>" for i in range(12)]})
    bank = replace(ItemBank.from_parameters(b=np.arange(12.0), item_ids=ids), items=items)
    path = report.write(bank, tmp_path / "page.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("figure svg")
    table = items_of(page)
    assert first_cells(table, 2) == ["What is 0? <i>", "What is 1? <i>"]
    table.get_by_role("button", name="What is 1?").click()
    assert ids[1] in table.locator("tr.details dd").all_inner_texts()
    page.get_by_label("Search items").fill(ids[3])
    heard(page, "of 1 ")
    assert first_cells(table) == ["What is 3? <i>"]
    page.close()


def test_the_grey_lines_are_counted(browser, tmp_path):
    board = pd.DataFrame(
        [
            {
                "seed": 0,
                "strategy": f"s{s}",
                "estimator": e,
                "n_items": k,
                "kendall": 0.5 + k / 300 + s / 99,
            }
            for s in range(5)
            for e in ("mean", "auto")
            for k in (10, 100)
        ]
    )
    path = report.write(board, tmp_path / "page.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("figure svg")
    legend = page.locator(".legend").first.locator("li").all_inner_texts()
    assert len(legend) == 8
    assert legend[-1] == "3 others"
    assert page.locator("figure").count() == 1
    page.close()


def test_by_keyboard_alone(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    unreachable = page.evaluate("""() =>
        [...document.querySelectorAll('button,select,input,summary')]
        .filter((one) => one.tabIndex < 0).length""")
    assert unreachable == 0


def test_it_prints(browser, path):
    context = browser.new_context()
    page = context.new_page()
    page.goto(path.as_uri())
    page.emulate_media(media="print")
    page.wait_for_selector("figure svg")
    assert page.locator("nav").is_hidden()
    head = page.locator("th[data-label]").first  # buttons are not printed in repeated headings
    assert head.locator("button").is_hidden()
    shown = page.evaluate(
        "(one) => getComputedStyle(one, '::after').content", head.element_handle()
    )
    assert shown.startswith(f'"{head.get_attribute("data-label")}')
    assert page.locator("figure").first.is_visible()
    assert len(page.pdf()) > 20_000
    context.close()


def test_tables_are_printed_whole(browser, tmp_path):
    """All rows, and the ends of the intervals that the page draws."""
    n = 120
    score = np.linspace(0.2, 0.8, n)
    table = pd.DataFrame(
        {"score": score, "lower": score - 0.1, "upper": score + 0.1, "rank": np.arange(n, 0, -1)},
        index=pd.Index([f"m{i}" for i in range(n)], name="subject"),
    )
    table.to_csv(tmp_path / "predictions.csv")
    report.write([tmp_path / "predictions.csv"], tmp_path / "report.html")
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    grid = page.locator("table").first
    rows, heads = grid.locator("tbody tr"), grid.locator("thead th")
    on_screen, heads_on_screen = rows.count(), heads.count()
    assert on_screen < n
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert rows.count() == n
    labels = heads.evaluate_all("(all) => all.map((one) => one.dataset.label)")
    assert {"From", "To"} <= set(labels)
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert (rows.count(), heads.count()) == (on_screen, heads_on_screen)
    page.close()

"""The report as text: what it holds, what it never holds, and how large it is."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import ItemBank, report
from irtcat._common.checks import InputError
from irtcat._common.precision import precision
from irtcat.cat import Config, Session, Store, simulate
from irtcat.models import expected_responses
from irtcat.report.bank import ALPHABET, bank_section, item_curves, packed
from irtcat.report.blocks import numbers
from irtcat.report.page import page
from irtcat.report.sessions import session_blocks

EVIL = '</script><img src=x onerror="alert(1)"><b>&amp; {{SCRIPT}} @@DATA@@ \u2028 \x00'


class Elements(HTMLParser):
    """Every element of a page with its attributes, and what stands in script and style."""

    def __init__(self, text):
        super().__init__()
        self.found, self.inside, self.last = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.last = tag

    def handle_endtag(self, tag):
        self.last = None

    def handle_data(self, data):
        if self.last in ("script", "style"):
            self.inside.append((self.last, data))

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def data_of(html):
    [text] = [
        t for t in re.findall(r'<script type="application/json" id="data">(.*?)</script>', html)
    ]
    return json.loads(text, parse_constant=pytest.fail)


def blocks_in(blocks, kind):
    """All blocks of a kind, however deep."""
    for block in blocks:
        if isinstance(block, list):
            yield from blocks_in(block, kind)
            continue
        if block["t"] == kind:
            yield block
        yield from blocks_in(block.get("blocks", []), kind)
        for option in block.get("options", []):
            yield from blocks_in(option["blocks"], kind)


def column_of(table, key):
    [column] = [c for c in table["cols"] if c["k"] == key]
    return [column["levels"][v] for v in column["v"]] if "levels" in column else column["v"]


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(0)
    ids = [f"q{i}" for i in range(40)]
    bank = ItemBank.from_parameters(rng.uniform(0.5, 2, 40), rng.normal(size=40), 0.1, 0.97, ids)
    items = pd.DataFrame({"topic": ["x", "y"] * 20, "question": [f"What is {i}?" for i in ids]})
    negative = [i == 3 for i in range(40)]
    shares = {"n_responses": 100, "proportion_correct": 0.5}
    statistics = pd.DataFrame({**shares, "negative_slope": negative})
    return replace(bank, items=items, statistics=statistics)


@pytest.fixture(scope="module")
def predictions():
    n = 12
    score = np.linspace(0.9, 0.2, n)
    return pd.DataFrame(
        {
            "subject": [f"m{i}" for i in range(n)],
            "score": score,
            "lower": score - 0.1,
            "upper": score + 0.1,
            "rank": np.arange(1, n + 1),
            "rank_lower": 1,
            "rank_upper": n,
            "estimator": "auto",
            "flag": ["few responses", *[""] * (n - 1)],
        }
    )


@pytest.fixture(scope="module")
def board():
    rows = [
        {
            "split": "random",
            "seed": seed,
            "strategy": s,
            "estimator": e,
            "n_items": k,
            "kendall": 0.5 + k / 300 + seed / 50,
            "mae": 9 - k / 20,
            "flag": "",
        }
        for seed in (0, 1)
        for s in ("random", "balanced")
        for e in ("mean", "auto")
        for k in (10, 30, 100)
    ]
    return pd.DataFrame(rows)


@pytest.mark.slow
def test_nothing_is_loaded_and_nothing_may_be(bank, predictions, board):
    html = report.build([bank, predictions, board], title="All")
    elements = Elements(html)
    for tag in ("link", "img", "iframe", "object", "embed", "base", "form", "video", "audio"):
        assert not elements.of(tag)
    assert all("src" not in attributes for _, attributes in elements.found)
    assert {a["href"][0] for a in elements.of("a")} == {"#"}
    assert "http:" not in html
    assert "https:" not in html
    assert "url(" not in html.replace("url(#", "")
    assert "@import" not in html
    assert "fetch(" not in html
    assert "XMLHttpRequest" not in html
    [policy] = [m["content"] for m in elements.of("meta") if "http-equiv" in m]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_the_policy_knows_script_and_style_by_hash(bank):
    html = report.build(bank)
    [policy] = [m["content"] for m in Elements(html).of("meta") if "http-equiv" in m]
    for tag in ("script", "style"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", html, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@pytest.mark.slow
def test_user_text_is_never_markup(predictions):
    bank = ItemBank.from_parameters(b=[0.0, 1.0], item_ids=[EVIL, "b"])
    bank = replace(
        bank,
        items=pd.DataFrame({"question": [EVIL, "x"], EVIL: ["p", "q"]}),
        statistics=pd.DataFrame({"at_bound": [(EVIL,), ()]}),
        provenance={"method": EVIL},
    )
    mine = predictions.assign(subject=EVIL, flag=EVIL)
    html = report.build([bank, mine], title=EVIL)
    elements = Elements(html)
    assert not elements.of("img")
    assert not elements.of("b")
    assert html.count("<script") == 2
    assert html.count("</script") == 2
    assert html.count('id="data"') == 1
    [table] = [t for t in blocks_in(data_of(html), "table") if t.get("name") == "items"]
    assert column_of(table, "item")[0] == EVIL.rstrip("\x00") or EVIL in column_of(table, "item")
    assert column_of(table, "question")[0] == EVIL
    assert "onerror=&#34;" in html
    assert 'onerror="' not in html


@pytest.mark.slow
def test_five_thousand_items_stay_below_a_megabyte():
    rng = np.random.default_rng(1)
    n = 5000
    bank = ItemBank.from_parameters(
        rng.lognormal(0, 0.4, n),
        rng.normal(size=n),
        0.2,
        item_ids=[f"mmlu_algebra:{i:05d}" for i in range(n)],
    )
    words = np.array(["angle", "übung", "prime", "where", "which", "of", "the", '"quoted"', "<b>"])
    texts = [" ".join(words[rng.integers(0, 9, 150)]) for _ in range(n)]
    se = rng.uniform(0.01, 0.2, (n, 3, 3)) * np.eye(3)
    bank = replace(
        bank,
        covariance=se,
        statistics=pd.DataFrame(
            {
                "n_responses": rng.integers(10, 5000, n),
                "proportion_correct": rng.uniform(size=n),
                "weak_prior": rng.uniform(size=n) < 0.1,
            }
        ),
        items=pd.DataFrame({"task": rng.choice(["a", "b", "c"], n), "text": texts}),
    )
    html = report.build(bank)
    assert 500_000 < len(html.encode()) < report.LIMIT
    assert "Long texts are truncated to" in html
    [table] = [t for t in blocks_in(data_of(html), "table") if t.get("name") == "items"]
    shown = column_of(table, "text")
    assert all(
        text.endswith("…") and full.startswith(text[:-1])
        for text, full in zip(shown, texts, strict=True)
    )
    assert table["n"] == n
    assert table["page"] <= 100


def test_columns_are_left_out_where_short_texts_do_not_suffice():
    """Long texts first, then minor columns; what went is said, what is needed stays."""
    n, rng = 600, np.random.default_rng(0)
    short = {f"@@DATA@@{k}": rng.normal(size=n) for k in range(6)}
    long = {f"text {k}": [f"{i} " + "y" * 200 for i in range(n)] for k in range(4)}
    made = ItemBank.from_parameters(rng.uniform(0.5, 2, n), rng.normal(size=n))
    items = pd.DataFrame(short | long)
    bank = replace(made, items=items)
    section = bank_section("bank", bank)
    for limit in (300_000, 120_000, 100_000):
        html = page("All", [section], limit)
        assert len(html.encode()) < limit
        [shown] = [t for t in blocks_in(data_of(html), "table") if t.get("name") == "items"]
        assert {"item", "a", "b", "information"} <= {c["k"] for c in shown["cols"]}
        gone = {c for c in items.columns if c not in {c["k"] for c in shown["cols"]}}
        assert bool(gone) == (limit < 300_000)
        note = html.split("<footer>")[1].split("</footer>")[0].replace("&#64;", "@")
        assert all(name in note for name in gone)
    assert "Long texts are truncated to 30 letters" in html


@pytest.mark.slow
def test_many_items_of_any_model_stay_below_a_megabyte():
    rng, n = np.random.default_rng(1), 5000
    ids = [f"mmlu_abstract_algebra:{i:05d}:{i:012x}" for i in range(n)]
    steps = np.sort(rng.normal(size=(n, 5)), axis=1)
    bank = ItemBank.from_thresholds(rng.lognormal(0, 0.3, n), steps, model="graded", item_ids=ids)
    html = report.build(replace(bank, items=pd.DataFrame({"text": ["long " * 50] * n})))
    assert len(html.encode()) < report.LIMIT


def test_what_items_bring_along_keeps_its_names_and_changes_no_number():
    """Metadata called as parameters or columns of the table are; more of them than are shown."""
    made = ItemBank.from_parameters(a=[1.0, 2.0], b=[0.5, -0.5], item_ids=["x", "y"])
    own = {"b": ["hard", "easy"], "item": ["u", "v"], "n": [7, 8], "flag": ["", "odd"]}
    bank = replace(made, items=pd.DataFrame(own | {f"m{k}": [k, k] for k in range(9)}))
    frame = bank.to_frame()
    assert frame["b"].tolist() == [0.5, -0.5]
    assert frame["b_item"].tolist() == ["hard", "easy"]
    html = report.build(bank)
    [table] = [t for t in blocks_in(data_of(html), "table") if t.get("name") == "items"]
    keys = [c["k"] for c in table["cols"]]
    assert len(keys) == len(set(keys))
    assert column_of(table, "item") == ["x", "y"]
    assert column_of(table, "b") == [0.5, -0.5]
    assert column_of(table, "b (own)") == ["hard", "easy"]
    assert column_of(table, "item (own)") == ["u", "v"]
    assert {c["k"]: c["label"] for c in table["cols"]}["n"] == "n"
    assert "Columns of the items that are omitted here: m4, m5, m6, m7, m8." in html


@pytest.mark.slow
def test_curves_are_called_what_they_are():
    steps = [[-1.0, 0.0, 1.5], [0.0, np.nan, np.nan]]
    thresholds = ItemBank.from_thresholds([1.0, 2.0], steps, model="gpcm")
    nominal = ItemBank.from_thresholds(a=[[0.5, 1.0]], b=[[0.2, 0.3]], model="nominal")
    right = ItemBank.from_parameters(b=[0.0])
    labels = ["Expected share of points"] * 2 + ["Probability of a right answer"]
    for bank, label in zip((thresholds, nominal, right), labels, strict=True):
        assert item_curves(bank, bank.to_frame())["label"] == label
    curves = item_curves(thresholds, thresholds.to_frame())
    assert [each and len(each) for each in curves["categories"]] == [4, None]
    assert "unordered" not in curves
    assert item_curves(nominal, nominal.to_frame())["unordered"] == 1


def test_observed_curves_of_graded_items_are_shares_of_points():
    """As the model's curve beside them; that of the highest category looked like misfit."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(300, 1)) + rng.normal(size=(300, 4))
    data = irtcat.as_responses(np.clip(np.round(latent + 1.5), 0, [3, 3, 3, 1]).astype(int))
    bank = irtcat.fit(data, "gpcm").bank
    table = irtcat.diagnose.empirical_curves(bank, data, smoother="spline", n_points=4)
    found = item_curves(bank, bank.to_frame(), table.assign(observed=table["expected"]))
    for i, top in enumerate([3, 3, 3, 1]):
        at = found["observed"][str(i)]
        with precision("float64"):
            share = np.asarray(expected_responses(bank.model, np.array(at["theta"])))[i] / top
        np.testing.assert_allclose(at["observed"], share, atol=1e-4)


def test_items_that_tell_nothing():
    html = report.build(ItemBank.from_parameters(a=[0.0, 0.0], b=[1.0, 0.0]))
    assert "These items give no information on ability" in html
    assert not list(blocks_in(data_of(html), "points"))
    some = ItemBank.from_parameters(a=[0.0, 1.0], b=[1.0, 7.0])
    [figure] = blocks_in(data_of(report.build(some)), "points")
    assert "1 item is outside -6 to 6" in figure["describe"]
    assert "1 item has no difficulty and no dot." in figure["describe"]
    assert figure["of"] == ["b", "a"]


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(bank, board):
    day = date(2026, 11, 3)
    html = report.build([bank, board], day=day)
    assert html == report.build([board, bank], day=day)
    assert "<span>3 November 2026</span>" in html


def test_numbers_are_the_packages(bank):
    html = report.build(bank)
    blocks = data_of(html)
    [table] = [t for t in blocks_in(blocks, "table") if t.get("name") == "items"]
    frame = bank.to_frame()
    for key in ("a", "b", "c", "d"):
        np.testing.assert_allclose(column_of(table, key), frame[key], rtol=1e-3, atol=1e-9)
    information = next(one for one in blocks_in(blocks, "lines") if "information" in one["title"])
    [line] = information["series"]
    np.testing.assert_allclose(line["y"], irtcat.test_information(bank, line["x"]), rtol=1e-3)
    assert column_of(table, "flag")[3] == "negative slope"
    assert "1 item is flagged “negative slope”: q3." in html


def test_a_subset_is_marked_in_its_bank(bank):
    chosen = pd.DataFrame({"item": ["q1", "q5"], "weight": 0.5})
    blocks = data_of(report.build([chosen, bank]))
    [table] = [t for t in blocks_in(blocks, "table") if t.get("name") == "items"]
    marked = [i for i, text in enumerate(column_of(table, "chosen")) if text]
    assert [column_of(table, "item")[i] for i in marked] == ["q1", "q5"]
    information = next(one for one in blocks_in(blocks, "lines") if "information" in one["title"])
    small = information["series"][1]
    own = irtcat.test_information(bank.subset(["q1", "q5"]), small["x"])
    np.testing.assert_allclose(small["y"], own, rtol=2e-3, atol=1e-6)
    other = pd.DataFrame({"item": ["elsewhere"], "weight": 1.0})
    assert "Selected items: subset" in report.build([other, bank])


@pytest.mark.slow
def test_results_of_one_name_are_told_apart_and_the_same_is_shown_once(bank, tmp_path):
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        bank.save(tmp_path / name / "bank.npz")
    old, new = tmp_path / "old" / "bank.npz", tmp_path / "new" / "bank.npz"
    html = report.build([old, new, old])
    titles = re.findall(r"<h2 [^>]*>(Items: .*?)</h2>", html)
    assert titles == ["Items: old/bank", "Items: new/bank"]
    assert "Items: bank<" in report.build([old, old])


def test_predicted_against_true(predictions):
    truth = predictions["score"].to_numpy() + np.where(np.arange(12) % 3 == 0, -0.15, 0.01)
    n = 1000
    X = (np.arange(n)[None, :] < np.rint(truth * n)[:, None]).astype(int)
    X = np.vstack([X, np.arange(n) % 2])
    responses = irtcat.Responses.from_array(X, subject_ids=[*predictions["subject"], "other"])
    html = report.build(predictions, responses=responses)
    assert "<dt>True scores within their interval</dt><dd>66.7%</dd>" in html
    error = 100 * np.abs(predictions["score"] - np.rint(truth * n) / n).mean()
    assert f"<dt>Mean absolute error</dt><dd>{error:.2f} points</dd>" in html
    [figure] = [p for p in blocks_in(data_of(html), "points") if p.get("diagonal")]
    np.testing.assert_allclose(figure["px"], np.rint(truth * n) / n, atol=1e-3)
    strangers = predictions.assign(subject=[f"z{i}" for i in range(12)])
    said = "None of the predicted subjects has a true score"
    assert said in report.build(strangers, responses=responses)


def test_curves_of_items_that_are_not_logistic(monkeypatch):
    thresholds = [[-1.0, 0.0, 1.5], [0.0, 1.0, np.nan]]
    bank = ItemBank.from_thresholds(a=[1.0, 2.0], b=thresholds, model="gpcm")
    curves = item_curves(bank, bank.to_frame())
    place = {letter: i for i, letter in enumerate(ALPHABET)}

    def unpacked(text):
        codes = [
            place[a] * len(ALPHABET) + place[b] for a, b in zip(text[::2], text[1::2], strict=True)
        ]
        return np.array(codes) / (len(ALPHABET) ** 2 - 1)

    theta = np.array(curves["theta"], float)
    from irtcat._common.precision import precision

    with precision("float64"):
        expected = np.asarray(expected_responses(bank.model, jnp.asarray(theta))) / [[3.0], [2.0]]
    np.testing.assert_allclose([unpacked(p) for p in curves["p"]], expected, atol=1e-4)
    information = irtcat.fisher_information(bank, theta)
    told = [unpacked(i) * m for i, m in zip(curves["i"], curves["most"], strict=True)]
    np.testing.assert_allclose(told, information, atol=1e-3 * information.max())
    assert [len(each) for each in curves["categories"]] == [4, 3]
    every = bank.category_probabilities(theta)
    np.testing.assert_allclose(unpacked(curves["categories"][0][2]), every[0, :, 2], atol=1e-4)
    assert "<" not in ALPHABET
    assert packed(np.array([0.0])) == ALPHABET[0] * 2
    monkeypatch.setattr("irtcat.report.bank.MANY", 1)  # of many items one letter a value
    monkeypatch.setattr("irtcat.report.bank.NODES", len(theta))
    short = item_curves(bank, bank.to_frame())
    told = [[place[one] / (len(ALPHABET) - 1) for one in text] for text in short["p"]]
    np.testing.assert_allclose(told, expected, atol=0.006)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: ItemBank.from_slopes([[1.0, 0.0], [0.5, 0.8], [0.0, 0.0]], [0.0, 1.0, 0.5]),
        lambda: ItemBank.from_parameters(a=[0.0, -1.0], b=[0.0, 1.0]),
        lambda: ItemBank.from_thresholds(a=[[0.5, 1.0]], b=[[0.2, 0.3]], model="nominal"),
        lambda: ItemBank.from_parameters(b=[0.0]),
    ],
)
def test_banks_of_other_kinds(make):
    bank = make()
    blocks = data_of(report.build(bank))
    [table] = [t for t in blocks_in(blocks, "table") if t.get("name") == "items"]
    assert table["n"] == len(bank)


def test_why_this_item(tmp_path):
    rng = np.random.default_rng(2)
    bank = ItemBank.from_parameters(rng.uniform(0.5, 2, 20), rng.normal(size=20))
    store = Store(tmp_path / "tests.db")
    session = store.begin(bank, Config(max_items=5), session_id="one", subject="anna", seed=1)
    for value in (1, 0, 1):
        session.answer(session.asked[0], value)
    first = session.to_frame().index[0]
    steps = next(t for t in session_blocks(session) if t["t"] == "table")
    told = dict(zip(column_of(steps, "item"), column_of(steps, "why"), strict=True))
    assert told[first].startswith("The greatest value by mfi")
    assert all("of the items not asked before" in told[i] or "of 20 items" in told[i] for i in told)
    best = steps["why"][0]
    fresh = Session.begin(bank, Config(max_items=5), seed=1).explain(5)
    assert best["item"] == fresh.index.tolist()
    assert best["asked"][0] == 1
    np.testing.assert_allclose(best["value"], fresh["value"], rtol=1e-3)
    store.close()
    html = report.build(tmp_path / "tests.db")
    assert "Adaptive sessions: tests" in html
    assert "anna (one)" in html


@pytest.mark.slow
def test_random_choices_are_told_as_such():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 12))
    config = Config(max_items=3, exposure="randomesque")
    for seed in range(5):
        session = Session.begin(bank, config, seed=seed)
        session.answer(session.asked[0], 1)
        steps = next(t for t in session_blocks(session) if t["t"] == "table")
        said = column_of(steps, "why")[0]
        asked = session.to_frame().index[0]
        rank = Session.begin(bank, config, seed=seed).explain(12).loc[asked, "rank"]
        assert ("randomesque" in said) == (rank > 1)
        best = steps["why"][0]
        for place, asked_, out in zip(best["rank"], best["asked"], best["excluded"], strict=True):
            assert bool(out) == (not asked_ and place < rank)


def test_the_line_of_a_session_in_batches_has_no_gaps():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 12))
    session = Session.begin(bank, Config(max_items=4, batch=2))
    while not session.is_over:
        session.answer(session.asked[0], 1)
    figure = next(block for block in session_blocks(session) if block["t"] == "lines")
    assert figure["series"][0]["x"] == [2, 4]
    assert None not in figure["series"][0]["y"]


def test_of_many_sessions_the_last_are_drawn_and_it_is_said(tmp_path):
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 12))
    with Store(tmp_path / "tests.db") as store:
        for number in range(14):
            store.begin(bank, Config(max_items=2), session_id=f"s{number:02d}", seed=number)
        html = report.build(store)
    assert "Only the 12 sessions started last of 14 are drawn" in html
    [choice] = [block for block in data_of(html)[0] if block["t"] == "choice"]
    assert [each["label"] for each in choice["options"]] == [f"s{i:02d}" for i in range(13, 1, -1)]
    listed = next(t for t in data_of(html)[0] if t.get("caption") == "All sessions")
    assert listed["n"] == 14


def test_a_simulation_with_a_subject_without_a_score():
    table = pd.DataFrame({"subject": list("abc"), "truth": 0.0, "theta": 0.0, "stop": "length"})
    table = table.assign(n_items=3, score=[0.1, 0.5, np.nan], full_score=[0.2, 0.5, 0.7])
    assert "5.00 points" in report.build(table.assign(score_sd=0.1))
    assert "Error of the full score" not in report.build(table.assign(score_sd=0.1)[:1])


@pytest.mark.slow
def test_a_simulation_as_object_and_folder(tmp_path, bank):
    theta = np.random.default_rng(0).normal(size=30)
    found = simulate(bank, theta, Config(max_items=6), seed=0)
    html = report.build(found)
    rmse = found.summary()["rmse"]
    assert f"<dt>RMSE of ability</dt><dd>{rmse:.3f}</dd>" in html
    found.to_frame().to_csv(tmp_path / "sessions.csv")
    found.by_length().to_csv(tmp_path / "by_length.csv")
    pd.DataFrame([found.summary()]).to_csv(tmp_path / "summary.csv", index=False)
    assert report.read(tmp_path).kind == "simulation"
    assert f"<dd>{rmse:.3f}</dd>" in report.build(tmp_path)


def test_an_evaluation_folder_of_any_shape(tmp_path):
    result = {
        "theta": 0.51,
        "se": 0.2,
        "score_interval": [0.4, 0.6],
        "model": "m<b>",
        "rank": None,
        "settings": {"batch": 4},
        "flags": ["odd answers"],
        "unlike": ["misfit", "of another version"],
        "long": ["a"],
    }
    (tmp_path / "result.json").write_text(json.dumps(result))
    pd.DataFrame({"item": ["q1"], "answer": [1]}).to_csv(tmp_path / "items.csv", index=False)
    html = report.build(tmp_path)
    told = result | {"score": 0.55, "lower": 0.4567, "upper": 0.6, "level": 0.9}
    (tmp_path / "result.json").write_text(json.dumps(told))
    scored = report.build(tmp_path)
    assert "<dt>Score</dt><dd>55.0 % (90 % interval 45.7 to 60.0 %)</dd>" in scored
    assert "Answers fit the bank worse than others, where scores are less certain." in scored
    assert "0.4 to 0.6" in html
    assert "odd answers" in html
    assert "m&lt;b&gt;" in html
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(InputError, match=r"result\.json: expected JSON"):
        report.build(tmp_path)


@pytest.mark.slow
def test_an_evaluation_that_was_interrupted_shows_its_session(tmp_path):
    """What irtcat evaluate really leaves, whole and before its end; of two abilities as well."""
    bank = irtcat.ItemBank.from_parameters(b=np.linspace(-1, 1, 6))
    rules = irtcat.cat.Config(max_items=3)
    irtcat.harness.evaluate(bank, lambda asked: [(i.id, 1) for i in asked], rules, out=tmp_path)
    html = report.build(tmp_path)
    assert "Adaptive evaluation" in html
    assert "Rank lower" not in html
    document = json.loads((tmp_path / "result.json").read_text())
    abilities = {"0.51, 0.72": ([0.51, 0.72], [0.2, 0.3]), "0.51": ([0.51], [0.2])}
    for text, (theta, se) in abilities.items():
        (tmp_path / "result.json").write_text(json.dumps(document | {"theta": theta, "se": se}))
        assert text in report.build(tmp_path)
    (tmp_path / "result.json").unlink()
    (tmp_path / "items.csv").unlink()
    html = report.build(tmp_path)
    assert "The run is not over" in html
    assert "Adaptive sessions" in html


def test_what_is_no_result(tmp_path):
    (tmp_path / "x.csv").write_text("p,q\n1,2\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "none.csv").write_text("subject,theta,se\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    for name in ("folder", "several", "scale"):
        (tmp_path / name).mkdir()
    (tmp_path / "several" / "scores.csv").write_text("subject,theta,se\nx,0,1\n")
    (tmp_path / "scale" / "scales.csv").write_text("scale,items,retained,status\nx,1,1,ok\n")
    (tmp_path / "scale" / "decisions.csv").write_text("p,q\n1,2\n")
    ItemBank.from_parameters(b=[0.0]).save(tmp_path / "cut.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:500])
    (tmp_path / "empty.npz").write_bytes(b"")
    irtcat.Responses.from_array([[0, 1], [1, 0]]).save(tmp_path / "r.npz")
    cases = {
        "x.csv": "not a result of irtcat",
        "empty.csv": "Got an empty file",
        "none.csv": "no rows",
        "binary.csv": "expected text. Got a zero byte",
        "folder": "it is empty",
        "r.npz": "--responses",
        "several": "Pass the files in it one by one: scores.csv.",
        "cut.npz": "file is damaged",
        "scale": "decisions.csv: the table lacks the column action, item, scale",
        "empty.npz": "Got an empty file",
        "missing": "no such file or folder",
    }
    for name, said in cases.items():
        with pytest.raises(InputError, match=re.escape(said)):
            report.read(tmp_path / name)
    for text, said in (
        ("subject,theta,se\nx,0,1\ny,0x1,1\n", "row 2, column theta: expected a number. Got '0x1'"),
        ("subject,theta,se\nx,0,inf\ny,1,?\n", "row 2, column se: expected a number. Got '?'"),
        ("subject,n_items,truth,theta,stop\nx,,0,1,length\n", "column n_items: expected a number"),
    ):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(InputError, match=re.escape(said)):
            report.read(tmp_path / "x.csv")
    with pytest.raises(InputError, match="column theta: expected a number"):
        report.read(pd.DataFrame({"subject": ["x"], "theta": ["high"], "se": [1.0]}))
    assert (
        report.read(pd.DataFrame({"subject": ["x"], "theta": [True], "se": [1]})).kind == "scores"
    )
    with pytest.raises(InputError, match="Got dict"):
        report.build({"a": 1})
    with pytest.raises(InputError, match="at least one result"):
        report.build([])


def test_infinite_and_missing_numbers_are_null():
    assert numbers([np.nan, np.inf, 1.0]) == [None, None, 1]
    assert numbers([0.123456789, 12345.6789]) == [0.1234568, 12345.68]
    assert numbers([-12.345678901, 123.456789012, 999.9999999]) == [-12.345679, 123.456789, 1000]
    scores = pd.DataFrame({"subject": ["NA", "b"], "theta": [0.5, np.nan], "se": [np.inf, 1.0]})
    html = report.build(scores)
    assert "NA reaches an ability of 0.50 (interval unknown)." in html
    [ranking, table] = blocks_in(data_of(html), "table")
    assert column_of(ranking, "subject") == ["NA"]
    assert column_of(ranking, "interval") == ["unknown"]
    assert column_of(table, "se") == [None, 1]
    assert column_of(table, "subject") == ["NA", "b"]


def test_several_abilities_are_listed():
    several = {"subject": ["x", "y"], "theta_1": [0.1, 0.2], "se_1": 0.1, "theta_2": [0.3, 0.4]}
    [table] = blocks_in(data_of(report.build(pd.DataFrame(several))), "table")
    assert column_of(table, "theta_2") == [0.3, 0.4]


def test_an_id_called_na_stays(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("subject,theta,se,flag\nNA,0.1,0.2,\n007,0.3,0.2,odd\n")
    assert report.read(path).value["subject"].tolist() == ["NA", "007"]
    assert "1 of 2 subjects: odd (007)." in report.build(path)


@pytest.mark.slow
def test_data_are_checked_where_responses_are_given():
    bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-1, 1, 20))
    X = bank.simulate(np.random.default_rng(0).normal(size=200), seed=1).to_numpy()
    X[:, 4] = 1 - X[:, 4]
    responses = irtcat.Responses.from_array(X, item_ids=bank.item_ids)
    fitted = irtcat.fit(responses).bank
    html = report.build(fitted, responses=responses)
    assert "more likely mislabelled or ambiguous than not: i5" in html

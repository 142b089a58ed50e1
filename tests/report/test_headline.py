"""The opening of the page: headline, ranking, and what to check."""

import json
import re
from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import irtcat
from irtcat import ItemBank, report
from irtcat.cat import Config, Session
from irtcat.report.blocks import Note, are_hashes, item_names
from irtcat.report.headline import headline
from irtcat.report.page import grouped
from irtcat.report.ranking import ranking_of
from irtcat.report.reading import read
from irtcat.report.tables import board as board_section

DAY = date(2026, 11, 3)
HASHES = [f"task:{i:012x}" for i in range(7_000_000, 7_000_010)]


def predictions(score, half=0.02, **more):
    score = np.asarray(score, float)
    names = [f"m{i}" for i in range(len(score))]
    return pd.DataFrame(
        {
            "subject": names,
            "score": score,
            "lower": score - half,
            "upper": score + half,
            "rank": 1 + np.arange(len(score)),
            "estimator": "auto: regression",
            "flag": "",
            **more,
        }
    )


def opening(results, responses=None):
    """The headline of results."""
    results = [read(one) for one in results]
    return headline(results, responses, ranking_of(results, responses), DAY)


def tables_of(page):
    """Blocks of tables on a page, by caption."""
    data = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)[0]
    blocks = [block for section in json.loads(data) for block in section]
    return {block["caption"]: block for block in blocks if block["t"] == "table"}


def values_of(table, key):
    [column] = [c for c in table["cols"] if c["k"] == key]
    return [column["levels"][v] for v in column["v"]] if "levels" in column else column["v"]


def test_a_clear_best_model():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
    chosen = pd.DataFrame({"item": bank.item_ids[:10], "weight": 0.1})
    found = opening([predictions([0.9, 0.7, 0.6]), bank, chosen])
    assert found.meta == ["3 November 2026", "3 models", "40 items"]
    assert found.sentences == [
        "m0 is best with 90.0 % (interval 88.0 to 92.0 %).",
        "It is clearly ahead of all others; the next is m1 with 70.0 % (interval 68.0 to 72.0 %).",
        "Each model answered 10 of the 40 items: 75 % of the answers were saved.",
    ]
    assert found.facts == {
        "Best model": "m0",
        "Score": "90.0 %",
        "Clearly best": "yes",
        "Answers saved": "75 %",
    }


@pytest.mark.slow
def test_the_probability_of_an_interval_is_said_where_it_is_known():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
    old = bank.simulate(np.linspace(-2, 2, 50), seed=1)
    predicted = irtcat.predict(old, bank.item_ids[::4], bank.simulate([0.5], seed=2), level=0.8)
    assert "(80 % interval" in opening([predicted]).sentences[0]
    assert "(interval" in opening([predicted.to_frame()]).sentences[0]
    [row] = ranking_of([read(predicted)], None).rows
    assert (row.level, row.estimator) == (0.8, "auto: regression")
    ability = irtcat.score(bank, old, level=0.8)
    assert "(80 % interval" in opening([ability]).sentences[0]


def test_a_best_model_that_is_not_clearly_best():
    table = predictions([0.9, 0.89, 0.88, 0.5])
    [result] = [read(table)]
    ahead = ranking_of([result], None).ahead()
    sd = np.sqrt(2) * 0.02 / 1.959964
    np.testing.assert_allclose(ahead, ndtr(np.array([0.01, 0.02, 0.4]) / sd), atol=1e-6)
    found = opening([table])
    assert f"the first is really better is {100 * ahead[0]:.0f} %." in found.sentences[1]
    assert "2 of the other 3 models may be as good." in found.sentences[1]
    assert found.facts["Clearly best"] == "no"
    likely = opening([predictions([0.9, 0.88])])
    assert "It is probably better than the next, m1" in likely.sentences[1]
    assert likely.facts["Clearly best"] == "probably"
    tied = opening([predictions([0.9, 0.9, 0.9, 0.9, 0.1])])
    assert tied.sentences[0].startswith("m0, m1, m2 and 1 more share the first place with 90.0 %")
    assert tied.sentences[1] == "3 of the other 4 models may be as good."
    assert tied.facts["Best model"] == "m0 and 3 more"


def test_what_is_ranked_without_predictions():
    scores = pd.DataFrame({"subject": ["x", "y"], "theta": [0.1, 0.9], "se": [0.1, 0.1]})
    found = opening([scores])
    assert found.sentences[0] == "y is best with an ability of 0.90 (95 % interval 0.70 to 1.10)."
    assert found.meta[1] == "2 subjects"
    X = [[1, 1, 1, 0], [1, 0, 0, 0]]
    responses = irtcat.Responses.from_array(X, subject_ids=["p", "q"])
    bank = ItemBank.from_parameters(b=np.zeros(4), item_ids=responses.item_ids)
    observed = ranking_of([read(bank)], responses)
    assert [(row.name, row.score) for row in observed.rows] == [("p", 0.75), ("q", 0.25)]
    assert observed.rows[0].lower < 0.75 < observed.rows[0].upper
    alone = replace(bank, provenance={"n_subjects": 12})
    assert opening([alone]).sentences == ["A bank of 4 items, calibrated on 12 subjects."]


def test_costs_and_ranks_of_a_single_run(tmp_path):
    result = {
        "model": "new",
        "score": 0.5,
        "lower": 0.4,
        "upper": 0.6,
        "level": 0.9,
        "estimator": "auto: regression",
        "rank": 3,
        "rank_lower": 1,
        "rank_upper": 9,
        "n_calibrated": 40,
        "n_items": 20,
        "n_bank": 100,
        "cost": 0.5,
        "full_cost": 12.345,
    }
    (tmp_path / "result.json").write_text(json.dumps(result))
    found = opening([tmp_path])
    assert found.sentences == [
        "new reaches 50.0 % (90 % interval 40.0 to 60.0 %). That is rank 3 of 41 (1 to 9) among "
        "the calibrated models.",
        "Each model answered 20 of the 100 items: 80 % of the answers were saved.",
        "The answers cost 0.5 instead of 12.35.",
    ]
    assert found.meta == ["3 November 2026", "1 model", "100 items", "calibrated on 40 models"]
    page = report.build(tmp_path)
    for text in ("3 of 41 (1 to 9)", "20 of 100", "0.5 of 12.35"):
        assert text in page


def test_a_model_has_one_score_and_other_results_are_named(tmp_path):
    run = {"model": "m1", "score": 0.5, "lower": 0.4, "upper": 0.6, "estimator": "auto: equating"}
    (tmp_path / "result.json").write_text(json.dumps(run))
    found = ranking_of([read(predictions([0.9, 0.7])), read(tmp_path)], None)
    assert [(row.name, row.score) for row in found.rows] == [("m0", 0.9), ("m1", 0.5)]
    assert found.others == ("m1",)
    page = report.build([predictions([0.9, 0.7]), tmp_path])
    assert "More than one result has a score of m1, by other answers." in page
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "result.json").write_text(json.dumps(run | {"score": 0.6}))
    assert ranking_of([read(tmp_path), read(tmp_path / "again")], None).others == ("m1",)
    by_bank = run | {"estimator": "bank"}  # which uses less than predict
    (tmp_path / "result.json").write_text(json.dumps(by_bank))
    found = ranking_of([read(tmp_path), read(predictions([0.9, 0.7]))], None)
    assert {row.name: row for row in found.rows}["m1"].score == 0.7


@pytest.mark.slow
def test_notes_are_said_once_and_the_serious_first(tmp_path):
    bank = ItemBank.from_parameters(b=np.zeros(3))
    for name in ("one", "two"):
        replace(bank, provenance={"converged": False}).save(tmp_path / f"{name}.npz")
    flags = ["", "not sure", "answers unlike those of the calibrated subjects"]
    page = report.build(
        [tmp_path / "one.npz", tmp_path / "two.npz", predictions([0.9, 0.5, 0.4], flag=flags)]
    )
    check = page.split('<section id="check"')[1].split("</section>")[0]
    assert check.count("The calibration did not converge") == 1
    note = next(part for part in check.split("<li") if "did not converge" in part)
    assert re.findall(r">(Items: \w+)<", note) == ["Items: one", "Items: two"]
    assert note.startswith(' class="serious"')
    assert check.index("answers unlike those") < check.index("not sure")
    assert "1 of 3 models: not sure (m1)." in check
    assert "No " not in check
    nothing = report.build(predictions([0.9, 0.5]))
    assert "Nothing: no result on this page is flagged." in nothing


def test_long_groups_are_folded():
    notes = [(Note(f"Note {i}.", "Data"), ("a", "A")) for i in range(7)]
    [group] = grouped(notes)
    assert [one.text for one, _ in group] == [f"Note {i}." for i in range(7)]
    flags = [f"flag {i}" for i in range(7)]
    page = report.build(predictions(np.linspace(0.9, 0.1, 7), flag=flags))
    check = page.split('<section id="check"')[1].split("</section>")[0]
    assert "<summary>3 more</summary>" in check
    assert check.count("<li>") == 7


@pytest.mark.slow
def test_what_holds_of_most_items_is_said_once_and_not_marked():
    X = np.random.default_rng(0).integers(0, 2, (5, 40))
    fitted = irtcat.fit(irtcat.Responses.from_array(X)).bank
    flags = fitted.to_frame()["flag"].str.split("; ")
    assert (flags.map(lambda one: "weak prior" in one)).all()
    page = report.build(fitted)
    text = "The bank was calibrated on 5 subjects only: take its numbers as rough; most of its "
    assert page.count(text) == 1
    assert "are flagged “weak prior”" not in page
    items = tables_of(page)["Items"]
    marked = values_of(items, "flag") if any(c["k"] == "flag" for c in items["cols"]) else []
    assert not any("weak prior" in text for text in marked)
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page)[0])
    [figure] = [block for section in data for block in section if block["t"] == "points"]
    rare = {i for i, text in enumerate(marked) if text}
    assert set(figure.get("flagged", [])) == rare


def test_texts_stand_for_hashes_and_for_nothing_else():
    items = pd.DataFrame({"question": [f"What is {i} + 1?" for i in range(10)]})
    statistics = pd.DataFrame({"negative_slope": [True, *[False] * 9]})
    make = ItemBank.from_parameters
    hashed = replace(make(b=np.arange(10.0), item_ids=HASHES), items=items, statistics=statistics)
    page = report.build(hashed)
    assert "1 item is flagged “negative slope”: “What is 0 + 1?”." in page
    table = tables_of(page)["Items"]
    assert table["texts"] == "question"
    assert values_of(table, "item") == HASHES
    readable = replace(
        make(b=np.arange(10.0), item_ids=[f"q{i}" for i in range(10)]),
        items=items,
        statistics=statistics,
    )
    page = report.build(readable)
    assert "1 item is flagged “negative slope”: q0." in page
    assert "texts" not in tables_of(page)["Items"]
    assert item_names([hashed, readable]) == dict(zip(HASHES, items["question"], strict=True))
    assert not are_hashes([])


@pytest.mark.slow
def test_steps_of_sessions_have_the_texts():
    items = pd.DataFrame({"question": [f"What is {i} + 1?" for i in range(10)]})
    bank = replace(ItemBank.from_parameters(b=np.arange(10.0), item_ids=HASHES), items=items)
    session = irtcat.cat.Session.begin(bank, irtcat.cat.Config(max_items=3), session_id="anna")
    while not session.is_over:
        session.answer(session.asked[0], 1)
    assert report.build(session) != report.build([session, bank])  # which has a section more
    page = report.build(session)
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page)[0])
    [choice] = [block for section in data for block in section if block["t"] == "choice"]
    steps = choice["options"][0]["blocks"][-1]
    assert steps["texts"] == "question"
    asked = session.to_frame().index
    texts = dict(zip(HASHES, items["question"], strict=True))
    assert values_of(steps, "question") == [texts[name] for name in asked]


@pytest.mark.parametrize("n", [1, 5])
def test_one_chart_for_many_estimators(n):
    rows = [
        {
            "seed": seed,
            "strategy": s,
            "estimator": f"e{e}",
            "n_items": k,
            "kendall": 0.5 + k / 300 + e / 50 + seed / 1000,
            "mae": 9 - k / 20 + e,
        }
        for seed in (0, 1)
        for s in ("random", "balanced")
        for e in range(n)
        for k in (10, 100)
    ]
    [choice, _] = board_section("board", pd.DataFrame(rows)).blocks
    for option in choice["options"]:
        [chart] = option["blocks"]
        assert chart["t"] == "lines"
        named = [one["name"] for one in chart["series"] if "dim" not in one]
        assert len(chart["series"]) == 2 * n
        assert len(named) == min(2 * n, 7)
        best = "e0" if "absolute" in option["label"] else f"e{n - 1}"
        assert n == 1 or named[0].endswith(best)
    assert ("low" in choice["options"][0]["blocks"][0]["series"][0]) == (n == 1)


def test_models_that_cannot_be_distinguished(tmp_path):
    """Groups and possible ranks are in the ranking, and the opening says who may be the best."""
    bank = irtcat.ItemBank.from_parameters(b=np.linspace(-2, 2, 300))
    close = bank.simulate([1.0, 0.95, -1.0, -2.0], seed=1)
    found = irtcat.leaderboard.groups(close)
    path = tmp_path / "groups.csv"
    found.to_frame().assign(estimand="model").to_csv(path)
    for result in (found, path):
        ranking = ranking_of([read(result)], None)
        assert [row.letters for row in ranking.rows] == ["a", "a", "b", "c"]
        assert [(row.rank_lower, row.rank_upper) for row in ranking.rows][:2] == [(1, 2), (1, 2)]
    html = irtcat.report.build(path)
    names = ", ".join(found.table.index[:2])
    assert f"2 of the 4 models may be ({names}). A rerun may put another one first." in html
    assert "two models that share a letter cannot be distinguished" in html
    apart = irtcat.leaderboard.groups(bank.simulate([2.0, 0.0, -2.0], seed=1))
    apart.to_frame().assign(estimand="model").to_csv(path)
    assert "clearly ahead of all others" in irtcat.report.build(path)
    assert "A rerun would agree." in irtcat.report.build(path)


@pytest.mark.slow_cases("run", "domain")
@pytest.mark.parametrize("estimand", ["run", "model", "domain"])
def test_predictions_say_whose_scores_they_are(estimand, tmp_path):
    """Of the object and of the file of irtcat predict; tables without it say nothing."""
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 120))
    old = bank.simulate(np.linspace(-2, 2, 50), seed=1)
    new = bank.simulate([2.0, -2.0], seed=2)
    predicted = irtcat.predict(old, bank.item_ids[::2], new, estimand=estimand)
    path = tmp_path / "predictions.csv"
    whose = {"estimand": predicted.estimand, "ranks_of": predicted.ranks_of}
    predicted.to_frame().assign(**whose).to_csv(path)
    texts = {
        "run": "these runs",
        "model": "the models over reruns",
        "domain": "the models on items like these",
    }
    agrees = {
        "run": "Whether a rerun would agree is not shown",
        "model": "A rerun would agree.",
        "domain": "So it is on other items of this kind.",
    }
    for result in (predicted, path):
        ranking = ranking_of([read(result)], None)
        assert (ranking.estimand, ranking.ranks_of) == (estimand, estimand)
        found = opening([result])
        assert found.facts["Clearly best"] == "yes"
        assert agrees[estimand] in found.sentences[1]
        assert f"Scores and ranks are of {texts[estimand]}." in report.build(result)
    assert "rerun" not in opening([predicted.to_frame()]).sentences[1]
    close = opening([irtcat.predict(old, bank.item_ids[::2], bank.simulate([0.0, 0.1], seed=4))])
    assert close.sentences[1].endswith("A rerun may put another one first.")


def test_a_session_says_whose_score_it_has():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 60))
    old = bank.simulate(np.linspace(-2, 2, 50), seed=1)
    session = Session.begin(bank, Config(max_items=10))
    while not session.is_over:
        session.answer(session.asked[0], 1)
    [run] = ranking_of([read(session)], old).rows
    [model] = ranking_of([read(session)], old, estimand="model").rows
    assert (run.estimand, run.ranks_of) == ("run", "model")
    assert (model.estimand, model.ranks_of) == ("model", "model")
    assert model.upper - model.lower > run.upper - run.lower
    assert "over reruns)" in opening([session], old).sentences[0]


def test_complete_responses_have_letters():
    bank = irtcat.ItemBank.from_parameters(b=np.linspace(-2, 2, 300))
    responses = bank.simulate([1.5, 1.4, -1.0], seed=1)
    ranking = ranking_of([read(bank)], responses)
    assert (ranking.by, ranking.estimand) == ("observed", "domain")
    expected = irtcat.leaderboard.groups(responses, estimand="domain").table
    assert [row.letters for row in ranking.rows] == expected["letters"].tolist()
    assert "A test of other items may put another one first." in irtcat.report.build(
        bank, responses=responses
    )
    of_models = ranking_of([read(bank)], responses, estimand="model")
    expected = irtcat.leaderboard.groups(responses).table
    assert [row.lower for row in of_models.rows] == expected["lower"].tolist()
    page = irtcat.report.build(bank, responses=responses, estimand="model")
    assert "possible ranks are of the subjects over reruns" in page
    with pytest.raises(irtcat.InputError, match="estimand"):
        irtcat.report.build(bank, responses=responses, estimand="runs")
    missing = responses.to_numpy()
    missing[0, 0] = np.nan
    other = ranking_of([read(bank)], irtcat.as_responses(missing))
    assert other.firsts == []


def test_a_group_named_na_is_no_missing_letter(tmp_path):
    table = pd.DataFrame(
        {
            "subject": ["x", "y"],
            "score": [0.6, 0.5],
            "lower": [0.5, 0.4],
            "upper": [0.7, 0.6],
            "rank": [1, 2],
            "rank_lower": [1, 1],
            "rank_upper": [2, 2],
            "letters": ["na", "a"],
        }
    )
    table.to_csv(tmp_path / "g.csv", index=False)
    assert [row.letters for row in ranking_of([read(tmp_path / "g.csv")], None).rows] == ["na", "a"]

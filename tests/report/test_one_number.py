"""One run has one full score with one interval, whichever way it is asked for."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import irtcat
from irtcat import report
from irtcat.cat import Config, FullScore, Session, Store, replay
from irtcat.cli._app import app
from irtcat.harness import evaluate
from irtcat.report.blocks import numbers

RULES = Config(max_items=12)
TOLERANCE = 1e-10


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(1)
    return irtcat.ItemBank.from_parameters(rng.uniform(0.8, 2, 60), rng.normal(size=60))


@pytest.fixture(scope="module")
def calibration(bank):
    return bank.simulate(np.linspace(-2, 2, 80), seed=1)


@pytest.fixture(scope="module")
def new(bank):
    return bank.simulate([0.7], seed=5)


@pytest.fixture(scope="module")
def run(bank, calibration, new, tmp_path_factory):
    """The folder of the run, as irtcat evaluate leaves it."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    right = dict(zip(bank.item_ids.tolist(), new.to_numpy()[0], strict=True))
    evaluate(
        bank,
        lambda asked: [(item.id, int(right[item.id])) for item in asked],
        RULES,
        calibration=calibration,
        out=folder,
        name="new",
    )
    return folder


def triple(score):
    return [score.score, score.lower, score.upper]


def command(*arguments):
    found = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.mark.slow
def test_with_calibration_responses(bank, calibration, new, run, tmp_path, monkeypatch):
    """Session, sessions replayed, predict, result.json and the commands: predict's default."""
    monkeypatch.chdir(tmp_path)
    with Store(run / "sessions.db", create=False) as store:
        session = store.resume("evaluation")
    answers = session.to_report().responses(calibration)
    predicted = irtcat.predict(calibration, bank.item_ids, answers)
    replayed = replay(bank, new, RULES).predict(bank, calibration)
    result = json.loads((run / "result.json").read_text())
    calibration.save("old.npz")
    answers.save("new.npz")
    pd.DataFrame({"item": bank.item_ids}).to_csv("items.csv", index=False)
    [prediction] = command("predict", "old.npz", "items.csv", "new.npz")["subjects"]
    status = command(
        "session",
        "status",
        "--id",
        "evaluation",
        "--store",
        run / "sessions.db",
        "--responses",
        "old.npz",
    )
    whose = ("session", "status", "--id", "evaluation", "--store", run / "sessions.db")
    assert status["question"] == session.full_score(calibration).question
    assert "ranks of the models over reruns" in status["question"]
    model = command(*whose, "--responses", "old.npz", "--estimand", "model", "--reruns", 0.5)
    expected = session.full_score(calibration, estimand="model", reruns=0.5)
    assert [model[key] for key in ("score", "lower", "upper")] == triple(expected)
    refused = CliRunner().invoke(app, [*map(str, whose), "--estimand", "model"])
    assert refused.exit_code == 2
    assert "needs --responses" in refused.output
    full = session.full_score(calibration)
    ways = {
        "predict": [predicted.score[0], predicted.lower[0], predicted.upper[0]],
        "replay": [replayed.score[0], replayed.lower[0], replayed.upper[0]],
        "result.json": [result[key] for key in ("score", "lower", "upper")],
        "irtcat predict": [prediction[key] for key in ("score", "lower", "upper")],
        "irtcat session status": [status[key] for key in ("score", "lower", "upper")],
    }
    for name, values in ways.items():
        np.testing.assert_allclose(values, triple(full), rtol=0, atol=TOLERANCE, err_msg=name)
    labels = [
        full.estimator,
        predicted.methods[0],
        result["estimator"],
        prediction["estimator"],
        status["estimator"],
    ]
    assert set(labels) == {"auto: regression"}
    assert (full.rank, full.n_calibrated) == (result["rank"], 80)


def ranking_on(page):
    """The score, the ends of its interval and the estimator in the ranking of a page."""
    data = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)[0]
    columns = {c["k"]: c for c in json.loads(data)[0][0]["cols"]}
    label = columns["estimator"].get("levels", columns["estimator"]["v"])[0]
    return [columns[key]["v"][0] for key in ("score", "lower", "upper")], label


@pytest.mark.slow
def test_the_page_shows_that_number_everywhere(bank, calibration, run, tmp_path):
    with Store(run / "sessions.db", create=False) as store:
        session = store.resume("evaluation")
    full = session.full_score(calibration)
    answers = session.to_report().responses(calibration)
    predicted = irtcat.predict(calibration, bank.item_ids, answers).to_frame().reset_index()
    predicted["subject"] = "new"
    pages = {
        "run": report.build(run),
        "predict": report.build(predicted),
        "predict and store": report.build([run / "sessions.db", predicted]),
        "store and calibration": report.build(run / "sessions.db", responses=calibration),
    }
    for name, page in pages.items():
        values, label = ranking_on(page)
        np.testing.assert_allclose(values, numbers(triple(full)), atol=TOLERANCE, err_msg=name)
        assert label == full.estimator, name
        level = "" if name == "predict" or name == "predict and store" else "95 % "
        assert f"new reaches {100 * full.score:.1f} % ({level}interval" in page, name
        for prediction in re.findall(r'"Full score":"(.*?)"', page):  # what the session says
            assert prediction.startswith(f"{100 * full.score:.1f} % ({level}interval"), name
            assert prediction.endswith(f"by {full.estimator}"), name
    assert '"Full score"' in pages["predict and store"]
    assert '"Full score"' in pages["store and calibration"]
    alone = report.build(run / "sessions.db")
    values, label = ranking_on(alone)
    np.testing.assert_allclose(values, numbers(triple(session.full_score())), atol=TOLERANCE)
    assert label == "bank"
    assert (
        "by the bank's curves"
        in json.loads(re.findall(r'id="data">(.*?)</script>', alone)[0])[1][0]["options"][0][
            "blocks"
        ][0]["facts"]["Full score"]
    )


@pytest.mark.slow
def test_with_a_bank_alone(bank, new, tmp_path):
    """Without calibration responses every way reads the score off the bank's curves."""
    right = dict(zip(bank.item_ids.tolist(), new.to_numpy()[0], strict=True))
    found = evaluate(
        bank,
        lambda asked: [(i.id, int(right[i.id])) for i in asked],
        RULES,
        out=tmp_path / "run",
        name="new",
    )
    with Store(tmp_path / "run" / "sessions.db", create=False) as store:
        session = store.resume("evaluation")
    report = replay(bank, new, RULES)
    status = command(
        "session", "status", "--id", "evaluation", "--store", tmp_path / "run/sessions.db"
    )
    full = session.full_score()
    assert full.score == pytest.approx(session.estimate()["score"], abs=TOLERANCE)
    assert full.score == pytest.approx(report.score[0], abs=TOLERANCE)
    assert full.score == pytest.approx(report.scores(bank)[0, -1], abs=TOLERANCE)
    for values in (triple(found), [status[key] for key in ("score", "lower", "upper")]):
        np.testing.assert_allclose(values, triple(full), rtol=0, atol=TOLERANCE)
    assert full.upper - full.score == pytest.approx(1.959964 * report.score_sd[0], abs=1e-6)
    assert {full.estimator, found.estimator, status["estimator"]} == {"bank"}
    assert str(full).endswith("by the bank's curves")
    assert full.rank is None


def test_a_score_says_what_it_is():
    score = FullScore(score=0.5, lower=0.4, upper=0.625, level=0.9, estimator="auto: equating")
    assert str(score) == "50.0% (90% interval 40.0% to 62.5%), by auto: equating"
    nothing = FullScore(score=np.nan, lower=0.0, upper=1.0, level=0.9, estimator="auto")
    assert str(nothing) == "no score (no responses)"


def test_skipped_answers_and_levels(bank, calibration):
    session = Session.begin(bank, Config(max_items=2))
    for _ in range(2):
        session.answer(session.asked[0], None)
    assert np.isnan(session.full_score(calibration).score)
    narrow, wide = session.full_score(level=0.5), session.full_score(level=0.9)
    assert narrow.upper - narrow.lower < wide.upper - wide.lower
    with pytest.raises(irtcat.InputError, match="level"):
        session.full_score(level=2)

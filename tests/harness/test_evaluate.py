"""The evaluation of a live model through functions and commands, and its resumption."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import InputError, Responses
from irtcat._common.precision import precision
from irtcat.cat import Config, Session
from irtcat.cat.engine.choice import context_of
from irtcat.cat.engine.engine import step_compiled
from irtcat.cat.rules.sampling import chances
from irtcat.harness import Answer, Calls, Command, Item, evaluate
from irtcat.harness.answers import as_code
from irtcat.harness.items import read_items
from irtcat.prediction.factor_scores import FactorModel
from tests.harness.conftest import N, is_right

RULES = Config(criterion="score-optimal", sampled=0.5, max_items=12, batch=4)
ABILITY = 0.6


def model(asked, ability=ABILITY, name="new"):
    """A function that answers, and writes down what it was asked."""

    def answer(items):
        for item in items:
            asked.append(item.id)
            yield item.id, int(is_right(ability, int(item.sample), name))

    return answer


def full_score(ability=ABILITY, name="new"):
    return np.mean([is_right(ability, n, name) for n in range(N)])


@pytest.mark.slow
def test_the_figures(bank, old_models):
    asked = []
    found = evaluate(bank, model(asked), RULES, calibration=old_models, name="new", costs="cost")
    assert len(asked) == len(set(asked)) == found.n_items == 12
    assert found.items.index.tolist() == asked
    assert found.items["batch"].tolist() == [1] * 4 + [2] * 4 + [3] * 4
    assert found.lower <= full_score() <= found.upper
    assert 0 <= found.lower <= found.score <= found.upper <= 1
    better = old_models.to_numpy().mean(axis=1) > found.score
    assert found.rank == 1 + better.sum()
    assert found.rank_lower <= found.rank <= found.rank_upper
    assert (found.n_calibrated, found.n_bank) == (40, N)
    assert found.full_cost == bank.items["cost"].sum()
    assert found.cost == bank.items.loc[asked, "cost"].sum()
    assert found.reason == "length"
    assert found.unlike == ()
    text = str(found)
    assert "new: ability" in text
    assert "12 of 40 items (30.0%)" in text
    assert f"Rank {found.rank} of 41" in text
    assert found.to_frame().loc["new", "score"] == found.score
    json.dumps(found.to_json(), allow_nan=False)


def test_why_each_item_was_asked(bank):
    """Every row by a session that is told the same: the candidates when the item was asked."""
    found = evaluate(bank, model([]), RULES, name="new").items
    session = Session.begin(bank, RULES)
    for batch in (1, 2, 3):
        known, candidates = session.estimate(), session.explain(N)
        rows = found[found["batch"] == batch]
        assert rows.index.tolist() == session.asked
        assert rows["value"].tolist() == candidates.loc[rows.index, "value"].tolist()
        assert (rows["theta_before"] == known["theta"]).all()
        assert (rows["se_before"] == known["se"]).all()
        for item, row in rows.iterrows():
            assert row["why"].startswith("Drawn at random") == np.isfinite(row["chance"])
            assert f"by score-optimal ({row['value']:.3g})" in row["why"]
            session.answer(item, int(row["answer"]))
        assert rows["why"].iloc[0].startswith("The greatest value by score-optimal")
        assert rows["theta"].iloc[-1] == session.estimate()["theta"]
        assert rows["theta"].iloc[:-1].isna().all()


@pytest.mark.slow
def test_the_score_is_that_of_predict(bank, old_models):
    """Session -> report -> predict gives what `replay` of the same answers gives."""
    new = irtcat.Responses.from_array(
        [[int(is_right(ABILITY, n, "new")) for n in range(N)]], ["new"], bank.item_ids
    )
    rules = Config(max_items=12)
    found = evaluate(bank, model([]), rules, calibration=old_models)
    report = irtcat.cat.replay(bank, new, rules)
    told = report.predict(bank, old_models)
    assert found.score == pytest.approx(told.score[0], abs=1e-9)
    assert found.rank == told.rank[0]
    assert found.theta == pytest.approx(report.theta[0], abs=1e-9)


@pytest.mark.slow
def test_chances_within_a_batch_are_those_before_it(bank):
    """Items of one batch are drawn under one belief: that at its beginning."""
    session = Session.begin(bank, RULES, seed=3)
    place = {each: i for i, each in enumerate(bank.item_ids.tolist())}
    wanted = {}
    while not session.is_over:
        asked, n = session.asked, int(session.state.n)
        free = ~np.asarray(session.state.administered)
        free[[place[each] for each in asked]] = True
        for k, each in enumerate(asked):
            if (n + k) % 2 == 1:  # half of the places, evenly
                with precision("float64"):
                    context = context_of(session.pool, RULES, session.state)
                    wanted[each] = float(np.asarray(chances(context, free))[place[each]])
            free[place[each]] = False
        for each in asked:
            session.answer(each, int(is_right(ABILITY, int(each[5:]), "new")))
    found = session.to_report().chances(bank)[0]
    told = {each: found[i] for each, i in place.items() if np.isfinite(found[i])}
    assert told.keys() == wanted.keys()
    for each, chance in wanted.items():
        assert told[each] == pytest.approx(chance, rel=1e-6)


def test_without_calibration_the_bank_speaks(bank):
    found = evaluate(bank, model([]), RULES)
    assert found.rank is None
    assert found.estimator == "bank"
    assert found.cost is None
    assert found.lower <= full_score() <= found.upper
    assert "Rank" not in str(found)


@pytest.mark.slow
def test_a_model_unlike_the_others_is_told(bank, old_models):
    """Right on the hard items and wrong on the easy ones."""
    rules, compiled = Config(criterion="random", max_items=30), []

    def answer(items):
        compiled.append(step_compiled._cache_size())
        return [(item.id, int(int(item.sample) > 20)) for item in items]

    found = evaluate(bank, answer, rules, calibration=old_models, name="odd")
    assert len(set(compiled)) == 1  # before the first answer, which would wait for it to be kept
    assert found.lz_star < -2.5
    assert "misfit" in found.unlike
    assert f"its answers fit the bank worse (lz* = {found.lz_star:.2f})." in str(found)


@pytest.mark.slow
def test_a_finished_run_is_read_not_run(bank, old_models, tmp_path):
    first = evaluate(bank, model([]), RULES, calibration=old_models, out=tmp_path / "run", name="n")
    asked = []
    again = evaluate(
        bank, model(asked), RULES, calibration=old_models, out=tmp_path / "run", name="n"
    )
    assert asked == []
    assert again.to_json() == first.to_json()
    document = json.loads((tmp_path / "run" / "result.json").read_text())
    assert document == json.loads(json.dumps(first.to_json()))
    table = pd.read_csv(tmp_path / "run" / "items.csv", index_col="item")
    assert table["answer"].tolist() == first.items["answer"].tolist()
    np.testing.assert_array_equal(table["theta"], first.items["theta"])


@pytest.mark.slow
def test_an_exception_loses_nothing(bank, tmp_path):
    asked = []

    def failing(items):
        for item in items:
            if len(asked) == 6:
                raise ConnectionError("the line is dead")
            asked.append(item.id)
            yield item.id, 1

    with pytest.raises(InputError, match="ConnectionError: the line is dead"):
        evaluate(bank, Calls(failing), RULES, out=tmp_path)
    assert not (tmp_path / "result.json").exists()

    def going_on(items):
        for item in items:
            asked.append(item.id)
            yield item.id, 1

    going_on.__qualname__ = failing.__qualname__
    found = evaluate(bank, Calls(going_on), RULES, out=tmp_path)
    assert len(asked) == len(set(asked)) == 12
    plain = evaluate(bank, lambda items: {item.id: 1 for item in items}, RULES)
    assert found.items["answer"].tolist() == plain.items["answer"].tolist()
    assert found.items.index.tolist() == plain.items.index.tolist()
    assert found.theta == pytest.approx(plain.theta, abs=1e-12)


@pytest.mark.slow
def test_a_planned_run_goes_on_where_the_plan_differs_in_the_last_digits(tmp_path, monkeypatch):
    """As on another processor: the run keeps the plan that it was begun with."""
    rng = np.random.default_rng(3)
    bank = irtcat.ItemBank.from_parameters(rng.lognormal(0, 0.3, 40), rng.normal(0, 1.2, 40))
    places = pd.DataFrame({"task": "quiz", "doc_id": range(40)}, index=bank.item_ids)
    settings = {"calibration": bank.simulate(rng.normal(size=120), seed=4), "items": places}
    asked = []

    def answering(items):
        for item in items:
            if len(asked) == 18:
                asked.append("lost")
                raise ConnectionError("the line is dead")
            asked.append(item.id)
            yield item.id, int(len(item.id) % 2)

    plain = evaluate(
        bank, lambda items: [(item.id, int(len(item.id) % 2)) for item in items], **settings
    )
    with pytest.raises(InputError, match="the line is dead"):
        evaluate(bank, Calls(answering), out=tmp_path, **settings)
    fit = FactorModel.fit

    def elsewhere(x):
        model = fit(x)
        return FactorModel(model.intercepts + 1e-3, model.loadings)

    monkeypatch.setattr(FactorModel, "fit", staticmethod(elsewhere))
    fewer = settings | {"calibration": settings["calibration"].subset(range(119))}
    with pytest.raises(InputError, match=r"holds another run\. Got config fixed"):
        evaluate(bank, Calls(answering), out=tmp_path, **fewer)
    monkeypatch.delattr("irtcat.cat.engine.evaluation_plan.with_replays")  # no second plan
    found = evaluate(bank, Calls(answering), out=tmp_path, **settings)
    assert found.items.index.tolist() == plain.items.index.tolist()
    assert asked[:18] + asked[19:] == found.items.index.tolist()
    assert found.score == plain.score


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "other"}, "model 'other', begun with ''"),
        ({"config": Config(max_items=5)}, "config"),
        ({"seed": 7}, "seed 7"),
        ({"model": Command("cat")}, "command"),
        ({"bank": irtcat.ItemBank.from_parameters(b=np.zeros(N))}, "Got another bank."),
    ],
)
def test_a_folder_holds_one_run(bank, tmp_path, change, named):
    settings = {"bank": bank, "model": Calls(model([])), "config": RULES, "out": tmp_path}
    evaluate(**settings)
    with pytest.raises(InputError, match="holds another run") as told:
        evaluate(**settings | change)
    assert named in str(told.value)


def test_a_run_that_never_began_gives_way(bank, tmp_path):
    """A first command that fails at once does not spoil the folder for a better one."""
    with pytest.raises(InputError, match=r"exited with 3\.$"):
        evaluate(bank, Command("exit 3"), RULES, out=tmp_path)
    with pytest.raises(InputError, match=r"the line is dead\. 1 answer is kept in .*continue"):
        evaluate(bank, Calls(once), RULES, out=tmp_path)
    with pytest.raises(InputError, match="holds another run"):
        evaluate(bank, Command("exit 3"), RULES, out=tmp_path)


OTHERS = (
    "samples_mine.jsonl",
    "sessions.db-copy",
    "lm_eval_cache_rank0.db",
    "notes/a.txt",
    "inspect_logs/old.eval",
)


def write_others(folder):
    """Files with names such as those of a run, which no run has written."""
    for name in OTHERS:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)


@pytest.mark.slow
def test_only_files_of_the_manifest_are_touched(bank, tmp_path):
    """Neither a run that gives way, nor a resumed one, nor a finished one removes other files."""
    with pytest.raises(InputError, match=r"exited with 3\.$"):
        evaluate(bank, Command("exit 3"), RULES, out=tmp_path)
    write_others(tmp_path)
    for model_of_run in (Calls(once), Calls(once)):
        with pytest.raises(InputError, match="the line is dead"):
            evaluate(bank, model_of_run, RULES, out=tmp_path)
    assert [(tmp_path / name).read_text() for name in OTHERS] == list(OTHERS)
    listed = json.loads((tmp_path / "manifest.json").read_text())["files"]
    there = {each.name for each in tmp_path.iterdir()} - {"manifest.json", ".lock"}
    assert there - {name.split("/")[0] for name in OTHERS} <= set(listed)
    (tmp_path / "result.json").write_text("mine")
    with pytest.raises(InputError, match=r"result\.json: this is not a file that irtcat wrote"):
        evaluate(bank, Calls(once, on_error="skip"), RULES, out=tmp_path)
    assert (tmp_path / "result.json").read_text() == "mine"


@pytest.mark.parametrize("name", [*OTHERS, "run.json", "sessions.db", "items.csv"])
def test_a_folder_with_anything_else_in_it_is_refused(bank, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    asked = []
    with pytest.raises(InputError, match=r"no manifest\.json of a run\. Give a new or an empty"):
        evaluate(bank, model(asked), RULES, out=tmp_path)
    assert asked == []
    assert [each.name for each in tmp_path.iterdir()] == [name.split("/")[0]]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.slow
def test_a_manifest_cannot_name_files_elsewhere(bank, tmp_path):
    """A folder that came from somebody else does not reach outside of itself."""
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    run = tmp_path / "run"
    with pytest.raises(InputError, match=r"exited with 3\.$"):
        evaluate(bank, Command("exit 3"), RULES, out=run)
    good = json.loads((run / "manifest.json").read_text())
    for bad in ("../outside.txt", str(outside), "..", "a/b", "", 3, "manifest.json"):
        document = good | {"files": [*good["files"], bad]}
        (run / "manifest.json").write_text(json.dumps(document))
        with pytest.raises(InputError, match=r"manifest\.json: not a manifest of irtcat"):
            evaluate(bank, Calls(once), RULES, out=run)
    (run / "manifest.json").write_text(json.dumps(good | {"files": [*good["files"], "items.csv"]}))
    (run / "items.csv").symlink_to(outside)
    with pytest.raises(InputError, match=r"items\.csv: this is a link"):
        evaluate(bank, Command("exit 3", on_error="skip"), RULES, out=run)
    assert outside.read_text() == "mine"


def once(items):
    """One answer, and no more."""
    yield items[0].id, 1
    raise ConnectionError("the line is dead")


def test_another_process_in_the_folder_is_refused(bank, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / ".lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process"):
            evaluate(bank, model([]), RULES, out=tmp_path)


def test_retries_and_skips(bank):
    failures = []

    def shaky(items):
        if len(failures) % 3 < 2:
            failures.append(items)
            raise TimeoutError("slow")
        failures.append(items)
        return [(item.id, 1) for item in items]

    found = evaluate(bank, Calls(shaky, retries=2), RULES)
    assert found.n_items == 12
    assert found.notes == ()

    def never(items):
        return [(item.id, 1) for item in items[1:]]

    with pytest.raises(InputError, match=r"an answer to every item asked\. Got 'none for quiz/"):
        evaluate(bank, Calls(never), RULES)
    found = evaluate(bank, Calls(never, on_error="skip"), RULES)
    assert found.items["answer"].isna().sum() == 3
    assert len(found.notes) == 3
    assert "was skipped" in found.notes[0]


def test_all_items_skipped(bank, old_models, tmp_path):
    found = evaluate(
        bank,
        lambda items: [(item.id, None) for item in items],
        RULES,
        calibration=old_models,
        out=tmp_path / "run",
    )
    assert np.isnan(found.score)
    assert found.rank is None
    assert found.lz_star is None
    assert "Predicted full score unknown" in str(found)
    assert "no responses" in str(found)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["score"] is None


@pytest.mark.slow
def test_graded_items():
    """What is given in the codes of the bank."""
    steps = [[-1, 0, 1], [-0.5, 0.5, 1.5], [-2, 0, 2], [0, 1, 2]]
    bank = irtcat.ItemBank.from_thresholds(a=[1.0, 1.5, 1.2, 0.8], b=steps)
    old = bank.simulate(np.linspace(-2, 2, 30), seed=1)
    found = evaluate(bank, lambda items: 2, Config(max_items=3), calibration=old)
    assert found.items["answer"].tolist() == [2, 2, 2]
    assert found.notes == ()
    with pytest.raises(InputError, match="whole number from 0 to 3"):
        evaluate(bank, lambda items: 4, Config(max_items=3))


@pytest.mark.slow_cases(r"0\.5-Give a threshold")
@pytest.mark.parametrize(
    ("value", "must"),
    [
        (0.5, "Give a threshold"),
        (2, "whole number from 0 to 1"),
        ("maybe", "a number for i1"),
        (float("nan"), "a number for i1"),
        ([1], "a number for i1"),
        (float("inf"), "a number for i1"),
    ],
)
def test_answers_that_an_item_cannot_have(value, must):
    bank = irtcat.ItemBank.from_parameters(b=[0.0, 1.0])
    session = Session.begin(bank, Config(max_items=1, first=("i1",)))
    items = {name: Item(name) for name in ("i1", "i2")}
    with pytest.raises(InputError, match=must):
        Calls(lambda asked: [("i1", value)]).drive(session, items, None, None)
    assert session.asked == ["i1"]


def test_right_is_the_higher_of_two_codes_whatever_they_are():
    bank = irtcat.ItemBank.from_parameters(b=[0.0])
    session = Session.begin(replace(bank, codes=(1, 2)), Config(max_items=1))
    found = [as_code(session, Answer("i1", value)) for value in ("C", "I", True, False, 2, 1)]
    assert found == [2, 1, 2, 1, 2, 1]
    assert [as_code(session, Answer("i1", value), 0.5) for value in (0.7, 0.2)] == [2, 1]


@pytest.mark.slow
def test_what_functions_may_give(bank):
    rules = Config(max_items=3)
    one = evaluate(bank, lambda items: 1, rules)
    for function in (
        lambda items: np.bool_(True),
        lambda items: {items[0].id: True},
        lambda items: [(items[0].id, "C", 0.5)],
        lambda items: iter([[items[0].id, 1.0]]),
    ):
        assert evaluate(bank, function, rules).theta == pytest.approx(one.theta, abs=1e-12)
    for function in (lambda items: [1], lambda items: "right", lambda items: object()):
        with pytest.raises(InputError, match="The `answer` argument must be"):
            evaluate(bank, function, rules)
    with pytest.raises(InputError, match="an item of the bank"):
        evaluate(bank, lambda items: [("quiz/999", 1)], rules)


def test_bad_input_is_told_before_anything_is_asked(bank, old_models, tmp_path):
    asked = []
    few = old_models.subset(items=bank.item_ids[:30])
    for settings in ({"calibration": few}, {"calibration": [1]}, {"level": 2.0}):
        with pytest.raises(InputError):
            evaluate(bank, model(asked), RULES, out=tmp_path / "x", **settings)
    with pytest.raises(InputError, match="none for quiz/0"):
        evaluate(bank, model(asked), RULES, items=pd.DataFrame({"task": ["a"]}, index=["b"]))
    with pytest.raises(InputError, match="a number for every item"):
        evaluate(bank, model(asked), RULES, costs={"quiz/0": 1.0}, out=tmp_path / "x")
    assert asked == []
    assert not (tmp_path / "x").exists()


# --- commands ----------------------------------------------------------------------------------

SCRIPT = """
import hashlib, json, math, sys, time
log = open({log!r}, "a")
for line in sys.stdin:
    item = json.loads(line)
    print(item["item"], file=log, flush=True)
    number = int(item["sample"])
    digest = hashlib.sha256(f"new {{number}}".encode()).digest()  # as is_right of the model "new"
    uniform = int.from_bytes(digest[:8], "big") / 2**64
    right = uniform < 1 / (1 + math.exp(-1.7 * ({ability} + 2 - 4 * number / {last})))
    print(json.dumps({{"item": item["item"], "answer": int(right)}}), flush=True)
    time.sleep({pause})
"""


def script(folder, pause=0.0):
    """A command that writes down what it is asked, and the file it writes to."""
    log, path = folder / "asked.txt", folder / "answer.py"
    path.write_text(SCRIPT.format(ability=ABILITY, last=N - 1, log=str(log), pause=pause))
    return shlex.join([sys.executable, str(path)]), log


@pytest.mark.slow
def test_a_command_is_as_good_as_a_function(bank, tmp_path):
    command, log = script(tmp_path)
    found = evaluate(bank, Command(command), RULES, out=tmp_path / "run")
    wanted = evaluate(bank, model([]), RULES)
    assert found.items.index.tolist() == wanted.items.index.tolist()
    assert found.theta == pytest.approx(wanted.theta, abs=1e-12)
    assert log.read_text().split() == found.items.index.tolist()


def test_what_a_command_is_told(tmp_path):
    table = pd.DataFrame({"task": "t", "text": ["größer?", None]}, index=["i1", "i2"])
    log = tmp_path / "stdin.jsonl"
    command = f"tee -a {shlex.quote(str(log))} | sed 's/}}$/, \"answer\": 1}}/'"
    given = list(Command(command).ask(read_items(["i1", "i2"], table)))
    assert [answer[:2] for answer in given] == [("i1", 1), ("i2", 1)]
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    told = {"item": "i1", "task": "t", "sample": "i1", "text": "größer?"}
    assert sorted(rows, key=lambda row: row["item"]) == [
        told,
        {"item": "i2", "task": "t", "sample": "i2"},
    ]


@pytest.mark.slow_cases(
    r"echo hello-Line 1 of the command's output must be a JSON object\. Got 'hello'"
)
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo hello", "Line 1 of the command's output must be a JSON object. Got 'hello'"),
        ("echo; echo '[1]'", "Line 2 of the command's output must be an object"),
        ('echo \'{"item": "i1"}\'', "must be an object with item and answer"),
        ('echo \'{"item": "zz", "answer": 1}\'', "an item that was asked"),
        ('echo \'{"item": "i1", "answer": "yes"}\'', "a number, or null, as answer"),
        ('echo \'{"item": "i1", "answer": 1, "seconds": -1}\'', "seconds of at least 0"),
        ("printf '\\377\\n'", "must be a JSON object"),
        ("echo no luck >&2; exit 3", "The command exited with 3 and said: no luck"),
        ("kill -9 $$", "was killed by signal 9"),
        ("true", "ended without an answer to i1"),
        ("sleep 60", "took more than 0.3 seconds"),
        ("exec >&-; sleep 60", "took more than 0.3 seconds"),
    ],
)
def test_failing_commands_are_named(command, told):
    bank = irtcat.ItemBank.from_parameters(b=[0.0])
    began = time.monotonic()
    slow = 0.3 if "sleep" in command else 30.0
    with pytest.raises(InputError) as error:
        evaluate(bank, Command(command, timeout=slow), Config(max_items=1))
    assert told in str(error.value)
    assert time.monotonic() - began < 20


def test_a_late_command_is_ended_with_what_it_started(tmp_path):
    bank = irtcat.ItemBank.from_parameters(b=[0.0])
    file = tmp_path / "pid"
    command = f"sh -c 'echo $$ > {file}; sleep 60; true'; true"
    with pytest.raises(InputError, match="took more than"):
        evaluate(bank, Command(command, timeout=0.5), Config(max_items=1))
    pid = int(file.read_text())
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists() and stat.read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("it still runs")


def test_a_retried_command_gets_only_what_is_left(bank, tmp_path):
    """It answers the first item of a batch, then fails: the next run is told the others."""
    log = tmp_path / "log"
    command = f"head -n 1 | tee -a {log} | sed 's/}}$/, \"answer\": 1}}/'; exit 1"
    found = evaluate(bank, Command(command, retries=1), RULES)
    assert found.n_items == 12
    assert len(set(log.read_text().splitlines())) == len(log.read_text().splitlines()) == 12


@pytest.mark.slow
def test_killed_and_resumed(bank, tmp_path):
    """kill -9 in the middle of a batch: what was acknowledged is never asked again."""
    command, log = script(tmp_path, pause=0.1)
    bank.save(tmp_path / "bank.npz")
    code = (
        "import sys, irtcat\nfrom irtcat.cat import Config\n"
        "from irtcat.harness import Command, evaluate\n"
        f"bank = irtcat.ItemBank.load({str(tmp_path / 'bank.npz')!r})\n"
        f"rules = Config(criterion='score-optimal', sampled=0.5, max_items=12, batch=4)\n"
        f"evaluate(bank, Command({command!r}), rules, out={str(tmp_path / 'run')!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    while process.poll() is None and len(acknowledged(tmp_path / "run" / "sessions.db")) < 6:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(timeout=120) == -signal.SIGKILL
    kept = acknowledged(tmp_path / "run" / "sessions.db")
    assert 6 <= len(kept) < 12
    time.sleep(0.3)  # the command that was left behind ends
    known = log.read_text()
    found = evaluate(
        irtcat.ItemBank.load(tmp_path / "bank.npz"), Command(command), RULES, out=tmp_path / "run"
    )
    assert not set(kept) & set(log.read_text()[len(known) :].split())
    wanted = evaluate(bank, model([]), RULES)
    assert found.theta == pytest.approx(wanted.theta, abs=1e-12)
    assert found.items.index.tolist() == wanted.items.index.tolist()
    assert (tmp_path / "run" / "result.json").exists()


def acknowledged(path):
    """Items whose answers are on disk."""
    import sqlite3

    if not path.exists():
        return []
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            rows = db.execute("SELECT event FROM events ORDER BY number").fetchall()
        db.close()
    except sqlite3.OperationalError:
        return []
    events = [json.loads(row[0]) for row in rows]
    return [event["item"] for event in events if event["kind"] == "answer"]


@pytest.mark.slow
def test_a_short_form_is_run_whole(old_models, tmp_path):
    """All of its items at once; the score is that of the form alone."""
    form = irtcat.short_form(old_models, 15, name="short")
    asked = []
    out = evaluate(form, model(asked), name="new", items=old_models, out=tmp_path / "run")
    assert sorted(asked) == sorted(form.item_ids)
    answers = out.items["answer"].reindex(form.item_ids).to_numpy()[None]
    predicted = form.predict(answers)
    assert (out.score, out.lower, out.upper) == tuple(
        float(getattr(predicted, name)[0]) for name in ("score", "lower", "upper")
    )
    assert out.rank == predicted.rank[0]
    assert (out.n_items, out.n_bank, out.n_calibrated) == (15, N, 40)
    again = evaluate(form, model(asked), name="new", items=old_models, out=tmp_path / "run")
    assert len(asked) == 15  # continued: nothing is asked twice
    assert again.score == out.score


def test_reruns_of_the_model_with_a_short_form(old_models):
    form = irtcat.short_form(old_models, 15)
    again = Responses.from_array(np.arange(15)[None] % 2, ["new"], form.item_ids)
    out = evaluate(form, model([]), items=old_models, name="new", reruns=again)
    assert (out.noise_source, out.notes) == ("reruns", ())
    assert out.lower <= out.score <= out.upper


@pytest.mark.slow
def test_a_short_form_with_too_many_skipped_items(old_models):
    form = irtcat.short_form(old_models, 15)

    def answer(items):
        return [(item.id, 1 if number else None) for number, item in enumerate(items[3:])] + [
            (item.id, None) for item in items[:3]
        ]

    out = evaluate(form, answer)
    assert np.isnan(out.score)
    assert any("4 of 15 missing" in note for note in out.notes)


@pytest.mark.parametrize(
    "option", [{"estimator": "x"}, {"estimand": "x"}, {"reruns": "x"}, {"mismatch": "x"}], ids=str
)
def test_invalid_options_cost_no_answer(bank, old_models, option):
    asked = []
    with pytest.raises(InputError, match=f"`{next(iter(option))}` argument"):
        evaluate(bank, model(asked), RULES, calibration=old_models, **option)
    assert not asked


def test_a_short_form_has_its_own_rules(bank, old_models):
    form = irtcat.short_form(old_models, 15)
    for changes, words in (
        ({"config": RULES}, "`config` argument must be None with a short form"),
        ({"calibration": old_models}, "`calibration` argument must be None with a short form"),
        ({"estimator": "irt"}, "`estimator` argument must be None with a short form"),
        ({"level": 0.85}, "`level`"),
    ):
        with pytest.raises(InputError, match=words):
            evaluate(form, model([]), **changes)
    out = evaluate(form, model([]), items=old_models, costs=pd.Series(2.0, old_models.item_ids))
    assert (out.cost, out.full_cost) == (30.0, None)  # not that of the form's items alone
    assert "Cost 30." in out.sentences()
    graded = Responses.from_array(np.arange(400).reshape(20, 20) % 3, codes=(0, 1, 2))
    with pytest.raises(InputError, match="right/wrong items"):
        evaluate(irtcat.short_form(graded, 5), model([]))


@pytest.mark.slow
def test_whose_score_it_is():
    """By default the score is of this run and the rank of the model; reruns make it certain."""
    bank = irtcat.ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
    old = bank.simulate(np.linspace(-2, 2, 50), seed=1)

    def answer(asked):
        return [(item.id, int(int(item.id[1:]) < 30)) for item in asked]

    def run(**options):
        return evaluate(bank, answer, Config(max_items=20), calibration=old, **options)

    default, model, certain = run(), run(estimand="model"), run(reruns="deterministic")
    assert (default.estimand, default.ranks_of, default.noise_source) == ("run", "model", "bound")
    assert "Scores on all 40 items are of these runs, ranks of the models over reruns" in str(
        default
    )
    assert model.upper - model.lower > default.upper - default.lower
    assert (model.rank_lower, model.rank_upper) == (default.rank_lower, default.rank_upper)
    assert certain.noise_source == "reruns"
    assert certain.rank_upper - certain.rank_lower <= default.rank_upper - default.rank_lower
    with pytest.raises(InputError, match='`estimand` argument must be "run" without responses'):
        evaluate(bank, answer, Config(max_items=5), estimand="model")

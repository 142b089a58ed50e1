"""Inspect AI really run, offline, on a small local task with mock models."""

import json
import os
import shlex

import numpy as np
import pytest

import irtcat
from irtcat import InputError
from irtcat.cat import Config, Session
from irtcat.harness import Adaptive, Inspect, Item, compare_live, evaluate, export, inspect_tasks
from irtcat.io.logs import read_logs
from tests.harness.conftest import QUESTIONS, N, is_right

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other people's packages

ABILITIES = np.linspace(-2, 2, 6)
RULES = Config(criterion="score-optimal", sampled=0.5, max_items=12, batch=4)
QUIET = {"display": "none", "score_display": False, "log_realtime": False}

TASK = """
import json
from pathlib import Path
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate, solver

@solver
def silence():
    async def solve(state, generate):
        return state
    return solve

def samples():
    lines = Path({file!r}).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        Sample(id=f"q:{{row['number']}}", input=row["question"], target=row["answer"])
        for row in rows
    ]

@task
def quiz():
    return Task(dataset=samples(), solver=generate(), scorer=match(location="exact"))

@task
def still():
    return Task(dataset=samples(), solver=silence(), scorer=match())
"""


@pytest.fixture(scope="module")
def inspect_ai():
    return pytest.importorskip("inspect_ai", reason="needs the extra: pip install irtcat[harness]")


@pytest.fixture(scope="module")
def task_file(quiz):
    path = quiz / "quiz.py"
    path.write_text(TASK.format(file=str(quiz / "quiz.jsonl")))
    return os.path.relpath(path) + "@quiz"  # Inspect finds no absolute paths


def simulated(ability, name, asked=None, fail_at=None):
    """A mock model that answers by its ability; not the one that Inspect has made before."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    number = {row["question"]: row for row in QUESTIONS}

    def answer(messages, tools, tool_choice, config):
        row = number[messages[-1].text]
        if asked is not None:
            if len(asked) == fail_at:
                raise ConnectionError("gone")
            asked.append(row["number"])
        right = is_right(ability, row["number"], name)
        out = ModelOutput.from_content(f"mockllm/{name}", row["answer"] if right else "no idea")
        out.usage = ModelUsage(
            input_tokens=1, output_tokens=1, total_tokens=2
        )  # else counted online
        return out

    return get_model(f"mockllm/{name}", custom_outputs=answer, memoize=False)


@pytest.fixture(scope="module")
def calibrated(inspect_ai, task_file, tmp_path_factory):
    """Full runs of six models, imported and calibrated."""
    folder = tmp_path_factory.mktemp("full")
    models = [simulated(ability, f"sim-{k}") for k, ability in enumerate(ABILITIES)]
    inspect_ai.eval(task_file, model=models, log_dir=str(folder), **QUIET)
    responses = read_logs(folder).responses
    bank = irtcat.fit(responses, "rasch").bank
    return responses, irtcat.ItemBank(
        bank.model, bank.item_ids, bank.populations, items=responses.items
    )


def number_of(sample):
    return int(sample.split(":")[1])


@pytest.mark.slow
def test_full_runs_are_what_the_models_answer(calibrated):
    responses, _ = calibrated
    assert responses.shape == (len(ABILITIES), N)
    numbers = [number_of(each) for each in responses.items["sample"]]
    for k, ability in enumerate(ABILITIES):
        wanted = [is_right(ability, n, f"sim-{k}") for n in numbers]
        row = responses.subset(subjects=[f"mockllm/sim-{k}"]).to_numpy()[0]
        np.testing.assert_array_equal(row, wanted)


@pytest.mark.slow
def test_reduced_run_out_and_in_again(inspect_ai, calibrated, task_file, tmp_path):
    responses, _ = calibrated
    subset = irtcat.select(None, 12, strategy="balanced", calibration=responses)
    made = export(subset, "inspect", responses, task=task_file)
    words = shlex.split(made.commands(model="m")[0])
    assert words[2] == task_file
    ids = words[words.index("--sample-id") + 1].split(",")
    asked = []
    inspect_ai.eval(
        task_file, model=simulated(0.5, "new", asked), sample_id=ids, log_dir=str(tmp_path), **QUIET
    )
    wanted = {number_of(responses.items.loc[each, "sample"]) for each in subset.item_ids}
    assert sorted(asked) == sorted(wanted)
    new = read_logs(tmp_path).responses
    told = irtcat.predict(responses, subset, new)
    truth = np.mean([is_right(0.5, n, "new") for n in range(N)])
    assert told.lower[0] <= truth <= told.upper[0]


@pytest.mark.slow
def test_the_printed_command_runs(calibrated, task_file, tmp_path, monkeypatch):
    """Inspect's own program, called as its console script calls it."""
    from inspect_ai._cli.main import inspect as program

    responses, _ = calibrated
    ids = responses.item_ids[[30, 3, 17]]
    file = os.path.relpath(task_file.partition("@")[0], tmp_path)
    made = export(ids, "inspect", responses, task=f"{file}@still")
    words = shlex.split(made.commands(model="mockllm/model")[0])
    monkeypatch.chdir(tmp_path)
    assert words[0] == "inspect"
    program.main([*words[1:], "--display", "none"], standalone_mode=False)
    run = read_logs(tmp_path / "new").responses
    assert set(run.items["sample"]) == set(responses.items.loc[ids, "sample"])
    assert run.values.tolist() == [[0, 0, 0]]  # that task's solver says nothing


@pytest.mark.slow
def test_adaptive_drive(calibrated, task_file, tmp_path):
    responses, bank = calibrated
    asked = []
    harness = Inspect(task_file, simulated(0.5, "new", asked))
    found = evaluate(bank, harness, RULES, calibration=responses, out=tmp_path / "run", name="new")
    samples = [number_of(each) for each in found.items["sample"]]
    assert sorted(asked) == sorted(samples)
    assert len(set(samples)) == 12
    for sample, answer in zip(samples, found.items["answer"], strict=True):
        assert answer == is_right(0.5, sample, "new")
    truth = np.mean([is_right(0.5, n, "new") for n in range(N)])
    assert found.lower <= truth <= found.upper
    logs = read_logs(tmp_path / "run" / "inspect_logs").responses
    assert set(logs.item_ids) == set(found.items.index)  # the log holds just the items run
    told = irtcat.predict(responses, found.items.index.tolist(), logs, estimator="curves")
    assert abs(told.score[0] - found.score) < 0.1
    again = evaluate(bank, harness, RULES, calibration=responses, out=tmp_path / "run", name="new")
    assert len(asked) == 12
    assert again.to_json() == found.to_json()


def test_a_worse_model_is_found_with_few_samples(calibrated, task_file, tmp_path):
    responses, _ = calibrated
    best = responses.subset(subjects=[int(np.argmax(responses.to_numpy().mean(axis=1)))])
    asked = []
    harness = Inspect(task_file, simulated(-9.0, "bad", asked))
    settings = {"name": "bad", "batch": 5, "out": tmp_path / "run"}
    found = compare_live(best, harness, **settings)
    assert found.verdict == "worse"
    n = len(asked)
    assert found.n_items <= n < found.n_items + 5 < N
    again = compare_live(best, Inspect(task_file, simulated(-9.0, "bad", asked)), **settings)
    assert (str(again), len(asked)) == (str(found), n)


@pytest.mark.slow
def test_one_at_a_time_is_what_a_function_gives(calibrated, inspect_ai, task_file, tmp_path):
    """The same items in the same order as the plain loop, also with a Task as an object."""
    from inspect_ai._eval.loader import load_tasks

    _, bank = calibrated
    rules = Config(max_items=12)
    wanted = evaluate(
        bank, lambda items: int(is_right(0.5, number_of(items[0].sample), "new")), rules
    )
    (task,) = load_tasks([task_file])
    harness = Inspect(task, simulated(0.5, "new"), log_dir=tmp_path, options=QUIET)
    found = evaluate(bank, harness, rules)
    assert found.items.index.tolist() == wanted.items.index.tolist()
    assert found.theta == pytest.approx(wanted.theta, abs=1e-12)
    assert task.early_stopping is None


@pytest.mark.slow
def test_interrupted_drive_pays_for_no_answer_twice(calibrated, task_file, tmp_path, monkeypatch):
    """The model is gone, then the disk is full: what was only logged is taken from the log."""
    _, bank = calibrated
    asked, kept = [], []
    settings = {"config": RULES, "out": tmp_path / "run"}
    plain = inspect_tasks.record

    def full(session, answer, threshold):
        if len(kept) == 7:
            raise OSError("no space left")
        kept.append(answer.item)
        plain(session, answer, threshold)

    monkeypatch.setattr(inspect_tasks, "record", full)
    with pytest.raises(InputError, match="answers are kept"):
        evaluate(bank, Inspect(task_file, simulated(0.5, "new", asked, fail_at=5)), **settings)
    assert 4 <= len(kept) <= 5
    with pytest.raises(OSError, match="no space left"):
        evaluate(bank, Inspect(task_file, simulated(0.5, "new", asked)), **settings)
    monkeypatch.setattr(inspect_tasks, "record", plain)
    found = evaluate(bank, Inspect(task_file, simulated(0.5, "new", asked)), **settings)
    numbers = [number_of(each) for each in found.items["sample"]]
    assert {number for number in asked if asked.count(number) > 1} == set()
    assert sorted(asked) == sorted(numbers)
    assert found.items["answer"].tolist() == [is_right(0.5, n, "new") for n in numbers]
    assert found.notes[0].startswith("Answers from the log of an interrupted run: ")


@pytest.mark.slow
def test_answers_of_another_model_are_not_taken(calibrated, task_file, tmp_path, monkeypatch):
    """A run that kept no answer gives way to another's; what it had logged is not the other's."""
    _, bank = calibrated
    settings = {"config": RULES, "out": tmp_path / "run"}

    def full(session, answer, threshold):
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(inspect_tasks, "record", full)
        with pytest.raises(OSError, match="no space left"):
            evaluate(bank, Inspect(task_file, simulated(-2.0, "weak")), **settings)
    asked = []
    found = evaluate(bank, Inspect(task_file, simulated(2.0, "able", asked)), **settings)
    numbers = [number_of(each) for each in found.items["sample"]]
    assert sorted(asked) == sorted(numbers)
    assert found.items["answer"].tolist() == [is_right(2.0, n, "able") for n in numbers]
    assert list((tmp_path / "run" / "inspect_logs").glob("*.eval"))  # those of the weak model stay
    assert list((tmp_path / "run" / "inspect_logs-2").glob("*.eval"))


def test_trap_too_few_samples_at_a_time(inspect_ai, calibrated, task_file, tmp_path):
    """Each sample is held until it is asked: with fewer places than samples it would never end."""
    from inspect_ai._eval.loader import load_tasks

    _, bank = calibrated
    items = {e: Item(e, "quiz", s) for e, s in bank.items["sample"].items()}
    (task,) = load_tasks([task_file])
    holder = Adaptive(Session.begin(bank, RULES), items)
    asked = []
    inspect_ai.task_with(task, early_stopping=holder)
    model = simulated(0.0, "x", asked)
    (log,) = inspect_ai.eval(task, model=model, max_samples=N - 1, log_dir=str(tmp_path), **QUIET)
    assert log.status == "error"
    assert "max_samples" in str(holder.error)
    assert asked == []
    with pytest.raises(InputError, match="max_samples"):
        Inspect(task_file, "mockllm/model", options={"max_samples": 2})


def test_trap_memoized_models(inspect_ai):
    """Inspect hands out the first model made under a name, whatever its outputs."""
    from inspect_ai.model import ModelOutput, get_model

    def make(text, **settings):
        said = ModelOutput.from_content("mockllm/m", text)
        return get_model("mockllm/m", custom_outputs=[said], **settings)

    assert make("a", memoize=False) is not make("b", memoize=False)
    assert simulated(0.0, "same") is not simulated(1.0, "same")


@pytest.mark.slow
def test_the_task_is_that_of_the_calibration(calibrated, task_file, tmp_path):
    """Scorer, version and texts; what is known before the run is checked before it."""
    _, bank = calibrated
    assert bank.items["scorer"].unique().tolist() == ["match"]
    for column, value, words, is_early in (
        ("version", "7", "version 0 instead of 7", True),
        ("text_hash", "ab" * 32, r"hash of the text .* instead of abababababab", True),
        ("scorer", "judge", "scorer match instead of judge", False),
    ):
        asked = []
        items = bank.items.assign(**{column: value})
        other = irtcat.ItemBank(bank.model, bank.item_ids, items=items)
        harness = {"log_dir": tmp_path / column}
        with pytest.raises(InputError, match=f"{words} in task quiz"):
            evaluate(other, Inspect(task_file, simulated(0.0, "x", asked), **harness), RULES)
        assert bool(asked) != is_early
        accepting = Inspect(task_file, simulated(0.0, "x"), mismatch="accept", **harness)
        assert evaluate(other, accepting, RULES).n_items == RULES.max_items


def test_two_tasks_with_the_same_samples_are_refused():
    """One of the two items of a sample would be asked for ever."""
    items = {f"{task}/1": Item(f"{task}/1", task, "1") for task in "ab"}
    bank = irtcat.ItemBank.from_parameters(b=[0.0, 1.0], item_ids=list(items))
    with pytest.raises(InputError, match=r"of one task.*sample 1 for both a/1 and b/1"):
        Adaptive(Session.begin(bank, Config(max_items=2)), items)


def test_what_cannot_be_run_is_told(calibrated, task_file, tmp_path):
    _, bank = calibrated
    model = simulated(0.0, "x")
    for harness, must in (
        (
            Inspect(task_file, model, metric="rouge", log_dir=tmp_path, mismatch="accept"),
            "one of the scorers match",
        ),
        (Inspect("no_such_file.py", model), "no_such_file.py"),
        (Inspect(task_file, "no-such-api/x"), "could not run: .*no-such-api"),
    ):
        with pytest.raises(InputError, match=must):
            evaluate(bank, harness, RULES)
    table = bank.items.assign(sample=[f"gone:{n}" for n in range(N)])
    with pytest.raises(InputError, match="gone"):
        evaluate(bank, Inspect(task_file, model), RULES, items=table)
    with pytest.raises(InputError, match="epochs"):
        Inspect(task_file, model, options={"epochs": 2})
    assert json.dumps(Inspect(task_file, model).about())

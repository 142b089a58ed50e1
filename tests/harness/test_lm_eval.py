"""lm-evaluation-harness really run, offline, on a small local task with simulated models."""

import json
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import InputError
from irtcat.cat import Config
from irtcat.harness import LmEval, compare_live, evaluate, export
from irtcat.harness.lm_eval_tasks import Replies
from irtcat.io.logs import read_logs
from tests.harness.conftest import QUESTIONS, N, is_right

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other people's packages

ABILITIES = np.linspace(-2, 2, 10)
RULES = Config(criterion="score-optimal", sampled=0.5, max_items=12, batch=4)


@pytest.fixture(scope="module")
def lm_eval():
    return pytest.importorskip("lm_eval", reason="needs the extra: pip install irtcat[harness]")


@pytest.fixture(scope="module")
def simulated(lm_eval):
    """A class of models that answer by their ability, and write down what they are asked."""
    from lm_eval.api.model import LM

    class Simulated(LM):
        def __init__(self, ability, name):
            super().__init__()
            self.ability, self.name, self.asked = ability, name, []

        def generate_until(self, requests, disable_tqdm=False):
            out = []
            for request in requests:
                self.asked.append(request.doc["number"])
                right = is_right(self.ability, request.doc["number"], self.name)
                out.append(request.doc["answer"] if right else "no idea")
            return out

        def loglikelihood(self, requests, disable_tqdm=False):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    return Simulated


def run_whole(lm_eval, model, quiz, out, tasks=("quiz",), samples=None):
    """A run as lm-eval's own command makes it, logs written."""
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    tracker = EvaluationTracker(output_path=str(out))
    found = lm_eval.simple_evaluate(
        model=model,
        tasks=list(tasks),
        samples=samples,
        bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(quiz), include_defaults=False),
        evaluation_tracker=tracker,
    )
    tracker.general_config_tracker.model_name = model.name
    tracker.general_config_tracker.model_name_sanitized = model.name.replace("/", "__")
    logged = found.pop("samples")
    tracker.save_results_aggregated(results=found, samples=logged)
    for task, rows in logged.items():
        tracker.save_results_samples(task_name=task, samples=rows)
    return logged


@pytest.fixture(scope="module")
def calibrated(lm_eval, simulated, quiz, tmp_path_factory):
    """Full runs of ten models, imported and calibrated."""
    out = tmp_path_factory.mktemp("full")
    for k, ability in enumerate(ABILITIES):
        run_whole(lm_eval, simulated(ability, f"sim/{k}"), quiz, out)
    logs = read_logs(out)
    bank = irtcat.fit(logs.responses, "rasch").bank
    return logs.responses, irtcat.ItemBank(
        bank.model, bank.item_ids, bank.populations, items=logs.responses.items
    )


@pytest.mark.slow
def test_full_runs_are_what_the_models_answer(calibrated):
    responses, _ = calibrated
    assert responses.shape == (len(ABILITIES), N)
    numbers = responses.items["sample"].astype(int)
    for k, ability in enumerate(ABILITIES):
        wanted = [is_right(ability, n, f"sim/{k}") for n in numbers]
        row = responses.subset(subjects=[f"sim/{k}"]).to_numpy()[0]
        np.testing.assert_array_equal(row, wanted)


@pytest.mark.slow
def test_reduced_run_out_and_in_again(lm_eval, simulated, calibrated, quiz, tmp_path):
    """Select, export, run just these, import, predict."""
    responses, _ = calibrated
    subset = irtcat.select(None, 12, strategy="balanced", calibration=responses)
    made = export(subset, "lm-eval", responses)
    made.write(tmp_path / "samples.json")
    samples = json.loads((tmp_path / "samples.json").read_text())
    model = simulated(0.5, "sim/new")
    run_whole(lm_eval, model, quiz, tmp_path / "logs", made.tasks, samples)
    assert sorted(model.asked) == samples["quiz"]
    new = read_logs(tmp_path / "logs").responses
    assert set(new.item_ids) == set(subset.item_ids)
    told = irtcat.predict(responses, subset, new)
    truth = np.mean([is_right(0.5, n, "sim/new") for n in range(N)])
    assert told.subject_ids.tolist() == ["sim/new"]
    assert told.lower[0] <= truth <= told.upper[0]


@pytest.mark.slow  # lm-eval's program looks through thousands of task files
def test_the_printed_command_runs(calibrated, quiz, tmp_path):
    """lm-eval's own program, with its built-in model: exactly the documents of the subset."""
    responses, _ = calibrated
    made = export(responses.item_ids[[30, 3, 17]], "lm-eval", responses)
    made.write(tmp_path / "few.json")
    (command,) = made.commands("few.json", "dummy")
    words = shlex.split(command)
    program = [sys.executable, "-m", "lm_eval"]
    subprocess.run(
        [*program, *words[1:], "--include_path", str(quiz)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=300,
    )
    logs = read_logs(tmp_path / "new")
    assert set(logs.responses.item_ids) == {str(responses.item_ids[i]) for i in (3, 17, 30)}


@pytest.mark.slow
def test_adaptive_drive(lm_eval, simulated, calibrated, quiz, tmp_path):
    responses, bank = calibrated
    model = simulated(0.5, "sim/new")
    harness = LmEval(model, include_path=str(quiz))
    # Which of equally good items are drawn hangs on rounding; of twelve seeds ten intervals hold.
    found = evaluate(
        bank, harness, RULES, calibration=responses, out=tmp_path / "run", name="sim/new", seed=2
    )
    samples = [int(each) for each in found.items["sample"]]
    assert sorted(model.asked) == sorted(samples)
    assert len(set(samples)) == 12
    for sample, answer in zip(samples, found.items["answer"], strict=True):
        assert answer == is_right(0.5, sample, "sim/new")
    truth = np.mean([is_right(0.5, n, "sim/new") for n in range(N)])
    assert found.lower <= truth <= found.upper
    assert 1 <= found.rank <= len(ABILITIES) + 1
    lines = (tmp_path / "run" / "samples_quiz.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["doc_id"] for line in lines) == sorted(samples)
    logged = read_logs(tmp_path / "run").responses
    assert set(logged.item_ids) == set(found.items.index)
    again = evaluate(
        bank,
        LmEval(model, include_path=str(quiz)),
        RULES,
        calibration=responses,
        out=tmp_path / "run",
        name="sim/new",
        seed=2,
    )
    assert len(model.asked) == 12
    assert again.to_json() == found.to_json()


@pytest.mark.slow
def test_a_worse_model_is_found_with_few_documents(simulated, calibrated, quiz):
    responses, _ = calibrated
    best = str(responses.subject_ids[int(np.argmax(responses.to_numpy().mean(axis=1)))])
    model = simulated(-9.0, "sim/bad")
    harness = LmEval(model, include_path=str(quiz))
    found = compare_live(responses.subset(subjects=[best]), harness, name="sim/bad", batch=5)
    assert (found.new, found.old, found.verdict) == ("sim/bad", best, "worse")
    assert found.n_items <= len(model.asked) < found.n_items + 5
    assert found.n_items < N


class Bomb:
    """What lm-eval's cache could hold: reading the pickle makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def fill_cache(path, bomb, requests):
    """A cache as lm-eval writes it, with a reply to every request that runs code."""
    from lm_eval.api.model import hash_args
    from sqlitedict import SqliteDict

    with SqliteDict(str(path), autocommit=True) as cache:
        for arguments in requests:
            cache[hash_args("generate_until", arguments)] = Bomb(str(bomb))


@pytest.mark.slow
def test_interrupted_drive_pays_for_no_answer_twice(simulated, calibrated, quiz, tmp_path):
    """A model that fails in its second batch; what it had said of that batch is kept as JSON.

    A cache of lm-eval in the folder is not opened: its pickles run code.
    """
    _, bank = calibrated
    model = simulated(0.5, "sim/new")
    answer, model.left = model.generate_until, 6

    def failing(requests, disable_tqdm=False):
        out = []
        for request in requests:
            if model.left == 0:
                raise ConnectionError("gone")
            model.left -= 1
            (said,) = answer([request])
            model.cache_hook.add_partial("generate_until", request.args, said)
            out.append(said)
        return out

    model.generate_until = failing
    settings = {"config": RULES, "out": tmp_path / "run"}
    with pytest.raises(InputError, match="gone"):
        evaluate(bank, LmEval(model, include_path=str(quiz)), **settings)
    assert len(model.asked) == 6
    run, cache = tmp_path / "run", tmp_path / "run" / "lm_eval_cache_rank0.db"
    assert not cache.exists()
    until = {"until": ["\n"]}
    prompts = [(f"Q: {row['question']}\nA:", until) for row in QUESTIONS]
    fill_cache(cache, tmp_path / "bomb", prompts)
    before = cache.read_bytes()
    replies = [
        json.loads(line) for line in (run / "lm_eval_replies.jsonl").read_text().splitlines()
    ]
    assert len(replies) == 6
    with (run / "samples_quiz.jsonl").open("a") as file:
        file.write('{"doc_id": 39, "cut')  # as a killed process may leave it
    model.left = 100
    found = evaluate(bank, LmEval(model, include_path=str(quiz)), **settings)
    assert len(model.asked) == len(set(model.asked)) == 12
    assert sorted(model.asked) == sorted(int(each) for each in found.items["sample"])
    assert not (tmp_path / "bomb").exists()
    assert cache.read_bytes() == before
    lines = (run / "samples_quiz.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["doc_id"] for line in lines) == sorted(model.asked)
    del model.generate_until
    whole = evaluate(bank, LmEval(model, include_path=str(quiz)), RULES, out=tmp_path / "whole")
    pd.testing.assert_frame_equal(
        whole.items.drop(columns="seconds"), found.items.drop(columns="seconds")
    )
    assert len(model.asked) == 24  # a folder of its own has no replies


class Said:
    """A request as lm-eval makes it, as far as it is looked at."""

    def __init__(self, doc, *arguments, idx=0, task_name="quiz"):
        self.doc, self.args, self.idx, self.task_name = doc, arguments, idx, task_name


def test_replies_are_kept_as_they_were(tmp_path):
    """Text, pairs and numbers; a request that is there twice is asked twice; nothing else is."""

    class Model:
        asked = 0

        def generate_until(self, requests):
            self.asked += len(requests)
            return [
                f"{request.args[0]}\ud800 {self.asked - i}" for i, request in enumerate(requests)
            ]

        def loglikelihood(self, requests):
            self.asked += len(requests)
            return [(-float("inf"), True) for _ in requests]

        def loglikelihood_rolling(self, requests):
            self.asked += len(requests)
            return [object() for _ in requests]

    one, same_prompt = Said({"n": 1}, "p", {"until": ["x"]}), Said({"n": 2}, "p", {"until": ["x"]})
    path, model = tmp_path / "replies.jsonl", Model()
    with Replies(path).cached(model):
        first = model.generate_until([one, one, same_prompt])
        pairs = model.loglikelihood([one])
        model.loglikelihood_rolling([one])
    assert len(set(first)) == 3
    assert "generate_until" not in vars(model)
    assert model.asked == 5
    path.write_bytes(path.read_bytes()[:-1])  # the last line is whole all but its end
    with path.open("ab") as file:
        file.write(b'\n{"key": "cut')
    again = Replies(path)
    with again.cached(model):
        assert model.generate_until([same_prompt, one, one]) == [first[2], first[0], first[1]]
        assert model.loglikelihood([one]) == pairs
        assert model.asked == 5
        model.loglikelihood([Said({"n": 3}, "p", " a")])
    assert len(Replies(path)._replies) == 5


@pytest.mark.slow
def test_several_tasks_of_one_data_set(simulated, calibrated, quiz):
    """A batch names the tasks it has items of, and no other: a task without items would run whole.

    The two tasks have the same document numbers, and must not be mixed up.
    """
    ids = [f"{task}/{n}" for n in range(N // 2) for task in ("quiz", "other_quiz")]
    table = pd.DataFrame(
        {
            "task": [each.split("/")[0] for each in ids],
            "doc_id": [int(each.split("/")[1]) for each in ids],
        },
        index=ids,
    )
    bank = irtcat.ItemBank.from_parameters(b=np.linspace(-1, 1, N), item_ids=ids)
    model = simulated(0.0, "sim/x")
    found = evaluate(bank, LmEval(model, include_path=str(quiz)), RULES, items=table).items
    assert sorted(model.asked) == sorted(int(each) for each in found["sample"])
    assert found.groupby("batch")["task"].nunique().max() == 2
    for item, row in found.iterrows():
        assert item == f"{row['task']}/{row['sample']}"
        assert row["answer"] == is_right(0.0, int(row["sample"]), "sim/x")


@pytest.mark.slow
def test_trap_unsorted_and_empty_lists(lm_eval, simulated, quiz):
    """What the exports avoid: wrong numbers in the log, and whole runs."""
    from lm_eval.tasks import TaskManager

    def run(samples, tasks=("quiz",)):
        model = simulated(0.0, "sim/x")
        found = lm_eval.simple_evaluate(
            model=model,
            tasks=list(tasks),
            samples=samples,
            bootstrap_iters=0,
            task_manager=TaskManager(include_path=str(quiz), include_defaults=False),
        )
        return model.asked, [row["doc_id"] for row in found["samples"][tasks[-1]]]

    asked, logged = run({"quiz": [9, 2]})
    assert (asked, logged) == ([2, 9], [9, 2])  # the answer to 2 is logged as that to 9
    assert len(run({"quiz": []})[0]) == N
    assert len(run({"quiz": [1]}, ("quiz", "other_quiz"))[0]) == N + 1
    assert run({"quiz": [2, 9]}) == ([2, 9], [2, 9])


@pytest.mark.slow
def test_other_data_than_the_calibrated_are_refused(simulated, calibrated, quiz, tmp_path):
    _, bank = calibrated
    rows = [row | {"question": row["question"] + "!"} for row in QUESTIONS]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = (quiz / "quiz.yaml").read_text().replace(f"{quiz}/quiz.jsonl", f"{tmp_path}/new.jsonl")
    (tmp_path / "quiz.yaml").write_text(text)
    model = simulated(0.0, "sim/x")
    with pytest.raises(InputError, match=r"hash of the data .* instead of .* in task quiz"):
        evaluate(bank, LmEval(model, include_path=str(tmp_path)), RULES)
    accepting = LmEval(model, include_path=str(tmp_path), mismatch="accept")
    assert evaluate(bank, accepting, RULES).n_items == RULES.max_items


@pytest.fixture
def two_filters(quiz, tmp_path):
    """Folder of the task with two filters, the lenient one first."""
    text = (quiz / "quiz.yaml").read_text() + (
        "filter_list:\n"
        "  - name: flexible\n    filter:\n"
        "      - function: regex\n        regex_pattern: '([0-9]+)'\n"
        "      - function: take_first\n"
        "  - name: strict-match\n    filter:\n      - function: take_first\n"
    )
    (tmp_path / "quiz.yaml").write_text(text)
    return tmp_path


@pytest.mark.slow
def test_answers_are_by_the_filter_of_the_calibration(simulated, calibrated, two_filters):
    """Or refused by name, if another is requested; then nothing is run."""

    class Chatty(simulated):
        def generate_until(self, requests, disable_tqdm=False):
            return [f"It is {text}." for text in super().generate_until(requests, disable_tqdm)]

    _, bank = calibrated
    folder, metrics = str(two_filters), bank.items.assign(filter="strict-match")
    strict = irtcat.ItemBank(bank.model, bank.item_ids, items=metrics)
    model = Chatty(9.0, "sim/x")
    found = evaluate(strict, LmEval(model, include_path=folder), RULES)
    assert found.items["answer"].sum() == 0
    assert not found.notes
    model = Chatty(9.0, "sim/x")
    other = LmEval(model, include_path=folder, filter="flexible")
    with pytest.raises(InputError, match="filter flexible instead of strict-match in task quiz"):
        evaluate(strict, other, RULES)
    assert model.asked == []
    accepting = LmEval(model, include_path=folder, filter="flexible", mismatch="accept")
    assert evaluate(strict, accepting, RULES).items["answer"].sum() == RULES.max_items
    with pytest.raises(InputError, match="filter flexible instead of none in task quiz"):
        evaluate(bank, LmEval(model, include_path=folder), RULES)  # none of them is the calibrated


def test_examples_and_version_are_those_of_the_calibration(simulated, calibrated, quiz, tmp_path):
    _, bank = calibrated
    text = (quiz / "quiz.yaml").read_text()
    (tmp_path / "quiz.yaml").write_text(f"{text}metadata:\n  version: 2.0\n")
    folder = str(tmp_path)
    assert "version" not in bank.items  # lm-eval's "Yaml" is none
    for column, value, words in (
        ("num_fewshot", 2, "num_fewshot 0 instead of 2"),
        ("version", "x", "version 2 instead of x"),
    ):
        items = bank.items.assign(**{column: value})
        other = irtcat.ItemBank(bank.model, bank.item_ids, items=items)
        model = simulated(0.0, "sim/x")
        with pytest.raises(InputError, match=f"{words} in task quiz"):
            evaluate(other, LmEval(model, include_path=folder), RULES)
    model = simulated(0.0, "sim/x")
    with pytest.raises(InputError, match="num_fewshot 3 instead of 0 in task quiz"):
        evaluate(bank, LmEval(model, include_path=folder, options={"num_fewshot": 3}), RULES)
    assert model.asked == []


@pytest.mark.slow  # the same
def test_an_unknown_task_is_told(simulated, calibrated):
    with pytest.raises(InputError, match="quiz_that_is_not_there"):
        evaluate(calibrated[1], LmEval(simulated(0.0, "x")), RULES, task="quiz_that_is_not_there")


def test_what_cannot_be_run_is_told(simulated, calibrated, quiz):
    _, bank = calibrated
    model = simulated(0.0, "sim/x")
    for harness, must in (
        (
            LmEval(model, include_path=str(quiz), metric="acc", mismatch="accept"),
            "one of exact_match",
        ),
        (LmEval("no-such-kind", include_path=str(quiz)), "cannot create the model no-such-kind"),
    ):
        with pytest.raises(InputError, match=must):
            evaluate(bank, harness, RULES)
    with pytest.raises(InputError, match="the task of every item"):
        evaluate(irtcat.ItemBank.from_parameters(b=[0.0]), LmEval(model), Config(max_items=1))
    with pytest.raises(InputError, match="a folder of task files"):
        evaluate(bank, LmEval(model, include_path="nowhere"), RULES)
    with pytest.raises(InputError, match="limit"):
        LmEval(model, options={"limit": 3})

"""irtcat export and irtcat evaluate."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import irtcat
from irtcat.cli._app import app
from irtcat.harness import EXPORTS, HARNESSES
from irtcat.harness import extras as extra

runner = CliRunner()


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def run_ok(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


@pytest.fixture
def files(bank, old_models):
    bank.save("bank.npz")
    old_models.save("old.npz")
    pd.DataFrame({"item": ["quiz/7", "quiz/3"], "weight": 0.5}).to_csv("items.csv", index=False)


def test_export(files):
    text = run_ok(
        "export",
        "items.csv",
        "--to",
        "lm-eval",
        "--responses",
        "old.npz",
        "--out",
        "few.json",
        "--model",
        "hf",
    )
    assert json.loads(Path("few.json").read_text()) == {"quiz": [3, 7]}
    assert "lm_eval --model hf --tasks quiz --samples few.json --log_samples" in text
    assert run_ok("export", "items.csv") == "quiz/7\nquiz/3\n"
    by_bank = run_ok("export", "items.csv", "--to", "inspect", "--bank", "bank.npz")
    assert by_bank.splitlines()[0] == "3,7"
    assert "Inspect may warn" not in by_bank
    pd.DataFrame({"item": ["quiz/7", "quiz/3"], "sample": ["q:7", "q:3"]}).to_csv(
        "places.csv", index=False
    )
    patterns = run_ok(
        "export", "items.csv", "--to", "inspect", "--items", "places.csv", "--task", "quiz.py"
    )
    assert patterns.startswith("q[:]3,q[:]7\n")
    assert "Inspect may warn that ids with brackets" in patterns
    document = json.loads(
        run_ok("export", "items.csv", "--to", "lm-eval", "--bank", "bank.npz", "--json")
    )
    assert document["tasks"] == ["quiz"]
    assert len(document["commands"]) == 1


@pytest.mark.slow
def test_export_in_a_process_of_its_own(files):
    """What irtcat select wrote, where no other command has imported anything before."""
    run_ok("select", "-k", 3, "--responses", "old.npz", "--strategy", "random", "--out", "few.csv")
    command = [sys.executable, "-m", "irtcat", "export", "few.csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.split() == pd.read_csv("few.csv")["item"].tolist()


def test_export_from_a_table(files):
    pd.DataFrame({"id": ["quiz/3", "quiz/7"], "task": "t", "doc_id": [1, 0]}).to_csv(
        "places.csv", index=False
    )
    text = run_ok("export", "items.csv", "--to", "lm-eval", "--items", "places.csv")
    assert json.loads(text.splitlines()[0]) == {"t": [0, 1]}


@pytest.mark.slow
def test_export_names_what_is_wrong(files):
    result = run("export", "items.csv", "--to", "lm-eval")
    assert result.exit_code == 1
    assert "known task" in result.stderr
    assert run("export", "items.csv", "--to", "helm").exit_code == 2
    assert all(name in run_ok("export", "--help") for name in EXPORTS)
    Path("none.csv").write_text("item\n")
    assert "Got a header without rows" in run("export", "none.csv").stderr


def test_evaluate_by_a_command(files):
    command = "sed 's/}$/, \"answer\": 1}/'"
    arguments = (
        "evaluate",
        "bank.npz",
        "--command",
        command,
        "--max-items",
        12,
        "--batch",
        4,
        "--responses",
        "old.npz",
        "--costs",
        "cost",
        "--out",
        "run",
        "--name",
        "yes",
    )
    text = run_ok(*arguments)
    assert "yes: ability" in text
    assert text.endswith("\nNext: irtcat report bank.npz run\n")
    assert "of 41" in text
    assert "Cost" in text
    document = json.loads(run_ok(*arguments, "--json"))
    assert document == {**json.loads(Path("run/result.json").read_text()), "out": "run"}
    assert document["n_items"] == 12
    assert np.isfinite(document["theta"])
    why = pd.read_csv("run/items.csv")["why"]
    assert why.str.contains("fixed subset").all()  # 40 calibrated models are few
    result = run(*arguments, "--seed", 3)
    assert result.exit_code == 1
    assert "holds another run" in result.stderr


@pytest.mark.slow
def test_evaluate_against_an_old_model(files, old_models):
    old_models.subset(subjects=["old/39"]).save("best.npz")
    wrong = (
        "evaluate",
        "--against",
        "best.npz",
        "--out",
        "run",
        "--command",
        "sed 's/}$/, \"answer\": 0}/'",
        "--batch",
        5,
    )
    result = run(*wrong)
    assert result.exit_code == 3, result.output
    assert "new against old/39: -" in result.stdout
    assert "worse" in result.stdout
    document = json.loads(run(*wrong, "--json").stdout)
    assert (document["verdict"], document["outcome"]) == ("worse", "settled")
    assert document["n_items"] < 40
    assert len(pd.read_csv("run/items.csv")) < 40
    right = [*wrong[:4], "other", "--command", "sed 's/}$/, \"answer\": 1}/'"]
    assert "Stopped: a model that is 50 points worse" in run_ok(*right, "--detect", 50)
    for words in (("bank.npz",), ("--max-items", 5), ("--costs", "cost")):
        assert run(*right, *words).exit_code == 2
    refused = run("evaluate", "bank.npz", "--out", "x", "--command", "cat", "--margin", 1)
    assert "needs --against" in refused.stderr


@pytest.mark.slow
def test_evaluate_within_a_budget(files, bank):
    """The costs come from --items; the items asked cost at most the budget."""
    prices = pd.Series(np.linspace(0.5, 4, bank.n_items), bank.item_ids, name="dollars")
    prices.rename_axis("item").to_csv("prices.csv")
    arguments = ("evaluate", "bank.npz", "--command", "sed 's/}$/, \"answer\": 1}/'")
    arguments += ("--responses", "old.npz", "--items", "prices.csv", "--out", "run")
    run_ok(*arguments, "--costs", "dollars", "--budget", 9)
    asked = pd.read_csv("run/items.csv")["item"]
    assert 0 < prices[asked].sum() <= 9
    refused = run(*arguments, "--costs", "euros", "--budget", 9)
    assert "'euros' is no column of --items" in refused.stderr
    assert "needs --costs" in run(*arguments, "--budget", 9).stderr


@pytest.mark.slow
def test_evaluate_to_a_width_of_the_printed_interval(files, bank):
    arguments = (
        "evaluate",
        "bank.npz",
        "--command",
        "sed 's/}$/, \"answer\": 1}/'",
        "--out",
        "run",
    )
    rule = ("--stop", "predicted-width<0.5 or n>=20")
    refused = run(*arguments, *rule)
    assert "one of irtcat.cat.plan_evaluation for the stopping rule" in refused.stderr
    text = run_ok(*arguments, *rule, "--responses", "old.npz", "--expect", "similar")
    assert "ended by: predicted-width" in text
    document = json.loads(Path("run/result.json").read_text())
    assert document["n_items"] < 20
    assert 0.1 < document["upper"] - document["lower"] < 0.55


@pytest.mark.slow
def test_evaluate_with_a_guaranteed_interval(files):
    command = "sed 's/}$/, \"answer\": 1}/'"
    arguments = (
        "evaluate",
        "bank.npz",
        "--command",
        command,
        "--half-width",
        0.25,
        "--batch",
        4,
        "--level",
        0.9,
        "--out",
        "run",
    )
    text = run_ok(*arguments, "--responses", "old.npz")
    assert "ended by: guaranteed" in text
    assert "by guaranteed: finite-sample" in text
    document = json.loads(Path("run/result.json").read_text())
    assert document["estimator"] == "guaranteed: finite-sample"
    assert document["upper"] - document["lower"] <= 0.5
    items = pd.read_csv("run/items.csv")
    assert items["chance"].between(0, 1, inclusive="right").all()
    assert len(items) < document["n_bank"]
    for more in (("--stop", "n>=3"), ("--criterion", "mfi"), ("--half-width", 0.7)):
        result = run(*arguments, *more, "--out", "other")
        assert result.exit_code in (1, 2)
        assert "half-width" in result.stderr.replace("half_width", "half-width")
        assert not Path("other").exists()


@pytest.mark.slow
def test_evaluate_with_lm_evals_own_program(files, quiz):
    pytest.importorskip("lm_eval", reason="needs the extra: pip install irtcat[harness]")
    result = run(
        "evaluate",
        "bank.npz",
        "--harness",
        "lm-eval",
        "--model",
        "dummy",
        "--max-items",
        12,
        "--batch",
        4,
        "--include-path",
        quiz,
        "--offline",
        "--out",
        "run",
        "--json",
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["n_items"] == 12
    assert document["model"] == "dummy"
    assert (pd.read_csv("run/items.csv")["answer"] == 0).all()


def test_wrong_usage(files):
    for more in (
        (),
        ("--harness", "helm"),
        ("--harness", "lm-eval"),
        ("--harness", "inspect"),
        ("--harness", "inspect", "--command", "cat"),
        ("--command", "cat", "--on-error", "cry"),
    ):
        assert run("evaluate", "bank.npz", "--out", "run", *more).exit_code == 2, more
    assert sorted(HARNESSES) == ["command", "inspect", "lm-eval"]


def test_a_missing_harness_is_one_sentence(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    for more in (("lm-eval", "--model", "hf"), ("inspect", "--model", "m", "--task", "t.py")):
        result = run("evaluate", "bank.npz", "--out", "run", "--max-items", 4, "--harness", *more)
        assert result.exit_code == 1
        assert "irtcat[harness]" in result.stderr
        assert result.stderr.count("\n") == 1
        assert not Path("run").exists()
    monkeypatch.syspath_prepend(".")
    Path("outer_module.py").write_text("import no_such_inner\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_inner"):
        extra.imported("outer_module", "Outer")


def test_the_help_says_the_command_as_it_runs():
    text = run_ok("evaluate", "--help").split("Example:")[1].split("\n", 1)[1].strip().splitlines()
    assert shlex.split(text[1].rstrip(" \\"))[:2] == ["irtcat", "evaluate"]
    assert irtcat.__version__


def manifest(folder):
    """The settings of a run."""
    return json.loads((Path(folder) / "manifest.json").read_text())["about"]


def test_options_of_lm_eval_reach_it(files, quiz):
    """Few-shot examples, system prompt, chat template, generation and model arguments."""
    pytest.importorskip("lm_eval", reason="needs the extra: pip install irtcat[harness]")
    Path("mine.py").write_text(LM_FILE)
    arguments = (
        "evaluate",
        "bank.npz",
        "--harness",
        "lm-eval",
        "--model",
        "mine.py@Mine",
        "--model-args",
        "answer=yes",
        "--max-items",
        2,
        "--include-path",
        quiz,
        "--offline",
    )
    more = (
        "--num-fewshot",
        2,
        "--gen-kwargs",
        "temperature=0.5,max_gen_toks=7",
        "--batch-size",
        "auto:4",
        "--device",
        "cpu",
        "--system-instruction",
        "Be brief.",
        "--apply-chat-template",
        "--no-fewshot-as-multiturn",
        "--set",
        "fewshot_random_seed=5",
    )
    result = run(*arguments, *more, "--out", "run")
    assert result.exit_code == 0, result.output
    calls = [json.loads(line) for line in Path("calls.jsonl").read_text().splitlines()]
    assert calls[0] == {"answer": "yes", "batch_size": "auto:4", "device": "cpu"}
    prompt, generation = calls[1]["prompt"], calls[1]["generation"]
    assert prompt.startswith("<system>Be brief.")
    assert prompt.count("What is") == 3  # two examples, and the question
    assert (generation["temperature"], generation["max_gen_toks"]) == (0.5, 7)
    options = manifest("run")["options"]
    assert (options["num_fewshot"], options["fewshot_random_seed"]) == ("2", "5")
    assert "Saved 38 of 40 answers (95.0%)." in result.stdout

    Path("calls.jsonl").unlink()
    result = run(*arguments, "--out", "plain", "--model-args", '{"answer": "a,b"}')
    assert result.exit_code == 0, result.output
    calls = [json.loads(line) for line in Path("calls.jsonl").read_text().splitlines()]
    assert calls[0] == {"answer": "a,b", "batch_size": None, "device": None}
    assert calls[1]["prompt"].count("What is") == 1


LM_FILE = """
import json
from lm_eval.api.model import LM

def note(**about):
    with open("calls.jsonl", "a") as file:
        file.write(json.dumps(about) + "\\n")

class Mine(LM):
    tokenizer_name = "mine"

    def __init__(self, answer, batch_size=None, device=None):
        super().__init__()
        self.answer = answer
        note(answer=answer, batch_size=batch_size, device=device)

    def generate_until(self, requests, disable_tqdm=False):
        for request in requests:
            note(prompt=request.args[0], generation=request.args[1])
        return [self.answer] * len(requests)

    def loglikelihood(self, requests, disable_tqdm=False):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood

    def chat_template(self, chat_template=False):
        return "template"

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return "".join(f"<{turn['role']}>{turn['content']}" for turn in chat_history)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of Inspect
def test_options_of_inspect_reach_it(files, quiz):
    """A model of the user's, its arguments, those of task and generation, and a solver."""
    pytest.importorskip("inspect_ai", reason="needs the extra: pip install irtcat[harness]")
    Path("task.py").write_text(INSPECT_FILE.format(file=str(quiz / "quiz.jsonl")))
    arguments = (
        "evaluate",
        "bank.npz",
        "--harness",
        "inspect",
        "--model",
        "task.py@mine",
        "--model-args",
        "answer=yes",
        "--task",
        "task.py@asked",
        "--max-items",
        2,
        "--offline",
        "--set",
        "score_display=false",
        "--set",
        "log_realtime=false",
        "--out",
        "run",
    )
    result = run(
        *arguments,
        "--task-args",
        "prefix=Q",
        "--gen-kwargs",
        "temperature=0.5",
        "--solver",
        "task.py@twice",
        "--max-connections",
        3,
    )
    assert result.exit_code == 0, result.output
    calls = [json.loads(line) for line in Path("calls.jsonl").read_text().splitlines()]
    assert len(calls) == 4  # the solver asks twice
    assert all(call["text"].startswith("Q: What is") for call in calls)
    assert {(call["answer"], call["temperature"], call["connections"]) for call in calls} == {
        ("yes", 0.5, 3)
    }


INSPECT_FILE = """
import json
from pathlib import Path
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, solver

@task
def asked(prefix):
    rows = [json.loads(line) for line in Path({file!r}).read_text().splitlines()]
    return Task(
        dataset=[
            Sample(id=row["number"], input=prefix + ": " + row["question"], target=row["answer"])
            for row in rows
        ],
        solver=generate(),
        scorer=match(location="exact"),
    )

@solver
def twice():
    async def solve(state, generate):
        await generate(state)
        return await generate(state)
    return solve

def mine(answer):
    def reply(messages, tools, tool_choice, config):
        about = dict(text=messages[0].text, answer=answer, temperature=config.temperature,
                     connections=config.max_connections)
        with open("calls.jsonl", "a") as file:
            file.write(json.dumps(about) + "\\n")
        out = ModelOutput.from_content("mockllm/mine", answer)
        out.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return out
    return get_model("mockllm/mine", custom_outputs=reply, memoize=False)
"""


@pytest.mark.slow
def test_options_of_another_harness_are_usage_errors(files):
    arguments = ("evaluate", "bank.npz", "--out", "run", "--max-items", 2)
    inspect = ("--harness", "inspect", "--model", "m", "--task", "t.py")
    for more in (
        ("--command", "cat", "--num-fewshot", 0),
        ("--command", "cat", "--set", "a=1"),
        ("--command", "cat", "--gen-kwargs", "a=1"),
        (*inspect, "--batch-size", 4),
        (*inspect, "--no-fewshot-as-multiturn"),
        ("--harness", "lm-eval", "--model", "hf", "--solver", "s"),
    ):
        result = run(*arguments, *more)
        assert result.exit_code == 2, more
        option = next(word for word in more[::-1] if str(word).startswith("--"))
        assert option in result.stderr
        assert "not with --harness" in result.stderr
    for more in (
        ("--gen-kwargs", "temperature"),
        ("--gen-kwargs", "{1}"),
        ("--batch-size", "big"),
        ("--model-args", "={}"),
    ):
        assert run(*arguments, "--harness", "lm-eval", "--model", "hf", *more).exit_code == 2
    result = run(*arguments, "--harness", "lm-eval", "--model", "hf", "--set", "limit=3")
    assert result.exit_code == 1
    assert "The --set option" in result.stderr
    result = run(*arguments, "--harness", "lm-eval", "--model", "none.py@x")
    assert result.exit_code == 1
    assert "none.py@x" in result.stderr
    assert run(*arguments, "--harness", "lm-eval", "--model", "hf", "--persistent").exit_code == 2


@pytest.mark.slow
def test_default_length_fits_the_bank(files):
    """29 of 40 items, not all of them."""
    command = "sed 's/}$/, \"answer\": 1}/'"
    text = run_ok("evaluate", "bank.npz", "--command", command, "--batch", 29, "--out", "run")
    assert "after 29 of 40 items" in text
    assert "Saved 11 of 40 answers (27.5%)." in text


@pytest.mark.slow
def test_a_persistent_command_starts_once(files):
    program = Path("program.py")
    program.write_text(SERVER)
    command = f"{shlex.quote(sys.executable)} {program}"
    arguments = (
        "--command",
        command,
        "--persistent",
        "--max-items",
        8,
        "--batch",
        2,
        "--timeout",
        60,
    )
    text = run_ok("evaluate", "bank.npz", *arguments, "--out", "run")
    assert "after 8 of 40 items" in text
    assert Path("starts").read_text() == "started\n"
    assert Path("ended").read_text() == "8"  # its input was closed, and it could finish
    assert manifest("run")["persistent"] is True


SERVER = """
import json, sys
with open("starts", "a") as file:
    file.write("started\\n")
n = 0
for line in sys.stdin:
    n += 1
    print(json.dumps({"item": json.loads(line)["item"], "answer": n % 2}), flush=True)
open("ended", "w").write(str(n))
"""


@pytest.mark.slow_cases("break-.*|print.*|time.*")
@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ("sys.exit(3)", "exited with 3 and said: oh"),
        ("break", "ended without an answer"),
        ("print('no json', flush=True)", "must be a JSON object"),
        ("time.sleep(60)", "took more than 2 seconds"),
    ],
)
def test_failing_persistent_commands_are_named_and_restarted(files, reply, message):
    Path("program.py").write_text(
        "import json, sys, time\nfrom pathlib import Path\n"
        "starts = Path('starts')\n"
        "first = not starts.exists()\n"
        "starts.open('a').write('x')\n"
        "print('oh', file=sys.stderr, flush=True)\n"
        "for n, line in enumerate(sys.stdin):\n"
        "    if n == 1 and (first or Path('always').exists()):\n"
        f"        {reply}\n"
        "        continue\n"
        "    print(json.dumps({'item': json.loads(line)['item'], 'answer': 1}), flush=True)\n"
    )
    command = f"{shlex.quote(sys.executable)} program.py"
    arguments = (
        "evaluate",
        "bank.npz",
        "--command",
        command,
        "--persistent",
        "--max-items",
        4,
        "--batch",
        2,
        "--timeout",
        2,
    )
    text = run_ok(*arguments, "--retries", 1, "--out", "run")
    assert "after 4 of 40 items" in text
    assert Path("starts").read_text() == "xx"
    Path("always").touch()
    result = run(*arguments, "--out", "other")
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.slow
def test_short_forms_on_the_command_line(files):
    """Made, exported, run and predicted from; the commands say the same as the library."""
    run_ok("short-form", "old.npz", "-k", "12", "--name", "quiz", "--out", "form.json")
    form = irtcat.load("form.json")
    text = run_ok("export", "form.json", "--to", "lm-eval", "--out", "few.json")
    numbers = sorted(int(item.split("/")[1]) for item in form.item_ids)
    assert json.loads(Path("few.json").read_text()) == {"quiz": numbers}
    assert "irtcat predict --short-form form.json new" in text
    document = json.loads(run_ok("predict", "--short-form", "form.json", "old.npz", "--json"))
    predicted = form.predict(irtcat.load("old.npz")).score
    assert [row["score"] for row in document["subjects"]] == predicted.tolist()
    command = "sed 's/}$/, \"answer\": 1}/'"
    arguments = ("evaluate", "--short-form", "form.json", "--command", command, "--out", "run")
    result = json.loads(run("evaluate", *arguments[1:], "--json").stdout)
    assert result["score"] == form.predict([[1] * 12]).score[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("predict", "old.npz", "items.csv"), "RESPONSES"),
        (("predict", "--short-form", "form.json"), "give RESPONSES"),
        (("predict", "--short-form", "form.json", "old.npz", "items.csv"), "no other argument"),
        (
            ("predict", "--short-form", "form.json", "old.npz", "--estimator", "mean"),
            "not with --short-form",
        ),
        (("predict", "--short-form", "none.json", "old.npz"), "swebench-verified:60"),
        (("predict", "--short-form", "old.npz", "old.npz"), "old.npz"),
        (("predict", "--short-form", "swebench-verified:50", "old.npz"), "one of 30, 60, 100"),
        (("evaluate", "--out", "run", "--command", "cat"), "a BANK, --short-form or --against"),
        (
            ("evaluate", "bank.npz", "--short-form", "form.json", "--out", "run"),
            "a BANK, --short-form or --against",
        ),
        (
            ("evaluate", "--short-form", "form.json", "--out", "run", "--max-items", "3"),
            "not with --short-form",
        ),
    ],
)
def test_wrong_use_of_short_forms(files, arguments, words):
    irtcat.short_form(irtcat.load("old.npz"), 12).save("form.json")
    result = run(*arguments)
    assert result.exit_code in (1, 2)
    assert words in " ".join(re.sub("[│╭╮╰╯─]", "", result.output).split())

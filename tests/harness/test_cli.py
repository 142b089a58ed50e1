"""irtcat export and irtcat evaluate."""

import json
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
from irtcat.harness import _extra as extra

runner = CliRunner()


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IRTCAT_CACHE", "")


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
    text = run_ok("export", "items.csv", "--to", "lm-eval", "--responses", "old.npz",
                  "--out", "few.json", "--model", "hf")  # fmt: skip
    assert json.loads(Path("few.json").read_text()) == {"quiz": [3, 7]}
    assert "lm_eval --model hf --tasks quiz --samples few.json --log_samples" in text
    assert run_ok("export", "items.csv") == "quiz/7\nquiz/3\n"
    by_bank = run_ok("export", "items.csv", "--to", "inspect", "--bank", "bank.npz")
    assert by_bank.splitlines()[0] == "3,7"
    assert "Inspect may warn" not in by_bank
    pd.DataFrame({"item": ["quiz/7", "quiz/3"], "sample": ["q:7", "q:3"]}).to_csv(
        "places.csv", index=False
    )
    patterns = run_ok("export", "items.csv", "--to", "inspect", "--items", "places.csv",
                      "--task", "quiz.py")  # fmt: skip
    assert patterns.startswith("q[:]3,q[:]7\n")
    assert "Inspect may warn that ids with brackets" in patterns
    document = json.loads(run_ok("export", "items.csv", "--to", "lm-eval", "--bank", "bank.npz",
                                 "--json"))  # fmt: skip
    assert document["tasks"] == ["quiz"]
    assert len(document["commands"]) == 1


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
    arguments = ("evaluate", "bank.npz", "--command", command, "--max-items", 12, "--batch", 4,
                 "--responses", "old.npz", "--costs", "cost", "--out", "run", "--name",
                 "yes")  # fmt: skip
    text = run_ok(*arguments)
    assert "yes: ability" in text
    assert "of 41" in text
    assert "Cost" in text
    document = json.loads(run_ok(*arguments, "--json"))
    assert document == {**json.loads(Path("run/result.json").read_text()), "out": "run"}
    assert document["n_items"] == 12
    assert np.isfinite(document["theta"])
    why = pd.read_csv("run/items.csv")["why"]
    assert why.str.contains("score-optimal").all()
    result = run(*arguments, "--seed", 3)
    assert result.exit_code == 1
    assert "holds another run" in result.stderr


def test_evaluate_with_lm_evals_own_program(files, quiz):
    pytest.importorskip("lm_eval", reason="needs the extra: pip install irtcat[harness]")
    result = run("evaluate", "bank.npz", "--harness", "lm-eval", "--model", "dummy", "--max-items",
                 12, "--batch", 4, "--include-path", quiz, "--offline", "--out", "run",
                 "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["n_items"] == 12
    assert document["model"] == "dummy"
    assert (pd.read_csv("run/items.csv")["answer"] == 0).all()


def test_wrong_usage(files):
    for more in ((), ("--harness", "helm"), ("--harness", "lm-eval"), ("--harness", "inspect"),
                 ("--harness", "inspect", "--command", "cat"),
                 ("--command", "cat", "--on-error", "cry")):  # fmt: skip
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

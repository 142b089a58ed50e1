"""From logs to a report: each command ends with the next one; files are named and protected."""

import json
import os
import re
import shlex
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import irtcat
import irtcat.harness
from irtcat.cli._app import app

LSAT7 = "dataset:lsat7"
LOGS = Path(__file__).parents[1] / "io" / "logs.tar.xz"


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def run_ok(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def next_command(text):
    """The words of the command that the last line names."""
    *_, blank, last = text.splitlines()
    assert blank == ""
    assert last.startswith("Next: irtcat ")
    return shlex.split(last)[2:]


@pytest.mark.slow
def test_five_commands_lead_from_logs_to_a_report():
    with tarfile.open(LOGS) as archive:
        members = [name for name in archive.getnames() if name.startswith("lm_eval")]
        archive.extractall(".", members=map(archive.getmember, members), filter="data")
    told = run_ok("import", "lm_eval")
    assert re.search(r"^simorg/sim-5\t70.8 %\t120$", told, re.M)
    assert told.index("simorg/sim-5") < told.index("simorg/sim-0")
    assert next_command(told) == ["fit", "responses.npz"]
    told = run_ok(*next_command(told))
    assert "converged" in told
    assert "Prior: slope" in told  # of few calibrators
    after = ["select", "bank.npz", "-k", "60", "--responses", "responses.npz"]
    assert next_command(told) == after
    told = run_ok(*next_command(told))
    assert "60 of 120 items by balanced, the hardest first" in told
    assert re.search(r"^80-100 %\t19\t\d+$", told, re.M)
    after = ["predict", "responses.npz", "items.csv", "NEW"]
    assert next_command(told) == after
    told = run_ok(*after[:-1], "responses.npz")
    assert "Best is simorg/sim-5" in told
    assert re.search(r"^simorg/sim-5\t1\t\d+\.\d %", told, re.M)
    assert next_command(told) == ["report", "bank.npz", "predictions.csv"]
    told = run_ok(*next_command(told))
    assert "open it in a browser" in told
    made = {"responses.npz", "bank.npz", "items.csv", "predictions.csv", "report.html"}
    assert {path for path in os.listdir() if path != "lm_eval"} == made


@pytest.mark.slow
def test_the_next_command_has_the_names_and_options_given():
    rows = ["who,what,right", *(f"m{i},q{j},{(i + j) % 3 % 2}" for i in range(9) for j in range(6))]
    Path("long file.csv").write_text("\n".join(rows))
    columns = ["--format", "long", "--subject", "who", "--item", "what", "--response", "right"]
    told = run_ok("fit", "long file.csv", *columns, "-o", "mine.npz")
    after = ["select", "mine.npz", "-k", "3", "--responses", "long file.csv", *columns]
    assert next_command(told) == after
    told = run_ok(*after, "-o", "few.csv")
    assert next_command(told) == ["predict", "long file.csv", "few.csv", "NEW", *columns]


@pytest.mark.slow
def test_facets_of_a_long_table_have_severities():
    rng = np.random.default_rng(0)
    rows = [
        (f"s{subject:03}", f"0{item}", judge, int(theta + off + rng.logistic() > 0))
        for subject, theta in enumerate(rng.normal(size=150))
        for item in range(5)
        for judge, off in (("strict", -0.8), ("mild", 0.8))
    ]
    table = pd.DataFrame(rows, columns=["subject", "item", "judge", "response"])
    table.to_csv("judged.csv", index=False)
    words = ("fit", "judged.csv", "--model", "rasch", "--facets", "judge", "--force")
    document = json.loads(run_ok(*words, "--json"))
    severity = {row["level"]: row["severity"] for row in document["severities"]}
    assert severity["strict"] == pytest.approx(0.8, abs=0.15)
    assert "00 / mild" in {row["item"] for row in document["items"]}
    text = run_ok(*words)
    assert "Severities" in text
    assert next_command(text)[:2] == ["select", "bank.npz"]
    assert next_command(text)[-4:] == ["--responses", "judged.csv", "--facets", "judge"]
    assert run_ok("score", "bank.npz", "judged.csv", "--facets", "judge")  # the file can be read
    told = run_ok("describe", "judged.csv", "--facets", "judge")
    assert next_command(told) == ["fit", "judged.csv", "--facets", "judge", "--model", "rasch"]
    assert "name it with --facets" in run("describe", "judged.csv").output
    assert "no facet judge" in run("describe", LSAT7, "--facets", "judge").output
    assert "besides subject, item" in run(*words[:-3], "--facets", "item", "--force").output


@pytest.mark.slow
def test_without_responses_the_strategy_is_explained():
    run_ok("fit", LSAT7)
    told = run_ok("select", "bank.npz", "-k", 2)
    assert "Chosen by the bank alone (fisher)" in told
    assert next_command(told) == ["predict", "RESPONSES", "items.csv", "NEW"]


@pytest.mark.slow
def test_rankings_are_sorted_and_files_are_not():
    run_ok("fit", LSAT7)
    told = run_ok("score", "bank.npz", LSAT7)
    assert "... and 990 more rows" in told
    assert pd.read_csv("scores.csv")["subject"].iloc[0] == "s1"
    printed = [float(x) for x in re.findall(r"^s\d+\t(\S+)", told, re.M)]
    assert len(printed) == 10
    assert printed == sorted(printed, reverse=True)
    assert next_command(told) == ["report", "bank.npz", "scores.csv"]


# --- existing files --------------------------------------------------------------------------


@pytest.mark.slow_cases("(?!no$).*")
@pytest.mark.parametrize(
    ("answer", "code"),
    [("y\n", 0), ("n\n", 1), ("", 130), (None, 1)],
    ids=["yes", "no", "end", "no terminal"],
)
def test_an_existing_file_is_replaced_after_a_question(answer, code, monkeypatch):
    Path("scores.csv").write_text("mine")
    run_ok("fit", LSAT7)
    if answer is not None:
        monkeypatch.setattr("irtcat.cli._command.is_interactive", lambda: True)
    result = run("score", "bank.npz", LSAT7, input=answer or "")
    assert result.exit_code == code
    assert (Path("scores.csv").read_text() == "mine") == (code != 0)
    assert ("scores.csv exists already. Overwrite it?" in result.stderr) == (answer is not None)
    if answer is None:
        assert result.stderr == (
            "Error: scores.csv: this file exists already. Give --force to overwrite it, or another "
            "name with --out.\n"
        )
    assert run("score", "bank.npz", LSAT7, "--force").exit_code == 0
    assert Path("scores.csv").read_text() != "mine"


def test_every_file_that_is_written_is_protected():
    Path("table.csv").write_text("mine")
    result = run("fit", LSAT7, "--table", "table.csv")
    assert result.exit_code == 1
    assert "another name with --table" in result.stderr
    assert os.listdir() == ["table.csv"]


def test_a_default_that_is_also_read_is_refused():
    irtcat.datasets.load("lsat7").save("bank.npz")
    before = Path("bank.npz").read_bytes()
    for more in ([], ["--force"]):
        result = run("fit", "bank.npz", *more)
        assert result.exit_code == 2
        assert "--out: bank.npz is given as RESPONSES and would be replaced." in result.stderr
    assert Path("bank.npz").read_bytes() == before


# --- for programs ----------------------------------------------------------------------------


SCORES = "model,maths,code\ns,20,30\nm,40,\nl,60,70\n"
RUNS = "model,item,trial,score\n" + "".join(
    f"m{m},i{i},{t},{(3 * m + 5 * i + t * (i % 2)) % 7 % 2}\n"
    for m in range(3)
    for i in range(6)
    for t in range(3)
)

TABLES = {
    "complete scores.csv": "observed",
    "probe scores.csv -k 1": "expected_error",
    "import lm_eval": "metric",
    f"fit {LSAT7}": "se_a",
    f"score bank.npz {LSAT7}": "theta",
    f"select -k 3 --responses {LSAT7}": "weight",
    f"predict {LSAT7} few.csv {LSAT7}": "rank_lower",
    f"leaderboard {LSAT7} --strategies random --estimators mean -k 2 --seeds 1": "kendall",
    "headroom bank.npz --theta 1": "headroom",
    f"audit {LSAT7}": "suspicion",
    "filter bank.npz --rule avi --tau 2": "value",
    "link bank.npz bank.npz": "robust_z",
    "simulate bank.npz --n 20 --stop n>=2": "theta",
    f"describe {LSAT7}": "quantity",
    "describe bank.npz": "se_a",
    "diagnose reruns runs.csv": "noise",
    "export few.csv": "item",
    "session list --store tests.db": "answers",
    "session next --store tests.db --id anna": "item",
    "session next --store tests.db --id anna --why": "value",
    "session status --store tests.db --id anna": "answer",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", TABLES)
def test_csv_is_a_table_and_nothing_else(line):
    with tarfile.open(LOGS) as archive:
        members = [name for name in archive.getnames() if name.startswith("lm_eval")]
        archive.extractall(".", members=map(archive.getmember, members), filter="data")
    irtcat.fit(irtcat.datasets.load("lsat7")).bank.save("bank.npz")
    Path("few.csv").write_text("item\nitem1\nitem3\n")
    Path("scores.csv").write_text(SCORES)
    Path("runs.csv").write_text(RUNS)
    run_ok("session", "start", "bank.npz", "--store", "tests.db", "--id", "anna", "--stop", "n>=2")
    before = sorted(os.listdir())
    result = run(*shlex.split(line), "--csv")
    assert result.exit_code == 0, result.output
    Path("printed.csv").write_text(result.stdout)
    table = pd.read_csv("printed.csv")
    assert TABLES[line] in table
    document = run(*shlex.split(line), "--json").stdout
    assert json.loads(document)
    assert sorted(set(os.listdir()) - {"printed.csv"}) == before  # files only where they are named


@pytest.mark.slow
def test_csv_and_json_write_the_file_that_is_named():
    told = run_ok("fit", LSAT7, "--csv", "--out", "bank.npz")
    frame = irtcat.ItemBank.load("bank.npz").to_frame()
    Path("printed.csv").write_text(told)
    np.testing.assert_array_equal(pd.read_csv("printed.csv")["a"], frame["a"])


# --- Ctrl-C ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_interrupted_evaluation_says_how_to_go_on(monkeypatch):
    run_ok("fit", LSAT7)

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(irtcat.harness, "evaluate", interrupted)
    line = ("evaluate", "bank.npz", "--command", "cat", "--max-items", 3, "--out", "run")
    result = run(*line)
    assert result.exit_code == 130
    kept = "The answers so far are kept in run: repeat the same command to continue."
    assert result.stderr == f"Interrupted. {kept}\n"


@pytest.mark.slow
def test_an_interruption_between_two_files_names_the_first(monkeypatch):
    written = []

    def interrupted(frame, path):
        written.append(path)
        raise KeyboardInterrupt

    monkeypatch.setattr("irtcat.cli._command.write_csv", interrupted)
    result = run("fit", LSAT7, "--table", "items.csv")
    assert result.exit_code == 130
    assert [str(path) for path in written] == ["items.csv"]
    kept = "Wrote the bank to bank.npz; repeat the command with --force for the rest."
    assert result.stderr == f"Interrupted. {kept}\n"


# --- the next command ------------------------------------------------------------------------

LEADERBOARD = f"leaderboard {LSAT7} --strategies {{}} --estimators mean -k 2 --seeds 1"
NEXT = {
    "complete scores.csv --units code=percent": "probe scores.csv -k 1 --units code=percent",
    "probe scores.csv -k 1": "complete scores.csv",
    f"audit {LSAT7}": "report suspects.csv",
    f"audit {LSAT7} --bank bank.npz": "report bank.npz suspects.csv",
    f"compare {LSAT7} few.csv {LSAT7} --old s1 --new s900": "report comparison.csv",
    f"plan {LSAT7} --gap 20": f"select -k 4 --responses {LSAT7}",
    "headroom bank.npz --theta 1": "report bank.npz headroom.csv",
    "simulate bank.npz --n 20 --stop n>=2": "report bank.npz simulated",
    "filter bank.npz --rule avi --tau 2": "report kept.csv",
    "filter bank.npz --rule avi --tau 2 -o kept.txt": "describe bank.npz",
    "plot bank.npz": "report bank.npz",
    "report bank.npz": "plot bank.npz",
    LEADERBOARD.format("random"): f"select -k 2 --strategy random --responses {LSAT7}",
    LEADERBOARD.format("fisher"): f"select BANK -k 2 --strategy fisher --responses {LSAT7}",
    "diagnose reruns runs.csv": "plan runs.csv --reruns runs.csv",
    "session list --store tests.db": "session status --store tests.db --id anna",
    "export few.csv --out ids.txt": "predict RESPONSES few.csv NEW",
}


@pytest.fixture
def _files():
    irtcat.fit(irtcat.datasets.load("lsat7")).bank.save("bank.npz")
    Path("few.csv").write_text("item\nitem1\nitem3\n")
    Path("scores.csv").write_text(SCORES)
    Path("runs.csv").write_text(RUNS)
    run_ok("session", "start", "bank.npz", "--store", "tests.db", "--id", "anna", "--stop", "n>=2")


@pytest.mark.slow
@pytest.mark.parametrize("line", NEXT)
@pytest.mark.usefixtures("_files")
def test_every_command_names_the_next_one(line):
    before = set(os.listdir())
    after = next_command(run_ok(*shlex.split(line)))
    assert shlex.join(after) == NEXT[line]
    for word in after:
        if word.endswith((".csv", ".npz")) or word == "simulated":
            assert Path(word).exists()
    if after[0] in ("report", "plot", "session"):
        run_ok(*after)
    else:
        assert after[0] in ("select", "describe", "predict", "probe", "complete", "plan")
    assert set(os.listdir()) > before or "session" in line


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plan.csv", "comparison.csv", "headroom.csv"])
@pytest.mark.usefixtures("_files")
def test_default_files_are_protected(name):
    line = next(line for line in NEXT if line.startswith(name.removesuffix(".csv")[:5]))
    Path(name).write_text("mine")
    result = run(*shlex.split(line))
    assert result.exit_code == 1
    assert f"{name}: this file exists already. Give --force" in result.stderr
    run_ok(*shlex.split(line), "--force")
    assert len(pd.read_csv(name))


EXPORTED = {
    "ids": "ids.txt",
    "lm-eval": "samples.json",
    "inspect": "sample_ids.txt",
    "every-eval-ever": "samples.jsonl",
}


@pytest.mark.slow
@pytest.mark.parametrize("to", EXPORTED)
@pytest.mark.usefixtures("_files")
def test_export_writes_a_file_from_a_terminal(to, monkeypatch):
    table = pd.DataFrame({"item": ["item1", "item3"], "task": "quiz", "doc_id": [0, 2]})
    table.to_csv("sources.csv", index=False)
    line = ("export", "few.csv", "--to", to, "--items", "sources.csv")
    printed = run_ok(*line)
    assert not Path(EXPORTED[to]).exists()  # into a pipe
    monkeypatch.setattr("irtcat.cli.export.to_terminal", lambda: True)
    told = run_ok(*line)
    text = Path(EXPORTED[to]).read_text()
    assert text.rstrip("\n") in printed
    assert told.startswith("Export(2 items")
    assert f"wrote them to {EXPORTED[to]}" in told
    new = "new" if to in ("lm-eval", "inspect") else "NEW"  # the folder of the printed command
    assert next_command(told) == ["predict", "RESPONSES", "few.csv", new]
    result = run(*line)
    assert result.exit_code == 1
    assert f"{EXPORTED[to]}: this file exists already" in result.stderr
    run_ok(*line, "--force")


@pytest.mark.usefixtures("_files")
def test_export_does_not_replace_its_input(monkeypatch):
    monkeypatch.setattr("irtcat.cli.export.to_terminal", lambda: True)
    Path("few.csv").rename("ids.txt")
    result = run("export", "ids.txt", "--force")
    assert result.exit_code == 2
    assert "would be replaced" in result.stderr
    assert Path("ids.txt").read_text().startswith("item\n")

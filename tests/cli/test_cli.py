"""The command line: what it prints, what it writes, and how it ends."""

import functools
import inspect
import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from pkgutil import resolve_name as load
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import irtcat
import irtcat.demo
from irtcat._common import progress as _progress
from irtcat._common.cache import cache_folder
from irtcat.cli import _command, _input, _output
from irtcat.cli import fit as fit_command
from irtcat.cli._app import COMMANDS, STORY, app
from irtcat.cli._options import described, known_names, listed_names, option, own
from irtcat.fitting.em.priors import FAMILIES
from irtcat.prediction import ESTIMATORS
from irtcat.report.reading import read

LSAT7 = "dataset:lsat7"
runner = CliRunner()


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def bank():
    return irtcat.fit(irtcat.datasets.load("lsat7")).bank


@pytest.fixture
def bank_file(bank):
    bank.save("bank.npz")
    return "bank.npz"


def run(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def run_ok(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def run_json(*arguments):
    """The document; a NaN or anything beside it on stdout is an error."""

    def refuse(name):
        raise AssertionError(name)

    return json.loads(run_ok(*arguments, "--json"), parse_constant=refuse)


def in_process(*arguments, **environment):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**inherited, **environment},
        timeout=120,
    )


def small_demo(monkeypatch):
    """The demo on five items and few subsets."""
    small = functools.partial(
        irtcat.demo.run,
        responses=irtcat.datasets.load("lsat7"),
        strategies=("random", "fisher"),
        n_items=(2, 3),
    )
    monkeypatch.setattr(irtcat.demo, "run", small)


# --- help ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_help_lists_the_commands():
    text = run_ok("--help")
    commands = text.split("From logs to a report")[1]
    assert re.findall(r"^│ ([\w-]+)  +\S", commands, re.M) == list(COMMANDS)
    assert "..." not in commands
    assert "--install-completion" in text
    assert examples(text) == [shlex.split(line) for line in STORY]


def test_an_option_is_a_parameter_of_the_function():
    assert option("level").completed("irtcat.score").default == 0.95
    with pytest.raises(TypeError, match="score has no parameter first"):
        option("first").completed("irtcat.score")
    assert own("first").completed("irtcat.score").default is None


def test_options_are_in_groups_with_their_defaults():
    text = run_ok("select", "--help")
    titles = re.findall(r"^╭─ (.+?) ─", text, re.M)
    assert titles == [
        "Arguments",
        "Options",
        "Options of single strategies",
        "Constraints",
        "Output",
        "Reading responses",
    ]
    output = text.split("─ Output ─")[1].split("╰")[0]
    assert "[default: (items.csv)]" in output
    assert all(name in output for name in ("--json", "--csv", "--force"))
    assert "<bool>" not in text


def test_names_are_completed():
    for words, want in (("select --strategy bal", "balanced"), ("select --strat", "--strategy")):
        last = str(len(words.split()))
        shell = {"_IRTCAT_COMPLETE": "complete_bash", "COMP_WORDS": f"irtcat {words}"}
        result = runner.invoke(app, [], env={**shell, "COMP_CWORD": last}, prog_name="irtcat")
        assert want in result.stdout.split()


def test_version():
    assert run_ok("--version") == f"irtcat {irtcat.__version__}\n"


@pytest.mark.parametrize("words", [["--version", "--verbose"], ["--verbose", "--version"]])
def test_a_report_of_a_bug_has_versions_and_no_names(words):
    rows = dict(line.split(maxsplit=1) for line in run_ok(*words).splitlines())
    assert rows["irtcat"] == irtcat.__version__
    assert {"Python", "jax", "jaxlib", "numpy", "pandas", "typer"} <= set(rows)
    assert str(Path.home()) not in str(rows)


def test_verbose_goes_with_the_version():
    result = run("--verbose", "describe", "dataset:lsat7")
    assert result.exit_code == 2
    assert "--verbose: goes with --version only" in result.stderr


def write_logs():
    """A folder of logs: two models of lm-eval, 0.4.3 to 0.4.6 (neither filter nor metrics)."""
    for model in ("a", "b"):
        folder = Path("logs", model)
        folder.mkdir(parents=True)
        lines = [
            {"doc_id": i, "doc": {"q": i}, "acc": float(model == "a" or i > 1)} for i in range(4)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "samples_quiz_2026-11-21T00-00-43.298874.jsonl").write_text(text)


def write_scores():
    """A table of scores of six models on three benchmarks, with one missing."""
    rows = ["s,20,31,55", "m,40,,60", "l,60,71,62", "xl,70,75,65", "a,35,44,58", "b,52,66,"]
    Path("scores.csv").write_text("\n".join(["model,maths,code,chat", *rows, ""]))


def write_votes():
    """Votes of two judges on three subjects."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 3, 400)
    is_right = rng.random(400) < 0.7  # m1 is worse than m2, m2 than m3, m1 than m3
    winner = np.where((first == 2) == is_right, "model_a", "model_b")
    votes = pd.DataFrame(
        {
            "model_a": np.array(["m1", "m2", "m3"])[first],
            "model_b": np.array(["m2", "m3", "m1"])[first],
            "winner": np.where(rng.random(400) < 0.3, "tie (bothbad)", winner),
            "judge": rng.choice(["u", "v"], 400),
        }
    )
    votes.to_csv("votes.csv", index=False)
    return votes


@pytest.mark.slow
def test_votes_writes_what_the_library_gives():
    votes = write_votes()
    text = run_ok("votes", "votes.csv", "--effects", "position", "--judges", "judges.csv")
    assert "JudgedAbilities(3 subjects, 2 judges, 400 votes, 0 grades)" in text
    found = irtcat.leaderboard.judged_abilities(votes, effects=["position"])
    abilities = pd.read_csv("abilities.csv", index_col=0)
    pd.testing.assert_frame_equal(abilities, found.to_frame(), atol=1e-9)
    assert pd.read_csv("judges.csv", index_col=0)["position"].round(6).tolist() == (
        found.judges["position"].round(6).tolist()
    )
    assert "not one of consistency, position" in run("votes", "votes.csv", "--effects", "x").stderr
    assert "irtcat votes votes.csv" in run("describe", "votes.csv").stderr


def write_runs():
    """A table of three models, each run four times on ten items."""
    rng = np.random.default_rng(0)
    rows = [
        (f"m{m}", f"q{i}", t, int(rng.random() < (i + m) / 12))
        for m in range(3)
        for i in range(10)
        for t in range(4)
    ]
    table = pd.DataFrame(rows, columns=["model", "question", "epoch", "correct"])
    table.to_csv("runs.csv", index=False)
    table.rename(columns={"epoch": "judge"}).to_csv("judged.csv", index=False)
    return table


def write_choices():
    """Right and wrong answers to seven items, and the choices with an attention check."""
    bank = irtcat.ItemBank.from_parameters(a=np.full(7, 1.2), b=np.linspace(-1, 1, 7))
    answers = bank.simulate(np.random.default_rng(0).normal(size=400), seed=1).to_frame()
    answers.columns = [f"q{i + 1}" for i in range(7)]
    answers.to_csv("r.csv", index_label="who")
    choices = answers.replace({0: "b", 1: "a"}).assign(
        check=np.where(np.arange(400) < 395, "a", "b")
    )
    choices.to_csv("letters.csv", index_label="who")


def examples(text):
    """The words of the commands at the end of a help text, as they are pasted."""
    pasted = text.split("Example")[1].split("\n", 1)[1]
    assert all(len(line) <= 80 for line in pasted.splitlines())
    lines = "\n".join(line.strip() for line in pasted.splitlines()).replace("\\\n", " ")
    return [shlex.split(line) for line in lines.splitlines() if line]


@pytest.mark.slow_cases("(?!short-form$|complete$|probe$|votes$|export$).*")
@pytest.mark.parametrize("name", COMMANDS)
def test_examples_in_the_help_run_as_pasted(name, monkeypatch):
    if name == "demo":
        small_demo(monkeypatch)
    if name == "import":
        write_logs()
    if name in ("complete", "probe"):
        write_scores()
    if name == "diagnose":
        write_runs()
    if name == "votes":
        write_votes()
    if name == "scale":
        write_choices()
    lines = examples(run_ok(name, "--help"))
    assert any(line[1] == name for line in lines)
    for program, *arguments in lines:
        assert program == "irtcat"
        assert run_ok(*arguments)
        if "--out" in arguments:
            assert os.path.exists(arguments[arguments.index("--out") + 1])


def commands():
    """Every command, with its words on the command line."""
    for name, module in COMMANDS.items():
        if hasattr(module, "COMMANDS"):
            yield from (((name, action), command) for action, command in module.COMMANDS.items())
        else:
            yield (name,), module.command


def letters(text):
    """The letters of a help text, which is broken into lines."""
    return re.sub(r"[\s│─╭╮╰╯]", "", text)


@pytest.mark.slow
def test_help_names_what_there_is():
    """Names, types and defaults of the generated table are those of the objects."""
    n_tables = n_parameters = 0
    for words, command in commands():
        text = letters(run_ok(*words, "--help"))
        for row in command.options.values():
            assert letters(row.help) in text
            for table in filter(None, (row.choices, row.listed, row.names)):
                known = known_names(table)
                assert listed_names(table) == known
                assert all(re.search(rf"\b{name}\b", row.help) for name in known)
                n_tables += 1
            if row.source:
                parameter = inspect.signature(load(row.source)).parameters[row.parameter]
                known = described(row.source, row.parameter)
                if isinstance(parameter.default, (bool, int, float, str, tuple)):
                    assert known.default == parameter.default
                if isinstance(parameter.default, (bool, int, float)):
                    assert row.type is type(parameter.default)
                assert len(known.help) > 9, (words, row)
                n_parameters += 1
    assert n_tables > 20
    assert n_parameters > 100


def test_errors_name_the_option():
    result = run("leaderboard", LSAT7, "--n-items", 30, "--strategies", "random")
    assert "The --n-items option must" in result.stderr


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from irtcat.cli import main\n"
        "sys.argv = ['irtcat', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'jax', 'numpy', 'pandas', 'matplotlib', 'scipy', 'equinox', 'optax'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    result = in_process("-c", code)
    assert result.returncode == 0
    assert result.stderr.strip() == "[]"


# --- results ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_fit_writes_bank_and_items_and_says_where(bank):
    text = run_ok("fit", LSAT7, "--out", "b.npz", "--table", "items.csv")
    assert "Wrote the bank to b.npz" in text
    assert "Wrote the items to items.csv" in text
    assert "converged" in text
    saved = irtcat.ItemBank.load("b.npz")
    pd.testing.assert_frame_equal(saved.to_frame(), bank.to_frame())
    table = pd.read_csv("items.csv", index_col="item")
    np.testing.assert_array_equal(table["a"], bank.to_frame()["a"])
    assert sorted(os.listdir()) == ["b.npz", "items.csv"]


@pytest.mark.slow
def test_fit_prints_the_items_and_writes_the_bank_by_default():
    text = run_ok("fit", LSAT7)
    assert all(f"item{number}" in text for number in range(1, 6))
    assert os.listdir() == ["bank.npz"]


@pytest.mark.slow
def test_fit_json():
    document = run_json("fit", LSAT7, "--out", "b.npz")
    assert document["converged"] is True
    assert document["out"] == "b.npz"
    assert document["log_likelihood"] == pytest.approx(-2658.805, abs=1e-2)
    assert document["items"][0]["item"] == "item1"
    assert document["items"][0]["se_c"] is None


def test_a_setting_of_another_solver_is_refused():
    for words, named in (
        (("--steps", 10), "--steps"),
        (("--solver", "vi", "--nodes", 9), "--nodes"),
    ):
        result = run("fit", LSAT7, *words, "--out", "new.npz")
        assert result.exit_code == 2
        assert f"Invalid value for {named}: not for the solver" in result.stderr
        assert not Path("new.npz").exists()


@pytest.mark.slow
def test_fit_from_several_starts_says_what_they_gave():
    text = run_ok("fit", LSAT7, "--starts", 2, "--seed", 3)
    assert "Note: 2 starts: none was higher than the first by more than 0.1." in text
    assert run("fit", LSAT7, "--starts", 0).exit_code == 2


@pytest.mark.slow
def test_unconverged_fit_warns_and_succeeds():
    result = run("fit", LSAT7, "--max-iterations", 1, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["converged"] is False
    assert result.stderr.startswith("Warning: Not converged")
    assert result.stderr.count("\n") == 1


def test_score_writes_what_the_library_gives(bank, bank_file):
    text = run_ok("score", bank_file, LSAT7, "--level", 0.9, "--out", "scores.csv")
    assert "1000 subjects" in text
    wanted = irtcat.score(bank, irtcat.datasets.load("lsat7"), level=0.9).to_frame()
    table = pd.read_csv("scores.csv", index_col="subject", keep_default_na=False)
    np.testing.assert_array_equal(table["lower"], wanted["lower"])
    assert table.index.tolist() == wanted.index.tolist()


@pytest.mark.slow
def test_score_json_has_null_for_open_ends(bank_file):
    document = run_json("score", bank_file, LSAT7, "--method", "ml")
    assert document["n_subjects"] == len(document["subjects"]) == 1000
    at_bound = [row for row in document["subjects"] if row["flag"] == "at the lower bound"]
    assert at_bound[0]["lower"] is None


def test_select_with_and_without_a_bank(bank, bank_file):
    document = run_json("select", bank_file, "-k", 3, "--responses", LSAT7, "--out", "items.csv")
    wanted = irtcat.select(bank, 3, calibration=irtcat.datasets.load("lsat7"))
    assert document["strategy"] == wanted.strategy == "balanced"
    assert [row["item"] for row in document["items"]] == wanted.item_ids.tolist()
    assert document["items"][0]["probability"] is None
    assert pd.read_csv("items.csv")["item"].tolist() == wanted.item_ids.tolist()
    drawn = run_json("select", "-k", 2, "--strategy", "random", "--responses", LSAT7, "--seed", 3)
    assert len(drawn["items"]) == 2
    assert drawn["seed"] == 3
    line = ("select", bank_file, "-k", 1, "--strategy", "lb", "--tau=-2", "--force")
    assert "item" in run_ok(*line)


def first_column(text, title):
    """The ids of the rows of a printed table, in their order."""
    lines = text.split(title)[1].strip("\n").split("\n")[1:]
    return [line.split()[0] for line in itertools.takewhile(str.strip, lines)]


@pytest.mark.slow
def test_the_hardest_item_has_a_difficulty():
    """Not one that fewer strong than weak subjects solve, nor one beyond all subjects."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=400)[:, None]
    a, b = np.array([1.2, 1.2, -0.8, 1.2, 1.2]), np.array([-1.0, 0.0, 0.8, 1.0, 1.5])
    X = (rng.random((400, 5)) < 1 / (1 + np.exp(-a * (theta - b)))).astype(int)
    flat = np.repeat([1, 0], [30, 370])  # rare, and unrelated to ability
    X = np.column_stack([X, rng.permutation(flat)])
    ids = ["easy", "middle", "reversed", "hard", "hardest", "flat"]
    responses = irtcat.Responses.from_array(X, item_ids=ids)
    responses.save("r.npz")
    bank = irtcat.fit(responses).bank
    table = bank.to_frame()
    assert table.loc["reversed", "a"] < 0
    assert table.loc["flat", "a"] < 0 or not abs(table.loc["flat", "b"]) <= 6
    shown = first_column(run_ok("fit", "r.npz"), "Items, the hardest first")
    assert shown[:4] == ["hardest", "hard", "middle", "easy"]
    assert set(shown[4:6]) == {"reversed", "flat"}
    bare = irtcat.ItemBank(bank.model, bank.item_ids)  # no shares right
    bare.save("bare.npz")
    line = ("select", "bare.npz", "-k", 6, "--strategy", "discrimination")
    assert first_column(run_ok(*line), "the hardest first")[:4] == shown[:4]


def test_select_under_constraints(bank_file):
    items = irtcat.datasets.load("lsat7").item_ids
    table = pd.DataFrame({"item": items, "topic": list("aabbb"), "cost": [3, 1, 1, 1, 1]})
    table.to_csv("items.csv", index=False)
    Path("allowed.txt").write_text("\n".join(items[:4]) + "\n")
    options = ("--items", "items.csv", "--groups", "topic", "--quotas", "a=1,b=1:2")
    options += ("--costs", "cost", "--budget", 3, "--allowed", "allowed.txt")
    for strategy in ("robust", "minimax", "anchor-points"):
        extra = ("--share", 0.5, "--theta-range", -1, 1)
        shared = ("--strategy", strategy, "--responses", LSAT7)
        document = run_json("select", bank_file, "-k", 3, *shared, *options, *extra)
        chosen = [list(items).index(row["item"]) for row in document["items"]]
        assert sum(i < 2 for i in chosen) == 1
        assert 2 <= len(chosen) <= 3
        assert 0 not in chosen
        assert 4 not in chosen


@pytest.mark.slow
def test_leaderboard_writes_table_and_figure():
    line = ("leaderboard", LSAT7, "--strategies", "random,stratified", "--seeds", 2)
    document = run_json(*line, "--n-items", 3, "--estimators", "all", "--out", "t.csv")
    table = pd.read_csv("t.csv")
    n = 2 * len(ESTIMATORS)
    assert len(table) == len(document["rows"]) == n * 2
    assert len(document["summary"]) == n
    few = ("--n-items", "2,3", "--estimators", "mean", "--split", "ability", "--figure", "f.svg")
    text = run_ok(*line, *few)
    assert os.path.getsize("f.svg") > 1000
    assert "kendall" in text
    assert "irt" not in text.partition("Next: ")[0]


@pytest.mark.slow
def test_leaderboard_of_everything_with_gaps_and_bootstrap():
    line = ("leaderboard", LSAT7, "--n-items", 3, "--seeds", 1, "--estimators", "mean")
    line = (*line, "--strategies", "all")
    document = run_json(*line, "--bootstrap", "both", "--metric", "gap", "--figure", "f.svg")
    assert {row["strategy"] for row in document["rows"]} == {
        name for name in irtcat.STRATEGIES if not name.startswith("stratified-")
    }
    assert "kendall_lower" in document["summary"][0]
    assert document["summary"][0]["gap"] > 0
    assert os.path.getsize("f.svg") > 1000


@pytest.mark.slow
def test_leaderboard_runs_three_of_each_and_recommends():
    line = ("leaderboard", LSAT7, "--n-items", "2,4", "--seeds", 2, "--error", 12)
    document = run_json(*line)
    pairs = {(row["strategy"], row["estimator"]) for row in document["rows"]}
    assert {pair[0] for pair in pairs} == {"balanced", "stratified", "random"}
    assert {pair[1] for pair in pairs} == {"auto", "ridge", "mean"}
    advice = document["recommendation"]
    assert (advice["strategy"], advice["estimator"]) in pairs
    assert len(advice["alternatives"]) == 8
    assert advice["error"] == 12
    assert 2 <= advice["n_items"] <= 4
    assert advice["text"][0].startswith(f"Recommended: strategy {advice['strategy']}")
    text = run_ok(*line)
    for sentence in advice["text"]:
        assert sentence in text


def test_leaderboard_reads_dates_of_subjects():
    data = irtcat.datasets.load("lsat7")
    pd.DataFrame({"who": data.subject_ids, "day": range(data.n_subjects)}).to_csv(
        "s.csv", index=False
    )
    line = ("leaderboard", LSAT7, "--n-items", 3, "--seeds", 1, "--strategies", "random")
    line = (*line, "--estimators", "mean", "--split", "before:day", "--subjects", "s.csv")
    document = run_json(*line)
    assert document["rows"][0]["split"] == "before:day"
    assert run("leaderboard", LSAT7, "--n-items", 3, "--split", "before:day").exit_code == 1


def test_plan_writes_what_the_library_gives():
    result = run("plan", LSAT7, "--gap", 10, "--out", "plan.csv")
    assert result.exit_code == 0
    assert "10 points ranked right with chance 0.8" in result.stdout
    assert "hard pairs: items needed for the most difficult tenth of pairs" in result.stdout
    assert "fewer than 10 items, a rough answer" in result.stderr
    wanted = irtcat.leaderboard.plan(irtcat.datasets.load("lsat7"), 0.1)
    assert pd.read_csv("plan.csv")["n_items"].tolist() == wanted.to_frame()["n_items"].tolist()
    document = json.loads(run("plan", LSAT7, "--gap", 10, "--confidence", 0.9, "--json").stdout)
    assert document["designs"][0]["n_items"] >= wanted.to_frame()["n_items"].iloc[0]


def write_two_models():
    """Two models on 60 items, one much worse, and a random half of the items."""
    rng = np.random.default_rng(0)
    bank = irtcat.ItemBank.from_parameters(b=rng.normal(size=60))
    bank.simulate(rng.normal(size=30), seed=1).to_frame().to_csv("known.csv")
    bank.simulate([2.0, -2.0], seed=2).to_frame().set_axis(["old", "new"]).to_csv(
        "two.csv", index_label="subject"
    )
    run_ok("select", "-k", 40, "--strategy", "random", "--responses", "known.csv", "--out", "i.csv")


@pytest.mark.slow
def test_compare_and_its_gate():
    write_two_models()
    line = ("compare", "known.csv", "i.csv", "two.csv")
    assert "new against old: -" in run_ok(*line)
    document = run_json(*line, "--out", "c.csv")
    assert (document["verdict"], document["n_items"]) == ("worse", 40)
    assert pd.read_csv("c.csv")["upper"].iloc[0] == document["upper"]
    assert run(*line, "--gate").exit_code == 1  # comparison.csv exists
    assert run(*line, "--gate", "--force").exit_code == 3
    assert run(*line, "--gate", "--new", "old", "--old", "new", "--force").exit_code == 0
    assert run("compare", "known.csv", "two.csv", "two.csv").exit_code == 1


@pytest.mark.slow
def test_groups_of_a_leaderboard():
    write_two_models()
    found = irtcat.leaderboard.groups(irtcat.as_responses(pd.read_csv("known.csv", index_col=0)))
    document = run_json("groups", "known.csv", "--out", "groups.csv")
    assert document["estimand"] == "model"
    assert [row["letters"] for row in document["models"]] == found.table["letters"].tolist()
    assert pd.read_csv("groups.csv")["rank_upper"].tolist() == found.table["rank_upper"].tolist()
    text = run_ok("groups", "known.csv", "--reruns", "deterministic", "--force")
    assert "expected scores on all 60 items, over reruns" in text
    assert run("groups", "known.csv", "--clusters", "passage", "--force").exit_code == 1


def test_the_best_of_several_models():
    write_two_models()
    found = irtcat.leaderboard.best(irtcat.as_responses(pd.read_csv("known.csv", index_col=0)))
    document = run_json("best", "known.csv", "--out", "best.csv")
    assert (document["estimand"], document["n_models"]) == ("model", found.n_models)
    for name in ("observed", "score", "lower", "upper"):
        assert document[name] == pytest.approx(getattr(found, name))
    assert pd.read_csv("best.csv")["model"].tolist() == [found.name]
    assert "as the best of" in run_ok("best", "known.csv", "--force")
    assert run("best", "known.csv", "--reruns", "deterministic", "--force").exit_code == 1
    assert run("best", "known.csv", "--estimand", "run", "--force").exit_code == 2
    run_ok("groups", "known.csv", "--out", "groups.csv")
    run_ok("report", "best.csv", "groups.csv")
    page = Path("report.html").read_text()
    assert "Best model: best" in page
    assert "that share a letter cannot be distinguished" in page


@pytest.mark.slow
def test_ranks_of_predictions_are_of_the_estimand():
    write_two_models()
    line = ("predict", "known.csv", "i.csv", "two.csv", "--out", "p.csv", "--force")
    default, run_of, certain = (
        run_json(*line, *options)
        for options in ((), ("--estimand", "run"), ("--reruns", "deterministic"))
    )
    assert (default["estimand"], default["ranks_of"]) == ("run", "model")
    assert (run_of["estimand"], run_of["ranks_of"]) == ("run", "run")
    assert default["subjects"][1]["rank_upper"] >= run_of["subjects"][1]["rank_upper"]
    assert default["subjects"][1]["upper"] == run_of["subjects"][1]["upper"]
    ranks = ("rank", "rank_lower", "rank_upper")
    for one, other in zip(certain["subjects"], run_of["subjects"], strict=True):
        assert [one[name] for name in ranks] == [other[name] for name in ranks]


def test_files_hold_the_probability_of_their_intervals():
    """A report takes it from there: with .95 the first of close models looked clearly better."""
    write_two_models()
    run_ok(
        "predict", "known.csv", "i.csv", "two.csv", "--level", "0.5", "--out", "p.csv", "--force"
    )
    assert read("p.csv").level == 0.5


def test_compare_two_files_and_one():
    write_two_models()
    two = pd.read_csv("two.csv", index_col=0)
    two.loc[["old"]].to_csv("old.csv")
    two.loc[["new"]].to_csv("new.csv")
    for line in (("two.csv",), ("old.csv", "new.csv")):
        document = run_json("compare", *line, "--out", "c.csv", "--force")
        assert (document["new"], document["old"], document["n_items"]) == ("new", "old", 60)
        assert (document["estimand"], document["verdict"]) == ("model", "worse")
    text = run_ok("compare", "two.csv", "--force")
    assert "expected scores on all 60 items, over reruns.\nWould a rerun agree?" in text
    assert run("compare", "--force").exit_code == 2
    sure = run_json("compare", "two.csv", "--reruns", "deterministic", "--out", "c.csv", "--force")
    assert sure["se"] == 0
    half = run_json("compare", "two.csv", "--reruns", 0.5, "--out", "c.csv", "--force")
    assert 0 < half["se"] < document["se"]
    again = run_json("compare", "two.csv", "--reruns", "old.csv", "--out", "c.csv", "--force")
    assert again["se"] < document["se"]
    refused = run("compare", "two.csv", "--clusters", "passage", "--force")
    assert "The --clusters option must be a column of the items" in refused.stderr


def test_gate_with_a_margin_writes_reports_for_ci():
    write_two_models()
    files = ("--junit", "j.xml", "--summary", "s.md", "--out", "c.csv", "--force")
    assert run("compare", "two.csv", "--gate", "--margin", 1, *files).exit_code == 3
    suite = ElementTree.parse("j.xml").getroot()
    assert suite.attrib["failures"] == "1"
    assert "new against old: -" in suite.find("testcase/failure").attrib["message"]
    summary = Path("s.md").read_text()
    assert "| Verdict | **worse** |" in summary
    assert "| Margin | 1 points |" in summary
    assert run("compare", "two.csv", "--gate", "--margin", 80, *files).exit_code == 0
    assert ElementTree.parse("j.xml").getroot().attrib["failures"] == "0"
    assert run("compare", "two.csv", "--margin", 100, *files).exit_code == 2


def test_a_sequential_gate_stops_early():
    bank = irtcat.ItemBank.from_parameters(b=np.linspace(-2, 2, 900))
    both = bank.simulate([1.0, -1.0], seed=2).to_frame().set_axis(["old", "new"])
    both.to_csv("two.csv", index_label="subject")
    files = ("--junit", "j.xml", "--summary", "s.md", "--out", "c.csv", "--force")
    line = ("compare", "two.csv", "--sequential", *files)
    assert run(*line, "--gate").exit_code == 3
    assert "of 900 items, worse" in run_ok(*line)
    document = run_json(*line)
    assert (document["verdict"], document["outcome"]) == ("worse", "settled")
    assert document["n_items"] == document["n_answers"] < 300
    assert "| p of no loss, at any time | 0.0" in Path("s.md").read_text()
    assert ElementTree.parse("j.xml").getroot().attrib["failures"] == "1"
    swapped = run_json(*line, "--gate", "--new", "old", "--old", "new", "--detect", 5)
    assert (swapped["outcome"], swapped["detect"]) == ("futile", 0.05)
    assert run_json(*line, "--new", "old", "--old", "new", "--seed", 1)["verdict"] == "better"
    assert run_json(*line, "--reruns", "deterministic")["verdict"] == "worse"
    refused = run(*line, "--method", "paired")
    assert refused.exit_code == 2
    assert "not with --sequential" in refused.stderr
    for given in (("--detect", 5), ("--seed", 0)):  # 0 is the default, and is refused as well
        refused = run("compare", "two.csv", *given, *files)
        assert "needs --sequential" in refused.stderr
    both.loc[["old"]].to_csv("old.csv", index_label="subject")
    both.loc[["new"]].to_csv("new.csv", index_label="subject")
    apart = run_json("compare", "old.csv", "new.csv", "--sequential", *files)
    assert apart == document


def test_reruns_are_read_as_the_responses():
    rng = np.random.default_rng(1)
    answers = pd.DataFrame(rng.integers(0, 2, (2, 40)), ["old", "new"])
    first = answers.reset_index().melt("index").set_axis(["who", "what", "right"], axis=1)
    first.to_csv("long.csv", index=False)
    again = first.assign(right=first["right"] ^ (rng.random(len(first)) < 0.1))
    again.astype({"right": int}).to_csv("again.csv", index=False)
    line = ("compare", "long.csv", "--new", "new", "--old", "old", "--out", "c.csv", "--force")
    columns = ("--subject", "who", "--item", "what", "--response", "right")
    document = run_json(*line, *columns, "--reruns", "again.csv")
    assert 0 < document["se"] < run_json(*line, *columns)["se"]


def test_flags_are_in_the_document_or_on_stderr():
    write_scores()
    with Path("scores.csv").open("a") as file:
        file.write("z,10,,\n")
    line = ("complete", "scores.csv", "--out", "c.csv", "--force")
    (flag,) = run_json(*line)["flags"]
    assert flag.endswith(": z")
    assert run(*line).stderr == f"Warning: {flag}\n"


def test_the_action_uses_options_that_exist():
    action = Path(__file__).parents[2] / ".github" / "actions" / "compare" / "action.yml"
    used = set(re.findall(r"(?<= )--[a-z]+", action.read_text().partition("runs:")[2]))
    known = run_ok("compare", "--help")
    assert {"--gate", "--margin", "--junit", "--summary", "--json", "--force"} <= used
    assert all(name in known for name in used - {"--quiet"})


def test_compare_asks_for_the_old_model():
    write_two_models()
    two = pd.read_csv("two.csv", index_col=0)
    two.loc[["new"]].to_csv("one.csv")
    result = run("compare", "known.csv", "i.csv", "one.csv")
    assert result.exit_code == 1
    assert "The --old option must be given: responses have new alone" in result.stderr


@pytest.mark.slow
def test_predict_names_the_bank_of_its_data_or_none(bank):
    """A bank.npz of other data lies in the folder: it is neither used nor reported."""
    write_two_models()
    line = ("predict", "known.csv", "i.csv", "two.csv")
    bank.save("bank.npz")  # of LSAT7
    assert "Next: irtcat report p.csv" in run_ok(*line, "--out", "p.csv")
    refused = run(*line, "--bank", "bank.npz", "--out", "q.csv")
    assert refused.exit_code == 1
    assert "The --bank option must be a bank of all items of calibration" in refused.stderr
    irtcat.fit(irtcat.read_responses("known.csv"), "1pl").bank.save("bank.npz")
    text = run_ok(*line, "--out", "r.csv")
    assert "Next: irtcat report bank.npz r.csv" in text
    with open("bank.npz", "wb") as file:
        file.write(b"PK damaged")
    assert "Next: irtcat report s.csv" in run_ok(*line, "--out", "s.csv")


@pytest.mark.slow
def test_predict_says_which_models_are_calibrated_already():
    write_two_models()
    known = pd.read_csv("known.csv", index_col=0)
    two = pd.read_csv("two.csv", index_col=0)
    pd.concat([known.iloc[:1], two]).to_csv("three.csv")
    text = run_ok("predict", "known.csv", "i.csv", "three.csv", "--out", "p.csv")
    n = len(known)
    assert f"among the {n} calibrated; 1 of them calibrated already" in text
    assert f"ranked among the other {n - 1}" in text
    text = run_ok("predict", "known.csv", "i.csv", "known.csv", "--out", "q.csv")
    assert f"calibrated already, ranked among the other {n - 1}" in text
    assert pd.read_csv("q.csv")["rank"].max() <= n


def test_answers_to_a_short_form_are_called_responses():
    write_two_models()
    run_ok("short-form", "known.csv", "-k", 20, "--out", "form.json")
    for name in ("nowhere.csv", "i.csv"):
        result = run("predict", "--short-form", "form.json", name)
        assert result.exit_code == 1
        assert "RESPONSES" in result.stderr
        assert "CALIBRATION" not in result.stderr


def test_options_of_items_have_a_figure_and_a_report():
    answers = pd.DataFrame({"q1": list("AABBC"), "q2": list("BBBAA"), "q3": list("CCACA")})
    choices = irtcat.as_responses(answers, key={"q1": "A", "q2": "B", "q3": "C"})
    irtcat.diagnose.distractors(choices, n_groups=2).to_csv("options.csv")
    run_ok("plot", "options.csv", "--items", "q1,q3", "--out", "o.svg")
    assert os.path.getsize("o.svg") > 1000
    run_ok("report", "options.csv", "--out", "r.html")
    assert "Options of each item" in Path("r.html").read_text()


@pytest.mark.parametrize("rows", ["q1,1\nq2,2\nq3,\n", "q1,1\nq2,2\n"])  # an empty cell, no row
def test_labels_beside_missing_ones_are_as_in_the_file(rows):
    irtcat.ItemBank.from_parameters(b=[0.5, 0, -0.5], item_ids=["q1", "q2", "q3"]).save("bank.npz")
    Path("items.csv").write_text("item,set\n" + rows)
    line = ("headroom", "bank.npz", "--groups", "set", "--items", "items.csv", "--theta", 1)
    assert [row["test_set"] for row in run_json(*line)["test_sets"]] == ["1", "2", "(none)"]


@pytest.mark.slow
def test_headroom_of_groups_and_its_figure(bank, bank_file):
    sets = ["x", "x", "y", "y", "y"]
    pd.DataFrame({"item": bank.item_ids, "set": sets}).to_csv("items.csv", index=False)
    line = ("headroom", bank_file, "--groups", "set", "--items", "items.csv", "--theta", 1)
    document = run_json(*line, "--figure", "h.svg", "--out", "h.csv")
    wanted = irtcat.leaderboard.headroom(bank, sets, theta=1.0)
    assert [row["test_set"] for row in document["test_sets"]] == wanted.index.tolist()
    np.testing.assert_allclose(pd.read_csv("h.csv")["headroom"], wanted["headroom"])
    assert os.path.getsize("h.svg") > 1000
    assert run("headroom", bank_file).exit_code == 2


def test_describe_tells_responses_from_a_bank(bank_file):
    assert "1000 subjects x 5 items, 0.0 % missing, read as right/wrong" in run_ok(
        "describe", LSAT7
    )
    document = run_json("describe", LSAT7)
    assert (document["kind"], document["responses"]) == ("responses", "right/wrong")
    assert document["flags"][0]["name"] == "subjects all right"
    assert "ItemBank(5 items, 2pl" in run_ok("describe", bank_file)
    document = run_json("describe", bank_file)
    assert (document["kind"], document["n_items"]) == ("bank", 5)
    assert document["provenance"]["method"] == "em"


def test_complete_writes_what_the_library_gives():
    write_scores()
    Path("about.csv").write_text("model,lab\ns,x\nm,x\nl,x\nxl,y\na,y\nb,y\n")
    text = run_ok("complete", "scores.csv", "--model-features", "about.csv", "--level", 0.8)
    assert "Completion(6 models x 3 benchmarks, 89% measured, 80% intervals)" in text
    table = pd.read_csv("scores.csv", index_col=0)
    about = pd.read_csv("about.csv", index_col=0)
    wanted = irtcat.leaderboard.complete(table, 0.8, model_features=about).to_frame()
    pd.testing.assert_frame_equal(pd.read_csv("completed.csv"), wanted)
    Path("long.csv").write_text(
        "model,benchmark,score\ns,maths,20\ns,elo,1200\nm,maths,40\nm,elo,1250\nl,maths,60\n"
        "l,cards,9\nm,cards,5\n"
    )
    refused = run("complete", "long.csv", "--json")
    assert refused.exit_code == 1
    assert "Got '1200 for s on elo'. Declare scores in other units" in refused.stderr
    Path("units.csv").write_text("benchmark,unit\nelo,elo\nmaths,\n")
    for units in ("elo=elo", "units.csv"):
        rows = run_json("complete", "long.csv", "--units", units)["scores"]
        rows = [row for row in rows if (row["model"], row["benchmark"]) == ("l", "elo")]
        assert rows[0]["lower"] < rows[0]["score"] < rows[0]["upper"]
    assert run("complete", "long.csv", "--units", "elo", "--json").exit_code == 2


def test_ids_of_scores_are_texts_in_any_column():
    table = "0,{m}01,1e1,20\n1,{m}01,02,40\n2,{m}2,1e1,60\n3,{m}2,02,70\n"
    for m in ("0", "m"):  # an index before the ids
        Path("long.csv").write_text(",model,benchmark,score\n" + table.format(m=m))
        rows = run_json("complete", "long.csv")["scores"]
        ids = [(row["model"], row["benchmark"]) for row in rows]
        assert ids == [(m + k, name) for k in ("01", "2") for name in ("1e1", "02")]
    wide = "model,maths,benchmark\na,20,30\nb,30,\nc,50,60\nd,70,75\n"  # its scores are numbers
    Path("wide.csv").write_text(wide)
    assert {row["benchmark"] for row in run_json("complete", "wide.csv")["scores"]} >= {"benchmark"}


def test_probe_takes_costs_from_words_and_tables():
    write_scores()
    Path("costs.csv").write_text("benchmark,cost\nmaths,1\ncode,30\nchat,5\n")
    line = ("probe", "scores.csv", "-k", 3, "--budget", 6)
    documents = [
        run_json(*line, "--costs", costs) for costs in ("maths=1,code=30,chat=5", "costs.csv")
    ]
    assert documents[0] == documents[1]
    assert {row["benchmark"] for row in documents[0]["benchmarks"]} == {"maths", "chat"}
    assert documents[0]["benchmarks"][-1]["total_cost"] == 6
    document = run_json("probe", "scores.csv", "-k", 3, "--model", "m")
    assert [row["benchmark"] for row in document["benchmarks"]] == ["code"]
    result = run("probe", "scores.csv", "-k", 1, "--costs", "maths=1")
    assert "The --costs option must be the cost of every candidate." in result.stderr


def test_import_writes_responses_and_report():
    write_logs()
    Path("logs", "c.pkl").write_bytes(b"")
    result = run("import", "logs", "-o", "r.npz", "--report", "report.csv", "--metric", "f1,acc")
    assert result.exit_code == 0
    assert "pickles run code" in result.stderr
    assert result.stderr.count("\n") == 1
    assert "2 subjects x 4 items" in result.stdout
    assert "Note: 2 samples files have no results file" in result.stdout
    read = irtcat.io.read_logs("logs", metric="acc")
    saved = irtcat.read_responses("r.npz")
    np.testing.assert_array_equal(saved.values, read.responses.values)
    table = pd.read_csv("report.csv")
    assert table["mean"].tolist()[:2] == [1.0, 0.5]
    assert table["skipped"].notna().tolist() == [False, False, True]


def test_import_says_where_the_score_stands_that_samples_have_none():
    """One model that crashed on half of its samples, and a task of which lower is better."""
    for model, scores in (("one", [1, 1, None, None]), ("two", [1, 0, 0, 1])):
        os.makedirs(f"logs/{model}")
        for task, metric in (("quiz", "acc"), ("wiki", "word_perplexity")):
            lines = [
                {
                    "doc_id": i,
                    "doc": {"q": f"{task} {i}"},
                    "metrics": [metric],
                    "filter": "none",
                    metric: score if task == "quiz" else 10.0 + i,
                }
                for i, score in enumerate(scores)
            ]
            name = f"logs/{model}/samples_{task}_2026-11-21T00-00-43.298874.jsonl"
            Path(name).write_text("\n".join(map(json.dumps, lines)))
        results = {
            "results": {},
            "model_name": model,
            "higher_is_better": {"wiki": {"word_perplexity": False}},
        }
        path = Path(f"logs/{model}/results_2026-11-21T00-00-43.298874.json")
        path.write_text(json.dumps(results))
    result = run("import", "logs")
    assert result.exit_code == 0
    assert "Leave the task out with --tasks, or name the metric in --lower-is-better" in (
        result.stderr
    )
    assert re.search(r"one\t100\.0 %\t2\t2\n", result.stdout)  # mean, answers, no score
    assert "With --unscored wrong they count as wrong" in result.stdout
    text = run("import", "logs", "--unscored", "wrong", "--force").stdout
    assert re.search(r"one\t50\.0 %\t4\t2\n", text)
    more = ("--range", "word_perplexity=0:20", "--lower-is-better", "word_perplexity", "--force")
    document = run_json("import", "logs", *more)
    assert document["n_items"] == 8
    means = {(run["model"], run["task"]): run["mean"] for run in document["runs"]}
    assert means["one", "wiki"] == pytest.approx(1 - 11.5 / 20)
    assert run("import", "logs", "--range", "bleu", "--force").exit_code == 2


def test_logs_are_read_by_every_command():
    write_logs()
    Path("logs", "c.pkl").write_bytes(b"")
    result = run("describe", "logs")
    assert result.exit_code == 0
    assert "2 subjects x 4 items" in result.stdout
    assert result.stderr.startswith("Warning: logs: 1 log files were skipped")
    assert result.stderr.count("\n") == 1


def test_import_json():
    write_logs()
    found = json.loads(run_ok("import", "logs", "--tasks", "quiz", "--json"))
    assert (found["n_subjects"], found["n_items"], found["kind"]) == (2, 4, "right/wrong")
    assert [run["model"] for run in found["runs"]] == ["a", "b"]
    assert found["choices"][0]["taken"] == "acc"
    assert found["out"] is None
    assert run("import", "logs", "--runs", "first").exit_code == 2
    assert run("import", "logs", "--incomplete", "all").exit_code == 2


def test_import_of_item_parameters():
    Path("mirt.csv").write_text('"","a1","d","g","u"\n"q1",1.5,-0.75,0,1\n"q2",2,1,0.2,1\n')
    text = run_ok("import", "mirt.csv")
    assert "slope_1 = a1, intercept = d, lower = g, upper = u" in text
    assert "Note: population N(0, 1), as the file does not state it" in text
    assert text.endswith("Next: irtcat describe bank.npz\n")
    assert irtcat.load("bank.npz").to_frame()["b"].tolist() == [0.5, -0.5]
    Path("own.csv").write_text("id,disc.2pl,loc\nq1,1.5,0.5\n")
    assert "--columns slope=HEADER" in run("import", "own.csv", "--scaling", "1.7").stderr
    named = ("--columns", "slope=disc.2pl,difficulty=loc", "--scaling", "1.7", "--force")
    assert run_json("import", "own.csv", *named, "-o", "own.npz")["columns"]["difficulty"] == "loc"
    assert irtcat.load("own.npz").to_frame()["a"].tolist() == [pytest.approx(2.55)]
    Path("rasch.csv").write_text("item,b\nq1,0.5\n")
    assert "its SD was probably estimated" in run_ok("import", "rasch.csv", "--force")
    run_ok("import", "rasch.csv", "--population", "0.1,1.4", "--force")
    assert irtcat.load("bank.npz").population.sd == 1.4
    assert run("import", "rasch.csv", "--population", "0.1", "--force").exit_code == 2
    assert "--tasks goes with logs" in run("import", "mirt.csv", "--tasks", "quiz").stderr
    write_logs()
    assert "--dialect goes with item param" in run("import", "logs", "--dialect", "mirt").stderr
    assert run("import", "own.csv", "--columns", "slope").exit_code == 2


def test_export_leaves_texts_of_items_as_they_are():
    irtcat.ItemBank.from_parameters(b=[0.5, -0.5], item_ids=["q1", "q2"]).save("bank.npz")
    Path("chosen.csv").write_text("item\nq1\nq2\n")
    Path("texts.csv").write_text(
        "item,task,sample_id,prompt,A,B,C,key\n"
        "q1,t,007,Half of 5?,2.50,3,,A\nq2,t,1e3,1 + 1?,2,3,4.0,A\n"  # 4.0: of pandas, for ["", 4]
    )
    run_ok("export", "chosen.csv", "--to", "inspect", "--items", "texts.csv", "--out", "ids.txt")
    assert Path("ids.txt").read_text() == "007,1e3\n"
    run_ok("export", "bank.npz", "--html", "t.html", "--items", "texts.csv")
    page = Path("t.html").read_text("utf-8")
    labels = re.findall(r'"label":"([^"]*)"', page)
    assert labels == ["2.50", "3", "2", "3", "4"]


def test_export_of_item_parameters():
    bank = irtcat.ItemBank.from_parameters([1.5, 2.0], [0.5, -0.5], [0.0, 0.2])
    bank.save("bank.npz")
    assert run_json("export", "bank.npz", "--to", "mirt")["out"] == "items.csv"
    assert Path("items.csv").read_text().splitlines()[1] == "i1,1.5,-0.75,0.0,1.0"
    assert (
        "tam-irt has no columns" in run("export", "bank.npz", "--to", "tam-irt", "-o", "x").stderr
    )
    assert "--to option must be one of irt, mirt" in run("export", "bank.npz", "--to", "ids").stderr


def test_a_table_where_a_bank_is_expected_names_the_command():
    Path("mirt.csv").write_text('"","a1","d"\n"q1",1.5,-0.75\n')
    error = run("score", "mirt.csv", "data.csv").stderr
    assert "mirt.csv (BANK): expected an item bank" in error
    assert "irtcat import" in error


@pytest.mark.slow
def test_demo(monkeypatch):
    small_demo(monkeypatch)
    document = run_json("demo", "--out", "d", "--seeds", 1)
    assert all(os.path.getsize(path) for path in document["files"].values())
    assert len(document["summary"]) == 4
    text = run_ok("demo", "--out", "d", "--seeds", 1)
    assert all(str(path) in text for path in document["files"].values())


def test_reading_options_reach_the_reader():
    rows = ["who,what,right", "m1,q1,1", "m1,q2,0", "m2,q1,0", "m2,q2,1", "m2,q2,0"]
    with open("long.csv", "w") as file:
        file.write("\n".join(rows))
    columns = ("--subject", "who", "--item", "what", "--response", "right", "--format", "long")
    document = run_json("describe", "long.csv", *columns, "--duplicates", "first")
    assert (document["n_subjects"], document["n_items"]) == (2, 2)
    assert run("describe", "long.csv", *columns).exit_code == 1


def test_odd_ids_are_printed_as_they_are():
    ids = ["[bold]x[/bold]", ":smile:", "π"]
    frame = pd.DataFrame({"b": [1.0, 2.0, np.nan]}, index=pd.Index(ids, name="item"))
    runner_output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", runner_output)
        _output.show(_output.Table(frame))
    assert all(name in runner_output.getvalue() for name in ids)


def test_long_tables_are_cut_on_a_terminal_only():
    frame = pd.DataFrame({"k": range(100)})
    outputs = []
    for kind in (Terminal, io.StringIO):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", kind())
            _output.show(_output.Table(frame))
            outputs.append(sys.stdout.getvalue())
    assert "and 40 more rows" in outputs[0]
    assert "99" in outputs[1]
    assert "more rows" not in outputs[1]


def half_and_half():
    """LSAT7 in two groups, as a table of subjects."""
    data = irtcat.datasets.load("lsat7")
    labels = np.where(np.arange(data.n_subjects) % 2, "odd", "even")
    pd.DataFrame({"who": data.subject_ids, "side": labels}).to_csv("subjects.csv", index=False)
    return data, labels


@pytest.mark.parametrize(
    ("line", "name", "table"),
    [
        (f"score bank.npz {LSAT7} --groups side", "groups", "subjects"),
        (f"fit {LSAT7} --groups side --out other.npz", "groups", "subjects"),
        (f"audit {LSAT7} --bank bank.npz --dates side", "dates", "subjects"),
        ("select bank.npz -k 2 --groups side --quotas a=1", "groups", "items"),
        ("headroom bank.npz --theta 1 --groups side", "groups", "items"),
    ],
)
def test_a_column_without_a_table_names_the_option_of_the_table(bank, line, name, table):
    bank.save("bank.npz")
    result = run(*line.split())
    assert result.exit_code == 1
    message = " ".join(result.stderr.split())
    assert f"The --{name} option must be a column of the {table}' metadata, which has none" in (
        message
    )
    assert f"Got 'side'. Responses take it as --{table} TABLE." in message


def test_a_table_of_reasons_may_lack_some():
    from irtcat.cli.scale import _with_reasons

    Path("who.csv").write_text("subject,reason\ns1,left early\ns2,\n")
    reasons = _with_reasons(["who.csv"], ["s1", "s2"], "subjects")
    assert reasons == {"s1": "left early", "s2": irtcat.scale.exclusion.BY_HAND}


@pytest.mark.slow
def test_scale_leaves_out_by_hand_and_by_rule():
    """Reasons of texts and a table; an attention item that is among the responses; speed."""
    data = irtcat.datasets.load("lsat7")
    choices = pd.DataFrame(np.where(data.to_numpy() == 1, "a", "b"), data.subject_ids)
    choices.columns = ["q1", "q2", "q3", "item4", "q5"]
    choices.to_csv("letters.csv", index_label="who")
    times = pd.DataFrame({"seconds": np.where(np.arange(1000) < 997, 60, 5)}, data.subject_ids)
    times.to_csv("times.csv", index_label="who")
    pd.DataFrame({"who": ["s500", "s501"], "why": ["ill", "left"]}).to_csv("who.csv", index=False)
    line = ("scale", LSAT7, "--two-factors", "skip", "--no-figures", "--out", "by_hand")
    by_hand = ("--exclude", "item5=two readings", "--exclude-subject", "who.csv")
    rules = ("--choices", "letters.csv", "--attention", "item4=a", "--longest-run", "4")
    speed = ("--seconds", "times.csv", "--min-seconds", "30")
    few = ("--least-items", "3", "--alpha-fit", "0", "--alpha-dependence", "0")
    document = run_json(*line, *by_hand, "--exclude-subject", "s502", *rules, *speed, *few)
    reasons = {row["subject"]: row["reason"] for row in document["left_out"]}
    assert [reasons[s] for s in ("s500", "s501", "s502")] == ["ill", "left", "by hand"]
    failed = data.subject_ids[data.to_numpy()[:, 3] == 0]
    theirs = irtcat.scale.careless(
        choices,
        attention={"item4": "a"},
        straight_line=None,
        longest_run=4,
        seconds=times["seconds"],
        min_seconds=30,
    )
    assert set(failed) < set(theirs.index)
    assert set(reasons) == {*theirs.index, "s500", "s501", "s502"}
    decisions = (
        pd.read_csv("by_hand/decisions.csv")
        .query("statistic == 'excluded'")
        .set_index("item")["criterion"]
    )
    assert (decisions["item5"], decisions["item4"]) == ("two readings", "an attention item")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--exclude", "i9=no"), "not among the items"),
        (("--exclude-subject", "nobody"), "not among the subjects"),
        (("--straight-line", "5"), "--choices FILE"),
        (("--attention", "item4"), "not ITEM=CHOICE"),
        (("--seconds", "subjects.csv"), "--min-seconds"),
    ],
)
def test_scale_refuses_exclusions(words, message):
    half_and_half()
    assert message in run("scale", LSAT7, *words).stderr.replace("\n", " ")


@pytest.mark.slow
def test_fit_with_survey_weights():
    data, _ = half_and_half()
    weights = np.arange(data.n_subjects) % 3
    table = pd.DataFrame({"subject": data.subject_ids, "weight": weights})
    table.to_csv("weights.csv", index=False)
    line = ("fit", LSAT7, "--subjects", "weights.csv", "--subject-weights", "weight")
    document = run_json(*line, "--out", "b.npz")
    theirs = irtcat.fit(data, subject_weights=weights)
    assert document["log_likelihood"] == pytest.approx(theirs.log_likelihood)
    assert document["n_subjects"] == (weights > 0).sum()


@pytest.mark.slow
def test_fit_with_groups_and_known_items(bank):
    data, labels = half_and_half()
    bank.subset(bank.item_ids[:3]).save("known.npz")
    line = ("fit", LSAT7, "--groups", "side", "--subjects", "subjects.csv")
    document = run_json(*line, "--anchors", "known.npz", "--out", "b.npz")
    theirs = irtcat.fit(data, groups=labels, anchors=bank.subset(bank.item_ids[:3]))
    assert [row["group"] for row in document["groups"]] == ["even", "odd"]
    np.testing.assert_allclose(
        [row["mean"] for row in document["groups"]], theirs.groups["mean"], rtol=1e-6
    )
    np.testing.assert_allclose(
        irtcat.ItemBank.load("b.npz").parameters(), theirs.bank.parameters(), rtol=1e-6
    )
    anchored = ("--anchors", "known.npz", "--out", "b.npz", "--force")
    with_table = run_ok(*line, *anchored)
    assert re.search(r"^odd\t\d+\t", with_table, re.M)


@pytest.mark.slow
def test_fit_reads_groups_saved_with_the_responses():
    data, labels = half_and_half()
    subjects = pd.DataFrame({"side": labels}, index=data.subject_ids)
    irtcat.Responses.from_array(data.to_numpy(), subjects=subjects).save("r.npz")
    document = run_json("fit", "r.npz", "--groups", "side", "--reference", "odd")
    assert [row["group"] for row in document["groups"]] == ["odd", "even"]


def test_fit_with_known_abilities(bank, bank_file):
    run_ok("score", bank_file, LSAT7, "--out", "scores.csv")
    document = run_json("fit", LSAT7, "--theta", "scores.csv")
    data = irtcat.datasets.load("lsat7")
    theirs = irtcat.fit(data, theta=irtcat.score(bank, data))
    assert document["log_likelihood"] == pytest.approx(theirs.log_likelihood, rel=1e-9)


@pytest.mark.slow
def test_fit_with_fixed_and_equal_parameters_and_models_by_item(bank):
    data = irtcat.datasets.load("lsat7")
    one, two = data.item_ids[:2].tolist()
    Path("fixed.csv").write_text(f"item,a,c\n{one},1.2,\n{two},,0.1\n")
    line = ("fit", LSAT7, "--table", "items.csv", "--force")
    run_ok(*line, "--model", "3pl", "--fixed", "fixed.csv")
    items = pd.read_csv("items.csv", index_col="item")
    want = irtcat.fit(data, "3pl", fixed={"a": {one: 1.2}, "c": {two: 0.1}}).bank.to_frame()
    np.testing.assert_allclose(items[["a", "b", "c"]], want[["a", "b", "c"]], atol=1e-8)
    assert items.loc[one, "a"] == 1.2
    run_ok(*line, "--fixed", "a=1.5")
    assert (pd.read_csv("items.csv")["a"] == 1.5).all()
    run_ok(*line, "--equal", "slope")
    assert np.ptp(pd.read_csv("items.csv")["a"]) == 0
    Path("models.csv").write_text(f"item,model\n{two},graded\n")
    run_ok(*line, "--models", "models.csv")
    models = pd.read_csv("items.csv", index_col="item")["model"]
    assert models[two] == "graded"
    assert (models.drop(two) == "2pl").all()


def test_link_writes_the_bank_and_says_how(bank, bank_file):
    bank.rescale(2.0, 1.0).save("other.npz")
    line = ("link", "other.npz", bank_file, "--method", "haebara")
    text = run_ok(*line, "--out", "linked.npz", "--table", "items.csv")
    assert "theta_reference = 0.5000 theta + -0.5000" in text
    assert all(f"item{number}" in text for number in range(1, 6))
    linked = irtcat.ItemBank.load("linked.npz")
    np.testing.assert_allclose(linked.parameters(), bank.parameters(), atol=1e-4)
    assert list(pd.read_csv("items.csv")["item"]) == list(bank.item_ids)
    document = run_json(*line)
    assert document["A"] == pytest.approx(0.5, abs=1e-4)
    assert document["n_common"] == len(document["items"]) == 5


def test_priors_are_printed_as_they_are():
    assert set(fit_command.FAMILIES) == set(FAMILIES)
    printed = [
        fit_command._prior(*given)
        for given in (
            ("intercept", (0.0, 3.0)),
            ("slope", ("lognormal", 0, 0.5)),
            ("logit_lower", ("beta", 5, 17)),
            ("slope", "by item (3)"),
        )
    ]
    assert printed == [
        "intercept ~ N(0, 3)",
        "slope ~ LogNormal(0, 0.5)",
        "c ~ Beta(5, 17)",
        "slope by item (3)",
    ]


# --- exit codes ------------------------------------------------------------------------------


def write_bad_files(bank):
    """Files that cannot be used."""
    files = {
        "text.csv": "subject,q1,q2\nm1,1,yes please\nm2,0,1\n",
        "empty.csv": "",
        "ragged.csv": "subject,q1,q2\nm1,1\nm2,0,1\n",
        "other.csv": "subject,z1,z2\nm1,1,0\nm2,0,1\n",
        "graded.csv": "subject,q1,q2\nm1,1,4\nm2,2,3\nm3,3,1\n",
        "one.csv": "subject,q1,q2\nm1,1,0\n",
        "long.csv": "who,what,right\nm1,q1,1\nm1,q2,0\nm2,q1,0\n",
        "twice.csv": "subject,q1,q1\nm1,1,0\nm2,0,1\n",
        "abilities.csv": "subject,theta\na,0\n",
        "few.csv": "item\nitem1\nitem2\n",
        "strangers.csv": "item\nz1\n",
        "picture.png": "\x89PNG\r\n\x1a\n",
    }
    for name, text in files.items():
        with open(name, "w") as file:
            file.write(text)
    os.mkdir("folder")
    irtcat.datasets.load("lsat7").save("answers.npz")
    bank.save("bank.npz")
    with open("bank.npz", "rb") as file:
        content = file.read()
    with open("cut.npz", "wb") as file:
        file.write(content[: len(content) // 2])
    np.savez("array.npz", x=np.zeros(3))


BAD_INPUT = [
    ("fit nowhere.csv", "nowhere.csv"),
    ("fit dataset:nix", "nix"),
    ("fit text.csv", "yes please"),
    ("fit empty.csv", "empty"),
    ("fit ragged.csv", "ragged.csv"),
    ("fit folder", "folder"),
    ("fit graded.csv", "categories"),
    ("fit one.csv", "2 subjects"),
    ("fit bank.npz", "bank.npz (RESPONSES): expected responses. Got an item bank"),
    (f"fit {LSAT7} --out bank.csv", "The --out option must be a file name that ends in .npz"),
    (f"fit {LSAT7} --dims 9", "The --dims option"),
    (f"fit {LSAT7} --priors hierarchical", "The --priors option"),
    (f"fit {LSAT7} --theta abilities.csv", "The --theta option"),
    ("fit long.csv --subject nope", "The --subject option must be a column of long.csv"),
    ("fit picture.png", "picture.png (RESPONSES)"),
    ("fit twice.csv", "Pass --duplicates first to keep the first, or --duplicates suffix"),
    ("fit text.csv --format xls", "format"),
    (f"fit {LSAT7} --out missing/b.npz", "missing"),
    (f"fit {LSAT7} --out folder", "folder"),
    (f"fit {LSAT7} --table text.csv/items.csv", "text.csv"),
    (f"fit {LSAT7} --groups side", "side"),
    (f"fit {LSAT7} --groups side --subjects other.csv", "side"),
    (f"fit {LSAT7} --groups side --subjects empty.csv", "empty.csv"),
    (f"fit {LSAT7} --subject-weights z1 --subjects other.csv", "subject-weights"),
    (f"fit {LSAT7} --anchors cut.npz", "cut.npz"),
    (f"fit {LSAT7} --theta other.csv", "theta"),
    (f"fit {LSAT7} --theta nowhere.csv", "nowhere.csv"),
    (f"fit {LSAT7} --theta folder", "folder"),
    (f"fit {LSAT7} --fixed other.csv", "z1"),
    (f"fit {LSAT7} --fixed text.csv", "yes please"),
    (f"fit {LSAT7} --fixed nix=1", "nix"),
    (f"fit {LSAT7} --equal nix", "nix"),
    (f"fit {LSAT7} --models other.csv", "model"),
    ("link bank.npz cut.npz", "cut.npz"),
    ("link bank.npz bank.npz --out folder", "folder"),
    (f"score nowhere.npz {LSAT7}", "nowhere.npz"),
    (f"score cut.npz {LSAT7}", "cut.npz"),
    (f"score array.npz {LSAT7}", "array.npz"),
    (f"score text.csv {LSAT7}", "text.csv"),
    ("score bank.npz other.csv", "RESPONSES"),
    (f"score bank.npz {LSAT7} --level 1", "level"),
    ("select bank.npz -k 6", "The --n-items option must be a whole number between 1 and 5"),
    (f"select bank.npz -k 2 --allowed text.csv --responses {LSAT7}", "The --allowed option"),
    ("select bank.npz -k 2 --responses other.csv", "The --responses option must be responses to"),
    ("select bank.npz -k 2 --responses bank.npz", "bank.npz (--responses): expected responses."),
    ("select answers.npz -k 2", "answers.npz (BANK): this is not an item bank"),
    (f"select bank.npz -k 2 --strategy stratified-group --responses {LSAT7}", "Set --groups to"),
    (f"predict {LSAT7} nowhere.csv {LSAT7}", "nowhere.csv (SUBSET): there is no such file"),
    (f"predict {LSAT7} bank.npz {LSAT7}", "bank.npz (SUBSET): expected a table of items"),
    (f"predict {LSAT7} text.csv {LSAT7}", "no column 'item'"),
    (f"predict {LSAT7} strangers.csv {LSAT7}", "The SUBSET argument must be among the 5 ids"),
    (f"predict {LSAT7} few.csv other.csv", "The RESPONSES argument must be answers to items of"),
    (f"predict bank.npz few.csv {LSAT7}", "bank.npz (CALIBRATION): expected responses."),
    (f"predict {LSAT7} few.csv {LSAT7} --level 95", "The --level option must be a number strictly"),
    (f"predict {LSAT7} few.csv {LSAT7} --groups topic", "The --groups option"),
    (f"compare {LSAT7} few.csv {LSAT7} --old nobody --new 1", "The --new option must be one of"),
    (f"audit {LSAT7} --bank answers.npz", "answers.npz (--bank): this is not an item bank"),
    ("filter bank.npz --rule avi", "Pass one of --tau, --keep and --between."),
    ("filter bank.npz --rule avi --keep 2.5", "The --keep option must be"),
    ("plot bank.npz --out f.gif", "The --out option must be a file name that ends in .png"),
    ("plot bank.npz --items nope", "The --items option must be among the 5 ids, such as"),
    ("report answers.npz", "answers.npz: responses, not a result"),
    ("simulate bank.npz --criterion nix", "The --criterion option must be one of"),
    ("session start bank.npz --store t.db --stop nonsense", "The --stop option must be conditions"),
    ("session next --id anna --store none.db", "none.db: there is no such store"),
    ("export nowhere.csv", "nowhere.csv (SUBSET)"),
    (f"score bank.npz {LSAT7} --out missing/s.csv", "missing/s.csv (--out): the folder missing"),
    (f"select -k 2 --strategy fisher --responses {LSAT7}", "fisher"),
    (f"select -k 2 --responses {LSAT7} --groups topic", "--groups"),
    (f"select -k 2 --responses {LSAT7} --budget 3", "--costs"),
    (f"select -k 2 --responses {LSAT7} --allowed nowhere.txt", "nowhere.txt"),
    ("select bank.npz -k 5 --strategy lb --tau 0", "tau"),
    (f"leaderboard {LSAT7} --n-items 30", "30"),
    (f"leaderboard {LSAT7} --n-items 2 --share 2", "share"),
    (f"leaderboard {LSAT7} --n-items 2 --split metadata:family", "family"),
    (f"leaderboard {LSAT7} --n-items 2 --figure f.gif", "png"),
    ("describe cut.npz", "cut.npz"),
    ("describe nowhere", "nowhere"),
    ("demo --out text.csv", "text.csv"),
    ("import folder", "folder: expected logs"),
    ("import nowhere", "nowhere"),
    ("import text.csv --out responses.npz", "text.csv"),
    ("import folder --out responses.csv", ".npz"),
    ("import folder --out missing/responses.npz", "missing"),
    ("import folder --report missing/report.csv", "missing"),
]


@pytest.mark.parametrize(("line", "named"), BAD_INPUT)
def test_bad_input_is_one_line_and_exit_1(line, named, bank):
    write_bad_files(bank)
    before = sorted(os.listdir())
    words = shlex.split(line)
    if words[0] == "fit" and "--out" not in words and words[1] != "bank.npz":
        words += ["--out", "new.npz"]
    result = run(*words)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert named in result.stderr
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("select bank.npz -k 0", "--n-items: must be a whole number of at least 1. Got '0'."),
        ("select bank.npz -k ten", "--n-items: must be a whole number of at least 1. Got 'ten'."),
        ("select bank.npz -k 3 --share 2", "--share: must be a number between 0 and 1. Got '2'."),
        ("select bank.npz -k 3 --tau abc", "--tau: must be a number. Got 'abc'."),
        ("select bank.npz -k 1_0", "--n-items: must be a whole number of at least 1. Got '1_0'."),
        ("select -k 3", "BANK: give a BANK, --responses, or both."),
        (f"fit {LSAT7} --resume", "--resume: needs --checkpoint FILE."),
        (f"fit {LSAT7} --json --csv", "--csv: not with --json."),
        ("plan x.csv --gap 0", "--gap: 0 is not a number of points between 0 and 100."),
        ("fti x.csv", "No such command 'fti'. Did you mean 'fit'?"),
    ],
)
def test_usage_errors_are_one_line_that_names_the_option(line, says):
    result = run(*shlex.split(line))
    assert result.exit_code == 2
    errors = [text for text in result.stderr.splitlines() if text.startswith("Error: ")]
    assert errors == [result.stderr.splitlines()[-1]]
    assert says in errors[0]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "fit",
        "nonsense",
        f"fit {LSAT7} --nonsense",
        f"fit {LSAT7} --model 9pl",
        f"fit {LSAT7} --precision float16",
        f"fit {LSAT7} --max-iterations 0",
        f"fit {LSAT7} --duplicates maybe",
        f"fit {LSAT7} --subjects s.csv",
        f"fit {LSAT7} --reference odd",
        "link bank.npz",
        "link bank.npz bank.npz --method guess",
        f"score bank.npz {LSAT7} --method guess",
        "select bank.npz",
        "select -k 3",
        "select bank.npz -k 0",
        "select bank.npz -k 3 --strategy bogus",
        "select bank.npz -k 3 --quotas a",
        "select bank.npz -k 3 --share 2",
        f"leaderboard {LSAT7} --strategies random,bogus",
        f"leaderboard {LSAT7} --estimators bogus",
        f"leaderboard {LSAT7} --n-items 10,x",
        f"leaderboard {LSAT7} --n-items ''",
        f"leaderboard {LSAT7} --split bogus",
        f"leaderboard {LSAT7} --seeds 0",
        "demo --seeds 0",
    ],
)
def test_wrong_usage_is_exit_2(line):
    result = run(*shlex.split(line))
    assert result.exit_code == 2
    assert "Usage: " in result.output
    assert os.listdir() == []


@pytest.mark.parametrize(
    "line",
    [
        "score bank.npz r.csv --out r.csv",
        "score bank.npz r.csv --out ./bank.npz",
        "fit r.csv --out new.npz --table new.npz",
        "fit r.csv --checkpoint s --out s",
        "report scores.csv --out scores.csv",
        "select bank.npz -k 1 --allowed r.csv --out r.csv",
        "filter bank.npz --rule random --rows r.csv --key item --out link.csv",
    ],
)
def test_a_file_that_is_read_is_never_written(line, bank, bank_file):
    Path("r.csv").write_text("subject,q1,q2\na,1,0\nb,0,1\n")
    Path("scores.csv").write_text("subject,theta,se\na,0,1\n")
    os.symlink("r.csv", "link.csv")
    bank.save("bank.npz")
    before = {name: Path(name).read_bytes() for name in os.listdir()}
    result = run(*shlex.split(line))
    assert result.exit_code == 2
    assert "would be replaced" in " ".join(result.output.replace("│", " ").split())
    assert {name: Path(name).read_bytes() for name in os.listdir()} == before


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device", "b.npz"), "b.npz: No space left on device."),
        (PermissionError(13, "Permission denied"), "Error: Permission denied."),
        (MemoryError(), "not enough memory"),
        (FloatingPointError("The log-posterior\nbecame nan."), "posterior became nan."),
    ],
)
def test_failures_on_the_way_are_one_line(error, text, monkeypatch):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(irtcat, "fit", fail)
    result = run("fit", LSAT7, "--out", "b.npz")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert text in result.stderr
    assert os.listdir() == []


def test_interrupted_while_writing_leaves_the_old_file(bank_file, monkeypatch):
    with open("scores.csv", "w") as file:
        file.write("old")

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("irtcat._files.writing.os.replace", interrupt)
    result = run("score", bank_file, LSAT7, "--out", "scores.csv", "--force")
    assert result.exit_code == 130
    kept = "Nothing was written; repeat the command to start again."
    assert result.stderr == f"Interrupted. {kept}\n"
    with open("scores.csv") as file:
        assert file.read() == "old"
    assert sorted(os.listdir()) == ["bank.npz", "scores.csv"]


def test_our_own_errors_keep_their_traceback(monkeypatch):
    def fail(*arguments, **options):
        raise ZeroDivisionError

    monkeypatch.setattr(irtcat, "fit", fail)
    assert isinstance(run("fit", LSAT7).exception, ZeroDivisionError)


def test_missing_matplotlib_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("leaderboard", LSAT7, "--n-items", "2", "--figure", "f.png")
    assert result.exit_code == 1
    assert "pip install 'irtcat[plot]'" in result.stderr


# --- as a process ----------------------------------------------------------------------------


@pytest.mark.slow
def test_module_runs_as_a_process_and_keeps_compiled_programs(tmp_path):
    cache = tmp_path / "cache"
    result = in_process(
        "-m",
        "irtcat",
        "fit",
        LSAT7,
        "--json",
        IRTCAT_CACHE=str(cache),
        JAX_PLATFORMS="cpu",
        JAX_DISABLE_MOST_OPTIMIZATIONS="1",
    )
    assert result.returncode == 0
    assert result.stderr == ""
    assert json.loads(result.stdout)["converged"] is True
    assert list((cache / "programs").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("line", "code"), [("fit nowhere.csv", 1), ("fit", 2)])
def test_exit_codes_reach_the_shell(line, code):
    result = in_process("-m", "irtcat", *line.split())
    assert result.returncode == code
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_ctrl_c_is_one_line_and_exit_130():
    # (Jobs in the background would ignore the signal.)
    # It comes while JAX's hook of the collector runs, where an exception would be lost.
    code = (
        "import signal, sys, irtcat, irtcat.cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def _xla_gc_callback():\n    signal.raise_signal(signal.SIGINT)\n"
        "def fit(*arguments, **options):\n"
        "    _xla_gc_callback()\n"
        "    while True:\n        pass\n"
        "irtcat.fit = fit\n"
        f"sys.argv = ['irtcat', 'fit', '{LSAT7}', '--out', 'b.npz']\n"
        "irtcat.cli.main()\n"
    )
    result = in_process("-c", code)
    kept = "Nothing was written; with --checkpoint FILE a long fit can be continued."
    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == f"Interrupted. {kept}\n"
    assert os.listdir() == []


@pytest.mark.slow
def test_ctrl_c_during_an_import_is_one_line_and_exit_130(tmp_path):
    (tmp_path / "jax.py").write_text(
        "import signal\n"
        "try:\n    signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt as error:\n    raise ImportError from error\n"
    )
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"from irtcat.cli import main; sys.argv[1:] = ['fit', '{LSAT7}']; main()"
    )
    result = in_process("-c", code)  # jax.py in the working folder is found first
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "Interrupted.\n")


# --- diagnose --------------------------------------------------------------------------------


def test_reruns_are_those_of_the_library():
    table = write_runs()
    wanted = irtcat.diagnose.reruns(irtcat.Responses.from_long(table), k=[1, 3])
    document = run_json("diagnose", "reruns", "runs.csv", "-k", "1,3")
    assert document["noise_floor"] == pytest.approx(wanted.noise_floor)
    assert document["p_run"] == pytest.approx(wanted.p_run)
    assert [row["k"] for row in document["passes"]] == [1, 3] * 3
    assert len(document["items"]) == (wanted.items["n_flipping"] > 0).sum()
    text = run_ok("diagnose", "reruns", "runs.csv", "--first", 2)
    assert "two runs of one model differ by more than" in text
    assert "pass@k and pass^k" in text
    written = pd.read_csv("reruns.csv", index_col="subject")
    np.testing.assert_allclose(written["noise"], wanted.to_frame()["noise"])


def test_a_plan_of_items_and_trials():
    write_runs()
    responses = irtcat.read_responses("runs.csv")
    wanted = irtcat.leaderboard.plan(responses, 0.1, reruns=responses, costs=(2, 1))
    line = ("plan", "runs.csv", "--gap", 10, "--reruns", "runs.csv")
    document = json.loads(run(*line, "--costs", "2,1", "--json").stdout)
    assert [row["n_trials"] for row in document["designs"]] == wanted.table["n_trials"].tolist()
    assert len(document["splits"]) == len(wanted.splits)
    assert "Items and trials of each" in run("plan", LSAT7, "--gap", 20, "--reruns", 0.6).stdout
    assert document["estimand"] == "model"
    line_domain = ("plan", "runs.csv", "--gap", 10, "--estimand", "domain", "--out", "d.csv")
    domain = json.loads(run(*line_domain, "--json").stdout)
    assert domain["estimand"] == pd.read_csv("d.csv")["estimand"][0] == "domain"
    assert [row["n_items"] for row in domain["designs"]] == (
        irtcat.leaderboard.plan(responses, 0.1, estimand="domain").table["n_items"].tolist()
    )
    assert "not ITEM,TRIAL" in run(*line, "--costs", "2").stderr
    assert "needs --reruns" in run("plan", LSAT7, "--budget", 100).stderr


def test_trials_of_a_table_by_name_or_by_number():
    write_runs().rename(columns={"epoch": "day"}).to_csv("named.csv", index=False)
    result = run("diagnose", "reruns", "named.csv")
    assert result.exit_code == 1
    assert "name the column of their numbers with --trial" in result.stderr
    assert run_json("diagnose", "reruns", "named.csv", "--trial", "day")["p_run"] is not None
    result = run("diagnose", "reruns", LSAT7)
    assert "with repeated trials. Got 'right/wrong'" in result.stderr
    assert run("diagnose", "reruns", "runs.csv", "-k", "1,x").exit_code == 2


def test_words_keys_and_missing_codes_on_the_command_line():
    def describe(*words):
        result = run("describe", "words.csv", *words)
        return result, " ".join(result.output.split())

    Path("words.csv").write_text("student,q1,q2\nann,often,never\nbob,-99,often\ncat,never,often\n")
    result, text = describe()
    assert result.exit_code == 1
    assert "with --codes" in text
    assert "with --key" in text
    Path("codes.csv").write_text("label,code\nnever,1\noften,2\n")
    for codes in ("never=1,often=2", "codes.csv"):
        result, text = describe("--codes", codes, "--missing", "-99")
        assert result.exit_code == 0
        assert "mean response 1.600" in text
        assert "Next: irtcat fit words.csv --codes never=1,often=2 --missing -99" in text
    Path("words.csv").write_text("student,q1,q2\nann,A,B\nbob,B,B\n")
    Path("key.csv").write_text("item,key\nQ1,A\nQ2,B\n")
    result, text = describe("--key", "key.csv")
    assert "mean response 0.750" in text
    assert "Next: irtcat fit words.csv --key key.csv" in text


# --- session ---------------------------------------------------------------------------------


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("IRTCAT_CACHE", "")
    assert cache_folder("jax") is None
    monkeypatch.setenv("IRTCAT_CACHE", str(tmp_path))
    assert cache_folder("jax") == tmp_path / "jax"
    monkeypatch.delenv("IRTCAT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("jax") == tmp_path / "irtcat" / "jax"


def test_a_cache_that_cannot_be_made_is_harmless(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("IRTCAT_CACHE", str(tmp_path / "file"))
    _command.use_compilation_cache()


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def shown_progress(monkeypatch):
    """Progress from the third tenth of a second on; what is written to a stream in two seconds."""

    def shown(stream):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(_progress, "DELAY", 0.3)
        monkeypatch.setattr(_progress, "FIRST_LINE", 0.5)
        token = _progress.IS_SHOWN.set(True)
        try:
            with _progress.progress("Compiling [all]") as report:
                report(1, 3, "seed 0")
                with _progress.progress("within") as inner:
                    inner(2, 3, "seed \x1b 1")
                time.sleep(2.0)
        finally:
            _progress.IS_SHOWN.reset(token)
        return stream.getvalue()

    return shown


def test_progress_on_a_terminal_is_a_line_with_the_time_left(shown_progress):
    text = shown_progress(Terminal())
    assert "seed \\x1b 1" in text
    assert re.search(r"\d:\d\d:\d\d", text)
    assert "left" in text
    assert "within" not in text


def test_progress_elsewhere_is_a_few_plain_lines(shown_progress):
    lines = shown_progress(io.StringIO()).splitlines()
    assert len(lines) == 3  # at 0.3, 0.6 and 1.2 s
    said = r"seed \\x1b 1 \(\d s, 2 of 3, about \d s left\)"
    assert all(re.fullmatch(said, line) for line in lines)


def test_progress_is_off_on_request_and_for_short_computations(monkeypatch, capsys):
    for is_shown, delay in ((False, 0.0), (True, 60.0)):
        token = _progress.IS_SHOWN.set(is_shown)
        monkeypatch.setattr(_progress, "DELAY", delay)
        with _progress.progress("x") as report:
            report(1, 3, "y")
            time.sleep(0.05)
        _progress.IS_SHOWN.reset(token)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_every_command_shows_progress(monkeypatch):
    monkeypatch.setattr(_progress, "DELAY", 0.0)
    monkeypatch.setenv("IRTCAT_PROGRESS", "1")
    assert "Calibrate items on the responses" in run("fit", LSAT7, "--json").stderr
    assert run("--no-progress", "fit", LSAT7, "--json").stderr == ""


@pytest.mark.slow
def test_fit_reads_a_file_in_passes():
    r = irtcat.datasets.load("lsat7")
    np.save("x.npy", r.values)
    passes, whole = run_json("fit", "x.npy", "--stream"), run_json("fit", LSAT7)
    assert passes["log_likelihood"] == pytest.approx(whole["log_likelihood"], abs=1e-4)
    assert [item["n_responses"] for item in passes["items"]] == [1000] * 5


def test_fit_goes_on_from_its_checkpoint(monkeypatch):
    whole = run_json("fit", LSAT7)
    actual = irtcat.fit

    def stopped(*args, progress, **kwargs):
        def tell(iteration, value, step):
            if iteration == 2:
                raise KeyboardInterrupt

        return actual(*args, progress=tell, **kwargs)

    monkeypatch.setattr(irtcat, "fit", stopped)
    result = run("fit", LSAT7, "--checkpoint", "state.npz")
    assert result.exit_code == 130
    assert result.stderr == "Interrupted. The state is in state.npz: continue with --resume.\n"
    monkeypatch.setattr(irtcat, "fit", actual)
    result = run("fit", LSAT7, "--checkpoint", "state.npz")
    assert result.exit_code == 1
    assert "Continue from it with --resume, or remove it." in result.stderr
    again = run_json("fit", LSAT7, "--checkpoint", "state.npz", "--resume")
    assert again["log_likelihood"] == pytest.approx(whole["log_likelihood"], rel=1e-12)
    assert again["n_iterations"] == whole["n_iterations"]
    assert run("fit", LSAT7, "--resume").exit_code == 2


def test_subset_files_keep_ids_that_look_like_gaps():
    Path("items.csv").write_text("item,weight\nNA,1\nnull,1\nNone,1\n007,1\n")
    assert _input.read_subset("items.csv").item_ids.tolist() == ["NA", "null", "None", "007"]


def test_a_seed_that_is_no_number_is_a_sentence():
    Path("items.csv").write_text("item,strategy,seed\na,random,soon\n")
    with pytest.raises(irtcat.InputError, match="a whole number of at least 0"):
        _input.read_subset("items.csv")


@pytest.mark.parametrize("option", [("--share", "0.2"), ("--tau", "0.1")])
def test_options_that_the_file_does_not_hold_leave_no_recipe(option):
    strategy = "robust" if option[0] == "--share" else "pclb"
    line = ["select", "-k", "3", "--responses", LSAT7, "--strategy", strategy]
    assert run(*line, "--out", "plain.csv").exit_code == 0
    assert run(*line, *option, "--out", "other.csv").exit_code == 0
    assert _input.read_subset("plain.csv").request is not None
    assert _input.read_subset("other.csv").request is None


def test_a_gap_is_refused_in_points():
    told = run("plan", LSAT7, "--gap", "200")
    assert told.exit_code == 2
    assert "200 is not a number of points" in told.output


@pytest.mark.slow
def test_columns_of_a_class_list(tmp_path):
    rows = [f"p{n},{'ab'[n % 2]},{n % 3 // 2},{n % 2},{n % 5 // 3},{n // 30}" for n in range(60)]
    path = tmp_path / "class.csv"
    path.write_text("\n".join(["pupil,Class,q1,q2,q3,q4", *rows]))
    refused = run("fit", path, "--out", tmp_path / "bank.npz")
    assert refused.exit_code == 1
    assert "leave it out with --ignore, or keep it as a column of the subjects with --subject-" in (
        " ".join(refused.stderr.split())
    )
    done = run("fit", path, "--subject-columns", "Class", "--out", tmp_path / "bank.npz")
    assert done.exit_code == 0
    assert "--subject-columns Class" in done.stdout
    wrong = run("describe", path, "--ignore", "Class,Klass")
    assert wrong.exit_code == 1
    assert "The --ignore option must be names of columns" in wrong.stderr


def test_a_mapping_is_not_an_option(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("\n".join(["subject,q1,q2", *(f"p{n},{n % 3},{n % 2}" for n in range(30))]))
    refused = run("fit", path, "--out", tmp_path / "bank.npz")
    assert refused.exit_code == 1
    assert refused.stderr.rstrip().endswith("give each its own: --models.")


@pytest.mark.slow
def test_judges_on_the_command_line():
    rng = np.random.default_rng(0)
    right = rng.random((2, 60)) < 0.6
    rows = [
        (f"m{m}", f"q{i}", f"judge {j}", int(right[m, i] ^ (rng.random() < 0.1)))
        for m in range(2)
        for i in range(60)
        for j in range(3)
    ]
    table = pd.DataFrame(rows, columns=["model", "item", "judge", "score"])
    table.to_csv("judged.csv", index=False)
    data = irtcat.Responses.from_long(table, facets=["judge"])
    document = run_json("diagnose", "judges", "judged.csv")
    found = irtcat.diagnose.judges(data)
    assert document["alpha"] == pytest.approx(found.alpha)
    assert [row["judge"] for row in document["judges"]] == ["judge 0", "judge 1", "judge 2"]
    text = run_ok("diagnose", "judges", "judged.csv", "--force")
    assert "3 judges agree with an alpha" in text
    assert "Noise of mean scores by the number of judges" in text
    assert "Noise of decisions by majority" in text
    assert "Pairs of judges" in text
    verdict = run_json("compare", "judged.csv", "--judges", "judge")
    expected = irtcat.compare(None, None, data, judges="judge")
    assert verdict["difference"] == pytest.approx(expected.difference)
    assert verdict["se"] == pytest.approx(expected.se)
    assert run("compare", "judged.csv", "--judges", "rater", "--force").exit_code == 1
    assert run("diagnose", "judges", "judged.csv", "--judge", "rater", "--force").exit_code == 1


@pytest.mark.slow
def test_reruns_and_judges_of_one_table():
    """Answers by epoch, each judged by two raters; the column is found by its name."""
    rng = np.random.default_rng(1)
    right = rng.random((2, 30, 3)) < rng.random((2, 30, 1))
    rows = [
        (f"m{m}", f"q{i}", t + 1, f"r{j}", int(right[m, i, t] ^ (rng.random() < 0.1)))
        for m in range(2)
        for i in range(30)
        for t in range(3)
        for j in range(2)
    ]
    table = pd.DataFrame(rows, columns=["model", "item", "epoch", "rater", "score"])
    table.to_csv("both.csv", index=False)
    data = irtcat.Responses.from_long(table, facets="rater")
    document = run_json("diagnose", "reruns", "both.csv")
    assert document["noise_floor"] == pytest.approx(irtcat.diagnose.reruns(data).noise_floor)
    assert any("means over the facets" in flag for flag in document["flags"])
    judged = run_json("diagnose", "judges", "both.csv")
    sources = {row["source"]: row["variance"] for row in judged["components"]}
    assert sources["answer"] > 0.1
    again = run_json("diagnose", "judges", "both.csv", "--repeats", "judgements", "--force")
    assert {row["source"]: row["variance"] for row in again["components"]}["answer"] is None
    data.save("both.npz")
    saved = run_json("diagnose", "judges", "both.npz", "--judge", "rater", "--force")
    assert saved["components"] == judged["components"]
    plain = table.drop_duplicates(["model", "item", "epoch"])
    plain.to_csv("plain.csv", index=False)
    words = ("diagnose", "reruns", "plain.csv", "--trial", "epoch", "--ignore", "rater", "--force")
    assert not any("facets" in flag for flag in run_json(*words)["flags"])


JUDGED = pd.DataFrame(
    [
        (f"m{m}", f"q{i}", f"j{j}", (m + i + j * (i > 3)) % 2)
        for m in range(2)
        for i in range(6)
        for j in range(2)
    ],
    columns=["model", "item", "judge", "score"],
)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            JUDGED[JUDGED["judge"] == "j0"],
            "bad.csv, line 2, column 3 ('judge'): The RESPONSES argument must be judgements by two "
            "judges or more. Got 'j0 alone'.",
        ),
        (
            JUDGED[(JUDGED["judge"] == "j0") == JUDGED["item"].isin(["q0", "q1", "q2"])],
            "bad.csv, line 2, column 3 ('judge'): The RESPONSES argument must be judgements of the "
            "same answers by two judges. Got 'j0 and the others, who judged different answers'.",
        ),
        (
            pd.concat([JUDGED, JUDGED[:1].assign(score=1 - JUDGED["score"][0])]),
            "line 26, column 4 ('score'): expected the same response as before.",
        ),
        (
            JUDGED.assign(score=JUDGED["score"].where(JUDGED["score"] < 1, 7.5)),
            "column 4 ('score'): expected fractions within [0, 1], or of integer codes only. Got "
            "'7.5'.",
        ),
        (
            JUDGED.drop(columns="judge"),
            "bad.csv: expected a column that says who judged. Name it with --judge.",
        ),
        (JUDGED.replace({"judge": {"j1": None}}), "line 3, column 3 ('judge'): expected an id"),
    ],
    ids=["one judge", "other items", "twice", "range", "no judge", "unknown judge"],
)
def test_judgements_that_say_nothing(table, sentence):
    table.to_csv("bad.csv", index=False)
    refused = run("diagnose", "judges", "bad.csv", "--force")
    assert refused.exit_code == 1
    assert sentence in " ".join(refused.stderr.split())


def test_a_judge_of_one_answer_is_named():
    pd.concat([JUDGED, JUDGED[:1].assign(judge="j2")]).to_csv("bad.csv", index=False)
    result = run("diagnose", "judges", "bad.csv", "--force")
    assert result.exit_code == 0
    sentence = (
        "bad.csv, line 26, column 3 ('judge'): 'j2' shares 1 answer with other judges: its "
        "severity is not known."
    )
    assert sentence in " ".join(result.stderr.split())


def test_scores_of_groups_are_written():
    data = irtcat.datasets.load("lsat7")
    topic = ["a", "b", "b", "a", "b"]
    table = pd.DataFrame({"item": data.item_ids, "topic": topic})
    table.to_csv("topics.csv", index=False)
    table[["item"]].iloc[:3].to_csv("few.csv", index=False)
    line = ("predict", LSAT7, "few.csv", LSAT7, "--items", "topics.csv", "--groups", "topic")
    document = run_json(*line, "--weights", "equal", "--out", "p.csv", "--estimator", "mean")
    written = pd.read_csv("p.csv", index_col=0)
    assert list(written)[-6:] == [f"{n}_{g}" for g in "ab" for n in ("score", "lower", "upper")]
    expected = irtcat.predict(
        data, data.item_ids[:3], data, groups=topic, weights="equal", estimator="mean"
    )
    assert [row["score"] for row in document["subjects"]] == pytest.approx(expected.score.tolist())
    wide = expected.groups.set_index(["group", "subject"])["score"]
    np.testing.assert_allclose(written["score_b"], wide["b"].loc[written.index])

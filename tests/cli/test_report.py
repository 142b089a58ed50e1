"""``irtcat report`` and ``irtcat plot``: what they read, write and refuse."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from irtcat import ItemBank
from irtcat.cli._app import app

runner = CliRunner()


@pytest.fixture(autouse=True)
def _results(tmp_path, monkeypatch):
    """A folder with a bank and tables."""
    monkeypatch.chdir(tmp_path)
    ItemBank.from_parameters(a=[1.0, 2.0, 1.5], b=[-1.0, 0.0, 1.0]).save("bank.npz")
    scores = pd.DataFrame({"subject": ["x", "y"], "theta": [0.1, 0.9], "se": [0.3, 0.4]})
    scores.to_csv("scores.csv", index=False)
    rows = [("random", "mean", k, 0.5 + k / 100) for k in (10, 30)]
    board = pd.DataFrame(rows, columns=["strategy", "estimator", "n_items", "kendall"])
    board.assign(seed=0).to_csv("board.csv", index=False)
    groups = {
        "subject": ["x", "y"],
        "score": [0.7, 0.6],
        "lower": 0.5,
        "upper": 0.8,
        "rank_lower": 1,
        "rank_upper": 2,
        "letters": "a",
    }
    pd.DataFrame(groups).to_csv("groups.csv", index=False)


def run(*arguments):
    return runner.invoke(app, list(arguments))


def test_report():
    result = run("report", "bank.npz", "scores.csv", "--out", "r.html", "--title", "Mine", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [each["kind"] for each in told["results"]] == ["bank", "scores"]
    with open("r.html", encoding="utf-8") as file:
        page = file.read()
    assert told["bytes"] == len(page.encode()) and "<h1>Mine</h1>" in page  # noqa: PT018


TABLES = {
    "plan": "design,n_items,lower,upper,n_items_typical,n_items_hard,share,margin\n"
    "random,39,38,39,39,42,0.6,11\n",
    "link": "item,difference,rmsd,robust_z,used,outlier\nq1,0.0,0.0,0.0,True,False\n",
    "kept": "item,value\nq1,0.3\n",
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_other_commands(kind):
    with open("table.csv", "w", encoding="utf-8") as file:
        file.write(TABLES[kind])
    result = run("report", "table.csv", "--out", "r.html", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["results"][0]["kind"] == kind


def test_report_refuses_what_it_cannot_read():
    result = run("report", "bank.npz", "nowhere.csv", "--out", "r.html")
    assert result.exit_code == 1
    assert "nowhere.csv: there is no such file or folder." in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("bank.npz",),
        ("bank.npz", "--what", "information", "--items", "i1,i2"),
        ("board.csv", "--metric", "kendall"),
        ("scores.csv",),
        ("groups.csv",),
    ],
)
def test_plot(arguments, tmp_path):
    for suffix in ("png", "svg"):
        result = run("plot", *arguments, "--out", f"figure.{suffix}")
        assert result.exit_code == 0, result.output
        assert (tmp_path / f"figure.{suffix}").stat().st_size > 1000


def test_plot_draws_to_its_default_file_under_json_too(tmp_path):
    result = run("plot", "scores.csv", "--json")
    assert json.loads(result.stdout)["out"] == "figure.svg"
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    assert run("plot", "scores.csv", "--json").exit_code == 1  # it exists


def test_plot_refuses():
    wrong = "board.csv --items i1", "bank.npz --metric mae", "scores.csv --estimator mean"
    for unfit in map(str.split, (*wrong, "board.csv --scale x")):
        result = run("plot", *unfit, "--out", "f.png")
        assert result.exit_code == 2
        assert f"{unfit[1]}: does not apply to" in result.output
    pd.DataFrame({"item": ["i1"], "weight": [1.0]}).to_csv("items.csv", index=False)
    result = run("plot", "items.csv", "--out", "f.png")
    assert result.exit_code == 1
    assert "figures exist for" in result.stderr
    assert run("plot", "bank.npz", "--what", "ranking", "--out", "f.png").exit_code == 2
    assert run("plot", "bank.npz", "--out", "f.txt").exit_code == 1

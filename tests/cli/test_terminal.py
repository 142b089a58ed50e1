"""Ids go to terminals as text: nothing in them is obeyed, and in errors they are short."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import irtcat
from irtcat import InputError
from irtcat._common.checks import brief, shorten, visible
from irtcat._files.csv import read_csv, write_csv
from irtcat.cli._app import app

IDS = [
    "\x1b[31mred",
    "\x9b31mred",
    "a\u202eb",
    "two\nlines",
    "\x07bell\r",
    "[bold]x[/bold]",
    ":smile:",
    "\u2066iso\u2069",
    "q\x7f",
    "=1+1",
    "x" * 500,
    "plain",
]
OBEYED = "\x1b\x9b\u202e\u2066\u2069\x07\r\x7f"

runner = CliRunner()


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).integers(0, 2, (30, len(IDS)))
    irtcat.Responses.from_array(values, item_ids=IDS).save("r.npz")
    write_csv(pd.DataFrame({"item": IDS}), "all.csv")


def run(*arguments):
    result = runner.invoke(app, [str(each) for each in arguments])
    assert not set(OBEYED) & set(result.output), repr(result.output)
    return result


@pytest.mark.slow
def test_tables_show_every_id_as_it_is_written():
    line = ("select", "--responses", "r.npz", "--strategy", "random", "-k", 6, "--force", "--seed")
    shown = "".join(run(*line, seed).stdout for seed in range(9))
    for each in IDS:
        assert visible(each) in shown
    assert "[bold]x[/bold]" in shown
    assert ":smile:" in shown
    document = json.loads(
        run("select", "--responses", "r.npz", "--strategy", "random", "-k", 12, "--json").stdout
    )
    assert {each["item"] for each in document["items"]} == set(IDS)


def test_exported_ids_are_exact_in_files_and_pipes(monkeypatch):
    ids = [each for each in IDS if "\n" not in each and "\r" not in each]
    write_csv(pd.DataFrame({"item": ids}), "few.csv")
    result = runner.invoke(app, ["export", "few.csv"])
    assert result.stdout.split("\n")[:-1] == ids
    monkeypatch.setattr("irtcat.cli.export.to_terminal", lambda: True)
    run("export", "few.csv")  # to a file: no id is obeyed
    assert Path("ids.txt").read_bytes().decode().split("\n")[:-1] == ids


@pytest.mark.slow
@pytest.mark.parametrize("bad", IDS)
def test_errors_name_ids_in_at_most_80_characters(bad):
    write_csv(pd.DataFrame({"item": [bad, "q2"]}), "few.csv")
    write_csv(pd.DataFrame({"item": [bad, bad], "task": "t"}), "twice.csv")
    write_csv(pd.DataFrame({"item": ["other"], "task": "t"}), "other.csv")
    for line in (
        ("export", "few.csv", "--to", "lm-eval"),
        ("export", "few.csv", "--to", "lm-eval", "--task", "quiz"),
        ("export", "few.csv", "--to", "ids", "--items", "other.csv"),
        ("export", "few.csv", "--to", "ids", "--items", "twice.csv"),
        ("predict", "r.npz", "few.csv", "r.npz"),
    ):
        result = run(*line)
        assert result.exit_code == 1, line
        assert result.stderr.count("\n") == 1
        assert "x" * 81 not in result.stderr


def test_usage_errors_and_file_names_are_visible_too():
    bad = "\x1b[31m"
    for line in (
        (bad,),
        (f"--{bad}",),
        ("fit", "r.npz", f"--{bad}", "2"),
        ("fit", "r.npz", bad),
        ("export", "all.csv", "--to", bad),
    ):
        assert run(*line).exit_code == 2, line
    result = run("fit", f"no{bad}file.csv")
    assert result.exit_code == 1
    assert "no\\x1b[31mfile.csv" in result.stderr


def test_spreadsheets_run_nothing_that_select_wrote():
    line = ["select", "--responses", "r.npz", "--strategy", "random", "-k", len(IDS), "-f", "--out"]
    assert run(*line, "few.csv").exit_code == 0
    assert '"=1+1"' not in Path("few.csv").read_text()
    assert set(read_csv("few.csv", dtype={"item": str})["item"]) == set(IDS)
    assert (
        runner.invoke(
            app, ["export", "few.csv", "--to", "every-eval-ever", "--task", "t"]
        ).exit_code
        == 0
    )
    assert run("--no-csv-escape", *line, "raw.csv").exit_code == 0
    assert '"=1+1"' in Path("raw.csv").read_text()
    assert run(*line, "again.csv").exit_code == 0  # the option is of one call
    assert Path("again.csv").read_text() == Path("few.csv").read_text()


def test_a_folder_with_files_of_somebody_else_is_refused(monkeypatch):
    irtcat.ItemBank.from_parameters(b=[0.0, 1.0]).save("bank.npz")
    os.mkdir("out")
    for command, name in (
        (("simulate", "bank.npz"), "summary.csv"),
        (("scale", "r.npz", "--two-factors", "skip"), "items.csv"),
    ):
        Path(f"out/{name}").write_text("mine")
        result = run(*command, "--out", "out")
        assert (result.exit_code, os.listdir("out")) == (1, [name])
        assert f"out/{name}: this is not a file that irtcat wrote" in result.stderr
        os.remove(f"out/{name}")


def test_words_for_sentences():
    assert brief("x" * 100) == "x" * 76 + " ..."
    assert len(shorten(["x" * 100, "y" * 100])) == 2 * 80 + 2
    assert str(InputError("a\x1b[0m\nb\u202e é 日本")) == "a\\x1b[0m\\nb\\u202e é 日本"
    assert visible("ab\n", keep="\n") == "ab\n"

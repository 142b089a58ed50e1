"""The commands for adaptive tests; their examples run with those of all commands."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from irtcat import ItemBank
from irtcat._files.folders import OutputFolder
from irtcat.cat import Config, Store, run
from irtcat.cli._app import app
from irtcat.cli.simulate import read_part

ROOT = Path(__file__).parents[2]
BANK = ItemBank.from_parameters(a=1.5, b=[-1.0, -0.5, 0.0, 0.5, 1.0])


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BANK.save("bank.npz")

    def run_command(*arguments, code=0):
        result = CliRunner().invoke(app, ["session", *map(str, arguments)])
        assert result.exit_code == code, result.output
        return result

    return run_command


def test_a_session_by_commands(call):
    """Each command is a process of its own; together they are `run`."""
    say = ("--store", "s.db", "--json")
    at = json.loads(
        call("start", "bank.npz", "--id", "a", "--stop", "n>=3", "--seed", 1, *say).stdout
    )
    while not at["over"]:
        value = int(at["asked"][0] != "i4")
        at = json.loads(call("answer", at["asked"][0], value, "--id", "a", *say).stdout)
    known = json.loads(call("status", "--id", "a", *say).stdout)
    plain = run(BANK, Config(stopping="n>=3"), lambda item: int(item != "i4"))
    assert known["theta"] == plain.estimate()["theta"]
    assert [row["item"] for row in known["answers"]] == plain.to_frame().index.tolist()
    assert at["reason"] == "length"
    assert json.loads(call("list", *say).stdout)["sessions"][0]["answers"] == 3
    refused = call("answer", "i5", 1, "--id", "a", *say, code=1)
    assert refused.stderr.startswith("Error: The ITEM argument must be an item that was asked")
    assert refused.stderr.count("\n") == 1
    call("status", "--id", "b", *say, code=1)
    call("status", "--id", "a", "--store", "none.db", code=1)


def test_nothing_is_made_of_what_cannot_be_used(call, tmp_path):
    """An unusable bank or configuration is said before the store's file is made."""
    (tmp_path / "noise.npz").write_bytes(b"x" * 100)
    (tmp_path / "rules.json").write_text(json.dumps({"group": "topic", "max_items": 2}))
    for wrong in (
        ("none.npz",),
        ("noise.npz",),
        ("bank.npz", "--max-items", 99),
        ("bank.npz", "--config", "rules.json"),
        ("bank.npz", "--stop", "n>=2", "--exposure", "restricted:rate=5"),
        ("bank.npz", "--stop", "n>=2", "--prior", 0, -1),
        ("bank.npz", "--stop", "n>=2", "--id", ""),
        ("bank.npz", "--stop", "n>=2", "--id", "a\nb"),
        ("bank.npz", "--stop", "n>=2", "--subject", "a\x1bb"),
    ):
        told = call("start", *wrong, "--store", "s.db", code=1)
        assert told.stderr.startswith("Error: ")
        assert told.stderr.count("\n") == 1
        assert not list(tmp_path.glob("s.db*"))


def test_faults_of_a_store(call, tmp_path):
    """A damaged store or another program's file: one sentence on stderr, the file untouched."""
    call("start", "bank.npz", "--id", "a", "--stop", "n>=3", "--store", "s.db")
    db = sqlite3.connect(tmp_path / "s.db")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    whole = (tmp_path / "s.db").read_bytes()
    head = whole.index(b'"format": "irtcat-session"')
    sqlite3.connect(tmp_path / "theirs.db").execute("CREATE TABLE t (x)").connection.close()
    faults = {
        "cut.db": whole[: len(whole) // 2],
        "noise.db": b"x" * 5000,
        "overwritten.db": whole[:head] + b"\0" * 40 + whole[head + 40 :],
        "theirs.db": (tmp_path / "theirs.db").read_bytes(),
        "empty.db": b"",
    }
    for name, data in faults.items():
        (tmp_path / name).write_bytes(data)
        told = call("status", "--id", "a", "--store", name, code=1)
        assert told.stderr.startswith(f"Error: {name}: ")
        assert told.stderr.count("\n") == 1
        assert (tmp_path / name).read_bytes() == data


@pytest.mark.slow
def test_answers_are_timed_and_stores_sealed_by_commands(call, tmp_path, monkeypatch):
    """The key comes from a file or the environment; never from an argument's value."""
    (tmp_path / "key").write_text("a long secret\n")
    start = ("start", "bank.npz", "--id", "a", "--stop", "seconds>=60 or n>=4", "--store", "s.db")
    sealed = ("--store", "s.db", "--key-file", "key", "--json")
    at = json.loads(call(*start, "--key-file", "key", "--json").stdout)
    call("answer", at["asked"][0], 1, "--id", "a", *sealed)
    for wrong, says in (((), "made with a key"), (("--key-file", "bank.npz"), "another key")):
        told = call("next", "--id", "a", "--store", "s.db", *wrong, code=1)
        assert says in told.stderr
        assert "secret" not in told.output
    monkeypatch.setenv("IRTCAT_STORE_KEY", "a long secret")
    at = json.loads(call("next", "--id", "a", "--store", "s.db", "--json").stdout)
    at = json.loads(call("answer", at["asked"][0], 1, "--id", "a", "--seconds", 70, *sealed).stdout)
    assert (at["over"], at["reason"]) == (True, "time")
    with Store(tmp_path / "s.db", key="a long secret") as store:
        seconds = [e["seconds"] for e in store.resume("a").events if e["kind"] == "answer"]
    assert 0 < seconds[0] < 60
    assert seconds[1] == 70
    report = CliRunner().invoke(app, ["report", "bank.npz", "s.db", "--out", "page.html"])
    assert report.exit_code == 0, report.output
    (tmp_path / "empty").write_bytes(b"\n")
    for wrong in ("empty", "none"):
        told = call("list", "--store", "s.db", "--key-file", wrong, code=1)
        assert told.stderr.startswith(f"Error: {wrong}: ")


INTERRUPTED = """
import os, signal, sys, threading, time
from irtcat.cat.studies import blocks
from irtcat.cli import main
when, sys.argv[1:] = sys.argv[1], sys.argv[2:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
plain = blocks.run_block
def simulated(*a, **k):  # Ctrl-C comes while the second block is computed
    simulated.calls += 1
    if when == "computing" and simulated.calls == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return plain(*a, **k)
simulated.calls = 0
blocks.run_block = simulated
if when == "writing":
    import irtcat._files.csv as module
    plain_bytes, calls = module.csv_bytes, []
    def slowly(table):
        calls.append(table)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        return plain_bytes(table)
    module.csv_bytes = slowly
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", [pytest.param("computing", marks=pytest.mark.slow), "writing"])
@pytest.mark.parametrize("out", [pytest.param("new/deep", marks=pytest.mark.slow), "old"])
def test_an_interrupted_simulation_leaves_nothing(call, tmp_path, when, out):
    """One sentence, exit code 130, and no table: not even those that were written already."""
    old = OutputFolder(tmp_path / "old", "simulate")
    old.add(["sessions.csv"])
    (tmp_path / "old" / "sessions.csv").write_text("old")
    line = ["simulate", "bank.npz", "--n", "5000", "--stop", "n>=3", "--out", out]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, when, *line],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    kept = "Nothing was written; repeat the command to start again."
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == f"Interrupted. {kept}\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bank.npz", "old"]
    assert {p.name for p in (tmp_path / "old").iterdir()} == {"manifest.json", "sessions.csv"}
    assert (tmp_path / "old" / "sessions.csv").read_text() == "old"


def test_words():
    assert read_part("randomesque:k=5") == {"name": "randomesque", "k": 5}
    assert read_part("restricted:rate=0.2")["rate"] == 0.2


@pytest.mark.slow
def test_several_abilities(call, tmp_path):
    """Served by both commands; rules for one ability are refused in one sentence, no file made."""
    slopes = [[1.5, 0.0], [0.0, 1.5], [1.0, 1.0], [1.2, 0.3], [0.3, 1.2], [0.8, 0.8]]
    ItemBank.from_slopes(slopes, correlations=[[1, 0.5], [0.5, 1]]).save("two.npz")
    refused = call("start", "two.npz", "--store", "s.db", code=1)
    assert "for a bank of 2 abilities. Got 'mfi'." in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not list(tmp_path.glob("s.db*"))
    rules = ("--criterion", "d-optimal", "--stop", "se<0.2 or n>=3")
    call("start", "two.npz", "--id", "a", *rules, "--store", "s.db")
    at = json.loads(call("next", "--id", "a", "--why", "--store", "s.db", "--json").stdout)
    call("answer", at["asked"][0], 1, "--id", "a", "--store", "s.db")
    known = json.loads(call("status", "--id", "a", "--store", "s.db", "--json").stdout)
    assert len(known["theta"]) == len(known["se"]) == 2
    assert "theta_2" in known["answers"][0]
    assert call("status", "--id", "a", "--store", "s.db").stdout.count("(SE ") == 2
    line = ["simulate", "two.npz", "--n", "20", *rules, "--json"]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["ended_by"]["length"] == 20
    assert {"rmse_1", "rmse_2"} <= set(told["summary"])

"""Damaged files: every reader refuses them with a sentence, or reads what an independent one does.

The harness and the table of readers are those of experiments/robustness.
"""

import importlib
import io
import json
import random
import sqlite3
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "experiments" / "robustness"


@pytest.fixture(scope="module")
def harness():
    """Import a module of the experiment by its name; what workers import is found there as well."""
    added = [str(FOLDER), str(HERE)]
    sys.path[:0] = added
    yield importlib.import_module
    for path in added:
        sys.path.remove(path)


@pytest.mark.slow
def test_every_reader_on_two_thousand_mutants(harness):
    """No other exception, no hang, no memory out of proportion, no value that the file lacks."""
    fuzz, readers = harness("fuzz"), harness("readers")
    counts = fuzz.shares(readers, 2000, list(readers.READERS))
    found = fuzz.run(counts, processes=1, base=11)
    assert len(found) == 2000
    bad = [each for each in found if each.outcome in fuzz.FAILURES]
    told = "\n".join(f"{e.reader}:{e.number} {e.outcome}: {e.detail}" for e in bad[:20])
    assert not bad, f"{len(bad)} failures (fuzz.py --seed 11 --replay READER:NUMBER)\n{told}"
    kinds = {each.outcome for each in found}
    assert kinds == {"refused", "accepted"}  # neither is always the answer


@pytest.mark.slow
def test_planted_faults_are_found(harness, tmp_path):
    fuzz = harness("fuzz")
    limits = fuzz.Limits(seconds=0.5, megabytes=100)
    counts = {
        **dict.fromkeys(("refuses", "accepts", "raises", "changes", "edits"), 8),
        "hangs": 3,
        "dies": 2,
        "allocates": 2,
    }
    found = fuzz.run(counts, table="planted", processes=1, limits=limits, keep=tmp_path)
    assert [(each.reader, each.number) for each in found] == [
        (name, number) for name, count in counts.items() for number in range(count)
    ]

    def outcomes(name):
        return [each.outcome for each in found if each.reader == name]

    assert outcomes("refuses") == ["accepted", *["refused"] * 7]
    assert outcomes("accepts") == ["accepted"] * 8
    assert outcomes("raises") == ["foreign"] * 8
    assert outcomes("changes").count("changed") >= 6  # some mutants are of three characters
    assert outcomes("edits") == ["accepted", *["changed"] * 7]
    assert outcomes("hangs") == ["accepted", "hang", "hang"]
    assert outcomes("dies") == ["accepted", "foreign"]
    assert outcomes("allocates") == ["accepted", "expansion"]
    (row,) = [row for row in fuzz.tabulate(found) if row["reader"] == "all"]
    assert [row[kind] for kind in fuzz.FAILURES] == [
        9,
        2,
        1,
        7 + outcomes("changes").count("changed"),
    ]
    copy = tmp_path / "edits-3" / "seed.txt"  # what failed can be looked at
    seed = tmp_path / "edits-0" / "0" / "seed.txt"
    seed.parent.mkdir(parents=True)
    seed.write_text("one\ntwo\n")
    again = fuzz.make_mutant(tmp_path / "m", [seed], 3, "edits", 0)
    assert copy.read_bytes() == again.main.read_bytes()


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def archive():
    out = io.BytesIO()
    np.savez(out, X=np.eye(3, dtype=np.int8), items=["a", "b", "c"], meta=np.array('{"a": [1]}'))
    return out.getvalue()


def database(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE meta (format TEXT, version INTEGER)")
        db.execute("CREATE TABLE rows (id TEXT NOT NULL, document TEXT, data BLOB)")
        db.execute("INSERT INTO meta VALUES ('x', 1)")
        db.execute("INSERT INTO rows VALUES ('a', '{\"k\": [1, 2]}', x'00ff')")
    db.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A small sound file of every kind."""
    lines = [json.dumps({"id": n, "scores": {"acc": 0.5, "right": n > 0}}) for n in range(3)]
    table = b"subject,q1,q2\na,1,0\nb,0,\n"
    parquet = io.BytesIO()
    pytest.importorskip("pyarrow")
    import pandas as pd

    pd.DataFrame({"subject": ["a", "b"], "q1": [1, 0]}).to_parquet(parquet)
    return {
        "": b"some bytes",
        "text": table,
        "csv": table,
        "json": json.dumps(json.loads(lines[1]), indent=1).encode(),
        "jsonl": "\n".join(lines).encode(),
        "npy": npy(np.arange(6.0).reshape(2, 3)),
        "zip": archive(),
        "db": database(tmp_path_factory.mktemp("db") / "x.db"),
        "parquet": parquet.getvalue(),
    }


@pytest.mark.slow
def test_mutators(harness, sound, monkeypatch):
    """Each changes something of its kind of file, and the same under the same seed."""
    mutators = harness("mutators")
    monkeypatch.setattr(mutators, "BOMB", 2**22)
    assert sound.keys() == mutators.MUTATORS.keys()
    only = {"npy_json": npy(np.array('{"a": [1, {"b": null}]}'))}
    for kind, table in mutators.MUTATORS.items():
        for name, change in table.items():
            data = only.get(name.removesuffix("_2").removesuffix("_3"), sound[kind])
            made = []
            for seed in range(12):
                try:
                    made.append(change(data, random.Random(seed)))
                except mutators.NotApplicableError:
                    made.append(data)
            assert all(isinstance(each, bytes) for each in made)
            assert any(each != data for each in made), name
            assert max(map(len, made)) < 2**22, name
            for seed in (0, 5):
                try:
                    assert change(data, random.Random(seed)) == made[seed], name
                except mutators.NotApplicableError:
                    assert made[seed] == data, name


def test_a_bomb_is_one(harness, sound, monkeypatch):
    mutators = harness("mutators")
    monkeypatch.setattr(mutators, "BOMB", 2**22)
    mutators._zeros.cache_clear()
    sizes = []
    for seed in range(60):
        data = mutators.zip_bomb(sound["zip"], random.Random(seed))
        assert len(data) < 2**16
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as file:
                sizes.append(max(len(file.read(each)) for each in file.infolist()))
        except Exception:  # one whose headers lie: zipfile has many ways to say it
            continue
    mutators._zeros.cache_clear()
    assert max(sizes) >= 2**22

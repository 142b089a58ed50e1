"""Files that commit df22f9f wrote (by `make.py.txt`, run in a checkout of it) are read today."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from irtcat import ItemBank, Responses, fit, predict, score
from irtcat._checks import InputError
from irtcat.cat import Config, Session, Store
from irtcat.cli._input import read_subset
from irtcat.cli.upgrade import command as upgrade
from irtcat.harness import evaluate
from irtcat.training import crowd

FILES = Path(__file__).parent / "df22f9f"
EXPECTED = json.loads((FILES / "expected.json").read_text())
ANSWERS = {"2pl": "data", "graded": "codes", "m2pl": "two", "bifactor": "two"}


@pytest.fixture
def files(tmp_path):
    """A copy: opening a store brings it to the present version."""
    return shutil.copytree(FILES, tmp_path / "files")


@pytest.fixture(scope="module")
def inputs():
    with np.load(FILES / "inputs.npz") as arrays:
        return dict(arrays)


def bank(name="2pl"):
    return ItemBank.load(FILES / f"bank_{name}.npz")


@pytest.mark.parametrize("name", list(ANSWERS))
def test_banks(name, inputs):
    loaded = bank(name)
    np.testing.assert_array_equal(loaded.parameters()[:2], EXPECTED["parameters"][name])
    theta = score(loaded, Responses.from_array(inputs[ANSWERS[name]])).theta[:5]
    np.testing.assert_allclose(theta, EXPECTED["theta"][name], atol=1e-10)


def test_subsets(inputs):
    data = Responses.from_array(inputs["data"])
    subset = read_subset(str(FILES / "subset.csv"))
    told = predict(data, subset, data.subset(subjects=np.arange(5)), estimator="mean")
    np.testing.assert_allclose(told.score, EXPECTED["predicted"], atol=1e-12)


def test_stores(files):
    with Store(files / "sessions.db") as store:
        for name, logged in EXPECTED["sessions"].items():
            session = store.resume(name)
            assert [
                e.get("item", e.get("items", e.get("reason"))) for e in session.events
            ] == logged
            assert session.config.theta_bounds == (-5, 5)
            assert session.config.method == "map"
        counts = store.counts(bank(), session.config)
        asked = [e["items"] for n in EXPECTED["sessions"] for e in store.resume(n).events
                 if e["kind"] == "ask"]  # fmt: skip
        assert np.asarray(counts.administered).sum() == sum(map(len, asked))
        session.answer(session.asked[0], 1)
        store.check()


def test_sessions_without_a_digest_are_upgraded(files):
    path = files / "session.json"
    with pytest.raises(InputError, match="irtcat upgrade"):
        Session.from_json(bank(), json.loads(path.read_text()))
    upgrade(path)
    assert Session.from_json(bank(), json.loads(path.read_text())).asked == EXPECTED["asked"]
    with pytest.raises(InputError, match="a digest already"):
        upgrade(path)


def test_evaluations_are_upgraded_and_go_on(files):
    asked = []

    def answer(items):
        asked.extend(item.id for item in items)
        return [(item.id, 1) for item in items]

    answer.__qualname__ = "answer"  # as in the script that made the files

    def run():
        out = files / "evaluation"
        return evaluate(bank(), answer, Config(max_items=6), name="model", out=out)

    with pytest.raises(InputError, match="irtcat upgrade"):
        run()
    upgrade(files / "evaluation")
    assert run().n_items == 6
    assert len(asked) == 3
    with pytest.raises(InputError, match="already"):
        upgrade(files / "evaluation")


def test_crowds_are_upgraded_and_go_on(files, inputs, monkeypatch):
    def nearest(X_train, y_train, X, seed):
        centres = np.stack([X_train[y_train == k].mean(axis=0) for k in range(2)])
        return ((X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)

    nearest.__module__, nearest.__qualname__ = "__main__", "nearest"

    def build():
        data, folder = (inputs["X"], inputs["y"]), files / "crowd"
        return crowd.build(nearest, data, 6, size=(0.3, 0.6), seed=4, folder=folder)

    with pytest.raises(InputError, match="irtcat upgrade"):
        build()
    upgrade(files / "crowd")
    (files / "crowd" / "member-000006.npz").unlink()
    np.testing.assert_array_equal(build().responses().values, EXPECTED["crowd"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("session.json", "", "expected JSON"),
        ("session.json", '{"format": "irtcat-session", "version": 1}', "damaged; it has no 'id'"),
        ("evaluation/run.json", '{"format": "irtcat-evaluation", "version": 1}', "no 'model'"),
        ("crowd/crowd.json", "{}", "not of the format"),
        ("crowd/member-000002.npz", "x", "000002.npz: damaged"),
    ],
)
def test_damaged_files_are_refused_and_left(files, name, content, message):
    (files / name).write_text(content)
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=message):
        upgrade(files / name if name == "session.json" else (files / name).parent)
    assert {path: path.read_bytes() for path in files.rglob("*") if path.is_file()} == before


def test_checkpoints_are_refused(files, inputs):
    data = Responses.from_array(inputs["data"])
    with pytest.raises(InputError, match="not a checkpoint of this version"):
        fit(data, "3pl", checkpoint=files / "checkpoint.npz", resume=True)

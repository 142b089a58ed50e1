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
        assert np.asarray(counts.given).sum() == sum(map(len, asked))
        session.answer(session.asked[0], 1)
        store.check()


def test_sessions_without_a_digest_are_refused():
    document = json.loads((FILES / "session.json").read_text())
    with pytest.raises(InputError, match="without digest"):
        Session.from_json(bank(), document)


def test_what_cannot_be_gone_on_with_is_refused(files, inputs):
    def answer(items):
        raise AssertionError

    with pytest.raises(InputError, match="older versions"):
        evaluate(bank(), answer, Config(max_items=6), name="model", out=files / "evaluation")
    data = Responses.from_array(inputs["data"])
    with pytest.raises(InputError, match="not a checkpoint of this version"):
        fit(data, "3pl", checkpoint=files / "checkpoint.npz", resume=True)
    with pytest.raises(InputError, match="not a crowd of this version"):
        crowd.build(answer, (inputs["X"], inputs["y"]), 6, size=(0.3, 0.6), folder=files / "crowd")

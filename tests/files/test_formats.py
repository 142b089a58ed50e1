"""Every format has a version, and another version is refused with one sentence that says so."""

import json
import sqlite3

import numpy as np
import pytest

from irtcat import EM, InputError, ItemBank, Responses, ShortForm, fit, load, short_form
from irtcat.cat import Config, Session, Store, StoreError, calibrate_exposure, part
from irtcat.cat.live.store_file import StoreFile
from irtcat.harness import evaluate
from irtcat.io import read_responses
from irtcat.training import crowd
from irtcat.training.curriculum import AbilityMatched
from irtcat.training.online import Selector

RNG = np.random.default_rng(3)
BANK = ItemBank.from_parameters(RNG.uniform(0.7, 2.0, 20), RNG.normal(size=20))
DATA = BANK.simulate(RNG.normal(size=60), seed=1)
CONFIG = Config(max_items=3)
X, Y = RNG.normal(size=(30, 2)), RNG.integers(0, 2, 30)


def learner(X_train, y_train, X, seed):
    return np.resize(y_train, len(X))


def build_crowd(**options):
    return crowd.build(learner, (X, Y), 6, size=(0.3, 0.6), seed=4, **options)


def in_array(path, name, version):
    """Write another version into the JSON of an archive."""
    with np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files}
    document = json.loads(str(arrays[name])) | {"version": version}
    np.savez(path, **{**arrays, name: np.array(json.dumps(document))})


def in_json(path, version):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": version}))


def bank_file(folder, version):
    path = BANK.save(folder / "bank.npz")
    in_array(path, "meta", version)
    ItemBank.load(path)


def responses_file(folder, version):
    DATA.save(folder / "data.npz")
    in_array(folder / "data.npz", "metadata", version)
    read_responses(folder / "data.npz")


def crowd_file(folder, version):
    path = build_crowd().save(folder / "crowd.npz")
    in_array(path, "crowd", version)
    crowd.Crowd.load(path)


def crowd_folder(folder, version):
    build_crowd(folder=folder)
    in_json(folder / "crowd.json", version)
    build_crowd(folder=folder)


def checkpoint(folder, version):
    file = folder / "state.npz"
    fit(DATA, "rasch", EM(checkpoint=file), standard_errors="none")
    in_array(file, "meta", version)
    fit(DATA, "rasch", EM(checkpoint=file, resume=True), standard_errors="none")


def short_form_file(folder, version):
    path = short_form(DATA, 5).save(folder / "form.json")
    in_json(path, version)
    ShortForm.load(path)


def exposure_parameters(folder, version):
    rules = Config(max_items=3, exposure=part("sympson-hetter", rate=0.5))
    path = calibrate_exposure(BANK, np.zeros(20), rules, rounds=1).save(folder / "k.json")
    in_json(path, version)
    load(path)


def run_folder(folder, version):
    evaluate(BANK, lambda items: [(item.id, 1) for item in items], CONFIG, out=folder)
    in_json(folder / "manifest.json", version)
    evaluate(BANK, lambda items: [(item.id, 1) for item in items], CONFIG, out=folder)


def results_folder(folder, version):
    evaluate(BANK, lambda items: [(item.id, 1) for item in items], CONFIG, out=folder)
    in_json(folder / "manifest.json", version)
    load(folder)


def store_file(folder, version):
    with Store(folder / "s.db") as store:
        store.begin(BANK, CONFIG, "a", seed=1)
    with sqlite3.connect(folder / "s.db") as db:
        db.execute("UPDATE meta SET version = ?", (version,))
    db.close()
    with pytest.raises(StoreError):
        StoreFile(folder / "s.db")
    Store(folder / "s.db")


def session_of_a_store(folder, version):
    with Store(folder / "s.db") as store:
        store.begin(BANK, CONFIG, "a", seed=1)
    with sqlite3.connect(folder / "s.db") as db:
        ((head,),) = db.execute("SELECT head FROM sessions").fetchall()
        changed = json.dumps(json.loads(head) | {"version": version})
        db.execute("UPDATE sessions SET head = ?", (changed,))
    db.close()
    with Store(folder / "s.db") as store:
        store.status("a")


def session_document(folder, version):
    document = Session.begin(BANK, CONFIG).to_json()
    Session.from_json(BANK, {**document, "version": version})


def curriculum_state(folder, version):
    curriculum = AbilityMatched([0.0, 1.0])
    curriculum.restore({**curriculum.state_dict(), "version": version})


def selector_state(folder, version):
    selector = Selector(10, seed=1)
    selector.load_state_dict({**selector.state_dict(), "version": version})


READERS = (
    bank_file,
    responses_file,
    crowd_file,
    crowd_folder,
    checkpoint,
    short_form_file,
    exposure_parameters,
    run_folder,
    results_folder,
    store_file,
    session_of_a_store,
    session_document,
    curriculum_state,
    selector_state,
)


@pytest.mark.slow_cases(
    "run_folder", "checkpoint", "short_form_file", "exposure_parameters", "results_folder"
)
@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_another_version_is_refused(read, tmp_path):
    """The sentence names the version that is read and the one that was found."""
    with pytest.raises(InputError, match=r"of version 1\. Got version 2\."):
        read(tmp_path, 2)


@pytest.mark.parametrize("version", [0, -1, 1.5, "1", None, True, [1], {}])
def test_what_is_no_version_is_refused(version, tmp_path):
    with pytest.raises(InputError, match=r"expected an item bank of version 1\. Got version "):
        bank_file(tmp_path, version)


def test_plain_arrays_need_no_version(tmp_path):
    """An archive that other programs wrote: it has neither codes nor metadata."""
    np.savez(tmp_path / "plain.npz", X=[[1, 0], [0, 1]], subjects=["a", "b"], items=["x", "y"])
    assert read_responses(tmp_path / "plain.npz") == Responses.from_array(
        [[1, 0], [0, 1]], ["a", "b"], ["x", "y"]
    )

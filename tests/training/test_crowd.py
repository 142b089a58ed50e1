"""Crowds: who trains on what, the same for any number of workers, and after an interruption."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import irtcat
from irtcat import InputError, fit
from irtcat.training import crowd, dynamics
from irtcat.training.crowd.members import assignments, draw_members
from irtcat.training.crowd.store import digest
from irtcat.training.learners import name_of

from .learners import fails, nearest

RNG = np.random.default_rng(0)
N = 120
X = np.column_stack([RNG.normal(size=N), RNG.normal(size=N)])
Y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])]
SETTINGS = {"size": (0.1, 0.6), "label_noise": (0.0, 0.4), "seed": 5}


def frequencies(X_train, y_train, X, seed):
    """Probabilities: how frequent the labels are, and a little luck."""
    share = np.array([(y_train == label).mean() for label in "abc"])
    p = share + 0.1 * np.random.default_rng(seed).random((len(X), 3))
    return p / p.sum(axis=1, keepdims=True)


class Estimator:
    """As scikit-learn's, with a random state and predict_proba."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def get_params(self, deep=True):
        return {"random_state": self.random_state}

    def set_params(self, random_state):
        self.random_state = random_state

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.X, self.y = X, y

    def predict(self, X):
        return nearest(self.X, self.y, X, 0)

    def predict_proba(self, X):
        return (self.predict(X)[:, None] == self.classes_).astype(float)


def with_lock(lock, X_train, y_train, X, seed):
    """A learner that cannot be pickled, since a lock cannot."""
    with lock:
        return nearest(X_train, y_train, X, seed)


def same(one, two):
    np.testing.assert_array_equal(one.predictions, two.predictions)
    np.testing.assert_array_equal(one.trained_on, two.trained_on)
    pd.testing.assert_frame_equal(one.members, two.members)


@pytest.fixture(scope="module")
def built():
    return crowd.build(nearest, (X, Y), 12, **SETTINGS)


@pytest.mark.parametrize("size", [7, 0.3, (0.05, 0.9), (15, 100), [15, 60, 119]])
def test_design(size):
    """Sizes as asked, distinct items, exact noise, and all items left out equally often."""
    labels = np.random.default_rng(1).integers(0, 3, N)
    members = draw_members(40, N, size, 0.25, 1, 2)
    out = np.zeros(N, int)
    for member, train, given in assignments(members, labels, 3, 1):
        assert len(np.unique(train)) == len(train) == member.size
        wrong = (given != labels[train]).sum()
        assert wrong == np.floor(0.25 * member.size + 0.5)
        assert set(given) <= {0, 1, 2}
        out += 1
        out[train] -= 1
        assert out.max() - out.min() <= 1, "also after every single member"
    assert [member.learner for member in members[:4]] == [0, 1, 0, 1]
    assert len({member.seed for member in members}) == 40
    low, high = {7: (7, 7), 0.3: (36, 36)}.get(size if np.isscalar(size) else 0, (6, 119))
    assert all(low <= member.size <= high for member in members)


def test_wrong_labels_are_all_equally_likely():
    labels = np.zeros(3000, int)
    (task,) = assignments(draw_members(1, 3000, 3000, 0.9, 0, 1), labels, 4, 0)
    counts = np.bincount(task.labels, minlength=4)
    assert counts[0] == 300
    assert abs(counts[1:] - 900).max() < 5 * np.sqrt(900 * 2 / 3)


@pytest.mark.parametrize(("size", "n_rare"), [(2, 2), (3, 30), ((2, 15), 8), (0.5, 2)])
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_every_subset_has_two_classes(size, n_rare, noise):
    """Also of rare classes, whose items stay with members who grade them; else all as dealt."""
    labels = np.repeat([0, 1], [N - n_rare, n_rare])
    members = draw_members(60, N, size, noise, 3, 1)
    dealt = assignments(members, np.zeros(N, int), 2, 3)
    out = np.zeros(N, int)
    for task, other in zip(assignments(members, labels, 2, 3), dealt, strict=True):
        assert len(np.unique(task.train)) == task.member.size
        assert set(task.labels) == {0, 1}
        moved = np.setdiff1d(task.train, other.train)
        assert len(moved) == (len(set(labels[other.train])) == 1)
        assert (task.labels != labels[task.train]).sum() <= np.floor(noise * len(task.train) + 0.5)
        out += ~np.isin(np.arange(N), task.train)
    left_out = 1 - sum(member.size for member in members) / (60 * N)
    assert out.min() > 60 * left_out / 3, "of two that are needed, each is left out half as often"


def test_one_class_where_there_is_no_other():
    """Of the only item of another class every member would know the label; one item is one."""
    labels = np.repeat([0, 1], [N - 1, 1])
    tasks = list(assignments(draw_members(20, N, 10, 0.0, 0, 1), labels, 2, 0))
    assert 0 < sum(N - 1 in task.train for task in tasks) < 5
    (one,) = assignments(draw_members(1, N, 1, 0.9, 0, 1), labels, 2, 0)
    assert one.labels[0] != labels[one.train[0]]

    class Choosy(Estimator):
        def fit(self, X, y):
            if len(np.unique(y)) < 2:
                raise ValueError("needs two classes.")
            super().fit(X, y)

    with pytest.raises(InputError, match=r"needs two classes. All .* of class 0: use larger"):
        crowd.build(Choosy(), (X, labels), 20, size=10)
    crowd.build(Choosy(), (X, np.repeat([0, 1], [N - 2, 2])), 20, size=10, min_graders=10)


def test_out_of_sample_is_missing_in_sample(built):
    inside, told = built.in_sample(), built.responses()
    assert np.array_equal(~told.observed, inside)
    full = built.responses(in_sample=True)
    assert not full.has_missing
    np.testing.assert_array_equal(full.values == 1, built.classes[built.predictions] == Y)
    np.testing.assert_array_equal(told.values[~inside], full.values[~inside])
    right = full.to_numpy()
    members = built.members
    assert inside.sum(axis=1).tolist() == members["size"].tolist()
    np.testing.assert_allclose(members["accuracy"], (right * ~inside).sum(1) / (~inside).sum(1))
    # It knows its own labels by heart, the wrong ones as well.
    np.testing.assert_allclose(members["accuracy_trained"], (right * inside).sum(1) / inside.sum(1))
    flipped = np.floor(members["noise"] * members["size"] + 0.5)
    np.testing.assert_allclose(members["accuracy_trained"], 1 - flipped / members["size"])
    items = built.items()
    assert items["graded"].tolist() == (~inside).sum(axis=0).tolist()
    assert items["label"].tolist() == Y.tolist()
    assert told.items["graded"].tolist() == items["graded"].tolist()
    assert told.subjects["noise"].tolist() == members["noise"].tolist()


@pytest.mark.slow
def test_difficulties_come_of_it():
    """Items near a border are the hard ones; the bank knows the labels, to balance by them."""
    many = crowd.build(nearest, (X, Y), 60, **SETTINGS)
    bank = fit(many.responses(), "rasch", standard_errors="none").bank
    border = np.abs(np.abs(X[:, 0] + 0.3 * X[:, 1]) - 0.5)
    b = pd.Series(bank.to_frame()["b"].to_numpy())
    # Chance gives 0 with a standard error of 1 / sqrt(N).
    assert b.corr(pd.Series(border), method="spearman") < -4 / np.sqrt(N)
    assert bank.items["label"].tolist() == Y.tolist()


@pytest.fixture
def importable(monkeypatch):
    """Processes find the learners, however pytest was started."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


@pytest.mark.slow
@pytest.mark.usefixtures("importable")
def test_any_number_of_workers_gives_the_same(built):
    same(crowd.build(nearest, (X, Y), 12, **SETTINGS, workers=2), built)


def test_an_executor_gives_the_same(built):
    """Of threads, to which functions of any kind and the data are not sent."""
    with ThreadPoolExecutor(3) as executor:
        same(crowd.build(nearest, (X, Y), 12, **SETTINGS, executor=executor), built)
        locked = partial(with_lock, threading.Lock())
        crowd.build(locked, (X, Y), 3, size=10, executor=executor)


def test_a_larger_crowd_begins_with_the_smaller(built):
    larger = crowd.build(nearest, (X, Y), 15, **SETTINGS)
    np.testing.assert_array_equal(larger.predictions[:12], built.predictions)
    np.testing.assert_array_equal(larger.trained_on[:12], built.trained_on)


def test_goes_on_after_an_interruption(built, tmp_path):
    def stop(done, total, text):
        assert total == 12
        if done == 5:
            raise KeyboardInterrupt

    folder = tmp_path / "crowd"
    with pytest.raises(KeyboardInterrupt):
        crowd.build(nearest, (X, Y), 12, **SETTINGS, folder=folder, progress=stop)
    assert len(list(folder.glob("member-*.npz"))) == 5
    trained = []
    again = crowd.build(
        nearest,
        (X, Y),
        12,
        **SETTINGS,
        folder=folder,
        progress=lambda done, total, text: trained.append(done),
    )
    assert trained == [6, 7, 8, 9, 10, 11, 12]
    same(again, built)
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", *[".npz"] * 12]


def test_folder_of_another_crowd_is_refused(built, tmp_path):
    folder = tmp_path / "crowd"
    crowd.build(nearest, (X, Y), 2, **SETTINGS, folder=folder)
    for learner, data, more, words in [
        (nearest, (X, Y), {"seed": 6}, "other seed"),
        (nearest, (X, Y), {"size": 10}, "other size"),
        (nearest, (X + 1, Y), {}, "other data"),
        (nearest, (X, Y[::-1]), {}, "other data"),
        (frequencies, (X, Y), {}, "other learners"),
    ]:
        with pytest.raises(InputError, match=words):
            crowd.build(learner, data, 2, **{**SETTINGS, **more}, folder=folder)
    for depth, words in [(1, None), (2, "other learners")]:  # of one name, with other settings
        learner = Odd(np.full((N, 3), 0.3))
        learner.get_params = lambda deep=True, depth=depth: {"depth": depth}
        learner.set_params = lambda: None
        with pytest.raises(InputError, match=words) if words else nullcontext():
            crowd.build({"k": learner}, (X, Y), 1, min_graders=0, folder=tmp_path / "named")
    numpys = {"size": tuple(map(np.float64, SETTINGS["size"])), "seed": np.int64(5)}
    crowd.build(nearest, (X, Y), 2, **SETTINGS | numpys, folder=folder)
    (tmp_path / "mine.txt").touch()
    with pytest.raises(InputError, match="empty or the folder of a crowd"):
        crowd.build(nearest, (X, Y), 2, **SETTINGS, folder=tmp_path)
    one, two = (folder / f"member-00000{n}.npz" for n in (1, 2))
    own = two.read_bytes()
    with np.load(two) as file:
        parts = dict(file)
    parts["predictions"] = 1 - parts["predictions"]
    np.savez(tmp_path / "edited.npz", **parts)
    for data in (one.read_bytes(), (tmp_path / "edited.npz").read_bytes()):  # whole, not its own
        two.write_bytes(data)
        with pytest.raises(InputError, match=r"000002.npz: damaged"):
            crowd.build(nearest, (X, Y), 2, **SETTINGS, folder=folder)
    two.write_bytes(own)
    np.savez(folder / "member-000002.npz", predictions=np.zeros(3))
    (folder / "member-000001.npz").write_bytes(b"half")
    for damaged in ("000001", "000002"):
        with pytest.raises(InputError, match=f"{damaged}.npz: damaged"):
            crowd.build(nearest, (X, Y), 2, **SETTINGS, folder=folder)
        (folder / f"member-{damaged}.npz").unlink()


def test_probabilities(tmp_path):
    every = crowd.build(
        {"f": frequencies, "n": nearest}, (X, Y), 4, **SETTINGS, probabilities="all"
    )
    assert every.members["learner"].tolist() == ["f", "n"] * 2
    p = every.probabilities[0]
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(every.predictions[0], p.argmax(axis=1))
    np.testing.assert_array_equal(every.gold[0], p[np.arange(N), every.labels])
    assert np.isnan(every.gold[1]).all(), "a learner without probabilities"
    gold = crowd.build(frequencies, (X, Y), 4, **SETTINGS, folder=tmp_path / "c")
    assert gold.probabilities is None
    kept = gold.confidences()
    assert np.array_equal(np.isnan(kept), gold.in_sample())
    table = dynamics.from_probabilities(kept).table
    np.testing.assert_allclose(table["confidence"], np.nanmean(kept, axis=0), rtol=1e-6)
    again = crowd.build(frequencies, (X, Y), 4, **SETTINGS, folder=tmp_path / "c")
    np.testing.assert_array_equal(again.gold, gold.gold)
    none = crowd.build(frequencies, (X, Y), 4, **SETTINGS, probabilities="none")
    with pytest.raises(InputError, match="give probabilities"):
        none.confidences()


def test_an_estimator_is_copied_and_seeded(built):
    learner = Estimator()
    found = crowd.build(learner, (X, Y), 12, **SETTINGS)
    assert vars(learner) == {"random_state": None}
    np.testing.assert_array_equal(found.predictions, built.predictions)
    # A subset without a class: its probabilities go to the right columns.
    few = crowd.build(learner, (X, Y), 12, size=2, seed=0, probabilities="all")
    np.testing.assert_array_equal(few.probabilities.argmax(axis=2), few.predictions)


def test_inputs_of_any_kind(built):
    def dense(X_train, y_train, X, seed):
        rows = [X_train, X]
        if isinstance(X, pd.DataFrame):
            rows = [part.to_numpy() for part in rows]
        elif sparse.issparse(X):
            rows = [part.toarray() for part in rows]
        elif isinstance(X, dict):
            rows = [np.column_stack(list(part.values())) for part in rows]
        return nearest(np.asarray(rows[0]), y_train, np.asarray(rows[1]), seed)

    frame = pd.DataFrame(X, index=RNG.permutation(N))
    for inputs in (frame, sparse.csr_matrix(X), X.tolist(), {"x": X[:, 0], "y": X[:, 1]}):
        found = crowd.build(dense, (inputs, pd.Series(Y)), 12, **SETTINGS)
        np.testing.assert_array_equal(found.predictions, built.predictions)
        assert digest(inputs) == digest(inputs)


def test_every_item_is_graded_or_it_is_refused():
    with pytest.raises(InputError, match="about 10 members"):
        crowd.build(nearest, (X, Y), 4, size=0.9)
    found = crowd.build(nearest, (X, Y), 4, size=0.9, min_graders=0)
    items = found.items()
    assert set(items["flag"]) == {"graded by nobody", "graded by fewer than 5"}
    assert (items["graded"] == 0).sum() == N - 48
    whole = crowd.build(nearest, (X, Y), 2, size=1.0, min_graders=0)
    with pytest.raises(InputError, match="True if every member"):
        whole.responses()
    assert whole.responses(in_sample=True).n_missing == 0
    assert whole.members["accuracy"].isna().all()


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_says_whose(workers):
    with pytest.raises(InputError, match=r"Member [12] of the crowd .*fails.*ZeroDivisionError"):
        crowd.build(fails, (X, Y), 2, size=10, workers=workers)


def test_bad_input():
    for learner, data, more, words in [
        (3, (X, Y), {}, "fit_predict"),
        (nearest, X, {}, "a pair"),
        (nearest, (X[:5], Y), {}, "inputs of 120 items"),
        (nearest, (X, ["a"] * N), {}, "at least two classes"),
        (nearest, (X, [None, *Y[1:]]), {}, "none for item 1"),
        (nearest, (X, [float("nan"), *map(str, Y[1:])]), {}, "none for item 1"),
        (nearest, (X, Y), {"size": 0}, "size"),
        (nearest, (X, Y), {"size": N + 1}, "at most 120"),
        (nearest, (X, Y), {"size": (0.5, 0.1)}, "size"),
        (nearest, (X, Y), {"label_noise": 1.0}, "label_noise"),
        (nearest, (X, Y), {"label_noise": []}, "label_noise"),
        (nearest, (X, Y), {"seed": -1}, "seed"),
        (nearest, (X, Y), {"item_ids": ["a"] * N}, "repeats of a.$"),
        (nearest, (X, Y), {"folder": 3}, "folder.*a path"),
        (nearest, (X, Y), {"progress": 3}, "progress"),
        (Estimator, (X, Y), {}, "such as Estimator.*Got 'the class"),
        (lambda *a: [1] * N, (X, Y), {}, "labels such as 'a'. Got '1'"),
        (nearest, (X, Y), {"probabilities": "some"}, "one of none"),
        (lambda *a: Y[:3], (X, Y), {}, "120 labels"),
        (lambda *a: np.full((N, 3), 7.0), (X, Y), {}, "from 0 to 1"),
        (lambda *a: np.ones((N, 2)), (X, Y), {}, "120 x 3 probabilities"),
        (partial(with_lock, threading.Lock()), (X, Y), {"workers": 2}, "can be pickled"),
        (nearest, (X, Y), {"workers": 0}, "workers"),
        (nearest, (X, Y), {"executor": 2}, "concurrent.futures.Executor"),
    ]:
        with pytest.raises(InputError, match=words):
            crowd.build(learner, data, 3, **more)


def test_predictions_made_elsewhere(tmp_path):
    told = [["a", "b", "?"], [None, "a", "c"]]
    found = crowd.from_predictions(told, ["a", "b", "c"], trained_on=[[0, 0, 1], [0, 0, 0]])
    assert found.predictions.tolist() == [[0, 1, -2], [-1, 0, 2]]
    np.testing.assert_array_equal(found.responses().to_numpy(), [[1, 1, np.nan], [np.nan, 0, 1]])
    assert found.members["accuracy"].tolist() == [1.0, 0.5]
    numbers = crowd.from_predictions(np.array([[0.0, 1.0, np.nan]]), [0, 1, 1])
    assert numbers.predictions.tolist() == [[0, 1, -1]]
    p = np.array([[[0.7, 0.3], [0.4, 0.6], [np.nan, np.nan]]])
    sure = crowd.from_predictions(p, [0, 0, 1])
    assert sure.predictions.tolist() == [[0, 1, -1]]
    np.testing.assert_allclose(sure.gold, [[0.7, 0.4, np.nan]], rtol=1e-6)
    np.save(tmp_path / "net.npy", p[0])
    (tmp_path / "tree.csv").write_text(
        "item,prediction,probability,trained\ni3,1,0.9,1\ni1,0,0.8,0\n"
    )
    files = crowd.from_predictions([tmp_path / "net.npy", str(tmp_path / "tree.csv")], [0, 0, 1])
    assert files.members.index.tolist() == ["net", "tree"]
    assert files.predictions.tolist() == [[0, 1, -1], [0, -1, 1]]
    assert files.in_sample().tolist() == [[False] * 3, [False, False, True]]
    np.testing.assert_allclose(files.gold[1], [0.8, np.nan, 0.9], rtol=1e-6)
    (tmp_path / "float.csv").write_text("item,prediction\ni1,0.0\ni2,\ni3,1.0\n")
    floats = crowd.from_predictions([tmp_path / "float.csv"], [0, 0, 1])
    assert floats.predictions.tolist() == [[0, -1, 1]]
    (tmp_path / "bad.csv").write_text("item,prediction\nq,1\n")
    for given, words in [
        ([tmp_path / "bad.csv"], "bad.csv.*among the"),
        ([tmp_path / "none.npy"], "there is no such file"),
        ([tmp_path / "a.txt"], "npy or .csv"),
        ([[0, 1]], "members x 3 items"),
        (p[..., :1], "of 2 classes"),
        (p + 1, "from 0 to 1"),
    ]:
        with pytest.raises(InputError, match=words):
            crowd.from_predictions(given, [0, 0, 1])


@pytest.mark.slow
def test_scikit_learn(built):
    neighbors = pytest.importorskip("sklearn.neighbors", reason="needs scikit-learn")
    learner = neighbors.KNeighborsClassifier(1)
    found = crowd.build(learner, (X, Y), 12, **SETTINGS)
    np.testing.assert_array_equal(found.predictions, built.predictions)
    tree = pytest.importorskip("sklearn.tree").DecisionTreeClassifier(splitter="random")
    one, two = (crowd.build(tree, (X, Y), 3, **SETTINGS) for _ in range(2))
    same(one, two)


class Odd(Estimator):
    """Gives what it is told to in place of probabilities."""

    def __init__(self, told, labels="abc"):
        self.told, self.labels = told, labels
        self.random_state = None

    def fit(self, X, y):
        super().fit(X, y)
        self.classes_ = np.array(list(self.labels))

    def predict_proba(self, X):
        return self.told


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (Odd(np.full((N, 3), np.nan)), "probabilities from 0 to 1. Got nan"),
        (Odd(np.full((N, 3), 7.0)), "probabilities from 0 to 1. Got 7"),
        (Odd(np.full((N, 1), 0.3)), f"{N} x 3 probabilities. Got"),
        (Odd(np.full((N, 3), 0.3), "abz"), "classes_ are labels. Got z"),
        (lambda *given: np.full((N, 3), np.nan), "probabilities from 0 to 1. Got nan"),
        (lambda *given: np.full((N, 2), 0.5), f"{N} labels or {N} x 3 probabilities"),
    ],
)
def test_probabilities_that_are_none_are_refused(learner, words):
    with pytest.raises(InputError, match=words):
        crowd.build(learner, (X, Y), 4, size=0.3)


@pytest.mark.parametrize("given", [None, 3, np.array(3), {}])
def test_inputs_that_are_none_are_refused(given):
    with pytest.raises(InputError, match="inputs X"):
        crowd.build(nearest, (given, Y), 4, size=0.3)


def test_other_settings_are_told_apart():
    def settings(**given):
        learner = Estimator()
        learner.get_params = lambda deep=True: given
        return name_of(learner)

    assert settings(weight={"a": 1}) != settings(weight={"a": 2})
    assert settings(layers=[1]) != settings(layers=[2])
    assert settings(C=np.int64(1)) != settings(C=np.int64(2))
    assert settings(part=Estimator()) == settings(part=Estimator())  # no addresses
    assert digest([["a", ["b"]]]) != digest([["a"], ["b"]])


def test_remains_of_a_killed_process_do_no_harm(built, tmp_path):
    (tmp_path / ".crowd.json.1.tmp").write_text("{")
    assert len(crowd.build(nearest, (X, Y), 2, folder=tmp_path, **SETTINGS).members) == 2
    for text in ("[1]", "3", "{"):
        (tmp_path / "crowd.json").write_text(text)
        with pytest.raises(InputError, match=r"expected the folder of a crowd|expected JSON"):
            crowd.build(nearest, (X, Y), 2, folder=tmp_path, **SETTINGS)


def test_odd_predictions_made_elsewhere(tmp_path):
    table = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": pd.array([0, 1], "Int64")})
    assert crowd.from_predictions(table, [0, 1]).predictions.tolist() == [[1, 0], [-1, 1]]
    with pytest.raises(InputError, match="probabilities from 0 to 1"):
        crowd.from_predictions(np.full((2, 2, 2), "a"), [0, 1])
    with pytest.raises(InputError, match="one with predictions"):
        crowd.from_predictions([[None, None]], [0, 1]).responses(in_sample=True)
    file = tmp_path / "m.csv"
    for row, words in [
        ("i1,0,high,1", "Got 'high' for i1|'high' for i1"),
        ("i1,0,0.5,yes", "'yes' for i1"),
        ("i1,0,0.5,0.5", "trained 0 or 1"),
    ]:
        file.write_text(f"item,prediction,probability,trained\n{row}\ni2,1,,\n")
        with pytest.raises(InputError, match=words):
            crowd.from_predictions([file], [0, 1])
    file.write_text("item,prediction\n")
    with pytest.raises(InputError, match="a header alone"):
        crowd.from_predictions([file], [0, 1])
    np.save(tmp_path / "m.npy", np.array([[0.4, np.nan], [0.1, 0.9]]))
    half = crowd.from_predictions([tmp_path / "m.npy"], [0, 1])
    assert half.predictions.tolist() == [[-1, 1]]
    assert np.isnan(half.gold[0, 0])  # not .4: the row is missing
    for array in (np.full((2, 2), 0.5 + 0j), np.ones(2, complex), np.zeros(2, "M8[s]")):
        np.save(tmp_path / "m.npy", array)
        with pytest.raises(InputError, match=r"complex|datetime"):
            crowd.from_predictions([tmp_path / "m.npy"], [0, 1])
    for mark in ("1", "1.0", "True"):
        file.write_text(f"item,prediction,probability,trained\ni1,0,0.5,{mark}\ni2,1,,\n")
        read = crowd.from_predictions([file], [0, 1])
        assert read.in_sample().tolist() == [[True, False]]


KILLED = """
import os, sys, time
import numpy as np
from irtcat.training import crowd

def sleepy(X_train, y_train, X, seed):
    time.sleep(0.05)
    return np.full(len(X), os.getpid())

if __name__ == "__main__":
    data = (np.arange(20), np.arange(20) % 2)
    crowd.build(sleepy, data, 500, size=5, workers=2, folder=sys.argv[1],
                progress=lambda *told: print("one", flush=True))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "crowd"
    script.write_text(KILLED)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, script, folder], **streams) as parent:
        parent.stdout.readline()
        listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text()
        parent.kill()
    children = [Path("/proc", number) for number in listed.split()]
    assert len(children) >= 2
    for _ in range(1000):
        if not any(ours(child) for child in children):
            break
        time.sleep(0.01)
    assert not any(ours(child) for child in children)
    assert list(folder.glob("member-*.npz"))


def ours(process):
    """Whether it still runs, and is a process that trains."""
    try:
        state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
        return state != "Z" and b"spawn_main" in (process / "cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("labels", [Y, np.arange(N) % 2, np.array([*Y], dtype=object)])
def test_a_saved_crowd_is_read_back(labels, tmp_path):
    built = crowd.build(nearest, (X, labels), 4, probabilities="all", seed=1)
    path = built.save(tmp_path / "crowd.npz")
    for loaded in (crowd.Crowd.load(path), irtcat.load(path)):
        for name in ("item_ids", "classes", "labels", "predictions", "trained_on"):
            np.testing.assert_array_equal(getattr(loaded, name), getattr(built, name))
        for name in ("gold", "probabilities"):
            np.testing.assert_array_equal(getattr(loaded, name), getattr(built, name))
        pd.testing.assert_frame_equal(loaded.members, built.members, check_column_type=False)
        assert loaded.responses() == built.responses()
    named = crowd.from_predictions([["a", "b"]], ["a", "b"], classes=["b", "a"])
    assert crowd.Crowd.load(named.save(path)).classes.tolist() == ["b", "a"]


def test_damaged_crowds_are_refused(tmp_path):
    built = crowd.build(nearest, (X, Y), 3, seed=1)
    path = built.save(tmp_path / "crowd.npz")
    with pytest.raises(InputError, match=r"ends in \.npz"):
        built.save(tmp_path / "crowd.csv")
    built.responses().save(tmp_path / "other.npz")
    with pytest.raises(InputError, match="this is not a crowd"):
        crowd.Crowd.load(tmp_path / "other.npz")
    arrays = dict(np.load(path))
    changes = {
        "labels": arrays["labels"] + 3,
        "predictions": arrays["predictions"][:, 1:],
        "classes": arrays["classes"][[0] * len(arrays["classes"])],
        "item_ids": np.full(N, "same"),
        "trained_on": arrays["trained_on"].astype(float),
        "crowd": np.array(3),
    }
    for name, values in changes.items():
        np.savez(path, **arrays | {name: values})
        with pytest.raises(InputError, match="the file of the crowd is damaged"):
            crowd.Crowd.load(path)
    np.savez(path, **{name: values for name, values in arrays.items() if name != "labels"})
    with pytest.raises(InputError, match="the array labels is missing"):
        crowd.Crowd.load(path)

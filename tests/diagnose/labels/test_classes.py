"""The model of the classes, and probabilities from planted labels, against simulation."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from irtcat.diagnose.labels import predictions as _label_classes
from irtcat.diagnose.labels.plants import Check, choose, posterior, share_wrong
from irtcat.diagnose.labels.predictions import PRIOR_CELLS, _largest_other, fit_classes


def simulate(confusion, n=4000, sharpness=2.0, seed=0):
    """Predictions whose calibrated odds are raised to 1 / sharpness; labels with confusion."""
    rng = np.random.default_rng(seed)
    k = len(confusion)
    u = 2.5 * rng.normal(size=(n, k))
    true = (softmax(u, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    labels = (np.cumsum(confusion[true], axis=1) < rng.random((n, 1))).sum(axis=1)
    return softmax(u / sharpness, axis=1), labels, labels != true


UNIFORM = np.full((4, 4), 0.05) + 0.8 * np.eye(4)
ONE_PAIR = np.array([[0.7, 0.3, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0.25, 0.75]])


@pytest.mark.parametrize("confusion", [UNIFORM, ONE_PAIR], ids=["uniform", "one pair"])
def test_recovers_the_confusion(confusion, monkeypatch):
    monkeypatch.setattr(_label_classes, "MISLED", 0.0)  # as the data are simulated
    p, labels, wrong = simulate(confusion)
    model = fit_classes(p, labels)
    assert model.sharpness == pytest.approx(2.0, abs=0.3)
    np.testing.assert_allclose(model.confusion, confusion, atol=0.06)
    np.testing.assert_allclose(model.confusion.sum(axis=1), 1)
    assert model.cell == PRIOR_CELLS[confusion is UNIFORM]
    suspicion = 1 - model.right_label(p)[np.arange(len(labels)), labels]
    for low, high in [(0, 0.1), (0.1, 0.4), (0.4, 0.7), (0.7, 0.9), (0.9, 1)]:
        mine = (suspicion >= low) & (suspicion < high)
        error = 4 * np.sqrt(0.25 / mine.sum()) + 0.04
        assert wrong[mine].mean() == pytest.approx(suspicion[mine].mean(), abs=error)


@pytest.mark.slow
def test_cautious_by_default():
    """Learners that may be misled lower all suspicions."""
    p, labels, wrong = simulate(UNIFORM)
    suspicion = 1 - fit_classes(p, labels).right_label(p)[np.arange(len(labels)), labels]
    assert 0.5 * wrong.mean() < suspicion.mean() < wrong.mean()
    assert wrong[suspicion > 0.8].mean() > 0.8


def test_right_labels_are_not_suspected():
    p, labels, _ = simulate(np.eye(4))
    model = fit_classes(p, labels)
    assert 1 - np.diag(model.confusion).mean() < 0.03
    assert (model.right_label(p)[np.arange(len(labels)), labels] < 0.5).mean() < 0.02


def test_probabilities_of_all_labels():
    p, labels, _ = simulate(UNIFORM, n=200)
    model = fit_classes(p, labels)
    q, right = model.right_class(p), model.right_label(p)
    np.testing.assert_allclose(q.sum(axis=1), 1)
    # Bayes' rule by hand, for one item and label.
    joint = q[3] * model.confusion[:, 2]
    assert right[3, 2] == pytest.approx(joint[2] / joint.sum())
    assert model.best_class(p, np.full(200, 2))[3] == joint.argmax()
    assert (np.diag(model.flips()) == 0).all()


def test_largest_other():
    values = np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]])
    np.testing.assert_array_equal(_largest_other(values), [[0.3, 0.5, 0.5], [0.4, 0.4, 0.4]])


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_share_and_posterior_of_a_mixture(share):
    """Keys N(0, 1) of right and N(-3, 1) of wrong labels: the posterior is known."""
    rng = np.random.default_rng(1)
    n = 4000
    wrong = rng.random(n) < share
    key = rng.normal(size=n) - 3 * wrong
    planted = rng.normal(size=1000) - 3
    position = np.searchsorted(np.sort(key), planted) / n
    assert share_wrong(position, n) == pytest.approx(share, abs=0.015 + 0.1 * share)
    rank = (np.argsort(np.argsort(key)) + 0.5) / n
    found = posterior(position, n, rank)
    odds = share / (1 - share) * np.exp(-3 * key - 4.5)
    assert np.abs(found - odds / (1 + odds)).mean() < 0.03
    assert (np.diff(found[np.argsort(key)]) <= 1e-12).all()


def test_the_default_stays_unless_it_is_clearly_worse():
    rng = np.random.default_rng(2)
    good, same, bad = rng.random((3, 200)) * np.array([[0.1], [0.2], [1.0]])
    kind = np.repeat(["one", "two"], 100)
    check = Check(pd.DataFrame({"a": same, "b": same - 1e-3, "c": good, "d": bad}), kind)
    by, table = choose(check, "a", 0.12)
    assert by == "c"
    assert table.index[0] == "c"
    assert table.loc["c", "found"] == 1
    # An interval with the difference between planted and wrong labels, SD .14.
    assert table.loc["c", "low"] == pytest.approx(1 - 1.96 * 0.14)
    assert table.loc["c", "high"] == 1
    assert choose(check, "a", 0.12, min_gain=1.0)[0] == "a"
    assert table.loc["a", "difference"] == 0
    assert table.loc["d", "found_one"] == pytest.approx((bad[:100] < 0.12).mean())
    by, table = choose(check._replace(position=check.position[["a", "b", "d"]]), "a", 0.12)
    assert by == "a"
    assert ((table["low"] <= table["found"]) & (table["found"] <= table["high"])).all()

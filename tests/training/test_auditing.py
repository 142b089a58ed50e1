"""Labels and class probabilities: the ranking against simulated truth, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from irtcat import InputError
from irtcat.training import audit, crowd, dynamics, labels


def simulate(n, n_classes, strength, share, seed=0):
    """Calibrated probabilities, labels of which a share is flipped to any class, and which."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, n_classes))
    logits[np.arange(n), rng.integers(0, n_classes, n)] += strength
    p = softmax(logits, axis=1)
    right = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    wrong = rng.choice(n, round(share * n), replace=False)
    given = right.copy()
    given[wrong] = (right[wrong] + rng.integers(1, n_classes, len(wrong))) % n_classes
    return p, given, wrong


P, Y, WRONG = simulate(400, 4, 4, 0.08)


@pytest.fixture(scope="module")
def ranking():
    return audit(Y, P)


def test_one_matrix(ranking):
    table = ranking.table
    assert (ranking.by, ranking.source, ranking.bank) == ("classes", "classes", None)
    assert sorted(table.index) == list(range(400))
    rows = table.index.to_numpy()
    np.testing.assert_allclose(table["confidence"], P[rows, Y[rows]], rtol=1e-5)
    np.testing.assert_array_equal(table["label"], Y[rows])
    assert table["suspicion"].is_monotonic_decreasing
    # As good as Bayes' rule with the true probabilities and the true noise.
    right = 0.92 * P[np.arange(400), Y]
    known = right / (right + (1 - P[np.arange(400), Y]) * 0.08 / 3)
    best = np.isin(np.argsort(known)[: len(WRONG)], WRONG).mean()
    assert labels.precision_at(ranking, WRONG, len(WRONG)) >= best - 0.05
    assert best > 0.6
    assert 0.03 < ranking.share_wrong < 0.1  # cautious: see test_classes.py
    assert set(ranking.checks.index) == {"classes", "margin", "aum", "confidence"}


def test_several_members_and_names(ranking):
    names, text = list("abcd"), np.array(list("abcd"))[Y]
    ids = [f"row {i}" for i in range(400)]
    frame = pd.DataFrame(P, ids, names)
    for given, p in [
        (pd.Series(text, ids), frame),
        (pd.Series(text, ids), [frame, frame]),
        (text, np.stack([P, P])),
    ]:
        found = audit(given, p, by="classes").table
        place = [ids.index(i) if isinstance(i, str) else i for i in found.index]
        assert place[:10] == ranking.table.index[:10].tolist()
        assert found["label"].iloc[0] == names[ranking.table["label"].iloc[0]]
    # Members that agree: the mean is that of one.
    np.testing.assert_allclose(found["suspicion"].to_numpy(), ranking.table["suspicion"].to_numpy())
    assert (found["n"] == 2).all()


def test_classes_without_labels():
    few = np.where(Y == 3, 0, Y)
    table = audit(few, P, by="classes").table
    assert table["suggested"].eq(3).any()
    assert table.loc[Y[table.index] == 3, "suspicion"].median() > 0.5
    columns = audit(few, P[:, [3, 0, 1, 2]], classes=[3, 0, 1, 2], by="classes").table
    pd.testing.assert_frame_equal(columns, table)
    back = audit(few, pd.DataFrame(P).iloc[:, ::-1], by="classes").table  # the columns' names
    pd.testing.assert_frame_equal(back, table)


@pytest.mark.slow
def test_many_classes_are_suspected():
    """A floor under the probabilities of 60 classes together must not outweigh a wrong label."""
    p, given, wrong = simulate(3000, 60, 9, 0.08)
    table = audit(given, p, by="classes").table
    suspect = table.index[table["suspicion"] > 0.5]
    assert len(suspect) > 0.7 * len(wrong)
    assert np.isin(suspect, wrong).mean() > 0.85


@pytest.mark.parametrize(
    ("given", "p", "more", "words"),
    [
        (Y, P[:, 0], {}, "np.column_stack"),
        (Y[:9], P, {}, "9 examples x classes, as many rows as labels"),
        (Y, 2 * P, {}, "Apply the softmax"),
        (Y, P / 2, {}, "sum to 1.*a sum of 0.5 in row 1"),
        (Y, [P, np.full((400, 2), 0.5)], {}, "matrices of one shape"),
        (np.maximum(Y, 1), P, {}, r"Pass classes=range\(4\) or classes=range\(1, 5\)"),
        (np.array(list("abc"))[Y % 3], P, {}, "of 3 classes.*Name the class of each column"),
        (np.array(list("abcz"))[Y], pd.DataFrame(P, columns=list("abcd")), {}, "Got .*z"),
        (Y, P, {"classes": [0, 1, 2, 2]}, "each once"),
        (Y, P, {"classes": [5, 1, 2, 3]}, "of the classes .*Got '?0"),
        (Y, P, {"item_ids": ["a"] * 400}, "400 ids, each once"),
        (pd.Series(Y, range(1, 401)), pd.DataFrame(P), {}, "different ids"),
    ],
)
def test_refuses(given, p, more, words):
    with pytest.raises(InputError, match=words):
        audit(given, p, **more)


def test_named_classes_of_votes():
    """Classes need not be sorted."""
    found = crowd.from_predictions([["b", "a", "x"]], ["b", "b", "a"], classes=["b", "c", "a"])
    np.testing.assert_array_equal(found.predictions, [[0, 2, -2]])
    np.testing.assert_array_equal(found.labels, [0, 0, 2])


def test_dynamics_alone():
    logits = np.log(P) * np.array([0.5, 1.0, 2.0])[:, None, None]
    seen = dynamics.from_logits(logits, Y)
    for by, column in (("auto", "confidence"), ("aum", "aum")):
        found = labels.rank(seen, by=by)
        expected = seen.table[column].sort_values(kind="stable").index
        assert found.table.index.tolist() == expected.tolist()
        assert "suspicion" not in found.table
        assert found.source == "none"
        assert "plant" in found.order
    planted = labels.plant(Y, share=0.1, seed=0)
    trained = dynamics.from_logits(logits, planted.labels)
    found = labels.rank(trained, planted=planted)
    assert found.source == "planted"
    assert found.checks.loc["confidence", "found"] > 0.5
    assert len(found.table) == 400 - len(planted.items)
    assert found.table["suspicion"].between(0, 1).all()
    for more, words in [
        ({"by": "answers"}, "evidence is passed"),
        ({"by": "share"}, "evidence is passed"),
        ({"dynamics": seen}, "to pass more than dynamics"),
    ]:
        with pytest.raises(InputError, match=words):
            labels.rank(seen, **more)

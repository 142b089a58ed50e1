"""Labels ranked with cartography and feasibility; precision and recall by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses
from irtcat.diagnose import labels
from irtcat.training import crowd, dynamics
from irtcat.training import labels as offered

IDS = [f"i{i + 1}" for i in range(12)]
BAD = ["i2", "i9"]
OF_ANSWERS = ("answers", "wrong-key", "discrimination", "feasibility", "confidence", "share")
"""The orders that need no predicted classes."""


@pytest.fixture(scope="module")
def responses():
    bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-1, 1, 12))
    X = bank.simulate(np.random.default_rng(0).normal(size=150)).to_numpy()
    X[:, [1, 8]] = 1 - X[:, [1, 8]]
    return Responses.from_array(X)


@pytest.fixture(scope="module")
def bank():
    """Parameters as if calibrated: i3 is suspect by slope, i4 by its upper asymptote."""
    a, d = np.full(12, 1.5), np.full(12, 0.98)
    a[2], d[3] = -0.8, 0.4
    return ItemBank.from_parameters(a=a, b=np.linspace(-1, 1, 12), d=d)


@pytest.fixture(scope="module")
def seen():
    p = np.full((3, 12), 0.8)
    p[:, 4] = [0.1, 0.2, 0.1]
    return dynamics.from_probabilities(p)


def test_the_same_module():
    assert offered is labels


@pytest.mark.slow
def test_orders(responses, bank, seen):
    first = {}
    for by in (*OF_ANSWERS, "all"):  # "all" is the last
        found = labels.rank(responses, bank, dynamics=seen, by=by)
        first[by] = found.table.index[0]
        assert sorted(found.table.index) == sorted(IDS)
    assert first["answers"] in BAD
    assert first["wrong-key"] in BAD
    assert (first["discrimination"], first["feasibility"]) == ("i3", "i4")
    assert first["confidence"] == "i5"
    table = found.table
    np.testing.assert_allclose(table.loc["i5", "confidence"], 0.4 / 3)
    assert "mean probability of only 0.13" in table.loc["i5", "reasons"]
    columns = ["log_odds", "a", "feasibility", "confidence"]
    ranks = [(-table[c] if c == "log_odds" else table[c]).rank() for c in columns]
    assert pd.concat(ranks, axis=1).mean(axis=1).is_monotonic_increasing
    # What is added changes no suspicion.
    plain = labels.rank(responses, bank).table
    np.testing.assert_allclose(plain["suspicion"], table["suspicion"].loc[plain.index])
    assert "confidence" not in plain


@pytest.mark.slow
def test_feasibility_of_another_bank(responses, bank):
    sound = ItemBank.from_parameters(a=1.5, b=np.linspace(-1, 1, 12))
    assert labels.rank(responses, sound).table["feasibility"].isna().all()
    found = labels.rank(responses, sound, feasibility=bank, by="feasibility")
    assert found.table.index[0] == "i4"
    assert found.table.loc["i4", "feasibility"] == pytest.approx(0.4)


@pytest.mark.slow
def test_wrong_key_order_is_by_its_log_odds(responses, bank):
    prior = (0.1, 0.2)
    table = labels.rank(responses, bank, by="wrong-key", prior=prior).table
    assert set(table.index[:2]) == set(BAD)
    assert table["log_odds_wrong_key"].is_monotonic_decreasing
    p = table["p_wrong_key"].to_numpy()
    middling = (p > 1e-6) & (p < 1 - 1e-6)
    odds = np.log(p / (1 - p))[middling]
    np.testing.assert_allclose(table["log_odds_wrong_key"][middling], odds, rtol=1e-6)
    # An item that ability does not decide is bad, but has no wrong key.
    X = responses.to_numpy().copy()
    X[:, 5] = np.random.default_rng(2).integers(0, 2, len(X))
    coin = labels.rank(Responses.from_array(X), bank).table.loc["i6"]
    assert coin["log_odds"] > 0 > coin["log_odds_wrong_key"]


@pytest.mark.slow
def test_feasibility_is_fitted(responses):
    found = labels.rank(responses, feasibility=True)
    assert found.table["feasibility"].between(0, 1).all()


def test_an_order_needs_its_evidence(responses, bank, seen):
    sound = ItemBank.from_parameters(a=1.5, b=np.linspace(-1, 1, 12))
    for given, words in [
        ({"by": "confidence"}, "dynamics="),
        ({"by": "feasibility"}, "feasibility=True"),
        ({"by": "classes"}, "evidence is passed \\(a crowd\\)"),
        ({"by": "luck"}, "one of auto, answers"),
        ({"planted": [1]}, "the result of labels.plant"),
        ({"planted": labels.plant(["a", "b"])}, "of 12 items"),
        ({"alternatives": 1}, "alternatives"),
        ({"dynamics": 3}, "training dynamics"),
        ({"dynamics": seen.table.rename(index=lambda i: f"{i}x")}, "none of them"),
        ({"dynamics": seen.table.assign(confidence=7)}, "from 0 to 1"),
        ({"dynamics": seen.table.assign(confidence="high")}, "columns of numbers"),
        ({"feasibility": None}, "True, False or a bank"),
        ({"misfit": {"i1": "small"}}, "p-values from 0 to 1"),
        ({"misfit": pd.Series([0.1, 0.2], index=["i1", "i1"])}, "p-values from 0 to 1"),
        ({"prior": ("a", "b")}, "two numbers above 0"),
    ]:
        with pytest.raises(InputError, match=words):
            labels.rank(responses, sound, **given)


def test_how_well_known_errors_are_found():
    order = ["d", "a", "c", "b"]
    table = pd.DataFrame(index=order)
    for ranking in (order, table):
        for known in (["a", "b"], {"a", "b"}, [False, True, False, True]):
            assert [labels.precision_at(ranking, known, n) for n in (1, 2, 4)] == [0, 0.5, 0.5]
            assert [labels.recall_at(ranking, known, n) for n in (1, 2, 4)] == [0, 0.5, 1]
            assert labels.average_precision(ranking, known) == (1 / 2 + 2 / 4) / 2
    assert labels.average_precision(order, ["d"]) == 1
    # A mask by item goes by item, not by place.
    by_item = pd.Series([True, True, False, False], index=list("abcd"))
    assert labels.precision_at(order, by_item, 1) == 0
    assert labels.precision_at(order, by_item.reset_index(drop=True), 2) == 1
    for known, n, words in [
        (["z"], 1, "items of the ranking"),
        ([], 1, "at least one item"),
        (["a"], 5, "between 1 and 4"),
        ([True], 1, "a mask of 4"),
        ("a", 1, "a list of ids or a mask"),
        (None, 1, "a list of ids or a mask"),
    ]:
        with pytest.raises(InputError, match=words):
            labels.precision_at(order, known, n)
    with pytest.raises(InputError, match="a list of ids"):
        labels.precision_at("abc", ["a"], 1)
    with pytest.raises(InputError, match="each once"):
        labels.recall_at(["a", "a"], ["a"], 1)


@pytest.fixture(scope="module")
def members():
    """A crowd of simple learners on three clouds of points, of which 10 % have a wrong label."""
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [3.4, 0.0], [1.7, 2.9]])
    true = rng.integers(0, 3, 100)
    X = centres[true] + rng.normal(size=(100, 2))
    wrong = np.arange(100) < 10
    y = np.where(wrong, (true + rng.integers(1, 3, 100)) % 3, true)

    def nearest(X_train, y_train, X, seed):
        """Probabilities by the distances to the centres of the classes."""
        found = [X_train[y_train == k] for k in range(3)]
        means = np.stack([part.mean(axis=0) if len(part) else [9.0, 9.0] for part in found])
        odds = np.exp(-0.5 * ((X[:, None] - means) ** 2).sum(axis=2))
        return odds / odds.sum(axis=1, keepdims=True)

    sizes = {"size": (0.05, 0.3), "label_noise": (0.0, 0.3)}
    return crowd.build(nearest, (X, y), 40, **sizes, probabilities="all"), wrong


@pytest.mark.slow
def test_the_default_order_depends_on_what_is_given(responses, bank, seen, members):
    assert labels.rank(responses, bank).by == "answers"
    assert labels.rank(responses, bank, dynamics=seen).by == "confidence"
    assert labels.rank(responses, bank, dynamics=seen, by="answers").by == "answers"
    found, wrong = members
    known = found.item_ids[wrong]
    answers = found.responses()
    of_answers, of_classes = labels.rank(answers), labels.rank(found)
    by_answers = labels.precision_at(labels.rank(answers, by="answers"), known, 10)
    for ranking in (of_answers, of_classes):
        assert ranking.checks.loc[ranking.by, "chosen"]
        assert ranking.checks["chosen"].sum() == 1
        assert ranking.n_planted == 50  # ten in each of five rounds
        assert f"Of {ranking.n_planted} planted wrong labels" in ranking.order
        # Those of choice find more flipped labels than the suspicion by the answers.
        assert labels.precision_at(ranking, known, 10) > by_answers + 0.1
    assert of_answers.source == "planted"
    assert of_classes.source == "classes"
    assert set(of_answers.checks.index) == {"answers", "wrong-key", "discrimination", "share"}
    assert {"classes", "margin", "aum", "confidence"} < set(of_classes.checks.index)


def test_an_order_in_words(responses, bank):
    text = labels.rank(responses, bank, by="wrong-key").order
    assert text.startswith("Ordered by probability of a wrong key by the answers.")
    assert "mean rank" in labels.rank(responses, bank, by="all").order


@pytest.mark.slow
def test_planted_labels_leave_no_trace(members):
    found, _ = members
    first = labels.rank(found, seed=1)
    other = labels.rank(found, seed=2)
    assert first.checks["found"].tolist() == labels.rank(found, seed=1).checks["found"].tolist()
    assert first.checks["found"].tolist() != other.checks["found"].tolist()
    plain = labels.rank(found, by=first.by)
    assert plain.checks is None
    pd.testing.assert_frame_equal(first.table, plain.table)


@pytest.mark.slow
@pytest.mark.parametrize("without", [pytest.param((), marks=pytest.mark.slow), ("gold",)])
def test_a_crowd_without_all_probabilities(members, without, monkeypatch):
    monkeypatch.setattr("irtcat.diagnose.labels.plants.N_ROUNDS", 1)
    found, wrong = members
    known = found.item_ids[wrong]
    some = replace(found, probabilities=None, **dict.fromkeys(without))
    ranking = labels.rank(some)
    assert "classes" in ranking.checks.index
    assert "aum" not in ranking.table
    # What cannot be known of another label is not checked.
    assert "confidence" not in ranking.checks.index
    assert ("confidence" in ranking.table) == (not without)
    assert labels.precision_at(ranking, known, 10) >= 0.6
    with pytest.raises(InputError, match="a crowd with probabilities of all"):
        labels.rank(some, by="aum")


@pytest.mark.slow
def test_suggested_classes(members):
    found, _ = members
    table = labels.rank(found, by="classes").table
    assert table["p_other_class"].is_monotonic_decreasing
    np.testing.assert_allclose(
        table["p_wrong_key"] + table["p_unrelated"], table["suspicion"], atol=1e-9
    )
    certain = table[table["p_other_class"] > 0.9]
    label = dict(zip(found.item_ids, found.classes[found.labels], strict=True))
    assert len(certain) >= 3
    assert all(row["suggested"] != label[item] for item, row in certain.iterrows())
    assert all(
        f"learners predict {s}" in r
        for s, r in zip(certain.suggested, certain.reasons, strict=True)
    )


def test_plant():
    y = np.array(["a", "b", "c", "a"] * 25)
    planted = labels.plant(y, 0.2, seed=3)
    changed = np.flatnonzero(planted.labels != y)
    assert changed.tolist() == planted.items.tolist()
    assert len(changed) == 20
    assert (planted.original == y).all()
    assert planted.to_frame()["label"].tolist() == planted.labels[changed].tolist()
    rates = pd.DataFrame([[0.9, 0.1, 0], [0, 1, 0], [0, 0, 1]], list("abc"), list("abc"))
    confused = labels.plant(y, 0.1, confusions=rates)
    assert set(confused.original[confused.items]) == {"a"}
    assert set(confused.labels[confused.items]) == {"b"}
    for given, words in [
        ({"labels": ["a", "a"]}, "two classes"),
        ({"labels": [["a"]]}, "one label per item"),
        ({"labels": ["a", None, "b"]}, "none for item 2"),
        ({"labels": [0.0, 1.0, np.nan]}, "none for item 3"),
        ({"share": 1.0}, "share"),
        ({"confusions": rates * 0}, "some wrong labels"),
        ({"confusions": rates.loc[["a"]]}, "negative"),
        ({"confusions": 3}, "table"),
    ]:
        with pytest.raises(InputError, match=words):
            labels.plant(**{"labels": y, **given})


@pytest.mark.slow
def test_labels_planted_before_training(responses, bank, seen):
    """Only dynamics see what was planted: they are chosen, and the items leave the table."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    planted = labels.plant(y, 0.2, seed=1)
    is_planted = np.isin(np.arange(300), planted.items)
    confidence = np.where(is_planted, 0.1, 0.7) + rng.uniform(0, 0.25, 300)
    X = ItemBank.from_parameters(b=rng.normal(size=300)).simulate(rng.normal(size=60), seed=1)
    ids = X.item_ids
    table = pd.DataFrame({"confidence": confidence}, index=ids)
    ranking = labels.rank(X, dynamics=table, planted=planted)
    assert ranking.by == "confidence"
    assert ranking.checks.loc["confidence", "found"] > 0.95
    assert ranking.checks.loc["answers", "found"] < 0.3
    assert not set(ranking.table.index) & set(ids[is_planted])
    assert len(ranking.table) == 300 - is_planted.sum()
    assert ranking.source == "planted"
    # Without a wrong label that was not planted, hardly any is suspected.
    assert ranking.table["suspicion"].mean() < 0.03

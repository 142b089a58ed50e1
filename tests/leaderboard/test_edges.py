"""Decisions that must not depend on the order of rows, on rounding, or on how ids are written."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses, leaderboard, predict, select, short_form
from irtcat.agreement import majority_share
from irtcat.prediction.run_noise import reliability_of


def drawn(shape, seed=0, p=0.6):
    return Responses.from_array((np.random.default_rng(seed).random(shape) < p).astype(int))


def test_judges_within_clusters_do_not_depend_on_the_order_of_items():
    rng = np.random.default_rng(0)
    rows = [
        (model, f"q{q}", judge, int(rng.random() < p))
        for q in range(24)
        for judge in "abc"
        for model, p in (("old", 0.5), ("new", 0.6))
    ]
    table = pd.DataFrame(rows, columns=["subject", "item", "judge", "response"])
    r = Responses.from_long(table, facets="judge")
    base = zip(r.item_ids, r.items["base_item"], strict=True)
    passage = {item: f"p{int(name[1:]) // 2}" for item, name in base}
    found = [
        leaderboard.compare(
            None,
            None,
            r.subset(items=np.random.default_rng(k).permutation(r.n_items)),
            "new",
            "old",
            judges="judge",
            clusters=passage,
        ).se
        for k in range(3)
    ]
    assert found == pytest.approx([found[0]] * 3, rel=1e-9)


def test_reruns_of_graded_items_are_on_the_scale_of_the_first_run():
    rng = np.random.default_rng(0)
    ids = [f"q{i}" for i in range(60)]
    model, other = rng.integers(1, 4, 60), rng.integers(0, 5, 60)
    other[:2] = 0, 4
    both = Responses.from_array([other, model], subject_ids=["o", "m"], item_ids=ids)
    again = Responses.from_array(model[None], subject_ids=["m"], item_ids=ids)
    assert again.codes != both.codes  # the same answers, of which fewer codes occur
    expected = reliability_of(both.subset(subjects=["m"]), (both,)).icc
    assert reliability_of(again, (both,)).icc == pytest.approx(expected, rel=1e-12)


def test_equal_scores_are_not_distinguished_where_there_is_no_noise():
    rng = np.random.default_rng(1)
    a = rng.integers(0, 4, 31)
    r = Responses.from_array([a, rng.permutation(a), rng.permutation(a)])
    for how in ({"estimand": "run"}, {"reruns": "deterministic"}):
        table = leaderboard.groups(r, **how).table
        assert table["letters"].tolist() == ["a"] * 3
        assert table["rank_upper"].tolist() == [3] * 3


def test_few_clusters_decide_nothing():
    x = drawn((3, 40))
    with pytest.raises(InputError, match="at least 8 clusters"):
        leaderboard.best(x, clusters={f"i{k}": str(k % 2) for k in range(1, 41)})
    shares = np.array([[0.3], [0.9]])
    d = (np.random.default_rng(2).random((2, 80)) < shares).astype(int)
    benchmarks = {"p": Responses.from_array(d), "q": Responses.from_array(d[:, ::-1])}
    two = {f"i{k}": str(k % 2) for k in range(1, 81)}
    table = leaderboard.compare_all(None, None, benchmarks, clusters=two).table
    assert set(table["verdict"]) == {"cannot tell"}


def test_a_budget_of_tenths_pays_what_it_sums_to():
    scores = pd.DataFrame(np.random.default_rng(0).integers(20, 90, (8, 5)), columns=list("abcde"))
    tenths = leaderboard.probe(scores, 3, costs=dict.fromkeys("abcde", 0.1), budget=0.3)
    ones = leaderboard.probe(scores, 3, costs=dict.fromkeys("abcde", 1), budget=3)
    assert list(tenths.benchmarks) == list(ones.benchmarks)


@pytest.mark.parametrize("how", [{"estimand": "run"}, {"reruns": "deterministic"}])
def test_a_ratio_without_noise_is_known(how):
    for seed in range(5):
        x = drawn((2, 50), seed)
        found = leaderboard.compare(None, None, x, scale="ratio", **how)
        assert found.lower == found.difference == found.upper


def test_levels_need_as_many_draws():
    with pytest.raises(InputError, match="`n` argument must be a whole number of at least 2000"):
        leaderboard.groups(drawn((3, 40)), level=0.9995)
    assert len(leaderboard.groups(drawn((3, 40)), level=0.9995, adjust="holm").table) == 3


def test_groups_with_an_equals_sign_can_be_left_out():
    families = pd.DataFrame(
        {"fam": ["lora r=8"] * 6 + ["c"] * 6}, index=[f"s{i}" for i in range(1, 13)]
    )
    values = (np.random.default_rng(0).random((12, 10)) < 0.5).astype(int)
    r = Responses.from_array(values, subjects=families)
    board = leaderboard.evaluate(r, ["random"], [4], "leave-out:fam", [0], estimators=["mean"])
    assert board.table["split"].tolist() == ["leave-out:fam=lora r=8", "leave-out:fam=c"]


def test_a_repeated_id_of_a_cluster_is_refused():
    twice = pd.Series(["x", "y", *"z" * 39], index=["i1", "i1", *(f"i{k}" for k in range(2, 41))])
    with pytest.raises(InputError, match="several for i1"):
        leaderboard.compare(None, None, drawn((2, 40)), clusters=twice)


def test_labels_of_counts_are_those_of_the_table():
    counts = pd.DataFrame({"a": [2, 0], "b": [1, 3]})
    assert majority_share(counts=counts, labels=["b", "a"]) == 1.0
    with pytest.raises(InputError, match="labels of the columns of counts"):
        majority_share(counts=counts, labels=["b", "c"])


def test_numbered_ids_name_nobody():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 60))
    calibration = bank.simulate(np.linspace(-2, 2, 60), seed=1)
    ids = [f"i{k}" for k in range(1, 61, 5)]
    answers = bank.simulate([-0.5], seed=2).to_numpy()
    new = Responses.from_array(answers, subject_ids=["s60"], item_ids=calibration.item_ids)
    ranks = []
    for rows in (np.arange(60), np.arange(60)[::-1], np.arange(1, 60)):
        part = calibration.subset(subjects=rows)
        prediction = predict(part, ids, new.subset(items=ids), estimator="mean")
        assert prediction.known is None or not prediction.known.any()
        ranks.append(prediction.rank[0])
    assert len(set(ranks)) == 1  # s1, who is left out last, is far below


def test_short_forms_weigh_the_noise_of_runs():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 60))
    calibration = bank.simulate(np.linspace(-2, 2, 60), seed=1)
    new = bank.simulate([-1.0, 0.0, 1.0], seed=2)
    subset = select(None, 12, calibration=calibration, strategy="random")
    new = new.subset(items=subset.item_ids)
    weights = np.where(np.arange(60) < 6, 1.0, 0.01)
    form = short_form(calibration, subset=subset, weights=weights)
    full = predict(calibration, subset, new, weights=weights, estimand="model")
    short = form.predict(new, estimand="model")
    ratio = (short.upper - short.lower) / (full.upper - full.lower)
    assert ((ratio > 0.95) & (ratio < 1.2)).all()  # .7 to .84 with equal weights

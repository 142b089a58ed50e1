"""Metrics against brute force, bootstrap against repetition, and every way to split."""

import itertools

import numpy as np
import pandas as pd
import pytest

from irtcat import agreement
from irtcat._common.checks import InputError
from irtcat.bank import ItemBank
from irtcat.leaderboard import METRICS, evaluate, protocol, split_subjects
from irtcat.leaderboard.metrics import compare_scores, resampled_metrics
from irtcat.responses import Responses


def scores(seed, n=14, step=0.01):
    """Told scores, ends and full scores on a coarse grid, so that there are ties."""
    rng = np.random.default_rng(seed)
    truth = np.round(rng.uniform(0.4, 0.6, n) / step) * step
    told = np.round((truth + rng.normal(0, 0.03, n)) / step) * step
    return told, told - 0.03, told + 0.04, truth


def brute_pairs(told, truth, low, high):
    right = []
    for i, j in itertools.combinations(range(len(told)), 2):
        gap = round(abs(truth[i] - truth[j]), 9)
        if gap > 0 and low <= gap < high:
            agrees = (told[i] - told[j]) * (truth[i] - truth[j])
            right.append(0.5 if abs(agrees) < 1e-15 else float(agrees > 0))
    return np.mean(right) if right else np.nan


@pytest.mark.parametrize("seed", range(5))
def test_pairwise_accuracy_by_hand(seed):
    told, lower, upper, truth = scores(seed)
    metrics, flags = compare_scores(told.round(9), lower, upper, truth, 5)
    wanted = {
        "pairwise_under_2": (0, 0.02),
        "pairwise_2_to_5": (0.02, 0.05),
        "pairwise_over_5": (0.05, 9),
    }
    for name, ends in wanted.items():
        assert metrics[name] == pytest.approx(brute_pairs(told.round(9), truth, *ends))
    assert metrics["width"] == pytest.approx(7)
    assert flags == []


def brute_top(x, y, n, draws=4000):
    """The same random order breaks the ties of both lists."""
    rng = np.random.default_rng(0)
    share = []
    for noise in rng.random((draws, len(x))):
        best = [set(np.lexsort((noise, -values))[:n]) for values in (x, y)]
        share.append(len(best[0] & best[1]) / n)
    return np.mean(share)


def test_top_overlap_without_ties_is_the_share_of_the_best_found():
    rng = np.random.default_rng(1)
    for n in (1, 3, 9, 10):
        x, y = rng.normal(size=(2, 10))
        assert agreement.top_overlap(x, y, n) == pytest.approx(brute_top(x, y, n, 1))


def test_top_overlap_shares_the_last_places_among_ties():
    assert agreement.top_overlap([3, 2, 2, 2], [4, 3, 2, 1], 2) == pytest.approx(2 / 3)
    assert agreement.top_overlap([1, 1, 1, 1], [1, 1, 1, 1], 2) == 1
    x = np.array([3, 2, 2, 2, 1])  # ties of one list only: the expected overlap
    assert agreement.top_overlap(x, [5, 4, 3, 2, 1], 2) == pytest.approx(
        brute_top(x, np.array([5, 4, 3, 2, 1]), 2), abs=0.02
    )


@pytest.mark.parametrize("seed", range(6))
def test_resampled_metrics_are_those_of_the_repeated_subjects(seed):
    told, lower, upper, truth = scores(seed)
    rng = np.random.default_rng(seed)
    weights = np.vstack([np.ones(14), rng.multinomial(14, np.full(14, 1 / 14), 5)])
    found = resampled_metrics(told, lower, upper, truth, weights, 5)
    assert list(found) == list(METRICS)
    for b, counts in enumerate(weights.astype(int)):
        parts = [np.repeat(part, counts) for part in (told, lower, upper, truth)]
        wanted, _ = compare_scores(*parts, 5)
        for name in METRICS:
            np.testing.assert_allclose(found[name][b], wanted[name], atol=1e-9, err_msg=name)


@pytest.fixture(scope="module")
def responses():
    rng = np.random.default_rng(4)
    bank = ItemBank.from_parameters(a=rng.lognormal(0.2, 0.4, 80), b=rng.normal(0, 1.2, 80))
    r = bank.simulate(rng.normal(size=80), seed=4)
    about = pd.DataFrame(
        {
            "family": [f"f{i % 4}" if i else "alone" for i in range(80)],
            "date": [f"2024-{1 + i // 8:02d}-0{1 + i % 4}" for i in range(80)],
            "size": np.arange(80.0)[::-1],
            "word": "x",
        },
        index=r.subject_ids,
    )
    return Responses.from_array(r.to_numpy(), r.subject_ids, r.item_ids, subjects=about)


@pytest.fixture(scope="module")
def board(responses):
    return evaluate(
        responses, ["random", "stratified"], [10, 30], seeds=[0, 1], estimators=["mean", "weighted"]
    )


# --- bootstrap ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("over", ["subjects", "items", "both"])
def test_intervals_are_seeded_and_hold_the_summary(board, over):
    table = board.intervals(over, n=60, seed=3)
    pd.testing.assert_frame_equal(table, board.intervals(over, n=60, seed=3))
    assert not table.equals(board.intervals(over, n=60, seed=4))
    summary = board.summary()
    assert table.index.equals(summary.index)
    for name in ("kendall", "mae", "pairwise_over_5"):
        inside = summary[name].between(table[f"{name}_lower"], table[f"{name}_upper"])
        assert inside.mean() > 0.7
    assert set(table["flag"]) == {""}


@pytest.mark.slow
def test_interval_over_subjects_is_the_sampling_spread():
    """Against the spread of the MAE over fresh subjects."""
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(b=rng.normal(0, 1, 60))
    mae, widths = [], []
    for seed in range(25):
        r = bank.simulate(rng.normal(size=80), seed=seed)
        one = evaluate(r, ["random"], [20], seeds=[0], estimators=["mean"], share=0.6)
        ends = one.intervals(n=200, level=0.68)
        widths.append((ends["mae_upper"] - ends["mae_lower"]).iloc[0] / 2)
        mae.append(one.to_frame()["mae"].iloc[0])
    # The subset is the same (seed 0), so that only subjects differ.
    assert 0.65 < np.mean(widths) / np.std(mae) < 1.5


def test_items_drawn_anew_move_the_full_scores_only(board):
    table = board.intervals("items", n=50)
    np.testing.assert_allclose(table["width_lower"], table["width_upper"])
    assert (table["mae_upper"] > table["mae_lower"]).all()


@pytest.mark.parametrize("given", [{"over": "models"}, {"n": 1}, {"level": 1.0}])
def test_intervals_refuse(board, given):
    with pytest.raises(InputError):
        board.intervals(**given)


# --- splits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["date", "size"])
def test_before_calibrates_on_what_is_older(responses, column):
    low, high = split_subjects(responses, f"before:{column}")
    assert low.subjects[column].max() < high.subjects[column].min()
    assert low.n_subjects + high.n_subjects == 80
    assert abs(high.n_subjects - 20) <= 2


def test_subjects_without_a_date_are_in_no_part(responses):
    about = responses.subjects.assign(date=responses.subjects["date"].where(np.arange(80) > 4))
    r = Responses.from_array(responses.to_numpy(), responses.subject_ids, subjects=about)
    low, high = split_subjects(r, "before:date")
    assert low.n_subjects + high.n_subjects == 75


def test_every_group_is_left_out_once(responses):
    board = evaluate(
        responses, ["random"], [10], "leave-out:family", seeds=[0, 1], estimators=["mean"]
    )
    table = board.to_frame()
    assert sorted(table["split"].unique()) == [f"leave-out:family=f{i}" for i in range(4)]
    assert len(table) == 8
    assert (table["n_calibration"] + table["n_held_out"] == 80).all()
    assert board.flags == ("groups never held out, too small: alone",)
    assert "split leave-out:family;" in repr(board)
    low, high = split_subjects(responses, "leave-out:family=f2")
    assert set(high.subjects["family"]) == {"f2"}
    assert "f2" not in set(low.subjects["family"])


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ("before:when", "before:date"),
        ("before:family", "numbers or dates"),
        ("before:word", "numbers or dates"),
        ("leave-out:family=f9", "f0"),
        ("leave-out:word", "a group of at least 2 subjects"),
    ],
)
def test_splits_that_cannot_be(responses, split, words):
    with pytest.raises(InputError, match=words):
        evaluate(responses, ["random"], [10], split, estimators=["mean"])


# --- degenerate data ----------------------------------------------------------------------------


def test_what_is_not_defined_is_said(responses):
    X = np.eye(12, dtype=int)  # all full scores are equal
    board = evaluate(Responses.from_array(X), ["random"], [3], seeds=[0], estimators=["mean"])
    row = board.to_frame().iloc[0]
    missing = {name for name in METRICS if np.isnan(row[name])}
    assert set(row["undefined"].split(", ")) == missing
    assert {"kendall", "pairwise_over_5", "top_overlap"} <= missing
    assert "kendall" in board.intervals(n=20)["flag"].iloc[0]
    assert "kendall" in board.summary()["undefined"].iloc[0]


def test_what_all_brings_in_and_cannot_be_done_is_a_flagged_row(responses, monkeypatch):
    kept = {name: protocol.STRATEGIES[name] for name in ("random", "pcub")}
    monkeypatch.setattr(protocol, "STRATEGIES", kept)
    given = dict(n_items=[5], seeds=[0], estimators=["mean"], tau=0.0)
    table = evaluate(responses, "all", **given).to_frame().set_index("strategy")
    assert "0 items to choose from" in table.loc["pcub", "flag"]
    assert np.isnan(table.loc["pcub", "mae"])
    assert table.loc["random", "flag"] == ""
    with pytest.raises(InputError, match="0 items to choose from"):
        evaluate(responses, ["random", "pcub"], **given)

"""The protocol, the metrics by hand, what good strategies must show, and bad input."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import irtcat.leaderboard.hold_outs as module
from irtcat import EM
from irtcat._common.checks import InputError
from irtcat.bank import ItemBank
from irtcat.fitting import fit
from irtcat.leaderboard import METRICS, evaluate, full_scores, split_subjects
from irtcat.responses import Responses
from irtcat.scoring import posteriors
from irtcat.selection import select

N, ITEMS = 103, 150
COLUMNS = (
    "split seed strategy estimator n_items kendall spearman pearson mae rmse pairwise_under_2 "
    "pairwise_2_to_5 pairwise_over_5 top_overlap coverage width undefined "
    "n_calibration n_held_out n_benchmark flag"
)


@pytest.fixture(scope="module")
def responses():
    rng = np.random.default_rng(4)
    bank = ItemBank.from_parameters(a=rng.lognormal(0.2, 0.5, ITEMS), b=rng.normal(0, 1.3, ITEMS))
    r = bank.simulate(rng.normal(size=N), seed=4)
    family = [f"f{i % 9}" for i in range(N)]
    about = pd.DataFrame({"family": family, "ability": family}, index=r.subject_ids)
    return Responses.from_array(r.to_numpy(), r.subject_ids, r.item_ids, subjects=about)


@pytest.fixture(scope="module")
def board(responses):
    return evaluate(
        responses,
        ["random", "stratified", "fisher"],
        n_items=[10, 30, 100],
        seeds=range(4),
        estimators=["mean", "irt"],
    )


# --- protocol -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_random_split_is_the_field_s(responses, seed):
    held = np.random.default_rng(seed).permutation(N)[: N // 4]
    low, high = split_subjects(responses, "random", seed)
    assert set(high.subject_ids) == set(responses.subject_ids[held])
    assert set(low.subject_ids) == set(responses.subject_ids) - set(high.subject_ids)


def test_ability_split(responses):
    low, high = split_subjects(responses, "ability")
    order = np.argsort(responses.to_numpy().mean(1), kind="stable")
    assert set(low.subject_ids) == set(responses.subject_ids[order[: N // 2]])
    assert set(high.subject_ids) == set(responses.subject_ids[order[-int(0.3 * N) :]])
    assert full_scores(low).max() <= full_scores(high).min()


@pytest.mark.parametrize("column", ["family", "ability"])
def test_metadata_split_keeps_groups_whole(responses, column):
    low, high = split_subjects(responses, f"metadata:{column}", 1)
    group = responses.subjects["family"]
    assert not set(group[low.subject_ids]) & set(group[high.subject_ids])
    assert low.n_subjects + high.n_subjects == N
    # the family "ability" is a column here and not the split of that name
    assert full_scores(low).max() > full_scores(high).min()


def test_a_subject_without_responses_is_in_no_ability_part(responses):
    X = responses.to_numpy()
    X[0] = np.nan
    low, high = split_subjects(Responses.from_array(X), "ability")
    assert "s1" not in {*low.subject_ids, *high.subject_ids}


def test_duplicate_rows_are_dropped_first(responses):
    X = responses.to_numpy()
    twice = Responses.from_array(np.concatenate([X, X[:20]]))
    once = evaluate(Responses.from_array(X), ["random"], n_items=[10], estimators=["mean"])
    board = evaluate(twice, ["random"], n_items=[10], estimators=["mean"])
    pd.testing.assert_frame_equal(board.to_frame(), once.to_frame())
    assert (board.n_duplicates, once.n_duplicates) == (20, 0)


def test_metrics_by_hand(responses):
    board = evaluate(responses, ["random"], n_items=[10, 30], seeds=[3], estimators=["mean"])
    low, high = split_subjects(responses, "random", 3)
    truth = high.to_numpy().mean(1)
    for _, row in board.to_frame().iterrows():
        items = select(None, row["n_items"], strategy="random", calibration=low, seed=3).item_ids
        told = high.subset(items=items).to_numpy().mean(1)
        assert row["kendall"] == pytest.approx(stats.kendalltau(told, truth).statistic)
        assert row["spearman"] == pytest.approx(stats.spearmanr(told, truth).statistic)
        assert row["pearson"] == pytest.approx(stats.pearsonr(told, truth).statistic)
        assert row["mae"] == pytest.approx(100 * np.abs(told - truth).mean())
        assert row["rmse"] == pytest.approx(100 * np.sqrt(((told - truth) ** 2).mean()))
        assert (row["n_calibration"], row["n_held_out"], row["n_benchmark"]) == (78, 25, ITEMS)


@pytest.mark.slow
def test_held_out_subjects_are_unseen(responses, monkeypatch):
    """Neither the calibration nor the choice of items is given a held-out subject."""
    _, high = split_subjects(responses, "random", 0)
    given = []
    monkeypatch.setattr(module, "fit", lambda r, *a, **k: given.append(r) or fit(r, *a, **k))

    def spy(bank, n_items, *, calibration, **named):
        given.append(calibration)
        return select(bank, n_items, calibration=calibration, **named)

    monkeypatch.setattr(module, "select", spy)
    evaluate(
        responses, ["fisher", "random"], n_items=[10, 30], seeds=[0], estimators=["mean", "irt"]
    )
    assert len(given) == 5  # one calibration serves every strategy and k
    assert all(not set(r.subject_ids) & set(high.subject_ids) for r in given)


@pytest.mark.slow
def test_nothing_is_calibrated_where_nothing_needs_it(responses, monkeypatch):
    monkeypatch.setattr(module, "fit", None)
    evaluate(responses, ["random", "stratified", "pcub", "pclb"], [10], estimators=["mean"])


# --- what it must show --------------------------------------------------------------------------


@pytest.mark.slow
def test_table(board):
    table = board.to_frame()
    assert table.columns.tolist() == COLUMNS.split()
    assert len(table) == 4 * 3 * 3 * 2
    assert not table.isna().any(axis=None)
    assert set(table["flag"]) == {""}
    table["mae"] = 0.0
    assert (board.to_frame()["mae"] > 0).all()  # a copy was handed out
    text = (
        "Leaderboard(103 x 150, split random; strategies: 3, estimators: 2, n_items: 3, seeds: 4)"
    )
    assert repr(board) == text


def test_summary_is_the_mean_over_seeds(board):
    table, summary = board.to_frame(), board.summary()
    assert summary.index.names == ["strategy", "estimator", "n_items"]
    rows = table[(table.strategy == "fisher") & (table.estimator == "irt") & (table.n_items == 30)]
    row = summary.loc[("fisher", "irt", 30)]
    for name in METRICS:
        assert row[name] == pytest.approx(np.mean(rows[name]))
        assert row[f"{name}_sd"] == pytest.approx(np.std(rows[name], ddof=1))
        assert row[f"{name}_se"] == pytest.approx(np.std(rows[name], ddof=1) / 2)
    assert row["n_seeds"] == 4


def test_information_and_the_model_beat_the_mean_of_a_few(board):
    at = board.summary().xs(10, level="n_items")
    assert at.loc[("fisher", "irt"), "kendall"] > at.loc[("random", "mean"), "kendall"] + 0.02
    assert at.loc[("fisher", "irt"), "mae"] < 0.7 * at.loc[("random", "mean"), "mae"]


def test_more_items_tell_more(board):
    summary = board.summary().sort_index()
    for strategy in ("random", "stratified", "fisher"):
        curve = summary.loc[(strategy, "irt")]
        assert curve["kendall"].is_monotonic_increasing
        assert curve["mae"].is_monotonic_decreasing


def test_true_model_intervals_cover(board):
    summary = board.summary().sort_index()
    assert summary.loc[("random", "mean"), "coverage"].mean() > 0.9
    assert summary.loc[("random", "irt"), "coverage"].mean() > 0.85  # 78 subjects calibrated


@pytest.mark.slow
def test_all_items_are_perfect(responses):
    table = evaluate(
        responses, ["random"], [ITEMS], seeds=[0], estimators=["mean", "irt"]
    ).to_frame()
    np.testing.assert_allclose(table["mae"], 0, atol=1e-9)
    np.testing.assert_allclose(table["kendall"], 1)
    np.testing.assert_allclose(table["coverage"], 1)


@pytest.mark.slow
def test_the_same_twice(responses, board):
    again = evaluate(
        responses,
        ["random", "stratified", "fisher"],
        n_items=[10, 30, 100],
        seeds=range(4),
        estimators=["mean", "irt"],
    )
    pd.testing.assert_frame_equal(board.to_frame(), again.to_frame())


@pytest.mark.slow
def test_ability_split_repeats_what_does_not_draw(responses):
    table = evaluate(
        responses, ["random", "fisher"], [10], "ability", seeds=[0, 1], estimators=["mean", "irt"]
    ).to_frame()
    assert (table["n_calibration"] == 51).all()
    assert (table["n_held_out"] == 30).all()
    by = table.groupby(["strategy", "estimator"])["mae"].nunique()
    assert (by["fisher"] == 1).all()
    assert (by["random"] == 2).all()


@pytest.mark.slow
def test_metadata_split_and_filters(responses):
    board = evaluate(
        responses,
        ["pcub", "ub"],
        [10],
        "metadata:family",
        seeds=[0],
        estimators=["mean", "weighted"],
        tau=0.8,
        model="rasch",
    )
    assert set(board.to_frame()["split"]) == {"metadata:family"}


@pytest.mark.slow
def test_fractions(responses):
    X = 0.8 * responses.to_numpy() + 0.1
    table = evaluate(
        Responses.from_array(X), ["fisher"], [10], seeds=[0], estimators=["mean", "irt"]
    ).to_frame()
    assert not table[list(METRICS)].isna().any(axis=None)


@pytest.mark.slow
def test_no_recompilation_at_the_same_shapes(responses, board):
    before = posteriors._posterior._cache_size()
    evaluate(
        responses, ["discrimination"], n_items=[10, 30], seeds=[7, 8], estimators=["mean", "irt"]
    )
    assert posteriors._posterior._cache_size() == before


@pytest.mark.slow
def test_progress(responses):
    calls = []
    evaluate(
        responses,
        ["random"],
        [10, 20],
        seeds=[0, 5],
        estimators=["mean", "irt"],
        progress=lambda *a: calls.append(a),
    )
    assert calls[0] == (0, 4, "seed 0: splitting and calibrating")
    assert [done for done, _, _ in calls] == [0, 1, 2, 2, 3, 4]
    assert calls[-1] == (4, 4, "seed 5: random, k = 20")


# --- flags --------------------------------------------------------------------------------------


def test_undefined_correlations_are_flagged():
    X = np.eye(12, dtype=int)  # every subject has one right: all full scores are equal
    table = evaluate(Responses.from_array(X), ["random"], [3], seeds=[0], estimators=["mean"])
    row = table.to_frame().iloc[0]
    assert np.isnan(row["kendall"])
    assert "all full scores are equal" in row["flag"]
    assert "all full scores are equal" in table.summary()["flag"].iloc[0]


def test_subjects_that_cannot_be_compared_are_left_out_and_flagged(responses):
    X = responses.to_numpy()
    held = np.random.default_rng(0).permutation(N)[:3]  # under seed 0
    X[held] = np.nan
    X[held, [0, 1, 2]] = 1  # they have a full score, and no response to the subset
    board = evaluate(Responses.from_array(X), ["random"], [10], seeds=[0], estimators=["mean"])
    row = board.to_frame().iloc[0]
    assert row["flag"] == "held-out subjects left out: 3"
    assert row["n_held_out"] == 25
    assert np.isfinite(row["kendall"])


def test_nobody_left_to_compare(responses):
    X = responses.to_numpy()[:8]
    held = np.random.default_rng(0).permutation(8)[:2]
    X[held] = np.nan
    X[held, [0, 1]] = 1  # both have a full score, but no response to the subset
    board = evaluate(Responses.from_array(X), ["random"], [1], seeds=[0], estimators=["mean"])
    row = board.to_frame().iloc[0]
    assert "fewer than 2 subjects to compare" in row["flag"]
    assert np.isnan(row["mae"])


def test_calibration_that_did_not_converge_is_flagged(responses, monkeypatch):
    monkeypatch.setattr(
        module, "fit", lambda r, model, solver, **k: fit(r, model, EM(max_iterations=1), **k)
    )
    table = evaluate(responses, ["random"], [10], seeds=[0], estimators=["mean", "irt"]).to_frame()
    assert set(table["flag"]) == {"calibration not converged"}


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategies": ["luck"]}, "`strategies` argument must be one of random, stratified"),
        ({"strategies": []}, "`strategies` argument must be at least one of random"),
        ({"strategies": "random"}, 'Write ["random"].'),
        ({"estimators": ["luck"]}, "`estimators` argument must be one of auto, curves"),
        ({"estimators": []}, "`estimators` argument must be at least one"),
        (
            {"n_items": [10, 151]},
            "`n_items` argument must be whole numbers up to 150, the number of items",
        ),
        ({"n_items": [0]}, "`n_items` argument must be a whole number of at least 1. Got 0"),
        ({"n_items": [2.5]}, "a whole number of at least 1"),
        ({"n_items": []}, "`n_items` argument must be at least one whole number"),
        ({"n_items": 10}, "`n_items` argument must be a list of whole numbers. Got 10"),
        ({"seeds": []}, "`seeds` argument must be at least one whole number"),
        ({"seeds": 5}, "`seeds` argument must be a list of whole numbers"),
        ({"seeds": [-1]}, "`seeds` argument must be a whole number of at least 0"),
        ({"split": "date"}, "`split` argument must be random, ability, metadata:<column>, before"),
        ({"split": "metadata:date"}, "one of random, ability, metadata:family"),
        ({"split": None}, "`split` argument must be"),
        ({"share": 1.0}, "`share` argument"),
        ({"share": 0.001}, "`share` argument"),
        ({"share": 0.01}, "at least 2 subjects held out. Got 1."),
        ({"share": 0.999}, "at least 2 subjects calibrated"),
        ({"model": "5pl"}, "`model` argument"),
        ({"responses": 3}, "`responses` argument must be Responses, an array"),
        ({"tau": -99.0, "strategies": ["ub"]}, "has 0 items to choose from"),
    ],
)
def test_refused(responses, changes, words):
    arguments = {"responses": responses, "strategies": ["random"], "n_items": [10], "seeds": [0]}
    with pytest.raises(InputError) as error:
        evaluate(**{**arguments, **changes})
    assert words in str(error.value)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_too_few_subjects(responses, n):
    few = responses.subset(subjects=range(n)) if n > 1 else responses.subset(subjects=[0])
    with pytest.raises(InputError, match="at least 4 different subjects"):
        evaluate(few, ["random"], [10])


def test_intervals_refuse_a_negative_seed(responses):
    board = evaluate(responses, ["random"], n_items=[20], estimators=["mean"])
    with pytest.raises(InputError, match="`seed` argument must be a whole number of at least 0"):
        board.intervals(n=10, seed=-1)

"""Difficulties that the responses do not determine: not printed, and not ranked by."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import ItemBank, Responses, fit
from irtcat.bank import Population, ranking
from irtcat.bank._table import read_bank_table
from irtcat.cat import Config, prepare
from irtcat.leaderboard import headroom
from irtcat.models import TwoPL
from irtcat.selection import select
from irtcat.training import filters
from irtcat.training.curriculum import AbilityMatched, Competency
from irtcat.training.online.inputs import read_items


def bank_of(slope, intercept, share, se=0.2, n=16):
    """A 2PL bank with the standard error ``se`` of all parameters and recorded shares right."""
    ids = [f"q{j}" for j in range(1, len(slope) + 1)]
    seen = {"n_responses": n, "proportion_correct": share}
    return ItemBank(
        TwoPL(np.array(slope, float), np.array(intercept, float)),
        np.array(ids),
        covariance=np.tile(np.eye(2) * se**2, (len(ids), 1, 1)),
        statistics=pd.DataFrame(seen, index=ids),
    )


@pytest.fixture
def flat():
    """A hard and an easy item of the issue with slopes of 0, and three sound items."""
    return bank_of(
        [-1.7e-17, 1.7e-17, 1.0, 1.2, 0.9],
        [-1.9, 1.9, 1.0, 0.0, -1.2],
        [2 / 16, 14 / 16, 0.7, 0.5, 0.25],
    )


def test_the_interval_of_the_slope_decides():
    bank = bank_of([0.39, 0.40, -0.5, 1.0], [0.0, 0.0, 0.0, -12.0], [0.5] * 4, se=0.2)
    assert bank.determined.tolist() == [False, True, False, True]  # 1.96 * 0.2 = 0.392
    assert bank.to_frame()["b"].tolist() == [0.0, 0.0, 0.0, 12.0]  # 12 is determined


def test_without_standard_errors_difficulties_are_bounded():
    bank = ItemBank.from_parameters(a=[1, 1, 1, -1], b=[7.9, 8.1, -8.1, 0], population_sd=1.0)
    assert bank.determined.tolist() == [True, False, False, False]
    moved = bank.rescale(2.0, 5.0)
    assert moved.determined.tolist() == bank.determined.tolist()
    assert np.isnan(moved.to_frame()["b"]).tolist() == [False, True, True, False]


def test_rasch_items_are_determined():
    rasch = replace(
        fit(Responses.from_array(np.eye(4, 3).repeat(9, 0)), "rasch").bank,
        populations=Population(0.0, 0.01),
    )
    assert rasch.determined.all()
    assert rasch.to_frame()["b"].notna().all()


def test_far_difficulties_are_not_printed(flat, tmp_path):
    frame = flat.to_frame()
    assert frame[["b", "se_b"]].isna().all(axis=1).tolist() == [True, True, False, False, False]
    assert frame[["a", "se_a"]].notna().all(axis=None)
    plain = read_bank_table(flat.save(tmp_path / "bank.npz"), 2**20)
    pd.testing.assert_frame_equal(plain.table, frame, check_exact=False, rtol=1e-12)


def test_thresholds_and_mdiff():
    graded = ItemBank.from_thresholds(a=[1.0, 1e-9], b=[[-1.0, 1.0], [-1e9, 3e9]])
    assert graded.determined.tolist() == [True, False]
    assert graded.to_frame()[["b1", "b2", "b"]].isna().all(axis=1).tolist() == [False, True]
    several = ItemBank.from_slopes([[1.0, 0.5], [1e-9, 0.0]], [0.5, 1.0])
    assert several.determined.tolist() == [True, False]
    assert np.isnan(several.to_frame()["mdiff"]).tolist() == [False, True]
    nominal = ItemBank.from_thresholds([[0.0, 1.0, 2.0]], [[0.0, 0.5, 0.5]], model="nominal")
    assert nominal.determined.tolist() == [False]


def test_subsets_and_files_keep_it(flat, tmp_path):
    assert flat.determined.tolist() == [False, False, True, True, True]
    assert flat.subset(["q3", "q1"]).determined.tolist() == [True, False]
    loaded = ItemBank.load(flat.save(tmp_path / "bank.npz"))
    assert loaded.determined.tolist() == flat.determined.tolist()


def test_items_are_ranked_by_the_share_right(flat):
    order = flat.item_ids[np.argsort(ranking(flat).b)]
    assert order.tolist() == ["q2", "q3", "q4", "q5", "q1"]


def test_the_share_is_mapped_by_the_population():
    """b of the share that the model itself expects: an item of typical slope gets its own b."""
    b = np.array([-2.0, -0.5, 0.0, 1.0, 3.0])
    theta = np.linspace(-7, 7, 2001)
    weight = np.exp(-0.5 * theta**2) / np.exp(-0.5 * theta**2).sum()
    share = (1 / (1 + np.exp(-1.3 * (theta - b[:, None])))) @ weight
    bank = bank_of(np.r_[[1.3] * 3, [0.0] * 5], np.zeros(8), np.r_[[0.5] * 3, share], n=10**6)
    np.testing.assert_allclose(ranking(bank).b[3:], b, atol=1e-3)
    np.testing.assert_allclose(ranking(bank.rescale(2.0, 5.0)).b[3:], 2 * b + 5, atol=2e-3)


def test_items_that_all_or_none_solved_come_last():
    bank = bank_of([1.0] + [0.0] * 4, np.zeros(5), [0.5, 0.0, 1.0, 1 / 16, 15 / 16])
    assert np.argsort(ranking(bank).b).tolist() == [2, 4, 0, 3, 1]
    assert np.isfinite(ranking(bank).b).all()


def test_determined_items_keep_their_b(flat):
    assert ranking(flat).b[2:].tolist() == flat.to_frame()["b"].tolist()[2:]


@pytest.mark.parametrize("scale", [(1.0, 0.0), (2.0, 5.0)])
def test_banks_without_shares_rank_by_those_that_their_parameters_imply(scale):
    """Of slopes near 0, the intercept says which are easy; figures by the plain integral."""
    a, intercept = (
        np.array([1.3, 1.3, 1.3, 1e-9, 1e-9, 0.02, -0.05, -1.0]),
        np.array([0.0, 1.0, -1.0, 1.5, -1.5, -3.0, 2.0, 0.5]),
    )
    bank = ItemBank.from_parameters(a, -intercept / a).rescale(*scale)
    theta = np.linspace(-7, 7, 2001)
    weight = np.exp(-0.5 * theta**2) / np.exp(-0.5 * theta**2).sum()
    share = (1 / (1 + np.exp(-a[:, None] * theta - intercept[:, None]))) @ weight
    found = ranking(bank)
    b = (found.b - scale[1]) / scale[0]
    assert found.by_share.tolist() == [False] * 3 + [True] * 5
    again = (1 / (1 + np.exp(-1.3 * (theta - b[:, None])))) @ weight
    np.testing.assert_allclose(again, share, atol=1e-4)
    assert np.array_equal(np.argsort(b), np.argsort(-share))
    kept = filters.apply(bank, "ub", keep=0.125).item_ids
    assert kept.tolist() == [bank.item_ids[share.argmax()]]
    known = ItemBank.from_parameters(a=[-1.0, 1.0], b=[0.5, 40.0])
    np.testing.assert_allclose(ranking(known).b, [-0.5, 40.0], atol=1e-4)


@pytest.mark.parametrize(("rule", "first"), [("ub", "q2"), ("lb", "q1")])
def test_filters_and_selection_use_the_share(flat, rule, first):
    assert filters.apply(flat, rule, keep=0.2).item_ids.tolist() == [first]
    assert filters.apply(flat, rule, keep=1.0).table["flag"].eq("").all()
    assert select(flat, 1, strategy=rule).item_ids.tolist() == [first]


def test_middling_items_by_the_share(flat):
    assert filters.apply(flat, "avi", keep=1).item_ids.tolist() == ["q4"]
    assert sorted(filters.apply(flat, "avo", keep=2).item_ids) == ["q1", "q2"]


def test_curricula_use_the_share(flat):
    order = ["q2", "q3", "q4", "q5", "q1"]
    easiest = Competency(flat, epochs_to_all=1, start=1.0, shuffle=False)
    assert flat.item_ids[easiest.next()].tolist() == order
    matched = AbilityMatched(flat, shuffle=False, lower=-np.inf, upper=np.inf)
    assert flat.item_ids[matched.peek()].tolist() == order
    assert matched.items["a"].tolist() == [1.0, 1.0, 1.0, 1.2, 0.9]  # the median where not known


def test_headroom_quantiles(flat):
    assert headroom(flat, ["all"] * 5, theta=0.0)["b_p95"].iloc[0] < 4


def test_adaptive_tests(flat):
    pool = prepare(flat, Config(max_items=5))
    assert np.argsort(np.asarray(pool.b)).tolist() == [1, 2, 3, 4, 0]
    assert np.abs(pool.b).max() < 4


def test_the_selector_of_prompts(flat):
    prior = read_items(flat).prior
    assert np.argsort(prior.b).tolist() == [1, 2, 3, 4, 0]
    assert (prior.var_b < 4).all()
    assert (prior.var_b[:2] > 0.4).all()

"""Test sets beside each other: slopes by hand and by difference, groups, and the figure."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, plot, score
from irtcat.leaderboard import headroom
from irtcat.leaderboard.sets import item_slopes


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(0)
    about = pd.DataFrame({"set": ["easy"] * 30 + ["hard"] * 20})
    made = ItemBank.from_parameters(
        a=rng.lognormal(0, 0.3, 50), b=np.r_[rng.normal(-2, 1, 30), rng.normal(2, 1, 20)], c=0.2
    )
    return ItemBank(made.model, made.item_ids, items=about.set_axis(made.item_ids))


def test_scores_by_hand(bank):
    table = headroom(bank, "set", theta=1.5)
    assert table.index.tolist() == ["hard", "easy"]
    frame = bank.to_frame()
    p = 1 / (1 + np.exp(-frame["a"] * (1.5 - frame["b"])))
    slope = 0.8 * frame["a"] * p * (1 - p)  # of c + (1 - c) p
    for name, rows in frame.groupby("set"):
        row, mine = table.loc[name], slope[rows.index]
        assert row["n_items"] == len(rows)
        assert row["headroom"] == pytest.approx(mine.mean())
        assert row["headroom_se"] == pytest.approx(mine.std() / np.sqrt(len(mine)))
        assert row["expected_score"] == pytest.approx((0.2 + 0.8 * p[rows.index]).mean())
        assert row["b_p25"] == pytest.approx(rows["b"].quantile(0.25))
        assert row["a_p50"] == pytest.approx(rows["a"].median())
        assert row["share_negative"] == 0
        assert row["flag"] == ""


@pytest.mark.parametrize(
    "items",
    [
        ItemBank.from_thresholds(a=[1.0, 2.0], b=[[-1.0, 1.0], [0.0, 0.5]]),
        ItemBank.from_parameters(a=[1.0, -0.5], b=[0.3, 1.0]),
    ],
    ids=["graded", "negative slope"],
)
def test_slopes_are_differences_of_the_expected_score(items):
    top = items.model.n_categories - 1
    codes = np.arange(top + 1) / top

    def expected(theta):
        return items.category_probabilities(theta)[:, 0] @ codes

    value, slope = item_slopes(items, 0.4)
    np.testing.assert_allclose(value, expected(0.4), atol=1e-9)
    wanted = (expected(0.4 + 1e-5) - expected(0.4 - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, wanted, atol=1e-8)


@pytest.mark.slow
def test_several_banks_are_the_groups_of_one(bank):
    parts = {name: bank.subset(bank.items["set"].to_numpy() == name) for name in ("easy", "hard")}
    one, several = headroom(bank, "set", theta=0.0), headroom(parts, theta=0.0)
    pd.testing.assert_frame_equal(one, several)
    assert headroom(bank, theta=0.0).index.tolist() == ["all"]


@pytest.mark.slow
def test_the_best_subject_is_found(bank):
    r = bank.simulate([-1.0, 1.8, 0.0], seed=1)
    abilities = score(bank, r)
    table = headroom(bank, "set", abilities=abilities)
    assert table["theta"].iloc[0] == abilities.theta.max()
    assert table["flag"].iloc[0] == "best subject: s2"
    pd.testing.assert_frame_equal(table, headroom(bank, "set", abilities=r))


def test_what_is_odd_is_flagged():
    odd = ItemBank.from_parameters(a=[1.0, 0.0, -1.0], b=[0.0, 0.0, 0.0])
    table = headroom(odd, ["x", "y", "y"], theta=0.5)
    assert "one item" in table.loc["x", "flag"]
    assert table.loc["y", "share_negative"] == 0.5
    assert "1 items without b" in table.loc["y", "flag"]


def test_figure_shows_the_table(bank):
    table = headroom(bank, "set", theta=1.0)
    axes = plot.headroom(table).axes
    assert [text.get_text() for text in axes[0].get_yticklabels()] == ["hard", "easy"]
    for part, name in zip(axes, ("b", "a"), strict=False):
        np.testing.assert_array_equal(part.lines[0].get_xdata(), table[f"{name}_p50"])
    np.testing.assert_array_equal(axes[2].lines[0].get_xdata(), table["headroom"])


def test_figure_of_gaps_shows_the_table():
    index = pd.MultiIndex.from_product(
        [["a", "b"], ["mean", "irt"], [10, 40]], names=["strategy", "estimator", "n_items"]
    )
    gap = [8.0, 4.0, 7.0, 3.0, 9.0, np.inf, 6.0, 2.0]
    table = pd.DataFrame({"gap": gap, "lower": 1.0, "upper": np.inf}, index)
    figure = plot.reliable_gaps(table)
    assert [line.get_ydata().tolist() for line in figure.axes[0].lines] == [[8.0, 4.0], [9.0]]
    assert len(plot.reliable_gaps(table, "irt").axes) == 1
    with pytest.raises(InputError, match="gap"):
        plot.reliable_gaps(table.drop(columns="gap"))
    with pytest.raises(InputError, match="headroom"):
        plot.headroom(table)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"theta": 1.0, "abilities": 1},
        {"theta": np.nan},
        {"groups": "topic", "theta": 0.0},
        {"groups": ["x"], "theta": 0.0},
        {"bank": {}, "theta": 0.0},
        {"bank": 3, "theta": 0.0},
    ],
)
def test_refused(bank, given):
    with pytest.raises(InputError):
        headroom(**{"bank": bank, **given})


def test_an_ability_that_is_no_number_is_a_sentence():
    bank = ItemBank.from_parameters(b=[0.0, 1.0])
    for theta in ("a", float("nan"), [0.0, 1.0]):
        with pytest.raises(InputError, match="`theta` argument must be"):
            headroom(bank, theta=theta)

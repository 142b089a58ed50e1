"""The ordered item booklet against closed forms and root finding on the item's curve."""

import numpy as np
import pytest
from scipy.optimize import brentq

from irtcat import ItemBank
from irtcat._common.checks import InputError
from irtcat.scale import ordered_item_booklet


@pytest.mark.parametrize("rp", [0.5, 2 / 3, 0.8])
def test_logistic_items_have_a_closed_form(rp):
    draw = np.random.default_rng(1)
    a, b, c = draw.uniform(0.5, 2.5, 30), draw.normal(size=30), draw.uniform(0, 0.35, 30)
    table = ordered_item_booklet(ItemBank.from_parameters(a, b, c), rp)
    p = (rp - c) / (1 - c)
    expected = b + np.log(p / (1 - p)) / a
    np.testing.assert_allclose(table.theta, np.sort(expected), atol=1e-12)
    assert table.item.tolist() == [f"i{i + 1}" for i in np.argsort(expected)]
    assert table.index.tolist() == list(range(1, 31))
    assert (table.step == 1).all()


def test_rp50_of_a_2pl_item_is_its_difficulty():
    bank = ItemBank.from_parameters(a=[0.7, 3.0], b=[1.25, -0.5])
    np.testing.assert_allclose(ordered_item_booklet(bank, 0.5).theta, [-0.5, 1.25], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["graded", "gpcm", "pcm"])
def test_every_step_of_items_with_categories(model):
    b = [[-1.0, 0.2, 1.0], [-0.5, 0.8, np.nan], [-0.4, 0.1, 2.0]]
    bank = ItemBank.from_thresholds(1.0 if model == "pcm" else [1.0, 2.0, 0.7], b, model)
    table = ordered_item_booklet(bank)
    assert len(table) == 3 + 2 + 3
    assert table.theta.is_monotonic_increasing
    for row in table.itertuples():
        item = bank.positions([row.item])[0]

        def excess(theta, item=item, step=row.step):
            return bank.category_probabilities(theta)[item, 0, step:].sum() - 2 / 3

        assert row.theta == pytest.approx(brentq(excess, -20, 20, xtol=1e-13), abs=1e-9)


def test_curves_that_do_not_rise_through_the_probability_are_last():
    bank = ItemBank.from_parameters(
        a=[1.0, 1.0, -1.0, 1.0], b=0.0, c=[0.7, 0.0, 0.0, 0.0], d=[1, 0.6, 1, 1]
    )
    table = ordered_item_booklet(bank)
    assert table.item.tolist()[0] == "i4"
    assert table.theta.isna().tolist() == [False, True, True, True]


def test_the_scale_of_the_bank_does_not_matter():
    bank = ItemBank.from_parameters(a=[0.8, 1.3], b=[0.3, -0.7], c=0.1)
    moved = ordered_item_booklet(bank.rescale(40.0, 500.0)).theta
    np.testing.assert_allclose(moved, 500 + 40 * ordered_item_booklet(bank).theta, rtol=1e-10)


@pytest.mark.parametrize(
    ("bank", "rp", "message"),
    [
        (ItemBank.from_parameters(b=[0.0]), 0, "`response_probability` argument must be a number"),
        (ItemBank.from_parameters(b=[0.0]), 67, "`response_probability` argument must be a number"),
        (ItemBank.from_slopes([[1.0, 0.5]]), 0.5, "bank"),
    ],
)
def test_bad_arguments(bank, rp, message):
    with pytest.raises(InputError, match=message):
        ordered_item_booklet(bank, rp)

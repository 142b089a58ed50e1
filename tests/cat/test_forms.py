"""Form assembly against brute force, and its rules."""

import itertools

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank
from irtcat.bank import fisher_information
from irtcat.cat.forms.forms import assemble

RNG = np.random.default_rng(3)
BANK = ItemBank.from_parameters(RNG.uniform(0.6, 2, 14), RNG.normal(size=14))
BANK.items["topic"] = np.array(["x", "y"])[np.arange(14) % 2]
AT = [-1.0, 0.0, 1.0]


def every_form(length):
    return [list(c) for c in itertools.combinations(range(14), length)]


def test_one_form_is_the_best_of_all():
    information = fisher_information(BANK, AT)
    made = assemble(BANK, 4, theta=AT)
    best = max(information[c].sum(axis=0).min() for c in every_form(4))
    assert made.information.min() == pytest.approx(best, rel=1e-3)
    target = [0.8, 1.0, 0.8]
    made = assemble(BANK, 4, theta=AT, target=target)
    best = min(np.abs(information[c].sum(axis=0) - target).max() for c in every_form(4))
    assert np.abs(made.information - target).max() == pytest.approx(best, abs=1e-3)


def test_parallel_forms_keep_the_rules():
    made = assemble(
        BANK,
        4,
        forms=3,
        theta=AT,
        group="topic",
        bounds={"x": 2, "y": (1, 2)},
        enemies=[["i1", "i2"]],
    )
    table = made.to_frame()
    assert not table["item"].duplicated().any()
    topics = BANK.items["topic"].loc[table["item"]].to_numpy()
    assert ((topics == "x") & (table["form"] == 1)).sum() == 2
    for ids in made.item_ids:
        assert len(ids) == 4
        assert not {"i1", "i2"} <= set(ids)
    low = made.information.min(axis=1)
    assert low.max() / low.min() < 1.5
    shared = assemble(BANK, 8, forms=2, theta=AT, reuse=2)
    assert shared.to_frame()["item"].duplicated().any()


def test_rules_that_no_form_keeps_are_named():
    bounds = {"x": (3, 9), "y": (3, 9)}
    with pytest.raises(InputError, match=r"length of 5 items; at least 3 .*'x'; at least 3 .*'y'"):
        assemble(BANK, 5, group="topic", bounds=bounds)
    with pytest.raises(InputError, match=r"groups of column 'topic'\. Got 'z'"):
        assemble(BANK, 5, group="topic", bounds={"z": (0, 3)})
    with pytest.raises(InputError, match="fewest first"):
        assemble(BANK, 5, group="topic", bounds={"x": (3, 2)})
    topic = {"group": "topic", "bounds": {"x": 7}}
    with pytest.raises(InputError, match="at least 7 items of 'x'; the enemies i1, i3"):
        assemble(BANK, 8, **topic, enemies=[["i1", "i3"], ["i2", "i4"]])
    with pytest.raises(InputError, match="one form satisfies the rules, but not 2 from 14 items"):
        assemble(BANK, 8, forms=2)


def test_what_cannot_be_is_said():
    with pytest.raises(InputError, match="No forms were found"):
        assemble(BANK, 8, forms=2)
    with pytest.raises(InputError, match="together with group"):
        assemble(BANK, 4, bounds={"x": 1})
    with pytest.raises(InputError, match="3 numbers above 0"):
        assemble(BANK, 4, target=[1.0, 0.0, 1.0])


@pytest.mark.parametrize("bounds", [5, ["x"], {"x": "a"}, {"x": (1, 2, 3)}])
def test_what_are_no_bounds(bounds):
    with pytest.raises(InputError, match="bounds"):
        assemble(BANK, 4, group="topic", bounds=bounds)


@pytest.mark.parametrize("enemies", [5, ["i1", "i2"]])
def test_what_are_no_enemies(enemies):
    with pytest.raises(InputError, match="enemies"):
        assemble(BANK, 4, enemies=enemies)


def test_enemies_may_be_the_groups_of_a_table():
    pairs = pd.Series(np.arange(BANK.n_items) // 2, index=BANK.item_ids)
    groups = pairs.groupby(pairs).groups
    one = assemble(BANK, 4, enemies=groups.values())
    other = assemble(BANK, 4, enemies=[list(ids) for ids in groups.values()])
    assert one.to_frame().equals(other.to_frame())

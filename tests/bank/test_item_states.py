"""State of items and banks: held in data, through joins and files, and told as flags."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses, fit
from irtcat.bank.item_states import STATES
from irtcat.diagnose import model_fit


def halves(bank):
    """The bank, taken apart and joined again."""
    half = bank.n_items // 2
    return bank[:half].join(bank[half:])


@pytest.fixture(scope="module")
def responses():
    rng = np.random.default_rng(5)
    known = ItemBank.from_parameters(a=1.3, b=rng.normal(size=8))
    return known.simulate(rng.normal(size=400), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("errors", ["auto", "none"])
def test_a_joined_bank_has_as_many_parameters_as_its_fit(responses, errors):
    """Equal slopes are one parameter, and those without standard errors count too."""
    bank = fit(responses, "2pl", equal=["slope"], standard_errors=errors).bank
    whole, joined = (model_fit(one, responses) for one in (bank, halves(bank)))
    assert whole.df == 8 * 9 // 2 - (8 + 1)
    assert joined.df == whole.df
    assert joined.statistic == pytest.approx(whole.statistic, rel=1e-9)


def test_known_items_joined_to_a_fit_stay_known(responses):
    bank = fit(responses, "2pl", standard_errors="none").bank
    known = ItemBank.from_parameters(b=[0.0, 0.5], item_ids=["x", "y"])
    both = halves(bank).join(known, same_scale=True)
    assert both.has("estimated").tolist() == [True] * 8 + [False] * 2


def test_constant_items_of_a_joined_bank_have_no_parameters(responses):
    x = responses.to_numpy()
    x[:, 0] = 1
    bank = fit(Responses.from_array(x), "2pl").bank
    assert bank.has("constant").tolist() == [True] + [False] * 7
    assert bank.has("weak_prior")[0]
    assert model_fit(halves(bank), responses).df == model_fit(bank, responses).df == 36 - 14


def test_states_and_scale_survive_joins_and_files(tmp_path):
    bank = ItemBank.from_thresholds(a=[1.0, 1.5], b=[[-1.0, 1.0]] * 2, item_ids=["x", "y"])
    states = pd.DataFrame({"unused": [(1,), ()], "at_edge": [0.0, 0.25], "singular": [True, False]})
    bank = replace(bank, codes=(1, 2, 3), statistics=states)
    other = ItemBank.from_thresholds(a=1.0, b=[[0.0, 0.5]], item_ids=["z"])
    both = bank.join(other)
    again = ItemBank.load(both.save(tmp_path / "bank.npz"))
    for one in (both, again):
        assert one.codes == (1, 2, 3)
        assert one.first_code == 1
        assert one.unused_categories.tolist() == [[False, True, False], [False] * 3, [False] * 3]
        assert one.has("singular").tolist() == [True, False, False]
        assert one.to_frame()["flag"].tolist() == [
            "category 2 of its answers never used; no standard error: its information is singular",
            "25% of scores at 0 or 1",
            "",
        ]
    assert again == both
    assert replace(both, codes=(0, 1, 2)) != both
    with pytest.raises(InputError, match="have no standard errors"):
        replace(both, covariance=np.zeros((3, 3, 3))).draws(2)


def test_names_and_structure_of_the_abilities_survive_joins():
    one = ItemBank.from_slopes([[1.0, 0.0], [0.5, 0.8]], item_ids=["x", "y"])
    one = replace(one, factors=("maths", "code"), structure="two-tier")
    other = replace(one, item_ids=np.array(["u", "v"]))
    assert one.join(other).structure == "two-tier"
    known = replace(other, structure="", factors=())
    assert one.join(known).structure == ""
    assert one.join(known).factors == known.join(one).factors == ("maths", "code")


@pytest.mark.slow
def test_anchors_keep_their_unused_categories(responses):
    """Which categories have no estimate is a property of the anchors, not of the new answers."""
    rng = np.random.default_rng(3)
    graded = ItemBank.from_thresholds(a=1.2, b=[[-1.0, 0.0, 1.0]] * 6)
    x = graded.simulate(rng.normal(size=300), seed=2).to_numpy()
    x[x[:, 0] == 2, 0] = 3
    anchors = fit(Responses.from_array(x, codes=range(4)), "graded", standard_errors="none").bank
    assert anchors.unused_categories[0].tolist() == [False, False, True, False]
    new = graded.simulate(rng.normal(size=300), seed=3)
    bank = fit(new, "graded", anchors=anchors[:3], standard_errors="none").bank
    assert bank.has("anchored").tolist() == [True] * 3 + [False] * 3
    assert bank.unused_categories.sum() == 1
    assert bank.to_frame()["flag"].iloc[0] == "anchored; category 3 of its answers never used"


def test_no_text_is_read():
    """Words in metadata and in provenance decide nothing; flags cannot be written."""
    bank = ItemBank.from_parameters(a=[1.0, 1.0], b=[0.0, 0.0], item_ids=["x", "y"])
    words = pd.DataFrame({"flag": ["predicted", "constant"]})
    origin = {"method": "em", "codes": [1, 2], "structure": "bifactor", "model": "bifactor"}
    told = replace(bank, items=words, provenance=origin, covariance=np.tile(np.eye(2), (2, 1, 1)))
    assert told.expected_curves() is told
    assert not any(told.has(state).any() for state in STATES)
    assert (told.first_code, told.structure) == (0, "")
    with pytest.raises(InputError, match="`statistics` argument must be without a column flag"):
        replace(bank, statistics=words)
    with pytest.raises(InputError, match="`state` argument must be one of"):
        bank.has("odd")
    with pytest.raises(InputError, match="`codes` argument must be consecutive"):
        replace(bank, codes=(0, 2))
    with pytest.raises(InputError, match="`factors` argument must be 1 names"):
        replace(bank, factors=("x", "y"))

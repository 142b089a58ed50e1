"""Reported scores, levels, and the result of a person."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from irtcat import ItemBank, Responses, score
from irtcat._common.checks import InputError
from irtcat.service.definition import Adaptive, Cut, ScoreScale, TestDefinition, result_of, scaled

SCALE = ScoreScale(
    mean=500,
    sd=100,
    lowest=200,
    highest=800,
    decimals=0,
    level=0.9,
    below="Below",
    show=["score", "interval", "level", "topics"],
)
TEST = TestDefinition(
    title="A",
    sections=[Adaptive(config={"max_items": 5})],
    score=SCALE,
    cuts=[Cut(label="Basic", from_score=450), Cut(label="High", from_score=600)],
)
BANK = replace(
    ItemBank.from_parameters(a=1.2, b=np.linspace(-1, 1, 6)),
    items=pd.DataFrame({"topic": ["x", "x", "y", "y", "z", "z"]}),
)


@pytest.mark.parametrize("theta", [-1.0, -0.505, -0.3, 0.99, 0.995, 2.0])
@pytest.mark.parametrize("se", [0.01, 0.3, 2.0])
def test_scores_by_their_definition(theta, se):
    result = scaled(TEST, theta, se)
    exact = 500 + 100 * theta
    assert result.score == np.floor(exact + 0.5 + 1e-9)
    half = norm.ppf(0.95) * 100 * se
    assert abs(result.lower - max(exact - half, 200)) <= 0.5 + 1e-9
    assert abs(result.upper - min(exact + half, 800)) <= 0.5 + 1e-9
    names = np.array(["Below", "Basic", "High"])
    assert result.level == names[np.searchsorted([450, 600], result.score, side="right")]
    areas = np.diff(norm.cdf([-np.inf, 449.5, 599.5, np.inf], exact, 100 * se))
    assert list(result.probabilities) == names.tolist()
    np.testing.assert_allclose(list(result.probabilities.values()), areas, atol=1e-12)
    assert result.probability == result.probabilities[result.level]
    assert sum(result.probabilities.values()) == pytest.approx(1)


def test_the_most_probable_level_is_the_reported_one_or_next_to_a_cut():
    """With one cut the level of the score is the more probable one."""
    one = replace(TEST, cuts=[Cut(label="Pass", from_score=450)])
    for theta in np.linspace(-2, 1, 301):
        assert scaled(one, theta, 0.4).probability >= 0.5


def test_a_cut_with_rounding_error_is_the_reported_score():
    test = replace(TEST, score=ScoreScale(), cuts=[Cut(label="High", from_score=0.1 + 0.2)])
    assert scaled(test, 0.3, 0.2).level == "High"


def test_scores_beyond_the_scale():
    low, high = scaled(TEST, -4.0, 0.3), scaled(TEST, 3.1, 0.3)
    assert (low.score, low.lower, low.is_clipped) == (200, 200, True)
    assert (high.score, high.upper, high.is_clipped) == (800, 800, True)
    assert not scaled(TEST, 2.9, 0.3).is_clipped


def test_no_estimate():
    result = scaled(TEST, np.nan, np.nan)
    assert (result.score, result.lower, result.upper, result.level) == (None, None, None, None)
    json.dumps(result.to_json(), allow_nan=False)


def test_an_estimate_that_says_nothing():
    result = scaled(TEST, 0.0, np.inf)
    assert (result.score, result.lower, result.upper) == (500, 200, 800)
    assert list(result.probabilities.values()) == [0.5, 0.0, 0.5]


def test_an_exact_estimate():
    assert scaled(TEST, -0.505, 0.0).probabilities == {"Below": 0, "Basic": 1, "High": 0}


def test_a_test_without_cuts():
    result = scaled(replace(TEST, cuts=(), score=ScoreScale()), 0.333, 0.1)
    assert (result.score, result.level, result.probabilities) == (0.33, None, {})


@pytest.mark.parametrize(
    ("theta", "se"), [(0.0, -1.0), (0.0, "a"), (0.0, True), ("a", 1.0), (None, 1.0), (0.0, None)]
)
def test_bad_estimates(theta, se):
    with pytest.raises(InputError, match=r"`(theta|se)` argument must be a number"):
        scaled(TEST, theta, se)


@pytest.mark.slow_cases("wle", "ml")
@pytest.mark.parametrize("method", ["eap", "map", "wle", "ml"])
def test_the_final_estimate_is_that_of_score(method):
    definition = replace(TEST, score=replace(SCALE, method=method))
    answers = {"i2": 1, "i5": 0, "i1": 1, "i6": None}
    result = result_of(definition, BANK, answers)
    responses = Responses.from_array([[1, 1, 0]], item_ids=["i1", "i2", "i5"])
    ability = score(BANK, responses, method)
    assert result.theta == pytest.approx(float(ability.theta[0]), abs=1e-9)
    assert result.se == pytest.approx(float(ability.se[0]), abs=1e-9)
    assert result.n_items == 3
    assert result.scaled == scaled(definition, result.theta, result.se)


@pytest.mark.parametrize("right", [0, 1])
def test_a_score_at_a_bound_has_the_half_open_interval(right):
    """The whole scale would be the interval of an infinite SE, and .5 its probabilities."""
    definition = replace(TEST, score=replace(SCALE, method="ml"))
    result = result_of(definition, BANK, {f"i{k}": right for k in range(1, 7)})
    ability = score(BANK, Responses.from_array([[right] * 6]), "ml", level=0.9)
    found = result.scaled
    assert result.theta == (6 if right else -6)
    assert np.isposinf(result.se)
    assert result.to_json()["se"] is None
    json.dumps(result.to_json(), allow_nan=False)
    end = float(ability.lower[0] if right else ability.upper[0])
    assert -3 < end < 3
    closed, open_, limit = (
        (found.lower, found.upper, 800) if right else (found.upper, found.lower, 200)
    )
    assert closed == pytest.approx(500 + 100 * end, abs=0.5)
    assert open_ == limit
    # The Normal of the probabilities has 5 % beyond the closed end.
    sd = abs(result.theta - end) / norm.ppf(0.95)
    cut = definition.cut_thetas[-1 if right else 0]
    inside = norm.cdf((result.theta - cut) / sd if right else (cut - result.theta) / sd)
    assert found.probability == pytest.approx(inside)
    assert inside > 0.5
    assert found.level == ("High" if right else "Below")


def test_topics_have_their_own_score():
    result = result_of(TEST, BANK, {"i1": 1, "i2": 1, "i5": 0})
    assert list(result.topics) == ["x", "z"]
    assert result.topics["x"]["points"] == result.topics["x"]["possible"] == 2
    alone = result_of(TEST, BANK, {"i1": 1, "i2": 1})
    assert result.topics["x"]["score"] == alone.scaled.score
    assert result.topics["z"]["score"] < result.scaled.score < result.topics["x"]["score"]


@pytest.mark.slow
def test_items_with_several_categories():
    bank = ItemBank.from_thresholds(1.0, [[-1.0, 0.0, 1.0], [-1.0, 1.0, np.nan]])
    definition = replace(TEST, score=replace(SCALE, show=["score"]))
    low, high = (result_of(definition, bank, {"i1": k, "i2": j}) for k, j in ((0, 0), (3, 2)))
    assert low.theta < 0 < high.theta
    assert low.topics == {}


@pytest.mark.slow
def test_categories_count_from_0_whatever_the_codes_of_the_calibration():
    """A bank calibrated on ratings 1 to 3 gives the scores of the same bank with codes from 0."""
    bank = ItemBank.from_thresholds(1.0, [[-1.0, 1.0], [-0.5, 0.5]])
    rated = replace(bank, codes=(1, 2, 3))
    definition = replace(TEST, score=replace(SCALE, show=["score"]))
    for answers in ({"i1": 0, "i2": 2}, {"i1": 2, "i2": 2}, {"i1": 0, "i2": None}):
        plain, moved = (result_of(definition, one, answers) for one in (bank, rated))
        assert moved.theta == pytest.approx(plain.theta, abs=1e-12)
        assert moved.se == pytest.approx(plain.se, abs=1e-12)


@pytest.mark.parametrize("show", [(), ("score",), ("score", "interval"), ("level",), ("topics",)])
def test_a_taker_sees_only_what_the_definition_shows(show):
    definition = replace(TEST, score=replace(SCALE, show=show))
    seen = result_of(definition, BANK, {"i1": 1, "i4": 0}).shown(definition)
    names = {
        "score": {"score"},
        "interval": {"lower", "upper", "interval_level"},
        "level": {"level"},
        "topics": {"topics"},
    }
    assert set(seen) == set().union(*(names[name] for name in show))
    text = json.dumps(seen)
    for hidden in ("theta", "se", "points", "possible", "probabilit"):
        assert f'"{hidden}' not in text


@pytest.mark.parametrize("method", ["eap", "wle"])
def test_nobody_answered(method):
    definition = replace(TEST, score=replace(SCALE, method=method))
    result = result_of(definition, BANK, {})
    assert result.n_items == 0
    assert result.scaled.score == (500 if method == "eap" else None)
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"i9": 1}, "i9"),
        ({"i1": 2}, r"`answers\[i1\]` argument must be a whole number between 0 and 1"),
        ({"i1": -1}, "between 0 and 1"),
        ({"i1": True}, "between 0 and 1"),
        ({"i1": "A"}, "between 0 and 1"),
    ],
)
def test_bad_answers(answers, message):
    with pytest.raises(InputError, match=message):
        result_of(TEST, BANK, answers)

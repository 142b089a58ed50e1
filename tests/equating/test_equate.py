"""Observed-score equating: R's equate and Lord's standard errors; what is refused."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, Responses
from irtcat.equating import METHODS, equate, loglinear
from irtcat.equating.observed import smooth


@pytest.fixture(scope="module")
def act(reference):
    numbers = reference("equate")["act_mathematics"]
    scores = np.arange(41)
    return [np.repeat(scores, numbers[name]) for name in "xy"], numbers


@pytest.mark.parametrize("method", ["mean", "linear", "equipercentile"])
def test_equivalent_groups_are_those_of_r(act, method):
    (x, y), numbers = act
    table = equate(x, y, method, max_x=40, max_y=40, n_resamples=0).table
    # R divides the variances by N - 1, we by N.
    np.testing.assert_allclose(table["equated"], numbers[method], atol=2e-4)


def test_presmoothing_keeps_moments_and_is_that_of_r(act):
    (x, y), numbers = act
    fit = loglinear(x, 6, max_score=40)
    np.testing.assert_allclose(fit.table["smoothed"], numbers["smooth_x"], rtol=1e-5, atol=1e-6)
    scores = np.arange(41)
    for k in range(7):
        moments = (fit.table * scores[:, None] ** k).sum()
        assert moments["smoothed"] == pytest.approx(moments["observed"], rel=1e-8)
    table = equate(x, y, smoothing=6, max_x=40, max_y=40, n_resamples=0).table
    np.testing.assert_allclose(table["equated"], numbers["smoothed"], atol=1e-4)
    # Kolen & Brennan, table 3.3: the smallest AIC of 1 to 9 moments is that of 6.
    aic = {c: loglinear(x, c, max_score=40).aic for c in range(1, 10)}
    assert min(aic, key=lambda c: aic[c]) == 6


def test_bootstrap_errors_are_those_of_the_delta_method(act):
    """Lord (1982) by R; those of the linear method by Kolen & Brennan's eq. 7.10 for Normals."""
    (x, y), numbers = act
    se = equate(x, y, max_x=40, max_y=40).table["se"][5:36]
    ratio = se / numbers["se"][5:36]  # of unsmoothed scores both are rough
    assert ratio.mean() == pytest.approx(1, abs=0.05)
    assert ratio.between(0.75, 1.3).all()
    linear = equate(x, y, "linear", max_x=40, max_y=40).table["se"]
    z = (np.arange(41) - x.mean()) / x.std()
    parts = []
    for scores in (x, y):
        d = (scores - scores.mean()) / scores.std()
        skew, kurtosis = (d**3).mean(), (d**4).mean()
        parts.append((1 + skew * z + (kurtosis - 1) * z**2 / 4) / len(d))
    np.testing.assert_allclose(linear, y.std() * np.sqrt(sum(parts)), rtol=0.1)


def test_a_single_group_is_equated_with_smaller_errors():
    rng = np.random.default_rng(0)
    p = rng.beta(4, 3, 600)
    x, y = rng.binomial(30, p), rng.binomial(30, p**1.2)
    single, apart = (equate(x, y, "linear", paired=paired) for paired in (True, False))
    np.testing.assert_allclose(single.table["equated"], apart.table["equated"])
    assert (single.table["se"][10:25] < 0.8 * apart.table["se"][10:25]).all()
    assert (single.design, apart.design) == ("single-group", "equivalent-groups")


def test_subjects_of_both_forms_are_matched_by_id():
    rng = np.random.default_rng(0)
    x = pd.Series(rng.binomial(20, 0.5, 50), [f"s{i}" for i in range(50)])
    y = (x + 1).sample(frac=1, random_state=0)  # exactly one point more, in another order
    table = equate(x, y, "linear", paired=True, n_resamples=20).table
    np.testing.assert_allclose(table, [[score + 1, 0] for score in table.index], atol=1e-9)
    with pytest.raises(InputError, match=r"`y` .* a score for every subject\. Got .none for s0"):
        equate(x, y.rename({"s0": "t0"}), paired=True)


@pytest.fixture(scope="module")
def anchored(reference):
    numbers = reference("equate")["anchor"]
    data = {name: np.array(numbers[name], int) for name in ("x", "y", "x_anchor", "y_anchor")}
    return data, numbers


@pytest.mark.parametrize("method", [row.name for row in METHODS.values() if row.has_anchor])
def test_groups_with_an_anchor_are_those_of_r(anchored, method):
    data, numbers = anchored
    # Its weight of distributions is of counts: 1/2 is each group's share of the subjects.
    weight = None if method in ("frequency-estimation", "braun-holland") else 0.5
    table = equate(**data, method=method, weight=weight, max_x=30, max_y=30, n_resamples=20).table
    np.testing.assert_allclose(table["equated"], numbers[method], atol=5e-3)
    assert (table["se"][5:25] < 1).all()


def test_smoothed_frequency_estimation_is_that_of_r(anchored):
    data, numbers = anchored
    table = equate(
        **data, method="frequency-estimation", max_x=30, max_y=30, n_resamples=0, smoothing=4
    ).table
    np.testing.assert_allclose(table["equated"], numbers["smoothed"], atol=1e-3)


def test_gaps_and_ends():
    """A percentile rank in a gap of Y is its middle; beyond the scores it is half a point more."""
    x, y = [1, 1, 3, 3], [0, 0, 4, 4]
    table = equate(x, y, n_resamples=0, max_x=4).table["equated"]
    assert table.tolist() == [-0.5, 0.0, 2.0, 4.0, 4.5]
    responses = Responses.from_array(np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]]))
    equated = equate(responses, [0, 2, 3], "mean", n_resamples=0)
    np.testing.assert_allclose(equated.convert([3, np.nan]), [3, np.nan])
    with pytest.raises(InputError, match="whole scores from 0 to 3"):
        equated.convert([4])


def test_refusals(anchored):
    data, _ = anchored
    x, y = data["x"], data["y"]
    with pytest.raises(InputError, match="`x_anchor` argument must be passed with y_anchor"):
        equate(x, y, "tucker")
    with pytest.raises(InputError, match="whole scores of at least 0"):
        equate([0.5, 1], y)
    with pytest.raises(InputError, match="whole number of at least"):
        equate(x, y, max_x=3)
    with pytest.raises(InputError, match=r"9 in one group only.*Smooth"):
        equate([1, 2, 3], [1, 2, 3], "frequency-estimation", x_anchor=[1, 2, 9], y_anchor=[1, 2, 2])
    with pytest.raises(InputError, match="score for each of the 2 subjects"):
        equate([1, 2], [1, 2, 3], paired=True)
    with pytest.raises(InputError, match="anchor scores of a group do not vary"):
        equate([1, 2], [1, 2], "tucker", x_anchor=[1, 1], y_anchor=[1, 2])
    with pytest.raises(InputError, match="`n_resamples` argument must be 0, or at least 2"):
        equate(x, y, n_resamples=1)
    with pytest.raises(InputError, match="`scores` argument must be whole scores"):
        equate(x, y, n_resamples=0).convert(["a"])
    with pytest.raises(InputError, match="fewer moments than scores"):
        smooth(np.array([3.0, 4.0]), (2,))

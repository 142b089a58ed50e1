"""Classification accuracy and consistency against published figures and brute force."""

import json

import numpy as np
import pytest
from scipy.stats import beta, betabinom, binom, norm

from irtcat._common.checks import InputError
from irtcat.agreement import (
    Classification,
    livingston_lewis,
    observed_classification,
    rudner_classification,
)

ACT = [
    0,
    23,
    98,
    384,
    986,
    2161,
    3722,
    5623,
    7533,
    8817,
    9597,
    9809,
    9674,
    8971,
    8033,
    7384,
    6758,
    6004,
    5463,
    4896,
    4367,
    4083,
    3651,
    3333,
    3191,
    2899,
    2644,
    2597,
    2287,
    2197,
    1967,
    1874,
    1710,
    1581,
    1503,
    1349,
    1181,
    994,
    827,
    585,
    294,
]
"""Frequencies of the number-right scores 0 to 40 of 151,050 persons on a form of 40 items."""


def act(cuts):
    return livingston_lewis(np.arange(41), 0.873, cuts, highest=40, weights=ACT)


def test_livingston_lewis_published_two_levels():
    """Figures that BBClassify 1.0.0 (Haakstad 2025) prints for these data; cut at 24 of 40."""
    result = act(24)
    assert result.model.moments == 3
    assert result.model.n_items == 40
    np.testing.assert_allclose(
        [result.model.alpha, result.model.beta, result.model.low, result.model.high],
        [0.52378, 1.62569, 0.22317, 1.0],
        atol=6e-6,
    )
    assert result.model.reliability == pytest.approx(0.87217, abs=6e-6)
    np.testing.assert_allclose(
        result.confusion, [[0.78247, 0.03795], [0.01778, 0.16180]], atol=6e-6
    )
    np.testing.assert_allclose(result.repeated, [[0.76127, 0.03898], [0.03898, 0.16076]], atol=6e-6)
    assert result.accuracy == pytest.approx(0.94427, abs=6e-6)
    assert result.consistency == pytest.approx(0.92203, abs=1.1e-5)
    assert result.kappa == pytest.approx(0.75612, abs=2e-5)


def test_livingston_lewis_published_three_levels():
    """As above; the cuts are .55 and .6 of the true scores, which are 22 and 24 items."""
    result = act([22, 24])
    confusion = [
        [0.73124, 0.02566, 0.01802],
        [0.01452, 0.01105, 0.01992],
        [0.00674, 0.01104, 0.16180],
    ]
    repeated = [
        [0.70700, 0.02297, 0.02253],
        [0.02297, 0.00834, 0.01645],
        [0.02253, 0.01645, 0.16076],
    ]
    np.testing.assert_allclose(result.confusion, confusion, atol=6e-6)
    np.testing.assert_allclose(result.repeated, repeated, atol=6e-6)
    assert result.accuracy == pytest.approx(0.90409, abs=1e-5)
    assert result.kappa == pytest.approx(0.68358, abs=2e-5)


@pytest.mark.parametrize(
    ("shape", "low", "high", "n"),
    [
        ((3.0, 2.0), 0.2, 0.95, 30),
        ((0.6, 0.9), 0.1, 0.9, 25),
        ((8.0, 20.0), 0.0, 1.0, 60),
        ((0.3, 4.0), 0.0, 1.0, 40),
        ((12.0, 0.5), 0.05, 1.0, 15),
    ],
)
def test_livingston_lewis_recovers_the_distribution_of_its_model(shape, low, high, n):
    """Scores with exactly the distribution of the model give its parameters and probabilities."""
    true = beta(*shape)
    nodes, weights = np.polynomial.legendre.leggauss(600)
    share = (nodes + 1) / 2
    tau = low + (high - low) * true.ppf(share)
    scores = np.arange(n + 1)
    given_true = binom.pmf(scores, n, tau[:, None])
    pmf = weights / 2 @ given_true
    spread = (high - low) ** 2 * true.var()
    center = low + (high - low) * true.mean()
    reliability = spread / (spread + (center * (1 - center) - spread) / n)
    cuts = [0.45 * n, 0.7 * n]
    result = livingston_lewis(scores, reliability, cuts, highest=n, weights=pmf)
    model = result.model
    assert model.n_items == n
    assert model.reliability == pytest.approx(reliability, abs=1e-4)
    # The bounds need the fourth moment of the quadrature, the probabilities do not.
    assert (model.low, model.high) == pytest.approx((low, high), abs=0.01)
    level = np.searchsorted(cuts, tau * n, side="right")
    fewest = np.ceil(np.array(cuts) - 1e-9).astype(int)
    observed = np.searchsorted(fewest, scores, side="right")
    by_level = np.stack([given_true[:, observed == k].sum(axis=1) for k in range(3)], axis=1)
    confusion = np.stack([(weights / 2 * (level == k)) @ by_level for k in range(3)])
    repeated = (by_level * weights[:, None] / 2).T @ by_level
    np.testing.assert_allclose(result.confusion, confusion, atol=2e-3)
    np.testing.assert_allclose(result.repeated, repeated, atol=1e-3)
    assert result.confusion.sum() == pytest.approx(1, abs=1e-6)
    assert result.repeated.sum() == pytest.approx(1, abs=1e-6)


def test_livingston_lewis_against_simulated_persons():
    draw = np.random.default_rng(1)
    tau = 0.2 + 0.75 * draw.beta(3, 2, size=200_000)
    first, second = draw.binomial(40, tau), draw.binomial(40, tau)
    reliability = np.corrcoef(first, second)[0, 1]
    result = livingston_lewis(first, reliability, [20, 30], highest=40)
    counted = observed_classification(40 * tau, first, second, [20, 30])
    np.testing.assert_allclose(result.confusion, counted.confusion, atol=0.006)
    np.testing.assert_allclose(result.repeated, counted.repeated, atol=0.006)
    assert abs(result.kappa - counted.kappa) < 0.01


def test_livingston_lewis_of_weighted_scores():
    """Every score doubled and moved is the same test on another scale."""
    plain = act([20, 24])
    moved = livingston_lewis(
        10 + 2.5 * np.arange(41), 0.873, [60, 70], lowest=10, highest=110, weights=ACT
    )
    np.testing.assert_allclose(moved.confusion, plain.confusion, atol=1e-9)
    assert moved.model.n_items == plain.model.n_items


def test_livingston_lewis_with_two_moments_is_the_beta_binomial():
    """With the reliability of the beta-binomial (KR-21) the model is that distribution."""
    n, a, b = 20, 4.0, 3.0
    scores = np.arange(n + 1)
    pmf = betabinom.pmf(scores, n, a, b)
    result = livingston_lewis(scores, n / (n + a + b), 11, highest=n, model="2-beta", weights=pmf)
    assert (result.model.alpha, result.model.beta) == pytest.approx((a, b), rel=1e-9)
    assert result.confusion.sum(axis=0)[1] == pytest.approx(pmf[11:].sum(), abs=1e-7)
    assert result.confusion.sum(axis=1)[1] == pytest.approx(beta(a, b).sf(11 / 20), abs=1e-9)


def test_rudner_against_brute_force():
    draw = np.random.default_rng(2)
    theta = draw.normal(size=2000)
    se = draw.uniform(0.2, 0.5, size=2000)
    cuts = [-0.7, 0.4, 1.5]
    result = rudner_classification(theta, se, cuts)
    copies = [theta[:, None] + se[:, None] * draw.normal(size=(2000, 200)) for _ in range(2)]
    truth = np.repeat(theta, 200)
    counted = observed_classification(truth, copies[0].ravel(), copies[1].ravel(), cuts)
    np.testing.assert_allclose(result.confusion, counted.confusion, atol=0.002)
    np.testing.assert_allclose(result.repeated, counted.repeated, atol=0.002)
    np.testing.assert_allclose(
        result.to_frame().to_numpy(float), counted.to_frame().to_numpy(float), atol=0.006
    )


def test_rudner_by_its_formula():
    """The proportions of Rudner's normal areas, written out for each person."""
    theta, se, cuts = [-1.2, 0.0, 0.3, 2.0], [0.3, 0.4, 0.2, 0.6], [0.0, 1.0]
    edges = [-np.inf, 0.0, 1.0, np.inf]
    areas = np.array([np.diff(norm.cdf(edges, t, s)) for t, s in zip(theta, se, strict=True)])
    result = rudner_classification(theta, se, cuts)
    assert result.accuracy == pytest.approx(areas[range(4), [0, 1, 1, 2]].mean())
    assert result.consistency == pytest.approx((areas**2).sum(axis=1).mean())
    at_0 = areas[:, 0], 1 - areas[:, 0]
    table = result.to_frame()
    assert table.loc[0.0, "accuracy"] == pytest.approx(
        (at_0[0][0] + at_0[1][1] + at_0[1][2] + at_0[1][3]) / 4
    )
    assert table.loc[0.0, "consistency"] == pytest.approx(np.mean(at_0[0] ** 2 + at_0[1] ** 2))
    assert table.loc[0.0, "false_positive"] == pytest.approx(at_0[1][0] / 4)
    assert table.loc["all", "accuracy"] == pytest.approx(result.accuracy)


def test_rudner_with_quadrature_nodes():
    """Normal truth and normal errors: the exact probabilities of a bivariate normal."""
    nodes = np.linspace(-8, 8, 4001)
    weights = norm.pdf(nodes)
    result = rudner_classification(nodes, np.full(4001, 0.75), 0.0, weights)
    reliability = 1 / (1 + 0.75**2)
    quadrant = 0.25 + np.arcsin(np.sqrt(reliability)) / (2 * np.pi)
    assert result.accuracy == pytest.approx(2 * quadrant, abs=1e-3)
    quadrant = 0.25 + np.arcsin(reliability) / (2 * np.pi)
    assert result.consistency == pytest.approx(2 * quadrant, abs=1e-6)


def test_limits_of_the_standard_error():
    exact = rudner_classification([-1.0, 1.0], [1e-9, 1e-9], 0)
    assert (exact.accuracy, exact.consistency, exact.kappa) == (1, 1, 1)
    unknown = rudner_classification([-1.0, 1.0], [np.inf, np.inf], 0)
    assert (unknown.accuracy, unknown.consistency) == (0.5, 0.5)
    assert unknown.kappa == pytest.approx(0)
    assert np.isnan(rudner_classification([-5.0], [1e-9], 0).kappa)


def test_a_level_includes_its_cut():
    assert observed_classification([0.0], [0.0], [0.0], [0.0]).confusion[1, 1] == 1


@pytest.mark.parametrize("result", [act([20, 24]), rudner_classification([0.1], [0.3], 0)])
def test_json(result):
    again = Classification.from_json(json.loads(json.dumps(result.to_json())))
    np.testing.assert_array_equal(again.confusion, result.confusion)
    np.testing.assert_array_equal(again.repeated, result.repeated)
    assert again.model == result.model
    assert repr(again) == repr(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], 0), "`theta` argument must be a vector of numbers"),
        ((["a"], [1], 0), "`theta` argument must be a vector of numbers"),
        (([np.nan], [1], 0), "`theta` argument must be finite numbers"),
        (([1, 2], [1], 0), "`se` argument must be a vector of 2 numbers"),
        (([1], [0], 0), "`se` argument must be numbers above 0"),
        (([1], [np.nan], 0), "`se` argument must be numbers above 0"),
        (([1], [1], []), "`cuts` argument must be one finite number"),
        (([1], [1], [1, 0]), "`cuts` argument must be one finite number, or several in rising"),
        (([1], [1], [0, 0]), "in rising order"),
        (([1], [1], np.inf), "`cuts` argument must be one finite number"),
        (([1], [1], "x"), "`cuts` argument must be one number"),
        (([1], [1], 0, [-1]), "`weights` argument must be numbers of at least 0"),
        (([1], [1], 0, [0]), "`weights` argument must be numbers of at least 0, not all 0"),
    ],
)
def test_bad_arguments_of_rudner(arguments, message):
    with pytest.raises(InputError, match=message):
        rudner_classification(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": [1, 50]}, "`scores` argument must be between 0 and 40. Got 50"),
        ({"scores": [5, 5]}, "`scores` argument must be scores that vary"),
        ({"reliability": 1.0}, "`reliability` argument must be a number strictly between 0 and 1"),
        ({"reliability": 0.01, "scores": [0, 40]}, "`reliability` argument must be high enough"),
        ({"cuts": 0}, "`cuts` argument must be above 0 and at most 40"),
        ({"cuts": 41}, "`cuts` argument must be above 0 and at most 40"),
        ({"highest": 0}, "`highest` argument must be a finite number above 0"),
        ({"model": "5-beta"}, "`model` argument must be one of 4-beta, 2-beta"),
        ({"weights": [1.0]}, "`weights` argument must be a vector of 3 numbers"),
    ],
)
def test_bad_arguments_of_livingston_lewis(options, message):
    arguments = {"scores": [10, 20, 30], "reliability": 0.8, "cuts": 24, "highest": 40} | options
    with pytest.raises(InputError, match=message):
        livingston_lewis(**arguments)

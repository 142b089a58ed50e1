"""Scoring against brute force and against the laws of probability."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from irtcat import InputError, ItemBank, Responses, fit, plausible_values, score, sum_score_table
from irtcat.scoring import METHODS

N_ITEMS = 20


@pytest.fixture(scope="module")
def bank():
    """Twenty 3PL items on a scale where the population is N(0.5, 1.5)."""
    rng = np.random.default_rng(0)
    return ItemBank.from_parameters(
        a=rng.uniform(0.5, 2.5, N_ITEMS),
        b=rng.normal(0.5, 1.5, N_ITEMS),
        c=rng.uniform(0.05, 0.3, N_ITEMS),
        population_mean=0.5,
        population_sd=1.5,
    )


@pytest.fixture(scope="module")
def X():  # noqa: N802
    """Random patterns, some with gaps: unlike the model, so that likelihoods have two maxima."""
    rng = np.random.default_rng(1)
    X = rng.integers(0, 2, (2000, N_ITEMS)).astype(float)
    X[1000:][rng.random((1000, N_ITEMS)) < 0.3] = np.nan
    return X


def responses(bank, X):
    return Responses.from_array(X, item_ids=bank.item_ids)


def test_eap_is_the_integral(bank, X, oracle):
    rows = [0, 1, 1000, 1001]
    ability = score(bank, responses(bank, X))
    for row in rows:

        def joint(theta, power, row=row):
            z = (theta - 0.5) / 1.5
            log_lik = oracle.log_likelihood(bank.parameters(), X[[row]], np.array([theta]))[0, 0]
            return theta**power * np.exp(log_lik - 0.5 * z**2)

        zero, one, two = (quad(joint, -11, 12, (k,), epsabs=0, epsrel=1e-9)[0] for k in range(3))
        assert ability.theta[row] == pytest.approx(one / zero, abs=1e-6)
        sd = np.sqrt(two / zero - (one / zero) ** 2)
        assert ability.se[row] == pytest.approx(sd, abs=1e-6)


def test_posterior(bank, X, oracle):
    ability = score(bank, responses(bank, X))
    assert (ability.weights >= 0).all()
    np.testing.assert_allclose(ability.weights.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose((ability.weights * ability.nodes).sum(1), ability.theta, atol=1e-9)
    theta, weights, _ = oracle.posterior(bank.parameters(), X, mean=0.5, sd=1.5)
    mean = weights @ theta
    np.testing.assert_allclose(ability.theta, mean, atol=1e-6)
    sd = np.sqrt(weights @ theta**2 - mean**2)
    np.testing.assert_allclose(ability.se, sd, atol=1e-6)
    cumulative = np.cumsum(weights, axis=1) - 0.5 * weights
    for row in range(0, 2000, 100):
        ends = np.interp([0.025, 0.975], cumulative[row], theta)
        assert [ability.lower[row], ability.upper[row]] == pytest.approx(ends, abs=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ml", "map", pytest.param("wle", marks=pytest.mark.slow)])
def test_point_estimates_are_global(bank, X, oracle, method):
    """On every pattern as likely as the best of a fine grid, however many maxima there are."""
    ability = score(bank, responses(bank, X), method=method)
    grid = np.linspace(-6, 6, 4801)
    params, seen = bank.parameters(), ~np.isnan(X)
    objective = oracle.log_likelihood(params, X, grid)
    if method == "map":
        objective = objective - 0.5 * ((grid - 0.5) / 1.5) ** 2
    if method == "wle":  # Warm's J / (2 I) is integrated by the trapezoid rule
        p = oracle.curves(params, grid)
        a, c = params[:, :1], 1 / (1 + np.exp(-params[:, 2:]))
        s = (p - c) / (1 - c)
        d1 = (1 - c) * a * s * (1 - s)
        d2 = d1 * a * (1 - 2 * s)
        j, info = seen @ (d1 * d2 / (p * (1 - p))), seen @ (d1**2 / (p * (1 - p)))
        ratio = j / (2 * info)
        area = np.cumsum(0.5 * (ratio[:, 1:] + ratio[:, :-1]) * (grid[1] - grid[0]), axis=1)
        objective[:, 1:] += area
    best = objective.max(axis=1)
    at = np.array([np.interp(t, grid, o) for t, o in zip(ability.theta, objective, strict=True)])
    assert (at >= best - 1e-5).all()
    close = np.abs(ability.theta - grid[objective.argmax(axis=1)]) < 0.006
    assert close.mean() > 0.99  # elsewhere two maxima are equal to 1e-5, or it is flat
    at_bound = (ability.theta <= -6) | (ability.theta >= 6)
    if method == "map":
        assert not at_bound.any()
    else:
        np.testing.assert_array_equal(ability.flag != "", at_bound)
        assert np.isinf(ability.lower[ability.flag == "at the lower bound"]).all()
        assert np.isinf(ability.upper[ability.flag == "at the upper bound"]).all()


@pytest.mark.parametrize("method", ["ml", "map", "wle"])
def test_point_estimates_are_the_maximum_and_intervals_are_normal(bank, X, oracle, method):
    """The log-likelihood, or with the prior or Warm's weight, is nowhere larger on a fine grid."""
    params, few = bank.parameters(), X[:60]
    grid = np.linspace(-6, 6, 2401)
    objective = oracle.log_likelihood(params, few, grid)
    p = oracle.curves(params, grid)
    a, c = params[:, :1], 1 / (1 + np.exp(-params[:, 2:]))
    s = (p - c) / (1 - c)
    d1 = (1 - c) * a * s * (1 - s)
    information = (~np.isnan(few)) @ (d1**2 / (p * (1 - p)))
    if method == "map":
        objective = objective - 0.5 * ((grid - 0.5) / 1.5) ** 2
    if method == "wle":
        ratio = (~np.isnan(few)) @ (d1 * d1 * a * (1 - 2 * s) / (p * (1 - p))) / (2 * information)
        step = grid[1] - grid[0]
        objective[:, 1:] += np.cumsum(0.5 * step * (ratio[:, 1:] + ratio[:, :-1]), axis=1)
    ability = score(bank, responses(bank, few), method=method, level=0.8)
    at = np.array([np.interp(t, grid, o) for t, o in zip(ability.theta, objective, strict=True)])
    assert (at >= objective.max(axis=1) - 2e-5).all()
    plain = ability.flag == ""
    assert plain.sum() > 40
    # A Newton step by the exact slope is no longer than rounding.
    at = ability.theta[plain]
    p = oracle.curves(params, at)
    s = (p - c) / (1 - c)
    d1, seen = (1 - c) * a * s * (1 - s), ~np.isnan(few[plain])
    right = np.where(seen, few[plain], 0) - seen * p.T
    slope = (right * (d1 / (p * (1 - p))).T).sum(axis=1)
    if method == "map":
        slope = slope - (at - 0.5) / 1.5**2
    if method == "wle":
        third, info = d1 * d1 * a * (1 - 2 * s) / (p * (1 - p)), d1**2 / (p * (1 - p))
        slope = slope + (seen * third.T).sum(axis=1) / (2 * (seen * info.T).sum(axis=1))
    np.testing.assert_allclose(slope * ability.se[plain] ** 2, 0, atol=1e-6)
    z = 1.2815515655446004  # of a probability of .9
    lower, upper = ability.theta - z * ability.se, ability.theta + z * ability.se
    np.testing.assert_allclose(ability.lower[plain], lower[plain], rtol=1e-12)
    np.testing.assert_allclose(ability.upper[plain], upper[plain], rtol=1e-12)


@pytest.mark.parametrize("method", ["eap", "map"])
def test_intervals_of_several_abilities_are_normal(method):
    pattern = {"one": ["i1", "i2", "i3"], "two": ["i4", "i5", "i6"]}
    rng = np.random.default_rng(4)
    drawn = Responses.from_array(rng.integers(0, 2, (120, 6)))
    fitted = fit(drawn, "m2pl", pattern=pattern, priors={"slope": (0, 0.3)})
    ability = score(fitted.bank, drawn, method=method, level=0.8)
    assert ability.theta.shape == (120, 2)
    z = 1.2815515655446004
    np.testing.assert_allclose(ability.upper - ability.theta, z * ability.se, rtol=1e-12)
    np.testing.assert_allclose(ability.theta - ability.lower, z * ability.se, rtol=1e-12)


@pytest.mark.slow
def test_bounds_are_kept(bank, X):
    ability = score(bank, responses(bank, X[:50]), method="ml", theta_bounds=(-1.0, 0.5))
    assert ability.theta.min() == -1.0
    assert ability.theta.max() == 0.5
    assert "at the upper bound" in ability.flag


@pytest.mark.slow
def test_coverage():
    """95 % EAP intervals hold 95 % of the abilities drawn from the population."""
    rng = np.random.default_rng(2)
    bank = ItemBank.from_parameters(a=rng.uniform(0.5, 2, N_ITEMS), b=rng.normal(size=N_ITEMS))
    theta = rng.normal(size=4000)
    drawn = bank.simulate(theta, seed=3)
    for level in (0.5, 0.95):
        ability = score(bank, drawn, level=level)
        inside = ((ability.lower < theta) & (theta < ability.upper)).mean()
        assert inside == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 4000))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_narrow_posteriors(name, oracle):
    """2,000 items: posteriors of SD .03 against 8,001 nodes."""
    rng = np.random.default_rng(4)
    bank = ItemBank.from_parameters(a=rng.uniform(0.5, 2, 2000), b=rng.normal(size=2000))
    drawn = bank.simulate([-2.5, -0.5, 0.0, 1.0, 3.0], seed=1)
    theta, weights, _ = oracle.posterior(bank.parameters(), drawn.to_numpy(), n=8001)
    mean = weights @ theta
    sd = np.sqrt((weights * (theta - mean[:, None]) ** 2).sum(1))
    assert sd.min() < 0.045
    ability = score(bank, drawn, precision=name)
    tolerance = 1e-6 if name == "float64" else 1e-2 * sd.min()
    np.testing.assert_allclose(ability.theta, mean, atol=tolerance, rtol=0)
    np.testing.assert_allclose(ability.se, sd, rtol=1e-4 if name == "float64" else 5e-3)


@pytest.mark.slow
def test_extreme_subjects_of_a_long_test(oracle):
    """All right on 5,000 items: the posterior lies beyond the usual grid."""
    bank = ItemBank.from_parameters(a=1.0, b=np.linspace(-3, 3, 5000))
    X = np.array([np.ones(5000), np.zeros(5000)])
    ability = score(bank, responses(bank, X))
    theta, weights, _ = oracle.posterior(bank.parameters(), X, n=20001, reach=12)
    np.testing.assert_allclose(ability.theta, weights @ theta, atol=1e-6)
    assert np.isfinite(ability.se).all()


@pytest.mark.slow
def test_sum_score_table(oracle):
    """Against all 64 patterns of six items."""
    bank = ItemBank.from_parameters(
        a=[0.6, 1.0, 1.5, 2.0, 0.8, 1.2], b=[-1.5, -0.5, 0.0, 0.5, 1.0, 2.0], c=0.2
    )
    patterns = np.array(list(itertools.product([0, 1], repeat=6)), float)
    theta, weights, log_z = oracle.posterior(bank.parameters(), patterns)
    table = sum_score_table(bank)
    assert table.probability.sum() == pytest.approx(1, abs=1e-9)
    assert (np.diff(table.theta) > 0).all()
    for points, row in table.iterrows():
        rows = patterns.sum(axis=1) == points
        p = np.exp(log_z[rows])
        density = p @ weights[rows] / p.sum()
        mean = density @ theta
        assert row.probability == pytest.approx(p.sum(), abs=1e-9)
        assert row.theta == pytest.approx(mean, abs=1e-6)
        assert row.se == pytest.approx(np.sqrt(density @ theta**2 - mean**2), abs=1e-6)
        cumulative = np.cumsum(density) - 0.5 * density
        ends = np.interp([0.025, 0.975], cumulative, theta)
        assert [row.lower, row.upper] == pytest.approx(ends, abs=0.01)


@pytest.mark.slow
def test_sum_score_with_gaps(bank, X):
    """A subject's table is that of the items it answered."""
    drawn = responses(bank, X[998:1003])
    ability = score(bank, drawn, method="eapsum")
    for row in range(5):
        answered = drawn.observed[row]
        table = sum_score_table(bank.subset(answered))
        points = int(np.nansum(X[998 + row]))
        assert ability.theta[row] == pytest.approx(table.theta[points], abs=1e-12)
        assert ability.upper[row] == pytest.approx(table.upper[points], abs=1e-12)


@pytest.mark.slow
def test_sum_score_of_a_long_test_does_not_underflow():
    bank = ItemBank.from_parameters(a=1.0, b=np.linspace(-2, 2, 400))  # down to e^-2400
    table = sum_score_table(bank)
    assert np.isfinite(table).all(axis=None)
    assert table.probability.sum() == pytest.approx(1, abs=1e-6)
    assert (np.diff(table.theta) >= 0).all()


@pytest.mark.slow
def test_rasch_sum_scores_are_sufficient():
    """With equal slopes the EAP of the pattern is the EAP of the sum score."""
    bank = ItemBank.from_parameters(a=1.3, b=np.linspace(-2, 2, N_ITEMS))
    drawn = bank.simulate(np.linspace(-3, 3, 2000), seed=5)
    by_pattern, by_sum = score(bank, drawn), score(bank, drawn, method="eapsum")
    np.testing.assert_allclose(by_pattern.theta, by_sum.theta, atol=1e-6)
    np.testing.assert_allclose(by_pattern.se, by_sum.se, atol=1e-6)


@pytest.mark.slow
def test_plausible_values(bank, X):
    """Means, spreads and ranks of the draws are the posterior's."""
    few = responses(bank, X[[0, 1, 1000]])
    ability = score(bank, few)
    draws = plausible_values(bank, few, n=4000, seed=1)
    assert draws.shape == (3, 4000)
    values = draws.to_numpy()
    np.testing.assert_allclose(values.mean(1), ability.theta, atol=4 * ability.se.max() / 63)
    np.testing.assert_allclose(values.std(1), ability.se, rtol=0.06)
    inside = (values > ability.lower[:, None]) & (values < ability.upper[:, None])
    np.testing.assert_allclose(inside.mean(1), 0.95, atol=0.015)
    assert draws.equals(plausible_values(bank, few, n=4000, seed=1))
    assert not draws.equals(plausible_values(bank, few, n=4000, seed=2))


def test_percentile(bank, X):
    ability = score(bank, responses(bank, X))
    np.testing.assert_allclose(ability.percentile, 100 * ndtr((ability.theta - 0.5) / 1.5))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_order_and_strangers_do_not_matter(bank, X, method):
    """Shuffled items, items not in the bank, other subjects: the same abilities."""
    few = responses(bank, X[990:1010])
    plain = score(bank, few, method=method)
    order = np.random.default_rng(0).permutation(N_ITEMS)
    shuffled = score(bank, few.subset(items=order), method=method)
    np.testing.assert_allclose(shuffled.theta, plain.theta, atol=1e-8)
    wider = Responses.from_array(
        np.column_stack([np.ones(20), X[990:1010], np.zeros(20)]),
        item_ids=["stranger", *bank.item_ids, "other"],
    )
    np.testing.assert_allclose(score(bank, wider, method=method).theta, plain.theta, atol=1e-12)
    assert (score(bank, wider, method=method).n_items == plain.n_items).all()
    np.testing.assert_allclose(
        score(bank, few.subset(subjects=order), method=method).theta, plain.theta[order], atol=1e-8
    )


@pytest.mark.slow_cases("ml", "wle", "map", "eap")
@pytest.mark.parametrize("method", METHODS)
def test_precision(bank, X, method):
    few = responses(bank, X[:40])
    wide, narrow = (score(bank, few, method=method, precision=f"float{n}") for n in (64, 32))
    np.testing.assert_allclose(narrow.theta, wide.theta, atol=2e-3)


@pytest.mark.slow
def test_fractions_are_between(bank):
    """k right of n trials is a response of k / n: half right lies between wrong and right."""
    X = np.full((3, N_ITEMS), 0.5)
    X[0, 0], X[2, 0] = 0, 1
    theta = {m: score(bank, responses(bank, X), method=m).theta for m in ("eap", "map", "ml")}
    for values in theta.values():
        assert values[0] < values[1] < values[2]
    with pytest.raises(InputError, match="fractional"):
        score(bank, responses(bank, X), method="eapsum")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "guess"}, "one of eap"),
        ({"level": 1.0}, "between 0 and 1"),
        ({"level": 95}, "between 0 and 1"),
        ({"theta_bounds": (2, -2)}, "rising order"),
        ({"theta_bounds": (np.nan, 2)}, "rising order"),
        ({"theta_bounds": (1, 2, 3)}, "rising order"),
        ({"precision": "half"}, "one of auto"),
    ],
)
def test_bad_arguments_are_refused(bank, X, arguments, message):
    with pytest.raises(InputError, match=message):
        score(bank, responses(bank, X[:2]), **arguments)


def test_bad_responses_are_refused(bank):
    with pytest.raises(InputError, match=r"items of the bank.*i1"):
        score(bank, Responses.from_array([[0, 1]], item_ids=["x", "y"]))
    with pytest.raises(InputError, match="2 categories"):
        score(bank, Responses.from_array([[0, 1, 2]]))
    with pytest.raises(InputError, match="at least 1"):
        plausible_values(bank, Responses.from_array([[0, 1]]), n=0)


@pytest.mark.slow
def test_the_bank_is_an_argument_of_compiled_functions(X):
    """A new bank of the same size compiles nothing."""
    from irtcat.scoring.posteriors import _posterior

    rng = np.random.default_rng(9)
    score(ItemBank.from_parameters(b=rng.normal(size=N_ITEMS)), Responses.from_array(X))
    before = _posterior._cache_size()
    score(ItemBank.from_parameters(b=rng.normal(size=N_ITEMS)), Responses.from_array(1 - X))
    assert _posterior._cache_size() == before

"""Items so steep, or so far from everyone, that their curves are level to the last bit."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_expit
from scipy.stats import chi2

from irtcat import ItemBank, Responses, score, sum_score_table
from irtcat._common.precision import precision
from irtcat.cat import Config, exact_distribution
from irtcat.models import Design, in_precision, model_from_key, take
from irtcat.scoring import METHODS, posteriors

SLOPES, PLACES = (0.01, 1.0, 5.0, 25.0, 300.0), (0.0, -2.0, 2.0, -50.0, 50.0, -1000.0, 1000.0)


@pytest.fixture(scope="module")
def bank():
    a, b = (part.ravel() for part in np.meshgrid(SLOPES, PLACES))
    return ItemBank.from_parameters(a=a, b=b)


@pytest.fixture(scope="module")
def X(bank):  # noqa: N802
    """Every item alone, right and wrong; then two or three of them together."""
    n = bank.n_items
    X = np.full((2 * n + 60, n), np.nan)
    X[np.arange(n), np.arange(n)] = 1
    X[n + np.arange(n), np.arange(n)] = 0
    rng = np.random.default_rng(0)
    for row in range(2 * n, len(X)):
        some = rng.choice(n, rng.integers(2, 4), replace=False)
        X[row, some] = rng.integers(0, 2, len(some))
    return X


@pytest.fixture(scope="module")
def brute(bank, X):
    """Posterior means and SDs by the trapezoid rule, on nodes that are dense at every step."""
    slope, intercept = bank.parameters().T
    means, sds = [], []
    for row in X:
        items = np.flatnonzero(~np.isnan(row))
        steps = [-intercept[j] / slope[j] + np.linspace(-1, 1, 4_001) for j in items]
        wide = np.linspace(-1500, 1500, 30_001), np.linspace(-12, 12, 6_001)
        t = np.unique(np.concatenate([*wide, *steps]))
        sign = 2 * row[items] - 1
        z = slope[items, None] * t + intercept[items, None]
        density = log_expit(sign[:, None] * z).sum(0) - 0.5 * t**2
        density = np.exp(density - density.max())
        mass = np.trapezoid(density, t)
        mean = np.trapezoid(density * t, t) / mass
        means.append(mean)
        sds.append(np.sqrt(np.trapezoid(density * (t - mean) ** 2, t) / mass))
    return np.array(means), np.array(sds)


def responses(bank, X):
    return Responses.from_array(X, item_ids=bank.item_ids)


def test_eap_is_the_integral_or_flagged(bank, X, brute):
    ability = score(bank, responses(bank, X))
    good = ability.flag == ""
    np.testing.assert_allclose(ability.theta[good], brute[0][good], atol=1e-3)
    np.testing.assert_allclose(ability.se[good], brute[1][good], atol=1e-3)
    assert np.isfinite(ability.theta).all()
    assert np.isfinite(ability.se).all()
    slope, intercept = bank.parameters().T
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = np.abs(slope), np.abs(intercept / slope)  # the table leaves far difficulties out
    hard = (~np.isnan(X) & (a > 5) & (b > 2)).any(axis=1)
    assert good[~hard].all()
    assert good.mean() > 0.75
    np.testing.assert_allclose((ability.weights * ability.nodes).sum(1), ability.theta, atol=1e-9)


@pytest.mark.slow
def test_sum_score_tables_are_the_integral_or_flagged(bank, X, brute):
    rows = [*range(14, 28), *range(35 + 14, 35 + 28), 70, 71, 72]
    ability = score(bank, responses(bank, X[rows]), method="eapsum")
    alone = (~np.isnan(X[rows])).sum(1) == 1
    good = ability.flag == ""
    np.testing.assert_allclose(ability.theta[alone & good], brute[0][rows][alone & good], atol=1e-3)
    np.testing.assert_allclose(ability.se[alone & good], brute[1][rows][alone & good], atol=1e-3)
    assert np.isfinite(ability.theta).all()
    assert good.mean() > 0.75


def ml_of(bank, row, low=-6.0, high=6.0):
    """The maximum of a concave likelihood by bisection on its slope, in logarithms."""
    slope, intercept = bank.parameters().T
    items = np.flatnonzero(~np.isnan(row))
    for _ in range(100):
        t = 0.5 * (low + high)
        z = slope[items] * t + intercept[items]
        right = row[items] == 1
        pull = np.where(right, log_expit(-z), log_expit(z)) + np.log(slope[items])
        up = np.logaddexp.reduce(pull[right], initial=-np.inf)
        down = np.logaddexp.reduce(pull[~right], initial=-np.inf)
        low, high = (t, high) if up > down else (low, t)
    return 0.5 * (low + high)


@pytest.mark.parametrize("name", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_ml_is_the_maximum_or_the_bound_on_its_side(bank, X, name):
    ability = score(bank, responses(bank, X), method="ml", precision=name)
    expected = np.array([ml_of(bank, row) for row in X])
    known = np.isfinite(ability.se)
    tolerance = 1e-6 if name == "float64" else 1e-2
    np.testing.assert_allclose(ability.theta[known], expected[known], atol=tolerance)
    at = np.abs(expected) > 6 - 1e-9
    np.testing.assert_allclose(ability.theta[at], expected[at])
    assert (ability.flag[at] != "").all()
    assert (ability.flag[~known] != "").all()
    assert np.isin(
        ability.flag, ["", "at the lower bound", "at the upper bound", "flat likelihood"]
    ).all()
    assert not np.isnan(np.stack([ability.theta, ability.se, ability.lower, ability.upper])).any()


@pytest.mark.slow
def test_wle_goes_to_its_root_or_the_bound_on_its_side(bank, X):
    """Of one item the root is b + ln 3 / a where it is right, b - ln 3 / a where it is wrong."""
    n = bank.n_items
    ability = score(bank, responses(bank, X), method="wle")
    slope, intercept = bank.parameters().T
    sign = np.repeat([1.0, -1.0], n)
    root = np.tile(-intercept / slope, 2) + sign * np.log(3) / np.tile(slope, 2)
    np.testing.assert_allclose(ability.theta[: 2 * n], np.clip(root, -6, 6), atol=1e-6)
    assert ((ability.flag != "") | np.isfinite(ability.se)).all()
    assert not np.isnan(ability.theta).any()


@pytest.mark.slow
def test_map_at_a_bound_is_flagged(bank, X):
    ability = score(bank, responses(bank, X), method="map")
    outside = np.abs(ability.theta) >= 6
    np.testing.assert_array_equal(np.isinf(ability.se), outside)
    np.testing.assert_array_equal(ability.flag != "", outside)
    assert outside.any()


def half_open_end(bank, row, upper, level=0.95):
    """Where the log-likelihood has fallen by half the chi-squared quantile from that at a bound."""
    bound = 6.0 if upper else -6.0

    def log_likelihood(theta):
        p = np.clip(bank.probability([theta])[:, 0], 1e-300, 1 - 1e-16)
        return np.where(row == 1, np.log(p), np.log1p(-p)).sum()

    drop = chi2.ppf(level, 1) / 2
    return brentq(lambda t: log_likelihood(t) - log_likelihood(bound) + drop, -5.99, 5.99)


@pytest.mark.parametrize("slope", [1.2, 8.0])
@pytest.mark.parametrize("upper", [True, False])
def test_at_a_bound_the_se_is_infinite_and_the_interval_half_open(slope, upper):
    """The curvature at the bound printed SEs such as 23,294,888 (steep items) or .9 (flat ones)."""
    bank = ItemBank.from_parameters(a=slope, b=np.linspace(-2, 2, 12))
    row = np.full(12, float(upper))
    found = score(bank, Responses.from_array([row]), "ml")
    assert found.flag[0] == f"at the {'upper' if upper else 'lower'} bound"
    assert found.theta[0] == (6 if upper else -6)
    assert np.isposinf(found.se[0])
    closed, open_ = (found.lower, found.upper) if upper else (found.upper, found.lower)
    assert open_[0] == (np.inf if upper else -np.inf)
    # The end is a node of a grid of 240 cells, the outer neighbour of the exact one.
    assert closed[0] == pytest.approx(half_open_end(bank, row, upper), abs=12 / 240 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ml", "wle", "map"])
def test_all_estimates_within_the_bounds_are_as_before(method):
    bank = ItemBank.from_parameters(a=1.0, b=np.linspace(-2, 2, 12))
    wide, narrow = (
        score(bank, bank.simulate(np.linspace(-3, 3, 40), seed=1), method, theta_bounds=bounds)
        for bounds in ((-20.0, 20.0), (-1.0, 1.0))
    )
    inside = narrow.flag == ""
    assert inside.any()
    assert not inside.all()
    np.testing.assert_allclose(narrow.se[inside], wide.se[inside], rtol=1e-6)
    np.testing.assert_array_equal(np.isinf(narrow.se), ~inside)


@pytest.mark.parametrize("upper", [True, False])
def test_at_a_bound_warms_interval_is_that_of_jeffreys_prior(upper):
    """Of 2PL items the weight integrates to half the log-information."""
    bank = ItemBank.from_parameters(a=1.2, b=np.linspace(-2, 2, 12))
    row, end = np.full(12, float(upper)), 1.0 if upper else -1.0
    found = score(bank, Responses.from_array([row]), "wle", theta_bounds=(-1, 1))
    assert found.theta[0] == end
    assert found.at_bound[0]

    def objective(theta):
        p = bank.probability([theta])[:, 0]
        return np.log(p if upper else 1 - p).sum() + 0.5 * np.log((p * (1 - p)).sum())

    drop = chi2.ppf(0.95, 1) / 2
    closed = found.lower[0] if upper else found.upper[0]
    exact = brentq(lambda t: objective(t) - objective(end) + drop, -end, end)
    assert closed == pytest.approx(exact, abs=2 / 240 + 1e-4)


def test_weak_items_are_no_flat_likelihood():
    """One of two right: the ability is 0, and the SE is wider than the range."""
    bank = ItemBank.from_parameters(a=0.1, b=[0.0, 0.0])
    found = score(bank, Responses.from_array([[1, 0], [-1, -1]]), "ml", precision="float64")
    assert found.theta[0] == pytest.approx(0, abs=1e-9)
    assert found.se[0] == pytest.approx(1 / np.sqrt(2 * 0.1**2 / 4))
    assert found.lower[0] == pytest.approx(-1.959964 * found.se[0])
    assert (found.flag[0], found.at_bound.tolist()) == ("", [False, False])


def test_a_level_likelihood_is_flat_whatever_is_missing():
    bank = ItemBank.from_parameters(a=[300.0, 300.0, 1.0], b=[-4.0, 4.0, 0.0])
    found = score(bank, Responses.from_array([[1, 0, -1]]), "ml")
    assert found.flag[0] == "flat likelihood"
    assert np.isposinf(found.se[0])
    assert [found.lower[0], found.upper[0]] == pytest.approx([-4, 4], abs=0.1)


def test_many_steep_items_at_one_place():
    """The posterior is narrower than a cell: 400 right or wrong of slope 20 at .3."""
    bank = ItemBank.from_parameters(a=20.0, b=np.full(400, 0.3))
    n_right = np.array([150, 200, 320])
    found = score(bank, Responses.from_array((np.arange(400) < n_right[:, None]).astype(int)))
    t = np.linspace(0, 0.6, 60_001)
    z = 20 * (t - 0.3)
    log_post = n_right[:, None] * log_expit(z) + (400 - n_right[:, None]) * log_expit(-z) - t**2 / 2
    density = np.exp(log_post - log_post.max(axis=1, keepdims=True))
    density /= density.sum(axis=1, keepdims=True)
    mean = density @ t
    np.testing.assert_allclose(found.theta, mean, atol=1e-5)
    np.testing.assert_allclose(found.se, np.sqrt(density @ t**2 - mean**2), rtol=1e-3)


def test_warms_estimate_of_counts_solves_its_equation():
    """Binomial items: ``sum a (x - n p) + J / 2 I = 0`` with their moments."""
    n = 5
    blank = model_from_key("binomial").blank(Design(np.full(4, 2), 1, {}, 2))
    a, d = np.array([0.7, 1.0, 1.4, 0.9]), np.array([0.3, -0.5, 0.1, 0.8])
    model = replace(blank, slope=jnp.asarray(a), intercept=jnp.asarray(d))
    bank = ItemBank(model, np.array([f"i{k}" for k in range(4)], dtype=object))
    counts = np.array([[5, 4, 3, 5], [0, 1, 2, 0], [4, 5, 5, 5]])
    given = Responses.from_counts(counts, np.full((3, 4), n), item_ids=bank.item_ids)
    found = score(bank, given, "wle")
    p = bank.probability(found.theta).T
    information = (n * a**2 * p * (1 - p)).sum(axis=1)
    third = (n * a**3 * p * (1 - p) * (1 - 2 * p)).sum(axis=1)
    left = ((counts - n * p) * a).sum(axis=1) + third / (2 * information)
    np.testing.assert_allclose(left / information, 0, atol=1e-6)
    assert (np.abs(third / information) > 0.1).all()


def test_the_case_that_was_found():
    """Easy steep items, all right: no bound was reached, and an SE of 3.6e6 was not flagged."""
    bank = ItemBank.from_parameters(a=5.0, b=[-2, -2.2, -1.8, -2.5, -1.5, -2])
    for method, flag in (("ml", "at the upper bound"), ("wle", "")):
        found = score(bank, Responses.from_array([[1] * 6]), method=method)
        assert found.flag[0] == flag
        assert (found.theta[0] == 6.0) == (method == "ml")


MODEL_NAMES = ["2pl", "3pl", "4pl", "feasibility", "graded", "gpcm", "nominal", "binomial"]


def items_of(name, n=4):
    """Steep items far to the left of everyone."""
    graded = name in ("graded", "gpcm", "nominal", "2pl+graded")
    kinds = {"kind": np.ones(n, np.int32)} if "+" in name else {}  # all of the second model
    design = Design(np.full(n, 3 if graded else 2), 1, kinds, 3 if graded else 2)
    model = model_from_key(name).blank(design)
    slope = np.asarray(model.slope)
    rise = np.arange(1, slope.shape[1] + 1) if slope.ndim > 1 else 1.0
    fields = {"slope": slope + 5.0 * rise}
    width = np.asarray(model.intercept)
    step = np.arange(1, width.shape[1] + 1) if width.ndim > 1 else 1.0
    fields["intercept"] = width + 60.0 * step
    if name == "4pl":
        fields |= {"logit_lower": np.full(n, -1.0), "logit_upper": np.full(n, 3.0)}
    return replace(model, **fields)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODEL_NAMES, "2pl+graded"])
def test_slopes_do_not_cancel(name):
    """The likeliest outcome's slope keeps its sign and its size where 1 - P is below rounding."""
    with precision("float64"):
        item = take(in_precision(items_of(name), np.float64), 0)
        theta = np.array([-3.0, 0.0, 10.0, 40.0])
        slope = jax.vmap(jax.jacfwd(lambda t: item.log_outcomes(t[None])))(theta)
        highest = np.asarray(slope)[:, item.n_categories - 1]
        away = 5.0 * theta + 60.0  # of the last step; the others are as far or farther
    np.testing.assert_array_less(0.0, highest)
    if name != "4pl":
        np.testing.assert_allclose(np.diff(np.log(highest)), -np.diff(away), rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_ends_on_the_right_side(name):
    model = items_of(name)
    bank = ItemBank(model, np.array([f"i{k}" for k in range(4)], dtype=object))
    top = model.n_categories - 1
    for method in METHODS:
        if name == "binomial":
            if method == "eapsum":
                continue
            given = Responses.from_counts([[3] * 4, [0] * 4], [[3] * 4] * 2, item_ids=bank.item_ids)
        else:
            given = Responses.from_array(
                [[top] * 4, [0] * 4], item_ids=bank.item_ids, codes=list(range(top + 1))
            )
        found = score(bank, given, method=method)
        assert np.isfinite(found.theta).all(), method
        assert ((found.flag != "") | np.isfinite(found.se)).all()
        assert found.theta[0] >= found.theta[1] - 1e-9
        if method == "ml":
            assert found.theta[0] == 6.0
            assert found.flag[0] == "at the upper bound"


@pytest.mark.slow
def test_steeper_than_any_grid():
    """A step of no width: EAP of the Normal cut off at .03."""
    bank = ItemBank.from_parameters(a=1e7, b=[0.03])
    found = score(bank, Responses.from_array([[1]]))
    t = np.linspace(0.03, 12, 1_000_001)
    density = np.exp(-0.5 * t**2)
    assert found.theta[0] == pytest.approx(density @ t / density.sum(), abs=1e-3)
    assert sum_score_table(bank).theta[1] == pytest.approx(found.theta[0], abs=1e-9)


@pytest.mark.slow_cases("231-True|1000000-.*")
@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("cells", [40, 33 * 7, 33 * 12, 10**6])  # 1, 7, 12 and all 24 items
def test_curves_of_parts_of_the_items_add_up(has_missing, cells, monkeypatch):
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(a=rng.lognormal(size=24), b=rng.normal(size=24))
    x = rng.integers(-1 if has_missing else 0, 2, (9, 24)).astype(np.int8)
    nodes = np.linspace(-4, 4, 33)
    monkeypatch.setattr(posteriors, "CURVE_CELLS", cells)
    with precision("float64") as dtype:
        model = in_precision(bank.model, dtype)
        at = jnp.asarray(nodes)
        found = posteriors._log_likelihood_in_parts(model, jnp.asarray(x), at, has_missing)
    z = np.asarray(bank.model.slope) * nodes[:, None] + np.asarray(bank.model.intercept)
    right, wrong = x[:, None] == 1, x[:, None] == 0
    expected = (right * log_expit(z) + wrong * log_expit(-z)).sum(-1)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.slow
def test_adaptive_estimates_follow_the_exact_slope():
    """The likelihood is level to rounding from -1 on; its slope is up to the end."""
    bank = ItemBank.from_parameters(a=25.0, b=[-3.0, -3.0, 30.0])
    table = exact_distribution(bank, ["i1", "i2", "i3"], 0.0, Config(method="ml"))
    pattern = table.set_index(["i1", "i2", "i3"]).theta
    assert pattern[1, 1, 0] == 5.0
    assert pattern[0, 1, 0] == pytest.approx(-3.0, abs=1e-9)
    weighted = exact_distribution(bank, ["i1", "i2", "i3"], 0.0, Config(method="wle"))
    assert np.isfinite(weighted.theta).all()


@pytest.mark.slow
def test_jeffreys_prior_is_low_where_nothing_informs():
    bank = ItemBank.from_parameters(a=300.0, b=[0.0, 0.0])
    config = Config(method="eap", prior="jeffreys")
    table = exact_distribution(bank, ["i1", "i2"], 0.0, config).set_index(["i1", "i2"]).theta
    assert 0 < table[1, 1] < 0.05

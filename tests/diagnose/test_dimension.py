"""Correlations beneath answers, eigenvalues and factors: closed forms, brute force, mirt."""

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import ndtri
from scipy.stats import multivariate_normal, ortho_group

from irtcat import EM, InputError, Responses
from irtcat.diagnose import (
    compare_factors,
    correlations,
    factors,
    nearest_correlation,
    parallel_analysis,
)
from irtcat.diagnose.dimension.correlations import (
    _errors,
    _thresholds,
    correlate_tables,
    normal_pair_below,
    pair_tables,
)
from irtcat.diagnose.dimension.factors import minres
from irtcat.responses.datasets import load

RNG = np.random.default_rng(0)


def normal_pairs(n, r, seed=0):
    return np.random.default_rng(seed).multivariate_normal([0, 0], [[1, r], [r, 1]], n)


def cells(h, k, r):
    """Probabilities of the cells by scipy's bivariate Normal."""
    h, k = ([-8.0, *np.ravel(x), 8.0] for x in (h, k))
    normal = multivariate_normal(cov=[[1, r], [r, 1]])
    corner = np.array([[normal.cdf([a, b]) for b in k] for a in h])
    return np.diff(np.diff(corner, axis=0), axis=1)


def deviance(table, h, k, r):
    return -(table * np.log(np.maximum(cells(h, k, r), 1e-300))).sum()


def test_bivariate_normal():
    h, k = RNG.normal(0, 1.5, (2, 200))
    r = RNG.uniform(-1, 1, 200)
    h[0] = k[1] = h[2] = k[2] = 0
    theirs = [
        multivariate_normal.cdf([a, b], cov=[[1, c], [c, 1]])
        for a, b, c in zip(h, k, r, strict=True)
    ]
    np.testing.assert_allclose(normal_pair_below(h, k, r), theirs, atol=1e-12)
    near = np.array([1 - 1e-9])
    one, two = np.array([0.5]), np.array([0.7])
    assert normal_pair_below(one, two, near)[0] == pytest.approx(0.6914624612740131, abs=1e-9)
    assert normal_pair_below(one, -one, -near)[0] == pytest.approx(0, abs=1e-4)


def test_medians_have_a_closed_form():
    p11 = np.linspace(0.02, 0.48, 24)
    tables = 1000 * np.stack([np.stack([p11, 0.5 - p11], 1), np.stack([0.5 - p11, p11], 1)], axis=1)
    found = correlate_tables(tables)
    np.testing.assert_allclose(found.r, np.sin(2 * np.pi * (p11 - 0.25)), atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_right_wrong_by_brute_force(seed):
    """The table is reproduced by thresholds and r: the maximum over all three."""
    table = np.random.default_rng(seed).integers(3, 200, (2, 2)).astype(float)
    found = correlate_tables(table[None])
    start = [ndtri(table[0].sum() / table.sum()), ndtri(table[:, 0].sum() / table.sum()), 0.0]
    best = minimize(
        lambda x: deviance(table, x[0], x[1], np.tanh(x[2])),
        start,
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-9},
    )
    assert found.r[0] == pytest.approx(np.tanh(best.x[2]), abs=1e-5)


def test_categories_by_brute_force():
    """Polychoric: the maximum in r, thresholds held at those of the margins."""
    z = normal_pairs(400, 0.6)
    codes = np.stack([np.digitize(z[:, 0], [-0.8, 0.1, 1]), np.digitize(z[:, 1], [0, 0.3, 1.5])], 1)
    table = pair_tables(codes, np.array([0]), np.array([1]), 4)
    h, k = (ndtri(np.cumsum(table[0].sum(axis=axis))[:-1] / 400) for axis in (1, 0))
    best = minimize_scalar(
        lambda r: deviance(table[0], h, k, r),
        bounds=(0.3, 0.9),
        method="bounded",
        options={"xatol": 1e-8},
    )
    assert correlate_tables(table).r[0] == pytest.approx(best.x, abs=1e-5)


@pytest.mark.parametrize("size", [2, 3])
def test_errors_are_the_delta_method(size):
    """The estimator's own slopes in the counts, by differences, and the multinomial's variance."""
    # A table that the model fits, since expected information stands for observed.
    table = 900 * cells([-0.4, 0.9][: size - 1], [0.2, 0.8][: size - 1], 0.4)
    n, found = table.sum(), correlate_tables(table[None])
    slopes = np.zeros_like(table)
    for cell in np.ndindex(table.shape):
        ends = []
        for step in (0.01, -0.01):
            moved = table.copy()
            moved[cell] += step
            ends.append(correlate_tables(moved[None]).r[0])
        slopes[cell] = (ends[0] - ends[1]) / 0.02 * n
    p = table / n
    variance = ((p * slopes**2).sum() - (p * slopes).sum() ** 2) / n
    assert found.se[0] == pytest.approx(np.sqrt(variance), rel=1e-5)


def test_an_unused_category_changes_nothing():
    table = RNG.integers(5, 50, (3, 3)).astype(float)
    wide = np.zeros((4, 4))
    wide[np.ix_([0, 1, 3], [0, 2, 3])] = table
    one, other = correlate_tables(table[None]), correlate_tables(wide[None])
    assert other.r[0] == pytest.approx(one.r[0], abs=1e-9)
    assert other.se[0] == pytest.approx(one.se[0], rel=1e-6)


def test_more_categories_tell_more():
    """SEs fall as categories are split, and both find the r that the data were drawn with."""
    z = normal_pairs(20_000, 0.5)
    two = correlate_tables(pair_tables((z > 0.3).astype(int), *np.array([[0], [1]]), 2))
    cuts = [-1, -0.3, 0.3, 1]
    five = correlate_tables(pair_tables(np.digitize(z, cuts), *np.array([[0], [1]]), 5))
    assert five.se[0] < two.se[0]
    for found in (two, five):
        assert abs(found.r[0] - 0.5) < 3 * found.se[0]


def test_lsat6_in_print():
    """The matrix and thresholds that the documentation of R's psych prints for LSAT6."""
    found = correlations(load("lsat6"))
    below = found.raw.to_numpy()[np.tril_indices(5, -1)]
    theirs = [0.17, 0.23, 0.19, 0.11, 0.11, 0.19, 0.07, 0.17, 0.11, 0.20]
    np.testing.assert_allclose(below, theirs, atol=0.005)
    assert not found.smoothed
    assert (found.n_pairs.to_numpy() == 1000).all()


EMPTY = {
    "one cell": ([[40, 10], [0, 50]], "corrected"),
    "equal items": ([[50, 0], [0, 50]], 1.0),
    "opposite items": ([[0, 50], [50, 0]], -1.0),
    "constant": ([[5, 0], [10, 0]], np.nan),
    "nobody": ([[0, 0], [0, 0]], np.nan),
}


@pytest.mark.parametrize("case", EMPTY)
def test_empty_cells(case):
    table, wanted = EMPTY[case]
    found = correlate_tables(np.array([table]))
    if wanted == "corrected":
        by_hand = correlate_tables(np.array([[[39.5, 10.5], [0.5, 49.5]]]))
        assert found.corrected[0]
        assert found.r[0] == pytest.approx(by_hand.r[0], abs=1e-9)
        assert correlate_tables(np.array([table]), correction=0).r[0] == 1
    else:
        np.testing.assert_equal(found.r[0], wanted)
        assert np.isnan(found.se[0])
        assert found.constant[0] == np.isnan(wanted)
        assert found.perfect[0] == (not np.isnan(wanted))


def test_perfect_order_of_categories():
    assert correlate_tables(np.diag([5, 6, 7])[None]).perfect[0]
    assert correlate_tables(np.diag([5, 6, 7])[None, ::-1]).r[0] == -1


def test_thresholds_stay_finite():
    h = _thresholds(np.array([[0.0, 3.0, 0.0, 4.0]]))
    assert np.isfinite(h).all()
    p = np.array([[[3.0, 1.0], [1.0, 4.0]]])
    assert np.isfinite(_errors(p, h[:, [0, 2, 4]], h[:, [0, 2, 4]], np.array([0.5]))).all()


def gaps_and_oddities():
    X = RNG.integers(0, 2, (60, 7)).astype(float)
    X[:, 1] = X[:, 0]
    X[:, 2] = 1
    X[:, 3] = np.nan
    X[:30, 4], X[30:, 5] = np.nan, np.nan
    return Responses.from_array(X, item_ids=["a", "twin", "all", "none", "late", "early", "f"])


def test_degenerate_items_are_named():
    found = correlations(gaps_and_oddities())
    assert found.excluded["all"] == "constant"
    assert found.excluded["none"] == "no answers"
    assert found.excluded["late"] == "no correlation with 1 of 4 items"
    assert found.raw.loc["a", "twin"] == 1
    assert found.smoothed
    assert np.linalg.eigvalsh(found.matrix)[0] > 0
    flags = found.to_frame()["flag"]
    assert flags["a", "twin"] == "perfect"
    assert flags["late", "early"] == "nobody answered both"
    assert np.isfinite(factors(gaps_and_oddities(), 1).loadings["F1"]).all()
    assert parallel_analysis(gaps_and_oddities(), n=3).n_factors >= 1


def test_missing_answers_are_left_out():
    X = (normal_pairs(300, 0.5) > 0).astype(float)
    gaps = X.copy()
    gaps[:60, 0], gaps[250:, 1] = np.nan, np.nan
    found = correlations(Responses.from_array(gaps)).raw.iloc[0, 1]
    assert found == correlations(Responses.from_array(X[60:250])).raw.iloc[0, 1]


def test_pearson():
    X = RNG.random((50, 4))
    X[:20, 1] = np.nan
    found = correlations(Responses.from_array(X), "pearson")
    by_hand = np.corrcoef(X[20:, 0], X[20:, 1])[0, 1]
    # ids are kept; fractions are stored in single precision
    assert found.raw.loc["i1", "i2"] == pytest.approx(by_hand, abs=1e-6)
    np.testing.assert_allclose(
        found.raw.loc["i3", "i4"], np.corrcoef(X[:, 2], X[:, 3])[0, 1], atol=1e-6
    )


def test_nearest_correlation():
    """A correlation matrix stays; another is met at a distance none of many others undercuts."""
    fine = np.corrcoef(RNG.normal(size=(4, 30)))
    np.testing.assert_allclose(nearest_correlation(fine), fine, atol=1e-8)
    odd = np.array([[1, 0.9, 0.1, 0.0], [0.9, 1, 0.9, 0.2], [0.1, 0.9, 1, -0.7], [0, 0.2, -0.7, 1]])
    near = nearest_correlation(odd)
    assert np.linalg.eigvalsh(near)[0] > 0
    np.testing.assert_array_equal(np.diagonal(near), 1)
    gap = ((near - odd) ** 2).sum()
    for seed in range(200):
        root = np.linalg.cholesky(near) + 0.02 * np.random.default_rng(seed).normal(size=(4, 4))
        root /= np.linalg.norm(root, axis=1, keepdims=True)
        assert ((root @ root.T - odd) ** 2).sum() > gap - 1e-4


def test_minres_finds_what_is_there():
    """A matrix made of two factors is taken apart exactly, up to a turn."""
    loadings = RNG.uniform(0.2, 0.7, (10, 2)) * np.array([[1, 0.3]] * 5 + [[-0.3, 1]] * 5)
    matrix = loadings @ loadings.T
    np.fill_diagonal(matrix, 1)
    found = minres(matrix, 2)
    assert found.converged
    assert found.residual < 1e-6
    np.testing.assert_allclose(found.loadings @ found.loadings.T, loadings @ loadings.T, atol=1e-4)


def test_minres_by_brute_force():
    matrix = np.corrcoef(RNG.normal(size=(60, 1)) + RNG.normal(size=(60, 5)), rowvar=False)
    off = ~np.eye(5, dtype=bool)
    best = minimize(lambda x: ((matrix - np.outer(x, x))[off] ** 2).sum(), np.full(5, 0.7))
    np.testing.assert_allclose(minres(matrix, 1).loadings[:, 0], best.x, atol=1e-4)


@pytest.fixture(scope="module")
def theirs(reference):
    return reference("mirt_two_factors")


@pytest.fixture(scope="module")
def two(theirs):
    packed = np.frombuffer(bytes.fromhex(theirs["responses"]), np.uint8)
    return Responses.from_array(np.unpackbits(packed, count=32_000).reshape(2000, 16))


@pytest.mark.parametrize("rotation", ["varimax", "oblimin", "targetQ"])
def test_close_to_full_information(rotation, theirs, two):
    """Limited information gives mirt's loadings within what 2,000 subjects tell (SE about .03)."""
    out = theirs["exploratory"][rotation]
    goal = np.array(theirs["exploratory"]["target"], float)
    given = {"target": goal} if rotation == "targetQ" else {}
    found = factors(two, 2, "target" if given else rotation, **given)
    ours, goal = found.loadings[["F1", "F2"]].to_numpy(), np.array(out["loadings"])
    order = [int(np.abs(ours.T @ column).argmax()) for column in goal.T]
    ours = ours[:, order] * np.sign((ours[:, order] * goal).sum(axis=0))
    assert found.converged
    assert np.abs(ours - goal).max() < 0.035
    assert np.abs(ours - goal).mean() < 0.012
    between = abs(found.correlations.iloc[0, 1])
    assert between == pytest.approx(abs(out["correlation"]), abs=0.02)
    assert found.explained.sum() == pytest.approx(found.loadings["h2"].mean())


@pytest.mark.slow
def test_full_information_is_mirts(theirs, two):
    found = factors(two, 2, "oblimin", method="mml", fit_options={"solver": EM(tolerance=1e-3)})
    goal = np.array(theirs["exploratory"]["oblimin"]["loadings"])
    np.testing.assert_allclose(found.loadings[["F1", "F2"]], goal, atol=6e-3)


@pytest.mark.slow
def test_models_compared(theirs, two):
    """Log-likelihoods are mirt's; free parameters are counted without the rotations."""
    table = compare_factors(two, 2)
    logs = [theirs["one_factor_log_likelihood"], theirs["exploratory"]["log_likelihood"]]
    np.testing.assert_allclose(table["log_likelihood"], logs, atol=0.05)
    assert table["n_parameters"].tolist() == [32, 47]
    assert table.loc[2, "df"] == 15
    assert table.loc[2, "x2"] == pytest.approx(2 * (logs[1] - logs[0]), abs=0.1)
    n = 2000
    for p, (_, row) in zip((32, 47), table.iterrows(), strict=True):
        deviance_ = -2 * row.log_likelihood
        assert row.caic == pytest.approx(deviance_ + p * (np.log(n) + 1))
        assert row.sabic == pytest.approx(deviance_ + p * np.log((n + 2) / 24))
    assert table["bic"].idxmin() == 2


def test_parallel_analysis(two):
    calls = []
    found = parallel_analysis(two, n=10, seed=1, progress=lambda *call: calls.append(call))
    assert found.n_factors == 2
    assert calls[-1] == (10, 10)
    table = found.to_frame()
    assert table["eigenvalue"].sum() == pytest.approx(16)
    assert table["random_mean"].sum() == pytest.approx(16)
    assert (table["random_limit"] >= table["random_mean"] - 1e-9).all()
    again = parallel_analysis(two, n=10, seed=1)
    assert again.table.equals(table)
    assert parallel_analysis(two, n=10, kind="pearson").n_factors == 2


def test_no_common_ability():
    """Independent answers: nothing above the limits but by chance (at most one here)."""
    X = np.random.default_rng(3).integers(0, 2, (400, 12))
    assert parallel_analysis(Responses.from_array(X), n=20).n_factors <= 1


def test_shuffles_keep_margins_and_gaps():
    from irtcat.diagnose.dimension.factors import _shuffled

    X = RNG.integers(0, 3, (40, 5)).astype(np.int8)
    X[RNG.random(X.shape) < 0.3] = -1
    mixed = _shuffled(X, X < 0, np.random.default_rng(0))
    np.testing.assert_array_equal(mixed < 0, X < 0)
    np.testing.assert_array_equal(np.sort(mixed, axis=0), np.sort(X, axis=0))
    assert (mixed != X).any()


def test_target_needs_few_numbers():
    """Browne's partly specified target: two numbers a column find the simple structure again."""
    simple = np.zeros((8, 2))
    simple[:4, 0] = simple[4:, 1] = 0.7
    turned = simple @ ortho_group.rvs(2, random_state=0)
    from irtcat.bank import rotate_loadings

    goal = np.full((8, 2), np.nan)
    goal[[4, 5], 0] = goal[[0, 1], 1] = 0
    found = rotate_loadings(turned, "target", target=goal)
    np.testing.assert_allclose(np.abs(found.loadings), simple, atol=1e-4)


BAD = {
    "fractions": (lambda: correlations(Responses.from_array([[0.5, 1], [0, 0.2]])), "pearson"),
    "graded": (
        lambda: correlations(Responses.from_array([[1, 2], [3, 1]]), "tetrachoric"),
        "polychoric",
    ),
    "constant": (lambda: correlations(Responses.from_array([[1, 1], [1, 0]])), "at least 2 items"),
    "correction": (lambda: correlations(load("lsat7"), correction=2), "from 0 to 0.5"),
    "no data": (lambda: correlations(None), "Responses"),
    "factors": (lambda: factors(load("lsat7"), 5), "between 1 and 4"),
    "method": (lambda: factors(load("lsat7"), 1, method="ml"), "minres, mml"),
    "rotation": (lambda: factors(load("lsat7"), 2, "twist"), "rotation"),
    "percentile": (lambda: parallel_analysis(load("lsat7"), percentile=0), "percentile"),
    "models": (lambda: compare_factors(Responses.from_array([[1, 2], [3, 1]])), "right/wrong"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, words = BAD[case]
    with pytest.raises(InputError, match=words):
        call()


def test_categories_that_do_not_occur_change_nothing():
    """Where an item has fewer categories than the table has room for, r and se are the same."""
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 300)
    one, two = z[:, 0] > 0.2, np.digitize(z[:, 1], [-0.5, 0.2, 1.0])
    tables = np.zeros((4, 4, 4))
    for table, (low, high) in zip(tables, [(0, 1), (1, 2), (2, 3), (0, 3)], strict=True):
        np.add.at(table, (np.where(one, high, low), two), 1)
    found = correlate_tables(tables)
    assert np.ptp(found.r) < 1e-8
    assert np.ptp(found.se) < 1e-8
    assert 0.03 < found.se[0] < 0.08

"""Local dependence against mirt's numbers, brute force, and what cannot be tested."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, multivariate_normal

from irtcat import EM, ItemBank, Population, Responses, fit
from irtcat._common.checks import InputError
from irtcat.diagnose import ld_statistics, q3
from irtcat.diagnose.chi_square import coded
from irtcat.diagnose.dependence import _log_density_derivative, pair_reference
from irtcat.diagnose.estimated_parameters import free_of

LSAT = [("lsat6", "rasch"), ("lsat6", "2pl"), ("lsat7", "1pl"), ("lsat7", "3pl")]


@pytest.mark.parametrize(("data", "model"), LSAT)
def test_lsat_is_mirts(lsat, data, model):
    responses, bank, numbers = lsat(data, model)
    found = ld_statistics(bank, responses, estimated="all").to_frame()
    np.testing.assert_allclose(found["x2"], numbers["ld_x2"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["g2"], np.abs(numbers["ld_g2"]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["v"], numbers["ld_v"], atol=1e-6)
    assert (found["df"] == 1).all()
    residual = q3(bank, responses).to_frame()
    np.testing.assert_allclose(residual["q3"], numbers["q3"], atol=1e-6)


@pytest.mark.parametrize("model", ["graded", "nominal", "rsm"])
def test_science_is_mirts(diagnostics, shared, model):
    """Four categories: V is over N (K - 1), K - 1 = 3; from our own fit."""
    responses = Responses.from_array(pd.read_csv(shared / "reference" / "mirt" / "Science.csv"))
    found = ld_statistics(fit(responses, model).bank, responses).to_frame()
    np.testing.assert_allclose(found["x2"], diagnostics["science"][model]["ld_x2"], rtol=1e-3)
    np.testing.assert_allclose(found["v"], diagnostics["science"][model]["ld_v"], rtol=1e-3)
    assert (found["df"] == 9).all()


@pytest.mark.slow
def test_two_abilities_taken_as_one(diagnostics, two_factor_data):
    """2,000 x 16: the pairs of one ability stand out, as in mirt."""
    bank, theirs = fit(two_factor_data, "2pl").bank, diagnostics["two_factors"]["one"]
    found = ld_statistics(bank, two_factor_data)
    np.testing.assert_allclose(found.table["x2"], theirs["ld_x2"], rtol=1e-3, atol=2e-3)
    np.testing.assert_allclose(found.table["v"], theirs["ld_v"], atol=1e-4)
    residual = q3(bank, two_factor_data)
    np.testing.assert_allclose(residual.table["q3"], theirs["q3"], atol=1e-4)
    first = np.arange(16) < 8
    same = first[:, None] == first
    np.fill_diagonal(same, False)
    for pairs, column in ((found, "v"), (residual, "q3_star")):
        matrix = pairs.matrix(column).to_numpy()
        assert matrix[same].mean() > 0.05 > -0.02 > np.nanmean(matrix[~same])
    assert len(found.largest(5)) == 5
    assert found.largest(1)["v"].abs().iloc[0] == found.table["v"].abs().max()


# --- laws


def test_tables_by_brute_force():
    """Items of two and three categories, with gaps: counted pair by pair."""
    bank = ItemBank.from_thresholds(a=[1.0, 1.5, 0.8], b=[[0.2, np.nan], [-1, 1], [-0.5, 0.7]])
    rng = np.random.default_rng(1)
    X = bank.simulate(rng.normal(size=200), 2).to_numpy()
    X[rng.random(X.shape) < 0.2] = np.nan
    found = ld_statistics(bank, Responses.from_array(X)).table
    z = np.linspace(-6, 6, 401)
    w = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    p = bank.category_probabilities(z)
    for row, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        both = ~np.isnan(X[:, [i, j]]).any(axis=1)
        k_i, k_j = (2, 3, 3)[i], (2, 3, 3)[j]
        observed = np.zeros((k_i, k_j))
        np.add.at(observed, tuple(X[both][:, [i, j]].astype(int).T), 1)
        expected = both.sum() * np.einsum("qk,ql,q->kl", p[i, :, :k_i], p[j, :, :k_j], w)
        assert expected.sum() == pytest.approx(observed.sum())
        x2 = ((observed - expected) ** 2 / expected).sum()
        positive = observed > 0
        g2 = 2 * (observed[positive] * np.log((observed / expected)[positive])).sum()
        assert found.loc[row, "x2"] == pytest.approx(x2, rel=1e-6)
        assert found.loc[row, "g2"] == pytest.approx(g2, rel=1e-6)
        assert found.loc[row, "n"] == both.sum()
        assert found.loc[row, "df"] == k_i * k_j - 1  # known items: the margins are free too
        assert found.loc[row, "z"] == pytest.approx(
            found.loc[row, "sign"] * (x2 - k_i * k_j + 1) / np.sqrt(2 * (k_i * k_j - 1)), rel=1e-5
        )


def test_q3_is_the_correlation_of_residuals(small):
    bank, responses = small
    X = responses.to_numpy()
    X[::7, 1] = np.nan
    theta = np.random.default_rng(2).normal(size=60)
    found = q3(bank, Responses.from_array(X), abilities=theta)
    residual = pd.DataFrame(X - bank.probability(theta).T)
    np.testing.assert_allclose(found.matrix(), residual.corr().where(~np.eye(8, dtype=bool)))
    assert found.table["q3_star"].mean() == pytest.approx(0)
    assert found.table["n"].tolist()[:2] == [51, 60]


@pytest.mark.slow
def test_a_copied_item_is_found(small):
    bank, _ = small
    rng = np.random.default_rng(3)
    X = bank.simulate(rng.normal(size=500), 4).to_numpy()
    X[:, 1] = np.where(rng.random(500) < 0.5, X[:, 0], X[:, 1])
    X[:, 3] = np.where(rng.random(500) < 0.5, 1 - X[:, 2], X[:, 3])
    responses = Responses.from_array(X)
    copies = [("i1", "i2"), ("i3", "i4")]
    found = ld_statistics(bank, responses, estimated="all")
    table = found.table.set_index(["item_1", "item_2"])
    assert table["p_holm"].idxmin() in copies
    assert table.loc[copies, "p_holm"].max() < 1e-4
    assert table.loc[copies[0], "v"] > 0 > table.loc[copies[1], "v"]
    residual = q3(bank, responses).table.set_index(["item_1", "item_2"])["q3_star"]
    assert [residual.idxmax(), residual.idxmin()] == copies


def test_no_p_of_q3(small):
    """Fisher's z of independent pairs has p < .05 in 6 to 27 % of them."""
    assert [c for c in q3(*small).table if c.startswith("p")] == []


# --- the reference distribution of X2


def test_p_of_known_items_is_that_of_all_cells(small):
    table = ld_statistics(*small).table
    np.testing.assert_allclose(table["df"], 3)
    np.testing.assert_allclose(table["p"], chi2.sf(table["x2"], 3), rtol=1e-6)


@pytest.mark.slow_cases("False")
@pytest.mark.parametrize("groups", [False, True])
def test_moments_of_x2_by_enumeration(groups):
    """tr M of fitted 2PL items by all patterns, with differences for derivatives."""
    a, b = np.array([1.2, 0.8, 1.5, 1.0, 1.3]), np.array([-1.0, 0.5, 0.0, -0.4, 1.0])
    means, sds = ((0.0, 1.0), (1.0, 1.3)) if groups else ((0.0,), (1.0,))
    sizes = (12_000, 8_000)[: len(means)]
    z = np.linspace(-6, 6, 301)
    w = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    patterns = np.array(list(itertools.product((0, 1), repeat=5)))

    def shares(parameters, group):
        """Probabilities of all patterns in a group."""
        mean, sd = parameters[10:] if group else (0.0, 1.0)
        theta = mean + sd * z
        p = 1 / (1 + np.exp(-parameters[:5, None] * (theta - parameters[5:10, None])))
        cells = np.where(patterns[:, :, None] == 1, p, 1 - p)
        return cells.prod(axis=1) @ w

    truth = np.concatenate([a, b, [means[-1], sds[-1]] if groups else []])
    information, jacobians, probabilities = 0.0, [], []
    for g, n in enumerate(sizes):
        p = shares(truth, g)
        step = 1e-5 * np.eye(len(truth))
        d = np.stack([(shares(truth + s, g) - shares(truth - s, g)) / 2e-5 for s in step], axis=1)
        information = information + n * (d.T / p) @ d
        jacobians.append(d)
        probabilities.append(p)
    inverse = np.linalg.inv(information)
    means_of_x2 = []
    for i, j in itertools.combinations(range(5), 2):
        to_cells = (2 * patterns[:, i] + patterns[:, j])[None] == np.arange(4)[:, None]
        e = [n * to_cells @ p for n, p in zip(sizes, probabilities, strict=True)]
        g = sum(n * to_cells @ d for n, d in zip(sizes, jacobians, strict=True))
        c = np.diag(sum(e)) - sum(np.outer(x, x) / n for x, n in zip(e, sizes, strict=True))
        means_of_x2.append(np.trace((c - g @ inverse @ g.T) / sum(e)[:, None]))
    labels = np.repeat(["A", "B"][: len(sizes)], sizes)
    rng = np.random.default_rng(5)
    theta = np.concatenate(
        [m + s * rng.normal(size=n) for m, s, n in zip(means, sds, sizes, strict=True)]
    )
    r = ItemBank.from_parameters(a, b).simulate(theta, 6)
    bank = fit(r, "2pl", EM(tolerance=1e-6), groups=labels if groups else None).bank
    data = coded(bank, r, groups=labels if groups else None)
    reference = pair_reference(data, free_of(data.bank))
    found = reference.scale * reference.df
    np.testing.assert_allclose(found, means_of_x2, rtol=0.08, atol=0.02)
    assert np.mean(means_of_x2) < 0.5  # far below df = 1


@pytest.mark.slow
@pytest.mark.parametrize("model", ["2pl", "rasch", "graded"])
def test_independent_pairs_are_rejected_at_the_nominal_rate(model):
    """df = 1 rejected 1.5 % of fitted 2PL pairs."""
    rejected = []
    for k in range(6):
        rng = np.random.default_rng([k, 7])
        a = 1.0 if model == "rasch" else rng.lognormal(0.2, 0.3, 16)
        b = rng.normal(0.2, 0.8, 16)
        if model == "graded":
            truth = ItemBank.from_thresholds(a, np.stack([b - 0.7, b + 0.7], axis=1))
        else:
            truth = ItemBank.from_parameters(a, b)
        r = truth.simulate(rng.normal(size=1000), k)
        bank = fit(r, model, standard_errors="none").bank
        rejected.append((ld_statistics(bank, r).table["p"] < 0.05).mean())
    assert 0.03 < np.mean(rejected) < 0.075


# --- degenerate data


def test_constant_items_and_pairs_nobody_answered(small):
    bank, responses = small
    X = responses.to_numpy()
    X[:, 0] = 1
    X[:30, 1], X[30:, 2] = np.nan, np.nan
    found, residual = (check(bank, Responses.from_array(X)) for check in (ld_statistics, q3))
    table = found.table.set_index(["item_1", "item_2"])
    assert (table.loc["i1", "flag"] == "constant").all()
    assert table.loc[("i2", "i3"), "flag"] == "nobody answered both"
    untested = table["flag"] != ""
    assert untested.sum() == 8
    assert table[untested][["x2", "g2", "p", "p_holm", "v", "z"]].isna().all(axis=None)
    assert table[~untested].notna().all(axis=None)
    assert residual.table.set_index(["item_1", "item_2"])["flag"][("i2", "i3")] != ""
    assert np.isnan(found.matrix().loc["i2", "i3"])


def test_refused(small):
    bank, responses = small
    for check in (ld_statistics, q3):
        with pytest.raises(InputError, match="at least 2 items"):
            check(bank.subset([0]), responses)
    with pytest.raises(InputError, match="The `column` argument"):
        ld_statistics(bank, responses).matrix("flag")
    with pytest.raises(InputError, match="The `method` argument"):
        q3(bank, responses, method="x")


def test_q3_of_two_copies_is_one_and_no_surprise():
    bank = ItemBank.from_parameters(a=[1.0, 1.0], b=[0.0, 0.0])
    x = np.random.default_rng(0).integers(0, 2, 40)
    found = q3(bank, Responses.from_array(np.column_stack([x, x]), item_ids=bank.item_ids))
    row = found.to_frame().iloc[0]
    assert row["q3"] == pytest.approx(1.0)
    assert row["q3_star"] == pytest.approx(0.0)


@pytest.mark.parametrize("name", ["mean", "sd", "correlations"])
def test_derivatives_of_a_population_of_several_abilities(name):
    mean, sd = np.array([0.3, -0.2, 0.1]), np.array([1.2, 0.7, 1.0])
    between = np.array([[1.0, 0.4, 0.2], [0.4, 1.0, 0.3], [0.2, 0.3, 1.0]])
    points = np.random.default_rng(0).normal(size=(5, 3))
    population = Population(mean, sd, between)
    for at in [(0, 1), (0, 2), (1, 2)] if name == "correlations" else [(0, 0), (1, 1), (2, 2)]:
        ends = []
        for change in (1e-6, -1e-6):
            numbers = {"mean": mean.copy(), "sd": sd.copy(), "correlations": between.copy()}
            for index in {at, at[::-1]} if name == "correlations" else {at[0]}:
                numbers[name][index] += change
            covariance = numbers["correlations"] * np.outer(numbers["sd"], numbers["sd"])
            ends.append(multivariate_normal(numbers["mean"], covariance).logpdf(points))
        slope = _log_density_derivative(population, name, at, points)
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, atol=1e-7)

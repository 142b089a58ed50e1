"""Local dependence against mirt's numbers, brute force, and what cannot be tested."""

import numpy as np
import pandas as pd
import pytest

from irtcat import ItemBank, Responses, fit
from irtcat._common.checks import InputError
from irtcat.diagnose import ld_statistics, q3

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


def test_a_copied_item_is_found(small):
    bank, _ = small
    rng = np.random.default_rng(3)
    X = bank.simulate(rng.normal(size=500), 4).to_numpy()
    X[:, 1] = np.where(rng.random(500) < 0.5, X[:, 0], X[:, 1])
    X[:, 3] = np.where(rng.random(500) < 0.5, 1 - X[:, 2], X[:, 3])
    responses = Responses.from_array(X)
    for found in (ld_statistics(bank, responses, estimated="all"), q3(bank, responses)):
        table = found.table.set_index(["item_1", "item_2"])
        assert table["p_holm"].idxmin() in [("i1", "i2"), ("i3", "i4")]
        assert table.loc[[("i1", "i2"), ("i3", "i4")], "p_holm"].max() < 1e-4
        assert table.loc[("i1", "i2"), found.main] > 0 > table.loc[("i3", "i4"), found.main]


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
    assert row["p"] == pytest.approx(1.0)

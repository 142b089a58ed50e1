"""Contamination without dates, against a likelihood written out, and simulated leaks."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from irtcat import InputError, ItemBank, Responses
from irtcat.agreement import kendall_tau_b
from irtcat.diagnose import find_contamination


@pytest.fixture(scope="module")
def leak():
    """Answers of 80 subjects to 200 items, of which the first ten have seen 40 %."""
    rng = np.random.default_rng(0)
    a, b, theta = rng.lognormal(0.2, 0.3, 200), rng.normal(0, 1.5, 200), rng.normal(size=80)
    x = (rng.random((80, 200)) < expit(a * (theta[:, None] - b))).astype(int)
    leaked = rng.random(200) < 0.4
    x[:10, leaked] |= rng.random((10, leaked.sum())) < 0.95
    return ItemBank.from_parameters(a=a, b=b), a, b, theta, x, leaked


@pytest.mark.slow
@pytest.mark.parametrize("is_calibrated", [True, False])
def test_subjects_items_and_abilities(leak, is_calibrated):
    bank, _, _, theta, x, leaked = leak
    found = find_contamination(x, bank if is_calibrated else None)
    table = found.subjects
    accused = table["contaminated"].to_numpy()
    assert accused[:10].all()
    assert accused[10:].sum() <= 1
    robust, usual = table["ability"].to_numpy(), table["usual_ability"].to_numpy()
    assert np.abs(robust - theta)[:10].mean() < 0.4 < np.abs(usual - theta)[:10].mean()
    assert kendall_tau_b(robust, theta) > kendall_tau_b(usual, theta)
    np.testing.assert_array_equal(robust[~accused], usual[~accused])
    assert (table["factor"][:10] > 7).all()
    assert (found.items["leaked"] & ~leaked).sum() == 0
    assert found.items["excess"][leaked].mean() > 0.05 > found.items["excess"][~leaked].mean()
    assert str(found).startswith(f"Contamination({accused.sum()} of 80 subjects have seen items; ")


@pytest.mark.slow
def test_each_its_own_items():
    rng = np.random.default_rng(3)
    theta = rng.normal(size=80)
    x = (rng.random((80, 300)) < expit(theta[:, None] - rng.normal(0, 1.5, 300))).astype(int)
    x[:12] |= rng.random((12, 300)) < 0.6
    accused = find_contamination(x).subjects["contaminated"].to_numpy()
    assert accused[:12].sum() >= 11
    assert accused[12:].sum() <= 1


@pytest.mark.slow
def test_a_leak_that_looks_like_an_ability():
    # Steps by the first model alone end here with contaminated subjects among the cleanest.
    rng = np.random.default_rng(344)
    theta, a, b = rng.normal(size=100), rng.lognormal(0.2, 0.3, 400), rng.normal(0, 1.5, 400)
    x = (rng.random((100, 400)) < expit(a * (theta[:, None] - b))).astype(int)
    leaked = rng.random(400) < 0.2
    x[:30, leaked] |= rng.random((30, leaked.sum())) < 0.95
    found = find_contamination(x)
    accused = found.subjects["contaminated"].to_numpy()
    assert accused[:30].sum() >= 28
    assert accused[30:].sum() <= 1
    assert kendall_tau_b(found.subjects["ability"].to_numpy(), theta) > 0.9
    assert found.asymptote == 0


@pytest.mark.slow
def test_guessing_is_not_memory():
    rng = np.random.default_rng(100)
    theta, a, b = rng.normal(size=100), rng.lognormal(0.2, 0.3, 300), rng.normal(0, 1.5, 300)
    p = 0.2 + 0.8 * expit(a * (theta[:, None] - b))
    x = (rng.random(p.shape) < p).astype(int)
    found = find_contamination(x)
    assert found.subjects["contaminated"].sum() <= 1
    assert 0.1 <= found.asymptote <= 0.25
    assert np.isnan(find_contamination(x, ItemBank.from_parameters(a=a, b=b)).asymptote)


def test_easy_items_say_nothing_of_the_asymptote():
    rng = np.random.default_rng(0)
    u, theta, easiness = rng.random((60, 60)), rng.normal(size=(60, 1)), rng.normal(3, 0.5, 60)
    found = find_contamination((u < expit(theta + easiness)).astype(int))
    assert found.asymptote > 0.2
    assert found.flags == (
        f"the lower asymptote ({found.asymptote:.2f}) is not determined: 0 is as likely",
    )


def test_shares_of_one_distribution(leak):
    """Where all have seen as much, abilities are close to those by the true share."""
    bank, a, b, _, _, _ = leak
    rng = np.random.default_rng(5)
    theta = rng.normal(size=40)
    x = (rng.random((40, 200)) < expit(a * (theta[:, None] - b))).astype(int)
    x[:20] |= rng.random((20, 200)) < 0.6
    table = find_contamination(x, bank).subjects
    accused = table["contaminated"].to_numpy()[:20]
    assert accused.mean() > 0.9
    nodes = np.linspace(-5, 5, 201)
    p = np.clip(expit(a * (nodes[:, None] - b)), 0.02, 0.98)

    def log_likelihood(share):
        q = share + (1 - share) * p
        return x[:20] @ np.log(q).T + (1 - x[:20]) @ np.log1p(-q).T - nodes**2 / 2

    def mean(log_p):
        weight = np.exp(log_p - log_p.max(axis=1, keepdims=True))
        return weight @ nodes / weight.sum(axis=1)

    with_share = mean(log_likelihood(0.6))
    flat = mean(np.logaddexp.reduce([log_likelihood(s) for s in np.linspace(0.05, 0.95, 37)]))
    ability = table["ability"].to_numpy()[:20]
    error, error_flat = (np.abs(v - with_share)[accused].mean() for v in (ability, flat))
    assert error < 0.7 * error_flat


def test_the_share_maximises_the_likelihood(leak):
    bank, a, b, _, x, _ = leak

    def loss(v, row):
        p = np.clip(expit(a * (v[0] - b)), 0.02, 0.98)
        p = v[1] + (1 - v[1]) * p
        return v[0] ** 2 / 2 - np.where(row == 1, np.log(p), np.log(1 - p)).sum()

    found = find_contamination(x, bank).subjects
    for subject in range(3):
        limits = [(-4, 4), (0.0, 0.95)]
        best = minimize(loss, [0.0, 0.3], (x[subject],), bounds=limits, method="L-BFGS-B")
        assert found["seen"].iloc[subject] == pytest.approx(best.x[1], abs=0.05)
        none = minimize(loss, [0.0, 0.0], (x[subject],), bounds=[(-4, 4), (0, 0)])
        assert best.fun < none.fun


@pytest.mark.slow
def test_without_contamination_nobody_is_accused():
    rng = np.random.default_rng(1)
    bank = ItemBank.from_parameters(a=rng.lognormal(0.2, 0.3, 120), b=rng.normal(0, 1.5, 120))
    x = bank.simulate(rng.normal(size=300), seed=2)
    found = find_contamination(x, bank)
    assert found.subjects["contaminated"].mean() <= 0.01
    assert found.items["flag"].eq("few contaminated subjects").all()
    assert not found.items["leaked"].any()
    assert 1 <= found.inflation < 1.2


def test_missing_answers_and_few(leak):
    bank, _, _, _, x, _ = leak
    x = x.astype(float)
    x[0, 15:] = np.nan
    x[1, 100:] = np.nan
    table = find_contamination(x[:8], bank).subjects
    assert table["flag"].tolist() == ["few answers"] + [""] * 7
    assert np.isnan(table["z"].iloc[0])
    assert table["n"].tolist()[:2] == [15, 100]
    assert np.isfinite(table[["ability", "se"]]).all(axis=None)
    assert "taken as exact" in find_contamination(x[:8], bank).flags[0]


def test_refusals(leak):
    bank, _, _, _, x, _ = leak
    graded = Responses.from_array(np.arange(60).reshape(30, 2) % 3)
    with pytest.raises(InputError, match="right/wrong"):
        find_contamination(graded)
    with pytest.raises(InputError, match="at least 20 subjects, or given with a bank"):
        find_contamination(x[:9])
    with pytest.raises(InputError, match="alpha"):
        find_contamination(x, bank, alpha=1)
    with pytest.raises(InputError, match="one of"):
        find_contamination(x, bank, correction="none of these")

"""The deviates of infit and outfit: exact moments by enumeration, and their rate of alarms."""

import itertools

import numpy as np
import pytest

from irtcat import ItemBank, Responses, fit, score
from irtcat.diagnose import infit_outfit, person_fit
from irtcat.diagnose.chi_square import coded, curves, population_nodes
from irtcat.diagnose.estimated_parameters import free_of
from irtcat.diagnose.residuals import item_nulls

GRADED = ItemBank.from_thresholds(a=[0.8, 1.6, 1.2], b=[[-1.0, 0.5], [-0.2, np.nan], [0.3, 1.1]])
RIGHT_WRONG = ItemBank.from_parameters(
    a=[0.7, 1.8, 1.2, 1.0], b=[-1.0, 0.2, 0.8, 1.5], population_mean=0.4, population_sd=1.3
)


@pytest.mark.slow_cases("(?!True-bank0-map$).*")
@pytest.mark.parametrize("method", ["eap", "map", "wle"])
@pytest.mark.parametrize("bank", [RIGHT_WRONG, GRADED])
@pytest.mark.parametrize("has_missing", [False, True])
def test_the_moments_are_those_over_all_patterns(bank, method, has_missing):
    """One subject: over all patterns, weighted by their probabilities, the model has no misfit."""
    n_categories = [3, 2, 3] if bank is GRADED else [2] * 4
    answered = np.arange(len(n_categories)) != (1 if has_missing else -1)
    points, weights = population_nodes(bank)
    p = curves(bank, points)
    difference = variance = 0.0
    for pattern in itertools.product(*map(range, np.where(answered, n_categories, 1))):
        x = np.where(answered, pattern, np.nan)[None]
        codes = range(max(n_categories))
        responses = Responses.from_array(x, item_ids=bank.item_ids, codes=codes)
        chosen = [p[i, :, k] for i, k in enumerate(pattern) if answered[i]]
        probability = weights @ np.prod(chosen, axis=0)
        data = coded(bank, responses)
        theta = score(bank, responses, method, precision="float64").theta
        null = item_nulls(data, theta, method, free_of(bank, "none"))["outfit"]
        outfit = infit_outfit(bank, responses, method)["outfit"].to_numpy()
        difference += probability * (outfit - null.mean)
        variance += probability * ((outfit - null.mean) ** 2 - (null.spread * null.mean) ** 2)
    np.testing.assert_allclose(difference[answered], 0, atol=2e-4)
    np.testing.assert_allclose(variance[answered], 0, atol=2e-3)


def simulated(model, rng, n, n_items):
    a, b = rng.lognormal(0.2, 0.3, n_items), rng.normal(0, 0.8, n_items)
    if model in ("graded", "gpcm"):
        b = b[:, None] / 2 + np.array([-1.0, 0.0, 1.0])
        bank = ItemBank.from_thresholds(a, b)
    else:
        bank = ItemBank.from_parameters(1.0 if model == "rasch" else a, b)
    return bank, bank.simulate(rng.normal(size=n), int(rng.integers(2**31)))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rasch", "2pl", "graded"])
def test_items_that_fit_are_flagged_at_the_nominal_rate(model):
    """Uncorrected, half to all of these z are beyond 2."""
    z = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        _, responses = simulated(model, rng, 600, 15)
        x = responses.to_numpy()
        x[rng.random(x.shape) < 0.2] = np.nan
        responses = Responses.from_array(x, codes=responses.codes)
        found = infit_outfit(fit(responses, model).bank, responses)
        z.append(found[["outfit_z", "infit_z"]].to_numpy())
    z = np.concatenate(z)
    rate = (np.abs(z) > 2).mean(axis=0)
    assert (rate < 0.0455 + 2 * np.sqrt(0.0455 * 0.9545 / len(z))).all()
    assert (np.abs(z.mean(axis=0)) < 0.25).all()
    assert ((z.std(axis=0) > 0.75) & (z.std(axis=0) < 1.2)).all()


@pytest.mark.slow
def test_an_item_that_does_not_fit_is_found():
    """Of slope .3 among items of slope 1, fitted as Rasch items."""
    rng = np.random.default_rng(3)
    bank = ItemBank.from_parameters(a=[0.3] + [1.0] * 14, b=rng.normal(0, 0.8, 15))
    responses = bank.simulate(rng.normal(size=600), 4)
    found = infit_outfit(fit(responses, "rasch").bank, responses)
    assert found["infit_z"].iloc[0] > 4
    assert found["outfit_z"].iloc[0] > 4


def test_several_abilities():
    """Two are integrated; posteriors narrower than the nodes are flagged."""
    rng = np.random.default_rng(6)
    slopes, b = np.kron(np.eye(2), np.ones((6, 1))), rng.normal(size=12)
    for slope, is_flagged in ((1.2, False), (30.0, True)):
        bank = ItemBank.from_slopes(slope * slopes, -slope * b)
        found = infit_outfit(bank, bank.simulate(rng.normal(size=(400, 2)), 7))
        z = found[["outfit_z", "infit_z"]]
        assert z.isna().all(axis=None) == is_flagged
        assert (found["flag"] == ("posteriors too narrow for z" if is_flagged else "")).all()
        assert is_flagged or (z.abs() > 2).mean(axis=None) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("method", ["map", "wle", "eap"])
def test_subjects_that_fit(method):
    rng = np.random.default_rng(5)
    bank, responses = simulated("2pl", rng, 2000, 25)
    found = person_fit(bank, responses, method)
    infit, outfit = found["infit_z"].dropna(), found["outfit_z"].dropna()
    assert (np.abs(infit) > 2).mean() == pytest.approx(0.0455, abs=2 * 0.0047)
    assert (np.abs(outfit) > 2).mean() < 0.0455
    assert abs(infit.mean()) < 0.15
    assert infit.std() == pytest.approx(1, abs=0.05)


def test_z_of_subjects_by_hand():
    """Right/wrong items at the MAP: the gradient of the log-likelihood is (theta - mean) / var."""
    bank = RIGHT_WRONG
    responses = Responses.from_array([[1, 0, 0, 1]], item_ids=bank.item_ids)
    found = person_fit(bank, responses, "map").iloc[0]
    a, p = bank.to_frame()["a"].to_numpy(), bank.probability(found["theta"])[:, 0]
    v, gradient = p * (1 - p), (found["theta"] - 0.4) / 1.3**2
    for name, w in {"outfit": 1 / v / 4, "infit": np.ones(4) / v.sum()}.items():
        # The square of a residual is p^2 + x (1 - 2 p).
        slope = w * (1 - 2 * p)
        c = (a * v * slope).sum() / (a**2 * v).sum()
        mean = (w * v).sum() + c * gradient
        q = np.sqrt((v * (slope - c * a) ** 2).sum()) / mean
        want = (np.cbrt(found[name] / mean) - 1) * 3 / q + q / 3
        assert found[f"{name}_z"] == pytest.approx(want, abs=1e-4)

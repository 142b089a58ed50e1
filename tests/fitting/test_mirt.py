"""Calibration against R's mirt (tests/reference/README.md). The tolerances are the issue's."""

import numpy as np
import pandas as pd
import pytest

from irtcat import Responses, fit
from irtcat.responses.datasets import load

PARAMETERS, LOG_LIKELIHOOD, ERRORS = 2e-3, 1e-2, 0.02
CASES = [(d, m) for d in ("lsat6", "lsat7") for m in ("rasch", "1pl", "2pl", "3pl")]
lsat = pytest.mark.parametrize(("data", "model"), CASES)


def numbers(values):
    return np.array(values, dtype=float)


@pytest.mark.slow_cases("lsat6-(rasch|1pl|2pl)")
@lsat
def test_parameters(data, model, lsat_fit, reference):
    table, theirs = lsat_fit(data, model).bank.to_frame(), reference("mirt_lsat")[data][model]
    for name in ("a", "b", "c"):
        np.testing.assert_allclose(table[name], theirs[name], atol=PARAMETERS, rtol=0)
    assert (table.d == 1).all()


@pytest.mark.slow_cases("lsat6-(rasch|1pl|2pl)")
@lsat
def test_population(data, model, lsat_fit, reference):
    bank, theirs = lsat_fit(data, model).bank, reference("mirt_lsat")[data][model]
    assert bank.population.mean == 0
    assert bank.population.sd**2 == pytest.approx(theirs["population_variance"], abs=PARAMETERS)


@pytest.mark.slow_cases("lsat6-(rasch|1pl|2pl)")
@lsat
def test_likelihood_and_criteria(data, model, lsat_fit, reference):
    ours, theirs = lsat_fit(data, model), reference("mirt_lsat")[data][model]
    assert ours.converged
    assert ours.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=LOG_LIKELIHOOD)
    assert ours.aic == pytest.approx(theirs["aic"], abs=2 * LOG_LIKELIHOOD)
    assert ours.bic == pytest.approx(theirs["bic"], abs=2 * LOG_LIKELIHOOD)
    prior = ours.log_posterior - ours.log_likelihood
    assert prior == pytest.approx(theirs.get("log_prior", 0.0), abs=LOG_LIKELIHOOD)


@pytest.mark.slow_cases("lsat6-(rasch|1pl|2pl)")
@lsat
def test_standard_errors(data, model, lsat_fit, reference):
    bank, theirs = lsat_fit(data, model).bank, reference("mirt_lsat")[data][model]
    table = bank.to_frame()
    for name in ("se_a", "se_b", "se_c"):
        np.testing.assert_allclose(table[name], numbers(theirs[name]), rtol=ERRORS)
    unconstrained = {"intercept": "se_intercept", "slope": "se_a", "logit_lower": "se_logit_lower"}
    names = {"rasch": ["intercept"]}.get(model, ["slope", "intercept", "logit_lower"])
    for column in range(bank.covariance.shape[1]):
        ours = np.sqrt(bank.covariance[:, column, column])
        np.testing.assert_allclose(ours, numbers(theirs[unconstrained[names[column]]]), rtol=ERRORS)


@pytest.fixture(scope="module")
def gaps_fit(reference):
    """LSAT7 with 15 % of the cells deleted."""
    X = load("lsat7").to_numpy()
    deleted = np.frombuffer(bytes.fromhex(reference("mirt_lsat7_gaps")["deleted"]), np.uint8)
    X[np.unpackbits(deleted, count=X.size).reshape(X.shape).astype(bool)] = np.nan
    return fit(Responses.from_array(X), "2pl")


def test_gaps(gaps_fit, reference):
    theirs, model = reference("mirt_lsat7_gaps"), gaps_fit.bank.model
    assert gaps_fit.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=LOG_LIKELIHOOD)
    covariance = gaps_fit.bank.covariance
    for column, name in enumerate(("slope", "intercept")):
        np.testing.assert_allclose(getattr(model, name), theirs[name], atol=PARAMETERS, rtol=0)
        ours = np.sqrt(covariance[:, column, column])
        np.testing.assert_allclose(ours, theirs[f"se_{name}"], rtol=ERRORS)


def test_gaps_abilities(gaps_fit, reference):
    theirs = reference("mirt_lsat7_gaps")
    ability = gaps_fit.abilities
    ours = np.stack([ability.theta, ability.se], -1)[theirs["subjects"]]
    np.testing.assert_allclose(ours, theirs["eap"], atol=PARAMETERS, rtol=0)


@pytest.mark.parametrize("model", ["rasch", "2pl"])
def test_sat12(model, shared, reference):
    X = pd.read_csv(shared / "reference" / "mirt" / "SAT12_keyed.csv")
    theirs = reference("mirt_sat12")[model]
    ours = fit(Responses.from_array(X), model)
    assert ours.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=LOG_LIKELIHOOD)
    assert ours.aic == pytest.approx(theirs["aic"], abs=2 * LOG_LIKELIHOOD)
    assert ours.bic == pytest.approx(theirs["bic"], abs=2 * LOG_LIKELIHOOD)
    names = ("slope", "intercept") if model == "2pl" else ("intercept",)
    for column, name in enumerate(names):
        values = getattr(ours.bank.model, name)
        np.testing.assert_allclose(values, theirs[name], atol=PARAMETERS, rtol=0)
        errors = np.sqrt(ours.bank.covariance[:, column, column])
        np.testing.assert_allclose(errors, theirs[f"se_{name}"], rtol=ERRORS)
    np.testing.assert_allclose(ours.abilities.theta, theirs["eap"], atol=PARAMETERS, rtol=0)

"""Items with several categories against R's mirt: its Science data (tests/reference/README.md)."""

import functools

import numpy as np
import pandas as pd
import pytest

from irtcat import Responses, fit, test_information

MODELS = ("graded", "gpcm", "pcm", "rsm", "nominal")
COEFFICIENTS, LOG_LIKELIHOOD, ERRORS = 5e-3, 5e-2, 0.02
every = pytest.mark.parametrize("model", MODELS)


@pytest.fixture(scope="module")
def science(shared):
    """Fits of the Science data, each done once."""
    X = Responses.from_array(pd.read_csv(shared / "reference" / "mirt" / "Science.csv"))
    return functools.cache(lambda model: fit(X, model))


def in_mirts_terms(model, table):
    """Our table as mirt's coefficients: name -> (values, standard errors, where there are any)."""
    a, steps = table.a, [table[f"b{k}"] for k in (1, 2, 3)] if model != "nominal" else []
    if model == "graded":
        return {"a1": a, **{f"d{k}": -a * b for k, b in enumerate(steps, start=1)}}
    if model in ("gpcm", "pcm"):
        return {"a1": a, **{f"d{k}": -a * sum(steps[:k]) for k in (1, 2, 3)}}
    if model == "rsm":  # the first item's location is 0
        first = {f"b{k}": np.full(4, b.iloc[0]) for k, b in enumerate(steps, start=1)}
        return {**first, "c": table.b.iloc[0] - table.b}
    names = ["ak1", "ak2", "ak3", "d1", "d2", "d3"]
    return {"a1": a, **{name: table[name] for name in names}}


@every
def test_likelihood(model, science, reference):
    ours, theirs = science(model), reference("mirt_science")[model]
    assert ours.converged
    assert ours.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=LOG_LIKELIHOOD)
    assert ours.log_likelihood > theirs["log_likelihood"] - 1e-4
    assert ours.aic == pytest.approx(theirs["aic"], abs=2 * LOG_LIKELIHOOD)
    assert ours.bic == pytest.approx(theirs["bic"], abs=2 * LOG_LIKELIHOOD)
    variance = ours.bank.population.sd**2
    assert variance == pytest.approx(theirs["population_variance"], abs=COEFFICIENTS)


@every
def test_coefficients(model, science, reference):
    theirs = reference("mirt_science")[model]["coefficients"]
    for name, values in in_mirts_terms(model, science(model).bank.to_frame()).items():
        np.testing.assert_allclose(values, theirs[name], atol=COEFFICIENTS, rtol=0)


@every
def test_standard_errors(model, science, reference):
    """Where the two parametrisations share a parameter."""
    theirs = reference("mirt_science")[model]["errors"]
    table = science(model).bank.to_frame()
    pairs = {
        "graded": {"a": "a1"},
        "gpcm": {"a": "a1", "d1": "d1"},
        "pcm": {"b1": "d1"},
        "rsm": {},
        "nominal": {name: name for name in ("ak1", "ak2", "d1", "d2", "d3")} | {"a": "a1"},
    }[model]
    if model == "rsm":  # the first item's thresholds are mirt's common ones
        for k in (1, 2, 3):
            ours, error = table[f"se_b{k}"].iloc[0], theirs[f"b{k}"][0]
            assert ours == pytest.approx(error, rel=ERRORS)
    for ours, name in pairs.items():
        if f"se_{ours}" in table:
            expected = np.array(theirs[name], float)
            np.testing.assert_allclose(table[f"se_{ours}"], expected, rtol=ERRORS)


@every
def test_abilities_and_information(model, science, reference):
    ours, theirs = science(model), reference("mirt_science")[model]
    eap = np.array(theirs["eap"])
    np.testing.assert_allclose(ours.abilities.theta[: len(eap)], eap, atol=2e-3)
    at = theirs["information"]
    np.testing.assert_allclose(test_information(ours.bank, at["theta"]), at["value"], rtol=5e-3)

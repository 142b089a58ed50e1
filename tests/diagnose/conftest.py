"""Banks of mirt's own parameters, and the data they were fitted to."""

import functools

import numpy as np
import pytest

from irtcat import ItemBank, Responses
from irtcat.responses.datasets import load


def bank_of(numbers, item_ids):
    """A logistic bank; the population's SD is the square root of mirt's variance."""
    slope, intercept = np.array(numbers["slope"]), np.array(numbers["intercept"])
    return ItemBank.from_parameters(
        a=slope,
        b=-intercept / slope,
        c=numbers["lower"],
        item_ids=item_ids,
        population_sd=np.sqrt(numbers.get("population_variance", 1.0)),
    )


@pytest.fixture(scope="session")
def diagnostics(reference):
    return reference("mirt_diagnostics")


@pytest.fixture(scope="session")
def lsat(diagnostics):
    """Data, mirt's bank and mirt's numbers of one of `LSAT`."""

    @functools.cache
    def get(name, model):
        responses = load(name)
        numbers = diagnostics[name][model]
        return responses, bank_of(numbers, responses.item_ids), numbers

    return get


@pytest.fixture(scope="session")
def small():
    """A known bank of 8 items and 60 subjects."""
    rng = np.random.default_rng(5)
    bank = ItemBank.from_parameters(a=rng.uniform(0.7, 1.8, 8), b=rng.normal(0, 0.7, 8))
    return bank, bank.simulate(rng.normal(size=60), seed=6)


@pytest.fixture(scope="session")
def two_factor_data(reference):
    packed = reference("mirt_two_factors")["responses"]
    bits = np.frombuffer(bytes.fromhex(packed), np.uint8)
    return Responses.from_array(np.unpackbits(bits).reshape(2000, 16))

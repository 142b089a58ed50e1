"""Banks and states of the reference numbers."""

import functools

import numpy as np
import pytest

from irtcat import ItemBank


@pytest.fixture(scope="session")
def bank30(reference):
    """The 30 items of the reference numbers, their slopes times D."""
    columns = reference("catr_items")["bank"]

    @functools.cache
    def make(D=1.0):
        a = D * np.array(columns["a"])
        return ItemBank.from_parameters(a, columns["b"], columns["c"], columns["d"])

    return make

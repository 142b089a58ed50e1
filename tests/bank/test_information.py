"""Fisher information in closed form, beside automatic differentiation."""

import jax
import numpy as np
import pytest

from irtcat._common.precision import precision
from irtcat.bank import ItemBank, fisher_information, summed_information
from irtcat.models import TwoPL


@pytest.mark.parametrize("dims", [1, 2])
def test_logistic_items_beside_derivatives(dims):
    rng = np.random.default_rng(dims)
    shape = (9,) if dims == 1 else (9, dims)
    # Slopes and abilities at which p (1 - p) is about 1e-30.
    model = TwoPL(3 * rng.normal(size=shape), rng.normal(size=9))
    bank = ItemBank(model=model, item_ids=np.array([f"i{j}" for j in range(9)]))
    points = 8 * rng.normal(size=(30, dims))
    found = fisher_information(bank, points[:, 0] if dims == 1 else points)

    def of_item(item, at):
        slope = jax.jacfwd(lambda theta: item.natural(theta)[1:])(at)
        return slope.T @ item.variance(at) @ slope

    with precision("float64"):
        every = jax.vmap(jax.vmap(of_item, (None, 0)), (0, None))(model, points)
    expected = np.asarray(every).reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)
    if dims == 1:
        weights = rng.random(30)
        total = summed_information(bank, points[:, 0], weights)
        np.testing.assert_allclose(total, expected @ weights, rtol=1e-12)

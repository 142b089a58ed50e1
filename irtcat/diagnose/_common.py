"""Shared by the fit tests: coded data, nodes of the population, chi-square p-values, RMSEA."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.special import gammaincc

from irtcat._checks import argument_error
from irtcat._compile import jit
from irtcat._precision import precision
from irtcat._types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.models import CategoricalModel, as_points, filled, item_categories, probabilities
from irtcat.responses import Responses
from irtcat.scoring import match

__all__ = [
    "Coded",
    "chi_square_p",
    "coded",
    "complete_values",
    "curves",
    "item_index",
    "population_nodes",
    "rmsea",
]

MAX_Z = 6.4
"""The nodes of one ability end here, in SDs of the population."""
MAX_NODES = 1601
"""Most nodes of one ability."""
NODES_PER_AXIS = {2: 49, 3: 21}
"""Nodes per axis of the product rules by number of dimensions."""
N_SOBOL = 2**13
"""Points in more dimensions; a power of 2 keeps a Sobol sequence balanced."""


class Coded(NamedTuple):
    """Responses to items with categories.

    Attributes:
        bank: the items that are also in the responses.
        responses: the responses to these, in the bank's codes.
        values: subjects x items, codes 0..K-1, -1 where missing.
        categories: number of categories of each item.
    """

    bank: ItemBank
    responses: Responses
    values: np.ndarray
    categories: IntArray

    @property
    def complete(self) -> BoolArray:
        """Subjects who answered all items."""
        return np.asarray((self.values >= 0).all(axis=1))

    def constant(self) -> BoolArray:
        """Items with at most one category in use."""
        lowest = np.where(self.values >= 0, self.values, 127).min(axis=0)
        return np.asarray(lowest >= self.values.max(axis=0))


def coded(bank: Any, responses: Any, least_items: int = 1) -> Coded:
    """The responses to items of the bank, as category codes.

    Raises:
        InputError: for a bank whose items have no categories, fractions, responses that do not
            match the bank, too few items, or no responses.
    """
    if not isinstance(bank, ItemBank):
        raise argument_error("bank", "an ItemBank", type(bank).__name__, "Of a fit: fit.bank.")
    if not isinstance(responses, Responses):
        got = type(responses).__name__
        raise argument_error("responses", "Responses", got, "Use Responses.from_array.")
    if not isinstance(bank.model, CategoricalModel):
        must = "of items that are right/wrong or graded"
        raise argument_error("bank", must, f"a {bank.model.key} bank")
    if responses.is_fractional:
        raise argument_error("responses", "right/wrong or graded", "fractions")
    bank, matched = match(bank, responses)
    if bank.n_items < least_items:
        must = f"answers to at least {least_items} items of the bank"
        raise argument_error("responses", must, bank.n_items)
    values = np.asarray(matched.values)
    if not (values >= 0).any():
        raise argument_error("responses", "answers to items of the bank", "none: all are missing")
    return Coded(bank, matched, values, item_categories(bank.model))


def complete_values(data: Coded, test: str) -> np.ndarray:
    """The complete rows, for a test of this name.

    Raises:
        InputError: if there are fewer than 2.
    """
    complete = data.complete
    if complete.sum() < 2:
        must = f"of at least 2 subjects without missing answers: {test} needs complete rows"
        advice = "Pass the items that most subjects answered: responses.subset(items=...)."
        raise argument_error("responses", must, f"{int(complete.sum())} of {len(complete)}", advice)
    return data.values[complete]


def item_index(data: Coded) -> pd.Index:
    """The items as the index of a table."""
    return pd.Index(data.bank.item_ids, dtype=object, name="item")


def population_nodes(bank: ItemBank) -> tuple[FloatArray, FloatArray]:
    """Abilities (nodes x dims) and their weights (sum 1) in the bank's population.

    One dimension: a rectangle rule, with a spacing small against the posterior SD of a test of this
    length. Two or three: a product rule. More: Sobol points.
    """
    dims = bank.model.dims
    if dims == 1:
        count = int(np.clip(129 * np.ceil(np.sqrt(bank.n_items) / 8), 129, MAX_NODES)) | 1
        z = np.linspace(-MAX_Z, MAX_Z, count)[:, None]
    elif dims in NODES_PER_AXIS:
        axis = np.linspace(-6.0, 6.0, NODES_PER_AXIS[dims])
        z = np.stack(np.meshgrid(*[axis] * dims, indexing="ij"), -1).reshape(-1, dims)
    else:
        return _scaled(bank, _sobol(dims)), np.full(N_SOBOL, 1 / N_SOBOL)
    weights = np.exp(-0.5 * (z**2).sum(axis=1))
    return _scaled(bank, z), weights / weights.sum()


def _sobol(dims: int) -> FloatArray:
    """Independent standard normal points with low discrepancy."""
    from scipy.special import ndtri
    from scipy.stats import qmc  # slow to import

    points = qmc.Sobol(dims, seed=0).random(N_SOBOL)
    return ndtri(np.clip(points, 1e-9, 1 - 1e-9))


def _scaled(bank: ItemBank, z: FloatArray) -> FloatArray:
    """Independent standard normal points as abilities of the population."""
    if bank.correlations is not None:
        z = z @ np.linalg.cholesky(np.asarray(bank.correlations)).T
    return bank.population_mean + bank.population_sd * z


_probabilities = jit(probabilities)


def curves(bank: ItemBank, points: FloatArray) -> FloatArray:
    """Probabilities of all categories, items x nodes x categories."""
    with precision("float64"):
        nodes = as_points(jnp.asarray(points, float))
        return np.asarray(_probabilities(filled(bank.model), nodes))[: bank.n_items]


def chi_square_p(statistic: Any, df: Any) -> FloatArray:
    """Upper tail of the chi-square distribution; NaN without degrees of freedom."""
    x, degrees = np.broadcast_arrays(np.asarray(statistic, float), np.asarray(df, float))
    valid = (degrees > 0) & np.isfinite(x)
    p = gammaincc(np.where(valid, degrees, 1.0) / 2, np.where(valid, np.maximum(x, 0.0), 0.0) / 2)
    return np.where(valid, p, np.nan)


def rmsea(statistic: Any, df: Any, n: Any) -> FloatArray:
    """``sqrt(max(X2 / df - 1, 0) / (n - 1))``: misfit per degree of freedom, independent of n.

    NaN without degrees of freedom.
    """
    x, degrees, n = np.broadcast_arrays(*(np.asarray(v, float) for v in (statistic, df, n)))
    valid = (degrees > 0) & (n > 1)
    ratio = x / np.where(valid, degrees, 1.0)
    value = np.sqrt(np.maximum(ratio - 1, 0.0) / np.where(valid, n - 1, 1.0))
    return np.where(valid, value, np.nan)

"""Whether the parts of a bank fit together, and which items are meant."""

from typing import Any

import jax
import numpy as np
import pandas as pd

from irtcat._checks import argument_error
from irtcat._types import FloatArray, Ids
from irtcat.models import column_names

__all__ = ["item_names", "item_positions", "settled_parts"]


def settled_parts(bank: Any) -> dict[str, Any]:
    """The parts of a new bank that are kept in one form: ids, numbers, correlations, tables.

    Raises:
        InputError: where the parts do not fit together.
    """
    ids = np.asarray(bank.item_ids, dtype=str)
    sizes = {len(leaf) for leaf in jax.tree.leaves(bank.model)}
    if sizes != {len(ids)}:
        raise argument_error("item_ids", f"{max(sizes)} ids, as the model says", len(ids))
    if len(np.unique(ids)) != len(ids):
        repeated = pd.Index(ids)[pd.Index(ids).duplicated()].unique().tolist()
        raise argument_error("item_ids", "unique", repeated)
    if not (np.isfinite(bank.population_sd) and bank.population_sd > 0):
        raise argument_error("population_sd", "a finite number above 0", bank.population_sd)
    if not np.isfinite(bank.population_mean):
        raise argument_error("population_mean", "a finite number", bank.population_mean)
    shape = (len(ids), *[len(column_names(bank.model))] * 2)
    _check_shape("covariance", bank.covariance, shape)
    _check_shape("full_covariance", bank.full_covariance, (shape[0] * shape[1],) * 2)
    settled: dict[str, Any] = {
        name: float(getattr(bank, name)) for name in ("population_mean", "population_sd")
    }
    if bank.correlations is not None:
        settled["correlations"] = _correlations(bank.correlations, bank.model.dims)
    index = pd.Index(ids, dtype=object, name="item")
    for name in ("items", "statistics"):
        frame = getattr(bank, name)
        frame = pd.DataFrame(index=index) if frame.shape[1] == 0 else frame.set_axis(index)
        settled[name] = frame
    return {**settled, "item_ids": ids}


def _check_shape(name: str, covariance: FloatArray | None, shape: tuple[int, ...]) -> None:
    """Raise where a covariance is of another shape than the parameters make it."""
    if covariance is not None and np.shape(covariance) != shape:
        raise argument_error(name, f"of shape {shape}", np.shape(covariance))


def _correlations(value: Any, dims: int) -> FloatArray:
    """Correlations of several abilities, or one sentence on what is wrong with them."""
    matrix = np.asarray(value, float)
    good = (
        matrix.shape == (dims, dims)
        and np.isfinite(matrix).all()
        and np.allclose(matrix, matrix.T)
        and np.allclose(np.diagonal(matrix), 1)
        and np.linalg.eigvalsh(matrix)[0] > 0
    )
    if not good:
        raise argument_error("correlations", f"a {dims} x {dims} correlation matrix", matrix)
    return matrix


def item_positions(items: Any, ids: np.ndarray) -> np.ndarray:
    """Positions of ids, positions or a mask; unknown ids are refused by name."""
    wanted = np.asarray(items)
    if wanted.dtype == bool:
        if wanted.shape != (len(ids),):
            raise argument_error("items", f"a mask of {len(ids)} items", wanted.shape)
        return np.flatnonzero(wanted)
    if wanted.size == 0:
        return np.zeros(0, int)
    if np.issubdtype(wanted.dtype, np.integer):
        if wanted.min() < -len(ids) or wanted.max() >= len(ids):
            raise argument_error("items", f"positions below {len(ids)}", wanted.max())
        return wanted % len(ids)
    wanted = wanted.astype(str)
    at = pd.Index(ids).get_indexer(pd.Index(wanted))
    if (at < 0).any():
        raise argument_error("items", "ids of the bank", wanted[at < 0].tolist())
    return at


def item_names(item_ids: Ids | None, n: int) -> np.ndarray:
    """The ids given, or i1, i2, ...."""
    given = [f"i{i + 1}" for i in range(n)] if item_ids is None else item_ids
    return np.asarray(given, dtype=str)

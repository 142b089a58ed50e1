"""Checks of a bank's fields."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, is_unicode
from irtcat._common.types import FloatArray, Ids


def checked_ids(item_ids: Ids, sizes: set[int]) -> np.ndarray:
    """The ids of a bank as text, unique and as many as the items.

    Args:
        item_ids: the ids.
        sizes: the numbers of items of the arrays of the model, one if it is consistent.

    Raises:
        InputError: for other ids.
    """
    ids = np.asarray(item_ids, dtype=str)
    if not is_unicode(ids):
        raise argument_error("item_ids", "text without halves of characters", ids)
    if sizes != {len(ids)}:
        raise argument_error("item_ids", f"{max(sizes)} ids, as the model says", len(ids))
    if len(np.unique(ids)) != len(ids):
        repeated = pd.Index(ids)[pd.Index(ids).duplicated()].unique().tolist()
        raise argument_error("item_ids", "unique", repeated)
    return ids


def check_covariances(
    covariance: FloatArray | None, full_covariance: FloatArray | None, n_items: int, n_params: int
) -> None:
    """Raise where the shape of a covariance does not match the parameters."""
    shape = (n_items, n_params, n_params)
    _check_shape("covariance", covariance, shape)
    _check_shape("full_covariance", full_covariance, (n_items * n_params,) * 2)


def item_frame(frame: pd.DataFrame, ids: np.ndarray) -> pd.DataFrame:
    """A table of the items, indexed by their ids."""
    index = pd.Index(ids, dtype=object, name="item")
    return pd.DataFrame(index=index) if frame.shape[1] == 0 else frame.set_axis(index)


def checked_codes(codes: Iterable[int]) -> tuple[int, ...]:
    """Response codes as integers.

    Raises:
        InputError: unless they are consecutive whole numbers.
    """
    numbers = [float(code) for code in codes]
    first = int(numbers[0]) if numbers else 0
    if numbers != [first + k for k in range(len(numbers))]:
        raise argument_error("codes", "consecutive whole numbers", list(codes))
    return tuple(range(first, first + len(numbers)))


def checked_factors(factors: Iterable[str], dims: int) -> tuple[str, ...]:
    """The names of the abilities.

    Raises:
        InputError: unless there are none, or one per ability.
    """
    names = tuple(map(str, factors))
    if names and len(names) != dims:
        raise argument_error("factors", f"{dims} names, as many as abilities", list(names))
    return names


def _check_shape(name: str, covariance: FloatArray | None, shape: tuple[int, ...]) -> None:
    """Raise where the shape of a covariance does not match the parameters."""
    if covariance is not None and np.shape(covariance) != shape:
        raise argument_error(name, f"of shape {shape}", np.shape(covariance))


LIMITS = {"logit_lower": -np.inf, "logit_upper": np.inf}
"""Parameters that may be infinite, and that value: an asymptote of 0 or 1."""

MOST_ROWS = 1000
"""A covariance of more rows is not checked for negative eigenvalues: this would take minutes."""

ROUNDING = 1e-6
"""Tolerance of a correlation matrix for symmetry and positive semi-definiteness."""


def check_loaded(
    ids: np.ndarray,
    matrix: FloatArray,
    names: Sequence[str],
    settings: Mapping[str, np.ndarray],
    *,
    covariance: FloatArray | None,
    full_covariance: FloatArray | None,
    statistics: pd.DataFrame,
) -> None:
    """Reject a bank from a file whose values are impossible for calibrated items.

    A fit never makes such a bank, so that only banks from files are checked.

    Args:
        ids: the items' ids.
        matrix: the parameters, items x params.
        names: their names.
        settings: the fixed numbers of the items, by name.
        covariance: of each item's parameters.
        full_covariance: of all parameters together.
        statistics: of the items, indexed by their ids.

    Raises:
        InputError: naming the item or the field.
    """
    if any(not str(item).strip() or "\0" in str(item) for item in ids):
        raise argument_error("item_ids", "ids, none of them empty or with a zero byte", ids)
    for column, name in enumerate(names):
        bad = ~(np.isfinite(matrix[:, column]) | (matrix[:, column] == LIMITS.get(name, 0.0)))
        if bad.any():
            item = int(np.argmax(bad))
            got = f"{name} = {matrix[item, column]:g} for item {ids[item]}"
            raise argument_error("parameters", "finite numbers", got)
    if {"logit_lower", "logit_upper"} <= set(names):
        lower, upper = (matrix[:, names.index(name)] for name in LIMITS)
        if (lower >= upper).any():
            must = "lower asymptotes below the upper ones"
            raise argument_error("parameters", must, f"others for item {ids[lower >= upper][0]}")
    _check_settings(settings, len(ids))
    if covariance is not None:
        _check_covariance("covariance", covariance, ids)
    if full_covariance is not None:
        _check_covariance("full_covariance", full_covariance[None], ["all items"])
    _check_statistics(statistics)


def _check_settings(settings: Mapping[str, np.ndarray], n: int) -> None:
    """The fixed numbers of the items: numbers of trials, margins."""
    for name, value in settings.items():
        good = {
            "trials": (value >= 1) & (value == np.rint(value)),
            "edge": (value > 0) & (value < 0.5),
        }.get(name, value >= 0)
        if value.shape != (n,) or not np.all(good):
            raise argument_error(f"setting_{name}", f"{name} of {n} items", value)


def _check_covariance(name: str, covariance: FloatArray, ids: Any) -> None:
    """Symmetric, positive semi-definite blocks; rows of NaN are parameters not estimated."""
    if covariance.dtype.kind != "f":
        raise argument_error(name, "of floating point numbers", covariance.dtype)
    variances = np.diagonal(covariance, axis1=1, axis2=2)
    unknown = np.isnan(variances)
    there = ~(unknown[:, :, None] | unknown[:, None, :])
    sd = np.sqrt(np.where(variances > 0, variances, 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        correlations = np.where(there, covariance, 0.0) / (sd[:, :, None] * sd[:, None, :])
    bad = (np.nan_to_num(variances) < 0).any(axis=1)
    bad |= (there & ~np.isfinite(correlations)).any(axis=(1, 2))
    bad |= (np.abs(np.nan_to_num(correlations)) > 1 + ROUNDING).any(axis=(1, 2))
    asymmetry = np.abs(correlations - correlations.transpose(0, 2, 1))
    bad |= (np.nan_to_num(asymmetry) > ROUNDING).any(axis=(1, 2))
    if not bad.any() and 0 < correlations.shape[1] <= MOST_ROWS:
        bad = np.linalg.eigvalsh(correlations)[:, 0] < -ROUNDING * correlations.shape[1]
    if bad.any():
        must = "symmetric and positive semi-definite"
        raise argument_error(name, must, f"another of {ids[int(np.argmax(bad))]}")


def _check_statistics(statistics: pd.DataFrame) -> None:
    """Counts and shares of the calibration data, where there are some."""
    for name, most in (("n_responses", np.inf), ("proportion_correct", 1.0)):
        if name not in statistics:
            continue
        values = statistics[name]
        numbers = pd.to_numeric(values, errors="coerce")
        bad = (numbers.isna() & values.notna()) | (numbers < 0) | (numbers > most)
        if bad.any():
            got = f"{values[bad].iloc[0]} for item {values.index[bad][0]}"
            raise argument_error(name, "a number of at least 0 (a share: to 1)", got)


def item_names(item_ids: Ids | None, n: int) -> np.ndarray:
    """The ids as an array; by default i1, i2, ...."""
    names = [f"i{i + 1}" for i in range(n)] if item_ids is None else item_ids
    return np.asarray(names, dtype=str)

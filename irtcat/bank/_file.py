"""The format of bank files: a zip of ``.npy`` arrays, one of them a JSON text.

Read here as plain arrays and tables, without the item models; `irtcat.ItemBank` has the rest.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, is_unicode
from irtcat._common.types import FloatArray, Ids
from irtcat._files.archives import array_file
from irtcat._files.formats import FileFormat
from irtcat._files.reading import opened
from irtcat.bank.item_states import checked_states
from irtcat.bank.population import as_populations, populations_from_json

BANK = FileFormat("irtcat-bank", "an item bank", "Give a file that ItemBank.save wrote.")


def read_arrays(
    source: str | os.PathLike[str] | bytes, path: Any, max_bytes: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON part of a bank file, and the arrays that it lists; nothing else is unpacked."""

    def error(why: str) -> InputError:
        return damaged(path, why)

    if is_text(source):
        raise InputError(
            f"{path}: expected an item bank (.npz), as irtcat fit and ItemBank.save write it. Got "
            "text. If it has item parameters, irtcat import (irtcat.io.read_parameters) makes a "
            "bank of it; if it has responses, calibrate them with irtcat fit."
        )
    with array_file(source, error, max_bytes, path) as archive:
        if not {"meta", "parameters"} <= set(archive.names):
            raise InputError(
                f"{path}: this is not an item bank (no `meta` and `parameters` in it)."
            )
        meta = archive.document("meta", BANK)
        names = set(archive.names) - {"meta"}
        if meta.get("arrays") != sorted(names):
            raise error("its arrays are not those it lists")
        return meta, archive.read(*sorted(names))


def is_text(source: str | os.PathLike[str] | bytes) -> bool:
    """Whether a file is text, as tables and JSON are, and no archive."""
    try:
        if isinstance(source, bytes):
            head = source[:TEXT_BYTES]
        else:
            with opened(source) as file:
                head = file.read(TEXT_BYTES)
    except InputError:  # the reader says why
        return False
    return bool(head.strip()) and NOT_TEXT.search(head) is None


TEXT_BYTES = 4096
"""Bytes that distinguish text from an archive, which has zero bytes in its first header."""
NOT_TEXT = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def settings_in(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The fixed numbers of the items in a bank file, by name."""
    start = "setting_"
    return {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}


def damaged(path: str | os.PathLike[str], why: str) -> InputError:
    """The error for a bank file that cannot be used."""
    return InputError(f"{path}: the bank file is damaged: {why}. Take a copy or calibrate again.")


def read_fields(
    meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, Any]]:
    """The matrix of parameters of a bank file, and the fields of the bank besides its model.

    Raises:
        ValueError: or KeyError, TypeError, ... where the parts do not fit together.
    """
    matrix, ids = arrays["parameters"], arrays["item_ids"]
    n_names = len(tuple(meta["parameter_names"]))
    if matrix.ndim != 2 or matrix.shape[1] != n_names or matrix.dtype.kind != "f":
        raise ValueError("parameters")
    if ids.shape != (len(matrix),) or ids.dtype.kind != "U":
        raise ValueError("item ids")
    for name, kind in (("provenance", dict), ("structure", str)):
        if not isinstance(meta[name], kind):
            raise ValueError(name)
    for name, each in (("codes", int), ("factors", str)):
        if not all(isinstance(value, each) for value in meta[name]):
            raise ValueError(name)
    return np.ascontiguousarray(matrix, float), {
        "item_ids": ids,
        "populations": populations_from_json(meta["populations"]),
        "covariance": arrays.get("covariance"),
        "items": _frame("items", meta["items"], len(ids)),
        "statistics": _frame("statistics", meta["statistics"], len(ids)),
        "provenance": meta["provenance"],
        "full_covariance": arrays.get("full_covariance"),
        "codes": tuple(meta["codes"]),
        "structure": meta["structure"],
        "factors": tuple(meta["factors"]),
    }


def _frame(name: str, columns: Any, n: int) -> pd.DataFrame:
    """A table of the items; each column has a value for every item."""
    if not isinstance(columns, dict):
        raise ValueError(name)
    for column, values in columns.items():
        if not isinstance(values, list) or len(values) != n:
            raise ValueError(f"the column {column} of {name} must have {n} values")
    return pd.DataFrame(columns)


def checked_fields(
    fields: Mapping[str, Any], sizes: set[int], n_params: int, dims: int
) -> dict[str, Any]:
    """The fields of a bank in standard form, if they are consistent.

    Args:
        fields: the fields by name.
        sizes: the numbers of items of the arrays of the model, one if it is consistent.
        n_params: number of parameters of an item.
        dims: number of abilities.

    Raises:
        InputError: naming the field that is not.
    """
    ids = _checked_ids(fields["item_ids"], sizes)
    size = len(ids) * n_params
    _check_shape("covariance", fields["covariance"], (len(ids), n_params, n_params))
    _check_shape("full_covariance", fields["full_covariance"], (size, size))
    return {
        "item_ids": ids,
        "populations": as_populations(fields["populations"], dims),
        "items": _item_frame(fields["items"], ids),
        "statistics": checked_states(_item_frame(fields["statistics"], ids)),
        "codes": _checked_codes(fields["codes"]),
        "factors": _checked_factors(fields["factors"], dims),
    }


def _checked_ids(item_ids: Ids, sizes: set[int]) -> np.ndarray:
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


def _check_shape(name: str, covariance: FloatArray | None, shape: tuple[int, ...]) -> None:
    """Raise where the shape of a covariance does not match the parameters."""
    if covariance is not None and np.shape(covariance) != shape:
        raise argument_error(name, f"of shape {shape}", np.shape(covariance))


def _item_frame(frame: pd.DataFrame, ids: np.ndarray) -> pd.DataFrame:
    """A table of the items, indexed by their ids."""
    index = pd.Index(ids, dtype=object, name="item")
    return pd.DataFrame(index=index) if frame.shape[1] == 0 else frame.set_axis(index)


def _checked_codes(codes: Iterable[int]) -> tuple[int, ...]:
    """Response codes as integers.

    Raises:
        InputError: unless they are consecutive whole numbers.
    """
    numbers = [float(code) for code in codes]
    first = int(numbers[0]) if numbers else 0
    if numbers != [first + k for k in range(len(numbers))]:
        raise argument_error("codes", "consecutive whole numbers", list(codes))
    return tuple(range(first, first + len(numbers)))


def _checked_factors(factors: Iterable[str], dims: int) -> tuple[str, ...]:
    """The names of the abilities.

    Raises:
        InputError: unless there are none, or one per ability.
    """
    names = tuple(map(str, factors))
    if names and len(names) != dims:
        raise argument_error("factors", f"{dims} names, as many as abilities", list(names))
    return names


LIMITS = {"logit_lower": -np.inf, "logit_upper": np.inf}
"""Parameters that may be infinite, and that value: an asymptote of 0 or 1."""

MOST_ROWS = 1000
"""A covariance of more rows is not checked for negative eigenvalues: this would take minutes."""

ROUNDING = 1e-6
"""Tolerance of a correlation matrix for symmetry and positive semi-definiteness."""


def check_loaded(
    fields: Mapping[str, Any],
    matrix: FloatArray,
    names: Sequence[str],
    settings: Mapping[str, np.ndarray],
) -> None:
    """Reject a bank from a file whose values are impossible for calibrated items.

    A fit never makes such a bank, so that only banks from files are checked.

    Args:
        fields: the fields of the bank (see `checked_fields`).
        matrix: the parameters, items x params.
        names: their names.
        settings: the fixed numbers of the items, by name.

    Raises:
        InputError: naming the item or the field.
    """
    ids = fields["item_ids"]
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
    if fields["covariance"] is not None:
        _check_covariance("covariance", fields["covariance"], ids)
    if fields["full_covariance"] is not None:
        _check_covariance("full_covariance", fields["full_covariance"][None], ["all items"])
    _check_statistics(fields["statistics"])


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

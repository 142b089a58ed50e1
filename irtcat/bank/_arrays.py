"""The design of items as arrays of a bank file, and back (see `bank._file`)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from irtcat._common.types import FloatArray
from irtcat.models import Design, ItemModel, column_names, design_of, model_from_key, unpack


def model_of(
    matrix: FloatArray, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> ItemModel:
    """The items of a bank file.

    Raises:
        ValueError: or KeyError, TypeError, ... where the parts do not fit together.
    """
    blank = model_from_key(meta["model"]).blank(_design(matrix, meta, arrays))
    if tuple(meta["parameter_names"]) != column_names(blank):
        raise ValueError("parameter names")
    return unpack(blank, matrix)


def design_arrays(model: ItemModel) -> dict[str, np.ndarray]:
    """Arrays of a bank file for the design of the items: settings and numbers of categories."""
    design = design_of(model)
    arrays = {f"setting_{name}": value for name, value in design.settings.items()}
    if (design.categories != 2).any():
        arrays["categories"] = design.categories
    return arrays


def _design(
    matrix: FloatArray, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Design:
    """Undo `design_arrays`; the model checks the shapes of its own settings."""
    n, start = len(matrix), "setting_"
    settings = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
    categories = arrays.get("categories", np.full(n, 2))
    if categories.dtype.kind not in "iu" or categories.shape != (n,):
        raise ValueError("categories")
    top, dims = meta["n_categories"], meta["dims"]
    if not isinstance(top, int) or not 2 <= top <= 127:
        raise ValueError("n_categories")
    if ((categories < 2) | (categories > top)).any():
        raise ValueError("categories")
    if not isinstance(dims, int) or dims not in range(1, matrix.shape[1] + 1):
        raise ValueError("dims")
    for name, value in settings.items():
        if (
            value.dtype.kind not in "biuf"
            or value.shape[:1] != (n,)
            or not np.isfinite(value).all()
        ):
            raise ValueError(f"setting {name}")
    return Design(categories.astype(int), dims, settings, top)

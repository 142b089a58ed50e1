"""A bank as the arrays of its file, and back (see `bank._file`)."""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from irtcat._common.types import FloatArray
from irtcat._files.json import json_text
from irtcat.bank._checks import check_loaded
from irtcat.bank._file import BANK, damaged, read_arrays, read_fields
from irtcat.models import (
    Design,
    ItemModel,
    column_names,
    design_of,
    model_from_key,
    parameter_matrix,
    unpack,
)


def bank_arrays(
    bank: Any,
    more_meta: Mapping[str, Any] = MappingProxyType({}),
    more_arrays: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> dict[str, np.ndarray]:
    """The arrays that a bank consists of, with more of a file."""
    meta = {
        **more_meta,
        **BANK.head,
        "model": bank.model.key,
        "parameter_names": column_names(bank.model),
        "dims": bank.model.dims,
        "n_categories": bank.model.n_categories,
        "populations": bank.populations,
        "items": bank.items,
        "statistics": bank.statistics,
        "provenance": bank.provenance,
    }
    arrays = {
        "item_ids": bank.item_ids,
        "parameters": bank.parameters(),
        **_design_arrays(bank.model),
        **more_arrays,
    }
    for name in ("covariance", "full_covariance"):
        if getattr(bank, name) is not None:
            arrays[name] = getattr(bank, name)
    arrays["meta"] = np.array(json_text({**meta, "arrays": sorted(arrays)}))
    return arrays


def bank_hash(bank: Any) -> str:
    """SHA-256 of a bank's contents, in hexadecimal: identifies the bank of a session."""
    digest = hashlib.sha256()
    for name, array in sorted(bank_arrays(bank).items()):
        value = np.ascontiguousarray(array)
        digest.update(f"{name} {value.dtype.str} {value.shape} ".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def read_parts(cls: Any, source: Any, path: Any, max_bytes: int) -> Any:
    """The bank in a file or its contents, built by ``cls`` (see `irtcat.ItemBank.load`)."""
    meta, arrays = read_arrays(source, path, max_bytes)
    try:
        matrix, fields = read_fields(meta, arrays)
        blank = model_from_key(meta["model"]).blank(_design(matrix, meta, arrays))
        if tuple(meta["parameter_names"]) != column_names(blank):
            raise ValueError("parameter names")
        model = unpack(blank, matrix)
        bank = cls(model=model, **fields)
        check_loaded(bank, parameter_matrix(model), column_names(model), design_of(model).settings)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise damaged(path, f"its parts do not fit together ({error})") from None
    return bank


def _design_arrays(model: ItemModel) -> dict[str, np.ndarray]:
    """Arrays of a bank file for the design of the items: settings and numbers of categories."""
    design = design_of(model)
    arrays = {f"setting_{name}": value for name, value in design.settings.items()}
    if (design.categories != 2).any():
        arrays["categories"] = design.categories
    return arrays


def _design(
    matrix: FloatArray, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Design:
    """Undo `_design_arrays`; the model checks the shapes of its own settings."""
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
    if not isinstance(dims, int) or not 1 <= dims <= matrix.shape[1]:
        raise ValueError("dims")
    for name, value in settings.items():
        if (
            value.dtype.kind not in "biuf"
            or value.shape[:1] != (n,)
            or not np.isfinite(value).all()
        ):
            raise ValueError(f"setting {name}")
    return Design(categories.astype(int), dims, settings, top)

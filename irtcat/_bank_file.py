"""The format of bank files: a zip of ``.npy`` arrays, one of them a JSON text."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._archives import array_file
from irtcat._bank_checks import check_loaded
from irtcat._checks import InputError
from irtcat._reading import MOST_BYTES, parse_json
from irtcat._types import FloatArray
from irtcat.models import Design, ItemModel, column_names, design_of, model_from_key, unpack

__all__ = ["FORMAT", "VERSION", "bank_arrays", "bank_hash", "damaged", "read_parts"]

FORMAT = "irtcat-bank"
VERSION = 1


def read_arrays(path: Path, max_bytes: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON part of a bank file, and the arrays that it lists; nothing else is unpacked."""

    def error(why: str) -> InputError:
        return damaged(path, why)

    with array_file(path, error, max_bytes) as archive:
        if not {"meta", "parameters"} <= set(archive.names):
            raise InputError(
                f"{path}: this is not an item bank (no `meta` and `parameters` in it)."
            )
        meta = read_meta(archive["meta"], path)
        names = set(archive.names) - {"meta"}
        if meta.get("arrays") != sorted(names):
            raise error("its arrays are not those it lists")
        return meta, archive.read(*sorted(names))


def read_meta(text: np.ndarray, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON part of a bank file, with format and version checked."""
    if text.shape != () or text.dtype.kind != "U":
        raise damaged(path, "its description is not text")
    try:
        meta = parse_json(str(text).encode("utf-8", "replace"), str(path), MOST_BYTES)
    except InputError:
        raise damaged(path, "its description is not JSON") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise InputError(f"{path}: this is not an item bank (its format is not {FORMAT!r}).")
    version = meta.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise damaged(path, f"its format version is {version!r}")
    if version > VERSION:
        raise InputError(
            f"{path}: the bank is of format version {version}; this irtcat reads up to {VERSION}."
            " Upgrade irtcat to read it."
        )
    return meta


def damaged(path: str | os.PathLike[str], why: str) -> InputError:
    """The error for a bank file that cannot be used."""
    return InputError(f"{path}: the bank file is damaged: {why}. Take a copy or calibrate again.")


def frame_to_json(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Columns as plain lists; NaN becomes null."""
    return {str(name): plain(column.tolist()) for name, column in frame.items()}


def plain(value: Any) -> Any:
    """Convert to the numbers, strings, lists and mappings of JSON."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def bank_arrays(bank: Any) -> dict[str, np.ndarray]:
    """The arrays of a bank file (see `irtcat.ItemBank.save`)."""
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "model": bank.model.key,
        "parameter_names": column_names(bank.model),
        "dims": bank.model.dims,
        "n_categories": bank.model.n_categories,
        "population": {"mean": bank.population_mean, "sd": bank.population_sd},
        "items": frame_to_json(bank.items),
        "statistics": frame_to_json(bank.statistics),
        "provenance": plain(dict(bank.provenance)),
    }
    arrays = {
        "item_ids": bank.item_ids,
        "parameters": bank.parameters(),
        **_design_arrays(bank.model),
    }
    for name in ("covariance", "correlations", "full_covariance"):
        if getattr(bank, name) is not None:
            arrays[name] = getattr(bank, name)
    arrays["meta"] = np.array(json.dumps({**meta, "arrays": sorted(arrays)}))
    return arrays


def bank_hash(bank: Any) -> str:
    """SHA-256 of a bank's contents, in hexadecimal: identifies the bank of a session."""
    digest = hashlib.sha256()
    for name, array in sorted(bank_arrays(bank).items()):
        value = np.ascontiguousarray(array)
        digest.update(f"{name} {value.dtype.str} {value.shape} ".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def read_parts(cls: Any, path: Path, max_bytes: int) -> Any:
    """The bank in a file, built by ``cls`` (see `irtcat.ItemBank.load`)."""
    meta, arrays = read_arrays(path, max_bytes)
    try:
        names = tuple(meta["parameter_names"])
        model_class = model_from_key(meta["model"])
        matrix, ids = arrays["parameters"], arrays["item_ids"]
        if matrix.ndim != 2 or matrix.shape[1] != len(names) or matrix.dtype.kind != "f":
            raise ValueError("parameters")
        if ids.shape != (len(matrix),) or ids.dtype.kind != "U":
            raise ValueError("item ids")
        if not isinstance(meta["provenance"], dict):
            raise ValueError("provenance")
        blank = model_class.blank(_design(matrix, meta, arrays))
        if names != column_names(blank):
            raise ValueError("parameter names")
        model = unpack(blank, np.ascontiguousarray(matrix, float))
        population = meta["population"]
        bank = cls(
            model=model,
            item_ids=ids,
            population_mean=float(population["mean"]),
            population_sd=float(population["sd"]),
            covariance=arrays.get("covariance"),
            items=_frame("items", meta["items"], len(ids)),
            statistics=_frame("statistics", meta["statistics"], len(ids)),
            provenance=meta["provenance"],
            correlations=arrays.get("correlations"),
            full_covariance=arrays.get("full_covariance"),
        )
        check_loaded(bank)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise damaged(path, f"its parts do not fit together ({error})") from None
    return bank


def _frame(name: str, columns: Any, n: int) -> pd.DataFrame:
    """A table of the items; each column has a value for every item."""
    if not isinstance(columns, dict):
        raise ValueError(name)
    for column, values in columns.items():
        if not isinstance(values, list) or len(values) != n:
            raise ValueError(f"the column {column} of {name} must have {n} values")
    return pd.DataFrame(columns)


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
    top, dims = meta.get("n_categories", 2), meta.get("dims", 1)
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

"""The inside of a bank file: a zip of ``.npy`` arrays, one of them a JSON text."""

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError
from irtcat._types import FloatArray
from irtcat.models import Design, ItemModel, column_names, design_of, known_model, unpack

__all__ = ["FORMAT", "VERSION", "bank_arrays", "bank_hash", "damaged", "read_parts"]

FORMAT = "irtcat-bank"
VERSION = 1
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading a damaged zip of arrays may raise."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a bank file, or one sentence on why they cannot be read."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Write a bank with `bank.save(path)`.")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty. Take a copy or calibrate again.")
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            return {name: _read_array(archive.read(f"{name}.npy")) for name in names}
    except UNREADABLE as error:
        raise damaged(path, f"it cannot be read ({type(error).__name__})") from None


def _read_array(data: bytes) -> np.ndarray:
    """One array of the file; bytes that are none raise ValueError."""
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def read_meta(arrays: Mapping[str, np.ndarray], path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON part of a bank file, with format and version checked."""
    if "meta" not in arrays or "parameters" not in arrays:
        raise InputError(f"{path}: this is not an item bank (no `meta` and `parameters` in it).")
    try:
        meta = json.loads(str(arrays["meta"][()]))
    except json.JSONDecodeError:
        raise damaged(path, "its description is not JSON") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise InputError(f"{path}: this is not an item bank (its format is not {FORMAT!r}).")
    if set(meta.get("arrays", set(arrays) - {"meta"})) != set(arrays) - {"meta"}:
        raise damaged(path, "its arrays are not those it lists")
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
    """Numbers, texts, lists and mappings that JSON knows."""
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
    """All that a bank file holds (see `irtcat.ItemBank.save`)."""
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
    """SHA-256 of a bank's contents, in hexadecimal: what sessions are frozen by."""
    digest = hashlib.sha256()
    for name, array in sorted(bank_arrays(bank).items()):
        value = np.ascontiguousarray(array)
        digest.update(f"{name} {value.dtype.str} {value.shape} ".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def read_parts(cls: Any, path: Path) -> Any:
    """The bank in a file, built by ``cls`` (see `irtcat.ItemBank.load`)."""
    arrays = read_arrays(path)
    meta = read_meta(arrays, path)
    try:
        names = tuple(meta["parameter_names"])
        model_class = known_model(meta["model"])
        matrix = np.asarray(arrays["parameters"], float)
        if matrix.ndim != 2 or matrix.shape[1] != len(names) or np.isnan(matrix).any():
            raise ValueError("parameters")
        covariance = arrays.get("covariance")
        if covariance is not None and covariance.dtype.kind != "f":
            raise ValueError("covariance")
        if not isinstance(meta["provenance"], dict):
            raise ValueError("provenance")
        blank = model_class.blank(_design(matrix, meta, arrays))
        if names != column_names(blank):
            raise ValueError("parameter names")
        model = unpack(blank, np.ascontiguousarray(matrix))
        population = meta["population"]
        return cls(
            model,
            arrays["item_ids"],
            float(population["mean"]),
            float(population["sd"]),
            covariance,
            pd.DataFrame(meta["items"]),
            pd.DataFrame(meta["statistics"]),
            meta["provenance"],
            arrays.get("correlations"),
            arrays.get("full_covariance"),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise damaged(path, f"its parts do not fit together ({error})") from None


def _design_arrays(model: ItemModel) -> dict[str, np.ndarray]:
    """Arrays of a bank file that say what the items are like beside their parameters."""
    design = design_of(model)
    arrays = {f"setting_{name}": value for name, value in design.settings.items()}
    if (design.categories != 2).any():
        arrays["categories"] = design.categories
    return arrays


def _design(
    matrix: FloatArray, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Design:
    """Undo `_design_arrays`."""
    categories = arrays.get("categories", np.full(len(matrix), 2)).astype(int)
    if categories.shape != (len(matrix),) or (categories < 2).any():
        raise ValueError("categories")
    start = "setting_"
    settings = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
    top = int(meta.get("n_categories", 2))
    if top > 127 or top < 2:
        raise ValueError("n_categories")
    return Design(categories, int(meta.get("dims", 1)), settings, top)

"""The format of bank files: a zip of ``.npy`` arrays, one of them a JSON text.

Read here as plain arrays and tables, without the item models; `irtcat.ItemBank` has the rest.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError
from irtcat._files.archives import array_file
from irtcat._files.formats import FileFormat
from irtcat._files.reading import opened
from irtcat.bank.population import populations_from_json

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
    if not isinstance(meta["provenance"], dict):
        raise ValueError("provenance")
    if not isinstance(meta["structure"], str):
        raise ValueError("structure")
    if not all(isinstance(code, int) for code in meta["codes"]):
        raise ValueError("codes")
    if not all(isinstance(name, str) for name in meta["factors"]):
        raise ValueError("factors")
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

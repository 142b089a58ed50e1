"""Predictions made elsewhere: arrays, or files with one member each."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._archives import read_npy
from irtcat._checks import InputError, argument_error, check_unique
from irtcat._types import FloatArray, IntArray
from irtcat.io._text import column_numbers, read_table
from irtcat.training._learners import NONE, TOLERANCE, encode, gold_of

__all__ = ["Told", "read_predictions"]


class Told(NamedTuple):
    """What the members say.

    Attributes:
        names: ids of the members.
        predictions: members x items, numbers of labels.
        trained: members x items, whether the member was trained on the item.
        gold: members x items, probability of each item's label, or None.
        every: members x items x classes, or None.
    """

    names: np.ndarray
    predictions: IntArray
    trained: np.ndarray
    gold: FloatArray | None
    every: FloatArray | None


def read_predictions(given: Any, labels: IntArray, classes: np.ndarray, ids: np.ndarray) -> Told:
    """Members' predictions of an array or of files.

    Raises:
        InputError: see `irtcat.training.crowd.from_predictions`.
    """
    files = given if isinstance(given, (list, tuple)) else []
    if files and all(isinstance(each, (str, os.PathLike)) for each in files):
        return _of_files([Path(each) for each in files], labels, classes, ids)
    array = np.asarray(given if isinstance(given, np.ndarray) else _objects(given))
    n = len(labels)
    if array.ndim not in (2, 3) or array.shape[1] != n or not len(array):
        raise argument_error("predictions", f"members x {n} items", f"shape {array.shape}")
    names = np.array([f"m{i + 1}" for i in range(len(array))], dtype=object)
    trained = np.zeros(array.shape[:2], bool)
    if array.ndim == 2:
        codes = np.stack([encode(row, classes, n) for row in array])
        return Told(names, codes, trained, None, None)
    every, codes = _probabilities(array, classes)
    gold = np.stack([gold_of(each, labels) for each in every])
    return Told(names, codes, trained, gold, every)


def _objects(given: Any) -> np.ndarray:
    """Nested lists without numpy's turning numbers beside text into text."""
    try:
        array = np.asarray(given)
        return np.asarray(given, dtype=object) if array.dtype.kind in "USO" else array
    except ValueError:
        raise argument_error("predictions", "rows of equal length", "others") from None


def _probabilities(array: np.ndarray, classes: np.ndarray) -> tuple[FloatArray, IntArray]:
    """Probabilities (... x classes) and the likeliest labels; rows with NaN are missing."""
    if array.shape[-1] != len(classes):
        raise argument_error("predictions", f"of {len(classes)} classes", f"{array.shape[-1]}")
    if array.dtype.kind not in "biufO":
        raise argument_error("predictions", "probabilities from 0 to 1", array.dtype)
    try:
        every = array.astype(np.float32)
    except (TypeError, ValueError):
        raise argument_error("predictions", "probabilities from 0 to 1", "other things") from None
    absent = np.isnan(every).any(axis=-1)
    bad = ((every < -TOLERANCE) | (every > 1 + TOLERANCE)).any()
    if bad:
        got = f"{np.nanmin(every):g} to {np.nanmax(every):g}"
        raise argument_error("predictions", "probabilities from 0 to 1", got)
    every[absent] = np.nan
    codes = np.where(absent, NONE, np.nan_to_num(every).argmax(axis=-1))
    return every, codes.astype(np.int32)


def _of_files(
    paths: Sequence[Path], labels: IntArray, classes: np.ndarray, ids: np.ndarray
) -> Told:
    """One member a file."""
    names = np.array([path.stem for path in paths], dtype=object)
    check_unique("predictions", names)
    n, shape = len(labels), (len(paths), len(labels))
    codes, trained = np.full(shape, NONE, np.int32), np.zeros(shape, bool)
    gold = np.full(shape, np.nan, np.float32)
    for row, path in enumerate(paths):
        try:
            if path.suffix.lower() == ".npy":
                array = read_npy(path)
                if array.ndim == 1:
                    codes[row] = encode(array, classes, n)
                elif array.ndim == 2 and len(array) == n:
                    every, codes[row] = _probabilities(array, classes)
                    gold[row] = gold_of(every, labels)
                else:
                    raise argument_error("predictions", f"of {n} items", f"shape {array.shape}")
            elif path.suffix.lower() == ".csv":
                codes[row], gold[row], trained[row] = _table(path, classes, ids)
            else:
                raise argument_error("predictions", "files ending in .npy or .csv", path.name)
        except InputError as error:
            text = str(error)
            raise InputError(text if str(path) in text else f"{path}: {text}") from None
    return Told(names, codes, trained, None if np.isnan(gold).all() else gold, None)


def _table(
    path: Path, classes: np.ndarray, ids: np.ndarray
) -> tuple[IntArray, FloatArray, np.ndarray]:
    """Predictions, probabilities and who was trained on, of a CSV table; absent items missing."""
    frame = read_table(path, text=("item", "prediction"))
    if not {"item", "prediction"} <= set(frame):
        raise argument_error("predictions", "a table with item and prediction", list(frame))
    if not len(frame):
        raise argument_error("predictions", "a table with rows", "a header alone")
    if frame["item"].duplicated().any():
        raise argument_error("predictions", "one row per item", frame["item"].mode()[0])
    at = pd.Index(ids).get_indexer(pd.Index(frame["item"]))
    if (at < 0).any():
        raise argument_error("predictions", "of the items", frame.loc[at < 0, "item"].iloc[0])
    codes = np.full(len(ids), NONE, np.int32)
    text = frame["prediction"].to_numpy(object)
    told = encode(text, classes.astype(str), len(text))
    codes[at] = np.where(text == "", NONE, told)
    gold, trained = np.full(len(ids), np.nan, np.float32), np.zeros(len(ids), bool)
    if "probability" in frame:
        gold[at] = _column(frame, "probability", "probabilities from 0 to 1, or empty")
    if "trained" in frame:
        known = _column(frame, "trained", "trained 0 or 1, or empty")
        if not np.isin(known, (0, 1))[~np.isnan(known)].all():
            raise argument_error("predictions", "trained 0 or 1, or empty", "others")
        trained[at] = known == 1
    return codes, gold, trained


def _column(frame: pd.DataFrame, name: str, must: str) -> FloatArray:
    """Numbers from 0 to 1 of a column; NaN where it is empty."""
    text = frame[name].astype(str).replace({"True": "1", "False": "0", "nan": ""})
    numbers = column_numbers(text)
    bad = (numbers < 0) | (numbers > 1)
    if bad.any():
        got = f"{text[bad].iloc[0]!r} for {frame.loc[bad, 'item'].iloc[0]}"
        raise argument_error("predictions", must, got)
    return numbers

"""External predictions: arrays, or files with one member each."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_unique
from irtcat._common.positions import positions_of_ids
from irtcat._common.types import FloatArray, IntArray
from irtcat._files.archives import read_npy
from irtcat.io.text import column_numbers, read_table
from irtcat.training.learners import NONE, OTHER, TOLERANCE, encode, gold_of

MAX_OFF = 0.01
"""Float16 probabilities of a thousand classes sum to 1 within this."""


class Predictions(NamedTuple):
    """The members' predictions.

    Attributes:
        names: ids of the members.
        predictions: members x items, codes of labels.
        trained: members x items, whether the member was trained on the item.
        gold: members x items, probability of each item's label, or None.
        probabilities: members x items x classes, or None.
    """

    names: np.ndarray
    predictions: IntArray
    trained: np.ndarray
    gold: FloatArray | None
    probabilities: FloatArray | None


def read_predictions(
    source: Any, labels: IntArray, classes: np.ndarray, ids: np.ndarray
) -> Predictions:
    """Members' predictions from an array or from files.

    Raises:
        InputError: see `irtcat.training.crowd.from_predictions`.
    """
    files = source if isinstance(source, (list, tuple)) else []
    if files and all(isinstance(file, (str, os.PathLike)) for file in files):
        return _from_files([Path(file) for file in files], labels, classes, ids)
    array = np.asarray(source if isinstance(source, np.ndarray) else _objects(source))
    n = len(labels)
    if array.ndim not in (2, 3) or array.shape[1] != n or not len(array):
        raise argument_error("predictions", f"members x {n} items", f"shape {array.shape}")
    names = np.array([f"m{i + 1}" for i in range(len(array))], dtype=object)
    trained = np.zeros(array.shape[:2], bool)
    if array.ndim == 2:
        codes = np.stack([encode(row, classes, n) for row in array])
        return Predictions(names, codes, trained, None, None)
    probabilities, codes = _probabilities(array, classes)
    gold = np.stack([gold_of(member, labels) for member in probabilities])
    return Predictions(names, codes, trained, gold, probabilities)


def class_probabilities(name: str, array: np.ndarray) -> FloatArray:
    """Probabilities of classes (last axis), in single precision.

    Raises:
        InputError: for numbers out of range, or that do not sum to 1.
    """
    if array.dtype.kind not in "biufO":
        raise argument_error(name, "probabilities from 0 to 1", array.dtype)
    try:
        probabilities = array.astype(np.float32)
    except (TypeError, ValueError):
        raise argument_error(name, "probabilities from 0 to 1", "other values") from None
    if ((probabilities < -TOLERANCE) | (probabilities > 1 + TOLERANCE)).any():
        got = f"{np.nanmin(probabilities):g} to {np.nanmax(probabilities):g}"
        raise argument_error(name, "probabilities from 0 to 1", got, "Apply the softmax to logits.")
    sums = probabilities.sum(axis=-1)
    if (off := np.abs(sums - 1) > MAX_OFF).any():
        got = f"a sum of {sums[off].flat[0]:.4g} in row {np.argwhere(off)[0, -1] + 1}"
        advice = "Divide each row by its sum if the classes exclude each other."
        raise argument_error(name, "probabilities that sum to 1", got, advice)
    return probabilities


def _objects(rows: Any) -> np.ndarray:
    """Nested lists as an array; as objects if NumPy would convert numbers to text."""
    try:
        array = np.asarray(rows)
        return np.asarray(rows, dtype=object) if array.dtype.kind in "USO" else array
    except ValueError:
        raise argument_error(
            "predictions", "rows of equal length", "rows of different lengths"
        ) from None


def _probabilities(array: np.ndarray, classes: np.ndarray) -> tuple[FloatArray, IntArray]:
    """Probabilities (... x classes) and likeliest labels; rows with NaN are missing."""
    if array.shape[-1] != len(classes):
        must = f"of {len(classes)} classes, as there are labels"
        advice = "Name the classes of all columns, in their order, with `classes`."
        raise argument_error("predictions", must, f"{array.shape[-1]} columns", advice)
    probabilities = class_probabilities("predictions", array)
    missing = np.isnan(probabilities).any(axis=-1)
    probabilities[missing] = np.nan
    codes = np.where(missing, NONE, np.nan_to_num(probabilities).argmax(axis=-1))
    return probabilities, codes.astype(np.int32)


def _from_files(
    paths: Sequence[Path], labels: IntArray, classes: np.ndarray, ids: np.ndarray
) -> Predictions:
    """Predictions from files with one member each."""
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
                    probabilities, codes[row] = _probabilities(array, classes)
                    gold[row] = gold_of(probabilities, labels)
                else:
                    raise argument_error("predictions", f"of {n} items", f"shape {array.shape}")
            elif path.suffix.lower() == ".csv":
                codes[row], gold[row], trained[row] = _table(path, classes, ids)
            else:
                raise argument_error("predictions", "files ending in .npy or .csv", path.name)
        except InputError as error:
            text = str(error)
            raise InputError(text if str(path) in text else f"{path}: {text}") from None
    return Predictions(names, codes, trained, None if np.isnan(gold).all() else gold, None)


def _table(
    path: Path, classes: np.ndarray, ids: np.ndarray
) -> tuple[IntArray, FloatArray, np.ndarray]:
    """Predictions, probabilities and training items from a CSV table; absent items are missing."""
    frame = read_table(path, text=("item", "prediction"))
    if not {"item", "prediction"} <= set(frame):
        raise argument_error("predictions", "a table with item and prediction", list(frame))
    if not len(frame):
        raise argument_error("predictions", "a table with rows", "a header alone")
    if frame["item"].duplicated().any():
        raise argument_error("predictions", "one row per item", frame["item"].mode()[0])
    indices = positions_of_ids("predictions", frame["item"], ids)
    codes = np.full(len(ids), NONE, np.int32)
    text = frame["prediction"].to_numpy(object)
    predicted = encode(text, classes.astype(str), len(text))
    if classes.dtype.kind in "iuf":  # with a missing one a column of numbers is written as 1.0
        numbers = pd.to_numeric(pd.Series(text), errors="coerce").to_numpy(float)
        by_number = encode(numbers, classes.astype(float), len(text))
        predicted = np.where((predicted == OTHER) & (by_number >= 0), by_number, predicted)
    codes[indices] = np.where(text == "", NONE, predicted)
    gold, trained = np.full(len(ids), np.nan, np.float32), np.zeros(len(ids), bool)
    if "probability" in frame:
        gold[indices] = _column(frame, "probability", "probabilities from 0 to 1, or empty")
    if "trained" in frame:
        values = _column(frame, "trained", "trained 0 or 1, or empty")
        if not np.isin(values, (0, 1))[~np.isnan(values)].all():
            raise argument_error("predictions", "trained 0 or 1, or empty", "other values")
        trained[indices] = values == 1
    return codes, gold, trained


def _column(frame: pd.DataFrame, name: str, must: str) -> FloatArray:
    """Numbers from 0 to 1 of a column; NaN for empty cells."""
    text = frame[name].astype(str).replace({"True": "1", "False": "0", "nan": ""})
    numbers = column_numbers(text)
    invalid = (numbers < 0) | (numbers > 1)
    if invalid.any():
        got = f"{text[invalid].iloc[0]!r} for {frame.loc[invalid, 'item'].iloc[0]}"
        raise argument_error("predictions", must, got)
    return numbers

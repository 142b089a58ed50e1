"""A crowd: the members' predictions for every item, from training here or elsewhere."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_unique
from irtcat._common.positions import positions_of_ids
from irtcat._common.types import FloatArray, IntArray
from irtcat._files.archives import read_npy
from irtcat._files.reading import MOST_BYTES
from irtcat.io.text import column_numbers, read_table
from irtcat.responses import Responses
from irtcat.responses._frames import align_metadata
from irtcat.responses._matrix import row_blocks
from irtcat.training.crowd.store import read_crowd_file, write_crowd_file
from irtcat.training.learners import (
    NONE,
    OTHER,
    TOLERANCE,
    Answers,
    encode,
    gold_of,
    read_item_ids,
    read_labels,
)

FEW_GRADERS = 5
"""Items with fewer graders are flagged."""

MAX_OFF = 0.01
"""Float16 probabilities of a thousand classes sum to 1 within this."""


@dataclass(frozen=True, eq=False)
class Crowd:
    """Members' predictions for every item of the training data.

    Attributes:
        item_ids: the items.
        classes: the sorted labels, or the classes as they were named.
        labels: index in ``classes`` of each item's label.
        predictions: members x items, indices in ``classes``; -1 missing, -2 a label not in
            ``classes``.
        trained_on: members x ceil(items / 8), bit mask (``numpy.packbits``) of the items that a
            member was trained on.
        members: one row per member: learner, size, noise, seed; accuracy (out of sample) and
            accuracy_trained (on the items it was trained on), against the labels without noise;
            NaN if there are no such items.
        gold: members x items, probability of each item's label; None without probabilities.
        probabilities: members x items x classes; None if not kept.
    """

    item_ids: np.ndarray
    classes: np.ndarray
    labels: IntArray
    predictions: IntArray
    trained_on: np.ndarray
    members: pd.DataFrame
    gold: FloatArray | None = None
    probabilities: FloatArray | None = None

    def __repr__(self) -> str:
        return f"Crowd({len(self.members)} members x {len(self.item_ids)} items)"

    def in_sample(self) -> np.ndarray:
        """Members x items: whether the member was trained on the item."""
        return np.unpackbits(self.trained_on, axis=1, count=len(self.item_ids)).astype(bool)

    def responses(self, in_sample: bool = False) -> Responses:
        """Responses: 1 where the prediction is the item's label, else 0.

        Args:
            in_sample: whether to include the items that a member was trained on; by default they
                are missing for it, since it may have memorised them.

        Returns:
            Members x items, with the members' table and the items' (label, graded, flag) as
            metadata.

        Raises:
            InputError: if no member has an answer.
        """
        values = np.empty(self.predictions.shape, np.int8)
        n_items = len(self.item_ids)
        for rows in row_blocks(values.shape):
            predictions = self.predictions[rows]
            values[rows] = predictions == self.labels
            values[rows][predictions == NONE] = -1
            if not in_sample:
                trained = np.unpackbits(self.trained_on[rows], axis=1, count=n_items)
                values[rows][trained.astype(bool)] = -1
        if (self.predictions == NONE).all():
            raise argument_error("crowd", "one with predictions", "none")
        if (values == -1).all():
            must = "True if every member was trained on all items"
            raise argument_error("in_sample", must, in_sample)
        items = self._items((values != -1).sum(axis=0))
        return Responses.from_array(values, self.members.index, self.item_ids, self.members, items)

    def confidences(self, in_sample: bool = False) -> FloatArray:
        """Probability of each item's label, members x items; NaN where missing or in sample.

        `irtcat.training.dynamics.from_probabilities` accepts them as epochs.

        Raises:
            InputError: for a crowd without probabilities.
        """
        if self.gold is None:
            raise argument_error("crowd", "one whose learners give probabilities", "none")
        return self.gold.copy() if in_sample else np.where(self.in_sample(), np.nan, self.gold)

    def items(self) -> pd.DataFrame:
        """One row per item: label, graded (members that answered out of sample), flag."""
        graded = ((self.predictions != NONE) & ~self.in_sample()).sum(axis=0)
        return self._items(graded)

    def to_frame(self) -> pd.DataFrame:
        """The table of members."""
        return self.members.copy()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the crowd to one file, atomically and without pickle.

        Args:
            path: ends in ``.npz``; an existing file is replaced. `load` and `irtcat.load` read it,
                and ``irtcat audit`` ranks its labels.

        Returns:
            The path.

        Raises:
            InputError: the path does not end in ``.npz`` or cannot be written, the labels are
                neither text nor numbers, or the table of members has other cells than text,
                numbers, truth values and dates.
        """
        return write_crowd_file(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], *, max_bytes: int = MOST_BYTES) -> "Crowd":
        """Read a crowd written by `save`.

        Args:
            path: the file.
            max_bytes: see `irtcat.ItemBank.load`.

        Raises:
            InputError: the file is missing, damaged, too large or not a crowd.

        Example:
            >>> import tempfile
            >>> path = Path(tempfile.mkdtemp()) / "crowd.npz"
            >>> Crowd.load(from_predictions([["cat", "dog"]], ["cat", "cow"]).save(path))
            Crowd(1 members x 2 items)
        """
        return Crowd(**read_crowd_file(path, max_bytes))

    def _items(self, graded: IntArray) -> pd.DataFrame:
        few, nobody = f"graded by fewer than {FEW_GRADERS}", "graded by nobody"
        conditions = [graded == 0, graded < FEW_GRADERS]
        flags = np.select(conditions, [nobody, few], "").astype(object)
        index = pd.Index(self.item_ids, dtype=object, name="item")
        columns = {"label": self.classes[self.labels], "graded": graded, "flag": flags}
        return pd.DataFrame(columns, index=index)


def from_predictions(
    predictions: Any,
    labels: Any,
    *,
    classes: Any = None,
    trained_on: Any = None,
    item_ids: Any = None,
    members: pd.DataFrame | None = None,
) -> Crowd:
    """A crowd from external predictions.

    Args:
        predictions: members x items of labels (None or NaN: missing); members x items x classes of
            probabilities, which sum to 1 for each item; or paths of files, one per member,
            whose names are the members' ids: ``.npy`` with such a row, or ``.csv`` with columns
            item and prediction and, optionally, probability (of the item's label) and trained
            (0/1).
        labels: one label per item.
        classes: the classes in the order of the probabilities, also those that no label has; by
            default the sorted labels.
        trained_on: members x items, true where the member was trained on the item; by default
            none (or the column of the files).
        item_ids: ids of the items; i1, i2, … by default.
        members: metadata of the members, indexed by id (m1, m2, …, or the files' names).

    Raises:
        InputError: names the invalid file, item or shape.

    Example:
        >>> crowd = from_predictions([["cat", "dog"], ["dog", None]], ["cat", "dog"])
        >>> crowd.responses().to_numpy().tolist()
        [[1.0, 1.0], [0.0, nan]]
    """
    codes, all_classes = read_labels(labels, classes)
    ids = read_item_ids(item_ids, len(codes))
    names, trained, answers = read_predictions(predictions, codes, all_classes, ids)
    if trained_on is not None:
        shape, trained = trained.shape, np.asarray(trained_on)
        if trained.shape != shape or not np.isin(trained, (0, 1)).all():
            must = f"a mask of {' x '.join(map(str, shape))} (members x items)"
            raise argument_error("trained_on", must, f"shape {trained.shape}")
    trained = trained.astype(bool)
    table = align_metadata("members", members, names)
    scores = accuracies(answers.predictions, trained, codes)
    if trained.any():
        table = table.assign(size=trained.sum(axis=1), **scores)
    else:
        table = table.assign(accuracy=scores["accuracy"])
    table.index = pd.Index(names, dtype=object, name="subject")
    return Crowd(
        item_ids=ids,
        classes=all_classes,
        labels=codes,
        trained_on=np.packbits(trained, axis=1),
        members=table,
        **answers._asdict(),
    )


def accuracies(
    predictions: IntArray, in_sample: np.ndarray, labels: IntArray
) -> dict[str, FloatArray]:
    """Accuracy of each member on the items it was not, and was, trained on."""
    correct, answered = predictions == labels, predictions != NONE

    def accuracy(mask: np.ndarray) -> FloatArray:
        n = mask.sum(axis=1)
        return np.where(n > 0, (correct & mask).sum(axis=1) / np.maximum(n, 1), np.nan)

    return {
        "accuracy": accuracy(answered & ~in_sample),
        "accuracy_trained": accuracy(answered & in_sample),
    }


def read_predictions(
    source: Any, labels: IntArray, classes: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Answers]:
    """Members' predictions from an array or from files.

    Returns:
        Ids of the members; members x items, whether the member was trained on the item; and their
        answers, members x items and members x items x classes.

    Raises:
        InputError: see `irtcat.training.crowd.from_predictions`.
    """
    files = source if isinstance(source, (list, tuple)) else []
    if files and all(isinstance(file, (str, os.PathLike)) for file in files):
        return _from_files([Path(file) for file in files], labels, classes, ids)
    try:
        array = np.asarray(source)
        if not isinstance(source, np.ndarray) and array.dtype.kind in "USO":
            array = np.asarray(source, dtype=object)  # NumPy would convert numbers to text
    except ValueError:
        got = "rows of different lengths"
        raise argument_error("predictions", "rows of equal length", got) from None
    n = len(labels)
    if array.ndim not in (2, 3) or array.shape[1] != n or not len(array):
        raise argument_error("predictions", f"members x {n} items", f"shape {array.shape}")
    names = np.array([f"m{i + 1}" for i in range(len(array))], dtype=object)
    trained = np.zeros(array.shape[:2], bool)
    if array.ndim == 2:
        codes = np.stack([encode(row, classes, n) for row in array])
        return names, trained, Answers(codes, None, None)
    probabilities, codes = _probabilities(array, classes)
    gold = np.stack([gold_of(member, labels) for member in probabilities])
    return names, trained, Answers(codes, gold, probabilities)


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
) -> tuple[np.ndarray, np.ndarray, Answers]:
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
    return names, trained, Answers(codes, None if np.isnan(gold).all() else gold, None)


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

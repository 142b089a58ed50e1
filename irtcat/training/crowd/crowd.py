"""A crowd: the members' predictions for every item, from training here or elsewhere."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray, IntArray
from irtcat._files.reading import MOST_BYTES
from irtcat.responses import Responses
from irtcat.responses._frames import align_metadata
from irtcat.responses._matrix import row_blocks
from irtcat.training.crowd.predictions import read_predictions
from irtcat.training.crowd.store import read_crowd_file, write_crowd_file
from irtcat.training.learners import NONE, read_item_ids, read_labels

FEW_GRADERS = 5
"""Items with fewer graders are flagged."""


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
            raise argument_error(
                "in_sample", "True if every member was trained on all items", in_sample
            )
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
        flags = np.where(graded < FEW_GRADERS, f"graded by fewer than {FEW_GRADERS}", "").astype(
            object
        )
        flags[graded == 0] = "graded by nobody"
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
    read = read_predictions(predictions, codes, all_classes, ids)
    trained = read.trained
    if trained_on is not None:
        trained = np.asarray(trained_on)
        if trained.shape != read.predictions.shape or not np.isin(trained, (0, 1)).all():
            must = f"a mask of {' x '.join(map(str, read.predictions.shape))} (members x items)"
            raise argument_error("trained_on", must, f"shape {trained.shape}")
    trained = trained.astype(bool)
    table = align_metadata("members", members, read.names)
    scores = accuracies(read.predictions, trained, codes)
    table = (
        table.assign(size=trained.sum(axis=1), **scores)
        if trained.any()
        else table.assign(accuracy=scores["accuracy"])
    )
    table.index = pd.Index(read.names, dtype=object, name="subject")
    return Crowd(
        item_ids=ids,
        classes=all_classes,
        labels=codes,
        predictions=read.predictions,
        trained_on=np.packbits(trained, axis=1),
        members=table,
        gold=read.gold,
        probabilities=read.probabilities,
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

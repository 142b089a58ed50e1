"""Training dynamics: statistics of a learner's probabilities for each example over the epochs.

For the probability p of an example's label over the epochs with data: confidence is its mean,
variability its standard deviation, correctness the share of epochs in which the learner was
correct. An example is forgotten when the learner was correct and is wrong the next time.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_count, check_ids, check_unique
from irtcat._types import FloatArray, IntArray
from irtcat.training._learners import TOLERANCE

__all__ = ["Accumulator", "Dynamics", "from_probabilities"]


@dataclass(frozen=True, eq=False)
class Dynamics:
    """The result of `from_probabilities` and `Accumulator.result`.

    Attributes:
        table: one row per item: n (epochs with data), confidence, variability, correctness,
            forgotten (number of times), learned (first epoch with a correct answer, counted over
            the epochs with data; NaN: never correct), flags. NaN for items without data;
            correctness, forgotten and learned also if correctness is unknown.
    """

    table: pd.DataFrame

    def __repr__(self) -> str:
        n = int(self.table["n"].max()) if len(self.table) else 0
        return f"Dynamics({len(self.table)} items, up to {n} epochs)"

    def to_frame(self) -> pd.DataFrame:
        """The table of items."""
        return self.table.copy()

    def regions(self, share: float = 1 / 3) -> pd.DataFrame:
        """Which items are easy, ambiguous and hard to learn; an item can be more than one.

        Easy are the ``share`` of the items with the highest confidence, hard those with the
        lowest, ambiguous those with the highest variability; ties go to the earlier item.

        Args:
            share: above 0, up to 1; of the items with data, rounded.

        Returns:
            Columns easy, ambiguous, hard; false for items without data.

        Example:
            >>> p = [[0.9, 0.1, 0.2], [0.9, 0.9, 0.1]]
            >>> from_probabilities(p).regions().to_numpy().astype(int).tolist()
            [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
        """
        number = isinstance(share, (int, float, np.floating)) and not isinstance(share, bool)
        if not number or not 0 < share <= 1:
            raise argument_error("share", "a share above 0, up to 1", share)
        confidence = self.table["confidence"].to_numpy(float)
        variability = self.table["variability"].to_numpy(float)
        k = int(np.floor(share * np.isfinite(confidence).sum() + 0.5))

        def lowest(values: FloatArray) -> np.ndarray:
            mask = np.zeros(len(values), bool)
            mask[np.argsort(values, kind="stable")[:k]] = True  # NaN sorts last
            return mask

        columns = {"easy": -confidence, "ambiguous": -variability, "hard": confidence}
        return pd.DataFrame(
            {name: lowest(values) for name, values in columns.items()}, index=self.table.index
        )


class Accumulator:
    """Accumulates probabilities batch by batch, for use in an epoch loop.

    It keeps a few numbers per item, for any number of epochs. Each time an item is added counts
    as an epoch.

    Args:
        items: the number of items, or their ids (which may be whole numbers).

    Example:
        >>> dynamics = Accumulator(3)
        >>> for epoch in ([0.2, 0.9, 0.6], [0.8, 0.9, 0.4]):
        ...     dynamics.add(epoch, correct=np.array(epoch) > 0.5)
        >>> dynamics.result().table[["confidence", "forgotten"]].to_numpy().tolist()
        [[0.5, 0.0], [0.9, 0.0], [0.5, 1.0]]
    """

    def __init__(self, items: Any):
        if isinstance(items, (int, np.integer)) and not isinstance(items, bool):
            check_count("items", items)
            items = [f"i{i + 1}" for i in range(items)]
        # If ids are whole numbers, a batch refers to ids, not positions.
        kind = np.asarray(items).dtype.kind if hasattr(items, "__len__") else ""
        self._integer_ids = kind in tuple("iu")
        ids = check_ids("items", items, len(items) if hasattr(items, "__len__") else 0, "item")
        self.ids = pd.Index(check_unique("items", ids), dtype=object, name="item")
        n = len(self.ids)
        self._n, self._known, self._correct, self._forgotten = np.zeros((4, n), np.int64)
        self._mean, self._squares = np.zeros((2, n))
        self._previous = np.full(n, -1, np.int8)
        self._learned = np.full(n, np.nan)

    def add(
        self, probabilities: Any, labels: Any = None, correct: Any = None, items: Any = None
    ) -> None:
        """Add one epoch, or a batch of one.

        Args:
            probabilities: of each item's label; or items x classes, with ``labels``. From 0 to 1;
                NaN for items without data.
            labels: index of each item's label, from 0 (only with items x classes).
            correct: whether the learner was correct (0/1, NaN: unknown). The default for items x
                classes is whether the label is the likeliest class (the first of tied classes is
                the prediction); for probabilities of the label it is unknown.
            items: the items of the batch, each once: ids, or positions unless ids are whole
                numbers; all, in order, by default.

        Raises:
            InputError: for numbers out of range, invalid shapes, or unknown items.
        """
        index = self._positions(items)
        gold, is_correct = _gold(probabilities, labels, len(index))
        if correct is not None:
            is_correct = _correctness(correct, len(index))
        observed = ~np.isnan(gold)
        index, gold, is_correct = index[observed], gold[observed], is_correct[observed]
        # Welford's update of mean and sum of squared deviations, stable over many epochs.
        self._n[index] += 1
        step = gold - self._mean[index]
        self._mean[index] += step / self._n[index]
        self._squares[index] += step * (gold - self._mean[index])
        known = ~np.isnan(is_correct)
        self._count(index[known], is_correct[known] == 1)

    def _count(self, index: IntArray, correct: np.ndarray) -> None:
        """Count correct answers, and items forgotten since their previous answer."""
        self._known[index] += 1
        self._correct[index] += correct
        self._forgotten[index] += (self._previous[index] == 1) & ~correct
        first = correct & np.isnan(self._learned[index])
        self._learned[index[first]] = self._known[index[first]]
        self._previous[index] = correct

    def _positions(self, items: Any) -> IntArray:
        """Positions of the items of a batch."""
        if items is None:
            return np.arange(len(self.ids))
        index = np.asarray(items)
        if index.ndim != 1:
            raise argument_error("items", "a list of ids or positions", f"shape {index.shape}")
        if index.size == 0:
            return np.zeros(0, np.int64)
        if index.dtype.kind not in "iu" or self._integer_ids:
            ids = index
            index = self.ids.get_indexer(pd.Index(ids.astype(str).astype(object)))
            if (index < 0).any():
                raise argument_error("items", "ids of the items", ids[index < 0].tolist())
        elif not (index.min() >= 0 and index.max() < len(self.ids)):
            must = f"positions from 0 to {len(self.ids) - 1}"
            raise argument_error("items", must, index[(index < 0) | (index >= len(self.ids))])
        if len(np.unique(index)) < len(index):
            raise argument_error("items", "each once in a call", "one twice")
        return index.astype(np.int64)

    def result(self) -> Dynamics:
        """The statistics of all batches so far."""
        observed, known = self._n > 0, self._known > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            table = pd.DataFrame(
                {
                    "n": self._n,
                    "confidence": np.where(observed, self._mean, np.nan),
                    "variability": np.sqrt(self._squares / self._n),
                    "correctness": self._correct / self._known,
                    "forgotten": np.where(known, self._forgotten, np.nan),
                    "learned": self._learned,
                },
                index=self.ids,
                copy=True,
            )
        table["flags"] = np.select(
            [~observed, self._n == 1, known & (self._correct == 0)],
            ["never seen", "seen once", "never learned"],
            "",
        ).astype(object)
        return Dynamics(table)


def from_probabilities(
    probabilities: Any, labels: Any = None, correct: Any = None, item_ids: Any = None
) -> Dynamics:
    """Confidence, variability, correctness and forgetting of items over epochs.

    The members of a crowd may take the place of epochs (`Crowd.confidences`); forgetting then has
    no meaning.

    Args:
        probabilities: epochs x items, of each item's label; or epochs x items x classes, with
            ``labels``. From 0 to 1; NaN: no data in that epoch.
        labels: index of each item's label, from 0.
        correct: epochs x items, whether the learner was correct; see `Accumulator.add`.
        item_ids: ids of the items; i1, i2, … by default.

    Returns:
        A table, and regions of the data map.

    Raises:
        InputError: for numbers out of range or invalid shapes.

    Example:
        >>> p = np.array([[[0.2, 0.8], [0.6, 0.4]], [[0.1, 0.9], [0.3, 0.7]]])
        >>> table = from_probabilities(p, labels=[1, 0]).table
        >>> table[["confidence", "correctness", "forgotten"]].to_numpy().round(2).tolist()
        [[0.85, 1.0, 0.0], [0.45, 0.5, 1.0]]

    References:
        Swayamdipta et al. (2020), Dataset cartography, EMNLP, section 2; Toneva et al. (2019), An
        empirical study of example forgetting during deep neural network learning, ICLR, section 3.
    """
    epochs = _numbers("probabilities", probabilities)
    if epochs.ndim not in (2, 3) or 0 in epochs.shape:
        must = "epochs x items, or epochs x items x classes"
        raise argument_error("probabilities", must, f"shape {epochs.shape}")
    n = epochs.shape[1]
    correct_by_epoch: Any = [None] * len(epochs)
    if correct is not None:
        correct_by_epoch = _numbers("correct", correct)
        if correct_by_epoch.shape != epochs.shape[:2]:
            must = f"{len(epochs)} x {n}, epochs x items"
            raise argument_error("correct", must, f"shape {correct_by_epoch.shape}")
    if item_ids is not None:
        item_ids = check_unique("item_ids", check_ids("item_ids", item_ids, n, "item"))
    accumulator = Accumulator(n if item_ids is None else item_ids)
    for epoch, is_correct in zip(epochs, correct_by_epoch, strict=True):
        accumulator.add(epoch, labels, is_correct)
    return accumulator.result()


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError):
        raise argument_error(name, "numbers in rows of equal length", values) from None


def _gold(probabilities: Any, labels: Any, n: int) -> tuple[FloatArray, FloatArray]:
    """Probability of each item's label, and whether it is the likeliest class (NaN: unknown)."""
    p = _numbers("probabilities", probabilities)
    if p.ndim not in (1, 2) or len(p) != n:
        must = f"{n} numbers, one per item, or {n} x classes"
        raise argument_error("probabilities", must, f"shape {p.shape}")
    if ((p < -TOLERANCE) | (p > 1 + TOLERANCE)).any():
        got = f"{np.nanmin(p):g} to {np.nanmax(p):g}"
        raise argument_error("probabilities", "numbers from 0 to 1", got, "Apply the softmax.")
    p = np.clip(p, 0, 1)  # keeps their mean inside
    if p.ndim == 1:
        if labels is not None:
            raise argument_error("labels", "given with a probability of every class", "labels")
        return p, np.full(n, np.nan)
    if labels is None:
        raise argument_error("labels", "given with a probability of every class", None)
    codes = np.asarray(labels)
    valid = codes.shape == (n,) and codes.dtype.kind in "iu"
    if not (valid and ((codes >= 0) & (codes < p.shape[1])).all()):
        must = f"{n} whole numbers from 0 to {p.shape[1] - 1}, one per item"
        raise argument_error("labels", must, labels)
    gold = p[np.arange(n), codes]
    missing = np.isnan(p).any(axis=1)
    correct = np.where(missing, np.nan, np.nan_to_num(p).argmax(axis=1) == codes)
    return np.where(missing, np.nan, gold), correct


def _correctness(correct: Any, n: int) -> FloatArray:
    values = _numbers("correct", correct)
    if values.shape != (n,) or not (np.isin(values, (0, 1)) | np.isnan(values)).all():
        raise InputError(f"The `correct` argument must be {n} of 0, 1 and NaN, one per item.")
    return values

"""Training dynamics: what a learner's probabilities over the epochs say of each example.

Of the probability p of an example's own label over the epochs in which it was seen: confidence is
its mean, variability its standard deviation, correctness the share of epochs in which the learner
was right. An example is forgotten when the learner was right and, the next time it sees it, is not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_count, check_ids, check_unique
from irtcat._types import FloatArray, IntArray

__all__ = ["Accumulator", "Dynamics", "from_probabilities"]

RANGE = 1e-5
"""Probabilities of float16 or float32 may lie so far outside of [0, 1]."""


@dataclass(frozen=True, eq=False)
class Dynamics:
    """The result of `from_probabilities` and `Accumulator.result`.

    Attributes:
        table: one row per item: n (epochs in which it was seen), confidence, variability,
            correctness, forgotten (how often), learned (the how-manieth time seen was the first
            right one; NaN: never right), flags. NaN where it was never seen; correctness, forgotten
            and learned also where it is not known whether the learner was right.
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

        Easy are the ``share`` of the items with the greatest confidence, hard those with the
        least, ambiguous those with the greatest variability; of equal ones the earlier item.

        Args:
            share: above 0, up to 1; of the items seen, rounded.

        Returns:
            Columns easy, ambiguous, hard; false for items never seen.

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

        def least(values: FloatArray) -> np.ndarray:
            chosen = np.zeros(len(values), bool)
            chosen[np.argsort(values, kind="stable")[:k]] = True  # NaN is last
            return chosen

        columns = {"easy": -confidence, "ambiguous": -variability, "hard": confidence}
        return pd.DataFrame(
            {name: least(values) for name, values in columns.items()}, index=self.table.index
        )


class Accumulator:
    """Takes probabilities batch by batch, so that an epoch loop can feed it.

    It keeps a few numbers per item, however many epochs there are. An item counts as seen anew
    each time it is added.

    Args:
        items: how many there are, or their ids (whole numbers, too).

    Example:
        >>> seen = Accumulator(3)
        >>> for epoch in ([0.2, 0.9, 0.6], [0.8, 0.9, 0.4]):
        ...     seen.add(epoch, correct=np.array(epoch) > 0.5)
        >>> seen.result().table[["confidence", "forgotten"]].to_numpy().tolist()
        [[0.5, 0.0], [0.9, 0.0], [0.5, 1.0]]
    """

    def __init__(self, items: Any):
        if isinstance(items, (int, np.integer)) and not isinstance(items, bool):
            check_count("items", items)
            items = [f"i{i + 1}" for i in range(items)]
        # Of whole numbers that are ids, a batch names ids, not positions.
        kind = np.asarray(items).dtype.kind if hasattr(items, "__len__") else ""
        self._numbered = kind in tuple("iu")
        ids = check_ids("items", items, len(items) if hasattr(items, "__len__") else 0, "item")
        self.ids = pd.Index(check_unique("items", ids), dtype=object, name="item")
        n = len(self.ids)
        self._n, self._judged, self._right, self._forgotten = np.zeros((4, n), np.int64)
        self._mean, self._squares = np.zeros((2, n))
        self._before = np.full(n, -1, np.int8)
        self._learned = np.full(n, np.nan)

    def add(
        self, probabilities: Any, labels: Any = None, correct: Any = None, items: Any = None
    ) -> None:
        """Take one epoch, or a batch of one.

        Args:
            probabilities: of each item's own label; or items x classes, with ``labels``. From 0 to
                1; NaN where the item was not seen.
            labels: number of each item's label, from 0 (with items x classes alone).
            correct: whether the learner was right (0/1, NaN: not known). By default, of items x
                classes: whether the label is the likeliest class (the first of equal ones counts
                as predicted); of probabilities alone it is not known.
            items: which items these are, each once: ids, or positions unless the ids themselves are
                whole numbers; all, in order, by default.

        Raises:
            InputError: for numbers out of range, shapes that do not fit, or unknown items.
        """
        at = self._positions(items)
        gold, right = _gold(probabilities, labels, len(at))
        if correct is not None:
            right = _judged(correct, len(at))
        seen = ~np.isnan(gold)
        at, gold, right = at[seen], gold[seen], right[seen]
        self._n[at] += 1
        step = gold - self._mean[at]
        self._mean[at] += step / self._n[at]
        self._squares[at] += step * (gold - self._mean[at])
        known = ~np.isnan(right)
        self._judge(at[known], right[known] == 1)

    def _judge(self, at: IntArray, right: np.ndarray) -> None:
        """Count right answers, and those forgotten since the item was last judged."""
        self._judged[at] += 1
        self._right[at] += right
        self._forgotten[at] += (self._before[at] == 1) & ~right
        first = right & np.isnan(self._learned[at])
        self._learned[at[first]] = self._judged[at[first]]
        self._before[at] = right

    def _positions(self, items: Any) -> IntArray:
        """Where the items of a batch are."""
        if items is None:
            return np.arange(len(self.ids))
        at = np.asarray(items)
        if at.ndim != 1:
            raise argument_error("items", "a list of ids or positions", f"shape {at.shape}")
        if at.size == 0:
            return np.zeros(0, np.int64)
        if at.dtype.kind not in "iu" or self._numbered:
            found = self.ids.get_indexer(pd.Index(at.astype(str).astype(object)))
            if (found < 0).any():
                raise argument_error("items", "ids of the items", at[found < 0].tolist())
            at = found
        elif len(at) and not (at.min() >= 0 and at.max() < len(self.ids)):
            must = f"positions from 0 to {len(self.ids) - 1}"
            raise argument_error("items", must, at[(at < 0) | (at >= len(self.ids))])
        if len(np.unique(at)) < len(at):
            raise argument_error("items", "each once in a call", "one twice")
        return at.astype(np.int64)

    def result(self) -> Dynamics:
        """What has been seen so far."""
        seen, judged = self._n > 0, self._judged > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            table = pd.DataFrame(
                {
                    "n": self._n,
                    "confidence": np.where(seen, self._mean, np.nan),
                    "variability": np.sqrt(self._squares / self._n),
                    "correctness": self._right / self._judged,
                    "forgotten": np.where(judged, self._forgotten, np.nan),
                    "learned": self._learned,
                },
                index=self.ids,
                copy=True,
            )
        table["flags"] = np.select(
            [~seen, self._n == 1, judged & (self._right == 0)],
            ["never seen", "seen once", "never learned"],
            "",
        ).astype(object)
        return Dynamics(table)


def from_probabilities(
    probabilities: Any, labels: Any = None, correct: Any = None, item_ids: Any = None
) -> Dynamics:
    """Confidence, variability, correctness and forgetting of items over epochs.

    The members of a crowd may stand for the epochs (`Crowd.confidences`); forgetting then means
    nothing.

    Args:
        probabilities: epochs x items, of each item's own label; or epochs x items x classes, with
            ``labels``. From 0 to 1; NaN: not seen in that epoch.
        labels: number of each item's label, from 0.
        correct: epochs x items, whether the learner was right; see `Accumulator.add`.
        item_ids: ids of the items; i1, i2, … by default.

    Returns:
        A table, and regions of the data map.

    Raises:
        InputError: for numbers out of range or shapes that do not fit.

    Example:
        >>> p = np.array([[[0.2, 0.8], [0.6, 0.4]], [[0.1, 0.9], [0.3, 0.7]]])
        >>> found = from_probabilities(p, labels=[1, 0]).table
        >>> found[["confidence", "correctness", "forgotten"]].to_numpy().round(2).tolist()
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
    judged: Any = [None] * len(epochs)
    if correct is not None:
        judged = _numbers("correct", correct)
        if judged.shape != epochs.shape[:2]:
            must = f"{len(epochs)} x {n}, epochs x items"
            raise argument_error("correct", must, f"shape {judged.shape}")
    if item_ids is not None:
        item_ids = check_unique("item_ids", check_ids("item_ids", item_ids, n, "item"))
    total = Accumulator(n if item_ids is None else item_ids)
    for epoch, right in zip(epochs, judged, strict=True):
        total.add(epoch, labels, right)
    return total.result()


def _numbers(name: str, given: Any) -> np.ndarray:
    try:
        return np.asarray(given, float)
    except (TypeError, ValueError):
        raise argument_error(name, "numbers in rows of equal length", given) from None


def _gold(probabilities: Any, labels: Any, n: int) -> tuple[FloatArray, FloatArray]:
    """Probability of each item's label, and whether it is the likeliest class (NaN: not known)."""
    p = _numbers("probabilities", probabilities)
    if p.ndim not in (1, 2) or len(p) != n:
        must = f"{n} numbers, one an item, or {n} x classes"
        raise argument_error("probabilities", must, f"shape {p.shape}")
    if ((p < -RANGE) | (p > 1 + RANGE)).any():
        got = f"{np.nanmin(p):g} to {np.nanmax(p):g}"
        raise argument_error("probabilities", "numbers from 0 to 1", got, "Apply the softmax.")
    p = np.clip(p, 0, 1)  # so that no mean of them is outside
    if p.ndim == 1:
        if labels is not None:
            raise argument_error("labels", "given with a probability of every class", "labels")
        return p, np.full(n, np.nan)
    if labels is None:
        raise argument_error("labels", "given with a probability of every class", None)
    at = np.asarray(labels)
    good = at.shape == (n,) and at.dtype.kind in "iu" and ((at >= 0) & (at < p.shape[1])).all()
    if not good:
        must = f"{n} whole numbers from 0 to {p.shape[1] - 1}, one an item"
        raise argument_error("labels", must, labels)
    gold = p[np.arange(n), at]
    absent = np.isnan(p).any(axis=1)
    right = np.where(absent, np.nan, np.nan_to_num(p).argmax(axis=1) == at)
    return np.where(absent, np.nan, gold), right


def _judged(correct: Any, n: int) -> FloatArray:
    right = _numbers("correct", correct)
    if right.shape != (n,) or not (np.isin(right, (0, 1)) | np.isnan(right)).all():
        raise InputError(f"The `correct` argument must be {n} of 0, 1 and NaN, one an item.")
    return right

"""Training dynamics: statistics of a learner's probabilities for each example over the epochs.

For the probability p of an example's label over the epochs with data:

| column | statistic | high for |
|---|---|---|
| confidence | mean of p | easy examples |
| variability | standard deviation of p | ambiguous examples |
| loss | mean of -log p | hard examples |
| aum | mean of the margin, the label's logit less the largest other | easy examples |
| el2n | mean of the distance of the class probabilities from the label's one-hot vector | hard \
examples |
| correctness | share of epochs in which the learner was correct | easy examples |
| forgotten | how often the learner was correct and wrong the next time | examples on the boundary |

The margin and the distance need the probabilities (or logits) of all classes.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_count,
    check_ids,
    check_unique,
    float_array,
    is_number,
    is_whole,
    shorten,
)
from irtcat._common.positions import positions_of_ids
from irtcat._common.types import FloatArray, IntArray
from irtcat._files.reading import numbered_lines, parse_json
from irtcat.training.learners import TOLERANCE, read_item_ids

__all__ = [
    "FLOOR",
    "Accumulator",
    "Dynamics",
    "average",
    "from_logits",
    "from_probabilities",
    "read",
]

CARTOGRAPHY_FOLDER, CARTOGRAPHY_NAMES = "training_dynamics", "dynamics_epoch_*.jsonl"
LOGITS_FIELD = "logits_epoch_"
LOGITS = re.compile(rf'"{LOGITS_FIELD}\d+"')

FLOOR = float(np.finfo(np.float64).eps)
"""Smaller probabilities count as this in logarithms, as in scikit-learn's ``log_loss``."""

MEANS = ("confidence", "loss", "aum", "el2n")
"""Columns that are means over epochs."""


class _Epoch(NamedTuple):
    """What one epoch says of each item; NaN for items without data, or unknown.

    Attributes:
        confidence: probability of the item's label.
        correct: whether the label is the likeliest class.
        loss: minus the logarithm of that probability.
        aum: the margin.
        el2n: the distance of the probabilities from the one-hot vector of the label.
    """

    confidence: FloatArray
    correct: FloatArray
    loss: FloatArray
    aum: FloatArray
    el2n: FloatArray


@dataclass(frozen=True, eq=False)
class Dynamics:
    """The result of `from_probabilities` and `Accumulator.result`.

    Attributes:
        table: one row per item: n (epochs with data), confidence, variability, correctness,
            forgotten (number of times), learned (first epoch with a correct answer, counted over
            the epochs with data; NaN: never correct), loss (in nats), aum (in logits), el2n (from 0
            to sqrt 2), flag. NaN for items without data; correctness, forgotten and learned also
            if correctness is unknown, aum and el2n without probabilities of all classes.
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
        if not is_number(share) or not 0 < share <= 1:
            raise argument_error("share", "a share above 0, up to 1", share)
        table = self.table[["confidence", "variability"]].astype(float)
        k = np.floor(share * np.isfinite(table["confidence"]).sum() + 0.5)
        easy, ambiguous = -table["confidence"], -table["variability"]
        columns = {"easy": easy, "ambiguous": ambiguous, "hard": table["confidence"]}
        return pd.DataFrame(columns).rank(method="first") <= k


class Accumulator:
    """Accumulates probabilities batch by batch, for use in an epoch loop.

    It keeps a few numbers per item, for any number of epochs. Each time an item is added counts
    as an epoch.

    Args:
        items: the number of items, or their ids (which may be whole numbers).
        early: number of first epochs of each item that count for el2n, which was proposed for
            networks early in training; None: all.

    Example:
        >>> dynamics = Accumulator(3)
        >>> for epoch in ([0.2, 0.9, 0.6], [0.8, 0.9, 0.4]):
        ...     dynamics.add(epoch, correct=np.array(epoch) > 0.5)
        >>> dynamics.result().table[["confidence", "forgotten"]].to_numpy().tolist()
        [[0.5, 0.0], [0.9, 0.0], [0.5, 1.0]]
    """

    def __init__(self, items: Any, *, early: int | None = None):
        if early is not None:
            check_count("early", early)
        self._early = np.inf if early is None else int(early)
        if is_whole(items):
            check_count("items", items)
            items = [f"i{i + 1}" for i in range(items)]
        # If ids are whole numbers, a batch refers to ids, not positions.
        kind = np.asarray(items).dtype.kind if hasattr(items, "__len__") else ""
        self._integer_ids = kind in tuple("iu")
        ids = check_ids("items", items, len(items) if hasattr(items, "__len__") else 0, "item")
        self.ids = pd.Index(check_unique("items", ids), dtype=object, name="item")
        n = len(self.ids)
        self._n, self._known, self._correct, self._forgotten = np.zeros((4, n), np.int64)
        self._means = {name: np.zeros(n) for name in MEANS}
        self._counts = {name: np.zeros(n, np.int64) for name in MEANS}
        self._squares = np.zeros(n)
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
        self._add(index, _from_probabilities(probabilities, labels, len(index)), correct)

    def add_logits(self, logits: Any, labels: Any, correct: Any = None, items: Any = None) -> None:
        """Add one epoch, or a batch of one, of logits: exact also where probabilities underflow.

        Args:
            logits: items x classes, before the softmax; NaN for items without data.
            labels: see `add`.
            correct: see `add`.
            items: see `add`.

        Raises:
            InputError: for infinite numbers, invalid shapes, or unknown items.

        Example:
            >>> dynamics = Accumulator(2)
            >>> dynamics.add_logits([[2.0, 0.0, -1.0], [0.0, 3.0, 1.0]], labels=[0, 2])
            >>> dynamics.result().table["aum"].tolist()
            [2.0, -2.0]
        """
        index = self._positions(items)
        self._add(index, _from_logits(logits, labels, len(index)), correct)

    def _add(self, index: IntArray, epoch: _Epoch, given: Any) -> None:
        """Update the statistics of the items at these positions; given: which were correct."""
        if given is not None:
            values, n = _numbers("correct", given), len(index)
            if values.shape != (n,) or not (np.isin(values, (0, 1)) | np.isnan(values)).all():
                must = f"{n} of 0, 1 and NaN, one per item"
                raise InputError(f"The `correct` argument must be {must}.")
            epoch = epoch._replace(correct=values)
        observed = ~np.isnan(epoch.confidence)
        index, epoch = index[observed], _Epoch(*(values[observed] for values in epoch))
        self._n[index] += 1
        # Welford's update of mean and sum of squared deviations, stable over many epochs.
        before = self._means["confidence"][index].copy()
        for name in MEANS:
            values = getattr(epoch, name)
            use = ~np.isnan(values)
            if name == "el2n":
                use &= self._n[index] <= self._early
            at = index[use]
            self._counts[name][at] += 1
            self._means[name][at] += (values[use] - self._means[name][at]) / self._counts[name][at]
        after = self._means["confidence"][index]
        self._squares[index] += (epoch.confidence - before) * (epoch.confidence - after)
        known = ~np.isnan(epoch.correct)
        index, correct = index[known], epoch.correct[known] == 1
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
            index = positions_of_ids("items", index, self.ids)
        elif not (index.min() >= 0 and index.max() < len(self.ids)):
            must = f"positions from 0 to {len(self.ids) - 1}"
            raise argument_error("items", must, index[(index < 0) | (index >= len(self.ids))])
        if len(np.unique(index)) < len(index):
            raise argument_error("items", "each once in a call", "one twice")
        return index.astype(np.int64)

    def result(self) -> Dynamics:
        """The statistics of all batches so far."""
        known = self._known > 0
        means = {
            name: np.where(self._counts[name] > 0, self._means[name], np.nan) for name in MEANS
        }
        with np.errstate(divide="ignore", invalid="ignore"):
            columns = {
                "n": self._n,
                "confidence": means.pop("confidence"),
                "variability": np.sqrt(self._squares / self._n),
                "correctness": self._correct / self._known,
                "forgotten": np.where(known, self._forgotten, np.nan),
                "learned": self._learned,
                **means,
            }
        table = pd.DataFrame(columns, index=self.ids, copy=True)
        table["flag"] = _flags(self._n, known & (self._correct == 0))
        return Dynamics(table)


def from_probabilities(
    probabilities: Any,
    labels: Any = None,
    correct: Any = None,
    item_ids: Any = None,
    *,
    early: int | None = None,
) -> Dynamics:
    """Confidence, variability, loss, margin, EL2N, correctness and forgetting over epochs.

    The margin of logits ``z_y - max_k z_k`` over the other classes k equals ``log p_y - max_k log
    p_k``, since the softmax subtracts the same constant from all of them. So ``aum`` is the area
    under the margin of the logits also from probabilities, as long as these are a softmax at
    temperature 1 and above `FLOOR`; of another learner it is the mean log-odds of the label
    against its strongest rival.

    The members of a crowd may take the place of epochs (`Crowd.confidences`); forgetting then has
    no meaning.

    Args:
        probabilities: epochs x items, of each item's label; or epochs x items x classes, with
            ``labels``. From 0 to 1; NaN: no data in that epoch.
        labels: index of each item's label, from 0.
        correct: epochs x items, whether the learner was correct; see `Accumulator.add`.
        item_ids: ids of the items; i1, i2, … by default.
        early: see `Accumulator`.

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
        empirical study of example forgetting during deep neural network learning, ICLR, section 3;
        Pleiss et al. (2020), Identifying mislabeled data using the area under the margin ranking,
        NeurIPS, section 3.1; Paul, Ganguli & Dziugaite (2021), Deep learning on a data diet:
        finding important examples early in training, NeurIPS, section 2 (EL2N).
    """
    epochs = _numbers("probabilities", probabilities)
    if epochs.ndim not in (2, 3) or 0 in epochs.shape:
        must = "epochs x items, or epochs x items x classes"
        raise argument_error("probabilities", must, f"shape {epochs.shape}")
    return _accumulated(Accumulator.add, epochs, labels, correct, item_ids, early)


def from_logits(
    logits: Any, labels: Any, correct: Any = None, item_ids: Any = None, *, early: int | None = None
) -> Dynamics:
    """The same statistics as `from_probabilities`, from logits.

    Args:
        logits: epochs x items x classes, before the softmax; NaN: no data in that epoch.
        labels: index of each item's label, from 0.
        correct: see `from_probabilities`.
        item_ids: see `from_probabilities`.
        early: see `Accumulator`.

    Raises:
        InputError: for infinite numbers or invalid shapes.

    Example:
        >>> z = np.array([[[1.0, 0.0]], [[3.0, 0.0]]])
        >>> from_logits(z, labels=[0]).table[["aum", "loss"]].round(3).to_numpy().tolist()
        [[2.0, 0.181]]
    """
    epochs = _numbers("logits", logits)
    if epochs.ndim != 3 or 0 in epochs.shape:
        raise argument_error("logits", "epochs x items x classes", f"shape {epochs.shape}")
    return _accumulated(Accumulator.add_logits, epochs, labels, correct, item_ids, early)


def read(path: str | os.PathLike[str], *, early: int | None = None) -> Dynamics:
    """The statistics from the log of Dataset Cartography: JSON lines of logits.

    Args:
        path: a folder with the files ``dynamics_epoch_0.jsonl``, …, (or with a folder
            ``training_dynamics`` of them), or one file. Each line is an object with guid (the
            example), ``logits_epoch_N`` (of all classes in epoch N) and gold (the number of the
            label, from 0).
        early: see `Accumulator`.

    Returns:
        The table has a row per example, in the order in which they first occur.

    Raises:
        InputError: naming the file and line, for a line without these fields, an example twice in
            an epoch, or one whose gold changes.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "dynamics_epoch_0.jsonl"
        >>> _ = file.write_text('{"guid": 7, "logits_epoch_0": [2.0, 0.0], "gold": 1}')
        >>> read(file.parent).table[["aum", "correctness"]]
              aum  correctness
        item
        7    -2.0          0.0

    References:
        Swayamdipta et al. (2020), Dataset cartography, EMNLP, whose code writes these files.
    """
    golds: dict[str, int] = {}
    epochs: dict[int, dict[str, list[float]]] = {}
    for file in cartography_files(path):
        for line, raw, _ in numbered_lines(file):
            where = f"{file}, line {line}"
            guid, epoch, logits, gold = _cartography_line(parse_json(raw, where), where)
            if golds.setdefault(guid, gold) != gold:
                raise InputError(f"{where}: gold is {gold}, and was {golds[guid]} for {guid}.")
            seen = epochs.setdefault(epoch, {})
            if guid in seen:
                advice = "Keep one line per example and epoch."
                raise InputError(f"{where}: {guid} occurs twice in epoch {epoch}. {advice}")
            seen[guid] = logits
    if not golds:
        raise InputError(f"{path}: expected a line per example and epoch. Got an empty file.")
    labels = pd.Series(golds)
    accumulator = Accumulator(list(golds), early=early)
    for epoch in sorted(epochs):
        guids, rows = list(epochs[epoch]), list(epochs[epoch].values())
        n_classes = len(rows[0])
        if odd := [guid for guid in guids if len(epochs[epoch][guid]) != n_classes]:
            got = f"{len(epochs[epoch][odd[0]])} of {odd[0]}"
            raise InputError(f"{path}, epoch {epoch}: expected {n_classes} logits. Got {got}.")
        accumulator.add_logits(rows, labels[guids].to_numpy(), items=guids)
    return accumulator.result()


def cartography_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a folder that `read` reads, or the file itself.

    Raises:
        InputError: for a folder without such files.
    """
    folder = Path(path)
    if not folder.is_dir():
        return [folder]
    for place in (folder, folder / CARTOGRAPHY_FOLDER):
        if files := sorted(place.glob(CARTOGRAPHY_NAMES)):
            return files
    raise InputError(f"{folder}: expected files {CARTOGRAPHY_NAMES}. Got none.")


def is_cartography(path: str | os.PathLike[str]) -> bool:
    """Whether a folder has files of cartography, or a file of JSON lines begins like one."""
    file = Path(path)
    try:
        if file.is_dir():
            return bool(cartography_files(file))
        if file.suffix.lower() not in (".jsonl", ".ndjson") or not file.is_file():
            return False
        _, raw, _ = next(numbered_lines(file))
        return LOGITS.search(raw.decode("utf-8", "replace")) is not None
    except (InputError, StopIteration):
        return False


def _cartography_line(record: Any, where: str) -> tuple[str, int, list[float], int]:
    """Example, epoch, logits and label of a line."""
    fields = record if isinstance(record, dict) else {}
    names = [name for name in fields if name.startswith(LOGITS_FIELD)]
    number = names[0].removeprefix(LOGITS_FIELD) if len(names) == 1 else ""
    if "guid" not in fields or "gold" not in fields or not number.isdecimal():
        must = f"an object with guid, gold and one field {LOGITS_FIELD}N"
        raise InputError(f"{where}: expected {must}. Got {shorten(record)}.")
    logits, gold = fields[names[0]], fields["gold"]
    if not isinstance(logits, list) or len(logits) < 2 or not all(map(is_number, logits)):
        raise InputError(f"{where}: expected two or more logits. Got {shorten(logits)}.")
    if not is_whole(gold) or not 0 <= gold < len(logits):
        must = f"gold from 0 to {len(logits) - 1}"
        raise InputError(f"{where}: expected {must}. Got {shorten(gold)}.")
    return str(fields["guid"]), int(number), logits, int(gold)


def average(runs: Sequence[Dynamics]) -> Dynamics:
    """The mean of each statistic over several runs of training, such as EL2N over ten seeds.

    Variability is the mean of the runs' standard deviations, so that it measures change within a
    run and not differences between runs. ``n`` is the total number of epochs. A statistic is
    averaged over the runs in which it is known.

    Args:
        runs: results for the same items, in any order.

    Raises:
        InputError: without runs, or for runs of other items.

    Example:
        >>> runs = [from_probabilities([[0.2], [0.4]]), from_probabilities([[0.8], [0.6]])]
        >>> average(runs).table[["n", "confidence", "variability"]].round(2).to_numpy().tolist()
        [[4.0, 0.5, 0.1]]
    """
    if not runs or not all(isinstance(run, Dynamics) for run in runs):
        raise argument_error("runs", "a list of results of training dynamics", runs)
    index = runs[0].table.index
    for number, run in enumerate(runs, 1):
        if len(run.table) != len(index) or not run.table.index.isin(index).all():
            raise argument_error("runs", "of the same items", f"others in run {number}")
    tables = [run.table.reindex(index) for run in runs]
    values = np.stack([table.drop(columns="flag").to_numpy(float) for table in tables])
    mean = np.ma.masked_array(values, np.isnan(values)).mean(axis=0).filled(np.nan)
    table = pd.DataFrame(mean, index=index, columns=tables[0].columns.drop("flag"))
    table["n"] = np.sum([table["n"].to_numpy() for table in tables], axis=0)
    never_learned = np.any([table["correctness"].notna() for table in tables], axis=0)
    never_learned &= (table["correctness"] == 0).to_numpy()
    table["flag"] = _flags(table["n"].to_numpy(), never_learned)
    return Dynamics(table)


def _accumulated(
    add: Callable[..., None],
    epochs: np.ndarray,
    labels: Any,
    correct: Any,
    item_ids: Any,
    early: int | None,
) -> Dynamics:
    """The statistics of all epochs, which a method of `Accumulator` adds."""
    accumulator = Accumulator(read_item_ids(item_ids, epochs.shape[1]), early=early)
    by_epoch: Any = [None] * len(epochs) if correct is None else _numbers("correct", correct)
    if correct is not None and by_epoch.shape != epochs.shape[:2]:
        must = f"{len(epochs)} x {epochs.shape[1]}, epochs x items"
        raise argument_error("correct", must, f"shape {by_epoch.shape}")
    for epoch, is_correct in zip(epochs, by_epoch, strict=True):
        add(accumulator, epoch, labels, is_correct)
    return accumulator.result()


def _flags(n: IntArray, never_learned: np.ndarray) -> np.ndarray:
    """The flag of each item, "" for none."""
    conditions = [n == 0, n == 1, never_learned]
    return np.select(conditions, ["never seen", "seen once", "never learned"], "").astype(object)


def _numbers(name: str, values: Any) -> np.ndarray:
    return float_array(name, "numbers in rows of equal length", values)


def _from_probabilities(probabilities: Any, labels: Any, n: int) -> _Epoch:
    """The statistics of one epoch from probabilities of the labels, or of all classes."""
    p = _numbers("probabilities", probabilities)
    if p.ndim not in (1, 2) or len(p) != n:
        must = f"{n} numbers, one per item, or {n} x classes"
        raise argument_error("probabilities", must, f"shape {p.shape}")
    if ((p < -TOLERANCE) | (p > 1 + TOLERANCE)).any():
        got = f"{np.nanmin(p):g} to {np.nanmax(p):g}"
        raise argument_error("probabilities", "numbers from 0 to 1", got, "Apply the softmax.")
    p = np.clip(p, 0, 1)  # keeps their mean inside
    logs = np.log(np.maximum(p, FLOOR))
    if p.ndim == 1:
        if labels is not None:
            raise argument_error("labels", "given with a probability of every class", "labels")
        unknown = np.full(n, np.nan)
        return _Epoch(p, unknown, -logs, unknown, unknown)
    return _statistics(p, logs, _codes(labels, n, p.shape[1]))


def _from_logits(logits: Any, labels: Any, n: int) -> _Epoch:
    """The statistics of one epoch from logits."""
    z = _numbers("logits", logits)
    if z.ndim != 2 or len(z) != n:
        raise argument_error("logits", f"{n} x classes", f"shape {z.shape}")
    if np.isinf(z).any():
        row = int(np.argmax(np.isinf(z).any(axis=1)))
        got = f"an infinite one in row {row + 1}"
        raise argument_error("logits", "finite numbers, or NaN", got)
    codes = _codes(labels, n, z.shape[1])
    z = np.where(np.isnan(z).any(axis=1, keepdims=True), np.nan, z)
    z = z - z.max(axis=1, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return _statistics(np.exp(logs), logs, codes)


def _codes(labels: Any, n: int, n_classes: int) -> IntArray:
    """The labels, checked."""
    if labels is None:
        raise argument_error("labels", "given with a probability of every class", None)
    codes = np.asarray(labels)
    valid = codes.shape == (n,) and codes.dtype.kind in "iu"
    if not (valid and ((codes >= 0) & (codes < n_classes)).all()):
        must = f"{n} whole numbers from 0 to {n_classes - 1}, one per item"
        raise argument_error("labels", must, labels)
    return codes


def _statistics(p: FloatArray, logs: FloatArray, codes: IntArray) -> _Epoch:
    """The statistics of one epoch from the probabilities of all classes and their logarithms.

    With one class there is no rival, hence no margin.
    """
    at = np.arange(len(p))
    missing = np.isnan(p).any(axis=1)
    rivals = logs.copy()
    rivals[at, codes] = -np.inf
    margin = logs[at, codes] - rivals.max(axis=1) if p.shape[1] > 1 else np.full(len(p), np.nan)
    error = p.copy()
    error[at, codes] -= 1
    correct = (np.nan_to_num(p).argmax(axis=1) == codes).astype(float)
    columns = (p[at, codes], correct, -logs[at, codes], margin, np.sqrt((error**2).sum(axis=1)))
    return _Epoch(*(np.where(missing, np.nan, values) for values in columns))

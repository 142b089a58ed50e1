"""Artificial crowds: many models trained on parts of the data, whose answers tell difficulties.

Humans are dear; a crowd of models trained on random subsets with some wrong labels gives response
patterns for all of a training set (Lalor, Wu & Yu 2019).
"""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error, check_choice, check_count
from irtcat._matrix import row_blocks
from irtcat._metadata import align_metadata
from irtcat._progress import progress as shown
from irtcat._types import FloatArray, IntArray
from irtcat.responses import Responses
from irtcat.training._crowd_data import read_data, read_item_ids, read_labels, read_learners
from irtcat.training._crowd_store import Store, digest, in_words
from irtcat.training._design import Member, assignments, check_graders, draw_members
from irtcat.training._learners import NONE, Answers, Lesson, name_of
from irtcat.training._pool import train_all
from irtcat.training._predictions import read_predictions

__all__ = ["Crowd", "build", "from_predictions"]

Progress = Callable[[int, int, str], Any]

FEW = 5


@dataclass(frozen=True, eq=False)
class Crowd:
    """Members' predictions for every item of the training data.

    Attributes:
        item_ids: the items.
        classes: the labels that occur, sorted.
        labels: number of each item's label in ``classes``.
        predictions: members x items, numbers of labels; -1 missing, -2 a label not in ``classes``.
        trained_on: members x ceil(items / 8), bits of the items that each was trained on
            (``numpy.packbits``).
        members: one row per member: learner, size, noise, seed; accuracy (out of sample) and
            accuracy_trained (on the items it was trained on), against the labels as given, noise
            not counted; NaN where there are no such items.
        gold: members x items, probability of each item's own label; None where none were given.
        probabilities: members x items x classes; None where not kept.
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
        """Who is right about what: a response is 1 where the prediction is the item's label.

        Args:
            in_sample: whether the items that a member was trained on count, too; else they are
                missing for it, since it may know them by heart.

        Returns:
            Members x items, with the members' table and the items' (label, graded, flags) as
            metadata.

        Raises:
            InputError: where no member has an answer.
        """
        values = np.empty(self.predictions.shape, np.int8)
        n_items = len(self.item_ids)
        for rows in row_blocks(values.shape):
            told = self.predictions[rows]
            values[rows] = told == self.labels
            values[rows][told == NONE] = -1
            if not in_sample:
                trained = np.unpackbits(self.trained_on[rows], axis=1, count=n_items)
                values[rows][trained.astype(bool)] = -1
        if (self.predictions == NONE).all():
            raise argument_error("crowd", "one with predictions", "none")
        if (values == -1).all():
            raise argument_error(
                "in_sample", "True where every member was trained on all items", in_sample
            )
        items = self._items((values != -1).sum(axis=0))
        return Responses.from_array(values, self.members.index, self.item_ids, self.members, items)

    def confidences(self, in_sample: bool = False) -> FloatArray:
        """Probability of each item's label, members x items; NaN where missing or in sample.

        `irtcat.training.dynamics.from_probabilities` takes them as it takes epochs.

        Raises:
            InputError: for a crowd without probabilities.
        """
        if self.gold is None:
            raise argument_error("crowd", "one whose learners give probabilities", "none")
        return self.gold.copy() if in_sample else np.where(self.in_sample(), np.nan, self.gold)

    def items(self) -> pd.DataFrame:
        """One row per item: label, graded (how many members answered out of sample), flags."""
        graded = ((self.predictions != NONE) & ~self.in_sample()).sum(axis=0)
        return self._items(graded)

    def to_frame(self) -> pd.DataFrame:
        """The table of members."""
        return self.members.copy()

    def _items(self, graded: IntArray) -> pd.DataFrame:
        flags = np.where(graded < FEW, f"graded by fewer than {FEW}", "").astype(object)
        flags[graded == 0] = "graded by nobody"
        index = pd.Index(self.item_ids, dtype=object, name="item")
        columns = {"label": self.classes[self.labels], "graded": graded, "flags": flags}
        return pd.DataFrame(columns, index=index)


def build(
    fit_predict: Any,
    data: tuple[Any, Any],
    n_members: int = 100,
    size: Any = (0.05, 0.8),
    label_noise: Any = (0.0, 0.3),
    seed: int = 0,
    *,
    item_ids: Any = None,
    probabilities: str = "gold",
    min_graders: int = 1,
    workers: int = 1,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | bool = False,
) -> Crowd:
    """Train members on random subsets with some wrong labels, and let each answer for all items.

    Which items a member is trained on is random and balanced: the items left out are dealt from
    shuffled packs, so that over the crowd all items are left out equally often (give or take one).
    A subset of two items or more shows its learner two classes at least, since most can learn
    nothing else: where it would be of one class, an item of another takes the place of one of its
    own (so that items of a rare class are left out less often than others), and where noise would
    make all labels alike, one of them is not replaced. All that is drawn for a member depends on
    ``seed`` and its number alone: results are the same for any number of workers, and a larger
    crowd begins with the members of a smaller one.

    Args:
        fit_predict: an estimator with ``fit(X, y)`` and ``predict(X)`` (a copy is trained; its
            ``random_state`` is set), a function ``(X_train, y_train, X, seed)`` that gives labels
            or probabilities (items x sorted labels) for all of X, or a list or mapping of such, of
            which the members take turns. None may change X, which all members share.
        data: the inputs X (array, sparse matrix, frame, list, or a mapping of such) and one label
            per item; none missing, at least two different.
        n_members: how many.
        size: how many items each is trained on: a whole number; a share (a float up to 1.0); a
            pair (low, high) of either, drawn evenly on the log scale; or a list to draw from.
            Subsets of one item are of one class, and not every learner takes them.
        label_noise: share of a subset's labels that are replaced by others, below 1: a number, a
            pair to draw between, or a list to draw from.
        seed: seed of subsets, noise and the members' own seeds.
        item_ids: ids of the items; i1, i2, … by default.
        probabilities: what is kept of the probabilities, if learners give any: "gold" (of each
            item's own label), "all" (every class; members x items x classes of memory) or "none".
        min_graders: how many members each item must be left to at least; checked before training,
            items that take others' places not counted.
        workers: processes; 1 trains in this one. With several, ``fit_predict`` must be of a module
            and the calling script needs ``if __name__ == "__main__":``; each process computes on
            one thread.
        folder: keeps each finished member in a file there; the same call goes on from them after
            an interruption, also with more members. The code of a function is not compared.
        progress: True for a line on the terminal, or called as ``progress(done, total, text)``.

    Returns:
        The crowd; its `responses` are what is fitted.

    Raises:
        InputError: for bad arguments, a folder of another crowd, or a learner that fails (what was
            finished by then stays in the folder).

    Example:
        >>> def nearest_mean(X_train, y_train, X, seed):
        ...     means = [X_train[y_train == label].mean() for label in (0, 1)]
        ...     return (abs(X - means[1]) < abs(X - means[0])).astype(int)
        >>> X = np.random.default_rng(0).normal(size=200)
        >>> crowd = build(nearest_mean, (X, (X > 0).astype(int)), 20, size=20, label_noise=0.2)
        >>> crowd.responses()
        Responses(20 subjects x 200 items, right/wrong, 400 missing)

    References:
        Lalor, Wu & Yu (2019), Learning latent parameters without human response patterns: item
        response theory with artificial crowds, EMNLP, sections 3-4; Lalor, Wu & Yu (2018),
        Understanding deep learning performance through an examination of test set difficulty.
    """
    learners, names = read_learners(fit_predict)
    X, labels, classes = read_data(data)
    ids = read_item_ids(item_ids, len(labels))
    check_count("n_members", n_members)
    check_count("seed", seed, 0)
    check_count("workers", workers)
    check_count("min_graders", min_graders, 0)
    check_choice("probabilities", probabilities, ("none", "gold", "all"))
    members = draw_members(n_members, len(labels), size, label_noise, seed, len(learners))
    check_graders(members, len(labels), min_graders)
    if not isinstance(progress, (bool, np.bool_)) and not callable(progress):
        raise argument_error("progress", "True, False or a function", progress)
    store = None
    if folder is not None:
        about = {
            "data": digest(X, classes[labels], ids.tolist()),
            "learners": [
                of if name == of else f"{name}: {of}"
                for name, of in zip(names, map(name_of, learners), strict=True)
            ],
            "size": in_words(size), "label_noise": in_words(label_noise), "seed": int(seed),
            "probabilities": probabilities,
        }  # fmt: skip
        store = Store(folder, about)
    lesson = Lesson(learners, X, labels, classes, probabilities)
    tell: Progress | None = progress if callable(progress) else None
    if progress and tell is None:
        with shown("Training the crowd") as line:
            return _gather(lesson, members, ids, names, seed, workers, store, line)
    return _gather(lesson, members, ids, names, seed, workers, store, tell)


def from_predictions(
    predictions: Any,
    labels: Any,
    *,
    trained_on: Any = None,
    item_ids: Any = None,
    members: pd.DataFrame | None = None,
) -> Crowd:
    """A crowd whose predictions were made elsewhere.

    Args:
        predictions: members x items of labels (None or NaN: missing); members x items x classes of
            probabilities in the order of the sorted labels; or paths of files, one a member, whose
            names are the members' ids: ``.npy`` with such a row, or ``.csv`` with columns item and
            prediction and, where known, probability (of the item's own label) and trained (0/1).
        labels: one label per item.
        trained_on: members x items, true where the member was trained on the item; by default on
            none (or as the files say).
        item_ids: ids of the items; i1, i2, … by default.
        members: metadata of the members, indexed by id (m1, m2, …, or the files' names).

    Raises:
        InputError: naming the file, the item or the shape that does not fit.

    Example:
        >>> crowd = from_predictions([["cat", "dog"], ["dog", None]], ["cat", "dog"])
        >>> crowd.responses().to_numpy().tolist()
        [[1.0, 1.0], [0.0, nan]]
    """
    codes, classes = read_labels(labels)
    ids = read_item_ids(item_ids, len(codes))
    told = read_predictions(predictions, codes, classes, ids)
    trained = told.trained
    if trained_on is not None:
        trained = np.asarray(trained_on)
        if trained.shape != told.predictions.shape or not np.isin(trained, (0, 1)).all():
            must = f"a mask of {' x '.join(map(str, told.predictions.shape))} (members x items)"
            raise argument_error("trained_on", must, f"shape {trained.shape}")
    trained = trained.astype(bool)
    table = align_metadata("members", members, told.names)
    scores = _accuracies(told.predictions, trained, codes)
    table = (
        table.assign(size=trained.sum(axis=1), **scores)
        if trained.any()
        else table.assign(accuracy=scores["accuracy"])
    )
    table.index = pd.Index(told.names, dtype=object, name="subject")
    return Crowd(
        ids, classes, codes, told.predictions, np.packbits(trained, axis=1), table,
        told.gold, told.every,
    )  # fmt: skip


def _gather(
    lesson: Lesson,
    members: Sequence[Member],
    ids: np.ndarray,
    names: Sequence[str],
    seed: int,
    workers: int,
    store: Store | None,
    progress: Any,
) -> Crowd:
    """Train those who are not on file, and put all together."""
    n, n_items = len(members), len(lesson.labels)
    trained = np.zeros((n, (n_items + 7) // 8), np.uint8)
    answers: dict[int, Answers] = {}

    def to_do() -> Any:
        for task in assignments(members, lesson.labels, len(lesson.classes), seed):
            number = task.member.number
            mine = np.zeros(n_items, bool)
            mine[task.train] = True
            trained[number] = np.packbits(mine)
            if store is not None and store.has(number):
                answers[number] = store.load(number, n_items)
            else:
                yield task

    with closing(train_all(lesson, to_do(), workers)) as finished:
        for number, each in finished:
            answers[number] = each
            if store is not None:
                store.save(number, each)
            if progress is not None:
                progress(len(answers), n, f"Member {len(answers)} of {n}")
    return _crowd(lesson, members, ids, names, trained, [answers[i] for i in range(n)])


def _crowd(
    lesson: Lesson,
    members: Sequence[Member],
    ids: np.ndarray,
    names: Sequence[str],
    trained: np.ndarray,
    answers: Sequence[Answers],
) -> Crowd:
    """The record, its members' accuracies counted."""
    kind = np.int16 if len(lesson.classes) < 2**15 else np.int32
    predictions = np.stack([each.predictions.astype(kind) for each in answers])
    index = pd.Index([f"m{member.number + 1}" for member in members], dtype=object, name="subject")
    in_sample = np.unpackbits(trained, axis=1, count=len(ids)).astype(bool)
    columns: dict[str, Any] = {
        "learner": [names[member.learner] for member in members],
        "size": [member.size for member in members],
        "noise": [member.noise for member in members],
        "seed": [member.seed for member in members],
        **_accuracies(predictions, in_sample, lesson.labels),
    }
    return Crowd(
        ids, lesson.classes, lesson.labels, predictions, trained,
        pd.DataFrame(columns, index=index),
        _stacked([each.gold for each in answers], len(ids)),
        _stacked([each.every for each in answers], len(ids), len(lesson.classes)),
    )  # fmt: skip


def _stacked(parts: list[Any], *shape: int) -> FloatArray | None:
    """Members' probabilities in one array, NaN for members that give none; None where none does."""
    if all(part is None for part in parts):
        return None
    out = np.full((len(parts), *shape), np.nan, np.float32)
    for row, part in zip(out, parts, strict=True):
        if part is not None:
            row[...] = part
    return out


def _accuracies(
    predictions: IntArray, in_sample: np.ndarray, labels: IntArray
) -> dict[str, FloatArray]:
    """Share right of each member on items it was not, and was, trained on."""
    right, answered = predictions == labels, predictions != NONE

    def share(of: np.ndarray) -> FloatArray:
        n = of.sum(axis=1)
        return np.where(n > 0, (right & of).sum(axis=1) / np.maximum(n, 1), np.nan)

    return {
        "accuracy": share(answered & ~in_sample),
        "accuracy_trained": share(answered & in_sample),
    }

"""Artificial crowds: many models trained on subsets of the data, to calibrate difficulties.

Human responses are expensive; a crowd of models trained on random subsets with some wrong labels
gives response patterns for a whole training set (Lalor, Wu & Yu 2019).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    is_number,
    is_whole,
)
from irtcat._common.executors import executor_of, results_of
from irtcat._common.progress import Progress, ProgressOption, with_progress
from irtcat._common.types import FloatArray, IntArray
from irtcat.training.crowd.crowd import Crowd, accuracies
from irtcat.training.crowd.store import Store, as_text, digest
from irtcat.training.learners import (
    Answers,
    Assignment,
    Member,
    Setup,
    name_of,
    read_data,
    read_item_ids,
    read_learners,
    train,
)

SIZES = "a number of items, a share below 1, a pair (low, high) of either, or a list to draw from"
NOISES = "a share below 1, a pair (low, high), or a list to draw from"

RESUME = "With `folder`, finished members are kept, and the same call resumes from them."


@with_progress("Training the crowd")
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
    executor: Executor | None = None,
    workers: int = 1,
    folder: str | os.PathLike[str] | None = None,
    progress: ProgressOption = None,
) -> Crowd:
    """Train members on random subsets with some wrong labels, and predict all items with each.

    Subsets are random and balanced: the items left out are taken from successive random
    permutations, so that over the crowd all items are left out equally often (plus or minus one).
    A subset of two or more items has at least two classes, since most learners require it: in a
    subset of one class, an item of another class replaces one of its items (so that items of a
    rare class are left out less often than others), and if noise would make all labels equal, one
    of them is not replaced. All random draws of a member depend only on ``seed`` and its number:
    results are the same for any executor and number of workers, and a larger crowd begins with the
    members of a smaller one.

    Args:
        fit_predict: an estimator with ``fit(X, y)`` and ``predict(X)`` (a copy is trained; its
            ``random_state`` is set), a function ``(X_train, y_train, X, seed)`` that returns
            labels or probabilities (items x sorted labels) for all of X, or a list or mapping of
            these, through which the members cycle. None may change X, which all members share.
        data: the inputs X (array, sparse matrix, frame, list, or a mapping of these) and one label
            per item; none missing, at least two classes.
        n_members: number of members.
        size: number of training items of each: a whole number; a share (a float up to 1.0); a
            pair (low, high) of either, drawn uniformly on the log scale; or a list to draw from.
            Subsets of one item have one class, which not every learner accepts.
        label_noise: share of a subset's labels that are replaced by others, below 1: a number, a
            pair to draw between, or a list to draw from.
        seed: seed of subsets, noise and the members' seeds.
        item_ids: ids of the items; i1, i2, … by default.
        probabilities: which probabilities to keep, if learners give any: "gold" (of each item's
            label), "all" (every class; members x items x classes of memory) or "none".
        min_graders: minimum number of members that must leave out each item; checked before
            training, without the items that replace others.
        executor: trains the members, in parallel: any `concurrent.futures.Executor`, such as
            joblib's or Dask's ``client.get_executor()``. ``fit_predict`` must be a function of a
            module that its processes can import, or picklable (with cloudpickle also a function of
            a notebook). The data are sent once to each process. By default the current process.
        workers: without an executor: number of processes to start; 1 trains in the current one. The
            calling script needs ``if __name__ == "__main__":``; each process computes on one
            thread.
        folder: saves each finished member in a file there; the same call resumes from them after
            an interruption, also with more members. The code of a function is not compared.
        progress: True for a progress line on the terminal, or called as ``progress(done, total,
            text)``.

    Returns:
        The crowd; pass its `responses` to `irtcat.fit`.

    Raises:
        InputError: for invalid arguments, a folder of another crowd, or a learner or an executor
            that fails (finished members stay in the folder).

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
    parallel = executor_of(executor, workers)
    check_count("min_graders", min_graders, 0)
    check_choice("probabilities", probabilities, ("none", "gold", "all"))
    members = draw_members(n_members, len(labels), size, label_noise, seed, len(learners))
    check_graders(members, len(labels), min_graders)
    if progress is not None and not callable(progress):
        raise argument_error("progress", "True, False or a function", progress)
    store = None
    if folder is not None:
        settings = {
            "data": digest(X, classes[labels], ids.tolist()),
            "learners": [
                full_name if name == full_name else f"{name}: {full_name}"
                for name, full_name in zip(names, map(name_of, learners), strict=True)
            ],
            "size": as_text(size),
            "label_noise": as_text(label_noise),
            "seed": int(seed),
            "probabilities": probabilities,
        }
        store = Store(folder, settings)
    setup = Setup(learners, X, labels, classes, probabilities)
    with parallel as trainer:
        return _train_members(setup, members, ids, names, seed, trainer, store, progress)


def _train_members(
    setup: Setup,
    members: Sequence[Member],
    ids: np.ndarray,
    names: Sequence[str],
    seed: int,
    executor: Executor | None,
    store: Store | None,
    progress: Progress | None,
) -> Crowd:
    """Train the members that are not in the store; the crowd of all, with their accuracies."""
    n, n_items = len(members), len(setup.labels)
    trained = np.zeros((n, (n_items + 7) // 8), np.uint8)
    answers: dict[int, Answers] = {}
    numbers: list[int] = []

    def remaining_tasks() -> Iterator[Assignment]:
        for task in assignments(members, setup.labels, len(setup.classes), seed):
            number = task.member.number
            mask = np.zeros(n_items, bool)
            mask[task.train] = True
            trained[number] = np.packbits(mask)
            finished = None if store is None else store.load(number, n_items)
            if finished is not None:
                answers[number] = finished
            else:
                numbers.append(number)
                yield task

    results = results_of(train, setup, remaining_tasks(), executor, advice=RESUME)
    with closing(results):
        for position, member_answers in results:
            number = numbers[position]
            answers[number] = member_answers
            if store is not None:
                store.save(number, member_answers)
            if progress is not None:
                progress(len(answers), n, f"Member {len(answers)} of {n}")
    by_member = [answers[number] for number in range(n)]
    dtype = np.int16 if len(setup.classes) < 2**15 else np.int32
    predictions = np.stack([member.predictions.astype(dtype) for member in by_member])
    index = pd.Index([f"m{member.number + 1}" for member in members], dtype=object, name="subject")
    in_sample = np.unpackbits(trained, axis=1, count=len(ids)).astype(bool)
    table = pd.DataFrame(members, index=index).drop(columns="number")
    table["learner"] = [names[member.learner] for member in members]
    table = table.assign(**accuracies(predictions, in_sample, setup.labels))
    probabilities = [member.probabilities for member in by_member]
    return Crowd(
        item_ids=ids,
        classes=setup.classes,
        labels=setup.labels,
        predictions=predictions,
        trained_on=trained,
        members=table,
        gold=_stacked([member.gold for member in by_member], len(ids)),
        probabilities=_stacked(probabilities, len(ids), len(setup.classes)),
    )


def _stacked(arrays: list[Any], *shape: int) -> FloatArray | None:
    """Members' probabilities in one array, NaN for members without any; None if all are without."""
    if all(array is None for array in arrays):
        return None
    out = np.full((len(arrays), *shape), np.nan, np.float32)
    for row, array in zip(out, arrays, strict=True):
        if array is not None:
            row[...] = array
    return out


def draw_members(
    n_members: int, n_items: int, size: Any, noise: Any, seed: int, n_learners: int
) -> list[Member]:
    """Sizes, noise and seeds; members cycle through the learners."""

    def share(value: Any) -> float:
        if not is_number(value) or not 0 <= value < 1:
            raise argument_error("label_noise", NOISES, noise)
        return float(value)

    draw_size = _size_sampler(size, n_items)
    draw_noise = _sampler("label_noise", noise, share, NOISES, log=False)
    members = []
    for number in range(n_members):
        sequence = np.random.SeedSequence([seed, number])
        rng = np.random.default_rng(sequence)
        size_, noise_ = draw_size(rng), draw_noise(rng)
        member_seed = int(sequence.generate_state(1, np.uint32)[0] >> 1)
        members.append(Member(number, number % n_learners, size_, noise_, member_seed))
    return members


def _size_sampler(size: Any, n: int) -> Callable[[np.random.Generator], int]:
    """Draws a size; a range is sampled on the log scale, since ratios of sizes matter."""

    def count(value: Any) -> float:
        if is_whole(value) and 1 <= value <= n:
            return float(value)
        if isinstance(value, (float, np.floating)) and 0 < value <= 1:
            return float(max(1.0, value * n))
        raise argument_error("size", f"{SIZES}; at most {n}", size)

    draw = _sampler("size", size, count, SIZES, log=True)
    return lambda rng: min(n, max(1, int(np.floor(draw(rng) + 0.5))))


def _sampler(
    name: str, option: Any, read: Callable[[Any], float], must: str, log: bool
) -> Callable[[np.random.Generator], float]:
    """Draws one number: a constant, a number between two, or one of a list."""
    if isinstance(option, tuple):
        if len(option) != 2 or (low := read(option[0])) > (high := read(option[1])):
            raise argument_error(name, must, option)
        if log:
            return lambda rng: float(np.exp(rng.uniform(np.log(low), np.log(high))))
        return lambda rng: float(rng.uniform(low, high))
    if isinstance(option, (list, np.ndarray)):
        choices = [read(value) for value in option]
        if not choices:
            raise argument_error(name, must, option)
        return lambda rng: choices[int(rng.integers(len(choices)))]
    value = read(option)
    return lambda rng: value


def check_graders(members: Sequence[Member], n_items: int, least: int) -> None:
    """Raise if items would be left out by fewer than ``least`` members.

    The left-out sets cycle through all items, so that each item is left out equally often.
    """
    left_out = sum(n_items - member.size for member in members)
    if left_out // n_items >= least:
        return
    graders = left_out / n_items
    mean = sum(member.size for member in members) / len(members)
    advice = "smaller subsets"
    if mean < n_items:
        advice = f"about {int(np.ceil(least * n_items / (n_items - mean)))} members, {advice}"
    raise InputError(
        f"The `min_graders` argument must be reachable: {len(members)} members trained on "
        f"{mean:.0f} of {n_items} items leave each item to {graders:.1f} of them. Got {least}. "
        f"Use {advice}, or min_graders=0 for in-sample answers."
    )


def assignments(
    members: Sequence[Member], labels: IntArray, n_classes: int, seed: int
) -> Iterator[Assignment]:
    """Each member's items and labels, in order.

    The items that members are *not* trained on are taken from successive random permutations of
    all items: after any number of members the counts of how often each item was left out differ by
    at most one. A share ``noise`` of the subset's labels (rounded) is replaced, each by another
    label, all equally likely. A learner cannot learn from one class: a subset of one class gets
    one item of another class, and if noise makes all labels equal, one keeps its own label.
    """
    n = len(labels)
    shuffler = np.random.default_rng([seed, 0, 1])
    order, position = shuffler.permutation(n), 0
    n_swaps = np.zeros(n, np.int64)
    for member in members:
        n_held_out = n - member.size
        held_out = order[position : position + n_held_out]
        position += len(held_out)
        if len(held_out) < n_held_out:
            order = shuffler.permutation(n)
            # Items that this member already leaves out go to the end of the new permutation.
            is_held_out = np.zeros(n, bool)
            is_held_out[held_out] = True
            order = np.concatenate([order[~is_held_out[order]], order[is_held_out[order]]])
            position = n_held_out - len(held_out)
            held_out = np.concatenate([held_out, order[:position]])
        trained = np.ones(n, bool)
        trained[held_out] = False
        rng = np.random.default_rng([seed, member.number, 2])
        train = rng.permutation(np.flatnonzero(trained))
        _add_class(train, held_out, labels, n_swaps)
        yield Assignment(member, train, _noisy(labels[train], member.noise, n_classes, rng))


def _add_class(train: IntArray, held_out: IntArray, labels: IntArray, n_swaps: IntArray) -> None:
    """Replace the last item of a subset with only one class by an item of another class.

    The new item is the one added least often so far, so that items of rare classes also keep
    graders. A single item of all other classes is not added: it would be in every such subset and
    have no graders.
    """
    label = labels[train[0]]
    if len(train) < 2 or (labels[train] != label).any():
        return
    others = held_out[labels[held_out] != label]
    if len(others) > 1:
        train[-1] = others[np.argmin(n_swaps[others])]
        n_swaps[train[-1]] += 1


def _noisy(labels: IntArray, noise: float, n_classes: int, rng: np.random.Generator) -> IntArray:
    """The labels with a share of them replaced by others."""
    flipped = rng.choice(len(labels), int(np.floor(noise * len(labels) + 0.5)), replace=False)
    noisy = labels.copy()
    noisy[flipped] = (labels[flipped] + rng.integers(1, n_classes, len(flipped))) % n_classes
    others = np.flatnonzero(labels != noisy[0])
    if len(noisy) > 1 and len(others) and (noisy == noisy[0]).all():
        noisy[others[0]] = labels[others[0]]
    return noisy

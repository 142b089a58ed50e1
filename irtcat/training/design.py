"""The design of a crowd: each member's subset, wrong labels and seed, drawn before training."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from irtcat._common.checks import InputError, argument_error, is_number, is_whole
from irtcat._common.types import IntArray

SIZES = "a number of items, a share below 1, a pair (low, high) of either, or a list to draw from"
NOISES = "a share below 1, a pair (low, high), or a list to draw from"


class Member(NamedTuple):
    """One member of a crowd.

    Attributes:
        number: from 0; all random draws of the member depend only on it and the crowd's seed.
        learner: index of its learner.
        size: number of training items.
        noise: share of their labels that are replaced.
        seed: random seed of the learner.
    """

    number: int
    learner: int
    size: int
    noise: float
    seed: int


class Assignment(NamedTuple):
    """The training set of a member.

    Attributes:
        member: the member.
        train: positions of its items, in random order.
        labels: codes of its training labels, some of them wrong.
    """

    member: Member
    train: IntArray
    labels: IntArray


def draw_members(
    n_members: int, n_items: int, size: Any, noise: Any, seed: int, n_learners: int
) -> list[Member]:
    """Sizes, noise and seeds; members cycle through the learners."""
    draw_size = _size_sampler(size, n_items)
    draw_noise = _noise_sampler(noise)
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


def _noise_sampler(noise: Any) -> Callable[[np.random.Generator], float]:
    def share(value: Any) -> float:
        if not is_number(value) or not 0 <= value < 1:
            raise argument_error("label_noise", NOISES, noise)
        return float(value)

    return _sampler("label_noise", noise, share, NOISES, log=False)


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

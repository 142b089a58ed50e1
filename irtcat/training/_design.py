"""Who trains on what: each member's subset, wrong labels and seed, all known beforehand."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from irtcat._checks import InputError, argument_error
from irtcat._types import IntArray

__all__ = ["Assignment", "Member", "assignments", "check_graders", "draw_members"]

SIZES = "a number of items, a share below 1, a pair (low, high) of either, or a list to draw from"
NOISES = "a share below 1, a pair (low, high), or a list to draw from"


class Member(NamedTuple):
    """One member of a crowd.

    Attributes:
        number: from 0; all that is drawn for it depends on this and the crowd's seed alone.
        learner: which of the learners it is.
        size: how many items it is trained on.
        noise: share of their labels that are replaced.
        seed: for the learner's own draws.
    """

    number: int
    learner: int
    size: int
    noise: float
    seed: int


class Assignment(NamedTuple):
    """What a member is trained on.

    Attributes:
        member: who.
        train: positions of its items, in random order.
        labels: numbers of the labels it is given, some of them wrong.
    """

    member: Member
    train: IntArray
    labels: IntArray


def draw_members(
    n_members: int, n_items: int, size: Any, noise: Any, seed: int, n_learners: int
) -> list[Member]:
    """Sizes, noise and seeds; the learners take turns."""
    draw_size = _size_sampler(size, n_items)
    draw_noise = _noise_sampler(noise)
    members = []
    for number in range(n_members):
        sequence = np.random.SeedSequence([seed, number])
        rng = np.random.default_rng(sequence)
        size_, noise_ = draw_size(rng), draw_noise(rng)
        own = int(sequence.generate_state(1, np.uint32)[0] >> 1)
        members.append(Member(number, number % n_learners, size_, noise_, own))
    return members


def _size_sampler(size: Any, n: int) -> Callable[[np.random.Generator], int]:
    """Draws a size: of a range on the log scale, since it is ratios of sizes that matter."""

    def count(value: Any) -> float:
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 1 <= value <= n:
            return float(value)
        if isinstance(value, (float, np.floating)) and 0 < value <= 1:
            return float(max(1.0, value * n))
        raise argument_error("size", f"{SIZES}; at most {n}", size)

    draw = _sampler("size", size, count, SIZES, log=True)
    return lambda rng: min(n, max(1, int(np.floor(draw(rng) + 0.5))))


def _noise_sampler(noise: Any) -> Callable[[np.random.Generator], float]:
    def share(value: Any) -> float:
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not 0 <= value < 1:
            raise argument_error("label_noise", NOISES, noise)
        return float(value)

    return _sampler("label_noise", noise, share, NOISES, log=False)


def _sampler(
    name: str, given: Any, read: Callable[[Any], float], must: str, log: bool
) -> Callable[[np.random.Generator], float]:
    """Draws one number: the one given, one between two, or one of a list."""
    if isinstance(given, tuple):
        if len(given) != 2 or (low := read(given[0])) > (high := read(given[1])):
            raise argument_error(name, must, given)
        if log:
            return lambda rng: float(np.exp(rng.uniform(np.log(low), np.log(high))))
        return lambda rng: float(rng.uniform(low, high))
    if isinstance(given, (list, np.ndarray)):
        choices = [read(value) for value in given]
        if not choices:
            raise argument_error(name, must, given)
        return lambda rng: choices[int(rng.integers(len(choices)))]
    value = read(given)
    return lambda rng: value


def check_graders(members: Sequence[Member], n_items: int, least: int) -> None:
    """Raise where items would be left out by fewer than ``least`` members.

    The sets left out take turns through all items, so that each item is left out equally often.
    """
    left_out = sum(n_items - member.size for member in members)
    if left_out // n_items >= least:
        return
    most = left_out / n_items
    mean = sum(member.size for member in members) / len(members)
    needed = "smaller subsets"
    if mean < n_items:
        needed = f"about {int(np.ceil(least * n_items / (n_items - mean)))} members, {needed}"
    raise InputError(
        f"The `min_graders` argument must be reachable: {len(members)} members trained on "
        f"{mean:.0f} of {n_items} items leave each item to {most:.1f} of them. Got {least}. "
        f"Take {needed}, or min_graders=0 for in-sample answers."
    )


def assignments(
    members: Sequence[Member], labels: IntArray, n_classes: int, seed: int
) -> Iterator[Assignment]:
    """Each member's items and labels, in order.

    The items that members are *not* trained on are dealt out from shuffled packs of all items, one
    pack after the other: after any number of members the counts of how often each item was left
    out differ by at most one. A share ``noise`` of the subset's labels (rounded) is replaced, each
    by another label, all equally likely. A learner of one class learns nothing: a subset of one
    class takes in one item of another, and of labels that noise makes alike one keeps its own.
    """
    n = len(labels)
    pack = np.random.default_rng([seed, 0, 1])
    order, at = pack.permutation(n), 0
    taken_in = np.zeros(n, np.int64)
    for member in members:
        need = n - member.size
        held = order[at : at + need]
        at += len(held)
        if len(held) < need:
            order = pack.permutation(n)
            # What this member leaves out already goes to the end of the new pack.
            twice = np.zeros(n, bool)
            twice[held] = True
            order = np.concatenate([order[~twice[order]], order[twice[order]]])
            at = need - len(held)
            held = np.concatenate([held, order[:at]])
        trained = np.ones(n, bool)
        trained[held] = False
        rng = np.random.default_rng([seed, member.number, 2])
        train = rng.permutation(np.flatnonzero(trained))
        _take_in(train, held, labels, taken_in)
        yield Assignment(member, train, _noisy(labels[train], member.noise, n_classes, rng))


def _take_in(train: IntArray, held: IntArray, labels: IntArray, taken_in: IntArray) -> None:
    """Put an item of another class in place of the last one of a subset that has but one class.

    It is the one that was so taken in least often, so that rare classes are left to members, too.
    The only item of all other classes stays where it is: in every subset, nobody would grade it.
    """
    mine = labels[train[0]]
    if len(train) < 2 or (labels[train] != mine).any():
        return
    others = held[labels[held] != mine]
    if len(others) > 1:
        train[-1] = others[np.argmin(taken_in[others])]
        taken_in[train[-1]] += 1


def _noisy(labels: IntArray, noise: float, n_classes: int, rng: np.random.Generator) -> IntArray:
    """Labels of which a share is replaced by others."""
    flipped = rng.choice(len(labels), int(np.floor(noise * len(labels) + 0.5)), replace=False)
    noisy = labels.copy()
    noisy[flipped] = (labels[flipped] + rng.integers(1, n_classes, len(flipped))) % n_classes
    own = np.flatnonzero(labels != noisy[0])
    if len(noisy) > 1 and len(own) and (noisy == noisy[0]).all():
        noisy[own[0]] = labels[own[0]]
    return noisy

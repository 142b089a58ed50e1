"""What samplers draw from: a filter, a curriculum or the online selector, as rows of a data set."""

import abc
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_count, shorten
from irtcat._common.positions import first_repeated
from irtcat._common.types import IntArray
from irtcat.training.curriculum import Curriculum
from irtcat.training.filters import Filtered
from irtcat.training.online import Selector

BLOCKS_KEPT = 64
"""Blocks of prompts that a sampler remembers, so that `state_dict` can go back by as many.

DataLoaders load fewer ahead: workers times the prefetch factor, which is 2 by default."""


class Rows:
    """Which row of a data set holds which item.

    Args:
        items: ids of the items.
        ids: the item id of each row; None if row k is item k.
        needed: positions of the items that need a row.
    """

    def __init__(self, items: Any, ids: Any, needed: IntArray) -> None:
        self._of_item = self._of_row = np.arange(len(items))
        if ids is None:
            return
        rows = pd.Index(np.asarray(ids)).astype(str)
        names = pd.Index(np.asarray(items)).astype(str)
        if (repeated := first_repeated(rows)) is not None:
            raise argument_error("ids", "ids of rows, each once", f"{repeated!r} twice")
        self._of_item = rows.get_indexer(names)
        missing = needed[self._of_item[needed] < 0]
        if len(missing):
            raise argument_error(
                "ids", "ids of rows for all items", f"none for {shorten(names[missing].to_numpy())}"
            )
        self._of_row = np.full(len(rows), -1)
        known = np.flatnonzero(self._of_item >= 0)
        self._of_row[self._of_item[known]] = known

    def of_items(self, positions: IntArray) -> IntArray:
        """Rows of items by position."""
        return self._of_item[positions]

    def items_of(self, rows: IntArray) -> IntArray:
        """Positions of the items in these rows."""
        n = len(self._of_row)
        outside = rows[(rows < 0) | (rows >= n)]
        if len(outside):
            raise argument_error("positions", f"rows from 0 to {n - 1}", outside)
        items = self._of_row[rows]
        if (items < 0).any():
            raise argument_error("positions", "rows with an item", rows[items < 0])
        return items


class Source(abc.ABC):
    """Epochs of rows.

    Attributes:
        original: the filter, curriculum or selector.
        counts: whether it counts its epochs itself.
        sized: whether all epochs are equally long.
        kept: how many of the rows already drawn are remembered; 0 for all of an epoch.
    """

    original: Any
    counts = True
    sized = True
    kept = 0

    @property
    def epoch(self) -> int:
        """Number of the next epoch."""
        return 0

    def begin(self, epoch: int) -> IntArray:
        """The rows of an epoch that are known when it begins."""
        return np.zeros(0, int)

    @abc.abstractmethod
    def size(self, upcoming: bool = False) -> int:
        """Number of rows of the epoch in progress, or of the next one."""

    def more(self, n: int, order: IntArray) -> IntArray:
        """At least n rows after those known: the first ones again."""
        return np.resize(order, n)

    @abc.abstractmethod
    def state(self) -> Any:
        """What `restore` needs."""

    @abc.abstractmethod
    def restore(self, state: Any, epoch: int, begun: bool) -> IntArray:
        """Go to a state; returns the rows of its epoch as `begin` does."""

    def probe(self) -> IntArray:
        """Rows whose answers `update` needs before the next epoch."""
        return np.zeros(0, int)

    @abc.abstractmethod
    def update(self, answers: np.ndarray, rows: IntArray, trials: np.ndarray | None) -> None:
        """Record answers."""

    def rollouts(self, rewards: np.ndarray, rows: IntArray) -> None:
        """Record the reward of each rollout, with the row of its prompt."""
        kind = type(self.original).__name__
        raise InputError(f"Rewards of rollouts update a Selector. Got a {kind}.")


class _Filter(Source):
    counts = False

    def __init__(self, kept: Filtered, ids: Any, shuffle: bool, seed: int) -> None:
        self.original = kept
        rows = Rows(kept.table.index, ids, kept.indices)
        self._rows = rows.of_items(kept.indices)
        self._shuffle, self._seed = bool(shuffle), int(seed)
        if not len(self._rows):
            raise argument_error("source", "a filter that keeps an item", "none")

    def begin(self, epoch: int) -> IntArray:
        if not self._shuffle:
            return self._rows
        return np.random.default_rng([self._seed, epoch]).permutation(self._rows)

    def size(self, upcoming: bool = False) -> int:
        return len(self._rows)

    def state(self) -> Any:
        return len(self._rows)

    def restore(self, state: Any, epoch: int, begun: bool) -> IntArray:
        if state != len(self._rows):
            must = f"of a filter that keeps {len(self._rows)} items"
            raise argument_error("state", must, state)
        return self.begin(epoch)

    def update(self, answers: np.ndarray, rows: IntArray, trials: np.ndarray | None) -> None:
        raise InputError("A filter does not change with answers. Pass a curriculum or a selector.")


class _Curriculum(Source):
    sized = False

    def __init__(self, curriculum: Curriculum, ids: Any) -> None:
        names = curriculum.items.index
        self._curriculum = self.original = curriculum
        self._map = Rows(names, ids, np.arange(len(names)))
        self._before: dict[str, Any] | None = None
        self._size = 0

    @property
    def epoch(self) -> int:
        return self._curriculum.epoch

    def begin(self, epoch: int) -> IntArray:
        before = self._curriculum.state_dict()
        try:
            order = self._map.of_items(self._curriculum.next())
        except StopIteration:
            n = self._curriculum.epoch
            raise InputError(f"The curriculum has ended: it has {n} epochs.") from None
        self._before, self._size = before, len(order)
        return order

    def size(self, upcoming: bool = False) -> int:
        return len(self._curriculum.peek()) if upcoming else self._size

    def state(self) -> Any:
        return {"before": self._before, "now": self._curriculum.state_dict()}

    def restore(self, state: Any, epoch: int, begun: bool) -> IntArray:
        order = np.zeros(0, int)
        if begun:  # the answers since its beginning do not change an epoch
            self._curriculum.restore(state["before"])
            order = self.begin(epoch)
        self._curriculum.restore(state["now"])
        return order

    def probe(self) -> IntArray:
        return self._map.of_items(self._curriculum.probe)

    def update(self, answers: np.ndarray, rows: IntArray, trials: np.ndarray | None) -> None:
        if trials is not None:
            raise argument_error("trials", "None for a curriculum", "numbers")
        items = self._map.items_of(rows)
        # With a share for every process a probe may come in another order: ability does not change.
        order = np.argsort(items, kind="stable")
        answers, items = answers[order], items[order]
        right = answers.astype(bool) if np.isin(answers, (0.0, 1.0)).all() else answers
        self._curriculum.update(right, items)


class _Selector(Source):
    def __init__(self, selector: Selector, ids: Any, block: int, steps: int | None) -> None:
        names = selector.item_ids
        check_count("block", block, 1, len(names))
        if steps is not None:
            check_count("steps", steps)
        self._selector = self.original = selector
        self._names = names
        self._block, self._steps = block, steps or max(1, len(names) // block)
        self._map = Rows(names, ids, np.arange(len(names)))
        self.kept = BLOCKS_KEPT * block

    def size(self, upcoming: bool = False) -> int:
        return self._block * self._steps

    def more(self, n: int, order: IntArray) -> IntArray:
        # Chosen block by block: each choice moves the random stream.
        ids = np.concatenate(
            [self._selector.next(self._block) for _ in range(-(-n // self._block))]
        )
        return self._map.of_items(self._selector._find(ids))

    def state(self) -> Any:
        return self._selector.state_dict()

    def restore(self, state: Any, epoch: int, begun: bool) -> IntArray:
        self._selector.load_state_dict(state)
        return np.zeros(0, int)

    def update(self, answers: np.ndarray, rows: IntArray, trials: np.ndarray | None) -> None:
        self._selector.update(self._names[self._map.items_of(rows)], answers, trials)

    def rollouts(self, rewards: np.ndarray, rows: IntArray) -> None:
        self._selector.update_rollouts(self._names[self._map.items_of(rows)], rewards)


def source_of(
    source: Any, ids: Any, block: int, steps: int | None, shuffle: bool, seed: int
) -> Source:
    """The source of a sampler.

    Raises:
        InputError: for another type.
    """
    check_count("seed", seed, 0)
    if isinstance(source, Selector):
        return _Selector(source, ids, block, steps)
    if steps is not None:
        raise argument_error("steps", "None but for a Selector", steps)
    if isinstance(source, Filtered):
        return _Filter(source, ids, shuffle, seed)
    if isinstance(source, Curriculum):
        return _Curriculum(source, ids)
    kind = type(source).__name__
    raise argument_error("source", "a Filtered, a Curriculum or a Selector", kind)

"""A batch of groups with a gradient: prompts are chosen, filtered and made up for (backfill)."""

import math
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_count, is_number
from irtcat._common.positions import first_repeated
from irtcat._common.types import FloatArray, IntArray
from irtcat.training.online.selector import Selector

MOST_EXTRA = 3.0
"""Prompts asked for in a round, for each one that is missing, at most: DAPO's dynamic sampling
generates three times as many groups as it keeps."""


class Batch:
    """A batch of n groups whose rewards differ: prompts are asked for until there are enough.

    As DAPO's dynamic sampling, with prompts that are chosen, and as many at a time as are expected
    to be needed. Within a batch the policy stays the same. The rewards of all groups, also of those
    that are left out, update the selector once, when the batch is finished.

    Args:
        selector: chooses the prompts, and learns from them.
        n: number of groups to keep.
        min_sd: groups are kept whose rewards have a larger SD than this.
        max_rounds: the most rounds; the batch may then be smaller.

    Attributes:
        n: number of groups to keep.
        rounds: rounds so far.
        rollouts: rewards so far, also of groups that were left out.

    Raises:
        InputError: for numbers out of range.

    Example:
        >>> selector = Selector(100, seed=0)
        >>> rng = np.random.default_rng(0)
        >>> batch = Batch(selector, 8)
        >>> while not batch.is_full:
        ...     ids = batch.ask()
        ...     p = 0.05 + 0.9 * (ids[:, None] % 2)
        ...     batch.add(ids, rng.random((len(ids), 8)) < p)
        >>> ids, rewards = batch.finish()
        >>> len(ids), selector.step
        (8, 1)

    References:
        Yu et al. (2025), DAPO: an open-source LLM reinforcement learning system at scale, arXiv
        2503.14476, section 3.2.
    """

    def __init__(
        self, selector: Selector, n: int, *, min_sd: float = 0.0, max_rounds: int = 10
    ) -> None:
        check_count("n", n, 1, selector.n_choices)
        check_count("max_rounds", max_rounds)
        if not is_number(min_sd) or min_sd < 0:
            raise argument_error("min_sd", "a number of at least 0", min_sd)
        self.n, self.rounds, self.rollouts = n, 0, 0
        self._selector, self._version = selector, selector.step
        self._min_sd, self._max_rounds = float(min_sd), max_rounds
        self._ids: list[Any] = []
        self._rewards: list[FloatArray] = []
        self._keeps: list[bool] = []
        self._finished = False

    def __repr__(self) -> str:
        kept = min(sum(self._keeps), self.n)
        return (
            f"Batch({kept} of {self.n} groups after {self.rounds} rounds, {len(self._ids)} tried)"
        )

    @property
    def is_full(self) -> bool:
        """Whether there are enough groups, or no more rounds or prompts."""
        enough = sum(self._keeps) >= self.n
        return (
            enough or self.rounds >= self._max_rounds or len(self._ids) >= self._selector.n_choices
        )

    def ask(self) -> np.ndarray:
        """The prompts of the next round: as many as are expected to fill the batch.

        Raises:
            InputError: if the batch is full.
        """
        if self.is_full:
            raise InputError("The batch is full. Call finish().")
        selector, tried = self._selector, self._ids
        missing = self.n - sum(self._keeps)
        most = min(selector.n_choices - len(tried), math.ceil(MOST_EXTRA * missing))
        useful = selector.gradient_probability(selector.next(most, without=tried))
        enough = int(np.searchsorted(np.cumsum(useful), missing)) + 1
        self.rounds += 1
        # Chosen anew: the first of a choice are of the first topics, and none drawn at random.
        return selector.next(max(min(enough, most), min(missing, most)), without=tried)

    def add(self, ids: Any, rewards: Any) -> None:
        """Record the rewards of prompts.

        Args:
            ids: distinct prompts, none twice in a batch.
            rewards: prompts x rollouts; NaN: none.

        Raises:
            InputError: as `Selector.update`, or for a prompt that has rewards already.
        """
        matrix = self._selector.read_rewards(ids, rewards)
        names = np.asarray(ids).tolist()
        if (repeated := first_repeated(pd.Index(self._ids + names))) is not None:
            raise argument_error("ids", "prompts without rewards in this batch", repeated)
        low, high = self._selector.reward_range
        for name, row in zip(names, matrix, strict=True):
            known = row[~np.isnan(row)]
            sd = float(known.std()) if len(known) > 1 else 0.0
            self._ids.append(name)
            self._rewards.append(row)
            self._keeps.append(sd > max(self._min_sd, 1e-6 * (high - low)))
            self.rollouts += len(known)

    def kept(self) -> tuple[np.ndarray, list[FloatArray]]:
        """Ids and rewards of the groups to train on, at most n."""
        rows: IntArray = np.flatnonzero(self._keeps)[: self.n]
        ids = np.array([self._ids[row] for row in rows], dtype=self._selector.item_ids.dtype)
        return ids, [self._rewards[row] for row in rows]

    def finish(self) -> tuple[np.ndarray, list[FloatArray]]:
        """Update the selector with all rewards, once, and return the groups to train on.

        Raises:
            InputError: if it was finished before, or nothing was added.
        """
        if self._finished or not self._ids:
            raise InputError("A batch is finished once, after rewards were added.")
        self._selector.update(self._ids, self._rewards, version=self._version)
        self._finished = True
        return self.kept()

"""The outcomes of a step: rewards as users pass them, and what they say of each prompt."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, brief, float_array
from irtcat._common.types import BoolArray, FloatArray, IntArray

LEAST_SQUARES = 1e-9
"""Sums of squares up to this one are rounding errors: the group has no gradient."""


@dataclass(frozen=True)
class Outcomes:
    """What a step has brought, each prompt once.

    Attributes:
        rows: positions of the prompts.
        right: sum of the rewards, as shares of their range.
        trials: number of rollouts.
        within: sum of squares within the groups; None if only the sums are known.
        most: the same if all rewards had been the lowest or highest.
        version: step of the selector at which the prompts were chosen.
    """

    rows: IntArray
    right: FloatArray
    trials: FloatArray
    within: FloatArray | None
    most: FloatArray | None
    version: IntArray

    @classmethod
    def of_rewards(cls, rows: IntArray, rewards: FloatArray, version: IntArray) -> "Outcomes":
        """Those of the rewards of groups (prompts x rollouts, NaN: none), as shares of the range.

        Example:
            >>> rewards = np.array([[1.0, 0.0], [0.5, 0.5]])
            >>> outcomes = Outcomes.of_rewards(np.arange(2), rewards, np.zeros(2, int))
            >>> outcomes.right.tolist(), outcomes.within.tolist(), outcomes.most.tolist()
            ([1.0, 1.0], [0.5, 0.0], [0.5, 0.5])
        """
        known = ~np.isnan(rewards)
        trials = known.sum(axis=1).astype(float)
        filled = np.where(known, rewards, 0.0)
        right = filled.sum(axis=1)
        mean = right / np.maximum(trials, 1)
        within = np.where(known, (filled - mean[:, None]) ** 2, 0.0).sum(axis=1)
        most = trials * mean * (1 - mean)
        within = np.where(np.abs(within - most) <= LEAST_SQUARES, most, within)
        within = np.where(within <= LEAST_SQUARES, 0.0, within)
        return cls(rows=rows, right=right, trials=trials, within=within, most=most, version=version)

    @property
    def has_gradient(self) -> BoolArray:
        """Whether the rewards of each prompt differ, as far as it is known."""
        if self.within is not None:
            return self.within > LEAST_SQUARES
        return (self.right > 0) & (self.right < self.trials)

    @property
    def strength(self) -> FloatArray:
        """4 times the variance of the rewards of each prompt: 1 if half are right."""
        share = self.right / self.trials
        if self.within is None:
            return 4 * share * (1 - share)
        return 4 * self.within / self.trials

    def pooled(self) -> "Outcomes":
        """Those of prompts with rollouts; the outcomes of prompts that repeat are added up."""
        unique, position = np.unique(self.rows, return_inverse=True)
        n, columns = len(unique), dict(vars(self))
        if n < len(self.rows):
            version = np.zeros(n, np.int64)
            version[position] = self.version
            if (version[position] != self.version).any():
                advice = "Pass those of each version in an update of its own."
                raise argument_error("version", "one for each prompt", "two for one prompt", advice)
            for name in ("right", "trials", "within", "most"):
                if columns[name] is not None:
                    columns[name] = np.bincount(position, columns[name], n)
            columns.update(rows=unique, version=version)
        some = columns["trials"] > 0
        kept: dict[str, Any] = {n: None if x is None else x[some] for n, x in columns.items()}
        return Outcomes(**kept)


def read_outcomes(
    successes: Any,
    trials: Any,
    *,
    rows: IntArray,
    names: np.ndarray,
    version: IntArray,
    reward_range: tuple[float, float],
    group_size: int,
) -> Outcomes:
    """The outcomes of the prompts with rollouts, each once (see `Selector.update`)."""
    if trials is None and _is_matrix(successes):
        low, high = reward_range
        rewards = (read_rewards(successes, names, reward_range) - low) / (high - low)
        return Outcomes.of_rewards(rows, rewards, version).pooled()
    right, total = _read_counts(successes, trials, names, group_size)
    sums = {"right": right, "trials": total}
    return Outcomes(rows=rows, within=None, most=None, version=version, **sums).pooled()


def read_rewards(rewards: Any, names: np.ndarray, reward_range: tuple[float, float]) -> FloatArray:
    """Rewards of prompts with these names as prompts x rollouts, NaN where a row is shorter."""
    try:
        rows = [np.asarray(row, float) for row in rewards]
    except (TypeError, ValueError):
        raise argument_error("successes", "rewards, prompts x rollouts", rewards) from None
    if len(rows) != len(names) or any(row.ndim != 1 for row in rows):
        must = f"rewards of {len(names)} prompts x rollouts, a row for each id"
        raise argument_error("successes", must, f"{len(rows)} rows")
    matrix = np.full((len(rows), max(map(len, rows), default=1)), np.nan)
    for values, row in zip(matrix, rows, strict=True):
        values[: len(row)] = row
    low, high = reward_range
    bad = (matrix < low - 1e-9) | (matrix > high + 1e-9)
    if bad.any():
        k, column = np.argwhere(bad)[0]
        got = f"{matrix[k, column]:g} for {brief(names[k])}"
        advice = "Pass another `reward_range` to the selector."
        raise argument_error("successes", f"rewards from {low:g} to {high:g}", got, advice)
    return np.clip(matrix, low, high)


def _read_counts(
    successes: Any, trials: Any, names: np.ndarray, group_size: int
) -> tuple[FloatArray, FloatArray]:
    """Successes and trials."""
    n = len(names)
    right = as_numbers("successes", successes, n)
    if trials is None:
        must = "mean scores in [0, 1], or counts with `trials`"
        most: FloatArray = np.ones(n)
        total: FloatArray = np.full(n, float(group_size))
    else:
        total = as_numbers("trials", np.full(n, trials) if np.ndim(trials) == 0 else trials, n)
        bad = ~np.isfinite(total) | (total < 0) | (total != np.floor(total))
        if bad.any():
            k = int(np.argmax(bad))
            got = f"{total[k]:g} for {brief(names[k])}"
            raise argument_error("trials", "whole numbers of at least 0", got)
        must, most = "numbers between 0 and the trials", total
    bad = ~((right >= 0) & (right <= most + 1e-9))
    if bad.any():
        k = int(np.argmax(bad))
        raise argument_error("successes", must, f"{right[k]:g} for {brief(names[k])}")
    return right * total if trials is None else np.minimum(right, total), total


def _is_matrix(values: Any) -> bool:
    """Whether values have a row for each prompt, perhaps of different lengths."""
    if isinstance(values, (list, tuple)):
        return len(values) > 0 and np.ndim(values[0]) == 1
    return np.ndim(values) == 2


def as_numbers(name: str, values: Any, n: int) -> FloatArray:
    """A vector of n numbers, or raise."""
    vector = float_array(name, "numbers", values)
    if vector.shape != (n,):
        raise argument_error(name, f"{n} numbers, one for each id", f"shape {vector.shape}")
    return vector

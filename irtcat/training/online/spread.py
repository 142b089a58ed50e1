"""How much rewards differ within a group, compared with rewards of 0 and 1 of the same mean.

Rewards from 0 to 1 with mean m have a variance of at most m (1 - m), which only rewards of 0 and 1
reach. A prompt whose rollouts all get .5 has the variance 0, and no gradient. The spread of a
prompt is its share of the largest variance,

    spread = (weight s + sum of squares within groups) / (weight + sum of n m (1 - m)),

with the spread s of all prompts together. Of right and wrong answers it is 1 whatever the data.
"""

import numpy as np

from irtcat._common.types import FloatArray, IntArray

WEIGHT = 1.0
"""Weight of all prompts in the spread of one: half a group of 8 at a mean of .5. Not tuned."""

KEPT = 0.9
"""What earlier groups of a prompt still count when it gets another one, since rewards change with
the policy. Not tuned."""

LEAST_SQUARES = 1e-9
"""Sums of squares up to this one are rounding errors: the group has no gradient."""


class Spread:
    """The sums of all prompts.

    Attributes:
        within: sum of squares within the groups of each prompt.
        most: the same if all rewards had been 0 or 1.
    """

    def __init__(self, within: np.ndarray, most: np.ndarray) -> None:
        self.within, self.most = within.astype(np.float32), most.astype(np.float32)
        self._set_mean()

    @classmethod
    def start(cls, n: int) -> "Spread":
        """Prompts without rewards."""
        return cls(np.zeros(n, np.float32), np.zeros(n, np.float32))

    @property
    def is_equal(self) -> bool:
        """Whether all rewards were 0 or 1, so that all spreads are 1."""
        return self._mean == 1.0

    @property
    def n_bytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.within.nbytes + self.most.nbytes)

    def add(self, rows: IntArray, within: FloatArray, most: FloatArray) -> None:
        """Add the groups of a step; each prompt occurs once."""
        for sums, new in ((self.within, within), (self.most, most)):
            sums[rows] = KEPT * sums[rows] + new
        if not self.is_equal or (np.abs(within - most) > LEAST_SQUARES).any():
            self._set_mean()

    def _set_mean(self) -> None:
        """The spread of all prompts together: exactly 1 for right and wrong answers."""
        within, most = self.within.sum(dtype=float), self.most.sum(dtype=float)
        mean = (WEIGHT + within) / (WEIGHT + most)
        self._mean = 1.0 if abs(mean - 1) < 1e-6 else float(mean)

    def of(self, rows: IntArray | slice = slice(None)) -> FloatArray:
        """The spread of prompts, from 0 to 1."""
        share = (WEIGHT * self._mean + self.within[rows]) / (WEIGHT + self.most[rows])
        return np.minimum(share, 1.0)


def sums_of_groups(rewards: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sum, number, squares within and largest squares of groups (prompts x rollouts, NaN: none).

    Example:
        >>> [x.tolist() for x in sums_of_groups(np.array([[1.0, 0.0], [0.5, 0.5]]))]
        [[1.0, 1.0], [2.0, 2.0], [0.5, 0.0], [0.5, 0.5]]
    """
    known = ~np.isnan(rewards)
    total = known.sum(axis=1).astype(float)
    filled = np.where(known, rewards, 0.0)
    right = filled.sum(axis=1)
    mean = right / np.maximum(total, 1)
    within = np.where(known, (filled - mean[:, None]) ** 2, 0.0).sum(axis=1)
    most = total * mean * (1 - mean)
    within = np.where(np.abs(within - most) <= LEAST_SQUARES, most, within)
    return right, total, np.where(within <= LEAST_SQUARES, 0.0, within), most

"""The difficulty filters, shared by item selection and training."""

from typing import NamedTuple

import numpy as np

from irtcat._common.types import BoolArray, FloatArray


class Rule(NamedTuple):
    """A filter: the statistic of an item that is compared with tau, and the side to keep.

    Attributes:
        statistic: "b", the difficulty; "size", its absolute value; or "pc", the share of right
            answers.
        below: whether values below tau are kept (else those above).
        keeps: a description of the selected items.
    """

    statistic: str
    below: bool
    keeps: str

    def statistic_of(self, value: FloatArray) -> FloatArray:
        """The statistic to compare with tau, from difficulties or shares right."""
        return np.abs(value) if self.statistic == "size" else value

    def passes(self, statistic: FloatArray, tau: float | FloatArray) -> BoolArray:
        """Whether items pass; those without a value (NaN) do not."""
        return statistic < tau if self.below else statistic > tau

    def cost(self, statistic: FloatArray) -> FloatArray:
        """The sort key for selecting items, lowest first."""
        return statistic if self.below else -statistic


class Band(NamedTuple):
    """A filter that keeps the items whose value is between two bounds, both included.

    Attributes:
        low: the lower bound.
        high: the upper bound.
        statistic: see `Rule`; shares right unless the user names a column.
    """

    low: float
    high: float
    statistic: str = "pc"

    def statistic_of(self, value: FloatArray) -> FloatArray:
        """The value itself."""
        return value

    def passes(self, statistic: FloatArray, tau: float | None = None) -> BoolArray:
        """Whether items pass; those without a value (NaN) do not."""
        return (statistic >= self.low) & (statistic <= self.high)

    def cost(self, statistic: FloatArray) -> FloatArray:
        """The distance from the middle of the band."""
        return np.abs(statistic - (self.low + self.high) / 2)


RULES: dict[str, Rule] = {
    "avi": Rule("size", True, "items of medium difficulty, |b| < tau"),
    "avo": Rule("size", False, "the easiest and the hardest items, |b| > tau"),
    "ub": Rule("b", True, "the easiest items, b < tau"),
    "lb": Rule("b", False, "the hardest items, b > tau"),
    "pcub": Rule("pc", True, "the hardest items, which few get right, pc < tau"),
    "pclb": Rule("pc", False, "the easiest items, which many get right, pc > tau"),
}
"""The filters of "Data set filtering" (Lalor et al. 2024) by name.

pc is the share of the crowd that is right: high for easy items, whose b is low, so that ``pcub``
selects hard items and ``ub`` easy ones."""

"""The difficulty filters in one table, shared by selection (which items to run) and training."""

from typing import NamedTuple

import numpy as np

from irtcat._types import BoolArray, FloatArray

__all__ = ["RULES", "Rule"]


class Rule(NamedTuple):
    """A filter: which number of an item is held against tau, and which side is kept.

    Attributes:
        statistic: "b", the difficulty; "size", its absolute value; or "pc", the share of right
            answers.
        below: whether values below tau are kept (else those above).
        keeps: what stays, in words.
    """

    statistic: str
    below: bool
    keeps: str

    def statistic_of(self, value: FloatArray) -> FloatArray:
        """The number held against tau, of the difficulties or the shares right."""
        return np.abs(value) if self.statistic == "size" else value

    def passes(self, statistic: FloatArray, tau: float | FloatArray) -> BoolArray:
        """Whether items are on the kept side of tau; those without a value are not."""
        with np.errstate(invalid="ignore"):
            kept: BoolArray = statistic < tau if self.below else statistic > tau
        return kept

    def cost(self, statistic: FloatArray) -> FloatArray:
        """The number by which items are kept, the lowest first."""
        return statistic if self.below else -statistic


RULES: dict[str, Rule] = {
    "avi": Rule("size", True, "items of middling difficulty, |b| < tau"),
    "ub": Rule("b", True, "the easy items, b < tau"),
    "pcub": Rule("pc", True, "the items that few get right, pc < tau"),
    "avo": Rule("size", False, "items at both ends, |b| > tau"),
    "lb": Rule("b", False, "the hard items, b > tau"),
    "pclb": Rule("pc", False, "the items that many get right, pc > tau"),
}
"""The filters of "Data set filtering" (Lalor et al. 2024) by name.

pc is the share of the crowd that is right: high for easy items where b is low, so that ``pcub``
keeps hard items and ``ub`` easy ones."""

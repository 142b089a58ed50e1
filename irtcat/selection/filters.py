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
        with np.errstate(invalid="ignore"):
            passed: BoolArray = statistic < tau if self.below else statistic > tau
        return passed

    def cost(self, statistic: FloatArray) -> FloatArray:
        """The sort key for selecting items, lowest first."""
        return statistic if self.below else -statistic


RULES: dict[str, Rule] = {
    "avi": Rule("size", True, "items of middling difficulty, |b| < tau"),
    "avo": Rule("size", False, "items at both ends, |b| > tau"),
    "ub": Rule("b", True, "the easy items, b < tau"),
    "lb": Rule("b", False, "the hard items, b > tau"),
    "pcub": Rule("pc", True, "the items that few get right, pc < tau"),
    "pclb": Rule("pc", False, "the items that many get right, pc > tau"),
}
"""The filters of "Data set filtering" (Lalor et al. 2024) by name.

pc is the share of the crowd that is right: high for easy items, whose b is low, so that ``pcub``
selects hard items and ``ub`` easy ones."""

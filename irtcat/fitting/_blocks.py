"""Rows of the responses in blocks: in memory, of each device, or read from a file."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array

__all__ = ["RowBlock"]


class RowBlock(NamedTuple):
    """Rows of the responses that one call of an E-step passes over.

    Attributes:
        rows: their place among all rows.
        x: the responses; rows after the last are empty.
        weights: how many subjects each row stands for.
        group: group of each row.
    """

    rows: slice
    x: Array
    weights: Array
    group: np.ndarray

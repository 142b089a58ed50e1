"""The items that were chosen."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.notebook import card
from irtcat._common.types import FloatArray
from irtcat._files.csv import write_csv

LISTED = "file"
"""The strategy of items from a file that does not say how they were chosen."""


@dataclass(frozen=True, eq=False)
class Request:
    """How items were chosen, but for the responses: the choice can be repeated with others.

    Attributes:
        strategy: name of the strategy.
        n_items: how many items, at most.
        seed: seed of the choice.
        task: a `Task` with the items and constraints, without responses; None for any items without
            constraints.
        first: the items that these were added to, in a choice of two stages.
        expect: what was expected of new subjects, where there is no ``task``.
    """

    strategy: str
    n_items: int
    seed: int
    task: Any = None
    first: "Subset | None" = None
    expect: str | None = None


@dataclass(frozen=True, eq=False)
class Subset:
    """The items chosen to be run.

    Attributes:
        item_ids: the chosen items, best first where the strategy ranks.
        weights: weight of each in an estimate of the full score; they sum to 1.
        probabilities: inclusion probabilities; NaN for items chosen deterministically.
        criterion: value of the strategy's criterion; NaN where it has none.
        strategy: how they were chosen.
        seed: seed of the choice.
        request: how the items were chosen, if that needs no bank; else None. `rechoose` repeats the
            choice with other responses.
        reach: for a probability sample, the number of items that could be drawn; else None.
        expect: what was expected of new subjects, as in `irtcat.select`; None if nothing was.
        in_turn: whether the items are in the order of draws one after another, each with equal
            probabilities from all that are left ("random" without constraints).
    """

    item_ids: np.ndarray
    weights: FloatArray
    probabilities: FloatArray
    criterion: FloatArray
    strategy: str
    seed: int
    request: Request | None = field(default=None, repr=False)
    reach: int | None = None
    expect: str | None = None
    in_turn: bool = False

    def __len__(self) -> int:
        return len(self.item_ids)

    def __repr__(self) -> str:
        expected = "" if self.expect is None else f" for {self.expect} subjects"
        return f"Subset({len(self)} items by {self.strategy}{expected})"

    def _repr_html_(self) -> str:
        """The first items."""
        frame = self.to_frame()
        return card(repr(self), frame, frame.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Subset):
            return NotImplemented
        mine, its = ((one.strategy, one.seed, one.expect, one.in_turn) for one in (self, other))
        return mine == its and self.to_frame().equals(other.to_frame())

    def __hash__(self) -> int:
        return hash((self.strategy, self.seed, *self.item_ids))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the items to a CSV file, atomically; `irtcat.load` reads it.

        Args:
            path: the file; an existing one is replaced.

        Raises:
            InputError: it cannot be written.
        """
        frame = self.to_frame().assign(strategy=self.strategy, seed=self.seed)
        if self.expect is not None:
            frame["expect"] = self.expect
        if self.in_turn:
            frame["draw"] = np.arange(1, len(frame) + 1)
        return write_csv(frame, path)

    def to_frame(self) -> pd.DataFrame:
        """One row per chosen item: weight, probability, criterion."""
        columns = {
            "weight": self.weights,
            "probability": self.probabilities,
            "criterion": self.criterion,
        }
        return pd.DataFrame(columns, index=pd.Index(self.item_ids, dtype=object, name="item"))

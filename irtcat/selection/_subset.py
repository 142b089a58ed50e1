"""The items that were chosen."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from irtcat._types import FloatArray

__all__ = ["Request", "Subset"]


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
    """

    strategy: str
    n_items: int
    seed: int
    task: Any = None
    first: "Subset | None" = None


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
    """

    item_ids: np.ndarray
    weights: FloatArray
    probabilities: FloatArray
    criterion: FloatArray
    strategy: str
    seed: int
    request: Request | None = field(default=None, repr=False)
    reach: int | None = None

    def __len__(self) -> int:
        return len(self.item_ids)

    def __repr__(self) -> str:
        return f"Subset({len(self)} items by {self.strategy})"

    def to_frame(self) -> pd.DataFrame:
        """One row per chosen item: weight, probability, criterion."""
        columns = {
            "weight": self.weights,
            "probability": self.probabilities,
            "criterion": self.criterion,
        }
        return pd.DataFrame(columns, index=pd.Index(self.item_ids, dtype=object, name="item"))

"""Input and output of a selection strategy."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from irtcat._checks import InputError, check_choice
from irtcat._csv import write_csv
from irtcat._html import card
from irtcat._matrix import observed, row_blocks
from irtcat._types import FloatArray, IntArray
from irtcat.bank import ItemBank, one_ability
from irtcat.responses import Responses
from irtcat.selection._constraints import Constraints
from irtcat.selection._dense import Scores, centred_scores

__all__ = ["Choice", "Request", "Strategy", "Subset", "Task", "share_right"]

NEEDS = ("bank", "responses", "groups", "proportions")


class Choice(NamedTuple):
    """Items chosen, in order.

    Attributes:
        chosen: positions in the task's items.
        criterion: value of the strategy's criterion for each (NaN where it has none).
        probabilities: inclusion probability of each; None where the choice is deterministic.
        weights: weight of each in a mean; None for equal weights.
        reach: number of items with a positive inclusion probability; None if not known.
    """

    chosen: IntArray
    criterion: FloatArray
    probabilities: FloatArray | None = None
    weights: FloatArray | None = None
    reach: int | None = None


def share_right(responses: Responses) -> FloatArray:
    """Mean score of each item, with graded answers on the scale from 0 to 1; NaN without answers.

    Example:
        >>> share_right(Responses.from_array([[1, 0, -1], [1, 1, -1]])).tolist()
        [1.0, 0.5, nan]
    """
    top = 1.0 if responses.is_fractional else max(responses.n_categories - 1, 1)
    count, total = np.zeros((2, responses.n_items))
    for rows in row_blocks(responses.shape):
        is_observed = observed(responses.values[rows])
        count += is_observed.sum(axis=0)
        total += np.where(is_observed, responses.values[rows], 0).sum(axis=0, dtype=float)
    return np.divide(total, count * top, out=np.full(len(count), np.nan), where=count > 0)


@dataclass(frozen=True, eq=False)
class Task:
    """A request for items.

    Attributes:
        item_ids: all items.
        limits: number of items, and constraints on the choice.
        bank: calibrated items in the order of ``item_ids``, or None.
        responses: calibration responses in the order of ``item_ids``, or None.
        rng: source of randomness.
        strategy: the strategy's name, for messages.
        theta: target ability, or None.
        theta_range: lowest and highest ability of a range, or None.
        tau: threshold of a filter, or None.
        share: share of the items that a mixture samples.
        groups: number of each item's group, or None.
    """

    item_ids: np.ndarray
    limits: Constraints
    bank: ItemBank | None
    responses: Responses | None
    rng: np.random.Generator
    strategy: str
    theta: float | None = None
    theta_range: tuple[float, float] | None = None
    tau: float | None = None
    share: float = 0.5
    groups: IntArray | None = None

    @property
    def any_bank(self) -> ItemBank:
        """The bank, of any number of abilities; raises an error without one."""
        if self.bank is None:
            raise InputError(
                f"The {self.strategy} strategy needs a calibrated bank. Got none. "
                "Calibrate one with irtcat.fit(responses).bank."
            )
        return self.bank

    @property
    def need_bank(self) -> ItemBank:
        """The bank of one ability; raises an error without one."""
        one_ability(self.any_bank, f"the {self.strategy} strategy")
        return self.any_bank

    @property
    def need_responses(self) -> Responses:
        """The calibration responses; raises an error without them."""
        if self.responses is None:
            raise InputError(
                f"The {self.strategy} strategy needs calibration responses. Got none. "
                "Pass them as calibration=."
            )
        return self.responses

    @cached_property
    def scores(self) -> Scores:
        """The calibration responses as a dense centred matrix."""
        return centred_scores(self.need_responses)

    @cached_property
    def proportion_correct(self) -> FloatArray:
        """Proportion correct of each item, from the responses, else from the bank."""
        if self.responses is not None:
            return share_right(self.responses)
        if self.bank is not None and "proportion_correct" in self.bank.statistics:
            return self.bank.statistics["proportion_correct"].to_numpy(float)
        raise InputError(
            f"The {self.strategy} strategy needs proportions correct. Got neither responses nor a "
            "bank that records them. Give the calibration responses."
        )

    @cached_property
    def difficulty(self) -> FloatArray:
        """The difficulty b of each item."""
        return self.need_bank.to_frame()["b"].to_numpy(float)


@dataclass(frozen=True)
class Strategy:
    """A way to choose items: a row of `STRATEGIES`.

    Attributes:
        name: the name that users give.
        choose: a function of a `Task`.
        summary: which items it takes, in one line.
        needs: what it chooses by, of "bank", "responses", "groups" and "proportions" (correct: of
            the responses, or recorded by the bank). Empty where the ids suffice.
        source: author, year and place, where the formula comes from a publication.
    """

    name: str
    choose: Callable[[Task], Choice]
    summary: str
    needs: tuple[str, ...] = ("responses",)
    source: str = ""

    def __post_init__(self) -> None:
        """Check what it needs.

        Raises:
            InputError: for a need that is none.
        """
        for need in self.needs:
            check_choice("needs", need, NEEDS)

    @property
    def cells(self) -> tuple[str, str]:
        """Summary and needs."""
        words = {"proportions": "proportions correct", "": "bank or responses"}
        return self.summary, ", ".join(words.get(need, need) for need in self.needs or ("",))


@dataclass(frozen=True, eq=False)
class Request:
    """How items were chosen, but for the responses: the choice can be repeated with others.

    Attributes:
        strategy: name of the strategy.
        n_items: how many items, at most.
        seed: seed of the choice.
        task: the items and constraints, without responses; None for any items without constraints.
        first: the items that these were added to, in a choice of two stages.
    """

    strategy: str
    n_items: int
    seed: int
    task: Task | None = None
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

    def _repr_html_(self) -> str:
        """The first items."""
        frame = self.to_frame()
        return card(repr(self), frame, frame.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Subset):
            return NotImplemented
        return (
            (self.strategy, self.seed) == (other.strategy, other.seed)
            and np.array_equal(self.item_ids, other.item_ids)
            and np.array_equal(self.weights, other.weights)
            and np.array_equal(self.probabilities, other.probabilities, equal_nan=True)
            and np.array_equal(self.criterion, other.criterion, equal_nan=True)
        )

    def __hash__(self) -> int:
        return hash((self.strategy, self.seed, *self.item_ids))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the items to a CSV file, atomically; `irtcat.load` reads it.

        Args:
            path: the file; an existing one is replaced.

        Raises:
            InputError: it cannot be written.
        """
        return write_csv(self.to_frame().assign(strategy=self.strategy, seed=self.seed), path)

    def to_frame(self) -> pd.DataFrame:
        """One row per chosen item: weight, probability, criterion."""
        columns = {
            "weight": self.weights,
            "probability": self.probabilities,
            "criterion": self.criterion,
        }
        return pd.DataFrame(columns, index=pd.Index(self.item_ids, dtype=object, name="item"))

"""Input and output of a selection strategy, from the arguments of `select`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    check_positive,
    float_array,
    is_whole,
)
from irtcat._common.per_item import by_id, has_ids, per_item
from irtcat._common.positions import positions_of_ids
from irtcat._common.progress import Progress
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank, check_needs, ranking
from irtcat.responses import Responses
from irtcat.selection.constraints import Constraints
from irtcat.selection.dense import Scores, centred_scores

NO_GROUP = "(none)"


def read_allowed(item_ids: np.ndarray, allowed: Any) -> BoolArray:
    """Mask of the items that may be chosen, from ids or a mask."""
    if allowed is None:
        return np.ones(len(item_ids), bool)
    if isinstance(allowed, pd.Series) and allowed.dtype == bool and has_ids(allowed):
        allowed = by_id("allowed", allowed, item_ids, "item", "mark").to_numpy(bool)
    values = np.asarray(sorted(allowed) if isinstance(allowed, (set, frozenset)) else allowed)
    if values.ndim != 1 or values.size == 0:
        raise argument_error("allowed", "a list of ids, or a mask, of at least one item", allowed)
    if values.dtype == bool:
        if values.shape != item_ids.shape:
            raise argument_error("allowed", f"a mask of {len(item_ids)} items", values.shape)
        return values.copy()
    mask = np.zeros(len(item_ids), bool)
    mask[positions_of_ids("allowed", values, item_ids)] = True
    return mask


def item_values(
    name: str, value: Any, item_ids: np.ndarray, bank: ItemBank | None, responses: Responses | None
) -> np.ndarray:
    """One value per item (see `per_item`), a column being one of the responses or the bank."""
    tables = [holder.items for holder in (responses, bank) if holder is not None]
    return per_item(name, value, item_ids, tables)


def read_groups(values: np.ndarray) -> tuple[IntArray, list[str]]:
    """Number of each item's group, and the names; items without a group form one of their own."""
    text = np.where(pd.isna(values), NO_GROUP, values.astype(str))
    names, codes = np.unique(text, return_inverse=True)
    return codes, names.tolist()


def _limits(quotas: Any, names: list[str], sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Fewest and most items of each group."""
    must = "a mapping from group to a number or to (fewest, most)"
    if not isinstance(quotas, Mapping):
        raise argument_error("quotas", must, quotas)
    lower, upper = np.zeros(len(names), int), sizes.copy()
    number_of = {name: number for number, name in enumerate(names)}
    for group, bounds in quotas.items():
        if str(group) not in number_of:
            raise argument_error("quotas", f"a mapping with the groups {', '.join(names)}", group)
        pair = bounds if isinstance(bounds, (tuple, list)) else (bounds, bounds)
        if len(pair) != 2 or not all(map(is_whole, pair)) or not 0 <= pair[0] <= pair[1]:
            raise argument_error("quotas", must, f"{bounds} for {group!r}")
        lower[number_of[str(group)]], upper[number_of[str(group)]] = pair
    return lower, upper


def _costs(values: np.ndarray) -> FloatArray:
    """Costs as finite, non-negative numbers."""
    must = "finite numbers of at least 0, one per item"
    costs = float_array("costs", must, values)
    if not np.isfinite(costs).all() or (costs < 0).any():
        raise argument_error("costs", must, costs[~(costs >= 0) | np.isinf(costs)])
    return costs


def read_constraints(
    n_items: int,
    allowed: BoolArray,
    groups: tuple[IntArray, list[str]] | None,
    quotas: Any,
    costs: np.ndarray | None,
    budget: float | None,
) -> Constraints:
    """Combine the constraints and check that they are feasible.

    Raises:
        InputError: for quotas without groups, costs without a budget or vice versa, or infeasible
            constraints.
    """
    check_count("n_items", n_items, 1, int(allowed.sum()))
    if (costs is None) != (budget is None):
        name, got = ("budget", budget) if budget is None else ("costs", costs)
        raise argument_error(name, "given if costs or a budget are", got)
    if budget is not None:
        check_positive("budget", budget)
    names, group = ["all"], np.zeros(len(allowed), int)
    lower, upper = np.zeros(1, int), np.array([len(allowed)])
    if quotas is not None:
        if groups is None:
            raise argument_error("groups", "given if quotas are", None)
        group, names = groups
        lower, upper = _limits(quotas, names, np.bincount(group, minlength=len(names)))
    limits = Constraints(
        n_items=n_items, allowed=allowed, group=group, names=tuple(names), lower=lower, upper=upper
    )
    if costs is not None and budget is not None:
        limits = replace(limits, costs=_costs(costs), budget=float(budget))
    checked = limits.checked()
    if checked.n_items == 0:
        raise argument_error("quotas", "wide enough for one affordable item", "room for none")
    return checked


NEEDS = ("bank", "responses", "groups", "proportions")


class Choice(NamedTuple):
    """Items chosen, in order.

    Attributes:
        chosen: positions in the task's items.
        criterion: value of the strategy's criterion for each (NaN where it has none).
        probabilities: inclusion probability of each; None where the choice is deterministic.
        weights: weight of each in a mean; None for equal weights.
        reach: number of items with a positive inclusion probability; None if not known.
        in_turn: whether the items are in the order of draws one after another, each with equal
            probabilities from all that are left.
    """

    chosen: IntArray
    criterion: FloatArray
    probabilities: FloatArray | None = None
    weights: FloatArray | None = None
    reach: int | None = None
    in_turn: bool = False


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
        expect: what is expected of new subjects, a name of `EXPECTATIONS`, or None.
        progress: called with the number of items chosen, that of all, and a text; or None.
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
    expect: str | None = None
    progress: Progress | None = None

    def lacking(self, need: str, advice: str, got: str = "none") -> InputError:
        """The error of a strategy without what it needs."""
        return InputError(f"The {self.strategy} strategy needs {need}. Got {got}. {advice}")

    @property
    def any_bank(self) -> ItemBank:
        """The bank, of any number of abilities; raises an error without one."""
        if self.bank is None:
            advice = "Calibrate one with irtcat.fit(responses).bank."
            raise self.lacking("a calibrated bank", advice)
        return self.bank

    @property
    def need_bank(self) -> ItemBank:
        """The bank of one ability; raises an error without one."""
        bank = self.any_bank
        check_needs(bank.model, ["one ability"], f"the {self.strategy} strategy")
        return bank

    @property
    def need_responses(self) -> Responses:
        """The calibration responses; raises an error without them."""
        if self.responses is None:
            raise self.lacking("calibration responses", "Pass them as calibration=.")
        return self.responses

    @cached_property
    def scores(self) -> Scores:
        """The calibration responses as a dense centred matrix."""
        return centred_scores(self.need_responses)

    @cached_property
    def proportion_correct(self) -> FloatArray:
        """Proportion correct of each item, from the responses, else from the bank."""
        if self.responses is not None:
            return self.responses.mean_shares(axis=0)
        if self.bank is not None and "proportion_correct" in self.bank.statistics:
            return self.bank.statistics["proportion_correct"].to_numpy(float)
        got = "neither responses nor a bank that records them"
        raise self.lacking("proportions correct", "Give the calibration responses.", got)

    @cached_property
    def difficulty(self) -> FloatArray:
        """The difficulty b of each item, from the proportion correct where not determined.

        NaN for items without a difficulty.
        """
        return ranking(self.need_bank).b


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

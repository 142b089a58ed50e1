"""Choosing the items worth running: one table of strategies, one function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error, check_choice, check_count
from irtcat.bank import ItemBank
from irtcat.responses import Responses
from irtcat.selection._task import Choice, Subset, Task
from irtcat.selection.ranking import (
    FILTERS,
    choose_discrimination,
    choose_fisher,
    choose_information,
)
from irtcat.selection.sampling import choose_at_random, choose_stratified

__all__ = ["STRATEGIES", "Choice", "Subset", "Task", "select"]

STRATEGIES: dict[str, Callable[[Task], Choice]] = {
    "random": choose_at_random,
    "stratified": choose_stratified,
    "fisher": choose_fisher,
    "information": choose_information,
    "discrimination": choose_discrimination,
    **FILTERS,
}
"""Selection strategies by name; to add one, write a function of a `Task` and add a row."""


def _universe(bank: ItemBank | None, responses: Responses | None) -> np.ndarray:
    """Ids of all items there are to choose from."""
    if bank is not None:
        return bank.item_ids
    if responses is not None:
        return np.asarray(responses.item_ids, dtype=str)
    raise argument_error("bank", "a bank, or None with responses given", None)


def _allowed(item_ids: np.ndarray, allowed: Any) -> np.ndarray:
    """Positions of the items that may be chosen."""
    if allowed is None:
        return np.arange(len(item_ids))
    wanted = np.asarray(allowed)
    if wanted.dtype == bool:
        if wanted.shape != item_ids.shape:
            raise argument_error("allowed", f"a mask of {len(item_ids)} items", wanted.shape)
        return np.flatnonzero(wanted)
    wanted = wanted.astype(str)
    at = pd.Index(item_ids).get_indexer(pd.Index(wanted))
    if (at < 0).any():
        raise argument_error("allowed", "ids of items", wanted[at < 0].tolist())
    return np.unique(at)


def select(
    bank: ItemBank | None,
    k: int,
    strategy: str = "fisher",
    responses: Responses | None = None,
    seed: int = 0,
    *,
    theta: float | None = None,
    tau: float | None = None,
    allowed: Any = None,
) -> Subset:
    """Choose k items to run.

    | strategy | takes | needs |
    |---|---|---|
    | random | a simple random sample | bank or responses |
    | stratified | a sample proportional over ten strata of proportion correct | responses* |
    | fisher | greatest information summed over the subjects (population without responses) | bank |
    | information | greatest information at ``theta`` | bank |
    | discrimination | greatest a | bank |
    | avi, avo | smallest / greatest abs(b) | bank |
    | ub, lb | smallest / greatest b | bank |
    | pcub, pclb | smallest / greatest proportion correct | responses* |

    *or a bank that records the proportions. Filters keep only items on their side of ``tau``
    where it is given.

    Args:
        bank: the calibrated items, or None for strategies that need only responses.
        k: how many items, from 1 to the number allowed.
        strategy: one of the above.
        responses: calibration responses; their items must include the bank's.
        seed: seed of the random strategies.
        theta: target ability of "information"; the population mean by default.
        tau: threshold of the filters.
        allowed: ids, or a mask, of the items that may be chosen; all by default.

    Returns:
        The subset, best item first where the strategy ranks; ties go to the earlier item.

    Raises:
        InputError: for an unknown strategy, a ``k`` out of range, a missing bank or responses, or
            a filter that leaves fewer than k items.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1, 2, 1], b=[0, 0, 3], item_ids=["x", "y", "z"])
        >>> select(bank, k=2, strategy="fisher").item_ids.tolist()
        ['y', 'x']
        >>> select(bank, k=1, strategy="lb").to_frame()
              weight  probability  criterion
        item
        z        1.0          NaN        3.0

    References:
        Rodriguez et al. (2021), section 4 (fisher); tutorial slides of Lalor et al. (2024),
        "Data set filtering" (avi, ub, pcub and their opposites).
    """
    check_choice("strategy", strategy, STRATEGIES)
    item_ids = _universe(bank, responses)
    candidates = _allowed(item_ids, allowed)
    check_count("k", k, 1, len(candidates))
    if responses is not None and not np.array_equal(item_ids, np.asarray(responses.item_ids, str)):
        responses = responses.subset(items=item_ids)
    for name, value in (("theta", theta), ("tau", tau)):
        if value is not None and not np.isfinite(value):
            raise argument_error(name, "a finite number", value)
    rng = np.random.default_rng(seed)
    task = Task(k, item_ids, candidates, bank, responses, rng, theta, tau, strategy)
    choice = STRATEGIES[strategy](task)
    weights = np.full(k, 1 / k) if choice.weights is None else choice.weights / choice.weights.sum()
    deterministic = np.full(k, np.nan)
    return Subset(
        item_ids[choice.chosen],
        weights,
        deterministic if choice.probabilities is None else choice.probabilities,
        choice.criterion,
        strategy,
        seed,
    )

"""Choices repeated with other responses, subsets with more items, and subsets from files."""

from dataclasses import replace
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.types import IntArray
from irtcat.responses import Responses
from irtcat.selection.balanced import balanced_weights
from irtcat.selection.constraints import Constraints
from irtcat.selection.gaussian import continued
from irtcat.selection.sampling import choose_stratified
from irtcat.selection.selecting import as_subset, select
from irtcat.selection.strategies import STRATEGIES
from irtcat.selection.subset import Request, Subset
from irtcat.selection.task import Task, read_allowed


def plain_request(
    strategy: str, n_items: int, seed: int, expect: str | None = None
) -> Request | None:
    """The request of a choice without constraints; None where it cannot be repeated."""
    if strategy not in STRATEGIES or {"bank", "groups"} & set(STRATEGIES[strategy].needs):
        return None
    return Request(strategy, n_items, seed, expect=expect)


def rechoose(request: Request, calibration: Responses) -> Subset:
    """Repeat a choice with other responses to the same items.

    Raises:
        InputError: as `select` does, where these responses do not allow the choice.
    """
    strategy, n_items, seed, task = request.strategy, request.n_items, request.seed, request.task
    if task is None:
        return select(
            None,
            n_items,
            strategy=strategy,
            calibration=calibration,
            expect=request.expect,
            seed=seed,
        )
    if not np.array_equal(task.item_ids, np.asarray(calibration.item_ids, str)):
        calibration = calibration.subset(items=task.item_ids)
    first = request.first
    if first is not None:
        first = first if first.request is None else rechoose(first.request, calibration)
        allowed = task.limits.allowed
        return extended(first, calibration, n_items, strategy=strategy, seed=seed, allowed=allowed)
    task = replace(task, responses=calibration, rng=np.random.default_rng(seed))
    return as_subset(task, STRATEGIES[strategy].choose(task), seed, request)


def extended(
    first: Subset,
    calibration: Responses,
    n_items: int,
    *,
    strategy: str,
    seed: int = 0,
    allowed: Any = None,
) -> Subset:
    """A subset and ``n_items`` more.

    Args:
        first: the items that were run.
        calibration: calibration responses to all items.
        n_items: how many items more.
        strategy: "score-optimal" (those that most reduce the variance of the full score given the
            first) or "stratified" (a sample of the others by proportion correct).
        seed: seed of the choice.
        allowed: ids, or a mask, of the items that may be chosen; all by default.

    Returns:
        All items, the first ones first, with weights that restore the strata of difficulty.

    Raises:
        InputError: for fewer items left than ``n_items``.
    """
    item_ids = np.asarray(calibration.item_ids, dtype=str)
    may_run = read_allowed(item_ids, allowed)
    taken = np.isin(item_ids, first.item_ids)
    n_left = int((may_run & ~taken).sum())
    if n_left < n_items:
        raise argument_error("n_items", f"at most the {n_left} items that are left", n_items)
    task = Task(
        item_ids=item_ids,
        limits=Constraints.plain(n_items, may_run & ~taken),
        bank=None,
        responses=calibration,
        rng=np.random.default_rng(seed),
        strategy=strategy,
    )
    if strategy == "score-optimal":
        taken_at: IntArray = np.flatnonzero(taken)
        more = continued(calibration, taken_at, task.limits.allowed, n_items, seed)
    else:
        more = choose_stratified(task).chosen
    chosen = np.concatenate([first.item_ids, item_ids[more]])
    # To repeat the choice: the items that are left depend on the first ones, chosen again as well.
    repeated = replace(task, responses=None, limits=Constraints.plain(n_items, may_run))
    return replace(
        first,
        item_ids=chosen,
        weights=balanced_weights(calibration, chosen),
        probabilities=np.full(len(chosen), np.nan),
        criterion=np.full(len(chosen), np.nan),
        strategy=f"two-stage: {strategy}",
        seed=seed,
        request=Request(strategy, n_items, seed, repeated, first),
        reach=None,
        in_turn=False,
    )

"""Choices repeated with other responses, subsets with more items, and subsets from files."""

import os
from dataclasses import replace
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, argument_error, check_unique, shorten
from irtcat._common.numbers import whole_number_in
from irtcat._common.types import IntArray
from irtcat.io.text import column_numbers, read_table
from irtcat.responses import Responses
from irtcat.selection.balanced import balanced_weights
from irtcat.selection.constraints import Constraints
from irtcat.selection.expectation import EXPECTATIONS
from irtcat.selection.gaussian import continued
from irtcat.selection.sampling import choose_stratified
from irtcat.selection.selecting import as_subset, select
from irtcat.selection.strategies import STRATEGIES
from irtcat.selection.subset import LISTED, Request, Subset
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


def read_subset(path: str | os.PathLike[str], repeatable: bool = True) -> Subset:
    """Read what `Subset.save` or ``irtcat select`` wrote, or any CSV table with a column "item".

    Args:
        path: the file.
        repeatable: note how the items were chosen, which imports the strategies.

    Raises:
        InputError: there is no such column, or a weight, a probability, the seed or the
            expectation is invalid.
    """
    frame = read_table(path, text=("item", "strategy", "seed", "expect"))  # NA may be an id
    if "item" in frame and not len(frame):
        raise InputError(f"{path}: expected at least one item. Got a header without rows.")
    if "item" not in frame:
        names = shorten(list(frame.columns))
        raise InputError(f"{path}: no column 'item' with the ids of the items run (has {names}).")
    k = len(frame)
    empty = [row for row, text in enumerate(frame["item"], 1) if not text.strip()]
    if empty:
        raise InputError(f"{path}, row {empty[0]}: expected an id. Got an empty cell.")
    check_unique("item", frame["item"].to_numpy(object))

    def numbers(name: str, default: float) -> np.ndarray:
        if name not in frame:
            return np.full(k, default)
        values = column_numbers(frame[name])
        invalid = ~np.isfinite(values) if name == "weight" else np.isinf(values)
        if invalid.any():
            row = int(np.argmax(invalid))
            must = f"the {name} of item {frame['item'][row]!r} must be a finite number"
            raise InputError(f"{path}: {must}. Got {str(frame[name][row])!r}.")
        return values

    expect = str(frame["expect"].iloc[0]) if "expect" in frame else None
    if expect is not None and expect not in EXPECTATIONS:
        must = f"the column 'expect' must be one of {', '.join(EXPECTATIONS)}"
        raise InputError(f"{path}: {must}. Got {shorten(expect)}.")
    strategy, seed, request = LISTED, 0, None
    if {"strategy", "seed"} <= set(frame):
        strategy, seed = str(frame["strategy"].iloc[0]), _seed(path, frame["seed"].iloc[0])
        if repeatable:
            from irtcat.selection.repeating import plain_request

            request = plain_request(strategy, k, seed, expect)
    return Subset(
        item_ids=np.asarray(frame["item"].tolist(), dtype=str),
        weights=numbers("weight", 1 / k),
        probabilities=numbers("probability", np.nan),
        criterion=numbers("criterion", np.nan),
        strategy=strategy,
        seed=seed,
        request=request,
        expect=expect,
        in_turn="draw" in frame and np.array_equal(numbers("draw", np.nan), np.arange(1, k + 1)),
    )


def _seed(path: str | os.PathLike[str], value: Any) -> int:
    """The seed in a table of chosen items."""
    seed = whole_number_in(str(value))
    if seed is None or seed < 0:
        must = "the column 'seed' must be a whole number of at least 0"
        raise InputError(f"{path}: {must}. Got {shorten(str(value))}.")
    return seed

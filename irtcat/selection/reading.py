"""Subsets from files; apart from the strategies, whose import takes longer than the file."""

import os
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, shorten
from irtcat._common.numbers import whole_number_in
from irtcat._common.positions import first_repeated
from irtcat.io.text import column_numbers, read_table
from irtcat.selection.expectation import EXPECTATIONS
from irtcat.selection.subset import LISTED, Subset


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
    if (repeated := first_repeated(pd.Index(frame["item"]))) is not None:
        raise InputError(f"{path}: the id {shorten(repeated)} occurs twice.")

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

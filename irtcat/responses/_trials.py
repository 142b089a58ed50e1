"""Trials: their numbers, shares k / n of them, and their scores by number."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, brief, float_array
from irtcat._common.per_item import by_id
from irtcat.responses._matrix import aligned_empty, row_blocks

MOST_TRIALS = 2**15 - 1
NEAR = 0.01
"""Largest distance of fraction x trials from a whole number (fractions in files are rounded)."""


def exact_shares(values: np.ndarray, trials: np.ndarray | None) -> np.ndarray:
    """Fractions in double precision, shares k / n exactly.

    Responses hold fractions in single precision: sums of thirds differ in their last digits, and
    equal scores would not be equal.

    Args:
        values: float32 fractions, NaN where missing.
        trials: number of trials of each; None if there are none.

    Example:
        >>> exact_shares(np.float32([1 / 3, 0.5]), np.array([3, 1])).tolist()
        [0.3333333333333333, 0.5]
    """
    shares = np.asarray(values, np.float64)
    if trials is None:
        return shares
    n = np.maximum(trials, 1)
    successes = np.rint(shares * n)
    is_share = np.abs(shares * n - successes) <= np.finfo(np.float32).eps * n
    return np.where(is_share, successes / n, shares)


def spread_trials(trials: Any, subject_ids: np.ndarray, item_ids: np.ndarray) -> np.ndarray:
    """Broadcast numbers of trials to a matrix of subjects x items, without copying.

    Args:
        trials: one whole number from 0 to 32767, one per item (a Series or mapping by item id, or a
            list in the items' order), or a matrix (a frame by ids); NaN means 0.
        subject_ids: ids of the rows.
        item_ids: ids of the columns.

    Raises:
        InputError: the shape or a number is invalid, or an id has no number.

    Example:
        >>> rows, columns = np.array(["s1", "s2"]), np.array(["x", "y"])
        >>> spread_trials({"y": 3, "x": 5}, rows, columns).tolist()
        [[5, 3], [5, 3]]
    """
    if isinstance(trials, (Mapping, pd.Series)):
        trials = by_id("trials", trials, item_ids, "item", "number").to_numpy()
    elif isinstance(trials, pd.DataFrame):
        rows = by_id("trials", trials, subject_ids, "subject", "row")
        trials = by_id("trials", rows.T, item_ids, "item", "column").T.to_numpy()
    shape = (len(subject_ids), len(item_ids))
    numbers = float_array("trials", "whole numbers", trials)
    numbers = np.nan_to_num(numbers, nan=0.0, posinf=-1)
    if numbers.shape not in ((), shape[1:], shape):
        must = f"one number, {shape[1]} numbers (one per item) or a matrix of shape {shape}"
        raise argument_error("trials", must, f"shape {numbers.shape}")
    bad = (numbers < 0) | (numbers > MOST_TRIALS) | (numbers != np.rint(numbers))
    if bad.any():
        raise argument_error("trials", f"whole numbers from 0 to {MOST_TRIALS}", numbers[bad][0])
    return np.broadcast_to(numbers.astype(np.int16), shape)


def check_trials(
    values: np.ndarray, trials: np.ndarray, subject_ids: np.ndarray, item_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return shares k / n in float32, NaN where missing, and n, 0 where missing.

    Args:
        values: int8 right/wrong codes (-1 missing) or float32 fractions (NaN missing).
        trials: int16, of the same shape.
        subject_ids: ids of the rows, for messages.
        item_ids: ids of the columns.

    Raises:
        InputError: naming the cell whose fraction is not k / n.
    """
    shares = aligned_empty(values.shape, np.float32)
    for rows in row_blocks(values.shape):
        block, n = values[rows].astype(np.float64), trials[rows]
        if values.dtype.kind == "i":
            block[block < 0] = np.nan
        k = np.rint(block * n)
        wrong = np.abs(block * n - k) > NEAR
        wrong |= (n == 0) & ~np.isnan(block)
        if wrong.any():
            row, column = map(int, np.argwhere(wrong)[0])
            raise InputError(
                f"The `trials` argument must make every response k right of n trials. Got "
                f"{block[row, column]:.6g} of {n[row, column]} trials at row "
                f"{row + rows.start + 1} (subject {brief(subject_ids[row + rows.start])}), column "
                f"{column + 1} (item {brief(item_ids[column])}). For scores that are not counts "
                "use the beta model."
            )
        with np.errstate(invalid="ignore", divide="ignore"):
            shares[rows] = k / n
    missing = np.isnan(shares)
    if (trials[missing] > 0).any():
        trials = np.where(missing, 0, trials).astype(np.int16)
    return shares, trials


def count_shares(k: np.ndarray, trials: np.ndarray, subjects: np.ndarray, items: np.ndarray):
    """Shares k / n of counts, NaN where k is missing or n is 0.

    Raises:
        InputError: naming the cell whose k is not a whole number from 0 to n.
    """
    k = k.astype(np.float64)
    observed = ~np.isnan(k) & ~((k == -1) & (trials == 0)) & ~((k == 0) & (trials == 0))
    wrong = observed & ((k < 0) | (k > trials) | (k != np.rint(k)))
    if wrong.any():
        row, column = map(int, np.argwhere(wrong)[0])
        raise InputError(
            f"The `k` argument must be whole numbers from 0 to n. Got {k[row, column]:g} of "
            f"{trials[row, column]} at row {row + 1} (subject {brief(subjects[row])}), "
            f"column {column + 1} (item {brief(items[column])})."
        )
    return np.divide(k, trials, out=np.full(k.shape, np.nan), where=observed & (trials > 0))


def as_trial_values(scores: Any) -> np.ndarray:
    """A new float32 array, subjects x items x trials, NaN where missing.

    Raises:
        InputError: for another shape, or naming the cell and the trial of an invalid score.

    Example:
        >>> as_trial_values([[[1, -1], [0, 1]]]).tolist()
        [[[1.0, nan], [0.0, 1.0]]]
    """
    must = "numbers, subjects x items x trials"
    try:
        given = np.asarray(scores)
        if given.dtype.kind not in "biuf":
            given = np.asarray(scores, float)
    except (TypeError, ValueError):
        raise argument_error("scores", must, scores) from None
    if given.ndim != 3 or 0 in given.shape:
        raise argument_error("scores", must, f"shape {given.shape}")
    if given.shape[2] > MOST_TRIALS:
        raise argument_error("scores", f"at most {MOST_TRIALS} trials", given.shape[2])
    cube = aligned_empty(given.shape, np.float32)
    cube[...] = given
    cube += 0.0  # one zero, so that equal trials have equal bytes
    if given.dtype.kind == "i":
        cube[given == -1] = np.nan
    wrong = ~((cube >= 0) & (cube <= 1) | np.isnan(cube))
    if wrong.any():
        row, column, trial = map(int, np.argwhere(wrong)[0])
        got = f"{given[row, column, trial]:g} in row {row + 1}, column {column + 1}"
        raise InputError(
            "The `scores` argument must be scores from 0 to 1, or NaN where missing. Got "
            f"{got}, trial {trial + 1}. Scale other scores to this range."
        )
    if np.isnan(cube).all():
        raise argument_error("scores", "scores, at least one observed", "only missing ones")
    return cube


def mean_of_trials(cube: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the trials of each response (float32, NaN without any) and their number (int16).

    Example:
        >>> means, counts = mean_of_trials(np.array([[[1, 0, np.nan], [np.nan] * 3]], np.float32))
        >>> means.tolist(), counts.tolist()
        ([[0.5, nan]], [[2, 0]])
    """
    means = aligned_empty(cube.shape[:2], np.float32)
    counts = np.zeros(cube.shape[:2], np.int16)
    for rows in row_blocks((len(cube), cube[0].size)):
        known = ~np.isnan(cube[rows])
        n = known.sum(axis=2)
        total = np.sum(cube[rows], axis=2, where=known, dtype=float)
        means[rows] = np.divide(total, n, out=np.full(n.shape, np.nan), where=n > 0)
        counts[rows] = n
    return means, counts


def check_trial_values(cube: np.ndarray, trials: np.ndarray | None, shape: tuple[int, int]) -> None:
    """Raise unless there are as many scores of each response as trials are counted."""
    if cube.ndim != 3 or cube.shape[:2] != shape or cube.dtype != np.float32:
        must = f"float32 of shape {shape} x trials, to match the ids"
        raise argument_error("trial_values", must, f"{cube.dtype} of shape {cube.shape}")
    for rows in row_blocks((len(cube), max(1, cube[0].size))):
        n = (~np.isnan(cube[rows])).sum(axis=2)
        if trials is None or (n != trials[rows]).any():
            counted = np.zeros_like(n) if trials is None else trials[rows]
            row, column = map(int, np.argwhere(n != counted)[0])
            raise InputError(
                "The `trial_values` argument must be a score for each of the `trials`. Got "
                f"{n[row, column]} of {counted[row, column]} at row {row + rows.start + 1}, column "
                f"{column + 1}."
            )

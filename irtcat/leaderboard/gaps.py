"""The smallest gap between two subjects that k items rank right, as measured on held-out pairs."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error, check_count, check_interval
from irtcat._types import FloatArray, IntArray
from irtcat.leaderboard.board import KEYS, Leaderboard, Run, subject_draws

__all__ = ["check_confidence", "items_needed", "order_curve", "reliable_gaps", "smallest_gap"]

BIN = 0.0025
"""Pairs whose full scores are this far apart, or less, are pooled: a quarter of a point."""

MOST_PAIRS = 40_000
"""Of one hold-out; more are thinned at random, seeded."""


def reliable_gaps(
    board: Leaderboard,
    confidence: float = 0.8,
    n: int = 200,
    seed: int = 0,
    level: float = 0.9,
) -> pd.DataFrame:
    """The minimum detectable accuracy difference: the smallest gap ranked right often enough.

    Of every pair of subjects held out together the true gap is known, and whether the k items
    ranked the two right (a tie counts half). Pairs of all hold-outs are pooled in bins of a quarter
    of a point, and the chance of the right order is estimated by the curve, never falling in the
    gap, that fits the bins best (isotonic regression), drawn straight between its steps and from
    1/2 at a gap of 0. The gap in question is where it first reaches ``confidence``.

    The interval resamples subjects and hold-outs, not pairs: pairs that share a subject, or a
    subset of items, are not independent. One hold-out says nothing of other draws of items.

    Args:
        board: what `evaluate` gave.
        confidence: wanted chance of the right order, above 1/2 and below 1.
        n: number of bootstrap resamples, at least 2.
        seed: of the resamples.
        level: probability of the interval.

    Returns:
        Indexed by strategy, estimator and n_items: gap, lower and upper in points (infinite where
        the pairs held out never get there), n_pairs, widest_gap (points; the greatest there was to
        judge by) and flags.

    Raises:
        InputError: for numbers out of range, or a board without a pair that differs.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> from irtcat.leaderboard import evaluate
        >>> r = ItemBank.from_parameters(b=np.linspace(-2, 2, 200)).simulate(np.linspace(-1, 1, 80))
        >>> board = evaluate(r, ["random"], n_items=[10, 40], estimators=["mean"])
        >>> reliable_gaps(board)["gap"].round(1).tolist()
        [14.4, 7.0]

    References:
        Yauney et al. (2026) (the quantity); Barlow et al. (1972), Statistical Inference under
        Order Restrictions, chapter 1 (pool adjacent violators).
    """
    check_confidence(confidence)
    check_count("n", n, 2)
    check_interval("level", level)
    draws = subject_draws(board.n_subjects, n, seed)
    tail = (1 - level) / 2
    rows = []
    runs = sorted(board.runs, key=lambda run: run[:3])
    for key, group in groupby(runs, key=lambda run: run[:3]):
        pairs = [_pairs(run.usable(), seed) for run in group]
        gap, right, one, other = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        fold = np.repeat(np.arange(len(pairs)), [len(part[0]) for part in pairs])
        times = subject_draws(len(pairs), n, seed + 1)  # hold-outs are drawn like subjects
        row: dict[str, Any] = dict(zip(KEYS, key, strict=True))
        if not len(gap):
            nothing = dict.fromkeys(("gap", "lower", "upper"), np.inf)
            rows.append({**row, **nothing, "n_pairs": 0, "widest_gap": 0.0, "flags": "no pairs"})
            continue
        found = smallest_gap(*order_curve(gap, right), confidence)
        again = [
            smallest_gap(*order_curve(gap, right, draw[one] * draw[other] * time[fold]), confidence)
            for draw, time in zip(draws, times, strict=True)
        ]
        # Not interpolated: some of them may be infinite.
        low, high = np.quantile(again, [tail, 1 - tail], method="inverted_cdf")
        flags = "" if np.isfinite(found) else f"no gap is ranked right with chance {confidence:g}"
        row |= {"gap": 100 * found, "lower": 100 * low, "upper": 100 * high}
        row |= {"n_pairs": len(gap), "widest_gap": 100 * gap.max(), "flags": flags}
        rows.append(row)
    if not any(row["n_pairs"] for row in rows):
        raise argument_error("board", "one with held-out subjects of different scores", board)
    table = pd.DataFrame(rows).set_index(KEYS)
    wanted = pd.MultiIndex.from_frame(board.table[KEYS].drop_duplicates())
    return table.reindex(wanted[wanted.isin(table.index)])


def items_needed(gaps: pd.DataFrame, gap: float = 0.02) -> pd.DataFrame:
    """How many items each strategy and estimator takes to rank a gap right, between the k measured.

    The measured gaps, made never rising in k, are interpolated on logarithmic scales (they fall
    about as 1 / sqrt(k)); nothing is extrapolated.

    Args:
        gaps: what `reliable_gaps` gave.
        gap: gap between full scores, in score units (.02 is 2 points).

    Returns:
        Indexed by strategy and estimator: n_items (whole; NaN where the measured k do not reach
        that far), and flags that say where.

    Example:
        >>> index = pd.MultiIndex.from_product([["random"], ["mean"], [25, 100]],
        ...     names=["strategy", "estimator", "n_items"])
        >>> items_needed(pd.DataFrame({"gap": [8.0, 4.0]}, index), 0.05)["n_items"].tolist()
        [64.0]
    """
    if not 0 < gap < 1:
        raise argument_error("gap", "a difference of scores between 0 and 1 (.02 is 2 points)", gap)
    rows = []
    for key, part in gaps["gap"].groupby(["strategy", "estimator"], sort=False):
        part = part.droplevel(["strategy", "estimator"]).sort_index()
        k, value = part.index.to_numpy(float), np.minimum.accumulate(part.to_numpy(float))
        needed, flag = np.nan, ""
        if value[-1] > 100 * gap:
            flag = f"more than the {k[-1]:g} items measured"
        elif value[0] <= 100 * gap:
            needed, flag = k[0], "or fewer: the smallest k measured is enough"
        else:
            at = int(np.argmax(value <= 100 * gap))
            share = 1.0
            if np.isfinite(value[at - 1]) and value[at] > 0:
                ends = np.log(value[[at - 1, at]])
                share = (ends[0] - np.log(100 * gap)) / (ends[0] - ends[1])
            needed = np.exp((1 - share) * np.log(k[at - 1]) + share * np.log(k[at]))
            needed = np.ceil(needed - 1e-9)
        rows.append({"strategy": key[0], "estimator": key[1], "n_items": needed, "flags": flag})
    return pd.DataFrame(rows).set_index(["strategy", "estimator"])


def order_curve(
    gap: FloatArray, right: FloatArray, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Chance of the right order against the true gap, by isotonic regression on binned pairs.

    Args:
        gap: true gap of each pair, above 0, in score units.
        right: whether it was ranked right (1, 0, or 1/2 for a tie), or the chance of that.
        weights: how often each pair counts; once by default.

    Returns:
        Gaps, from 0 on, and the chance at each, from 1/2 on; never falling.

    Example:
        >>> gap, chance = order_curve(np.array([0.01, 0.02, 0.03]), np.array([0.5, 1.0, 0.8]))
        >>> gap.round(3).tolist(), chance.round(2).tolist()
        ([0.0, 0.01, 0.025], [0.5, 0.5, 0.9])
    """
    count = np.ones(len(gap)) if weights is None else np.asarray(weights, float)
    at = np.minimum(gap / BIN, 1e6).astype(np.intp)
    mass = np.asarray(np.bincount(at, count), float)
    keep = mass > 0
    mean_gap = np.bincount(at, count * gap)[keep] / mass[keep]
    share = np.bincount(at, count * right)[keep] / mass[keep]
    level, center = _pool(share, mean_gap, mass[keep])
    return np.r_[0.0, center], np.r_[0.5, np.maximum(level, 0.5)]


def _pool(value: FloatArray, at: FloatArray, mass: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Pool adjacent violators; level and weighted mean place of each block."""
    blocks: list[tuple[float, float, float]] = []
    for v, x, m in zip(value.tolist(), at.tolist(), mass.tolist(), strict=True):
        while blocks and blocks[-1][0] >= v:
            v0, x0, m0 = blocks.pop()
            v, x, m = (v * m + v0 * m0) / (m + m0), (x * m + x0 * m0) / (m + m0), m + m0
        blocks.append((v, x, m))
    levels = np.array(blocks).reshape(-1, 3)
    return levels[:, 0], levels[:, 1]


def smallest_gap(gap: FloatArray, chance: FloatArray, confidence: float) -> float:
    """Where a curve that never falls first reaches ``confidence``; infinite where it does not.

    Example:
        >>> round(smallest_gap(np.array([0.0, 0.1]), np.array([0.5, 0.9]), 0.7), 6)
        0.05
    """
    if not len(chance) or chance[-1] < confidence:
        return float("inf")
    at = int(np.argmax(chance >= confidence))
    if at == 0:
        return float(gap[0])
    rise = chance[at] - chance[at - 1]
    return float(gap[at - 1] + (gap[at] - gap[at - 1]) * (confidence - chance[at - 1]) / rise)


def _pairs(run: Run, seed: int) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Gap, right order, and the two subjects of each pair of one hold-out that differs."""
    goal = np.round(run.truth, 12)
    one, other = np.triu_indices(len(goal), 1)
    if len(one) > MOST_PAIRS:
        kept = np.random.default_rng(seed).choice(len(one), MOST_PAIRS, replace=False)
        one, other = one[kept], other[kept]
    difference = goal[one] - goal[other]
    differs = difference != 0
    one, other, difference = one[differs], other[differs], difference[differs]
    right = 0.5 + 0.5 * np.sign(run.score[one] - run.score[other]) * np.sign(difference)
    return np.abs(difference), right, run.subjects[one], run.subjects[other]


def check_confidence(confidence: Sequence[float] | float) -> None:
    """Raise unless it is a chance above that of a coin and below 1."""
    check_interval("confidence", confidence)
    if not float(confidence) > 0.5:  # type: ignore[arg-type]
        raise argument_error("confidence", "above 0.5, which a coin has", confidence)

"""The smallest gap between two subjects that k items rank right, measured on held-out pairs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count, check_interval, is_number
from irtcat._common.types import FloatArray, IntArray
from irtcat.leaderboard.board import (
    KEYS,
    Leaderboard,
    Run,
    in_order_of,
    runs_by_key,
    smallest_k,
    subject_draws,
)

BIN = 0.0025
"""Width of the bins in which pairs are pooled, in score units: a quarter of a point."""

MOST_PAIRS = 40_000
"""Maximum number of pairs of one hold-out; more are subsampled with the seed."""


def reliable_gaps(
    board: Leaderboard, confidence: float = 0.8, n: int = 200, seed: int = 0, level: float = 0.9
) -> pd.DataFrame:
    """The minimum detectable difference: the smallest gap that is ranked right often enough.

    For every pair of subjects held out together the true gap is known, and whether the k items
    ranked the two right (a tie counts half). Pairs of all hold-outs are pooled in bins of a quarter
    of a point, and the probability of the right order is estimated by isotonic regression on the
    bins (nondecreasing in the gap), interpolated linearly, from 1/2 at a gap of 0. The result is
    the gap where it first reaches ``confidence``.

    The gaps are those of the scores of these runs; for the gap of two models' expected scores over
    reruns see `plan`.

    The interval resamples subjects and hold-outs, not pairs: pairs that share a subject, or a
    subset of items, are not independent. With one hold-out it does not include other draws of
    items.

    Args:
        board: the result of `evaluate`.
        confidence: required probability of the right order, above 1/2 and below 1.
        n: number of bootstrap resamples, at least 2.
        seed: seed of the resamples.
        level: probability of the interval.

    Returns:
        Indexed by strategy, estimator and n_items: gap, lower and upper in points (infinite if the
        held-out pairs never reach it), n_pairs, widest_gap (points; the greatest gap of a pair) and
        flag.

    Raises:
        InputError: for numbers out of range, or a board without pairs of different scores.

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
    check_count("seed", seed, 0)
    check_interval("level", level)
    draws = subject_draws(board.n_subjects, n, seed)
    tail = (1 - level) / 2
    rows = []
    for key, runs in runs_by_key(board):
        pairs = [_pairs(run, seed) for run in runs]
        gap, right, one, other = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
        fold = np.repeat(np.arange(len(pairs)), [len(part[0]) for part in pairs])
        times = subject_draws(len(pairs), n, seed + 1)  # hold-outs are resampled like subjects
        row: dict[str, Any] = dict(zip(KEYS, key, strict=True))
        estimate = smallest_gap(*order_curve(gap, right), confidence)
        resampled = [
            smallest_gap(*order_curve(gap, right, draw[one] * draw[other] * time[fold]), confidence)
            for draw, time in zip(draws, times, strict=True)
        ]
        # Without interpolation, since some of them may be infinite.
        low, high = np.quantile(resampled, [tail, 1 - tail], method="inverted_cdf")
        never = f"no gap is ranked right with probability {confidence:g}"
        flag = "" if np.isfinite(estimate) else never
        row |= {"gap": 100 * estimate, "lower": 100 * low, "upper": 100 * high}
        row |= {"n_pairs": len(gap), "widest_gap": 100 * gap.max(initial=0.0)}
        row["flag"] = flag if len(gap) else "no pairs"
        rows.append(row)
    if not any(row["n_pairs"] for row in rows):
        raise argument_error("board", "a board with held-out subjects of different scores", board)
    return in_order_of(board, rows)


def items_needed(gaps: pd.DataFrame, gap: float = 0.02) -> pd.DataFrame:
    """Number of items that each strategy and estimator needs to rank a gap right, by interpolation.

    The measured gaps, made nonincreasing in k, are interpolated on logarithmic scales (they fall
    about as 1 / sqrt(k)), without extrapolation.

    Args:
        gaps: the result of `reliable_gaps`.
        gap: gap between full scores, in score units (.02 is 2 points).

    Returns:
        Indexed by strategy and estimator: n_items (whole; NaN beyond the measured k), and flag.

    Example:
        >>> index = pd.MultiIndex.from_product([["random"], ["mean"], [25, 100]],
        ...     names=["strategy", "estimator", "n_items"])
        >>> items_needed(pd.DataFrame({"gap": [8.0, 4.0]}, index), 0.05)["n_items"].tolist()
        [64.0]
    """
    check_gap(gap)
    rows = []
    for key, by_k in gaps["gap"].groupby(["strategy", "estimator"], sort=False):
        by_k = by_k.droplevel(["strategy", "estimator"]).sort_index()
        needed, flag = smallest_k(by_k.index.to_numpy(float), by_k.to_numpy(float), 100 * gap)
        rows.append({"strategy": key[0], "estimator": key[1], "n_items": needed, "flag": flag})
    return pd.DataFrame(rows).set_index(["strategy", "estimator"])


def order_curve(
    gap: FloatArray, right: FloatArray, weights: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Probability of the right order by true gap, from isotonic regression on binned pairs.

    Args:
        gap: true gap of each pair, above 0, in score units.
        right: whether it was ranked right (1, 0, or 1/2 for a tie), or the probability of that.
        weights: weight of each pair; 1 by default.

    Returns:
        Gaps from 0 on, and the probability at each, nondecreasing from 1/2 on.

    Example:
        >>> gap, chance = order_curve(np.array([0.01, 0.02, 0.03]), np.array([0.5, 1.0, 0.8]))
        >>> gap.round(3).tolist(), chance.round(2).tolist()
        ([0.0, 0.01, 0.025], [0.5, 0.5, 0.9])
    """
    count = np.ones(len(gap)) if weights is None else np.asarray(weights, float)
    bin_of = np.minimum(gap / BIN, 1e6).astype(np.intp)
    mass = np.asarray(np.bincount(bin_of, count), float)
    keep = mass > 0
    mean_gap = np.bincount(bin_of, count * gap)[keep] / mass[keep]
    share = np.bincount(bin_of, count * right)[keep] / mass[keep]
    level, center = _pool(share, mean_gap, mass[keep])
    return np.r_[0.0, center], np.r_[0.5, np.maximum(level, 0.5)]


def _pool(
    value: FloatArray, position: FloatArray, mass: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Pool adjacent violators; return the level and weighted mean position of each block."""
    blocks: list[tuple[float, float, float]] = []
    for v, x, m in zip(value.tolist(), position.tolist(), mass.tolist(), strict=True):
        while blocks and blocks[-1][0] >= v:
            v0, x0, m0 = blocks.pop()
            v, x, m = (v * m + v0 * m0) / (m + m0), (x * m + x0 * m0) / (m + m0), m + m0
        blocks.append((v, x, m))
    levels = np.array(blocks).reshape(-1, 3)
    return levels[:, 0], levels[:, 1]


def smallest_gap(gap: FloatArray, chance: FloatArray, confidence: float) -> float:
    """Gap at which a nondecreasing curve first reaches ``confidence``; infinite if it does not.

    Example:
        >>> round(smallest_gap(np.array([0.0, 0.1]), np.array([0.5, 0.9]), 0.7), 6)
        0.05
    """
    if not len(chance) or chance[-1] < confidence:
        return float("inf")
    index = int(np.argmax(chance >= confidence))
    if index == 0:
        return float(gap[0])
    before = slice(index - 1, index + 1)
    return float(np.interp(confidence, chance[before], gap[before]))


def _pairs(run: Run, seed: int) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Gap, right order and subjects of each pair of one hold-out with different scores."""
    goal = np.round(run.truth, 12)
    one, other = np.triu_indices(len(goal), 1)
    if len(one) > MOST_PAIRS:
        sample = np.random.default_rng(seed).choice(len(one), MOST_PAIRS, replace=False)
        one, other = one[sample], other[sample]
    difference = goal[one] - goal[other]
    differs = difference != 0
    one, other, difference = one[differs], other[differs], difference[differs]
    right = 0.5 + 0.5 * np.sign(run.score[one] - run.score[other]) * np.sign(difference)
    return np.abs(difference), right, run.subjects[one], run.subjects[other]


def check_gap(gap: Any) -> None:
    """Raise unless it is a difference of scores."""
    if not is_number(gap) or not 0 < gap < 1:
        raise argument_error("gap", "a difference of scores between 0 and 1 (.02 is 2 points)", gap)


def check_confidence(confidence: Sequence[float] | float) -> None:
    """Raise unless it is a probability above 1/2 and below 1."""
    check_interval("confidence", confidence)
    if not float(confidence) > 0.5:  # type: ignore[arg-type]
        raise argument_error("confidence", "above 0.5, the probability of a coin toss", confidence)

"""Metrics of predicted scores, for the held-out subjects and for resamples of them."""

import numpy as np

from irtcat import agreement
from irtcat._common.types import FloatArray

GAPS = {
    "pairwise_under_2": (0.0, 0.02),
    "pairwise_2_to_5": (0.02, 0.05),
    "pairwise_over_5": (0.05, np.inf),
}
"""True gaps, in score units, of the pairs that each pairwise accuracy counts: low <= gap < high."""

METRICS = (
    *("kendall", "spearman", "pearson", "mae", "rmse"),
    *GAPS,
    *("top_overlap", "coverage", "width"),
)
"""Columns of a leaderboard that are averaged over seeds."""

SLACK = 1e-9  # so that a gap of .02 after rounding errors counts as .02


def compare_scores(
    score: FloatArray, lower: FloatArray, upper: FloatArray, truth: FloatArray, top: int
) -> tuple[dict[str, float], list[str]]:
    """The metrics over subjects that have both scores, and flags.

    Args:
        score: predicted full scores, 0 to 1; NaN if missing.
        lower: lower ends of their intervals.
        upper: upper ends.
        truth: full scores, NaN if missing.
        top: number of best subjects for ``top_overlap``.

    Returns:
        Each of `METRICS`, NaN where it is not defined (a pairwise accuracy without pairs at that
        distance, the overlap of the ``top`` best among at most ``top`` subjects, the correlation of
        a constant), and the flags.
    """
    usable = ~(np.isnan(score) | np.isnan(truth))
    flags = [] if usable.all() else [f"held-out subjects left out: {np.count_nonzero(~usable)}"]
    predicted, goal = score[usable], np.round(truth[usable], 12)  # as `predict` rounds
    if len(goal) < 2:
        return dict.fromkeys(METRICS, float("nan")), [*flags, "fewer than 2 subjects to compare"]
    for values, kind in ((predicted, "predicted"), (goal, "full")):
        if (values == values[0]).all():
            flags.append(f"no rank correlation: all {kind} scores are equal")
    metrics = {
        "kendall": agreement.kendall_tau_b(predicted, goal),
        "spearman": agreement.spearman(predicted, goal),
        "pearson": agreement.pearson(predicted, goal),
        "mae": 100 * agreement.mean_absolute_error(predicted, goal),
        "rmse": 100 * agreement.root_mean_squared_error(predicted, goal),
        "top_overlap": agreement.top_overlap(predicted, goal, top) if top < len(goal) else np.nan,
        "coverage": float(((lower[usable] <= goal) & (goal <= upper[usable])).mean()),
        "width": float(100 * (upper - lower)[usable].mean()),
    }
    for name, (low, high) in GAPS.items():
        metrics[name] = agreement.pairwise_accuracy(predicted, goal, low - SLACK, high - SLACK)
    return {name: metrics[name] for name in METRICS}, flags


def resampled_metrics(
    score: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    truth: FloatArray,
    weights: FloatArray,
    top: int,
) -> dict[str, FloatArray]:
    """The metrics of `compare_scores` for many resamples of the subjects at once.

    Resamples are rows of counts: how often each subject was drawn. Sums over pairs are quadratic
    forms ``w' S w`` in a matrix of signs, so a thousand resamples take one matrix product.

    Args:
        score: predicted full scores, without NaN.
        lower: lower ends of their intervals.
        upper: upper ends.
        truth: full scores, without NaN.
        weights: resamples x subjects, whole numbers of at least 0.
        top: number of best subjects for ``top_overlap``.

    Returns:
        For each of `METRICS` one number per resample; NaN where it is not defined there.
    """
    goal = np.round(truth, 12)
    total = weights.sum(axis=1)
    sign_x = np.sign(score[:, None] - score[None, :])
    sign_y = np.sign(goal[:, None] - goal[None, :])
    agree = sign_x * sign_y
    error = score - goal
    inside = (lower <= goal) & (goal <= upper)
    gap = np.abs(goal[:, None] - goal[None, :])

    def pairs(matrix: FloatArray) -> FloatArray:
        return np.einsum("bi,bi->b", weights @ matrix, weights)

    def mean(values: FloatArray) -> FloatArray:
        return _ratio(weights @ values, total)

    out = {
        "kendall": _ratio(pairs(agree), np.sqrt(pairs(sign_x**2) * pairs(sign_y**2))),
        "spearman": _correlations(weights @ sign_x.T, weights @ sign_y.T, weights),
        "pearson": _correlations(
            np.broadcast_to(score, weights.shape), np.broadcast_to(goal, weights.shape), weights
        ),
        "mae": 100 * mean(np.abs(error)),
        "rmse": 100 * np.sqrt(mean(error**2)),
        "top_overlap": _top_overlaps(score, goal, weights, top),
        "coverage": mean(inside.astype(float)),
        "width": 100 * mean(upper - lower),
    }
    for name, (low, high) in GAPS.items():
        counted = ((gap >= low - SLACK) & (gap < high - SLACK) & (gap > 0)).astype(float)
        out[name] = _ratio(pairs(counted * (0.5 + 0.5 * agree)), pairs(counted))
    return {name: out[name] for name in METRICS}


def _ratio(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """A quotient, NaN where the divisor is 0."""
    return np.divide(top, bottom, out=np.full(np.shape(bottom), np.nan), where=bottom > 0)


def _correlations(x: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted correlation of each row of x with that of y.

    With ``x_i = sum_j w_j sign(x_i - x_j)`` (twice the rank minus a constant) it is Spearman's.
    """
    total = weights.sum(axis=1, keepdims=True)
    x = x - (weights * x).sum(axis=1, keepdims=True) / total
    y = y - (weights * y).sum(axis=1, keepdims=True) / total
    xx, yy = (weights * x * x).sum(axis=1), (weights * y * y).sum(axis=1)
    varies = (xx > 1e-20) & (yy > 1e-20)
    value = _ratio((weights * x * y).sum(axis=1), np.sqrt(np.where(varies, xx * yy, 0)))
    return np.clip(value, -1, 1)


def _top_overlaps(score: FloatArray, goal: FloatArray, weights: FloatArray, top: int) -> FloatArray:
    """`agreement.top_overlap` of every resample; NaN if it has at most ``top`` subjects."""
    top_shares = [_top_shares(values, weights, top) for values in (score, goal)]
    share = (weights * np.minimum(*top_shares)).sum(axis=1) / top
    return np.where(weights.sum(axis=1) > top, share, np.nan)


def _top_shares(values: FloatArray, weights: FloatArray, top: int) -> FloatArray:
    """Share of a top rank that each subject has in each resample; ties share ranks equally."""
    _, group = np.unique(-values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(group.max() + 1))
    size = np.add.reduceat(weights[:, order], starts, axis=1)
    above = size.cumsum(axis=1) - size
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(np.clip((top - above) / size, 0.0, 1.0))
    return share[:, group]

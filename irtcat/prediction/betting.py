"""Betting on candidate means: intervals of a finite benchmark's score that hold at any time.

The score of a benchmark is ``mu = sum_j t_j x_j`` with fixed answers x_j in [0, 1] and weights t_j
that sum to 1. Items are drawn one after another: the k-th draw takes the open item j with known
probability q_kj > 0. With any predictions m_kj made before it,

    Z_k = sum_drawn t_j x_j + sum_open t_j m_kj + t_J (x_J - m_kJ) / q_kJ

has the expectation mu given the draws before, whatever the predictions are. So the capital of a
bet ``prod_k (1 + lambda_k (Z_k - mu'))`` is a martingale for mu' = mu, and by Ville's inequality it
exceeds 1 / alpha at any time with probability alpha at most. The interval of all mu' that no bet
has rejected contains mu at all times at once with probability 1 - alpha: it is valid for samples of
any size (finite-sample), and whenever the drawing stops. `normal_interval` is the usual one: for a
number of draws that was fixed before, and asymptotic.

The functions take numpy arrays, or JAX arrays within a compiled program.

References:
    Waudby-Smith & Ramdas (2023), Estimating means of bounded random variables by betting, JRSS B
    86, 1-27, sections 4 and 5; the same (2020), Confidence sequences for sampling without
    replacement, NeurIPS; Zrnic & Candes (2024), Active statistical inference, ICML; Wu et al.
    (2026), arXiv 2601.20251 (active evaluation of models).
"""

from typing import Any, NamedTuple

import numpy as np

from irtcat._common.types import FloatArray
from irtcat.responses._matrix import row_blocks

FINITE, ASYMPTOTIC = "finite-sample", "asymptotic"
"""How intervals hold: for samples of any size, or in the limit of many draws."""

N_MEANS = 1001
"""Candidate means from 0 to 1. The capital is monotone in the candidate, so that an end of the
interval is the outermost candidate that is still rejected: it errs outward, by .001 at most."""

DISTANCES = np.array([0.05, 0.1, 0.2])
"""Distances of the score from a candidate at which the bets aim; the capital is divided equally.
After 30 to 200 draws of ARC-Challenge and SWE-bench Verified the intervals were 2 to 4 % narrower
than with six distances from .02 to .3, and at most 3 % wider than with .1 alone."""

CAP = 0.95
"""Largest share of the capital that a draw may cost. With .5 the intervals of ARC-Challenge were
46 % wider after 30 draws, and 13 % after 200."""

EDGE = 0.02
"""Predictions are clipped to [EDGE, 1 - EDGE] for the variance that they imply."""

PRIOR_DRAWS = 5.0
"""Draws that the predicted variance counts for beside the observed one."""

TRUSTED_DRAWS, TRUSTED_VARIANCE = 10.0, 0.05
"""Draws for which the predictions count when they are recalibrated, and their variance."""

BLOCK = 300_000
"""Bets that are held at a time: 600 sessions of 200 draws took 6.2 s, and 8.5 s with 4 million."""

LARGEST_SQUARE = 25.0
"""Bound of a squared deviation, in predicted variances: one draw shall not set the variance."""


class Draw(NamedTuple):
    """Draws, in arrays of one shape.

    A skipped item has an unknown answer from 0 to 1: ``lower`` counts it as 0, ``upper`` as 1.

    Attributes:
        chance: probability with which the item was drawn.
        factor: its weight in the score over this probability.
        raw: its prediction before it was recalibrated.
        answer: its answer; its prediction if it was skipped.
        counts: 1, or 0 if it was skipped.
        value: Z, with the prediction for the answers to skipped items.
        lower: Z with 0 for them.
        upper: Z with 1 for them.
        least: least ``lower`` that this draw could have given.
        greatest: greatest ``upper`` that it could have given.
        variance: variance of Z if the predictions are right.
        left: share of the items that were open before the draw.
        known_lower: least possible score after the draw.
        known_upper: greatest possible score after the draw.
    """

    chance: Any
    factor: Any
    raw: Any
    answer: Any
    counts: Any
    value: Any
    lower: Any
    upper: Any
    least: Any
    greatest: Any
    variance: Any
    left: Any
    known_lower: Any
    known_upper: Any


class Bets(NamedTuple):
    """Capital and sums after some draws of each of several samples.

    Attributes:
        capital: capital of each bet, from 1: ... x side (mu is above or below the candidate) x
            distance x candidate. It may overflow to infinity, and underflow to 0, which errs
            outward.
        peak: the greatest capital so far over all distances together: ... x side x candidate.
        sums: sums over the draws (see `fitting.em.m_step`): ... x 8.
        known: least and greatest possible score: ... x 2.
        tuning: sums for the recalibration of predictions (see `tuning_terms`): ... x 5.
    """

    capital: Any
    peak: Any
    sums: Any
    known: Any
    tuning: Any


class Intervals(NamedTuple):
    """Scores and intervals after each draw, samples x draws; NaN after the last draw of a sample.

    Attributes:
        score: estimate of the score.
        lower: lower end of the betting interval, valid at all times together (finite-sample).
        upper: its upper end.
        normal_lower: lower end of the Normal interval, for a fixed number of draws (asymptotic).
        normal_upper: its upper end.
    """

    score: FloatArray
    lower: FloatArray
    upper: FloatArray
    normal_lower: FloatArray
    normal_upper: FloatArray

    def last(self, is_normal: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Score and interval after the last draw of each sample; NaN without draws or answers.

        The interval is widened to the score, which a betting interval may miss.

        Args:
            is_normal: take the Normal interval.
        """
        ends = (self.normal_lower, self.normal_upper) if is_normal else (self.lower, self.upper)
        at = np.maximum(np.isfinite(self.lower).sum(axis=1) - 1, 0)[:, None]
        score, lower, upper = (
            np.take_along_axis(values, at, axis=1)[:, 0] for values in (self.score, *ends)
        )
        return score, np.fmin(lower, score), np.fmax(upper, score)


def _namespace(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return np
    import jax.numpy as jnp  # not imported by commands that read results

    return jnp


def tuning_terms(factor: Any, raw: Any, answer: Any, counts: Any) -> Any:
    """What a draw adds to the sums of the recalibration: ... x 5.

    With the weight w = factor: w, w m, w x, w m x and w m^2 of prediction m and answer x.
    """
    xp, w = _namespace(raw), factor * counts
    return xp.stack([w, w * raw, w * answer, w * raw * answer, w * raw**2], axis=-1)


def recalibrated(predicted: Any, tuning: Any) -> Any:
    """Predictions corrected by a regression of the answers so far on their predictions.

    ``m + s + (b - 1) (m - mean m)``, clipped to [0, 1], with the mean error s of the predictions of
    the items drawn and the slope b of the regression of their answers on their predictions, both
    weighted by 1 / q and shrunk to s = 0 and b = 1 by ten draws. So a bank that is wrong is hardly
    worse than none.

    References:
        Angelopoulos, Duchi & Zrnic (2023), arXiv 2311.01453 (PPI++: the slope); Deville & Saerndal
        (1992), JASA 87, 376-382 (calibration).
    """
    xp = _namespace(predicted)
    w, wm, wx, wmx, wmm = (tuning[..., k, None] for k in range(5))
    some = xp.where(w > 0, w, 1.0)
    mean = wm / some
    prior = TRUSTED_DRAWS * TRUSTED_VARIANCE
    slope = (prior + wmx - mean * wx) / (prior + xp.maximum(wmm - mean * wm, 0.0))
    shift = (wx - wm) / (w + TRUSTED_DRAWS)
    return xp.clip(predicted + shift + (slope - 1) * (predicted - mean), 0.0, 1.0)


def draw_of(
    weights: Any,
    predicted: Any,
    chances: Any,
    is_open: Any,
    lower: Any,
    upper: Any,
    item: Any,
    tuning: Any,
) -> Draw:
    """The draw of one of the open items.

    Args:
        weights: weight t of each item in the score.
        predicted: prediction m of each item's answer, from 0 to 1, made before the draw (draws x
            items; likewise the other arguments).
        chances: probability of each open item to be drawn; above 0, with sum 1.
        is_open: items that were not drawn before.
        lower: least possible answer of the items drawn before and of this one.
        upper: greatest possible answer of them; differs from ``lower`` for skipped items.
        item: position of the item drawn.
        tuning: sums of `tuning_terms` over the earlier draws, by which ``predicted`` is corrected.

    Example:
        >>> x, half, all_open = np.array([[1.0, 0.0]]), np.full((1, 2), 0.5), np.ones((1, 2), bool)
        >>> draw = draw_of(half[0], half, half, all_open, x, x, np.array([0]), np.zeros((1, 5)))
        >>> draw.value.tolist(), draw.known_lower.tolist(), draw.known_upper.tolist()
        ([1.0], [0.5], [1.0])
    """
    xp = _namespace(predicted)

    def at(values: Any) -> Any:
        return xp.take_along_axis(values, item[..., None], axis=-1)[..., 0]

    raw, predicted = at(predicted), recalibrated(predicted, tuning)
    shape = predicted.shape
    weights = xp.broadcast_to(weights, shape)
    factor = at(weights) / at(chances)
    guess = xp.where(upper > lower, predicted, lower)
    ratio = xp.where(is_open, weights / xp.where(is_open, chances, 1.0), 0.0)
    clipped = xp.clip(predicted, EDGE, 1 - EDGE)

    def total(answers: Any) -> Any:
        return (weights * xp.where(is_open, predicted, answers)).sum(axis=-1)

    def value(answers: Any) -> Any:
        return total(answers) + factor * (at(answers) - at(predicted))

    rest = (weights * is_open).sum(axis=-1) - at(weights)
    drawn = ~is_open | (xp.arange(shape[-1]) == item[..., None])
    return Draw(
        chance=at(chances),
        factor=factor,
        raw=raw,
        answer=at(guess),
        counts=at(upper <= lower) * 1.0,
        value=value(guess),
        lower=value(lower),
        upper=value(upper),
        least=total(lower) - (ratio * predicted).max(axis=-1),
        greatest=total(upper) + (ratio * (1 - predicted)).max(axis=-1),
        variance=(weights * ratio * clipped * (1 - clipped)).sum(axis=-1),
        left=is_open.sum(axis=-1) / shape[-1],
        known_lower=(weights * xp.where(drawn, lower, 0.0)).sum(axis=-1),
        known_upper=(weights * xp.where(drawn, upper, 0.0)).sum(axis=-1) + xp.maximum(rest, 0.0),
    )


def no_bets(shape: tuple[int, ...] = (), xp: Any = np, dtype: Any = float) -> Bets:
    """Before the first draw, for samples in an array of this shape."""
    return Bets(
        capital=xp.ones((*shape, 2, len(DISTANCES), N_MEANS), dtype),
        peak=xp.ones((*shape, 2, N_MEANS), dtype),
        sums=xp.zeros((*shape, 8), dtype),
        known=xp.broadcast_to(xp.asarray([0.0, 1.0], dtype=dtype), (*shape, 2)),
        tuning=xp.zeros((*shape, 5), dtype),
    )


def bet(bets: Bets, draw: Draw) -> Bets:
    """Bet on every candidate against the next draw.

    For a candidate mu' the bet that mu is greater is ``lambda = d / V`` for a distance d, the best
    one if mu is d above mu' and V is the variance of Z; V is the predicted variance times the ratio
    of observed to predicted variance so far. It is at most ``.95 / (mu' - least)``, so that a draw
    costs at most that share of the capital.
    """
    xp = _namespace(bets.sums)
    means = xp.asarray(np.linspace(0, 1, N_MEANS), dtype=bets.sums.dtype)
    n, squares = bets.sums[..., 0], bets.sums[..., 1]
    predicted = xp.maximum(draw.variance, 1e-12)
    variance = predicted * (PRIOR_DRAWS + squares) / (PRIOR_DRAWS + n)
    wanted = (xp.asarray(DISTANCES, dtype=bets.sums.dtype) / variance[..., None])[..., None]

    def gains(away: Any, possible_loss: Any) -> Any:
        most = CAP / xp.maximum(possible_loss, 1e-9)[..., None, :]
        return 1 + xp.minimum(wanted, most) * away[..., None, :]

    above = gains(draw.lower[..., None] - means, means - draw.least[..., None])
    below = gains(means - draw.upper[..., None], draw.greatest[..., None] - means)
    with np.errstate(over="ignore", under="ignore"):
        capital = bets.capital * xp.stack([above, below], axis=-3)
        pooled = capital.mean(axis=-2)
    sums = bets.sums + _terms(bets, draw, predicted, xp)
    known = xp.stack([draw.known_lower, draw.known_upper], axis=-1)
    tuning = bets.tuning + tuning_terms(draw.factor, draw.raw, draw.answer, draw.counts)
    return Bets(capital, xp.maximum(bets.peak, pooled), sums, known, tuning)


def _terms(bets: Bets, draw: Draw, predicted: Any, xp: Any) -> Any:
    """What a draw adds to the sums.

    1; its squared deviation in predicted variances, from the estimate including it; and with the
    weight w = 1 / left^2: w, w Z, w^2, w^2 Z, w^2 Z^2 and w^2 times the predicted variance.
    """
    w, z = 1 / draw.left**2, draw.value
    total, weighted = bets.sums[..., 2] + w, bets.sums[..., 3] + w * z
    deviation = z - xp.clip(weighted / total, 0.0, 1.0)
    square = xp.minimum(deviation**2 / predicted, LARGEST_SQUARE)
    w2 = w**2
    return xp.stack([xp.ones_like(z), square, w, w * z, w2, w2 * z, w2 * z**2, w2 * predicted], -1)


def score_of(bets: Bets) -> Any:
    """Estimate of the score: ``sum w_k Z_k / sum w_k`` with w_k = 1 / left^2, in the known range.

    For a simple random sample without predictions it is the sample mean, up to terms of order 1/N.
    It is unbiased before it is clipped. NaN without an answer.
    """
    xp = _namespace(bets.sums)
    is_answered = bets.tuning[..., 0] > 0
    total = xp.where(is_answered, bets.sums[..., 2], 1.0)
    estimate = xp.where(is_answered, bets.sums[..., 3], xp.nan) / total
    return xp.clip(estimate, bets.known[..., 0], bets.known[..., 1])


def betting_interval(bets: Bets, level: float) -> tuple[Any, Any]:
    """The candidates that were never rejected, within the known range.

    Each side is rejected at a capital of 2 / (1 - level). The interval holds for all numbers of
    draws together with at least this probability. It never gets wider, except where bets or answers
    contradict it (it missed the score; if all candidates are rejected, it is from the one end to
    the other), and it ends at the exact score.
    """
    xp = _namespace(bets.peak)
    means = xp.asarray(np.linspace(0, 1, N_MEANS), dtype=bets.peak.dtype)
    is_rejected = bets.peak >= 2 / (1 - level)
    lower = xp.where(is_rejected[..., 0, :], means, 0.0).max(axis=-1)
    upper = xp.where(is_rejected[..., 1, :], means, 1.0).min(axis=-1)
    lower, upper = xp.minimum(lower, upper), xp.maximum(lower, upper)
    low, high = bets.known[..., 0], bets.known[..., 1]
    return xp.clip(lower, low, high), xp.clip(upper, low, high)


def normal_interval(bets: Bets, level: float) -> tuple[FloatArray, FloatArray]:
    """Score -+ t SE, within the known range: for a number of draws that was fixed before.

    ``SE^2 = max(n / (n - 1) sum w_k^2 (Z_k - score)^2, sum w_k^2 v_k) / (sum w_k)^2`` with the
    predicted variances v_k, and t of n - 1 degrees of freedom (central limit theorem of
    martingales): asymptotic. Skipped items have their predictions. With fewer than two draws, or no
    answer, it is the known range.

    References:
        Hall & Heyde (1980), Martingale Limit Theory, section 3.2; Zrnic & Candes (2024), section 4.
    """
    from scipy.special import stdtrit  # slow to import

    n, _, total, weighted, w2, w2z, w2zz, w2v = np.moveaxis(np.asarray(bets.sums, float), -1, 0)
    enough = (n >= 2) & (np.asarray(bets.tuning)[..., 0] > 0)
    n, total = np.where(enough, n, 2), np.where(enough, total, 1)
    estimate = weighted / total
    observed = np.maximum(w2zz - 2 * estimate * w2z + estimate**2 * w2, 0) * n / (n - 1)
    half = stdtrit(n - 1, 0.5 + level / 2) * np.sqrt(np.maximum(observed, w2v)) / total
    half = np.where(enough, half, np.inf)
    low, high = np.moveaxis(np.asarray(bets.known, float), -1, 0)
    return np.clip(estimate - half, low, high), np.clip(estimate + half, low, high)


def intervals_of(draws: Draw, level: float) -> Intervals:
    """Scores and intervals after each draw.

    Args:
        draws: samples x draws, as numpy arrays; NaN after the last draw of a sample.
        level: probability of the intervals.

    Example:
        >>> import numpy as np
        >>> x, item = np.tile([1.0, 0.0, 1.0, 1.0], (4, 1)), np.arange(4)
        >>> is_open = item >= item[:, None]
        >>> q, half = is_open / is_open.sum(axis=1, keepdims=True), np.full((4, 4), 0.5)
        >>> draws = draw_of(half[0] / 2, half, q, is_open, x, x, item, np.zeros((4, 5)))
        >>> result = intervals_of(Draw(*(column[None] for column in draws)), 0.95)
        >>> result.lower[0].tolist(), result.upper[0].tolist()
        ([0.25, 0.25, 0.5, 0.75], [1.0, 0.75, 0.75, 0.75])
    """
    n_samples, n_draws = draws.value.shape
    out = np.full((5, n_samples, n_draws), np.nan)
    for rows in row_blocks((n_samples, 2 * len(DISTANCES) * N_MEANS), BLOCK):
        block = Draw(*(np.asarray(column, float)[rows] for column in draws))
        bets = no_bets(block.value.shape[:1])
        for k in range(n_draws):
            going = np.isfinite(block.value[:, k])
            if not going.any():
                break
            now = bet(Bets(*(leaf[going] for leaf in bets)), Draw(*(c[going, k] for c in block)))
            bets = Bets(*(_replaced(old, going, new) for old, new in zip(bets, now, strict=True)))
            ends = (*betting_interval(now, level), *normal_interval(now, level))
            at = np.flatnonzero(going) + rows.start
            out[:, at, k] = score_of(now), *ends
    return Intervals(*out)


def _replaced(old: FloatArray, rows: np.ndarray, new: FloatArray) -> FloatArray:
    """The array with new rows; not copied where all rows are new."""
    if rows.all():
        return new
    out = old.copy()
    out[rows] = new
    return out

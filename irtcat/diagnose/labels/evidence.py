"""Evidence on an item's key: correct, wrong, or answers unrelated to ability.

Each subject's ability is estimated from the *other* items. Under three hypotheses about an item
the probability of the answers that were scored right is

    sound      c + (1 - c) s(a (theta - b)),
    wrong key  g (1 - s(a (theta - b))),
    unrelated  the same for all subjects,

s the logistic curve: with a wrong key, subjects who know the answer are scored wrong, and a
share g of the others gives the keyed answer. The parameters are integrated out: a and b over their
distribution among the other items, c and g over a few values, the constant over Beta(2, 2) and
Beta(20, 20).

For few subjects and many items the abilities are estimated instead, and the items integrated out.
A few answers carry little information about an item and thousands carry much about a subject, so
the items are integrated out and the abilities estimated: the reverse of calibration. With slopes of
sound items log-Normal about 1 (which fixes the scale) and difficulties of any distribution, EM
alternates between

    E  each item's posterior over the hypotheses, slopes and difficulties on a grid,
    M  one Newton step for every ability; the SD of log slopes, the distribution of difficulties and
       the share of items that can be guessed, from the sound items.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import betaln, expit, logit, logsumexp

from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.progress import Progress, Steps
from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank
from irtcat.models import expected_responses
from irtcat.responses import Responses
from irtcat.scoring import Ability

SPREAD = 0.5
"""SD of the logarithm of sound items' slopes."""
GUESSING = (0.0, 0.25)
"""Values of c."""
KEYED = (1.0, 0.35)
"""Values of g."""
BETAS = (2, 20)
"""Both parameters of the Beta distributions of the constant."""
LONG = 100
"""Above this number of items the effect of one item on the abilities is negligible."""
BLOCK = 1 << 22
"""Array cells per block of subjects, which limits memory."""
BINS = 60
"""Bins of ability in `top_subjects`, which bound its cost."""

curves = jit(expected_responses)


class Evidence(NamedTuple):
    """Log-probabilities of each item's answers under the three hypotheses."""

    sound: FloatArray
    wrong_key: FloatArray
    unrelated: FloatArray


class _Grid(NamedTuple):
    """Flattened grid of slopes and difficulties, with log-weights."""

    a: FloatArray
    b: FloatArray
    log_weight: FloatArray


def _parameter_grid(bank: ItemBank) -> _Grid:
    """A grid over log a ~ N(log median, 0.5) and b ~ t(3) around the bank's median b."""
    frame = bank.to_frame()
    a, b = frame["a"].to_numpy(float), frame["b"].to_numpy(float)
    sound = (a > 0.2 / bank.population.sd) & np.isfinite(b)
    unit, middle, spread = 1 / bank.population.sd, bank.population.mean, 1.5 * bank.population.sd
    if sound.sum() >= 3:
        unit = float(np.median(a[sound]))
        middle = float(np.median(b[sound]))
        robust_sd = float(np.subtract(*np.percentile(b[sound], [75, 25]))) / 1.35
        spread = float(np.clip(robust_sd, bank.population.sd, 3 * bank.population.sd))
    u, v = np.linspace(-2, 2, 7), np.linspace(-5, 5, 17)
    a_grid, b_grid = np.meshgrid(unit * np.exp(SPREAD * u), middle + spread * v, indexing="ij")
    log_weight = -0.5 * u[:, None] ** 2 - 2 * np.log1p(v[None, :] ** 2 / 3)
    return _Grid(a_grid.ravel(), b_grid.ravel(), (log_weight - logsumexp(log_weight)).ravel())


def _thinned(ability: Ability) -> tuple[FloatArray, FloatArray]:
    """Every k-th node of the posteriors, at most .8 SDs apart: exact to 1e-10 if Normal."""
    nodes, weights = ability.nodes, ability.weights
    assert nodes is not None
    assert weights is not None
    spacing = 0.8 * ability.se / (nodes[:, 1] - nodes[:, 0])
    k = max(1, int(np.nanmin(spacing)))
    nodes, weights = nodes[:, ::k], weights[:, ::k]
    return nodes, weights / weights.sum(axis=1, keepdims=True)


def _predicted(
    bank: ItemBank, x: FloatArray, nodes: FloatArray, weights: FloatArray, grid: _Grid
) -> FloatArray:
    """P(right) of the block's subjects for all parameters: rows x items (or 1) x grid."""
    n, q = nodes.shape
    curve = expit(grid.a * (nodes[..., None] - grid.b))
    if x.shape[1] > LONG:
        return weights[:, None, :] @ curve
    with precision("float64"):
        p = np.asarray(curves(bank.model, jnp.asarray(nodes.ravel()))).reshape(-1, n, q)
    p = np.moveaxis(p, 0, 1)  # rows x items x nodes
    answer = x[:, :, None]
    likelihood = np.where(np.isnan(answer), 1.0, np.where(answer > 0, p, 1 - p))
    # Dividing the posterior by an item's likelihood gives the posterior without the item.
    others = weights[:, None, :] / np.maximum(likelihood, 1e-12)
    others /= others.sum(axis=2, keepdims=True)
    return others @ curve


def item_evidence(
    bank: ItemBank, responses: Responses, ability: Ability, progress: Progress | None = None
) -> Evidence:
    """Log-probabilities of the answers to each item under the three hypotheses.

    Args:
        bank: the calibrated items of the responses, in their order.
        responses: right/wrong.
        ability: posteriors of the subjects.
        progress: called for every block of subjects.
    """
    nodes, weights = _thinned(ability)
    X, grid = responses.to_numpy(), _parameter_grid(bank)
    n_items, size = X.shape[1], len(grid.a)
    sound = np.zeros((len(GUESSING), n_items, size))
    wrong = np.zeros((len(KEYED), n_items, size))
    cells = nodes.shape[1] * size + (n_items if n_items <= LONG else 1) * size
    step = max(1, BLOCK // cells)
    begin = Steps(progress, -(-len(X) // step))
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        begin(f"Evidence of subjects {start + 1} to {min(start + step, len(X))} of {len(X)}")
        p = _predicted(bank, X[rows], nodes[rows], weights[rows], grid)
        right, missed = np.nan_to_num(X[rows]) == 1, X[rows] == 0
        for k, c in enumerate(GUESSING):
            sound[k] += _log_likelihood(c + (1 - c) * p, right, missed)
        for k, g in enumerate(KEYED):
            wrong[k] += _log_likelihood(g * (1 - p), right, missed)
    n_right, n_missed = (X == 1).sum(axis=0), (X == 0).sum(axis=0)
    return Evidence(_averaged(sound, grid), _averaged(wrong, grid), unrelated(n_right, n_missed))


def unrelated(n_right: FloatArray, n_missed: FloatArray) -> FloatArray:
    """Log-probability of the answers if P(right) is the same for all subjects.

    A share near a half, Beta(20, 20), is as likely as a dispersed one, Beta(2, 2).
    """
    terms = [betaln(n_right + k, n_missed + k) - betaln(k, k) for k in BETAS]
    return np.asarray(logsumexp(terms, axis=0) - np.log(len(BETAS)), float)


def _log_likelihood(p: FloatArray, right: np.ndarray, missed: np.ndarray) -> FloatArray:
    """Log-probability of the block's answers: items x grid."""
    p = np.clip(p, 1e-9, 1 - 1e-9)
    if p.shape[1] == 1:
        return right.T @ np.log(p[:, 0]) + missed.T @ np.log1p(-p[:, 0])
    likelihood = np.where(right[..., None], p, 1 - p)
    likelihood[~(right | missed)] = 1.0
    # Products of 16 probabilities of 1e-9 or more do not underflow, and need fewer logarithms.
    starts = np.arange(0, len(likelihood), 16)
    return np.log(np.multiply.reduceat(likelihood, starts, axis=0)).sum(axis=0)


def _averaged(log_likelihood: FloatArray, grid: _Grid) -> FloatArray:
    """Log of the mean probability over the grid and the values of c or g."""
    total = logsumexp(log_likelihood + grid.log_weight, axis=(0, 2))
    return np.asarray(total - np.log(len(log_likelihood)), float)


def top_subjects(
    responses: Responses, ability: Ability, slope: float, share: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Right answers of the best subjects on each item, and those expected on a typical item.

    The typical item has slope ``slope`` and the same share of right answers over all subjects.
    Subjects are grouped in up to 60 bins of ability.

    Returns:
        For each item: answers of the best, right answers, expected right answers, and their SD.
    """
    X = responses.to_numpy()
    theta = np.round(np.nan_to_num(ability.theta), 9)
    n_bins = min(BINS, len(theta))
    # Subjects of equal ability are in one bin, the highest of theirs: their order does not count.
    rank = np.searchsorted(np.sort(theta), theta, side="right") - 1
    bins, group = np.unique(rank * n_bins // len(theta), return_inverse=True)
    # The best subjects are the top bins.
    best = bins >= n_bins - max(1, int(np.ceil(share * n_bins)))
    member = (group == np.arange(len(bins))[:, None]).astype(float)
    middle = member @ theta / member.sum(axis=1)
    answered, right = member @ ~np.isnan(X), member @ np.nan_to_num(X)
    low = np.full(X.shape[1], middle.min() - 20 / slope)
    high = np.full(X.shape[1], middle.max() + 20 / slope)
    for _ in range(60):
        b = (low + high) / 2
        too_many = (answered * expit(slope * (middle[:, None] - b))).sum(axis=0) > right.sum(axis=0)
        low, high = np.where(too_many, b, low), np.where(too_many, high, b)
    p = expit(slope * (middle[:, None] - b))
    n, n_right = answered[best].sum(axis=0), right[best].sum(axis=0)
    expected = (answered * p)[best].sum(axis=0)
    return n, n_right, expected, np.sqrt((answered * p * (1 - p))[best].sum(axis=0))


def top_columns(
    responses: Responses, ability: Ability, slope: float, top: float
) -> dict[str, FloatArray]:
    """Columns on the best subjects."""
    n, right, expected, sd = top_subjects(responses, ability, slope, top)
    z = np.where(sd > 0.1, (right - expected) / np.where(sd > 0, sd, 1), np.nan)
    return {"top_n": n.astype(int), "top_right": right, "top_expected": expected, "top_z": z}


LOG_SLOPES = np.linspace(-1.5, 1.5, 11)
DIFFICULTIES = np.linspace(-8, 8, 33)
"""The grid over the parameters of items."""
ABILITY_SD = 3.0
"""SD of the Normal prior of abilities, which keeps them finite."""
PSEUDO_ITEMS = 10.0
"""Weight of the initial distributions, in sound items."""
MAX_EM_ITEMS = 2000
"""Largest number of items in EM; the evidence is for all."""
MAX_ROUNDS = 60
TOLERANCE = 1e-3
"""EM stops if no ability changes by more."""
BLOCK_ITEMS = 500
"""Items per block, which limits memory."""
MIN_PROBABILITY = 1e-9
"""Keeps logarithms finite."""


class _LabelShares(NamedTuple):
    """Distributions of log slopes, difficulties and guessing of sound items."""

    slope: FloatArray
    difficulty: FloatArray
    guessing: FloatArray


_DistinctAnswers = tuple[FloatArray, FloatArray, FloatArray]
"""Right and wrong answers to distinct items, subjects x items, and how often each occurs."""


def _initial_shares() -> _LabelShares:
    slope = np.exp(-0.5 * (LOG_SLOPES / SPREAD) ** 2)
    difficulty = (1 + (DIFFICULTIES / 2) ** 2 / 3) ** -2.0
    guessing = np.full(len(GUESSING), 1 / len(GUESSING))
    return _LabelShares(slope / slope.sum(), difficulty / difficulty.sum(), guessing)


def _curves(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P(right) for each value of c and g, and its derivative: values x subjects x grid."""
    a = np.repeat(np.exp(LOG_SLOPES), len(DIFFICULTIES))
    s = expit(a * (theta[:, None] - np.tile(DIFFICULTIES, len(LOG_SLOPES))))
    slope = a * s * (1 - s)
    p = [c + (1 - c) * s for c in GUESSING] + [g * (1 - s) for g in KEYED]
    d = [(1 - c) * slope for c in GUESSING] + [-g * slope for g in KEYED]
    return np.clip(np.stack(p), MIN_PROBABILITY, 1 - MIN_PROBABILITY), np.stack(d)


def _log_joint(
    log_p: FloatArray,
    log_q: FloatArray,
    right: FloatArray,
    missed: FloatArray,
    shares: _LabelShares,
) -> FloatArray:
    """Log of weight times probability of each item's answers: values x items x grid."""
    keyed = np.full(len(KEYED), 1 / len(KEYED))
    weight = np.log(np.concatenate([shares.guessing, keyed]))
    log_share = np.log(shares.slope[:, None] * shares.difficulty).ravel()
    return right.T @ log_p + missed.T @ log_q + log_share + weight[:, None, None]


def _evidence(joint: FloatArray, right: FloatArray, missed: FloatArray) -> Evidence:
    """Log-probabilities of the answers under the hypotheses, over slopes and difficulties."""
    n = len(GUESSING)
    return Evidence(
        np.asarray(logsumexp(joint[:n], axis=(0, 2)), float),
        np.asarray(logsumexp(joint[n:], axis=(0, 2)), float),
        unrelated(right.sum(axis=0), missed.sum(axis=0)),
    )


def _step(
    theta: FloatArray, shares: _LabelShares, answers: _DistinctAnswers, log_prior: FloatArray
) -> tuple[FloatArray, _LabelShares]:
    """One round of EM over the distinct columns of answers."""
    right, missed, count = answers
    p, d = _curves(theta)
    log_p, log_q = np.log(p), np.log1p(-p)
    n_right, n_missed = np.zeros_like(p), np.zeros_like(p)
    sound = np.zeros((len(GUESSING), p.shape[2]))
    for start in range(0, len(count), BLOCK_ITEMS):
        block = slice(start, start + BLOCK_ITEMS)
        r, w, n = right[:, block], missed[:, block], count[block]
        joint = _log_joint(log_p, log_q, r, w, shares)
        total = logsumexp(np.stack(_evidence(joint, r, w)) + log_prior[:, None], axis=0)
        joint[: len(GUESSING)] += log_prior[0]
        joint[len(GUESSING) :] += log_prior[1]
        posterior = np.exp(joint - total[:, None] + np.log(n)[:, None])
        n_right += r @ posterior
        n_missed += w @ posterior
        sound += posterior[: len(GUESSING)].sum(axis=1)
    gradient = ((n_right / p - n_missed / (1 - p)) * d).sum(axis=(0, 2)) - theta / ABILITY_SD**2
    information = ((n_right + n_missed) * d**2 / (p * (1 - p))).sum(axis=(0, 2)) + ABILITY_SD**-2
    theta = theta + np.clip(gradient / information, -1, 1)
    return theta, _updated_shares(sound.reshape(len(GUESSING), len(LOG_SLOPES), -1))


def _updated_shares(sound: FloatArray) -> _LabelShares:
    """Shares from the expected numbers of sound items and the initial shares."""
    start, total = _initial_shares(), sound.sum() + PSEUDO_ITEMS
    square = sound.sum(axis=(0, 2)) @ LOG_SLOPES**2 + PSEUDO_ITEMS * SPREAD**2
    slope = np.exp(-0.5 * LOG_SLOPES**2 * total / square)
    difficulty = sound.sum(axis=(0, 1)) + PSEUDO_ITEMS * start.difficulty
    guessing = sound.sum(axis=(1, 2)) + PSEUDO_ITEMS * start.guessing
    return _LabelShares(slope / slope.sum(), difficulty / total, guessing / total)


def _columns(X: FloatArray) -> _DistinctAnswers:
    """Right and wrong answers of distinct items among 2,000 at most, and how often they occur."""
    sample = np.linspace(0, X.shape[1] - 1, min(X.shape[1], MAX_EM_ITEMS)).astype(int)
    codes = np.where(np.isnan(X[:, sample]), 2, X[:, sample]).astype(np.int8)
    distinct, count = np.unique(codes, axis=1, return_counts=True)
    return (distinct == 1).astype(float), (distinct == 0).astype(float), count.astype(float)


def few_evidence(
    X: FloatArray, prior: tuple[float, float], progress: Progress | None = None
) -> Evidence:
    """Log-probabilities of the answers to each item under the three hypotheses.

    Args:
        X: right/wrong answers of few subjects to many items; NaN if missing.
        prior: prior probabilities of a wrong key and of an unrelated item.
        progress: called for every round of EM, and every block of items.
    """
    begin = Steps(progress, MAX_ROUNDS + -(-X.shape[1] // BLOCK_ITEMS))
    log_prior = np.log([1 - sum(prior), *prior])
    answers = _columns(X)
    n_right = (X == 1).sum(axis=1)
    theta = 1.5 * logit((n_right + 0.5) / ((~np.isnan(X)).sum(axis=1) + 1))
    shares = _initial_shares()
    for number in range(1, MAX_ROUNDS + 1):
        begin(f"Abilities and items together: round {number} of at most {MAX_ROUNDS}")
        previous = theta
        theta, shares = _step(theta, shares, answers, log_prior)
        if np.abs(theta - previous).max() < TOLERANCE:
            break
    p = _curves(theta)[0]
    log_p, log_q, blocks = np.log(p), np.log1p(-p), []
    begin.done = MAX_ROUNDS
    for start in range(0, X.shape[1], BLOCK_ITEMS):
        x = X[:, start : start + BLOCK_ITEMS]
        begin(f"Evidence of items {start + 1} to {start + x.shape[1]} of {X.shape[1]}")
        r, w = (x == 1).astype(float), (x == 0).astype(float)
        blocks.append(_evidence(_log_joint(log_p, log_q, r, w, shares), r, w))
    return Evidence(*(np.concatenate(values) for values in zip(*blocks, strict=True)))

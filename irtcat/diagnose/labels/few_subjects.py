"""The three hypotheses about an item for few subjects and many items.

A few answers carry little information about an item and thousands carry much about a subject, so
the items are integrated out and the abilities estimated: the reverse of calibration. With slopes of
sound items log-Normal about 1 (which fixes the scale) and difficulties of any distribution, EM
alternates between

    E  each item's posterior over the hypotheses, slopes and difficulties on a grid,
    M  one Newton step for every ability; the SD of log slopes, the distribution of difficulties and
       the share of items that can be guessed, from the sound items.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, logsumexp

from irtcat._common.progress import Progress, Steps
from irtcat._common.types import FloatArray
from irtcat.diagnose.labels.evidence import GUESSING, KEYED, SPREAD, Evidence, unrelated

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
BLOCK = 500
"""Items per block, which limits memory."""
MIN_PROBABILITY = 1e-9
"""Keeps logarithms finite."""


class _LabelShares(NamedTuple):
    """Distributions of log slopes, difficulties and guessing of sound items."""

    slope: FloatArray
    difficulty: FloatArray
    guessing: FloatArray

    def log_grid(self) -> FloatArray:
        """Log-weights of slope and difficulty, flattened."""
        return np.log(self.slope[:, None] * self.difficulty).ravel()


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
    return right.T @ log_p + missed.T @ log_q + shares.log_grid() + weight[:, None, None]


def _evidence(joint: FloatArray, right: FloatArray, missed: FloatArray) -> Evidence:
    """Log-probabilities of the answers under the hypotheses, over slopes and difficulties."""
    n = len(GUESSING)
    return Evidence(
        np.asarray(logsumexp(joint[:n], axis=(0, 2)), float),
        np.asarray(logsumexp(joint[n:], axis=(0, 2)), float),
        unrelated(right.sum(axis=0), missed.sum(axis=0)),
    )


def _step(
    theta: FloatArray,
    shares: _LabelShares,
    right: FloatArray,
    missed: FloatArray,
    count: FloatArray,
    log_prior: FloatArray,
) -> tuple[FloatArray, _LabelShares]:
    """One round of EM over the distinct columns of answers, which occur ``count`` times."""
    p, d = _curves(theta)
    log_p, log_q = np.log(p), np.log1p(-p)
    n_right, n_missed = np.zeros_like(p), np.zeros_like(p)
    sound = np.zeros((len(GUESSING), p.shape[2]))
    for start in range(0, len(count), BLOCK):
        block = slice(start, start + BLOCK)
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


def _columns(X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
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
    begin = Steps(progress, MAX_ROUNDS + -(-X.shape[1] // BLOCK))
    log_prior = np.log([1 - sum(prior), *prior])
    right, missed, count = _columns(X)
    n_right = (X == 1).sum(axis=1)
    theta = 1.5 * logit((n_right + 0.5) / ((~np.isnan(X)).sum(axis=1) + 1))
    shares = _initial_shares()
    for number in range(1, MAX_ROUNDS + 1):
        begin(f"Abilities and items together: round {number} of at most {MAX_ROUNDS}")
        previous = theta
        theta, shares = _step(theta, shares, right, missed, count, log_prior)
        if np.abs(theta - previous).max() < TOLERANCE:
            break
    p = _curves(theta)[0]
    log_p, log_q, blocks = np.log(p), np.log1p(-p), []
    begin.done = MAX_ROUNDS
    for start in range(0, X.shape[1], BLOCK):
        begin(f"Evidence of items {start + 1} to {min(start + BLOCK, X.shape[1])} of {X.shape[1]}")
        x = X[:, start : start + BLOCK]
        r, w = (x == 1).astype(float), (x == 0).astype(float)
        blocks.append(_evidence(_log_joint(log_p, log_q, r, w, shares), r, w))
    return Evidence(*(np.concatenate(values) for values in zip(*blocks, strict=True)))

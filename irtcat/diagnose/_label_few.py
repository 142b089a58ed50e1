"""The three accounts of an item's answers where few subjects answered many items.

A handful of answers says little about one item and thousands say much about a subject, so that the
items are what is averaged over, and the abilities what is estimated: the reverse of calibration.
With sound slopes log-Normal about 1 (which sets the scale) and difficulties of any distribution,
EM alternates between

    E  each item's posterior over the accounts, slopes and difficulties on a grid,
    M  one Newton step for every ability; the SD of log slopes, the distribution of difficulties and
       the share of items that can be guessed, from the sound items.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, logsumexp

from irtcat._types import FloatArray
from irtcat.diagnose._label_evidence import GIVEN, GUESSING, SPREAD, Evidence, coin

__all__ = ["few_evidence"]

LOG_SLOPES = np.linspace(-1.5, 1.5, 11)
DIFFICULTIES = np.linspace(-8, 8, 33)
ABILITY_SD = 3.0
PSEUDO_ITEMS = 10.0
"""Sound items that the distributions at the start count for."""
LEARN_FROM = 2000
ROUNDS = 60
CLOSE = 1e-3
BLOCK = 500
SMALLEST = 1e-9


class _Shares(NamedTuple):
    """Distribution of sound items: over log slopes, difficulties and guessing."""

    slope: FloatArray
    difficulty: FloatArray
    guessing: FloatArray

    def log_grid(self) -> FloatArray:
        """Log-weights of slope and difficulty, flattened."""
        return np.log(self.slope[:, None] * self.difficulty).ravel()


def _at_start() -> _Shares:
    slope = np.exp(-0.5 * (LOG_SLOPES / SPREAD) ** 2)
    difficulty = (1 + (DIFFICULTIES / 2) ** 2 / 3) ** -2.0
    guessing = np.full(len(GUESSING), 1 / len(GUESSING))
    return _Shares(slope / slope.sum(), difficulty / difficulty.sum(), guessing)


def _curves(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P(right) under each shape of account, and its derivative: shapes x subjects x grid."""
    a = np.repeat(np.exp(LOG_SLOPES), len(DIFFICULTIES))
    s = expit(a * (theta[:, None] - np.tile(DIFFICULTIES, len(LOG_SLOPES))))
    slope = a * s * (1 - s)
    p = [c + (1 - c) * s for c in GUESSING] + [g * (1 - s) for g in GIVEN]
    d = [(1 - c) * slope for c in GUESSING] + [-g * slope for g in GIVEN]
    return np.clip(np.stack(p), SMALLEST, 1 - SMALLEST), np.stack(d)


def _log_joint(
    log_p: FloatArray,
    log_q: FloatArray,
    right: FloatArray,
    missed: FloatArray,
    shares: _Shares,
) -> FloatArray:
    """Log of weight times probability of each item's answers: shapes x items x grid."""
    keyed = np.full(len(GIVEN), 1 / len(GIVEN))
    weight = np.log(np.concatenate([shares.guessing, keyed]))
    return right.T @ log_p + missed.T @ log_q + shares.log_grid() + weight[:, None, None]


def _evidence(joint: FloatArray, right: FloatArray, missed: FloatArray) -> Evidence:
    """The accounts' log-probabilities of the answers, slopes and difficulties averaged over."""
    n = len(GUESSING)
    return Evidence(
        np.asarray(logsumexp(joint[:n], axis=(0, 2)), float),
        np.asarray(logsumexp(joint[n:], axis=(0, 2)), float),
        coin(right.sum(axis=0), missed.sum(axis=0)),
    )


def _step(
    theta: FloatArray,
    shares: _Shares,
    right: FloatArray,
    missed: FloatArray,
    count: FloatArray,
    beforehand: FloatArray,
) -> tuple[FloatArray, _Shares]:
    """One round of EM over the different columns of answers, each there ``count`` times."""
    p, d = _curves(theta)
    log_p, log_q = np.log(p), np.log1p(-p)
    got, lost = np.zeros_like(p), np.zeros_like(p)
    sound = np.zeros((len(GUESSING), p.shape[2]))
    for at in range(0, len(count), BLOCK):
        r, w, n = right[:, at : at + BLOCK], missed[:, at : at + BLOCK], count[at : at + BLOCK]
        joint = _log_joint(log_p, log_q, r, w, shares)
        total = logsumexp(np.stack(_evidence(joint, r, w)) + beforehand[:, None], axis=0)
        joint[: len(GUESSING)] += beforehand[0]
        joint[len(GUESSING) :] += beforehand[1]
        belief = np.exp(joint - total[:, None] + np.log(n)[:, None])
        got += r @ belief
        lost += w @ belief
        sound += belief[: len(GUESSING)].sum(axis=1)
    gradient = ((got / p - lost / (1 - p)) * d).sum(axis=(0, 2)) - theta / ABILITY_SD**2
    information = ((got + lost) * d**2 / (p * (1 - p))).sum(axis=(0, 2)) + ABILITY_SD**-2
    theta = theta + np.clip(gradient / information, -1, 1)
    return theta, _learned(sound.reshape(len(GUESSING), len(LOG_SLOPES), -1))


def _learned(sound: FloatArray) -> _Shares:
    """Shares by the expected numbers of sound items, the start's counting for ten."""
    start, total = _at_start(), sound.sum() + PSEUDO_ITEMS
    square = sound.sum(axis=(0, 2)) @ LOG_SLOPES**2 + PSEUDO_ITEMS * SPREAD**2
    slope = np.exp(-0.5 * LOG_SLOPES**2 * total / square)
    difficulty = sound.sum(axis=(0, 1)) + PSEUDO_ITEMS * start.difficulty
    guessing = sound.sum(axis=(1, 2)) + PSEUDO_ITEMS * start.guessing
    return _Shares(slope / slope.sum(), difficulty / total, guessing / total)


def _columns(X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Right and wrong answers of the different items, of 2,000 at most, and how many are alike."""
    some = np.linspace(0, X.shape[1] - 1, min(X.shape[1], LEARN_FROM)).astype(int)
    code = np.where(np.isnan(X[:, some]), 2, X[:, some]).astype(np.int8)
    kinds, count = np.unique(code, axis=1, return_counts=True)
    return (kinds == 1).astype(float), (kinds == 0).astype(float), count.astype(float)


def few_evidence(X: FloatArray, prior: tuple[float, float]) -> Evidence:
    """Log-probabilities of the answers to each item under the three accounts.

    Args:
        X: right/wrong answers of few subjects to many items; NaN where there is none.
        prior: probabilities beforehand of a wrong key and of an unrelated item.
    """
    beforehand = np.log([1 - sum(prior), *prior])
    right, missed, count = _columns(X)
    n_right = (X == 1).sum(axis=1)
    theta = 1.5 * logit((n_right + 0.5) / ((~np.isnan(X)).sum(axis=1) + 1))
    shares = _at_start()
    for _ in range(ROUNDS):
        before = theta
        theta, shares = _step(theta, shares, right, missed, count, beforehand)
        if np.abs(theta - before).max() < CLOSE:
            break
    p = _curves(theta)[0]
    log_p, log_q, parts = np.log(p), np.log1p(-p), []
    for at in range(0, X.shape[1], BLOCK):
        some = X[:, at : at + BLOCK]
        r, w = (some == 1).astype(float), (some == 0).astype(float)
        parts.append(_evidence(_log_joint(log_p, log_q, r, w, shares), r, w))
    return Evidence(*(np.concatenate(part) for part in zip(*parts, strict=True)))

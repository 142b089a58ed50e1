"""Sharing a budget of rollouts out among prompts."""

import numpy as np

from irtcat._common.types import FloatArray, IntArray
from irtcat.training.online.moments import N_NORMAL, NORMAL_REACH, expit

LEAST = 2
"""Rollouts of a chosen prompt: a group of one has no gradient."""


def mixed_gains(mean: FloatArray, sd: FloatArray, first: int, last: int) -> FloatArray:
    """Gain in P(mixed group) by one more rollout, for groups of first to last - 1.

    ``E[1 - p^(k+1) - q^(k+1)] - E[1 - p^k - q^k] = E[p^k q + q^k p]``, which falls with k.

    Returns:
        Gains (prompts x sizes).
    """
    z = np.linspace(-NORMAL_REACH, NORMAL_REACH, N_NORMAL)
    weight = np.exp(-(z**2) / 2)
    weight /= weight.sum()
    p = expit(mean[:, None] + sd[:, None] * z)
    q = 1 - p
    right, wrong = p**first * q * weight, q**first * p * weight
    gains = np.empty((len(mean), last - first))
    for k in range(last - first):
        gains[:, k] = (right + wrong).sum(axis=1)
        right *= p
        wrong *= q
    return gains


def allocate(mean: FloatArray, sd: FloatArray, budget: int) -> IntArray:
    """Rollouts of each prompt that maximise the expected number of mixed groups.

    Gains fall with the size of a group, so that taking the largest ones, one after another, is
    optimal. Ties go to the earlier prompt.
    """
    n = len(mean)
    spare = budget - LEAST * n
    most = LEAST + min(spare, max(8, 4 * spare // n))
    while True:
        gains = mixed_gains(mean, sd, LEAST, most)
        np.minimum.accumulate(gains, axis=1, out=gains)  # equal up to rounding where p is 0 or 1
        # by gain, then by size, then by prompt: equal prompts share equally
        order = np.argsort(-gains.T.ravel(), kind="stable")[:spare]
        counts = np.bincount(order % n, minlength=n) if spare else np.zeros(n, int)
        if most >= LEAST + spare or counts.max() < most - LEAST:
            return LEAST + counts
        most = min(LEAST + spare, 2 * most)

"""Integrals over a logit that is Normal: updates by binomial data, and expected usefulness.

All use the trapezoidal rule, whose error falls exponentially for smooth integrands that vanish at
both ends (Trefethen & Weideman 2014).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from irtcat._common.types import FloatArray

NEWTON_STEPS, LONGEST_STEP = 12, 2.0
"""Limit of Newton's steps to the mode of a tilted density, and the longest one in logits: a longer
one overshoots where the binomial is flat."""

REACH, N_NODES = 8.0, 21
"""Nodes of a tilted density, in SDs at its mode: .8 SD apart, and far, since its tail is that of
the prior where all rollouts are right or all are wrong."""

NORMAL_REACH, N_NORMAL = 5.0, 81
"""Nodes of an expectation under the Normal distribution, in SDs: 1/8 apart."""


class Tilted(NamedTuple):
    """A Normal density times a binomial likelihood.

    Attributes:
        log_z: log of its integral, without the binomial coefficient.
        mean: its mean.
        var: its variance.
    """

    log_z: FloatArray
    mean: FloatArray
    var: FloatArray


def expit(x: FloatArray) -> FloatArray:
    """The logistic function, without overflow.

    Example:
        >>> expit(np.array([-800.0, 0.0, 800.0])).tolist()
        [0.0, 0.5, 1.0]
    """
    value: FloatArray = 0.5 + 0.5 * np.tanh(0.5 * x)
    return value


def _mode(mean: FloatArray, var: FloatArray, right: FloatArray, trials: FloatArray) -> FloatArray:
    """The mode of the tilted density, by Newton's method from the precision-weighted logit."""
    share = (right + 0.5) / (trials + 1)
    weight = trials * share * (1 - share)
    x = (mean / var + weight * np.log(share / (1 - share))) / (1 / var + weight)
    for _ in range(NEWTON_STEPS):
        p = expit(x)
        slope = right - trials * p - (x - mean) / var
        step = np.clip(slope / (trials * p * (1 - p) + 1 / var), -LONGEST_STEP, LONGEST_STEP)
        x = x + step
        if not step.size or np.abs(step).max() < 1e-3:
            break
    return x


def tilted(mean: FloatArray, var: FloatArray, right: FloatArray, trials: FloatArray) -> Tilted:
    """Moments of ``N(x; mean, var) p^right (1 - p)^(trials - right)``, p the logistic of x.

    Args:
        mean: mean of the logit.
        var: its variance, above 0.
        right: successes, which may be fractional.
        trials: rollouts.

    Example:
        >>> known = tilted(np.array([0.0]), np.array([1e-8]), np.array([2.0]), np.array([3.0]))
        >>> round(float(np.exp(known.log_z[0])), 4)
        0.125
    """
    mode = _mode(mean, var, right, trials)
    p = expit(mode)
    sd = 1 / np.sqrt(trials * p * (1 - p) + 1 / var)
    z = np.linspace(-REACH, REACH, N_NODES)
    x = mode[..., None] + sd[..., None] * z
    # log p = x - log(1 + e^x), log(1 - p) = -log(1 + e^x)
    log_terms = right[..., None] * x - trials[..., None] * np.logaddexp(0.0, x)
    log_terms -= (x - mean[..., None]) ** 2 / (2 * var[..., None])
    top = log_terms.max(axis=-1)
    terms = np.exp(log_terms - top[..., None])
    total = terms.sum(axis=-1)
    step = REACH * 2 / (N_NODES - 1)
    log_z = top + np.log(total * step * sd / np.sqrt(2 * np.pi * var))
    first = terms @ z / total
    second = terms @ (z * z) / total - first**2
    return Tilted(log_z, mode + sd * first, sd**2 * second)


def normal_nodes() -> tuple[FloatArray, FloatArray]:
    """Nodes in SDs and their weights, which sum to 1."""
    z = np.linspace(-NORMAL_REACH, NORMAL_REACH, N_NORMAL)
    weights = np.exp(-(z**2) / 2)
    return z, weights / weights.sum()


def usefulness_moments(
    mean: FloatArray, sd: FloatArray, curve: Callable[[FloatArray], FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of a function of the success probability, whose logit is Normal.

    Example:
        >>> mean, sd = usefulness_moments(np.zeros(1), np.ones(1), lambda p: p)
        >>> round(float(mean[0]), 6), round(float(sd[0]), 3)
        (0.5, 0.208)
    """
    z, weights = normal_nodes()
    values = curve(expit(mean[..., None] + sd[..., None] * z))
    average = values @ weights
    return average, np.sqrt(np.maximum((values**2) @ weights - average**2, 0.0))


def probability_moments(mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of the success probability."""
    return usefulness_moments(mean, sd, lambda p: p)

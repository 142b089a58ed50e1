"""One learner's ability on many items, by a few Newton steps in numpy."""

import numpy as np

from irtcat._types import FloatArray

__all__ = ["map_ability"]

STEPS = 500
SETTLED = 1e-6
"""A Newton step shorter than this is the last: what it leaves is of the order of its square."""


def map_ability(
    correct: FloatArray,
    a: FloatArray | float,
    b: FloatArray,
    prior: tuple[float, float] = (0.0, 1.0),
    start: float | None = None,
) -> tuple[float, float]:
    """The posterior mode of one learner's ability on Rasch, 1PL or 2PL items.

    The log-posterior ``sum [x eta - log(1 + exp eta)] - (theta - mean)^2 / (2 sd^2)`` with
    ``eta = a (theta - b)`` is strictly concave, so that the root of its slope

        g(theta) = sum a (x - p) - (theta - mean) / sd^2

    is the mode. Since |sum a (x - p)| is at most sum |a|, the root lies within sd^2 sum |a| of the
    mean. Newton steps are kept inside that bracket, which every step narrows;
    it is halved where they do not become shorter. Nothing is compiled:
    a thousand items take some tens of microseconds. `irtcat.score` with ``method="map"`` gives
    the same for many subjects and all models, within its bounds.

    Args:
        correct: 1 (right) or 0 of each item answered; booleans will do. Not checked here.
        a: discriminations, one or one each; finite.
        b: difficulties; finite.
        prior: mean and SD of the Normal prior; the SD above 0.
        start: where to begin; by default at the prior mean.

    Returns:
        The mode and its standard error, ``1 / sqrt(sum a^2 p (1 - p) + 1 / sd^2)``. Without any
        item these are the prior's mean and SD.

    Example:
        >>> theta, se = map_ability([1, 1, 0], 1.0, np.array([-1.0, 0.0, 1.0]))
        >>> round(theta, 4), round(se, 4)
        (0.3048, 0.7823)

    References:
        Baker & Kim (2004), Item Response Theory: Parameter Estimation Techniques, 2nd ed., ch. 7
        (Bayes modal estimates).
    """
    mean, sd = prior
    weight = 1.0 / sd**2
    slopes = np.broadcast_to(np.asarray(a, float), b.shape)
    right = float(slopes @ np.asarray(correct, float))
    reach = float(np.abs(slopes).sum()) / weight
    low, high = mean - reach, mean + reach
    theta = mean if start is None else min(max(start, low), high)
    step = np.inf
    with np.errstate(over="ignore"):
        for _ in range(STEPS):
            # a p, of which the sums below are those of a p and of a^2 p (1 - p).
            part = slopes / (1.0 + np.exp(slopes * (b - theta)))
            slope = right - float(part.sum()) - weight * (theta - mean)
            information = float(slopes @ part) - float(part @ part) + weight
            low, high = (theta, high) if slope > 0 else (low, theta)
            new = theta + slope / information
            if abs(new - theta) < SETTLED * (1.0 + abs(theta)):
                return new, information**-0.5
            # Steps that do not become shorter could go to and fro for ever.
            if not low < new < high or abs(new - theta) > 0.5 * step:
                new = 0.5 * (low + high)
            step, theta = abs(new - theta), new
    raise AssertionError("a bracket that is halved cannot be open after so many steps")

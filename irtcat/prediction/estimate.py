"""What every estimator returns; without JAX, since short forms predict without it."""

from typing import NamedTuple

import numpy as np

from irtcat._common.types import FloatArray


class Estimate(NamedTuple):
    """Output of an estimator, one value per new subject.

    Attributes:
        score: estimated full score, 0 to 1; NaN without information.
        lower: lower end of the interval; NaN for the lowest possible score.
        upper: upper end; NaN for the highest possible score.
        flag: text per subject, or None without flags.
        how: method used for each subject, or None if there is only one.
        unlike: how each subject is unlike the calibrated ones (see `irtcat.prediction.flags`), ""
            for the others; None where this is not estimated.
        shared_priors: prior probabilities of being out of range, for stronger and for weaker
            subjects, if they were estimated from all new subjects.
    """

    score: FloatArray
    lower: FloatArray
    upper: FloatArray
    flag: np.ndarray | None = None
    how: np.ndarray | None = None
    unlike: np.ndarray | None = None
    shared_priors: tuple[float, float] | None = None


def patterns(x: FloatArray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The observed columns and the rows, for each pattern of missing values."""
    is_observed = ~np.isnan(x)
    if len(x) and is_observed.all():
        return [(is_observed[0], np.arange(len(x)))]
    distinct, of_row = np.unique(is_observed, axis=0, return_inverse=True)
    order = of_row.ravel()
    return [(pattern, np.flatnonzero(order == number)) for number, pattern in enumerate(distinct)]

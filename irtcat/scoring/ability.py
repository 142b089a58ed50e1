"""Ability: estimates of the subjects' abilities with their uncertainty."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtr

from irtcat._html import card
from irtcat._types import FloatArray

__all__ = ["Ability"]


@dataclass(frozen=True, eq=False)
class Ability:
    """Ability estimates of many subjects, each with its uncertainty.

    Attributes:
        subject_ids: one id per subject.
        theta: estimate on the bank's scale; NaN only where ``flag`` says why.
        se: standard error (posterior SD for ``eap`` and ``eapsum``).
        lower: lower end of the interval.
        upper: upper end of the interval.
        percentile: 100 * Phi((theta - mean) / sd) in the bank's calibration population, 0-100.
        n_items: number of items answered.
        flag: text per subject, empty where nothing is flagged.
        method: how theta was estimated.
        level: probability of the interval.
        nodes: nodes of the posterior, subjects x nodes (None for ``ml`` and ``wle``).
        weights: posterior probabilities of the nodes; each row sums to 1.
        covariance: posterior covariance of each subject on a multidimensional bank;
            ``theta``, ``se``, ``lower``, ``upper`` and ``percentile`` are then subjects x
            dimensions. None in one dimension.
    """

    subject_ids: np.ndarray
    theta: FloatArray
    se: FloatArray
    lower: FloatArray
    upper: FloatArray
    percentile: FloatArray
    n_items: np.ndarray
    flag: np.ndarray
    method: str
    level: float
    nodes: FloatArray | None = None
    weights: FloatArray | None = None
    covariance: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.subject_ids)

    def __repr__(self) -> str:
        return f"Ability({len(self)} subjects, {self.method}, {self.level:.0%} intervals)"

    def _repr_html_(self) -> str:
        """The first subjects and a histogram of the estimates."""
        frame = self.to_frame()
        return card(repr(self), frame, frame.shape, self.theta, "ability of each subject")

    def to_frame(self) -> pd.DataFrame:
        """One row per subject: theta, se, lower, upper, percentile, n_items, flag.

        In several dimensions theta_1, theta_2, ..., se_1, ... in place of theta, se, ....
        """
        index = pd.Index(self.subject_ids, dtype=object, name="subject")
        columns: dict[str, np.ndarray] = {}
        for name in ("theta", "se", "lower", "upper", "percentile", "n_items", "flag"):
            value = getattr(self, name)
            if value.ndim == 1:
                columns[name] = value
            else:
                columns |= {f"{name}_{i + 1}": column for i, column in enumerate(value.T)}
        return pd.DataFrame(columns, index=index)


def population_percentile(theta: FloatArray, mean: float, sd: float) -> FloatArray:
    """100 * Phi((theta - mean) / sd): percent of the population below ``theta``.

    Example:
        >>> population_percentile(np.array([0.0, 1.96]), 0.0, 1.0).round(1).tolist()
        [50.0, 97.5]
    """
    return 100 * ndtr((theta - mean) / sd)

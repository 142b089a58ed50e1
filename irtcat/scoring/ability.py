"""Ability: estimates of the subjects' abilities with their uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.notebook import card
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import numbered

COLUMNS = ("theta", "se", "lower", "upper", "percentile", "n_items", "flag")
PER_SUBJECT = ("subject_ids", *COLUMNS, "at_bound")
"""Attributes that are one value, or vector, of each subject."""


@dataclass(frozen=True, eq=False)
class Ability:
    """Ability estimates of many subjects, each with its uncertainty.

    Attributes:
        subject_ids: one id per subject.
        theta: estimate on the bank's scale; NaN only where ``flag`` says why.
        se: standard error (posterior SD for ``eap`` and ``eapsum``); infinite for an estimate at a
            bound.
        lower: lower end of the interval.
        upper: upper end of the interval.
        percentile: percent of the population below theta, 0 to 100: of the subject's group where
            groups were given, else of the bank's population.
        n_items: number of items answered.
        flag: text per subject, empty where nothing is flagged.
        method: how theta was estimated.
        level: probability of the interval.
        nodes: nodes of the posterior, subjects x nodes (None for ``ml`` and ``wle``).
        weights: posterior probabilities of the nodes; each row sums to 1.
        covariance: posterior covariance of each subject on a multidimensional bank;
            ``theta``, ``se``, ``lower``, ``upper`` and ``percentile`` are then subjects x
            dimensions. None in one dimension.
        at_bound: whether the estimate is at a bound; None for methods without bounds.
        note: whose population was the prior, where the bank has several and no groups were given.
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
    at_bound: BoolArray | None = None
    note: str = ""

    def __len__(self) -> int:
        return len(self.subject_ids)

    def __repr__(self) -> str:
        note = f"; {self.note}" if self.note else ""
        return f"Ability({len(self)} subjects, {self.method}, {self.level:.0%} intervals{note})"

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
        for name in COLUMNS:
            columns |= numbered(name, getattr(self, name))
        return pd.DataFrame(columns, index=index)


def joined_abilities(parts: Sequence[Ability], order: IntArray) -> Ability:
    """The abilities of parts of the subjects in one, in this order of all their rows."""

    def column(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        if any(value is None for value in values):
            return None
        if len({np.shape(value)[1:] for value in values}) > 1:
            return None  # posteriors on grids of several sizes
        return np.concatenate(values)[order]

    names = (*PER_SUBJECT, "nodes", "weights", "covariance")
    return replace(parts[0], **{name: column(name) for name in names})

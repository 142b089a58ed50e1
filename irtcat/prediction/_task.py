"""What an estimator of the full score is given, what it gives back, and the finished table."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from irtcat._checks import argument_error
from irtcat._matrix import observed, row_blocks
from irtcat._types import FloatArray
from irtcat.bank import ItemBank, one_ability
from irtcat.fitting import fit
from irtcat.responses import Responses

__all__ = ["Estimate", "Prediction", "Task", "full_scores"]


class Estimate(NamedTuple):
    """What an estimator gives back, one number per new subject.

    Attributes:
        score: estimated full score, 0 to 1; NaN where there is nothing to go by.
        lower: lower end of the interval; NaN stands for "anything possible".
        upper: upper end likewise.
        flags: text per subject, or None where there is nothing to say.
    """

    score: FloatArray
    lower: FloatArray
    upper: FloatArray
    flags: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """A request for full scores.

    Attributes:
        calibration: responses of the calibrated subjects to all items.
        answers: responses of the new subjects to the subset's items, in its order and in the
            calibration's codes.
        weights: weight of each of these items; they sum to 1.
        sampled: whether the items are a probability sample; None where that is not known.
        interval: probability of the interval.
        given: the bank that was given, or None.
    """

    calibration: Responses
    answers: Responses
    weights: FloatArray
    sampled: bool | None
    interval: float
    given: ItemBank | None

    @property
    def n_items(self) -> int:
        """How many items the full score is the mean of."""
        return self.calibration.n_items

    @cached_property
    def x(self) -> FloatArray:
        """Answers as scores from 0 to 1, subjects x chosen items, NaN where missing."""
        return self.answers.to_numpy() / max(self.answers.n_categories - 1, 1)

    @cached_property
    def bank(self) -> ItemBank:
        """All items, calibrated, in the calibration's order.

        Where none is given a 2PL is fitted, or to shares of trials a binomial model.

        Raises:
            InputError: the bank lacks an item of the calibration, or is for other categories.
        """
        if self.given is not None:
            one_ability(self.given, "predictions")
        if self.given is None:
            model = "2pl" if self.calibration.trials is None else "binomial"
            return fit(self.calibration, model, standard_errors="none").bank
        ids = np.asarray(self.calibration.item_ids, dtype=str)
        if np.array_equal(ids, self.given.item_ids):
            bank = self.given
        else:
            lacking = ids[~np.isin(ids, self.given.item_ids)].tolist()
            if lacking:
                must = "a bank of all items of calibration_responses"
                raise argument_error("bank", must, f"one without {', '.join(lacking[:5])}")
            bank = self.given.subset(ids)
        if bank.model.n_categories != self.calibration.n_categories:
            must = f"for {self.calibration.n_categories} categories, as calibration_responses have"
            raise argument_error("bank", must, f"{bank.model.n_categories} categories")
        return bank


@dataclass(frozen=True, eq=False)
class Prediction:
    """Full-benchmark scores and ranks of new subjects, told from a subset's responses.

    Attributes:
        subject_ids: one id per new subject.
        score: estimated mean response over all items of the calibration matrix, 0 to 1; NaN only
            where ``flags`` says "no responses".
        lower: lower end of the score's interval.
        upper: upper end.
        rank: place among the calibrated subjects and this one, 1 = best; NaN where the score is.
        rank_lower: best place in the interval (that of ``upper``).
        rank_upper: worst place in the interval (that of ``lower``).
        flags: text per subject, empty where there is nothing to say.
        estimator: how the scores were estimated.
        interval: probability of the interval.
        n_calibrated: how many calibrated subjects the ranks refer to.
    """

    subject_ids: np.ndarray
    score: FloatArray
    lower: FloatArray
    upper: FloatArray
    rank: FloatArray
    rank_lower: FloatArray
    rank_upper: FloatArray
    flags: np.ndarray
    estimator: str
    interval: float
    n_calibrated: int

    def __len__(self) -> int:
        return len(self.subject_ids)

    def __repr__(self) -> str:
        return f"Prediction({len(self)} subjects, {self.estimator}, {self.interval:.0%} intervals)"

    def to_frame(self) -> pd.DataFrame:
        """One row per subject: score, lower, upper, the three ranks, estimator, flags."""
        table = pd.DataFrame(index=pd.Index(self.subject_ids, dtype=object, name="subject"))
        for name in ("score", "lower", "upper"):
            table[name] = getattr(self, name)
        for name in ("rank", "rank_lower", "rank_upper"):  # whole numbers, <NA> where unknown
            table[name] = pd.array(getattr(self, name), dtype="Int64")
        table["estimator"] = self.estimator
        table["flags"] = self.flags
        return table


def full_scores(responses: Responses) -> FloatArray:
    """Full score of each subject: the mean of its observed responses, on a scale from 0 to 1.

    ``score_i = sum_j x_ij / (m_i (K - 1))`` over the m_i items with a response, K categories.

    Args:
        responses: right/wrong, fractional or graded responses.

    Returns:
        One number per subject, 0 to 1; NaN for a subject without a response. With gaps the scores
        of subjects who answered different items are not strictly comparable.

    Example:
        >>> full_scores(Responses.from_array([[1, 1, 0, 1], [0, 0, -1, 1]])).round(3).tolist()
        [0.75, 0.333]
    """
    top = max(responses.n_categories - 1, 1)
    scores = np.full(responses.n_subjects, np.nan)
    for rows in row_blocks(responses.shape):
        seen = observed(responses.values[rows])
        total = responses.values[rows].sum(axis=1, where=seen, dtype=np.float64)
        np.divide(total, top * seen.sum(axis=1), out=scores[rows], where=seen.any(axis=1))
    return scores

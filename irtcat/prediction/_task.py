"""What an estimator of the full score is given, and what it gives back."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._checks import argument_error
from irtcat._matrix import observed, row_blocks
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting import fit
from irtcat.responses import Responses
from irtcat.selection import Request, centred_scores

__all__ = [
    "Estimate",
    "Estimator",
    "Task",
    "filled_scores",
    "full_scores",
    "is_sample",
    "patterns",
    "recode",
]


class Estimate(NamedTuple):
    """What an estimator gives back, one number per new subject.

    Attributes:
        score: estimated full score, 0 to 1; NaN where there is nothing to go by.
        lower: lower end of the interval; NaN stands for "anything possible".
        upper: upper end likewise.
        flags: text per subject, or None where there is nothing to say.
        how: which of several ways was taken for each subject, or None where there is but one.
    """

    score: FloatArray
    lower: FloatArray
    upper: FloatArray
    flags: np.ndarray | None = None
    how: np.ndarray | None = None


@dataclass(frozen=True)
class Estimator:
    """A way to predict full scores: a row of `ESTIMATORS`.

    Attributes:
        name: the name that users give.
        estimate: a function of a `Task`.
        score: how the score is predicted, in one line.
        interval: where its interval comes from.
        needs_bank: whether it needs calibrated items (a 2PL is fitted where none are given).
        source: author, year and place, where the formula comes from a publication.
    """

    name: str
    estimate: "Callable[[Task], Estimate]"
    score: str
    interval: str
    needs_bank: bool = False
    source: str = ""

    @property
    def cells(self) -> tuple[str, str]:
        """Score and interval."""
        return self.score, self.interval


@dataclass(frozen=True, eq=False)
class Task:
    """A request for full scores.

    Attributes:
        calibration: responses of the calibrated subjects to all items.
        answers: responses of the new subjects to the subset's items, in its order and in the
            calibration's codes.
        weights: weight of each of these items; they sum to 1.
        sampled: whether the items are a probability sample; None where that is not known.
        level: probability of the interval.
        given: the bank that was given, or None.
        probabilities: inclusion probability of each of these items, NaN where chosen otherwise.
        item_weights: weight t of every item of the calibration in the score; they sum to 1.
        seed: of whatever an estimator draws.
        request: what the items were chosen by, so that the choice can be repeated with other
            subjects; None where that is not known or needs a bank.
        drawn: chance at which each answer's item was drawn for that subject, NaN where it was not
            drawn; None where nothing was.
    """

    calibration: Responses
    answers: Responses
    weights: FloatArray
    sampled: bool | None
    level: float
    given: ItemBank | None
    probabilities: FloatArray
    item_weights: FloatArray
    seed: int = 0
    request: Request | None = None
    drawn: FloatArray | None = None

    @property
    def n_items(self) -> int:
        """How many items the full score is the mean of."""
        return self.calibration.n_items

    @cached_property
    def x(self) -> FloatArray:
        """Answers as scores from 0 to 1, subjects x chosen items, NaN where missing."""
        return self.answers.to_numpy() / max(self.answers.n_categories - 1, 1)

    @cached_property
    def chosen(self) -> np.ndarray:
        """Positions of the chosen items among the calibration's."""
        index = pd.Index(np.asarray(self.calibration.item_ids, dtype=str))
        return index.get_indexer(pd.Index(np.asarray(self.answers.item_ids, dtype=str)))

    @property
    def weights_of_chosen(self) -> FloatArray:
        """Weight t of the chosen items in the score."""
        return self.item_weights[self.chosen]

    @cached_property
    def usable(self) -> np.ndarray:
        """Calibrated subjects that have a score."""
        return np.flatnonzero(~np.isnan(self.all_targets))

    @cached_property
    def all_targets(self) -> FloatArray:
        """Full scores of all calibrated subjects, NaN where there is none."""
        return full_scores(self.calibration, self.item_weights)

    @property
    def targets(self) -> FloatArray:
        """Full scores of the calibrated subjects that have one.

        Raises:
            InputError: fewer than 2 of them have.
        """
        if len(self.usable) < 2:
            must = "such that at least 2 subjects have a score"
            raise argument_error("calibration", must, len(self.usable))
        return self.all_targets[self.usable]

    @cached_property
    def features(self) -> FloatArray:
        """Answers of those subjects to the chosen items; gaps filled as in `filled_scores`."""
        if not self.calibration.has_missing:
            top = max(self.calibration.n_categories - 1, 1)
            return self.calibration.subset(items=self.chosen).to_numpy()[self.usable] / top
        return filled_scores(self.calibration)[self.usable][:, self.chosen].astype(float)

    @property
    def chances(self) -> FloatArray:
        """Inclusion probabilities: 1 for items beside a sample, m / N where none are told."""
        told = np.isfinite(self.probabilities)
        if told.any():
            return np.where(told, self.probabilities, 1.0)
        return np.full(len(told), len(told) / self.n_items)

    def note_of_design(self) -> np.ndarray:
        """The flag of design-based estimates where the items are known not to be a sample."""
        # None: nothing is known of how the items came about, so nothing is claimed.
        note = "items not drawn at random" if self.sampled is False else ""
        return np.full(len(self.x), note, dtype=object)

    @cached_property
    def bank(self) -> ItemBank:
        """All items, calibrated, in the calibration's order.

        Where none is given a 2PL is fitted, or to shares of trials a binomial model.

        Raises:
            InputError: the bank lacks an item of the calibration, or is for other categories.
        """
        if self.given is None:
            model = "2pl" if self.calibration.trials is None else "binomial"
            return fit(self.calibration, model, standard_errors="none").bank
        ids = np.asarray(self.calibration.item_ids, dtype=str)
        if np.array_equal(ids, self.given.item_ids):
            bank = self.given
        else:
            lacking = ids[~np.isin(ids, self.given.item_ids)].tolist()
            if lacking:
                must = "a bank of all items of calibration"
                raise argument_error("bank", must, f"one without {', '.join(lacking[:5])}")
            bank = self.given.subset(ids)
        if bank.model.n_categories != self.calibration.n_categories:
            must = f"for {self.calibration.n_categories} categories, as the calibration has"
            raise argument_error("bank", must, f"{bank.model.n_categories} categories")
        return bank


def recode(
    values: np.ndarray, new: Responses, calibration: Responses, name: str = "responses"
) -> np.ndarray:
    """Count categories from the calibration's lowest code (1-4 may have come without a 1)."""
    seen = observed(values)
    moved = values.astype(np.int64) + (new.codes[0] - calibration.codes[0])
    wrong = seen & ((moved < 0) | (moved >= calibration.n_categories))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        code = int(moved[row, column]) + calibration.codes[0]
        must = f"in the codes of calibration ({calibration.codes[0]}"
        must += f" to {calibration.codes[-1]})"
        advice = f"It is subject {new.subject_ids[row]}'s."
        raise argument_error(name, must, code, advice)
    return np.where(seen, moved, -1).astype(np.int8)


def is_sample(subset: Any, n_items: int) -> bool | None:
    """Whether every one of n items had a known chance to be in the subset; None: nothing is told.

    A `Subset` that was drawn says how many items had one. Of any other the sum of 1 / probability
    is to be n: exactly where all are equal, else up to the rounding of each group's share.
    """
    probabilities = getattr(subset, "probabilities", None)
    if probabilities is None:
        return None
    chance = np.asarray(probabilities, float)
    if not np.isfinite(chance).all() or not (chance > 0).all():
        return False
    reach = getattr(subset, "reach", None)
    if reach is not None:
        return bool(reach == n_items)
    kinds = np.unique(np.round(chance, 9))
    slack = 1e-6 * n_items if len(kinds) == 1 else (1 / kinds).sum()
    return bool(abs((1 / chance).sum() - n_items) <= slack)


def patterns(x: FloatArray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Which columns are observed, and the rows with this pattern of gaps, for each pattern."""
    seen = ~np.isnan(x)
    kinds, of_row = np.unique(seen, axis=0, return_inverse=True)
    order = of_row.ravel()
    return [(kind, np.flatnonzero(order == number)) for number, kind in enumerate(kinds)]


def filled_scores(responses: Responses) -> FloatArray:
    """Scores, 0 to 1, of all subjects on all items; gaps filled by item and subject effects."""
    scores = centred_scores(responses)
    return np.clip(scores.centred + scores.means.astype(np.float32), 0, 1)


def full_scores(responses: Responses, weights: FloatArray | None = None) -> FloatArray:
    """Full score of each subject: the mean of its observed responses, on a scale from 0 to 1.

    ``score_i = sum_j x_ij / (m_i (K - 1))`` over the m_i items with a response, K categories; with
    weights ``sum_j t_j x_ij / ((K - 1) sum_j t_j)`` over the same.

    Args:
        responses: right/wrong, fractional or graded responses.
        weights: weight t of each item, at least 0; equal by default.

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
        if weights is None:
            total = responses.values[rows].sum(axis=1, where=seen, dtype=np.float64)
            size = seen.sum(axis=1, dtype=np.float64)
        else:
            total, size = np.where(seen, responses.values[rows], 0) @ weights, seen @ weights
        np.divide(total, top * size, out=scores[rows], where=size > 0)
    return scores

"""Calibration responses as one dense matrix of scores, 0 to 1, gaps filled, columns centred."""

from typing import NamedTuple

import numpy as np

from irtcat._matrix import observed, row_blocks
from irtcat._types import FloatArray, IntArray
from irtcat.responses import Responses

__all__ = ["Scores", "centred_scores"]

SWEEPS = 10
PSEUDO_ANSWERS, PSEUDO_SUBJECTS = 5.0, 2.0
"""Answers at the mean that count with a subject's own, and with an item's."""


class Scores(NamedTuple):
    """Scores of the calibration subjects.

    Attributes:
        centred: subjects x items (float32), less the items' means.
        means: mean score of each item; of one without any answer the mean of all.
        noise: variance that the filled-in cells of an item lack, to be added to its variance.
        answers: how many subjects answered each item.
    """

    centred: FloatArray
    means: FloatArray
    noise: FloatArray
    answers: IntArray

    @property
    def variances(self) -> FloatArray:
        """Variance of each item over the subjects as filled in (divisor: subjects)."""
        total = np.zeros(self.centred.shape[1])
        for rows in row_blocks(self.centred.shape):
            total += np.einsum("ij,ij->j", self.centred[rows], self.centred[rows], dtype=float)
        return total / len(self.centred)


def centred_scores(responses: Responses) -> Scores:
    """Make the matrix of scores: category / highest category, or the fraction.

    Gaps are filled by the additive model ``item mean + subject effect`` (alternating least
    squares; a subject's effect is shrunk as by five answers at the mean, an item's mean as by two),
    cut to [0, 1]. Filled cells lie on their expectation and would understate an item's variance:
    ``noise`` is the share
    of its cells that is missing times its residual variance. An item without answers is constant.
    """
    top = 1.0 if responses.is_fractional else max(responses.n_categories - 1, 1)
    x = responses.values.astype(np.float32)
    x /= np.float32(top)
    answers: IntArray = np.full(x.shape[1], len(x))
    noise: FloatArray = np.zeros(x.shape[1])
    if responses.has_missing:
        answers, noise = _fill(x, responses.values)
    means = x.mean(axis=0, dtype=float)
    x -= means.astype(np.float32)
    x[:, answers == 0] = 0.0
    if answers.any():
        means[answers == 0] = means[answers > 0].mean()
    return Scores(x, means, noise, answers)


def _fill(x: FloatArray, values: np.ndarray) -> tuple[IntArray, FloatArray]:
    """Fill the gaps of x in place; how many answers each item has, and the noise it lacks."""
    blocks = list(row_blocks(x.shape))
    answers = np.zeros(x.shape[1], int)
    given, item_sum, effect = np.zeros(len(x)), np.zeros(x.shape[1]), np.zeros(len(x))
    total = np.zeros(len(x))
    for rows in blocks:
        seen = observed(values[rows])
        x[rows][~seen] = 0.0
        answers += seen.sum(axis=0)
        given[rows] = seen.sum(axis=1)
        item_sum += x[rows].sum(axis=0, dtype=float)
        total[rows] = x[rows].sum(axis=1, dtype=float)
    mean = np.zeros(x.shape[1])
    for _ in range(SWEEPS):
        lifted = np.zeros(x.shape[1])
        for rows in blocks:
            lifted += effect[rows] @ observed(values[rows])
        middle = (item_sum - lifted).sum() / max(answers.sum(), 1)
        mean = (item_sum - lifted + PSEUDO_SUBJECTS * middle) / (answers + PSEUDO_SUBJECTS)
        for rows in blocks:
            expected = observed(values[rows]) @ mean
            effect[rows] = (total[rows] - expected) / (given[rows] + PSEUDO_ANSWERS)
    residual = np.zeros(x.shape[1])
    for rows in blocks:
        seen = observed(values[rows])
        fitted = np.clip(mean + effect[rows, None], 0.0, 1.0).astype(np.float32)
        residual += np.where(seen, (x[rows] - fitted) ** 2, 0.0).sum(axis=0, dtype=float)
        np.copyto(x[rows], fitted, where=~seen)
    # An item's own residuals say little where it has few answers: the others' count as well.
    typical = residual.sum() / max(answers.sum(), 1)
    residual = (residual + PSEUDO_ANSWERS * typical) / (answers + PSEUDO_ANSWERS)
    return answers, (1 - answers / len(x)) * residual

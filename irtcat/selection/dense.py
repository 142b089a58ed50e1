"""Calibration responses as a dense matrix of scores, 0 to 1, imputed and centred by column."""

from typing import NamedTuple

import numpy as np

from irtcat._common.types import FloatArray, IntArray
from irtcat.responses import Responses
from irtcat.responses._matrix import observed, row_blocks

SWEEPS = 10
"""Sweeps of alternating least squares."""

PSEUDO_ANSWERS, PSEUDO_SUBJECTS = 5.0, 2.0
"""Pseudo-observations at the mean that shrink a subject's effect, and an item's mean."""


class Scores(NamedTuple):
    """Scores of the calibration subjects.

    Attributes:
        centred: subjects x items (float32), minus the item means.
        means: mean score of each item; the overall mean for items without answers.
        noise: variance missing from the imputed cells of an item, to be added to its variance.
        answers: number of subjects who answered each item.
    """

    centred: FloatArray
    means: FloatArray
    noise: FloatArray
    answers: IntArray

    @property
    def variances(self) -> FloatArray:
        """Variance of each item over the subjects, after imputation (divisor: subjects)."""
        # einsum casts a buffer at a time, so that no copy in float64 is made.
        x = self.centred
        return np.einsum("ij,ij->j", x, x, dtype=float) / len(x)


def centred_scores(responses: Responses) -> Scores:
    """The matrix of scores: category / highest category, or the fraction.

    Missing responses are imputed by the additive model ``item mean + subject effect`` (alternating
    least squares; shrunk by five pseudo-answers for a subject's effect, two for an item's mean),
    clipped to [0, 1]. Imputed cells equal their expectation and would understate the variance of an
    item: ``noise`` is the missing share of its cells times its residual variance. An item without
    answers is constant.
    """
    x = responses.values.astype(np.float32)
    x /= np.float32(responses.highest)
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
    """Impute missing cells of x in place; return the number of answers and the noise per item."""
    blocks = list(row_blocks(x.shape))
    answers = np.zeros(x.shape[1], int)
    n_answers, item_sum, effect = np.zeros(len(x)), np.zeros(x.shape[1]), np.zeros(len(x))
    total = np.zeros(len(x))
    for rows in blocks:
        is_observed = observed(values[rows])
        x[rows][~is_observed] = 0.0
        answers += is_observed.sum(axis=0)
        n_answers[rows] = is_observed.sum(axis=1)
        item_sum += x[rows].sum(axis=0, dtype=float)
        total[rows] = x[rows].sum(axis=1, dtype=float)
    mean = np.zeros(x.shape[1])
    for _ in range(SWEEPS):
        effects_sum = np.zeros(x.shape[1])
        for rows in blocks:
            effects_sum += effect[rows] @ observed(values[rows])
        grand_mean = (item_sum - effects_sum).sum() / max(answers.sum(), 1)
        mean = (item_sum - effects_sum + PSEUDO_SUBJECTS * grand_mean) / (answers + PSEUDO_SUBJECTS)
        for rows in blocks:
            expected = observed(values[rows]) @ mean
            effect[rows] = (total[rows] - expected) / (n_answers[rows] + PSEUDO_ANSWERS)
    residual = np.zeros(x.shape[1])
    for rows in blocks:
        is_observed = observed(values[rows])
        fitted = np.clip(mean + effect[rows, None], 0.0, 1.0).astype(np.float32)
        residual += np.where(is_observed, (x[rows] - fitted) ** 2, 0.0).sum(axis=0, dtype=float)
        np.copyto(x[rows], fitted, where=~is_observed)
    # With few answers an item's residual variance is imprecise: shrink it to the common one.
    typical = residual.sum() / max(answers.sum(), 1)
    residual = (residual + PSEUDO_ANSWERS * typical) / (answers + PSEUDO_ANSWERS)
    return answers, (1 - answers / len(x)) * residual

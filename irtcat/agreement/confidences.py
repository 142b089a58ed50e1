"""Confidence: weights from ranks, the confidence-weighted score, average precision, soundness."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice
from irtcat._common.types import BoolArray, FloatArray
from irtcat.agreement.inputs import code_labels, label_list, number_vector, read_joint


def confidence_weights(confidence: Any, scheme: str = "linear") -> FloatArray:
    """Weights of the observations from the ranks of a system's confidence in its answers.

    With rank 1 for the most confident of N answers, ``P(X = x_i)`` is ``(N + 1 - rank) / (N (N +
    1) / 2)`` (linear) or ``sum of 1 / r for r from rank to N, over N`` (harmonic). Answers with the
    same confidence share the mean weight of their ranks. A system can rank its answers but cannot
    put all the weight on one. Under harmonic weights `accuracy` is the
    `confidence_weighted_score`.

    Args:
        confidence: a finite number per observation, greater is more confident.
        scheme: ``"linear"`` or ``"harmonic"``.

    Returns:
        Weights above 0 that sum to 1, to be passed as ``weights`` to `accuracy`, `cohen_kappa`,
        `entropy`, `mutual_information` and others. Confidence weights reported by the system
        itself are passed to these directly.

    Raises:
        InputError: for an empty list, a value that is not finite, or an unknown scheme.

    Example:
        >>> weights = confidence_weights([0.9, 0.2, 0.6])
        >>> weights.round(4).tolist()
        [0.5, 0.1667, 0.3333]
        >>> confidence_weights([0.9, 0.2, 0.6], "harmonic").round(4).tolist()
        [0.6111, 0.1111, 0.2778]

    References:
        Bergmair (2009), TextInfer workshop, section 5.3 (weights that fall with the rank).
    """
    check_choice("scheme", scheme, SCHEMES)
    vector = _confidences(confidence)
    by_rank = np.empty(len(vector))
    by_rank[np.argsort(-vector)] = SCHEMES[scheme](len(vector))
    weights = pd.Series(by_rank).groupby(vector).transform("mean").to_numpy()
    return weights / weights.sum()


def confidence_weighted_score(
    gold: Any, system: Any, confidence: Any, *, labels: Any = None
) -> float:
    """Mean over i of the accuracy on the i answers of highest confidence.

    ``(1 / N) sum_i (right among the first i) / i``: a correct answer counts more where the system
    is confident. Ties in confidence: the mean over all orders of the tied answers.

    Args:
        gold: labels.
        system: as many labels.
        confidence: a finite number per answer, greater is more confident.
        labels: the labels in order.

    Returns:
        From 0 to 1.

    Raises:
        InputError: as `accuracy`, and for invalid confidences.

    Example:
        >>> round(confidence_weighted_score(["E", "C", "U"], ["E", "C", "C"], [0.9, 0.8, 0.1]), 4)
        0.8889

    References:
        Dagan, Glickman & Magnini (2006), The PASCAL Recognising Textual Entailment Challenge.
    """
    weights = confidence_weights(confidence, "harmonic")
    joint = read_joint(gold, system, labels, weights)
    return float(np.clip(np.trace(joint.p), 0.0, 1.0))


def average_precision(
    gold: Any, confidence: Any, positive: Any = 1, cutoffs: str = "positives"
) -> float:
    """Mean precision at the cut-offs of a ranking by confidence that the label is positive.

    The precision at rank r is the share of positives among the first r. Its mean is over the ranks
    of the positives, as in information retrieval, so that 1 is a perfect ranking; or over all
    ranks (Bergmair's definition). Ties in confidence: the mean over all orders of the tied
    observations.

    Args:
        gold: labels.
        confidence: a finite number per observation that its label is ``positive``, not that an
            answer is right.
        positive: the label that should rank first.
        cutoffs: ``"positives"`` or ``"all"``.

    Returns:
        From 0 to 1.

    Raises:
        InputError: if no label is positive; for lists that are empty, of different length or with
            a value that is not finite.

    Example:
        >>> round(average_precision(["E", "C", "E"], [0.9, 0.8, 0.1], positive="E"), 4)
        0.8333
        >>> round(average_precision(["E", "C", "E"], [0.9, 0.8, 0.1], "E", cutoffs="all"), 4)
        0.7222

    References:
        Voorhees & Harman (1999), TREC-7; Giampiccolo et al. (2007), the third PASCAL challenge
        (over positives). Bergmair (2009), TextInfer workshop, section 4 (over all; and why not to
        report it for labellings).
    """
    check_choice("cutoffs", cutoffs, ("positives", "all"))
    vector = _confidences(confidence)
    is_positive = _positives("gold", gold, vector, positive)
    if not is_positive.any():
        raise argument_error("positive", "a label that occurs in gold", repr(positive))
    return _mean_precision(vector, is_positive, cutoffs)


def is_sound(system: Any, confidence: Any, positive: Any = 1) -> bool:
    """Whether a system's labels and its ranking can both be right.

    They can if the labels are those of a cut-off: each answer labelled ``positive`` ranks before
    each other one. Then a gold standard exists for which `accuracy` and `average_precision` are
    both 1; otherwise the output contradicts itself. Of equal confidence any order counts.

    Args:
        system: the system's labels; all but ``positive`` count as negative.
        confidence: a finite number per answer that its label is ``positive``, not that it is right.
        positive: the label that ranks first.

    Returns:
        True where all are positive or none is, too.

    Raises:
        InputError: for lists that are empty, of different length, with a missing label or a value
            that is not finite.

    Example:
        >>> is_sound(["E", "E", "C"], [0.9, 0.6, 0.2], positive="E")
        True
        >>> is_sound(["E", "C", "E"], [0.9, 0.6, 0.2], positive="E")
        False

    References:
        Bergmair (2009), TextInfer workshop, section 4.1.
    """
    vector = _confidences(confidence)
    is_positive = _positives("system", system, vector, positive)
    lowest = vector[is_positive].min(initial=np.inf)
    return bool(lowest >= vector[~is_positive].max(initial=-np.inf))


def is_self_contradictory(system: Any, confidence: Any, positive: Any = 1) -> bool:
    """Whether a system's labels and its ranking cannot both be right: not `is_sound`.

    Args:
        system: as for `is_sound`.
        confidence: as for `is_sound`.
        positive: as for `is_sound`.

    Returns:
        True if an answer labelled ``positive`` ranks behind another one.

    Raises:
        InputError: as for `is_sound`.

    Example:
        >>> is_self_contradictory([1, 0, 1], [0.9, 0.6, 0.2])
        True

    References:
        Bergmair (2009), TextInfer workshop, section 4.1.
    """
    return not is_sound(system, confidence, positive)


def _positives(name: str, labels: Any, confidence: FloatArray, positive: Any) -> BoolArray:
    """Which labels are the positive one."""
    values = label_list(name, labels)
    if len(values) != len(confidence):
        must = f"as long as {name} ({len(values)} labels)"
        raise argument_error("confidence", must, f"{len(confidence)} numbers")
    codes, order = code_labels(values, None, (name,), len(values))
    if (codes < 0).any():
        index = int((codes < 0).argmax())
        raise argument_error(name, "a label everywhere", f"none at position {index + 1}")
    return codes == (order.index(positive) if positive in order else -1)


def _mean_precision(confidence: FloatArray, positive: np.ndarray, cutoffs: str) -> float:
    """Sum over blocks of equal confidence of the mean over all orders within the block.

    With m before the block, C of them positive, and c of the block's t positive: rank i within
    the block is positive with probability c / t, with an expected C + (i - 1) (c - 1) / (t - 1) + 1
    positives up to it if it is, and C + i c / t unconditionally.
    """
    levels, block = np.unique(-confidence, return_inverse=True)
    size = np.bincount(block, minlength=len(levels))
    hits = np.bincount(block, positive, minlength=len(levels))
    before = np.repeat(size.cumsum() - size, size)
    hits_before = np.repeat(hits.cumsum() - hits, size)
    t, c = np.repeat(size, size), np.repeat(hits, size)
    rank = np.arange(1, len(confidence) + 1)
    within = rank - before
    if cutoffs == "all":
        return float(((hits_before + within * c / t) / rank).mean())
    others = (within - 1) * np.divide(c - 1, t - 1, out=np.zeros(len(t)), where=t > 1)
    return float((c / t * (hits_before + 1 + others) / rank).sum() / hits.sum())


def _confidences(confidence: Any) -> FloatArray:
    vector = number_vector("confidence", confidence)
    if len(vector) == 0:
        raise argument_error("confidence", "a list of numbers", "nothing")
    return vector


SCHEMES: dict[str, Callable[[int], FloatArray]] = {
    "linear": lambda n: np.arange(n, 0, -1.0),
    "harmonic": lambda n: (1.0 / np.arange(n, 0, -1.0)).cumsum()[::-1],
}
"""Weights by rank, the most confident first, up to a factor."""

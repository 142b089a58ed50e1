"""How good confidences and probabilities are: precision, soundness, loss, AUC and calibration."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.agreement.inputs import code_labels, label_list, number_vector, read_joint

N_BINS = 15
"""Bins of equal width, as in Guo et al. (2017)."""

LEAST_PROBABILITY = 1e-12
"""Probabilities of 0 and 1 count as this far from them: no single answer has an infinite loss."""


def log_loss(probability: Any, answer: Any) -> float:
    """Mean of ``-y log p - (1 - y) log(1 - p)``; 0 is perfect, log 2 = .693 a coin.

    Args:
        probability: at least 2 probabilities of a right answer.
        answer: as many answers, 1 right and 0 wrong, or shares of right trials.

    Returns:
        At least 0, in natural units; finite, as probabilities of 0 and 1 count as 1e-12 from them.

    Raises:
        InputError: for lists of different length, fewer than 2 pairs, or numbers outside 0 to 1.

    Example:
        >>> round(log_loss([0.9, 0.2, 0.5], [1, 0, 1]), 4)
        0.3406
    """
    p, y = _pairs(probability, answer)
    p = np.clip(p, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    return float(-(y * np.log(p) + (1 - y) * np.log1p(-p)).mean())


def brier_score(probability: Any, answer: Any) -> float:
    """Mean of ``(y - p)^2``; 0 is perfect, .25 a coin.

    Args:
        probability: at least 2 probabilities of a right answer.
        answer: as many answers, 1 right and 0 wrong, or shares of right trials.

    Returns:
        From 0 to 1.

    Raises:
        InputError: as `log_loss`.

    Example:
        >>> round(brier_score([0.9, 0.2, 0.5], [1, 0, 1]), 4)
        0.1

    References:
        Brier (1950), Verification of forecasts expressed in terms of probability.
    """
    p, y = _pairs(probability, answer)
    return float(np.square(y - p).mean())


def auc(probability: Any, answer: Any) -> float:
    """Chance that a right answer had a higher probability than a wrong one; ties count half.

    The area under the ROC curve. A share y counts as a right answer of weight y and a wrong one of
    weight 1 - y.

    Args:
        probability: at least 2 probabilities of a right answer.
        answer: as many answers, 1 right and 0 wrong, or shares of right trials.

    Returns:
        From 0 to 1; .5 is no order, NaN if all answers are right or all wrong.

    Raises:
        InputError: as `log_loss`.

    Example:
        >>> auc([0.9, 0.2, 0.5, 0.4], [1, 0, 0, 1])
        0.75
    """
    p, y = _pairs(probability, answer)
    _, tie = np.unique(p, return_inverse=True)
    right, wrong = np.bincount(tie, y), np.bincount(tie, 1 - y)
    total = right.sum() * wrong.sum()
    if total == 0:
        return float("nan")
    return float((right * (wrong.cumsum() - wrong / 2)).sum() / total)


def reliability_curve(probability: Any, answer: Any, n_bins: int = N_BINS) -> pd.DataFrame:
    """Mean probability and share of right answers in bins of the probability.

    Args:
        probability: at least 2 probabilities of a right answer.
        answer: as many answers, 1 right and 0 wrong, or shares of right trials.
        n_bins: number of bins of equal width.

    Returns:
        A row for each bin with answers, indexed by bin from 0: n, probability (their mean), share
        (of right answers) and standard_error of that share if the probabilities are right and the
        answers independent, ``sqrt(sum p (1 - p)) / n``.

    Raises:
        InputError: as `log_loss`, and for no bins.

    Example:
        >>> curve = reliability_curve([0.9, 0.8, 0.2, 0.3], [1, 0, 0, 0], n_bins=2)
        >>> curve[["probability", "share"]].round(2).values.tolist()
        [[0.25, 0.0], [0.85, 0.5]]

    References:
        Murphy & Winkler (1977), Reliability of subjective probability forecasts, Applied Statistics
        26.
    """
    check_count("n_bins", n_bins)
    p, y = _pairs(probability, answer)
    bin_of = _bins(p, n_bins)
    n = np.bincount(bin_of, minlength=n_bins)
    columns = {"probability": p, "share": y, "standard_error": p * (1 - p)}
    sums = {name: np.bincount(bin_of, v, minlength=n_bins) for name, v in columns.items()}
    sums["standard_error"] = np.sqrt(sums["standard_error"])
    table = pd.DataFrame({"n": n, **sums}, index=pd.RangeIndex(n_bins, name="bin"))
    table = table[table["n"] > 0]
    return table.assign(**{name: table[name] / table["n"] for name in columns})


def calibration_error(probability: Any, answer: Any, n_bins: int = N_BINS) -> float:
    """Expected calibration error: mean distance of probability and share of right answers in bins.

    ``sum_b n_b |share_b - probability_b| / n`` over the bins of `reliability_curve`. It is above 0
    for calibrated probabilities too: see `calibration_limit`.

    Args:
        probability: at least 2 probabilities of a right answer.
        answer: as many answers, 1 right and 0 wrong, or shares of right trials.
        n_bins: number of bins of equal width.

    Returns:
        From 0 to 1.

    Raises:
        InputError: as `reliability_curve`.

    Example:
        >>> round(calibration_error([0.9, 0.8, 0.2, 0.3], [1, 0, 0, 0], n_bins=2), 2)
        0.3

    References:
        Guo et al. (2017), On calibration of modern neural networks, ICML, section 2.
    """
    check_count("n_bins", n_bins)
    p, y = _pairs(probability, answer)
    return _error(p, y, _bins(p, n_bins), n_bins)


def calibration_limit(
    probability: Any, n_bins: int = N_BINS, *, level: float = 0.95, draws: int = 500, seed: int = 0
) -> float:
    """The calibration error that right probabilities exceed by chance with probability 1 - level.

    A quantile of `calibration_error` over simulated answers, independent given their probabilities.
    Where the probabilities are estimated from few answers their errors are shared by many cells,
    and the calibration error of the best possible ones is above this limit.

    Args:
        probability: at least 2 probabilities of a right answer.
        n_bins: number of bins of equal width.
        level: the quantile.
        draws: number of simulated lists of answers.
        seed: seed of the simulation.

    Returns:
        From 0 to 1.

    Raises:
        InputError: as `reliability_curve`.

    Example:
        >>> round(calibration_limit(np.full(400, 0.5)), 3)
        0.05

    References:
        Vaicenavicius et al. (2019), Evaluating model calibration in classification, AISTATS,
        section 4 (consistency resampling).
    """
    check_count("n_bins", n_bins)
    p, _ = _pairs(probability, probability)
    rng, bin_of = np.random.default_rng(seed), _bins(p, n_bins)
    errors = [_error(p, rng.random(len(p)) < p, bin_of, n_bins) for _ in range(draws)]
    return float(np.quantile(errors, level))


def _pairs(probability: Any, answer: Any) -> tuple[FloatArray, FloatArray]:
    """Probabilities and answers, checked."""
    p, y = number_vector("probability", probability), number_vector("answer", answer)
    if len(p) != len(y):
        must = f"as long as probability ({len(p)} values)"
        raise argument_error("answer", must, f"{len(y)} values")
    if len(p) < 2:
        raise argument_error("probability", "at least 2 values", f"{len(p)}")
    for name, values in (("probability", p), ("answer", y)):
        outside = (values < 0) | (values > 1)
        if outside.any():
            at = int(outside.argmax())
            got = f"{values[at]:g} at position {at + 1}"
            raise argument_error(name, "numbers from 0 to 1", got)
    return p, y


def _bins(p: FloatArray, n_bins: int) -> IntArray:
    """The bin of each probability; 1 is in the last."""
    return np.minimum((p * n_bins).astype(int), n_bins - 1)


def _error(p: FloatArray, y: Any, bin_of: IntArray, n_bins: int) -> float:
    return float(np.abs(np.bincount(bin_of, y - p, minlength=n_bins)).sum() / len(p))


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

"""How good probabilities of right answers are: log-loss, Brier score, AUC and calibration."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count
from irtcat._common.types import FloatArray, IntArray
from irtcat.agreement.inputs import number_vector

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

"""The best of several models or checkpoints: its score and interval, as it was chosen for it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from irtcat._common.checks import argument_error, check_choice, check_count, check_interval
from irtcat._common.types import FloatArray
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.leaderboard.compared_models import MIN_CLUSTERS, cluster_labels, few_clusters
from irtcat.leaderboard.grouping import GroupSpread, complete_items, scores_of, spread_of, step_of
from irtcat.prediction.estimands import ESTIMANDS
from irtcat.prediction.intervals import wilson_interval

BEST_OF = tuple(name for name in ESTIMANDS if name != "run")
"""Whose score is estimated: that of a run is known."""

SIMULTANEOUS = 0.1
"""Share of the error of the interval that goes to the simultaneous one which it is within: a tenth,
as Andrews, Kitagawa & McCloskey (2024) recommend."""

EDGE = 1e-12
"""Distance from 0 and 1 of the means that are tried: at 0 and 1 answers do not vary."""


@dataclass(frozen=True, eq=False)
class Best:
    """The model with the greatest score, and what to expect of it.

    Attributes:
        name: the model.
        observed: its score, which is too great on average: it was chosen for it.
        score: the score to expect: median-unbiased, given that it was chosen.
        lower: lower end of its interval.
        upper: upper end.
        n_models: number of models that it was chosen from.
        n_items: number of items that all of them answered.
        estimand: whose scores: "model" or "domain".
        level: probability of the interval.
        flags: warnings.
    """

    name: str
    observed: float
    score: float
    lower: float
    upper: float
    n_models: int
    n_items: int
    estimand: str
    level: float
    flags: tuple[str, ...]

    def __str__(self) -> str:
        score, lower, upper = (100 * value for value in (self.score, self.lower, self.upper))
        return (
            f"{self.name}: {score:.1f} % [{lower:.1f}, {upper:.1f}], as the best of "
            f"{self.n_models}; observed {100 * self.observed:.1f} %\n"
            f"Estimated are {ESTIMANDS[self.estimand].format(n=self.n_items)}."
        )

    def __repr__(self) -> str:
        return f"Best({str(self).partition(chr(10))[0]})"

    def to_frame(self) -> pd.DataFrame:
        """One row, indexed by the model."""
        row = {name: value for name, value in vars(self).items() if name not in ("name", "flags")}
        row["flag"] = "; ".join(self.flags)
        return pd.DataFrame([row], index=pd.Index([self.name], name="model"))


def best(
    responses: ResponsesLike,
    *,
    estimand: str = "model",
    clusters: Any = None,
    reruns: Any = None,
    level: float = 0.95,
    n: int = 10_000,
    seed: int = 0,
) -> Best:
    """Estimate the score of the best of several models, corrected for the choice.

    The greatest of m scores is greater than that model's expected score: the more so, the more
    checkpoints there are and the closer. With scores S ~ N(mu, V), given that model b is the best
    and the part of the scores that does not depend on S_b, S_b is a Normal between the bounds
    ``(S_j - V_jb / V_bb S_b) / (1 - V_jb / V_bb)``. The estimate is the mean mu_b of which S_b is
    the median, and the ends of the interval those of which it is a tail quantile. As these may be
    far away where two models are close, mu_b is also taken to be within the simultaneous interval
    of all models, which has a tenth of the error (the hybrid interval). The variance of S_b is the
    greater of that at S_b and that at the mean which is tried, ``mu (1 - mu) / n`` with the n
    answers that have the estimated variance at S_b, as in Wilson's interval: near 1, where the best
    are, a mean that is less varies more.

    Args:
        responses: as for `irtcat.leaderboard.groups`.
        estimand: "model" or "domain", as for `irtcat.leaderboard.groups`.
        clusters: as for `irtcat.leaderboard.compare`.
        reruns: as for `irtcat.leaderboard.groups`.
        level: probability of the interval.
        n: number of draws of the simultaneous interval, at least 1000.
        seed: seed of the draws.

    Returns:
        The best model. Of equal scores the first one is the best.

    Raises:
        InputError: as `irtcat.leaderboard.groups`, or for scores without any noise.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 400))
        >>> print(best(bank.simulate(np.zeros(20), seed=1)))  # their expected score is 50 %
        s12: 53.5 % [46.3, 60.0], as the best of 20; observed 55.2 %
        Estimated are the models' expected scores on all 400 items, over reruns.

    References:
        Andrews, Kitagawa & McCloskey (2024), Inference on Winners, Quarterly Journal of Economics
        139, 305-358, sections 3 and 4.
    """
    check_choice("estimand", estimand, BEST_OF)
    check_interval("level", level)
    check_count("n", n, 1000)
    check_count("seed", seed, 0)
    data, flags = complete_items(as_responses_like(responses, "responses", None))
    labels, notes = cluster_labels(clusters, (data,), data.item_ids)
    flags += notes
    if few := few_clusters(labels):
        raise argument_error("clusters", f"at least {MIN_CLUSTERS} clusters", few)
    spread, notes = spread_of(data, estimand, labels, reruns)
    flags += notes
    score = np.round(scores_of(data), 12)
    winner = int(np.argmax(score))
    # The winner is ahead of earlier models by a step or more, of later ones by none or more: in the
    # middle between two values that are possible, a tie does not make the choice certain.
    half = step_of(data) / (2 * data.n_items)
    rivals = score + np.where(np.arange(len(score)) < winner, half, -half)
    estimate, lower, upper = hybrid(score, rivals, spread, winner, level, n, seed)
    return Best(
        name=str(data.subject_ids[winner]),
        observed=float(score[winner]),
        score=estimate,
        lower=lower,
        upper=upper,
        n_models=data.n_subjects,
        n_items=data.n_items,
        estimand=estimand,
        level=float(level),
        flags=tuple(flags),
    )


def hybrid(
    score: FloatArray,
    rivals: FloatArray,
    spread: GroupSpread,
    winner: int,
    level: float,
    n: int,
    seed: int,
) -> tuple[float, float, float]:
    """The estimate of the winner's mean, and the ends of its hybrid interval, within 0 to 1.

    Args:
        score: the scores.
        rivals: what the winner's score had to exceed to be chosen, for each of the others.
        spread: their covariance.
        winner: position of the greatest one.
        level: probability of the interval.
        n: number of draws.
        seed: their seed.
    """
    covariance = spread.factor.T @ spread.factor
    # One more answer that is odd: equal answers have no variance.
    n_items = spread.n_items
    covariance = (n_items**2 * covariance + spread.unit**2 * np.eye(len(score))) / (
        n_items + 1
    ) ** 2
    se = np.sqrt(np.diag(covariance))
    if not se[winner] > 0:
        raise argument_error("reruns", "of runs with noise: else the score is known", "none")
    x, share = float(score[winner]), covariance[:, winner] / covariance[winner, winner]
    others = np.arange(len(score)) != winner
    gap = 1 - share[others]
    bound = np.divide(
        rivals[others] - share[others] * x, gap, out=np.full(len(gap), -np.inf), where=gap != 0
    )
    low = float(np.max(bound[gap > 0], initial=-np.inf))
    high = float(np.min(bound[gap < 0], initial=np.inf))
    beta = SIMULTANEOUS * (1 - level)
    reach = _simultaneous(covariance, se, 1 - beta, n, seed)
    tail = ((1 - level) - beta) / (1 - beta) / 2
    n_of_all = spread.n_answers(score, level)
    n_answers = float(n_of_all[winner])
    ends = wilson_interval(score, n_of_all, 2 * float(ndtr(reach)) - 1)
    least = float(np.sqrt(x * (1 - x) / n_answers))
    left = max(min(float(ends[0][winner]), x - reach * least), EDGE)
    right = min(max(float(ends[1][winner]), x + reach * least), 1 - EDGE)

    def quantile(probability: float) -> float:
        """The mean under which ``probability`` of the conditional distribution is below x."""

        def excess(mean: float) -> float:
            sd = max(float(np.sqrt(mean * (1 - mean) / n_answers)), least)
            ends = max(low, mean - reach * sd), min(high, mean + reach * sd)
            return _truncated(x, mean, sd, *ends) - probability

        if excess(left) <= 0:
            return left
        return right if excess(right) >= 0 else float(brentq(excess, left, right, xtol=1e-10))

    found = quantile(0.5), quantile(1 - tail), quantile(tail)
    estimate, lower, upper = (float(np.clip(value, 0, 1)) for value in found)
    return estimate, min(lower, estimate), max(upper, estimate)


def _simultaneous(covariance: FloatArray, se: FloatArray, level: float, n: int, seed: int) -> float:
    """Quantile of the greatest absolute error of all scores, in standard errors."""
    rng = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    draws = np.abs(rng.standard_normal((n, len(se))) @ root.T) / np.where(se > 0, se, 1)
    return float(np.quantile(draws.max(axis=1), level, method="higher"))


def _truncated(x: float, mean: float, sd: float, low: float, high: float) -> float:
    """Distribution function at x of a Normal between two bounds; in logarithms, far in its tail."""
    a, b, c = ((value - mean) / sd for value in (low, x, high))
    if a > 0:  # by the other tail, which is not 1 - 0
        return 1 - _share(-c, -b, -a)
    return _share(a, b, c)


def _share(a: float, b: float, c: float) -> float:
    """``(F(b) - F(a)) / (F(c) - F(a))`` with F the Normal distribution function."""
    if not a < c or b <= a:
        return 0.0
    if b >= c:
        return 1.0
    top, below, left = (float(log_ndtr(value)) for value in (c, b, a))
    return float(
        np.exp(below - top) * np.expm1(left - below) / np.expm1(left - top) if left < below else 0.0
    )

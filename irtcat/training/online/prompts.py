"""What is believed of each prompt, in arrays of 4 bytes a number."""

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.types import FloatArray, IntArray
from irtcat.training.online.moments import tilted
from irtcat.training.online.outcomes import LEAST_SQUARES, Outcomes
from irtcat.training.online.policy import Past
from irtcat.training.online.step import Locals, StepResult

RESIDUAL_SDS = np.array([0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.4, 2.0, 2.8, 4.0])
"""SD of residual difficulties in logits, of which the data choose."""

ITEM_DRIFTS = np.array([1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2])
"""Share of the variance of a residual difficulty that is new in a step."""

SLOPE_SD = 0.3
"""SD of log slopes about which nothing is known."""

NEVER_SOLVED, ANY_SHARE = (0.2, 20.0), (1.0, 1.0)
"""Beta distributions of the success rate of a prompt that is never solved (mean .01), and of one
whose success does not follow ability."""

BROKEN_PRIOR = 0.01
"""Share of prompts that are broken, a third for each reason."""

REASONS = ("never solved", "solved by weaker policies only", "does not follow ability")
"""Why a prompt is broken, in the order of the Bayes factors."""

NEVER = -(2**30)
"""Step of the last rollouts of a prompt without any: its age is beyond all others."""

LEAST_VAR = 1e-6

_log_gamma = np.frompyfunc(math.lgamma, 1, 1)


def _log_beta(a: Any, b: Any) -> FloatArray:
    """Log of the beta function."""
    return np.asarray(_log_gamma(a) + _log_gamma(b) - _log_gamma(a + b), float)


class Grid:
    """Posterior of a variance parameter on a few values, from the evidence of each step.

    Attributes:
        values: the values.
        log_weight: log of their posterior, up to a constant.
    """

    def __init__(self, values: FloatArray, median: float, sd: float) -> None:
        """Start from a Normal prior of the log: that of this median, and this SD."""
        self.values = values
        log_prior = -((np.log(values / median) / sd) ** 2) / 2
        self.log_weight = log_prior - log_prior.max()

    def add(self, log_evidence: FloatArray) -> None:
        """Multiply by evidence."""
        total = self.log_weight + log_evidence
        self.log_weight = total - total.max()

    @property
    def weight(self) -> FloatArray:
        """Posterior probability of each value."""
        weight = np.exp(self.log_weight)
        return weight / weight.sum()

    @property
    def estimate(self) -> float:
        """Geometric posterior mean."""
        return float(np.exp(self.weight @ np.log(self.values)))


@dataclass(frozen=True)
class Prior:
    """What is known of prompts before any rollout.

    Attributes:
        b: difficulty of each prompt, or None where all are alike.
        var_b: squared standard error of b, or None.
        alpha: log slope of each prompt, or None (0).
        var_alpha: its variance, or None.
    """

    b: FloatArray | None
    var_b: FloatArray | None
    alpha: FloatArray | None
    var_alpha: FloatArray | None

    def residual_var(self, rows: IntArray, residual_sd: float) -> FloatArray:
        """Variance of the residual difficulties."""
        base = np.full(len(rows), residual_sd**2)
        return base if self.var_b is None else base + self.var_b[rows]

    def slopes(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the log slopes."""
        n = len(rows)
        mean = np.zeros(n) if self.alpha is None else self.alpha[rows].astype(float)
        var = np.full(n, SLOPE_SD**2)
        return mean, var if self.var_alpha is None else self.var_alpha[rows].astype(float)


@dataclass
class Prompts:
    """Beliefs and counts of all prompts.

    Attributes:
        e: mean of the residual difficulty.
        alpha: mean of the log slope.
        tie: coefficient of e on the ability at the step of the last rollouts.
        var_e: variance of e given that ability.
        cov: covariance of e and alpha given it.
        var_alpha: variance of alpha.
        last: step of the last rollouts, `NEVER` (negative) for none.
        visits: number of steps with rollouts.
        right: successes so far.
        trials: rollouts so far.
        expected: successes that were expected.
        trained: how much of the last step's training could reach the prompt: 4 times the variance
            of the rewards, 0 if the group had no gradient.
        log_model: log probability of all its data, each step's by the belief before it.
        reverse: mean of the intercept if the prompt were solved by weak policies only.
        var_reverse: its variance.
        log_reverse: log probability of all data in that case.
        broken: probability that the prompt is broken.
    """

    e: np.ndarray
    alpha: np.ndarray
    tie: np.ndarray
    var_e: np.ndarray
    cov: np.ndarray
    var_alpha: np.ndarray
    last: np.ndarray
    visits: np.ndarray
    right: np.ndarray
    trials: np.ndarray
    expected: np.ndarray
    trained: np.ndarray
    log_model: np.ndarray
    reverse: np.ndarray
    var_reverse: np.ndarray
    log_reverse: np.ndarray
    broken: np.ndarray

    @classmethod
    def start(cls, n: int) -> "Prompts":
        """Prompts without rollouts."""
        arrays = {field.name: np.zeros(n, np.float32) for field in fields(cls)}
        arrays["last"] = np.full(n, NEVER, np.int32)
        arrays["visits"] = np.zeros(n, np.int32)
        return cls(**arrays)

    def belief(
        self,
        rows: IntArray,
        prior: Prior,
        step: int,
        residual_sd: float,
        drift: float,
        past: Past,
        on_today: FloatArray,
    ) -> Locals:
        """Beliefs of some prompts at a step: residuals move back towards their prior.

        ``e`` is a stationary autoregression: its prior variance v is the same at all steps, and
        after k steps ``e' = f e + noise`` with ``f^2 = (1 - drift)^k`` and noise of variance
        ``(1 - f^2) v``.

        Args:
            rows: the prompts.
            prior: of all prompts.
            step: the step.
            residual_sd: SD of the residuals.
            drift: share of their variance that is new in a step.
            past: the ability at earlier steps.
            on_today: its regression on the policy's state at the step (`Past.coefficients`).
        """
        var_prior = prior.residual_var(rows, residual_sd)
        mean_alpha, var_alpha = prior.slopes(rows)
        last = self.last[rows]
        is_new = last < 0
        then = np.where(is_new, 0, last)
        kept = np.where(is_new, 0.0, (1.0 - drift) ** (step - then))
        share = np.sqrt(kept)
        tie = share * self.tie[rows]
        rest = np.maximum(past.var - np.einsum("ij,ij->i", on_today, past.cross), 0.0)
        return Locals(
            e=share * self.e[rows] + tie * past.shift[then],
            alpha=np.where(is_new, mean_alpha, self.alpha[rows]),
            var_e=kept * self.var_e[rows] + (1 - kept) * var_prior + tie**2 * rest[then],
            cov=share * self.cov[rows],
            var_alpha=np.where(is_new, var_alpha, self.var_alpha[rows]),
            tied=tie[:, None] * on_today[then],
        )

    def store(self, rows: IntArray, local: Locals, tie: FloatArray, step: int) -> None:
        """Keep the beliefs after rollouts at a step."""
        self.tie[rows] = tie
        self.e[rows], self.alpha[rows], self.cov[rows] = local.e, local.alpha, local.cov
        self.var_e[rows] = np.maximum(local.var_e, LEAST_VAR)
        self.var_alpha[rows] = np.maximum(local.var_alpha, LEAST_VAR)
        self.last[rows] = step

    def rescale(self, prior: Prior, before: float, after: float) -> None:
        """Replace the SD of the residual in the beliefs of all prompts with rollouts."""
        rows = np.flatnonzero(self.last >= 0)
        ve, c, va = (x[rows].astype(float) for x in (self.var_e, self.cov, self.var_alpha))
        e, alpha = self.e[rows].astype(float), self.alpha[rows].astype(float)
        change = 1 / prior.residual_var(rows, after) - 1 / prior.residual_var(rows, before)
        # adding `change` to the precision of e, whose prior mean is 0
        keep = 1 / np.maximum(1 + change * ve, 0.05)
        self.e[rows] = e * keep
        self.alpha[rows] = alpha - c * change * e * keep
        self.var_e[rows] = np.maximum(ve * keep, LEAST_VAR)
        self.cov[rows] = c * keep
        self.tie[rows] *= keep.astype(np.float32)
        self.var_alpha[rows] = np.maximum(va - c**2 * change * keep, LEAST_VAR)

    def count(
        self, outcomes: Outcomes, result: StepResult, var_prior: FloatArray, p: FloatArray
    ) -> None:
        """Add the data of a step to the counts, and to both explanations of them.

        In the alternative success falls with ability, logit = intercept - level. At the first
        rollouts both say the same; then they move in opposite directions.

        Args:
            outcomes: the data.
            result: what they said.
            var_prior: variance of the residual difficulties before them.
            p: the success probabilities that were expected.
        """
        rows, right, trials = outcomes.rows, outcomes.right, outcomes.trials
        level, log_model = result.level, result.log_cavity
        first = self.visits[rows] == 0
        mean = np.where(first, 2 * level, self.reverse[rows])
        var_mean = np.where(first, var_prior, self.var_reverse[rows])
        total = var_mean + result.var_level
        after = tilted(mean - level, total, right, trials)
        gain = var_mean / total
        self.reverse[rows] = mean + gain * (after.mean - (mean - level))
        left = var_mean - gain**2 * (total - after.var)
        self.var_reverse[rows] = np.maximum(left, LEAST_VAR)
        self.log_reverse[rows] += np.where(first, log_model, after.log_z)
        self.visits[rows] += 1
        self.right[rows] += right
        self.trials[rows] += trials
        self.expected[rows] += p * trials
        self.log_model[rows] += log_model

    def reasons(self, rows: IntArray, prior: float = BROKEN_PRIOR) -> FloatArray:
        """Posterior probability that prompts are broken, for each of the `REASONS`.

        By Bayes factors against the model: never solved, reversed, unrelated.

        Args:
            rows: the prompts.
            prior: share of broken prompts, an equal part for each reason.
        """
        right = self.right[rows].astype(float)
        wrong = np.maximum(self.trials[rows].astype(float) - right, 0.0)
        model = self.log_model[rows]
        fixed = [
            _log_beta(right + a, wrong + b) - _log_beta(a, b) - model
            for a, b in (NEVER_SOLVED, ANY_SHARE)
        ]
        evidence = np.stack([fixed[0], self.log_reverse[rows] - model, fixed[1]], axis=1)
        log_odds = evidence + np.log(prior / len(REASONS) / (1 - prior))
        top_odds = np.maximum(log_odds.max(axis=1, keepdims=True), 0.0)
        odds = np.exp(log_odds - top_odds)
        share: FloatArray = odds / (odds.sum(axis=1, keepdims=True) + np.exp(-top_odds))
        return share

    def suspects(self, names: np.ndarray, threshold: float, prior: float) -> pd.DataFrame:
        """Prompts that are broken with at least this probability (see `Selector.suspects`)."""
        rows = np.flatnonzero(self.visits > 0)
        share = self.reasons(rows, prior)
        table = pd.DataFrame(
            {
                "probability": share.sum(axis=1),
                "reason": np.array(REASONS, dtype=object)[share.argmax(axis=1)],
                "visits": self.visits[rows],
                "trials": self.trials[rows].astype(int),
                "right": self.right[rows].astype(float),
                "expected": self.expected[rows].astype(float).round(2),
            },
            index=pd.Index(names[rows], name="item"),
        )
        table = table[table["probability"] >= threshold]
        return table.sort_values("probability", ascending=False, kind="stable")


WEIGHT = 1.0
"""Weight of all prompts in the spread of one: half a group of 8 at a mean of .5. Not tuned."""

KEPT = 0.9
"""What earlier groups of a prompt still count when it gets another one, since rewards change with
the policy. Not tuned."""


class Spread:
    """How much rewards differ within groups, compared with rewards of 0 and 1 of the same mean.

    Rewards from 0 to 1 with mean m have a variance of at most m (1 - m), which only rewards of 0
    and 1 reach. A prompt whose rollouts all get .5 has the variance 0, and no gradient. The spread
    of a prompt is its share of the largest variance,

        spread = (weight s + sum of squares within groups) / (weight + sum of n m (1 - m)),

    with the spread s of all prompts together. Of right and wrong answers it is 1 whatever the data.

    Attributes:
        within: sum of squares within the groups of each prompt.
        most: the same if all rewards had been 0 or 1.
    """

    def __init__(self, within: np.ndarray, most: np.ndarray) -> None:
        self.within, self.most = within.astype(np.float32), most.astype(np.float32)
        self._set_mean()

    @property
    def is_equal(self) -> bool:
        """Whether all rewards were 0 or 1, so that all spreads are 1."""
        return self._mean == 1.0

    def add(self, rows: IntArray, within: FloatArray, most: FloatArray) -> None:
        """Add the groups of a step; each prompt occurs once."""
        for sums, new in ((self.within, within), (self.most, most)):
            sums[rows] = KEPT * sums[rows] + new
        if not self.is_equal or (np.abs(within - most) > LEAST_SQUARES).any():
            self._set_mean()

    def _set_mean(self) -> None:
        """The spread of all prompts together: exactly 1 for right and wrong answers."""
        within, most = self.within.sum(dtype=float), self.most.sum(dtype=float)
        mean = (WEIGHT + within) / (WEIGHT + most)
        self._mean = 1.0 if abs(mean - 1) < 1e-6 else float(mean)

    def of(self, rows: IntArray | slice = slice(None)) -> FloatArray:
        """The spread of prompts, from 0 to 1."""
        share = (WEIGHT * self._mean + self.within[rows]) / (WEIGHT + self.most[rows])
        return np.minimum(share, 1.0)

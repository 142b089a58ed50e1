"""What is believed of the policy: its ability, and what prompts have in common.

The state g holds the ability, the gain of a prompt from a step of training on it, and the
coefficients of the prompts' properties. It is a random walk whose speed is one of a few and changes
by a Markov chain: an interacting multiple model (Blom & Bar-Shalom 1988), with a Kalman filter for
each speed. The data of a step come as sites, a Gaussian likelihood of g.
"""

from dataclasses import dataclass, replace

import numpy as np

from irtcat._common.types import FloatArray

ABILITY, GAIN, TREND = 0, 1, 2
"""Positions in the state."""

TREND_KEPT, TREND_SD = 0.98, 0.02
"""The trend of the ability, in logits a step, is an autoregression: the share of a step's trend
that the next one has, and its SD. A learning policy rises for hundreds of steps, and a random walk
without a trend lags behind it, which is then taken for easier prompts."""

TREND_NOISE = (1 - TREND_KEPT**2) ** 0.5 * TREND_SD

SPEEDS = np.array([0.003, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 1.0])
"""SD of the ability's change in a step, in logits. The last is a jump."""

PRIOR = np.array([0.04, 0.1, 0.2, 0.3, 0.2, 0.1, 0.05, 0.01])
"""Prior probability of each speed, and the distribution from which a changed speed is drawn."""

CHANGE = 0.03
"""Probability that the speed changes in a step: a speed lasts for 33 steps on average."""


@dataclass(frozen=True)
class Policy:
    """A mixture of Normal distributions of the state, one for each speed.

    Attributes:
        mean: mean of the state (speeds x dims).
        cov: its covariance (speeds x dims x dims).
        weight: probability of each speed.
        noise: variance of the state's change in a step, relative to that of the ability.
        constant: variance of the state's change in a step that does not depend on the speed.
    """

    mean: FloatArray
    cov: FloatArray
    weight: FloatArray
    noise: FloatArray
    constant: FloatArray

    @classmethod
    def start(cls, parts: list[tuple[float, float, float]]) -> "Policy":
        """The prior: mean, variance and ``noise`` of each part of the state."""
        n = len(SPEEDS)
        mean, var, noise = np.array(parts).T.copy()
        constant = np.where(np.arange(len(mean)) == TREND, TREND_NOISE**2, 0.0)
        means, covs = np.tile(mean, (n, 1)), np.tile(np.diag(var), (n, 1, 1))
        return cls(means, covs, PRIOR.copy(), noise, constant)

    @property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of the mixture."""
        mean = self.weight @ self.mean
        apart = self.mean - mean
        cov = np.einsum("k,kij->ij", self.weight, self.cov)
        return mean, cov + np.einsum("k,ki,kj->ij", self.weight, apart, apart)

    @property
    def drift(self) -> float:
        """SD of the ability's change in a step, as estimated."""
        return float(np.sqrt(self.weight @ SPEEDS**2))

    def predicted(self) -> "Policy":
        """The belief a step later."""
        change = (1 - CHANGE) * np.eye(len(SPEEDS)) + CHANGE * PRIOR[None, :]
        weight = self.weight @ change
        mixing = self.weight[:, None] * change / weight
        mean = mixing.T @ self.mean
        apart = self.mean[:, None] - mean[None]
        cov = np.einsum("jk,jil->kil", mixing, self.cov)
        cov += np.einsum("jk,jki,jkl->kil", mixing, apart, apart)
        mean[:, ABILITY] += mean[:, TREND]
        mean[:, TREND] *= TREND_KEPT
        cov[:, ABILITY, :] += cov[:, TREND, :]
        cov[:, :, ABILITY] += cov[:, :, TREND]
        cov[:, TREND, :] *= TREND_KEPT
        cov[:, :, TREND] *= TREND_KEPT
        cov += SPEEDS[:, None, None] ** 2 * np.diag(self.noise) + np.diag(self.constant)
        return replace(self, mean=mean, cov=cov, weight=weight)

    def updated(self, precision: FloatArray, shift: FloatArray) -> "Policy":
        """The belief after data whose likelihood is ``exp(shift'g - g'precision g / 2)``.

        A speed's weight is multiplied by the evidence for it.
        """
        eye = np.eye(len(shift))
        mean, cov = np.empty_like(self.mean), np.empty_like(self.cov)
        log_evidence = np.empty(len(SPEEDS))
        for k, (m, v) in enumerate(zip(self.mean, self.cov, strict=True)):
            inflation = eye + precision @ v
            after = np.linalg.solve(inflation.T, v.T).T  # v (I + J v)^-1
            after = (after + after.T) / 2
            rest = shift - precision @ m
            mean[k], cov[k] = m + after @ rest, after
            log_evidence[k] = m @ shift - m @ precision @ m / 2 + rest @ after @ rest / 2
            log_evidence[k] -= np.linalg.slogdet(inflation)[1] / 2
        weight = self.weight * np.exp(log_evidence - log_evidence.max())
        return replace(self, mean=mean, cov=cov, weight=weight / weight.sum())

    def moved(self, mean: float | None, var: float) -> "Policy":
        """The belief after the ability jumped: to a known mean, or from where it is."""
        means, covs = self.mean.copy(), self.cov.copy()
        if mean is None:
            covs[:, ABILITY, ABILITY] += var
        else:
            means[:, ABILITY] = mean
            covs[:, ABILITY, :] = covs[:, :, ABILITY] = 0.0
            covs[:, ABILITY, ABILITY] = var
        return replace(self, mean=means, cov=covs)


@dataclass(frozen=True)
class Past:
    """The ability at all steps so far, with the state of today: a fixed-point smoother.

    The residual difficulty of a prompt was learnt together with the ability at that step; what the
    later steps say of that ability moves the prompt with it. Prompts therefore keep the coefficient
    of that ability, and the steps keep how their ability is correlated with the state of today. Row
    0 is of no step.

    Attributes:
        shift: the smoothed mean of the ability at a step, less its mean just after that step.
        var: its smoothed variance.
        cross: its covariance with today's state (steps x dims).
    """

    shift: FloatArray
    var: FloatArray
    cross: FloatArray

    def predicted(self) -> "Past":
        """Today's state moves a step on."""
        cross = self.cross.copy()
        cross[:, ABILITY] += cross[:, TREND]
        cross[:, TREND] *= TREND_KEPT
        return Past(self.shift, self.var, cross)

    def updated(
        self, before: tuple[FloatArray, FloatArray], after: tuple[FloatArray, FloatArray]
    ) -> "Past":
        """Today's state is learnt better, and its step is added.

        Args:
            before: mean and covariance of today's state as predicted.
            after: those after the data of the step.
        """
        gain = np.linalg.solve(before[1], self.cross.T).T
        shift = self.shift + gain @ (after[0] - before[0])
        var = self.var - np.einsum("ti,ij,tj->t", gain, before[1] - after[1], gain, optimize=True)
        shift = np.append(shift, 0.0)
        var = np.append(var, after[1][ABILITY, ABILITY])
        cross = np.concatenate([gain @ after[1], after[1][[ABILITY]]])
        return Past(shift, np.maximum(var, 0.0), cross)

    def moved(self) -> "Past":
        """Today's ability is another one, known from elsewhere."""
        cross = self.cross.copy()
        cross[:, ABILITY] = 0.0
        return Past(self.shift, self.var, cross)

    def coefficients(self, cov: FloatArray) -> FloatArray:
        """Regression of the ability at each step on today's state."""
        gain: FloatArray = np.linalg.solve(cov, self.cross.T).T
        return gain

"""One step of assumed density filtering: a batch of prompts and the policy, jointly.

The logit of prompt i is ``eta = exp(alpha) (c'g - offset - e)``, where g is the policy's state,
``c`` says how it enters, and ``e`` and ``alpha`` are the prompt's residual difficulty and log
slope. Linear in all of them at the
current belief, eta is Normal; binomial data of eta become a
Gaussian site by expectation propagation (Minka 2001). Prompts are independent given g, so that the
covariance is an arrow, and each prompt is eliminated exactly: only the precision of g is solved.
"""

from dataclasses import dataclass

import numpy as np

from irtcat._common.types import FloatArray
from irtcat.training.online.moments import tilted
from irtcat.training.online.policy import ABILITY

SWEEPS = 4
"""Sweeps over the batch. Not tuned: with them the filter agrees with a particle filter (tests)."""


@dataclass(frozen=True)
class Locals:
    """Beliefs of prompts: residual difficulty e and log slope alpha, jointly Normal.

    Attributes:
        e: mean of the residual difficulty.
        alpha: mean of the log slope.
        var_e: variance of e given the policy's state.
        cov: covariance of e and alpha given the policy's state.
        var_alpha: variance of alpha.
        tied: coefficients of e on the policy's state (prompts x dims).
    """

    e: FloatArray
    alpha: FloatArray
    var_e: FloatArray
    cov: FloatArray
    var_alpha: FloatArray
    tied: FloatArray


@dataclass(frozen=True)
class Linear:
    """The logits of prompts, linear in the policy's state and in what is specific to a prompt.

    Attributes:
        mean: mean of the logit, and its derivative by alpha.
        slope: mean slope; the logit's derivative by c'g, and minus that by e.
        var_local: variance of the logit given the policy.
    """

    mean: FloatArray
    slope: FloatArray
    var_local: FloatArray


def linearise(level: FloatArray, local: Locals) -> Linear:
    """Statistical linearisation: exact mean and mean derivatives under the Normal belief.

    ``E[exp(alpha)] = exp(m + v/2)`` and ``E[exp(alpha) (level - e)] = E[exp(alpha)] (level - E[e] -
    cov(e, alpha))``.

    Args:
        level: mean of c'g - offset.
        local: the prompts' beliefs.
    """
    slope = np.exp(local.alpha + local.var_alpha / 2)
    mean = slope * (level - local.e - local.cov)
    var = slope**2 * local.var_e + mean**2 * local.var_alpha - 2 * slope * mean * local.cov
    return Linear(mean, slope, np.maximum(var, 1e-10))


@dataclass(frozen=True)
class StepResult:
    """What a batch says.

    Attributes:
        local: the prompts' beliefs after it, with the variance of e given today's ability.
        tie: coefficient of e on today's ability.
        mean: mean of the policy's state after it.
        precision: of the Gaussian likelihood of g.
        shift: its precision times its mean.
        before: mean and variance of each logit before the batch.
        log_cavity: log probability of each prompt's data by the belief before the batch and the
            other prompts of the batch.
        level: mean of c'g - offset given the other prompts of the batch.
        var_level: its variance.
    """

    local: Locals
    tie: FloatArray
    mean: FloatArray
    precision: FloatArray
    shift: FloatArray
    before: tuple[FloatArray, FloatArray]
    log_cavity: FloatArray
    level: FloatArray
    var_level: FloatArray


def filter_batch(
    mean: FloatArray,
    cov: FloatArray,
    loading: FloatArray,
    offset: FloatArray,
    local: Locals,
    right: FloatArray,
    trials: FloatArray,
) -> StepResult:
    """Update prompts by their data, and sum up what the data say of the policy.

    Args:
        mean: predicted mean of the policy's state.
        cov: its covariance.
        loading: the vectors c (prompts x dims).
        offset: known difficulty of each prompt.
        local: beliefs of the prompts.
        right: successes.
        trials: rollouts.
    """
    linear = linearise(loading @ mean - offset, local)
    tied = local.tied
    h = linear.slope[:, None] * (loading - tied)
    at_g = linear.mean - h @ mean  # the logit is h'g + at_g + what is specific to the prompt
    var_local = linear.var_local
    site_precision = np.zeros(len(h))
    site_shift = np.zeros(len(h))
    g, v = mean, cov
    eye = np.eye(len(mean))
    for sweep in range(SWEEPS + 1):
        damp = 1 / (1 + site_precision * var_local)
        weight = site_precision * damp
        pull = (site_shift - site_precision * at_g) * damp
        if sweep:
            precision, rest = (h * weight[:, None]).T @ h, h.T @ pull
            v = np.linalg.solve(eye + cov @ precision, cov)
            v = (v + v.T) / 2
            g = mean + v @ (rest - precision @ mean)
        if sweep == SWEEPS:
            break
        # the policy without prompt i: its site is removed from the posterior of h'g
        var_g = np.einsum("ij,ij->i", h @ v, h)
        keep = 1 / np.maximum(1 - weight * var_g, 1e-6)
        mean_g = keep * (h @ g - var_g * pull)
        var_g = keep * var_g
        cavity_mean, cavity_var = mean_g + at_g, var_g + var_local
        after = tilted(cavity_mean, cavity_var, right, trials)
        if not sweep:
            before = (cavity_mean, cavity_var)
        site_precision = np.maximum(1 / after.var - 1 / cavity_var, 0.0)
        site_shift = after.mean / after.var - cavity_mean / cavity_var
    # e and alpha given g: regressions on the logit, whose residual is that of the site
    with_e = -linear.slope * local.var_e + linear.mean * local.cov
    with_alpha = -linear.slope * local.cov + linear.mean * local.var_alpha
    surprise = pull - weight * (h @ g)
    on_g = tied - (with_e * weight)[:, None] * h  # coefficients of e on g
    e_with_g = on_g @ v
    tie = e_with_g[:, ABILITY] / v[ABILITY, ABILITY]
    var_e = local.var_e - with_e**2 * weight + np.einsum("ij,ij->i", e_with_g, on_g)
    var_h = np.einsum("ij,ij->i", h @ v, h)
    updated = Locals(
        e=local.e + tied @ (g - mean) + with_e * surprise,
        alpha=local.alpha + with_alpha * surprise,
        var_e=np.maximum(var_e - tie**2 * v[ABILITY, ABILITY], 1e-8),
        cov=local.cov - with_e * with_alpha * weight,
        var_alpha=local.var_alpha - with_alpha**2 * (weight - weight**2 * var_h),
        tied=on_g,
    )
    return StepResult(
        local=updated,
        tie=tie,
        mean=g,
        precision=precision,
        shift=rest,
        before=before,
        log_cavity=after.log_z,
        level=cavity_mean / linear.slope + local.e + local.cov,
        var_level=var_g / linear.slope**2,
    )

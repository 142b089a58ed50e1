"""One judge for all: marginal log-likelihood by a plain fine rule, scale and recovery.

numpy in float64 and nothing of irtcat. P = c + (1 - c) / (1 + exp(-a (theta - b))), no gaps.
"""

import numpy as np

HALF_WIDTH, SPACING = 6.0, 0.005  # 2,401 nodes; the raw figure is taken on twice the width
BLOCK = 400  # nodes at a time
CLIP = 6.0  # difficulties are compared within +- this


def _softplus(z):
    return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))


def _log_joint(slope, intercept, c, x, t):
    """Log P(responses of each subject | t) + log weight of t under N(0, 1): subjects x nodes."""
    out = np.empty((len(x), len(t)))
    with np.errstate(divide="ignore"):
        log_c, log_rest = np.log(c)[:, None], np.log1p(-c)[:, None]
    for i in range(0, len(t), BLOCK):
        z = slope[:, None] * t[i : i + BLOCK] + intercept[:, None]
        wrong = log_rest - _softplus(z)
        right = np.logaddexp(log_c, log_rest - _softplus(-z))
        out[:, i : i + BLOCK] = x @ (right - wrong) + wrong.sum(0)
    return out + (np.log(t[1] - t[0]) - 0.5 * t**2 - 0.5 * np.log(2 * np.pi))


def _integrate(slope, intercept, c, x, half_width=HALF_WIDTH):
    """Marginal log-likelihood under N(0, 1), and each subject's posterior mean and variance."""
    t = np.linspace(-half_width, half_width, round(2 * half_width / SPACING) + 1)
    joint = _log_joint(slope, intercept, c, x, t)
    top = joint.max(1, keepdims=True)
    posterior = np.exp(joint - top)
    total = posterior.sum(1)
    mean = posterior @ t / total
    return float((np.log(total) + top[:, 0]).sum()), mean, posterior @ t**2 / total - mean**2


def log_likelihood(a, b, c, x):
    """Marginal log-likelihood of 0/1 responses x (subjects x items), theta ~ N(0, 1)."""
    return _integrate(a, -a * b, c, np.asarray(x, float), 2 * HALF_WIDTH)[0]


def best_latent(a, b, c, x, tolerance=1e-6, max_iterations=100):
    """Latent mean and SD that fit the items best, and the log-likelihood there.

    EM on the two: theta = mean + sd t, t ~ N(0, 1) on its fixed nodes.
    """
    x = np.asarray(x, float)
    mean, sd = 0.0, 1.0
    for _ in range(max_iterations):
        value, m, v = _integrate(a * sd, a * (mean - b), c, x)
        step, factor = float(m.mean()), float(np.sqrt((v + m**2).mean() - m.mean() ** 2))
        if abs(step) < tolerance and abs(factor - 1) < tolerance:
            break
        mean, sd = mean + sd * step, sd * factor
    return mean, sd, value


def recovery(a, b, c, latent, truth):
    """RMSE and correlation against the truth, both put on the scale where abilities are (0, 1).

    Estimates: by the latent mean and SD that fit them best. Truth: by the mean and SD of the
    abilities that were drawn.
    """
    mean, sd = latent
    m, s = truth.theta.mean(), truth.theta.std()
    pairs = {
        "a": (a * sd, truth.a * s),
        "b": (np.clip((b - mean) / sd, -CLIP, CLIP), np.clip((truth.b - m) / s, -CLIP, CLIP)),
    }
    if truth.c.any():
        pairs["c"] = (c, truth.c)
    out = {f"rmse_{k}": float(np.sqrt(np.mean((p - q) ** 2))) for k, (p, q) in pairs.items()}
    return out | {f"corr_{k}": float(np.corrcoef(*pair)[0, 1]) for k, pair in pairs.items()}


def judge(a, b, c, x, truth):
    """All figures of one peer's item parameters.

    Raises:
        ValueError: in one sentence, for parameters that are not finite.
    """
    bad = ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    if bad.any():
        raise ValueError(f"the parameters of {bad.sum()} of {len(a)} items are not finite")
    c = np.clip(c, 0, 1 - 1e-9)
    mean, sd, rescaled = best_latent(a, b, c, x)
    return {
        "ll_raw": log_likelihood(a, b, c, x),
        "ll_rescaled": rescaled,
        "mu": mean,
        "sigma": sd,
        **recovery(a, b, c, (mean, sd), truth),
    }

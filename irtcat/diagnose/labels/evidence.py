"""Evidence on an item's key: correct, wrong, or answers unrelated to ability.

Each subject's ability is estimated from the *other* items. Under three hypotheses about an item
the probability of the answers that were scored right is

    sound      c + (1 - c) s(a (theta - b)),
    wrong key  g (1 - s(a (theta - b))),
    unrelated  the same for all subjects,

s the logistic curve: with a wrong key, subjects who know the answer are scored wrong, and a
share g of the others gives the keyed answer. The parameters are integrated out: a and b over their
distribution among the other items, c and g over a few values, the constant over Beta(2, 2) and
Beta(20, 20).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import betaln, expit, logsumexp

from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.progress import Progress, Steps
from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank
from irtcat.models import expected_responses
from irtcat.responses import Responses
from irtcat.scoring import Ability

SPREAD = 0.5
"""SD of the logarithm of sound items' slopes."""
GUESSING = (0.0, 0.25)
"""Values of c."""
KEYED = (1.0, 0.35)
"""Values of g."""
BETAS = (2, 20)
"""Both parameters of the Beta distributions of the constant."""
LONG = 100
"""Above this number of items the effect of one item on the abilities is negligible."""
BLOCK = 1 << 22
"""Array cells per block of subjects, which limits memory."""
BINS = 60
"""Bins of ability in `top_subjects`, which bound its cost."""

curves = jit(expected_responses)


class Evidence(NamedTuple):
    """Log-probabilities of each item's answers under the three hypotheses."""

    sound: FloatArray
    wrong_key: FloatArray
    unrelated: FloatArray


class _Grid(NamedTuple):
    """Flattened grid of slopes and difficulties, with log-weights."""

    a: FloatArray
    b: FloatArray
    log_weight: FloatArray


def _parameter_grid(bank: ItemBank) -> _Grid:
    """A grid over log a ~ N(log median, 0.5) and b ~ t(3) around the bank's median b."""
    frame = bank.to_frame()
    a, b = frame["a"].to_numpy(float), frame["b"].to_numpy(float)
    sound = (a > 0.2 / bank.population.sd) & np.isfinite(b)
    unit, middle, spread = 1 / bank.population.sd, bank.population.mean, 1.5 * bank.population.sd
    if sound.sum() >= 3:
        unit = float(np.median(a[sound]))
        middle = float(np.median(b[sound]))
        robust_sd = float(np.subtract(*np.percentile(b[sound], [75, 25]))) / 1.35
        spread = float(np.clip(robust_sd, bank.population.sd, 3 * bank.population.sd))
    u, v = np.linspace(-2, 2, 7), np.linspace(-5, 5, 17)
    a_grid, b_grid = np.meshgrid(unit * np.exp(SPREAD * u), middle + spread * v, indexing="ij")
    log_weight = -0.5 * u[:, None] ** 2 - 2 * np.log1p(v[None, :] ** 2 / 3)
    return _Grid(a_grid.ravel(), b_grid.ravel(), (log_weight - logsumexp(log_weight)).ravel())


def _thinned(ability: Ability) -> tuple[FloatArray, FloatArray]:
    """Every k-th node of the posteriors, at most .8 SDs apart: exact to 1e-10 if Normal."""
    nodes, weights = ability.nodes, ability.weights
    assert nodes is not None
    assert weights is not None
    spacing = 0.8 * ability.se / (nodes[:, 1] - nodes[:, 0])
    k = max(1, int(np.nanmin(spacing)))
    nodes, weights = nodes[:, ::k], weights[:, ::k]
    return nodes, weights / weights.sum(axis=1, keepdims=True)


def _predicted(
    bank: ItemBank, x: FloatArray, nodes: FloatArray, weights: FloatArray, grid: _Grid
) -> FloatArray:
    """P(right) of the block's subjects for all parameters: rows x items (or 1) x grid."""
    n, q = nodes.shape
    curve = expit(grid.a * (nodes[..., None] - grid.b))
    if x.shape[1] > LONG:
        return weights[:, None, :] @ curve
    with precision("float64"):
        p = np.asarray(curves(bank.model, jnp.asarray(nodes.ravel()))).reshape(-1, n, q)
    p = np.moveaxis(p, 0, 1)  # rows x items x nodes
    answer = x[:, :, None]
    likelihood = np.where(np.isnan(answer), 1.0, np.where(answer > 0, p, 1 - p))
    # Dividing the posterior by an item's likelihood gives the posterior without the item.
    others = weights[:, None, :] / np.maximum(likelihood, 1e-12)
    others /= others.sum(axis=2, keepdims=True)
    return others @ curve


def item_evidence(
    bank: ItemBank, responses: Responses, ability: Ability, progress: Progress | None = None
) -> Evidence:
    """Log-probabilities of the answers to each item under the three hypotheses.

    Args:
        bank: the calibrated items of the responses, in their order.
        responses: right/wrong.
        ability: posteriors of the subjects.
        progress: called for every block of subjects.
    """
    nodes, weights = _thinned(ability)
    X, grid = responses.to_numpy(), _parameter_grid(bank)
    n_items, size = X.shape[1], len(grid.a)
    sound = np.zeros((len(GUESSING), n_items, size))
    wrong = np.zeros((len(KEYED), n_items, size))
    cells = nodes.shape[1] * size + (n_items if n_items <= LONG else 1) * size
    step = max(1, BLOCK // cells)
    begin = Steps(progress, -(-len(X) // step))
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        begin(f"Evidence of subjects {start + 1} to {min(start + step, len(X))} of {len(X)}")
        p = _predicted(bank, X[rows], nodes[rows], weights[rows], grid)
        right, missed = np.nan_to_num(X[rows]) == 1, X[rows] == 0
        for k, c in enumerate(GUESSING):
            sound[k] += _log_likelihood(c + (1 - c) * p, right, missed)
        for k, g in enumerate(KEYED):
            wrong[k] += _log_likelihood(g * (1 - p), right, missed)
    n_right, n_missed = (X == 1).sum(axis=0), (X == 0).sum(axis=0)
    return Evidence(_averaged(sound, grid), _averaged(wrong, grid), unrelated(n_right, n_missed))


def unrelated(n_right: FloatArray, n_missed: FloatArray) -> FloatArray:
    """Log-probability of the answers if P(right) is the same for all subjects.

    A share near a half, Beta(20, 20), is as likely as a dispersed one, Beta(2, 2).
    """
    terms = [betaln(n_right + k, n_missed + k) - betaln(k, k) for k in BETAS]
    return np.asarray(logsumexp(terms, axis=0) - np.log(len(BETAS)), float)


def _log_likelihood(p: FloatArray, right: np.ndarray, missed: np.ndarray) -> FloatArray:
    """Log-probability of the block's answers: items x grid."""
    p = np.clip(p, 1e-9, 1 - 1e-9)
    if p.shape[1] == 1:
        return right.T @ np.log(p[:, 0]) + missed.T @ np.log1p(-p[:, 0])
    likelihood = np.where(right[..., None], p, 1 - p)
    likelihood[~(right | missed)] = 1.0
    # Products of 16 probabilities of 1e-9 or more do not underflow, and need fewer logarithms.
    starts = np.arange(0, len(likelihood), 16)
    return np.log(np.multiply.reduceat(likelihood, starts, axis=0)).sum(axis=0)


def _averaged(log_likelihood: FloatArray, grid: _Grid) -> FloatArray:
    """Log of the mean probability over the grid and the values of c or g."""
    total = logsumexp(log_likelihood + grid.log_weight, axis=(0, 2))
    return np.asarray(total - np.log(len(log_likelihood)), float)


def top_subjects(
    responses: Responses, ability: Ability, slope: float, share: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Right answers of the best subjects on each item, and those expected on a typical item.

    The typical item has slope ``slope`` and the same share of right answers over all subjects.
    Subjects are grouped in up to 60 bins of ability.

    Returns:
        For each item: answers of the best, right answers, expected right answers, and their SD.
    """
    X = responses.to_numpy()
    theta = np.round(np.nan_to_num(ability.theta), 9)
    n_bins = min(BINS, len(theta))
    # Subjects of equal ability are in one bin, the highest of theirs: their order does not count.
    rank = np.searchsorted(np.sort(theta), theta, side="right") - 1
    bins, group = np.unique(rank * n_bins // len(theta), return_inverse=True)
    # The best subjects are the top bins.
    best = bins >= n_bins - max(1, int(np.ceil(share * n_bins)))
    member = (group == np.arange(len(bins))[:, None]).astype(float)
    middle = member @ theta / member.sum(axis=1)
    answered, right = member @ ~np.isnan(X), member @ np.nan_to_num(X)
    low = np.full(X.shape[1], middle.min() - 20 / slope)
    high = np.full(X.shape[1], middle.max() + 20 / slope)
    for _ in range(60):
        b = (low + high) / 2
        too_many = (answered * expit(slope * (middle[:, None] - b))).sum(axis=0) > right.sum(axis=0)
        low, high = np.where(too_many, b, low), np.where(too_many, high, b)
    p = expit(slope * (middle[:, None] - b))
    n, n_right = answered[best].sum(axis=0), right[best].sum(axis=0)
    expected = (answered * p)[best].sum(axis=0)
    return n, n_right, expected, np.sqrt((answered * p * (1 - p))[best].sum(axis=0))


def top_columns(
    responses: Responses, ability: Ability, slope: float, top: float
) -> dict[str, FloatArray]:
    """Columns on the best subjects."""
    n, right, expected, sd = top_subjects(responses, ability, slope, top)
    z = np.where(sd > 0.1, (right - expected) / np.where(sd > 0, sd, 1), np.nan)
    return {"top_n": n.astype(int), "top_right": right, "top_expected": expected, "top_z": z}

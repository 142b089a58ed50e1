"""What answers say of an item's key: right, another answer's, or of nothing that ability decides.

Each subject's ability is as the *other* items tell it. Under three accounts of an item the
probability of the answers that were scored right is

    sound      c + (1 - c) s(a (theta - b)),
    wrong key  g (1 - s(a (theta - b))),
    unrelated  the same for all subjects,

s the logistic curve: with another answer keyed, those who know are wrong, and of the others a
share g happens to give the keyed answer. The parameters are averaged over: a and b as they are
among the other items, c and g over a few values, the constant as Beta(2, 2)
or Beta(20, 20).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import betaln, expit, logsumexp

from irtcat._compile import jit
from irtcat._precision import precision
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.models import expected_responses
from irtcat.responses import Responses
from irtcat.scoring import Ability

__all__ = ["LONG", "Evidence", "coin", "item_evidence", "top_subjects"]

SPREAD = 0.5
"""SD of the logarithm of sound items' slopes."""
GUESSING = (0.0, 0.25)
GIVEN = (1.0, 0.35)
COINS = (2, 20)
LONG = 100
"""From so many items on one of them has no say in the abilities worth taking out."""
BLOCK = 1 << 22
BINS = 60

_curves = jit(expected_responses)


class Evidence(NamedTuple):
    """Log-probabilities of each item's answers under the three accounts."""

    sound: FloatArray
    wrong_key: FloatArray
    unrelated: FloatArray


class _Accounts(NamedTuple):
    """Slopes and difficulties that items may have, flattened, and their log-weights."""

    a: FloatArray
    b: FloatArray
    log_weight: FloatArray


def _accounts(bank: ItemBank) -> _Accounts:
    """A grid over log a ~ N(log median, 0.5) and b ~ t(3) around the bank's, wide in any case."""
    frame = bank.to_frame()
    a, b = frame["a"].to_numpy(float), frame["b"].to_numpy(float)
    fine = (a > 0.2 / bank.population_sd) & np.isfinite(b)
    unit, middle, spread = 1 / bank.population_sd, bank.population_mean, 1.5 * bank.population_sd
    if fine.sum() >= 3:
        unit = float(np.median(a[fine]))
        middle = float(np.median(b[fine]))
        quarter = float(np.subtract(*np.percentile(b[fine], [75, 25]))) / 1.35
        spread = float(np.clip(quarter, bank.population_sd, 3 * bank.population_sd))
    u, v = np.linspace(-2, 2, 7), np.linspace(-5, 5, 17)
    a_grid, b_grid = np.meshgrid(unit * np.exp(SPREAD * u), middle + spread * v, indexing="ij")
    log_weight = -0.5 * u[:, None] ** 2 - 2 * np.log1p(v[None, :] ** 2 / 3)
    return _Accounts(a_grid.ravel(), b_grid.ravel(), (log_weight - logsumexp(log_weight)).ravel())


def _thinned(ability: Ability) -> tuple[FloatArray, FloatArray]:
    """Every k-th node of the posteriors, .8 SDs apart or less: exact to 1e-10 for Normal ones."""
    nodes, weights = ability.nodes, ability.weights
    assert nodes is not None
    assert weights is not None
    room = 0.8 * ability.se / (nodes[:, 1] - nodes[:, 0])
    k = max(1, int(np.nanmin(room)))
    nodes, weights = nodes[:, ::k], weights[:, ::k]
    return nodes, weights / weights.sum(axis=1, keepdims=True)


def _predicted(
    bank: ItemBank, x: FloatArray, nodes: FloatArray, weights: FloatArray, accounts: _Accounts
) -> FloatArray:
    """P(right) of the block's subjects under every account: rows x items (or 1) x accounts."""
    n, q = nodes.shape
    curve = expit(accounts.a * (nodes[..., None] - accounts.b))
    if x.shape[1] > LONG:
        return weights[:, None, :] @ curve
    with precision("float64"):
        own = np.asarray(_curves(bank.model, jnp.asarray(nodes.ravel()))).reshape(-1, n, q)
    own = np.moveaxis(own, 0, 1)  # rows x items x nodes
    answer = x[:, :, None]
    chance = np.where(np.isnan(answer), 1.0, np.where(answer > 0, own, 1 - own))
    others = weights[:, None, :] / np.maximum(chance, 1e-12)
    others /= others.sum(axis=2, keepdims=True)
    return others @ curve


def item_evidence(bank: ItemBank, responses: Responses, ability: Ability) -> Evidence:
    """Log-probabilities of the answers to each item under the three accounts.

    Args:
        bank: the calibrated items of the responses, in their order.
        responses: right/wrong.
        ability: posteriors of the subjects.
    """
    nodes, weights = _thinned(ability)
    X, accounts = responses.to_numpy(), _accounts(bank)
    n_items, size = X.shape[1], len(accounts.a)
    sound = np.zeros((len(GUESSING), n_items, size))
    wrong = np.zeros((len(GIVEN), n_items, size))
    wide = nodes.shape[1] * size + (n_items if n_items <= LONG else 1) * size
    step = max(1, BLOCK // wide)
    for at in range(0, len(X), step):
        rows = slice(at, at + step)
        p = _predicted(bank, X[rows], nodes[rows], weights[rows], accounts)
        right, missed = np.nan_to_num(X[rows]) == 1, X[rows] == 0
        for k, c in enumerate(GUESSING):
            sound[k] += _log_chance(c + (1 - c) * p, right, missed)
        for k, g in enumerate(GIVEN):
            wrong[k] += _log_chance(g * (1 - p), right, missed)
    n_right, n_missed = (X == 1).sum(axis=0), (X == 0).sum(axis=0)
    return Evidence(_averaged(sound, accounts), _averaged(wrong, accounts), coin(n_right, n_missed))


def coin(n_right: FloatArray, n_missed: FloatArray) -> FloatArray:
    """Log-probability of the answers if all subjects are right alike often.

    The share is as likely to be about a half, Beta(20, 20), as any other, Beta(2, 2).
    """
    each = [betaln(n_right + k, n_missed + k) - betaln(k, k) for k in COINS]
    return np.asarray(logsumexp(each, axis=0) - np.log(len(COINS)), float)


def _log_chance(p: FloatArray, right: np.ndarray, missed: np.ndarray) -> FloatArray:
    """Log-probability of the block's answers: items x accounts."""
    p = np.clip(p, 1e-9, 1 - 1e-9)
    if p.shape[1] == 1:
        return right.T @ np.log(p[:, 0]) + missed.T @ np.log1p(-p[:, 0])
    chance = np.where(right[..., None], p, 1 - p)
    chance[~(right | missed)] = 1.0
    # Products of 16 probabilities of 1e-9 or more stay well within floating point.
    starts = np.arange(0, len(chance), 16)
    return np.log(np.multiply.reduceat(chance, starts, axis=0)).sum(axis=0)


def _averaged(log_chance: FloatArray, accounts: _Accounts) -> FloatArray:
    """The mean probability over the accounts and the values of c or g."""
    total = logsumexp(log_chance + accounts.log_weight, axis=(0, 2))
    return np.asarray(total - np.log(len(log_chance)), float)


def top_subjects(
    responses: Responses, ability: Ability, slope: float, share: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """How the best subjects did on each item, and how they would on one of usual slope.

    The item that is meant by "usual" has slope ``slope`` and the same share of right answers over
    all subjects. Subjects are taken in up to 60 bins of ability.

    Returns:
        Of each item: answers of the best, right ones, expected right ones, and the SD of these.
    """
    X = responses.to_numpy()
    theta = np.nan_to_num(ability.theta)
    order = np.argsort(theta, kind="stable")
    n_bins = min(BINS, len(theta))
    group = np.empty(len(theta), int)
    group[order] = np.arange(len(theta)) * n_bins // len(theta)
    # The best are whole bins from the top.
    best = np.arange(n_bins) >= n_bins - max(1, int(np.ceil(share * n_bins)))
    member = (group == np.arange(n_bins)[:, None]).astype(float)
    middle = member @ theta / member.sum(axis=1)
    seen, right = member @ ~np.isnan(X), member @ np.nan_to_num(X)
    low = np.full(X.shape[1], middle.min() - 20 / slope)
    high = np.full(X.shape[1], middle.max() + 20 / slope)
    for _ in range(60):
        b = (low + high) / 2
        too_many = (seen * expit(slope * (middle[:, None] - b))).sum(axis=0) > right.sum(axis=0)
        low, high = np.where(too_many, b, low), np.where(too_many, high, b)
    p = expit(slope * (middle[:, None] - b))
    n, hits = seen[best].sum(axis=0), right[best].sum(axis=0)
    expected = (seen * p)[best].sum(axis=0)
    return n, hits, expected, np.sqrt((seen * p * (1 - p))[best].sum(axis=0))

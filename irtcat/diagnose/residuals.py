"""Residuals, and the null distribution of the items' mean squares, as abilities are estimated.

Residuals are answers minus their expectation at the subjects' abilities.
An ability that is estimated from an answer lies near it: squared residuals at EAP estimates are
some percent too small, those at ML estimates of another size again. So what subject j contributes
to item i's mean squares is compared with its mean under the model given j's *other* answers
``x_-i``. For each category k that j could have chosen, the probability is that of the posterior
predictive distribution,

``P(k | x_-i) = sum_q g(theta_q) L_-i(theta_q) P_ik(theta_q) / sum_q g(theta_q) L_-i(theta_q)``,

and the ability is estimated anew from ``(x_-i, k)``. The differences from this mean have
expectation 0 if the model holds, whatever the estimator, the length of the test and the missing
answers, and are independent between subjects.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.checks import argument_error, float_array
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.diagnose.answer_moments import probability_derivatives
from irtcat.diagnose.chi_square import TINY, Coded, curves, population_nodes, posteriors
from irtcat.diagnose.estimated_parameters import Free
from irtcat.models import ItemModel, as_points, log_probabilities
from irtcat.responses import Responses
from irtcat.scoring import Ability, score

BLOCK_CELLS = 2**19
"""Subjects x items x categories per block, which limits memory."""

MAX_SD = np.sqrt(2.0)
"""SD of a mean square above which its cube-root transformation to a normal deviate fails."""

MIN_VARIANCE = 1e-10
"""Lower bound of the denominator of squared standardised residuals."""


class Block(NamedTuple):
    """Answers of a block of subjects.

    Attributes:
        rows: positions of the subjects.
        observed: subjects x items, whether there is an answer.
        residual: answer minus its expectation, 0 if missing.
        variance: of the answer under the model, 0 if missing.
    """

    rows: np.ndarray
    observed: BoolArray
    residual: FloatArray
    variance: FloatArray


def scored(data: Coded, method: str) -> Ability:
    """The subjects' abilities, each under the population of its group."""
    groups = None if data.labels is None else list(data.labels)
    return score(
        data.bank, data.responses, method, groups=groups, precision="float64", mismatch="accept"
    )


def abilities_of(data: Coded, abilities: Any, method: str) -> FloatArray:
    """The subjects' abilities, passed or estimated; NaN for subjects without answers or ability.

    Raises:
        InputError: for an unknown method, or abilities that are not those of the subjects.
    """
    if abilities is None:
        theta = scored(data, method).theta
    elif isinstance(abilities, Ability):
        if not np.array_equal(abilities.subject_ids, data.responses.subject_ids):
            raise argument_error("abilities", "of the subjects of the responses", "other subjects")
        theta = abilities.theta
    else:
        theta = float_array("abilities", "numbers, one per subject", abilities)
    shape = (data.responses.n_subjects, *np.shape(data.bank.population.mean))
    if np.shape(theta) != shape:
        raise argument_error("abilities", f"of shape {shape}", np.shape(theta))
    has_answers = (data.values >= 0).any(axis=1)
    theta = np.where(has_answers.reshape(-1, *[1] * (len(shape) - 1)), theta, np.nan)
    if np.isinf(theta).any():
        raise argument_error("abilities", "finite, or NaN for subjects to leave out", "inf")
    if not np.isfinite(theta).any():
        raise argument_error("abilities", "known for at least one subject", "NaN for all")
    return np.asarray(theta, float)


def method_of(abilities: Any, method: str) -> str:
    """How abilities were estimated from the responses; "" if they are numbers: known abilities."""
    if abilities is None:
        return method
    return abilities.method if isinstance(abilities, Ability) else ""


@jit
def _moments(model: ItemModel, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of all answers, subjects x items."""
    mean, variance = _code_moments(jnp.exp(log_probabilities(model, as_points(theta))))
    return mean.T, variance.T


def _code_moments(p: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the codes of categories, by their probabilities in the last axis."""
    codes = jnp.arange(p.shape[-1], dtype=p.dtype)
    mean = p @ codes
    return mean, (p * (codes - mean[..., None]) ** 2).sum(-1)


def row_chunks(rows: np.ndarray, n_cells: int) -> Iterator[tuple[np.ndarray, int]]:
    """Rows of each block, padded to one size by repeating the last, and the number without padding.

    One size means one compilation.
    """
    size = min(max(1, BLOCK_CELLS // max(n_cells, 1)), max(len(rows), 1))
    for first in range(0, len(rows), size):
        block = rows[first : first + size]
        yield np.concatenate([block, np.repeat(block[-1:], size - len(block))]), len(block)


def known_rows(theta: FloatArray) -> IntArray:
    """The subjects with an ability."""
    return np.flatnonzero(np.isfinite(theta.reshape(len(theta), -1)).all(axis=1))


def blocks(data: Coded, theta: FloatArray) -> Iterator[Block]:
    """All subjects with an ability, in blocks."""
    n_cells = data.bank.n_items * data.bank.model.n_categories
    with precision("float64"):
        for rows, n in row_chunks(known_rows(theta), n_cells):
            moments = _moments(data.bank.model, jnp.asarray(theta[rows], float))
            mean, variance = (np.asarray(moment)[:n] for moment in moments)
            x = data.values[rows[:n]]
            observed = x >= 0
            residual = np.where(observed, x - mean, 0.0)
            yield Block(rows[:n], observed, residual, np.where(observed, variance, 0.0))


class ResidualSums(NamedTuple):
    """Terms of the mean squares, each a sum over answers.

    Attributes:
        n: number of answers.
        square: of squared residuals.
        variance: of variances.
        ratio: of squared residuals over their variances.
    """

    n: FloatArray
    square: FloatArray
    variance: FloatArray
    ratio: FloatArray


def sums(block: Block, axis: int) -> ResidualSums:
    """The sums of a block over its subjects (axis 0) or items (axis 1)."""
    safe = np.maximum(block.variance, MIN_VARIANCE)
    return ResidualSums(
        n=block.observed.sum(axis=axis, dtype=float),
        square=(block.residual**2).sum(axis=axis),
        variance=block.variance.sum(axis=axis),
        ratio=np.where(block.observed, block.residual**2 / safe, 0.0).sum(axis=axis),
    )


def mean_squares(total: ResidualSums) -> dict[str, FloatArray]:
    """Outfit and infit mean squares; NaN without answers.

    ``outfit = mean(r^2 / v)``, ``infit = sum r^2 / sum v``, with r the residual and v its variance.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        out = {"outfit": total.ratio / total.n, "infit": total.square / total.variance}
    return {name: np.where(total.n > 0, value, np.nan) for name, value in out.items()}


class Null(NamedTuple):
    """Moments of mean squares under the model.

    Attributes:
        mean: expectation.
        spread: SD, as a share of the expectation.
    """

    mean: FloatArray
    spread: FloatArray


def deviates(mean_square: FloatArray, null: Null) -> FloatArray:
    """Wilson and Hilferty's normal deviates of mean squares; NaN where they cannot vary.

    ``z = ((m / E m)^(1/3) - 1) 3 / q + q / 3``, q the SD of m as a share of its expectation.
    """
    valid = (null.mean > 0) & (null.spread > 0)
    q = np.where(valid, np.minimum(null.spread, MAX_SD), 1.0)
    ratio = mean_square / np.where(valid, null.mean, 1.0)
    return np.where(valid, (np.cbrt(ratio) - 1) * (3 / q) + q / 3, np.nan)


LEAST_NODES, MOST_COARSE = 2.5, 0.01
"""Effective nodes of a posterior by dimension that integrate it (a rectangle rule with a spacing of
1.4 posterior SDs), and the largest share of subjects with fewer."""
RESCORED_CELLS = 2**24
"""Answers that are scored at a time."""


class _Possible(NamedTuple):
    """What each subject of a block could have answered, and what would follow.

    Attributes:
        p: items x subjects x categories, probabilities given the other answers; 0 if missing.
        theta: items x subjects x categories x dims, the abilities then estimated.
        scores: items x subjects x categories x params, the derivatives of the log-likelihood by the
            item's parameters.
        coarse: subjects, whether the posterior is too narrow for the nodes.
    """

    p: FloatArray
    theta: FloatArray
    scores: FloatArray
    coarse: BoolArray


def item_nulls(data: Coded, theta: FloatArray, method: str, free: Free) -> dict[str, Null]:
    """Moments of the items' outfit and infit under the model.

    Where an item's parameters were estimated from the same answers, the part of the differences
    that is linear in the parameters' derivatives of the likelihood is subtracted (Neyman's
    C(alpha)), which makes them insensitive to errors of the parameters: at maximum-likelihood
    estimates it is 0, under a prior it is not.

    Args:
        data: the answers.
        theta: the abilities; subjects without one are left out.
        method: how abilities are estimated; "" if they are known, so that no answer changes them.
        free: the estimated parameters.

    Returns:
        NaN spreads if the posteriors of some subjects are too narrow for the nodes.
    """
    bank = data.bank
    own = free.mask & ~free.shared
    params = np.flatnonzero(own.any(axis=0))
    mean = np.zeros((bank.n_items, 3))
    covariance = np.zeros((bank.n_items, 3 + len(params), 3 + len(params)))
    coarse = 0
    derivative, n = np.zeros((bank.n_items, len(params))), np.zeros(bank.n_items)
    points, known = theta.reshape(len(theta), -1), known_rows(theta)
    for rows, size, possible in _possible(data, points, known, method, params):
        square, variance = _squares(data, possible.theta)
        terms = np.stack([square / np.maximum(variance, MIN_VARIANCE), square, variance], axis=-1)
        terms = np.concatenate([terms, possible.scores], axis=-1)[:, :size]
        p = possible.p[:, :size]
        expected = np.einsum("ink,inkg->ing", p, terms)
        terms -= expected[:, :, None]
        weighted = (p[..., None] * terms).reshape(bank.n_items, -1, terms.shape[-1])
        covariance += np.einsum("img,imh->igh", weighted, terms.reshape(weighted.shape))
        mean += expected[..., :3].sum(axis=1)
        x = data.values[rows[:size]].T
        chosen = np.maximum(x, 0)[..., None, None]
        scores = np.take_along_axis(possible.scores[:, :size], chosen, axis=2)[:, :, 0]
        derivative += np.where(x[..., None] >= 0, scores, 0.0).sum(axis=1)
        n += (x >= 0).sum(axis=1)
        coarse += int(possible.coarse[:size].sum())
    _subtract_explained(mean, covariance, derivative, own[:, params])
    if coarse > MOST_COARSE * len(known):
        covariance[:] = np.nan
    return _nulls(mean, covariance, n)


def _subtract_explained(
    mean: FloatArray, covariance: FloatArray, derivative: FloatArray, own: BoolArray
) -> None:
    """Regress the terms on the derivatives by each item's own parameters, in place."""
    for i, free in enumerate(own):
        at = np.flatnonzero(free)
        shared = covariance[i][:3, 3 + at]
        information = covariance[i][np.ix_(3 + at, 3 + at)]
        slopes = shared @ np.linalg.pinv(information, rcond=1e-10, hermitian=True)
        covariance[i][:3, :3] -= slopes @ shared.T
        mean[i] += slopes @ derivative[i, at]


def _nulls(mean: FloatArray, covariance: FloatArray, n: FloatArray) -> dict[str, Null]:
    """The moments of the mean squares from those of their terms."""
    with np.errstate(divide="ignore", invalid="ignore"):
        outfit, infit = mean[:, 0] / n, mean[:, 1] / mean[:, 2]
        direction = np.stack([np.zeros_like(infit), np.ones_like(infit), -infit], axis=1)
        variance = np.einsum("ig,igh,ih->i", direction, covariance[:, :3, :3], direction)
        spread = np.sqrt(np.maximum([covariance[:, 0, 0], variance], 0.0)) / mean[:, :2].T
    return {"outfit": Null(outfit, spread[0]), "infit": Null(infit, spread[1])}


@jit
def _own_moments(model: ItemModel, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the answers to each item at its own abilities, items x abilities."""

    def one(item: Any, points: jax.Array) -> jax.Array:
        return jnp.exp(jax.vmap(item.log_probs)(points))

    return _code_moments(jax.vmap(one)(model, theta))


def _squares(data: Coded, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Squared residuals of possible answers, and variances, at the abilities then estimated."""
    n_items, n, n_categories, dims = theta.shape
    with precision("float64"):
        points = jnp.asarray(theta.reshape(n_items, n * n_categories, dims))
        moments = _own_moments(data.bank.model, points)
    mean, variance = (np.asarray(m).reshape(n_items, n, n_categories) for m in moments)
    return (np.arange(n_categories) - mean) ** 2, variance


def _possible(
    data: Coded, theta: FloatArray, known: IntArray, method: str, params: IntArray
) -> Iterator[tuple[IntArray, int, _Possible]]:
    """The possible answers of all subjects, in blocks."""
    bank = data.bank
    n_cells = bank.n_items * bank.model.n_categories * (theta.shape[1] + 3 + len(params))
    if not method:
        for rows, size in row_chunks(known, n_cells):
            yield rows, size, _at_known(data, rows, theta[rows], params)
        return
    for group in data.groups:
        nodes, weights = population_nodes(group.bank)
        p = np.nan_to_num(curves(bank, nodes))
        slopes = probability_derivatives(bank, nodes)[:, params]
        members = np.intersect1d(known, group.rows)
        for rows, size in row_chunks(members, max(n_cells, len(nodes))):
            possible = _given_others(data.values[rows], nodes, weights, p, slopes)
            if method != "eap":
                rescored = _rescored(data, group.bank, theta, rows, method)
                possible = _without_unknown(possible, rescored)
            yield rows, size, possible


def _at_known(data: Coded, rows: IntArray, theta: FloatArray, params: IntArray) -> _Possible:
    """The possible answers at known abilities."""
    p = np.nan_to_num(curves(data.bank, theta))
    slopes = probability_derivatives(data.bank, theta)[:, params]
    observed = (data.values[rows] >= 0).T[..., None]
    return _Possible(
        p=np.where(observed, p, 0.0),
        theta=np.broadcast_to(theta[None, :, None], (*p.shape, theta.shape[1])),
        scores=np.moveaxis(slopes, 1, -1) / np.maximum(p, TINY)[..., None],
        coarse=np.zeros(len(rows), bool),
    )


def _given_others(
    values: np.ndarray, nodes: FloatArray, weights: FloatArray, p: FloatArray, slopes: FloatArray
) -> _Possible:
    """The possible answers of these subjects, with EAP abilities.

    Args:
        values: subjects x items.
        nodes: nodes x dims.
        weights: of the nodes.
        p: items x nodes x categories.
        slopes: derivatives of p, items x params x nodes x categories.
    """
    n, n_items = values.shape
    n_nodes, n_categories = p.shape[1:]
    posterior = posteriors(values, weights, p)
    dims, n_params = nodes.shape[1], slopes.shape[1]
    out = np.zeros((n_items, n, n_categories, 1 + dims + n_params))
    for i in range(n_items):
        # Nodes x categories x (1, theta, derivatives), whose posterior means are needed.
        terms = np.concatenate(
            [p[i][..., None], p[i][..., None] * nodes[:, None], np.moveaxis(slopes[i], 0, -1)],
            axis=-1,
        ).reshape(n_nodes, -1)
        for k in np.unique(values[:, i][values[:, i] >= 0]):
            rows = values[:, i] == k
            others = posterior[rows] / np.maximum(p[i, :, k], TINY)
            others /= others.sum(axis=1, keepdims=True)
            out[i, rows] = (others @ terms).reshape(-1, n_categories, out.shape[-1])
    probability = out[..., 0]
    conditional = out[..., 1:] / np.maximum(probability, TINY)[..., None]
    return _Possible(
        p=probability,
        theta=conditional[..., :dims],
        scores=conditional[..., dims:],
        coarse=np.asarray((posterior**2).sum(axis=1) > LEAST_NODES**-dims),
    )


def _rescored(
    data: Coded, bank: ItemBank, theta: FloatArray, rows: IntArray, method: str
) -> FloatArray:
    """Abilities of these subjects of a group, had they chosen each category of each item."""
    values, n_categories = data.values[rows], bank.model.n_categories
    n_items = values.shape[1]
    out = np.tile(theta[rows][None, :, None], (n_items, 1, n_categories, 1))
    codes, given = np.arange(n_categories), values.T[..., None]
    other = (given >= 0) & (given != codes) & (codes < data.categories[:, None, None])
    items, subjects, categories = np.nonzero(other)
    step = max(1, RESCORED_CELLS // n_items)
    for first in range(0, len(items), step):
        part = slice(first, first + step)
        changed = values[subjects[part]].copy()
        changed[np.arange(len(changed)), items[part]] = categories[part]
        codes_of = data.responses.codes
        answers = np.where(changed >= 0, changed + codes_of[0], np.nan)
        responses = Responses.from_array(answers, item_ids=bank.item_ids, codes=codes_of)
        found = score(bank, responses, method, precision="float64").theta
        out[items[part], subjects[part], categories[part]] = found.reshape(len(found), -1)
    return out


def _without_unknown(possible: _Possible, theta: FloatArray) -> _Possible:
    """The possible answers that leave an ability, with these abilities."""
    unknown = np.asarray(np.isnan(theta).any(axis=-1))
    p = np.where(unknown, 0.0, possible.p)
    p /= np.maximum(p.sum(axis=-1, keepdims=True), TINY)
    return possible._replace(p=p, theta=np.where(unknown[..., None], 0.0, theta))

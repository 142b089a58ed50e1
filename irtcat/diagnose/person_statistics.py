"""Person fit: subjects whose answers do not fit the model at any ability."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.special import ndtr

from irtcat._common.checks import check_count
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.agreement import benjamini_hochberg
from irtcat.bank import BankLike, numbered
from irtcat.diagnose.chi_square import Coded, coded
from irtcat.diagnose.residuals import MIN_VARIANCE as RESIDUAL_VARIANCE
from irtcat.diagnose.residuals import (
    Null,
    abilities_of,
    blocks,
    deviates,
    known_rows,
    mean_squares,
    row_chunks,
    scored,
    sums,
)
from irtcat.io.convert import ResponsesLike
from irtcat.models import ItemModel
from irtcat.scoring import Ability, warn_of_mixture

CORRECTED = {"ml": 1, "wle": 1, "map": math.inf}
"""Estimators with a form of Snijders's correction, and the most abilities that it is for."""

MIN_ITEMS = 10
"""Subjects with fewer answers are flagged by default."""
MEASURES = ("lz", "lz_star", "outfit", "outfit_z", "infit", "infit_z")
MIN_VARIANCE = 1e-10
"""Smaller variances are rounding errors of 0."""


def person_fit(
    bank: BankLike,
    responses: ResponsesLike,
    method: str = "map",
    abilities: Any = None,
    min_items: int = MIN_ITEMS,
    *,
    groups: Any = None,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """Person fit: the standardised log-likelihoods lz and lz*, outfit and infit.

    ``lz = (l - E l) / sqrt(Var l)``, l the log-likelihood of the subject's answers at the estimated
    ability. Since the ability maximises their likelihood, lz varies too little. lz* corrects
    this: with ``r_ik = P'_ik / P_ik`` and ``c = sum P'_ik log P_ik / sum P'_ik r_ik`` it is
    ``(l - E l + c r_0) / sqrt(sum_i Var_i(log P_ik - c r_ik))``, where the estimate solves
    ``r_0 + sum (y_ik - P_ik) r_ik = 0``: r_0 = 0 for ``ml``, J / (2 I) for ``wle``, the derivative
    of the log prior for ``map``. If the model holds, lz* is about standard normal on tests of about
    20 items or more; low values are inconsistent answers (guessing, copying, carelessness), high
    values are answers that are too consistent. The deviates of outfit and infit have the same
    correction at estimated abilities, for every method: their moments are those given the gradient
    of the log-likelihood at the estimate.

    Args:
        bank: the calibrated items (right/wrong or graded, of one or more dimensions).
        responses: the responses; missing answers are left out.
        method: how abilities are estimated, as for `irtcat.score`: lz* is defined for "map", "wle"
            and "ml" (multidimensional: "map"), and NaN for others.
        abilities: an `Ability` of the same subjects (with its method), or one number each, such as
            true abilities (then without lz*, and without a correction of z). NaN leaves a subject
            out.
        min_items: subjects with fewer answers are flagged, at least 1.
        groups: the group of each subject, as for `irtcat.score`: its population is the prior.
        mismatch: as for `irtcat.score`.

    Returns:
        Indexed by subject: theta (multidimensional: theta_1, ...), n_items, lz, lz_star, p (lower
        tail of lz*), p_bh (adjusted over the subjects), outfit, outfit_z, infit, infit_z and
        flag. NaN without answers, for lz* of an estimate at its bound, and if a measure
        cannot vary; see flag.

    Raises:
        InputError: for an unknown method, or abilities of other subjects.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 12))
        >>> from irtcat.responses import Responses
        >>> r = Responses.from_array([[1] * 6 + [0] * 6, [0] * 6 + [1] * 6])
        >>> person_fit(bank, r)[["lz", "lz_star", "outfit"]].round(1).values.tolist()
        [[1.6, 1.6, 0.4], [-6.5, -6.5, 3.6]]

    References:
        Drasgow, Levine & Williams (1985), British Journal of Mathematical and Statistical
        Psychology 38, 67-86 (lz); Snijders (2001), Psychometrika 66, 331-342 (lz*); Sinharay
        (2016), Psychometrika 81, 992-1013 (lz* of items with several categories); Magis, Raiche &
        Beland (2012), Journal of Educational and Behavioral Statistics 37, 57-81.
    """
    check_count("min_items", min_items)
    data = coded(bank, responses, groups=groups, mismatch=mismatch)
    if groups is None and abilities is None:
        warn_of_mixture(data.bank)
    theta, method, at_bound = _estimates(data, method, abilities)
    n_items = (data.values >= 0).sum(axis=1)
    measures = {name: np.full(len(theta), np.nan) for name in MEASURES}
    for block in blocks(data, theta):
        for name, value in mean_squares(sums(block, axis=1)).items():
            measures[name][block.rows] = value
    _add_deviates(measures, data, theta, bool(method))
    _add_likelihood(measures, data, theta, method)
    measures["lz_star"][at_bound] = np.nan
    p = ndtr(measures["lz_star"])
    columns: dict[str, Any] = {**numbered("theta", theta)}
    columns |= {"n_items": n_items, "lz": measures.pop("lz"), "lz_star": measures.pop("lz_star")}
    columns |= {"p": p, "p_bh": benjamini_hochberg(p), **measures}
    columns["flag"] = _flags(data, theta, n_items, min_items, at_bound)
    index = pd.Index(data.responses.subject_ids, dtype=object, name="subject")
    return pd.DataFrame(columns, index=index)


def _estimates(data: Coded, method: str, abilities: Any) -> tuple[FloatArray, str, BoolArray]:
    """Abilities, their method ("" if unknown), and which are at a bound."""
    if abilities is None:
        abilities = scored(data, method)
    theta = abilities_of(data, abilities, method)
    nowhere = np.zeros(len(theta), bool)
    if not isinstance(abilities, Ability):
        return theta, "", nowhere
    return theta, abilities.method, nowhere if abilities.at_bound is None else abilities.at_bound


def _add_likelihood(
    measures: dict[str, FloatArray], data: Coded, theta: FloatArray, method: str
) -> None:
    """Add lz, and lz* if it is defined for the method."""
    points = theta.reshape(len(theta), -1)
    n, dims = points.shape
    mean, precisions = np.empty((n, dims)), np.empty((n, dims, dims))
    for group in data.groups:
        mean[group.rows] = group.bank.population.mean
        precisions[group.rows] = np.linalg.inv(group.bank.population.covariance)
    for rows, terms in _by_block(data, theta, 1, _likelihoods, method == "wle"):
        difference, variance, c, r_0, residual_variance = terms
        measures["lz"][rows] = _standardised(difference, variance)
        if dims > CORRECTED.get(method, 0):
            continue
        if method == "map":
            r_0 = np.einsum("id,ide->ie", mean[rows] - points[rows], precisions[rows])
        corrected = difference + (c * r_0).sum(axis=1)
        measures["lz_star"][rows] = _standardised(corrected, residual_variance)


def _add_deviates(
    measures: dict[str, FloatArray], data: Coded, theta: FloatArray, is_estimated: bool
) -> None:
    """Add the deviates of outfit and infit."""
    for rows, (means, variances) in _by_block(data, theta, 2, _mean_square_moments, is_estimated):
        for k, name in enumerate(("outfit", "infit")):
            null = Null(means[:, k], np.sqrt(variances[:, k]) / means[:, k])
            measures[f"{name}_z"][rows] = deviates(measures[name][rows], null)


def _by_block(
    data: Coded, theta: FloatArray, n_terms: int, function: Callable[..., Any], option: bool
) -> Iterator[tuple[IntArray, list[FloatArray]]]:
    """The subjects with an ability, in blocks, and the results of a compiled function for them."""
    points = theta.reshape(len(theta), -1)
    n_cells = data.bank.n_items * data.bank.model.n_categories * (points.shape[1] + n_terms)
    with precision("float64"):
        for rows, n in row_chunks(known_rows(theta), n_cells):
            x, point = jnp.asarray(data.values[rows]), jnp.asarray(points[rows])
            found = function(data.bank.model, x, point, option)
            yield rows[:n], [np.asarray(part)[:n] for part in found]


@partial(jit, static_argnames="is_estimated")
def _mean_square_moments(
    model: ItemModel, x: jax.Array, theta: jax.Array, is_estimated: bool
) -> tuple[jax.Array, jax.Array]:
    """Means and variances of outfit and infit of these subjects, subjects x 2.

    Given the estimated ability, the gradient of the log-likelihood is given, too (0 for ``ml``):
    the part of the mean squares that is linear in it does not vary (Snijders).
    """

    def one(x: jax.Array, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        observed = x >= 0
        terms = _terms(model, observed, theta)
        codes = jnp.arange(terms.p.shape[1], dtype=theta.dtype)
        square = (codes - (terms.p @ codes)[:, None]) ** 2
        variance = jnp.where(observed, (terms.p * square).sum(axis=1), 0.0)
        ratio = square / jnp.maximum(variance, RESIDUAL_VARIANCE)[:, None]
        weights = jnp.stack([ratio / observed.sum(), square / variance.sum()])
        mean = (terms.p * weights).sum(axis=2)
        slopes = jnp.zeros((2, len(theta)), theta.dtype)
        if is_estimated:
            cross = jnp.einsum("ik,ikd,wik->wd", terms.p, terms.slope, weights)
            slopes = jnp.linalg.solve(terms.information, cross.T).T
        gradient = jnp.take_along_axis(terms.slope, _codes(x)[..., None], axis=1)[:, 0].sum(axis=0)
        residual = weights - mean[..., None] - jnp.einsum("ikd,wd->wik", terms.slope, slopes)
        return mean.sum(axis=1) + slopes @ gradient, (terms.p * residual**2).sum(axis=(1, 2))

    return jax.vmap(one)(x, theta)


def _standardised(difference: FloatArray, variance: FloatArray) -> FloatArray:
    """The difference in units of its SD; NaN if it cannot vary."""
    varies = variance > MIN_VARIANCE
    return np.where(varies, difference / np.sqrt(np.where(varies, variance, 1.0)), np.nan)


class _PersonTerms(NamedTuple):
    """What the answers of a subject add to its log-likelihood, 0 if missing or impossible.

    Attributes:
        p: items x categories, probabilities.
        log_p: their logarithms.
        slope: items x categories x dims, derivatives of these by the abilities.
        information: dims x dims, of all answers.
    """

    p: jax.Array
    log_p: jax.Array
    slope: jax.Array
    information: jax.Array


def _log_p(item: Any, point: jax.Array) -> jax.Array:
    return item.log_probs(point)


def _terms(model: ItemModel, observed: jax.Array, theta: jax.Array) -> _PersonTerms:
    """The terms at an ability."""
    log_p = jax.vmap(_log_p, (0, None))(model, theta)
    slope = jax.vmap(jax.jacfwd(_log_p, argnums=1), (0, None))(model, theta)
    p = jnp.exp(log_p)
    possible = (p > 0) & observed[:, None]
    p = jnp.where(possible, p, 0.0)
    log_p = jnp.where(possible, log_p, 0.0)
    slope = jnp.where(possible[..., None], slope, 0.0)
    information = jnp.einsum("ik,ikd,ike->de", p, slope, slope)
    ridge = 1e-12 * jnp.eye(len(theta), dtype=p.dtype)  # nothing is explained without information
    return _PersonTerms(p, log_p, slope, information + ridge)


def _codes(x: jax.Array) -> jax.Array:
    """The answers as positions along the categories; those of missing ones are not used."""
    return jnp.maximum(x, 0)[:, None].astype(jnp.int32)


@partial(jit, static_argnames="wle")
def _likelihoods(
    model: ItemModel, x: jax.Array, theta: jax.Array, wle: bool
) -> tuple[jax.Array, ...]:
    """The terms of lz and lz* of a block of subjects.

    Of each l - E l, its variance, c, Warm's r_0 (0 but for ``wle``) and the corrected variance.
    """

    def one(x: jax.Array, theta: jax.Array) -> tuple[jax.Array, ...]:
        p, log_p, slope, information = _terms(model, x >= 0, theta)
        answered = jnp.take_along_axis(log_p, _codes(x), axis=1)[:, 0]
        mean = (p * log_p).sum(axis=1)
        difference = (answered - mean).sum()
        variance = (p * (log_p - mean[:, None]) ** 2).sum()
        cross = jnp.einsum("ik,ikd,ik->d", p, slope, log_p)
        c = jnp.linalg.solve(information, cross)
        residual = log_p - mean[:, None] - slope @ c
        residual_variance = (p * residual**2).sum()
        r_0 = jnp.zeros_like(theta)
        if wle:
            hessian = jax.vmap(jax.hessian(_log_p, argnums=1), (0, None))(model, theta)[..., 0, 0]
            second = jnp.where(p > 0, hessian + slope[..., 0] ** 2, 0.0)  # P'' / P
            warm = (p * slope[..., 0] * second).sum() / (2 * information[0, 0] + 1e-12)
            r_0 = warm[None]
        return difference, variance, c, r_0, residual_variance

    return jax.vmap(one)(x, theta)


def _flags(
    data: Coded, theta: FloatArray, n_items: np.ndarray, min_items: int, at_bound: BoolArray
) -> list[str]:
    """Flags of each subject."""
    top = data.categories - 1
    observed = data.values >= 0
    lowest = np.where(observed, data.values == 0, True).all(axis=1)
    highest = np.where(observed, data.values == top, True).all(axis=1)
    unknown = ~np.isin(np.arange(len(theta)), known_rows(theta))
    texts = {
        "no responses": n_items == 0,
        "no ability": unknown & (n_items > 0),
        f"fewer than {min_items} items": (n_items > 0) & (n_items < min_items),
        "lowest answers only": lowest & (n_items > 0),
        "highest answers only": highest & (n_items > 0),
        "ability at its bound": at_bound,
    }
    marks = np.stack(list(texts.values()), axis=1)
    names = list(texts)
    return ["; ".join(names[k] for k in np.flatnonzero(row)) for row in marks]

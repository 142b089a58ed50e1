"""Person fit: subjects whose answers do not go with the model, whatever their ability."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.special import ndtr

from irtcat._checks import check_choice, check_count
from irtcat._compile import jit
from irtcat._precision import precision
from irtcat._types import BoolArray, FloatArray
from irtcat.agreement import benjamini_hochberg
from irtcat.bank import ItemBank
from irtcat.diagnose._parts import Coded, coded
from irtcat.diagnose._residuals import abilities_of, blocks, mean_squares, row_chunks, sums
from irtcat.models import ItemModel
from irtcat.responses import Responses
from irtcat.scoring import METHODS, Ability, score

__all__ = ["person_fit"]

CORRECTED = ("ml", "wle", "map")
"""Estimates that solve an equation Snijders's correction is known for."""

FEWEST_ITEMS = 10
MEASURES = ("lz", "lz_star", "outfit", "outfit_z", "infit", "infit_z")
LEAST_SPREAD = 1e-10


def person_fit(
    bank: ItemBank,
    responses: Responses,
    method: str = "map",
    abilities: Any = None,
    min_items: int = FEWEST_ITEMS,
) -> pd.DataFrame:
    """Person fit: the standardised log-likelihoods lz and lz*, outfit and infit.

    ``lz = (l - E l) / sqrt(Var l)``, l the log-likelihood of the subject's answers at the estimated
    ability. As the ability was chosen to make them likely, lz varies too little. lz* puts that
    right: with ``r_ik = P'_ik / P_ik`` and ``c = sum P'_ik log P_ik / sum P'_ik r_ik`` it is
    ``(l - E l + c r_0) / sqrt(sum_i Var_i(log P_ik - c r_ik))``, where the estimate solves
    ``r_0 + sum (y_ik - P_ik) r_ik = 0``: r_0 = 0 for ``ml``, J / (2 I) for ``wle``, the slope of
    the log prior for ``map``. Where the model is right lz* is about standard normal on tests of
    some 20 items and more; low values are answers that do not hang together (guessing, copying,
    carelessness), high ones answers that hang together too well.

    Args:
        bank: the calibrated items (right/wrong or graded, of one or several abilities).
        responses: who answered what; gaps are left out.
        method: how abilities are estimated, as for `irtcat.score`: lz* is for "map", "wle" and
            "ml" (with several abilities "map"), and NaN for others.
        abilities: an `Ability` of the same subjects (its method then counts), or a number each,
            such as true abilities (then without lz*). NaN leaves a subject out.
        min_items: subjects with fewer answers are flagged, at least 1.

    Returns:
        Indexed by subject: theta (theta_1, ... where there are several), n_items, lz, lz_star, p
        (of a lz* so low), p_bh (adjusted over the subjects), outfit, outfit_z, infit, infit_z and
        flags. NaN without answers, for lz* of an estimate at its bound, and where a measure
        cannot vary; flags say so.

    Raises:
        InputError: for an unknown method, or abilities that are not the subjects'.

    Example:
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 12))
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
    data = coded(bank, responses)
    theta, used, at_bound = _estimates(data, method, abilities)
    n_items = (data.values >= 0).sum(axis=1)
    found = {name: np.full(len(theta), np.nan) for name in MEASURES}
    for block in blocks(data, theta):
        for name, value in mean_squares(sums(block, axis=1)).items():
            found[name][block.rows] = value
    _add_likelihood(found, data, theta, used)
    found["lz_star"][at_bound] = np.nan
    p = ndtr(found["lz_star"])
    points = theta.reshape(len(theta), -1)
    names = (
        ["theta"]
        if data.bank.model.dims == 1
        else [f"theta_{i + 1}" for i in range(points.shape[1])]
    )
    columns: dict[str, Any] = dict(zip(names, points.T, strict=True))
    columns |= {"n_items": n_items, "lz": found.pop("lz"), "lz_star": found.pop("lz_star")}
    columns |= {"p": p, "p_bh": benjamini_hochberg(p), **found}
    columns["flags"] = _flags(data, theta, n_items, min_items, at_bound)
    index = pd.Index(data.responses.subject_ids, dtype=object, name="subject")
    return pd.DataFrame(columns, index=index)


def _estimates(data: Coded, method: str, abilities: Any) -> tuple[FloatArray, str, BoolArray]:
    """Abilities, how they were estimated ("" if not known), and which are at a bound."""
    if abilities is None:
        check_choice("method", method, METHODS)
        abilities = score(data.bank, data.responses, method, precision="float64")
    theta = abilities_of(data, abilities, method)
    if not isinstance(abilities, Ability):
        return theta, "", np.zeros(len(theta), bool)
    flags = pd.Series(np.asarray(abilities.flags, dtype=object)).astype(str)
    return theta, abilities.method, flags.str.contains("bound").to_numpy()


def _add_likelihood(
    found: dict[str, FloatArray], data: Coded, theta: FloatArray, method: str
) -> None:
    """Fill in lz, and lz* where the method has one."""
    points = theta.reshape(len(theta), -1)
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    dims = points.shape[1]
    spread = np.eye(dims) if data.bank.correlations is None else np.asarray(data.bank.correlations)
    prior = np.linalg.inv(spread * data.bank.population_sd**2)
    corrected = method in CORRECTED and (dims == 1 or method == "map")
    wle = method == "wle"
    n_cells = data.bank.n_items * data.bank.model.n_categories * (dims + 1)
    with precision("float64"):
        for rows, n in row_chunks(known, n_cells):
            x, at = jnp.asarray(data.values[rows]), jnp.asarray(points[rows])
            parts = _likelihoods(data.bank.model, x, at, wle)
            gap, variance, c, shift, left = (np.asarray(part)[:n] for part in parts)
            own = rows[:n]
            found["lz"][own] = _standardised(gap, variance)
            if not corrected:
                continue
            r_0 = shift
            if method == "map":
                r_0 = (data.bank.population_mean - points[own]) @ prior
            elif method == "ml":
                r_0 = np.zeros_like(points[own])
            found["lz_star"][own] = _standardised(gap + (c * r_0).sum(axis=1), left)


def _standardised(gap: FloatArray, variance: FloatArray) -> FloatArray:
    """The gap in units of its SD; NaN where it cannot vary."""
    varies = variance > LEAST_SPREAD
    return np.where(varies, gap / np.sqrt(np.where(varies, variance, 1.0)), np.nan)


def _one_subject(
    model: ItemModel, x: jax.Array, theta: jax.Array, wle: bool
) -> tuple[jax.Array, ...]:
    """Gap, variance, c, Warm's r_0 and the variance left, of one subject."""
    seen = x >= 0

    def log_p_of(item: Any, at: jax.Array) -> jax.Array:
        return item.log_probs(at)

    log_p = jax.vmap(log_p_of, (0, None))(model, theta)
    slope = jax.vmap(jax.jacfwd(log_p_of, argnums=1), (0, None))(model, theta)
    p = jnp.exp(log_p)
    possible = (p > 0) & seen[:, None]
    p = jnp.where(possible, p, 0.0)
    log_p = jnp.where(possible, log_p, 0.0)
    slope = jnp.where(possible[..., None], slope, 0.0)
    own = jnp.take_along_axis(log_p, jnp.maximum(x, 0)[:, None].astype(jnp.int32), axis=1)[:, 0]
    mean = (p * log_p).sum(axis=1)
    gap = (own - mean).sum()
    variance = (p * (log_p - mean[:, None]) ** 2).sum()
    information = jnp.einsum("ik,ikd,ike->de", p, slope, slope)
    pull = jnp.einsum("ik,ikd,ik->d", p, slope, log_p)
    ridge = 1e-12 * jnp.eye(len(theta), dtype=p.dtype)  # items that say nothing: c is then 0
    c = jnp.linalg.solve(information + ridge, pull)
    rest = log_p - mean[:, None] - slope @ c
    left = (p * rest**2).sum()
    shift = jnp.zeros_like(theta)
    if wle:
        bend = jax.vmap(jax.hessian(log_p_of, argnums=1), (0, None))(model, theta)[..., 0, 0]
        second = jnp.where(possible, bend + slope[..., 0] ** 2, 0.0)  # P'' / P
        warm = (p * slope[..., 0] * second).sum() / (2 * information[0, 0] + 1e-12)
        shift = warm[None]
    return gap, variance, c, shift, left


@jit
def _plain(model: ItemModel, x: jax.Array, theta: jax.Array) -> tuple[jax.Array, ...]:
    return jax.vmap(lambda xs, at: _one_subject(model, xs, at, False))(x, theta)


@jit
def _warm(model: ItemModel, x: jax.Array, theta: jax.Array) -> tuple[jax.Array, ...]:
    return jax.vmap(lambda xs, at: _one_subject(model, xs, at, True))(x, theta)


def _likelihoods(
    model: ItemModel, x: jax.Array, theta: jax.Array, wle: bool
) -> tuple[jax.Array, ...]:
    """The parts of lz and lz* of some subjects; Warm's r_0 where it is asked for."""
    return _warm(model, x, theta) if wle else _plain(model, x, theta)


def _flags(
    data: Coded, theta: FloatArray, n_items: np.ndarray, min_items: int, at_bound: BoolArray
) -> list[str]:
    """What is to be said of each subject."""
    top = data.categories - 1
    seen = data.values >= 0
    lowest = np.where(seen, data.values == 0, True).all(axis=1)
    highest = np.where(seen, data.values == top, True).all(axis=1)
    unknown = ~np.isfinite(theta.reshape(len(theta), -1)).all(axis=1)
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

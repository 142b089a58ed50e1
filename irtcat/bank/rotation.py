"""Rotation of factors to simple structure, and standardised factor loadings.

The slopes of an exploratory fit are one of many equivalent solutions: a rotation of the axes of the
ability space changes only the slopes. A rotation chooses the axes that minimise a criterion of
complexity, by gradient projection from several random starts.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count, is_number
from irtcat._common.types import FloatArray
from irtcat.bank.bank import BankLike, ItemBank, as_bank
from irtcat.bank.needs import check_needs
from irtcat.bank.population import Population, correlations_of
from irtcat.models import category_parameters

LOGISTIC_SCALE = 1.702
"""The logistic curve with this slope is within 0.01 of the normal ogive."""

MAX_STEPS, TOLERANCE = 2000, 1e-8
"""Maximum number of gradient steps, and the norm of the projected gradient at convergence."""

MAX_HALVINGS, ROUNDING_TOLERANCE = 30, 1e-5
"""Halvings of a step that does not lower the criterion; if none helps, the criterion cannot fall
visibly in floating point, and this norm of the gradient counts as convergence."""

Criterion = Callable[[FloatArray], tuple[float, FloatArray]]
"""Complexity of a loading matrix, and its gradient."""


class Rotated(NamedTuple):
    """A rotated loading matrix.

    Attributes:
        loadings: items x factors.
        transform: T; the loadings are ``L inv(T)'`` and the factors ``T' f``.
        correlations: correlations of the factors, T'T.
        criterion: value of the criterion (NaN for promax).
        converged: whether the gradient is below the tolerance.
    """

    loadings: FloatArray
    transform: FloatArray
    correlations: FloatArray
    criterion: float
    converged: bool


def _varimax(loadings: FloatArray) -> tuple[float, FloatArray]:
    """Minus the variance of the squared loadings within factors (Kaiser 1958)."""
    centred = loadings**2 - (loadings**2).mean(axis=0)
    return -float((centred**2).sum()) / 4, -loadings * centred


def _quartimax(loadings: FloatArray) -> tuple[float, FloatArray]:
    """Minus the sum of fourth powers (Neuhaus & Wrigley 1954)."""
    return -float((loadings**4).sum()) / 4, -(loadings**3)


def _oblimin(gamma: float) -> Criterion:
    """Covariances of squared loadings between factors (Jennrich & Sampson 1966)."""

    def criterion(loadings: FloatArray) -> tuple[float, FloatArray]:
        squares = loadings**2
        others = squares.sum(axis=1, keepdims=True) - squares
        others = others - gamma * others.mean(axis=0)
        return float((squares * others).sum()) / 4, loadings * others

    return criterion


def _target(target: FloatArray) -> Criterion:
    """Squared distance from the target where it is stated (Browne 2001)."""
    is_stated = ~np.isnan(target)
    target = np.where(is_stated, target, 0.0)

    def criterion(loadings: FloatArray) -> tuple[float, FloatArray]:
        difference = np.where(is_stated, loadings - target, 0.0)
        return float((difference**2).sum()), 2 * difference

    return criterion


def _descend(loadings: FloatArray, criterion: Criterion, start: FloatArray, oblique: bool):
    """Gradient projection from ``start`` (Bernaards & Jennrich 2005, GPFoblq and GPForth).

    Orthogonal rotations are orthogonal matrices; oblique ones are matrices with columns of length
    1. Each step follows the gradient projected on the tangent space of that set, then returns to
    the set.

    Returns:
        The criterion, the rotation, and whether it converged.
    """

    def rotated(rotation: FloatArray) -> FloatArray:
        return loadings @ np.linalg.inv(rotation).T if oblique else loadings @ rotation

    rotation, step = start, 1.0
    value, slope = criterion(rotated(rotation))
    for _ in range(MAX_STEPS):
        if oblique:
            gradient = -(rotated(rotation).T @ slope @ np.linalg.inv(rotation)).T
            projected = gradient - rotation * (rotation * gradient).sum(axis=0)
        else:
            gradient = loadings.T @ slope
            inner = rotation.T @ gradient
            projected = gradient - rotation @ (inner + inner.T) / 2
        size = float(np.linalg.norm(projected))
        if size < TOLERANCE:
            return value, rotation, True
        step *= 2  # steps may grow again after halvings
        for _ in range(MAX_HALVINGS):
            moved = rotation - step * projected
            if oblique:
                moved = moved / np.linalg.norm(moved, axis=0)
            else:  # the nearest orthogonal matrix
                left, _, right = np.linalg.svd(moved)
                moved = left @ right
            new_value, new_slope = criterion(rotated(moved))
            if new_value < value - 0.5 * size**2 * step:  # half of the linear decrease, at least
                break
            step /= 2
        else:
            return value, rotation, size < ROUNDING_TOLERANCE
        rotation, value, slope = moved, new_value, new_slope
    return value, rotation, False


def _best_descent(
    loadings: FloatArray, criterion: Criterion, oblique: bool, n_starts: int, seed: int
) -> tuple[FloatArray, float, bool]:
    """The best of several descents: one from the current axes, the others from random axes.

    Returns:
        Its rotation, its criterion, and whether it converged.
    """
    rng = np.random.default_rng(seed)
    dims = loadings.shape[1]
    starts = [np.eye(dims)]
    for _ in range(n_starts - 1):
        q, r = np.linalg.qr(rng.standard_normal((dims, dims)))
        starts.append(q * np.sign(np.diagonal(r)))  # uniform over the orthogonal matrices
    ends = [_descend(loadings, criterion, start, oblique) for start in starts]
    value, rotation, converged = min(ends, key=lambda end: end[0])
    return rotation, value, converged


def _promax(loadings: FloatArray, power: float, n_starts: int, seed: int) -> FloatArray:
    """The transform T of promax (Hendrickson & White 1964); the loadings are ``L inv(T)'``.

    The loadings of a varimax rotation (Kaiser-normalised) are raised to a power, which makes small
    ones almost 0, and keep their signs; the transform is the least-squares fit to them.
    """
    lengths = np.sqrt((loadings**2).sum(axis=1, keepdims=True))
    scaled = loadings / np.where(lengths > 0, lengths, 1.0)
    rotation = _best_descent(scaled, _varimax, False, n_starts, seed)[0]
    varimax_loadings = loadings @ rotation
    target = varimax_loadings * np.abs(varimax_loadings) ** (power - 1)
    fitted = np.linalg.lstsq(varimax_loadings, target, rcond=None)[0]
    # Columns are scaled so that the factors have variance 1.
    fitted = fitted * np.sqrt(np.diagonal(np.linalg.inv(fitted.T @ fitted)))
    return np.linalg.inv(rotation @ fitted).T


ROTATIONS = {"varimax": False, "quartimax": False, "oblimin": True, "promax": True, "target": True}
"""Rotation -> whether its factors may correlate by default."""


def rotate_loadings(
    loadings: FloatArray,
    method: str = "oblimin",
    *,
    oblique: bool | None = None,
    gamma: float = 0.0,
    power: float = 4.0,
    target: Any = None,
    normalize: bool = False,
    n_starts: int = 10,
    seed: int = 0,
) -> Rotated:
    """Rotate a matrix of loadings on uncorrelated factors (see `rotate` for the arguments).

    Example:
        >>> simple = np.array([[0.8, 0.0], [0.7, 0.0], [0.0, 0.6], [0.0, 0.9]])
        >>> turn = np.array([[0.8, -0.6], [0.6, 0.8]])
        >>> np.abs(rotate_loadings(simple @ turn, "varimax").loadings).round(3).tolist()
        [[0.0, 0.8], [0.0, 0.7], [0.6, 0.0], [0.9, 0.0]]
    """
    check_choice("method", method, ROTATIONS)
    check_count("n_starts", n_starts)
    loadings = np.asarray(loadings, float)
    if loadings.ndim != 2 or not np.isfinite(loadings).all():
        raise argument_error("loadings", "an items x factors array of finite numbers", loadings)
    oblique = ROTATIONS[method] if oblique is None else bool(oblique)
    if oblique and method in ("varimax", "quartimax"):
        raise argument_error("oblique", f"False for {method}, whose factors would collapse", True)
    if method == "promax" and not oblique:
        raise argument_error("oblique", "True for promax", False)
    if method == "target":
        target = _check_target(target, loadings.shape)
    lengths = np.sqrt((loadings**2).sum(axis=1, keepdims=True)) if normalize else 1.0
    scaled = loadings / np.where(lengths > 0, lengths, 1.0)
    if method == "promax":  # two steps, without a criterion of its own
        rotation, value, converged = _promax(scaled, power, n_starts, seed), np.nan, True
    else:
        criterion = _criterion(method, gamma, target)
        rotation, value, converged = _best_descent(scaled, criterion, oblique, n_starts, seed)
    rotated = loadings @ np.linalg.inv(rotation).T
    if method != "target":  # a target states the order and the signs of its factors
        order = np.argsort(-(rotated**2).sum(axis=0), kind="stable")
        sign = np.where(rotated.sum(axis=0) < 0, -1.0, 1.0)
        rotation, rotated = (rotation * sign)[:, order], (rotated * sign)[:, order]
    correlations = rotation.T @ rotation if oblique else np.eye(rotation.shape[1])
    return Rotated(rotated, rotation, correlations, value, converged)


def _criterion(method: str, gamma: float, target: Any) -> Criterion:
    """The criterion that a rotation minimises."""
    if method == "target":
        return _target(target)
    if method == "oblimin":
        return _oblimin(gamma)
    return {"varimax": _varimax, "quartimax": _quartimax}[method]


def _check_target(target: Any, shape: tuple[int, ...]) -> FloatArray:
    """A target with the loadings' shape and a number in every column."""
    if target is None:
        raise argument_error("target", "given for a target rotation (NaN where free)", None)
    target = np.asarray(target, float)
    if target.shape != shape or np.isinf(target).any() or np.isnan(target).all(axis=0).any():
        raise argument_error(
            "target", f"items x factors {shape} with a number in every column", target.shape
        )
    return target


def _multidimensional_slopes(bank: ItemBank, purpose: str) -> FloatArray:
    """The slopes of a multidimensional bank, items x dimensions; ``purpose`` is for the error."""
    check_needs(bank.model, ["several abilities"], purpose)
    if "slope" in category_parameters(bank.model):
        must = f"of items with one slope for each ability for {purpose}"
        raise argument_error("bank", must, f"a {bank.model.key} bank")
    return np.asarray(bank.model.slope)  # type: ignore[attr-defined]


def rotate(
    bank: BankLike,
    method: str = "oblimin",
    *,
    oblique: bool | None = None,
    gamma: float = 0.0,
    power: float = 4.0,
    target: Any = None,
    normalize: bool = False,
    n_starts: int = 10,
    seed: int = 0,
) -> ItemBank:
    """Rotate the ability axes of a bank to simple structure.

    The rotation is chosen for the factor loadings (see `factor_loadings`) and applied to the
    slopes: ``slope inv(T)'``, with factor correlations ``T'T``. Probabilities do not change.

    | method | minimises | factors |
    |---|---|---|
    | varimax | minus the variance of squared loadings within factors | uncorrelated |
    | quartimax | minus the sum of fourth powers | uncorrelated |
    | oblimin | products of squared loadings between factors, less ``gamma`` | correlated |
    | promax | distance from the ``power`` of the varimax solution | correlated |
    | target | squared distance from ``target`` where that is stated | correlated |

    Args:
        bank: multidimensional items (not bifactor, whose axes have a meaning).
        method: one of the above.
        oblique: whether factors may correlate; as in the table by default.
        gamma: of oblimin; 0 is quartimin, negative values give less correlated factors.
        power: of promax.
        target: items x factors, NaN where the loading is free.
        normalize: rescale items to communality 1 while rotating (Kaiser).
        n_starts: number of descents, the first from the current axes, the others from random ones;
            the best is returned.
        seed: of the random starts.

    Returns:
        The bank on the new axes. Factors are in the order of their sums of squared loadings and
        point to more right answers (with a target: as in the target). Slopes then have no
        standard errors (NaN); those of the intercepts do not change.

    Raises:
        InputError: for an unknown method, a bank with one dimension, or an invalid target, gamma or
            seed.

    Example:
        >>> bank = ItemBank.from_slopes([[1.2, 0.9], [1.0, 0.7], [0.9, -1.1], [1.1, -1.4]])
        >>> np.abs(rotate(bank, "varimax").model.slope).round(1).tolist()
        [[0.0, 1.5], [0.1, 1.2], [1.4, 0.0], [1.8, 0.0]]

    References:
        Bernaards & Jennrich (2005), Educational and Psychological Measurement 65, 676-696;
        Browne (2001), Multivariate Behavioral Research 36, 111-150.
    """
    check_count("seed", seed, 0)
    if not is_number(gamma) or gamma > 1:
        raise argument_error("gamma", "a number of at most 1", gamma)
    bank = as_bank(bank)
    out = rotation_of(
        bank,
        method,
        oblique=oblique,
        gamma=gamma,
        power=power,
        target=target,
        normalize=normalize,
        n_starts=n_starts,
        seed=seed,
    )
    return rotated_bank(bank, out, method)


def rotation_of(bank: ItemBank, method: str, **options: Any) -> Rotated:
    """The rotation of the factor loadings of a bank, by the options of `rotate`."""
    slopes = _uncorrelated_slopes(bank)
    if bank.structure:
        must = "without a bifactor or two-tier structure, whose axes have a meaning"
        raise argument_error("bank", must, bank.structure)
    explained = (slopes**2).sum(axis=1, keepdims=True)
    loadings = slopes / np.sqrt(LOGISTIC_SCALE**2 + explained)  # see `factor_loadings`
    return rotate_loadings(loadings, method, **options)


def _uncorrelated_slopes(bank: ItemBank) -> FloatArray:
    """Slopes on uncorrelated abilities."""
    slopes = _multidimensional_slopes(bank, "a rotation")
    return slopes @ np.linalg.cholesky(correlations_of(bank.reference))


def rotated_bank(bank: ItemBank, out: Rotated, method: str) -> ItemBank:
    """The bank on the axes of a rotation (see `rotate`)."""
    slope = _uncorrelated_slopes(bank) @ np.linalg.inv(out.transform).T
    model = replace(bank.model, slope=slope)  # type: ignore[call-arg]
    covariance = None
    if bank.covariance is not None:
        covariance = bank.covariance.copy()
        dims = bank.model.dims  # the slopes are the first parameters
        covariance[:, :dims] = np.nan
        covariance[:, :, :dims] = np.nan
    is_uncorrelated = np.allclose(out.correlations, np.eye(bank.model.dims))
    record = {"rotation": method, "rotation_converged": out.converged}
    return replace(
        bank,
        model=model,
        covariance=covariance,
        populations=_rotated_populations(bank, out, is_uncorrelated),
        provenance={**bank.provenance, **record},
    )


def _rotated_populations(
    bank: ItemBank, out: Rotated, is_uncorrelated: bool
) -> dict[str, Population]:
    """The populations on the new axes: theta_new = T' L^-1 theta, R = L L' of the reference."""
    root = np.linalg.cholesky(correlations_of(bank.reference))
    change = out.transform.T @ np.linalg.inv(root)
    populations = {}
    for k, (label, old) in enumerate(bank.populations.items()):
        covariance = change @ old.covariance @ change.T
        sd = np.sqrt(np.diagonal(covariance))
        between = covariance / np.outer(sd, sd)
        if k == 0 and is_uncorrelated:  # exactly, where the axes are those of the reference
            between, sd = None, old.sd
        populations[label] = replace(old, mean=change @ old.mean, sd=sd, correlations=between)
    return populations


def factor_loadings(bank: BankLike) -> pd.DataFrame:
    """Slopes as standardised factor loadings, with each item's communality.

    ``F = a / sqrt(1.702^2 + a' R a)`` with R the correlations of the factors: the loadings of the
    normal-ogive factor model, in which an item is answered right when a continuous response
    tendency exceeds a threshold. The communality ``h2`` is the share of the variance of this
    tendency that the factors explain.

    Args:
        bank: multidimensional items.

    Returns:
        Indexed by item: F1, F2, ..., h2 (in [0, 1)).

    Raises:
        InputError: for a bank with one dimension.

    Example:
        >>> bank = ItemBank.from_slopes([[1.702, 0.0], [0.0, 3.0]])
        >>> factor_loadings(bank).round(2).values.tolist()
        [[0.71, 0.0, 0.5], [0.0, 0.87, 0.76]]

    References:
        McDonald (1999), Test Theory; Chalmers (2012), JSS 48(6), section 2.
    """
    bank = as_bank(bank)
    slopes = _multidimensional_slopes(bank, "factor loadings")
    explained = np.einsum("ji,ik,jk->j", slopes, correlations_of(bank.reference), slopes)
    loadings = slopes / np.sqrt(LOGISTIC_SCALE**2 + explained)[:, None]
    table = {f"F{i + 1}": loadings[:, i] for i in range(slopes.shape[1])}
    h2 = explained / (LOGISTIC_SCALE**2 + explained)
    return pd.DataFrame({**table, "h2": h2}, index=bank.statistics.index)

"""Empirical and model curves of items, as a table ready to plot."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv, expit, ndtri

from irtcat._common.checks import check_choice, check_count, check_interval, check_positive
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import BankLike, as_bank
from irtcat.diagnose.chi_square import Coded, coded, curves
from irtcat.diagnose.groups import ability_groups
from irtcat.diagnose.residuals import abilities_of
from irtcat.io.convert import ResponsesLike

SMOOTHERS = ("binned", "kernel", "spline")
COLUMNS = ["item", "category", "theta", "n", "observed", "lower", "upper", "expected"]
RIDGE = 1e-3
"""Keeps logistic regressions finite if answers are separable."""
MAX_STEPS = 50
MIN_WEIGHT = 2.0
"""Smallest effective number of subjects of a smoothed curve."""


def empirical_curves(
    bank: BankLike,
    responses: ResponsesLike,
    items: Any = None,
    smoother: str = "binned",
    n_points: int = 10,
    level: float = 0.95,
    bandwidth: float | None = None,
    df: int = 5,
    method: str = "eap",
    abilities: Any = None,
    *,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """Shares of the answers by estimated ability, with the model's probabilities.

    | smoother | observed | band |
    |---|---|---|
    | binned | share in groups of equal size | exact binomial (Clopper & Pearson) |
    | kernel | local mean, normal kernel | normal, ``sqrt(p (1 - p) sum w^2) / sum w`` |
    | spline | logistic regression on a cubic spline | normal on the logit scale |

    The bands treat abilities as known; since they are estimates, the empirical curve of an item
    that fits is somewhat flatter (``ml``) or steeper (``eap``) than the model's on short tests.

    Args:
        bank: the calibrated items, unidimensional.
        responses: the responses; missing answers are left out item by item.
        items: ids or positions of the items; all by default.
        smoother: one of the above.
        n_points: number of groups, or of abilities (evenly spaced from the 1st to the 99th
            percentile) at which smoothed curves are computed; at least 2.
        level: probability of the band.
        bandwidth: SD of the kernel in units of ability; by default 1.1 sd n^(-1/5).
        df: coefficients of the spline, at least 4.
        method: how abilities are estimated (as for `irtcat.score`), unless passed.
        abilities: an `Ability` of the same subjects, or one number each (NaN leaves one out).
        mismatch: as for `irtcat.score`.

    Returns:
        Columns item, category (from 0; for right/wrong items only 1), theta, n (subjects; for the
        kernel the effective number), observed, lower, upper, expected (the model's probability
        at theta). Items without answers have no rows. A kernel curve is NaN where its effective
        number of subjects is below 2.

    Raises:
        InputError: for a multidimensional bank, or arguments out of range.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> r = load("lsat7")
        >>> table = empirical_curves(fit(r, "2pl").bank, r, ["item1"], n_points=3)
        >>> table[["n", "observed", "expected"]].round(2).values.tolist()
        [[333.0, 0.63, 0.74], [333.0, 0.86, 0.88], [334.0, 1.0, 0.93]]

    References:
        Ramsay (1991), Psychometrika 56, 611-630 (kernel smoothing); Clopper & Pearson (1934),
        Biometrika 26, 404-413.
    """
    check_choice("smoother", smoother, SMOOTHERS)
    check_count("n_points", n_points, 2)
    check_interval("level", level)
    check_count("df", df, 4)
    if bandwidth is not None:
        check_positive("bandwidth", bandwidth)
    bank = as_bank(bank, needs=["one ability"], purpose="empirical curves")
    data = coded(bank, responses, mismatch=mismatch)
    theta = abilities_of(data, abilities, method)
    selected = np.arange(data.bank.n_items) if items is None else data.bank.positions(items)
    tables = []
    for j in selected:
        known = (data.values[:, j] >= 0) & np.isfinite(theta)
        if not known.any():
            continue
        ability, x = theta[known], data.values[known, j]
        indicators = (x[:, None] == _categories(data, j)).astype(float)
        if smoother == "binned":
            smoothed = _binned(ability, indicators, n_points, level)
        else:
            low, high = np.quantile(ability, [0.01, 0.99])
            points = np.linspace(low, high, n_points)
            smooth = _kernel if smoother == "kernel" else _spline
            setting = bandwidth if smoother == "kernel" else df
            smoothed = smooth(ability, indicators, points, level, setting)
        tables.append(_table(data, int(j), *smoothed))
    if not tables:
        return pd.DataFrame(columns=COLUMNS)
    return pd.concat(tables, ignore_index=True)


def _categories(data: Coded, j: Any) -> IntArray:
    """The categories of an item in the table."""
    n = int(data.categories[j])
    return np.arange(1 if n == 2 else 0, n)


def _table(
    data: Coded, j: int, points: FloatArray, n: FloatArray, curve: FloatArray, band: FloatArray
) -> pd.DataFrame:
    """Rows of one item, category by category."""
    categories = _categories(data, j)
    expected = curves(data.bank.subset([j]), points)[0][:, categories]
    columns = {
        "item": str(data.bank.item_ids[j]),
        "category": np.repeat(categories, len(points)),
        "theta": np.tile(points, len(categories)),
        "n": np.tile(n, len(categories)),
        "observed": curve.T.ravel(),
        "lower": band[0].T.ravel(),
        "upper": band[1].T.ravel(),
        "expected": expected.T.ravel(),
    }
    return pd.DataFrame(columns)


Smoothed = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


def _binned(theta: FloatArray, indicators: FloatArray, n_points: int, level: float) -> Smoothed:
    """Shares in groups of equal size, at their mean ability."""
    group = ability_groups(theta, min(n_points, len(theta)))
    n = np.bincount(group).astype(float)
    points = np.bincount(group, theta) / n
    count = np.stack([np.bincount(group, column) for column in indicators.T], axis=1)
    tail = (1 - level) / 2
    rest = n[:, None] - count
    lower = np.where(count > 0, betaincinv(np.maximum(count, 1), rest + 1, tail), 0.0)
    upper = np.where(rest > 0, betaincinv(count + 1, np.maximum(rest, 1), 1 - tail), 1.0)
    return points, n, count / n[:, None], np.stack([lower, upper])


def _kernel(
    theta: FloatArray, indicators: FloatArray, points: FloatArray, level: float, width: float | None
) -> Smoothed:
    """Local means of the answers."""
    if width is None:
        width = max(1.1 * float(theta.std()) * len(theta) ** -0.2, 1e-6)
    weight = np.exp(-0.5 * ((points[:, None] - theta) / width) ** 2)
    total, square = weight.sum(axis=1), (weight**2).sum(axis=1)
    n = total**2 / np.maximum(square, np.finfo(float).tiny)
    enough = (n >= MIN_WEIGHT) & (total > 1e-8)
    safe = np.where(enough, total, 1.0)[:, None]
    curve = np.where(enough[:, None], weight @ indicators / safe, np.nan)
    spread = np.maximum(curve * (1 - curve), 0.0) * square[:, None]
    half_width = ndtri(0.5 + level / 2) * np.sqrt(spread) / safe
    return points, n, curve, np.clip(np.stack([curve - half_width, curve + half_width]), 0.0, 1.0)


def _spline(
    theta: FloatArray, indicators: FloatArray, points: FloatArray, level: float, df: float | None
) -> Smoothed:
    """Logistic regression of each category on a cubic spline of ability."""
    from scipy.interpolate import BSpline

    low, high = min(theta.min(), points[0]), max(theta.max(), points[-1])
    high = max(high, low + 1e-6)
    inner = np.quantile(theta, np.linspace(0, 1, int(df or 5) - 2)[1:-1])
    inner = np.unique(np.clip(inner, low + 1e-9, high - 1e-9))
    knots = np.concatenate([[low] * 4, inner, [high] * 4])

    def basis(x: FloatArray) -> FloatArray:
        return BSpline.design_matrix(np.clip(x, low, high), knots, 3).toarray()

    design, design_points = basis(theta), basis(points)
    z = ndtri(0.5 + level / 2)
    shape = (len(points), indicators.shape[1])
    curve, band = np.empty(shape), np.empty((2, *shape))
    for k, y in enumerate(indicators.T):
        coefficient, covariance = _logistic(design, y)
        line = design_points @ coefficient
        variance = np.einsum("pd,de,pe->p", design_points, covariance, design_points)
        se = np.sqrt(variance)
        curve[:, k], band[0, :, k], band[1, :, k] = (
            expit(line),
            expit(line - z * se),
            expit(line + z * se),
        )
    return points, np.full(len(points), float(len(theta))), curve, band


def _logistic(design: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Coefficients of a logistic regression with a small ridge penalty, and their covariance."""
    ridge = RIDGE * np.eye(design.shape[1])
    share = np.clip(y.mean(), 0.5 / len(y), 1 - 0.5 / len(y))
    coefficient = np.full(design.shape[1], np.log(share / (1 - share)))
    for _ in range(MAX_STEPS):
        p = expit(design @ coefficient)
        hessian = (design * (p * (1 - p))[:, None]).T @ design + ridge
        step = np.linalg.solve(hessian, design.T @ (y - p) - ridge @ coefficient)
        coefficient = coefficient + np.clip(step, -5.0, 5.0)
        if np.abs(step).max() < 1e-9:
            break
    return coefficient, np.linalg.inv(hessian)

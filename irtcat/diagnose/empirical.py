"""Fit and curves of items on groups of subjects of similar ability: X2 (Bock, Yen's Q1) and G2."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv, expit, ndtri, xlogy

from irtcat._common.checks import (
    argument_error,
    check_choice,
    check_count,
    check_interval,
    check_positive,
)
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import BankLike, as_bank
from irtcat.diagnose.chi_square import Coded, chi_square_p, coded, curves, item_index, rmsea
from irtcat.diagnose.estimated_parameters import free_of
from irtcat.diagnose.residuals import abilities_of
from irtcat.io.convert import ResponsesLike

DECIMALS = 9
"""Abilities that agree to this many decimals are ties when subjects are sorted."""


CELLS = ["item", "group", "theta", "category", "observed", "expected"]
"""Columns of the cells: the item's position, the group from 0, its mean or median ability, the
merged category, how many chose it, and the same under the model."""


def ability_groups(theta: FloatArray, n_groups: int) -> IntArray:
    """Group number of each subject, in order of ability; -1 without ability.

    Groups have equal sizes; the remainder goes to the first and the last.
    """
    out = np.full(len(theta), -1)
    known = np.flatnonzero(np.isfinite(theta))
    size, remainder = divmod(len(known), n_groups)
    sizes = np.full(n_groups, size)
    sizes[0] += remainder // 2
    sizes[-1] += remainder - remainder // 2
    # Equal abilities in random order: rows may be sorted by what is tested.
    ties = np.random.default_rng(0).permutation(len(known))
    order = known[np.lexsort((ties, theta[known].round(DECIMALS)))]
    out[order] = np.repeat(np.arange(n_groups), sizes)
    return out


def grouped_cells(
    data: Coded, theta: FloatArray, n_groups: int, center: str, least: float
) -> pd.DataFrame:
    """All items' cells, with categories merged until expected counts are at least ``least``.

    A group with a single remaining category is left out.
    """
    group = ability_groups(theta, n_groups)
    middle = np.mean if center == "mean" else np.median
    found = []
    for j, g in product(range(data.bank.n_items), range(n_groups)):
        members = (data.values[:, j] >= 0) & (group == g)
        if members.sum() > 1:
            chosen = np.bincount(data.values[members, j], minlength=data.categories[j])
            found.append((j, g, float(middle(theta[members])), chosen.astype(float)))
    points = np.array([point for _, _, point, _ in found])
    p = curves(data.bank, points) if found else np.zeros((0, 0, 0))
    rows: list[tuple[Any, ...]] = []
    for index, (j, g, point, counts) in enumerate(found):
        share = p[j, index, : data.categories[j]]
        pairs = merge_categories(counts.tolist(), (counts.sum() * share).tolist(), least)
        if len(pairs) > 1:
            rows += [(j, g, point, category, *pair) for category, pair in enumerate(pairs)]
    return pd.DataFrame(rows, columns=CELLS)


def merge_categories(
    observed: list[float], expected: list[float], least: float
) -> list[tuple[float, float]]:
    """Merge categories with low expected counts into the previous one (the first into the next)."""
    o, e = observed, expected
    while len(e) > 1 and min(e) < least:
        source = next(k for k, value in enumerate(e) if value < least)
        target = 1 if source == 0 else source - 1
        o[target] += o[source]
        e[target] += e[source]
        del o[source], e[source]
    return list(zip(o, e, strict=True))


CENTERS = ("mean", "median")

NEEDS = ("one ability",)
"""What groups of similar ability need of a bank."""


def grouped_fit(
    bank: BankLike,
    responses: ResponsesLike,
    n_groups: int = 10,
    center: str = "mean",
    min_expected: float = 2.0,
    method: str = "eap",
    abilities: Any = None,
    estimated: str = "auto",
    *,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """X2 and G2 of each item on groups of subjects of similar ability (Bock; Yen's Q1).

    Subjects are sorted by estimated ability and split into groups of equal size; the model's
    probabilities at the group's mean (Yen) or median ability (Bock) give the expected counts.
    ``X2 = sum (O - E)^2 / E``, ``G2 = 2 sum O log(O / E)``. Since abilities are estimates, both
    are too large on short tests even for items that fit (use `s_x2`): on tests of fewer than about
    50 items use them only as descriptions.

    Args:
        bank: the calibrated items, unidimensional.
        responses: the responses; missing answers are left out item by item.
        n_groups: number of groups, at least 2.
        center: "mean" or "median".
        min_expected: a category with a lower expected count in a group is merged with its
            neighbour; a group with a single remaining category is left out.
        method: how abilities are estimated (as for `irtcat.score`), unless passed.
        abilities: an `Ability` of the same subjects, or one number each (NaN leaves one out).
        estimated: as for `s_x2`.
        mismatch: as for `irtcat.score`.

    Returns:
        Indexed by item: x2, g2, df (of both), p_x2, p_g2, rmsea_x2, rmsea_g2, n_groups (used), n
        and flag. df counts all cells, for G2 also empty ones (mirt excludes these from the df of
        G2). NaN if there is no test, see ``flag``.

    Raises:
        InputError: for a multidimensional bank, an unknown method or center, or abilities of other
            subjects.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> r = load("lsat7")
        >>> grouped_fit(fit(r, "2pl").bank, r, n_groups=5)[["df", "n_groups"]].head(1)
               df  n_groups
        item
        item1   3         5

    References:
        Bock (1972), Psychometrika 37, 29-51; Yen (1981), Applied Psychological Measurement 5,
        245-262; McKinley & Mills (1985), Applied Psychological Measurement 9, 49-57 (G2).
    """
    data, cells = _grouped(
        bank, responses, n_groups, center, min_expected, method, abilities, mismatch
    )
    free, n_items = free_of(data.bank, estimated), data.bank.n_items
    o, e = (cells[name].to_numpy(float) for name in ("observed", "expected"))
    terms = {"x2": (o - e) ** 2 / e, "g2": 2 * xlogy(o, o / e), "df": 1.0, "n": o}
    sums = pd.DataFrame(terms, cells.index).groupby(cells["item"]).sum()
    sums["used"] = cells.groupby("item")["group"].nunique()
    x2, g2, df, n, used = sums.reindex(range(n_items), fill_value=0.0).to_numpy(float).T
    constant = data.constant()
    df = (df - used).astype(int) - free.by_item
    flags = np.where(constant, "constant", np.where(df <= 0, "too few cells", ""))
    df = np.where(constant, 0, np.maximum(df, 0))
    x2, g2 = np.where(df > 0, [x2, g2], np.nan)
    columns: dict[str, Any] = {"x2": x2, "g2": g2, "df": df}
    total = int((data.values >= 0).any(axis=1).sum())
    for name in ("x2", "g2"):
        columns[f"p_{name}"] = chi_square_p(columns[name], df)
        columns[f"rmsea_{name}"] = rmsea(columns[name], df, total)
    columns |= {"n_groups": used.astype(int), "n": n.astype(int), "flag": flags}
    return pd.DataFrame(columns, index=item_index(data))


def grouped_fit_table(
    bank: BankLike,
    responses: ResponsesLike,
    n_groups: int = 10,
    center: str = "mean",
    min_expected: float = 2.0,
    method: str = "eap",
    abilities: Any = None,
    *,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """The observed and expected counts behind `grouped_fit`, one row per cell.

    Args:
        bank: the calibrated items, unidimensional.
        responses: the responses.
        n_groups: number of groups.
        center: "mean" or "median".
        min_expected: as for `grouped_fit`.
        method: how abilities are estimated.
        abilities: as for `grouped_fit`.
        mismatch: as for `irtcat.score`.

    Returns:
        Columns item, group, theta, category (renumbered after merging), observed, expected.

    Raises:
        InputError: as `grouped_fit`.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> r = load("lsat7")
        >>> table = grouped_fit_table(fit(r, "2pl").bank, r, n_groups=5)
        >>> float(table[table["item"] == "item1"].observed.sum())
        1000.0
    """
    data, cells = _grouped(
        bank, responses, n_groups, center, min_expected, method, abilities, mismatch
    )
    return cells.assign(item=cells["item"].map(lambda j: str(data.bank.item_ids[j])))


def _grouped(
    bank: BankLike,
    responses: ResponsesLike,
    n_groups: int,
    center: str,
    min_expected: float,
    method: str,
    abilities: Any,
    mismatch: str,
) -> tuple[Coded, pd.DataFrame]:
    """Cells of all items on groups of ability."""
    check_choice("center", center, CENTERS)
    check_positive("min_expected", min_expected)
    bank = as_bank(bank, needs=NEEDS, purpose="fit by groups of ability")
    data = coded(bank, responses, mismatch=mismatch)
    theta = abilities_of(data, abilities, method)
    check_count("n_groups", n_groups, 2)
    known = int(np.isfinite(theta).sum())
    if known < n_groups:
        must = f"of at least {n_groups} subjects with an ability for {n_groups} groups"
        raise argument_error("responses", must, known, "Or use fewer groups: n_groups.")
    return data, grouped_cells(data, theta, n_groups, center, float(min_expected))


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
        low, high = np.quantile(ability, [0.01, 0.99])
        points = np.linspace(low, high, n_points)
        if smoother == "binned":
            smoothed = _binned(ability, indicators, n_points, level)
        elif smoother == "kernel":
            smoothed = _kernel(ability, indicators, points, level, bandwidth)
        else:
            smoothed = _spline(ability, indicators, points, level, df)
        tables.append(_table(data, int(j), *smoothed))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)


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
    theta: FloatArray, indicators: FloatArray, points: FloatArray, level: float, df: int
) -> Smoothed:
    """Logistic regression of each category on a cubic spline of ability."""
    from scipy.interpolate import BSpline

    low, high = min(theta.min(), points[0]), max(theta.max(), points[-1])
    high = max(high, low + 1e-6)
    inner = np.quantile(theta, np.linspace(0, 1, df - 2)[1:-1])
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
        se = np.sqrt(np.einsum("pd,de,pe->p", design_points, covariance, design_points))
        curve[:, k], band[:, :, k] = expit(line), expit([line - z * se, line + z * se])
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

"""Item fit on groups of subjects of similar ability: X2 (Bock, Yen's Q1) and G2."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import xlogy

from irtcat._common.checks import argument_error, check_choice, check_count, check_positive
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import BankLike, as_bank
from irtcat.diagnose.chi_square import Coded, chi_square_p, coded, curves, item_index, rmsea
from irtcat.diagnose.estimated_parameters import free_of
from irtcat.diagnose.residuals import abilities_of
from irtcat.io.convert import ResponsesLike

DECIMALS = 9
"""Abilities that agree to this many decimals are ties when subjects are sorted."""


class GroupedCells(NamedTuple):
    """Answers to one item in one group.

    Attributes:
        item: position of the item.
        group: number of the group, from 0.
        theta: ability of the group: mean or median of those who answered.
        observed: counts of the categories.
        expected: the same under the model.
    """

    item: int
    group: int
    theta: float
    observed: FloatArray
    expected: FloatArray

    @property
    def x2(self) -> float:
        """Pearson's chi-square of the group."""
        return float(((self.observed - self.expected) ** 2 / self.expected).sum())

    @property
    def g2(self) -> float:
        """Likelihood-ratio chi-square; a category nobody chose adds 0."""
        return float(2 * xlogy(self.observed, self.observed / self.expected).sum())


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
) -> list[GroupedCells]:
    """All items' groups, with categories merged until expected counts are at least ``least``.

    A group with a single remaining category is left out.
    """
    group = ability_groups(theta, n_groups)
    middle = np.mean if center == "mean" else np.median
    points = np.full((data.bank.n_items, n_groups), np.nan)
    for j in range(data.bank.n_items):
        answered = data.values[:, j] >= 0
        for g in range(n_groups):
            members = answered & (group == g)
            if members.sum() > 1:
                points[j, g] = middle(theta[members])
    cells = []
    for j, g in np.argwhere(np.isfinite(points)):
        x = data.values[(data.values[:, j] >= 0) & (group == g), j]
        counts = np.bincount(x, minlength=data.categories[j]).astype(float)
        cells.append((int(j), int(g), float(points[j, g]), counts))
    return list(_with_expected(data, cells, least))


def _with_expected(data: Coded, cells: list, least: float):
    """The cells with their expected counts."""
    theta = np.array([theta_g for _, _, theta_g, _ in cells])
    p = curves(data.bank, theta) if len(theta) else np.zeros((0, 0, 0))
    for index, (j, g, theta_g, counts) in enumerate(cells):
        share = p[j, index, : data.categories[j]]
        observed, expected = merge_categories(counts, counts.sum() * share, least)
        if len(observed) > 1:
            yield GroupedCells(j, g, theta_g, observed, expected)


def merge_categories(
    observed: FloatArray, expected: FloatArray, least: float
) -> tuple[FloatArray, FloatArray]:
    """Merge categories with low expected counts into the previous one (the first into the next)."""
    o, e = list(observed), list(expected)
    while len(e) > 1 and min(e) < least:
        source = next(k for k, value in enumerate(e) if value < least)
        target = 1 if source == 0 else source - 1
        o[target] += o[source]
        e[target] += e[source]
        del o[source], e[source]
    return np.array(o), np.array(e)


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
    x2, g2, df, used, n = np.zeros((5, n_items))
    for cell in cells:
        x2[cell.item] += cell.x2
        g2[cell.item] += cell.g2
        df[cell.item] += len(cell.observed) - 1
        used[cell.item] += 1
        n[cell.item] += cell.observed.sum()
    constant = data.constant()
    df = df.astype(int) - free.by_item
    flags = np.where(constant, "constant", np.where(df <= 0, "too few cells", ""))
    df = np.where(constant, 0, np.maximum(df, 0))
    columns: dict[str, Any] = {
        "x2": np.where(df > 0, x2, np.nan),
        "g2": np.where(df > 0, g2, np.nan),
    }
    columns["df"] = df
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
    ids = data.bank.item_ids
    rows = [
        (str(ids[cell.item]), cell.group, cell.theta, k, o, e)
        for cell in cells
        for k, (o, e) in enumerate(zip(cell.observed, cell.expected, strict=True))
    ]
    names = ["item", "group", "theta", "category", "observed", "expected"]
    return pd.DataFrame(rows, columns=names)


def _grouped(
    bank: BankLike,
    responses: ResponsesLike,
    n_groups: int,
    center: str,
    min_expected: float,
    method: str,
    abilities: Any,
    mismatch: str,
) -> tuple[Coded, list[GroupedCells]]:
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

"""Observed and expected answers in groups of similar ability (Bock, Yen)."""

from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from irtcat._common.types import FloatArray, IntArray
from irtcat.diagnose.chi_square import Coded, curves

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
    order = known[np.argsort(theta[known].round(DECIMALS), kind="stable")]
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

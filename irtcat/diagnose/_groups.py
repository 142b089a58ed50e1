"""Answers of subjects grouped by ability against the model's expectation (Bock, Yen)."""

from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from irtcat._types import FloatArray, IntArray
from irtcat.diagnose._parts import Coded, curves

__all__ = ["GroupedCells", "ability_groups", "grouped_cells", "merge_categories"]

TIES = 9
"""Decimals by which abilities are told apart when subjects are sorted."""


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
    """Number of each subject's group of rising ability; -1 without ability.

    Groups are of one size; what is left over goes to the first and the last.
    """
    out = np.full(len(theta), -1)
    known = np.flatnonzero(np.isfinite(theta))
    size, over = divmod(len(known), n_groups)
    each = np.full(n_groups, size)
    each[0] += over // 2
    each[-1] += over - over // 2
    order = known[np.argsort(theta[known].round(TIES), kind="stable")]
    out[order] = np.repeat(np.arange(n_groups), each)
    return out


def grouped_cells(
    data: Coded, theta: FloatArray, n_groups: int, center: str, least: float
) -> list[GroupedCells]:
    """All items' groups, categories merged until none is expected fewer than ``least`` times.

    A group with one category left says nothing and is left out.
    """
    group = ability_groups(theta, n_groups)
    middle = np.mean if center == "mean" else np.median
    points = np.full((data.bank.n_items, n_groups), np.nan)
    for j in range(data.bank.n_items):
        answered = data.values[:, j] >= 0
        for g in range(n_groups):
            own = answered & (group == g)
            if own.sum() > 1:
                points[j, g] = middle(theta[own])
    cells = []
    for j, g in np.argwhere(np.isfinite(points)):
        x = data.values[(data.values[:, j] >= 0) & (group == g), j]
        counts = np.bincount(x, minlength=data.categories[j]).astype(float)
        cells.append((int(j), int(g), float(points[j, g]), counts))
    flat = np.array([theta_g for _, _, theta_g, _ in cells])
    return list(_with_expected(data, cells, flat, least))


def _with_expected(data: Coded, cells: list, flat: FloatArray, least: float):
    """The cells with their expected counts."""
    p = curves(data.bank, flat) if len(flat) else np.zeros((0, 0, 0))
    for at, (j, g, theta_g, counts) in enumerate(cells):
        share = p[j, at, : data.categories[j]]
        observed, expected = merge_categories(counts, counts.sum() * share, least)
        if len(observed) > 1:
            yield GroupedCells(j, g, theta_g, observed, expected)


def merge_categories(
    observed: FloatArray, expected: FloatArray, least: float
) -> tuple[FloatArray, FloatArray]:
    """Add categories expected fewer than ``least`` times to the one before (the first: after)."""
    o, e = list(observed), list(expected)
    while len(e) > 1 and min(e) < least:
        at = next(k for k, value in enumerate(e) if value < least)
        to = 1 if at == 0 else at - 1
        o[to] += o[at]
        e[to] += e[at]
        del o[at], e[at]
    return np.array(o), np.array(e)

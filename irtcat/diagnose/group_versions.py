"""Fits with items that differ between groups: one column per group of such an item."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting import Fit, fit
from irtcat.fitting.problem.groups import Grouping
from irtcat.models import column_names, expected_responses, free_parameters, tied_parameters
from irtcat.responses import Responses

AREA_SDS = 6.0
NODES = 241
"""The areas between curves are over the mean +- 6 SDs, with this many nodes."""

_curves = jit(expected_responses)


def item_tables(banks: list[ItemBank], index: pd.MultiIndex) -> pd.DataFrame:
    """The reported parameters of the items of all banks, with standard errors if known."""
    model = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(bank.model for bank in banks))
    blocks = [bank.covariance for bank in banks if bank.covariance is not None]
    covariance = np.concatenate(blocks) if len(blocks) == len(banks) else None
    combined = ItemBank(model, np.arange(len(index)).astype(str), covariance=covariance)
    return combined.to_frame().set_axis(index)


def untested_reasons(responses: Responses, grouping: Grouping) -> list[str]:
    """Why each item cannot be compared between the groups; empty if it can."""
    values, n_groups = responses.values, len(grouping.labels)
    reasons = []
    for column in values.T:
        by_group = [
            set(np.unique(column[grouping.codes == g]).tolist()) - {-1} for g in range(n_groups)
        ]
        categories = set().union(*by_group)
        constant = [g for g in range(n_groups) if len(by_group[g]) < 2]
        if len(categories) < 2:
            reasons.append("no answers" if not categories else "constant")
        elif constant:
            reason = "constant" if by_group[constant[0]] else "no answers"
            reasons.append(f"{reason} in group {grouping.labels[constant[0]]}")
        elif any(group != categories for group in by_group):
            reasons.append("not all categories in every group")
        else:
            reasons.append("")
    return reasons


def without_constant(responses: Responses, grouping: Grouping) -> Responses:
    """The responses without a group's answers to an item that all of the group answered alike.

    With such an item equal in all groups, the estimated population of the group could diverge.
    """
    values = np.asarray(responses.values).copy()
    for column in values.T:  # views of `values`
        for g in range(len(grouping.labels)):
            members = grouping.codes == g
            if len(set(np.unique(column[members]).tolist()) - {-1}) == 1:
                column[members] = -1
    return replace(responses, values=values)


@dataclass
class SplitFits:
    """Cached fits with some items free in every group.

    Attributes:
        responses: items that are not constant.
        grouping: the groups, the reference first.
        model: item model.
        options: of `irtcat.fit`.
        errors: standard errors of the fits: "none", "full" or "full sandwich".
        cache: free items -> fit.
    """

    responses: Responses
    grouping: Grouping
    model: str
    options: dict[str, Any]
    errors: str
    cache: dict[frozenset[int], Fit] = field(default_factory=dict)

    def columns(self, free: Iterable[int]) -> list[tuple[int, int]]:
        """Item and group of each column; group -1 if all share the item."""
        free, groups = set(free), range(len(self.grouping.labels))
        return [
            (j, g) for j in range(self.responses.n_items) for g in (groups if j in free else [-1])
        ]

    def split(self, free: Iterable[int]) -> Responses:
        """The responses with a column for each group of a free item."""
        columns = self.columns(free)
        values = np.asarray(self.responses.values)[:, [j for j, _ in columns]].copy()
        for column, (_, g) in enumerate(columns):
            if g >= 0:
                values[self.grouping.codes != g, column] = -1
        return Responses.from_array(
            values,
            subject_ids=self.responses.subject_ids,
            item_ids=[f"{j}:{g}" for j, g in columns],
            codes=range(self.responses.n_categories),
        )

    def fit(self, free: Iterable[int]) -> Fit:
        """The fit with these items free."""
        key = frozenset(free)
        if key not in self.cache:
            labels = np.array(self.grouping.labels, dtype=object)[self.grouping.codes]
            result = fit(
                self.split(key),
                self.model,
                groups=pd.Series(labels),
                reference=self.grouping.labels[0],
                standard_errors=self.errors,
                **self.options,
            )
            self.cache[key] = replace(result, responses=None)  # saves memory
        return self.cache[key]

    def bank(self, free: Iterable[int], item: int) -> ItemBank:
        """The free item in each group."""
        n_groups = len(self.grouping.labels)
        return self.fit(free).bank.subset([f"{item}:{g}" for g in range(n_groups)])


def wald(fits: SplitFits, free: Iterable[int], item: int) -> dict[str, float]:
    """Wald test of equal parameters in all groups: statistic, df, and p of the slopes only."""
    bank = fits.bank(free, item)
    if bank.full_covariance is None:
        return {"statistic": np.nan, "df": np.nan, "p_slope": np.nan}
    params, names = bank.parameters(), column_names(bank.model)
    n_groups, size = params.shape
    tested = free_parameters(bank.model)[0] & ~np.isin(names, tied_parameters(bank.model))
    contrasts = np.kron(np.c_[-np.ones(n_groups - 1), np.eye(n_groups - 1)], np.eye(size))
    rows = np.tile(tested, n_groups - 1)
    slopes = np.tile((np.array(names) == "slope") & tested, n_groups - 1)
    total = _quadratic(contrasts[rows], params, bank.full_covariance)
    slope = _quadratic(contrasts[slopes], params, bank.full_covariance) if slopes.any() else np.nan
    from scipy.stats import chi2  # slow to import

    return {
        "statistic": total,
        "df": float(rows.sum()),
        "p_slope": float(chi2.sf(slope, slopes.sum())) if slopes.any() else np.nan,
    }


def _quadratic(contrast: FloatArray, params: FloatArray, covariance: FloatArray) -> float:
    """Wald's statistic d' V^-1 d of the contrasts d; NaN if V is unknown or not positive."""
    difference = contrast @ params.ravel()
    variance = contrast @ np.nan_to_num(covariance, nan=0.0) @ contrast.T
    used = (contrast != 0).any(axis=0)
    if np.isnan(np.diagonal(covariance)[used]).any() or np.linalg.eigvalsh(variance)[0] <= 0:
        return float("nan")
    return float(difference @ np.linalg.solve(variance, difference))


def item_effects(fits: SplitFits, free: Iterable[int], item: int) -> list[dict[str, float]]:
    """Differences of the item's curves between each other group and the reference."""
    bank, table = fits.bank(free, item), fits.fit(free).groups
    assert table is not None
    z = np.linspace(-AREA_SDS, AREA_SDS, NODES)
    weights = np.exp(-0.5 * z**2)
    weights = weights / weights.sum()
    rows = []
    mean, sd = table["mean"].to_numpy(), table["sd"].to_numpy()
    for g in range(1, len(table)):
        with precision("float64"):
            in_group, in_reference = (
                np.diff(np.asarray(_curves(bank.model, jnp.asarray(theta)))[[0, g]], axis=0)[0]
                for theta in (mean[g] + sd[g] * z, mean[0] + sd[0] * z)
            )
        step = sd[0] * (z[1] - z[0])
        rows.append(
            {
                "signed": float(weights @ in_group),
                "unsigned": float(weights @ np.abs(in_group)),
                "signed_area": float(step * in_reference.sum()),
                "unsigned_area": float(step * np.abs(in_reference).sum()),
            }
        )
    return rows

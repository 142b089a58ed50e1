"""Items that differ between groups: each group's answers as a column of its own."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._compile import jit
from irtcat._precision import precision
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting import Fit, fit
from irtcat.fitting._groups import Grouping
from irtcat.models import column_names, expected_responses, free_parameters
from irtcat.responses import Responses

__all__ = ["SplitFits", "item_effects", "item_tables", "told_apart", "wald", "why_untested"]

AREA_SDS = 6.0
NODES = 241


_curves = jit(expected_responses)


def item_tables(banks: list[ItemBank], index: pd.MultiIndex) -> pd.DataFrame:
    """The published parameters of the items of all banks, with standard errors where known."""
    model = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(bank.model for bank in banks))
    blocks = [bank.covariance for bank in banks if bank.covariance is not None]
    covariance = np.concatenate(blocks) if len(blocks) == len(banks) else None
    every = ItemBank(model, np.arange(len(index)).astype(str), covariance=covariance)
    return every.to_frame().set_axis(index)


def why_untested(responses: Responses, grouping: Grouping) -> list[str]:
    """Why each item cannot be compared between the groups; empty where it can."""
    values, n_groups = responses.values, len(grouping.labels)
    out = []
    for column in values.T:
        seen = [
            set(np.unique(column[grouping.codes == g]).tolist()) - {-1} for g in range(n_groups)
        ]
        every = set().union(*seen)
        few = [g for g in range(n_groups) if len(seen[g]) < 2]
        if len(every) < 2:
            out.append("no answers" if not every else "constant")
        elif few:
            what = "constant" if seen[few[0]] else "no answers"
            out.append(f"{what} in group {grouping.labels[few[0]]}")
        elif any(group != every for group in seen):
            out.append("not all categories in every group")
        else:
            out.append("")
    return out


def told_apart(responses: Responses, grouping: Grouping) -> Responses:
    """The responses without those to an item that all of a group answered alike.

    Were such an item held equal in all groups, it could fit by a population without bounds.
    """
    values = np.asarray(responses.values).copy()
    for column in values.T:  # views: written to
        for g in range(len(grouping.labels)):
            own = grouping.codes == g
            if len(set(np.unique(column[own]).tolist()) - {-1}) == 1:
                column[own] = -1
    return replace(responses, values=values)


@dataclass
class SplitFits:
    """Fits with some items free in every group, each done once.

    Attributes:
        responses: items that are not constant.
        grouping: the groups, the reference first.
        model: of the items.
        options: of `irtcat.fit`.
        errors: "none" or "full".
        done: free items -> fit.
    """

    responses: Responses
    grouping: Grouping
    model: str
    options: dict[str, Any]
    errors: str
    done: dict[frozenset[int], Fit] = field(default_factory=dict)

    def columns(self, free: Iterable[int]) -> list[tuple[int, int]]:
        """Item and group of each column; group -1 where all share the item."""
        free, every = set(free), range(len(self.grouping.labels))
        return [
            (j, g) for j in range(self.responses.n_items) for g in (every if j in free else [-1])
        ]

    def split(self, free: Iterable[int]) -> Responses:
        """The responses with a column for each group of a free item."""
        columns = self.columns(free)
        values = np.asarray(self.responses.values)[:, [j for j, _ in columns]].copy()
        for at, (_, g) in enumerate(columns):
            if g >= 0:
                values[self.grouping.codes != g, at] = -1
        return Responses.from_array(
            values,
            subject_ids=self.responses.subject_ids,
            item_ids=[f"{j}:{g}" for j, g in columns],
            codes=range(self.responses.n_categories),
        )

    def fit(self, free: Iterable[int]) -> Fit:
        """The fit with these items free."""
        key = frozenset(free)
        if key not in self.done:
            labels = np.array(self.grouping.labels, dtype=object)[self.grouping.codes]
            found = fit(
                self.split(key),
                self.model,
                groups=pd.Series(labels),
                reference=self.grouping.labels[0],
                standard_errors=self.errors,
                **self.options,
            )
            self.done[key] = replace(found, responses=None)  # many are kept
        return self.done[key]

    def bank(self, free: Iterable[int], item: int) -> ItemBank:
        """The free item as it is in every group."""
        n_groups = len(self.grouping.labels)
        return self.fit(free).bank.subset([f"{item}:{g}" for g in range(n_groups)])


def wald(fits: SplitFits, free: Iterable[int], item: int) -> dict[str, float]:
    """Whether the item's parameters are equal in all groups: statistic, df, and slopes alone."""
    bank = fits.bank(free, item)
    params, own = bank.parameters(), free_parameters(bank.model)[0]
    n_groups, size = params.shape
    nothing = {"statistic": np.nan, "df": np.nan, "p_slope": np.nan}
    if bank.full_covariance is None:
        return nothing
    names = column_names(bank.model)
    own = own & ~np.isin(names, bank.model.tied)
    apart = np.kron(np.c_[-np.ones(n_groups - 1), np.eye(n_groups - 1)], np.eye(size))
    rows = np.tile(own, n_groups - 1)
    first = np.tile((np.array(names) == "slope") & own, n_groups - 1)
    total = _quadratic(apart[rows], params, bank.full_covariance)
    slope = _quadratic(apart[first], params, bank.full_covariance) if first.any() else np.nan
    from scipy.stats import chi2  # slow to import

    return {
        "statistic": total,
        "df": float(rows.sum()),
        "p_slope": float(chi2.sf(slope, first.sum())) if first.any() else np.nan,
    }


def _quadratic(contrast: FloatArray, params: FloatArray, covariance: FloatArray) -> float:
    """Wald's statistic d' V^-1 d of the contrasts d; NaN where V is not known or not positive."""
    gap = contrast @ params.ravel()
    spread = contrast @ np.nan_to_num(covariance, nan=0.0) @ contrast.T
    used = (contrast != 0).any(axis=0)
    if np.isnan(np.diagonal(covariance)[used]).any() or np.linalg.eigvalsh(spread)[0] <= 0:
        return float("nan")
    return float(gap @ np.linalg.solve(spread, gap))


def item_effects(fits: SplitFits, free: Iterable[int], item: int) -> list[dict[str, float]]:
    """How far apart the item's curves are: each other group against the reference."""
    bank, table = fits.bank(free, item), fits.fit(free).groups
    assert table is not None
    z = np.linspace(-AREA_SDS, AREA_SDS, NODES)
    weights = np.exp(-0.5 * z**2)
    weights = weights / weights.sum()
    rows = []
    mean, sd = table["mean"].to_numpy(), table["sd"].to_numpy()
    for g in range(1, len(table)):
        with precision("float64"):
            gaps = [
                np.diff(np.asarray(_curves(bank.model, jnp.asarray(at)))[[0, g]], axis=0)
                for at in (mean[g] + sd[g] * z, mean[0] + sd[0] * z)
            ]
        own, wide = (gap[0] for gap in gaps)
        step = sd[0] * (z[1] - z[0])
        rows.append(
            {
                "signed": float(weights @ own),
                "unsigned": float(weights @ np.abs(own)),
                "signed_area": float(step * wide.sum()),
                "unsigned_area": float(step * np.abs(wide).sum()),
            }
        )
    return rows

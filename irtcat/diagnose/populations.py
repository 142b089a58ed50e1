"""Difficulties of the same items in two populations, such as people and systems."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    check_interval,
)
from irtcat._common.types import BoolArray, FloatArray
from irtcat.agreement import spearman
from irtcat.agreement.corrections import CORRECTIONS, adjust
from irtcat.bank import ItemBank, as_bank
from irtcat.bank._difficulty import usual_errors, weights_of
from irtcat.fitting import Fit, Link, link


@dataclass(frozen=True, eq=False)
class Populations:
    """The result of `compare_populations`.

    Attributes:
        table: one row per common item, the largest differences in rank first; see
            `compare_populations`.
        names: of the two populations.
        link: the link of the second scale to the first.
        rank_agreement: Spearman's correlation of the two difficulties (NaN below 2 items).
        agreement: Pearson's (NaN below 2 items), weighted by the SEs of the difficulties as
            `irtcat.link` does. Both are over the items that have a rank.
        only: ids of the items that only one population has.
    """

    table: pd.DataFrame
    names: tuple[str, str]
    link: Link
    rank_agreement: float
    agreement: float
    only: dict[str, tuple[str, ...]]

    def biggest(self, n: int = 10, by: str = "rank_change") -> pd.DataFrame:
        """The n items that differ most.

        Args:
            n: number of items.
            by: "rank_change", "difference" or "z" (absolute values), or "rmsd".
        """
        check_count("n", n)
        check_choice("by", by, ("rank_change", "difference", "z", "rmsd"))
        order = self.table[by].abs().sort_values(ascending=False, kind="stable").index
        return self.table.loc[order[:n]]

    def to_frame(self) -> pd.DataFrame:
        """The table of items."""
        return self.table.copy()

    def __repr__(self) -> str:
        n_differ = int(self.table["differs"].sum())
        n_left = int(self.table["rank_change"].isna().sum())
        left = f", {n_left} without a determined difficulty" if n_left else ""
        return (
            f"Populations({' and '.join(self.names)}: {len(self.table)} items, "
            f"rank correlation {self.rank_agreement:.2f}, {n_differ} differ{left})"
        )


def compare_populations(
    first: ItemBank | Fit,
    second: ItemBank | Fit,
    *,
    names: tuple[str, str] = ("first", "second"),
    method: str = "stocking-lord",
    drop_outliers: bool = True,
    correction: str = "holm",
    alpha: float = 0.05,
) -> Populations:
    """Difficulties of the same items in two populations, on one scale, and the items that differ.

    The second calibration is linked to the first by the common items (`irtcat.link`), by default
    without those that differ most, since they would bias the link. Then, item by item,

        z = (b_second - b_first) / sqrt(se_first^2 + se_second^2),

    for calibrations of different subjects. The link is treated as known; with few common items its
    error makes z somewhat large.

    Args:
        first: bank (or fit) of one population; its scale is that of the table.
        second: bank (or fit) of the other, of the same kind of model.
        names: of the two populations, used in column names.
        method: linking method.
        drop_outliers: exclude items that differ from the link.
        correction: of the p-values: "holm", "benjamini-hochberg" (or "bh") or "none".
        alpha: significance level of ``differs``.

    Returns:
        Indexed by item, the largest change of rank first: b_<name> and rank_<name> of both (1 is
        the easiest, ties share the mean rank), rank_change (second minus first: positive if the
        item is harder for the second), difference of the b, se, z, p, p_adjusted, differs,
        gap (mean over the first population of its expected response minus that in the
        second), rmsd (root of the mean square), linking (whether it was used for the link), flag.
        With several thresholds b is their mean. NaN: b of an item with slope 0, or far away and not
        determined; se, z and p if a bank has no covariance. Flags: "negative slope in <name>" (b is
        then not a difficulty), "no difficulty in <name>" (slope 0), "difficulty not determined in
        <name>" (see `ItemBank.determined`), and the flags of the banks. Items with one of the first
        three are not ranked, and not in the two correlations: their b may be any number.

    Raises:
        InputError: for banks that cannot be linked or have no b, or equal names.

    Example:
        >>> people = ItemBank.from_parameters(b=[-1.0, 0.0, 1.0, 2.0])
        >>> systems = ItemBank.from_parameters(b=[-0.5, 0.5, 1.5, -2.0])
        >>> result = compare_populations(people, systems, names=("people", "systems"))
        >>> result.biggest(1)[["rank_people", "rank_systems"]].values.tolist()
        [[4.0, 1.0]]

    References:
        Lalor, Wu & Yu (2019), EMNLP (difficulty ranks of people and systems); Lord (1980),
        Applications of Item Response Theory, ch. 14 (the test of b).
    """
    texts = () if isinstance(names, str) else tuple(map(str, names))
    if len(texts) != 2 or texts[0] == texts[1]:
        raise argument_error("names", "two different names", names)
    names = texts
    check_choice("correction", correction, CORRECTIONS)
    check_interval("alpha", alpha)
    banks = [_bank(name, source) for name, source in (("first", first), ("second", second))]
    linked = link(banks[1], banks[0], method, drop_outliers)
    common = linked.items.index
    both = [bank.subset(common.to_numpy()) for bank in (banks[0], linked.bank)]
    table = _table(both, names, linked, partial(adjust, correction=correction), alpha)
    usable = table["rank_change"].notna().to_numpy()
    enough = int(usable.sum()) >= 2
    pair = [table[f"b_{name}"].to_numpy()[usable] for name in names]
    order = table["rank_change"].abs().sort_values(ascending=False, kind="stable").index
    only = {
        name: tuple(np.setdiff1d(bank.item_ids, common.to_numpy(str)).tolist())
        for name, bank in zip(names, banks, strict=True)
    }
    return Populations(
        table=table.loc[order],
        names=names,
        link=linked,
        rank_agreement=spearman(*pair) if enough else np.nan,
        agreement=_weighted(both, usable) if enough else np.nan,
        only=only,
    )


def _bank(name: str, source: Any) -> ItemBank:
    """The bank, or that of a fit; raises if it has no difficulties."""
    bank = as_bank(source, name, ["one ability"], "comparing populations")
    frame = bank.to_frame()
    if "b" not in frame or frame["b"].isna().all():
        raise argument_error(name, "of items with a difficulty b", f"a {bank.model.key} bank")
    return bank


def _slopes(frame: pd.DataFrame) -> FloatArray:
    return frame["a"].to_numpy(float) if "a" in frame else np.ones(len(frame))


def _weighted(banks: list[ItemBank], usable: BoolArray) -> float:
    """Pearson's correlation of the difficulties, weighted as in linking."""
    frames = [bank.to_frame()[usable] for bank in banks]
    b, errors = (np.stack([f[name].to_numpy(float) for f in frames]) for name in ("b", "se_b"))
    if np.isnan(errors).any():
        known = zip(b, frames, (bank.population for bank in banks), strict=True)
        errors = np.stack([usual_errors(x, _slopes(f), p.mean, p.sd) for x, f, p in known])
    w = weights_of((errors**2).sum(axis=0), np.ones(b.shape[1], bool))
    off = b - ((b @ w) / w.sum())[:, None]
    (xx, xy), (_, yy) = (off * w) @ off.T
    return float(xy / np.sqrt(xx * yy)) if xx > 0 and yy > 0 else np.nan


def _table(
    banks: list[ItemBank], names: tuple[str, str], linked: Link, adjust: Any, alpha: float
) -> pd.DataFrame:
    """Both difficulties, their ranks and their difference."""
    from scipy.stats import norm  # slow to import

    frames = [bank.to_frame() for bank in banks]
    determined = [bank.determined for bank in banks]
    flags = _flags(frames, determined, names)
    b = [frame["b"].to_numpy(float) for frame in frames]
    usable = np.logical_and(*determined) & np.isfinite(b).all(axis=0)
    if not usable.any():
        raise InputError(
            "No common item has a positive slope that determines its difficulty in both "
            "populations."
        )
    out = pd.DataFrame(index=linked.items.index)
    out[[f"b_{name}" for name in names]] = np.column_stack(b)
    for name in names:
        out[f"rank_{name}"] = out[f"b_{name}"].where(usable).rank()
    out["rank_change"] = out[f"rank_{names[1]}"] - out[f"rank_{names[0]}"]
    out["difference"] = np.where(usable, b[1] - b[0], np.nan)
    out["se"] = np.sqrt(sum(frame["se_b"].to_numpy(float) ** 2 for frame in frames))
    out["z"] = out["difference"] / out["se"]
    out["p"] = 2 * norm.sf(out["z"].abs())
    out["p_adjusted"] = adjust(out["p"].to_numpy())
    out["differs"] = out["p_adjusted"] < alpha
    out["gap"], out["rmsd"] = linked.items["difference"], linked.items["rmsd"]
    out["linking"], out["flag"] = linked.items["used"], flags
    return out


def _flags(
    frames: list[pd.DataFrame], determined: list[BoolArray], names: tuple[str, str]
) -> list[str]:
    """Flags of each item from both populations."""
    columns = []
    for frame, sure, name in zip(frames, determined, names, strict=True):
        slope = _slopes(frame)
        texts = ["negative slope", "no difficulty", "difficulty not determined"]
        by_slope = np.select([slope < 0, slope == 0, (slope > 0) & ~sure], texts, "")
        flags = frame["flag"].astype(str) if "flag" in frame else [""] * len(frame)
        columns += [[f"{text} in {name}" if text else "" for text in c] for c in (by_slope, flags)]
    return ["; ".join(filter(None, texts)) for texts in zip(*columns, strict=True)]

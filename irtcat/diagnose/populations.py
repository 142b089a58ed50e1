"""The same items in two populations, such as people and systems: what is hard for whom."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_choice, check_count, check_interval
from irtcat.agreement import pearson, spearman
from irtcat.agreement._corrections import CORRECTIONS, adjust
from irtcat.bank import ItemBank
from irtcat.fitting import Fit, Link, link

__all__ = ["Populations", "compare_populations"]


@dataclass(frozen=True, eq=False)
class Populations:
    """The result of `compare_populations`.

    Attributes:
        table: one row per common item, the biggest differences in rank first; see
            `compare_populations`.
        names: of the two populations.
        link: how the second scale was put on the first.
        rank_agreement: Spearman's correlation of the two difficulties (NaN below 2 items).
        agreement: Pearson's (NaN below 2 items).
        only: ids of the items of each population that the other does not have.
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
            n: how many.
            by: "rank_change", "difference" or "z" (absolute values of each), or "rmsd".
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
        return (
            f"Populations({' and '.join(self.names)}: {len(self.table)} items, "
            f"rank correlation {self.rank_agreement:.2f}, {n_differ} differ)"
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

    The second calibration is linked to the first by the items in both (`irtcat.link`), by default
    without those that differ most, since they would bend the link. Then, item by item,

        z = (b_second - b_first) / sqrt(se_first^2 + se_second^2),

    for calibrations of different subjects. The link is taken as known; with few common items its
    own error makes z somewhat large.

    Args:
        first: bank (or fit) of one population; its scale is that of the table.
        second: bank (or fit) of the other, of the same kind of model.
        names: of the two, which name the columns.
        method: of linking.
        drop_outliers: leave items that differ out of the link.
        correction: of the p-values: "holm", "benjamini-hochberg" (or "bh", for short) or "none".
        alpha: level of ``differs``.

    Returns:
        Indexed by item, the biggest change of rank first: b_<name> and rank_<name> of both (1 is
        the easiest, ties share the mean rank), rank_change (second less first: positive where the
        item is harder for the second), difference of the b, se, z, p, p_adjusted, differs,
        gap (mean over the first population of the expected response there less that in the
        second), rmsd (root of the mean square), linking (whether it held the link), flags. b is
        the mean of the thresholds where there are several. NaN: b of an item with slope 0; se, z
        and p where a bank has no covariance. Flags: "negative slope in <name>" (b then is not a
        difficulty: it is left out of the ranks), "no difficulty in <name>", and what the banks
        flagged.

    Raises:
        InputError: for banks that cannot be linked or have no b, or names that are equal.

    Example:
        >>> people = ItemBank.from_parameters(b=[-1.0, 0.0, 1.0, 2.0])
        >>> systems = ItemBank.from_parameters(b=[-0.5, 0.5, 1.5, -2.0])
        >>> found = compare_populations(people, systems, names=("people", "systems"))
        >>> found.biggest(1)[["rank_people", "rank_systems"]].values.tolist()
        [[4.0, 1.0]]

    References:
        Lalor, Wu & Yu (2019), EMNLP (difficulty ranks of people and systems); Lord (1980),
        Applications of Item Response Theory, ch. 14 (the test of b).
    """
    names = _check_names(names)
    check_choice("correction", correction, CORRECTIONS)
    check_interval("alpha", alpha)
    banks = [_bank(name, given) for name, given in (("first", first), ("second", second))]
    found = link(banks[1], banks[0], method, drop_outliers)
    common = found.items.index
    frames = [bank.subset(common.to_numpy()).to_frame() for bank in (banks[0], found.bank)]
    table = _table(frames, names, found, partial(adjust, correction=correction), alpha)
    b = [table[f"b_{name}"] for name in names]
    usable = table[f"rank_{names[0]}"].notna()
    enough = int(usable.sum()) >= 2
    one, two = b[0][usable], b[1][usable]
    by_rank, straight = (spearman(one, two), pearson(one, two)) if enough else (np.nan, np.nan)
    order = table["rank_change"].abs().sort_values(ascending=False, kind="stable").index
    only = {
        name: tuple(np.setdiff1d(bank.item_ids, common.to_numpy(str)).tolist())
        for name, bank in zip(names, banks, strict=True)
    }
    return Populations(table.loc[order], names, found, by_rank, straight, only)


def _check_names(names: Any) -> tuple[str, str]:
    pair = tuple(str(name) for name in names) if not isinstance(names, str) else (names,)
    if len(pair) != 2 or pair[0] == pair[1]:
        raise argument_error("names", "two different names", names)
    return pair


def _bank(name: str, given: Any) -> ItemBank:
    """The bank itself, or that of a fit, if it has difficulties."""
    bank = given.bank if isinstance(given, Fit) else given
    if not isinstance(bank, ItemBank):
        raise argument_error(name, "an ItemBank or a Fit", type(given).__name__)
    frame = bank.to_frame()
    if bank.model.dims == 1 and ("b" not in frame or frame["b"].isna().all()):
        raise argument_error(name, "of items with a difficulty b", f"a {bank.model.key} bank")
    return bank


def _table(
    frames: list[pd.DataFrame], names: tuple[str, str], found: Link, adjust: Any, alpha: float
) -> pd.DataFrame:
    """Both difficulties, their ranks and their difference."""
    from scipy.stats import norm  # slow to import

    flags = _flags(frames, names)
    b = [frame["b"].to_numpy(float) for frame in frames]
    a = [frame["a"].to_numpy(float) if "a" in frame else np.ones(len(frame)) for frame in frames]
    usable = np.isfinite(b[0]) & np.isfinite(b[1]) & (a[0] > 0) & (a[1] > 0)
    if not usable.any():
        raise InputError("No common item has a positive slope in both populations.")
    out = pd.DataFrame(index=found.items.index)
    for name, values in zip(names, b, strict=True):
        out[f"b_{name}"] = values
    for name in names:
        out[f"rank_{name}"] = out[f"b_{name}"].where(usable).rank()
    out["rank_change"] = out[f"rank_{names[1]}"] - out[f"rank_{names[0]}"]
    out["difference"] = np.where(usable, b[1] - b[0], np.nan)
    out["se"] = np.sqrt(sum(frame["se_b"].to_numpy(float) ** 2 for frame in frames))
    out["z"] = out["difference"] / out["se"]
    out["p"] = 2 * norm.sf(out["z"].abs())
    out["p_adjusted"] = adjust(out["p"].to_numpy())
    out["differs"] = out["p_adjusted"] < alpha
    out["gap"], out["rmsd"] = found.items["difference"], found.items["rmsd"]
    out["linking"], out["flags"] = found.items["used"], flags
    return out


def _flags(frames: list[pd.DataFrame], names: tuple[str, str]) -> list[str]:
    """What is odd about each item in either population."""
    columns = []
    for frame, name in zip(frames, names, strict=True):
        a = frame["a"] if "a" in frame else pd.Series(1.0, frame.index)
        own = frame["flags"].astype(str) if "flags" in frame else pd.Series("", frame.index)
        columns.append(
            [
                [f"negative slope in {name}"] * (slope < 0)
                + [f"no difficulty in {name}"] * (not np.isfinite(b))
                + [f"{text} in {name}"] * bool(text)
                for slope, b, text in zip(a, frame["b"], own, strict=True)
            ]
        )
    return ["; ".join([*one, *two]) for one, two in zip(*columns, strict=True)]

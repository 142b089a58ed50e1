"""Difficulty filters: which training examples to keep, by difficulty or by the crowd's share right.

| rule | keeps | which are |
|---|---|---|
| avi | abs(b) < tau | of middling difficulty |
| ub | b < tau | easy |
| pcub | pc < tau | hard: few of the crowd are right |
| avo | abs(b) > tau | at both ends |
| lb | b > tau | hard |
| pclb | pc > tau | easy |
| random | a sample | any: the control |

b is the difficulty of a bank, pc the share of the crowd that is right. As on the tutorial's slide
"upper bound" and "lower bound" speak of the number, so that ``ub`` and ``pcub`` keep opposite ends.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_choice, check_count
from irtcat._rules import RULES, Rule
from irtcat._types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.responses import Responses
from irtcat.training._filter_files import RowsWritten, write_ids, write_rows
from irtcat.training._filter_parts import (
    Items,
    bounds_of,
    in_order,
    quotas_of,
    read_classes,
    read_items,
)

__all__ = ["RULES", "Filtered", "RowsWritten", "Rule", "apply"]

RANDOM = "random"


@dataclass(frozen=True, eq=False)
class Filtered:
    """The examples that a filter keeps.

    Attributes:
        rule: how they were chosen.
        tau: the threshold given or found; NaN for a random sample, and where several classes have
            each their own (see ``bounds``).
        indices: positions of the kept ones, ascending.
        table: one row per item in the order given: value (|b|, b or pc), kept, class where the
            filter was balanced, and flags ("no value": never kept).
        bounds: one row per class ("all" where the filter was not balanced): n with a value, kept,
            tau, and tied, how many left out have the value of the last one kept.
        seed: seed of a random sample.

    Example:
        >>> bank = ItemBank.from_parameters(b=[-2.0, -0.1, 0.3, 1.8])
        >>> apply(bank, "avi", tau=1).table
              value   kept flags
        item
        i1      2.0  False
        i2      0.1   True
        i3      0.3   True
        i4      1.8  False
    """

    rule: str
    tau: float
    indices: IntArray
    table: pd.DataFrame
    bounds: pd.DataFrame
    seed: int

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        tau = "" if np.isnan(self.tau) else f", tau = {self.tau:g}"
        return f"Filtered({len(self)} of {len(self.table)} items by {self.rule}{tau})"

    @property
    def item_ids(self) -> np.ndarray:
        """Ids of the kept items, in the order of the table."""
        return self.table.index.to_numpy()[self.indices]

    def to_frame(self) -> pd.DataFrame:
        """The table of all items."""
        return self.table.copy()

    def control(self, seed: int = 0) -> "Filtered":
        """A random sample as large, of each class as many, from the items that have a value.

        Example:
            >>> bank = ItemBank.from_parameters(b=[-2.0, -0.1, 0.3, 1.8])
            >>> len(apply(bank, "avi", tau=1).control(seed=1))
            2
        """
        check_count("seed", seed, 0)
        classes = self.table["class"].to_numpy() if "class" in self.table else None
        names = [str(name) for name in self.bounds.index]
        codes = np.zeros(len(self.table), int)
        if classes is not None:
            codes = pd.Index(names).get_indexer(pd.Index(classes))
        pool = (self.table["flags"] == "").to_numpy()
        items = Items(self.table.index, self.table["value"].to_numpy(), codes, names)
        return _drawn(items, pool, self.bounds["kept"].to_numpy(int), seed, classes is not None)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the kept items' ids with their values: CSV, JSONL or Parquet; .txt has ids alone.

        Raises:
            InputError: for another extension, or a file that cannot be written.
        """
        kept = self.table.iloc[self.indices].drop(columns=["kept", "flags"])
        return write_ids(kept, Path(path))

    def save_rows(
        self,
        source: str | os.PathLike[str],
        path: str | os.PathLike[str],
        key: str | None = None,
    ) -> RowsWritten:
        """Write the kept rows of a data file (CSV, TSV, JSONL or Parquet) as they are there.

        The file is read as a stream. CSV and JSONL records are copied byte for byte. An item may
        have several rows: all of them are written, or none.

        Args:
            source: the data file.
            path: where to, in the same format.
            key: column (JSONL: field) with the items' ids; None where row k is item k of the
                table.

        Returns:
            How many rows were read and written, how many did not match, and how many have an id
            that an earlier row has.

        Raises:
            InputError: for another format, a key that is not there or never matches, or, without a
                key, another number of rows than items.
        """
        kept = self.table["kept"].to_numpy()
        return write_rows(self.table.index, kept, Path(source), Path(path), key)


def apply(
    items: ItemBank | Responses | pd.DataFrame,
    rule: str,
    *,
    tau: float | None = None,
    keep: float | None = None,
    balanced_by: Any = None,
    seed: int = 0,
) -> Filtered:
    """Keep the items on one side of a threshold, given or found.

    With ``keep`` the items are taken in order of the rule's number (``avi``: the smallest |b|
    first); of equal numbers the item that comes earlier. Balanced filters take equal numbers of
    each class: with ``keep`` as equal as the classes' sizes allow, the first classes by name one
    more where it does not divide; with ``tau`` as many as the class with the fewest on the kept
    side, those farthest from tau.

    Args:
        items: a bank; a table indexed by item (or with a column ``item``) with columns ``b`` or
            ``pc`` (or ``proportion_correct``, ``share``); or responses, whose shares right are pc.
            pc is a share, from 0 to 1. NaN: no value; the item is flagged and never kept.
        rule: one of `RULES`, or "random".
        tau: the threshold; the comparison is strict.
        keep: instead of tau, how many: a whole number from 1, or a share (a float above 0, up to
            1.0) of the items that have a value, rounded, at least one.
        balanced_by: each item's class: a column of the table or of the bank's metadata, a Series
            or mapping by id, or a list in the items' order. Items without one are a class, too.
        seed: seed of "random".

    Returns:
        The kept items; their ``indices`` index the training data where that is in the items' order.

    Raises:
        InputError: for both or none of tau and keep, a number out of range, values that the rule
            needs and the items do not have, or a threshold that leaves no item of a class.

    Example:
        >>> bank = ItemBank.from_parameters(b=[-2.0, -0.1, 0.3, 1.8], item_ids=list("wxyz"))
        >>> apply(bank, "ub", keep=0.5)
        Filtered(2 of 4 items by ub, tau = 0.3)
        >>> apply(bank, "lb", tau=0).item_ids.tolist()
        ['y', 'z']
        >>> apply(bank, "ub", keep=2, balanced_by=["cat", "cat", "dog", "dog"]).indices.tolist()
        [0, 2]

    References:
        Lalor, Wu & Yu (2019), Learning latent parameters without human response patterns, EMNLP,
        section on filtering; Lalor et al. (2024), EACL tutorial, slide "Data set filtering".
    """
    check_choice("rule", rule, (*RULES, RANDOM))
    check_count("seed", seed, 0)
    _check_amount(rule, tau, keep)
    found = read_classes(read_items(items, RULES.get(rule), rule), items, balanced_by)
    balanced = balanced_by is not None
    if rule == RANDOM:
        pool = np.ones(len(found.ids), bool)
        quotas = quotas_of(found, pool, _number(keep, len(pool)))
        return _drawn(found, pool, quotas, seed, balanced)
    how = RULES[rule]
    usable = np.isfinite(found.value)
    if not usable.any():
        raise argument_error(
            "items", f"items with a value of {'pc' if how.statistic == 'pc' else 'b'}", "none"
        )
    if tau is None:
        pool = usable
        quotas = quotas_of(found, pool, _number(keep, int(usable.sum())))
    else:
        pool = how.passes(found.value, tau)
        quotas = _on_the_side(found, usable, pool, tau, balanced)
    chosen = in_order(found, pool, how.cost(found.value), quotas)
    bounds = bounds_of(found, usable, chosen, how, tau)
    one = float(bounds["tau"].iloc[0]) if tau is None and not balanced else np.nan
    return _finish(
        rule, one if tau is None else float(tau), found, chosen, usable, bounds, seed, balanced
    )


def _check_amount(rule: str, tau: Any, keep: Any) -> None:
    """Raise unless exactly one of tau and keep is given, and makes sense."""
    if rule == RANDOM and tau is not None:
        raise argument_error("tau", "None for a random sample", tau, "Give keep instead.")
    if (tau is None) == (keep is None):
        raise InputError(
            "Give either the `tau` argument or the `keep` argument. "
            f"Got {'neither' if tau is None else 'both'}."
        )
    if tau is not None:
        number = isinstance(tau, (int, float, np.number)) and not isinstance(tau, bool)
        if not number or not np.isfinite(tau):
            raise argument_error("tau", "a finite number", tau)
        if RULES[rule].statistic == "pc" and not 0 <= tau <= 1:
            raise argument_error("tau", "a share from 0 to 1", tau)


def _number(keep: Any, n: int) -> int:
    """How many to keep of n."""
    if isinstance(keep, (int, np.integer)):
        check_count("keep", keep, 1, n)
        return int(keep)
    if not isinstance(keep, (float, np.floating)) or not 0 < keep <= 1:
        raise argument_error("keep", f"a whole number from 1 to {n} or a share above 0", keep)
    return max(1, int(np.floor(keep * n + 0.5)))


def _on_the_side(
    items: Items, usable: BoolArray, pool: BoolArray, tau: float, balanced: bool
) -> IntArray:
    """How many of each class are kept of those on the kept side of tau."""
    passing = np.bincount(items.codes[pool], minlength=len(items.classes))
    present = np.bincount(items.codes[usable], minlength=len(items.classes)) > 0
    if (passing[present] == 0).any():
        empty = items.classes[int(np.flatnonzero(present & (passing == 0))[0])]
        values = items.value[usable & (items.codes == items.classes.index(empty))]
        of = f" of class {empty!r}" if balanced else ""
        raise argument_error(
            "tau", f"a threshold that leaves an item{of}",
            f"{tau:g}, and the values are from {values.min():.4g} to {values.max():.4g}",
        )  # fmt: skip
    return np.where(present, passing[present].min(), 0) if balanced else passing


def _drawn(items: Items, pool: BoolArray, quotas: IntArray, seed: int, balanced: bool) -> Filtered:
    """A random sample of the pool, so many of each class."""
    luck: FloatArray = np.random.default_rng(seed).random(len(pool))
    chosen = in_order(items, pool, luck, quotas)
    bounds = bounds_of(items, pool, chosen, None, None)
    return _finish(RANDOM, np.nan, items, chosen, pool, bounds, seed, balanced)


def _finish(
    rule: str,
    tau: float,
    items: Items,
    chosen: IntArray,
    usable: BoolArray,
    bounds: pd.DataFrame,
    seed: int,
    balanced: bool,
) -> Filtered:
    """The record of a choice."""
    kept = np.zeros(len(items.ids), bool)
    kept[chosen] = True
    table = pd.DataFrame({"value": items.value, "kept": kept}, index=items.ids)
    if balanced:
        table["class"] = np.asarray(items.classes, dtype=object)[items.codes]
    table["flags"] = np.where(usable, "", "no value").astype(object)
    indices = np.sort(chosen)
    indices.flags.writeable = False
    return Filtered(rule, tau, indices, table, bounds, int(seed))

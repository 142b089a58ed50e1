"""Difficulty filters: which training examples to keep, by difficulty or proportion correct.

| rule | keeps | selects |
|---|---|---|
| avi | abs(b) < tau | medium difficulty |
| ub | b < tau | easy |
| pcub | pc < tau | hard: low proportion correct |
| avo | abs(b) > tau | both extremes |
| lb | b > tau | hard |
| pclb | pc > tau | easy |
| random | a sample | any (the control) |
| between | low <= pc <= high | a band of pass rates |

b is the difficulty in a bank, pc the proportion of the crowd that is correct. Items of a bank whose
difficulty is not determined (see `irtcat.ItemBank.determined`) get the b that their proportion
correct corresponds to: the b at which a subject of the calibration population is right with that
probability on an item of typical slope, ``E[sigmoid(a (theta - b))] = pc``, where the bank records
it, or else the share that the item's parameters imply. The b of a table are taken as they are. As
on the tutorial's slide, "upper bound" and "lower bound" refer to the number, so that ``ub``
and ``pcub`` keep opposite ends.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_choice, check_count, is_number
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.responses import Responses
from irtcat.selection.filters import RULES, Band, Rule
from irtcat.training.filters.files import RowsWritten, write_ids, write_rows
from irtcat.training.filters.items import (
    SHARE_COLUMNS,
    Items,
    bounds_of,
    lowest_cost,
    quotas_of,
    read_classes,
    read_items,
)
from irtcat.training.rows import columns_of, find_kind, rows_at

RANDOM, BETWEEN = "random", "between"


@dataclass(frozen=True, eq=False)
class Filtered:
    """The examples that a filter keeps.

    Attributes:
        rule: name of the rule.
        tau: the threshold passed or computed; NaN for a random sample or a band, and if each class
            has its own (see ``bounds``).
        indices: positions of the kept items, ascending.
        table: one row per item in input order: value (|b|, b, pc or the column), kept, class if the
            filter was balanced, and flag ("no value": never kept).
        bounds: one row per class ("all" if the filter was not balanced): n with a value, kept,
            tau, and tied, the number left out with the value of the last item kept.
        seed: seed of a random sample.
        between: the bounds of a band; None for other rules.
        column: the column that was named; None for that of the rule.

    Example:
        >>> bank = ItemBank.from_parameters(b=[-2.0, -0.1, 0.3, 1.8])
        >>> apply(bank, "avi", tau=1).table
              value   kept flag
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
    between: tuple[float, float] | None = None
    column: str | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        text = "" if np.isnan(self.tau) else f", tau = {self.tau:g}"
        if self.between is not None:
            low, high = self.between
            text = f", from {low:g} to {high:g}"
        rule = f"{self.rule} of {self.column}" if self.column else self.rule
        return f"Filtered({len(self)} of {len(self.table)} items by {rule}{text})"

    @property
    def item_ids(self) -> np.ndarray:
        """Ids of the kept items, in the order of the table."""
        return self.table.index.to_numpy()[self.indices]

    def to_frame(self) -> pd.DataFrame:
        """The table of all items."""
        return self.table.copy()

    def control(self, seed: int = 0) -> "Filtered":
        """A random sample of the same size, also per class, from the items with a value.

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
        pool = (self.table["flag"] == "").to_numpy()
        items = Items(self.table.index, self.table["value"].to_numpy(), codes, names)
        return _random_sample(
            items, pool, self.bounds["kept"].to_numpy(int), seed, classes is not None
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the kept items' ids with their values: CSV, JSONL or Parquet; .txt has only ids.

        Raises:
            InputError: for another extension, or a file that cannot be written.
        """
        kept = self.table.iloc[self.indices].drop(columns=["kept", "flag"])
        return write_ids(kept, Path(path))

    def save_rows(
        self, source: Any, path: str | os.PathLike[str], key: str | None = None
    ) -> RowsWritten:
        """Write the kept rows of a data file, or of a data set in memory, with their schema.

        A file (CSV, TSV, JSONL, Parquet or Arrow) is streamed: memory does not grow with it. CSV
        and JSONL records are copied byte for byte. If an item has several rows, all of them are
        written, or none.

        Args:
            source: the data file; or a pandas or polars DataFrame, an Arrow table or a Hugging Face
                Dataset.
            path: the output file: in the format of the data file; of a data set in memory .jsonl,
                .parquet or .arrow (the Arrow file format, also .feather).
            key: column (JSONL: field) with the items' ids; None if row k is item k of the
                table.

        Returns:
            The numbers of rows read, written, without a matching item, and with a repeated id.

        Raises:
            InputError: for another format, a key that is missing or never matches, or, without a
                key, a number of rows other than the number of items.
        """
        kept = self.table["kept"].to_numpy()
        source = source if find_kind(source) is not None else Path(source)
        return write_rows(self.table.index, kept, source, Path(path), key)

    def select(self, data: Any, key: str | None = None) -> Any:
        """The rows of a data set that hold kept items, in its order.

        Args:
            data: a pandas or polars DataFrame, an Arrow table or a Hugging Face Dataset.
            key: column with the items' ids; None if row k is item k of the table. If an item has
                several rows, all of them are kept, or none; rows of other items are left out.

        Returns:
            A data set of the same type and schema.

        Raises:
            InputError: for another object, a column that is missing or never matches, or, without
                a key, a number of rows other than the number of items.

        Example:
            >>> bank = ItemBank.from_parameters(b=[-2.0, -0.1, 1.8], item_ids=["x", "y", "z"])
            >>> data = pd.DataFrame({"id": ["z", "y", "x"], "text": ["Z", "Y", "X"]})
            >>> apply(bank, "ub", keep=2).select(data, key="id")
              id text
            1  y    Y
            2  x    X
        """
        kind, items = rows_at(data, self.table.index, key)
        kept = self.table["kept"].to_numpy()
        return kind.take(data, np.flatnonzero((items >= 0) & kept[items]), True)


def apply(
    items: Any,
    rule: str | None = None,
    *,
    tau: float | None = None,
    keep: float | None = None,
    between: tuple[float, float] | None = None,
    column: str | None = None,
    balanced_by: Any = None,
    seed: int = 0,
) -> Filtered:
    """Keep the items on one side of a threshold, which is passed or computed, or in a band.

    With ``keep`` the items are taken in order of the rule's value (``avi``: the smallest |b|
    first); ties go to the earlier item. Balanced filters take equal numbers of each class: with
    ``keep`` as equal as class sizes allow, the first classes by name one more if it does not
    divide; with ``tau`` as many as the class with the fewest on the kept side, those farthest from
    tau, and with ``between`` those nearest the middle of the band.

    Args:
        items: a bank; a table indexed by item (or with a column ``item``) with columns ``b`` or
            ``pc`` (or ``proportion_correct``, ``share``, ``pass_rate``, ``solve_rate``); or
            responses, whose proportions correct are pc. pc is from 0 to 1. NaN: no value; the item
            is flagged and never kept. So are items of the table of a bank whose b is NaN because it
            is not determined: pass the bank, in which they have the b of their share right. A table
            is a pandas or polars DataFrame, an Arrow table or a Hugging Face Dataset, such as the
            training data with a column of difficulties; items without ids are the rows' numbers.
        rule: one of `RULES`, or "random". ``ub`` and ``pclb`` keep the easiest, ``lb`` and ``pcub``
            the hardest items: their names say which number is bounded. None with ``between``.
        tau: the threshold; the comparison is strict.
        keep: instead of tau, the number to keep: a whole number from 1, or a share (a float above
            0, up to 1.0) of the items with a value, rounded, at least one.
        between: instead of a rule, the lowest and the highest pc to keep, such as (.2, .8).
        column: the column to compare instead of b or pc, such as "length" or "loss": of the table,
            the bank or the metadata of the responses.
        balanced_by: each item's class: a column of the table or of the bank's metadata, a Series
            or mapping by id, or a list in the items' order. Items without a class form one.
        seed: seed of the rule "random".

    Returns:
        The kept items; ``indices`` index the training data if it has the order of the items.

    Raises:
        InputError: unless exactly one of tau, keep and between is passed, or for a number out of
            range, items without the values that the rule needs, or a threshold that leaves no item
            of a class.

    Example:
        >>> bank = ItemBank.from_parameters(b=[-2.0, -0.1, 0.3, 1.8], item_ids=list("wxyz"))
        >>> apply(bank, "ub", keep=0.5)
        Filtered(2 of 4 items by ub, tau = 0.3)
        >>> apply(bank, "lb", tau=0).item_ids.tolist()
        ['y', 'z']
        >>> apply(pd.DataFrame({"pass_rate": [0.1, 0.2, 0.6, 1.0]}), between=(0.2, 0.8))
        Filtered(2 of 4 items by between, from 0.2 to 0.8)
        >>> apply(bank, "ub", keep=2, balanced_by=["cat", "cat", "dog", "dog"]).indices.tolist()
        [0, 2]

    References:
        Lalor, Wu & Yu (2019), Learning latent parameters without human response patterns, EMNLP,
        section on filtering; Lalor et al. (2024), EACL tutorial, slide "Data set filtering".
    """
    check_count("seed", seed, 0)
    row: Rule | Band | None
    if between is not None:
        rule, row = BETWEEN, _read_band(rule, tau, keep, between, column)
    else:
        check_choice("rule", rule, (*RULES, RANDOM))
        assert rule is not None
        _check_amount(rule, tau, keep, column)
        row = RULES.get(rule)
    if not isinstance(items, ItemBank | Responses):
        classes = (balanced_by,) if isinstance(balanced_by, str) else ()
        named = (column,) if column is not None else ()
        table = columns_of(items, ("item", "b", *SHARE_COLUMNS, *classes, *named))
        items = items if table is None else table
    candidates = read_classes(read_items(items, row, rule, column), items, balanced_by)
    balanced = balanced_by is not None
    if row is None:
        pool = np.ones(len(candidates.ids), bool)
        quotas = quotas_of(candidates, pool, _n_kept(keep, len(pool)))
        return _random_sample(candidates, pool, quotas, seed, balanced)
    usable = np.isfinite(candidates.value)
    if not usable.any():
        statistic = column or ("pc" if row.statistic == "pc" else "b")
        raise InputError(
            f"The `items` argument must have a value of {statistic} for one item or more. "
            f"Got {len(usable)} items without one."
        )
    if keep is not None:
        pool = usable
        quotas = quotas_of(candidates, pool, _n_kept(keep, int(usable.sum())))
    else:
        pool = row.passes(candidates.value, np.nan if tau is None else tau)
        limits = ("tau", f"{tau:g}") if isinstance(row, Rule) else ("between", f"{between}")
        quotas = _quotas_at(limits, candidates, usable, pool, balanced)
    chosen = lowest_cost(candidates, pool, row.cost(candidates.value), quotas)
    bounds = bounds_of(candidates, usable, chosen, row if isinstance(row, Rule) else None, tau)
    threshold = np.nan if tau is None else float(tau)
    if keep is not None and not balanced:
        threshold = float(bounds["tau"].iloc[0])
    found = _filtered(rule, threshold, candidates, chosen, usable, bounds, seed, balanced)
    band = (row.low, row.high) if isinstance(row, Band) else None
    return replace(found, between=band, column=column)


def _read_band(rule: Any, tau: Any, keep: Any, between: Any, column: str | None) -> Band:
    """The band between two bounds."""
    for name, value in (("rule", rule), ("tau", tau), ("keep", keep)):
        if value is not None:
            raise argument_error(name, "None with `between`, which says what is kept", value)
    bounds = tuple(between) if isinstance(between, (tuple, list)) else ()
    must = "two finite numbers, the lower one first"
    if len(bounds) != 2 or not all(map(is_number, bounds)) or not bounds[0] <= bounds[1]:
        raise argument_error("between", must, between)
    if column is None and not 0 <= bounds[0] <= bounds[1] <= 1:
        advice = "Name another column with `column`."
        raise argument_error(
            "between", "two shares from 0 to 1, such as .2 and .8", between, advice
        )
    return Band(float(bounds[0]), float(bounds[1]))


def _check_amount(rule: str, tau: Any, keep: Any, column: str | None) -> None:
    """Raise unless exactly one of tau and keep is passed, and valid."""
    if rule == RANDOM and column is not None:
        raise argument_error("column", "None for a random sample", column)
    if rule == RANDOM and tau is not None:
        raise argument_error("tau", "None for a random sample", tau, "Pass keep instead.")
    if (tau is None) == (keep is None):
        raise InputError(
            f"Pass one of `tau`, `keep` and `between`. Got {'neither' if tau is None else 'both'}."
        )
    if tau is not None:
        if not is_number(tau):
            raise argument_error("tau", "a finite number", tau)
        if column is None and RULES[rule].statistic == "pc" and not 0 <= tau <= 1:
            raise argument_error("tau", "a share from 0 to 1", tau)


def _n_kept(keep: Any, n: int) -> int:
    """Number of items to keep of n."""
    if isinstance(keep, (int, np.integer)):
        check_count("keep", keep, 1, n)
        return int(keep)
    if not isinstance(keep, (float, np.floating)) or not 0 < keep <= 1:
        raise argument_error("keep", f"a whole number from 1 to {n} or a share above 0", keep)
    return max(1, int(np.floor(keep * n + 0.5)))


def _quotas_at(
    limits: tuple[str, str], items: Items, usable: BoolArray, pool: BoolArray, balanced: bool
) -> IntArray:
    """Number of items of each class to keep, of those in the pool.

    Args:
        limits: name and value of the argument that limits the pool, for messages.
        items: with their classes.
        usable: items with a value.
        pool: items that pass.
        balanced: whether classes count.
    """
    passing = np.bincount(items.codes[pool], minlength=len(items.classes))
    present = np.bincount(items.codes[usable], minlength=len(items.classes)) > 0
    if (passing[present] == 0).any():
        empty = items.classes[int(np.flatnonzero(present & (passing == 0))[0])]
        values = items.value[usable & (items.codes == items.classes.index(empty))]
        of_class = f" of class {empty!r}" if balanced else ""
        raise argument_error(
            limits[0],
            f"set so that it leaves an item{of_class}",
            f"{limits[1]}, and the values are from {values.min():.4g} to {values.max():.4g}",
        )
    return np.where(present, passing[present].min(), 0) if balanced else passing


def _random_sample(
    items: Items, pool: BoolArray, quotas: IntArray, seed: int, balanced: bool
) -> Filtered:
    """A random sample of the pool with the quota of each class."""
    cost: FloatArray = np.random.default_rng(seed).random(len(pool))
    chosen = lowest_cost(items, pool, cost, quotas)
    bounds = bounds_of(items, pool, chosen, None, None)
    return _filtered(RANDOM, np.nan, items, chosen, pool, bounds, seed, balanced)


def _filtered(
    rule: str,
    tau: float,
    items: Items,
    chosen: IntArray,
    usable: BoolArray,
    bounds: pd.DataFrame,
    seed: int,
    balanced: bool,
) -> Filtered:
    """The record of the chosen items."""
    kept = np.zeros(len(items.ids), bool)
    kept[chosen] = True
    table = pd.DataFrame({"value": items.value, "kept": kept}, index=items.ids)
    if balanced:
        table["class"] = np.asarray(items.classes, dtype=object)[items.codes]
    table["flag"] = np.array(["no value", ""], object)[usable.astype(int)]
    indices = np.sort(chosen)
    indices.flags.writeable = False
    return Filtered(rule=rule, tau=tau, indices=indices, table=table, bounds=bounds, seed=int(seed))

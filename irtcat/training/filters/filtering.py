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

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    is_number,
    shorten,
)
from irtcat._common.positions import first_repeated
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank, check_needs, ranking
from irtcat.responses import Responses
from irtcat.selection.filters import RULES, Band, Rule
from irtcat.selection.task import item_values, read_groups
from irtcat.training.filters.files import RowsWritten, write_ids, write_rows
from irtcat.training.rows import columns_of, find_kind, rows_at

SHARE_COLUMNS = ("pc", "proportion_correct", "share", "pass_rate", "solve_rate")
ALL = "all"


@dataclass(frozen=True, eq=False)
class Items:
    """Items with the value that the rule compares (NaN: missing) and their classes.

    Attributes:
        ids: unique ids of the items.
        value: |b|, b or pc, or the column that the user named.
        codes: code of each item's class.
        classes: names of the classes.
    """

    ids: pd.Index
    value: FloatArray
    codes: IntArray
    classes: list[str]


def read_items(items: Any, rule: Rule | Band | None, name: str, column: str | None) -> Items:
    """The items with the rule's value.

    Args:
        items: see `irtcat.training.filters.apply`.
        rule: None for a random sample.
        name: the rule's name, for messages.
        column: the column to compare; None for that of the rule.

    Raises:
        InputError: if they do not have it, or an id repeats.
    """
    read: Any
    if isinstance(items, pd.DataFrame):
        items = items.set_index("item") if "item" in items.columns else items
        ids, read = items.index, _of_frame
    elif isinstance(items, ItemBank | Responses):
        ids, read = items.item_ids, _of_bank if isinstance(items, ItemBank) else _of_responses
    else:
        raise argument_error("items", "an ItemBank, Responses or a table", type(items).__name__)
    value: Any = None if rule is None else read(items, rule, name, column)
    index = pd.Index(ids, name="item")
    if index.dtype.kind in "US":
        index = index.astype(object)
    if not len(index) or index.hasnans:
        raise argument_error("items", "items, each with an id", "none" if not len(index) else "NaN")
    if (repeated := first_repeated(index)) is not None:
        raise argument_error("items", "items with unique ids", f"{repeated!r} twice")
    if rule is not None:
        _check_values(value, rule, index, column)
        value = rule.statistic_of(value)
    values = np.full(len(index), np.nan) if value is None else value
    return Items(index, values, np.zeros(len(index), int), [ALL])


def _of_bank(bank: ItemBank, rule: Rule | Band, name: str, column: str | None) -> FloatArray:
    if column not in (None, "b"):
        return _numbers(bank.to_frame(), column)
    check_needs(bank.model, ["one ability"], f"the filter {name}", "items")
    if column is None and rule.statistic == "pc":
        if "proportion_correct" not in bank.statistics:
            must, advice = "a bank that records proportions correct", "Pass the responses instead."
            raise argument_error("items", must, "one without", advice)
        return bank.statistics["proportion_correct"].to_numpy(float)
    if "b" not in bank.to_frame():
        raise argument_error("items", "a bank whose items have a difficulty b", bank.model.key)
    return ranking(bank).b


def _of_responses(
    responses: Responses, rule: Rule | Band, name: str, column: str | None
) -> FloatArray:
    if column is not None:
        return _numbers(responses.items, column)
    if rule.statistic != "pc":
        must = f"a bank or a table with b for the filter {name}"
        advice = "Calibrate them with irtcat.fit(responses).bank."
        raise argument_error("items", must, "Responses", advice)
    return responses.mean_shares(axis=0)


def _of_frame(frame: pd.DataFrame, rule: Rule | Band, name: str, column: str | None) -> FloatArray:
    if column is not None:
        return _numbers(frame, column)
    columns = SHARE_COLUMNS if rule.statistic == "pc" else ("b",)
    if len(repeated := frame.columns[frame.columns.duplicated()].intersection(list(columns))):
        raise argument_error("items", "a table with distinct columns", f"{repeated[0]} twice")
    present = [label for label in columns if label in frame.columns]
    if not present:
        have = ", ".join(map(str, frame.columns)) or "none"
        must = f"a table with a column {' or '.join(columns)} for the filter {name}"
        advice = "Name another one with `column`."
        raise argument_error("items", must, f"columns {have}", advice)
    if len(present) > 1:
        names = " and ".join(present)
        raise InputError(f"The columns {names} could all be the share right. Choose with `column`.")
    return _numbers(frame, present[0])


def _numbers(frame: pd.DataFrame, column: str | None) -> FloatArray:
    """The numbers of a column; NaN where missing."""
    if column not in frame.columns:
        have = ", ".join(map(str, frame.columns)) or "none"
        raise argument_error("column", f"a column of the items ({have})", column)
    if isinstance(frame[column], pd.DataFrame):
        raise argument_error("items", "a table with distinct columns", f"{column} twice")
    numbers = pd.to_numeric(frame[column], errors="coerce")
    if len(invalid := frame.index[(numbers.isna() & frame[column].notna()).to_numpy()]):
        first = invalid[0]
        got = f"{shorten(frame.loc[first, column])} in column {column} of item {shorten(first)}"
        raise InputError(f"The `items` argument must be a table of numbers. Got {got}.")
    return numbers.to_numpy(float)


def _check_values(value: FloatArray, rule: Rule | Band, ids: pd.Index, column: str | None) -> None:
    """Raise for infinite values and for shares outside [0, 1]."""
    invalid, must = np.isinf(value), "finite values" if column else "finite difficulties"
    if column is None and rule.statistic == "pc":
        invalid, must = (value < 0) | (value > 1), "shares right from 0 to 1"
    if invalid.any():
        first = int(np.argmax(invalid))
        raise argument_error("items", must, f"{value[first]:g} for item {ids[first]!r}")


def read_classes(items: Items, source: Any, balanced_by: Any) -> Items:
    """The items with their classes, if the filter is balanced."""
    if balanced_by is None:
        return items
    if isinstance(balanced_by, str) and isinstance(source, pd.DataFrame):
        if balanced_by not in source.columns:
            have = shorten(list(source.columns))
            raise argument_error("balanced_by", f"a column of the table ({have})", balanced_by)
        values = source[balanced_by].to_numpy()
    else:
        bank = source if isinstance(source, ItemBank) else None
        responses = source if isinstance(source, Responses) else None
        ids = items.ids.to_numpy() if bank is None else bank.item_ids
        values = item_values("balanced_by", balanced_by, ids, bank, responses)
    codes, classes = read_groups(values)
    return replace(items, codes=codes, classes=classes)


def quotas_of(items: Items, pool: BoolArray, n: int) -> IntArray:
    """Number of items per class: as equal as class sizes allow, the first classes one more."""
    sizes = np.bincount(items.codes[pool], minlength=len(items.classes))
    quotas = np.zeros(len(sizes), int)
    remaining = n
    while remaining:
        unfilled = np.flatnonzero(quotas < sizes)
        share = remaining // len(unfilled)
        # One more for the first classes comes last: a class that ends leaves more for all others.
        wanted = np.maximum(share, np.arange(len(unfilled)) < remaining)
        added = np.minimum(wanted, (sizes - quotas)[unfilled])
        quotas[unfilled] += added
        remaining -= int(added.sum())
    return quotas


def lowest_cost(items: Items, pool: BoolArray, cost: FloatArray, quotas: IntArray) -> IntArray:
    """Positions of the items of lowest cost of each class; ties go to the earlier item."""
    chosen = []
    # In one pass, as there may be many classes.
    order = np.argsort(items.codes, kind="stable")
    ends = np.cumsum(np.bincount(items.codes, minlength=len(items.classes)))
    for positions, quota in zip(np.split(order, ends[:-1]), quotas, strict=True):
        positions = positions[pool[positions]]
        if quota == len(positions):
            chosen.append(positions)
            continue
        # Only items up to the highest chosen cost need sorting.
        highest = np.partition(cost[positions], max(quota - 1, 0))[max(quota - 1, 0)]
        positions = positions[cost[positions] <= highest]
        chosen.append(positions[np.argsort(cost[positions], kind="stable")[:quota]])
    return np.concatenate(chosen)


def bounds_of(
    items: Items, usable: BoolArray, chosen: IntArray, rule: Rule | None, tau: float | None
) -> pd.DataFrame:
    """The bound of each class: the first value left out is the equivalent threshold."""
    n_classes, left_out = len(items.classes), usable.copy()
    left_out[chosen] = False
    inside, outside = items.codes[chosen], items.codes[left_out]
    table = pd.DataFrame(index=pd.Index(items.classes, name="class"))
    table["n"] = np.bincount(items.codes[usable], minlength=n_classes)
    table["kept"] = np.bincount(inside, minlength=n_classes)
    if rule is None:
        return table.assign(tau=np.nan, tied=0)
    cost = rule.cost(items.value)
    farthest, nearest = np.full(n_classes, -np.inf), np.full(n_classes, np.inf)
    np.maximum.at(farthest, inside, cost[chosen])
    np.minimum.at(nearest, outside, cost[left_out])
    if tau is not None:
        nearest = np.minimum(nearest, rule.cost(np.asarray(tau, float)))
    ties = outside[cost[left_out] == farthest[outside]]
    return table.assign(tau=rule.cost(nearest), tied=np.bincount(ties, minlength=n_classes))


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
        is_balanced, names = "class" in self.table, [str(name) for name in self.bounds.index]
        codes = np.zeros(len(self.table), int)
        if is_balanced:
            codes = pd.Index(names).get_indexer(pd.Index(self.table["class"]))
        pool = (self.table["flag"] == "").to_numpy()
        items = Items(self.table.index, self.table["value"].to_numpy(), codes, names)
        return _random_sample(items, pool, self.bounds["kept"].to_numpy(int), seed, is_balanced)

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
    band = (row.low, row.high) if isinstance(row, Band) else None
    about = {"rule": rule, "tau": threshold, "bounds": bounds, "seed": int(seed)}
    about |= {"between": band, "column": column}
    return _filtered(candidates, chosen, usable, balanced, about)


def _read_band(rule: Any, tau: Any, keep: Any, between: Any, column: str | None) -> Band:
    """The band between two bounds."""
    for name, value in (("rule", rule), ("tau", tau), ("keep", keep)):
        if value is not None:
            raise argument_error(name, "None with `between`, which says what is kept", value)
    bounds = tuple(between) if isinstance(between, (tuple, list)) else ()
    if len(bounds) != 2 or not all(map(is_number, bounds)) or not bounds[0] <= bounds[1]:
        raise argument_error("between", "two finite numbers, the lower one first", between)
    if column is None and not 0 <= bounds[0] <= bounds[1] <= 1:
        must = "two shares from 0 to 1, such as .2 and .8"
        raise argument_error("between", must, between, "Name another column with `column`.")
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
        must = "set so that it leaves an item" + (f" of class {empty!r}" if balanced else "")
        got = f"{limits[1]}, and the values are from {values.min():.4g} to {values.max():.4g}"
        raise argument_error(limits[0], must, got)
    return np.where(present, passing[present].min(), 0) if balanced else passing


def _random_sample(
    items: Items, pool: BoolArray, quotas: IntArray, seed: int, balanced: bool
) -> Filtered:
    """A random sample of the pool with the quota of each class."""
    cost: FloatArray = np.random.default_rng(seed).random(len(pool))
    chosen = lowest_cost(items, pool, cost, quotas)
    bounds = bounds_of(items, pool, chosen, None, None)
    about = {"rule": RANDOM, "tau": np.nan, "bounds": bounds, "seed": int(seed)}
    return _filtered(items, chosen, pool, balanced, about)


def _filtered(
    items: Items, chosen: IntArray, usable: BoolArray, balanced: bool, about: dict[str, Any]
) -> Filtered:
    """The record of the chosen items; ``about``: its fields besides their table."""
    kept = np.zeros(len(items.ids), bool)
    kept[chosen] = True
    table = pd.DataFrame({"value": items.value, "kept": kept}, index=items.ids)
    if balanced:
        table["class"] = np.asarray(items.classes, dtype=object)[items.codes]
    table["flag"] = np.array(["no value", ""], object)[usable.astype(int)]
    indices = np.sort(chosen)
    indices.flags.writeable = False
    return Filtered(indices=indices, table=table, **about)

"""The prompts as users pass them: ids, priors, properties, topics, quotas."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    argument_error,
    brief,
    check_count,
    check_ids,
    check_unique,
    float_array,
    is_number,
    is_whole,
)
from irtcat._common.per_item import per_item
from irtcat._common.positions import first_repeated
from irtcat._common.types import FloatArray, IntArray

if TYPE_CHECKING:
    from irtcat.bank import ItemBank
from irtcat.responses._frames import as_pandas
from irtcat.training.online.prompts import SLOPE_SD, Prior

LOWEST_SLOPE = 0.01

NO_PRIOR = Prior(b=None, var_b=None, alpha=None, var_alpha=None)


@dataclass(frozen=True)
class Items:
    """The prompts and what is known of them.

    Attributes:
        n: their number.
        ids: their ids, or None where these are the positions.
        prior: of difficulties and slopes.
        centre: mean of the known difficulties, 0 without.
        metadata: of a bank's items, for the names of topics.
    """

    n: int
    ids: np.ndarray | None
    prior: Prior
    centre: float
    metadata: pd.DataFrame | None

    @property
    def names(self) -> np.ndarray:
        """The ids, also where these are the positions."""
        return np.arange(self.n) if self.ids is None else self.ids

    def names_of(self, rows: IntArray) -> np.ndarray:
        """The ids of some prompts."""
        return rows if self.ids is None else self.ids[rows]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of number and order of the ids."""
        text = hashlib.sha256(str(self.n).encode())
        if self.ids is not None:
            for name in self.ids.tolist():
                text.update(f"{type(name).__name__}:{name}\0".encode())
        return text.hexdigest()


def _read_ids(values: Any) -> np.ndarray:
    """Ids as int64 where all are whole numbers, else as text."""
    array = np.asarray(values)
    if array.ndim == 1 and array.dtype.kind in "iu" and len(array):
        ids = array.astype(np.int64)
        return ids if len(np.unique(ids)) == len(ids) else check_unique("items", ids)
    return check_unique("items", check_ids("items", values, len(values), "item"))


def read_items(items: Any) -> Items:
    """Read the prompts from a number, ids, a bank or a table.

    Raises:
        InputError: for anything else, ids that repeat, or parameters out of range.
    """
    if is_whole(items):
        check_count("items", items, 1)
        return Items(int(items), None, NO_PRIOR, 0.0, None)
    if hasattr(items, "to_frame") and hasattr(items, "item_ids"):
        return _of_table(_bank_table(items), items.items)
    frame = as_pandas(items)
    if frame is not None:
        frame = _by_id(frame)
        return _of_table(frame, frame)
    if isinstance(items, (str, bytes, Mapping)) or not hasattr(items, "__len__"):
        must = "a number of prompts, a list of ids, a bank, or a table with a column b"
        raise argument_error("items", must, items)
    if not len(items):
        raise argument_error("items", "at least one prompt", "none")
    ids = _read_ids(items)
    return Items(len(ids), ids, NO_PRIOR, 0.0, None)


def _by_id(frame: pd.DataFrame) -> pd.DataFrame:
    """The table indexed by its column of ids, if it has one."""
    name = next((name for name in ("item", "id") if name in frame.columns), None)
    return frame if name is None else frame.set_index(name)


def _bank_table(bank: "ItemBank") -> pd.DataFrame:
    """Difficulties and slopes of a bank of logistic items without guessing."""
    table = bank.to_frame()
    advice = "Fit the bank as 1pl, 2pl or rasch, or pass a table with columns b and se_b."
    if not {"a", "b"} <= set(table.columns):
        raise argument_error("items", "a bank of right/wrong items", bank.model.key, advice)
    if ("c" in table and (table["c"] > 0).any()) or ("d" in table and (table["d"] < 1).any()):
        must = "a bank without guessing and upper asymptotes"
        raise argument_error("items", must, bank.model.key, advice)
    return ranked_table(bank)


def ranked_table(bank: "ItemBank") -> pd.DataFrame:
    """The table of a bank, difficulties that are not determined replaced.

    They are those of the share of right answers (see `irtcat.bank._difficulty.rank_items`).
    """
    from irtcat.bank import ranking  # needs JAX

    table = bank.to_frame()
    if "b" not in table:
        return table
    ranked = ranking(bank)
    no_error = np.full(len(table), np.nan)
    new = {"a": ranked.a, "b": ranked.b, "se_b": ranked.se_b, "se_a": no_error}
    for name in table.columns.intersection(list(new)):
        table[name] = np.where(ranked.by_share, new[name], table[name])
    return table


def _of_table(table: pd.DataFrame, metadata: pd.DataFrame) -> Items:
    """Prompts from a table with columns b, se_b, a, se_a."""
    if not len(table):
        raise argument_error("items", "at least one prompt", "a table without rows")
    if "b" not in table.columns:
        must = "a table with a column b, the difficulty of each prompt"
        raise argument_error("items", must, f"the columns {list(table.columns)}")
    is_range = isinstance(table.index, pd.RangeIndex)
    is_numbered = is_range and table.index.equals(pd.RangeIndex(len(table)))
    ids = None if is_numbered else _read_ids(table.index.to_numpy())
    names = [name for name in ("b", "se_b", "a", "se_a") if name in table.columns]
    columns = {name: _column(table, name) for name in names}
    b = columns["b"]
    is_known = np.isfinite(b)
    if not is_known.any():
        return Items(len(table), ids, NO_PRIOR, 0.0, metadata)
    centre = float(b[is_known].mean())
    spread = float(b[is_known].var())
    var_b = np.nan_to_num(columns.get("se_b", np.zeros(len(b))), nan=0.0) ** 2
    var_b = np.where(is_known, var_b, max(spread, 0.25))
    alpha = var_alpha = None
    if "a" in columns:
        a = columns["a"]
        # negative or zero slopes: such prompts are unusual, not impossible; start from a flat one
        low = np.where(np.isfinite(a), np.maximum(a, LOWEST_SLOPE), 1.0)
        alpha = np.log(low)
        se = columns.get("se_a", np.full(len(b), np.nan)) / low
        var_alpha = np.where(np.isfinite(se) & np.isfinite(a), se**2, SLOPE_SD**2)
        alpha = np.clip(alpha, np.log(0.1), np.log(10.0))
        var_alpha = np.clip(var_alpha, 1e-4, 1.0)
    parts = {"var_b": var_b, "alpha": alpha, "var_alpha": var_alpha}
    parts["b"] = np.where(is_known, b, centre)
    known: dict[str, Any] = {n: x if x is None else x.astype(np.float32) for n, x in parts.items()}
    return Items(len(table), ids, Prior(**known), centre, metadata)


def _column(table: pd.DataFrame, name: str) -> FloatArray:
    """A column as numbers, NaN where missing; standard errors are not negative."""
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(float)
    bad = np.isinf(values) | (np.isnan(values) & table[name].notna().to_numpy())
    if name.startswith("se_"):
        bad |= values < 0
    if bad.any():
        row = int(np.argmax(bad))
        must = f"a table whose column {name} has finite numbers"
        must += " of at least 0" if name.startswith("se_") else ""
        got = f"{brief(table[name].iloc[row])} for {brief(table.index[row])}"
        raise argument_error("items", must, got)
    return values


def read_features(features: Any, items: Items) -> np.ndarray | None:
    """Known properties as standardised float32 columns; a missing value counts as the mean."""
    if features is None:
        return None
    frame = as_pandas(features)
    if isinstance(features, pd.Series):
        frame = features.to_frame()
    matrix = _of_array(features, items.n) if frame is None else _of_frame(frame, items)
    with np.errstate(invalid="ignore"):
        is_missing = np.isnan(matrix)
        counts = np.maximum((~is_missing).sum(axis=0), 1)
        centre = np.where(is_missing, 0.0, matrix).sum(axis=0) / counts
        matrix = np.where(is_missing, 0.0, matrix - centre)
        scale = np.sqrt((matrix**2).sum(axis=0) / counts)
    varies = scale > 1e-9 * np.maximum(np.abs(centre), 1e-300)
    if not varies.any():
        raise argument_error("features", "a table with a column whose values differ", "constants")
    return np.ascontiguousarray((matrix / np.where(varies, scale, 1.0))[:, varies], np.float32)


def _of_frame(frame: pd.DataFrame, items: Items) -> FloatArray:
    """A table of features in the order of the prompts."""
    from irtcat.features import design_of

    frame = _by_id(frame)
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        wanted = pd.Index(items.names)
        index = frame.index
        if wanted.dtype == object:
            index = pd.Index([str(name) for name in index], dtype=object)
        if (twice := first_repeated(index)) is not None:
            raise argument_error("features", "one row for each prompt", f"two for {brief(twice)}")
        rows = index.get_indexer(wanted)
        if (rows < 0).any():
            missing = brief(wanted[int(np.argmax(rows < 0))])
            raise argument_error("features", "a row for every prompt", f"none for {missing}")
        frame = frame.iloc[rows]
    if len(frame) != items.n:
        raise argument_error("features", f"{items.n} rows, one for each prompt", len(frame))
    frame = frame.reset_index(drop=True)
    frame.columns = [str(name) for name in frame.columns]
    return design_of(frame, "features").matrix(frame)


def _of_array(features: Any, n: int) -> FloatArray:
    """An array of features."""
    must = f"{n} rows of numbers, one for each prompt"
    matrix = float_array("features", must, features)
    matrix = matrix[:, None] if matrix.ndim == 1 else matrix
    if matrix.ndim != 2 or len(matrix) != n or not matrix.shape[1]:
        raise argument_error("features", must, f"shape {np.shape(features)}")
    if np.isinf(matrix).any():
        row = int(np.argwhere(np.isinf(matrix))[0, 0])
        raise argument_error("features", "finite or missing numbers", f"infinity in row {row}")
    return matrix


@dataclass(frozen=True)
class Topics:
    """Topics of the prompts.

    Attributes:
        names: names of the topics.
        code: number of each prompt's topic.
        rows: the prompts, topic by topic.
        starts: where each topic starts in ``rows``, and the end.
    """

    names: list[Any]
    code: np.ndarray
    rows: np.ndarray
    starts: np.ndarray


def read_topics(topics: Any, items: Items) -> Topics | None:
    """Read the topic of each prompt; all prompts have one.

    Raises:
        InputError: a wrong number of topics, or one that is missing.
    """
    if topics is None:
        return None
    tables = [items.metadata] if isinstance(topics, str) and items.metadata is not None else []
    values = per_item("topics", topics, items.names, tables, "topic")
    code, names = pd.factorize(np.asarray(values, dtype=object), use_na_sentinel=True)
    if (code < 0).any():
        name = brief(items.names[int(np.argmax(code < 0))])
        raise argument_error("topics", "a topic for each prompt", f"none for {name}")
    kind = np.int16 if len(names) < 2**15 else np.int32
    counts = np.bincount(code, minlength=len(names))
    return Topics(
        names=list(names),
        code=code.astype(kind),
        rows=np.argsort(code, kind="stable").astype(np.int32),
        starts=np.concatenate([[0], np.cumsum(counts)]),
    )


def read_quotas(quotas: Any, topics: Topics | None) -> FloatArray | None:
    """Shares of the topics, which sum to 1; a topic without a quota has none.

    Raises:
        InputError: quotas without topics, of unknown topics, negative ones, or none above 0.
    """
    if quotas is None:
        return None
    if topics is None:
        raise argument_error("quotas", "passed with `topics`", quotas)
    if not isinstance(quotas, Mapping) or not quotas:
        raise argument_error("quotas", "a mapping from topics to shares", quotas)
    shares = np.zeros(len(topics.names))
    position = {name: k for k, name in enumerate(topics.names)}
    for name, share in quotas.items():
        if name not in position:
            raise argument_error("quotas", f"shares of topics ({topics.names[:5]})", name)
        if not is_number(share) or share < 0:
            raise argument_error("quotas", "shares of at least 0", f"{share} for {brief(name)}")
        shares[position[name]] = share
    if shares.sum() <= 0:
        raise argument_error("quotas", "shares of which one is above 0", quotas)
    return shares / shares.sum()


def largest_remainder(shares: FloatArray, n: int, limits: IntArray) -> IntArray:
    """Whole numbers that sum to n, near n times the shares, at most the limits.

    What a topic cannot take goes to the others in proportion to their shares, and then to those
    with room.

    Example:
        >>> largest_remainder(np.array([0.5, 0.25, 0.25]), 7, np.array([2, 9, 9])).tolist()
        [2, 3, 2]
    """
    counts = np.zeros(len(shares), int)
    left = n
    while left > 0:
        room = limits - counts
        weight = np.where(room > 0, shares, 0.0)
        if weight.sum() <= 0:
            weight = (room > 0).astype(float)
        exact = left * weight / weight.sum()
        extra = np.floor(exact).astype(int)
        extra[np.argsort(-(exact - extra), kind="stable")[: left - int(extra.sum())]] += 1
        counts += np.minimum(extra, room)
        left = n - int(counts.sum())
    return counts

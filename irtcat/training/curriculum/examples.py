"""The training examples of a curriculum: ids, difficulties, slopes, and an order."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_choice, check_ids, shorten
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank, check_needs, ranking
from irtcat.training.rows import columns_of

NEEDS_OF_SLOPES = ("slope and intercept",)
"""What curricula that use slopes need of a bank: the log-posterior of ability then has a single
mode, which is the learner's estimated ability (with guessing parameters there may be several). One
trial of the binomial model follows a 2PL."""

ORDERS = ("easiest", "hardest", "middle-out")
"""Orders of the examples: by difficulty, or by its distance from the mean ability."""


class Examples(NamedTuple):
    """The examples' ids and parameters.

    Attributes:
        ids: one per example.
        a: discriminations; 1 if the source has none.
        b: difficulties; NaN if the source has none.
        known: whether the example has a finite difficulty (and a slope above 0 if slopes are used).
        population: mean and SD of the ability in the calibration population.
    """

    ids: np.ndarray
    a: FloatArray
    b: FloatArray
    known: BoolArray
    population: tuple[float, float]


def examples_of(items: Any, missing: str, *, sloped: bool) -> Examples:
    """Read the examples from an `ItemBank`, a table with a column b, or plain difficulties.

    Items of a bank whose difficulty is not determined get the one of their proportion correct, and
    the typical slope (see `irtcat.bank._difficulty.rank_items`).

    Args:
        items: the source.
        missing: "refuse" or "last": the treatment of examples without a usable difficulty.
        sloped: whether the curriculum uses slopes, which then must be above 0; otherwise a is 1.

    Raises:
        InputError: for another source or item model, or (refuse) for such examples, by name.
    """
    check_choice("missing", missing, ("refuse", "last"))
    ids, a, b, population = _columns(items, sloped)
    if len(b) == 0:
        raise argument_error("items", "at least one example", "none")
    known = np.isfinite(b) & ((a > 0) if sloped else True)
    must = "a finite difficulty and a slope above 0" if sloped else "a finite difficulty"
    if np.isinf(b).any() or np.isinf(a).any():
        got = f"infinite numbers for {shorten(ids[np.isinf(b) | np.isinf(a)])}"
        raise InputError(f"The `items` argument must have {must} for each example. Got {got}.")
    if missing == "refuse" and not known.all():
        raise InputError(
            f"The `items` argument must have {must} for each example. "
            f'Got others for {shorten(ids[~known])}. Pass missing="last" to train on them last.'
        )
    if not known.any():
        raise argument_error("items", f"with {must} for at least one example", "none")
    return Examples(ids, a, b, known, population)


def _columns(items: Any, sloped: bool) -> tuple[np.ndarray, Any, Any, tuple[float, float]]:
    """Ids, a and b as float vectors, and the population (standard Normal unless from a bank)."""
    if isinstance(items, ItemBank):
        if sloped:
            check_needs(items.model, NEEDS_OF_SLOPES, "curricula that use slopes", "items")
        bank = items.to_frame()
        if "b" not in bank:
            raise argument_error("items", "a bank with difficulties", items.model.key)
        ranked = ranking(items)
        slopes = ranked.a if sloped else np.ones(len(bank))
        population = float(items.population.mean), float(items.population.sd)
        return items.item_ids, slopes, ranked.b, population
    table = columns_of(items, ("item", "a", "b"))
    if table is not None:
        table = table.set_index("item") if "item" in table else table
        if "b" not in table:
            raise argument_error("items", "a table with a column b", list(table.columns))
        a = _numbers(table["a"]) if sloped and "a" in table else np.ones(len(table))
        return _unique(table.index), a, _numbers(table["b"]), (0.0, 1.0)
    if isinstance(items, Mapping):
        items = pd.Series(dict(items))
    b = _numbers(items)
    if isinstance(items, pd.Series):
        ids = _unique(items.index)
    else:
        ids = np.char.add("i", np.arange(1, len(b) + 1).astype(str))
    return ids, np.ones(len(b)), b, (0.0, 1.0)


def _numbers(values: Any) -> FloatArray:
    """A vector of floats, NaN allowed; raises an error for anything else."""
    try:
        vector = np.array(values, float)
    except (TypeError, ValueError):
        vector = None
    if vector is None or vector.ndim != 1:
        must = "an ItemBank, a table with a column b, or a vector of difficulties"
        raise argument_error("items", must, type(values).__name__)
    return vector


def _unique(index: Any) -> np.ndarray:
    """The index as text; raises an error if an id occurs twice."""
    ids = check_ids("items", np.asarray(index), len(index), "item")
    repeated = pd.Index(ids)[pd.Index(ids).duplicated()].unique()
    if len(repeated):
        raise argument_error("items", "indexed by ids, none twice", repeated.to_numpy())
    return ids


def ordered(difficulty: FloatArray, known: BoolArray, order: str, middle: float) -> IntArray:
    """Positions of all examples in the order; examples without a usable difficulty come last.

    Args:
        difficulty: difficulties of the examples.
        known: whether each is usable.
        order: one of `ORDERS`.
        middle: the ability from which "middle-out" starts.

    Example:
        >>> ordered(np.array([2.0, -1.0, 0.5]), np.array([True] * 3), "middle-out", 0.0).tolist()
        [2, 1, 0]
    """
    check_choice("order", order, ORDERS)
    keys = {"easiest": difficulty, "hardest": -difficulty, "middle-out": abs(difficulty - middle)}
    # The last key of lexsort is the first to sort by. Unknown ones stay in the order of the source.
    return np.lexsort((np.where(known, keys[order], 0.0), ~known))

"""The examples of curricula, and their base class: epochs, shuffling, history, and resuming."""

import abc
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    check_ids,
    shorten,
)
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat._files.formats import FileFormat
from irtcat.bank import ItemBank, check_needs, ranking
from irtcat.training.rows import columns_of, rows_at

STATE = FileFormat(
    "irtcat-curriculum", "a state of a curriculum", "Give what `state_dict` returned."
)
Row = dict[str, float | int]

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


class Curriculum(abc.ABC):
    """An iterator over epochs, each an array of positions of examples; see the subclasses.

    Attributes:
        epoch: number of epochs so far.
    """

    _columns: tuple[str, ...] = ()
    """Columns of the history that only this class has."""
    _learnt: tuple[str, ...] = ()
    """Numbers that answers change, which are entries of the state."""

    def __init__(
        self, examples: Examples, settings: str, epochs: int | None, shuffle: bool, seed: int
    ) -> None:
        if epochs is not None:
            check_count("epochs", epochs)
        check_count("seed", seed, 0)
        self._examples, self._epochs = examples, epochs
        self._shuffle, self._seed = bool(shuffle), int(seed)
        hasher = hashlib.sha256(f"{type(self).__name__} {settings} {shuffle} {seed}".encode())
        hasher.update("\0".join(examples.ids.astype(str)).encode())
        for values in (examples.a, examples.b, examples.known):
            hasher.update(np.ascontiguousarray(values).tobytes())
        self._settings = hasher.hexdigest()[:32]
        self._rows: list[Row] = []

    @abc.abstractmethod
    def _choose(self) -> tuple[IntArray, Row]:
        """Positions of the next epoch in order, and its row of the history."""

    @abc.abstractmethod
    def update(self, correct: Any, indices: Any) -> None:
        """Record the learner's answers; see the class."""

    @property
    @abc.abstractmethod
    def probe(self) -> IntArray:
        """Positions of the examples to answer before the next epoch, for `update`."""

    @property
    def epoch(self) -> int:
        """Number of epochs so far."""
        return len(self._rows)

    @property
    def n_items(self) -> int:
        """Number of examples."""
        return len(self._examples.b)

    @property
    def items(self) -> pd.DataFrame:
        """The examples: a, b, and flag ("no difficulty" for those that come last), by id."""
        examples = self._examples
        flag = np.where(examples.known, "", "no difficulty")
        index = pd.Index(examples.ids, dtype=object, name="item")
        return pd.DataFrame({"a": examples.a, "b": examples.b, "flag": flag}, index=index)

    @property
    def history(self) -> pd.DataFrame:
        """A row per epoch; see the class for the columns."""
        table = pd.DataFrame(self._rows, columns=[*self._columns, "n", "share", "seen"])
        return table.set_axis(pd.RangeIndex(1, len(table) + 1, name="epoch"))

    def next(self) -> IntArray:
        """The positions of the examples of the next epoch.

        Returns:
            Positions from 0, without repeats; in random order, or with ``shuffle=False`` in that of
            the curriculum.

        Raises:
            StopIteration: after ``epochs`` epochs.
        """
        if self._epochs is not None and self.epoch >= self._epochs:
            raise StopIteration
        chosen, row = self._choose()
        seen = len(chosen) + (self._rows[-1]["seen"] if self._rows else 0)
        common = {"n": len(chosen), "share": len(chosen) / self.n_items, "seen": seen}
        # One generator per epoch, so that resumed training shuffles in the same way.
        rng = np.random.default_rng([self._seed, self.epoch])
        self._rows.append({**row, **common})
        return rng.permutation(chosen) if self._shuffle else chosen

    def next_rows(self, data: Any, key: str | None = None) -> Any:
        """The rows of a data set that hold the examples of the next epoch, in its order.

        Args:
            data: a pandas or polars DataFrame, an Arrow table or a Hugging Face Dataset.
            key: column with the example's id; None if row k is example k. All rows with an id
                are included, one after the other.

        Returns:
            A data set of the same type and schema.

        Raises:
            StopIteration: after ``epochs`` epochs.
            InputError: for another object, a missing column or, without a key, another number of
                rows; the curriculum then stays where it is.
        """
        kind, example_of = rows_at(data, pd.Index(self._examples.ids), key)
        rank = np.full(self.n_items, -1)
        chosen = self.next()
        rank[chosen] = np.arange(len(chosen))
        place = np.where(example_of >= 0, rank[example_of], -1)
        rows = np.flatnonzero(place >= 0)
        return kind.take(data, rows[np.argsort(place[rows], kind="stable")], False)

    def peek(self) -> IntArray:
        """The positions of the next epoch in the order of the curriculum, without starting it."""
        return self._choose()[0]

    def __next__(self) -> IntArray:
        return self.next()

    def __iter__(self) -> Iterator[IntArray]:
        return self

    def state_dict(self) -> dict[str, Any]:
        """The state for `restore`, JSON-serialisable; small for any number of examples."""
        rows = [dict(row) for row in self._rows]
        return {**STATE.head, "settings": self._settings, "rows": rows, **self._state()}

    def _state(self) -> dict[str, Any]:
        """What was learnt, by name."""
        return {name: getattr(self, f"_{name}") for name in self._learnt}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Resume where another curriculum of the same examples and settings stopped.

        Args:
            state: its `state_dict`.

        Returns:
            This curriculum.

        Raises:
            InputError: for the state of a curriculum of other examples or settings.
        """
        STATE.check_argument("state", state)
        if state.get("settings") != self._settings:
            raise InputError(
                "The `state` argument must be of a curriculum of the same class, examples and "
                "settings. Got one of another."
            )
        try:
            rows = [dict(row) for row in state["rows"]]
            learnt = {name: type(now)(state[name]) for name, now in self._state().items()}
        except (KeyError, TypeError, ValueError):
            raise argument_error("state", "a result of `state_dict`", "an incomplete one") from None
        self._rows = rows
        for name, value in learnt.items():
            setattr(self, f"_{name}", value)
        return self


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
    if isinstance(items, Mapping):
        items = pd.Series(dict(items))
    is_series = isinstance(items, pd.Series)
    table = items.to_frame("b") if is_series else columns_of(items, ("item", "a", "b"))
    if table is not None:
        table = table.set_index("item") if "item" in table else table
        if "b" not in table:
            raise argument_error("items", "a table with a column b", list(table.columns))
        a = _numbers(table["a"]) if sloped and "a" in table else np.ones(len(table))
        return _unique(table.index), a, _numbers(table["b"]), (0.0, 1.0)
    b = _numbers(items)
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

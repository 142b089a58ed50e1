"""The base class of curricula: epochs, shuffling, history, and resuming."""

import abc
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_count
from irtcat._common.types import IntArray
from irtcat._files.formats import FileFormat
from irtcat.training.curriculum.examples import Examples
from irtcat.training.rows import rows_at

STATE = FileFormat(
    "irtcat-curriculum", "a state of a curriculum", "Give what `state_dict` returned."
)
Row = dict[str, float | int]


class Curriculum(abc.ABC):
    """An iterator over epochs, each an array of positions of examples; see the subclasses.

    Attributes:
        epoch: number of epochs so far.
    """

    _common_columns = ("n", "share", "seen")

    def __init__(
        self, examples: Examples, settings: str, epochs: int | None, shuffle: bool, seed: int
    ) -> None:
        if epochs is not None:
            check_count("epochs", epochs)
        check_count("seed", seed, 0)
        self._examples, self._epochs = examples, epochs
        self._shuffle, self._seed = bool(shuffle), int(seed)
        self._settings = _digest(examples, f"{type(self).__name__} {settings} {shuffle} {seed}")
        self._rows: list[Row] = []

    @abc.abstractmethod
    def _choose(self) -> tuple[IntArray, Row]:
        """Positions of the next epoch in order, and its row of the history."""

    @abc.abstractmethod
    def update(self, correct: Any, indices: Any) -> None:
        """Record the learner's answers; see the class."""

    @abc.abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restore the class-specific entries of a valid state."""

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
        table = pd.DataFrame(self._rows, columns=[*self._history_columns(), *self._common_columns])
        return table.set_axis(pd.RangeIndex(1, len(table) + 1, name="epoch"))

    @abc.abstractmethod
    def _history_columns(self) -> tuple[str, ...]:
        """The class-specific columns of the history."""

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

    @abc.abstractmethod
    def _state(self) -> dict[str, Any]:
        """The class-specific entries of the state."""

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
            self._restore(state)
        except (KeyError, TypeError, ValueError):
            raise argument_error("state", "a result of `state_dict`", "an incomplete one") from None
        self._rows = rows
        return self


def _digest(examples: Examples, settings: str) -> str:
    """Fingerprint of examples and settings."""
    hasher = hashlib.sha256(settings.encode())
    hasher.update("\0".join(examples.ids.astype(str)).encode())
    for values in (examples.a, examples.b, examples.known):
        hasher.update(np.ascontiguousarray(values).tobytes())
    return hasher.hexdigest()[:32]

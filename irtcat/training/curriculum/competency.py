"""Competency: a share of the data that grows by a fixed schedule."""

from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, check_choice, check_count, is_number
from irtcat._common.types import IntArray
from irtcat.training.curriculum.base import Curriculum, Row, examples_of, ordered

SCHEDULES = {"linear": 1.0, "root": 2.0}
"""The power p of each schedule."""


class Competency(Curriculum):
    """Train on the first examples of an order, a share that grows by a fixed schedule.

    In epoch t = 0, 1, ... the share (the competence) is

        c(t) = min(1, (t (1 - c0^p) / T + c0^p)^(1 / p)),

    p = 1 for "linear" and p = 2 for "root": from c0 to all data in T epochs, independent of the
    learner. The epoch's examples are the first floor(c(t) n) of the order. This is a baseline: it
    ignores the learner's answers. For a schedule by training steps, treat a step as an epoch and
    draw the step's batch from its examples.

    The history has, per epoch, competence (c), n (examples), share (of all), seen (examples so
    far).

    Args:
        items: an `ItemBank`; a table (pandas, polars, Arrow, Hugging Face) with a column b, by
            id: its column item, or the index; or difficulties (vector, Series or mapping by id).
            Any measure of difficulty works; larger is harder.
        epochs_to_all: T, above 0: number of epochs until all examples are used.
        start: c0, above 0 and at most 1: the share of the first epoch.
        schedule: "linear", "root", or the power p (at least 1).
        order: "easiest" or "hardest" first, or "middle-out": by the distance from the mean of the
            bank's population (0 without a bank).
        min_length: minimum number of examples of an epoch.
        missing: "refuse" raises for examples whose difficulty is NaN, by id; with "last" they
            come after all others, and `items` flags them.
        epochs: number of epochs; unlimited by default.
        shuffle: whether an epoch's positions are in random order.
        seed: seed of that order.

    Raises:
        InputError: for a number out of range, an unknown name, or invalid difficulties.

    Example:
        >>> c = Competency([0.3, -1.2, 2.0, 0.9], epochs_to_all=3, start=0.25, shuffle=False)
        >>> [c.next().tolist() for _ in range(4)]
        [[1], [1, 0], [1, 0, 3], [1, 0, 3, 2]]
        >>> c.history["seen"].tolist()
        [1, 3, 6, 10]

    References:
        Platanios, Stretcu, Neubig, Poczos & Mitchell (2019), NAACL 1162-1172, eqs. 5-8.
    """

    _columns = ("competence",)

    def __init__(
        self,
        items: Any,
        *,
        epochs_to_all: float,
        start: float = 0.01,
        schedule: str | float = "linear",
        order: str = "easiest",
        min_length: int = 1,
        missing: str = "refuse",
        epochs: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        if isinstance(schedule, str):
            check_choice("schedule", schedule, SCHEDULES)
        power = SCHEDULES[schedule] if isinstance(schedule, str) else schedule
        for name, value, low, high, must in (
            ("schedule", power, 1.0, np.inf, "linear, root, or a finite number of at least 1"),
            ("epochs_to_all", epochs_to_all, 1e-9, np.inf, "a finite number above 0"),
            ("start", start, 1e-9, 1.0, "a share above 0 and at most 1"),
        ):
            if not is_number(value) or not low <= value <= high:
                raise argument_error(name, must, value)
        examples = examples_of(items, missing, sloped=False)
        check_count("min_length", min_length, 1, len(examples.b))
        self._power, self._start = float(power), float(start)
        self._epochs_to_all = float(epochs_to_all)
        self._order = ordered(examples.b, examples.known, order, examples.population[0])
        self._min_length = int(min_length)
        settings = f"{self._power} {self._start} {self._epochs_to_all} {order} {min_length}"
        super().__init__(examples, settings, epochs, shuffle, seed)

    def competence(self, t: float) -> float:
        """The share of the data at time t (epochs from 0).

        Example:
            >>> c = Competency([0.0, 1.0], epochs_to_all=4, start=0.1, schedule="root")
            >>> round(c.competence(1), 4)
            0.5074
        """
        first = self._start**self._power
        return float(min(1.0, (t * (1 - first) / self._epochs_to_all + first) ** (1 / self._power)))

    @property
    def probe(self) -> IntArray:
        """Empty: the schedule needs no answers."""
        return np.zeros(0, int)

    def update(self, correct: Any = (), indices: Any = ()) -> None:
        """No effect: answers do not change the schedule. Lets one loop drive any curriculum."""

    def _choose(self) -> tuple[IntArray, Row]:
        share = self.competence(self.epoch)
        # Rounding of a product such as 0.3 * 10 must not lose an example.
        n = max(self._min_length, int(np.floor(share * self.n_items + 1e-9)))
        return self._order[:n].copy(), {"competence": share}

"""AbilityMatched: examples as difficult as the learner is able (DDaCLAE)."""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np

from irtcat._checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    check_count,
    check_interval,
    shorten,
)
from irtcat._types import FloatArray, IntArray
from irtcat.training.curriculum._base import Curriculum, Row
from irtcat.training.curriculum._examples import examples_of, ordered
from irtcat.training.curriculum._map import map_ability

__all__ = ["PROBES", "SHORT", "AbilityMatched"]

PROBES = ("all", "last")
SHORT = ("order", "nearest")


class AbilityMatched(Curriculum):
    """Train on the examples that suit the learner's ability, estimated anew before each epoch.

    From the right and wrong answers of the learner to the probe the ability theta is the posterior
    mode under a Normal prior (`map_ability`); the epoch's examples are those with

        theta + lower <= b_i + logit(s) / a_i <= theta + upper,

    s the ``success`` wanted: the middle term is the ability at which example i is answered rightly
    with probability s, b itself at s = 1/2. With the defaults these are all that the learner gets
    right more often than not. Of Rasch items s only moves the window, by log(1 / s - 1).

    A loop is

        for _ in range(n_epochs):
            probe = curriculum.probe
            curriculum.update(answers(probe), probe)
            train(curriculum.next())

    or, where the epoch's own answers are at hand: ``indices = curriculum.next()``, train, and
    ``curriculum.update(correct, indices)``. Until the first answers theta is the prior's mean.
    Estimates on examples that were trained on say how well they were learnt, not how new ones would
    be answered.

    The history has, per epoch, theta, se (the prior's before any answer), n_answers (that they
    rest on), n_window (examples within the window), n (trained on), share (of all), seen (examples
    so far).

    Args:
        items: an `ItemBank` (rasch, 1pl or 2pl); a table with columns b and, for a 2PL, a, indexed
            by id; or difficulties (vector, Series or mapping by id), for the Rasch model.
        lower: the window's lower end less theta; -inf for none.
        upper: its upper end less theta; at least ``lower``; inf for none.
        success: target probability of a right answer, between 0 and 1; higher is easier.
        min_length: where the window holds fewer examples than this, ``short`` says what is done.
        short: "order" takes the first ``min_length`` of the order instead of the window (the
            paper's rule), "nearest" those nearest to the window.
        order: "easiest" or "hardest" first, or "middle-out": by the distance from the prior's
            mean.
        probe: the examples that the learner answers: "all", "last" (those of the last epoch; all
            before the first), a number of them, drawn once, or their positions.
        prior: mean and SD of the prior; by default the bank's population, else 0 and 1.
        missing: "refuse" raises for examples of which the difficulty is NaN or the slope not above
            0, by id; with "last" they come after all others in the order, are within no window and
            in no probe, and `items` flags them.
        epochs: iteration ends after so many; by default never.
        shuffle: whether an epoch's positions come in random order.
        seed: seed of that order, and of the probe that is drawn.

    Raises:
        InputError: for a number out of range, an unknown name, another item model, or unusable
            difficulties.

    Example:
        >>> c = AbilityMatched([-1.0, 0.0, 1.0, 2.0], shuffle=False)
        >>> c.update([1, 1, 1, 0], c.probe)
        >>> round(c.theta, 3), c.next().tolist()
        (0.783, [0, 1])
        >>> c.history[["n_answers", "n", "share"]].values.tolist()
        [[4.0, 2.0, 0.5]]

    References:
        Lalor & Yu (2020), Findings of EMNLP 545-555 (dynamic data selection by ability
        estimation); Lalor et al. (2024), EACL tutorial, "Improving Model Training".
    """

    def __init__(
        self,
        items: Any,
        *,
        lower: float = -np.inf,
        upper: float = 0.0,
        success: float = 0.5,
        min_length: int = 1,
        short: str = "order",
        order: str = "easiest",
        probe: Any = "all",
        prior: tuple[float, float] | None = None,
        missing: str = "refuse",
        epochs: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        examples = examples_of(items, missing, sloped=True)
        check_count("seed", seed, 0)
        numbers = all(isinstance(end, (int, float, np.number)) for end in (lower, upper))
        if not numbers or not lower <= upper:
            raise argument_error("lower, upper", "two numbers in order", (lower, upper))
        check_interval("success", success)
        check_count("min_length", min_length, 1, len(examples.b))
        check_choice("short", short, SHORT)
        self._prior = examples.population if prior is None else _prior_of(prior)
        with np.errstate(divide="ignore", invalid="ignore"):
            level = examples.b + np.log(success / (1 - success)) / examples.a
        self._level = np.where(examples.known, level, np.nan)
        self._lower, self._upper = float(lower), float(upper)
        self._least, self._short = int(min_length), short
        self._order = ordered(self._level, examples.known, order, self._prior[0])
        self._sorted = self._level[self._order]
        self._known = np.flatnonzero(examples.known)
        self._probe = _probe_of(probe, self._known, len(examples.b), seed)
        slopes = examples.a[self._known]
        self._slope = float(slopes[0]) if (slopes == slopes[0]).all() else None
        self._theta, self._se = self._prior
        self._n_answers = 0
        drawn = "last" if self._probe is None else crc32(self._probe.tobytes())
        settings = (lower, upper, success, min_length, short, order, drawn, self._prior)
        super().__init__(examples, repr(settings), epochs, shuffle, seed)
        self._asked = None if self._probe is None else self._parameters(self._probe)

    @property
    def theta(self) -> float:
        """The learner's ability by the last answers; the prior's mean before any."""
        return self._theta

    @property
    def se(self) -> float:
        """Its standard error; the prior's SD before any answer."""
        return self._se

    @property
    def probe(self) -> IntArray:
        """Positions of the examples to be answered before the coming epoch."""
        if self._probe is not None:
            return self._probe.copy()
        if not self._rows:
            return self._known.copy()
        last, _ = self._within(self._rows[-1]["theta"])
        return np.sort(last[self._examples.known[last]])

    def update(self, correct: Any, indices: Any) -> None:
        """Estimate the ability from the learner's answers; earlier ones are forgotten.

        Args:
            correct: whether each answer was right: booleans, 1 or 0; NaN where there is none.
            indices: positions of the examples answered, in the order of the answers, each once.
                Examples without a difficulty may be among them, and do not count.

        Raises:
            InputError: for answers other than right or wrong or none at all, a number of answers
                that is not that of the positions, or positions out of range or repeated.
        """
        at, x = np.asarray(indices), np.asarray(correct)
        start = self._theta if self._n_answers else None
        # The usual case is quick, since it is for every epoch, which may take a few milliseconds.
        asked = self._probe is not None and np.array_equal(at, self._probe)
        if asked and self._asked is not None and x.dtype == bool:
            a, b = self._asked
        else:
            x, a, b = self._answered(x, at)
        if x.shape != b.shape:
            raise argument_error("correct", f"{len(b)} answers, one per position", x.shape)
        self._theta, self._se = map_ability(x, a, b, self._prior, start)
        self._n_answers = len(b)

    def _answered(
        self, x: np.ndarray, at: np.ndarray
    ) -> tuple[np.ndarray, FloatArray | float, FloatArray]:
        """The answers that count, and slopes and difficulties of the examples."""
        at = self._positions(at)
        if x.shape != at.shape:
            raise argument_error("correct", f"{len(at)} answers, one per position", x.shape)
        use = self._examples.known[at]
        if x.dtype != bool:
            x, seen = self._right(x, at)
            use &= seen
        if not use.any():
            raise argument_error("correct", "at least one answer to an example with b", "none")
        return (x[use], *self._parameters(at[use]))

    def _parameters(self, at: IntArray) -> tuple[FloatArray | float, FloatArray]:
        """Slopes (one number where all examples have the same) and difficulties."""
        a = self._examples.a[at] if self._slope is None else self._slope
        return a, self._examples.b[at]

    def _positions(self, at: np.ndarray) -> IntArray:
        """The positions, if each is an example and none is repeated."""
        if at.size == 0:
            at = np.zeros(0, int)
        if at.ndim != 1 or not np.issubdtype(at.dtype, np.integer):
            raise argument_error("indices", "a vector of positions", at)
        n = self.n_items
        if at.size and (at.min() < 0 or at.max() >= n):
            wrong = at[(at < 0) | (at >= n)]
            raise argument_error("indices", f"positions from 0 to {n - 1}", wrong)
        if at.size and (count := np.bincount(at, minlength=n)).max() > 1:
            repeated = self._examples.ids[count > 1]
            raise argument_error("indices", "each once", f"repeats of {shorten(repeated)}")
        return at

    def _right(self, x: np.ndarray, at: IntArray) -> tuple[np.ndarray, np.ndarray]:
        """Answers as numbers, and which are there."""
        try:
            x = x.astype(float)
        except (TypeError, ValueError):
            raise argument_error("correct", "right (1) or wrong (0) answers", x) from None
        seen = ~np.isnan(x)
        odd = seen & (x != 0) & (x != 1)
        if odd.any():
            first = int(np.flatnonzero(odd)[0])
            raise InputError(
                "The `correct` argument must be 1 (right), 0 (wrong) or NaN (no answer). "
                f"Got {x[first]:g} for {brief(self._examples.ids[at[first]])}."
            )
        return x, seen

    def _within(self, theta: float) -> tuple[IntArray, int]:
        """The examples for an ability, in order, and how many the window holds."""
        low, high = theta + self._lower, theta + self._upper
        window = self._order[(self._sorted >= low) & (self._sorted <= high)]
        if len(window) >= self._least:
            return window, len(window)
        if self._short == "order":
            return self._order[: self._least].copy(), len(window)
        away = np.maximum(low - self._sorted, self._sorted - high)
        away = np.where(np.isnan(away), np.inf, np.maximum(away, 0.0))
        nearest = np.sort(np.argsort(away, kind="stable")[: self._least])
        return self._order[nearest], len(window)

    def _choose(self) -> tuple[IntArray, Row]:
        chosen, n_window = self._within(self._theta)
        row: Row = {"theta": self._theta, "se": self._se, "n_answers": self._n_answers}
        return chosen, {**row, "n_window": n_window}

    def _own_columns(self) -> tuple[str, ...]:
        return ("theta", "se", "n_answers", "n_window")

    def _state(self) -> dict[str, Any]:
        return {"theta": self._theta, "se": self._se, "n_answers": self._n_answers}

    def _restore(self, state: Mapping[str, Any]) -> None:
        theta, se, n = float(state["theta"]), float(state["se"]), int(state["n_answers"])
        self._theta, self._se, self._n_answers = theta, se, n


def _prior_of(prior: Any) -> tuple[float, float]:
    """Mean and SD of the prior, checked."""
    real = np.ndim(prior) == 1 and np.asarray(prior).dtype.kind in "iuf"
    numbers = np.asarray(prior, float) if real else np.zeros(0)
    if numbers.shape != (2,) or not np.isfinite(numbers).all() or not numbers[1] > 0:
        raise argument_error("prior", "a mean and an SD above 0", prior)
    return float(numbers[0]), float(numbers[1])


def _probe_of(probe: Any, known: IntArray, n: int, seed: int) -> IntArray | None:
    """Positions of the probe, sorted; None for the examples of the last epoch."""
    if isinstance(probe, str):
        check_choice("probe", probe, PROBES)
        return known if probe == "all" else None
    if np.ndim(probe) == 0:
        check_count("probe", probe, 1, len(known))
        # Apart from the epochs' generators, which are numbered from 0.
        rng = np.random.default_rng([seed, 0, 1])
        return np.sort(rng.choice(known, size=int(probe), replace=False))
    at = np.asarray(probe)
    if at.ndim != 1 or not np.issubdtype(at.dtype, np.integer) or not np.isin(at, known).all():
        must = f"positions from 0 to {n - 1} of examples with a difficulty"
        raise argument_error("probe", must, probe)
    if len(at) == 0 or len(np.unique(at)) != len(at):
        raise argument_error("probe", "at least one position, each once", probe)
    return at.copy()

"""AbilityMatched: examples whose difficulty matches the learner's ability (DDaCLAE)."""

from collections.abc import Callable
from math import exp
from typing import Any
from zlib import crc32

import numpy as np

from irtcat._common.checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    check_count,
    check_interval,
    shorten,
)
from irtcat._common.types import FloatArray, IntArray
from irtcat.training.curriculum.base import Curriculum, Row, examples_of, ordered

PROBES = ("all", "last")
SHORT = ("order", "nearest")

MAX_STEPS = 500
"""More than the bracket needs to close."""
TOLERANCE = 1e-8
"""Newton stops if the squared step times the largest slope is below it: the error is then half of
that. Slopes above 1 enter squared, so that the standard error also has a relative error of 1e-4."""
ONE_THREAD = 10_000
"""BLAS uses one thread for vectors shorter than this."""
MAX_EXPONENT = 300.0
"""Largest exponent for which odds are scaled instead of recomputed: exp(709) overflows."""


class AbilityMatched(Curriculum):
    """Train on the examples that match the learner's ability, re-estimated before each epoch.

    The ability theta is the posterior mode under a Normal prior (`map_ability`), from the learner's
    right and wrong answers to the probe; the epoch's examples are those with

        theta + lower <= b_i + logit(s) / a_i <= theta + upper,

    with the target ``success`` s: the middle term is the ability at which example i is answered
    correctly with probability s, which is b at s = 1/2. With the defaults these are all examples
    that the learner answers correctly with probability above 1/2. For Rasch items s only shifts
    the window, by log(1 / s - 1).

    A loop is

        for _ in range(n_epochs):
            probe = curriculum.probe
            curriculum.update(answers(probe), probe)
            train(curriculum.next())

    or, if the answers of the epoch itself are available: ``indices = curriculum.next()``, train,
    and ``curriculum.update(correct, indices)``. Before the first answers theta is the prior's mean.
    Estimates from training examples measure how well these were learnt, not performance on new
    examples.

    The history has, per epoch, theta, se (the prior's before any answer), n_answers (used for
    these), n_window (examples within the window), n (trained on), share (of all), seen (examples so
    far).

    Args:
        items: an `ItemBank` (rasch, 1pl, 2pl or binomial); a table (pandas, polars, Arrow, Hugging
            Face) with columns b and, for a 2PL, a, by id: its column item, or the index; or
            difficulties (vector, Series or mapping by id), for the Rasch model.
        lower: lower end of the window minus theta; -inf for none.
        upper: upper end minus theta; at least ``lower``; inf for none.
        success: target probability of a right answer, between 0 and 1; higher is easier.
        min_length: minimum number of examples; ``short`` applies if the window has fewer.
        short: "order" takes the first ``min_length`` of the order instead of the window (the
            paper's rule), "nearest" takes those nearest to the window.
        order: "easiest" or "hardest" first, or "middle-out": by the distance from the prior's
            mean.
        probe: the examples that the learner answers: "all", "last" (those of the last epoch; all
            before the first), a number, drawn once at random, or positions.
        prior: mean and SD of the prior; by default the bank's population, else 0 and 1.
        missing: "refuse" raises for examples whose difficulty is NaN or whose slope is not above 0,
            by id; with "last" they come after all others in the order, are in no window and no
            probe, and `items` flags them.
        epochs: number of epochs; unlimited by default.
        shuffle: whether an epoch's positions are in random order.
        seed: seed of that order, and of a randomly drawn probe.

    Raises:
        InputError: for a number out of range, an unknown name, another item model, or invalid
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
        estimation); Lalor et al. (2024), EACL tutorial, "Improving Model Training"; Meng, Zeng,
        Lalor & Yu (2024), arXiv 2408.05326 (PUDF: the same idea, with difficulties from a crowd of
        fine-tuned language models).
    """

    _learnt = ("theta", "se", "n_answers")
    _columns = (*_learnt, "n_window")

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
        real = all(isinstance(end, (int, float, np.number)) for end in (lower, upper))
        if not real or not lower <= upper:
            raise argument_error("lower, upper", "two numbers in order", (lower, upper))
        check_interval("success", success)
        check_count("min_length", min_length, 1, len(examples.b))
        check_choice("short", short, SHORT)
        self._prior = examples.population if prior is None else _prior_of(prior)
        with np.errstate(divide="ignore", invalid="ignore"):
            target = examples.b + np.log(success / (1 - success)) / examples.a
        self._target = np.where(examples.known, target, np.nan)
        self._lower, self._upper = float(lower), float(upper)
        self._min_length, self._short = int(min_length), short
        self._order = ordered(self._target, examples.known, order, self._prior[0])
        self._sorted = self._target[self._order]
        self._known = np.flatnonzero(examples.known)
        self._probe = _probe_of(probe, self._known, len(examples.b), seed)
        slopes = examples.a[self._known]
        self._slope = float(slopes[0]) if (slopes == slopes[0]).all() else None
        self._theta, self._se = self._prior
        self._n_answers = 0
        fingerprint = "last" if self._probe is None else crc32(self._probe.astype(int).tobytes())
        # Numbers of NumPy and of Python, which print differently, are the same settings.
        numbers = (self._lower, self._upper, float(success), self._min_length)
        settings = (*numbers, short, order, fingerprint, self._prior)
        super().__init__(examples, repr(settings), epochs, shuffle, seed)
        self._probe_parameters = None if self._probe is None else self._parameters(self._probe)

    @property
    def theta(self) -> float:
        """The learner's ability from the last answers; the prior's mean before any."""
        return self._theta

    @property
    def se(self) -> float:
        """Its standard error; the prior's SD before any answer."""
        return self._se

    @property
    def probe(self) -> IntArray:
        """Positions of the examples to answer before the next epoch."""
        if self._probe is not None:
            return self._probe.copy()
        if not self._rows:
            return self._known.copy()
        last, _ = self._select(self._rows[-1]["theta"])
        return np.sort(last[self._examples.known[last]])

    def update(self, correct: Any, indices: Any) -> None:
        """Estimate the ability from the learner's answers, without earlier ones.

        Args:
            correct: whether each answer was right: booleans, 1 or 0; NaN for no answer.
            indices: positions of the examples answered, in the order of the answers, each once.
                Examples without a difficulty are ignored.

        Raises:
            InputError: for answers that are not right, wrong or missing, or all missing; different
                numbers of answers and positions; or positions out of range or repeated.
        """
        positions, x = np.asarray(indices), np.asarray(correct)
        start = self._theta if self._n_answers else None
        # Skips the checks in the usual case, since an epoch may take only a few milliseconds.
        is_probe = self._probe is not None and np.array_equal(positions, self._probe)
        if is_probe and self._probe_parameters is not None and x.dtype == bool:
            a, b = self._probe_parameters
        else:
            x, a, b = self._answered(x, positions)
        if x.shape != b.shape:
            raise argument_error("correct", f"{len(b)} answers, one per position", x.shape)
        self._theta, self._se = map_ability(x, a, b, self._prior, start)
        self._n_answers = len(b)

    def _answered(
        self, x: np.ndarray, positions: np.ndarray
    ) -> tuple[np.ndarray, FloatArray | float, FloatArray]:
        """The usable answers, and slopes and difficulties of their examples."""
        positions = self._checked_positions(positions)
        if x.shape != positions.shape:
            raise argument_error("correct", f"{len(positions)} answers, one per position", x.shape)
        usable = self._examples.known[positions]
        if x.dtype != bool:
            x, observed = self._checked_answers(x, positions)
            usable &= observed
        if not usable.any():
            raise argument_error("correct", "at least one answer to an example with b", "none")
        return (x[usable], *self._parameters(positions[usable]))

    def _parameters(self, positions: IntArray) -> tuple[FloatArray | float, FloatArray]:
        """Slopes (one number if all examples have the same) and difficulties."""
        a = self._examples.a[positions] if self._slope is None else self._slope
        return a, self._examples.b[positions]

    def _checked_positions(self, positions: np.ndarray) -> IntArray:
        """The positions; raises if one is not an example or repeats."""
        if positions.size == 0:
            positions = np.zeros(0, int)
        if positions.ndim != 1 or not np.issubdtype(positions.dtype, np.integer):
            raise argument_error("indices", "a vector of positions", positions)
        n = self.n_items
        outside = positions[(positions < 0) | (positions >= n)]
        if outside.size:
            raise argument_error("indices", f"positions from 0 to {n - 1}", outside)
        if positions.size and (count := np.bincount(positions, minlength=n)).max() > 1:
            repeated = self._examples.ids[count > 1]
            raise argument_error("indices", "each once", f"repeats of {shorten(repeated)}")
        return positions

    def _checked_answers(self, x: np.ndarray, positions: IntArray) -> tuple[np.ndarray, np.ndarray]:
        """Answers as numbers, and which are observed."""
        try:
            x = x.astype(float)
        except (TypeError, ValueError):
            raise argument_error("correct", "right (1) or wrong (0) answers", x) from None
        observed = ~np.isnan(x)
        invalid = observed & (x != 0) & (x != 1)
        if invalid.any():
            first = int(np.flatnonzero(invalid)[0])
            raise InputError(
                "The `correct` argument must be 1 (right), 0 (wrong) or NaN (no answer). "
                f"Got {x[first]:g} for {brief(self._examples.ids[positions[first]])}."
            )
        return x, observed

    def _select(self, theta: float) -> tuple[IntArray, int]:
        """The examples for an ability, in order, and the number within the window."""
        low, high = theta + self._lower, theta + self._upper
        window = self._order[(self._sorted >= low) & (self._sorted <= high)]
        if len(window) >= self._min_length:
            return window, len(window)
        if self._short == "order":
            return self._order[: self._min_length].copy(), len(window)
        distance = np.maximum(np.maximum(low - self._sorted, self._sorted - high), 0.0)
        # NaN, of examples without a difficulty, sorts last.
        nearest = np.sort(np.argsort(distance, kind="stable")[: self._min_length])
        return self._order[nearest], len(window)

    def _choose(self) -> tuple[IntArray, Row]:
        chosen, n_window = self._select(self._theta)
        return chosen, {**self._state(), "n_window": n_window}


def _prior_of(prior: Any) -> tuple[float, float]:
    """Checked mean and SD of the prior."""
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
        # The extra entries keep it distinct from the epochs' generators [seed, epoch].
        rng = np.random.default_rng([seed, 0, 1])
        return np.sort(rng.choice(known, size=int(probe), replace=False))
    positions = np.asarray(probe)
    integers = positions.ndim == 1 and np.issubdtype(positions.dtype, np.integer)
    if not integers or not np.isin(positions, known).all():
        must = f"positions from 0 to {n - 1} of examples with a difficulty"
        raise argument_error("probe", must, probe)
    if len(positions) == 0 or len(np.unique(positions)) != len(positions):
        raise argument_error("probe", "at least one position, each once", probe)
    return positions.copy()


def map_ability(
    correct: FloatArray,
    a: FloatArray | float,
    b: FloatArray,
    prior: tuple[float, float] = (0.0, 1.0),
    start: float | None = None,
) -> tuple[float, float]:
    """The posterior mode of one learner's ability on Rasch, 1PL or 2PL items.

    The log-posterior ``sum [x eta - log(1 + exp eta)] - (theta - mean)^2 / (2 sd^2)`` with
    ``eta = a (theta - b)`` is strictly concave, so that the root of its derivative

        g(theta) = sum a (x - p) - (theta - mean) / sd^2

    is the mode. Since |sum a (x - p)| is at most sum |a|, the root lies within sd^2 sum |a| of the
    mean. Newton steps stay inside that bracket, which every step narrows; it is halved if the
    steps do not become shorter. Nothing is compiled: a thousand items take some tens of
    microseconds. `irtcat.score` with ``method="map"`` gives the same estimates for many subjects
    and all models, within its bounds.

    Args:
        correct: 1 (right) or 0 for each item answered, or booleans. Not checked.
        a: discriminations, one number or one per item; finite.
        b: difficulties; finite.
        prior: mean and SD of the Normal prior; the SD above 0.
        start: starting value; by default the prior mean.

    Returns:
        The mode and its standard error, ``1 / sqrt(sum a^2 p (1 - p) + 1 / sd^2)``. Without
        items these are the prior's mean and SD.

    Example:
        >>> theta, se = map_ability([1, 1, 0], 1.0, np.array([-1.0, 0.0, 1.0]))
        >>> round(theta, 4), round(se, 4)
        (0.3048, 0.7823)

    References:
        Baker & Kim (2004), Item Response Theory: Parameter Estimation Techniques, 2nd ed., ch. 7
        (Bayes modal estimates).
    """
    mean, sd = prior
    weight = 1.0 / sd**2
    equal_slopes = np.ndim(a) == 0
    slopes: Any = a if equal_slopes else np.asarray(a, float)
    right, total_slope, largest_slope = _totals(slopes, np.asarray(correct), len(b))
    scale = largest_slope * max(largest_slope, 1.0)
    low, high = mean - total_slope / weight, mean + total_slope / weight
    theta = mean if start is None else min(max(start, low), high)
    step = np.inf
    with np.errstate(over="ignore"):
        curve = _curve(slopes, b, theta)
        for _ in range(MAX_STEPS):
            a_p = curve(theta)
            # Sums of a p and of a^2 p (1 - p).
            expected = float(a_p.sum())
            gradient = right - expected - weight * (theta - mean)
            squares = slopes * expected if equal_slopes else _dot(slopes, a_p)
            information = squares - _dot(a_p, a_p) + weight
            low, high = (theta, high) if gradient > 0 else (low, theta)
            new = theta + gradient / information
            if scale * (new - theta) ** 2 < TOLERANCE:
                return new, information**-0.5
            # Steps that do not become shorter could oscillate forever.
            if not low < new < high or abs(new - theta) > 0.5 * step:
                new = 0.5 * (low + high)
            step, theta = abs(new - theta), new
    raise AssertionError("the bracket cannot be open after so many halvings")


def _totals(a: Any, correct: np.ndarray, n: int) -> tuple[float, float, float]:
    """The sums of a x and of |a|, and the largest |a|."""
    if np.ndim(a) == 0:
        return a * float(correct.sum()), abs(a) * n, abs(a)
    size = np.abs(a)
    return _dot(a, correct.astype(float)), float(size.sum()), float(size.max(initial=0.0))


def _dot(x: FloatArray, y: FloatArray) -> float:
    """Inner product in this thread: BLAS threads wait long when a learner keeps the cores busy."""
    if len(x) < ONE_THREAD:
        return float(x @ y)
    return float(np.einsum("i,i->", x, y))


def _curve(a: Any, b: FloatArray, theta: float) -> Callable[[float], FloatArray]:
    """The function that computes each item's a p at an ability, in one reused array.

    For items with equal slopes the odds at one ability are those at another times a constant.
    """
    out = np.empty_like(b, dtype=float)

    def compute(ability: float) -> FloatArray:
        np.subtract(b, ability, out=out)
        np.multiply(a, out, out=out)
        np.exp(out, out=out)
        np.add(out, 1.0, out=out)
        return np.divide(a, out, out=out)

    if np.ndim(a) > 0:
        return compute
    odds = np.exp(a * (b - theta))

    def scaled(ability: float) -> FloatArray:
        exponent = a * (theta - ability)
        if abs(exponent) > MAX_EXPONENT:
            return compute(ability)
        np.multiply(odds, exp(exponent), out=out)
        np.add(out, 1.0, out=out)
        return np.divide(a, out, out=out)

    return scaled

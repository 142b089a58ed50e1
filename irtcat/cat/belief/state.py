"""The state of an adaptive session, and the context of its rules."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Bool, Float

from irtcat.cat.belief.curves import Curves, Matrices, probabilities_at
from irtcat.cat.belief.pool import Pool
from irtcat.cat.rows import Settings
from irtcat.prediction.betting import Bets

NONE = -1
"""Stands for "no item" and "no answer"."""

CONTENT_RELAXED, EXPOSURE_RELAXED = 1, 2
"""Bits of `CatState.relaxed`."""

RELAXED = {"content": CONTENT_RELAXED, "exposure": EXPOSURE_RELAXED}
"""The same by the kind of rules."""

RULES, LOTTERY, ANSWERS, DRAWS = 0, 1, 2, 3
"""Purposes of random numbers: each has its own stream."""


class CatState(NamedTuple):
    """An adaptive session so far: a small pytree, for one session or, stacked, for many.

    Attributes:
        log_like: log-likelihood of the scored answers on the grid; 0 where the belief is Normal.
        information: Fisher information of the scored items on the grid.
        warm: Warm's J of the scored items on the grid.
        prior: mean and SD of the subject's prior; of a density or mixture means, SDs and shares of
            its Normal distributions, 3 x parts; with several abilities (1 + dims) x dims, the means
            in the first row and the precision below.
        open: items that this subject may be asked; None for all.
        administered: items asked so far, answered or not (a mask).
        items: positions of the items answered, in order; `NONE` after them.
        answers: their answers, as category codes from 0.
        thetas: estimate after each answer (with several abilities answers x dims, as ``ses``).
        ses: its standard error.
        n: number of answers.
        scored: number of answers that count (pretest items do not).
        asked: positions of the items asked and not yet answered; `NONE` if there are fewer.
        theta: current estimate.
        se: its standard error; infinite where there is no information.
        gain: expected reduction of the posterior SD by the item chosen (where a rule needs it).
        seconds: time taken so far.
        stop: 0 while the session is running, else 1 + the number of the rule that ended it.
        seed: two words, the source of all randomness of the session.
        relaxed: rules that could not be satisfied when the item at each position was chosen, as the
            sum of `CONTENT_RELAXED` and `EXPOSURE_RELAXED`; None where no rule can be infeasible.
        bets: capital of the bets on the score; None where no stopping rule needs it.
        log_prior: log-density on the grid of a prior that is a density or mixture; None of others,
            which are computed where they are used.
    """

    log_like: Array
    information: Array
    warm: Array
    prior: Array
    open: Array | None
    administered: Array
    items: Array
    answers: Array
    thetas: Array
    ses: Array
    n: Array
    scored: Array
    asked: Array
    theta: Array
    se: Array
    gain: Array
    seconds: Array
    stop: Array
    seed: Array
    relaxed: Array | None
    bets: Bets | None = None
    log_prior: Array | None = None


def uniforms(state: CatState, purpose: int, step: Any, shape: tuple[int, ...]) -> Array:
    """Uniform random numbers in [0, 1) for one purpose at one step of the session."""
    return _uniform(state.seed, purpose, step, shape, state.log_like.dtype)


def _uniform(seed: Array, purpose: int, step: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    key = jax.random.fold_in(jax.random.wrap_key_data(seed), purpose)
    return jax.random.uniform(jax.random.fold_in(key, step), shape, dtype)


def lottery(seed: Array, n_items: int, dtype: Any) -> Array:
    """A uniform random number for each item, constant throughout a session."""
    return _uniform(seed, LOTTERY, 0, (n_items,), dtype)


@dataclass(frozen=True, eq=False)
class Context:
    """Input of a criterion or rule: the pool, the configuration, the session and the estimate.

    Attributes:
        pool: the items.
        config: the rules and their options.
        state: the session so far.
        log_like: log-likelihood on the grid.
        theta: the estimate, which plug-in criteria take as the true ability.
        se: its standard error.
    """

    pool: Pool
    config: Settings
    state: CatState
    log_like: Float[Array, " nodes"]
    theta: Float[Array, "*dims"]
    se: Float[Array, "*dims"]

    @cached_property
    def nodes(self) -> Float[Array, "nodes *dims"]:
        """The nodes of this subject's belief."""
        return self.pool.belief.points(self)

    @cached_property
    def curves(self) -> Curves:
        """Curves of all items at these nodes."""
        return self.pool.belief.curves(self)

    @cached_property
    def posterior(self) -> Float[Array, " nodes"]:
        """Posterior probabilities of the nodes; they sum to 1."""
        prior = self.pool.belief.log_prior(self)
        return jax.nn.softmax(self.log_like + prior + self.pool.log_weights)

    @cached_property
    def likelihood(self) -> Float[Array, " nodes"]:
        """The likelihood as probabilities of the nodes, that is, under a uniform prior."""
        return jax.nn.softmax(self.log_like + self.pool.log_weights)

    @cached_property
    def mean(self) -> Float[Array, "*dims"]:
        """Posterior mean."""
        return self.posterior @ self.nodes

    @cached_property
    def variance(self) -> Float[Array, "*dims"]:
        """Posterior variance of each ability."""
        return self.posterior @ (self.nodes - self.mean) ** 2

    @property
    def is_scored(self) -> Bool[Array, " length"]:
        """Which positions of the test hold a scored answer."""
        state = self.state
        return (state.items >= 0) & (state.answers >= 0) & ~self.pool.pretest[state.items]

    @property
    def open(self) -> Bool[Array, " items"]:
        """Items that this subject may be asked and that have not been asked."""
        administered = self.state.administered
        return ~administered if self.state.open is None else self.state.open & ~administered

    @cached_property
    def n_administered(self) -> Array:
        """Number of scored items asked so far; pretest items do not count."""
        administered = self.state.administered
        return (administered & ~self.pool.pretest if self.config.pretest_at else administered).sum()

    @cached_property
    def information(self) -> Float[Array, " items"]:
        """Fisher information of all items at ``theta`` (the trace of a matrix)."""
        return self.pool.belief.information(self)

    @cached_property
    def matrices(self) -> Matrices:
        """The same as matrices."""
        return self.pool.belief.matrices(self)

    @cached_property
    def _at_theta(self) -> tuple[Array, Array]:
        return probabilities_at(self.pool.model, self.theta)

    @property
    def p(self) -> Float[Array, "items categories"]:
        """Probabilities of all answers at ``theta``."""
        return self._at_theta[0]

    @property
    def log_p(self) -> Float[Array, "items categories"]:
        """Their logarithms."""
        return self._at_theta[1]

    @cached_property
    def noise(self) -> Float[Array, " items"]:
        """A uniform random number for each item, redrawn at every step."""
        return uniforms(self.state, RULES, self.state.administered.sum(), (self.pool.n_items,))

    @cached_property
    def lot(self) -> Float[Array, " items"]:
        """A uniform random number for each item, constant throughout the session."""
        return lottery(self.state.seed, self.pool.n_items, self.log_like.dtype)

"""The state of an adaptive session, and what its rules may look at."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from irtcat.cat._pool import Pool, information_at, probabilities_at

if TYPE_CHECKING:
    from irtcat.cat.config import Config

__all__ = [
    "CONTENT_RELAXED",
    "EXPOSURE_RELAXED",
    "NONE",
    "CatState",
    "Context",
    "log_prior",
    "lottery",
    "uniforms",
]

NONE = -1
"""Stands for "no item" and "no answer"."""

CONTENT_RELAXED, EXPOSURE_RELAXED = 1, 2
"""Bits of `CatState.relaxed`."""

RULES, LOTTERY, ANSWERS, DRAWS = 0, 1, 2, 3
"""What random numbers are for: every purpose has its own."""


class CatState(NamedTuple):
    """An adaptive session so far; a small pytree, the same for one session and, stacked, for many.

    Attributes:
        log_like: log-likelihood of the scored answers on the grid.
        information: Fisher information of the scored items on the grid.
        warm: Warm's J of the scored items on the grid.
        prior: mean and SD of the subject's prior; of several abilities (1 + dims) x dims, the
            mean and below it the precision.
        open: items that may be asked of this subject at all; None where all may.
        given: items asked so far, answered or not.
        items: positions of the items answered, in order; `NONE` after them.
        answers: their answers, as category codes from 0.
        thetas: estimate after each answer (of several abilities answers x dims, as the SEs).
        ses: its standard error.
        n: number of answers.
        scored: number of answers that count (pretest items do not).
        asked: positions of the items asked and not yet answered; `NONE` where fewer.
        theta: current estimate.
        se: its standard error; infinite where nothing is known.
        gain: expected reduction of the posterior SD by the item chosen (where a rule asks for it).
        seconds: time taken so far.
        stop: 0 while the session goes on, else 1 + the number of the rule that ended it.
        seed: two words that all randomness of the session comes from.
        relaxed: rules that could not be kept when the item at each position was chosen, as the
            sum of `CONTENT_RELAXED` and `EXPOSURE_RELAXED`; None where no rule can be infeasible.
    """

    log_like: Array
    information: Array
    warm: Array
    prior: Array
    open: Array | None
    given: Array
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


def log_prior(kind: str, prior: Array, information: Array, theta: Array) -> Array:
    """Log-density of the prior, up to a constant.

    Args:
        kind: "normal", "uniform" or "jeffreys" (the root of the test information).
        prior: mean and SD; of several abilities mean and precision, as in `CatState`.
        information: test information at ``theta``.
        theta: abilities; of several nodes x dims.

    Returns:
        One number for each ability.
    """
    if prior.ndim == 2:
        away = theta - prior[0]
        return -0.5 * ((away @ prior[1:]) * away).sum(axis=-1)
    if kind == "normal":
        return -0.5 * ((theta - prior[0]) / prior[1]) ** 2
    if kind == "uniform":
        return jnp.zeros_like(theta)
    # Next to 0 where nothing informs; before the first answer the same everywhere.
    return 0.5 * jnp.log(jnp.maximum(information, jnp.finfo(information.dtype).tiny))


def uniforms(state: CatState, purpose: int, step: Any, shape: tuple[int, ...]) -> Array:
    """Uniform numbers in [0, 1) of the session for one purpose at one step."""
    return _uniform(state.seed, purpose, step, shape, state.log_like.dtype)


def _uniform(seed: Array, purpose: int, step: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    key = jax.random.fold_in(jax.random.wrap_key_data(seed), purpose)
    return jax.random.uniform(jax.random.fold_in(key, step), shape, dtype)


def lottery(seed: Array, n_items: int, dtype: Any) -> Array:
    """A number for each item, the same throughout a session."""
    return _uniform(seed, LOTTERY, 0, (n_items,), dtype)


@dataclass(frozen=True, eq=False)
class Context:
    """What a criterion or rule may look at: the pool, the session, and what is believed.

    Attributes:
        pool: the items.
        config: the rules and their options.
        state: the session so far.
        log_like: log-likelihood on the grid.
        theta: the ability that plug-in criteria take for true.
        se: its standard error.
    """

    pool: Pool
    config: "Config"
    state: CatState
    log_like: Float[Array, " nodes"]
    theta: Float[Array, "*dims"]
    se: Float[Array, "*dims"]

    @cached_property
    def posterior(self) -> Float[Array, " nodes"]:
        """Posterior probabilities of the nodes; they sum to 1."""
        prior = log_prior(
            self.config.prior, self.state.prior, self.state.information, self.pool.nodes
        )
        return jax.nn.softmax(self.log_like + prior + self.pool.log_weights)

    @cached_property
    def likelihood(self) -> Float[Array, " nodes"]:
        """The likelihood as probabilities of the nodes, that is, under a uniform prior."""
        return jax.nn.softmax(self.log_like + self.pool.log_weights)

    @cached_property
    def mean(self) -> Float[Array, "*dims"]:
        """Posterior mean."""
        return self.posterior @ self.pool.nodes

    @cached_property
    def variance(self) -> Float[Array, "*dims"]:
        """Posterior variance; of several abilities that of each."""
        return self.posterior @ (self.pool.nodes - self.mean) ** 2

    @property
    def open(self) -> Bool[Array, " items"]:
        """Items that may be asked of this subject and have not been."""
        given = self.state.given
        return ~given if self.state.open is None else self.state.open & ~given

    @cached_property
    def administered(self) -> Array:
        """Number of scored items asked so far; those tried out do not count."""
        given = self.state.given
        return (given & ~self.pool.pretest if self.config.pretest_at else given).sum()

    @cached_property
    def information(self) -> Float[Array, " items"]:
        """Fisher information of all items at ``theta``; of several abilities its trace."""
        return information_at(self.pool.model, self.theta)

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
        """A uniform random number for each item, new at every step."""
        return uniforms(self.state, RULES, self.state.given.sum(), (self.pool.n_items,))

    @cached_property
    def lot(self) -> Float[Array, " items"]:
        """A uniform random number for each item, the same throughout the session."""
        return lottery(self.state.seed, self.pool.n_items, self.log_like.dtype)

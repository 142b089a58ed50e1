"""Adaptive sessions as the engine sees them: belief, pool of items, state, and context of rules.

There are two kinds of beliefs, which know the number of abilities. A *grid*
(`irtcat.cat.belief.line` of one ability, `irtcat.cat.belief.space.Grid` of two or three) holds the
posterior at nodes that all subjects share, so that curves are tabulated once. A *Normal* belief
(`irtcat.cat.belief.space.Normal`), of any number of abilities, is the mode and the precision of the
posterior; its nodes are placed around the mode of each subject. Rules read nodes, posterior, curves
and information from the `Context`, which asks the belief.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.cat.belief.curves import Curves, LogisticCurves, Matrices
from irtcat.cat.rows import Settings
from irtcat.models import ItemModel
from irtcat.prediction.betting import Bets


class Estimate(NamedTuple):
    """An estimate of ability and its standard error."""

    theta: Float[Array, "*dims"]
    se: Float[Array, "*dims"]


class Belief(eqx.Module):
    """How the posteriors of sessions are represented: one of a pool, for all its sessions.

    A prior has the means of the abilities in its first row (of one ability: the number first); see
    `CatState` for the rest.

    Attributes:
        nodes: of one ability a vector, of several nodes x abilities.
        log_weights: logarithms of the weights of the nodes.
    """

    nodes: Any
    log_weights: Any

    @property
    def nodes_per_subject(self) -> int:
        """Nodes at which each session computes curves of its own; more make smaller blocks."""
        return 1

    def check_priors(self, rows: FloatArray) -> None:
        """Raise where a prior is too narrow for the nodes; one prior, or many in the first axis."""

    def clip(self, theta: Array) -> Array:
        """An ability within the theta bounds."""
        return theta.clip(self.nodes[0], self.nodes[-1])

    def points(self, context: Any) -> Array:
        """The nodes of one subject."""
        return self.nodes

    def curves(self, context: Any) -> Curves:
        """Curves of all items at the nodes of one subject."""
        return context.pool.curves

    def prior_mean(self, prior: Array) -> Array:
        """Mean of a prior, of each ability."""
        return prior[0]

    def tabulated(self, prior: Array) -> Array | None:
        """The part of `log_prior` that is the same in a whole session, or None."""
        return None

    @abc.abstractmethod
    def log_prior(self, context: Any) -> Array:
        """Log-density of the prior at the nodes, up to a constant."""

    @abc.abstractmethod
    def prior_sd(self, prior: Array) -> Array:
        """SD of a prior, for each ability."""

    @abc.abstractmethod
    def prior_precision(self, context: Any) -> Float[Array, "dims dims"]:
        """Precision of the prior; nearly 0 for a flat one, so that a sum with it is never 0."""

    @abc.abstractmethod
    def information(self, context: Any) -> Float[Array, " items"]:
        """Fisher information of all items at the estimate; the trace for several abilities."""

    @abc.abstractmethod
    def matrices(self, context: Any) -> Matrices:
        """Fisher information matrix of each item at the estimate."""

    @abc.abstractmethod
    def mode(self, context: Any) -> Estimate:
        """The posterior mode, and its standard error."""


class Counts(NamedTuple):
    """Administrations so far, over all sessions; the input of exposure rules.

    Attributes:
        limit: probability that an item is administered once it is selected (Sympson-Hetter; None
            until the parameters are set), or that it is eligible in a session (van der
            Linden-Veldkamp); initially 1.
        administered: number of sessions in which each item was administered.
        eligible: number of sessions in which it was eligible.
        sessions: number of sessions.
    """

    limit: Any
    administered: Any
    eligible: Any
    sessions: Any


@jax.tree_util.register_static
@dataclass(frozen=True)
class FormSolver:
    """How full tests are assembled on the host: no array, so that programs are compiled for it.

    Attributes:
        solve: a function such as `irtcat.cat.rules.best_form`; a server solves in other processes.
    """

    solve: Callable[..., Any]


class Plan(NamedTuple):
    """The content plan as arrays (see `irtcat.cat.engine.plan`).

    Attributes:
        length: number of scored items of a full test.
        planned: target number of items of each group.
        least: fewest items of each group.
        most: most items of each group.
        group: number of each item's group.
        member: items x groups; 1 where a scored item belongs to the group.
        single: the same, only for items without enemies and outside testlets.
        of_set: sets of enemies x groups; 1 for the group of a set that counts as one item.
        kind: row of ``kinds`` for each item.
        kinds: items of each group that an item adds to the test: itself, or its whole testlet.
        kind_tied: 1 where these items depend on items of several groups; None where no item does,
            so that counts by group are exact.
        solver: how full tests are assembled.
    """

    length: Array
    planned: Array
    least: Array
    most: Array
    group: Array
    member: Array
    single: Array
    of_set: Array
    kind: Array
    kinds: Array
    kind_tied: Array | None
    solver: FormSolver


class Contenders(NamedTuple):
    """The items that can be the best, by cell of ability.

    Attributes:
        start: lower end of the first cell.
        per_unit: number of cells in one unit of ability.
        items: positions in the bank in rising order, cells x columns; `NONE` where there are fewer.
        curves: their curves.
    """

    start: Array
    per_unit: Array
    items: Array
    curves: LogisticCurves


class FixedSubset(NamedTuple):
    """The fixed subset that sessions follow (see `irtcat.cat.engine.config.FixedItems`).

    Attributes:
        items: positions of its items in the bank, in order.
        n_core: number of these that are asked first.
        within: the limits of the predicted full score; None for none.
        replayed: logarithms of the lengths of replayed sessions, and the half-width of the 95 %
            interval at each in SDs of the full score by the factors; None without replays.
    """

    items: Any
    n_core: Any
    within: Any
    replayed: Any


class Pool(NamedTuple):
    """A bank as the engine uses it: a pytree of arrays, items first.

    Attributes:
        model: the item model.
        belief: what is believed of a subject before the first answer, and how it is computed.
        log_p: log-probabilities of the answers at the nodes of the belief (see `Curves`).
        p: the probabilities.
        information: Fisher information.
        entropy: entropy of the answer.
        warm: Warm's J; None where no estimator needs it.
        mean: expected score on the benchmark's scale (0 to 1).
        variance: variance of that score.
        score_weights: weights of the items in the benchmark's score; they sum to 1.
        best_theta: ability of greatest information.
        b: difficulty; ``best_theta`` where the model has none.
        stratum: stratum of the item by its discrimination, from 0.
        plan: the content plan; None where no rule needs one.
        enemies: items x sets of enemies; True where the item belongs to the set.
        testlet: number of the item's testlet, from 0; -1 for an item outside testlets.
        pretest: whether the item is a pretest item, which is not scored.
        first: items administered first, in order.
        fixed: the fixed subset that is followed; None without one.
        factors: intercept and loadings of each item in the factor model of the calibrated
            responses, items x (1 + dimensions); None where no criterion needs it.
        seconds: time that an answer takes on average.
        costs: expected cost of each item, above 0; None without costs.
        counts: administrations so far.
        top: highest category of each item.
        near: the items that can be chosen, by cell of ability; None where all items are compared.
    """

    model: ItemModel
    belief: Belief
    log_p: Array
    p: Array
    information: Array
    entropy: Array
    warm: Array | None
    mean: Array
    variance: Array
    score_weights: Array
    best_theta: Array
    b: Array
    stratum: Array
    plan: Plan | None
    enemies: Array
    testlet: Array
    pretest: Array
    first: Array
    fixed: FixedSubset | None
    factors: Array | None
    seconds: Array
    costs: Array | None
    counts: Counts
    top: Array
    near: Contenders | None

    @property
    def n_items(self) -> int:
        """How many items."""
        return self.log_p.shape[0]

    @property
    def nodes(self) -> Array:
        """Nodes of the belief: of one ability a vector, of several nodes x abilities."""
        return self.belief.nodes

    @property
    def log_weights(self) -> Array:
        """Logarithms of their weights."""
        return self.belief.log_weights

    @property
    def curves(self) -> Curves:
        """The tabulated curves."""
        return Curves(*(getattr(self, name) for name in Curves._fields))

    def with_counts(self, counts: Any) -> "Pool":
        """The pool with these counts of exposure, the fields of `Counts`; None changes nothing."""
        if counts is None:
            return self
        with precision(str(self.nodes.dtype)) as dtype:
            return self._replace(
                counts=Counts(*(jnp.asarray(np.asarray(leaf), dtype) for leaf in counts))
            )


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


def is_answered(state: CatState) -> Bool[Array, " length"]:
    """Which positions of the test hold an answer: not those of skipped items."""
    return (state.items >= 0) & (state.answers >= 0)


def informs(state: CatState) -> Bool[Array, " items"]:
    """Items asked whose answers count, also those of a batch before their answers."""
    skipped = (state.items >= 0) & (state.answers < 0)
    at = jnp.where(skipped, state.items, state.administered.shape[0])
    return state.administered.at[at].set(False, mode="drop")


def answer_shares(pool: Pool, state: CatState) -> Float[Array, " length"]:
    """Answers as shares of the highest category, by position; 0 where there is none."""
    # JAX divides whole numbers in float32.
    answers = jnp.maximum(state.answers, 0).astype(pool.score_weights.dtype)
    return answers / jnp.maximum(pool.top[jnp.maximum(state.items, 0)], 1)


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
        return is_answered(self.state) & ~self.pool.pretest[self.state.items]

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
    def log_p(self) -> Float[Array, "items categories"]:
        """Log-probabilities of all answers at ``theta``."""
        at = jnp.atleast_1d(self.theta)
        return jax.vmap(lambda item: item.log_probs(at))(self.pool.model)

    @cached_property
    def p(self) -> Float[Array, "items categories"]:
        """Probabilities of all answers at ``theta``."""
        return jnp.exp(self.log_p)

    @cached_property
    def noise(self) -> Float[Array, " items"]:
        """A uniform random number for each item, redrawn at every step."""
        return uniforms(self.state, RULES, self.state.administered.sum(), (self.pool.n_items,))

    @cached_property
    def lot(self) -> Float[Array, " items"]:
        """A uniform random number for each item, constant throughout the session."""
        return lottery(self.state.seed, self.pool.n_items, self.log_like.dtype)

"""The engine: `start` and `step`, pure functions of arrays for one session or, mapped, for many."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irtcat._compile import jit
from irtcat._precision import precision
from irtcat.cat._contenders import contending
from irtcat.cat._pool import Pool
from irtcat.cat._state import (
    CONTENT_RELAXED,
    EXPOSURE_RELAXED,
    NONE,
    CatState,
    Context,
    lottery,
)
from irtcat.cat._vectors import check_width, prior_rows
from irtcat.cat.config import Config
from irtcat.cat.content import (
    CONTENT,
    keeping_plan,
    triable,
    whole_testlets,
    without_enemies,
)
from irtcat.cat.criteria import CRITERIA, expected_variance
from irtcat.cat.estimators import estimate
from irtcat.cat.exposure import CAN_FAIL, EXPOSURE
from irtcat.cat.sampling import drawn, draws
from irtcat.cat.starting import START, given_theta
from irtcat.cat.stopping import leaves, stops

__all__ = ["ask", "blank", "choose", "context_of", "open_values", "record", "start", "step"]

BRANCHES = 16
"""Outcomes of the items of a batch that are told apart while the next one is chosen."""


def context_of(pool: Pool, config: Config, state: CatState) -> Context:
    """What the rules see of a session."""
    return Context(pool, config, state, state.log_like, state.theta, state.se)


def blank(
    pool: Pool, config: Config, prior: Float[Array, "..."], allowed: Array | None, seed: Array
) -> CatState:
    """A session before its first item is chosen."""
    dtype = pool.nodes.dtype
    most = config.total_items
    zero = jnp.zeros_like(pool.log_weights)
    shape = (most, *pool.nodes.shape[1:])
    given = given_theta(config.start.kwargs())
    theta = prior[0] if given is None else jnp.full_like(prior[0], given)
    infinite = jnp.asarray(jnp.inf, dtype)
    return CatState(
        log_like=zero,
        information=zero,
        warm=zero,
        prior=prior,
        open=allowed,
        given=jnp.zeros(pool.n_items, bool),
        items=jnp.full(most, NONE, jnp.int32),
        answers=jnp.full(most, NONE, jnp.int32),
        thetas=jnp.full(shape, jnp.nan, dtype),
        ses=jnp.full(shape, jnp.nan, dtype),
        n=jnp.asarray(0, jnp.int32),
        scored=jnp.asarray(0, jnp.int32),
        asked=jnp.full(config.batch, NONE, jnp.int32),
        theta=jnp.clip(theta, pool.nodes[0], pool.nodes[-1]).astype(dtype),
        se=_prior_sd(prior) if config.prior == "normal" else infinite,
        gain=infinite,
        seconds=jnp.asarray(0.0, dtype),
        stop=jnp.asarray(0, jnp.int32),
        seed=seed,
        relaxed=jnp.zeros(most, jnp.int8) if tracks_rules(pool, config) else None,
    )


def _prior_sd(prior: Array) -> Array:
    """SD of a Normal prior; of several abilities that of each."""
    return prior[1] if prior.ndim == 1 else jnp.sqrt(jnp.diagonal(jnp.linalg.inv(prior[1:])))


def _at(where: Array, value: Array, into: Array) -> Array:
    """An estimate put at its place among those after each answer."""
    return jnp.where(where.reshape(-1, *[1] * (into.ndim - 1)), value, into)


def record(
    pool: Pool, config: Config, state: CatState, responses: Int[Array, " batch"], seconds: Any = 0.0
) -> CatState:
    """Take the answers to the items asked into the state, and estimate anew.

    An answer of `NONE` (-1) leaves the item out of the likelihood: it was skipped. Where no item
    is asked, that is after the end, the state stays as it is.
    """
    steps = jnp.arange(config.total_items)
    begun = state.asked[0] >= 0
    for j in range(config.batch):
        item, answer = state.asked[j], responses[j]
        asked = item >= 0
        at = jnp.maximum(item, 0)
        counts = asked & (answer >= 0) & ~pool.pretest[at]
        own = pool.log_p[at, jnp.maximum(answer, 0)]
        here = (steps == state.n) & asked
        state = state._replace(
            log_like=state.log_like + jnp.where(counts, own, 0),
            information=state.information + jnp.where(counts, pool.information[at], 0),
            warm=state.warm
            if pool.warm is None
            else state.warm + jnp.where(counts, pool.warm[at], 0),
            items=jnp.where(here, item, state.items),
            answers=jnp.where(here, answer, state.answers),
            n=state.n + asked.astype(state.n.dtype),
            scored=state.scored + counts.astype(state.scored.dtype),
        )
    found = estimate(context_of(pool, config, state))
    moved = begun & (state.scored > 0)
    theta = jnp.where(moved, found.theta, state.theta)
    se = jnp.where(moved, found.se, state.se)
    last = (steps == state.n - 1) & begun
    return state._replace(
        theta=theta,
        se=se,
        thetas=_at(last, theta, state.thetas),
        ses=_at(last, se, state.ses),
        seconds=state.seconds + jnp.where(begun, jnp.asarray(seconds, state.seconds.dtype), 0),
        asked=jnp.full(config.batch, NONE, jnp.int32),
    )


def _slot(config: Config, place: Array) -> Array:
    """Whether this place in the test is one for an item that is tried out."""
    return (jnp.asarray(config.pretest_at, jnp.int32) == place + 1).any()


def open_values(context: Context, values: Array) -> tuple[Array, dict[str, Array], Array]:
    """The values with closed items at minus infinity, by the rules on content and start.

    Args:
        context: the session.
        values: value of each item by the criterion.

    Returns:
        The values, after each rule which items are still open, and whether the rules on content
        could be kept.
    """
    pool, config, state = context.pool, context.config, context.state
    stages: dict[str, Array] = {}
    values = jnp.where(jnp.isnan(values), -jnp.inf, jnp.maximum(values, -1e30))
    tried, slot = values, jnp.asarray(False)

    def note(name: str, values: Array) -> Array:
        stages[name] = jnp.where(slot, tried, values) > -jnp.inf
        return values

    if state.open is not None:
        values = jnp.where(state.open, values, -jnp.inf)
    values = note("not open to this subject", values)
    values = note("asked before", jnp.where(state.given, -jnp.inf, values))
    if config.enemies:
        values = note("enemy of an item given", without_enemies(context, values))
    scored = jnp.where(pool.pretest, -jnp.inf, values)
    if config.pretest_at:
        tried = jnp.where(pool.pretest & (values > -jnp.inf), context.noise, -jnp.inf)
        if pool.plan is not None and config.enemies:
            tried = jnp.where(triable(context, tried, scored), tried, -jnp.inf)
        slot = _slot(config, state.given.sum()) & (tried > -jnp.inf).any()
    values, held = note("pretest", scored), jnp.asarray(True)
    names = {rule.name for rule in config.content}
    going = jnp.asarray(False)
    if "testlets" in names:
        whole, going = whole_testlets(context, values)
        held = whole.max() > -jnp.inf
        values = note("content rule testlets", jnp.where(held, whole, values))
    if pool.plan is not None:
        kept, feasible = keeping_plan(context, values, best="shadow" in names)
        values = note("content plan", jnp.where(going, values, kept))
        held = held & (going | feasible)
    for rule in config.content:
        values = CONTENT[rule.name](context, values, **rule.kwargs())
        note(f"content rule {rule.name}", values)
    if config.sampled > 0:
        values = jnp.where(~draws(config, state.given.sum()), values, drawn(context, values))
    values = jnp.where(slot, tried, values)
    values = START[config.start.name](context, values, **config.start.kwargs())
    return values, stages, held | slot


def tracks_rules(pool: Pool, config: Config) -> bool:
    """Whether some rule of a session may turn out infeasible on the way."""
    testlets = any(rule.name == "testlets" for rule in config.content)
    return pool.plan is not None or testlets or config.exposure.name in CAN_FAIL


def _next_item(context: Context, values: Array | None = None) -> tuple[Array, Array]:
    """The next item by all rules, `NONE` where none is left; and which rules could not be kept."""
    pool, config, state = context.pool, context.config, context.state
    items, held = None, jnp.asarray(True)
    if pool.near is not None and state.open is None:
        items, values = contending(context, pool.near)
    else:
        values = CRITERIA[config.criterion](context) if values is None else values
        values, _, held = open_values(context, values)
    values = jax.lax.optimization_barrier(values)  # computed once, not in every pass over it
    item, exposed = EXPOSURE[config.exposure.name](context, values, **config.exposure.kwargs())
    relaxed = jnp.where(held, 0, CONTENT_RELAXED) + jnp.where(exposed, 0, EXPOSURE_RELAXED)
    item = item.astype(jnp.int32) if items is None else items[item]
    n_first = pool.first.shape[0]
    if n_first:
        place = state.given.sum()
        first = pool.first[jnp.minimum(place, n_first - 1)]
        here = (place < n_first) & context.open[first]
        item, relaxed = jnp.where(here, first, item), jnp.where(here, 0, relaxed)
        return jnp.where(here | (values.max() > -jnp.inf), item, NONE), relaxed
    return jnp.where(values.max() > -jnp.inf, item, NONE), relaxed


def _split(mass: Array, pool: Pool, item: Array) -> Array:
    """Outcomes after one more item: every branch by every answer, neighbours merged to as many.

    Branches are joined in order of their posterior means (of several abilities, of the sum), so
    that what is lost is little; merged outcomes are a mixture, as if one were told only that one of
    them came about.
    """
    n, q = mass.shape
    k = pool.p.shape[1]
    every = (mass[:, None, :] * pool.p[item][None]).reshape(n * k, q)
    total = every.sum(axis=1)
    along = pool.nodes if pool.dims == 1 else pool.nodes.sum(axis=1)
    mean = jnp.where(total > 0, every @ along / jnp.where(total > 0, total, 1), jnp.inf)
    return every[jnp.argsort(mean)].reshape(n, k, q).sum(axis=1)


def _joint_values(context: Context, mass: Array, criterion: Any) -> Array:
    """The criterion's values averaged over the outcomes of the items chosen so far."""
    pool = context.pool
    total = mass.sum(axis=1)
    share = mass / jnp.where(total > 0, total, 1)[:, None]
    prior = jnp.log(jnp.maximum(context.posterior, 1e-30)) - context.log_like - pool.log_weights

    def one(branch: Array) -> Array:
        mean = branch @ pool.nodes
        se = jnp.sqrt(jnp.maximum(branch @ (pool.nodes - mean) ** 2, 1e-12))
        log_like = jnp.log(jnp.maximum(branch, 1e-30)) - prior - pool.log_weights
        return criterion(Context(pool, context.config, context.state, log_like, mean, se))

    values = jax.vmap(one)(share)
    return jnp.where(total[:, None] > 0, values * total[:, None], 0).sum(axis=0)


def _room(pool: Pool, config: Config, given: Array, n: Array) -> Array:
    """Whether a session with these items given, ``n`` in all, has room for a further one."""
    if not config.pretest_at:
        return n < config.max_items
    return (given & ~pool.pretest).sum() < config.max_items


def choose(
    pool: Pool, config: Config, state: CatState
) -> tuple[Int[Array, " batch"], Array, Int[Array, " batch"]]:
    """The next item, or the next batch jointly, and what the first is expected to bring.

    The items of a batch are chosen one after the other, each for its expected value over the
    answers to those before it. `NONE` where there is no item or no room for it.

    Returns:
        The items, the expected gain, and the rules that each could not keep.
    """
    context = context_of(pool, config, state)
    item, relaxed = _next_item(context)
    gain = state.gain
    if any(leaf.name == "pser" for leaf in leaves(config.stopping)):
        after = expected_variance(context, plug_in=False)[jnp.maximum(item, 0)]
        gain = jnp.sqrt(context.variance) - jnp.sqrt(jnp.maximum(after, 0))
        gain = jnp.where(item >= 0, gain, 0)
    first = jnp.where(_room(pool, config, state.given, state.n), item, NONE)
    if config.batch == 1:
        return first[None], gain, relaxed[None]
    criterion = CRITERIA[config.criterion]
    mass = jnp.zeros((BRANCHES, pool.nodes.shape[0]), pool.nodes.dtype).at[0].set(context.posterior)
    Carry = tuple[Array, Array, Array]

    def add(carry: Carry, n: Array) -> tuple[Carry, tuple[Array, Array]]:
        item, given, mass = carry
        given = _marked(given, item)
        mass = _split(mass, pool, jnp.maximum(item, 0))
        then = context_of(pool, config, state._replace(given=given))
        item, relaxed = _next_item(then, _joint_values(then, mass, criterion))
        item = jnp.where(_room(pool, config, given, n), item, NONE)
        return (item, given, mass), (item, relaxed)

    steps = state.n + jnp.arange(1, config.batch)
    _, (rest, rest_relaxed) = jax.lax.scan(add, (first, state.given, mass), steps)
    every = jnp.concatenate([relaxed[None], rest_relaxed])
    return jnp.concatenate([first[None], rest]), gain, every


def _marked(given: Array, item: Array) -> Array:
    """The items given, with one more; `NONE` marks nothing."""
    return given.at[jnp.where(item >= 0, item, given.shape[0])].set(True, mode="drop")


def ask(state: CatState, items: Int[Array, " batch"], relaxed: Array | None = None) -> CatState:
    """Ask these items, chosen where some rules (see `CatState.relaxed`) could not be kept."""
    given, marks = state.given, state.relaxed
    for j in range(items.shape[0]):
        given = _marked(given, items[j])
    if marks is not None and relaxed is not None:
        codes = jnp.where(items >= 0, relaxed, 0).astype(marks.dtype)
        positions = state.n + jnp.arange(items.shape[0])
        marks = marks.at[positions].set(codes, mode="drop")
    return state._replace(asked=items, given=given, relaxed=marks)


def _ended(pool: Pool, config: Config, state: CatState, items: Array) -> Array:
    """Whether a rule, the greatest length or a lack of items ends the session, and which."""
    over, rule = stops(context_of(pool, config, state), config.stopping)
    n_rules = len(leaves(config.stopping))
    over = over & (state.scored >= config.min_items)
    reason = jnp.where(over, rule, 0)
    full = ~_room(pool, config, state.given, state.n) & (reason == 0)
    empty = (items[0] < 0) & ~full & (reason == 0)
    reason = jnp.where(full, n_rules + 1, jnp.where(empty, n_rules + 2, reason))
    return jnp.where(state.stop > 0, state.stop, reason.astype(jnp.int32))


def _start(
    pool: Pool, config: Config, prior: Float[Array, "..."], allowed: Array | None, seed: Array
) -> CatState:
    """A session with its first item asked."""
    state = blank(pool, config, prior, allowed, seed)
    items, gain, relaxed = choose(pool, config, state)
    return ask(state._replace(gain=gain), items, relaxed)


def _step(
    pool: Pool, config: Config, state: CatState, responses: Int[Array, " batch"], seconds: Any = 0.0
) -> CatState:
    """Answers in, next items out; a session that is over stays as it is."""
    was_over = state.stop > 0
    state = record(pool, config, state, responses, seconds)
    items, gain, relaxed = choose(pool, config, state)
    state = state._replace(gain=jnp.where(was_over, state.gain, gain))
    stop = _ended(pool, config, state, items)
    return ask(state._replace(stop=stop), jnp.where(stop > 0, NONE, items), relaxed)


start_compiled = functools.partial(jit, static_argnames=("config",))(_start)
step_compiled = functools.partial(jit, static_argnames=("config",))(_step)


def seed_words(seed: int, stream: int = 0) -> np.ndarray:
    """The two words that all randomness of one session comes from."""
    return np.random.SeedSequence([seed, stream]).generate_state(2).astype(np.uint32)


def lots(seed: int, n_items: int) -> np.ndarray:
    """The numbers by which a lottery let items into the session of a seed (float64)."""
    with precision("float64"):
        return np.asarray(lottery(jnp.asarray(seed_words(seed)), n_items, jnp.float64))


def start(
    pool: Pool,
    config: Config,
    prior: Any = (0.0, 1.0),
    allowed: Any = None,
    seed: int = 0,
) -> CatState:
    """Begin a session: an empty state with the first item (or batch) asked.

    Args:
        pool: what `prepare` made of the bank.
        config: the same configuration.
        prior: mean and SD of this subject's Normal prior, on the bank's scale; of several
            abilities the means, and the SDs or the covariance matrix.
        allowed: mask of the items that this subject may be asked; all by default.
        seed: seed of the session's randomness.

    Returns:
        The state; ``asked`` holds positions in the bank.

    Example:
        >>> from irtcat import ItemBank
        >>> from irtcat.cat import Config, prepare
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0, 1.0], b=[-1.0, 0.1, 1.0])
        >>> config = Config(max_items=2)
        >>> pool = prepare(bank, config)
        >>> state = start(pool, config)
        >>> state.asked.tolist()
        [1]
        >>> state = step(pool, config, state, [1])
        >>> state.asked.tolist(), round(float(state.theta), 2)
        ([2], 0.64)
    """
    rows = prior_rows(prior, pool.dims)
    if pool.dims > 1:
        check_width(pool.nodes, rows)
    with precision(str(pool.nodes.dtype)) as dtype:
        mask = None if allowed is None else jnp.asarray(np.asarray(allowed, bool))
        return start_compiled(
            pool,
            config,
            jnp.asarray(rows, dtype),
            mask,
            jnp.asarray(seed_words(seed)),
        )


def step(
    pool: Pool, config: Config, state: CatState, responses: Any, seconds: float = 0.0
) -> CatState:
    """Take the answers to the items asked, and ask the next.

    Pure: nothing is kept but in the state. Compiled once for a configuration and the shapes of a
    bank; `jax.vmap` of it runs many sessions.

    Args:
        pool: what `prepare` made of the bank.
        config: the same configuration.
        state: the session so far.
        responses: category codes (from 0) of the answers to ``state.asked``, in order; -1 where
            an item was skipped, which leaves it out of the likelihood.
        seconds: time taken since the last answers.

    Returns:
        The new state. Its ``stop`` is 0 while the session goes on, else 1 + the number of the
        stopping rule that ended it (after them: the greatest length, no item left).
    """
    with precision(str(pool.nodes.dtype)) as dtype:
        answers = jnp.asarray(np.broadcast_to(np.asarray(responses, np.int32), (config.batch,)))
        return step_compiled(pool, config, state, answers, jnp.asarray(seconds, dtype))

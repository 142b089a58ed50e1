"""The engine: `start` and `step`, pure functions of arrays for one session or, mapped, for many."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irtcat._common.checks import argument_error
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat.cat.belief.pool import FixedSubset, Pool
from irtcat.cat.belief.priors import prior_row
from irtcat.cat.belief.state import (
    CONTENT_RELAXED,
    EXPOSURE_RELAXED,
    NONE,
    CatState,
    Context,
    lottery,
)
from irtcat.cat.engine.arguments import check_prepared
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.contenders import contending
from irtcat.cat.named_rule import Settings
from irtcat.cat.rules.content import CONTENT, keeping_plan, triable, whole_testlets, without_enemies
from irtcat.cat.rules.criteria import CRITERIA, expected_variance
from irtcat.cat.rules.estimators import estimate
from irtcat.cat.rules.exposure import EXPOSURE
from irtcat.cat.rules.sampling import draw_from, drawn, draws
from irtcat.cat.rules.starting import START, start_theta_of
from irtcat.cat.rules.stopping import score_moments, single_rules, stops
from irtcat.prediction.betting import bet, no_bets

SLACK = 1e-9
"""Tolerance of sums of costs, in budgets."""

BRANCHES = 16
"""Number of distinct outcomes of a batch that are tracked while its next item is chosen."""


@functools.lru_cache(maxsize=256)
def program_of(config: Config) -> Config:
    """What a program is compiled for: the configuration without what the pool holds.

    So all fixed subsets of a length share a program, whatever they were chosen from.
    """
    return replace(config, fixed=None, expect=None)


def context_of(pool: Pool, config: Config, state: CatState) -> Context:
    """The input of the rules for a session."""
    return Context(
        pool=pool,
        config=config,
        state=state,
        log_like=state.log_like,
        theta=state.theta,
        se=state.se,
    )


def blank(
    pool: Pool, config: Config, prior: Float[Array, "..."], allowed: Array | None, seed: Array
) -> CatState:
    """A session before its first item is chosen."""
    dtype = pool.nodes.dtype
    length = config.total_items
    zero = jnp.zeros_like(pool.log_weights)
    start_theta = start_theta_of(config.start.kwargs())
    mean = pool.belief.prior_mean(prior)
    theta = mean if start_theta is None else jnp.full_like(mean, start_theta)
    shape = (length, *theta.shape)
    infinite = jnp.asarray(jnp.inf, dtype)
    return CatState(
        log_like=zero,
        information=zero,
        warm=zero,
        prior=prior,
        open=allowed,
        administered=jnp.zeros(pool.n_items, bool),
        items=jnp.full(length, NONE, jnp.int32),
        answers=jnp.full(length, NONE, jnp.int32),
        thetas=jnp.full(shape, jnp.nan, dtype),
        ses=jnp.full(shape, jnp.nan, dtype),
        n=jnp.asarray(0, jnp.int32),
        scored=jnp.asarray(0, jnp.int32),
        asked=jnp.full(config.batch, NONE, jnp.int32),
        theta=pool.belief.clip(theta).astype(dtype),
        se=pool.belief.prior_sd(prior) if config.prior == "normal" else infinite,
        gain=infinite,
        seconds=jnp.asarray(0.0, dtype),
        stop=jnp.asarray(0, jnp.int32),
        seed=seed,
        relaxed=jnp.zeros(length, jnp.int8) if tracks_rules(pool, config) else None,
        bets=no_bets((), jnp, dtype) if config.is_guaranteed else None,
        log_prior=pool.belief.tabulated(prior),
    )


def _stored_at(here: Array, value: Array, estimates: Array) -> Array:
    """Store an estimate at the position of the last answer."""
    return jnp.where(here.reshape(-1, *[1] * (estimates.ndim - 1)), value, estimates)


def record(
    pool: Pool, config: Config, state: CatState, responses: Int[Array, " batch"], seconds: Any = 0.0
) -> CatState:
    """Add the answers to the items asked to the state, and update the estimate.

    An answer of `NONE` (-1) means that the item was skipped: it is left out of the likelihood.
    After the end, when no item is asked, the state does not change.
    """
    steps = jnp.arange(config.total_items)
    active = state.asked[0] >= 0
    before, open_items = context_of(pool, config, state), _open_before(state)
    for j in range(config.batch):
        item, answer = state.asked[j], responses[j]
        asked = item >= 0
        at = jnp.maximum(item, 0)
        counts = asked & (answer >= 0) & ~pool.pretest[at]
        log_p = pool.log_p[at, jnp.maximum(answer, 0)]
        current = (steps == state.n) & asked
        state = state._replace(
            log_like=state.log_like + jnp.where(counts, log_p, 0),
            information=state.information + jnp.where(counts, pool.information[at], 0),
            warm=state.warm
            if pool.warm is None
            else state.warm + jnp.where(counts, pool.warm[at], 0),
            items=jnp.where(current, item, state.items),
            answers=jnp.where(current, answer, state.answers),
            n=state.n + asked.astype(state.n.dtype),
            scored=state.scored + counts.astype(state.scored.dtype),
        )
        if state.bets is not None:
            after = bet(state.bets, draw_from(before, state, open_items, at, state.bets.tuning))
            bets = jax.tree.map(functools.partial(jnp.where, asked), after, state.bets)
            state, open_items = state._replace(bets=bets), open_items.at[at].set(False)
    updated = estimate(context_of(pool, config, state))
    moved = active & (state.scored > 0)
    theta = jnp.where(moved, updated.theta, state.theta)
    se = jnp.where(moved, updated.se, state.se)
    last = (steps == state.n - 1) & active
    return state._replace(
        theta=theta,
        se=se,
        thetas=_stored_at(last, theta, state.thetas),
        ses=_stored_at(last, se, state.ses),
        seconds=state.seconds + jnp.where(active, jnp.asarray(seconds, state.seconds.dtype), 0),
        asked=jnp.full(config.batch, NONE, jnp.int32),
    )


def _open_before(state: CatState) -> Array:
    """The items that were open when those asked were drawn."""
    asked = jnp.where(state.asked >= 0, state.asked, state.administered.shape[0])
    return (~state.administered).at[asked].set(True, mode="drop")


def _is_pretest_position(config: Settings, position: Array) -> Array:
    """Whether this position in the test (from 0) is one for a pretest item."""
    return (jnp.asarray(config.pretest_at, jnp.int32) == position + 1).any()


def open_values(context: Context, values: Array) -> tuple[Array, dict[str, Array], Array]:
    """Apply the content and start rules: closed items get the value minus infinity.

    Args:
        context: the session.
        values: value of each item by the criterion.

    Returns:
        The values, the items still open after each rule, and whether the content rules could be
        satisfied.
    """
    pool, config, state = context.pool, context.config, context.state
    stages: dict[str, Array] = {}
    values = jnp.where(jnp.isnan(values), -jnp.inf, jnp.maximum(values, -1e30))
    pretest_values, at_pretest = values, jnp.asarray(False)

    def note(name: str, values: Array) -> Array:
        stages[name] = jnp.where(at_pretest, pretest_values, values) > -jnp.inf
        return values

    if state.open is not None:
        values = jnp.where(state.open, values, -jnp.inf)
    values = note("not open to this subject", values)
    values = note("asked before", jnp.where(state.administered, -jnp.inf, values))
    if config.budget is not None:
        values = note("beyond the budget", within_budget(context, values))
    if config.enemies:
        values = note("enemy of an item asked", without_enemies(context, values))
    scored = jnp.where(pool.pretest, -jnp.inf, values)
    if config.pretest_at:
        pretest_values = jnp.where(pool.pretest & (values > -jnp.inf), context.noise, -jnp.inf)
        if pool.plan is not None and config.enemies:
            pretest_values = jnp.where(
                triable(context, pretest_values, scored), pretest_values, -jnp.inf
            )
        at_pretest = (
            _is_pretest_position(config, state.administered.sum())
            & (pretest_values > -jnp.inf).any()
        )
    values, satisfied = note("pretest", scored), jnp.asarray(True)
    names = {rule.name for rule in config.content}
    testlet_open = jnp.asarray(False)
    if "testlets" in names:
        in_testlets, testlet_open = whole_testlets(context, values)
        satisfied = in_testlets.max() > -jnp.inf
        values = note("content rule testlets", jnp.where(satisfied, in_testlets, values))
    if pool.plan is not None:
        in_plan, feasible = keeping_plan(context, values, best="shadow" in names)
        values = note("content plan", jnp.where(testlet_open, values, in_plan))
        satisfied = satisfied & (testlet_open | feasible)
    for rule in config.content:
        values = CONTENT[rule.name](context, values, **rule.kwargs())
        note(f"content rule {rule.name}", values)
    if config.sampled > 0:
        values = jnp.where(~draws(config, state.administered.sum()), values, drawn(context, values))
    values = jnp.where(at_pretest, pretest_values, values)
    values = START[config.start.name](context, values, **config.start.kwargs())
    return values, stages, satisfied | at_pretest


def tracks_rules(pool: Pool, config: Config) -> bool:
    """Whether a rule may become infeasible during a session."""
    testlets = any(rule.name == "testlets" for rule in config.content)
    return pool.plan is not None or testlets or EXPOSURE[config.exposure.name].can_fail


def _next_item(context: Context, values: Array | None = None) -> tuple[Array, Array]:
    """The next item by all rules (`NONE` if none is left), and the rules that were relaxed."""
    pool, config, state = context.pool, context.config, context.state
    items, held = None, jnp.asarray(True)
    if pool.near is not None and state.open is None:
        items, values = contending(context, pool.near)
    else:
        values = CRITERIA[config.criterion](context) if values is None else values
        values, _, held = open_values(context, per_cost(context, values))
    values = jax.lax.optimization_barrier(values)  # computed once, not in every pass over it
    item, exposed = EXPOSURE[config.exposure.name](context, values, **config.exposure.kwargs())
    relaxed = jnp.where(held, 0, CONTENT_RELAXED) + jnp.where(exposed, 0, EXPOSURE_RELAXED)
    item = item.astype(jnp.int32) if items is None else items[item]
    n_first = pool.first.shape[0]
    if n_first:
        position = state.administered.sum()
        first = pool.first[jnp.minimum(position, n_first - 1)]
        is_first = (position < n_first) & context.open[first]
        item, relaxed = jnp.where(is_first, first, item), jnp.where(is_first, 0, relaxed)
        return jnp.where(is_first | (values.max() > -jnp.inf), item, NONE), relaxed
    item = jnp.where(values.max() > -jnp.inf, item, NONE)
    return item if pool.fixed is None else _from_fixed(context, pool.fixed, item, values), relaxed


def per_cost(context: Context, values: Array) -> Array:
    """Values for each unit of the items' costs, where the criterion divides by them."""
    costs = context.pool.costs
    divides = CRITERIA[context.config.criterion].by_cost == "divide"
    return values if costs is None or not divides else values / costs


def within_budget(context: Context, values: Array) -> Array:
    """Close the items that cost more than the items asked have left of the budget."""
    costs, budget = context.pool.costs, context.config.budget
    assert costs is not None
    assert budget is not None
    left = budget - jnp.where(context.state.administered, costs, 0).sum()
    return jnp.where(costs <= left + SLACK * budget, values, -jnp.inf)


def _from_fixed(context: Context, fixed: FixedSubset, item: Array, values: Array) -> Array:
    """The next item of the fixed subset where it is followed, else this one."""
    follows = context.n_administered < fixed.n_core
    if fixed.within is not None:
        low, high = fixed.within
        score, variance = score_moments(context)
        sd = jnp.sqrt(variance)
        follows = follows | (score - sd < low) | (score + sd > high)
    is_open = (values > -jnp.inf)[fixed.items]
    following = fixed.items[is_open.argmax()]
    return jnp.where(follows & is_open.any(), following, item)


def _split(mass: Array, context: Context, item: Array) -> Array:
    """Outcomes after one more item: every branch by every answer, merged to as many branches.

    Neighbours in the order of the posterior means (with several abilities, of their sum) are
    merged, so little is lost; merged outcomes are a mixture, as if only their union were observed.
    """
    n, q = mass.shape
    p = context.curves.p[item]
    outcomes = (mass[:, None, :] * p[None]).reshape(-1, q)
    total = outcomes.sum(axis=1)
    order = context.nodes.reshape(q, -1).sum(axis=1)
    mean = jnp.where(total > 0, outcomes @ order / jnp.where(total > 0, total, 1), jnp.inf)
    return outcomes[jnp.argsort(mean)].reshape(n, -1, q).sum(axis=1)


def _joint_values(context: Context, mass: Array, criterion: Any) -> Array:
    """The criterion averaged over the outcomes of the items chosen so far."""
    pool = context.pool
    total = mass.sum(axis=1)
    share = mass / jnp.where(total > 0, total, 1)[:, None]
    prior = jnp.log(jnp.maximum(context.posterior, 1e-30)) - context.log_like - pool.log_weights

    def one(branch: Array) -> Array:
        mean = branch @ context.nodes
        se = jnp.sqrt(jnp.maximum(branch @ (context.nodes - mean) ** 2, 1e-12))
        log_like = jnp.log(jnp.maximum(branch, 1e-30)) - prior - pool.log_weights
        return criterion(
            Context(
                pool=pool,
                config=context.config,
                state=context.state,
                log_like=log_like,
                theta=mean,
                se=se,
            )
        )

    values = jax.vmap(one)(share)
    return jnp.where(total[:, None] > 0, values * total[:, None], 0).sum(axis=0)


def _room(pool: Pool, config: Config, administered: Array, n: Array) -> Array:
    """Whether a session with these ``n`` items asked has room for another one."""
    if not config.pretest_at:
        return n < config.max_items
    return (administered & ~pool.pretest).sum() < config.max_items


def choose(
    pool: Pool, config: Config, state: CatState
) -> tuple[Int[Array, " batch"], Array, Int[Array, " batch"]]:
    """Choose the next item, or the next batch jointly.

    The items of a batch are chosen one after the other by their expected value over the answers to
    those before. `NONE` where there is no item or no room for it.

    Returns:
        The items, the expected gain of the first, and for each item the rules that were relaxed.
    """
    context = context_of(pool, config, state)
    item, relaxed = _next_item(context)
    gain = state.gain
    if any(leaf.name == "pser" for leaf in single_rules(config.stopping)):
        after = expected_variance(context, plug_in=False)[jnp.maximum(item, 0)]
        gain = jnp.sqrt(context.variance) - jnp.sqrt(jnp.maximum(after, 0))
        gain = jnp.where(item >= 0, gain, 0)
    first = jnp.where(_room(pool, config, state.administered, state.n), item, NONE)
    if config.batch == 1:
        return first[None], gain, relaxed[None]
    criterion = CRITERIA[config.criterion]
    mass = jnp.zeros((BRANCHES, pool.nodes.shape[0]), pool.nodes.dtype).at[0].set(context.posterior)
    Carry = tuple[Array, Array, Array]

    def add(carry: Carry, n: Array) -> tuple[Carry, tuple[Array, Array]]:
        item, administered, mass = carry
        administered = _with_item(administered, item)
        mass = _split(mass, context, jnp.maximum(item, 0))
        context_after = context_of(pool, config, state._replace(administered=administered))
        item, relaxed = _next_item(context_after, _joint_values(context_after, mass, criterion))
        item = jnp.where(_room(pool, config, administered, n), item, NONE)
        return (item, administered, mass), (item, relaxed)

    steps = state.n + jnp.arange(1, config.batch)
    _, (rest, rest_relaxed) = jax.lax.scan(add, (first, state.administered, mass), steps)
    codes = jnp.concatenate([relaxed[None], rest_relaxed])
    return jnp.concatenate([first[None], rest]), gain, codes


def _with_item(administered: Array, item: Array) -> Array:
    """The items asked, with one more; `NONE` marks nothing."""
    return administered.at[jnp.where(item >= 0, item, administered.shape[0])].set(True, mode="drop")


def ask(state: CatState, items: Int[Array, " batch"], relaxed: Array | None = None) -> CatState:
    """Mark these items as asked, with the rules that were relaxed (see `CatState.relaxed`)."""
    administered, marks = state.administered, state.relaxed
    for j in range(items.shape[0]):
        administered = _with_item(administered, items[j])
    if marks is not None and relaxed is not None:
        codes = jnp.where(items >= 0, relaxed, 0).astype(marks.dtype)
        positions = state.n + jnp.arange(items.shape[0])
        marks = marks.at[positions].set(codes, mode="drop")
    return state._replace(asked=items, administered=administered, relaxed=marks)


def _ended(pool: Pool, config: Config, state: CatState, items: Array) -> Array:
    """The reason that ends the session (rule, maximum length, no item left); 0 while it runs."""
    over, rule = stops(context_of(pool, config, state), config.stopping)
    n_rules = len(single_rules(config.stopping))
    over = over & (state.scored >= config.min_items)
    reason = jnp.where(over, rule, 0)
    is_full = ~_room(pool, config, state.administered, state.n) & (reason == 0)
    none_left = (items[0] < 0) & ~is_full & (reason == 0)
    reason = jnp.where(is_full, n_rules + 1, jnp.where(none_left, n_rules + 2, reason))
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
    """Record answers and choose the next items; a session that is over does not change."""
    was_over = state.stop > 0
    state = record(pool, config, state, responses, seconds)
    items, gain, relaxed = choose(pool, config, state)
    state = state._replace(gain=jnp.where(was_over, state.gain, gain))
    stop = _ended(pool, config, state, items)
    return ask(state._replace(stop=stop), jnp.where(stop > 0, NONE, items), relaxed)


start_compiled = functools.partial(jit, static_argnames=("config",))(_start)
step_compiled = functools.partial(jit, static_argnames=("config",))(_step)


def seed_words(seed: int, stream: int = 0) -> np.ndarray:
    """The two words that seed all randomness of one session."""
    return np.random.SeedSequence([seed, stream]).generate_state(2).astype(np.uint32)


def lots(seed: int, n_items: int) -> np.ndarray:
    """The lottery numbers of all items in the session of a seed (float64)."""
    with precision("float64"):
        return np.asarray(lottery(jnp.asarray(seed_words(seed)), n_items, jnp.float64))


def start(
    pool: Pool, config: Config, prior: Any = (0.0, 1.0), allowed: Any = None, seed: int = 0
) -> CatState:
    """Begin a session: an empty state with the first item (or batch) asked.

    Args:
        pool: the bank as returned by `prepare`.
        config: the same configuration.
        prior: mean and SD of this subject's Normal prior, on the bank's scale, or a `Population`;
            with several abilities the means, and the SDs or the covariance matrix.
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

    Raises:
        InputError: for a pool that `prepare` did not return, another configuration than a `Config`,
            or a mask of another length.
    """
    check_prepared(pool, config)
    row = prior_row(prior, pool.model.dims)
    pool.belief.check_priors(row)
    with precision(str(pool.nodes.dtype)) as dtype:
        mask = None if allowed is None else jnp.asarray(_mask(allowed, pool.n_items))
        return start_compiled(
            pool, program_of(config), jnp.asarray(row, dtype), mask, jnp.asarray(seed_words(seed))
        )


def step(
    pool: Pool, config: Config, state: CatState, responses: Any, seconds: float = 0.0
) -> CatState:
    """Record the answers to the items asked, and choose the next items.

    A pure function, compiled once for a configuration and the shapes of a bank; `jax.vmap` of it
    runs many sessions.

    Args:
        pool: the bank as returned by `prepare`.
        config: the same configuration.
        state: the session so far.
        responses: category codes (from 0) of the answers to ``state.asked``, in order; -1 where an
            item was skipped (left out of the likelihood).
        seconds: time taken since the last answers.

    Returns:
        The new state. Its ``stop`` is 0 while the session is running, else 1 + the number of the
        stopping rule that ended it (then: the maximum length, no item left).

    Raises:
        InputError: for a pool or state of another kind, or answers that are not one code for each
            item asked.
    """
    check_prepared(pool, config, state)
    with precision(str(pool.nodes.dtype)) as dtype:
        answers = jnp.asarray(_codes(responses, config.batch))
        return step_compiled(pool, program_of(config), state, answers, jnp.asarray(seconds, dtype))


def _mask(allowed: Any, n: int) -> np.ndarray:
    """The mask of the items that may be asked."""
    mask = np.asarray(allowed)
    if mask.dtype != bool or mask.shape != (n,):
        raise argument_error("allowed", f"a boolean mask of the {n} items of the bank", allowed)
    return mask


def _codes(responses: Any, batch: int) -> np.ndarray:
    """The codes of the answers to the items asked."""
    codes = np.asarray(responses)
    is_whole = codes.dtype.kind in "iubf" and bool((codes == np.floor(codes)).all())
    if not is_whole or codes.shape not in ((), (batch,)):
        must = f"{batch} category codes (whole numbers from 0, or -1), one for each item asked"
        raise argument_error("responses", must, responses)
    return np.broadcast_to(codes.astype(np.int32), (batch,))

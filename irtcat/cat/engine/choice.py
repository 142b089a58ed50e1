"""The choice of the next item or batch: a criterion under content, exposure and start rules."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from irtcat.cat.belief.state import (
    CONTENT_RELAXED,
    EXPOSURE_RELAXED,
    NONE,
    CatState,
    Context,
    FixedSubset,
    Pool,
)
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.contenders import contending
from irtcat.cat.rules.content import CONTENT, keeping_plan, triable, whole_testlets, without_enemies
from irtcat.cat.rules.criteria import CRITERIA, expected_variance
from irtcat.cat.rules.exposure import EXPOSURE
from irtcat.cat.rules.sampling import drawn, draws
from irtcat.cat.rules.starting import START
from irtcat.cat.rules.stopping import score_moments, single_rules

SLACK = 1e-9
"""Tolerance of sums of costs, in budgets."""

BRANCHES = 16
"""Number of distinct outcomes of a batch that are tracked while its next item is chosen."""


def context_of(pool: Pool, config: Config, state: CatState) -> Context:
    """The input of the rules for a session."""
    return Context(pool, config, state, state.log_like, state.theta, se=state.se)


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
        is_position = jnp.asarray(config.pretest_at, jnp.int32) == state.administered.sum() + 1
        at_pretest = is_position.any() & (pretest_values > -jnp.inf).any()
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
    Impossible outcomes come last and take no branch. A pretest item says nothing.
    """
    n, q = mass.shape
    p = context.curves.p[item]
    outcomes = (mass[:, None, :] * p[None]).reshape(-1, q)
    total = outcomes.sum(axis=1)
    order = context.nodes.reshape(q, -1).sum(axis=1)
    mean = jnp.where(total > 0, outcomes @ order / jnp.where(total > 0, total, 1), jnp.inf)
    rank, n_possible = jnp.arange(len(total)), (total > 0).sum()
    branch = jnp.minimum(rank * n // jnp.maximum(n_possible, n), n - 1)
    merged = jnp.zeros_like(mass).at[branch].add(outcomes[jnp.argsort(mean)])
    return jnp.where(context.pool.pretest[item], mass, merged)


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
        return criterion(replace(context, log_like=log_like, theta=mean, se=se))

    values = jax.vmap(one)(share)
    return jnp.where(total[:, None] > 0, values * total[:, None], 0).sum(axis=0)


def has_room(pool: Pool, config: Config, administered: Array, n: Array) -> Array:
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
        # A pretest item is asked for its own sake: it says nothing of what scored ones would gain.
        gain = jnp.where(pool.pretest[item] & (item >= 0), jnp.inf, gain)
    first = jnp.where(has_room(pool, config, state.administered, state.n), item, NONE)
    if config.batch == 1:
        return first[None], gain, relaxed[None]
    criterion = CRITERIA[config.criterion]
    mass = jnp.zeros((BRANCHES, pool.nodes.shape[0]), pool.nodes.dtype).at[0].set(context.posterior)
    Carry = tuple[Array, Array, Array]

    def add(carry: Carry, n: Array) -> tuple[Carry, tuple[Array, Array]]:
        item, administered, mass = carry
        administered = with_item(administered, item)
        mass = _split(mass, context, jnp.maximum(item, 0))
        context_after = context_of(pool, config, state._replace(administered=administered))
        item, relaxed = _next_item(context_after, _joint_values(context_after, mass, criterion))
        item = jnp.where(has_room(pool, config, administered, n), item, NONE)
        return (item, administered, mass), (item, relaxed)

    steps = state.n + jnp.arange(1, config.batch)
    _, (rest, rest_relaxed) = jax.lax.scan(add, (first, state.administered, mass), steps)
    codes = jnp.concatenate([relaxed[None], rest_relaxed])
    return jnp.concatenate([first[None], rest]), gain, codes


def with_item(administered: Array, item: Array) -> Array:
    """The items asked, with one more; `NONE` marks nothing."""
    return administered.at[jnp.where(item >= 0, item, administered.shape[0])].set(True, mode="drop")

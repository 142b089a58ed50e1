"""Which items may be asked: by budget, pretest positions, and the content and start rules."""

import jax.numpy as jnp
from jaxtyping import Array

from irtcat.cat.belief.state import Context
from irtcat.cat.named_rule import Settings
from irtcat.cat.rules.content import CONTENT, keeping_plan, triable, whole_testlets, without_enemies
from irtcat.cat.rules.criteria import CRITERIA
from irtcat.cat.rules.sampling import drawn, draws
from irtcat.cat.rules.starting import START

SLACK = 1e-9
"""Tolerance of sums of costs, in budgets."""


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
        values = note("beyond the budget", _within_budget(context, values))
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


def _is_pretest_position(config: Settings, position: Array) -> Array:
    """Whether this position in the test (from 0) is one for a pretest item."""
    return (jnp.asarray(config.pretest_at, jnp.int32) == position + 1).any()


def per_cost(context: Context, values: Array) -> Array:
    """Values for each unit of the items' costs, where the criterion divides by them."""
    costs = context.pool.costs
    divides = CRITERIA[context.config.criterion].by_cost == "divide"
    return values if costs is None or not divides else values / costs


def _within_budget(context: Context, values: Array) -> Array:
    """Close the items that cost more than the items asked have left of the budget."""
    costs, budget = context.pool.costs, context.config.budget
    assert costs is not None
    assert budget is not None
    left = budget - jnp.where(context.state.administered, costs, 0).sum()
    return jnp.where(costs <= left + SLACK * budget, values, -jnp.inf)

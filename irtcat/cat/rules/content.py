"""Content rules: which items are compatible with the plan, and which of these are preferred.

Before the first item `irtcat.cat.prepare` rounds the targets to a plan of whole numbers of items
that some test from the bank satisfies (`irtcat.cat.engine.plan`). During a session, hard rules
first close items: enemies of items asked, testlets that would be cut, and items after which no full
test satisfies the plan. So a plan that is feasible at the start stays feasible. Then the rules of
the configuration prefer some of the remaining items. If no test satisfies the plan any more (for
example, a replayed subject has not answered the items needed), the bounds are relaxed as little as
necessary, and the step is marked in `CatState.relaxed`.

A preference takes a `Context`, the values of all items (minus infinity where an item may not be
asked) and its own options, and returns new values.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from irtcat._common.registry import Registry
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.cat.belief.state import NONE, Context, Plan
from irtcat.cat.rows import GROUP, ContentRule
from irtcat.cat.rules.assembly import Rules


def group_counts(context: Context) -> Array:
    """Number of scored items asked from each content group."""
    plan = _plan_of(context)
    return context.state.administered.astype(plan.member.dtype) @ plan.member


def _plan_of(context: Context) -> Plan:
    plan = context.pool.plan
    assert plan is not None
    return plan


def without_enemies(context: Context, values: Array) -> Array:
    """Close the enemies of the items asked."""
    met = (context.pool.enemies & context.state.administered[:, None]).any(axis=0)
    return jnp.where((context.pool.enemies & met).any(axis=1), -jnp.inf, values)


def whole_testlets(context: Context, values: Array) -> tuple[Array, Array]:
    """Once a testlet is begun, open only its remaining items; close testlets that would be cut.

    Returns:
        The values, and whether a testlet has been begun and not finished.
    """
    testlet, administered = context.pool.testlet, context.state.administered
    usable, single = values > -jnp.inf, testlet == NONE
    # Numbers run from 0; -1 (no testlet) writes to the last element, which is never read.
    flags = jnp.zeros(testlet.shape[0] + 1, bool)
    begun = flags.at[testlet].max(administered)[testlet] & ~single
    cut = flags.at[testlet].max(~usable & ~administered)[testlet] & ~single
    remaining = begun & usable
    in_progress = remaining.any()
    return jnp.where(
        jnp.where(in_progress, remaining, single | ~cut), values, -jnp.inf
    ), in_progress


class Limits(NamedTuple):
    """Bounds on the items of each group, and the length."""

    least: Array
    most: Array
    length: Array


def _supply(context: Context, usable: Array) -> Array:
    """Items of each group that can still be asked, whatever the others are."""
    plan = _plan_of(context)
    out = usable.astype(plan.member.dtype) @ plan.single
    if context.config.enemies:
        usable_sets = (context.pool.enemies & usable[:, None]).any(axis=0)
        out = out + usable_sets.astype(out.dtype) @ plan.of_set
    return out


def _attainable(requested: Limits, counts: Array, supply: Array) -> Limits:
    """The limits if they are attainable, else the nearest attainable ones."""
    least = jnp.minimum(requested.least, counts + supply)
    most = jnp.maximum(requested.most, counts)
    needed = jnp.maximum(counts, least).sum()
    length = jnp.minimum(
        jnp.maximum(requested.length, needed), jnp.minimum(most, counts + supply).sum()
    )
    return Limits(least, most, length)


def _completable(limits: Limits, counts: Array, supply: Array) -> Array:
    """Whether counts of the groups can become those of a full test (groups in the last axis)."""
    within_bounds = (counts <= limits.most) & (counts + supply >= limits.least)
    least = jnp.maximum(counts, limits.least).sum(axis=-1)
    most = jnp.minimum(limits.most, counts + supply).sum(axis=-1)
    return within_bounds.all(axis=-1) & (least <= limits.length) & (most >= limits.length)


def keeping_plan(context: Context, values: Array, best: bool = False) -> tuple[Array, Array]:
    """Open only items after which a full test can still satisfy the plan.

    Feasibility is counted where the items of a group are interchangeable. Where testlets or sets of
    enemies tie items of several groups together, items that counting cannot decide are open if they
    are in the best full test, found by integer programming on the host.

    Args:
        context: the session.
        values: value of each item.
        best: open only the free items of the best full test ("shadow").

    Returns:
        The values, and whether a test that satisfies the plan exists.
    """
    plan, usable = _plan_of(context), values > -jnp.inf
    counts = group_counts(context)
    # Skipped items can make a session longer than the plan; its bounds still apply.
    requested = Limits(plan.least, plan.most, jnp.maximum(plan.length, counts.sum() + 1))
    certain_supply = _supply(context, usable)
    supply = certain_supply
    if plan.kind_tied is not None:
        supply = usable.astype(supply.dtype) @ plan.member
    limits = _attainable(requested, counts, supply)
    satisfied = jnp.stack(
        [(attained == wanted).all() for attained, wanted in zip(limits, requested, strict=True)]
    ).all()
    after = counts + plan.kinds
    possible = usable & _completable(limits, after, supply - plan.kinds)[plan.kind]
    open_ = possible
    if best or plan.kind_tied is not None:
        tied = jnp.zeros(len(plan.kinds)) if plan.kind_tied is None else plan.kind_tied
        supply_after = certain_supply - plan.kinds * (1 - tied)[:, None]
        certain = usable & _completable(requested, after, supply_after)[plan.kind]
        open_, solved = jax.pure_callback(
            partial(_solved, plan.solver.solve),
            (jax.ShapeDtypeStruct(values.shape, bool), jax.ShapeDtypeStruct((), bool)),
            values,
            context.state.administered & (plan.member > 0).any(axis=1),
            possible,
            certain & (not best),
            {"length": requested.length, "group": plan.group, "low": plan.least, "high": plan.most},
            {"enemies": context.pool.enemies, "testlet": context.pool.testlet},
            vmap_method="sequential",
        )
        satisfied = satisfied & solved
    any_open = open_.any()
    return jnp.where(any_open & ~open_, -jnp.inf, values), satisfied & any_open


def _solved(
    solve: Callable[[FloatArray, Rules, BoolArray], IntArray | None],
    values: Any,
    administered: Any,
    possible: Any,
    certain: Any,
    groups: dict[str, Any],
    ties: dict[str, Any],
) -> tuple[np.ndarray, np.ndarray]:
    """On the host: the certain items and, if others are possible, those of the best test.

    The last two have the fields of `Rules`.
    """
    certain, possible = np.asarray(certain), np.asarray(possible)
    if certain.any() and not (possible & ~certain).any():
        return certain, np.array(True)
    fields: dict[str, Any] = {name: np.asarray(value) for name, value in {**groups, **ties}.items()}
    fields |= {name: fields[name].astype(float) for name in ("low", "high")}
    if (fields["testlet"] < 0).all():
        del fields["testlet"]
    rules, asked = Rules(**{**fields, "length": int(fields["length"])}), np.asarray(administered)
    form = solve(np.asarray(values, float), rules, asked)
    if form is None:
        return (certain, np.array(True)) if certain.any() else (possible, np.array(False))
    free = certain | np.isin(np.arange(len(asked)), form)
    return free & ~asked, np.array(True)


def triable(context: Context, tried: Array, scored: Array) -> Bool[Array, " items"]:
    """Pretest items whose enemies are not needed for the rest of the test."""
    plan = _plan_of(context)
    enemies = context.pool.enemies.astype(plan.member.dtype)
    usable = (scored > -jnp.inf).astype(enemies.dtype)
    lost = enemies @ ((enemies * usable[:, None]).T @ plan.member)
    counts = group_counts(context)
    supply = jnp.maximum(_supply(context, usable > 0) - lost, 0)
    feasible = _completable(Limits(plan.least, plan.most, plan.length), counts, supply)
    feasible = feasible | (lost.sum(axis=1) == 0)
    return jnp.where((feasible & (tried > -jnp.inf)).any(), feasible, True)


EQUAL = 1e-6
"""Distances from target shares that differ by less are equal: in tests of whole items planned by
group, of up to 1,000 items, unequal ones differ by more."""


def kingsbury_zara(context: Context, values: Array) -> Array:
    """Only the items of the content group that is furthest below its target share.

    Groups that were never used come first, that of the greatest share before the others; a group
    without open items is skipped. Of groups that are equally far below, the earliest in
    ``targets``. The target shares are those of the plan.

    References:
        Kingsbury & Zara (1989), Applied Measurement in Education 2, 359-375.
    """
    plan, counts = _plan_of(context), group_counts(context)
    target = plan.planned / plan.planned.sum()
    groups = jnp.arange(len(target))
    member = plan.group[:, None] == groups
    has_open = (member & (values > -jnp.inf)[:, None]).any(axis=0)
    gap = target - counts / jnp.maximum(counts.sum(), 1)
    gap = jnp.where((counts == 0) & (target > 0), gap + 2.0, gap)
    gap = jnp.where(has_open, gap, -jnp.inf)
    # Rounding must not decide between equal gaps: compilers and devices differ in it.
    chosen = jnp.argmax(gap >= gap.max() - EQUAL)
    return jnp.where(plan.group == chosen, values, -jnp.inf)


def penalties(context: Context, values: Array, *, weight: float = 1.0) -> Array:
    """Values with a penalty for content groups at their upper bound and a bonus for groups in need.

    The value, scaled to [0, 1] over the open items, gains ``weight`` times the share of the rest
    of the test that its group still needs to reach its lower bound, and loses ``weight`` where
    the group has reached its upper bound.

    References:
        Shin, Chien, Way & Swanson (2009), Weighted penalty model for content balancing in CATs
        (Pearson); this is a simplified form with the same two terms.
    """
    plan, counts = _plan_of(context), group_counts(context)
    remaining = jnp.maximum(plan.length - counts.sum(), 1)
    need = jnp.maximum(plan.least - counts, 0) / remaining
    shift = weight * need - jnp.where(counts >= plan.most, weight, 0.0)
    usable = values > -jnp.inf
    smallest = jnp.where(usable, values, jnp.inf).min()
    span = jnp.maximum(jnp.where(usable, values, -jnp.inf).max() - smallest, 1e-30)
    return jnp.where(usable, (values - smallest) / span + shift[plan.group], values)


def bounds(context: Context, values: Array) -> Array:
    """Every item that is compatible with the plan, without preference among groups.

    Groups at their upper bound are closed, and once the number of items left equals what the lower
    bounds require, so are all groups that are not in need.
    """
    return values


def testlets(context: Context, values: Array) -> Array:
    """Testlets are administered whole: once one is begun, its other items follow first.

    Items outside testlets are independent. Items of ``first`` and at ``pretest_at`` may come in
    between.
    """
    return values


def shadow(context: Context, values: Array) -> Array:
    """Only the free items of the shadow test: the best full test that contains the items asked.

    The test satisfies the plan, the enemy sets and the testlets, and maximises the sum of the
    criterion. It is solved at every step, on the host.

    References:
        van der Linden & Reese (1998), Applied Psychological Measurement 22, 259-270; van der
        Linden (2005), Linear Models for Optimal Test Design, chapter 9.
    """
    return values


SHARES = ("group", "targets")

CONTENT: Registry[ContentRule] = Registry(
    GROUP,
    ContentRule,
    ("content rule", "items", "several abilities"),
    [
        ContentRule("kingsbury-zara", kingsbury_zara, needs=SHARES),
        ContentRule("penalties", penalties, needs=SHARES),
        ContentRule("bounds", bounds, needs=SHARES),
        ContentRule("testlets", testlets, needs=("testlet",)),
        ContentRule("shadow", shadow, needs=SHARES),
    ],
)
"""Content rules by name; to add a preference, write a function and add a row. Hard rules ("bounds",
"testlets", "shadow") act in `keeping_plan` and `whole_testlets`, before the others whatever their
order; their rows leave the values as they are."""

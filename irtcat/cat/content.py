"""Content rules: which items keep the plan, and which of these come first.

Before the first item `irtcat.cat.prepare` rounds the targets to a plan of whole numbers of items
that some test from the bank keeps (`irtcat.cat._plan`). While a session runs, hard rules close
items first: enemies of items given, testlets cut short, and items after which no full test would
keep the plan. So what was feasible at the start stays feasible. Then the rules of the configuration
prefer some of the items left. Where no test keeps the plan any more (a replayed subject has not
answered the items needed, say), the bounds give way as little as they must, and the step is marked
in `CatState.relaxed`.

A rule that prefers is given a `Context`, the values of all items (minus infinity where an item may
not be asked) and its own options, and gives new values.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from irtcat.cat._pool import Plan
from irtcat.cat._state import NONE, Context
from irtcat.cat.assembly import Rules, best_form

__all__ = [
    "CONTENT",
    "group_counts",
    "keeping_plan",
    "triable",
    "whole_testlets",
    "without_enemies",
]


def group_counts(context: Context) -> Array:
    """Number of scored items given from each content group."""
    plan = _plan_of(context)
    return context.state.given.astype(plan.member.dtype) @ plan.member


def _plan_of(context: Context) -> Plan:
    plan = context.pool.plan
    assert plan is not None
    return plan


def without_enemies(context: Context, values: Array) -> Array:
    """Close the enemies of the items given."""
    met = (context.pool.enemies & context.state.given[:, None]).any(axis=0)
    return jnp.where((context.pool.enemies & met).any(axis=1), -jnp.inf, values)


def whole_testlets(context: Context, values: Array) -> tuple[Array, Array]:
    """Once an item of a testlet is given, only the others of it; no testlet that would be cut.

    Returns:
        The values, and whether a testlet has been begun and not finished.
    """
    testlet, given = context.pool.testlet, context.state.given
    usable, apart = values > -jnp.inf, testlet == NONE
    # Numbers run from 0; -1, "on its own", writes to the last place, which nobody reads.
    none = jnp.zeros(testlet.shape[0] + 1, bool)
    begun = none.at[testlet].max(given)[testlet] & ~apart
    cut = none.at[testlet].max(~usable & ~given)[testlet] & ~apart
    rest = begun & usable
    going = rest.any()
    return jnp.where(jnp.where(going, rest, apart | ~cut), values, -jnp.inf), going


class Limits(NamedTuple):
    """Bounds on the items of each group, and the length."""

    least: Array
    most: Array
    length: Array


def _supply(context: Context, usable: Array) -> Array:
    """Items of each group that can still come whatever the others are."""
    plan = _plan_of(context)
    out = usable.astype(plan.member.dtype) @ plan.single
    if context.config.enemies:
        left = (context.pool.enemies & usable[:, None]).any(axis=0)
        out = out + left.astype(out.dtype) @ plan.of_set
    return out


def _attainable(asked: Limits, counts: Array, supply: Array) -> Limits:
    """The limits themselves where they can be kept, else the nearest that can."""
    least = jnp.minimum(asked.least, counts + supply)
    most = jnp.maximum(asked.most, counts)
    needed = jnp.maximum(counts, least).sum()
    length = jnp.minimum(
        jnp.maximum(asked.length, needed), jnp.minimum(most, counts + supply).sum()
    )
    return Limits(least, most, length)


def _completable(limits: Limits, counts: Array, supply: Array) -> Array:
    """Whether counts of the groups can become those of a full test; over the last axis."""
    each = (counts <= limits.most) & (counts + supply >= limits.least)
    least = jnp.maximum(counts, limits.least).sum(axis=-1)
    most = jnp.minimum(limits.most, counts + supply).sum(axis=-1)
    return each.all(axis=-1) & (least <= limits.length) & (most >= limits.length)


def keeping_plan(context: Context, values: Array, best: bool = False) -> tuple[Array, Array]:
    """Only items after which a full test can still keep the plan.

    By counting, where the items of a group can stand for one another. Where testlets or sets of
    enemies tie items of several groups together, items that counting cannot decide on are open if
    they are in the best full test, found by integer programming on the host.

    Args:
        context: the session.
        values: value of each item.
        best: whether only the free items of the best full test are open ("shadow").

    Returns:
        The values, and whether a test that keeps the plan exists.
    """
    plan, usable = _plan_of(context), values > -jnp.inf
    counts = group_counts(context)
    # Where skipped items make a session longer than the plan, its bounds hold on.
    asked = Limits(plan.least, plan.most, jnp.maximum(plan.length, counts.sum() + 1))
    sure = _supply(context, usable)
    every = sure if plan.kind_tied is None else usable.astype(sure.dtype) @ plan.member
    limits = _attainable(asked, counts, every)
    held = jnp.stack([(mine == own).all() for mine, own in zip(limits, asked, strict=True)]).all()
    after = counts + plan.kinds
    possible = usable & _completable(limits, after, every - plan.kinds)[plan.kind]
    open_ = possible
    if best or plan.kind_tied is not None:
        tied = jnp.zeros(len(plan.kinds)) if plan.kind_tied is None else plan.kind_tied
        alone = sure - plan.kinds * (1 - tied)[:, None]
        certain = usable & _completable(asked, after, alone)[plan.kind]
        open_, solved = jax.pure_callback(
            _solved,
            (jax.ShapeDtypeStruct(values.shape, bool), jax.ShapeDtypeStruct((), bool)),
            values,
            context.state.given & (plan.member > 0).any(axis=1),
            possible,
            certain & (not best),
            Limits(plan.least, plan.most, asked.length),
            plan.group,
            context.pool.enemies,
            context.pool.testlet,
            vmap_method="sequential",
        )
        held = held & solved
    any_open = open_.any()
    return jnp.where(any_open & ~open_, -jnp.inf, values), held & any_open


def _solved(
    values: Any, given: Any, possible: Any, certain: Any, limits: Any, group: Any, enemies: Any,
    testlet: Any,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """On the host: the items that are certain, and where others are possible the best test's."""
    certain, possible = np.asarray(certain), np.asarray(possible)
    if certain.any() and not (possible & ~certain).any():
        return certain, np.array(True)
    least, most, length = (np.asarray(limit, float) for limit in limits)
    testlets = np.asarray(testlet)
    rules = Rules(
        int(length), np.asarray(group), least, most, np.asarray(enemies),
        testlets if (testlets >= 0).any() else None,
    )  # fmt: skip
    form = best_form(np.asarray(values, float), rules, np.asarray(given))
    if form is None:
        return (certain, np.array(True)) if certain.any() else (possible, np.array(False))
    free = certain | np.isin(np.arange(len(given)), form)
    return free & ~np.asarray(given), np.array(True)


def triable(context: Context, tried: Array, scored: Array) -> Bool[Array, " items"]:
    """Items to be tried out whose enemies the rest of the test can do without."""
    plan = _plan_of(context)
    enemies = context.pool.enemies.astype(plan.member.dtype)
    usable = (scored > -jnp.inf).astype(enemies.dtype)
    lost = enemies @ ((enemies * usable[:, None]).T @ plan.member)
    counts = group_counts(context)
    supply = jnp.maximum(_supply(context, usable > 0) - lost, 0)
    good = _completable(Limits(plan.least, plan.most, plan.length), counts, supply)
    good = good | (lost.sum(axis=1) == 0)
    return jnp.where((good & (tried > -jnp.inf)).any(), good, True)


def kingsbury_zara(context: Context, values: Array) -> Array:
    """Only the items of the content group that is furthest below its target share.

    A group that was never used goes first (the earliest in ``targets``); a group without open items
    is passed over. The target shares are those of the plan.

    References:
        Kingsbury & Zara (1989), Applied Measurement in Education 2, 359-375.
    """
    plan, counts = _plan_of(context), group_counts(context)
    target = plan.planned / plan.planned.sum()
    groups = jnp.arange(len(target))
    here = plan.group[:, None] == groups
    left = (here & (values > -jnp.inf)[:, None]).any(axis=0)
    gap = target - counts / jnp.maximum(counts.sum(), 1)
    gap = jnp.where((counts == 0) & (target > 0), gap + 2.0, gap)
    chosen = jnp.argmax(jnp.where(left, gap, -jnp.inf))
    return jnp.where(plan.group == chosen, values, -jnp.inf)


def penalties(context: Context, values: Array, *, weight: float = 1.0) -> Array:
    """Values less a penalty for content groups that are beyond their bounds, or need not be met.

    The value, scaled to [0, 1] over the open items, gains ``weight`` times the share of the rest
    of the test that its group still needs to reach its lower bound, and loses ``weight`` where
    the group has reached its upper bound.

    References:
        Shin, Chien, Way & Swanson (2009), Weighted penalty model for content balancing in CATs
        (Pearson); this is a simpler form of it with the same two terms.
    """
    plan, counts = _plan_of(context), group_counts(context)
    left = jnp.maximum(plan.length - counts.sum(), 1)
    need = jnp.maximum(plan.least - counts, 0) / left
    shift = weight * need - jnp.where(counts >= plan.most, weight, 0.0)
    usable = values > -jnp.inf
    smallest = jnp.where(usable, values, jnp.inf).min()
    span = jnp.maximum(jnp.where(usable, values, -jnp.inf).max() - smallest, 1e-30)
    return jnp.where(usable, (values - smallest) / span + shift[plan.group], values)


def bounds(context: Context, values: Array) -> Array:
    """Every item that keeps the plan, with no preference among groups.

    Groups that have reached their upper bound are closed, and once the items left are only as
    many as the lower bounds need, all groups but those in need.
    """
    return values


def testlets(context: Context, values: Array) -> Array:
    """Testlets are given whole: once begun, the others of it follow before anything else.

    Items without a testlet stand on their own. Items of ``first`` and at ``pretest_at`` may come
    in between.
    """
    return values


def shadow(context: Context, values: Array) -> Array:
    """Only the free items of the shadow test: the best full test that holds the items given.

    The test keeps the plan, enemies apart and testlets whole, and maximises the sum of the
    criterion's values. Solved anew at every step, on the host.

    References:
        van der Linden & Reese (1998), Applied Psychological Measurement 22, 259-270; van der
        Linden (2005), Linear Models for Optimal Test Design, chapter 9.
    """
    return values


CONTENT: dict[str, Callable[..., Array]] = {
    "kingsbury-zara": kingsbury_zara,
    "penalties": penalties,
    "bounds": bounds,
    "testlets": testlets,
    "shadow": shadow,
}
"""Content rules by name; to add a preference, write a function and add a row. Hard rules ("bounds",
"testlets", "shadow") act in `keeping_plan` and `whole_testlets`, before the others whatever their
order; their rows leave the values as they are."""

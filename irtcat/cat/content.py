"""Content rules: one table, each a function that narrows or shifts the criterion's values.

A rule is given a `Look`, the values of all items (minus infinity where an item may not be asked)
and its own options, and gives new values. Several rules are applied one after the other. Enemies
(items of which one test may hold but one) are kept apart whatever the rules.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array

from irtcat.cat._state import NONE, Look
from irtcat.cat.shadow import shadow

__all__ = ["CONTENT", "group_counts", "without_enemies"]


def group_counts(look: Look) -> Array:
    """Number of items given from each content group."""
    scored = look.state.given & ~look.pool.pretest
    groups = jnp.arange(look.pool.targets.shape[0])
    return ((look.pool.group[:, None] == groups) & scored[:, None]).sum(axis=0)


def without_enemies(look: Look, values: Array) -> Array:
    """Close the enemies of the items given."""
    met = (look.pool.enemies & look.state.given[:, None]).any(axis=0)
    return jnp.where((look.pool.enemies & met).any(axis=1), -jnp.inf, values)


def kingsbury_zara(look: Look, values: Array) -> Array:
    """Only the items of the content group that is furthest below its target share.

    A group that was never used goes first (the earliest in ``targets``); a group without open items
    is passed over.

    References:
        Kingsbury & Zara (1989), Applied Measurement in Education 2, 359-375.
    """
    counts = group_counts(look)
    target = look.pool.targets[:, 0]
    groups = jnp.arange(len(target))
    here = look.pool.group[:, None] == groups
    left = (here & (values > -jnp.inf)[:, None]).any(axis=0)
    gap = target - counts / jnp.maximum(counts.sum(), 1)
    gap = jnp.where((counts == 0) & (target > 0), gap + 2.0, gap)
    chosen = jnp.argmax(jnp.where(left, gap, -jnp.inf))
    return jnp.where(look.pool.group == chosen, values, -jnp.inf)


def penalties(look: Look, values: Array, *, weight: float = 1.0) -> Array:
    """Values less a penalty for content groups that are beyond their bounds, or need not be met.

    The value, scaled to [0, 1] over the open items, gains ``weight`` times the share of the rest
    of the test that its group still needs to reach its lower bound, and loses ``weight`` where
    the group has reached its upper bound.

    References:
        Shin, Chien, Way & Swanson (2009), Weighted penalty model for content balancing in CATs
        (Pearson); this is a simpler form of it with the same two terms.
    """
    counts = group_counts(look).astype(values.dtype)
    low, high = look.pool.targets.T * look.config.max_items
    left = jnp.maximum(look.config.max_items - look.state.given.sum(), 1)
    need = jnp.maximum(low - counts, 0) / left
    shift = weight * need - jnp.where(counts >= high, weight, 0.0)
    usable = values > -jnp.inf
    smallest = jnp.where(usable, values, jnp.inf).min()
    span = jnp.maximum(jnp.where(usable, values, -jnp.inf).max() - smallest, 1e-30)
    return jnp.where(usable, (values - smallest) / span + shift[look.pool.group], values)


def bounds(look: Look, values: Array) -> Array:
    """Only items that leave every content group able to keep its bounds.

    A group at its upper bound is closed; when the items still to be given are only as many as the
    lower bounds need, only the groups in need are open. Bounds are numbers of items (or shares) of
    a test of ``max_items``; items in stock are not looked ahead to (the shadow test does that).
    """
    counts = group_counts(look)
    low, high = look.pool.targets.T * look.config.max_items
    need = jnp.maximum(jnp.ceil(low - 1e-6) - counts, 0)
    left = look.config.max_items - look.state.given.sum()
    open_ = counts < jnp.floor(high + 1e-6)
    open_ = open_ & jnp.where(need.sum() >= left, need > 0, True)
    return jnp.where(open_[look.pool.group], values, -jnp.inf)


def testlets(look: Look, values: Array) -> Array:
    """Once an item of a testlet is given, the others of it follow before anything else.

    Items of testlet -1 stand on their own.
    """
    testlet, given = look.pool.testlet, look.state.given
    usable = values > -jnp.inf
    # Numbers run from 0; -1, "on its own", writes to the last place, which nobody reads.
    begun = jnp.zeros(testlet.shape[0] + 1, bool).at[testlet].max(given)
    going = begun[testlet] & (testlet != NONE) & usable
    return jnp.where(going.any(), jnp.where(going, values, -jnp.inf), values)


CONTENT: dict[str, Callable[..., Array]] = {
    "kingsbury-zara": kingsbury_zara,
    "penalties": penalties,
    "bounds": bounds,
    "testlets": testlets,
    "shadow": shadow,
}
"""Content rules by name; to add one, write a function and add a row."""

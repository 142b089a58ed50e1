"""The shadow test: before every item a full test that keeps all rules and holds the items given."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat.cat._state import Look
from irtcat.cat.assembly import Rules, best_form

__all__ = ["shadow"]


def _free_items(
    values: np.ndarray, given: np.ndarray, group: np.ndarray, targets: np.ndarray,
    enemies: np.ndarray, length: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Which items the best test holds beyond those given; none where no test keeps the rules."""
    low, high = np.asarray(targets, float).T * int(length)
    low, high = np.ceil(low - 1e-6), np.floor(high + 1e-6)
    rules = Rules(int(length), np.asarray(group), low, high, np.asarray(enemies))
    given = np.asarray(given)
    found = best_form(np.asarray(values, float), rules, given)
    free = np.zeros(len(given), bool)
    if found is not None:
        free[found] = True
    return free & ~given


def shadow(look: Look, values: Array) -> Array:
    """Only the free items of the shadow test: the best full test that holds the items given.

    The test has ``max_items`` items, keeps the bounds of all content groups and the enemies apart,
    and maximises the sum of the criterion's values; so the items given can always be completed to
    a test that keeps the rules. Where no test does, the rule lets every item through that keeps
    the upper bounds. Solved anew at every step, on the host.

    References:
        van der Linden & Reese (1998), Applied Psychological Measurement 22, 259-270; van der
        Linden (2005), Linear Models for Optimal Test Design, chapter 9.
    """
    pool = look.pool
    scored = look.state.given & ~pool.pretest
    free = jax.pure_callback(
        _free_items,
        jax.ShapeDtypeStruct(values.shape, bool),
        values,
        scored,
        pool.group,
        pool.targets,
        pool.enemies,
        jnp.asarray(look.config.max_items),
        vmap_method="sequential",
    )
    return jnp.where(free.any(), jnp.where(free, values, -jnp.inf), values)

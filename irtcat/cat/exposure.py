"""Exposure rules: one table, each a function that chooses an item by the criterion's values.

A rule is given a `Look`, the values of all items (minus infinity where an item may not be asked)
and its own options, and gives the position of the item. Rates are kept in `Pool.counts`; the
lottery of a session is drawn once, so that an item that fails stays out for the whole session.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._checks import argument_error, check_count
from irtcat.cat._pool import Counts
from irtcat.cat._state import Look

__all__ = ["EXPOSURE", "UPDATES", "check_rate", "eligible_items", "updated"]

LARGEST_SET = 50


def check_rate(rate: float) -> None:
    """Raise unless a maximum rate is a proportion above 0."""
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate <= 1:
        raise argument_error("rate", "a proportion above 0, at most 1", rate)


def first_best(values: Array) -> Array:
    """The place of the greatest value; of equal ones the first.

    In passes that the processor does several elements at a time, which argmax is not.
    """
    n = len(values)
    places = jnp.arange(n, 0, -1).astype(values.dtype)
    held = jax.lax.optimization_barrier(jnp.where(values == values.max(), places, 0))
    return jnp.int32(n) - held.max().astype(jnp.int32)


def best(look: Look, values: Array) -> Array:
    """The item of the greatest value; of equal ones the first."""
    return first_best(values)


def randomesque(look: Look, values: Array, *, k: int = 5) -> Array:
    """One of the ``k`` items of the greatest values, all equally likely.

    References:
        Kingsbury & Zara (1989), Applied Measurement in Education 2, 359-375.
    """
    check_count("k", k, 1, LARGEST_SET)
    usable = jnp.minimum((values > -jnp.inf).sum(), k)
    # A number of its own, which no criterion has used.
    wanted = (look.lot[0] * 7919 + look.noise[-1]) % 1.0
    rank = jnp.minimum((wanted * usable).astype(jnp.int32), usable - 1)

    def remove(j: int, left: Array) -> Array:
        top = first_best(left)
        return jnp.where(j < rank, left.at[top].set(-jnp.inf), left)

    return first_best(jax.lax.fori_loop(0, k - 1, remove, values))


def _through(look: Look, values: Array, passed: Array) -> Array:
    """The best of the items let through; where there is none, the best of all."""
    kept = jnp.where(passed, values, -jnp.inf)
    return first_best(jnp.where(kept.max() > -jnp.inf, kept, values))


def sympson_hetter(look: Look, values: Array, *, rate: float = 0.2) -> Array:
    """The best item that passes a lottery of its own probability K_i.

    The K are found by simulation before the test is used (`irtcat.cat.calibrate_exposure`), so
    that no item is administered to more than ``rate`` of the subjects.

    References:
        Sympson & Hetter (1985), Proceedings of the 27th annual meeting of the Military Testing
        Association; Hetter & Sympson (1997).
    """
    check_rate(rate)
    return _through(look, values, look.lot < look.pool.counts.limit)


def restricted(look: Look, values: Array, *, rate: float = 0.2) -> Array:
    """The best item whose rate of administration so far is below ``rate``.

    References:
        Revuelta & Ponsoda (1998), Journal of Educational Measurement 35, 311-327.
    """
    check_rate(rate)
    return _through(look, values, eligible_items(look, "restricted", rate))


def eligibility(look: Look, values: Array, *, rate: float = 0.2) -> Array:
    """The best item that is eligible in this session, with probability P(E).

    After every session (or block of simulated sessions) ``P(E) <- min(1, rate P(E) / P(A))`` with
    P(A) the rate of administration, all from counts.

    References:
        van der Linden & Veldkamp (2004), Journal of Educational and Behavioral Statistics 29,
        273-291, eq. 24.
    """
    check_rate(rate)
    return _through(look, values, eligible_items(look, "eligibility", rate))


EXPOSURE: dict[str, Callable[..., Array]] = {
    "none": best,
    "randomesque": randomesque,
    "sympson-hetter": sympson_hetter,
    "restricted": restricted,
    "eligibility": eligibility,
}
"""Exposure rules by name; to add one, write a function and add a row. The progressive-restricted
method is the criterion "progressive" with the rule "restricted"."""

UPDATES = frozenset({"restricted", "eligibility"})
"""Rules that go by the counts of earlier sessions."""


def eligible_items(look: Look, rule: str, rate: float) -> Array:
    """Which items the counts of earlier sessions let into this one."""
    counts = look.pool.counts
    if rule == "restricted":
        return counts.given < rate * jnp.maximum(counts.sessions, 1)
    return look.lot < counts.limit


def updated(
    counts: Counts, rule: str, rate: float, given: Any, eligible: Any, sessions: int
) -> Counts:
    """The counts after further sessions.

    Args:
        counts: those before.
        rule: name of the exposure rule.
        rate: its maximum.
        given: number of the further sessions in which each item was administered.
        eligible: number of them in which it was eligible.
        sessions: how many they are.

    Returns:
        The counts; for "eligibility" with the new probabilities.
    """
    before = Counts(*(np.asarray(part, float) for part in counts))
    new = Counts(
        before.limit, before.given + given, before.eligible + eligible, before.sessions + sessions
    )
    if rule != "eligibility":
        return new
    ratio = rate * new.eligible / np.maximum(new.given, 1e-9)
    return new._replace(limit=np.where(new.given > 0, np.minimum(ratio, 1.0), 1.0))

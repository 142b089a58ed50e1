"""Exposure rules: one table, each a function that chooses an item by the criterion's values.

A rule takes a `Context`, the values of all items (minus infinity where an item may not be asked)
and its own options. It returns the position of the item, and whether the rule was satisfied: where
no open item passes, the best of all is returned. Rates are stored in `Pool.counts`; the lottery of
a session is drawn once, so an item that fails it is excluded for the whole session.
"""

import inspect
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.argmax import first_best
from irtcat._common.checks import argument_error, check_count
from irtcat._common.registry import Registry
from irtcat.cat.belief.state import Context, Counts
from irtcat.cat.rows import GROUP, ExposureRule, Part, Settings

LARGEST_SET = 50
"""Largest ``k`` of "randomesque"."""

CALIBRATE = (
    "Make them with `calibrate_exposure` (irtcat simulate --calibrate-exposure FILE) for this bank "
    "and configuration."
)
DEFAULT_CUTS = (-1.5, -0.5, 0.5, 1.5)


def check_rate(rate: float) -> None:
    """Raise unless a maximum rate is a proportion above 0."""
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate <= 1:
        raise argument_error("rate", "a proportion above 0, at most 1", rate)


Choice = tuple[Array, Any]
"""Position of an item, and whether the rule was satisfied."""


def best(context: Context, values: Array) -> Choice:
    """The item of the greatest value; the first if several are equal."""
    return first_best(values), True


def randomesque(context: Context, values: Array, *, k: int = 5) -> Choice:
    """One of the ``k`` items of the greatest values, all equally likely.

    References:
        Kingsbury & Zara (1989), Applied Measurement in Education 2, 359-375.
    """
    check_count("k", k, 1, LARGEST_SET)
    usable = jnp.minimum((values > -jnp.inf).sum(), k)
    # A random number that no criterion uses.
    u = (context.lot[0] * 7919 + context.noise[-1]) % 1.0
    rank = jnp.minimum((u * usable).astype(jnp.int32), usable - 1)

    def remove(j: int, remaining: Array) -> Array:
        return jnp.where(j < rank, remaining.at[first_best(remaining)].set(-jnp.inf), remaining)

    return first_best(jax.lax.fori_loop(0, k - 1, remove, values)), True


def _through(context: Context, values: Array, passed: Array) -> Choice:
    """The best of the items that passed; if none did, the best of all."""
    open_values = jnp.where(passed, values, -jnp.inf)
    satisfied = open_values.max() > -jnp.inf
    return first_best(jnp.where(satisfied, open_values, values)), satisfied


def sympson_hetter(context: Context, values: Array, *, rate: float = 0.2) -> Choice:
    """The best item that passes a lottery of its own probability K_i.

    The K are calibrated by simulation before the test is used (`irtcat.cat.calibrate_exposure`), so
    that no item is administered to more than ``rate`` of the subjects; without them the rule raises
    an error.

    References:
        Sympson & Hetter (1985), Proceedings of the 27th annual meeting of the Military Testing
        Association; Hetter & Sympson (1997).
    """
    check_rate(rate)
    if context.pool.counts.limit is None:
        raise argument_error(
            "counts", "the exposure parameters of the rule sympson-hetter", None, CALIBRATE
        )
    return _through(context, values, context.lot < context.pool.counts.limit)


def restricted(context: Context, values: Array, *, rate: float = 0.2) -> Choice:
    """The best item whose rate of administration so far is below ``rate``.

    References:
        Revuelta & Ponsoda (1998), Journal of Educational Measurement 35, 311-327.
    """
    check_rate(rate)
    return _through(context, values, eligible_items(context, Part("restricted", (("rate", rate),))))


def eligibility(context: Context, values: Array, *, rate: float = 0.2) -> Choice:
    """The best item that is eligible in this session, with probability P(E).

    After every session (or block of simulated sessions) ``P(E) <- min(1, rate P(E) / P(A))``, where
    P(A) is the rate of administration; both are computed from counts.

    References:
        van der Linden & Veldkamp (2004), Journal of Educational and Behavioral Statistics 29,
        273-291, eq. 24.
    """
    check_rate(rate)
    return _through(context, values, context.lot < context.pool.counts.limit)


def conditional_eligibility(
    context: Context, values: Array, *, rate: float = 0.2, cuts: tuple[float, ...] = DEFAULT_CUTS
) -> Choice:
    """The best item that is eligible at the current estimate, with probability P(E | cell).

    The ``cuts`` divide the ability scale into cells; each has its own probabilities, updated as
    those of "eligibility" from the sessions that visited it: those in which an item was chosen
    while the estimate was in the cell. So in every cell an item is administered in at most ``rate``
    of the sessions that visit it, not only in that share of all sessions.

    References:
        van der Linden & Veldkamp (2007), Journal of Educational and Behavioral Statistics 32,
        398-418.
    """
    check_rate(rate)
    cell = cell_of(context.theta, cuts_of(cuts))
    return _through(context, values, context.lot < context.pool.counts.limit[cell])


def overlap(context: Context, values: Array, *, target: float = 0.15) -> Choice:
    """The best item that keeps this session's overlap with the earlier ones at ``target``.

    The mean number of items that a session shares with an earlier one is the sum of the rates ``m_i
    / N`` of its items. An item passes if that sum including the item is at most ``target`` times
    the number of items; so the mean overlap of two sessions (as a share of their items) is at most
    ``target``. Rare items earlier in the session leave room for frequent ones. ``target`` cannot be
    below the length of the test divided by that of the bank.

    References:
        Chen, Ankenmann & Spray (2003), Journal of Educational Measurement 40, 129-145 (overlap from
        the rates). The rule is specific to irtcat; its aim is that of Chen & Lei (2005), Applied
        Psychological Measurement 29, 204-217.
    """
    check_rate(target)
    counts, administered = context.pool.counts, context.state.administered
    rates = counts.administered / jnp.maximum(counts.sessions, 1)
    total = jnp.where(administered, rates, 0.0).sum()
    limit = target * (administered.sum() + 1)
    return _through(context, values, total + rates <= limit)


EXPOSURE: Registry[ExposureRule] = Registry(
    GROUP,
    ExposureRule,
    ("exposure rule", "item", "several abilities"),
    [
        ExposureRule("none", best),
        ExposureRule("randomesque", randomesque),
        ExposureRule("sympson-hetter", sympson_hetter, limit="rate", can_fail=True),
        ExposureRule("restricted", restricted, limit="rate", updates=True, can_fail=True),
        ExposureRule("eligibility", eligibility, limit="rate", updates=True, can_fail=True),
        ExposureRule(
            "conditional-eligibility",
            conditional_eligibility,
            multidimensional=False,
            updates=True,
            can_fail=True,
        ),
        ExposureRule("overlap", overlap, limit="target", updates=True, can_fail=True),
    ],
)
"""Exposure rules by name; to add one, write a function and add a row. The progressive-restricted
method is the criterion "progressive" with the rule "restricted"."""


def greatest_rate(rule: Part) -> float | None:
    """The rate that a rule allows over all sessions; None where it sets no bound.

    A share of the sessions for each item; for "overlap" a share of the items of two sessions.

    Args:
        rule: an exposure rule, such as that of a `irtcat.cat.Config`.

    Example:
        >>> from irtcat.cat import part
        >>> greatest_rate(part("eligibility", rate=0.25)), greatest_rate(part("none"))
        (0.25, None)
    """
    row = EXPOSURE[rule.name]
    if not row.limit:
        return None
    default = inspect.signature(row.function).parameters[row.limit].default
    return float(rule.get(row.limit, default))


def check_exposure(config: Settings, n_items: int) -> None:
    """Raise where no choice of items can satisfy the rates, which sum to the length of a session.

    Args:
        config: the configuration.
        n_items: number of scored items in the bank.
    """
    rate = greatest_rate(config.exposure)
    least = config.least_length / n_items
    if rate is not None and 0 < rate < least - 1e-9:
        must = (
            f"a rule with a rate of at least {least:.3g} ({config.least_length} of {n_items} items)"
        )
        raise argument_error("exposure", must, f"{config.exposure.name} {rate:g}")


def cuts_of(cuts: Any) -> tuple[float, ...]:
    """The abilities that separate the cells of a conditional rule."""
    try:
        values = tuple(float(cut) for cut in cuts)
    except (TypeError, ValueError):
        values = ()
    rising = all(low < high for low, high in itertools.pairwise(values))
    if not values or not np.isfinite(values).all() or not rising:
        raise argument_error("cuts", "several finite abilities in rising order", cuts)
    return values


def cell_of(theta: Any, cuts: tuple[float, ...]) -> Any:
    """Number of the ability cell, from 0; an ability at a cut belongs to the upper cell."""
    return sum((theta >= cut) * 1 for cut in cuts)


def cuts_in(rule: Part) -> tuple[float, ...]:
    """The cuts of a conditional rule; empty for other rules."""
    conditional = rule.name == "conditional-eligibility"
    return cuts_of(rule.get("cuts", DEFAULT_CUTS)) if conditional else ()


def blank_counts(rule: Part, n_items: int) -> Counts:
    """The counts before the first session; for a conditional rule cells x items."""
    n_cells = len(cuts_in(rule)) + 1
    shape = (n_cells, n_items) if n_cells > 1 else (n_items,)
    limit = None if rule.name == "sympson-hetter" else np.ones(shape)
    return Counts(limit, np.zeros(shape), np.zeros(shape), np.zeros(shape[:-1]))


def eligible_items(context: Context, rule: Part) -> Array:
    """Items eligible in this session by the counts of earlier ones; by cell if conditional."""
    counts = context.pool.counts
    if rule.name == "restricted":
        return counts.administered < rule.get("rate", 0.2) * jnp.maximum(counts.sessions, 1)
    if rule.name == "overlap":
        return jnp.ones(context.pool.n_items, bool)
    return context.lot < counts.limit


def tally(rule: Part, n_items: int, items: Any, cells: Any, eligible: Any) -> tuple[Any, Any, Any]:
    """Counts of finished or running sessions, to add to the counts so far.

    Args:
        rule: the exposure rule.
        n_items: number of items.
        items: positions of the items asked, sessions x steps; `NONE` for no item.
        cells: cell of the estimate when each item was chosen; 0 where the rule has no cells.
        eligible: items eligible in each session, sessions x (cells x) items; None for all.

    Returns:
        How often each item was administered, how often it was eligible, and the number of sessions;
        for a conditional rule by cell, counting the sessions that visited the cell.
    """
    n_cells = len(cuts_in(rule)) + 1
    real = items >= 0
    administered = np.bincount(cells[real] * n_items + items[real], minlength=n_cells * n_items)
    if n_cells == 1:
        eligible_counts = len(items) if eligible is None else np.asarray(eligible).sum(axis=0)
        return administered, eligible_counts, len(items)
    visits = np.zeros((len(items), n_cells), bool)
    visits[np.nonzero(real)[0], cells[real]] = True
    eligible_counts = (np.asarray(eligible) & visits[:, :, None]).sum(axis=0)
    return administered.reshape(n_cells, n_items), eligible_counts, visits.sum(axis=0)


def updated(counts: Counts, rule: Part, administered: Any, eligible: Any, sessions: Any) -> Counts:
    """The counts after further sessions.

    Args:
        counts: those before.
        rule: the exposure rule.
        administered: number of the further sessions in which each item was administered.
        eligible: number of them in which it was eligible.
        sessions: number of further sessions.

    Returns:
        The counts; for "eligibility" (conditional or not) with updated probabilities.
    """
    before = jax.tree.map(lambda count: np.asarray(count, float), counts)
    sums = map(np.add, before[1:], (administered, eligible, sessions))
    new = Counts(before.limit, *sums)
    if not rule.name.endswith("eligibility"):
        return new
    ratio = rule.get("rate", 0.2) * new.eligible / np.maximum(new.administered, 1e-9)
    return new._replace(limit=np.where(new.administered > 0, np.minimum(ratio, 1.0), 1.0))

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
from irtcat.cat.belief.priors import prior_row
from irtcat.cat.belief.state import NONE, CatState, Pool, lottery
from irtcat.cat.engine.choice import choose, context_of, has_room, tracks_rules, with_item
from irtcat.cat.engine.config import Config, check_config
from irtcat.cat.rules.estimators import estimate
from irtcat.cat.rules.sampling import draw_from
from irtcat.cat.rules.starting import start_theta_of
from irtcat.cat.rules.stopping import single_rules, stops
from irtcat.prediction.betting import bet, no_bets


@functools.lru_cache(maxsize=256)
def program_of(config: Config) -> Config:
    """What a program is compiled for: the configuration without what the pool holds.

    So all fixed subsets of a length share a program, whatever they were chosen from.
    """
    return replace(config, fixed=None, expect=None)


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
    before = context_of(pool, config, state)
    asked_at = jnp.where(state.asked >= 0, state.asked, pool.n_items)
    # The items that were open when those asked were drawn.
    open_items = (~state.administered).at[asked_at].set(True, mode="drop")
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


def ask(state: CatState, items: Int[Array, " batch"], relaxed: Array | None = None) -> CatState:
    """Mark these items as asked, with the rules that were relaxed (see `CatState.relaxed`)."""
    administered, marks = state.administered, state.relaxed
    for j in range(items.shape[0]):
        administered = with_item(administered, items[j])
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
    is_full = ~has_room(pool, config, state.administered, state.n) & (reason == 0)
    none_left = (items[0] < 0) & ~is_full & (reason == 0)
    reason = jnp.where(is_full, n_rules + 1, jnp.where(none_left, n_rules + 2, reason))
    return jnp.where(state.stop > 0, state.stop, reason.astype(jnp.int32))


def _start(
    pool: Pool, config: Config, prior: Float[Array, "..."], allowed: Array | None, seed: Array
) -> CatState:
    """A session with its first item asked."""
    state = blank(pool, config, prior, allowed, seed)
    items, gain, relaxed = choose(pool, config, state)
    # Not for its value: options of stopping rules raise before the first answer, not after it.
    stops(context_of(pool, config, state), config.stopping)
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


def seed_words(seed: int) -> np.ndarray:
    """The two words that seed all randomness of one session."""
    return np.random.SeedSequence([seed, 0]).generate_state(2).astype(np.uint32)


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
    row = prior_row(prior, pool.model)
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


def check_prepared(pool: Any, config: Any, state: Any = None) -> None:
    """Raise unless ``pool`` is a prepared bank, ``config`` a `Config` and ``state`` a session's."""
    check_config(config)
    if not isinstance(pool, Pool):
        must = "a pool, as irtcat.cat.prepare(bank, config) returns it"
        raise argument_error("pool", must, type(pool).__name__)
    if state is not None and not isinstance(state, CatState):
        must = "a state, as irtcat.cat.start and step return it"
        raise argument_error("state", must, type(state).__name__)

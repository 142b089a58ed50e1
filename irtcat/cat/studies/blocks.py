"""Many sessions at once, in blocks of bounded memory, with the compiled step of a live session."""

import functools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.checks import argument_error, check_count
from irtcat._common.compilation import jit
from irtcat._common.executors import check_executor, in_order
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.cat.belief.priors import mixture_moments
from irtcat.cat.belief.state import ANSWERS, CatState, Counts, Pool, uniforms
from irtcat.cat.engine.choice import context_of
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import _start, _step
from irtcat.cat.rules.exposure import EXPOSURE, cell_of, cuts_in, eligible_items, tally, updated
from irtcat.cat.rules.starting import start_theta_of
from irtcat.cat.rules.stopping import score_moments
from irtcat.cat.studies.finished import Sessions
from irtcat.models import take

BLOCK = 1700
"""Maximum number of subjects that are simulated at a time on the CPU: blocks of 1,000 take 1.1
times as long, as their operations are too short for two cores, and 2,500 .9 times, with 16 MB more
(20,000 subjects, 500 items, 81 nodes). A GPU, which starts as many programs for any number, takes
what fits in `BLOCK_BYTES`."""

SMALL_BLOCK = 50
"""The same where an exposure rule uses the counts so far."""

AHEAD = 2
"""Blocks that are computed at the same time."""

BLOCK_BYTES = 2**28
"""Memory that one block's largest array may take."""

Progress = Callable[[int, int], None]
"""Called with the number of subjects done and the total number."""


Respond = Callable[[Pool, CatState, Any], Array]
"""The answers to the items asked, of a subject with this ability or these recorded answers."""


def drawn_answers(pool: Pool, state: CatState, theta: Array) -> Array:
    """Answers to the items asked, drawn at the true ability.

    The random number depends on the subject and the item only, not on the step: a subject gives the
    same answer to an item under any configuration.
    """

    def one(item: Array) -> Array:
        log_p = take(pool.model, jnp.maximum(item, 0)).log_probs(jnp.atleast_1d(theta))  # type: ignore[attr-defined]
        u = uniforms(state, ANSWERS, jnp.maximum(item, 0), ())
        return (u > jnp.cumsum(jnp.exp(log_p))[:-1]).sum().astype(jnp.int32)

    return jax.vmap(one)(state.asked)


def recorded_answers(pool: Pool, state: CatState, row: Array) -> Array:
    """The recorded answers to the items asked."""
    return row[jnp.maximum(state.asked, 0)].astype(jnp.int32)


class Subjects(NamedTuple):
    """Subjects: priors, allowed items, seeds, and abilities or recorded answers."""

    priors: FloatArray
    allowed: BoolArray | None
    seeds: np.ndarray
    values: np.ndarray

    @staticmethod
    def seeded(
        priors: FloatArray, allowed: BoolArray | None, values: np.ndarray, seed: int
    ) -> "Subjects":
        """Subjects with seeds of their own."""
        words = np.random.SeedSequence(seed).generate_state(2 * len(values)).reshape(-1, 2)
        return Subjects(priors, allowed, words.astype(np.uint32), values)


@functools.partial(jit, static_argnames=("config", "respond"))
def run_block(
    pool: Pool, config: Config, respond: Respond, subjects: Subjects
) -> tuple[Sessions, Array]:
    """Run a block of sessions from start to end; return the results and the eligible items."""
    priors, allowed, seeds, values = subjects
    state = jax.vmap(lambda p, a, s: _start(pool, config, p, a, s))(priors, allowed, seeds)

    def advance(state: CatState) -> CatState:
        def one(state: CatState, subject_value: Any) -> CatState:
            answers = respond(pool, state, subject_value)
            taken = pool.seconds[jnp.maximum(state.asked, 0)]
            seconds = jnp.where(state.asked >= 0, taken, 0).sum()
            return _step(pool, config, state, answers, seconds)

        return jax.vmap(one)(state, values)

    state = jax.lax.while_loop(lambda state: (state.stop == 0).any(), advance, state)
    score = jax.vmap(lambda s: score_moments(context_of(pool, config, s)))(state)
    sessions = Sessions.of(state, score[0], jnp.sqrt(jnp.maximum(score[1], 0)))
    if not EXPOSURE[config.exposure.name].updates:
        return sessions, jnp.zeros((0, pool.n_items), bool)
    rule = config.exposure
    return sessions, jax.vmap(lambda s: eligible_items(context_of(pool, config, s), rule))(state)


def _in_worker(shared: tuple[Pool, Config, Respond], block: Subjects) -> tuple[Sessions, Any]:
    """Compute a block, in any process."""
    with precision(str(shared[0].nodes.dtype)):
        sessions, eligible = jax.tree.map(np.asarray, run_block(*shared, block))
    return sessions, eligible


def run_blocks(
    pool: Pool,
    config: Config,
    respond: Respond,
    subjects: Subjects,
    size: int,
    progress: Progress | None,
    executor: Executor | None,
) -> tuple[Sessions, Counts]:
    """Run all sessions in blocks, all of the same shape, and update the counts of exposure."""
    updates, n = EXPOSURE[config.exposure.name].updates, len(subjects.values)
    blocks: list[Sessions] = []
    starts = range(0, n, size)

    def report(n_blocks: int) -> None:
        if progress is not None:
            progress(min(n_blocks * size, n), n)

    def block_from(start: int) -> Subjects:
        rows = np.minimum(start + np.arange(size), n - 1)
        block: Subjects = jax.tree.map(lambda leaf: leaf[rows], subjects)
        return block._replace(priors=block.priors.astype(pool.nodes.dtype))

    running: deque[tuple[Sessions, Any]] = deque()
    if executor is not None:
        arrays = jax.tree.map(np.asarray, pool)  # pickled arrays of JAX lose their float64
        tasks = map(block_from, starts)
        running.extend(in_order(_in_worker, (arrays, config, respond), tasks, executor, report))
    # Blocks that do not depend on each other's counts are computed two at a time.
    ahead = 1 if updates else AHEAD
    sent = 0 if executor is None else len(starts)
    for begin in starts:
        while sent < len(starts) and len(running) < ahead:
            running.append(run_block(pool, config, respond, block_from(starts[sent])))
            sent += 1
        padded, eligible = running.popleft()
        n_real = int(min(size, n - begin))
        block = Sessions(*(np.asarray(leaf)[:n_real] for leaf in padded))
        blocks.append(block)
        eligible_here = np.asarray(eligible)[:n_real] if updates else None
        cells = _cells(pool, config, block, subjects.priors[begin : begin + n_real])
        added = tally(config.exposure, pool.n_items, block.items, cells, eligible_here)
        pool = pool.with_counts(updated(pool.counts, config.exposure, *added))
        if executor is None:
            report(begin // size + 1)
    sessions = Sessions(*(np.concatenate(leaves) for leaves in zip(*blocks, strict=True)))
    return sessions, pool.counts


def _cells(pool: Pool, config: Config, sessions: Sessions, priors: FloatArray) -> IntArray:
    """The cell of the estimate when each item was chosen; 0 where the rule has no cells."""
    cuts = cuts_in(config.exposure)
    if not cuts:
        return np.zeros(sessions.items.shape, int)
    start_theta = start_theta_of(config.start.kwargs())
    mean = priors[:, 0] if priors.ndim == 2 else mixture_moments(priors)[0]
    first = np.clip(mean if start_theta is None else start_theta, pool.nodes[0], pool.nodes[-1])
    before = np.concatenate([np.broadcast_to(first, len(priors))[:, None], sessions.thetas], axis=1)
    steps = np.arange(sessions.items.shape[1]) // config.batch * config.batch
    return np.asarray(cell_of(before[:, steps], cuts))


def block_size(
    pool: Pool, config: Config, n: int, block: int | None, executor: Executor | None
) -> int:
    """Subjects at a time; raises for an executor that cannot be used."""
    check_executor(executor)
    updates = EXPOSURE[config.exposure.name].updates
    if executor is not None and updates:
        must = f"None with the exposure rule {config.exposure.name}, which uses the counts so far"
        raise argument_error("executor", must, type(executor).__name__)
    if block is not None:
        check_count("block", block)
        return min(block, n)
    if updates:
        return min(SMALL_BLOCK, n)
    width = pool.n_items * pool.p.shape[1] * (16 if config.batch > 1 else 1)
    width *= pool.belief.nodes_per_subject
    width = max(width, pool.nodes.shape[0] * 4) * pool.nodes.dtype.itemsize
    most = max(16, BLOCK_BYTES // width)
    if jax.default_backend() == "cpu":
        most = min(most, BLOCK)
    return -(-n // -(-n // most))  # blocks of equal size

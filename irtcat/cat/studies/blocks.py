"""Many sessions at once, in blocks of bounded memory, with the compiled step of a live session."""

import functools
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.checks import argument_error, check_count
from irtcat._common.compilation import BEST, jit
from irtcat._common.executors import check_executor, in_order
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.cat.belief.pool import Counts, Pool
from irtcat.cat.belief.priors import mixture_moments
from irtcat.cat.belief.state import ANSWERS, CatState, uniforms
from irtcat.cat.engine.choice import context_of
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import _start, _step
from irtcat.cat.rules.exposure import EXPOSURE, cell_of, cuts_in, eligible_items, tally, updated
from irtcat.cat.rules.starting import start_theta_of
from irtcat.cat.rules.stopping import score_moments
from irtcat.cat.studies.finished import Sessions
from irtcat.models import take

BLOCK = 2500
"""Maximum number of subjects that are simulated at a time on the CPU: blocks of 1,000 take 1.3
times as long, as their operations are too short for two cores, and 5,000 .9 to 1.1 times (20,000
subjects, 500 items, 81 nodes). A GPU, which starts as many programs for any number, takes what fits
in `BLOCK_BYTES`."""

SMALL_BLOCK = 50
"""The same where an exposure rule uses the counts so far."""

AHEAD = 2
"""Blocks that are computed at the same time."""

BLOCK_BYTES = 2**28
"""Memory that one block's largest array may take."""

Progress = Callable[[int, int], None]
"""Called with the number of subjects done and the total number."""


def _answer(pool: Pool, config: Config, state: CatState, theta: Array) -> Array:
    """Answers to the items asked, drawn at the true ability.

    The random number depends on the subject and the item only, not on the step: a subject gives the
    same answer to an item under any configuration.
    """

    def one(item: Array) -> Array:
        log_p = take(pool.model, jnp.maximum(item, 0)).log_probs(jnp.atleast_1d(theta))  # type: ignore[attr-defined]
        u = uniforms(state, ANSWERS, jnp.maximum(item, 0), ())
        return (u > jnp.cumsum(jnp.exp(log_p))[:-1]).sum().astype(jnp.int32)

    return jax.vmap(one)(state.asked)


def _run(
    pool: Pool,
    config: Config,
    priors: Array,
    allowed: Array | None,
    seeds: Array,
    respond: Callable[[CatState, Any], Array],
    inputs: Array,
) -> tuple[Sessions, Array]:
    """Run a block of sessions from start to end; return the results and the eligible items."""
    state = jax.vmap(lambda p, a, s: _start(pool, config, p, a, s))(priors, allowed, seeds)

    def going(state: CatState) -> Array:
        return (state.stop == 0).any()

    def advance(state: CatState) -> CatState:
        def one(state: CatState, subject_input: Any) -> CatState:
            answers = respond(state, subject_input)
            taken = pool.seconds[jnp.maximum(state.asked, 0)]
            seconds = jnp.where(state.asked >= 0, taken, 0).sum()
            return _step(pool, config, state, answers, seconds)

        return jax.vmap(one)(state, inputs)

    state = jax.lax.while_loop(going, advance, state)
    score = jax.vmap(lambda s: score_moments(context_of(pool, config, s)))(state)
    sessions = Sessions.of(state, score[0], jnp.sqrt(jnp.maximum(score[1], 0)))
    if not EXPOSURE[config.exposure.name].updates:
        return sessions, jnp.zeros((0, pool.n_items), bool)

    def eligible(state: CatState) -> Array:
        return eligible_items(context_of(pool, config, state), config.exposure)

    return sessions, jax.vmap(eligible)(state)


@functools.partial(jit, static_argnames=("config",), options=BEST)  # a twentieth faster
def simulated(
    pool: Pool, config: Config, priors: Array, allowed: Array | None, seeds: Array, theta: Array
) -> tuple[Sessions, Array]:
    def respond(state: CatState, theta: Array) -> Array:
        return _answer(pool, config, state, theta)

    return _run(pool, config, priors, allowed, seeds, respond, theta)


@functools.partial(jit, static_argnames=("config",), options=BEST)
def replayed(
    pool: Pool, config: Config, priors: Array, allowed: Array | None, seeds: Array, x: Array
) -> tuple[Sessions, Array]:
    def respond(state: CatState, row: Array) -> Array:
        return row[jnp.maximum(state.asked, 0)].astype(jnp.int32)

    return _run(pool, config, priors, allowed, seeds, respond, x)


class _Inputs(NamedTuple):
    """A block of subjects: priors, allowed items, seeds, and abilities or recorded answers."""

    priors: FloatArray
    allowed: BoolArray | None
    seeds: np.ndarray
    values: np.ndarray


class _Shared(NamedTuple):
    """What the blocks share in other processes."""

    pool: Pool
    config: Config
    program: Callable[..., tuple[Sessions, Array]]
    width: str


def _in_worker(shared: _Shared, inputs: _Inputs) -> tuple[Sessions, np.ndarray]:
    """Compute a block, in any process."""
    with precision(shared.width):
        results = shared.program(shared.pool, shared.config, *inputs)
        sessions, eligible = jax.tree.map(np.asarray, results)
    return sessions, eligible


@dataclass(frozen=True)
class BlockPlan:
    """How a simulation is divided into blocks."""

    n: int
    block: int
    program: Callable[..., tuple[Sessions, Array]]
    progress: Progress | None
    executor: Executor | None

    def run(
        self,
        pool: Pool,
        config: Config,
        priors: FloatArray,
        allowed: BoolArray | None,
        inputs: np.ndarray,
        seed: int,
    ) -> tuple[Sessions, Counts]:
        """Run all blocks, all of the same shape, and update the counts of exposure."""
        updates = EXPOSURE[config.exposure.name].updates
        blocks: list[Sessions] = []
        words = np.random.SeedSequence(seed).generate_state(2 * self.n).reshape(-1, 2)
        starts = range(0, self.n, self.block)

        def inputs_from(start: int) -> _Inputs:
            rows = np.minimum(start + np.arange(self.block), self.n - 1)
            return _Inputs(
                priors=priors[rows].astype(pool.nodes.dtype),
                allowed=None if allowed is None else allowed[rows],
                seeds=words[rows].astype(np.uint32),
                values=inputs[rows],
            )

        running: deque[tuple[Sessions, Any]] = deque()
        if self.executor is not None:
            arrays = jax.tree.map(np.asarray, pool)  # pickled arrays of JAX lose their float64
            shared = _Shared(arrays, config, self.program, str(pool.nodes.dtype))
            tasks = map(inputs_from, starts)
            running.extend(in_order(_in_worker, shared, tasks, self.executor, self._report))
        # Blocks that do not depend on each other's counts are computed two at a time.
        ahead = 1 if updates else AHEAD
        sent = 0 if self.executor is None else len(starts)
        for begin in starts:
            while sent < len(starts) and len(running) < ahead:
                running.append(self.program(pool, config, *inputs_from(starts[sent])))
                sent += 1
            padded, eligible = running.popleft()
            n_real = int(min(self.block, self.n - begin))
            block_sessions = Sessions(*(np.asarray(leaf)[:n_real] for leaf in padded))
            blocks.append(block_sessions)
            eligible_here = np.asarray(eligible)[:n_real] if updates else None
            cells = _cells(pool, config, block_sessions, priors[begin : begin + n_real])
            added = tally(config.exposure, pool.n_items, block_sessions.items, cells, eligible_here)
            counts = updated(pool.counts, config.exposure, *added)
            pool = pool.with_counts(counts)
            if self.executor is None:
                self._report(begin // self.block + 1)
        sessions = Sessions(*(np.concatenate(leaves) for leaves in zip(*blocks, strict=True)))
        return sessions, pool.counts

    def _report(self, n_blocks: int) -> None:
        """Report that so many blocks are done."""
        if self.progress is not None:
            self.progress(min(n_blocks * self.block, self.n), self.n)


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


def _block_size(pool: Pool, config: Config, n: int, block: int | None) -> int:
    if block is not None:
        check_count("block", block)
        return min(block, n)
    if EXPOSURE[config.exposure.name].updates:
        return min(SMALL_BLOCK, n)
    width = pool.n_items * pool.p.shape[1] * (16 if config.batch > 1 else 1)
    width *= pool.belief.nodes_per_subject
    width = max(width, pool.nodes.shape[0] * 4) * pool.nodes.dtype.itemsize
    most = max(16, BLOCK_BYTES // width)
    if jax.default_backend() == "cpu":
        most = min(most, BLOCK)
    return -(-n // -(-n // most))  # blocks of equal size


def planned(
    pool: Pool,
    config: Config,
    n: int,
    block: int | None,
    program: Any,
    progress: Progress | None,
    executor: Executor | None,
) -> BlockPlan:
    """The plan of a simulation; raises for an executor that cannot be used."""
    check_executor(executor)
    if executor is not None and EXPOSURE[config.exposure.name].updates:
        must = f"None with the exposure rule {config.exposure.name}, which uses the counts so far"
        raise argument_error("executor", must, type(executor).__name__)
    return BlockPlan(n, _block_size(pool, config, n, block), program, progress, executor)

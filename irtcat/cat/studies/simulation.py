"""`simulate` and `replay`: many sessions at once, in blocks of bounded memory."""

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
from irtcat._common.compilation import jit
from irtcat._common.executors import check_executor, in_order
from irtcat._common.precision import choose_precision
from irtcat._common.precision import precision as in_width
from irtcat._common.progress import ProgressOption, counted, with_progress
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.cat.belief.pool import Counts, Pool
from irtcat.cat.belief.priors import mixture_moments, prior_note, prior_rows
from irtcat.cat.belief.state import ANSWERS, CatState, uniforms
from irtcat.cat.engine.arguments import checked_bank
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import _start, _step, context_of, program_of
from irtcat.cat.engine.exposure_parameters import ExposureParameters, counts_for
from irtcat.cat.engine.plan import content_plan
from irtcat.cat.engine.preparation import prepare
from irtcat.cat.rules.exposure import EXPOSURE, cell_of, cuts_in, eligible_items, tally, updated
from irtcat.cat.rules.starting import start_theta_of
from irtcat.cat.rules.stopping import score_moments
from irtcat.cat.studies.report import Report
from irtcat.models import ability_points, take
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions

BLOCK = 1000
"""Maximum number of subjects that are simulated at a time on the CPU: 2,000 take a tenth to a fifth
longer, since less of their arrays stays in the cache, and 500 as long (500 items, 81 nodes). A GPU,
which starts as many programs for any number, takes what fits in `BLOCK_BYTES`."""

SMALL_BLOCK = 50
"""The same where an exposure rule uses the counts so far."""

AHEAD = 2
"""Blocks that are computed at the same time."""

BLOCK_BYTES = 2**28
"""Memory that one block's largest array may take."""

Progress = Callable[[int, int], None]
"""Called with the number of subjects done and the total number."""


class Sessions(NamedTuple):
    """Results of simulated sessions, subjects first."""

    items: Any
    answers: Any
    thetas: Any
    ses: Any
    n: Any
    stop: Any
    theta: Any
    se: Any
    score: Any
    score_sd: Any
    relaxed: Any


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
    sessions = Sessions(
        items=state.items,
        answers=state.answers,
        thetas=state.thetas,
        ses=state.ses,
        n=state.n,
        stop=state.stop,
        theta=state.theta,
        se=state.se,
        score=score[0],
        score_sd=jnp.sqrt(jnp.maximum(score[1], 0)),
        relaxed=(jnp.zeros_like(state.items, jnp.int8) if state.relaxed is None else state.relaxed),
    )
    if not EXPOSURE[config.exposure.name].updates:
        return sessions, jnp.zeros((0, pool.n_items), bool)

    def eligible(state: CatState) -> Array:
        return eligible_items(context_of(pool, config, state), config.exposure)

    return sessions, jax.vmap(eligible)(state)


@functools.partial(jit, static_argnames=("config",))
def _simulated(
    pool: Pool, config: Config, priors: Array, allowed: Array | None, seeds: Array, theta: Array
) -> tuple[Sessions, Array]:
    def respond(state: CatState, theta: Array) -> Array:
        return _answer(pool, config, state, theta)

    return _run(pool, config, priors, allowed, seeds, respond, theta)


@functools.partial(jit, static_argnames=("config",))
def _replayed(
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
    with in_width(shared.width):
        results = shared.program(shared.pool, shared.config, *inputs)
        sessions, eligible = jax.tree.map(np.asarray, results)
    return sessions, eligible


@dataclass(frozen=True)
class _Plan:
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
            pool = pool._replace(
                counts=Counts(*(jnp.asarray(leaf, pool.nodes.dtype) for leaf in counts))
            )
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
    width *= pool.belief.curves_per_item
    width = max(width, pool.nodes.shape[0] * 4) * pool.nodes.dtype.itemsize
    most = max(16, BLOCK_BYTES // width)
    if jax.default_backend() == "cpu":
        most = min(most, BLOCK)
    return -(-n // -(-n // most))  # blocks of equal size


def _plan(
    pool: Pool,
    config: Config,
    n: int,
    block: int | None,
    program: Any,
    progress: Progress | None,
    executor: Executor | None,
) -> _Plan:
    """The plan of a simulation; raises for an executor that cannot be used."""
    check_executor(executor)
    if executor is not None and EXPOSURE[config.exposure.name].updates:
        must = f"None with the exposure rule {config.exposure.name}, which uses the counts so far"
        raise argument_error("executor", must, type(executor).__name__)
    return _Plan(n, _block_size(pool, config, n, block), program, progress, executor)


@with_progress("Simulating sessions", counted("subjects"))
def simulate(
    bank: ItemBank,
    theta: Any,
    config: Config,
    seed: int = 0,
    *,
    prior: Any = None,
    counts: Counts | ExposureParameters | None = None,
    block: int | None = None,
    precision: str = "auto",
    executor: Executor | None = None,
    progress: ProgressOption = None,
) -> Report:
    """Simulate adaptive sessions for subjects of known ability.

    Sessions run in blocks with the same compiled step as a live session; memory is that of one
    block and of the answers. An answer depends on the seed, the subject and the item only:
    configurations compared under one seed get the same answers.

    Args:
        bank: calibrated items.
        theta: true abilities of the subjects; with several abilities subjects x abilities.
        config: the configuration.
        seed: seed of the answers and of all random rules.
        prior: mean and SD of the prior, for all subjects or for each, or a `Population` for all; by
            default the bank's population. A density or mixture is the prior as it is
            (`Population.log_density`). With several abilities the means (for all, or subjects x
            abilities), and the SDs or the covariance matrix; there a mixture counts as the Normal
            with its mean and covariance, as ``note`` of the report says.
        counts: exposure so far (``counts`` of an earlier report); for the rule "sympson-hetter" the
            parameters of `calibrate_exposure` (required).
        block: subjects at a time; by default what fits in 256 MB, on a CPU at most 1,000, and 50
            where an exposure rule uses the counts so far (a rate then exceeds its maximum by at
            most 50 over the number of subjects).
        precision: "float64", "float32", or "auto" (float32 from a million cells on).
        executor: computes the blocks, in parallel: any `concurrent.futures.Executor` (not with an
            exposure rule that uses the counts so far). The result is the same. By default the
            current process.
        progress: True to show the time left on stderr, or a function that is called with the number
            of subjects done and the total, after every block.

    Returns:
        The report.

    Raises:
        InputError: as `prepare` does, or for abilities that are not finite.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 40))
        >>> report = simulate(bank, [-1.0, 0.0, 1.0], Config(max_items=10), seed=1)
        >>> report.n_items.tolist(), report.theta.shape
        ([10, 10, 10], (3,))
    """
    bank = checked_bank(bank, config)
    truth = ability_points(theta, bank.model.dims)
    check_count("seed", seed, 0)
    dtype = choose_precision(precision, len(truth) * bank.n_items)
    pool = _with_counts(prepare(bank, config, dtype), counts_for(bank, config, counts))
    plan = _plan(pool, config, len(truth), block, _simulated, progress, executor)
    with in_width(dtype) as width:
        priors = prior_rows(bank, prior, len(truth))
        pool.belief.check_priors(priors)
        sessions, new_counts = plan.run(
            pool, program_of(config), priors, None, truth.astype(width), seed
        )
    return _report(
        bank, config, pool, sessions, new_counts, truth, priors, None, prior_note(bank, prior)
    )


@with_progress("Replaying sessions", counted("subjects"))
def replay(
    bank: ItemBank,
    responses: Responses,
    config: Config,
    seed: int = 0,
    *,
    prior: Any = None,
    counts: Counts | ExposureParameters | None = None,
    block: int | None = None,
    precision: str = "auto",
    mismatch: str = "refuse",
    executor: Executor | None = None,
    progress: ProgressOption = None,
) -> Report:
    """Simulate adaptive sessions of real subjects with their recorded answers.

    A subject is not asked items that it did not answer.

    Args:
        bank: calibrated items.
        responses: the recorded answers; the items must include those of the bank.
        config: the configuration.
        seed: seed of the random rules.
        prior: as for `simulate`.
        counts: as for `simulate`.
        block: as for `simulate`.
        precision: as for `simulate`.
        mismatch: as for `irtcat.score`.
        executor: as for `simulate`.
        progress: as for `simulate`.

    Returns:
        The report; ``truth`` is the estimate from all answers (by `irtcat.score`) and
        ``full_score`` the mean over all answers.

    Raises:
        InputError: as `prepare` and `irtcat.score` do.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> from irtcat import fit
        >>> data = load("lsat7")
        >>> bank = fit(data, "2pl", standard_errors="none").bank
        >>> report = replay(bank, data, Config(max_items=3))
        >>> report.n_items.max().item()
        3
    """
    from irtcat.scoring import match, score

    bank = checked_bank(bank, config)
    check_conditions(bank.items, responses.items, mismatch, source="bank")
    bank, matched = match(bank, responses)
    check_count("seed", seed, 0)
    values = matched.values
    if matched.is_fractional:
        raise argument_error("responses", "answers in categories", "fractions")
    if config.is_guaranteed and matched.has_missing:
        must = "answers of every subject to every item for a guaranteed test"
        raise argument_error("responses", must, "some missing")
    dtype = choose_precision(precision, values.size)
    pool = _with_counts(prepare(bank, config, dtype), counts_for(bank, config, counts))
    plan = _plan(pool, config, len(values), block, _replayed, progress, executor)
    with in_width(dtype):
        priors = prior_rows(bank, prior, len(values))
        pool.belief.check_priors(priors)
        allowed = None if matched.observed.all() else matched.observed
        sessions, new_counts = plan.run(pool, program_of(config), priors, allowed, values, seed)
    truth = np.asarray(score(bank, matched, mismatch="accept").theta)
    return _report(
        bank, config, pool, sessions, new_counts, truth, priors, matched, prior_note(bank, prior)
    )


def _with_counts(pool: Pool, counts: Counts | None) -> Pool:
    """The pool with these counts of exposure, if there are any."""
    if counts is None:
        return pool
    with in_width(str(pool.nodes.dtype)) as width:
        arrays = Counts(*(jnp.asarray(np.asarray(leaf), width) for leaf in counts))
        return pool._replace(counts=arrays)


def _report(
    bank: ItemBank,
    config: Config,
    pool: Pool,
    sessions: Sessions,
    counts: Counts,
    truth: FloatArray,
    priors: FloatArray,
    responses: Responses | None,
    note: str,
) -> Report:
    """The report of finished sessions."""
    top = np.maximum(np.asarray(pool.top), 1)
    full = None
    if responses is not None:
        observed = responses.observed
        share = np.where(observed, responses.values, 0) / top
        with np.errstate(invalid="ignore"):
            full = share.sum(axis=1) / observed.sum(axis=1)
        ids = responses.subject_ids
    else:
        ids = np.array([f"s{i + 1}" for i in range(len(truth))])
    items, answers = np.asarray(sessions.items), np.asarray(sessions.answers)
    unused = bank.in_unused_categories(items, answers).sum(axis=1)
    return Report(
        subject_ids=ids,
        item_ids=bank.item_ids,
        config=config,
        truth=truth,
        theta=np.asarray(sessions.theta, float),
        se=np.asarray(sessions.se, float),
        n_items=np.asarray(sessions.n),
        stop=np.asarray(sessions.stop),
        items=items,
        answers=answers,
        thetas=np.asarray(sessions.thetas, float),
        ses=np.asarray(sessions.ses, float),
        score=np.asarray(sessions.score, float),
        score_sd=np.asarray(sessions.score_sd, float),
        full_score=full,
        priors=priors,
        counts=Counts(*(np.asarray(leaf) for leaf in counts)),
        relaxed=np.asarray(sessions.relaxed),
        plan=content_plan(bank, config) if config.targets else None,
        unused=unused if unused.any() else None,
        note=note,
    )

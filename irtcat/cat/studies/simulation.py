"""`simulate` and `replay`: adaptive sessions of many subjects."""

from concurrent.futures import Executor
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, check_count
from irtcat._common.precision import choose_precision
from irtcat._common.precision import precision as in_width
from irtcat._common.progress import ProgressOption, counted, with_progress
from irtcat.bank import BankLike
from irtcat.cat.belief.priors import prior_note, prior_rows
from irtcat.cat.belief.state import Counts
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import program_of
from irtcat.cat.engine.exposure_parameters import ExposureParameters, counts_for
from irtcat.cat.engine.preparation import prepare
from irtcat.cat.engine.reading import checked_bank
from irtcat.cat.studies.blocks import (
    Subjects,
    block_size,
    drawn_answers,
    recorded_answers,
    run_blocks,
)
from irtcat.cat.studies.finished import report_of
from irtcat.cat.studies.report import Report
from irtcat.models import ability_points
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions


@with_progress("Simulating sessions", counted("subjects"))
def simulate(
    bank: BankLike,
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
        block: subjects at a time; by default what fits in 256 MB, on a CPU at most 2,500, and 50
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
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 40))
        >>> report = simulate(bank, [-1.0, 0.0, 1.0], Config(max_items=10), seed=1)
        >>> report.n_items.tolist(), report.theta.shape
        ([10, 10, 10], (3,))
    """
    bank = checked_bank(bank, config)
    truth = ability_points(theta, bank.model.dims)
    check_count("seed", seed, 0)
    dtype = choose_precision(precision, len(truth) * bank.n_items)
    pool = prepare(bank, config, dtype).with_counts(counts_for(bank, config, counts))
    size = block_size(pool, config, len(truth), block, executor)
    with in_width(dtype) as width:
        priors = prior_rows(bank, prior, len(truth))
        pool.belief.check_priors(priors)
        subjects = Subjects.seeded(priors, None, truth.astype(width), seed)
        sessions, new_counts = run_blocks(
            pool, program_of(config), drawn_answers, subjects, size, progress, executor
        )
    return report_of(
        bank,
        config,
        sessions,
        new_counts,
        subject_ids=np.array([f"s{i + 1}" for i in range(len(truth))]),
        truth=truth,
        priors=priors,
        full_score=None,
        note=prior_note(bank, prior),
    )


@with_progress("Replaying sessions", counted("subjects"))
def replay(
    bank: BankLike,
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
        ``full_score`` the mean over all answers, without those to pretest items.

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
    pool = prepare(bank, config, dtype).with_counts(counts_for(bank, config, counts))
    size = block_size(pool, config, len(values), block, executor)
    with in_width(dtype):
        priors = prior_rows(bank, prior, len(values))
        pool.belief.check_priors(priors)
        allowed = None if matched.observed.all() else matched.observed
        subjects = Subjects.seeded(priors, allowed, values, seed)
        sessions, new_counts = run_blocks(
            pool, program_of(config), recorded_answers, subjects, size, progress, executor
        )
    truth = np.asarray(score(bank, matched, mismatch="accept").theta)
    with np.errstate(invalid="ignore"):
        counts_in_score = matched.observed & ~np.asarray(pool.pretest)
        share = np.where(counts_in_score, values, 0) / np.maximum(np.asarray(pool.top), 1)
        full_score = share.sum(axis=1) / counts_in_score.sum(axis=1)
    return report_of(
        bank,
        config,
        sessions,
        new_counts,
        subject_ids=matched.subject_ids,
        truth=truth,
        priors=priors,
        full_score=full_score,
        note=prior_note(bank, prior),
    )

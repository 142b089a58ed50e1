"""The evaluation protocol: hold subjects out, choose items, predict the subjects, compare."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Any

import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count, check_interval
from irtcat._common.executors import check_executor, in_order
from irtcat._common.progress import ProgressOption, with_progress
from irtcat.io import as_responses
from irtcat.io.convert import ResponsesLike
from irtcat.leaderboard.board import Leaderboard
from irtcat.leaderboard.hold_outs import LEAVE_OUT, HoldOuts, ProtocolPlan, left_out_groups
from irtcat.models import get_model
from irtcat.prediction import ESTIMATORS
from irtcat.responses import Responses
from irtcat.selection import DEFAULT_STRATEGY, STRATEGIES, expectation_of

Progress = Callable[[int, int, str], None]
"""Called as ``progress(done, total, text)``; one unit is one subset."""

ALL = "all"
BY_GROUP = frozenset({"stratified-group", "stratified-both"})
"""Strategies that need groups of items, which a leaderboard does not have."""


@with_progress("Evaluating")
def evaluate(
    responses: ResponsesLike,
    strategies: Sequence[str] | str | None = None,
    n_items: Sequence[int] = (10, 30, 60, 100),
    split: str = "random",
    seeds: Iterable[int] = range(5),
    *,
    model: str = "2pl",
    estimators: Sequence[str] | str = ("auto", "ridge", "mean"),
    expect: str | None = None,
    subject_features: Any = None,
    share: float = 0.25,
    tau: float | None = None,
    level: float = 0.95,
    top: int = 10,
    executor: Executor | None = None,
    progress: ProgressOption = None,
) -> Leaderboard:
    """Hold subjects out, choose items without them, predict their full scores, and compare.

    Exact duplicate rows are dropped first. For every seed the subjects are split, the items are
    calibrated on the calibration subjects only, and one subset per strategy and k is chosen for all
    held-out subjects. The target is the mean of each held-out subject over all items with a
    response: the score of this run. What a rerun would have scored is not known, so that errors,
    coverage and gaps of the models' expected scores cannot be measured: `plan` and `compare` take
    the noise of reruns into account. For single answers see `evaluate_cells`.

    | split | held out | calibrated on |
    |---|---|---|
    | random | ``default_rng(seed).permutation(n)[: n * share]`` | the others |
    | ability | the top 30 % by full score | the bottom 50 % |
    | metadata:<column> | whole groups, drawn until about ``share`` is reached | the others |
    | before:<column> | about ``share``, the latest by a date or number | all earlier ones |
    | leave-out:<column> | one group after the other, each once for every seed | the others |

    If the split does not depend on the seed, only random strategies do, and other rows repeat. With
    "leave-out:" groups of one subject are never held out.

    Args:
        responses: who answered what on the full benchmark; of any kind that `irtcat.as_responses`
            takes.
        strategies: names of `irtcat.selection.STRATEGIES`, or "all". With "all", a strategy that is
            not possible with these data gives a row that ``flag`` explains. By default the
            strategy of `irtcat.select`, "stratified" and "random".
        n_items: subset sizes, each from 1 to the number of items.
        split: "random", "ability", or "metadata:", "before:" or "leave-out:" with a column of
            ``responses.subjects``.
        seeds: seeds of the split and of random strategies.
        model: item model for strategies and estimators that need calibrated items.
        estimators: names of `irtcat.prediction.ESTIMATORS`, or "all" (likewise).
        expect: what is known of the held-out subjects, for the choice of items and the estimators
            that use it: "similar", "stronger" (with the splits "ability" and "before:") or
            "weaker".
        subject_features: what is known of the subjects besides their responses, a table by id (see
            `irtcat.fit`): the prior that it gives each held-out subject is used by the estimators
            that take one. So it is measured what the features are worth.
        share: share held out by "random", "metadata:" and "before:".
        tau: threshold of the difficulty filters.
        level: probability of the intervals, whose coverage is measured.
        top: number of best held-out subjects for ``top_overlap``.
        executor: evaluates the hold-outs, in parallel: any `concurrent.futures.Executor`. The
            result is the same. By default the current process.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)``.

    Returns:
        The leaderboard: `to_frame()` has a row per hold-out, strategy, k and estimator,
        `summary()` the mean over them, `intervals()` bootstrap intervals over subjects or items,
        `reliable_gaps` the smallest gap that is ranked right, and `recommend` the strategy, the
        estimator and the number of items to use.

    Raises:
        InputError: for an unknown strategy, estimator, model, split or column; a k above the number
            of items; nothing to evaluate; or fewer than 2 subjects held out or calibrated.

    Example:
        >>> import numpy as np
        >>> from irtcat.bank import ItemBank
        >>> r = ItemBank.from_parameters(b=np.linspace(-2, 2, 60)).simulate(np.linspace(-2, 2, 80))
        >>> board = evaluate(r, ["random", "stratified"], n_items=[10, 30], estimators=["mean"])
        >>> board
        Leaderboard(80 x 60, split random; strategies: 2, estimators: 1, n_items: 2, seeds: 5)
        >>> board.summary()["mae"].round(1).tolist()
        [10.6, 5.4, 9.2, 4.2]

    References:
        Zhang, Dorner & Hardt (2025) (splits); Maia Polo et al. (2024), tinyBenchmarks.
    """
    if strategies is None:
        strategies = _default_strategies(expect)
    plan = ProtocolPlan(
        strategies=_names("strategies", strategies, STRATEGIES),
        estimators=_names("estimators", estimators, ESTIMATORS),
        n_items=_numbers("n_items", n_items, least=1),
        seeds=_numbers("seeds", seeds, least=0),
        share=share,
        model=model,
        tau=tau,
        level=level,
        top=top,
        lenient=isinstance(strategies, str) or isinstance(estimators, str),
        expect=expect,
        subject_features=subject_features,
    )
    check_executor(executor)
    responses = as_responses(responses, name="responses")
    unique = _check(plan, responses)
    by_group = isinstance(split, str) and split.startswith(LEAVE_OUT)
    splits, too_small = left_out_groups(unique, split) if by_group else ([split], [])
    tasks = list(itertools.product(splits, plan.seeds))
    n_subsets = len(plan.strategies) * len(plan.n_items)
    done = 0

    def report(n: int, text: str) -> None:
        nonlocal done
        done += n
        if progress is not None:
            progress(done, len(tasks) * n_subsets, text)

    hold_outs = HoldOuts(plan, unique, report if executor is None else None)
    finished = None if executor is None else (lambda n: report(n_subsets, f"hold-out {n}"))
    results = in_order(HoldOuts.evaluate, hold_outs, tasks, executor, finished)
    rows = [row for hold_out in results for row, _ in hold_out]
    runs = [run for hold_out in results for _, run in hold_out if run is not None]
    return Leaderboard(
        table=pd.DataFrame(rows),
        runs=tuple(runs),
        responses=unique,
        n_duplicates=responses.n_subjects - unique.n_subjects,
        top=top,
        level=float(level),
        flags=(f"groups never held out, too small: {', '.join(too_small)}",) if too_small else (),
    )


def _default_strategies(expect: str | None) -> tuple[str, ...]:
    """The default strategies of `select`, and two samples to compare them with."""
    row = expectation_of(expect)
    chosen = (DEFAULT_STRATEGY,) if row is None else (row.strategy, row.strategy_for_few)
    return (*chosen, "stratified", "random")


def _names(name: str, values: Any, table: Iterable[str]) -> tuple[str, ...]:
    """Unique names of a table, at least one; "all" for all that need no groups."""
    if isinstance(values, str):
        if values == ALL:
            return tuple(name for name in table if name not in BY_GROUP)
        raise argument_error(name, 'a list of names, or "all"', values, f'Write ["{values}"].')
    names = tuple(dict.fromkeys(values))
    if not names:
        raise argument_error(name, f"at least one of {', '.join(table)}", "none")
    for value in names:
        check_choice(name, value, table)
    return names


def _numbers(name: str, values: Any, least: int) -> tuple[int, ...]:
    """Unique whole numbers, at least one."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise argument_error(name, "a list of whole numbers", values)
    numbers = tuple(dict.fromkeys(values))
    if not numbers:
        raise argument_error(name, "at least one whole number", "none")
    for value in numbers:
        check_count(name, value, least)
    return tuple(int(value) for value in numbers)


def _check(plan: ProtocolPlan, responses: Responses) -> Responses:
    """Check the plan; return the responses without duplicate rows."""
    get_model(plan.model)
    check_interval("share", plan.share)
    check_interval("level", plan.level)
    check_count("top", plan.top)
    if max(plan.n_items) > responses.n_items:
        must = f"whole numbers up to {responses.n_items}, the number of items"
        raise argument_error("n_items", must, max(plan.n_items))
    _check_features(plan, responses)
    unique = responses.without_duplicate_subjects()
    if unique.n_subjects < 4:
        got = f"{unique.n_subjects} that differ"
        raise argument_error("responses", "responses of at least 4 different subjects", got)
    return unique


def _check_features(plan: ProtocolPlan, responses: Responses) -> None:
    """Raise for features of stronger or weaker subjects, or for subjects without features."""
    features, expectation = plan.subject_features, expectation_of(plan.expect)
    if features is None:
        return
    if expectation is not None and expectation.direction:
        raise argument_error("expect", "None or similar with features of subjects", plan.expect)
    if not isinstance(features, pd.DataFrame):
        raise argument_error("subject_features", "a data frame by subject id", features)
    missing = pd.Index(responses.subject_ids).difference(features.index, sort=False)
    if len(missing):
        raise argument_error("subject_features", "a row of every subject", f"none of {missing[0]}")

"""Hold-outs of the protocol: split, calibrate, choose items, predict, and compare.

Subjects are split at random, by ability, by group, by date, or one group at a time.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error
from irtcat._common.dates import as_years
from irtcat._common.positions import positions_of_ids
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.fitting import EM, fit
from irtcat.leaderboard.board import Run
from irtcat.leaderboard.metrics import METRICS, compare_scores
from irtcat.prediction import ESTIMATORS, full_scores, predict
from irtcat.responses import Responses
from irtcat.selection import STRATEGIES, Subset, select

GROUPS = "metadata:"
BEFORE = "before:"
LEAVE_OUT = "leave-out:"
BOTTOM, TOP = 0.5, 0.3  # split="ability": calibrate on the bottom half, predict the top 30 %

TOLERANCE = 1e-3
"""Tolerance of the calibrations, in standard errors: smaller changes hardly affect the scores."""


def split_subjects(
    responses: Responses, split: str = "random", seed: int = 0, share: float = 0.25
) -> tuple[Responses, Responses]:
    """Split the subjects as `evaluate` does, without dropping duplicates.

    Args:
        responses: the responses.
        split: "random", "ability", "metadata:<column>", "before:<column>" (see `evaluate`) or
            "leave-out:<column>=<group>".
        seed: seed of the random order; used by "random" and "metadata:" only.
        share: share held out by "random", "metadata:" and "before:".

    Returns:
        The calibration part and the held-out part, with rows in their original order.

    Raises:
        InputError: for an unknown split, column or group, a column that cannot be ordered, or fewer
            than 2 subjects in a part.

    Example:
        >>> X = np.tril(np.ones((10, 10), int))
        >>> low, high = split_subjects(Responses.from_array(X), "ability")
        >>> low.subject_ids.tolist(), high.subject_ids.tolist()
        (['s1', 's2', 's3', 's4', 's5'], ['s8', 's9', 's10'])
        >>> import pandas as pd
        >>> dates = pd.DataFrame({"date": range(2010, 2020)}, index=[f"s{i}" for i in range(1, 11)])
        >>> r = Responses.from_array(X, subjects=dates)
        >>> split_subjects(r, "before:date", share=0.2)[1].subject_ids.tolist()
        ['s9', 's10']
    """
    kind = split if isinstance(split, str) else ""
    if kind == "random":
        parts = responses.split(share, seed)
    elif kind == "ability":
        parts = _by_ability(responses)
    elif kind.startswith(GROUPS):
        column = _column(responses, split, GROUPS)
        # Under the prefixed name, so that a column called "ability" is not read as a split.
        metadata = responses.subjects[[column]].set_axis([split], axis=1)
        low, high = replace(responses, subjects=metadata).split(share, seed, by=split)
        parts = responses.subset(low.subject_ids), responses.subset(high.subject_ids)
    elif kind.startswith(BEFORE):
        parts = _by_order(responses, _column(responses, split, BEFORE), share)
    elif kind.startswith(LEAVE_OUT):
        parts = _one_group(responses, split)
    else:
        must = f"random, ability, {GROUPS}<column>, {BEFORE}<column> or {LEAVE_OUT}<column>"
        raise argument_error("split", must, split)
    for subset, role in zip(parts, ("calibrated", "held out"), strict=True):
        if subset.n_subjects < 2:
            must = f"a split with at least 2 subjects {role}"
            advice = "Use more subjects or another share."
            raise argument_error("split", must, subset.n_subjects, advice)
    return parts


def left_out_groups(responses: Responses, split: str) -> tuple[list[str], list[str]]:
    """The splits of "leave-out:<column>", one per group, and the groups that are too small.

    A group of fewer than 2 subjects cannot be ranked; it is only used for calibration.
    """
    if split.removeprefix(LEAVE_OUT) not in responses.subjects.columns and "=" in split:
        return [split], []  # one group, named
    column = _column(responses, split, LEAVE_OUT)
    counts = responses.subjects[column].dropna().astype(str).value_counts(sort=False)
    n = responses.n_subjects
    usable = [group for group, count in counts.items() if 2 <= count <= n - 2]
    if not usable:
        must = f"{LEAVE_OUT} with a column that has a group of at least 2 subjects and other ones"
        raise argument_error("split", must, split)
    too_small = [str(group) for group in counts.index if group not in set(usable)]
    return [f"{LEAVE_OUT}{column}={group}" for group in usable], too_small


def _column(responses: Responses, split: str, prefix: str) -> str:
    """The column of `Responses.subjects` that a split names."""
    column, columns = split.removeprefix(prefix), responses.subjects.columns
    if column not in columns:
        known = [f"{kind}{name}" for kind in (GROUPS, BEFORE, LEAVE_OUT) for name in columns]
        raise argument_error("split", f"one of {', '.join(['random', 'ability', *known])}", split)
    return column


def _by_ability(responses: Responses) -> tuple[Responses, Responses]:
    """The bottom half and the top 30 % by full score, without subjects without a response."""
    score = full_scores(responses)
    order = np.argsort(score, kind="stable")[: np.count_nonzero(~np.isnan(score))]
    n = len(order)
    # 1e-9, so that .3 * 10 is 3
    return _parts(responses, order[: int(n * BOTTOM + 1e-9)], order[n - int(n * TOP + 1e-9) :])


def _by_order(responses: Responses, column: str, share: float) -> tuple[Responses, Responses]:
    """Subjects before a value and from it on, about ``share`` of them; ties stay together."""
    values, wrong = as_years(responses.subjects[column])
    if wrong is not None:
        must = f"{BEFORE} with a column of numbers or dates such as 2024-05-31"
        got = responses.subjects[column].astype(str).tolist()
        raise argument_error("split", must, got)
    levels, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if len(levels) < 2:
        must = f"{BEFORE} with a column of at least two different dates or numbers"
        raise argument_error("split", must, BEFORE + column)
    n_held_out = counts[::-1].cumsum()[::-1][1:]  # number held out from each level on
    cut = levels[1 + int(np.argmin(np.abs(n_held_out - share * counts.sum())))]
    return _parts(responses, np.flatnonzero(values < cut), np.flatnonzero(values >= cut))


def _one_group(responses: Responses, split: str) -> tuple[Responses, Responses]:
    """All groups but one, and that group."""
    text = split.removeprefix(LEAVE_OUT)
    # The column may have a "=" in its name, and the group in its value.
    columns = [str(name) for name in responses.subjects.columns if text.startswith(f"{name}=")]
    column = max(columns, key=len, default=text.partition("=")[0])
    group = text[len(column) + 1 :]
    column = _column(responses, LEAVE_OUT + column, LEAVE_OUT)
    labels = responses.subjects[column].astype(str).to_numpy()
    inside = (labels == group) & responses.subjects[column].notna().to_numpy()
    if not inside.any():
        known = ", ".join(dict.fromkeys(labels.tolist()))
        raise argument_error("split", f"{LEAVE_OUT}{column}= with one of {known}", split)
    return _parts(responses, np.flatnonzero(~inside), np.flatnonzero(inside))


def _parts(responses: Responses, low: IntArray, high: IntArray) -> tuple[Responses, Responses]:
    """Both parts with their rows in their original order."""
    return responses.subset(subjects=np.sort(low)), responses.subset(subjects=np.sort(high))


class ProtocolPlan(NamedTuple):
    """The checked arguments of `evaluate`."""

    strategies: tuple[str, ...]
    estimators: tuple[str, ...]
    n_items: tuple[int, ...]
    seeds: tuple[int, ...]
    share: float
    model: str
    tau: float | None
    level: float
    top: int
    lenient: bool
    expect: str | None
    subject_features: pd.DataFrame | None

    @property
    def needs_bank(self) -> bool:
        """Whether any strategy or estimator needs calibrated items."""
        if self.subject_features is not None:
            return True
        by_bank = any("bank" in STRATEGIES[name].needs for name in self.strategies)
        return by_bank or any(ESTIMATORS[name].needs_bank for name in self.estimators)


class _Fold(NamedTuple):
    """One split of the subjects, with its calibration."""

    plan: ProtocolPlan
    split: str
    seed: int
    calibration: Responses
    held_out: Responses
    truth: FloatArray
    rows: np.ndarray
    bank: ItemBank | None
    prior: pd.DataFrame | None
    flags: tuple[str, ...]


class HoldOuts:
    """What all hold-outs share.

    Attributes:
        plan: the checked arguments.
        responses: the responses, without duplicate rows.
        report: called with the subsets done since the last call and a text; None in an executor.
        last: the last fold of this process.
    """

    def __init__(
        self, plan: ProtocolPlan, responses: Responses, report: Callable[[int, str], None] | None
    ) -> None:
        self.plan, self.responses, self.report = plan, responses, report
        self.last: _Fold | None = None

    def evaluate(self, task: tuple[str, int]) -> "list[tuple[dict[str, Any], Run | None]]":
        """The rows and runs of one hold-out: a split and a seed."""
        split, seed = task
        report = self.report or (lambda done, text: None)
        report(0, f"seed {seed}: splitting and calibrating")
        self.last = fold = _fold(self.plan, self.responses, split, seed, self.last)
        results: list[tuple[dict[str, Any], Run | None]] = []
        for strategy, k in itertools.product(self.plan.strategies, self.plan.n_items):
            results += _rows(fold, strategy, k)
            report(1, f"seed {seed}: {strategy}, k = {k}")
        return results


def _fold(
    plan: ProtocolPlan, responses: Responses, split: str, seed: int, last: _Fold | None
) -> _Fold:
    """Split and calibrate; reuse the last fold if the split does not depend on the seed."""
    if last is not None and last.split == split and not split.startswith(("random", GROUPS)):
        return last._replace(seed=seed)
    calibration, held_out = split_subjects(responses, split, seed, plan.share)
    bank: ItemBank | None = None
    prior: pd.DataFrame | None = None
    flags: tuple[str, ...] = ()
    if plan.needs_bank:
        features = plan.subject_features
        known = None if features is None else features.loc[list(calibration.subject_ids)]
        fitted = fit(
            calibration,
            plan.model,
            EM(tolerance=TOLERANCE),
            standard_errors="none",
            subject_features=known,
        )
        bank = fitted.bank
        if features is not None:
            prior = fitted.predict_subjects(features.loc[list(held_out.subject_ids)])
        flags = () if fitted.converged else ("calibration not converged",)
    return _Fold(
        plan=plan,
        split=split,
        seed=seed,
        calibration=calibration,
        held_out=held_out,
        truth=full_scores(held_out),
        rows=pd.Index(responses.subject_ids).get_indexer(pd.Index(held_out.subject_ids)),
        bank=bank,
        prior=prior,
        flags=flags,
    )


def _rows(fold: _Fold, strategy: str, k: int) -> Iterable[tuple[dict[str, Any], Run | None]]:
    """Choose, predict with every estimator, and compare; one row and one run for each."""
    plan, selection_error = fold.plan, ""
    subset: Subset | None = None
    try:
        subset = select(
            fold.bank,
            k,
            strategy=strategy,
            calibration=fold.calibration,
            expect=plan.expect,
            seed=fold.seed,
            tau=plan.tau,
        )
    except InputError as error:
        if not plan.lenient:
            raise
        selection_error = str(error)
    for estimator in plan.estimators:
        run, reason = None, selection_error
        if subset is not None:
            try:
                run = _predict(fold, subset, estimator, strategy)
            except InputError as error:
                if not plan.lenient:
                    raise
                reason = str(error)
        yield _row(fold, strategy, estimator, k, run, reason), run


def _predict(fold: _Fold, subset: Subset, estimator: str, strategy: str) -> Run:
    """Predictions of the held-out subjects by an estimator."""
    prediction = predict(
        fold.calibration,
        subset,
        fold.held_out,
        bank=fold.bank,
        estimator=estimator,
        expect=fold.plan.expect,
        prior=fold.prior if ESTIMATORS[estimator].takes_prior else None,
        level=fold.plan.level,
        estimand="run",
        pooled=False,
    )
    return Run(
        strategy=strategy,
        estimator=estimator,
        k=len(subset),
        subjects=fold.rows,
        items=positions_of_ids("subset", subset.item_ids, fold.calibration.item_ids),
        score=prediction.score,
        lower=prediction.lower,
        upper=prediction.upper,
        truth=fold.truth,
    )


def _row(
    fold: _Fold, strategy: str, estimator: str, k: int, run: Run | None, reason: str
) -> dict[str, Any]:
    """A row of the table."""
    metrics, flags = dict.fromkeys(METRICS, float("nan")), [reason]
    if run is not None:
        metrics, flags = compare_scores(run.score, run.lower, run.upper, run.truth, fold.plan.top)
    return {
        "split": fold.split,
        "seed": fold.seed,
        "strategy": strategy,
        "estimator": estimator,
        "n_items": k,
        **metrics,
        "undefined": ", ".join(name for name in METRICS if np.isnan(metrics[name])),
        "n_calibration": fold.calibration.n_subjects,
        "n_held_out": fold.held_out.n_subjects,
        "n_benchmark": fold.calibration.n_items,
        "flag": "; ".join([*fold.flags, *flags]),
    }

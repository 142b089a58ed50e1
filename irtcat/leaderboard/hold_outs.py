"""Hold-outs of the protocol: split, calibrate, choose items, predict, and compare."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError
from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting import EM, fit
from irtcat.leaderboard.board import Run
from irtcat.leaderboard.metrics import METRICS, compare_scores
from irtcat.leaderboard.splits import split_subjects
from irtcat.prediction import ESTIMATORS, full_scores, predict
from irtcat.responses import Responses
from irtcat.selection import STRATEGIES, Subset, select

TOLERANCE = 1e-3
"""Tolerance of the calibrations, in standard errors: smaller changes hardly affect the scores."""


class ProtocolPlan(NamedTuple):
    """The checked arguments of `evaluate`."""

    strategies: tuple[str, ...]
    estimators: tuple[str, ...]
    n_items: tuple[int, ...]
    seeds: tuple[int, ...]
    split: str
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
            results += _rows(self.plan, fold, strategy, k)
            report(1, f"seed {seed}: {strategy}, k = {k}")
        return results


def _fold(
    plan: ProtocolPlan, responses: Responses, split: str, seed: int, last: _Fold | None
) -> _Fold:
    """Split and calibrate; reuse the last fold if the split does not depend on the seed."""
    is_known = last is not None and last.split == split
    if last is not None and is_known and not split.startswith(("random", "metadata:")):
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
    rows = pd.Index(responses.subject_ids).get_indexer(pd.Index(held_out.subject_ids))
    return _Fold(
        split=split,
        seed=seed,
        calibration=calibration,
        held_out=held_out,
        truth=full_scores(held_out),
        rows=rows,
        bank=bank,
        prior=prior,
        flags=flags,
    )


def _choose(plan: ProtocolPlan, fold: _Fold, strategy: str, k: int) -> Subset:
    """The subset that all held-out subjects answer, chosen from the calibration subjects."""
    return select(
        fold.bank,
        k,
        strategy=strategy,
        calibration=fold.calibration,
        expect=plan.expect,
        seed=fold.seed,
        tau=plan.tau,
    )


def _rows(
    plan: ProtocolPlan, fold: _Fold, strategy: str, k: int
) -> Iterable[tuple[dict[str, Any], Run | None]]:
    """Choose, predict with every estimator, and compare; one row and one run for each."""
    selection_error = ""
    subset: Subset | None = None
    try:
        subset = _choose(plan, fold, strategy, k)
    except InputError as error:
        if not plan.lenient:
            raise
        selection_error = str(error)
    for estimator in plan.estimators:
        run, reason = None, selection_error
        if subset is not None:
            try:
                run = _predict(plan, fold, subset, estimator, strategy)
            except InputError as error:
                if not plan.lenient:
                    raise
                reason = str(error)
        yield _row(plan, fold, strategy, estimator, k, run, reason), run


def _predict(plan: ProtocolPlan, fold: _Fold, subset: Subset, estimator: str, strategy: str) -> Run:
    """Predictions of the held-out subjects by an estimator."""
    prediction = predict(
        fold.calibration,
        subset,
        fold.held_out,
        bank=fold.bank,
        estimator=estimator,
        expect=plan.expect,
        prior=fold.prior if ESTIMATORS[estimator].takes_prior else None,
        level=plan.level,
        estimand="run",
        pooled=False,
    )
    items = pd.Index(np.asarray(fold.calibration.item_ids, dtype=str)).get_indexer(
        pd.Index(np.asarray(subset.item_ids, dtype=str))
    )
    return Run(
        strategy=strategy,
        estimator=estimator,
        k=len(subset),
        subjects=fold.rows,
        items=items,
        score=prediction.score,
        lower=prediction.lower,
        upper=prediction.upper,
        truth=fold.truth,
    )


def _row(
    plan: ProtocolPlan,
    fold: _Fold,
    strategy: str,
    estimator: str,
    k: int,
    run: Run | None,
    reason: str,
) -> dict[str, Any]:
    """A row of the table."""
    metrics, flags = dict.fromkeys(METRICS, float("nan")), [reason]
    if run is not None:
        metrics, flags = compare_scores(run.score, run.lower, run.upper, run.truth, plan.top)
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

"""How good the probabilities of cells are: hide answers, predict them, compare."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat import agreement
from irtcat._common.checks import argument_error, check_choice, check_count, check_interval
from irtcat._common.progress import ProgressOption, with_progress
from irtcat._common.types import FloatArray
from irtcat.fitting import fit
from irtcat.io import as_responses
from irtcat.io.convert import ResponsesLike
from irtcat.leaderboard.cell_probabilities import (
    DIMS,
    CellTask,
    cell_task,
    main_effects,
    predicted_cells,
)
from irtcat.responses import Responses
from irtcat.scoring import score


def _factors(task: CellTask) -> FloatArray:
    return predicted_cells(task)[0]


def _plug_in(task: CellTask) -> FloatArray:
    """The 2PL with point estimates of items and abilities."""
    responses = Responses.from_array(task.answers)
    bank = fit(responses, "2pl", standard_errors="none").bank
    return bank.probability(score(bank, responses).theta).T


CELL_METHODS: dict[str, tuple[Callable[[CellTask], FloatArray], str]] = {
    "factors": (_factors, "`cells`: factors of subjects and items, calibrated"),
    "2pl": (_plug_in, "a fitted 2PL at the posterior mean of each ability (right/wrong answers)"),
    "main effects": (lambda task: main_effects(task.answers), "shares of the item and the subject"),
}
"""Ways to predict cells: the function of a `CellTask`, and a line that explains it."""

CELL_METRICS = ("log_loss", "brier", "auc", "calibration_error", "calibration_limit")
"""Columns of `CellEvaluation.to_frame` that are averaged over seeds."""


@dataclass(frozen=True, eq=False)
class CellEvaluation:
    """How well hidden answers were predicted.

    Attributes:
        table: a row for each method and seed (see `to_frame`).
        curves: the reliability curves, a row for each method and bin (see `reliability`).
        hidden: share of the answers that was hidden.
    """

    table: pd.DataFrame
    curves: pd.DataFrame
    hidden: float

    def __repr__(self) -> str:
        n_seeds, n_methods = self.table["seed"].nunique(), self.table["method"].nunique()
        return f"CellEvaluation({self.hidden:.0%} hidden, methods: {n_methods}, seeds: {n_seeds})"

    def to_frame(self) -> pd.DataFrame:
        """The long table: one row for each method and seed.

        Returns:
            method, seed, n_hidden, and of the hidden answers log_loss, brier (score), auc,
            calibration_error, and calibration_limit, which the error of calibrated probabilities
            exceeds by chance in one draw of 20 (see `irtcat.agreement`).
        """
        return self.table.copy()

    def summary(self) -> pd.DataFrame:
        """Mean over the seeds, and relative_log_loss: over that of the first method.

        Returns:
            Indexed by method.
        """
        means = self.table.groupby("method", sort=False)[list(CELL_METRICS)].mean()
        first = means["log_loss"].iloc[0]
        return means.assign(relative_log_loss=means["log_loss"] / first)

    def reliability(self) -> pd.DataFrame:
        """The reliability curves: one row for each method and bin of the probability.

        Returns:
            method, bin, n, probability, share, standard_error (see
            `irtcat.agreement.reliability_curve`), over the hidden answers of all seeds.
        """
        return self.curves.copy()


@with_progress("Evaluating")
def evaluate_cells(
    responses: ResponsesLike,
    methods: Sequence[str] = ("factors", "2pl", "main effects"),
    hidden: float = 0.2,
    seeds: Iterable[int] = range(5),
    *,
    subject_features: Any = None,
    item_features: Any = None,
    dims: int = DIMS,
    progress: ProgressOption = None,
) -> CellEvaluation:
    """Hide answers, predict them from the others, and measure how good the probabilities are.

    In each seed every answer is hidden with probability ``hidden``, and all methods predict the
    same answers. Nothing is learnt from hidden answers, the calibration included.

    Args:
        responses: as in `cells`.
        methods: names of `irtcat.leaderboard.CELL_METHODS`.
        hidden: share of the answers to hide.
        seeds: seeds of the hidden answers.
        subject_features: as in `cells`; of "factors" only.
        item_features: likewise.
        dims: as in `cells`.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)``.

    Returns:
        The evaluation: `summary()` has log-loss, Brier score, AUC and calibration error of each
        method, `reliability()` the reliability curves.

    Raises:
        InputError: as in `cells`; for an unknown method; for a share that leaves nothing to predict
            or to predict from.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
        >>> r = bank.simulate(np.linspace(-2, 2, 60))
        >>> result = evaluate_cells(r, ["factors", "main effects"], seeds=[0, 1])
        >>> result
        CellEvaluation(20% hidden, methods: 2, seeds: 2)
        >>> result.summary()["auc"].round(1).tolist()
        [0.8, 0.8]
    """
    if isinstance(methods, str) or not list(methods):
        raise argument_error("methods", f"a list of {', '.join(CELL_METHODS)}", methods)
    for method in methods:
        check_choice("methods", method, CELL_METHODS)
    check_interval("hidden", hidden)
    seeds = list(seeds)
    for seed in seeds:
        check_count("seed", seed, 0)
    if not seeds:
        raise argument_error("seeds", "at least one whole number", "none")
    data = as_responses(responses, name="responses")
    task, _ = cell_task(data, subject_features, item_features, dims, 0)
    if "2pl" in methods and np.isin(task.answers, (0.0, 1.0), invert=True)[data.observed].any():
        must = 'without "2pl" for shares of right trials'
        raise argument_error("methods", must, list(methods))
    rows: list[dict[str, Any]] = []
    pooled: dict[str, list[tuple[FloatArray, FloatArray]]] = {method: [] for method in methods}
    for n_done, seed in enumerate(seeds):
        is_hidden = np.random.default_rng(seed).random(task.answers.shape) < hidden
        is_hidden &= data.observed
        left = _with_hidden(task, is_hidden, seed)
        truth = task.answers[is_hidden]
        for k, method in enumerate(methods):
            if progress is not None:
                done = n_done * len(methods) + k
                progress(done, len(seeds) * len(methods), f"seed {seed}: {method}")
            p = np.clip(CELL_METHODS[method][0](left)[is_hidden], 0, 1)
            rows.append({"method": method, "seed": seed, **_metrics(p, truth)})
            pooled[method].append((p, truth))
    curves = []
    for method, pairs in pooled.items():
        p, truth = (np.concatenate(values) for values in zip(*pairs, strict=True))
        curves.append(agreement.reliability_curve(p, truth).reset_index().assign(method=method))
    columns = ["method", "bin", "n", "probability", "share", "standard_error"]
    return CellEvaluation(
        table=pd.DataFrame(rows),
        curves=pd.concat(curves, ignore_index=True)[columns],
        hidden=float(hidden),
    )


def _with_hidden(task: CellTask, is_hidden: np.ndarray, seed: int) -> CellTask:
    """The task without the hidden answers."""
    answers = np.where(is_hidden, np.nan, task.answers)
    n_hidden, left = int(is_hidden.sum()), answers[np.isfinite(answers)]
    if n_hidden < 2 or len(left) < 2 or left.min() == left.max():
        got = f"{n_hidden} of {n_hidden + len(left)} hidden with seed {seed}"
        must = "a share that leaves different answers, and hides at least 2"
        raise argument_error("hidden", must, got)
    return task._replace(answers=answers, seed=seed)


def _metrics(p: FloatArray, truth: FloatArray) -> dict[str, float]:
    """The metrics of hidden answers."""
    return {
        "n_hidden": len(p),
        "log_loss": agreement.log_loss(p, truth),
        "brier": agreement.brier_score(p, truth),
        "auc": agreement.auc(p, truth),
        "calibration_error": agreement.calibration_error(p, truth),
        "calibration_limit": agreement.calibration_limit(p),
    }

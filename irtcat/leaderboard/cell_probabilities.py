"""Cells: the probability that this model answers this item right, from all answers there are.

How good such probabilities are is measured on answers that are hidden and predicted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from irtcat import agreement
from irtcat._common.checks import (
    argument_error,
    brief,
    check_choice,
    check_count,
    check_interval,
    shorten,
)
from irtcat._common.progress import ProgressOption, Steps, with_progress
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting import fit
from irtcat.fitting.features.columns import features_of
from irtcat.io import as_responses
from irtcat.io.convert import ResponsesLike
from irtcat.prediction.logistic_factors import PROBIT, FeatureColumns, LogisticFactors
from irtcat.responses import Responses
from irtcat.responses._frames import cells_table
from irtcat.scoring import score

DIMS = 12
"""Number of factors. Those that the answers do not need shrink to 0. 20 of them gain 1 % in
log-loss on ARC (209 x 1,172) and nothing on four smaller matrices, for twice the time."""

FOLDS, ENOUGH_CELLS = 5, 50_000
"""Folds of the cells that the calibration is learnt on: as many as give this number of cells, as
its three coefficients do not need more."""

CALIBRATION_PRIOR = np.array([0.0, 1.0, 0.0])
"""Coefficients that leave the log-odds as they are."""

CALIBRATION_PRECISION = 10.0
"""Precision of the Normal prior of the calibration's coefficients around these: few answers hardly
move them."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Probabilities of right answers, of all subjects on all items.

    Attributes:
        subject_ids: ids of the subjects (models).
        item_ids: ids of the items.
        probability: subjects x items. Where there is an answer, the probability that a rerun is
            right, given that answer among the others.
        answers: subjects x items: the answers, 0 to 1, NaN where missing.
        calibration: the three coefficients of `calibrated`, learnt on answers that were hidden.
        factors: the factor model.
        flags: what is uncertain, such as subjects without answers.
    """

    subject_ids: np.ndarray
    item_ids: np.ndarray
    probability: FloatArray
    answers: FloatArray
    calibration: FloatArray
    factors: LogisticFactors
    flags: tuple[str, ...]

    @property
    def observed(self) -> BoolArray:
        """Subjects x items: whether there is an answer."""
        return np.isfinite(self.answers)

    def __repr__(self) -> str:
        n, m = self.probability.shape
        return f"Cells({n} subjects x {m} items, {self.observed.mean():.0%} observed)"

    def to_frame(self) -> pd.DataFrame:
        """One row for each cell.

        Returns:
            subject, item, probability, answer (NaN where missing), observed, and from_prior:
            whether the subject or the item has no answer, so that the probability is that of a
            typical one (with its features, if there are any).
        """
        observed = self.observed
        has_none = ~(observed.any(axis=1, keepdims=True) & observed.any(axis=0, keepdims=True))
        values: dict[str, Any] = {"probability": self.probability, "answer": self.answers}
        values |= {"observed": observed, "from_prior": has_none}
        return cells_table({"subject": self.subject_ids, "item": self.item_ids}, values)


class CellTask(NamedTuple):
    """The answers of which other cells are predicted.

    Attributes:
        answers: subjects x items, 0 to 1, NaN where missing.
        weights: number of trials of each cell.
        subject_features: of the subjects, or None.
        item_features: of the items, or None.
        dims: number of factors.
        seed: seed of the folds.
    """

    answers: FloatArray
    weights: FloatArray
    subject_features: FeatureColumns | None
    item_features: FeatureColumns | None
    dims: int
    seed: int

    def fitted(self, hidden: BoolArray | None = None) -> LogisticFactors:
        """The factor model, without the hidden cells."""
        answers = self.answers if hidden is None else np.where(hidden, np.nan, self.answers)
        factors = LogisticFactors(
            answers,
            self.dims,
            weights=self.weights,
            subject_features=self.subject_features,
            item_features=self.item_features,
        )
        return factors.run()


def cells(
    responses: ResponsesLike,
    *,
    subject_features: Any = None,
    item_features: Any = None,
    dims: int = DIMS,
    seed: int = 0,
) -> Cells:
    """Predict the probability of a right answer of every subject on every item.

    The answers are those of one benchmark, or of several side by side; any part of them may be
    missing. The log-odds of a right answer are ``b_j + a_j . z_i`` with a few factors ``z_i`` of
    the subject. Unlike a fitted 2PL, subjects *and* items have posterior distributions, over which
    the probabilities are averaged; intercepts and loadings of items are shrunk towards those of
    other items, and factors that the answers do not need vanish
    (`irtcat.prediction.logistic_factors`). Then the log-odds are calibrated on answers that were
    hidden from the model:

        log-odds = t + (s + u log(1 + v)) m / sqrt(1 + pi v / 8)

    with their posterior mean m and variance v.

    A subject or an item without answers is predicted as a typical one: by the estimated population,
    or by its features. It is flagged.

    Args:
        responses: right/wrong answers, or shares of right trials; of any kind that
            `irtcat.as_responses` takes.
        subject_features: what is known of the subjects, a table by id, or a mapping from names to
            such tables (see `irtcat.fit`); explains the factors.
        item_features: what is known of the items, likewise; explains the intercepts. Each table is
            a block of columns with a penalty of its own.
        dims: the most factors.
        seed: seed of the cells that are hidden for the calibration.

    Returns:
        The probabilities; `Cells.to_frame` has a row for each cell. `evaluate_cells` measures how
        good they are.

    Raises:
        InputError: for answers of more than two categories; fewer than 2 subjects or items with
            answers; answers that are all alike; and features that lack a row.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 30))
        >>> full = bank.simulate(np.linspace(-2, 2, 40)).to_numpy()
        >>> hidden = np.random.default_rng(0).random(full.shape) < 0.5
        >>> result = cells(np.where(hidden, np.nan, full))
        >>> result
        Cells(40 subjects x 30 items, 52% observed)
        >>> bool(result.probability[-1, 0] > 0.9 > 0.1 > result.probability[0, -1])
        True

    References:
        Jaakkola & Jordan (2000), Statistics and Computing 10; Platt (1999), Probabilistic outputs
        for support vector machines (calibration by a logistic regression).
    """
    data = as_responses(responses, name="responses")
    task, flags = cell_task(data, subject_features, item_features, dims, seed)
    probability, calibration, factors = predicted_cells(task)
    return Cells(
        subject_ids=np.asarray(data.subject_ids),
        item_ids=np.asarray(data.item_ids),
        probability=probability,
        answers=task.answers,
        calibration=calibration,
        factors=factors,
        flags=flags,
    )


def cell_task(
    responses: Responses, subject_features: Any, item_features: Any, dims: int, seed: int
) -> tuple[CellTask, tuple[str, ...]]:
    """The checked arguments of `cells`, and flags."""
    check_count("dims", dims)
    check_count("seed", seed, 0)
    if not (responses.is_binary or responses.is_fractional):
        advice = "Score each category as right or wrong first, or give shares from 0 to 1."
        must = "right/wrong answers or shares of right trials"
        raise argument_error("responses", must, responses.kind, advice)
    answers = responses.to_numpy()
    observed = np.isfinite(answers)
    flags = []
    for what, axis, ids in (
        ("subjects", 1, responses.subject_ids),
        ("items", 0, responses.item_ids),
    ):
        has_any = observed.any(axis=axis)
        if (n := int(has_any.sum())) < 2:
            raise argument_error("responses", f"answers of at least 2 {what}", f"those of {n}")
        if not has_any.all():
            names = shorten(list(np.asarray(ids)[~has_any]))
            flags.append(f"{what} without answers, predicted as typical ones: {names}")
    values = answers[observed]
    if values.min() == values.max():
        got = f"{brief(values[0])} in every cell"
        raise argument_error("responses", "answers that are not all alike", got)
    weights = np.ones(answers.shape) if responses.trials is None else responses.trials.astype(float)
    features = _features(responses, subject_features, item_features)
    return CellTask(answers, weights, *features, dims, seed), tuple(flags)


def _features(
    responses: Responses, subject_features: Any, item_features: Any
) -> tuple[FeatureColumns | None, FeatureColumns | None]:
    """The features of subjects and of items as centred columns."""
    known = features_of(responses, subject_features, item_features, True)

    def centred(found: Any, rows: Any) -> FeatureColumns | None:
        if found is None:
            return None
        design, x = found
        return FeatureColumns(x[rows] - x[rows].mean(axis=0), design.block_of)

    if known is None:
        return None, None
    return centred(known.subject, known.codes), centred(known.item, slice(None))


def predicted_cells(task: CellTask) -> tuple[FloatArray, FloatArray, LogisticFactors]:
    """Probabilities of all cells, the coefficients of the calibration, and the model."""
    columns, answers, weights = [], [], []
    rows, items = np.nonzero(np.isfinite(task.answers))
    fold = np.random.default_rng(task.seed).permutation(len(rows)) % FOLDS
    for k in range(FOLDS):
        hidden = np.zeros(task.answers.shape, bool)
        hidden[rows[fold == k], items[fold == k]] = True
        columns.append(_calibration_columns(task.fitted(hidden))[hidden])
        answers.append(task.answers[hidden])
        weights.append(task.weights[hidden])
        if sum(map(len, answers)) >= ENOUGH_CELLS:
            break
    calibration = _calibration(*map(np.concatenate, (columns, answers, weights)))
    factors = task.fitted()
    return calibrated(factors, calibration), calibration, factors


def calibrated(factors: LogisticFactors, calibration: FloatArray) -> FloatArray:
    """Calibrated probabilities of all cells."""
    return expit(_calibration_columns(factors) @ calibration)


def _calibration_columns(factors: LogisticFactors) -> FloatArray:
    """What the calibrated log-odds are linear in, subjects x items x 3."""
    mean, variance = factors.log_odds()
    log_odds = mean / np.sqrt(1 + PROBIT * variance)
    return np.stack([np.ones_like(mean), log_odds, log_odds * np.log1p(variance)], axis=-1)


def _calibration(columns: FloatArray, answers: FloatArray, weights: FloatArray) -> FloatArray:
    """Coefficients of a logistic regression with a Normal prior around no change."""
    from scipy.optimize import minimize  # slow to import

    def objective(coefficients: FloatArray) -> tuple[float, FloatArray]:
        log_odds, change = columns @ coefficients, coefficients - CALIBRATION_PRIOR
        loss = weights @ (np.logaddexp(0, log_odds) - answers * log_odds)
        gradient = columns.T @ (weights * (expit(log_odds) - answers))
        penalty = CALIBRATION_PRECISION * change
        return float(loss + change @ penalty / 2), gradient + penalty

    return minimize(objective, CALIBRATION_PRIOR, jac=True, method="L-BFGS-B").x


def main_effects(answers: FloatArray) -> FloatArray:
    """Probabilities by the share of right answers of the item and of the subject: a baseline.

    The log-odds of both shares are added, less those of all answers; each share counts as if one
    answer more had the overall share.
    """
    observed = np.isfinite(answers)
    filled = np.where(observed, answers, 0.0)
    overall = filled.sum() / observed.sum()
    effects = [
        logit((filled.sum(axis=axis) + overall) / (observed.sum(axis=axis) + 1)) for axis in (1, 0)
    ]
    return expit(effects[0][:, None] + effects[1] - logit(overall))


def _plug_in(task: CellTask) -> FloatArray:
    """The 2PL with point estimates of items and abilities."""
    responses = Responses.from_array(task.answers)
    bank = fit(responses, "2pl", standard_errors="none").bank
    return bank.probability(score(bank, responses).theta).T


CELL_METHODS: dict[str, tuple[Callable[[CellTask], FloatArray], str]] = {
    "factors": (
        lambda task: predicted_cells(task)[0],
        "`cells`: factors of subjects and items, calibrated",
    ),
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
        return means.assign(relative_log_loss=means["log_loss"] / means["log_loss"].iloc[0])

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
    begin = Steps(progress, len(seeds) * len(methods))
    for seed in seeds:
        is_hidden = np.random.default_rng(seed).random(task.answers.shape) < hidden
        is_hidden &= data.observed
        left = _with_hidden(task, is_hidden, seed)
        truth = task.answers[is_hidden]
        for method in methods:
            begin(f"seed {seed}: {method}")
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

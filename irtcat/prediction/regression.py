"""Full scores from the answers to the chosen items: their means, and regressions on them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy
from scipy.special import ndtri

from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.prediction.intervals import conformal_quantile, wilson_interval
from irtcat.prediction.result import Estimate
from irtcat.prediction.task import FOLDS, Task
from irtcat.responses._matrix import patterns

PENALTIES = np.geomspace(1e-3, 1e4, 29)
"""Grid of ridge penalties, in units of answers: 10 is equivalent to ten answers of pure noise."""

MOST_SUBJECTS = 1500
"""Most calibrated subjects to which a Gaussian process is fitted: its work is cubic in them."""


Scores = tuple[FloatArray, FloatArray, FloatArray]
"""Scores, lower and upper ends of their intervals."""


class Ridge(NamedTuple):
    """A ridge regression of one or more targets on answers, with the best leave-one-out penalty.

    Attributes:
        centre: mean of the features.
        mean: mean of the targets.
        slopes: features x targets.
        residuals: leave-one-out residuals, subjects x targets.
    """

    centre: FloatArray
    mean: FloatArray
    slopes: FloatArray
    residuals: FloatArray

    def __call__(self, x: FloatArray) -> FloatArray:
        """Predictions, rows x targets."""
        return self.mean + (x - self.centre) @ self.slopes


def fit_ridge(features: FloatArray, targets: FloatArray) -> Ridge:
    """Ridge regression with the penalty that minimises the leave-one-out errors.

    ``slopes = (Z'Z + h I)^-1 Z'y`` with centred features Z; leave-one-out residuals are
    ``(y - fitted) / (1 - H_ii)``, one eigendecomposition is used for all penalties.

    References:
        Golub, Heath & Wahba (1979), Technometrics 21, 215-223.
    """
    centre, mean = features.mean(axis=0), targets.mean(axis=0)
    z, y = features - centre, targets - mean
    n = len(z)
    if z.shape[1] == 0 or n < 3:
        return Ridge(centre, mean, np.zeros((z.shape[1], y.shape[1])), y * n / max(n - 1, 1))
    wide = z.shape[1] > n
    values, vectors = scipy.linalg.eigh(z @ z.T if wide else z.T @ z)
    values = np.maximum(values, 0.0)
    basis = vectors if wide else z @ vectors  # subjects x components
    scale = values if wide else np.ones_like(values)
    inner = basis.T @ y

    def errors(penalty: float) -> FloatArray:
        shrunk = scale / (values + penalty)
        leverage = 1 / n + (basis**2) @ shrunk
        return (y - basis @ (shrunk[:, None] * inner)) / np.maximum(1 - leverage, 1e-6)[:, None]

    penalty = min(PENALTIES, key=lambda penalty: float((errors(penalty) ** 2).sum()))
    weight = 1 / (values + penalty)
    solution = vectors @ (weight[:, None] * inner)
    return Ridge(centre, mean, z.T @ solution if wide else solution, errors(penalty))


def ridge_path(
    x: FloatArray, y: FloatArray, penalties: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Intercept and slopes of ridge regressions, for every penalty.

    Penalties are in units of subjects x mean variance of an answer. Uses the eigenvectors of x'x or
    xx', whichever is smaller: a fifth of the time of the singular value decomposition, whose
    threads also wait long on busy cores.

    Returns:
        One intercept for each penalty, and features x penalties.
    """
    centre = x.mean(axis=0, dtype=float)
    z, target = np.asarray(x, float) - centre, y - y.mean()
    wide = z.shape[1] > len(z)
    values, vectors = np.linalg.eigh(z @ z.T if wide else z.T @ z)
    basis = z.T @ vectors if wide else vectors
    inner = vectors.T @ (target if wide else z.T @ target)
    inner[values <= 1e-12 * max(values[-1], 1.0)] = 0.0
    unit = len(x) * z.var(axis=0).mean() + 1e-12
    slopes = basis @ (inner[:, None] / (values[:, None] + penalties * unit))
    return y.mean() - centre @ slopes, slopes


def _by_pattern(task: Task, rule: Callable[[BoolArray, IntArray], Scores]) -> Estimate:
    """Apply a rule to the subjects of each pattern of missing answers (observed columns only)."""
    out = np.full((3, len(task.x)), np.nan)
    for is_observed, rows in patterns(task.x):
        if is_observed.any():
            out[:, rows] = rule(is_observed, rows)
    return Estimate(*out)


def predict_ridge(task: Task) -> Estimate:
    """Ridge regression of the full score on the answers.

    The interval adds quantiles of the calibrated subjects' leave-one-out errors (jackknife): it is
    valid for subjects like them, on items that were chosen without their responses; else it is too
    short, which a flag says ("auto" repeats the choice). For subjects with missing answers the
    regression has only the items they answered.

    References:
        Barber et al. (2021), Annals of Statistics 49, 486-507 (jackknife and jackknife+).
    """

    def rule(is_observed: BoolArray, rows: IntArray) -> Scores:
        model = fit_ridge(task.features[:, is_observed], task.targets[:, None])
        score = model(task.x[np.ix_(rows, is_observed)])[:, 0]
        errors, tail = model.residuals[:, 0], 0.5 + task.level / 2
        half = conformal_quantile(-errors, tail), conformal_quantile(errors, tail)
        return score, score - half[0], score + half[1]

    return _by_pattern(task, rule)._replace(flag=task.note_of_choice())


def predict_gp(task: Task) -> Estimate:
    """Gaussian-process regression of the full score on the answers.

    ``cov(x, x') = v_1 (x - m).(x' - m) / k + v_2 exp(-|x - x'|^2 / (k l^2))`` and noise; all four
    parameters maximise the marginal likelihood. The interval is that of the posterior predictive:
    too short, with a flag, where the same responses chose the items. Fitted to at most 1,500
    calibrated subjects, spread evenly over the scores.

    References:
        Rasmussen & Williams (2006), Gaussian Processes for Machine Learning, sections 2.2, 5.4.
    """
    order = np.argsort(task.targets, kind="stable")
    fitted = order[np.unique(np.linspace(0, len(order) - 1, MOST_SUBJECTS).round().astype(int))]

    def rule(is_observed: BoolArray, rows: IntArray) -> Scores:
        old, new = task.features[fitted][:, is_observed], task.x[np.ix_(rows, is_observed)]
        mean, sd = _gaussian_process(old, task.targets[fitted], new)
        z = ndtri(0.5 + task.level / 2)
        return mean, mean - z * sd, mean + z * sd

    return _by_pattern(task, rule)._replace(flag=task.note_of_choice())


def _gaussian_process(
    x: FloatArray, y: FloatArray, new: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Posterior mean and predictive SD at new points."""
    k = x.shape[1]
    centre, mean, unit = x.mean(axis=0), y.mean(), max(y.std(), 1e-6)
    old, new_centred, target = x - centre, new - centre, (y - mean) / unit
    linear = old @ old.T / k
    square = np.maximum(_squared(old, old) / k, 0)
    n = len(y)

    def factorised(theta: FloatArray, linear: FloatArray, square: FloatArray) -> Any:
        v1, v2, length, noise = np.exp(theta)
        covariance = v1 * linear + v2 * np.exp(-square / length**2) + noise * np.eye(len(linear))
        return scipy.linalg.cho_factor(covariance, lower=True, check_finite=False)

    def loss(theta: FloatArray, target: FloatArray, *kernels: FloatArray) -> float:
        factor = factorised(theta, *kernels)
        fit = target @ scipy.linalg.cho_solve(factor, target, check_finite=False)
        # A weak penalty towards the start keeps unidentified parameters finite.
        return float(0.5 * fit + np.log(np.diagonal(factor[0])).sum()) + 0.02 * float(
            ((theta - start) ** 2).sum()
        )

    signal = max(float(np.trace(linear)) / n, 1e-6)
    start = np.log([0.8 / signal, 0.2, 0.7, 0.1])
    bounds = [(s - 6, s + 6) for s in start]
    bounds[3] = (np.log(1e-4), 1.0)
    thin = slice(None, None, max(1, n // 400))  # enough for the hyperparameters
    few = target[thin], linear[thin, thin], square[thin, thin]
    optimum = scipy.optimize.minimize(
        loss, start, few, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40}
    )
    v1, v2, length, noise = np.exp(optimum.x)
    factor = factorised(optimum.x, linear, square)
    cross = v1 * new_centred @ old.T / k + v2 * np.exp(-_squared(new_centred, old) / k / length**2)
    prior_variance = v1 * (new_centred**2).sum(axis=1) / k + v2 + noise
    solved = scipy.linalg.cho_solve(factor, cross.T, check_finite=False)
    variance = np.maximum(prior_variance - (cross * solved.T).sum(axis=1), 0)
    return mean + unit * (cross @ scipy.linalg.cho_solve(factor, target)), unit * np.sqrt(variance)


def _squared(a: FloatArray, b: FloatArray) -> FloatArray:
    """Squared distances of all rows of a to all rows of b."""
    return (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T


def predict_aipw(task: Task) -> Estimate:
    """Regression corrected by its errors on the sampled items: doubly robust.

    The sampled items are divided into F = 5 folds. For fold f the ridge regression on the answers
    outside it predicts every item, m_j, and its errors on the items of f represent those on all
    items that it has not used:

        score_f = sum_U t_j m_j + sum_{S - f} t_j (x_j - m_j)
                  + sum_f t_j (F / pi_j - F + 1) (x_j - m_j),

    with item weights t (1/N) and inclusion probabilities pi; the score is the mean over the folds.
    It is unbiased over the draw of the items for any regression, and precise if the regression is
    good. The interval is Normal, with the variance of the corrections under independent draws, at
    least the error variance of the regressions for the calibrated subjects; with one answer, or
    none with weight in the score, it is the whole possible range.

    References:
        Saerndal, Swensson & Wretman (1992), Model Assisted Survey Sampling, section 6.5; Robins,
        Rotnitzky & Zhao (1994), JASA 89, 846-866; Chernozhukov et al. (2018), Econometrics
        Journal 21, C1-C68 (cross-fitting).
    """
    inclusion = task.chances
    z = ndtri(0.5 + task.level / 2)

    def rule(is_observed: BoolArray, rows: IntArray) -> Scores:
        columns = np.flatnonzero(is_observed)
        # Answers are assumed missing at random: the others represent them.
        probabilities = inclusion[columns] * len(columns) / len(is_observed)
        share = task.weights_of_chosen[columns]
        x, old = task.x[np.ix_(rows, columns)], task.features[:, columns]
        n_folds = min(FOLDS, len(columns))
        fold = np.arange(len(columns)) % n_folds
        score, residuals, model_error = np.zeros(len(rows)), np.zeros_like(x), 0.0
        for f in range(n_folds):
            in_fold = fold == f
            model = fit_ridge(old[:, ~in_fold], np.column_stack([task.targets, old]))
            model_error += float(np.mean(model.residuals[:, 0] ** 2)) / n_folds
            predictions = model(x[:, ~in_fold])
            error = x - predictions[:, 1:]
            factor = np.where(in_fold, n_folds / probabilities - n_folds + 1, 1.0)
            score += (predictions[:, 0] + error @ (share * factor)) / n_folds
            residuals[:, in_fold] = error[:, in_fold]
        spread = share**2 * np.maximum(1 - probabilities, 0) / probabilities**2
        centred = residuals - residuals.mean(axis=1, keepdims=True)
        if len(columns) < 2 or not share.any():
            unknown = np.full(len(rows), np.nan)
            return score, unknown, unknown
        variance = centred**2 @ spread * len(columns) / (len(columns) - 1)
        half = z * np.sqrt(np.maximum(variance, model_error))
        return score, score - half, score + half

    return _by_pattern(task, rule)._replace(flag=task.note_of_design())


LEAST_SUBJECTS = 8
"""With fewer calibrated subjects no estimator learns from them: five folds leave out one or two."""


def predict_mean(task: Task) -> Estimate:
    """Raw mean of the answers, ``sum_j x_j / m``; Wilson interval for m of N items drawn.

    Weights of items in the score (``weights=`` of `irtcat.predict`) are used here, too.
    """
    return _weighted_mean(task, task.weights_of_chosen * task.n_items)


def predict_weighted(task: Task) -> Estimate:
    """Mean of the answers with the subset's weights, ``sum_j w_j x_j / sum_j w_j``.

    The interval is Wilson's for ``(sum w)^2 / sum w^2`` items (m with equal weights).
    """
    return _weighted_mean(task, task.weights * task.weights_of_chosen * task.n_items)


def predict_for_few(task: Task) -> Estimate:
    """The weighted mean, flagged: the calibration has fewer than `LEAST_SUBJECTS`."""
    flag = task.note(f"fewer than {LEAST_SUBJECTS} calibrated subjects")
    return predict_weighted(task)._replace(flag=flag, how=task.note("weighted mean"))


def _weighted_mean(task: Task, weights: FloatArray) -> Estimate:
    """Weighted mean of the observed answers; weights are renormalised for missing ones."""
    is_observed = ~np.isnan(task.x)
    total = is_observed @ weights
    usable = total > 0
    mean = np.full(len(total), np.nan)  # also if no answered item has weight in the score
    np.divide(np.where(is_observed, task.x, 0) @ weights, total, out=mean, where=usable)
    mean = np.clip(mean, 0, 1)  # weights of 1/3 may sum to more than 1 by rounding
    effective = np.zeros(len(total))
    np.divide(total**2, is_observed @ weights**2, out=effective, where=usable)
    counts = task.item_weights > 0  # for a group's score the group is the population
    n_answered = is_observed[:, counts[task.chosen]].sum(axis=1)
    # A sample with replacement of the same variance; infinite if all items were run.
    n_items, n = int(counts.sum()), np.full(len(effective), np.inf)
    np.divide(effective * (n_items - 1), n_items - n_answered, out=n, where=n_answered < n_items)
    lower, upper = wilson_interval(mean, n, task.level)
    return Estimate(mean, lower, upper, task.note_of_design())

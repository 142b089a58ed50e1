"""The difference of two models' full scores from the items run, and the parts of its variance."""

from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from irtcat._common.checks import argument_error
from irtcat._common.progress import Progress, Steps
from irtcat._common.types import FloatArray
from irtcat.leaderboard.compared_models import ModelPair, PairRuns
from irtcat.prediction.intervals import Variance, mean_variance, total_of
from irtcat.prediction.run_noise import (
    Noise,
    judge_effect,
    noise_of,
    seed_variances,
    unexplained_variance,
)

FEWEST_PER_COVARIATE = 10

MAX_LEVERAGE = 0.4
"""Share of a single item in its own fitted value above which "auto" is not "assisted": the item
decides a slope, and its residual says nothing. With 30 items and ten trials 6 % of the verdicts on
equal models were false below it, and 10 to 42 % above (experiments/reruns)."""

MOST_ASSISTED = 0.5
"""Share of the items run above which "auto" is not "assisted" where the run noise is unknown: the
bound of the old run's noise, which then counts, exceeds what the regression gains."""

PAIRS_CHECKED = 600
"""Calibrated pairs from which the widening is estimated."""

FEWEST_MODELS = 20
"""With fewer models the pairs do not show a quantile of their errors, only the mean square."""

PRIOR_PAIRS = 4
"""Models, less one, that the variance of a random choice of items counts for beside the pairs."""

FEWEST_COMMON = 0.5
"""Least share of the items run that both models of a calibrated pair have answered."""


class Difference(NamedTuple):
    """A difference and its standard error; ``centre`` is the centre of the interval."""

    difference: float
    centre: float
    se: float
    df: float = np.inf


class _Residuals(NamedTuple):
    """Differences less their mean, or what a regression leaves of them."""

    mean: float
    shift: float
    values: FloatArray
    slopes: FloatArray


class VarianceParts(NamedTuple):
    """The variance of a difference: from the choice of items, and what stays with all items."""

    items: Variance
    """``V`` in ``(1 - k/N) V``."""
    rest: Variance
    """``W`` in ``(k/N) W``."""
    runs: Variance
    """Effects of whole runs."""
    independent: bool
    """Whether V and W are estimated from different things."""
    judges: Variance = Variance(0.0, np.inf)
    """The choice of judges, which further trials do not reduce."""


class PairDesign(NamedTuple):
    """Two models and how they are compared."""

    pair: ModelPair
    runs: PairRuns
    shares: FloatArray
    columns: FloatArray
    estimand: str
    method: str
    widening: float

    def at(self, ratio: float) -> tuple[Difference, VarianceParts, float]:
        """The estimate of new - R old, the parts of its variance, and that of the runs alone."""
        pair, runs = self.pair, self.runs
        if ratio != 1:
            pair = pair._replace(difference=runs.new.mean - ratio * runs.old.mean)
        noise = noise_between(runs, pair.weights, self.estimand, ratio)
        share = len(pair.difference) / pair.n_items
        residuals = _residuals(pair.difference, pair, self.columns, self.method)
        parts = _parts(pair, runs, noise, residuals, self.shares, self.estimand, self.method, ratio)
        if self.estimand != "run" and runs.judges is not None and runs.clusters is not None:
            effect = judge_effect(pair.difference, pair.weights, runs.clusters, runs.judges)
            parts = parts._replace(judges=effect)
        if self.estimand == "run" and runs.clusters is None:
            estimate = _estimate(pair.difference, pair, self.columns, self.method, runs.unit)
            estimate = estimate._replace(se=estimate.se * self.widening)
        else:
            estimate = _combined(pair, runs, residuals, parts, share, self.widening)
        run_variance = noise.answers.value + noise.runs.value if noise else parts.items.value
        return estimate, parts, run_variance


def noise_between(runs: PairRuns, weights: FloatArray, estimand: str, ratio: float) -> Noise | None:
    """The variance of new - R old that is due to the runs, or to the seeds; None if unknown."""
    if estimand == "recipe":
        new, old = seed_variances(runs.new, runs.old, weights)
        return Noise(Variance(0.0, np.inf), total_of(new, old.times(ratio**2)), ())
    return noise_of(runs.new, runs.old, weights, runs.clusters, runs.reliability, ratio)


def chosen_method(method: str, pair: ModelPair, columns: FloatArray, gains: bool) -> str:
    """The method; "auto" is "assisted" where that gains and enough items were run."""
    k, n_covariates = len(pair.difference), columns.shape[1]
    if method == "auto":
        enough = k >= FEWEST_PER_COVARIATE * (n_covariates + 1)
        known = pair.known_old is not None or pair.strata.shape[1] > 0
        if not (known and enough and gains):
            return "paired"
        greatest = float(_regression(pair.weights, columns[pair.at])[2].max())
        return "assisted" if greatest <= MAX_LEVERAGE else "paired"
    if method == "assisted" and k <= n_covariates + 2:
        must = f"paired for fewer than {n_covariates + 3} items"
        raise argument_error("method", must, method)
    return method


def _padded(variance: Variance, effective: float, unit: float) -> Variance:
    """The variance with one more item on either side that differs by ``unit``."""
    if unit == 0:
        return variance
    value = (effective**2 * variance.value + 2 * unit**2) / (effective + 2) ** 2
    return Variance(value, variance.df)


def _parts(
    pair: ModelPair,
    runs: PairRuns,
    noise: Noise | None,
    residuals: _Residuals,
    shares: FloatArray,
    estimand: str,
    method: str,
    ratio: float,
) -> VarianceParts:
    """The variance of the choice of items, and what the estimand adds with all items run."""
    w, k = pair.weights, len(pair.difference)
    effective = 1 / float(w @ w)
    items = mean_variance(w, residuals.values, runs.clusters)
    items = Variance(items.value, max(items.df - len(residuals.slopes), 1.0))
    items = _padded(items, effective, runs.unit)
    no_variance = Variance(0.0, np.inf)
    effects = noise.runs if noise else no_variance
    if estimand == "run":
        return VarianceParts(items, no_variance, no_variance, independent=True)
    if estimand == "domain":
        plain = mean_variance(w, pair.difference - residuals.mean, runs.clusters)
        return VarianceParts(
            items, _padded(plain, effective, runs.unit), effects, independent=False
        )
    if noise is not None:
        return VarianceParts(items, noise.answers, effects, independent=True)
    rest = items.value
    if method == "assisted" and pair.known_old is not None:
        slope = float(residuals.slopes[-1])
        lost = max(ratio**2 - (ratio + slope) ** 2, 0.0)
        rest += lost * unexplained_variance(pair.known_old, shares) / k
    return VarianceParts(items, Variance(rest, items.df), effects, independent=False)


def _combined(
    pair: ModelPair,
    runs: PairRuns,
    residuals: _Residuals,
    parts: VarianceParts,
    share: float,
    widening: float,
) -> Difference:
    """The difference with the standard error of the estimand."""
    effective = 1 / float(pair.weights @ pair.weights)
    items, rest = parts.items.times((1 - share) * widening**2), parts.rest.times(share)
    if not parts.independent:
        df = min(items.df, rest.df)
        items, rest = Variance(items.value + rest.value, df), Variance(0.0, np.inf)
    total = total_of(items, rest, parts.runs, parts.judges)
    # The added items are a guess of the items not run: what the others gave is not moved to 0.
    unknown = 1 - share if parts.independent else 1.0
    shrunk = 1 - unknown * 2 / (effective + 2) if runs.unit else 1.0
    difference = residuals.mean + residuals.shift
    centre = residuals.mean * shrunk + residuals.shift
    return Difference(difference, centre, float(np.sqrt(total.value)), max(total.df, 1.0))


def _residuals(d: FloatArray, pair: ModelPair, columns: FloatArray, method: str) -> _Residuals:
    """Differences less their mean, or leave-one-out residuals of their regression."""
    k, w = len(d), pair.weights
    mean = float(w @ d)
    if method != "assisted":
        return _Residuals(mean, 0.0, d - mean, np.empty(0))
    centred, solve, leverage = _regression(w, columns[pair.at])
    slopes = solve @ (np.sqrt(w * k) * (d - mean))
    shift = float((columns.mean(axis=0) - w @ columns[pair.at]) @ slopes)
    # Leave-one-out residuals correct for slopes fitted to the same items.
    residual = (d - mean - centred @ slopes) / np.maximum(1 - leverage, 1 / k)
    return _Residuals(mean, shift, residual, slopes)


def _regression(w: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Centred covariates, the solution of their weighted regression, and each item's leverage."""
    root_weights = np.sqrt(w * len(w))[:, None]
    centred = z - w @ z
    solve = np.linalg.pinv(root_weights * centred, rcond=1e-8)
    return centred, solve, np.einsum("ij,ji->i", root_weights * centred, solve)


def _estimate(
    d: FloatArray, pair: ModelPair, columns: FloatArray, method: str, unit: float
) -> Difference:
    """The difference of full scores of these runs."""
    k, n, w = len(d), pair.n_items, pair.weights
    mean, shift, residual, _ = _residuals(d, pair, columns, method)
    effective = 1 / float(w @ w)
    if not unit and np.ptp(d) == 0:
        unit = 1.0  # equal differences so far are not certainty
    added = 2 if unit else 0
    spread = float(w @ residual**2) * effective + added * unit**2
    variance = spread / (effective + added if unit else max(effective - 1, 1.0))
    se = np.sqrt((1 - k / n) * variance / (effective + added))
    centre = mean * effective / (effective + added) if k < n else mean
    return Difference(mean + shift, centre + shift, float(se))


def shares_right(pair: ModelPair) -> FloatArray:
    """Share of the calibrated models that are right on every item."""
    is_observed = ~np.isnan(pair.field)
    counts = is_observed.sum(axis=0)
    total = np.where(is_observed, pair.field, 0).sum(axis=0)
    return np.divide(total, counts, out=np.full(pair.n_items, 0.5), where=counts > 0)


def covariates(pair: ModelPair, shares: FloatArray) -> FloatArray:
    """Covariates of every item: strata, share right, and the old model's answer if known."""
    columns = [pair.strata, shares]
    if pair.known_old is not None:
        columns.append(pair.known_old)
    return np.column_stack(columns)


def widening_of(
    pair: ModelPair,
    shares: FloatArray,
    method: str,
    unit: float,
    level: float,
    z: float,
    progress: Progress | None,
) -> tuple[float, str]:
    """Factor by which intervals must be widened to cover pairs of calibrated models."""
    note = "items not drawn at random"
    answered = ~np.isnan(pair.field)
    run = answered[:, pair.at].astype(np.float32)
    common = run @ run.T  # number of the items run that both models of a pair have answered
    least = max(2.0, FEWEST_COMMON * len(pair.at))
    if method == "assisted":
        least = max(least, covariates(pair, shares).shape[1] + 3.0)
    outside = np.ones(pair.n_items, bool)
    outside[pair.at] = False
    usable = np.asarray(answered[:, outside].any(axis=1))
    one, other = np.nonzero(np.triu((common >= least) & usable & usable[:, None], 1))
    n_models = len(np.union1d(one, other))
    order = np.random.default_rng(0).permutation(len(one))  # so that ties have no order
    one, other = one[order], other[order]
    filled = np.nan_to_num(pair.field[:, pair.at], nan=0.0)
    mean = (filled @ pair.weights) / np.maximum(run @ pair.weights, 1e-12)
    # Pairs that differ by as much as these two on the items run.
    apart = np.abs(np.abs(mean[one] - mean[other]) - abs(pair.weights @ pair.difference))
    close = np.argsort(apart, kind="stable")[:PAIRS_CHECKED]
    begin, ratios = Steps(progress, len(close)), []
    for number, at in enumerate(close, start=1):
        begin(f"Pair {number} of {len(close)} of calibrated models")
        models = pair.field[[one[at], other[at]]]
        similar, similar_shares, true = _similar(pair, shares, *models)
        if similar.weights.sum() == 0 or len(similar.at) == similar.n_items:
            continue
        columns = covariates(similar, similar_shares)
        estimate = _estimate(similar.difference, similar, columns, method, unit)
        ratios.append(abs(estimate.centre - true) / max(estimate.se, 1e-12))
    if n_models >= FEWEST_MODELS and ratios:
        wider = float(np.quantile(ratios, level, method="higher")) / z
    else:
        df = max(n_models - 1, 0) if ratios else 0
        freedom = PRIOR_PAIRS + df
        square = (PRIOR_PAIRS + df * np.mean(np.square(ratios or [1.0]))) / freedom
        wider = float(stdtrit(freedom, 0.5 + level / 2) * np.sqrt(square)) / z
    reason = "as calibrated pairs need" if ratios else "without calibrated pairs to check it"
    wider = max(wider, 1.0)
    return wider, f"{note}: interval widened x {wider:.2f}, {reason}"


def _similar(
    pair: ModelPair, shares: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[ModelPair, FloatArray, float]:
    """Two calibrated models on the items that both answered: pair, shares right, difference."""
    both = ~np.isnan(first) & ~np.isnan(second)
    run = pair.at
    kept = both[run]
    items, weights = run[kept], pair.weights[kept]
    position = np.cumsum(both) - 1  # among the items that both answered
    similar = pair._replace(
        difference=(first - second)[items],
        weights=weights / (weights.sum() or 1.0),
        at=position[items],
        n_items=int(both.sum()),
        known_old=None if pair.known_old is None else second[both],
        strata=pair.strata[both],
    )
    return similar, shares[both], float((first - second)[both].mean())

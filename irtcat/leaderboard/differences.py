"""The difference of two models' full scores from the items run, and the parts of its variance."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

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


NONE = Variance(0.0, np.inf)
"""No variance."""


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
    judges: Variance = NONE
    """The choice of judges, which further trials do not reduce."""


class PairDesign(NamedTuple):
    """Two models and how they are compared."""

    pair: ModelPair
    runs: PairRuns
    shares: FloatArray
    columns: FloatArray
    estimand: str
    method: str = "paired"
    widening: float = 1.0

    def at(self, ratio: float) -> tuple[Difference, VarianceParts, float]:
        """The estimate of new - R old, the parts of its variance, and that of the runs alone."""
        pair, runs = self.pair, self.runs
        if ratio != 1:
            pair = pair._replace(difference=runs.new.mean - ratio * runs.old.mean)
        design, noise = self._replace(pair=pair), noise_between(self, ratio)
        residuals = _residuals(design)
        parts = _parts(design, noise, residuals, ratio)
        if self.estimand != "run" and runs.judges is not None and runs.clusters is not None:
            effect = judge_effect(pair.difference, pair.weights, runs.clusters, runs.judges)
            parts = parts._replace(judges=effect)
        if self.estimand == "run" and runs.clusters is None:
            estimate = _estimate(design)
            estimate = estimate._replace(se=estimate.se * self.widening)
        else:
            estimate = _combined(design, residuals, parts)
        run_variance = noise.answers.value + noise.runs.value if noise else parts.items.value
        return estimate, parts, run_variance


def design_of(pair: ModelPair, runs: PairRuns, estimand: str) -> PairDesign:
    """The "paired" design; the shares of calibrated models that are right are covariates."""
    is_observed = ~np.isnan(pair.field)
    counts = is_observed.sum(axis=0)
    total = np.where(is_observed, pair.field, 0).sum(axis=0)
    shares = np.divide(total, counts, out=np.full(pair.n_items, 0.5), where=counts > 0)
    return PairDesign(pair, runs, shares, _covariates(pair, shares), estimand)


def _covariates(pair: ModelPair, shares: FloatArray) -> FloatArray:
    """Covariates of every item: strata, share right, and the old model's answer if known."""
    known = [] if pair.known_old is None else [pair.known_old]
    return np.column_stack([pair.strata, shares, *known])


def noise_between(design: PairDesign, ratio: float) -> Noise | None:
    """The variance of new - R old that is due to the runs, or to the seeds; None if unknown."""
    runs, weights = design.runs, design.pair.weights
    if design.estimand == "recipe":
        new, old = seed_variances(runs.new, runs.old, weights)
        return Noise(NONE, total_of(new, old.times(ratio**2)), ())
    return noise_of(runs.new, runs.old, weights, runs.clusters, runs.reliability, ratio)


def chosen_method(method: str, design: PairDesign, noise: Noise | None) -> str:
    """The method; "auto" is "assisted" where that gains and enough items were run."""
    pair, n_covariates = design.pair, design.columns.shape[1]
    k, is_known = len(pair.difference), pair.known_old is not None
    if method == "auto":
        gains = (
            design.estimand == "run"
            or noise is not None
            or not is_known
            or k / pair.n_items <= MOST_ASSISTED
        )
        enough = k >= FEWEST_PER_COVARIATE * (n_covariates + 1)
        if not (gains and enough and (is_known or pair.strata.shape[1])):
            return "paired"
        greatest = float(_regression(pair.weights, design.columns[pair.at])[2].max())
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
    design: PairDesign, noise: Noise | None, residuals: _Residuals, ratio: float
) -> VarianceParts:
    """The variance of the choice of items, and what the estimand adds with all items run."""
    pair, runs = design.pair, design.runs
    w, effective = pair.weights, pair.effective
    items = mean_variance(w, residuals.values, runs.clusters)
    items = Variance(items.value, max(items.df - len(residuals.slopes), 1.0))
    items = _padded(items, effective, runs.unit)
    effects = noise.runs if noise else NONE
    if design.estimand == "run":
        return VarianceParts(items, NONE, NONE, independent=True)
    if design.estimand == "domain":
        plain = mean_variance(w, pair.difference - residuals.mean, runs.clusters)
        plain = _padded(plain, effective, runs.unit)
        return VarianceParts(items, plain, effects, independent=False)
    if noise is not None:
        return VarianceParts(items, noise.answers, effects, independent=True)
    rest = items.value
    if design.method == "assisted" and pair.known_old is not None:
        lost = max(ratio**2 - (ratio + float(residuals.slopes[-1])) ** 2, 0.0)
        rest += lost * unexplained_variance(pair.known_old, design.shares) / len(w)
    return VarianceParts(items, Variance(rest, items.df), effects, independent=False)


def _combined(design: PairDesign, residuals: _Residuals, parts: VarianceParts) -> Difference:
    """The difference with the standard error of the estimand."""
    pair = design.pair
    share = len(pair.difference) / pair.n_items
    items, rest = parts.items.times((1 - share) * design.widening**2), parts.rest.times(share)
    if not parts.independent:
        items, rest = Variance(items.value + rest.value, min(items.df, rest.df)), NONE
    total = total_of(items, rest, parts.runs, parts.judges)
    # The added items are a guess of the items not run: what the others gave is not moved to 0.
    unknown = 1 - share if parts.independent else 1.0
    shrunk = 1 - unknown * 2 / (pair.effective + 2) if design.runs.unit else 1.0
    difference = residuals.mean + residuals.shift
    centre = residuals.mean * shrunk + residuals.shift
    return Difference(difference, centre, float(np.sqrt(total.value)), max(total.df, 1.0))


def _residuals(design: PairDesign) -> _Residuals:
    """Differences less their mean, or leave-one-out residuals of their regression."""
    d, w, z = design.pair.difference, design.pair.weights, design.columns
    k, mean = len(d), float(w @ d)
    if design.method != "assisted":
        return _Residuals(mean, 0.0, d - mean, np.empty(0))
    run = z[design.pair.at]
    centred, solve, leverage = _regression(w, run)
    slopes = solve @ (np.sqrt(w * k) * (d - mean))
    shift = float((z.mean(axis=0) - w @ run) @ slopes)
    # Leave-one-out residuals correct for slopes fitted to the same items.
    residual = (d - mean - centred @ slopes) / np.maximum(1 - leverage, 1 / k)
    return _Residuals(mean, shift, residual, slopes)


def _regression(w: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Centred covariates, the solution of their weighted regression, and each item's leverage."""
    root_weights = np.sqrt(w * len(w))[:, None]
    centred = z - w @ z
    solve = np.linalg.pinv(root_weights * centred, rcond=1e-8)
    return centred, solve, np.einsum("ij,ji->i", root_weights * centred, solve)


def _estimate(design: PairDesign) -> Difference:
    """The difference of full scores of these runs."""
    pair, unit = design.pair, design.runs.unit
    k, n, effective = len(pair.difference), pair.n_items, pair.effective
    mean, shift, residual, _ = _residuals(design)
    if not unit and np.ptp(pair.difference) == 0:
        unit = 1.0  # equal differences so far are not certainty
    added = 2 if unit else 0
    spread = float(pair.weights @ residual**2) * effective + added * unit**2
    variance = spread / (effective + added if unit else max(effective - 1, 1.0))
    se = np.sqrt((1 - k / n) * variance / (effective + added))
    centre = mean * effective / (effective + added) if k < n else mean
    return Difference(mean + shift, centre + shift, float(se))


def widening_of(design: PairDesign, level: float, progress: Progress | None) -> tuple[float, str]:
    """Factor by which intervals must be widened to cover pairs of calibrated models."""
    pair, z = design.pair, ndtri(0.5 + level / 2)
    note = "items not drawn at random"
    answered = ~np.isnan(pair.field)
    run = answered[:, pair.at].astype(np.float32)
    common = run @ run.T  # number of the items run that both models of a pair have answered
    least = max(2.0, FEWEST_COMMON * len(pair.at))
    if design.method == "assisted":
        least = max(least, design.columns.shape[1] + 3.0)
    usable = np.asarray(np.delete(answered, pair.at, axis=1).any(axis=1))
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
        similar, true = _similar(design, *pair.field[[one[at], other[at]]])
        if similar.pair.weights.sum() == 0 or len(similar.pair.at) == similar.pair.n_items:
            continue
        estimate = _estimate(similar)
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


def _similar(design: PairDesign, first: FloatArray, second: FloatArray) -> tuple[PairDesign, float]:
    """Two calibrated models on the items that both answered, and their difference."""
    pair, both = design.pair, ~np.isnan(first) & ~np.isnan(second)
    kept = both[pair.at]
    items, weights = pair.at[kept], pair.weights[kept]
    position = np.cumsum(both) - 1  # among the items that both answered
    similar = pair._replace(
        difference=(first - second)[items],
        weights=weights / (weights.sum() or 1.0),
        at=position[items],
        n_items=int(both.sum()),
        known_old=None if pair.known_old is None else second[both],
        strata=pair.strata[both],
    )
    shares = design.shares[both]
    moved = design._replace(pair=similar, shares=shares, columns=_covariates(similar, shares))
    return moved, float((first - second)[both].mean())

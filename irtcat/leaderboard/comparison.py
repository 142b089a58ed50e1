"""Comparison of two models on one subset, for example in a regression gate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri, stdtrit

from irtcat._common.checks import argument_error, check_choice, check_interval
from irtcat._common.positions import positions_of_ids
from irtcat._common.progress import Progress, ProgressOption, Steps, with_progress
from irtcat._common.types import FloatArray, IntArray
from irtcat.io.convert import as_responses_like
from irtcat.prediction.answers import recode
from irtcat.prediction.task import is_sample
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.selection import Subset

METHODS = ("auto", "paired", "assisted")
POWER = 0.8
"""Power to detect the estimated difference that defines the number of further items."""

FEWEST_PER_COVARIATE = 10
PAIRS_CHECKED = 600
"""Calibrated pairs from which the widening is estimated."""

FEWEST_MODELS = 20
"""With fewer models the pairs do not show a quantile of their errors, only the mean square."""

PRIOR_PAIRS = 4
"""Models, less one, that the variance of a random choice of items counts for beside the pairs."""

FEWEST_COMMON = 0.5
"""Least share of the items run that both models of a calibrated pair have answered."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """The difference of two models' full scores, estimated from one subset.

    Attributes:
        new: id of the new model.
        old: id of the old one.
        difference: estimated full score of new minus that of old, in score units.
        lower: lower end of its interval.
        upper: upper end.
        se: its standard error.
        p_better: probability that new is better, ``Phi(z)`` with z the centre of the interval in
            standard errors; z is infinite where the items run decide the sign of the difference,
            and 0 where centre and difference have different signs.
        p_value: p-value of the two-sided test of equal full scores, ``2 Phi(-|z|)``: it is below
            ``1 - level`` where 0 is outside the interval, and only there.
        verdict: "better", "worse" or "cannot tell".
        more_items: number of further items needed to detect the estimated difference with power .8;
            0 if it is detected.
        n_items: number of items that both answered.
        n_new_only: number of items on which new scored higher.
        n_old_only: number of items on which old scored higher.
        method: "paired" or "assisted".
        level: probability of the interval.
        flags: warnings.
    """

    new: str
    old: str
    difference: float
    lower: float
    upper: float
    se: float
    p_better: float
    p_value: float
    verdict: str
    more_items: int
    n_items: int
    n_new_only: int
    n_old_only: int
    method: str
    level: float
    flags: tuple[str, ...]

    def __str__(self) -> str:
        points = [100 * value for value in (self.difference, self.lower, self.upper)]
        text = (
            f"{self.new} against {self.old}: {points[0]:+.1f} points "
            f"[{points[1]:+.1f}, {points[2]:+.1f}] from {self.n_items} items, {self.verdict}"
        )
        return f"{text} ({self.more_items} more would)" if self.more_items else text

    def __repr__(self) -> str:
        return f"Comparison({self})"

    def to_frame(self) -> pd.DataFrame:
        """One row, indexed by the new model's id; differences in score units."""
        names = [name for name in self.__dataclass_fields__ if name not in ("new", "flags")]
        row = {name: getattr(self, name) for name in names} | {"flag": "; ".join(self.flags)}
        return pd.DataFrame([row], index=pd.Index([self.new], name="new"))


class _Pair(NamedTuple):
    """Two models on the items of a subset, and covariates of all items."""

    difference: FloatArray
    weights: FloatArray
    at: IntArray
    n_items: int
    field: FloatArray
    known_old: FloatArray | None


class _Estimate(NamedTuple):
    """A difference and its standard error; ``centre`` is the centre of the interval."""

    difference: float
    centre: float
    se: float


@with_progress("Comparing two models")
def compare(
    calibration: Responses,
    subset: Subset | Sequence[str] | np.ndarray,
    responses: Responses,
    new: str | None = None,
    old: str | None = None,
    *,
    method: str = "auto",
    level: float = 0.95,
    mismatch: str = "refuse",
    progress: ProgressOption = None,
) -> Comparison:
    """Test whether the new model is better than the old one on the full benchmark.

    Both have answered the same k of N items. The difference of their means over all N items is
    estimated from d_l = new_l - old_l on the items run:

    | method | difference | variance |
    |---|---|---|
    | paired | weighted mean of d | ``(1 - k/N) (sum (d - mean)^2 + 2) / (k + 2) / (k + 2)`` |
    | assisted | that, and ``b'(Z_all - Z_run)``, d regressed on Z | same, of the residuals |

    Z is the share of calibrated models that are right on the item and, if the old model has
    answered every item (it is calibrated, or ``responses`` have all its answers), that answer. With
    the latter and at least ten items per column of Z, "auto" is "assisted", which reduces the width
    by about a quarter; otherwise the regression gains little and "auto" is "paired".

    The 2 adds one pseudo-item to either side (Bonett & Price), so that k items on which the two
    always agree do not give an interval of width 0; the interval is centred at the mean of the
    extended items, and clipped to the possible range. If the subset is not a probability sample the
    variance ignores the choice of items: then the same comparison is made for pairs of calibrated
    models on the items that both answered, where their difference is known, and the interval is
    widened to have the nominal coverage for them, and flagged. With M < 20 models that occur in
    such pairs the factor is ``t_v sqrt((4 + (M - 1) r^2) / v) / z`` with v = M + 3 degrees of
    freedom and r^2 the mean squared error of the pairs in standard errors; without any, r is 1.

    Args:
        calibration: responses of the calibrated models to all N items.
        subset: the items that were run: a `Subset`, or their ids.
        responses: responses of both models, or of the new one if the old one is calibrated. Items
            outside the subset are ignored, except for the old model in "assisted".
        new: id of the new model; by default the last one of ``responses``.
        old: id of the old model, in ``responses`` or calibrated; by default the first one of
            ``responses``.
        method: "auto", "paired" or "assisted".
        level: probability of the interval; the verdict is "better" or "worse" if 0 is outside.
        mismatch: where calibration and responses say under which conditions the items were answered
            (see `irtcat.predict`) and these differ: "refuse", or "accept".
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` for the pairs of calibrated models.

    Returns:
        The comparison.

    Raises:
        InputError: for an unknown model, item or method, fewer than 2 items that both answered, or
            answers under other conditions than those of the calibration.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> from irtcat.selection import select
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 500))
        >>> calibration = bank.simulate(np.linspace(-2, 2, 40), seed=1)
        >>> both = bank.simulate([0.0, 1.0], seed=2)
        >>> subset = select(None, 100, strategy="random", calibration=calibration)
        >>> print(compare(calibration, subset, both))
        s2 against s1: +22.0 points [+14.1, +29.3] from 100 items, better

    References:
        Bonett & Price (2012), JEBS 37, 479-488 (paired proportions); Saerndal, Swensson & Wretman
        (1992), Model Assisted Survey Sampling, chapter 6.
    """
    check_choice("method", method, METHODS)
    check_interval("level", level)
    calibration = as_responses_like(calibration, "calibration", None)
    responses = as_responses_like(responses, "responses", calibration)
    names, pair, sampled, flags = _read(calibration, subset, responses, new, old)
    used = calibration.item_ids if pair.known_old is not None else calibration.item_ids[pair.at]
    check_conditions(calibration.items, responses.items, mismatch, items=used)
    shares = _shares_right(pair)
    columns = _covariates(pair, shares)
    if method == "auto":
        enough = len(pair.difference) >= FEWEST_PER_COVARIATE * (columns.shape[1] + 1)
        method = "assisted" if pair.known_old is not None and enough else "paired"
    if method == "assisted" and len(pair.difference) <= columns.shape[1] + 2:
        must = f"paired for fewer than {columns.shape[1] + 3} items"
        raise argument_error("method", must, method)
    estimate = _estimate(pair.difference, pair, columns, method)
    z = ndtri(0.5 + level / 2)
    widening = 1.0
    if not sampled:
        widening, note = _widening(pair, shares, method, level, z, progress)
        flags.append(note)
    estimate = estimate._replace(se=estimate.se * widening)
    return _conclude(names, pair, estimate, z, method, float(level), flags)


def _conclude(
    names: tuple[str, str],
    pair: _Pair,
    estimate: _Estimate,
    z: float,
    method: str,
    level: float,
    flags: list[str],
) -> Comparison:
    """Interval, verdict and the number of further items needed."""
    d, k, n = pair.difference, len(pair.difference), pair.n_items
    if not d.any():
        flags.append("both gave the same answer to every item run")
    lowest, highest = (d.sum() - (n - k)) / n, (d.sum() + (n - k)) / n
    difference = float(np.clip(estimate.difference, lowest, highest))
    lower = float(np.clip(estimate.centre - z * estimate.se, lowest, highest))
    upper = float(np.clip(estimate.centre + z * estimate.se, lowest, highest))
    lower, upper = min(lower, difference), max(upper, difference)
    verdict = "better" if lower > 0 else "worse" if upper < 0 else "cannot tell"
    ratio = 0.0
    if lowest > 0 or highest < 0:  # whatever the items that were not run would give
        ratio = float(np.copysign(np.inf, lowest))
    elif estimate.centre * difference > 0 and estimate.se > 0:
        ratio = estimate.centre / estimate.se
    n_more = 0
    if verdict == "cannot tell" and k < n:
        # The variance is V (1/k - 1/N): solve for the k at which centre = (z + z_power) se.
        v = estimate.se**2 / (1 / k - 1 / n)
        needed = 1 / ((estimate.centre / (z + ndtri(POWER))) ** 2 / v + 1 / n)
        n_more = int(np.clip(np.ceil(needed - 1e-9) - k, 1, n - k))
    return Comparison(
        new=names[0],
        old=names[1],
        difference=difference,
        lower=lower,
        upper=upper,
        se=float(estimate.se),
        p_better=float(ndtr(ratio)),
        p_value=2 * float(ndtr(-abs(ratio))),
        verdict=verdict,
        more_items=n_more,
        n_items=k,
        n_new_only=int(np.count_nonzero(d > 0)),
        n_old_only=int(np.count_nonzero(d < 0)),
        method=method,
        level=level,
        flags=tuple(flags),
    )


def _estimate(d: FloatArray, pair: _Pair, columns: FloatArray, method: str) -> _Estimate:
    """The difference of full scores from differences on the items run."""
    k, n, w = len(d), pair.n_items, pair.weights
    mean = float(w @ d)
    effective = 1 / float(w @ w)
    residual, leverage, shift = d - mean, np.zeros(k), 0.0
    if method == "assisted":
        centred = columns[pair.at] - w @ columns[pair.at]
        root_weights = np.sqrt(w * k)[:, None]
        solve = np.linalg.pinv(root_weights * centred, rcond=1e-8)
        slope = solve @ (root_weights[:, 0] * residual)
        leverage = np.einsum("ij,ji->i", root_weights * centred, solve)
        shift = float((columns.mean(axis=0) - w @ columns[pair.at]) @ slope)
        residual = residual - centred @ slope
    # Leave-one-out residuals correct for slopes fitted to the same items.
    residual = residual / np.sqrt(np.maximum(1 - leverage, 1 / k))
    spread = float(w @ residual**2) * effective
    variance = (spread + 2) / (effective + 2)
    se = np.sqrt((1 - k / n) * variance / (effective + 2))
    centre = mean * effective / (effective + 2) if k < n else mean
    return _Estimate(mean + shift, centre + shift, float(se))


def _shares_right(pair: _Pair) -> FloatArray:
    """Share of the calibrated models that are right on every item."""
    is_observed = ~np.isnan(pair.field)
    counts = is_observed.sum(axis=0)
    total = np.where(is_observed, pair.field, 0).sum(axis=0)
    return np.divide(total, counts, out=np.full(pair.n_items, 0.5), where=counts > 0)


def _covariates(pair: _Pair, shares: FloatArray) -> FloatArray:
    """Covariates of every item: share right, and the old model's answer if known."""
    columns = [shares]
    if pair.known_old is not None:
        columns.append(pair.known_old)
    return np.column_stack(columns)


def _widening(
    pair: _Pair,
    shares: FloatArray,
    method: str,
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
        least = max(least, _covariates(pair, shares).shape[1] + 3.0)
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
        columns = _covariates(similar, similar_shares)
        estimate = _estimate(similar.difference, similar, columns, method)
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
    pair: _Pair, shares: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[_Pair, FloatArray, float]:
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
    )
    return similar, shares[both], float((first - second)[both].mean())


def _read(
    calibration: Responses, subset: Any, responses: Responses, new: str | None, old: str | None
) -> tuple[tuple[str, str], _Pair, bool, list[str]]:
    """Both models' answers by item, whether the items are a probability sample, and flags."""
    subset_ids = np.asarray(getattr(subset, "item_ids", subset)).astype(str)
    if subset_ids.ndim != 1 or not len(subset_ids) or len(np.unique(subset_ids)) < len(subset_ids):
        raise argument_error("subset", "a Subset or a list of different item ids", subset)
    all_items = pd.Index(np.asarray(calibration.item_ids, dtype=str))
    positions = positions_of_ids("subset", subset_ids, all_items)
    weights = np.asarray(
        getattr(subset, "weights", np.full(len(positions), 1 / len(positions))), float
    )
    sampled = bool(is_sample(subset, len(all_items)))
    new_id = str(responses.subject_ids[-1] if new is None else new)
    old_id = str(responses.subject_ids[0] if old is None else old)
    if new_id == old_id and old is None:
        must = f"given: responses have {new_id} alone, and a calibrated model can be the old one"
        if responses.n_subjects > 1:
            must = f"given, as the first model of responses, {new_id}, is the new one"
        raise argument_error("old", must, "nothing")
    if new_id == old_id:
        raise argument_error("new", "a model other than old", new_id)
    new_row = _row([responses], new_id, calibration, "new")
    old_row = _row([responses, calibration], old_id, calibration, "old")
    answered_both = ~np.isnan(new_row[positions]) & ~np.isnan(old_row[positions])
    flags = (
        []
        if answered_both.all()
        else [f"{np.count_nonzero(~answered_both)} of {len(positions)} items not answered by both"]
    )
    positions, weights = positions[answered_both], weights[answered_both]
    if len(positions) < 2 or not weights.sum() > 0:
        raise argument_error("responses", "answers of both to at least 2 items", len(positions))
    field = _field(calibration, (new_id, old_id))
    known_old = None if np.isnan(old_row).any() else old_row
    difference = new_row[positions] - old_row[positions]
    pair = _Pair(
        difference=difference,
        weights=weights / weights.sum(),
        at=positions,
        n_items=len(all_items),
        field=field,
        known_old=known_old,
    )
    return (new_id, old_id), pair, sampled, flags


def _row(
    sources: Sequence[Responses], name: str, calibration: Responses, argument: str
) -> FloatArray:
    """A model's answers to all items of the calibration, from the first source that has it."""
    for source in sources:
        if name in set(source.subject_ids):
            return _scores(source.subset(subjects=[name]), calibration)
    names = list(sources[0].subject_ids) + ["or a calibrated model"] * (len(sources) - 1)
    raise argument_error(argument, f"one of {', '.join(map(str, names[:6]))}", name)


def _scores(subject: Responses, calibration: Responses) -> FloatArray:
    """Scores of one subject on the calibration's items, 0 to 1; NaN if missing."""
    all_items = pd.Index(np.asarray(calibration.item_ids, str))
    positions = pd.Index(np.asarray(subject.item_ids, str)).get_indexer(all_items)
    present = positions >= 0
    scores = np.full(len(all_items), np.nan)
    if subject.is_fractional:
        if calibration.n_categories != 2:
            must = f"in {calibration.n_categories} categories, like the calibration"
            raise argument_error("responses", must, subject.kind)
        scores[present] = subject.to_numpy()[0, positions[present]]
        return scores
    codes = recode(subject.values[:, positions[present]], subject, calibration, "responses")[0]
    scores[present] = np.where(codes < 0, np.nan, codes / max(calibration.n_categories - 1, 1))
    return scores


def _field(calibration: Responses, names: tuple[str, str]) -> FloatArray:
    """Answers of the calibrated models other than these two."""
    others = ~np.isin(np.asarray(calibration.subject_ids, str), names)
    field_responses = calibration.subset(subjects=others) if others.any() else calibration
    return field_responses.to_numpy() / max(calibration.n_categories - 1, 1)

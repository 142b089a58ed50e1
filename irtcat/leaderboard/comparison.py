"""Two models on one subset: the difference of their full scores, as a regression gate needs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest

from irtcat._checks import argument_error, check_choice, check_interval
from irtcat._types import FloatArray, IntArray
from irtcat.prediction._task import is_sample, recode
from irtcat.responses import Responses
from irtcat.selection import Subset

__all__ = ["METHODS", "Comparison", "compare"]

METHODS = ("auto", "paired", "assisted")
POWER = 0.8
"""Chance with which the further items asked for would tell a difference as great as estimated."""

FLIPS = 4000
FEWEST_PER_COVARIATE = 10
PAIRS_CHECKED = 600
FEWEST_MODELS = 20


@dataclass(frozen=True, eq=False)
class Comparison:
    """The difference of two models' full scores, told from one subset.

    Attributes:
        new: id of the new model.
        old: id of the old one.
        difference: estimated full score of new less that of old, in score units.
        lower: lower end of its interval.
        upper: upper end.
        se: its standard error.
        p_better: chance that new is better, ``Phi(difference / se)``.
        p_value: of the two-sided exact sign test that neither is better on such items (McNemar's;
            for fractions sign flips of the paired differences).
        verdict: "better", "worse" or "cannot tell".
        more_items: further items after which a difference as great as estimated would be told with
            chance .8; 0 where it is told.
        n_items: items that both answered.
        n_new_only: items on which new scored higher.
        n_old_only: items on which old scored higher.
        method: "paired" or "assisted".
        level: probability of the interval.
        flags: what is to be said of it.
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
        row = {name: getattr(self, name) for name in names} | {"flags": "; ".join(self.flags)}
        return pd.DataFrame([row], index=pd.Index([self.new], name="new"))


class _Pair(NamedTuple):
    """Two models on the items of a subset, and what is known of all items."""

    difference: FloatArray
    weights: FloatArray
    at: IntArray
    n_items: int
    field: FloatArray
    known_old: FloatArray | None


class _Estimate(NamedTuple):
    """A difference and its spread; ``centre`` is what the interval is about."""

    difference: float
    centre: float
    se: float


def compare(
    calibration: Responses,
    subset: Subset | Sequence[str] | np.ndarray,
    responses: Responses,
    new: str | None = None,
    old: str | None = None,
    *,
    method: str = "auto",
    level: float = 0.95,
) -> Comparison:
    """Is the new model better than the old one on the full benchmark?

    Both have answered the same k of N items. The estimate is of the difference of their means over
    all N items, with d_l = new_l - old_l on the items run:

    | method | difference | variance |
    |---|---|---|
    | paired | weighted mean of d | ``(1 - k/N) (sum (d - mean)^2 + 2) / (k + 2) / (k + 2)`` |
    | assisted | that, and ``b'(Z_all - Z_run)``, d regressed on Z | same, of the residuals |

    Z is the share of calibrated models that are right on the item and, where the old model has
    answered every item (it is a calibrated one, or ``responses`` hold all its answers), that answer
    itself. Without the latter the regression has little to go by and "auto" pairs; with it, and at
    least ten items for each column of Z, "auto" assists: about a quarter of the width is saved.

    The two that are added are one item more for either side (Bonett & Price), so that k items
    on which the two agree throughout do not yield an interval of no width; the interval's
    centre is that of the items so extended, kept within what the items not run leave possible. Of
    a subset that is no probability sample the variance says nothing of the choice of items: the
    same comparison is made of pairs of calibrated models, whose difference is known, and the
    interval is widened until it holds for as many of them as it should, and flagged.

    Args:
        calibration: responses of the calibrated models to all N items.
        subset: the items that were run: a `Subset`, or their ids.
        responses: of both models, or of the new one where the old one is calibrated. Items outside
            the subset are ignored, save of the old model, whose answers to all items help.
        new: id of the new model; by default the last of ``responses``.
        old: id of the old one, in ``responses`` or among the calibrated; by default the first.
        method: "auto", "paired" or "assisted".
        level: probability of the interval; the verdict is "better" or "worse" where 0 is
            outside.

    Returns:
        The comparison.

    Raises:
        InputError: for an unknown model, item or method, or fewer than 2 items that both answered.

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
        (1992), Model Assisted Survey Sampling, chapter 6; McNemar (1947), Psychometrika 12.
    """
    check_choice("method", method, METHODS)
    check_interval("level", level)
    names, pair, sampled, flags = _read(calibration, subset, responses, new, old)
    columns = _covariates(pair)
    if method == "auto":
        enough = len(pair.difference) >= FEWEST_PER_COVARIATE * (columns.shape[1] + 1)
        method = "assisted" if pair.known_old is not None and enough else "paired"
    if method == "assisted" and len(pair.difference) <= columns.shape[1] + 2:
        must = f"paired for fewer than {columns.shape[1] + 3} items"
        raise argument_error("method", must, method)
    told = _estimate(pair.difference, pair, columns, method)
    z = ndtri(0.5 + level / 2)
    widening = 1.0
    if not sampled:
        widening, note = _widening(pair, method, level, z)
        flags.append(note)
    told = told._replace(se=told.se * widening)
    return _conclude(names, pair, told, z, method, float(level), flags)


def _conclude(
    names: tuple[str, str],
    pair: _Pair,
    told: _Estimate,
    z: float,
    method: str,
    level: float,
    flags: list[str],
) -> Comparison:
    """Interval, verdict and what more would take."""
    d, k, n = pair.difference, len(pair.difference), pair.n_items
    if not d.any():
        flags.append("both answered alike on every item run")
    least, most = (d.sum() - (n - k)) / n, (d.sum() + (n - k)) / n
    difference = float(np.clip(told.difference, least, most))
    lower = float(np.clip(told.centre - z * told.se, least, most))
    upper = float(np.clip(told.centre + z * told.se, least, most))
    lower, upper = min(lower, difference), max(upper, difference)
    verdict = "better" if lower > 0 else "worse" if upper < 0 else "cannot tell"
    p_better = (
        float(ndtr(told.centre / told.se)) if told.se > 0 else 0.5 + 0.5 * np.sign(difference)
    )
    more = 0
    if verdict == "cannot tell" and k < n:
        # The variance is V (1/k - 1/N): solved for the k at which z + z_power of its root fit in.
        v = told.se**2 / (1 / k - 1 / n)
        enough = 1 / ((told.centre / (z + ndtri(POWER))) ** 2 / v + 1 / n)
        more = int(np.clip(np.ceil(enough - 1e-9) - k, 1, n - k))
    return Comparison(
        *names,
        difference,
        lower,
        upper,
        float(told.se),
        float(p_better),
        _sign_test(d),
        verdict,
        more,
        k,
        int(np.count_nonzero(d > 0)),
        int(np.count_nonzero(d < 0)),
        method,
        level,
        tuple(flags),
    )


def _estimate(d: FloatArray, pair: _Pair, columns: FloatArray, method: str) -> _Estimate:
    """The difference of full scores from differences on the items run."""
    k, n, w = len(d), pair.n_items, pair.weights
    mean = float(w @ d)
    effective = 1 / float(w @ w)
    residual, leverage, shift = d - mean, np.zeros(k), 0.0
    if method == "assisted":
        inside = columns[pair.at] - w @ columns[pair.at]
        root = np.sqrt(w * k)[:, None]
        solve = np.linalg.pinv(root * inside, rcond=1e-8)
        slope = solve @ (root[:, 0] * residual)
        leverage = np.einsum("ij,ji->i", root * inside, solve)
        shift = float((columns.mean(axis=0) - w @ columns[pair.at]) @ slope)
        residual = residual - inside @ slope
    # Leave-one-out residuals make up for the slopes that were fitted to these very items.
    residual = residual / np.sqrt(np.maximum(1 - leverage, 1 / k))
    spread = float(w @ residual**2) * effective
    variance = (spread + 2) / (effective + 2)
    se = np.sqrt((1 - k / n) * variance / (effective + 2))
    centre = mean * effective / (effective + 2) if k < n else mean
    return _Estimate(mean + shift, centre + shift, float(se))


def _covariates(pair: _Pair) -> FloatArray:
    """What is known of every item, a column each: share right, and the old model's answer."""
    seen = ~np.isnan(pair.field)
    counts = seen.sum(axis=0)
    total = np.where(seen, pair.field, 0).sum(axis=0)
    share = np.divide(total, counts, out=np.full(pair.n_items, 0.5), where=counts > 0)
    columns = [share]
    if pair.known_old is not None:
        columns.append(pair.known_old)
    return np.column_stack(columns)


def _widening(pair: _Pair, method: str, level: float, z: float) -> tuple[float, str]:
    """How much wider intervals must be to hold for pairs of calibrated models on these items."""
    note = "items not drawn at random"
    x = pair.field[~np.isnan(pair.field).any(axis=1)]
    if len(x) < FEWEST_MODELS:
        return 1.0, f"{note}, and too few complete calibrated models to check the interval"
    one, other = np.triu_indices(len(x), 1)
    mixed = np.random.default_rng(0).permutation(len(one))  # so that ties are of no order
    one, other = one[mixed], other[mixed]
    full, run = x.mean(axis=1), x[:, pair.at] @ pair.weights
    # Pairs that differ by as much as these two on the items run.
    apart = np.abs(np.abs(run[one] - run[other]) - abs(pair.weights @ pair.difference))
    close = np.argsort(apart, kind="stable")
    ratios = []
    for at in close[:PAIRS_CHECKED]:
        first, second = x[one[at]], x[other[at]]
        known = None if pair.known_old is None else second
        like = pair._replace(difference=(first - second)[pair.at], known_old=known)
        told = _estimate(like.difference, like, _covariates(like), method)
        true = full[one[at]] - full[other[at]]
        ratios.append(abs(told.centre - true) / max(told.se, 1e-12))
    wider = max(float(np.quantile(ratios, level, method="higher")) / z, 1.0)
    return wider, f"{note}: interval widened x {wider:.2f}, as calibrated pairs need"


def _sign_test(d: FloatArray) -> float:
    """Two-sided exact sign test where all differences are as great, else by sign flips."""
    d = d[d != 0]
    if not len(d):
        return 1.0
    if np.ptp(np.abs(d)) == 0:
        return float(binomtest(int(np.count_nonzero(d > 0)), len(d)).pvalue)
    signs = np.random.default_rng(0).integers(0, 2, (FLIPS, len(d))) * 2 - 1
    reached = np.abs(signs @ d) >= abs(d.sum()) - 1e-9
    return float((1 + np.count_nonzero(reached)) / (1 + FLIPS))


def _read(
    calibration: Responses, subset: Any, responses: Responses, new: str | None, old: str | None
) -> tuple[tuple[str, str], _Pair, bool, list[str]]:
    """Both models' answers by item, and whether the items are a probability sample."""
    for name, value in (("calibration", calibration), ("responses", responses)):
        if not isinstance(value, Responses):
            advice = "Build them with Responses.from_array."
            raise argument_error(name, "Responses", type(value).__name__, advice)
    given = np.asarray(getattr(subset, "item_ids", subset)).astype(str)
    if given.ndim != 1 or not len(given) or len(np.unique(given)) < len(given):
        raise argument_error("subset", "a Subset or a list of different item ids", subset)
    item_ids = pd.Index(given)
    every = pd.Index(np.asarray(calibration.item_ids, dtype=str))
    at = every.get_indexer(item_ids)
    if (at < 0).any():
        must = "items of calibration"
        raise argument_error("subset", must, item_ids[at < 0].tolist())
    weights = np.asarray(getattr(subset, "weights", np.full(len(at), 1 / len(at))), float)
    sampled = bool(is_sample(subset, len(every)))
    new_id = str(responses.subject_ids[-1] if new is None else new)
    old_id = str(responses.subject_ids[0] if old is None else old)
    if new_id == old_id:
        raise argument_error("new", "another model than old", new_id)
    new_row = _row([responses], new_id, calibration, "new")
    old_row = _row([responses, calibration], old_id, calibration, "old")
    both = ~np.isnan(new_row[at]) & ~np.isnan(old_row[at])
    flags = (
        [] if both.all() else [f"{np.count_nonzero(~both)} of {len(at)} items not answered by both"]
    )
    at, weights = at[both], weights[both]
    if len(at) < 2 or not weights.sum() > 0:
        raise argument_error("responses", "answers of both to at least 2 items", len(at))
    field = _field(calibration, (new_id, old_id))
    known = None if np.isnan(old_row).any() else old_row
    difference = new_row[at] - old_row[at]
    pair = _Pair(difference, weights / weights.sum(), at, len(every), field, known)
    return (new_id, old_id), pair, sampled, flags


def _row(sources: Sequence[Responses], name: str, calibration: Responses, which: str) -> FloatArray:
    """A model's answers to all items of the calibration, from the first source that has it."""
    for source in sources:
        if name in set(source.subject_ids):
            return _scores(source.subset(subjects=[name]), calibration)
    have = list(sources[0].subject_ids) + ["or a calibrated model"] * (len(sources) - 1)
    raise argument_error(which, f"one of {', '.join(map(str, have[:6]))}", name)


def _scores(one: Responses, calibration: Responses) -> FloatArray:
    """One subject's answers to the calibration's items, 0 to 1 by its codes, NaN where none."""
    every = pd.Index(np.asarray(calibration.item_ids, str))
    at = pd.Index(np.asarray(one.item_ids, str)).get_indexer(every)
    found = at >= 0
    scores = np.full(len(every), np.nan)
    if one.is_fractional:
        if calibration.n_categories != 2:
            must = f"in {calibration.n_categories} categories, as the calibration is"
            raise argument_error("responses", must, one.kind)
        scores[found] = one.to_numpy()[0, at[found]]
        return scores
    codes = recode(one.values[:, at[found]], one, calibration, "responses")[0]
    scores[found] = np.where(codes < 0, np.nan, codes / max(calibration.n_categories - 1, 1))
    return scores


def _field(calibration: Responses, names: tuple[str, str]) -> FloatArray:
    """Answers of the calibrated models other than these two."""
    others = ~np.isin(np.asarray(calibration.subject_ids, str), names)
    chosen = calibration.subset(subjects=others) if others.any() else calibration
    return chosen.to_numpy() / max(calibration.n_categories - 1, 1)

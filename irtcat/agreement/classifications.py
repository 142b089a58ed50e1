"""Classification into levels by cut scores: how accurate it is, and how consistent.

Accuracy is the probability that the level of a score is the level of the true score; consistency
is the probability that two scores of the same subject, on parallel tests, have the same level.
"""

import itertools
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_interval,
    float_array,
    is_number,
)
from irtcat._common.types import FloatArray
from irtcat._files.json import json_value

MODELS = ("4-beta", "2-beta")

NODES = 400
"""Nodes of the integrals over true scores in a level; the error is below 1e-6 for the shapes that
tests/agreement/test_classifications.py covers."""

WHOLE = 1e-9
"""Distance within which a cut in effective items counts as whole, against rounding."""


@dataclass(frozen=True)
class BetaBinomial:
    """A distribution of proportional true scores with binomial errors.

    The true score is ``low + (high - low) * B`` with B from Beta(alpha, beta); the observed score
    is binomial with ``n_items`` trials.

    Attributes:
        alpha: first shape parameter.
        beta: second shape parameter.
        low: lowest true score, from 0.
        high: highest true score, to 1.
        n_items: effective number of items.
        reliability: share of true variance that the distribution implies.
        moments: number of moments of the scores that it reproduces, 2 to 4.
    """

    alpha: float
    beta: float
    low: float
    high: float
    n_items: int
    reliability: float
    moments: int


@dataclass(frozen=True, eq=False)
class Classification:
    """Accuracy and consistency of the classification into levels.

    Attributes:
        cuts: lowest score of each level above the first, in rising order.
        confusion: probability of each true level (rows) and observed level (columns); sums to 1.
        repeated: the same for the observed levels of two parallel tests.
        method: the method of estimation.
        model: the true-score distribution, of `livingston_lewis`.
    """

    cuts: FloatArray
    confusion: FloatArray
    repeated: FloatArray
    method: str
    model: BetaBinomial | None = None

    def __repr__(self) -> str:
        figures = f"accuracy {self.accuracy:.3f}, consistency {self.consistency:.3f}"
        return f"Classification({len(self.cuts) + 1} levels, {figures}, {self.method})"

    @property
    def accuracy(self) -> float:
        """Probability that the observed level is the true one."""
        return float(np.trace(self.confusion))

    @property
    def consistency(self) -> float:
        """Probability that two parallel tests give the same level."""
        return float(np.trace(self.repeated))

    @property
    def kappa(self) -> float:
        """Consistency beyond chance; NaN where all subjects are in one level."""
        return _kappa(self.repeated)

    def to_frame(self) -> pd.DataFrame:
        """One row per cut, and one for all levels together.

        Returns:
            Indexed by ``cut`` ("all" in the last row): ``accuracy``, ``false_positive`` (above the
            cut, but the true score is below), ``false_negative``, ``consistency``, ``kappa`` and
            ``above`` (share of the observed scores at or above the cut; NaN in the last row).
        """
        rows = []
        for k in range(1, len(self.confusion)):
            (_, false_positive), (false_negative, _) = confusion = _dichotomised(self.confusion, k)
            repeated = _dichotomised(self.repeated, k)
            shares = np.trace(confusion), false_positive, false_negative, np.trace(repeated)
            rows.append((*shares, _kappa(repeated), confusion[:, 1].sum()))
        higher = np.triu(self.confusion, 1).sum()
        shares = self.accuracy, higher, 1 - self.accuracy - higher, self.consistency
        rows.append((*shares, self.kappa, np.nan))
        columns = ["accuracy", "false_positive", "false_negative", "consistency", "kappa", "above"]
        index = pd.Index([*self.cuts.tolist(), "all"], dtype=object, name="cut")
        return pd.DataFrame(rows, index, columns).astype(float)

    def to_json(self) -> dict[str, Any]:
        """The classification as a JSON document."""
        return {field.name: json_value(getattr(self, field.name)) for field in fields(self)}

    @staticmethod
    def from_json(document: dict[str, Any]) -> "Classification":
        """A classification from the output of `to_json`."""
        names = ("cuts", "confusion", "repeated")
        cuts, confusion, repeated = (np.array(document[name], float) for name in names)
        model = None if document["model"] is None else BetaBinomial(**document["model"])
        return Classification(cuts, confusion, repeated, document["method"], model)


def _dichotomised(table: FloatArray, k: int) -> FloatArray:
    """A square table of levels as a table of below and at or above the k-th cut."""
    upper = np.arange(len(table)) >= k
    side = np.stack([~upper, upper]).astype(float)
    return side @ table @ side.T


def _kappa(repeated: FloatArray) -> float:
    chance = float((repeated.sum(axis=0) * repeated.sum(axis=1)).sum())
    return float((np.trace(repeated) - chance) / (1 - chance)) if chance < 1 - 1e-12 else np.nan


def _checked_cuts(cuts: Any) -> FloatArray:
    values = np.atleast_1d(float_array("cuts", "one number, or several in rising order", cuts))
    rising = values.ndim == 1 and len(values) > 0 and bool((np.diff(values) > 0).all())
    if not rising or not np.isfinite(values).all():
        raise argument_error("cuts", "one finite number, or several in rising order", cuts)
    return values


def _vector(name: str, value: Any, n: int | None = None) -> FloatArray:
    vector = float_array(name, "a vector of numbers", value)
    if vector.ndim != 1 or len(vector) == 0 or (n is not None and len(vector) != n):
        must = "a vector of numbers" if n is None else f"a vector of {n} numbers, as many as theta"
        raise argument_error(name, must, f"an array of shape {vector.shape}")
    return vector


def _finite(name: str, value: Any, n: int | None = None) -> FloatArray:
    vector = _vector(name, value, n)
    if not np.isfinite(vector).all():
        raise argument_error(name, "finite numbers", vector[~np.isfinite(vector)][0])
    return vector


def _shares(weights: Any, n: int) -> FloatArray:
    """The weights of n subjects with a sum of 1; equal ones for None."""
    shares = np.ones(n) if weights is None else _finite("weights", weights, n)
    if (shares < 0).any() or shares.sum() <= 0:
        raise argument_error("weights", "numbers of at least 0, not all 0", shares)
    return np.asarray(shares / shares.sum())


def rudner_classification(theta: Any, se: Any, cuts: Any, weights: Any = None) -> Classification:
    """Accuracy and consistency of levels of ability, from the standard errors.

    The estimate of a subject is Normal(theta_i, se_i^2), so it is in level l with probability
    ``P_il = Phi((c_(l+1) - theta_i) / se_i) - Phi((c_l - theta_i) / se_i)``. Accuracy is the mean
    of P_il at the level l of theta_i, consistency the mean of ``sum_l P_il^2``. It applies to
    adaptive tests, whose standard errors differ between subjects of the same ability.

    The formula takes theta as the true abilities: use true abilities of simulated subjects, or
    quadrature nodes with ``weights``, where there are some. With estimates of subjects it is a good
    approximation where the test is long; shrunken ones (EAP) have too small a variance, and
    unshrunken ones too large a variance.

    Args:
        theta: abilities. A level includes its cut.
        se: their standard errors, above 0; infinite where the test says nothing.
        cuts: cut scores on the scale of theta, in rising order.
        weights: weight of each ability; equal by default.

    Returns:
        The classification.

    Raises:
        InputError: for lengths that differ, or numbers out of range.

    Example:
        >>> result = rudner_classification([-1.0, 0.2, 1.0], [0.3, 0.3, 0.3], cuts=0.0)
        >>> round(result.accuracy, 3), round(result.consistency, 3)
        (0.916, 0.874)

    References:
        Rudner (2001), Practical Assessment, Research & Evaluation 7(14); Rudner (2005), the same
        10(13) (accuracy); Wyse & Hao (2012), Applied Psychological Measurement 36, 602-624
        (consistency).
    """
    from scipy.special import ndtr  # scipy is slow to import

    points = _finite("theta", theta)
    errors = _vector("se", se, len(points))
    if np.isnan(errors).any() or (errors <= 0).any():
        raise argument_error("se", "numbers above 0", errors[~(errors > 0)][0])
    limits, shares = _checked_cuts(cuts), _shares(weights, len(points))
    below = ndtr((limits - points[:, None]) / errors[:, None])
    probability = np.diff(below, axis=1, prepend=0.0, append=1.0)
    level = np.searchsorted(limits, points, side="right")
    member = (level[:, None] == np.arange(len(limits) + 1)) * shares[:, None]
    return Classification(
        cuts=limits,
        confusion=member.T @ probability,
        repeated=(probability * shares[:, None]).T @ probability,
        method="rudner",
    )


def observed_classification(truth: Any, first: Any, second: Any, cuts: Any) -> Classification:
    """Accuracy and consistency counted in a simulation of two parallel tests.

    Args:
        truth: true scores of the subjects.
        first: their scores on one test.
        second: their scores on another.
        cuts: cut scores, in rising order; a level includes its cut.

    Returns:
        The classification; ``confusion`` is the mean of both tests, and ``repeated`` symmetric.

    Raises:
        InputError: for lengths that differ, or numbers out of range.

    Example:
        >>> observed_classification([-1, 0, 1, 2], [-1, -1, 1, 2], [-2, 0, 1, 2], cuts=0)
        Classification(2 levels, accuracy 0.875, consistency 0.750, observed)
    """
    limits = _checked_cuts(cuts)
    true = _finite("truth", truth)
    scores = (true, _finite("first", first, len(true)), _finite("second", second, len(true)))
    levels = [np.searchsorted(limits, values, side="right") for values in scores]
    member = [(level[:, None] == np.arange(len(limits) + 1)) * 1.0 for level in levels]
    repeated = member[1].T @ member[2]
    return Classification(
        cuts=limits,
        confusion=member[0].T @ (member[1] + member[2]) / (2 * len(true)),
        repeated=(repeated + repeated.T) / (2 * len(true)),
        method="observed",
    )


def livingston_lewis(
    scores: Any,
    reliability: float,
    cuts: Any,
    *,
    highest: float,
    lowest: float = 0.0,
    model: str = "4-beta",
    weights: Any = None,
) -> Classification:
    """Accuracy and consistency of levels of a test score, from scores and their reliability.

    The test is replaced by ``n`` equally difficult right/wrong items of the same reliability r,

        n = ((m - lowest) (highest - m) - r s^2) / (s^2 (1 - r)),

    rounded, with m and s^2 the mean and variance of the scores. Proportional true scores follow a
    beta distribution on an interval within [0, 1] whose first four moments are those that the
    scores imply (Lord 1965: the factorial moments of binomial scores, divided by those of n), and
    scores given the true score are binomial. Where no such interval exists one of its ends is fixed
    to 0 or 1 and three moments are fitted, or both and two. It applies to any sum of points,
    weighted or not.

    Marginal proportions are those of the model; they are not adjusted to the observed ones.

    Args:
        scores: scores of the subjects; or, with ``weights``, the possible scores.
        reliability: share of true variance in the scores, such as coefficient alpha; strictly
            between 0 and 1.
        cuts: lowest score of each level above the first, in rising order.
        highest: highest possible score (not the highest observed).
        lowest: lowest possible score.
        model: "4-beta", or "2-beta" for true scores from 0 to 1 and two moments.
        weights: frequency of each score; 1 by default.

    Returns:
        The classification; its ``model`` is the fitted distribution.

    Raises:
        InputError: for numbers out of range, scores that do not vary, or a reliability so low that
            the test is worth less than two items.

    Example:
        >>> scores, counts = np.arange(11), [1, 3, 6, 9, 12, 14, 13, 11, 7, 3, 1]
        >>> result = livingston_lewis(scores, 0.7, 6, highest=10, weights=counts)
        >>> result
        Classification(2 levels, accuracy 0.832, consistency 0.769, livingston-lewis)
        >>> result.model.n_items
        16

    References:
        Livingston & Lewis (1995), Journal of Educational Measurement 32, 179-197; Hanson (1991),
        ACT Research Report 91-5 (moments of the four-parameter beta distribution); Lord (1965),
        Psychometrika 30, 239-270.
    """
    check_choice("model", model, MODELS)
    values = _finite("scores", scores)
    limits = _checked_cuts(cuts)
    if not (is_number(lowest) and is_number(highest) and lowest < highest):
        raise argument_error("highest", f"a finite number above {lowest}", highest)
    if (values < lowest).any() or (values > highest).any():
        wrong = values[(values < lowest) | (values > highest)][0]
        raise argument_error("scores", f"between {lowest:g} and {highest:g}", wrong)
    if limits[0] <= lowest or limits[-1] > highest:
        raise argument_error("cuts", f"above {lowest:g} and at most {highest:g}", cuts)
    check_interval("reliability", reliability)
    shares = _shares(weights, len(values))
    true_cuts = (limits - lowest) / (highest - lowest)
    share = (values - lowest) / (highest - lowest)
    fitted = _fitted(share, shares, float(reliability), 4 if model == "4-beta" else 2)
    confusion, repeated = _beta_binomial_tables(fitted, true_cuts)
    return Classification(
        cuts=limits, confusion=confusion, repeated=repeated, method="livingston-lewis", model=fitted
    )


def _fitted(x: FloatArray, weights: FloatArray, reliability: float, moments: int) -> BetaBinomial:
    """The true-score distribution of proportional scores."""
    mean = float(weights @ x)
    variance = float(weights @ (x - mean) ** 2)
    if variance < 1e-12:
        raise argument_error("scores", "scores that vary", f"only {x[0]:g} of the maximum")
    length = (mean * (1 - mean) - reliability * variance) / (variance * (1 - reliability))
    n = int(np.floor(length + 0.5))
    if n < 2:
        advice = "The scores vary too much for it; check `lowest` and `highest`."
        must = "high enough for a test worth two items"
        raise argument_error("reliability", must, reliability, advice)
    # Factorial moments of binomial scores over those of n are the raw moments of true scores.
    orders = np.arange(min(moments, n))
    factorial = np.cumprod(n * x[:, None] - orders, axis=1) / np.cumprod(n - orders)
    raw = weights @ factorial
    if raw[1] - raw[0] ** 2 <= 0:
        must = "high enough for true scores that vary, given the rounded number of items"
        raise argument_error("reliability", must, reliability)
    low, high, alpha, beta, used = _beta_of(raw)
    center = low + (high - low) * alpha / (alpha + beta)
    spread = (high - low) ** 2 * alpha * beta / ((alpha + beta) ** 2 * (alpha + beta + 1))
    errors = (center * (1 - center) - spread) / n
    return BetaBinomial(
        alpha, beta, low, high, n, reliability=spread / (spread + errors), moments=used
    )


def _beta_of(raw: FloatArray) -> tuple[float, float, float, float, int]:
    """Bounds, shape parameters and number of moments of the best permissible beta distribution."""
    four = _four_moments(raw) if len(raw) >= 4 else None
    if four is not None and _permissible(*four):
        return (*four, 4)
    if len(raw) >= 3:
        m1, m2, m3 = raw[:3]
        mirrored = _three_moments(1 - m1, 1 - 2 * m1 + m2, 1 - 3 * m1 + 3 * m2 - m3)
        from_0 = 0.0, *_three_moments(m1, m2, m3)
        to_1 = 1 - mirrored[0], 1.0, mirrored[2], mirrored[1]
        # The bound that four moments put beyond its limit is the one that is fixed first.
        beyond_1 = four is not None and four[1] > 1 and four[0] >= 0
        for three in (to_1, from_0) if beyond_1 else (from_0, to_1):
            if _permissible(*three):
                return (*three, 3)
    mean, variance = raw[0], raw[1] - raw[0] ** 2
    total = mean * (1 - mean) / variance - 1
    if not (total > 0 and 0 < mean < 1):
        raise InputError(
            "The `reliability` argument must be one that a beta distribution of true scores can "
            f"have. Got scores whose true variance, {variance:.3g}, is too large for their mean, "
            f"{mean:.3g}."
        )
    return 0.0, 1.0, float(mean * total), float((1 - mean) * total), 2


def _permissible(low: float, high: float, alpha: float, beta: float) -> bool:
    finite = bool(np.isfinite([low, high, alpha, beta]).all())
    return finite and -1e-12 <= low < high <= 1 + 1e-12 and alpha > 0 and beta > 0


def _three_moments(m1: float, m2: float, m3: float) -> tuple[float, float, float]:
    """Upper bound and shape parameters of the beta distribution from 0 with three raw moments.

    The ratios of successive moments are ``high (alpha + k) / (alpha + beta + k)``, which are linear
    equations in high, alpha high and alpha + beta.
    """
    a, b, c = m1, m2 / m1, m3 / m2
    with np.errstate(divide="ignore", invalid="ignore"):
        total = np.divide(2 * (c - b), 2 * b - a - c)
        high = b * (total + 1) - a * total
        alpha = np.divide(a * total, high)
    return float(high), float(alpha), float(total - alpha)


def _four_moments(raw: FloatArray) -> tuple[float, float, float, float]:
    """Bounds and shape parameters of the beta distribution with four raw moments."""
    m1, m2, m3, m4 = raw[:4]
    variance = m2 - m1**2
    skewness = (m3 - 3 * m1 * m2 + 2 * m1**3) / variance**1.5
    kurtosis = (m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4) / variance**2
    with np.errstate(divide="ignore", invalid="ignore"):
        total = np.divide(6 * (kurtosis - skewness**2 - 1), 6 + 3 * skewness**2 - 2 * kurtosis)
        root = np.sqrt((total + 2) ** 2 * skewness**2 + 16 * (total + 1))
        alpha = total / 2 * (1 - (total + 2) * skewness / root)
        beta = total - alpha
        width = np.sqrt(variance) * root / 2
        low = m1 - width * alpha / total
    return float(low), float(low + width), float(alpha), float(beta)


def _beta_binomial_tables(fitted: BetaBinomial, cuts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities of true and observed levels, and of the observed levels of two tests."""
    from scipy.special import bdtr, betainc, betaincinv  # scipy is slow to import

    a, b, n = fitted.alpha, fitted.beta, fitted.n_items
    scaled = np.clip((cuts - fitted.low) / (fitted.high - fitted.low), 0, 1)
    edges = np.concatenate([[0.0], betainc(a, b, scaled), [1.0]])
    fewest = np.ceil(cuts * n - WHOLE)  # at least 1, since cuts are above 0
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    confusion, repeated = [], np.zeros((len(cuts) + 1,) * 2)
    for start, end in itertools.pairwise(edges):
        share = start + (end - start) * (nodes + 1) / 2
        true = np.clip(fitted.low + (fitted.high - fitted.low) * betaincinv(a, b, share), 0, 1)
        mass = weights * (end - start) / 2
        below = bdtr(fewest - 1, n, true[:, None])
        probability = np.diff(below, axis=1, prepend=0.0, append=1.0)
        confusion.append(mass @ probability)
        repeated += (probability * mass[:, None]).T @ probability
    return np.array(confusion), repeated

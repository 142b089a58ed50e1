"""Agreement of raters: Cohen's and Fleiss' kappa, Krippendorff's alpha, majorities."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_interval,
    check_positive,
    float_array,
)
from irtcat._common.types import BoolArray, FloatArray
from irtcat.agreement.inputs import JointRatings, has_natural_order, read_counts, read_joint

DISTANCES = ("nominal", "linear", "quadratic")


@dataclass(frozen=True)
class Kappa:
    """Cohen's kappa with its uncertainty.

    Attributes:
        kappa: the estimate.
        observed: weighted share of agreement.
        expected: the same if the two raters were independent.
        standard_error: of the estimate, for intervals.
        null_standard_error: if the raters were independent, for the test of kappa = 0.
        z: ``kappa / null_standard_error``; NaN if that is 0, because a rater uses only one label.
        p_value: two-sided, of kappa = 0, from z; NaN with z.
        lower: lower end of the normal interval.
        upper: upper end; both within [-1, 1].
        level: probability of the interval.
        n: number of observations.
    """

    kappa: float
    observed: float
    expected: float
    standard_error: float
    null_standard_error: float
    z: float
    p_value: float
    lower: float
    upper: float
    level: float
    n: float

    def to_frame(self) -> pd.DataFrame:
        """One row with all attributes."""
        return pd.DataFrame([asdict(self)])


def cohen_kappa(
    x: Any, y: Any = None, *, distance: Any = "nominal", labels: Any = None, weights: Any = None
) -> float:
    """Cohen's kappa: agreement of two raters beyond that of independent raters.

    ``kappa = 1 - sum d_ij p_ij / sum d_ij p_i. p_.j`` with the distance ``d_ij`` of two labels: 1
    for different ones (nominal), ``|i - j|`` or ``(i - j)^2`` of their ranks in the order
    (linear, quadratic), or a matrix.

    Args:
        x: labels by one rater (any hashable values), or the joint table of both (counts or
            probabilities) with ``y`` left out.
        y: as many labels by the other rater.
        distance: ``"nominal"``, ``"linear"``, ``"quadratic"``, or a matrix (labels x labels, in
            their order) of distances of at least 0 with zeros on the diagonal.
        labels: the labels in order; by default those that occur, sorted. Labels that are not
            numbers must be put in order here for linear, quadratic and matrix distances.
        weights: of the observations, at least 0.

    Returns:
        1 for perfect agreement, 0 for independent raters, possibly negative; 0 if exactly one of
        the two always gives the same label.

    Raises:
        InputError: as `joint_table`; if both always give the same label, so that kappa is 0 / 0;
            if the order of the labels is required and missing.

    Example:
        >>> joint = [[0.20, 0.25, 0.05], [0.09, 0.18, 0.09], [0.01, 0.07, 0.06]]
        >>> round(cohen_kappa(joint), 4)
        0.1277
        >>> round(cohen_kappa([1, 2, 3, 3], [1, 3, 3, 3], distance="quadratic"), 4)
        0.8333

    References:
        Cohen (1960), Educational and Psychological Measurement 20, 37-46; Cohen (1968),
        Psychological Bulletin 70, 213-220: weighted.
    """
    if isinstance(weights, str):
        advice = f"Weighted kappa is `distance={weights!r}`."
        raise argument_error("weights", "numbers, one per observation", weights, advice)
    joint = read_joint(x, y, labels, weights, ("x", "y"))
    d = _distances(distance, joint, labels is not None or y is None)
    expected = float((d * np.outer(joint.p.sum(axis=1), joint.p.sum(axis=0))).sum())
    if expected <= 0:
        raise _undefined()
    return 1.0 - float((d * joint.p).sum()) / expected


def cohen_kappa_test(
    x: Any,
    y: Any = None,
    *,
    distance: Any = "nominal",
    labels: Any = None,
    n: float | None = None,
    level: float = 0.95,
) -> Kappa:
    """Cohen's kappa with standard errors, test and interval, for a sample of observations.

    The large-sample variances of Fleiss, Cohen and Everitt, with agreements ``w = 1 - d / max d``,
    their means by row and column, observed agreement P and expected agreement Q::

        var  = (sum p_ij (w_ij (1 - Q) - (w_i. + w_.j) (1 - P))^2 - (P Q - 2 Q + P)^2)
               / (n (1 - Q)^4)
        null = (sum p_i. p_.j (w_ij - (w_i. + w_.j))^2 - Q^2) / (n (1 - Q)^2)

    Args:
        x: labels by one rater, or the joint table of both with ``y`` left out.
        y: as many labels by the other rater.
        distance: as in `cohen_kappa`.
        labels: the labels in order, as in `cohen_kappa`.
        n: number of observations, required for a table of probabilities.
        level: probability of the interval.

    Returns:
        Estimate, standard errors, z, p-value and interval. The formula gives a standard error
        of 0 for perfect agreement, which is not informative about another sample. The interval is
        one of large samples, too short where a label is rare: with both raters giving one of two
        labels to 90 % and a kappa of .5 it covers .71 for 30 observations, .88 for 60 and .93 for
        200 (simulated, 95 % intervals).

    Raises:
        InputError: as `cohen_kappa`; for a table of probabilities without ``n``.

    Example:
        >>> result = cohen_kappa_test([[20, 5], [10, 15]])
        >>> round(result.kappa, 4), round(result.standard_error, 4), round(result.p_value, 4)
        (0.4, 0.127, 0.0039)

    References:
        Fleiss, Cohen & Everitt (1969), Psychological Bulletin 72, 323-327.
    """
    from scipy.special import ndtr, ndtri

    check_interval("level", level)
    joint = read_joint(x, y, labels, None, ("x", "y"))
    size = _sample_size(joint, n)
    d = _distances(distance, joint, labels is not None or y is None)
    w = 1.0 - d / d.max() if d.any() else np.ones_like(d)
    p, rows, columns = joint.p, joint.p.sum(axis=1), joint.p.sum(axis=0)
    independent = np.outer(rows, columns)
    observed, expected = float((w * p).sum()), float((w * independent).sum())
    scale = float(((1.0 - w) * independent).sum())  # 1 - expected, without cancellation
    if scale <= 0:
        raise _undefined()
    means = (w @ columns)[:, None] + (rows @ w)[None, :]
    spread = (p * (w * scale - means * (1 - observed)) ** 2).sum()
    spread -= (observed * expected - 2 * expected + observed) ** 2
    null = (independent * (w - means) ** 2).sum() - expected**2
    se = float(np.sqrt(_positive(spread) / size) / scale**2)
    null_se = float(np.sqrt(_positive(null) / size) / scale)
    kappa = 1.0 - float(((1.0 - w) * p).sum()) / scale
    z = kappa / null_se if null_se > 0 else float("nan")
    half_width = float(ndtri(0.5 + level / 2)) * se
    return Kappa(
        kappa=kappa,
        observed=observed,
        expected=expected,
        standard_error=se,
        null_standard_error=null_se,
        z=z,
        p_value=float(2 * ndtr(-abs(z))),
        lower=max(kappa - half_width, -1.0),
        upper=min(kappa + half_width, 1.0),
        level=level,
        n=size,
    )


def _positive(variance: float) -> float:
    """A variance computed as a difference; rounding error around 0 becomes 0."""
    return float(variance) if variance > 1e-14 else 0.0


def _sample_size(joint: JointRatings, n: float | None) -> float:
    """Number of observations: the argument, or the total of the counts."""
    if n is not None:
        check_positive("n", n)
        if joint.n is not None and joint.n != n:
            raise argument_error("n", f"left out, or the number of observations ({joint.n:g})", n)
        return float(n)
    if joint.n is None:
        must = "passed with a table of probabilities"
        raise argument_error("n", must, None, "A standard error needs the number of observations.")
    return joint.n


def _distances(distance: Any, joint: JointRatings, ordered: bool) -> FloatArray:
    """Distance of every two labels, checked."""
    k = len(joint.rows)
    if isinstance(distance, str) and distance == "nominal":
        return 1.0 - np.eye(k)
    if not (ordered or has_natural_order(joint.rows)):
        must = "given in order, since the distance needs an order and the labels are not numbers"
        raise argument_error("labels", must, None)
    if isinstance(distance, str):
        if distance not in DISTANCES:
            must = f"one of {', '.join(DISTANCES)}, or a matrix"
            raise argument_error("distance", must, distance)
        steps = np.abs(np.arange(k)[:, None] - np.arange(k)).astype(np.float64)
        return steps if distance == "linear" else steps**2
    must = f"a {k} x {k} matrix of finite numbers of at least 0 with zeros on the diagonal"
    d = float_array("distance", must, distance).copy()
    if d.shape != (k, k):
        raise argument_error("distance", must, f"an array of shape {d.shape}")
    if not (np.isfinite(d) & (d >= 0)).all() or np.diag(d).any():
        raise argument_error("distance", must, d.tolist())
    return d


def _undefined() -> InputError:
    return InputError(
        "Kappa is 0 / 0: all labels that occur are at distance 0, as when both raters always give "
        "the same label."
    )


def fleiss_kappa(ratings: Any = None, *, counts: Any = None, labels: Any = None) -> float:
    """Fleiss' kappa: agreement of many raters beyond chance, whoever they are.

    With n_ij of the n_i raters of unit i giving label j: the agreement of unit i is ``P_i = sum_j
    n_ij (n_ij - 1) / (n_i (n_i - 1))``, a label's share is the mean over units of ``n_ij / n_i``,
    and ``kappa = (mean P_i - sum_j share_j^2) / (1 - sum_j share_j^2)``. Every unit has the
    same weight whatever its number of ratings; a unit with a single rating counts in the shares
    but not in the agreement, one without ratings is ignored. With equal numbers of ratings it is
    Fleiss's (1971).

    Args:
        ratings: a row of labels per unit, with a column per rater; None and NaN are missing; or
            one list of labels per unit, of any lengths. Raters may differ between units.
        counts: instead of ratings: units x labels, how many raters gave the label.
        labels: the labels in order; by default those that occur, sorted.

    Returns:
        1 for perfect agreement, 0 for chance agreement, possibly negative.

    Raises:
        InputError: if no unit has two ratings, all ratings are the same (0 / 0), or a label is
            not in ``labels``.

    Example:
        >>> round(fleiss_kappa([["a", "a", "a"], ["a", "b", "b"], ["b", "b", "b"]]), 4)
        0.55
        >>> round(fleiss_kappa(counts=[[3, 0], [1, 2], [0, 2]]), 4)
        0.55

    References:
        Fleiss (1971), Psychological Bulletin 76, 378-382. Gwet (2014), Handbook of Inter-Rater
        Reliability, 4th ed., chapter 2: unequal numbers of ratings.
    """
    table, _, _ = read_counts(ratings, counts, labels)
    return _kappa_errors(table)[0]


def fleiss_kappa_test(
    ratings: Any = None, *, counts: Any = None, labels: Any = None, level: float = 0.95
) -> pd.DataFrame:
    """Fleiss' kappa overall and by category, with standard errors, tests and intervals.

    A category's kappa is that of the category against all others. There are two standard
    errors. ``null_se`` holds if raters label at random (Fleiss, Nee & Landis 1979): ``2 / (N n
    (n - 1)) * (s^2 - sum p_j q_j (q_j - p_j)) / s^2`` with ``s = sum p_j q_j``, for N units with n
    ratings each; it gives z and the p-value of kappa = 0. ``se`` is that of units drawn from a
    population, by linearisation, and gives the interval; it is Gwet's (2014) if numbers of
    ratings are equal.

    Args:
        ratings: as in `fleiss_kappa`.
        counts: as in `fleiss_kappa`.
        labels: the labels in order.
        level: probability of the normal interval.

    Returns:
        A row ``overall`` and one per label: kappa, share (of the label's ratings; NaN overall),
        se, lower, upper, null_se, z, p_value, units (with two ratings or more). NaN: null_se,
        z and p_value if numbers of ratings differ; se, lower and upper if there is only one
        unit; and all but the share of a label that is never or always used. The interval is one of
        large samples: with three raters, one of two labels in 90 % and a kappa of .35 that of 95 %
        covers .85 for 30 units and .9 for 60 (simulated).

    Raises:
        InputError: as `fleiss_kappa`.

    Example:
        >>> table = fleiss_kappa_test([["a", "a", "a"], ["a", "b", "b"], ["b", "b", "b"]])
        >>> table[["kappa", "null_se", "z"]].round(3)
                 kappa  null_se     z
        overall   0.55    0.333  1.65
        a         0.55    0.333  1.65
        b         0.55    0.333  1.65

    References:
        Fleiss (1971), Psychological Bulletin 76, 378-382; Fleiss, Nee & Landis (1979),
        Psychological Bulletin 86, 974-977 (the variance of 1971 was wrong). Gwet (2014), Handbook
        of Inter-Rater Reliability, 4th ed., chapter 5.
    """
    from scipy.special import ndtr, ndtri

    check_interval("level", level)
    table, order, _ = read_counts(ratings, counts, labels)
    shares = _shares(table)
    rows = [(np.nan, *_kappa_errors(table))]
    for j, share in enumerate(shares):
        against = np.column_stack([table[:, j], table.sum(axis=1) - table[:, j]])
        defined = 0 < share < 1 and bool(against.any(axis=0).all())
        rows.append((share, *(_kappa_errors(against) if defined else (np.nan,) * 3)))
    index = pd.Index(["overall", *order], tupleize_cols=False)
    out = pd.DataFrame(rows, index, columns=["share", "kappa", "se", "null_se"])
    half_width = float(ndtri(0.5 + level / 2)) * out["se"]
    out["lower"] = (out["kappa"] - half_width).clip(lower=-1)
    out["upper"] = (out["kappa"] + half_width).clip(upper=1)
    out["z"] = out["kappa"] / out["null_se"]
    out["p_value"] = 2 * ndtr(-out["z"].abs())
    out["units"] = int((table.sum(axis=1) >= 2).sum())
    columns = ["kappa", "share", "se", "lower", "upper", "null_se", "z", "p_value", "units"]
    return out[columns]


def _shares(table: FloatArray) -> FloatArray:
    """Mean share of each label over the units that have ratings."""
    size = table.sum(axis=1)
    return (table[size > 0] / size[size > 0, None]).mean(axis=0)


def _paired(size: FloatArray) -> BoolArray:
    """Units with two ratings or more, of which there must be some."""
    paired = size >= 2
    if not paired.any():
        must = "a table with two ratings of some unit"
        raise argument_error("ratings", must, "at most one rating per unit")
    return paired


def _kappa_errors(table: FloatArray) -> tuple[float, float, float]:
    """Kappa, its standard error over units, and the one under random labelling."""
    size = table.sum(axis=1)
    table, size = table[size > 0], size[size > 0]
    paired = _paired(size)
    n = size[paired]
    agreement = (table[paired] * (table[paired] - 1)).sum(axis=1) / (n * (n - 1))
    shares = _shares(table)
    scale = float((shares * (1 - shares)).sum())  # 1 - expected agreement
    if np.count_nonzero(table.any(axis=0)) < 2:
        raise InputError("Fleiss' kappa is 0 / 0: all ratings are the same label.")
    observed = agreement.mean()
    kappa = (observed - (1 - scale)) / scale
    # Influence of each unit on kappa: via the expected, then the observed agreement.
    influence = -2 * (1 - kappa) * ((table / size[:, None]) @ shares - (1 - scale)) / scale
    influence[paired] += (agreement - observed) / paired.mean() / scale
    n_units = len(influence)
    se = float(np.sqrt(influence.var(ddof=1) / n_units)) if n_units > 1 else float("nan")
    return float(kappa), se, _null_error(shares, size)


def _null_error(shares: FloatArray, size: FloatArray) -> float:
    """Standard error of kappa if raters label at random; NaN if their numbers differ."""
    if (size != size[0]).any():
        return float("nan")
    n, s = size[0], (shares * (1 - shares)).sum()
    skew = (shares * (1 - shares) * (1 - 2 * shares)).sum()
    return float(np.sqrt(2 * (s**2 - skew) / (len(size) * n * (n - 1))) / s)


def krippendorff_alpha(
    ratings: Any = None, measurement: str = "nominal", *, counts: Any = None, labels: Any = None
) -> float:
    """Krippendorff's alpha: 1 - observed disagreement / disagreement expected by chance.

    Each unit with m >= 2 ratings pairs all of them, each pair with weight 1 / (m - 1): the
    coincidences ``o_ck``, with margins n_c and total n. ``alpha = 1 - (n - 1) sum o_ck d_ck / sum
    n_c n_k d_ck`` with the squared distance d of two values: 1 for different ones (nominal);
    ``(sum of n_g for g from c to k, less (n_c + n_k) / 2)^2`` (ordinal); ``(c - k)^2`` (interval);
    ``((c - k) / (c + k))^2`` (ratio). Units with one rating are ignored.

    Args:
        ratings: a row of labels per unit, with a column per rater; None and NaN are missing; or
            one list of labels per unit, of any lengths. (Other programs have raters in rows.)
        measurement: ``"nominal"``, ``"ordinal"``, ``"interval"`` or ``"ratio"``.
        counts: instead of ratings: units x labels, how many raters gave the label.
        labels: the labels in order; by default those that occur, sorted. Labels that are not
            numbers must be put in order here for ``"ordinal"``; interval and ratio need numbers.

    Returns:
        1 for perfect agreement, 0 for chance agreement, possibly negative.

    Raises:
        InputError: if no unit has two ratings; all pairable ratings are the same (0 / 0); or
            labels are not valid for the measurement (ratio: at least 0).

    Example:
        Twelve units, one to four ratings each, from the first reference:

        >>> units = [[1, 1, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2]]
        >>> units += [[1, 2, 3, 4], [4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [5, 5, 5]]
        >>> units += [[1, 1], [3]]
        >>> for level in ("nominal", "ordinal", "interval", "ratio"):
        ...     print(level, round(krippendorff_alpha(units, level), 3))
        nominal 0.743
        ordinal 0.815
        interval 0.849
        ratio 0.797

    References:
        Krippendorff (2011), Computing Krippendorff's Alpha-Reliability; Hayes & Krippendorff
        (2007), Communication Methods and Measures 1, 77-89.
    """
    check_choice("measurement", measurement, MEASUREMENTS)
    table, order, _ = read_counts(ratings, counts, labels)
    values = _values(order, measurement, stated=labels is not None or counts is not None)
    table = table[_paired(table.sum(axis=1))]
    share = table / (table.sum(axis=1) - 1)[:, None]
    coincidences = table.T @ share - np.diag(share.sum(axis=0))
    margin = coincidences.sum(axis=1)
    d = MEASUREMENTS[measurement](values, margin)
    expected = margin @ d @ margin
    if not expected > 0:
        raise InputError("Krippendorff's alpha is 0 / 0: all ratings that can be paired are equal.")
    return float(1.0 - (margin.sum() - 1.0) * (coincidences * d).sum() / expected)


def _values(order: list[Any], measurement: str, stated: bool) -> FloatArray:
    """The labels as numbers if the measurement needs them; requires an order if it needs one."""
    if measurement in ("interval", "ratio"):
        if not has_natural_order(order):
            raise argument_error("ratings", f'numbers for measurement="{measurement}"', order)
        values = np.array(order, dtype=np.float64)
        if not np.isfinite(values).all():
            raise argument_error("ratings", "finite numbers", order)
        if measurement == "ratio" and (values < 0).any():
            raise argument_error("ratings", 'at least 0 for measurement="ratio"', values.min())
        return values
    if measurement == "ordinal" and not (stated or has_natural_order(order)):
        must = 'given in order for measurement="ordinal", since the labels are not numbers'
        raise argument_error("labels", must, None)
    return np.arange(len(order), dtype=np.float64)


def _ordinal(values: FloatArray, margin: FloatArray) -> FloatArray:
    """Squared number of ratings between the middles of two labels."""
    middle = np.cumsum(margin) - margin / 2
    return (middle[:, None] - middle) ** 2


def _ratio(values: FloatArray, margin: FloatArray) -> FloatArray:
    total = values[:, None] + values
    difference = values[:, None] - values
    return np.divide(difference, total, out=np.zeros_like(difference), where=total > 0) ** 2


MEASUREMENTS: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "nominal": lambda values, margin: 1.0 - np.eye(len(values)),
    "ordinal": _ordinal,
    "interval": lambda values, margin: (values[:, None] - values) ** 2,
    "ratio": _ratio,
}
"""Squared distance of every two labels by level of measurement."""


SUPERMAJORITY = Fraction(2, 3)


def majority_labels(ratings: Any = None, *, counts: Any = None, labels: Any = None) -> pd.DataFrame:
    """The label that most raters give to each unit, and their share.

    Args:
        ratings: a row of labels per unit, with a column per rater; None and NaN are missing; or
            one list of labels per unit, of any lengths.
        counts: instead of ratings: units x labels, how many raters gave the label.
        labels: the labels in order.

    Returns:
        A row per unit: label (the first in order of tied labels; None without ratings), votes,
        share (NaN without ratings), n_ratings, tied, majority (share above 1/2),
        supermajority (share of at least 2/3).

    Raises:
        InputError: for invalid ratings.

    Example:
        >>> majority_labels([["a", "a", "b"], ["a", "b"], ["c", "c", "c"]])
          label  votes     share  n_ratings   tied  majority  supermajority
        0     a      2  0.666667          3  False      True           True
        1     a      1  0.500000          2   True     False          False
        2     c      3  1.000000          3  False      True           True
    """
    table, order, units = read_counts(ratings, counts, labels)
    n, votes = table.sum(axis=1), table.max(axis=1)
    best = [order[j] if size else None for j, size in zip(table.argmax(axis=1), n, strict=True)]
    return pd.DataFrame(
        {
            "label": pd.Series(best, dtype=object),
            "votes": votes.astype(int),
            "share": pd.Series(votes) / n,  # 0 / 0 is NaN
            "n_ratings": n.astype(int),
            "tied": ((table == votes[:, None]).sum(axis=1) > 1) & (n > 0),
            # Compares whole numbers, so that 2 of 3 is exactly two thirds.
            "majority": 2 * votes > n,
            "supermajority": (SUPERMAJORITY.denominator * votes >= SUPERMAJORITY.numerator * n)
            & (n > 0),
        }
    ).set_axis(pd.Index(units, tupleize_cols=False))


def majority_share(
    ratings: Any = None,
    at_least: float | Fraction | None = None,
    *,
    counts: Any = None,
    labels: Any = None,
) -> float:
    """Share of the units on which more than half of the raters, or ``at_least`` of them, agree.

    Args:
        ratings: as in `majority_labels`.
        at_least: None for more than 1/2; else the share of the raters, in (0, 1], that must give
            the same label: ``2/3`` is a supermajority.
        counts: instead of ratings.
        labels: the labels in order.

    Returns:
        From 0 to 1, among the units with a rating.

    Raises:
        InputError: for invalid ratings or ``at_least`` out of range.

    Example:
        >>> ratings = [["a", "a", "b"], ["a", "b", "c"], ["c", "c", "c"]]
        >>> round(majority_share(ratings), 3), round(majority_share(ratings, 2 / 3), 3)
        (0.667, 0.667)

    References:
        Lalor, Wu & Yu (2016), EMNLP, Table 2.
    """
    if at_least is not None:
        number = isinstance(at_least, (int, float, np.integer, np.floating, Fraction))
        if not number or isinstance(at_least, bool) or not 0 < at_least <= 1:
            raise argument_error("at_least", "a number above 0 and at most 1", at_least)
    table, _, _ = read_counts(ratings, counts, labels)
    n, votes = table.sum(axis=1), table.max(axis=1)
    n, votes = n[n > 0], votes[n > 0]
    if at_least is None:
        return float((2 * votes > n).mean())
    # The tolerance keeps a share such as 2 / 3, rounded to a float, from missing 2 of 3.
    return float((votes >= float(at_least) * n * (1 - 1e-12)).mean())

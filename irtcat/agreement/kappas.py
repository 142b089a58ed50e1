"""Cohen's kappa of two raters, plain and weighted, with standard errors."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_interval, check_positive
from irtcat._types import FloatArray
from irtcat.agreement._labels import Joint, has_natural_order, read_joint

__all__ = ["Kappa", "cohen_kappa", "cohen_kappa_test"]

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
    x: Any,
    y: Any = None,
    *,
    distance: Any = "nominal",
    labels: Any = None,
    weights: Any = None,
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
    joint = read_joint(x, y, labels, _check_weights(weights), ("x", "y"))
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
        of 0 for perfect agreement, which is not informative about another sample.

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


def _sample_size(joint: Joint, n: float | None) -> float:
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


def _check_weights(weights: Any) -> Any:
    """Weights of observations; the name of a distance raises an error that points to `distance`."""
    if isinstance(weights, str):
        advice = f"Weighted kappa is `distance={weights!r}`."
        raise argument_error("weights", "numbers, one per observation", weights, advice)
    return weights


def _distances(distance: Any, joint: Joint, ordered: bool) -> FloatArray:
    """Distance of every two labels, checked."""
    k = len(joint.rows)
    if isinstance(distance, str) and distance == "nominal":
        return 1.0 - np.eye(k)
    if not (ordered or has_natural_order(joint.rows)):
        must = "given in order, since the distance needs an order and the labels are not numbers"
        raise argument_error("labels", must, None)
    if isinstance(distance, str):
        if distance not in DISTANCES:
            raise argument_error(
                "distance", f"one of {', '.join(DISTANCES)}, or a matrix", distance
            )
        steps = np.abs(np.arange(k)[:, None] - np.arange(k)).astype(np.float64)
        return steps if distance == "linear" else steps**2
    must = f"a {k} x {k} matrix of finite numbers of at least 0 with zeros on the diagonal"
    try:
        d = np.array(distance, dtype=np.float64)
    except (TypeError, ValueError):
        raise argument_error("distance", must, distance) from None
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

"""Mean scores from a judge on all items and people's labels on few: valid whatever the judge is."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    argument_error,
    check_count,
    check_interval,
    float_array,
    is_number,
)
from irtcat._common.per_item import by_id
from irtcat._common.types import FloatArray

MIN_LABELS = 10
"""Labels below which the variance of the residuals is not known well enough for an interval."""

UNIFORM_SHARE = 2 / 3
"""Share of the labels that is spread evenly: an item's weight is then at most 1.5 times that of an
even draw, however wrong the judge is about where it is uncertain. For errors whose sizes have a
lognormal distribution (SD 1) intervals are .71 times as wide as those of an even draw if the sizes
are known, and 1.05 times if they are those of other items; with a share of a half .67 and 1.10, of
three quarters .75 and 1.03 (experiments/judged_means)."""

FOLDS = 5
"""Parts of the items; the labels of one part are predicted from those of the others."""

RIDGE = 1.0
"""Penalty of the standardised predictors, in labels: it keeps coefficients finite where predictors
are the same for all items, and changes nothing else."""


@dataclass(frozen=True)
class JudgedMean:
    """A mean score of people's labels, estimated with the help of a judge.

    Attributes:
        mean: the estimate.
        lower: lower end of its interval.
        upper: upper end.
        se: standard error.
        labels_alone: the mean of the labels without the judge (weighted by their probabilities).
        labels_alone_se: its standard error.
        weight: how much a judge's score counts: the slope of labels on it. 0 for a useless judge.
        n_labels: number of labels.
        n: number of items.
        level: probability of the interval.
    """

    mean: float
    lower: float
    upper: float
    se: float
    labels_alone: float
    labels_alone_se: float
    weight: float
    n_labels: int
    n: int
    level: float

    def __repr__(self) -> str:
        return (
            f"JudgedMean({self.mean:.3f} [{self.lower:.3f}, {self.upper:.3f}], {self.n_labels} "
            f"labels of {self.n} items; labels alone: {self.labels_alone:.3f}, "
            f"se {self.labels_alone_se:.3f} instead of {self.se:.3f})"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row with all attributes."""
        return pd.DataFrame([{name: getattr(self, name) for name in self.__dataclass_fields__}])


def judged_mean(
    judged: Any, labels: Any, *, probabilities: Any = None, level: float = 0.95
) -> JudgedMean:
    """Estimate the mean label from a judge's scores of all items and people's labels of some.

    With f_i the judge's score, y_i the label, x_i whether there is one, and p_i the probability
    with which it was asked for, the estimate is the mean over all N items of

        c + w f_i + x_i / p_i (y_i - c - w f_i),

    which has the right expectation for any c and w, whatever the judge is: the labels correct its
    errors. c and w minimise the variance (the power tuning of PPI++, with a constant): those of the
    regression of the labels on the scores, with weights ``(1 - p_i) / p_i^2``. A useless judge gets
    a weight near 0, and costs next to nothing.

    The interval is for the mean of the population that the items were drawn from. It is that of the
    t distribution with two degrees of freedom less than there are labels. If few labels differ from
    what the judge says, or none, their residuals show too little variance (a judge that is right on
    30 labels may be wrong on a tenth of the items): one more label on either side that is wrong by
    u, the least distance of two labels, must not make the variance greater than it is taken to be,

        var >= (m^2 var + 2 u^2) / (m + 2)^2,  m = (sum 1 / p_i)^2 / sum 1 / p_i^2 over labels.

    Args:
        judged: the judge's score of every item.
        labels: the label of every item, NaN where nobody was asked; two Series by item id are
            matched by these, and items without a label can be left out. Who was asked must have
            been drawn at random: evenly, or with known ``probabilities``.
        probabilities: probability of each item to be labelled, as `labelling_probabilities` gives
            them; by default the same for all.
        level: probability of the interval.

    Returns:
        The estimate.

    Raises:
        InputError: for scores that are missing, fewer than 10 labels, and probabilities outside 0
            to 1.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> quality = rng.random(2000)
        >>> people = (rng.random(2000) < quality).astype(float)
        >>> judge = 0.8 * quality + 0.2  # lenient: its mean is .6, that of the labels .5
        >>> labels = np.where(rng.random(2000) < 0.1, people, np.nan)
        >>> found = judged_mean(judge, labels)
        >>> round(found.mean, 2), found.se < found.labels_alone_se
        (0.46, True)

    References:
        Angelopoulos, Duchi & Zrnic (2023), PPI++: Efficient prediction-powered inference,
        arXiv:2311.01453; Zrnic & Candes (2024), Active statistical inference, ICML, section 3
        (known probabilities); Robins, Rotnitzky & Zhao (1994), JASA 89, 846-866.
    """
    from scipy.special import stdtrit  # commands that compute nothing do not wait for it

    check_interval("level", level)
    if isinstance(judged, pd.Series):
        ids = judged.to_frame()
        labels = _matched("labels", labels, ids, partial=True)
        probabilities = _matched("probabilities", probabilities, ids)
    f = _vector("judged", judged)
    if not np.isfinite(f).all():
        raise argument_error("judged", "a finite score of every item", "a missing one")
    y = _vector("labels", labels)
    if np.isinf(y).any():
        raise argument_error("labels", "finite numbers, NaN where missing", "an infinite one")
    if len(y) != len(f):
        raise argument_error("labels", f"{len(f)} values, NaN where missing", f"{len(y)} values")
    asked = np.isfinite(y)
    n_labels, n = int(asked.sum()), len(f)
    if n_labels < MIN_LABELS:
        raise argument_error("labels", f"at least {MIN_LABELS} labels", str(n_labels))
    if probabilities is None:
        probabilities = np.full(n, n_labels / n)
    p = _vector("probabilities", probabilities)
    if len(p) != n or not ((p > 0) & (p <= 1)).all():
        raise argument_error("probabilities", f"{n} numbers above 0 and at most 1", probabilities)
    weighting = np.where(asked, 1 / p, 0.0)
    filled = np.where(asked, y, 0.0)
    spread = np.sqrt(np.maximum(1 - p, 1e-9)) / p * asked
    constant, _ = _means(np.ones((n, 1)), filled, weighting, spread)
    full, slope = _means(np.stack([np.ones(n), f - f.mean()], axis=1), filled, weighting, spread)
    alone, alone_se = _estimate(constant, n_labels - 1, y[asked], weighting)
    mean, se = _estimate(full, n_labels - 2, y[asked], weighting)
    half = float(stdtrit(n_labels - 2, 0.5 + level / 2)) * se
    return JudgedMean(
        mean=mean,
        lower=mean - half,
        upper=mean + half,
        se=se,
        labels_alone=alone,
        labels_alone_se=alone_se,
        weight=slope,
        n_labels=n_labels,
        n=n,
        level=float(level),
    )


def judged_means(
    judged: Any,
    labels: Any,
    *,
    features: Any = None,
    probabilities: Any = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Estimate mean labels of many subjects, who borrow from each other what the judge gets wrong.

    Each label is predicted by a regression on the judge's score of this answer, its mean score of
    the other subjects' answers to the item (is the item hard, or the judge lenient with it?), and
    features of the item, such as its difficulty, with all labels of all subjects together.
    `judged_mean` then has the predictions in place of the scores. The labels of one fifth of the
    items are predicted from those of the others (cross-fitting), so that the interval is as valid
    as that of `judged_mean`, whatever the predictions are.

    How much narrower it becomes depends on how much of the labels is predicted: its width is at
    least in proportion to the root of ``E Var(y | judge, features)``. Right/wrong labels of which
    nothing is known but a judge correlated .6 with them cannot have intervals less than .95 times
    as wide, whichever items are labelled; with difficulties from other, labelled subjects they can
    (experiments/judged_means).

    Args:
        judged: the judge's scores, subjects x items. A table's index and columns are the ids, by
            which other tables are matched.
        labels: the labels, subjects x items, NaN where nobody was asked. Who was asked must have
            been drawn at random, as for `judged_mean`.
        features: what is known of the items, items x features, known before anything was labelled.
        probabilities: probability of each answer to be labelled, subjects x items; by default
            the same for all answers of a subject.
        level: probability of the intervals.

    Returns:
        One row for each subject: the attributes of its `JudgedMean`. The estimates of two subjects
        depend on each other where they share items.

    Raises:
        InputError: as `judged_mean`, and for shapes that differ.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> hard = rng.normal(0, 2, 3000)
        >>> p = 1 / (1 + np.exp(hard - np.array([[0.0], [0.5], [1.0]])))
        >>> people = (rng.random((3, 3000)) < p).astype(float)
        >>> judge = np.where(rng.random((3, 3000)) < 0.8, people, 1 - people)  # wrong in a fifth
        >>> labels = np.where(rng.random((3, 3000)) < 0.05, people, np.nan)
        >>> found = judged_means(judge, labels, features=hard[:, None])
        >>> alone = [judged_mean(f, y).se for f, y in zip(judge, labels)]
        >>> (found["se"] / alone).round(2).tolist()
        [0.92, 0.86, 0.87]

    References:
        Zrnic & Candes (2024), Cross-prediction-powered inference, PNAS 121, e2322083121;
        Angelopoulos, Duchi & Zrnic (2023), PPI++, arXiv:2311.01453.
    """
    if isinstance(judged, pd.DataFrame):
        labels = _matched("labels", labels, judged, partial=True)
        probabilities = _matched("probabilities", probabilities, judged)
        features = _matched("features", features, judged.T)
    f, y = (_matrix(name, value) for name, value in (("judged", judged), ("labels", labels)))
    if f.shape != y.shape or not np.isfinite(f).all():
        raise argument_error("judged", "a score of every answer that labels has", f.shape)
    p: list[Any] = [None] * len(f)
    if probabilities is not None:
        p = list(_matrix("probabilities", probabilities))
        if (len(p), len(p[0])) != f.shape:
            raise argument_error("probabilities", f"{f.shape[0]} x {f.shape[1]} numbers", len(p))
    more = np.zeros((f.shape[1], 0)) if features is None else _matrix("features", features)
    if len(more) != f.shape[1] or not np.isfinite(more).all():
        raise argument_error("features", f"{f.shape[1]} rows of finite numbers", more.shape)
    predicted = _predictions(f, y, more)
    index = judged.index if isinstance(judged, pd.DataFrame) else pd.RangeIndex(len(f))
    rows = [
        judged_mean(predicted[s], y[s], probabilities=p[s], level=level).to_frame()
        for s in range(len(f))
    ]
    return pd.concat(rows).set_index(index.rename("subject"))


def _matched(name: str, values: Any, ids: pd.DataFrame, partial: bool = False) -> Any:
    """A Series or table in the order of the ids of another table, where both have ids.

    Args:
        name: the argument's name.
        values: the Series, by the table's rows, or the table; others are returned as they are.
        ids: a table with these ids. Of features only rows have them.
        partial: whether values may lack some of the items.
    """
    if not isinstance(values, (pd.Series, pd.DataFrame)):
        return values
    is_wide = name != "features" and isinstance(values, pd.DataFrame)
    if _are_ids(values.index, ids.index):
        kind = "subject" if is_wide else "item"
        values = by_id(name, values, ids.index, kind, partial=partial and not is_wide)
    if is_wide and _are_ids(values.columns, ids.columns):
        values = by_id(name, values.T, ids.columns, "item", partial=partial).T
    return values


def _are_ids(index: pd.Index, ids: pd.Index) -> bool:
    """Whether two indexes are ids: one that just counts is none, unless the other has the same."""
    counts = any(labels.equals(pd.RangeIndex(len(labels))) for labels in (index, ids))
    return not counts or (len(index) == len(ids) and bool(index.isin(ids).all()))


def _matrix(name: str, values: Any) -> FloatArray:
    """A matrix of numbers, NaN where missing."""
    must = "a matrix of numbers"
    matrix = float_array(name, must, values)
    if matrix.ndim != 2 or not matrix.size:
        raise argument_error(name, must, values)
    return matrix


def _predictions(f: FloatArray, y: FloatArray, features: FloatArray) -> FloatArray:
    """Labels of every answer, predicted by the labels of items of other parts."""
    n, n_items = f.shape
    others = (f.sum(axis=0) - f) / (n - 1) if n > 1 else np.zeros_like(f)
    x = np.stack([f, others, others**2, f * others], axis=2)
    of_items = np.broadcast_to(features, (n, *features.shape))
    level = f.mean(axis=1)[:, None, None]
    x = np.concatenate([x, of_items, of_items**2, of_items * f[..., None]], axis=2)
    x = np.concatenate([x, of_items * level, of_items**2 * level], axis=2)
    own = np.broadcast_to(np.eye(n)[:, None], (n, n_items, n))
    x = x - x.mean(axis=(0, 1))
    spread = x.std(axis=(0, 1))
    x = np.concatenate([x / np.where(spread > 0, spread, 1.0), own], axis=2)
    penalty = RIDGE * np.eye(x.shape[2])
    predicted, part = np.empty_like(f), np.arange(n_items) % FOLDS
    for k in range(FOLDS):
        used = np.isfinite(y) & (part != k)
        rows, target = x[used], y[used]
        center = target.mean() if len(target) else 0.0
        coefficients = np.linalg.solve(rows.T @ rows + penalty, rows.T @ (target - center))
        predicted[:, part == k] = center + x[:, part == k] @ coefficients
    return predicted


def labelling_probabilities(uncertainty: Any, n_labels: int) -> FloatArray:
    """Find the probabilities with which people should label items, to learn most of the mean.

    The variance of `judged_mean` is least with probabilities in proportion to the size of the error
    that is expected of the judge, ``sqrt(E (y - f)^2)``. Two thirds of the labels are spread
    evenly, so that a judge that is wrong about its own errors does little harm. Draw each item on
    its own: ``rng.random(len(p)) < p``.

    Args:
        uncertainty: expected size of the judge's error on each item, at least 0, in any unit; for a
            judge that gives the probability q of "good", ``sqrt(q (1 - q))``.
        n_labels: expected number of labels.

    Returns:
        The probability of each item; their sum is ``n_labels``.

    Raises:
        InputError: for uncertainties below 0 or missing, or more labels than items.

    Example:
        >>> labelling_probabilities([0.1, 0.1, 0.5, 0.5], 2).round(2).tolist()
        [0.39, 0.39, 0.61, 0.61]

    References:
        Zrnic & Candes (2024), Active statistical inference, ICML, sections 3 and 5; Kish (1965),
        Survey Sampling, section 8.5 (optimal allocation).
    """
    size = _vector("uncertainty", uncertainty)
    if not np.isfinite(size).all() or (size < 0).any():
        raise argument_error("uncertainty", "finite numbers of at least 0", uncertainty)
    check_count("n_labels", n_labels, 1, len(size))
    total = size.sum()
    share = size / total if total > 0 else np.full(len(size), 1 / len(size))
    share = (1 - UNIFORM_SHARE) * share + UNIFORM_SHARE / len(size)
    p = np.minimum(n_labels * share, 1.0)
    while n_labels - p.sum() > 1e-9:  # what certain items leave goes to the others
        below = p < 1
        p[below] = np.minimum(p[below] * (n_labels - (~below).sum()) / p[below].sum(), 1.0)
    return p


def _vector(name: str, values: Any) -> FloatArray:
    """Numbers, NaN where missing."""
    must = "a list of numbers"
    vector = float_array(name, must, values)
    if vector.ndim != 1 or is_number(values):
        raise argument_error(name, must, values)
    return vector


def _means(
    x: FloatArray, y: FloatArray, weighting: FloatArray, spread: FloatArray
) -> tuple[FloatArray, float]:
    """The summand of each item, and the coefficient of the last column."""
    coefficients = np.linalg.lstsq(x * spread[:, None], y * spread, rcond=None)[0]
    predicted = x @ coefficients
    return predicted + weighting * (y - predicted), float(coefficients[-1])


def _estimate(
    summands: FloatArray, df: int, labels: FloatArray, weighting: FloatArray
) -> tuple[float, float]:
    """Mean, and standard error with the degrees of freedom that the coefficients take.

    The variance is at least the one with one more label on either side, at the least distance of
    two labels; of equal ones that from 0, or 1.
    """
    values = np.unique(labels)
    unit = float(np.diff(values).min()) if len(values) > 1 else float(abs(values[0])) or 1.0
    m = float(weighting.sum() ** 2 / (weighting @ weighting))  # labels, if all had one weight
    variance = float(summands.var(ddof=1)) / len(summands) * len(labels) / df
    variance = max(variance, (m**2 * variance + 2 * unit**2) / (m + 2) ** 2)
    return float(summands.mean()), float(np.sqrt(variance))

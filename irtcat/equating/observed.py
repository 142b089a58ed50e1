"""Observed-score equating, of equivalent groups, a single group, or groups with an anchor.

Scores are whole numbers. Their frequencies may be smoothed by a log-linear model first.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import xlogy

from irtcat._common.checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    check_count,
    float_array,
    is_number,
)
from irtcat._common.per_item import by_id, has_ids
from irtcat._common.types import FloatArray, IntArray
from irtcat.responses import Responses

MAX_SCORE = 1_000_000
"""Largest score: tables have a row for each."""


def whole_scores(name: str, data: Any) -> tuple[IntArray, int]:
    """Scores and the highest possible one (of scores the highest that occurs).

    Args:
        name: the argument, for messages.
        data: whole scores of at least 0, or complete responses, whose codes from 0 are added up.
    """
    if isinstance(data, Responses):
        if data.is_fractional or data.trials is not None:
            raise argument_error(name, "right/wrong or in categories", data.kind)
        if data.n_missing:
            must, got = "without missing answers", [f"{data.n_missing} missing"]
            raise argument_error(name, must, got, "Leave out these subjects, or count them wrong.")
        return data.values.sum(axis=1, dtype=int), data.n_items * data.highest
    values = float_array(name, "whole scores, or responses", data)
    if values.ndim != 1 or len(values) < 2:
        raise argument_error(name, "at least 2 scores, one a subject", np.shape(values))
    wrong = ~((values >= 0) & (values <= MAX_SCORE) & (values % 1 == 0))
    if wrong.any():
        must = f"whole scores of at least 0, at most {MAX_SCORE:,}"
        raise argument_error(name, must, values[wrong][0])
    return values.astype(int), int(values.max())


def _ids(data: Any) -> Any:
    """Ids of the subjects; None for numbers without ids, as of a Series with the default index."""
    if isinstance(data, Responses):
        return data.subject_ids
    return data.index if isinstance(data, pd.Series) and has_ids(data) else None


def score_counts(
    name: str, data: Any, max_name: str, max_score: int | None, beside: Any = None
) -> FloatArray:
    """Frequencies of the scores 0, 1, ..., or of pairs of scores.

    Args:
        name: the argument, for messages.
        data: scores or responses.
        max_name: the argument of the highest score, for messages.
        max_score: the highest possible score; None for the default of `whole_scores`.
        beside: other scores of the same subjects, matched by id where both have ids, with their
            number of scores: (name, data, size).
    """
    scores, highest = whole_scores(name, data)
    if max_score is not None:
        check_count(max_name, max_score, int(scores.max()))
        highest = max_score
    if beside is None:
        return np.bincount(scores, minlength=highest + 1).astype(float)
    other_name, other_data, size = beside
    other, _ = whole_scores(other_name, other_data)
    if len(other) != len(scores):
        must = f"a score for each of the {len(scores)} subjects of {name}"
        raise argument_error(other_name, must, len(other))
    ids, other_ids = _ids(data), _ids(other_data)
    both = [part.index for part in (data, other_data) if isinstance(part, pd.Series)]
    if len(both) == 2 and (ids is None) != (other_ids is None) and set(both[0]) == set(both[1]):
        ids, other_ids = both  # one of them has the default index in another order
    if ids is not None and (twice := pd.Index(ids)[pd.Index(ids).duplicated()]).size:
        raise argument_error(name, "scores of different subjects", f"{brief(twice[0])} twice")
    if ids is not None and other_ids is not None:
        other = by_id(other_name, pd.Series(other, other_ids), ids, "subject", "score").to_numpy()
    cells = np.ravel_multi_index((scores, other), (highest + 1, size))
    counts = np.bincount(cells, minlength=(highest + 1) * size).reshape(highest + 1, size)
    return counts.astype(float)


@dataclass(frozen=True, eq=False)
class Equated:
    """The result of `equate` and `equate_banks`.

    Attributes:
        table: indexed by the score on form X: equated (its score on form Y, not rounded), se (NaN
            if not computed).
        method: the method.
        design: "equivalent-groups", "single-group" or "anchor"; "banks" of `equate_banks`.
    """

    table: pd.DataFrame
    method: str
    design: str

    def to_frame(self) -> pd.DataFrame:
        """The table of scores."""
        return self.table.copy()

    def convert(self, scores: Any) -> FloatArray:
        """Scores on form X as scores on form Y; NaN stays.

        Args:
            scores: whole scores of the table.

        Raises:
            InputError: a score is not in the table.

        Example:
            >>> from irtcat.equating import equate
            >>> equate([1, 2, 3], [2, 3, 4], "mean").convert([0, 3]).tolist()
            [1.0, 4.0]
        """
        values = float_array("scores", "whole scores", scores)
        known = ~np.isnan(values)
        inside = np.isin(values[known], self.table.index)
        if not inside.all():
            must = f"whole scores from 0 to {self.table.index[-1]}"
            raise argument_error("scores", must, values[known][~inside][0])
        out = np.full(values.shape, np.nan)
        out[known] = self.table["equated"].to_numpy()[values[known].astype(int)]
        return out

    def __repr__(self) -> str:
        return f"Equated({self.method}, {self.design}: {len(self.table)} scores)"


def equated_table(equated: FloatArray, errors: FloatArray | None) -> pd.DataFrame:
    """The table of scores."""
    se = np.nan if errors is None else errors
    return pd.DataFrame({"equated": equated, "se": se}).rename_axis("score")


MAX_STEPS, TOLERANCE = 200, 1e-10
"""Steps of Newton's method, and the largest difference of moments, in SDs, at which it ends."""
MAX_HALVINGS = 30


@dataclass(frozen=True, eq=False)
class Loglinear:
    """The result of `loglinear`.

    Attributes:
        table: indexed by score: observed and smoothed frequency.
        moments: number of moments that are kept.
        deviance: likelihood-ratio chi-square against the observed frequencies.
        df: its degrees of freedom.
        aic: deviance plus twice the number of parameters; the smallest is best.
    """

    table: pd.DataFrame
    moments: int
    deviance: float
    df: int
    aic: float

    def to_frame(self) -> pd.DataFrame:
        """The table of frequencies."""
        return self.table.copy()


def loglinear(scores: Any, moments: int = 4, *, max_score: int | None = None) -> Loglinear:
    """Smooth the frequencies of scores by a polynomial of their logarithms.

    ``log m_x = b_0 + b_1 x + ... + b_C x^C``. The smoothed distribution has the first C moments of
    the observed one. Compare the ``aic`` of several C.

    Args:
        scores: whole scores, or responses, whose sums are used.
        moments: C.
        max_score: the highest possible score; by default the highest that occurs, or that of the
            responses.

    Returns:
        Observed and smoothed frequencies.

    Raises:
        InputError: for other than whole scores, or as many moments as scores.

    Example:
        >>> scores = np.random.default_rng(0).binomial(20, 0.6, 500)
        >>> fits = [loglinear(scores, moments, max_score=20) for moments in (1, 2, 3)]
        >>> fits[0].aic > fits[1].aic
        True

    References:
        Holland & Thayer (2000), Journal of Educational and Behavioral Statistics 25, 133-183;
        Kolen & Brennan (2014), Test Equating, Scaling, and Linking, 3rd ed., chapter 3.
    """
    check_count("moments", moments)
    counts = score_counts("scores", scores, "max_score", max_score)
    smoothed = smooth(counts, (moments,))
    used = counts > 0
    deviance = float(2 * xlogy(counts[used], counts[used] / smoothed[used]).sum())
    return Loglinear(
        table=pd.DataFrame({"observed": counts, "smoothed": smoothed}).rename_axis("score"),
        moments=moments,
        deviance=deviance,
        df=len(counts) - moments - 1,
        aic=deviance + 2 * (moments + 1),
    )


def smooth(counts: FloatArray, moments: tuple[int, ...]) -> FloatArray:
    """Smoothed frequencies of one score (C,), or of two (C_x, C_v, number of cross moments).

    Raises:
        InputError: there are too many moments for the scores, or no finite solution.
    """
    basis = _basis(counts.shape, moments)
    n = counts.ravel().astype(float)
    beta = basis.T @ np.log(n + 0.5) / len(n)  # least squares, as the columns are orthonormal

    def fitted(b: FloatArray) -> tuple[FloatArray, float]:
        log_mean = np.clip(basis @ b, -700, 700)
        mean = np.exp(log_mean)
        return mean, float(n @ log_mean - mean.sum())

    mean, value = fitted(beta)
    for _ in range(MAX_STEPS):
        gradient = basis.T @ (n - mean)
        if np.abs(gradient).max() < TOLERANCE * n.sum():
            return mean.reshape(counts.shape)
        hessian = (basis * mean[:, None]).T @ basis
        step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        for halving in range(MAX_HALVINGS):
            new_mean, new_value = fitted(beta + step / 2**halving)
            if new_value >= value - 1e-12 * abs(value):
                break
        beta, mean, value = beta + step / 2**halving, new_mean, new_value
    raise InputError(
        f"The log-linear model with {moments} moments does not converge: the scores vary too "
        "little. Use fewer moments."
    )


@lru_cache(maxsize=8)  # bootstrap samples have one shape
def _basis(shape: tuple[int, ...], moments: tuple[int, ...]) -> FloatArray:
    """Orthogonal polynomials of the scores of all cells, of mean square 1."""
    axes = [np.linspace(-1, 1, k) if k > 1 else np.zeros(1) for k in shape]
    cells = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
    columns = [np.ones(len(cells[0]))]
    for cell, degree, size in zip(cells, moments, shape, strict=False):
        if degree >= size:
            raise argument_error("smoothing", f"fewer moments than scores ({size})", degree)
        columns += [cell**k for k in range(1, degree + 1)]
    if len(shape) == 2:
        columns += [cells[0] ** k * cells[1] ** k for k in range(1, moments[2] + 1)]
    orthonormal, _ = np.linalg.qr(np.stack(columns, axis=1))
    return orthonormal * np.sqrt(len(orthonormal))


DECIMALS = 10
"""Cumulative shares that agree to this many decimals are equal."""
MIN_SHARE = 0.95
"""Share of the resamples that must be equated for a standard error."""


@dataclass(frozen=True)
class EquatingMethod:
    """A row of `METHODS`.

    Attributes:
        name: of the method.
        function: scores of form X from 0 on as scores of form Y, from the shares of the scores of
            both groups; with an anchor from those of pairs (score, anchor) and the weight of X's
            group.
        help: one line.
        has_anchor: whether it is for groups with an anchor.
        reference: author, year, where.
    """

    name: str
    function: Callable[..., FloatArray]
    help: str
    has_anchor: bool = False
    reference: str = ""


def _moments(p: FloatArray) -> tuple[float, float]:
    """Mean and SD of the scores 0, 1, ..."""
    scores = np.arange(float(len(p)))
    mean = float(p @ scores)
    return mean, float(np.sqrt(p @ (scores - mean) ** 2))


def _line(x: Any, from_: tuple[float, float], to: tuple[float, float]) -> Any:
    """Linear conversion between scores of these means and SDs."""
    if from_[1] <= 0:
        raise InputError('The scores of a group do not vary: use the method "mean".')
    return to[0] + to[1] / from_[1] * (x - from_[0])


def mean_equated(f: FloatArray, g: FloatArray) -> FloatArray:
    """Differences from the means are equal."""
    return np.arange(len(f)) - _moments(f)[0] + _moments(g)[0]


def linear_equated(f: FloatArray, g: FloatArray) -> FloatArray:
    """Differences from the means in SDs are equal."""
    return np.asarray(_line(np.arange(len(f)), _moments(f), _moments(g)))


def percentile_ranks(x: FloatArray, p: FloatArray) -> FloatArray:
    """Share of the scores below x, each score spread evenly over half a point on either side."""
    edges = np.arange(len(p) + 1) - 0.5
    return np.interp(x, edges, np.r_[0, np.cumsum(p)])


def percentiles(ranks: FloatArray, p: FloatArray) -> FloatArray:
    """The scores of these percentile ranks; in a gap of the scores its middle."""
    cumulative = np.cumsum(p).round(DECIMALS)
    below = np.r_[0, cumulative[:-1]]
    ranks = ranks.round(DECIMALS)
    ends = []
    for cell in (
        np.searchsorted(cumulative, ranks, side="right"),  # the first score that lies above
        np.searchsorted(cumulative, ranks, side="left"),  # the last one that lies below
    ):
        cell = np.minimum(cell, len(p) - 1)
        share = np.maximum(cumulative[cell] - below[cell], 10.0**-DECIMALS)
        ends.append(cell - 0.5 + np.clip((ranks - below[cell]) / share, 0, 1))
    middle = (ends[0] + ends[1]) / 2
    middle = np.where(ranks <= 0, -0.5, middle)
    return np.where(ranks >= 1, len(p) - 0.5, middle)


def equipercentile_equated(f: FloatArray, g: FloatArray) -> FloatArray:
    """Percentile ranks are equal."""
    return percentiles(percentile_ranks(np.arange(float(len(f))), f), g)


def tucker_equated(first: FloatArray, second: FloatArray, weight: float) -> FloatArray:
    """Linear, for a synthetic population whose moments come from regressions on the anchor."""
    anchor = [_moments(p.sum(axis=0)) for p in (first, second)]
    if min(sd for _, sd in anchor) <= 0:
        raise InputError(
            "The anchor scores of a group do not vary, so that they say nothing of it."
        )
    shift = anchor[0][0] - anchor[1][0]
    spread = anchor[0][1] ** 2 - anchor[1][1] ** 2
    moments = []
    for p, own, other in ((first, anchor[0], 1 - weight), (second, anchor[1], -weight)):
        mean, sd = _moments(p.sum(axis=1))
        scores, anchors = (np.arange(k) for k in p.shape)
        slope = float((scores - mean) @ p @ (anchors - own[0])) / own[1] ** 2
        variance = sd**2 - other * slope**2 * spread
        variance += weight * (1 - weight) * slope**2 * shift**2
        moments.append((mean - other * slope * shift, float(np.sqrt(max(variance, 0)))))
    return np.asarray(_line(np.arange(len(first)), moments[0], moments[1]))


def chained_linear_equated(first: FloatArray, second: FloatArray, weight: float) -> FloatArray:
    """Linear, from X to the anchor in one group and from it to Y in the other."""
    x = np.arange(len(first))
    anchor = _line(x, _moments(first.sum(axis=1)), _moments(first.sum(axis=0)))
    of_anchor, of_y = _moments(second.sum(axis=0)), _moments(second.sum(axis=1))
    return np.asarray(_line(anchor, of_anchor, of_y))


def chained_equipercentile_equated(
    first: FloatArray, second: FloatArray, weight: float
) -> FloatArray:
    """Equipercentile, from X to the anchor in one group and from it to Y in the other."""
    anchor = equipercentile_equated(first.sum(axis=1), first.sum(axis=0))
    return percentiles(percentile_ranks(anchor, second.sum(axis=0)), second.sum(axis=1))


def _synthetic(first: FloatArray, second: FloatArray, weight: float) -> list[FloatArray]:
    """Distributions of X and Y in the synthetic population, given equal ones at every anchor score.

    ``f_s(x) = w f_1(x) + (1 - w) sum_v f_1(x | v) h_2(v)``.
    """
    anchor = [p.sum(axis=0) for p in (first, second)]
    only = np.flatnonzero((anchor[0] > 0) != (anchor[1] > 0))
    if len(only):
        got = f"{only[0]} in one group only"
        advice = 'Smooth the frequencies (smoothing=), or chain: method="chained-equipercentile".'
        raise argument_error("x_anchor", "of the same anchor scores in both groups", [got], advice)
    out = []
    for p, own, other, share in ((first, *anchor, weight), (second, *anchor[::-1], 1 - weight)):
        given = p / np.where(own > 0, own, 1)
        out.append(share * p.sum(axis=1) + (1 - share) * given @ other)
    return out


def frequency_estimated(first: FloatArray, second: FloatArray, weight: float) -> FloatArray:
    """Equipercentile, in a synthetic population with the observed scores given the anchor."""
    return equipercentile_equated(*_synthetic(first, second, weight))


def braun_holland_equated(first: FloatArray, second: FloatArray, weight: float) -> FloatArray:
    """Linear in the same synthetic population."""
    return linear_equated(*_synthetic(first, second, weight))


KOLEN_BRENNAN = "Kolen & Brennan (2014), Test Equating, Scaling, and Linking, 3rd ed."

GIVEN = "by distributions given the anchor."
METHODS: dict[str, EquatingMethod] = {
    name: EquatingMethod(name, function, text, has_anchor, f"{KOLEN_BRENNAN}, chapter {chapter}")
    for chapter, name, function, has_anchor, text in (
        (2, "mean", mean_equated, False, "Equal differences from the means."),
        (2, "linear", linear_equated, False, "Equal standard scores."),
        (2, "equipercentile", equipercentile_equated, False, "Equal percentile ranks."),
        (4, "tucker", tucker_equated, True, "Linear, by regressions on the anchor."),
        (5, "braun-holland", braun_holland_equated, True, f"Linear, {GIVEN}"),
        (4, "chained-linear", chained_linear_equated, True, "Linear, through the anchor."),
        (5, "frequency-estimation", frequency_estimated, True, f"Equipercentile, {GIVEN}"),
        (
            5,
            "chained-equipercentile",
            chained_equipercentile_equated,
            True,
            "Equipercentile, through the anchor.",
        ),
    )
}
"""Methods of `equate` by name."""


def equate(
    x: Any,
    y: Any,
    method: str = "equipercentile",
    *,
    x_anchor: Any = None,
    y_anchor: Any = None,
    paired: bool = False,
    smoothing: Any = None,
    weight: float | None = None,
    max_x: int | None = None,
    max_y: int | None = None,
    n_resamples: int = 500,
    seed: int = 0,
) -> Equated:
    """Express scores on form X as scores on form Y, from the scores that both forms got.

    | design | arguments | methods |
    |---|---|---|
    | equivalent groups (random) | x, y | mean, linear, equipercentile |
    | single group | the same, of the same subjects: ``paired=True`` | the same |
    | nonequivalent groups, anchor | x, y, x_anchor, y_anchor | the others |

    The anchor is part of the forms (internal) or beside them (external); the methods are the same.
    "tucker", "braun-holland" and "frequency-estimation" suppose that the scores given the
    anchor are alike in both groups; the chained methods that the link through the anchor is the
    same in both. They differ where the groups do.

    Args:
        x: whole scores on form X, one a subject (a Series by subject id, or numbers), or their
            responses, whose codes from 0 are added up.
        y: scores on form Y, of other subjects unless ``paired``.
        method: see `METHODS`.
        x_anchor: scores of the subjects of x on the anchor items, matched by id where both have
            ids, else in the same order.
        y_anchor: those of the subjects of y.
        paired: whether x and y are of the same subjects, matched likewise.
        smoothing: number of moments kept by log-linear presmoothing; with an anchor of both scores,
            or (of the score, of the anchor, of their products). None for no smoothing.
        weight: share of x's group in the synthetic population; by default its share of the
            subjects.
        max_x: the highest possible score of form X; by default the highest that occurs, or that of
            the responses.
        max_y: that of form Y.
        n_resamples: bootstrap samples of subjects for the standard errors; 0 for none.
        seed: of the bootstrap.

    Returns:
        A row for each score of form X from 0 on. Where no subject has a lower score, an
        equipercentile is -.5; where none has a higher one, max_y + .5.

    Raises:
        InputError: for other than whole scores of at least 0, a method of another design, or anchor
            scores in one group only ("frequency-estimation", "braun-holland").

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.binomial(20, 0.5, 800), rng.binomial(20, 0.6, 800)
        >>> equated = equate(x, y, smoothing=3, max_x=20, max_y=20)
        >>> equated.table.loc[[8, 10, 12]].round(1)
               equated   se
        score
        8          9.9  0.1
        10        11.9  0.1
        12        13.9  0.1

    References:
        Kolen & Brennan (2014), Test Equating, Scaling, and Linking, 3rd ed., chapters 2 to 5 and 7;
        Livingston (2014), Equating Test Scores (Without IRT), 2nd ed., ETS.
    """
    check_choice("method", method, METHODS)
    check_count("n_resamples", n_resamples, 0)
    if n_resamples == 1:
        raise argument_error("n_resamples", "0, or at least 2", n_resamples)
    row = METHODS[method]
    has_anchor = x_anchor is not None or y_anchor is not None
    if has_anchor != row.has_anchor or (has_anchor and (x_anchor is None or y_anchor is None)):
        methods = ", ".join(name for name, r in METHODS.items() if r.has_anchor)
        must = f"passed with y_anchor for the methods {methods}, and for these only"
        raise argument_error("x_anchor", must, [f"method={method!r}"])
    if paired and has_anchor:
        raise argument_error("paired", "False for groups with an anchor", paired)
    if weight is not None and (not is_number(weight) or not 0 <= weight <= 1):
        raise argument_error("weight", "a number from 0 to 1", weight)
    moments = _smoothing(smoothing, has_anchor)
    tables = _tables(x, y, x_anchor, y_anchor, paired, max_x, max_y)

    def equated(counts: list[FloatArray]) -> FloatArray:
        if paired:
            counts = [counts[0].sum(axis=1), counts[0].sum(axis=0)]
        sizes = [float(c.sum()) for c in counts]
        if moments is not None:
            counts = [smooth(c, moments) for c in counts]
        shares = [c / c.sum() for c in counts]
        if not has_anchor:
            return row.function(*shares)
        w = sizes[0] / sum(sizes) if weight is None else float(weight)
        return row.function(*shares, w)

    values = equated(tables)
    errors = _bootstrap(equated, tables, n_resamples, seed) if n_resamples else None
    design = "anchor" if has_anchor else "single-group" if paired else "equivalent-groups"
    return Equated(equated_table(values, errors), method, design)


def _smoothing(smoothing: Any, has_anchor: bool) -> tuple[int, ...] | None:
    if smoothing is None:
        return None
    parts = tuple(smoothing) if isinstance(smoothing, (tuple, list)) else (smoothing,)
    if has_anchor and len(parts) == 1:
        parts = (*parts, *parts, 1)
    if len(parts) != (3 if has_anchor else 1):
        must = "a number of moments, or with an anchor of score, anchor and products: (4, 4, 1)"
        raise argument_error("smoothing", must, smoothing)
    for part in parts:
        check_count("smoothing", part)
    return tuple(int(part) for part in parts)


def _tables(
    x: Any, y: Any, x_anchor: Any, y_anchor: Any, paired: bool, max_x: Any, max_y: Any
) -> list[FloatArray]:
    """Frequencies of the scores: of each group, with an anchor of pairs; paired one of pairs."""
    if paired:
        size = len(score_counts("y", y, "max_y", max_y))
        return [score_counts("x", x, "max_x", max_x, ("y", y, size))]
    if x_anchor is None:
        return [score_counts("x", x, "max_x", max_x), score_counts("y", y, "max_y", max_y)]
    anchors = {"x_anchor": x_anchor, "y_anchor": y_anchor}
    size = 1 + max(whole_scores(name, data)[1] for name, data in anchors.items())
    return [
        score_counts("x", x, "max_x", max_x, ("x_anchor", x_anchor, size)),
        score_counts("y", y, "max_y", max_y, ("y_anchor", y_anchor, size)),
    ]


def _bootstrap(
    equated: Callable[[list[FloatArray]], FloatArray], tables: list[FloatArray], n: int, seed: int
) -> FloatArray:
    """SDs over samples of the subjects; a sample that cannot be equated is left out."""
    check_count("seed", seed, 0)
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(n):
        sample = [
            rng.multinomial(int(t.sum()), t.ravel() / t.sum()).reshape(t.shape).astype(float)
            for t in tables
        ]
        with suppress(InputError):
            draws.append(equated(sample))
    if len(draws) < max(2, MIN_SHARE * n):
        raise InputError(
            f"Only {len(draws)} of {n} bootstrap samples can be equated: the scores are too sparse "
            "for standard errors. Use smoothing=, or pass n_resamples=0 for none."
        )
    return np.std(draws, axis=0, ddof=1)

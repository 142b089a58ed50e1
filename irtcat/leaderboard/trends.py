"""Trends of estimates over dates: a line or a line with a change, by generalised least squares."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from irtcat._common.checks import argument_error, brief, shorten
from irtcat._common.dates import as_years
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.leaderboard.compared_models import groups_of
from irtcat.leaderboard.comparison import t_quantile

MIN_SUBJECTS = 4
"""A line and a residual need more than three estimates."""

MIN_AROUND = 3
"""Estimates at each side of a change: with fewer, single ones look like one."""

DRAWS = 1999
"""Simulated data sets of the test for a change: its p-values have an error of at most .011."""

SD_BOUNDS = (1e-3, 10.0)
"""Bounds of the SDs around the line, as multiples of the SD of the estimates."""


@dataclass(frozen=True, eq=False)
class Trend:
    """How estimates of subjects change with their dates.

    Attributes:
        table: one row for each period: ``all``, one line; ``before`` and ``after``, the two parts
            of the line with a change. Columns: per_year, the change in a year, its standard error
            se, and its interval, lower and upper.
        unit: what is counted per year.
        changed: date of the change as a year, such as 2024.25; NaN where none was looked for.
        p_value: of the test for a change; NaN where none was looked for.
        residual_sd: SD of the subjects around the line, without the errors of their estimates.
        family_sd: SD of the families around it; 0 without families.
        n: number of subjects.
        df: degrees of freedom of the intervals.
        level: probability of the intervals.
        flags: what is uncertain.
    """

    table: pd.DataFrame
    unit: str
    changed: float
    p_value: float
    residual_sd: float
    family_sd: float
    n: int
    df: int
    level: float
    flags: tuple[str, ...]

    def __repr__(self) -> str:
        row = self.table.loc["all"]
        text = f"{row['per_year']:.3g} {self.unit} a year [{row['lower']:.3g}, {row['upper']:.3g}]"
        change = "" if np.isnan(self.p_value) else f", change: p = {self.p_value:.3f}"
        return f"Trend({text}, {self.n} subjects{change})"

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()


class TrendScale(NamedTuple):
    """A common factor of all estimates, which is an estimate, too.

    A regression on estimates whose errors are proportional to themselves, as those of a common
    factor are, is biased towards no trend (Peelle's puzzle): the factor is taken out before and
    back in after it.

    Attributes:
        value: the factor: estimates are this times the quantity whose trend is wanted.
        covariance: of its logarithm with the estimates.
        variance: of its logarithm.
    """

    value: float
    covariance: FloatArray
    variance: float


class Dated(NamedTuple):
    """Estimates of subjects, and what is known of them.

    Attributes:
        ids: ids of the subjects.
        tables: metadata of the subjects.
        kind: what they are called.
        estimates: one for each subject.
        covariance: of their errors.
        usable: whose estimates count.
        scale: their common factor.
    """

    ids: np.ndarray
    tables: Sequence[pd.DataFrame]
    kind: str
    estimates: FloatArray
    covariance: FloatArray
    usable: BoolArray
    scale: TrendScale

    def trend(self, dates: Any, families: Any, without: str, **options: Any) -> Trend:
        """The trend over a column or mapping of dates, by the options of `fit_trend`.

        Args:
            dates: dates of the subjects.
            families: their families, or None; subjects without one are alone.
            without: what the subjects that are not usable lack, for the flag.
            options: as for `fit_trend`.
        """
        values = groups_of(dates, "dates", self.tables, self.ids, self.kind)
        years, wrong = as_years(values)
        if wrong is not None:
            got = f"{brief(values.iloc[wrong])} for {brief(values.index[wrong])}"
            raise argument_error("dates", "dates such as 2024-05-31, or years", got)
        if not np.isfinite(years).any():
            raise argument_error("dates", "known for some of the subjects", "none")
        at = np.flatnonzero(self.usable & np.isfinite(years))
        labels = None
        if families is not None:
            names = groups_of(families, "families", self.tables, self.ids, self.kind)
            own = names.where(names.notna(), names.index.to_series(index=names.index)).astype(str)
            labels = pd.factorize(own.to_numpy()[at])[0]
        covariance = self.covariance[np.ix_(at, at)]
        scale = self.scale._replace(covariance=self.scale.covariance[at])
        trend = fit_trend(self.estimates[at], covariance, years[at], labels, scale=scale, **options)
        if len(at) == len(self.ids):
            return trend
        left = shorten(np.delete(self.ids, at))
        flag = f"left out, without a date or {without}: {left}"
        return replace(trend, flags=(flag, *trend.flags))


def fit_trend(
    estimates: FloatArray,
    covariance: FloatArray,
    years: FloatArray,
    families: IntArray | None = None,
    *,
    scale: TrendScale | None = None,
    unit: str = "",
    level: float = 0.95,
    change: bool = True,
    seed: int = 0,
) -> Trend:
    """Regress estimates on dates, with their errors, a residual and families.

    ``y ~ N(c0 + c1 t, S + omega^2 I + phi^2 Z Z')`` with the covariance S of the estimates, a
    residual of each subject and one of each family (Z: who is in which). Both variances maximise
    the restricted likelihood, and the coefficients are those of generalised least squares; their
    intervals are those of the t distribution, with the number of families (or subjects) minus 2 as
    its degrees of freedom.

    A change is a kink of the line: ``c2 max(t - k, 0)`` is added, with the date k that fits best of
    those with at least 3 subjects at each side. The test compares the greatest of the F ratios over
    k with those of data simulated from the line, as k is chosen from the data.

    Args:
        estimates: one for each subject.
        covariance: of their errors.
        years: dates, as years.
        families: number of the family of each subject; None without.
        scale: a factor of all estimates that is to be divided by.
        unit: what is counted per year.
        level: probability of the intervals.
        change: whether to look for a change.
        seed: seed of the simulated data.

    Raises:
        InputError: for fewer than 4 subjects, 3 families, or different dates.

    References:
        Harville (1977), JASA 72, 320-338 (restricted likelihood); Andrews (1993), Econometrica 61,
        821-856 (the greatest ratio over dates); D'Agostini (1994), Nuclear Instruments and Methods
        A 346, 306-311 (errors of a common factor); Davison & Hinkley (1997), Bootstrap Methods and
        Their Application, section 4.2 (simulated p-values).
    """
    n = len(estimates)
    units = n if families is None else int(families.max()) + 1
    if n < MIN_SUBJECTS or len(np.unique(years)) < 3:
        must = f"those of at least {MIN_SUBJECTS} subjects with an estimate, and 3 different dates"
        raise argument_error("dates", must, f"{n} subjects, {len(np.unique(years))} dates")
    if units < 3:
        raise argument_error("families", "at least 3 families", str(units))
    t = years - years.mean()
    line = np.stack([np.ones(n), t], axis=1)
    together = None if families is None else (families[:, None] == families).astype(float)
    problem = _Problem(estimates, covariance, together)
    scale = scale or TrendScale(1.0, np.zeros(n), 0.0)
    sds, root = problem.fit(line)
    df = units - 2
    rows = {"all": _slope(_TrendLine(line, estimates, root), [0, 1], scale, df, level)}
    changed = p_value = np.nan
    flags: list[str] = []
    if change:
        kinks = [k for k in np.unique(t) if min((t < k).sum(), (t > k).sum()) >= MIN_AROUND]
        if kinks:
            at, p_value = _changed(line, t, np.array(kinks), estimates, root, seed)
            changed = float(at + years.mean())
            bent = np.column_stack([line, np.maximum(t - at, 0.0)])
            fitted = _TrendLine(bent, estimates, problem.fit(bent)[1])
            for name, weights in (("before", [0, 1, 0]), ("after", [0, 1, 1])):
                rows[name] = _slope(fitted, weights, scale, max(df - 1, 1), level)
            flags.append("intervals before and after a change take its date as known")
        else:
            flags.append("no change looked for: fewer than 3 subjects on each side of any date")
    if sds[0] <= 2 * SD_BOUNDS[0] * problem.scale:
        flags.append("the errors of the estimates explain all distances from the line")
    table = pd.DataFrame.from_dict(rows, "index", columns=["per_year", "se", "lower", "upper"])
    return Trend(
        table=table.rename_axis("period"),
        unit=unit,
        changed=changed,
        p_value=float(p_value),
        residual_sd=float(sds[0] / scale.value),
        family_sd=float(sds[1] / scale.value) if families is not None else 0.0,
        n=n,
        df=df,
        level=level,
        flags=tuple(flags),
    )


class _Problem:
    """The restricted likelihood of the two SDs."""

    def __init__(self, y: FloatArray, covariance: FloatArray, together: FloatArray | None) -> None:
        self.y, self.covariance, self.together = y, covariance, together
        self.scale = float(np.std(y)) or 1.0

    def root(self, sds: FloatArray) -> FloatArray:
        """Cholesky factor of the covariance of the estimates around the line."""
        total = self.covariance + sds[0] ** 2 * np.eye(len(self.y))
        if self.together is not None:
            total = total + sds[1] ** 2 * self.together
        return cholesky(total, lower=True)

    def fit(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The SDs of residuals and families, and the factor of the covariance with them."""

        def criterion(log_sds: FloatArray) -> float:
            root = self.root(np.exp(log_sds))
            line = _TrendLine(x, self.y, root)
            left = solve_triangular(root, self.y - x @ line.coefficients, lower=True)
            log_det = 2 * np.log(np.diagonal(root)).sum() - np.linalg.slogdet(line.covariance)[1]
            return float(log_det + left @ left) / 2

        low, high = (float(np.log(end * self.scale)) for end in SD_BOUNDS)
        size = 1 + (self.together is not None)
        starts = [np.full(size, np.log(share * self.scale)) for share in (0.05, 0.5)]
        found = [
            minimize(criterion, start, method="L-BFGS-B", bounds=[(low, high)] * size)
            for start in starts
        ]
        sds = np.exp(min(found, key=lambda result: result.fun).x)
        return sds, self.root(sds)


class _TrendLine:
    """Coefficients by generalised least squares, and their covariance."""

    def __init__(self, x: FloatArray, y: FloatArray, root: FloatArray) -> None:
        white = solve_triangular(root, x, lower=True)
        self.covariance = np.linalg.inv(white.T @ white)
        weights = solve_triangular(root, white, lower=True, trans="T")
        self.weights = self.covariance @ weights.T
        self.coefficients = self.weights @ y


def _slope(
    line: _TrendLine, coefficients: list[int], scale: TrendScale, df: int, level: float
) -> tuple[float, float, float, float]:
    """A sum of coefficients over the scale, its standard error and its interval."""
    direction = np.array(coefficients, float)
    value = float(direction @ line.coefficients) / scale.value
    variance = float(direction @ line.covariance @ direction) / scale.value**2
    common = float(direction @ line.weights @ scale.covariance) / scale.value
    se = float(np.sqrt(max(variance - 2 * value * common + value**2 * scale.variance, 0.0)))
    half = t_quantile(df, 0.5 + level / 2) * se
    return value, se, value - half, value + half


def _changed(
    line: FloatArray, t: FloatArray, kinks: FloatArray, y: FloatArray, root: FloatArray, seed: int
) -> tuple[float, float]:
    """The date of the best kink, and the p-value of the test for one.

    The F ratio does not depend on the line nor on the scale of the covariance, so that the
    simulated data are independent Normals after whitening.
    """
    noise = np.random.default_rng(seed).standard_normal((len(y), DRAWS))
    data = np.column_stack([solve_triangular(root, y, lower=True), noise])
    basis = np.linalg.qr(solve_triangular(root, line, lower=True))[0]
    left = data - basis @ (basis.T @ data)
    total = (left**2).sum(axis=0)
    ratios = []
    for k in kinks:
        extra = solve_triangular(root, np.maximum(t - k, 0.0), lower=True)
        extra = extra - basis @ (basis.T @ extra)
        gain = (extra @ left) ** 2 / (extra @ extra)
        ratios.append(gain / (total - gain))
    ratio = np.array(ratios)
    best = ratio.max(axis=0)
    p_value = float((1 + (best[1:] >= best[0]).sum()) / (1 + DRAWS))
    return float(kinks[int(ratio[:, 0].argmax())]), p_value

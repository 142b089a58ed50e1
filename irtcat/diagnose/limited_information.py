"""Overall model fit from first and second order moments: M2, C2, fit indices, power by RMSEA."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import chndtr, chndtrix

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    check_interval,
    is_number,
)
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike
from irtcat.diagnose.answer_moments import (
    Conditional,
    GroupAnswers,
    MarginMoments,
    fitted_directions,
    group_moments,
    independent,
    moment_covariance,
    moments_beside,
    population_places,
    projected,
    whiten,
    whitened,
)
from irtcat.diagnose.chi_square import Coded, chi_square_p, coded, complete_values, rmsea
from irtcat.diagnose.estimated_parameters import free_of
from irtcat.fitting.problem.of_subjects import check_weights, rescaled
from irtcat.io.convert import ResponsesLike

KINDS = ("auto", "M2", "C2")
MISSING = ("complete", "pairwise")
MAX_MOMENTS = 12_000
"""Largest number of moments: their covariance then takes 1.2 GB, and its factor as much."""

SINGULAR = (
    "The `responses` argument must be of items that are not constant or copies of each "
    "other under the model. Got moments whose covariance is singular."
)


@dataclass(frozen=True)
class ModelFit:
    """Deviation of the first and second order moments from the model.

    Attributes:
        kind: "M2", "M2*" or "C2".
        statistic: chi-square distributed with ``df`` degrees of freedom if the model holds.
        df: number of moments minus estimated parameters.
        p: p-value of the statistic.
        rmsea: ``sqrt(max(statistic / df - 1, 0) / (n - 1))``; up to .05 is close fit.
        rmsea_lower: lower end of its interval.
        rmsea_upper: upper end.
        level: probability of that interval.
        srmsr: root mean square of the differences of observed and expected correlations of the
            codes; NaN for nominal items, whose codes have no order.
        tli: Tucker-Lewis index against independent items; may exceed 1.
        cfi: comparative fit index against independent items, in [0, 1].
        null_statistic: the statistic of independent items.
        null_df: its degrees of freedom.
        n_moments: number of moments.
        n_parameters: estimated parameters, shared ones once.
        n_subjects: subjects with complete rows, which the test uses.
        n_left_out: subjects with missing answers.
        flags: remarks.
        srmsr_by_group: SRMSR of each group, where groups were given.
        design_effect: what the statistic of weighted subjects was divided by; 1 without weights.
    """

    kind: str
    statistic: float
    df: int
    p: float
    rmsea: float
    rmsea_lower: float
    rmsea_upper: float
    level: float
    srmsr: float
    tli: float
    cfi: float
    null_statistic: float
    null_df: int
    n_moments: int
    n_parameters: int
    n_subjects: int
    n_left_out: int
    flags: str
    srmsr_by_group: Mapping[str, float] = field(default_factory=dict)
    design_effect: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        return dict(self.__dict__)

    def to_frame(self) -> pd.DataFrame:
        """The figures as a table of one row."""
        return pd.DataFrame([self.to_dict()]).rename(columns={"flags": "flag"})

    def __str__(self) -> str:
        return (
            f"{self.kind}({self.df}) = {self.statistic:.2f}, p = {self.p:.4f}; RMSEA "
            f"{self.rmsea:.3f} [{self.rmsea_lower:.3f}, {self.rmsea_upper:.3f}], SRMSR "
            f"{self.srmsr:.3f}, TLI {self.tli:.3f}, CFI {self.cfi:.3f}"
        )


def model_fit(
    bank: BankLike,
    responses: ResponsesLike,
    kind: str = "auto",
    level: float = 0.9,
    estimated: str = "auto",
    *,
    groups: Any = None,
    missing: str = "complete",
    subject_weights: Any = None,
    mismatch: str = "refuse",
) -> ModelFit:
    """Test overall model fit on the means and cross products of the answers.

    ``M2 = n e' [S - S D (D' S D)^-1 D' S] e``: e the observed minus expected moments, S the inverse
    of their covariance under the model, D their derivatives by the estimated parameters. Unlike the
    full table of answers, these moments are not sparse at any test length. For items with several
    categories, "M2" uses the moments of their codes (M2*: means and cross products), "C2" the
    shares of all categories and the cross products of the codes: for few items with many categories
    only C2 has degrees of freedom.

    Args:
        bank: the calibrated items (right/wrong or graded, of one or more dimensions).
        responses: the responses.
        kind: "M2", "C2", or "auto": M2 for right/wrong items, else C2.
        level: probability of the interval of RMSEA.
        estimated: which parameters count as estimated from these responses, as for `s_x2`:
            fixed ones do not count, those that all items share count once, and rotations of the
            axes of an exploratory bank are subtracted.
        groups: the group of each subject, as for `irtcat.score`. The test is then of all groups
            together: the sum of ``n_g e_g' [...] e_g`` over groups with common derivatives, where
            the mean and SD of every group but the first count as estimated (and its correlations).
            Without it, on a bank of several populations, the moments are those of the mixture, as
            ``flags`` says.
        missing: "complete" leaves subjects with missing answers out; "pairwise" uses every answer:
            the moments of a pair are of the subjects who answered both. With n_a subjects behind
            moment a, and n_ab behind both a and b, their covariance is that of one subject times
            ``n_ab / (n_a n_b)``. It supposes that answers are missing at random; moments of pairs
            that nobody answered are left out.
        subject_weights: survey weights, as for `irtcat.fit`; with ``missing="complete"``. The
            moments are weighted, and the statistic, which then is not chi-square distributed, is
            divided by its mean per degree of freedom (the design effect, from the covariance of the
            weighted moments over samples of subjects): Rao & Scott's first-order correction.
        mismatch: as for `irtcat.score`.

    Returns:
        The statistic, its degrees of freedom and p, RMSEA with its interval, SRMSR, TLI, CFI.

    Raises:
        InputError: for fewer than 2 items or 2 complete rows, a constant item, no degrees of
            freedom, more than 12,000 moments (about 150 items: pass a subset), or items that are
            neither right/wrong nor graded.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> r = load("lsat7")
        >>> print(model_fit(fit(r, "2pl").bank, r))
        M2(5) = 11.94, p = 0.0356; RMSEA 0.037 [0.009, 0.065], SRMSR 0.032, TLI 0.937, CFI 0.968

    References:
        Maydeu-Olivares & Joe (2006), Psychometrika 71, 713-732 (M2); Cai & Hansen (2013), British
        Journal of Mathematical and Statistical Psychology 66, 245-276 (M2*); Cai & Monroe (2014),
        CRESST report 839 (C2); Maydeu-Olivares & Joe (2014), Multivariate Behavioral Research 49,
        305-328 (RMSEA); Rao & Scott (1984), Annals of Statistics 12, 46-60 (survey weights).
    """
    check_choice("kind", kind, KINDS)
    check_interval("level", level)
    check_choice("missing", missing, MISSING)
    data = coded(bank, responses, least_items=2, groups=groups, mismatch=mismatch)
    graded = bool((data.categories > 2).any())
    if not graded:
        kind = "M2"  # equal to C2 for right/wrong items
    elif kind == "auto":
        kind = "C2"
    used = _used_answers(data, missing, subject_weights)
    for answers in used:
        _check_usable(answers.part, answers.values, kind)
    free = free_of(data.bank, estimated)
    places = population_places(data.bank, free)
    n_free = free.total + len(places) - free.n_population
    found = [group_moments(data, answers, free, places, kind) for answers in used]
    n_moments = sum(moments.n for moments in found)
    df = n_moments - n_free
    if df <= 0:
        advice = 'Use kind="C2".' if graded and kind == "M2" else "More items are needed."
        got = f"{n_moments} moments and {n_free} parameters"
        raise argument_error("bank", "one with fewer parameters than moments", got, advice)
    n = sum(len(answers.values) for answers in used)
    statistic, identified = _statistic(found, n_free)
    effect = _design_effect(found, n_free)
    statistic /= effect
    nulls = [_independence(answers, kind) for answers in used]
    null_statistic, null_df = sum(value for value, _ in nulls), sum(df for _, df in nulls)
    lower, upper = (
        float(np.sqrt(_noncentrality(statistic, df, tail) / (df * (n - 1))))
        for tail in (0.5 + level / 2, 0.5 - level / 2)
    )
    tli, cfi = _relative_fit(statistic, df, null_statistic, null_df)
    residuals = [
        _correlation_residuals(answers, moments.conditional)
        for answers, moments in zip(used, found, strict=True)
    ]
    remarks = [data.note, "" if identified else "parameters are not identified by the moments"]
    return ModelFit(
        kind="M2*" if graded and kind == "M2" else kind,
        statistic=statistic,
        df=df,
        p=float(chi_square_p(statistic, df)),
        rmsea=float(rmsea(statistic, df, n)),
        rmsea_lower=lower,
        rmsea_upper=upper,
        level=float(level),
        srmsr=_root_mean_square(np.concatenate(residuals)),
        tli=tli,
        cfi=cfi,
        null_statistic=null_statistic,
        null_df=null_df,
        n_moments=n_moments,
        n_parameters=n_free,
        n_subjects=n,
        n_left_out=len(data.values) - n,
        flags="; ".join(filter(None, remarks)),
        srmsr_by_group={
            group.label: _root_mean_square(residual)
            for group, residual in zip(data.groups, residuals, strict=True)
            if groups is not None
        },
        design_effect=effect,
    )


def _used_answers(data: Coded, missing: str, subject_weights: Any) -> list[GroupAnswers]:
    """The answers used of each group, with survey weights whose sum is the number of subjects."""
    parts = [data.of_group(group) for group in data.groups]
    if subject_weights is None:
        return [GroupAnswers(part, _used_values(part, missing), None) for part in parts]
    if missing != "complete":
        raise argument_error("missing", '"complete" with subject_weights', missing)
    weights = check_weights(data.responses, subject_weights)
    assert weights is not None
    every = rescaled(weights, data.complete)  # 0 for incomplete rows
    used = []
    for group, part in zip(data.groups, parts, strict=True):
        own = every[group.rows]
        used.append(GroupAnswers(part, part.values[own > 0], own[own > 0]))
    return used


def _used_values(part: Coded, missing: str) -> np.ndarray:
    """The answers of the subjects that count."""
    if missing == "complete":
        return complete_values(part, "model fit")
    return part.values[(part.values >= 0).any(axis=1)]


def _check_usable(data: Coded, values: np.ndarray, kind: str) -> None:
    """Raise for constant items, unused categories and too many moments."""
    constant = data._replace(values=values).constant()
    if constant.any():
        names = data.bank.item_ids[constant].tolist()
        advice = "Leave them out: responses.subset(items=...)."
        must = "without constant items (in complete rows)"
        raise argument_error("responses", must, names, advice)
    if kind == "C2":
        unused = [
            f"{item} category {k + 1}"
            for item, x, n in zip(data.bank.item_ids, values.T, data.categories, strict=True)
            for k in range(n)
            if not (x == k).any()
        ]
        if unused:
            must, advice = "ones that use every category", "Merge the categories."
            raise argument_error("responses", must, unused, advice)
    n = data.bank.n_items
    single = int((data.categories - 1).sum()) if kind == "C2" else n
    moments = single + n * (n - 1) // 2
    if moments > MAX_MOMENTS:
        advice = "Pass a subset of the items: responses.subset(items=...)."
        raise argument_error("responses", f"of at most {MAX_MOMENTS} moments", moments, advice)


def _statistic(found: list[MarginMoments], n_free: int) -> tuple[float, bool]:
    """The chi-square of the residual moments, and whether the parameters are identified.

    The moments of groups are independent, each with its number of subjects.
    """
    try:
        rows = np.concatenate([whitened(moments) for moments in found])
    except np.linalg.LinAlgError:
        raise InputError(SINGULAR) from None
    return projected(rows[:, 0], rows[:, 1:], n_free)


def _design_effect(found: list[MarginMoments], n_free: int) -> float:
    """The mean of the statistic of weighted subjects per degree of freedom; 1 without weights.

    With P the projection of `projected`, L L' the covariance under the model and V that over
    samples: ``tr(P L^-1 V L^-T) / rank P``.
    """
    sampled = [(moments, moments.sampling) for moments in found if moments.sampling is not None]
    if not sampled:
        return 1.0
    design = np.concatenate([whitened(moments)[:, 1:] for moments, _ in sampled])
    directions, _ = fitted_directions(design, n_free)
    trace, at = 0.0, 0
    for moments, sampling in sampled:
        covariance = moment_covariance(moments.conditional) / moments.counts
        half = whiten(covariance, sampling)
        both = whiten(covariance, half.T)
        own = directions[at : at + len(both)]
        trace += float(np.trace(both) - np.einsum("ij,ik,kj->", own, both, own, optimize=True))
        at += len(both)
    return trace / (at - directions.shape[1])


def _independence(answers: GroupAnswers, kind: str) -> tuple[float, int]:
    """The statistic of independent items in a group, and its degrees of freedom."""
    part, values, weights = answers
    null, jacobian = independent(values, part.categories, kind, weights)
    moments, n_free = moments_beside(answers, kind, null, jacobian), jacobian.shape[1]
    df = moments.n - n_free
    if df <= 0:
        return np.nan, 0
    return _statistic([moments], n_free)[0] / _design_effect([moments], n_free), df


def _noncentrality(statistic: float, df: int, tail: float) -> float:
    """The noncentrality at which P(chi-square <= statistic) is ``tail``; 0 if there is none."""
    from scipy.optimize import brentq

    if chndtr(statistic, df, 0.0) <= tail:
        return 0.0
    high = max(statistic, 1.0)
    while chndtr(statistic, df, high) > tail:
        high *= 2
    return float(brentq(lambda value: chndtr(statistic, df, value) - tail, 0.0, high))


def _root_mean_square(values: FloatArray) -> float:
    return float(np.sqrt(np.nanmean(values**2))) if np.isfinite(values).any() else np.nan


def _correlation_residuals(answers: GroupAnswers, c: Conditional) -> FloatArray:
    """Differences of observed and expected correlations of the codes; NaN for nominal items."""
    part, values, weights = answers
    if not part.bank.model.has_order:
        return np.full(1, np.nan)
    mean = c.mean @ c.weights
    cross = (c.mean * c.weights) @ c.mean.T
    cross[np.diag_indices(len(cross))] = c.square @ c.weights
    covariance = cross - np.outer(mean, mean)
    sd = np.sqrt(np.diagonal(covariance))
    expected = covariance / np.outer(sd, sd)
    if weights is None:
        observed = pd.DataFrame(np.where(values < 0, np.nan, values)).corr().to_numpy()
    else:
        spread = np.cov(values.T.astype(float), aweights=weights)
        observed = spread / np.sqrt(np.outer(spread.diagonal(), spread.diagonal()))
    return np.asarray((observed - expected)[np.triu_indices(len(mean), 1)])


def _relative_fit(statistic: float, df: int, null: float, null_df: int) -> tuple[float, float]:
    """Tucker-Lewis and comparative fit index; NaN if independent items already fit."""
    if null_df <= 0 or null <= null_df:
        return float("nan"), float("nan")
    tli = (null / null_df - statistic / df) / (null / null_df - 1)
    return float(tli), float(np.clip(1 - (statistic - df) / (null - null_df), 0.0, 1.0))


CLOSE, POOR = 0.05, 0.08
"""RMSEA of a close and of a mediocre fit (Browne & Cudeck 1993)."""

LARGEST = 10**9
"""Most subjects that are looked for."""


def rmsea_power(
    df: int, n: int, *, null: float = CLOSE, alternative: float = POOR, alpha: float = 0.05
) -> float:
    """Power of a test of fit with n subjects, by the RMSEA of the null and of the alternative.

    The statistic (such as M2 of `model_fit`) is noncentral chi-square with df degrees of freedom
    and noncentrality ``(n - 1) df rmsea^2``. With ``alternative`` above ``null`` the null, that the
    fit is as close, is rejected for large statistics (test of close fit; of exact fit with a null
    of 0); with ``alternative`` below it for small ones (test of not-close fit).

    Args:
        df: degrees of freedom of the statistic.
        n: number of subjects.
        null: RMSEA under the null.
        alternative: RMSEA that is to be found.
        alpha: level of the test.

    Returns:
        The probability of rejecting the null.

    Raises:
        InputError: for numbers out of range, or equal ``null`` and ``alternative``.

    Example:
        >>> round(rmsea_power(50, 200), 3)
        0.769
        >>> round(rmsea_power(50, 200, alternative=0.01), 3)
        0.608

    References:
        MacCallum, Browne & Sugawara (1996), Psychological Methods 1, 130-149 (the three tests).
    """
    check_count("n", n, 2)
    _check(df, null, alternative, alpha)
    return _power(df, n, null, alternative, alpha)


def rmsea_sample_size(
    df: int,
    power: float = 0.8,
    *,
    null: float = CLOSE,
    alternative: float = POOR,
    alpha: float = 0.05,
) -> int:
    """The smallest number of subjects with which a test of fit has this power.

    Args:
        df: degrees of freedom of the statistic; those of M2 are n (n + 1) / 2 less the number of
            parameters, for n right/wrong items.
        power: wanted power, above ``alpha`` and below 1.
        null: RMSEA under the null, as in `rmsea_power`.
        alternative: RMSEA that is to be found.
        alpha: level of the test.

    Returns:
        The number of subjects.

    Raises:
        InputError: for numbers out of range, or if a billion subjects are too few.

    Example:
        >>> rmsea_sample_size(100), rmsea_sample_size(100, alternative=0.01)
        (132, 178)
        >>> n_items = 20  # M2 of a 2PL
        >>> rmsea_sample_size(n_items * (n_items + 1) // 2 - 2 * n_items)
        94

    References:
        MacCallum, Browne & Sugawara (1996), Psychological Methods 1, 130-149.
    """
    _check(df, null, alternative, alpha)
    if not is_number(power) or not alpha < power < 1:
        raise argument_error("power", "a probability above alpha and below 1", power)
    low, high = 1, 2
    while _power(df, high, null, alternative, alpha) < power:
        low, high = high, 2 * high
        if high > LARGEST:
            must = "farther from the null: a billion subjects would not separate them"
            raise argument_error("alternative", must, alternative)
    while high - low > 1:
        middle = (low + high) // 2
        enough = _power(df, middle, null, alternative, alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def _check(df: Any, null: Any, alternative: Any, alpha: Any) -> None:
    check_count("df", df)
    for name, value in (("null", null), ("alternative", alternative)):
        if not is_number(value) or not 0 <= value < math.inf:
            raise argument_error(name, "an RMSEA of at least 0", value)
    if null == alternative:
        raise argument_error("alternative", "another RMSEA than that of the null", alternative)
    if not is_number(alpha) or not 0 < alpha < 1:
        raise argument_error("alpha", "a probability above 0 and below 1", alpha)


def _power(df: int, n: int, null: float, alternative: float, alpha: float) -> float:
    """Power of the test in the direction of the alternative."""
    at_null, at_alternative = ((n - 1) * df * value**2 for value in (null, alternative))
    if alternative > null:
        return float(1 - chndtr(chndtrix(1 - alpha, df, at_null), df, at_alternative))
    return float(chndtr(chndtrix(alpha, df, at_null), df, at_alternative))

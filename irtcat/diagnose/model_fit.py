"""Overall model fit from first and second order moments: M2, C2, and fit indices."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import chndtr

from irtcat._checks import InputError, argument_error, check_choice, check_interval
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.diagnose._common import (
    Coded,
    chi_square_p,
    coded,
    complete_values,
    curves,
    population_nodes,
    rmsea,
)
from irtcat.diagnose._free import Free, free_of
from irtcat.diagnose._limited import (
    Conditional,
    conditional,
    derivatives,
    independent,
    model_moments,
    moment_covariance,
    observed_moments,
    probability_derivatives,
    projected,
)
from irtcat.models import Nominal
from irtcat.responses import Responses

__all__ = ["ModelFit", "model_fit"]

KINDS = ("auto", "M2", "C2")
MAX_MOMENTS = 12_000
"""Largest number of moments: their covariance then takes 1.2 GB, and its factor as much."""

STEP = 1e-4
"""Step of the central differences by parameters of the population."""


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
    bank: ItemBank,
    responses: Responses,
    kind: str = "auto",
    level: float = 0.9,
    estimated: str = "auto",
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
        responses: the responses. Subjects with missing answers to the bank's items are left out.
        kind: "M2", "C2", or "auto": M2 for right/wrong items, else C2.
        level: probability of the interval of RMSEA.
        estimated: which parameters count as estimated from these responses, as for `s_x2`:
            fixed ones do not count, those that all items share count once, and rotations of the
            axes of an exploratory bank are subtracted.

    Returns:
        The statistic, its degrees of freedom and p, RMSEA with its interval, SRMSR, TLI, CFI.

    Raises:
        InputError: for fewer than 2 items or 2 complete rows, a constant item, no degrees of
            freedom, more than 12,000 moments (about 150 items: pass a subset), or items that are
            neither right/wrong nor graded.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.datasets import load
        >>> r = load("lsat7")
        >>> print(model_fit(fit(r, "2pl").bank, r))
        M2(5) = 11.94, p = 0.0356; RMSEA 0.037 [0.009, 0.065], SRMSR 0.032, TLI 0.937, CFI 0.968

    References:
        Maydeu-Olivares & Joe (2006), Psychometrika 71, 713-732 (M2); Cai & Hansen (2013), British
        Journal of Mathematical and Statistical Psychology 66, 245-276 (M2*); Cai & Monroe (2014),
        CRESST report 839 (C2); Maydeu-Olivares & Joe (2014), Multivariate Behavioral Research 49,
        305-328 (RMSEA).
    """
    check_choice("kind", kind, KINDS)
    check_interval("level", level)
    data = coded(bank, responses, least_items=2)
    values = complete_values(data, "model fit")
    graded = bool((data.categories > 2).any())
    kind = ("C2" if graded else "M2") if kind == "auto" else kind
    if not graded:
        kind = "M2"  # equal to C2 for right/wrong items
    _check_usable(data, values, kind)
    free = free_of(data.bank, estimated)
    c, jacobian = _moments_and_jacobian(data, free, kind)
    observed = observed_moments(values, data.categories, kind)
    df = len(observed) - free.total
    if df <= 0:
        advice = 'Use kind="C2".' if graded and kind == "M2" else "More items are needed."
        got = f"{len(observed)} moments and {free.total} parameters"
        raise argument_error("bank", "one with fewer parameters than moments", got, advice)
    n = len(values)
    statistic, identified = _statistic(observed - model_moments(c), c, jacobian, free.total, n)
    null, null_jacobian = independent(values, data.categories, kind)
    residual = observed - model_moments(null)
    null_df = len(observed) - null_jacobian.shape[1]
    null_statistic = np.nan
    if null_df > 0:
        null_statistic = _statistic(residual, null, null_jacobian, null_jacobian.shape[1], n)[0]
    lower, upper = _rmsea_interval(statistic, df, n, level)
    return ModelFit(
        kind="M2*" if graded and kind == "M2" else kind,
        statistic=statistic,
        df=df,
        p=float(chi_square_p(statistic, df)),
        rmsea=float(rmsea(statistic, df, n)),
        rmsea_lower=lower,
        rmsea_upper=upper,
        level=float(level),
        srmsr=_srmsr(data, values, c),
        tli=_tli(statistic, df, null_statistic, null_df),
        cfi=_cfi(statistic, df, null_statistic, null_df),
        null_statistic=null_statistic,
        null_df=max(null_df, 0),
        n_moments=len(observed),
        n_parameters=free.total,
        n_subjects=n,
        n_left_out=len(data.values) - n,
        flags="" if identified else "parameters are not identified by the moments",
    )


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
            raise argument_error(
                "responses", "ones that use every category", unused, "Merge the categories."
            )
    n = data.bank.n_items
    single = int((data.categories - 1).sum()) if kind == "C2" else n
    moments = single + n * (n - 1) // 2
    if moments > MAX_MOMENTS:
        advice = "Pass a subset of the items: responses.subset(items=...)."
        raise argument_error("responses", f"of at most {MAX_MOMENTS} moments", moments, advice)


def _moments_and_jacobian(data: Coded, free: Free, kind: str) -> tuple[Conditional, FloatArray]:
    """The moments under the model, and their derivatives by the estimated parameters."""
    bank = data.bank
    points, weights = population_nodes(bank)
    c = conditional(curves(bank, points), weights, data.categories, kind)
    columns: list[FloatArray] = []
    if free.mask.any():
        dp = probability_derivatives(bank, points)
        columns.append(derivatives(dp, c, data.categories, kind) @ free.design())
    columns += [_derivative(data, kind, bank_at)[:, None] for bank_at in _perturbed(bank, free)]
    n_moments = len(model_moments(c))
    return c, np.concatenate([np.zeros((n_moments, 0)), *columns], axis=1)


def _perturbed(bank: ItemBank, free: Free) -> list[Callable[[float], ItemBank]]:
    """For each estimated population parameter, the bank as a function of a change in it."""
    functions: list[Callable[[float], ItemBank]] = []
    if free.sd:
        functions.append(lambda step: replace(bank, population_sd=bank.population_sd + step))
    if free.n_correlations:
        base = np.asarray(bank.correlations, float)
        for i, j in combinations(range(len(base)), 2):

            def with_correlation(step: float, i: int = i, j: int = j) -> ItemBank:
                matrix = base.copy()
                matrix[i, j] = matrix[j, i] = base[i, j] + step
                return replace(bank, correlations=matrix)

            functions.append(with_correlation)
    return functions


def _derivative(data: Coded, kind: str, bank_at: Callable[[float], ItemBank]) -> FloatArray:
    """Derivative of the moments by a parameter of the population, by a central difference."""

    def moments(step: float) -> FloatArray:
        bank = bank_at(step)
        points, weights = population_nodes(bank)
        return model_moments(conditional(curves(bank, points), weights, data.categories, kind))

    return (moments(STEP) - moments(-STEP)) / (2 * STEP)


def _statistic(
    residual: FloatArray, c: Conditional, jacobian: FloatArray, n_free: int, n: int
) -> tuple[float, bool]:
    """The chi-square of residual moments, and whether the parameters are identified."""
    try:
        value, identified = projected(residual, moment_covariance(c), jacobian, n_free)
    except np.linalg.LinAlgError:
        raise InputError(
            "The `responses` argument must be of items that are not constant or copies of each "
            "other under the model. Got moments whose covariance is singular."
        ) from None
    return n * value, identified


def _rmsea_interval(statistic: float, df: int, n: int, level: float) -> tuple[float, float]:
    """Interval of RMSEA, from that of the noncentrality."""
    tails = (0.5 + level / 2, 0.5 - level / 2)
    lower, upper = (_noncentrality(statistic, df, tail) for tail in tails)
    return float(np.sqrt(lower / (df * (n - 1)))), float(np.sqrt(upper / (df * (n - 1))))


def _noncentrality(statistic: float, df: int, tail: float) -> float:
    """The noncentrality at which P(chi-square <= statistic) is ``tail``; 0 if there is none."""
    from scipy.optimize import brentq

    if chndtr(statistic, df, 0.0) <= tail:
        return 0.0
    high = max(statistic, 1.0)
    while chndtr(statistic, df, high) > tail:
        high *= 2
    return float(brentq(lambda value: chndtr(statistic, df, value) - tail, 0.0, high))


def _srmsr(data: Coded, values: np.ndarray, c: Conditional) -> float:
    """Root mean square difference of observed and expected correlations of the codes."""
    if isinstance(data.bank.model, Nominal) or Nominal in data.bank.model.members:
        return float("nan")
    mean = c.mean @ c.weights
    cross = (c.mean * c.weights) @ c.mean.T
    cross[np.diag_indices(len(cross))] = c.square @ c.weights
    covariance = cross - np.outer(mean, mean)
    sd = np.sqrt(np.diagonal(covariance))
    expected = covariance / np.outer(sd, sd)
    observed = np.corrcoef(values.T.astype(float))
    residual = (observed - expected)[np.triu_indices(len(mean), 1)]
    return float(np.sqrt((residual**2).mean()))


def _tli(statistic: float, df: int, null: float, null_df: int) -> float:
    """Tucker-Lewis index; NaN if independent items already fit."""
    if null_df <= 0 or null <= null_df:
        return float("nan")
    return float((null / null_df - statistic / df) / (null / null_df - 1))


def _cfi(statistic: float, df: int, null: float, null_df: int) -> float:
    """Comparative fit index; NaN if independent items already fit."""
    if null_df <= 0 or null <= null_df:
        return float("nan")
    return float(np.clip(1 - (statistic - df) / (null - null_df), 0.0, 1.0))

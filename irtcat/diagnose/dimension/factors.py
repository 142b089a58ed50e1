"""Dimensions of a test: how many there are, fits of 1, 2, ... of them, and rotated loadings."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count
from irtcat._common.executors import check_executor, in_order
from irtcat._common.progress import ProgressOption, counted, with_progress
from irtcat._common.types import FloatArray
from irtcat.bank import factor_loadings, rotate_loadings
from irtcat.bank.rotation import LOGISTIC_SCALE, rotated_bank, rotation_of
from irtcat.diagnose.dimension.correlations import (
    Correlations,
    checked,
    correlate_codes,
    correlations,
    square,
)
from irtcat.fitting import Fit, fit
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.responses import Responses

MIN_UNIQUE = 0.005
"""Lower bound of unique variances; items at it are Heywood cases."""


class Minres(NamedTuple):
    """Common factors of a correlation matrix.

    Attributes:
        loadings: items x factors, on uncorrelated factors, the strongest first.
        unique: variance of each item that the factors do not explain.
        residual: root mean square of the residual correlations.
        converged: whether the gradient is 0 to tolerance.
        heywood: items whose unique variance is at its lower bound (.005).
    """

    loadings: FloatArray
    unique: FloatArray
    residual: float
    converged: bool
    heywood: FloatArray


def _loadings(matrix: FloatArray, unique: FloatArray, n_factors: int) -> FloatArray:
    """The best loadings given the unique variances: leading eigenvectors of the common part."""
    values, vectors = np.linalg.eigh(matrix - np.diag(unique))
    values, vectors = values[::-1][:n_factors], vectors[:, ::-1][:, :n_factors]
    return vectors * np.sqrt(np.maximum(values, 0.0))


def minres(matrix: FloatArray, n_factors: int) -> Minres:
    """Factors with the smallest squared residual correlations.

    Minimises ``|R - L L' - diag(u)|^2`` over the loadings L and unique variances u in [.005, 1]:
    L by eigenvectors given u, u by L-BFGS. R need not be positive definite.

    Args:
        matrix: correlations R, items x items, finite.
        n_factors: number of factors, below the number of items.

    Example:
        >>> l = np.array([0.8, 0.7, 0.6, 0.5])
        >>> R = np.outer(l, l) + np.diag(1 - l**2)
        >>> minres(R, 1).loadings.round(3).ravel().tolist()
        [0.8, 0.7, 0.6, 0.5]

    References:
        Harman & Jones (1966), Psychometrika 31, 351-368; Joreskog (1977) (the gradient).
    """
    from scipy.optimize import minimize  # slow to import

    size = len(matrix)

    def loss(unique: FloatArray) -> tuple[float, FloatArray]:
        loadings = _loadings(matrix, unique, n_factors)
        error = matrix - loadings @ loadings.T - np.diag(unique)
        return float((error**2).sum()) / 2, -np.diagonal(error)

    # Unique variances start from the largest correlation, a simple estimate of the communality.
    largest = np.abs(matrix - np.diag(np.diagonal(matrix))).max(axis=1)
    start = np.clip(1 - largest, 0.05, 0.95)
    result = minimize(
        loss,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(MIN_UNIQUE, 1.0)] * size,
        options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-14, "gtol": 1e-8},
    )
    unique = result.x
    loadings = _loadings(matrix, unique, n_factors)
    loadings = loadings * np.where(loadings.sum(axis=0) < 0, -1.0, 1.0)
    error = matrix - loadings @ loadings.T
    off_diagonal = ~np.eye(size, dtype=bool)
    residual = float(np.sqrt((error[off_diagonal] ** 2).mean()))
    gradient = loss(unique)[1]
    at_bound = ((unique <= MIN_UNIQUE) & (gradient > 0)) | ((unique >= 1) & (gradient < 0))
    converged = bool(np.abs(np.where(at_bound, 0.0, gradient)).max() < 1e-4)
    return Minres(loadings, unique, residual, converged, unique <= MIN_UNIQUE + 1e-9)


METHODS = ("minres", "mml")
ROTATIONS = ("none", "varimax", "quartimax", "oblimin", "promax", "target")


def compare_factors(
    responses: ResponsesLike, most: int = 2, *, guessing: bool = False, **options: Any
) -> pd.DataFrame:
    """Fit and compare exploratory models of 1, 2, ... dimensions.

    With log-likelihood L, p free parameters and n subjects: AIC = -2 L + 2 p, BIC = -2 L + p ln n,
    SABIC = -2 L + p ln((n + 2) / 24), CAIC = -2 L + p (ln n + 1). Of J items and m factors p is
    J (m + 1) - m (m - 1) / 2 (J more with guessing): slopes minus rotations, which do
    not change the model.

    Args:
        responses: right/wrong.
        most: largest number of dimensions, at least 1.
        guessing: fit models with lower asymptotes (3PL), with the default prior.
        options: passed to `irtcat.fit`.

    Returns:
        One row per number of dimensions: log_likelihood, n_parameters, aic, bic, sabic, caic, and
        against the previous row x2 (twice the gain), df and p, then converged. The p is rough:
        with one factor too few the larger model is not identified, so that x2 is not exactly
        chi-squared, and for real data the test detects more and more factors as n grows. Use BIC
        and the interpretation of the factors.

    Raises:
        InputError: for graded responses, or more factors than items allow.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> compare_factors(load("lsat7"), 1)["n_parameters"].tolist()
        [10]

    References:
        Bock, Gibbons & Muraki (1988), Applied Psychological Measurement 12, 261-280; Bozdogan
        (1987), Psychometrika 52, 345-370 (CAIC); Sclove (1987), ibid. 333-343 (SABIC); Hayashi,
        Bentler & Yuan (2007), Structural Equation Modeling 14, 505-526 (the test's flaw).
    """
    responses = _right_wrong(responses)
    check_count("most", most, 1, max(1, responses.n_items - 1))
    dimensions = range(1, most + 1)
    return factor_table([_fit_dims(responses, dims, guessing, options) for dims in dimensions])


def factor_table(fits: Sequence[Fit]) -> pd.DataFrame:
    """Comparison of fits of 1, 2, ... dimensions to the same responses, as in `compare_factors`."""
    rows = [_criteria(fit_) for fit_ in fits]
    table = pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="n_factors"))
    from scipy.stats import chi2  # slow to import

    gain, df = 2 * table["log_likelihood"].diff(), table["n_parameters"].diff()
    table["x2"], table["df"], table["p"] = gain, df, chi2.sf(gain, df.where(df > 0))
    table["converged"] = table.pop("converged")
    return table


def _right_wrong(responses: Any) -> Responses:
    """The responses, which must be right or wrong."""
    responses = as_responses_like(responses, "responses")
    if responses.n_categories != 2:
        advice = "Multidimensional models need right/wrong items; factors() accepts others."
        raise argument_error("responses", "right/wrong", responses.kind, advice)
    return cast(Responses, responses)


def _fit_dims(responses: Responses, dims: int, guessing: bool, options: dict[str, Any]) -> Fit:
    """The exploratory model with ``dims`` dimensions."""
    model = "3pl" if guessing else "2pl"
    return fit(responses, model, dims=dims, **{"standard_errors": "none", **options})


def _criteria(result: Fit) -> dict[str, Any]:
    """Criteria for model comparison."""
    p, n, deviance = result.n_parameters, result.n_subjects, -2 * result.log_likelihood
    return {
        "log_likelihood": result.log_likelihood,
        "n_parameters": p,
        "aic": result.aic,
        "bic": result.bic,
        "sabic": deviance + p * float(np.log((n + 2) / 24)),
        "caic": deviance + p * float(np.log(n) + 1),
        "converged": result.converged,
    }


@dataclass(frozen=True, eq=False)
class Factors:
    """The result of `factors`.

    Attributes:
        loadings: one row per item: F1, F2, ..., h2 (communality), flag.
        correlations: of the factors.
        explained: share of all items' variance that each factor explains (for correlated
            factors: loadings times correlations with the items, which sum to the mean of h2).
        rmsr: root mean square of the residual correlations ("minres"); NaN for "mml".
        method: "minres" or "mml".
        rotation: name of the rotation.
        converged: whether both extraction and rotation converged.
        excluded: item id -> reason for its exclusion.
        fit: the fitted model of "mml", rotated; None for "minres".
    """

    loadings: pd.DataFrame
    correlations: pd.DataFrame
    explained: pd.Series
    rmsr: float
    method: str
    rotation: str
    converged: bool
    excluded: dict[str, str]
    fit: Fit | None = None

    def to_frame(self) -> pd.DataFrame:
        """The table of loadings."""
        return self.loadings.copy()

    def __repr__(self) -> str:
        shares = ", ".join(f"{100 * share:.0f} %" for share in self.explained)
        return f"Factors({self.method}, {self.rotation}, {len(self.loadings)} items: {shares})"


def factors(
    responses: ResponsesLike,
    n_factors: int,
    rotation: str = "oblimin",
    *,
    method: str = "minres",
    kind: str = "auto",
    guessing: bool = False,
    fit_options: dict[str, Any] | None = None,
    **rotation_options: Any,
) -> Factors:
    """Factor loadings of the items, rotated, with communalities.

    "minres" factors the tetrachoric or polychoric correlations by least squares: limited
    information, a fraction of a second. "mml" fits the exploratory item response model with
    ``n_factors`` dimensions by marginal maximum likelihood (`irtcat.fit` with "m2pl") and converts
    its slopes to loadings: full information, the better estimate and with a likelihood, but slow
    for more than three factors.

    Args:
        responses: right/wrong; for "minres" also in categories.
        n_factors: number of factors, at most about half the number of items.
        rotation: "none", "varimax", "quartimax", "oblimin", "promax" or "target".
        method: "minres" or "mml".
        kind: kind of the correlations (see `correlations`), for "minres".
        guessing: whether items have lower asymptotes ("m3pl"), for "mml".
        fit_options: passed to `irtcat.fit`, for "mml".
        rotation_options: of `irtcat.rotate`, such as ``target`` (items x factors, NaN where free:
            a partially specified target) or ``seed``.

    Returns:
        The loadings. Flags: "unique variance at its bound" (Heywood case).

    Raises:
        InputError: for too many factors, an unknown method or rotation, or responses of a kind
            that the method does not accept.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> factors(load("lsat7"), 1).loadings["F1"].round(2).tolist()
        [0.52, 0.51, 0.68, 0.44, 0.39]

    References:
        Harman & Jones (1966), Psychometrika 31, 351-368; Bock, Gibbons & Muraki (1988), Applied
        Psychological Measurement 12, 261-280; Browne (2001), Multivariate Behavioral Research 36,
        111-150.
    """
    check_choice("method", method, METHODS)
    check_choice("rotation", rotation, ROTATIONS)
    responses = as_responses_like(responses, "responses")
    check_count("n_factors", n_factors, 1, max(1, responses.n_items - 1))
    if method == "mml":
        options = fit_options or {}
        return _by_likelihood(responses, n_factors, rotation, guessing, options, rotation_options)
    matrix = correlations(responses, kind)
    size = len(matrix.raw)
    check_count("n_factors", n_factors, 1, size - 1)
    extraction = minres(matrix.matrix.to_numpy(), n_factors)
    loadings, converged = extraction.loadings, extraction.converged
    between: FloatArray = np.eye(n_factors)
    if n_factors > 1 and rotation != "none":
        rotated = rotate_loadings(loadings, rotation, **rotation_options)
        loadings, between = rotated.loadings, rotated.correlations
        converged = converged and rotated.converged
    flags = np.where(extraction.heywood, "unique variance at its bound", "")
    found = {"rmsr": extraction.residual, "converged": converged, "excluded": matrix.excluded}
    index = matrix.raw.index
    return _factors(loadings, between, index, flags, method=method, rotation=rotation, **found)


def _factors(
    loadings: FloatArray, between: FloatArray, items: pd.Index, flags: Any, **fields: Any
) -> Factors:
    """The result, with the table of loadings and the explained variance of each factor."""
    names = [f"F{i + 1}" for i in range(len(between))]
    h2 = np.einsum("ji,ik,jk->j", loadings, between, loadings)
    table = pd.DataFrame(loadings, items.rename("item"), names).assign(h2=h2, flag=flags)
    explained = pd.Series((loadings * (loadings @ between)).mean(axis=0), index=names)
    correlations_ = pd.DataFrame(between, index=names, columns=names)
    return Factors(loadings=table, correlations=correlations_, explained=explained, **fields)


def _by_likelihood(
    responses: Responses,
    n_factors: int,
    rotation: str,
    guessing: bool,
    fit_options: dict[str, Any],
    rotation_options: dict[str, Any],
) -> Factors:
    """Factors from the slopes of an exploratory fit."""
    responses = _right_wrong(responses)
    result = _fit_dims(responses, n_factors, guessing, fit_options)
    bank, converged = result.bank, result.converged
    if n_factors == 1:
        slope = bank.to_frame()["a"].to_numpy()
        loadings = (slope / np.sqrt(LOGISTIC_SCALE**2 + slope**2))[:, None]
    else:
        if rotation != "none":
            found = rotation_of(bank, rotation, **rotation_options)
            bank = rotated_bank(bank, found, rotation)
            converged = converged and found.converged
        loadings = factor_loadings(bank).to_numpy()[:, :n_factors]
    between = bank.population.correlations
    between = np.eye(n_factors) if between is None else between
    flags = bank.to_frame()["flag"].to_numpy()
    fields: dict[str, Any] = {
        "rmsr": np.nan,
        "converged": converged,
        "excluded": {},
        "method": "mml",
    }
    fields |= {"rotation": rotation, "fit": replace(result, bank=bank)}
    return _factors(loadings, between, bank.statistics.index, flags, **fields)


@dataclass(frozen=True, eq=False)
class ParallelAnalysis:
    """The result of `parallel_analysis`.

    Attributes:
        table: one row per component: eigenvalue, random_mean, random_limit (the percentile of
            the eigenvalues of shuffled data), kept.
        n_factors: number of leading eigenvalues above their limits.
        kind: kind of the correlations.
        percentile: percentile of the limits.
        n: number of shuffled data sets.
        excluded: item id -> reason for its exclusion.
        first_ratio: first eigenvalue over the second.
    """

    table: pd.DataFrame
    n_factors: int
    kind: str
    percentile: float
    n: int
    excluded: dict[str, str]
    first_ratio: float

    def to_frame(self) -> pd.DataFrame:
        """The table of eigenvalues."""
        return self.table.copy()

    def __repr__(self) -> str:
        first = ", ".join(f"{v:.2f}" for v in self.table["eigenvalue"][:3])
        return f"ParallelAnalysis({self.n_factors} factors, {self.kind} eigenvalues {first}, ...)"


def _shuffled(codes: np.ndarray, missing: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each column's answers in random order; missing answers stay in place."""
    if not missing.any():
        return rng.permuted(codes, axis=0)
    key = np.where(missing, 2.0, rng.random(codes.shape))  # missing answers last
    rows = np.argsort(missing, axis=0, kind="stable")
    out = np.empty_like(codes)
    drawn = np.take_along_axis(codes, np.argsort(key, axis=0), axis=0)
    np.put_along_axis(out, rows, drawn, axis=0)
    return out


@with_progress("Parallel analysis", counted("data sets"))
def parallel_analysis(
    responses: ResponsesLike,
    *,
    kind: str = "auto",
    n: int = 50,
    percentile: float = 95.0,
    seed: int = 0,
    executor: Executor | None = None,
    progress: ProgressOption = None,
) -> ParallelAnalysis:
    """Eigenvalues of the correlations compared with those of data without common factors.

    The comparison data are the responses with each item's answers shuffled among the subjects who
    answered it: the same margins and missing answers, and no correlation. A component counts if its
    eigenvalue, and all before it, are above the percentile of the shuffled data.

    Args:
        responses: right/wrong, in categories, or (with "pearson") fractions.
        kind: correlations as in `correlations`; both are taken before smoothing.
        n: number of shuffled data sets.
        percentile: percentile of their eigenvalues, between 0 and 100; 50 is close to Horn's mean.
        seed: random seed of the shuffles.
        executor: correlates the shuffled data sets, in parallel: any `concurrent.futures.Executor`.
            The result is the same. By default the current process.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, n)``.

    Returns:
        The eigenvalues and their limits. With fewer subjects than items both have large first
        eigenvalues by chance, and only strong components are detected.

    Raises:
        InputError: for responses that cannot be correlated, or numbers out of range.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> parallel_analysis(load("lsat7"), n=20).n_factors
        1

    References:
        Horn (1965), Psychometrika 30, 179-185; Buja & Eyuboglu (1992), Multivariate Behavioral
        Research 27, 509-540 (shuffling); Glorfeld (1995), Educational and Psychological
        Measurement 55, 377-393 (percentiles).
    """
    check_count("n", n)
    check_count("seed", seed, least=0)
    check_executor(executor)
    if not 0 < percentile < 100:
        raise argument_error("percentile", "between 0 and 100", percentile)
    responses, kind = checked(responses, kind)
    real = correlations(responses, kind, smooth=False)
    kept = responses.subset(items=list(real.raw.index))
    codes, missing = np.asarray(kept.values), ~kept.observed
    rng = np.random.default_rng(seed)
    shuffled = (_shuffled(codes, missing, rng) for _ in range(n))
    report = None if progress is None else (lambda done: progress(done, n))
    random = in_order(_eigenvalues, (kind, kept.n_categories), shuffled, executor, report)
    return _parallel(real, np.array(random), percentile)


def _eigenvalues(shared: tuple[str, int], codes: np.ndarray) -> FloatArray:
    """Eigenvalues of the correlations of shuffled data, decreasing."""
    kind, n_categories = shared
    estimates = correlate_codes(codes, kind, n_categories, 0.5, errors=False)
    # Undefined correlations become 0, the expectation in shuffled data.
    matrix = square(np.nan_to_num(estimates.r), codes.shape[1])
    return np.linalg.eigvalsh(matrix)[::-1]


def _parallel(real: Correlations, random: FloatArray, percentile: float) -> ParallelAnalysis:
    """The eigenvalues of the responses and of the shuffled data."""
    values, limit = real.eigenvalues, np.percentile(random, percentile, axis=0)
    above = values > limit
    n_factors = int(above.argmin()) if not above.all() else len(above)
    table = {"eigenvalue": values, "random_mean": random.mean(axis=0), "random_limit": limit}
    table["kept"] = np.arange(len(values)) < n_factors
    index = pd.RangeIndex(1, len(values) + 1, name="component")
    ratio = float(values[0] / values[1]) if values[1] > 0 else float("inf")
    return ParallelAnalysis(
        table=pd.DataFrame(table, index),
        n_factors=n_factors,
        kind=real.kind,
        percentile=percentile,
        n=len(random),
        excluded=real.excluded,
        first_ratio=ratio,
    )

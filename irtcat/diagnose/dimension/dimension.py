"""Number of dimensions of a test, and the loadings of its items."""

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count
from irtcat._common.executors import check_executor, in_order
from irtcat._common.progress import ProgressOption, counted, with_progress
from irtcat._common.types import FloatArray
from irtcat.diagnose.dimension.correlations import (
    Correlations,
    checked,
    correlate_codes,
    correlations,
    square,
)
from irtcat.io.convert import ResponsesLike


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
    table = pd.DataFrame(
        {
            "eigenvalue": values,
            "random_mean": random.mean(axis=0),
            "random_limit": limit,
            "kept": np.arange(len(values)) < n_factors,
        },
        index=pd.RangeIndex(1, len(values) + 1, name="component"),
    )
    ratio = float(values[0] / values[1]) if values[1] > 0 else float("inf")
    return ParallelAnalysis(
        table=table,
        n_factors=n_factors,
        kind=real.kind,
        percentile=percentile,
        n=len(random),
        excluded=real.excluded,
        first_ratio=ratio,
    )

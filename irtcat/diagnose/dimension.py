"""How many abilities a test measures, and which items call on which."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error, check_count
from irtcat._types import FloatArray
from irtcat.diagnose._correlations import (
    Correlations,
    check_codes,
    correlate_codes,
    correlations,
    nearest_correlation,
    square,
)
from irtcat.diagnose._factors import Factors, compare_factors, factors
from irtcat.responses import Responses

__all__ = [
    "Correlations",
    "Factors",
    "ParallelAnalysis",
    "compare_factors",
    "correlations",
    "factors",
    "nearest_correlation",
    "parallel_analysis",
]


@dataclass(frozen=True, eq=False)
class ParallelAnalysis:
    """The result of `parallel_analysis`.

    Attributes:
        table: one row per component: eigenvalue, random_mean, random_limit (the percentile of
            the eigenvalues of shuffled data), kept.
        n_factors: how many leading eigenvalues are above their limits.
        kind: of the correlations.
        percentile: of the limit.
        n: number of shuffled data sets.
        excluded: item id -> why it was left out.
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
    """Each column's answers in random order, gaps where they were."""
    if not missing.any():
        return rng.permuted(codes, axis=0)
    key = np.where(missing, 2.0, rng.random(codes.shape))  # missing ones last
    places = np.argsort(missing, axis=0, kind="stable")
    out = np.empty_like(codes)
    drawn = np.take_along_axis(codes, np.argsort(key, axis=0), axis=0)
    np.put_along_axis(out, places, drawn, axis=0)
    return out


def parallel_analysis(
    responses: Responses,
    *,
    kind: str = "auto",
    n: int = 50,
    percentile: float = 95.0,
    seed: int = 0,
    progress: Callable[[int, int], Any] | None = None,
) -> ParallelAnalysis:
    """Eigenvalues of the correlations against those of data without any common ability.

    The comparison data are the responses with every item's answers shuffled among the subjects
    who answered it: the same margins and the same gaps, and no correlation. A component counts
    while its eigenvalue, and all before it, are above the percentile of theirs.

    Args:
        responses: right/wrong, in categories, or (with "pearson") fractions.
        kind: correlations as in `correlations`; both are taken before smoothing.
        n: number of shuffled data sets.
        percentile: of their eigenvalues, between 0 and 100; 50 is close to Horn's mean.
        seed: of the shuffles.
        progress: called as ``progress(done, n)``.

    Returns:
        The eigenvalues and their limits. With fewer subjects than items both have large first
        eigenvalues by chance, and only strong components show.

    Raises:
        InputError: for responses that cannot be correlated, or numbers out of range.

    Example:
        >>> from irtcat.datasets import load
        >>> parallel_analysis(load("lsat7"), n=20).n_factors
        1

    References:
        Horn (1965), Psychometrika 30, 179-185; Buja & Eyuboglu (1992), Multivariate Behavioral
        Research 27, 509-540 (shuffling); Glorfeld (1995), Educational and Psychological
        Measurement 55, 377-393 (percentiles).
    """
    check_count("n", n)
    check_count("seed", seed, least=0)
    if not 0 < percentile < 100:
        raise argument_error("percentile", "between 0 and 100", percentile)
    _, kind = check_codes(responses, kind)
    real = correlations(responses, kind, smooth=False)
    kept = responses.subset(items=list(real.raw.index))
    codes, missing = np.asarray(kept.values), ~kept.observed
    rng = np.random.default_rng(seed)
    size = codes.shape[1]
    random = np.empty((n, size))
    for draw in range(n):
        found = correlate_codes(
            _shuffled(codes, missing, rng), kind, kept.n_categories, 0.5, errors=False
        )
        # A pair that gives no correlation by chance is as uncorrelated as the others are.
        matrix = square(np.nan_to_num(found.r), size)
        random[draw] = np.linalg.eigvalsh(matrix)[::-1]
        if progress is not None:
            progress(draw + 1, n)
    return _parallel(real, random, percentile)


def _parallel(real: Correlations, random: FloatArray, percentile: float) -> ParallelAnalysis:
    """The real eigenvalues beside the random ones."""
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
    args = (real.kind, percentile, len(random), real.excluded, ratio)
    return ParallelAnalysis(table, n_factors, *args)

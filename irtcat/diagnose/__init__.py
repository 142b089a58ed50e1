"""Diagnosis: whether items, subjects and the model are what the scale takes them for."""

from irtcat.diagnose.dimension import (
    Correlations,
    Factors,
    ParallelAnalysis,
    compare_factors,
    correlations,
    factors,
    nearest_correlation,
    parallel_analysis,
)

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

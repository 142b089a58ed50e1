"""Diagnosis: whether items, subjects and the model are what the scale takes them for."""

from irtcat.diagnose import labels
from irtcat.diagnose.dif import DIF, find_dif
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
from irtcat.diagnose.labels import LabelRanking
from irtcat.diagnose.populations import Populations, compare_populations

__all__ = [
    "DIF",
    "Correlations",
    "Factors",
    "LabelRanking",
    "ParallelAnalysis",
    "Populations",
    "compare_factors",
    "compare_populations",
    "correlations",
    "factors",
    "find_dif",
    "labels",
    "nearest_correlation",
    "parallel_analysis",
]

"""Calibration: from responses to a bank."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.fitting.benchmarks import BenchmarkFit, fit_benchmarks
    from irtcat.fitting.calibrate import FITTERS, fit
    from irtcat.fitting.em.driver import Progress
    from irtcat.fitting.features.columns import FeatureRegression
    from irtcat.fitting.linking import LINKS, Link, link
    from irtcat.fitting.online import update_items
    from irtcat.fitting.problem.loading_pattern import STRUCTURES
    from irtcat.fitting.result import Fit
    from irtcat.fitting.summary import FitSummary
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "FITTERS",
    "LINKS",
    "STRUCTURES",
    "BenchmarkFit",
    "FeatureRegression",
    "Fit",
    "FitSummary",
    "Link",
    "Progress",
    "fit",
    "fit_benchmarks",
    "link",
    "update_items",
]

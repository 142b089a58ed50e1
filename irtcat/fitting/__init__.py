"""Calibration: from responses to a bank."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.fitting.benchmarks import BenchmarkFit, fit_benchmarks
    from irtcat.fitting.calibrate import fit
    from irtcat.fitting.features.columns import FeatureRegression
    from irtcat.fitting.linking import LINKS, Link, link
    from irtcat.fitting.online import update_items
    from irtcat.fitting.problem.loading_pattern import STRUCTURES
    from irtcat.fitting.result import Fit
    from irtcat.fitting.solvers import EM, SOLVERS, VI, Joint, Solver
    from irtcat.fitting.specification import Progress
    from irtcat.fitting.summary import FitSummary
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "EM",
    "LINKS",
    "SOLVERS",
    "STRUCTURES",
    "VI",
    "BenchmarkFit",
    "FeatureRegression",
    "Fit",
    "FitSummary",
    "Joint",
    "Link",
    "Progress",
    "Solver",
    "fit",
    "fit_benchmarks",
    "link",
    "update_items",
]

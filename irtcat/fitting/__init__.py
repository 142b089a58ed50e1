"""Calibration: from responses to a bank."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.fitting.benchmarks import BenchmarkFit as BenchmarkFit
    from irtcat.fitting.benchmarks import fit_benchmarks as fit_benchmarks
    from irtcat.fitting.calibrate import fit as fit
    from irtcat.fitting.features.columns import FeatureRegression as FeatureRegression
    from irtcat.fitting.linking import LINKS as LINKS
    from irtcat.fitting.linking import Link as Link
    from irtcat.fitting.linking import link as link
    from irtcat.fitting.online import update_items as update_items
    from irtcat.fitting.problem.loading_pattern import STRUCTURES as STRUCTURES
    from irtcat.fitting.result import Fit as Fit
    from irtcat.fitting.result import FitSummary as FitSummary
    from irtcat.fitting.solvers import EM as EM
    from irtcat.fitting.solvers import SOLVERS as SOLVERS
    from irtcat.fitting.solvers import VI as VI
    from irtcat.fitting.solvers import Joint as Joint
    from irtcat.fitting.solvers import Solver as Solver
    from irtcat.fitting.specification import Progress as Progress
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.fitting.benchmarks": "BenchmarkFit fit_benchmarks",
            "irtcat.fitting.calibrate": "fit",
            "irtcat.fitting.features.columns": "FeatureRegression",
            "irtcat.fitting.linking": "LINKS Link link",
            "irtcat.fitting.online": "update_items",
            "irtcat.fitting.problem.loading_pattern": "STRUCTURES",
            "irtcat.fitting.result": "Fit FitSummary",
            "irtcat.fitting.solvers": "EM SOLVERS VI Joint Solver",
            "irtcat.fitting.specification": "Progress",
        },
    )

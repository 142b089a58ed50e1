"""Calibration: from responses to a bank."""

from irtcat.fitting._fit import FITTERS, fit
from irtcat.fitting._loop import Progress
from irtcat.fitting._pattern import STRUCTURES
from irtcat.fitting._result import Fit
from irtcat.fitting._summary import FitSummary
from irtcat.fitting.linking import LINKS, Link, link

__all__ = ["FITTERS", "LINKS", "STRUCTURES", "Fit", "FitSummary", "Link", "Progress", "fit", "link"]

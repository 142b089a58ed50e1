"""Calibration: from responses to a bank."""

from irtcat.fitting._fit import FITTERS, fit
from irtcat.fitting._loop import Progress
from irtcat.fitting._result import Fit

__all__ = ["FITTERS", "Fit", "Progress", "fit"]

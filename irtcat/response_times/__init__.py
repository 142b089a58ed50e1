"""Response times: the lognormal model, with ability, and times that a speed does not explain."""

from irtcat._common.lazy import public_names
from irtcat.response_times.aberrance import AberrantTimes, aberrant_times
from irtcat.response_times.lognormal import TimeModel, fit_times, score_with_times

__all__ = ["AberrantTimes", "TimeModel", "aberrant_times", "fit_times", "score_with_times"]

__dir__ = public_names(__name__)

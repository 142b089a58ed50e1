"""Prediction of full-benchmark scores and ranks from a subset: one table, one function."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.prediction import short_forms
    from irtcat.prediction.estimate import Estimate
    from irtcat.prediction.flags import OUT_OF_RANGE, UNLIKE
    from irtcat.prediction.form import ShortForm
    from irtcat.prediction.freezing import short_form
    from irtcat.prediction.predicting import ESTIMATORS, predict
    from irtcat.prediction.result import Prediction
    from irtcat.prediction.task import Estimator, Task, full_scores
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ESTIMATORS",
    "OUT_OF_RANGE",
    "UNLIKE",
    "Estimate",
    "Estimator",
    "Prediction",
    "ShortForm",
    "Task",
    "full_scores",
    "predict",
    "short_form",
    "short_forms",
]

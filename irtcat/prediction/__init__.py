"""Prediction of full-benchmark scores and ranks from a subset: one table, one function."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.prediction import short_forms as short_forms
    from irtcat.prediction.estimators import ESTIMATORS as ESTIMATORS
    from irtcat.prediction.form import ShortForm as ShortForm
    from irtcat.prediction.freezing import short_form as short_form
    from irtcat.prediction.predicting import predict as predict
    from irtcat.prediction.result import OUT_OF_RANGE as OUT_OF_RANGE
    from irtcat.prediction.result import UNLIKE as UNLIKE
    from irtcat.prediction.result import Estimate as Estimate
    from irtcat.prediction.result import Prediction as Prediction
    from irtcat.prediction.task import Estimator as Estimator
    from irtcat.prediction.task import Task as Task
    from irtcat.prediction.task import full_scores as full_scores
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.prediction": "short_forms",
            "irtcat.prediction.estimators": "ESTIMATORS",
            "irtcat.prediction.form": "ShortForm",
            "irtcat.prediction.freezing": "short_form",
            "irtcat.prediction.predicting": "predict",
            "irtcat.prediction.result": "OUT_OF_RANGE UNLIKE Estimate Prediction",
            "irtcat.prediction.task": "Estimator Task full_scores",
        },
    )

"""Artificial crowds: many models trained on subsets of the data, to calibrate difficulties."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.training.checkpoints import Checkpoints as Checkpoints
    from irtcat.training.checkpoints import Dependence as Dependence
    from irtcat.training.checkpoints import from_checkpoints as from_checkpoints
    from irtcat.training.crowd.crowd import Crowd as Crowd
    from irtcat.training.crowd.crowd import from_predictions as from_predictions
    from irtcat.training.crowd.members import build as build
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.training.checkpoints": "Checkpoints Dependence from_checkpoints",
            "irtcat.training.crowd.crowd": "Crowd from_predictions",
            "irtcat.training.crowd.members": "build",
        },
    )

"""Artificial crowds: many models trained on subsets of the data, to calibrate difficulties."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.training.checkpoints import Checkpoints, Dependence, from_checkpoints
    from irtcat.training.crowd.members import Crowd, build, from_predictions
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["Checkpoints", "Crowd", "Dependence", "build", "from_checkpoints", "from_predictions"]

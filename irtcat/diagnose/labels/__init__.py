"""Wrong labels: items with a suspect key or question."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.diagnose.labels.detection import ORDERS, LabelRanking, Planted, rank
    from irtcat.diagnose.labels.orders import average_precision, precision_at, recall_at
    from irtcat.diagnose.labels.plants import plant
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ORDERS",
    "LabelRanking",
    "Planted",
    "average_precision",
    "plant",
    "precision_at",
    "rank",
    "recall_at",
]

"""Wrong labels: items with a suspect key or question."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.diagnose.labels.detection import LabelRanking as LabelRanking
    from irtcat.diagnose.labels.detection import rank as rank
    from irtcat.diagnose.labels.orders import ORDERS as ORDERS
    from irtcat.diagnose.labels.orders import average_precision as average_precision
    from irtcat.diagnose.labels.orders import precision_at as precision_at
    from irtcat.diagnose.labels.orders import recall_at as recall_at
    from irtcat.diagnose.labels.plants import Planted as Planted
    from irtcat.diagnose.labels.plants import plant as plant
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.diagnose.labels.detection": "LabelRanking rank",
            "irtcat.diagnose.labels.orders": "ORDERS average_precision precision_at recall_at",
            "irtcat.diagnose.labels.plants": "Planted plant",
        },
    )

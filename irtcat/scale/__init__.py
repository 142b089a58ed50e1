"""From responses to evaluation scales: fit, diagnose, drop, refit, and a record of decisions."""

from irtcat._common.lazy import public_names
from irtcat.scale.bookmark import ordered_item_booklet
from irtcat.scale.building import build
from irtcat.scale.exclusion import careless
from irtcat.scale.result import COLUMNS, Rules, Scale, Scales, file_name, file_names
from irtcat.scale.systems import apply

__all__ = [
    "COLUMNS",
    "Rules",
    "Scale",
    "Scales",
    "apply",
    "build",
    "careless",
    "file_name",
    "file_names",
    "ordered_item_booklet",
]

__dir__ = public_names(__name__)

"""From responses to evaluation scales: fit, diagnose, drop, refit, and a record of decisions."""

from irtcat.scale._build import build
from irtcat.scale._result import Scale, Scales, file_name, file_names
from irtcat.scale._rules import COLUMNS, Rules
from irtcat.scale.bookmark import ordered_item_booklet

__all__ = [
    "COLUMNS",
    "Rules",
    "Scale",
    "Scales",
    "build",
    "file_name",
    "file_names",
    "ordered_item_booklet",
]

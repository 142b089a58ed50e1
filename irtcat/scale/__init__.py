"""From responses to evaluation scales: fit, diagnose, drop, refit, and a record of decisions."""

from irtcat.scale._build import build
from irtcat.scale._result import Scale, Scales, file_name
from irtcat.scale._rules import Rules

__all__ = ["Rules", "Scale", "Scales", "build", "file_name"]

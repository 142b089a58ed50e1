"""Difficulty filters: which training examples to keep, by difficulty or proportion correct."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.selection.filters import Rule
    from irtcat.training.filters.filtering import RULES, Filtered, RowsWritten, apply
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = ["RULES", "Filtered", "RowsWritten", "Rule", "apply"]

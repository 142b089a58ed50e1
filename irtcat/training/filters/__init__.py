"""Difficulty filters: which training examples to keep, by difficulty or proportion correct."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.selection.filters import Rule as Rule
    from irtcat.training.filters.filtering import RULES as RULES
    from irtcat.training.filters.filtering import Filtered as Filtered
    from irtcat.training.filters.filtering import RowsWritten as RowsWritten
    from irtcat.training.filters.filtering import apply as apply
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.selection.filters": "Rule",
            "irtcat.training.filters.filtering": "RULES Filtered RowsWritten apply",
        },
    )

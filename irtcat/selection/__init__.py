"""Selection of items to run: one table of strategies, one function."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.selection.dense import Scores, centred_scores
    from irtcat.selection.expectation import EXPECTATIONS, Expectation, expectation_of
    from irtcat.selection.extension import extended
    from irtcat.selection.file import read_subset
    from irtcat.selection.selecting import (
        DEFAULT_STRATEGY,
        DEFAULT_WITHOUT_RESPONSES,
        STRATEGIES,
        plain_request,
        rechoose,
        select,
    )
    from irtcat.selection.subset import Request, Subset
    from irtcat.selection.task import Choice, Strategy, Task
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "DEFAULT_STRATEGY",
    "DEFAULT_WITHOUT_RESPONSES",
    "EXPECTATIONS",
    "STRATEGIES",
    "Choice",
    "Expectation",
    "Request",
    "Scores",
    "Strategy",
    "Subset",
    "Task",
    "centred_scores",
    "expectation_of",
    "extended",
    "plain_request",
    "read_subset",
    "rechoose",
    "select",
]

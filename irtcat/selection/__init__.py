"""Selection of items to run: one table of strategies, one function."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.selection.dense import Scores as Scores
    from irtcat.selection.dense import centred_scores as centred_scores
    from irtcat.selection.expectation import EXPECTATIONS as EXPECTATIONS
    from irtcat.selection.expectation import Expectation as Expectation
    from irtcat.selection.expectation import expectation_of as expectation_of
    from irtcat.selection.reading import read_subset as read_subset
    from irtcat.selection.repeating import extended as extended
    from irtcat.selection.repeating import plain_request as plain_request
    from irtcat.selection.repeating import rechoose as rechoose
    from irtcat.selection.selecting import select as select
    from irtcat.selection.strategies import DEFAULT_STRATEGY as DEFAULT_STRATEGY
    from irtcat.selection.strategies import DEFAULT_WITHOUT_RESPONSES as DEFAULT_WITHOUT_RESPONSES
    from irtcat.selection.strategies import STRATEGIES as STRATEGIES
    from irtcat.selection.subset import Request as Request
    from irtcat.selection.subset import Subset as Subset
    from irtcat.selection.task import Choice as Choice
    from irtcat.selection.task import Strategy as Strategy
    from irtcat.selection.task import Task as Task
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.selection.dense": "Scores centred_scores",
            "irtcat.selection.expectation": "EXPECTATIONS Expectation expectation_of",
            "irtcat.selection.reading": "read_subset",
            "irtcat.selection.repeating": "extended plain_request rechoose",
            "irtcat.selection.selecting": "select",
            "irtcat.selection.strategies": "DEFAULT_STRATEGY DEFAULT_WITHOUT_RESPONSES STRATEGIES",
            "irtcat.selection.subset": "Request Subset",
            "irtcat.selection.task": "Choice Strategy Task",
        },
    )

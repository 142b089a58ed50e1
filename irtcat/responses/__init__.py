"""The `Responses` class: who answered what; build, validate, subset, split, summarise, save."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.responses import datasets as datasets
    from irtcat.responses._summary import Flag as Flag
    from irtcat.responses._summary import ResponsesSummary as ResponsesSummary
    from irtcat.responses._table import BASE_ITEM as BASE_ITEM
    from irtcat.responses.judgements import combine_judges as combine_judges
    from irtcat.responses.responses import Responses as Responses
    from irtcat.responses.responses import frame_table as frame_table
    from irtcat.responses.responses import long_responses as long_responses
    from irtcat.responses.responses import read_npz as read_npz
    from irtcat.responses.responses import responses_of as responses_of
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.responses": "datasets",
            "irtcat.responses._summary": "Flag ResponsesSummary",
            "irtcat.responses._table": "BASE_ITEM",
            "irtcat.responses.judgements": "combine_judges",
            "irtcat.responses.responses": "Responses frame_table long_responses read_npz "
            "responses_of",
        },
    )

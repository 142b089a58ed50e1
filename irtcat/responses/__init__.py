"""The `Responses` class: who answered what; build, validate, subset, split, summarise, save."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.responses import datasets
    from irtcat.responses._summary import Flag
    from irtcat.responses.judgements import combine_judges
    from irtcat.responses.responses import (
        BASE_ITEM,
        Responses,
        ResponsesSummary,
        frame_table,
        long_responses,
        read_npz,
        responses_of,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "BASE_ITEM",
    "Flag",
    "Responses",
    "ResponsesSummary",
    "combine_judges",
    "datasets",
    "frame_table",
    "long_responses",
    "read_npz",
    "responses_of",
]

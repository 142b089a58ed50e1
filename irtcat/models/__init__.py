"""Item models: the table of models, and functions for all of them."""

from irtcat._checks import check_choice
from irtcat.models._base import (
    CategoricalModel,
    Design,
    ItemModel,
    Param,
    as_points,
    column_names,
    design_of,
    expected_responses,
    field_columns,
    free_parameters,
    in_precision,
    item_categories,
    log_probabilities,
    pack,
    parameter_matrix,
    parameter_names,
    probabilities,
    response_variances,
    simulate,
    steepest_slope,
    take,
    unpack,
)
from irtcat.models._filled import filled
from irtcat.models._links import LinkModel
from irtcat.models.continuous import EDGES, Beta
from irtcat.models.counts import Binomial, pack_counts, unpack_counts
from irtcat.models.feasibility import Feasibility
from irtcat.models.graded import Graded
from irtcat.models.known import categorical_items, logistic_items, multidimensional_items
from irtcat.models.logistic import FourPL, OnePL, Rasch, ThreePL, TwoPL
from irtcat.models.mixed import (
    MIXABLE,
    Mixed,
    as_mixed,
    member_columns,
    mixture,
    mixture_named,
)
from irtcat.models.multidimensional import (
    PLANES,
    Bifactor,
    MThreePL,
    MTwoPL,
    has_several,
    is_bifactor,
)
from irtcat.models.nominal import Nominal
from irtcat.models.partial_credit import (
    GPCM,
    CommonPartialCredit,
    CommonRatingScale,
    PartialCredit,
    RatingScale,
)

__all__ = [
    "EDGES",
    "GPCM",
    "MIXABLE",
    "MODELS",
    "PLANES",
    "STANDARD_FORM",
    "Beta",
    "Bifactor",
    "Binomial",
    "CategoricalModel",
    "CommonPartialCredit",
    "CommonRatingScale",
    "Design",
    "Feasibility",
    "FourPL",
    "Graded",
    "ItemModel",
    "LinkModel",
    "MThreePL",
    "MTwoPL",
    "Mixed",
    "Nominal",
    "OnePL",
    "Param",
    "PartialCredit",
    "Rasch",
    "RatingScale",
    "ThreePL",
    "TwoPL",
    "as_mixed",
    "as_points",
    "categorical_items",
    "column_names",
    "design_of",
    "expected_responses",
    "field_columns",
    "filled",
    "free_parameters",
    "get_model",
    "has_several",
    "in_precision",
    "is_bifactor",
    "item_categories",
    "log_probabilities",
    "logistic_items",
    "member_columns",
    "mixture",
    "model_from_key",
    "multidimensional_items",
    "pack",
    "pack_counts",
    "parameter_matrix",
    "parameter_names",
    "probabilities",
    "response_variances",
    "simulate",
    "steepest_slope",
    "take",
    "unpack",
    "unpack_counts",
]

MODELS: dict[str, type[ItemModel]] = {
    cls.key: cls
    for cls in (
        Rasch,
        OnePL,
        TwoPL,
        ThreePL,
        FourPL,
        Feasibility,
        Graded,
        GPCM,
        PartialCredit,
        RatingScale,
        Nominal,
        MTwoPL,
        MThreePL,
        Bifactor,
        Binomial,
        Beta,
    )
}

STANDARD_FORM: dict[type[ItemModel], type[ItemModel]] = {
    Rasch: OnePL,
    PartialCredit: CommonPartialCredit,
    RatingScale: CommonRatingScale,
}
"""Models with slopes of 1, whose population SD is estimated, and the models fitted in their place:
the same curves with one common slope on the scale where the SD is 1. All other parameters are the
same in both."""


def get_model(name: str) -> type[ItemModel]:
    """The class for a name in `MODELS` (case-insensitive)."""
    key = name.lower() if isinstance(name, str) else name
    check_choice("model", key, MODELS)
    return MODELS[key]


def model_from_key(name: str) -> type[ItemModel]:
    """The class for the model key of a bank: a key of `MODELS`, or several joined by "+"."""
    return mixture_named(name) if isinstance(name, str) and "+" in name else get_model(name)

"""Item models: the table of models, and functions for all of them."""

from irtcat._checks import check_choice
from irtcat.models._base import (
    CategoricalModel,
    Design,
    ItemModel,
    Param,
    Parameter,
    as_points,
    category_parameters,
    column_names,
    design_of,
    expected_responses,
    field_columns,
    free_parameters,
    in_precision,
    item_categories,
    log_probabilities,
    measured,
    pack,
    parameter_matrix,
    parameter_names,
    probabilities,
    response_variances,
    restricted,
    simulate,
    steepest_slope,
    steepest_slopes,
    take,
    tied_parameters,
    unpack,
)
from irtcat.models._filled import filled
from irtcat.models._links import Asymptotes, LinkModel
from irtcat.models.continuous import EDGES, Beta
from irtcat.models.counts import Binomial, pack_counts, unpack_counts
from irtcat.models.graded import Graded
from irtcat.models.known import categorical_items, logistic_items, multidimensional_items
from irtcat.models.logistic import Feasibility, FourPL, OnePL, Rasch, ThreePL, TwoPL
from irtcat.models.mixed import (
    MIXABLE,
    Mixed,
    as_mixed,
    member_columns,
    mixture,
    mixture_named,
)
from irtcat.models.nominal import Nominal
from irtcat.models.partial_credit import (
    GPCM,
    GeneralisedRatingScale,
    PartialCredit,
    RatingScale,
)

__all__ = [
    "ALIASES",
    "EDGES",
    "GPCM",
    "MIXABLE",
    "MODELS",
    "STANDARD_FORM",
    "Asymptotes",
    "Beta",
    "Binomial",
    "CategoricalModel",
    "Design",
    "Feasibility",
    "FourPL",
    "GeneralisedRatingScale",
    "Graded",
    "ItemModel",
    "LinkModel",
    "Mixed",
    "Nominal",
    "OnePL",
    "Param",
    "Parameter",
    "PartialCredit",
    "Rasch",
    "RatingScale",
    "ThreePL",
    "TwoPL",
    "as_mixed",
    "as_points",
    "categorical_items",
    "category_parameters",
    "column_names",
    "design_of",
    "expected_responses",
    "field_columns",
    "filled",
    "fitted_form",
    "free_parameters",
    "get_model",
    "in_precision",
    "item_categories",
    "log_probabilities",
    "logistic_items",
    "measured",
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
    "restricted",
    "simulate",
    "steepest_slope",
    "steepest_slopes",
    "take",
    "tied_parameters",
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
        Binomial,
        Beta,
    )
}

STANDARD_FORM: dict[type[ItemModel], type[ItemModel]] = {
    Rasch: OnePL,
    PartialCredit: GPCM,
    RatingScale: GeneralisedRatingScale,
}
"""Models with slopes of 1, whose population SD is estimated, and the models fitted in their place:
the same curves with one common slope on the scale where the SD is 1. All other parameters are the
same in both."""


def fitted_form(cls: type[ItemModel]) -> tuple[type[ItemModel], tuple[str, ...]]:
    """The class that is fitted for a model, and the parameters that all items share in the fit."""
    form = STANDARD_FORM.get(cls, cls)
    shared = (*tied_parameters(form), *(("slope",) if cls in STANDARD_FORM else ()))
    return form, tuple(dict.fromkeys(shared))


ALIASES = {"m2pl": "2pl", "m3pl": "3pl", "bifactor": "2pl"}
"""Names of models of several abilities, and the models that they are cases of."""


def get_model(name: str) -> type[ItemModel]:
    """The class for a name in `MODELS` or `ALIASES` (case-insensitive)."""
    key = name.lower() if isinstance(name, str) else name
    check_choice("model", key, (*MODELS, *ALIASES))
    return MODELS[ALIASES.get(key, key)]


def model_from_key(name: str) -> type[ItemModel]:
    """The class for the model key of a bank: a key of `MODELS`, or several joined by "+"."""
    return mixture_named(name) if isinstance(name, str) and "+" in name else get_model(name)

"""Item models: the table of models, the classes to derive others from, and functions for all."""

# ruff: noqa: F401
# Names besides those of `__all__` are for irtcat's other packages: they may change in any release.

from irtcat._common.lazy import public_names
from irtcat.models.base import (
    CategoricalModel,
    Design,
    ItemModel,
    Param,
    Parameter,
    ability_points,
    as_points,
    category_parameters,
    column_names,
    design_of,
    evaluated,
    expected_responses,
    field_columns,
    filled,
    free_parameters,
    has_bifactor_slopes,
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
from irtcat.models.continuous import EDGES, Beta
from irtcat.models.counts import Binomial, pack_counts, unpack_counts
from irtcat.models.graded import Graded
from irtcat.models.links import CUMULATIVE, SOFTMAX, Asymptotes, GradedModel, Link, LinkModel
from irtcat.models.logistic import BinaryModel, Feasibility, FourPL, OnePL, Rasch, ThreePL, TwoPL
from irtcat.models.mixed import (
    MIXABLE,
    Mixed,
    as_member,
    as_mixed,
    item_models,
    member_columns,
    mixture,
)
from irtcat.models.nominal import Nominal
from irtcat.models.partial_credit import GPCM, PartialCredit, RatingScale
from irtcat.models.published import (
    binary_items,
    categorical_items,
    credit_items,
    graded_items,
    logistic_items,
    multidimensional_items,
    nominal_items,
)
from irtcat.models.registry import (
    ALIASES,
    MODELS,
    STANDARD_FORM,
    fitted_form,
    get_model,
    model_from_key,
)
from irtcat.models.slopes import INTERCEPT, SLOPE, Slopes, standard_scale

__all__ = [
    "CUMULATIVE",
    "GPCM",
    "INTERCEPT",
    "MODELS",
    "SLOPE",
    "SOFTMAX",
    "Asymptotes",
    "Beta",
    "BinaryModel",
    "Binomial",
    "CategoricalModel",
    "Design",
    "Feasibility",
    "FourPL",
    "Graded",
    "GradedModel",
    "ItemModel",
    "Link",
    "LinkModel",
    "Mixed",
    "Nominal",
    "OnePL",
    "Param",
    "Parameter",
    "PartialCredit",
    "Rasch",
    "RatingScale",
    "Slopes",
    "ThreePL",
    "TwoPL",
    "column_names",
    "expected_responses",
    "get_model",
    "item_categories",
    "item_models",
    "log_probabilities",
    "pack",
    "parameter_names",
    "probabilities",
    "response_variances",
    "simulate",
    "take",
    "unpack",
]


__dir__ = public_names(__name__)

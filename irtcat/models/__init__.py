"""Item models: the one table, and what holds for every row of it."""

from irtcat._checks import check_choice
from irtcat.models._base import (
    ItemModel,
    log_probabilities,
    pack,
    parameter_names,
    probabilities,
    simulate,
    take,
    unpack,
)
from irtcat.models.logistic import FourPL, OnePL, Rasch, ThreePL, TwoPL

__all__ = [
    "MODELS",
    "FourPL",
    "ItemModel",
    "OnePL",
    "Rasch",
    "ThreePL",
    "TwoPL",
    "get_model",
    "log_probabilities",
    "pack",
    "parameter_names",
    "probabilities",
    "simulate",
    "take",
    "unpack",
]

MODELS: dict[str, type[ItemModel]] = {
    cls.key: cls for cls in (Rasch, OnePL, TwoPL, ThreePL, FourPL)
}


def get_model(name: str) -> type[ItemModel]:
    """The class behind a name of `MODELS` (upper and lower case alike)."""
    key = name.lower() if isinstance(name, str) else name
    check_choice("model", key, MODELS)
    return MODELS[key]

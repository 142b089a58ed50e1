"""The table of item models, to which other packages add classes."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from irtcat._common.checks import argument_error, check_choice
from irtcat._common.registry import Registry
from irtcat.models.base import ItemModel, Parameter, parameter_names, tied_parameters
from irtcat.models.continuous import Beta
from irtcat.models.counts import Binomial
from irtcat.models.graded import Graded
from irtcat.models.links import Link, LinkModel
from irtcat.models.logistic import Feasibility, FourPL, OnePL, Rasch, ThreePL, TwoPL
from irtcat.models.mixed import mixture_named
from irtcat.models.nominal import Nominal
from irtcat.models.partial_credit import GPCM, GeneralisedRatingScale, PartialCredit, RatingScale

ALIASES = {"m2pl": "2pl", "m3pl": "3pl", "bifactor": "2pl"}
"""Names of models of several abilities, and the models that they are cases of."""

TAKES = ("right/wrong", "graded", "counts", "fractions")
"""Types of responses."""


class ModelRegistry(Registry[type[ItemModel]]):
    """Item models by key; the rows are the classes themselves."""

    def __init__(self, rows: Iterable[type[ItemModel]]) -> None:
        headers = ("model", "responses", "parameters", "curve")
        super().__init__("irtcat.models", type, headers, rows)

    def name_of(self, row: type[ItemModel]) -> str:
        """The model's key."""
        return row.key

    def cells_of(self, row: type[ItemModel]) -> tuple[str, ...]:
        """What it takes, its parameters, and the first line of its docstring."""
        return row.takes, ", ".join(row.parameters), (row.__doc__ or "").partition("\n")[0]

    def check(self, row: Any) -> None:
        """Raise unless this is a complete item model."""
        if not (isinstance(row, type) and issubclass(row, ItemModel)):
            raise argument_error("row", "a class derived from ItemModel", row)

        def fault(must: str, got: Any) -> Exception:
            return argument_error("row", f"an item model {must}", f"{row.__name__}: {got}")

        names = ("__abstractmethods__", "__abstractvars__", "__abstractclassvars__")
        missing = sorted(frozenset().union(*(getattr(row, name) for name in names)))
        if missing:
            raise fault("that defines all of its interface", f"no {', '.join(missing)}")
        # Shortcuts for a model are taken for all instances, so also for those of derived classes.
        models = [base.__name__ for base in row.__mro__[1:] if base in self._rows.values()]
        if models:
            raise fault("that is not derived from another", models[0])
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", str(row.key)) or row.key in ALIASES:
            must = f"whose key has small letters, digits and dashes, and is none of {[*ALIASES]}"
            raise fault(must, row.key)
        if row.takes not in TAKES:
            raise fault(f"that takes one of {', '.join(TAKES)}", row.takes)
        fields = {field.name for field in dataclasses.fields(row)}
        unlisted = (set(parameter_names(row)) ^ set(row.parameters)) | (set(row.fixed) - fields)
        if unlisted:
            must = "whose fields are each in `parameters` or in `fixed`, and no other names"
            raise fault(must, ", ".join(sorted(unlisted)))
        if issubclass(row, LinkModel) and not isinstance(row.link, Link):
            raise fault("whose link is an instance of Link", row.link)
        if issubclass(row, LinkModel) and row.one_per_item not in fields:
            raise fault("whose `one_per_item` names a field", row.one_per_item)
        wrong = [name for name, of in row.parameters.items() if not isinstance(of, Parameter)]
        if wrong:
            raise fault("whose `parameters` are of class Parameter", row.parameters[wrong[0]])


MODELS = ModelRegistry(
    (
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
)
"""Item models by key; to add one, write a class and add it."""

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


def get_model(name: str) -> type[ItemModel]:
    """The class for a name in `MODELS` or `ALIASES` (case-insensitive)."""
    key = name.lower() if isinstance(name, str) else ""
    key = ALIASES.get(key, key)
    if key not in MODELS:
        check_choice("model", name, (*MODELS, *ALIASES))
    return MODELS[key]


def model_from_key(name: str) -> type[ItemModel]:
    """The class for the model key of a bank: a key of `MODELS`, or several joined by "+"."""
    return mixture_named(name) if isinstance(name, str) and "+" in name else get_model(name)

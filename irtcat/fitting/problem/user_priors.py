"""Priors and fixed values of parameters, as the caller states them by name."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, brief
from irtcat._common.types import FloatArray, IntArray
from irtcat.models import ItemModel, column_names, field_columns, free_parameters, tied_parameters

FAMILIES = ("normal", "lognormal", "beta")
"""Families of priors; their numbers are those in `Constraints.family`."""

ALIASES = {"a": "slope", "c": "logit_lower", "d": "logit_upper"}
LARGEST_LOGIT = 30.0
"""Stands for an infinite logit, of a fixed asymptote of 0 or 1."""


class StatedPrior(NamedTuple):
    """A prior of one parameter for each item.

    Attributes:
        family: number of the family in `FAMILIES`; -1 where there is no prior.
        first: mean, mean of the logarithm, or alpha.
        second: SD, SD of the logarithm, or beta.
        description: as stated where all items share it, else the number of items that have one.
    """

    family: IntArray
    first: FloatArray
    second: FloatArray
    description: Any


def canonical(argument: str, name: Any, names: tuple[str, ...]) -> str:
    """The parameter that a name or its alias denotes.

    Raises:
        InputError: for b, which is not a parameter, or a name the model does not have.
    """
    if name == "b" and "intercept" in names:
        raise argument_error(
            argument, f"about {', '.join(names)}", "b", "The intercept is -a b: state that."
        )
    real = name if name in names else ALIASES.get(name, name)
    if real not in names:
        raise argument_error(argument, f"a mapping with keys among {', '.join(names)}", name)
    return real


def _parse_prior(
    argument: str, parameter: str, value: Any, on_unit: bool
) -> tuple[int, float, float]:
    """Family and numbers of one prior."""
    family, numbers = "normal", value
    if isinstance(value, (tuple, list)) and len(value) == 3:
        family, numbers = value[0], value[1:]
    if family not in FAMILIES:
        raise argument_error(argument, f"of a family among {', '.join(FAMILIES)}", family)
    try:
        pair = np.asarray(numbers, float)
    except (TypeError, ValueError):
        pair = np.zeros(0)
    good = pair.shape == (2,) and np.isfinite(pair).all()
    if on_unit and family != "beta":
        advice = f"Normal priors are on {parameter}."
        raise argument_error(argument, '("beta", alpha, beta)', value, advice)
    if family == "beta":
        if not parameter.startswith("logit_"):
            raise argument_error(argument, "Normal or lognormal: Beta is for c and d", value)
        if not good or (pair < 1).any():
            raise argument_error(argument, '("beta", alpha, beta), both 1 or more', value)
    elif not good or pair[1] <= 0:
        raise argument_error(argument, "(mean, SD) with SD above 0, or None", value)
    if family == "lognormal" and parameter != "slope":
        raise argument_error(argument, "Normal: a lognormal prior is for slopes", value)
    return FAMILIES.index(family), float(pair[0]), float(pair[1])


def stated_prior(
    name: Any, value: Any, names: tuple[str, ...], item_ids: np.ndarray
) -> tuple[str, StatedPrior | None]:
    """The parameter and its prior, from one entry of ``priors``.

    Raises:
        InputError: for an unknown parameter, item or family, or numbers out of range.
    """
    parameter = canonical("priors", name, names)
    argument = f"priors[{name!r}]"
    if value is None:
        return parameter, None
    n, on_unit = len(item_ids), name in ("c", "d")
    family, first, second = np.full(n, -1), np.zeros(n), np.ones(n)
    if isinstance(value, pd.DataFrame):
        if not {"mean", "sd"} <= set(value.columns):
            raise argument_error(argument, "a table with columns mean and sd", list(value.columns))
        value = {item: (row["mean"], row["sd"]) for item, row in value.iterrows()}
    if not isinstance(value, Mapping):
        family[:], first[:], second[:] = _parse_prior(argument, parameter, value, on_unit)
        return parameter, StatedPrior(family, first, second, tuple(value))
    at = {str(item): j for j, item in enumerate(item_ids)}
    for item, one in value.items():
        if str(item) not in at:
            raise argument_error(argument, "about items of the responses", item)
        j = at[str(item)]
        family[j], first[j], second[j] = _parse_prior(
            f"{argument}[{item!r}]", parameter, one, on_unit
        )
    return parameter, StatedPrior(family, first, second, f"by item ({len(value)})")


def check_equal(equal: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """The parameters that all items share, by their full names.

    Raises:
        InputError: for a parameter the model does not have.
    """
    if isinstance(equal, str):
        equal = (equal,)
    return tuple(dict.fromkeys(canonical("equal", name, names) for name in equal))


def fixed_values(
    fixed: Mapping[str, Any],
    template: ItemModel,
    names: tuple[str, ...],
    item_ids: np.ndarray,
    equal: tuple[str, ...] = (),
) -> FloatArray:
    """Fixed unconstrained parameters, items x params; NaN where a parameter is free.

    ``a`` stands for the slope; ``c`` and ``d`` are probabilities, converted to logits.

    Raises:
        InputError: for an unknown parameter or item, or a value out of range.
    """
    columns = column_names(template)
    out = np.full((len(item_ids), len(columns)), np.nan)
    at = {str(item): j for j, item in enumerate(item_ids)}
    has = free_parameters(template)
    first_name: dict[str, str] = {}
    for name, value in fixed.items():
        parameter = canonical("fixed", name, names)
        where = list(field_columns(template, [parameter]))
        by_item = value if isinstance(value, Mapping) else dict.fromkeys(at, value)
        if parameter in first_name:
            raise argument_error("fixed", f"of {parameter} once", [first_name[parameter], name])
        first_name[parameter] = name
        numbers = {
            item: _fixed_number(f"fixed[{name!r}]", name, one) for item, one in by_item.items()
        }
        shared = parameter in (*tied_parameters(template), *equal)
        if shared and (len(by_item) < len(at) or len(set(numbers.values())) > 1):
            raise argument_error(
                f"fixed[{name!r}]", "one number: all items share the parameter", value
            )
        for item, number in numbers.items():
            if str(item) not in at:
                raise argument_error(f"fixed[{name!r}]", "about items of the responses", item)
            row = at[str(item)]
            if template.members and isinstance(value, Mapping) and not has[row, where].any():
                advice = f"The model of {brief(item)} has no such parameter."
                raise argument_error("fixed", f"about items that have {name}", item, advice)
            out[row, where] = number
    return np.where(has, out, np.nan) if template.members else out


def check_fixed(
    fixed: FloatArray, constraints: Any, template: ItemModel, item_ids: np.ndarray
) -> None:
    """Raise for slopes beyond the bound of estimated ones: too steep for the grid."""
    most = np.asarray(constraints.upper, float)
    for column in field_columns(template, ["slope"]):
        steep = np.flatnonzero(np.abs(fixed[:, column]) > most[column])
        if len(steep):
            got = f"{fixed[steep[0], column]:g} for {item_ids[steep[0]]}"
            raise argument_error("fixed['slope']", f"at most {most[column]:g}", got)


def _fixed_number(argument: str, name: str, value: Any) -> float:
    """A fixed value on the unconstrained scale."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise argument_error(argument, "a finite number", value)
    if name not in ("c", "d"):
        return number
    if not 0 <= number <= 1:
        raise argument_error(argument, "in [0, 1]", value)
    with np.errstate(divide="ignore"):
        logit = np.log(number) - np.log1p(-number)
    return float(np.clip(logit, -LARGEST_LOGIT, LARGEST_LOGIT))

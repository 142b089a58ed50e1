"""Priors, bounds and fixed values of parameters: as the caller states them, and in a fit."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from jax import device_put

from irtcat._common.checks import InputError, argument_error, brief
from irtcat._common.precision import precision as precision_of
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.fitting.em.m_step import Constraints
from irtcat.fitting.em.start import Start
from irtcat.models import (
    ItemModel,
    category_parameters,
    column_names,
    field_columns,
    free_parameters,
    item_categories,
    parameter_matrix,
    parameter_names,
    standard_scale,
    tied_parameters,
    unpack,
)

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
    out = np.full((len(item_ids), len(column_names(template))), np.nan)
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


FEW_RESPONSES = 50
FEW_RARE = 10
FEW_SUBJECTS = 30
FEW_SLOPES = ("lognormal", 0.0, 0.5)
"""Prior of the slopes in fits of fewer than `FEW_SUBJECTS` subjects."""
SMALLEST_POSITIVE_SLOPE = 1e-3
UNUSED = "unused categories"
"""Key of `Fit.priors` for the categories that nobody used."""


class PriorTable(NamedTuple):
    """The constraints of a fit and their description.

    Attributes:
        constraints: arrays for the M-step.
        sparse: items with weak priors.
        empty: unused categories of each item, categories x items.
        held: parameters of such categories, held where their probability is near 0.
        informed: parameters that some response informs: not those of such categories, nor of
            items that nobody answered or all answered alike.
        aside: the sparse items where they are a minority: they are then estimated from abilities
            that depend on the other items only. All False otherwise.
        scaled: whether the latent scale depends on priors on slope or intercept.
        few_subjects: whether few subjects are fitted with a prior on each slope: the population is
            then estimated once the items are, since together the priors outweigh the subjects in
            what fixes the scale.
        description: parameter name -> (mean, SD), as stated in the result.
        tied: columns of parameters that all items share; their one prior is in the row of one item.
    """

    constraints: Constraints
    sparse: BoolArray
    empty: BoolArray
    held: BoolArray
    informed: BoolArray
    aside: BoolArray
    scaled: bool
    few_subjects: bool
    description: dict[str, Any]
    tied: tuple[int, ...] = ()

    def without(self, known: BoolArray) -> "PriorTable":
        """The same with the parameters ``known`` fixed and without priors."""
        if not known.any():
            return self
        old = self.constraints
        free, precision = np.array(old.free), np.array(old.prior_precision)
        mean = np.array(old.prior_mean)
        family = None if old.family is None else np.array(old.family)
        # The prior of a shared parameter moves to an item that remains free.
        for column in self.tied:
            here = np.flatnonzero(precision[:, column] > 0)
            left = np.flatnonzero(free[:, column] & ~known[:, column] & ~self.aside)
            if len(here) and known[here[0], column] and len(left):
                for table in (mean, precision, family):
                    if table is not None:
                        table[left[0], column] = table[here[0], column]
        free[known], precision[known] = False, 0
        if family is not None:
            family[known] = 0
        arrays = device_put(
            {"free": free, "prior_precision": precision, "prior_mean": mean, "family": family}
        )
        has_free = ~known.all(axis=1)
        return self._replace(
            constraints=old._replace(**arrays),
            sparse=self.sparse & has_free,
            empty=self.empty & has_free,
            held=self.held & ~known,
            aside=self.aside & has_free,
        )

    def with_held(self, template: ItemModel, params: FloatArray) -> FloatArray:
        """First guesses with the held parameters at their values."""
        if not self.held.any():
            return params
        where = self.empty.T & self.held.any(axis=1, keepdims=True)
        with precision_of("float64"):
            plain = unpack(jax.tree.map(np.asarray, template), np.asarray(params, float))
            return parameter_matrix(plain.hold_unused(where)[0]).astype(float)


def check_priors(
    priors: Mapping[str, Any], names: tuple[str, ...], item_ids: np.ndarray | None = None
) -> None:
    """Raise unless every prior names a parameter and is of a known family, or None."""
    for name, value in priors.items():
        stated_prior(name, value, names, np.zeros(0, str) if item_ids is None else item_ids)


def _rescaled(template: ItemModel, params: FloatArray) -> FloatArray:
    """Change of the parameters under a change of the latent mean and SD."""
    model, (zero, unit) = unpack(template, params), standard_scale(template.dims)
    moved, same = model.rescale(zero + 0.3, 1.7 * unit), model.rescale(zero, unit)
    return parameter_matrix(moved) - parameter_matrix(same)


def _examples(template: ItemModel) -> list[int]:
    """One item of each model present, with the largest number of categories."""
    categories = item_categories(template)
    kind = np.asarray(getattr(template, "kind", np.zeros(len(categories), int)))
    return [int(np.where(kind == m, categories, -1).argmax()) for m in np.unique(kind)]


def scale_columns(template: ItemModel, params: FloatArray) -> tuple[int, ...]:
    """Columns of the parameters that depend on the latent mean or SD."""
    with precision_of("float64"):
        at = _examples(template)
        examples = jax.tree.map(lambda leaf: np.asarray(leaf)[at], template)
        moved = _rescaled(examples, np.asarray(params[at] + 0.5, float))
    return tuple(np.flatnonzero(np.abs(moved).max(0) > 1e-9).tolist())


def _check_used(template: ItemModel, empty: BoolArray) -> None:
    """Reject a category that nobody used in any item where all items share its parameter."""
    shared = template.is_polytomous and not category_parameters(template) and len(empty) > 2
    if shared and empty.all(axis=1).any():
        unused = np.flatnonzero(empty.all(axis=1))
        raise InputError(
            f"The {template.key} model needs responses in every category, but nobody "
            f"used category number {unused[0] + 1}. Leave its code out, or use another model."
        )


def ties_fix_the_scale(template: ItemModel, tied: tuple[int, ...]) -> bool:
    """Whether equal parameters would become unequal when the latent mean and SD are removed."""
    if not tied:
        return False
    with precision_of("float64"):
        pair = jax.tree.map(lambda leaf: np.asarray(leaf)[[0, 0]], template)
        params = parameter_matrix(pair).astype(float)
        params = params + np.linspace(0.2, 0.9, params.size).reshape(params.shape)
        params[1, list(tied)] = params[0, list(tied)]
        off = np.ptp(_rescaled(pair, params), axis=0)[list(tied)]
    return bool((off > 1e-9).any())


def _keep_one(
    column: int, tables: tuple[np.ndarray, ...], counting: BoolArray, names: tuple[str, ...]
) -> None:
    """Keep the prior of a shared parameter on one item only, one that counts (in place)."""
    mean, precision, family = tables
    have = np.flatnonzero(precision[:, column] > 0)
    if not len(have):
        return
    stated = np.stack([table[have, column] for table in tables])
    if (stated != stated[:, :1]).any():
        raise argument_error(
            f"priors[{names[column]!r}]", "one for a parameter that all items share", "several"
        )
    first = np.flatnonzero(counting)[:1] if counting.any() else have[:1]
    precision[:, column], family[:, column] = 0.0, 0
    mean[first, column], precision[first, column], family[first, column] = stated[:, 0]


def prior_table(
    template: ItemModel,
    start: Start,
    priors: Mapping[str, Any] | None,
    weak_priors: bool,
    positive: bool,
    dtype: np.dtype,
    item_ids: np.ndarray | None = None,
    equal: tuple[str, ...] = (),
    few_subjects: bool = False,
) -> PriorTable:
    """Choose the priors: the model's defaults, then the caller's, then weak ones for sparse items.

    An item is sparse when it has fewer than 50 responses, or when fewer than 10 subjects gave an
    answer other than the most frequent one; constant items are sparse. Its slope and intercept then
    get the priors N(1, 1) and N(0, 3), the logarithm of a Beta item's precision N(2.5, 1.5), unless
    the caller's priors already cover them, so that a finite estimate exists whatever the responses.
    In other items the parameters of a category that nobody used are held (`ItemModel.hold_unused`).

    Args:
        template: the items.
        start: counts of the responses.
        priors: parameter name -> prior (see `irtcat.fit`), or None to switch a default prior off.
        weak_priors: whether sparse items get weak priors.
        positive: whether slopes must be above 0.
        dtype: working precision.
        item_ids: the items' ids, for priors by item.
        equal: parameters that all items share, in addition to the model's tied ones.
        few_subjects: whether subjects are so few that the slopes of single items get the prior
            `FEW_SLOPES` by default.

    Returns:
        The table.
    """
    names, counts, item_n = column_names(template), start.counts, start.item_n
    n_items = len(item_n)
    ids = np.arange(n_items).astype(str) if item_ids is None else item_ids
    tied_names = (*tied_parameters(template), *equal)
    tied = field_columns(template, tied_names)
    slopes = list(field_columns(template, ["slope"]))
    few_subjects &= len(slopes) == 1 and "slope" not in tied_names
    stated = _stated_priors(template, priors, few_subjects, ids)
    free = free_parameters(template)
    if template.members and not free[:, list(tied)].all():
        must = "of parameters that every item has"
        raise argument_error("equal", must, equal, "The items are of several models.")
    rare = counts.sum(0) - counts.max(0)
    sparse = (item_n < FEW_RESPONSES) | (rare < FEW_RARE)
    sparse &= weak_priors
    mean, precision, family = _prior_arrays(template, stated, sparse, tied)
    few_subjects &= "slope" in stated and bool((precision[:, slopes] > 0).all())
    has = np.arange(len(counts))[:, None] < item_categories(template)
    empty = has & (counts == 0) & (counts.sum(0) > 0)
    _check_used(template, empty)
    constant = start.constant
    with precision_of("float64"):  # parameters that belong only to unused categories
        of_unused = jax.tree.map(np.asarray, template).hold_unused(empty.T & ~constant[:, None])
    uninformed = of_unused[1]
    held = uninformed & ~sparse[:, None]
    # Parameters that items share, or that have a prior, are still estimated.
    held &= ~(held & (precision > 0)).any(axis=1, keepdims=True) & ~held[:, list(tied)].any()
    uninformed &= ~held[:, list(tied)].any()
    informed = ~(uninformed | constant[:, None])
    free = free & ~held
    precision[~free], family[~free] = 0.0, 0
    # Weak priors on many items would dominate the latent scale of few subjects. Where all slopes
    # have a prior all items count, as the population is estimated afterwards.
    aside = sparse & (sparse.mean() < 0.5) & (not few_subjects)
    for column in tied:
        _keep_one(column, (mean, precision, family), free[:, column] & ~aside, names)
    bounds = _bounds(template)
    lognormal = FAMILIES.index("lognormal")
    all_lognormal = bool((family[:, slopes] == lognormal).all()) and bool(slopes)
    if positive or "slope" in tied_names or all_lognormal:  # one slope for all points upwards
        bounds[slopes, 0] = SMALLEST_POSITIVE_SLOPE
    # One transfer: each takes as long as a hundredth of a small fit.
    arrays = device_put(
        {
            "prior_mean": mean.astype(dtype),
            "prior_precision": precision.astype(dtype),
            "free": free,
            "lower": bounds[:, 0].astype(dtype),
            "upper": bounds[:, 1].astype(dtype),
            "family": family if family.any() else None,
        }
    )
    counting = precision[~aside] > 0
    # Asked for priors only, as the columns of the scale need a compiled program.
    scaled = bool(counting.any() and counting[:, list(scale_columns(template, mean))].any())
    description = {name: prior.description for name, prior in stated.items()}
    if held.any():
        n_held = int(held.any(axis=1).sum())
        description[UNUSED] = f"held at a probability near 0 ({n_held} of {n_items} items)"
    return PriorTable(
        constraints=Constraints(**arrays),
        sparse=sparse,
        empty=empty,
        held=held,
        informed=informed,
        aside=aside,
        scaled=scaled,
        few_subjects=few_subjects,
        description=description,
        tied=tuple(tied),
    )


def _stated_priors(
    template: ItemModel, priors: Mapping[str, Any] | None, few_subjects: bool, ids: np.ndarray
) -> dict[str, StatedPrior]:
    """The model's default priors, that of the slopes of few subjects, and the caller's."""
    default: dict[str, Any] = {
        name: row.prior for name, row in template.parameters.items() if row.prior is not None
    }
    if few_subjects:
        default["slope"] = FEW_SLOPES
    stated: dict[str, StatedPrior] = {}
    for name, value in [*default.items(), *dict(priors or {}).items()]:
        parameter, prior = stated_prior(name, value, parameter_names(template), ids)
        stated.pop(parameter, None)
        if prior is not None:
            stated[parameter] = prior
    return stated


def _prior_arrays(
    template: ItemModel, stated: Mapping[str, StatedPrior], sparse: BoolArray, tied: tuple[int, ...]
) -> tuple[FloatArray, FloatArray, np.ndarray]:
    """First and second parameter and family of each prior, items x parameters.

    Parameters of sparse items that have no other prior get weak ones.
    """
    shape = len(sparse), len(column_names(template))
    mean, precision, family = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int32)
    for name, prior in stated.items():
        on = prior.family >= 0
        second = np.where(prior.family == FAMILIES.index("beta"), prior.second, prior.second**-2.0)
        for column in field_columns(template, [name]):
            mean[on, column], precision[on, column] = prior.first[on], second[on]
            family[on, column] = prior.family[on]
    for name, declared in template.parameters.items():
        for column in field_columns(template, [name]):
            if declared.weak_prior and column not in tied and not (precision[:, column] > 0).all():
                few = sparse & (precision[:, column] == 0)
                centre, sd = declared.weak_prior
                mean[few, column], precision[few, column] = centre, sd**-2.0
    return mean, precision, family


def _bounds(template: ItemModel) -> FloatArray:
    """Lower and upper bound of each parameter."""
    bounds = np.full((len(column_names(template)), 2), (-np.inf, np.inf))
    for name, declared in template.parameters.items():
        bounds[list(field_columns(template, [name]))] = declared.lower, declared.upper
    return bounds

"""Which priors and bounds a fit works under, decided once and written in the result."""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from irtcat._checks import argument_error
from irtcat._types import BoolArray, FloatArray
from irtcat.fitting._mstep import Constraints
from irtcat.models import ItemModel, parameter_names

__all__ = [
    "FEW_RARE",
    "FEW_RESPONSES",
    "WEAK_PRIORS",
    "PriorTable",
    "check_priors",
    "prior_table",
]

FEW_RESPONSES = 50
FEW_RARE = 10
WEAK_PRIORS = {"slope": (1.0, 1.0), "intercept": (0.0, 3.0)}
"""Priors of items with too few responses to be estimated from them alone."""

BOUNDS = {
    "slope": (-25.0, 25.0),
    "intercept": (-75.0, 75.0),
    "logit_lower": (-12.0, 3.0),
    "logit_upper": (-3.0, 12.0),
}
SMALLEST_POSITIVE_SLOPE = 1e-3


class PriorTable(NamedTuple):
    """The constraints of a fit and their description.

    Attributes:
        constraints: arrays for the M-step.
        sparse: items that are under the weak priors.
        aside: the same where they are the fewer: they are then estimated from the abilities that
            the other items tell, and have no say in these. All False otherwise.
        scaled: whether priors on slope or intercept have a say in the latent scale.
        description: parameter name -> (mean, SD), as stated in the result.
    """

    constraints: Constraints
    sparse: BoolArray
    aside: BoolArray
    scaled: bool
    description: dict[str, tuple[float, float]]


def check_priors(priors: Mapping[str, tuple[float, float] | None], names: tuple[str, ...]) -> None:
    """Raise unless every prior names a parameter and is (mean, SD) or None."""
    for name, value in priors.items():
        if name not in names:
            raise argument_error("priors", f"a mapping with keys among {', '.join(names)}", name)
        if value is None:
            continue
        pair = np.asarray(value, float)
        if pair.shape != (2,) or not np.isfinite(pair).all() or pair[1] <= 0:
            raise argument_error(f"priors[{name!r}]", "(mean, SD) with SD above 0, or None", value)


def prior_table(
    cls: type[ItemModel],
    item_right: FloatArray,
    item_n: FloatArray,
    priors: Mapping[str, tuple[float, float] | None] | None,
    weak_priors: bool,
    positive: bool,
    dtype: np.dtype,
) -> PriorTable:
    """Decide the priors: the model's own, then the caller's, then weak ones for sparse items.

    An item is sparse when it has fewer than 50 responses, or when its rarer answer was given by
    fewer than 10 subjects; constant items are. Its slope and intercept then get the priors
    N(1, 1) and N(0, 3) unless the caller's priors already cover them, so that a finite estimate
    exists whatever the responses.

    Args:
        cls: the item model's class.
        item_right: sum of each item's responses.
        item_n: number of each item's responses.
        priors: parameter name -> (mean, SD), or None to switch a default prior off (checked
            by `check_priors`).
        weak_priors: whether sparse items get the weak priors.
        positive: whether slopes must be above 0.
        dtype: working precision.

    Returns:
        The table.
    """
    names = parameter_names(cls)
    given = dict(priors or {})
    stated = {k: v for k, v in {**cls.default_priors, **given}.items() if v is not None}
    n_items = len(item_n)
    mean, precision = np.zeros((n_items, len(names))), np.zeros((n_items, len(names)))
    for name, (centre, sd) in stated.items():
        column = names.index(name)
        mean[:, column], precision[:, column] = centre, sd**-2.0
        if name in cls.tied:
            precision[1:, column] = 0.0  # one shared parameter has one prior
    rare = np.minimum(item_right, item_n - item_right)
    sparse = (item_n < FEW_RESPONSES) | (rare < FEW_RARE)
    sparse &= weak_priors
    for name, (centre, sd) in WEAK_PRIORS.items():
        if name in names and name not in stated and name not in cls.tied:
            column = names.index(name)
            mean[sparse, column], precision[sparse, column] = centre, sd**-2.0
    bounds = np.array([BOUNDS.get(name, (-np.inf, np.inf)) for name in names])
    if "slope" in names and (positive or "slope" in cls.tied):  # one slope for all points upwards
        bounds[names.index("slope"), 0] = SMALLEST_POSITIVE_SLOPE
    constraints = Constraints(
        jnp.asarray(mean, dtype),
        jnp.asarray(precision, dtype),
        jnp.ones(mean.shape, bool),
        jnp.asarray(bounds[:, 0], dtype),
        jnp.asarray(bounds[:, 1], dtype),
    )
    # Weak priors on many items would pull the latent scale of few subjects their way.
    aside = sparse & (sparse.mean() < 0.5)
    columns = [column for column, name in enumerate(names) if name in WEAK_PRIORS]
    scaled = bool((precision[~aside][:, columns] > 0).any())
    return PriorTable(constraints, sparse, aside, scaled, stated)

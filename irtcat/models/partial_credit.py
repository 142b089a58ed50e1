"""Masters' family: partial credit, generalised partial credit and rating scale items.

All are cases of

    P(x = k | theta) = exp(k a theta + intercept_k) / sum_v exp(v a theta + intercept_v),

with ``intercept_0 = 0``. Categories k and k - 1 are equally probable at
``b_k = (intercept_{k-1} - intercept_k) / a``; these thresholds need not be in order.
"""

import abc
import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtcat._common.compilation import namespace
from irtcat._common.types import BoolArray, FloatArray
from irtcat.models.base import Design, Param, Parameter, parameter_mask
from irtcat.models.graded import (
    UNREACHABLE,
    PerItem,
    Steps,
    predictor_rows,
    published_steps,
    used_thresholds,
)
from irtcat.models.links import ABSENT, SOFTMAX, GradedModel, Link
from irtcat.models.slopes import INTERCEPT, SLOPE, Slopes, common_slope, rescaled_slope

STEP_INTERCEPT = dataclasses.replace(INTERCEPT, first_category=2)
COMMON_STEP = Parameter(-75.0, 75.0, weak_prior=(0.0, 3.0), tied=True)

Predictors = tuple[Float[Array, "steps one_and_dims"], Float[Array, " gaps"]]


def _steps(intercept: Steps) -> list[Param]:
    """Differences of neighbouring intercepts."""
    intercepts = [intercept[..., k] for k in range(intercept.shape[-1])]
    return [intercepts[0], *(b - a for a, b in itertools.pairwise(intercepts))]


def start_intercepts(shares: Float[np.ndarray, "items categories"]) -> FloatArray:
    """Log-odds of each category against the first, stretched a little for the spread of ability."""
    log_share = np.log(np.maximum(shares, 0.002))
    return 1.2 * (log_share[:, 1:] - log_share[:, :1])


def start_slope(slope: Param, n_categories: int) -> Param:
    """The slope of a step of an item with this biserial slope."""
    return slope * (1.0 if n_categories == 2 else 0.75)


def used_intercepts(intercept: Steps, unused: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Intercepts that make unused categories improbable, and the mask of held ones.

    Where category 0 is unused the other intercepts are relative to the lowest used category, which
    is held far above category 0.
    """
    with_zero = np.pad(np.asarray(intercept, float), ((0, 0), (1, 0)))
    first = np.argmin(unused, axis=1)[:, None]
    at_end = first > 0
    level = np.where(at_end, UNREACHABLE, 0.0)
    shifted = with_zero - np.take_along_axis(with_zero, first, axis=1) + level
    k = np.arange(with_zero.shape[1])
    values = np.where(unused, level - UNREACHABLE, np.where(at_end, shifted, with_zero))
    held = unused | (at_end & (k == first))
    return values[:, 1:], held[:, 1:]


def relative_to_used(
    table: dict[str, FloatArray], unused: BoolArray, form: str
) -> dict[str, FloatArray]:
    """Numbers of the categories less that of the lowest used one; NaN of unused categories.

    Args:
        table: published parameters, items first.
        unused: categories that nobody used, items x categories.
        form: their names, with {} for the category; category 0 has 0.
    """
    names = [form.format(k) for k in range(1, unused.shape[1])]
    values = np.stack([np.zeros_like(table[names[0]]), *(table[name] for name in names)])
    tail = (1,) * (values.ndim - 2)
    first = np.argmin(unused, axis=1)
    base = np.take_along_axis(values, first.reshape(1, -1, *tail), axis=0)[0]
    return {
        name: np.where(unused[:, k].reshape(-1, *tail), np.nan, table[name] - base)
        for k, name in enumerate(names, 1)
    }


ItemStepsT = TypeVar("ItemStepsT", bound="ItemSteps")


class ItemSteps(GradedModel):
    """Items with their own steps: one intercept per category, any number of categories."""

    intercept: eqx.AbstractVar[Steps]
    categories: eqx.AbstractVar[PerItem]

    link: ClassVar[Link] = SOFTMAX
    has_linear_predictors: ClassVar[bool] = True
    one_per_item: ClassVar[str] = "categories"
    fixed: ClassVar[tuple[str, ...]] = ("categories",)

    @property
    def n_categories(self) -> int:
        """The largest number of categories."""
        return self.intercept.shape[-1] + 1

    def hold_unused(
        self: ItemStepsT, unused: Bool[np.ndarray, "items categories"]
    ) -> tuple[ItemStepsT, BoolArray]:
        """Intercepts; the scores of the other categories stay (Wilson & Masters 1993)."""
        intercept, held = used_intercepts(self.intercept, unused)
        return dataclasses.replace(self, intercept=intercept), parameter_mask(self, intercept=held)

    def drop_unused(
        self, table: dict[str, FloatArray], unused: Bool[np.ndarray, "items categories"]
    ) -> dict[str, FloatArray]:
        """Thresholds to and from an unused category are absent."""
        absent = unused[:, 1:] | unused[:, :-1]
        out = used_thresholds(table, unused, np.asarray(self.categories), absent)
        return out if self.dims == 1 else {**out, **relative_to_used(table, unused, "d{}")}


class GPCM(ItemSteps):
    """Generalised partial credit model: ``P(x = k) ~ exp(k slope . theta + intercept_k)``.

    In the field's notation ``a = slope`` and ``b_k = (intercept_{k-1} - intercept_k) / a``; ``b``
    is their mean. Items may differ in their number of categories.

    References:
        Muraki (1992), Applied Psychological Measurement 16, 159-176.
    """

    slope: Slopes
    intercept: Steps
    categories: PerItem

    key: ClassVar[str] = "gpcm"
    parameters: ClassVar[Mapping[str, Parameter]] = {"slope": SLOPE, "intercept": STEP_INTERCEPT}

    def predictors(self) -> Predictors:
        """``k slope . theta + intercept_k`` for each category k but 0 that the item has."""
        k = jnp.arange(1, self.intercept.shape[-1] + 1)
        here = k < self.categories
        intercept = jnp.where(here, self.intercept, ABSENT)
        rows = predictor_rows(intercept, self.slope, here, factor=k)
        return rows, jnp.zeros(0, self.intercept.dtype)

    def irt_parameters(self) -> dict[str, Param]:
        """A, b (mean of the thresholds), b1, b2, ...; Reckase's of several abilities."""
        intercepts = [self.intercept[..., k] for k in range(self.intercept.shape[-1])]
        steps = _steps(self.intercept)
        return published_steps(self.slope, self.dims, intercepts, steps, self.categories)

    def rescale(self, mean: Any, sd: Any) -> "GPCM":
        """Slope times ``sd``; the intercepts take up the mean."""
        slope, shift = rescaled_slope(self.slope, self.dims, mean, sd)
        return GPCM(slope, _shifted(self.intercept, shift, self.categories), self.categories)

    @classmethod
    def blank(cls, design: Design) -> "GPCM":
        """Items without parameters yet."""
        intercept = np.zeros((design.n_items, design.most - 1))
        return cls(np.zeros(design.slope_shape), intercept, np.asarray(design.categories))

    def start(self, shares: Float[np.ndarray, "items categories"], slope: Slopes) -> "GPCM":
        """Slopes by the correlations, intercepts by the shares."""
        intercept = _zero_absent(start_intercepts(shares), self.categories)
        return GPCM(start_slope(slope, shares.shape[1]), intercept, self.categories)


def _shifted(intercept: Steps, shift: Param, categories: PerItem) -> Steps:
    """Intercepts after a shift of ``slope . theta``."""
    xp, k = namespace(shift), np.arange(1, intercept.shape[-1] + 1)
    shift = xp.asarray(shift)[..., None]
    by_category = k.astype(shift.dtype) * shift
    return intercept + xp.where(k < xp.asarray(categories)[..., None], by_category, 0.0)


def _zero_absent(intercept: FloatArray, categories: PerItem) -> FloatArray:
    """Intercepts with 0 for absent categories."""
    k = np.arange(1, intercept.shape[-1] + 1)
    return np.where(k < np.asarray(categories)[:, None], intercept, 0.0)


class PartialCredit(ItemSteps):
    """Partial credit model: ``P(x = k) ~ exp(k theta + intercept_k)``; the population SD is free.

    The Rasch model of items with several categories: slopes are 1, ``b_k = intercept_{k-1} -
    intercept_k``. Items may differ in their number of categories; right/wrong ones are Rasch items.
    With several abilities it is reported as `GPCM`, whose slopes are the abilities' SDs.

    References:
        Masters (1982), Psychometrika 47, 149-174.
    """

    intercept: Steps
    categories: PerItem

    key: ClassVar[str] = "pcm"
    has_fixed_unit: ClassVar[bool] = True
    parameters: ClassVar[Mapping[str, Parameter]] = {"intercept": STEP_INTERCEPT}

    def _as_gpcm(self) -> GPCM:
        slope = namespace(self.intercept).ones_like(self.intercept[..., 0])
        return GPCM(slope, self.intercept, self.categories)

    def predictors(self) -> Predictors:
        """One for each category but 0."""
        return self._as_gpcm().predictors()

    def irt_parameters(self) -> dict[str, Param]:
        """A = 1, b (mean of the thresholds), b1, b2, ...."""
        return self._as_gpcm().irt_parameters()

    def rescale(self, mean: Any, sd: Any) -> GPCM:  # type: ignore[override]
        """Items with the common slope ``sd``: on the standardised scale that is the SD."""
        return self._as_gpcm().rescale(mean, sd)

    @classmethod
    def blank(cls, design: Design) -> "PartialCredit":
        """Items without parameters yet."""
        return cls(np.zeros((design.n_items, design.most - 1)), np.asarray(design.categories))

    def start(
        self, shares: Float[np.ndarray, "items categories"], slope: Slopes
    ) -> "PartialCredit":
        """Intercepts by the shares."""
        intercept = _zero_absent(start_intercepts(shares), self.categories)
        return PartialCredit(intercept, self.categories)


def _rating_intercepts(location: Param, step: Steps) -> Steps:
    """``k location + step_k``, the last step being 0."""
    xp = namespace(step)  # arrays of numpy stay so: JAX may be set to single precision here
    full = xp.concatenate([step, xp.zeros((*step.shape[:-1], 1), step.dtype)], axis=-1)
    k = xp.arange(1, full.shape[-1] + 1)
    return full + k * xp.asarray(location)[..., None]


def _start_rating(shares: Float[np.ndarray, "items categories"]) -> tuple[FloatArray, FloatArray]:
    """Locations by the last category's odds; the mean of the remainders as the common steps."""
    intercept = start_intercepts(shares)
    k = np.arange(1, shares.shape[1])
    location = intercept[:, -1] / (shares.shape[1] - 1)
    step = (intercept - k * location[:, None]).mean(0)[:-1]
    return location, np.broadcast_to(step, (len(shares), shares.shape[1] - 2))


class _CommonSteps(GradedModel):
    """Items with equal numbers of categories and equal steps."""

    step: eqx.AbstractVar[Steps]

    link: ClassVar[Link] = SOFTMAX
    has_linear_predictors: ClassVar[bool] = True
    one_per_item: ClassVar[str] = "location"

    @property
    def n_categories(self) -> int:
        """Number of categories."""
        return self.step.shape[-1] + 2

    @abc.abstractmethod
    def untied(self) -> GPCM:
        """The same curves with intercepts of their own."""

    def predictors(self) -> Predictors:
        """One for each category but 0."""
        return self.untied().predictors()

    def irt_parameters(self) -> dict[str, Param]:
        """A, b = -location, b1, b2, ...; Reckase's of several abilities."""
        return self.untied().irt_parameters()


class GeneralisedRatingScale(_CommonSteps):
    """Rating scale items with slopes: ``P(x = k) ~ exp(k (slope . theta + location) + step_k)``.

    The form in which `RatingScale` is fitted, with one slope for all items: on the scale where the
    population SD is 1, the slope is the SD.

    References:
        Muraki (1992), Applied Psychological Measurement 16, 159-176, equations 8-10.
    """

    slope: Slopes
    location: Param
    step: Steps

    key: ClassVar[str] = "grsm"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "slope": SLOPE,
        "location": INTERCEPT,
        "step": COMMON_STEP,
    }

    def untied(self) -> GPCM:
        """The same items with intercepts of their own."""
        intercept = _rating_intercepts(self.location, self.step)
        n_categories = namespace(self.step).full(np.shape(self.location), self.n_categories)
        return GPCM(self.slope, intercept, n_categories)

    def rescale(self, mean: Any, sd: Any) -> "GeneralisedRatingScale":
        """Slope times ``sd``; the location takes up the mean; the steps stay."""
        slope, shift = rescaled_slope(self.slope, self.dims, mean, sd)
        return GeneralisedRatingScale(slope, self.location + shift, self.step)

    @classmethod
    def blank(cls, design: Design) -> "GeneralisedRatingScale":
        """Items without parameters yet."""
        n = design.n_items
        return cls(np.zeros(design.slope_shape), np.zeros(n), np.zeros((n, design.most - 2)))

    def start(
        self, shares: Float[np.ndarray, "items categories"], slope: Slopes
    ) -> "GeneralisedRatingScale":
        """The mean of the slopes for all; locations and steps by the shares."""
        common = common_slope(start_slope(slope, shares.shape[1]))
        return GeneralisedRatingScale(common, *_start_rating(shares))


class RatingScale(_CommonSteps):
    """Andrich's rating scale model: ``P(x = k) ~ exp(k (theta + location) + step_k)``.

    The steps are the same for all items and ``step_0 = step_{K-1} = 0``: an item's location is
    minus the mean of its thresholds ``b_k = -location + step_{k-1} - step_k``, whose distances all
    items share. The population SD is free. All items have the same number of categories.
    With several abilities it is reported as `GPCM`, whose slopes are the abilities' SDs.

    References:
        Andrich (1978), Psychometrika 43, 561-573.
    """

    location: Param
    step: Steps

    key: ClassVar[str] = "rsm"
    has_fixed_unit: ClassVar[bool] = True
    has_facets: ClassVar[bool] = True
    parameters: ClassVar[Mapping[str, Parameter]] = {"location": INTERCEPT, "step": COMMON_STEP}

    def _with_slope(self) -> GeneralisedRatingScale:
        slope = namespace(self.location).ones_like(self.location)
        return GeneralisedRatingScale(slope, self.location, self.step)

    def untied(self) -> GPCM:
        """The same curves with intercepts of their own."""
        return self._with_slope().untied()

    def rescale(self, mean: Any, sd: Any) -> GeneralisedRatingScale:  # type: ignore[override]
        """Items with the common slope ``sd``: on the standardised scale that is the SD."""
        return self._with_slope().rescale(mean, sd)

    @classmethod
    def blank(cls, design: Design) -> "RatingScale":
        """Items without parameters yet."""
        return cls(np.zeros(design.n_items), np.zeros((design.n_items, design.most - 2)))

    def start(self, shares: Float[np.ndarray, "items categories"], slope: Slopes) -> "RatingScale":
        """Locations and steps by the shares."""
        return RatingScale(*_start_rating(shares))

"""Masters' family: partial credit, generalised partial credit and rating scale items.

All are cases of

    P(x = k | theta) = exp(k a theta + intercept_k) / sum_v exp(v a theta + intercept_v),

with ``intercept_0 = 0``. Categories k and k - 1 are equally probable at
``b_k = (intercept_{k-1} - intercept_k) / a``; these thresholds need not be in order.
"""

import dataclasses
import itertools
from typing import ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtcat._types import BoolArray, FloatArray
from irtcat.models._base import Design, Param, parameter_mask
from irtcat.models._links import ABSENT, SOFTMAX, GradedModel, Link
from irtcat.models.graded import (
    UNREACHABLE,
    PerItem,
    Steps,
    thresholds,
    used_thresholds,
)
from irtcat.models.logistic import AnyShape

__all__ = ["GPCM", "CommonPartialCredit", "CommonRatingScale", "PartialCredit", "RatingScale"]

Predictors = tuple[Float[Array, "steps one_and_dims"], Float[Array, " gaps"]]


def partial_credit_predictors(slope: Param, intercept: Steps, categories: PerItem) -> Predictors:
    """``k slope theta + intercept_k`` for the categories the item has."""
    k = jnp.arange(1, intercept.shape[-1] + 1)
    here = k < categories
    slopes = jnp.where(here, k * slope, 0.0).astype(intercept.dtype)
    rows = jnp.stack([jnp.where(here, intercept, ABSENT), slopes], axis=-1)
    return rows, jnp.zeros(0, intercept.dtype)


def _steps(intercept: Steps) -> list[Param]:
    """Differences of neighbouring intercepts."""
    intercepts = [intercept[..., k] for k in range(intercept.shape[-1])]
    return [intercepts[0], *(b - a for a, b in itertools.pairwise(intercepts))]


def start_intercepts(shares: Float[Array, "items categories"]) -> Steps:
    """Log-odds of each category against the first, stretched a little for the spread of ability."""
    log_share = jnp.log(jnp.maximum(shares, 0.002))
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


ItemStepsT = TypeVar("ItemStepsT", bound="_ItemSteps")


class _ItemSteps(GradedModel):
    """Items with their own steps: one intercept per category, any number of categories."""

    intercept: eqx.AbstractVar[Steps]
    categories: eqx.AbstractVar[PerItem]

    link: ClassVar[Link] = SOFTMAX
    fixed: ClassVar[tuple[str, ...]] = ("categories",)
    by_category: ClassVar[dict[str, int]] = {"intercept": 2}

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
        return used_thresholds(table, unused, np.asarray(self.categories), absent)


class GPCM(_ItemSteps):
    """Generalised partial credit model: ``P(x = k) ~ exp(k slope theta + intercept_k)``.

    In the field's notation ``a = slope`` and ``b_k = (intercept_{k-1} - intercept_k) / a``; ``b``
    is their mean. Items may differ in their number of categories.

    References:
        Muraki (1992), Applied Psychological Measurement 16, 159-176.
    """

    slope: Param
    intercept: Steps
    categories: PerItem

    key: ClassVar[str] = "gpcm"

    def predictors(self) -> Predictors:
        """One for each category but 0."""
        return partial_credit_predictors(self.slope, self.intercept, self.categories)

    def irt_parameters(self) -> dict[str, Param]:
        """A, b (mean of the thresholds), b1, b2, ...."""
        return thresholds(_steps(self.intercept), self.slope, self.categories)

    def rescale(self, mean: Param, sd: Param) -> "GPCM":
        """Slope times ``sd``; the intercepts take up the mean."""
        return GPCM(
            self.slope * sd,
            _shifted(self.intercept, self.slope, mean, self.categories),
            self.categories,
        )

    @classmethod
    def blank(cls, design: Design) -> "GPCM":
        """Items without parameters yet."""
        n, most = design.n_items, design.most
        return cls(np.zeros(n), np.zeros((n, most - 1)), np.asarray(design.categories))

    def start(self, shares: Float[Array, "items categories"], slope: Param) -> "GPCM":
        """Slopes by the correlations, intercepts by the shares."""
        intercept = _zero_absent(start_intercepts(shares), self.categories)
        return GPCM(start_slope(slope, shares.shape[1]), intercept, self.categories)


def _shifted(intercept: Steps, slope: Param, mean: AnyShape, categories: PerItem) -> Steps:
    """Intercepts after a shift of theta by a mean."""
    k = jnp.arange(1, intercept.shape[-1] + 1)
    shift = k * (jnp.asarray(slope) * mean)[..., None]
    return intercept + jnp.where(k < jnp.asarray(categories)[..., None], shift, 0.0)


def _zero_absent(intercept: Steps, categories: PerItem) -> Steps:
    """Intercepts with 0 for absent categories."""
    k = jnp.arange(1, intercept.shape[-1] + 1)
    return jnp.where(k < categories[:, None], intercept, 0.0)


class PartialCredit(_ItemSteps):
    """Partial credit model: ``P(x = k) ~ exp(k theta + intercept_k)``; the population SD is free.

    The Rasch model of items with several categories: slopes are 1, ``b_k = intercept_{k-1} -
    intercept_k``. Items may differ in their number of categories; right/wrong ones are Rasch items.

    References:
        Masters (1982), Psychometrika 47, 149-174.
    """

    intercept: Steps
    categories: PerItem

    key: ClassVar[str] = "pcm"

    def predictors(self) -> Predictors:
        """One for each category but 0."""
        one = jnp.ones_like(self.intercept[..., 0])
        return partial_credit_predictors(one, self.intercept, self.categories)

    def irt_parameters(self) -> dict[str, Param]:
        """A = 1, b (mean of the thresholds), b1, b2, ...."""
        one = jnp.ones_like(self.intercept[..., 0])
        return thresholds(_steps(self.intercept), one, self.categories)

    def rescale(self, mean: Param, sd: Param) -> "CommonPartialCredit":  # type: ignore[override]
        """Items with the common slope ``sd``: on the standardised scale that is the SD."""
        one = jnp.ones_like(self.intercept[..., 0])
        return CommonPartialCredit(
            sd * one, _shifted(self.intercept, one, mean, self.categories), self.categories
        )

    @classmethod
    def blank(cls, design: Design) -> "PartialCredit":
        """Items without parameters yet."""
        return cls(np.zeros((design.n_items, design.most - 1)), np.asarray(design.categories))

    def start(self, shares: Float[Array, "items categories"], slope: Param) -> "PartialCredit":
        """Intercepts by the shares."""
        return PartialCredit(
            _zero_absent(start_intercepts(shares), self.categories), self.categories
        )


class CommonPartialCredit(_ItemSteps):
    """The partial credit model on a standardised scale, where its slopes are the population SD.

    Not in ``MODELS``: `PartialCredit` is fitted in this form.

    References:
        Masters (1982), Psychometrika 47, 149-174.
    """

    slope: Param
    intercept: Steps
    categories: PerItem

    key: ClassVar[str] = "pcm"
    tied: ClassVar[tuple[str, ...]] = ("slope",)

    def predictors(self) -> Predictors:
        """One for each category but 0."""
        return partial_credit_predictors(self.slope, self.intercept, self.categories)

    def irt_parameters(self) -> dict[str, Param]:
        """A, b (mean of the thresholds), b1, b2, ...."""
        return thresholds(_steps(self.intercept), self.slope, self.categories)

    def rescale(self, mean: Param, sd: Param) -> "CommonPartialCredit":
        """Slope times ``sd``; the intercepts take up the mean."""
        intercept = _shifted(self.intercept, self.slope, mean, self.categories)
        return CommonPartialCredit(self.slope * sd, intercept, self.categories)

    @classmethod
    def blank(cls, design: Design) -> "CommonPartialCredit":
        """Items without parameters yet."""
        n, most = design.n_items, design.most
        return cls(np.zeros(n), np.zeros((n, most - 1)), np.asarray(design.categories))

    def start(
        self, shares: Float[Array, "items categories"], slope: Param
    ) -> "CommonPartialCredit":
        """The mean of the slopes for all; intercepts by the shares."""
        common = jnp.full_like(slope, start_slope(slope.mean(), shares.shape[1]))
        intercept = _zero_absent(start_intercepts(shares), self.categories)
        return CommonPartialCredit(common, intercept, self.categories)


def _rating_intercepts(location: Param, step: Steps) -> Steps:
    """``k location + step_k``, the last step being 0."""
    full = jnp.concatenate([step, jnp.zeros((*step.shape[:-1], 1), step.dtype)], axis=-1)
    k = jnp.arange(1, full.shape[-1] + 1)
    return full + k * jnp.asarray(location)[..., None]


def _start_rating(shares: Float[Array, "items categories"]) -> tuple[Param, Steps]:
    """Locations by the last category's odds; the mean of the remainders as the common steps."""
    intercept = start_intercepts(shares)
    k = jnp.arange(1, shares.shape[1])
    location = intercept[:, -1] / (shares.shape[1] - 1)
    step = (intercept - k * location[:, None]).mean(0)[:-1]
    return location, jnp.broadcast_to(step, (len(shares), shares.shape[1] - 2))


class _CommonSteps(GradedModel):
    """Items with equal numbers of categories and equal steps."""

    step: eqx.AbstractVar[Steps]

    link: ClassVar[Link] = SOFTMAX

    @property
    def n_categories(self) -> int:
        """Number of categories."""
        return self.step.shape[-1] + 2


class RatingScale(_CommonSteps):
    """Andrich's rating scale model: ``P(x = k) ~ exp(k (theta + location) + step_k)``.

    The steps are the same for all items and ``step_0 = step_{K-1} = 0``: an item's location is
    minus the mean of its thresholds ``b_k = -location + step_{k-1} - step_k``, whose distances all
    items share. The population SD is free. All items have the same number of categories.

    References:
        Andrich (1978), Psychometrika 43, 561-573.
    """

    location: Param
    step: Steps

    key: ClassVar[str] = "rsm"
    tied: ClassVar[tuple[str, ...]] = ("step",)

    def predictors(self) -> Predictors:
        """One for each category but 0."""
        one = jnp.ones_like(self.location)
        intercept = _rating_intercepts(self.location, self.step)
        return partial_credit_predictors(one, intercept, jnp.asarray(self.n_categories))

    def irt_parameters(self) -> dict[str, Param]:
        """A = 1, b = -location, b1, b2, ...."""
        steps = _steps(_rating_intercepts(self.location, self.step))
        return thresholds(steps, jnp.ones_like(self.location), jnp.asarray(self.n_categories))

    def rescale(self, mean: Param, sd: Param) -> "CommonRatingScale":  # type: ignore[override]
        """Items with the common slope ``sd``: on the standardised scale that is the SD."""
        one = jnp.ones_like(self.location)
        return CommonRatingScale(sd * one, self.location + mean, self.step)

    @classmethod
    def blank(cls, design: Design) -> "RatingScale":
        """Items without parameters yet."""
        return cls(np.zeros(design.n_items), np.zeros((design.n_items, design.most - 2)))

    def start(self, shares: Float[Array, "items categories"], slope: Param) -> "RatingScale":
        """Locations and steps by the shares."""
        return RatingScale(*_start_rating(shares))


class CommonRatingScale(_CommonSteps):
    """The rating scale model on a standardised scale, where its slopes are the population SD.

    Not in ``MODELS``: `RatingScale` is fitted in this form.

    References:
        Andrich (1978), Psychometrika 43, 561-573.
    """

    slope: Param
    location: Param
    step: Steps

    key: ClassVar[str] = "rsm"
    tied: ClassVar[tuple[str, ...]] = ("slope", "step")

    def predictors(self) -> Predictors:
        """One for each category but 0."""
        intercept = _rating_intercepts(self.location, self.step)
        return partial_credit_predictors(self.slope, intercept, jnp.asarray(self.n_categories))

    def irt_parameters(self) -> dict[str, Param]:
        """A, b, b1, b2, ...."""
        steps = _steps(_rating_intercepts(self.location, self.step))
        return thresholds(steps, self.slope, jnp.asarray(self.n_categories))

    def rescale(self, mean: Param, sd: Param) -> "CommonRatingScale":
        """Slope times ``sd``; the location takes up the mean; the steps stay."""
        location = self.location + self.slope * mean
        return CommonRatingScale(self.slope * sd, location, self.step)

    @classmethod
    def blank(cls, design: Design) -> "CommonRatingScale":
        """Items without parameters yet."""
        n, most = design.n_items, design.most
        return cls(np.zeros(n), np.zeros(n), np.zeros((n, most - 2)))

    def start(self, shares: Float[Array, "items categories"], slope: Param) -> "CommonRatingScale":
        """The mean of the slopes for all; locations and steps by the shares."""
        common = jnp.full_like(slope, start_slope(slope.mean(), shares.shape[1]))
        return CommonRatingScale(common, *_start_rating(shares))

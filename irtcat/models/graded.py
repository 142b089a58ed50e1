"""Samejima's graded response model: ordered categories by the probability of reaching each."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from irtcat._common.types import BoolArray, FloatArray
from irtcat.models.base import Design, Param, Parameter, parameter_mask
from irtcat.models.links import ABSENT, CUMULATIVE, GradedModel, Link
from irtcat.models.logistic import start_intercept
from irtcat.models.slopes import (
    INTERCEPT,
    SLOPE,
    Slopes,
    published_on_axes,
    rescaled_slope,
    slope_length,
)

PerItem = Shaped[Array | np.ndarray, "*items"]
"""Number of categories of each item."""

Steps = Float[Array | np.ndarray, "*items _"]


def thresholds(intercepts: list[Param], slope: Param, categories: PerItem) -> dict[str, Param]:
    """b_k = -intercept_k / slope and b, their mean; NaN for absent categories."""
    safe = jnp.where(slope == 0, 1.0, slope)
    out = {}
    total = jnp.zeros_like(slope)
    for k, intercept in enumerate(intercepts, start=1):
        b = -intercept / safe
        here = k < categories
        total = total + jnp.where(here, b, 0.0)
        out[f"b{k}"] = jnp.where(here & (slope != 0), b, jnp.nan)
    mean = jnp.where(slope == 0, jnp.nan, total / (categories - 1))
    return {"a": slope, "b": mean, **out}


def published_steps(
    slope: Slopes, dims: int, intercepts: list[Param], cumulative: list[Param], categories: PerItem
) -> dict[str, Param]:
    """Published parameters of items with one slope (vector) and several intercepts.

    Args:
        slope: the slopes.
        dims: number of abilities.
        intercepts: of the predictors, published as d1, d2, ... with several abilities.
        cumulative: the intercepts whose zeros are the thresholds.
        categories: number of categories of each item.
    """
    named = {f"d{k}": jnp.where(k < categories, d, jnp.nan) for k, d in enumerate(intercepts, 1)}
    return published_on_axes(slope, dims, named, lambda a: thresholds(cumulative, a, categories))


def predictor_rows(
    intercept: Float[Array, " steps"], slope: Slopes, here: Array, factor: Any = 1.0
) -> Float[Array, "steps one_and_dims"]:
    """Rows of one item's predictors with a common slope, which absent categories do not have.

    Args:
        intercept: one a predictor.
        slope: the slope, or a vector of them.
        here: mask of the predictors that the item has.
        factor: multiplies the slope of each predictor.
    """
    slopes = jnp.where(here, factor, 0.0).astype(intercept.dtype)[:, None] * jnp.atleast_1d(slope)
    return jnp.concatenate([intercept[:, None], slopes], axis=1)


UNREACHABLE = 50.0
"""Log-odds that keep an unused end category improbable at any ability."""

SMALLEST_GAP = 1e-5
"""Gap of an unused category between two others: a probability below 2.5e-6. A smaller gap would
lose digits: information has terms of the order of 1 / gap, which cancel."""


def used_thresholds(
    table: dict[str, FloatArray], unused: BoolArray, categories: np.ndarray, absent: BoolArray
) -> dict[str, FloatArray]:
    """Thresholds with NaN where absent, and their mean from the lowest used category on.

    Args:
        table: b, b1, b2, ..., items first; mdiff, mdiff1, ... of several abilities.
        unused: categories that nobody used, items x categories.
        categories: number of categories of each item.
        absent: thresholds that have no estimate, items x steps.
    """
    b = "b" if "b1" in table else "mdiff"
    steps = np.stack([table[f"{b}{k + 1}"] for k in range(absent.shape[1])], axis=1)
    tail = (1,) * (steps.ndim - 2)
    first = np.argmin(unused, axis=1)
    k = np.arange(1, absent.shape[1] + 1)
    over = (k > first[:, None]) & (k < categories[:, None])
    total = np.where(over.reshape(over.shape + tail), steps, 0).sum(axis=1)
    n_over = over.sum(axis=1).reshape(-1, *tail)
    mean = np.divide(total, n_over, out=np.full_like(total, np.nan), where=n_over > 0)
    at_end = (first > 0).reshape(-1, *tail)
    steps = np.where(absent.reshape(absent.shape + tail), np.nan, steps)
    named = {f"{b}{i + 1}": steps[:, i] for i in range(absent.shape[1])}
    return {**table, b: np.where(at_end, mean, table[b]), **named}


class Graded(GradedModel):
    """Graded response model: ``P(x >= k) = sigmoid(slope . theta + intercept_k)``, k >= 1.

    The intercepts fall from one category to the next. The parameters are the first one and the
    logarithms of the gaps, ``intercept_{k+1} = intercept_k - exp(log_gap_k)``, so that all
    parameter values are valid; in the field's notation ``a = slope``, ``b_k = -intercept_k / a``,
    and ``b`` is the mean of the thresholds.

    Items may differ in their number of categories: absent categories have probability 0.

    References:
        Samejima (1969), Psychometrika Monograph 17.
    """

    slope: Slopes
    intercept: Param
    log_gap: Steps
    categories: PerItem

    key: ClassVar[str] = "graded"
    link: ClassVar[Link] = CUMULATIVE
    fixed: ClassVar[tuple[str, ...]] = ("categories",)
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "slope": SLOPE,
        "intercept": INTERCEPT,
        "log_gap": Parameter(-9.0, 5.0, weak_prior=(0.0, 1.0), first_category=3),
    }

    @property
    def n_categories(self) -> int:
        """The largest number of categories."""
        return self.log_gap.shape[-1] + 2

    def predictors(self) -> tuple[Float[Array, "steps one_and_dims"], Float[Array, " gaps"]]:
        """One for each boundary between categories."""
        n_gaps = self.log_gap.shape[-1]
        here = jnp.arange(1, n_gaps + 2) < self.categories
        gap = jnp.where(here[1:], jnp.exp(self.log_gap), -ABSENT)
        fall = jnp.concatenate([jnp.zeros_like(gap[:1]), jnp.cumsum(gap)]) if n_gaps else 0.0
        intercept = jnp.where(here, self.intercept - fall, ABSENT)
        return predictor_rows(intercept, self.slope, here), gap

    def irt_parameters(self) -> dict[str, Param]:
        """A, b (mean of the thresholds), b1, b2, ...; Reckase's of several abilities."""
        intercepts = [self.intercept]
        for k in range(self.log_gap.shape[-1]):
            intercepts.append(intercepts[-1] - jnp.exp(self.log_gap[..., k]))
        return published_steps(self.slope, self.dims, intercepts, intercepts, self.categories)

    def rescale(self, mean: Any, sd: Any) -> "Graded":
        """Slope times ``sd``; the first intercept takes up the mean; the gaps stay."""
        slope, shift = rescaled_slope(self.slope, self.dims, mean, sd)
        return Graded(slope, self.intercept + shift, self.log_gap, self.categories)

    def hold_unused(
        self, unused: Bool[np.ndarray, "items categories"]
    ) -> tuple["Graded", BoolArray]:
        """Gaps: wide below the lowest category that is used, next to none around one between."""
        old = np.exp(np.asarray(self.log_gap, float))
        first = np.argmin(unused, axis=1)[:, None]
        k = np.arange(1, old.shape[1] + 1)
        below, between = k <= first, unused[:, 1:-1] & (k > first)
        gap = np.where(below, np.where(k == first, UNREACHABLE, 1.0), old)
        gap = np.where(between, SMALLEST_GAP, gap)
        # The boundary above the lowest used category stays where it is.
        intercept = np.asarray(self.intercept, float) + ((gap - old) * below).sum(axis=1)
        held = parameter_mask(self, log_gap=below | between)
        return dataclasses.replace(self, intercept=intercept, log_gap=np.log(gap)), held

    def drop_unused(
        self, table: dict[str, FloatArray], unused: Bool[np.ndarray, "items categories"]
    ) -> dict[str, FloatArray]:
        """Thresholds below the lowest used category are absent; around one between, equal."""
        first = np.argmin(unused, axis=1)
        absent = np.arange(1, unused.shape[1]) <= first[:, None]
        out = used_thresholds(table, unused, np.asarray(self.categories), absent)
        if self.dims > 1:
            for k, gone in enumerate(absent.T, start=1):
                d = table[f"d{k}"]
                out[f"d{k}"] = np.where(gone.reshape(-1, *(1,) * (d.ndim - 1)), np.nan, d)
        return out

    @classmethod
    def blank(cls, design: Design) -> "Graded":
        """Items without parameters yet."""
        n, gaps = design.n_items, np.zeros((design.n_items, design.most - 2))
        return cls(np.zeros(design.slope_shape), np.zeros(n), gaps, np.asarray(design.categories))

    def start(self, shares: Float[np.ndarray, "items categories"], slope: Slopes) -> "Graded":
        """The slopes given; intercepts by the shares of those who reach each category."""
        reach = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1] / shares.sum(1, keepdims=True)
        length = slope_length(slope, self.dims)
        intercept = start_intercept(reach[:, 1:], length[:, None])
        gap = np.maximum(intercept[:, :-1] - intercept[:, 1:], 0.1)
        here = np.arange(3, shares.shape[1] + 1) <= np.asarray(self.categories)[:, None]
        return Graded(slope, intercept[:, 0], np.where(here, np.log(gap), 0.0), self.categories)

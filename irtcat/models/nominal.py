"""Bock's nominal model: categories without a predefined order."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtcat._common.types import BoolArray, FloatArray
from irtcat.models.base import Design, Param, Parameter, parameter_mask
from irtcat.models.graded import PerItem, Steps
from irtcat.models.links import ABSENT
from irtcat.models.partial_credit import (
    STEP_INTERCEPT,
    ItemSteps,
    Predictors,
    relative_to_used,
    start_intercepts,
    start_slope,
    used_intercepts,
)
from irtcat.models.slopes import SLOPE, Slopes, one_scale


class Nominal(ItemSteps):
    """Nominal response model: ``P(x = k) = exp(slope_k . theta + intercept_k) / sum_v ...``.

    Category 0 has slope and intercept 0. In the other common notation the slopes are
    ``slope_k = a ak_k`` with ``ak_0 = 0`` and ``ak_{K-1} = K - 1``, so that ``a`` is the slope of
    the last category over K - 1, and ``d_k`` are the intercepts; equally spaced ``ak`` make it a
    generalised partial credit item. Items may differ in their number of categories. With several
    abilities every category has a slope on each of the item's abilities.

    References:
        Bock (1972), Psychometrika 37, 29-51. Thissen, Cai & Bock (2010), in Nering & Ostini,
        Handbook of Polytomous Item Response Theory Models (the second notation). Bolt & Johnson
        (2009), Applied Psychological Measurement 33, 335-352 (several abilities).
    """

    slope: Float[Array | np.ndarray, "*items_and_dims steps"]
    intercept: Steps
    categories: PerItem

    key: ClassVar[str] = "nominal"
    has_order: ClassVar[bool] = False
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "slope": dataclasses.replace(SLOPE, first_category=2),
        "intercept": STEP_INTERCEPT,
    }

    def _has_category(self) -> Array:
        """Mask of the categories 1, 2, ... that the item has."""
        return jnp.arange(1, self.n_categories) < jnp.asarray(self.categories)[..., None]

    def predictors(self) -> Predictors:
        """One for each category but 0."""
        here = self._has_category()
        slope, intercept = jnp.where(here, self.slope, 0.0), jnp.where(here, self.intercept, ABSENT)
        slopes = slope.reshape(-1, slope.shape[-1])
        return jnp.concatenate([intercept[None], slopes]).T, jnp.zeros(0, intercept.dtype)

    def irt_parameters(self) -> dict[str, Param]:
        """A, b (NaN: there is no order), ak1, ..., d1, ....

        With several abilities the slopes of the categories, a1_1, a1_2, ..., and d1, ....
        """
        k = range(1, self.n_categories)
        here = self._has_category()
        d = jnp.where(here, self.intercept, jnp.nan)
        by_category = {f"d{i}": d[..., i - 1] for i in k}
        if self.dims > 1:
            slope = jnp.where(here[..., None, :], self.slope, jnp.nan)
            axes = range(self.dims)
            slopes = {f"a{i}_{m + 1}": slope[..., m, i - 1] for i in k for m in axes}
            return {**slopes, **by_category}
        last = jnp.asarray(self.categories) - 1
        at_last = jnp.arange(1, self.n_categories) == last[..., None]
        a = (jnp.where(at_last, self.slope, 0.0)).sum(-1) / last
        safe = jnp.where(a == 0, 1.0, a)
        ak = jnp.where(at_last, 1.0 * last[..., None], self.slope / safe[..., None])
        ak = jnp.where(here & (a != 0)[..., None], ak, jnp.nan)
        scores = {f"ak{i}": ak[..., i - 1] for i in k}
        return {"a": a, "b": jnp.full_like(a, jnp.nan), **scores, **by_category}

    def rescale(self, mean: Any, sd: Any) -> "Nominal":
        """Slopes times ``sd``; the intercepts take up the mean."""
        if self.dims == 1:
            scale = one_scale(mean, sd)
            mean, sd = (part[..., None] if np.ndim(part) else part for part in scale)
            return Nominal(self.slope * sd, self.intercept + self.slope * mean, self.categories)
        slope = jnp.einsum("...ds,de->...es", self.slope, sd)
        shift = jnp.einsum("...ds,d->...s", self.slope, mean)
        return Nominal(slope, self.intercept + shift, self.categories)

    def hold_unused(
        self, unused: Bool[np.ndarray, "items categories"]
    ) -> tuple["Nominal", BoolArray]:
        """Intercepts and slopes; category 0, where unused, has the slope of the lowest used one."""
        intercept, held = used_intercepts(self.intercept, unused)
        old = np.asarray(self.slope, float)
        slope = np.concatenate([np.zeros_like(old[..., :1]), old], axis=-1)
        first = np.argmin(unused, axis=1).reshape(-1, *(1,) * (slope.ndim - 1))
        k = np.arange(slope.shape[-1])
        slope = np.where(k < first, 0.0, slope - np.take_along_axis(slope, first, axis=-1))
        held_slope = np.broadcast_to(held if slope.ndim == 2 else held[:, None], old.shape)
        mask = parameter_mask(self, slope=held_slope, intercept=held)
        return dataclasses.replace(self, slope=slope[..., 1:], intercept=intercept), mask

    def drop_unused(
        self, table: dict[str, FloatArray], unused: Bool[np.ndarray, "items categories"]
    ) -> dict[str, FloatArray]:
        """Slopes and intercepts relative to the lowest used category."""
        out = {**table, **relative_to_used(table, unused, "d{}")}
        if self.dims > 1:
            for axis in range(self.dims):
                out |= relative_to_used(table, unused, f"a{{}}_{axis + 1}")
            return out
        first, last = np.argmin(unused, axis=1), np.asarray(self.categories) - 1
        tail = (1,) * (table["a"].ndim - 1)
        share = (last / np.maximum(last - first, 1)).reshape(-1, *tail)
        out["a"] = table["a"] * share
        for k in range(1, unused.shape[1]):
            out[f"ak{k}"] = np.where(
                unused[:, k].reshape(-1, *tail), np.nan, table[f"ak{k}"] / share
            )
        return out

    @classmethod
    def blank(cls, design: Design) -> "Nominal":
        """Items without parameters yet."""
        steps = design.most - 1
        slope, intercept = np.zeros((*design.slope_shape, steps)), np.zeros((design.n_items, steps))
        return cls(slope, intercept, np.asarray(design.categories))

    def start(self, shares: Float[np.ndarray, "items categories"], slope: Slopes) -> "Nominal":
        """As a generalised partial credit item: a higher category is a higher ability."""
        k = np.arange(1, shares.shape[1])
        slopes = k * start_slope(slope, shares.shape[1])[..., None]
        here = k < np.asarray(self.categories)[:, None]
        intercept = np.where(here, start_intercepts(shares), 0.0)
        on_axes = here if slopes.ndim == 2 else here[:, None]
        return Nominal(np.where(on_axes, slopes, 0.0), intercept, self.categories)

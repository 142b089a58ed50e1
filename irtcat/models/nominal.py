"""Bock's nominal model: categories without a predefined order."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtcat._types import BoolArray, FloatArray
from irtcat.models._base import Design, Param, parameter_mask
from irtcat.models._links import ABSENT, SOFTMAX, GradedModel, Link
from irtcat.models.graded import PerItem, Steps
from irtcat.models.partial_credit import (
    Predictors,
    start_intercepts,
    start_slope,
    used_intercepts,
)

__all__ = ["Nominal"]


class Nominal(GradedModel):
    """Nominal response model: ``P(x = k) = exp(slope_k theta + intercept_k) / sum_v ...``.

    Category 0 has slope and intercept 0. In the other common notation the slopes are
    ``slope_k = a ak_k`` with ``ak_0 = 0`` and ``ak_{K-1} = K - 1``, so that ``a`` is the slope of
    the last category over K - 1, and ``d_k`` are the intercepts; equally spaced ``ak`` make it a
    generalised partial credit item. Items may differ in their number of categories.

    References:
        Bock (1972), Psychometrika 37, 29-51. Thissen, Cai & Bock (2010), in Nering & Ostini,
        Handbook of Polytomous Item Response Theory Models (the second notation).
    """

    slope: Steps
    intercept: Steps
    categories: PerItem

    key: ClassVar[str] = "nominal"
    link: ClassVar[Link] = SOFTMAX
    fixed: ClassVar[tuple[str, ...]] = ("categories",)
    by_category: ClassVar[dict[str, int]] = {"slope": 2, "intercept": 2}

    @property
    def n_categories(self) -> int:
        """The largest number of categories."""
        return self.intercept.shape[-1] + 1

    def _has_category(self) -> Array:
        """Mask of the categories 1, 2, ... that the item has."""
        return jnp.arange(1, self.n_categories) < jnp.asarray(self.categories)[..., None]

    def predictors(self) -> Predictors:
        """One for each category but 0."""
        here = self._has_category()
        slope, intercept = jnp.where(here, self.slope, 0.0), jnp.where(here, self.intercept, ABSENT)
        return jnp.stack([intercept, slope], axis=-1), jnp.zeros(0, intercept.dtype)

    def irt_parameters(self) -> dict[str, Param]:
        """A, b (NaN: there is no order), ak1, ak2, ..., d1, d2, ...."""
        last = jnp.asarray(self.categories) - 1
        at_last = jnp.arange(1, self.n_categories) == last[..., None]
        a = (jnp.where(at_last, self.slope, 0.0)).sum(-1) / last
        safe = jnp.where(a == 0, 1.0, a)
        here = self._has_category()
        ak = jnp.where(at_last, 1.0 * last[..., None], self.slope / safe[..., None])
        ak = jnp.where(here & (a != 0)[..., None], ak, jnp.nan)
        d = jnp.where(here, self.intercept, jnp.nan)
        k = range(1, self.n_categories)
        return {
            "a": a,
            "b": jnp.full_like(a, jnp.nan),
            **{f"ak{i}": ak[..., i - 1] for i in k},
            **{f"d{i}": d[..., i - 1] for i in k},
        }

    def rescale(self, mean: Param, sd: Param) -> "Nominal":
        """Slopes times ``sd``; the intercepts take up the mean."""
        mean, sd = jnp.asarray(mean)[..., None], jnp.asarray(sd)[..., None]
        return Nominal(self.slope * sd, self.intercept + self.slope * mean, self.categories)

    def hold_unused(
        self, unused: Bool[np.ndarray, "items categories"]
    ) -> tuple["Nominal", BoolArray]:
        """Intercepts and slopes; category 0, where unused, has the slope of the lowest used one."""
        intercept, held = used_intercepts(self.intercept, unused)
        slope = np.pad(np.asarray(self.slope, float), ((0, 0), (1, 0)))
        first = np.argmin(unused, axis=1)[:, None]
        k = np.arange(slope.shape[1])
        slope = np.where(k < first, 0.0, slope - np.take_along_axis(slope, first, axis=1))
        mask = parameter_mask(self, slope=held, intercept=held)
        return dataclasses.replace(self, slope=slope[:, 1:], intercept=intercept), mask

    def drop_unused(
        self, table: dict[str, FloatArray], unused: Bool[np.ndarray, "items categories"]
    ) -> dict[str, FloatArray]:
        """Slopes and intercepts relative to the lowest used category."""
        first, last = np.argmin(unused, axis=1), np.asarray(self.categories) - 1
        tail = (1,) * (table["a"].ndim - 1)
        share = (last / np.maximum(last - first, 1)).reshape(-1, *tail)
        d = [np.zeros_like(table["a"]), *(table[f"d{k}"] for k in range(1, unused.shape[1]))]
        base = np.take_along_axis(np.stack(d), first.reshape(1, -1, *tail), axis=0)[0]
        out = {**table, "a": table["a"] * share}
        for k in range(1, unused.shape[1]):
            absent = unused[:, k].reshape(-1, *tail)
            out[f"ak{k}"] = np.where(absent, np.nan, table[f"ak{k}"] / share)
            out[f"d{k}"] = np.where(absent, np.nan, table[f"d{k}"] - base)
        return out

    @classmethod
    def blank(cls, design: Design) -> "Nominal":
        """Items without parameters yet."""
        empty = np.zeros((design.n_items, design.most - 1))
        return cls(empty, empty.copy(), np.asarray(design.categories))

    def start(self, shares: Float[Array, "items categories"], slope: Param) -> "Nominal":
        """As a generalised partial credit item: a higher category is a higher ability."""
        k = jnp.arange(1, shares.shape[1])
        slopes = k * start_slope(slope, shares.shape[1])[:, None]
        here = self._has_category()
        intercept = start_intercepts(shares)
        return Nominal(
            jnp.where(here, slopes, 0.0), jnp.where(here, intercept, 0.0), self.categories
        )

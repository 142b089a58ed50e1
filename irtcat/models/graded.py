"""Samejima's graded response model: ordered categories by the probability of reaching each."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from irtcat.models._base import Design, Param
from irtcat.models._links import CUMULATIVE, NEVER, GradedModel, Link
from irtcat.models.logistic import start_intercept

__all__ = ["Graded"]

Own = Shaped[Array | np.ndarray, "*items"]
"""Number of categories of each item."""

Steps = Float[Array | np.ndarray, "*items _"]


def thresholds(intercepts: list[Param], slope: Param, categories: Own) -> dict[str, Param]:
    """b_k = -intercept_k / slope and b, their mean; NaN where there is no such category."""
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


class Graded(GradedModel):
    """Graded response model: ``P(x >= k | theta) = sigmoid(slope theta + intercept_k)``, k >= 1.

    The intercepts fall from one category to the next. Kept are the first one and the logarithms
    of the gaps, ``intercept_{k+1} = intercept_k - exp(log_gap_k)``, so that every value of the
    parameters is a model; in the field's notation ``a = slope``, ``b_k = -intercept_k / a``, and
    ``b`` is the mean of the thresholds.

    Items may differ in their number of categories: those an item does not have get probability 0.

    References:
        Samejima (1969), Psychometrika Monograph 17.
    """

    slope: Param
    intercept: Param
    log_gap: Steps
    categories: Own

    key: ClassVar[str] = "graded"
    link: ClassVar[Link] = CUMULATIVE
    fixed: ClassVar[tuple[str, ...]] = ("categories",)
    by_category: ClassVar[dict[str, int]] = {"log_gap": 3}

    @property
    def n_categories(self) -> int:
        """The largest number of categories."""
        return self.log_gap.shape[-1] + 2

    def predictors(self) -> tuple[Float[Array, "steps one_and_dims"], Float[Array, " gaps"]]:
        """One for each boundary between categories."""
        n_gaps = self.log_gap.shape[-1]
        here = jnp.arange(1, n_gaps + 2) < self.categories
        gap = jnp.where(here[1:], jnp.exp(self.log_gap), -NEVER)
        fall = jnp.concatenate([jnp.zeros_like(gap[:1]), jnp.cumsum(gap)]) if n_gaps else 0.0
        intercept = jnp.where(here, self.intercept - fall, NEVER)
        slope = jnp.where(here, self.slope, 0.0)
        return jnp.stack([intercept, slope], axis=-1), gap

    def irt_parameters(self) -> dict[str, Param]:
        """A, b (mean of the thresholds), b1, b2, ...."""
        intercepts = [self.intercept]
        for k in range(self.log_gap.shape[-1]):
            intercepts.append(intercepts[-1] - jnp.exp(self.log_gap[..., k]))
        return thresholds(intercepts, self.slope, self.categories)

    def rescale(self, mean: Param, sd: Param) -> "Graded":
        """Slope times ``sd``; the first intercept takes up the mean; the gaps stay."""
        intercept = self.intercept + self.slope * mean
        return Graded(self.slope * sd, intercept, self.log_gap, self.categories)

    @classmethod
    def blank(cls, design: Design) -> "Graded":
        """Items without parameters yet."""
        n, gaps = design.n_items, np.zeros((design.n_items, design.most - 2))
        return cls(np.zeros(n), np.zeros(n), gaps, np.asarray(design.categories))

    def start(self, shares: Float[Array, "items categories"], slope: Param) -> "Graded":
        """The slopes given; intercepts by the shares of those who reach each category."""
        reach = jnp.cumsum(shares[:, ::-1], axis=1)[:, ::-1] / shares.sum(1, keepdims=True)
        intercept = start_intercept(reach[:, 1:], slope[:, None])
        gap = jnp.maximum(intercept[:, :-1] - intercept[:, 1:], 0.1)
        here = jnp.arange(3, shares.shape[1] + 1) <= self.categories[:, None]
        return Graded(slope, intercept[:, 0], jnp.where(here, jnp.log(gap), 0.0), self.categories)

"""Multidimensional (compensatory) items.

All are cases of one surface (McKinley & Reckase 1983),

    P(right | theta) = c + (1 - c) * sigmoid(slope . theta + intercept),

with a slope for each dimension. The field ``pattern`` (0 or 1 for each slope) marks the estimated
slopes; the others are 0.
"""

from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat.models._base import CategoricalModel, Design, Param
from irtcat.models.logistic import LOWER_PRIOR, start_intercept, two_categories

__all__ = ["PLANES", "Bifactor", "MThreePL", "MTwoPL", "has_several", "is_bifactor"]

Slopes = Float[Array | np.ndarray, "*items dims"]
"""One number per item and dimension."""


def has_several(model: type[Any]) -> bool:
    """Whether a class of item models is multidimensional (``dims`` depends on its slopes)."""
    return isinstance(model.dims, property)


def is_bifactor(pattern: np.ndarray) -> bool:
    """Whether every item has the first factor and at most one of the others."""
    marks = np.asarray(pattern) != 0
    return bool(marks[:, 0].all() and (marks[:, 1:].sum(1) <= 1).all())


def _pattern(design: Design) -> np.ndarray:
    """The loading pattern of a design; all slopes free by default."""
    if "pattern" in design.settings:
        return np.asarray(design.settings["pattern"], float)
    return np.ones((design.n_items, design.dims))


def _spread(slope: Float[Array | np.ndarray, "..."], pattern: Slopes) -> Slopes:
    """One rough slope per item, spread over its dimensions; a matrix is only masked."""
    if slope.ndim == pattern.ndim:
        return slope * pattern
    share = jnp.sqrt(jnp.maximum(pattern.sum(-1, keepdims=True), 1.0))
    return slope[..., None] * pattern / share


def _guessing(z: Param, logit_lower: Param) -> Float[Array, " categories"]:
    """Log-probabilities of wrong and right with a lower asymptote, stable in both tails."""
    low, high = jax.nn.log_sigmoid(-z), jax.nn.log_sigmoid(z)
    log_c, log_1c = jax.nn.log_sigmoid(logit_lower), jax.nn.log_sigmoid(-logit_lower)
    return jnp.stack([log_1c + low, jnp.logaddexp(log_c + low, high)])


def _reckase(slope: Slopes, intercept: Param, lower: Param | float) -> dict[str, Param]:
    """Slopes, intercept, lower asymptote; the item's discrimination and distance from the origin.

    ``mdisc`` is the length of the slopes, ``mdiff = -intercept / mdisc`` the signed distance of
    the P = (1 + c) / 2 plane from the origin (NaN where all slopes are 0).
    """
    squared = (slope**2).sum(-1)
    mdisc = jnp.sqrt(jnp.where(squared > 0, squared, 1.0))
    zero = jnp.zeros_like(intercept)
    by_dim = {f"a_{i + 1}": slope[..., i] for i in range(slope.shape[-1])}
    return {
        **by_dim,
        "intercept": intercept + zero,
        "c": lower + zero,
        "mdisc": jnp.where(squared > 0, mdisc, 0.0),
        "mdiff": jnp.where(squared > 0, -intercept / mdisc, jnp.nan),
    }


class _Surface(CategoricalModel):
    """A multidimensional curve that depends on ``slope . theta + intercept``."""

    slope: eqx.AbstractVar[Slopes]
    pattern: eqx.AbstractVar[Slopes]

    takes: ClassVar[str] = "right/wrong"
    n_categories: ClassVar[int] = 2
    fixed: ClassVar[tuple[str, ...]] = ("pattern",)
    tied: ClassVar[tuple[str, ...]] = ()

    @property
    def dims(self) -> int:
        """Number of abilities."""
        return self.slope.shape[-1]


class _Plane(_Surface):
    """``P = sigmoid(slope . theta + intercept)``."""

    intercept: eqx.AbstractVar[Param]

    default_priors: ClassVar[dict[str, tuple[float, float]]] = {}

    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of wrong and right for one item at one ability vector."""
        return two_categories(self.slope @ theta + self.intercept)

    def irt_parameters(self) -> dict[str, Param]:
        """a_1, a_2, ..., intercept, c = 0, mdisc and mdiff (Reckase)."""
        return _reckase(self.slope, self.intercept, 0.0)

    def rescale(self, mean: Float[Array, " dims"], sd: Float[Array, "dims dims"]) -> "_Plane":
        """Slopes times the root ``sd``; the intercept takes up the mean."""
        intercept = self.intercept + self.slope @ mean
        return replace(self, slope=self.slope @ sd, intercept=intercept)

    @classmethod
    def blank(cls, design: Design) -> "_Plane":
        """Items without parameters yet."""
        pattern = _pattern(design)
        return cls(np.zeros_like(pattern), np.zeros(design.n_items), pattern)

    def start(self, shares: Float[Array, "items two"], slope: Float[Array, "..."]) -> "_Plane":
        """The slopes given; intercepts by the share of right answers."""
        slopes = _spread(slope, self.pattern)
        length = jnp.sqrt((slopes**2).sum(-1))
        return replace(self, slope=slopes, intercept=start_intercept(shares[:, 1], length))


class MTwoPL(_Plane):
    """Multidimensional 2PL: ``P = sigmoid(slope . theta + intercept)``.

    References:
        McKinley & Reckase (1983), An extension of the two-parameter logistic model to the
        multidimensional latent space; Reckase (2009), Multidimensional Item Response Theory.
    """

    slope: Slopes
    intercept: Param
    pattern: Slopes

    key: ClassVar[str] = "m2pl"


class MThreePL(_Surface):
    """Multidimensional 3PL: ``P = c + (1 - c) * sigmoid(slope . theta + intercept)``.

    A Normal(-1.1, 0.5) prior on logit c is always on, as in the 3PL.

    References:
        Reckase (2009), Multidimensional Item Response Theory, section 4.1.
    """

    slope: Slopes
    intercept: Param
    logit_lower: Param
    pattern: Slopes

    key: ClassVar[str] = "m3pl"
    default_priors: ClassVar[dict[str, tuple[float, float]]] = {"logit_lower": LOWER_PRIOR}

    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of wrong and right for one item at one ability vector."""
        return _guessing(self.slope @ theta + self.intercept, self.logit_lower)

    def irt_parameters(self) -> dict[str, Param]:
        """a_1, a_2, ..., intercept, c = sigmoid(logit_lower), mdisc and mdiff (Reckase)."""
        return _reckase(self.slope, self.intercept, jax.nn.sigmoid(self.logit_lower))

    def rescale(self, mean: Float[Array, " dims"], sd: Float[Array, "dims dims"]) -> "MThreePL":
        """Slopes times the root ``sd``; the intercept takes up the mean; c stays."""
        intercept = self.intercept + self.slope @ mean
        return MThreePL(self.slope @ sd, intercept, self.logit_lower, self.pattern)

    @classmethod
    def blank(cls, design: Design) -> "MThreePL":
        """Items without parameters yet."""
        pattern = _pattern(design)
        zero = np.zeros(design.n_items)
        return cls(np.zeros_like(pattern), zero, zero, pattern)

    def start(self, shares: Float[Array, "items two"], slope: Float[Array, "..."]) -> "MThreePL":
        """The slopes given, c at its prior mean, intercepts by the share above guessing."""
        slopes = _spread(slope, self.pattern)
        lower = jnp.full_like(self.intercept, LOWER_PRIOR[0])
        c = jax.nn.sigmoid(lower)
        length = jnp.sqrt((slopes**2).sum(-1))
        intercept = start_intercept((shares[:, 1] - c) / (1 - c), length)
        return MThreePL(slopes, intercept, lower, self.pattern)


class Bifactor(_Plane):
    """Bifactor model: a general ability and at most one specific ability per item.

    The curve is that of the multidimensional 2PL; all abilities are independent, so that the
    integrals over the specific abilities are computed one at a time (Gibbons & Hedeker).

    References:
        Holzinger & Swineford (1937), Psychometrika 2, 41-54; Gibbons & Hedeker (1992),
        Psychometrika 57, 423-436.
    """

    slope: Slopes
    intercept: Param
    pattern: Slopes

    key: ClassVar[str] = "bifactor"


PLANES = (MTwoPL, Bifactor)
"""Models whose parameters are (slopes, intercept) of a logistic surface, in this order."""

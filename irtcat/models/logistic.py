"""The logistic family for right/wrong items: Rasch, 1PL, 2PL, 3PL, 4PL, feasibility.

All are cases of one curve (Barton & Lord 1981; of several abilities McKinley & Reckase 1983),

    P(right | theta) = c + (d - c) * sigmoid(slope . theta + intercept),

with slope = a, intercept = -a b, lower asymptote c and upper asymptote d. Slope and intercept are
stored instead of a and b, because they stay finite where an item does not discriminate. The curve
is evaluated as the mixture ``c * sigmoid(-z) + d * sigmoid(z)``,
whose logarithm is stable in both tails.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import expit, logit

from irtcat._common.types import FloatArray
from irtcat.models.base import Design, Param, Parameter, replaced
from irtcat.models.links import Asymptotes, Link, LinkModel
from irtcat.models.slopes import (
    INTERCEPT,
    SLOPE,
    Slopes,
    along,
    common_slope,
    predictor_row,
    published_on_axes,
    rescaled_slope,
    slope_length,
)

Predictors = tuple[Float[Array, "predictors one_and_dims"], Float[Array, " gaps"]]

LOWER = Parameter(-12.0, 3.0, prior=(-1.1, 0.5))
UPPER = Parameter(-3.0, 12.0, prior=(3.0, 0.5))
FEASIBILITY = Parameter(-6.0, 12.0, prior=(2.0, 1.5))
"""Logits of asymptotes: bounds, and (mean, SD) of the Normal priors that are always on."""


def two_categories(z: Param) -> Float[Array, " categories"]:
    """Log-probabilities of wrong and right for the linear predictor ``z``."""
    return jnp.stack([jax.nn.log_sigmoid(-z), jax.nn.log_sigmoid(z)])


def start_intercept(share: FloatArray, slope: Any) -> FloatArray:
    """The intercept that gives this share of right answers over a N(0, 1) population.

    The logistic-normal integral is close to sigmoid(intercept / sqrt(1 + slope^2 / 2.89)).
    """
    return logit(np.clip(share, 0.002, 0.998)) * np.sqrt(1 + slope**2 / 2.89)


class Rasch(LinkModel):
    """Rasch model: ``P = sigmoid(theta + intercept)``, b = -intercept; the population SD is free.

    With several abilities it is reported as the 1PL, whose slopes are the abilities' SDs.

    References:
        Rasch (1960), Probabilistic Models for Some Intelligence and Attainment Tests.
    """

    intercept: Param

    key: ClassVar[str] = "rasch"
    takes: ClassVar[str] = "right/wrong"
    n_categories: ClassVar[int] = 2
    has_fixed_unit: ClassVar[bool] = True
    has_facets: ClassVar[bool] = True
    has_linear_predictors: ClassVar[bool] = True
    link: ClassVar[Link] = Asymptotes(lower=False, upper=False)
    parameters: ClassVar[Mapping[str, Parameter]] = {"intercept": INTERCEPT}

    def predictors(self) -> Predictors:
        """The curve's, with slope 1."""
        row = predictor_row(self.intercept, jnp.ones_like(self.intercept))
        return row[None], jnp.zeros(0, row.dtype)

    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of wrong and right for one item at one ability."""
        return two_categories(theta[0] + self.intercept)

    def irt_parameters(self) -> dict[str, Param]:
        """A = 1, b = -intercept, c = 0, d = 1."""
        return irt_parameters_of(jnp.ones_like(self.intercept), self.intercept)

    def rescale(self, mean: Any, sd: Any) -> "OnePL":  # type: ignore[override]
        """A 1PL with slope ``sd``: on the standardised scale the common slope is the SD."""
        return OnePL(sd + 0 * self.intercept, self.intercept + mean)

    @classmethod
    def blank(cls, design: Design) -> "Rasch":
        """Items without parameters yet."""
        return cls(np.zeros(design.n_items))

    def start(self, shares: Float[np.ndarray, "items two"], slope: Slopes) -> "Rasch":
        """Intercept by the share of right answers; the slope is always 1."""
        return Rasch(start_intercept(shares[:, 1], np.ones_like(shares[:, 1])))


class BinaryModel(LinkModel):
    """Right/wrong items with slopes, an intercept, and the logits of asymptotes, if any.

    A model adds its fields, ``key``, ``link`` and ``parameters``.

    Attributes:
        lower: name of the field with the logit of the lower asymptote, if any.
        upper: name of the field with the logit of the upper asymptote, if any.
    """

    slope: eqx.AbstractVar[Slopes]
    intercept: eqx.AbstractVar[Param]

    takes: ClassVar[str] = "right/wrong"
    n_categories: ClassVar[int] = 2
    has_linear_predictors: ClassVar[bool] = True
    lower: ClassVar[str] = ""
    upper: ClassVar[str] = ""

    def predictors(self) -> Predictors:
        """The curve's predictor, then the asymptotes' logits, which have no slope."""
        flat = jnp.zeros_like(self.slope)
        rows = [predictor_row(self.intercept, self.slope)]
        for name in filter(None, (self.lower, self.upper)):
            rows.append(predictor_row(getattr(self, name), flat))
        return jnp.stack(rows), jnp.zeros(0, rows[0].dtype)

    def irt_parameters(self) -> dict[str, Param]:
        """A = slope, b = -intercept / slope, asymptotes c and d; Reckase's of several abilities."""
        lower = jax.nn.sigmoid(getattr(self, self.lower)) if self.lower else 0.0
        upper = jax.nn.sigmoid(getattr(self, self.upper)) if self.upper else 1.0
        return published_on_axes(
            self.slope,
            self.dims,
            {"intercept": self.intercept},
            lambda a: irt_parameters_of(a, self.intercept, lower, upper),
        )

    def rescale(self, mean: Any, sd: Any) -> "BinaryModel":
        """Slope times ``sd``; the intercept takes up the mean; the asymptotes stay."""
        slope, shift = rescaled_slope(self.slope, self.dims, mean, sd)
        return replaced(self, slope=slope, intercept=self.intercept + shift)

    @classmethod
    def blank(cls, design: Design) -> "BinaryModel":
        """Items without parameters yet."""
        logits = [np.zeros(design.n_items) for name in (cls.lower, cls.upper) if name]
        return cls(np.zeros(design.slope_shape), np.zeros(design.n_items), *logits)

    def start(self, shares: Float[np.ndarray, "items two"], slope: Slopes) -> "BinaryModel":
        """The slopes given, asymptotes at their prior means, intercepts by the share between."""
        logits = {}
        for name in filter(None, (self.lower, self.upper)):
            prior = self.parameters[name].prior
            assert prior is not None
            logits[name] = np.full(len(shares), prior[0], shares.dtype)
        lower = expit(logits[self.lower]) if self.lower else 0.0
        upper = expit(logits[self.upper]) if self.upper else 1.0
        share = (shares[:, 1] - lower) / (upper - lower)
        intercept = start_intercept(share, slope_length(slope, self.dims))
        return replaced(self, slope=slope, intercept=intercept, **logits)


class _TwoParameters(BinaryModel):
    """``P = sigmoid(slope . theta + intercept)``."""

    closed_form: ClassVar[str] = "logistic"
    link: ClassVar[Link] = Asymptotes(lower=False, upper=False)

    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of wrong and right for one item at one ability."""
        return two_categories(along(self.slope, theta) + self.intercept)


class OnePL(_TwoParameters):
    """One-parameter logistic model: ``P = sigmoid(slope * theta + intercept)``, one slope for all.

    The same curves as Rasch's on another scale: here the population SD is 1. With several abilities
    the items of each have a common slope.

    References:
        Birnbaum (1968), in Lord & Novick, Statistical Theories of Mental Test Scores.
    """

    slope: Slopes
    intercept: Param

    key: ClassVar[str] = "1pl"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "slope": dataclasses.replace(SLOPE, tied=True),
        "intercept": INTERCEPT,
    }

    def start(self, shares: Float[np.ndarray, "items two"], slope: Slopes) -> "OnePL":
        """The mean of the slopes for all; intercepts by the share of right answers."""
        common = common_slope(slope)
        return OnePL(common, start_intercept(shares[:, 1], slope_length(common, self.dims)))


class TwoPL(_TwoParameters):
    """Two-parameter logistic model: ``P = sigmoid(slope . theta + intercept)``.

    References:
        Birnbaum (1968), in Lord & Novick, Statistical Theories of Mental Test Scores. McKinley &
        Reckase (1983), An extension of the two-parameter logistic model to the multidimensional
        latent space. Reckase (2009), Multidimensional Item Response Theory.
    """

    slope: Slopes
    intercept: Param

    key: ClassVar[str] = "2pl"
    parameters: ClassVar[Mapping[str, Parameter]] = {"slope": SLOPE, "intercept": INTERCEPT}


class ThreePL(BinaryModel):
    """Three-parameter logistic model: ``P = c + (1 - c) * sigmoid(slope . theta + intercept)``.

    A Normal(-1.1, 0.5) prior on logit c is always on (c about .25, 95 % within .11 to .47):
    without one the likelihood is close to flat in c for easy items.

    References:
        Birnbaum (1968); equation 1 of Lalor, Wu & Yu (2016); of several abilities Reckase (2009),
        Multidimensional Item Response Theory, section 4.1.
    """

    slope: Slopes
    intercept: Param
    logit_lower: Param

    key: ClassVar[str] = "3pl"
    link: ClassVar[Link] = Asymptotes(lower=True, upper=False)
    lower: ClassVar[str] = "logit_lower"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "slope": SLOPE,
        "intercept": INTERCEPT,
        "logit_lower": LOWER,
    }


class FourPL(BinaryModel):
    """Four-parameter logistic model: ``P = c + (d - c) * sigmoid(slope . theta + intercept)``.

    Normal priors are always on: logit c ~ N(-1.1, 0.5) and logit d ~ N(3, 0.5) (d about .95).

    References:
        Barton & Lord (1981), An upper asymptote for the three-parameter logistic model.
    """

    slope: Slopes
    intercept: Param
    logit_lower: Param
    logit_upper: Param

    key: ClassVar[str] = "4pl"
    link: ClassVar[Link] = Asymptotes(lower=True, upper=True)
    lower: ClassVar[str] = "logit_lower"
    upper: ClassVar[str] = "logit_upper"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "slope": SLOPE,
        "intercept": INTERCEPT,
        "logit_lower": LOWER,
        "logit_upper": UPPER,
    }


class Feasibility(BinaryModel):
    """Feasibility model: ``P(right) = lambda sigmoid(slope . theta + intercept)``.

    Lambda, the feasibility, is the share of right answers that even the ablest reach (an upper
    asymptote: d of the 4PL, with c = 0); labels that are wrong make it small. Slopes may be
    negative. A weak Normal(2, 1.5) prior on logit lambda is always on (95 % within .28 and .99):
    for an item with few right answers, the likelihood hardly distinguishes "hard" from
    "infeasible".

    References:
        Rodriguez et al. (2021), Evaluation Examples are not Equally Informative, ACL, section 3.
    """

    slope: Slopes
    intercept: Param
    logit_feasibility: Param

    key: ClassVar[str] = "feasibility"
    link: ClassVar[Link] = Asymptotes(lower=False, upper=True)
    upper: ClassVar[str] = "logit_feasibility"
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "slope": SLOPE,
        "intercept": INTERCEPT,
        "logit_feasibility": FEASIBILITY,
    }


def irt_parameters_of(
    slope: Any, intercept: Any, lower: Any = 0.0, upper: Any = 1.0
) -> dict[str, Param]:
    """(a, b, c, d); b is NaN where the slope is 0, where it is not defined."""
    safe = jnp.where(slope == 0, 1.0, slope)
    b = jnp.where(slope == 0, jnp.nan, -intercept / safe)
    zero = jnp.zeros_like(intercept)
    return {"a": slope + zero, "b": b, "c": lower + zero, "d": upper + zero}

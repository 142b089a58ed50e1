"""The logistic family for right/wrong items: Rasch, 1PL, 2PL, 3PL, 4PL.

All five are cases of one curve (Barton & Lord 1981),

    P(right | theta) = c + (d - c) * sigmoid(slope * theta + intercept),

with slope = a, intercept = -a b, lower asymptote c and upper asymptote d. Slope and intercept are
stored instead of a and b, because they stay finite where an item does not discriminate. The curve
is evaluated as the mixture ``c * sigmoid(-z) + d * sigmoid(z)``,
whose logarithm is stable in both tails.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat.models._base import CategoricalModel, Design, Param
from irtcat.models._links import Asymptotes, Link, LinkModel

__all__ = [
    "FourPL",
    "OnePL",
    "Rasch",
    "ThreePL",
    "TwoPL",
    "irt_parameters_of",
    "predictor_rows",
    "start_intercept",
    "two_categories",
]

Predictors = tuple[Float[Array, "predictors one_and_dims"], Float[Array, " gaps"]]
AnyShape = Float[Array | np.ndarray, "..."]

LOWER_PRIOR, UPPER_PRIOR = (-1.1, 0.5), (3.0, 0.5)
"""(mean, SD) of the default Normal priors on logit c and logit d."""


def two_categories(z: Param) -> Float[Array, " categories"]:
    """Log-probabilities of wrong and right for the linear predictor ``z``."""
    return jnp.stack([jax.nn.log_sigmoid(-z), jax.nn.log_sigmoid(z)])


def predictor_rows(slope: Param, intercept: Param, *logits: Param) -> Predictors:
    """The curve's predictor, then the asymptotes' logits, which have no slope."""
    rows = [[intercept, slope], *([logit, jnp.zeros_like(slope)] for logit in logits)]
    return jnp.stack([jnp.stack(row) for row in rows]), jnp.zeros(0, jnp.asarray(slope).dtype)


def irt_parameters_of(
    slope: Param, intercept: Param, lower: Param | float = 0.0, upper: Param | float = 1.0
) -> dict[str, Param]:
    """(a, b, c, d); b is NaN where the slope is 0, where it is not defined."""
    safe = jnp.where(slope == 0, 1.0, slope)
    b = jnp.where(slope == 0, jnp.nan, -intercept / safe)
    zero = jnp.zeros_like(intercept)
    return {"a": slope + zero, "b": b, "c": lower + zero, "d": upper + zero}


def start_intercept(share: AnyShape, slope: AnyShape) -> Array:
    """The intercept that gives this share of right answers over a N(0, 1) population.

    The logistic-normal integral is close to sigmoid(intercept / sqrt(1 + slope^2 / 2.89)).
    """
    logit = jax.scipy.special.logit(jnp.clip(share, 0.002, 0.998))
    return logit * jnp.sqrt(1 + slope**2 / 2.89)


class Rasch(CategoricalModel):
    """Rasch model: ``P = sigmoid(theta + intercept)``, b = -intercept; the population SD is free.

    References:
        Rasch (1960), Probabilistic Models for Some Intelligence and Attainment Tests.
    """

    intercept: Param

    key: ClassVar[str] = "rasch"
    takes: ClassVar[str] = "right/wrong"
    n_categories: ClassVar[int] = 2
    dims: ClassVar[int] = 1
    fixed: ClassVar[tuple[str, ...]] = ()
    tied: ClassVar[tuple[str, ...]] = ()
    default_priors: ClassVar[dict[str, tuple[float, float]]] = {}

    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of wrong and right for one item at one ability."""
        return two_categories(theta[0] + self.intercept)

    def irt_parameters(self) -> dict[str, Param]:
        """A = 1, b = -intercept, c = 0, d = 1."""
        return irt_parameters_of(jnp.ones_like(self.intercept), self.intercept)

    def rescale(self, mean: Param, sd: Param) -> "OnePL":  # type: ignore[override]
        """A 1PL with slope ``sd``: on the standardised scale the common slope is the SD."""
        return OnePL(sd + jnp.zeros_like(self.intercept), self.intercept + mean)

    @classmethod
    def blank(cls, design: Design) -> "Rasch":
        """Items without parameters yet."""
        return cls(*np.zeros((1, design.n_items)))

    def start(self, shares: Float[Array, "items two"], slope: Param) -> "Rasch":
        """Intercept by the share of right answers; the slope is always 1."""
        return Rasch(start_intercept(shares[:, 1], jnp.ones_like(slope)))


class OnePL(CategoricalModel):
    """One-parameter logistic model: ``P = sigmoid(slope * theta + intercept)``, one slope for all.

    The same curves as Rasch's on another scale: here the population SD is 1.

    References:
        Birnbaum (1968), in Lord & Novick, Statistical Theories of Mental Test Scores.
    """

    slope: Param
    intercept: Param

    key: ClassVar[str] = "1pl"
    takes: ClassVar[str] = "right/wrong"
    n_categories: ClassVar[int] = 2
    dims: ClassVar[int] = 1
    fixed: ClassVar[tuple[str, ...]] = ()
    tied: ClassVar[tuple[str, ...]] = ("slope",)
    default_priors: ClassVar[dict[str, tuple[float, float]]] = {}

    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of wrong and right for one item at one ability."""
        return two_categories(self.slope * theta[0] + self.intercept)

    def irt_parameters(self) -> dict[str, Param]:
        """A = slope, b = -intercept / slope, c = 0, d = 1."""
        return irt_parameters_of(self.slope, self.intercept)

    def rescale(self, mean: Param, sd: Param) -> "OnePL":
        """Slope times ``sd``; the intercept takes up the mean."""
        return OnePL(self.slope * sd, self.intercept + self.slope * mean)

    @classmethod
    def blank(cls, design: Design) -> "OnePL":
        """Items without parameters yet."""
        return cls(*np.zeros((2, design.n_items)))

    def start(self, shares: Float[Array, "items two"], slope: Param) -> "OnePL":
        """The mean of the slopes for all; intercepts by the share of right answers."""
        common = jnp.full_like(slope, slope.mean())
        return OnePL(common, start_intercept(shares[:, 1], common))


class TwoPL(CategoricalModel):
    """Two-parameter logistic model: ``P = sigmoid(slope * theta + intercept)``.

    References:
        Birnbaum (1968), in Lord & Novick, Statistical Theories of Mental Test Scores.
    """

    slope: Param
    intercept: Param

    key: ClassVar[str] = "2pl"
    takes: ClassVar[str] = "right/wrong"
    n_categories: ClassVar[int] = 2
    dims: ClassVar[int] = 1
    fixed: ClassVar[tuple[str, ...]] = ()
    tied: ClassVar[tuple[str, ...]] = ()
    default_priors: ClassVar[dict[str, tuple[float, float]]] = {}

    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of wrong and right for one item at one ability."""
        return two_categories(self.slope * theta[0] + self.intercept)

    def irt_parameters(self) -> dict[str, Param]:
        """A = slope, b = -intercept / slope, c = 0, d = 1."""
        return irt_parameters_of(self.slope, self.intercept)

    def rescale(self, mean: Param, sd: Param) -> "TwoPL":
        """Slope times ``sd``; the intercept takes up the mean."""
        return TwoPL(self.slope * sd, self.intercept + self.slope * mean)

    @classmethod
    def blank(cls, design: Design) -> "TwoPL":
        """Items without parameters yet."""
        return cls(*np.zeros((2, design.n_items)))

    def start(self, shares: Float[Array, "items two"], slope: Param) -> "TwoPL":
        """The slopes given; intercepts by the share of right answers."""
        return TwoPL(slope, start_intercept(shares[:, 1], slope))


class ThreePL(LinkModel):
    """Three-parameter logistic model: ``P = c + (1 - c) * sigmoid(slope * theta + intercept)``.

    A Normal(-1.1, 0.5) prior on logit c is always on (c about .25, 95 % within .11 to .47):
    without one the likelihood is close to flat in c for easy items.

    References:
        Birnbaum (1968); equation 1 of Lalor, Wu & Yu (2016).
    """

    slope: Param
    intercept: Param
    logit_lower: Param

    key: ClassVar[str] = "3pl"
    takes: ClassVar[str] = "right/wrong"
    n_categories: ClassVar[int] = 2
    dims: ClassVar[int] = 1
    link: ClassVar[Link] = Asymptotes(lower=True, upper=False)
    fixed: ClassVar[tuple[str, ...]] = ()
    tied: ClassVar[tuple[str, ...]] = ()
    default_priors: ClassVar[dict[str, tuple[float, float]]] = {"logit_lower": LOWER_PRIOR}

    def predictors(self) -> Predictors:
        """The curve's, and the logit of its lower asymptote."""
        return predictor_rows(self.slope, self.intercept, self.logit_lower)

    def irt_parameters(self) -> dict[str, Param]:
        """A = slope, b = -intercept / slope, c = sigmoid(logit_lower), d = 1."""
        return irt_parameters_of(self.slope, self.intercept, jax.nn.sigmoid(self.logit_lower))

    def rescale(self, mean: Param, sd: Param) -> "ThreePL":
        """Slope times ``sd``; the intercept takes up the mean; c stays."""
        intercept = self.intercept + self.slope * mean
        return ThreePL(self.slope * sd, intercept, self.logit_lower)

    @classmethod
    def blank(cls, design: Design) -> "ThreePL":
        """Items without parameters yet."""
        return cls(*np.zeros((3, design.n_items)))

    def start(self, shares: Float[Array, "items two"], slope: Param) -> "ThreePL":
        """The slopes given, c at its prior mean, intercepts by the share above guessing."""
        lower = jnp.full_like(slope, LOWER_PRIOR[0])
        c = jax.nn.sigmoid(lower)
        return ThreePL(slope, start_intercept((shares[:, 1] - c) / (1 - c), slope), lower)


class FourPL(LinkModel):
    """Four-parameter logistic model: ``P = c + (d - c) * sigmoid(slope * theta + intercept)``.

    Normal priors are always on: logit c ~ N(-1.1, 0.5) and logit d ~ N(3, 0.5) (d about .95).

    References:
        Barton & Lord (1981), An upper asymptote for the three-parameter logistic model.
    """

    slope: Param
    intercept: Param
    logit_lower: Param
    logit_upper: Param

    key: ClassVar[str] = "4pl"
    takes: ClassVar[str] = "right/wrong"
    n_categories: ClassVar[int] = 2
    dims: ClassVar[int] = 1
    link: ClassVar[Link] = Asymptotes(lower=True, upper=True)
    fixed: ClassVar[tuple[str, ...]] = ()
    tied: ClassVar[tuple[str, ...]] = ()
    default_priors: ClassVar[dict[str, tuple[float, float]]] = {
        "logit_lower": LOWER_PRIOR,
        "logit_upper": UPPER_PRIOR,
    }

    def predictors(self) -> Predictors:
        """The curve's, and the logits of its asymptotes."""
        return predictor_rows(self.slope, self.intercept, self.logit_lower, self.logit_upper)

    def irt_parameters(self) -> dict[str, Param]:
        """A = slope, b = -intercept / slope, c and d from their logits."""
        c, d = jax.nn.sigmoid(self.logit_lower), jax.nn.sigmoid(self.logit_upper)
        return irt_parameters_of(self.slope, self.intercept, c, d)

    def rescale(self, mean: Param, sd: Param) -> "FourPL":
        """Slope times ``sd``; the intercept takes up the mean; c and d stay."""
        intercept = self.intercept + self.slope * mean
        return FourPL(self.slope * sd, intercept, self.logit_lower, self.logit_upper)

    @classmethod
    def blank(cls, design: Design) -> "FourPL":
        """Items without parameters yet."""
        return cls(*np.zeros((4, design.n_items)))

    def start(self, shares: Float[Array, "items two"], slope: Param) -> "FourPL":
        """The slopes given, c and d at their prior means, intercepts by the share between."""
        lower = jnp.full_like(slope, LOWER_PRIOR[0])
        upper = jnp.full_like(slope, UPPER_PRIOR[0])
        c, d = jax.nn.sigmoid(lower), jax.nn.sigmoid(upper)
        intercept = start_intercept((shares[:, 1] - c) / (d - c), slope)
        return FourPL(slope, intercept, lower, upper)

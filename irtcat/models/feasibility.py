"""The difficulty-discriminability-feasibility model of leaderboards."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat.models._base import Design, Param
from irtcat.models._links import Asymptotes, Link, LinkModel
from irtcat.models.logistic import Predictors, irt_parameters_of, predictor_rows, start_intercept

__all__ = ["Feasibility"]

FEASIBILITY_PRIOR = (2.0, 1.5)


class Feasibility(LinkModel):
    """Feasibility model: ``P(right) = lambda sigmoid(slope theta + intercept)``.

    Lambda, the feasibility, is the share of right answers that even the ablest reach (an upper
    asymptote: d of the 4PL, with c = 0); labels that are wrong make it small. Slopes may be
    negative. A weak Normal(2, 1.5) prior on logit lambda is always on (95 % within .28 and .99):
    for an item with few right answers, the likelihood hardly distinguishes "hard" from
    "infeasible".

    References:
        Rodriguez et al. (2021), Evaluation Examples are not Equally Informative, ACL, section 3.
    """

    slope: Param
    intercept: Param
    logit_feasibility: Param

    key: ClassVar[str] = "feasibility"
    takes: ClassVar[str] = "right/wrong"
    n_categories: ClassVar[int] = 2
    dims: ClassVar[int] = 1
    link: ClassVar[Link] = Asymptotes(lower=False, upper=True)
    fixed: ClassVar[tuple[str, ...]] = ()
    tied: ClassVar[tuple[str, ...]] = ()
    default_priors: ClassVar[dict[str, tuple[float, float]]] = {
        "logit_feasibility": FEASIBILITY_PRIOR
    }

    def predictors(self) -> Predictors:
        """The predictor of the curve, and the logit of its asymptote."""
        return predictor_rows(self.slope, self.intercept, self.logit_feasibility)

    def irt_parameters(self) -> dict[str, Param]:
        """A, b, c = 0, and d, the feasibility."""
        feasible = jax.nn.sigmoid(self.logit_feasibility)
        return irt_parameters_of(self.slope, self.intercept, 0.0, feasible)

    def rescale(self, mean: Param, sd: Param) -> "Feasibility":
        """Slope times ``sd``; the intercept takes up the mean; the feasibility stays."""
        intercept = self.intercept + self.slope * mean
        return Feasibility(self.slope * sd, intercept, self.logit_feasibility)

    @classmethod
    def blank(cls, design: Design) -> "Feasibility":
        """Items without parameters yet."""
        return cls(*np.zeros((3, design.n_items)))

    def start(self, shares: Float[Array, "items two"], slope: Param) -> "Feasibility":
        """The slopes given, feasibility at its prior mean, intercepts by the share of it."""
        logit = jnp.full_like(slope, FEASIBILITY_PRIOR[0])
        share = shares[:, 1] / jax.nn.sigmoid(logit)
        return Feasibility(slope, start_intercept(share, slope), logit)

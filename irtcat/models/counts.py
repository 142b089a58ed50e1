"""Counts: k right of n trials of the same item, with a logistic curve for each trial.

The responses reach the model as one 32-bit integer per cell, n in its upper half and k in its lower
(`pack_counts`); a cell without trials is missing.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat.models.base import Design, ItemModel, Mask, Param, Parameter, Statistics, shares_of
from irtcat.models.logistic import irt_parameters_of, start_intercept, two_categories
from irtcat.models.slopes import INTERCEPT, SLOPE

_SHIFT = 16


def pack_counts(k: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Pack k right of n trials in one int32 per cell (n = 0: missing).

    Example:
        >>> cells = pack_counts(np.array([3, 0]), np.array([10, 0]))
        >>> [part.tolist() for part in unpack_counts(cells)]
        [[3, 0], [10, 0]]
    """
    return np.left_shift(np.asarray(n, np.int32), _SHIFT) + np.asarray(k, np.int32)


def unpack_counts(x: Any) -> tuple[Any, Any]:
    """Undo `pack_counts`: k and n."""
    return x & (2**_SHIFT - 1), x >> _SHIFT


class Binomial(ItemModel):
    """Binomial counts: k of n trials right, each with ``P = sigmoid(slope * theta + intercept)``.

    For benchmarks that sample every item several times (the pass rate over n runs). The likelihood
    is that of the single trials in their order: the constant ``log C(n, k)`` is left out, so that
    log-likelihoods are comparable with those of the same model as a 2PL with equal parameters on n
    columns, one per trial. ``trials`` is an item's usual number of trials: simulation, information
    and expected scores are of that many; data may have fewer or more in any cell.

    References:
        Andrich (1978), A binomial latent trait model for the study of Likert-style attitude
        questionnaires, British Journal of Mathematical and Statistical Psychology 31, 84-98
        (one trial's curve there is Rasch's).
    """

    slope: Param
    intercept: Param
    trials: Param

    key: ClassVar[str] = "binomial"
    takes: ClassVar[str] = "counts"
    closed_form: ClassVar[str] = "logistic trials"
    n_categories: ClassVar[int] = 2
    dims: ClassVar[int] = 1
    fixed: ClassVar[tuple[str, ...]] = ("trials",)
    parameters: ClassVar[Mapping[str, Parameter]] = {"slope": SLOPE, "intercept": INTERCEPT}

    def natural(self, theta: Float[Array, " dims"]) -> Float[Array, " one_and_contrasts"]:
        """``n log(1 - P)`` and ``n logit P``; the statistic is the share k / n."""
        log_p = two_categories(self.slope * theta[0] + self.intercept)
        return jnp.stack([log_p[0], log_p[1] - log_p[0]]) * self.trials

    def log_outcomes(self, theta: Float[Array, " dims"]) -> Float[Array, " two"]:
        """``n log(1 - P)`` and ``n log P``."""
        return two_categories(self.slope * theta[0] + self.intercept) * self.trials

    @staticmethod
    def outcomes(
        statistics: Statistics, mask: Float[Array, "rows items"]
    ) -> Float[Array, "two rows items"]:
        """The shares of wrong and right trials."""
        return shares_of(statistics, mask)

    def variance(self, theta: Float[Array, " dims"]) -> Float[Array, "contrasts contrasts"]:
        """``P (1 - P) / n``."""
        return self.response_variance(theta)[None, None]

    def mean(self, theta: Float[Array, " dims"]) -> Float[Array, ""]:
        """Expected share of right trials."""
        return jax.nn.sigmoid(self.slope * theta[0] + self.intercept)

    def response_variance(self, theta: Float[Array, " dims"]) -> Float[Array, ""]:
        """Variance of the share of right trials."""
        z = self.slope * theta[0] + self.intercept
        return jnp.asarray(jax.nn.sigmoid(z) * jax.nn.sigmoid(-z) / self.trials)

    def draw(self, theta: Float[Array, " dims"], key: Array) -> Array:
        """The share of right trials of one draw."""
        p = self.mean(theta)
        return jax.random.binomial(key, self.trials, p, dtype=p.dtype) / self.trials

    def sufficient_statistics(
        self, x: Array, n_contrasts: int, has_missing: bool, dtype: np.dtype
    ) -> tuple[Statistics, Mask]:
        """``k / trials``, and where the numbers of trials differ ``n / trials``.

        Right/wrong codes (-1 missing) are one trial each.
        """
        if x.dtype == jnp.int8:
            k, n = jnp.maximum(x, 0), (x >= 0)
        else:
            k, n = unpack_counts(x)
        mask = n.astype(dtype) / self.trials if has_missing else None
        return (k.astype(dtype) / self.trials)[None], mask

    def irt_parameters(self) -> dict[str, Param]:
        """A = slope, b = -intercept / slope, c = 0, d = 1 of one trial."""
        return irt_parameters_of(self.slope, self.intercept)

    def rescale(self, mean: Any, sd: Any) -> "Binomial":
        """Slope times ``sd``; the intercept takes up the mean."""
        intercept = self.intercept + self.slope * mean
        return dataclasses.replace(self, slope=self.slope * sd, intercept=intercept)

    @classmethod
    def blank(cls, design: Design) -> "Binomial":
        """Items without parameters yet; one trial each by default."""
        trials = np.asarray(design.settings.get("trials", np.ones(design.n_items)), float)
        slope, intercept = np.zeros((2, design.n_items))
        return cls(slope, intercept, trials)

    def start(self, shares: Float[np.ndarray, "items two"], slope: Param) -> "Binomial":
        """The slopes given; intercepts by the share of right trials."""
        return Binomial(slope, start_intercept(shares[:, 1], slope), self.trials)

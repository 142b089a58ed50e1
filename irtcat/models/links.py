"""Links: from a few linear predictors of ability to the probabilities of the categories.

Most item models are one of three functions of linear predictors z_m = intercept_m + slope_m theta:

- `CUMULATIVE` (graded): ``P(x >= k) = sigmoid(z_k)``, with ``z_1 > z_2 > ...``;
- `SOFTMAX` (partial credit, nominal): ``P(x = k) = exp(z_k) / sum_v exp(z_v)``, ``z_0 = 0``;
- `Asymptotes` (logistic models): ``P(right) = c + (d - c) sigmoid(z_1)``, the asymptotes' logits
  being predictors without a slope.

Each gives the log-probabilities of one item at one ability, and, for the M-step, derivative and
expected information of all items' log-likelihoods in the predictors. Category (or predictor) is the
first axis of every array, so that stacking is cheap. The terms of these three compute with arrays
of numpy as well as JAX's.
"""

import abc
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import namespace
from irtcat.models.base import CategoricalModel, category_parameters

ABSENT = -1e4
"""Log-odds of a category that an item does not have: probability 0, and 0 times it is 0."""


class LinkTerms(NamedTuple):
    """The terms of the M-step for all items at points; the derivatives unless left out.

    Attributes:
        value: expected log-likelihood, points x items.
        residual: its derivative in each predictor, each points x items.
        weight: expected information, by pairs of predictors (m <= n); absent pairs are 0.
        offset: what is to be added to the residual of each response at all of its points, rows x
            items; None for 0. Sums over points are then shorter than with an array of all points.
    """

    value: Any
    residual: Any = ()
    weight: Any = MappingProxyType({})
    offset: Any = None


class Link(abc.ABC):
    """Interface of links; the predictors are the first axis of all arrays.

    Attributes:
        has_predictor_per_contrast: whether there are as many predictors as categories but the
            first; otherwise there are two categories.
        is_logistic: whether it is that of the logistic models (`Asymptotes`).
        takes_numpy: whether `terms` computes with arrays of numpy, too, and there is `observed`.
    """

    has_predictor_per_contrast: ClassVar[bool] = True
    is_logistic: ClassVar[bool] = False
    takes_numpy: ClassVar[bool] = False

    @property
    def is_canonical(self) -> bool:
        """Whether the predictors are the log-odds of the categories against the first."""
        return False

    @staticmethod
    def pairs(n_predictors: int) -> list[tuple[int, int]]:
        """The pairs of predictors that share information."""
        return [(m, n) for n in range(n_predictors) for m in range(n + 1)]

    @abc.abstractmethod
    def log_probs(self, z: Array, gaps: Array) -> Array:
        """Log-probabilities of the categories of one item at one ability.

        Args:
            z: the predictors.
            gaps: differences of neighbouring predictors of a cumulative link, which do not
                depend on ability; otherwise empty.

        Returns:
            Log-probabilities, finite for all predictors.
        """

    def terms(
        self, z: list[Any], gaps: list[Any], counts: Any, totals: Any, *, only_values: bool = False
    ) -> LinkTerms:
        """Terms of the M-step; by automatic differentiation, unless a link has quicker ones.

        Args:
            z: predictors, each nodes x items.
            gaps: as above, one number an item.
            counts: expected number of answers in category 1, 2, ..., each nodes x items.
            totals: expected number of answers, nodes x items or nodes x 1.
            only_values: leave out the derivatives, which take most of the time.
        """

        def curve(z: Array, gaps: Array) -> Array:
            if gaps.size:  # the gaps are as given, and change as the predictors do
                change = z[:-1] - z[1:]
                gaps = gaps + change - jax.lax.stop_gradient(change)
            return self.log_probs(z, gaps)

        at = jnp.stack(z, axis=-1)
        gap = jnp.stack(gaps, axis=-1) if gaps else jnp.zeros(0, at.dtype)
        log_p = jnp.vectorize(curve, signature="(m),(g)->(k)")(at, gap)
        n = jnp.stack([totals - sum(counts), *counts], axis=-1)
        if only_values:
            return LinkTerms((n * log_p).sum(-1))
        slopes = jnp.vectorize(jax.jacfwd(curve), signature="(m),(g)->(k,m)")(at, gap)
        residual = jnp.moveaxis((n[..., None] * slopes).sum(-2), -1, 0)
        p = totals[..., None] * jnp.exp(log_p)
        pairs = self.pairs(len(z))
        weight = {(i, j): (p * slopes[..., i] * slopes[..., j]).sum(-1) for i, j in pairs}
        return LinkTerms((n * log_p).sum(-1), list(residual), weight)

    def observed(
        self, z: list[Any], gaps: list[Any], counts: Any, totals: Any
    ) -> dict[tuple[int, int], Any]:
        """Observed information: minus the second derivatives of `LinkTerms.value`, as its weight.

        The gaps change with the predictors.
        """
        raise NotImplementedError


def _sigmoids(z: Any) -> tuple[Any, Any, Any, Any]:
    """sigmoid(z), sigmoid(-z) and their logarithms by one exponential and one logarithm."""
    xp = namespace(z)
    small = xp.exp(-xp.abs(z))
    total = 1 + small
    # log1p takes three times as long in numpy: the error is that of adding the two.
    log_scale = jnp.log1p(small) if xp is jnp else np.log(total)
    large, tiny = 1 / total, small / total
    up = z > 0
    return (
        xp.where(up, large, tiny),
        xp.where(up, tiny, large),
        xp.minimum(z, 0) - log_scale,
        xp.minimum(-z, 0) - log_scale,
    )


@dataclass(frozen=True)
class Cumulative(Link):
    """``P(x >= k) = sigmoid(z_k)``.

    A middle category has ``P(x = k) = sigmoid(z_k) sigmoid(-z_{k+1}) (1 - exp(-gap_k))`` with the
    gap ``z_k - z_{k+1}``: a product without cancellation, whose last factor does not depend on
    ability.
    """

    takes_numpy: ClassVar[bool] = True

    @staticmethod
    def pairs(n_predictors: int) -> list[tuple[int, int]]:
        """Neighbours."""
        neighbours = [(m, m + 1) for m in range(n_predictors - 1)]
        return [(m, m) for m in range(n_predictors)] + neighbours

    def log_probs(self, z: Array, gaps: Array) -> Array:
        """Log-probabilities of the categories."""
        above, below = jax.nn.log_sigmoid(z), jax.nn.log_sigmoid(-z)
        middle = above[:-1] + below[1:] + jnp.log(-jnp.expm1(-gaps))
        return jnp.concatenate([below[:1], middle, above[-1:]])

    def terms(
        self, z: list[Any], gaps: list[Any], counts: Any, totals: Any, *, only_values: bool = False
    ) -> LinkTerms:
        """Terms of the M-step; only neighbouring predictors share information."""
        last, xp = len(z), namespace(z[0])
        sigmoids = [_sigmoids(predictor) for predictor in z]
        above, below = [p[0] for p in sigmoids], [p[1] for p in sigmoids]
        log_above, log_below = [p[2] for p in sigmoids], [p[3] for p in sigmoids]
        n = [totals - sum(counts), *counts]
        widths = [-xp.expm1(-gap) for gap in gaps]
        pull = [xp.exp(-gap) / width for gap, width in zip(gaps, widths, strict=True)]
        p = [
            below[0],
            *(above[k - 1] * below[k] * widths[k - 1] for k in range(1, last)),
            above[-1],
        ]
        value = n[0] * log_below[0] + n[-1] * log_above[-1]
        for k in range(1, last):
            value = value + n[k] * (log_above[k - 1] + log_below[k] + xp.log(widths[k - 1]))
        if only_values:
            return LinkTerms(value)
        residual, weight = [], {}
        for m in range(last):  # z[m] separates category m from m + 1
            up = below[m] + (pull[m] if m + 1 < last else 0.0)
            down = above[m] + (pull[m - 1] if m > 0 else 0.0)
            residual.append(n[m + 1] * up - n[m] * down)
            weight[m, m] = totals * (p[m + 1] * up**2 + p[m] * down**2)
            if m + 1 < last:
                weight[m, m + 1] = -totals * p[m + 1] * up * (above[m + 1] + pull[m])
        return LinkTerms(value, residual, weight)

    def observed(
        self, z: list[Any], gaps: list[Any], counts: Any, totals: Any
    ) -> dict[tuple[int, int], Any]:
        """See `Link`; that of a gap is ``exp(-gap) / (1 - exp(-gap))^2``."""
        xp, n = namespace(z[0]), [totals - sum(counts), *counts]
        spread = [above * below for above, below, *_ in map(_sigmoids, z)]
        weight = {(m, m): (n[m] + n[m + 1]) * spread[m] for m in range(len(z))}
        for m, gap in enumerate(gaps):
            bend = n[m + 1] * xp.exp(-gap) / xp.expm1(-gap) ** 2
            weight[m, m] = weight[m, m] + bend
            weight[m + 1, m + 1] = weight[m + 1, m + 1] + bend
            weight[m, m + 1] = -bend
        return weight


@dataclass(frozen=True)
class Softmax(Link):
    """``P(x = k) = exp(z_k) / sum_v exp(z_v)``."""

    takes_numpy: ClassVar[bool] = True

    @property
    def is_canonical(self) -> bool:
        """See `Link`."""
        return True

    def log_probs(self, z: Array, gaps: Array) -> Array:
        """``log P_k = -softplus(log sum_{v != k} exp(z_v - z_k))``.

        In this form an almost certain category keeps its small ``1 - P_k``, and its
        derivatives are sums without cancellation.
        """
        with_zero = jnp.concatenate([jnp.zeros_like(z[:1]), z])
        same = jnp.eye(len(with_zero), dtype=bool)
        against = jnp.where(same, -jnp.inf, with_zero - with_zero[:, None])
        return -jax.nn.softplus(jax.nn.logsumexp(against, axis=1))

    def terms(
        self, z: list[Any], gaps: list[Any], counts: Any, totals: Any, *, only_values: bool = False
    ) -> LinkTerms:
        """Terms of the M-step."""
        xp = namespace(z[0])
        top = xp.maximum(z[0], 0)
        for values in z[1:]:
            top = xp.maximum(top, values)
        powers = [xp.exp(values - top) for values in z]
        total = xp.exp(-top) + sum(powers)
        p = [power / total for power in powers]
        value = sum(c * values for c, values in zip(counts, z, strict=True))
        value = value - totals * (top + xp.log(total))
        if only_values:
            return LinkTerms(value)
        residual = [c - totals * values for c, values in zip(counts, p, strict=True)]
        weight = {(m, m): totals * p[m] * (1 - p[m]) for m in range(len(p))}
        for n in range(len(p)):
            weight |= {(m, n): -totals * p[m] * p[n] for m in range(n)}
        return LinkTerms(value, residual, weight)

    def observed(
        self, z: list[Any], gaps: list[Any], counts: Any, totals: Any
    ) -> dict[tuple[int, int], Any]:
        """See `Link`; that of a canonical link is the expected one."""
        return self.terms(z, gaps, counts, totals).weight


@dataclass(frozen=True)
class Asymptotes(Link):
    """``P(right) = c + (d - c) sigmoid(z_1)``.

    The predictors are z_1, then the logits of c and d, where the model has these. The curve is
    evaluated as the mixture ``c sigmoid(-z) + d sigmoid(z)``, stable in both tails.
    """

    lower: bool
    upper: bool

    has_predictor_per_contrast: ClassVar[bool] = False
    is_logistic: ClassVar[bool] = True
    takes_numpy: ClassVar[bool] = True

    @property
    def is_canonical(self) -> bool:
        """See `Link`: without asymptotes."""
        return not (self.lower or self.upper)

    def log_probs(self, z: Array, gaps: Array) -> Array:
        """Log-probabilities of wrong and right."""
        low, high = jax.nn.log_sigmoid(-z[0]), jax.nn.log_sigmoid(z[0])
        return jnp.stack(self.between(low, high, z[1:]))

    def between(self, low: Array, high: Array, logits: Any) -> tuple[Array, Array]:
        """Log-probabilities of wrong and right, from those of the curve without asymptotes.

        Args:
            low: log-probability of wrong on that curve.
            high: log-probability of right.
            logits: of the lower and of the upper asymptote, those that there are.
        """
        # P(right) = c s(-z) + d s(z), P(wrong) = (1 - c) s(-z) + (1 - d) s(z): sums of logarithms
        # where the asymptote is 0 or 1, of positive terms where it is not.
        wrong, right = low, high
        if self.lower:
            wrong = jax.nn.log_sigmoid(-logits[0]) + low
        if self.upper:
            right = jax.nn.log_sigmoid(logits[-1]) + high
            wrong = jnp.logaddexp(wrong, jax.nn.log_sigmoid(-logits[-1]) + high)
        if self.lower:
            right = jnp.logaddexp(jax.nn.log_sigmoid(logits[0]) + low, right)
        return wrong, right

    def _ends(self, z: list[Any]) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """The pairs c, 1 - c and d, 1 - d in one row: they do not depend on ability."""
        xp = namespace(z[0])
        zero, one = xp.zeros_like(z[0][:1]), xp.ones_like(z[0][:1])
        lower = _sigmoids(z[1][:1])[:2] if self.lower else (zero, one)
        return lower, _sigmoids(z[-1][:1])[:2] if self.upper else (one, zero)

    def terms(
        self, z: list[Any], gaps: list[Any], counts: Any, totals: Any, *, only_values: bool = False
    ) -> LinkTerms:
        """Terms of the M-step: two categories, so that the information has rank one."""
        xp = namespace(z[0])
        high, low, log_high, log_low = _sigmoids(z[0])
        (c, c_), (d, d_) = self._ends(z)
        right, wrong = _mixed((c, d), low, high), _mixed((c_, d_), low, high)
        log_right = xp.log(right) if self.lower else xp.log(d) + log_high
        log_wrong = xp.log(wrong) if self.upper else xp.log(c_) + log_low
        n1 = counts[0]
        n0 = totals - n1
        value = n1 * log_right + n0 * log_wrong
        if only_values:
            return LinkTerms(value)
        slopes = [(d - c if self.lower else d) * high * low]
        slopes += [c * c_ * low] if self.lower else []
        slopes += [d * d_ * high] if self.upper else []
        # Where the other asymptote is absent the ratios are these, also where both underflow.
        n_slopes = len(slopes)
        per_right = [s / right for s in slopes] if self.lower else [low, d_ + 0 * low][:n_slopes]
        per_wrong = [s / wrong for s in slopes] if self.upper else [high, c + 0 * low][:n_slopes]
        residual = [n1 * r - n0 * w for r, w in zip(per_right, per_wrong, strict=True)]
        pairs = self.pairs(len(slopes))
        weight = {(m, n): totals * per_right[m] * per_wrong[n] for m, n in pairs}
        return LinkTerms(value, residual, weight)

    def observed(
        self, z: list[Any], gaps: list[Any], counts: Any, totals: Any
    ) -> dict[tuple[int, int], Any]:
        """See `Link`."""
        high, low = _sigmoids(z[0])[:2]
        (c, c_), (d, d_) = self._ends(z)
        right, wrong = _mixed((c, d), low, high), _mixed((c_, d_), low, high)
        # Derivatives of P(right): the slopes, and second ones on and next to the diagonal.
        spread, at_c, at_d = high * low, c * c_, d * d_
        slopes, bends = [(d - c) * spread], {(0, 0): (d - c) * spread * (low - high)}
        if self.lower:
            slopes.append(at_c * low)
            bends |= {(0, 1): -at_c * spread, (1, 1): at_c * (c_ - c) * low}
        if self.upper:
            last = len(slopes)
            slopes.append(at_d * high)
            bends |= {(0, last): at_d * spread, (last, last): at_d * (d_ - d) * high}
        n1, n0 = counts[0], totals - counts[0]
        rise = n1 / right - n0 / wrong
        up, down = [s / right for s in slopes], [s / wrong for s in slopes]
        return {
            (m, n): n1 * up[m] * up[n] + n0 * down[m] * down[n] - bends.get((m, n), 0.0) * rise
            for m, n in self.pairs(len(slopes))
        }


def _mixed(ends: tuple[Any, Any], low: Any, high: Any) -> Any:
    """The probability with these ends, at least the smallest number that has all its digits."""
    mixture = ends[0] * low + ends[1] * high
    return namespace(mixture).maximum(mixture, np.finfo(mixture.dtype).tiny)


CUMULATIVE = Cumulative()
SOFTMAX = Softmax()


class LinkModel(CategoricalModel):
    """A categorical model defined by a link and its predictors, of one or several abilities.

    Attributes:
        link: the link.
        one_per_item: name of a field with one number per item.
    """

    link: eqx.AbstractClassVar[Any]
    one_per_item: ClassVar[str] = "intercept"
    closed_form: ClassVar[str] = "predictors"
    has_predictors: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(link := vars(cls).get("link"), Link):
            cls.has_logistic_link = link.is_logistic
            cls.has_canonical_link = link.is_canonical

    @property
    def dims(self) -> int:
        """Number of abilities: slopes are one number per item, or a vector of this length."""
        slope = getattr(self, "slope", None)
        if slope is None:
            return 1
        n_item_axes = np.ndim(getattr(self, self.one_per_item))
        is_vector = np.ndim(slope) > n_item_axes + ("slope" in category_parameters(self))
        return np.shape(slope)[n_item_axes] if is_vector else 1

    @abc.abstractmethod
    def predictors(self) -> tuple[Float[Array, "predictors one_and_dims"], Float[Array, " gaps"]]:
        """Intercept and slopes of each predictor, and the gaps of a cumulative link."""

    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of each category for one item at one ability."""
        coefficients, gaps = self.predictors()
        # Not a matrix product: accelerators would round it to fewer digits.
        z = coefficients[:, 0] + (coefficients[:, 1:] * theta).sum(1)
        return self.link.log_probs(z, gaps)


class GradedModel(LinkModel):
    """A model of ordered or unordered answers 0, 1, ..., K - 1."""

    takes: ClassVar[str] = "graded"

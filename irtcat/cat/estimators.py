"""Estimators of ability within a session: one table, each a function of a `Context`.

The likelihood of items with asymptotes can have several maxima, and a root finder may return any of
them. So the objective is first evaluated on the grid; its two highest peaks (heights from the
parabola through three nodes) are both polished by bracketed Newton steps on the exact curves of the
items answered, and the higher one is taken. Nodes that tie up to rounding, far from all items, are
one peak; the sign of the exact slope decides where in it the maximum is. Where the slope is 0 as
well, there is no information: the estimate is the bound that the peak reaches, else its middle, and
its standard error is infinite.

Conventions, where packages differ: D is folded into the slopes. Standard errors use expected
(Fisher) information, like "classic" in catR; `irtcat.score` uses observed information. Under a
Jeffreys prior the SE of the mode adds minus the second derivative of ``ln I / 2`` (catR does so
too, but omits D there). Integrals are sums over the grid with trapezoid weights, within the theta
bounds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtcat._checks import check_choice, check_positive
from irtcat.cat._parts import as_part
from irtcat.cat._pool import category_terms
from irtcat.cat._state import NONE, Context, log_prior
from irtcat.cat._vectors import Belief, laplace
from irtcat.models import take
from irtcat.scoring import bias_slope, tied_nodes

__all__ = ["CONSTANT", "METHODS", "Estimate", "answered_terms", "estimate", "is_constant"]

Curve = Callable[[Array], Array]
"""A function of ability."""

Carry = tuple[Array, Array, Array, Array, Array]
"""Estimate, ends of its bracket, whether it is done, and number of steps."""

PEAKS = 2
"""Number of peaks of the objective that are polished and compared."""

MOST_STEPS = 60
TOLERANCE = 1e-12


class Estimate(NamedTuple):
    """An estimate of ability and its standard error."""

    theta: Float[Array, "*dims"]
    se: Float[Array, "*dims"]


def _is_scored(context: Context) -> Array:
    """Which positions of the test hold a scored item."""
    return (context.state.items >= 0) & ~context.pool.pretest[context.state.items]


def answered_terms(context: Context, theta: Array) -> tuple[Array, Array, Array, Array]:
    """Log-likelihood of the scored answers at any ability, its slope, information and Warm's J."""
    state = context.state
    model = take(context.pool.model, jnp.maximum(state.items, 0))
    log_p, d1, information, warm = jax.vmap(category_terms, (0, None))(model, theta)
    scored = _is_scored(context)
    answer = jnp.maximum(state.answers, 0)[:, None]
    answer_terms = [jnp.take_along_axis(term, answer, axis=1)[:, 0] for term in (log_p, d1)]
    return tuple(jnp.where(scored, term, 0).sum() for term in (*answer_terms, information, warm))  # type: ignore[return-value]


def eap(context: Context) -> Estimate:
    """Posterior mean and SD: ``sum_q theta_q w_q``, over the grid by the trapezoid rule.

    References:
        Bock & Mislevy (1982), Applied Psychological Measurement 6, 431-444.
    """
    return Estimate(context.mean, jnp.sqrt(context.variance))


def _information_of_prior(context: Context, theta: Array) -> Array:
    """Minus the second derivative of the log-prior."""
    if context.config.prior == "normal":
        return 1 / context.state.prior[1] ** 2
    if context.config.prior == "uniform":
        return jnp.zeros_like(theta)

    def half_log(t: Array) -> Array:
        return log_prior("jeffreys", context.state.prior, answered_terms(context, t)[2], t)

    def rate(t: Array) -> Array:
        return jax.jvp(half_log, (t,), (jnp.ones_like(t),))[1]

    return -jax.jvp(rate, (theta,), (jnp.ones_like(theta),))[1]


def ml(context: Context) -> Estimate:
    """Maximum of the likelihood within the theta bounds; SE ``1 / sqrt(I(theta))``.

    References:
        Lord (1980), Applications of Item Response Theory, section 4.13; Samejima (1973),
        Psychometrika 38, 221-233 (several maxima under the 3PL).
    """
    theta = _highest(context, context.log_like, _slope(context, "ml"), _value(context, "ml"))
    return _with_error(context, theta, jnp.zeros_like(theta))


def map_(context: Context) -> Estimate:
    """Mode of the posterior; SE ``1 / sqrt(I(theta) + 1/sd^2)`` under a Normal prior.

    Under another prior, minus the second derivative of its log-density replaces ``1/sd^2``. With
    several abilities the SEs are square roots of the diagonal of the inverse of information plus
    precision.

    References:
        Samejima (1969), Psychometrika Monograph 17; Jeffreys prior: Magis & Raiche (2012),
        Journal of Statistical Software 48(8), section 2.3.
    """
    if context.pool.dims > 1:
        return _vector_mode(context)
    prior = log_prior(
        context.config.prior, context.state.prior, context.state.information, context.pool.nodes
    )
    theta = _highest(
        context, context.log_like + prior, _slope(context, "map"), _value(context, "map")
    )
    return _with_error(context, theta, _information_of_prior(context, theta))


def _vector_mode(context: Context) -> Estimate:
    """The posterior mode of several abilities, and their standard errors."""
    state = context.state
    answers = jnp.where(_is_scored(context), state.answers, NONE)
    prior = Belief(state.prior[0], state.prior[1:])
    mode = laplace(context.pool.model, state.items, answers, prior, context.theta)
    return Estimate(mode.theta, jnp.sqrt(jnp.diagonal(jnp.linalg.inv(mode.precision))))


def wle(context: Context) -> Estimate:
    """Warm's weighted likelihood: the root of ``score + J / (2 I)``; SE ``1 / sqrt(I(theta))``.

    It is finite for patterns all right or all wrong.

    References:
        Warm (1989), Psychometrika 54, 427-450, eq. 8.
    """
    state = context.state
    weight = _integral(context, bias_slope(state.warm, state.information))
    theta = _highest(context, context.log_like + weight, _slope(context, "wle"))
    return _with_error(context, theta, jnp.zeros_like(theta))


def robust(context: Context, *, weight: str = "huber", tuning: float | None = None) -> Estimate:
    """Root of the weighted score ``sum_i w(z_i) P_i' (x_i - P_i) / (P_i Q_i)``, z the predictor.

    An item far from the ability, ``z_i = a_i (theta - b_i)``, gets a smaller weight: Huber's weight
    1 for |z| <= k, else k / |z|, with k = 1; or Tukey's biweight (1 - (z / k)^2)^2, 0 beyond k,
    with k = 4. Of several roots, the one that maximises the integral of the score is taken. SE
    ``sqrt(sum w^2 I) / sum w I``; infinite where all weights are 0. Patterns all right or all wrong
    give the theta bound. Only for right/wrong items of the logistic family.

    References:
        Mislevy & Bock (1982), Educational and Psychological Measurement 42, 725-737; Schuster &
        Yuan (2011), Journal of Educational and Behavioral Statistics 36, 720-735; Magis (2014),
        British Journal of Mathematical and Statistical Psychology 67, 430-450 (the error).
    """
    check_choice("weight", weight, WEIGHTS)
    k = DEFAULT_TUNING[weight] if tuning is None else tuning
    check_positive("tuning", k)

    def terms(theta: Array) -> tuple[Array, Array, Array]:
        model: Any = take(context.pool.model, jnp.maximum(context.state.items, 0))
        _, d1, information, _ = jax.vmap(category_terms, (0, None))(model, theta)
        slope = model.irt_parameters()["a"]
        w = jnp.where(_is_scored(context), WEIGHTS[weight](slope * theta + model.intercept, k), 0.0)
        answer_slope = jnp.take_along_axis(
            d1, jnp.maximum(context.state.answers, 0)[:, None], axis=1
        )[:, 0]
        return (w * answer_slope).sum(), (w**2 * information).sum(), (w * information).sum()

    def score(theta: Array) -> Array:
        return terms(theta)[0]

    theta = _highest(context, _integral(context, jax.vmap(score)(context.pool.nodes)), score)
    _, square, plain = terms(theta)
    informative = plain > 0
    se = jnp.sqrt(jnp.where(informative, square, 1)) / jnp.where(informative, plain, 1)
    return Estimate(theta, jnp.where(informative, se, jnp.inf))


def _huber(z: Array, k: float) -> Array:
    return k / jnp.maximum(jnp.abs(z), k)


def _tukey(z: Array, k: float) -> Array:
    return jnp.where(jnp.abs(z) <= k, (1 - (z / k) ** 2) ** 2, 0.0)


WEIGHTS: dict[str, Callable[[Array, float], Array]] = {"huber": _huber, "tukey": _tukey}
"""Weights of "robust" by name."""

DEFAULT_TUNING = {"huber": 1.0, "tukey": 4.0}


def _integral(context: Context, slope: Array) -> Array:
    """An objective on the grid, integrated from its slope by the trapezoid rule."""
    nodes = context.pool.nodes
    cells = 0.5 * (nodes[1] - nodes[0]) * (slope[1:] + slope[:-1])
    return jnp.concatenate([jnp.zeros_like(cells[:1]), jnp.cumsum(cells)])


def _with_error(context: Context, theta: Array, extra: Array) -> Estimate:
    information = answered_terms(context, theta)[2] + extra
    informative = information > 0
    return Estimate(
        theta, jnp.where(informative, 1 / jnp.sqrt(jnp.where(informative, information, 1)), jnp.inf)
    )


def _highest(
    context: Context, objective: Array, slope: Curve, value: Curve | None = None
) -> Float[Array, ""]:
    """The global maximum of an objective: found on the grid, then polished.

    Args:
        context: the session.
        objective: the objective on the grid.
        slope: its exact slope at any ability.
        value: the exact objective, to compare the peaks; by default their heights on the grid are
            compared.
    """
    nodes = context.pool.nodes
    n, step = nodes.shape[0], nodes[1] - nodes[0]
    padded = jnp.concatenate([objective[:1], objective, objective[-1:]])
    before, after = padded[:-2], padded[2:]
    curvature = jnp.minimum(before - 2 * objective + after, -1e-30)
    shift = jnp.clip(0.5 * (before - after) / curvature, -1.0, 1.0)
    height = objective + 0.25 * (after - before) * shift
    first, last = (end[0] for end in tied_nodes(objective[None]))
    number = jnp.arange(n)
    tied = (last - first > 1) & (number >= first) & (number <= last)
    is_peak = (objective >= before) & (objective >= after)
    is_peak = jnp.where(tied, number == (first + last) // 2, is_peak)
    height = jnp.where(is_peak, height, -jnp.inf)
    _, best = jax.lax.top_k(height, PEAKS)
    lows, highs = (jnp.where(tied[best], end, best) for end in (first, last))
    starts = nodes[best] + jnp.where(tied[best], 0.0, shift[best] * step)
    maxima = jax.vmap(lambda *peak: _polished(context, slope, *peak))(lows, highs, starts)
    values = height[best]
    if value is not None:
        values = jnp.where(jnp.isfinite(values), jax.vmap(value)(maxima), -jnp.inf)
    return jnp.clip(maxima[jnp.argmax(values)], nodes[0], nodes[n - 1])


def _value(context: Context, kind: str) -> Curve:
    """The log-likelihood ("ml") or log-posterior ("map") at any ability."""

    def value(theta: Array) -> Array:
        log_like, _, information, _ = answered_terms(context, theta)
        if kind == "ml":
            return log_like
        return log_like + log_prior(context.config.prior, context.state.prior, information, theta)

    return value


def _slope(context: Context, kind: str) -> Curve:
    """The slope of the objective of "ml", "map" or "wle" at any ability."""

    def slope(theta: Array) -> Array:
        _, score, information, warm = answered_terms(context, theta)
        if kind == "wle":
            return score + bias_slope(warm, information)
        if kind == "ml" or context.config.prior == "uniform":
            return score
        if context.config.prior == "normal":
            return score - (theta - context.state.prior[0]) / context.state.prior[1] ** 2

        def half_log(t: Array) -> Array:
            return log_prior("jeffreys", context.state.prior, answered_terms(context, t)[2], t)

        return score + jax.jvp(half_log, (theta,), (jnp.ones_like(theta),))[1]

    return slope


def _polished(context: Context, slope: Curve, first: Array, last: Array, start: Array) -> Array:
    """Newton steps on the exact slope of the objective, between the neighbours of a peak."""
    nodes = context.pool.nodes
    end, step = nodes.shape[0] - 1, nodes[1] - nodes[0]
    tolerance = jnp.asarray(max(TOLERANCE, 4 * float(jnp.finfo(nodes.dtype).eps)), nodes.dtype)
    low, high = nodes[jnp.maximum(first - 1, 0)], nodes[jnp.minimum(last + 1, end)]
    g_low, g_high = slope(nodes[0]), slope(nodes[end])
    at_low, at_high = (first == 0) & (g_low <= 0), (last == end) & (g_high >= 0)
    unknown = at_low & at_high & (g_low == 0) & (g_high == 0)
    at_low, at_high = at_low & ((g_low < 0) | ~at_high), at_high & ((g_high > 0) | ~at_low)
    start = jnp.where(at_low, nodes[0], jnp.where(at_high, nodes[end], start))

    def going(carry: Carry) -> Array:
        return ~carry[3] & (carry[4] < MOST_STEPS)

    def newton(carry: Carry) -> Carry:
        theta, low, high, _, n = carry
        g, h = jax.jvp(slope, (theta,), (jnp.ones_like(theta),))
        low, high = jnp.where(g >= 0, theta, low), jnp.where(g <= 0, theta, high)
        proposal = theta - g / jnp.where(h < 0, h, -1e-30)
        # Across tied nodes, Newton steps are far too short or too long: bisect instead.
        inside = (proposal >= low) & (proposal <= high) & (h < 0) & (high - low <= 2.5 * step)
        proposal = jnp.where(inside, proposal, 0.5 * (low + high))
        done = jnp.abs(proposal - theta) <= tolerance
        return proposal, low, high, done, n + 1

    at_end = at_low | at_high | unknown
    carry = (jnp.clip(start, low, high), low, high, at_end, jnp.asarray(0))
    return jax.lax.while_loop(going, newton, carry)[0]


METHODS: dict[str, Callable[..., Estimate]] = {
    "eap": eap,
    "map": map_,
    "ml": ml,
    "wle": wle,
    "robust": robust,
}
"""Estimators by name; to add one, write a function of a `Context` (and options) and add a row."""


def is_constant(context: Context) -> tuple[Array, Array]:
    """Whether all scored answers are the lowest category, and whether all are the highest."""
    state, pool, scored = context.state, context.pool, _is_scored(context)
    highest = pool.top[jnp.maximum(state.items, 0)]
    lowest = jnp.where(scored, state.answers == 0, True).all()
    return lowest & scored.any(), jnp.where(
        scored, state.answers == highest, True
    ).all() & scored.any()


def _bound(context: Context, up: Array) -> Array:
    """The theta bound on the side of the answers."""
    return jnp.where(up, context.pool.nodes[-1], context.pool.nodes[0])


def _step(context: Context, up: Array) -> Array:
    """A fixed step from the last estimate."""
    size = context.config.constant_step
    return jnp.clip(
        context.theta + jnp.where(up, size, -size), context.pool.nodes[0], context.pool.nodes[-1]
    )


def _halfway(context: Context, up: Array) -> Array:
    """Halfway from the last estimate to the hardest or easiest item of the pool."""
    return 0.5 * (context.theta + jnp.where(up, context.pool.b.max(), context.pool.b.min()))


CONSTANT: dict[str, Callable[[Context, Array], Array] | str] = {
    "bound": _bound,
    "step": _step,
    "halfway": _halfway,
    "eap": "eap",
    "map": "map",
    "wle": "wle",
}
"""Estimates of "ml" while all answers are right or all wrong: a function or another estimator."""


def estimate(context: Context) -> Estimate:
    """The configured estimate; for constant patterns, where ML has none, by `Config.constant`."""
    rule = as_part("method", context.config.method)
    if rule.name != "ml":
        return METHODS[rule.name](context, **rule.kwargs())
    all_lowest, all_highest = is_constant(context)
    plain, constant_rule = ml(context), CONSTANT[context.config.constant]
    if isinstance(constant_rule, str):
        other = METHODS[constant_rule](context)
    else:
        theta = constant_rule(context, all_highest)
        other = _with_error(context, theta, jnp.zeros_like(theta))
    return Estimate(
        *(jnp.where(all_lowest | all_highest, b, a) for a, b in zip(plain, other, strict=True))
    )

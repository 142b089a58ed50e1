"""Estimators of ability within a session: one table, each a function of a `Context`.

Conventions, where packages differ: D is folded into the slopes. Standard errors use expected
(Fisher) information, like "classic" in catR; `irtcat.score` uses observed information. At a theta
bound the SE of "ml", "map", "wle" and "robust" is infinite, as the maximum may lie beyond it (catR
reports the information at the bound). Under a Jeffreys prior the SE of the mode adds minus the
second derivative of ``ln I / 2`` (catR does so too, but omits D there). Integrals are sums over the
grid with trapezoid weights, within the theta bounds.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irtcat._common.checks import check_choice, check_positive
from irtcat._common.registry import Registry
from irtcat.cat.belief.curves import category_terms
from irtcat.cat.belief.line import highest, if_needed, integral, mode, terms_of, with_error
from irtcat.cat.belief.state import Context, Estimate
from irtcat.cat.rows import GROUP, Method, as_part
from irtcat.models import take
from irtcat.scoring import bias_slope


def eap(context: Context) -> Estimate:
    """Posterior mean and SD: ``sum_q theta_q w_q``, over the grid by the trapezoid rule.

    References:
        Bock & Mislevy (1982), Applied Psychological Measurement 6, 431-444.
    """
    return Estimate(context.mean, jnp.sqrt(context.variance))


def ml(context: Context) -> Estimate:
    """Maximum of the likelihood within the theta bounds; SE ``1 / sqrt(I(theta))``.

    At a bound the SE is infinite.

    References:
        Lord (1980), Applications of Item Response Theory, section 4.13; Samejima (1973),
        Psychometrika 38, 221-233 (several maxima under the 3PL).
    """
    return mode(context, 0.0)


def map_(context: Context) -> Estimate:
    """Mode of the posterior; SE ``1 / sqrt(I(theta) + 1/sd^2)`` under a Normal prior.

    Under another prior, minus the second derivative of its log-density replaces ``1/sd^2``. With
    several abilities the SEs are square roots of the diagonal of the inverse of information plus
    precision.

    References:
        Samejima (1969), Psychometrika Monograph 17; Jeffreys prior: Magis & Raiche (2012),
        Journal of Statistical Software 48(8), section 2.3.
    """
    return context.pool.belief.mode(context)


def wle(context: Context) -> Estimate:
    """Warm's weighted likelihood: the root of ``score + J / (2 I)``; SE ``1 / sqrt(I(theta))``.

    It is finite for patterns all right or all wrong.

    References:
        Warm (1989), Psychometrika 54, 427-450, eq. 8.
    """
    state, terms = context.state, terms_of(context)

    def slope(theta: Array) -> Array:
        score, information, warm = terms(theta)
        return score + bias_slope(warm, information)

    weight = integral(context, bias_slope(state.warm, state.information))
    theta = highest(context, context.log_like + weight, slope)
    return with_error(context, theta, jnp.zeros_like(theta))


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
    weight_of, default = WEIGHTS[weight]
    k = default if tuning is None else tuning
    check_positive("tuning", k)

    def terms(theta: Array) -> tuple[Array, Array, Array]:
        model: Any = take(context.pool.model, jnp.maximum(context.state.items, 0))
        _, d1, information, _ = jax.vmap(category_terms, (0, None))(model, theta)
        slope = model.irt_parameters()["a"]
        w = jnp.where(context.is_scored, weight_of(slope * theta + model.intercept, k), 0.0)
        answer_slope = jnp.take_along_axis(
            d1, jnp.maximum(context.state.answers, 0)[:, None], axis=1
        )[:, 0]
        return (w * answer_slope).sum(), (w**2 * information).sum(), (w * information).sum()

    def score(theta: Array) -> Array:
        return terms(theta)[0]

    theta = highest(context, integral(context, jax.vmap(score)(context.pool.nodes)), score)
    _, square, plain = terms(theta)
    informative = (plain > 0) & (theta > context.pool.nodes[0]) & (theta < context.pool.nodes[-1])
    se = jnp.sqrt(jnp.where(informative, square, 1)) / jnp.where(informative, plain, 1)
    return Estimate(theta, jnp.where(informative, se, jnp.inf))


def _huber(z: Array, k: float) -> Array:
    return k / jnp.maximum(jnp.abs(z), k)


def _tukey(z: Array, k: float) -> Array:
    return jnp.where(jnp.abs(z) <= k, (1 - (z / k) ** 2) ** 2, 0.0)


WEIGHTS = {"huber": (_huber, 1.0), "tukey": (_tukey, 4.0)}
"""Weights of "robust" by name, with the default of ``tuning``."""


METHODS: Registry[Method] = Registry(
    GROUP,
    Method,
    ("method", "estimate of ability", "several abilities"),
    [
        Method("eap", eap, multidimensional=True, needs_grid=True),
        Method("map", map_, multidimensional=True),
        Method("ml", ml),
        Method("wle", wle),
        Method("robust", robust, needs_logistic=True),
    ],
)
"""Estimators by name; to add one, write a function of a `Context` (and options) and add a row."""


def is_constant(context: Context) -> tuple[Array, Array]:
    """Whether all scored answers are the lowest category, and whether all are the highest."""
    state, pool, scored = context.state, context.pool, context.is_scored
    top = pool.top[jnp.maximum(state.items, 0)]
    lowest = jnp.where(scored, state.answers == 0, True).all()
    return lowest & scored.any(), jnp.where(scored, state.answers == top, True).all() & scored.any()


def _bound(context: Context, up: Array) -> Array:
    """The theta bound on the side of the answers."""
    return jnp.where(up, context.pool.nodes[-1], context.pool.nodes[0])


def _step(context: Context, up: Array) -> Array:
    """A fixed step from the last estimate."""
    size = context.config.constant_step
    return context.pool.belief.clip(context.theta + jnp.where(up, size, -size))


def _halfway(context: Context, up: Array) -> Array:
    """Halfway from the last estimate to the hardest or easiest item of the pool."""
    end = jnp.where(up, context.pool.b.max(), context.pool.b.min())
    # Of flat items difficulties are as large as 1e17, and no subject is there.
    return context.pool.belief.clip(0.5 * (context.theta + end))


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
    is_constant_pattern = all_lowest | all_highest
    constant_rule = CONSTANT[context.config.constant]
    if constant_rule == "map":  # one search for sessions of both kinds
        return mode(context, is_constant_pattern.astype(context.log_like.dtype))

    def other(log_like: Array) -> Estimate:
        fresh = dataclasses.replace(context, log_like=log_like)  # without what is cached outside
        if isinstance(constant_rule, str):
            return METHODS[constant_rule](fresh)
        theta = constant_rule(fresh, all_highest)
        return with_error(fresh, theta, jnp.zeros_like(theta))

    return if_needed(is_constant_pattern, other, context.log_like, ml(context))

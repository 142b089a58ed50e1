"""The belief about one ability: a posterior on a grid of evenly spaced nodes.

The likelihood of items with asymptotes can have several maxima, and a root finder may return any of
them. So the objective is first evaluated on the grid; its two highest peaks (heights from the
parabola through three nodes) are both polished by bracketed Newton steps on the exact curves of the
items answered, and the higher one is taken. Nodes that tie up to rounding, far from all items, are
one peak; the sign of the exact slope decides where in it the maximum is. Where the slope is 0 as
well, there is no information: the estimate is the bound that the peak reaches, else its middle, and
its standard error is infinite.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtcat._common.argmax import first_best
from irtcat._common.registry import Registry
from irtcat.cat.belief.curves import LogisticCurves, Matrices, answer_terms, information_at
from irtcat.cat.belief.priors import mixture_moments
from irtcat.cat.belief.state import Belief, Context, Estimate
from irtcat.cat.rows import GROUP, Prior
from irtcat.latent import mixture_log_density
from irtcat.models import ItemModel, take
from irtcat.scoring import tied_nodes

Curve = Callable[[Array], Array]
"""A function of ability."""

Inputs = TypeVar("Inputs")
Result = TypeVar("Result")

Carry = tuple[Array, Array, Array, Array, Array]
"""Estimate, ends of its bracket, whether it is done, and number of steps."""

STEEPEST_CELL = 1.25
"""Largest change of the log-odds of an item between two nodes, as long as they are not too many."""

INTERPOLATION_STEPS = 3
MOST_STEPS = 60
TOLERANCE = 1e-12

FLAT = 1e-6
"""Precision of a prior that is not Normal."""


def normal(prior: Array, information: Array, theta: Array) -> Array:
    """The given Normal, density or mixture, by default the bank's population."""
    if prior.ndim > 1:
        return mixture_log_density(theta, prior)
    return -0.5 * ((theta - prior[0]) / prior[1]) ** 2


def uniform(prior: Array, information: Array, theta: Array) -> Array:
    """Uniform within the theta bounds."""
    return jnp.zeros_like(theta)


def jeffreys(prior: Array, information: Array, theta: Array) -> Array:
    """The root of the test information."""
    # Nearly 0 where there is no information; constant before the first answer.
    return 0.5 * jnp.log(jnp.maximum(information, jnp.finfo(information.dtype).tiny))


PRIORS: Registry[Prior] = Registry(
    GROUP,
    Prior,
    ("prior", "density", "several abilities"),
    [
        Prior("normal", normal, multidimensional=True),
        Prior("uniform", uniform),
        Prior("jeffreys", jeffreys),
    ],
)
"""Kinds of priors by name: functions of the prior as `CatState` holds it, test information and
ability that give the log-density up to a constant."""


class Line(Belief):
    """A grid of one ability."""

    def log_prior(self, context: Context) -> Array:
        """By the kind of prior of the configuration."""
        state = context.state
        if context.config.prior == "normal" and state.log_prior is not None:
            return state.log_prior
        return PRIORS[context.config.prior](state.prior, state.information, self.nodes)

    def tabulated(self, prior: Array) -> Array | None:
        """The log-density of a density or mixture."""
        return None if prior.ndim == 1 else mixture_log_density(self.nodes, prior)

    def prior_mean(self, prior: Array) -> Array:
        """As it is stored; of a density or mixture from its parts."""
        return prior[0] if prior.ndim == 1 else mixture_moments(prior)[0]

    def prior_sd(self, prior: Array) -> Array:
        """As it is stored; of a density or mixture from its parts."""
        return prior[1] if prior.ndim == 1 else mixture_moments(prior)[1]

    def prior_precision(self, context: Context) -> Float[Array, "1 1"]:
        """One over the variance of the prior "normal"; otherwise nearly 0."""
        precision = jnp.full_like(context.theta, FLAT)
        if context.config.prior == "normal":
            precision = 1 / self.prior_sd(context.state.prior) ** 2
        return precision[None, None]

    def information(self, context: Context) -> Float[Array, " items"]:
        """In closed form where there is one."""
        return information_at(context.pool.model, context.theta)

    def matrices(self, context: Context) -> Matrices:
        """One by one."""
        return context.information[:, None, None]

    def mode(self, context: Context) -> Estimate:
        """The highest peak; SE from the information plus that of the prior."""
        return mode(context, 1.0)


def log_likelihood_of(context: Context) -> Curve:
    """Exact log-likelihood of the scored answers at any ability."""
    state, answered = context.state, _answered(context)

    def log_likelihood(theta: Array) -> Array:
        log_p = jax.vmap(lambda item: item.log_probs(theta[None]))(answered)
        answer = jnp.maximum(state.answers, 0)[:, None]
        log_p_answer = jnp.take_along_axis(log_p, answer, axis=1)[:, 0]
        return jnp.where(context.is_scored, log_p_answer, 0).sum()

    return log_likelihood


def terms_of(context: Context) -> Callable[[Array], tuple[Array, Array, Array]]:
    """Its slope, and information and Warm's J of the scored answers."""
    state, answered, is_scored = context.state, _answered(context), context.is_scored

    def terms(theta: Array) -> tuple[Array, Array, Array]:
        items = answer_terms(answered, state.answers, theta)
        slope, information, warm = (jnp.where(is_scored, term, 0).sum() for term in items)
        return slope, information, warm

    return terms


def _answered(context: Context) -> ItemModel:
    """The items asked, in order; after them the first of the bank."""
    return take(context.pool.model, jnp.maximum(context.state.items, 0))


def mode(context: Context, prior_weight: Any) -> Estimate:
    """The mode of the likelihood times the prior to a power.

    Args:
        context: the session.
        prior_weight: the power: 1 for the posterior, 0 for the likelihood.
    """
    config, prior = context.config, context.state.prior
    likelihood, terms = log_likelihood_of(context), terms_of(context)
    log_density = PRIORS[config.prior].function

    def prior_slope(theta: Array) -> Array:
        if config.prior == "normal" and prior.ndim == 1:
            return -(theta - prior[0]) / prior[1] ** 2

        def log_prior(t: Array) -> Array:
            return log_density(prior, terms(t)[1], t)

        return jax.jvp(log_prior, (theta,), (jnp.ones_like(theta),))[1]

    def slope(theta: Array) -> Array:
        return terms(theta)[0] + prior_weight * prior_slope(theta)

    def value(theta: Array) -> Array:
        return likelihood(theta) + prior_weight * log_density(prior, terms(theta)[1], theta)

    on_grid = context.log_like + prior_weight * context.pool.belief.log_prior(context)
    theta = highest(context, on_grid, slope, value)
    bend = jax.jvp(prior_slope, (theta,), (jnp.ones_like(theta),))[1]
    return with_error(context, theta, -prior_weight * bend)


def integral(context: Context, slope: Array) -> Array:
    """An objective on the grid, integrated from its slope by the trapezoid rule.

    The rule's error is known from the differences of the slope, and corrected (Euler-Maclaurin).
    """
    nodes = context.pool.nodes
    step = nodes[1] - nodes[0]
    rises = jnp.diff(slope)
    cells = 0.5 * step * (slope[1:] + slope[:-1])
    rates = 0.5 * (jnp.append(rises, rises[-1]) + jnp.append(rises[:1], rises))
    return jnp.append(jnp.zeros_like(cells[:1]), jnp.cumsum(cells)) - step / 12 * (rates - rates[0])


def with_error(context: Context, theta: Array, extra: Array) -> Estimate:
    """An estimate with its SE; infinite at a theta bound, where the maximum may lie beyond."""
    nodes = context.pool.nodes
    information = terms_of(context)(theta)[1] + extra
    informative = (information > 0) & (theta > nodes[0]) & (theta < nodes[-1])
    return Estimate(
        theta, jnp.where(informative, 1 / jnp.sqrt(jnp.where(informative, information, 1)), jnp.inf)
    )


def highest(
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

    def polished(peak: Array) -> Array:
        low, high = (jnp.where(tied[peak], end, peak) for end in (first, last))
        shifted = jnp.where(tied[peak], 0.0, _interpolated(objective, peak, shift[peak]))
        start = nodes[peak] + shifted * step
        return _polished(context, slope, low, high, start)

    best = first_best(height)
    maximum = polished(best)
    if value is not None:
        others = jnp.where(number == best, -jnp.inf, height)
        other = first_best(others)
        close = others[other] >= height[best] - _height_error(context)

        def higher(rivals: tuple[Array, Array]) -> Array:
            first, second = rivals[0], polished(rivals[1])
            return jnp.where(value(second) > value(first), second, first)

        maximum = if_needed(close, higher, (maximum, other), maximum)
    return jnp.clip(maximum, nodes[0], nodes[n - 1])


def _height_error(context: Context) -> Float[Array, ""]:
    """Most that the difference of the heights of two peaks on the grid can be off, in log units.

    A peak is half a cell h from its node at most, and the log-probability of an answer bends by at
    most ``a^2 / 4``: each height is off by ``sum a^2 h^2 / 32`` at most. A Normal or uniform prior
    adds nothing, as the parabola through three nodes is exact for it; a density or mixture, whose
    narrowest part has the SD s, adds ``h^2 / (8 s^2)``.
    """
    nodes, model = context.pool.nodes, context.pool.model
    step = nodes[1] - nodes[0]
    prior = context.state.prior
    of_prior = 0.0 if prior.ndim == 1 else (step / prior[1].min()) ** 2 / 4
    if not model.has_logistic_link or context.config.prior not in ("normal", "uniform"):
        return 2 * context.state.scored * STEEPEST_CELL**2 / 32 + of_prior
    slopes = LogisticCurves.of(_answered(context)).a
    return 2 * jnp.where(context.is_scored, (slopes * step) ** 2, 0).sum() / 32 + of_prior


def _interpolated(objective: Array, peak: Array, shift: Array) -> Array:
    """Where the polynomial through five nodes has its maximum, in cells from the peak.

    By Newton steps from the maximum of the parabola through three; so exact a start saves one of
    the evaluations of `_polished`.
    """
    middle = jnp.clip(peak, 2, objective.shape[0] - 3)
    f = jax.lax.dynamic_slice(objective, (middle - 2,), (5,)) - objective[middle]
    odd, even = f[3] - f[1], f[3] + f[1]
    odd2, even2 = f[4] - f[0], f[4] + f[0]
    c1, c2 = (8 * odd - odd2) / 12, (16 * even - even2) / 12
    c3, c4 = (odd2 - 2 * odd) / 4, (even2 - 4 * even) / 6
    offset = (peak - middle).astype(f.dtype)
    t = shift + offset
    for _ in range(INTERPOLATION_STEPS):
        slope, bend = c1 + t * (c2 + t * (c3 + t * c4)), c2 + t * (2 * c3 + t * 3 * c4)
        t = t - slope / jnp.where(bend < 0, bend, -jnp.inf)
    return jnp.clip(t - offset, shift - 0.5, shift + 0.5)


def if_needed(
    needed: Array, function: Callable[[Inputs], Result], inputs: Inputs, default: Result
) -> Result:
    """``function(inputs)`` where it is needed, else the default.

    A conditional under `jax.vmap` evaluates both; this evaluates the function only if some
    session of the block needs it.
    """

    def body(carry: tuple[Array, Result]) -> tuple[Array, Result]:
        # Inputs that seem to change with the loop keep the compiler from evaluating the function
        # before it.
        waiting, here = jax.lax.optimization_barrier((carry[0], inputs))
        return ~waiting, function(here)

    return jax.lax.while_loop(lambda carry: carry[0], body, (needed, default))[1]


def _polished(context: Context, slope: Curve, first: Array, last: Array, start: Array) -> Array:
    """Newton steps on the exact slope of the objective, between the neighbours of a peak."""
    nodes = context.pool.nodes
    end, step = nodes.shape[0] - 1, nodes[1] - nodes[0]
    tolerance = jnp.asarray(max(TOLERANCE, 4 * float(jnp.finfo(nodes.dtype).eps)), nodes.dtype)
    low, high = nodes[jnp.maximum(first - 1, 0)], nodes[jnp.minimum(last + 1, end)]
    g_low, g_high = if_needed(
        (first == 0) | (last == end),
        lambda at: (slope(at[0]), slope(at[1])),
        (nodes[0], nodes[end]),
        (jnp.zeros_like(start), jnp.zeros_like(start)),
    )
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
        move = jnp.abs(proposal - theta)
        # The error after a Newton step is of the order of its square over the width of the curves.
        error = jnp.where(inside, jnp.minimum(move, move**2 / step), move)
        return proposal, low, high, error <= tolerance, n + 1

    done = at_low | at_high | unknown
    carry = (jnp.clip(start, low, high), low, high, done, jnp.asarray(0))
    return jax.lax.while_loop(going, newton, carry)[0]

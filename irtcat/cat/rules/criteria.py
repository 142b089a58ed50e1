"""Selection criteria: one table, each a function of a `Context` that values all items at once.

A higher value is better throughout; where the field minimises (bOpt, thOpt, MEPV) the value is the
negative. Integrals are sums over the grid with trapezoid weights, so that a criterion is a matrix
product of the posterior and curves tabulated once per bank. Likelihoods and posteriors are
normalised (catR leaves them unnormalised in MLWI, MPWI, KL and KLP: its values are ours times the
marginal likelihood, which is the same for all items). D = 1.702 is folded into the slopes.

Every criterion takes items of any number of categories. In the formulas ``L`` and ``w`` are the
likelihood and the posterior as probabilities of the nodes, ``P_k`` the probability of answer k,
``m_k = sum_q w_q P_k(theta_q)`` its predictive probability.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtcat._common.registry import Registry
from irtcat.cat.belief.curves import category_terms
from irtcat.cat.belief.state import Context, answer_shares, informs, is_answered
from irtcat.cat.rows import GROUP, Criterion
from irtcat.cat.rules.estimators import estimate
from irtcat.prediction.factor_scores import LONGEST_STEP, NEWTON_STEPS

Values = Float[Array, " items"]
TINY = 1e-300
"""Smallest divisor, so that probabilities of 0 give no NaN."""

FAR = 1e3
"""Larger than any distance on the ability scale."""


def mfi(context: Context) -> Values:
    """Fisher information at the estimate: ``I_i(theta)``, ``P'^2 / (P Q)`` of right/wrong items.

    References:
        Lord (1977), Applied Psychological Measurement 1, 95-100.
    """
    return context.information


def mlwi(context: Context) -> Values:
    """Information weighted by the likelihood: ``sum_q L_q I_i(theta_q)``.

    References:
        Veerkamp & Berger (1997), Journal of Educational and Behavioral Statistics 22, 203-226.
    """
    return context.curves.information @ context.likelihood


def mpwi(context: Context) -> Values:
    """Information weighted by the posterior: ``sum_q w_q I_i(theta_q)``.

    References:
        van der Linden (1998), Psychometrika 63, 201-216, eq. 13.
    """
    return context.curves.information @ context.posterior


def _divergence(context: Context, weights: Array) -> Values:
    """Weighted Kullback-Leibler information of the estimate against all abilities."""
    negative_entropy = (context.p * context.log_p).sum(axis=1)
    return negative_entropy - (context.p * (context.curves.log_p @ weights)).sum(axis=1)


def kl(context: Context) -> Values:
    """Kullback-Leibler information weighted by the likelihood.

    ``sum_q L_q sum_k P_k(theta) ln[P_k(theta) / P_k(theta_q)]`` with theta the estimate.

    References:
        Chang & Ying (1996), Applied Psychological Measurement 20, 213-229; Barrada et al. (2010),
        the same 34, 438-452 (the weights).
    """
    return _divergence(context, context.likelihood)


def klp(context: Context) -> Values:
    """Kullback-Leibler information weighted by the posterior: `kl` with the posterior."""
    return _divergence(context, context.posterior)


def kl_interval(context: Context) -> Values:
    """Kullback-Leibler information over theta +- c / sqrt(n), with c = 3.

    The mean over the nodes within the interval; before the first answer over all nodes.

    References:
        Chang & Ying (1996), Applied Psychological Measurement 20, 213-229, eq. 12.
    """
    half = 3.0 / jnp.sqrt(jnp.maximum(context.state.scored, 1e-12).astype(context.theta.dtype))
    step = context.nodes[1] - context.nodes[0]
    inside = jnp.abs(context.nodes - context.theta) <= jnp.maximum(half, step)
    return _divergence(context, inside / inside.sum())


def _discrimination(context: Context, weights: Array) -> Values:
    """Half the sum of the variances of the category probabilities, without trapezoid weights."""
    weights = weights * jnp.exp(-context.pool.log_weights)
    weights = weights / weights.sum()
    mean = context.curves.p @ weights
    square = (context.curves.p**2) @ weights
    return 0.5 * (square - mean**2).sum(axis=1)


def gdi(context: Context) -> Values:
    """Global discrimination: ``1/2 sum_k Var(P_k)`` under the likelihood.

    A plain sum over the nodes, with full weight at the ends, as in catR. For right/wrong items it
    is the variance of P (Kaplan et al.); the sum over categories extends it to more categories.

    References:
        Kaplan, de la Torre & Barrada (2015), Applied Psychological Measurement 39, 167-188.
    """
    return _discrimination(context, context.likelihood)


def gdip(context: Context) -> Values:
    """Global discrimination under the posterior: `gdi` with the posterior."""
    return _discrimination(context, context.posterior)


def _expected_information(context: Context, observed: bool) -> Values:
    """Expected information of each item at the estimate after each of its answers."""
    pool = context.pool
    n_categories = pool.log_p.shape[1]
    p = context.p

    def after(item: Array, answer: Array) -> Array:
        """Information at the estimate after this answer to this item."""
        state, position = context.state, context.state.n
        state = state._replace(
            items=state.items.at[position].set(item),
            answers=state.answers.at[position].set(answer),
            information=state.information + pool.information[item],
            warm=state.warm if pool.warm is None else state.warm + pool.warm[item],
        )
        log_like = context.log_like + pool.log_p[item, answer]
        theta = estimate(replace(context, state=state, log_like=log_like)).theta
        single_item = jax.tree.map(lambda leaf: leaf[item], pool.model)
        if not observed:
            return category_terms(single_item, theta)[2]

        def slope(t: Array) -> Array:
            return category_terms(single_item, t)[1][answer]

        return -jax.jvp(slope, (theta,), (jnp.ones_like(theta),))[1]

    def expected(item: Array) -> Array:
        answers = jnp.arange(n_categories, dtype=jnp.int32)
        value = jax.vmap(after, (None, 0))(item, answers)
        return (p[item] * jnp.where(p[item] > 0, value, 0)).sum()

    return jax.lax.map(expected, jnp.arange(pool.n_items, dtype=jnp.int32), batch_size=64)


def mei(context: Context) -> Values:
    """Expected observed information after the answer: ``sum_k P_k(theta) I_i(theta_k | k)``.

    theta_k is the configured estimate after answer k; the information is observed information,
    ``-(log P_k)''``.

    References:
        van der Linden (1998), Psychometrika 63, 201-216, eq. 16; van der Linden & Pashley (2000),
        in Computerized Adaptive Testing: Theory and Practice, section 1.3.2.
    """
    return _expected_information(context, observed=True)


def mei_fisher(context: Context) -> Values:
    """Expected Fisher information after the answer: `mei` with the expected information."""
    return _expected_information(context, observed=False)


def expected_variance(context: Context, plug_in: bool) -> Values:
    """Expected posterior variance (with several abilities, the sum) after answering each item."""
    p, posterior = context.curves.p, context.posterior
    away = jnp.atleast_2d((context.nodes - context.mean).T)
    m0, *m1 = jnp.einsum("ikq,wq->wik", p, jnp.stack([posterior, *(posterior * away)]))
    if not plug_in:  # sum_k m_k Var_k = E[theta^2] - sum_k (E[theta P_k])^2 / m_k
        square = sum(m**2 for m in m1)
        explained = jnp.where(m0 > 0, square / jnp.maximum(m0, TINY), 0).sum(axis=1)
        return context.variance.sum() - explained
    m2 = p @ (posterior * away[0] ** 2)
    variances = m2 / jnp.maximum(m0, TINY) - (m1[0] / jnp.maximum(m0, TINY)) ** 2
    return jnp.where(context.p > 0, context.p * variances, 0).sum(axis=1)


def mepv(context: Context) -> Values:
    """Minus the expected posterior variance: ``-sum_k m_k Var(theta | x, k)``.

    With several abilities, the sum of their variances.

    References:
        van der Linden (1998), Psychometrika 63, 201-216, eq. 19 (the predictive m_k).
    """
    return -expected_variance(context, plug_in=False)


def mepv_plug_in(context: Context) -> Values:
    """Minus the variance expected at the estimate: ``P_k(theta)`` in place of m_k, catR's MEPV."""
    return -expected_variance(context, plug_in=True)


def mutual_information(context: Context) -> Values:
    """Mutual information of answer and ability: ``sum_k sum_q w_q P_k ln(P_k / m_k)``, in nats.

    References:
        Choi & Swartz (2009), Applied Psychological Measurement 33, 419-440 (Firestar);
        Weissman (2007), Educational and Psychological Measurement 67, 41-58.
    """
    m = context.curves.p @ context.posterior
    log_m = jnp.log(jnp.where(m > 0, m, 1.0))
    return -(m * log_m).sum(axis=1) - context.curves.entropy @ context.posterior


def b_opt(context: Context) -> Values:
    """Minus the distance of difficulty from the estimate: ``-|b - theta|``.

    b is the mean threshold of graded and partial credit items; for nominal items, which have none,
    and items of slope 0 it is the ability of greatest information.

    References:
        Urry (1970); Barrada (2010), Psicothema 22, 167-174.
    """
    return -jnp.abs(context.pool.b - context.theta)


def th_opt(context: Context) -> Values:
    """Minus the distance of the ability of greatest information: ``-|theta* - theta|``.

    References:
        Birnbaum (1968), in Lord & Novick, eq. 20.4.18; Li & Schafer (2005).
    """
    return -jnp.abs(context.pool.best_theta - context.theta)


def a_stratified(context: Context) -> Values:
    """In the current stratum of discrimination, the item whose difficulty is nearest to theta.

    The K strata increase in discrimination; the test (of ``max_items``) is divided into K stages of
    equal length, and stage s takes items of stratum s, or, if none is left, of the nearest stratum
    with items. (catR takes the strata in turn, one item each; catsim ignores theta, so that all
    subjects get the same items.)

    References:
        Chang & Ying (1999), Applied Psychological Measurement 23, 211-222.
    """
    stage = (context.n_administered * context.config.n_strata) // context.config.max_items
    distance = jnp.minimum(jnp.abs(context.pool.b - context.theta), FAR)
    return -distance - 2 * FAR * jnp.abs(context.pool.stratum - stage)


def _progress(context: Context) -> Array:
    """Progress of the test, from 0 at its first item to 1 at its last, with the acceleration t.

    ``sum_{f <= q} (f - 1)^t / sum_{f <= Q} (f - 1)^t`` for item q of Q = ``max_items``.
    """
    steps = jnp.arange(context.config.max_items, dtype=context.theta.dtype)
    powers = jnp.where(steps > 0, steps**context.config.acceleration, 0.0)
    progress = jnp.where(steps <= context.n_administered, powers, 0.0).sum()
    return jnp.minimum(progress / jnp.maximum(powers.sum(), 1.0), 1.0)


def progressive(context: Context) -> Values:
    """Random at the start, information at the end: ``(1 - W) R_i + W I_i(theta)``.

    R is uniform between 0 and the greatest information of an open item; W rises from 0 to 1 over
    the test (``acceleration`` t).

    References:
        Revuelta & Ponsoda (1998), Journal of Educational Measurement 35, 311-327; Barrada et al.
        (2008), British Journal of Mathematical and Statistical Psychology 61, 493-513.
    """
    usable = jnp.where(context.open, context.information, 0.0)
    w = _progress(context)
    return (1 - w) * context.noise * usable.max() + w * context.information


def proportional(context: Context) -> Values:
    """Drawn with probability proportional to ``I_i(theta)^H``, where H rises from 0 over the test.

    ``H = Q W``, with W as in "progressive". The value is ``H ln I_i + G_i`` with Gumbel noise G;
    its maximum is the draw.

    References:
        Segall (2004); Barrada et al. (2008), British Journal of Mathematical and Statistical
        Psychology 61, 493-513.
    """
    gumbel = -jnp.log(-jnp.log(jnp.clip(context.noise, 1e-9, 1 - 1e-7)))
    power = context.config.max_items * _progress(context)
    return power * jnp.log(jnp.maximum(context.information, 1e-30)) + gumbel


def random(context: Context) -> Values:
    """A random open item, all equally likely."""
    return context.noise


def sequential(context: Context) -> Values:
    """The items in the order of the bank."""
    return -jnp.arange(context.pool.n_items, dtype=context.theta.dtype)


def score_optimal(context: Context) -> Values:
    """Expected reduction of the variance of the score on the whole bank.

    The score is ``S = sum_j t_j x_j`` over all items (each x on 0 to 1). Given the answers so far,
    the rest of it has mean T(theta) and variance V(theta), sums over the items not asked; after
    answer k to item i these lose the terms of the item, and the posterior changes:

        value_i = Var(S | x) - sum_k m_k [Var_k(T - t_i E_i) + E_k(V - t_i^2 v_i)].

    It is not negative.

    References:
        The law of total variance; the target is that of Maia Polo et al. (2024), tinyBenchmarks.
    """
    pool, curves, w = context.pool, context.curves, context.posterior
    t = jnp.where(context.state.administered, 0.0, pool.score_weights)
    expected, spread = t @ curves.mean, t**2 @ curves.variance
    expected = expected - w @ expected  # centred: only differences matter
    before = w @ expected**2 + w @ spread
    item_mean = pool.score_weights[:, None] * curves.mean
    m0 = curves.p @ w
    m1 = curves.p @ (w * expected) - (curves.p * item_mean[:, None]) @ w
    second = before - w @ spread - 2 * item_mean @ (w * expected) + item_mean**2 @ w
    spread_after = w @ spread - (pool.score_weights**2)[:, None] * curves.variance @ w
    explained = jnp.where(m0 > 0, m1**2 / jnp.maximum(m0, TINY), 0).sum(axis=1)
    return before - (second - explained + spread_after)


def score_factors(context: Context) -> Values:
    """Expected reduction of the variance of the score by the factors of calibrated responses.

    The log-odds of an answer are ``b_j + a_j z`` with factors z ~ N(0, I). Their posterior, given
    all answers so far, is approximated by a Normal at its mode with the covariance C. With
    ``w_j = p_j (1 - p_j)`` at the mode and ``g = sum t_j w_j a_j`` over the items not asked, an
    answer to item j, of variance ``w_j + w_j^2 a_j' C a_j``, has the covariance
    ``w_j (a_j' C g + t_j)`` with the score:

        value_j = w_j^2 (a_j' C g + t_j)^2 / (w_j + w_j^2 a_j' C a_j).

    It needs a bank with factors (`irtcat.cat.plan_evaluation`). Items asked and not yet answered,
    as in a batch, count in C.
    """
    pool, factors = context.pool, factor_posterior(context)
    t = jnp.where(context.state.administered, 0, pool.score_weights)
    weight, cov, loadings = factors.weight, factors.cov, factors.loadings
    with_score = weight * (loadings @ (cov @ (loadings.T @ (t * weight))) + t)
    variance = weight + weight**2 * ((loadings @ cov) * loadings).sum(axis=1)
    return with_score**2 / jnp.maximum(variance, TINY)


class FactorPosterior(NamedTuple):
    """The factors of the subject, given its answers: a Normal at their mode.

    Attributes:
        loadings: loadings of all items, items x dimensions.
        weight: variance of the answer to each item at the mode.
        cov: covariance of the factors.
        informs: the items whose answers count in it: those asked, but for skipped ones.
    """

    loadings: Array
    weight: Array
    cov: Array
    informs: Array


def factor_posterior(context: Context) -> FactorPosterior:
    """The posterior of the factors of the calibrated responses (see `score_factors`)."""
    pool, state = context.pool, context.state
    assert pool.factors is not None  # the rows that use it need them
    intercepts, loadings = pool.factors[:, 0], pool.factors[:, 1:]
    one = jnp.eye(loadings.shape[1], dtype=loadings.dtype)
    answered, share = is_answered(state), answer_shares(pool, state)
    item = jnp.where(answered, state.items, 0)
    a, b = loadings[item], intercepts[item]

    def move(_: Array, mean: Array) -> Array:
        p = jax.nn.sigmoid(b + a @ mean)
        weight = jnp.where(answered, p * (1 - p), 0)
        gradient = jnp.where(answered, share - p, 0) @ a - mean
        step = jnp.linalg.solve((a.T * weight) @ a + one, gradient)
        return mean + step * LONGEST_STEP / jnp.maximum(jnp.abs(step).max(), LONGEST_STEP)

    mean = jax.lax.fori_loop(0, NEWTON_STEPS, move, jnp.zeros(one.shape[0], loadings.dtype))
    p = jax.nn.sigmoid(intercepts + loadings @ mean)
    weight = p * (1 - p)
    counts = informs(state)
    cov = jnp.linalg.inv((loadings.T * jnp.where(counts, weight, 0)) @ loadings + one)
    return FactorPosterior(loadings, weight, cov, counts)


def _precision(context: Context) -> Float[Array, "dims dims"]:
    """Precision of the prior plus the information at the estimate of the scored items asked.

    Within a batch these include the items chosen before.
    """
    counts = informs(context.state) & ~context.pool.pretest
    total = jnp.where(counts[:, None, None], context.matrices, 0).sum(axis=0)
    return context.pool.belief.prior_precision(context) + total


def d_optimal(context: Context) -> Values:
    """Gain in the log-determinant of the precision: ``ln det(L + I_i(theta)) - ln det L``.

    With one ability it orders the items as "mfi" does.

    References:
        Segall (1996), Psychometrika 61, 331-354, eq. 18.
    """
    before = _precision(context)
    return jnp.linalg.slogdet(before + context.matrices)[1] - jnp.linalg.slogdet(before)[1]


def t_optimal(context: Context) -> Values:
    """Trace of the item's information at the estimate: ``tr I_i(theta)``.

    References:
        Mulder & van der Linden (2009), Psychometrika 74, 273-296, section 3.
    """
    return context.information


def a_optimal(context: Context) -> Values:
    """Reduction of the sum of the variances: ``tr L^-1 - tr (L + I_i(theta))^-1``.

    References:
        Mulder & van der Linden (2009), Psychometrika 74, 273-296, section 3.
    """
    before = _precision(context)
    after = jnp.linalg.inv(before + context.matrices)
    return jnp.trace(jnp.linalg.inv(before)) - jnp.trace(after, axis1=1, axis2=2)


CRITERIA: Registry[Criterion] = Registry(
    GROUP,
    Criterion,
    ("criterion", "value of an item", "several abilities"),
    [
        Criterion("mfi", mfi, by_cost="divide"),
        Criterion("mlwi", mlwi, by_cost="divide"),
        Criterion("mpwi", mpwi, multidimensional=True, by_cost="divide"),
        Criterion("kl", kl, by_cost="divide"),
        Criterion("klp", klp, by_cost="divide"),
        Criterion("kl-interval", kl_interval, by_cost="divide"),
        Criterion("gdi", gdi, by_cost="divide"),
        Criterion("gdip", gdip, by_cost="divide"),
        Criterion("mei", mei),
        Criterion("mei-fisher", mei_fisher),
        Criterion("mepv", mepv, multidimensional=True),
        Criterion("mepv-plug-in", mepv_plug_in),
        Criterion(
            "mutual-information", mutual_information, multidimensional=True, by_cost="divide"
        ),
        Criterion("bopt", b_opt, needs_peaks=True),
        Criterion("thopt", th_opt, needs_peaks=True),
        Criterion("a-stratified", a_stratified, needs_peaks=True),
        Criterion("progressive", progressive, multidimensional=True),
        Criterion("proportional", proportional, multidimensional=True),
        Criterion("random", random, multidimensional=True, by_cost=""),
        Criterion("sequential", sequential, multidimensional=True, by_cost=""),
        Criterion("score-optimal", score_optimal, multidimensional=True, by_cost="divide"),
        Criterion(
            "score-factors",
            score_factors,
            multidimensional=True,
            needs_factors=True,
            by_cost="divide",
        ),
        Criterion("d-optimal", d_optimal, multidimensional=True, by_cost="divide"),
        Criterion("t-optimal", t_optimal, multidimensional=True, by_cost="divide"),
        Criterion("a-optimal", a_optimal, multidimensional=True, by_cost="divide"),
    ],
)
"""Criteria by name; to add one, write a function of a `Context` and add a row."""

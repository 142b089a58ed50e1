"""Online calibration: predicted items learn from the answers that they get.

A predicted item has a distribution of its parameters, not estimates. Each answer of a subject
moves it by Bayes' rule; calibrated items stay as they are and say where the subject is.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.special import logsumexp

from irtcat._common.checks import argument_error
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.models import field_columns, item_categories, parameter_matrix, unpack
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.responses._matrix import row_blocks
from irtcat.scoring import subject_priors

SDS, N_NODES = 6.0, 121
"""Range of the abilities in SDs of the population, and their number: .1 apart, little against the
width of a posterior from fewer than a hundred items."""

ROUNDS = 3
"""Rounds over all predicted items: each is updated given the curves of the others, which the
update moves. After three, means were within .01 (30 subjects) and .04 (200) of their posterior SD
from those after eight (four simulations)."""

NEWTON_STEPS, LONGEST_STEP = 30, 1.0
"""Limit of Newton's steps of an item, and the longest one, in SDs of its prior."""


def update_items(
    bank: BankLike, responses: Responses, *, prior: Any = None, mismatch: str = "refuse"
) -> ItemBank:
    """The bank after the answers of some subjects: the posterior of the predicted items.

    The posterior of an item's slope and intercept xi given its answers is

        p(xi | x)  proportional to  N(xi; m, C) prod_i E_i[P(x_i | theta, xi)],

    with the mean m and covariance C that the bank has, and the mean E_i over the posterior of the
    ability of subject i given its answers to all other items (and what is known of it besides). It
    is replaced by the Normal distribution at its mode. The result is used again with the answers of
    the next subjects: not with the same ones, which would count twice. Within the session of one
    subject nothing is to be updated, since its answer to an item is used once, with the curve that
    is expected over the item's parameters.

    Args:
        bank: a bank of one ability with predicted items (`Fit.predict_items`), and
            calibrated ones (`ItemBank.join`).
        responses: right/wrong responses to items of the bank; one subject is enough.
        prior: what is known of each subject, as for `irtcat.score`; by default the population,
            also where it is a density (its nodes and weights) or a mixture.
        mismatch: as for `irtcat.score`.

    Returns:
        The bank with the new means and covariances of the predicted items that were answered. They
        stay predicted items, since they are still uncertain; ``n_responses`` counts their
        answers.

    Raises:
        InputError: for a bank without predicted items or of several abilities, items that it does
            not have or that have more than two categories, or other than right/wrong responses.

    Example:
        >>> import pandas as pd
        >>> known = ItemBank.from_parameters(b=np.linspace(-2, 2, 20))
        >>> states = pd.DataFrame({"predicted": [False] * 19 + [True]}, index=known.item_ids)
        >>> unsure = np.zeros((20, 2, 2))
        >>> unsure[19] = np.diag([0.1, 1.0])
        >>> bank = replace(known, covariance=unsure, statistics=states)
        >>> x = np.ones((3, 20), int)  # the hardest item, b = 2, is solved by three subjects
        >>> x[:, 10:19] = 0
        >>> new = update_items(bank, Responses.from_array(x, item_ids=bank.item_ids))
        >>> float(new.to_frame()["b"].iloc[19].round(1)) < 2
        True

    References:
        Owen (1975), JASA 70, 351-356 (sequential Bayes); van der Linden & Ren (2015), Psychometrika
        80, 263-288 (Bayesian calibration in adaptive tests).
    """
    bank = as_bank(bank, needs=["one ability"], purpose="update_items")
    is_predicted = bank.has("predicted")
    if not is_predicted.any() or bank.covariance is None:
        raise argument_error("bank", "a bank with predicted items", "one without")
    if not responses.is_binary:
        raise argument_error("responses", "right/wrong", responses.kind)
    unknown = sorted(set(map(str, responses.item_ids)) - set(bank.item_ids.tolist()))
    if unknown:
        raise argument_error("responses", "to items of the bank", f"one to {unknown[0]}")
    check_conditions(bank.items, responses.items, mismatch, source="bank")
    at = pd.Index(bank.item_ids).get_indexer(pd.Index(list(map(str, responses.item_ids))))
    graded = item_categories(bank.model)[at] > 2
    if graded.any():
        must = "to items of two categories"
        raise argument_error("responses", must, f"one to {bank.item_ids[at][graded][0]}")
    x = responses.to_numpy().astype(float)
    population = bank.population
    mean, sd = population.mean, population.sd
    nodes = mean + sd * np.linspace(-SDS, SDS, N_NODES)
    if prior is not None:
        mean, sd = subject_priors(prior, responses.subject_ids)
    if prior is not None or population.is_normal:
        z = (nodes - np.broadcast_to(mean, len(x))[:, None]) / np.broadcast_to(sd, len(x))[:, None]
        log_prior = -0.5 * z**2
    else:
        points, weights = population.quadrature(bank.n_items)
        nodes, held = points[:, 0], weights > 0
        nodes, log_prior = nodes[held], np.log(weights[held])[None, :]

    answered = is_predicted[at] & ~np.isnan(x).all(axis=0)
    columns = np.array(
        [*field_columns(bank.model, ["slope"])[:1], *field_columns(bank.model, ["intercept"])[:1]]
    )
    now = bank
    for _ in range(ROUNDS):
        curves = _log_curves(now, nodes)
        log_like = (x == 1) @ curves[1][at] + (x == 0) @ curves[0][at]
        now = _updated(bank, curves, x, at, answered, columns, nodes, log_prior + log_like)
    statistics = bank.statistics.copy()
    if "n_responses" in statistics:
        counts = np.zeros(bank.n_items, int)
        counts[at[answered]] = (~np.isnan(x[:, answered])).sum(axis=0)
        statistics["n_responses"] = statistics["n_responses"].fillna(0).astype(int) + counts
    return replace(now, statistics=statistics)


def _asymptotes(bank: ItemBank) -> tuple[FloatArray, FloatArray]:
    """Lower and upper asymptote of each item."""
    frame = bank.to_frame()
    # In banks of several models NaN: the item's model has none.
    lower = frame["c"].fillna(0.0).to_numpy(float) if "c" in frame else np.zeros(bank.n_items)
    upper = frame["d"].fillna(1.0).to_numpy(float) if "d" in frame else np.ones(bank.n_items)
    return lower, upper


def _log_curves(bank: ItemBank, nodes: FloatArray) -> FloatArray:
    """Log probabilities of a wrong and of a right answer, expected (2 x items x nodes)."""
    p = bank.expected_curves().category_probabilities(nodes)
    return np.log(np.clip(p[..., :2], 1e-12, 1 - 1e-12)).transpose(2, 0, 1)


def _updated(
    bank: ItemBank,
    curves: FloatArray,
    x: FloatArray,
    at: np.ndarray,
    answered: BoolArray,
    columns: np.ndarray,
    nodes: FloatArray,
    log_posterior: FloatArray,
) -> ItemBank:
    """One round: each answered item given the abilities that the other items show.

    Args:
        bank: the items before the answers, whose distributions are the priors.
        curves: log probabilities after the last round (see `_log_curves`).
        x: responses, NaN where missing.
        at: position of each column in the bank.
        answered: which columns are predicted items with an answer.
        columns: columns of slope (if items have one) and intercept in the parameters.
        nodes: abilities.
        log_posterior: of the abilities given all answers, subjects x nodes.
    """
    lower, upper = _asymptotes(bank)
    means = parameter_matrix(bank.model)
    params, covariance = means.copy(), np.array(bank.covariance)
    chosen = np.flatnonzero(answered)
    for part in row_blocks((len(chosen), len(x) * len(nodes))):
        items = chosen[part]
        positions = at[items]
        answers = x[:, items].T  # items x subjects
        # The abilities without the item's own answer.
        wrong, right = curves[:, positions, None]
        without = np.where((answers == 1)[:, :, None], right, wrong)
        without = log_posterior - np.where(np.isnan(answers)[:, :, None], 0.0, without)
        weights = np.exp(without - logsumexp(without, axis=2, keepdims=True))
        kept = slice(2 - len(columns), 2)  # without a slope it is 1
        prior_mean = np.ones((len(positions), 2))
        prior_mean[:, kept] = means[positions[:, None], columns]
        prior_covariance = np.zeros((len(positions), 2, 2))
        block = np.nan_to_num(np.array(bank.covariance)[positions])
        prior_covariance[:, kept, kept] = block[:, columns[:, None], columns]
        asymptotes = lower[positions], upper[positions]
        inputs = (prior_mean, prior_covariance, weights, answers, nodes, *asymptotes)
        with precision("float64"):
            posterior = _modes(*(jnp.asarray(value) for value in inputs))
        mode, spread = (np.asarray(value) for value in posterior)
        params[positions[:, None], columns] = mode[:, kept]
        covariance[np.ix_(positions, columns, columns)] = spread[:, kept, kept]
    return replace(bank, model=unpack(bank.model, params), covariance=covariance)


@jit
def _modes(
    mean: jax.Array,
    covariance: jax.Array,
    weights: jax.Array,
    answers: jax.Array,
    nodes: jax.Array,
    lower: jax.Array,
    upper: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Modes of the posteriors, items x (slope, intercept), and the inverse curvature there.

    The coordinates are the prior's standardised ones, u with xi = m + L u and L L' = C: a
    parameter without variance does not move.
    """

    def one(
        m: jax.Array, c: jax.Array, w: jax.Array, x: jax.Array, low: jax.Array, high: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        values, vectors = jnp.linalg.eigh(c)
        root = vectors * jnp.sqrt(jnp.maximum(values, 0.0))

        def loss(u: jax.Array) -> jax.Array:
            slope, intercept = m + root @ u
            p = low + (high - low) * jax.nn.sigmoid(slope * nodes + intercept)
            right = jnp.clip(w @ p, 1e-12, 1 - 1e-12)
            log_like = jnp.where(x == 1, jnp.log(right), jnp.log1p(-right))
            return 0.5 * u @ u - jnp.where(jnp.isnan(x), 0.0, log_like).sum()

        def step(_: int, u: jax.Array) -> jax.Array:
            values, vectors = jnp.linalg.eigh(jax.hessian(loss)(u))
            # A step downhill where the loss is not convex, and a short one far from the mode.
            inverse = (vectors / jnp.maximum(jnp.abs(values), 0.1)) @ vectors.T
            move = inverse @ jax.grad(loss)(u)
            size = jnp.abs(move).max()
            return u - move * jnp.minimum(1.0, LONGEST_STEP / jnp.maximum(size, 1e-12))

        u = jax.lax.fori_loop(0, NEWTON_STEPS, step, jnp.zeros(2))
        values, vectors = jnp.linalg.eigh(jax.hessian(loss)(u))
        inverse = (vectors / jnp.maximum(values, 0.1)) @ vectors.T
        return m + root @ u, root @ inverse @ root.T

    return jax.vmap(one)(mean, covariance, weights, answers, lower, upper)

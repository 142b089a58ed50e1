"""EAP ability from the number right: the recursion of Lord & Wingersky and its table."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

from irtcat._common.checks import argument_error, check_interval
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, ItemBank, as_bank, check_needs
from irtcat.models import item_categories, log_probabilities
from irtcat.scoring.posteriors import (
    CUT_OFF,
    FARTHEST,
    LIMIT,
    MOST_CELLS,
    least_sd_for,
    n_cells_for,
    standardised,
)

UNDERFLOW = -500.0
"""Smallest log-probability, relative to its node's largest, that plain products represent."""


@functools.partial(jit, static_argnames=("n_scores", "logs"))
def _log_score_probabilities(
    log_p: Float[Array, "items nodes categories"], n_scores: int, logs: bool
) -> Float[Array, "scores nodes"]:
    """Log P(sum score | theta) by adding one item at a time (Lord & Wingersky 1984).

    With ``logs`` it works on logarithms: ten times slower, but without underflow.
    """

    def moved(so_far: Array, by: int) -> Array:
        nothing = -jnp.inf if logs else 0.0
        return jnp.concatenate([jnp.full_like(so_far[:by], nothing), so_far[: len(so_far) - by]])

    def add_logs(so_far: Array, item: Array) -> tuple[Array, None]:
        terms = [moved(so_far, k) + item[:, k] for k in range(item.shape[1])]
        return functools.reduce(jnp.logaddexp, terms), None

    def add(carry: tuple[Array, Array], item: Array) -> tuple[tuple[Array, Array], None]:
        so_far, log_scale = carry
        p = jnp.exp(item)
        new = jnp.stack([moved(so_far, k) * p[:, k] for k in range(item.shape[1])]).sum(axis=0)
        # Long tests underflow as plain products: keep each node's largest term at 1.
        top = new.max(axis=0)
        return (new / top, log_scale + jnp.log(top)), None

    first = jnp.broadcast_to(jnp.arange(n_scores)[:, None] == 0, (n_scores, log_p.shape[1]))
    if logs:
        nothing = jnp.where(first, 0.0, -jnp.inf).astype(log_p.dtype)
        return jax.lax.scan(add_logs, nothing, log_p)[0]
    start = first.astype(log_p.dtype), jnp.zeros(log_p.shape[1], log_p.dtype)
    (share, log_scale), _ = jax.lax.scan(add, start, log_p)
    return jnp.log(share) + log_scale


def log_score_probabilities(bank: ItemBank, theta: FloatArray, logs: bool = False) -> FloatArray:
    """Log-probability of each sum score at each ability, scores x abilities.

    Args:
        bank: items with categories, of one ability.
        theta: abilities.
        logs: whether to work on logarithms: slower, but without underflow.
    """
    with precision("float64"):
        log_items = log_probabilities(bank.model, theta)
        n_scores = int((item_categories(bank.model) - 1).sum()) + 1
        return np.asarray(_log_score_probabilities(log_items, n_scores, logs=logs))


def check_has_sum_scores(bank: ItemBank) -> None:
    """Raise unless the bank's responses are categories, whose codes add up to a sum score."""
    if not bank.model.has_categories:
        must, advice = "of items with categories for sum scores", "Use eap, map, ml or wle."
        raise argument_error("bank", must, bank.model.key, advice)


def sum_scores(bank: ItemBank, level: float = 0.95) -> dict[str, np.ndarray]:
    """Posterior of ability for every possible sum score (see `sum_score_table`).

    Returns:
        The table's columns, and ``beyond`` and ``coarse`` as of a `Posterior`.
    """
    check_needs(bank.model, ["one ability"], "sum scores")
    long = int(128 * np.ceil(np.sqrt(bank.n_items) / 8))
    n_cells = min(max(long, n_cells_for(standardised(bank))), MOST_CELLS)
    return _table(bank, level, LIMIT, n_cells)


def _underflows(log_p: FloatArray, z: FloatArray) -> bool:
    """Whether plain products underflow for a score at its posterior mode."""
    best = (log_p - 0.5 * z**2).argmax(axis=1)
    return bool((log_p[np.arange(len(log_p)), best] - log_p.max(axis=0)[best] < UNDERFLOW).any())


def _table(bank: ItemBank, level: float, limit: float, n_cells: int) -> dict[str, np.ndarray]:
    """The table by sums over one grid; scores beyond its range or resolution by the next one."""
    z = np.linspace(-limit, limit, n_cells + 1)
    step = z[1] - z[0]
    population = bank.population
    theta = population.mean + population.sd * z
    if population.nodes is not None and population.weights is not None:
        theta, z = population.nodes, (population.nodes - population.mean) / population.sd
        with np.errstate(divide="ignore"):
            log_prior = np.log(population.weights)
    elif population.parts:
        log_prior = population.log_density(theta) + np.log(step * population.sd)
    else:
        log_prior = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) + np.log(step)
    log_p = log_score_probabilities(bank, theta)
    if _underflows(log_p, z):
        log_p = log_score_probabilities(bank, theta, logs=True)
    log_joint = log_p + log_prior
    top = log_joint.max(axis=1, keepdims=True)
    weight = np.exp(log_joint - top)
    total = weight.sum(axis=1, keepdims=True)
    weight /= total
    mean = weight @ theta
    se = np.sqrt((weight * (theta - mean[:, None]) ** 2).sum(1))
    cumulative = np.cumsum(weight, axis=1) - 0.5 * weight
    tails = (1 - level) / 2, (1 + level) / 2
    lower, upper = np.array([np.interp(tails, row, theta) for row in cumulative]).T
    table = {
        "theta": mean,
        "se": se,
        "lower": lower,
        "upper": upper,
        "probability": np.exp(top[:, 0]) * total[:, 0],
        "beyond": np.maximum(log_joint[:, 0], log_joint[:, -1]) > top[:, 0] - CUT_OFF,
        "coarse": se < least_sd_for(standardised(bank), step) * population.sd,
    }
    if population.nodes is not None:  # a density has no other nodes
        coarse = table["se"] < np.diff(population.nodes).max()
        return table | {"beyond": np.zeros_like(coarse), "coarse": coarse}
    more = min(2 * n_cells, MOST_CELLS)
    farther = table["beyond"] & (limit < FARTHEST)
    finer = table["coarse"] & ~table["beyond"] & (n_cells < MOST_CELLS)
    for unresolved, next_limit in ((farther, 2 * limit), (finer, limit)):
        if unresolved.any():
            new = _table(bank, level, next_limit, more)
            table = {name: np.where(unresolved, new[name], old) for name, old in table.items()}
    return table


def sum_score_table(bank: BankLike, level: float = 0.95) -> pd.DataFrame:
    """Conversion from the number of points to ability, for complete responses.

    The posterior mean of theta given only the sum score s,
    ``E[theta | s] = sum_q theta_q P(s | theta_q) w_q / P(s)``, with P(s | theta) by the recursion
    of Lord & Wingersky.

    Args:
        bank: the calibrated items.
        level: probability of the posterior interval, in (0, 1).

    Returns:
        Indexed by sum score: theta, se (posterior SD), lower, upper, and the score's probability
        in the calibration population.

    Raises:
        InputError: for a bank whose items have no categories ("binomial", "beta").

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 1.0], b=[-0.5, 0.5])
        >>> sum_score_table(bank).theta.round(3).tolist()
        [-0.713, 0.0, 0.713]

    References:
        Lord & Wingersky (1984), Applied Psychological Measurement 8, 453-461. Thissen et al.
        (1995), Applied Psychological Measurement 19, 39-49 (EAP for summed scores).
    """
    bank = as_bank(bank)
    check_has_sum_scores(bank)
    check_interval("level", level)
    scores = sum_scores(bank, level=level)
    columns = ["theta", "se", "lower", "upper", "probability"]
    return pd.DataFrame(scores)[columns].rename_axis("sum_score")

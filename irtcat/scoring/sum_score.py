"""EAP ability from the number right: the recursion of Lord & Wingersky and its table."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

from irtcat._checks import argument_error
from irtcat._compile import jit
from irtcat._precision import precision
from irtcat._types import FloatArray
from irtcat.bank import ItemBank, one_ability
from irtcat.models import CategoricalModel, item_categories, probabilities

__all__ = ["check_has_sum_scores", "sum_score_table", "sum_scores"]

LIMIT = 6.4
FINEST = 1601


@functools.partial(jit, static_argnames=("n_scores",))
def _log_score_probabilities(
    p: Float[Array, "items nodes categories"], n_scores: int
) -> Float[Array, "scores nodes"]:
    """Log P(sum score | theta) by adding one item at a time (Lord & Wingersky 1984)."""
    n_categories = p.shape[-1]

    def add(carry: tuple[Array, Array], item: Array) -> tuple[tuple[Array, Array], None]:
        so_far, log_scale = carry
        new = so_far * item[:, 0]
        for k in range(1, n_categories):
            moved = jnp.concatenate([jnp.zeros_like(so_far[:k]), so_far[:-k]])
            new = new + moved * item[:, k]
        # Long tests underflow as plain products: keep each node's largest term at 1.
        top = new.max(axis=0)
        return (new / top, log_scale + jnp.log(top)), None

    first = jnp.arange(n_scores)[:, None] == 0
    start = jnp.broadcast_to(first, (n_scores, p.shape[1])).astype(p.dtype)
    (share, log_scale), _ = jax.lax.scan(add, (start, jnp.zeros(p.shape[1], p.dtype)), p)
    return jnp.log(share) + log_scale


def check_has_sum_scores(bank: ItemBank) -> None:
    """Raise unless the bank's responses are categories, whose codes add up to a sum score."""
    if not isinstance(bank.model, CategoricalModel):
        raise argument_error(
            "bank",
            "of items with categories for sum scores",
            bank.model.key,
            "Use eap, map, ml or wle.",
        )


def sum_scores(bank: ItemBank, interval: float = 0.95) -> dict[str, FloatArray]:
    """Posterior of ability for every possible sum score (see `sum_score_table`)."""
    one_ability(bank, "sum scores")
    n_nodes = int(np.clip(129 * np.ceil(np.sqrt(bank.n_items) / 8), 129, FINEST)) | 1
    z = np.linspace(-LIMIT, LIMIT, n_nodes)
    theta = bank.population_mean + bank.population_sd * z
    with precision("float64"):
        p = probabilities(bank.model, jnp.asarray(theta))
        n_scores = int((item_categories(bank.model) - 1).sum()) + 1
        log_p = np.asarray(_log_score_probabilities(p, n_scores))
    log_joint = log_p - 0.5 * z**2 - 0.5 * np.log(2 * np.pi) + np.log(z[1] - z[0])
    top = log_joint.max(axis=1, keepdims=True)
    weight = np.exp(log_joint - top)
    total = weight.sum(axis=1, keepdims=True)
    weight /= total
    mean = weight @ theta
    variance = (weight * (theta - mean[:, None]) ** 2).sum(1)
    cumulative = np.cumsum(weight, axis=1) - 0.5 * weight
    tail = (1 - interval) / 2
    ends = [[np.interp(q, row, theta) for row in cumulative] for q in (tail, 1 - tail)]
    return {
        "theta": mean,
        "se": np.sqrt(variance),
        "lower": np.array(ends[0]),
        "upper": np.array(ends[1]),
        "probability": np.exp(top[:, 0]) * total[:, 0],
    }


def sum_score_table(bank: ItemBank, interval: float = 0.95) -> pd.DataFrame:
    """Conversion from the number of points to ability, for complete responses.

    The posterior mean of theta given only the sum score s,
    ``E[theta | s] = sum_q theta_q P(s | theta_q) w_q / P(s)``, with P(s | theta) by the recursion
    of Lord & Wingersky.

    Args:
        bank: the calibrated items.
        interval: probability of the posterior interval, in (0, 1).

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
    check_has_sum_scores(bank)
    columns = sum_scores(bank, interval)
    index = pd.RangeIndex(len(columns["theta"]), name="sum_score")
    return pd.DataFrame(columns, index=index)

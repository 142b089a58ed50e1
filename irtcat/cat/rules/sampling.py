"""Items that an adaptive test draws at random: at which positions, with which probabilities."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from irtcat.cat.belief.state import DRAWS, CatState, Context, answer_shares, is_answered, uniforms
from irtcat.cat.rows import Settings
from irtcat.prediction.betting import Draw, draw_of

FLOOR = 0.1
"""Default share of the probability that is spread evenly over the open items."""


def draws(config: Settings, position: Any) -> Any:
    """Whether the item at this position (from 0) is drawn; such positions are spread evenly.

    Example:
        >>> from irtcat.cat import Config
        >>> [bool(draws(Config(max_items=5, sampled=0.4), position)) for position in range(5)]
        [False, False, True, False, True]
    """
    # Whole numbers, so that .3 of 10 positions is 3 in any floating-point precision.
    share = round(config.sampled * 10_000)
    return (position + 1) * share // 10_000 > position * share // 10_000


def chances(context: Context, open_items: Array) -> Array:
    """Probability of each open item to be drawn; they sum to 1.

    The share ``1 - u`` is proportional to ``t_j E[sd(x_j | theta)]``, the item's weight in the
    score times the expected SD of its answer under the posterior (the allocation of least variance
    of the sample mean); the share u is uniform (`Config.uniform`, by default a tenth).

    References:
        Neyman (1934), Journal of the Royal Statistical Society 97, 558-625; Kossen et al. (2021),
        Active Testing, ICML (answers of models, the chances by a model of them).
    """
    spread = context.pool.score_weights * (jnp.sqrt(context.curves.variance) @ context.posterior)
    spread, share = jnp.where(open_items, spread, 0.0), context.config.uniform
    uniform, total = open_items / jnp.maximum(open_items.sum(), 1), spread.sum()
    proportional = jnp.where(total > 0, spread / jnp.where(total > 0, total, 1.0), uniform)
    return (1 - share) * proportional + share * uniform


def draw_from(
    before: Context, state: CatState, open_items: Array, item: Array, tuning: Array
) -> Draw:
    """A draw by `chances`, with the posterior means of the scores as predictions.

    Args:
        before: the session when the item was drawn (in a batch, before its first answer).
        state: the session with this item and its answer.
        open_items: the items from which it was drawn.
        item: its position.
        tuning: sums by which the predictions are recalibrated, over the draws before.
    """
    pool = before.pool
    answered, share = is_answered(state), answer_shares(pool, state)
    at = jnp.where(state.items >= 0, state.items, pool.n_items)
    blank = jnp.zeros(pool.n_items + 1, pool.score_weights.dtype)
    lower, upper = (
        blank.at[at].set(jnp.where(answered, share, unknown))[:-1] for unknown in (0.0, 1.0)
    )
    return draw_of(
        pool.score_weights,
        jnp.clip(before.curves.mean @ before.posterior, 0.0, 1.0),
        chances(before, open_items),
        open_items,
        lower,
        upper,
        item,
        tuning,
    )


def drawn(context: Context, values: Array) -> Array:
    """Values whose maximum is an item drawn by `chances`; closed items stay closed.

    ``ln p_j + G_j`` with G Gumbel noise.
    """
    open_items = values > -jnp.inf
    u = uniforms(context.state, DRAWS, context.state.administered.sum(), (context.pool.n_items,))
    tiny = jnp.finfo(u.dtype).tiny
    gumbel = -jnp.log(jnp.maximum(-jnp.log(jnp.maximum(u, tiny)), tiny))
    noisy = jnp.log(jnp.maximum(chances(context, open_items), tiny)) + gumbel
    return jnp.where(open_items, noisy, -jnp.inf)

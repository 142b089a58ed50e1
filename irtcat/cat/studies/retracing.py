"""Finished sessions retraced: the predicted score after each item, and its draw."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.cat.belief.state import CatState, Pool
from irtcat.cat.engine.choice import context_of
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import ask, blank, record
from irtcat.cat.engine.preparation import prepare
from irtcat.cat.rules.sampling import draw_from
from irtcat.cat.rules.stopping import score_moments
from irtcat.prediction.betting import Draw, tuning_terms

BLOCK_OF_VALUES = 2**24
"""Most values of curves that are held at a time while sessions are retraced."""


def retraced(
    bank: ItemBank, config: Config, priors: FloatArray, items: IntArray, answers: IntArray
) -> tuple[FloatArray, Draw]:
    """Predicted score after each item and the draw of each item; NaN after the last.

    Args:
        bank: the bank of the sessions.
        config: their configuration.
        priors: priors of the subjects as the engine stores them.
        items: positions of the items, subjects x items; -1 after the last.
        answers: their answers as categories.
    """
    pool = prepare(bank, config)
    size = max(
        1, min(BLOCK_OF_VALUES // (pool.p[..., 0].size * pool.belief.nodes_per_subject), 256)
    )
    with precision("float64"):
        inputs = [jnp.asarray(rows) for rows in (priors, items, answers)]
        scores, draws = _values_along(pool, config, *inputs, size)
    is_item = items >= 0
    columns = (np.where(is_item, np.asarray(column, float), np.nan) for column in draws)
    return np.where(is_item, scores, np.nan), Draw(*columns)


@functools.partial(jit, static_argnames=("config", "size"))
def _values_along(
    pool: Pool, config: Config, priors: Array, items: Array, answers: Array, size: int
) -> tuple[Array, Draw]:
    """Predicted score after each item, and its draw, for all sessions."""
    alone = replace(config, batch=1, stopping="length")

    def one(rows: tuple[Array, Array, Array]) -> tuple[Array, Draw]:
        prior, items, answers = rows

        def advance(carry: tuple[CatState, CatState, Array], k: Array) -> Any:
            state, drawn_from, tuning = carry
            # The items of a batch are drawn under one posterior.
            drawn_from = jax.tree.map(
                lambda now, then: jnp.where(k % config.batch == 0, now, then), state, drawn_from
            )
            free = ~state.administered & ~pool.pretest
            state = record(pool, alone, ask(state, items[k][None]), answers[k][None])
            draw = draw_from(context_of(pool, config, drawn_from), state, free, items[k], tuning)
            tuning = tuning + tuning_terms(draw.factor, draw.raw, draw.answer, draw.counts)
            score = score_moments(context_of(pool, config, state))[0]
            return (state, drawn_from, tuning), (score, draw)

        begin = blank(pool, alone, prior, None, jnp.zeros(2, jnp.uint32))
        none = jnp.zeros(5, pool.nodes.dtype)
        return jax.lax.scan(advance, (begin, begin, none), jnp.arange(items.shape[0]))[1]

    return jax.lax.map(one, (priors, items, answers), batch_size=size)

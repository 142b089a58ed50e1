"""Estimates of a live session from its state.

Apart from `full_score`, which reads stored sessions without JAX.
"""

import functools
from typing import Any

import numpy as np
from jaxtyping import Array

from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat.cat.belief.pool import Pool
from irtcat.cat.belief.state import CatState
from irtcat.cat.engine.choice import context_of
from irtcat.cat.engine.config import Config
from irtcat.cat.live.full_score import GUARANTEED, score_by_bets
from irtcat.cat.rules.stopping import STOPPING, score_moments, single_rules


@functools.partial(jit, static_argnames=("config",))
def _predicted(pool: Pool, config: Config, state: CatState) -> tuple[Array, Array]:
    return score_moments(context_of(pool, config, state))


def estimates_of(pool: Pool, config: Config, state: CatState) -> dict[str, Any]:
    """The estimates, as `Session.estimate` returns them."""
    with precision("float64"):
        context = context_of(pool, config, state)
        mean, variance = _predicted(pool, config, state)
        out: dict[str, Any] = {
            "theta": np.asarray(state.theta, float).tolist(),
            "se": np.asarray(state.se, float).tolist(),
            "n_items": int(state.n),
            "score": float(mean),
            "score_sd": float(np.sqrt(max(float(variance), 0.0))),
        }
        for rule in single_rules(config.stopping):
            if STOPPING[rule.name].classifies:
                category = int(STOPPING[rule.name].function(context, **rule.kwargs()))
                out["category"] = None if category < 0 else category
            if STOPPING[rule.name].needs_draws:
                level = float(rule.get("level", 0.95))
                assert state.bets is not None  # such a configuration has them
                outcome = score_by_bets(state.bets, GUARANTEED, level)
                score = outcome.score if np.isfinite(outcome.score) else None
                out[GUARANTEED] = [score, outcome.lower, outcome.upper, level]
    return out

"""States and settings in which the reference numbers were computed."""

import jax.numpy as jnp
import numpy as np

from irtcat.cat import Config, Context
from irtcat.cat.engine import engine

METHODS = {"ML": "ml", "WL": "wle", "BM": "map", "EAP": "eap"}
PRIORS = {"norm": "normal", "unif": "uniform", "Jeffreys": "jeffreys"}
CRITERIA = {
    "MFI": "mfi",
    "bOpt": "bopt",
    "thOpt": "thopt",
    "MLWI": "mlwi",
    "MPWI": "mpwi",
    "KL": "kl",
    "KLP": "klp",
    "GDI": "gdi",
    "GDIP": "gdip",
    "MEI": "mei",
    "MEPV": "mepv-plug-in",
}


def catr_config(**changes):
    """catR's settings: 33 nodes on [-4, 4], N(0, 1) prior, ML at a bound for constant patterns."""
    settings = {"theta_bounds": (-4, 4), "nodes": 33, "max_items": 30, "constant": "bound"}
    return Config(**(settings | changes))


def se_of(theta, se):
    """Our SE where catR has these: infinite at a theta bound, where catR has the information's."""
    return np.where(np.abs(np.abs(theta) - 4) < 1e-8, np.inf, se)


def state_after(pool, config, items, answers, prior):
    """The state after answers to items (traceable; positions of -1 are no items)."""
    here = items >= 0
    log_like = pool.log_p[items, jnp.maximum(answers, 0)]
    blank = engine.blank(pool, config, prior, jnp.ones(pool.n_items, bool), jnp.zeros(2, "uint32"))

    def over(curves):
        return jnp.where(here[:, None], curves, 0).sum(0)

    return blank._replace(
        log_like=over(log_like),
        information=over(pool.information[items]),
        warm=blank.warm if pool.warm is None else over(pool.warm[items]),
        administered=blank.administered.at[jnp.where(here, items, pool.n_items)].set(
            True, mode="drop"
        ),
        items=items,
        answers=answers,
        n=here.sum(dtype=jnp.int32),
        scored=here.sum(dtype=jnp.int32),
    )


def context_with(pool, config, state, theta):
    """What rules see, at a given ability."""
    return Context(pool, config, state, state.log_like, theta, state.se)


def padded(values, n, filler=-1):
    """A list as int32, filled up."""
    out = np.full(n, filler, np.int32)
    out[: len(values)] = values
    return out

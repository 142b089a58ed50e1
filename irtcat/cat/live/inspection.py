"""The state of a session inspected: estimates, and why its items were chosen."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from irtcat._common.checks import check_count
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat.bank import BankLike, as_bank
from irtcat.cat.belief.state import CatState, Pool
from irtcat.cat.engine.choice import context_of, open_values, per_cost
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import check_prepared
from irtcat.cat.live.status import GUARANTEED, score_by_bets
from irtcat.cat.rules.criteria import CRITERIA
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


@functools.partial(jit, static_argnames=("config",))
def _values_and_stages(
    pool: Pool, config: Config, state: CatState
) -> tuple[Any, Any, dict[str, Any]]:
    """Values by the criterion, values after all rules, and the items open after each rule."""
    context = context_of(pool, config, state)
    values = per_cost(context, CRITERIA[config.criterion](context))
    chosen_by, stages, _ = open_values(context, values)
    return values, chosen_by, stages


def explain(
    bank: BankLike, pool: Pool, config: Config, state: CatState, n: int = 10
) -> pd.DataFrame:
    """Explain why the current items were chosen.

    Args:
        bank: the bank.
        pool: the bank as returned by `prepare`.
        config: the configuration.
        state: the session, with its next items asked.
        n: number of candidates to list.

    Returns:
        The ``n`` items of the greatest value, and the items asked, indexed by id: ``value`` by
        the criterion, for each unit of cost where items have one; ``rank`` among all items, from 1;
        ``asked``; ``excluded_by``, the first rule that excluded the item (empty if it could have
        been asked).

    Example:
        >>> from irtcat import ItemBank
        >>> from irtcat.cat import Config, prepare, start
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0, 1.0], b=[-1.0, 0.1, 1.0])
        >>> config = Config(max_items=2, enemies=[["i1", "i2"]])
        >>> pool = prepare(bank, config)
        >>> explain(bank, pool, config, start(pool, config), 2)["rank"].tolist()
        [1, 2]
    """
    check_prepared(pool, config, state)
    bank = as_bank(bank)
    check_count("n", n)
    with precision(str(pool.nodes.dtype)):
        asked = np.asarray(state.asked)
        asked = asked[asked >= 0]
        administered = np.array(state.administered)
        administered[asked] = False
        values, chosen_by, stages = _values_and_stages(
            pool, config, state._replace(administered=jnp.asarray(administered))
        )
    value = np.asarray(values, float)
    order = np.argsort(-value, kind="stable")
    rank = np.argsort(order) + 1
    excluded = np.full(len(value), "", dtype=object)
    for name, open_ in reversed(stages.items()):
        excluded[~np.asarray(open_)] = name
    usable = excluded == ""
    not_asked = np.flatnonzero(usable & ~np.isin(np.arange(len(value)), asked))
    if len(asked) and len(not_asked) and config.exposure.name != "none":
        best = np.asarray(chosen_by, float)
        better = not_asked[best[not_asked] > best[asked[0]]]
        excluded[better] = f"exposure rule {config.exposure.name}"
    shown = np.unique(np.concatenate([order[:n], asked]))
    shown = shown[np.argsort(rank[shown])]
    columns = {
        "value": value[shown],
        "rank": rank[shown],
        "asked": np.isin(shown, asked),
        "excluded_by": excluded[shown],
    }
    return pd.DataFrame(columns, index=pd.Index(bank.item_ids[shown], dtype=object, name="item"))

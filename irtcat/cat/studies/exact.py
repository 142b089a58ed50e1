"""The exact standard error of a short test: from the distribution of the estimate over patterns."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from irtcat._common.checks import argument_error, is_number
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat.bank import BankLike
from irtcat.cat.belief.priors import prior_rows
from irtcat.cat.belief.state import Pool
from irtcat.cat.engine.choice import context_of
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import blank
from irtcat.cat.engine.preparation import prepare
from irtcat.cat.engine.reading import checked_bank
from irtcat.cat.rules.estimators import estimate
from irtcat.models import item_categories

MOST_PATTERNS = 2**16


@functools.partial(jit, static_argnames=("config",))
def _estimates(pool: Pool, config: Config, prior: Array, answers: Array) -> Array:
    """The estimate after each row of answers to all items."""
    n = pool.n_items
    items = jnp.arange(n, dtype=jnp.int32)
    empty = blank(pool, config, prior, None, jnp.zeros(2, jnp.uint32))

    def one(row: Array) -> Array:
        state = empty._replace(
            log_like=pool.log_p[items, row].sum(axis=0),
            information=pool.information.sum(axis=0),
            warm=empty.warm if pool.warm is None else pool.warm.sum(axis=0),
            items=items,
            answers=row,
            n=jnp.asarray(n, jnp.int32),
            scored=jnp.asarray(n, jnp.int32),
        )
        return estimate(context_of(pool, config, state)).theta

    return jax.lax.map(one, answers, batch_size=256)


def exact_distribution(
    bank: BankLike,
    items: Sequence[str],
    theta: float,
    config: Config | None = None,
    prior: Any = None,
) -> pd.DataFrame:
    """All possible values of the estimate from a short test, with their probabilities.

    The configured estimator scores every pattern of answers; the probability of a pattern at an
    ability is the product of those of its answers.

    Args:
        bank: calibrated items.
        items: ids of the items of the test; at most 65,536 patterns (16 right/wrong items).
        theta: the ability.
        config: only ``method``, ``prior``, ``constant``, ``theta_bounds`` and ``nodes`` are used;
            by default `Config()`.
        prior: mean and SD of the prior, or a `Population`; by default the bank's population.

    Returns:
        One row per pattern: one column per item with the category codes from 0, ``theta`` (the
        estimate) and ``probability``, which sums to 1.

    Raises:
        InputError: for unknown items, too many patterns, or as `prepare` does.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=1.5, b=[-1.0, 0.0, 1.0])
        >>> table = exact_distribution(bank, ["i1", "i2", "i3"], theta=0.0)
        >>> len(table), round(float(table["probability"].sum()), 12)
        (8, 1.0)

    References:
        Magis (2014), Applied Psychological Measurement 38, 105-121.
    """
    config = Config() if config is None else config
    bank = checked_bank(bank, config, ["one ability"], "exact errors")
    ids = list(items)
    test = bank.subset(bank.positions(ids))
    if not ids or not is_number(theta):
        raise argument_error("items and theta", "ids of items and a finite ability", (ids, theta))
    used = ("method", "prior", "constant", "constant_step", "theta_bounds", "nodes")
    estimator: dict[str, Any] = {name: getattr(config, name) for name in used}
    config = Config(**estimator, max_items=len(ids))
    n_categories = item_categories(test.model)
    if np.prod(n_categories.astype(float)) > MOST_PATTERNS:
        raise argument_error("items", f"few enough for {MOST_PATTERNS} patterns", len(ids))
    patterns = np.indices(n_categories.tolist(), np.int32).reshape(len(ids), -1).T
    row = prior_rows(bank, prior, 1)[0]
    with precision("float64"):
        pool = prepare(test, config)
        estimates = _estimates(pool, config, jnp.asarray(row, float), jnp.asarray(patterns))
    curves = np.asarray(test.category_probabilities([theta]))[:, 0]
    probability = curves[np.arange(len(ids)), patterns].prod(axis=1)
    table = pd.DataFrame(patterns, columns=pd.Index(ids, dtype=object))
    return table.assign(theta=np.asarray(estimates), probability=probability)


def exact_error(
    bank: BankLike,
    items: Sequence[str],
    theta: float,
    config: Config | None = None,
    prior: Any = None,
) -> float:
    """The exact standard error of the estimate: its SD over all patterns at an ability.

    The asymptotic error ``1 / sqrt(I)`` is inaccurate for short tests, where patterns all right or
    all wrong, with estimates at the theta bounds, are likely.

    Args:
        bank: calibrated items.
        items: ids of the items of the test.
        theta: the ability; an estimate, for its standard error.
        config: as for `exact_distribution`.
        prior: as for `exact_distribution`.

    Returns:
        The standard error.

    Raises:
        InputError: as `exact_distribution` does.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=1.5, b=[-1.0, 0.0, 1.0])
        >>> round(exact_error(bank, ["i1", "i2", "i3"], theta=0.0), 3)
        0.539

    References:
        Magis (2014), Applied Psychological Measurement 38, 105-121.
    """
    table = exact_distribution(bank, items, theta, config, prior)
    p, value = table["probability"].to_numpy(), table["theta"].to_numpy()
    return float(np.sqrt(max(p @ value**2 - (p @ value) ** 2, 0.0)))

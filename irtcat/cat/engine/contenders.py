"""Contenders: for every cell of ability, the few items that can be the most informative in it.

A session of L items closes at most L items, so the best open item is always among those whose
maximum information within the cell is at least the L-th largest of all minima. The curves
``I(theta)`` of the logistic family have one peak, so the ends of the cell and the peak determine
both. The choice is the same as among all items, with a fifth of the work for 500 items and a
thousandth for 30,000.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.types import BoolArray, FloatArray
from irtcat.cat.belief.curves import LogisticCurves
from irtcat.cat.belief.state import NONE, Contenders, Context
from irtcat.cat.engine.config import Config
from irtcat.models import ItemModel

MOST_CELLS, LEAST_CELLS = 400, 16
WORK = 6_000_000
"""Most values of information that are computed when a bank is prepared."""

CHUNK = 30_000
"""Values computed at a time, so that they stay in the processor's cache."""

SPARE = 16
"""Columns beyond the length of a session; doubled until all contenders fit. Similar banks then have
arrays of the same shape, and programs are not recompiled."""

MARGIN = 1e-4
"""Relative margin, so that rounding in float32 excludes no item."""

HALVINGS = 50
"""Bisection steps: enough for the precision of float64."""


def is_plain(config: Config, pretest: BoolArray) -> bool:
    """Whether a session takes the most informative open item, and only asked items are closed."""
    return (
        config.criterion == "mfi"
        and config.exposure.name == "none"
        and config.start.name == "criterion"
        and config.batch == 1
        and config.sampled == 0
        and config.cost is None
        and config.fixed is None  # its items may be no contenders
        and not (config.content or config.targets or config.enemies)
        and not (config.pretest_at or pretest.any())
        and (config.method, config.constant)
        != ("ml", "halfway")  # which may leave the theta bounds
    )


def contenders(
    model: ItemModel,
    parameters: Mapping[str, FloatArray],
    config: Config,
    pretest: BoolArray,
    theta_bounds: tuple[float, float],
    real: Any,
) -> Contenders | None:
    """The contenders of a bank between the theta bounds; None where all items must be compared.

    Args:
        model: the items.
        parameters: their a, b, c and d.
        config: the configuration.
        pretest: whether each item is a pretest item.
        theta_bounds: lowest and highest ability.
        real: converts to an array of the requested precision.
    """
    if not (is_plain(config, pretest) and model.has_logistic_link):
        return None
    a, c, d = (parameters[name] for name in "acd")
    intercept = np.array(getattr(model, "intercept"), np.float64)  # noqa: B009
    curves, (low, high) = LogisticCurves(a, intercept, c, d), theta_bounds
    n_cells = int(np.clip(WORK // len(a), LEAST_CELLS, MOST_CELLS))
    if len(a) < 2 * (config.max_items + SPARE):
        return None
    edges = np.linspace(low, high, n_cells + 1)
    candidates = _may_be_best(edges, config.max_items, curves)
    needed, spare = int(candidates.sum(axis=1).max()), SPARE
    while config.max_items + spare < needed:
        spare *= 2
    n_columns = config.max_items + spare
    if 2 * n_columns > len(a):
        return None
    cell, item = np.nonzero(candidates)
    column = np.arange(len(cell)) - np.searchsorted(cell, cell)
    items = np.full((n_cells, n_columns), NONE)
    items[cell, column] = item
    return Contenders(
        start=real(low),
        per_unit=real(n_cells / (high - low)),
        items=jnp.asarray(items, jnp.int32),
        curves=LogisticCurves(*map(real, curves.at(items))),
    )


def _may_be_best(edges: FloatArray, length: int, curves: LogisticCurves) -> BoolArray:
    """Which items can be the best after ``length - 1`` others are closed, cells x items."""
    n = len(curves.a)
    rows = max(1, CHUNK // n)
    chunks = np.split(edges[:, None], range(rows, len(edges), rows))
    at_edges = np.concatenate([_information(curves, chunk) for chunk in chunks])
    least = np.minimum(at_edges[:-1], at_edges[1:])
    greatest = np.maximum(at_edges[:-1], at_edges[1:])
    peak = _peaks(curves)
    peak_information = _information(curves, np.where(np.isfinite(peak), peak, 0.0))
    cell = np.searchsorted(edges, peak, side="right") - 1
    inside = np.flatnonzero(np.isfinite(peak) & (cell >= 0) & (cell < len(greatest)))
    greatest[cell[inside], inside] = peak_information[inside]
    threshold = np.partition(least, n - length, axis=1)[:, n - length]
    return greatest * (1 + MARGIN) >= threshold[:, None]


def _information(curves: LogisticCurves, theta: Any) -> FloatArray:
    with np.errstate(under="ignore"):
        return curves.information(theta, np)


def _peaks(curves: LogisticCurves) -> FloatArray:
    """Ability of greatest information of each item; NaN where its information is 0 everywhere.

    ``ln I = 2 ln(P - c) + 2 ln(d - P) - ln P - ln(1 - P)`` up to a constant; its slope in P falls
    throughout, so its root is found by bisection (in s, with ``P = c + (d - c) s``).
    """
    a, intercept, c, d = curves
    low, high = np.zeros_like(a), np.ones_like(a)
    for _ in range(HALVINGS):
        s = 0.5 * (low + high)
        p = c + (d - c) * s
        rises = 2 / s - 2 / (1 - s) - (d - c) / p + (d - c) / (1 - p) > 0
        low, high = np.where(rises, s, low), np.where(rises, high, s)
    s = 0.5 * (low + high)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(a == 0, np.nan, (np.log(s / (1 - s)) - intercept) / a)


def contending(context: Context, near: Contenders) -> tuple[Array, Array]:
    """The contenders at the estimate, and their information; minus infinity where closed."""
    number = ((context.theta - near.start) * near.per_unit).astype(jnp.int32)
    cell = jnp.clip(number, 0, near.items.shape[0] - 1)
    items = near.items[cell]
    values = near.curves.at(cell).information(context.theta)
    closed = (items < 0) | context.state.administered[jnp.maximum(items, 0)]
    return items, jnp.where(closed, -jnp.inf, values)

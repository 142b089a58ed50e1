"""The belief before the first answer, and the curves of the items at its nodes."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.compilation import jit
from irtcat.bank import ItemBank, Population, fisher_information
from irtcat.cat.belief.curves import Curves, curves_at, tabulate, trapezoid
from irtcat.cat.belief.line import STEEPEST_CELL, Line
from irtcat.cat.belief.space import MOST_DIMS, Grid, Normal, grid_axis, normal_rule, product_grid
from irtcat.cat.belief.state import Belief
from irtcat.cat.engine.config import MOST_NODES, Config
from irtcat.cat.rules.criteria import CRITERIA
from irtcat.models import steepest_slope

LEAST_NODES = 81
REACH = 5.0
"""Default theta bounds, in SDs of the population."""

NEGLIGIBLE = 1e-6
"""Share of a part of a population that the grid need not reach or resolve."""


_tabulate_vectors = jit(curves_at)


def tabulated(bank: ItemBank, config: Config, top: Any) -> tuple[Belief, Curves, Any]:
    """The belief before the first answer, the curves at its nodes, and the peaks of the items."""
    tabulate_belief = next(make for most, make in BELIEFS.items() if bank.model.dims <= most)
    return tabulate_belief(bank, config, top)


def _line(bank: ItemBank, config: Config, top: Any) -> tuple[Belief, Curves, Any]:
    """A grid with the curves at every node, and the ability at which each item informs most."""
    low, high = theta_bounds_of(bank, config)
    axis = np.linspace(low, high, config.nodes or _n_nodes(bank, config, low, high))
    peaks, warm = CRITERIA[config.criterion].needs_peaks, "wle" in (config.method, config.constant)
    curves, best = tabulate(bank.model, jnp.asarray(axis), top, peaks=peaks, warm=warm)
    return Line(axis, np.log(trapezoid(axis))), curves, best


def _grid(bank: ItemBank, config: Config, top: Any) -> tuple[Belief, Curves, Any]:
    """A product grid with the curves at every node."""
    axis = grid_axis(bank, config.max_items, config.theta_bounds, config.nodes)
    grid = Grid(*product_grid(axis, bank.model.dims))
    curves = _tabulate_vectors(bank.model, jnp.asarray(grid.nodes), top)
    return grid, curves, np.zeros(bank.n_items)


def _normal(bank: ItemBank, config: Config, top: Any) -> tuple[Belief, Curves, Any]:
    """A Normal belief: each subject has its own nodes, where the engine computes the curves."""
    dims = bank.model.dims
    # The likelihood is in the place of the nodes, so that what the engine adds to it is 0.
    shapes = jax.eval_shape(curves_at, bank.model, jnp.zeros((1, dims)), top)
    blank = jax.tree.map(lambda shape: np.zeros(shape.shape), shapes)
    return Normal(*normal_rule(dims)), blank, np.zeros(bank.n_items)


BELIEFS = {1: _line, MOST_DIMS: _grid, math.inf: _normal}
"""How a belief is tabulated, by the largest number of abilities for which it is."""


def theta_bounds_of(bank: ItemBank, config: Config) -> tuple[float, float]:
    """Lowest and highest ability of the grid."""
    if config.theta_bounds is not None:
        return config.theta_bounds
    population = bank.population
    means, sds, shares = population.components
    held = shares > NEGLIGIBLE
    low = min(population.mean - REACH * population.sd, (means - REACH * sds)[held].min())
    high = max(population.mean + REACH * population.sd, (means + REACH * sds)[held].max())
    return float(low), float(high)


def _prior_precision(population: Population) -> float:
    """Greatest precision of the population's density: minus the second derivative of its log."""
    means, sds, shares = population.components
    if population.is_normal:
        return float(1 / population.sd**2)
    at = means[shares > NEGLIGIBLE, None]
    z = (at - means) / sds
    share = shares / sds * np.exp(-0.5 * z**2)
    share /= share.sum(axis=1, keepdims=True)
    pull = z / sds
    spread = (share * pull**2).sum(axis=1) - (share * pull).sum(axis=1) ** 2
    return float(max(((share / sds**2).sum(axis=1) - spread).max(), 1 / population.sd**2))


def _n_nodes(bank: ItemBank, config: Config, low: float, high: float) -> int:
    """Number of nodes: one for each SD of the narrowest posterior of the test.

    More where an item's log-odds change by more than `STEEPEST_CELL` from one to the next.
    """
    coarse = np.linspace(low, high, 41)
    test_information = np.sort(fisher_information(bank, coarse), axis=0)[-config.max_items :].sum(
        axis=0
    )
    narrowest = 1 / np.sqrt(test_information.max() + _prior_precision(bank.population))
    steep = steepest_slope(bank.model) / STEEPEST_CELL
    wanted = int(np.ceil((high - low) * max(1 / narrowest, steep))) + 1
    return int(np.clip(wanted, LEAST_NODES, MOST_NODES))

"""Preparation of multidimensional banks: supported rules, the grid, and the curves on it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._checks import argument_error
from irtcat._compile import jit
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.cat._parts import as_part
from irtcat.cat._pool import Curves, curves_of, trapezoid
from irtcat.cat._vectors import COARSEST, information_matrices, prior_rows
from irtcat.cat.config import Config
from irtcat.cat.criteria import CRITERIA
from irtcat.cat.stopping import STOPPING, leaves
from irtcat.information import fisher_information
from irtcat.models import ItemModel

__all__ = [
    "check_rules",
    "correlations_of",
    "drawn_abilities",
    "grid_axis",
    "product_grid",
    "tabulate_multidimensional",
    "vector_priors",
]

MOST_DIMS = 3
MOST_NODES = 27_000
LEAST_NODES = 15
"""The maximum is for the whole grid, the minimum for each ability."""

REACH = 4.0
"""Default theta bounds, in SDs of the population."""

SUITED: dict[str, tuple[str, ...]] = {
    "method": ("eap", "map"),
    "prior": ("normal",),
    "start": ("criterion", "random"),
    "exposure": (
        "none", "randomesque", "sympson-hetter", "restricted", "eligibility", "overlap",
    ),
}  # fmt: skip
"""The rules that are defined for several abilities; rows of `CRITERIA` and `STOPPING` say it."""


def check_rules(bank: ItemBank, config: Config) -> None:
    """Raise where a bank has too many abilities, or a rule is defined for one ability only."""
    dims = bank.model.dims
    if dims > MOST_DIMS:
        advice = "Use simulate_multidimensional and next_multidimensional, which need no grid."
        raise argument_error("bank", f"a bank of at most {MOST_DIMS} abilities", dims, advice)
    suited = SUITED | {
        name: tuple(rule for rule, row in table.items() if row.multidimensional)
        for name, table in (("criterion", CRITERIA), ("stopping", STOPPING))
    }
    for name, rules in suited.items():
        parts = leaves(config.stopping) if name == "stopping" else [getattr(config, name)]
        for rule in (as_part(name, value).name for value in parts):
            if rule not in rules:
                must = f"one of {', '.join(rules)} for a bank of {dims} abilities"
                raise argument_error(name, must, rule)


def correlations_of(bank: ItemBank) -> FloatArray:
    """Correlations of the abilities in the population."""
    return np.eye(bank.model.dims) if bank.correlations is None else np.asarray(bank.correlations)


def drawn_abilities(bank: ItemBank, n: int, seed: int) -> FloatArray:
    """Abilities drawn from the bank's population, a vector or subjects x abilities.

    Example:
        >>> drawn_abilities(ItemBank.from_slopes([[1.0, 0.0], [0.0, 1.0]]), 5, seed=1).shape
        (5, 2)
    """
    dims, draw = bank.model.dims, np.random.default_rng(seed)
    if dims == 1:
        return bank.population_mean + bank.population_sd * draw.normal(size=n)
    return draw.normal(size=(n, dims)) @ np.linalg.cholesky(correlations_of(bank)).T


def vector_priors(bank: ItemBank, prior: Any, n: int) -> FloatArray:
    """The priors of ``n`` subjects, n x (1 + dims) x dims: the means, and below the precision.

    Args:
        bank: the items; its population is the prior by default.
        prior: means (for all, or subjects x abilities), and SDs or the covariance matrix.
        n: number of subjects.
    """
    dims = bank.model.dims
    moments = (np.zeros(dims), correlations_of(bank)) if prior is None else prior
    try:
        mean, spread = moments
        means = np.asarray(mean, float)
    except (TypeError, ValueError):
        raise argument_error("prior", "(means, SDs or covariance matrix)", prior) from None
    if means.ndim < 2:
        return np.broadcast_to(prior_rows(moments, dims), (n, 1 + dims, dims))
    if means.shape != (n, dims) or not np.isfinite(means).all():
        must = f"{n} rows of {dims} finite means, if there is one per subject"
        raise argument_error("prior", must, means.shape)
    rows = np.tile(prior_rows((0.0, spread), dims), (n, 1, 1))
    rows[:, 0] = means
    return rows


def grid_axis(bank: ItemBank, config: Config) -> FloatArray:
    """The nodes of each ability.

    One node for each SD of the narrowest posterior of the test (given the other abilities), within
    the limits on the size of the grid.

    Raises:
        InputError: if even the largest grid is too coarse.
    """
    dims = bank.model.dims
    low, high = config.theta_bounds or (-REACH, REACH)
    most = int(MOST_NODES ** (1 / dims) + 1e-9)
    if config.nodes is not None:
        if config.nodes > most:
            must = f"at most {most}, for each of {dims} abilities"
            raise argument_error("nodes", must, config.nodes)
        return np.linspace(low, high, config.nodes)
    coarse = product_grid(np.linspace(low, high, 9), dims)[0]
    item_information = np.diagonal(fisher_information(bank, coarse), axis1=2, axis2=3)
    test_information = np.sort(item_information, axis=0)[-config.max_items :].sum(axis=0)
    prior = np.diagonal(np.linalg.inv(correlations_of(bank)))
    narrowest = 1 / np.sqrt((test_information + prior).max())
    wanted = int(np.ceil((high - low) / narrowest)) + 1
    n = int(np.clip(wanted, LEAST_NODES, most))
    if (high - low) / (n - 1) > COARSEST * narrowest:
        must = f"such that {n} nodes can resolve posteriors of SD {narrowest:.2g}"
        advice = "Set narrower theta_bounds, a smaller max_items, or the number of nodes."
        raise argument_error("config", must, f"bounds {low:g} and {high:g}", advice)
    return np.linspace(low, high, n)


def product_grid(axis: FloatArray, dims: int) -> tuple[FloatArray, FloatArray]:
    """All vectors of nodes, and the logarithms of their trapezoid weights.

    Example:
        >>> nodes, log_weights = product_grid(np.array([0.0, 1.0]), 2)
        >>> nodes.tolist(), np.exp(log_weights).round(2).tolist()
        ([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0.25, 0.25, 0.25, 0.25])
    """
    nodes = np.stack(np.meshgrid(*[axis] * dims, indexing="ij"), axis=-1).reshape(-1, dims)
    weights = np.stack(np.meshgrid(*[np.log(trapezoid(axis))] * dims, indexing="ij"))
    return nodes, weights.sum(axis=0).ravel()


@jit
def tabulate_multidimensional(model: ItemModel, nodes: Array, top: Array) -> Curves:
    """Curves of all items on a multidimensional grid; the information is the trace.

    Args:
        model: the items.
        nodes: the grid, nodes x dims.
        top: highest category of each item, at least 1.
    """

    def one(item: Any) -> tuple[Array, Array]:
        single_item = jax.tree.map(lambda leaf: leaf[None], item)

        def at(theta: Array) -> tuple[Array, Array]:
            return item.log_probs(theta), jnp.trace(information_matrices(single_item, theta)[0])

        return jax.vmap(at, out_axes=-1)(nodes)

    log_p, information = jax.lax.map(one, model)
    best = nodes[jnp.argmax(information, axis=1), 0]
    return curves_of(log_p, information, None, top, best)

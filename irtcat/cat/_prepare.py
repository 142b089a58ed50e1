"""`prepare`: build the pool for the engine from a bank and a configuration."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from irtcat._bank_moves import published
from irtcat._checks import argument_error, check_choice
from irtcat._precision import precision as in_width
from irtcat._types import FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.cat._columns import (
    check_pretest,
    column_of,
    enemies_of,
    first_of,
    item_testlets,
    pretest_of,
)
from irtcat.cat._contenders import contenders
from irtcat.cat._parts import as_part
from irtcat.cat._plan import content_plan, plan_arrays
from irtcat.cat._pool import (
    Counts,
    Curves,
    Pool,
    has_logistic_information,
    tabulate,
    trapezoid,
)
from irtcat.cat._prepare_several import (
    check_rules,
    grid_axis,
    product_grid,
    tabulate_multidimensional,
)
from irtcat.cat.config import MOST_NODES, Config
from irtcat.cat.criteria import CRITERIA
from irtcat.cat.exposure import blank_counts, check_exposure
from irtcat.information import fisher_information
from irtcat.models import CategoricalModel, in_precision, item_categories, steepest_slope

__all__ = ["prepare", "strata_of"]

LEAST_NODES = 81
STEEPEST_CELL = 1.25
"""Largest change of the log-odds of an item between two nodes."""

REACH = 5.0
"""Default theta bounds, in SDs of the population."""


def prepare(bank: ItemBank, config: Config, precision: str = "float64") -> Pool:
    """Tabulate the curves of a bank, and number its groups, enemies, testlets and strata.

    Args:
        bank: calibrated items, right/wrong or with several categories, of one ability, or of two
            or three (then tabulated on a product grid).
        config: the configuration.
        precision: "float64" or "float32" (simulations of many subjects).

    Returns:
        The pool, the first argument of `start` and `step`.

    Raises:
        InputError: for a bank of more abilities or of counts or continuous scores, an unknown
            column, group or id, or a configuration that the bank cannot satisfy or whose rules are
            not defined for several abilities.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 1.5], b=[0.0, 1.0])
        >>> prepare(bank, Config(max_items=2)).n_items
        2
    """
    dims = bank.model.dims
    if dims > 1:
        check_rules(bank, config)
    if not isinstance(bank.model, CategoricalModel):
        raise argument_error("bank", "a bank of items with categories", bank.model.key)
    robust = as_part("method", config.method).name == "robust"
    if robust and not has_logistic_information(bank.model):
        raise argument_error(
            "bank", "a bank of right/wrong items for robust estimates", bank.model.key
        )
    check_choice("precision", precision, ("float64", "float32"))
    pretest = pretest_of(bank, config)
    first = first_of(bank, config)
    n_scored = int((~pretest).sum())
    if n_scored < config.max_items:
        must = f"at most {n_scored}, the number of items in the bank"
        raise argument_error("max_items", must, config.max_items)
    column_of(bank, config.group, "")  # raises if the column is missing
    check_pretest(bank, config)
    check_exposure(config, n_scored)
    plan = content_plan(bank, config)
    with in_width("float64"):
        parameters, _ = published(bank)
        highest = item_categories(bank.model) - 1
        tabulated = _tabulated if dims == 1 else _tabulated_multidimensional
        nodes, log_weights, curves = tabulated(bank, config, jnp.maximum(highest, 1).astype(float))
        best_theta = np.asarray(curves.best_theta)
    b = parameters.get("b", best_theta)
    model = bank.model
    n = bank.n_items
    slope = parameters.get("a" if dims == 1 else "mdisc", np.zeros(n))
    weights = np.where(pretest, 0.0, 1.0)
    counts = blank_counts(config.exposure, n)
    with in_width(precision) as dtype:

        def real(value: Any) -> Any:
            return jnp.asarray(value, dtype)

        theta_bounds = float(nodes.min()), float(nodes.max())
        contending = contenders(model, parameters, config, pretest, theta_bounds, real)
        return Pool(
            model=in_precision(model, dtype),
            nodes=real(nodes),
            log_weights=real(log_weights),
            log_p=real(curves.log_p),
            p=real(curves.p),
            information=real(curves.information),
            entropy=real(curves.entropy),
            warm=None if curves.warm is None else real(curves.warm),
            mean=real(curves.mean),
            variance=real(curves.variance),
            score_weights=real(weights / max(weights.sum(), 1)),
            best_theta=real(best_theta),
            b=real(np.where(np.isfinite(b), b, best_theta)),
            stratum=jnp.asarray(strata_of(slope, config.strata), jnp.int32),
            plan=plan_arrays(plan, bank, config, real),
            enemies=jnp.asarray(enemies_of(bank, config)),
            testlet=jnp.asarray(item_testlets(bank, config), jnp.int32),
            pretest=jnp.asarray(pretest),
            first=jnp.asarray(first, jnp.int32),
            seconds=real(column_of(bank, config.seconds, 0.0).astype(float)),
            counts=Counts(*(count if count is None else real(count) for count in counts)),
            top=jnp.asarray(highest, jnp.int32),
            near=contending,
        )


def _tabulated(bank: ItemBank, config: Config, top: Any) -> tuple[FloatArray, FloatArray, Curves]:
    """The grid of one ability, the logarithms of its weights, and the curves on it."""
    low, high = theta_bounds_of(bank, config)
    nodes = np.linspace(low, high, config.nodes or _n_nodes(bank, config, low, high))
    peaks = CRITERIA[config.criterion].needs_peaks
    curves = tabulate(bank.model, jnp.asarray(nodes), top, peaks=peaks, warm=_needs_warm(config))
    return nodes, np.log(trapezoid(nodes)), curves


def _tabulated_multidimensional(
    bank: ItemBank, config: Config, top: Any
) -> tuple[FloatArray, FloatArray, Curves]:
    """The same for several abilities."""
    nodes, log_weights = product_grid(grid_axis(bank, config), bank.model.dims)
    return nodes, log_weights, tabulate_multidimensional(bank.model, jnp.asarray(nodes), top)


def theta_bounds_of(bank: ItemBank, config: Config) -> tuple[float, float]:
    """Lowest and highest ability of the grid."""
    if config.theta_bounds is not None:
        return config.theta_bounds
    mean, half = bank.population_mean, REACH * bank.population_sd
    return mean - half, mean + half


def _n_nodes(bank: ItemBank, config: Config, low: float, high: float) -> int:
    """Number of nodes: one for each SD of the narrowest posterior of the test.

    More where an item's log-odds change by more than `STEEPEST_CELL` from one to the next.
    """
    coarse = np.linspace(low, high, 41)
    test_information = np.sort(fisher_information(bank, coarse), axis=0)[-config.max_items :].sum(
        axis=0
    )
    narrowest = 1 / np.sqrt(test_information.max() + 1 / bank.population_sd**2)
    steep = steepest_slope(bank.model) / STEEPEST_CELL
    wanted = int(np.ceil((high - low) * max(1 / narrowest, steep))) + 1
    return int(np.clip(wanted, LEAST_NODES, MOST_NODES))


def _needs_warm(config: Config) -> bool:
    return "wle" in (config.method, config.constant)


def strata_of(a: FloatArray, strata: int | tuple[int, ...]) -> IntArray:
    """Stratum of each item, from 0, by rising discrimination.

    Args:
        a: discriminations.
        strata: number of strata of equal size (the first ones are larger by one if it does not
            divide), or their sizes.

    Returns:
        A number for each item.

    Raises:
        InputError: for sizes that do not sum to the number of items.

    Example:
        >>> strata_of(np.array([1.2, 0.5, 0.9]), 3).tolist()
        [2, 0, 1]
    """
    if isinstance(strata, tuple):
        sizes = np.array(strata)
        if sizes.sum() != len(a):
            raise argument_error("strata", f"sizes that sum to {len(a)}", strata)
    else:
        sizes = np.full(strata, len(a) // strata)
        sizes[: len(a) % strata] += 1
    out = np.empty(len(a), int)
    out[np.argsort(np.nan_to_num(a), kind="stable")] = np.repeat(np.arange(len(sizes)), sizes)
    return out

"""`prepare`: build the pool for the engine from a bank and a configuration."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.checks import argument_error, check_choice
from irtcat._common.compilation import jit
from irtcat._common.precision import precision as in_width
from irtcat._common.registry import Registry
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import ItemBank, Population, fisher_information, ranking
from irtcat.cat.belief.belief import Belief
from irtcat.cat.belief.curves import (
    Curves,
    curves_at,
    has_logistic_information,
    tabulate,
    trapezoid,
)
from irtcat.cat.belief.line import PRIORS, STEEPEST_CELL, Line
from irtcat.cat.belief.pool import Counts, FormSolver, Pool
from irtcat.cat.belief.space import MOST_DIMS, Grid, Normal, grid_axis, normal_rule, product_grid
from irtcat.cat.engine.arguments import checked_bank
from irtcat.cat.engine.columns import (
    check_pretest,
    column_of,
    costs_of,
    enemies_of,
    factors_of,
    first_of,
    fixed_of,
    item_testlets,
    pretest_of,
)
from irtcat.cat.engine.config import MOST_NODES, Config
from irtcat.cat.engine.contenders import contenders
from irtcat.cat.engine.plan import content_plan, plan_arrays
from irtcat.cat.named_rule import as_part
from irtcat.cat.rules.assembly import best_form
from irtcat.cat.rules.content import CONTENT
from irtcat.cat.rules.criteria import CRITERIA
from irtcat.cat.rules.estimators import METHODS
from irtcat.cat.rules.exposure import EXPOSURE, blank_counts, check_exposure
from irtcat.cat.rules.starting import START
from irtcat.cat.rules.stopping import STOPPING, single_rules
from irtcat.models import in_precision, item_categories, steepest_slope

LEAST_NODES = 81
REACH = 5.0
"""Default theta bounds, in SDs of the population."""

NEGLIGIBLE = 1e-6
"""Share of a part of a population that the grid need not reach or resolve."""


def prepare(
    bank: ItemBank,
    config: Config,
    precision: str = "float64",
    solver: Callable[..., Any] = best_form,
) -> Pool:
    """Tabulate the curves of a bank, and number its groups, enemies, testlets and strata.

    Predicted items have their expected curves (see `ItemBank.expected_curves`).

    Args:
        bank: calibrated items, right/wrong or with several categories. Up to three abilities are
            tabulated on a grid; of more the belief is Normal, with the method "map".
        config: the configuration.
        precision: "float64" or "float32" (simulations of many subjects).
        solver: a function that assembles shadow tests, as `irtcat.cat.rules.best_form` does; a
            server solves them in other processes.

    Returns:
        The pool, the first argument of `start` and `step`.

    Raises:
        InputError: for an object that is no bank or no configuration, a bank of counts or
            continuous scores, an unknown column, group or id, or a configuration that the bank
            cannot satisfy or whose rules are not defined for several abilities.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 1.5], b=[0.0, 1.0])
        >>> prepare(bank, Config(max_items=2)).n_items
        2
    """
    bank = checked_bank(bank, config, ["categories"])
    bank = bank.expected_curves()
    _check_rules(bank, config)
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
    plan, costs = content_plan(bank, config), costs_of(bank, config)
    with in_width("float64"):
        parameters, _ = bank.published()
        highest = item_categories(bank.model) - 1
        belief, curves, best = _tabulated(bank, config, jnp.maximum(highest, 1).astype(float))
        best_theta = np.asarray(best)
    b = ranking(bank).b if "b" in parameters else best_theta
    model = bank.model
    n = bank.n_items
    slope = parameters.get("a", parameters.get("mdisc", np.zeros(n)))
    weights = np.where(pretest, 0.0, 1.0)
    counts, fixed = blank_counts(config.exposure, n), fixed_of(bank, config)
    with in_width(precision) as dtype:

        def real(value: Any) -> Any:
            return jnp.asarray(value, dtype)

        def in_kind(value: Any) -> Any:
            return real(value) if value.dtype.kind == "f" else jnp.asarray(value)

        theta_bounds = float(belief.nodes.min()), float(belief.nodes.max())
        contending = contenders(model, parameters, config, pretest, theta_bounds, real)
        tables: dict[str, Any] = {
            name: None if curve is None else real(curve) for name, curve in curves._asdict().items()
        }
        return Pool(
            model=in_precision(model, dtype),
            belief=jax.tree.map(real, belief),
            **tables,
            score_weights=real(weights / max(weights.sum(), 1)),
            best_theta=real(best_theta),
            b=real(np.where(np.isfinite(b), b, best_theta)),
            stratum=jnp.asarray(strata_of(slope, config.strata), jnp.int32),
            plan=plan_arrays(plan, bank, config, real, FormSolver(solver)),
            enemies=jnp.asarray(enemies_of(bank, config)),
            testlet=jnp.asarray(item_testlets(bank, config), jnp.int32),
            pretest=jnp.asarray(pretest),
            first=jnp.asarray(first, jnp.int32),
            fixed=None if fixed is None else jax.tree.map(in_kind, fixed),
            factors=_factors(bank, config, real),
            costs=None if costs is None else real(costs),
            seconds=real(column_of(bank, config.seconds, 0.0).astype(float)),
            counts=Counts(*(count if count is None else real(count) for count in counts)),
            top=jnp.asarray(highest, jnp.int32),
            near=contending,
        )


def _factors(bank: ItemBank, config: Config, real: Any) -> Any:
    """The factor model of the calibrated responses, where a rule needs it."""
    rules = single_rules(config.stopping)
    replays = [rule.name for rule in rules if STOPPING[rule.name].needs_replays]
    if replays and (config.fixed is None or not config.fixed.replayed):
        must = f"one of irtcat.cat.plan_evaluation for the stopping rule {replays[0]}"
        raise argument_error("config", must, "one without replayed sessions")
    if not replays and not CRITERIA[config.criterion].needs_factors:
        return None
    factors = factors_of(bank)
    if factors is None:
        rule = f"stopping rule {replays[0]}" if replays else f"criterion {config.criterion}"
        must = f"a bank from irtcat.cat.plan_evaluation for the {rule}"
        raise argument_error("bank", must, "one without the factors of calibrated responses")
    return real(factors)


def _check_rules(bank: ItemBank, config: Config) -> None:
    """Raise where a rule does not take the bank's items or its number of abilities."""
    dims = bank.model.dims
    tables: dict[str, tuple[Registry[Any], list[Any]]] = {
        "method": (METHODS, [config.method]),
        "prior": (PRIORS, [config.prior]),
        "start": (START, [config.start]),
        "exposure": (EXPOSURE, [config.exposure]),
        "content": (CONTENT, list(config.content)),
        "criterion": (CRITERIA, [config.criterion]),
        "stopping": (STOPPING, single_rules(config.stopping)),
    }
    for argument, (table, parts) in tables.items() if dims > 1 else ():
        for name in (as_part(argument, value).name for value in parts):
            if not table[name].multidimensional:
                takes = ", ".join(key for key, row in table.items() if row.multidimensional)
                raise argument_error(
                    argument, f"one of {takes} for a bank of {dims} abilities", name
                )
    method = METHODS[as_part("method", config.method).name]
    if method.needs_grid and dims > MOST_DIMS:
        free = [key for key, row in METHODS.items() if row.multidimensional and not row.needs_grid]
        must = f"{', '.join(free)} for a bank of {dims} abilities, since a grid has at most"
        raise argument_error("method", f"{must} {MOST_DIMS} abilities", method.name)
    if method.needs_logistic and not has_logistic_information(bank.model):
        must = f"a bank of right/wrong items for the method {method.name}"
        raise argument_error("bank", must, bank.model.key)


_tabulate_vectors = jit(curves_at)


def _tabulated(bank: ItemBank, config: Config, top: Any) -> tuple[Belief, Curves, Any]:
    """The belief before the first answer, the curves at its nodes, and the peaks of the items."""
    model, dims = bank.model, bank.model.dims
    if dims == 1:
        low, high = theta_bounds_of(bank, config)
        axis = np.linspace(low, high, config.nodes or _n_nodes(bank, config, low, high))
        peaks, warm = CRITERIA[config.criterion].needs_peaks, _needs_warm(config)
        curves, best = tabulate(model, jnp.asarray(axis), top, peaks=peaks, warm=warm)
        return Line(axis, np.log(trapezoid(axis))), curves, best
    no_peaks = np.zeros(bank.n_items)
    if dims <= MOST_DIMS:
        grid = Grid(
            *product_grid(
                grid_axis(bank, config.max_items, config.theta_bounds, config.nodes), dims
            )
        )
        return grid, _tabulate_vectors(model, jnp.asarray(grid.nodes), top), no_peaks
    # Each subject has its own nodes, where the engine computes the curves; the likelihood is in
    # the place of the nodes, so that what the engine adds to it is 0.
    shapes = jax.eval_shape(curves_at, model, jnp.zeros((1, dims)), top)
    blank = jax.tree.map(lambda shape: np.zeros(shape.shape), shapes)
    return Normal(*normal_rule(dims)), blank, no_peaks


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

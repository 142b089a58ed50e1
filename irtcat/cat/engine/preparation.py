"""`prepare`: build the pool for the engine from a bank and a configuration."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.checks import argument_error, check_choice
from irtcat._common.precision import precision as in_width
from irtcat.bank import BankLike, ranking
from irtcat.cat.belief.state import FormSolver, Pool
from irtcat.cat.engine import reading
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.contenders import contenders
from irtcat.cat.engine.plan import content_plan, plan_arrays
from irtcat.cat.engine.tabulation import tabulated
from irtcat.cat.rules.assembly import best_form
from irtcat.cat.rules.exposure import blank_counts, check_exposure
from irtcat.models import in_precision, item_categories


def prepare(
    bank: BankLike,
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
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=[1.0, 1.5], b=[0.0, 1.0])
        >>> prepare(bank, Config(max_items=2)).n_items
        2
    """
    bank = reading.checked_bank(bank, config, ["categories"])
    bank = bank.expected_curves()
    reading.check_rules(bank, config)
    check_choice("precision", precision, ("float64", "float32"))
    pretest = reading.pretest_of(bank, config)
    first = reading.first_of(bank, config)
    n_scored = int((~pretest).sum())
    if n_scored < config.max_items:
        must = f"at most {n_scored}, the number of scored items in the bank"
        raise argument_error("max_items", must, config.max_items)
    reading.column_of(bank, config.group, "")  # raises if the column is missing
    reading.check_pretest(bank, config)
    check_exposure(config, n_scored)
    plan, costs = content_plan(bank, config), reading.costs_of(bank, config)
    with in_width("float64"):
        parameters, _ = bank.published()
        highest = item_categories(bank.model) - 1
        belief, curves, best = tabulated(bank, config, jnp.maximum(highest, 1).astype(float))
        best_theta = np.asarray(best)
    b = ranking(bank).b if "b" in parameters else best_theta
    model = bank.model
    n = bank.n_items
    slope = parameters.get("a", parameters.get("mdisc", np.zeros(n)))
    weights = np.where(pretest, 0.0, 1.0)
    factors = reading.needed_factors(bank, config)
    counts, fixed = blank_counts(config.exposure, n), reading.fixed_of(bank, config)
    with in_width(precision) as dtype:

        def real(value: Any) -> Any:
            return jnp.asarray(value, dtype)

        theta_bounds = float(belief.nodes.min()), float(belief.nodes.max())
        contending = contenders(model, parameters, config, pretest, theta_bounds, real)
        return Pool(
            model=in_precision(model, dtype),
            belief=jax.tree.map(real, belief),
            **jax.tree.map(real, curves)._asdict(),
            score_weights=real(weights / max(weights.sum(), 1)),
            best_theta=real(best_theta),
            b=real(np.where(np.isfinite(b), b, best_theta)),
            stratum=jnp.asarray(reading.strata_of(slope, config.strata), jnp.int32),
            plan=plan_arrays(plan, bank, config, real, FormSolver(solver)),
            enemies=jnp.asarray(reading.enemies_of(bank, config)),
            testlet=jnp.asarray(reading.item_testlets(bank, config), jnp.int32),
            pretest=jnp.asarray(pretest),
            first=jnp.asarray(first, jnp.int32),
            fixed=jax.tree.map(lambda x: real(x) if x.dtype.kind == "f" else jnp.asarray(x), fixed),
            factors=jax.tree.map(real, factors),
            costs=jax.tree.map(real, costs),
            seconds=real(reading.numbers_of(bank, config.seconds)),
            counts=jax.tree.map(real, counts),
            top=jnp.asarray(highest, jnp.int32),
            near=contending,
        )

"""`prepare`: a bank and a configuration made into the pool that the engine works on."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._checks import argument_error, check_choice, shorten
from irtcat._precision import precision as in_width
from irtcat._types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.cat._contenders import contenders
from irtcat.cat._parts import as_part
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
    tabulate_several,
)
from irtcat.cat._state import NONE
from irtcat.cat.config import MOST_NODES, Config
from irtcat.cat.criteria import NEEDS_PEAKS
from irtcat.cat.exposure import blank_counts
from irtcat.information import fisher_information
from irtcat.models import CategoricalModel, in_precision, item_categories

__all__ = ["prepare", "strata_of"]

LEAST_NODES = 81
REACH = 5.0
"""Default fences, in SDs of the population."""


def prepare(bank: ItemBank, config: Config, precision: str = "float64") -> Pool:
    """Tabulate a bank's curves once, and number its groups, enemies, testlets and strata.

    Args:
        bank: calibrated items, right/wrong or with several categories, of one ability, or of two
            or three (then tabulated on a product grid).
        config: the configuration.
        precision: "float64" or "float32" (simulations of many subjects).

    Returns:
        The pool: what `start` and `step` take for the bank.

    Raises:
        InputError: for a bank of more abilities or of counts or continuous scores, an unknown
            column, group or id, or a configuration that the bank cannot meet or whose rules have
            no meaning for several abilities.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 1.5], b=[0.0, 1.0])
        >>> prepare(bank, Config(max_items=2)).n_items
        2
    """
    dims = bank.model.dims
    if dims > 1:
        check_rules(bank, config)
    if not isinstance(bank.model, CategoricalModel):
        raise argument_error("bank", "of items with categories", bank.model.key)
    robust = as_part("estimator", config.estimator).name == "robust"
    if robust and not has_logistic_information(bank.model):
        raise argument_error("bank", "of right/wrong items for robust estimates", bank.model.key)
    check_choice("precision", precision, ("float64", "float32"))
    if bank.n_items < config.max_items:
        must = f"at most {bank.n_items}, the number of items in the bank"
        raise argument_error("max_items", must, config.max_items)
    with in_width("float64"):
        known = {name: np.asarray(x, float) for name, x in bank.model.irt_parameters().items()}
        highest = item_categories(bank.model) - 1
        make = _tabulated if dims == 1 else _tabulated_several
        nodes, log_weights, curves = make(bank, config, jnp.maximum(highest, 1).astype(float))
        best_theta = np.asarray(curves.best_theta)
    b = known.get("b", best_theta)
    model = bank.model
    group, targets = _groups(bank, config)
    n = bank.n_items
    pretest = _marks(bank, config.pretest)
    weights = np.where(pretest, 0.0, 1.0)
    with in_width(precision) as dtype:

        def real(value: Any) -> Any:
            return jnp.asarray(value, dtype)

        fences = float(nodes.min()), float(nodes.max())
        near = contenders(model, known, config, pretest, fences, real)
        return Pool(
            in_precision(model, dtype),
            real(nodes),
            real(log_weights),
            real(curves.log_p),
            real(curves.p),
            real(curves.information),
            real(curves.entropy),
            None if curves.warm is None else real(curves.warm),
            real(curves.mean),
            real(curves.variance),
            real(weights / max(weights.sum(), 1)),
            real(best_theta),
            real(np.where(np.isfinite(b), b, best_theta)),
            jnp.asarray(
                strata_of(known.get("a" if dims == 1 else "mdisc", np.zeros(n)), config.strata),
                jnp.int32,
            ),
            jnp.asarray(group, jnp.int32),
            real(targets),
            jnp.asarray(_enemies(bank, config)),
            jnp.asarray(_testlets(bank, config), jnp.int32),
            jnp.asarray(pretest),
            jnp.asarray(_first(bank, config), jnp.int32),
            real(_column(bank, config.seconds, 0.0).astype(float)),
            Counts(*(real(part) for part in blank_counts(config.exposure, n))),
            jnp.asarray(highest, jnp.int32),
            near,
        )


def _tabulated(bank: ItemBank, config: Config, top: Any) -> tuple[FloatArray, FloatArray, Curves]:
    """The grid of one ability, the logarithms of its weights, and the curves on it."""
    low, high = fences_of(bank, config)
    nodes = np.linspace(low, high, config.nodes or _n_nodes(bank, config, low, high))
    peaks = config.criterion in NEEDS_PEAKS
    curves = tabulate(bank.model, jnp.asarray(nodes), top, peaks=peaks, warm=_needs_warm(config))
    return nodes, np.log(trapezoid(nodes)), curves


def _tabulated_several(
    bank: ItemBank, config: Config, top: Any
) -> tuple[FloatArray, FloatArray, Curves]:
    """The same of several abilities."""
    nodes, log_weights = product_grid(grid_axis(bank, config), bank.model.dims)
    return nodes, log_weights, tabulate_several(bank.model, jnp.asarray(nodes), top)


def fences_of(bank: ItemBank, config: Config) -> tuple[float, float]:
    """Lowest and highest ability of the grid."""
    if config.fences is not None:
        return config.fences
    mean, half = bank.population_mean, REACH * bank.population_sd
    return mean - half, mean + half


def _n_nodes(bank: ItemBank, config: Config, low: float, high: float) -> int:
    """As many nodes as the narrowest posterior of the test needs: one for each of its SDs."""
    coarse = np.linspace(low, high, 41)
    every = np.sort(fisher_information(bank, coarse), axis=0)[-config.max_items :].sum(axis=0)
    narrowest = 1 / np.sqrt(every.max() + 1 / bank.population_sd**2)
    wanted = int(np.ceil((high - low) / narrowest)) + 1
    return int(np.clip(wanted, LEAST_NODES, MOST_NODES))


def _needs_warm(config: Config) -> bool:
    return "wle" in (config.estimator, config.constant)


def strata_of(a: FloatArray, strata: int | tuple[int, ...]) -> IntArray:
    """Stratum of each item, from 0, by rising discrimination.

    Args:
        a: discriminations.
        strata: number of strata of equal size (earlier ones larger by one where it does not
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


def _column(bank: ItemBank, name: str | None, otherwise: Any) -> np.ndarray:
    """A column of the bank's metadata."""
    if name is None:
        return np.full(bank.n_items, otherwise)
    if name not in bank.items:
        have = shorten(list(bank.items.columns))
        raise argument_error("config", f"of columns of the bank's metadata (has {have})", name)
    return bank.items[name].to_numpy()


def _groups(bank: ItemBank, config: Config) -> tuple[IntArray, FloatArray]:
    """Number of each item's group, and the shares of the groups; those without a target last."""
    if config.group is None:
        return np.zeros(bank.n_items, int), np.array([[0.0, 1.0]])
    names = _column(bank, config.group, "").astype(str)
    order = [group for group, *_ in config.targets]
    unknown = [group for group in order if group not in names]
    if unknown:
        raise argument_error("targets", f"of groups in column {config.group!r}", unknown)
    rest = sorted(set(names) - set(order))
    number = {group: i for i, group in enumerate([*order, *rest])}
    shares = [(low, high) for _, low, high in config.targets] + [(0.0, 1.0)] * len(rest)
    if any(part.name == "kingsbury-zara" for part in config.content):
        shares = shares[: len(order)] + [(0.0, 0.0)] * len(rest)
    return np.array([number[name] for name in names]), np.array(shares)


def _enemies(bank: ItemBank, config: Config) -> BoolArray:
    out = np.zeros((bank.n_items, len(config.enemies)), bool)
    for column, ids in enumerate(config.enemies):
        out[bank.positions(list(ids)), column] = True
    return out


def _testlets(bank: ItemBank, config: Config) -> IntArray:
    if config.testlet is None:
        return np.full(bank.n_items, NONE)
    codes, _ = pd.factorize(_column(bank, config.testlet, None))
    return codes


def _marks(bank: ItemBank, name: str | None) -> BoolArray:
    values = _column(bank, name, False)
    return pd.Series(values).fillna(False).astype(bool).to_numpy()


def _first(bank: ItemBank, config: Config) -> IntArray:
    if len(config.first) > config.max_items:
        raise argument_error("first", f"at most {config.max_items} ids", config.first)
    if len(set(config.first)) < len(config.first):
        raise argument_error("first", "ids that differ", config.first)
    return bank.positions(list(config.first)).astype(int)

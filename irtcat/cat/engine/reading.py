"""What a configuration requires of a bank, and reads from its metadata and ids."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.numbers import truth_in
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.bank.needs import meets
from irtcat.cat.belief.space import MOST_DIMS
from irtcat.cat.belief.state import NONE, FixedSubset
from irtcat.cat.engine.config import TABLES, Config, check_config, rule_names
from irtcat.cat.rules.criteria import CRITERIA
from irtcat.cat.rules.estimators import METHODS
from irtcat.cat.rules.stopping import STOPPING, single_rules
from irtcat.selection.constraints import FREE

FACTORS = "factor"
"""Columns of a bank's metadata with the factor model: ``factor_0`` is the intercept."""


def column_of(bank: ItemBank, name: str | None, otherwise: Any) -> np.ndarray:
    """A column of the bank's metadata; ``otherwise`` for every item where ``name`` is None."""
    if name is None:
        return np.full(bank.n_items, otherwise)
    if name not in bank.items:
        have = ", ".join(map(str, bank.items.columns)) or "none"
        raise argument_error(
            "config", f"a configuration with columns of the bank's metadata ({have})", name
        )
    return bank.items[name].to_numpy()


def enemies_of(bank: ItemBank, config: Config) -> BoolArray:
    """Items x sets of enemies."""
    out = np.zeros((bank.n_items, len(config.enemies)), bool)
    for column, ids in enumerate(config.enemies):
        out[bank.positions(list(ids)), column] = True
    return out


def item_testlets(bank: ItemBank, config: Config) -> IntArray:
    """Number of each scored item's testlet; `NONE` outside testlets."""
    if config.testlet is None:
        return np.full(bank.n_items, NONE)
    column = pd.Series(column_of(bank, config.testlet, None), dtype=object)
    codes, _ = pd.factorize(column.where(column != ""))  # an empty cell is a missing one
    return np.where(pretest_of(bank, config), NONE, codes)


def pretest_of(bank: BankLike, config: Config) -> BoolArray:
    """Whether each item is a pretest item.

    Args:
        bank: the bank.
        config: the configuration, whose ``pretest`` names the column of the bank that marks them:
            true or false, yes or no, 1 or 0; empty cells are false.

    Raises:
        InputError: there is no such column, or a cell has another value.

    Example:
        >>> from dataclasses import replace
        >>> from irtcat import ItemBank
        >>> from irtcat.cat import Config
        >>> bank = ItemBank.from_parameters(a=1.0, b=[0.0, 1.0], item_ids=["i1", "i2"])
        >>> bank = replace(bank, items=bank.items.assign(new=[False, True]))
        >>> pretest_of(bank, Config(pretest="new", pretest_at=[1], max_items=1)).tolist()
        [False, True]
    """
    bank = as_bank(bank)
    column = column_of(bank, config.pretest, False)
    marks = [False if value == "" or pd.isna(value) else truth_in(value) for value in column]
    if None in marks:
        at = marks.index(None)
        must = f"one with true or false (yes or no, 1 or 0) in the column {config.pretest}"
        raise argument_error("bank", must, f"{column[at]} for {bank.item_ids[at]}")
    return np.array(marks, bool)


def numbers_of(bank: ItemBank, name: str | None) -> FloatArray:
    """The numbers of a column of the bank's item metadata; 0 where ``name`` is None.

    Raises:
        InputError: there is no such column, or one of its cells is no number of at least 0.
    """
    column = column_of(bank, name, 0.0)
    numbers: FloatArray = np.asarray(pd.to_numeric(pd.Series(column), errors="coerce"), float)
    bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if len(bad):
        must = f"one with a number of at least 0 for every item in the column {name}"
        raise argument_error("bank", must, f"{column[bad[0]]} for {bank.item_ids[bad[0]]}")
    return numbers


def costs_of(bank: ItemBank, config: Config) -> FloatArray | None:
    """Expected cost of each item, at least `FREE`; None without costs."""
    if config.cost is None:
        return None
    costs = np.maximum(numbers_of(bank, config.cost), FREE)
    if config.budget is not None:
        least = max(costs.min(), costs[first_of(bank, config)].sum())
        if least > config.budget:
            must = f"at least {least:g}, the cost of the items asked first, or of the cheapest"
            raise argument_error("budget", must, config.budget)
    return costs


def budget_of(bank: ItemBank, config: Config) -> dict[str, Any]:
    """The arguments of `irtcat.select` for a subset within the budget of a session."""
    if config.budget is None:
        return {}
    costs = pd.Series(costs_of(bank, config), index=bank.item_ids.astype(str))
    return {"costs": costs, "budget": config.budget}


def first_of(bank: ItemBank, config: Config) -> IntArray:
    """Positions in the bank of the items administered first, in order."""
    if len(config.first) > config.total_items:
        raise argument_error("first", f"at most {config.total_items} ids", config.first)
    if len(set(config.first)) < len(config.first):
        raise argument_error("first", "ids that differ", config.first)
    return bank.positions(list(config.first)).astype(int)


def fixed_of(bank: ItemBank, config: Config) -> FixedSubset | None:
    """The fixed subset that is followed, by positions in the bank."""
    fixed = config.fixed
    if fixed is None:
        return None
    items = bank.positions(list(fixed.items)).astype(np.int32)
    within = None if fixed.within is None else np.array(fixed.within)
    replayed = None
    if fixed.replayed:
        replayed = np.array([[math.log(row.n_items), row.scale] for row in fixed.replayed])
    return FixedSubset(items, np.array(fixed.n_core, np.int32), within, replayed)


def _factor_columns(bank: ItemBank) -> list[str]:
    """Names of the columns with the factor model, as the bank has them."""
    return [name for name in map(str, bank.items) if re.fullmatch(rf"{FACTORS}_\d+", name)]


def with_factors(bank: ItemBank, factors: FloatArray) -> ItemBank:
    """The bank with this factor model, items x (1 + dimensions), in place of another one."""
    columns = {f"{FACTORS}_{d}": factors[:, d] for d in range(factors.shape[1])}
    return replace(bank, items=bank.items.drop(columns=_factor_columns(bank)).assign(**columns))


def factors_of(bank: ItemBank) -> FloatArray | None:
    """Intercept and loadings of each item in the factor model of the calibrated responses.

    Items x (1 + dimensions), from the columns ``factor_0``, ``factor_1``, ...; None without them.

    Raises:
        InputError: for a missing column, or one with a value that is no finite number.
    """
    found = _factor_columns(bank)
    if not found:
        return None
    columns = [f"{FACTORS}_{d}" for d in range(max(len(found), 2))]
    missing = next((name for name in columns if name not in found), None)
    if missing is not None:
        must = f"a bank with the columns {columns[0]}, {columns[1]}, ... of its factors"
        raise argument_error("bank", must, f"no {missing}, but {found[-1]}")
    values = bank.items[columns].apply(pd.to_numeric, errors="coerce").to_numpy(float)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        must = "a bank with finite numbers in the columns of its factors"
        got = f"another value for item {bank.item_ids[row]} in {columns[column]}"
        raise argument_error("bank", must, got)
    return values


def what_identifies(bank: ItemBank, config: Config) -> dict[str, Any]:
    """The bank and the rules as all machines have them: hash and JSON document.

    Factors and items of a plan are computed, and other processors differ in the last digits; the
    digest in `FixedItems.plan` stands for them.
    """
    if config.fixed is None or not config.fixed.plan:
        return {"bank": bank.hash(), "config": config.to_json()}
    unplanned = with_factors(bank, np.empty((bank.n_items, 0)))
    return {"bank": unplanned.hash(), "config": {**config.to_json(), "fixed": config.fixed.plan}}


def check_pretest(bank: ItemBank, config: Config) -> None:
    """Raise unless a pretest item can be asked at each of the pretest positions."""
    pretest = pretest_of(bank, config)
    if pretest.sum() < len(config.pretest_at):
        must = f"at most {pretest.sum()} positions, the items that {config.pretest!r} marks"
        raise argument_error("pretest_at", must, config.pretest_at)
    for position, item in enumerate(first_of(bank, config), start=1):
        if pretest[item] != (position in config.pretest_at):
            kind = "a scored item" if pretest[item] else "a pretest item"
            must = f"ids with {kind} at position {position}, as `pretest_at` says"
            raise argument_error("first", must, config.first)


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


def check_rules(bank: ItemBank, config: Config) -> None:
    """Raise where a rule does not take the bank's items or its number of abilities."""
    model, dims = bank.model, bank.model.dims
    rules = rule_names(config)
    for argument, names in rules.items():
        table = TABLES[argument]
        for name in names:
            if not meets(model, table[name].bank_needs):
                takes = ", ".join(key for key, row in table.items() if meets(model, row.bank_needs))
                raise argument_error(
                    argument, f"one of {takes} for a bank of {dims} abilities", name
                )
    method = METHODS[rules["method"][0]]
    if method.needs_grid and dims > MOST_DIMS:
        rows = [row for row in METHODS.values() if meets(model, row.bank_needs)]
        free = [row.name for row in rows if not row.needs_grid]
        must = f"{', '.join(free)} for a bank of {dims} abilities, since a grid has at most"
        raise argument_error("method", f"{must} {MOST_DIMS} abilities", method.name)
    if method.needs_logistic and not model.has_logistic_link:
        must = f"a bank of right/wrong items for the method {method.name}"
        raise argument_error("bank", must, model.key)


def needed_factors(bank: ItemBank, config: Config) -> FloatArray | None:
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
    return factors


def checked_bank(
    bank: BankLike, config: Any, needs: Sequence[str] = (), purpose: str = "adaptive tests"
) -> ItemBank:
    """The bank (see `irtcat.bank.as_bank`), with a configuration of an adaptive test.

    Raises:
        InputError: for another kind of object, such as a pool or the fields of a configuration.

    Example:
        >>> checked_bank(ItemBank.from_parameters(b=[0.0, 1.0]), Config(max_items=2)).n_items
        2
    """
    bank = as_bank(bank, needs=needs, purpose=purpose)
    check_config(config)
    return bank

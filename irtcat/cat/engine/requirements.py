"""What is required of a bank for adaptive tests, and by the rules of a configuration."""

from collections.abc import Sequence
from typing import Any

from irtcat._common.checks import argument_error
from irtcat._common.registry import Registry
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.bank.needs import meets
from irtcat.cat.belief.curves import has_logistic_information
from irtcat.cat.belief.line import PRIORS
from irtcat.cat.belief.space import MOST_DIMS
from irtcat.cat.engine.columns import factors_of
from irtcat.cat.engine.config import Config, check_config
from irtcat.cat.rows import as_part
from irtcat.cat.rules.content import CONTENT
from irtcat.cat.rules.criteria import CRITERIA
from irtcat.cat.rules.estimators import METHODS
from irtcat.cat.rules.exposure import EXPOSURE
from irtcat.cat.rules.starting import START
from irtcat.cat.rules.stopping import STOPPING, single_rules


def check_rules(bank: ItemBank, config: Config) -> None:
    """Raise where a rule does not take the bank's items or its number of abilities."""
    model, dims = bank.model, bank.model.dims
    tables: dict[str, tuple[Registry[Any], list[Any]]] = {
        "method": (METHODS, [config.method]),
        "prior": (PRIORS, [config.prior]),
        "start": (START, [config.start]),
        "exposure": (EXPOSURE, [config.exposure]),
        "content": (CONTENT, list(config.content)),
        "criterion": (CRITERIA, [config.criterion]),
        "stopping": (STOPPING, single_rules(config.stopping)),
    }
    for argument, (table, parts) in tables.items():
        for name in (as_part(argument, value).name for value in parts):
            if not meets(model, table[name].bank_needs):
                takes = ", ".join(key for key, row in table.items() if meets(model, row.bank_needs))
                raise argument_error(
                    argument, f"one of {takes} for a bank of {dims} abilities", name
                )
    method = METHODS[as_part("method", config.method).name]
    if method.needs_grid and dims > MOST_DIMS:
        rows = [row for row in METHODS.values() if meets(model, row.bank_needs)]
        free = [row.name for row in rows if not row.needs_grid]
        must = f"{', '.join(free)} for a bank of {dims} abilities, since a grid has at most"
        raise argument_error("method", f"{must} {MOST_DIMS} abilities", method.name)
    if method.needs_logistic and not has_logistic_information(model):
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

"""Checks of what all functions of adaptive tests take: bank, configuration, pool, state."""

from collections.abc import Sequence
from typing import Any

from irtcat._common.checks import argument_error
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.cat.belief.pool import Pool
from irtcat.cat.belief.state import CatState
from irtcat.cat.engine.config import Config


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


def check_config(config: Any) -> None:
    """Raise unless ``config`` is a `Config`."""
    if not isinstance(config, Config):
        got = type(config).__name__
        raise argument_error("config", "an irtcat.cat.Config, such as Config(max_items=20)", got)


def check_prepared(pool: Any, config: Any, state: Any = None) -> None:
    """Raise unless ``pool`` is a prepared bank, ``config`` a `Config` and ``state`` a session's."""
    check_config(config)
    if not isinstance(pool, Pool):
        must = "a pool, as irtcat.cat.prepare(bank, config) returns it"
        raise argument_error("pool", must, type(pool).__name__)
    if state is not None and not isinstance(state, CatState):
        must = "a state, as irtcat.cat.start and step return it"
        raise argument_error("state", must, type(state).__name__)

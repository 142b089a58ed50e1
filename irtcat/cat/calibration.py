"""Calibration of the Sympson-Hetter rule by simulation."""

from typing import Any

import numpy as np

from irtcat._checks import argument_error, check_count
from irtcat.bank import ItemBank
from irtcat.cat._pool import Counts
from irtcat.cat.config import Config
from irtcat.cat.simulation import simulate

__all__ = ["calibrate_exposure"]


def calibrate_exposure(
    bank: ItemBank,
    theta: Any,
    config: Config,
    rounds: int = 20,
    seed: int = 0,
    precision: str = "auto",
) -> Counts:
    """Find the probabilities of the Sympson-Hetter rule by simulation.

    In every round all subjects are simulated; an item selected for a share S of them gets
    ``K = rate / S`` where S is above ``rate``, else 1. At least ``max_items`` items keep K = 1, so
    that no session runs dry. The best round (the smallest greatest rate) is kept.

    Args:
        bank: the items.
        theta: abilities of simulated subjects, drawn as those of the test takers will be.
        config: a configuration with the exposure rule "sympson-hetter".
        rounds: at most this many.
        seed: seed of the simulations.
        precision: as for `simulate`.

    Returns:
        Counts to pass to `simulate` or `Session`, with the K in ``limit``.

    Raises:
        InputError: where the configuration has another exposure rule.

    References:
        Sympson & Hetter (1985); Hetter & Sympson (1997), in Computerized Adaptive Testing: From
        Inquiry to Operation, 141-144.
    """
    if config.exposure.name != "sympson-hetter":
        raise argument_error(
            "config", "with the exposure rule sympson-hetter", config.exposure.name
        )
    check_count("rounds", rounds)
    rate = config.exposure.get("rate", 0.2)
    n = bank.n_items
    limit, best, smallest = np.ones(n), np.ones(n), np.inf
    for number in range(rounds):
        counts = Counts(limit, np.zeros(n), np.zeros(n), np.zeros(()))
        report = simulate(bank, theta, config, seed + number, counts=counts, precision=precision)
        given = report.exposure()["rate"].to_numpy()
        if given.max() < smallest:
            best, smallest = limit.copy(), given.max()
        if number and smallest <= rate * 1.02:
            break
        selected = given / limit  # P(A) = K P(S)
        limit = np.where(selected > rate, rate / np.maximum(selected, 1e-12), 1.0)
        if (limit < 1).sum() > n - config.max_items:
            limit[np.argsort(limit)[-config.max_items :]] = 1.0
    return Counts(best, np.zeros(n), np.zeros(n), np.zeros(()))

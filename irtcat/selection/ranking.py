"""Strategies that order items by a criterion and take the first k: filters and information."""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from irtcat._checks import InputError, argument_error
from irtcat._types import BoolArray, FloatArray
from irtcat.information import fisher_information, summed_information
from irtcat.scoring import score
from irtcat.selection._task import Choice, Task

__all__ = ["FILTERS", "choose_discrimination", "choose_fisher", "choose_information"]

POPULATION_NODES = 61


def _best(task: Task, criterion: FloatArray, passes: BoolArray | None = None) -> Choice:
    """The k allowed items with the greatest criterion; ties go to the earlier item."""
    candidates = task.allowed
    usable = np.isfinite(criterion[candidates])
    if passes is not None:
        usable &= passes[candidates]
    candidates = candidates[usable]
    if len(candidates) < task.k:
        raise InputError(
            f"The {task.strategy} strategy has {len(candidates)} items to choose from, and "
            f"{task.k} are asked for. Ask for fewer{'' if task.tau is None else ' or move tau'}."
        )
    order = np.argsort(-criterion[candidates], kind="stable")[: task.k]
    chosen = candidates[order]
    return Choice(chosen, criterion[chosen])


def choose_fisher(task: Task) -> Choice:
    """Greatest information summed over the calibration subjects, ``sum_j I_i(theta_j)``.

    Abilities are the EAP of the responses; without responses the sum is the integral over the
    bank's population.
    """
    bank = task.need_bank
    if task.responses is not None:
        theta = score(bank, task.responses).theta
        return _best(task, summed_information(bank, theta))
    middle = (np.arange(POPULATION_NODES) + 0.5) / POPULATION_NODES
    theta = bank.population_mean + bank.population_sd * ndtri(middle)
    return _best(
        task, summed_information(bank, theta, np.full(POPULATION_NODES, 1 / POPULATION_NODES))
    )


def choose_information(task: Task) -> Choice:
    """Greatest information at the target ability ``theta`` (default: the population mean)."""
    bank = task.need_bank
    theta = bank.population_mean if task.theta is None else task.theta
    return _best(task, fisher_information(bank, theta)[:, 0])


def choose_discrimination(task: Task) -> Choice:
    """Greatest discrimination a."""
    return _best(task, task.need_bank.to_frame()["a"].to_numpy(float))


def _filter(values: Callable[[Task], FloatArray], keep_low: bool) -> Callable[[Task], Choice]:
    """A difficulty filter: the k lowest (highest) values, below (above) tau where it is given."""

    def choose(task: Task) -> Choice:
        value = values(task)
        passes = None
        if task.tau is not None:
            with np.errstate(invalid="ignore"):
                passes = value < task.tau if keep_low else value > task.tau
        choice = _best(task, -value if keep_low else value, passes)
        return choice._replace(criterion=value[choice.chosen])

    return choose


def _size(task: Task) -> FloatArray:
    return np.abs(task.difficulty)


def _difficulty(task: Task) -> FloatArray:
    return task.difficulty


def _share(task: Task) -> FloatArray:
    if task.tau is not None and not 0 <= task.tau <= 1:
        raise argument_error("tau", "a proportion in [0, 1]", task.tau)
    return task.proportion_correct


FILTERS: dict[str, Callable[[Task], Choice]] = {
    "avi": _filter(_size, keep_low=True),
    "avo": _filter(_size, keep_low=False),
    "ub": _filter(_difficulty, keep_low=True),
    "lb": _filter(_difficulty, keep_low=False),
    "pcub": _filter(_share, keep_low=True),
    "pclb": _filter(_share, keep_low=False),
}
"""The filters of "Data set filtering" (papers of Lalor et al.): |b| < tau (avi), b < tau (ub),
proportion correct < tau (pcub), and their opposites avo, lb, pclb."""

"""Strategies that take the first k items by a criterion: filters and information."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from irtcat._common.checks import InputError, argument_error
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import fisher_information, summed_information
from irtcat.responses._matrix import observed, row_blocks
from irtcat.scoring import score
from irtcat.selection.constraints import Picks, better_picks, greedy_picks
from irtcat.selection.filters import RULES, Rule
from irtcat.selection.task import Choice, Strategy, Task

POPULATION_NODES = 61
"""Equally likely abilities over which "fisher" sums without responses."""


def _best(
    task: Task, criterion: FloatArray, mask: BoolArray | None = None, additive: bool = False
) -> Choice:
    """The k allowed items with the greatest criterion; ties go to the earlier item.

    Under a cost budget items that are too expensive for the rest of it are skipped; for an
    ``additive`` criterion (whose sum over the subset is meaningful) the better of this order and of
    that by criterion per cost is taken.
    """
    usable = np.isfinite(criterion)
    if mask is not None:
        usable &= mask
    limits = task.limits
    n = int((usable & limits.allowed).sum())
    if n < limits.n_items:
        raise InputError(
            f"The {task.strategy} strategy has {n} items to choose from, and "
            f"{limits.n_items} are requested. Request fewer"
            f"{'' if task.tau is None else ' or move tau'}."
        )
    if limits.costs is None and len(limits.names) == 1:
        candidates = np.flatnonzero(usable & limits.allowed)
        chosen = candidates[np.argsort(-criterion[candidates], kind="stable")[: limits.n_items]]
        return Choice(chosen, criterion[chosen])
    limits = replace(limits, allowed=limits.allowed & usable).checked()

    def choose(by_cost: bool) -> Picks:
        return greedy_picks(lambda items, _: criterion[items], limits, by_cost)

    return Choice(*(better_picks(choose, limits) if additive else choose(False)))


def choose_fisher(task: Task) -> Choice:
    """Greatest information summed over the calibration subjects, ``sum_j I_i(theta_j)``.

    Abilities are the EAP of the responses; without responses the sum is the integral over the
    bank's population.
    """
    bank = task.need_bank
    if task.responses is not None:
        theta = score(bank, task.responses, mismatch="accept").theta
        theta = theta[np.isfinite(theta)]
        return _best(task, summed_information(bank, theta), additive=True)
    middle = (np.arange(POPULATION_NODES) + 0.5) / POPULATION_NODES
    theta = bank.population.mean + bank.population.sd * ndtri(middle)
    weights = np.full(POPULATION_NODES, 1 / POPULATION_NODES)
    return _best(task, summed_information(bank, theta, weights), additive=True)


def choose_information(task: Task) -> Choice:
    """Greatest information at the target ability ``theta`` (default: the population mean)."""
    bank = task.need_bank
    theta = bank.population.mean if task.theta is None else task.theta
    return _best(task, fisher_information(bank, theta)[:, 0], additive=True)


def choose_discrimination(task: Task) -> Choice:
    """Greatest discrimination a."""
    return _best(task, task.need_bank.to_frame()["a"].to_numpy(float))


def choose_disagreement(task: Task) -> Choice:
    """Greatest disagreement between the answers of two calibration subjects to the item.

    ``sum over pairs i < i' of (x_i - x_i')^2 / (n (n - 1) / 2)``, summed over the pairs that both
    answered the item but divided by the number of all pairs: the share of pairs observed to differ,
    for right/wrong items without missing responses ``2 p (1 - p) n / (n - 1)``. Items with few
    answers get small values.
    """
    responses = task.need_responses
    top = 1.0 if responses.is_fractional else max(responses.n_categories - 1, 1)
    count, total, squares = np.zeros((3, responses.n_items))
    for rows in row_blocks(responses.shape):
        is_observed = observed(responses.values[rows])
        x = np.where(is_observed, responses.values[rows] / top, 0.0)
        count += is_observed.sum(axis=0)
        total += x.sum(axis=0)
        squares += np.einsum("ij,ij->j", x, x)
    pairs = max(responses.n_subjects * (responses.n_subjects - 1) / 2, 1)
    return _best(task, np.maximum(count * squares - total**2, 0.0) / pairs, additive=True)


def _filter(rule: Rule) -> Callable[[Task], Choice]:
    """A difficulty filter: the k lowest (highest) values, below (above) tau if it is given."""
    source = _share if rule.statistic == "pc" else _difficulty

    def choose(task: Task) -> Choice:
        value = rule.statistic_of(source(task))
        passes = None if task.tau is None else rule.passes(value, task.tau)
        choice = _best(task, -rule.cost(value), passes)
        return choice._replace(criterion=value[choice.chosen])

    return choose


def _difficulty(task: Task) -> FloatArray:
    return task.difficulty


def _share(task: Task) -> FloatArray:
    if task.tau is not None and not 0 <= task.tau <= 1:
        raise argument_error("tau", "a proportion in [0, 1]", task.tau)
    return task.proportion_correct


FILTERS = tuple(
    Strategy(
        name,
        _filter(rule),
        rule.keeps,
        ("proportions",) if rule.statistic == "pc" else ("bank",),
        'Lalor et al. (2024), tutorial slides, "Data set filtering"',
    )
    for name, rule in RULES.items()
)
"""The difficulty filters, one per row of `irtcat.selection.filters.RULES`."""

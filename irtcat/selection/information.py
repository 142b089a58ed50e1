"""Strategies by single criteria of items, and by the information of the subset on abilities."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from irtcat._common.checks import InputError, argument_error
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank, fisher_information, summed_information
from irtcat.responses._matrix import observed, row_blocks
from irtcat.scoring import score
from irtcat.selection.constraints import FREE, Constraints, Picks, better_picks, greedy_picks
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
        return _best(task, summed_information(bank, _abilities(task, bank)[:, 0]), additive=True)
    middle = (np.arange(POPULATION_NODES) + 0.5) / POPULATION_NODES
    theta = bank.population.mean + bank.population.sd * ndtri(middle)
    weights = np.full(POPULATION_NODES, 1 / POPULATION_NODES)
    return _best(task, summed_information(bank, theta, weights), additive=True)


def _abilities(task: Task, bank: ItemBank) -> FloatArray:
    """Finite abilities of the calibration subjects by EAP, subjects x dims."""
    theta = score(bank, task.need_responses, mismatch="accept").theta
    theta = theta.reshape(len(theta), bank.model.dims)
    return theta[np.isfinite(theta).all(axis=1)]


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
    count, total, squares = np.zeros((3, responses.n_items))
    for rows in row_blocks(responses.shape):
        is_observed = observed(responses.values[rows])
        x = np.where(is_observed, responses.values[rows] / responses.highest, 0.0)
        count += is_observed.sum(axis=0)
        total += x.sum(axis=0)
        squares += np.einsum("ij,ij->j", x, x)
    pairs = max(responses.n_subjects * (responses.n_subjects - 1) / 2, 1)
    return _best(task, np.maximum(count * squares - total**2, 0.0) / pairs, additive=True)


def _filter(rule: Rule) -> Callable[[Task], Choice]:
    """A difficulty filter: the k lowest (highest) values, below (above) tau if it is given."""

    def choose(task: Task) -> Choice:
        is_share = rule.statistic == "pc"
        if is_share and task.tau is not None and not 0 <= task.tau <= 1:
            raise argument_error("tau", "a proportion in [0, 1]", task.tau)
        value = rule.statistic_of(task.proportion_correct if is_share else task.difficulty)
        passes = None if task.tau is None else rule.passes(value, task.tau)
        choice = _best(task, -rule.cost(value), passes)
        return choice._replace(criterion=value[choice.chosen])

    return choose


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


NODES = 41
"""Points of the ability range of "minimax": a tenth of an SD apart, where curves are smooth."""

POINTS = 64
"""Abilities over which "d-optimal" averages: each is a determinant for every item and step."""

SWEEPS = 20
"""Limit of the passes of exchanges, of which the last one only finds that none helps."""

BATCH = 64
"""Gains that are recomputed at a time in the lazy greedy search."""


def choose_minimax(task: Task) -> Choice:
    """Maximin information over a range of abilities: max over subsets of min I(theta).

    ``theta_range`` (by default the population's mean +- 2 SD) is covered by 41 points. There are
    two greedy starts, by information at the point where the subset is weakest, or by the new
    minimum information (four under a budget: by gain and by gain per cost). Each is improved by
    exchanges of single items (within the quota group and budget) until none raises the minimum
    information, and the best one is kept: a local optimum, on small banks within a few per cent of
    the best subset (`tests/selection`). The criterion is the information of each item at the
    weakest point, which orders the items.

    References:
        van der Linden (2005), Linear Models for Optimal Test Design, section 5.2 (maximin);
        Fedorov (1972), Theory of Optimal Experiments, section 3.2 (exchanges).
    """
    bank = task.need_bank
    middle, half_range = bank.population.mean, 2 * bank.population.sd
    low, high = task.theta_range or (middle - half_range, middle + half_range)
    information = fisher_information(bank, np.linspace(low, high, NODES))

    def at_weakest(items: IntArray, chosen: list[int]) -> FloatArray:
        return information[items, information[chosen].sum(axis=0).argmin()]

    def of_least(items: IntArray, chosen: list[int]) -> FloatArray:
        total = information[chosen].sum(axis=0)
        return (total + information[items]).min(axis=1) - total.min()

    starts = []
    for gain in (at_weakest, of_least):
        for by_cost in (False, True)[: 1 if task.limits.costs is None else 2]:
            start, _ = greedy_picks(gain, task.limits, by_cost)
            starts.append(_exchange(start, task.limits, information))
    chosen = max(starts, key=lambda items: information[items].sum(axis=0).min())
    weakest = int(np.argmin(information[chosen].sum(axis=0)))
    chosen = chosen[np.argsort(-information[chosen, weakest], kind="stable")]
    return Choice(chosen, information[chosen, weakest])


def _exchange(chosen: IntArray, limits: Constraints, information: FloatArray) -> IntArray:
    """Exchange chosen items for other ones while that raises the minimum information."""
    chosen = chosen.copy()
    total = information[chosen].sum(axis=0)
    for _ in range(SWEEPS):
        before = total.min()
        for position, replaced in enumerate(chosen.tolist()):
            weakest = int(np.argmin(total))
            items = limits.replacements(chosen, position)
            items = items[information[items, weakest] > information[replaced, weakest]]
            if not len(items):
                continue
            least = (total - information[replaced] + information[items]).min(axis=1)
            best = int(np.argmax(least))
            if least[best] > total.min() * (1 + 1e-9):
                chosen[position] = items[best]
                total = information[chosen].sum(axis=0)
        if total.min() <= before * (1 + 1e-9):
            break
    return chosen


class Determinant:
    """Gain in the mean over abilities of log det(prior precision + information) (a `Gain`).

    Gains only decrease as items are added, so an old gain is an upper bound: only items whose bound
    exceeds the best gain so far are recomputed ("lazy greedy", exact).

    Args:
        information: items x points x dims x dims.
        precision: prior precision, dims x dims.
        costs: cost of each item if gains per cost are compared, else None.
    """

    def __init__(
        self, information: FloatArray, precision: FloatArray, costs: FloatArray | None = None
    ):
        self._information = information
        self._state = np.repeat(precision[None], information.shape[1], axis=0)
        self._unit = np.ones(len(information)) if costs is None else np.maximum(costs, FREE)
        self._bound = np.full(len(information), np.inf)

    def __call__(self, items: IntArray, chosen: list[int]) -> FloatArray:
        """The gains; -inf for items that cannot be the best. Called once after each choice."""
        if chosen:
            self._state = self._state + self._information[chosen[-1]]
        level = np.linalg.slogdet(self._state)[1].mean()
        unit, bound = self._unit[items], self._bound[items] / self._unit[items]
        order = np.argsort(-bound, kind="stable")
        gains, best = np.full(len(items), -np.inf), -np.inf
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            if bound[batch[0]] < best:
                break
            after = np.linalg.slogdet(self._state + self._information[items[batch]])[1]
            gains[batch] = np.maximum(after.mean(axis=1) - level, 0.0)
            self._bound[items[batch]] = gains[batch]
            best = max(best, float((gains[batch] / unit[batch]).max()))
        return gains


def choose_d_optimal(task: Task) -> Choice:
    """Greedy maximisation of ``mean over theta of log det(R^-1 + sum_i I_i(theta))``.

    R is the covariance of the abilities in the population (their correlations; SD^2 for one
    ability), and R^-1 the prior precision. Abilities are the EAP of the calibration subjects (at
    most 64 of them, drawn with the seed); without responses 64 quasi-random points of the
    population. The criterion is the increase by each item.

    References:
        Segall (1996), Multidimensional adaptive testing, section 3; Minoux (1978) (lazy greedy).
    """
    bank = task.any_bank
    dims = bank.model.dims
    points = _points(task, bank)
    information = fisher_information(bank, points.reshape(-1, *bank.population.shape))
    information = information.reshape(bank.n_items, len(points), dims, dims)
    precision = np.linalg.inv(bank.population.covariance)

    def choose(by_cost: bool) -> Picks:
        costs = task.limits.costs if by_cost else None
        return greedy_picks(Determinant(information, precision, costs), task.limits, by_cost)

    return Choice(*better_picks(choose, task.limits))


def _points(task: Task, bank: ItemBank) -> FloatArray:
    """Abilities at which the determinant is averaged, points x dims."""
    if task.responses is not None:
        theta = _abilities(task, bank)
        if len(theta) > POINTS:
            theta = theta[np.sort(task.rng.permutation(len(theta))[:POINTS])]
        if len(theta):
            return theta
    root = np.linalg.cholesky(bank.population.covariance)
    return bank.population.mean + _normal(POINTS, bank.model.dims) @ root.T


def _normal(n: int, dims: int) -> FloatArray:
    """Quasi-random standard normal points, with mean 0 and unit covariance exactly.

    Multiples of the roots of x^(dims + 1) = x + 1 fill the unit cube evenly (Roberts 2018).
    """
    root = 2.0
    for _ in range(50):
        root = (1 + root) ** (1 / (dims + 1))
    steps = root ** -np.arange(1.0, dims + 1)
    points = ndtri(np.mod(0.5 + np.arange(1, n + 1)[:, None] * steps, 1.0))
    points -= points.mean(axis=0)
    return np.linalg.solve(np.linalg.cholesky(points.T @ points / n), points.T).T

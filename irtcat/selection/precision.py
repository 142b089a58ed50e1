"""Strategies for the precision of ability: minimax over a range; D-optimal, multidimensional."""

import numpy as np
from scipy.special import ndtri

from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import ItemBank, fisher_information
from irtcat.scoring import score
from irtcat.selection.constraints import FREE, Constraints, Picks, better_picks, greedy_picks
from irtcat.selection.task import Choice, Task

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
    half_range = 2 * bank.population.sd
    low, high = task.theta_range or (
        bank.population.mean - half_range,
        bank.population.mean + half_range,
    )
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
    precision = np.linalg.inv(_covariance(bank))

    def choose(by_cost: bool) -> Picks:
        costs = task.limits.costs if by_cost else None
        return greedy_picks(Determinant(information, precision, costs), task.limits, by_cost)

    return Choice(*better_picks(choose, task.limits))


def _covariance(bank: ItemBank) -> FloatArray:
    """Covariance of the abilities in the population."""
    return bank.population.covariance


def _points(task: Task, bank: ItemBank) -> FloatArray:
    """Abilities at which the determinant is averaged, points x dims."""
    dims = bank.model.dims
    if task.responses is not None:
        theta = score(bank, task.responses, mismatch="accept").theta.reshape(
            task.responses.n_subjects, dims
        )
        theta = theta[np.isfinite(theta).all(axis=1)]
        if len(theta) > POINTS:
            theta = theta[np.sort(task.rng.permutation(len(theta))[:POINTS])]
        if len(theta):
            return theta
    return bank.population.mean + _normal(POINTS, dims) @ np.linalg.cholesky(_covariance(bank)).T


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

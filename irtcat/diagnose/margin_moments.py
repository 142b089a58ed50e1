"""Moments of groups beside those of a model, and their derivatives by its parameters."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank, Population
from irtcat.diagnose.answer_moments import (
    Conditional,
    conditional,
    derivatives,
    model_moments,
    moment_covariance,
    observed_moments,
    probability_derivatives,
    sampling_covariance,
    whiten,
)
from irtcat.diagnose.chi_square import Coded, curves, population_nodes
from irtcat.diagnose.estimated_parameters import Free

STEP = 1e-4
"""Step of the central differences by parameters of the population."""

Change = tuple[str, Callable[[Population, float], Population]]
"""An estimated parameter of a population: its label, and the population after a change in it."""


def population_changes(data: Coded, free: Free) -> list[Change]:
    """The estimated parameters of all populations."""
    reference, *_ = data.bank.populations
    changes: list[Change] = []
    if free.sd:
        changes.append((reference, lambda old, step: replace(old, sd=old.sd + step)))
    if free.n_correlations:
        changes += [(reference, change) for change in _correlation_changes(data.bank.reference)]
    for label in free.groups:
        population = data.bank.populations[label]
        for axis in range(population.dims):
            unit = np.eye(population.dims)[axis]
            changes += [(label, _shift("mean", unit)), (label, _shift("sd", unit))]
        if population.correlations is not None:
            changes += [(label, change) for change in _correlation_changes(population)]
    return changes


def _shift(name: str, unit: FloatArray) -> Callable[[Population, float], Population]:
    """The population as a function of a change in its mean or SD along one ability."""

    def change(old: Population, step: float) -> Population:
        return replace(old, **{name: getattr(old, name) + step * unit})

    return change


def _correlation_changes(population: Population) -> list[Callable[[Population, float], Population]]:
    """The population as a function of a change in each of its correlations."""

    def at(i: int, j: int) -> Callable[[Population, float], Population]:
        def change(old: Population, step: float) -> Population:
            matrix = np.array(old.correlations, float)
            matrix[i, j] = matrix[j, i] = matrix[i, j] + step
            return replace(old, correlations=matrix)

        return change

    return [at(i, j) for i, j in combinations(range(population.dims), 2)]


class MarginMoments(NamedTuple):
    """Moments of a group.

    Attributes:
        conditional: expected statistics at the nodes of its population.
        observed: moments of its answers; NaN where nobody answered both items.
        jacobian: derivatives of the expected moments, moments x all estimated parameters.
        counts: moments x moments, subjects behind both; their number alone where all answers count.
        sampling: covariance of the observed moments of weighted subjects; None without weights.
    """

    conditional: Conditional
    observed: FloatArray
    jacobian: FloatArray
    counts: FloatArray | float
    sampling: FloatArray | None = None

    @property
    def n(self) -> int:
        """Number of moments."""
        return int(np.isfinite(self.observed).sum())


def group_moments(
    data: Coded,
    part: Coded,
    answers: tuple[np.ndarray, FloatArray | None],
    free: Free,
    changes: list[Change],
    kind: str,
) -> MarginMoments:
    """The moments of a group under the model, and their derivatives."""
    points, weights = population_nodes(part.bank)
    c = conditional(curves(part.bank, points), weights, part.categories, kind)
    n_moments = len(model_moments(c))
    columns: list[FloatArray] = [np.zeros((n_moments, 0))]
    if free.mask.any():
        dp = probability_derivatives(part.bank, points)
        by_item = derivatives(dp, c, part.categories, kind)
        # The group's items are some of the bank's, where these differ between groups.
        at = data.bank.positions(part.bank.item_ids)[:, None] * dp.shape[1] + np.arange(dp.shape[1])
        columns.append(by_item @ free.design()[at.ravel()])
    columns += [_by_population(part, kind, change)[:, None] for change in changes]
    return moments_beside(part, *answers, kind, c, np.concatenate(columns, axis=1))


def moments_beside(
    part: Coded,
    values: np.ndarray,
    weights: FloatArray | None,
    kind: str,
    c: Conditional,
    jacobian: FloatArray,
) -> MarginMoments:
    """The moments of answers beside those of a model."""
    observed, counts = observed_moments(values, part.categories, kind, weights)
    sampling = None
    if weights is not None:
        sampling = sampling_covariance(values, part.categories, kind, weights)
    return MarginMoments(c, observed, jacobian, counts, sampling)


def _by_population(part: Coded, kind: str, change: Change) -> FloatArray:
    """Derivative of a group's moments by a parameter of a population, by a central difference."""
    label, change_of = change
    populations = part.bank.populations
    own = next(iter(populations)) if len(populations) == 1 else label
    if part.groups[0].label not in ("", label):
        return np.zeros(len(_expected(part, part.bank, kind)))

    def moments(step: float) -> FloatArray:
        changed = {**populations, own: change_of(populations[own], step)}
        return _expected(part, replace(part.bank, populations=changed), kind)

    return (moments(STEP) - moments(-STEP)) / (2 * STEP)


def _expected(part: Coded, bank: ItemBank, kind: str) -> FloatArray:
    """The moments under the model."""
    points, weights = population_nodes(bank)
    return model_moments(conditional(curves(bank, points), weights, part.categories, kind))


def whitened(moments: MarginMoments) -> FloatArray:
    """Residual moments and derivatives of a group with the identity as covariance."""
    residual = moments.observed - model_moments(moments.conditional)
    columns = np.column_stack([residual, moments.jacobian])
    covariance = moment_covariance(moments.conditional)
    if isinstance(moments.counts, float):
        return whiten(covariance / moments.counts, columns)
    seen = np.isfinite(residual)
    counts = moments.counts[np.ix_(seen, seen)]
    own = np.diagonal(counts)
    return whiten(covariance[np.ix_(seen, seen)] * counts / np.outer(own, own), columns[seen])

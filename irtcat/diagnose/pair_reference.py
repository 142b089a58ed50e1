"""Reference distribution of Pearson's X2 of pairs of items, given that parameters are estimated.

Let r be the observed minus expected counts of a pair's two-way table, E the expected counts, and
the parameters be maximum-likelihood estimates with the information J. The covariance of r is

``C = diag(E) - sum_g E_g E_g' / n_g - G J^-1 G'``,

with E_g the counts of group g (n_g subjects answered both items) and G the derivatives of E by the
parameters. ``X2 = r' diag(E)^-1 r`` is then a weighted sum of chi-square variables of 1 degree of
freedom, whose weights are the eigenvalues of ``M = diag(E)^-1/2 C diag(E)^-1/2``. It is compared
with the multiple of a chi-square variable that has its mean tr M and its variance 2 tr M^2.

J is that of the model, the mean product of the derivatives of the log-likelihood over simulated
answers with the missing ones of the data. That of the answers themselves is another where pairs
depend on one another, and it is singular for few subjects.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import Population
from irtcat.diagnose.answer_moments import probability_derivatives
from irtcat.diagnose.chi_square import Coded, curves, population_nodes
from irtcat.diagnose.estimated_parameters import Free

BLOCK_ROWS = 1024
"""Subjects per block, which limits memory."""
DRAWS, DRAWS_PER_PARAMETER, LEAST_DRAWN = 20_000, 20, 1000
"""Simulated subjects for the information: in all, at least, and in each group."""
BLOCK_CELLS = 2**22
"""Entries of the matrices M of a block of pairs."""
MIN_MEAN = 0.01
"""Smaller means of X2 are rounding and sampling errors of 0: the parameters follow the table."""
TINY = 1e-300


class PairReference(NamedTuple):
    """``x2 / scale`` is about chi-square distributed with ``df`` degrees of freedom, by pair.

    NaN where nobody answered both items, or the estimated parameters fit every table of the pair.
    """

    scale: FloatArray
    df: FloatArray


class _Parameters(NamedTuple):
    """The estimated parameters in one list.

    Attributes:
        position: items x params, in the list; -1 if not estimated. A shared one has one position.
        population: label, and derivative of the log-density by the parameter as a function of
            ability, of the parameters of populations, which are the last in the list.
        size: number of parameters.
        block: of each parameter: its item; a number of its own for a shared one.
    """

    position: IntArray
    population: list[tuple[str, Callable[[FloatArray], FloatArray]]]
    size: int
    block: IntArray


def _parameters(data: Coded, free: Free) -> _Parameters:
    position = np.full(free.mask.shape, -1)
    block: list[int] = []
    for c, shared in enumerate(free.shared):
        rows = np.flatnonzero(free.mask[:, c])
        if shared and len(rows):
            position[rows, c] = len(block)
            block.append(data.bank.n_items + len(block))
        else:
            position[rows, c] = len(block) + np.arange(len(rows))
            block += rows.tolist()
    estimated: dict[str, list[str]] = {}
    if data.labels is not None or len(data.bank.populations) == 1:  # else one of a mixture
        names = (["sd"] if free.sd else []) + (["correlation"] if free.n_correlations else [])
        estimated = {next(iter(data.bank.populations)): names}
        estimated |= {label: ["mean", "sd", "correlation"] for label in free.groups}
    population: list[tuple[str, Callable[[FloatArray], FloatArray]]] = [
        (label, functools.partial(_log_density_derivative, data.bank.populations[label], name, at))
        for label, names in estimated.items()
        for name in names
        for at in _places(data.bank.populations[label], name)
    ]
    block += [data.bank.n_items + len(block) + k for k in range(len(population))]
    return _Parameters(position, population, len(block), np.array(block))


def _places(population: Population, name: str) -> list[tuple[int, int]]:
    """The abilities of each mean, SD or correlation; a density is taken for known."""
    if not population.is_normal:
        return []
    if name == "correlation":
        pairs = itertools.combinations(range(population.dims), 2)
        return [] if population.correlations is None else list(pairs)
    return [(d, d) for d in range(population.dims)]


def _log_density_derivative(
    population: Population, name: str, at: tuple[int, int], points: FloatArray
) -> FloatArray:
    """Derivative of the Normal log-density by a mean, an SD or a correlation."""
    first, second = at
    sd = np.atleast_1d(population.sd)
    inverse = np.linalg.inv(population.covariance / np.outer(sd, sd))
    z = (points - population.mean) / sd
    y = z @ inverse
    if name == "correlation":
        return np.asarray(y[:, first] * y[:, second] - inverse[first, second])
    if name == "mean":
        return np.asarray(y[:, first] / sd[first])
    return np.asarray((z[:, first] * y[:, first] - 1) / sd[first])


def pair_reference(data: Coded, free: Free) -> PairReference:
    """The reference distribution of every pair, in the order of ``np.triu_indices``.

    Args:
        data: the answers.
        free: the estimated parameters.
    """
    parameters = _parameters(data, free)
    n_items, n_categories = data.bank.n_items, data.bank.model.n_categories
    size = n_items * n_categories
    n_params, n_population = free.mask.shape[1], len(parameters.population)
    own, theirs = np.zeros((n_params, size, size)), np.zeros((n_population, size, size))
    expected, counts = [], []
    information = np.zeros((parameters.size, parameters.size))
    n_draws = max(DRAWS, DRAWS_PER_PARAMETER * parameters.size) if parameters.size else 0
    rng = np.random.default_rng(0)
    for group in data.groups:
        points, weights = population_nodes(group.bank)
        p = np.nan_to_num(curves(data.bank, points))
        slopes = probability_derivatives(data.bank, points) * free.mask[:, :, None, None]
        flat = p.transpose(0, 2, 1).reshape(size, -1)
        answered = (data.values[group.rows] >= 0).astype(float)
        both = answered.T @ answered
        cells = np.repeat(np.repeat(both, n_categories, axis=0), n_categories, axis=1)
        expected.append((flat * weights) @ flat.T * cells)
        counts.append(both)
        for k in range(n_params):
            slope = slopes[:, k].transpose(0, 2, 1).reshape(size, -1)
            own[k] += (slope * weights) @ flat.T * cells
        ability = np.zeros((n_population, len(points)))
        for k, (label, derivative) in enumerate(parameters.population):
            if group.label in (label, ""):
                ability[k] = derivative(points)
                theirs[k] += (flat * (weights * ability[k])) @ flat.T * cells
        n_drawn = max(LEAST_DRAWN, round(n_draws * len(group.rows) / len(data.values)))
        for values in _drawn(data.values[group.rows], n_drawn, weights, p, rng):
            scores = _scores(values, weights, p, slopes, ability, parameters)
            information += scores.T @ scores * (len(group.rows) / n_drawn)
    covariance = _inverse(information, parameters.block, n_draws)
    return _references(expected, counts, own, theirs, covariance, parameters)


def _drawn(
    values: np.ndarray, n: int, weights: FloatArray, p: FloatArray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Simulated answers of n subjects, missing where those of these subjects are, in blocks."""
    bounds = p.cumsum(axis=2)[:, :, :-1]
    for start in range(0, n, BLOCK_ROWS):
        size = min(BLOCK_ROWS, n - start)
        observed = values[rng.integers(len(values), size=size)] >= 0
        nodes = rng.choice(len(weights), size=size, p=weights / weights.sum())
        u = rng.random(observed.shape)
        answers = (u[:, :, None] > bounds[:, nodes].transpose(1, 0, 2)).sum(axis=2)
        yield np.where(observed, answers, -1)


def _scores(
    values: np.ndarray,
    weights: FloatArray,
    p: FloatArray,
    slopes: FloatArray,
    ability: FloatArray,
    parameters: _Parameters,
) -> FloatArray:
    """Derivatives of each subject's log-likelihood, subjects x parameters."""
    log_p = np.log(np.maximum(p, TINY))
    log_posterior = np.log(np.maximum(weights, TINY)) + np.zeros((len(values), 1))
    for k in range(p.shape[2]):
        log_posterior += (values == k).astype(float) @ log_p[:, :, k]
    posterior = np.exp(log_posterior - log_posterior.max(axis=1, keepdims=True))
    posterior /= posterior.sum(axis=1, keepdims=True)
    out = np.zeros((len(values), parameters.size))
    for c in range(slopes.shape[1]):
        items = np.flatnonzero(parameters.position[:, c] >= 0)
        score = np.zeros((len(values), len(items)))
        for k in range(p.shape[2]):
            ratio = slopes[items, c, :, k] / np.maximum(p[items, :, k], TINY)
            score += (values[:, items] == k) * (posterior @ ratio.T)
        np.add.at(out.T, parameters.position[items, c], score.T)
    first = parameters.size - len(ability)
    out[:, first:] = posterior @ ability.T
    return out


def _inverse(information: FloatArray, block: IntArray, n: int) -> FloatArray:
    """Inverse of the information by n draws, whose entries between items are shrunk a little.

    The inverse of a matrix of products is too large by about the number of parameters over n.
    """
    share = len(block) / max(n, 1)
    shrunk = np.where(block[:, None] == block, information, (1 - share) * information)
    return np.asarray(np.linalg.pinv(shrunk, rcond=1e-10, hermitian=True))


def _references(
    expected: list[FloatArray],
    counts: list[FloatArray],
    own: FloatArray,
    theirs: FloatArray,
    covariance: FloatArray,
    parameters: _Parameters,
) -> PairReference:
    """The ratios tr M^2 / tr M and (tr M)^2 / tr M^2 of all pairs."""
    n_items = len(parameters.position)
    n_categories = len(expected[0]) // n_items
    first, second = np.triu_indices(n_items, 1)
    n_cells = n_categories**2
    step = max(1, BLOCK_CELLS // n_cells**2)
    scale, df = np.full((2, len(first)), np.nan)

    def tables(matrix: FloatArray, i: IntArray, j: IntArray) -> FloatArray:
        """The tables of pairs, pairs x cells."""
        shaped = matrix.reshape(n_items, n_categories, n_items, n_categories)
        return shaped[i, :, j, :].reshape(len(i), n_cells)

    population = parameters.size - len(theirs) + np.arange(len(theirs))
    for start in range(0, len(first), step):
        i, j = first[start : start + step], second[start : start + step]
        cells = np.stack([tables(e, i, j) for e in expected])
        n = np.maximum([both[i, j] for both in counts], 1.0)
        total = cells.sum(axis=0)
        columns = [tables(d, i, j) for d in own] + [tables(d.T, i, j) for d in own]
        columns += [tables(d, i, j) for d in theirs]
        at = np.concatenate(
            [parameters.position[i], parameters.position[j], np.tile(population, (len(i), 1))],
            axis=1,
        )
        root = np.where(total > 0, 1 / np.sqrt(np.where(total > 0, total, 1.0)), 0.0)
        m = np.einsum("pc,cd->pcd", (total > 0).astype(float), np.eye(n_cells))
        scaled = cells * root
        m -= np.einsum("gpc,gpd,gp->pcd", scaled, scaled, 1 / n)
        if parameters.size:
            g = np.stack(columns, axis=2) * root[:, :, None]
            inverse = covariance[at[:, :, None], at[:, None, :]]
            m -= g @ inverse @ g.transpose(0, 2, 1)
        mean, square = np.einsum("pcc->p", m), (m**2).sum(axis=(1, 2))
        tested = (total.sum(axis=1) > 0) & (mean > MIN_MEAN)
        scale[start : start + step] = np.where(tested, square / np.where(tested, mean, 1.0), np.nan)
        df[start : start + step] = np.where(tested, mean**2 / np.where(tested, square, 1.0), np.nan)
    return PairReference(scale, df)

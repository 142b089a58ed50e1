"""Local dependence: pairs of items with more in common than the model predicts.

Pearson's X2 of a pair has a reference distribution that allows for estimated parameters.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import xlogy

from irtcat._common.checks import check_choice
from irtcat._common.types import FloatArray, IntArray
from irtcat.agreement import benjamini_hochberg, holm
from irtcat.bank import BankLike, Population
from irtcat.diagnose.answer_moments import population_places, probability_derivatives
from irtcat.diagnose.chi_square import (
    TINY,
    Coded,
    chi_square_p,
    coded,
    curves,
    population_nodes,
    posteriors,
)
from irtcat.diagnose.dimension.correlations import square
from irtcat.diagnose.estimated_parameters import Free, free_of
from irtcat.diagnose.residuals import abilities_of, blocks
from irtcat.io.convert import ResponsesLike

BLOCK_ROWS = 4096
"""Subjects per block, which limits memory."""
MIN_SHARED = 4
"""Smallest number of subjects for the correlation of two items' residuals."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Statistics for every pair of items.

    Attributes:
        item_ids: the items, in the bank's order.
        table: one row per pair, item_1 before item_2 in that order; columns as documented in the
            function that returns it.
        main: default column of `matrix` and `largest`.
        note: whose abilities were integrated over, where the bank has several populations and no
            groups were given.
    """

    item_ids: np.ndarray
    table: pd.DataFrame
    main: str
    note: str = ""

    def __repr__(self) -> str:
        note = f"; {self.note}" if self.note else ""
        return f"Pairs({len(self.table)} pairs of {len(self.item_ids)} items, {self.main}{note})"

    def to_frame(self) -> pd.DataFrame:
        """The long table: item_1, item_2 and the statistics, one row per pair."""
        return self.table.copy()

    def matrix(self, column: str | None = None) -> pd.DataFrame:
        """One column of numbers as a symmetric matrix, items x items; NaN on the diagonal.

        Raises:
            InputError: for a column that is not in the table.
        """
        out = square(self._column(column).to_numpy(float), len(self.item_ids), np.nan)
        index = pd.Index(self.item_ids, dtype=object, name="item")
        return pd.DataFrame(out, index, index.rename(None))

    def largest(self, n: int = 10, column: str | None = None) -> pd.DataFrame:
        """The n pairs with the largest absolute values."""
        order = self._column(column).abs().sort_values(ascending=False, kind="stable").index[:n]
        return self.table.loc[order]

    def _column(self, column: str | None) -> pd.Series:
        """A column of numbers, or the main one."""
        name = self.main if column is None else column
        check_choice("column", name, [c for c in self.table.columns[2:] if c != "flag"])
        return self.table[name]


def ld_statistics(
    bank: BankLike,
    responses: ResponsesLike,
    estimated: str = "auto",
    *,
    groups: Any = None,
    mismatch: str = "refuse",
) -> Pairs:
    """Chen and Thissen's test of every pair: does the model fit the two-way table of the answers?

    ``LD-X2 = sum_kl (O_kl - E_kl)^2 / E_kl`` over the two-way table of a pair, with
    ``E_kl = N sum_q w_q P_ik(q) P_jl(q)`` under the model and its population; ``LD-G2`` is the
    likelihood-ratio form (an empty cell adds 0). df = (K_i - 1)(K_j - 1), since a fitted model
    reproduces the margins; K_i K_j - 1 if no item parameters were estimated from these responses.

    Estimated items follow the tables of their pairs, so that X2 is smaller than a chi-square
    variable with df degrees of freedom: of fitted 2PL items that are independent it has p < .05 in
    1.5 % of the pairs. The p-values here are of ``X2 tr M / tr M^2``, taken as chi-square
    distributed with ``(tr M)^2 / tr M^2`` degrees of freedom, which has the mean and variance that
    X2 has at maximum-likelihood estimates: M is the covariance of ``(O - E) / sqrt(E)``, less the
    part that the estimates of all parameters take, ``G J^-1 G'`` with G the derivatives of E and J
    their information (by simulation). With it 3.5 to 6 % of independent pairs have p < .05 in the
    models and sizes tried (`experiments/diagnostics`). Item parameters under strong priors are
    treated like estimates without them.

    Args:
        bank: the calibrated items (right/wrong or graded, of one or more dimensions).
        responses: the responses; each pair uses the subjects who answered both.
        estimated: which parameters count as estimated from these responses, as for `s_x2`.
        groups: the group of each subject, as for `irtcat.score`. E is then the sum over groups,
            each with its own population; without it E is that of the mixture, as ``note`` says.
        mismatch: as for `irtcat.score`.

    Returns:
        Pairs with item_1, item_2, n, x2, g2, df, p (of x2), p_holm, p_bh (adjusted over all pairs);
        sign, +1 if the codes correlate more than expected and -1 if less; v, Cramer's V
        ``sqrt(x2 / (n min(K_i - 1, K_j - 1)))`` with that sign; z, Chen and Thissen's
        ``sign (x2 - df) / sqrt(2 df)``, which is not a normal deviate; g2_p; and flag. NaN
        (flagged) if nobody answered both, or one of them is constant there; p also if the
        parameters fit every table of the pair. mirt takes the sign from the gamma correlations,
        which differ from these only near 0; its lower triangle is x2, its upper v, and its p-values
        are those of df.

    Raises:
        InputError: for fewer than 2 items, or items that are neither right/wrong nor graded.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> r = load("lsat7")
        >>> pairs = ld_statistics(fit(r, "2pl").bank, r)
        >>> pairs.to_frame()[["item_1", "item_2", "x2", "p", "v"]].round(3).head(2)
          item_1 item_2     x2      p      v
        0  item1  item2  0.451  0.297 -0.021
        1  item1  item3  0.856  0.048 -0.029

    References:
        Chen & Thissen (1997), Journal of Educational and Behavioral Statistics 22, 265-289; Liu &
        Maydeu-Olivares (2013), Educational and Psychological Measurement 73, 254-274 (the mean and
        variance of X2 at estimated parameters).
    """
    data = coded(bank, responses, least_items=2, groups=groups, mismatch=mismatch)
    free = free_of(data.bank, estimated)
    reference, tables = pair_reference(data, free), _observed(data)
    first, second = np.triu_indices(data.bank.n_items, 1)
    chi_squares = _chi_squares(tables, reference.expected, data.bank.n_items)
    x2, g2 = (table[first, second] for table in chi_squares)
    top = data.categories - 1
    df = top[first] * top[second]
    if not free.mask.any():
        df = data.categories[first] * data.categories[second] - 1
    n = reference.n[first, second]
    observed, constants = _correlations(tables, reference.n)
    expected, _ = _correlations(reference.expected, reference.n)
    difference, constant = (observed - expected)[first, second], constants[first, second]
    flags = np.where(n == 0, "nobody answered both", np.where(constant, "constant", ""))
    untested = flags != ""
    flags = np.where(~untested & np.isnan(reference.df), "no degrees of freedom", flags)
    x2, g2 = np.where(untested, np.nan, x2), np.where(untested, np.nan, g2)
    sign = np.where(untested, np.nan, np.where(difference < 0, -1.0, 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        v = sign * np.sqrt(x2 / (n * np.minimum(top[first], top[second])))
    p = chi_square_p(x2 / reference.scale, reference.df)
    columns = {
        "n": n.astype(int),
        "x2": x2,
        "g2": g2,
        "df": df,
        "p": p,
        "p_holm": holm(p),
        "p_bh": benjamini_hochberg(p),
        "g2_p": chi_square_p(g2 / reference.scale, reference.df),
        "sign": sign,
        "v": v,
        "z": sign * (x2 - df) / np.sqrt(2 * df),
        "flag": flags,
    }
    return _pairs(data, columns, "v")


def _pairs(data: Coded, columns: dict[str, Any], main: str) -> Pairs:
    """The table of all pairs."""
    ids = data.bank.item_ids.astype(object)
    first, second = np.triu_indices(len(ids), 1)
    table = pd.DataFrame({"item_1": ids[first], "item_2": ids[second], **columns})
    return Pairs(data.bank.item_ids, table, main, data.note)


def _observed(data: Coded) -> FloatArray:
    """Two-way tables of all pairs: counts of all categories of all items by the same."""
    categories = np.arange(data.bank.model.n_categories)
    size = data.bank.n_items * len(categories)
    counts = np.zeros((size, size))
    for start in range(0, len(data.values), BLOCK_ROWS):
        x = data.values[start : start + BLOCK_ROWS]
        indicators = (x[:, :, None] == categories).reshape(len(x), -1).astype(np.float32)
        counts += indicators.T @ indicators  # below 2^24 they are exact
    return counts


def _chi_squares(o: FloatArray, e: FloatArray, n_items: int) -> list[FloatArray]:
    """X2 and G2 of all pairs, items x items."""
    possible = e > 0
    safe = np.where(possible, e, 1.0)
    x2 = np.where(possible, (o - e) ** 2 / safe, 0.0)
    g2 = np.where(possible, 2 * xlogy(o, np.where(o > 0, o, 1.0) / safe), 0.0)
    shape = (n_items, len(o) // n_items, n_items, len(o) // n_items)
    return [cells.reshape(shape).sum(axis=(1, 3)) for cells in (x2, g2)]


def _correlations(counts: FloatArray, n: FloatArray) -> tuple[FloatArray, np.ndarray]:
    """Correlations of the codes from all two-way tables, and where they are undefined."""
    n, n_items = np.maximum(n, 1.0), len(n)
    n_categories = len(counts) // n_items
    tables = counts.reshape(n_items, n_categories, n_items, n_categories)
    codes = np.arange(n_categories, dtype=float)
    margin = tables.sum(axis=3)  # item, category, other item: of subjects who answered both
    mean = np.einsum("ikj,k->ij", margin, codes) / n
    square = np.einsum("ikj,k->ij", margin, codes**2) / n
    cross = np.einsum("ikjl,k,l->ij", tables, codes, codes, optimize=True) / n
    variance = square - mean**2
    product = np.sqrt(np.maximum(variance, 0.0) * np.maximum(variance.T, 0.0))
    constant = product <= 1e-12
    r = (cross - mean * mean.T) / np.where(constant, 1.0, product)
    return np.where(constant, np.nan, r), constant


def q3(
    bank: BankLike,
    responses: ResponsesLike,
    method: str = "eap",
    abilities: Any = None,
    *,
    groups: Any = None,
    mismatch: str = "refuse",
) -> Pairs:
    """Yen's Q3: correlations of the residuals of all pairs, and Q3*, centred on their mean.

    ``Q3_ij = corr(x_i - E(x_i | theta), x_j - E(x_j | theta))`` at the estimated abilities. Each
    answer also enters the ability estimate, so that Q3 is about -1 / (n_items - 1) under local
    independence; ``q3_star = q3 - mean(q3)`` removes this. A common cut-off for inspection is
    q3_star above .2. There is no p-value: the expectation of Q3 differs between pairs (the steeper
    the items, the more each takes part in the estimates), so that Fisher's z of it has p < .05 in 6
    to 12 % of independent pairs of 1,000 subjects and in 27 % of 5,200. `ld_statistics` tests.

    Args:
        bank: the calibrated items (right/wrong or graded, of one or more dimensions).
        responses: the responses; each pair uses the subjects who answered both.
        method: how abilities are estimated (as for `irtcat.score`), unless passed.
        abilities: an `Ability` of the same subjects, or one number each (NaN leaves one out).
        groups: the group of each subject, as for `irtcat.score`: its population is the prior.
        mismatch: as for `irtcat.score`.

    Returns:
        Pairs with item_1, item_2, n, q3, q3_star and flag. NaN (flagged) if fewer than 4 subjects
        answered both, or the residuals of one are constant.

    Raises:
        InputError: for fewer than 2 items, an unknown method, or abilities that are not the
            subjects'.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> r = load("lsat7")
        >>> q3(fit(r, "2pl").bank, r).matrix().round(2).iloc[0].tolist()
        [nan, -0.13, -0.21, -0.01, 0.01]

    References:
        Yen (1984), Applied Psychological Measurement 8, 125-145; Christensen, Makransky & Horton
        (2017), Applied Psychological Measurement 41, 178-194 (Q3*).
    """
    data = coded(bank, responses, least_items=2, groups=groups, mismatch=mismatch)
    n, r = _residual_correlations(data, abilities_of(data, abilities, method))
    first, second = np.triu_indices(data.bank.n_items, 1)
    n, value = n[first, second], r[first, second]
    few = n < MIN_SHARED
    flags = np.where(few, "fewer than 4 in common", np.where(np.isnan(value), "constant", ""))
    value = np.where(few, np.nan, value)
    mean = float(np.nanmean(value)) if np.isfinite(value).any() else np.nan
    columns = {"n": n.astype(int), "q3": value, "q3_star": value - mean, "flag": flags}
    return _pairs(data, columns, "q3")


def _residual_correlations(data: Coded, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Numbers of subjects who answered both items, and correlations of the residuals."""
    n_items = data.bank.n_items
    n, first, second, cross = np.zeros((4, n_items, n_items))
    for block in blocks(data, theta):
        answered, r = block.observed.astype(float), block.residual
        n += answered.T @ answered
        first += r.T @ answered
        second += (r**2).T @ answered
        cross += r.T @ r
    safe = np.maximum(n, 1.0)
    mean = first / safe
    variance = np.maximum(second / safe - mean**2, 0.0)
    product = np.sqrt(variance * variance.T)
    varies = product > 1e-12
    r = (cross / safe - mean * mean.T) / np.where(varies, product, 1.0)
    return n, np.where(varies, r, np.nan)


DRAWN_ROWS = 1024
"""Simulated subjects per block, which limits memory."""
DRAWS, DRAWS_PER_PARAMETER, LEAST_DRAWN = 20_000, 20, 1000
"""Simulated subjects for the information: in all, at least, and in each group."""
BLOCK_CELLS = 2**22
"""Entries of the matrices M of a block of pairs."""
MIN_MEAN = 0.01
"""Smaller means of X2 are rounding and sampling errors of 0: the parameters follow the table."""


class PairReference(NamedTuple):
    """``x2 / scale`` is about chi-square distributed with ``df`` degrees of freedom, by pair.

    Attributes:
        scale: NaN where nobody answered both items, or the estimated parameters fit every table of
            the pair.
        df: NaN likewise.
        expected: tables of all pairs in one matrix, for the subjects who answered both items.
        n: items x items, the number of these subjects.
    """

    scale: FloatArray
    df: FloatArray
    expected: FloatArray
    n: FloatArray


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
    populations = data.bank.populations
    is_one = data.labels is not None or len(populations) == 1  # else a mixture
    population: list[tuple[str, Callable[[FloatArray], FloatArray]]] = [
        (label, functools.partial(_log_density_derivative, populations[label], name, at))
        for label, name, at in (population_places(data.bank, free) if is_one else [])
        if populations[label].is_normal  # a density is taken for known
    ]
    block += [data.bank.n_items + len(block) + k for k in range(len(population))]
    return _Parameters(position, population, len(block), np.array(block))


def _log_density_derivative(
    population: Population, name: str, at: tuple[int, int], points: FloatArray
) -> FloatArray:
    """Derivative of the Normal log-density by a mean, an SD or a correlation."""
    first, second = at
    sd = np.atleast_1d(population.sd)
    inverse = np.linalg.inv(population.covariance / np.outer(sd, sd))
    z = (points - population.mean) / sd
    y = z @ inverse
    if name == "correlations":
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
    scale, df = _references(expected, counts, own, theirs, covariance, parameters)
    return PairReference(scale, df, np.asarray(sum(expected)), np.asarray(sum(counts)))


def _drawn(
    values: np.ndarray, n: int, weights: FloatArray, p: FloatArray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Simulated answers of n subjects, missing where those of these subjects are, in blocks."""
    bounds = p.cumsum(axis=2)[:, :, :-1]
    for start in range(0, n, DRAWN_ROWS):
        size = min(DRAWN_ROWS, n - start)
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
    posterior = posteriors(values, weights, p)
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
) -> FloatArray:
    """The ratios tr M^2 / tr M and (tr M)^2 / tr M^2 of all pairs."""
    n_items = len(parameters.position)
    n_categories = len(expected[0]) // n_items
    first, second = np.triu_indices(n_items, 1)
    n_cells = n_categories**2
    step = max(1, BLOCK_CELLS // n_cells**2)
    scale, df = both = np.full((2, len(first)), np.nan)

    def tables(matrix: FloatArray, i: IntArray, j: IntArray) -> FloatArray:
        """The tables of pairs, pairs x cells."""
        shaped = matrix.reshape(n_items, n_categories, n_items, n_categories)
        return shaped[i, :, j, :].reshape(len(i), n_cells)

    population = parameters.size - len(theirs) + np.arange(len(theirs))
    for start in range(0, len(first), step):
        i, j = first[start : start + step], second[start : start + step]
        cells = np.stack([tables(e, i, j) for e in expected])
        n = np.maximum([count[i, j] for count in counts], 1.0)
        total = cells.sum(axis=0)
        columns = [tables(d, i, j) for d in own] + [tables(d.T, i, j) for d in own]
        columns += [tables(d, i, j) for d in theirs]
        of_population = np.tile(population, (len(i), 1))
        at = np.hstack([parameters.position[i], parameters.position[j], of_population])
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
    return both

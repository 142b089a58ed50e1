"""Local dependence: pairs of items with more in common than the model predicts."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import xlogy

from irtcat._common.checks import check_choice
from irtcat._common.types import FloatArray, IntArray
from irtcat.agreement import benjamini_hochberg, holm
from irtcat.bank import BankLike
from irtcat.diagnose.chi_square import Coded, chi_square_p, coded, curves, population_nodes
from irtcat.diagnose.estimated_parameters import free_of
from irtcat.diagnose.pair_reference import pair_reference
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
        name = self.main if column is None else column
        check_choice("column", name, [c for c in self.table.columns[2:] if c != "flag"])
        n = len(self.item_ids)
        out = np.full((n, n), np.nan)
        upper = np.triu_indices(n, 1)
        out[upper] = self.table[name].to_numpy(float)
        out.T[upper] = out[upper]
        index = pd.Index(self.item_ids, dtype=object, name="item")
        return pd.DataFrame(out, index, index.rename(None))

    def largest(self, n: int = 10, column: str | None = None) -> pd.DataFrame:
        """The n pairs with the largest absolute values."""
        name = self.main if column is None else column
        check_choice("column", name, [c for c in self.table.columns[2:] if c != "flag"])
        order = self.table[name].abs().sort_values(ascending=False, kind="stable").index[:n]
        return self.table.loc[order]


class _PairTables(NamedTuple):
    """Two-way tables of all pairs, in one matrix over all categories of all items.

    Attributes:
        observed: categories x categories, counts.
        expected: counts under the model, for the number of subjects who answered both items.
        n: items x items, subjects who answered both.
        first: column of each item's category 0.
    """

    observed: FloatArray
    expected: FloatArray
    n: FloatArray
    first: IntArray


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
    tables = _tables(data)
    first, second = np.triu_indices(data.bank.n_items, 1)
    x2, g2 = _chi_squares(tables, first, second)
    top = data.categories - 1
    df = top[first] * top[second]
    if not free.mask.any():
        df = data.categories[first] * data.categories[second] - 1
    n = tables.n[first, second]
    difference, constant = _correlation_difference(data, tables, first, second)
    flags = np.where(n == 0, "nobody answered both", np.where(constant, "constant", ""))
    untested = flags != ""
    reference = pair_reference(data, free)
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


def _tables(data: Coded) -> _PairTables:
    """Observed and expected two-way tables of all pairs."""
    n_items, n_categories = data.bank.n_items, data.bank.model.n_categories
    size = n_items * n_categories
    observed, expected = np.zeros((2, size, size))
    both = np.zeros((n_items, n_items))
    for group in data.groups:
        points, weights = population_nodes(group.bank)
        flat = curves(data.bank, points).transpose(0, 2, 1).reshape(size, -1)
        answered_both = np.zeros((n_items, n_items))
        for start in range(0, len(group.rows), BLOCK_ROWS):
            x = data.values[group.rows[start : start + BLOCK_ROWS]]
            indicators = (x[:, :, None] == np.arange(n_categories)).reshape(len(x), -1)
            indicators = indicators.astype(np.float32)
            answered = (x >= 0).astype(np.float32)
            observed += indicators.T @ indicators  # counts below 2^24 are exact
            answered_both += answered.T @ answered
        counts = np.repeat(np.repeat(answered_both, n_categories, axis=0), n_categories, axis=1)
        expected += (flat * weights) @ flat.T * counts
        both += answered_both
    return _PairTables(observed, expected, both, np.arange(n_items) * n_categories)


def _chi_squares(
    tables: _PairTables, first: IntArray, second: IntArray
) -> tuple[FloatArray, FloatArray]:
    """X2 and G2 of the pairs."""
    o, e = tables.observed, tables.expected
    possible = e > 0
    safe = np.where(possible, e, 1.0)
    x2 = np.where(possible, (o - e) ** 2 / safe, 0.0)
    g2 = np.where(possible, 2 * xlogy(o, np.where(o > 0, o, 1.0) / safe), 0.0)
    n_categories = len(o) // len(tables.first)
    shape = (len(tables.first), n_categories, len(tables.first), n_categories)
    totals = [cells.reshape(shape).sum(axis=(1, 3)) for cells in (x2, g2)]
    return totals[0][first, second], totals[1][first, second]


def _correlation_difference(
    data: Coded, tables: _PairTables, first: IntArray, second: IntArray
) -> tuple[FloatArray, np.ndarray]:
    """Observed minus expected correlation of the codes; and whether an item is constant."""
    n = np.maximum(tables.n, 1.0)
    observed, constant = _correlations(tables.observed, n)
    expected, _ = _correlations(tables.expected, n)
    return (observed - expected)[first, second], constant[first, second]


def _correlations(counts: FloatArray, n: FloatArray) -> tuple[FloatArray, np.ndarray]:
    """Correlations of the codes from all two-way tables, and where they are undefined."""
    n_items = len(n)
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
    theta = abilities_of(data, abilities, method)
    n, r = _residual_correlations(data, theta)
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

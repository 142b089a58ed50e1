"""S-X2: the fit of each item within groups of equal total score, whose sparse cells are merged."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import check_positive
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.agreement import benjamini_hochberg, holm
from irtcat.bank import BankLike
from irtcat.diagnose.answer_moments import probability_derivatives
from irtcat.diagnose.chi_square import (
    Coded,
    chi_square_p,
    coded,
    complete_values,
    curves,
    item_index,
    population_nodes,
    rmsea,
)
from irtcat.diagnose.estimated_parameters import free_of
from irtcat.io.convert import ResponsesLike
from irtcat.models import field_columns
from irtcat.scoring import warn_of_mixture

RARE = 0.05
"""Columns with expected counts in a smaller share of the rows are merged."""


class ItemByScore(NamedTuple):
    """Answers to one item by total score.

    Attributes:
        scores: lowest total score of each row.
        observed: rows x categories, counts.
        expected: counts under the model; 0 marks a merged cell.
    """

    scores: IntArray
    observed: FloatArray
    expected: FloatArray

    @property
    def df(self) -> int:
        """Number of cells minus rows, whose sums are fixed."""
        return int((self.expected > 0).sum()) - len(self.scores)

    @property
    def statistic(self) -> float:
        """Pearson's chi-square."""
        cell = self.expected > 0
        difference = self.observed[cell] - self.expected[cell]
        return float((difference**2 / self.expected[cell]).sum())


def _with_items(dist: FloatArray, items: list[int], p: FloatArray, top: IntArray) -> FloatArray:
    """Score distributions (scores x nodes) after adding items, one at a time."""
    for i in items:
        new = np.zeros((len(dist) + top[i], dist.shape[1]))
        for k in range(top[i] + 1):
            new[k : k + len(dist)] += dist * p[i, :, k]
        dist = new
    return dist


def _rest_scores(
    items: list[int], dist: FloatArray, p: FloatArray, top: IntArray
) -> Iterator[tuple[int, FloatArray]]:
    """For each item the distribution of the score on all others.

    Recursive halving needs n log n additions of an item instead of n^2, and never divides by a
    probability.
    """
    if len(items) == 1:
        yield items[0], dist
        return
    half = len(items) // 2
    for part, others in ((items[:half], items[half:]), (items[half:], items[:half])):
        yield from _rest_scores(part, _with_items(dist, others, p, top), p, top)


def expected_shares(p: FloatArray, weights: FloatArray, categories: IntArray) -> list[FloatArray]:
    """Share of each category of an item among those with a total score, for all items.

    ``E_ik(s) = sum_q w_q P_ik(q) S^(-i)_{s-k}(q) / sum_q w_q S_s(q)``, S^(-i) the distribution of
    the score on the other items (recursion of Lord & Wingersky).

    Args:
        p: items x nodes x categories.
        weights: of the nodes.
        categories: number of categories of each item.

    Returns:
        For each item scores x its categories; NaN for a category that is impossible at the score.
    """
    top = categories - 1
    n_scores = int(top.sum()) + 1
    start = np.ones((1, p.shape[1]))
    out: list[FloatArray] = [np.zeros(0)] * len(p)
    for i, rest in _rest_scores(list(range(len(p))), start, p, top):
        joint = np.full((n_scores, categories[i]), np.nan)
        for k in range(categories[i]):
            joint[k : k + len(rest), k] = rest @ (weights * p[i, :, k])
        total = np.nansum(joint, axis=1, keepdims=True)
        out[i] = joint / np.maximum(total, np.finfo(float).tiny)
    return out


def score_information(
    values: np.ndarray, p: FloatArray, slopes: FloatArray, weights: FloatArray, categories: IntArray
) -> FloatArray:
    """Information of the tables by total score on the parameters of their own item.

    ``H_i = sum_s n_s sum_k E'_ik(s) E'_ik(s)' / E_ik(s)``, E the expected shares (see
    `expected_shares`), E' their derivatives by the parameters of item i.

    Args:
        values: complete answers, subjects x items.
        p: items x nodes x categories.
        slopes: derivatives of p, items x params x nodes x categories.
        weights: of the nodes.
        categories: number of categories of each item.

    Returns:
        Items x params x params.
    """
    top = categories - 1
    n_with = np.bincount(values.sum(axis=1, dtype=np.int64), minlength=int(top.sum()) + 1)
    n_params = slopes.shape[1]
    out = np.zeros((len(p), n_params, n_params))
    for i, rest in _rest_scores(list(range(len(p))), np.ones((1, p.shape[1])), p, top):
        joint = np.zeros((len(n_with), categories[i], 1 + n_params))
        for k in range(categories[i]):
            terms = np.column_stack([p[i, :, k], slopes[i, :, :, k].T])
            joint[k : k + len(rest), k] = rest @ (weights[:, None] * terms)
        total = np.maximum(joint[:, :, 0].sum(axis=1), np.finfo(float).tiny)[:, None]
        share = joint[:, :, 0] / total
        slope = joint[:, :, 1:] - share[:, :, None] * joint[:, :, 1:].sum(axis=1, keepdims=True)
        slope = (slope / total[:, None])[1:-1]
        inner = share[1:-1]
        weight = np.where(inner > 0, n_with[1:-1, None] / np.where(inner > 0, inner, 1.0), 0.0)
        out[i] = np.einsum("skp,sk,skq->pq", slope, weight, slope)
    return out


def merged(table: ItemByScore, least: float) -> ItemByScore | None:
    """The table with sparse cells merged, in mirt's order; None if no row is left.

    Scores at which some categories are impossible join the nearest score at which all are possible;
    scores without subjects are left out, scores of one subject join the next. Then categories of a
    row are merged while more than two are left and one has an expected count below ``least``, then
    rare categories of the whole table, and finally neighbouring scores.
    """
    full = np.flatnonzero(~np.isnan(table.expected).any(axis=1))
    if len(full) == 0:
        return None
    first, last = full[0], full[-1]
    # Observed and expected counts are merged alike: 2 x scores x categories.
    counts = np.stack([table.observed, np.nan_to_num(table.expected)])
    counts[:, first] += counts[:, :first].sum(axis=1)
    counts[:, last] += counts[:, last + 1 :].sum(axis=1)
    keep = slice(first, last + 1)
    scores, counts = _shared_scores(table.scores[keep], counts[:, keep])
    if len(scores) == 0:
        return None
    if counts.shape[2] > 2:
        for row in np.flatnonzero((counts[1] < least).any(axis=1)):
            _merge_categories(counts[:, row], least)
        counts = _without_rare(counts, least)
    return _merge_scores(scores, counts, least)


def _shared_scores(scores: IntArray, counts: FloatArray) -> tuple[IntArray, FloatArray]:
    """Drop scores without subjects; add scores of one subject to the next."""
    used = counts[0].sum(axis=1) > 0
    scores, counts = scores[used], counts[:, used]
    keep = np.ones(len(scores), bool)
    for row in range(len(scores) - 1):
        if counts[0, row].sum() == 1:
            keep[row] = False
            counts[:, row + 1] += counts[:, row]
    scores, counts = scores[keep], counts[:, keep]
    if len(scores) > 1 and counts[0, -1].sum() == 1:
        counts[:, -2] += counts[:, -1]
        scores, counts = scores[:-1], counts[:, :-1]
    return scores, counts


def _merge_categories(counts: FloatArray, least: float) -> None:
    """Merge a row's category with the lowest expected count into its smaller neighbour, in place.

    The remaining cells move to the first columns; 0 marks the columns without a cell.
    """
    o, e = counts.tolist()
    while len(e) > 2:
        lowest = min(e)
        source = max(k for k, value in enumerate(e) if value == lowest)
        target = _smaller_neighbour(e, source)
        e[target] += e[source]
        o[target] += o[source]
        del e[source], o[source]
        if min(e) >= least:
            break
    counts[:] = 0.0
    counts[:, : len(e)] = o, e


def _smaller_neighbour(sizes: list[float], position: int) -> int:
    """Position of the smaller neighbour in a list; the previous one if equal."""
    if position == 0:
        return 1
    if position == len(sizes) - 1:
        return position - 1
    return position - 1 if sizes[position - 1] <= sizes[position + 1] else position + 1


def _without_rare(counts: FloatArray, least: float) -> FloatArray:
    """Merge columns that are rare in the whole table into the previous column."""
    enough = least * np.ceil(0.1 * counts.shape[1])
    while counts.shape[2] > 2 and counts[1, :, -1].sum() < enough:
        counts[:, :, -2] += counts[:, :, -1]
        counts = counts[:, :, :-1]
    keep = np.ones(counts.shape[2], bool)
    for column in range(counts.shape[2] - 1, 0, -1):
        if (counts[1, :, column] > 0).mean() < RARE:
            keep[column] = False
            counts[:, :, column - 1] += counts[:, :, column]
    return counts[:, :, keep]


def _merge_scores(scores: IntArray, counts: FloatArray, least: float) -> ItemByScore:
    """Merge the first score with a sparse cell into the neighbour with fewer subjects."""

    def is_sparse(row: FloatArray) -> bool:
        return bool(((row[1] < least) & (row[1] != 0)).any())

    s, rows = scores.tolist(), list(counts.swapaxes(0, 1))
    sparse, size = [*map(is_sparse, rows)], [float(row[0].sum()) for row in rows]
    while any(sparse) and len(s) > 1:
        source = sparse.index(True)
        target = _smaller_neighbour(size, source)
        rows[target] = rows[target] + rows[source]
        size[target] += size[source]
        s[target] = min(s[target], s[source])
        sparse[target] = is_sparse(rows[target])
        for values in (s, rows, sparse, size):
            del values[source]
    return ItemByScore(np.array(s), *np.stack(rows, axis=1))


PRIOR_BOUND = ("logit_upper", "logit_feasibility")
"""Parameters that `s_x2` does not subtract from the degrees of freedom.

The answers of few subjects are informative of them. In 40 simulated data sets (1,000 x 16) 10 % of
4PL and 6.4 % of feasibility items that fit had p < .05 where they count, 6.7 and 4.7 % where not.
"""


def s_x2(
    bank: BankLike,
    responses: ResponsesLike,
    min_expected: float = 1.0,
    estimated: str = "auto",
    *,
    groups: Any = None,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """Test each item's fit within groups of equal total score (Orlando & Thissen).

    ``S-X2_i = sum_s sum_k (O_sk - E_sk)^2 / E_sk`` over total scores s and categories k, where E is
    the number of subjects with score s times the share with answer k expected by the model, from
    the recursion of Lord & Wingersky over the population (for items with several categories after
    Kang & Chen). Cells with expected counts below ``min_expected`` are merged as in mirt:
    categories within a score first, then scores. The lowest and the highest possible score are left
    out: all subjects there answer alike. df = cells - scores - estimated parameters of the item -
    estimated parameters of the population, as in mirt: a slope or SD that all items share counts in
    full for each, as does a lower asymptote. An upper asymptote or feasibility, which the prior
    determines more than the answers, does not count (in mirt it does: 9 % of 4PL items that fit
    then have p < .05). Of items that fit 7 % of Rasch and 3PL items have p < .05, 5 to 6 % of 2PL,
    4PL, graded and generalised partial credit items. For PCM items mirt may merge other cells and
    have a few df fewer: in 1,129 x 25 answers of three categories 4.9 % of items that fit have p <
    .05 with the df here, 7 to 14 % with two to six fewer.

    Args:
        bank: the calibrated items (right/wrong or graded, of one or more dimensions).
        responses: the responses. Subjects with missing answers to the bank's items are left out
            (``n`` counts the others), since their total scores are not comparable. The parameters
            are estimated from all answers, so that each takes only a part from the table: df is
            less n / (answers to the item) for each, and not a whole number.
        min_expected: smallest expected count of a cell, above 0.
        estimated: which parameters count as estimated from these responses: "auto" (by the bank's
            covariance; none for a bank built from known parameters), "all" or "none".
        groups: the group of each subject, as for `irtcat.score`. The test is then made in each
            group, under its population. The statistic is mirt's; the df are not: mirt subtracts
            the item's parameters, and the group's mean and SD, in each group. The items are
            estimated from all groups together, so that each takes only a part from its table:
            df = cells - scores - tr(H_g (sum_g H_g)^-1), with H_g the information on the item's own
            parameters in the table of group g. It is not a whole number.
        mismatch: as for `irtcat.score`.

    Returns:
        Indexed by item (with groups by group and item): s_x2, df, p, p_holm, p_bh (adjusted over
        all rows), rmsea, n and flag.
        s_x2, p and rmsea are NaN if there is no test; ``flag`` has the reason.

    Raises:
        InputError: for fewer than 2 items or 2 complete rows, or items that are neither right/wrong
            nor graded.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> r = load("lsat7")
        >>> s_x2(fit(r, "2pl").bank, r)[["s_x2", "df", "p"]].round(2).head(2)
                s_x2  df     p
        item
        item1   4.75   2  0.09
        item2  14.45   2  0.00

    References:
        Orlando & Thissen (2000), Applied Psychological Measurement 24, 50-64; Kang & Chen (2008),
        Journal of Educational Measurement 45, 391-406; Lord & Wingersky (1984), Applied
        Psychological Measurement 8, 453-461.
    """
    check_positive("min_expected", min_expected)
    data = coded(bank, responses, least_items=2, groups=groups, mismatch=mismatch)
    free = free_of(data.bank, estimated)
    counted = free.mask.copy()
    counted[:, list(field_columns(data.bank.model, PRIOR_BOUND))] = False
    if groups is None:
        warn_of_mixture(data.bank)
        # Answers of incomplete rows are part of the estimates, but not of the tables.
        answered = data.values >= 0
        shares = data.complete.sum() / np.maximum(answered.sum(axis=0), 1)
        share = data.complete.sum() / answered.any(axis=1).sum()
        taken = counted.sum(axis=1) * shares + free.n_population * share
        table = _item_tests(data, min_expected, taken)
        return table.astype({"df": int}) if data.complete.all() else table
    parts = [data.of_group(group) for group in data.groups]
    free_cells = counted & ~free.shared
    columns = [data.bank.positions(part.bank.item_ids) for part in parts]
    information = [_table_information(part) for part in parts]
    total = np.zeros((data.bank.n_items, *information[0].shape[1:]))
    for at, part, matrices in zip(columns, parts, information, strict=True):
        answers = (part.values >= 0).sum(axis=0) / part.complete.sum()
        total[at] += matrices * answers[:, None, None]
    frames = {}
    for group, part, at, matrices in zip(data.groups, parts, columns, information, strict=True):
        taken = _taken(matrices, total[at], free_cells[at])
        frames[group.label] = _item_tests(part, min_expected, taken)
    table = pd.concat(frames, names=["group", "item"])
    p = table["p"].to_numpy()
    return table.assign(p_holm=holm(p), p_bh=benjamini_hochberg(p))


def _taken(own: FloatArray, total: FloatArray, is_free: BoolArray) -> FloatArray:
    """How many parameters of each item its table in a group accounts for: tr(H_g H^-1)."""
    out = np.zeros(len(own))
    for item, free in enumerate(is_free):
        at = np.ix_(free, free)
        out[item] = np.trace(own[item][at] @ np.linalg.pinv(total[item][at]))
    return out


def _item_tests(data: Coded, least: float, taken: FloatArray) -> pd.DataFrame:
    """The tests of all items, less the degrees of freedom that the estimates have taken."""
    tables = _score_tables(data, least)
    df = np.array([0 if t is None else t.df for t in tables], float) - taken
    n = int(data.complete.sum())
    statistic = np.array([np.nan if t is None else t.statistic for t in tables])
    constant = data._replace(values=data.values[data.complete]).constant()
    flags = np.where(constant, "constant", np.where(df <= 0, "too few cells", ""))
    df = np.where(constant, 0, np.maximum(df, 0))
    statistic = np.where(df > 0, statistic, np.nan)
    p = chi_square_p(statistic, df)
    columns = {
        "s_x2": statistic,
        "df": df,
        "p": p,
        "p_holm": holm(p),
        "p_bh": benjamini_hochberg(p),
        "rmsea": rmsea(statistic, df, n),
        "n": n,
        "flag": flags,
    }
    return pd.DataFrame(columns, index=item_index(data))


def s_x2_table(
    bank: BankLike,
    responses: ResponsesLike,
    min_expected: float | None = 1.0,
    *,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """The observed and expected counts behind `s_x2`, one row per cell.

    Args:
        bank: the calibrated items.
        responses: the responses.
        min_expected: as for `s_x2`; None leaves the cells unmerged.
        mismatch: as for `irtcat.score`.

    Returns:
        Columns item, score (the lowest of merged scores), category, observed, expected. After
        merging, categories are renumbered within each score. An item's observed counts, and its
        expected counts, sum to the number of complete rows without the lowest and highest possible
        score.

    Raises:
        InputError: as `s_x2`.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> r = load("lsat7")
        >>> table = s_x2_table(fit(r, "2pl").bank, r)
        >>> int(table[table["item"] == "item1"].observed.sum())  # less 12 with 0, 308 with 5
        680
    """
    if min_expected is not None:
        check_positive("min_expected", min_expected)
    data = coded(bank, responses, least_items=2, mismatch=mismatch)
    tables = _score_tables(data, min_expected)
    rows = []
    for item, table in zip(data.bank.item_ids, tables, strict=True):
        if table is None:
            continue
        for row, category in np.argwhere(np.nan_to_num(table.expected) > 0):
            counts = (table.observed[row, category], table.expected[row, category])
            rows.append((str(item), int(table.scores[row]), int(category), *counts))
    return pd.DataFrame(rows, columns=["item", "score", "category", "observed", "expected"])


def _score_tables(data: Coded, least: float | None) -> list[ItemByScore | None]:
    """Tables by total score of all items, merged unless ``least`` is None.

    Of all scores but the lowest and highest possible.
    """
    values = complete_values(data, "S-X2")
    points, weights = population_nodes(data.bank)
    shares = expected_shares(curves(data.bank, points), weights, data.categories)
    total, top = values.sum(axis=1, dtype=np.int64), int((data.categories - 1).sum())
    n_with = np.bincount(total, minlength=top + 1)[:, None]
    tables: list[ItemByScore | None] = []
    for i, n_categories in enumerate(data.categories):
        cell = total * n_categories + values[:, i]
        counts = np.bincount(cell, minlength=(top + 1) * n_categories)
        observed, inner = counts.reshape(top + 1, n_categories).astype(float), slice(1, top)
        table = ItemByScore(np.arange(1, top), observed[inner], (shares[i] * n_with)[inner])
        tables.append(table if least is None else merged(table, least))
    return tables


def _table_information(data: Coded) -> FloatArray:
    """Information on each item's own parameters in its table, items x params x params."""
    values = complete_values(data, "S-X2")
    points, weights = population_nodes(data.bank)
    p, slopes = curves(data.bank, points), probability_derivatives(data.bank, points)
    return score_information(values, p, slopes, weights, data.categories)

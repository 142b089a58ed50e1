"""S-X2: the fit of each item within groups of equal total score."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import check_positive
from irtcat._common.types import BoolArray, FloatArray
from irtcat.agreement import benjamini_hochberg, holm
from irtcat.bank import ItemBank
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
from irtcat.diagnose.score_tables import (
    ItemByScore,
    expected_shares,
    merged,
    score_information,
    score_tables,
)
from irtcat.io.convert import ResponsesLike
from irtcat.models import field_columns
from irtcat.scoring import warn_of_mixture

PRIOR_BOUND = ("logit_upper", "logit_feasibility")
"""Parameters that `s_x2` does not subtract from the degrees of freedom.

The answers of few subjects are informative of them. In 40 simulated data sets (1,000 x 16) 10 % of
4PL and 6.4 % of feasibility items that fit had p < .05 where they count, 6.7 and 4.7 % where not.
"""


def s_x2(
    bank: ItemBank,
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
        tables = _score_tables(data, min_expected)
        df = np.array([0 if t is None else t.df for t in tables], float)
        # Answers of incomplete rows are part of the estimates, but not of the tables.
        answered = data.values >= 0
        shares = data.complete.sum() / np.maximum(answered.sum(axis=0), 1)
        share = data.complete.sum() / answered.any(axis=1).sum()
        df -= counted.sum(axis=1) * shares + free.n_population * share
        table = _item_tests(data, tables, df)
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
        tables = _score_tables(part, min_expected)
        df = np.array([0 if t is None else t.df for t in tables], float)
        frames[group.label] = _item_tests(
            part, tables, df - _taken(matrices, total[at], free_cells[at])
        )
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


def _item_tests(data: Coded, tables: list[ItemByScore | None], df: FloatArray) -> pd.DataFrame:
    """The tests of all items; df counts what was estimated already."""
    n = int(data.complete.sum())
    statistic = np.array([np.nan if t is None else t.statistic for t in tables])
    constant = _constant(data, data.values[data.complete])
    flags = np.where(constant, "constant", np.where(df <= 0, "too few cells", ""))
    df = np.where(constant, 0, np.maximum(df, 0))
    statistic = np.where(df > 0, statistic, np.nan)
    return _test_table(data, {"s_x2": statistic}, df, n, flags)


def s_x2_table(
    bank: ItemBank,
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
    """Tables by total score of all items, merged unless ``least`` is None."""
    values = complete_values(data, "S-X2")
    points, weights = population_nodes(data.bank)
    p = curves(data.bank, points)
    shares = expected_shares(p, weights, data.categories)
    tables = score_tables(values, shares, data.categories)
    return [table if least is None else merged(table, least) for table in tables]


def _table_information(data: Coded) -> FloatArray:
    """Information on each item's own parameters in its table, items x params x params."""
    values = complete_values(data, "S-X2")
    points, weights = population_nodes(data.bank)
    p, slopes = curves(data.bank, points), probability_derivatives(data.bank, points)
    return score_information(values, p, slopes, weights, data.categories)


def _constant(data: Coded, values: np.ndarray) -> np.ndarray:
    """Items with a single category in these rows."""
    return data._replace(values=values).constant()


def _test_table(
    data: Coded, statistic: dict[str, FloatArray], df: Any, n: Any, flags: np.ndarray
) -> pd.DataFrame:
    """A table of chi-square tests, one row per item."""
    (name, value), index = next(iter(statistic.items())), item_index(data)
    p = chi_square_p(value, df)
    columns = {
        name: value,
        "df": df,
        "p": p,
        "p_holm": holm(p),
        "p_bh": benjamini_hochberg(p),
        "rmsea": rmsea(value, df, n),
        "n": n,
        "flag": flags,
    }
    return pd.DataFrame(columns, index=index)

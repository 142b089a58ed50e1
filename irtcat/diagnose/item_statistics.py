"""Item fit: S-X2, infit and outfit, and all measures in one table."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_positive
from irtcat._common.types import BoolArray, FloatArray
from irtcat.agreement import benjamini_hochberg, holm
from irtcat.bank import ItemBank
from irtcat.bank.needs import meets
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
from irtcat.diagnose.expected_squares import item_nulls
from irtcat.diagnose.groups import NEEDS, grouped_fit
from irtcat.diagnose.residuals import (
    ResidualSums,
    abilities_of,
    blocks,
    deviates,
    mean_squares,
    method_of,
    sums,
)
from irtcat.diagnose.score_tables import (
    ItemByScore,
    expected_shares,
    merged,
    score_information,
    score_tables,
)
from irtcat.io.convert import ResponsesLike
from irtcat.models import field_columns
from irtcat.scoring import METHODS, score, warn_of_mixture

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


def infit_outfit(
    bank: ItemBank,
    responses: ResponsesLike,
    method: str = "eap",
    abilities: Any = None,
    estimated: str = "auto",
    *,
    groups: Any = None,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """Infit and outfit mean squares of each item, and their normal deviates.

    ``outfit = mean_j r_j^2 / v_j`` and ``infit = sum_j r_j^2 / sum_j v_j``, with
    ``r_j = x_j - E(x | theta_j)`` and ``v_j = Var(x | theta_j)`` at the estimated abilities. Above
    their expectation answers are more random than the model predicts, below it less. At true
    abilities the expectation is 1. EAP estimates shrink to the mean, which lowers the mean squares;
    ML and WLE estimates change them, too. The deviates
    ``z = ((m / E m)^(1/3) - 1) 3 / q + q / 3`` (Wilson and Hilferty) have the expectation E m and
    the relative SD q of a mean square m *of estimated abilities*: each subject's term is compared
    with its mean over the answers to this item that the subject could have chosen, with their
    posterior predictive probabilities given its other answers, and the ability estimated from each.
    What the terms share with the derivatives of the log-likelihood by the item's own estimated
    parameters is subtracted. So z is about standard normal if the model holds: |z| > 2 in 3 to 6 %
    of simulated 2PL and Rasch items (500 or 600 subjects, 10 to 20 items).

    Args:
        bank: the calibrated items (right/wrong or graded).
        responses: the responses; missing answers are left out item by item.
        method: how abilities are estimated (as for `irtcat.score`), unless passed. For z, methods
            other than "eap" score each answer once more for every other category.
        abilities: an `Ability` of the same subjects, or one number each (NaN leaves one out).
            Numbers are taken for known abilities, on which the answers have no influence.
        estimated: which parameters count as estimated from these responses, as for `s_x2`.
        groups: the group of each subject, as for `irtcat.score`: its population is the prior.
        mismatch: as for `irtcat.score`.

    Returns:
        Indexed by item: outfit, outfit_z, infit, infit_z, n and flag. NaN without answers; z also
        if the mean square cannot vary, and on a multidimensional bank whose posteriors are too
        narrow to be integrated (flagged). mirt's z takes estimated abilities for known ones: it has
        |z| > 2 in most items that fit. Unlike in mirt, v has no lower bound, so that a very
        unlikely answer enters outfit at its full size.

    Raises:
        InputError: for an unknown method or abilities of other subjects.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> r = load("lsat7")
        >>> infit_outfit(fit(r, "2pl").bank, r)[["outfit", "infit"]].round(2).head(2)
               outfit  infit
        item
        item1    0.78   0.96
        item2    0.74   0.82

    References:
        Wright & Masters (1982), Rating Scale Analysis, chapter 5; Neyman (1959), Optimal asymptotic
        tests of composite statistical hypotheses (C(alpha), the subtraction).
    """
    data = coded(bank, responses, groups=groups, mismatch=mismatch)
    if groups is None and abilities is None:
        warn_of_mixture(data.bank)
    theta = abilities_of(data, abilities, method)
    total: ResidualSums | None = None
    for block in blocks(data, theta):
        block_sums = sums(block, axis=0)
        total = block_sums if total is None else ResidualSums(*map(np.add, total, block_sums))
    assert total is not None  # at least one subject has an ability
    constant = np.where(data.constant(), "constant", "")
    flags = np.where(total.n == 0, "no responses", constant)
    nulls = item_nulls(data, theta, method_of(abilities, method), free_of(data.bank, estimated))
    coarse = np.isnan(nulls["outfit"].spread) & (flags == "")
    flags = np.where(coarse, "posteriors too narrow for z", flags)
    columns: dict[str, Any] = {}
    for name, value in mean_squares(total).items():
        columns |= {name: value, f"{name}_z": deviates(value, nulls[name])}
    columns |= {"n": total.n.astype(int), "flag": flags}
    return pd.DataFrame(columns, index=item_index(data))


def item_fit(
    bank: ItemBank,
    responses: ResponsesLike,
    method: str = "eap",
    abilities: Any = None,
    min_expected: float = 1.0,
    n_groups: int = 10,
    estimated: str = "auto",
    *,
    groups: Any = None,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """All measures of item fit in one table: `s_x2`, `grouped_fit` and `infit_outfit`.

    Args:
        bank: the calibrated items.
        responses: the responses.
        method: how abilities are estimated, unless passed.
        abilities: an `Ability` of the same subjects, or one number each.
        min_expected: of `s_x2`.
        n_groups: of `grouped_fit`, which is omitted for 0 and for multidimensional banks.
        estimated: which parameters count as estimated, see `s_x2`.
        groups: the group of each subject, as for `s_x2`: all measures are then by group and item.
        mismatch: as for `irtcat.score`.

    Returns:
        Indexed by item (with groups by group and item): s_x2, df, p, p_holm, p_bh, rmsea,
        n_complete (complete rows, used by S-X2), x2, g2, df_x2, p_x2, p_g2, outfit, outfit_z,
        infit, infit_z, n (answers) and flag.
        With fewer than two complete rows, or one item, the columns of S-X2 are NaN and flagged.

    Raises:
        InputError: as these functions.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> r = load("lsat7")
        >>> item_fit(fit(r, "2pl").bank, r)[["s_x2", "infit"]].round(2).head(1)
               s_x2  infit
        item
        item1  4.75   0.96
    """
    if groups is not None:
        if abilities is not None:
            raise argument_error("abilities", "left out with groups", type(abilities).__name__)
        data = coded(bank, responses, groups=groups, mismatch=mismatch)
        options = (method, None, min_expected, n_groups, estimated)
        parts = [data.of_group(group) for group in data.groups]
        frames = {
            group.label: item_fit(part.bank, part.responses, *options, mismatch="accept")
            for group, part in zip(data.groups, parts, strict=True)
        }
        table = pd.concat(frames, names=["group", "item"])
        tests = s_x2(bank, responses, min_expected, estimated, groups=groups, mismatch=mismatch)
        table = table.astype({"df": float})
        for name in ("s_x2", "df", "p", "p_holm", "p_bh", "rmsea"):
            table[name] = tests[name]
        return table
    data = coded(bank, responses, mismatch=mismatch)
    if abilities is None:
        check_choice("method", method, METHODS)
        abilities = score(bank, responses, method, precision="float64", mismatch=mismatch)
    squares = infit_outfit(
        bank, responses, abilities=abilities, estimated=estimated, mismatch=mismatch
    )
    if data.bank.n_items > 1 and data.complete.sum() > 1:
        tests = s_x2(bank, responses, min_expected, estimated, mismatch=mismatch)
    else:
        tests = pd.DataFrame(np.nan, squares.index, ["s_x2", "df", "p", "p_holm", "p_bh", "rmsea"])
        tests = tests.assign(df=0, n=0, flag="no complete rows")
    tables = [tests.drop(columns="flag").rename(columns={"n": "n_complete"})]
    if n_groups and meets(data.bank.model, NEEDS):
        grouped = grouped_fit(
            bank, responses, n_groups, abilities=abilities, estimated=estimated, mismatch=mismatch
        ).rename(columns={"df": "df_x2"})
        tables.append(grouped[["x2", "g2", "df_x2", "p_x2", "p_g2"]])
    tables.append(squares.drop(columns="flag"))
    flags = squares["flag"].where(squares["flag"] != "", tests["flag"])
    return pd.concat([*tables, flags.rename("flag")], axis=1)

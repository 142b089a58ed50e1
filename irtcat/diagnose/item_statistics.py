"""Item fit: infit and outfit, and all measures in one table."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat.bank import BankLike
from irtcat.bank.needs import meets
from irtcat.diagnose.chi_square import coded, item_index
from irtcat.diagnose.empirical import NEEDS, grouped_fit
from irtcat.diagnose.estimated_parameters import free_of
from irtcat.diagnose.residuals import (
    ResidualSums,
    abilities_of,
    blocks,
    deviates,
    item_nulls,
    mean_squares,
    method_of,
    sums,
)
from irtcat.diagnose.total_score_fit import s_x2
from irtcat.io.convert import ResponsesLike
from irtcat.scoring import score, warn_of_mixture


def infit_outfit(
    bank: BankLike,
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
    flags = np.where(total.n == 0, "no responses", np.where(data.constant(), "constant", ""))
    nulls = item_nulls(data, theta, method_of(abilities, method), free_of(data.bank, estimated))
    coarse = np.isnan(nulls["outfit"].spread) & (flags == "")
    flags = np.where(coarse, "posteriors too narrow for z", flags)
    columns: dict[str, Any] = {}
    for name, value in mean_squares(total).items():
        columns |= {name: value, f"{name}_z": deviates(value, nulls[name])}
    columns |= {"n": total.n.astype(int), "flag": flags}
    return pd.DataFrame(columns, index=item_index(data))


def item_fit(
    bank: BankLike,
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
        n_complete (complete rows, for S-X2), x2, g2, df_x2, p_x2, p_g2, outfit, outfit_z,
        infit, infit_z, n (answers) and flag.
        With fewer than two complete rows, or one item, S-X2 is NaN, its df 0, and a flag says so.

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
        abilities = score(bank, responses, method, precision="float64", mismatch=mismatch)
    squares = infit_outfit(
        bank, responses, abilities=abilities, estimated=estimated, mismatch=mismatch
    )
    if data.bank.n_items > 1 and data.complete.sum() > 1:
        tests = s_x2(bank, responses, min_expected, estimated, mismatch=mismatch)
    else:
        tests = pd.DataFrame(np.nan, squares.index, ["s_x2", "df", "p", "p_holm", "p_bh", "rmsea"])
        tests = tests.assign(df=0, n=data.complete.sum(), flag="too few items or complete rows")
    tables = [tests.drop(columns="flag").rename(columns={"n": "n_complete"})]
    if n_groups and meets(data.bank.model, NEEDS):
        grouped = grouped_fit(
            bank, responses, n_groups, abilities=abilities, estimated=estimated, mismatch=mismatch
        ).rename(columns={"df": "df_x2"})
        tables.append(grouped[["x2", "g2", "df_x2", "p_x2", "p_g2"]])
    tables.append(squares.drop(columns="flag"))
    flags = squares["flag"].where(squares["flag"] != "", tests["flag"])
    return pd.concat([*tables, flags.rename("flag")], axis=1)

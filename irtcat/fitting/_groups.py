"""Groups of subjects, each with its own population, and the table that reports them."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._checks import argument_error, shorten
from irtcat._precision import choose_precision
from irtcat._types import FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.latent import Populations
from irtcat.responses import Responses
from irtcat.scoring import Ability, score, score_multidimensional
from irtcat.scoring.ability import population_percentile

__all__ = ["Grouping", "check_groups", "group_table", "score_groups"]


class Grouping(NamedTuple):
    """Which group every subject belongs to.

    Attributes:
        labels: the groups' names, the reference first.
        codes: number of each subject's group.
    """

    labels: tuple[Any, ...]
    codes: IntArray


def _labels(responses: Responses, groups: Any) -> pd.Series:
    """A label per subject, in the order of the responses."""
    if isinstance(groups, str):
        columns = list(responses.subjects.columns)
        if groups not in columns:
            have = shorten(columns)
            raise argument_error("groups", f"a column of responses.subjects ({have})", groups)
        return pd.Series(responses.subjects[groups].to_numpy())
    ids = pd.Index(responses.subject_ids)
    if isinstance(groups, pd.Series) and not isinstance(groups.index, pd.RangeIndex):
        unlabelled = ids[~ids.isin(groups.index)]
        if len(unlabelled):
            raise argument_error("groups", "labels of every subject", f"none for {unlabelled[0]!r}")
        if groups.index.has_duplicates:
            twice = groups.index[groups.index.duplicated()][0]
            raise argument_error("groups", "one label a subject", f"several for {twice!r}")
        return pd.Series(groups.loc[ids].to_numpy())
    # A list becomes a Series directly: numpy would convert NaN among strings to the string "nan".
    series = pd.Series(list(groups) if np.ndim(groups) == 1 else [])
    if isinstance(groups, np.ndarray) and groups.dtype.kind == "U":
        series = series.mask(series == "nan")
    if len(series) != responses.n_subjects:
        raise argument_error(
            "groups",
            f"a column of responses.subjects or {responses.n_subjects} labels",
            f"{len(series)} labels" if np.ndim(groups) == 1 else groups,
        )
    return series


def check_groups(responses: Any, groups: Any, reference: Any = None) -> Grouping | None:
    """Number the groups, reference first, others in order of appearance; None without groups.

    Raises:
        InputError: for an unknown column or reference, a subject without a label, or a group of
            fewer than two subjects with responses.
    """
    if groups is None:
        if reference is not None:
            raise argument_error("reference", "None where there are no groups", reference)
        return None
    if not isinstance(responses, Responses):
        raise argument_error("groups", "None for responses that are read in passes", groups)
    labels = _labels(responses, groups)
    if labels.isna().any():
        who = responses.subject_ids[int(labels.isna().to_numpy().argmax())]
        raise argument_error("groups", "a label for every subject", f"none for {str(who)!r}")
    names = list(pd.unique(labels))
    if reference is not None:
        if reference not in names:
            raise argument_error("reference", f"one of the groups {names}", reference)
        names = [reference, *(name for name in names if name != reference)]
    codes = pd.Index(names).get_indexer(pd.Index(labels)).astype(np.int32)
    n = np.bincount(codes[responses.observed.any(axis=1)], minlength=len(names))
    if (n < 2).any():
        small = names[int((n < 2).argmax())]
        raise argument_error("groups", "of at least 2 subjects with responses each", f"{small!r}")
    return Grouping(tuple(names), codes)


def group_table(
    grouping: Grouping, n: FloatArray, population: FloatArray, errors: FloatArray
) -> pd.DataFrame:
    """Mean and SD of ability in each group on the bank's scale.

    Args:
        grouping: the groups.
        n: number of subjects with responses in each.
        population: means and SDs, two x groups.
        errors: their standard errors; NaN where not estimated.

    Returns:
        One row per group: n, mean, sd, se_mean, se_sd.
    """
    columns = {"n": n.round().astype(int), "mean": population[0], "sd": population[1]}
    columns |= {"se_mean": errors[0], "se_sd": errors[1]}
    index = pd.Index(list(grouping.labels), name="group")
    return pd.DataFrame(columns, index=index)


def score_groups(
    bank: ItemBank,
    responses: Responses,
    grouping: Grouping,
    table: pd.DataFrame,
    populations: Populations | None,
    precision: str,
) -> Ability:
    """EAP abilities with each subject's group population as the prior.

    Percentiles always refer to the bank's population.
    """
    by_group, rows = [], []
    for code in range(len(table)):
        members = np.flatnonzero(grouping.codes == code)
        theirs = responses.subset(subjects=members)
        if populations is None:
            mean, sd = table["mean"].iloc[code], table["sd"].iloc[code]
            group_bank = replace(bank, population_mean=mean, population_sd=sd)
            by_group.append(score(group_bank, theirs, precision=precision))
        else:
            moments = np.asarray(populations.mean[code]), np.asarray(populations.covariance[code])
            name = choose_precision(precision, theirs.values.size)
            by_group.append(score_multidimensional(bank, theirs, "eap", 0.95, name, moments))
        rows.append(members)
    order, first = np.argsort(np.concatenate(rows), kind="stable"), by_group[0]

    def column(name: str) -> Any:
        if getattr(first, name) is None:
            return None
        return np.concatenate([getattr(scores, name) for scores in by_group])[order]

    theta = column("theta")
    return Ability(
        subject_ids=column("subject_ids"),
        theta=theta,
        se=column("se"),
        lower=column("lower"),
        upper=column("upper"),
        percentile=population_percentile(theta, bank.population_mean, bank.population_sd),
        n_items=column("n_items"),
        flag=column("flag"),
        method=first.method,
        level=first.level,
        nodes=column("nodes"),
        weights=column("weights"),
        covariance=column("covariance"),
    )

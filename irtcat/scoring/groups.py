"""Groups of subjects (their labels, the bank and rows of each) and priors of single subjects."""

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, brief, shorten
from irtcat._common.per_item import column_error, in_order
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import VERSION_GROUP, VERSION_OF, ItemBank
from irtcat.responses import Responses


class Members(NamedTuple):
    """The subjects of a group.

    Attributes:
        label: of the group.
        rows: their positions in the responses.
        bank: the items, with the group's population alone.
        responses: their responses, to the versions of the items where these differ between groups.
    """

    label: str
    rows: IntArray
    bank: ItemBank
    responses: Responses


def subject_labels(responses: Responses, groups: Any, name: str = "groups") -> pd.Series:
    """The group, or another label, of each subject, in the order of the responses.

    Args:
        responses: the responses.
        groups: a column of ``responses.subjects``, a mapping or series by subject id, or one
            label each.
        name: of the argument, for messages.

    Raises:
        InputError: for an unknown column, or a subject without a label.
    """
    if isinstance(groups, str):
        if groups not in responses.subjects:
            raise column_error(name, groups, responses.subjects.columns, "subject")
        labels = pd.Series(responses.subjects[groups].to_numpy())
    else:
        groups = in_order(name, groups, responses.subject_ids, "subject", "label")
        # A list becomes a Series directly: numpy would convert NaN among strings to "nan".
        labels = pd.Series(list(groups) if np.ndim(groups) == 1 else [])
        if isinstance(groups, np.ndarray) and groups.dtype.kind == "U":
            labels = labels.mask(labels == "nan")
        if len(labels) != responses.n_subjects:
            must = f"a column of responses.subjects or {responses.n_subjects} labels"
            got = f"{len(labels)} labels" if np.ndim(groups) == 1 else groups
            raise argument_error(name, must, got)
    if labels.isna().any():
        who = responses.subject_ids[int(labels.isna().to_numpy().argmax())]
        raise argument_error(name, "a label for every subject", f"none for {str(who)!r}")
    return labels


def group_labels(bank: ItemBank, responses: Responses, groups: Any) -> np.ndarray:
    """The label of each subject's population in the bank.

    Raises:
        InputError: naming a subject whose label is not one of the bank's populations.
    """
    labels = subject_labels(responses, groups).astype(str).to_numpy()
    known = list(bank.populations)
    wrong = ~np.isin(labels, known)
    if wrong.any():
        at = int(wrong.argmax())
        must = f"labels of the bank's populations ({shorten(known)})"
        if not any(known):
            must = "left out for a bank of one population"
        got = f"{labels[at]!r} for subject {brief(responses.subject_ids[at])}"
        raise argument_error("groups", must, got)
    return labels


def members_of_groups(bank: ItemBank, responses: Responses, groups: Any) -> list[Members]:
    """Each group of the bank that has subjects here, in the bank's order.

    Raises:
        InputError: see `group_labels`.
    """
    labels = group_labels(bank, responses, groups)
    responses = with_versions(bank, responses, labels)
    members = []
    for label, population in bank.populations.items():
        rows = np.flatnonzero(labels == label)
        if len(rows):
            alone = replace(bank, populations=population)
            members.append(Members(label, rows, alone, responses.subset(subjects=rows)))
    return members


def with_versions(bank: ItemBank, responses: Responses, labels: np.ndarray) -> Responses:
    """Answers to the versions of the items that differ between groups, each by its group alone.

    Returns:
        The responses themselves where all items are invariant, or where they have the versions
        already (as the responses of the fit).
    """
    statistics, have = bank.statistics, pd.Index(responses.item_ids.astype(str))
    if VERSION_OF not in statistics or set(bank.item_ids) <= set(have):
        return responses
    at = have.get_indexer(statistics[VERSION_OF].astype(str))
    present = np.flatnonzero(at >= 0)
    values = np.array(responses.values)[:, at[present]]
    group = statistics[VERSION_GROUP].astype(str).to_numpy()[present]
    values[(group != "") & (labels[:, None] != group)] = -1 if values.dtype.kind == "i" else np.nan
    return replace(
        responses,
        values=values,
        item_ids=bank.item_ids[present].astype(object),
        items=responses.items.iloc[at[present]],
    )


def refuse_versions(bank: ItemBank, responses: Responses) -> None:
    """Raise where items differ between groups, and the subjects' groups are not known."""
    has_all = set(bank.item_ids) <= set(map(str, responses.item_ids))
    if VERSION_OF not in bank.statistics or has_all:
        return
    differ = bank.statistics[VERSION_OF][bank.statistics[VERSION_GROUP].astype(str) != ""]
    must = f"given for a bank whose items {shorten(sorted(set(differ)))} differ between groups"
    raise argument_error("groups", must, None)


def subject_priors(prior: Any, subject_ids: np.ndarray) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of each subject's prior.

    Raises:
        InputError: where a subject has none, or an SD is not above 0.
    """
    must = "a table of mean and sd by subject id, or (means, SDs)"
    if isinstance(prior, pd.DataFrame):
        if not {"mean", "sd"} <= set(prior.columns):
            raise argument_error("prior", must, f"the columns {list(prior.columns)}")
        table = prior.set_axis(prior.index.map(str), axis=0)
        if table.index.has_duplicates:
            twice = table.index[table.index.duplicated()][0]
            raise argument_error("prior", "one row a subject", f"several for {twice!r}")
        ids = pd.Index([str(subject) for subject in subject_ids])
        missing = ids[~ids.isin(table.index)]
        if len(missing):
            raise argument_error("prior", "a prior of every subject", f"none for {missing[0]!r}")
        mean, sd = (table.loc[ids, name].to_numpy(float) for name in ("mean", "sd"))
    else:
        try:
            mean, sd = (_prior_values(part, subject_ids) for part in prior)
        except (TypeError, ValueError):
            raise argument_error("prior", must, prior) from None
    wrong = ~np.isfinite(mean) | ~np.isfinite(sd) | ~(sd > 0)
    if wrong.any():
        at = int(wrong.argmax())
        got = f"mean {mean[at]} and SD {sd[at]} for subject {brief(subject_ids[at])}"
        raise argument_error("prior", "of finite means and SDs above 0", got)
    return mean, sd


def _prior_values(part: Any, subject_ids: np.ndarray) -> FloatArray:
    """A number for each subject, by id from a Series that has ids."""
    part = in_order("prior", part, subject_ids, "subject", "number")
    return np.broadcast_to(np.asarray(part, float), len(subject_ids))


def warn_of_mixture(bank: ItemBank) -> None:
    """Say whose abilities are integrated over, for results that are plain tables."""
    if note := mixture_note(bank):
        text = f"{note[0].upper()}{note[1:]}. Pass groups= for that of each subject."
        warnings.warn(text, UserWarning, stacklevel=3)


def mixture_note(bank: ItemBank) -> str:
    """What to know where a bank of several populations is used without groups; else ""."""
    if len(bank.populations) < 2:
        return ""
    return f"abilities come from the mixture of the populations {shorten(list(bank.populations))}"

"""Partial invariance: items with parameters of their own in each group of subjects.

An item that is not invariant becomes several *versions*, one for each group, with the answers of
that group alone; parameters that are equal in all groups are tied between its versions. All else
then works as for other items.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, shorten
from irtcat._common.types import BoolArray, IntArray
from irtcat.bank import VERSION_GROUP, VERSION_OF, ItemBank
from irtcat.fitting.em.m_step import shared_cells
from irtcat.fitting.em.priors import PriorTable, canonical
from irtcat.fitting.problem.of_subjects import Grouping
from irtcat.models import ItemModel, field_columns
from irtcat.responses import Responses


class Versions(NamedTuple):
    """The items of a fit with partial invariance.

    Attributes:
        responses: answers to the versions.
        items: number of the item that each version is of.
        group: group that each version is for; -1 for invariant items.
        equal: parameter -> mask of the versions in which it is equal in all groups.
        ids: the ids of the items that they are versions of.
        labels: the groups' labels.
    """

    responses: Responses
    items: IntArray
    group: IntArray
    equal: dict[str, np.ndarray]
    ids: tuple[str, ...]
    labels: tuple[str, ...]

    def stated_of_all(self, stated: Any) -> Any:
        """Priors or fixed values, those of an item for all its versions (that are not named)."""
        if not isinstance(stated, Mapping):
            return stated
        new_ids = self.responses.item_ids.tolist()
        item_of = {new: self.ids[j] for new, j in zip(new_ids, self.items, strict=True)}

        def spread(value: Any) -> Any:
            if isinstance(value, pd.DataFrame):
                rows = value.set_axis(value.index.map(str))
                rows = rows[~rows.index.duplicated(keep="last")]
                known = [new for new in new_ids if item_of[new] in rows.index]
                return rows.loc[[item_of[new] for new in known]].set_axis(known)
            if not isinstance(value, Mapping):
                return value
            named = {str(item): one for item, one in value.items()}
            inherited = {new: named[item] for new, item in item_of.items() if item in named}
            return inherited | named

        return {name: spread(value) for name, value in stated.items()}


def _equal_by_item(
    invariance: Any, ids: list[str], names: tuple[str, ...]
) -> list[frozenset[str] | None]:
    """The parameters of each item that are equal in all groups; None for all."""
    if isinstance(invariance, Mapping):
        stated = {str(item): value for item, value in invariance.items()}
    elif isinstance(invariance, (list, tuple, set, frozenset, np.ndarray, pd.Index)):
        stated = dict.fromkeys(ids, "none") | {str(item): "all" for item in invariance}
    else:
        must = "item ids that are invariant, or a mapping from ids to what is equal in all groups"
        raise argument_error("invariance", must, invariance)
    unknown = [item for item in stated if item not in ids]
    if unknown:
        raise argument_error("invariance", "about items of the responses", shorten(unknown))
    out: list[frozenset[str] | None] = []
    for item in ids:
        value = parameters = stated.get(item, "all")
        if isinstance(value, str):
            parameters = {"all": names, "none": ()}.get(value, (value,))
        try:
            equal = frozenset(canonical("invariance", name, names) for name in parameters)
        except TypeError:
            must = "all, none or names of parameters"
            raise argument_error(f"invariance[{item!r}]", must, value) from None
        out.append(None if equal == frozenset(names) else equal)
    return out


def _by_version(
    table: np.ndarray | None, items: IntArray, others: BoolArray, none: float
) -> np.ndarray | None:
    """A table of subjects x items for the versions, with ``none`` for those of other groups."""
    if table is None:
        return None
    table = np.array(table[:, items])
    table[others] = none
    return table


def versions_of(
    responses: Responses, grouping: Grouping | None, invariance: Any, names: tuple[str, ...]
) -> Versions:
    """The versions of the items from the ``invariance`` argument of `irtcat.fit`.

    Raises:
        InputError: without groups, for unknown items or parameters, or where no item is invariant.
    """
    if grouping is None:
        raise argument_error("invariance", "left out without groups", invariance)
    ids = [str(item) for item in responses.item_ids]
    equal = _equal_by_item(invariance, ids, names)
    if all(parameters is not None for parameters in equal):
        must = "all for one item at least, which connects the groups' scales"
        raise argument_error("invariance", must, invariance, "Without any, fit the groups apart.")
    pairs = [
        (j, code)
        for j, parameters in enumerate(equal)
        for code in ([-1] if parameters is None else range(len(grouping.labels)))
    ]
    at, codes = np.array(pairs).T
    new_ids = pd.Index(
        [ids[j] if code <= 0 else f"{ids[j]} ({grouping.labels[code]})" for j, code in pairs],
        dtype=object,
    )
    if new_ids.has_duplicates:
        taken = new_ids[new_ids.duplicated()][0]
        raise argument_error("item ids", "other than those of the items' versions", taken)
    values = np.array(responses.values)[:, at]
    none = np.nan if values.dtype.kind == "f" else -1
    others = (codes >= 0) & (grouping.codes[:, None] != codes)
    values[others] = none
    tied = {name: np.array([name in (equal[j] or ()) for j in at]) for name in names}
    versions = replace(
        responses,
        values=values,
        item_ids=new_ids.to_numpy(),
        items=responses.items.iloc[at],
        trials=_by_version(responses.trials, at, others, 0),
        trial_values=_by_version(responses.trial_values, at, others, np.nan),
        choices=_by_version(responses.choices, at, others, -1),
    )
    equal_versions = {name: mask for name, mask in tied.items() if mask.any()}
    return Versions(
        responses=versions,
        items=at,
        group=codes,
        equal=equal_versions,
        ids=tuple(ids),
        labels=tuple(str(label) for label in grouping.labels),
    )


def with_versions(
    prior: PriorTable,
    template: ItemModel,
    tied: tuple[int, ...],
    versions: Versions,
    dtype: np.dtype,
) -> tuple[tuple[int, ...], PriorTable]:
    """Tied columns and constraints with the ties between the versions of items."""
    if not versions.equal:
        return tied, prior
    n_items = len(versions.items)
    columns = {column: np.zeros(n_items, int) for column in tied}
    for name, mask in versions.equal.items():
        for column in field_columns(template, [name]):
            if column not in columns:
                alone = n_items + np.arange(n_items)
                columns[column] = np.where(mask, versions.items, alone)
    names = tuple(sorted(columns))
    labels = np.stack([columns[column] + 2 * n_items * column for column in names], axis=1)
    shared = shared_cells(labels, dtype)
    return names, prior._replace(constraints=prior.constraints._replace(shared=shared))


def with_version_columns(bank: ItemBank, versions: Versions) -> ItemBank:
    """The bank with the original id and the group of each version among its statistics."""
    labels = np.array([*versions.labels, ""], dtype=object)  # -1 is for all groups
    columns = {
        VERSION_OF: np.array(versions.ids, dtype=object)[versions.items],
        VERSION_GROUP: labels[versions.group],
    }
    return replace(bank, statistics=bank.statistics.assign(**columns))

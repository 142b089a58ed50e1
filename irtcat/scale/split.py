"""Splitting items into scales: by factors, or by groups."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.per_item import per_item
from irtcat.diagnose import ParallelAnalysis, factors, parallel_analysis
from irtcat.responses import Responses
from irtcat.scale.rules import Decisions

ALL = "all"


class Split(NamedTuple):
    """The subscales of the table.

    Attributes:
        items_by_scale: name of the scale -> positions of its items.
        n_factors: the number of factors, from parallel analysis or the argument; None with too few
            items for the analysis.
        analysis: the parallel analysis, or None.
        loadings: rotated loadings of several factors, or None.
        method: "factors", "groups" or "one".
    """

    items_by_scale: dict[str, np.ndarray]
    n_factors: int | None
    analysis: ParallelAnalysis | None
    loadings: pd.DataFrame | None
    method: str


def item_labels(responses: Responses, groups: Any) -> np.ndarray:
    """The group of each item, as text; None (for NaN and blank labels) means no group.

    Args:
        responses: with the items' metadata, if ``groups`` names a column of it.
        groups: a column, a mapping or Series by item id, or one label per item.

    Raises:
        InputError: for an unknown column, labels that do not match the items, or no labels.
    """
    values = per_item("groups", groups, responses.item_ids, [responses.items], "label", True)
    nested = [v for v in values if np.ndim(v) > 0]
    if nested:
        raise argument_error("groups", "such that each item has one label", nested[0])
    labels = np.array(
        [None if pd.isna(v) else str(v).strip() or None for v in values], dtype=object
    )
    if all(label is None for label in labels):
        raise argument_error("groups", "such that at least one item has a group", "none")
    return labels


def split_items(
    responses: Responses,
    usable: np.ndarray,
    groups: Any,
    n_factors: int | None,
    rotation: str,
    seed: int,
    record: Decisions,
) -> Split:
    """The subscales, by groups or by the factor with an item's highest loading."""
    analysis = None
    if n_factors is None and len(usable) > 2:
        analysis = parallel_analysis(responses.subset(items=usable), seed=seed)
        n_factors = analysis.n_factors
        first = float(analysis.to_frame()["eigenvalue"].iloc[0])
        record.add(
            "",
            0,
            "",
            "factors by parallel analysis",
            n_factors,
            np.nan,
            np.nan,
            f"eigenvalues above the 95th percentile of shuffled data (largest {first:.2f})",
            "note",
        )
    if groups is not None:
        labels = item_labels(responses, groups)
        items_by_scale = {
            str(label): usable[labels[usable] == label]
            for label in dict.fromkeys(labels[usable])
            if label is not None
        }
        if not items_by_scale:
            must = "such that an item that not all subjects answer alike has a group"
            raise argument_error("groups", must, "none")
        for item in usable[[labels[j] is None for j in usable]]:
            name = str(responses.item_ids[item])
            record.add("", 0, name, "group", np.nan, np.nan, np.nan, "none given", "drop")
        return Split(items_by_scale, n_factors, analysis, None, "groups")
    if n_factors is None or n_factors <= 1:
        return Split({ALL: usable}, n_factors, analysis, None, "one")
    table = factors(responses.subset(items=usable), n_factors, rotation).loadings
    names = [column for column in table.columns if column.startswith("F")]
    strongest = table[names].abs().to_numpy().argmax(axis=1)
    ids = pd.Index([str(name) for name in responses.item_ids])
    positions = ids.get_indexer(table.index.astype(str))
    items_by_scale = {name: positions[strongest == j] for j, name in enumerate(names)}
    for item, number in zip(table.index, strongest, strict=True):
        value = float(table.loc[item, names[number]])
        record.add(
            names[number],
            0,
            str(item),
            "loading",
            value,
            np.nan,
            np.nan,
            f"largest of {n_factors} ({rotation})",
            "assign",
        )
    items_by_scale = {name: items for name, items in items_by_scale.items() if len(items)}
    return Split(items_by_scale, n_factors, analysis, table, "factors")

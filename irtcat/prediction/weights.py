"""Groups of items, and the weight of each item in the score."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.per_item import per_item
from irtcat._common.types import FloatArray
from irtcat.responses import Responses

EQUAL = "equal"
"""Weights by which every group counts the same, whatever its number of items."""


def item_groups(responses: Responses, groups: Any) -> np.ndarray | None:
    """One label per item, from a column of ``responses.items`` or as passed."""
    if groups is None:
        return None
    labels = per_item("groups", groups, responses.item_ids, [responses.items], "label")
    labels = labels.astype(object)
    if pd.isna(labels).any():
        item = responses.item_ids[int(np.argmax(pd.isna(labels)))]
        raise argument_error("groups", "a label for every item", f"none for item {item}")
    return labels


def item_weights(item_ids: np.ndarray, weights: Any, labels: np.ndarray | None) -> FloatArray:
    """Weight of each item in the score; they sum to 1."""
    n_items = len(item_ids)
    if weights is None:
        return np.full(n_items, 1 / n_items)
    if isinstance(weights, str):
        if weights != EQUAL or labels is None:
            must = f'numbers, a mapping by group, or "{EQUAL}" with groups'
            raise argument_error("weights", must, weights)
        weights = dict.fromkeys(labels.tolist(), 1.0)
    if isinstance(weights, Mapping):
        values = _of_groups(weights, labels)
    else:
        values = _numbers(per_item("weights", weights, item_ids, what="number"))
    if not np.isfinite(values).all() or (values < 0).any() or values.sum() <= 0:
        raise argument_error("weights", "finite numbers of at least 0, not all 0", weights)
    return values / values.sum()


def _of_groups(weights: Mapping[Any, Any], labels: np.ndarray | None) -> FloatArray:
    """The weight of each group, shared equally by its items; group labels are compared as text."""
    if labels is None:
        raise argument_error("weights", "an array if no groups are given", weights)
    names = [str(label) for label in labels]
    by_name = {str(key): weight for key, weight in weights.items()}
    groups = list(dict.fromkeys(names))
    unknown = [key for key in by_name if key not in set(names)]
    missing = [name for name in groups if name not in by_name]
    if unknown or missing or len(by_name) < len(weights):
        advice = "Set weight 0 for a group that should not count."
        got = f"missing or other groups: {missing or unknown}"
        if not (unknown or missing):
            got = f"duplicates: {list(weights)}"
        raise argument_error("weights", f"a mapping with the groups {groups}", got, advice)
    size = Counter(names)
    return _numbers([by_name[name] for name in names]) / [size[name] for name in names]


def _numbers(weights: Any) -> FloatArray:
    try:
        return np.asarray(weights, float)
    except (TypeError, ValueError):
        raise argument_error("weights", "finite numbers of at least 0", weights) from None


def normalised(weights: FloatArray) -> FloatArray:
    """Weights that sum to 1; equal ones if all are 0."""
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / len(weights))

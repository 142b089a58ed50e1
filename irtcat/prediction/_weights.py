"""Groups of items, and how much each item weighs in the score."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error
from irtcat._types import FloatArray
from irtcat.responses import Responses

__all__ = ["item_groups", "item_weights"]


def item_groups(responses: Responses, groups: Any) -> np.ndarray | None:
    """One label an item, from a column of ``responses.items`` or as given."""
    if groups is None:
        return None
    if isinstance(groups, str):
        if groups not in responses.items.columns:
            known = ", ".join(map(str, responses.items.columns)) or "none"
            must = f"a column of the items' metadata ({known})"
            raise argument_error("groups", must, groups)
        labels = responses.items[groups].to_numpy(dtype=object)
    elif isinstance(groups, pd.Series):
        labels = groups.reindex(responses.item_ids).to_numpy(dtype=object)
    else:
        labels = np.asarray(groups, dtype=object)
    if labels.shape != (responses.n_items,):
        raise argument_error("groups", f"one label for {responses.n_items} items", labels.shape)
    if pd.isna(labels).any():
        item = responses.item_ids[int(np.argmax(pd.isna(labels)))]
        raise argument_error("groups", "a label for every item", f"none for item {item}")
    return labels


def item_weights(n_items: int, weights: Any, labels: np.ndarray | None) -> FloatArray:
    """Weight of each item in the score; they sum to 1."""
    if weights is None:
        return np.full(n_items, 1 / n_items)
    if isinstance(weights, Mapping):
        if labels is None:
            raise argument_error("weights", "an array where no groups are given", weights)
        strangers = [key for key in weights if key not in set(labels)]
        lacking = [key for key in pd.unique(labels) if key not in weights]
        if strangers or lacking:
            advice = "A group that is not to count has weight 0."
            got = f"{lacking or strangers}"
            must = f"given for the groups {pd.unique(labels).tolist()}"
            raise argument_error("weights", must, f"no or other ones: {got}", advice)
        size = pd.Series(labels).value_counts()
        values = np.array([float(weights[key]) / size[key] for key in labels])
    else:
        values = np.asarray(weights, float)
        if values.shape != (n_items,):
            raise argument_error("weights", f"one number for {n_items} items", values.shape)
    if not np.isfinite(values).all() or (values < 0).any() or values.sum() <= 0:
        raise argument_error("weights", "finite numbers of at least 0, not all 0", weights)
    return values / values.sum()

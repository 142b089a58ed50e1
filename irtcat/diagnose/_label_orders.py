"""Orders of suspicion other than that by the answers, and how well an order finds known errors."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import InputError, argument_error, check_count
from irtcat._types import FloatArray

__all__ = ["ORDERS", "average_precision", "lacking", "least_first", "precision_at"]
__all__ += ["read_dynamics", "recall_at"]

ORDERS = {
    "answers": ("log_odds", False),
    "wrong-key": ("log_odds_wrong_key", False),
    "discrimination": ("a", True),
    "feasibility": ("feasibility", True),
    "confidence": ("confidence", True),
}
"""Orders by name: the column, and whether the least is the most suspect."""

IN_ALL = ("answers", "discrimination", "feasibility", "confidence")
"""The orders of which "all" is the mean rank: "wrong-key" is of the answers, too."""

DYNAMICS = ("confidence", "variability", "correctness")


def read_dynamics(given: Any, ids: np.ndarray) -> pd.DataFrame:
    """Columns of cartography in the items' order; NaN for items that it does not have."""
    frame = given.to_frame() if hasattr(given, "to_frame") else given
    if not isinstance(frame, pd.DataFrame) or "confidence" not in frame:
        must = "training dynamics, or a table by item with a column confidence"
        raise argument_error("dynamics", must, type(given).__name__)
    named = frame.set_axis(frame.index.astype(str))
    if not named.index.is_unique:
        raise argument_error("dynamics", "one row per item", named.index[named.index.duplicated()])
    found = named.reindex(ids.astype(str))[[name for name in DYNAMICS if name in named]]
    try:
        found = found.astype(float)
    except (TypeError, ValueError):
        raise argument_error("dynamics", "with columns of numbers", "others") from None
    if found["confidence"].isna().all():
        raise argument_error("dynamics", "of the items of the responses", "none of them")
    confidence = found["confidence"].to_numpy(float)
    if ((confidence < 0) | (confidence > 1)).any():
        raise argument_error("dynamics", "with confidences from 0 to 1", "others")
    return found.set_axis(pd.Index(ids, name="item"))


def least_first(table: pd.DataFrame, by: str) -> FloatArray:
    """Number of each item by which the most suspect have the least; NaN: nothing is known.

    "all" is the mean rank over the orders whose columns are there.
    """
    if by == "all":
        orders = [least_first(table, name) for name in IN_ALL if _known(table, name)]
        ranks = [pd.Series(order).rank(na_option="bottom").to_numpy() for order in orders]
        return np.asarray(np.mean(ranks, axis=0), float)
    if not _known(table, by):
        raise lacking(by)
    column, rising = ORDERS[by]
    values = table[column].to_numpy(float)
    return values if rising else -values


def lacking(by: str) -> InputError:
    """The error where the evidence of an order is not given."""
    needs = {"feasibility": "feasibility=True", "confidence": "dynamics="}.get(by, "answers")
    return argument_error("by", f"an order whose evidence is given ({needs})", by)


def _known(table: pd.DataFrame, by: str) -> bool:
    column = ORDERS[by][0]
    return column in table and bool(table[column].notna().any())


def precision_at(ranking: Any, known_errors: Any, n: int) -> float:
    """Share of known errors among the n most suspect items.

    Args:
        ranking: what `rank` gives, a table by item or a list of ids, the most suspect first.
        known_errors: ids of the items known to be wrong; or a mask, as a Series by item or in the
            ranking's order. All others count as right.
        n: how many are looked at, up to the number of items.

    Raises:
        InputError: for ids that the ranking does not have, or n out of range.

    Example:
        >>> precision_at(["i3", "i1", "i2"], ["i3", "i2"], 2)
        0.5
    """
    hits = _hits(ranking, known_errors)
    check_count("n", n, 1, len(hits))
    return float(hits[:n].mean())


def recall_at(ranking: Any, known_errors: Any, n: int) -> float:
    """Share of the known errors that are among the n most suspect items; see `precision_at`.

    Example:
        >>> recall_at(["i3", "i1", "i2"], ["i3", "i2"], 1)
        0.5
    """
    hits = _hits(ranking, known_errors)
    check_count("n", n, 1, len(hits))
    return float(hits[:n].sum() / hits.sum())


def average_precision(ranking: Any, known_errors: Any) -> float:
    """Mean over the known errors of the precision down to each; see `precision_at`.

    In a random order it is about the share of errors.

    Example:
        >>> average_precision(["i3", "i1", "i2"], ["i3", "i2"])  # (1/1 + 2/3) / 2
        0.8333333333333333
    """
    hits = _hits(ranking, known_errors)
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())


def _hits(ranking: Any, known_errors: Any) -> np.ndarray:
    """Which items of the ranking are known errors."""
    table = getattr(ranking, "table", ranking)
    order = table.index if isinstance(table, pd.DataFrame) else table
    if isinstance(order, str) or np.ndim(order) != 1:
        raise argument_error("ranking", "a ranking, a table by item or a list of ids", order)
    ids = pd.Index(np.asarray(order).astype(str).astype(object))
    if not len(ids) or not ids.is_unique:
        raise argument_error("ranking", "items, each once", order)
    if isinstance(known_errors, pd.Series) and known_errors.dtype == bool:
        named = known_errors[known_errors].index.astype(str)
        if known_errors.index.astype(str).isin(ids).all():
            known_errors = named  # by item, in whatever order
    known = np.asarray(sorted(known_errors) if isinstance(known_errors, set) else known_errors)
    if known.ndim != 1:
        raise argument_error("known_errors", "a list of ids or a mask", known_errors)
    if known.dtype == bool:
        if known.shape != (len(ids),):
            raise argument_error("known_errors", f"a mask of {len(ids)} items", known.shape)
        hits = known
    else:
        known = known.astype(str).astype(object)
        strange = [each for each in known if each not in ids]
        if strange:
            raise argument_error("known_errors", "items of the ranking", strange)
        hits = np.asarray(ids.isin(known))
    if not hits.any():
        raise InputError("The `known_errors` argument must name at least one item. Got none.")
    return hits

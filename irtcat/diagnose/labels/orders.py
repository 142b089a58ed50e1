"""Orders of suspicion, and how well an order finds known errors."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_count
from irtcat._common.types import FloatArray


class Order(NamedTuple):
    """An order of the items.

    Attributes:
        column: what it sorts by.
        ascending: whether the lowest value is the most suspect.
        needs: what must be passed to `rank`, beyond right and wrong answers.
        text: the order in words.
        of_bank: whether the column is a property of the calibrated items.
    """

    column: str
    ascending: bool
    needs: str
    text: str
    of_bank: bool = False


ORDERS = {
    "answers": Order(
        "log_odds",
        False,
        "",
        "suspicion by the answers: the probability of a wrong key or an unrelated item",
    ),
    "wrong-key": Order(
        "log_odds_wrong_key", False, "", "probability of a wrong key by the answers"
    ),
    "discrimination": Order("a", True, "", "discrimination, lowest first", True),
    "feasibility": Order(
        "feasibility", True, "feasibility=True", "upper asymptote, lowest first", True
    ),
    "confidence": Order(
        "confidence",
        True,
        "dynamics= or a crowd with probabilities",
        "the learners' mean probability of the label, lowest first",
    ),
    "share": Order(
        "share",
        True,
        "",
        "share of learners that predict the label, lowest first: learners that were trained on "
        "labels rarely reproduce a wrong one",
    ),
    "classes": Order(
        "p_other_class",
        False,
        "a crowd",
        "probability that another class is right, by the learners' predictions and the estimated "
        "confusion of the classes",
    ),
    "margin": Order(
        "margin",
        True,
        "a crowd",
        "difference between the learners' probability of the label and of the best other class, "
        "relative to those of all items",
    ),
    "aum": Order(
        "aum",
        True,
        "a crowd with probabilities of all classes, or training dynamics from them",
        "mean margin of the label, in probability for a crowd and in logits for training dynamics",
    ),
}
"""Orders by name."""

OF_LEARNERS = {"size", "noise"}
"""Columns of the subjects of a crowd's responses (see `irtcat.training.crowd`)."""

IN_ALL = ("answers", "discrimination", "feasibility", "confidence")
"""The orders whose mean rank is "all": of those that use the answers only "answers"."""

DYNAMICS = ("confidence", "variability", "correctness")
DYNAMICS_ALONE = ("n", *DYNAMICS, "forgotten", "aum")


def is_dynamics(value: Any) -> bool:
    """Whether it is a result of `irtcat.training.dynamics`."""
    return hasattr(value, "regions") and isinstance(getattr(value, "table", None), pd.DataFrame)


def read_dynamics(dynamics: Any, ids: np.ndarray, alone: bool = False) -> pd.DataFrame:
    """Columns of the training dynamics in the items' order; NaN for items without any.

    Args:
        dynamics: what the user passes.
        ids: of the items.
        alone: whether there are no answers: then number of epochs, forgetting and margin as well,
            of which a crowd has its own.
    """
    frame = dynamics.to_frame() if hasattr(dynamics, "to_frame") else dynamics
    if not isinstance(frame, pd.DataFrame) or "confidence" not in frame:
        must = "training dynamics, or a table by item with a column confidence"
        raise argument_error("dynamics", must, type(dynamics).__name__)
    by_id = frame.set_axis(frame.index.astype(str))
    if not by_id.index.is_unique:
        raise argument_error("dynamics", "one row per item", by_id.index[by_id.index.duplicated()])
    wanted = DYNAMICS_ALONE if alone else DYNAMICS
    columns = by_id.reindex(ids.astype(str))[[name for name in wanted if name in by_id]]
    try:
        columns = columns.astype(float)
    except (TypeError, ValueError):
        raise argument_error("dynamics", "with columns of numbers", "other values") from None
    if columns["confidence"].isna().all():
        raise argument_error("dynamics", "of the items of the responses", "none of them")
    confidence = columns["confidence"].to_numpy(float)
    if ((confidence < 0) | (confidence > 1)).any():
        raise argument_error("dynamics", "with confidences from 0 to 1", "other values")
    if "n" in columns:
        columns["n"] = columns["n"].astype(int)
    return columns.set_axis(pd.Index(ids, name="item"))


def is_of_learners(subjects: pd.DataFrame) -> bool:
    """Whether the subjects are the members of a crowd, by their metadata."""
    return set(subjects.columns) >= OF_LEARNERS


def best_order(subjects: pd.DataFrame, columns: Iterable[str], wrong_keys: bool = False) -> str:
    """The order to use unless a check says otherwise.

    For crowds by experiments/label_detectors, for other answers by experiments/benchmark_labels.

    Args:
        subjects: metadata of the subjects.
        columns: columns of the table of items.
        wrong_keys: whether more of the items have wrong keys than are unrelated to ability.

    Example:
        >>> members = pd.DataFrame(columns=["size", "noise"])
        >>> best_order(pd.DataFrame(), []), best_order(members, []), best_order(members, ["aum"])
        ('answers', 'share', 'share')
        >>> best_order(pd.DataFrame(), [], wrong_keys=True)
        'wrong-key'
        >>> best_order(members, ["confidence", "p_other_class"])
        'classes'
    """
    for name in ("classes", "confidence"):
        if ORDERS[name].column in columns:
            return name
    if is_of_learners(subjects):
        return "share"
    return "wrong-key" if wrong_keys else "answers"


def order_keys(table: pd.DataFrame, names: Iterable[str] = ORDERS) -> dict[str, FloatArray]:
    """Sort keys by order, of those whose evidence is there."""
    return {name: sort_key(table, name) for name in names if _available(table, name)}


def sort_key(table: pd.DataFrame, by: str) -> FloatArray:
    """Sort key of each item, lowest for the most suspect; NaN without evidence.

    "all" is the mean rank over the orders whose columns are available.
    """
    if by == "all":
        keys = order_keys(table, IN_ALL).values()
        ranks = [pd.Series(key).rank(na_option="bottom").to_numpy() for key in keys]
        return np.asarray(np.mean(ranks, axis=0), float)
    if not _available(table, by):
        raise missing_evidence(by)
    order = ORDERS[by]
    values = table[order.column].to_numpy(float)
    return values if order.ascending else -values


def missing_evidence(by: str) -> InputError:
    """The error for an order whose evidence was not passed."""
    needs = ORDERS[by].needs or "answers"
    return argument_error("by", f"an order whose evidence is passed ({needs})", by)


def _available(table: pd.DataFrame, by: str) -> bool:
    column = ORDERS[by].column
    return column in table and bool(table[column].notna().any())


def precision_at(ranking: Any, known_errors: Any, n: int) -> float:
    """Share of known errors among the n most suspect items.

    Args:
        ranking: the result of `rank`, a table by item or a list of ids, the most suspect first.
        known_errors: ids of the items known to be wrong; or a mask, as a Series by item or in the
            ranking's order. All others count as right.
        n: number of items to inspect, at most all.

    Raises:
        InputError: for ids that are not in the ranking, or n out of range.

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
    """Mean over the known errors of the precision at each; see `precision_at`.

    For a random order it is about the share of errors.

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
        names = known_errors[known_errors].index.astype(str)
        if known_errors.index.astype(str).isin(ids).all():
            known_errors = names  # a mask by item, in any order
    known = np.asarray(sorted(known_errors) if isinstance(known_errors, set) else known_errors)
    if known.ndim != 1:
        raise argument_error("known_errors", "a list of ids or a mask", known_errors)
    if known.dtype == bool:
        if known.shape != (len(ids),):
            raise argument_error("known_errors", f"a mask of {len(ids)} items", known.shape)
        hits = known
    else:
        known = known.astype(str).astype(object)
        unknown = [name for name in known if name not in ids]
        if unknown:
            raise argument_error("known_errors", "items of the ranking", unknown)
        hits = np.asarray(ids.isin(known))
    if not hits.any():
        raise InputError("The `known_errors` argument must name at least one item. Got none.")
    return hits

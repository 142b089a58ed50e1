"""Whole scores and their frequencies."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count
from irtcat._common.per_item import by_id
from irtcat._common.types import FloatArray, IntArray
from irtcat.responses import Responses


def whole_scores(name: str, data: Any) -> tuple[IntArray, int]:
    """Scores and the highest possible one (of scores the highest that occurs).

    Args:
        name: the argument, for messages.
        data: whole scores of at least 0, or complete responses, whose codes from 0 are added up.
    """
    if isinstance(data, Responses):
        if data.is_fractional or data.trials is not None:
            raise argument_error(name, "right/wrong or in categories", data.kind)
        if data.n_missing:
            must, got = "without missing answers", [f"{data.n_missing} missing"]
            raise argument_error(name, must, got, "Leave out these subjects, or count them wrong.")
        return data.values.sum(axis=1, dtype=int), data.n_items * data.highest
    try:
        values = np.asarray(data, float)
    except (TypeError, ValueError):
        raise argument_error(name, "whole scores, or responses", data) from None
    if values.ndim != 1 or len(values) < 2:
        raise argument_error(name, "at least 2 scores, one a subject", np.shape(values))
    wrong = ~np.isfinite(values) | (values < 0) | (values % 1 != 0)
    if wrong.any():
        raise argument_error(name, "whole scores of at least 0", values[wrong][0])
    return values.astype(int), int(values.max())


def _ids(data: Any) -> Any:
    """Ids of the subjects; None for numbers without ids."""
    if isinstance(data, Responses):
        return data.subject_ids
    labelled = isinstance(data, pd.Series) and not isinstance(data.index, pd.RangeIndex)
    return data.index if labelled else None


def score_counts(
    name: str, data: Any, max_name: str, max_score: int | None, beside: Any = None
) -> FloatArray:
    """Frequencies of the scores 0, 1, ..., or of pairs of scores.

    Args:
        name: the argument, for messages.
        data: scores or responses.
        max_name: the argument of the highest score, for messages.
        max_score: the highest possible score; None for the default of `whole_scores`.
        beside: other scores of the same subjects, matched by id where both have ids, with their
            number of scores: (name, data, size).
    """
    scores, highest = whole_scores(name, data)
    if max_score is not None:
        check_count(max_name, max_score, int(scores.max()))
        highest = max_score
    if beside is None:
        return np.bincount(scores, minlength=highest + 1).astype(float)
    other_name, other_data, size = beside
    other, _ = whole_scores(other_name, other_data)
    if len(other) != len(scores):
        must = f"a score for each of the {len(scores)} subjects of {name}"
        raise argument_error(other_name, must, len(other))
    ids, other_ids = _ids(data), _ids(other_data)
    if ids is not None and other_ids is not None:
        other = by_id(other_name, pd.Series(other, other_ids), ids, "subject", "score").to_numpy()
    cells = np.ravel_multi_index((scores, other), (highest + 1, size))
    counts = np.bincount(cells, minlength=(highest + 1) * size).reshape(highest + 1, size)
    return counts.astype(float)

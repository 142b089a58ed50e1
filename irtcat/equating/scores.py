"""Whole scores, their frequencies, and the table of equated scores."""

from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class Equated:
    """The result of `equate` and `equate_banks`.

    Attributes:
        table: indexed by the score on form X: equated (its score on form Y, not rounded), se (NaN
            if not computed).
        method: the method.
        design: "equivalent-groups", "single-group" or "anchor"; "banks" of `equate_banks`.
    """

    table: pd.DataFrame
    method: str
    design: str

    def to_frame(self) -> pd.DataFrame:
        """The table of scores."""
        return self.table.copy()

    def convert(self, scores: Any) -> FloatArray:
        """Scores on form X as scores on form Y; NaN stays.

        Args:
            scores: whole scores of the table.

        Raises:
            InputError: a score is not in the table.

        Example:
            >>> from irtcat.equating import equate
            >>> equate([1, 2, 3], [2, 3, 4], "mean").convert([0, 3]).tolist()
            [1.0, 4.0]
        """
        try:
            values = np.asarray(scores, float)
        except (TypeError, ValueError):
            raise argument_error("scores", "whole scores", scores) from None
        known = ~np.isnan(values)
        inside = np.isin(values[known], self.table.index)
        if not inside.all():
            must = f"whole scores from 0 to {self.table.index[-1]}"
            raise argument_error("scores", must, values[known][~inside][0])
        out = np.full(values.shape, np.nan)
        out[known] = self.table["equated"].to_numpy()[values[known].astype(int)]
        return out

    def __repr__(self) -> str:
        return f"Equated({self.method}, {self.design}: {len(self.table)} scores)"


def equated_table(equated: FloatArray, errors: FloatArray | None) -> pd.DataFrame:
    """The table of scores."""
    se = np.full(len(equated), np.nan) if errors is None else errors
    index = pd.RangeIndex(len(equated), name="score")
    return pd.DataFrame({"equated": equated, "se": se}, index=index)

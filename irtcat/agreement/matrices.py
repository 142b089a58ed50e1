"""Correlation matrices of several scores, with significance."""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error, check_choice, check_interval
from irtcat._types import FloatArray
from irtcat.agreement._corrections import CORRECTIONS, adjust
from irtcat.agreement._lists import is_constant
from irtcat.agreement.correlations import CORRELATIONS, p_value

__all__ = ["CorrelationMatrix", "correlation_matrix"]

MIN_ROWS = 3
"""Two rows always correlate perfectly."""


@dataclass(frozen=True, eq=False)
class CorrelationMatrix:
    """Correlations of every two columns; frames with the columns' names in rows and columns.

    Attributes:
        values: correlations, 1 on the diagonal.
        p_values: unadjusted two-sided p-values, NaN on the diagonal.
        adjusted: p-values adjusted for multiple testing.
        n: number of pairs of values of each correlation.
        method: ``"kendall"``, ``"spearman"`` or ``"pearson"``.
        correction: how p-values were adjusted.
        alpha: adjusted p-values below it are significant.
    """

    values: pd.DataFrame
    p_values: pd.DataFrame
    adjusted: pd.DataFrame
    n: pd.DataFrame
    method: str
    correction: str
    alpha: float

    @property
    def significant(self) -> pd.DataFrame:
        """Where the adjusted p-value is below ``alpha``; True on the diagonal."""
        out = self.adjusted < self.alpha
        return out | np.eye(len(out), dtype=bool)

    def to_frame(self) -> pd.DataFrame:
        """A row per pair: first, second, correlation, p_value, adjusted, significant, n."""
        names = list(self.values.columns)
        first, second = np.triu_indices(len(names), 1)
        columns = {"correlation": self.values, "p_value": self.p_values, "adjusted": self.adjusted}
        columns |= {"significant": self.significant, "n": self.n}
        pairs = {"first": [names[i] for i in first], "second": [names[j] for j in second]}
        return pd.DataFrame(pairs | {k: v.to_numpy()[first, second] for k, v in columns.items()})


def correlation_matrix(
    data: Any,
    method: str = "pearson",
    *,
    correction: str = "holm",
    alpha: float = 0.05,
    names: Any = None,
) -> CorrelationMatrix:
    """Correlations of every two columns of a table, and which of them differ from 0.

    Each pair of columns uses the rows in which both have a value.

    Args:
        data: rows are subjects and columns scores: a frame, a matrix, or a dict of lists; NaN is
            missing.
        method: ``"kendall"`` (tau-b), ``"spearman"`` or ``"pearson"``; p-values as in
            `correlation_test`.
        correction: of the p-values of all pairs: ``"holm"``, ``"benjamini-hochberg"``
            (or ``"bh"``, for short) or ``"none"``.
        alpha: level of significance.
        names: of the columns, instead of the frame's.

    Returns:
        Correlations, p-values and numbers of rows.

    Raises:
        InputError: for fewer than 2 columns; and, naming the columns, if one is constant or two
            have fewer than 3 rows in common.

    Example:
        >>> scores = {"ability": [1, 2, 3, 4, 5], "accuracy": [2, 4, 5, 7, 9]}
        >>> scores["speed"] = [3, 1, 2, 5, 4]
        >>> result = correlation_matrix(scores, correction="none")
        >>> result.values.round(2)
                  ability  accuracy  speed
        ability      1.00      0.99   0.60
        accuracy     0.99      1.00   0.59
        speed        0.60      0.59   1.00
        >>> result.significant.loc["ability"].tolist()
        [True, True, False]

    References:
        Lalor, Wu, Munkhdalai & Yu (2018), Figure 1; Holm (1979); Benjamini & Hochberg (1995).
    """
    check_choice("method", method, CORRELATIONS)
    check_choice("correction", correction, CORRECTIONS)
    check_interval("alpha", alpha)
    columns, labels = _columns(data, names)
    k = len(labels)
    values, p, n = np.eye(k), np.full((k, k), np.nan), np.zeros((k, k), dtype=int)
    np.fill_diagonal(n, (~np.isnan(columns)).sum(axis=0))
    for i, j in combinations(range(k), 2):
        x, y = _common(columns, labels, i, j)
        values[i, j] = values[j, i] = CORRELATIONS[method](x, y)
        p[i, j] = p_value(method, x, y)
        n[i, j] = n[j, i] = len(x)
    adjusted = adjust(p, correction)  # upper triangle only: each test once
    index = pd.Index(labels, tupleize_cols=False)
    lower = np.tril_indices(k, -1)
    for matrix in (p, adjusted):
        matrix[lower] = matrix.T[lower]
    return CorrelationMatrix(
        values=pd.DataFrame(values, index, index),
        p_values=pd.DataFrame(p, index, index),
        adjusted=pd.DataFrame(adjusted, index, index),
        n=pd.DataFrame(n, index, index),
        method=method,
        correction=correction,
        alpha=alpha,
    )


def _columns(data: Any, names: Any) -> tuple[FloatArray, list[Hashable]]:
    """The table as a matrix of float64, NaN where a value is missing, and the columns' names."""
    must = "a table of numbers with at least 2 columns"
    try:
        frame = data if isinstance(data, pd.DataFrame) else pd.DataFrame(data)
        matrix = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise argument_error("data", must, data) from None
    if matrix.shape[1] < 2:
        raise argument_error("data", must, f"a table of shape {matrix.shape}")
    labels = list(frame.columns) if names is None else list(names)
    if len(labels) != matrix.shape[1] or len(set(labels)) < len(labels):
        argument = "data" if names is None else "names"
        got = f"{len(labels)}, {len(set(labels))} of them distinct"
        raise argument_error(argument, f"{matrix.shape[1]} columns with distinct names", got)
    for name, values in zip(labels, matrix.T, strict=True):
        present = values[~np.isnan(values)]
        if np.isinf(present).any():
            raise argument_error("data", "finite numbers", f"an infinite one in column {name!r}")
        if len(present) and is_constant(present):
            got = f"{present[0]:g} throughout in column {name!r}"
            raise argument_error("data", "columns that vary", got)
    return matrix, labels


def _common(
    columns: FloatArray, labels: list[Hashable], i: int, j: int
) -> tuple[FloatArray, FloatArray]:
    """The values of two columns in the rows where neither is missing."""
    both = ~np.isnan(columns[:, [i, j]]).any(axis=1)
    x, y = columns[both, i], columns[both, j]
    pair = f"in columns {labels[i]!r} and {labels[j]!r}"
    if len(x) < MIN_ROWS:
        raise argument_error("data", f"{MIN_ROWS} or more rows with values", f"{len(x)} {pair}")
    if is_constant(x) or is_constant(y):
        must = "columns that vary over the rows they have in common"
        raise argument_error("data", must, f"a constant one {pair}")
    return x, y

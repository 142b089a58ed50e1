"""The result of equating: a table of scores."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray


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

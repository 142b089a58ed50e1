"""Norms: the distribution of full scores that a short form has in the place of the subjects."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.types import FloatArray
from irtcat.prediction.out_of_range import group_starts


class Norms(NamedTuple):
    """The distribution of the calibrated subjects' full scores, as a table of groups.

    Attributes:
        n_subjects: number of calibrated subjects.
        share: mean rank of each group of five subjects or more, in n + 1, rising.
        score: mean full score of each group.
    """

    n_subjects: int
    share: FloatArray
    score: FloatArray

    @staticmethod
    def of(scores: FloatArray) -> "Norms":
        """The norms of some scores; at most 200 groups."""
        n = len(scores)
        first = group_starts(n)
        size = np.diff(first, append=n)
        share = np.add.reduceat(np.arange(1, n + 1), first) / size / (n + 1)
        return Norms(n, share, np.add.reduceat(np.sort(scores), first) / size)

    def to_scores(self) -> pd.Series:
        """As many scores as there are calibrated subjects, interpolated between the groups."""
        ranks = np.arange(1, self.n_subjects + 1)
        scores = np.interp(ranks / (self.n_subjects + 1), self.share, self.score)
        index = pd.Index([f"norm {rank}" for rank in ranks], dtype=object, name="calibrated")
        return pd.Series(scores, index=index, name="score")

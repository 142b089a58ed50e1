"""Positions of millions of ids, in 16 bytes an id beside the ids themselves."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.types import IntArray

BATCH = 1 << 16
"""Texts that are Python objects at a time; each takes 60 bytes or more."""


class IdIndex:
    """Positions by the text of ids, of which there is at least one.

    Hashes of 64 bits are sorted and looked up instead of a dictionary of objects, and the texts at
    the positions found are compared.

    Attributes:
        repeated: the first text that occurred before; None if they are unique.
    """

    def __init__(self, ids: pd.Index) -> None:
        self._ids = ids.astype(str)
        starts = range(0, len(ids), BATCH)
        hashes = [_hashes(self._ids[start : start + BATCH]) for start in starts]
        joined = np.concatenate([np.empty(0, np.uint64), *hashes])
        self._order = np.argsort(joined, kind="stable")
        self._hashes = joined[self._order]
        equal = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
        # Different texts with one hash: one pair in 400,000 sets of ten million ids.
        same = np.union1d(self._order[equal], self._order[equal + 1])
        self._others: dict[str, int] = {}
        self.repeated: str | None = None
        for k in same:
            if self._others.setdefault(self._ids[k], int(k)) != k:
                self.repeated = self._ids[k]
                break

    def positions(self, texts: pd.Index | list[str]) -> IntArray:
        """The position of each text, from 0; -1 for texts that are no id, and for missing ones."""
        index = pd.Index(texts, dtype=self._ids.dtype)
        starts = range(0, len(index), BATCH)
        parts = [self._positions(index[start : start + BATCH]) for start in starts]
        return np.concatenate([np.empty(0, int), *parts])

    def _positions(self, texts: pd.Index) -> IntArray:
        hashes = _hashes(texts)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        found = np.where(self._hashes[at] == hashes, self._order[at], -1)
        same = np.asarray(self._ids.take(np.maximum(found, 0)) == texts, bool)
        found = np.where(same, found, -1)
        if self._others:
            pairs = zip(texts, found, strict=True)
            found = np.array([self._others.get(text, k) for text, k in pairs], int)
        return found


def first_repeated(ids: pd.Index) -> Any:
    """The first id that occurred before; None if all are unique.

    Example:
        >>> first_repeated(pd.Index(["a", "b", "a"]))
        'a'
    """
    if isinstance(ids.dtype, pd.StringDtype):
        return IdIndex(ids).repeated
    return None if ids.is_unique else ids[ids.duplicated()].tolist()[0]


def _hashes(texts: pd.Index) -> np.ndarray:
    return pd.util.hash_array(np.asarray(texts, object), categorize=False)

"""Positions of subjects or items that a user selects by ids, positions, a mask or a slice.

Also the positions of millions of ids, in 16 bytes an id beside the ids themselves.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, brief, shorten
from irtcat._common.types import IntArray

BATCH = 1 << 16
"""Texts that are Python objects at a time; each takes 60 bytes or more."""


def selected_positions(
    name: str, selection: Any, ids: np.ndarray, distinct: bool = False
) -> IntArray:
    """Positions from 0 of what is selected, in the order of the selection.

    Args:
        name: the argument, for messages.
        selection: ids, positions (negative ones count from the end), a mask or a slice; or one id
            or position.
        ids: all ids, each once.
        distinct: whether at least one must be selected, and none twice.

    Raises:
        InputError: naming unknown ids, positions out of range or repeats; or for a mask of another
            length.

    Example:
        >>> ids = np.array(["a", "b", "c"])
        >>> selected_positions("items", ["b", "a"], ids).tolist()
        [1, 0]
        >>> selected_positions("items", slice(-2, None), ids).tolist()
        [1, 2]
    """
    if isinstance(selection, slice):
        selection = np.arange(len(ids))[selection]
    if isinstance(selection, (str, int, np.integer)):
        selection = [selection]
    if not isinstance(selection, Iterable):
        raise argument_error(name, "ids, positions, a mask or a slice", selection)
    chosen = np.asarray(selection if isinstance(selection, np.ndarray) else list(selection))
    at: IntArray
    if chosen.dtype.kind == "b":
        if chosen.shape != (len(ids),):
            raise argument_error(name, f"a mask of length {len(ids)}", f"shape {chosen.shape}")
        at = np.flatnonzero(chosen)
    elif chosen.dtype.kind in "iu" and chosen.ndim == 1:
        outside = (chosen < -len(ids)) | (chosen >= len(ids))
        if outside.any():
            must = f"positions between {-len(ids)} and {len(ids) - 1}"
            raise argument_error(name, must, chosen[outside])
        at = np.where(chosen < 0, chosen + len(ids), chosen).astype(np.intp)
    else:
        at = positions_of_ids(name, chosen.ravel(), ids)
    if distinct:
        if not at.size:
            raise argument_error(name, "a selection of at least one", "none")
        unique, counts = np.unique(at, return_counts=True)
        if len(unique) < len(at):
            got = f"repeats of {shorten(ids[unique[counts > 1]])}"
            raise InputError(f"The `{name}` argument must select each one once. Got {got}.")
    return at


def positions_of_ids(name: str, wanted: Iterable[Any], ids: Any) -> IntArray:
    """Positions of wanted ids among all ids, as text, in the order of the wanted ones.

    Args:
        name: the argument, for messages.
        wanted: ids, which may repeat.
        ids: all ids, each once; a `pandas.Index` of text is not hashed again for every call.

    Raises:
        InputError: naming unknown ids.

    Example:
        >>> positions_of_ids("items", ["c", "a"], ["a", "b", "c"]).tolist()
        [2, 0]
        >>> positions_of_ids("items", ["d"], ["a", "b", "c"])
        Traceback (most recent call last):
        irtcat._common.errors.InputError: The `items` argument must be among the 3 ids, such as a...
    """
    texts = list(map(str, wanted))
    known = ids if isinstance(ids, pd.Index) else pd.Index(list(map(str, ids)), dtype=object)
    at = known.get_indexer(pd.Index(texts, dtype=known.dtype))
    if (at < 0).any():
        must = f"among the {len(known)} ids, such as {brief(known[0])}"
        unknown = [text for text, position in zip(texts, at, strict=True) if position < 0]
        raise argument_error(name, must, unknown)
    return at


def places_of(wanted: Any, ids: Any) -> IntArray:
    """Positions of wanted ids among other ids, as text; -1 of those that are not there.

    Example:
        >>> places_of(["c", "d"], ["a", "b", "c"]).tolist()
        [2, -1]
    """
    known = pd.Index(np.asarray(ids, dtype=str))
    return known.get_indexer(pd.Index(np.asarray(wanted, dtype=str)))


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

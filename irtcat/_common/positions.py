"""Positions of subjects or items that a user selects by ids, positions, a mask or a slice."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, brief, shorten
from irtcat._common.types import IntArray


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
        irtcat._common.checks.InputError: The `items` argument must be among the 3 ids, such as a...
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

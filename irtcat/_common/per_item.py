"""One value for each item from users: a metadata column, by id, or in the items' order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, shorten


def has_ids(values: pd.Series | pd.DataFrame) -> bool:
    """Whether the index of a Series or frame has ids, unlike the default one.

    Example:
        >>> has_ids(pd.Series([1, 2])), has_ids(pd.Series([1, 2], index=["b", "a"]))
        (False, True)
        >>> has_ids(pd.Series([1, 2])[::-1])  # in another order
        True
    """
    return not values.index.equals(pd.RangeIndex(len(values)))


def by_id(
    name: str, values: Any, ids: Any, kind: str, what: str = "value", partial: bool = False
) -> Any:
    """The rows of a Series, mapping or frame that belong to ids, in the order of the ids.

    Args:
        name: the argument's name.
        values: indexed by id; ids are compared as text.
        ids: ids of the items or subjects.
        kind: "item" or "subject", for messages.
        what: what each of them has, for messages.
        partial: whether an id may lack a row (NaN); then all rows must be of these ids.

    Raises:
        InputError: an id has several rows or none, or there are rows of other ids.

    Example:
        >>> by_id("costs", {"y": 3, "x": 5}, ["x", "y"], "item").tolist()
        [5, 3]
    """
    table = pd.Series(dict(values), dtype=object) if isinstance(values, Mapping) else values
    index = pd.Index([str(key) for key in table.index], dtype=object)
    wanted = pd.Index([str(key) for key in ids], dtype=object)
    repeated = index[index.duplicated()].intersection(wanted)
    if len(repeated):
        raise argument_error(name, f"one value for each {kind}", f"several for {repeated[0]!r}")
    others = index.difference(wanted, sort=False)
    if partial and len(others):
        raise argument_error(name, f"a {what} for each {kind}", f"one for {others[0]}")
    missing = wanted.difference(index, sort=False)
    if not partial and len(missing):
        raise argument_error(name, f"a {what} for every {kind}", f"none for {missing[0]}")
    return table.set_axis(index)[~index.duplicated()].reindex(wanted)


def in_order(name: str, values: Any, ids: Any, kind: str, what: str = "value") -> Any:
    """Values in the order of the ids: `by_id` of what has ids, others as they are.

    Example:
        >>> in_order("costs", {"y": 3, "x": 5}, ["x", "y"], "item").tolist()
        [5, 3]
        >>> in_order("costs", [3, 5], ["x", "y"], "item")
        [3, 5]
    """
    if isinstance(values, Mapping) or (isinstance(values, pd.Series) and has_ids(values)):
        return by_id(name, values, ids, kind, what)
    return values


def column_error(name: str, column: Any, known: Iterable[Any], kind: str) -> InputError:
    """The error for an argument that names no column of the metadata of items or subjects.

    Args:
        name: the argument's name.
        column: its value.
        known: the columns.
        kind: "item" or "subject".

    Example:
        >>> print(column_error("groups", "topic", [], "item"))
        The `groups` argument must be a column of the items' metadata, which has none. \
Got 'topic'. Responses take it as items=TABLE.
    """
    names = [str(each) for each in known]
    have = f" ({shorten(names)})" if names else ", which has none"
    must = f"a column of the {kind}s' metadata{have}"
    return argument_error(name, must, column, f"Responses take it as {kind}s=TABLE.")


def per_item(
    name: str,
    value: Any,
    item_ids: Any,
    tables: Sequence[pd.DataFrame] = (),
    what: str = "value",
    partial: bool = False,
) -> np.ndarray:
    """One value per item, in the order of the items.

    Args:
        name: the argument's name.
        value: a column of a table, a Series or mapping by item id, or a value for each item.
        item_ids: ids of the items.
        tables: metadata of items by id; the first with the column is used.
        what: what each item has, for messages.
        partial: whether an item may lack a value in a Series or mapping (see `by_id`).

    Raises:
        InputError: an unknown column, a wrong number of values, or as `by_id`.

    Example:
        >>> table = pd.DataFrame({"topic": ["a", "b"]}, index=["x", "y"])
        >>> per_item("groups", "topic", ["y", "x"], [table]).tolist()
        ['b', 'a']
    """
    if isinstance(value, str) and tables:
        for table in tables:
            if value in table.columns:
                return table[value].reindex(item_ids).to_numpy()
        known = dict.fromkeys(str(column) for table in tables for column in table.columns)
        raise column_error(name, value, known, "item")
    if isinstance(value, (pd.Series, Mapping)):
        return by_id(name, value, item_ids, "item", what, partial).to_numpy()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise argument_error(name, f"a {what} for each item", value)
    # Objects, so that numpy does not turn NaN among texts into the text "nan".
    values = value if isinstance(value, np.ndarray) else np.array(list(value), dtype=object)
    if values.shape != (len(item_ids),):
        must = f"one {what} for {len(item_ids)} items"
        raise argument_error(name, must, f"shape {values.shape}")
    return values

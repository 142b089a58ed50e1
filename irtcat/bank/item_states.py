"""State of the items of a bank: columns of its statistics, and the flags that tell people of it.

A state is data, such as a mask of items or the categories that nobody used. Flags are texts, which
are made from it where a table, a summary or a report shows them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.types import BoolArray

FLAG = "flag"
"""Column of `irtcat.ItemBank.to_frame` with the flags of each item."""

BLOCK = "block"
"""Column of `irtcat.ItemBank.statistics` with the block of items that subjects connect."""


class State(NamedTuple):
    """A column of state, and how its value is shown.

    Attributes:
        empty: the value of items without the state.
        flags: the texts of an item with another value.
    """

    empty: Any
    flags: Callable[[Any], Iterable[str]]


def _mark(*texts: str) -> State:
    """A state that an item has or has not."""
    return State(False, lambda _: texts)


STATES: Mapping[str, State] = {
    "estimated": _mark(),
    "anchored": _mark("anchored"),
    "predicted": _mark("predicted"),
    "unanswered": _mark("no responses"),
    "constant": _mark("constant"),
    "weak_prior": _mark("weak prior"),
    "unused": State(
        (), lambda categories: [f"category {k + 1} of its answers never used" for k in categories]
    ),
    "at_bound": State((), lambda names: [f"{name} at its bound" for name in names]),
    "negative_slope": _mark("negative slope"),
    "singular": _mark("no standard error: its information is singular"),
    "at_edge": State(0.0, lambda share: [f"{share:.0%} of scores at 0 or 1"]),
}
"""Columns of `irtcat.ItemBank.statistics` that hold states of items, in the order of their flags.

- estimated: its parameters were estimated from responses;
- anchored: they were known before;
- predicted: they are from its features, as nobody has answered it;
- unanswered, constant: there were no responses, or equal ones;
- weak_prior: one of its answers was rare, and its parameters have a weak prior;
- unused: the categories, from 0 on, that nobody used;
- at_bound: names of the parameters at a bound;
- singular: a parameter has no standard error, since its information is singular;
- at_edge: the share of scores of 0 or 1, where it is high for a continuous density.

A bank may lack the columns of states that none of its items has.
"""


class Flag(NamedTuple):
    """One flag of an item.

    Attributes:
        state: the column that it is made from.
        text: what it says.
    """

    state: str
    text: str


def checked_states(statistics: pd.DataFrame) -> pd.DataFrame:
    """The statistics with the columns of states in standard form.

    Raises:
        InputError: for a column ``flag``.
    """
    if FLAG in statistics:
        must = f"without a column {FLAG}, which is made from the columns of states"
        raise argument_error("statistics", must, list(statistics))
    changed = {}
    for name in STATES.keys() & set(statistics.columns):
        empty, column = STATES[name].empty, statistics[name]
        if isinstance(empty, tuple):
            values = [tuple(v) if isinstance(v, list | tuple | np.ndarray) else () for v in column]
            changed[name] = pd.Series(values, column.index, dtype=object)
        elif column.dtype != bool or empty is not False:  # else it is in standard form
            known = column.astype(object).where(column.notna(), empty)
            changed[name] = known.astype(type(empty))
    return statistics.assign(**changed) if changed else statistics


def with_states(statistics: pd.DataFrame, states: Mapping[str, Any]) -> pd.DataFrame:
    """The statistics with further columns of states, those without any item left out.

    Args:
        statistics: a table with one row per item.
        states: for each name in `STATES` one value, or one per item.
    """
    new = {}
    for name, values in states.items():
        if np.isscalar(values):
            if values != STATES[name].empty:
                new[name] = pd.Series([values] * len(statistics), statistics.index)
        elif _differs(values, STATES[name].empty):
            new[name] = pd.Series(list(values), statistics.index)
    earlier = [name for name in states if name in statistics]
    return (statistics.drop(columns=earlier) if earlier else statistics).assign(**new)


def _differs(values: Any, empty: Any) -> bool:
    """Whether any value is another than this one."""
    if isinstance(values, np.ndarray):  # of thousands of items, as most are in a fit
        return bool((values != empty).any())
    return any(value != empty for value in values)


def marked_items(statistics: pd.DataFrame, name: str) -> BoolArray:
    """Which items have a state."""
    if name not in statistics:
        return np.zeros(len(statistics), bool)
    if isinstance(STATES[name].empty, tuple):
        return np.array([len(value) > 0 for value in statistics[name]], bool)
    return statistics[name].to_numpy() != STATES[name].empty


def flags_of(statistics: pd.DataFrame) -> list[list[Flag]]:
    """The flags of each item.

    Example:
        >>> table = pd.DataFrame({"constant": [True, False], "unused": [(0, 2), ()]})
        >>> [[flag.text for flag in flags] for flags in flags_of(table)][0][:2]
        ['constant', 'category 1 of its answers never used']
    """
    flags: list[list[Flag]] = [[] for _ in range(len(statistics))]
    for name in STATES:
        at = np.flatnonzero(marked_items(statistics, name))
        for j, value in zip(at, statistics[name].iloc[at] if len(at) else (), strict=True):
            flags[j] += [Flag(name, text) for text in STATES[name].flags(value)]
    if BLOCK in statistics:
        blocks = np.nan_to_num(statistics[BLOCK].to_numpy(float)).astype(int)
        for j in np.flatnonzero(blocks > 1):
            flags[j].append(Flag(BLOCK, f"block {blocks[j]} of {blocks.max()}"))
    return flags


def shown_statistics(statistics: pd.DataFrame) -> pd.DataFrame:
    """The statistics as tables show them: their states as flags, in the last column."""
    if not statistics.shape[1]:
        return statistics
    texts = ["; ".join(flag.text for flag in flags) for flags in flags_of(statistics)]
    plain = statistics.drop(columns=[name for name in STATES if name in statistics])
    return plain.assign(**{FLAG: pd.Series(texts, statistics.index, dtype=object)})

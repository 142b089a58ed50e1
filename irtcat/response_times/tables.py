"""Tables of response times: what is accepted, and what is refused."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, brief, check_ids, check_positive, check_unique
from irtcat._common.types import FloatArray

LONG = ("subject", "item", "seconds")
"""Columns of a table with one row an answer."""

MIN_AT_LIMIT, MIN_SHARE_AT_LIMIT = 5, 0.01
"""So many times, and this share of all, that equal the largest look like those of a time limit."""


class Times(NamedTuple):
    """Times of subjects on items.

    Attributes:
        seconds: subjects x items, NaN where missing.
        subject_ids: one for each row.
        item_ids: one for each column.
    """

    seconds: FloatArray
    subject_ids: np.ndarray
    item_ids: np.ndarray

    @property
    def logs(self) -> FloatArray:
        """Logarithms of the times."""
        return np.log(self.seconds)


def read_times(times: Any, subject_ids: Any = None, item_ids: Any = None) -> Times:
    """Times of a data frame or an array.

    Args:
        times: a data frame of subjects x items, or one with the columns subject, item and seconds;
            or an array, whose ids follow.
        subject_ids: of an array's rows; numbered s1, s2, ... by default.
        item_ids: of an array's columns; numbered i1, i2, ... by default.

    Raises:
        InputError: a time is not a number above 0, or a subject has two times on an item.
    """
    if isinstance(times, Times):
        return times
    table: Any
    if isinstance(times, pd.DataFrame):
        table = _wide(times)
        subject_ids, item_ids = table.index, table.columns
    else:
        table = np.asarray(times)
    try:
        seconds = np.array(table.astype(float))
    except (TypeError, ValueError):
        raise argument_error("times", "numbers", type(times).__name__) from None
    if seconds.ndim != 2:
        raise argument_error("times", "a table of subjects x items", f"{seconds.ndim} dimensions")
    n, k = seconds.shape
    ids = []
    for name, given, count, kind in (("subject", subject_ids, n, "s"), ("item", item_ids, k, "i")):
        numbered = [f"{kind}{i + 1}" for i in range(count)]
        found = check_ids("times", numbered if given is None else list(given), count, name)
        ids.append(check_unique("times", found))
    out = Times(seconds, *ids)
    wrong = ~np.isnan(seconds) & ~((seconds > 0) & np.isfinite(seconds))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        got = f"{seconds[row, column]:g} of {_cell(out, row, column)}"
        must, advice = "above 0 and finite, or NaN where missing", "Of an unmeasured time: NaN."
        raise argument_error("times", must, got, advice)
    return out


def _wide(times: pd.DataFrame) -> pd.DataFrame:
    """The table as subjects x items."""
    if set(LONG) <= set(times.columns):
        repeated = times.duplicated(["subject", "item"])
        if repeated.any():
            row = times[repeated].iloc[0]
            got = f"two of subject {brief(row['subject'])} on item {brief(row['item'])}"
            raise argument_error("times", "one time of a subject on an item", got)
        items = times["item"].drop_duplicates()
        table = times.pivot_table("seconds", "subject", "item", "first", dropna=False)
        return table.loc[times["subject"].drop_duplicates(), items]
    return times.set_index("subject") if "subject" in times.columns else times


def _cell(times: Times, row: int, column: int) -> str:
    """A cell in words."""
    subject, item = times.subject_ids[row], times.item_ids[column]
    return f"subject {brief(subject)} on item {brief(item)}"


def check_limit(times: Times, limit: float | None) -> None:
    """Refuse times that end at a limit: the answer might have taken longer.

    Args:
        times: the times.
        limit: the time limit of an item; infinity for none; None if it is not known.

    Raises:
        InputError: times at or above the limit; or of an unknown one, many that equal the largest.
    """
    seconds = times.seconds
    advice = (
        "The model has no censored times. Set these to NaN only if they are few: the answers left "
        "are the faster ones."
    )
    if limit is not None:
        if limit != np.inf:
            check_positive("limit", limit)
        over = seconds >= limit
        if over.any():
            row, column = np.argwhere(over)[0]
            n, cell = int(over.sum()), _cell(times, row, column)
            must = f"below the limit of {limit:g}"
            raise argument_error("times", must, f"{n} at it or above, such as {cell}", advice)
        return
    largest = np.nanmax(seconds, initial=0.0)
    at_largest, n = int((seconds == largest).sum()), int(np.isfinite(seconds).sum())
    if at_largest >= max(MIN_AT_LIMIT, MIN_SHARE_AT_LIMIT * n):
        got = f"{at_largest} of {n} that are exactly {largest:g}, as by a time limit"
        none = "If there is no limit, pass limit=np.inf."
        raise argument_error("times", "not cut off", got, f"{advice} {none}")


def match_items(times: Times, item_ids: np.ndarray) -> Times:
    """The times on these items, in their order; NaN on those without times.

    Raises:
        InputError: there are times on none of them.
    """
    at = pd.Index(times.item_ids).get_indexer(item_ids)
    if (at < 0).all():
        advice = f"The items of the model are {brief(item_ids[0])} ..."
        raise argument_error("times", "of items of the model", times.item_ids, advice)
    seconds = np.where(at >= 0, times.seconds[:, at], np.nan)
    return Times(seconds, times.subject_ids, item_ids)

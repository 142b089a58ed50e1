"""Tables of features as standardised columns, with the rules that new rows follow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, brief, shorten
from irtcat._common.dates import years_of_dates
from irtcat._common.types import FloatArray
from irtcat.responses._frames import as_pandas

MOST_LEVELS = 0.5
"""A text column with more levels than this share of its rows says nothing about other rows."""


@dataclass(frozen=True)
class FeatureBlock:
    """Columns whose coefficients have one variance.

    Attributes:
        name: the text column that they indicate the levels of; else the table that they are from,
            or "numbers".
        columns: names of the columns.
        is_category: whether they indicate the levels of a text column.
    """

    name: str
    columns: tuple[str, ...]
    is_category: bool


@dataclass(frozen=True)
class Design:
    """How rows of a table become numbers.

    Attributes:
        argument: the argument that the table was given as, for messages.
        blocks: the columns of the matrix, block by block.
        centre: mean of each column of numbers.
        scale: its standard deviation.
        levels: levels of each text column.
        dropped: columns that do not vary, which are left out.
    """

    argument: str
    blocks: tuple[FeatureBlock, ...]
    centre: pd.Series
    scale: pd.Series
    levels: dict[str, tuple[str, ...]]
    dropped: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the matrix."""
        return tuple(name for block in self.blocks for name in block.columns)

    @property
    def block_of(self) -> np.ndarray:
        """Number of the block of each column."""
        return np.repeat(np.arange(len(self.blocks)), [len(block.columns) for block in self.blocks])

    def matrix(self, table: pd.DataFrame) -> FloatArray:
        """The rows of a table as numbers (rows x columns).

        Numbers are standardised; a missing one counts as the mean. A level that the fit did not
        see, and a missing one, are 0 in all columns of their text column: the mean of the levels.

        Raises:
            InputError: where a column is missing, is unknown, or is not of numbers.
        """
        known = [*self.centre.index, *self.levels, *self.dropped]
        missing = [name for name in known if name not in table.columns and name not in self.dropped]
        other = [name for name in table.columns if name not in known]
        if missing or other:
            got = f"no column {missing[0]!r}" if missing else f"the unknown column {other[0]!r}"
            must = f"a table with the columns of the fit ({shorten(known)})"
            raise argument_error(self.argument, must, got)
        parts = []
        if len(self.centre):
            numbers = _numbers(table[list(self.centre.index)], self.argument)
            z = numbers - self.centre.to_numpy()
            z /= self.scale.to_numpy()  # in place: tables may have a gigabyte
            parts.append(np.nan_to_num(z, copy=False, nan=0.0))
        for name, levels in self.levels.items():
            codes = pd.Index(levels).get_indexer(pd.Index(_texts(table[name]), dtype=object))
            parts.append((codes[:, None] == np.arange(len(levels))).astype(float))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(table), 0))


def _texts(column: pd.Series) -> list[Any]:
    """The values of a text column, None where missing."""
    return [None if pd.isna(value) else str(value) for value in column]


def _is_text(column: pd.Series) -> bool:
    return not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def _numbers(table: pd.DataFrame, argument: str) -> FloatArray:
    """The columns as numbers, NaN where missing."""
    try:
        values = table.to_numpy(float, na_value=np.nan)
    except (TypeError, ValueError):
        for name in table.columns:
            for row, value in table[name].items():
                try:
                    float("nan" if pd.isna(value) else value)
                except (TypeError, ValueError):
                    must = f"a table whose column {name!r} has numbers, as in the fit"
                    got = f"{brief(value)} in row {brief(row)}"
                    raise argument_error(argument, must, got) from None
        raise
    infinite = np.isinf(values)
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        where = f"in row {brief(table.index[row])}, column {table.columns[column]!r}"
        raise argument_error(argument, "finite or missing", f"{values[row, column]} {where}")
    return values


SEPARATOR = ": "
"""Between the name of a table and that of its column, where there are several tables."""


def check_features(tables: Any, argument: str, what: str) -> pd.DataFrame:
    """A table of features, indexed by text ids, one row each.

    Args:
        tables: a data frame by id, or a mapping from names to such tables, which are joined by id
            (rows that all have are kept) and whose columns of numbers are a block each.
        argument: its name in messages.
        what: what a row is about ("item", "subject").

    Raises:
        InputError: for another kind of object, no columns, or ids or columns that repeat.
    """
    if isinstance(tables, Mapping) and tables:
        parts = []
        for name, table in tables.items():
            part = _checked(table, f"{argument}[{name!r}]", what)
            parts.append(part.add_prefix(f"{name}{SEPARATOR}"))
        return pd.concat(parts, axis=1, join="inner")
    return _checked(tables, argument, what)


def _checked(table: Any, argument: str, what: str) -> pd.DataFrame:
    """One table of features."""
    frame = as_pandas(table)
    if frame is None and isinstance(table, pd.Series):
        frame = table.to_frame(table.name if table.name is not None else "feature")
    if frame is None:
        must = f"a table (data frame) with a row for each {what}, indexed by {what} id"
        raise argument_error(argument, must, type(table).__name__)
    if "id" in frame.columns and isinstance(frame.index, pd.RangeIndex):
        frame = frame.set_index("id")
    frame = frame.set_axis(pd.Index([str(name) for name in frame.index], dtype=object), axis=0)
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    if not frame.shape[1] or not len(frame):
        must = "a table with at least one row and one column"
        raise argument_error(argument, must, f"{len(frame)} rows and {frame.shape[1]} columns")
    for names, kind in ((frame.index, f"{what} id"), (frame.columns, "column")):
        if names.has_duplicates:
            twice = names[names.duplicated()][0]
            raise argument_error(argument, f"a table where no {kind} repeats", f"{twice!r} twice")
    dates = [name for name in frame if pd.api.types.is_datetime64_any_dtype(frame[name])]
    return frame.assign(**{str(name): years_of_dates(frame[name]) for name in dates})


def _levels(column: pd.Series, argument: str) -> tuple[str, ...]:
    """The different texts of a column, sorted."""
    names = sorted({text for text in _texts(column) if text is not None})
    if len(names) > max(2, MOST_LEVELS * len(column)):
        raise argument_error(
            argument,
            "a table of numbers and categories",
            f"{len(names)} different texts in the {len(column)} rows of column {column.name!r}",
            "Turn texts into numbers with irtcat.features.text, or leave the column out.",
        )
    return tuple(names)


def _blocks(numeric: list[str], levels: Mapping[str, tuple[str, ...]]) -> tuple[FeatureBlock, ...]:
    """Numbers by the part of their names before the separator, then the levels of each text."""
    sources: dict[str, list[str]] = {}
    for name in numeric:
        source, separator, _ = name.partition(SEPARATOR)
        sources.setdefault(source if separator else "numbers", []).append(name)
    blocks = [FeatureBlock(source, tuple(names), False) for source, names in sources.items()]
    for name, its_levels in levels.items():
        columns = tuple(f"{name}={level}" for level in its_levels)
        blocks.append(FeatureBlock(name, columns, True))
    return tuple(blocks)


def design_of(table: pd.DataFrame, argument: str) -> Design:
    """The design of a table: text becomes indicators of its levels, numbers are standardised.

    Columns that do not vary are dropped (an intercept is always there).

    Raises:
        InputError: for a text column in which almost every row differs, infinite numbers, or a
            table in which nothing varies.
    """
    texts = [name for name in table.columns if _is_text(table[name])]
    numeric = [name for name in table.columns if name not in texts]
    values = _numbers(table[numeric], argument)
    seen = ~np.isnan(values)
    n = np.maximum(seen.sum(axis=0), 1)
    centre = values.sum(axis=0, where=seen) / n
    off = np.subtract(values, centre, out=np.zeros_like(values), where=seen)
    most = np.maximum(off.max(axis=0, initial=0.0), -off.min(axis=0, initial=0.0))
    unit = np.where(most > 0, most, 1.0)  # squares of very large or small numbers are no numbers
    off /= unit
    scale = unit * np.sqrt(np.einsum("ij,ij->j", off, off) / n)
    varies = scale > 1e-12 * np.abs(centre)
    dropped = [name for name, keep in zip(numeric, varies, strict=True) if not keep]
    kept = [name for name, keep in zip(numeric, varies, strict=True) if keep]
    levels_of = {name: _levels(table[name], argument) for name in texts}
    levels = {name: names for name, names in levels_of.items() if len(names) > 1}
    dropped += [name for name in texts if name not in levels]
    if not kept and not levels:
        must = "a table with a column whose values differ"
        raise argument_error(argument, must, f"the constant columns {shorten(dropped)}")
    blocks = _blocks(kept, levels)
    kept = [name for block in blocks if not block.is_category for name in block.columns]
    return Design(
        argument=argument,
        blocks=blocks,
        centre=pd.Series(centre, index=numeric, dtype=float)[kept],
        scale=pd.Series(scale, index=numeric, dtype=float)[kept],
        levels=levels,
        dropped=tuple(dropped),
    )

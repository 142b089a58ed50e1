"""Recognising files of item parameters by their columns, without JAX."""

import os
from collections.abc import Mapping
from typing import Any

from irtcat._common.checks import InputError, argument_error, shorten
from irtcat._files.reading import MOST_BYTES, check_path
from irtcat.io.parameters.columns import Place, find_columns, named_columns, unknown_columns
from irtcat.io.parameters.dialects import DIALECTS, Dialect
from irtcat.io.parameters.files import OpenedFile, open_parameters


def found_parameters(path: str | os.PathLike[str], max_bytes: int = MOST_BYTES) -> str:
    r"""The columns of item parameters that a file has, which responses and logs have not; else "".

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "items.csv"
        >>> size = path.write_text("item,a,b\ni1,1.2,0.3\n")
        >>> found_parameters(path)
        'a, b'
    """
    try:
        opened = open_parameters(check_path(path), max_bytes)
        headers = [str(name) for name in opened.table.columns]
        _, places = recognised(path, opened, headers, "auto", None)
    except InputError:
        return ""
    return ", ".join(header for place, header in places.items() if place.role != "item")


def recognised(
    path: Any,
    opened: OpenedFile,
    headers: list[str],
    dialect: str,
    columns: Mapping[str, str] | None,
) -> tuple[Dialect, dict[Place, str]]:
    """The tool whose columns a file has, and what its columns hold."""
    if columns:
        named = named_columns(columns)
        unknown = [header for header in named.values() if header not in headers]
        if unknown:
            must = f"of columns of the file ({shorten(headers)})"
            raise argument_error("columns", must, unknown)
        return _by_hand(dialect), named
    lower = {header.strip().lower() for header in headers}
    rows = [DIALECTS[name] for name in ((dialect,) if dialect != "auto" else DIALECTS)]
    rows = [row for row in rows if row.file == opened.file]
    try:
        found = [(row, find_columns(headers, row.columns)) for row in rows if row.is_of(lower)]
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if not found:
        raise unknown_columns(path, headers, ", ".join(row.name for row in rows))
    row, places = max(found, key=lambda pair: len(pair[1]))  # the first of equals
    _check_rest(path, row, set(headers) - set(places.values()))
    return row, places


NOT_READ = ("phi",)
"""Parameters of irtcat's tables that files of parameters do not have (of beta items)."""


def _check_rest(path: Any, row: Dialect, rest: set[str]) -> None:
    """Raise if a column that would be left out is a parameter of another tool."""
    for other in DIALECTS.values():
        known = [column for column in other.columns if column.role not in ("item", "model")]
        strange = sorted(find_columns(rest, known).values()) if other is not row else []
        strange += [name for name in NOT_READ if name in rest]
        if strange and other.file == "table":
            advice = "Remove it, or say what all columns hold by columns=."
            raise InputError(
                f"{path}: the columns look like those of {row.name}, but {strange[0]} is not among "
                f"them ({other.help}). {advice}"
            )


def _by_hand(dialect: str) -> Dialect:
    """The row for columns that the user names."""
    if dialect != "auto":
        return DIALECTS[dialect]
    return Dialect("columns", "columns named by the user", (), (), scaling=True)

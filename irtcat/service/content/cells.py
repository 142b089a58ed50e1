"""Rows of tables of items and keys: CSV cells to the values that front matter would hold."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, brief, one_line, shorten
from irtcat._files import is_marked, unescape
from irtcat.service.content.authored import check_names, decoded
from irtcat.service.content.fields import content_error

SEPARATOR = "|"
"""Between the entries of a cell that holds several: it is rare in texts, unlike commas."""

FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read_rows(
    path: Path, columns: tuple[str, ...], max_bytes: int
) -> Iterator[tuple[str, dict[str, str], str]]:
    """Item id, cells that are not empty, and position of each row of a CSV file.

    Args:
        path: the file, in UTF-8.
        columns: names of the columns besides ``id``; all are optional.
        max_bytes: largest size of the file.

    Raises:
        InputError: naming the file and the row.
    """
    rows = csv.reader(io.StringIO(decoded(path, max_bytes), newline=""), strict=True)
    seen = dict[str, int]()
    try:
        header = [name.strip() for name in next(rows, [])]
        marked = is_marked(header)
        header = header[:-1] if marked else header
        if "id" not in header:
            raise content_error(str(path), "a column id", shorten(header))
        repeated = sorted({name for name in header if header.count(name) > 1})
        if repeated:
            raise content_error(str(path), "each column once", shorten(repeated))
        check_names(dict.fromkeys(header), ("id", *columns), str(path))
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            if not any(cell.strip() for cell in row):
                continue
            cells = [unescape(cell) for cell in row[:-1]] if marked else row
            if len(cells) != len(header):
                raise content_error(where, f"{len(header)} cells", len(cells))
            values = dict(zip(header, cells, strict=True))
            item = values.pop("id").strip()
            if not item:
                raise content_error(where, "an id", "an empty cell")
            if item in seen:
                raise content_error(where, "ids that differ", f"{brief(item)} a second time")
            seen[item] = rows.line_num
            filled = {name: cell for name, cell in values.items() if cell.strip()}
            yield item, filled, f"{where}, item {brief(item)}"
    except csv.Error as error:
        raise InputError(
            f"{path}, line {rows.line_num}: expected CSV ({one_line(error)})."
        ) from None
    if not seen:
        raise InputError(f"{path}: expected at least one row. Got none.")


def parse_cells(cells: dict[str, str], where: str) -> dict[str, Any]:
    """The values of cells by the types of their fields.

    Raises:
        InputError: naming the row and the column.

    Example:
        >>> parse_cells({"points": "A=2|B=1", "shuffle": "yes", "key": "A|C"}, "row 1")
        {'points': {'A': 2.0, 'B': 1.0}, 'shuffle': True, 'key': ['A', 'C']}
    """
    return {
        name: PARSERS[name](cell.strip(), f"{where}, {name}") if name in PARSERS else cell
        for name, cell in cells.items()
    }


def _flag(cell: str, where: str) -> bool:
    if cell.lower() not in FLAGS:
        raise content_error(where, "true or false", shorten(cell))
    return FLAGS[cell.lower()]


def _number(cell: str, where: str) -> float:
    if not re.fullmatch(r"[+-]?(\d{1,15}(\.\d{0,15})?|\.\d{1,15})", cell):
        raise content_error(where, "a number", shorten(cell))
    return float(cell)


def _whole(cell: str, where: str) -> int:
    if not re.fullmatch(r"\d{1,9}", cell):
        raise content_error(where, "a whole number", shorten(cell))
    return int(cell)


def _list(cell: str, where: str) -> list[str]:
    return [entry.strip() for entry in cell.split(SEPARATOR)]


def _points(cell: str, where: str) -> dict[str, float]:
    out: dict[str, float] = {}
    for entry in _list(cell, where):
        value, sign, points = entry.rpartition("=")
        if not sign:
            raise content_error(where, "points as A=2|B=1", shorten(entry))
        if value.strip() in out:
            raise content_error(where, "each value once", shorten(value.strip()))
        out[value.strip()] = _number(points.strip(), where)
    return out


def _texts(cell: str, where: str) -> dict[str, str]:
    """``X=Paris|Y=Rome``."""
    pairs = [entry.partition("=") for entry in _list(cell, where)]
    if not all(sign for _, sign, _ in pairs):
        raise content_error(where, "texts by ids, X=Paris|Y=Rome", shorten(cell))
    return {name.strip(): text.strip() for name, _, text in pairs}


def _media(cell: str, where: str) -> list[dict[str, str]]:
    """``graph.svg: A bar chart|speech.mp3``."""
    out = []
    for entry in _list(cell, where):
        file, sign, alt = entry.partition(":")
        out.append({"file": file.strip()} | ({"alt": alt.strip()} if sign else {}))
    return out


PARSERS: dict[str, Callable[[str, str], Any]] = {
    "kind": lambda cell, where: cell,
    "language": lambda cell, where: cell,
    "direction": lambda cell, where: cell,
    "stimulus": lambda cell, where: cell,
    "pattern": lambda cell, where: cell,
    "time_limit": _number,
    "shuffle": _flag,
    "numeric": _flag,
    "practice": _flag,
    "case_sensitive": _flag,
    "max_choices": _whole,
    "min_choices": _whole,
    "expected_length": _whole,
    "expected_lines": _whole,
    "options": _texts,
    "areas": _texts,
    "fixed": _list,
    "labels": _list,
    "key": _list,
    "points": _points,
    "criteria": _points,
    "media": _media,
    "default": _number,
    "lower": _number,
    "upper": _number,
    "max_score": _number,
    "unit": _number,
}
"""How the cells of a column are read; the others are texts."""

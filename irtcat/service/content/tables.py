"""Tables of items and keys in CSV, and files of keys, kept apart from their items."""

import csv
import io
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, brief, one_line, shorten
from irtcat._files import is_marked, unescape
from irtcat.service.content.authored import KEY_FIELDS, check_names, decoded, make_key
from irtcat.service.content.fields import FaultList, content_error
from irtcat.service.content.keys import Key
from irtcat.service.content.records import Item

SEPARATOR = "|"
"""Between the entries of a cell that holds several: it is rare in texts, unlike commas."""

FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read_rows(
    path: Path, columns: tuple[str, ...], max_bytes: int
) -> Iterator[tuple[str, dict[str, str], str]]:
    """Item id, cells that are not empty, and position of each row of a CSV file.

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
    name: parse
    for names, parse in (
        ("kind language direction stimulus pattern", lambda cell, where: cell),
        ("time_limit default lower upper max_score unit", _number),
        ("shuffle numeric practice case_sensitive", _flag),
        ("max_choices min_choices expected_length expected_lines", _whole),
        ("options areas", _texts),
        ("fixed labels key", _list),
        ("points criteria", _points),
        ("media", _media),
    )
    for name in names.split()
}
"""How the cells of a column are read; the others are texts."""


KEY_FILES = ("keys.toml", "keys.csv")

MOST_KEYS = 2**26
"""Largest file of keys, in bytes."""

Entries = dict[str, tuple[dict[str, Any] | None, str]]
"""The fields of the key of each item, None where they have a fault, and where they stand."""


def key_file_of(folder: Path) -> Path | None:
    """The file of keys in a folder, if there is one.

    Raises:
        InputError: there are two.
    """
    existing = [folder / name for name in KEY_FILES if (folder / name).exists()]
    if len(existing) > 1:
        raise InputError(f"{folder}: expected one file of keys. Got {' and '.join(KEY_FILES)}.")
    return existing[0] if existing else None


class KeyFile:
    """The fields of keys by item id, with their positions for messages.

    Attributes:
        path: the file; None if there is none.
        readable: False for a file of which nothing could be read: then no item is said to lack a
            key.
    """

    def __init__(self, path: Path | None, fields: Entries, readable: bool = True):
        self.path, self._fields, self.readable = path, fields, readable

    @staticmethod
    def read(path: Path | None, faults: FaultList) -> "KeyFile":
        """Read ``keys.toml`` (a table ``[ID]`` for each item) or a CSV file (a row for each).

        The faults of the file name it and the row.
        """
        if path is None:
            return KeyFile(None, {})
        fields: Entries = {}
        with faults.collected():
            (_read_csv if path.suffix == ".csv" else _read_toml)(path, fields, faults)
            return KeyFile(path, fields)
        return KeyFile(path, fields, readable=False)

    def key_of(
        self, item: Item, beside: Key | None, values: Mapping[str, Any], where: str
    ) -> Key | None:
        """The key of an item: from this file or ``beside`` the item itself, not both.

        A practice item, as the values of its own file say, may be without a key.

        Raises:
            InputError: there are two keys, or none.
        """
        if item.id not in self._fields:
            if beside is None and self.readable and not values.get("practice", False):
                advice = "Give key, points or rubric; practice = true for an item without a key"
                raise content_error(where, "a key", "none", advice)
            return beside
        fields, place = self._fields[item.id]
        if beside is not None:
            raise content_error(where, "one key", f"a second one in {self.path}")
        return None if fields is None else make_key(item, fields, place)

    def check_all_used(self, items: Iterable[str]) -> None:
        """Raise if there is a key of an item that does not exist, of all items by their ids."""
        unknown = sorted(set(self._fields) - set(items))
        if unknown:
            raise InputError(
                f"{self.path}: expected keys of items that exist. Got {shorten(unknown)}."
            )


def _read_toml(path: Path, out: Entries, faults: FaultList) -> None:
    try:
        document = tomllib.loads(decoded(path, MOST_KEYS))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path}: expected TOML ({one_line(error)}).") from None
    for item, fields in document.items():
        where = f"{path}, [{brief(item)}]"
        out[item] = None, where
        with faults.collected():
            if not isinstance(fields, dict):
                raise content_error(where, "a table of the fields of a key", shorten(fields))
            check_names(fields, KEY_FIELDS, where)
            out[item] = fields, where


def _read_csv(path: Path, out: Entries, faults: FaultList) -> None:
    for item, cells, where in read_rows(path, KEY_FIELDS, MOST_KEYS):
        out[item] = None, where
        with faults.collected():
            fields = parse_cells(cells, where)
            if not fields:
                raise content_error(where, "key, points or rubric", "none")
            out[item] = fields, where

"""Files of keys, kept apart from their items."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, brief, one_line, shorten
from irtcat.service.content.authored import KEY_FIELDS, check_names, decoded, make_key
from irtcat.service.content.cells import parse_cells, read_rows
from irtcat.service.content.fields import FaultList, content_error
from irtcat.service.content.records import Item, Key

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

        Args:
            path: the file.
            faults: gets the faults of the file, which name it and the row.
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

        Args:
            item: the item.
            beside: its key in its own file.
            values: the fields of its own file; a practice item may be without a key.
            where: its own file, for messages.

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

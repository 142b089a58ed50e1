"""Reading tables of items."""

from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError
from irtcat.service.content.authored import FIELDS, Files, make_item, make_key, unwrapped
from irtcat.service.content.cells import parse_cells, read_rows
from irtcat.service.content.fields import FaultList, content_error
from irtcat.service.content.folder import MOST_ITEMS, read_stimuli
from irtcat.service.content.keys import KeyFile, key_file_of
from irtcat.service.content.markdown import markdown_html
from irtcat.service.content.records import Item, ItemSet, Key

LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Columns of choices."""

MOST_TABLE = 2**26
"""Largest table, in bytes: 64 MiB are 50,000 items of a page each."""


def read_table(path: Path, keys: Path | None = None) -> ItemSet:
    """Read a CSV table of items, one row each; see `read_items`.

    Raises:
        InputError: naming the file, the line and the column.
    """
    files, faults = Files(path.parent), FaultList()
    separate = KeyFile.read(keys or _key_file_beside(path), faults)
    items, found, names = list[Item](), list[Key](), list[str]()
    for name, cells, where in read_rows(path, ("prompt", *LETTERS, *FIELDS), MOST_TABLE):
        if len(names) == MOST_ITEMS:
            raise InputError(f"{path}: expected at most {MOST_ITEMS:,} items.")
        names.append(name)
        with faults.collected():
            item, values = _item(name, cells, files, where)
            items.append(item)
            key = separate.key_of(item, make_key(item, values, where), values, where)
            found += [key] if key else []
    with faults.collected():
        separate.check_all_used(names)
    stimuli = read_stimuli(path.parent, files, faults)
    faults.check()
    return ItemSet(items, found, stimuli, files.media)


def _item(
    name: str, cells: dict[str, str], files: Files, where: str
) -> tuple[Item, dict[str, Any]]:
    """The item of a row, and the values of its fields."""
    if "prompt" not in cells:
        raise content_error(where, "a prompt", "an empty cell")
    address_of = files.address_of(where)
    choices = [
        (letter, unwrapped(markdown_html(cells.pop(letter), f"{where}, {letter}", address_of)))
        for letter in LETTERS
        if letter in cells
    ]
    prompt = markdown_html(cells.pop("prompt"), f"{where}, prompt", address_of)
    values = parse_cells(cells, where)
    return make_item(name, values, prompt, choices, files, where), values


def _key_file_beside(path: Path) -> Path | None:
    """The file of keys in the folder of a table, unless it is the table."""
    file = key_file_of(path.parent)
    return None if file is None or file.resolve() == path.resolve() else file

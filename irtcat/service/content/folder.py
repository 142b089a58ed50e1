"""Reading folders of items in Markdown."""

import tomllib
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, one_line, shorten
from irtcat.service.content.authored import (
    FIELDS,
    Files,
    check_names,
    decoded,
    make_item,
    make_key,
    make_stimulus,
)
from irtcat.service.content.fields import FaultList, content_error
from irtcat.service.content.keys import KeyFile, key_file_of
from irtcat.service.content.markdown import item_html, markdown_html
from irtcat.service.content.records import Item, ItemSet, Key, Stimulus

DELIMITER = "+++"

MOST_ITEMS = 50_000
"""Most items of a folder or a table; the largest banks of testing programmes have some 20,000."""


def read_folder(folder: Path, keys: Path | None = None) -> ItemSet:
    """Read a folder of items, one file each; see `read_items`.

    Raises:
        InputError: naming the file, the item and the field.
    """
    paths = _markdown_files(folder)
    if not paths:
        raise InputError(f"{folder}: expected files of items such as q1.md. Got none.")
    files, faults = Files(folder), FaultList()
    stimuli = read_stimuli(folder, files, faults)
    separate = KeyFile.read(keys or key_file_of(folder), faults)
    items, found = list[Item](), list[Key]()
    for path in paths:
        where = str(path)
        with faults.collected():
            values, body = _front_matter(decoded(path), where)
            check_names(values, FIELDS, where)
            prompt, choices = item_html(body, where, files.address_of(where))
            item = make_item(path.stem, values, prompt, choices, files, where)
            items.append(item)
            key = separate.key_of(item, make_key(item, values, where), values, where)
            found += [key] if key else []
    with faults.collected():
        separate.check_all_used(path.stem for path in paths)
    faults.check()
    return ItemSet(items, found, stimuli, files.media)


def _markdown_files(folder: Path) -> list[Path]:
    """The Markdown files of a folder in the order of their names; README.md is no item."""
    try:
        paths = sorted(folder.glob("*.md"))
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror}).") from None
    if len(paths) > MOST_ITEMS:
        raise InputError(f"{folder}: expected at most {MOST_ITEMS:,} items. Got {len(paths):,}.")
    return [path for path in paths if path.name.lower() != "readme.md"]


def _front_matter(text: str, where: str) -> tuple[dict[str, Any], str]:
    """The fields in TOML between two lines ``+++``, and the text after them."""
    lines = text.split("\n")
    if lines[0].strip() != DELIMITER:
        return {}, text
    ends = [i for i, line in enumerate(lines) if i and line.strip() == DELIMITER]
    if not ends:
        raise InputError(f"{where}: expected a second line {DELIMITER} after the fields. Got none.")
    try:
        values = tomllib.loads("\n".join(["", *lines[1 : ends[0]]]))  # so that line numbers fit
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{where}: expected fields in TOML ({one_line(error)}).") from None
    return values, "\n".join(lines[ends[0] + 1 :])


def read_stimuli(folder: Path, files: Files, faults: FaultList) -> list[Stimulus]:
    """The stimuli of a folder, ``stimuli/ID.md``, with the fields ``title`` and ``language``."""
    stimuli, inner = list[Stimulus](), folder / "stimuli"
    for path in _markdown_files(inner) if inner.is_dir() else ():
        with faults.collected():
            stimuli.append(_stimulus(path, files))
    return stimuli


def _stimulus(path: Path, files: Files) -> Stimulus:
    where = str(path)
    values, body = _front_matter(decoded(path), where)
    check_names(values, ("title", "language"), where)
    for name, value in values.items():
        if not isinstance(value, str):
            raise content_error(where, f"{name} as text", shorten(value))
    html = markdown_html(body, where, files.address_of(where))
    return make_stimulus(
        path.stem, values.get("title", ""), values.get("language", ""), html, where
    )

"""Reading items from a folder, a table, a QTI package, or an upload."""

import os
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, one_line, shorten
from irtcat._files import check_path, check_regular
from irtcat.service.content.authored import (
    FIELDS,
    MOST_ITEMS,
    Files,
    check_names,
    decoded,
    make_item,
    make_key,
    make_stimulus,
    unwrapped,
)
from irtcat.service.content.fields import FaultList, content_error
from irtcat.service.content.item_set import ItemSet
from irtcat.service.content.keys import Key
from irtcat.service.content.markdown import item_html, markdown_html
from irtcat.service.content.packages import open_package
from irtcat.service.content.qti import read_qti
from irtcat.service.content.qti_xml import MANIFEST
from irtcat.service.content.records import Item, Stimulus
from irtcat.service.content.tables import KeyFile, key_file_of, parse_cells, read_rows

DELIMITER = "+++"


Maker = Callable[[Files, str], tuple[Item, dict[str, Any]]]
"""Makes an item, with the values of its fields, from the files beside it and where it stands."""


def read_folder(folder: Path, keys: Path | None = None) -> ItemSet:
    """Read a folder of items, one file each; see `read_items`.

    Raises:
        InputError: naming the file, the item and the field.
    """
    paths = _markdown_files(folder)
    if not paths:
        raise InputError(f"{folder}: expected files of items such as q1.md. Got none.")
    entries = ((path.stem, str(path), partial(_item_of_file, path)) for path in paths)
    return _item_set(folder, folder, keys or key_file_of(folder), entries)


def read_table(path: Path, keys: Path | None = None) -> ItemSet:
    """Read a CSV table of items, one row each; see `read_items`.

    Raises:
        InputError: naming the file, the line and the column.
    """
    folder, file = path.parent, keys or key_file_of(path.parent)
    if file is not None and file.resolve() == path.resolve():
        file = None  # the table itself
    entries = (
        (name, where, partial(_item_of_row, name, cells))
        for name, cells, where in read_rows(path, ("prompt", *LETTERS, *FIELDS), MOST_TABLE)
    )
    return _item_set(path, folder, file, entries)


def _item_set(
    source: Path, folder: Path, keys: Path | None, entries: Iterable[tuple[str, str, Maker]]
) -> ItemSet:
    """The items of a source, each by its id, where it stands, and what makes it."""
    files, faults = Files(folder), FaultList()
    separate = KeyFile.read(keys, faults)
    stimuli = read_stimuli(folder, files, faults)
    items, found, names = list[Item](), list[Key](), list[str]()
    for name, where, make in entries:
        if len(names) == MOST_ITEMS:
            raise InputError(f"{source}: expected at most {MOST_ITEMS:,} items.")
        names.append(name)
        with faults.collected():
            item, values = make(files, where)
            items.append(item)
            key = separate.key_of(item, make_key(item, values, where), values, where)
            found += [key] if key else []
    with faults.collected():
        separate.check_all_used(names)
    faults.check()
    return ItemSet(items, found, stimuli, files.media)


def _item_of_file(path: Path, files: Files, where: str) -> tuple[Item, dict[str, Any]]:
    values, body = _front_matter(decoded(path), where)
    check_names(values, FIELDS, where)
    prompt, choices = item_html(body, where, files.address_of(where))
    return make_item(path.stem, values, prompt, choices, files, where), values


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


LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Columns of choices."""

MOST_TABLE = 2**26
"""Largest table, in bytes: 64 MiB are 50,000 items of a page each."""


def _item_of_row(
    name: str, cells: dict[str, str], files: Files, where: str
) -> tuple[Item, dict[str, Any]]:
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


def read_items(path: str | os.PathLike[str], keys: str | os.PathLike[str] | None = None) -> ItemSet:
    r"""Read items with their keys, stimuli and media.

    **A folder** has a file ``ID.md`` for each item: fields in TOML between two lines ``+++``, then
    the prompt in Markdown (CommonMark with tables; formulas in LaTeX between ``$`` or ``$$``), then
    the choices as a list with their ids in parentheses::

        +++
        key = "B"
        time_limit = 60
        labels = ["arithmetic"]
        +++
        What is $\frac{1}{2} + \frac{1}{4}$?

        - (A) $\frac{2}{6}$
        - (B) $\frac{3}{4}$

    In hottext ``[words](#A)`` marks what can be selected. Media are files of the folder, named as
    Markdown does: ``![A bar chart](chart.svg)``. Stimuli are in ``stimuli/ID.md``. README.md is no
    item.

    Fields of an item (of `Item`; all are optional): ``kind`` (by default "choice"), ``title``,
    ``language``, ``direction``, ``time_limit`` (seconds), ``stimulus``, ``shuffle``, ``fixed`` (ids
    of choices that are not shuffled), ``max_choices``, ``min_choices``, ``expected_length``,
    ``expected_lines``, ``pattern``, ``numeric``, ``labels``, ``media`` (files shown below the
    prompt: names, or ``{ file = "...", alt = "..." }``), ``options`` (texts by ids), ``picture``
    (``{ file = "...", alt = "...", width = 400, height = 300 }``), ``areas`` (such as ``"circle
    77,115,8"`` by ids of choices), ``practice`` (true: needs no key).

    Fields of a key (of `Key`): ``key`` (the right choice, all right choices, the right order, or
    the accepted texts), or ``points`` (``{ A = 2, B = 1 }``, with ``default``, ``lower`` and
    ``upper``), or ``rubric`` (Markdown; with ``max_score``, or ``criteria`` with their points);
    ``unit`` (the steps of people's scores, 1 by default: 0.5 allows half points);
    ``case_sensitive``; ``max_score`` (points for the key, 1 by default). Points may be parts such
    as 0.5: the categories of the item are its scores in steps of the largest common part. They
    stand in the item's file, or apart in ``keys.toml`` (a table ``[ID]`` for each item) or
    ``keys.csv`` (columns ``id`` and fields).

    An item without ``language`` has the language of the test that is published with it: in an
    English one ``1.500`` is 1.5, in a German one ``1,500`` is, and the other could be 1500.

    **A table** in CSV has a row for each item, with the columns ``id``, ``prompt`` (Markdown), the
    choices ``A``, ``B``, ... (Markdown), and the fields above. Several entries of a cell are
    separated by ``|``: ``A|C`` as a key, ``A=2|B=1`` as points; ``chart.svg: A bar chart`` as media
    is a file and its description. Stimuli, media and separate keys are beside it, as in a folder.

    **A QTI package** (zip; 3.0, 2.2 or 2.1) is read by `read_qti`.

    Args:
        path: the folder, the CSV file, or the package.
        keys: the file of keys (``.toml`` or ``.csv``), where it is not beside the items.

    Raises:
        InputError: naming the file, the item and the field.
    """
    source = check_path(path)
    key_path = None if keys is None else check_regular(keys)
    if key_path is not None and key_path.suffix not in (".toml", ".csv"):
        raise InputError(f"{keys}: expected a file of keys, .toml or .csv.")
    if source.is_dir():
        return read_folder(source, key_path)
    check_regular(source)
    if zipfile.is_zipfile(source) or source.suffix.lower() == ".zip":
        if key_path is not None:
            advice = "A QTI package holds its keys"
            raise InputError(f"The `keys` argument must be None here. {advice}.")
        return read_qti(source)
    if source.suffix.lower() == ".csv":
        return read_table(source, key_path)
    raise InputError(f"{path}: expected a folder, a table (.csv) or a QTI package (.zip).")


MOST_MEMBER = 50_000_000
"""Bytes of one file in a zip of a folder: a film of some minutes."""


def uploaded_items(data: bytes, *, is_table: bool, ignore_tests: bool = False) -> ItemSet:
    """Items from a file: a zipped folder, a QTI package (zip), or a table (CSV).

    With ``ignore_tests``, tests in a QTI package are not read, nor their time limits.

    Raises:
        InputError: naming the file, the item and the field.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("items.csv" if is_table else "items.zip")
        path.write_bytes(data)
        try:
            if not is_table:
                path = _unpacked(path, Path(folder) / "items")
            items = read_qti(path, ignore_tests) if path.suffix == ".zip" else read_items(path)
            notes = tuple(_without_folder(note, folder) for note in items.notes)
            return replace(items, notes=notes)
        except InputError as error:
            raise InputError(_without_folder(str(error), folder)) from None


def _without_folder(text: str, folder: str) -> str:
    for prefix in (f"{folder}/items/", f"{folder}/"):
        text = text.replace(prefix, "")
    return text


def _unpacked(path: Path, target: Path) -> Path:
    """A QTI package itself, else the folder of a zip; a single folder at its top is entered."""
    with open_package(path) as package:
        if MANIFEST in package:
            return path
        target.mkdir()
        for name in package.members:
            file = target / name
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(package.read(name, MOST_MEMBER))
            except (OSError, ValueError):
                raise InputError(f"{path}: a member has a name that no file can have.") from None
    inside = list(target.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else target

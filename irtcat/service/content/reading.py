"""Reading items from a folder, CSV tables, a QTI package, or an upload.

Keys are kept apart from their items: a table of their own, or files of keys.
"""

import csv
import io
import os
import re
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, brief, one_line, shorten
from irtcat._common.numbers import truth_in
from irtcat._files import check_path, check_regular, is_marked, unescape
from irtcat.service.content.authored import (
    FIELDS,
    KEY_FIELDS,
    MOST_ITEMS,
    Files,
    check_names,
    decoded,
    located,
    make_item,
    make_key,
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

SEPARATOR = "|"
"""Between the entries of a cell that holds several: it is rare in texts, unlike commas."""


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
        must = f"CSV ({one_line(error)})"
        raise content_error(f"{path}, line {rows.line_num}", must) from None
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
    value = truth_in(cell)
    if value is None:
        raise content_error(where, "true or false", shorten(cell))
    return value


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

    def __init__(self, path: Path | None, faults: FaultList):
        """Read ``keys.toml`` (a table ``[ID]`` for each item) or a CSV file (a row for each).

        The faults of the file name it and the row.
        """
        self.path, self.readable = path, path is None
        self._fields: Entries = {}
        if path is not None:
            with faults.collected():
                (_read_csv if path.suffix == ".csv" else _read_toml)(path, self._fields, faults)
                self.readable = True

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
            raise content_error(str(self.path), "keys of items that exist", shorten(unknown))


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
    separate = KeyFile(keys, faults)
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
    with located(where):
        return Stimulus(id=path.stem, content_html=html, **values)


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

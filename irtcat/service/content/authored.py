"""Items as authors write them in folders and tables: named fields and Markdown, to records."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from irtcat._common.checks import InputError, brief, shorten
from irtcat._files import read_bytes
from irtcat.service.base.records import faults_of, hint
from irtcat.service.content.fields import ContentError, content_error
from irtcat.service.content.keys import Key, checked_key
from irtcat.service.content.markdown import markdown_html
from irtcat.service.content.media import MOST_MEDIA, media_type
from irtcat.service.content.records import Choice, Item, Media, Picture

ITEM_FIELDS = (
    *(
        it.name
        for it in fields(Item)
        if it.name not in ("id", "prompt", "choices", "parts", "inline")
    ),
    *("fixed", "media", "areas", "practice"),
)
"""Fields of an item in front matter, and columns of a table of items."""

KEY_FIELDS = (
    "key",
    *(it.name for it in fields(Key) if it.name not in ("item", "kind", "correct", "rules")),
)
"""Fields of a key in front matter, in ``keys.toml``, and columns of tables."""

FIELDS = (*ITEM_FIELDS, *KEY_FIELDS)

MOST_ITEMS = 50_000
"""Most items of a folder or a table; the largest banks of testing programmes have some 20,000."""

MOST_FILE = 2**20
"""Largest file of one item or stimulus, or table row, in bytes: a megabyte of text is a book."""

MOST_SET = 2**29
"""Most bytes of all media of an item set (512 MiB), which are held in memory."""


PARAGRAPH = re.compile(r"<p>((?:(?!</?p>).)*)</p>", re.S)


def decoded(path: Path, max_bytes: int = MOST_FILE) -> str:
    """The text of a file in UTF-8.

    Raises:
        InputError: it cannot be read, is too large, or is not UTF-8.
    """
    if path.is_file() and path.stat().st_size > max_bytes:
        raise InputError(f"{path}: expected at most {max_bytes / 2**20:,.0f} MiB of text.")
    data = read_bytes(path, max_bytes)
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: expected UTF-8 text. Save it as UTF-8.") from None


class Files:
    """The media files of a folder, each read once.

    Files outside the folder are refused; ``media`` are those that items name, by content hash.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.media: dict[str, Media] = {}
        self._names: dict[str, str] = {}
        self._size = 0

    def address(self, name: str, where: str) -> str:
        """The ``media:`` address of a file, which is read.

        Raises:
            InputError: the name leads out of the folder, or the file does not exist or is no media.
        """
        file = name.removeprefix("./")
        if file not in self._names:
            media = Media.from_bytes(self._bytes(file, where), file)
            self._size += 0 if media.name in self.media else len(media.data)
            self._names[file], self.media[media.name] = media.name, media
            if self._size > MOST_SET:
                most = f"at most {MOST_SET // 2**20} MiB of media"
                raise content_error(str(self.folder), most)
        return f"media:{self._names[file]}"

    def _bytes(self, file: str, where: str) -> bytes:
        names = PurePosixPath(file)
        plain = file.strip() and "\\" not in file and file.isprintable() and ":" not in file
        if not plain or names.is_absolute() or ".." in names.parts:
            raise content_error(where, "media in the folder of the items", shorten(file))
        media_type(file)
        path = self.folder / file
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise content_error(where, "media in the folder of the items", f"a link, {brief(file)}")
        if not path.is_file():
            raise content_error(where, f"the media file {brief(file)}", "no such file")
        return read_bytes(path, MOST_MEDIA)

    def address_of(self, where: str) -> Callable[[str], str]:
        """`address` for the names in the Markdown of one item, which are URLs."""
        return lambda name: self.address(unquote(name), where)


def check_names(values: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """Raise at a field that does not exist, with the name that it may have been meant to be."""
    for name in values:
        if name not in known:
            raise InputError(f"{where}: there is no field {shorten(name)}. {hint(name, known)}")


def make_item(
    name: str,
    values: Mapping[str, Any],
    prompt: str,
    choices: list[tuple[str, str]],
    files: Files,
    where: str,
) -> Item:
    """An item from its fields, its prompt and its choices in HTML.

    Raises:
        InputError: naming the file, the item and the field.
    """
    with located(where):
        given = {field: values[field] for field in ITEM_FIELDS if field in values}
        areas = _table(given.pop("areas", {}), "areas", where)
        choices = choices or [(choice, "") for choice in areas]
        ids = [choice for choice, _ in choices]
        if not set(areas) <= set(ids):
            raise content_error(where, "areas of its choices", shorten(list(areas)))
        fixed = _texts(given.pop("fixed", ()), "fixed", where)
        unknown = [choice for choice in fixed if choice not in ids]
        if unknown:
            raise content_error(where, "fixed as ids of choices", shorten(unknown))
        shown = _shown(given.pop("media", ()), files, where)
        practice = given.pop("practice", False)  # checked here: the key of the item has it
        if not isinstance(practice, bool):
            raise content_error(where, "practice as true or false", shorten(practice))
        if "labels" in given:
            given["labels"] = _texts(given["labels"], "labels", where)
        if "picture" in given:
            given["picture"] = _picture(given["picture"], files, where)
        kind, address_of = given.get("kind", "choice"), files.address_of(where)
        if "options" in given:
            given["options"] = tuple(
                Choice(option, unwrapped(markdown_html(text, f"{where}, {option}", address_of)))
                for option, text in _table(given["options"], "options", where).items()
            )
        most = 1 if kind in ("match", "associate") else 0
        made = tuple(
            Choice(choice, html, choice in fixed, most, areas.get(choice, ""))
            for choice, html in choices
        )
        return Item(id=name, prompt=prompt + shown, choices=made, **{"kind": kind, **given})


def unwrapped(html: str) -> str:
    """The content of a single paragraph, or the HTML itself."""
    match = PARAGRAPH.fullmatch(html.strip())
    return match[1] if match else html.strip()


def _table(value: Any, name: str, where: str) -> dict[str, str]:
    """Texts by ids."""
    if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
        raise content_error(where, f'{name} as texts by ids, {{ A = "..." }}', shorten(value))
    return dict(value)


def _picture(value: Any, files: Files, where: str) -> Picture:
    """The picture of which the choices are areas."""
    must = 'picture as { file = "...", alt = "...", width = 400, height = 300 }'
    if not isinstance(value, Mapping) or not isinstance(value.get("file"), str):
        raise content_error(where, must, shorten(value))
    check_names(value, ("file", "alt", "width", "height"), f"{where}, picture")
    sizes: Any = {name: value.get(name) for name in ("alt", "width", "height")}
    media = files.address(value["file"], where).removeprefix("media:")
    return Picture(media, **sizes)


def _shown(value: Any, files: Files, where: str) -> str:
    """HTML of the files that are shown below the prompt."""
    out = []
    for entry in value if isinstance(value, (list, tuple)) else [value]:
        record = {"file": entry} if isinstance(entry, str) else entry
        if not isinstance(record, Mapping) or not isinstance(record.get("file"), str):
            raise content_error(where, 'media as { file = "...", alt = "..." }', shorten(entry))
        check_names(record, ("file", "alt"), f"{where}, media")
        address, alt = files.address(record["file"], where), record.get("alt")
        family = media_type(record["file"]).partition("/")[0]
        file = brief(record["file"])
        if family == "image" and not isinstance(alt, str):
            raise content_error(where, f"alt of {file}, which describes it", "none")
        if family == "image":
            out.append(f'<p><img src="{address}" alt="{escape(str(alt))}"></p>')
        elif family in ("audio", "video"):
            out.append(f'<p><{family} src="{address}" controls></{family}></p>')
        else:
            raise content_error(where, "a picture, a sound or a film", file)
    return "\n".join(out)


def make_key(item: Item, values: Mapping[str, Any], where: str) -> Key | None:
    """The key of an item from the fields of `KEY_FIELDS`; None if there are none.

    Raises:
        InputError: naming the file, the item and the field.
    """
    given = {field: values[field] for field in KEY_FIELDS if field in values}
    if not given:
        return None
    kinds = {"key": "match", "points": "map", "rubric": "rubric", "criteria": "rubric"}
    named = dict.fromkeys(kinds[field] for field in given if field in kinds)
    if item.kind == "essay" and "max_score" in given:
        named["rubric"] = None
    if len(named) != 1:
        got = " and ".join(field for field in given if field in kinds) or "none"
        raise content_error(where, "one of key, points and rubric", got)
    kind = next(iter(named))
    if "unit" in given and kind != "rubric":
        raise content_error(where, "unit only in a key with a rubric", "one beside key or points")
    if "key" in given:
        given["correct"] = _texts(given.pop("key"), "key", where)
    if isinstance(given.get("rubric"), str):
        given["rubric"] = markdown_html(given["rubric"], f"{where}, rubric")
    with located(where):
        return checked_key(Key(item=item.id, kind=kind, **given), item)


def _texts(value: Any, name: str, where: str) -> tuple[str, ...]:
    """Texts from one text or a list of texts; numbers as Python writes them (1.5 for 1.50)."""
    entries = value if isinstance(value, (list, tuple)) else (value,)
    out = []
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, (str, int, float)):
            raise content_error(where, f"{name} as a text or a list of texts", shorten(entry))
        out.append(entry if isinstance(entry, str) else repr(entry))
    return tuple(out)


@contextmanager
def located(where: str) -> Iterator[None]:
    """Errors with the file in front of each fault, unless it names it already."""
    try:
        yield
    except InputError as error:
        faults = map(str, faults_of(error))
        texts = (text if text.startswith(where) else f"{where}: {text}" for text in faults)
        raise ContentError(texts) from None

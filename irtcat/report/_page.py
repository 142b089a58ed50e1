"""From sections to HTML: everything of the user escaped, script and style pinned by their hash."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Collection, Iterator, Sequence
from importlib import resources
from typing import Any

from irtcat import __version__
from irtcat.report._blocks import Section, shorter

__all__ = ["page"]

SCRIPTS = ("core.js", "charts.js", "tables.js", "page.js")
LENGTHS = (2000, 1000, 500, 300, 200, 140, 100, 70, 50, 30)
"""Letters of a long text that are kept: the first of these by which the page fits."""


MANY_ROWS, NOTE_ROOM = 500, 70
"""Rows of a table whose columns may be left out; bytes that saying so takes for each."""

UNSAFE = re.compile("[<>&@\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""What could end an element or a placeholder, or turn the direction of what follows."""


def page(title: str, sections: Sequence[Section], limit: int) -> str:
    """The page; it is made smaller until it has fewer bytes than ``limit``.

    Long texts are cut first; then columns of long tables are left out, the minor ones first. What
    was done is said at the end of the page.

    Args:
        title: heading.
        sections: in order.
        limit: bytes.
    """
    frame = _frame(title, sections)
    room = limit - len(frame.encode()) - 400
    longest = max((len(text) for text in _texts(sections)), default=0)
    lengths = [longest, *(each for each in LENGTHS if each < longest)]
    first, last = 0, len(lengths) - 1  # the shorter the texts, the smaller the page
    while first < last:
        middle = (first + last) // 2
        small = len(_data(sections, lengths[middle]).encode()) <= room
        first, last = (first, middle) if small else (middle + 1, last)
    note = ""
    if first > 0:
        note = f"Long texts are cut to {lengths[first]} letters so that the page stays small."
    data = _data(sections, lengths[first])
    gone = _too_much(sections, lengths[first], len(data.encode()) - room)
    if gone:
        data = _data(sections, lengths[first], {id(column) for column in gone})
        names = ", ".join(dict.fromkeys(shorter(column["label"], 60) for column in gone))
        note += f" Columns left out so that the page stays small: {names}."
    return frame.replace("@@NOTE@@", _text(note)).replace("@@DATA@@", data)


def _too_much(sections: Sequence[Section], length: int, excess: int) -> list[dict[str, Any]]:
    """Columns of long tables that are left out to save so many bytes: as few as will do."""
    if excess <= 0:
        return []
    found = [
        (bool(column.get("long")), at, column)
        for section in sections
        for table in _in_blocks(section.blocks)
        if table.get("n", 0) > MANY_ROWS
        for at, column in enumerate(table["cols"])
        if at and (column.get("long") or column.get("minor"))
    ]
    gone: list[dict[str, Any]] = []
    for _, _, column in sorted(found, key=lambda each: each[:2], reverse=True):
        if excess + NOTE_ROOM * len(gone) <= 0:
            break
        excess -= len(_json(_cut(column, length)).encode())
        gone.append(column)
    return gone


def _texts(blocks: Any) -> Iterator[str]:
    """Every text that may be cut."""
    for column in _long_columns(blocks):
        yield from column["v"]


def _long_columns(sections: Sequence[Section]) -> Iterator[dict[str, Any]]:
    """The columns of long texts, wherever they stand."""
    for section in sections:
        for block in _in_blocks(section.blocks):
            yield from (column for column in block.get("cols", ()) if column.get("long"))


def _in_blocks(blocks: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every block, however deep."""
    for block in blocks:
        yield block
        yield from _in_blocks(block.get("blocks", ()))
        for option in block.get("options", ()):
            yield from _in_blocks(option["blocks"])


def _data(sections: Sequence[Section], length: int, gone: Collection[int] = ()) -> str:
    """The blocks as JSON that may stand in a script element."""
    return _json([_cut(list(section.blocks), length, gone) for section in sections])


def _cut(value: Any, length: int, gone: Collection[int] = ()) -> Any:
    """The same with texts cut, and without the columns whose `id` is among those gone."""
    if isinstance(value, dict):
        if value.get("long"):
            return {**value, "v": [shorter(text, length) for text in value["v"]]}
        return {key: _cut(part, length, gone) for key, part in value.items()}
    if isinstance(value, list):
        return [_cut(part, length, gone) for part in value if id(part) not in gone]
    return value


def _json(document: Any) -> str:
    """JSON without spaces that may stand in a script element."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return escaped(text)


def escaped(text: str) -> str:
    r"""JSON in which no element can end or begin, the same data.

    Example:
        >>> escaped('"</script><b>&"')
        '"\\u003c/script\\u003e\\u003cb\\u003e\\u0026"'
    """
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _frame(title: str, sections: Sequence[Section]) -> str:
    """The page but for the data: headings, facts and warnings are readable without the script."""
    style, script = _asset("page.css"), "".join(_asset(name) for name in SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    names = _anchors(sections)
    parts = {
        "POLICY": policy,
        "TITLE": _text(title),
        "STYLE": style,
        "NAV": "".join(f'<li><a href="#{anchor}">{_text(section.title)}</a></li>'
                       for anchor, section in zip(names, sections, strict=True)),
        "WARNINGS": _warnings(names, sections),
        "SECTIONS": "".join(_section(i, anchor, section) for i, (anchor, section)
                            in enumerate(zip(names, sections, strict=True))),
        "VERSION": html.escape(__version__),
        "SCRIPT": script,
    }  # fmt: skip
    # One pass over the template: what a user's text looks like is never taken for a placeholder.
    template = _asset("page.html")
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda found: parts[found[1]], template)


def _asset(name: str) -> str:
    return resources.files("irtcat").joinpath("report", "assets", name).read_text("utf-8")


def _hash(text: str) -> str:
    """What a Content-Security-Policy knows an inline script or style by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _anchors(sections: Sequence[Section]) -> list[str]:
    """A link target for each section."""
    return [f"section-{i + 1}" for i in range(len(sections))]


def _warnings(names: Sequence[str], sections: Sequence[Section]) -> str:
    """All warnings in one list, each with a link to its section."""
    items = [
        f'<li>{_text(said)} <a href="#{anchor}">{_text(section.title)}</a></li>'
        for anchor, section in zip(names, sections, strict=True)
        for said in section.warnings
    ]
    if not items:
        return '<p class="fine">No warnings: nothing in these results is flagged.</p>'
    return f'<ul class="warnings">{"".join(items)}</ul>'


def _text(text: str) -> str:
    """Text of a user in HTML; `@` would be taken for a placeholder."""
    return html.escape(" ".join(str(text).split())).replace("@", "&#64;")


def _section(number: int, anchor: str, section: Section) -> str:
    """A section: heading, sentences, facts, and places for its blocks."""
    intro = "".join(f"<p>{_text(said)}</p>" for said in section.intro if said)
    facts = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
                    for name, value in section.facts.items())  # fmt: skip
    facts = f'<dl class="facts">{facts}</dl>' if facts else ""
    places = "".join(f'<div class="block" data-at="{number},{i}"></div>'
                     for i in range(len(section.blocks)))  # fmt: skip
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<h2 id="{anchor}-title" tabindex="-1">{_text(section.title)}</h2>'
        f"{intro}{facts}{places}</section>"
    )

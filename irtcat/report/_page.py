"""Renders sections as HTML: user data is escaped, script and style are pinned by their hash."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Collection, Iterator, Sequence
from importlib import resources
from typing import Any

from irtcat._version import __version__
from irtcat.report._blocks import Section, shorter

__all__ = ["page"]

SCRIPTS = ("core.js", "charts.js", "tables.js", "page.js")
LENGTHS = (2000, 1000, 500, 300, 200, 140, 100, 70, 50, 30)
"""Lengths to which long texts are truncated: the first with which the page fits."""


MANY_ROWS, NOTE_BYTES = 500, 70
"""Tables with more rows may lose columns; the note about each takes so many bytes."""

UNSAFE = re.compile("[<>&@\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that could end an element or a placeholder, or change the writing direction."""


def page(title: str, sections: Sequence[Section], limit: int) -> str:
    """Render the page, reduced to fewer bytes than ``limit``.

    Long texts are truncated first; then columns of long tables are omitted, minor ones last. A note
    at the end of the page reports both.

    Args:
        title: heading.
        sections: in order.
        limit: bytes.
    """
    frame = _frame(title, sections)
    room = limit - len(frame.encode()) - 400
    longest = max((len(text) for text in _texts(sections)), default=0)
    lengths = [longest, *(length for length in LENGTHS if length < longest)]
    first, last = 0, len(lengths) - 1  # bisection: shorter texts give a smaller page
    while first < last:
        middle = (first + last) // 2
        small = len(_data(sections, lengths[middle]).encode()) <= room
        first, last = (first, middle) if small else (middle + 1, last)
    note = ""
    if first > 0:
        note = f"Long texts are truncated to {lengths[first]} letters to limit the page size."
    data = _data(sections, lengths[first])
    omitted = _columns_to_omit(sections, lengths[first], len(data.encode()) - room)
    if omitted:
        data = _data(sections, lengths[first], {id(column) for column in omitted})
        names = ", ".join(dict.fromkeys(shorter(column["label"], 60) for column in omitted))
        note += f" Columns omitted to limit the page size: {names}."
    return frame.replace("@@NOTE@@", _text(note)).replace("@@DATA@@", data)


def _columns_to_omit(sections: Sequence[Section], length: int, excess: int) -> list[dict[str, Any]]:
    """As few columns of long tables as needed to save ``excess`` bytes, long texts first."""
    if excess <= 0:
        return []
    candidates = [
        (bool(column.get("long")), index, column)
        for section in sections
        for table in _in_blocks(section.blocks)
        if table.get("n", 0) > MANY_ROWS
        for index, column in enumerate(table["cols"])
        if index and (column.get("long") or column.get("minor"))
    ]
    omitted: list[dict[str, Any]] = []
    for _, _, column in sorted(candidates, key=lambda entry: entry[:2], reverse=True):
        if excess + NOTE_BYTES * len(omitted) <= 0:
            break
        excess -= len(_json(_reduced(column, length)).encode())
        omitted.append(column)
    return omitted


def _texts(sections: Any) -> Iterator[str]:
    """Every text that may be truncated."""
    for column in _long_columns(sections):
        yield from column["v"]


def _long_columns(sections: Sequence[Section]) -> Iterator[dict[str, Any]]:
    """The columns of long texts in all blocks."""
    for section in sections:
        for block in _in_blocks(section.blocks):
            yield from (column for column in block.get("cols", ()) if column.get("long"))


def _in_blocks(blocks: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every block, including nested ones."""
    for block in blocks:
        yield block
        yield from _in_blocks(block.get("blocks", ()))
        for option in block.get("options", ()):
            yield from _in_blocks(option["blocks"])


def _data(sections: Sequence[Section], length: int, omitted: Collection[int] = ()) -> str:
    """The blocks as JSON for a script element."""
    return _json([_reduced(list(section.blocks), length, omitted) for section in sections])


def _reduced(value: Any, length: int, omitted: Collection[int] = ()) -> Any:
    """A copy with truncated texts, and without the columns whose `id` is in ``omitted``."""
    if isinstance(value, dict):
        if value.get("long"):
            return {**value, "v": [shorter(text, length) for text in value["v"]]}
        return {key: _reduced(entry, length, omitted) for key, entry in value.items()}
    if isinstance(value, list):
        return [_reduced(entry, length, omitted) for entry in value if id(entry) not in omitted]
    return value


def _json(document: Any) -> str:
    """Compact JSON for a script element."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return escaped(text)


def escaped(text: str) -> str:
    r"""Escape JSON so that it cannot open or close an HTML element; the data are unchanged.

    Example:
        >>> escaped('"</script><b>&"')
        '"\\u003c/script\\u003e\\u003cb\\u003e\\u0026"'
    """
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _frame(title: str, sections: Sequence[Section]) -> str:
    """The page without the data; headings, facts and warnings are readable without scripts."""
    style, script = _asset("page.css"), "".join(_asset(name) for name in SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    anchors = _anchors(sections)
    values = {
        "POLICY": policy,
        "TITLE": _text(title),
        "STYLE": style,
        "NAV": "".join(f'<li><a href="#{anchor}">{_text(section.title)}</a></li>'
                       for anchor, section in zip(anchors, sections, strict=True)),
        "WARNINGS": _warnings(anchors, sections),
        "SECTIONS": "".join(_section(i, anchor, section) for i, (anchor, section)
                            in enumerate(zip(anchors, sections, strict=True))),
        "VERSION": html.escape(__version__),
        "SCRIPT": script,
    }  # fmt: skip
    # A single pass over the template, so that placeholders in user texts are not replaced.
    template = _asset("page.html")
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: values[match[1]], template)


def _asset(name: str) -> str:
    return resources.files("irtcat").joinpath("report", "assets", name).read_text("utf-8")


def _hash(text: str) -> str:
    """The hash by which a Content-Security-Policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _anchors(sections: Sequence[Section]) -> list[str]:
    """A link target for each section."""
    return [f"section-{i + 1}" for i in range(len(sections))]


def _warnings(anchors: Sequence[str], sections: Sequence[Section]) -> str:
    """All warnings in one list, each with a link to its section."""
    items = [
        f'<li>{_text(warning)} <a href="#{anchor}">{_text(section.title)}</a></li>'
        for anchor, section in zip(anchors, sections, strict=True)
        for warning in section.warnings
    ]
    if not items:
        return '<p class="fine">No warnings: nothing in these results is flagged.</p>'
    return f'<ul class="warnings">{"".join(items)}</ul>'


def _text(text: str) -> str:
    """Escape a user's text for HTML, including `@`, which marks placeholders."""
    return html.escape(" ".join(str(text).split())).replace("@", "&#64;")


def _section(number: int, anchor: str, section: Section) -> str:
    """A section: heading, sentences, facts, and placeholders for its blocks."""
    intro = "".join(f"<p>{_text(sentence)}</p>" for sentence in section.intro if sentence)
    facts = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>"
                    for name, value in section.facts.items())  # fmt: skip
    facts = f'<dl class="facts">{facts}</dl>' if facts else ""
    placeholders = "".join(f'<div class="block" data-at="{number},{i}"></div>'
                     for i in range(len(section.blocks)))  # fmt: skip
    return (
        f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
        f'<h2 id="{anchor}-title" tabindex="-1">{_text(section.title)}</h2>'
        f"{intro}{facts}{placeholders}</section>"
    )

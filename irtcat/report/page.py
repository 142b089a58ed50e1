"""Renders sections as HTML: user data is escaped, script and style are pinned by their hash."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from irtcat._files import html
from irtcat.report.blocks import TOPICS, Note, Section, shorter

ASSETS = "report/assets"
SCRIPTS = ("core.js", "charts.js", "tables.js", "page.js")
LENGTHS = (2000, 1000, 500, 300, 200, 140, 100, 70, 50, 30)
"""Lengths to which long texts are truncated: the first with which the page fits."""

NOTES_SHOWN = 4
"""Notes of each topic that are shown; the others are folded."""

Source = tuple[str, str]
"""The anchor and title of a section with a note."""

MANY_ROWS, NOTE_BYTES = 500, 70
"""Tables with more rows may lose columns; the remark about each takes so many bytes."""


@dataclass(frozen=True, eq=False)
class Headline:
    """The opening of the page.

    Attributes:
        meta: date, and numbers of models and items.
        sentences: the result in words; the first is the most important.
        facts: key figures, by name.
    """

    meta: Sequence[str] = ()
    sentences: Sequence[str] = ()
    facts: dict[str, str] = field(default_factory=dict)


class Placed(NamedTuple):
    """A section and its position on the page and in the data."""

    number: int
    section: Section

    @property
    def anchor(self) -> str:
        """Its link target."""
        return f"section-{self.number + 1}"


def page(
    title: str,
    sections: Sequence[Section],
    limit: int,
    headline: Headline | None = None,
    ranking: Section | None = None,
) -> str:
    """Render the page, reduced to fewer bytes than ``limit``.

    Long texts are truncated first; then columns of long tables are omitted, minor ones last. A
    remark at the end of the page reports both.

    Args:
        title: heading.
        sections: the details, in order.
        limit: bytes.
        headline: the opening.
        ranking: the section that follows it.
    """
    every = [*([] if ranking is None else [ranking]), *sections]
    values = _values(title, every, headline or Headline(), ranking is not None)

    def rendered(data: str, remark: str) -> str:
        return html.rendered("report/templates", **values, data=data, remark=remark)

    room = limit - len(rendered("", "").encode()) - 400
    longest = max((len(text) for text in _texts(every)), default=0)
    lengths = [longest, *(length for length in LENGTHS if length < longest)]
    first, last = 0, len(lengths) - 1  # bisection: shorter texts give a smaller page
    while first < last:
        middle = (first + last) // 2
        small = len(_data(every, lengths[middle]).encode()) <= room
        first, last = (first, middle) if small else (middle + 1, last)
    remark = ""
    if first > 0:
        remark = f"Long texts are truncated to {lengths[first]} letters to limit the page size."
    data = _data(every, lengths[first])
    omitted = _columns_to_omit(every, lengths[first], len(data.encode()) - room)
    if omitted:
        data = _data(every, lengths[first], {id(column) for column in omitted})
        names = ", ".join(dict.fromkeys(shorter(column["label"], 60) for column in omitted))
        remark += f" Columns omitted to limit the page size: {names}."
    return rendered(data, remark)


def _values(
    title: str, every: Sequence[Section], headline: Headline, has_ranking: bool
) -> dict[str, Any]:
    """What the template shows, apart from the data."""
    placed = [Placed(number, section) for number, section in enumerate(every)]
    notes = [
        (note, (place.anchor, html.one_line(place.section.title)))
        for place in placed
        for note in place.section.notes
    ]
    return {
        "title": title,
        "headline": headline,
        "ranking": placed[0] if has_ranking else None,
        "sections": placed[1:] if has_ranking else placed,
        "groups": grouped(notes),
        "shown": NOTES_SHOWN,
        "style": html.asset(ASSETS, "page.css"),
        "script": "".join(html.asset(ASSETS, name) for name in SCRIPTS),
    }


def grouped(notes: Sequence[tuple[Note, Source]]) -> list[list[tuple[Note, list[Source]]]]:
    """Notes by topic: equal ones once with all their sources, and the serious ones first.

    Args:
        notes: each with its section.

    Example:
        >>> a, b = Note("Two items are odd.", "Items"), Note("Not converged.", "Items", True)
        >>> [group] = grouped([(a, ("s1", "One")), (b, ("s1", "One")), (a, ("s2", "Two"))])
        >>> [(note.text, len(sources)) for note, sources in group]
        [('Not converged.', 1), ('Two items are odd.', 2)]
    """
    sources: dict[Note, list[Source]] = {}
    for note, source in notes:
        known = sources.setdefault(note, [])
        if source not in known:
            known.append(source)
    ordered = sorted(sources.items(), key=lambda entry: not entry[0].serious)
    groups = [[entry for entry in ordered if entry[0].topic == topic] for topic in TOPICS]
    return sorted(filter(None, groups), key=lambda group: not group[0][0].serious)


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
        excess -= len(html.script_json(_reduced(column, length)).encode())
        omitted.append(column)
    return omitted


def _texts(sections: Sequence[Section]) -> Iterator[str]:
    """Every text that may be truncated."""
    for section in sections:
        for block in _in_blocks(section.blocks):
            for column in block.get("cols", ()):
                yield from column["v"] if column.get("long") else ()


def _in_blocks(blocks: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every block, including nested ones."""
    for block in blocks:
        yield block
        yield from _in_blocks(block.get("blocks", ()))
        for option in block.get("options", ()):
            yield from _in_blocks(option["blocks"])


def _data(sections: Sequence[Section], length: int, omitted: Collection[int] = ()) -> str:
    """The blocks as JSON for a script element."""
    return html.script_json(
        [_reduced(list(section.blocks), length, omitted) for section in sections]
    )


def _reduced(value: Any, length: int, omitted: Collection[int] = ()) -> Any:
    """A copy with truncated texts, and without the columns whose `id` is in ``omitted``."""
    if isinstance(value, dict):
        if value.get("long"):
            return {**value, "v": [shorter(text, length) for text in value["v"]]}
        return {key: _reduced(entry, length, omitted) for key, entry in value.items()}
    if isinstance(value, list):
        return [_reduced(entry, length, omitted) for entry in value if id(entry) not in omitted]
    return value

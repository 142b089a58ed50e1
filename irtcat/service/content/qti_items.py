"""The items of a QTI package, and what they share: its XML, stimuli and media, each read once."""

import re
from collections.abc import Callable
from html import escape
from typing import Any
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, brief, shorten
from irtcat.service.content.authored import MOST_SET
from irtcat.service.content.fields import content_error
from irtcat.service.content.html import clean_html, shows
from irtcat.service.content.keys import Key
from irtcat.service.content.media import MOST_MEDIA, media_type, picture_size
from irtcat.service.content.packages import Package
from irtcat.service.content.qti_body import LEFT_OUT, Body, Field
from irtcat.service.content.qti_scoring import qti_key
from irtcat.service.content.qti_xml import (
    by_identifier,
    check_attributes,
    check_root,
    decode_name,
    in_version_3,
    local_name,
    parse_xml,
    required,
    turn_pairs,
    turned,
)
from irtcat.service.content.records import Item, Media, Picture, Stimulus

MOST_XML = 2**23
"""Largest XML file of an item or a manifest, in bytes: 8 MiB hold a manifest of 20,000 items."""


class QtiContent:
    """The members of a package.

    Attributes:
        stimuli: those read so far, by path.
        media: those read so far, by path.
        time_limits: of items, by path, as tests say.
        left_out: paths of items by what they do without.
    """

    def __init__(self, package: Package):
        self.package = package
        self.stimuli: dict[str, Stimulus] = {}
        self.media: dict[str, Media] = {}
        self.time_limits: dict[str, float] = {}
        self.left_out: dict[str, set[str]] = {}
        self._size = 0

    def where(self, path: str) -> str:
        """How messages name a member."""
        return f"{self.package.name}, {brief(path)}"

    def parsed(self, path: str) -> Element:
        """The XML of a member, in the names of 3.0."""
        return in_version_3(parse_xml(self.package.read(path, MOST_XML), self.where(path)))

    def stimulus(self, path: str) -> Stimulus:
        """The stimulus of a member."""
        if path in self.stimuli:
            return self.stimuli[path]
        root, where = self.parsed(path), self.where(path)
        check_root(root, "qti-assessment-stimulus", where)
        check_attributes(root, "identifier title tool-name tool-version", where)
        self.check_children(root, ("qti-stimulus-body",), path)
        body = Body(where, {})
        html = body.inner(only(root, "qti-stimulus-body", where))
        self.leave_out(path, *body.left_out)
        self.stimuli[path] = Stimulus(
            id=decode_name(required(root, "identifier", where)),
            content_html=clean_html(html, where, self.address_of(path)),
            title=root.get("title", ""),
            language=language_of(root),
        )
        return self.stimuli[path]

    def address_of(self, base: str) -> Callable[[str], str]:
        """The ``media:`` address of a file that a member names."""
        where = self.where(base)

        def address(name: str) -> str:
            path = self.package.resolve(base, name, where)
            if path not in self.media:
                media_type(path)
                self.media[path] = Media.from_bytes(self.package.read(path, MOST_MEDIA), path)
                self._size += len(self.media[path].data)
                if self._size > MOST_SET:
                    most = f"at most {MOST_SET // 2**20} MiB of media"
                    raise content_error(self.package.name, most)
            return f"media:{self.media[path].name}"

        return address

    def picture(self, found: dict[str, str], path: str) -> Picture:
        """The picture that a member shows, whose size may be that of the file."""
        name = self.address_of(path)(found["src"]).removeprefix("media:")
        sizes = [found[side].removesuffix("px").strip() for side in ("width", "height")]
        if not any(sizes):
            data = next(media.data for media in self.media.values() if media.name == name)
            sizes = list(map(str, picture_size(data)))
        if len(sizes) < 2 or not all(re.fullmatch(r"\d{1,5}", size) for size in sizes):
            must = "width and height of the picture in pixels, to which coordinates refer"
            raise content_error(self.where(path), must, shorten(sizes))
        return Picture(name, found["alt"], *map(int, sizes))

    def leave_out(self, path: str, *names: str) -> None:
        """Note what a member has that is left out."""
        for name in names:
            self.left_out.setdefault(name, set()).add(path)

    def check_children(self, root: Element, known: tuple[str, ...], path: str) -> None:
        """Refuse elements that are neither known nor left out."""
        for name in map(local_name, root):
            if name in LEFT_OUT:
                self.leave_out(path, LEFT_OUT[name])
            elif name not in known:
                raise InputError(f"{self.where(path)}: <{name}> is not supported.")

    def stimulus_of(self, root: Element, path: str, where: str) -> str | None:
        """Id of the stimulus to which an item refers, which is read."""
        references = root.findall("{*}qti-assessment-stimulus-ref")
        if len(references) > 1:
            raise content_error(where, "at most one stimulus", len(references))
        if not references:
            return None
        check_attributes(references[0], "identifier href title", where)
        address = required(references[0], "href", where)
        return self.stimulus(self.package.resolve(path, address, where)).id


def only(root: Element, name: str, where: str) -> Element:
    """The element of this name, of which there is one."""
    elements = root.findall(f"{{*}}{name}")
    if len(elements) != 1:
        raise content_error(where, f"one <{name}>", len(elements))
    return elements[0]


def language_of(root: Element) -> str:
    """The language of an element's content."""
    return root.get("{http://www.w3.org/XML/1998/namespace}lang", "").strip()


ITEM_PARTS = (
    "qti-response-declaration",
    "qti-outcome-declaration",
    "qti-assessment-stimulus-ref",
    "qti-item-body",
    "qti-response-processing",
)

BLANK = '<span class="blank"></span>'
"""The gap that a text fills in, within a sentence."""

LAST_BLANK = re.compile(rf"<p>\s*{BLANK}\s*</p>\s*$")
"""A paragraph of only the gap at the end: there the page shows the field anyway."""

RESPONSES = {
    "choice": ("single", "identifier"),
    "choices": ("multiple", "identifier"),
    "order": ("ordered", "identifier"),
    "text": ("single", "string integer float"),
    "essay": ("single multiple ordered", "string"),
    "match": ("single multiple", "directedPair identifier"),  # which some editors write
    "associate": ("single multiple", "pair"),
}
"""Cardinality and base types of the responses to each kind of item."""


def read_item(content: QtiContent, path: str, labels: tuple[str, ...]) -> tuple[Item, Key | None]:
    """The item of a member, and its key if it has one."""
    root, where = content.parsed(path), content.where(path)
    check_root(root, "qti-assessment-item", where)
    known = "identifier title adaptive time-dependent tool-name tool-version"
    check_attributes(root, known, where)
    if root.get("adaptive", "false") != "false":
        raise InputError(f"{where}: adaptive items of QTI are not supported.")
    content.check_children(root, ITEM_PARTS, path)
    declared = by_identifier(root, "qti-response-declaration", where)
    body = Body(where, declared)
    html = body.inner(only(root, "qti-item-body", where))
    content.leave_out(path, *body.left_out)
    if not body.fields:
        raise InputError(f"{where}: it has no interaction: there is nothing to answer.")
    item = _composed(content, root, body, html, path, labels)
    parts = {part.id: part for part in item.parts} or {body.fields[0].response: item}
    for name, part in parts.items():
        _check_response(declared[name], part, where)
    rubric = clean_html("".join(body.rubrics), where, content.address_of(path))
    # QTI has the gap last, and the entry of the first set first in other matches.
    pairs = {pair for part in parts.values() if part.kind == "match" for pair in part.pairs}
    turn_pairs(root, {turned(pair) for pair in pairs})
    key = qti_key(item, parts, root, rubric, where)
    if key is None and any(map(len, declared.values())):
        content.leave_out(path, "right responses without response processing")
    return item, key


def _composed(
    content: QtiContent, root: Element, body: Body, html: str, path: str, labels: tuple[str, ...]
) -> Item:
    """The item of a body: of one interaction at its end, or with several answer fields."""
    where, address_of = content.where(path), content.address_of(path)
    field, name = body.fields[0], decode_name(required(root, "identifier", where))
    after = clean_html(html.partition(field.position)[2], where, address_of)
    single = len(body.fields) == 1 and (field.inline or not shows(after))
    if single:
        if not field.inline:  # blocks that hold only the interaction
            around = re.compile(rf"<(p|div)(?: [^>]*)?>\s*{field.position}\s*</\1>")
            while around.search(html):
                html = around.sub(lambda _: field.position, html)
        html = html.replace(field.position, BLANK if field.inline else field.html)
    prompt = clean_html(html, where, address_of)
    prompt = LAST_BLANK.sub("", prompt) if single else prompt
    if single and not shows(prompt):
        prompt = f"<p>{escape(root.get('title', ''))}</p>"  # it may be shown, says the standard
    direction = only(root, "qti-item-body", where).get("dir", "").replace("auto", "")
    fields: dict[str, Any] = {"language": language_of(root), "direction": direction}
    about: dict[str, Any] = {
        "time_limit": content.time_limits.get(path),
        "stimulus": content.stimulus_of(root, path, where),
        "title": "" if root.get("title") == name else root.get("title", ""),
        "labels": labels,
    }
    if single:
        answered = _answer(content, body, field, path)
        return Item(id=name, prompt=prompt, **fields, **answered, **about)
    parts = []
    for it in body.fields:
        shown = clean_html(it.html, where, address_of)
        answered = _answer(content, body, it, path)
        parts.append(Item(id=it.response, prompt=shown, inline=True, **fields, **answered))
    return Item(id=name, kind="several", prompt=prompt, parts=tuple(parts), **fields, **about)


def _answer(content: QtiContent, body: Body, field: Field, path: str) -> dict[str, Any]:
    """The fields of an item that an interaction gives."""
    where, address_of = content.where(path), content.address_of(path)
    base_type = body.declared[field.response].get("base-type")
    return {
        "kind": field.kind,
        **field.cleaned(where, address_of),
        "picture": None if field.picture is None else content.picture(field.picture, path),
        "numeric": field.kind == "text" and base_type in ("integer", "float"),
        **field.settings,
    }


def _check_response(declaration: Element, item: Item, where: str) -> None:
    """Raise unless the declared response fits the interaction."""
    default = ("single" if item.max_choices == 1 else "multiple", "identifier")
    known, base_types = RESPONSES.get(item.kind, default)
    cardinality, base_type = (str(declaration.get(it)) for it in ("cardinality", "base-type"))
    if cardinality == "multiple" and item.kind == "hottext":
        known = "multiple"
    if cardinality not in known.split() or base_type not in base_types.split():
        must = f"a response of cardinality {known} and base type {base_types}"
        raise content_error(where, must, f"{cardinality} {base_type}")

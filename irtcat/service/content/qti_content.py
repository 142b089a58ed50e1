"""What the items of a QTI package share: its XML, stimuli and media, each read once."""

import re
from collections.abc import Callable
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, brief, shorten
from irtcat.service.content.authored import MOST_SET
from irtcat.service.content.fields import content_error
from irtcat.service.content.html import clean_html
from irtcat.service.content.media import MOST_MEDIA, media_type, picture_size
from irtcat.service.content.packages import Package
from irtcat.service.content.qti_body import LEFT_OUT, Body
from irtcat.service.content.qti_xml import (
    QTI,
    check_attributes,
    decode_name,
    in_version_3,
    local_name,
    namespace,
    parse_xml,
    required,
)
from irtcat.service.content.records import Media, Picture, Stimulus

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
        bodies = []
        for child in root:
            if local_name(child) in LEFT_OUT:
                self.leave_out(LEFT_OUT[local_name(child)], path)
                continue
            if local_name(child) != "qti-stimulus-body":
                raise InputError(f"{where}: <{local_name(child)}> is not supported.")
            bodies.append(child)
        if len(bodies) != 1:
            raise content_error(where, "one <qti-stimulus-body>", len(bodies))
        body = Body(where, {})
        html = body.inner(bodies[0])
        self.leave_out_of(body, path)
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
                    most = f"{MOST_SET // 2**20} MiB"
                    raise InputError(f"{self.package.name}: expected at most {most} of media.")
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

    def leave_out(self, name: str, path: str) -> None:
        """Note what a member has that is left out."""
        self.left_out.setdefault(name, set()).add(path)

    def leave_out_of(self, body: Body, path: str) -> None:
        """Note what is left out of a body."""
        for name in body.left_out:
            self.leave_out(name, path)

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


def check_root(root: Element, name: str, where: str) -> None:
    """Raise unless it is such an element of QTI 3.0."""
    if local_name(root) != name or namespace(root) != QTI:
        got = f"<{local_name(root)}> of {namespace(root) or 'no namespace'}"
        raise content_error(where, f"<{name}> of QTI 3.0", got)


def only(root: Element, name: str, where: str) -> Element:
    """The element of this name, of which there is one."""
    elements = root.findall(f"{{*}}{name}")
    if len(elements) != 1:
        raise content_error(where, f"one <{name}>", len(elements))
    return elements[0]


def language_of(root: Element) -> str:
    """The language of an element's content."""
    return root.get("{http://www.w3.org/XML/1998/namespace}lang", "").strip()

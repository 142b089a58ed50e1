"""Reading QTI packages: 3.0, and 2.1 and 2.2 under the names of 3.0."""

import os
import re
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, brief, shorten
from irtcat.service.content.authored import MOST_ITEMS, MOST_SET
from irtcat.service.content.fields import content_error
from irtcat.service.content.html import clean_html, media_names, plain_text
from irtcat.service.content.item_set import ItemSet
from irtcat.service.content.keys import Key, checked_key
from irtcat.service.content.media import MOST_MEDIA, media_type, picture_size
from irtcat.service.content.packages import Package, open_package
from irtcat.service.content.qti_body import LEFT_OUT, AuthoredChoice, Body, Field
from irtcat.service.content.qti_scoring import qti_key
from irtcat.service.content.qti_xml import (
    ITEM_TYPES,
    MANIFEST,
    QTI,
    STIMULUS_TYPE,
    TEST_TYPES,
    as_number,
    check_attributes,
    decode_name,
    in_version_3,
    required,
    turn_pairs,
    turned,
)
from irtcat.service.content.records import Choice, Item, Media, Picture, Stimulus
from irtcat.service.content.xml import local_name, namespace, parse_xml

MOST_XML = 2**23
"""Largest XML file of an item or a manifest, in bytes: 8 MiB hold a manifest of 20,000 items."""

ITEM_PARTS = (
    "qti-response-declaration",
    "qti-outcome-declaration",
    "qti-assessment-stimulus-ref",
    "qti-item-body",
    "qti-response-processing",
)

TEST_PARTS = (
    "qti-assessment-test",
    "qti-test-part",
    "qti-assessment-section",
    "qti-assessment-item-ref",
    "qti-time-limits",
)


def read_qti(path: str | os.PathLike[str], ignore_tests: bool = False) -> ItemSet:
    """Read the items of a QTI package, of version 3.0, 2.1 or 2.2.

    Read are items with one choice, inline choice, order, hottext, text entry, slider (as a field
    for a number) or extended text interaction, their stimuli and media. Response processing,
    templates and rules, is run for the responses that an item can have, and its key gives the same
    scores: one right response, or points of the parts of a response. Of a test in the package only
    the time limits of its items are read. Classes, styles and ids, which only change how content
    looks, are not kept.

    Items that are not supported, and content that items do without (style sheets, feedback,
    catalogues, companion materials), are left out; ``notes`` of the set name them with the reason.

    Args:
        path: the package, a zip with ``imsmanifest.xml``.
        ignore_tests: whether tests in the package are left out without a note.

    Raises:
        InputError: naming the file in the package; where no item is supported, all reasons.
    """
    with open_package(Path(path)) as package:
        return _Reader(package, ignore_tests).read()


class _Reader:
    """Reads a package; stimuli and media are read once."""

    def __init__(self, package: Package, ignore_tests: bool):
        self.package, self.ignore_tests = package, ignore_tests
        self.stimuli: dict[str, Stimulus] = {}  # by path
        self.media: dict[str, Media] = {}  # by path
        self.time_limits: dict[str, float] = {}  # by path of the item
        self.size = 0
        self.notes: list[str] = []
        self.faults: list[str] = []
        self.left_out: dict[str, set[str]] = {}  # paths of items by what they do without

    def read(self) -> ItemSet:
        if MANIFEST not in self.package:
            raise InputError(f"{self.package.name}: expected a QTI package with {MANIFEST}.")
        resources = list(self._resources())
        items = [(path, labels) for kind, path, labels in resources if kind in ITEM_TYPES]
        if not items:
            must = "expected items of QTI 3.0, 2.2 or 2.1"
            raise InputError(
                f"{self.package.name}: {must}. Got none. {' '.join(self.notes)}".strip()
            )
        if len(items) > MOST_ITEMS:
            raise InputError(f"{self.package.name}: expected at most {MOST_ITEMS:,} items.")
        tests = [path for kind, path, _ in resources if kind in TEST_TYPES]
        for path in () if self.ignore_tests else tests:
            self._or_note(self._read_test, path, note="This test is left out.")
        records = [
            record
            for path, labels in items
            if (record := self._or_note(self._item, path, labels, note="This item is left out."))
        ]
        if not records:
            raise InputError(self.faults[0] if len(items) == 1 else " ".join(self.faults))
        for name, paths in self.left_out.items():
            what = f"{len(paths)} items" if len(paths) > 1 else f"{brief(min(paths))}"
            self.notes.append(f"{self.package.name}: the {name} of {what} are left out.")
        return self._item_set(records)

    def _item_set(self, records: list[tuple[Item, Key | None]]) -> ItemSet:
        """The items with what they use; files of items that are left out may have been read."""
        items = [item for item, _ in records]
        used = {item.stimulus for item in items}
        stimuli = [stimulus for stimulus in self.stimuli.values() if stimulus.id in used]
        shown = {name for item in items for name in item.media}
        shown |= {name for stimulus in stimuli for name in stimulus.media}
        return ItemSet(
            items=items,
            keys=[key for _, key in records if key],
            stimuli=stimuli,
            media={m.name: m for m in self.media.values() if m.name in shown},
            notes=tuple(self.notes),
        )

    def _or_note(self, read: Callable[..., Any], path: str, *more: Any, note: str) -> Any:
        """What a function reads of a member, or a note that it is left out; None then.

        Faults of the package as a whole, such as its size, are raised.
        """
        try:
            return read(path, *more)
        except InputError as error:
            text, name = str(error), self.package.name
            if text.startswith(f"{name}: ") or "cannot be read as a zip" in text:
                raise
            text = text if text.startswith(self._where(path)) else f"{self._where(path)}: {text}"
            self.faults.append(text)
            self.notes.append(f"{text} {note}")
            return None

    def _where(self, path: str) -> str:
        return f"{self.package.name}, {brief(path)}"

    def _parsed(self, path: str) -> Element:
        return in_version_3(parse_xml(self.package.read(path, MOST_XML), self._where(path)))

    def _resources(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Type, path and labels of each resource of the manifest."""
        root, where = self._parsed(MANIFEST), self._where(MANIFEST)
        if local_name(root) != "manifest":
            raise content_error(where, "<manifest>", f"<{local_name(root)}>")
        for resource in root.findall("{*}resources/{*}resource"):
            kind, address = resource.get("type", ""), resource.get("href", "")
            if kind in (*ITEM_TYPES, STIMULUS_TYPE, *TEST_TYPES):
                path = self.package.resolve(MANIFEST, address, where)
                keywords = resource.findall("{*}metadata/{*}lom/{*}general/{*}keyword/{*}string")
                yield kind, path, tuple((word.text or "").strip() for word in keywords)
            elif kind.startswith("imsqti_"):
                got = f"{shorten(kind)} ({brief(address)})"
                self.notes.append(f"{where}: the resource {got} is left out.")

    def _stimulus(self, path: str) -> Stimulus:
        if path in self.stimuli:
            return self.stimuli[path]
        root, where = self._parsed(path), self._where(path)
        _check_root(root, "qti-assessment-stimulus", where)
        check_attributes(root, "identifier title tool-name tool-version", where)
        bodies = []
        for child in root:
            if local_name(child) in LEFT_OUT:
                self.left_out.setdefault(LEFT_OUT[local_name(child)], set()).add(path)
                continue
            if local_name(child) != "qti-stimulus-body":
                raise InputError(f"{where}: <{local_name(child)}> is not supported.")
            bodies.append(child)
        if len(bodies) != 1:
            raise content_error(where, "one <qti-stimulus-body>", len(bodies))
        body = Body(where, {})
        html = body.inner(bodies[0])
        self._note_left_out(body, path)
        self.stimuli[path] = Stimulus(
            id=decode_name(required(root, "identifier", where)),
            content_html=clean_html(html, where, self._address_of(path)),
            title=root.get("title", ""),
            language=_language(root),
        )
        return self.stimuli[path]

    def _address_of(self, base: str) -> Callable[[str], str]:
        """The ``media:`` address of a file that a member names."""
        where = self._where(base)

        def address(name: str) -> str:
            path = self.package.resolve(base, name, where)
            if path not in self.media:
                media_type(path)
                self.media[path] = Media.from_bytes(self.package.read(path, MOST_MEDIA), path)
                self.size += len(self.media[path].data)
                if self.size > MOST_SET:
                    most = f"{MOST_SET // 2**20} MiB"
                    raise InputError(f"{self.package.name}: expected at most {most} of media.")
            return f"media:{self.media[path].name}"

        return address

    def _read_test(self, path: str) -> None:
        """The time limits of the items of a test."""
        root, where = self._parsed(path), self._where(path)
        _check_root(root, "qti-assessment-test", where)
        for element in root.iter():
            name = local_name(element)
            if name not in TEST_PARTS:
                raise InputError(f"{where}: <{name}> of a test is not supported.")
            if name != "qti-assessment-item-ref" and element.find("{*}qti-time-limits") is not None:
                raise InputError(f"{where}: time limits of <{name}> are not supported.")
        time_limits = {}
        for reference in root.iter(f"{{{QTI}}}qti-assessment-item-ref"):
            limits = reference.find("{*}qti-time-limits")
            item = self.package.resolve(path, required(reference, "href", where), where)
            if limits is not None:
                check_attributes(limits, "max-time", where)
            if limits is not None and limits.get("max-time"):
                limit = as_number(limits.get("max-time"), "max-time", where)
                time_limits[item] = limit
        self.time_limits |= time_limits

    def _item(self, path: str, labels: tuple[str, ...]) -> tuple[Item, Key | None]:
        root, where = self._parsed(path), self._where(path)
        _check_root(root, "qti-assessment-item", where)
        known = "identifier title adaptive time-dependent tool-name tool-version"
        check_attributes(root, known, where)
        if root.get("adaptive", "false") != "false":
            raise InputError(f"{where}: adaptive items of QTI are not supported.")
        for child in root:
            if local_name(child) in LEFT_OUT:
                self.left_out.setdefault(LEFT_OUT[local_name(child)], set()).add(path)
            elif local_name(child) not in ITEM_PARTS:
                raise InputError(f"{where}: <{local_name(child)}> is not supported.")
        declared = {
            required(element, "identifier", where): element
            for element in root.findall("{*}qti-response-declaration")
        }
        body_element = _only(root, "qti-item-body", where)
        body = Body(where, {name: it.get("cardinality", "") for name, it in declared.items()})
        html = body.inner(body_element)
        self._note_left_out(body, path)
        if not body.fields:
            raise InputError(f"{where}: it has no interaction: there is nothing to answer.")
        try:
            item = self._composed(root, body, html, path, labels)
            parts = {part.id: part for part in item.parts} or {body.fields[0].response: item}
            for name, part in parts.items():
                _check_response(declared[name], part, where)
            rubric = clean_html("".join(body.rubrics), where, self._address_of(path))
            # QTI has the gap last, and the entry of the first set first in other matches.
            pairs = {pair for part in parts.values() if part.kind == "match" for pair in part.pairs}
            turn_pairs(root, {turned(pair) for pair in pairs})
            key = qti_key(item, parts, root, rubric, where)
            key = None if key is None else checked_key(key, item)
        except InputError as error:
            text = str(error)
            raise (error if text.startswith(where) else InputError(f"{where}: {text}")) from None
        if key is None and any(map(len, declared.values())):
            self.left_out.setdefault("right responses without response processing", set()).add(path)
        return item, key

    def _composed(
        self, root: Element, body: Body, html: str, path: str, labels: tuple[str, ...]
    ) -> Item:
        """The item of a body: of one interaction at its end, or with several answer fields."""
        where, address_of = self._where(path), self._address_of(path)
        numeric = {
            declaration.get("identifier")
            for declaration in root.findall("{*}qti-response-declaration")
            if declaration.get("base-type") in ("integer", "float")
        }
        field, name = body.fields[0], decode_name(required(root, "identifier", where))
        after = clean_html(html.partition(field.position)[2], where, address_of)
        single = len(body.fields) == 1 and (
            field.inline or not (plain_text(after) or media_names(after))
        )
        if single:
            if not field.inline:  # blocks that hold only the interaction
                around = re.compile(rf"<(p|div)(?: [^>]*)?>\s*{field.position}\s*</\1>")
                while around.search(html):
                    html = around.sub(lambda _: field.position, html)
            html = html.replace(field.position, BLANK if field.inline else field.html)
        prompt = clean_html(html, where, address_of)
        prompt = LAST_BLANK.sub("", prompt) if single else prompt
        if not plain_text(prompt) and not media_names(prompt) and single:
            prompt = f"<p>{escape(root.get('title', ''))}</p>"  # it may be shown, says the standard
        language, direction = _language(root), _only(root, "qti-item-body", where).get("dir", "")
        fields: dict[str, Any] = {"language": language, "direction": direction.replace("auto", "")}
        about: dict[str, Any] = {
            "time_limit": self.time_limits.get(path),
            "stimulus": self._stimulus_of(root, path, where),
            "title": "" if root.get("title") == name else root.get("title", ""),
            "labels": labels,
        }
        if single:
            answered = self._answer(field, field.response in numeric, path)
            return Item(id=name, prompt=prompt, **fields, **answered, **about)
        parts = [
            Item(
                id=it.response,
                prompt=clean_html(it.html, where, address_of),
                inline=True,
                **fields,
                **self._answer(it, it.response in numeric, path),
            )
            for it in body.fields
        ]
        return Item(id=name, kind="several", prompt=prompt, parts=tuple(parts), **fields, **about)

    def _answer(self, field: Field, numeric: bool, path: str) -> dict[str, Any]:
        """The fields of an item that an interaction gives."""
        where, address_of = self._where(path), self._address_of(path)

        def choices(found: list[AuthoredChoice]) -> tuple[Choice, ...]:
            return tuple(
                Choice(
                    it.id,
                    clean_html(it.html, f"{where}, choice {brief(it.id)}", address_of),
                    it.fixed,
                    it.most,
                    it.area,
                )
                for it in found
            )

        return {
            "kind": field.kind,
            "choices": choices(field.choices),
            "options": choices(field.options),
            "picture": None if field.picture is None else self._picture(field.picture, path),
            "numeric": numeric and field.kind == "text",
            **field.settings,
        }

    def _picture(self, found: dict[str, str], path: str) -> Picture:
        name = self._address_of(path)(found["src"]).removeprefix("media:")
        sizes = [found[side].removesuffix("px").strip() for side in ("width", "height")]
        if not any(sizes):
            data = next(media.data for media in self.media.values() if media.name == name)
            sizes = list(map(str, picture_size(data)))
        if len(sizes) < 2 or not all(re.fullmatch(r"\d{1,5}", size) for size in sizes):
            must = "width and height of the picture in pixels, to which coordinates refer"
            raise content_error(self._where(path), must, shorten(sizes))
        return Picture(name, found["alt"], *map(int, sizes))

    def _note_left_out(self, body: Body, path: str) -> None:
        for name in body.left_out:
            self.left_out.setdefault(name, set()).add(path)

    def _stimulus_of(self, root: Element, path: str, where: str) -> str | None:
        references = root.findall("{*}qti-assessment-stimulus-ref")
        if len(references) > 1:
            raise content_error(where, "at most one stimulus", len(references))
        if not references:
            return None
        check_attributes(references[0], "identifier href title", where)
        address = required(references[0], "href", where)
        return self._stimulus(self.package.resolve(path, address, where)).id


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


def _check_response(declaration: Element, item: Item, where: str) -> None:
    """Raise unless the declared response fits the interaction."""
    default = ("single" if item.max_choices == 1 else "multiple", "identifier")
    cardinality, base_types = RESPONSES.get(item.kind, default)
    got = f"{declaration.get('cardinality')} {declaration.get('base-type')}"
    if declaration.get("cardinality") == "multiple" and item.kind == "hottext":
        cardinality = "multiple"
    if declaration.get("cardinality") not in cardinality.split() or (
        declaration.get("base-type") not in base_types.split()
    ):
        must = f"a response of cardinality {cardinality} and base type {base_types}"
        raise content_error(where, must, got)


def _check_root(root: Element, name: str, where: str) -> None:
    if local_name(root) != name or namespace(root) != QTI:
        got = f"<{local_name(root)}> of {namespace(root) or 'no namespace'}"
        raise content_error(where, f"<{name}> of QTI 3.0", got)


def _only(root: Element, name: str, where: str) -> Element:
    elements = root.findall(f"{{*}}{name}")
    if len(elements) != 1:
        raise content_error(where, f"one <{name}>", len(elements))
    return elements[0]


def _language(root: Element) -> str:
    return root.get("{http://www.w3.org/XML/1998/namespace}lang", "").strip()

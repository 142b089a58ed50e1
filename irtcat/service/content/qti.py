"""Reading QTI packages: 3.0, and 2.1 and 2.2 under the names of 3.0."""

import os
import re
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, brief, shorten
from irtcat.service.content.authored import MOST_SET
from irtcat.service.content.fields import content_error
from irtcat.service.content.folder import MOST_ITEMS
from irtcat.service.content.html import VOID, clean_html, media_names, plain_text
from irtcat.service.content.media import MOST_MEDIA, media_type
from irtcat.service.content.packages import Package, open_package
from irtcat.service.content.qti_attributes import as_number, check_attributes, number_text, required
from irtcat.service.content.qti_names import (
    ITEM_TYPES,
    MANIFEST,
    QTI,
    STIMULUS_TYPE,
    TEST_TYPES,
    decode_name,
)
from irtcat.service.content.qti_scoring import qti_key
from irtcat.service.content.qti_versions import in_version_3
from irtcat.service.content.records import Choice, Item, ItemSet, Key, Media, Stimulus, checked_key
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

LEFT_OUT = {
    "qti-stylesheet": "style sheets",
    "qti-catalog-info": "accessibility catalogues",
    "qti-companion-materials-info": "companion materials",
    "qti-modal-feedback": "feedback",
    "qti-feedback-inline": "feedback",
    "qti-feedback-block": "feedback",
}
"""Elements that an item does without, and what notes call them."""

TEST_PARTS = (
    "qti-assessment-test",
    "qti-test-part",
    "qti-assessment-section",
    "qti-assessment-item-ref",
    "qti-time-limits",
)

BLOCK = re.compile(r"<(p|div|section|table|ul|ol|dl|h[2-6]|blockquote|pre|figure|math)\b")


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
        if not self.ignore_tests:
            for kind, path, _ in resources:
                if kind in TEST_TYPES:
                    self._or_note(self._read_test, path, note="This test is left out.")
        records = []
        for path, labels in items:
            record = self._or_note(self._item, path, labels, note="This item is left out.")
            records += [record] if record else []
        if not records:
            raise InputError(self.faults[0] if len(items) == 1 else " ".join(self.faults))
        for name, paths in self.left_out.items():
            what = f"{len(paths)} items" if len(paths) > 1 else f"{brief(min(paths))}"
            self.notes.append(f"{self.package.name}: the {name} of {what} are left out.")
        used = {item.stimulus for item, _ in records}
        stimuli = [stimulus for stimulus in self.stimuli.values() if stimulus.id in used]
        shown = {
            name for record in (*stimuli, *(item for item, _ in records)) for name in record.media
        }
        return ItemSet(
            items=[item for item, _ in records],
            keys=[key for _, key in records if key],
            stimuli=stimuli,
            media=list({m.name: m for m in self.media.values() if m.name in shown}.values()),
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
        html = _Body(where, {}).inner(bodies[0])
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
        for element in root.iter():
            if local_name(element) in LEFT_OUT:
                self.left_out.setdefault(LEFT_OUT[local_name(element)], set()).add(path)
        for child in root:
            if local_name(child) not in (*ITEM_PARTS, *LEFT_OUT):
                raise InputError(f"{where}: <{local_name(child)}> is not supported.")
        declaration = _only(root, "qti-response-declaration", where)
        body_element = _only(root, "qti-item-body", where)
        body = _Body(where, {"cardinality": declaration.get("cardinality", "")})
        html = body.inner(body_element)
        interaction = body.interaction
        if interaction is None:
            raise content_error(where, "one interaction", "none")
        if interaction.get("response-identifier") != declaration.get("identifier"):
            got = shorten(interaction.get("response-identifier"))
            raise content_error(where, "the interaction of the declared response", got)
        address_of = self._address_of(path)
        name = decode_name(required(root, "identifier", where))
        choices = [
            Choice(choice, clean_html(text, f"{where}, choice {brief(choice)}", address_of), fixed)
            for choice, text, fixed in body.choices
        ]
        stimulus = self._stimulus_of(root, path, where)
        prompt = LAST_BLANK.sub("", clean_html(html, where, address_of))
        if not plain_text(prompt) and not media_names(prompt):
            prompt = f"<p>{escape(root.get('title', ''))}</p>"  # it may be shown, says the standard
        try:
            item = Item(
                id=name,
                kind=body.kind,
                prompt=prompt,
                choices=tuple(choices),
                language=_language(root),
                direction=body_element.get("dir", "").replace("auto", ""),
                time_limit=self.time_limits.get(path),
                stimulus=stimulus,
                title="" if root.get("title") == name else root.get("title", ""),
                labels=labels,
                numeric=body.kind == "text"
                and declaration.get("base-type") in ("integer", "float"),
                **body.options,
            )
            _check_response(declaration, item, where)
            rubric = clean_html("".join(body.rubrics), where, address_of)
            key = qti_key(item, root, declaration, rubric, where)
            key = None if key is None else checked_key(key, item)
        except InputError as error:
            text = str(error)
            raise (error if text.startswith(where) else InputError(f"{where}: {text}")) from None
        return item, key

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
    "essay": ("single", "string"),
}
"""Cardinality and base types of the responses to each kind of item."""


def _check_response(declaration: Element, item: Item, where: str) -> None:
    """Raise unless the declared response fits the interaction."""
    default = ("single" if item.max_choices == 1 else "multiple", "identifier")
    cardinality, base_types = RESPONSES.get(item.kind, default)
    got = f"{declaration.get('cardinality')} {declaration.get('base-type')}"
    if declaration.get("cardinality") == "multiple" and item.kind == "hottext":
        cardinality = "multiple"
    if declaration.get("cardinality") != cardinality or (
        declaration.get("base-type") not in base_types.split()
    ):
        must = f"a response of cardinality {cardinality} and base type {base_types}"
        raise content_error(where, must, got)


class _Body:
    """HTML of an item body, and what its interaction says.

    Attributes:
        interaction: the interaction; None before it is found, and in stimuli.
        kind: kind of the item.
        choices: id, HTML and whether it is fixed, of each choice.
        options: further fields of the item.
        rubrics: HTML for scorers.
    """

    def __init__(self, where: str, response: dict[str, str]):
        self.where, self.response = where, response
        self.interaction: Element | None = None
        self.kind = ""
        self.choices: list[tuple[str, str, bool]] = []
        self.options: dict[str, Any] = {}
        self.rubrics: list[str] = []
        self._closed = False  # whether a block interaction has been read

    def inner(self, element: Element) -> str:
        """HTML of the content of an element."""
        parts = [self._text(element.text)]
        for child in element:
            parts += [self._outer(child), self._text(child.tail)]
        return "".join(parts)

    def _text(self, text: str | None) -> str:
        if self._closed and (text or "").strip():
            raise self._content_after(shorten((text or "").strip()))
        return escape(text or "", quote=False)

    def _outer(self, element: Element) -> str:
        """HTML of an element."""
        name = local_name(element)
        if name.startswith("qti-"):
            if name in LEFT_OUT:
                return ""
            handler = HANDLERS.get(name)
            if handler is None:
                raise InputError(f"{self.where}: <{name}> is not supported.")
            return handler(self, element)
        if self._closed and name in ("img", "audio", "video", "math", "object", "table"):
            raise self._content_after(f"<{name}>")
        if name == "object":
            name, element = _media_of(element, self.where)
        attributes = "".join(
            f' {key.rpartition("}")[2]}="{escape(value)}"' for key, value in element.items()
        )
        start = f"<{name}{attributes}>"
        inner = self.inner(element)
        if not inner.strip() and self.interaction is not None and name in ("p", "div"):
            return ""  # it held only the interaction
        return start if name in VOID else f"{start}{inner}</{name}>"

    def _content_after(self, got: str) -> InputError:
        return content_error(self.where, f"no content after the interaction ({self.kind})", got)

    def _begin(self, element: Element, attributes: str) -> None:
        if self.interaction is not None:
            raise content_error(self.where, "one interaction", "two")
        check_attributes(element, f"response-identifier {attributes}", self.where)
        required(element, "response-identifier", self.where)
        self.interaction = element

    def _prompt(self, element: Element) -> str:
        """HTML of the prompt of an interaction, as a paragraph."""
        prompts = element.findall("{*}qti-prompt")
        html = "".join(self.inner(prompt) for prompt in prompts)
        if not html.strip():
            return ""
        return html if BLOCK.search(html) else f"<p>{html.strip()}</p>"

    def _choice(self, element: Element) -> str:
        known = "shuffle max-choices min-choices orientation"
        self._begin(element, known)
        html = self._prompt(element)
        ordered = local_name(element) == "qti-order-interaction"
        for child in element:
            name = local_name(child)
            if name == "qti-simple-choice":
                check_attributes(child, "identifier fixed show-hide", self.where)
                if child.get("show-hide", "show") != "show":
                    raise InputError(f"{self.where}: hidden choices are not supported.")
                identifier = required(child, "identifier", self.where)
                choice = identifier, self.inner(child).strip(), child.get("fixed") == "true"
                self.choices.append(choice)
            elif name != "qti-prompt":
                raise InputError(f"{self.where}: <{name}> in an interaction is not supported.")
        if ordered:
            self.kind = "order"
            for name in ("max-choices", "min-choices"):
                count = self._count(element, name, 0)
                if count not in (0, len(self.choices)):
                    must = f"{name} of all {len(self.choices)} choices in an order"
                    raise content_error(self.where, must, count)
        else:
            single = self.response.get("cardinality") == "single"
            self.kind = "choice" if single else "choices"
            # More than there are is no limit; several editors write it.
            most = min(self._count(element, "max-choices", 1), len(self.choices))
            self.options["max_choices"] = 1 if single and most == 0 else most
            self.options["min_choices"] = self._count(element, "min-choices", 0)
        self.options["shuffle"] = element.get("shuffle", "false") == "true"
        self._closed = True
        return html

    def _count(self, element: Element, name: str, default: int) -> int:
        text = element.get(name, str(default)).strip()
        if not re.fullmatch(r"\d{1,6}", text):
            raise content_error(self.where, f"{name} as a whole number", shorten(text))
        return int(text)

    def _hottext_interaction(self, element: Element) -> str:
        self._begin(element, "max-choices min-choices")
        self.kind = "hottext"
        self.options["max_choices"] = self._count(element, "max-choices", 1)
        self.options["min_choices"] = self._count(element, "min-choices", 0)
        html = self._prompt(element)
        content = Element(element.tag)
        content.text = element.text
        content.extend(child for child in element if local_name(child) != "qti-prompt")
        html += self.inner(content)
        self._closed = True
        return html

    def _hottext(self, element: Element) -> str:
        if self.kind != "hottext":
            raise InputError(f"{self.where}: expected <qti-hottext> in its interaction.")
        check_attributes(element, "identifier show-hide", self.where)
        identifier = required(element, "identifier", self.where)
        return f'<span data-choice="{escape(identifier)}">{self.inner(element)}</span>'

    def _inline_choice(self, element: Element) -> str:
        """A gap in a sentence; the choices are below the prompt."""
        self._begin(element, "shuffle required min-choices")
        for child in element:
            if local_name(child) == "qti-label":
                continue
            if local_name(child) != "qti-inline-choice":
                name = local_name(child)
                raise InputError(f"{self.where}: <{name}> in an interaction is not supported.")
            check_attributes(child, "identifier fixed show-hide", self.where)
            identifier = required(child, "identifier", self.where)
            choice = identifier, self.inner(child).strip(), child.get("fixed") == "true"
            self.choices.append(choice)
        self.kind = "choice"
        self.options["shuffle"] = element.get("shuffle", "false") == "true"
        return BLANK

    def _slider(self, element: Element) -> str:
        """A field for a number; the range stands below the prompt."""
        known = "lower-bound upper-bound step step-label orientation reverse"
        self._begin(element, known)
        html = self._prompt(element)
        for child in element:
            if local_name(child) != "qti-prompt":
                name = local_name(child)
                raise InputError(f"{self.where}: <{name}> in an interaction is not supported.")
        ends = [
            number_text(as_number(element.get(name), name, self.where), self.where)
            for name in ("lower-bound", "upper-bound")
        ]
        self.kind = "text"
        self._closed = True
        return f"{html}<p>{ends[0]} … {ends[1]}</p>"

    def _text_entry(self, element: Element) -> str:
        self._begin(element, "base expected-length pattern-mask format")
        if element.get("base", "10") != "10" or element.get("format", "plain") != "plain":
            raise InputError(f"{self.where}: base and format of a text entry are not supported.")
        self.kind = "text"
        self._entry_options(element)
        return BLANK

    def _entry_options(self, element: Element) -> None:
        if element.get("expected-length"):
            self.options["expected_length"] = self._count(element, "expected-length", 0)
        if element.get("pattern-mask"):
            self.options["pattern"] = element.get("pattern-mask", "")

    def _extended_text(self, element: Element) -> str:
        self._begin(element, "expected-length expected-lines max-strings min-strings format")
        if element.get("format", "plain") != "plain":
            raise InputError(
                f"{self.where}: extended text of another format than plain is not supported."
            )
        if self._count(element, "max-strings", 1) != 1:
            raise InputError(f"{self.where}: several texts in one interaction are not supported.")
        for child in element:
            if local_name(child) != "qti-prompt":
                name = local_name(child)
                raise InputError(f"{self.where}: <{name}> in an interaction is not supported.")
        self.kind = "essay"
        self._entry_options(element)
        if element.get("expected-lines"):
            self.options["expected_lines"] = self._count(element, "expected-lines", 0)
        html = self._prompt(element)
        self._closed = True
        return html

    def _rubric(self, element: Element) -> str:
        """Content for test takers, or for the scorers."""
        check_attributes(element, "view use", self.where)
        view = required(element, "view", self.where).split()
        if view not in (["candidate"], ["scorer"]):
            must = "<qti-rubric-block> for the candidate or the scorer"
            raise content_error(self.where, must, shorten(" ".join(view)))
        bodies = element.findall("{*}qti-content-body")
        if len(bodies) != len(element):
            raise content_error(self.where, "<qti-content-body> in <qti-rubric-block>", "other")
        if view == ["candidate"]:
            return "".join(map(self.inner, bodies))
        closed, self._closed = self._closed, False  # scorers may be addressed anywhere
        self.rubrics += [self.inner(body).strip() for body in bodies]
        self._closed = closed
        return ""


HANDLERS: dict[str, Callable[[_Body, Element], str]] = {
    "qti-choice-interaction": _Body._choice,
    "qti-order-interaction": _Body._choice,
    "qti-hottext-interaction": _Body._hottext_interaction,
    "qti-hottext": _Body._hottext,
    "qti-inline-choice-interaction": _Body._inline_choice,
    "qti-slider-interaction": _Body._slider,
    "qti-text-entry-interaction": _Body._text_entry,
    "qti-extended-text-interaction": _Body._extended_text,
    "qti-rubric-block": _Body._rubric,
}
"""How the elements of QTI in an item body are read; others are refused."""


def _media_of(element: Element, where: str) -> tuple[str, Element]:
    """The name and element of HTML that show a picture or play a sound as an object does."""
    kind = element.get("type", "").partition("/")[0]
    if kind not in ("image", "audio"):
        got = shorten(element.get("type"))
        raise content_error(where, "an <object> with a picture or a sound", got)
    sizes = {name: element.get(name, "") for name in ("width", "height") if element.get(name)}
    source = {"src": required(element, "data", where)}
    words = " ".join("".join(element.itertext()).split())
    if kind == "image":
        return "img", Element("img", {**source, "alt": words, **sizes})
    return "audio", Element("audio", {**source, "controls": ""})


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

"""Writing QTI 3.0 packages."""

import os
import re
import zipfile
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, TreeBuilder, indent, tostring

from irtcat._common.checks import InputError, brief, shorten
from irtcat._files import replacing
from irtcat.service.content.html import VOID, plain_text
from irtcat.service.content.item_set import ItemSet
from irtcat.service.content.keys import Key
from irtcat.service.content.numerals import number_of
from irtcat.service.content.qti_xml import (
    BASE_TYPES,
    CARDINALITIES,
    GRAPHIC_KINDS,
    INTERACTIONS,
    ITEM_TYPE,
    MANIFEST,
    MATHML,
    PACKAGING,
    QTI,
    STIMULUS_TYPE,
    TEMPLATES,
    TEST_TYPE,
    encode_name,
    local_name,
    parse_xml,
    turn_pairs,
)
from irtcat.service.content.records import KINDS, ONLY_IN, Choice, Item, Stimulus

LOM = "http://ltsc.ieee.org/xsd/LOM"
TEST_FILE = "test.xml"

FLOAT = re.compile(r"-?\d+(\.\d+)?")

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of all members, so that equal item sets give equal files."""


def write_qti(items: ItemSet, path: str | os.PathLike[str], keys: bool = True) -> Path:
    """Write an item set as a QTI 3.0 package, which `read_items` reads back.

    Ids that are not XML names are encoded (``7`` as ``_x0037_``). Time limits of items are written
    in a test, labels as keywords of the manifest.

    Args:
        items: the item set.
        path: the file, a zip.
        keys: whether to write the correct responses, mappings and rubrics.

    Returns:
        The path.

    Raises:
        InputError: the file cannot be written, or a key cannot be expressed in QTI.
    """
    stimulus_files = {name: f"stimuli/s{i}.xml" for i, name in enumerate(items.stimuli, start=1)}
    item_files = {name: f"items/i{i}.xml" for i, name in enumerate(items, start=1)}
    members = {stimulus_files[it.id]: _document(_stimulus(it)) for it in items.stimuli.values()}
    for item in items.items.values():
        element = _item(item, items.keys.get(item.id) if keys else None, stimulus_files)
        members[item_files[item.id]] = _document(element)
    if any(item.time_limit for item in items.items.values()):
        members[TEST_FILE] = _document(_test(items, item_files))
    members |= {f"media/{name}": media.data for name, media in items.media.items()}
    manifest = _manifest(items, item_files, stimulus_files, TEST_FILE in members)
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, data in {MANIFEST: _document(manifest), **members}.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
    return Path(path)


def _document(root: Element) -> bytes:
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="utf-8") + b"\n"


def _item(item: Item, key: Key | None, stimulus_files: dict[str, str]) -> Element:
    about = {"xmlns": QTI, "identifier": encode_name(item.id), "title": item.title or item.id}
    about |= {"adaptive": "false", "time-dependent": "false"}
    about |= {"xml:lang": item.language} if item.language else {}
    root = Element("qti-assessment-item", about)
    processing = _declare_all(root, item, key)
    if item.stimulus is not None:
        address = f"../{stimulus_files[item.stimulus]}"
        reference = {"identifier": encode_name(item.stimulus), "href": address}
        SubElement(root, "qti-assessment-stimulus-ref", reference)
    body = SubElement(root, "qti-item-body", {"dir": item.direction or "auto"})
    if key is not None and key.rubric:
        block = SubElement(body, "qti-rubric-block", {"view": "scorer", "use": "scoring"})
        _fill(SubElement(block, "qti-content-body"), key.rubric, blocks=True)
    declared = root.find("qti-response-declaration")
    response = "RESPONSE" if declared is None else declared.get("identifier", "")
    _add_interactions(body, item, response)
    if processing is not None:
        root.append(processing)
    return root


def _declare_all(root: Element, item: Item, key: Key | None) -> Element | None:
    """Write the declarations of an item; its response processing, None without."""
    fields = {part.id: part for part in item.parts} or {"RESPONSE": item}
    pairs = {pair for field in fields.values() if _has_gaps(field) for pair in field.pairs}
    if key is not None and key.kind == "rules":
        rules = parse_xml(key.rules.encode(), f"key of item {brief(item.id)}")
        for element in rules.iter():
            element.tag = local_name(element)
        turn_pairs(rules, pairs)
        root.extend(rules[:-1])
        return rules[-1]
    for name, field in fields.items():
        SubElement(root, "qti-response-declaration", _response(field, name))
    processing = None if key is None else _declare(root[0], item, key)
    turn_pairs(root[0], pairs)
    outcome = {"identifier": "SCORE", "cardinality": "single", "base-type": "float"}
    if key is not None:
        outcome["normal-maximum"] = f"{key.max_score:g}"
    if key is not None and key.kind == "rubric":
        outcome["external-scored"] = "human"
    score = SubElement(root, "qti-outcome-declaration", outcome)
    if key is not None and key.kind == "rubric" and key.unit < 1:  # the scores that people give
        table = SubElement(score, "qti-match-table")
        for category in range(key.categories):
            entry = {"source-value": str(category), "target-value": f"{key.score(category):.9g}"}
            SubElement(table, "qti-match-table-entry", entry)
    return processing


def _has_gaps(item: Item) -> bool:
    """Whether a match is written as gaps of a text or a picture, which QTI names last in a pair."""
    return item.kind == "match" and (item.picture is not None or item.marks_choices)


def _response(item: Item, name: str) -> dict[str, str]:
    single = item.kind == "hottext" and item.max_choices == 1
    cardinality = "single" if single else CARDINALITIES.get(item.kind, "single")
    base_type = "identifier" if item.choices else "float" if item.numeric else "string"
    base_type = BASE_TYPES.get(item.kind, base_type)
    return {"identifier": name, "cardinality": cardinality, "base-type": base_type}


def _add_interactions(body: Element, item: Item, response: str) -> None:
    """Write the prompt and the interactions of an item into its body."""
    if item.marks_choices:  # hottext, and gaps of a text
        body.append(_interaction(item, response))
        return
    _fill(body, item.prompt, blocks=True)
    parts = {part.id: part for part in item.parts}
    for element in list(body.iter()):
        if element.get("data-part") in parts:
            part = parts[element.get("data-part", "")]
            _become(element, _interaction(part, part.id, prompt=True))
    if item.kind == "text":
        gap = next((e for e in body.iter("span") if e.get("class") == "blank"), None)
        if gap is None:
            gap = SubElement(SubElement(body, "p"), "span")
        _become(gap, _interaction(item, response))
    elif not parts:
        body.append(_interaction(item, response))


def _become(element: Element, other: Element) -> None:
    """Turn an element into another one in its place."""
    element.tag, element.attrib, element.text = other.tag, other.attrib, other.text
    element[:] = list(other)


def _interaction(item: Item, response: str, prompt: bool = False) -> Element:
    """The interaction of an item or a part, with the prompt of a part."""
    name, about = INTERACTIONS[item.kind], {"response-identifier": response}
    if item.inline and item.kind == "choice" and not item.prompt and not item.picture:
        shuffle = {"shuffle": str(item.shuffle).lower()}
        element = Element("qti-inline-choice-interaction", about | shuffle)
        for choice in item.choices:
            _add_choice(element, "qti-inline-choice", choice)
        return element
    if item.picture:
        name = GRAPHIC_KINDS[item.kind][0]
    elif _has_gaps(item):
        name = "qti-gap-match-interaction"
    element = Element(name, about | _attributes(item))
    if not item.marks_choices and prompt and item.prompt:
        _fill(SubElement(element, "qti-prompt"), item.prompt)
    if item.picture:
        sizes = {"width": str(item.picture.width), "height": str(item.picture.height)}
        source = {"src": f"../media/{item.picture.media}", "alt": item.picture.alt}
        SubElement(element, "img", source | sizes)
    _add_choices(element, item)
    if item.marks_choices:
        _fill(element, item.prompt, blocks=True)
        for gap in list(element.iter("qti-hottext")) if _has_gaps(item) else ():
            gap.tag = "qti-gap"
    return element


def _attributes(item: Item) -> dict[str, str]:
    """The attributes of an interaction, of those that its kind has."""
    kind = KINDS[item.kind]
    counted = "associations" if kind.in_pairs else "choices"
    is_limited = kind.has_choices and item.kind != "order"
    is_shuffled = item.kind in ONLY_IN["shuffle"] and not item.picture
    values = {
        f"max-{counted}": item.max_choices if is_limited else None,
        f"min-{counted}": item.min_choices if is_limited else None,
        "shuffle": str(item.shuffle).lower() if is_shuffled else None,
        "expected-length": item.expected_length,
        "expected-lines": item.expected_lines,
        "pattern-mask": item.pattern or None,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _add_choices(element: Element, item: Item) -> None:
    """Write the options and choices of an item into its interaction."""
    if item.kind == "hottext":
        return
    if item.kind == "match" and not _has_gaps(item):
        for choices in (item.choices, item.options):
            part = SubElement(element, "qti-simple-match-set")
            for choice in choices:
                _add_choice(part, "qti-simple-associable-choice", choice)
        return
    for option in item.options:
        picture = option.content_html.startswith("<img")
        _add_choice(element, "qti-gap-img" if picture else "qti-gap-text", option)
    names = {"associate": "qti-simple-associable-choice"}
    for choice in item.choices:
        if choice.area and item.picture:
            _add_choice(element, GRAPHIC_KINDS[item.kind][1], choice)
        elif not _has_gaps(item):
            _add_choice(element, names.get(item.kind, "qti-simple-choice"), choice)


def _add_choice(parent: Element, name: str, choice: Choice) -> None:
    attributes = {"identifier": choice.id}
    if name not in ("qti-hotspot-choice", "qti-simple-choice", "qti-inline-choice"):
        attributes["match-max"] = str(choice.most)
    if name in ("qti-simple-choice", "qti-inline-choice"):
        attributes["fixed"] = str(choice.fixed).lower()
    if choice.area:
        shape, _, coordinates = choice.area.partition(" ")
        attributes |= {"shape": shape, "coords": coordinates}
        if choice.content_html:
            attributes["hotspot-label"] = plain_text(choice.content_html)
    element = SubElement(parent, name, attributes)
    if not choice.area:
        _fill(element, choice.content_html)


def _declare(declaration: Element, item: Item, key: Key) -> Element | None:
    """Write a key into the declaration; its response processing, None for a rubric."""
    if key.kind == "rubric":
        if key.criteria:
            raise _inexpressible(item, "criteria of a rubric")
        return None
    exact = item.numeric or key.case_sensitive
    if key.kind == "match" and (item.choices or (exact and len(key.correct) == 1)):
        correct = SubElement(declaration, "qti-correct-response")
        for value in key.correct:
            SubElement(correct, "qti-value").text = _value(value, item)
        return _match_processing(float(key.max_score or 0))
    points = key.points
    if key.kind == "match":  # several accepted texts, or without regard to case
        points = tuple((value, float(key.max_score or 0)) for value in key.correct)
    limits = {"default-value": key.default, "lower-bound": key.lower, "upper-bound": key.upper}
    attributes = {name: f"{limit:g}" for name, limit in limits.items() if limit is not None}
    mapping = SubElement(declaration, "qti-mapping", attributes)
    for value, score in points:
        entry = {"map-key": _value(value, item), "mapped-value": f"{score:g}"}
        if item.kind == "text":
            entry["case-sensitive"] = str(key.case_sensitive).lower()
        SubElement(mapping, "qti-map-entry", entry)
    return Element("qti-response-processing", {"template": f"{TEMPLATES}map_response.xml"})


def _value(value: str, item: Item) -> str:
    """A value of a response in QTI; numbers with a decimal point."""
    if not item.numeric:
        return value
    number = number_of(value, item.language)
    if number_of(value) == number and FLOAT.fullmatch(value):
        return value
    text = f"{float(number or 0):.15g}"
    if number is None or number_of(text) != number:
        raise _inexpressible(item, f"the number {shorten(value)}")
    return text


def _inexpressible(item: Item, what: str) -> InputError:
    return InputError(f"item {brief(item.id)}: {what} cannot be written in QTI.")


def _match_processing(score: float) -> Element:
    """The template for a score of 1, rules that do the same for another score."""
    if score == 1:
        return Element("qti-response-processing", {"template": f"{TEMPLATES}match_correct.xml"})
    processing = Element("qti-response-processing")
    condition = SubElement(processing, "qti-response-condition")
    branch = SubElement(condition, "qti-response-if")
    match = SubElement(branch, "qti-match")
    SubElement(match, "qti-variable", {"identifier": "RESPONSE"})
    SubElement(match, "qti-correct", {"identifier": "RESPONSE"})
    otherwise = SubElement(condition, "qti-response-else")
    for parent, value in ((branch, score), (otherwise, 0.0)):
        outcome = SubElement(parent, "qti-set-outcome-value", {"identifier": "SCORE"})
        SubElement(outcome, "qti-base-value", {"base-type": "float"}).text = f"{value:g}"
    return processing


def _stimulus(stimulus: Stimulus) -> Element:
    attributes = {"xmlns": QTI, "identifier": encode_name(stimulus.id), "title": stimulus.title}
    attributes |= {"xml:lang": stimulus.language} if stimulus.language else {}
    root = Element("qti-assessment-stimulus", attributes)
    _fill(SubElement(root, "qti-stimulus-body"), stimulus.content_html, blocks=True)
    return root


def _test(items: ItemSet, item_files: dict[str, str]) -> Element:
    """A test of all items in order, which holds their time limits."""
    root = Element("qti-assessment-test", {"xmlns": QTI, "identifier": "test", "title": "Items"})
    modes = {"navigation-mode": "linear", "submission-mode": "individual"}
    part = SubElement(root, "qti-test-part", {"identifier": "part", **modes})
    section = {"identifier": "section", "title": "Items", "visible": "false"}
    parent = SubElement(part, "qti-assessment-section", section)
    for item in items.items.values():
        reference = {"identifier": encode_name(item.id), "href": item_files[item.id]}
        element = SubElement(parent, "qti-assessment-item-ref", reference)
        if item.time_limit is not None:
            SubElement(element, "qti-time-limits", {"max-time": f"{item.time_limit:g}"})
    return root


def _manifest(
    items: ItemSet, item_files: dict[str, str], stimulus_files: dict[str, str], has_test: bool
) -> Element:
    root = Element("manifest", {"xmlns": PACKAGING, "identifier": "items"})
    metadata = SubElement(root, "metadata")
    SubElement(metadata, "schema").text = "QTI Package"
    SubElement(metadata, "schemaversion").text = "3.0.0"
    SubElement(root, "organizations")
    resources = SubElement(root, "resources")
    media_ids = {name: f"media{i}" for i, name in enumerate(items.media, start=1)}
    stimulus_ids = {name: f"stimulus{i}" for i, name in enumerate(stimulus_files, start=1)}
    for position, item in enumerate(items.items.values(), start=1):
        needs = [] if item.stimulus is None else [stimulus_ids[item.stimulus]]
        needs += [media_ids[name] for name in item.media]
        path = item_files[item.id]
        _add_resource(resources, f"item{position}", ITEM_TYPE, path, needs, item.labels)
    for name, path in stimulus_files.items():
        needs = [media_ids[file] for file in items.stimuli[name].media]
        _add_resource(resources, stimulus_ids[name], STIMULUS_TYPE, path, needs)
    if has_test:
        needs = [f"item{position}" for position in range(1, len(items) + 1)]
        _add_resource(resources, "test", TEST_TYPE, TEST_FILE, needs)
    for name, identifier in media_ids.items():
        _add_resource(resources, identifier, "webcontent", f"media/{name}")
    indent(root)
    return root


def _add_resource(
    parent: Element,
    identifier: str,
    kind: str,
    path: str,
    needs: Iterable[str] = (),
    labels: Iterable[str] = (),
) -> None:
    """Add a file, the ids of the resources that it needs, and the labels of an item."""
    attributes = {"identifier": identifier, "type": kind, "href": path}
    resource = SubElement(parent, "resource", attributes)
    if labels:
        lom = SubElement(SubElement(resource, "metadata"), "lom", {"xmlns": LOM})
        general = SubElement(lom, "general")
        for label in labels:
            SubElement(SubElement(general, "keyword"), "string").text = label
    SubElement(resource, "file", {"href": path})
    for needed in needs:
        SubElement(resource, "dependency", {"identifierref": needed})


def _fill(parent: Element, html: str, blocks: bool = False) -> None:
    """Append sanitised HTML to an element of QTI.

    With ``blocks`` only blocks are allowed there; text outside of them gets a ``<div>``.
    """
    builder = _Builder()
    builder.feed(f"<div>{html}</div>")
    content = builder.tree.close()
    for span in list(content.iter("span")):
        if "data-choice" in span.attrib:
            span.tag, span.attrib = "qti-hottext", {"identifier": span.attrib["data-choice"]}
    loose = (content.text or "").strip() or any(
        (child.tail or "").strip() or child.tag in PHRASES for child in content
    )
    if blocks and loose:
        parent.append(content)
    else:
        parent.text = content.text
        parent.extend(content)


PHRASES = frozenset(
    {"em", "strong", "i", "b", "u", "s", "small", "sub", "sup", "mark", "code", "kbd", "samp"}
    | {"var", "abbr", "cite", "dfn", "q", "bdi", "bdo", "ruby", "time", "del", "ins", "span"}
    | {"img", "audio", "video", "br", "wbr"}
)
"""Elements that cannot stand between blocks."""


class _Builder(HTMLParser):
    """Builds the elements of sanitised HTML, which is well-formed but for elements without end."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tree = TreeBuilder()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if "lang" in attributes:
            attributes["xml:lang"] = attributes.pop("lang")
        for name in ("src", "poster"):
            if name in attributes:
                attributes[name] = f"../media/{attributes[name].removeprefix('media:')}"
        if tag == "math":
            attributes["xmlns"] = MATHML
        self.tree.start(tag, attributes)
        if tag in VOID:
            self.tree.end(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            self.tree.end(tag)

    def handle_data(self, data: str) -> None:
        self.tree.data(data)

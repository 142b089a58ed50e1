"""The XML of QTI: names, attributes and values; QTI 2.1 and 2.2 under the names of 3.0.

The XML is untrusted: no document type, no entities, nothing fetched, bounded depth.
"""

import re
from decimal import Decimal
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from irtcat._common.checks import InputError, one_line, shorten
from irtcat.service.content.fields import content_error
from irtcat.service.content.numerals import number_of

MOST_DEPTH = 100
"""Deepest nesting of elements: content nests ten deep, and Python's stack ends near a thousand."""


def parse_xml(data: bytes, where: str) -> Element:
    """The root element of an XML document.

    A document type is refused whether it declares entities or not: those that expand to gigabytes,
    or read files, start with one, and neither QTI nor SVG need it.

    Raises:
        InputError: naming the file.
    """
    try:
        root: Element = fromstring(data, forbid_dtd=True)
    except DefusedXmlException:
        advice = "Remove the <!DOCTYPE ...>"
        raise InputError(f"{where}: expected XML without a document type. {advice}.") from None
    except ParseError as error:
        raise content_error(where, "XML", f"something else ({one_line(error)})") from None
    except (ValueError, LookupError) as error:  # an unknown or a multi-byte encoding
        reason = shorten(one_line(error))
        raise InputError(f"{where}: expected XML in UTF-8 ({reason}).") from None
    level = [root]
    for _ in range(MOST_DEPTH):
        level = [child for element in level for child in element]
        if not level:
            return root
    raise InputError(f"{where}: expected XML with at most {MOST_DEPTH} nested elements.")


def namespace(element: Element) -> str:
    """The namespace of an element; empty if it has none."""
    return element.tag[1:].partition("}")[0] if element.tag.startswith("{") else ""


def local_name(element: Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


QTI = "http://www.imsglobal.org/xsd/imsqtiasi_v3p0"
PACKAGING = "http://www.imsglobal.org/xsd/qti/qtiv3p0/imscp_v1p1"
MATHML = "http://www.w3.org/1998/Math/MathML"
MANIFEST = "imsmanifest.xml"
TEMPLATES = "https://purl.imsglobal.org/spec/qti/v3p0/rptemplates/"

ITEM_TYPE = "imsqti_item_xmlv3p0"
ITEM_TYPES = (ITEM_TYPE, "imsqti_item_xmlv2p1", "imsqti_item_xmlv2p2")
STIMULUS_TYPE = "imsqti_stimulus_xmlv3p0"
TEST_TYPE = "imsqti_test_xmlv3p0"
TEST_TYPES = (TEST_TYPE, "imsqti_test_xmlv2p1", "imsqti_test_xmlv2p2")

INTERACTIONS = {
    "choice": "qti-choice-interaction",
    "choices": "qti-choice-interaction",
    "order": "qti-order-interaction",
    "hottext": "qti-hottext-interaction",
    "text": "qti-text-entry-interaction",
    "essay": "qti-extended-text-interaction",
    "match": "qti-match-interaction",
    "associate": "qti-associate-interaction",
}
"""The interaction of each kind of item."""

GRAPHIC_KINDS = {
    "choice": ("qti-hotspot-interaction", "qti-hotspot-choice"),
    "choices": ("qti-hotspot-interaction", "qti-hotspot-choice"),
    "order": ("qti-graphic-order-interaction", "qti-hotspot-choice"),
    "match": ("qti-graphic-gap-match-interaction", "qti-associable-hotspot"),
    "associate": ("qti-graphic-associate-interaction", "qti-associable-hotspot"),
}
"""The interaction of each kind of item with a picture, and the element of its areas."""

CARDINALITIES = {"order": "ordered"} | dict.fromkeys(
    ("choices", "hottext", "match", "associate"), "multiple"
)
"""Cardinality of the responses to each kind of item; single for the others."""

BASE_TYPES = {"match": "directedPair", "associate": "pair"}
"""Base types of the responses to kinds of items that are neither choices nor texts."""

ENCODED = re.compile(r"_x([0-9A-F]{4,6})_")


def encode_name(name: str) -> str:
    """An id as an XML name: other characters as ``_xHHHH_``, as schema tools write them.

    Example:
        >>> encode_name("7 up"), decode_name(encode_name("7 up"))
        ('_x0037__x0020_up', '7 up')
    """
    first = re.sub(r"^[^A-Za-z_]|_(?=x[0-9A-F]{4,6}_)", _encoded, name)
    return re.sub(r"[^A-Za-z0-9_.-]", _encoded, first)


def _encoded(match: re.Match[str]) -> str:
    return f"_x{ord(match[0]):04X}_"


def decode_name(name: str) -> str:
    """The id that `encode_name` encoded; other names are returned unchanged."""
    return ENCODED.sub(_decoded, name)


def _decoded(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else match[0]


PRESENTATION = ("class", "id", "role", "label", "style")
"""Attributes on any element that only change how it looks; they are not kept."""


def check_attributes(element: Element, known: str, where: str) -> None:
    """Raise at an attribute that is neither known nor about presentation."""
    for name in element.attrib:
        plain = name.rpartition("}")[2]
        ignored = plain in PRESENTATION or plain.startswith(("data-", "aria-"))
        if not ignored and plain not in (*known.split(), "lang", "dir", "schemaLocation"):
            tag = local_name(element)
            raise InputError(f"{where}: the attribute {plain} of <{tag}> is not supported.")


def required(element: Element, name: str, where: str) -> str:
    """An attribute that an element must have."""
    value = element.get(name, "").strip()
    if not value:
        raise content_error(where, f"{name} of <{local_name(element)}>", "none")
    return value


def check_root(root: Element, name: str, where: str) -> None:
    """Raise unless it is such an element of QTI 3.0."""
    if local_name(root) != name or namespace(root) != QTI:
        got = f"<{local_name(root)}> of {namespace(root) or 'no namespace'}"
        raise content_error(where, f"<{name}> of QTI 3.0", got)


def by_identifier(root: Element, name: str, where: str) -> dict[str, Element]:
    """The elements of a name that are directly within another one, by their identifiers."""
    return {required(it, "identifier", where): it for it in root.findall(f"{{*}}{name}")}


def as_number(text: str | None, label: str, where: str) -> float:
    """A number in XML."""
    try:
        number = float(text or "")
    except ValueError:
        raise content_error(where, f"{label} as a number", shorten(text)) from None
    if number != number or number in (float("inf"), float("-inf")):
        raise content_error(where, f"{label} as a finite number", shorten(text))
    return number


def number_text(value: float, where: str) -> str:
    """A number as people write it: without an exponent, and the same in all languages."""
    plain = f"{Decimal(repr(value)):f}".removesuffix(".0")
    if "." in plain and number_of(plain, "de") is None:
        plain += "0"  # 1.500 could be 1500 in German, 1.5000 could not
    if number_of(plain) is None:
        raise content_error(where, "a number of at most 30 digits", shorten(plain))
    return plain


QTI_2 = re.compile(r"http://www\.imsglobal\.org/xsd/imsqti_v2p[0-2]")

LOWER_CASE = re.compile(
    "and|contains|correct|default|delete|divide|equal|gap|gte?|hottext|index|inside|lte?|mapping|match"
    "|max|member|min|multiple|not|null|or|ordered|power|product|prompt|random|repeat|round|stylesheet"
    "|substring|subtract|sum|truncate|value|variable"
)
"""Names of QTI 2 in lower case; its other names in lower case are those of HTML."""

ROOTS = frozenset({"assessmentItem", "assessmentTest", "assessmentStimulus"})


def in_version_3(root: Element) -> Element:
    """The same document with the names of QTI 3.0; other documents are returned unchanged.

    Example:
        >>> from xml.etree.ElementTree import fromstring
        >>> space = "http://www.imsglobal.org/xsd/imsqti_v2p2"
        >>> root = fromstring(f'<assessmentItem xmlns="{space}" timeDependent="false"/>')
        >>> local_name(in_version_3(root)), dict(root.attrib)
        ('qti-assessment-item', {'time-dependent': 'false'})
    """
    if not QTI_2.fullmatch(namespace(root)) or local_name(root) not in ROOTS:
        return root
    space = namespace(root)
    for element in list(root.iter()):
        if isinstance(element.tag, str) and namespace(element) == space:
            _rename(element)
    return root


def _rename(element: Element) -> None:
    name = local_name(element)
    is_html = name.islower() and not LOWER_CASE.fullmatch(name) and not name.startswith("qti-")
    element.tag = f"{{{QTI}}}{name if is_html else f'qti-{_kebab(name)}'}"
    for attribute, value in list(element.attrib.items()):
        if not is_html and not attribute.startswith("{"):
            del element.attrib[attribute]
            element.set(_kebab(attribute), value)
    if name == "rubricBlock":
        body = Element(f"{{{QTI}}}qti-content-body")
        body.text, element.text = element.text, None
        body.extend(list(element))
        element[:] = [body]
    elif name == "mapEntry" and "case-sensitive" not in element.attrib:
        element.set("case-sensitive", "true")  # the default of QTI 2


def _kebab(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: f"-{match[0].lower()}", name).lstrip("-")


def turned(pair: str) -> str:
    """A pair with its parts in the other order."""
    return " ".join(reversed(pair.split()))


def turn_pairs(root: Element, pairs: set[str]) -> None:
    """Turn pairs in values and keys of mappings: gap matches have the gap last, items first."""
    for element in root.iter():
        if element.get("map-key") in pairs:
            element.set("map-key", turned(element.get("map-key", "")))
        elif (element.text or "").strip() in pairs:
            element.text = turned(element.text or "")

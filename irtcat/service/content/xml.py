"""Parsing untrusted XML: no document type, no entities, nothing fetched, bounded depth."""

from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from irtcat._common.checks import InputError, one_line, shorten

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
        raise InputError(
            f"{where}: expected XML. Got something else ({one_line(error)})."
        ) from None
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

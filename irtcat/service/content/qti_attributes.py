"""Attributes and values in the XML of QTI."""

from decimal import Decimal
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, shorten
from irtcat.service.content.fields import content_error
from irtcat.service.content.numerals import number_of
from irtcat.service.content.xml import local_name

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

"""Names of QTI 3.0 that reading and writing share."""

import re

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

GRAPHIC = {
    "choice": ("qti-hotspot-interaction", "qti-hotspot-choice"),
    "choices": ("qti-hotspot-interaction", "qti-hotspot-choice"),
    "order": ("qti-graphic-order-interaction", "qti-hotspot-choice"),
    "match": ("qti-graphic-gap-match-interaction", "qti-associable-hotspot"),
    "associate": ("qti-graphic-associate-interaction", "qti-associable-hotspot"),
}
"""The interaction of each kind of item with a picture, and the element of its areas."""

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
    return ENCODED.sub(lambda match: _decoded(match), name)


def _decoded(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else match[0]

"""Items of QTI 2.1 and 2.2 under the names of QTI 3.0, so that one reader takes them all."""

import re
from xml.etree.ElementTree import Element

from irtcat.service.content.qti_names import QTI
from irtcat.service.content.xml import local_name, namespace

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

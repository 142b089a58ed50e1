"""HTML of items: what is allowed, and its sanitising.

Two steps. The first raises an error that names what the author has to change: elements that items
cannot hold, and addresses outside the item set. Then nh3 removes everything that is not in the
lists below, whatever the first step has seen: the second step is the guarantee, the first gives the
messages.
"""

import re
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser

import nh3

from irtcat._common.checks import InputError, shorten


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TEXT_TAGS = _words(
    "p br hr div span section h2 h3 h4 h5 h6 blockquote pre ol ul li dl dt dd figure figcaption "
    "table caption colgroup col thead tbody tfoot tr th td "
    "em strong i b u s small sub sup mark code kbd samp var abbr cite dfn q bdi bdo ruby rb rt rp "
    "time del ins wbr img audio video source track"
)

MATH_TAGS = _words(
    "math mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle merror mpadded mphantom "
    "msub msup msubsup munder mover munderover mmultiscripts mprescripts none mtable mtr "
    "mlabeledtr mtd menclose mfenced"
)
"""MathML Core, with ``menclose``, ``mfenced`` and ``mlabeledtr`` of older files. Without
``semantics``, ``annotation`` and ``maction``: they hold other markup, or act."""

MATH_ATTRIBUTES = _words(
    "accent accentunder close columnalign columnlines columnspacing columnspan depth dir display "
    "displaystyle fence form height linethickness lspace mathvariant maxsize minsize movablelimits "
    "notation open rowalign rowlines rowspacing rowspan rspace scriptlevel separator separators "
    "stretchy symmetric voffset width"
)

COMMON_ATTRIBUTES = frozenset({"lang", "dir", "title", "class"})

ATTRIBUTES: dict[str, set[str]] = {
    "ol": {"start", "type", "reversed"},
    "li": {"value"},
    "th": {"scope", "colspan", "rowspan", "abbr"},
    "td": {"colspan", "rowspan"},
    "col": {"span"},
    "colgroup": {"span"},
    "img": {"src", "alt", "width", "height"},
    "audio": {"src", "controls"},
    "video": {"src", "controls", "width", "height", "poster"},
    "source": {"src", "type"},
    "track": {"src", "kind", "srclang", "label", "default"},
    "time": {"datetime"},
    "span": {"data-choice", "data-part"},
    "div": {"data-part"},
}

URL_ATTRIBUTES = _words(
    "src href poster data srcset action formaction background cite longdesc ping icon manifest "
    "xlink:href codebase classid usemap profile"
)
"""Attributes that hold an address; of these only ``src`` and ``poster`` of media remain."""

CLASSES = frozenset({"blank", "instruction", "source"})
"""Classes of the pages' own style sheet: a gap to fill in, an instruction, the source of a text."""

MEDIA_NAME = re.compile(r"[0-9a-f]{64}\.[a-z0-9]{2,5}")
"""A media file is named by the SHA-256 of its content, with the suffix of its type."""

MEDIA_URL = re.compile(rf"media:({MEDIA_NAME.pattern})")

SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|[/\\\\]", re.I)
"""An address that is not a relative path: with a scheme, or from the root of a host."""

VOID = _words("br hr img source track col wbr")

BLOCKS = _words("p br hr div section h2 h3 h4 h5 h6 blockquote pre li dt dd tr td th")
"""Elements that end a word."""


class _Reader(HTMLParser):
    """Writes HTML out again with the addresses of media files replaced.

    Raises at the first element or address that an item cannot hold.
    """

    def __init__(self, where: str, url_of: Callable[[str], str] | None):
        super().__init__(convert_charrefs=True)
        self.where, self.url_of, self.parts = where, url_of, list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TEXT_TAGS and tag not in MATH_TAGS:
            raise InputError(f"{self.where}: expected HTML that items can hold. Got <{tag}>.")
        attributes = {name: value or "" for name, value in reversed(attrs)}  # the first one counts
        if tag == "img" and "alt" not in attributes:
            advice = 'Describe the picture; alt="" is for decoration'
            raise InputError(f"{self.where}: expected <img> with alt. Got none. {advice}.")
        for name in attributes.keys() & URL_ATTRIBUTES:
            attributes[name] = self._address(tag, name, attributes[name].strip())
        text = "".join(f' {name}="{escape(value)}"' for name, value in reversed(attributes.items()))
        self.parts.append(f"<{tag}{text}>")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:  # HTML ignores the slash, XML and MathML do not
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.parts.append(escape(data, quote=False))

    def _address(self, tag: str, name: str, address: str) -> str:
        if MEDIA_URL.fullmatch(address):
            return address
        if not self.url_of or SCHEME.match(address) or name not in ("src", "poster"):
            advice = "Put the file beside the item and give its name"
            got = f"{name}={shorten(address)} of <{tag}>"
            expected = "expected addresses of media files of the item set only"
            raise InputError(f"{self.where}: {expected}. Got {got}. {advice}.")
        return self.url_of(address)


def _attribute(tag: str, name: str, value: str) -> str | None:
    """The value of an allowed attribute, or None to remove it."""
    if name in ("src", "poster"):
        return value.strip() if MEDIA_URL.fullmatch(value.strip()) else None
    if name == "class":
        return " ".join(word for word in value.split() if word in CLASSES) or None
    if name == "dir":
        return value if value in ("ltr", "rtl", "auto") else None
    return value


_CLEANER = nh3.Cleaner(
    tags=set(TEXT_TAGS | MATH_TAGS),
    clean_content_tags={"script", "style"},
    attributes={
        "*": set(COMMON_ATTRIBUTES),
        **ATTRIBUTES,
        **{tag: set(MATH_ATTRIBUTES) for tag in MATH_TAGS},
    },
    attribute_filter=_attribute,
    set_tag_attribute_values={"audio": {"controls": ""}, "video": {"controls": ""}},
    link_rel=None,
    url_schemes={"media"},
    url_relative="deny",
)


def clean_html(html: str, where: str, url_of: Callable[[str], str] | None = None) -> str:
    """Sanitise a fragment of HTML; what is clean already is returned without outer white space.

    Text structure, tables, emphasis, ruby, images, audio, video and MathML remain, with the
    attributes ``lang``, ``dir``, ``title``, ``alt`` and those of tables and media. Comments, event
    handlers, styles, ids and foreign classes are removed.

    ``url_of`` gives the ``media:`` address of a file that the HTML names by a relative path;
    without it all addresses are ``media:`` already.

    Raises:
        InputError: an element that items cannot hold, such as a script or a form; an address that
            is not ``media:`` and the name of a file of the item set.

    Example:
        >>> clean_html('<p onclick="act()">Two <em>and</em> two', "item q1")
        '<p>Two <em>and</em> two</p>'
        >>> clean_html('<script>act()</script>', "item q1")
        Traceback (most recent call last):
        irtcat._common.errors.InputError: item q1: expected HTML that items can hold. Got <script>.
    """
    reader = _Reader(where, url_of)
    try:
        reader.feed(html)
        if reader.rawdata.startswith("<") and len(reader.rawdata) > 1:
            # Closing the parser would try every later "<" anew: hours for a text of open comments.
            expected, got = "HTML whose tags and comments are closed", shorten(reader.rawdata)
            raise InputError(f"{where}: expected {expected}. Got {got}.")
        reader.close()
    except AssertionError:  # html.parser raises it for an unknown declaration such as <![x]>
        raise InputError(f"{where}: expected HTML without declarations. Got <!...>.") from None
    try:
        return str(_CLEANER.clean("".join(reader.parts))).strip()
    except UnicodeEncodeError:
        raise InputError(f"{where}: expected text in Unicode. Got a lone surrogate.") from None


class _Outline(HTMLParser):
    """Media, marked choices and text of sanitised HTML."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.media: dict[str, None] = {}
        self.choices: list[tuple[str, list[str]]] = []
        self.parts: list[str] = []
        self.text: list[str] = []
        self._spans: list[bool] = []  # for each open span, whether it marks a choice
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        for name in ("src", "poster"):
            match = MEDIA_URL.fullmatch(attributes.get(name) or "")
            if match:
                self.media[match[1]] = None
        if "data-part" in attributes:
            self.parts.append(attributes["data-part"] or "")
        if tag == "span":
            self._spans.append("data-choice" in attributes)
            if self._spans[-1]:
                self.choices.append((attributes["data-choice"] or "", []))
        if tag == "img":
            self.text.append(attributes.get("alt") or " ")
        self._end_word(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "span" and self._spans:
            self._spans.pop()
        self._end_word(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if any(self._spans):
            self.choices[-1][1].append(data)

    def _end_word(self, tag: str) -> None:
        if tag in BLOCKS:
            self.text.append(" ")


def media_names(html: str) -> tuple[str, ...]:
    """Names of the media files that sanitised HTML refers to, in order, each once."""
    return tuple(_Outline(html).media)


def choice_spans(html: str) -> list[tuple[str, str]]:
    """Id and text of each ``<span data-choice="ID">`` of sanitised HTML."""
    return [(name, "".join(parts)) for name, parts in _Outline(html).choices]


def part_names(html: str) -> tuple[str, ...]:
    """Ids of the answer fields whose positions sanitised HTML marks, in order."""
    return tuple(_Outline(html).parts)


def shows(html: str) -> bool:
    """Whether HTML shows anything."""
    outline = _Outline(html)
    return bool("".join(outline.text).strip() or outline.media)


def plain_text(html: str) -> str:
    """The text of sanitised HTML, images by their ``alt``, white space as single spaces.

    Example:
        >>> plain_text("<p>Two <em>and</em><br>two</p>")
        'Two and two'
    """
    return " ".join("".join(_Outline(html).text).split())

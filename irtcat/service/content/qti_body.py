"""The body of a QTI item: its HTML with the positions of its answer fields, and these fields."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, brief, shorten
from irtcat.service.content.fields import content_error
from irtcat.service.content.html import VOID, clean_html
from irtcat.service.content.qti_xml import (
    GRAPHIC_KINDS,
    as_number,
    check_attributes,
    local_name,
    number_text,
    required,
)
from irtcat.service.content.records import Choice

LEFT_OUT = {
    "qti-stylesheet": "style sheets",
    "qti-catalog-info": "accessibility catalogues",
    "qti-companion-materials-info": "companion materials",
    "qti-modal-feedback": "feedback",
    "qti-feedback-inline": "feedback",
    "qti-feedback-block": "feedback",
    "qti-end-attempt-interaction": "buttons for hints",
}
"""Elements that an item does without, and what notes call them."""

NOT_AUTOMATIC = {
    "qti-drawing-interaction": "a drawing",
    "qti-upload-interaction": "a file",
    "qti-custom-interaction": "a custom interaction",
    "qti-portable-custom-interaction": "a custom interaction",
}
"""Interactions whose responses no rule of QTI scores by itself, and what their response is."""

BLOCK = re.compile(r"<(p|div|section|table|ul|ol|dl|h[2-6]|blockquote|pre|figure|math)\b")


AuthoredChoice = dict[str, Any]
"""The fields of a choice or an option as a package has it, with HTML that is not sanitised yet."""


@dataclass
class Field:
    """An answer field: an interaction.

    Attributes:
        response: name of its response.
        kind: kind of the item.
        html: its prompt.
        choices: its choices.
        options: of a match, what is assigned to them.
        settings: further fields of the item.
        picture: ``src``, ``alt``, ``width`` and ``height`` of that with areas.
        inline: whether it stands within a sentence.
    """

    response: str
    kind: str
    html: str = ""
    choices: list[AuthoredChoice] = field(default_factory=list)
    options: list[AuthoredChoice] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    picture: dict[str, str] | None = None
    inline: bool = False

    @property
    def position(self) -> str:
        """HTML that marks where the field is."""
        tag = "span" if self.inline else "div"
        return f'<{tag} data-part="{escape(self.response)}"></{tag}>'

    def cleaned(
        self, where: str, address_of: Callable[[str], str]
    ) -> dict[str, tuple[Choice, ...]]:
        """The choices and options of the item."""

        def clean(choice: AuthoredChoice) -> Choice:
            place = f"{where}, choice {brief(choice['id'])}"
            html = clean_html(choice["content_html"], place, address_of)
            return Choice(**{**choice, "content_html": html})

        return {name: tuple(map(clean, getattr(self, name))) for name in ("choices", "options")}


class Body:
    """Reads the body of an item or a stimulus.

    Attributes:
        fields: the answer fields, in order.
        rubrics: HTML for scorers.
        left_out: what the item does without, as notes call it.
    """

    def __init__(self, where: str, declared: dict[str, Element]):
        """Take the declarations of the responses by their names."""
        self.where, self.declared = where, declared
        self.fields: list[Field] = []
        self.rubrics: list[str] = []
        self.left_out: set[str] = set()
        self._gaps: list[AuthoredChoice] | None = None  # of the gap match that is being read
        self._in_hottext = False

    def inner(self, element: Element) -> str:
        """HTML of the content of an element."""
        parts = [escape(element.text or "", quote=False)]
        for child in element:
            parts += [self._outer(child), escape(child.tail or "", quote=False)]
        return "".join(parts)

    def _outer(self, element: Element) -> str:
        """HTML of an element."""
        name = local_name(element)
        if name in LEFT_OUT:
            self.left_out.add(LEFT_OUT[name])
            return ""
        if name.startswith("qti-"):
            return self._qti(name, element)
        if name == "object":
            name, element = _media_of(element, self.where)
        if name == "semantics":  # MathML with annotations: the formula is the first
            return self._outer(element[0]) if len(element) else ""
        if name == "a":
            self.left_out.add("links")
            return self.inner(element)
        name = "h2" if name == "h1" else name  # the page has its own
        attributes = "".join(
            f' {key.rpartition("}")[2]}="{escape(value)}"' for key, value in element.items()
        )
        start = f"<{name}{attributes}>"
        return start if name in VOID else f"{start}{self.inner(element)}</{name}>"

    def _qti(self, name: str, element: Element) -> str:
        if name in NOT_AUTOMATIC:
            what = f"<{name}>, {NOT_AUTOMATIC[name]}"
            raise InputError(f"{self.where}: not automatic: no rule scores {what}.")
        if name in INTERACTIONS:
            return self._interaction(name, element)
        if name not in HANDLERS:
            raise InputError(f"{self.where}: <{name}> is not supported.")
        return HANDLERS[name](self, element)

    def _interaction(self, name: str, element: Element) -> str:
        """The position of an interaction, which is added to the fields."""
        kind, attributes, complete = INTERACTIONS[name]
        check_attributes(element, f"response-identifier {attributes}", self.where)
        response = required(element, "response-identifier", self.where)
        if any(it.response == response for it in self.fields):
            raise content_error(self.where, "one interaction for each response", response)
        if response not in self.declared:
            got = shorten(response)
            raise content_error(self.where, "the interaction of a declared response", got)
        it = Field(response, kind, self._prompt(element), inline=name in INLINE)
        self.fields.append(it)
        if element.get("shuffle", "false") == "true" and name not in AREAS:
            it.settings["shuffle"] = True
        complete(self, element, it)
        return it.position

    def _prompt(self, element: Element) -> str:
        """HTML of the prompt of an interaction, as a paragraph."""
        html = "".join(self.inner(prompt) for prompt in element.findall("{*}qti-prompt"))
        if not html.strip():
            return ""
        return html if BLOCK.search(html) else f"<p>{html.strip()}</p>"

    def _authored(self, element: Element, most: int | None = None) -> AuthoredChoice:
        """A choice, of which a limit of pairs is ``most`` by default."""
        known = "identifier fixed show-hide match-max match-min match-group hotspot-label shape"
        check_attributes(element, f"{known} coords required object-label", self.where)
        if element.get("show-hide", "show") != "show":
            raise InputError(f"{self.where}: hidden choices are not supported.")
        label = element.get("hotspot-label", "")
        area = _area(element, self.where) if element.get("shape") else ""
        return {
            "id": required(element, "identifier", self.where),
            "content_html": escape(label) if area else self.inner(element).strip(),
            "fixed": element.get("fixed") == "true",
            "most": 0 if most is None else self._count(element, "match-max", most),
            "area": area,
        }

    def _others(self, element: Element, known: str) -> list[Element]:
        """The children of an interaction besides its prompt, which have the known names."""
        found = [child for child in element if local_name(child) not in ("qti-prompt", "qti-label")]
        for name in map(local_name, found):
            if name not in known.split():
                raise InputError(f"{self.where}: <{name}> in an interaction is not supported.")
        return found

    def _count(self, element: Element, name: str, default: int) -> int:
        text = element.get(name, str(default)).strip()
        if not re.fullmatch(r"\d{1,6}", text):
            raise content_error(self.where, f"{name} as a whole number", shorten(text))
        return int(text)

    def _set_limits(self, element: Element, it: Field, most: int, name: str = "choices") -> None:
        """Set how many choices or pairs, of ``most``, a response has."""
        default = 1 if name == "choices" else 0 if most != 1 else 1
        # More than there are is no limit; several editors write it.
        limit = min(self._count(element, f"max-{name}", default), most)
        it.settings["max_choices"] = 1 if self._is_single(it) and limit == 0 else limit
        it.settings["min_choices"] = self._count(element, f"min-{name}", 0)

    def _is_single(self, it: Field) -> bool:
        return self.declared[it.response].get("cardinality") == "single"

    def _choice(self, element: Element, it: Field) -> None:
        it.choices = [self._authored(child) for child in self._others(element, "qti-simple-choice")]
        self._chosen(element, it)

    def _chosen(self, element: Element, it: Field) -> None:
        """Complete a choice or an order."""
        if it.kind == "order":
            for name in ("max-choices", "min-choices"):
                count = self._count(element, name, 0)
                if count not in (0, len(it.choices)):
                    must = f"{name} of all {len(it.choices)} choices in an order"
                    raise content_error(self.where, must, count)
            return
        it.kind = "choice" if self._is_single(it) else "choices"
        self._set_limits(element, it, len(it.choices))

    def _hottext_interaction(self, element: Element, it: Field) -> None:
        it.settings["max_choices"] = self._count(element, "max-choices", 1)
        it.settings["min_choices"] = self._count(element, "min-choices", 0)
        self._in_hottext = True
        it.html += self.inner(_without_prompt(element))
        self._in_hottext = False

    def _hottext(self, element: Element) -> str:
        if not self._in_hottext:
            raise InputError(f"{self.where}: expected <qti-hottext> in its interaction.")
        check_attributes(element, "identifier show-hide", self.where)
        identifier = required(element, "identifier", self.where)
        return f'<span data-choice="{escape(identifier)}">{self.inner(element)}</span>'

    def _inline_choice(self, element: Element, it: Field) -> None:
        it.choices = [self._authored(child) for child in self._others(element, "qti-inline-choice")]

    def _match(self, element: Element, it: Field) -> None:
        """Entries of the first set, to which those of the second are assigned."""
        sets = self._others(element, "qti-simple-match-set")
        if len(sets) != 2:
            raise content_error(self.where, "two <qti-simple-match-set>", len(sets))
        it.choices, it.options = (
            [self._authored(child, 1) for child in self._others(part, ASSOCIABLE)] for part in sets
        )
        self._paired(element, it)

    def _paired(self, element: Element, it: Field) -> None:
        """Complete a match or an associate."""
        n = len(it.choices)
        most = n * len(it.options) if it.kind == "match" else n * (n - 1) // 2
        self._set_limits(element, it, most, "associations")

    def _gap_match(self, element: Element, it: Field) -> None:
        """Gaps in a text, to which words or pictures are assigned."""
        it.options = [self._authored(child, 1) for child in element if local_name(child) in WORDS]
        content = _without_prompt(element)
        content[:] = [child for child in content if local_name(child) not in WORDS]
        self._gaps = it.choices
        it.html += self.inner(content)
        self._gaps = None
        self._paired(element, it)

    def _gap(self, element: Element) -> str:
        if self._gaps is None:
            raise InputError(f"{self.where}: expected <qti-gap> in its interaction.")
        check_attributes(element, "identifier required match-group", self.where)
        gap = required(element, "identifier", self.where)
        self._gaps.append({"id": gap, "content_html": "", "most": 1})
        return f'<span data-choice="{escape(gap)}"></span>'

    def _associate(self, element: Element, it: Field) -> None:
        it.choices = [self._authored(child, 1) for child in self._others(element, ASSOCIABLE)]
        self._paired(element, it)

    def _graphic(self, element: Element, it: Field) -> None:
        """Areas of a picture: to select, to order, to join, or to assign words or pictures to."""
        areas = AREAS[local_name(element)]
        it.picture = self._picture(element)
        found = self._others(element, " ".join((areas, *WORDS, PICTURES)))
        in_pairs = it.kind in ("match", "associate")
        most = 1 if in_pairs else None
        it.choices = [self._authored(child, most) for child in found if local_name(child) == areas]
        it.options = [self._authored(child, 1) for child in found if local_name(child) in WORDS]
        (self._paired if in_pairs else self._chosen)(element, it)

    def _picture(self, element: Element) -> dict[str, str]:
        found = [child for child in element.iter() if local_name(child) in ("object", "img")]
        own = [child for child in found if child in list(element)] or found
        if not own:
            raise content_error(self.where, "a picture in the interaction", "none")
        name, image = "img", own[0]
        if local_name(image) == "object":
            name, image = _media_of(image, self.where)
        if name != "img":
            raise content_error(self.where, "a picture in the interaction", f"<{name}>")
        return {
            "src": required(image, "src", self.where),
            **{key: image.get(key, "") for key in ("alt", "width", "height")},
        }

    def _slider(self, element: Element, it: Field) -> None:
        """A field for a number; the range stands in its prompt."""
        self._others(element, "")
        ends = [
            number_text(as_number(element.get(name), name, self.where), self.where)
            for name in ("lower-bound", "upper-bound")
        ]
        it.html += f"<p>{ends[0]} … {ends[1]}</p>"

    def _text_entry(self, element: Element, it: Field) -> None:
        if element.get("base", "10") != "10" or element.get("format", "plain") != "plain":
            raise InputError(f"{self.where}: base and format of a text entry are not supported.")
        self._set_entry(element, it)

    def _set_entry(self, element: Element, it: Field) -> None:
        if element.get("expected-length"):
            it.settings["expected_length"] = self._count(element, "expected-length", 0)
        if element.get("pattern-mask"):
            it.settings["pattern"] = element.get("pattern-mask", "")

    def _extended_text(self, element: Element, it: Field) -> None:
        if element.get("format", "plain") != "plain":
            what = "extended text of another format than plain"
            raise InputError(f"{self.where}: {what} is not supported.")
        self._others(element, "")
        self._set_entry(element, it)
        if element.get("expected-lines"):
            it.settings["expected_lines"] = self._count(element, "expected-lines", 0)

    def _media(self, element: Element) -> str:
        """Sound or film, without its response, which only counts how often it was played."""
        self.left_out.add("counts of plays")
        return self.inner(element)

    def _rubric(self, element: Element) -> str:
        """Content for test takers, or for the scorers; that for others is left out."""
        check_attributes(element, "view use", self.where)
        views = required(element, "view", self.where).split()
        bodies = element.findall("{*}qti-content-body")
        others = [child for child in element if local_name(child) not in (*LEFT_OUT, CONTENT)]
        if others:
            raise content_error(self.where, f"<{CONTENT}> in <qti-rubric-block>", "other")
        if "candidate" in views:
            return "".join(map(self.inner, bodies))
        if "scorer" in views:
            self.rubrics += [self.inner(body).strip() for body in bodies]
        else:
            self.left_out.add("notes for other people than scorers")
        return ""


CONTENT = "qti-content-body"

ASSOCIABLE = "qti-simple-associable-choice"

PICTURES = "object img picture"

WORDS = ("qti-gap-text", "qti-gap-img")
"""Words and pictures that are assigned to gaps and areas."""

AREAS = dict(GRAPHIC_KINDS.values())
"""The elements of the areas of interactions with a picture."""

INLINE = ("qti-inline-choice-interaction", "qti-text-entry-interaction")
"""Interactions that stand within a sentence."""

INLINE_CHOICE = "shuffle required min-choices"
CHOSEN = "shuffle max-choices min-choices orientation"
PAIRED = "shuffle max-associations min-associations"
GRAPHIC = f"{PAIRED} max-choices min-choices"
SLIDER = "lower-bound upper-bound step step-label orientation reverse"
ENTRY = "base expected-length pattern-mask placeholder-text format"
EXTENDED = "expected-length expected-lines max-strings min-strings placeholder-text format"
"""Attributes of interactions, beside the identifier of the response."""

INTERACTIONS: dict[str, tuple[str, str, Callable[[Body, Element, Field], None]]] = {
    "qti-choice-interaction": ("choices", CHOSEN, Body._choice),
    "qti-order-interaction": ("order", CHOSEN, Body._choice),
    "qti-hottext-interaction": ("hottext", "max-choices min-choices", Body._hottext_interaction),
    "qti-inline-choice-interaction": ("choice", INLINE_CHOICE, Body._inline_choice),
    "qti-match-interaction": ("match", PAIRED, Body._match),
    "qti-gap-match-interaction": ("match", PAIRED, Body._gap_match),
    "qti-associate-interaction": ("associate", PAIRED, Body._associate),
    # A hotspot interaction is of the kind choices at first, the last one that is written as one.
    **{name: (kind, GRAPHIC, Body._graphic) for kind, (name, _) in GRAPHIC_KINDS.items()},
    "qti-slider-interaction": ("text", SLIDER, Body._slider),
    "qti-text-entry-interaction": ("text", ENTRY, Body._text_entry),
    "qti-extended-text-interaction": ("essay", EXTENDED, Body._extended_text),
}
"""The kind of item of each interaction, its attributes, and what reads the rest of it."""

HANDLERS: dict[str, Callable[[Body, Element], str]] = {
    "qti-hottext": Body._hottext,
    "qti-gap": Body._gap,
    "qti-media-interaction": Body._media,
    "qti-rubric-block": Body._rubric,
}
"""How the other elements of QTI in an item body are read; the rest is refused."""


def _without_prompt(element: Element) -> Element:
    content = Element(element.tag)
    content.text = element.text
    content.extend(child for child in element if local_name(child) != "qti-prompt")
    return content


def _area(element: Element, where: str) -> str:
    """Shape and coordinates of an area in whole pixels."""
    shape, text = element.get("shape", ""), element.get("coords", "")
    if shape == "default":
        return shape
    numbers = [round(as_number(word, "coords", where)) for word in text.split(",")]
    return f"{shape} {','.join(map(str, numbers))}"


def _media_of(element: Element, where: str) -> tuple[str, Element]:
    """The name and element of HTML for an object: a picture, a sound or a film."""
    kind = element.get("type", "").partition("/")[0]
    if kind not in ("image", "audio", "video"):
        got = shorten(element.get("type"))
        raise content_error(where, "an <object> with a picture, a sound or a film", got)
    sizes = {name: element.get(name, "") for name in ("width", "height") if element.get(name)}
    source = {"src": required(element, "data", where)}
    words = " ".join("".join(element.itertext()).split())
    if kind == "image":
        return "img", Element("img", {**source, "alt": words, **sizes})
    return kind, Element(kind, {**source, "controls": ""})

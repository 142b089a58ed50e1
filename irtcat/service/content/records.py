"""Items, stimuli and media: what people see, without a word of how answers are scored.

An `Item` holds nothing that reveals its key: it is what a taker's page is made from. All records
are frozen, are checked when they are made (HTML is sanitised), and convert to JSON documents and
back by ``to_json`` and ``from_json``.
"""

# ruff: noqa: RUF009 (`setting` returns a dataclass field)

import base64
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, NamedTuple

from irtcat._common.checks import brief, shorten
from irtcat.service.base.records import (
    Fault,
    Invalid,
    flag,
    list_of,
    number,
    one_of,
    optional,
    record,
    setting,
)
from irtcat.service.content.fields import (
    Record,
    content_error,
    identifier,
    matching,
    set_field,
    text_of,
)
from irtcat.service.content.html import choice_spans, clean_html, media_names, part_names, shows
from irtcat.service.content.media import check_media, media_name, media_type

MOST_HTML = 200_000
"""Longest prompt, choice, stimulus or rubric, in characters: a text of forty pages."""

MOST_CHOICES = 100
"""Most choices of an item: more cannot be read in a test, and the pages are made for this many."""

MOST_SECONDS = 24 * 3600.0

RIGHT_TO_LEFT = re.compile("ar|arc|ckb|dv|fa|he|nqo|ps|sd|syr|ug|ur|yi")
"""Languages that are written from right to left."""

LANGUAGE = matching(r"([A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*)?", "a tag such as en")

AREA = matching(
    r"(default|circle \d{1,5}(,\d{1,5}){2}|(rect|ellipse) \d{1,5}(,\d{1,5}){3}"
    r"|poly \d{1,5},\d{1,5}(,\d{1,5},\d{1,5}){2,99})?",
    "an area such as circle 77,115,8, rect 0,0,20,10 or poly 0,0,9,0,5,9",
)
"""The area of a choice on a picture: its shape and coordinates in pixels, as image maps of HTML
have them; "default" is all of the picture that belongs to no other choice."""

MOST_PIXELS = 10_000
"""Largest width and height of a picture with areas."""

MOST_PARTS = 50
"""Most answer fields of an item."""

CHOICE_ID = matching(
    r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", "a letter, then letters, digits, `_`, `.` or `-`"
)
"""Ids of choices can stand in an HTML attribute, a form field, a key in a table and in QTI."""


class ItemKind(NamedTuple):
    """A kind of item: a row of `KINDS`.

    Attributes:
        help: what a person does.
        has_choices: whether the response names choices.
        keys: kinds of `Key` that can score it.
        in_pairs: whether the response consists of pairs, ``"A B"``.
        least: fewest choices of an item without a picture; with one it is 1.
    """

    help: str
    has_choices: bool
    keys: tuple[str, ...]
    in_pairs: bool = False
    least: int = 2


KINDS: dict[str, ItemKind] = {
    "choice": ItemKind("selects one choice", True, ("match", "map", "rules")),
    "choices": ItemKind("selects several choices", True, ("match", "map", "rules")),
    "order": ItemKind("puts the choices in order", True, ("match", "rules")),
    "hottext": ItemKind(
        "selects words or phrases of the text", True, ("match", "map", "rules"), least=1
    ),
    "match": ItemKind(
        "assigns options to the choices", True, ("match", "map", "rules"), in_pairs=True, least=1
    ),
    "associate": ItemKind("joins choices in pairs", True, ("match", "map", "rules"), True),
    "text": ItemKind("enters a word or a number", False, ("match", "map", "rules", "rubric")),
    "essay": ItemKind("writes a text, which people score", False, ("rubric",)),
    "several": ItemKind("answers in several fields", False, ("rules", "rubric")),
}
"""The kinds of items."""


ONLY_IN = {
    "shuffle": ("choice", "choices", "order", "match", "associate"),
    "expected_length": ("text", "essay"),
    "expected_lines": ("essay",),
    "pattern": ("text",),
    "numeric": ("text",),
    "options": ("match",),
    "picture": ("choice", "choices", "order", "match", "associate"),
    "parts": ("several",),
}
"""The kinds of items that have a field."""


def _picture_name(value: Any, where: str, faults: list[Fault]) -> str:
    if not isinstance(value, str) or not media_type(value).startswith("image/"):
        raise Invalid("the name of a picture", value)
    return value


def _pattern(value: Any, where: str, faults: list[Fault]) -> str:
    pattern = str(text_of(200)(value, where, faults))
    try:
        # Browsers know classes such as \p{L}, which Python's expressions lack.
        re.compile(re.sub(r"\\[pP]\{\w+\}", "x", pattern))
    except (re.error, OverflowError, RecursionError):
        raise Invalid("a regular expression", value) from None
    return pattern


def _data(value: Any, where: str, faults: list[Fault]) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise Invalid("bytes, or text in Base64", value) from None


def _parts(value: Any, where: str, faults: list[Fault]) -> Any:
    return list_of(record(Item), "items")(value, where, faults)


@dataclass(frozen=True)
class Choice(Record):
    """One of the choices of an item.

    Attributes:
        id: letters, digits, ``_``, ``.`` and ``-``, not beginning with a digit.
        content_html: what is shown, sanitised.
        fixed: whether it keeps its position when the choices are shuffled ("none of these").
        most: most pairs of a response that it is in; 0 for no limit.
        area: where it is on the picture of the item, such as "circle 77,115,8"; see `AREA`.
    """

    identity = "choice", "id"
    rare = ("most", "area")

    id: str = setting(CHOICE_ID)
    content_html: str = setting(text_of(MOST_HTML))
    fixed: bool = setting(flag, False)
    most: int = setting(number(0, MOST_CHOICES, whole=True), 0)
    area: str = setting(AREA, "")

    def check(self, where: str) -> None:
        """Sanitise the HTML."""
        set_field(self, "content_html", clean_html(self.content_html, where))


@dataclass(frozen=True)
class Picture(Record):
    """The picture on which the choices of an item are areas.

    Attributes:
        media: name of its media file.
        alt: what it shows, for those who do not see it.
        width: in pixels, to which the coordinates of areas refer.
        height: in pixels.
    """

    identity = "picture", "media"

    media: str = setting(_picture_name)
    alt: str = setting(text_of(1000))
    width: int = setting(number(1, MOST_PIXELS, whole=True))
    height: int = setting(number(1, MOST_PIXELS, whole=True))


_choices = list_of(record(Choice), "choices")


@dataclass(frozen=True)
class Item(Record):
    """What a person sees and does; nothing in it reveals the key.

    Attributes:
        id: the item's id in the bank.
        kind: a name of `KINDS`.
        prompt: sanitised HTML. In hottext, ``<span data-choice="ID">`` marks what can be selected;
            in match it is a gap of the text that a choice stands for. In several, ``<span
            data-part="ID">`` or a ``<div>`` is the position of an answer field.
        choices: the choices in the author's order. Those of hottext are read from the prompt.
        language: BCP 47 tag of the language of the content; empty for that of the test, which
            `ItemSet.in_language` fills in when it is published.
        direction: "ltr" or "rtl"; empty derives it from the language.
        time_limit: seconds allowed for the item; None for no limit.
        stimulus: id of a stimulus that is shown beside the item, or None.
        max_choices: most choices or pairs of a response; 0 for no limit. 1 for "choice".
        min_choices: least number of choices of a response that is given.
        shuffle: whether the choices are shown in random order.
        expected_length: number of characters that the field for a text shows; None by default.
        expected_lines: lines that the field for an essay shows.
        pattern: regular expression that a browser asks the whole of a text to match; empty for
            none. The server does not apply it: matching a foreign expression can take hours.
        numeric: whether a text must be a number (``12``, ``-0.5``, ``0,5``, ``3/4``).
        title: for administrators; not shown to takers. Empty if it only repeats the id.
        labels: topics and the like, for reports.
        options: what a "match" assigns to its choices.
        picture: the picture of which the choices are areas.
        parts: the answer fields of "several", items in their turn, in the order of the prompt.
        inline: of a part, whether its field stands within a sentence.

    Raises:
        InputError: naming the item and the field.

    Example:
        >>> item = Item(
        ...     id="q1",
        ...     kind="choice",
        ...     prompt="<p>2 + 2 = ?</p>",
        ...     choices=(Choice("A", "3"), Choice("B", "4")),
        ... )
        >>> Item.from_json(item.to_json()) == item
        True
    """

    identity = "item", "id"
    rare = ("options", "picture", "parts", "inline")

    id: str = setting(identifier)
    kind: str = setting(one_of(KINDS))
    prompt: str = setting(text_of(MOST_HTML))
    choices: tuple[Choice, ...] = setting(_choices, ())
    language: str = setting(LANGUAGE, "")
    direction: str = setting(matching("(ltr|rtl)?", "ltr or rtl"), "")
    time_limit: float | None = setting(
        optional(number(above=0, most=MOST_SECONDS, unit="seconds")), None
    )
    stimulus: str | None = setting(optional(identifier), None)
    max_choices: int | None = setting(optional(number(0, whole=True)), None)
    min_choices: int = setting(number(0, whole=True), 0)
    shuffle: bool = setting(flag, False)
    expected_length: int | None = setting(optional(number(1, 100_000, whole=True)), None)
    expected_lines: int | None = setting(optional(number(1, 1000, whole=True)), None)
    pattern: str = setting(_pattern, "")
    numeric: bool = setting(flag, False)
    title: str = setting(text_of(1000), "")
    labels: tuple[str, ...] = setting(list_of(text_of(200), "texts"), ())
    options: tuple[Choice, ...] = setting(_choices, ())
    picture: Picture | None = setting(optional(record(Picture)), None)
    parts: tuple["Item", ...] = setting(_parts, ())
    inline: bool = setting(flag, False)

    def check(self, where: str) -> None:
        """Sanitise the HTML, and check what must hold between valid fields."""
        set_field(self, "prompt", clean_html(self.prompt, f"{where}, prompt"))
        title = self.title.strip()
        set_field(self, "title", "" if title == self.id else title)
        if not self.direction and self.language:
            set_field(self, "direction", _direction(self.language))
        self._check_parts(where)
        if not (shows(self.prompt) or self.inline or self.parts or self.picture):
            raise content_error(where, "a prompt", "an empty one")
        self._check_choices(where)
        for name, kinds in ONLY_IN.items():
            if getattr(self, name) and self.kind not in kinds:
                must = f"{name} only in items of the kind {' or '.join(kinds)}"
                raise content_error(where, must, self.kind)

    def _check_parts(self, where: str) -> None:
        ids = [part.id for part in self.parts]
        if self.kind == "several" and not 1 <= len(ids) <= MOST_PARTS:
            raise content_error(where, f"from 1 to {MOST_PARTS} parts", len(ids))
        marked = list(part_names(self.prompt))
        if marked != ids or len(set(ids)) < len(ids):
            must = "its parts in the prompt, each once and in order"
            raise content_error(where, must, shorten(marked))
        for part in self.parts:
            if part.kind == "several" or part.stimulus is not None or part.time_limit is not None:
                must = "parts without parts, stimuli and time limits of their own"
                raise content_error(where, must, brief(part.id))

    def _check_choices(self, where: str) -> None:
        self._read_marked_choices(where)
        ids = (*self.choice_ids, *(option.id for option in self.options))
        repeated = sorted({name for name in ids if ids.count(name) > 1})
        if repeated:
            got = f"repeats of {shorten(repeated)}"
            raise content_error(where, "choices of different ids", got)
        kind = KINDS[self.kind]
        if not kind.has_choices and ids:
            raise content_error(where, f"no choices in an item of the kind {self.kind}", len(ids))
        counts = {"choices": (kind.has_choices, 1 if self.picture else kind.least)}
        counts["options"] = (self.kind == "match", 1)
        for name, (is_needed, least) in counts.items():
            n = len(getattr(self, name))
            if is_needed and not least <= n <= MOST_CHOICES:
                raise content_error(where, f"from {least} to {MOST_CHOICES} {name}", n)
        gaps = self.kind == "match" and self.marks_choices
        for choice in (*self.choices, *self.options):
            if choice.area and self.picture is None:
                raise content_error(where, "areas only in an item with a picture", choice.id)
            if not (shows(choice.content_html) or choice.area or gaps):
                raise content_error(where, f"content of choice {choice.id}", "an empty one")
        self._check_limits(where, len(self.values))

    def _read_marked_choices(self, where: str) -> None:
        """Take the choices of hottext from its prompt, which marks them."""
        spans = choice_spans(self.prompt)
        if self.kind == "hottext":
            marked = tuple(Choice(name, escape(text, quote=False)) for name, text in spans)
            if self.choices and self.choice_ids != tuple(choice.id for choice in marked):
                must = "the choices of hottext as its prompt marks them, or none"
                raise content_error(where, must, shorten(self.choice_ids))
            set_field(self, "choices", marked)
        elif self.kind == "match" and spans:
            if [name for name, _ in spans] != list(self.choice_ids):
                must = "the choices as the gaps of the prompt"
                raise content_error(where, must, shorten([name for name, _ in spans]))
        elif spans:
            must = "data-choice only in items of the kinds hottext and match"
            raise content_error(where, must, self.kind)

    def _check_limits(self, where: str, n: int) -> None:
        """Check how many of the ``n`` choices are selected."""
        if self.max_choices is None:
            set_field(self, "max_choices", 1 if self.kind == "choice" else 0)
        most, least = self.max_choices or 0, self.min_choices
        for name, value, highest in (("max", most, n), ("min", least, most or n)):
            if value > highest:
                raise content_error(where, f"{name}_choices of at most {highest}", value)
        if self.kind == "choice" and most != 1:
            raise content_error(where, "max_choices of 1 in an item of the kind choice", most)
        for name, value in (("max", most), ("min", least)) if self.kind == "order" else ():
            if value not in (0, n):
                raise content_error(where, f"an order of all choices: {name}_choices of 0", value)
            set_field(self, f"{name}_choices", 0)

    @property
    def choice_ids(self) -> tuple[str, ...]:
        """Ids of the choices, in the author's order."""
        return tuple(choice.id for choice in self.choices)

    @cached_property
    def pairs(self) -> tuple[str, ...]:
        """All pairs that a response can have, ``"A B"``, in the order of the choices."""
        if self.kind == "match":
            others = [option.id for option in self.options]
            return tuple(f"{one} {other}" for one in self.choice_ids for other in others)
        if self.kind == "associate":
            return tuple(" ".join(two) for two in itertools.combinations(self.choice_ids, 2))
        return ()

    @cached_property
    def marks_choices(self) -> bool:
        """Whether the prompt marks the choices: words of hottext, gaps of a match.

        Every page of a taker asks several times; reading the prompt each time costs as much as the
        rest of its view.
        """
        return bool(choice_spans(self.prompt))

    @property
    def values(self) -> tuple[str, ...]:
        """What a response can name: choices or pairs of them."""
        return self.pairs if KINDS[self.kind].in_pairs else self.choice_ids

    def normal_pair(self, value: str) -> str:
        """A pair in the order of `pairs`; other values are returned unchanged."""
        turned = " ".join(reversed(value.split(" ")))
        return turned if self.kind == "associate" and turned in self.pairs else value

    def pair_faults(self, pairs: Sequence[str]) -> str:
        """Which choice or option is in more pairs than it may be; empty if none is."""
        counts = Counter(name for pair in pairs for name in pair.split(" "))
        for choice in (*self.choices, *self.options):
            if choice.most and counts[choice.id] > choice.most:
                return f"{choice.id} in {counts[choice.id]} pairs, of at most {choice.most}"
        return ""

    @property
    def media(self) -> tuple[str, ...]:
        """Names of the media files of the item, as ``media:NAME`` in its HTML."""
        choices = (*self.choices, *self.options)
        texts = (self.prompt, *(choice.content_html for choice in choices))
        names = [name for text in texts for name in media_names(text)]
        names += [self.picture.media] if self.picture else []
        return tuple(dict.fromkeys([*names, *(name for part in self.parts for name in part.media)]))


@dataclass(frozen=True)
class Stimulus(Record):
    """A text, table or picture that several items share.

    Attributes:
        id: its id, which items name as their ``stimulus``.
        content_html: sanitised HTML.
        title: what it is, for administrators and for screen readers.
        language: BCP 47 tag of its language; empty for that of the item.
    """

    identity = "stimulus", "id"

    id: str = setting(identifier)
    content_html: str = setting(text_of(MOST_HTML))
    title: str = setting(text_of(1000), "")
    language: str = setting(LANGUAGE, "")

    def check(self, where: str) -> None:
        """Sanitise the HTML, which must show something."""
        set_field(self, "content_html", clean_html(self.content_html, where))
        if not shows(self.content_html):
            raise content_error(where, "content", "an empty one")

    @property
    def media(self) -> tuple[str, ...]:
        """Names of the media files in the content."""
        return media_names(self.content_html)


@dataclass(frozen=True)
class Media(Record):
    """A picture, a sound or a film; items refer to it as ``media:NAME``.

    Attributes:
        name: SHA-256 of the data in hexadecimal, with the suffix of the type.
        type: media type, such as "image/png".
        data: the content of the file.
    """

    identity = "media", "name"

    name: str = setting(text_of(200))
    type: str = setting(text_of(200))
    data: bytes = setting(_data, repr=False)

    def check(self, where: str) -> None:
        """Check that the data have this name and type."""
        check_media(self.data, self.type, where)
        if self.name != media_name(self.data, self.type):
            raise content_error(where, "the name of its content", shorten(self.name))

    @staticmethod
    def from_bytes(data: bytes, filename: str) -> "Media":
        """A media file from its content; the type follows from the suffix of the file name.

        Raises:
            InputError: the suffix is unknown, the content is not of that type, is too large, or is
                a picture in SVG that holds scripts or foreign addresses.
        """
        kind = media_type(filename)
        check_media(data, kind, f"media file {brief(filename)}")
        return Media(media_name(data, kind), kind, data)

    def to_json(self) -> dict[str, Any]:
        """The file as a JSON document, its data in Base64."""
        data = base64.b64encode(self.data).decode("ascii")
        return {"name": self.name, "type": self.type, "data": data}


def _direction(language: str) -> str:
    tags = language.lower().split("-")
    rtl = bool(RIGHT_TO_LEFT.fullmatch(tags[0])) or any(tag in ("arab", "hebr") for tag in tags)
    return "rtl" if rtl and "latn" not in tags[1:] else "ltr"

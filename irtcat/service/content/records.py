"""Items, stimuli and media: what people see, without a word of how answers are scored.

An `Item` holds nothing that reveals its key: it is what a taker's page is made from. All records
are frozen, are checked when they are made (HTML is sanitised), and convert to JSON documents and
back by ``to_json`` and ``from_json``.
"""

import base64
import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cached_property
from html import escape
from typing import Any, ClassVar, NamedTuple, Self

from irtcat._common.checks import brief, check_id, shorten
from irtcat.service.content.fields import (
    checked_number,
    checked_text,
    checked_whole,
    content_error,
    record_fields,
)
from irtcat.service.content.html import (
    choice_spans,
    clean_html,
    media_names,
    part_names,
    plain_text,
)
from irtcat.service.content.media import check_media, media_name, media_type

MOST_HTML = 200_000
"""Longest prompt, choice, stimulus or rubric, in characters: a text of forty pages."""

MOST_CHOICES = 100
"""Most choices of an item: more cannot be read in a test, and the pages are made for this many."""

MOST_SECONDS = 24 * 3600.0

RIGHT_TO_LEFT = re.compile("ar|arc|ckb|dv|fa|he|nqo|ps|sd|syr|ug|ur|yi")
"""Languages that are written from right to left."""

LANGUAGE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")

AREA = re.compile(
    r"default|circle \d{1,5}(,\d{1,5}){2}|(rect|ellipse) \d{1,5}(,\d{1,5}){3}"
    r"|poly \d{1,5},\d{1,5}(,\d{1,5},\d{1,5}){2,99}"
)
"""The area of a choice on a picture: its shape and coordinates in pixels, as image maps of HTML
have them; "default" is all of the picture that belongs to no other choice."""

MOST_PIXELS = 10_000
"""Largest width and height of a picture with areas."""

MOST_PARTS = 50
"""Most answer fields of an item."""

CHOICE_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
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


class Record:
    """A record of an item set that is stored as a JSON document.

    Attributes:
        rare: fields that documents leave out where they have their default.
    """

    rare: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON document."""
        values: list[tuple[Field[Any], Any]] = [
            (entry, getattr(self, entry.name))
            for entry in fields(self)  # type: ignore[arg-type]
        ]
        return {
            entry.name: _listed(value)
            for entry, value in values
            if entry.name not in self.rare or value != entry.default
        }

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """A record from the output of `to_json`.

        Raises:
            InputError: naming the record and the field.
        """
        return cls(**record_fields(cls, document, cls.__name__.lower()))


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

    rare = ("most", "area")

    id: str
    content_html: str
    fixed: bool = False
    most: int = 0
    area: str = ""

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.id, str) or not CHOICE_ID.fullmatch(self.id):
            must = "the id of a choice as a letter, then letters, digits, `_`, `.` or `-`"
            raise content_error("choice", must, shorten(self.id))
        where = f"choice {self.id}"
        html = clean_html(checked_text(where, "content_html", self.content_html, MOST_HTML), where)
        set_field(self, "content_html", html)
        check_flag(where, "fixed", self.fixed)
        checked_whole(where, "most", self.most, 0, MOST_CHOICES)
        if not isinstance(self.area, str) or (self.area and not AREA.fullmatch(self.area)):
            must = "area such as circle 77,115,8, rect 0,0,20,10 or poly 0,0,9,0,5,9"
            raise content_error(where, must, shorten(self.area))


@dataclass(frozen=True)
class Picture(Record):
    """The picture on which the choices of an item are areas.

    Attributes:
        media: name of its media file.
        alt: what it shows, for those who do not see it.
        width: in pixels, to which the coordinates of areas refer.
        height: in pixels.
    """

    media: str
    alt: str
    width: int
    height: int

    def __post_init__(self) -> None:
        """Check the fields."""
        if not isinstance(self.media, str) or not media_type(self.media).startswith("image/"):
            raise content_error("picture", "the name of a picture", shorten(self.media))
        checked_text("picture", "alt", self.alt, 1000)
        for name in ("width", "height"):
            checked_whole("picture", name, getattr(self, name), 1, MOST_PIXELS)


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

    rare = ("options", "picture", "parts", "inline")

    id: str
    kind: str
    prompt: str
    choices: tuple[Choice, ...] = ()
    language: str = ""
    direction: str = ""
    time_limit: float | None = None
    stimulus: str | None = None
    max_choices: int | None = None
    min_choices: int = 0
    shuffle: bool = False
    expected_length: int | None = None
    expected_lines: int | None = None
    pattern: str = ""
    numeric: bool = False
    title: str = ""
    labels: tuple[str, ...] = ()
    options: tuple[Choice, ...] = ()
    picture: Picture | None = None
    parts: tuple["Item", ...] = ()
    inline: bool = False

    def __post_init__(self) -> None:
        """Check the fields, and sanitise the HTML."""
        set_field(self, "id", check_id("id", self.id))
        where = f"item {brief(self.id)}"
        if self.kind not in list(KINDS):  # a list cannot be looked up in a dict
            raise content_error(where, f"kind as one of {', '.join(KINDS)}", shorten(self.kind))
        prompt = checked_text(where, "prompt", self.prompt, MOST_HTML)
        set_field(self, "prompt", clean_html(prompt, f"{where}, prompt"))
        check_flag(where, "inline", self.inline)
        self._check_parts(where)
        if not (_shows(self.prompt) or self.inline or self.parts or self.picture):
            raise content_error(where, "a prompt", "an empty one")
        self._check_choices(where)
        self._check_display(where)
        self._check_entry(where)

    def _check_parts(self, where: str) -> None:
        set_field(self, "parts", _records(where, "parts", self.parts, Item))
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
        set_field(self, "choices", _records(where, "choices", self.choices, Choice))
        set_field(self, "options", _records(where, "options", self.options, Choice))
        ids = (*self.choice_ids, *(option.id for option in self.options))
        repeated = sorted({name for name in ids if ids.count(name) > 1})
        if repeated:
            raise content_error(
                where, "choices of different ids", f"repeats of {shorten(repeated)}"
            )
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
            if not (_shows(choice.content_html) or choice.area or gaps):
                raise content_error(where, f"content of choice {choice.id}", "an empty one")
        self._check_limits(where, len(self.values))

    def _read_marked_choices(self, where: str) -> None:
        """Take the choices of hottext from its prompt, which marks them."""
        spans = choice_spans(self.prompt)
        if self.kind == "hottext":
            marked = tuple(Choice(name, escape(text, quote=False)) for name, text in spans)
            given = _records(where, "choices", self.choices, Choice)
            if given and [c.id for c in given] != [c.id for c in marked]:
                must = "the choices of hottext as its prompt marks them, or none"
                raise content_error(where, must, shorten([choice.id for choice in given]))
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
        most = checked_whole(where, "max_choices", self.max_choices, 0, n)
        if self.kind == "choice" and most != 1:
            raise content_error(where, "max_choices of 1 in an item of the kind choice", most)
        if self.kind == "order" and most not in (0, n):
            raise content_error(where, "an order of all choices: max_choices of 0", most)
        least = checked_whole(where, "min_choices", self.min_choices, 0, most or n)
        if self.kind == "order" and least not in (0, n):
            raise content_error(where, "an order of all choices: min_choices of 0", least)
        if self.kind == "order":
            set_field(self, "max_choices", 0)
            set_field(self, "min_choices", 0)

    def _check_display(self, where: str) -> None:
        _check_language(where, self.language)
        if self.direction not in ("", "ltr", "rtl"):
            raise content_error(where, "direction as ltr or rtl", shorten(self.direction))
        if not self.direction and self.language:
            set_field(self, "direction", _direction(self.language))
        if self.time_limit is not None:
            limit = checked_number(where, "time_limit", self.time_limit)
            if not 0 < limit <= MOST_SECONDS:
                raise content_error(where, "time_limit in seconds, up to one day", brief(limit))
            set_field(self, "time_limit", limit)
        if self.stimulus is not None:
            set_field(self, "stimulus", check_id("stimulus", self.stimulus))
        check_flag(where, "shuffle", self.shuffle)
        title = checked_text(where, "title", self.title, 1000).strip()
        set_field(self, "title", "" if title == self.id else title)
        if isinstance(self.labels, str) or not isinstance(self.labels, (list, tuple)):
            raise content_error(where, "labels as a list of texts", shorten(self.labels))
        set_field(self, "labels", tuple(checked_text(where, "labels", v, 200) for v in self.labels))

    def _check_entry(self, where: str) -> None:
        if self.expected_length is not None:
            checked_whole(where, "expected_length", self.expected_length, 1, 100_000)
        if self.expected_lines is not None:
            checked_whole(where, "expected_lines", self.expected_lines, 1, 1000)
        checked_text(where, "pattern", self.pattern, 200)
        check_flag(where, "numeric", self.numeric)
        for name, kinds in ONLY_IN.items():
            if getattr(self, name) and self.kind not in kinds:
                must = f"{name} only in items of the kind {' or '.join(kinds)}"
                raise content_error(where, must, self.kind)
        try:
            # Browsers know classes such as \p{L}, which Python's expressions lack.
            re.compile(re.sub(r"\\[pP]\{\w+\}", "x", self.pattern))
        except (re.error, OverflowError, RecursionError):
            expected = "pattern as a regular expression"
            raise content_error(where, expected, shorten(self.pattern)) from None

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

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """An item from the output of `to_json`.

        Raises:
            InputError: naming the item and the field.
        """
        values = record_fields(cls, document, "item")
        readers: dict[str, Callable[[Any], Any]] = {
            "choices": Choice.from_json,
            "options": Choice.from_json,
            "parts": Item.from_json,
        }
        for name, read in readers.items():
            entries = values.get(name, ())
            if not isinstance(entries, (list, tuple)):
                raise content_error("item", f"{name} as a list", shorten(entries))
            values[name] = tuple(map(read, entries))
        if values.get("picture") is not None:
            values["picture"] = Picture.from_json(values["picture"])
        return cls(**values)


@dataclass(frozen=True)
class Stimulus(Record):
    """A text, table or picture that several items share.

    Attributes:
        id: its id, which items name as their ``stimulus``.
        content_html: sanitised HTML.
        title: what it is, for administrators and for screen readers.
        language: BCP 47 tag of its language; empty for that of the item.
    """

    id: str
    content_html: str
    title: str = ""
    language: str = ""

    def __post_init__(self) -> None:
        """Check the fields, and sanitise the HTML."""
        set_field(self, "id", check_id("id", self.id))
        where = f"stimulus {brief(self.id)}"
        html = checked_text(where, "content_html", self.content_html, MOST_HTML)
        set_field(self, "content_html", clean_html(html, where))
        if not _shows(self.content_html):
            raise content_error(where, "content", "an empty one")
        checked_text(where, "title", self.title, 1000)
        _check_language(where, self.language)

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

    name: str
    type: str
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Check that the data have this name and type."""
        where = f"media {shorten(self.name)}"
        if not isinstance(self.data, bytes):
            raise content_error(where, "data as bytes", type(self.data).__name__)
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

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """A media file from the output of `to_json`."""
        values = record_fields(cls, document, "media")
        try:
            data = base64.b64decode(values["data"], validate=True)
        except (TypeError, ValueError):
            raise content_error("media", "data in Base64", shorten(values["data"])) from None
        return cls(**values | {"data": data})


def set_field(record: Any, name: str, value: Any) -> None:
    """Set a field of a frozen record, while it is made."""
    object.__setattr__(record, name, value)


def check_flag(where: str, name: str, value: Any) -> None:
    """Raise unless a value is true or false."""
    if not isinstance(value, bool):
        raise content_error(where, f"{name} as true or false", shorten(value))


def _records(where: str, name: str, value: Any, kind: type) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, kind) for v in value):
        raise content_error(where, f"{name} as a list of {kind.__name__}", shorten(value))
    return tuple(value)


def _shows(html: str) -> bool:
    """Whether HTML shows anything."""
    return bool(plain_text(html) or media_names(html))


def _check_language(where: str, tag: Any) -> None:
    if not isinstance(tag, str) or (tag and not LANGUAGE.fullmatch(tag)):
        raise content_error(where, "language as a tag such as en", shorten(tag))


def _listed(value: Any) -> Any:
    """A value of a document: tuples are lists, records are documents."""
    if isinstance(value, tuple):
        return [_listed(element) for element in value]
    return value.to_json() if isinstance(value, Record) else value


def _direction(language: str) -> str:
    tags = language.lower().split("-")
    rtl = bool(RIGHT_TO_LEFT.fullmatch(tags[0])) or any(tag in ("arab", "hebr") for tag in tags)
    return "rtl" if rtl and "latn" not in tags[1:] else "ltr"

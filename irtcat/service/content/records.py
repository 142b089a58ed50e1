"""Items, keys, stimuli and media: what people see, and apart from it how answers are scored.

An `Item` holds nothing that reveals its key: it is what a taker's page is made from. A `Key` is
stored apart and never sent to takers. All records are frozen, are checked when they are made (HTML
is sanitised), and convert to JSON documents and back by ``to_json`` and ``from_json``.
"""

import base64
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from html import escape
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from irtcat._common.checks import brief, check_id, shorten
from irtcat._files import json_hash, json_text
from irtcat.service.content.fields import (
    FaultList,
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
from irtcat.service.content.numerals import number_of

MOST_HTML = 200_000
"""Longest prompt, choice, stimulus or rubric, in characters: a text of forty pages."""

MOST_CHOICES = 100
"""Most choices of an item: more cannot be read in a test, and the pages are made for this many."""

MOST_SCORE = 100
"""Highest score of an item: item models with more categories cannot be calibrated."""

MOST_TOTALS = 100_000
"""Most different sums of points by number of choices: whole points of 100 choices stay below, and
irregular fractions would double with every choice."""

PRECISION = 1e-6
"""Difference from a multiple that is rounding: points such as 1/3 have no exact decimals."""

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
    """

    help: str
    has_choices: bool
    keys: tuple[str, ...]
    in_pairs: bool = False


KINDS: dict[str, ItemKind] = {
    "choice": ItemKind("selects one choice", True, ("match", "map", "rules")),
    "choices": ItemKind("selects several choices", True, ("match", "map", "rules")),
    "order": ItemKind("puts the choices in order", True, ("match", "rules")),
    "hottext": ItemKind("selects words or phrases of the text", True, ("match", "map", "rules")),
    "match": ItemKind("assigns options to the choices", True, ("match", "map", "rules"), True),
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
        _set(self, "content_html", html)
        _check_flag(where, "fixed", self.fixed)
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
        _set(self, "id", check_id("id", self.id))
        where = f"item {brief(self.id)}"
        if self.kind not in list(KINDS):  # a list cannot be looked up in a dict
            raise content_error(where, f"kind as one of {', '.join(KINDS)}", shorten(self.kind))
        prompt = checked_text(where, "prompt", self.prompt, MOST_HTML)
        _set(self, "prompt", clean_html(prompt, f"{where}, prompt"))
        _check_flag(where, "inline", self.inline)
        self._check_parts(where)
        empty = not plain_text(self.prompt) and not media_names(self.prompt)
        if empty and not (self.inline or self.parts or self.picture):
            raise content_error(where, "a prompt", "an empty one")
        self._check_choices(where)
        self._check_display(where)
        self._check_entry(where)

    def _check_parts(self, where: str) -> None:
        _set(self, "parts", _records(where, "parts", self.parts, Item))
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
        _set(self, "choices", _records(where, "choices", self.choices, Choice))
        _set(self, "options", _records(where, "options", self.options, Choice))
        ids = (*self.choice_ids, *(option.id for option in self.options))
        repeated = sorted({name for name in ids if ids.count(name) > 1})
        if repeated:
            raise content_error(
                where, "choices of different ids", f"repeats of {shorten(repeated)}"
            )
        if not KINDS[self.kind].has_choices and ids:
            raise content_error(where, f"no choices in an item of the kind {self.kind}", len(ids))
        least = 1 if self.kind in ("match", "hottext") or self.picture else 2
        if KINDS[self.kind].has_choices and not least <= len(self.choices) <= MOST_CHOICES:
            raise content_error(where, f"from {least} to {MOST_CHOICES} choices", len(self.choices))
        if self.kind == "match" and not 1 <= len(self.options) <= MOST_CHOICES:
            raise content_error(where, f"from 1 to {MOST_CHOICES} options", len(self.options))
        gaps = self.kind == "match" and choice_spans(self.prompt)
        for choice in (*self.choices, *self.options):
            html = choice.content_html
            if choice.area and self.picture is None:
                raise content_error(where, "areas only in an item with a picture", choice.id)
            if not (plain_text(html) or media_names(html) or choice.area or gaps):
                raise content_error(where, f"content of choice {choice.id}", "an empty one")
        n = len(self.pairs) if KINDS[self.kind].in_pairs else len(self.choices)
        self._check_limits(where, n)

    def _read_marked_choices(self, where: str) -> None:
        """Take the choices of hottext from its prompt, which marks them."""
        spans = choice_spans(self.prompt)
        if self.kind == "hottext":
            marked = tuple(Choice(name, escape(text, quote=False)) for name, text in spans)
            given = _records(where, "choices", self.choices, Choice)
            if given and [c.id for c in given] != [c.id for c in marked]:
                must = "the choices of hottext as its prompt marks them, or none"
                raise content_error(where, must, shorten([choice.id for choice in given]))
            _set(self, "choices", marked)
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
            _set(self, "max_choices", 1 if self.kind == "choice" else 0)
        most = checked_whole(where, "max_choices", self.max_choices, 0, n)
        if self.kind == "choice" and most != 1:
            raise content_error(where, "max_choices of 1 in an item of the kind choice", most)
        if self.kind == "order" and most not in (0, n):
            raise content_error(where, "an order of all choices: max_choices of 0", most)
        least = checked_whole(where, "min_choices", self.min_choices, 0, most or n)
        if self.kind == "order" and least not in (0, n):
            raise content_error(where, "an order of all choices: min_choices of 0", least)
        if self.kind == "order":
            _set(self, "max_choices", 0)
            _set(self, "min_choices", 0)

    def _check_display(self, where: str) -> None:
        if not isinstance(self.language, str) or (
            self.language and not LANGUAGE.fullmatch(self.language)
        ):
            raise content_error(where, "language as a tag such as en", shorten(self.language))
        if self.direction not in ("", "ltr", "rtl"):
            raise content_error(where, "direction as ltr or rtl", shorten(self.direction))
        if not self.direction and self.language:
            _set(self, "direction", _direction(self.language))
        if self.time_limit is not None:
            limit = checked_number(where, "time_limit", self.time_limit)
            if not 0 < limit <= MOST_SECONDS:
                raise content_error(where, "time_limit in seconds, up to one day", brief(limit))
            _set(self, "time_limit", limit)
        if self.stimulus is not None:
            _set(self, "stimulus", check_id("stimulus", self.stimulus))
        _check_flag(where, "shuffle", self.shuffle)
        title = checked_text(where, "title", self.title, 1000).strip()
        _set(self, "title", "" if title == self.id else title)
        if isinstance(self.labels, str) or not isinstance(self.labels, (list, tuple)):
            raise content_error(where, "labels as a list of texts", shorten(self.labels))
        _set(self, "labels", tuple(checked_text(where, "labels", v, 200) for v in self.labels))

    def _check_entry(self, where: str) -> None:
        if self.expected_length is not None:
            checked_whole(where, "expected_length", self.expected_length, 1, 100_000)
        if self.expected_lines is not None:
            checked_whole(where, "expected_lines", self.expected_lines, 1, 1000)
        checked_text(where, "pattern", self.pattern, 200)
        _check_flag(where, "numeric", self.numeric)
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

    @property
    def marks_choices(self) -> bool:
        """Whether the prompt marks the choices: words of hottext, gaps of a match."""
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


KEY_NEEDS = {"match": "correct", "map": "points", "rules": "rules", "rubric": ""}
"""The kinds of keys, and the field that each needs."""


@dataclass(frozen=True)
class Key(Record):
    """How the responses to an item are scored; stored apart from the item, never sent to takers.

    Four kinds:

    - "match": a response that is entirely right scores ``max_score``, any other 0. ``correct`` has
      the id of the right choice; all ids of the right choices; all right pairs, ``"A B"``; the ids
      in the right order; or for a text each accepted answer.
    - "map": each part of the response (the choice, each selected choice, each pair, the text) has
      points in ``points``, or else ``default``. Their sum, limited to ``lower`` and ``upper``, is
      the score.
    - "rules": response processing of QTI in ``rules`` gives the score, from 0 to ``max_score`` in
      steps of ``unit``.
    - "rubric": people score the response from 0 to ``max_score`` by ``rubric``, in steps of
      ``unit``.

    Attributes:
        item: id of the item.
        kind: "match", "map", "rules" or "rubric".
        correct: the right response of a "match".
        points: (value, points) pairs of a "map".
        default: points of a value that is not in ``points``.
        lower: least score of a "map"; None for no limit.
        upper: greatest score of a "map"; None for no limit.
        case_sensitive: whether texts are compared with their case.
        max_score: highest score. Of a "map" by default the sum of its positive points, limited to
            ``upper``; for an item that takes one choice or a text, the greatest of its points.
        rubric: sanitised HTML for the scorers.
        criteria: (name, points) pairs of a "rubric"; the points sum to ``max_score``.
        unit: points of one category: 1, or the largest part of a point, such as 0.5, of which all
            scores are multiples. A score of 1.5 is then category 3. `ItemSet` finds it; in a
            "rubric" it is also the smallest difference of scores that people give, so that
            ``max_score`` 1 and ``unit`` 0.5 are the scores 0, 0.5 and 1.
        rules: XML of QTI 3.0: an item with only its response declarations, outcome declarations and
            response processing.

    Raises:
        InputError: naming the item and the field.

    Example:
        >>> Key("q1", "match", correct=("B",)).categories
        2
        >>> Key("q2", "map", points=(("A", 2), ("B", 1)), max_score=2).categories
        3
    """

    rare = ("unit", "rules")

    item: str
    kind: str
    correct: tuple[str, ...] = ()
    points: tuple[tuple[str, float], ...] = ()
    default: float = 0.0
    lower: float | None = None
    upper: float | None = None
    case_sensitive: bool = False
    max_score: float | None = None
    rubric: str = ""
    criteria: tuple[tuple[str, float], ...] = ()
    unit: float = 1.0
    rules: str = ""

    def __post_init__(self) -> None:
        """Check the fields."""
        _set(self, "item", check_id("item", self.item))
        where = f"key of item {brief(self.item)}"
        if self.kind not in list(KEY_NEEDS):  # a list cannot be looked up in a dict
            raise content_error(where, f"kind as one of {', '.join(KEY_NEEDS)}", shorten(self.kind))
        if isinstance(self.correct, str) or not isinstance(self.correct, (list, tuple)):
            raise content_error(where, "correct as a list of texts", shorten(self.correct))
        _set(self, "correct", tuple(checked_text(where, "correct", v, 1000) for v in self.correct))
        _set(self, "points", _pairs(where, "points", self.points))
        _set(self, "criteria", _pairs(where, "criteria", self.criteria))
        rubric = checked_text(where, "rubric", self.rubric, MOST_HTML)
        _set(self, "rubric", clean_html(rubric, f"{where}, rubric"))
        _check_flag(where, "case_sensitive", self.case_sensitive)
        checked_text(where, "rules", self.rules, MOST_HTML)
        for name in ("default", "lower", "upper"):
            value = getattr(self, name)
            if value is not None or name == "default":
                _set(self, name, checked_number(where, name, value))
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise content_error(where, "lower of at most upper", f"{self.lower:g} > {self.upper:g}")
        self._check_kind(where)
        if self.max_score is None:
            _set(self, "max_score", self._highest())
        highest = checked_number(where, "max_score", self.max_score)
        if not 0 < highest <= MOST_SCORE:
            must = f"a highest score above 0 and of at most {MOST_SCORE}"
            raise content_error(where, must, f"{highest:g}")
        if self.criteria and not math.isclose(sum(p for _, p in self.criteria), highest):
            total = sum(p for _, p in self.criteria)
            raise content_error(where, f"criteria of {highest:g} points in all", f"{total:g}")
        _set(self, "max_score", highest)
        unit = checked_number(where, "unit", self.unit)
        if not 0 < unit <= 1:
            raise content_error(where, "unit above 0 and of at most 1", f"{unit:g}")
        _set(self, "unit", unit)

    def _check_kind(self, where: str) -> None:
        needed = KEY_NEEDS[self.kind]
        if needed and not getattr(self, needed):
            raise content_error(where, f"{needed} in a key of the kind {self.kind}", "none")
        kinds = {name: kind for kind, name in KEY_NEEDS.items() if name} | {"criteria": "rubric"}
        for name, kind in kinds.items():
            if getattr(self, name) and self.kind != kind:
                raise content_error(where, f"{name} only in a key of the kind {kind}", self.kind)
        if self.kind in ("rubric", "rules") and self.max_score is None and not self.criteria:
            raise content_error(where, f"max_score in a key of the kind {self.kind}", "none")
        for name, points in self.criteria:
            if points <= 0:
                raise content_error(where, f"points above 0 for criterion {brief(name)}", points)

    def _highest(self) -> float:
        if self.kind == "match":
            return 1.0
        if self.kind == "rubric":
            return sum(points for _, points in self.criteria)
        total = sum(max(points, 0.0) for _, points in self.points)
        return total if self.upper is None else min(total, self.upper)

    @property
    def categories(self) -> int:
        """Number of categories of the item: the scores 0 to ``max_score`` in steps of ``unit``."""
        return math.floor((self.max_score or 0) / self.unit + PRECISION) + 1

    def score(self, category: int) -> float:
        """The points of a category.

        Example:
            >>> Key("q", "match", correct=("B",), max_score=1, unit=1 / 3).score(3)
            1.0
        """
        return round(category * self.unit, 9)

    def category(self, score: float) -> int | None:
        """The category of a score; None if the score is no multiple of ``unit``.

        Example:
            >>> Key("q", "match", correct=("B",), max_score=1.5, unit=0.5).category(1.5)
            3
        """
        steps = score / self.unit
        return round(steps) if abs(steps - round(steps)) < PRECISION else None


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
        _set(self, "id", check_id("id", self.id))
        where = f"stimulus {brief(self.id)}"
        html = checked_text(where, "content_html", self.content_html, MOST_HTML)
        _set(self, "content_html", clean_html(html, where))
        if not plain_text(self.content_html) and not self.media:
            raise content_error(where, "content", "an empty one")
        checked_text(where, "title", self.title, 1000)
        if not isinstance(self.language, str) or (
            self.language and not LANGUAGE.fullmatch(self.language)
        ):
            raise content_error(where, "language as a tag such as en", shorten(self.language))

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


RECORDS = ("items", "keys", "stimuli", "media")
"""The records of an item set, in the order in which it takes them."""

RecordT = TypeVar("RecordT", bound=Record)
Records = Iterable[RecordT] | Mapping[str, RecordT]


@dataclass(frozen=True, init=False)
class ItemSet:
    """Items with their keys, stimuli and media; ``item_set["q1"]`` is an item.

    An item may have no key (a practice item); `check_against_bank` requires one for scored items.

    Attributes:
        items: id -> `Item`, in the author's order.
        keys: item id -> `Key`.
        stimuli: id -> `Stimulus`.
        media: name -> `Media`.
        notes: sentences on what was left out when the items were read; not stored with them.

    Raises:
        InputError: two records have the same id; a key is of no item, or does not fit it; a
            stimulus or a media file is missing.

    Example:
        >>> item = Item("q1", "text", "<p>2 + 2 = ?</p>", numeric=True)
        >>> items = ItemSet([item], [Key("q1", "match", correct=("4",))])
        >>> items["q1"].kind, items.keys["q1"].categories, len(items)
        ('text', 2, 1)
    """

    items: Mapping[str, Item]
    keys: Mapping[str, Key] = field(default_factory=dict, repr=False)
    stimuli: Mapping[str, Stimulus] = field(default_factory=dict, repr=False)
    media: Mapping[str, Media] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __init__(
        self,
        items: Records[Item],
        keys: Records[Key] = (),
        stimuli: Records[Stimulus] = (),
        media: Records[Media] = (),
        notes: tuple[str, ...] = (),
    ):
        """Check that the records, lists or mappings of them, fit together."""
        _set(self, "notes", tuple(notes))
        _set(self, "items", _by_id("item", items, Item, "id"))
        _set(self, "keys", _by_id("key of item", keys, Key, "item"))
        _set(self, "stimuli", _by_id("stimulus", stimuli, Stimulus, "id"))
        _set(self, "media", _by_id("media", media, Media, "name"))
        if not self.items:
            raise content_error("item set", "at least one item", "none")
        unknown = [name for name in self.keys if name not in self.items]
        if unknown:
            raise content_error("keys", "the ids of items of the set", shorten(unknown))
        checked, faults = dict[str, Key](), FaultList()
        for name, key in self.keys.items():
            with faults.collected():
                checked[name] = checked_key(key, self.items[name])
        for item in self.items.values():
            where = f"item {brief(item.id)}"
            with faults.collected():
                if item.stimulus is not None and item.stimulus not in self.stimuli:
                    got = f"{shorten(item.stimulus)}, which does not exist"
                    raise content_error(where, "the id of a stimulus", got)
                self._check_media(where, item.media)
        for stimulus in self.stimuli.values():
            with faults.collected():
                self._check_media(f"stimulus {brief(stimulus.id)}", stimulus.media)
        faults.check()
        _set(self, "keys", checked)
        for name in RECORDS:
            _set(self, name, MappingProxyType(getattr(self, name)))

    def _check_media(self, where: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.media:
                raise content_error(where, f"the media file {name}", "none of this name")

    def __getitem__(self, item: str) -> Item:
        return self.items[item]

    def __iter__(self) -> Iterator[str]:
        """The items' ids."""
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, item: object) -> bool:
        return item in self.items

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the records; views of mappings cannot be pickled."""
        return ItemSet, (*(dict(getattr(self, name)) for name in RECORDS), self.notes)

    def without_keys(self) -> "ItemSet":
        """The same set without its keys, as it may leave the server."""
        return replace(self, keys={})

    def in_language(self, language: str) -> "ItemSet":
        """The set with a language for the items that have none.

        Example:
            >>> items = ItemSet([Item("q1", "text", "<p>1 + 0,5 = ?</p>", numeric=True)])
            >>> items["q1"].language, items.in_language("de")["q1"].language
            ('', 'de')
        """

        def filled(item: Item) -> Item:
            parts = tuple(map(filled, item.parts))
            return replace(item, language=item.language or language, parts=parts)

        return replace(self, items={name: filled(item) for name, item in self.items.items()})

    def subset(self, ids: Iterable[str]) -> "ItemSet":
        """The set of some items, with only the keys, stimuli and media that they use.

        Raises:
            InputError: an item does not exist.
        """
        wanted = list(ids)
        missing = [name for name in wanted if name not in self.items]
        if missing:
            raise content_error("item set", "ids of its items", shorten(missing))
        items = [self.items[name] for name in wanted]
        stimuli = {item.stimulus for item in items if item.stimulus is not None}
        kept = [self.stimuli[name] for name in self.stimuli if name in stimuli]
        media = {name for item in items for name in item.media}
        media |= {name for stimulus in kept for name in stimulus.media}
        return ItemSet(
            items=items,
            keys=[self.keys[name] for name in wanted if name in self.keys],
            stimuli=kept,
            media=[self.media[name] for name in self.media if name in media],
        )

    def to_json(self) -> dict[str, Any]:
        """The set as a JSON document."""
        return {
            name: [record.to_json() for record in getattr(self, name).values()] for name in RECORDS
        }

    @staticmethod
    def from_json(document: Any) -> "ItemSet":
        """A set from the output of `to_json`.

        Raises:
            InputError: naming the record and the field.
        """
        values = record_fields(ItemSet, document, "item set")
        from_json: dict[str, Callable[[Any], Any]] = {
            "items": Item.from_json,
            "keys": Key.from_json,
            "stimuli": Stimulus.from_json,
            "media": Media.from_json,
        }
        for name, records in values.items():
            if name not in RECORDS:
                raise content_error("item set", f"the fields {', '.join(RECORDS)}", name)
            if not isinstance(records, list):
                raise content_error("item set", f"{name} as a list", shorten(records))
            values[name] = [from_json[name](record) for record in records]
        return ItemSet(**values)

    def hash(self) -> str:
        """SHA-256 of the set in hexadecimal, independent of the order of its records."""
        document = self.to_json()
        document["media"] = [record["name"] for record in document["media"]]
        for records in document.values():
            records.sort(key=lambda record: json_text(record, sort_keys=True))
        return json_hash(document)


def checked_key(key: Key, item: Item) -> Key:
    """The key with its highest score on this item.

    Raises:
        InputError: the key cannot score an item of this kind, or names a choice that it lacks.
    """
    where = f"key of item {brief(item.id)}"
    kinds = KINDS[item.kind].keys
    if key.kind not in kinds:
        must = f"kind as {' or '.join(kinds)} for an item of the kind {item.kind}"
        raise content_error(where, must, key.kind)
    if KINDS[item.kind].has_choices:
        key = replace(
            key,
            correct=tuple(map(item.normal_pair, key.correct)),
            points=tuple((item.normal_pair(value), points) for value, points in key.points),
        )
        if KINDS[item.kind].in_pairs:  # a set of pairs
            places = {value: at for at, value in enumerate(item.values)}
            ordered = sorted(key.correct, key=lambda value: places.get(value, len(places)))
            key = replace(key, correct=tuple(ordered))
        named = (*key.correct, *(value for value, _ in key.points))
        unknown = [value for value in named if value not in item.values]
        if unknown:
            what = "pairs of ids" if KINDS[item.kind].in_pairs else "ids"
            must = f"{what} of its choices, {shorten(item.values)}"
            raise content_error(where, must, shorten(unknown))
    if item.numeric:
        for value in (*key.correct, *(value for value, _ in key.points)):
            tags = [item.language] if item.language else ["en", "de"]  # either decimal mark
            if all(number_of(value, tag) is None for tag in tags):
                raise content_error(where, "numbers for a numeric item", shorten(value))
    if key.kind == "match":
        _check_match(key, item, where)
        return replace(key, unit=unit_of({float(key.max_score or 0)}))
    if key.kind == "map":
        return _with_highest(key, item, where)
    return key if key.kind == "rules" else _with_steps(key, where)


def _with_steps(key: Key, where: str) -> Key:
    """A rubric with the largest part of a point of which its unit and all points are multiples."""
    points = {float(key.max_score or 0), *(points for _, points in key.criteria)}
    unit = unit_of(points | {key.unit})
    if key.unit < 1 and not math.isclose(unit, key.unit, rel_tol=PRECISION):
        most = f"at most {MOST_SCORE} of them"
        must = f"unit as a part of a point, such as 0.5: all its points are multiples, {most}"
        raise content_error(where, must, f"{key.unit:g}")
    found = replace(key, unit=unit)
    odd = [value for value in sorted(points) if found.category(value) is None]
    if odd:
        must = f"points of a rubric as at most {MOST_SCORE} equal parts, such as halves"
        raise content_error(where, must, f"{odd[0]:g}")
    return found


def _check_match(key: Key, item: Item, where: str) -> None:
    n = len(key.correct)
    if KINDS[item.kind].has_choices and len(set(key.correct)) < n:
        raise content_error(where, "each right choice once", shorten(key.correct))
    if item.kind == "choice" and n != 1:
        raise content_error(
            where, "one right choice", shorten(key.correct), "Is it of kind choices?"
        )
    if item.kind == "order" and n != len(item.choices):
        raise content_error(where, "all choices in order", shorten(key.correct))
    most = item.max_choices or len(item.choices)
    if KINDS[item.kind].in_pairs:
        fault, most = item.pair_faults(key.correct), item.max_choices or len(item.pairs)
        if fault:
            raise content_error(where, "right pairs that the item allows", fault)
    if item.kind not in ("choice", "order", "text") and not item.min_choices <= n <= most:
        must = f"from {item.min_choices} to {most} right choices, as the item allows"
        raise content_error(where, must, shorten(key.correct))


def _with_highest(key: Key, item: Item, where: str) -> Key:
    """A map with the highest total that a response can reach as its highest score."""
    totals = map_totals(key, item)
    highest, lowest = max(totals), min(totals)
    if lowest < 0:
        got = f"a score of {lowest:g}"
        raise content_error(where, "points with no negative score", got, "Set lower to 0")
    return replace(key, max_score=highest, unit=unit_of(totals))


def unit_of(totals: set[float]) -> float:
    """The largest 1/n of which all scores are multiples; 1 if none gives `MOST_SCORE` categories.

    Example:
        >>> unit_of({0.0, 2.0}), unit_of({0.0, 0.25, 0.5}), unit_of({0.0, 0.123})
        (1.0, 0.25, 1.0)
    """
    parts = [Fraction(total).limit_denominator(MOST_SCORE) for total in totals]
    n = math.lcm(*(part.denominator for part in parts))
    exact = all(abs(float(p) - t) < PRECISION for p, t in zip(parts, totals, strict=True))
    return 1 / n if exact and n * max(totals) <= MOST_SCORE else 1.0


def map_totals(key: Key, item: Item) -> set[float]:
    """Every score that a map can give to a response to the item, and 0 for no response."""
    points = dict(key.points)
    if KINDS[item.kind].in_pairs:
        sums = _pair_totals(points, key.default, item)
    elif KINDS[item.kind].has_choices:
        values = [points.get(name, key.default) for name in item.choice_ids]
        most = 1 if item.kind == "choice" else item.max_choices or len(values)
        least = 1 if item.kind == "choice" else item.min_choices
        by_count: list[set[float]] = [{0.0}] + [set() for _ in range(most)]
        for value in values:
            for count in range(most, 0, -1):
                by_count[count] |= {round(total + value, 9) for total in by_count[count - 1]}
            if sum(map(len, by_count)) > MOST_TOTALS:
                must = "points with fewer different sums, such as whole numbers"
                raise content_error(f"key of item {brief(item.id)}", must)
        sums = set[float]().union(*by_count[least:])
    else:
        sums = {*points.values(), key.default}
    return {limited(total, key) for total in sums} | {0.0}


def _pair_totals(points: dict[str, float], default: float, item: Item) -> set[float]:
    """Sums of the points of all sets of pairs that an item allows.

    The states are the sum, the number of pairs, and how often each choice with a limit is used; a
    choice of which all pairs are done is not kept in them.
    """
    limits = {choice.id: choice.most for choice in (*item.choices, *item.options) if choice.most}
    worth = {pair: points.get(pair, default) for pair in item.pairs}
    scored = [pair.split(" ") for pair in item.pairs if worth[pair]]
    last = {name: at for at, pair in enumerate(scored) for name in pair}
    most = item.max_choices or len(scored)
    states: set[tuple[float, int, frozenset[tuple[str, int]]]] = {(0.0, 0, frozenset())}
    for at, pair in enumerate(scored):
        for total, count, used in list(states):
            before = dict(used)
            after = before | {name: before.get(name, 0) + 1 for name in pair if name in limits}
            if count < most and all(after[name] <= limits[name] for name in pair if name in limits):
                value = round(total + worth[" ".join(pair)], 9)
                states.add((value, count + 1, frozenset(after.items())))
        done = {name for name in pair if last[name] == at}
        states = {(t, n, frozenset(u for u in used if u[0] not in done)) for t, n, used in states}
        if len(states) > MOST_TOTALS:
            must = "points with fewer different sums, such as whole numbers"
            raise content_error(f"key of item {brief(item.id)}", must)
    return {total for total, _, _ in states}


def limited(total: float, key: Key) -> float:
    """A sum of points within the limits of the key."""
    low = -math.inf if key.lower is None else key.lower
    high = math.inf if key.upper is None else key.upper
    return min(max(total, low), high)


def _set(record: Any, name: str, value: Any) -> None:
    object.__setattr__(record, name, value)


def _check_flag(where: str, name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise content_error(where, f"{name} as true or false", shorten(value))


def _records(where: str, name: str, value: Any, kind: type) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, kind) for v in value):
        raise content_error(where, f"{name} as a list of {kind.__name__}", shorten(value))
    return tuple(value)


def _pairs(where: str, name: str, value: Any) -> tuple[tuple[str, float], ...]:
    """(name, number) pairs from a mapping or from pairs."""
    entries = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(entries, (list, tuple)):
        raise content_error(where, f"{name} as values with their points", shorten(value))
    out: dict[str, float] = {}
    for entry in entries:
        if not isinstance(entry, (list, tuple)) or len(entry) != 2:
            raise content_error(where, f"{name} as values with their points", shorten(entry))
        label = checked_text(where, name, entry[0], 1000)
        if label in out:
            raise content_error(where, f"each value of {name} once", shorten(label))
        out[label] = checked_number(where, f"{name} of {brief(label)}", entry[1])
    return tuple(out.items())


def _by_id(label: str, records: Any, kind: type, id_field: str) -> dict[str, Any]:
    """Records by their ids, which must differ."""
    if isinstance(records, Mapping):
        records = list(records.values())
    if isinstance(records, (str, bytes)) or not isinstance(records, Iterable):
        raise content_error(label, f"a list of {kind.__name__}", shorten(records))
    out: dict[str, Any] = {}
    for record in records:
        if not isinstance(record, kind):
            raise content_error(label, f"records of type {kind.__name__}", type(record).__name__)
        name = getattr(record, id_field)
        if name in out:
            raise content_error(f"{label} {brief(name)}", "ids that differ", "this id twice")
        out[name] = record
    return out


def _listed(value: Any) -> Any:
    """A value of a document: tuples are lists, records are documents."""
    if isinstance(value, tuple):
        return [_listed(element) for element in value]
    return value.to_json() if isinstance(value, Record) else value


def _direction(language: str) -> str:
    tags = language.lower().split("-")
    rtl = bool(RIGHT_TO_LEFT.fullmatch(tags[0])) or any(tag in ("arab", "hebr") for tag in tags)
    return "rtl" if rtl and "latn" not in tags[1:] else "ltr"

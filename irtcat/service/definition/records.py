"""TestDefinition: what a test consists of, its times, its rules, and the scale of its scores."""

# ruff: noqa: RUF009 (`setting` returns a dataclass field; other defaults are frozen records)

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar
from unicodedata import category

import numpy as np

from irtcat._common.checks import InputError, argument_error, is_number, shorten
from irtcat._files import json_hash, json_value
from irtcat.cat import Config
from irtcat.service.base import records
from irtcat.service.base.records import (
    Fault,
    Invalid,
    RecordError,
    flag,
    list_of,
    number,
    one_of,
    optional,
    read_record,
    record,
    reported,
    setting,
    unknown_fields,
)


class DefinitionError(RecordError):
    """A test definition that cannot be used; the message lists all faults."""

    noun = "The test definition has"


class Record(records.Record):
    """A record of a test definition."""

    error = DefinitionError


def text(value: Any, where: str = "", faults: Any = ()) -> str:
    """Reads a text of several lines; it may be empty."""
    if not isinstance(value, str) or any(
        category(character) in ("Cc", "Cs") and character not in "\r\n\t" for character in value
    ):
        raise Invalid("text without control characters", value)
    return value.replace("\r\n", "\n")


def line(value: Any, where: str = "", faults: Any = ()) -> str:
    """Reads a text of one line, not empty."""
    if not isinstance(value, str) or not value.strip() or "\n" in value or "\t" in value:
        raise Invalid("one line of text, not empty", value)
    return text(value).strip()


def ids(value: Any, where: str = "", faults: Any = ()) -> tuple[str, ...]:
    """Reads ids that differ; whole numbers become text."""
    if not isinstance(value, (list, tuple)):
        raise Invalid("a list of ids", value)
    out = []
    for entry in value:
        is_text = isinstance(entry, str) and entry.strip() and entry.isprintable()
        if not is_text and (not isinstance(entry, int) or isinstance(entry, bool)):
            raise Invalid("a list of ids as text, none empty", entry)
        out.append(str(entry))
    repeated = sorted({entry for entry in out if out.count(entry) > 1})
    if repeated:
        raise Invalid("a list with every id once", repeated)
    return tuple(out)


UNITS = {
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("min", "minute"), 60.0),
    **dict.fromkeys(("h", "hour"), 3600.0),
}
"""Seconds of each unit of time; the plural of the long names is accepted too."""

SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
DURATION = 'seconds as a number above 0, or a time such as "45 min" or "1 h 30 min"'


def seconds_of(value: Any) -> float:
    """A time in seconds, from a number of seconds or text.

    Args:
        value: seconds, or numbers with units: s, sec, second(s), min, minute(s), h, hour(s), each
            unit once and larger ones first.

    Raises:
        InputError: for other text, or a time that is not above 0 and finite.

    Example:
        >>> seconds_of("1 h 30 min"), seconds_of(90), seconds_of("2.5 minutes")
        (5400.0, 90.0, 150.0)
    """
    try:
        return duration(value)
    except Invalid as wrong:
        raise InputError(f"A time must be {wrong.must}. Got {shorten(wrong.got)}.") from None


def duration(value: Any, where: str = "", faults: Any = ()) -> float:
    """Reads a time; see `seconds_of`."""
    seconds = value
    if isinstance(value, str):
        spans = SPAN.findall(value.lower())
        rest = SPAN.sub("", value.lower()).strip()
        sizes = [UNITS.get(unit, UNITS.get(unit.removesuffix("s"), 0.0)) for _, unit in spans]
        if not spans or rest or 0.0 in sizes or sizes != sorted(set(sizes), reverse=True):
            raise Invalid(DURATION, value)
        seconds = sum(float(amount) * size for (amount, _), size in zip(spans, sizes, strict=True))
    if not is_number(seconds) or seconds <= 0:
        raise Invalid(DURATION, value)
    return float(seconds)


SHOWN = ("score", "interval", "level", "topics")
"""What a score report may show to the test taker."""

SCORING = ("eap", "map", "wle", "ml")
"""Methods of the final estimate of ability; see `irtcat.score`."""

EXTRA_TIME = {"extra_time_25": 1.25, "extra_time_50": 1.5, "extra_time_100": 2.0}
"""Factor of all time limits by the accommodation that extends them."""

ACCOMMODATIONS = {
    "extra_time_25": "all time limits are 25 % longer",
    "extra_time_50": "all time limits are 50 % longer",
    "extra_time_100": "all time limits are twice as long",
    "untimed": "there are no time limits",
    "pause": "the test may be paused, and the clock stops",
}
"""Accommodations that a test may allow, and what they do."""


def time_factor(accommodations: Any) -> float:
    """The factor by which a person's accommodations extend all time limits.

    Args:
        accommodations: names from `ACCOMMODATIONS`.

    Returns:
        The greatest factor; infinity without time limits.

    Raises:
        InputError: for an unknown accommodation.

    Example:
        >>> time_factor(["pause", "extra_time_50"]), time_factor([])
        (1.5, 1.0)
    """
    for name in accommodations:
        if name not in ACCOMMODATIONS:
            raise argument_error("accommodations", f"some of {', '.join(ACCOMMODATIONS)}", name)
    factors = [EXTRA_TIME.get(name, 1.0) for name in accommodations]
    return float("inf") if "untimed" in accommodations else max(factors, default=1.0)


def _language(value: Any, where: str, faults: list[Fault]) -> str:
    """Reads a language tag (BCP 47) in its usual form, such as pt-BR."""
    from babel import Locale, UnknownLocaleError

    must = 'a language as BCP 47 writes it, such as "en", "de" or "pt-BR"'
    if not isinstance(value, str) or not value.isascii():
        raise Invalid(must, value)
    try:
        return str(Locale.parse(value, sep="-")).replace("_", "-")
    except (UnknownLocaleError, ValueError):
        raise Invalid(must, value) from None


def _config(value: Any, where: str, faults: list[Fault]) -> Any:
    """Reads a `Config`, or a table of its fields."""
    if isinstance(value, Config):
        return value
    known = [entry.name for entry in fields(Config)]
    if not isinstance(value, Mapping):
        raise Invalid("a table of the fields of irtcat.cat.Config", value)
    unknown = unknown_fields(value, known, where)
    if unknown:
        faults += unknown
        return None
    try:
        return Config.from_json(value)
    except InputError as error:
        faults.append(config_fault(error, where))
        return None


def config_fault(error: InputError, where: str) -> Fault:
    """The fault of a section's configuration that `Config` or `irtcat.cat.prepare` refused."""
    start, _, rest = str(error).partition("` argument must ")
    name = start.removeprefix("The `")
    known = {entry.name for entry in fields(Config)}
    if not rest or name not in {*known, "config", "bank"}:  # such as an option of a rule
        return Fault(where, f"The `{where}` field: {error}")
    field = f"{where}.{name}" if name in known else where
    return Fault(field, f"The `{field}` field must {rest}")


def _where(value: Any, where: str, faults: list[Fault]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Reads columns of the metadata, and the values that an item must have in each."""
    must = 'a table of columns and values, such as { topic = ["algebra", "geometry"] }'
    entries = value.items() if isinstance(value, Mapping) else value
    out = []
    try:
        for column, values in entries:
            out.append((line(column), ids([values] if isinstance(values, str) else values)))
    except (TypeError, ValueError):
        raise Invalid(must, value) from None
    if len({column for column, _ in out}) < len(out) or not all(values for _, values in out):
        raise Invalid(must, value)
    return tuple(sorted(out))


def _seconds_by_item(value: Any, where: str, faults: list[Fault]) -> tuple[tuple[str, float], ...]:
    entries = value.items() if isinstance(value, Mapping) else value
    try:
        pairs = {line(item): seconds for item, seconds in entries}
    except (TypeError, ValueError):
        raise Invalid("a table of ids and seconds, such as { i1 = 4, i7 = 10 }", value) from None
    return tuple(
        (item, reported(duration, pairs[item], f"{where}.{item}", faults)) for item in sorted(pairs)
    )


@dataclass(frozen=True, kw_only=True)
class Cut(Record):
    """A level of performance.

    Attributes:
        label: what the level is called in score reports.
        from_score: lowest reported score of the level (``from`` in documents).
    """

    label: str = setting(line)
    from_score: float = setting(number(), key="from")


@dataclass(frozen=True, kw_only=True)
class ScoreScale(Record):
    """The reported scale, linear in ability: ``score = mean + sd * theta``, rounded and clipped.

    Attributes:
        mean: the score at theta = 0.
        sd: points of one unit of theta. On a bank whose population is N(0, 1) ``mean`` and ``sd``
            are those of the population.
        lowest: lowest reported score.
        highest: highest reported score.
        decimals: decimals of reported scores, 0 to 3; halves are rounded up.
        level: probability of the reported interval.
        show: what the test taker's report holds, some of `SHOWN`; nothing by default. An interval
            needs the score.
        below: label of the level below the first cut.
        topics: column of the bank's metadata with the topic of each item, where ``show`` has
            "topics".
        method: how the final ability is estimated from all scored answers, by `irtcat.score`:
            "eap", "map", "wle" or "ml".
    """

    mean: float = setting(number(), 0.0)
    sd: float = setting(number(above=0), 1.0)
    lowest: float = setting(number(), -4.0)
    highest: float = setting(number(), 4.0)
    decimals: int = setting(number(0, 3, whole=True), 2)
    level: float = setting(number(above=0, below=1), 0.95)
    show: tuple[str, ...] = setting(list_of(one_of(SHOWN), "words"), ())
    below: str = setting(line, "Below the first level")
    topics: str = setting(line, "topic")
    method: str = setting(one_of(SCORING), "eap")

    def faults(self) -> Iterator[Fault]:
        """What is wrong between the fields."""
        if self.lowest >= self.highest:
            yield Fault.of("highest", f"above `lowest` ({self.lowest:g})", self.highest)
        if len(set(self.show)) < len(self.show):
            yield Fault.of("show", "a list of words that differ", self.show)
        if "interval" in self.show and "score" not in self.show:
            yield Fault.of("show", "a list with score where it has interval", self.show)
        for name, score in (("lowest", self.lowest), ("highest", self.highest)):
            if not self.is_reportable(score):
                yield Fault.of(name, f"a score with at most {self.decimals} decimals", score)

    @property
    def step(self) -> float:
        """Difference between two adjacent reported scores."""
        return 10.0**-self.decimals

    def is_reportable(self, score: float) -> bool:
        """Whether a number has no more than the scale's decimals."""
        return abs(score - round(score, self.decimals)) < 1e-9 * max(1.0, abs(score))

    def exact_score(self, theta: Any) -> Any:
        """The score before it is rounded and clipped."""
        return self.mean + self.sd * np.asarray(theta, float)

    def reported_score(self, theta: Any) -> Any:
        """The reported score of an ability; NaN stays NaN.

        Example:
            >>> scale = ScoreScale(mean=500, sd=100, lowest=200, highest=800, decimals=0)
            >>> scale.reported_score([-0.505, 0.0, 9.0]).tolist()
            [450.0, 500.0, 800.0]
        """
        # The small term makes halves that are one bit too low round up as well.
        steps = np.floor(self.exact_score(theta) / self.step + 0.5 + 1e-9)
        return np.clip(np.round(steps * self.step, self.decimals), self.lowest, self.highest)

    def theta_at(self, score: float) -> float:
        """The lowest ability with this reported score: half a step below the score itself."""
        return (score - self.step / 2 - self.mean) / self.sd


@dataclass(frozen=True, kw_only=True)
class Rapid(Record):
    """Answers that are too fast to be a solution of the item; they are flagged, and scored.

    Attributes:
        seconds: an answer in less time is flagged.
        items: other times for single items: pairs of id and seconds, in documents a table.
    """

    seconds: float = setting(duration)
    items: tuple[tuple[str, float], ...] = setting(_seconds_by_item, ())

    def threshold(self, item: str) -> float:
        """The time below which an answer to this item is flagged.

        Example:
            >>> rapid = Rapid(seconds=3, items={"i7": 10})
            >>> rapid.threshold("i1"), rapid.threshold("i7")
            (3.0, 10.0)
        """
        return dict(self.items).get(item, self.seconds)

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON document."""
        return {"seconds": self.seconds, "items": dict(self.items)}


@dataclass(frozen=True, kw_only=True)
class Instructions(Record):
    """A page of text without items.

    Attributes:
        title: heading.
        text: the text, in Markdown. In a TOML file ``file`` may name a file that holds it.
    """

    kind: ClassVar[str] = "instructions"
    items: ClassVar[tuple[str, ...]] = ()
    title: str = setting(text, "")
    text: str = setting(text)

    def faults(self) -> Iterator[Fault]:
        """What is wrong between the fields."""
        if not self.text.strip():
            yield Fault.of("text", "a text that is not empty", self.text)


@dataclass(frozen=True, kw_only=True)
class Practice(Record):
    """Items to practise on: the answers are not scored, and there is no feedback.

    Attributes:
        items: ids of the items, which need not be in the bank.
        title: heading.
        time_limit: seconds for the section; None without a limit.
        item_time_limit: seconds for each item; None without a limit.
    """

    kind: ClassVar[str] = "practice"
    items: tuple[str, ...] = setting(ids)
    title: str = setting(text, "")
    time_limit: float | None = setting(optional(duration), None)
    item_time_limit: float | None = setting(optional(duration), None)

    def faults(self) -> Iterator[Fault]:
        """What is wrong between the fields."""
        if not self.items:
            yield Fault.of("items", "at least one id", self.items)


@dataclass(frozen=True, kw_only=True)
class Adaptive(Record):
    """Items chosen by the answers so far; an answer stands once it is given.

    Attributes:
        config: the rules, a `irtcat.cat.Config`; in documents a table of its fields.
        title: heading.
        time_limit: seconds for the section; None without a limit.
        item_time_limit: seconds for each item; None without a limit.
        allow_skip: whether an item may be skipped; the answer then counts as the lowest category.
        items: ids of the items to choose from. By default all items of the bank that no other
            section names.
        where: restricts these to items with certain values in columns of the bank's metadata, such
            as ``{ topic = ["algebra", "geometry"] }``; pairs of column and values.
        rapid: answers that are flagged as too fast; None for none.
    """

    kind: ClassVar[str] = "adaptive"
    config: Config = setting(_config)
    title: str = setting(text, "")
    time_limit: float | None = setting(optional(duration), None)
    item_time_limit: float | None = setting(optional(duration), None)
    allow_skip: bool = setting(flag, False)
    items: tuple[str, ...] = setting(ids, ())
    where: tuple[tuple[str, tuple[str, ...]], ...] = setting(_where, ())
    rapid: Rapid | None = setting(optional(record(Rapid)), None)

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON document."""
        return {**super().to_json(), "where": json_value(dict(self.where))}


@dataclass(frozen=True, kw_only=True)
class Fixed(Record):
    """The same items for all, in one order.

    Attributes:
        items: ids of the items, in their order.
        title: heading.
        time_limit: seconds for the section; None without a limit.
        item_time_limit: seconds for each item; None without a limit. Not together with ``review``.
        allow_skip: whether an item may be left without an answer.
        review: whether answers may be changed until the end of the section.
        scored: whether the answers enter the score; the items are then in the bank. Not, for
            example, in a questionnaire.
        unanswered: a scored item without an answer at the end of the section is "wrong" (the lowest
            category) or "missing" (ignored).
        rapid: answers that are flagged as too fast; None for none.
    """

    kind: ClassVar[str] = "fixed"
    items: tuple[str, ...] = setting(ids)
    title: str = setting(text, "")
    time_limit: float | None = setting(optional(duration), None)
    item_time_limit: float | None = setting(optional(duration), None)
    allow_skip: bool = setting(flag, True)
    review: bool = setting(flag, False)
    scored: bool = setting(flag, True)
    unanswered: str = setting(one_of(("wrong", "missing")), "wrong")
    rapid: Rapid | None = setting(optional(record(Rapid)), None)

    def faults(self) -> Iterator[Fault]:
        """What is wrong between the fields."""
        if not self.items:
            yield Fault.of("items", "at least one id", self.items)
        if self.review and self.item_time_limit is not None:
            must = "absent where `review` is true, since items are seen more than once"
            yield Fault.of("item_time_limit", must, self.item_time_limit)


@dataclass(frozen=True, kw_only=True)
class Break(Record):
    """A pause between sections, during which the clock of the whole test stops.

    Attributes:
        minutes: its length; afterwards the test continues by itself.
        title: heading.
        text: what the page says, in Markdown.
        may_end_early: whether the test taker may continue before the time is over.
    """

    kind: ClassVar[str] = "break"
    items: ClassVar[tuple[str, ...]] = ()
    minutes: float = setting(number(above=0, most=24 * 60))
    title: str = setting(text, "")
    text: str = setting(text, "")
    may_end_early: bool = setting(flag, True)

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return 60 * self.minutes


Section = Instructions | Practice | Adaptive | Fixed | Break

KINDS: dict[str, type[Section]] = {
    section.kind: section for section in (Instructions, Practice, Adaptive, Fixed, Break)
}
"""Kinds of sections by name."""


def _section(value: Any, where: str, faults: list[Fault]) -> Any:
    """Reads a section of any kind."""
    if isinstance(value, Section):
        return value
    if not isinstance(value, Mapping):
        raise Invalid("a table with a kind", value)
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        faults.append(
            Fault.of(f"{where}.kind", f"one of {', '.join(KINDS)}", kind)
            if "kind" in value
            else Fault(f"{where}.kind", f"The `{where}.kind` field is missing.")
        )
        return None
    document = {name: entry for name, entry in value.items() if name != "kind"}
    if kind == "adaptive" and "review" in document:
        must = "absent: in an adaptive section answers stand"
        faults.append(Fault.of(f"{where}.review", must, document.pop("review")))
    return read_record(KINDS[kind], document, where, faults)


@dataclass(frozen=True, kw_only=True)
class Accommodations(Record):
    """Accommodations that a person may be granted.

    Attributes:
        allowed: some of `ACCOMMODATIONS`.
    """

    allowed: tuple[str, ...] = setting(list_of(one_of(ACCOMMODATIONS), "accommodations"), ())

    def faults(self) -> Iterator[Fault]:
        """What is wrong between the fields."""
        if len(set(self.allowed)) < len(self.allowed):
            yield Fault.of("allowed", "a list of words that differ", self.allowed)


LEAST_ABANDONED = 3600.0
"""Seconds after which an attempt may be abandoned at the earliest."""

MOST_ABANDONED = 1000 * 365.25 * 24 * 3600.0
"""Seconds after which it is abandoned at the latest; Python's dates end in the year 9999."""


@dataclass(frozen=True, kw_only=True)
class TestDefinition(Record):
    """A test: its sections, times, rules, and the scale of its scores.

    Documents (TOML or JSON) have the same fields. Times are seconds, or text such as "45 min".

    Attributes:
        title: name of the test.
        sections: the sections in their order; at least one is adaptive, or fixed and scored.
        version: version of the test, chosen by its authors.
        language: language of the content, a BCP 47 tag. The pages are shown in it where they are
            translated, else in English.
        description: what the test is about; one line for administrators and the start page.
        bank: the item bank: a file beside the definition, or the SHA-256 of a stored bank.
        items: the items' content: a folder, table or QTI package beside the definition.
        time_limit: seconds for the whole test without breaks; None without a limit. Sections may
            have limits too; the first to pass ends the section.
        time_warnings: seconds before the end of a time limit at which the test taker is warned;
            those that a limit does not reach are not shown.
        score: the reported scale.
        cuts: levels of performance, from the lowest to the highest.
        accommodations: those that a person may be granted.
        abandoned_after: seconds without an answer or another step after which an attempt is
            abandoned: it ends, and the answers so far are scored. At least an hour, at
            most 1,000 years; a pause by staff does not count. Time limits end an attempt earlier.
        raters: people who score each response that no key scores: 1, or 2 who do not see each
            other's score, and a third one where they differ.

    Example:
        >>> definition = TestDefinition(
        ...     title="Algebra",
        ...     time_limit="30 min",
        ...     score=ScoreScale(mean=500, sd=100, lowest=200, highest=800, decimals=0),
        ...     cuts=[Cut(label="Basic", from_score=450)],
        ...     sections=[Adaptive(config=Config(stopping="se<0.3 or n>=20"))],
        ... )
        >>> definition.time_limit, definition.sections[0].kind
        (1800.0, 'adaptive')
        >>> TestDefinition.from_json(definition.to_json()) == definition
        True
    """

    __test__: ClassVar[bool] = False  # not a class of tests, whatever its name suggests to pytest

    title: str = setting(line)
    sections: tuple[Section, ...] = setting(list_of(_section, "sections"))
    version: str = setting(line, "1")
    language: str = setting(_language, "en")
    description: str = setting(text, "")
    bank: str = setting(text, "")
    items: str = setting(text, "")
    time_limit: float | None = setting(optional(duration), None)
    time_warnings: tuple[float, ...] = setting(list_of(duration, "times"), (300.0, 60.0))
    score: ScoreScale = setting(record(ScoreScale), ScoreScale())
    cuts: tuple[Cut, ...] = setting(list_of(record(Cut), "cuts"), ())
    accommodations: Accommodations = setting(record(Accommodations), Accommodations())
    abandoned_after: float = setting(duration, 7 * 24 * 3600.0)
    raters: int = setting(number(1, 2, whole=True), 2)

    def faults(self) -> Iterator[Fault]:
        """What is wrong between the fields."""
        yield from self._cut_faults()
        if self.abandoned_after < LEAST_ABANDONED:
            must = "at least an hour: an essay takes long without a step"
            yield Fault.of("abandoned_after", must, self.abandoned_after)
        if self.abandoned_after > MOST_ABANDONED:
            must = "at most 1,000 years: dates end in the year 9999"
            yield Fault.of("abandoned_after", must, self.abandoned_after)
        if not self.scored_sections:
            must = "a list with an adaptive section, or a fixed one whose answers are scored"
            yield Fault.of("sections", must, [section.kind for section in self.sections])
        first: dict[str, int] = {}
        for at, section in enumerate(self.sections, start=1):
            for item in section.items:
                if item in first:
                    must = f"ids that no other section has (section {first[item]} has it too)"
                    yield Fault.of(f"sections[{at}].items", must, item)
                first.setdefault(item, at)

    def _cut_faults(self) -> Iterator[Fault]:
        scale, last = self.score, self.score.lowest
        for at, cut in enumerate(self.cuts, start=1):
            name = f"cuts[{at}].from"
            if not scale.lowest < cut.from_score <= scale.highest:
                must = f"above {scale.lowest:g} and at most {scale.highest:g}, the reported scores"
                yield Fault.of(name, must, cut.from_score)
            elif cut.from_score <= last and at > 1:
                must = f"above that of the cut before ({last:g})"
                yield Fault.of(name, must, cut.from_score)
            if not scale.is_reportable(cut.from_score):
                must = f"a score with at most {scale.decimals} decimals, as `score.decimals` says"
                yield Fault.of(name, must, cut.from_score)
            last = max(last, cut.from_score)
        labels = [scale.below, *(cut.label for cut in self.cuts)]
        repeated = sorted({label for label in labels if labels.count(label) > 1})
        if repeated:
            yield Fault.of("cuts", "levels with labels that differ", repeated)
        if "level" in scale.show and not self.cuts:
            must = "a list without level, since there are no cuts"
            yield Fault.of("score.show", must, scale.show)

    @property
    def scored_sections(self) -> tuple[Adaptive | Fixed, ...]:
        """The sections whose answers enter the score."""
        return tuple(
            section
            for section in self.sections
            if isinstance(section, Adaptive) or (isinstance(section, Fixed) and section.scored)
        )

    @property
    def adaptive(self) -> dict[int, Adaptive]:
        """The adaptive sections by their positions from 0."""
        return {at: it for at, it in enumerate(self.sections) if isinstance(it, Adaptive)}

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the levels, from the lowest; one more than there are cuts."""
        return (self.score.below, *(cut.label for cut in self.cuts))

    @property
    def cut_thetas(self) -> tuple[float, ...]:
        """The lowest ability of each level above the first, given how scores are rounded."""
        return tuple(self.score.theta_at(cut.from_score) for cut in self.cuts)

    def to_json(self) -> dict[str, Any]:
        """The definition as a JSON document with all fields; `from_json` reads it."""
        document = super().to_json()
        document["sections"] = [{"kind": part.kind, **part.to_json()} for part in self.sections]
        return document

    def hash(self) -> str:
        """SHA-256 of the definition, in hexadecimal."""
        return json_hash(self)

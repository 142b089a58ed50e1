"""Progress of an attempt: what its log says, and the time that is left. No database, no engine."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from irtcat.cat.live import Event
from irtcat.service.definition import (
    Adaptive,
    Break,
    Fixed,
    Practice,
    Section,
    TestDefinition,
    time_factor,
)

COMPLETED, TIME_LIMIT, ABANDONED, BY_STAFF = "completed", "time limit", "abandoned", "by staff"
"""Reasons why an attempt is finished."""


@dataclass(frozen=True)
class Answer:
    """The answer to an item.

    Attributes:
        response: the response in its normal form; None for an item left out.
        code: its category; None while people have to score it.
        seconds: time that the item was shown until then.
        section: position of its section.
        at: when it was given, in UTC.
    """

    response: Any
    code: int | None
    seconds: float
    section: int
    at: str


@dataclass(frozen=True)
class Remaining:
    """Seconds left; infinite without a limit.

    Attributes:
        test: for the whole test.
        section: for the section (for a break: until it ends).
        item: for the item that is shown.
    """

    test: float
    section: float
    item: float

    def expired(self, grace: float = 0.0) -> str:
        """The widest limit that has passed: "test", "section" or "item"; empty if none has.

        With a ``grace`` it passed at least so many seconds ago.
        """
        return next((scope for scope, left in vars(self).items() if left <= -grace), "")


@dataclass
class Progress:
    """What the log of an attempt says.

    Events are applied in their order; time counts only while the attempt is running, and in a break
    only towards its end.

    Attributes:
        definition: the test.
        accommodations: of this person.
        status: "running", "paused", "finished" or "void".
        reason: why it finished or was voided.
        paused_by: who paused it last.
        section: position of the current section; -1 before the first.
        session: id of the session of the current adaptive section.
        items: items of the current section in the order in which they were shown.
        current: the item that is shown; None for a page without one.
        answers: the answers by item.
        flagged: items that the taker marked for review.
        number: position of every item in the attempt, from 1, by which the taker knows it.
        requests: ids of requests that were carried out.
        last: time stamp of the last event.
        finished: time stamp of the end; notes and ratings come later.
    """

    definition: TestDefinition
    accommodations: tuple[str, ...] = ()
    status: str = "running"
    reason: str = ""
    paused_by: str = ""
    section: int = -1
    session: str = ""
    sessions: dict[int, str] = field(default_factory=dict)
    items: list[str] = field(default_factory=list)
    current: str | None = None
    answers: dict[str, Answer] = field(default_factory=dict)
    flagged: set[str] = field(default_factory=set)
    number: dict[str, int] = field(default_factory=dict)
    requests: set[str] = field(default_factory=set)
    ended: dict[int, str] = field(default_factory=dict)
    last: str | None = None
    finished: str | None = None
    used_test: float = 0.0
    used_section: float = 0.0
    used_by_item: dict[str, float] = field(default_factory=dict)
    extra_test: float = 0.0
    extra_section: float = 0.0

    @property
    def part(self) -> Section | None:
        """The current section; None before the first and after the last."""
        inside = 0 <= self.section < len(self.definition.sections)
        return self.definition.sections[self.section] if inside else None

    @property
    def is_over(self) -> bool:
        """Whether the attempt is finished or void."""
        return self.status in ("finished", "void")

    def apply(self, event: Event) -> None:
        """Apply the next event of the log."""
        if (event["kind"], event.get("reason")) != ("finish", ABANDONED):
            self._count(float(event["elapsed"]))  # nobody took the test after the last step
        self.last = event["at"]
        if "request" in event:
            self.requests.add(event["request"])
        action = getattr(self, f"_{event['kind']}", None)
        if action is not None:
            action(event)

    def _count(self, seconds: float) -> None:
        """Count time that passed before an event."""
        if self.status != "running" or self.section < 0:
            return
        self.used_section += seconds
        if isinstance(self.part, Break):
            return
        self.used_test += seconds
        if self.current is not None:
            self.used_by_item[self.current] = self.used_by_item.get(self.current, 0.0) + seconds

    def _section(self, event: Event) -> None:
        self.section, self.current, self.items = int(event["section"]), None, []
        self.used_section = self.extra_section = 0.0
        self.session = event.get("session", "")
        if self.session:
            self.sessions[self.section] = self.session

    def _show(self, event: Event) -> None:
        self.current = event["item"]
        if self.current is not None and self.current not in self.items:
            self.items.append(self.current)
            self.number.setdefault(self.current, len(self.number) + 1)

    def _answer(self, event: Event) -> None:
        response, code, seconds = (event[name] for name in ("response", "code", "seconds"))
        self.answers[event["item"]] = Answer(response, code, seconds, self.section, event["at"])

    def _flag(self, event: Event) -> None:
        (self.flagged.add if event["flagged"] else self.flagged.discard)(event["item"])

    def _timeout(self, event: Event) -> None:
        if event["scope"] in ("section", "test"):
            self.ended[self.section] = TIME_LIMIT

    def _pause(self, event: Event) -> None:
        self.status, self.paused_by = "paused", event["actor"]

    def _resume(self, _: Event) -> None:
        self.status = "running"

    def _extend(self, event: Event) -> None:
        self.extra_test += event["seconds"]
        self.extra_section += event["seconds"]

    def _finish(self, event: Event) -> None:
        self.status, self.reason, self.current = "finished", event["reason"], None
        self.finished = event["at"]

    def _void(self, event: Event) -> None:
        self.status, self.reason = "void", event["reason"]

    def _reopen(self, event: Event) -> None:
        self.status, self.reason, self.finished = "running", "", None
        # Else the time until somebody noticed that a limit had passed would use up the new one.
        test, section = self.definition.time_limit, getattr(self.part, "time_limit", None)
        self.used_test = min(self.used_test, self._limit(test) + self.extra_test)
        self.used_section = min(self.used_section, self._limit(section) + self.extra_section)
        self._extend(event)

    def _rating(self, event: Event) -> None:
        self.answers[event["item"]] = replace(self.answers[event["item"]], code=event["code"])

    def remaining(self, seconds: float, item_limits: Mapping[str, float | None]) -> Remaining:
        """Time left.

        ``seconds`` have passed since the last event.
        """
        part = self.part
        if part is None or self.is_over:
            return Remaining(math.inf, math.inf, math.inf)
        passed = seconds if self.status == "running" else 0.0
        test = self._limit(self.definition.time_limit) + self.extra_test - self.used_test
        if isinstance(part, Break):
            return Remaining(test, part.seconds - self.used_section - passed, math.inf)
        section = item = None
        if isinstance(part, (Adaptive, Fixed, Practice)):
            section = part.time_limit
            if self.current is not None:
                item = part.item_time_limit or item_limits.get(self.current)
        used_on_item = self.used_by_item.get(self.current or "", 0.0)
        return Remaining(
            test=test - passed,
            section=self._limit(section) + self.extra_section - self.used_section - passed,
            item=self._limit(item) - used_on_item - passed,
        )

    def _limit(self, seconds: float | None) -> float:
        """A time limit with this person's accommodations."""
        factor = time_factor(self.accommodations)
        return math.inf if seconds is None or math.isinf(factor) else seconds * factor

    def seconds_on(self, item: str, seconds: float) -> float:
        """Time that an item was shown so far, given the time since the last event."""
        shown = seconds if self.current == item and self.status == "running" else 0.0
        return self.used_by_item.get(item, 0.0) + shown

    def stands(self, item: str) -> bool:
        """Whether the answer to an item can no longer be changed."""
        reviewed = self.to_review() and self.answers[item].section == self.section
        return self.is_over or not reviewed

    def to_review(self) -> bool:
        """Whether answers of the current section may be changed until its end."""
        return isinstance(self.part, Fixed) and self.part.review

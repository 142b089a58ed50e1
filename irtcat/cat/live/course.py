"""Course of a session: the events of its log, and the state that follows from them.

The rules decide which events follow from an answer; the items asked are those of the log, even
where another version of the rules would ask other ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from irtcat._common.checks import InputError, argument_error, brief, shorten
from irtcat._common.clock import Clock, Stopwatch, is_duration, system_clock
from irtcat._common.precision import precision
from irtcat.bank import ItemBank
from irtcat.cat.belief.state import NONE, RELAXED, CatState, Pool
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import check_prepared, start, step
from irtcat.cat.engine.preparation import prepare
from irtcat.cat.live.log import Event, field_fault
from irtcat.cat.rules.exposure import cell_of, cuts_in
from irtcat.cat.rules.stopping import reasons, single_rules
from irtcat.models import item_categories


class Course:
    """What has happened in a session: the mechanics of `irtcat.cat.Session`.

    Attributes:
        id: the session's id.
        bank: the frozen bank.
        config: the frozen configuration.
        head: what was fixed when the session began.
        pool: the bank as returned by `prepare`, with the counts of exposure of the head.
        state: the current `CatState`.
        events: the log so far.
    """

    def __init__(
        self,
        bank: ItemBank,
        config: Config,
        head: Mapping[str, Any],
        pool: Pool | None = None,
        clock: Clock = system_clock,
    ):
        if pool is None:
            pool = prepare(bank, config)
        check_prepared(pool, config)
        self.bank, self.config, self.head = bank, config, dict(head)
        self.id = str(head["id"])
        self.pool = pool.with_counts(head.get("counts"))
        self._positions = {name: i for i, name in enumerate(bank.item_ids.tolist())}
        self._categories = item_categories(bank.model)
        self.state = start(self.pool, config, head["prior"], None, int(head["seed"]))
        self.events: list[Event] = []
        self._pending: dict[str, Event] = {}
        self._answered: dict[str, int] = {}
        self._next: CatState | None = None
        self._stopwatch = Stopwatch(clock)

    @property
    def asked(self) -> list[str]:
        """Ids of the items asked and not yet answered, in order."""
        if self.is_over:
            return []
        return [item for item in self._ids(self.state) if item not in self._pending]

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""
        return bool(self.events) and self.events[-1]["kind"] == "stop"

    @property
    def reason(self) -> str:
        """Name of the stopping rule that ended the session; empty while it is running."""
        return str(self.events[-1]["reason"]) if self.is_over else ""

    def _events_of(self, item: str, value: Any, seconds: float | None = None) -> list[Event]:
        """The events that follow from an answer, checked but not yet applied to the session.

        The state after all items asked are answered is kept for `_apply`.
        """
        item = str(item)
        code = self._code(item, value)
        if seconds is not None and not is_duration(seconds):
            raise argument_error("seconds", "a finite number, not negative", seconds)
        if item in self._answered:
            if self._answered[item] == code:
                return []
            earlier = f"which was answered with {self._bank_code(item)!r}"
            got = f"{shorten(value)} for {brief(item)}, {earlier}"
            raise InputError(f"The `value` argument must be the answer given before. Got {got}.")
        if item not in self.asked:
            asked = shorten(self.asked) if self.asked else "none, since the session is over"
            raise argument_error("item", f"an item that was asked ({asked})", item)
        stamp = self._stopwatch.stamp(self.events[-1]["at"])
        duration = stamp["elapsed"] if seconds is None else float(seconds)
        events: list[Event] = [
            {"kind": "answer", "item": item, "code": code, "seconds": duration, **stamp}
        ]
        if self.asked == [item]:
            self._next = self._state_after({**self._pending, item: events[0]})
            follows = self._asking(self._next)
            if ended := int(self._next.stop):
                follows = [{"kind": "stop", "reason": reasons(self.config.stopping)[ended - 1]}]
            events += self._stamped(follows, stamp["at"])
        return events

    def _stamped(self, events: list[Event], last: str | None) -> list[Event]:
        """Add time stamps to events that follow an event with the time stamp ``last``."""
        out = []
        for event in events:
            out.append({**event, **self._stopwatch.stamp(last)})
            last = out[-1]["at"]
        return out

    def _state_after(self, answers: Mapping[str, Event]) -> CatState:
        """The state once all items asked are answered."""
        ids = self._ids(self.state)
        codes = np.full(self.config.batch, NONE, np.int32)
        codes[: len(ids)] = [answers[item]["code"] for item in ids]
        seconds = sum(answers[item]["seconds"] for item in ids)
        return step(self.pool, self.config, self.state, codes, seconds)

    def _asking(self, state: CatState) -> list[Event]:
        """The event of asking the items of a state, and an "infeasible" one if rules were relaxed.

        With a conditional exposure rule the first holds the cell.
        """
        items = self._ids(state)
        event: Event = {"kind": "ask", "items": items}
        cuts = cuts_in(self.config.exposure)
        if cuts:
            event["cell"] = int(cell_of(float(state.theta), cuts))
        marks = 0 if state.relaxed is None else np.asarray(state.relaxed)[int(state.n) :]
        code = int(np.bitwise_or.reduce(np.atleast_1d(marks)[: len(items)]))
        rules = [name for name, bit in RELAXED.items() if code & bit]
        return [event, {"kind": "infeasible", "items": items, "rules": rules}] if rules else [event]

    def _first_events(self) -> list[Event]:
        """The events of asking the first items."""
        return self._stamped(self._asking(self.state), self.head["started"])

    def _apply(self, event: Event) -> None:
        """Apply an event of the log to the state."""
        if event["kind"] == "answer":
            self._pending[event["item"]] = event
            self._answered[event["item"]] = event["code"]
        elif event["kind"] != "infeasible":  # the relaxed rules follow from the other events
            state = self.state
            if self.events:
                state = self._state_after(self._pending) if self._next is None else self._next
                self._pending = {}
            self._next, self.state = None, self._as_logged(state, event)
        self.events.append(event)

    def _forget(self) -> None:
        """Forget the events that `_events_of` returned and that were not applied."""
        self._next = None

    def _relaxed(self) -> dict[str, list[str]]:
        """The items that were asked against a kind of rules, by the kind."""
        marks = [event for event in self.events if event["kind"] == "infeasible"]
        asked = {
            name: [item for mark in marks if name in mark["rules"] for item in mark["items"]]
            for name in RELAXED
        }
        return {name: items for name, items in asked.items() if items}

    def _as_logged(self, state: CatState, event: Event) -> CatState:
        """The state with the items of the log asked, even if the engine would choose other ones."""
        if event["kind"] == "stop" or self._ids(state) == event["items"]:
            return state
        with precision("float64"):
            administered = np.array(state.administered)
            administered[[i for i in np.asarray(state.asked) if i >= 0]] = False
            asked = np.full(self.config.batch, NONE, np.int32)
            positions = [self._positions[item] for item in event["items"]]
            asked[: len(positions)] = positions
            administered[positions] = True
            stop = jnp.zeros_like(state.stop)
            return state._replace(
                asked=jnp.asarray(asked), administered=jnp.asarray(administered), stop=stop
            )

    def _ids(self, state: CatState) -> list[str]:
        return [str(self.bank.item_ids[i]) for i in np.asarray(state.asked) if i >= 0]

    def _code(self, item: str, value: Any) -> int:
        """An answer as a category from 0; -1 for none."""
        if item not in self._positions:
            raise argument_error("item", "an item of the bank", item)
        if value is None:
            return NONE
        low, n = self.bank.first_code, int(self._categories[self._positions[item]])
        number = isinstance(value, (int, float, np.integer, np.floating, np.bool_))
        if not number or not low <= value < low + n or value != int(value):
            must = f"a whole number from {low} to {low + n - 1} for {brief(item)}"
            raise argument_error("value", must, value)
        return int(value) - low

    def _bank_code(self, item: str) -> int | None:
        """The answer to an item in the codes of the bank; None where it was skipped."""
        code = self._answered[item]
        return None if code == NONE else code + self.bank.first_code

    def apply_events(self, events: Sequence[Event]) -> None:
        """Apply further events of the log to the session.

        Raises:
            InputError: for an event that cannot follow those before it.
        """
        for event in events:
            fault = field_fault(event) or self._fault(event)
            if fault:
                name = f"Event {len(self.events)} of session {shorten(self.head['id'])}"
                raise InputError(f"{name} {fault}. Got {shorten(event)}.")
            self._apply(dict(event))

    def _fault(self, event: Event) -> str:
        """The reason why an event cannot follow the log so far; empty if it can."""
        kind, asked = event["kind"], self.asked if self.events else []
        if self.is_over:
            return "follows the end"
        if kind == "answer":
            item, code = event["item"], event["code"]
            if item not in asked:
                return "answers an item that is not asked"
            valid = NONE <= code < int(self._categories[self._positions[item]])
            return "" if valid else f"has an answer that {item} does not have"
        if kind == "infeasible":
            previous = self.events[-1] if self.events else {}
            follows = previous.get("kind") == "ask" and previous["items"] == event["items"]
            return "" if follows else "does not follow the asking of its items"
        if asked:
            return f"comes before the answer to {asked[0]}"
        if kind == "stop":
            return self._stop_fault(event["reason"])
        items, cells = event["items"], len(cuts_in(self.config.exposure)) + 1
        if set(items) - self._positions.keys():
            return "asks an item that is not in the bank"
        if len(set(items)) < len(items) or self._answered.keys() & set(items):
            return "asks an item twice"
        if len(items) > self.config.batch:
            return f"asks more than {self.config.batch} items at a time"
        if len(items) + len(self._answered) > self.config.total_items:
            return f"asks more than {self.config.total_items} items"
        valid = 0 <= event.get("cell", -1) < cells if cells > 1 else "cell" not in event
        return "" if valid else "has a cell that the exposure rule does not have"

    def _stop_fault(self, reason: str) -> str:
        """Why a session cannot end now for this reason (checked by counts); empty if it can."""
        if not self.events:
            return "ends before anything is asked"
        if reason not in reasons(self.config.stopping):
            return "ends by a rule that the configuration does not have"
        state = self._state_after(self._pending)
        least, count = self.config.min_items, int(state.scored)
        if reason == "max_items":
            least, count = self.config.max_items, int(state.n)
        elif reason == "no item left":
            least = 0
        elif reason == "length":
            lengths = [r.get("at") for r in single_rules(self.config.stopping) if r.name == reason]
            least = max(least, min((at for at in lengths if isinstance(at, int)), default=0))
        if count < least:
            return f"ends after {count} answers, before {least}"
        self._next = state
        return ""

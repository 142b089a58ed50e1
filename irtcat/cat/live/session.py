"""Session: one live adaptive test, stored as a log of events that determines its state.

Only the log is stored: "ask" events hold the items asked, "answer" events the answers, a "stop"
event the end; an "infeasible" event after an "ask" names the rules that were relaxed. Every event
has its time in UTC (``at``) and the seconds since the previous event (``elapsed``). The state is
rebuilt from the log by the same `step` as in simulations. A session without a store is kept in
memory and serialised as JSON; with one (`irtcat.cat.Store`) every event is on disk before `answer`
returns.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from irtcat._common.checks import (
    InputError,
    argument_error,
    brief,
    check_count,
    check_id,
    check_interval,
    shorten,
)
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._files.json import json_value
from irtcat.bank import ItemBank, as_bank, numbered
from irtcat.cat.belief.pool import Counts, Pool
from irtcat.cat.belief.priors import frozen_prior, prior_note
from irtcat.cat.belief.state import CONTENT_RELAXED, EXPOSURE_RELAXED, NONE, CatState
from irtcat.cat.engine.arguments import check_prepared, checked_bank
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import context_of, start, step
from irtcat.cat.engine.exposure_parameters import ExposureParameters, session_counts
from irtcat.cat.engine.plan import ContentPlan, content_plan
from irtcat.cat.engine.preparation import prepare
from irtcat.cat.live.explanation import explain
from irtcat.cat.live.full_score import (
    GUARANTEED,
    FullScore,
    score_by_bank,
    score_by_bets,
    score_by_prediction,
)
from irtcat.cat.live.log import (
    HEAD,
    SESSION,
    Clock,
    Event,
    Key,
    Stopwatch,
    as_key,
    document_digest,
    field_fault,
    is_digest,
    is_duration,
    system_clock,
    utc_text,
)
from irtcat.cat.live.status import SessionStatus
from irtcat.cat.rules.exposure import blank_counts, cell_of, cuts_in
from irtcat.cat.rules.stopping import STOPPING, score_moments, single_rules
from irtcat.cat.studies.report import Report
from irtcat.models import item_categories
from irtcat.responses import Responses

RELAXED = {"content": CONTENT_RELAXED, "exposure": EXPOSURE_RELAXED}
"""Kinds of rules that an "infeasible" event names."""


class Session:
    """A live adaptive test.

    Created by `Session.begin` (in memory), `irtcat.cat.Store.begin` (on disk), `Session.from_json`
    or `irtcat.cat.Store.resume`.

    Attributes:
        id: the session's id.
        bank: the frozen bank.
        config: the frozen configuration.
        state: the current `CatState`.
        events: the log so far.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0, 1.0], b=[-1.0, 0.1, 1.0])
        >>> session = Session.begin(bank, Config(max_items=2))
        >>> session.asked
        ['i2']
        >>> session.answer("i2", 1)
        ['i3']
        >>> session.answer("i3", 0)
        []
        >>> session.is_over, session.reason
        (True, 'length')
    """

    def __init__(
        self,
        bank: ItemBank,
        config: Config,
        head: Mapping[str, Any],
        pool: Pool | None = None,
        clock: Clock = system_clock,
    ):
        self.bank, self.config = bank, config
        self.id = str(head["id"])
        self.head = dict(head)
        self._pool = prepare(bank, config) if pool is None else pool
        counts = head.get("counts")
        if counts is not None:
            with precision("float64"):
                frozen_counts = Counts(
                    *(jnp.asarray(np.asarray(values, float)) for values in counts)
                )
            self._pool = self._pool._replace(counts=frozen_counts)
        self._positions = {name: i for i, name in enumerate(bank.item_ids.tolist())}
        self._first_code = bank.first_code
        self._categories = item_categories(bank.model)
        self.state = start(self._pool, config, head["prior"], None, int(head["seed"]))
        self.events: list[Event] = []
        self._pending: dict[str, Event] = {}
        self._answered: dict[str, Any] = {}
        self._stopwatch = Stopwatch(clock)

    @classmethod
    def begin(
        cls,
        bank: ItemBank,
        config: Config,
        seed: int = 0,
        prior: Any = None,
        session_id: str = "session",
        subject: str = "",
        counts: Counts | ExposureParameters | None = None,
        pool: Pool | None = None,
        clock: Clock = system_clock,
    ) -> "Session":
        """Begin a session in memory.

        Args:
            bank: calibrated items.
            config: the configuration.
            seed: seed of the session's randomness.
            prior: mean and SD of this subject's prior, or a `Population`, such as that of the
                subject's group (``bank.populations["B"]``); by default the bank's population. A
                density or mixture is the prior as it is (`Population.log_density`). With several
                abilities the means, and the SDs or the covariance matrix; there a mixture counts
                as the Normal with its mean and covariance, as `flags` says of the bank's.
            session_id: its id; not empty and without control characters (likewise ``subject``).
            subject: id of the subject; empty by default.
            counts: exposure so far; for the rule "sympson-hetter" the parameters of
                `calibrate_exposure`. Required by exposure rules that use them.
            pool: the bank as returned by `prepare`, to save time if many sessions begin.
            clock: returns the time in UTC and the seconds of a monotonic clock; for tests.

        Returns:
            The session, with its first item asked.

        Raises:
            InputError: as `prepare` does, or for an invalid id, seed, prior or counts.
        """
        bank = checked_bank(bank, config)
        if pool is not None:
            check_prepared(pool, config)
        checked = session_counts(bank, config, counts)
        started = utc_text(clock()[0])
        head = head_of(bank, config, seed, prior, session_id, subject, checked, started)
        session = cls(bank, config, head, pool, clock)
        for event in session.first_events():
            session._apply(event)
        return session

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

    def __repr__(self) -> str:
        state = f"over ({self.reason})" if self.is_over else f"asks {', '.join(self.asked)}"
        return f"Session({self.id}, {len(self._answered)} answers, {state})"

    def answer(self, item: str, value: Any, seconds: float | None = None) -> list[str]:
        """Record the answer to an item asked.

        Args:
            item: its id.
            value: the answer, in the codes of the bank (0 and 1 for right/wrong items); None if the
                item was skipped.
            seconds: time taken, which the rule "time" sums. By default it is measured from asking
                the items, or from the previous answer in a batch, by the monotonic clock of the
                process; if another process asked, it is the difference of the times in UTC.

        Returns:
            Ids of the items to be answered next; empty when the session is over. For a session
            of a store, the answer is on disk when this returns.

        Raises:
            InputError: for an item that was not asked, an invalid answer, or an answer that differs
                from the recorded one. Repeating the same answer changes nothing.
        """
        for event in self.events_of(item, value, seconds):
            self._apply(event)
        return self.asked

    def events_of(self, item: str, value: Any, seconds: float | None = None) -> list[Event]:
        """The events that follow from an answer, checked but not yet applied to the session."""
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
            follows = self._events_after(self._state_after({**self._pending, item: events[0]}))
            events += self._stamped(follows, stamp["at"])
        return events

    def _stamped(self, events: list[Event], last: str | None) -> list[Event]:
        """Add time stamps to events that follow an event with the time stamp ``last``."""
        out = []
        for event in events:
            out.append({**event, **self._stopwatch.stamp(last)})
            last = out[-1]["at"]
        return out

    def restart_timer(self) -> None:
        """Measure the time of the next answer from now, not from when its item was asked.

        For a program that repeats the question after an interruption.
        """
        self._stopwatch.restart(self.events[-1]["at"])

    def _state_after(self, answers: Mapping[str, Event]) -> CatState:
        """The state once all items asked are answered."""
        ids = self._ids(self.state)
        codes = np.full(self.config.batch, NONE, np.int32)
        codes[: len(ids)] = [answers[item]["code"] for item in ids]
        seconds = sum(answers[item]["seconds"] for item in ids)
        return step(self._pool, self.config, self.state, codes, seconds)

    def _events_after(self, state: CatState) -> list[Event]:
        """Events after all items asked are answered; stores the state for `_apply`."""
        self._next = state
        if int(state.stop) > 0:
            return [{"kind": "stop", "reason": self._reasons()[int(state.stop) - 1]}]
        return self.asking(state)

    def asking(self, state: CatState) -> list[Event]:
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

    def first_events(self) -> list[Event]:
        """The events of asking the first items."""
        return self._stamped(self.asking(self.state), self.head["started"])

    def _reasons(self) -> list[str]:
        return [
            *(rule.name for rule in single_rules(self.config.stopping)),
            "max_items",
            "no item left",
        ]

    def _apply(self, event: Event) -> None:
        """Apply an event of the log to the state; the items asked are those of the log."""
        if event["kind"] == "answer":
            self._pending[event["item"]] = event
            self._answered[event["item"]] = event["code"]
        elif event["kind"] == "infeasible":
            pass  # the state follows from the other events
        elif self.events:
            state = self.__dict__.pop("_next", None)
            if state is None:
                state = self._state_after(self._pending)
            self._pending = {}
            self.state = self._as_logged(state, event)
        else:
            self.state = self._as_logged(self.state, event)
        self.events.append(event)

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
        low, n = self._first_code, int(self._categories[self._positions[item]])
        number = isinstance(value, (int, float, np.integer, np.floating, np.bool_))
        if not number or not low <= value < low + n or value != int(value):
            must = f"a whole number from {low} to {low + n - 1} for {brief(item)}"
            raise argument_error("value", must, value)
        return int(value) - low

    def _bank_code(self, item: str) -> int | None:
        code = self._answered[item]
        return None if code == NONE else code + self._first_code

    def estimate(self) -> dict[str, Any]:
        """The current estimates.

        Returns:
            ``theta`` and ``se`` (lists with several abilities); ``n_items``; ``score`` and
            ``score_sd``, the mean score on the whole bank (0 to 1) expected from its curves (see
            `full_score`, which can also use calibration responses); with a classification rule
            ``category`` (0 below the first cut; None while undecided); and with the rule
            "guaranteed" a list of score, lower, upper and level, as `full_score` returns them.
        """
        with precision("float64"):
            context = context_of(self._pool, self.config, self.state)
            mean, variance = _predicted(self._pool, self.config, self.state)
            out: dict[str, Any] = {
                "theta": np.asarray(self.state.theta, float).tolist(),
                "se": np.asarray(self.state.se, float).tolist(),
                "n_items": int(self.state.n),
                "score": float(mean),
                "score_sd": float(np.sqrt(max(float(variance), 0.0))),
            }
            for rule in single_rules(self.config.stopping):
                if STOPPING[rule.name].classifies:
                    category = int(STOPPING[rule.name].function(context, **rule.kwargs()))
                    out["category"] = None if category < 0 else category
                if STOPPING[rule.name].needs_draws:
                    level = float(rule.get("level", 0.95))
                    assert self.state.bets is not None  # such a configuration has them
                    outcome = score_by_bets(self.state.bets, GUARANTEED, level)
                    score = outcome.score if np.isfinite(outcome.score) else None
                    out[GUARANTEED] = [score, outcome.lower, outcome.upper, level]
        return out

    def full_score(
        self,
        calibration: Responses | None = None,
        *,
        estimator: str | None = None,
        level: float = 0.95,
        mismatch: str = "refuse",
        estimand: str | None = None,
        reruns: Any = None,
    ) -> FullScore:
        """The estimated score on the full benchmark, with its interval.

        With the responses of calibrated subjects it is predicted as by `irtcat.predict`, with the
        same default estimator and the expectation of the rules (`Config.expect`). Without them it
        is the mean under the bank's curves, which takes the bank as the truth, with a Normal
        interval and no rank; ``estimator`` is then "bank". A session of `Config.guaranteed` has the
        estimator "guaranteed" by default, with and without calibration.

        Args:
            calibration: responses of the calibrated subjects to all items of the bank.
            estimator: one of `irtcat.predict`'s; by default "guaranteed" for a session of
                `Config.guaranteed`, else "auto". Without ``calibration`` only "guaranteed" and
                "design-based" are used.
            level: probability of the interval.
            mismatch: as for `irtcat.predict`: whether ``calibration`` may have been answered under
                other conditions than the bank's items.
            estimand: whose score and rank, as for `irtcat.predict`. Without ``calibration`` only
                "run" (or None): the bank's curves and the drawn items give the score of this run.
            reruns: what is known of reruns, as for `irtcat.predict`.

        Returns:
            Score, interval, rank, and how they were estimated.

        Raises:
            InputError: for a level outside (0, 1), or as `irtcat.predict` does.

        Example:
            >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
            >>> session = Session.begin(bank, Config(max_items=3))
            >>> while not session.is_over:
            ...     _ = session.answer(session.asked[0], 1)
            >>> print(session.full_score())
            70.7% (95% interval 45.5% to 96.0%), by the bank's curves
            >>> calibration = bank.simulate(np.linspace(-2, 2, 50), seed=1)
            >>> print(session.full_score(calibration))
            72.7% (95% interval 23.3% to 100.0%), by auto: regression
        """
        check_interval("level", level)
        estimator = self.config.default_estimator if estimator is None else estimator
        if calibration is None:
            if estimand not in (None, "run"):
                must = '"run" without responses of calibrated subjects'
                raise argument_error("estimand", must, estimand)
            if self.state.bets is not None and estimator in (GUARANTEED, "design-based"):
                return score_by_bets(self.state.bets, estimator, level)
            estimates = self.estimate()
            return score_by_bank(estimates["score"], estimates["score_sd"], level)
        prediction = self.to_report().predict(
            self.bank,
            calibration,
            estimator=estimator,
            level=level,
            mismatch=mismatch,
            estimand=estimand,
            reruns=reruns,
        )
        return score_by_prediction(prediction)

    def to_report(self) -> Report:
        """The session as a report of one session; its ``truth`` is the estimate."""
        state, estimates = self.state, self.estimate()
        arrays = {name: np.asarray(getattr(state, name), float)[None] for name in ("theta", "se")}
        zeros = np.zeros(self.bank.n_items)
        relaxed = np.zeros_like(state.items) if state.relaxed is None else state.relaxed
        return Report(
            subject_ids=np.array([self.head["subject"] or self.id], dtype=object),
            item_ids=self.bank.item_ids,
            config=self.config,
            truth=arrays["theta"],
            theta=arrays["theta"],
            se=arrays["se"],
            n_items=np.asarray(state.n)[None],
            stop=np.asarray(state.stop)[None],
            items=np.asarray(state.items)[None],
            answers=np.asarray(state.answers)[None],
            thetas=np.asarray(state.thetas, float)[None],
            ses=np.asarray(state.ses, float)[None],
            score=np.array([estimates["score"]]),
            score_sd=np.array([estimates["score_sd"]]),
            full_score=None,
            priors=np.asarray(state.prior, float)[None],
            counts=Counts(zeros, zeros, zeros, 0.0),
            relaxed=np.asarray(relaxed)[None],
            plan=self.plan,
        )

    @property
    def plan(self) -> ContentPlan | None:
        """The content plan of a full session; None where there are no targets."""
        return content_plan(self.bank, self.config) if self.config.targets else None

    def flags(self) -> list[str]:
        """Warnings: relaxed rules, rounded shares, and categories unused in calibration.

        With several abilities also that the bank's mixture of populations is not taken as it is.
        """
        plan = self.plan
        out = [] if plan is None or not plan.rounded.any() else [str(plan)]
        note = prior_note(self.bank, None)
        if note and self.head["prior"] == frozen_prior(self.bank, None):
            out.append(f"{note[0].upper()}{note[1:]}.")
        for name in RELAXED:
            relaxed_events = [
                e for e in self.events if e["kind"] == "infeasible" and name in e["rules"]
            ]
            if relaxed_events:
                asked = ", ".join(item for event in relaxed_events for item in event["items"])
                out.append(f"The {name} rules could not be satisfied when asking {asked}.")
        items, answers = np.asarray(self.state.items), np.asarray(self.state.answers)
        unused = items[self.bank.in_unused_categories(items, answers)]
        if len(unused):
            listed = ", ".join(str(item) for item in self.bank.item_ids[unused])
            out.append(f"Answers in categories that nobody used in calibration: to {listed}.")
        return out

    def explain(self, n: int = 10) -> pd.DataFrame:
        """Explain why the current items were chosen (see `irtcat.cat.explain`)."""
        return explain(self.bank, self._pool, self.config, self.state, n)

    def to_frame(self) -> pd.DataFrame:
        """The answers so far, with theta (theta_1, ... for several abilities) and se after each."""
        n = int(self.state.n)
        ids = [str(self.bank.item_ids[i]) for i in np.asarray(self.state.items)[:n]]
        columns = {
            "answer": [self._bank_code(item) for item in ids],
            **numbered("theta", np.asarray(self.state.thetas, float)[:n]),
            **numbered("se", np.asarray(self.state.ses, float)[:n]),
        }
        return pd.DataFrame(columns, index=pd.Index(ids, dtype=object, name="item"))

    def seconds(self) -> pd.Series:
        """The time of each answer so far, by item; NaN of skipped items.

        Rows of several sessions are a table for `irtcat.response_times.fit_times`:
        ``pd.DataFrame({session.id: session.seconds() for session in sessions}).T``.
        """
        answers = [event for event in self.events if event["kind"] == "answer"]
        index = pd.Index([event["item"] for event in answers], dtype=object, name="item")
        skipped = [event["code"] == NONE for event in answers]
        values = np.where(skipped, np.nan, [event["seconds"] for event in answers])
        return pd.Series(values.astype(float), index=index, name="seconds")

    def status(self) -> SessionStatus:
        """The estimates, answers, warnings and pending items; with a store see `Store.status`."""
        plan = self.plan
        return SessionStatus(
            id=self.id,
            asked=self.asked,
            reason=self.reason,
            estimates=self.estimate(),
            answers=self.to_frame(),
            flags=self.flags(),
            plan_text="" if plan is None else str(plan),
            plan=None if plan is None else plan.to_frame(),
        )

    def to_json(self, key: Key = None) -> dict[str, Any]:
        """The session as a JSON document: small, portable, and with the bank enough to continue it.

        Args:
            key: a secret. With it ``digest`` is HMAC-SHA-256, which nobody can compute without the
                key; otherwise it is SHA-256, which only detects accidents and manual edits.

        Returns:
            What was fixed at the start, the ``events``, and the ``digest`` of both.
        """
        document = json_value({**self.head, "events": self.events})
        return {**document, "digest": document_digest(document, as_key(key))}

    @classmethod
    def from_json(
        cls,
        bank: ItemBank,
        document: Mapping[str, Any],
        pool: Pool | None = None,
        key: Key = None,
        clock: Clock = system_clock,
    ) -> "Session":
        """A session from the output of `to_json`.

        Args:
            bank: the bank on which it was begun.
            document: the session.
            pool: the bank as returned by `prepare`, to save time.
            key: the key with which it was written.
            clock: as for `begin`.

        Raises:
            InputError: for another bank, a document that is no session, was changed or was written
                with another key, or a log that is not consistent.

        Example:
            >>> bank = ItemBank.from_parameters(b=[-1.0, 0.0, 1.0])
            >>> document = Session.begin(bank, Config(max_items=2)).to_json()
            >>> Session.from_json(bank, document).asked
            ['i2']
            >>> Session.from_json(bank, {**document, "seed": 5})
            Traceback (most recent call last):
            irtcat._common.checks.InputError: The `document` argument must be as to_json wrote ...
        """
        bank = as_bank(bank)
        _check_document(bank, document, as_key(key))
        head = {k: v for k, v in document.items() if k not in ("events", "digest")}
        try:
            config = Config.from_json(head["config"])
            _check_head(bank, config, head)
            session = cls(bank, config, head, pool, clock)
        except InputError as error:
            raise InputError(f"The document holds no valid session. {error}") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            got = f"{type(error).__name__}: {error}"
            raise argument_error("document", "a session as returned by to_json", got) from None
        session.apply_events(document["events"])
        if not session.events:
            raise argument_error("document", "a session with its first item asked", "no event")
        return session

    def apply_events(self, events: Sequence[Event]) -> None:
        """Apply further events of the log to the session.

        Raises:
            InputError: for an event that cannot follow those before it.
        """
        for event in events:
            fault = field_fault(event) or self._fault(event)
            if fault:
                name = f"Event {len(self.events)} of session {shorten(self.id)}"
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
        if len(items) + len(self._answered) > self.config.max_items:
            return f"asks more than {self.config.max_items} items"
        valid = 0 <= event.get("cell", -1) < cells if cells > 1 else "cell" not in event
        return "" if valid else "has a cell that the exposure rule does not have"

    def _stop_fault(self, reason: str) -> str:
        """Why a session cannot end now for this reason (checked by counts); empty if it can."""
        if not self.events:
            return "ends before anything is asked"
        if reason not in self._reasons():
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


@functools.partial(jit, static_argnames=("config",))
def _predicted(pool: Pool, config: Config, state: CatState) -> tuple[Array, Array]:
    return score_moments(context_of(pool, config, state))


def _check_document(bank: ItemBank, document: Any, key: bytes | None) -> None:
    """Raise unless a document is an unchanged session on this bank."""
    SESSION.check_argument("document", document)
    must = "a session as returned by to_json"
    for name in (*HEAD, "events", "digest"):
        if name not in document:
            raise argument_error("document", must, f"one without {name}")
    if not isinstance(document["events"], list):
        raise argument_error("document", "a session with a list of events", document["events"])
    if bank.hash() != document["bank"]:
        raise argument_error("bank", "the bank on which the session was begun", bank)
    try:
        right = document_digest(document, key)
    except (RecursionError, TypeError, ValueError) as error:
        raise argument_error("document", must, f"no JSON ({error})") from None
    if not is_digest(document["digest"], right):
        raise InputError(
            "The `document` argument must be as to_json wrote it, with the same key. Its digest "
            "does not verify: it was changed, or written with another key."
        )


def _check_head(bank: ItemBank, config: Config, head: Mapping[str, Any]) -> None:
    """Raise unless the head equals the one that `head_of` makes of its fields."""
    counts = head.get("counts")
    recomputed = head_of(
        bank,
        config,
        head["seed"],
        head["prior"],
        head["id"],
        head["subject"],
        None if counts is None else Counts(*counts),
        head["started"],
    )
    for name in head.keys() - {"config_hash"}:  # of a text where other programs may write 1 as 1.0
        if name not in recomputed or recomputed[name] != head[name]:
            raise argument_error("document", f"a session with a valid {name}", head[name])
    started = {"kind": "stop", "reason": "", "at": head["started"], "elapsed": 0}
    if field_fault(started):
        raise argument_error("document", "a session with a valid start time", head["started"])


def head_of(
    bank: ItemBank,
    config: Config,
    seed: int,
    prior: Any,
    session_id: str,
    subject: str,
    counts: Counts | None,
    started: str,
) -> dict[str, Any]:
    """The head of a session: everything that is fixed when it begins."""
    check_count("seed", seed, 0)
    head: dict[str, Any] = {
        **SESSION.head,
        "id": check_id("session_id", session_id),
        "subject": check_id("subject", subject) if subject else "",
        "bank": bank.hash(),
        "config": config.to_json(),
        "config_hash": config.hash(),
        "seed": int(seed),
        "prior": frozen_prior(bank, prior),
        "started": started,
    }
    if counts is not None:
        arrays = [np.asarray(count, float) for count in counts]
        blank = blank_counts(config.exposure, bank.n_items)
        # The limit of sympson-hetter has no initial value; it has the shape of the other counts.
        shapes = [np.shape(blank.administered if count is None else count) for count in blank]
        if [array.shape for array in arrays] != shapes:
            raise argument_error("counts", "counts for the bank and the exposure rule", shapes)
        if not all(np.isfinite(array).all() and (array >= 0).all() for array in arrays):
            raise argument_error("counts", "finite and not negative", "other numbers")
        head["counts"] = [array.tolist() for array in arrays]
    return head

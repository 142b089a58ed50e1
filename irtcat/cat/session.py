"""Session: one live adaptive test, as a log of events from which its state follows.

The log is all that is kept: "ask" events name the items asked, "answer" events the answers, a
"stop" event the end; an "infeasible" event after an "ask" says which rules it could not keep. The
state is rebuilt from it by the same `step` as everywhere. A session without a store lives in memory
and travels as JSON; with one (`irtcat.cat.Store`) every event is on disk before `answer` returns.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._bank_file import bank_hash
from irtcat._checks import InputError, argument_error, brief, check_count, shorten
from irtcat._precision import precision
from irtcat.bank import ItemBank
from irtcat.cat._explain import explain
from irtcat.cat._exposure_parameters import ExposureParameters, session_counts
from irtcat.cat._plan import ContentPlan, content_plan
from irtcat.cat._pool import Counts, Pool
from irtcat.cat._prepare import prepare
from irtcat.cat._prepare_several import correlations_of
from irtcat.cat._report import numbered
from irtcat.cat._state import CONTENT_RELAXED, EXPOSURE_RELAXED, NONE, CatState
from irtcat.cat._vectors import plain_prior
from irtcat.cat.config import Config, document_hash
from irtcat.cat.engine import look_at, start, step
from irtcat.cat.exposure import cell_of, cuts_in
from irtcat.cat.stopping import CLASSIFIERS, classify, leaves, score_moments
from irtcat.models import item_categories

if TYPE_CHECKING:
    from irtcat.cat.store import Store

__all__ = ["Session", "bank_hash"]

FORMAT, VERSION = "irtcat-session", 1
Event = dict[str, Any]
KINDS = ("ask", "answer", "stop", "infeasible")
RELAXED = {"content": CONTENT_RELAXED, "exposure": EXPOSURE_RELAXED}
"""Kinds of rules that an "infeasible" event names."""


class Session:
    """A live adaptive test.

    Made by `Session.begin` (in memory), `irtcat.cat.Store.begin` (on disk), `Session.from_json`
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
        self, bank: ItemBank, config: Config, head: Mapping[str, Any], pool: Pool | None = None
    ):
        self.bank, self.config = bank, config
        self.id = str(head["id"])
        self.head = dict(head)
        self._pool = prepare(bank, config) if pool is None else pool
        counts = head.get("counts")
        if counts is not None:
            with precision("float64"):
                own = Counts(*(jnp.asarray(np.asarray(part, float)) for part in counts))
            self._pool = self._pool._replace(counts=own)
        self._place = {name: i for i, name in enumerate(bank.item_ids.tolist())}
        self._first_code = int(next(iter(bank.provenance.get("codes", ())), 0))
        self._categories = item_categories(bank.model)
        self.state = start(self._pool, config, tuple(head["prior"]), None, int(head["seed"]))
        self.events: list[Event] = []
        self._pending: dict[str, Event] = {}
        self._answered: dict[str, Any] = {}
        self._store: Store | None = None

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
    ) -> "Session":
        """Begin a session in memory.

        Args:
            bank: calibrated items.
            config: the configuration.
            seed: seed of the session's randomness.
            prior: mean and SD of this subject's prior; by default the bank's population. Of several
                abilities the means, and the SDs or the covariance matrix.
            session_id: its id.
            subject: who is tested.
            counts: exposure so far; of the rule "sympson-hetter" the parameters of
                `calibrate_exposure`. Exposure rules that go by either are refused without.
            pool: what `prepare` made of the bank, to spare the time where many sessions begin.

        Returns:
            The session, its first item asked.

        Raises:
            InputError: as `prepare` does, or for a seed or prior out of range.
        """
        session = cls(bank, config, head_of(bank, config, seed, prior, session_id, subject, counts),
                      pool)  # fmt: skip
        for event in session.asking(session.state):
            session._take(event)
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
        """Name of the stopping rule that ended it; empty while it goes on."""
        return str(self.events[-1]["reason"]) if self.is_over else ""

    def __repr__(self) -> str:
        state = f"over ({self.reason})" if self.is_over else f"asks {', '.join(self.asked)}"
        return f"Session({self.id}, {len(self._answered)} answers, {state})"

    def answer(self, item: str, value: Any, seconds: float = 0.0) -> list[str]:
        """Give the answer to an item asked.

        Args:
            item: its id.
            value: the answer, in the codes of the bank (0 and 1 for right/wrong items); None where
                the item was skipped.
            seconds: time taken.

        Returns:
            Ids of the items to be answered next; empty when the session is over. With a store,
            the answer is on disk when this returns.

        Raises:
            InputError: for an item that was not asked, an answer that the item does not have, or
                another answer than was given before. The same answer again changes nothing.
        """
        if self._store is not None:
            return self._store.answer(self, item, value, seconds)
        for event in self.events_of(item, value, seconds):
            self._take(event)
        return self.asked

    def events_of(self, item: str, value: Any, seconds: float = 0.0) -> list[Event]:
        """The events that an answer brings about, checked but not yet taken into the session."""
        item = str(item)
        code = self._code(item, value)
        if not np.isfinite(seconds) or seconds < 0:
            raise argument_error("seconds", "a finite number, not negative", seconds)
        if item in self._answered:
            if self._answered[item] == code:
                return []
            before = f"which was answered with {self._shown(item)!r}"
            got = f"{shorten(value)} for {brief(item)}, {before}"
            raise InputError(f"The `value` argument must be the answer given before. Got {got}.")
        if item not in self.asked:
            asked = shorten(self.asked) if self.asked else "none, since the session is over"
            raise argument_error("item", f"an item that was asked ({asked})", item)
        made: list[Event] = [
            {"kind": "answer", "item": item, "code": code, "seconds": float(seconds)}
        ]
        if self.asked == [item]:
            made += self._follows(self._stepped({**self._pending, item: made[0]}))
        return made

    def _stepped(self, answers: Mapping[str, Event]) -> CatState:
        """The state once all items asked are answered."""
        ids = self._ids(self.state)
        codes = np.full(self.config.batch, NONE, np.int32)
        codes[: len(ids)] = [answers[item]["code"] for item in ids]
        seconds = sum(answers[item]["seconds"] for item in ids)
        return step(self._pool, self.config, self.state, codes, seconds)

    def _follows(self, state: CatState) -> list[Event]:
        """What comes after all items asked are answered; keeps the state for `_take`."""
        self._next = state
        if int(state.stop) > 0:
            return [{"kind": "stop", "reason": self._reasons()[int(state.stop) - 1]}]
        return self.asking(state)

    def asking(self, state: CatState) -> list[Event]:
        """The event of asking the items of a state, and one more where rules could not be kept.

        The first holds the cell of a conditional rule.
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

    def _reasons(self) -> list[str]:
        return [*(rule.name for rule in leaves(self.config.stopping)), "max_items", "no item left"]

    def _take(self, event: Event) -> None:
        """Take an event of the log into the state; asked items are those of the log."""
        if event["kind"] == "answer":
            self._pending[event["item"]] = event
            self._answered[event["item"]] = event["code"]
        elif event["kind"] == "infeasible":
            pass  # the state follows from the other events
        elif self.events:
            state = self.__dict__.pop("_next", None)
            if state is None:
                state = self._stepped(self._pending)
            self._pending = {}
            self.state = self._as_logged(state, event)
        else:
            self.state = self._as_logged(self.state, event)
        self.events.append(event)

    def _as_logged(self, state: CatState, event: Event) -> CatState:
        """The state with the items of the log asked, whatever the engine would ask today."""
        if event["kind"] == "stop" or self._ids(state) == event["items"]:
            return state
        with precision("float64"):
            given = np.array(state.given)
            given[[i for i in np.asarray(state.asked) if i >= 0]] = False
            asked = np.full(self.config.batch, NONE, np.int32)
            places = [self._place[item] for item in event["items"]]
            asked[: len(places)] = places
            given[places] = True
            stop = jnp.zeros_like(state.stop)
            return state._replace(asked=jnp.asarray(asked), given=jnp.asarray(given), stop=stop)

    def _ids(self, state: CatState) -> list[str]:
        return [str(self.bank.item_ids[i]) for i in np.asarray(state.asked) if i >= 0]

    def _code(self, item: str, value: Any) -> int:
        """An answer as a category from 0; -1 for none."""
        if item not in self._place:
            raise argument_error("item", "an item of the bank", item)
        if value is None:
            return NONE
        low, n = self._first_code, int(self._categories[self._place[item]])
        number = float(value) if isinstance(value, (int, float, np.number, np.bool_)) else np.nan
        if not (number == np.floor(number) and low <= number < low + n):
            must = f"a whole number from {low} to {low + n - 1} for {brief(item)}"
            raise argument_error("value", must, value)
        return int(number) - low

    def _shown(self, item: str) -> int | None:
        code = self._answered[item]
        return None if code == NONE else code + self._first_code

    def estimate(self) -> dict[str, Any]:
        """What is known now.

        Returns:
            ``theta`` and ``se``, of several abilities lists; ``n_items``; ``score`` and
            ``score_sd``, the predicted mean score on the whole bank (0 to 1); and where a rule
            classifies ``category`` (0 below the first cut; None while undecided).
        """
        with precision("float64"):
            look = look_at(self._pool, self.config, self.state)
            score, variance = score_moments(look)
            out: dict[str, Any] = {
                "theta": np.asarray(self.state.theta, float).tolist(),
                "se": np.asarray(self.state.se, float).tolist(),
                "n_items": int(self.state.n),
                "score": float(score),
                "score_sd": float(np.sqrt(max(float(variance), 0.0))),
            }
            for rule in leaves(self.config.stopping):
                if rule.name in CLASSIFIERS:
                    category = int(classify(look, rule.name, rule.kwargs()))
                    out["category"] = None if category < 0 else category
        return out

    @property
    def plan(self) -> ContentPlan | None:
        """The content plan of a full session; None where there are no targets."""
        return content_plan(self.bank, self.config) if self.config.targets else None

    def flags(self) -> list[str]:
        """Sentences on rules that could not be kept, and on shares that were rounded."""
        plan = self.plan
        out = [] if plan is None or not plan.rounded.any() else [str(plan)]
        for name in RELAXED:
            steps = [e for e in self.events if e["kind"] == "infeasible" and name in e["rules"]]
            if steps:
                asked = ", ".join(item for event in steps for item in event["items"])
                out.append(f"The {name} rules could not be kept when asking {asked}.")
        return out

    def explain(self, n: int = 10) -> pd.DataFrame:
        """Why the items now asked were chosen (see `irtcat.cat.explain`)."""
        return explain(self.bank, self._pool, self.config, self.state, n)

    def to_frame(self) -> pd.DataFrame:
        """The answers so far, and theta and se after each (theta_1, ... of several)."""
        n = int(self.state.n)
        ids = [str(self.bank.item_ids[i]) for i in np.asarray(self.state.items)[:n]]
        columns = {
            "answer": [self._shown(item) for item in ids],
            **numbered("theta", np.asarray(self.state.thetas, float)[:n]),
            **numbered("se", np.asarray(self.state.ses, float)[:n]),
        }
        return pd.DataFrame(columns, index=pd.Index(ids, dtype=object, name="item"))

    def to_json(self) -> dict[str, Any]:
        """The session as JSON: small, portable, and enough (with the bank) to go on anywhere."""
        return json.loads(json.dumps({**self.head, "events": self.events}))

    @classmethod
    def from_json(
        cls, bank: ItemBank, document: Mapping[str, Any], pool: Pool | None = None
    ) -> "Session":
        """A session from what `to_json` gave; with `to_json` after it, state in, state out.

        Args:
            bank: the bank it was begun on.
            document: the session.
            pool: what `prepare` made of the bank, to spare the time.

        Raises:
            InputError: for another bank, a changed configuration, or no session.
        """
        if not isinstance(document, Mapping) or document.get("format") != FORMAT:
            raise argument_error("document", "a session as to_json gives it", type(document))
        if document["version"] > VERSION:
            raise argument_error("document", f"of version {VERSION} or before", document["version"])
        if bank_hash(bank) != document["bank"]:
            raise argument_error("bank", "the bank the session was begun on", bank)
        if document_hash(document["config"]) != document["config_hash"]:
            raise argument_error("document", "with the configuration it was begun with", "another")
        config = Config.from_json(document["config"])
        session = cls(bank, config, {k: v for k, v in document.items() if k != "events"}, pool)
        session.take_events(document["events"])
        return session

    def take_events(self, events: Sequence[Event]) -> None:
        """Take further events of the log into the session."""
        for event in events:
            items = event.get("items", [event["item"]] if "item" in event else [])
            if event.get("kind") not in KINDS or set(items) - set(self._place):
                raise argument_error("events", "a log of this bank's items", event)
            self._take(dict(event))


def head_of(
    bank: ItemBank, config: Config, seed: int, prior: Any, session_id: str, subject: str,
    counts: Counts | ExposureParameters | None,
) -> dict[str, Any]:  # fmt: skip
    """What is frozen when a session begins."""
    check_count("seed", seed, 0)
    counts = session_counts(bank, config, counts)
    head: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "id": session_id,
        "subject": subject,
        "bank": bank_hash(bank),
        "config": config.to_json(),
        "config_hash": config.hash(),
        "seed": int(seed),
        "prior": _frozen_prior(bank, prior),
    }
    if counts is not None:
        head["counts"] = [np.asarray(part, float).tolist() for part in counts]
    return head


def _frozen_prior(bank: ItemBank, prior: Any) -> list[Any]:
    """Mean and SD of a prior; of several abilities the means and the covariance matrix."""
    dims = bank.model.dims
    if dims > 1:
        given = (np.zeros(dims), correlations_of(bank)) if prior is None else prior
        return [part.tolist() for part in plain_prior(given, dims)]
    own = (bank.population_mean, bank.population_sd) if prior is None else tuple(prior)
    if len(own) != 2 or not np.isfinite(own).all() or own[1] <= 0:
        raise argument_error("prior", "(mean, SD), the SD above 0", prior)
    return [float(own[0]), float(own[1])]

"""Session: one live adaptive test, stored as a log of events that determines its state.

Only the log is stored: "ask" events hold the items asked, "answer" events the answers, a "stop"
event the end; an "infeasible" event after an "ask" names the rules that were relaxed. Every event
has its time in UTC (``at``) and the seconds since the previous event (``elapsed``). The state is
rebuilt from the log by the same `step` as in simulations. A session without a store is kept in
memory and serialised as JSON; with one (`irtcat.cat.Store`) every event is on disk before `answer`
returns.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.clock import Clock, system_clock
from irtcat.bank import ItemBank, as_bank, numbered
from irtcat.cat.belief.state import NONE, Counts, Pool
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.exposure_parameters import ExposureParameters
from irtcat.cat.engine.plan import ContentPlan, target_plan
from irtcat.cat.engine.reading import checked_bank
from irtcat.cat.live.course import Course
from irtcat.cat.live.document import document_of, new_head, prior_flag, read_document
from irtcat.cat.live.inspection import estimates_of, explain
from irtcat.cat.live.log import Key
from irtcat.cat.live.status import FullScore, SessionStatus, score_alone, score_by_prediction
from irtcat.cat.studies.finished import report_of_one
from irtcat.cat.studies.report import Report
from irtcat.responses import Responses


class Session(Course):
    """A live adaptive test.

    Created by `Session.begin` (in memory), `irtcat.cat.Store.begin` (on disk), `Session.from_json`
    or `irtcat.cat.Store.resume`.

    Attributes:
        id: the session's id.
        bank: the frozen bank.
        config: the frozen configuration.
        head: what was fixed when the session began.
        pool: the bank as returned by `prepare`, with the counts of exposure when the session began.
        state: the current `CatState`.
        events: the log so far.
        asked: ids of the items asked and not yet answered, in order.
        is_over: whether the session has ended.
        reason: name of the stopping rule that ended the session; empty while it is running.

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
        identity = {"seed": seed, "prior": prior, "session_id": session_id, "subject": subject}
        head = new_head(bank, config, counts, clock, **identity)
        session = cls(bank, config, head, pool, clock)
        for event in session._first_events():
            session._apply(event)
        return session

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
        for event in self._events_of(item, value, seconds):
            self._apply(event)
        return self.asked

    def restart_timer(self) -> None:
        """Measure the time of the next answer from now, not from when its item was asked.

        For a program that repeats the question after an interruption.
        """
        self._stopwatch.restart(self.events[-1]["at"])

    def estimate(self) -> dict[str, Any]:
        """The current estimates.

        Returns:
            ``theta`` and ``se`` (lists with several abilities); ``n_items``; ``score`` and
            ``score_sd``, the mean score on the whole bank (0 to 1) expected from its curves (see
            `full_score`, which can also use calibration responses); with a classification rule
            ``category`` (0 below the first cut; None while undecided); and with the rule
            "guaranteed" a list of score, lower, upper and level, as `full_score` returns them.
        """
        return estimates_of(self.pool, self.config, self.state)

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
            InputError: for a level outside (0, 1), an unknown estimator, or as `irtcat.predict`
                does.

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
        estimator = self.config.default_estimator if estimator is None else estimator
        if calibration is None:
            return score_alone(self.state.bets, self.estimate(), estimator, level, estimand)
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
        subject = self.head["subject"] or self.id
        return report_of_one(self.bank, self.config, self.state, self.estimate(), subject)

    @property
    def plan(self) -> ContentPlan | None:
        """The content plan of a full session; None where there are no targets."""
        return target_plan(self.bank, self.config)

    def flags(self) -> list[str]:
        """Warnings: relaxed rules, rounded shares, and categories unused in calibration.

        With several abilities also that the bank's mixture of populations is not taken as it is.
        """
        plan = self.plan
        out = [] if plan is None or not plan.rounded.any() else [str(plan)]
        out += prior_flag(self.bank, self.head)
        out += [
            f"The {name} rules could not be satisfied when asking {', '.join(items)}."
            for name, items in self._relaxed().items()
        ]
        items, answers = np.asarray(self.state.items), np.asarray(self.state.answers)
        unused = items[self.bank.in_unused_categories(items, answers)]
        if len(unused):
            listed = ", ".join(str(item) for item in self.bank.item_ids[unused])
            out.append(f"Answers in categories that nobody used in calibration: to {listed}.")
        return out

    def explain(self, n: int = 10) -> pd.DataFrame:
        """Explain why the current items were chosen (see `irtcat.cat.explain`)."""
        return explain(self.bank, self.pool, self.config, self.state, n)

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
        return document_of(self.head, self.events, key)

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
            irtcat._common.errors.InputError: The `document` argument must be as to_json wrote ...
        """
        return read_document(cls, as_bank(bank), document, pool, key, clock)

"""Inspect AI, driven through its early-stopping protocol: the log holds just the items run."""

import copy
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from irtcat._checks import InputError, argument_error, brief, one_line, shorten
from irtcat._folders import OutputFolder
from irtcat.cat import Session
from irtcat.harness._extra import imported
from irtcat.harness._folder import LOGS
from irtcat.harness._items import Item
from irtcat.harness.answers import Answer, Progress, take
from irtcat.harness.exports import inspect_selector

__all__ = ["Adaptive", "Inspect"]


class Adaptive:
    """An early-stopping manager for ``inspect_ai.Task(early_stopping=...)`` that asks adaptively.

    Inspect schedules all samples at once; each is held until the session asks for it. When the
    session is over the others are stopped before they begin, and are not logged. Every sample must
    be scheduled while others are held: run the task with ``max_samples`` of at least as many as
    there are (`Inspect` does), or it waits for ever; this is looked at before any is run.

    Attributes:
        error: what went wrong, where something did.
        notes: sentences on what was taken where there was a choice.
    """

    def __init__(
        self,
        session: Session,
        items: Mapping[str, Item],
        metric: str | None = None,
        threshold: float | None = None,
        progress: Progress | None = None,
    ):
        """Hold the samples of a task for a session.

        Args:
            session: the session.
            items: the items of its bank by id; `Item.sample` is the sample's id.
            metric: the scorer whose values are the answers, or "scorer.part" for a value with
                parts; by default the first scorer.
            threshold: scores of at least this count as right, others as wrong.
            progress: called with answers so far, the most there can be, and a text.
        """
        self.session, self.metric, self.threshold, self.progress = (
            session,
            metric,
            threshold,
            progress,
        )
        self.error: Exception | None = None
        self.notes: dict[str, str] = {}
        self._item_of = {item.sample: item.id for item in items.values()}
        self._doors: dict[str, Any] = {}
        self._began: dict[str, float] = {}

    @property
    def _ended(self) -> bool:
        return self.session.is_over or self.error is not None

    async def start_task(self, task: Any, samples: list[Any], epochs: int) -> str:
        """Look at the samples before any of them runs."""
        try:
            self._check(task, {str(sample.id) for sample in samples}, epochs)
        except InputError as error:
            self.error = error
            raise
        return "irtcat"

    def _check(self, task: Any, there: set[str], epochs: int) -> None:
        most = task.config.max_samples
        if most is not None and most < len(there):
            must = f"at least {len(there)}, the number of samples: each is held until it is asked"
            raise argument_error("max_samples", must, most)
        if epochs != 1:
            raise argument_error("epochs", "1: an item is asked once", epochs)
        self.check_samples(there)

    def check_samples(self, there: set[str]) -> None:
        """Raise unless every item that has no answer yet is among the samples."""
        done = {e["item"] for e in self.session.events if e["kind"] == "answer"}
        lacking = [sample for sample, item in self._item_of.items()
                   if item not in done and sample not in there]  # fmt: skip
        if lacking:
            must = f"a task with all samples of the bank (it has {len(there)})"
            raise argument_error("task", must, f"none with the id {shorten(lacking[0])}")

    async def schedule_sample(self, id: str | int, epoch: int) -> Any:
        """Hold a sample until it is asked (None) or no more are (EarlyStop)."""
        anyio = imported("anyio", "Inspect AI")
        item = self._item_of.get(str(id))
        door = self._doors.setdefault(str(item), anyio.Event())
        self._open()
        if item is not None:
            await door.wait()
            if not self._ended and item in self.session.asked:
                self._began[item] = anyio.current_time()
                return None
        stop = imported("inspect_ai.util", "Inspect AI").EarlyStop
        reason = "not in the bank" if item is None else "not asked"
        return stop(id=id, epoch=epoch, reason=reason)

    async def complete_sample(self, id: str | int, epoch: int, scores: Mapping[str, Any]) -> None:
        """Take the answer, and let go what is asked next."""
        item = self._item_of.get(str(id))
        if item is None or item not in self._began or self.session.is_over:
            return  # but after an error: what has been answered is kept
        seconds = imported("anyio", "Inspect AI").current_time() - self._began[item]
        try:
            given = {name: each.score for name, each in scores.items()}
            take(self.session, Answer(item, self._value(item, given), seconds), self.threshold)
            if self.progress is not None:
                self.progress(int(self.session.state.n), self.session.config.total_items, "answers")
        except Exception as error:
            self.error = self.error or error
            raise
        finally:
            self._open()

    def take_logged(self, logged: Mapping[str, Any]) -> None:
        """Take what is asked and was answered before, as summaries of samples by their ids.

        What cannot be taken is asked again.
        """
        left, taken = dict(logged), 0
        samples = {item: sample for sample, item in self._item_of.items()}
        while known := [each for each in self.session.asked if samples[each] in left]:
            said = left.pop(samples[known[0]])
            with suppress(InputError):
                value = self._value(known[0], said.scores)
                answer = Answer(known[0], value, float(said.total_time or 0.0))
                take(self.session, answer, self.threshold)
                taken += 1
        if taken:
            self.notes["logged"] = f"Answers that the log of an interrupted run had: {taken}."

    async def complete_task(self) -> dict[str, Any]:
        """What the log says of the session."""
        known = self.session.estimate()
        names = ("theta", "se", "n_items", "score", "score_sd")
        return {"session": self.session.id, "reason": self.session.reason,
                **{name: known[name] for name in names}}  # fmt: skip

    def _open(self) -> None:
        """Let go the samples that are asked; all, once the session is over."""
        for item in list(self._doors) if self._ended else self.session.asked:
            if item in self._doors:
                self._doors[item].set()

    def _value(self, item: str, scores: Mapping[str, Any]) -> Any:
        """The value of the chosen score."""
        if not scores:
            raise argument_error("task", "one that scores its samples", f"no score for {item}")
        name, _, part = (self.metric or next(iter(scores))).partition(".")
        if self.metric in scores:
            name, part = str(self.metric), ""
        if name not in scores:
            raise argument_error("metric", f"one of the scorers {shorten(list(scores))}", name)
        value = scores[name].value
        if isinstance(value, Mapping):
            part = part or next(iter(value), "")
            if part not in value:
                have = shorten([f"{name}.{each}" for each in value])
                raise argument_error("metric", f"one of {have}", f"{name}.{part}")
            if len(value) > 1 and self.metric is None:
                others = ", ".join(each for each in value if each != part)
                self.notes["part"] = f"{brief(name)}: {brief(part)} was taken (not {others})."
            value = value[part]
        if len(scores) > 1 and self.metric is None:
            others = ", ".join(each for each in scores if each != name)
            self.notes["scorer"] = f"Scorer {name} was taken (not {others})."
        return value


@dataclass(frozen=True)
class Inspect:
    """A model run by Inspect AI, in one evaluation that ends early.

    Samples run at the same time are those of a batch. A sample that fails ends the run (after
    ``options={"retry_on_error": n}`` further tries); it can go on later. What an interrupted run
    in the run's folder has logged, but not handed over any more, is then taken from its log; what
    Inspect still held in memory when the process was killed is asked again.

    Attributes:
        task: an ``inspect_ai.Task``, or the name of one: file.py, file.py@name or a registered one.
        model: an ``inspect_ai`` model (a mock with custom outputs: ``get_model(...,
            memoize=False)``, or Inspect hands out the first one made), or its name.
        metric: the scorer whose values are the answers, or "scorer.part"; by default the first.
        log_dir: folder of the log; by default "inspect_logs" in the run's folder; Inspect's own
            default where the run has none. Answers are taken from the default one only.
        task_args: arguments of the task, where it is named.
        options: further arguments of ``inspect_ai.eval`` (temperature, retry_on_error, ...).
        threshold: scores of at least this count as right, others as wrong.
    """

    task: Any = field(repr=False)
    model: Any = field(repr=False)
    metric: str | None = None
    log_dir: Any = None
    task_args: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    threshold: float | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        own = {"tasks", "model", "log_dir", "epochs", "sample_id", "limit", "max_samples",
               "fail_on_error", "sample_shuffle"} & set(self.options)  # fmt: skip
        if own:
            raise argument_error("options", "none that the drive itself sets", sorted(own))

    def about(self) -> dict[str, Any]:
        """Which task and model, and how the answers are read."""
        task = self.task if isinstance(self.task, str) else getattr(self.task, "name", "")
        options = {key: shorten(value, 200) for key, value in sorted(self.options.items())}
        arguments = {key: shorten(value, 200) for key, value in sorted(self.task_args.items())}
        return {"harness": "inspect", "task": str(task), "lm": str(self.model),
                "metric": self.metric, "task_args": arguments, "options": options,
                "threshold": self.threshold}  # fmt: skip

    def check(self, items: Mapping[str, Item]) -> None:
        """Raise where Inspect AI is not installed."""
        imported("inspect_ai", "Inspect AI")

    def drive(
        self, session: Session, items: Mapping[str, Item], folder: OutputFolder | None,
        progress: Progress | None,
    ) -> list[str]:  # fmt: skip
        """Run the task until the session is over."""
        if session.is_over:
            return []
        inspect_ai = imported("inspect_ai", "Inspect AI")
        holder = Adaptive(session, items, self.metric, self.threshold, progress)
        task = self._task(inspect_ai, holder)
        where = self.log_dir
        if folder is not None and not where:
            where = folder.folder(LOGS)
            holder.take_logged(_logged(where))
        if session.is_over:
            return list(holder.notes.values())
        done = {e["item"] for e in session.events if e["kind"] == "answer"}
        left = [item for item in items.values() if item.id not in done]
        settings = {"log_dir": str(where)} if where else {}
        named = {str(sample.id) for sample in task.dataset if sample.id is not None}
        if named:
            holder.check_samples(named)
        try:
            logs = inspect_ai.eval(
                task, model=self.model, epochs=1,
                sample_id=[inspect_selector(item.sample) for item in left],
                max_samples=max(len(left), 1), fail_on_error=True,
                **{"display": "none", **settings, **self.options},
            )  # fmt: skip
        except Exception as error:  # of a model, task or option that Inspect does not know
            told = f"{type(error).__name__}: {one_line(error)}"
            raise holder.error or InputError(f"Inspect could not run: {told}") from error
        self._look_at(logs[0], holder)
        return list(holder.notes.values())

    def _task(self, inspect_ai: Any, holder: Adaptive) -> Any:
        """The task, with the early stopping of this session."""
        if not isinstance(self.task, str):
            return inspect_ai.task_with(copy.copy(self.task), early_stopping=holder)
        loader = imported("inspect_ai._eval.loader", "Inspect AI")
        try:
            found = loader.load_tasks([_relative(self.task)], dict(self.task_args))
        except Exception as error:  # whatever the task's file does
            told = f"{type(error).__name__}: {one_line(error)}"
            raise InputError(f"Inspect cannot load the task {brief(self.task)}: {told}") from error
        if len(found) != 1:
            names = ", ".join(each.name for each in found) or "none"
            raise argument_error("task", "one task (file.py@name)", f"{self.task} with {names}")
        return inspect_ai.task_with(found[0], early_stopping=holder)

    def _look_at(self, log: Any, holder: Adaptive) -> None:
        """Raise what went wrong; the answers so far are kept."""
        if holder.error is not None:
            raise holder.error
        if log.status == "cancelled":
            raise KeyboardInterrupt
        if log.status != "success" or not holder.session.is_over:
            told = " ".join(str(log.error.message if log.error else log.status).split())
            raise InputError(f"Inspect's run failed ({told}; {log.location}).")


def _logged(folder: Path) -> dict[str, Any]:
    """Summaries of the samples that earlier runs in the folder scored, the latest of each."""
    out: dict[str, Any] = {}
    if folder.is_dir():
        log = imported("inspect_ai.log", "Inspect AI")
        for file in log.list_eval_logs(str(folder)):  # the latest first
            with suppress(Exception):  # one that is cut off: its samples are asked again
                for each in log.read_eval_log_sample_summaries(file):
                    if each.scores and not each.error:
                        out.setdefault(str(each.id), each)
    return out


def _relative(task: str) -> str:
    """The task's file as seen from here: Inspect looks for no others."""
    file, at, name = task.partition("@")
    return os.path.relpath(file) + at + name if os.path.isabs(file) else task

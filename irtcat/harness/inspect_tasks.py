"""Inspect AI, driven by its early-stopping protocol: the log has only the items run."""

import copy
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from irtcat._common.checks import InputError, argument_error, brief, check_choice, one_line, shorten
from irtcat._files.folders import OutputFolder
from irtcat.cat import Session
from irtcat.harness.answers import Answer, Progress, answers_of, check_options, record
from irtcat.harness.exports import inspect_selector
from irtcat.harness.extras import imported, is_in_file, model_in_file
from irtcat.harness.folder import LOGS
from irtcat.harness.items import Item, common_condition, known_conditions
from irtcat.io.logs.values import clip, version_text
from irtcat.responses._conditions import MISMATCH, check_conditions, text_hash

RESERVED = (
    *("tasks", "model", "log_dir", "epochs", "sample_id", "limit", "max_samples"),
    *("fail_on_error", "sample_shuffle"),
)
"""Options of ``inspect_ai.eval`` that irtcat sets itself."""

ADVICE = "Run the task with the settings and the data of the calibration"


class Adaptive:
    """An early-stopping manager for ``inspect_ai.Task(early_stopping=...)`` that asks adaptively.

    Inspect schedules all samples at once; each is held until the session asks for it. When the
    session is over the others are stopped before they begin, and are not logged. All samples must
    be scheduled at the same time: run the task with ``max_samples`` of at least their number
    (`Inspect` does), or it would never end; this is checked before any sample is run.

    Attributes:
        error: the exception that ended the run; None without one.
        notes: messages about ambiguous settings (what was used).
    """

    def __init__(
        self,
        session: Session,
        items: Mapping[str, Item],
        metric: str | None = None,
        threshold: float | None = None,
        progress: Progress | None = None,
        mismatch: str = "refuse",
    ):
        """Hold the samples of a task for a session.

        Args:
            session: the session.
            items: the items of its bank by id; `Item.sample` is the sample's id.
            metric: the scorer whose values are the answers, or "scorer.key" if the value is a
                mapping; by default that of the calibration, or else the first scorer.
            threshold: scores of at least this count as right, others as wrong.
            progress: called with the number of answers so far, the maximum number, and a text.
            mismatch: where scorer, version or data differ from those of the calibration, as far as
                the bank knows these: "refuse", or "accept".
        """
        check_choice("mismatch", mismatch, MISMATCH)
        self.mismatch = mismatch
        self.conditions = known_conditions(session.bank.items, items)
        self.session, self.progress = session, progress
        self.metric, self.threshold = metric, threshold
        self.error: Exception | None = None
        self.notes: dict[str, str] = {}
        self._item_of: dict[str, str] = {}
        for item in items.values():
            first = self._item_of.setdefault(item.sample, item.id)
            if first != item.id:  # one of them would be asked for ever
                must = "of one task, in which every item has a sample of its own"
                got = f"sample {brief(item.sample)} for both {brief(first)} and {brief(item.id)}"
                raise argument_error("items", must, got)
        self._events: dict[str, Any] = {}
        self._start_times: dict[str, float] = {}

    @property
    def _ended(self) -> bool:
        return self.session.is_over or self.error is not None

    async def start_task(self, task: Any, samples: list[Any], epochs: int) -> str:
        """Check the samples before any of them runs."""
        try:
            self._check(task, samples, epochs)
        except InputError as error:
            self.error = error
            raise
        return "irtcat"

    def _check(self, task: Any, samples: list[Any], epochs: int) -> None:
        """Raise where settings, samples, version, data or scorer are not those to run."""
        sample_ids = {str(sample.id) for sample in samples}
        max_samples = task.config.max_samples
        if max_samples is not None and max_samples < len(sample_ids):
            n = f"at least {len(sample_ids)}, the number of samples"
            raise argument_error("max_samples", f"{n}: each is held until it is asked", max_samples)
        if epochs != 1:
            raise argument_error("epochs", "1: an item is asked once", epochs)
        self.check_samples(sample_ids)
        run: dict[str, Any] = {"task": self.conditions["task"]}
        run["version"] = version_text(getattr(task, "task_version", None)) or None
        if self.metric is not None and self.metric != common_condition(self.conditions, "scorer"):
            run["scorer"], _, key = self.metric.partition(".")
            run["metric"] = key or None
        hashes = {}
        for sample in samples:
            item = self._item_of.get(str(sample.id))
            if item is not None and isinstance(sample.input, str):
                hashes[item] = text_hash(str(clip(sample.input)), clip(sample.target))
        index = self.conditions.index
        run["text_hash"] = [hashes.get(item) for item in index]
        self._check_conditions(pd.DataFrame(run, index=index))

    def _check_conditions(self, run: pd.DataFrame) -> None:
        """Raise where a run is under other conditions than the calibration."""
        check_conditions(self.conditions, run, self.mismatch, name="task", advice=ADVICE)

    def check_samples(self, sample_ids: set[str]) -> None:
        """Raise unless every unanswered item is among the samples."""
        answered = answers_of(self.session)
        missing = [
            sample
            for sample, item in self._item_of.items()
            if item not in answered and sample not in sample_ids
        ]
        if missing:
            must = f"a task with all samples of the bank (it has {len(sample_ids)})"
            raise argument_error("task", must, f"none with the id {shorten(missing[0])}")

    async def schedule_sample(self, id: str | int, epoch: int) -> Any:
        """Hold a sample until it is asked (returns None) or the session ends (EarlyStop)."""
        anyio = imported("anyio", "Inspect AI")
        item = self._item_of.get(str(id))
        event = self._events.setdefault(str(item), anyio.Event())
        self._release()
        if item is not None:
            await event.wait()
            if not self._ended and item in self.session.asked:
                self._start_times[item] = anyio.current_time()
                return None
        stop = imported("inspect_ai.util", "Inspect AI").EarlyStop
        reason = "not in the bank" if item is None else "not asked"
        return stop(id=id, epoch=epoch, reason=reason)

    async def complete_sample(self, id: str | int, epoch: int, scores: Mapping[str, Any]) -> None:
        """Record the answer, and release the samples asked next."""
        item = self._item_of.get(str(id))
        if item is None or item not in self._start_times or self.session.is_over:
            return  # after an error answers are still recorded
        seconds = imported("anyio", "Inspect AI").current_time() - self._start_times[item]
        try:
            values = {name: score.score for name, score in scores.items()}
            answer = Answer(item, self._value(item, values), seconds)
            record(self.session, answer, self.threshold)
            if self.progress is not None:
                self.progress(int(self.session.state.n), self.session.config.total_items, "answers")
        except Exception as error:
            self.error = self.error or error
            raise
        finally:
            self._release()

    def record_logged(self, logged: Mapping[str, Any]) -> None:
        """Record answers of earlier runs to the items asked, from summaries of samples by id.

        Answers that cannot be read are asked again.
        """
        remaining, n_recorded = dict(logged), 0
        samples = {item: sample for sample, item in self._item_of.items()}
        while logged_items := [item for item in self.session.asked if samples[item] in remaining]:
            summary = remaining.pop(samples[logged_items[0]])
            with suppress(InputError):
                value = self._value(logged_items[0], summary.scores)
                answer = Answer(logged_items[0], value, float(summary.total_time or 0.0))
                record(self.session, answer, self.threshold)
                n_recorded += 1
        if n_recorded:
            self.notes["logged"] = f"Answers from the log of an interrupted run: {n_recorded}."

    async def complete_task(self) -> dict[str, Any]:
        """The results of the session for the log."""
        estimates = self.session.estimate()
        names = ("theta", "se", "n_items", "score", "score_sd")
        return {
            "session": self.session.id,
            "reason": self.session.reason,
            "estimator": "bank",
            **{name: estimates[name] for name in names},
        }

    def _release(self) -> None:
        """Release the samples that are asked; all of them once the session is over."""
        for item in list(self._events) if self._ended else self.session.asked:
            if item in self._events:
                self._events[item].set()

    def _value(self, item: str, scores: Mapping[str, Any]) -> Any:
        """The value of the chosen score."""
        if not scores:
            raise argument_error("task", "a task that scores its samples", f"no score for {item}")
        known = common_condition(self.conditions, "scorer")
        default = known if known in scores else next(iter(scores))
        chosen = str(default if self.metric is None else self.metric)
        name, _, key = (chosen, "", "") if chosen in scores else chosen.partition(".")
        if not key and name == known:
            key = common_condition(self.conditions, "metric") or ""
        if name not in scores:
            raise argument_error("metric", f"one of the scorers {shorten(list(scores))}", name)
        value = scores[name].value
        if isinstance(value, Mapping):
            key = self._entry(name, value, key)
            value = value[key]
        run = {"task": self.conditions["task"].get(item), "scorer": name, "metric": key or None}
        self._check_conditions(pd.DataFrame(run, index=[item]))
        if len(scores) > 1 and self.metric is None and name != known:
            others = ", ".join(scorer for scorer in scores if scorer != name)
            self.notes["scorer"] = f"Scorer {name} was used (not {others})."
        return value

    def _entry(self, name: str, value: Mapping[str, Any], key: str) -> str:
        """The entry to use of a score that has several; the first where none is asked for."""
        is_given, key = bool(key), key or next(iter(value), "")
        if key not in value:
            have = shorten([f"{name}.{entry}" for entry in value])
            raise argument_error("metric", f"one of {have}", f"{name}.{key}")
        if len(value) > 1 and self.metric is None and not is_given:
            others = ", ".join(entry for entry in value if entry != key)
            self.notes["part"] = f"{brief(name)}: {brief(key)} was used (not {others})."
        return key


@dataclass(frozen=True)
class Inspect:
    """A model run by Inspect AI, in one evaluation with early stopping.

    The samples of a batch run at the same time. A sample that fails ends the run (after
    ``options={"retry_on_error": n}`` further tries), which can be continued later. Answers that an
    interrupted run in the folder has logged, but not returned, are then read from its log; samples
    that Inspect held only in memory when the process was killed are asked again.

    Attributes:
        task: an ``inspect_ai.Task``, or its name: file.py, file.py@name or a registered name.
        model: an ``inspect_ai`` model, its name, or ``file.py@name``, a function in a file that
            returns a model, with the option ``model_args`` as its arguments (for a mock with custom
            outputs use ``get_model(..., memoize=False)``, or Inspect reuses the first one created).
        metric: the scorer whose values are the answers, or "scorer.key"; by default that of the
            calibration, or else the first.
        log_dir: folder of the log; by default "inspect_logs" in the run's folder, or Inspect's
            default without one. Answers are read from the default folder only.
        task_args: arguments of a task given by name.
        options: further arguments of ``inspect_ai.eval`` (temperature, model_args, retry_on_error,
            ...); a ``solver`` may be a name: file.py@name or a registered one.
        threshold: scores of at least this count as right, others as wrong.
        mismatch: where scorer, version or data differ from those of the calibration, as far as the
            bank knows these: "refuse", or "accept".
    """

    task: Any = field(repr=False)
    model: Any = field(repr=False)
    metric: str | None = None
    log_dir: Any = None
    task_args: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    threshold: float | None = None
    mismatch: str = "refuse"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_choice("mismatch", self.mismatch, MISMATCH)
        check_options(self.options, RESERVED)

    def about(self) -> dict[str, Any]:
        """Task, model, and settings for reading the answers."""
        task = self.task if isinstance(self.task, str) else getattr(self.task, "name", "")
        options = {key: shorten(value, 200) for key, value in sorted(self.options.items())}
        arguments = {key: shorten(value, 200) for key, value in sorted(self.task_args.items())}
        return {
            "harness": "inspect",
            "task": str(task),
            "lm": str(self.model),
            "metric": self.metric,
            "task_args": arguments,
            "options": options,
            "threshold": self.threshold,
        }

    def check(self, items: Mapping[str, Item]) -> None:
        """Raise if Inspect AI is not installed."""
        imported("inspect_ai", "Inspect AI")

    def drive(
        self,
        session: Session,
        items: Mapping[str, Item],
        folder: OutputFolder | None,
        progress: Progress | None,
    ) -> list[str]:
        """Run the task until the session is over."""
        if session.is_over:
            return []
        inspect_ai = imported("inspect_ai", "Inspect AI")
        manager = Adaptive(
            session, items, self.metric, self.threshold, progress, mismatch=self.mismatch
        )
        task = self._task(inspect_ai, manager)
        log_dir = self.log_dir
        if folder is not None and not log_dir:
            log_dir = folder.folder(LOGS)
            manager.record_logged(_logged(log_dir))
        if session.is_over:
            return list(manager.notes.values())
        answered = answers_of(session)
        remaining = [item for item in items.values() if item.id not in answered]
        settings = {"log_dir": str(log_dir)} if log_dir else {}
        sample_ids = {str(sample.id) for sample in task.dataset if sample.id is not None}
        if sample_ids:
            manager.check_samples(sample_ids)
        model, options = self._model_and_options()
        try:
            logs = inspect_ai.eval(
                task,
                model=model,
                epochs=1,
                sample_id=[inspect_selector(item.sample) for item in remaining],
                max_samples=max(len(remaining), 1),
                fail_on_error=True,
                **{"display": "none", **settings, **options},
            )
        except Exception as error:  # such as an unknown model, task or option
            cause = f"{type(error).__name__}: {one_line(error)}"
            raise manager.error or InputError(f"Inspect could not run: {cause}") from error
        # The answers so far are saved.
        if manager.error is not None:
            raise manager.error
        log = logs[0]
        if log.status == "cancelled":
            raise KeyboardInterrupt
        if log.status != "success" or not session.is_over:
            cause = " ".join(str(log.error.message if log.error else log.status).split())
            raise InputError(f"Inspect's run failed ({cause}; {log.location}).")
        return list(manager.notes.values())

    def _model_and_options(self) -> tuple[Any, dict[str, Any]]:
        """The model, and the options of ``inspect_ai.eval``; both may be named by files."""
        model, options = self.model, dict(self.options)
        if is_in_file(model):
            model = model_in_file(model, options.pop("model_args", {}))
        if isinstance(options.get("solver"), str):
            spec = imported("inspect_ai.solver", "Inspect AI").SolverSpec
            options["solver"] = spec(options["solver"])
        return model, options

    def _task(self, inspect_ai: Any, manager: Adaptive) -> Any:
        """The task, with the early stopping of this session."""
        if not isinstance(self.task, str):
            return inspect_ai.task_with(copy.copy(self.task), early_stopping=manager)
        loader = imported("inspect_ai._eval.loader", "Inspect AI")
        try:
            tasks = loader.load_tasks([_relative(self.task)], dict(self.task_args))
        except Exception as error:  # the file may raise any error
            cause = f"{type(error).__name__}: {one_line(error)}"
            raise InputError(f"Inspect cannot load the task {brief(self.task)}: {cause}") from error
        if len(tasks) != 1:
            names = ", ".join(task.name for task in tasks) or "none"
            raise argument_error("task", "one task (file.py@name)", f"{self.task} with {names}")
        return inspect_ai.task_with(tasks[0], early_stopping=manager)


def _logged(folder: Path) -> dict[str, Any]:
    """The latest summary of each sample that earlier runs in the folder scored."""
    out: dict[str, Any] = {}
    if folder.is_dir():
        log = imported("inspect_ai.log", "Inspect AI")
        for file in log.list_eval_logs(str(folder)):  # latest first
            with suppress(Exception):  # a truncated log: its samples are asked again
                for summary in log.read_eval_log_sample_summaries(file):
                    if summary.scores and not summary.error:
                        out.setdefault(str(summary.id), summary)
    return out


def _relative(task: str) -> str:
    """The task with a relative path: Inspect does not accept absolute ones."""
    file, separator, name = task.partition("@")
    return os.path.relpath(file) + separator + name if os.path.isabs(file) else task

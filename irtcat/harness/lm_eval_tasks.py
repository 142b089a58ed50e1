"""lm-evaluation-harness, driven by its Python API in batches of selected documents.

Replies of the model are cached, so that an interrupted batch is not paid twice. lm-eval's own cache
contains pickles, which run code when they are read; this one contains JSON.
"""

import hashlib
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from irtcat._common.checks import InputError, argument_error, brief, check_choice, one_line, shorten
from irtcat._files.folders import OutputFolder
from irtcat._files.reading import numbered_lines, parse_json
from irtcat._files.writing import replacing
from irtcat.cat import Session
from irtcat.harness.answers import (
    Answer,
    Progress,
    answers_of,
    ask_until_over,
    check_failures,
    check_options,
)
from irtcat.harness.extras import imported, is_in_file, model_in_file
from irtcat.harness.items import Item, common_condition, known_conditions
from irtcat.io.logs.choose import FIRST
from irtcat.io.logs.lm_eval import task_version
from irtcat.responses._conditions import MISMATCH, check_conditions

METHODS = ("generate_until", "loglikelihood", "loglikelihood_rolling")
SCALARS = (str, bool, int, float)


class Replies:
    """The replies to requests of lm-eval, in a JSON lines file.

    A request is identified by its method, task, document, number within the document, and
    arguments. Two documents with the same prompt have separate replies.
    """

    def __init__(self, path: Path):
        """Read the stored replies.

        Args:
            path: the file; it need not exist.
        """
        self.path = path
        self._replies: dict[str, Any] = dict(_read(path))
        self._waiting: dict[str, deque[str]] = {}

    @contextmanager
    def cached(self, model: Any) -> Iterator[None]:
        """Within this context the model reuses stored replies, and new ones are stored.

        Args:
            model: an object of lm-eval's class LM; it is restored at the end.
        """
        own = vars(model)
        replaced: dict[str, Any] = {m: self._replying(m, getattr(model, m)) for m in METHODS}
        replaced["cache_hook"] = self
        earlier = {name: own[name] for name in replaced if name in own}
        own.update(replaced)
        try:
            yield
        finally:
            for name in replaced:
                del own[name]
            own.update(earlier)

    def _replying(self, method: str, ask: Callable[..., Any]) -> Callable[..., list[Any]]:
        """A method of the model that only asks requests without a stored reply."""

        def answer(requests: list[Any], **options: Any) -> list[Any]:
            keys = list(_keys(method, requests))
            unanswered = [i for i, key in enumerate(keys) if key not in self._replies]
            self._waiting = {}
            for i in unanswered:
                queue = self._waiting.setdefault(_digest(method, *requests[i].args), deque())
                queue.append(keys[i])
            replies = [self._replies.get(key) for key in keys]
            if unanswered:
                new_replies = ask([requests[i] for i in unanswered], **options)
                for i, reply in zip(unanswered, new_replies, strict=True):
                    replies[i] = reply
                    self._store(keys[i], reply)
            return replies

        return answer

    def add_partial(self, method: str, args: Any, reply: Any) -> None:
        """Store a reply as soon as the model returns it; models call this method of their cache."""
        if keys := self._waiting.get(_digest(method, *args)):
            self._store(keys.popleft(), reply)

    def _store(self, key: str, reply: Any) -> None:
        if key in self._replies or not _is_plain(reply):
            return
        self._replies[key] = reply
        append(self.path, [{"key": key, "reply": reply}])


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Append JSON lines to a file; they are on disk when this returns."""
    text = "".join(json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in rows)
    with path.open("ab") as file:
        file.write(text.encode("utf-8", errors="backslashreplace"))
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> Iterator[tuple[str, Any]]:
    """The replies of a file, without a line that a killed process did not finish."""
    lines = list(numbered_lines(path)) if path.exists() else []
    for _, line, _ in lines:
        try:
            # Not parse_json: it must keep lone surrogates of a model's reply.
            row = json.loads(line)
            key, reply = row["key"], row["reply"]
        except (ValueError, TypeError, LookupError, RecursionError):
            continue
        reply = tuple(reply) if isinstance(reply, list) else reply
        if isinstance(key, str) and _is_plain(reply):
            yield key, reply
    if lines and not lines[-1][2]:
        with path.open("ab") as file:
            file.write(b"\n")


def _is_plain(reply: Any) -> bool:
    """Whether JSON preserves the reply."""
    parts = reply if isinstance(reply, tuple) else (reply,)
    return all(type(part) in SCALARS for part in parts)


def _keys(method: str, requests: list[Any]) -> Iterator[str]:
    """The key of each request; a repeated request gets a number, so that it is asked again."""
    counts: Counter[str] = Counter()
    for request in requests:
        # Not doc_id: in a reduced run that is the position in the list of documents, which changes.
        identity = (getattr(request, name, None) for name in ("task_name", "doc", "idx"))
        key = _digest(method, *identity, *request.args)
        counts[key] += 1
        yield f"{key}-{counts[key]}"


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()


OF_MODEL = ("batch_size", "max_batch_size", "device")
"""Options of ``simple_evaluate`` that are arguments of the model."""

RESERVED = (
    *("model", "model_args", "tasks", "samples", "limit", "task_manager", "log_samples"),
    *("bootstrap_iters", "use_cache"),
)
"""Options of ``simple_evaluate`` that irtcat sets itself."""

ADVICE = "Run it with the settings of the calibration, and the version of its data"

SAMPLES, REPLIES = "samples_{}.jsonl", "lm_eval_replies.jsonl"


@dataclass(frozen=True)
class LmEval:
    """A model run by lm-evaluation-harness (0.4.9 or later).

    The documents asked run with ``simple_evaluate(..., samples={task: numbers})``, without other
    tasks; the model is created once. If the bank knows under which conditions its items were
    calibrated (metric, filter, number of examples, version of the task, hashes of the documents),
    they must match the run. The run's folder stores every sample as lm-eval logs it
    (``samples_<task>.jsonl``) and each reply of the model (``lm_eval_replies.jsonl``), so that an
    interrupted batch is not paid for twice. lm-eval's own cache is not used: it contains pickles,
    which run code when they are read.

    Attributes:
        model: an object of lm-eval's class LM, the name of a model type, such as "hf", or
            ``file.py@name``, a class or function in a file that returns such an object.
        model_args: its arguments, "name=value,..." or a mapping, if ``model`` is a name.
        metric: the metric whose values are the answers; by default that of the calibration, or else
            the one that `irtcat.read_logs` uses.
        filter: filter of lm-eval, if a task has several; by default that of the calibration, or
            else the first.
        include_path: folder of additional task files, or several.
        options: further arguments of ``simple_evaluate`` (num_fewshot, batch_size, gen_kwargs,
            apply_chat_template, ...); ``metadata`` are arguments of the tasks.
        retries: number of retries of a failed batch.
        on_error: after that "stop" (the run can be continued later) or "skip" the items.
        threshold: scores of at least this count as right, others as wrong.
        mismatch: where conditions differ from those of the calibration: "refuse", or "accept".
    """

    model: Any = field(repr=False)
    model_args: str | Mapping[str, Any] = ""
    metric: str | None = None
    filter: str | None = None
    include_path: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 0
    on_error: str = "stop"
    threshold: float | None = None
    mismatch: str = "refuse"

    def __post_init__(self) -> None:
        """Check the settings."""
        check_choice("mismatch", self.mismatch, MISMATCH)
        check_failures(self.retries, self.on_error)
        check_options(self.options, RESERVED)

    def about(self) -> dict[str, Any]:
        """The model, and settings for reading its answers."""
        name = self.model if isinstance(self.model, str) else type(self.model).__qualname__
        args = self.model_args if isinstance(self.model_args, str) else dict(self.model_args)
        options = {key: shorten(value, 200) for key, value in sorted(self.options.items())}
        return {
            "harness": "lm-eval",
            "lm": name,
            "model_args": args,
            "metric": self.metric,
            "filter": self.filter,
            "options": options,
            "threshold": self.threshold,
        }

    def check(self, items: Mapping[str, Item]) -> None:
        """Raise if lm-eval is not installed, or an item has no task or number."""
        imported("lm_eval", "lm-evaluation-harness")
        include_path = self.include_path
        for folder in include_path if isinstance(include_path, (list, tuple)) else [include_path]:
            if folder is not None and not os.path.isdir(folder):
                raise argument_error("include_path", "a folder of task files", str(folder))
        for item in items.values():
            if not item.task:
                advice = "Give the task, or the imported responses as the items."
                raise InputError(
                    f"lm-eval needs the task of every item. Got none for {brief(item.id)}. {advice}"
                )
            item.index  # noqa: B018  raises if it is not a number

    def drive(
        self,
        session: Session,
        items: Mapping[str, Item],
        folder: OutputFolder | None,
        progress: Progress | None,
    ) -> list[str]:
        """Run batches of documents until the session is over."""
        if session.is_over:
            return []
        conditions = known_conditions(session.bank.items, items)
        # Raise where requested settings differ from the calibration, before anything is run.
        requested = {"metric": self.metric, "filter": self.filter}
        requested["num_fewshot"] = self.options.get("num_fewshot")
        self._check_conditions(conditions, conditions[["task"]].assign(**requested))
        running = _Running(self, folder, conditions)
        running.forget_samples(session, items)
        skipped = ask_until_over(session, items, running.ask, progress, self)
        return [*running.notes.values(), *skipped]

    def _check_conditions(self, known: pd.DataFrame, run: pd.DataFrame) -> None:
        """Raise where a run is under other conditions than the calibration."""
        check_conditions(known, run, self.mismatch, name="model", advice=ADVICE)


class _Running:
    """A run in progress: the model, the task manager, and messages."""

    def __init__(self, harness: LmEval, folder: OutputFolder | None, conditions: pd.DataFrame):
        self.harness, self.folder, self.conditions = harness, folder, conditions
        tasks = set(conditions["task"])
        self.notes: dict[str, str] = {}
        self.lm_eval = imported("lm_eval", "lm-evaluation-harness")
        manager = imported("lm_eval.tasks", "lm-evaluation-harness").TaskManager
        self.tasks = _manager(manager, harness.include_path, tasks, harness.options.get("metadata"))
        self.model = harness.model if not isinstance(harness.model, str) else self._created_model()
        self.replies = None if folder is None else Replies(folder.file(REPLIES))

    def _created_model(self) -> Any:
        """Create the model from its name and arguments."""
        registry = imported("lm_eval.api.registry", "lm-evaluation-harness")
        args = self.harness.model_args
        # simple_evaluate passes these to models that it creates itself, and to no other.
        options = {name: self.harness.options.get(name) for name in OF_MODEL}
        if is_in_file(self.harness.model):
            if isinstance(args, str):
                parsed = imported("lm_eval.utils", "lm-evaluation-harness")
                args = parsed.simple_parse_args_string(args)
            known = {name: value for name, value in options.items() if value is not None}
            return model_in_file(self.harness.model, {**args, **known})
        try:
            kind = registry.get_model(self.harness.model)
            if isinstance(args, str):
                return kind.create_from_arg_string(args, options)
            return kind.create_from_arg_obj(dict(args), options)
        except Exception as error:  # a model may raise any error
            named = f"the model {brief(self.harness.model)}"
            raise InputError(f"lm-eval cannot create {named}: {one_line(error)}") from error

    def ask(self, items: list[Item]) -> Iterator[Answer]:
        """Run a batch and return its answers; each document runs once, in rising order."""
        started = time.monotonic()
        items_of: dict[str, dict[int, Item]] = {}
        for item in items:
            items_of.setdefault(item.task, {})[item.index] = item
        samples = {task: sorted(numbered) for task, numbered in items_of.items()}
        with nullcontext() if self.replies is None else self.replies.cached(self.model):
            results = self.lm_eval.simple_evaluate(
                model=self.model,
                tasks=list(samples),
                task_manager=self.tasks,
                samples=samples,
                bootstrap_iters=0,
                log_samples=True,
                **self.harness.options,
            )
        seconds = (time.monotonic() - started) / len(items)
        if self.folder is not None:
            for name, samples_of in results["samples"].items():  # as lm-eval would log them
                append(self.folder.file(_samples_file(name)), samples_of)
        for task, numbered in items_of.items():
            for name, value in self._values(results, task, numbered).items():
                yield Answer(name, value, seconds)

    def _values(
        self, results: Mapping[str, Any], task: str, numbered: Mapping[int, Item]
    ) -> dict[str, Any]:
        """The answers to the documents of a task; raises where conditions differ."""
        rows = self._rows(task, results["samples"].get(task, []))
        if sorted(rows) != sorted(numbered):
            must = f"documents {shorten(sorted(numbered))} of {brief(task)}"
            raise InputError(f"lm-eval was asked to run {must}. Got {shorten(sorted(rows))}.")
        of_items = {item.id: rows[index] for index, item in numbered.items()}
        metrics = {item.id: self._metric(item, of_items[item.id]) for item in numbered.values()}
        run = {
            "task": task,
            "metric": list(metrics.values()),
            "filter": [row.get("filter") for row in of_items.values()],
            "num_fewshot": results.get("n-shot", {}).get(task),
            "version": task_version(results.get("versions", {}).get(task)) or None,
            "hash": [row.get("doc_hash") for row in of_items.values()],
        }
        table = pd.DataFrame(run, index=pd.Index(list(of_items), dtype=object))
        self.harness._check_conditions(self.conditions, table)
        return {name: row[metrics[name]] for name, row in of_items.items()}

    def forget_samples(self, session: Session, items: Mapping[str, Item]) -> None:
        """Remove logged samples of an interrupted batch without an answer: they are run again."""
        done = answers_of(session)
        answered: dict[str, set[int]] = {}
        for item in items.values():
            numbers = answered.setdefault(_samples_file(item.task), set())
            if item.id in done:
                numbers.add(item.index)
        for name, numbers in answered.items():
            if self.folder is None or not (path := self.folder.path / name).exists():
                continue
            lines = path.read_bytes().splitlines(keepends=True)
            retained = [line for line in lines if _document_of(line) in numbers]
            if retained != lines:
                with replacing(self.folder.file(name)) as file:
                    file.writelines(retained)

    def _rows(self, task: str, rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """The samples of the selected filter by document number."""
        filters = list(dict.fromkeys(str(row.get("filter", "")) for row in rows))
        if not filters:
            return {}
        if len(filters) == 1 and self.harness.filter not in (None, "", *filters):
            note = f"{task}: its only filter is {filters[0]}, not {self.harness.filter}."
            self.notes[f"{task} filter"], selected = note, filters[0]
        else:
            selected = self._choose("filter", task, filters, filters[0])
        return {row["doc_id"]: row for row in rows if str(row.get("filter", "")) == selected}

    def _metric(self, item: Item, row: Mapping[str, Any]) -> str:
        """The metric whose value is the answer."""
        metrics = list(row.get("metrics", ()))
        if not metrics:
            raise InputError("The task has no metric. Name another task.")
        # The one that `irtcat.read_logs` would use.
        first = min(metrics, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
        return self._choose("metric", item.task, metrics, first)

    def _choose(self, what: str, task: str, names: list[str], default: str) -> str:
        """The metric or filter to use: as asked, else as in the calibration, else the default."""
        asked = getattr(self.harness, what)
        known = common_condition(self.conditions, what, task)
        selected = str(asked or (known if known in names else default))
        if selected not in names:
            must = f"one of {', '.join(names)} (task {brief(task)})"
            raise argument_error(what, must, selected)
        if len(names) > 1 and asked is None and known not in names:
            others = ", ".join(name for name in names if name != selected)
            self.notes[f"{task} {what}"] = f"{task}: {what} {selected} was used (not {others})."
        return selected


def _samples_file(task: str) -> str:
    """The name of the file of a task's samples."""
    return SAMPLES.format("".join(c if c.isalnum() or c in "-_." else "_" for c in task))


def _document_of(line: bytes) -> int | None:
    """The number of the document of a logged sample; None for a line that was not finished."""
    try:
        number = parse_json(line, SAMPLES)["doc_id"] if line.endswith(b"\n") else None
    except (InputError, TypeError, LookupError):
        return None
    return number if isinstance(number, int) else None


def _manager(manager_class: Any, include_path: Any, tasks: set[str], metadata: Any) -> Any:
    """The task manager: the thousands of default tasks are indexed only if one is needed."""
    settings = {"include_path": include_path} | ({"metadata": metadata} if metadata else {})
    if include_path is not None:
        manager = manager_class(**settings, include_defaults=False)
        if tasks <= set(manager.all_tasks):
            return manager
    return manager_class(**settings)

"""Exports of reduced runs: a subset of the items in the format of a harness."""

import glob
import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from irtcat._common.checks import InputError, argument_error, brief, check_choice, visible
from irtcat._common.numbers import whole_number_in
from irtcat._files.writing import replacing
from irtcat.harness.items import Item, read_ids, read_items

NEW_LOGS = "new"
"""Folder of the logs of the printed commands; not one in which those of the calibration may be."""

LONGEST = 100_000
"""Maximum number of characters of an argument, on any system."""


@dataclass(frozen=True)
class Export:
    """A subset in the format of a harness.

    Attributes:
        to: the harness.
        text: contents of the file.
        items: the items, in the order of the subset.
        file: default name of the file.
    """

    to: str
    text: str
    items: tuple[Item, ...]
    file: str

    def __repr__(self) -> str:
        n_tasks = max(len(self.tasks), 1)
        tasks = "1 task" if n_tasks == 1 else f"{n_tasks} tasks"
        return f"Export({len(self.items)} items to {self.to}, {tasks})"

    def __len__(self) -> int:
        return len(self.items)

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, in alphabetical order."""
        return sorted({item.task for item in self.items if item.task})

    def commands(
        self, path: str | os.PathLike[str] | None = None, model: str = "MODEL"
    ) -> list[str]:
        """The commands that run the items and log every answer.

        Args:
            path: where the file was written; by default `file`.
            model: name of the model in the harness.

        Returns:
            One command, or one for each task with Inspect; empty if the format has no harness.
        """
        build = COMMANDS.get(self.to)
        return [] if build is None else build(self, str(path or self.file), model)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the file atomically.

        Returns:
            The path.
        """
        with replacing(path) as file:
            file.write(self.text.encode("utf-8"))
        return Path(path)

    def to_frame(self) -> pd.DataFrame:
        """The items with their tasks and samples."""
        rows = [(item.id, item.task, item.sample) for item in self.items]
        return pd.DataFrame(rows, columns=["item", "task", "sample"]).set_index("item")


def export(subset: Any, to: str = "ids", items: Any = None, task: str | None = None) -> Export:
    """Convert a subset to the format in which a harness runs only these items.

    | to | the file | run by |
    |---|---|---|
    | lm-eval | JSON {task: document numbers}, sorted, each once | lm_eval --samples |
    | inspect | the sample ids, separated by commas, one line per task | --sample-id |
    | ids | one id per line | any tool that reads ids |
    | every-eval-ever | JSON lines {evaluation_name, sample_id} | |

    lm-eval runs the whole task if its list is empty or the task is not in the file, and logs wrong
    document numbers if the list is not sorted or has duplicates. The file avoids this, and the
    command names only the tasks of the file.

    Args:
        subset: a `Subset`, a `ShortForm`, or item ids.
        to: one of the above.
        items: task and sample of each item: a table by item id, the imported `Responses` or the
            `ItemBank`, with the columns task and sample_id (or doc_id). A short form has its own.
        task: the task of all items, if the table has none; for Inspect also the file.

    Returns:
        The export: `Export.text`, `Export.write`, `Export.commands`.

    Raises:
        InputError: for an unknown format, no items, duplicate items, an item that is not in the
            table or has no task or number, or two items with the same sample.

    Example:
        >>> table = pd.DataFrame({"task": "quiz", "doc_id": [4, 0, 7]}, index=["x", "y", "z"])
        >>> reduced = export(["z", "x"], "lm-eval", table)
        >>> reduced.text
        '{"quiz": [4, 7]}'
        >>> print(reduced.commands("few.json", model="hf")[0])
        lm_eval --model hf --tasks quiz --samples few.json --log_samples --output_path new
    """
    check_choice("to", to, EXPORTS)
    if items is None and isinstance(getattr(subset, "items", None), pd.DataFrame):
        items = subset.items  # a short form knows where its items are
    selected = tuple(read_items(read_ids(subset, items), items, task))
    text, file = EXPORTS[to](selected)
    return Export(to, text, selected, file)


def _by_task(items: tuple[Item, ...], to: str) -> dict[str, list[Item]]:
    """The items of every task, with the tasks in alphabetical order."""
    out: dict[str, list[Item]] = {}
    for item in items:
        if not item.task:
            advice = "Give the table with a column task (irtcat import keeps it), or the task."
            must = f"Every item must be of a known task to be exported to {to}"
            raise InputError(f"{must}. Got none for {brief(item.id)}. {advice}")
        out.setdefault(item.task, []).append(item)
    return dict(sorted(out.items()))


def _to_lm_eval(items: tuple[Item, ...]) -> tuple[str, str]:
    """JSON of the document numbers of each task."""
    samples = {
        task: sorted(item.index for item in members)
        for task, members in _by_task(items, "lm-eval").items()
    }
    for task, numbers in samples.items():
        if any(c in task for c in ",*?[") or task != task.strip():
            must = "tasks without commas, wildcards (* ? [) and blanks at the ends"
            raise argument_error("items", f"{must}, which lm-eval reads as other tasks", task)
        if len(set(numbers)) < len(numbers):  # "7" and "07"
            repeated = next(n for n, after in pairwise(numbers) if n == after)
            must = "a table with a different sample for every item"
            raise argument_error("items", must, f"document {repeated} of task {task} twice")
    return json.dumps(samples), "samples.json"


def _run_lm_eval(reduced: Export, path: str, model: str) -> list[str]:
    words = ["lm_eval", *_option("--model", model), *_option("--tasks", ",".join(reduced.tasks))]
    words += [*_option("--samples", path), "--log_samples", "--output_path", NEW_LOGS]
    return [_command(words)]


def _option(name: str, value: str) -> list[str]:
    """An option with its value, written so that the value is never parsed as an option."""
    return [f"{name}={value}"] if value.startswith("-") else [name, value]


def _command(words: list[str]) -> str:
    """The words as a quoted shell command.

    Raises:
        InputError: for a word with control characters, which a terminal would interpret.
    """
    for word in words:
        if visible(word) != word:
            raise argument_error("command", "words without control characters", word)
    return shlex.join(words)


def inspect_selector(sample: str) -> str:
    """A sample id for Inspect's ``--sample-id``: a pattern that matches only this id.

    Inspect parses ``*``, ``?`` and ``[`` as wildcards, and text before a colon as the name of a
    task, if there is such a task. It may warn that a pattern is "not found in dataset", but it runs
    the sample.

    Example:
        >>> [inspect_selector(sample) for sample in ("q7", "what?", "quiz:3")]
        ['q7', 'what[?]', 'quiz[:]3']
    """
    return glob.escape(sample).replace(":", "[:]")


def _to_inspect(items: tuple[Item, ...]) -> tuple[str, str]:
    """One line of sample ids for each task."""
    for item in items:
        several_lines = len(item.sample.splitlines()) > 1  # also by U+2028 and others
        if "," in item.sample or several_lines or item.sample != item.sample.strip():
            must = "without commas, line breaks and blanks at the ends"
            advice = "Give them to inspect_ai.eval(sample_id=[...]) in Python."
            raise argument_error("items", f"sample ids {must}", item.sample, advice)
    for task in _by_task(items, "inspect"):
        if any(c in task for c in "*?["):
            must = "tasks without wildcards (* ? [), which Inspect expands to several files"
            raise argument_error("items", must, task)
    lines = [
        ",".join(sorted((inspect_selector(item.sample) for item in members), key=_natural))
        for members in _by_task(items, "inspect").values()
    ]
    return "\n".join(lines) + "\n", "sample_ids.txt"


def _natural(text: str) -> tuple[int, int, str]:
    """Sort key: numbers by size, before other ids."""
    number = whole_number_in(text)
    return (1, 0, text) if number is None else (0, number, text)


def _run_inspect(reduced: Export, path: str, model: str) -> list[str]:
    commands = []
    lines = reduced.text.splitlines()
    for number, (task, ids) in enumerate(zip(reduced.tasks, lines, strict=True)):
        if len(ids) <= LONGEST:
            words = [*_option("--model", model), "--log-dir", NEW_LOGS]
            words += _option("--sample-id", ids)
            task_last = ["--", task] if task.startswith("-") else []
            task_first = [] if task_last else [task]
            commands.append(_command(["inspect", "eval", *task_first, *words, *task_last]))
            continue
        sample_ids = f"Path({path!r}).read_text().splitlines()[{number}].split(',')"
        settings = f"model={model!r}, log_dir={NEW_LOGS!r}, sample_id={sample_ids}"
        call = f"inspect_ai.eval({task!r}, {settings})"
        code = f"import inspect_ai; from pathlib import Path; {call}"
        commands.append(_command(["python", "-c", code]))
    return commands


def _to_ids(items: tuple[Item, ...]) -> tuple[str, str]:
    """One id per line."""
    for item in items:
        if "\n" in item.id or "\r" in item.id:
            raise argument_error("subset", "ids without line breaks", item.id)
    return "".join(f"{item.id}\n" for item in items), "ids.txt"


def _to_every_eval_ever(items: tuple[Item, ...]) -> tuple[str, str]:
    """JSON lines with the keys that identify a sample in that format."""
    lines = []
    for task, members in _by_task(items, "every-eval-ever").items():
        for item in members:
            row: dict[str, Any] = {"evaluation_name": task, "sample_id": item.sample}
            metadata = {"metadata": {"doc_hash": item.hash}} if item.hash else {}
            lines.append(json.dumps(row | metadata))
    return "".join(f"{line}\n" for line in lines), "samples.jsonl"


EXPORTS: dict[str, Callable[[tuple[Item, ...]], tuple[str, str]]] = {
    "lm-eval": _to_lm_eval,
    "inspect": _to_inspect,
    "ids": _to_ids,
    "every-eval-ever": _to_every_eval_ever,
}
"""Formats by name: functions of the items that return the text of the file and its default name."""

COMMANDS: dict[str, Callable[[Export, str, str], list[str]]] = {
    "lm-eval": _run_lm_eval,
    "inspect": _run_inspect,
}
"""Functions that build the commands, by harness."""

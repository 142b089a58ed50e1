"""Results of Terminal-Bench runs: whether each trial of a task is resolved."""

from collections.abc import Iterator
from pathlib import Path

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import read_json
from irtcat.io.logs.format import LogFormat, Request, Run, json_with
from irtcat.io.logs.values import as_object, as_text

TASK, METRIC = "terminal-bench", "resolved"
METADATA = "run_metadata.json"


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one ``results.json`` of a run, whose metadata beside it name agent and model.

    Trials of a task are trials of an item; a trial that was not scored has none.

    Raises:
        InputError: naming the file and the trial.
    """
    document = as_object(read_json(path, request.max_bytes), str(path), "the results")
    trials = document.get("results")
    if not isinstance(trials, list) or not trials:
        raise InputError(f"{path}: expected results of trials. Got {shorten(trials)}.")
    run = Run(TASK, path.parent.name, str(path), session=str(path.parent), name_source="folder")
    metadata = path.with_name(METADATA)
    if metadata.is_file():
        about = as_object(read_json(metadata), str(metadata), "the metadata")
        names = [about.get(key) for key in ("agent_name", "model_name")]
        if any(names):
            run.model, run.name_source = " + ".join(str(name) for name in names if name), "log"
        run.task_version = str(about.get("dataset_version") or "")
    for number, trial in enumerate(trials, start=1):
        location = f"{path}, trial {number}"
        trial = as_object(trial, location, "a trial")
        task = as_text(trial.get("task_id"), location, "task_id")
        item = run.item(task, sample=task, trust=2)
        count = run.next_trial(item)
        run.add_answer(item, trial.get("is_resolved"), METRIC, location=location, trial=count)
    yield run


TERMINAL_BENCH = LogFormat(
    "terminal-bench",
    json_with("task_id", "is_resolved", "results"),
    _read,
    "``results.json`` of Terminal-Bench runs",
    "https://www.tbench.ai",
    is_beside=lambda file: file.path.name == METADATA,
    samples="names",
)

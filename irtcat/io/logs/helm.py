"""Run folders of HELM: the statistics of each instance, and the run's other files."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import read_json
from irtcat.io.logs.format import LogFormat, Request, Run, Skipped
from irtcat.io.logs.values import (
    CutError,
    as_object,
    as_text,
    json_rows,
    model_arguments,
    objects_in,
    part_of,
    show_settings,
)

FILE, SPEC = "per_instance_stats.json", "run_spec.json"
BESIDE = (
    *(SPEC, "scenario.json", "scenario_state.json", "stats.json", "instances.json"),
    *("display_predictions.json", "display_requests.json"),
)
SETTINGS = ("method", "instructions", "max_train_instances", "num_train_trials", "temperature")


def _alone(paths: list[Path], logs: list[Path] | None) -> Iterator[Skipped]:
    """Runs without statistics, reported once; and files that only have the names of HELM's."""
    for path in paths if logs is not None else ():
        if path.with_name(FILE).is_file() or (path.name != SPEC and path.with_name(SPEC).is_file()):
            continue
        reason = f"{path}: there is no {FILE} beside it. The run has not ended, or failed."
        is_run = path.name == SPEC
        yield Skipped(str(path), reason if is_run else "", is_run)


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read the ``per_instance_stats.json`` of a run folder; perturbed instances are skipped.

    The metrics are those named in the run's ``run_spec.json``, by split ("test", "valid": the
    filter). Several train trials of an instance are repeated trials of an item.

    Raises:
        InputError: naming the file and the invalid instance.
    """
    spec_file = path.with_name(SPEC)
    if not spec_file.is_file():
        raise CutError(f"{path}: there is no {SPEC} beside it, which names the model.")
    spec = as_object(read_json(spec_file), str(spec_file), "the run")
    adapter = as_object(spec.get("adapter_spec"), str(spec_file), "adapter_spec")
    model = as_text(adapter.get("model"), str(spec_file), "adapter_spec.model")
    name = as_text(spec.get("name"), str(spec_file), "name")
    task = re.sub(r"(?<=[:,])model=[^,]*,?", "", name).rstrip(":,")
    run = Run(task, model, str(path), session=str(path.parent))
    run.settings = show_settings((key, adapter.get(key)) for key in SETTINGS)
    run.arguments = model_arguments({"deployment": adapter.get("model_deployment")})
    shots = adapter.get("max_train_instances")
    run.num_fewshot = shots if isinstance(shots, int) else None
    metrics = _metrics(spec)
    texts = _texts(path.with_name("scenario_state.json"), request.max_bytes)
    for location, instance in json_rows(path, request.max_bytes, "an instance"):
        if instance.get("perturbation") is None:
            _add(run, instance, location, metrics, texts)
    if not run.columns:
        raise InputError(f"{path}: expected one of the metrics {shorten(sorted(metrics))}.")
    _compare(run, path.with_name("stats.json"), request.max_bytes)
    yield run


def _metrics(spec: dict[str, Any]) -> set[str]:
    """The metrics of single instances that the run requests; empty if it names none."""
    metrics: set[str] = set()
    for metric in objects_in(spec.get("metric_specs")):
        names = part_of(metric, "args", "names")
        if isinstance(names, list):
            metrics |= {name for name in names if isinstance(name, str)}
    return metrics


def _texts(path: Path, max_bytes: int) -> dict[str, tuple[Any, Any]]:
    """Text and correct answer of each instance; empty if the run did not store them."""
    try:
        states = read_json(path, max_bytes)["request_states"]
        out = {}
        for state in states:
            instance = state["instance"]
            right = [r["output"]["text"] for r in instance["references"] if "correct" in r["tags"]]
            target = right[0] if len(right) == 1 else right
            out[str(instance["id"])] = instance["input"]["text"], target or None
    except (OSError, InputError, KeyError, TypeError, IndexError):
        return {}
    return out


def _add(
    run: Run,
    instance: dict[str, Any],
    location: str,
    metrics: set[str],
    texts: dict[str, tuple[Any, Any]],
) -> None:
    """Add the statistics of one instance in one train trial."""
    sample = as_text(instance.get("instance_id"), location, "instance_id")
    trial = instance.get("train_trial_index", 0)
    if not isinstance(trial, int) or run.next_trial(sample, trial):
        raise InputError(
            f"{location}: instance {shorten(sample)} occurs twice in train trial {shorten(trial)}."
        )
    stats = instance.get("stats")
    if not isinstance(stats, list):
        raise InputError(f"{location}: expected stats to be a list. Got {shorten(stats)}.")
    text, target = texts.get(sample, (None, None))
    item = run.item(sample, sample=sample, trust=2, text=text, target=target)
    is_scored = False
    for stat in stats:
        stat = as_object(stat, location, "a statistic")
        label = as_object(stat.get("name"), location, "the name of a statistic")
        metric = as_text(label.get("name"), location, "the name of a statistic")
        if label.get("perturbation") is not None or (metrics and metric not in metrics):
            continue
        if "mean" not in stat and stat.get("count") != 0:
            raise InputError(f"{location}: the statistic {shorten(metric)} has no mean.")
        if "mean" in stat:
            split = str(label.get("split") or "")
            run.add(item, stat["mean"], metric, source=split, location=location, trial=trial)
            is_scored = True
    if not is_scored:
        run.unscored.append((item, trial))


def _compare(run: Run, path: Path, max_bytes: int) -> None:
    """Raise if the instances do not reproduce the run's own means."""
    if not path.is_file():
        return
    for stat in objects_in(read_json(path, max_bytes)):
        label = stat.get("name")
        if not isinstance(label, dict) or label.get("perturbation") is not None:
            continue
        column = str(label.get("split") or ""), str(label.get("name"))
        if message := run.wrong_mean(column, stat.get("mean"), column[1], str(path)):
            raise InputError(message)


HELM = LogFormat(
    "helm",
    lambda file: file.path.name == FILE,
    _read,
    "run folders of HELM",
    "https://crfm-helm.readthedocs.io",
    is_beside=lambda file: file.path.name in BESIDE,
    alone=_alone,
)

"""Results files of lighteval: model, settings and totals of a run."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from irtcat._checks import InputError, shorten
from irtcat._reading import read_json
from irtcat.io._logs import as_object, as_text, show_settings
from irtcat.io.lm_eval import STAMP

__all__ = ["DETAILS", "Totals", "find_totals", "model_by_folder"]

DETAILS = re.compile(rf"details_(?P<task>.+)_(?P<stamp>{STAMP})\.parquet")
SETTINGS = (
    *("revision", "dtype", "quantization", "provider", "max_length", "max_model_length", "seed"),
    *("system_prompt", "override_chat_template", "add_special_tokens"),
    "multichoice_continuations_start_space",
)


@dataclass(frozen=True)
class Totals:
    """The content of the results file of a run, which also wrote the details files.

    Attributes:
        file: its path.
        model: the model's name.
        tasks: the tasks that were run, as "name|shots".
        document: the full JSON document.
    """

    file: str
    model: str
    tasks: frozenset[str]
    document: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "Totals":
        """Read and check a results file."""
        document = as_object(read_json(path), str(path), "the results")
        for name in ("config_general", "results"):
            if name not in document:
                raise InputError(f"{path}: expected the key {name}. Got {shorten(list(document))}.")
        for name in ("config_general", "results", "config_tasks"):
            as_object(document.get(name, {}), str(path), name)
        general = document["config_general"]
        model = as_text(general.get("model_name"), str(path), "model_name")
        averages = re.compile(r"all|.*:_average(\|.*)?")
        tasks = frozenset(name for name in document["results"] if not averages.fullmatch(name))
        return cls(str(path), model, tasks, document)

    def total(self, task: str, metric: str) -> Any:
        """The task's total of a metric, or None."""
        totals = self.document["results"].get(task)
        return totals.get(metric) if isinstance(totals, dict) else None

    def settings(self, task: str) -> dict[str, Any]:
        """Settings of the run that affect the scores."""
        general, config = self.document["config_general"], self._config(task)
        model = general.get("model_config")
        model = model if isinstance(model, dict) else {}
        generation = model.get("generation_parameters")
        generation = generation if isinstance(generation, dict) else {}
        pairs = [(name, model.get(name)) for name in SETTINGS]
        parameters = {name: value for name, value in generation.items() if value is not None}
        pairs.append(("generation_parameters", parameters))
        pairs.append(("max_samples", general.get("max_samples")))
        pairs += [(name, config.get(name)) for name in ("num_fewshots", "hf_repo", "hf_revision")]
        pairs.append(("task_version", config.get("version")))
        return show_settings(pairs)

    def splits(self, task: str) -> int:
        """Number of splits of the documents (each split numbers its documents from 0)."""
        splits = self._config(task).get("evaluation_splits")
        return len(splits) if isinstance(splits, list) else 1

    def averaged(self, task: str) -> set[str]:
        """Metrics whose total is the mean over the documents."""
        return {name for name, how, _ in self._metrics(task) if how == "mean"}

    def lower(self, task: str) -> set[str]:
        """Metrics for which lower is better."""
        return {name for name, _, up in self._metrics(task) if up is False}

    def _config(self, task: str) -> dict[str, Any]:
        config = self.document.get("config_tasks", {}).get(task)
        return config if isinstance(config, dict) else {}

    def _metrics(self, task: str) -> Iterator[tuple[str, Any, Any]]:
        """Yield name, aggregation and whether higher is better, for each metric of a group."""
        metrics = self._config(task).get("metrics")
        for metric in metrics if isinstance(metrics, list) else []:
            if not isinstance(metric, dict):
                continue
            names, how, up = (metric.get(key) for key in
                              ("metric_name", "corpus_level_fn", "higher_is_better"))  # fmt: skip
            for name in names if isinstance(names, list) else [names]:
                values = [v.get(name) if isinstance(v, dict) else v for v in (how, up)]
                yield str(name), values[0], values[1]


def find_totals(details: Path, others: Iterable[Path] = ()) -> Path | None:
    """Find the results file of the same run as a details file, by their time stamp.

    It is searched where lighteval writes it (``results/MODEL`` beside ``details/MODEL``; on the
    Hub, the folder above), then among ``others``, the nearest first.
    """
    match = DETAILS.fullmatch(details.name)
    if match is None:
        return None
    name = f"results_{match['stamp']}.json"
    model = _model_folder(details)
    folders = [details.parent, model]
    folders += [
        folder.with_name("results") / model.relative_to(folder)
        for folder in (model, *model.parents)
        if folder.name == "details"
    ]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    named = [other for other in others if other.name == name]
    return max(named, key=lambda other: len(_common_folder(other, details)), default=None)


def _common_folder(one: Path, other: Path) -> str:
    """The deepest folder that contains both."""
    return os.path.commonpath([one.absolute(), other.absolute()])


def _model_folder(details: Path) -> Path:
    """The folder of the model, which has a subfolder named by the time stamp for each run."""
    folder = details.absolute().parent
    return folder.parent if re.fullmatch(STAMP, folder.name) else folder


def model_by_folder(details: Path) -> str:
    """The model's name, from the folders above a details file.

    Example:
        >>> stamp = "2026-11-22T09-17-04.056740"
        >>> model_by_folder(Path(f"out/details/org/model/{stamp}/details_quiz|0_{stamp}.parquet"))
        'org/model'
    """
    folder = _model_folder(details)
    root = next((parent for parent in folder.parents if parent.name == "details"), folder.parent)
    return folder.relative_to(root).as_posix()

"""Results files of lighteval: who was run, how, and what came out in total."""

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
    """What a results file says of the run that wrote the details files.

    Attributes:
        file: its path.
        model: the model's name.
        tasks: the tasks that were run, as "name|shots".
        document: everything in it.
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
        """The task's total by a metric; None where there is none."""
        found = self.document["results"].get(task)
        return found.get(metric) if isinstance(found, dict) else None

    def settings(self, task: str) -> dict[str, Any]:
        """Settings of the run that bear on the scores."""
        general, own = self.document["config_general"], self._config(task)
        model = general.get("model_config")
        model = model if isinstance(model, dict) else {}
        generation = model.get("generation_parameters")
        generation = generation if isinstance(generation, dict) else {}
        pairs = [(name, model.get(name)) for name in SETTINGS]
        given = {name: value for name, value in generation.items() if value is not None}
        pairs.append(("generation_parameters", given))
        pairs.append(("max_samples", general.get("max_samples")))
        pairs += [(name, own.get(name)) for name in ("num_fewshots", "hf_repo", "hf_revision")]
        pairs.append(("task_version", own.get("version")))
        return show_settings(pairs)

    def splits(self, task: str) -> int:
        """Of how many splits the documents are (each counts its documents from 0)."""
        found = self._config(task).get("evaluation_splits")
        return len(found) if isinstance(found, list) else 1

    def averaged(self, task: str) -> set[str]:
        """Metrics whose total is the mean of the documents' values."""
        return {name for name, how, _ in self._metrics(task) if how == "mean"}

    def lower(self, task: str) -> set[str]:
        """Metrics of which less is better."""
        return {name for name, _, up in self._metrics(task) if up is False}

    def _config(self, task: str) -> dict[str, Any]:
        found = self.document.get("config_tasks", {}).get(task)
        return found if isinstance(found, dict) else {}

    def _metrics(self, task: str) -> Iterator[tuple[str, Any, Any]]:
        """Name, way of putting together, and whether more is better; groups one by one."""
        listed = self._config(task).get("metrics")
        for each in listed if isinstance(listed, list) else []:
            if not isinstance(each, dict):
                continue
            names, how, up = (each.get(key) for key in
                              ("metric_name", "corpus_level_fn", "higher_is_better"))  # fmt: skip
            for name in names if isinstance(names, list) else [names]:
                own = [v.get(name) if isinstance(v, dict) else v for v in (how, up)]
                yield str(name), own[0], own[1]


def find_totals(details: Path, others: Iterable[Path] = ()) -> Path | None:
    """The results file of the same run as a details file, which has the same time stamp.

    It is looked for where lighteval puts it (``results/MODEL`` beside ``details/MODEL``; on the
    Hub, the folder above), then among the other files given, the nearest first.
    """
    found = DETAILS.fullmatch(details.name)
    if found is None:
        return None
    name = f"results_{found['stamp']}.json"
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
    return max(named, key=lambda other: len(_shared(other, details)), default=None)


def _shared(one: Path, other: Path) -> str:
    """The folder above both."""
    return os.path.commonpath([one.absolute(), other.absolute()])


def _model_folder(details: Path) -> Path:
    """The folder of the model, which has one named by the time stamp for each run."""
    folder = details.absolute().parent
    return folder.parent if re.fullmatch(STAMP, folder.name) else folder


def model_by_folder(details: Path) -> str:
    """The model's name by the folders above a details file.

    Example:
        >>> stamp = "2026-11-22T09-17-04.056740"
        >>> model_by_folder(Path(f"out/details/org/model/{stamp}/details_quiz|0_{stamp}.parquet"))
        'org/model'
    """
    folder = _model_folder(details)
    above = next((each for each in folder.parents if each.name == "details"), folder.parent)
    return folder.relative_to(above).as_posix()

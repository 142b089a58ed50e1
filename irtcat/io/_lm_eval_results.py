"""Results files of lm-evaluation-harness: model, settings and totals of a run."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from irtcat._checks import InputError, shorten
from irtcat._reading import read_json
from irtcat.io._logs import as_object, as_text, show_settings

__all__ = ["Results"]

SETTINGS = (
    *("model", "model_args", "model_revision", "model_dtype", "limit", "gen_kwargs"),
    *("random_seed", "numpy_seed", "torch_seed", "fewshot_seed"),
)


@dataclass(frozen=True)
class Results:
    """The content of the results file of a run, which also wrote the samples files.

    Attributes:
        file: its path.
        model: the model's name as passed to the harness, not as the folder spells it.
        name_source: "log"; or "made up": by the harness (all models without a name get the same),
            or the name of the folder if the file has none.
        document: the full JSON document.
    """

    file: str
    model: str
    name_source: str
    document: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "Results":
        """Read and check a results file."""
        document = as_object(read_json(path), str(path), "the results")
        for key in ("results", "configs", "n-samples", "config", "higher_is_better", "versions"):
            as_object(document.get(key, {}), str(path), key)
        if "results" not in document:
            raise InputError(f"{path}: expected the key results. Got {shorten(list(document))}.")
        config = document.get("config", {})
        name = document.get("model_name")
        if name is None or name == "":
            name = _model_in_arguments(config)
        model = as_text(
            path.parent.resolve().name if name is None else name, str(path), "model_name"
        )
        random_name = not config.get("model_args") and re.fullmatch(r"[a-z0-9]{8}", model)
        source = "made up" if random_name or name is None else "log"
        return cls(str(path), model, source, document)

    def of(self, section: str, task: str) -> dict[str, Any]:
        """The task's entry in a section, or an empty dict."""
        entry = self.document.get(section, {}).get(task, {})
        return entry if isinstance(entry, dict) else {}

    def settings(self, task: str) -> dict[str, Any]:
        """Settings of the run that affect the scores."""
        config = self.document.get("config", {})
        keys = ("chat_template_sha", "system_instruction_sha", "fewshot_as_multiturn")
        shots, versions = (self.document.get(name) for name in ("n-shot", "versions"))
        pairs = [(name, config.get(name)) for name in SETTINGS]
        pairs += [(name, self.document.get(name)) for name in keys]
        pairs.append(("num_fewshot", shots.get(task) if isinstance(shots, dict) else None))
        pairs.append(("task_version", versions.get(task) if isinstance(versions, dict) else None))
        return show_settings(pairs)

    def filters(self, task: str, metrics: list[str]) -> list[str]:
        """Names of the task's filters, in the order of the log."""
        names = (key.split(",", 1) for key in self.of("results", task) if "," in key)
        return list(dict.fromkeys(n[1] for n in names if n[0] in metrics))

    def sizes(self, task: str) -> tuple[int | None, bool]:
        """The number of documents that were run, and whether that number is reliable."""
        n = self.of("results", task).get("sample_len")
        if isinstance(n, int):
            return n, True
        n = self.of("n-samples", task).get("effective")
        return (n, False) if isinstance(n, int) else (None, False)

    def averaged(self, task: str) -> set[str]:
        """Metrics whose total is the mean over the samples."""
        metrics = self.of("configs", task).get("metric_list")
        metrics = metrics if isinstance(metrics, list) else []
        return {
            str(metric.get("metric"))
            for metric in metrics
            if isinstance(metric, dict) and metric.get("aggregation") == "mean"
        }

    def lower(self, task: str) -> set[str]:
        """Metrics for which lower is better."""
        return {name for name, up in self.of("higher_is_better", task).items() if up is False}


def _model_in_arguments(config: dict[str, Any]) -> str | None:
    """The model in the command-line arguments, for results files that do not name it."""
    arguments = config.get("model_args")
    if isinstance(arguments, str):
        arguments = dict(pair.split("=", 1) for pair in arguments.split(",") if "=" in pair)
    if not isinstance(arguments, dict):
        return None
    names = ("peft", "delta", "pretrained", "model", "path", "engine")
    return next((str(arguments[name]) for name in names if arguments.get(name)), None)

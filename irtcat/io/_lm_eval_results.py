"""Results files of lm-evaluation-harness: who was run, how, and what came out in total."""

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
    """What a results file says of the run that wrote the samples files.

    Attributes:
        file: its path.
        model: the model's name as given, not as the folder spells it.
        name_source: "log"; "made up" by the harness (all models without a name get the same), or
            that of the folder, where the file has none.
        document: everything in it.
    """

    file: str
    model: str
    name_source: str
    document: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "Results":
        """Read and check a results file."""
        document = as_object(read_json(path), str(path), "the results")
        for name in ("results", "configs", "n-samples", "config", "higher_is_better", "versions"):
            as_object(document.get(name, {}), str(path), name)
        if "results" not in document:
            raise InputError(f"{path}: expected the key results. Got {shorten(list(document))}.")
        config = document.get("config", {})
        named = document.get("model_name")
        if named is None or named == "":
            named = _name_of(config)
        model = as_text(
            path.parent.resolve().name if named is None else named, str(path), "model_name"
        )
        random_name = not config.get("model_args") and re.fullmatch(r"[a-z0-9]{8}", model)
        source = "made up" if random_name or named is None else "log"
        return cls(str(path), model, source, document)

    def of(self, section: str, task: str) -> dict[str, Any]:
        """The task's part of a section; empty where there is none."""
        found = self.document.get(section, {}).get(task, {})
        return found if isinstance(found, dict) else {}

    def settings(self, task: str) -> dict[str, Any]:
        """Settings of the run that bear on the scores."""
        config = self.document.get("config", {})
        own = ("chat_template_sha", "system_instruction_sha", "fewshot_as_multiturn")
        shots, versions = (self.document.get(name) for name in ("n-shot", "versions"))
        pairs = [(name, config.get(name)) for name in SETTINGS]
        pairs += [(name, self.document.get(name)) for name in own]
        pairs.append(("num_fewshot", shots.get(task) if isinstance(shots, dict) else None))
        pairs.append(("task_version", versions.get(task) if isinstance(versions, dict) else None))
        return show_settings(pairs)

    def filters(self, task: str, metrics: list[str]) -> list[str]:
        """Names of the task's filters, in the order of the log."""
        names = (key.split(",", 1) for key in self.of("results", task) if "," in key)
        return list(dict.fromkeys(n[1] for n in names if n[0] in metrics))

    def sizes(self, task: str) -> tuple[int | None, bool]:
        """How many documents were run, and whether that number can be relied on."""
        found = self.of("results", task).get("sample_len")
        if isinstance(found, int):
            return found, True
        found = self.of("n-samples", task).get("effective")
        return (found, False) if isinstance(found, int) else (None, False)

    def averaged(self, task: str) -> set[str]:
        """Metrics whose total is the mean of the samples' values."""
        listed = self.of("configs", task).get("metric_list")
        listed = listed if isinstance(listed, list) else []
        return {
            str(each.get("metric"))
            for each in listed
            if isinstance(each, dict) and each.get("aggregation") == "mean"
        }

    def lower(self, task: str) -> set[str]:
        """Metrics of which less is better."""
        return {name for name, up in self.of("higher_is_better", task).items() if up is False}


def _name_of(config: dict[str, Any]) -> str | None:
    """The model in the arguments, for results files that do not name it."""
    arguments = config.get("model_args")
    if isinstance(arguments, str):
        arguments = dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    if not isinstance(arguments, dict):
        return None
    names = ("peft", "delta", "pretrained", "model", "path", "engine")
    return next((str(arguments[name]) for name in names if arguments.get(name)), None)

"""Which files of a tree are logs of evaluation harnesses, and of which."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from irtcat.io._lighteval_results import DETAILS, find_totals
from irtcat.io._report import Skipped
from irtcat.io.helm import BESIDE, FILE
from irtcat.io.lm_eval import RESULTS, SAMPLES, split_name

__all__ = ["LOG_FORMATS", "Found", "find_logs", "log_format"]

LOG_FORMATS = ("lm-eval", "inspect", "every-eval-ever", "helm", "lighteval")

PICKLES = (".pkl", ".pickle", ".joblib")
_PICKLE = (
    "pickles run code when they are loaded, and are never read. Where you trust the file (as "
    "tinyBenchmarks' own), load it yourself and save the matrix as CSV or .npz"
)
HEAD = 2**16


class Found(NamedTuple):
    """A log file and its kind; of lighteval, with the results file of its run."""

    path: Path
    kind: str
    totals: Path | None = None


def find_logs(root: Path, format: str) -> tuple[list[Found], list[Skipped], int]:
    """The logs in a tree, in an order that keeps the files of a run together."""
    if root.is_file() and format != "auto":
        totals = find_totals(root) if format == "lighteval" else None
        return [Found(root, format, totals)], [], 0
    found, skipped, results, others = [], [], [], 0
    for path in [root] if root.is_file() else _walk(root):
        try:
            kind = log_format(path)
        except OSError as error:
            reason = f"{path}: cannot be opened ({error.strerror or error})."
            skipped.append(Skipped(str(path), reason))
            continue
        if kind in LOG_FORMATS:
            if format in ("auto", kind):
                found.append(Found(path, kind))
        elif kind == "results":
            results.append(path)
        elif kind == "beside":  # read with the log that it belongs to
            continue
        elif kind:
            skipped.append(Skipped(str(path), f"{path}: {kind}."))
        else:
            others += 1
    if results and root.is_file():
        whose = "lighteval" if _is_lighteval(root) else "lm-eval"
        parts = "details" if whose == "lighteval" else "samples"
        advice = f"a results file of {whose} holds totals only. Give the folder with its {parts}"
        return [], [Skipped(str(root), f"{root}: {advice}.")], 0
    found = [
        each._replace(totals=find_totals(each.path, results)) if each.kind == "lighteval" else each
        for each in found
    ]
    paired = {each.totals.absolute() for each in found if each.totals}
    stamps = {(f.path.parent, split_name(f.path)[1]) for f in found if f.kind == "lm-eval"}
    for path in results:
        match = RESULTS.fullmatch(path.name)
        if (path.parent, match["stamp"] if match else "") in stamps or format == "inspect":
            continue
        if path.absolute() not in paired:
            advice = "there are no samples files beside it. Run lm-eval with --log_samples"
            if _is_lighteval(path):
                advice = "there are no details of its run. Run lighteval with --save-details"
            skipped.append(Skipped(str(path), f"{path}: {advice}."))
    found.sort(key=lambda each: (each.path.parent, split_name(each.path)[::-1]))
    return found, skipped, others


def _walk(folder: Path) -> Iterator[Path]:
    """The files in a folder and those below, in order; links to folders are not followed."""
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(parent, name)


def _is_lighteval(results: Path) -> bool:
    """Whether a results file is lighteval's."""
    try:
        with results.open("rb") as file:
            return b'"config_general"' in file.read(HEAD)
    except OSError:
        return False


def log_format(path: Path) -> str:
    """Which log a file is: a format, "results" (totals), "beside" (another's), a sentence, "".

    Example:
        >>> log_format(Path("anything.eval"))
        'inspect'
    """
    name, extension = path.name, path.suffix.lower()
    if extension == ".eval":
        return "inspect"
    if SAMPLES.fullmatch(name):
        return "lm-eval"
    if DETAILS.fullmatch(name):
        return "lighteval"
    if extension in PICKLES:
        return _PICKLE
    if extension not in (".json", ".jsonl", ".ndjson"):
        return ""
    if name == FILE:
        return "helm"
    if name in BESIDE:
        return "beside"
    if extension == ".json" and RESULTS.fullmatch(name) and name.startswith("results_"):
        return "results"
    with path.open("rb") as file:
        head = file.read(HEAD).decode("utf-8", "replace")
    keys = set(re.findall(r'"(\w+)"\s*:', head))
    if extension == ".json":
        if {"status", "eval"} <= keys and "evaluation_id" not in keys:
            return "inspect"
        if {"evaluation_id", "evaluation_results"} <= keys:
            return "beside"
        return "results" if RESULTS.fullmatch(name) and "results" in keys else ""
    if {"evaluation_id", "sample_id"} <= keys or name.endswith("_samples.jsonl"):
        return "every-eval-ever"
    if {"doc_id", "resps"} <= keys or {"doc_id", "doc"} <= keys:
        return "lm-eval"
    if {"subject_id", "responses"} <= keys:
        return "py-irt's lines are a whole matrix, not a log. Read the file by itself"
    return ""

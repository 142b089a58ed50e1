"""Find the logs of evaluation harnesses in a folder tree, and their formats."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from irtcat.io._lighteval_results import DETAILS, find_totals
from irtcat.io._report import Skipped
from irtcat.io.helm import BESIDE, FILE, SPEC
from irtcat.io.lm_eval import RESULTS, SAMPLES, split_name

__all__ = ["LOG_FORMATS", "LogFile", "Tree", "find_logs", "log_format"]

LOG_FORMATS = ("lm-eval", "inspect", "every-eval-ever", "helm", "lighteval")

PICKLES = (".pkl", ".pickle", ".joblib")
_PICKLE = (
    "pickles run code when they are loaded, and are never read. If you trust the file (as "
    "those of tinyBenchmarks), load it yourself and save the matrix as CSV or .npz"
)
HEAD = 2**16
"""Bytes read from the start of a file to detect its format."""


class LogFile(NamedTuple):
    """A log file and its kind; for lighteval, also the results file of its run."""

    path: Path
    kind: str
    totals: Path | None = None


class Tree(NamedTuple):
    """The files of a tree: each is in one of these lists, or belongs to a log that is."""

    logs: list[LogFile]
    skipped: list[Skipped]
    no_logs: list[str]
    notes: list[str]


def find_logs(root: Path, format: str) -> Tree:
    """Find the logs in a tree, ordered so that the files of a run are adjacent."""
    if root.is_file() and format != "auto":
        totals = find_totals(root) if format == "lighteval" else None
        return Tree([LogFile(root, format, totals)], [], [], [])
    tree, other = Tree([], [], [], []), dict.fromkeys(LOG_FORMATS, 0)
    results, companions = [], []
    for path in [root] if root.is_file() else _walk(root, tree):
        try:
            kind = log_format(path)
        except OSError as error:
            tree.skipped.append(_unopened(path, error))
            continue
        if kind in other:
            if format in ("auto", kind):
                tree.logs.append(LogFile(path, kind))
            else:
                other[kind] += 1
        elif kind == "results":
            results.append(path)
        elif kind == "companion":  # read with its log
            companions.append(path)
        elif kind:
            tree.skipped.append(Skipped(str(path), f"{path}: {kind}."))
        else:
            tree.no_logs.append(str(path))
    if results and root.is_file():
        harness = "lighteval" if _is_lighteval(root) else "lm-eval"
        files = "details" if harness == "lighteval" else "samples"
        advice = f"a results file of {harness} holds totals only. Give the folder with its {files}"
        return Tree([], [Skipped(str(root), f"{root}: {advice}.")], [], [])
    tree.logs[:] = [
        log._replace(totals=find_totals(log.path, results)) if log.kind == "lighteval" else log
        for log in tree.logs
    ]
    _note_unpaired_totals(results, tree, format)
    for path in companions:
        _note_unpaired_companion(path, tree, format)
    tree.logs.sort(key=lambda log: (log.path.parent, split_name(log.path)[::-1]))
    if ignored := ", ".join(f"{n} of {kind}" for kind, n in other.items() if n):
        tree.notes.append(f"Logs of other formats than {format} were ignored: {ignored}.")
    return tree


def _walk(folder: Path, tree: Tree) -> Iterator[Path]:
    """Yield the files in a folder tree, sorted; links to folders are not followed."""

    def on_error(error: OSError) -> None:
        tree.skipped.append(_unopened(error.filename, error))

    for parent, folders, files in os.walk(folder, onerror=on_error):
        folders.sort()
        for name in folders:
            path = Path(parent, name)
            if path.is_symlink():
                reason = f"{path}: a link to a folder, which is not followed. Give that folder."
                tree.skipped.append(Skipped(str(path), reason))
        for name in sorted(files):
            path = Path(parent, name)
            pipe = path.exists() and not path.is_file()  # or socket or device: reading could block
            if name.startswith(".") or pipe:
                tree.no_logs.append(str(path))
            else:
                yield path


def _unopened(path: Any, error: OSError) -> Skipped:
    return Skipped(str(path), f"{path}: cannot be opened ({error.strerror or error}).")


def _note_unpaired_totals(results: list[Path], tree: Tree, format: str) -> None:
    """Report results files of lm-eval and lighteval without samples or details of their run."""
    stamps = {(f.path.parent, split_name(f.path)[1]) for f in tree.logs if f.kind == "lm-eval"}
    paired = {log.totals.absolute() for log in tree.logs if log.totals}
    for path in results:
        match = RESULTS.fullmatch(path.name)
        if (path.parent, match["stamp"] if match else "") in stamps or path.absolute() in paired:
            continue
        harness = "lighteval" if _is_lighteval(path) else "lm-eval"
        advice = "there are no samples files beside it. Run lm-eval with --log_samples"
        if harness == "lighteval":
            advice = "there are no details of its run. Run lighteval with --save-details"
        if format in ("auto", harness):
            tree.skipped.append(Skipped(str(path), f"{path}: {advice}."))


def _note_unpaired_companion(path: Path, tree: Tree, format: str) -> None:
    """Report a file that belongs to a log of HELM or Every Eval Ever if the log is missing."""
    if path.name not in BESIDE:
        names = (f"{path.stem}_samples.jsonl", f"{path.stem}.jsonl")
        if format in ("auto", "every-eval-ever") and not _has(path, names):
            reason = f"{path}: there are totals only, no {names[0]} beside it."
            tree.skipped.append(Skipped(str(path), reason))
    elif _has(path, (FILE,)) or (path.name != SPEC and _has(path, (SPEC,))):
        return  # read with its log, or reported once per run
    elif path.name == SPEC and format in ("auto", "helm"):
        reason = f"{path}: there is no {FILE} beside it. The run has not ended, or failed."
        tree.skipped.append(Skipped(str(path), reason, True))
    else:
        tree.no_logs.append(str(path))


def _has(path: Path, names: Iterable[str]) -> bool:
    """Whether one of these files is in the same folder."""
    return any(path.with_name(name).is_file() for name in names)


def _is_lighteval(results: Path) -> bool:
    """Whether a results file is lighteval's."""
    try:
        with results.open("rb") as file:
            return b'"config_general"' in file.read(HEAD)
    except OSError:
        return False


def log_format(path: Path) -> str:
    """Classify a file.

    Returns:
        A log format, "results" (totals only), "companion" (belongs to another log), a sentence (why
        the file cannot be read), or "" (no log).

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
        return "companion"
    if extension == ".json" and RESULTS.fullmatch(name) and name.startswith("results_"):
        return "results"
    with path.open("rb") as file:
        head = file.read(HEAD).decode("utf-8", "replace")
    if not head.strip():
        return "the file is empty"
    keys = set(re.findall(r'"(\w+)"\s*:', head))
    if extension == ".json":
        if {"status", "eval"} <= keys and "evaluation_id" not in keys:
            return "inspect"
        if {"evaluation_id", "evaluation_results"} <= keys:
            return "companion"
        return "results" if RESULTS.fullmatch(name) and "results" in keys else ""
    if {"evaluation_id", "sample_id"} <= keys or name.endswith("_samples.jsonl"):
        return "every-eval-ever"
    if {"doc_id", "resps"} <= keys or {"doc_id", "doc"} <= keys:
        return "lm-eval"
    if {"subject_id", "responses"} <= keys:
        return "py-irt's lines are a complete matrix, not a log. Read the file by itself"
    return ""

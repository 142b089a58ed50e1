"""Which files of a tree are logs of evaluation harnesses, and of which."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from irtcat.io._lighteval_results import DETAILS, find_totals
from irtcat.io._report import Skipped
from irtcat.io.helm import BESIDE, FILE, SPEC
from irtcat.io.lm_eval import RESULTS, SAMPLES, split_name

__all__ = ["LOG_FORMATS", "Found", "Tree", "find_logs", "log_format"]

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


class Tree(NamedTuple):
    """What a tree holds: every file of it is in one of these, or belongs to a log that is."""

    logs: list[Found]
    skipped: list[Skipped]
    no_logs: list[str]
    notes: list[str]


def find_logs(root: Path, format: str) -> Tree:
    """The logs in a tree, in an order that keeps the files of a run together."""
    if root.is_file() and format != "auto":
        totals = find_totals(root) if format == "lighteval" else None
        return Tree([Found(root, format, totals)], [], [], [])
    tree, other = Tree([], [], [], []), dict.fromkeys(LOG_FORMATS, 0)
    results, beside = [], []
    for path in [root] if root.is_file() else _walk(root, tree):
        try:
            kind = log_format(path)
        except OSError as error:
            tree.skipped.append(_unopened(path, error))
            continue
        if kind in other:
            if format in ("auto", kind):
                tree.logs.append(Found(path, kind))
            else:
                other[kind] += 1
        elif kind == "results":
            results.append(path)
        elif kind == "beside":  # read with the log that it belongs to
            beside.append(path)
        elif kind:
            tree.skipped.append(Skipped(str(path), f"{path}: {kind}."))
        else:
            tree.no_logs.append(str(path))
    if results and root.is_file():
        whose = "lighteval" if _is_lighteval(root) else "lm-eval"
        parts = "details" if whose == "lighteval" else "samples"
        advice = f"a results file of {whose} holds totals only. Give the folder with its {parts}"
        return Tree([], [Skipped(str(root), f"{root}: {advice}.")], [], [])
    tree.logs[:] = [
        each._replace(totals=find_totals(each.path, results)) if each.kind == "lighteval" else each
        for each in tree.logs
    ]
    _alone_totals(results, tree, format)
    for path in beside:
        _alone(path, tree, format)
    tree.logs.sort(key=lambda each: (each.path.parent, split_name(each.path)[::-1]))
    if left := ", ".join(f"{n} of {kind}" for kind, n in other.items() if n):
        tree.notes.append(f"Logs of other formats than {format} were not asked for: {left}.")
    return tree


def _walk(folder: Path, tree: Tree) -> Iterator[Path]:
    """The files in a folder and those below, in order; links to folders are not followed."""

    def unread(error: OSError) -> None:
        tree.skipped.append(_unopened(error.filename, error))

    for parent, folders, files in os.walk(folder, onerror=unread):
        folders.sort()
        for name in folders:
            path = Path(parent, name)
            if path.is_symlink():
                reason = f"{path}: a link to a folder, which is not followed. Give that folder."
                tree.skipped.append(Skipped(str(path), reason))
        for name in sorted(files):
            path = Path(parent, name)
            pipe = path.exists() and not path.is_file()  # or socket, or device: reading may hang
            if name.startswith(".") or pipe:
                tree.no_logs.append(str(path))
            else:
                yield path


def _unopened(path: Any, error: OSError) -> Skipped:
    return Skipped(str(path), f"{path}: cannot be opened ({error.strerror or error}).")


def _alone_totals(results: list[Path], tree: Tree, format: str) -> None:
    """Results files of lm-eval and lighteval without the answers of the same run beside them."""
    stamps = {(f.path.parent, split_name(f.path)[1]) for f in tree.logs if f.kind == "lm-eval"}
    paired = {each.totals.absolute() for each in tree.logs if each.totals}
    for path in results:
        match = RESULTS.fullmatch(path.name)
        if (path.parent, match["stamp"] if match else "") in stamps or path.absolute() in paired:
            continue
        whose = "lighteval" if _is_lighteval(path) else "lm-eval"
        advice = "there are no samples files beside it. Run lm-eval with --log_samples"
        if whose == "lighteval":
            advice = "there are no details of its run. Run lighteval with --save-details"
        if format in ("auto", whose):
            tree.skipped.append(Skipped(str(path), f"{path}: {advice}."))


def _alone(path: Path, tree: Tree, format: str) -> None:
    """Say so where what belongs to a log of HELM or Every Eval Ever is there without the log."""
    if path.name not in BESIDE:
        names = (f"{path.stem}_samples.jsonl", f"{path.stem}.jsonl")
        if format in ("auto", "every-eval-ever") and not _has(path, names):
            reason = f"{path}: there are totals only, no {names[0]} beside it."
            tree.skipped.append(Skipped(str(path), reason))
    elif _has(path, (FILE,)) or (path.name != SPEC and _has(path, (SPEC,))):
        return  # read with it, or said once of the run
    elif path.name == SPEC and format in ("auto", "helm"):
        reason = f"{path}: there is no {FILE} beside it. The run has not ended, or failed."
        tree.skipped.append(Skipped(str(path), reason, True))
    else:
        tree.no_logs.append(str(path))


def _has(path: Path, names: Iterable[str]) -> bool:
    """Whether one of these files is in the folder of this one."""
    return any(path.with_name(name).is_file() for name in names)


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
    if not head.strip():
        return "the file is empty"
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

"""Find the logs of evaluation harnesses in a folder tree, by the table of their formats."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from irtcat._common.checks import InputError
from irtcat._common.registry import Registry
from irtcat.io.logs.alpaca_eval import ALPACA_EVAL
from irtcat.io.logs.bigcodebench import BIGCODEBENCH
from irtcat.io.logs.evalplus import EVALPLUS
from irtcat.io.logs.evalscope import EVALSCOPE
from irtcat.io.logs.every_eval_ever import EVERY_EVAL_EVER
from irtcat.io.logs.format import LogFile, LogFormat, Skipped
from irtcat.io.logs.helm import HELM
from irtcat.io.logs.inspect_log import INSPECT
from irtcat.io.logs.lighteval import LIGHTEVAL
from irtcat.io.logs.livecodebench import LIVECODEBENCH
from irtcat.io.logs.lm_eval import LM_EVAL
from irtcat.io.logs.lmms_eval import LMMS_EVAL
from irtcat.io.logs.mt_bench import MT_BENCH
from irtcat.io.logs.opencompass import OPENCOMPASS
from irtcat.io.logs.swe_bench import SWE_BENCH
from irtcat.io.logs.terminal_bench import TERMINAL_BENCH
from irtcat.io.logs.wildbench import WILDBENCH

LOG_FORMATS: Registry[LogFormat] = Registry(
    "irtcat.log_formats",
    LogFormat,
    ("format", "logs", "reference"),
    # The first row that recognises a file reads it.
    [
        *(LMMS_EVAL, LM_EVAL, BIGCODEBENCH, INSPECT, EVERY_EVAL_EVER, HELM, LIGHTEVAL),
        *(EVALSCOPE, OPENCOMPASS, EVALPLUS, LIVECODEBENCH, TERMINAL_BENCH, SWE_BENCH),
        *(ALPACA_EVAL, MT_BENCH, WILDBENCH),
    ],
)
"""Log formats by name; to add one, write a row in a file of its own."""


_PICKLE = (
    "pickles run code when they are loaded, and are never read. If you trust the file (as "
    "those of tinyBenchmarks), load it yourself and save the matrix as CSV or .npz"
)


COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
LOGS = (".json", ".jsonl", ".ndjson", ".eval", ".parquet")
"""Suffixes of logs, which can be followed by one of compression."""


class Tree(NamedTuple):
    """The files of a tree: each is in one of these, or belongs to a log that is.

    Attributes:
        logs: logs with their formats, those of a run adjacent.
        beside: files that belong to logs, by name of the format.
        skipped: files that cannot be read.
        no_logs: paths of other files.
        notes: remarks.
    """

    logs: list[tuple[Path, LogFormat]]
    beside: dict[str, list[Path]]
    skipped: list[Skipped]
    no_logs: list[str]
    notes: list[str]


def find_logs(root: Path, format: str) -> Tree:
    """Find the logs in a tree, of one format or of any ("auto")."""
    tree = Tree([], {}, [], [], [])
    rows = list(LOG_FORMATS.values())
    if format != "auto":
        rows.sort(key=lambda row: row.name != format)
    if root.is_file() and format != "auto":
        tree.logs.append((root, rows[0]))
        return tree
    found: dict[str, list[Path]] = {row.name: [] for row in rows}
    for path in [root] if root.is_file() else _walk(root, tree):
        if (kind := _sort(path, rows, tree)) is not None:
            found[kind.name].append(path)
    for row in rows:
        is_read, logs = format in ("auto", row.name), found[row.name]
        tree.logs.extend((path, row) for path in logs if is_read)
        for alone in row.alone(tree.beside.get(row.name, []), None if root.is_file() else logs):
            if alone.reason and is_read:
                tree.skipped.append(alone)
            else:
                tree.no_logs.append(alone.file)
    tree.logs.sort(key=lambda log: (log[0].parent, log[1].order(log[0])))
    others = [name for name in LOG_FORMATS if found[name] and format not in ("auto", name)]
    if ignored := ", ".join(f"{len(found[name])} of {name}" for name in others):
        tree.notes.append(f"Logs of other formats than {format} were ignored: {ignored}.")
    return tree


def _sort(path: Path, rows: list[LogFormat], tree: Tree) -> LogFormat | None:
    """The format of a log; other files are noted in the tree."""
    file = LogFile(path)
    try:
        row, is_beside = _recognise(file, rows)
        reason = "" if row else _why_no_log(file)
    except OSError as error:
        tree.skipped.append(_unopened(path, error))
        return None
    if row is not None and is_beside:
        tree.beside.setdefault(row.name, []).append(path)
    elif row is not None:
        return row
    elif reason:
        tree.skipped.append(Skipped(str(path), f"{path}: {reason}."))
    else:
        tree.no_logs.append(str(path))
    return None


def is_log(path: Path) -> bool:
    """Whether this is a folder, a log, or belongs to a log and cannot be read without it."""
    if path.is_dir():
        return True
    try:
        row, is_beside = _recognise(LogFile(path), list(LOG_FORMATS.values()))
    except OSError as error:
        raise InputError(f"{path}: cannot be opened ({error.strerror}).") from None
    return row is not None and (not is_beside or any(row.alone([path], None)))


def _recognise(file: LogFile, rows: list[LogFormat]) -> tuple[LogFormat | None, bool]:
    """The format of a file, or None; and whether it only belongs to a log of that format."""
    for row in rows:
        if row.is_log(file):
            return row, False
        if row.is_beside(file):
            return row, True
    return None, False


def _why_no_log(file: LogFile) -> str:
    """Why a file of no known format cannot be read, or "" if that needs no explanation."""
    if file.suffix in (".pkl", ".pickle", ".joblib"):
        return _PICKLE
    if _is_compressed(file.path):
        return "the file is compressed, and is not read. Unpack it"
    if file.suffix in (".json", ".jsonl", ".ndjson"):
        if not file.head.strip():
            return "the file is empty"
        if file.suffix != ".json" and {"subject_id", "responses"} <= file.keys:
            return "py-irt's lines are a complete matrix, not a log. Read the file by itself"
    return ""


def _is_compressed(path: Path) -> bool:
    """Whether a file is a compressed log, by its name, or an archive that may hold some."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes[-1:] in ([".tgz"], [".zip"], [".7z"]) or suffixes[:1] == [".tar"]:
        return True
    return len(suffixes) == 2 and suffixes[1] in COMPRESSED and suffixes[0] in LOGS


def _walk(folder: Path, tree: Tree) -> Iterator[Path]:
    """Yield the files in a folder tree, sorted; links to folders are not followed."""

    def on_error(error: OSError) -> None:
        tree.skipped.append(_unopened(error.filename, error))

    for parent, folders, files in os.walk(folder, onerror=on_error):
        folders.sort()
        for name in folders:
            path = Path(parent, name)
            if path.is_symlink():
                advice = f"Import {path.resolve()} by itself, or copy it here"
                reason = f"{path}: a link to a folder, which is not followed. {advice}."
                tree.skipped.append(Skipped(str(path), reason))
        for name in sorted(files):
            path = Path(parent, name)
            pipe = path.exists() and not path.is_file()  # or socket or device: reading could block
            if name.startswith(".") or pipe:
                tree.no_logs.append(str(path))
            elif path.is_symlink() and not path.exists():
                reason = f"{path}: a link to {os.readlink(path)}, which does not exist."
                tree.skipped.append(Skipped(str(path), reason))
            else:
                yield path


def _unopened(path: Any, error: OSError) -> Skipped:
    return Skipped(str(path), f"{path}: cannot be opened ({error.strerror or error}).")

"""The folder of a run: its settings, sessions and results."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, brief
from irtcat._files.folders import LOCK, MANIFEST, OutputFolder
from irtcat._files.json import json_value
from irtcat._files.writing import lock
from irtcat.cat import Session, Store
from irtcat.cat.engine.evaluation_plan import EvaluationPlan

SESSION = "evaluation"
STORE, RESULT, ITEMS = "sessions.db", "result.json", "items.csv"
# Not "logs", the default of any Inspect run: answers are read from logs in this folder.
LOGS = "inspect_logs"


@contextmanager
def run_folder(path: str | os.PathLike[str], frozen: Mapping[str, Any]) -> Iterator[OutputFolder]:
    """The folder of a run, locked by this process: two runs at once would pay twice.

    The settings of the run are written to the manifest. A run in the folder must have the same
    settings; a run without any answer is replaced.

    Raises:
        InputError: for a folder with other files or another run, one that another process has
            locked, or one that cannot be created.
    """
    _opened(path)  # raises errors before the lock file is written
    place = Path(path)
    try:
        place.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        file = os.fdopen(os.open(place / LOCK, flags, 0o666), "r+b")
    except OSError as error:
        raise InputError(f"{place}: cannot be written ({error.strerror or error}).") from None
    with file:  # the system releases the lock when the process ends for any reason
        if not lock(file):
            raise InputError(f"{place}: another process is running in it. Wait for it.")
        folder = _opened(path)
        _begin(folder, json_value(frozen))
        yield folder


@contextmanager
def reporting_saved(session: Session, folder: Path) -> Iterator[None]:
    """Add to the message of a failure how many answers are saved."""
    try:
        yield
    except InputError as error:
        n = sum(event["kind"] == "answer" for event in session.events)
        if type(error) is not InputError or not n:
            raise
        count = "1 answer is" if n == 1 else f"{n} answers are"
        saved = f"{count} kept in {folder}: repeat the same call to continue from there."
        raise InputError(f"{error} {saved}") from error


def store_of(folder: OutputFolder, create: bool = True) -> Store:
    """The run's sessions, in a file to which SQLite adds others."""
    ends = ("wal", "shm", "journal")
    return Store(folder.file(STORE, *(f"{STORE}-{end}" for end in ends)), create=create)


def earlier_plan(path: str | os.PathLike[str] | None) -> EvaluationPlan | None:
    """The bank and the rules of the run in a folder; None without a folder or a run in it.

    Raises:
        InputError: for a folder with other files, or a damaged run.
    """
    folder = None if path is None else _opened(path)
    if folder is None or not _has_store(folder):
        return None
    with store_of(folder, create=False) as store:
        return EvaluationPlan(*store.begun_with(SESSION)) if SESSION in store else None


def _opened(path: str | os.PathLike[str]) -> OutputFolder:
    """The folder, which must be empty or have a manifest."""
    folder = OutputFolder(path, "evaluate")
    others = folder.others()
    if folder.about is None and others:
        fault = f"holds {brief(others[0])}, but no {MANIFEST} of a run"
        raise InputError(f"{path}: {fault}. Give a new or an empty folder.")
    return folder


def _begin(folder: OutputFolder, wanted: dict[str, Any]) -> None:
    """Write the settings of the run; raise if another run has answers."""
    if folder.about is not None:
        setting, new, old = _difference("", wanted, folder.about)
        if not setting:
            return
        if _has_answers(folder):
            got = "another bank" if setting == "bank" else f"{setting} {new!r}, begun with {old!r}"
            advice = "Give another folder, or the original settings."
            raise InputError(f"{folder.path}: holds another run. Got {got}. {advice}")
        folder.clear()
    folder.make(wanted)


def _has_answers(folder: OutputFolder) -> bool:
    """Whether the run in the folder has an answer."""
    if not _has_store(folder):
        return False
    with store_of(folder, create=False) as store:
        return bool(store.sessions()["answers"].sum())


def _has_store(folder: OutputFolder) -> bool:
    return STORE in folder.files and (folder.path / STORE).exists()


def _difference(name: str, wanted: Any, existing: Any) -> tuple[str, Any, Any]:
    """Name and values of the first nested entry in which two values differ."""
    if isinstance(wanted, dict) and isinstance(existing, dict):
        for key in sorted(existing.keys() | wanted.keys()):
            if existing.get(key) != wanted.get(key):
                return _difference(f"{name} {key}".strip(), wanted.get(key), existing.get(key))
    return name, wanted, existing

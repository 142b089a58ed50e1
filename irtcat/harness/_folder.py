"""The folder of a run: what it is frozen by, its sessions, and its results."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from irtcat._checks import InputError, brief
from irtcat._files import lock
from irtcat._folders import LOCK, MANIFEST, OutputFolder
from irtcat.cat import Config, Store

__all__ = ["ITEMS", "LOGS", "RESULT", "STORE", "run_folder", "store_file"]

STORE, RESULT, ITEMS = "sessions.db", "result.json", "items.csv"
# Not "logs": that is where Inspect puts the logs of any run, and answers are taken from these.
LOGS = "inspect_logs"


@contextmanager
def run_folder(path: str | os.PathLike[str], frozen: Mapping[str, Any]) -> Iterator[OutputFolder]:
    """The folder of a run, kept for this process: two runs at once would pay twice.

    What the run is frozen by is written down. Where a run has begun, it must be this one; one that
    has no answer yet, because it failed before, gives way.

    Raises:
        InputError: for a folder with anything else in it or another run, one that another process
            has, or one that cannot be made.
    """
    _opened(path)  # what is wrong is said before the lock is written
    with _locked(Path(path)):
        folder = _opened(path)
        _begin(folder, json.loads(json.dumps(frozen)))
        yield folder


def store_file(folder: OutputFolder) -> Path:
    """The file of the run's sessions; SQLite writes others beside it."""
    return folder.file(STORE, *(f"{STORE}-{end}" for end in ("wal", "shm", "journal")))


def _opened(path: str | os.PathLike[str]) -> OutputFolder:
    """The folder, which has a manifest or nothing in it."""
    folder = OutputFolder(path, "evaluate")
    others = folder.others()
    if folder.about is None and others:
        what = f"holds {brief(others[0])}, but no {MANIFEST} of a run (older versions wrote none)"
        raise InputError(f"{path}: {what}. Give a new or an empty folder.")
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder; the system takes the lock off when the process ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        file = os.fdopen(os.open(folder / LOCK, flags, 0o666), "r+b")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror or error}).") from None
    with file:
        if not lock(file):
            raise InputError(f"{folder}: another process is running in it. Wait for it.")
        yield


def _begin(folder: OutputFolder, wanted: dict[str, Any]) -> None:
    """Write down what the run is frozen by; raise where another run has answers."""
    if folder.about is None:
        folder.make(wanted)
        return
    found = {**folder.about}
    if isinstance(found.get("config"), Mapping):  # of an earlier version: other names of fields
        found["config"] = Config.from_json(found["config"]).to_json()
    names = sorted(found.keys() | wanted.keys())
    name = next((each for each in names if found.get(each) != wanted.get(each)), None)
    if name is None:
        return
    if _has_answers(folder):
        what, now, then = _difference(name, wanted.get(name), found.get(name))
        got = "another bank" if name == "bank" else f"{what} {now!r}, begun with {then!r}"
        advice = "Give another folder, or the settings it was begun with."
        raise InputError(f"{folder.path}: holds another run. Got {got}. {advice}")
    folder.clear()
    folder.make(wanted)


def _has_answers(folder: OutputFolder) -> bool:
    """Whether the run in the folder has an answer."""
    if STORE not in folder.files or not (folder.path / STORE).exists():
        return False
    with Store(store_file(folder), create=False) as store:
        return bool(store.sessions()["answers"].sum())


def _difference(name: str, wanted: Any, found: Any) -> tuple[str, Any, Any]:
    """The first part in which two values differ, by its name: not a whole configuration."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted(found.keys() | wanted.keys()):
            if found.get(key) != wanted.get(key):
                return _difference(f"{name} {key}", wanted.get(key), found.get(key))
    return name, wanted, found

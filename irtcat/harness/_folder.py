"""The folder of a run: its sessions, what it is frozen by, and its results."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

from irtcat._checks import InputError
from irtcat._files import replacing
from irtcat.cat import Store

__all__ = ["CACHE", "ITEMS", "LOGS", "RESULT", "RUN", "STORE", "check_same", "locked", "write_json"]

RUN, STORE, RESULT, ITEMS = "run.json", "sessions.db", "result.json", "items.csv"
# Not "logs": that is where Inspect puts the logs of any run, and answers are taken from these.
CACHE, LOGS = "lm_eval_cache", "inspect_logs"
FORMAT, VERSION = "irtcat-evaluation", 1


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep the folder for this process: two runs at once would pay twice.

    Raises:
        InputError: where another process has it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("ab")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror or error}).") from None
    with file:
        _lock(file, folder)
        yield


def _lock(file: IO[bytes], folder: Path) -> None:
    """A lock that the system takes off when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # no such locks here
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(f"{folder}: another process is running in it. Wait for it.") from None


def check_same(folder: Path, frozen: Mapping[str, Any]) -> None:
    """Write down what the run is frozen by; where one has begun, it must be this one.

    One that has no answer yet, because it failed before, gives way; its logs are put aside.

    Raises:
        InputError: naming what is different.
    """
    path = folder / RUN
    wanted = json.loads(json.dumps({"format": FORMAT, "version": VERSION, **frozen}))
    if not path.exists():
        if (folder / STORE).exists():
            raise InputError(f"{folder}: there are sessions, but no {RUN}. Give another folder.")
        write_json(path, wanted)
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{path}: not the settings of a run. Give another folder.")
    names = sorted(found.keys() | wanted.keys())
    name = next((each for each in names if found.get(each) != wanted.get(each)), None)
    if name is None:
        return
    if _has_answers(folder):
        what, now, then = _difference(name, wanted.get(name), found.get(name))
        got = "another bank" if name == "bank" else f"{what} {now!r}, begun with {then!r}"
        advice = "Give another folder, or the settings it was begun with."
        raise InputError(f"{folder}: holds another run. Got {got}. {advice}")
    for left in (f"{STORE}*", f"{CACHE}*", "samples_*.jsonl"):
        for file in folder.glob(left):
            file.unlink()
    _put_aside(folder / LOGS)
    write_json(path, wanted)


def _put_aside(logs: Path) -> None:
    """Rename a folder of logs: they are another run's, whose answers must not be taken for ours."""
    if logs.is_dir():
        names = (logs.with_name(f"{logs.name}-before-{n}") for n in count(1))
        logs.rename(next(name for name in names if not name.exists()))


def _has_answers(folder: Path) -> bool:
    """Whether the run in the folder has an answer."""
    if not (folder / STORE).exists():
        return False
    with Store(folder / STORE, create=False) as store:
        return bool(store.sessions()["answers"].sum())


def _difference(name: str, wanted: Any, found: Any) -> tuple[str, Any, Any]:
    """The first part in which two values differ, by its name: not a whole configuration."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted(found.keys() | wanted.keys()):
            if found.get(key) != wanted.get(key):
                return _difference(f"{name} {key}", wanted.get(key), found.get(key))
    return name, wanted, found


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """A document in a file, whole or not at all; what is not finite is null."""
    with replacing(path) as file:
        file.write((json.dumps(document, indent=1, allow_nan=False) + "\n").encode("utf-8"))

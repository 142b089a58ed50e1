"""Writing files whole or not at all."""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from irtcat._checks import InputError
from irtcat._reading import status_of

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["PARTIAL", "check_target", "lock", "replacing"]

PARTIAL = ".irtcat-"
"""How the names of temporary files begin."""


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file that ``path`` stands for, symbolic links followed, or a sentence why not.

    Called before long work, so that an hour is not spent on what cannot be saved.

    Raises:
        InputError: when the name cannot be one of a file, the folder does not exist, something else
            than a file is there, or the file there is read-only or another user's.

    Example:
        >>> check_target("no-such-folder/items.csv")
        Traceback (most recent call last):
        irtcat._checks.InputError: no-such-folder/items.csv: the folder no-such-folder does not ...
    """
    status_of(path)  # a sentence where the name cannot be one of a file
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {Path(path).parent} does not exist. Make it first.")
    if target.is_dir():
        raise InputError(f"{path}: this is a folder. Give the name of a file in it.")
    if not target.exists():
        return target
    if not target.is_file():
        raise InputError(f"{path}: this is not a regular file. Give the name of another file.")
    status = target.stat()
    # The mode says so also to root, who may write to every file.
    if not (status.st_mode & 0o222 and os.access(target, os.W_OK)):
        raise InputError(f"{path}: this file is read-only. Give the name of another file.")
    if not _may_own(status):
        advice = "Give the name of another file."
        raise InputError(f"{path}: this file belongs to another user or group. {advice}")
    return target


def _may_own(status: os.stat_result) -> bool:
    """Whether a new file can have the owner and group of this one."""
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        return True
    groups = {os.getegid(), *os.getgroups()}
    return status.st_uid == os.geteuid() and status.st_gid in groups


def lock(file: IO[bytes]) -> bool:
    """Lock an open file until it is closed or the process ends; False where another one has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of ``path`` once it is whole.

    A file that is replaced keeps its mode and owner. The new file is on the disk before it has the
    name (``fsync``), and so is the name before this returns. What killed processes left behind
    while they wrote the same file is removed.

    Raises:
        InputError: when it cannot be written; what was at ``path`` is then still there.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "items.csv"
        >>> with replacing(path) as file:
        ...     size = file.write(b"item,weight")
        >>> path.read_text()
        'item,weight'
    """
    target = check_target(path)
    # Not the name itself, which may be as long as the system allows.
    name = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
    partial = target.with_name(f"{PARTIAL}{name}-{uuid4().hex}.tmp")
    try:
        with _open_locked(partial) as file:
            _remove_left_over(target.parent, f"{PARTIAL}{name}-*.tmp")
            if target.exists():
                _keep_attributes(target, partial)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # under the lock; Windows cannot rename an open file
                os.replace(partial, target)
        if fcntl is None:
            os.replace(partial, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}).") from None
    finally:
        partial.unlink(missing_ok=True)


def _open_locked(partial: Path) -> IO[bytes]:
    """A new file, locked, so that other processes see that it is in use."""
    while True:
        file = partial.open("xb")
        if lock(file) and os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process has removed it before it was locked
        partial.unlink(missing_ok=True)


def _keep_attributes(target: Path, partial: Path) -> None:
    """Give the new file the owner, the group, the mode and the access list of the old one."""
    old, new = target.stat(), partial.stat()
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.chown(partial, old.st_uid, old.st_gid)
    shutil.copystat(target, partial)  # after chown, which clears special bits of the mode


def _remove_left_over(folder: Path, pattern: str) -> None:
    """Remove temporary files whose process has ended: nobody holds their lock any more."""
    if fcntl is None:
        return
    for left in folder.glob(pattern):
        with suppress(OSError):
            if stat.S_ISREG(left.lstat().st_mode):
                with left.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    left.unlink()


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)

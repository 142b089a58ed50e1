"""Writing files atomically: completely or not at all."""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

from irtcat._common.checks import InputError
from irtcat._files.reading import status_of

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

PARTIAL = ".irtcat-"
"""Prefix of the names of temporary files."""


def check_target(path: str | os.PathLike[str]) -> Path:
    """Return the file that ``path`` refers to, with symbolic links resolved, if it can be written.

    Called before a long computation, so that its result can be saved afterwards.

    Raises:
        InputError: the name is not valid for a file, the folder does not exist, the path is not a
            regular file, or the file is read-only or belongs to another user.

    Example:
        >>> check_target("no-such-folder/items.csv")
        Traceback (most recent call last):
        irtcat._common.errors.InputError: no-such-folder/items.csv: the folder no-such-folder ...
    """
    status_of(path)  # raises if the name is not valid for a file
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {Path(path).parent} does not exist. Create it first.")
    if target.is_dir():
        raise InputError(f"{path}: this is a folder. Give the name of a file in it.")
    if not target.exists():
        return target
    if not target.is_file():
        raise InputError(f"{path}: this is not a regular file. Give the name of another file.")
    status = target.stat()
    # The mode as well as the access: root may write to every file.
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
    """Lock an open file until it is closed or the process ends; False if another process has it."""
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
    """Open a temporary file for writing that replaces ``path`` once it is complete.

    A replaced file keeps its mode and owner. The new file is on disk before it gets its name
    (``fsync``), and the name is on disk before this returns. Temporary files that killed processes
    left for the same path are removed.

    Raises:
        InputError: it cannot be written; ``path`` is then unchanged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "items.csv"
        >>> with replacing(path) as file:
        ...     size = file.write(b"item,weight")
        >>> path.read_text()
        'item,weight'
    """
    target = check_target(path)
    # A hash, because the name itself may already be as long as the system allows.
    name = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
    partial = target.with_name(f"{PARTIAL}{name}-{uuid4().hex}.tmp")
    try:
        with _open_locked(partial) as file:
            _remove_abandoned(target.parent, f"{PARTIAL}{name}-*.tmp")
            if target.exists():
                _copy_attributes(target, partial)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # while locked; Windows cannot rename an open file
                os.replace(partial, target)
        if fcntl is None:
            os.replace(partial, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}).") from None
    finally:
        partial.unlink(missing_ok=True)


def _open_locked(partial: Path) -> IO[bytes]:
    """Create a file and lock it, so that other processes see that it is in use."""
    while True:
        file = partial.open("xb")
        if lock(file) and os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process removed it before it was locked
        partial.unlink(missing_ok=True)


def _copy_attributes(target: Path, partial: Path) -> None:
    """Copy the owner, group, mode and access list of the old file to the new one."""
    old, new = target.stat(), partial.stat()
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.chown(partial, old.st_uid, old.st_gid)
    shutil.copystat(target, partial)  # after chown, which clears special bits of the mode


def _remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove temporary files that no process has locked any more."""
    if fcntl is None:
        return
    for abandoned in folder.glob(pattern):
        with suppress(OSError):
            if stat.S_ISREG(abandoned.lstat().st_mode):
                with abandoned.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    abandoned.unlink()


def _sync_folder(folder: Path) -> None:
    """Write a folder's entries to disk, where the system supports it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not supported by some network file systems
            os.fsync(descriptor)
    finally:
        os.close(descriptor)

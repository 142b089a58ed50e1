"""The folder of what may be deleted at any time: compiled programs."""

import os
import stat
import sys
from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """A folder in ``IRTCAT_CACHE`` or else in the user's cache; None where there is to be none."""
    if "IRTCAT_CACHE" in os.environ:
        text = os.environ["IRTCAT_CACHE"].strip()
        return Path(text).expanduser() / name if text else None
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "irtcat" / name
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "irtcat" / name
    home = Path.home()
    base = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return base / "irtcat" / name


def writable_folder(name: str) -> Path | None:
    """The cache's folder of this name, made if need be; None where it cannot be written to."""
    try:
        folder = cache_folder(name)
        if folder is None:
            return None
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return None
    return folder if os.access(folder, os.W_OK) else None


def is_private(status: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user, and nobody else can write to it.

    Windows keeps the rights in lists that Python does not read; there the user's own folder is
    trusted.
    """
    if not hasattr(os, "getuid"):
        return True
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.getuid() and not status.st_mode & others

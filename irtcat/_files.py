"""Writing files whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from uuid import uuid4

from irtcat._checks import InputError

__all__ = ["check_target", "replacing"]


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file that ``path`` stands for, symbolic links followed, or a sentence why not.

    Called before long work, so that an hour is not spent on what cannot be saved.

    Raises:
        InputError: when the folder does not exist, or something else than a file is there.

    Example:
        >>> check_target("no-such-folder/items.csv")
        Traceback (most recent call last):
        irtcat._checks.InputError: no-such-folder/items.csv: the folder no-such-folder does not ...
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {Path(path).parent} does not exist. Make it first.")
    if target.is_dir():
        raise InputError(f"{path}: this is a folder. Give the name of a file in it.")
    if target.exists() and not target.is_file():
        raise InputError(f"{path}: this is not a regular file. Give the name of another file.")
    return target


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of ``path`` once it is whole.

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
    partial = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        with partial.open("xb") as file:
            yield file
        os.replace(partial, target)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}).") from None
    finally:
        partial.unlink(missing_ok=True)

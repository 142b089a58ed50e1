"""The files of a new test, which `irtcat service new` writes, commented.

The items are our own, and their parameters are invented: replace both.
"""

import os
import shutil
from pathlib import Path

from irtcat._common.checks import InputError

__all__ = ["write"]


def write(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the files of a new test.

    Args:
        folder: a folder that does not exist, or is empty.

    Returns:
        The files, relative to the folder.

    Raises:
        InputError: for a folder with files in it, or one that cannot be made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [path.as_posix() for path in write(folder)][:3]
        ['README.md', 'items/area.md', 'items/average.md']
    """
    source, target = Path(__file__).parent, Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{folder}: expected a new or empty folder. Nothing was written.")
    files = [
        path.relative_to(source)
        for path in sorted(source.rglob("*"))
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    try:
        for path in files:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / path, target / path)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}).") from None
    return files

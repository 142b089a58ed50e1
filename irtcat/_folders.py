"""Folders of results: a manifest lists the files that irtcat wrote, and no other is touched."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any

from irtcat._checks import InputError, shorten
from irtcat._files import PARTIAL, check_target, replacing
from irtcat._reading import read_json, status_of

__all__ = ["LOCK", "MANIFEST", "OutputFolder", "write_json"]

MANIFEST, LOCK = "manifest.json", ".lock"
FORMAT, VERSION = "irtcat-folder", 1


class OutputFolder:
    """A folder of results with the manifest of what irtcat wrote there.

    A file is in the manifest before it is written. A file that is there, but not in the manifest,
    is somebody else's: it is neither replaced nor removed.

    Attributes:
        path: the folder.
        kind: the command that writes to it.
        about: what the results are of; None in a folder without a manifest.
        files: names of the files and folders that irtcat wrote.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str):
        """Look at the folder; nothing is written.

        Args:
            path: the folder; it need not exist.
            kind: the command that writes to it; a folder of another one is refused.

        Raises:
            InputError: when something else than a folder is there, it cannot be written to, or its
                manifest cannot be used.
        """
        status_of(path)  # a sentence where the name cannot be one of a folder
        self.path, self.kind = Path(path), kind
        self.about: dict[str, Any] | None = None
        self.files: list[str] = []
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{path}: this is a file. Give the name of a folder.")
        above = next(each for each in (self.path, *self.path.absolute().parents) if each.exists())
        if not os.access(above, os.W_OK):
            raise InputError(f"{path}: this folder cannot be written to. Give another one.")
        if os.path.lexists(self.path / MANIFEST):
            self._read(self.path / MANIFEST)

    def _read(self, path: Path) -> None:
        """Take the manifest, which may have come from anywhere."""
        try:
            found = read_json(path)
            kind, about, files = found["kind"], found["about"], found["files"]
            good = found["format"] == FORMAT and found["version"] == VERSION
            good = good and isinstance(about, dict) and all(map(_is_plain_name, files))
        except (InputError, TypeError, LookupError):
            good = False
        if not good or path.is_symlink():
            raise InputError(f"{path}: not a manifest of irtcat. Give another folder.")
        if kind != self.kind:
            has = f"holds the results of irtcat {shorten(kind)}, not of {self.kind}"
            raise InputError(f"{self.path}: {has}. Give another folder.")
        self.about, self.files = about, list(files)

    def others(self) -> list[str]:
        """Names in the folder that are not irtcat's."""
        own = {MANIFEST, LOCK, *self.files}
        there = os.listdir(self.path) if self.path.is_dir() else []
        return sorted(each for each in there if each not in own and not each.startswith(PARTIAL))

    def make(self, about: Mapping[str, Any] | None = None) -> None:
        """Make the folder and write the manifest.

        Raises:
            InputError: when it cannot be made or written.
        """
        self.about = dict(about or {})
        self._make_path()
        self._write()

    def _make_path(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be made ({error.strerror or error}).") from None

    def _write(self) -> None:
        document = {"format": FORMAT, "version": VERSION, "kind": self.kind, "about": self.about}
        write_json(self.path / MANIFEST, {**document, "files": self.files})

    def check(self, names: Iterable[str]) -> None:
        """Raise where a file of this name would replace one that irtcat did not write.

        Raises:
            InputError: naming the file.
        """
        for name in names:
            path = self.path / name
            if path.is_symlink() or (name not in self.files and os.path.lexists(path)):
                what = "a link" if path.is_symlink() else "not a file that irtcat wrote"
                raise InputError(f"{path}: this is {what}. Move it, or give another folder.")
            if self.path.is_dir() and not path.is_dir():
                check_target(path)

    @contextmanager
    def writing(self, names: Iterable[str]) -> Iterator[dict[str, IO[bytes]]]:
        """Open files of these names, which all take their names once all are written.

        Where anything goes wrong before, none does, and folders made for them are gone again.

        Raises:
            InputError: as `check` does, or when they cannot be written.
        """
        wanted = list(names)
        self.check(wanted)
        new = [each for each in (self.path, *self.path.parents) if not each.exists()]
        try:
            self._make_path()
            with ExitStack() as stack:
                yield {each: stack.enter_context(replacing(self.path / each)) for each in wanted}
                self.add(wanted)
        finally:
            for each in new:
                with suppress(OSError):  # it holds something
                    each.rmdir()

    def file(self, name: str, *beside: str) -> Path:
        """The path of a file to write, entered in the manifest first.

        Args:
            name: its name.
            beside: names of further files that come with it.

        Raises:
            InputError: as `check` does.
        """
        self.add((name, *beside))
        return self.path / name

    def add(self, names: Iterable[str]) -> None:
        """Enter files in the manifest, all or none.

        Raises:
            InputError: as `check` does.
        """
        wanted = list(names)
        self.check(wanted)
        new = [name for name in wanted if name not in self.files]
        self.files += new
        if self.about is None:
            self.make()
        elif new:
            self._write()

    def folder(self, name: str) -> Path:
        """The path of a folder of this run: the one of the manifest, or a new one.

        Where a folder of the name is there already and not in the manifest, a number is added.
        """
        known = [each for each in self.files if each == name or each.startswith(f"{name}-")]
        if known:
            return self.file(known[0])
        tried = (name if n == 1 else f"{name}-{n}" for n in count(1))
        return self.file(next(each for each in tried if not os.path.lexists(self.path / each)))

    def clear(self) -> None:
        """Remove the files of the manifest; folders stay where they are, and are not used again."""
        for name in self.files:
            path = self.path / name
            if path.is_symlink() or path.is_file():
                path.unlink()
        self.files = []


def _is_plain_name(name: Any) -> bool:
    """Whether it names a file in the folder itself, and none of irtcat's own."""
    plain = isinstance(name, str) and bool(name) and "\0" not in name and "\\" not in name
    return plain and os.path.basename(name) == name and name not in (".", "..", MANIFEST, LOCK)


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """A document in a file, whole or not at all; what is not finite must be null already."""
    with replacing(path) as file:
        file.write((json.dumps(document, indent=1, allow_nan=False) + "\n").encode("utf-8"))

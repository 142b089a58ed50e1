"""Output folders: a manifest lists the files that irtcat wrote; no other file is changed."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any

from irtcat._common.checks import InputError, shorten
from irtcat._files.formats import FileFormat
from irtcat._files.json import write_json
from irtcat._files.reading import read_json, status_of
from irtcat._files.writing import PARTIAL, check_target, replacing

MANIFEST, LOCK = "manifest.json", ".lock"
FOLDER = FileFormat("irtcat-folder", "a manifest of irtcat", "Give another folder.")


def make_folder(path: Path) -> None:
    """Create a folder where there is none.

    Raises:
        InputError: it cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be created ({error.strerror or error}).") from None


class OutputFolder:
    """A folder of results with a manifest of the files that irtcat wrote.

    A file is entered in the manifest before it is written. Existing files that are not in the
    manifest are neither replaced nor removed.

    Attributes:
        path: the folder.
        kind: the command that writes to it.
        about: a description of the run; None in a folder without a manifest.
        files: names of the files and folders that irtcat wrote.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str):
        """Inspect the folder; nothing is written.

        Args:
            path: the folder; it need not exist.
            kind: the command that writes to it; the folder of another command is refused.

        Raises:
            InputError: the path is not a folder, the folder cannot be written to, or its manifest
                is invalid.
        """
        status_of(path)  # raises if the name is not valid for a folder
        self.path, self.kind = Path(path), kind
        self.about: dict[str, Any] | None = None
        self.files: list[str] = []
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{path}: this is a file. Give the name of a folder.")
        folders = (self.path, *self.path.absolute().parents)
        existing = next(folder for folder in folders if folder.exists())
        if not os.access(existing, os.W_OK):
            raise InputError(f"{path}: this folder cannot be written to. Give another one.")
        if os.path.lexists(self.path / MANIFEST):
            self._read(self.path / MANIFEST)

    def _read(self, path: Path) -> None:
        """Read the manifest, whose content is not trusted."""
        try:
            document = read_json(path)
        except InputError:
            document = None
        FOLDER.check(document, path)
        try:
            kind, about, files = document["kind"], document["about"], document["files"]
            valid = isinstance(about, dict) and all(map(_is_plain_name, files))
        except (TypeError, LookupError):
            valid = False
        if not valid or path.is_symlink():
            raise InputError(f"{path}: not a manifest of irtcat. Give another folder.")
        if kind != self.kind:
            mismatch = f"holds the results of irtcat {shorten(kind)}, not of {self.kind}"
            raise InputError(f"{self.path}: {mismatch}. Give another folder.")
        self.about, self.files = about, list(files)

    def others(self) -> list[str]:
        """Names in the folder that irtcat did not write."""
        managed = {MANIFEST, LOCK, *self.files}
        names = set(os.listdir(self.path) if self.path.is_dir() else ())
        return sorted(name for name in names - managed if not name.startswith(PARTIAL))

    def make(self, about: Mapping[str, Any] | None = None) -> None:
        """Create the folder and write the manifest.

        Raises:
            InputError: it cannot be created or written.
        """
        self.about = dict(about or {})
        make_folder(self.path)
        self._write()

    def _write(self) -> None:
        document = {**FOLDER.head, "kind": self.kind, "about": self.about, "files": self.files}
        write_json(self.path / MANIFEST, document)

    def check(self, names: Iterable[str]) -> None:
        """Raise if a file of one of these names would replace one that irtcat did not write.

        Raises:
            InputError: naming the file.
        """
        for name in names:
            path = self.path / name
            if path.is_symlink() or (name not in self.files and os.path.lexists(path)):
                kind = "a link" if path.is_symlink() else "not a file that irtcat wrote"
                raise InputError(f"{path}: this is {kind}. Move it, or give another folder.")
            if self.path.is_dir() and not path.is_dir():
                check_target(path)

    @contextmanager
    def writing(self, names: Iterable[str]) -> Iterator[dict[str, IO[bytes]]]:
        """Open files of these names; they appear under these names once all are written.

        On an error none appears, and folders created for them are removed.

        Raises:
            InputError: as `check` does, or if they cannot be written.
        """
        names = list(names)
        self.check(names)
        new = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            make_folder(self.path)
            with ExitStack() as stack:
                yield {name: stack.enter_context(replacing(self.path / name)) for name in names}
                self.add(names)
        finally:
            for folder in new:
                with suppress(OSError):  # not empty
                    folder.rmdir()

    def file(self, name: str, *beside: str) -> Path:
        """Enter a file in the manifest and return its path for writing.

        Args:
            name: its name.
            beside: names of further files that belong to it.

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
        names = list(names)
        self.check(names)
        new = [name for name in names if name not in self.files]
        self.files += new
        if self.about is None:
            self.make()
        elif new:
            self._write()

    def folder(self, name: str) -> Path:
        """The path of a folder of this run: the one in the manifest, or a new one.

        If a folder of this name exists that is not in the manifest, a number is appended.
        """
        known = [file for file in self.files if file == name or file.startswith(f"{name}-")]
        if known:
            return self.file(known[0])
        candidates = (name if n == 1 else f"{name}-{n}" for n in count(1))
        return self.file(next(c for c in candidates if not os.path.lexists(self.path / c)))

    def clear(self) -> None:
        """Remove the files in the manifest; folders remain, but are not used again."""
        for name in self.files:
            path = self.path / name
            if path.is_symlink() or path.is_file():
                path.unlink()
        self.files = []


def _is_plain_name(name: Any) -> bool:
    """Whether this names a file directly in the folder, other than the manifest and the lock."""
    plain = isinstance(name, str) and bool(name) and "\0" not in name and "\\" not in name
    return plain and os.path.basename(name) == name and name not in (".", "..", MANIFEST, LOCK)

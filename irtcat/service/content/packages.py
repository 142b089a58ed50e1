"""Untrusted zip packages: checked before a member is unpacked, and unpacked into memory only."""

import posixpath
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from irtcat._common.checks import InputError, brief, shorten
from irtcat._files import Unpacker, opened

MOST_MEMBERS = 20_000
"""Most members. The largest public collections have some thousand; a zip of empty members is a bomb
too: 60,000 of them were unpacked and read for minutes."""

MEMBER = b"PK\1\2"
"""Signature of a member in the directory of a zip."""

MOST_UNPACKED = 2**30
"""Most bytes of the members that are read, unpacked (1 GiB): they are held in memory, and twice the
media of the largest item set (see ``MOST_SET``) fit."""


class Package:
    """Members of a zip archive by their paths."""

    def __init__(self, archive: zipfile.ZipFile, name: str):
        self.name = name
        with _damage(name):
            infos = [info for info in archive.infolist() if not info.is_dir()]
        self.members: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            self._check(info)
            self.members[info.filename] = info
        self._unpacker = Unpacker(archive, name, MOST_UNPACKED)

    def _check(self, info: zipfile.ZipInfo) -> None:
        path, fault = info.orig_filename, ""
        parts = path.split("/")
        if path.startswith("/") or "\\" in path or ":" in parts[0] or "\0" in path:
            fault = "an absolute path"
        elif ".." in parts or "." in parts or "" in parts:
            fault = "a path that leads out of the package"
        elif stat.S_ISLNK(info.external_attr >> 16):
            fault = "a link"
        elif info.flag_bits & 1:
            fault = "an encrypted member"
        elif path in self.members:
            fault = "two members of the same path"
        if fault:
            where = f"{self.name}, member {brief(path)}"
            raise InputError(f"{where}: expected a plain file. Got {fault}.")

    def __contains__(self, path: str) -> bool:
        return path in self.members

    def read(self, path: str, most: int) -> bytes:
        """The bytes of a member.

        Raises:
            InputError: there is none, or it is larger than ``most`` or damaged.
        """
        if path not in self.members:
            raise InputError(f"{self.name}: expected a member {brief(path)}. Got none.")
        info = self.members[path]
        if info.file_size > most:
            size = f"{most / 2**20:,.0f} MiB"
            raise InputError(f"{self.name}, member {brief(path)}: expected at most {size}.")
        with _damage(f"{self.name}, member {brief(path)}"):
            return self._unpacker.read(info)

    def resolve(self, base: str, address: str, where: str) -> str:
        """The path of the member that an address names.

        The address is relative to the member at ``base``, and percent-encoded.

        Raises:
            InputError: the address leads out of the package, or the member does not exist.
        """
        path = posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(address)))
        outside = address.startswith("/") or "\\" in address or path.startswith("..")
        if outside or ":" in address:
            raise InputError(f"{where}: expected a file of the package. Got {shorten(address)}.")
        if path not in self.members:
            raise InputError(f"{where}: expected a file of the package. Got {shorten(path)}.")
        return path


@contextmanager
def open_package(path: Path) -> Iterator[Package]:
    """Open a zip package for reading.

    Raises:
        InputError: it is not a zip, is damaged, or has members that are not plain files.
    """
    with opened(path) as file:
        with _damage(str(path)):
            _check_number(file, str(path))
            archive = zipfile.ZipFile(file)
        with archive:
            yield Package(archive, str(path))


def _check_number(file: IO[bytes], name: str) -> None:
    """Raise for too many members, before `zipfile` makes an object of each.

    The number in the end of a zip can be false, and so can the position of the directory. So the
    signatures of its entries are counted, wherever they are.
    """
    n_members, before = 0, b""
    while block := file.read(2**20):
        n_members += (before + block).count(MEMBER)
        before = block[1 - len(MEMBER) :]
    if n_members > MOST_MEMBERS:
        raise InputError(
            f"{name}: expected at most {MOST_MEMBERS:,} files in a zip. Got more. Remove what "
            "belongs to no item, or publish the items in several tests."
        )


@contextmanager
def _damage(label: str) -> Iterator[None]:
    """Turn errors of a damaged archive into one that names it."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # zipfile and zlib raise many types
        reason = type(error).__name__
        raise InputError(f"{label}: cannot be read as a zip package ({reason}).") from None

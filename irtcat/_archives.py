"""Arrays and members of archives, whose sizes are checked before anything is unpacked."""

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from irtcat._checks import InputError, is_unicode
from irtcat._reading import MOST_BYTES, allowed_bytes, opened, too_large

__all__ = ["ArrayFile", "Unpacker", "array_file", "check_array", "map_npy", "read_npy"]

STORED, DEFLATED, ZSTD = 0, 8, 93
"""Methods of zip whose readers stop at the size asked for; bzip2 and LZMA unpack whole blocks."""

PICKLED = "holds pickled Python objects, and pickles run code"


class Unpacker:
    """Unpacks members of a zip archive, all of them together within one limit.

    Args:
        archive: the open `zipfile.ZipFile`.
        name: the file, for messages.
        most: how many bytes the members may have unpacked.
    """

    def __init__(self, archive: Any, name: str, most: int):
        self.archive, self.name, self.most, self.left = archive, name, most, most

    def check(self, info: zipfile.ZipInfo) -> None:
        """Count a member's size; raise where it is too large or packed in another way.

        The size may be a lie: a reader of the archive stops at it, and then finds another sum.
        """
        if info.compress_type not in (STORED, DEFLATED, ZSTD):
            how = "stored, deflated or by Zstandard"
            raise InputError(f"{self.name}, member {info.filename}: expected it to be {how}.")
        if info.file_size > self.left:
            raise too_large(f"{self.name}, member {info.filename}", self.most)
        self.left -= info.file_size

    def read(self, info: zipfile.ZipInfo) -> bytes:
        """A member's bytes."""
        self.check(info)
        with self.archive.open(info) as stream:
            return bytes(stream.read(info.file_size))


class ArrayFile:
    """A zip of ``.npy`` arrays, read one by one, without pickle.

    Attributes:
        names: names of the arrays.
    """

    def __init__(self, archive: zipfile.ZipFile, path: Any, most: int, damaged: Any):
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        self.names = [info.filename.removesuffix(".npy") for info in members]
        if len(set(self.names)) < len(self.names):
            raise damaged("an array is there twice")
        self._members = dict(zip(self.names, members, strict=True))
        self._unpacker, self._path, self._damaged = (
            Unpacker(archive, str(path), most),
            path,
            damaged,
        )

    def __getitem__(self, name: str) -> np.ndarray:
        """An array; only this member is unpacked."""
        if name not in self._members:
            raise self._damaged(f"there is no array {name}")
        info, archive = self._members[name], self._unpacker.archive
        self._unpacker.check(info)
        with archive.open(info) as stream:
            check_array(stream, info.file_size, f"{self._path}: {name}", self._damaged)
        with archive.open(info) as stream:  # anew: the header was read
            array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
            stream.read(1)  # the sum is checked at the end
        if array.dtype.kind == "U" and not is_unicode(array):
            raise self._damaged(f"the array {name} is not text")
        return array

    def read(self, *names: str) -> dict[str, np.ndarray]:
        """Those of these arrays that are there."""
        return {name: self[name] for name in names if name in self._members}


@contextmanager
def array_file(
    path: str | os.PathLike[str],
    damaged: Callable[[str], InputError],
    max_bytes: int = MOST_BYTES,
) -> Iterator[ArrayFile]:
    """Open a zip of arrays.

    Args:
        path: the file.
        damaged: makes the error of why the file cannot be used.
        max_bytes: how many bytes the arrays that are read may have in all.

    Raises:
        InputError: when it cannot be opened, is damaged, or expands to more.
    """
    with opened(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield ArrayFile(archive, path, allowed_bytes(file, max_bytes), damaged)
        except InputError:
            raise
        except MemoryError:
            raise
        except Exception as error:  # zipfile, zlib and numpy each have many ways to say it
            raise damaged(f"it cannot be read ({type(error).__name__})") from None


def check_array(
    stream: IO[bytes], size: int, what: str, damaged: Callable[[str], InputError]
) -> tuple[int, int]:
    """Compare what an array's header declares with the bytes that are there.

    Args:
        stream: at the start of the header; it is read.
        size: bytes of header and values.
        what: the array, for messages.
        damaged: makes the error.

    Returns:
        Where the values begin, and how many bytes they are.

    Raises:
        InputError: for pickled objects, and where the sizes differ.
    """
    version = np.lib.format.read_magic(stream)
    header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    reader = header.get(version)
    if reader is None:  # version 3.0 is of structured arrays, which no file of ours has
        raise damaged("an array is of an unknown format")
    shape, _, dtype = reader(stream)
    if dtype.hasobject:
        advice = "Store ids as text, such as np.array(ids, dtype=str)."
        raise InputError(f"{what} {PICKLED}. {advice}")
    start, values = stream.tell(), dtype.itemsize
    for length in shape:  # numbers of Python, which do not overflow
        values *= length
    if min(shape, default=1) < 0 or dtype.itemsize == 0 or dtype.names or start + values != size:
        raise damaged("an array is not of the size that its header says")
    return start, values


def read_npy(path: Path, max_bytes: int = MOST_BYTES) -> np.ndarray:
    """The array of a ``.npy`` file, read whole.

    Raises:
        InputError: when it is damaged, pickled or too large.
    """
    with opened(path) as file:
        most, size = allowed_bytes(file, max_bytes), os.fstat(file.fileno()).st_size
    if size > most:
        raise too_large(str(path), most)
    array = np.array(map_npy(path))
    if array.dtype.kind == "U" and not is_unicode(array):
        raise InputError(f"{path}: the array is not text. Write it anew.")
    return array


def map_npy(path: Path) -> np.ndarray:
    """The array of a ``.npy`` file, mapped into memory and read where it is used.

    Raises:
        InputError: when it is damaged, or its size is not what its header says.
    """

    def damaged(why: str) -> InputError:
        return InputError(f"{path}: not an .npy file of an array ({why}). Write it anew.")

    with opened(path) as file:
        try:
            check_array(file, os.fstat(file.fileno()).st_size, f"{path}: the array", damaged)
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        except InputError:
            raise
        except Exception as error:  # numpy has many ways to say that a header is none
            raise damaged(type(error).__name__) from None
        return array

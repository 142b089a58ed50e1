"""Arrays and zip members, whose sizes are checked before anything is unpacked."""

import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from irtcat._common.checks import InputError, argument_error, is_unicode
from irtcat._files.formats import FileFormat
from irtcat._files.reading import MOST_BYTES, allowed_bytes, opened, parse_json, too_large
from irtcat._files.writing import check_target

STORED, DEFLATED, ZSTD = 0, 8, 93
"""Zip methods whose readers stop at the requested size; bzip2 and LZMA unpack whole blocks."""

PICKLED = "holds pickled Python objects, and pickles run code"


class Unpacker:
    """Unpacks members of a zip archive within one limit on their total size.

    Args:
        archive: the open `zipfile.ZipFile`.
        name: the file, for messages.
        most: the total number of bytes that the members may have when unpacked.
    """

    def __init__(self, archive: Any, name: str, most: int):
        self.archive, self.name, self.most, self.left = archive, name, most, most

    def check(self, info: zipfile.ZipInfo) -> None:
        """Count a member's size; raise if it is too large or compressed by another method.

        A declared size that is false does no harm: the reader stops at it, and the checksum fails.
        """
        if info.compress_type not in (STORED, DEFLATED, ZSTD):
            methods = "stored, deflated or Zstandard"
            raise InputError(f"{self.name}, member {info.filename}: expected it to be {methods}.")
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
            raise damaged("two arrays have the same name")
        self._members = dict(zip(self.names, members, strict=True))
        self._unpacker = Unpacker(archive, str(path), most)
        self._path, self._damaged = path, damaged

    def __getitem__(self, name: str) -> np.ndarray:
        """An array; only this member is unpacked."""
        if name not in self._members:
            raise self._damaged(f"the array {name} is missing")
        info, archive = self._members[name], self._unpacker.archive
        self._unpacker.check(info)
        with archive.open(info) as stream:
            check_array(stream, info.file_size, f"{self._path}: {name}", self._damaged)
        with archive.open(info) as stream:  # reopened, because the header has been read
            array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
            stream.read(1)  # zipfile checks the checksum at the end of the member
        if array.dtype.kind == "U" and not is_unicode(array):
            raise self._damaged(f"the array {name} is not text")
        return array

    def document(self, name: str, file_format: FileFormat) -> dict[str, Any]:
        """The JSON document in an array of one text, which has the head of the format."""
        text = self[name]
        if text.shape != () or text.dtype.kind != "U":
            raise self._damaged(f"its {name} is not text")
        try:
            document = parse_json(str(text).encode("utf-8", "replace"), "", MOST_BYTES)
        except InputError:
            raise self._damaged(f"its {name} is not JSON") from None
        file_format.check(document, self._path)
        return dict(document)

    def read(self, *names: str) -> dict[str, np.ndarray]:
        """The arrays of these names that exist."""
        return {name: self[name] for name in names if name in self._members}


def array_names(path: str | os.PathLike[str]) -> set[str]:
    """The names of the arrays in an archive; none for another file."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return set()
    return {name.removesuffix(".npy") for name in names if name.endswith(".npy")}


def npz_target(path: str | os.PathLike[str]) -> Path:
    """The file of arrays to write to, whose name ends in ``.npz``.

    Raises:
        InputError: it ends otherwise, or cannot be written.
    """
    target = check_target(path)
    if target.suffix != ".npz":
        raise argument_error("path", "a file name that ends in .npz", str(path))
    return target


def write_arrays(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a zip of arrays, compressed and without pickle."""
    np.savez_compressed(file, allow_pickle=False, **arrays)


def arrays_as_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The contents of the file that `write_arrays` writes."""
    buffer = io.BytesIO()
    write_arrays(buffer, arrays)
    return buffer.getvalue()


@contextmanager
def array_file(
    source: str | os.PathLike[str] | bytes,
    damaged: Callable[[str], InputError],
    max_bytes: int = MOST_BYTES,
    name: str = "",
) -> Iterator[ArrayFile]:
    """Open a zip of arrays.

    Args:
        source: the file, or its contents.
        damaged: makes the error from the reason why the file cannot be used.
        max_bytes: the total number of bytes that the arrays read may have.
        name: what messages call it; the path by default.

    Raises:
        InputError: it cannot be opened, is damaged, or expands to more.
    """
    with _stream(source, max_bytes) as (file, most):
        try:
            with zipfile.ZipFile(file) as archive:
                yield ArrayFile(archive, name or source, most, damaged)
        except (InputError, MemoryError):
            raise
        except zipfile.BadZipFile:
            raise damaged("it is empty or not a whole .npz archive") from None
        except Exception as error:  # zipfile, zlib and numpy raise many types for damaged data
            raise damaged(f"it cannot be read ({type(error).__name__})") from None


@contextmanager
def _stream(
    source: str | os.PathLike[str] | bytes, max_bytes: int
) -> Iterator[tuple[IO[bytes], int]]:
    """A file or its contents as a stream, and how many bytes may be read from it."""
    if isinstance(source, bytes):
        yield io.BytesIO(source), max(max_bytes, len(source))
    else:
        with opened(source) as file:
            yield file, allowed_bytes(file, max_bytes)


def check_array(
    stream: IO[bytes], size: int, label: str, damaged: Callable[[str], InputError]
) -> tuple[int, int]:
    """Compare the size that an array's header declares with the actual size.

    Args:
        stream: at the start of the header, which is read.
        size: bytes of header and values.
        label: the array, for messages.
        damaged: makes the error.

    Returns:
        The offset of the values, and their number of bytes.

    Raises:
        InputError: for pickled objects, and if the sizes differ.
    """
    version = np.lib.format.read_magic(stream)
    header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    reader = header.get(version)
    if reader is None:  # version 3.0 is for structured arrays, which irtcat does not write
        raise damaged("an array is of an unknown format")
    shape, _, dtype = reader(stream)
    if dtype.hasobject:
        advice = "Store ids as text, such as np.array(ids, dtype=str)."
        raise InputError(f"{label} {PICKLED}. {advice}")
    start, values = stream.tell(), dtype.itemsize
    for length in shape:  # Python integers, which do not overflow
        values *= length
    if min(shape, default=1) < 0 or dtype.itemsize == 0 or dtype.names or start + values != size:
        raise damaged("an array does not have the size that its header declares")
    return start, values


def read_npy(path: Path, max_bytes: int = MOST_BYTES) -> np.ndarray:
    """Read the array of a ``.npy`` file into memory.

    Raises:
        InputError: it is damaged, pickled or too large.
    """
    with opened(path) as file:
        most, size = allowed_bytes(file, max_bytes), os.fstat(file.fileno()).st_size
    if size > most:
        raise too_large(str(path), most)
    array = np.array(map_npy(path))
    if array.dtype.kind == "U" and not is_unicode(array):
        raise InputError(f"{path}: the array is not text. Write the file again.")
    return array


def map_npy(path: Path) -> np.ndarray:
    """Map the array of a ``.npy`` file into memory; its values are read when used.

    Raises:
        InputError: it is damaged, or does not have the size that its header declares.
    """

    def damaged(why: str) -> InputError:
        return InputError(f"{path}: not an .npy file of an array ({why}). Write the file again.")

    with opened(path) as file:
        try:
            check_array(file, os.fstat(file.fileno()).st_size, f"{path}: the array", damaged)
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        except InputError:
            raise
        except Exception as error:  # numpy raises many types for an invalid header
            raise damaged(type(error).__name__) from None
        return array

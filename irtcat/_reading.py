"""Reading files that anyone may have written: regular, of bounded size, and strict as JSON."""

import json
import os
import select
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

from irtcat._checks import InputError, shorten

__all__ = [
    "MOST_BYTES",
    "allowed_bytes",
    "check_path",
    "check_regular",
    "numbered_lines",
    "opened",
    "parse_json",
    "read_bytes",
    "read_json",
    "seekable_copy",
    "status_of",
    "too_large",
]

MOST_BYTES = 2**28
"""The default of every ``max_bytes``: how far a file may expand in memory (256 MiB).

A matrix of 200 million responses of one byte fits. What a file takes on disk may be read in any
case (see `allowed_bytes`): only what is packed, sparse or endless is limited."""

MOST_LINE = 2**26
"""The longest line of a file of JSON lines, in bytes."""

FIRST_DATA = 2.0
"""Seconds to wait for a process that writes to a named pipe to open it."""

LIST_BYTES, VALUE_BYTES = 64, 32
"""About what Python needs for an empty list or object, and for a number or a short text."""


def check_path(path: Any) -> Path:
    """The path of something that exists.

    Raises:
        InputError: there is nothing, or the name cannot be one of a file.
    """
    if status_of(path) is None:
        raise InputError(f"{path}: there is no such file or folder.")
    return Path(path)


def status_of(path: Any) -> os.stat_result | None:
    """What the system says about a path; None where there is nothing.

    Raises:
        InputError: the name cannot be one of a file.
    """
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip():
        raise InputError(f"The `path` argument must be the path of a file. Got {shorten(path)}.")
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # such as a name that is too long, or a folder without access
        raise InputError(f"{shorten_path(path)}: {_reason(error)}.") from None
    except ValueError:  # a NUL character, or half a character
        raise InputError(f"The `path` argument must be a file name. Got {shorten(path)}.") from None


def shorten_path(path: Any) -> str:
    """A path in a message, its middle left out where it is too long."""
    text = str(path)
    return text if len(text) <= 200 else f"{text[:80]} ... {text[-80:]}"


def _reason(error: OSError) -> str:
    return f"cannot be opened ({error.strerror or type(error).__name__})"


def check_regular(path: Any) -> Path:
    """The path of a regular file.

    Raises:
        InputError: there is none, or something that cannot be read from any position.
    """
    file = check_path(path)
    if file.is_dir():
        raise InputError(f"{path}: this is a folder. Give the name of a file.")
    if not file.is_file():
        raise InputError(f"{path}: this is not a regular file. Save its content to a file first.")
    return file


@contextmanager
def opened(path: Any) -> Iterator[IO[bytes]]:
    """A regular file, open for reading.

    Raises:
        InputError: when it cannot be opened.
    """
    file = check_regular(path)
    try:
        stream = file.open("rb")
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}.") from None
    with stream:
        yield stream


def allowed_bytes(file: IO[bytes], max_bytes: int = MOST_BYTES) -> int:
    """How much of a file may be read: ``max_bytes``, or what it takes on disk where that is more.

    The size of a sparse file is not what it takes on disk.
    """
    about = os.fstat(file.fileno())
    on_disk = getattr(about, "st_blocks", about.st_size) * 512
    return max(max_bytes, min(about.st_size, on_disk))


def numbered_lines(path: Any) -> Iterator[tuple[int, bytes, bool]]:
    """Lines that are not blank, with their numbers, and whether each is ended by a line break.

    Raises:
        InputError: when the file cannot be opened, or naming a line longer than `MOST_LINE`.
    """
    with opened(path) as file:
        for number in count(1):
            raw = file.readline(MOST_LINE + 1)
            if not raw:
                return
            if len(raw) > MOST_LINE:
                most = f"{MOST_LINE // 2**20} MB"
                raise InputError(f"{path}, line {number}: expected a line of at most {most}.")
            if raw.strip():
                yield number, raw, raw.endswith(b"\n")


def too_large(what: str, most: int) -> InputError:
    """The error for a file, or a member of one, that is larger than the limit."""
    advice = "If you trust the file, raise max_bytes= (irtcat --max-bytes N COMMAND)"
    size = f"{most / 2**20:,.0f} MiB" if most >= 2**20 else f"{most:,} bytes"
    return InputError(f"{what}: expected at most {size}. {advice}.")


def read_bytes(path: Any, max_bytes: int = MOST_BYTES) -> bytes:
    """Everything in a file, or in a pipe.

    Raises:
        InputError: when it cannot be read, or is larger than allowed.
    """
    file = check_path(path)
    if not file.is_file():
        return b"".join(_pipe_blocks(file, max_bytes))
    with opened(file) as stream:
        most = allowed_bytes(stream, max_bytes)
        if os.fstat(stream.fileno()).st_size > most:
            raise too_large(str(path), most)
        try:
            return stream.read(most)
        except OSError as error:
            raise InputError(f"{path}: {_reason(error)}.") from None


def _pipe_blocks(path: Path, max_bytes: int) -> Iterator[bytes]:
    """What a pipe or a device gives, up to the limit.

    A named pipe that no process has opened for writing is not waited for longer than `FIRST_DATA`.
    """
    if path.is_dir():
        raise InputError(f"{path}: this is a folder. Give the name of a file.")
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}.") from None
    size, until = 0, time.monotonic() + FIRST_DATA
    try:
        while True:
            try:
                block = os.read(handle, 2**16)
            except BlockingIOError:  # a process has it open, and has not written yet
                select.select([handle], [], [])
                continue
            if not block and not size and time.monotonic() < until:
                time.sleep(0.02)
                continue
            if not block:
                break
            size += len(block)
            if size > max_bytes:
                raise too_large(str(path), max_bytes)
            yield block
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}.") from None
    finally:
        os.close(handle)


@contextmanager
def seekable_copy(path: Path, max_bytes: int = MOST_BYTES) -> Iterator[Path]:
    """The path itself; of a pipe or a device that of a copy of what it gives.

    Errors about the copy name the pipe.
    """
    if not _is_stream(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with copy.open("wb") as file:
            file.writelines(_pipe_blocks(path, max_bytes))
        try:
            yield copy
        except InputError as error:
            text = str(error).replace(str(copy), str(path))
        else:
            return
    raise InputError(text)


def _is_stream(path: Path) -> bool:
    """Whether a path is of a pipe, a socket or a device."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


class _RepeatedError(ValueError):
    """A name that comes twice in one JSON object, with different values."""


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; JSON's own reader keeps the last of two values without a word."""
    record = dict(pairs)
    if len(record) < len(pairs):
        first: dict[str, Any] = {}
        for name, value in pairs:
            if first.setdefault(name, value) != value:
                raise _RepeatedError(name)
    return record


def parse_json(data: bytes, where: str, max_bytes: int | None = None) -> Any:
    """A JSON document; NaN and infinities are read as Python writes them.

    Args:
        data: the text in UTF-8.
        where: the file, and the part of it, for messages.
        max_bytes: the most memory that the document may take, about; by default as much as
            usual documents of this length need, and at least `MOST_BYTES`.

    Raises:
        InputError: naming the file, and the line where there are several.
    """
    most = max(MOST_BYTES, 12 * len(data)) if max_bytes is None else max_bytes
    if len(data) * VALUE_BYTES > most:  # else it cannot be: the next line reads everything
        lists = data.count(b"[") + data.count(b"{")
        needed = len(data) + LIST_BYTES * lists + VALUE_BYTES * data.count(b",")
        if needed > most:
            raise too_large(f"{where}: the JSON document", most)
    try:
        document = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_each_name_once)
        return _whole_characters(document) if b"\\ud" in data.lower() else document
    except UnicodeDecodeError:
        raise InputError(f"{where}: expected UTF-8 text.") from None
    except json.JSONDecodeError as error:
        where = f"{where}, line {error.lineno}" if b"\n" in data.strip() else where
        raise InputError(f"{where}: expected JSON. Got something else ({error.msg}).") from None
    except _RepeatedError as error:
        name = shorten(str(error).encode("utf-8", "replace").decode())
        raise InputError(f"{where}: {name} comes twice, with different values.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where}: expected JSON of usual numbers and depth.") from None


def _whole_characters(value: Any) -> Any:
    """The document with "?" for halves of characters, which cut-off model output can end in."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_whole_characters(each) for each in value]
    if isinstance(value, dict):
        return {_whole_characters(name): _whole_characters(v) for name, v in value.items()}
    return value


def read_json(path: Any, max_bytes: int = MOST_BYTES) -> Any:
    """A file that is one JSON document of at most ``max_bytes``, whatever it takes on disk.

    As Python's lists and texts a document takes several times its length.

    Raises:
        InputError: when it cannot be read, is too large, or is no JSON.
    """
    if check_path(path).stat().st_size > max_bytes:
        raise too_large(str(path), max_bytes)
    return parse_json(read_bytes(path, max_bytes), str(path))

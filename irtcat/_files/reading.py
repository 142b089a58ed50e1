"""Reading untrusted files: regular files of bounded size, and strict JSON."""

import json
import os
import select
import stat
import tempfile
import time
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

from irtcat._common.checks import InputError, shorten

MOST_BYTES = 2**28
"""The default of every ``max_bytes``: the size to which a file may expand in memory (256 MiB).

A matrix of 200 million responses of one byte fits. A file may always be read up to its size on disk
(see `allowed_bytes`): the limit applies to compressed, sparse and endless files only."""

MOST_LINE = 2**26
"""Maximum length of a line in a file of JSON lines, in bytes."""

PIPE_TIMEOUT = 2.0
"""Seconds to wait until a process opens a named pipe for writing."""

LIST_BYTES, VALUE_BYTES = 64, 32
"""Approximate memory of an empty list or object, and of a number or a short text, in Python."""


def check_path(path: Any) -> Path:
    """Return a path that exists.

    Raises:
        InputError: it does not exist, or the name is not valid for a file.
    """
    if status_of(path) is None:
        raise InputError(f"{path}: there is no such file or folder.")
    return Path(path)


def status_of(path: Any) -> os.stat_result | None:
    """The status of a path; None if it does not exist.

    Raises:
        InputError: the name is not valid for a file.
    """
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip():
        raise InputError(f"The `path` argument must be the path of a file. Got {shorten(path)}.")
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # such as a name that is too long, or a folder without access
        raise InputError(f"{shorten_path(path)}: {_reason(error)}.") from None
    except ValueError:  # a NUL character or a lone surrogate
        raise InputError(f"The `path` argument must be a file name. Got {shorten(path)}.") from None


def shorten_path(path: Any) -> str:
    """A path for a message; the middle of a long one is omitted."""
    text = str(path)
    return text if len(text) <= 200 else f"{text[:80]} ... {text[-80:]}"


def _reason(error: OSError) -> str:
    return f"cannot be opened ({error.strerror or type(error).__name__})"


def check_regular(path: Any) -> Path:
    """Return the path of a regular file.

    Raises:
        InputError: it does not exist, or is a folder, a pipe or a device.
    """
    file = check_path(path)
    if file.is_dir():
        raise InputError(f"{path}: this is a folder. Give the name of a file.")
    if not file.is_file():
        raise InputError(f"{path}: this is not a regular file. Save its content to a file first.")
    return file


@contextmanager
def opened(path: Any) -> Iterator[IO[bytes]]:
    """Open a regular file for reading.

    Raises:
        InputError: it cannot be opened.
    """
    file = check_regular(path)
    try:
        stream = file.open("rb")
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}.") from None
    with stream:
        yield stream


def allowed_bytes(file: IO[bytes], max_bytes: int = MOST_BYTES) -> int:
    """How many bytes of a file may be read: the larger of ``max_bytes`` and its size on disk.

    A sparse file is smaller on disk than its length.
    """
    status = os.fstat(file.fileno())
    on_disk = getattr(status, "st_blocks", status.st_size) * 512
    return max(max_bytes, min(status.st_size, on_disk))


def numbered_lines(path: Any) -> Iterator[tuple[int, bytes, bool]]:
    """Yield number, bytes and whether it ends in a line break of each line that is not blank.

    Raises:
        InputError: the file cannot be opened, or a line is longer than `MOST_LINE`.
    """
    with opened(path) as file:
        for number in count(1):
            raw = file.readline(MOST_LINE + 1)
            if not raw:
                return
            if len(raw) > MOST_LINE:
                most = f"{MOST_LINE // 2**20} MB"
                raise InputError(f"{path}, line {number}: expected a line of at most {most}.")
            if not raw.isspace():
                yield number, raw, raw.endswith(b"\n")


def too_large(label: str, most: int) -> InputError:
    """The error for a file or archive member that is larger than the limit."""
    advice = "If you trust the file, raise max_bytes"
    size = f"{most / 2**20:,.0f} MiB" if most >= 2**20 else f"{most:,} bytes"
    return InputError(f"{label}: expected at most {size}. {advice}.")


def read_bytes(path: Any, max_bytes: int = MOST_BYTES) -> bytes:
    """Read a file or a pipe to its end.

    Raises:
        InputError: it cannot be read, or is larger than allowed.
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
    """Yield the data of a pipe or a device, up to the limit.

    Waits at most `PIPE_TIMEOUT` for a process to open a named pipe for writing.
    """
    if path.is_dir():
        raise InputError(f"{path}: this is a folder. Give the name of a file.")
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise InputError(f"{path}: {_reason(error)}.") from None
    size, deadline = 0, time.monotonic() + PIPE_TIMEOUT
    try:
        while True:
            try:
                block = os.read(handle, 2**16)
            except BlockingIOError:  # a process has it open but has not written yet
                select.select([handle], [], [])
                continue
            if not block and not size and time.monotonic() < deadline:
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
    """Yield the path itself, or for a pipe or device the path of a temporary copy of its data.

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
    """Whether a path is a pipe, a socket or a device."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


class _RepeatedError(ValueError):
    """A JSON object has the same name twice, with different values."""


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from pairs; `json` itself would silently keep the last of two values."""
    record = dict(pairs)
    if len(record) < len(pairs):
        first: dict[str, Any] = {}
        for name, value in pairs:
            if first.setdefault(name, value) != value:
                raise _RepeatedError(name)
    return record


DECODER = json.JSONDecoder(object_pairs_hook=_unique_names)
"""`json.loads` builds one for each document, in a third of the time that a line of a log takes."""


def parse_json(data: bytes, where: str, max_bytes: int | None = None) -> Any:
    """Parse a JSON document; NaN and infinities are accepted as Python writes them.

    Args:
        data: the text in UTF-8.
        where: the file, and the position in it, for messages.
        max_bytes: approximate limit on the document's memory; by default what usual documents of
            this length need, and at least `MOST_BYTES`.

    Raises:
        InputError: naming the file, and the line if there is more than one.
    """
    most = max(MOST_BYTES, 12 * len(data)) if max_bytes is None else max_bytes
    if len(data) * VALUE_BYTES > most:  # otherwise it fits, and counting is unnecessary
        lists = data.count(b"[") + data.count(b"{")
        needed = len(data) + LIST_BYTES * lists + VALUE_BYTES * data.count(b",")
        if needed > most:
            raise too_large(f"{where}: the JSON document", most)
    try:
        document = DECODER.decode(data.removeprefix(BOM_UTF8).decode())
        escapes = b"\\u" in data and b"\\ud" in data.lower()
        return _replace_surrogates(document) if escapes else document
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


def _replace_surrogates(value: Any) -> Any:
    """Replace lone surrogates, in which truncated model output can end, by "?"."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_replace_surrogates(element) for element in value]
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(v) for name, v in value.items()}
    return value


def read_json(path: Any, max_bytes: int = MOST_BYTES) -> Any:
    """Read a JSON file of at most ``max_bytes``, whatever its size on disk.

    Parsed into Python objects, a document takes several times its length.

    Raises:
        InputError: it cannot be read, is too large, or is not JSON.
    """
    if check_path(path).stat().st_size > max_bytes:
        raise too_large(str(path), max_bytes)
    return parse_json(read_bytes(path, max_bytes), str(path))

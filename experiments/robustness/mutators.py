"""Changes that a file may suffer: of its bytes, its archive, its arrays, its JSON, its cells.

A mutator is a function of the bytes of a file and a random generator that gives other bytes.
`MUTATORS` lists them by the kind of file. Every mutator is bounded: no mutant is larger than a few
megabytes, though it may declare or unpack to more.
"""

import csv
import functools
import io
import json
import random
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["MUTATORS", "NotApplicableError", "kind_of", "mutate"]

Mutator = Callable[[bytes, random.Random], bytes]

BOMB = 400 * 2**20
"""Bytes that a bomb unpacks to."""

DEPTH = 100_000
"""Brackets of a JSON value that is nested too deeply."""


class NotApplicableError(Exception):
    """The mutator has nothing to change in these bytes."""


# ---------------------------------------------------------------- bytes


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    """Flip one bit, or a few."""
    out = bytearray(_some(data))
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def set_bytes(data: bytes, rng: random.Random) -> bytes:
    """Overwrite one byte, or a few."""
    out = bytearray(_some(data))
    for _ in range(rng.choice((1, 1, 4))):
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def truncate(data: bytes, rng: random.Random) -> bytes:
    """Keep the beginning, rarely the end."""
    at = rng.randrange(len(_some(data)))
    return data[at:] if rng.random() < 0.2 else data[:at]


def insert(data: bytes, rng: random.Random) -> bytes:
    """Insert random bytes."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 1, 3, 16, 200))) + data[at:]


def remove_block(data: bytes, rng: random.Random) -> bytes:
    """Remove a block."""
    start, end = _block(data, rng)
    return data[:start] + data[end:]


def repeat_block(data: bytes, rng: random.Random) -> bytes:
    """Repeat a block where it stands."""
    start, end = _block(data, rng)
    return data[:end] + data[start:end] + data[end:]


def zero_block(data: bytes, rng: random.Random) -> bytes:
    """Overwrite a block with zeros."""
    start, end = _block(data, rng)
    return data[:start] + bytes(end - start) + data[end:]


def swap_blocks(data: bytes, rng: random.Random) -> bytes:
    """Exchange two blocks."""
    cuts = sorted(rng.randrange(len(_some(data)) + 1) for _ in range(4))
    a, b, c, d = cuts
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def append(data: bytes, rng: random.Random) -> bytes:
    """Append or prepend something."""
    more = rng.choice((b"\0", b"\n", b" ", b"\x1a", b"{}", b"PK\x03\x04", data[:200], data))
    return data + more if rng.random() < 0.7 else more + data


BYTES: dict[str, Mutator] = {
    f.__name__: f
    for f in (
        *(flip_bits, set_bytes, truncate, insert, remove_block, repeat_block),
        *(zero_block, swap_blocks, append),
    )
}


def _some(data: bytes) -> bytes:
    if not data:
        raise NotApplicableError
    return data


def _block(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(_some(data)))
    return start, min(len(data), start + rng.choice((1, 4, 32, 256, 4096)))


# ---------------------------------------------------------------- text


LINE_ENDS = ("\r\n", "\r", "\n\n", "\n\r", "\x0b", "\x0c", "\x1e", "\x85", "\u2028")
CONTROL = ("\0", "\x01", "\x07", "\x08", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u202e", "\ufeff")


def line_ends(data: bytes, rng: random.Random) -> bytes:
    """Other line ends, in the whole file or in one line."""
    lines = _text(data).split("\n")
    end = rng.choice(LINE_ENDS)
    if rng.random() < 0.5:
        return end.join(lines).encode()
    at = rng.randrange(len(lines))
    return ("\n".join(lines[:at]) + end + "\n".join(lines[at:])).encode()


def encodings(data: bytes, rng: random.Random) -> bytes:
    """Another encoding, or a byte order mark."""
    text = _text(data)
    name = rng.choice(("utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252", "utf-7"))
    return text.replace("a", "ä", 1).encode(name, "replace") if name != "utf-8-sig" else (
        text.encode(name)
    )  # fmt: skip


def control_characters(data: bytes, rng: random.Random) -> bytes:
    """A control character somewhere in the text."""
    text = _text(data)
    at = rng.randrange(len(text) + 1)
    return (text[:at] + rng.choice(CONTROL) + text[at:]).encode()


def other_digits(data: bytes, rng: random.Random) -> bytes:
    """A digit as another script writes it."""
    text = _text(data)
    places = [i for i, c in enumerate(text) if c in "0123456789"]
    if not places:
        raise NotApplicableError
    at = rng.choice(places)
    digit = chr(rng.choice((0x660, 0x966, 0xFF10, 0x1D7CE)) + int(text[at]))
    return (text[:at] + digit + text[at + 1 :]).encode()


def shuffle_lines(data: bytes, rng: random.Random) -> bytes:
    """Lines moved, repeated or lost."""
    lines = _text(data).splitlines(keepends=True)
    if len(lines) < 2:
        raise NotApplicableError
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(4)
    if how == 0:
        lines[i], lines[j] = lines[j], lines[i]
    elif how == 1:
        lines.insert(j, lines[i])
    elif how == 2:
        del lines[i]
    else:
        lines.insert(i, rng.choice(("\n", " \n", "\t\n", "#\n", ",\n", "null\n", "[]\n")))
    return "".join(lines).encode()


def _text(data: bytes) -> str:
    try:
        return _some(data).decode("utf-8")
    except UnicodeDecodeError:
        raise NotApplicableError from None


TEXT: dict[str, Mutator] = {
    f.__name__: f for f in (line_ends, encodings, control_characters, other_digits, shuffle_lines)
}


# ---------------------------------------------------------------- JSON


class _Raw(str):
    """Text that is written as it is."""

    __slots__ = ()


class _Twice(NamedTuple):
    """An object with a key that comes twice."""

    document: dict[str, Any]
    key: str
    value: Any


def _dumps(value: Any, ascii_only: bool = True) -> str:
    """JSON, with `_Raw` and `_Twice` among the values."""
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, _Twice):
        inner = _dumps(value.document, ascii_only)
        more = f"{json.dumps(value.key)}: {_dumps(value.value, ascii_only)}"
        return f"{inner[:-1]}, {more}}}" if value.document else f"{{{more}}}"
    if isinstance(value, dict):
        pairs = (
            f"{json.dumps(str(k), ensure_ascii=ascii_only)}: {_dumps(v, ascii_only)}"
            for k, v in value.items()
        )
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_dumps(v, ascii_only) for v in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


STRANGE_NUMBERS = (
    *("NaN", "Infinity", "-Infinity", "-0.0", "1e999", "1e-999", "5e-324", "1e308", "0.5", "-1"),
    *("2", "7", "127", "128", "255", "65536", "2147483648", "9223372036854775808", "1" + "0" * 400),
    *("1" * 5000, "1.0", "1.9999999999999999", "0.1", "3.5"),
)
STRANGE_TEXTS = (
    *("", " ", "NA", "nan", "null", "true", "0", "1", "１", "١", "1_0", "0x1", "é", "\0", "a\0b"),
    *("\x1b[2J", "\u202e", "a\nb", "\ud800", "../../x", "=1+1", "x" * 100_000, "😀", "1e5"),
)


def _strange(rng: random.Random) -> Any:
    """A value of another type or size."""
    how = rng.randrange(8)
    if how <= 1:
        return _Raw(rng.choice(STRANGE_NUMBERS))
    if how <= 3:
        return rng.choice(STRANGE_TEXTS)
    if how == 4:
        return rng.choice((None, True, False))
    if how == 5:
        return rng.choice(([], [1], ["x"], [[0]], [None] * 3))
    if how == 6:
        return rng.choice(({}, {"a": 1}, {"": ""}, {"name": "x"}, {"value": 1}))
    return _Raw("[" * DEPTH + "]" * DEPTH) if rng.random() < 0.3 else _Raw('{"a":' * 3000)


def _places(value: Any, limit: int = 4000) -> list[tuple[Any, Any]]:
    """Containers with their keys or positions, breadth first."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    for each in waiting:
        keys = list(each) if isinstance(each, dict) else range(len(each))
        for key in keys:
            found.append((each, key))
            if isinstance(each[key], (dict, list)):
                waiting.append(each[key])
        if len(found) > limit:
            break
    return found


def change_json(document: Any, rng: random.Random) -> Any:
    """The document with one change of structure or value."""
    if not isinstance(document, (dict, list)) or not document or rng.random() < 0.02:
        return _strange(rng)
    holder: dict[str, Any] = {"": document}
    places = _places(holder)
    container, key = rng.choice(places)
    value = container[key]
    how = rng.randrange(12)
    if how <= 2:
        container[key] = _strange(rng)
    elif how == 3 and container is not holder:
        del container[key]
    elif how == 4 and isinstance(container, dict) and container is not holder:
        named = {(_renamed(k, rng) if k == key else k): v for k, v in container.items()}
        container.clear()
        container.update(named)
    elif how == 5 and isinstance(value, dict) and value:
        name = rng.choice(list(value))
        other = _strange(rng) if rng.random() < 0.7 else value[name]
        container[key] = _Twice(value, name, other)
    elif how == 6 and isinstance(value, list) and value:
        again = rng.choice(value)
        value.insert(rng.randrange(len(value) + 1), again)
    elif how == 7 and isinstance(value, list) and len(value) > 1:
        rng.shuffle(value)
    elif how == 8 and len(places) > 2:
        other, name = rng.choice(places[1:])
        if other is not holder and container is not holder:
            container[key], other[name] = other[name], container[key]
            try:
                _dumps(holder)
            except RecursionError:  # one was within the other
                raise NotApplicableError from None
    elif isinstance(value, bool):
        container[key] = not value
    elif isinstance(value, int):
        container[key] = rng.choice((value + 1, value - 1, -value, float(value), str(value)))
    elif isinstance(value, float):
        container[key] = rng.choice((value * (1 + 1e-3), -value, 1 - value, str(value), 1e6))
    elif isinstance(value, str):
        container[key] = _other_text(value, rng)
    else:
        container[key] = _strange(rng)
    return holder[""]


def _renamed(key: Any, rng: random.Random) -> str:
    return rng.choice((f"{key} ", str(key).upper(), f"{key}\0", "", "__class__", f"{key}2"))


def _other_text(text: str, rng: random.Random) -> Any:
    """A text with a small change."""
    how = rng.randrange(5)
    if how == 0:
        return rng.choice(STRANGE_TEXTS)
    at = rng.randrange(len(text) + 1)
    if how == 1:
        return text[:at] + rng.choice((*CONTROL, " ", "\t", "\n", '"', "\\")) + text[at:]
    if how == 2:
        return text[:at] + text[at + 1 :]
    if how == 3:
        return text.swapcase() if text.swapcase() != text else text + "x"
    return [text]


def json_document(data: bytes, rng: random.Random) -> bytes:
    """One change of a JSON document."""
    return _encode(_dumps(change_json(_parsed(data), rng), rng.random() < 0.5))


def json_line(data: bytes, rng: random.Random) -> bytes:
    """One change of a line of JSON lines."""
    lines = _text(data).split("\n")
    numbers = [i for i, line in enumerate(lines) if line.strip()]
    if not numbers:
        raise NotApplicableError
    at = rng.choice(numbers)
    lines[at] = _dumps(change_json(_parsed(lines[at].encode()), rng), rng.random() < 0.5)
    return _encode("\n".join(lines))


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise NotApplicableError from None


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# ---------------------------------------------------------------- tables of text


CELLS = (
    *("", " ", "NA", "nan", "NULL", "None", "-", "?", "1", "0", "2", "-1", "0.5", ".5", "1.", "+1"),
    *("1e0", "1E-1", "1e999", "inf", "-inf", "Infinity", "1_0", "0x1", "0b1", "1,0", "1;0", "１"),
    *("١", "०", "¹", "½", "−1", "TRUE", "True", "yes", "=1+1", "@SUM(A1)", "+1+1", "-2+3", "'1"),
    *("\t1", " 1 ", "\xa01", "1\u2009", "\x1f1", "1\x0b", "a\0b", "\x1b[31m1", "1\n0", '"', '""'),
    *("x" * 200_000, "\ufeff1", "é", "😀", "#", "1" * 400, "0.1000000000000000055511151231257827"),
)


def csv_cell(data: bytes, rng: random.Random) -> bytes:
    """One cell has another text, written with or without quotes."""
    rows, mark = _rows(data)
    row = rng.choice(rows)
    row[rng.randrange(len(row))] = rng.choice(CELLS)
    return _csv(rows, mark, rng.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL)))


def csv_raw_cell(data: bytes, rng: random.Random) -> bytes:
    """One cell has another text, written as it is: quotes and separators break the row."""
    lines = _text(data).split("\n")
    at = rng.randrange(len(lines))
    mark = max(",\t;", key=lines[0].count)
    cells = lines[at].split(mark)
    cells[rng.randrange(len(cells))] = rng.choice((*CELLS, '"1', '1"', 'a"b', '"a"b', "a,b"))
    lines[at] = mark.join(cells)
    return "\n".join(lines).encode()


def csv_shape(data: bytes, rng: random.Random) -> bytes:
    """Rows and columns added, lost, exchanged or repeated; ragged rows."""
    rows, mark = _rows(data)
    how, row = rng.randrange(9), rng.choice(rows)
    if how == 0:
        row.append(rng.choice(CELLS))
    elif how == 1:
        del row[rng.randrange(len(row))]
    elif how == 2:
        rows.insert(rng.randrange(len(rows) + 1), list(row))
    elif how == 3 and len(rows) > 1:
        rows.remove(row)
    elif how == 4:
        i, j = (rng.randrange(len(rows[0])) for _ in range(2))
        for each in rows:
            if max(i, j) < len(each):
                each[i], each[j] = each[j], each[i]
    elif how == 5:
        name = rng.choice(rows[0])
        rows[0][rng.randrange(len(rows[0]))] = name
    elif how == 6:
        j = rng.randrange(len(rows[0]))
        for each in rows:
            if j < len(each):
                each.insert(j, each[j])
    elif how == 7:
        rows[:] = [list(each) for each in zip(*rows, strict=False)]
    else:
        rows.insert(rng.randrange(len(rows) + 1), [""] * rng.choice((0, 1, len(row))))
    if not rows:
        raise NotApplicableError
    return _csv(rows, mark, csv.QUOTE_MINIMAL)


def csv_delimiter(data: bytes, rng: random.Random) -> bytes:
    """Another delimiter, or another in one row."""
    rows, mark = _rows(data)
    other = rng.choice([each for each in ",;\t| :" if each != mark])
    if rng.random() < 0.5:
        return _csv(rows, other, csv.QUOTE_MINIMAL)
    lines = _text(data).split("\n")
    at = rng.randrange(len(lines))
    lines[at] = lines[at].replace(mark, other)
    return "\n".join(lines).encode()


def _rows(data: bytes) -> tuple[list[list[str]], str]:
    """The rows of a table, none without cells, and its delimiter."""
    text = _text(data)
    mark = max(",\t;", key=text.split("\n", 1)[0].count)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if row]
    except csv.Error:
        raise NotApplicableError from None
    if not rows:
        raise NotApplicableError
    return rows, mark


def _csv(rows: list[list[str]], mark: str, quoting: Any) -> bytes:
    out = io.StringIO(newline="")
    try:
        writer = csv.writer(out, delimiter=mark, quoting=quoting, lineterminator="\n")
        writer.writerows(rows)
    except csv.Error:
        raise NotApplicableError from None
    return out.getvalue().encode()


# ---------------------------------------------------------------- arrays


def npy_header(data: bytes, rng: random.Random) -> bytes:
    """Another shape, type or order in the header of an array; the numbers stay."""
    header, body, version = _npy(data)
    how = rng.randrange(10)
    shape = tuple(header["shape"])
    if how <= 2:
        shapes: list[Any] = [(), (0,), (1, *shape), (*shape, 1), shape[::-1], (-1, *shape[1:])]
        shapes += [(2**40,), (2**31, 2**31), (10**30,), tuple(2 * n for n in shape), [1, 2], 3]
        shapes += [tuple(float(n) for n in shape), tuple(n + 1 for n in shape), "(2, 2)", None]
        shapes += [tuple(max(n - 1, 0) for n in shape), (*shape[:-1], True)]
        header["shape"] = rng.choice(shapes)
    elif how <= 5:
        kinds = ["<f8", ">f8", "<f4", "<i8", ">i4", "|i1", "|u1", "|b1", "<c16", "|O", "<M8[s]"]
        kinds += ["<U4", ">U4", "|S4", "|V8", [("a", "<f8")], "<f2", "<f16", "x", "", 7, "<U999999"]
        header["descr"] = rng.choice(kinds)
    elif how == 6:
        header["fortran_order"] = rng.choice((not header["fortran_order"], 1, "False", None))
    elif how == 7:
        header.pop(rng.choice(list(header)))
    elif how == 8:
        header["more"] = 1
    else:
        version = rng.choice(((1, 0), (2, 0), (3, 0), (4, 0), (0, 0), (9, 9)))
    return _npy_bytes(repr(header), body, version)


def npy_text(data: bytes, rng: random.Random) -> bytes:
    """A header that is no plain dict, or of another length."""
    header, body, version = _npy(data)
    text = rng.choice(
        ("{", "{'descr': __import__('os')}", repr(header) + ")", "(" * 500, "[]", repr(header) * 2)
    )
    return _npy_bytes(text, body, version)


def npy_value(data: bytes, rng: random.Random) -> bytes:
    """One number of an array is another, or a text of an array of texts."""
    array = _array(data)
    if not array.size:
        raise NotApplicableError
    at = rng.randrange(array.size)
    flat = array.reshape(-1)
    if array.dtype.kind == "f":
        flat[at] = rng.choice((np.nan, np.inf, -np.inf, -1, 0.5, 2, 1e300, -0.0, 5e-324))
    elif array.dtype.kind in "iu":
        bounds = np.iinfo(array.dtype)
        flat[at] = rng.choice((0, 1, 2, 3, bounds.min, bounds.max))
    elif array.dtype.kind == "b":
        flat[at] = not flat[at]
    elif array.dtype.kind == "U":
        return _npy_of(_other_texts(array, at, rng))
    else:
        raise NotApplicableError
    return _npy_of(array)


def npy_cast(data: bytes, rng: random.Random) -> bytes:
    """The same numbers in another type, order or shape."""
    array = _array(data)
    how = rng.randrange(5)
    if how == 0 and array.dtype.kind in "iufb":
        kind = rng.choice(("<f8", ">f8", "<f4", "<f2", "<i8", ">i2", "|i1", "|b1", "<c8", "<u4"))
        with np.errstate(all="ignore"):
            return _npy_of(array.astype(kind))
    if how == 1:
        return _npy_of(np.asfortranarray(array))
    if how == 2:
        return _npy_of(array.T)
    if how == 3 and array.ndim:
        order = list(range(len(array)))
        rng.shuffle(order)
        return _npy_of(array[order])
    if array.ndim and len(array):
        return _npy_of(np.concatenate([array, array[:1]]) if how == 4 else array[:-1])
    raise NotApplicableError


def npy_json(data: bytes, rng: random.Random) -> bytes:
    """A change of the JSON text that an array holds."""
    array = _array(data)
    if array.ndim != 0 or array.dtype.kind != "U":
        raise NotApplicableError
    text = json_document(str(array[()]).encode("utf-8", "surrogatepass"), rng)
    return _npy_of(np.array(text.decode("utf-8", "surrogatepass")))


def _other_texts(array: np.ndarray, at: int, rng: random.Random) -> np.ndarray:
    """Texts of which one is another."""
    texts = [str(each) for each in array.reshape(-1)]
    texts[at] = rng.choice((*STRANGE_TEXTS[:-4], texts[0], texts[at] + " "))
    return np.array(texts).reshape(array.shape)


def _npy(data: bytes) -> tuple[dict[str, Any], bytes, tuple[int, int]]:
    """Header, numbers and format version of an array."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else (
            np.lib.format.read_array_header_2_0
        )  # fmt: skip
        shape, fortran, dtype = read(file)
    except Exception:  # a header made so by an earlier mutator
        raise NotApplicableError from None
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape,
    }  # fmt: skip
    return header, file.read(), version


def _npy_bytes(header: str, body: bytes, version: tuple[int, int]) -> bytes:
    """An array file with any header text."""
    text = header.encode("utf-8")
    long = version >= (2, 0)
    start = b"\x93NUMPY" + bytes(version)
    room = len(start) + (4 if long else 2)
    text += b" " * (-(room + len(text) + 1) % 64) + b"\n"
    if not long and len(text) >= 2**16:
        raise NotApplicableError
    return start + struct.pack("<I" if long else "<H", len(text)) + text + body


def _array(data: bytes) -> np.ndarray:
    try:
        return np.array(np.lib.format.read_array(io.BytesIO(data), allow_pickle=False))
    except Exception:  # a header made so by an earlier mutator
        raise NotApplicableError from None


def _npy_of(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()


NPY: dict[str, Mutator] = {
    f.__name__: f for f in (npy_header, npy_header, npy_text, npy_value, npy_value, npy_cast)
}


# ---------------------------------------------------------------- archives


class _Member(NamedTuple):
    """A member as it is written: packed bytes, and what the headers say of them."""

    name: bytes
    method: int
    packed: bytes
    crc: int
    size: int
    flags: int = 0
    said: int | None = None

    @classmethod
    def of(cls, name: str, data: bytes, method: int = zipfile.ZIP_DEFLATED) -> "_Member":
        """A sound member."""
        packed = data
        if method == zipfile.ZIP_DEFLATED:
            packer = zlib.compressobj(wbits=-15)
            packed = packer.compress(data) + packer.flush()
        elif method != zipfile.ZIP_STORED:
            with io.BytesIO() as file:
                with zipfile.ZipFile(file, "w", method) as archive:
                    archive.writestr("x", data)
                packed = _members(file.getvalue())[0].packed
        return cls(name.encode(), method, packed, zlib.crc32(data), len(data))


def _members(data: bytes) -> list[_Member]:
    """The members of an archive, packed as they are."""
    out = []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
    except Exception:  # damaged by an earlier mutator
        raise NotApplicableError from None
    for info in infos:
        at = info.header_offset
        if data[at : at + 4] != b"PK\x03\x04":
            raise NotApplicableError
        name, more = struct.unpack("<HH", data[at + 26 : at + 30])
        start = at + 30 + name + more
        packed = data[start : start + info.compress_size]
        out.append(
            _Member(info.filename.encode(), info.compress_type, packed, info.CRC, info.file_size)
        )
    if not out:
        raise NotApplicableError
    return out


def _archive(members: list[_Member], comment: bytes = b"") -> bytes:
    """The archive of some members; nothing is checked."""
    body, directory = b"", b""
    for each in members:
        size = each.size if each.said is None else each.said
        sizes = struct.pack("<III", each.crc, len(each.packed), min(size, 2**32 - 1))
        flags = each.flags | (0 if each.name.isascii() else 0x800)
        common = struct.pack("<HHHHH", 20, flags, each.method, 0, 33) + sizes
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + common
        directory += struct.pack("<HHHHHII", len(each.name), 0, 0, 0, 0, 0o600 << 16, len(body))
        directory += each.name
        body += b"PK\x03\x04" + common + struct.pack("<HH", len(each.name), 0)
        body += each.name + each.packed
    end = struct.pack(
        "<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), len(comment)
    )
    return body + directory + b"PK\x05\x06" + end + comment


def _unpacked(member: _Member) -> bytes:
    """The bytes of a member."""
    try:
        with _zip_module(member.method).ZipFile(io.BytesIO(_archive([member]))) as archive:
            return archive.read(archive.infolist()[0])
    except Exception:  # damaged by an earlier mutator
        raise NotApplicableError from None


def _zip_module(method: int) -> Any:
    """The zipfile module that knows a method of packing."""
    if method == 93:
        try:
            from backports.zstd import zipfile as with_zstd
        except ImportError:
            raise NotApplicableError from None
        return with_zstd
    return zipfile


def zip_content(data: bytes, rng: random.Random) -> bytes:
    """A member has other contents, whose sums are right."""
    members = _members(data)
    at = rng.randrange(len(members))
    name = members[at].name.decode("utf-8", "replace")
    inner = mutate(_unpacked(members[at]), kind_of(name), rng, 1)[0]
    method = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))
    members[at] = _Member.of(name, inner, method)
    return _archive(members)


def zip_names(data: bytes, rng: random.Random) -> bytes:
    """A member renamed, lost, moved, or there twice with other contents."""
    members = _members(data)
    at, how = rng.randrange(len(members)), rng.randrange(6)
    one = members[at]
    if how == 0:
        name = one.name.decode("utf-8", "replace")
        names = (name + "x", name.upper(), "../" + name, "/" + name, "", name + "\0", "é" + name)
        names += (name.removesuffix(".npy"), "a/" + name, name + " ", name * 3000)
        members[at] = one._replace(name=rng.choice(names).encode()[: 2**16 - 1])
    elif how == 1:
        del members[at]
    elif how == 2:
        rng.shuffle(members)
    elif how == 3:
        other = mutate(_unpacked(one), kind_of(one.name.decode("utf-8", "replace")), rng, 1)[0]
        twin = _Member.of(one.name.decode("utf-8", "replace"), other)
        members.insert(rng.randrange(len(members) + 1), twin)
    elif how == 4:
        other = rng.choice(members)
        members[at] = other._replace(name=one.name)
    else:
        members.append(_Member.of(rng.choice(("extra.npy", "x", "a.json", "X.npy")), b"{}"))
    return _archive(members, rng.choice((b"", b"", b"PK\x05\x06")))


def zip_headers(data: bytes, rng: random.Random) -> bytes:
    """Headers that lie: sizes, sums, methods, flags."""
    members = _members(data)
    at, how = rng.randrange(len(members)), rng.randrange(5)
    one = members[at]
    if how == 0:
        said = rng.choice((0, 1, one.size - 1, one.size + 1, 2**31, 2**32 - 1))
        members[at] = one._replace(said=max(said, 0))
    elif how == 1:
        members[at] = one._replace(crc=rng.randrange(2**32))
    elif how == 2:
        members[at] = one._replace(method=rng.choice((0, 1, 8, 9, 12, 14, 93, 95, 98, 99, 65535)))
    elif how == 3:
        members[at] = one._replace(flags=rng.choice((1, 8, 32, 64, 0x2000)))
    else:
        members[at] = one._replace(packed=flip_bits(one.packed, rng))
    return _archive(members)


def zip_repack(data: bytes, rng: random.Random) -> bytes:
    """The same contents, packed in another way."""
    members = _members(data)
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    method = rng.choice(methods)
    out = [_Member.of(m.name.decode("utf-8", "replace"), _unpacked(m), method) for m in members]
    return _archive(out)


def zip_bomb(data: bytes, rng: random.Random) -> bytes:
    """A member that unpacks to hundreds of megabytes."""
    if rng.random() < 0.9:  # unpacking takes long: rare, and large sizes declared more often
        return zip_headers(data, rng)
    members = _members(data)
    at = rng.randrange(len(members))
    one = members[at]
    if one.name.endswith(b".npy"):
        header, _, version = _npy(_unpacked(one))
        kinds = (header["descr"], "|i1", "<f4", "<U1000")
        kind = np.dtype(rng.choice(kinds))
        n = BOMB // max(kind.itemsize, 1)
        shapes = ((n,), (n // 8, 8), (1000, n // 1000), (*header["shape"][:1], n))
        head = {"descr": kind.str, "fortran_order": False, "shape": rng.choice(shapes)}
        members[at] = _zeros(one.name, _npy_bytes(repr(head), b"", version), b"\0", b"")
    else:
        members[at] = _zeros(one.name, b"[", b" ", b"0]")
    return _archive(members)


@functools.lru_cache(4)
def _zeros(name: bytes, start: bytes, fill: bytes, end: bytes) -> _Member:
    """A member of one byte over and over, packed without unpacking it ever."""
    packer = zlib.compressobj(9, wbits=-15)
    packed = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    part = fill * 2**20
    block = packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH)
    turns = BOMB // len(part)
    packed += block * turns + packer.compress(end) + packer.flush()
    crc = zlib.crc32(start)
    for _ in range(turns):
        crc = zlib.crc32(part, crc)
    size = len(start) + BOMB + len(end)
    return _Member(name, zipfile.ZIP_DEFLATED, packed, zlib.crc32(end, crc), size)


# ---------------------------------------------------------------- databases


def sqlite_rows(data: bytes, rng: random.Random) -> bytes:
    """A row of a table changed, lost, added or copied, with the triggers out of the way."""
    with _database(data) as db:
        tables = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='trigger'").fetchall():
            db.execute(f'DROP TRIGGER "{name}"')
        db.execute("PRAGMA ignore_check_constraints=ON")
        table = rng.choice(tables)
        columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
        rows = db.execute(f'SELECT * FROM "{table}"').fetchall()
        if not rows:
            raise NotApplicableError
        row, at = rng.choice(rows), rng.randrange(len(columns))
        where = " AND ".join(f'"{name}" IS ?' for name in columns)
        how = rng.randrange(6)
        if how <= 3:
            new = _other_value(row[at], rng)
            db.execute(f'UPDATE "{table}" SET "{columns[at]}" = ? WHERE {where}', (new, *row))
        elif how == 4:
            db.execute(f'DELETE FROM "{table}" WHERE {where}', row)
        else:
            twin = list(row)
            twin[at] = _other_value(row[at], rng)
            marks = ", ".join("?" * len(columns))
            db.execute(f'INSERT INTO "{table}" VALUES ({marks})', twin)
        db.commit()
        return db.serialize()


def sqlite_schema(data: bytes, rng: random.Random) -> bytes:
    """A table, column, index or trigger changed."""
    with _database(data) as db:
        tables = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = rng.choice(tables)
        column = rng.choice([row[1] for row in db.execute(f'PRAGMA table_info("{table}")')])
        db.execute(
            rng.choice(
                (
                    f'DROP TABLE "{table}"',
                    f'ALTER TABLE "{table}" RENAME TO "{table}2"',
                    f'ALTER TABLE "{table}" ADD COLUMN more',
                    f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}2"',
                    f'CREATE TRIGGER extra AFTER INSERT ON "{table}" BEGIN DELETE FROM meta; END',
                    "CREATE TABLE more (x)",
                    "PRAGMA user_version=7",
                )
            )
        )
        db.commit()
        return db.serialize()


class _database:  # noqa: N801 (a context manager)
    """A database in memory, not in WAL mode; what SQLite refuses does not apply."""

    def __init__(self, data: bytes):
        self.data = data

    def __enter__(self) -> sqlite3.Connection:
        self.db = sqlite3.connect(":memory:")
        if len(self.data) < 100:
            raise NotApplicableError
        try:
            self.db.deserialize(self.data[:18] + b"\x01\x01" + self.data[20:])
            self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error:
            self.db.close()
            raise NotApplicableError from None
        return self.db

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.db.close()
        if isinstance(value, (sqlite3.Error, OverflowError, UnicodeEncodeError, IndexError)):
            raise NotApplicableError from None


def _other_value(value: Any, rng: random.Random) -> Any:
    """A value of a database, changed."""
    if isinstance(value, str) and value[:1] in "{[" and rng.random() < 0.8:
        try:
            text = json_document(value.encode(), rng).decode("utf-8", "replace")
            return text if len(text) < 2**20 else "{}"
        except NotApplicableError:
            pass
    if isinstance(value, bytes) and rng.random() < 0.8:
        kind = "zip" if value[:2] == b"PK" else ""
        return mutate(value, kind, rng, 1)[0] if value else b"\0"
    if isinstance(value, int) and rng.random() < 0.6:
        return rng.choice((value + 1, value - 1, 0, -1, 2**62))
    if isinstance(value, str) and rng.random() < 0.5:
        return str(_other_text(value, rng)).encode("utf-8", "replace").decode()
    return rng.choice((None, 0, -1, 2**62, 0.5, float("inf"), "", "x", b"\0\xff", "\0", "1" * 9999))


# ---------------------------------------------------------------- Parquet


def parquet_table(data: bytes, rng: random.Random) -> bytes:
    """A column of another type, name or values; the file is a sound Parquet file."""
    try:
        import pyarrow as pa
        from pyarrow import parquet

        table = parquet.read_table(io.BytesIO(data))
    except Exception:  # no pyarrow, or damaged by an earlier mutator
        raise NotApplicableError from None
    if not table.num_columns or not table.num_rows:
        raise NotApplicableError
    at, how = rng.randrange(table.num_columns), rng.randrange(9)
    name, column = table.column_names[at], table.column(at)
    try:
        if how == 0:
            kinds = (pa.string(), pa.float32(), pa.float64(), pa.int8(), pa.int64(), pa.bool_())
            table = table.set_column(at, name, column.cast(rng.choice(kinds), safe=False))
        elif how == 1:
            table = table.set_column(at, name, column.combine_chunks().dictionary_encode())
        elif how == 2:
            cells = column.to_pylist()
            cells[rng.randrange(len(cells))] = rng.choice((None, 2, -1, 0.5, float("nan"), "x", 1))
            table = table.set_column(at, name, pa.array(cells))
        elif how == 3:
            table = table.remove_column(at)
        elif how == 4:
            names = list(table.column_names)
            names[at] = rng.choice((names[0], "", "subject", "x\0", name + " ", "item", "é"))
            table = table.rename_columns(names)
        elif how == 5:
            order = list(range(table.num_rows))
            rng.shuffle(order)
            table = table.take(order)
        elif how == 6:
            table = pa.concat_tables([table, table.slice(0, 1)])
        elif how == 7:
            odd = (b"\xff\xfe", [1, 2], {"a": 1}, 10**18, float("inf"))
            table = table.set_column(at, name, pa.array([rng.choice(odd)] * table.num_rows))
        else:
            table = table.slice(0, rng.choice((0, 1)))
        out = io.BytesIO()
        packing = rng.choice(("snappy", "none", "gzip"))
        parquet.write_table(table, out, compression=packing)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        raise NotApplicableError from None
    return out.getvalue()


MUTATORS: dict[str, dict[str, Mutator]] = {
    "": BYTES,
    "text": {**BYTES, **TEXT},
    "csv": {
        **BYTES, **TEXT, "csv_cell": csv_cell, "csv_cell_2": csv_cell,
        "csv_raw_cell": csv_raw_cell, "csv_shape": csv_shape, "csv_shape_2": csv_shape,
        "csv_delimiter": csv_delimiter,
    },
    "json": {
        **BYTES, **TEXT, **dict.fromkeys((f"json_{k}" for k in range(14)), json_document),
    },
    "jsonl": {**BYTES, **TEXT, **dict.fromkeys((f"json_line_{k}" for k in range(14)), json_line)},
    "npy": {**BYTES, **NPY, "npy_json": npy_json, "npy_json_2": npy_json, "npy_json_3": npy_json},
    "zip": {
        **BYTES, **dict.fromkeys((f"zip_content_{k}" for k in range(9)), zip_content),
        "zip_names": zip_names, "zip_names_2": zip_names, "zip_headers": zip_headers,
        "zip_repack": zip_repack, "zip_bomb": zip_bomb,
    },
    "db": {
        **BYTES, **dict.fromkeys((f"sqlite_rows_{k}" for k in range(14)), sqlite_rows),
        "sqlite_schema": sqlite_schema,
    },
    "parquet": {
        **BYTES, **dict.fromkeys((f"parquet_table_{k}" for k in range(8)), parquet_table),
    },
}  # fmt: skip
"""Mutators by kind of file; one that is listed several times is drawn more often."""

KINDS = {
    "csv": "csv", "tsv": "csv", "tab": "csv", "json": "json", "jsonl": "jsonl", "npy": "npy",
    "npz": "zip", "eval": "zip", "db": "db", "parquet": "parquet", "txt": "text",
}  # fmt: skip


def kind_of(name: str) -> str:
    """The kind of a file by its extension.

    Example:
        >>> kind_of("a/b.npz")
        'zip'
    """
    return KINDS.get(name.rsplit(".", 1)[-1].lower(), "")


def mutate(data: bytes, kind: str, rng: random.Random, turns: int) -> tuple[bytes, str]:
    r"""Other bytes than these, by mutators of a kind, and the names of those.

    Example:
        >>> mutate(b"a,b\n1,0\n", "csv", random.Random(1), 1)[0] != b"a,b\n1,0\n"
        True
    """
    table = list(MUTATORS[kind].items())
    out, names = data, []
    for _ in range(50):
        if len(names) >= turns and out != data:
            break
        name, change = rng.choice(table)
        try:
            out = change(out, rng)
            names.append(name)
        except NotApplicableError:
            continue
    return out, "+".join(names)

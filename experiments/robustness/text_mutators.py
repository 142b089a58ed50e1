"""Changes of bytes, of text, of JSON and of tables of text (see `mutators.py`)."""

import csv
import io
import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = [
    "BYTES",
    "STRANGE_TEXTS",
    "TEXT",
    "Mutator",
    "NotApplicableError",
    "csv_cell",
    "csv_delimiter",
    "csv_raw_cell",
    "csv_shape",
    "flip_bits",
    "json_document",
    "json_line",
    "other_text",
]

Mutator = Callable[[bytes, random.Random], bytes]

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
    return (
        text.replace("a", "ä", 1).encode(name, "replace")
        if name != "utf-8-sig"
        else (text.encode(name))
    )


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
        if abs(value) > 1e300:
            raise NotApplicableError
        container[key] = rng.choice((value + 1, value - 1, -value, float(value), str(value)))
    elif isinstance(value, float):
        container[key] = rng.choice((value * (1 + 1e-3), -value, 1 - value, str(value), 1e6))
    elif isinstance(value, str):
        container[key] = other_text(value, rng)
    else:
        container[key] = _strange(rng)
    return holder[""]


def _renamed(key: Any, rng: random.Random) -> str:
    return rng.choice((f"{key} ", str(key).upper(), f"{key}\0", "", "__class__", f"{key}2"))


def other_text(text: str, rng: random.Random) -> Any:
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

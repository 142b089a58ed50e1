"""Changes that a file may suffer: of its bytes, its archive, its arrays, its JSON, its cells.

A mutator is a function of the bytes of a file and a random generator that gives other bytes.
`MUTATORS` lists them by the kind of file. Every mutator is bounded: no mutant is larger than a few
megabytes, though it may declare or unpack to more.
"""

import functools
import io
import random
import sqlite3
import struct
import zipfile
import zlib
from typing import Any, NamedTuple

import numpy as np
from text_mutators import (
    BYTES,
    STRANGE_TEXTS,
    TEXT,
    Mutator,
    NotApplicableError,
    csv_cell,
    csv_delimiter,
    csv_raw_cell,
    csv_shape,
    flip_bits,
    json_document,
    json_line,
    other_text,
)

__all__ = ["MUTATORS", "NotApplicableError", "kind_of", "mutate"]

BOMB = 400 * 2**20
"""Bytes that a bomb unpacks to."""


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
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else (np.lib.format.read_array_header_2_0)
        )
        shape, fortran, dtype = read(file)
    except Exception:  # a header made so by an earlier mutator
        raise NotApplicableError from None
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": fortran,
        "shape": shape,
    }
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
        except (sqlite3.Error, UnicodeDecodeError):
            self.db.close()
            raise NotApplicableError from None
        return self.db

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.db.close()
        if isinstance(value, (sqlite3.Error, OverflowError, UnicodeError, IndexError)):
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
        return str(other_text(value, rng)).encode("utf-8", "replace").decode()
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
        **BYTES,
        **TEXT,
        "csv_cell": csv_cell,
        "csv_cell_2": csv_cell,
        "csv_raw_cell": csv_raw_cell,
        "csv_shape": csv_shape,
        "csv_shape_2": csv_shape,
        "csv_delimiter": csv_delimiter,
    },
    "json": {**BYTES, **TEXT, **dict.fromkeys((f"json_{k}" for k in range(14)), json_document)},
    "jsonl": {**BYTES, **TEXT, **dict.fromkeys((f"json_line_{k}" for k in range(14)), json_line)},
    "npy": {**BYTES, **NPY, "npy_json": npy_json, "npy_json_2": npy_json, "npy_json_3": npy_json},
    "zip": {
        **BYTES,
        **dict.fromkeys((f"zip_content_{k}" for k in range(9)), zip_content),
        "zip_names": zip_names,
        "zip_names_2": zip_names,
        "zip_headers": zip_headers,
        "zip_repack": zip_repack,
        "zip_bomb": zip_bomb,
    },
    "db": {
        **BYTES,
        **dict.fromkeys((f"sqlite_rows_{k}" for k in range(14)), sqlite_rows),
        "sqlite_schema": sqlite_schema,
    },
    "parquet": {**BYTES, **dict.fromkeys((f"parquet_table_{k}" for k in range(8)), parquet_table)},
}
"""Mutators by kind of file; one that is listed several times is drawn more often."""

KINDS = {
    "csv": "csv",
    "tsv": "csv",
    "tab": "csv",
    "json": "json",
    "jsonl": "jsonl",
    "npy": "npy",
    "npz": "zip",
    "eval": "zip",
    "db": "db",
    "parquet": "parquet",
    "txt": "text",
}


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

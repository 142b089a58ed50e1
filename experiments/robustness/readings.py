"""Independent readings: what a file says by plain modules (csv, json, zipfile, numpy, pyarrow).

Each function gives the readings of a file that are sound, usually one, in the form that the readers
of `readers.py` give; none where the file says nothing that may be accepted. Nothing here imports
irtcat.
"""

import csv
import hashlib
import io
import itertools
import json
import math
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "UnsoundError",
    "archive",
    "array_file",
    "bare_name",
    "every_eval_ever",
    "helm",
    "inspect_log",
    "json_file",
    "lighteval",
    "lm_eval",
    "long_table",
    "matrix",
    "number",
    "parquet_rows",
    "parquet_table",
    "pyirt",
    "readings",
    "records",
    "responses_archive",
    "same",
    "text_id",
    "wide_table",
]

MISSING = ("", "na", "nan", "null")
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
DECIMAL_COMMA = re.compile(r"^([-+]?[0-9]*),([0-9]+)$")
STEMS = {
    "subject": {
        "subject",
        "model",
        "user",
        "person",
        "student",
        "respondent",
        "participant",
        "examinee",
    },
    "item": {"item", "question", "problem", "sample", "example", "instance", "doc"},
    "response": {"response", "score", "correct", "value", "outcome", "result", "is_correct"},
}
NEAR = 1e-6


class UnsoundError(Exception):
    """The file says nothing that may be accepted."""


def readings(*found: Callable[[], Any]) -> list[Any]:
    """The readings that are sound."""
    out = []
    for each in found:
        try:
            out.append(each())
        except Exception:  # whatever a module says of a damaged file: it is not sound
            continue
    return out


def same(one: Any, other: Any) -> bool:
    """Whether two readings are equal; NaN is like NaN, numbers equal to single precision."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape:
            return False
        if one.dtype.kind in "fiub" and other.dtype.kind in "fiub":
            with np.errstate(all="ignore"):
                close = np.isclose(one.astype(float), other.astype(float), NEAR, NEAR, True)
            return bool(close.all())
        return one.tolist() == other.tolist()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (float, np.floating)) or isinstance(other, (float, np.floating)):
        try:
            a, b = float(one), float(other)
        except (TypeError, ValueError, OverflowError):
            return False
        return (a != a and b != b) or a == b or math.isclose(a, b, rel_tol=NEAR, abs_tol=NEAR)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


# ---------------------------------------------------------------- cells


def number(text: str) -> float:
    """The number in a cell: ASCII digits, true or false; NaN where it is missing."""
    text = text.strip(" \t").lower()
    if text in MISSING:
        return math.nan
    if text in ("true", "false"):
        return float(text == "true")
    text = DECIMAL_COMMA.sub(r"\1.\2", text)
    if not NUMBER.fullmatch(text):
        raise UnsoundError(text)
    return float(text)


def text_id(value: Any) -> str:
    """An id: text or a whole number, not empty, without zero bytes or half characters."""
    if isinstance(value, bool) or not isinstance(value, (str, int, np.integer)):
        raise UnsoundError(value)
    text = str(value)
    odd = "\0" in text or any(unicodedata.category(c) == "Cs" for c in text)
    if not text.strip() or odd:
        raise UnsoundError(text)
    return text


def matrix(subjects: Iterable[Any], items: Iterable[Any], rows: Any) -> dict[str, Any]:
    """Responses: ids, and numbers of which none is infinite or negative."""
    found = {
        "subjects": [text_id(each) for each in subjects],
        "items": [text_id(each) for each in items],
    }
    X = np.asarray(rows, float)
    known = X[~np.isnan(X)]
    if X.shape != (len(found["subjects"]), len(found["items"])) or not X.size or not known.size:
        raise UnsoundError(X.shape)
    if not np.isfinite(known).all() or known.min() < 0:
        raise UnsoundError("numbers")
    if any(len(set(ids)) != len(ids) for ids in found.values()):
        raise UnsoundError("ids twice")
    return {**found, "X": X}


# ---------------------------------------------------------------- tables of text


def plain_text(data: bytes) -> str:
    """UTF-16 by its mark, UTF-8, or what Windows makes of other bytes."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252")


def records(data: bytes, mark: str, least: int = 2) -> list[list[str]]:
    """The rows of a table by the csv module, blank ones left out; all of the header's width."""
    text = plain_text(data)
    if "\0" in text:
        raise UnsoundError("zero byte")
    csv.field_size_limit(2**30)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True))
    rows = [row for row in rows if len(row) > 1 or (row and row[0].strip())]
    if len(rows) < least or any(len(row) != len(rows[0]) for row in rows):
        raise UnsoundError("ragged")
    return rows


def wide_table(data: bytes, mark: str) -> dict[str, Any]:
    """One row per subject."""
    header, *rows = records(data, mark)
    return matrix(
        [_known(row[0]) for row in rows],
        header[1:],
        [[number(cell) for cell in row[1:]] for row in rows],
    )


def _known(text: str) -> str:
    if text.strip().lower() in MISSING:
        raise UnsoundError(text)
    return text


def long_table(data: bytes, mark: str) -> list[dict[str, Any]]:
    """One row per response: a reading for each way that the header may be meant."""
    header, *rows = records(data, mark)
    places = [[j for j, name in enumerate(header) if _is(name, role)] for role in STEMS]
    return [
        found
        for columns in itertools.product(*places)
        for found in readings(lambda columns=columns: _pivot(rows, columns))
    ]


def _is(name: str, role: str) -> bool:
    plain = re.sub(r"[ .-]", "_", name.strip().lower())
    return re.sub(r"_?(id|name|value)$", "", plain) in STEMS[role] or plain in STEMS[role]


def _pivot(rows: list[list[str]], columns: tuple[int, ...]) -> dict[str, Any]:
    cells: dict[tuple[str, str], float] = {}
    subjects: dict[str, None] = {}
    items: dict[str, None] = {}
    for row in rows:
        subject, item, text = (row[j] for j in columns)
        value = number(text)
        subjects[_known(subject)], items[_known(item)] = None, None
        before = cells.get((subject, item), math.nan)
        if not math.isnan(before) and not math.isnan(value) and before != value:
            raise UnsoundError("twice")
        if not math.isnan(value):
            cells[subject, item] = value
    X = [[cells.get((s, i), math.nan) for i in items] for s in subjects]
    return matrix(subjects, items, X)


# ---------------------------------------------------------------- archives, arrays, JSON


def archive(path: Path, wanted: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Arrays of an archive, their sums checked; a name that comes twice is not sound.

    Only those that are wanted are read: what is of no concern may be damaged.
    """
    out = {}
    with zipfile.ZipFile(path) as file:
        names = [name.removesuffix(".npy") for name in file.namelist()]
        if len(set(names)) != len(names):
            raise UnsoundError(names)
        for name, full in zip(names, file.namelist(), strict=True):
            if wanted is not None and name not in wanted:
                continue
            data = file.read(full)
            if data.startswith(b"\x93NUMPY"):
                out[name] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    return out


def array_file(path: Path) -> np.ndarray:
    """The array of an .npy file that ends where the header says."""
    file = io.BytesIO(path.read_bytes())
    array = np.lib.format.read_array(file, allow_pickle=False)
    if file.read(1):
        raise UnsoundError("more bytes")
    return np.asarray(array)


def responses_archive(path: Path) -> dict[str, Any]:
    """X, subjects and items; original codes where the file has them."""
    arrays = archive(path, ("X", "subjects", "items", "codes", "metadata", "trials"))
    X = arrays["X"]
    if X.dtype.kind not in "biuf":
        raise UnsoundError(X.dtype)
    values = X.astype(float)
    values[values == -1] = np.nan
    if arrays.keys() & {"codes", "metadata", "trials"} and X.dtype.kind == "i":
        codes = arrays["codes"].astype(float)
        if np.nanmax(values) >= len(codes):
            raise UnsoundError("codes")
        values = np.where(np.isnan(values), np.nan, codes[np.nan_to_num(values).astype(int)])
    ids = [
        (np.char.decode(a, "utf-8") if a.dtype.kind == "S" else a).tolist()
        for a in (arrays["subjects"], arrays["items"])
    ]
    return matrix(*ids, values)


def json_file(path: Path) -> Any:
    """A JSON document."""
    return json.loads(path.read_bytes().decode("utf-8-sig"))


def lines_of(path: Path) -> Iterator[Any]:
    """The documents of JSON lines."""
    for line in path.read_bytes().decode("utf-8-sig").split("\n"):
        if line.strip():
            yield json.loads(line)


# ---------------------------------------------------------------- responses


def pyirt(path: Path) -> dict[str, Any]:
    """py-irt's lines."""
    rows = list(lines_of(path))
    items = list(dict.fromkeys(item for row in rows for item in row["responses"]))
    X = [[_plain(row["responses"].get(item)) for item in items] for row in rows]
    return matrix([row["subject_id"] for row in rows], items, X)


def _plain(value: Any) -> float:
    if value is None:
        return math.nan
    if not isinstance(value, (bool, int, float)):
        raise UnsoundError(value)
    return float(value)


def parquet_rows(path: Path, only: list[str] | None = None) -> tuple[list[str], list[list[Any]]]:
    """Names and columns of a Parquet table, as Python's own values."""
    from pyarrow import parquet

    with path.open("rb") as file:
        table = parquet.ParquetFile(file).read(only)
    return list(table.column_names), [column.to_pylist() for column in table.columns]


def parquet_table(path: Path, missing: float | None = None) -> list[dict[str, Any]]:
    """A wide or long Parquet table of responses."""
    names, columns = parquet_rows(path)
    numbers = readings(
        lambda: matrix(columns[0], names[1:], _numbers(columns[1:], missing)),
        lambda: matrix(
            [f"s{i + 1}" for i in range(len(columns[0]))], names, _numbers(columns, missing)
        ),
    )
    orders = itertools.permutations(range(len(names)), 3) if len(names) <= 5 else ()
    rows = [["" if v is None else str(v) for v in row] for row in zip(*columns, strict=True)]
    return numbers + readings(*(lambda order=order: _pivot(rows, order) for order in orders))


def _numbers(columns: list[list[Any]], missing: float | None) -> np.ndarray:
    return np.array([[_cell(value, missing) for value in column] for column in columns]).T


def _cell(value: Any, missing: float | None) -> float:
    found = number(value) if isinstance(value, str) else _plain(value)
    return math.nan if found == missing else found


# ---------------------------------------------------------------- logs


def score(value: Any) -> float:
    """A score from 0 to 1, NaN for none."""
    found = number(value) if isinstance(value, str) else _plain(value)
    if not math.isnan(found) and not 0 <= found <= 1:
        raise UnsoundError(value)
    return found


def _logged(model: Any, values: dict[Any, list[float]]) -> dict[str, Any]:
    """Means by item, counted: items of equal content are told apart by numbers only."""
    means: list[tuple[str, float]] = []  # irtcat numbers items of one name: q1, q1#2
    for key, found in values.items():
        known = [each for each in found if not math.isnan(each)]
        name = key[0] if isinstance(key, tuple) else key
        if known:
            means.append((bare_name(str(name)), round(float(np.mean(known)), 6)))
    if not means:
        raise UnsoundError("no score")
    return {"model": _named(model), "values": dict(Counter(map(str, means)))}


def bare_name(name: str) -> str:
    """A name without what comes before a slash, and without the number at its end."""
    return re.sub("#[0-9]+$", "", name.rsplit("/", 1)[-1])


def _named(model: Any) -> str:
    if isinstance(model, bool) or not isinstance(model, (str, int)) or not str(model).strip():
        raise UnsoundError(model)
    return str(model).encode("utf-8", "replace").decode()


def lm_eval(path: Path, metric: str, filter: str, model: str | None) -> dict[str, Any]:
    """A samples file; the model by its results file, or by the folder."""
    values: dict[Any, list[float]] = {}
    for line in lines_of(path):
        listed = line.get("metrics")
        if line.get("filter", "") != filter or (isinstance(listed, list) and metric not in listed):
            continue
        digest, number_ = line.get("doc_hash"), line.get("doc_id")
        if digest is None and isinstance(line.get("doc"), dict):
            text = json.dumps(line["doc"], indent=2, ensure_ascii=False)
            digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        value = score(line[metric])
        before = values.setdefault((digest[:16] if digest else f"doc{number_}", number_), [value])
        if not same(before[0], value):
            raise UnsoundError("twice")
    results = next(iter(path.parent.glob("results_*.json")), None)
    named = json_file(results)["model_name"] if results is not None else model
    return _logged(named, values)


LETTERS = {"c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0, "yes": 1.0, "no": 0.0}


def inspect_log(path: Path, scorer: str) -> dict[str, Any]:
    """An archive or JSON log of Inspect."""
    if path.suffix == ".json":
        header = json_file(path)
        samples = header["samples"]
    else:
        with _zstd().ZipFile(path) as file:
            header = json.loads(file.read("header.json").decode("utf-8-sig"))
            samples = json.loads(file.read("summaries.json").decode("utf-8-sig"))
    if header["status"] != "success":
        raise UnsoundError(header["status"])
    last = {(str(each["id"]), each.get("epoch", 1)): each for each in samples}
    values: dict[Any, list[float]] = {}
    for (name, _), sample in last.items():
        if sample.get("scores") in (None, {}):
            continue
        if scorer not in sample["scores"]:  # it has others
            continue
        value = sample["scores"][scorer]["value"]
        if isinstance(value, dict):  # parts, which are scores of their own
            continue
        if isinstance(value, str):
            value = LETTERS.get(value.lower(), value)
        values.setdefault(_named(name), []).append(score(value))
    return _logged(header["eval"]["model"], values)


def _zstd() -> Any:
    try:
        from backports.zstd import zipfile as with_zstd
    except ImportError:
        return zipfile
    return with_zstd


def helm(path: Path, metric: str, split: str) -> dict[str, Any]:
    """The statistics of a run folder of HELM."""
    spec = json_file(path.with_name("run_spec.json"))
    values: dict[Any, list[float]] = {}
    for instance in json_file(path):
        if instance.get("perturbation") is not None:
            continue
        for stat in instance["stats"]:
            name = stat["name"]
            meant = name["name"] == metric and (name.get("split") or "") == split
            if meant and name.get("perturbation") is None and ("mean" in stat or stat.get("count")):
                values.setdefault(_named(instance["instance_id"]), []).append(score(stat["mean"]))
    return _logged(spec["adapter_spec"]["model"], values)


def every_eval_ever(path: Path, metric: str, filter: str) -> dict[str, Any]:
    """Rows of Every Eval Ever."""
    values: dict[Any, list[float]] = {}
    models = set()
    for row in lines_of(path):
        models.add(row["model_id"])
        metadata = row.get("metadata") if isinstance(row.get("metadata"), dict) else {}
        part = metadata.get("filter", "") if row.get("evaluation_result_id") == metric else ""
        if part != filter and row.get("evaluation_result_id") != f"{metric}:{filter}":
            continue
        digest = metadata.get("doc_hash")
        found = isinstance(digest, str) and re.fullmatch("[0-9a-f]{32,128}", digest)
        key = digest[:16] if found else row["sample_id"]
        values[_named(key), row["sample_id"]] = [score(_score_of(row["evaluation"]))]
    if len(models) != 1:
        raise UnsoundError(models)
    return _logged(models.pop(), values)


def _score_of(evaluation: dict[str, Any]) -> Any:
    """The score, which rows of old versions give as right or wrong only."""
    return evaluation["score"] if "score" in evaluation else evaluation["is_correct"]


def lighteval(path: Path, metric: str, model: str) -> dict[str, Any]:
    """A details file of lighteval."""
    wanted = ["doc.id", "doc.query", "doc.task_name", "doc.choices", "doc.gold_index", "metric"]
    names, columns = parquet_rows(path, wanted)
    docs, metrics = (columns[names.index(name)] for name in ("doc", "metric"))
    values: dict[Any, list[float]] = {}
    for doc, found in zip(docs, metrics, strict=True):
        if doc["id"] in values:
            raise UnsoundError("twice")
        values[doc["id"]] = [score(found[metric])]
    return _logged(model, values)

"""Responses in JSON: tables of records, and any other file by paths to its records and in them.

A path is a sequence of keys and positions, ``results[*].vars.id``. Paths in a record begin there;
those that begin with ``$`` begin at the document and share the stars of the path of the records.
"""

import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pandas as pd

from irtcat._common.checks import InputError, argument_error, brief, shorten
from irtcat._files.reading import MOST_BYTES, numbered_lines, parse_json, read_json
from irtcat.io.frames import from_frame
from irtcat.responses import Responses, long_responses
from irtcat.responses._table import (
    ITEM_NAMES,
    RESPONSE_NAMES,
    SUBJECT_NAMES,
    TRIAL_NAMES,
    ReadingOptions,
    SourceTable,
    normalized,
)


def read_json_lines(path: Path, options: ReadingOptions, max_bytes: int = MOST_BYTES) -> Responses:
    r"""Read records with the columns of a long or a wide table.

    Args:
        path: the file, UTF-8.
        options: column names, layout and what to do with repeated ids.
        max_bytes: how large a file that is one list may be.

    Raises:
        InputError: naming the invalid line, or the record of a list.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "small.jsonl"
        >>> size = path.write_text(
        ...     '{"model": "m1", "prompt_id": 7, "score": 1}\n'
        ...     '{"model": "m1", "prompt_id": 8, "score": 0}\n'
        ... )
        >>> read_json_lines(path, ReadingOptions()).to_frame().to_dict()
        {'7': {'m1': 1}, '8': {'m1': 0}}
    """
    places, records = json_records(path, max_bytes)
    if not records:
        raise InputError(f"{path}: expected records. Got an empty file.")
    for place, record in zip(places, records, strict=True):
        if not isinstance(record, dict):
            got = shorten(record) if isinstance(record, (str, int, float)) else "a list"
            raise InputError(f"{path}, {place}: expected an object with columns. Got {got}.")
    # As objects: a float among whole numbers would make all of them floats, and large ids equal.
    frame = pd.DataFrame(records, dtype=object)
    return from_frame(frame, str(path), options, places.__getitem__, "table")


def json_columns(path: Path) -> tuple[str, ...]:
    """The columns of a table of JSON."""
    records = json_records(path, MOST_BYTES)[1]
    return tuple(dict.fromkeys(name for row in records if isinstance(row, dict) for name in row))


def json_records(path: Path, max_bytes: int) -> tuple[list[str], list[Any]]:
    """What messages call each record, and the records."""
    with path.open("rb") as stream:
        head = stream.read(64)
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        records = read_json(path, max_bytes)
        return [f"record {number}" for number in range(1, len(records) + 1)], records
    lines = list(numbered_lines(path))
    places = [f"line {line}" for line, _, _ in lines]
    rows = zip(places, lines, strict=True)
    return places, [parse_json(raw, f"{path}, {place}") for place, (_, raw, _) in rows]


SUFFIXES = (".json", ".jsonl", ".ndjson")
LINES = SUFFIXES[1:]

ROOT, FILE, VALUE, REPEAT = "$", "@file", "@value", "@repeat"
"""The document, the name of its file without the suffix, the record itself, and the number of the
record among those of its subject and item."""

USUAL = {
    "subject": SUBJECT_NAMES,
    "item": ITEM_NAMES,
    "response": RESPONSE_NAMES,
    "trial": TRIAL_NAMES,
}
"""Names of keys that are found without a path, as in tables."""

MAX_LISTS, MAX_DEPTH, MAX_KEYS = 3, 4, 12
"""Lists of records that a message proposes, steps of a path to one, and keys that it shows."""


class PathStep(Enum):
    """Steps of a path that are neither a key nor a position."""

    EACH = "*"
    KEY = "@key"


Steps = tuple[str | int | PathStep, ...]

TOKEN = re.compile(
    r"""(?P<name>\.?[^.\[\]'"]+)|\[(?P<at>\d+|\*)\]|\.?\[(?P<quoted>'[^']*'|"[^"]*")\]"""
)


class _AbsentError(LookupError):
    """A value lacks the next step of a path; the message says what is there."""


@dataclass(frozen=True)
class _Record:
    """A record, and how it was found.

    Attributes:
        file: the file that it is in.
        number: its number there, from 1.
        keys: the key or position at each star of the path.
        value: the record.
        document: the whole document.
    """

    file: str
    number: int
    keys: tuple[str | int, ...]
    value: Any
    document: Any

    def at(self, path: str, steps: Steps) -> Any:
        """The value at a path.

        Raises:
            _AbsentError: there is none.
        """
        if path == VALUE:
            return self.value
        if path == REPEAT:  # filled in once all records are known
            return 1
        if path == FILE:
            return Path(self.file).stem
        if steps[-1] is PathStep.KEY:
            if not self.keys:
                raise _AbsentError("there is one record only, without a key")
            return self.keys[steps.count(PathStep.EACH) - 1]  # by default the last one
        if isinstance(self.value, dict) and path in self.value:  # a key with a dot
            return self.value[path]
        if steps[0] == ROOT:
            keys = iter(self.keys)
            steps = tuple(next(keys) if step is PathStep.EACH else step for step in steps[1:])
            return _follow(self.document, steps, "the document")
        return _follow(self.value, steps, "the record")


def _follow(value: Any, steps: Steps, start: str) -> Any:
    """The value that a path without stars leads to."""
    for position, step in enumerate(steps):
        is_position = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if not is_position and not (isinstance(value, dict) and step in value):
            where = _text(steps[:position]) or start
            raise _AbsentError(f"{where} is {_content(value)}")
        value = value[step]
    return value


def _content(value: Any) -> str:
    """What a value is, with its keys, for messages."""
    if isinstance(value, dict):
        return f"an object with the keys {_keys(value)}" if value else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return shorten(value)


def _keys(record: dict[str, Any]) -> str:
    more = len(record) - MAX_KEYS
    shown = ", ".join(brief(key) for key in list(record)[:MAX_KEYS])
    return f"{shown} and {more} more" if more > 0 else shown


def _text(steps: Steps) -> str:
    """A path as text.

    Example:
        >>> _text(("results", PathStep.EACH, "a b", 0))
        "results[*]['a b'][0]"
    """
    parts = []
    for step in steps:
        if isinstance(step, int) or step is PathStep.EACH:
            parts.append(f"[{step.value if isinstance(step, PathStep) else step}]")
        elif isinstance(step, PathStep):
            parts.append(f".{step.value}")
        else:
            parts.append(f".{step}" if re.fullmatch(r"[\w@$-]+", step) else f"[{step!r}]")
    return "".join(parts).removeprefix(".")


def parse_path(argument: str, text: Any) -> Steps:
    """The steps of a path.

    Raises:
        InputError: it is no path; naming the argument.

    Example:
        >>> parse_path("item", "vars['a.b'][0].id")
        ('vars', 'a.b', 0, 'id')
    """
    steps: list[str | int | PathStep] = []
    position = 0
    while isinstance(text, str) and (token := TOKEN.match(text, position)):
        name = token["name"]
        if name and name.startswith(".") != bool(position):
            break
        position = token.end()
        if token["quoted"]:
            steps.append(token["quoted"][1:-1])
        elif (word := (name or token["at"]).removeprefix(".")) in ("*", "@key"):
            steps.append(PathStep(word))
        else:
            steps.append(int(word) if token["at"] else word)
    if not steps or position < len(text):
        must = "a path of keys, such as results[*] or vars.id, and vars['a.b'] for a key with a dot"
        raise argument_error(argument, must, text)
    return tuple(steps)


def read_records(path: Path, records: str, options: ReadingOptions, max_bytes: int) -> Responses:
    """Read responses from a JSON file, JSON lines, or a folder of such files.

    Args:
        path: the file or folder.
        records: path of the records (see `irtcat.read_responses`).
        options: paths of subject, item, response, trial and others in a record.
        max_bytes: how many bytes of a file are parsed as one document.

    Raises:
        InputError: naming the file, the record, the path, and the keys that are there.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "results.json"
        >>> size = path.write_text('{"runs": [{"by": "m", "vars": {"id": "q1"}, "ok": true}]}')
        >>> options = ReadingOptions(subject="by", item="vars.id", response="ok")
        >>> read_records(path, "runs[*]", options, 1000)
        Responses(1 subjects x 1 items, right/wrong)
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
        if not files:
            raise InputError(f"{path}: expected files {', '.join(SUFFIXES)}. Got none.")
    documents = ((str(file), load_document(file, max_bytes)) for file in files)
    return responses_of_records(str(path), documents, records, options)


def load_document(path: Path, max_bytes: int) -> Any:
    """A JSON document; a list of the lines of JSON lines."""
    if path.suffix.lower() not in LINES:
        try:
            return read_json(path, max_bytes)
        except InputError:
            if not _has_lines(path):
                raise
    return [parse_json(raw, f"{path}, line {number}") for number, raw, _ in numbered_lines(path)]


def _has_lines(path: Path) -> bool:
    """Whether the first line of a file is a JSON object."""
    _, raw, _ = next(numbered_lines(path), (0, b"", False))
    try:
        return isinstance(parse_json(raw, ""), dict)
    except InputError:
        return False


def responses_of_records(
    name: str, documents: Iterable[tuple[str, Any]], records: str, options: ReadingOptions
) -> Responses:
    """The responses in documents, given with the names of their files (see `read_records`)."""
    steps = parse_path("records", records)
    found = [record for file, document in documents for record in _records(file, document, steps)]
    if not found:
        raise InputError(f"{name}: expected records at {records}. Got an empty list.")
    paths = _paths(found, steps, options)
    columns = {path: _column(name, found, role, path, inner) for role, path, inner in paths}
    frame = pd.DataFrame(columns, dtype=object)
    if REPEAT in frame:
        same = [path for role, path, _ in paths if role in ("subject", "item", "facets")]
        frame[REPEAT] = frame.groupby(same, sort=False).cumcount().astype(object) + 1
    named: dict[str, Any] = {role: path for role, path, _ in paths if role in USUAL}

    def cell(row: int, column: int) -> tuple[str, str]:
        if row < 0:
            return "records", str(frame.columns[column])
        value = frame.iloc[row, column]
        record = found[row]
        file = "" if record.file == name else f"{record.file}, "
        return f"{file}record {record.number}", "" if value is None else str(value)

    table = SourceTable(name, tuple(map(str, frame.columns)), cell)
    long = replace(options, **named, layout="long", ignore=())
    responses = long_responses(table, frame, long)
    roles = responses.origin.partition("; ")[2]
    return replace(responses, origin=f"{len(found)} records at {records}; {roles}")


def _records(file: str, document: Any, steps: Steps) -> Iterator[_Record]:
    """The records of a document; a list at the end of the path is one of records."""
    if steps[0] == ROOT:
        steps = steps[1:]
    try:
        for number, (keys, value) in enumerate(_walk(document, steps, ()), start=1):
            yield _Record(file, number, keys, value, document)
    except _AbsentError as error:
        must = f"a path in {file}, where {error}"
        raise argument_error("records", must, _text(steps)) from None


def _walk(
    value: Any, steps: Steps, keys: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Each value at a path with stars, with its keys at the stars; a null has none."""
    star = next((n for n, step in enumerate(steps) if step is PathStep.EACH), len(steps))
    found = _follow(value, steps[:star], f"the value at [{keys[-1]}]" if keys else "the document")
    if star == len(steps) and not isinstance(found, list):
        yield keys, found
    elif isinstance(found, (dict, list)):
        for key, child in found.items() if isinstance(found, dict) else enumerate(found):
            if star < len(steps) - 1:
                yield from _walk(child, steps[star + 1 :], (*keys, key))
            else:
                yield (*keys, key), child
    elif found is not None:
        raise _AbsentError(f"{_text(steps[:star]) or 'the document'} is {_content(found)}")


def _paths(
    found: list[_Record], records: Steps, options: ReadingOptions
) -> list[tuple[str, str, Steps]]:
    """Role, path and steps of each column: the paths that were given, and keys of usual names.

    Raises:
        InputError: there is neither a path nor a single usual key for a role.
    """
    paths: list[tuple[str, str, Steps]] = []
    for role, usual in USUAL.items():
        path = getattr(options, role)
        if path == role:
            keys = [key for key in _scalar_keys(found[0].value) if normalized(key) in usual]
            exact = [key for key in keys if key == role]
            if len(exact or keys) != 1 and (role != "trial" or keys):
                raise _unclear(found[0], role, keys)
            if not keys:
                continue
            path = (exact or keys)[0]
            paths.append((role, path, (path,)))
        else:
            paths.append((role, path, _inner_steps(role, path, records)))
    for role in ("facets", "subject_columns"):
        paths += [
            (role, path, _inner_steps(role, path, records)) for path in getattr(options, role)
        ]
    return paths


def _scalar_keys(record: Any) -> list[str]:
    """The keys of a record with one value each."""
    entries = record.items() if isinstance(record, dict) else ()
    return [key for key, value in entries if not isinstance(value, (dict, list))]


def _unclear(record: _Record, role: str, keys: list[str]) -> InputError:
    """The error for a role that no key, or more than one, has by its name."""
    reason = f"no key is named like the {role}; the record is {_content(record.value)}"
    if keys:
        reason = f"{' and '.join(map(repr, keys))} could all be the {role}"
    more = f" (or {FILE}, the name of the file)" if role == "subject" else ""
    where = f"{record.file}, record {record.number}"
    return InputError(f"{where}: {reason}. Give its path with {role}={more}.")


def _inner_steps(argument: str, path: str, records: Steps) -> Steps:
    """The steps of a path within a record, or from the document.

    Raises:
        InputError: it has stars, but not those of the path of the records.
    """
    if path in (FILE, VALUE):
        return (path,)
    if path == REPEAT:
        if argument != "trial":
            raise argument_error(argument, f"another path ({REPEAT} is one of trials)", path)
        return (path,)
    steps = parse_path(argument, path)
    stars = [n for n, step in enumerate(steps) if step is PathStep.EACH]
    shared = records[1:] if records[0] == ROOT else records
    if steps[0] != ROOT and stars:
        must = "a path without stars, or one from the document, with $ before it"
        raise argument_error(argument, must, path)
    if stars and steps[1 : stars[-1] + 1] != shared[: stars[-1]]:
        must = f"a path whose stars are those of the records, {_text(shared)}"
        raise argument_error(argument, must, path)
    if PathStep.KEY in steps[:-1]:
        raise argument_error(argument, "a path with @key at its end only", path)
    return steps


def _column(name: str, found: list[_Record], role: str, path: str, steps: Steps) -> list[Any]:
    """The value in each record: one text, number or truth value.

    A response, or what is known of a subject, may be missing in some records.

    Raises:
        InputError: naming the first record without the path, and what is there instead.
    """
    values: list[Any] = []
    absent = []
    for record in found:
        where = f"{record.file}, record {record.number}"
        try:
            value = record.at(path, steps)
        except _AbsentError as error:
            absent.append(f"{where}: expected the {role} at {path}, but {error}")
            value = None
        if isinstance(value, (dict, list)):
            must = f"expected the {role} at {path} to be one value"
            raise InputError(f"{where}: {must}. Got {_content(value)}.")
        values.append(value)
    if absent and (role not in ("response", "subject_columns") or len(absent) == len(found)):
        raise InputError(f"{absent[0]}.")
    if absent and role == "response":
        n = f"{len(absent)} of {len(found)} records have no response, which is missing"
        warnings.warn(f"{name}: {n}. {absent[0]}.", UserWarning, stacklevel=2)
    return values


def unknown_json(path: Path, max_bytes: int) -> str:
    """What a JSON file of no known format holds, and how to read it; "" for any other file.

    Lists of records are tables if they have no lists and objects in them, or the usual columns, and
    damaged lines are left to their reader.
    """
    try:
        document = load_document(path, max_bytes)
    except InputError:
        return ""
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        return ""
    names = {normalized(key) for key in first}
    is_table = len(_scalar_keys(first)) == len(first) or all(
        names & set(USUAL[role]) for role in ("subject", "item", "response")
    )
    if isinstance(document, list) and is_table:
        return ""
    lists = sorted(_lists(document, ()), key=lambda entry: -entry[1])
    shown = [f"{_text(steps)} ({n} with the keys {keys})" for steps, n, keys in lists[:MAX_LISTS]]
    advice = f"There are {'; '.join(shown)}" if shown else f"It is {_content(document)}"
    return (
        f"{path}: the JSON is of no format that irtcat knows. Name the path of its records with "
        f"records=, and paths in a record with subject=, item= and response=. {advice}."
    )


def _lists(value: Any, steps: Steps) -> Iterator[tuple[Steps, int, str]]:
    """The lists of objects in a document, down to a few levels: path, length, keys."""
    if len(steps) > MAX_DEPTH:
        return
    if isinstance(value, list) and value and isinstance(value[0], dict):
        yield (*steps, PathStep.EACH), len(value), _keys(value[0])
        yield from _lists(value[0], (*steps, PathStep.EACH))
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _lists(child, (*steps, key))

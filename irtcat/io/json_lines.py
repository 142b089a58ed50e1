"""Tables of JSON: a record on each line, or one list of records."""

from pathlib import Path
from typing import Any

import pandas as pd

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import MOST_BYTES, numbered_lines, parse_json, read_json
from irtcat.io.frames import from_file
from irtcat.responses import Responses
from irtcat.responses._table import ReadingOptions


def read_json_lines(
    path: Path, options: ReadingOptions | None = None, max_bytes: int = MOST_BYTES
) -> Responses:
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
        >>> read_json_lines(path).to_frame().to_dict()
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
    options = options or ReadingOptions()
    return from_file(frame, path, options, options.codes, places.__getitem__)


def json_columns(path: Path) -> tuple[str, ...]:
    """The columns of a table of JSON."""
    records = json_records(path, MOST_BYTES)[1]
    names = dict.fromkeys(name for row in records if isinstance(row, dict) for name in row)
    return tuple(names)


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

"""Response files: their formats, how these are detected, and reading them."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from irtcat._common.checks import DUPLICATES, InputError, argument_error, check_choice, check_count
from irtcat._files.reading import MOST_BYTES, check_path, seekable_copy
from irtcat.io import office, parquet, pyirt
from irtcat.io.judgements import check_no_votes
from irtcat.io.logs import LOG_FORMATS, read_logs
from irtcat.io.logs.find import is_log
from irtcat.io.parameters.files import check_no_parameters
from irtcat.io.records import json_columns, read_json_lines, read_records, unknown_json
from irtcat.io.text import checked_encoding, first_line, read_delimited, read_key, table_header
from irtcat.responses import Responses, read_npz
from irtcat.responses._table import ReadingOptions

Reader = Callable[[Path, ReadingOptions, int], Responses]

FORMATS: dict[str, Reader] = {
    "csv": lambda path, options, most: read_delimited(path, options, None, most),
    "tsv": lambda path, options, most: read_delimited(path, options, "\t", most),
    "npz": lambda path, options, most: read_npz(path, options.duplicates, most),
    "parquet": parquet.read_parquet,
    "pyirt": lambda path, options, most: pyirt.read_pyirt(path, options.duplicates),
    "jsonl": read_json_lines,
    "excel": office.read_excel,
    "spss": office.read_labelled,
    "stata": office.read_labelled,
    "sas": office.read_labelled,
}

OFFICE = ("excel", "spss", "stata", "sas")

TABLES = ("csv", "tsv", "parquet", "jsonl", *OFFICE)
"""Formats of tables, whose columns can be named."""

_EXTENSIONS = {
    # The same reader for all text, which detects the separator by extension and header.
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), "csv"),
    ".npz": "npz",
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".xlsx", ".xlsm"), "excel"),
    **dict.fromkeys((".sav", ".zsav", ".por"), "spss"),
    ".dta": "stata",
    **dict.fromkeys((".sas7bdat", ".xpt"), "sas"),
}

_PICKLE = "pickles run code when they are loaded. Save the responses as CSV or .npz"

_REFUSED = {
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    ".joblib": _PICKLE,
    ".npy": "a bare array has no ids. Save X, subjects and items with np.savez",
    ".xls": "old Excel files are not read. Save it as .xlsx, or export the sheet as CSV",
    ".ods": "this spreadsheet is not read. Save it as .xlsx, or export the sheet as CSV",
    ".numbers": "this spreadsheet is not read. Export it as .xlsx or CSV",
    ".gz": "the file is compressed. Unpack it first",
    ".zip": "the file is compressed. Unpack it first",
}

_FIRST_BYTES = {b"PK\x03\x04": "npz", b"PAR1": "parquet", b"\x1f\x8b": ".gz", b"\x80": ".pkl"}


def columns_of(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The columns of a table; none of another file, a folder or a pipe."""
    file = Path(path)
    if not file.is_file() or is_log(file):
        return ()
    kind = detect(file)
    headers: dict[str, Callable[[Path], tuple[str, ...]]]
    headers = {"parquet": parquet.parquet_header, "jsonl": json_columns}
    headers |= dict.fromkeys(OFFICE, office.office_header)
    return headers.get(kind, table_header)(file) if kind in TABLES else ()


def place_of(path: str | os.PathLike[str], column: str, value: str) -> str:
    """Where a table first has a value in a column, for messages."""
    is_text = detect(Path(path)) in ("csv", "tsv")
    line = first_line(Path(path), column, value) if is_text else None
    place = "" if line is None else f", line {line}"
    return f"{path}{place}, column {columns_of(path).index(column) + 1} ({column!r})"


def detect(file: Path) -> str:
    """Detect the format by extension and first bytes; raise for refused formats."""
    extension = file.suffix.lower()
    if extension in _REFUSED:
        raise InputError(f"{file}: {_REFUSED[extension]}.")
    try:
        with file.open("rb") as stream:
            head = stream.read(64)
    except OSError as error:
        raise InputError(f"{file}: cannot be opened ({error.strerror}).") from None
    kind = _EXTENSIONS.get(extension)
    if kind in OFFICE:
        return kind
    by_content = next((k for first, k in _FIRST_BYTES.items() if head.startswith(first)), None)
    if by_content in _REFUSED:
        raise InputError(f"{file}: {_REFUSED[str(by_content)]}.")
    is_json = head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    if is_json and kind in (None, "csv", "jsonl"):
        by_content = "pyirt" if pyirt.is_pyirt(file) else "jsonl"
    return by_content or kind or "csv"


def read_responses(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    subject: str = "subject",
    item: str = "item",
    response: str = "response",
    trial: str = "trial",
    duplicates: str = "refuse",
    ignore: Any = (),
    subject_columns: Any = (),
    facets: Any = (),
    records: str | None = None,
    codes: Any = None,
    missing: Any = (),
    key: Any = None,
    encoding: str | None = None,
    sheet: str | None = None,
    max_bytes: int = MOST_BYTES,
) -> Responses:
    r"""Read who answered what from a file or a folder of logs; its format is detected.

    Formats: CSV and TSV, wide (column 1 the subject id, one column per item) or long (one row per
    response); ``.npz`` with X, subjects and items, and what `Responses.save` writes; Parquet, wide
    or long; JSON lines or a list of records with the columns of such a table, and py-irt's JSON
    lines. A response is 0/1, true/false, a fraction in [0, 1] or an integer
    code. Missing is an empty cell, NA, NaN or null in any case, an absent row, and -1 in ``.npz``.
    Ids are kept as text exactly as in the file, in order of first appearance.

    In a wide table column 1 holds ids if it is named subject, student, model, id, ... (or has no
    name), has text, or numbers that are no responses: whole, mostly different, and above those of
    the other columns. Otherwise all columns are items, and the subjects s1, s2, ...; a warning and
    ``Responses.origin`` say so. A column with the sum, mean or percentage of the others is refused.

    Logs of evaluation harnesses, one file or a folder of them, are read as by
    `irtcat.io.read_logs`, which lists their formats, has options and a report; a warning lists
    skipped files, which of several metrics was selected, and the number of samples without a score.

    Any other JSON, one file, lines or a folder of them, is read by paths: ``records`` says where
    its records are, as ``results[*]`` (``*`` stands for every element, ``groups.*[*]`` for those of
    every key), and ``subject``, ``item``, ``response`` and ``trial`` are paths in a record, as
    ``vars.id`` (a key with a dot: ``vars['a.b']``). A path that begins with ``$`` begins at the
    document: ``$.config.model``, or ``$.groups.*.name`` with the stars of the records. ``@key`` is
    the key or number of the record (``$.groups.*.@key`` that of its group), ``@value`` the record
    itself, ``@file`` the name of its file without the suffix; ``trial="@repeat"`` numbers the
    records of a subject and an item in their order. Keys of usual names need no path.

    A pipe (``/dev/stdin``, a named pipe) is read to its end, once.

    Args:
        path: the file, or a folder of logs.
        format: "csv", "tsv", "npz", "parquet", "jsonl", "pyirt", "excel", "spss", "stata", "sas" or
            a format of logs, or "wide" or "long" for the layout of a table; detected by default.
        subject: header of the subject column of a long table. A usual synonym (subject_id,
            model, user, …) is detected if there is only one.
        item: header of the item column (item_id, question, problem, …).
        response: header of the response column (score, correct, value, …).
        trial: header of the column that numbers repeated trials, if there is one (epoch, repeat,
            …): see `Responses.from_trials`.
        duplicates: what to do with repeated ids: "refuse", "first" (keep the first) or "suffix"
            (rename the later ones to "id#2"). In a long table "first" also resolves pairs (or
            trials of them) that occur twice with different responses.
        ignore: names of columns of a table to leave out, such as a total.
        subject_columns: names of columns of a table with what is known of the subjects, such as
            class, gender and age; they become ``Responses.subjects``. In a long table they have
            one value for each subject.
        facets: names of columns of a long table with what else a response depends on, such as the
            judge who scored it: see `Responses.from_long`.
        records: path of the records of a JSON file of another format, such as results[*]; the other
            columns are then paths in a record.
        codes: all codes that a response can have, labels from the lowest to the highest, or a
            mapping from labels to numbers: see `irtcat.as_responses`.
        missing: cells without a response besides empty ones and NA, such as ``"-99,."``.
        key: the right answers, if the cells are choices (A, B, ...; texts): a file with columns
            item, key and perhaps credit (several rows, or ``A|C``, for several answers of an
            item), or with one row of answers below the items; or see `irtcat.as_responses`. A row
            of the table with the id "key" is one, too.
        encoding: of a file of text, such as "cp1252" or "utf-16". By default UTF-8, UTF-16 with
            its mark, or, where the text has the usual letters of Western Europe, cp1252 (Windows),
            which a warning says.
        sheet: name of the sheet of an Excel workbook, if several have cells.
        max_bytes: how many bytes a file may have unpacked (256 MiB by default), so that no
            archive, sparse file or endless pipe fills the memory. A file may always be read up to
            its size on disk.

    Returns:
        The responses, validated.

    Raises:
        InputError: naming the file and the invalid line, column or id.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "long.csv"
        >>> size = path.write_text("model,question,correct\nm1,q1,1\nm1,q2,0\nm2,q1,true\n")
        >>> read_responses(path)
        Responses(2 subjects x 2 items, right/wrong, 1 missing)
    """
    check_choice("duplicates", duplicates, DUPLICATES)
    layout = format if format in ("wide", "long") else None
    if format is not None and layout is None:
        check_choice("format", format, (*FORMATS, *LOG_FORMATS, "wide", "long"))
    check_count("max_bytes", max_bytes)
    roles = {"subject": subject, "item": item, "response": response, "trial": trial}
    others = {"ignore": ignore, "subject_columns": subject_columns, "facets": facets}
    cells = {"codes": codes, "missing": missing, "key": read_key(key, encoding)}
    file_options = {"encoding": checked_encoding(encoding), "sheet": sheet}
    options = ReadingOptions.of(
        **roles, **others, **cells, **file_options, layout=layout, duplicates=duplicates
    )
    with seekable_copy(check_path(path), max_bytes) as file:
        if records is not None:
            if format is not None:
                raise argument_error("format", "left out where records are given", format)
            return read_records(file, records, options, max_bytes)
        if format in LOG_FORMATS or (format is None and is_log(file)):
            _check_table(options, "a log")
            return _from_logs(file, format or "auto", max_bytes)
        if file.is_dir():
            raise argument_error("path", f"a file, to be read as {format}", f"the folder {file}")
        kind = format if format in FORMATS else detect(file)
        if kind not in TABLES:
            _check_table(options, f"a file of the format {kind}")
        if kind == "jsonl" and format is None and (advice := unknown_json(file, max_bytes)):
            check_no_parameters(file, max_bytes)
            raise InputError(advice)
        return _read_kind(file, str(kind), options, max_bytes, is_guess=format is None)


def _read_kind(
    file: Path, kind: str, options: ReadingOptions, max_bytes: int, is_guess: bool
) -> Responses:
    """Read a file of a format; a table that nobody said to be of responses may be of others."""
    is_guess = is_guess and kind in TABLES
    try:
        responses = FORMATS[kind](file, options, max_bytes)
    except OSError as error:
        raise InputError(f"{file}: cannot be opened ({error.strerror}).") from None
    except InputError as error:
        if is_guess:
            check_no_parameters(file, max_bytes)
            try:
                columns = columns_of(file)
            except InputError:
                raise error from None  # which says it
            check_no_votes(file, columns)
        raise
    if is_guess and responses.is_fractional:
        check_no_parameters(file, max_bytes)
    return responses


def _check_table(options: ReadingOptions, got: str) -> None:
    """Raise if columns are named of a file that is no table."""
    columns, cells = ("ignore", "subject_columns", "facets"), ("codes", "words", "missing", "key")
    for name in (*columns, *cells, "encoding"):
        if getattr(options, name):
            name = name.replace("words", "codes")
            raise argument_error(name, f"given with a table only ({', '.join(TABLES)})", got)


def _from_logs(path: Path, format: str, max_bytes: int) -> Responses:
    """Read responses from logs and warn about skipped files and automatic choices."""
    logs = read_logs(path, format, max_bytes=max_bytes)
    skipped = logs.report.skipped
    messages = []
    if skipped:
        messages.append(f"{len(skipped)} log files were skipped, such as {skipped[0].reason}")
    if chosen := [choice for choice in logs.report.choices if choice.others]:
        more = f" and {len(chosen) - 1} more choices" if len(chosen) > 1 else ""
        messages.append(f"Of several possibilities one was selected: {chosen[0]}{more}.")
    if n := int(logs.report.runs["unscored"].sum()):
        samples = "1 sample has" if n == 1 else f"{n} samples have"
        messages.append(f"{samples} no score, such as after an error, and count as missing.")
    if messages:
        messages.append("irtcat.io.read_logs reports all and lets you choose.")
        warnings.warn(f"{path}: {' '.join(messages)}", UserWarning, stacklevel=3)
    return logs.responses

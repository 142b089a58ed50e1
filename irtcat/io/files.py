"""Response files: the format is detected by the extension and the first bytes."""

import os
import warnings
from pathlib import Path
from shlex import quote
from typing import Any

from irtcat._common.checks import DUPLICATES, InputError, argument_error, check_choice, check_count
from irtcat._files.reading import MOST_BYTES, check_path, seekable_copy
from irtcat.io.formats import FORMATS, TABLES, columns_of, detect
from irtcat.io.judgements import are_votes
from irtcat.io.keys import read_key
from irtcat.io.logs import LOG_FORMATS, read_logs
from irtcat.io.logs.find import is_log
from irtcat.io.parameters.recognise import found_parameters
from irtcat.io.records import read_records, unknown_json
from irtcat.io.text import checked_encoding
from irtcat.responses import Responses
from irtcat.responses._table import ReadingOptions, names_of
from irtcat.responses._words import declared_codes, missing_texts


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
    words, declared = declared_codes(codes)
    options = ReadingOptions(
        subject=subject,
        item=item,
        response=response,
        trial=trial,
        layout=layout,
        duplicates=duplicates,
        ignore=names_of("ignore", ignore),
        subject_columns=names_of("subject_columns", subject_columns),
        facets=names_of("facets", facets),
        words=words,
        codes=declared,
        missing=missing_texts(missing),
        key=read_key(key, encoding),
        encoding=checked_encoding(encoding),
        sheet=sheet,
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
            _check_no_parameters(file, max_bytes)
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
    except InputError:
        if is_guess:
            _check_no_parameters(file, max_bytes)
            _check_no_votes(file)
        raise
    if is_guess and responses.is_fractional:
        _check_no_parameters(file, max_bytes)
    return responses


def _check_no_votes(file: Path) -> None:
    """Raise if a table has the columns of votes."""
    try:
        columns = columns_of(file)
    except InputError:  # the error of the responses says it
        return
    if are_votes(columns):
        text = "expected responses. Got votes between two answers. Read them with"
        raise InputError(f"{file}: {text} irtcat votes {quote(str(file))}.") from None


def _check_no_parameters(file: Path, max_bytes: int) -> None:
    """Raise for a file of item parameters, whose numbers can look like fractions of responses."""
    if columns := found_parameters(file, max_bytes):
        raise InputError(
            f"{file}: expected responses. Got what looks like item parameters ({columns}). Read "
            f"them with irtcat import {quote(str(file))} (in Python irtcat.io.read_parameters); if "
            "they are responses, pass format='wide' or 'long'."
        )


def _check_table(options: ReadingOptions, got: str) -> None:
    """Raise if columns are named of a file that is no table."""
    for name in (
        "ignore",
        "subject_columns",
        "facets",
        "codes",
        "words",
        "missing",
        "key",
        "encoding",
    ):
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

"""`as_responses`: responses from whatever people have, by rules that the result states."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from irtcat._common.checks import DUPLICATES, InputError, argument_error, brief, check_choice
from irtcat.io.arrow import is_dataset
from irtcat.io.frames import (
    ROWS_ARE_ITEMS,
    ROWS_ARE_SUBJECTS,
    from_frame,
    from_wide,
    is_item_name,
    is_subject_name,
)
from irtcat.io.records import responses_of_records
from irtcat.io.source import ResponseSource, as_source, open_source
from irtcat.io.text import read_key
from irtcat.responses import Responses, frame_table, long_responses
from irtcat.responses._cells import cell_number
from irtcat.responses._frames import as_pandas, dataset_advice, frame_kind
from irtcat.responses._table import ReadingOptions

ResponsesLike: TypeAlias = Any
"""What `irtcat.as_responses` takes: `Responses`, arrays and matrices, data frames of pandas, polars
or Arrow, data sets of Hugging Face, mappings and lists, and paths of files and folders. Python has
no type for all of these."""

ARGUMENTS = (
    "duplicates|codes|missing|key|format|subject|item|response|trial|ignore|subject_columns|facets"
)
IdsByWidth: TypeAlias = dict[int, Any] | None
"""Ids of columns that have none, by the number of columns."""

KINDS = (
    "Responses, an array, a data frame, a mapping or list of responses, or the path of a file or "
    "folder"
)


def as_responses(
    data: ResponsesLike,
    *,
    subject: str = "subject",
    item: str = "item",
    response: str = "response",
    trial: str = "trial",
    format: str | None = None,
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
    item_ids: Any = None,
    name: str = "data",
) -> Responses:
    """Convert data to `Responses`; `irtcat.fit` and the other functions call it for you.

    | data | subjects, items and ids |
    |---|---|
    | array, list of lists | rows are subjects; ids s1, s2, ... and i1, i2, ... |
    | wide data frame | rows are subjects, other columns items; subject ids are the index, or a \
column named subject, model, user, id, ..., or a first column of text or of numbers that are no \
responses (see `irtcat.read_responses`) |
    | long data frame, list of records | columns named subject (model, user, ...), item \
(question, doc_id, ...) and response (score, correct, ...) |
    | Series with two index levels | (subject, item) |
    | ``{subject: {item: response}}``, ``{subject: [responses]}`` | the keys |
    | ``{item: response}``, Series, list of numbers | one subject |
    | list of (subject, item, response) | in this order |
    | xarray DataArray | the dimensions, in the order of the table or by their names; coordinates \
are ids |
    | scipy sparse matrix | stored entries are responses, other cells are missing |
    | path | see `irtcat.read_responses` |
    | a JSON document, with ``records=`` | paths in it, as in a file |

    Data frames are those of pandas, polars, pyarrow and other libraries that narwhals reads, and
    Hugging Face's ``datasets.Dataset``. Where
    the index, a dimension or the id column is named like items (item, question, ...), rows are
    items, and the table is transposed. A response is 0/1, true/false, a fraction in [0, 1] or an
    integer code; in tables also as text. Missing is NaN, None or NA, and -1 in integer arrays.
    ``Responses.origin`` and ``Responses.summary`` say how the data were read.

    Args:
        data: one of the above.
        subject: name of the subject column of a long table, if it is not detected.
        item: name of its item column.
        response: name of its response column.
        trial: name of the column that numbers repeated trials, if there is one (epoch, repeat, ...;
            see `Responses.from_trials`).
        format: "wide" or "long" for the layout of a table, or the format of a file (see
            `irtcat.read_responses`); detected by default.
        duplicates: what to do with repeated ids: "refuse", "first" (keep the first) or "suffix"
            (rename the later ones to "id#2").
        ignore: names of columns of a table to leave out, such as a total.
        subject_columns: names of columns of a table with what is known of the subjects (see
            `irtcat.read_responses`).
        facets: names of columns of a long table with what else a response depends on, such as its
            judge (see `Responses.from_long`).
        records: path of the records of a JSON document or file; subject, item, response, trial and
            the others are then paths in a record (see `irtcat.read_responses`).
        codes: all codes that a response can have, or labels from the lowest to the highest, or a
            mapping from labels to numbers (see `Responses.from_array`). Usual words (yes/no,
            right/wrong, labels of agreement and frequency, ...) are read without it where there is
            no doubt; a warning and the origin say so.
        missing: cells without a response besides empty ones and NA: texts or numbers, or one text
            with commas between them, such as ``"-99,."``.
        key: the right answers, if the cells are choices: a mapping from items to an answer, a list
            of answers (all right) or what each answer counts (``{"A": 1, "B": 0.5}``); a Series;
            a data frame with columns item, key and perhaps credit, or of one row; the answers in
            the order of the items; or a file with such a table (see `irtcat.read_responses`). The
            choices are kept as ``Responses.choices``: see `Responses.as_choices`.
        encoding: of a file of text (see `irtcat.read_responses`).
        sheet: of an Excel workbook (see `irtcat.read_responses`).
        item_ids: ids of the columns, where the data have none.
        name: what messages call the data.

    Returns:
        The responses, validated; `Responses` are returned as they are.

    Raises:
        InputError: for other data, or naming the invalid row, column, cell or id.

    Example:
        >>> as_responses({"m1": {"q1": 1, "q2": 0}, "m2": {"q1": True}})
        Responses(2 subjects x 2 items, right/wrong, 1 missing)
        >>> table = pd.DataFrame({"question": ["q1", "q2"], "m1": [1, 0], "m2": [1, 1]})
        >>> as_responses(table).origin
        'pandas DataFrame of one row per item, transposed; ids = the column question'
    """
    check_choice("duplicates", duplicates, DUPLICATES)
    if isinstance(data, Responses):
        return data
    table: dict[str, Any] = {"subject": subject, "item": item, "response": response, "trial": trial}
    table |= {"ignore": ignore, "subject_columns": subject_columns, "facets": facets}
    table |= {"codes": codes, "missing": missing, "duplicates": duplicates}
    if isinstance(data, (str, os.PathLike)):
        from irtcat.io.files import read_responses  # all formats: most fits need none

        file = {"records": records, "key": key, "encoding": encoding, "sheet": sheet}
        responses = read_responses(data, format, **table, **file)
        return replace(responses, origin=": ".join(filter(None, [str(data), responses.origin])))
    if format is not None:
        check_choice("format", format, ("wide", "long"))
    options = ReadingOptions.of(**table, layout=format, key=read_key(key, encoding))
    if records is not None:
        return responses_of_records(name, [(name, data)], records, options)
    try:
        return _converted(data, options, _by_width(item_ids), name)
    except InputError as error:
        message = str(error).replace("The `X` argument", f"The `{name}` argument")
    if name != "data" and re.search(rf"\b({ARGUMENTS})=", message):
        message += " Convert the data with irtcat.as_responses, which takes this argument."
    raise InputError(message)


def as_responses_like(data: Any, name: str, *references: Any, sources: bool = False) -> Any:
    """`as_responses` of data about the items of a bank, a subset or other responses.

    Columns without ids are the items of the first reference that has as many, in its order. Codes
    are those of the references, as not all of them need occur in the data.

    Args:
        data: see `as_responses`.
        name: what messages call the data.
        references: banks, responses or arrays of item ids; None is ignored.
        sources: whether data may be read in passes (see `as_responses_or_source`).
    """
    if isinstance(data, Responses):
        return data
    known = [reference for reference in references if reference is not None]
    codes = next(filter(None, map(_codes_of, known)), None)
    options: dict[str, Any] = {
        "item_ids": [getattr(source, "item_ids", source) for source in known]
    }
    convert = as_responses_or_source if sources else as_responses
    try:
        return convert(data, name=name, codes=codes, **options)
    except InputError:
        if codes is None:
            raise
    return convert(data, name=name, **options)  # such as fractions, which have no codes


def _codes_of(reference: Any) -> Any:
    """The codes of responses or a bank of more than two categories; None for others."""
    model = getattr(reference, "model", reference)
    if getattr(model, "n_categories", 2) <= 2:
        return None
    return getattr(reference, "codes", None) or None


def _by_width(item_ids: Any) -> IdsByWidth:
    """Ids of columns that have none, by the number of columns; the first list of a length counts.

    Example:
        >>> _by_width([["a", "b"], ["c", "d"], ["e"]])
        {1: ['e'], 2: ['a', 'b']}
    """
    if item_ids is None or not len(item_ids):
        return None
    lists = [item_ids] if np.ndim(item_ids[0]) == 0 else item_ids
    return {len(ids): ids for ids in reversed(lists)}


def _converted(data: Any, options: ReadingOptions, ids: IdsByWidth, name: str) -> Responses:
    """`as_responses`, by the type of the data."""
    is_source = isinstance(data, ResponseSource) or callable(getattr(data, "blocks", None))
    if is_source or is_dataset(data):
        raise argument_error(name, "responses in memory", "a source that is read in passes")
    frame = as_pandas(data)
    if frame is not None:
        return from_frame(frame, frame_kind(data), options)
    if advice := dataset_advice(data):
        raise argument_error(name, "a Dataset in memory", type(data).__name__, advice)
    are_records = isinstance(data, (list, tuple)) and len(data) > 0 and isinstance(data[0], Mapping)
    is_table = isinstance(data, Mapping) or are_records
    for argument in ("ignore", "subject_columns", "facets"):
        if getattr(options, argument) and not is_table:
            raise argument_error(argument, "given with a table only", f"{type(data).__name__}")
    if isinstance(data, pd.Series):
        return _from_series(data, options)
    if hasattr(data, "dims") and hasattr(data, "coords"):
        return _from_xarray(data, options, name)
    if hasattr(data, "tocoo"):
        return _from_sparse(data, options, ids, name)
    if isinstance(data, Mapping):
        return _from_mapping(data, options, ids, name)
    if are_records:
        return _from_records(data, options, name)
    if _is_triples(data):
        table = pd.DataFrame(list(data), columns=["subject", "item", "response"])
        return _by_usual_names(table, "list of triples", options)
    return _from_array(data, options, ids, name)


def as_responses_or_source(data: Any, name: str, **options: Any) -> Responses | ResponseSource:
    """`as_responses`, but data that are made to be read in passes become a source.

    These are sources, objects with ``n_subjects``, ``n_items`` and ``blocks()``, memory-mapped
    arrays, datasets of Arrow, and paths of ``.npy`` files and of wide Parquet tables of integers.
    """
    if isinstance(data, Responses):
        return data
    if isinstance(data, (str, os.PathLike)):
        suffix = Path(data).suffix.lower()
        if suffix == ".npy":
            return open_source(data)
        if suffix in (".parquet", ".pq"):
            with suppress(InputError):  # a long table, or one of fractions
                return open_source(data, format="wide")
    elif (source := as_source(data)) is not None:
        return source
    return as_responses(data, name=name, **options)


def _by_usual_names(table: pd.DataFrame, name: str, options: ReadingOptions) -> Responses:
    """A long table whose columns have the usual names."""
    usual = {role: getattr(ReadingOptions(), role) for role in ("subject", "item", "response")}
    long = replace(options, **usual, layout="long")
    return long_responses(frame_table(name, table), table, long, codes=options.codes)


def _from_series(data: pd.Series, options: ReadingOptions) -> Responses:
    """A Series by subject and item, or by item: the answers of one subject."""
    if data.index.nlevels > 2:
        must = "indexed by item, or by subject and item"
        raise argument_error("data", must, f"{data.index.nlevels} levels")
    if data.index.nlevels == 1:
        frame = data.to_frame("s1" if data.name is None else str(data.name)).T
        return from_wide(frame, "pandas Series", options, "pandas Series: one subject")
    levels = [str(name) for name in data.index.names]
    table = data.rename("response").rename_axis(["subject", "item"]).reset_index()
    if is_item_name(levels[0]) or is_subject_name(levels[1]):
        table = table.rename(columns={"subject": "item", "item": "subject"})
        levels = levels[::-1]
    responses = _by_usual_names(table, "pandas Series", options)
    origin = f"pandas Series; subject = level {levels[0]}, item = level {levels[1]}"
    return replace(responses, origin=origin)


def _from_xarray(data: Any, options: ReadingOptions, name: str) -> Responses:
    """A DataArray of two dimensions."""
    if not hasattr(data, "to_numpy") or data.ndim != 2:
        got = f"{type(data).__name__} with dimensions {', '.join(map(str, data.dims))}"
        raise argument_error(name, "a DataArray of two dimensions, subjects and items", got)
    first, second = (str(dim) for dim in data.dims)
    by_item = is_item_name(first) or is_subject_name(second)
    labels = [
        np.asarray(data.coords[dim]).tolist()
        if dim in data.coords
        else [f"{letter}{n + 1}" for n in range(data.sizes[dim])]
        for dim, letter in zip(data.dims, "is" if by_item else "si", strict=True)
    ]
    frame = pd.DataFrame(data.to_numpy(), index=labels[0], columns=labels[1])
    rows = ROWS_ARE_ITEMS if by_item else ROWS_ARE_SUBJECTS
    origin = f"xarray DataArray ({first} x {second}) of {rows}"
    frame = frame.T if by_item else frame
    return from_wide(frame, "xarray DataArray", options, origin)


def _from_sparse(data: Any, options: ReadingOptions, ids: IdsByWidth, name: str) -> Responses:
    """A sparse matrix: what is not stored is missing."""
    entries = data.tocoo()
    if len(entries.shape) != 2:
        raise argument_error(name, "a matrix, subjects x items", f"shape {entries.shape}")
    values = np.asarray(entries.data, float)
    if values.size and (values == values[0]).all() and values.size < np.prod(entries.shape):
        raise InputError(
            f"The `{name}` argument must be a sparse matrix whose stored entries are all responses "
            f"(the others are missing). Got only the value {values[0]:g}. If cells that are not "
            "stored are wrong answers, pass the matrix's .toarray()."
        )
    matrix = np.full(entries.shape, np.nan)
    matrix[entries.row, entries.col] = values
    twice = np.flatnonzero(matrix[entries.row, entries.col] != values)
    if len(twice):
        row, column = entries.row[twice[0]], entries.col[twice[0]]
        got = f"{values[twice[0]]:g} and {matrix[row, column]:g} in row {row}, column {column}"
        raise argument_error(name, "a sparse matrix with one value in each cell", got)
    origin = f"sparse matrix of {ROWS_ARE_SUBJECTS}; cells that are not stored are missing"
    return replace(_from_array(matrix, options, ids, name), origin=origin)


def _from_mapping(
    data: Mapping[Any, Any], options: ReadingOptions, ids: IdsByWidth, name: str
) -> Responses:
    """Answers by subject; columns of a table; or the answers of one subject."""
    if not data:
        raise argument_error(name, KINDS, "an empty mapping")
    _check_different(data, name)
    values = list(data.values())
    are_mappings = [isinstance(value, Mapping) for value in values]
    if all(are_mappings):
        origin = "mapping from subjects to their responses by item"
        for row in values:
            _check_different(row, name)
        rows = [{str(item): answer for item, answer in row.items()} for row in values]
        frame = pd.DataFrame(rows, index=[str(subject) for subject in data], dtype=object)
        return from_wide(frame, "mapping", options, origin)
    if any(are_mappings):
        subject = next(k for k, flag in zip(data, are_mappings, strict=True) if not flag)
        must = "a mapping from every subject to its responses by item"
        raise argument_error(name, must, f"{type(data[subject]).__name__} for {subject!r}")
    if all(np.ndim(value) == 0 for value in values):
        series = pd.Series(values, index=[str(key) for key in data], dtype=object)
        responses = _from_series(series, options)
        return replace(responses, origin="mapping from items to the responses of one subject")
    length = _common_length(data, name)
    columns = {str(key): list(value) for key, value in data.items()}
    if any(is_subject_name(key) or key == options.subject for key in columns):
        return from_frame(pd.DataFrame(columns), "mapping of columns", options)
    item_ids, label = _column_ids(length, ids, name)
    matrix = np.array(list(columns.values()), object)
    frame = pd.DataFrame(matrix, index=list(columns), columns=item_ids)
    origin = f"mapping from subjects to lists of responses; item ids = {label}"
    return from_wide(frame, "mapping", options, origin)


def _check_different(data: Mapping[Any, Any], name: str) -> None:
    """Raise if two keys are the same text."""
    texts = [str(key) for key in data]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise argument_error(name, "a mapping of different ids", f"{brief(twice)} twice")


def _common_length(data: Mapping[Any, Any], name: str) -> int:
    """The number of values under every key."""
    lengths = {key: int(np.size(value)) for key, value in data.items()}
    first = next(iter(lengths))
    other = next((key for key, n in lengths.items() if n != lengths[first]), None)
    if other is not None:
        must = "a mapping to lists of equal length"
        got = f"{lengths[other]} for {other!r} but {lengths[first]} for {first!r}"
        raise argument_error(name, must, got)
    return lengths[first]


def _column_ids(width: int, ids: IdsByWidth, name: str) -> tuple[list[str], str]:
    """Ids of columns that have none, and a description of them."""
    if ids is None:
        return [f"i{column}" for column in range(1, width + 1)], "i1, i2, ..."
    if width not in ids:
        numbers = " or ".join(str(n) for n in sorted(ids))
        must = f"with item ids, or {numbers} columns, one for each item"
        raise argument_error(name, must, f"{width} columns without ids")
    return [str(item) for item in ids[width]], "those of the items, in their order"


def _from_records(data: Sequence[Any], options: ReadingOptions, name: str) -> Responses:
    """A list of records: rows of a long or wide table."""
    wrong = next((row for row in data if not isinstance(row, Mapping)), None)
    if wrong is not None:
        raise argument_error(name, "a list of records only", type(wrong).__name__)
    return from_frame(pd.DataFrame.from_records(list(data)), "list of records", options)


def _is_triples(data: Any) -> bool:
    """Whether data are a list of (subject, item, response) with ids that are text."""
    return (
        isinstance(data, (list, tuple))
        and len(data) > 0
        and all(isinstance(row, (list, tuple)) and len(row) == 3 for row in data)
        and all(isinstance(label, str) and cell_number(label) is None for label in data[0][:2])
    )


def _has_text(data: Any) -> bool:
    """Whether there are texts among the cells of rows of equal length."""
    is_array = isinstance(data, np.ndarray) and data.dtype.kind in "biuf"
    if is_array or len({np.shape(row) for row in data}) != 1:
        return False
    return any(isinstance(cell, str) for row in data for cell in row)


def _from_array(data: Any, options: ReadingOptions, ids: IdsByWidth, name: str) -> Responses:
    """An array or nested lists; a vector is one subject."""
    kind = type(data).__name__
    if not isinstance(data, (list, tuple, np.ndarray)):
        try:
            array = np.asarray(data)
        except Exception:  # whatever another library's __array__ raises
            array = np.array(None)
        if array.ndim == 0:  # a number, a text, None, or an object that is not an array
            raise argument_error(name, KINDS, "None" if data is None else kind)
        data = array
    if not len(data):
        raise argument_error(name, KINDS, f"an empty {kind}")
    is_vector = all(np.ndim(value) == 0 for value in data)
    if is_vector:
        data = data[None] if isinstance(data, np.ndarray) else [data]
    width = len(data[0]) if np.ndim(data[0]) else 0
    items, label = _column_ids(width, ids, name)
    rows = "one subject" if is_vector else ROWS_ARE_SUBJECTS
    origin = f"{kind} of {rows}; item ids = {label}"
    if options.is_coded or _has_text(data):
        frame = pd.DataFrame([list(row) for row in data], columns=items, dtype=object)
        frame.index = pd.Index([f"s{row}" for row in range(1, len(frame) + 1)], dtype=object)
        return from_wide(frame, kind, options, origin, header=tuple(items))
    ids_of_items = items if ids else None
    responses = Responses.from_array(
        data, item_ids=ids_of_items, duplicates=options.duplicates, codes=options.codes
    )
    return replace(responses, origin=origin)

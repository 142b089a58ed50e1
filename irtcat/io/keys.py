"""Answer keys from files."""

import os
from typing import Any

from irtcat._common.checks import InputError
from irtcat._files.reading import check_path, read_bytes
from irtcat.io.delimited import separator_of
from irtcat.io.office import read_key_sheet
from irtcat.io.text import check_widths, checked_text, decoded, records
from irtcat.responses._key import Key, key_of, key_of_rows


def read_key(key: Any, encoding: str | None = None) -> Key | None:
    r"""The ``key`` argument: a file, or what `irtcat.responses._key.key_of` takes.

    Args:
        key: a table with columns item, key and perhaps credit; or one row of right answers below
            the items; or a mapping, Series, data frame or list.
        encoding: of a file of text.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "key.csv"
        >>> size = path.write_text("item,key\nq1,B\nq2,A|C\n")
        >>> sorted(read_key(path).credits["q2"])
        ['a', 'c']
    """
    if not isinstance(key, (str, os.PathLike)):
        return key_of(key)
    path = check_path(key)
    if path.suffix.lower() in (".xlsx", ".xlsm"):
        return read_key_sheet(path)
    data = checked_text(path, decoded(path, read_bytes(path), encoding)[0])
    separator = separator_of(path, data)
    rows = [row for _, row in records(path, data, separator)]
    check_widths(path, data, separator, len(rows[0]))
    try:
        return key_of_rows(rows[0], rows[1:], str(path))
    except InputError as error:
        text = str(error).replace("The `key` argument must be", "expected")
    raise InputError(text if text.startswith(str(path)) else f"{path}: {text}")

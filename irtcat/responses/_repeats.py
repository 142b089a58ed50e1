"""Subjects whose responses equal those of an earlier one: which, and whether that is a surprise."""

import hashlib
import re
from typing import Any

import numpy as np

KEY_COLUMNS = 64
"""Columns by which rows are first compared: 6000 x 28,632 take .02 s, digests of all .3 s."""

MOST_PATTERNS, MOST_ROWS, MOST_COLUMNS = 500, 5_000, 2_000
"""Repeated rows that are examined, and the part of the matrix with which they are compared."""

LEAST_NEAR, MOST_NEAR = 10, 50
"""Numbers of most similar rows: a tenth of all, within these limits."""

EXPECTED = 0.01
"""Greatest number of equal rows to expect by chance of one that is a surprise."""

COPY = re.compile(r"(?:#\d+|[\s._-]*\(\d+\)|[\s._-]+(?:copy|dup|duplicate|rerun|reupload)\d*)$")
"""The end of an id that marks a copy."""


def earlier_equal(values: np.ndarray, trials: np.ndarray | None = None) -> np.ndarray:
    """The position of the first row that equals each row; -1 for those that equal no earlier one.

    Rows are compared by a 128-bit digest. Only rows that equal another one in `KEY_COLUMNS` columns
    are digested: the rows of a long test that differ do so there.

    Args:
        values: the responses.
        trials: numbers of trials, if any, which must be equal too.

    Example:
        >>> earlier_equal(np.array([[1, 0], [0, 0], [1, 0]], np.int8)).tolist()
        [-1, -1, 0]
    """
    earlier = np.full(len(values), -1)
    keys = np.ascontiguousarray(values[:, :: -(-values.shape[1] // KEY_COLUMNS)])
    keys = keys.view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1])))[:, 0]
    _, group, size = np.unique(keys, return_inverse=True, return_counts=True)
    first: dict[bytes, int] = {}
    for position in np.flatnonzero(size[group] > 1).tolist():
        content = values[position].tobytes()
        content += b"" if trials is None else trials[position].tobytes()
        digest = hashlib.blake2b(content, digest_size=16).digest()
        if (at := first.setdefault(digest, position)) != position:
            earlier[position] = at
    return earlier


def suspect_repeats(
    values: np.ndarray, ids: np.ndarray, trials: np.ndarray | None = None
) -> np.ndarray:
    """Positions of the rows that equal an earlier one and are probably the same subject again.

    People may well answer a short test alike, and questionnaires more so. A repeated row is suspect

    - if chance makes it improbable: less than .01 other subjects are expected to have it. Its
      probability is the product over items of the share of this response (plus a half) among the
      tenth of the other subjects (10 to 50) who differ from it in the fewest responses. A row in
      which all responses are equal is never improbable; or
    - if its id and that of an equal row look like uploads of the same: see `plain_id`.

    Of more than 500 repeated rows the first 500 are examined.

    Args:
        values: the responses; -1 or NaN where missing.
        ids: of the rows.
        trials: numbers of trials, if any.

    Example:
        >>> values = np.random.default_rng(0).integers(0, 2, (60, 60)).astype(np.int8)
        >>> values[8] = values[3]
        >>> suspect_repeats(values, np.arange(60)).tolist()
        [8]
        >>> suspect_repeats(values[:, :6], np.arange(60)).tolist()
        []
    """
    earlier = earlier_equal(values, trials)
    surprising: dict[int, bool] = {}
    seen: dict[int, set[str]] = {}
    found = []
    # Columns first: sums over the columns of all rows are several times as quick.
    sample = values[:: -(-len(values) // MOST_ROWS), :: -(-values.shape[1] // MOST_COLUMNS)]
    columns = np.ascontiguousarray(sample.T)
    for row in np.flatnonzero(earlier >= 0)[:MOST_PATTERNS].tolist():
        at, name = int(earlier[row]), plain_id(ids[row])
        if at not in surprising:
            surprising[at] = _expected_equal(values, at, columns) < EXPECTED
            seen[at] = {plain_id(ids[at])}
        if surprising[at] or name in seen[at]:
            found.append(row)
        seen[at].add(name)
    return np.array(found, int)


def _expected_equal(values: np.ndarray, at: int, columns: np.ndarray) -> float:
    """How many other subjects are expected to have the responses of one."""
    n, width = values.shape
    row = values[at, :: -(-width // MOST_COLUMNS)]
    is_known = ~np.isnan(row) if row.dtype.kind == "f" else row >= 0
    if not is_known.all():
        columns, row = columns[is_known], row[is_known]
    if not len(row) or (row == row[0]).all():
        return float(n)
    agree = columns == row[:, None]
    equal = agree.sum(axis=0, dtype=np.int16)  # which are sorted in linear time
    others = np.flatnonzero(equal < len(row))
    n_near = min(len(others), max(LEAST_NEAR, min(MOST_NEAR, len(others) // 10)))
    near = others[np.argsort(-equal[others], kind="stable")[:n_near]]
    log_p = np.log((agree[:, near].sum(axis=1) + 0.5) / (n_near + 1)).sum()
    return float(n * np.exp(log_p))


def plain_id(name: Any) -> str:
    """An id without what differs between uploads of the same subject.

    It is in lower case, without punctuation and the mark of a copy ("#2", "(2)", "copy"), and only
    the part after the last slash, before which models have their owners.

    Example:
        >>> plain_id("org/Model-7B"), plain_id("Anna Maier"), plain_id("anna_maier (2)")
        ('model7b', 'annamaier', 'annamaier')
        >>> plain_id("student 2")
        'student2'
    """
    text = COPY.sub("", str(name).lower().rsplit("/", 1)[-1].strip())
    return re.sub(r"[\W_]+", "", text) or str(name)

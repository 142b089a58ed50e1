"""Conversion of array-likes to a checked matrix of int8 categories or float32 fractions."""

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    LEAVE_OUT,
    InputError,
    ResponseError,
    argument_error,
    check_ids,
    shorten,
)


def row_blocks(shape: tuple[int, ...], cells: int = 4_000_000) -> Iterator[slice]:
    """Split the rows of a matrix into slices of about ``cells`` cells.

    Temporary masks and casts of a slice are small compared with 172 million responses.

    Example:
        >>> list(row_blocks((5, 10), cells=20))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, cells // max(1, shape[1]))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def aligned_empty(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """An empty array that begins at a multiple of 64 bytes.

    JAX then computes on it in place on a CPU instead of taking a copy, which for a matrix of 172
    million responses is 172 MB and a tenth of a second.

    Example:
        >>> aligned_empty((3, 5), np.int8).ctypes.data % 64
        0
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.empty(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + size].view(dtype).reshape(shape)


def observed(values: np.ndarray) -> np.ndarray:
    """Mask of the responses that are not missing."""
    return ~np.isnan(values) if values.dtype.kind == "f" else values != -1


def check_codes(codes: Any) -> tuple[int, ...] | None:
    """Declared codes as a tuple; None stays None.

    Raises:
        InputError: they are not two to 127 consecutive whole numbers of 0 or more.

    Example:
        >>> check_codes(range(1, 4))
        (1, 2, 3)
    """
    if codes is None:
        return None
    must = "two to 127 consecutive whole numbers of 0 or more, such as (1, 2, 3, 4)"
    try:
        values = tuple(int(code) for code in codes)
    except (TypeError, ValueError):
        raise argument_error("codes", must, codes) from None
    start = values[0] if values else -1
    rising = values == tuple(range(start, start + len(values)))
    if not (2 <= len(values) <= 127 and start >= 0 and rising and list(values) == list(codes)):
        raise argument_error("codes", must, values)
    return values


LEAST_ROWS, FIRST_ROWS = 10, 64
"""Rows without which no column is taken for a total, and rows in which candidates are found."""

FIRST_COLUMNS = 64
"""Columns in which a row of totals is looked for before all are compared."""


def check_items_only(X: np.ndarray, names: np.ndarray) -> None:
    """Raise if a column is no item but a total of the others: their sum, mean or percentage.

    A column is one if it equals the total in every row, of at least 10: a sum or percentage with a
    value above all of theirs, or a mean where they differ in 10 rows. Missing responses are left
    out of the total; a mean and a percentage may be rounded. The others are all other columns, or
    those whose highest value is the most frequent one (so a sum and a percentage are both found).

    Args:
        X: subjects x items of integers (-1 = missing) or floats (NaN = missing).
        names: ids of the columns.

    Raises:
        ResponseError: naming the columns.

    Example:
        >>> items = np.random.default_rng(0).integers(0, 2, (20, 4))
        >>> total = np.column_stack([items, items.sum(axis=1)])
        >>> check_items_only(total, np.array(["a", "b", "c", "d", "Total"]))
        Traceback (most recent call last):
        irtcat._common.checks.ResponseError: ...Got the column 'Total', the sum of the others...
    """
    if X.dtype.kind not in "iuf" or len(X) < LEAST_ROWS or X.shape[1] < 4:
        return
    found = _totals(X[:FIRST_ROWS])
    if found and len(X) > FIRST_ROWS:
        again = _totals(X)
        found = {column: what for column, what in found.items() if again.get(column) == what}
    if found:
        (column, what), *rest = found.items()
        got = f"the column {shorten(str(names[column]))}, {what} of the others"
        got += f" (and {shorten([str(names[j]) for j, _ in rest])})" if rest else ""
        advice = "Leave it out; when the data are read, with ignore=."
        raise ResponseError("responses to items only", got, advice=advice)


def _totals(X: np.ndarray) -> dict[int, str]:
    """Columns that are the sum, the mean or a percentage of others, with what they are."""
    numbers = X.astype(np.float64)
    if X.dtype.kind != "f":
        numbers[X < 0] = np.nan
    known = ~np.isnan(numbers)
    values = np.where(known, numbers, 0.0)
    top = np.where(known, numbers, -np.inf).max(axis=0)
    tops, counts = np.unique(top, return_counts=True)
    usual = top == tops[np.argmax(counts)]
    answered = known.sum(axis=0)
    found: dict[int, str] = {}
    for items in (np.ones(len(top), bool), usual):
        own = np.where(items, values, 0.0)
        others = own.sum(axis=1)[:, None] - own
        n_others = (known & items).sum(axis=1)[:, None] - (known & items)
        mean = np.divide(others, n_others, out=np.zeros_like(others), where=n_others > 0)
        second, first = np.sort(top[items])[-2:] if items.sum() > 1 else (np.inf, np.inf)
        is_above = top > np.where(items & (top == first), second, first)
        spread = np.ptp(np.where(known & items, numbers, mean), axis=1)
        varied = np.count_nonzero(spread > 0.02) >= LEAST_ROWS
        forms = _forms(others, mean, is_above, np.full(len(top), varied))
        for what, (expected, rounding, possible) in forms.items():
            is_same = (np.abs(values - expected) <= rounding) | ~known
            for j in np.flatnonzero(is_same.all(axis=0) & possible & (answered >= LEAST_ROWS)):
                if np.ptp(expected[known[:, j], j]) > 0:
                    found.setdefault(int(j), what)
    return found


def _forms(
    total: np.ndarray, mean: np.ndarray, is_above: Any, varied: Any
) -> dict[str, tuple[np.ndarray, float, Any]]:
    """The totals that there may be: their values, how they are rounded, and whether they can be."""
    return {
        "the sum": (total, 1e-6, is_above),
        "the percentage": (100 * mean, 0.51, is_above),
        "the mean": (mean, 0.006, varied),
    }


def check_subjects_only(X: np.ndarray, names: np.ndarray) -> None:
    """Raise if the last row is no subject but a total of the others, as at the end of a sheet.

    It is one if it equals their sum, mean or percentage in every column, and no subject can have
    all of its values: one above all of theirs, or of means one that is no whole number. Subjects
    with scores may be alike: the last one is no mean if another row equals it, too.

    Args:
        X: subjects x items of integers (-1 = missing) or floats (NaN = missing).
        names: ids of the rows.

    Raises:
        ResponseError: naming the row.

    Example:
        >>> items = np.random.default_rng(0).integers(0, 2, (20, 4))
        >>> check_subjects_only(np.vstack([items, items.mean(axis=0)]), np.array([*range(20), "M"]))
        Traceback (most recent call last):
        irtcat._common.checks.ResponseError: ...Got the row 'M', the mean of the others...
    """
    if X.dtype.kind not in "iuf" or len(X) < LEAST_ROWS or X.shape[1] < 4:
        return
    what = _total_in_last(X[:, :FIRST_COLUMNS]) and _total_in_last(X)
    if what:
        got = f"the row {shorten(str(names[-1]))}, {what} of the others"
        raise ResponseError("responses of subjects only", got, advice="Leave it out.")


def _total_in_last(X: np.ndarray) -> str:
    """Whether the last row is the sum, the mean or a percentage of the others; "" if it is none."""
    last = X[-1].astype(np.float64)
    if not (last.max() > np.fmax.reduce(X[:-1], axis=None) or (last % 1 != 0).any()):
        return ""  # of most matrices no more needs to be compared
    others = X[:-1].astype(np.float64)
    if X.dtype.kind != "f":
        others[others < 0] = np.nan
    known = ~np.isnan(others)
    n, total = known.sum(axis=0), np.where(known, others, 0.0).sum(axis=0)
    mean = total / np.maximum(n, 1)
    is_above = last.max() > np.where(known, others, -np.inf).max()
    forms = _forms(total, mean, is_above, (last % 1 != 0).any())
    for what, (expected, rounding, is_possible) in forms.items():
        if is_possible and n.all() and (np.abs(last - expected) <= rounding).all():
            is_alike = what == "the mean" and (np.abs(others - mean) <= rounding).all(axis=1).any()
            return what if np.ptp(expected) > rounding and not is_alike else ""
    return ""


def encode_responses(
    X: np.ndarray, codes: tuple[int, ...] | None = None, names: np.ndarray | None = None
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Check a numeric matrix and convert it to category codes or fractions.

    Args:
        X: subjects x items of bool, integers (-1 = missing) or floats (NaN = missing).
        codes: the codes a response can have; None infers them from X.
        names: ids of the columns, for messages.

    Returns:
        A new matrix, int8 codes 0..K-1 with -1 = missing or float32 fractions with
        NaN = missing, and the original code of each category.

    Raises:
        ResponseError: a value is infinite, negative or too large, or a code in between is absent.

    Example:
        >>> values, codes = encode_responses(np.array([[1, 3], [2, -1]]))
        >>> values.tolist(), codes
        ([[0, 2], [1, -1]], (1, 2, 3))
    """
    if codes is not None:
        return _encode_declared(X.astype(np.int8) if X.dtype.kind == "b" else X, codes)
    if X.dtype.kind == "b":
        return X.astype(np.int8), (0, 1)
    low, high, all_whole = _float_range(X) if X.dtype.kind == "f" else _integer_range(X)
    if not all_whole:
        if high > 1:
            must = "fractions within [0, 1], or of integer codes only"
            _refuse(X, lambda block: block > 1, must, LEAVE_OUT)
        return _encode_fractions(X), (0, 1)
    if high - low + 1 > 127:
        got = f"codes from {low:g} to {high:g}"
        advice = _with_codes_from(X, 127, names)
        raise ResponseError("consecutive codes of at most 127 categories", got, advice=advice)
    return _encode_codes(X, int(low), int(high), names=names)


def _with_codes_from(X: np.ndarray, low: int, names: np.ndarray | None) -> str:
    """Which columns have the codes from ``low`` on, where these are not most of the columns."""
    has = np.zeros(X.shape[1], bool)
    for rows in row_blocks(X.shape):
        has |= (X[rows] >= low).any(axis=0)
    if names is None or 2 * has.sum() > len(has):
        return ""
    return f"Codes above {low - 1} are in {shorten(names[has].tolist())} only. {LEAVE_OUT}"


def _refuse(X: np.ndarray, test: Callable[[Any], Any], must: str, advice: str = "") -> None:
    """Raise naming the first cell for which ``test`` is true, if any."""
    for rows in row_blocks(X.shape):
        bad = test(X[rows])
        if bad.any():
            row, column = np.unravel_index(int(np.argmax(bad)), bad.shape)
            row = int(row) + rows.start
            raise ResponseError(must, f"{X[row, column]:g}", row, int(column), advice)


def _all_missing() -> ResponseError:
    return ResponseError("responses, at least one of them observed", "only missing ones")


def _integer_range(X: np.ndarray) -> tuple[int, int, bool]:
    """Lowest and highest observed code of an integer matrix, and True: all are whole numbers."""
    low, high = int(X.min()), int(X.max())
    if low < -1:
        must = "integer codes of 0 or more, with -1 for missing"
        advice = "Name a code of missing responses with missing=."
        _refuse(X, lambda block: block < -1, must, advice)
    if high == -1:
        raise _all_missing()
    if low == -1:
        blocks = (X[rows] for rows in row_blocks(X.shape))
        low = min(int(np.min(block, initial=high, where=block >= 0)) for block in blocks)
    return low, high, True


def _float_range(X: np.ndarray) -> tuple[float, float, bool]:
    """Lowest and highest observed value, and whether all values are whole numbers."""
    low, high, all_whole = np.inf, -np.inf, True
    for rows in row_blocks(X.shape):
        block = X[rows]
        low = min(low, float(np.fmin.reduce(block, axis=None, initial=np.inf)))
        high = max(high, float(np.fmax.reduce(block, axis=None, initial=-np.inf)))
        all_whole = all_whole and not bool(((block != np.rint(block)) & ~np.isnan(block)).any())
    if not (np.isfinite(low) and np.isfinite(high)):
        _refuse(X, np.isinf, "finite responses")
        raise _all_missing()
    if low < 0:
        advice = "Mark a missing response by NaN (in a file: an empty cell), or name its code with"
        _refuse(X, lambda block: block < 0, "responses of 0 or more", f"{advice} missing=.")
    return low, high, all_whole


def _encode_fractions(X: np.ndarray) -> np.ndarray:
    """Copy to float32 with a single zero and NaN, so that equal rows have equal bytes."""
    values = aligned_empty(X.shape, np.float32)
    values[...] = X
    for rows in row_blocks(X.shape):
        values[rows] += 0.0
        values[rows][np.isnan(values[rows])] = np.nan
    return values


def _encode_declared(X: np.ndarray, codes: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """Copy responses in declared codes; refuse any other value."""
    must = f"among the codes {codes[0]} to {codes[-1]}"
    filler = codes[0]

    def bad(block: np.ndarray) -> Any:
        missing = np.isnan(block) if X.dtype.kind == "f" else block == -1
        block = np.where(missing, filler, block)
        return (block != np.rint(block)) | (block < codes[0]) | (block > codes[-1])

    _refuse(X, bad, must)
    if not any(observed(X[rows]).any() for rows in row_blocks(X.shape)):
        raise _all_missing()
    return _encode_codes(X, codes[0], codes[-1], declared=True)


def _encode_codes(
    X: np.ndarray, low: int, high: int, declared: bool = False, names: np.ndarray | None = None
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Copy integer responses to int8 categories counted from the lowest code."""
    if high <= 1:
        low, high = 0, 1  # right/wrong, even if everyone is right
    elif low == high:
        raise ResponseError("at least two different codes", f"only the code {low}")
    values = aligned_empty(X.shape, np.int8)
    absent = set(range(low, high + 1)) if high > 1 and not declared else set()
    for rows in row_blocks(X.shape):
        block = X[rows]
        missing = np.isnan(block) if X.dtype.kind == "f" else block == -1
        shifted = np.where(missing, low, block) - block.dtype.type(low)
        values[rows] = shifted.astype(np.int8)
        absent -= {code for code in absent if ((shifted == code - low) & ~missing).any()}
        values[rows][missing] = -1
    if absent:
        present = [str(code) for code in range(low, high + 1) if code not in absent]
        got = f"the codes {', '.join(present)} (no {shorten(sorted(absent))})"
        raise ResponseError(
            "consecutive integer codes",
            got,
            advice="Recode them as consecutive numbers, declare all with codes=, or name a code "
            "of missing responses with missing=. " + _with_codes_from(X, min(absent), names),
        )
    return values, tuple(range(low, high + 1))


def as_matrix(X: Any) -> tuple[np.ndarray, Any, Any]:
    """Return a two-dimensional array and, for a data frame, its row and column names.

    The array may share memory with X and must not be written to.

    Raises:
        InputError: X does not have two dimensions, or is empty.

    Example:
        >>> as_matrix([[1, 0], [0, 1]])[0].shape
        (2, 2)
    """
    names: tuple[Any, Any] = (None, None)
    if isinstance(X, pd.DataFrame):
        names, matrix = (X.index, X.columns), _frame_array(X)
    elif isinstance(X, np.ma.MaskedArray):
        matrix = np.ma.filled(X.astype(np.float64), np.nan)
    else:
        matrix = _plain_array(X)
    if matrix.ndim != 2:
        shape = f"{matrix.ndim} dimensions of shape {matrix.shape}"
        got = shape if matrix.ndim else type(X).__name__
        advice = " For numbered trials use Responses.from_trials." if matrix.ndim == 3 else ""
        raise InputError(f"The `X` argument must be a matrix, subjects x items. Got {got}.{advice}")
    if 0 in matrix.shape:
        got = f"{matrix.shape[0]} subjects x {matrix.shape[1]} items"
        raise InputError(f"The `X` argument must hold a subject and an item. Got {got}.")
    return matrix, *names


def _plain_array(X: Any) -> np.ndarray:
    """Convert an array-like to an array; lists that contain text become object arrays."""
    try:
        matrix = np.asarray(X)
        # numpy would convert numbers next to text to text, and the error would name a wrong cell
        text_in_list = matrix.dtype.kind in "US" and not isinstance(X, np.ndarray)
        return np.asarray(X, dtype=object) if text_in_list else matrix
    except (ValueError, TypeError):
        lengths = [len(row) if hasattr(row, "__len__") else 0 for row in X]
        row = next((i for i, n in enumerate(lengths) if n != lengths[0]), 0)
        got = f"{lengths[row]} in row {row + 1} but {lengths[0]} in row 1"
        raise InputError(f"The `X` argument must be rows of equal length. Got {got}.") from None


def _frame_array(frame: pd.DataFrame) -> np.ndarray:
    """Convert a frame to an array, without a copy if all columns have one dtype."""
    kinds = {dtype.kind if isinstance(dtype, np.dtype) else "?" for dtype in frame.dtypes}
    if len(kinds) == 1 and kinds <= set("biuf"):
        return frame.to_numpy()
    if kinds and kinds <= set("biu"):
        return frame.to_numpy(dtype=np.int64)
    if all(pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes):
        return frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return frame.to_numpy(dtype=object)


def as_numbers(matrix: np.ndarray) -> np.ndarray:
    """Return a numeric matrix unchanged; convert objects cell by cell.

    Raises:
        ResponseError: a cell is not a number, a truth value or missing.

    Example:
        >>> as_numbers(np.array([[1, None], [True, 0]], dtype=object)).tolist()
        [[1.0, nan], [1.0, 0.0]]
    """
    if matrix.dtype.kind in "biuf":
        return matrix
    if matrix.dtype.kind not in "OUS":
        raise ResponseError("real numbers", f"the type {matrix.dtype}")
    numbers = np.empty(matrix.shape, dtype=np.float64)
    for index, value in np.ndenumerate(matrix):
        if value is None or value is pd.NA or value is pd.NaT:
            numbers[index] = np.nan
        elif isinstance(value, (Real, np.bool_)):
            numbers[index] = float(value)
        else:
            must = "numbers, true/false or missing values"
            got = shorten(str(value)) if isinstance(value, str) else f"a {type(value).__name__}"
            raise ResponseError(must, got, *index)
    return numbers


def choose_ids(name: str, ids: Any, labels: Any, n: int, kind: str) -> np.ndarray:
    """Ids as text: ``ids``, else the frame's labels, else s1, s2, … or i1, i2, …."""
    if ids is None:
        ids = labels
    if ids is None:
        ids = [f"{kind[0]}{position}" for position in range(1, n + 1)]
    return check_ids(name, ids, n, kind)


def patterns(x: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The observed columns and the rows, for each pattern of missing values."""
    is_observed = ~np.isnan(x)
    if len(x) and is_observed.all():
        return [(is_observed[0], np.arange(len(x)))]
    distinct, of_row = np.unique(is_observed, axis=0, return_inverse=True)
    order = of_row.ravel()
    return [(pattern, np.flatnonzero(order == number)) for number, pattern in enumerate(distinct)]

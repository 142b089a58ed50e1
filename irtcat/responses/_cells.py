"""Cells of a file: parse text as numbers, and store blocks of numbers compactly."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import product
from numbers import Real
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from irtcat._common.numbers import number_in

EXPECTED = "0/1, true/false, a fraction, an integer code or nothing"
Report = Callable[[int, int, str], NoReturn]  # raises for (row, column, what was expected)


def _any_case(word: str) -> list[str]:
    """Every spelling of a word in upper and lower case."""
    return ["".join(letters) for letters in product(*((c.lower(), c.upper()) for c in word))]


MISSING = ["", *_any_case("na"), *_any_case("nan"), *_any_case("null")]


def is_missing_text(text: str) -> bool:
    """Whether a cell is a missing value: empty, NA, NaN or null in any case.

    Example:
        >>> [is_missing_text(text) for text in ("", " na ", "Null", "0")]
        [True, True, True, False]
    """
    return text.strip(" ").lower() in ("", "na", "nan", "null")


def cell_number(cell: Any) -> float | None:
    """Return the number in a cell, NaN if it is missing, None if it is not a number.

    Example:
        >>> [cell_number(cell) for cell in ("1", " TRUE ", "0.25", "na", "yes", "1_0", "\uff11")]
        [1.0, 1.0, 0.25, nan, None, None, None]
    """
    if cell is None or cell is pd.NA:
        return float("nan")
    if isinstance(cell, str):
        if is_missing_text(cell):
            return float("nan")
        text = cell.strip(" ").lower()
        return float(text == "true") if text in ("true", "false") else number_in(cell)
    try:
        return float(cell) if isinstance(cell, (Real, Decimal, np.bool_)) else None
    except (TypeError, ValueError, OverflowError):
        return None


def block_numbers(
    block: pd.DataFrame,
    report: Report,
    number: Callable[[Any], float | None] = cell_number,
    expected: str = EXPECTED,
    is_plain: bool = True,
) -> np.ndarray:
    """Convert a block of parsed columns to float64, with NaN = missing.

    Args:
        block: columns of numbers, truth values or (where pandas could not read a number) text.
        report: called with the row and column of the first cell that is not a number; raises.
        number: the number of a cell, NaN if it is missing, None if it has none.
        expected: what a cell must be, for ``report``.
        is_plain: whether ``number`` leaves numbers as they are.
    """
    if not is_plain:
        block = block.astype(object)
    is_number = {dtype: pd.api.types.is_numeric_dtype(dtype) for dtype in block.dtypes.unique()}
    plain = np.array([is_number[dtype] for dtype in block.dtypes])
    if plain.all():
        return block.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = np.empty(block.shape, dtype=np.float64)
    numbers[:, plain] = block.loc[:, plain].to_numpy(dtype=np.float64, na_value=np.nan)
    others = np.flatnonzero(~plain)
    cells = block.iloc[:, others].to_numpy(dtype=object).ravel()
    try:
        codes, texts = pd.factorize(cells)
    except TypeError:  # unhashable cells, such as lists
        codes, texts = np.arange(len(cells)), cells
    values = [number(text) for text in texts]
    invalid = [position for position, number in enumerate(values) if number is None]
    if invalid:
        row, column = divmod(int(np.argmax(np.isin(codes, invalid))), len(others))
        report(row, int(others[column]), expected)
    missing_last = np.array([*values, np.nan], dtype=np.float64)  # code -1 is a missing cell
    numbers[:, others] = missing_last[codes].reshape(len(block), len(others))
    return numbers


def compact(numbers: np.ndarray) -> np.ndarray:
    """Store numbers as int8 if they are small codes (-1 = missing), else as floats.

    Example:
        >>> compact(np.array([1.0, np.nan, 3.0]))
        array([ 1, -1,  3], dtype=int8)
    """
    missing = np.isnan(numbers)
    codes = np.where(missing, 0.0, numbers)
    if ((codes >= 0) & (codes <= 126) & (codes == np.rint(codes))).all():
        return np.where(missing, -1, codes).astype(np.int8)
    return numbers


def same_kind(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Compacted arrays, all as floats if one of them is."""
    if any(block.dtype.kind == "f" for block in arrays):
        return [
            block
            if block.dtype.kind == "f"
            else np.where(block == -1, np.nan, block.astype(np.float64))
            for block in arrays
        ]
    return arrays


def stack(blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Concatenate compacted blocks of rows; the result is int8 if all of them are."""
    arrays = same_kind(list(blocks))
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]

"""Cells: numbers and words in text (labels, codes of missing responses), and compact blocks."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import product
from numbers import Real
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, is_number, shorten
from irtcat._common.numbers import number_in
from irtcat.responses._frames import is_absent
from irtcat.responses._matrix import check_codes

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


def is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN or NA, or a text that stands for a missing value."""
    if isinstance(cell, str):
        return is_missing_text(cell)
    return is_absent(cell)


def are_numeric(cells: pd.DataFrame) -> np.ndarray:
    """Which columns are of numbers or truth values."""
    is_number = {dtype: pd.api.types.is_numeric_dtype(dtype) for dtype in cells.dtypes.unique()}
    return np.array([is_number[dtype] for dtype in cells.dtypes], bool)


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


def stack(blocks: list[np.ndarray], axis: int = 0) -> np.ndarray:
    """Concatenate compacted blocks; the result is int8 if all of them are."""
    if len(blocks) == 1:
        return blocks[0]
    if any(block.dtype.kind == "f" for block in blocks):
        blocks = [
            block if block.dtype.kind == "f" else np.where(block == -1, np.nan, block.astype(float))
            for block in blocks
        ]
    return np.concatenate(blocks, axis=axis)


PAIRS = (
    "no, yes",
    "n, y",
    "false, true",
    "wrong|incorrect, right|correct",
    "fail|failed, pass|passed",
    "unsolved, solved",
    "unresolved, resolved",
    "✗|✘, ✓|✔",
    "nein, ja",
    "falsch, richtig",
    "non, oui",
    "faux, vrai",
    "no, sí|si",
)
"""Words of wrong and right answers. Not T and F, which may as well be the answers themselves."""

_NEUTRAL = "neutral|neither agree nor disagree|neither|undecided"
SCALES = (
    f"strongly disagree, disagree, {_NEUTRAL}, agree, strongly agree",
    "strongly disagree, disagree, agree, strongly agree",
    f"strongly disagree, disagree, somewhat disagree|slightly disagree, {_NEUTRAL}, "
    "somewhat agree|slightly agree, agree, strongly agree",
    "strongly disagree, disagree, somewhat disagree|slightly disagree, "
    "somewhat agree|slightly agree, agree, strongly agree",
    f"disagree, {_NEUTRAL}, agree",
    "never, rarely|seldom, sometimes|occasionally, often|usually|frequently, always",
    "never, rarely|seldom, sometimes, often",
    "never, sometimes, often, always",
    "never, sometimes, always",
    "not at all, several days, more than half the days, nearly every day",
    f"very dissatisfied, dissatisfied, {_NEUTRAL}|neither satisfied nor dissatisfied, satisfied, "
    "very satisfied",
    "very dissatisfied, dissatisfied, satisfied, very satisfied",
    "very unlikely, unlikely, neutral|neither likely nor unlikely, likely, very likely",
    "very unlikely, unlikely, likely, very likely",
    "very poor, poor, fair|average, good, very good",
    "poor, fair, good, very good, excellent",
    "poor, fair, good, excellent",
    "not at all, slightly, moderately, very, extremely",
    "not at all, a little|a little bit, somewhat, quite a bit, very much",
    "none, mild, moderate, severe",
    "low, medium, high",
)
"""Labels from the lowest to the highest, with other words for one after a bar."""

CERTAIN = 100
"""Responses from which on all labels of a scale are taken to occur, where another scale has one
label more (half as many where it has two): of fewer, a middle that nobody chose is possible."""

NO_VALUE = frozenset((".", "-", "--", "n/a", "#n/a", "<na>"))
"""Cells that are no response in any table; a word such as "none" may be one."""

NUMBERED = re.compile(r"(\d{1,2})\s*(?:[-–—=:.)]|(?=\())\s*\D.*")
COMMA = re.compile(r"[-+]?\d+,\d+")
PERCENT = re.compile(r"(\d+(?:[.,]\d+)?) ?%")

WORDS_ADVICE = (
    "If the cells are labels, list them from the lowest to the highest with codes=; if they are "
    "choices, name the right ones with key=."
)


def folded(text: str) -> str:
    """A text as it is compared: small letters and single blanks.

    Example:
        >>> folded("  Strongly   Agree ")
        'strongly agree'
    """
    return " ".join(text.casefold().replace("\u2019", "'").split())


def _rows(tables: Iterable[str]) -> list[list[set[str]]]:
    return [[set(label.split("|")) for label in row.split(", ")] for row in tables]


@dataclass(frozen=True)
class Coding:
    """How cells become numbers.

    Attributes:
        words: numbers of texts, as `folded` gives them.
        missing: texts that are no response.
        missing_numbers: numbers that are none.
        has_commas: whether a comma is the decimal sign.
        only: whether other texts, and numbers that are of no word, are refused.
        said: what was guessed; empty if nothing.
        codes: all codes that a response can have; None for those that occur.
    """

    words: Mapping[str, float] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    missing_numbers: frozenset[float] = frozenset()
    has_commas: bool = False
    only: bool = False
    said: str = ""
    codes: tuple[int, ...] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether numbers stay as they are."""
        return not (self.words or self.missing_numbers)

    @property
    def expected(self) -> str:
        """What a cell must be, for messages."""
        return f"one of {shorten(list(self.words))}, or nothing" if self.only else EXPECTED

    @property
    def remarks(self) -> list[str]:
        """How the cells were read, if that is not plain."""
        return [f"cells were read as {self.said}"] if self.said else []

    def number(self, cell: Any) -> float | None:
        """The number of a cell, NaN if it is missing, None if it has none."""
        if isinstance(cell, str):
            text = folded(cell)
            if text in self.missing:
                return float("nan")
            if text in self.words:
                return self.words[text]
            if self.has_commas and COMMA.fullmatch(text):
                cell = text.replace(",", ".")
        number = cell_number(cell)
        if number is None or number != number:
            return number
        if number in self.missing_numbers:
            return float("nan")
        as_word = f"{number:.15g}"
        if as_word in self.words:
            return self.words[as_word]
        recodes = any(number_in(text) is not None for text in self.words)
        is_code = not recodes and number in self.words.values()
        return number if is_code or not self.only else None

    def unknown(self, cells: pd.DataFrame) -> list[str]:
        """The texts that have no number, the most frequent first."""
        return [text for text, _ in _texts(cells).most_common() if self.number(text) is None]

    def advice(self, cells: pd.DataFrame) -> str:
        """What to do about words without numbers, which it names."""
        return f"The words are {shorten(self.unknown(cells))}. {WORDS_ADVICE}"

    def numbers(self, block: pd.DataFrame, report: Report) -> np.ndarray:
        """The cells of parsed columns as float64, with NaN = missing.

        Args:
            block: columns of numbers, truth values or (where pandas could not read a number) text.
            report: called with the row and column of the first cell that is not a number; raises.
        """
        if not self.is_plain:
            block = block.astype(object)
        plain = are_numeric(block)
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
        values = [self.number(text) for text in texts]
        invalid = [position for position, number in enumerate(values) if number is None]
        if invalid:
            row, column = divmod(int(np.argmax(np.isin(codes, invalid))), len(others))
            report(row, int(others[column]), self.expected)
        missing_last = np.array([*values, np.nan], dtype=np.float64)  # code -1 is a missing cell
        numbers[:, others] = missing_last[codes].reshape(len(block), len(others))
        return numbers


def declared_codes(codes: Any) -> tuple[dict[str, float], tuple[int, ...] | None]:
    """What the ``codes`` argument says: the numbers of words, and all codes of a response.

    Args:
        codes: None; all codes; labels from the lowest to the highest; or numbers of labels.

    Example:
        >>> declared_codes(["never", "often"])
        ({'never': 0.0, 'often': 1.0}, (0, 1))
        >>> declared_codes({"wrong": 0, "half": 0.5, "right": 1})
        ({'wrong': 0.0, 'half': 0.5, 'right': 1.0}, None)
        >>> declared_codes(range(1, 4))
        ({}, (1, 2, 3))
    """
    if codes is None:
        return {}, None
    must = (
        "all codes, such as (1, 2, 3), labels from the lowest to the highest, such as "
        "('never', 'often'), or numbers of labels, such as {'no': 0, 'yes': 1}"
    )
    if isinstance(codes, (str, bytes)) or not isinstance(codes, Iterable):
        raise argument_error("codes", must, codes)
    if not isinstance(codes, Mapping):
        values = list(codes)
        if not any(isinstance(value, str) for value in values):
            return {}, check_codes(codes if isinstance(codes, Sequence) else values)
        codes = {value: position for position, value in enumerate(values)}
        if len(codes) != len(values):
            raise argument_error("codes", "different labels", values)
    if len(codes) < 2 or not all(is_number(number) for number in codes.values()):
        raise argument_error("codes", must, str(dict(codes)))
    words = {_text(label): float(number) for label, number in codes.items()}
    if len(words) < len(codes):
        raise argument_error("codes", "labels that differ in more than case", list(codes))
    numbers = sorted(set(words.values()))
    is_whole = all(number == round(number) and number >= 0 for number in numbers)
    if not is_whole:
        if not 0 <= numbers[0] <= numbers[-1] <= 1:
            raise argument_error("codes", "whole numbers, or fractions from 0 to 1", numbers)
        return words, None
    return words, check_codes(range(int(numbers[0]), int(numbers[-1]) + 1))


def _text(label: Any) -> str:
    """A label as the text of a cell."""
    return f"{label:.15g}" if is_number(label) else folded(str(label))


def missing_texts(missing: Any) -> tuple[str, ...]:
    """What the ``missing`` argument says: texts, or one text with commas between them.

    Example:
        >>> missing_texts("-99, ., NA"), missing_texts([-99, "refused"]), missing_texts(9)
        (('-99', '.', 'na'), ('-99', 'refused'), ('9',))
    """
    if missing is None:
        return ()
    if isinstance(missing, str):
        missing = missing.split(",")
    elif is_number(missing):
        missing = [missing]
    if not isinstance(missing, Iterable) or isinstance(missing, (bytes, Mapping)):
        must = "texts or numbers of cells without a response, such as '-99,.'"
        raise argument_error("missing", must, missing)
    return tuple(_text(value) for value in missing)


def coding_of(
    cells: pd.DataFrame,
    words: Mapping[str, float],
    codes: tuple[int, ...] | None,
    missing: Sequence[str],
) -> Coding:
    """How the cells of a table become numbers: as declared, else as far as there is no doubt.

    Args:
        cells: the responses.
        words: numbers of words, if they are declared.
        codes: all codes of a response, if they are declared.
        missing: texts of cells without a response.
    """
    coding = Coding(
        words=words,
        missing=frozenset(missing),
        missing_numbers=_numbers_in(missing),
        only=bool(words),
        codes=codes,
    )
    texts = _texts(cells)
    unknown = {text: n for text, n in texts.items() if coding.number(text) is None}
    if not unknown:
        return coding
    marks = sorted(NO_VALUE & unknown.keys())
    said = [f"{shorten(marks)} = missing"] if marks else []
    coding = _replaced(coding, missing=coding.missing | set(marks), said=said)
    for mark in marks:
        del unknown[mark]
    if not unknown or words:
        return coding
    others = _numbers(cells, texts, coding)
    if all(COMMA.fullmatch(text) for text in unknown):
        if others <= {0.0, 1.0} and _are_shares(float(t.replace(",", ".")) for t in unknown):
            return _replaced(coding, has_commas=True, said=[*said, "0,5 = 0.5"])
        return coding
    shares = _percentages(unknown)
    if shares and not others:
        return _replaced(coding, words=shares, said=[*said, "50% = 0.5"])
    guessed = _guessed(unknown, others, codes)
    if guessed is None:
        return coding
    said += _pairs(guessed)
    highest = int(max(guessed.values(), default=1))
    all_codes = codes or (tuple(range(highest + 1)) if highest > 1 and not others else None)
    return _replaced(coding, words=guessed, codes=all_codes, said=said)


def _numbers_in(texts: Iterable[str]) -> frozenset[float]:
    return frozenset(number for number in map(number_in, texts) if number is not None)


def _pairs(guessed: Mapping[str, float]) -> list[str]:
    """Words and their numbers as text, in the order of the numbers."""
    pairs = sorted(guessed.items(), key=lambda pair: (pair[1], pair[0]))
    return [f"{shorten(text).strip(chr(39))} = {number:g}" for text, number in pairs]


def _are_shares(numbers: Iterable[float]) -> bool:
    return all(0 <= number <= 1 for number in numbers)


def _percentages(texts: Iterable[str]) -> dict[str, float]:
    """The shares of texts such as 50%; none unless all are percentages of at most 100."""
    found = {text: PERCENT.fullmatch(text) for text in texts}
    shares = {t: float(p[1].replace(",", ".")) / 100 for t, p in found.items() if p}
    return shares if len(shares) == len(found) and _are_shares(shares.values()) else {}


def scale_of(labels: set[str]) -> dict[str, float] | None:
    """The numbers of labels that are all those of one scale, or of right and wrong answers.

    Example:
        >>> scale_of({"yes", "no"}), scale_of({"paris", "rome"})
        ({'no': 0.0, 'yes': 1.0}, None)
    """
    guessed = _guessed(dict.fromkeys(labels, CERTAIN), set(), None)
    return guessed and dict(sorted(guessed.items(), key=lambda pair: pair[1]))


def _replaced(coding: Coding, said: list[str], **changes: Any) -> Coding:
    return replace(coding, said=", ".join(said), **changes)


def _texts(cells: pd.DataFrame) -> Counter[str]:
    """The texts of cells with their numbers of cells."""
    counts: Counter[str] = Counter()
    for cell, n in _distinct(cells):
        if isinstance(cell, str):
            counts[folded(cell)] += n
    return counts


def _distinct(cells: pd.DataFrame) -> list[tuple[Any, int]]:
    """The different cells of columns that are not of numbers, with how often each occurs."""
    is_number = are_numeric(cells)
    if is_number.all():
        return []
    values = cells.loc[:, ~is_number].to_numpy(dtype=object).ravel()
    try:
        codes, unique = pd.factorize(values)
    except TypeError:  # cells that cannot be hashed, such as lists
        return [(cell, 1) for cell in values.tolist()]
    return list(zip(unique.tolist(), np.bincount(codes[codes >= 0]).tolist(), strict=False))


def _numbers(cells: pd.DataFrame, texts: Iterable[str], coding: Coding) -> set[float]:
    """The numbers that occur beside words."""
    numbers = {coding.number(text) for text in texts}
    numbers.update(cell_number(cell) for cell, _ in _distinct(cells) if not isinstance(cell, str))
    plain = cells.select_dtypes(["number", "bool"])
    if plain.shape[1]:
        numbers.update(pd.unique(plain.to_numpy(float, na_value=np.nan).ravel()).tolist())
    numbers -= coding.missing_numbers
    return {number for number in numbers if number is not None and number == number}


def _guessed(
    unknown: Mapping[str, int], others: set[float], codes: tuple[int, ...] | None
) -> dict[str, float] | None:
    """The numbers of words if there is no doubt of them; else None."""
    numbered = {text: NUMBERED.fullmatch(text) for text in unknown}
    if all(numbered.values()):
        values = {text: float(found[1]) for text, found in numbered.items() if found}
        return values if len(set(values.values())) == len(values) else None
    if others <= {0.0, 1.0} and (codes is None or codes == (0, 1)):
        for low, high in _rows(PAIRS):
            if unknown.keys() <= low | high:
                return {text: float(text in high) for text in unknown}
    row = None if others else _scale_row(unknown, codes)
    if row is None:
        return None
    first = 0 if codes is None else codes[0]
    return {
        text: float(first + next(k for k, label in enumerate(row) if text in label))
        for text in unknown
    }


def _scale_row(unknown: Mapping[str, int], codes: tuple[int, ...] | None) -> Any:
    """The only scale of these words; None if there are several, or a longer one is as likely."""
    words = unknown.keys()
    rows = [row for row in _rows(SCALES) if words <= set().union(*row)]
    fitting = [row for row in rows if _fits(row, words, codes)]
    if len(fitting) != 1:
        return None
    (row,) = fitting
    further = min((n for other in rows if (n := len(other) - len(row)) > 0), default=0)
    is_doubtful = codes is None and further * sum(unknown.values()) < CERTAIN * (further > 0)
    return None if is_doubtful else row


def _fits(row: Any, words: Set[str], codes: tuple[int, ...] | None) -> bool:
    """Whether words are at most one of each label of a scale, and all of them or as many codes."""
    if any(len(label & words) > 1 for label in row):
        return False
    return all(label & words for label in row) if codes is None else len(codes) == len(row)

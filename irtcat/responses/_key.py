"""Answer keys: choices as right, wrong or partly right; the choices themselves are kept."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, is_number, shorten
from irtcat._common.numbers import number_in
from irtcat.responses._cells import NO_VALUE, cell_number, folded, is_missing_text
from irtcat.responses._frames import is_absent

KEY_ROWS = frozenset(("key", "answer key", "answer_key", "correct answer", "correct answers"))
"""Ids of a row that has the right answers in place of a subject's."""

KEY_NAMES = ("key", "answer", "correct_answer", "correct", "right_answer", "solution", "target")
CREDIT_NAMES = ("credit", "points", "score", "weight")
"""Names of the columns of a table of keys, beside that of the items."""

LETTER = re.compile(r"[(\[]?([a-z])(?:[)\]]|[.:](?=\s|$)|\s[-–](?=\s)).*")
"""A choice that begins with its letter: "b) 12 km", "(b)", "b. 12 km"."""

NUMBER = re.compile(r"(?:q|question|item)?[\s._-]*0*(\d+)(?:[\s.):_-].*)?")
SEVERAL = re.compile(r"\s*\|\s*")
LETTERS = re.compile(r"[a-z](?:\s*/\s*[a-z])+|[a-z](?: or [a-z])+")
"""Several letters of which each is right. With commas they may be one answer, of a form in which
several are ticked."""

MUCH_ANSWERED = 10
"""Answers of an item from which on it is said that nobody chose its key."""


@dataclass(frozen=True)
class Key:
    """The right answers of items.

    Attributes:
        credits: for each item what its answers count, by their `folded` text; others count 0.
        order: credits of items by their position, if the key has no ids; else empty.
    """

    credits: Mapping[str, Mapping[str, float]]
    order: tuple[Mapping[str, float], ...] = ()

    @property
    def texts(self) -> set[str]:
        """All answers that count."""
        return {text for credit in [*self.credits.values(), *self.order] for text in credit}

    def of_items(self, items: Sequence[str], name: str) -> list[Mapping[str, float]]:
        """What the answers of these items count.

        Items are found by their ids, else in any case, else by the number that theirs begin with.

        Raises:
            InputError: naming items without a key.
        """
        if self.order:
            if len(self.order) != len(items):
                got = f"{len(self.order)} for {len(items)} items of {name}"
                raise InputError(
                    f"The `key` argument must have an answer for each item. Got {got}."
                )
            return list(self.order)
        spellings: tuple[Callable[[str], str], ...] = (str, folded, _number)
        for spelling in spellings:
            counts = Counter(map(spelling, self.credits))
            table = {spelling(item): credit for item, credit in self.credits.items()}
            texts = [spelling(item) for item in items]
            is_clear = len(set(texts)) == len(set(items))
            if is_clear and all(counts[text] == 1 for text in texts):
                return [table[text] for text in texts]
        counts = Counter(map(folded, self.credits))
        lacking = [item for item in items if counts[folded(item)] != 1]
        got = f"none for {shorten(lacking)} of {name}; it has {shorten(list(self.credits))}"
        advice = "Leave other columns out with ignore=, or keep them with subject_columns=."
        raise InputError(f"The `key` argument must have each item. Got {got}. {advice}")


def _number(item: str) -> str:
    """The number that the name of an item begins with; its text if it has none."""
    found = NUMBER.fullmatch(folded(item))
    return found[1] if found else f"text {folded(item)}"


def key_of(key: Any) -> Key | None:
    """The ``key`` argument.

    Args:
        key: None; the right answer of each item by its id, several in a list, or what each answer
            counts; a Series of these; the right answers in the order of the items; or a data frame
            with columns item, key and perhaps credit, or of one row with a column for each item.

    Example:
        >>> dict(key_of({"q1": "B", "q2": ["A", "C"], "q3": {"A": 1, "B": 0.5}}).credits)["q3"]
        {'a': 1.0, 'b': 0.5}
    """
    if key is None or isinstance(key, Key):
        return key
    if isinstance(key, pd.DataFrame):
        return key_of_rows([str(name) for name in key.columns], key.astype(object).to_numpy())
    if isinstance(key, pd.Series):
        key = key.to_dict()
    if isinstance(key, Mapping) and key:
        return Key({str(item): _credits(answer) for item, answer in key.items()})
    if isinstance(key, (list, tuple, np.ndarray)) and len(key):
        return Key({}, tuple(_credits(answer) for answer in key))
    must = "a file, a mapping from items to their right answers, or the answers in their order"
    raise argument_error("key", must, type(key).__name__)


def _credits(answer: Any) -> dict[str, float]:
    """What the answers of an item count."""
    if isinstance(answer, Mapping):
        credits = {choice_text(text): credit for text, credit in answer.items()}
    elif isinstance(answer, (list, tuple, set, np.ndarray)):
        credits = {choice_text(text): 1.0 for text in answer}
    else:
        text = choice_text(answer)
        parts = SEVERAL.split(text)
        if len(parts) == 1 and LETTERS.fullmatch(text):
            parts = re.findall(r"\b[a-z]\b", text)
        credits = dict.fromkeys(parts, 1.0)
    valid = all(is_number(credit) and credit >= 0 for credit in credits.values())
    if not credits or "" in credits or not valid or max(credits.values()) <= 0:
        must = "right answers, or what answers count: numbers of 0 or more, one of them above 0"
        raise argument_error("key", must, str(answer))
    return {text: float(credit) for text, credit in credits.items()}


def key_of_rows(header: Sequence[str], rows: Iterable[Sequence[Any]], name: str = "key") -> Key:
    """A key from a table: columns item, key and perhaps credit, or one row of right answers.

    Raises:
        InputError: it is neither, or an answer of it is empty.
    """
    names = [folded(text).replace(" ", "_") for text in header]
    table = [list(row) for row in rows]
    items = [j for j, text in enumerate(names) if text in ("item", "question", "item_id", "id")]
    keys = [j for j, text in enumerate(names) if text in KEY_NAMES]
    if items and keys:
        amounts = [j for j, text in enumerate(names) if text in CREDIT_NAMES]
        credits: dict[str, dict[str, float]] = {}
        for row in table:
            item, answers = row[items[0]], _credits(row[keys[0]])
            if amounts:
                answers = dict.fromkeys(answers, _credit(row[amounts[0]], item, name))
            credits.setdefault(choice_text(item, fold=False), {}).update(answers)
        return Key(credits)
    if len(table) == 1:
        cells = {
            text: cell
            for j, (text, cell) in enumerate(zip(header, table[0], strict=True))
            if choice_text(cell) and not (j == 0 and folded(choice_text(cell)) in KEY_ROWS)
        }
        if cells:
            return Key({text: _credits(cell) for text, cell in cells.items()})
    must = "columns item and key (and perhaps credit), or one row with a column for each item"
    got = f"{len(table)} rows of the columns {shorten(list(header))}"
    raise InputError(f"{name}: expected {must}. Got {got}.")


def _credit(cell: Any, item: Any, name: str) -> float:
    number = cell_number(cell)
    if number is None or not number >= 0:
        got = f"{shorten(str(cell))} for the item {shorten(str(item))}"
        raise InputError(f"{name}: expected a credit of 0 or more. Got {got}.")
    return number


def choice_text(cell: Any, fold: bool = True) -> str:
    """A cell as the text of a choice; "" if it is missing.

    Example:
        >>> choice_text(" B "), choice_text(3.0), choice_text(None), choice_text("n/a")
        ('b', '3', '', '')
    """
    if isinstance(cell, str):
        text = folded(cell)
        if is_missing_text(text) or text in NO_VALUE:
            return ""
        return text if fold else " ".join(cell.split())
    if is_absent(cell):
        return ""
    if isinstance(cell, (bool, np.bool_)):
        return str(bool(cell)).lower()
    return f"{cell:.15g}" if is_number(cell) else folded(str(cell))


class Choices(NamedTuple):
    """Choices that a key scored.

    Attributes:
        codes: subjects x items: the number of each choice among the labels, -1 where missing.
        labels: all choices.
        keys: the right answers of each item.
    """

    codes: np.ndarray
    labels: tuple[str, ...]
    keys: list[str]


class ScoredChoices:
    """The choices of a table, read in blocks of rows and scored by a key."""

    def __init__(self, key: Key, items: Sequence[str], name: str, missing: Iterable[str]) -> None:
        self._items, self._name = list(items), name
        self._credits = key.of_items(items, name)
        self._missing = frozenset(missing)
        self._labels: dict[str, str] = {}
        self._codes: dict[str, int] = {}
        self._blocks: list[np.ndarray] = []
        self._right = np.zeros(len(items), int)
        self._answered = np.zeros(len(items), int)

    def numbers(self, cells: pd.DataFrame) -> np.ndarray:
        """What the choices of a block of rows count, NaN where missing; the columns are the items.

        Each row has all the items.
        """
        columns = [
            self.column(cells.iloc[:, j].to_numpy(dtype=object), np.full(len(cells), j))
            for j in range(cells.shape[1])
        ]
        self._blocks.append(np.stack([codes for _, codes in columns], axis=1))
        return np.stack([numbers for numbers, _ in columns], axis=1)

    def column(self, cells: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What choices count and their codes, by the number of the item of each."""
        numbers, codes = np.full(len(cells), np.nan), np.full(len(cells), -1, np.int32)
        known: dict[tuple[int, str], tuple[float, int]] = {}
        for row, (cell, item) in enumerate(zip(cells, items.tolist(), strict=True)):
            text = choice_text(cell)
            if not text or text in self._missing:
                continue
            if (item, text) not in known:
                label = self._labels.setdefault(text, choice_text(cell, fold=False))
                code = self._codes.setdefault(label, len(self._codes))
                known[item, text] = self._credit(item, text), code
            numbers[row], codes[row] = known[item, text]
        answered = ~np.isnan(numbers)
        n_items = len(self._items)
        self._answered += np.bincount(items[answered], minlength=n_items)
        self._right += np.bincount(
            items[answered & (np.nan_to_num(numbers) > 0)], minlength=n_items
        )
        return numbers, codes

    def _credit(self, item: int, text: str) -> float:
        """What a choice counts; a letter is also that of a choice that begins with it."""
        credits = self._credits[item]
        if text in credits:
            return credits[text]
        letter = LETTER.fullmatch(text)
        if letter and letter[1] in credits:
            return credits[letter[1]]
        for other, credit in credits.items():
            begins = LETTER.fullmatch(other)
            if begins and begins[1] == text:
                return credit
            if (number := number_in(text)) is not None and number_in(other) == number:
                return credit
        return 0.0

    def check(self) -> str:
        """Raise if no choice is right; return what is to be said of single items."""
        if self._answered.any() and not self._right.any():
            right = [next(iter(credits)) for credits in self._credits[:3]]
            got = f"the choices {shorten(list(self._codes))} and the key {shorten(right)}"
            raise InputError(
                f"{self._name}: expected choices written as in the key. Got {got}. No choice is "
                "right: correct the key."
            )
        commas = np.array([any("," in text or ";" in text for text in c) for c in self._credits])
        never = (self._right == 0) & (self._answered >= np.where(commas, 1, MUCH_ANSWERED))
        names = [item for item, is_never in zip(self._items, never, strict=True) if is_never]
        how = " (of several right answers each is written as in A|C)" if commas[never].any() else ""
        return f"nobody chose the key of {shorten(names)}{how}" if names else ""

    @property
    def codes(self) -> tuple[int, ...] | None:
        """All codes that a response can have; None for right/wrong and fractions."""
        amounts = {credit for credits in self._credits for credit in credits.values()}
        if max(amounts) <= 1:
            return None
        if any(amount != round(amount) for amount in amounts):
            must = "whole numbers, or fractions of at most 1"
            raise argument_error("key", f"given with credits that are {must}", sorted(amounts))
        return tuple(range(int(max(amounts)) + 1))

    @property
    def keys(self) -> list[str]:
        """The right answers of each item, those that count most first."""
        return [
            " | ".join(
                self._labels.get(text, text)
                for text, credit in sorted(credits.items(), key=lambda pair: -pair[1])
                if credit > 0
            )
            for credits in self._credits
        ]

    def choices(self, codes: np.ndarray) -> Choices:
        """The choices of the subjects, from their numbers among the labels."""
        return Choices(codes, tuple(self._codes), self.keys)

    def matrix(self) -> np.ndarray:
        """Subjects x items: the number of each choice among the labels, -1 where missing."""
        return np.concatenate(self._blocks)

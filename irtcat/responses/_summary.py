"""Summary of a response matrix before a fit: counts, shares, repeated subjects and warnings."""

import hashlib
import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import shorten

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


BAND_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares of right answers between which items are counted."""


RANGE_COLUMNS = ("lowest", "highest")
"""Columns of the items with the range of scores that were converted to 0 to 1."""


@dataclass(frozen=True)
class Flag:
    """A possible problem in the responses.

    Attributes:
        name: "constant items", "subjects all right", "subjects all wrong", "repeated rows",
            "items without a response", "subjects without a response" or "cells with a rare code"
            (see `rare_cells`).
        ids: the items, subjects or cells concerned.
    """

    name: str
    ids: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of items, subjects or cells concerned."""
        return len(self.ids)

    def __str__(self) -> str:
        words = self.name.split(" ", 2)
        if self.count == 1:
            words = [word.removesuffix("s") for word in words[:2]] + words[2:]
        return f"{self.count} {' '.join(words)}: {shorten(list(self.ids))}"


@dataclass(frozen=True)
class ResponsesSummary:
    """Counts, share missing, mean and flags of a `Responses`.

    Attributes:
        n_subjects: rows.
        n_items: columns.
        n_categories: K.
        codes: the original codes.
        kind: "right/wrong", "fractions" or "K categories".
        n_responses: observed responses.
        n_missing: missing responses.
        share_missing: 0 to 1.
        mean: of the observed responses in original codes; NaN without any.
        flags: possible problems; empty if there are none.
        trials: the number of all trials, and the fewest and most of one response; empty for
            responses of a single trial each.
        is_numbered: whether the score of each trial is known by its number.
        origin: what the responses were made from (see `Responses`).
        range: the lowest and the highest score, where scores of one other range than 0 to 1 were
            converted; empty otherwise.
    """

    n_subjects: int
    n_items: int
    n_categories: int
    codes: tuple[int, ...]
    kind: str
    n_responses: int
    n_missing: int
    share_missing: float
    mean: float
    flags: tuple[Flag, ...]
    trials: tuple[int, ...] = ()
    is_numbered: bool = False
    origin: str = ""
    range: tuple[float, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Return one row per quantity or flag: its value or count, and its ids."""
        names = ("n_subjects", "n_items", "n_categories", "n_responses", "n_missing")
        rows = [(name, float(getattr(self, name)), "") for name in (*names, "share_missing")]
        rows.append(("mean", self.mean, ""))
        rows += [("n_trials", float(self.trials[0]), "")] if self.trials else []
        rows += [(flag.name, float(flag.count), ", ".join(flag.ids)) for flag in self.flags]
        return pd.DataFrame(rows, columns=["quantity", "value", "ids"]).set_index("quantity")

    def __str__(self) -> str:
        missing = f"{100 * self.share_missing:.1f} % missing"
        is_share = self.range and self.n_categories == 2  # categories have a mean of codes
        share = f" (share of the range {show_range(self.range)})" if is_share else ""
        lines = [
            f"{self.n_subjects} subjects x {self.n_items} items, {missing}, read as {self.kind}",
            f"responses      {self.n_responses}",
            f"mean response  {self.mean:.3f}{share}",
        ]
        if self.trials:
            total, fewest, most = self.trials
            each = f"{most}" if fewest == most else f"{fewest} to {most}"
            known = "by number" if self.is_numbered else "counts only"
            lines.append(f"trials         {total} ({each} a response, {known})")
        lines += [f"source         {self.origin}"] if self.origin else []
        return "\n".join([*lines, *map(str, self.flags)])

    def _repr_html_(self) -> str:
        """The lines of the text."""
        return f"<pre>{html.escape(str(self))}</pre>"


def score_range(items: pd.DataFrame) -> tuple[float, ...]:
    """The range of the items' scores, if it is one and not 0 to 1; else empty.

    Example:
        >>> score_range(pd.DataFrame({"lowest": [1.0, 1.0], "highest": [10.0, 10.0]}))
        (1.0, 10.0)
    """
    if not set(RANGE_COLUMNS) <= set(items.columns):
        return ()
    ends = items[list(RANGE_COLUMNS)].drop_duplicates()
    found = tuple(float(end) for end in ends.iloc[0]) if len(ends) == 1 else ()
    return () if found == (0.0, 1.0) else found


def show_range(ends: Iterable[float]) -> str:
    """A range as text.

    Example:
        >>> show_range((1.0, 10.0))
        '1 to 10'
    """
    return " to ".join(f"{end:g}" for end in ends)


def find_flags(
    values: np.ndarray, subjects: np.ndarray, items: np.ndarray, codes: tuple[int, ...]
) -> Iterator[Flag]:
    """Yield the flags that apply; ``codes`` are the original codes of the categories."""
    top = 1 if values.dtype.kind == "f" else len(codes) - 1
    item_low, item_high = _extremes(values, axis=0)
    low, high = _extremes(values, axis=1)
    table = [
        # Of one subject all are constant.
        ("constant items", items, (item_low == item_high) & (len(values) > 1)),
        ("subjects all right", subjects, low == top),
        ("subjects all wrong", subjects, high == 0),
        ("repeated rows", subjects, earlier_equal(values) >= 0),
        ("items without a response", items, item_low > item_high),
        ("subjects without a response", subjects, low > high),
    ]
    for name, ids, hit in table:
        if hit.any():
            yield Flag(name, tuple(ids[hit].tolist()))
    if cells := rare_cells(values, subjects, items, codes):
        yield Flag("cells with a rare code", tuple(cells))


RARE_CELLS, RARE_SHARE = 3, 0.02
"""A code in more cells, or in a greater share of the responses, is not rare."""


def rare_cells(
    values: np.ndarray, subjects: np.ndarray, items: np.ndarray, codes: tuple[int, ...]
) -> list[str]:
    """The cells with a code that at most three cells have, and at most 2 % of the responses.

    Such a code may be a slip, as a single 2 among 0 and 1. Right/wrong responses have none.

    Example:
        >>> values = np.zeros((20, 5), np.int8)
        >>> values[::2], values[3, 1] = 1, 2
        >>> ids = np.array([f"s{n}" for n in range(20)]), np.array(list("abcde"))
        >>> rare_cells(values, *ids, (0, 1, 2))
        ['code 2 in row 4 (subject s3), column 2 (item b)']
    """
    if len(codes) < 3 or values.dtype.kind == "f":
        return []
    counts = np.array([np.count_nonzero(values == k) for k in range(len(codes))])
    rare = (counts > 0) & (counts <= min(RARE_CELLS, RARE_SHARE * counts.sum()))
    return [
        f"code {codes[k]} in row {row + 1} (subject {subjects[row]}), "
        f"column {column + 1} (item {items[column]})"
        for k in np.flatnonzero(rare)
        for row, column in np.argwhere(values == k)
    ]


def _extremes(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest observed value along an axis; lowest > highest if all are missing."""
    if values.dtype.kind == "f":
        low = np.fmin.reduce(values, axis=axis, initial=np.inf)
        return low, np.fmax.reduce(values, axis=axis, initial=-np.inf)
    # As an unsigned byte a missing -1 is 255, above every code, so the minimum needs no mask.
    return values.view(np.uint8).min(axis=axis).astype(np.int16), values.max(axis=axis)


def share_bands(shares: np.ndarray, chosen: np.ndarray | None = None) -> pd.DataFrame:
    """Count items by their share of right answers, the hardest first; empty bands are left out.

    Args:
        shares: share of right answers of each item, 0 to 1; items with NaN are left out.
        chosen: mask of items to count as well.

    Example:
        >>> share_bands(np.array([0.1, 0.5, 0.95, 1.0]), np.array([True, False, False, True]))
                    items  chosen
        right
        0-20 %          1       1
        40-60 %         1       0
        80-100 %        2       1
    """
    labels = [f"{100 * low:.0f}-{100 * high:.0f} %" for low, high in pairwise(BAND_EDGES)]
    band = pd.cut(shares, BAND_EDGES, labels=labels, include_lowest=True)
    counts = {"items": pd.Series(band).value_counts(sort=False)}
    if chosen is not None:
        counts["chosen"] = pd.Series(band[chosen]).value_counts(sort=False)
    table = pd.DataFrame(counts)
    table.index = pd.Index(labels, dtype=object, name="right")
    return table[table["items"] > 0]

"""Summary of a response matrix before a fit: counts, shares and warnings."""

import hashlib
import html
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from irtcat._checks import shorten

KEY_COLUMNS = 64
"""Columns by which rows are first compared: 6000 x 28,632 take .02 s, digests of all .3 s."""

__all__ = ["Flag", "ResponsesSummary", "find_flags", "find_repeats"]


@dataclass(frozen=True)
class Flag:
    """A possible problem in the responses.

    Attributes:
        name: "constant items", "subjects all right", "subjects all wrong", "repeated rows",
            "items without a response" or "subjects without a response".
        ids: the items or subjects concerned.
    """

    name: str
    ids: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of items or subjects concerned."""
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
        origin: what the responses were made from (see `Responses`).
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
    origin: str = ""

    def to_frame(self) -> pd.DataFrame:
        """Return one row per quantity or flag: its value or count, and its ids."""
        names = ("n_subjects", "n_items", "n_categories", "n_responses", "n_missing")
        rows = [(name, float(getattr(self, name)), "") for name in (*names, "share_missing")]
        rows.append(("mean", self.mean, ""))
        rows += [(flag.name, float(flag.count), ", ".join(flag.ids)) for flag in self.flags]
        return pd.DataFrame(rows, columns=["quantity", "value", "ids"]).set_index("quantity")

    def __str__(self) -> str:
        missing = f"{100 * self.share_missing:.1f} % missing"
        lines = [
            f"{self.n_subjects} subjects x {self.n_items} items, {missing}, read as {self.kind}",
            f"responses      {self.n_responses}",
            f"mean response  {self.mean:.3f}",
        ]
        lines += [f"source         {self.origin}"] if self.origin else []
        return "\n".join([*lines, *map(str, self.flags)])

    def _repr_html_(self) -> str:
        """The lines of the text."""
        return f"<pre>{html.escape(str(self))}</pre>"


def find_flags(
    values: np.ndarray, subjects: np.ndarray, items: np.ndarray, top: int
) -> Iterator[Flag]:
    """Yield the flags that apply; ``top`` is the highest possible response."""
    item_low, item_high = _extremes(values, axis=0)
    low, high = _extremes(values, axis=1)
    table = [
        (
            "constant items",
            items,
            (item_low == item_high) & (len(values) > 1),
        ),  # of one subject all are
        ("subjects all right", subjects, low == top),
        ("subjects all wrong", subjects, high == 0),
        ("repeated rows", subjects, find_repeats(values)),
        ("items without a response", items, item_low > item_high),
        ("subjects without a response", subjects, low > high),
    ]
    for name, ids, hit in table:
        if hit.any():
            yield Flag(name, tuple(ids[hit].tolist()))


def _extremes(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest observed value along an axis; lowest > highest if all are missing."""
    if values.dtype.kind == "f":
        low = np.fmin.reduce(values, axis=axis, initial=np.inf)
        return low, np.fmax.reduce(values, axis=axis, initial=-np.inf)
    # As an unsigned byte a missing -1 is 255, above every code, so the minimum needs no mask.
    return values.view(np.uint8).min(axis=axis).astype(np.int16), values.max(axis=axis)


def find_repeats(values: np.ndarray, trials: np.ndarray | None = None) -> np.ndarray:
    """Mask of the rows that equal an earlier row; rows are compared by a 128-bit digest.

    Only rows that equal another one in `KEY_COLUMNS` columns are digested: the rows of a long test
    that differ do so there.

    Args:
        values: the responses.
        trials: numbers of trials, if any, which must be equal too.
    """
    repeated = np.zeros(len(values), dtype=bool)
    keys = np.ascontiguousarray(values[:, :: -(-values.shape[1] // KEY_COLUMNS)])
    keys = keys.view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1])))[:, 0]
    _, group, size = np.unique(keys, return_inverse=True, return_counts=True)
    digests: set[bytes] = set()
    for position in np.flatnonzero(size[group] > 1):
        content = values[position].tobytes()
        content += b"" if trials is None else trials[position].tobytes()
        digest = hashlib.blake2b(content, digest_size=16).digest()
        repeated[position] = digest in digests
        digests.add(digest)
    return repeated

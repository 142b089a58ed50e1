"""Texts of items: what a reader recognises where an id is a hash."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from irtcat.report.blocks import shorter

if TYPE_CHECKING:
    from irtcat.bank import ItemBank
    from irtcat.responses import Responses

if TYPE_CHECKING:
    from irtcat.bank import ItemBank

TEXTS = re.compile(
    r"^(text|question|prompt|input|stem|content|problem|query|sentence|target)", re.I
)
HASH = re.compile(r"(?<![0-9a-z])(?=[0-9a-f]*\d)[0-9a-f]{8,}(?![0-9a-z])", re.I)
"""At least eight hexadecimal digits as a word, one of them a decimal digit."""

MOST_LETTERS = 60
"""Letters of an item's name in a sentence."""


def are_hashes(ids: Iterable[object]) -> bool:
    """Whether most ids hold a hash, which says nothing to a reader.

    Example:
        >>> are_hashes(["arc:3f2a90bc11de", "arc:00ab31cd97"]), are_hashes(["arc:12", "decade"])
        (True, False)
    """
    found = [HASH.search(str(name)) is not None for name in ids]
    return bool(found) and 2 * sum(found) > len(found)


def texts_of(items: pd.DataFrame) -> pd.Series | None:
    """The texts of items by id: the first column of texts with a value; None without one."""
    for key in items.columns:
        column = items[key].astype(object).where(items[key].notna(), "").astype(str)
        if TEXTS.match(str(key)) and (column != "").any():
            return pd.Series(column.to_numpy(), index=items.index.astype(str))
    return None


def item_names(sources: "Iterable[ItemBank | Responses]") -> dict[str, str]:
    """The texts of the items whose ids are hashes, by id, from banks and responses."""
    names: dict[str, str] = {}
    for source in sources:
        texts = texts_of(source.items)
        if texts is None or not are_hashes(source.item_ids):
            continue
        for name, text in zip(map(str, source.item_ids), texts, strict=True):
            if text:
                names.setdefault(name, text)
    return names


def listed(ids: Sequence[object], names: Mapping[str, str], most: int = 3) -> str:
    """The first items in words: their texts where they are known, else their ids.

    Example:
        >>> listed(["0f3a91bc", "q2", "q3", "q4"], {"0f3a91bc": "Why is the sky blue?"})
        '“Why is the sky blue?”, q2, q3 and 1 more'
    """
    words = []
    for name in map(str, ids[:most]):
        text = shorter(names.get(name, name), MOST_LETTERS)
        words.append(f"“{text}”" if name in names else text)
    more = f" and {len(ids) - most:,} more" if len(ids) > most else ""
    return ", ".join(words) + more

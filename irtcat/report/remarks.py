"""What a reader should check: notes by topic, each said once, the serious ones first."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

TOPICS = ("Runs", "Scores", "Models", "Items", "Data")
"""Topics, in the order in which groups of equal weight stand on the page."""


@dataclass(frozen=True)
class Note:
    """A sentence about the quality of the data or of a result.

    Attributes:
        text: the sentence.
        topic: one of `TOPICS`.
        serious: whether a number on the page may be wrong because of it.
    """

    text: str
    topic: str
    serious: bool = False


@dataclass(frozen=True)
class Listed:
    """A note on the page.

    Attributes:
        text: the sentence.
        serious: see `Note`.
        sources: anchor and title of each section that has it.
    """

    text: str
    serious: bool
    sources: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RemarkGroup:
    """The notes of one topic."""

    topic: str
    notes: tuple[Listed, ...]


def grouped(notes: Sequence[tuple[Note, tuple[str, str]]]) -> list[RemarkGroup]:
    """Notes by topic: equal ones once with all their sources, and the serious ones first.

    Args:
        notes: each with the anchor and title of its section.

    Example:
        >>> a, b = Note("Two items are odd.", "Items"), Note("Not converged.", "Items", True)
        >>> [group] = grouped([(a, ("s1", "One")), (b, ("s1", "One")), (a, ("s2", "Two"))])
        >>> [(note.text, len(note.sources)) for note in group.notes]
        [('Not converged.', 1), ('Two items are odd.', 2)]
    """
    sources: dict[Note, list[tuple[str, str]]] = {}
    for note, source in notes:
        known = sources.setdefault(note, [])
        if source not in known:
            known.append(source)
    groups = []
    for topic in TOPICS:
        found = [note for note in sources if note.topic == topic]
        found.sort(key=lambda note: not note.serious)
        if found:
            listed = (
                Listed(text=note.text, serious=note.serious, sources=tuple(sources[note]))
                for note in found
            )
            groups.append(RemarkGroup(topic=topic, notes=tuple(listed)))
    return sorted(groups, key=lambda group: not group.notes[0].serious)


def split_flags(column: pd.Series) -> list[list[str]]:
    """The flags of every row, which are separated by semicolons.

    Example:
        >>> split_flags(pd.Series(["constant; weak prior", "", None]))
        [['constant', 'weak prior'], [], []]
    """
    texts = column.fillna("").astype(str)
    return [[flag.strip() for flag in text.split(";") if flag.strip()] for text in texts]


def common_flags(rows: Sequence[Sequence[str]]) -> dict[str, int]:
    """Flags of more than half of several rows, and their counts.

    They distinguish nothing: they are said once, and not marked in every row.

    Example:
        >>> common_flags([["constant"], ["constant", "negative slope"], []])
        {'constant': 2}
    """
    counts = Counter(flag for flags in rows for flag in dict.fromkeys(flags))
    return {flag: n for flag, n in counts.items() if len(rows) > 1 and 2 * n > len(rows)}


def without(column: pd.Series, flags: Sequence[str]) -> pd.Series:
    """A column of flags without some of them."""
    rows = split_flags(column)
    texts = ["; ".join(flag for flag in row if flag not in flags) for row in rows]
    return pd.Series(texts, index=column.index, dtype=object)

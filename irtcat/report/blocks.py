"""The elements of a page: sections of blocks (tables, lines, points) as JSON values, and notes.

Also the texts of items, which a reader recognises where an id is a hash.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from irtcat.bank import ItemBank
    from irtcat.responses import Responses

Block = dict[str, Any]
DIGITS, DECIMALS = 7, 6
"""More than the page shows: it rounds, and numbers that are rounded twice may be off."""
PAGE = 25
MAX_DISTINCT = 0.5
"""Texts are stored as numbered levels if at most this share of them is distinct."""

LABELS = {
    "n_calibrated": "Calibrated models",
    "n_bank": "Items of the bank",
    "full_cost": "Cost of all items",
    "lz_star": "Answers' fit (lz*)",
    "rank_lower": "Best rank",
    "rank_upper": "Worst rank",
    "theta": "Ability θ",
    "se": "SE",
    "lower": "From",
    "upper": "To",
    "a": "Discrimination a",
    "b": "Difficulty b",
    "c": "Guessing c",
    "d": "Upper limit d",
    **{f"se_{name}": f"SE of {name}" for name in "abcd"},
    "n": "Responses",
    "n_responses": "Responses",
    "n_items": "Items",
    "proportion_correct": "Share right",
    "p_holm": "p (Holm)",
    "mdiff": "Difficulty (MDIFF)",
    "mdisc": "Discrimination (MDISC)",
    "phi": "Precision φ",
    "kendall": "Kendall's tau-b",
    "mae": "MAE (points)",
    "rmse": "RMSE (points)",
    "headroom_se": "SE of headroom",
    "p_better": "P(better)",
    "p_rerun": "P(same verdict in a rerun)",
    "run_se": "SE due to runs",
    "n_categories": "Categories",
    "p_value": "p",
    "p_wrong_key": "P(wrong key)",
    "p_unrelated": "P(unrelated)",
    **{
        f"{key}_p{percent:02d}": f"{text}, " + ("median" if percent == 50 else f"{percent} %")
        for key, text in (("b", "Difficulty"), ("a", "Discrimination"))
        for percent in (5, 25, 50, 75, 95)
    },
}


TEXTS = re.compile(
    r"^(text|question|prompt|input|stem|content|problem|query|sentence|target)", re.I
)
HASH = re.compile(r"(?<![0-9a-z])(?=[0-9a-f]*\d)[0-9a-f]{8,}(?![0-9a-z])", re.I)
"""At least eight hexadecimal digits as a word, one of them a decimal digit."""

MOST_LISTED, MOST_LETTERS = 3, 60
"""Names that a sentence lists, and letters of each of them."""

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


@dataclass(frozen=True, eq=False)
class Section:
    """A section of the page.

    Attributes:
        title: heading.
        intro: sentences under it.
        facts: key figures, by name.
        blocks: tables and figures, drawn by the script.
        notes: what to check.
    """

    title: str
    intro: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    blocks: Sequence[Block] = ()
    notes: tuple[Note, ...] = ()


def words(name: str) -> str:
    """The label of a column.

    Example:
        >>> words("reliability_marginal"), words("theta_2"), words("se_b1")
        ('Reliability marginal', 'Ability θ2', 'SE of b1')
    """
    if name.startswith("se_") and name not in LABELS:
        of = name.removeprefix("se_")
        return f"SE of θ{of}" if of.isdigit() else f"SE of {words(of)}"
    numbered = re.fullmatch(r"(theta|[a-z]{1,2})_?(\d+)", name)  # b1, ak2, a_1, theta_2
    if numbered:
        return {"theta": "Ability θ"}.get(numbered[1], numbered[1]) + numbered[2]
    text = LABELS.get(name) or name.replace("_", " ").strip()
    return text[:1].upper() + text[1:]


def numbers(values: Any) -> list[Any]:
    """Shorten numbers to seven significant digits or six decimals, whichever is finer.

    Whole numbers are unchanged; numbers that are not finite become None.

    Example:
        >>> numbers([0.123456789, 12.3456789, 1200.0, float("nan")])
        [0.1234568, 12.345679, 1200, None]
    """
    return [_short(value) for value in np.asarray(values, float).tolist()]


def _short(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < 1e15:
        return int(value)
    short = round(value, DECIMALS) if 10 <= abs(value) < 1000 else float(f"{value:.{DIGITS}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def column(
    key: str,
    values: Any,
    label: str | None = None,
    *,
    minor: bool = False,
    long: bool = False,
    percent: bool = False,
    main: bool = False,
    plain: bool = False,
    hidden: bool = False,
    printed: bool = False,
) -> Block:
    """A column of a table.

    Args:
        key: its name, by which other blocks refer to it.
        values: numbers or texts.
        label: its heading.
        minor: shown in the row's details first where the table is too wide.
        long: long texts, shown in the row's details; truncated if the page is too large.
        percent: shares, shown as percentages.
        main: one of the columns that a phone shows beside the row's name.
        plain: short texts that are numbers to the reader: on one line, to the right.
        hidden: shown only in the row's details.
        printed: shown on paper too where it is hidden, as paper has no details.
    """
    series = pd.Series(values)
    block: Block = {"k": key, "label": words(key) if label is None else label}
    marks = {"minor": minor, "main": main, "plain": plain, "hidden": hidden, "printed": printed}
    block |= {name: 1 for name, mark in marks.items() if mark}
    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        block |= {"kind": "num", "v": numbers(series.to_numpy(float, na_value=np.nan))}
        if percent:
            block["percent"] = 1
        return block
    texts = ["" if value is None or value != value else str(value) for value in series.tolist()]
    block["kind"] = "flag" if key == "flag" else "text"
    if long:
        return {**block, "long": 1, "v": texts}
    levels = list(dict.fromkeys(texts))
    if len(levels) > MAX_DISTINCT * len(texts):
        return {**block, "v": texts}
    index = {text: i for i, text in enumerate(levels)}
    return {**block, "levels": levels, "v": [index[text] for text in texts]}


def bar(lower: str, middle: str, upper: str, label: str, mark: str | None = None) -> Block:
    """A column that draws intervals from three other columns, and a mark at a fourth."""
    return {
        "k": f"bar-{middle}",
        "label": label,
        "kind": "bar",
        "of": [lower, middle, upper],
        "mark": mark,
    }


def table(
    caption: str,
    columns: Sequence[Block],
    *,
    sort: tuple[str, int] | None = None,
    filters: Iterable[str] = (),
    ranges: Iterable[str] = (),
    page: int = PAGE,
    **more: Any,
) -> Block:
    """A table that the reader can sort, search and page.

    Args:
        caption: its title.
        columns: blocks of `column` and `bar`; the first names the rows.
        sort: the column it is initially sorted by, and 1 (ascending) or -1 (descending).
        filters: text columns with few levels, which get a filter.
        ranges: numeric columns, which get a range filter.
        page: rows per page.
        more: ``curves`` (of items), ``why`` (of the steps of a session), ``name``, ``texts`` (the
            column of long texts that names the rows, where the ids are hashes).
    """
    n = max((len(c["v"]) for c in columns if "v" in c), default=0)
    return {
        "t": "table",
        "caption": caption,
        "cols": list(columns),
        "n": n,
        "sort": sort,
        "filters": list(filters),
        "ranges": list(ranges),
        "page": page,
        **more,
    }


def table_of(
    frame: pd.DataFrame,
    caption: str,
    *,
    minor: Iterable[str] = (),
    long: Iterable[str] = (),
    percent: Iterable[str] = (),
    main: Iterable[str] = (),
    **more: Any,
) -> Block:
    """A table of all columns of a data frame that are not empty; see `column`."""
    marks = {"minor": set(minor), "long": set(long), "percent": set(percent), "main": set(main)}
    columns = [
        column(str(key), frame[key], None, **{mark: str(key) in of for mark, of in marks.items()})
        for key in frame.columns
        if not is_blank(frame[key])
    ]
    return table(caption, columns, **more)


def is_blank(values: pd.Series) -> bool:
    """Whether a column has no values."""
    return bool(values.isna().all() or (values.astype(str) == "").all())


def line(name: str, x: Any, y: Any, low: Any = None, high: Any = None, **more: Any) -> Block:
    """A line of a figure, with an optional band."""
    block: Block = {"name": name, "x": numbers(x), "y": numbers(y), **more}
    if low is not None:
        block |= {"low": numbers(low), "high": numbers(high)}
    return block


def lines(title: str, x: str, y: str, series: Sequence[Block], describe: str, **more: Any) -> Block:
    """A figure of lines.

    Args:
        title: its title.
        x: label of the horizontal axis.
        y: label of the vertical axis.
        series: blocks of `line`.
        describe: a description of the figure in a sentence or two, for screen readers too.
        more: ``logx``, ``logy``, ``marks`` (dots at the points), ``shade`` (two abilities),
            ``ylim``, ``whole`` (whole numbers along the horizontal axis).
    """
    return {
        "t": "lines",
        "title": title,
        "x": x,
        "y": y,
        "series": list(series),
        "describe": describe,
        **more,
    }


def points(
    title: str, x: str, y: str, at: tuple[Any, Any], names: Any, describe: str, **more: Any
) -> Block:
    """A figure of points, with optional vertical intervals (``low``, ``high``)."""
    for name in ("low", "high"):
        if name in more:
            more[name] = numbers(more[name])
    return {
        "t": "points",
        "title": title,
        "x": x,
        "y": y,
        "px": numbers(at[0]),
        "py": numbers(at[1]),
        "names": [str(name) for name in names],
        "describe": describe,
        **more,
    }


def row(*blocks: Block) -> Block:
    """Blocks side by side, if the screen is wide enough."""
    return {"t": "row", "blocks": list(blocks)}


def choice(label: str, options: Mapping[str, Sequence[Block]]) -> Block:
    """Alternative blocks, of which the reader selects one option."""
    entries = [{"label": name, "blocks": list(blocks)} for name, blocks in options.items()]
    return {"t": "choice", "label": label, "options": entries}


def shorter(text: str, length: int) -> str:
    """Truncate a text to ``length`` characters.

    Example:
        >>> shorter("a long question", 7)
        'a long…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


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


def distinct_texts(rows: Sequence[Sequence[str]]) -> list[str]:
    """The flags of every row as a text, without those of most rows."""
    common = common_flags(rows)
    return ["; ".join(flag for flag in row if flag not in common) for row in rows]


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


def listed(ids: Sequence[object], names: Mapping[str, str], letters: int = MOST_LETTERS) -> str:
    """The first items in words: their texts where they are known, else their ids.

    Example:
        >>> listed(["0f3a91bc", "q2", "q3", "q4"], {"0f3a91bc": "Why is the sky blue?"})
        '“Why is the sky blue?”, q2, q3 and 1 more'
    """
    shown = []
    for name in map(str, ids[:MOST_LISTED]):
        text = shorter(names.get(name, name), letters)
        shown.append(f"“{text}”" if name in names else text)
    more = f" and {len(ids) - MOST_LISTED:,} more" if len(ids) > MOST_LISTED else ""
    return ", ".join(shown) + more

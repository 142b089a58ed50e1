"""The elements of a page: sections of blocks (tables, lines, points) as JSON values."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from irtcat.report.remarks import Note

Block = dict[str, Any]
DIGITS, DECIMALS = 7, 6
"""More than the page shows: it rounds, and numbers that are rounded twice may be off."""
PAGE = 25
MAX_DISTINCT = 0.5
"""Texts are stored as numbered levels if at most this share of them is distinct."""

LABELS = {
    "subject": "Subject",
    "item": "Item",
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
    "se_a": "SE of a",
    "se_b": "SE of b",
    "se_c": "SE of c",
    "se_d": "SE of d",
    "n": "Responses",
    "n_responses": "Responses",
    "n_items": "Items",
    "proportion_correct": "Share right",
    "percentile": "Percentile",
    "flag": "Flag",
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
        f"{key}_p{percent:02d}": f"{text}, {quantile}"
        for key, text in (("b", "Difficulty"), ("a", "Discrimination"))
        for percent, quantile in (
            (5, "5 %"),
            (25, "25 %"),
            (50, "median"),
            (75, "75 %"),
            (95, "95 %"),
        )
    },
}


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
    minor, long, percent, main = set(minor), set(long), set(percent), set(main)
    columns = []
    for key in frame.columns:
        series = frame[key]
        if series.isna().all() or (series.astype(str) == "").all():
            continue
        name = str(key)
        columns.append(
            column(
                name,
                series,
                minor=name in minor,
                long=name in long,
                percent=name in percent,
                main=name in main,
            )
        )
    return table(caption, columns, **more)


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

"""Output of results: tables for people, JSON and CSV for programs, CSV files."""

import math
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

if TYPE_CHECKING:
    import pandas as pd

ROWS_ON_SCREEN = 60
"""Rows of a table that are printed on a terminal, without another number."""
SUMMARY_ROWS = 10
"""Rows of a table whose other rows are in a file."""
NARROWEST = 80
"""Tables are fitted to the terminal, but not to fewer columns than this."""
SHORTEST = 18
"""Texts are shortened to this many letters before a column is left out."""
NUMBER = re.compile(r"(beyond )?-?[\d.]*( %)?|inf")
"""Cells of columns that are justified on the right."""
FLAGS = "flag"
"""The column with what is uncertain about a row; it is always shown."""
GAP = 2
"""Spaces between columns."""


class Table(NamedTuple):
    """A table to print.

    Attributes:
        frame: its rows; the most important columns first, as the last ones are left out on a
            narrow terminal.
        title: a line above it.
        decimals: of fractional numbers.
        rows: number of rows to print; by default all, but 60 on a terminal.
        percent: columns that are printed in percent.
    """

    frame: Any
    title: str = ""
    decimals: int = 3
    rows: int | None = None
    percent: tuple[str, ...] = ()


def write_csv(frame: "pd.DataFrame", path: Path) -> None:
    """Write a table (see `irtcat._files.csv.write_csv`)."""
    from irtcat._files.csv import write_csv

    write_csv(frame, path)


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """One mapping per row, with the values of a named index."""
    return _with_index(frame).to_dict("records")  # type: ignore[return-value]


def _with_index(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The table with its named index as columns."""
    return frame.reset_index() if frame.index.names[0] is not None else frame


def to_terminal() -> bool:
    """Whether stdout is a terminal, not a file or a pipe."""
    return sys.stdout.isatty()


def styled(text: str, stream: TextIO, **style: Any) -> str:
    """The text in a style of `typer.style` on a terminal; unchanged elsewhere or with NO_COLOR."""
    import typer

    if not style or not _has_style(stream):
        return text
    return typer.style(text, **style)


def _has_style(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user wants colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def say(text: object = "", end: str = "\n", **style: Any) -> None:
    """Print lines, with control characters escaped, as ids may contain some."""
    from irtcat._common.checks import visible

    print(styled(visible(str(text), keep="\n"), sys.stdout, **style), end=end)


def emit_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document; missing and non-finite values are null."""
    from irtcat._files.json import json_text

    # json.dumps does not escape this control character.
    print(json_text(document).replace("\x7f", "\\u007f"))


def emit_csv(frame: "pd.DataFrame") -> None:
    """Print a table as CSV."""
    from irtcat._files.csv import csv_bytes

    print(csv_bytes(frame).decode("utf-8"), end="")


def with_texts(table: "pd.DataFrame", items: "pd.DataFrame", at: int = 2) -> "pd.DataFrame":
    """On a terminal, a column with the texts of items whose ids are hashes.

    Args:
        table: a row for each item, by id.
        items: metadata of the items.
        at: position of the column.
    """
    from irtcat.report.names import MOST_LETTERS, are_hashes, texts_of

    texts = texts_of(items) if to_terminal() and are_hashes(table.index) else None
    if texts is None:
        return table
    lines = [" ".join(text.split()) for text in texts.reindex(table.index.astype(str)).fillna("")]
    table = table.drop(columns="text", errors="ignore")
    column = [_shortened(line, MOST_LETTERS) for line in lines]
    table.insert(min(at, table.shape[1]), "text", column)
    return table


def figures(values: Mapping[str, Any]) -> "pd.DataFrame":
    """A table of figures by name, one a line, with what each means."""
    import pandas as pd

    from irtcat.cli._columns import column_of

    names = [name for name, value in values.items() if cell(value, 3, name)]
    whole = {name: values[name] for name in names}
    whole |= {n: int(v) for n, v in whole.items() if isinstance(v, float) and v == int(v) != 0}
    columns = {
        "value": [cell(whole[name], 3, name) for name in names],
        "meaning": [column_of(name).meaning for name in names],
    }
    index = pd.Index([column_of(name).heading for name in names], dtype=object, name="figure")
    return pd.DataFrame(columns, index=index)


def show(table: Table) -> list[str]:
    """Print a table, fitted to the terminal; return the lines of its legend.

    Columns without values are omitted. On a terminal that is too narrow texts are shortened, then
    the last columns are left out, but not the flags. The first column, which names the row, stays
    whole: it is what other commands take. In a pipe or a file nothing is cut, and tabs separate the
    columns.
    """
    terminal = to_terminal()
    full = _with_index(table.frame)
    rows = table.rows or (ROWS_ON_SCREEN if terminal else len(full))
    shown = full.head(rows)
    columns = _with_values(table, shown)
    counts = Counter(filter(None, full[FLAGS])) if FLAGS in full else Counter[str]()
    if len(full) > 1 and list(counts.values()) == [len(full)]:
        del columns[FLAGS]  # the count says it
    flags = columns.get(FLAGS)
    if table.title:
        say()
        say(table.title, bold=True)
    left_out = _print_fitted(columns) if terminal else _print_separated(columns)
    if len(shown) < len(full):
        say(f"... and {len(full) - len(shown)} more rows", dim=True)
    if left_out:
        number = "1 column is" if len(left_out) == 1 else f"{len(left_out)} columns are"
        say(f"{number} not shown for lack of width; --csv prints all.", dim=True)
    if len(shown) < len(full) or columns.get(FLAGS) is None or columns[FLAGS] != flags:
        for flag, count in counts.most_common():
            say(f"Flagged {flag!r}: {count} of {len(full)}")
    return _legend(columns, shown)


def _print_fitted(columns: dict[str, list[str]]) -> list[str]:
    """Print columns as wide as the terminal; return the names of those that do not fit."""
    from rich.console import Console

    console = Console(
        file=sys.stdout,
        markup=False,
        highlight=False,
        emoji=False,
        color_system="auto" if _has_style(sys.stdout) else None,
    )
    console.width = max(console.width, NARROWEST)
    left_out = _fit(columns, console.width)
    console.print(_printable(columns))
    return left_out


def _print_separated(columns: dict[str, list[str]]) -> list[str]:
    """Print columns with tabs between them; all fit."""
    for row in zip(*columns.values(), strict=True):
        print("\t".join(row))  # cells have no control characters
    return []


def _with_values(table: Table, shown: "pd.DataFrame") -> dict[str, list[str]]:
    """Heading and cells of each column that has values in these rows."""
    from irtcat._common.checks import visible
    from irtcat.cli._columns import column_of

    columns: dict[str, list[str]] = {}
    for name in map(str, shown.columns):
        values = shown[name].tolist()
        cells = [cell(value, table.decimals, name, name in table.percent) for value in values]
        if any(cells):
            columns[name] = [visible(column_of(name).heading), *cells]
    return columns


def _printable(columns: dict[str, list[str]]) -> Any:
    """The table for the terminal: numbers to the right, what to check in colour."""
    from rich.table import Table as RichTable

    out = RichTable(box=None, pad_edge=False, show_edge=False)
    first = next(iter(columns), None)
    for name, (heading, *cells) in columns.items():
        numeric = all(map(NUMBER.fullmatch, cells))
        style = "yellow" if name in (FLAGS, "reasons") else None
        out.add_column(
            heading,
            justify="right" if numeric else "left",
            no_wrap=name != first,
            overflow="fold",
            style=style,
        )
    for row in zip(*(cells for _, *cells in columns.values()), strict=True):
        out.add_row(*row)
    return out


def _legend(columns: dict[str, list[str]], shown: "pd.DataFrame") -> list[str]:
    """What the columns and some of their values mean, one line each."""
    from irtcat.cli._columns import column_of, legend_of_value

    legend = [
        f"{column_of(name).heading}: {column_of(name).meaning}"
        for name in columns
        if column_of(name).meaning
    ]
    if any(name.startswith("se_") for name in columns):
        legend.append("SE: standard error")
    for name in columns:
        legend += legend_of_value(name, [str(value) for value in shown[name]])
    if any("beyond" in cell for cells in columns.values() for cell in cells):
        legend.append("beyond: too easy or too hard for these subjects to say how much")
    return legend


def _fit(columns: dict[str, list[str]], width: int) -> list[str]:
    """Shorten texts and remove columns until the table fits; return the names removed."""
    from rich.cells import cell_len

    def excess() -> int:
        widths = [max(map(cell_len, cells)) for cells in columns.values()]
        return sum(widths) + GAP * (len(widths) - 1) - width

    removed: list[str] = []
    while excess() > 0:
        texts = list(columns)[1:]
        if not texts:
            break
        longest = max(texts, key=lambda name: max(map(cell_len, columns[name])))
        width_of_longest = max(map(cell_len, columns[longest]))
        others = [name for name in texts if name != FLAGS]
        if width_of_longest - excess() >= SHORTEST or not others:
            most = max(width_of_longest - excess(), SHORTEST)
            columns[longest] = [_shortened(cell, most) for cell in columns[longest]]
            if not others:
                break
        else:
            removed.insert(0, others[-1])
            del columns[others[-1]]
    return removed


def _shortened(text: str, most: int) -> str:
    """The text with its middle left out: names differ at their ends.

    Example:
        >>> _shortened("tiny_gen/3503272094299d5b", 15)
        'tiny_ge…4299d5b'
    """
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= most:
        return text
    head, tail = most // 2, most - 1 - most // 2
    return f"{set_cell_size(text, head)}…{set_cell_size(text[::-1], tail)[::-1]}"


def cell(value: Any, decimals: int, column: str, percent: bool = False) -> str:
    """Format a value; a missing one as empty text."""
    import pandas as pd

    from irtcat._common.checks import visible
    from irtcat.cli._columns import BEYOND, is_difficulty

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return visible(str(value))
    if percent:
        return f"{100 * value:.1f} %"
    if is_difficulty(column) and abs(value) > BEYOND:
        return f"beyond {math.copysign(BEYOND, value):g}"
    return f"{value:.{decimals}f}"

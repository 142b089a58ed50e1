"""Output: tables for people, JSON and CSV for programs, CSV files, warnings and errors."""

import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TextIO

import typer

from irtcat._common.errors import InputError, visible

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
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


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


def fields_of(source: Any, *names: str) -> dict[str, Any]:
    """Options of a command, or fields of a result, by name."""
    return {name: getattr(source, name) for name in names}


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
    return typer.style(text, **style) if style and _has_style(stream) else text


def _has_style(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user wants colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def say(text: object = "", end: str = "\n", **style: Any) -> None:
    """Print lines, with control characters escaped, as ids may contain some."""
    print(styled(visible(str(text), keep="\n"), sys.stdout, **style), end=end)


class Interrupted(SystemExit):
    """The exit of a command that has said what it leaves behind."""


LABELS: ContextVar[Mapping[str, str]] = ContextVar("labels", default={})  # noqa: B039
"""The options of the command that runs, by the library's names of the arguments."""


def with_options(text: str) -> str:
    """A message of the library with the command's options instead of the library's arguments.

    An argument is recognised in backticks, as name=value, or, if it has an underscore, by its name
    alone: a name such as "level" is also a word. Of a mapping, the option with the file of a table.

    Example:
        >>> token = LABELS.set({"max_iterations": "--max-iterations", "resume": "--resume"})
        >>> with_options("Raise max_iterations, or pass resume=True.")
        'Raise --max-iterations, or pass --resume.'
        >>> with_options('Or resume={"a": [1], "b": [2]}.')
        'Or in Python resume={"a": [1], "b": [2]}.'
        >>> LABELS.reset(token)
    """
    labels = LABELS.get()

    def label(found: "re.Match[str]") -> str:
        """The option in place of a match, with its value if there is one."""
        groups = found.groupdict()
        name = next(groups[form] for form in ("stated", "quoted", "set", "bare") if groups[form])
        if name not in labels:
            return found[0]
        if groups["stated"]:
            return f"{labels[name]} {'option' if labels[name][:1] == '-' else 'argument'}"
        if groups["mapping"]:  # an option takes the file of a table instead: model, --models
            return labels.get(f"{name}s", f"in Python {found[0]}")
        value = (groups["value"] or "").strip("\"'")
        return labels[name] if value in ("", "True") else f"{labels[name]} {value}"

    return ARGUMENT.sub(label, text)


ARGUMENT = re.compile(
    r"`(?P<stated>\w+)` argument|`(?P<quoted>\w+)`"
    r"|(?<![\w./`=-])(?:"
    r"(?P<set>[a-z]\w*)=(?!=)(?:(?P<value>\"[^\"]*\"|'[^']*'|\w+(?:\.\w+)?)"
    r"|(?P<mapping>[{\[(][^{}()]*[}\])]))?"
    r"|(?P<bare>[a-z]+_\w+)(?![\w/`(-]|\.\w))"
)
"""How messages name arguments."""


def is_interactive() -> bool:
    """Whether a question can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def warn(text: str) -> None:
    """Print a warning as one line on stderr."""
    print(styled("Warning:", sys.stderr, fg="yellow"), _line(text), file=sys.stderr)


def fail(text: str, code: int) -> NoReturn:
    """Print an error as one line on stderr and exit."""
    print(styled("Error:", sys.stderr, fg="red", bold=True), _line(text), file=sys.stderr)
    sys.exit(code)


def fail_interrupted(kept: str) -> NoReturn:
    """Say on stderr what an interrupted command leaves behind and how to go on, and exit."""
    print(_line(f"Interrupted. {kept}"), file=sys.stderr, flush=True)
    raise Interrupted(INTERRUPTED)


def _line(text: str) -> str:
    """The text on one line, with control characters escaped."""
    return visible(" ".join(with_options(text).split()))


def sentence(error: Exception) -> str | None:
    """The message for the user; None for unexpected errors, which show a traceback."""
    if isinstance(error, BrokenPipeError):  # the reader of the pipe has closed it
        return None
    if isinstance(error, OSError):
        prefix = f"{error.filename}: " if error.filename else ""
        return f"{prefix}{error.strerror or error}."
    if isinstance(error, MemoryError):
        return "There is not enough memory for this. Use fewer subjects or items, or float32."
    return str(error) if isinstance(error, (InputError, FloatingPointError)) else None


def emit_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document: a table as its rows; missing and non-finite values are null."""
    import pandas as pd

    from irtcat._files.json import json_text

    values = {
        name: records(value) if isinstance(value, pd.DataFrame) else value
        for name, value in document.items()
    }
    # json.dumps does not escape this control character.
    print(json_text(values).replace("\x7f", "\\u007f"))


def emit_csv(frame: "pd.DataFrame") -> None:
    """Print a table as CSV."""
    from irtcat._files.csv import csv_bytes

    print(csv_bytes(frame).decode("utf-8"), end="")


def with_texts(table: "pd.DataFrame", items: "pd.DataFrame") -> "pd.DataFrame":
    """On a terminal, a column with the texts of items whose ids are hashes.

    Args:
        table: a row for each item, by id.
        items: metadata of the items.
    """
    from irtcat.report.blocks import MOST_LETTERS, are_hashes, texts_of

    texts = texts_of(items) if to_terminal() and are_hashes(table.index) else None
    if texts is None:
        return table
    lines = [" ".join(text.split()) for text in texts.reindex(table.index.astype(str)).fillna("")]
    table = table.drop(columns="text", errors="ignore")
    column = [_shortened(line, MOST_LETTERS) for line in lines]
    table.insert(min(2, table.shape[1]), "text", column)
    return table


def figures(values: Mapping[str, Any]) -> "pd.DataFrame":
    """A table of figures by name, one a line, with what each means."""
    import pandas as pd

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
    left_out: list[str] = []
    if terminal:
        left_out = _print_fitted(columns)
    else:
        for row in zip(*columns.values(), strict=True):
            print("\t".join(row))  # cells have no control characters
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


def _with_values(table: Table, shown: "pd.DataFrame") -> dict[str, list[str]]:
    """Heading and cells of each column that has values in these rows."""
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
        out.add_column(
            heading,
            justify="right" if numeric else "left",
            no_wrap=name != first,
            overflow="fold",
            style="yellow" if name in (FLAGS, "reasons") else None,
        )
    for row in zip(*(cells for _, *cells in columns.values()), strict=True):
        out.add_row(*row)
    return out


def _legend(columns: dict[str, list[str]], shown: "pd.DataFrame") -> list[str]:
    """What the columns and some of their values mean, one line each."""
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


BEYOND = 6.0
"""Difficulties farther than this from 0 are printed as "beyond": no subject is there."""


class Heading(NamedTuple):
    """How a column is printed.

    Attributes:
        heading: its heading.
        meaning: its line of the legend; empty for headings that say it.
    """

    heading: str
    meaning: str = ""


COLUMNS = {
    "a": Heading("discrimination", "how sharply the item separates abilities (a)"),
    "b": Heading("difficulty", "the ability at which half of the answers are right (b)"),
    "c": Heading("guessing", "chance of a right answer at very low ability (c)"),
    "d": Heading("ceiling", "chance of a right answer at very high ability (d)"),
    "chance": Heading("chance", "of ranking the gap right"),
    "confidence": Heading("confidence", "mean probability of the label"),
    "coverage": Heading("coverage", "share of intervals that contain the true value"),
    "criterion": Heading("gain", "what the strategy maximises, when the item was taken"),
    "expected_error": Heading("expected error", "median error of the scores still predicted"),
    "expected_score": Heading("expected", "the best subject's expected score"),
    "feasibility": Heading("feasibility", "chance that the item can be answered at all"),
    "gap": Heading("gap", "smallest gap of full scores, in points, that is ranked right"),
    "headroom": Heading("headroom", "what the best subject can still gain"),
    "flip_rate": Heading("flips", "chance that two trials of an answer differ"),
    "how": Heading("method"),
    "icc": Heading("ICC", "correlation of two runs over the items"),
    "influence": Heading("influence", "how far abilities move without the item, in SDs"),
    "information": Heading("information", "1 / variance of the ability that the items add"),
    "kendall": Heading("kendall", "rank correlation with the full ranking (tau-b)"),
    "lower": Heading("from", "with to, the confidence interval"),
    "mae": Heading("mae", "mean absolute error of predicted scores, in points"),
    "margin": Heading("margin", "half the width of a score's interval, in points"),
    "bias": Heading("bias", "mean error of the abilities"),
    "correlation": Heading("correlation", "of estimated with true abilities"),
    "max_exposure": Heading("max exposure", "share of sessions with the most used item"),
    "mean_items": Heading("mean items", "items asked per session"),
    "mean_se": Heading("mean SE", "mean standard error of the abilities"),
    "n_flipping": Heading("flipping", "answers of which two trials differ"),
    "n_new_only": Heading("new only", "items that only the new model has right"),
    "n_old_only": Heading("old only", "items that only the old model has right"),
    "overlap": Heading("overlap", "share of items that two sessions have in common"),
    "sd_items": Heading("SD items", "standard deviation of the items asked"),
    "unscored": Heading("no score", "samples without a score, such as after an error"),
    "unused": Heading("unused", "share of items that were never asked"),
    "more_items": Heading("more items", "further items that would separate the two"),
    "more_repeats": Heading(
        "more trials", "further trials of all items that would separate the two"
    ),
    "detectable": Heading("detectable", "least difference that is found with a power of 80 %"),
    "n_all": Heading("all items", "items in the full score"),
    "p_equivalent": Heading("p equivalent", "p-value of the tests of a difference that matters"),
    "aim": Heading("aim", "what was to be settled"),
    "detect": Heading("loss to detect", "the loss that is not to be missed"),
    "futility": Heading("futility", "probability with which it may be missed"),
    "n_answers": Heading("answers", "answers of the new model used, with all trials"),
    "outcome": Heading("outcome", "why the comparison ended"),
    "p_worse": Heading("p of no loss", "valid at any time; small if the new model is worse"),
    "p_rerun": Heading("P(same verdict)", "probability that a rerun gives the same verdict"),
    "run_se": Heading("SE of runs", "standard error that is due to the runs alone"),
    "n": Heading("answers"),
    "n_items": Heading("items"),
    "n_items_hard": Heading("hard pairs", "items needed for the most difficult tenth of pairs"),
    "n_items_typical": Heading("typical pair", "items needed for the median pair"),
    "n_responses": Heading("answers"),
    "n_trials": Heading("trials", "mean number of trials of an item"),
    "noise": Heading("noise", "standard error of one run's score due to reruns, in points"),
    "p_better": Heading("P(better)", "probability that the new model is better"),
    "p_value": Heading("p", "chance of such a difference between equal models"),
    "p_wrong_key": Heading("P(wrong)", "probability that the label is wrong"),
    "pairwise_2_to_5": Heading("pairs 2-5", "share of pairs 2 to 5 points apart in right order"),
    "pass_at_k": Heading("pass@k", "chance that one of k trials is right"),
    "pass_hat_k": Heading("pass^k", "chance that all of k trials are right"),
    "percentile": Heading("percentile", "share of the bank's population below, in percent"),
    "power": Heading("power", "chance that a test at 5 % finds the gap"),
    "probability": Heading("probability", "chance that the sample contains the item"),
    "proportion_correct": Heading("right", "share of right answers"),
    "rank_lower": Heading("best rank", "highest rank in the interval"),
    "rank_upper": Heading("worst rank", "lowest rank in the interval"),
    "reliability_marginal": Heading("reliability", "share of true variance in the scores"),
    "rmsd": Heading("rmsd", "root mean square difference of the two curves"),
    "rmse": Heading("rmse", "root mean square error"),
    "rmsea": Heading("rmsea", "misfit per degree of freedom; below 0.05 is good"),
    "robust_z": Heading("drift", "robust z of the difference; beyond 2.7 the item has drifted"),
    "se": Heading("SE", "standard error"),
    "smallest_gap": Heading("smallest gap", "in points, that a test at 5 % finds with power 80 %"),
    "spearman": Heading("spearman", "rank correlation with the full ranking"),
    "suspicion": Heading("suspicion", "how suspect the label is, from 0 to 1"),
    "theta": Heading("ability", "on the bank's scale (theta)"),
    "upper": Heading("to"),
    "width": Heading("width", "mean width of the intervals, in points"),
}
"""Columns by name, but those whose name is a heading."""

VALUES = {"estimator": "irtcat.ESTIMATORS", "strategy": "irtcat.STRATEGIES"}
"""Columns with names of rules, whose rows say what they are."""


def column_of(name: str) -> Heading:
    """How a column of this name is printed."""
    if name.startswith("se_"):
        return Heading(f"SE {column_of(name[3:]).heading}")
    return COLUMNS.get(name) or Heading(name.replace("_", " "))


def is_difficulty(name: str) -> bool:
    """Whether a column has difficulties: b, or b1, b2, ... of items in categories."""
    return name == "difficulty" or (name[:1] == "b" and (name == "b" or name[1:].isdigit()))


def hardest_first(table: "pd.DataFrame", by: str, slopes: Any = None) -> "pd.DataFrame":
    """The rows by share of right answers or by difficulty, those without a difficulty last.

    An item whose slope is not positive is no harder for weaker subjects, and a difficulty farther
    than `BEYOND` from 0 is extrapolated from subjects far from it: neither is the hardest.

    Args:
        table: a row for each item.
        by: the column: "proportion_correct", or "b".
        slopes: the slope of each item; None if not known.
    """
    values = table[by]
    if is_difficulty(by):
        is_known = values.abs() <= BEYOND
        if slopes is not None:
            is_known &= ~(slopes <= 0)
        values = -values.where(is_known)
    return table.loc[values.sort_values(kind="stable", na_position="last").index]


def legend_of_value(column: str, values: list[str]) -> Iterator[str]:
    """Lines for the names of rules in a column."""
    names = [value for value in dict.fromkeys(values) if ": " not in value]
    if column not in VALUES or not names:  # "auto: regression" is a method of a rule
        return
    rows = resolve_name(VALUES[column])
    for value in names:
        cells = getattr(rows[value], "cells", ()) if value in rows else ()
        if cells:
            yield f"{value}: {cells[0].replace('``', '')}"

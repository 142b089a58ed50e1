"""``irtcat filter``."""

from pathlib import Path
from typing import Any

import typer

from irtcat._common.numbers import number_in, whole_number_in
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import SEED, argument, option, own, result
from irtcat.cli._output import SUMMARY_ROWS, fields_of, warn

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz --table items.csv",
    "irtcat filter bank.npz --rule avi --tau 1 --out keep.csv",
    "irtcat filter items.csv --between .2,.8 --column proportion_correct --out band.csv",
    "irtcat filter bank.npz --rule ub --keep 0.4 --rows items.csv --key item --out easy.csv",
)


def _items(path: str) -> Any:
    """Read a bank, or a table of items."""
    if path.endswith(".npz") or _input.is_bank(path):
        return _input.read_bank(path)  # raises for an .npz that is not a bank
    return _input.indexed_table(Path(path)).rename_axis("item")


def _amount(text: str) -> float:
    """Parse a number of items, or a share."""
    if text.endswith("%"):
        share = number_in(text[:-1])
        number = None if share is None else share / 100
    else:
        number = number_in(text) if "." in text else whole_number_in(text)
    if number is None:
        must = f"{text!r} is not a number or a share, such as 500, 0.25 or 25%."
        raise typer.BadParameter(must)
    return number


def _bounds(text: str) -> tuple[float, float]:
    """Parse two numbers."""
    numbers = [n for n in map(number_in, map(str.strip, text.split(","))) if n is not None]
    if len(numbers) != 2 or text.count(",") != 1:
        raise typer.BadParameter(f"{text!r} is not two numbers, such as .2,.8.")
    return numbers[0], numbers[1]


@command_of(
    "irtcat.training.filters.apply",
    argument(
        "bank",
        of="items",
        read=_items,
        help="Bank, or CSV table of items (ids first) with a column b or pc (the share right; "
        "also pass_rate), or any other with --column.",
    ),
    option(
        "rule",
        choices="irtcat.training.filters.RULES random",
        help="What to keep. {lines}; random: a random sample, for comparison.",
    ),
    option("tau", help="Threshold of |b|, b or pc."),
    option(
        "keep",
        type=str,
        parse=_amount,
        help="Number (500) or share (0.25, 25%) of items to keep, instead of --tau.",
    ),
    option(
        "between",
        type=str,
        metavar="LOW,HIGH",
        parse=_bounds,
        help="Keep the items whose pc is from LOW to HIGH, such as .2,.8, instead of a rule.",
    ),
    option("column", help="Column to compare instead of b or pc, such as length."),
    option(
        "balanced_by", help="Keep equally many per class: its column in --items or the metadata."
    ),
    own(
        "items",
        of="items_table",
        type=Path,
        needs="balanced_by COLUMN",
        help="CSV table of the items (ids in the first column) with their classes.",
    ),
    own(
        "rows",
        type=Path,
        needs="out FILE",
        help="Data file (CSV, TSV, JSONL, Parquet, Arrow); --out gets the kept items' rows.",
    ),
    own(
        "key",
        needs="rows FILE",
        help="Column of --rows with the items' ids; default: row k is item k.",
    ),
    SEED,
    result("kept.csv", help="Ids of the kept items (.csv, .jsonl, .parquet, .txt), or rows."),
)
def command(o: Options) -> Output:
    """Filter training examples by their difficulty.

    Items may have several rows in --rows; rows with unknown ids are dropped.
    """
    selection = o.call(balanced_by=_input.items_column(o.items, o.balanced_by))
    content, written = f"{len(selection)} items", None
    if o.rows is not None:
        written = selection.save_rows(o.rows, o.out, o.key)
        content = f"{written.written} rows"
        if written.absent:
            warn(f"{written.absent} of the kept items have no row in {o.rows}.")
        if written.unknown:
            warn(f"Rows of {o.rows} with unknown ids, dropped: {written.unknown}.")
        if written.repeated:
            warn(
                f"Rows of {o.rows} with the id of an earlier row: {written.repeated}; "
                "all rows of kept items are written."
            )
    else:
        o.write("out", selection)
    kept = selection.table.iloc[selection.indices].drop(columns=["kept", "flag"])

    document = {
        **fields_of(selection, "rule", "tau"),
        **fields_of(o, "between", "column"),
        "kept": len(selection),
        "of": len(selection.table),
        **fields_of(o, "seed", "out"),
        "rows": None if written is None else written._asdict(),
        "bounds": selection.bounds,
        "items": kept,
    }
    text = [str(selection), Table(kept, rows=SUMMARY_ROWS)]
    text += [] if o.balanced_by is None else [selection.bounds]
    after: tuple[Any, ...] = ()
    if o.rows is None and o.out is not None and o.out.suffix == ".csv":
        after = ("report", o.out)
    elif _input.is_bank(o.unread["bank"]):
        after = ("describe", o.unread["bank"])
    return Output(document, [*text, f"Wrote {content} to {o.out}"], table=kept, next=after)

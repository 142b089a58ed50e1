"""``irtcat filter``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show
from irtcat.cli._session import use_compilation_cache, warn

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz --table items.csv",
    "irtcat filter bank.npz --rule avi --tau 1 --out keep.csv",
    "irtcat filter bank.npz --rule ub --keep 0.4 --rows items.csv --key item --out easy.csv",
)


def command(
    bank: Annotated[
        str,
        typer.Argument(
            metavar="BANK", help="Bank, or CSV table of items (ids first) with a column b or pc."
        ),
    ],
    rule: Annotated[str, typer.Option(help="avi, ub, pcub, avo, lb, pclb or random.")],
    tau: Annotated[float | None, typer.Option(help="Threshold of |b|, b or pc.")] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="Number (500) or share (0.25, 25%) of items to keep, instead of --tau."),
    ] = None,
    balanced_by: Annotated[
        str | None,
        typer.Option(help="Keep equally many per class: its column in --items or the metadata."),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(help="CSV table of the items (ids in the first column) with their classes."),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Data file (CSV, TSV, JSONL, Parquet): --out gets all rows of the kept items."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Column of --rows with the items' ids; default: row k is item k."),
    ] = None,
    seed: arguments.Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Ids of the kept items (.csv, .jsonl, .parquet, .txt), or rows."
        ),
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Filter training examples by their difficulty.

    Items may have several rows in --rows; rows with unknown ids are dropped.
    """
    from irtcat._files import check_target
    from irtcat.training import filters

    arguments.choose("--rule", rule, (*filters.RULES, "random"))
    if rows is not None and out is None:
        raise typer.BadParameter("needs --out FILE.", param_hint="--rows")
    if key is not None and rows is None:
        raise typer.BadParameter("needs --rows FILE.", param_hint="--key")
    if items is not None and balanced_by is None:
        raise typer.BadParameter("needs --balanced-by COLUMN.", param_hint="--items")
    if out is not None:
        check_target(out)
    use_compilation_cache()
    by: Any = balanced_by
    if items is not None and balanced_by is not None:
        by = arguments.table_column(items, balanced_by, "items")
    amount = None if keep is None else _amount(keep)
    selection = filters.apply(_items(bank), rule, tau=tau, keep=amount, balanced_by=by, seed=seed)
    written = None
    if rows is not None and out is not None:
        written = selection.save_rows(rows, out, key)
        if written.absent:
            warn(f"{written.absent} of the kept items have no row in {rows}.")
        if written.unknown:
            warn(f"Rows of {rows} with unknown ids, dropped: {written.unknown}.")
        if written.repeated:
            warn(
                f"Rows of {rows} with the id of an earlier row: {written.repeated}; "
                "all rows of kept items are written."
            )
    elif out is not None:
        selection.save(out)
    items_kept = selection.table.iloc[selection.indices].drop(columns=["kept", "flags"])
    if as_json:
        about = {
            "rule": rule,
            "tau": selection.tau,
            "kept": len(selection),
            "of": len(selection.table),
        }
        about |= {"seed": seed, "out": out, "rows": None if written is None else written._asdict()}
        emit_json({**about, "bounds": records(selection.bounds), "items": records(items_kept)})
    elif out is None:
        show(items_kept)
    else:
        content = f"{len(selection)} items" if written is None else f"{written.written} rows"
        say(f"{selection}; wrote {content} to {out}")
        if balanced_by is not None:
            show(selection.bounds)


def _items(path: str) -> Any:
    """Read a bank, or a table of items."""
    if path.endswith(".npz") or arguments.is_bank(path):
        return arguments.read_bank(path)  # raises for an .npz that is not a bank
    frame = arguments.read_table(Path(path), "items")
    return frame.set_index(frame.columns[0]).rename_axis("item")


def _amount(text: str) -> float:
    """Parse a number of items, or a share."""
    from irtcat._numbers import number_in, whole_number_in

    if text.endswith("%"):
        share = number_in(text[:-1])
        number = None if share is None else share / 100
    else:
        number = number_in(text) if "." in text else whole_number_in(text)
    if number is None:
        must = f"{text!r} is not a number or a share, such as 500, 0.25 or 25%."
        raise typer.BadParameter(must, param_hint="--keep")
    return number

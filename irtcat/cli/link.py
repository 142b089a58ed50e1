"""``irtcat link``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show, write_csv
from irtcat.cli._session import use_compilation_cache

if TYPE_CHECKING:
    from irtcat import Link

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out reference.npz",
    "irtcat fit dataset:lsat7 --positive --out bank.npz",
    "irtcat link bank.npz reference.npz --method stocking-lord --out linked.npz",
)


def command(
    bank: Annotated[str, typer.Argument(metavar="BANK", help="The bank to transform.")],
    reference: Annotated[
        str, typer.Argument(metavar="REFERENCE", help="The bank that defines the scale.")
    ],
    method: Annotated[str, typer.Option(help=f"{arguments.LINKS_HELP}.")] = "stocking-lord",
    drop_outliers: Annotated[
        bool, typer.Option("--drop-outliers", help="Exclude common items that have drifted.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the linked bank here.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Write the common items to this CSV file.")
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Transform a bank to the scale of another by their common items."""
    import irtcat
    from irtcat._files import check_target
    from irtcat.fitting import LINKS

    arguments.choose("--method", method, LINKS)
    for path in (out, table):
        if path is not None:
            check_target(path)
    use_compilation_cache()
    banks = arguments.read_bank(bank), arguments.read_bank(reference)
    linked = irtcat.link(*banks, method, drop_outliers=drop_outliers)
    if out is not None:
        linked.bank.save(out)
    if table is not None:
        write_csv(linked.items, table)
    if as_json:
        about = records(linked.to_frame())[0]
        emit_json({**about, "out": out, "table": table, "items": records(linked.items)})
        return
    _report(linked, out, table)


def _report(linked: "Link", out: Path | None, table: Path | None) -> None:
    """Print A, B and the common items."""
    show(linked.items)
    say()
    say(linked)
    say(f"theta_reference = {linked.A:.4f} theta + {linked.B:.4f}")
    n_outliers = int(linked.items["outlier"].sum())
    if n_outliers:
        say(f"Drifted: {n_outliers} of {len(linked.items)} common items (robust z beyond 2.7)")
    for note in linked.notes:
        say(note)
    for kind, path in (("linked bank", out), ("common items", table)):
        if path is not None:
            say(f"Wrote the {kind} to {path}")

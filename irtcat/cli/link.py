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
    bank: Annotated[str, typer.Argument(metavar="BANK", help="The bank that is to be moved.")],
    reference: Annotated[
        str, typer.Argument(metavar="REFERENCE", help="The bank whose scale it is to have.")
    ],
    method: Annotated[str, typer.Option(help=f"{arguments.LINKS_HELP}.")] = "stocking-lord",
    drop_outliers: Annotated[
        bool, typer.Option("--drop-outliers", help="Leave out common items that have drifted.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the linked bank here.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Write the common items to this CSV file.")
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """Put a bank on the scale of another by the items they share."""
    import irtcat
    from irtcat._files import check_target
    from irtcat.fitting import LINKS

    arguments.choose("--method", method, LINKS)
    for path in (out, table):
        if path is not None:
            check_target(path)
    use_compilation_cache()
    banks = arguments.read_bank(bank), arguments.read_bank(reference)
    found = irtcat.link(*banks, method, drop_outliers=drop_outliers)
    if out is not None:
        found.bank.save(out)
    if table is not None:
        write_csv(found.items, table)
    if as_json:
        about = records(found.to_frame())[0]
        emit_json({**about, "out": out, "table": table, "items": records(found.items)})
        return
    _report(found, out, table)


def _report(found: "Link", out: Path | None, table: Path | None) -> None:
    """A, B and the common items, for people."""
    show(found.items)
    say()
    say(found)
    say(f"theta_reference = {found.A:.4f} theta + {found.B:.4f}")
    n_outliers = int(found.items["outlier"].sum())
    if n_outliers:
        say(f"Drifted: {n_outliers} of {len(found.items)} common items (robust z beyond 2.7)")
    for note in found.notes:
        say(note)
    for what, path in (("linked bank", out), ("common items", table)):
        if path is not None:
            say(f"Wrote the {what} to {path}")

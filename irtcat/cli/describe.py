"""``irtcat describe``."""

from typing import TYPE_CHECKING

import irtcat
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import READING, RESPONSES_HELP, argument, default_n_items
from irtcat.cli._output import cell, column_of
from irtcat.cli.fit import fit_words

if TYPE_CHECKING:
    import pandas as pd

    from irtcat.bank._table import BankTable

EXAMPLE = ("irtcat describe dataset:lsat7", "irtcat fit dataset:lsat7", "irtcat describe bank.npz")


@command_of(
    None, argument("source", "RESPONSES|BANK", help=f"{RESPONSES_HELP} Or a bank."), *READING
)
def command(o: Options) -> Output:
    """Describe a response file or a bank."""
    if _input.is_bank(o.source):
        return _bank(o, _input.read_bank_table(o.source))
    return _responses(o, _input.read(o.source, **o.reading))


def _responses(o: Options, data: "irtcat.Responses") -> Output:
    """Counts, mean and flags."""
    from dataclasses import asdict

    summary = data.summary()
    after = fit_words(data, o.source, *o.reading_words)
    columns = {"subjects": list(data.subjects.columns), "items": list(data.items.columns)}
    document = {**asdict(summary), "kind": "responses", "responses": summary.kind}
    document |= {f"{kind[:-1]}_columns": names for kind, names in columns.items()}
    lines = [f"metadata of {kind}: {', '.join(names)}" for kind, names in columns.items() if names]
    return Output(document, [str(summary), *lines], table=summary.to_frame(), next=after)


def _bank(o: Options, bank: "BankTable") -> Output:
    """Model, scale, provenance, and the range of the parameters."""
    frame = bank.table
    ranges = frame.select_dtypes("number").describe().T[["min", "25%", "50%", "75%", "max"]]
    ranges.index.name = "column"
    populations = {label: p.to_json() for label, p in bank.populations.items()}
    document = {"kind": "bank", "model": bank.key, "n_items": len(bank)}
    scale = {"codes": list(bank.codes), "structure": bank.structure, "factors": list(bank.factors)}
    document |= {"populations": populations, **scale, "provenance": dict(bank.provenance)}
    document |= {"ranges": ranges, "items": frame}
    lines = [
        f"{name.replace('_', ' ')}: {f'{value:.2f}' if isinstance(value, float) else value}"
        for name, value in {**bank.provenance, **scale}.items()
        if value not in ({}, [], "", None)
    ]
    after = ("select", o.source, "-k", default_n_items(len(bank)), "--responses", "RESPONSES")
    varying = ranges[(ranges["min"] < ranges["max"]) & ~ranges.index.isin(bank.items.columns)]
    known = [column_of(name) for name in map(str, varying.index)]
    meanings = [f"  {column.heading}: {column.meaning}" for column in known if column.meaning]
    return Output(
        document, [str(bank), *lines, _readable(varying), *meanings], table=frame, next=after
    )


def _readable(ranges: "pd.DataFrame") -> Table:
    """The ranges of the columns under their headings."""
    cells = ranges.apply(lambda row: [cell(v, 3, str(row.name)) for v in row], axis=1)
    table = ranges.astype(object)
    table[:] = cells.tolist()
    table.index = table.index.map(lambda name: column_of(name).heading)
    return Table(table.rename_axis("of all items"), "From the lowest to the highest")

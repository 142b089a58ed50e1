"""``irtcat describe``."""

from typing import TYPE_CHECKING, Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show
from irtcat.cli._session import use_compilation_cache

if TYPE_CHECKING:
    from irtcat import ItemBank, Responses

EXAMPLE = (
    "irtcat describe dataset:lsat7",
    "irtcat fit dataset:lsat7 --out bank.npz",
    "irtcat describe bank.npz",
)


def command(
    source: Annotated[
        str, typer.Argument(metavar="RESPONSES|BANK", help=f"{arguments.RESPONSES_HELP} Or a bank.")
    ],
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
) -> None:
    """Describe a response file or a bank."""
    if arguments.is_bank(source):
        use_compilation_cache()
        _describe_bank(arguments.read_bank(source), as_json)
        return
    options = arguments.Reading(
        format=format, subject=subject, item=item, response=response, duplicates=duplicates
    )
    _describe_responses(arguments.read(source, options), as_json)


def _describe_responses(data: "Responses", as_json: bool) -> None:
    """Counts, mean and flags."""
    from dataclasses import asdict

    summary = data.summary()
    subjects, items = list(data.subjects.columns), list(data.items.columns)
    if as_json:
        about = {"kind": "responses", "responses": summary.kind}
        columns = {"subject_columns": subjects, "item_columns": items}
        emit_json({**asdict(summary), **about, **columns})
        return
    say(summary)
    for kind, names in (("subjects", subjects), ("items", items)):
        if names:
            say(f"metadata of {kind}: {', '.join(names)}")


def _describe_bank(bank: "ItemBank", as_json: bool) -> None:
    """Model, scale, provenance, and the range of the parameters."""
    frame = bank.to_frame()
    ranges = frame.select_dtypes("number").describe().T[["min", "25%", "50%", "75%", "max"]]
    ranges.index.name = "column"
    population = {"mean": bank.population_mean, "sd": bank.population_sd}
    if as_json:
        about = {"kind": "bank", "model": bank.model.key, "n_items": len(bank)}
        about |= {"population": population, "provenance": dict(bank.provenance)}
        emit_json({**about, "ranges": records(ranges), "items": records(frame)})
        return
    say(bank)
    for name, value in bank.provenance.items():
        say(f"{name}: {value}")
    show(ranges)

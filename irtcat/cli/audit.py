"""``irtcat audit``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show, write_csv
from irtcat.cli._session import use_compilation_cache

EXAMPLE = ("irtcat audit dataset:lsat7 --out suspects.csv",)

SHOWN = ["suspicion", "p_wrong_key", "a", "share", "n", "feasibility", "confidence", "reasons"]


def command(
    responses: arguments.ResponsesArgument,
    bank: Annotated[
        Path | None, typer.Option(help="Calibrated items; by default a 2PL is fitted.")
    ] = None,
    by: Annotated[
        str,
        typer.Option(help="answers, wrong-key, discrimination, feasibility, confidence or all."),
    ] = "answers",
    feasibility: Annotated[
        bool, typer.Option("--feasibility", help="Fit the feasibility model as well.")
    ] = False,
    dynamics: Annotated[
        Path | None,
        typer.Option(help="CSV table of the items, ids first, with a column confidence."),
    ] = None,
    wrong: Annotated[float, typer.Option(help="Prior share of wrong labels.")] = 0.05,
    unrelated: Annotated[
        float, typer.Option(help="Prior share of items unrelated to ability.")
    ] = 0.05,
    known: Annotated[
        Path | None,
        typer.Option(help="File of items known to be wrong, one id per line, to report recall."),
    ] = None,
    first: Annotated[int, typer.Option(min=1, help="Number of suspects to print.")] = 20,
    out: arguments.Out = None,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
) -> None:
    """Rank items by how suspect their labels are."""
    from irtcat._files import check_target
    from irtcat.diagnose import labels

    arguments.choose("--by", by, (*labels.ORDERS, "all"))
    if by == "confidence" and dynamics is None:
        raise typer.BadParameter("confidence needs --dynamics FILE.", param_hint="--by")
    if by == "feasibility" and not feasibility and bank is None:
        raise typer.BadParameter("feasibility needs --feasibility.", param_hint="--by")
    if out is not None:
        check_target(out)
    known_ids = None if known is None else arguments.read_lines(known)
    use_compilation_cache()
    data = arguments.read(
        responses,
        arguments.Reading(
            format=format, subject=subject, item=item, response=response, duplicates=duplicates
        ),
    )
    if known_ids is not None:
        # Raises for unknown ids before the fit.
        labels.recall_at(data.item_ids, known_ids, 1)
    ranking = labels.rank(
        data,
        None if bank is None else arguments.read_bank(bank),
        prior=(wrong, unrelated),
        dynamics=None if dynamics is None else _table(dynamics),
        feasibility=feasibility,
        by=by,
    )
    scores = [] if known_ids is None else _scores(ranking, known_ids)
    if out is not None:
        write_csv(ranking.table, out)
    if as_json:
        document = {"n_items": len(ranking.table), "by": by, "out": out}
        if known_ids is not None:
            average = labels.average_precision(ranking, known_ids)
            document |= {"known": scores, "average_precision": average}
        emit_json({**document, "items": records(ranking.table)})
        return
    top = ranking.first(min(first, len(ranking.table)))
    show(top[[name for name in SHOWN if name in top]])
    say(ranking)
    if known_ids is not None:
        import pandas as pd

        show(pd.DataFrame(scores))
        say(f"Average precision: {labels.average_precision(ranking, known_ids):.3f}")
    if out is not None:
        say(f"Wrote {len(ranking.table)} items to {out}")


def _table(path: Path) -> Any:
    """Read training dynamics by item."""
    frame = arguments.read_table(path, "items")
    return frame.set_index(frame.columns[0])


def _scores(ranking: Any, known: list[str]) -> list[dict[str, float]]:
    """Precision and recall at 10, 20, 50, … suspects and at the number of known errors."""
    from irtcat.diagnose import labels

    n_items = len(ranking.table)
    counts = {len(set(known)), *(c * 10**k for k in range(1, 6) for c in (1, 2, 5))}
    return [
        {
            "first": n,
            "precision": labels.precision_at(ranking, known, n),
            "recall": labels.recall_at(ranking, known, n),
        }
        for n in sorted(counts)
        if 0 < n <= n_items
    ]

"""``irtcat audit``."""

from pathlib import Path
from typing import Any

import typer

from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import RESPONSES, option, result
from irtcat.cli._output import records

EXAMPLE = ("irtcat audit dataset:lsat7",)

SHOWN = ["suspicion", "p_wrong_key", "reasons", "share", "n", "a", "feasibility", "confidence"]


@command_of(
    "irtcat.diagnose.labels.rank",
    RESPONSES,
    option("bank", type=Path, read=_input.read_bank),
    option("by", choices="auto irtcat.diagnose.labels.ORDERS all"),
    option("feasibility", type=bool, help="Fit the feasibility model as well."),
    option("dynamics", type=Path, read=_input.items_table,
           help="CSV table of the items, ids first, with a column confidence."),
    option("wrong", type=float, default=0.05, help="Prior share of wrong labels."),
    option("unrelated", type=float, default=0.05,
           help="Prior share of items unrelated to ability."),
    option("known", type=Path, read=_input.read_lines,
           help="File of items known to be wrong, one id per line, to report recall."),
    option("first", type=int, default=20, min=1, help="Number of suspects to print."),
    result("suspects.csv"),
)  # fmt: skip
def command(o: Options) -> Output:
    """Rank items by how suspect their labels are."""
    from irtcat.diagnose import labels

    if o.by == "confidence" and o.unread["dynamics"] is None:
        raise typer.BadParameter("confidence needs --dynamics FILE.", param_hint="--by")
    if o.by == "feasibility" and not o.feasibility and o.unread["bank"] is None:
        raise typer.BadParameter("feasibility needs --feasibility.", param_hint="--by")
    if o.known is not None:
        labels.recall_at(o.responses.item_ids, o.known, 1)  # unknown ids, before the fit
    ranking = o.call(prior=(o.wrong, o.unrelated))
    n_items = len(ranking.table)
    o.write("out", ranking.table, "items")
    document = {"n_items": n_items, "by": ranking.by, "out": o.out}
    top = ranking.first(min(o.first, n_items))
    shown = top[[name for name in SHOWN if name in top]]
    text = [
        str(ranking),
        ranking.order,
        Table(shown.rename(columns={"share": "proportion_correct"})),
    ]
    if o.known is not None:
        scores = _scores(ranking, o.known)
        average = labels.average_precision(ranking, o.known)
        document |= {"known": records(scores), "average_precision": average}
        text += [scores, f"Average precision: {average:.3f}"]
    document |= {"items": records(ranking.table)}
    bank = o.unread["bank"]
    after = ("report", *([bank] if bank else []), o.out)
    return Output(document, text, table=ranking.table, next=after)


def _scores(ranking: Any, known: list[str]) -> Any:
    """Precision and recall at 10, 20, 50, … suspects and at the number of known errors."""
    import pandas as pd

    from irtcat.diagnose import labels

    counts = {len(set(known)), *(c * 10**k for k in range(1, 6) for c in (1, 2, 5))}
    rows = [
        {
            "first": n,
            "precision": labels.precision_at(ranking, known, n),
            "recall": labels.recall_at(ranking, known, n),
        }
        for n in sorted(counts)
        if 0 < n <= len(ranking.table)
    ]
    return pd.DataFrame(rows)

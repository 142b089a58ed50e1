"""``irtcat headroom``."""

from dataclasses import replace

from irtcat import plot
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._input import items_column, read
from irtcat.cli._options import BANK, FIGURE, ITEMS, MISMATCH, RESPONSES_HELP, option, result

SHOWN = ("n_items", "headroom", "se", "expected_score", "information", "flag", "theta")

EXAMPLE = ("irtcat fit dataset:lsat7", "irtcat headroom bank.npz --responses dataset:lsat7")


@command_of(
    "irtcat.leaderboard.headroom",
    BANK,
    option("groups", help="Column of the items' metadata that names the test set."),
    replace(ITEMS, needs="groups COLUMN"),
    option("responses", of="abilities", read=read, help=RESPONSES_HELP),
    MISMATCH,
    "theta",
    result("headroom.csv"),
    FIGURE,
)
def command(o: Options) -> Output:
    """Show which test sets still distinguish the strongest subjects."""
    if (o.unread["responses"] is None) == (o.theta is None):
        raise o.usage_error("responses", "give --responses or --theta.")
    labels = items_column(o.items, o.groups)
    if o.items is not None:
        labels = labels.reindex(o.bank.item_ids).tolist()
    table = o.call(groups=labels)
    o.write("out", table, "table")
    if o.figure is not None:
        o.write("figure", plot.headroom(table), "figure")
    document = {"out": o.out, "figure": o.figure, "test_sets": table}
    shown = table.sort_values("headroom", ascending=False, kind="stable")
    after = ("report", o.unread["bank"], o.out)
    return Output(document, [shown[[n for n in SHOWN if n in shown]]], table=table, next=after)

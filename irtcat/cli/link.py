"""``irtcat link``."""

from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._input import read_bank
from irtcat.cli._options import MISMATCH, argument, check_archive, option, output, result
from irtcat.cli._output import SUMMARY_ROWS, records

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out reference.npz",
    "irtcat fit dataset:lsat7 --positive --out bank.npz",
    "irtcat link bank.npz reference.npz --method stocking-lord",
)


@command_of(
    "irtcat.link",
    argument("bank", read=read_bank),
    argument("reference", read=read_bank),
    option("method", choices="irtcat.fitting.LINKS"),
    "drop_outliers",
    MISMATCH,
    result("linked.npz", writes=check_archive, help="Write the linked bank here."),
    output("table", help="Write the common items to this CSV file."),
)
def command(o: Options) -> Output:
    """Transform a bank to the scale of another by their common items."""
    linked = o.call()
    o.write("out", linked.bank, "linked bank")
    o.write("table", linked.items, "common items")
    document = records(linked.to_frame())[0]
    document |= {"out": o.out, "table": o.table, "items": linked.items}
    drifted = linked.items.sort_values("robust_z", key=abs, ascending=False, kind="stable")
    text = [str(linked), Table(drifted, rows=SUMMARY_ROWS)]
    text += [f"theta_reference = {linked.A:.4f} theta + {linked.B:.4f}"]
    n_outliers, n = int(linked.items["outlier"].sum()), len(linked.items)
    if n_outliers:
        reason = "robust z beyond 2.7"
        if "influence" in linked.items:
            reason += ", or A and B move without the item"
        text += [f"Outliers: {n_outliers} of {n} common items ({reason})"]
    return Output(
        document, [*text, *linked.notes], table=linked.items, next=("score", o.out, "RESPONSES")
    )

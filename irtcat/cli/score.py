"""``irtcat score``."""

from pathlib import Path

from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import BANK, MISMATCH, RESPONSES, option, result
from irtcat.cli._output import SUMMARY_ROWS, records

EXAMPLE = (
    "irtcat fit dataset:lsat7",
    "irtcat score bank.npz dataset:lsat7 --method eap --out scores.csv",
)


@command_of(
    "irtcat.score",
    BANK,
    RESPONSES,
    option("method", choices="irtcat.scoring.METHODS"),
    option(
        "prior",
        type=Path,
        read=_input.feature_table("subjects"),
        help="CSV table of subjects, ids first, columns mean and sd: what else is known.",
    ),
    option(
        "groups",
        help="Column of the subjects with the groups of the bank: each group's "
        "population is the prior. In --subjects or the metadata.",
    ),
    option(
        "subjects",
        source="",
        type=Path,
        needs="groups COLUMN",
        help="CSV table of the subjects, ids first.",
    ),
    "level",
    MISMATCH,
    result("scores.csv"),
)
def command(o: Options) -> Output:
    """Estimate abilities, with standard errors and intervals."""
    groups = o.groups
    if o.subjects is not None:
        groups = _input.table_column(o.subjects, o.groups, "subjects")
    ability = o.call(groups=groups)
    frame = ability.to_frame()
    o.write("out", frame, "scores")
    about = {"method": o.method, "level": o.level, "n_subjects": len(frame), "out": o.out}
    about |= {"note": ability.note} if ability.note else {}
    best = frame.sort_values(frame.columns[0], ascending=False, kind="stable")
    n = len(frame)
    subjects = "1 subject" if n == 1 else f"{n} subjects, the best first"
    text = [
        f"{subjects} (method {o.method}, {o.level:.0%} intervals)",
        Table(best, rows=SUMMARY_ROWS, decimals=2),
        *([f"{ability.note[0].upper()}{ability.note[1:]}: see --groups."] if ability.note else []),
    ]
    after = ("report", o.unread["bank"], o.out)
    return Output({**about, "subjects": records(frame)}, text, table=frame, next=after)

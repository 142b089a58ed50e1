"""``irtcat score``."""

from dataclasses import replace
from pathlib import Path
from typing import Union

import irtcat
from irtcat._common.errors import InputError
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import BANK, MISMATCH, PRIOR, RESPONSES, option, own, result
from irtcat.cli._output import SUMMARY_ROWS

EXAMPLE = (
    "irtcat fit dataset:lsat7",
    "irtcat score bank.npz dataset:lsat7 --method eap --out scores.csv",
)


def _bank_or_scales(path: "str | Path") -> Union["irtcat.ItemBank", Path]:
    """A bank, or the folder of several scales."""
    return Path(path) if Path(path).is_dir() else _input.read_bank(path)


@command_of(
    "irtcat.score",
    replace(
        BANK,
        read=_bank_or_scales,
        help="Bank written by irtcat fit, or the folder of irtcat scale: every subject on every "
        "scale, with percentile and accuracy.",
    ),
    RESPONSES,
    option("method", choices="irtcat.scoring.METHODS"),
    PRIOR,
    option(
        "groups",
        help="Column of the subjects with the groups of the bank: each group's "
        "population is the prior. In --subjects or the metadata.",
    ),
    own("subjects", type=Path, needs="groups COLUMN", help="CSV table of the subjects, ids first."),
    "level",
    MISMATCH,
    result("scores.csv"),
)
def command(o: Options) -> Output:
    """Estimate abilities, with standard errors and intervals."""
    if isinstance(o.bank, Path):
        return _on_scales(o)
    groups = o.groups
    if o.subjects is not None:
        groups = _input.table_column(o.subjects, o.groups, "subjects")
    ability = o.call(groups=groups)
    frame = ability.to_frame()
    o.write("out", frame.assign(level=o.level), "scores")
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
    return Output({**about, "subjects": frame}, text, table=frame, next=after)


def _on_scales(o: Options) -> Output:
    """Every subject on every scale of a folder."""
    if o.prior is not None or o.groups is not None:
        raise InputError(
            f"--prior and --groups are for one bank. Got the folder {o.bank} of scales. "
            "Leave them out, or name one of its banks."
        )
    table = irtcat.scale.apply(o.bank, o.responses, o.method, level=o.level, mismatch=o.mismatch)
    table = table.reset_index()
    o.write("out", table, "scores")
    about = {"method": o.method, "level": o.level, "n_subjects": table["subject"].nunique()}
    about |= {"scales": table["scale"].unique().tolist(), "out": o.out}
    text = [
        f"{about['n_subjects']} subjects on {len(about['scales'])} scales (method {o.method})",
        Table(table, rows=SUMMARY_ROWS, decimals=2),
    ]
    return Output({**about, "subjects": table}, text, table=table)

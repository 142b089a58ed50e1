"""``irtcat votes``."""

from typing import TYPE_CHECKING

import typer

import irtcat
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import argument, option, output, result
from irtcat.cli._output import SUMMARY_ROWS

if TYPE_CHECKING:
    import pandas as pd

EFFECTS = ("consistency", "position", "length")

EXAMPLE = (
    "irtcat votes votes.csv",
    "irtcat votes votes.csv --effects position --judges judges.csv --out ranks.csv",
)


def _effects(text: str) -> list[str]:
    """Parse the names of effects."""
    names = [] if text == "none" else _input.split_texts(text)
    for name in names:
        if name not in EFFECTS:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(EFFECTS)}, none.")
    return names


@command_of(
    "irtcat.leaderboard.judged_abilities",
    argument(
        "judgements",
        read=lambda path: irtcat.io.read_judgements(path),
        help="Votes of Arena, MT-bench or AlpacaEval (JSON, CSV, Parquet), or a table with the "
        "columns a, b, outcome, or subject, grade, and perhaps judge and item.",
    ),
    option(
        "effects",
        parse=_effects,
        help="What differs between judges, comma-separated: consistency, position, length; or "
        "none. By default consistency,position.",
    ),
    "gold",
    "anchor",
    "prior",
    "level",
    output("judges", help="Write the table of the judges (CSV)."),
    output("win_rates", help="Write how often each subject wins over each other (CSV)."),
    result("abilities.csv"),
)
def command(o: Options) -> Output:
    """Rank subjects by judges' votes between two answers, and grades."""
    found = o.call()
    frame = found.to_frame()
    o.write("out", frame, "abilities")
    o.write("judges", found.judges, "judges")
    o.write("win_rates", found.win_rates, "win rates")
    document = {"flags": found.flags, "level": o.level, "out": o.out, "judges": found.judges}
    text = [
        str(found),
        Table(_informative(frame), decimals=2, rows=SUMMARY_ROWS),
        Table(_informative(found.judges).filter(regex="(?<!_se)$"), "The judges", 2, SUMMARY_ROWS),
    ]
    return Output({**document, "subjects": frame}, text, table=frame, flags=found.flags)


def _informative(table: "pd.DataFrame") -> "pd.DataFrame":
    """Without columns that are 0 or missing in all rows, such as those of grades."""
    return table.loc[:, (table.fillna(0) != 0).any()]

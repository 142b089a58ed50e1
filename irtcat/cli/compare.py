"""``irtcat compare``."""

import sys
from typing import Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show, write_csv
from irtcat.cli._session import warn

EXAMPLE = (
    "irtcat select -k 100 --strategy random --responses dataset:digits_crowd --out items.csv",
    "irtcat compare dataset:digits_crowd items.csv dataset:digits_crowd "
    "--old knn-k1-n400-noise0-01 --new adaboost-30xdepth4-n400-noise0-20",
)

WORSE = 3


def command(
    calibration: Annotated[
        str, typer.Argument(metavar="CALIBRATION", help=arguments.RESPONSES_HELP)
    ],
    subset: Annotated[
        str, typer.Argument(metavar="SUBSET", help="The items run: CSV table with a column item.")
    ],
    responses: arguments.ResponsesArgument,
    new: Annotated[
        str | None, typer.Option(help="Id of the new model; by default the last of RESPONSES.")
    ] = None,
    old: Annotated[
        str | None,
        typer.Option(help="Id of the old model, there or in CALIBRATION; by default the first."),
    ] = None,
    method: Annotated[str, typer.Option(help="auto, paired or assisted.")] = "auto",
    level: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.95,
    gate: Annotated[
        bool, typer.Option("--gate", help=f"Exit with {WORSE} if the verdict is worse.")
    ] = False,
    out: arguments.Out = None,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
    trials: arguments.Trials = None,
) -> None:
    """Test whether a new model is better or worse than an old one."""
    from irtcat import leaderboard
    from irtcat._files import check_target
    from irtcat.leaderboard.comparison import METHODS

    arguments.choose("--method", method, METHODS)
    if out is not None:
        check_target(out)
    options = arguments.Reading.of(locals())
    known, answers = arguments.read(calibration, options), arguments.read(responses, options)
    items = arguments.read_subset(subset)
    result = leaderboard.compare(known, items, answers, new, old, method=method, level=level)
    if out is not None:
        write_csv(result.to_frame(), out)
    if as_json:
        emit_json({**records(result.to_frame())[0], "flags": result.flags, "out": out})
    else:
        for flag in result.flags:
            warn(flag)
        say(result)
        show(result.to_frame().drop(columns=["verdict", "flags"]))
    if gate and result.verdict == "worse":
        sys.exit(WORSE)

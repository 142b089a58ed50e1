"""``irtcat compare``."""

from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import CALIBRATION, MISMATCH, RESPONSES, SUBSET, option, result
from irtcat.cli._output import figures, records
from irtcat.cli._session import warn

EXAMPLE = (
    "irtcat select -k 100 --strategy random --responses dataset:digits_crowd",
    "irtcat compare dataset:digits_crowd items.csv dataset:digits_crowd "
    "--old knn-k1-n400-noise0-01 --new adaboost-30xdepth4-n400-noise0-20",
)

WORSE = 3


@command_of(
    "irtcat.leaderboard.compare",
    CALIBRATION,
    SUBSET,
    RESPONSES,
    "new",
    "old",
    option("method", choices="irtcat.leaderboard.comparison.METHODS"),
    "level",
    MISMATCH,
    option("gate", type=bool, default=False, help=f"Exit with {WORSE} if the verdict is worse."),
    result("comparison.csv"),
    compiles=False,
)
def command(o: Options) -> Output:
    """Test whether a new model is better or worse than an old one."""
    comparison = o.call()
    frame = comparison.to_frame()
    o.write("out", frame, "comparison")
    if not o.for_programs:
        for flag in comparison.flags:
            warn(flag)
    shown = frame.drop(columns=["verdict", "flag"]).iloc[0].to_dict()
    return Output(
        {**records(frame.drop(columns="flag"))[0], "flags": comparison.flags, "out": o.out},
        [str(comparison), figures(shown)],
        WORSE if o.gate and comparison.verdict == "worse" else 0,
        table=frame,
        next=("report", o.out),
    )

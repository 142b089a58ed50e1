"""``irtcat compare``."""

from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import CALIBRATION, OUT, RESPONSES, SUBSET, option
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
    option("gate", type=bool, default=False, help=f"Exit with {WORSE} if the verdict is worse."),
    OUT,
    compiles=False,
)
def command(o: Options) -> Output:
    """Test whether a new model is better or worse than an old one."""
    result = o.call()
    frame = result.to_frame()
    o.write("out", frame)
    if not o.for_programs:
        for flag in result.flags:
            warn(flag)
    shown = frame.drop(columns=["verdict", "flags"]).iloc[0].to_dict()
    return Output(
        {**records(frame)[0], "flags": result.flags, "out": o.out},
        [str(result), figures(shown)],
        WORSE if o.gate and result.verdict == "worse" else 0,
        table=frame,
    )

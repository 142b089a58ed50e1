"""``irtcat compare``."""

from typing import Any

from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import CALIBRATION, OUT, RESPONSES, SUBSET, option
from irtcat.cli._output import records
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
    return Output(
        {**records(frame)[0], "flags": result.flags, "out": o.out},
        [str(result), _fields(frame)],
        WORSE if o.gate and result.verdict == "worse" else 0,
        table=frame,
    )


def _fields(frame: Any) -> Any:
    """The figures of the only row, one a line."""
    from irtcat.cli._columns import column_of

    names = [name for name in frame.columns if name not in ("verdict", "flags")]
    labels = [column_of(name).heading for name in names]
    return frame[names].T.set_axis(["value"], axis=1).set_axis(labels).rename_axis("figure")

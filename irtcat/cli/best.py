"""``irtcat best``."""

from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import CLUSTERS, RERUNS, RESPONSES, SEED, option, result
from irtcat.cli._output import records

EXAMPLE = ("irtcat best dataset:digits_crowd",)


@command_of(
    "irtcat.leaderboard.best",
    RESPONSES,
    option(
        "estimand",
        choices="irtcat.leaderboard.best_of.BEST_OF",
        help="Whose scores: {names} (the models over reruns, items like these).",
    ),
    CLUSTERS,
    RERUNS,
    "level",
    SEED,
    result("best.csv"),
    compiles=False,
)
def command(o: Options) -> Output:
    """Estimate the score of the best of several models, corrected for the choice.

    The highest of many scores is too high: the model was chosen for it.
    """
    found = o.call()
    frame = found.to_frame()
    o.write("out", frame, "best")
    return Output(
        {**records(frame.drop(columns="flag"))[0], "flags": found.flags, "out": o.out},
        [str(found)],
        table=frame,
        flags=found.flags,
        next=("report", o.out),
    )

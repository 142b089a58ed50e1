"""``irtcat groups``."""

from dataclasses import replace

from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import CLUSTERS, ESTIMAND, RERUNS, RESPONSES, SEED, option, result
from irtcat.cli._output import SUMMARY_ROWS

EXAMPLE = ("irtcat groups dataset:digits_crowd",)

SHARES = ("score", "lower", "upper")


@command_of(
    "irtcat.leaderboard.groups",
    RESPONSES,
    replace(
        ESTIMAND,
        help="Whose scores: {names} (these runs, the models over reruns, items like these).",
    ),
    option("adjust", choices="irtcat.leaderboard.grouping.ADJUSTMENTS"),
    CLUSTERS,
    RERUNS,
    "level",
    SEED,
    result("groups.csv"),
    compiles=False,
)
def command(o: Options) -> Output:
    """Find which models of a leaderboard cannot be distinguished.

    Two models that share a letter cannot be distinguished; the rank intervals hold together.
    """
    found = o.call()
    frame = found.to_frame()
    o.write("out", frame.assign(estimand=found.estimand, level=o.level), "groups")
    return Output(
        {"estimand": found.estimand, "flags": found.flags, "out": o.out, "models": frame},
        [str(found), Table(frame, rows=SUMMARY_ROWS, percent=SHARES)],
        table=frame,
        flags=found.flags,
        next=("report", o.out),
    )

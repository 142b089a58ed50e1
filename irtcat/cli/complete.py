"""``irtcat complete``."""

from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import MODEL_FEATURES, SCORES, UNITS, result
from irtcat.cli._output import SUMMARY_ROWS

PROBES = 5
"""Benchmarks in the next command that is printed; half of few."""

EXAMPLE = ("irtcat complete scores.csv --level 0.9 --out completed.csv",)


@command_of(
    "irtcat.leaderboard.complete",
    SCORES,
    UNITS,
    MODEL_FEATURES,
    "level",
    result("completed.csv"),
    compiles=False,
)
def command(o: Options) -> Output:
    """Predict the scores of models on benchmarks that they have not been run on."""
    completion = o.call()
    frame = completion.to_frame()
    o.write("out", frame, "scores")
    predicted = frame[~frame["observed"]].drop(columns="observed")
    document = {"level": o.level, "flags": completion.flags, "out": o.out, "scores": frame}
    text = [f"{completion}", Table(predicted, "Predicted scores", 1, SUMMARY_ROWS)]
    n_probes = min(PROBES, len(completion.benchmarks) // 2)
    after = ("probe", o.unread["scores"], "-k", n_probes, *_input.score_words(o.unread))
    return Output(document, text, table=frame, flags=completion.flags, next=after)

"""``irtcat probe``."""

from functools import partial

from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import MODEL_FEATURES, SCORES, UNITS, option, result, texts

EXAMPLE = (
    "irtcat probe scores.csv -k 2",
    "irtcat probe scores.csv -k 2 --costs maths=1,code=30,chat=5 --budget 31 --out next.csv",
)


@command_of(
    "irtcat.leaderboard.probe",
    SCORES,
    option("n_benchmarks", "-k", "--n-benchmarks", min=1),
    option(
        "costs",
        read=partial(_input.named_numbers, column="cost"),
        help="Costs as BENCHMARK=COST,... or a CSV table, benchmarks first, column cost.",
    ),
    "budget",
    "model",
    texts("candidates", help="Comma-separated benchmarks that can be run; by default all."),
    UNITS,
    MODEL_FEATURES,
    result("probes.csv"),
    compiles=False,
)
def command(o: Options) -> Output:
    """Choose the benchmarks to run next: those that say most about all others."""
    plan = o.call()
    frame = plan.to_frame()
    o.write("out", frame, "plan")
    document = {"error_before": plan.error_before, "flags": plan.flags, "out": o.out}
    before = f"Expected error before, in percent of the scale: {plan.error_before:.1f}"
    after = ("complete", o.unread["scores"], *_input.score_words(o.unread))
    text = [before, Table(frame, decimals=1)]
    return Output(
        {**document, "benchmarks": frame}, text, table=frame, flags=plan.flags, next=after
    )

"""``irtcat leaderboard``."""

import re
from pathlib import Path
from typing import Any

import typer

from irtcat import leaderboard, plot, selection
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import EXPECT, FIGURE, MODEL, RESPONSES, option, own, result
from irtcat.cli._output import warn

EXAMPLE = ("irtcat leaderboard dataset:lsat7 --strategies random,fisher -k 2,3 --seeds 2",)

SHOWN = ("kendall", "spearman", "mae", "pairwise_2_to_5", "coverage", "width", "gap", "flag")


def _split(text: str) -> str:
    """Check how subjects are held out."""
    prefix, _, column = text.partition(":")
    by_column = prefix in ("metadata", "before", "leave-out") and column
    if not by_column and text not in ("random", "ability"):
        raise typer.BadParameter(f"{text!r} is not one of random, ability.")
    return text


@command_of(
    "irtcat.leaderboard.evaluate",
    RESPONSES,
    option(
        "strategies",
        choices="all",
        listed="irtcat.STRATEGIES",
        help="Comma-separated, such as balanced,stratified,random (the default), or all; one "
        "by one: {names}.",
    ),
    EXPECT,
    option(
        "n_items",
        "-k",
        "--n-items",
        parse=_input.split_counts,
        help="Comma-separated numbers of items.",
    ),
    option(
        "split",
        parse=_split,
        help="Subjects to hold out: random, the best (ability), or by a subject column: groups "
        "(metadata:COLUMN), the latest (before:COLUMN), each group in turn (leave-out:COLUMN).",
    ),
    option("seeds", type=int, default=5, min=1, help="Number of seeds: 0, 1, …."),
    option(
        "estimators",
        choices="all",
        listed="irtcat.ESTIMATORS",
        help="all, or comma-separated: {names}.",
    ),
    MODEL,
    "share",
    "tau",
    "level",
    option("top", min=1),
    option("confidence", source="irtcat.leaderboard.reliable_gaps"),
    option("error", source="irtcat.leaderboard.recommend", min=0.01),
    own(
        "bootstrap",
        choices="subjects items both",
        help="Add bootstrap intervals over {names} to the summary.",
    ),
    own(
        "metric",
        default="kendall",
        choices="irtcat.leaderboard.METRICS gap",
        help="Metric of the figure: {names}.",
    ),
    own("subjects", type=Path, help="CSV of the subjects, ids first, with the split's column."),
    result("leaderboard.csv"),
    FIGURE,
)
def command(o: Options) -> Output:
    """Measure how well a few items reproduce the full ranking.

    Some subjects are held out; their full scores are predicted from their answers to k items.
    """
    data = o.responses
    if o.subjects is not None:
        data = _input.with_subjects(data, o.subjects, o.split.partition(":")[2])
    board = o.call(responses=data, seeds=range(o.seeds))
    gaps = leaderboard.reliable_gaps(board, o.confidence)
    advice = leaderboard.recommend(board, o.error)
    table = board.to_frame()
    summary = board.summary().assign(gap=gaps["gap"])
    if o.bootstrap is not None:
        summary = summary.join(board.intervals(o.bootstrap).drop(columns="flag"))
    o.write("out", table, "table")
    if o.figure is not None:
        by_gap = o.metric == "gap"
        figure = plot.reliable_gaps(gaps) if by_gap else plot.rank_correlation(summary, o.metric)
        o.write("figure", figure, "figure")
    for note in board.flags:
        warn(note)
    for flag, count in table.loc[table["flag"] != "", "flag"].value_counts().items():
        warn(f"{count} of {len(table)} rows are flagged {flag!r}.")
    document = {"out": o.out, "figure": o.figure, "rows": table}
    document |= {"recommendation": advice.to_json(), "summary": summary}
    columns = [name for name in summary if re.sub("_(lower|upper)$", "", name) in SHOWN]
    shown = Table(summary[columns], decimals=3 if o.bootstrap is None else 2)
    text = [shown, *advice.sentences()]
    after = _selection(o, advice)
    return Output(document, text, table=summary, next=after)


def _selection(o: Options, advice: "leaderboard.Recommendation") -> tuple[Any, ...]:
    """The command that selects items as recommended."""
    n_items = advice.n_items or int(advice.measured[-1]["n_items"])
    bank = ["BANK"] if "bank" in selection.STRATEGIES[advice.strategy].needs else []
    strategy = (
        ["--strategy", advice.strategy] if advice.strategy != selection.DEFAULT_STRATEGY else []
    )
    source = ("--responses", o.unread["responses"], *o.reading_words)
    expect = ["--expect", o.expect] if o.expect else []
    return ("select", *bank, "-k", n_items, *strategy, *expect, *source)

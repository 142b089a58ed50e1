"""``irtcat plan``."""

from dataclasses import replace

import typer

from irtcat._common.numbers import number_in
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import ESTIMAND, EXPECT, RERUNS, RESPONSES, SEED, option, result
from irtcat.cli._output import fields_of

EXAMPLE = (
    "irtcat plan dataset:digits_crowd --gap 2 --confidence 0.8",
    "irtcat plan dataset:digits_crowd --gap 6 --aim verdict --reruns 0.7 --costs 3,1 "
    "--designs random --out split.csv",
)


def _points(gap: float) -> float:
    """Check a gap."""
    if not 0 < gap < 100:
        raise typer.BadParameter(f"{gap:g} is not a number of points between 0 and 100.")
    return gap


def _costs(text: str) -> tuple[float, ...]:
    """The costs of an item and of a trial."""
    numbers = [number_in(part) for part in text.split(",")]
    if len(numbers) != 2 or None in numbers:
        raise typer.BadParameter(f"{text!r} is not ITEM,TRIAL, two numbers.")
    return tuple(number for number in numbers if number is not None)


@command_of(
    "irtcat.leaderboard.plan",
    RESPONSES,
    option("gap", default=2.0, parse=_points, help="Gap between two full scores, in points."),
    "confidence",
    option(
        "designs", listed="irtcat.leaderboard.planning.DESIGNS", help="Comma-separated: {names}."
    ),
    option(
        "aim",
        choices="irtcat.leaderboard.planning.AIMS",
        help="What --confidence is the probability of: {names} (order: the two are ranked "
        "right; verdict: a 95 % interval of the difference lies on the right side of 0).",
    ),
    EXPECT,
    replace(
        ESTIMAND,
        help="Whose scores the gap is of: {names} (these runs, the models over reruns, items "
        "like these); by default model with --reruns, else run.",
    ),
    replace(
        RERUNS,
        help="Noise of reruns: a file of responses with repeated trials, or an ICC from 0 to 1 "
        "(the correlation of two runs over items; 1: deterministic).",
    ),
    option(
        "costs",
        type=str,
        default=None,
        parse=_costs,
        metavar="ITEM,TRIAL",
        needs="reruns",
        help="Cost of an item, whatever its number of trials, and of a trial of it; by default "
        "0,1.",
    ),
    option("budget", needs="reruns", help="What each subject may cost; no limit by default."),
    option("max_trials", min=1),
    SEED,
    result("plan.csv"),
    compiles=False,
)
def command(o: Options) -> Output:
    """Estimate the items needed to rank two subjects reliably."""
    plan = o.call(gap=o.gap / 100, designs=tuple(o.designs))
    frame = plan.to_frame()
    o.write("out", frame.assign(estimand=plan.estimand), "table")
    n_items = int(frame["n_items"].max())
    expect = ("--expect", o.expect) if o.expect else ()
    source = ("--responses", o.unread["responses"], *o.reading_words)
    after = ("select", "-k", n_items, *expect, *source)
    document = {**fields_of(o, "gap", "confidence", "expect"), "n_items": plan.n_items}
    document |= {"aim": o.aim, **fields_of(plan, "estimand", "n_pairs", "flags"), "out": o.out}
    document["designs"], text = frame, [str(plan), frame]
    if plan.splits is not None:
        document["splits"] = plan.splits
        text.append(Table(plan.splits.drop(columns="best"), "Items and trials of each"))
    return Output(document, text, table=frame, flags=plan.flags, next=after)

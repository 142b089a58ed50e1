"""``irtcat plan``."""

from typing import Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show, write_csv
from irtcat.cli._session import warn

EXAMPLE = ("irtcat plan dataset:digits_crowd --gap 2 --confidence 0.8",)


def command(
    responses: arguments.ResponsesArgument,
    gap: Annotated[float, typer.Option(help="Gap between two full scores, in points.")] = 2.0,
    confidence: Annotated[
        float, typer.Option(help="Probability with which the gap is to be ranked right.")
    ] = 0.8,
    designs: Annotated[str, typer.Option(help="Comma-separated: random, stratified.")] = (
        "random,stratified"
    ),
    seed: arguments.Seed = 0,
    out: arguments.Out = None,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
    trials: arguments.Trials = None,
) -> None:
    """Estimate the items needed to rank two subjects reliably."""
    from irtcat import leaderboard
    from irtcat._files import check_target
    from irtcat.leaderboard.planning import DESIGNS

    if not 0 < gap < 100:
        must = f"{gap:g} is not a number of points between 0 and 100."
        raise typer.BadParameter(must, param_hint="--gap")
    names = arguments.split_names("--designs", designs, DESIGNS)
    if out is not None:
        check_target(out)
    options = arguments.Reading.of(locals())
    data = arguments.read(responses, options)
    plan = leaderboard.plan(data, gap / 100, confidence, designs=tuple(names), seed=seed)
    if out is not None:
        write_csv(plan.to_frame(), out)
    for flag in plan.flags:
        warn(flag)
    if as_json:
        about = {"gap": gap, "confidence": confidence, "n_items": plan.n_items}
        more = {"n_pairs": plan.n_pairs, "flags": plan.flags, "out": out}
        emit_json({**about, **more, "designs": records(plan.to_frame())})
        return
    say(plan)
    show(plan.to_frame())
    if out is not None:
        say(f"Wrote the table to {out}")

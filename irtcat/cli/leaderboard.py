"""``irtcat leaderboard``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, show, write_csv
from irtcat.cli._session import progress, use_compilation_cache, warn

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE = (
    "irtcat leaderboard dataset:lsat7 --strategies random,fisher --k 2,3 --seeds 2 --out table.csv",
)


def command(
    responses: arguments.ResponsesArgument,
    strategies: Annotated[
        str, typer.Option(help=f"Comma-separated: {arguments.STRATEGIES_HELP}.")
    ] = "random,stratified,fisher",
    k: Annotated[str, typer.Option("--k", "-k", help="Comma-separated numbers of items.")] = (
        "10,30,60,100"
    ),
    split: Annotated[
        str,
        typer.Option(
            help="What is held out: random subjects, the best ones (ability), or groups by a "
            "subject column (metadata:COLUMN)."
        ),
    ] = "random",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds: 0, 1, ….")] = 5,
    estimators: Annotated[
        str, typer.Option(help="Comma-separated: mean, weighted, irt.")
    ] = "mean,irt",
    model: arguments.Model = "2pl",
    share: Annotated[float, typer.Option(help="Share of the subjects held out.")] = 0.25,
    tau: arguments.Tau = None,
    out: arguments.Out = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the rank correlation here (.png, .svg, .pdf).")
    ] = None,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
    trials: arguments.Trials = None,
) -> None:
    """Measure how well a few items keep the full ranking.

    Some subjects are held out; their full scores are told from their answers to k items.
    """
    import irtcat
    from irtcat import leaderboard, plot
    from irtcat._files import check_target

    names = arguments.split_names("--strategies", strategies, irtcat.STRATEGIES)
    wanted = arguments.split_names("--estimators", estimators, irtcat.ESTIMATORS)
    ks = arguments.split_counts("--k", k)
    arguments.choose("--model", model, arguments.one_ability_models())
    if not split.startswith("metadata:"):
        arguments.choose("--split", split, ("random", "ability"))
    if out is not None:
        check_target(out)
    if figure is not None:
        plot.check_figure_path(figure)
    use_compilation_cache()
    how = arguments.Reading(format, subject, item, response, duplicates, trials)
    data = arguments.read(responses, how)
    with progress("Compiling") as tick:
        board = leaderboard.evaluate(
            data,
            names,
            ks,
            split,
            range(seeds),
            model=model,
            estimators=wanted,
            share=share,
            tau=tau,
            progress=tick,
        )
    table = board.to_frame()
    if out is not None:
        write_csv(table, out)
    if figure is not None:
        plot.save(plot.rank_correlation(board.summary()), figure)
    for flag, count in table.loc[table["flags"] != "", "flags"].value_counts().items():
        warn(f"{count} of {len(table)} rows are flagged {flag!r}.")
    _report(table, board.summary(), out, figure, as_json)


def _report(
    table: "pd.DataFrame",
    summary: "pd.DataFrame",
    out: Path | None,
    figure: Path | None,
    as_json: bool,
) -> None:
    """The mean over seeds, and where the rest is."""
    if as_json:
        emit_json(
            {"out": out, "figure": figure, "rows": records(table), "summary": records(summary)}
        )
        return
    spread = summary.columns.str.endswith(("_sd", "_se"))
    show(summary.loc[:, ~spread].assign(kendall_sd=summary["kendall_sd"]))
    for what, path in (("table", out), ("figure", figure)):
        if path is not None:
            print(f"Wrote the {what} to {path}")

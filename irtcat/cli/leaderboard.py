"""``irtcat leaderboard``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show, write_csv
from irtcat.cli._session import progress, use_compilation_cache, warn

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE = (
    "irtcat leaderboard dataset:lsat7 --strategies random,fisher -k 2,3 --seeds 2 --out table.csv",
)

SHOWN = ("kendall", "spearman", "mae", "pairwise_2_to_5", "coverage", "width", "gap", "flags")
ENDS = ("_lower", "_upper")


def command(
    responses: arguments.ResponsesArgument,
    strategies: Annotated[
        str, typer.Option(help=f"all, or comma-separated: {arguments.STRATEGIES_HELP}.")
    ] = "all",
    n_items: Annotated[
        str, typer.Option("-k", "--n-items", help="Comma-separated numbers of items.")
    ] = ("10,30,60,100"),
    split: Annotated[
        str,
        typer.Option(
            help="Subjects to hold out: random, the best (ability), or by a subject "
            "column: groups (metadata:COLUMN), the latest (before:COLUMN), each group in turn "
            "(leave-out:COLUMN)."
        ),
    ] = "random",
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, ….")] = 5,
    estimators: Annotated[
        str, typer.Option(help=f"all, or comma-separated: {arguments.ESTIMATORS_HELP}.")
    ] = "all",
    model: arguments.Model = "2pl",
    share: Annotated[float, typer.Option(help="Share of the subjects held out.")] = 0.25,
    tau: arguments.Tau = None,
    level: Annotated[float, typer.Option(help="Probability of the predictions' intervals.")] = (
        0.95
    ),
    top: Annotated[int, typer.Option(min=1, help="Number of best subjects (top_overlap).")] = 10,
    confidence: Annotated[
        float, typer.Option(help="Probability that the smallest reliable gap is ranked right.")
    ] = 0.8,
    bootstrap: Annotated[
        str | None,
        typer.Option(help="Add bootstrap intervals over subjects, items or both to the summary."),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric of the figure; or gap.")] = "kendall",
    subjects: Annotated[
        Path | None, typer.Option(help="CSV of the subjects, ids first, with the split's column.")
    ] = None,
    out: arguments.Out = None,
    figure: Annotated[
        Path | None, typer.Option(help="Plot the metric against k to this file (.png, .svg, .pdf).")
    ] = None,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
    trials: arguments.Trials = None,
) -> None:
    """Measure how well a few items reproduce the full ranking.

    Some subjects are held out; their full scores are predicted from their answers to k items.
    """
    import irtcat
    from irtcat import leaderboard, plot
    from irtcat._files import check_target

    names: str | list[str] = strategies
    if strategies != leaderboard.ALL:
        names = arguments.split_names("--strategies", strategies, irtcat.STRATEGIES)
    estimator_names: str | list[str] = estimators
    if estimators != leaderboard.ALL:
        estimator_names = arguments.split_names("--estimators", estimators, irtcat.ESTIMATORS)
    sizes = arguments.split_counts("--n-items", n_items)
    arguments.choose("--model", model, arguments.one_ability_models())
    prefix, _, column = split.partition(":")
    if prefix not in ("metadata", "before", "leave-out") or not column:
        arguments.choose("--split", split, ("random", "ability"))
    arguments.choose("--metric", metric, (*leaderboard.METRICS, "gap"))
    if bootstrap is not None:
        arguments.choose("--bootstrap", bootstrap, ("subjects", "items", "both"))
    if out is not None:
        check_target(out)
    if figure is not None:
        plot.check_figure_path(figure)
    use_compilation_cache()
    options = arguments.Reading.of(locals())
    data = arguments.read(responses, options)
    if subjects is not None:
        data = arguments.with_subjects(data, subjects, column)
    with progress("Compiling") as report:
        board = leaderboard.evaluate(
            data,
            names,
            sizes,
            split,
            range(seeds),
            model=model,
            estimators=estimator_names,
            share=share,
            tau=tau,
            level=level,
            top=top,
            progress=report,
        )
        gaps = leaderboard.reliable_gaps(board, confidence)
    table = board.to_frame()
    summary = board.summary().assign(gap=gaps["gap"])
    if bootstrap is not None:
        ends = board.intervals(bootstrap).drop(columns="flags")
        summary = summary.join(ends)
    if out is not None:
        write_csv(table, out)
    if figure is not None:
        gap_figure = plot.reliable_gaps(gaps) if metric == "gap" else None
        plot.save(gap_figure or plot.rank_correlation(summary, metric), figure)
    for note in board.flags:
        warn(note)
    for flag, count in table.loc[table["flags"] != "", "flags"].value_counts().items():
        warn(f"{count} of {len(table)} rows are flagged {flag!r}.")
    _report(table, summary, out, figure, as_json)


def _report(
    table: "pd.DataFrame",
    summary: "pd.DataFrame",
    out: Path | None,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Print the means over seeds and the paths of the files."""
    if as_json:
        emit_json(
            {"out": out, "figure": figure, "rows": records(table), "summary": records(summary)}
        )
        return
    spread = summary.columns.str.endswith(("_sd", "_se"))
    ends = summary.columns.str.endswith(("_lower", "_upper"))
    shown = [name for name in SHOWN if name in summary]
    keep = summary.columns.isin([*shown, *(f"{name}{e}" for name in shown for e in ENDS)])
    show(summary.loc[:, keep & ~spread], decimals=2 if ends.any() else 3)
    for kind, path in (("table", out), ("figure", figure)):
        if path is not None:
            say(f"Wrote the {kind} to {path}")

"""``irtcat select``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show, write_csv
from irtcat.cli._session import use_compilation_cache

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    "irtcat select bank.npz -k 3 --strategy fisher --responses dataset:lsat7 --out items.csv",
    "irtcat select -k 3 --strategy stratified --responses dataset:lsat7 --seed 1",
    "irtcat select -k 3 --responses dataset:lsat7",
)


def command(
    n_items: Annotated[int, typer.Option("-k", "--n-items", min=1, help="Number of items.")],
    bank: Annotated[
        str | None,
        typer.Argument(
            metavar="BANK",
            help="Bank written by irtcat fit; optional with --responses, except for kmeans-irt, "
            "fisher, information, minimax, d-optimal, discrimination, avi, avo, ub and lb.",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help=f"{arguments.STRATEGIES_HELP}; by default balanced with --responses, fisher "
            "without.",
            show_default=False,
        ),
    ] = None,
    responses: arguments.ResponsesOption = None,
    theta: Annotated[
        float | None, typer.Option(help="Target ability of information; by default the mean.")
    ] = None,
    theta_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lowest and highest ability of minimax; by default mean +- 2 SD."),
    ] = None,
    tau: arguments.Tau = None,
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the items sampled by robust.")
    ] = 0.5,
    allowed: Annotated[
        Path | None, typer.Option(help="File of the items allowed, one id per line.")
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(help="CSV table of the items (ids in the first column) with their columns."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="Column of each item's group, in --items or the metadata."),
    ] = None,
    quotas: Annotated[
        str | None,
        typer.Option(help="Items of each group: algebra=3,reading=2:5 (a number, or FEWEST:MOST)."),
    ] = None,
    costs: Annotated[
        str | None, typer.Option(help="Column of each item's cost, in --items or the metadata.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Maximum total cost; -k is then the maximum number of items."),
    ] = None,
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
    """Select the items to run."""
    import irtcat
    from irtcat._files import check_target

    if strategy is not None:
        arguments.choose("--strategy", strategy, irtcat.STRATEGIES)
    by_group = None if quotas is None else arguments.split_quotas("--quotas", quotas)
    if bank is None and responses is None:
        raise typer.BadParameter("give a BANK, --responses, or both.", param_hint="BANK")
    if out is not None:
        check_target(out)
    use_compilation_cache()
    options = arguments.Reading.of(locals())
    loaded = None if bank is None else arguments.read_bank(bank)
    data = None if responses is None else arguments.read(responses, options)
    subset = irtcat.select(
        loaded,
        n_items,
        strategy=strategy,
        calibration=data,
        seed=seed,
        theta=theta,
        theta_range=theta_range,
        tau=tau,
        allowed=None if allowed is None else arguments.read_lines(allowed),
        groups=_column(items, groups),
        quotas=by_group,
        costs=_column(items, costs),
        budget=budget,
        share=share,
    )
    frame = subset.to_frame()
    if out is not None:
        # Strategy and seed are stored only if they suffice to repeat the selection.
        repeatable = not (allowed or quotas or costs) and tau is None and share == 0.5
        write_csv(frame.assign(strategy=subset.strategy, seed=seed) if repeatable else frame, out)
    if as_json:
        about = {
            "strategy": subset.strategy,
            "n_items": n_items,
            "seed": seed,
            "theta": theta,
            "tau": tau,
        }
        about |= {"theta_range": theta_range, "share": share, "groups": groups, "quotas": by_group}
        about |= {"costs": costs, "budget": budget}
        emit_json({**about, "out": out, "items": records(frame)})
    elif out is None:
        show(frame)
    else:
        say(f"{subset}; wrote them to {out}")


def _column(items: Path | None, name: str | None) -> Any:
    """Read the column of the items' table; without a table, its name in the metadata."""
    if items is None or name is None:
        return name
    return arguments.table_column(items, name, "items")

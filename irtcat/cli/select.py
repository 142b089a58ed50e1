"""``irtcat select``."""

from typing import Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, show, write_csv
from irtcat.cli._session import use_compilation_cache

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    "irtcat select bank.npz -k 3 --strategy fisher --responses dataset:lsat7 --out items.csv",
    "irtcat select -k 3 --strategy stratified --responses dataset:lsat7 --seed 1",
)


def command(
    k: Annotated[int, typer.Option("-k", "--k", min=1, help="How many items.")],
    bank: Annotated[
        str | None,
        typer.Argument(
            metavar="BANK",
            help="What irtcat fit wrote; not needed for random, stratified, pcub and pclb "
            "where --responses are given.",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[str, typer.Option(help=f"{arguments.STRATEGIES_HELP}.")] = "fisher",
    responses: arguments.ResponsesOption = None,
    theta: Annotated[
        float | None, typer.Option(help="Target ability of information; by default the mean.")
    ] = None,
    tau: arguments.Tau = None,
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
    """Choose the k items worth running."""
    import irtcat
    from irtcat._files import check_target

    arguments.choose("--strategy", strategy, irtcat.STRATEGIES)
    if bank is None and responses is None:
        raise typer.BadParameter("give a BANK, --responses, or both.", param_hint="BANK")
    if out is not None:
        check_target(out)
    use_compilation_cache()
    how = arguments.Reading(format, subject, item, response, duplicates, trials)
    loaded = None if bank is None else irtcat.ItemBank.load(bank)
    data = None if responses is None else arguments.read(responses, how)
    subset = irtcat.select(loaded, k, strategy, data, seed, theta=theta, tau=tau)
    frame = subset.to_frame()
    if out is not None:
        write_csv(frame, out)
    if as_json:
        about = {"strategy": strategy, "k": k, "seed": seed, "theta": theta, "tau": tau}
        emit_json({**about, "out": out, "items": records(frame)})
    elif out is None:
        show(frame)
    else:
        print(f"{subset}; wrote them to {out}")

"""``irtcat evaluate``."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtcat.cli import _adaptive as adaptive
from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, say
from irtcat.cli._session import progress, use_compilation_cache

if TYPE_CHECKING:
    from irtcat.cat import Config

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    'irtcat evaluate bank.npz --command "sed \'s/}$/, \\"answer\\": 1}/\'" --max-items 3 '
    "--responses dataset:lsat7 --out run",
)

HARNESSES_HELP = "lm-eval, inspect or command"
MOST_ITEMS = 100
"""The default of --max-items, without --stop."""


def command(
    bank: Annotated[str, typer.Argument(metavar="BANK", help="Bank written by irtcat fit.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder of the run; a run started in it continues."),
    ],
    harness: Annotated[
        str | None, typer.Option(help=f"{HARNESSES_HELP}; by default command with --command.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model (lm-eval: its kind, such as hf).")
    ] = None,
    model_args: Annotated[
        str, typer.Option(help="lm-eval: the model's arguments, NAME=VALUE,...")
    ] = "",
    task: Annotated[
        str | None,
        typer.Option(help="The task; for Inspect FILE, FILE@NAME or a registered name."),
    ] = None,
    shell: Annotated[
        str | None,
        typer.Option("--command", help="Shell command: items on stdin, answers on stdout (JSONL)."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The model's name in the results; by default --model.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="lm-eval's metric, or Inspect's scorer (or scorer.part).")
    ] = None,
    filter: Annotated[str | None, typer.Option(help="lm-eval's filter.")] = None,
    include_path: Annotated[
        Path | None, typer.Option(help="lm-eval: folder of further task files.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Scores of at least this value count as right.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Download no data sets: use local copies.")
    ] = False,
    responses: arguments.ResponsesOption = None,
    items: Annotated[
        Path | None,
        typer.Option(help="CSV table of the items (ids first) with task and sample_id or doc_id."),
    ] = None,
    costs: Annotated[
        str | None, typer.Option(help="Column of each item's cost, in --items or the metadata.")
    ] = None,
    criterion: Annotated[
        str | None,
        typer.Option(
            help="As for simulate; by default score-optimal, with half of the items sampled."
        ),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option("--stop", help='Such as "se<0.3 or n>=30"; by default after 100 items.'),
    ] = None,
    max_items: adaptive.MaxItems = None,
    min_items: adaptive.MinItems = None,
    batch: adaptive.Batch = None,
    config: adaptive.ConfigFile = None,
    exposure_parameters: adaptive.ExposureFile = None,
    estimator: Annotated[
        str, typer.Option(help=f"Estimator of the full score: {arguments.ESTIMATORS_HELP}.")
    ] = "curves",
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, help="Time limit of one run of --command, in seconds."),
    ] = None,
    retries: Annotated[
        int, typer.Option(min=0, help="How often a failed batch is retried in succession.")
    ] = 0,
    on_error: Annotated[
        str, typer.Option(help="After that: stop (to continue later), or skip the items.")
    ] = "stop",
    seed: arguments.Seed = 0,
    as_json: arguments.Json = False,
) -> None:
    """Evaluate a live model adaptively.

    Repeat the same command to continue an interrupted run.
    """
    import irtcat
    from irtcat.harness import HARNESSES, evaluate

    harness = _harness_name(harness, shell, HARNESSES)
    arguments.choose("--on-error", on_error, ("stop", "skip"))
    arguments.choose("--estimator", estimator, irtcat.ESTIMATORS)
    if offline:
        _go_offline()
    use_compilation_cache()
    loaded = arguments.read_bank(bank)
    rules = _rules(loaded.n_items, config, criterion, stop, max_items, min_items, batch)
    reading = arguments.Reading()
    known = None if responses is None else arguments.read(responses, reading)
    table = None if items is None else arguments.item_sources(None, None, items)
    item_costs: Any = costs
    if costs is not None and items is not None and table is not None and costs in table:
        item_costs = table[costs]
    shared = {"threshold": threshold}
    if harness == "command":
        runner = HARNESSES[harness](_need("--command", shell), timeout=timeout, retries=retries,
                                 on_error=on_error, **shared)  # fmt: skip
    elif harness == "lm-eval":
        path = None if include_path is None else str(include_path)
        runner = HARNESSES[harness](_need("--model", model), model_args, metric, filter, path,
                                 retries=retries, on_error=on_error, **shared)  # fmt: skip
    else:
        options = {"retry_on_error": retries} if retries else {}
        runner = HARNESSES[harness](_need("--task", task), _need("--model", model), metric,
                                 options=options, **shared)  # fmt: skip
    label = name or " ".join(filter_empty(model, model_args if harness == "lm-eval" else None))
    with progress("answers") as report:
        result = evaluate(
            loaded, runner, rules, calibration=known, items=table, task=task, out=out, name=label,
            seed=seed, estimator=estimator, level=level, costs=item_costs,
            counts=adaptive.read_exposure(exposure_parameters), progress=report,
        )  # fmt: skip
    if as_json:
        emit_json({**result.to_json(), "out": out})
        return
    for line in result.sentences():
        say(line)
    say(f"Wrote result.json, items.csv and sessions.db to {out}")


def filter_empty(*texts: str | None) -> list[str]:
    """The texts that are not empty."""
    return [text for text in texts if text]


def _harness_name(harness: str | None, shell: str | None, known: Any) -> str:
    """The requested harness; a usage error if it is not determined."""
    if harness is None and shell is not None:
        return "command"
    if harness is None:
        must = f"give --harness ({HARNESSES_HELP}) or --command."
        raise typer.BadParameter(must, param_hint="--harness")
    arguments.choose("--harness", harness, known)
    if shell is not None and harness != "command":
        raise typer.BadParameter(f"not with --harness {harness}.", param_hint="--command")
    return harness


def _need(option: str, value: str | None) -> str:
    if value is None:
        raise typer.BadParameter("required by this harness.", param_hint=option)
    return value


def _go_offline() -> None:
    """Disable downloads of the harnesses' libraries, which read these settings on import."""
    import os

    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


def _rules(
    n_items: int, config: Path | None, criterion: str | None, stop: str | None,
    max_items: int | None, min_items: int | None, batch: int | None,
) -> "Config":  # fmt: skip
    """The configuration; without --config and --criterion, the default for evaluations."""
    use_default = config is None and criterion is None
    if config is None and stop is None and max_items is None:
        max_items = min(MOST_ITEMS, n_items)
    rules = adaptive.read_config(
        config, "score-optimal" if use_default else criterion, stop, None, None, max_items,
        min_items, batch,
    )  # fmt: skip
    return replace(rules, sampled=0.5) if use_default else rules

"""``irtcat evaluate``."""

import os
from pathlib import Path
from typing import Any

import typer

from irtcat.cli import _adaptive, _input
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import BANK, REQUIRED, RESPONSES_HELP, SEED, folder, option
from irtcat.cli._session import progress
from irtcat.cli.export import TASKS

EXAMPLE = (
    "irtcat fit dataset:lsat7",
    'irtcat evaluate bank.npz --command "sed \'s/}$/, \\"answer\\": 1}/\'" --max-items 3 '
    "--responses dataset:lsat7 --out run",
)

COMMAND, LM_EVAL = "irtcat.harness.Command", "irtcat.harness.LmEval"
MOST_ITEMS = 100
"""The default of --max-items, without --stop."""


@command_of(
    "irtcat.harness.evaluate",
    BANK,
    folder(source=None, default=REQUIRED,
           help="Folder of the run; a run started in it continues."),
    option("harness", choices="irtcat.harness.HARNESSES",
           help="{names}; by default command with --command."),
    option("model", source="", help="The model (lm-eval: its kind, such as hf)."),
    option("model_args", source=LM_EVAL, default="",
           help="lm-eval: the model's arguments, NAME=VALUE,..."),
    option("task", help="The task; for Inspect FILE, FILE@NAME or a registered name."),
    option("shell", "--command",
           help="Shell command: items on stdin, answers on stdout (JSONL)."),
    option("name", default=None, help="The model's name in the results; by default --model."),
    option("metric", help="lm-eval's metric, or Inspect's scorer (or scorer.part)."),
    option("filter", source=LM_EVAL),
    option("include_path", type=Path, help="lm-eval: folder of further task files."),
    option("threshold", source=COMMAND),
    option("offline", type=bool, default=False,
           help="Download no data sets: use local copies."),
    option("responses", of="calibration", read=_input.read_plain, help=RESPONSES_HELP),
    TASKS,
    option("costs", help="Column of each item's cost, in --items or the metadata."),
    option("criterion", source=_adaptive.CONFIG, default=None,
           help="As for simulate; by default score-optimal, with half of the items sampled."),
    option("stop", source=_adaptive.CONFIG, of="stopping", default=None,
           help='Such as "se<0.3 or n>=30"; by default after 100 items.'),
    *_adaptive.LENGTHS,
    *_adaptive.FILES,
    option("estimator", choices="irtcat.ESTIMATORS",
           help="Estimator of the full score: {names}."),
    "level",
    option("timeout", source=COMMAND, min=0.001),
    option("retries", source=LM_EVAL, min=0),
    option("on_error", source=COMMAND, choices="irtcat.harness.answers.ON_ERROR"),
    SEED,
    csv=False,
)  # fmt: skip
def command(o: Options) -> Output:
    """Evaluate a live model adaptively.

    Repeat the same command to continue an interrupted run.
    """
    name = _harness_name(o)
    if o.offline:
        _go_offline()
    by_default = {} if o.criterion else {"criterion": "score-optimal", "sampled": 0.5}
    config = _adaptive.read_config(o, max_items=min(MOST_ITEMS, o.bank.n_items), **by_default)
    costs = o.costs
    if costs is not None and o.items is not None and costs in o.items:
        costs = o.items[costs]
    of_model = (o.model, o.model_args if name == "lm-eval" else None)
    label = o.name or " ".join(text for text in of_model if text)
    o.kept = f"The answers so far are kept in {o.out}: repeat the same command to continue."
    with progress("answers") as report:
        result = o.call(
            model=_harness(o, name), config=config, costs=costs, name=label,
            counts=o.exposure_parameters, progress=report,
        )  # fmt: skip
    lines = [*result.sentences(), f"Wrote result.json, items.csv and sessions.db to {o.out}"]
    return Output({**result.to_json(), "out": o.out}, lines)


def _harness_name(o: Options) -> str:
    """The requested harness; a usage error if it is not determined."""
    from irtcat.harness import HARNESSES

    if o.harness is None and o.shell is None:
        must = f"give --harness ({', '.join(HARNESSES)}) or --command."
        raise typer.BadParameter(must, param_hint="--harness")
    if o.shell is not None and o.harness not in (None, "command"):
        raise typer.BadParameter(f"not with --harness {o.harness}.", param_hint="--command")
    return o.harness or "command"


def _harness(o: Options, name: str) -> Any:
    """The model in its harness."""
    from irtcat.harness import HARNESSES

    def required(option: str, value: str | None) -> str:
        if value is None:
            raise typer.BadParameter("required by this harness.", param_hint=option)
        return value

    shared = {"threshold": o.threshold}
    errors = {"retries": o.retries, "on_error": o.on_error}
    if name == "command":
        shell = required("--command", o.shell)
        return HARNESSES[name](shell, timeout=o.timeout, **errors, **shared)
    if name == "lm-eval":
        path = None if o.include_path is None else str(o.include_path)
        model = required("--model", o.model)
        return HARNESSES[name](model, o.model_args, o.metric, o.filter, path, **errors, **shared)
    task, model = required("--task", o.task), required("--model", o.model)
    options = {"retry_on_error": o.retries} if o.retries else {}
    return HARNESSES[name](task, model, o.metric, options=options, **shared)


def _go_offline() -> None:
    """Disable downloads of the harnesses' libraries, which read these settings on import."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

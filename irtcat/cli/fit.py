"""``irtcat fit``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show, write_csv
from irtcat.cli._session import progress, use_compilation_cache, warn

if TYPE_CHECKING:
    from irtcat import Fit, Responses
    from irtcat.io import ResponseSource

EXAMPLE = ("irtcat fit dataset:lsat7 --model 2pl --out bank.npz",)

FAMILIES = {"normal": "N", "lognormal": "LogNormal", "beta": "Beta"}


def command(
    responses: arguments.ResponsesArgument,
    model: arguments.Model = "2pl",
    method: Annotated[str, typer.Option(help="em, anchored, vi or joint.")] = "em",
    priors: Annotated[
        str | None, typer.Option(help="hierarchical or vague, for --method vi.")
    ] = None,
    starts: Annotated[
        int, typer.Option(min=1, help="Starting points to try; the best fit is kept.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Seed of additional starts and of --method vi.")] = 0,
    groups: Annotated[
        str | None,
        typer.Option(help="Column of the subjects' table with their groups (see --subjects)."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="The group with N(0, 1); by default the first subject's.")
    ] = None,
    anchors: Annotated[
        Path | None, typer.Option(help="Bank of fixed items, which define the scale of the others.")
    ] = None,
    theta: Annotated[
        Path | None,
        typer.Option(help="Fixed theta: CSV, ids first, with a column theta (as of irtcat score)."),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(help="CSV table of items, ids first, column model; --model for the others."),
    ] = None,
    fixed: Annotated[
        str | None,
        typer.Option(help="Fixed parameters: NAME=NUMBER,... or a CSV table of items, ids first."),
    ] = None,
    equal: Annotated[
        list[str] | None, typer.Option(help="A parameter that all items share, such as slope.")
    ] = None,
    subjects: Annotated[
        Path | None,
        typer.Option(help="CSV table of subjects, ids first; default: that in RESPONSES (npz)."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the bank here.")] = None,
    table: Annotated[Path | None, typer.Option(help="Write the items to this CSV file.")] = None,
    positive: Annotated[bool, typer.Option("--positive", help="Keep slopes above 0.")] = False,
    weak_priors: Annotated[
        bool, typer.Option(help="Priors on items with few or one-sided responses.")
    ] = True,
    precision: Annotated[str, typer.Option(help="auto, float64 or float32.")] = "auto",
    max_iterations: Annotated[int, typer.Option(min=1, help="Maximum number of E-steps.")] = 500,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the state of the fit to this file.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from --checkpoint, if it exists.")
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read a .npy or wide Parquet file in passes.")
    ] = False,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
    trials: arguments.Trials = None,
) -> None:
    """Calibrate items on the responses of many subjects."""
    from irtcat._files import check_target
    from irtcat.fitting import FITTERS
    from irtcat.io import open_source

    arguments.choose("--model", model, arguments.one_ability_models())
    arguments.choose("--method", method, FITTERS)
    arguments.choose("--precision", precision, ("auto", "float64", "float32"))
    if resume and checkpoint is None:
        raise typer.BadParameter("needs --checkpoint FILE.", param_hint="--resume")
    for option, value in (("--reference", reference), ("--subjects", subjects)):
        if value is not None and groups is None:
            raise typer.BadParameter("needs --groups COLUMN.", param_hint=option)
    for path in (out, table, checkpoint):
        if path is not None:
            check_target(path)
    use_compilation_cache()
    reading = arguments.Reading.of(locals())
    data = open_source(responses) if stream else arguments.read(responses, reading)
    options = {"positive": positive, "weak_priors": weak_priors, "precision": precision}
    options |= {"max_iterations": max_iterations, "checkpoint": checkpoint, "resume": resume}
    options |= {"method": method, "priors": priors, "starts": starts, "seed": seed}
    if groups is not None:
        group_labels = groups if subjects is None else arguments.subject_column(subjects, groups)
        options |= {"groups": group_labels, "reference": reference}
    if anchors is not None:
        options["anchors"] = arguments.read_bank(anchors)
    if fixed is not None:
        options["fixed"] = arguments.fixed_parameters(fixed)
    if equal:
        options["equal"] = equal
    if theta is not None:
        options["theta"] = arguments.subject_column(theta, "theta")
    try:
        fitted = _fit(data, model if models is None else _by_item(models, model), options)
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            warn(f"Interrupted. The state is in {checkpoint}: continue with --resume.")
        raise
    if out is not None:
        fitted.bank.save(out)
    if table is not None:
        write_csv(fitted.bank.to_frame(), table)
    if not fitted.converged:
        warn(fitted.message)
    if as_json:
        document = {**fitted.to_dict(), "out": out, "table": table}
        if fitted.groups is not None:
            document["groups"] = records(fitted.groups)
        emit_json({**document, "items": records(fitted.bank.to_frame())})
        return
    _report(fitted, out, table)


def _by_item(path: Path, model: str) -> dict[str, str]:
    """The models of items in the table, and the default for all others."""
    models = arguments.table_column(path, "model", "items").dropna()
    return {"default": model, **{str(item): str(name) for item, name in models.items()}}


def _fit(data: "Responses | ResponseSource", model: Any, options: dict[str, Any]) -> "Fit":
    """Fit and show the progress."""
    import irtcat

    with progress("Compiling") as report:

        def show_iteration(iteration: int, log_posterior: float, step: float) -> None:
            if report is not None:
                text = f"Iteration {iteration}: the step was {step:.1e} standard errors"
                if options["method"] == "vi":
                    text = f"Step {iteration}: the bound is {log_posterior:.2f}"
                report(iteration, None, text)

        return irtcat.fit(data, model, progress=show_iteration, **options)


def _report(fitted: "Fit", out: Path | None, table: Path | None) -> None:
    """Print a summary, and the items unless they are written to a file."""
    items = fitted.bank.to_frame()
    if out is None and table is None:
        show(items)
        say()
    say(fitted)
    say(f"AIC {fitted.aic:.2f}, BIC {fitted.bic:.2f}")
    if fitted.groups is not None:
        show(fitted.groups)
    for name, prior in fitted.priors.items():
        say(f"Prior: {_prior(name, prior)}")
    for note in fitted.notes:
        say(f"Note: {note}")
    for flag, count in items.loc[items["flags"] != "", "flags"].value_counts().items():
        say(f"Flagged {flag!r}: {count} of {len(items)} items")
    for kind, path in (("bank", out), ("items", table)):
        if path is not None:
            say(f"Wrote the {kind} to {path}")


def _prior(name: str, prior: Any) -> str:
    """Format a prior of `Fit.priors`."""
    if isinstance(prior, str):
        return f"{name} {prior}"
    family = prior[0] if isinstance(prior[0], str) else "normal"
    first, second = prior[-2:]
    if family == "beta":  # a density of the probability, not of its logit
        name = {"logit_lower": "c", "logit_upper": "d"}.get(name, name)
    return f"{name} ~ {FAMILIES[family]}({first:g}, {second:g})"

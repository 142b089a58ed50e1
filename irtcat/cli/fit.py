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
        int, typer.Option(min=1, help="Starting points to try; the highest fit is kept.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Seed of further starts and of --method vi.")] = 0,
    groups: Annotated[
        str | None,
        typer.Option(help="Column of the subjects' table with their groups (see --subjects)."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="The group that is N(0, 1); the first subject's by default.")
    ] = None,
    anchors: Annotated[
        Path | None, typer.Option(help="Bank of known items: they stay, others join their scale.")
    ] = None,
    theta: Annotated[
        Path | None,
        typer.Option(help="Fixed abilities: CSV, ids first, a column theta (of irtcat score)."),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(help="CSV table of items, ids first, a column model; --model is the others'."),
    ] = None,
    fixed: Annotated[
        str | None,
        typer.Option(
            help="Parameters not estimated: NAME=NUMBER,... or a CSV table of items, ids first."
        ),
    ] = None,
    equal: Annotated[
        list[str] | None, typer.Option(help="A parameter that all items share, such as slope.")
    ] = None,
    subjects: Annotated[
        Path | None,
        typer.Option(help="CSV table of subjects, ids first; default: that of a saved npz."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the bank here.")] = None,
    table: Annotated[Path | None, typer.Option(help="Write the items to this CSV file.")] = None,
    positive: Annotated[bool, typer.Option("--positive", help="Keep slopes above 0.")] = False,
    weak_priors: Annotated[
        bool, typer.Option(help="Priors on items with few or one-sided responses.")
    ] = True,
    precision: Annotated[str, typer.Option(help="auto, float64 or float32.")] = "auto",
    max_iterations: Annotated[int, typer.Option(min=1, help="E-steps at most.")] = 500,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Keep the state of the fit in this file.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from --checkpoint, if it is there.")
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
    for option, given in (("--reference", reference), ("--subjects", subjects)):
        if given is not None and groups is None:
            raise typer.BadParameter("needs --groups COLUMN.", param_hint=option)
    for path in (out, table, checkpoint):
        if path is not None:
            check_target(path)
    use_compilation_cache()
    reading = arguments.Reading(format, subject, item, response, duplicates, trials)
    data = open_source(responses) if stream else arguments.read(responses, reading)
    how = {"positive": positive, "weak_priors": weak_priors, "precision": precision}
    how |= {"max_iterations": max_iterations, "checkpoint": checkpoint, "resume": resume}
    how |= {"method": method, "priors": priors, "starts": starts, "seed": seed}
    if groups is not None:
        named = groups if subjects is None else arguments.subject_column(subjects, groups)
        how |= {"groups": named, "reference": reference}
    if anchors is not None:
        how["anchors"] = arguments.read_bank(anchors)
    if fixed is not None:
        how["fixed"] = arguments.fixed_parameters(fixed)
    if equal:
        how["equal"] = equal
    if theta is not None:
        how["theta"] = arguments.subject_column(theta, "theta")
    try:
        fitted = _fit(data, model if models is None else _by_item(models, model), how)
    except KeyboardInterrupt:
        if checkpoint is not None and checkpoint.exists():
            warn(f"Interrupted. The state is in {checkpoint}: go on from it with --resume.")
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
    """The items' own models, and the one for those that the table does not name."""
    named = arguments.table_column(path, "model", "items").dropna()
    return {"default": model, **{str(item): str(name) for item, name in named.items()}}


def _fit(data: "Responses | ResponseSource", model: Any, how: dict[str, Any]) -> "Fit":
    """Fit with its progress shown."""
    import irtcat

    with progress("Compiling") as report:

        def told(iteration: int, log_posterior: float, step: float) -> None:
            if report is not None:
                text = f"Iteration {iteration}: the step was {step:.1e} standard errors"
                if how["method"] == "vi":
                    text = f"Step {iteration}: the bound is {log_posterior:.2f}"
                report(iteration, None, text)

        return irtcat.fit(data, model, progress=told, **how)


def _report(fitted: "Fit", out: Path | None, table: Path | None) -> None:
    """A few lines for people, and the items where they are not written."""
    items = fitted.bank.to_frame()
    if out is None and table is None:
        show(items)
        say()
    say(fitted)
    say(f"AIC {fitted.aic:.2f}, BIC {fitted.bic:.2f}")
    if fitted.groups is not None:
        show(fitted.groups)
    for name, given in fitted.priors.items():
        say(f"Prior: {_prior(name, given)}")
    for note in fitted.notes:
        say(f"Note: {note}")
    for flag, count in items.loc[items["flags"] != "", "flags"].value_counts().items():
        say(f"Flagged {flag!r}: {count} of {len(items)} items")
    for what, path in (("bank", out), ("items", table)):
        if path is not None:
            say(f"Wrote the {what} to {path}")


def _prior(name: str, given: Any) -> str:
    """A prior as `Fit.priors` states it, in words."""
    if isinstance(given, str):
        return f"{name} {given}"
    family = given[0] if isinstance(given[0], str) else "normal"
    first, second = given[-2:]
    if family == "beta":  # a density of the probability, not of its logit
        name = {"logit_lower": "c", "logit_upper": "d"}.get(name, name)
    return f"{name} ~ {FAMILIES[family]}({first:g}, {second:g})"

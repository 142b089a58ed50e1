"""``irtcat fit``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, show, write_csv
from irtcat.cli._session import progress, use_compilation_cache, warn

if TYPE_CHECKING:
    from irtcat import Fit, Responses

EXAMPLE = ("irtcat fit dataset:lsat7 --model 2pl --out bank.npz",)


def command(
    responses: arguments.ResponsesArgument,
    model: arguments.Model = "2pl",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the bank here.")] = None,
    table: Annotated[Path | None, typer.Option(help="Write the items to this CSV file.")] = None,
    positive: Annotated[bool, typer.Option("--positive", help="Keep slopes above 0.")] = False,
    weak_priors: Annotated[
        bool, typer.Option(help="Priors on items with few or one-sided responses.")
    ] = True,
    precision: Annotated[str, typer.Option(help="auto, float64 or float32.")] = "auto",
    max_iterations: Annotated[int, typer.Option(min=1, help="E-steps at most.")] = 500,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
) -> None:
    """Calibrate items on the responses of many subjects."""
    from irtcat import MODELS
    from irtcat._files import check_target

    arguments.choose("--model", model, MODELS)
    arguments.choose("--precision", precision, ("auto", "float64", "float32"))
    for path in (out, table):
        if path is not None:
            check_target(path)
    use_compilation_cache()
    data = arguments.read(responses, arguments.Reading(format, subject, item, response, duplicates))
    fitted = _fit(data, model, positive, weak_priors, precision, max_iterations)
    if out is not None:
        fitted.bank.save(out)
    if table is not None:
        write_csv(fitted.bank.to_frame(), table)
    if not fitted.converged:
        warn(fitted.message)
    if as_json:
        items = records(fitted.bank.to_frame())
        emit_json({**fitted.to_dict(), "out": out, "table": table, "items": items})
        return
    _report(fitted, out, table)


def _fit(
    data: "Responses",
    model: str,
    positive: bool,
    weak_priors: bool,
    precision: str,
    max_iterations: int,
) -> "Fit":
    """Fit with its progress shown."""
    import irtcat

    with progress("Compiling") as tick:

        def told(iteration: int, log_posterior: float, step: float) -> None:
            if tick is not None:
                text = f"Iteration {iteration}: the step was {step:.1e} standard errors"
                tick(iteration, None, text)

        return irtcat.fit(
            data,
            model,
            positive=positive,
            weak_priors=weak_priors,
            precision=precision,
            max_iterations=max_iterations,
            progress=told,
        )


def _report(fitted: "Fit", out: Path | None, table: Path | None) -> None:
    """A few lines for people, and the items where they are not written."""
    items = fitted.bank.to_frame()
    if out is None and table is None:
        show(items)
        print()
    print(fitted)
    print(f"AIC {fitted.aic:.2f}, BIC {fitted.bic:.2f}")
    for name, (mean, sd) in fitted.priors.items():
        print(f"Prior: {name} ~ N({mean:g}, {sd:g})")
    for flag, count in items.loc[items["flags"] != "", "flags"].value_counts().items():
        print(f"Flagged {flag!r}: {count} of {len(items)} items")
    for what, path in (("bank", out), ("items", table)):
        if path is not None:
            print(f"Wrote the {what} to {path}")

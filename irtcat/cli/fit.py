"""``irtcat fit``."""

from pathlib import Path
from typing import Any

from irtcat.cli import _input
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import MODEL, RESPONSES, option, output
from irtcat.cli._output import flag_counts, records
from irtcat.cli._session import progress, warn

EXAMPLE = ("irtcat fit dataset:lsat7 --model 2pl --out bank.npz",)

FAMILIES = {"normal": "N", "lognormal": "LogNormal", "beta": "Beta"}


def _theta(path: Path) -> Any:
    """Read abilities."""
    return _input.table_column(path, "theta", "subjects")


def _pattern(path: Path) -> Any:
    """Read a loading pattern."""
    table = _input.read_table(path, "items")
    return table.set_index(table.columns[0]).astype(float)


@command_of(
    "irtcat.fit",
    RESPONSES,
    MODEL,
    option("method", choices="irtcat.fitting.FITTERS"),
    option("priors", help="hierarchical or vague, for --method vi."),
    option("starts", min=1),
    "seed",
    option("groups", help="Column of the subjects' table with their groups (see --subjects)."),
    option("reference", needs="groups COLUMN"),
    option("anchors", type=Path, read=_input.read_bank,
           help="Bank of fixed items, which define the scale of the others."),
    option("theta", type=Path, read=_theta,
           help="Fixed theta: CSV, ids first, with a column theta (as of irtcat score)."),
    option("models", type=Path,
           help="CSV table of items, ids first, column model; --model for the others."),
    option("fixed", read=_input.fixed_parameters,
           help="Fixed parameters: NAME=NUMBER,... or a CSV table of items, ids first."),
    option("equal", type=list[str], help="A parameter that all items share, such as slope."),
    option("dims", min=1),
    option("pattern", type=Path, read=_pattern,
           help="CSV table of items, ids first, a column of 0 and 1 for each ability."),
    "correlated",
    option("structure", choices="irtcat.fitting.STRUCTURES", needs="pattern FILE"),
    "density",
    option("subjects", type=Path, needs="groups COLUMN",
           help="CSV table of subjects, ids first; default: that in RESPONSES (npz)."),
    output("out", "--out", "-o", help="Write the bank here."),
    output("table", help="Write the items to this CSV file."),
    "positive",
    "weak_priors",
    option("precision", choices="irtcat._precision.PRECISIONS"),
    option("max_iterations", min=1),
    output("checkpoint", source=None),
    option("resume", needs="checkpoint FILE"),
    option("stream", type=bool, default=False, help="Read a .npy or wide Parquet file in passes."),
)  # fmt: skip
def command(o: Options) -> Output:
    """Calibrate items on the responses of many subjects."""
    from irtcat.io import open_source

    changes: dict[str, Any] = {}
    if o.stream:
        changes["responses"] = open_source(o.unread["responses"])
    if o.models is not None:
        models = _input.table_column(o.models, "model", "items").dropna().astype(str)
        changes["model"] = {"default": o.model, **models}
    if o.subjects is not None:
        changes["groups"] = _input.table_column(o.subjects, o.groups, "subjects")
    try:
        with progress("Compiling") as report:

            def show_iteration(iteration: int, log_posterior: float, step: float) -> None:
                if report is not None:
                    text = f"Iteration {iteration}: the step was {step:.1e} standard errors"
                    if o.method == "vi":
                        text = f"Step {iteration}: the bound is {log_posterior:.2f}"
                    report(iteration, None, text)

            fitted = o.call(progress=show_iteration, **changes)
    except KeyboardInterrupt:
        if o.checkpoint is not None and o.checkpoint.exists():
            warn(f"Interrupted. The state is in {o.checkpoint}: continue with --resume.")
        raise
    items, groups = fitted.bank.to_frame(), fitted.groups
    o.write("out", fitted.bank, "bank")
    o.write("table", items, "items")
    if not fitted.converged:
        warn(fitted.message)
    document = {**fitted.to_dict(), "out": o.out, "table": o.table}
    if groups is not None:
        document["groups"] = records(groups)
    text = [items, ""] if o.out is None and o.table is None else []
    text += [str(fitted), f"AIC {fitted.aic:.2f}, BIC {fitted.bic:.2f}"]
    text += [] if groups is None else [groups]
    text += [f"Prior: {_prior(name, prior)}" for name, prior in fitted.priors.items()]
    text += [f"Note: {note}" for note in fitted.notes]
    return Output({**document, "items": records(items)}, text + flag_counts(items, "items"))


def _prior(name: str, prior: Any) -> str:
    """Format a prior of `Fit.priors`."""
    if isinstance(prior, str):
        return f"{name} {prior}"
    family = prior[0] if isinstance(prior[0], str) else "normal"
    first, second = prior[-2:]
    if family == "beta":  # a density of the probability, not of its logit
        name = {"logit_lower": "c", "logit_upper": "d"}.get(name, name)
    return f"{name} ~ {FAMILIES[family]}({first:g}, {second:g})"

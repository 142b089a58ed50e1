"""``irtcat fit``."""

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import irtcat
from irtcat import fitting
from irtcat._common.errors import InputError
from irtcat._common.progress import FitProgress
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import (
    MISMATCH,
    MODEL,
    RESPONSES,
    check_archive,
    default_n_items,
    flag,
    group,
    option,
    output,
    own,
    result,
    table_by_id,
)
from irtcat.cli._output import SUMMARY_ROWS, fields_of, hardest_first, warn, with_texts

if TYPE_CHECKING:
    import pandas as pd


EXAMPLE = ("irtcat fit dataset:lsat7 --model 2pl",)

FAMILIES = {"normal": "N", "lognormal": "LogNormal", "beta": "Beta"}
IMPORTANT = ("b", "proportion_correct", "se_b", "a", "flag", "se_a", "c", "d")
"""The columns of items that are printed first."""
UNCERTAIN = 1.0
"""Standard errors of difficulties above it are reported: the SD of the subjects."""

SETTINGS = ("irtcat.fitting.Solver", "irtcat.EM", "irtcat.VI")
"""Classes whose fields are options; `irtcat.Joint` has no fields of its own names."""
_of_all, _of_em, _of_vi = (partial(option, source=source) for source in SETTINGS)


@command_of(
    "irtcat.fit",
    RESPONSES,
    MODEL,
    option("solver", choices="irtcat.fitting.SOLVERS"),
    *group(
        "Scale",
        option("groups", help="Column of the subjects' table with their groups (see --subjects)."),
        option("reference", needs="groups COLUMN"),
        option(
            "subject_weights",
            help="Column of the subjects' table with survey weights (see --subjects).",
        ),
        own(
            "subjects",
            type=Path,
            help="CSV table of subjects, ids first; default: that in RESPONSES (npz).",
        ),
        option(
            "anchors",
            type=Path,
            read=_input.read_bank,
            help="Bank of fixed items, which define the scale of the others.",
        ),
        MISMATCH,
        option(
            "theta",
            type=Path,
            read=lambda path: _input.table_column(path, "theta", "subjects"),
            help="CSV table of subjects, ids first, with a column theta (as of irtcat score).",
        ),
        "density",
    ),
    *group(
        "Item parameters",
        own(
            "models",
            type=Path,
            help="CSV table of items, ids first, column model; --model for the others.",
        ),
        option(
            "fixed",
            read=_input.fixed_parameters,
            help="Fixed parameters: NAME=NUMBER,... or a CSV table of items, ids first.",
        ),
        option("equal", type=list[str], help="A parameter that all items share, such as slope."),
        "positive",
        "weak_priors",
        option("priors", help="hierarchical or vague, for --solver vi."),
    ),
    *group(
        "Several abilities",
        option("dims", min=1),
        option(
            "pattern",
            type=Path,
            read=lambda path: _input.indexed_table(path).astype(float),
            help="CSV table of items, ids first, a column of 0 and 1 for each ability.",
        ),
        "correlated",
        option("structure", choices="irtcat.fitting.STRUCTURES", needs="pattern FILE"),
    ),
    *group(
        "Features",
        table_by_id(
            "subject_features",
            "subjects",
            help="CSV table of subjects, ids first, a column for each feature.",
        ),
        table_by_id(
            "item_features", help="CSV table of items, ids first, a column for each feature."
        ),
        "item_residual",
        output(
            "predicted",
            needs="item_features FILE",
            help="Bank of the items of --item-features that nobody answered.",
        ),
    ),
    *group(
        "Every solver",
        _of_all("tolerance"),
        _of_all("starts", min=1),
        _of_all("seed"),
        _of_all("precision", choices="irtcat._common.precision.PRECISIONS"),
    ),
    *group(
        "Solver em (--max-iterations: also joint)",
        _of_em("max_iterations", min=1),
        _of_em("accelerate"),
        _of_em("nodes", min=3),
        output("checkpoint", source="irtcat.EM", replaces=False),
        _of_em("resume", needs="checkpoint FILE"),
    ),
    *group(
        "Solver vi",
        _of_vi("steps", min=1),
        _of_vi("learning_rate"),
        _of_vi("batch_size", min=1),
        _of_vi("batches", choices="irtcat.fitting.solvers.BATCHES"),
    ),
    *group("Reading", flag("stream", help="Read a .npy or wide Parquet file in passes.")),
    result("bank.npz", writes=check_archive, help="Write the bank here."),
    output("table", help="Write the items to this CSV file."),
)
def command(o: Options) -> Output:
    """Calibrate items on the responses of many subjects."""
    changes: dict[str, Any] = {}
    if o.stream:
        changes["responses"] = irtcat.io.open_source(o.unread["responses"])
    if o.facets:
        changes["facets"] = o.facets
    if o.models is not None:
        models = _input.table_column(o.models, "model", "items").dropna().astype(str)
        changes["model"] = {"default": o.model, **models}
    if o.subjects is not None:
        changes |= _of_subjects(o)
    changes["solver"] = _solver(o)
    try:
        fitted = o.call(progress=FitProgress(o.progress), **changes)
    except KeyboardInterrupt:
        o.kept = _kept_of(o) or o.kept
        raise
    items, groups = fitted.bank.to_frame(), fitted.groups
    predicted = None if o.predicted is None else _predicted(fitted, o.item_features)
    o.write("out", fitted.bank, "bank")
    if predicted is not None:
        o.write("predicted", predicted, "bank of predicted items")
    o.write("table", items, "items")
    if not fitted.converged:
        warn(fitted.message)
    document = {**fitted.to_dict(), "out": o.out, "table": o.table}
    if groups is not None:
        document["groups"] = groups
    text: list[Any] = [str(fitted), f"AIC {fitted.aic:.2f}, BIC {fitted.bic:.2f}"]
    text += [] if groups is None else [groups]
    text += [f"Prior: {_prior(name, prior)}" for name, prior in fitted.priors.items()]
    text += [f"Note: {note}" for note in fitted.notes]
    regressions = {**fitted.item_regressions, "ability": fitted.subject_regression}
    for name, regression in regressions.items():
        if regression is None:
            continue
        document[f"regression_of_{name}"] = regression.to_frame()
        text.append(_coefficients(name, regression))
    if fitted.facets:
        document["severities"] = severities = fitted.severities().reset_index()
        text.append(Table(severities, "Severities", decimals=2, rows=SUMMARY_ROWS))
    text += _tables(items, fitted.bank.items)
    n_items = default_n_items(len(items))
    after = ("select", o.out, "-k", n_items, "--responses", o.unread["responses"])
    document["items"] = items
    return Output(document, text, table=items, next=(*after, *o.reading_words))


def _of_subjects(o: Options) -> dict[str, Any]:
    """The columns of --subjects that options name."""
    columns = {
        name: _input.table_column(o.subjects, column, "subjects")
        for name, column in fields_of(o, "groups", "subject_weights").items()
        if column is not None
    }
    if not columns:
        raise o.usage_error("subjects", "needs --groups COLUMN or --subject-weights COLUMN.")
    return columns


def _kept_of(o: Options) -> str:
    """What is left of a fit that was interrupted."""
    if o.checkpoint is not None and o.checkpoint.exists():
        return f"The state is in {o.checkpoint}: continue with --resume."
    if o.subject_features is not None or o.item_features is not None:
        return "Nothing was written; repeat the command to start again."
    if o.checkpoint is None and o.solver == "em":
        return "Nothing was written; with --checkpoint FILE a long fit can be continued."
    return ""


def _solver(o: Options) -> Any:
    """The solver with the options that are given; those of other solvers are refused."""
    solver = fitting.SOLVERS[o.solver]
    settings = {field.name for field in fields(solver)}
    values = {name: value for of in SETTINGS for name, value in o.values_of(of).items()}
    o.refuse(sorted(set(values) - settings), f"not for the solver {o.solver}.")
    return solver(**{name: value for name, value in values.items() if name in settings})


def _predicted(fitted: Any, features: "pd.DataFrame") -> Any:
    """The items of a table of features that nobody answered."""
    known = set(fitted.bank.item_ids.tolist())
    new = features[[str(item) not in known for item in features.index]]
    if not len(new):
        raise InputError(
            "The `--predicted` option must be given with rows of --item-features for items that "
            "are not among the responses. Got none."
        )
    return fitted.predict_items(new)


def _coefficients(name: str, regression: Any) -> Table:
    """The coefficients, those that differ most from 0 first."""
    table = regression.to_frame()
    order = (table["estimate"] / table["se"]).abs().sort_values(ascending=False).index
    title = f"Regression of {name} on features (residual SD {regression.residual_sd:.2f})"
    return Table(table.loc[order], title, decimals=2, rows=SUMMARY_ROWS)


def _tables(items: "pd.DataFrame", known: "pd.DataFrame") -> list[Any]:
    """The items, the hardest first, and how many of each share of right answers.

    Args:
        items: the estimates.
        known: what is known of the items besides.
    """
    from irtcat.responses._summary import share_bands

    right, at_defaults = "proportion_correct", {"c": 0.0, "d": 1.0}
    constant = [n for n in at_defaults if n in items and (items[n] == at_defaults[n]).all()]
    varied = [name for name in map(str, items) if name not in constant]
    columns = [name for name in IMPORTANT if name in varied]
    columns += [name for name in varied if name not in columns]
    by = next((name for name in ("b", right) if name in items and items[name].notna().any()), None)
    table = items[columns]
    if by is not None:
        table = hardest_first(table, by, items.get("a"))
    table = with_texts(table, known)
    title = "Items" if by is None else "Items, the hardest first"
    shown: list[Any] = [Table(table, title, decimals=2, rows=SUMMARY_ROWS, percent=(right,))]
    if len(items) > SUMMARY_ROWS and right in items and items[right].notna().any():
        shown.append(
            Table(share_bands(items[right].to_numpy(float)), "All items by share of right answers")
        )
    uncertain = int((items["se_b"] > UNCERTAIN).sum()) if "se_b" in items else 0
    if uncertain:
        shown.append(
            f"Uncertain: {uncertain} of {len(items)} items, whose difficulty has a standard error "
            f"above {UNCERTAIN:g}"
        )
    return shown


def _prior(name: str, prior: Any) -> str:
    """Format a prior of `Fit.priors`."""
    if isinstance(prior, str):
        return f"{name} {prior}"
    family = prior[0] if isinstance(prior[0], str) else "normal"
    first, second = prior[-2:]
    if family == "beta":  # a density of the probability, not of its logit
        name = {"logit_lower": "c", "logit_upper": "d"}.get(name, name)
    return f"{name} ~ {FAMILIES[family]}({first:g}, {second:g})"


def fit_words(responses: "irtcat.Responses", *source: Any) -> tuple[Any, ...]:
    """The words of `irtcat fit` with a model for these responses, to be typed next."""
    from irtcat.responses._summary import score_range
    from irtcat.responses._table import BASE_ITEM

    model = "beta" if score_range(responses.items) else ""
    has_facets = BASE_ITEM in responses.items
    if responses.n_categories > 2 and not responses.is_fractional:
        model = "rsm" if has_facets else "graded"
    elif has_facets:
        model = "rasch"
    return ("fit", *source, *(("--model", model) if model else ()))

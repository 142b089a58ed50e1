"""``irtcat import``."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import irtcat
from irtcat._common.errors import InputError
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import (
    READING,
    argument,
    check_archive,
    group,
    option,
    output,
    result,
    texts,
)
from irtcat.cli._output import SUMMARY_ROWS, fields_of, warn
from irtcat.cli.fit import fit_words

if TYPE_CHECKING:
    import pandas as pd


EXAMPLE = ("irtcat import logs", "irtcat fit responses.npz")
LOGS, PARAMETERS = "irtcat.io.read_logs", "irtcat.io.read_parameters"
SHOWN = 5
"""Skipped files that are listed in warnings."""

COUNTS = ("n_subjects", "n_items", "kind", "n_missing")

BY_PATHS = {
    "records": "Path of the records in JSON of another format, such as 'results[*]'.",
    "subject": "Path of the subject in a record; $.PATH is one in the document.",
    "item": "Path of the item in a record, such as vars.id.",
    "response": "Path of the response in a record.",
    "facets": "Paths of what else a response depends on, such as judge, comma-separated.",
    "trial": "Path of the number of the trial, if there are several; or @repeat.",
}
"""The options of reading that say where JSON of another format has what."""


@command_of(
    LOGS,
    argument(
        "logs",
        of="path",
        type=Path,
        help="(1) a log of lm-eval, Inspect, HELM, lighteval, EvalScope, SWE-bench, ... (see "
        "--format), or a folder of them; (2) item parameters (CSV, py-irt's JSON, flexMIRT's "
        "-prm.txt); (3) other JSON, with --records.",
    ),
    texts("tasks", help="Only these tasks, comma-separated."),
    texts("metric", help="Metric; several, comma-separated, in order of preference."),
    texts("filter"),
    texts("scorer"),
    option(
        "num_fewshot", type=int, min=0, help="Only runs with this number of examples in the prompt."
    ),
    option("runs", choices="irtcat.io.logs.RUNS", help="For models run more than once: {names}."),
    option(
        "incomplete",
        choices="irtcat.io.logs.INCOMPLETE",
        help="Logs of runs that did not end: {names}.",
    ),
    option(
        "mismatch",
        choices="irtcat.io.logs.MISMATCH",
        help="Runs under other conditions (filter, number of examples, version) than most runs "
        "with the same items: {names}.",
    ),
    option("log_format", "--format", of="format", choices="auto irtcat.io.LOG_FORMATS"),
    *group(
        "Scores",
        option(
            "unscored",
            choices="irtcat.io.logs.UNSCORED",
            help="Samples without a score, such as after an error: {names} (they count 0).",
        ),
        option(
            "ranges",
            "--range",
            parse=_input.split_ranges,
            help="Scores not from 0 to 1, rescaled: bleu=0:100,judge=1:10.",
        ),
        texts(
            "lower_is_better",
            help="Metrics for which lower is better, comma-separated: they are reversed.",
        ),
        option(
            "graded",
            "--graded/--no-graded",
            help="Keep whole scores of a range as categories; by default those of judges from "
            "1 to 10 (MT-bench, WildBench).",
        ),
    ),
    *group(
        "Item parameters",
        option(
            "dialect",
            source=PARAMETERS,
            choices="auto irtcat.io.DIALECTS",
            help="Whose parameters they are: {names}.",
        ),
        option(
            "model",
            source=PARAMETERS,
            choices="irtcat.io.parameters.reading.CATEGORY_MODELS",
            help="Of items with several categories, where the file does not say it: {names}.",
        ),
        option(
            "scaling",
            source=PARAMETERS,
            help="The constant D of P = sigmoid(D a (theta - b)): 1 or 1.7 are usual.",
        ),
        option(
            "population",
            of="populations",
            source=PARAMETERS,
            parse=_input.read_population,
            help="Mean and SD of the calibrated subjects on the scale of the file, such as "
            "0,1.3; by default those in the file, else 0,1.",
        ),
        option(
            "columns",
            source=PARAMETERS,
            parse=_input.split_pairs,
            help="What columns hold, such as slope=HEADER,difficulty=HEADER; a wrong name lists "
            "all that they may hold.",
        ),
    ),
    *(
        replace(row, group="Other JSON, by paths", help=BY_PATHS[row.name])
        for row in READING
        if row.name in BY_PATHS
    ),
    result(
        writes=check_archive,
        help="Save the responses or the bank here (.npz); by default responses.npz or bank.npz.",
    ),
    output("report", help="Write a table of all files and why some are unused (CSV)."),
    compiles=False,
)
def command(o: Options) -> Output:
    """Read what other programs wrote: logs into responses, or item parameters into a bank.

    Three kinds of input, of which the first two are recognised: (1) logs of evaluation harnesses
    become one response file; (2) item parameters that another tool estimated become a bank;
    (3) with --records any other JSON is read by paths, into responses.
    """
    if o.records is None and _are_parameters(o):
        return _parameters(o)
    if o.out is None and not o.for_programs:
        o.use_file("out", "responses.npz")
    if o.records is not None:
        return _by_paths(o)
    logs = o.call(max_bytes=_input.max_bytes())
    responses = logs.responses
    o.write("out", responses, "responses")
    o.write("report", logs.report.to_frame(), "report")
    document = {"out": o.out, "report": o.report}
    document |= fields_of(responses, *COUNTS)
    document |= logs.report.to_dict()
    text = [] if o.for_programs else _text(logs)
    return Output(document, text, table=_by_task(logs), next=fit_words(responses, o.out))


def _are_parameters(o: Options) -> bool:
    """Whether the file has item parameters; raise if options are given that do not go with it."""
    from irtcat.io.logs.find import is_log
    from irtcat.io.parameters.files import found_parameters

    of_parameters = [row for row in o.given_rows if row.source == PARAMETERS]
    of_logs = [row for row in o.given_rows if row.source == LOGS and row.flags]
    is_file = o.logs.is_file() and not is_log(o.logs)
    are = is_file and bool(of_parameters)
    if is_file and not are:
        are = bool(found_parameters(o.logs))
    for wrong, other in ((of_parameters, "item parameters"), (of_logs, "logs")):
        if wrong and are == (other == "logs"):
            got = "item parameters" if are else "logs"
            raise InputError(f"{wrong[0].label} goes with {other}. Got {got}: {o.logs}.")
    return are


def _parameters(o: Options) -> Output:
    """The bank of a file of item parameters."""
    bank: irtcat.ItemBank = irtcat.io.read_parameters(
        o.logs, **o.values_of(PARAMETERS), max_bytes=_input.max_bytes()
    )
    if o.out is None and not o.for_programs:
        o.use_file("out", "bank.npz")
    o.write("out", bank, "bank")
    read = bank.provenance
    document = {"out": o.out, "kind": "bank", "model": bank.model.key, "n_items": len(bank)}
    document |= {"populations": {k: p.to_json() for k, p in bank.populations.items()}}
    document |= {name: read[name] for name in ("dialect", "scaling", "columns", "notes")}
    frame = bank.to_frame()
    shown = frame[[name for name in frame if not str(name).startswith("se_")]]
    columns = ", ".join(
        f"{role} = {header or '(no name)'}" for role, header in read["columns"].items()
    )
    known = f"Columns of {read['dialect']}"
    if read["dialect"] in irtcat.io.DIALECTS:
        known += f" ({irtcat.io.DIALECTS[read['dialect']].help})"
    text = [str(bank), f"{known}: {columns}", *(f"Note: {note}" for note in read["notes"])]
    if read["scaling"] != 1:
        text.append(f"Slopes are those of the file times D = {read['scaling']:g}.")
    table = Table(shown, decimals=3, rows=SUMMARY_ROWS)
    return Output(document, [*text, table], table=shown, next=("describe", o.out or "bank.npz"))


def _by_paths(o: Options) -> Output:
    """The responses in JSON of another format."""
    for row in o.given_rows:
        if (row.source in (LOGS, PARAMETERS) and row.flags) or row.name == "report":
            raise o.usage_error(row.name, "not with --records.")
    responses = _input.read(str(o.logs), **fields_of(o, *BY_PATHS))
    o.write("out", responses, "responses")
    document = {"out": o.out, **fields_of(responses, *COUNTS)}
    table = responses.summary().to_frame()
    text = [str(responses.summary())]
    return Output(document, text, table=table, next=fit_words(responses, o.out))


def _by_task(logs: "irtcat.io.Logs") -> "pd.DataFrame":
    """One row per task and metric: runs, and number and mean of the responses that are saved."""
    import numpy as np
    import pandas as pd

    runs, responses = logs.report.runs, logs.responses
    by_task = runs.groupby(["task", "metric"], sort=False).agg(runs=("file", "size"))
    metric_of = runs.drop_duplicates(["task", "format"]).set_index(["task", "format"])["metric"]
    of_task = runs.drop_duplicates("task").set_index("task")["metric"]
    pairs = zip(responses.items["task"], responses.items["format"], strict=True)
    keys = [(task, metric_of.get((task, format), of_task[task])) for task, format in pairs]
    index = pd.MultiIndex.from_tuples(keys, names=by_task.index.names)
    n = responses.observed.sum(axis=0)
    total = np.where(n > 0, responses.mean_shares(axis=0), 0.0) * n
    items = pd.DataFrame({"responses": n, "total": total}, index=index)
    saved = items.groupby(level=[0, 1], sort=False).sum().reindex(by_task.index)
    saved["responses"] = saved["responses"].fillna(0).astype(int)
    table = by_task.assign(responses=saved["responses"], mean=saved["total"] / saved["responses"])
    unscored = runs.groupby(["task", "metric"], sort=False)["unscored"].sum()
    return table.assign(unscored=unscored) if unscored.any() else table


def _ranking(responses: "irtcat.Responses") -> "pd.DataFrame":
    """The models by their mean response."""
    import pandas as pd

    index = pd.Index(responses.subject_ids, dtype=object, name="model")
    answers = responses.observed.sum(axis=1)
    table = pd.DataFrame({"mean": responses.mean_shares(axis=1), "n": answers}, index=index)
    if responses.subjects["unscored"].any():
        table["unscored"] = responses.subjects["unscored"].to_numpy()
    return table.sort_values("mean", ascending=False, kind="stable")


def _text(logs: "irtcat.io.Logs") -> list[Any]:
    """The models, the runs and choices; skipped files are warnings."""
    from irtcat.responses._summary import score_range, show_range

    report = logs.report
    for file in report.skipped[:SHOWN]:
        warn(f"skipped: {file.reason}")
    if len(report.skipped) > SHOWN:
        more = len(report.skipped) - SHOWN
        warn(f"{more} more files were skipped; --report lists all of them.")
    by_task = logs.responses.items.groupby("task", sort=False)
    ranges = {str(task): score_range(items) for task, items in by_task}
    shown = {task: show_range(ends) for task, ends in ranges.items() if ends}
    lines = [f"Mean of {task}: share of the range {ends}" for task, ends in shown.items()]
    lines += [f"Chosen: {choice}" for choice in report.choices if choice.others]
    lines += [f"Note: {note}" for note in report.notes]
    lines += [f"Not logs: {report.name_others()}"] if report.no_logs else []
    ranking = Table(_ranking(logs.responses), "Models", rows=SUMMARY_ROWS, percent=("mean",))
    tasks = Table(_by_task(logs), "Tasks", percent=("mean",))
    return [str(logs.responses.summary()), ranking, tasks, *lines]

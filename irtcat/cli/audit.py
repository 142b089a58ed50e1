"""``irtcat audit``."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import irtcat
from irtcat import training
from irtcat._common.errors import InputError, shorten
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import (
    ITEMS,
    MISMATCH,
    RESPONSES_HELP,
    SEED,
    argument,
    group,
    option,
    output,
    own,
    result,
    table_by_id,
)
from irtcat.cli._output import fields_of

if TYPE_CHECKING:
    import pandas as pd


EXAMPLE = ("irtcat audit dataset:lsat7",)

DRIFT = "irtcat.diagnose.find_drift"

NEEDS = {"confidence": "--dynamics FILE", "feasibility": "--feasibility"}
"""Options of the orders that need one."""

OF_CROWD = ("classes", "margin", "aum")
"""Orders by the predicted classes of a crowd."""

SHOWN = [
    "suspicion",
    "label",
    "suggested",
    "p_wrong_key",
    "reasons",
    "share",
    "n",
    "a",
    "feasibility",
    "confidence",
    "variability",
    "forgotten",
    "aum",
]


@command_of(
    "irtcat.diagnose.labels.rank",
    argument(
        "responses",
        read=_input.read,
        help=f"{RESPONSES_HELP} Or a crowd (Crowd.save), with --labels the probabilities of "
        "the classes, or training dynamics: a long table of epochs (columns epoch, item and "
        "loss or probability) or the folder of Dataset Cartography.",
    ),
    own(
        "labels",
        type=Path,
        help="CSV of the items' labels (ids first, column label), or .npy in the order of the "
        "items: RESPONSES is then a table of out-of-sample probabilities (.csv: ids first, a "
        "column for each class; .npy: items x classes, or members x items x classes), or the "
        "folder of a crowd's predictions, a file for each member (.csv with item, prediction "
        "and optionally probability and trained; .npy of probabilities).",
    ),
    option(
        "unit",
        source="irtcat.training.crowd.from_checkpoints",
        default=None,
        choices="irtcat.training.checkpoint_values.UNITS",
        help="RESPONSES is a log of epochs (a row for each, a column for each item; or a long "
        "table) of this unit: {names}.",
    ),
    option("bank", type=Path, read=_input.read_bank),
    MISMATCH,
    option("by", choices="auto irtcat.diagnose.labels.ORDERS all"),
    option("feasibility", type=bool, help="Fit the feasibility model as well."),
    table_by_id("dynamics", help="CSV table of the items, ids first, with a column confidence."),
    own("wrong", type=float, default=0.05, help="Prior share of wrong labels."),
    own("unrelated", type=float, default=0.05, help="Prior share of items unrelated to ability."),
    own(
        "known",
        type=Path,
        read=_input.read_lines,
        help="File of items known to be wrong, one id per line, to report recall.",
    ),
    option(
        "alternatives",
        min=2,
        help="Number of answers to choose from, for the wrong keys that the check plants.",
    ),
    SEED,
    own("first", type=int, default=20, min=1, help="Number of suspects to print."),
    *group(
        "Drift and contamination",
        option(
            "dates",
            source=DRIFT,
            default=None,
            help="Column of the subjects' dates, in --subjects or the metadata: test whether "
            "items become easier for later subjects of the same ability.",
        ),
        option(
            "item_dates",
            source=DRIFT,
            needs="dates COLUMN",
            help="Column of the items' dates, in --items or the metadata: test also whether "
            "subjects are better on items from before their date.",
        ),
        own("subjects", type=Path, help="CSV of the subjects, ids first."),
        ITEMS,
        output("drift", help="Write the tests of the items (CSV)."),
        output("contamination", help="Write the tests of the subjects (CSV)."),
    ),
    result("suspects.csv"),
)
def command(o: Options) -> Output:
    """Rank items by how suspect their labels are.

    The order follows the kinds of bad items that the answers show; for a crowd it is chosen by a
    check: wrong labels are planted, and the orders are compared by how many of them they find.
    """
    from irtcat.diagnose import labels

    learners = _read_learners(o.unread["responses"], o.labels, o.unit)
    missing = {
        "confidence": learners is None and o.unread["dynamics"] is None,
        "feasibility": not o.feasibility and o.unread["bank"] is None,
    }
    if missing.get(o.by, learners is None and o.by in OF_CROWD):
        raise o.usage_error("by", f"{o.by} needs {NEEDS.get(o.by, 'a crowd')}.")
    source = _responses(o) if learners is None else learners
    has_answers = hasattr(source, "item_ids")
    if o.dates is not None and not has_answers:
        raise o.usage_error("dates", "Training dynamics have no dates.")
    if o.known is not None:  # unknown ids, before the fit
        labels.recall_at(source.item_ids if has_answers else source.table.index, o.known, 1)
    ranking = o.call(responses=source, prior=(o.wrong, o.unrelated))
    n_items = len(ranking.table)
    o.write("out", ranking.table, "items")
    document = {"n_items": n_items, "by": ranking.by, "suspicion_by": ranking.source, "out": o.out}
    top = ranking.first(min(o.first, n_items)).dropna(axis=1, how="all")
    shown = top[[name for name in SHOWN if name in top]]
    text = [
        str(ranking),
        ranking.order,
        Table(shown.rename(columns={"share": "proportion_correct"})),
    ]
    if ranking.checks is not None:
        document |= fields_of(ranking, "n_planted", "share_wrong", "checks")
        columns = ["found", "low", "high", "difference", "se", "chosen"]
        text += ["Share of planted wrong labels that each order finds:", ranking.checks[columns]]
    if o.known is not None:
        scores = _scores(ranking, o.known)
        average = labels.average_precision(ranking, o.known)
        document |= {"known": scores, "average_precision": average}
        text += [scores, f"Average precision: {average:.3f}"]
    document |= {"items": ranking.table}
    if o.dates is not None:
        answers = o.responses if learners is None else learners.responses()
        drift_text, drift_document = _drift(o, answers)
        document |= drift_document
        text += drift_text
    bank = o.unread["bank"]
    after = ("report", *([bank] if bank else []), o.out) if ranking.source != "none" else ()
    return Output(document, text, table=ranking.table, next=after)


def _responses(o: Options) -> Any:
    """The responses; of a table of epochs the error says how to read it."""
    try:
        is_right_wrong = o.responses.is_binary
    except InputError:
        _refuse_epochs(o.unread["responses"], False)
        raise
    _refuse_epochs(o.unread["responses"], is_right_wrong)
    return o.responses


def _drift(o: Options, responses: Any) -> tuple[list[Any], dict[str, Any]]:
    """The tests of drift and contamination: what is printed, and what the document holds."""
    if o.subjects is not None:
        responses = _input.with_subjects(responses, o.subjects, o.dates)
    bank = (
        o.bank if o.bank is not None else irtcat.fit(responses, "2pl", standard_errors="none").bank
    )
    item_dates = _input.items_column(o.items, o.item_dates)
    result = irtcat.diagnose.find_drift(bank, responses, o.dates, item_dates, mismatch=o.mismatch)
    text: list[Any] = [str(result)]
    document: dict[str, Any] = {"trend": result.trend, "drift": result.items}
    tables = (("drift", result.items, "drifts"), ("contamination", result.subjects, "contaminated"))
    for name, table, verdict in tables:
        if table is None:
            continue
        document[name] = table
        o.write(name, table, "tests")
        worst = table[table[verdict]].sort_values("p", kind="stable")
        if len(worst):
            text.append(Table(worst.drop(columns=["p", verdict, "flag"]), rows=o.first))
    return text, document


def _scores(ranking: Any, known: list[str]) -> Any:
    """Precision and recall at 10, 20, 50, … suspects and at the number of known errors."""
    import pandas as pd

    from irtcat.diagnose import labels

    counts = {len(set(known)), *(c * 10**k for k in range(1, 6) for c in (1, 2, 5))}
    columns: dict[str, list[Any]] = {
        "first": (first := [n for n in sorted(counts) if 0 < n <= len(ranking.table)]),
        "precision": [labels.precision_at(ranking, known, n) for n in first],
        "recall": [labels.recall_at(ranking, known, n) for n in first],
    }
    return pd.DataFrame(columns)


def _read_learners(source: str, labels: Path | None, unit: str | None) -> Any:
    """Read what learners say of labels: a crowd, or training dynamics; None for anything else."""
    from irtcat.io.files import columns_of
    from irtcat.training.checkpoint_values import unit_of

    if (found := _read_crowd(source, labels)) is not None:
        return found
    if unit is None and training.dynamics.is_cartography(source):
        return training.dynamics.read(source)
    if unit is None and (unit := unit_of(columns_of(source))) is None:
        return None
    return training.crowd.from_checkpoints(source, unit).dynamics()


def _refuse_epochs(source: str, is_right_wrong: bool) -> None:
    """Raise for a table whose rows are epochs and whose values are not right/wrong answers."""
    from irtcat.io.files import columns_of
    from irtcat.training.checkpoint_values import UNITS, is_step

    columns = columns_of(source)
    if columns and is_step(columns[0]) and not is_right_wrong:
        advice = f"Name the unit of its values with --unit: {', '.join(UNITS)}."
        raise InputError(f"{source}: this looks like a log of epochs. {advice}")


def _read_crowd(source: str, labels: Path | None) -> "training.crowd.Crowd | None":
    """Read a crowd: a file, or with the labels predictions; None for anything else.

    With the labels, ``source`` is a folder of the members' predictions, or a file of probabilities.
    """
    if labels is None and not _input.is_crowd(source):
        return None
    if labels is None:
        return training.crowd.Crowd.load(source, max_bytes=_input.max_bytes())
    values = _read_labels(labels)
    if not Path(source).is_dir():
        return _crowd_of_probabilities(Path(source), values)
    files = [file for file in Path(source).iterdir() if file.suffix.lower() in (".csv", ".npy")]
    if not files:
        raise InputError(f"{source}: expected .csv or .npy files of predictions. Got none.")
    return training.crowd.from_predictions(
        sorted(files), values.to_numpy(), item_ids=list(values.index)
    )


def _read_labels(path: Path) -> "pd.Series":
    """Labels by item: the column of a CSV table, or an array, whose items are 0, 1, ...."""
    import pandas as pd

    from irtcat._files.archives import read_npy

    if path.suffix.lower() != ".npy":
        labels = _input.table_column(path, "label", "items")
        texts = _input.table_of_texts(path)["label"].map(str.strip, na_action="ignore")
        # As numbers 01 and 1 would be one class; as texts -1 and +1, or 2 and 10, change places.
        if all(re.fullmatch(r"[+-]?(0|[1-9]\d*)(\.0)?", text) for text in texts.dropna()):
            return labels
        return labels if (labels.astype(str) == texts).all() else texts
    array = read_npy(path, _input.max_bytes())
    if array.ndim != 1 or not len(array):
        raise InputError(f"{path}: expected one label per item. Got the shape {array.shape}.")
    return pd.Series(array, index=[str(row) for row in range(len(array))])


def _crowd_of_probabilities(path: Path, labels: "pd.Series") -> "training.crowd.Crowd":
    """A crowd from one file of class probabilities: a table with the items' ids, or an array."""
    from dataclasses import replace

    import pandas as pd

    from irtcat._files.archives import read_npy
    from irtcat.training.auditing import crowd_of

    suffix = path.suffix.lower()
    if suffix == ".csv":
        table = _input.indexed_table(path)
        if len(missing := labels.index.difference(table.index, sort=False)):
            raise InputError(f"{path}: no row for {shorten(missing[0])}, which has a label.")
        labels = pd.Series(labels.astype(str).to_numpy(), labels.index)
        probabilities: Any = table.loc[labels.index]
    elif suffix == ".npy":
        probabilities = read_npy(path)
    else:
        must = "with --labels a .csv or .npy file of probabilities, or a folder of predictions"
        raise InputError(f"{path}: expected {must}.")
    try:
        crowd, _ = crowd_of(labels, probabilities)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return replace(crowd, item_ids=labels.index.to_numpy(object))

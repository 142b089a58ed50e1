"""``irtcat predict``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show, write_csv
from irtcat.cli._session import use_compilation_cache

EXAMPLE = (
    "irtcat select -k 60 --responses dataset:digits_crowd --out items.csv",
    "irtcat predict dataset:digits_crowd items.csv dataset:digits_crowd --out scores.csv",
)


def command(
    calibration: Annotated[
        str, typer.Argument(metavar="CALIBRATION", help=arguments.RESPONSES_HELP)
    ],
    subset: Annotated[
        str,
        typer.Argument(metavar="SUBSET", help="Output of irtcat select, or a CSV with item."),
    ],
    responses: arguments.ResponsesArgument,
    bank: Annotated[
        str | None,
        typer.Option(help="Bank for irt, pirt and gpirt; by default a 2PL is fitted."),
    ] = None,
    estimator: Annotated[str, typer.Option(help=f"{arguments.ESTIMATORS_HELP}.")] = "auto",
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    items: Annotated[
        Path | None,
        typer.Option(help="CSV table of the items (ids in the first column) with their columns."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="Column of item groups, in --items or the metadata: adds their scores."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Weight of each group in the score: algebra=2,reading=1.")
    ] = None,
    beats: Annotated[
        Path | None,
        typer.Option(help="Write the probabilities of beating each calibrated subject (CSV)."),
    ] = None,
    out: arguments.Out = None,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
    trials: arguments.Trials = None,
) -> None:
    """Predict full scores and ranks from the items that were run."""
    import irtcat
    from irtcat._files import check_target

    arguments.choose("--estimator", estimator, irtcat.ESTIMATORS)
    shares = None if weights is None else arguments.split_numbers("--weights", weights)
    for path in (out, beats):
        if path is not None:
            check_target(path)
    use_compilation_cache()
    options = arguments.Reading.of(locals())
    known, answers = arguments.read(calibration, options), arguments.read(responses, options)
    labels: Any = groups
    if items is not None and groups is not None:
        labels = arguments.table_column(items, groups, "items")
    prediction = irtcat.predict(
        known,
        arguments.read_subset(subset),
        answers,
        bank=None if bank is None else arguments.read_bank(bank),
        estimator=estimator,
        level=level,
        groups=labels,
        weights=shares,
    )
    frame = prediction.to_frame()
    if out is not None:
        write_csv(frame, out)
    if beats is not None:
        write_csv(prediction.beats(), beats)
    if as_json:
        by_group = None if prediction.groups is None else records(prediction.groups)
        emit_json({
            "estimator": estimator, "level": level, "out": out, "beats": beats,
            "subjects": records(frame), "groups": by_group,
        })  # fmt: skip
        return
    if out is None:
        show(frame)
    else:
        say(f"{prediction}; wrote them to {out}")
    if prediction.groups is not None:
        show(prediction.groups.set_index(["subject", "group"]))

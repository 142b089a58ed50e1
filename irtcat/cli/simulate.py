"""``irtcat simulate``."""

from pathlib import Path
from typing import Annotated

import typer

from irtcat.cli import _adaptive as adaptive
from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show
from irtcat.cli._session import progress, use_compilation_cache

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    'irtcat simulate bank.npz --n 500 --criterion mfi --stop "se<0.7 or n>=4" --out simulated',
    'irtcat simulate bank.npz --responses dataset:lsat7 --stop "n>=3"',
)

TABLES = ("sessions", "by_theta", "by_length", "exposure", "summary", "content")


def command(
    bank: Annotated[str, typer.Argument(metavar="BANK", help="Bank written by irtcat fit.")],
    n: Annotated[
        int, typer.Option("--n", min=1, help="Subjects, drawn from the bank's population.")
    ] = 1000,
    criterion: adaptive.Criterion = None,
    stop: adaptive.Stop = None,
    method: adaptive.Method = None,
    exposure: adaptive.Exposure = None,
    max_items: adaptive.MaxItems = None,
    min_items: adaptive.MinItems = None,
    batch: adaptive.Batch = None,
    config: adaptive.ConfigFile = None,
    exposure_parameters: adaptive.ExposureFile = None,
    calibrate_exposure: Annotated[
        Path | None,
        typer.Option(
            help="First calibrate the parameters of sympson-hetter on --n subjects, and write "
            "them to this file."
        ),
    ] = None,
    responses: arguments.ResponsesOption = None,
    seed: arguments.Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the tables to this folder.")
    ] = None,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
) -> None:
    """Simulate an adaptive test with simulated or real subjects."""
    import pandas as pd

    from irtcat._csv import csv_bytes
    from irtcat._files import check_target
    from irtcat._folders import OutputFolder
    from irtcat.cat import calibrate_exposure as calibrate
    from irtcat.cat import drawn_abilities, replay
    from irtcat.cat import simulate as run

    rules = adaptive.read_config(
        config, criterion, stop, method, exposure, max_items, min_items, batch
    )
    if exposure_parameters is not None and calibrate_exposure is not None:
        must = "not with --exposure-parameters, which are already calibrated."
        raise typer.BadParameter(must, param_hint="--calibrate-exposure")
    if calibrate_exposure is not None:
        check_target(calibrate_exposure)
    folder = None if out is None else OutputFolder(out, "simulate")
    if folder is not None:
        folder.check(f"{name}.csv" for name in TABLES)
    use_compilation_cache()
    loaded = arguments.read_bank(bank)
    with progress("Compiling") as show_progress:

        def report_progress(done: int, of: int) -> None:
            if show_progress is not None:
                show_progress(done, of, f"{done} of {of} subjects")

        counts = adaptive.read_exposure(exposure_parameters)
        if calibrate_exposure is not None:
            counts = calibrate(loaded, drawn_abilities(loaded, n, seed), rules, seed=seed)
            counts.save(calibrate_exposure)
        if responses is not None:
            options = arguments.Reading(
                format=format, subject=subject, item=item, response=response, duplicates=duplicates
            )
            data = arguments.read(responses, options)
            report = replay(loaded, data, rules, seed, counts=counts, progress=report_progress)
        else:
            # Not the subjects of the calibration, whose results would be too favourable.
            run_seed = seed + (calibrate_exposure is not None)
            theta = drawn_abilities(loaded, n, run_seed)
            report = run(loaded, theta, rules, run_seed, counts=counts, progress=report_progress)
    summary = report.summary()
    frames = (report.to_frame(), report.by_theta(), report.by_length(), report.exposure(),
            pd.DataFrame([summary]), report.content())  # fmt: skip
    tables = dict(zip(TABLES, frames, strict=True))
    if report.plan is None:
        del tables["content"]
    if folder is not None:
        with folder.writing(f"{name}.csv" for name in tables) as files:
            for file, table in zip(files.values(), tables.values(), strict=True):
                file.write(csv_bytes(table))
    ended = report.reasons()
    if as_json:
        emit_json({
            "config": rules.to_json(), "seed": seed, "out": out, "summary": summary,
            "ended_by": dict(ended), "flags": report.flags(),
            "content": records(report.content()),
        })  # fmt: skip
        return
    show(pd.DataFrame({"value": summary}).rename_axis("figure"))
    show(tables["by_theta"], "By true ability")
    show(pd.DataFrame(ended[ended > 0]), "Ended by")
    if report.plan is not None:
        show(tables["content"], "Content")
    for flag in report.flags():
        say(flag)
    if out is not None:
        say(f"Wrote {', '.join(f'{name}.csv' for name in tables)} to {out}")

"""``irtcat simulate``."""

from dataclasses import replace

import typer

from irtcat._common.progress import counted, part_of
from irtcat.cli._adaptive import RULES, read_config
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import BANK, MISMATCH, RESPONSES_OPTION, SEED, folder, output, own
from irtcat.cli._output import figures, records

EXAMPLE = (
    "irtcat fit dataset:lsat7",
    'irtcat simulate bank.npz --n 500 --criterion mfi --stop "se<0.7 or n>=4" --out simulated',
    'irtcat simulate bank.npz --responses dataset:lsat7 --stop "n>=3"',
)

TABLES = ("sessions", "by_theta", "by_length", "exposure", "summary", "content")


@command_of(
    "irtcat.cat.simulate",
    BANK,
    own("n", type=int, default=1000, min=1, help="Subjects, drawn from the bank's population."),
    *RULES,
    output(
        "calibrate_exposure",
        help="First calibrate the parameters of sympson-hetter on --n subjects, and write them "
        "to this file.",
    ),
    RESPONSES_OPTION,
    replace(MISMATCH, source="irtcat.cat.replay"),
    SEED,
    folder(default_file="simulated", help="Write the tables to this folder."),
)
def command(o: Options) -> Output:
    """Simulate an adaptive test with simulated or real subjects."""
    import pandas as pd

    from irtcat import cat
    from irtcat._files.csv import csv_bytes
    from irtcat._files.folders import OutputFolder
    from irtcat.cat import drawn_abilities

    calibrate, bank, seed = o.calibrate_exposure is not None, o.bank, o.seed
    config = read_config(o)
    if o.exposure_parameters is not None and calibrate:
        must = "not with --exposure-parameters, which are already calibrated."
        raise typer.BadParameter(must, param_hint="--calibrate-exposure")
    folder = None if o.out is None else OutputFolder(o.out, "simulate")
    if folder is not None:
        folder.check(f"{name}.csv" for name in TABLES)
    n_parts = 1 + calibrate

    show_rounds = counted("rounds of the calibration")(part_of(o.progress, 0, n_parts))
    show_sessions = counted("subjects")(part_of(o.progress, n_parts - 1, n_parts))
    exposure = o.exposure_parameters
    if calibrate:
        theta = drawn_abilities(bank, o.n, seed)
        exposure = cat.calibrate_exposure(bank, theta, config, seed=seed, progress=show_rounds)
        exposure.save(o.calibrate_exposure)
    shared = {"counts": exposure, "progress": show_sessions}
    if o.responses is not None:
        report = cat.replay(bank, o.responses, config, seed, mismatch=o.mismatch, **shared)
    else:
        # Not the subjects of the calibration, whose results would be too favourable.
        theta = drawn_abilities(bank, o.n, seed + calibrate)
        report = o.call(theta=theta, config=config, seed=seed + calibrate, **shared)
    summary = report.summary()
    frames = (
        report.to_frame(),
        report.by_theta(),
        report.by_length(),
        report.exposure(),
        pd.DataFrame([summary]),
        report.content(),
    )
    tables = dict(zip(TABLES, frames, strict=True))
    content = tables["content"] if report.plan is not None else tables.pop("content")
    files = [f"{name}.csv" for name in tables]
    if folder is not None:
        with folder.writing(files) as opened:
            for file, table in zip(opened.values(), tables.values(), strict=True):
                file.write(csv_bytes(table))
    ended = report.reasons()
    document = {
        "config": config.to_json(),
        "seed": seed,
        "out": o.out,
        "summary": summary,
        "ended_by": dict(ended),
        "flags": report.flags(),
        "content": records(content),
    }
    text = [
        figures(summary),
        Table(tables["by_theta"], "By true ability"),
        Table(pd.DataFrame(ended[ended > 0]), "Ended by"),
        *([] if report.plan is None else [Table(content, "Content")]),
        *report.flags(),
        *([] if o.out is None else [f"Wrote {', '.join(files)} to {o.out}"]),
    ]
    after = ("report", o.unread["bank"], o.out)
    return Output(document, text, table=tables["sessions"], next=after)

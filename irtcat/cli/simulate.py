"""``irtcat simulate``, and the rules of adaptive tests, which are options of other commands too."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from irtcat import cat
from irtcat._common.errors import InputError
from irtcat._common.numbers import number_in
from irtcat._common.progress import counted, part_of
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import (
    BANK,
    MISMATCH,
    RESPONSES_OPTION,
    SEED,
    folder,
    group,
    option,
    output,
    own,
)
from irtcat.cli._output import figures

EXAMPLE = (
    "irtcat fit dataset:lsat7",
    'irtcat simulate bank.npz --n 500 --criterion mfi --stop "se<0.7 or n>=4" --out simulated',
    'irtcat simulate bank.npz --responses dataset:lsat7 --stop "n>=3"',
)

TABLES = ("sessions", "by_theta", "by_length", "exposure", "summary", "content")

CONFIG = "irtcat.cat.Config"


def read_part(text: str) -> dict[str, Any]:
    """Parse a rule and its options from NAME or NAME:OPTION=NUMBER,..."""
    name, _, rest = text.partition(":")
    out: dict[str, Any] = {"name": name.strip()}
    for pair in rest.split(",") if rest else []:
        key, _, value = pair.partition("=")
        number = number_in(value)
        if number is None:
            must = f"{text!r} is not NAME or NAME:OPTION=NUMBER, such as randomesque:k=5."
            raise typer.BadParameter(must)
        out[key.strip()] = int(number) if number == int(number) and "." not in value else number
    return out


_rule = partial(option, source=CONFIG, default=None)
"""An option that sets a field of the configuration; without it the file or the default does."""

CRITERION = _rule(
    "criterion",
    names="irtcat.cat.CRITERIA",
    help="{names}; by default mfi; required for multidimensional banks.",
)
STOP = _rule("stop", of="stopping", help='Such as "se<0.3 or n>=30"; by default after 30 items.')
METHOD = _rule("method", names="irtcat.cat.METHODS", help="{names}; by default eap.")
EXPOSURE = _rule(
    "exposure",
    parse=read_part,
    names="irtcat.cat.EXPOSURE",
    help="{names}; with options as in randomesque:k=5 or restricted:rate=0.2.",
)
LENGTHS = (_rule("max_items", min=1), _rule("min_items", min=0), _rule("batch", min=1))
FILES = (
    own(
        "config",
        type=Path,
        help="JSON file with the fields of irtcat.cat.Config; options override it.",
    ),
    own(
        "exposure_parameters",
        type=Path,
        read=lambda path: cat.ExposureParameters.load(path),
        help="File written by simulate --calibrate-exposure; required by sympson-hetter.",
    ),
)
RULES = group("Rules of the test", CRITERION, STOP, METHOD, EXPOSURE, *LENGTHS, *FILES)


def read_config(o: Options, **defaults: Any) -> "cat.Config":
    """Build the configuration from a file and the options, which override the file."""
    from irtcat._files.reading import read_json

    document: Any = defaults
    if o.config is not None:
        document = read_json(o.config)
        if not isinstance(document, dict):
            raise InputError(f"{o.config}: not a JSON object with the fields of a configuration.")
    if o.stop is not None and o.max_items is None:
        document.pop("max_items", None)
    return cat.Config.from_json({**document, **o.values_of(CONFIG)})


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

    from irtcat._files.csv import csv_bytes
    from irtcat._files.folders import OutputFolder
    from irtcat.report.reading import simulation_tables

    calibrate, bank, seed = o.calibrate_exposure is not None, o.bank, o.seed
    config = read_config(o)
    if o.exposure_parameters is not None and calibrate:
        must = "not with --exposure-parameters, which are already calibrated."
        raise o.usage_error("calibrate_exposure", must)
    folder = None if o.out is None else OutputFolder(o.out, "simulate")
    if folder is not None:
        folder.check(f"{name}.csv" for name in TABLES)
    n_parts = 1 + calibrate

    show_rounds = counted("rounds of the calibration")(part_of(o.progress, 0, n_parts))
    show_sessions = counted("subjects")(part_of(o.progress, n_parts - 1, n_parts))
    exposure = o.exposure_parameters
    if calibrate:
        theta = cat.drawn_abilities(bank, o.n, seed)
        exposure = cat.calibrate_exposure(bank, theta, config, seed=seed, progress=show_rounds)
        exposure.save(o.calibrate_exposure)
    shared = {"counts": exposure, "progress": show_sessions}
    if o.responses is not None:
        report = cat.replay(bank, o.responses, config, seed, mismatch=o.mismatch, **shared)
    else:
        # Not the subjects of the calibration, whose results would be too favourable.
        theta = cat.drawn_abilities(bank, o.n, seed + calibrate)
        report = o.call(theta=theta, config=config, seed=seed + calibrate, **shared)
    summary, tables = report.summary(), simulation_tables(report)
    content = report.content()
    tables |= {} if report.plan is None else {"content": content}
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
        "content": content,
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

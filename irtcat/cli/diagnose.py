"""``irtcat diagnose``: checks of responses, one command each."""

import typer

from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._input import read_with_facets, split_texts
from irtcat.cli._options import RESPONSES, option, result
from irtcat.cli._output import records
from irtcat.cli._session import warn

EXAMPLE = ("irtcat diagnose reruns runs.csv", "irtcat diagnose judges judged.csv")

HELP = "Check what responses are worth before they decide anything."


def _whole_numbers(text: str) -> tuple[int, ...]:
    """Numbers of trials, comma-separated."""
    from irtcat._common.numbers import whole_number_in

    numbers = [whole_number_in(part) for part in split_texts(text)]
    if None in numbers:
        raise typer.BadParameter(f"{text!r} are not whole numbers, comma-separated.")
    return tuple(number for number in numbers if number is not None)


@command_of(
    "irtcat.diagnose.reruns",
    RESPONSES,
    option("k", "-k", "--k", type=str, default=None, parse=_whole_numbers,
           help="Numbers of trials for pass@k and pass^k, comma-separated; by default 1, 2, ..."),
    option("n", type=int, min=2),
    option("seed", type=int, min=0),
    "level",
    option("first", source="", type=int, default=20, min=1,
           help="Number of items that flip to print."),
    result("reruns.csv"),
    compiles=False,
)  # fmt: skip
def reruns(o: Options) -> Output:
    """Show what a rerun would change: noise of scores, items that flip, pass@k and pass^k."""
    found = o.call()
    frame = found.to_frame()
    o.write("out", frame, "table of the subjects")
    if not o.for_programs:
        for flag in found.flags:
            warn(f"{flag[:1].upper()}{flag[1:]}.")
    flipping = found.items[found.items["n_flipping"] > 0]
    names = ("icc", "icc_interval", "flip_rate", "flip_rate_interval", "noise_floor", "p_run")
    tables = {"components": found.components, "subjects": frame, "passes": found.passes,
              "items": flipping}  # fmt: skip
    document = {name: getattr(found, name) for name in (*names, "level", "flags")}
    document |= {name: records(table) for name, table in tables.items()}
    text = [
        str(found),
        Table(found.components, "Components of variance", decimals=4),
        Table(frame, "Subjects"),
        *([Table(found.passes, "pass@k and pass^k")] if len(found.passes) else []),
        Table(flipping.head(o.first), "Items that flip most"),
    ]
    source = o.unread["responses"]
    after = ("plan", source, "--reruns", source, *o.reading_words)
    return Output({**document, "out": o.out}, text, table=frame, next=after)


@command_of(
    "irtcat.diagnose.judges",
    RESPONSES,
    option("judge", help="Column of the long table that says who judged."),
    option("trials", choices="irtcat.diagnose.judge_noise.TRIALS",
           help="What trials of one judgement are: other {names} of the model, or repeated."),
    option("n", type=int, min=2),
    option("seed", type=int, min=0),
    "level",
    result("judges.csv"),
    compiles=False,
)  # fmt: skip
def judges(o: Options) -> Output:
    """Show what other judges would change: noise of scores, severity, agreement."""
    data = read_with_facets(o.unread["responses"], [o.judge], o.reading)
    found = o.call(responses=data)
    frame = found.to_frame()
    o.write("out", frame, "table of the judges")
    if not o.for_programs:
        for flag in found.flags:
            warn(f"{flag[:1].upper()}{flag[1:]}.")
    components = found.components.dropna(subset="variance")
    tables = {"components": found.components, "judges": frame, "noise": found.noise}
    document = {name: getattr(found, name) for name in ("alpha", "n_items", "level", "flags")}
    document |= {name: records(table) for name, table in tables.items()}
    text = [
        str(found),
        Table(components, "Components of variance", decimals=4),
        Table(frame, "Judges"),
        Table(found.noise, "Noise by the number of judges, in points"),
    ]
    return Output({**document, "out": o.out}, text, table=frame)


COMMANDS = {"reruns": reruns, "judges": judges}
"""Checks by name."""

"""``irtcat diagnose``: checks of responses, one command each."""

from collections.abc import Iterable

import typer

from irtcat._common.errors import InputError
from irtcat._common.numbers import whole_number_in
from irtcat.cli._command import Options, Output, Table, by_name, command_of
from irtcat.cli._input import judge_column, split_texts
from irtcat.cli._options import RESPONSES, option, own, result
from irtcat.cli._output import fields_of

JUDGE = own(
    "judge",
    help="Column of a long table that says who judged; by default judge, rater, annotator, ...",
)

EXAMPLE = ("irtcat diagnose reruns runs.csv", "irtcat diagnose judges judged.csv")

MOST_NAMED = 3
"""Judges of few answers that are named, one line each."""

HELP = "Check what responses are worth before they decide anything."


def _whole_numbers(text: str) -> tuple[int, ...]:
    """Numbers of trials, comma-separated."""
    numbers = [whole_number_in(part) for part in split_texts(text)]
    if None in numbers:
        raise typer.BadParameter(f"{text!r} are not whole numbers, comma-separated.")
    return tuple(number for number in numbers if number is not None)


@command_of(
    "irtcat.diagnose.reruns",
    RESPONSES,
    JUDGE,
    option(
        "k",
        "-k",
        "--k",
        parse=_whole_numbers,
        help="Numbers of trials for pass@k and pass^k, comma-separated; by default 1, 2, ...",
    ),
    option("n", min=2),
    option("seed", min=0),
    "level",
    own("first", type=int, default=20, min=1, help="Number of items that flip to print."),
    result("reruns.csv"),
    compiles=False,
)
def reruns(o: Options) -> Output:
    """Show what a rerun would change: noise of scores, items that flip, pass@k and pass^k."""
    source = o.unread["responses"]
    judge = judge_column(source, o.judge, o.reading)
    if judge is not None:
        o.add_facet(judge)
    found = o.call()
    frame = found.to_frame()
    o.write("out", frame, "table of the subjects")
    flipping = found.items[found.items["n_flipping"] > 0]
    names = ("icc", "icc_interval", "flip_rate", "flip_rate_interval", "noise_floor", "p_run")
    document = fields_of(found, *names, "level", "flags", "components")
    document |= {"subjects": frame, "passes": found.passes, "items": flipping, "out": o.out}
    text = [
        str(found),
        Table(found.components, "Components of variance", decimals=4),
        Table(frame, "Subjects"),
        *([Table(found.passes, "pass@k and pass^k")] if len(found.passes) else []),
        Table(flipping.head(o.first), "Items that flip most"),
    ]
    after: tuple[str, ...] = ("diagnose", "judges", source, *o.reading_words)
    if judge is None:  # a plan is for pairs of subjects
        after = ("plan", source, "--reruns", source, *o.reading_words) if len(frame) > 1 else ()
    flags = _sentences(found.flags)
    return Output(document, text, table=frame, flags=flags, next=after)


@command_of(
    "irtcat.diagnose.judges",
    RESPONSES,
    JUDGE,
    option(
        "repeats",
        choices="irtcat.responses.judgements.REPEATS",
        help="What trials of one judgement are: other answers of the model, or repeated "
        "judgements of one answer ({names}).",
    ),
    option("n", min=2),
    option("seed", min=0),
    "level",
    result("judges.csv"),
    compiles=False,
)
def judges(o: Options) -> Output:
    """Show what other judges would change: noise of scores, severity, agreement."""
    from irtcat.diagnose.judge_noise import JudgeError
    from irtcat.io.files import place_of

    source = o.unread["responses"]
    judge = judge_column(source, o.judge, o.reading)
    if judge is None:
        raise InputError(f"{source}: expected a column that says who judged. Name it with --judge.")
    o.add_facet(judge)
    try:
        found = o.call(judge=judge)
    except JudgeError as error:
        raise InputError(f"{place_of(source, judge, error.judge)}: {error}") from None
    frame = found.to_frame()
    o.write("out", frame, "table of the judges")
    flags = _sentences(found.flags)
    for name in frame.index[frame["n_shared"] < 2][:MOST_NAMED]:
        n = "1 answer" if frame["n_shared"][name] else "no answer"
        place = place_of(source, judge, name)
        flags.append(f"{place}: {name!r} shares {n} with other judges: its severity is not known.")
    components = found.components.dropna(subset="variance")
    document = fields_of(found, "alpha", "n_items", "level", "flags", "components")
    document |= {"judges": frame, **fields_of(found, "pairs", "noise", "votes"), "out": o.out}
    text = [
        str(found),
        Table(components, "Components of variance", decimals=4),
        Table(frame, "Judges"),
        *([Table(found.pairs, "Pairs of judges")] if len(found.pairs) > 1 else []),
        Table(found.noise, "Noise of mean scores by the number of judges, in points"),
        *([Table(found.votes, "Noise of decisions by majority")] if len(found.votes) else []),
    ]
    return Output(document, text, table=frame, flags=flags)


def _sentences(flags: Iterable[str]) -> list[str]:
    """Flags, which end a line elsewhere, as sentences."""
    return [f"{text[:1].upper()}{text[1:]}." for text in flags]


COMMANDS = by_name(reruns, judges)
"""Checks by name."""

"""``irtcat score``."""

from typing import Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show, write_csv
from irtcat.cli._session import use_compilation_cache

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    "irtcat score bank.npz dataset:lsat7 --method eap --out scores.csv",
)


def command(
    bank: Annotated[str, typer.Argument(metavar="BANK", help="Bank written by irtcat fit.")],
    responses: arguments.ResponsesArgument,
    method: Annotated[str, typer.Option(help="eap, map, ml, wle or eapsum.")] = "eap",
    level: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.95,
    out: arguments.Out = None,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
    trials: arguments.Trials = None,
) -> None:
    """Estimate abilities, with standard errors and intervals."""
    import irtcat
    from irtcat._files import check_target
    from irtcat.scoring import METHODS

    arguments.choose("--method", method, METHODS)
    if out is not None:
        check_target(out)
    use_compilation_cache()
    options = arguments.Reading.of(locals())
    loaded = arguments.read_bank(bank)
    ability = irtcat.score(loaded, arguments.read(responses, options), method, level=level)
    frame = ability.to_frame()
    if out is not None:
        write_csv(frame, out)
    if as_json:
        about = {"method": method, "level": level, "n_subjects": len(frame), "out": out}
        emit_json({**about, "subjects": records(frame)})
        return
    if out is None:
        show(frame)
        return
    say(f"{ability}: theta from {frame['theta'].min():.3f} to {frame['theta'].max():.3f}")
    flags = frame.loc[frame["flags"] != "", "flags"].value_counts()
    for flag, count in flags.items():
        say(f"Flagged {flag!r}: {count} of {len(frame)} subjects")
    say(f"Wrote the scores to {out}")

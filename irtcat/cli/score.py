"""``irtcat score``."""

from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import BANK, OUT, RESPONSES, option
from irtcat.cli._output import flag_counts, records

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    "irtcat score bank.npz dataset:lsat7 --method eap --out scores.csv",
)


@command_of(
    "irtcat.score",
    BANK,
    RESPONSES,
    option("method", choices="irtcat.scoring.METHODS"),
    "level",
    OUT,
)
def command(o: Options) -> Output:
    """Estimate abilities, with standard errors and intervals."""
    ability = o.call()
    frame = ability.to_frame()
    o.write("out", frame, "scores")
    about = {"method": o.method, "level": o.level, "n_subjects": len(frame), "out": o.out}
    text = [frame]
    if o.out is not None:
        text = [f"{ability}: theta from {frame['theta'].min():.3f} to {frame['theta'].max():.3f}"]
        text += flag_counts(frame, "subjects")
    return Output({**about, "subjects": records(frame)}, text)

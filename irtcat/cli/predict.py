"""``irtcat predict``."""

from irtcat.cli import _input
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import CALIBRATION, ITEMS, OUT, RESPONSES, SUBSET, option, output
from irtcat.cli._output import records

EXAMPLE = (
    "irtcat select -k 60 --responses dataset:digits_crowd --out items.csv",
    "irtcat predict dataset:digits_crowd items.csv dataset:digits_crowd --out scores.csv",
)


@command_of(
    "irtcat.predict",
    CALIBRATION,
    SUBSET,
    RESPONSES,
    option("bank", read=_input.read_bank),
    option("estimator", choices="irtcat.ESTIMATORS"),
    "level",
    ITEMS,
    option("groups",
           help="Column of item groups, in --items or the metadata: adds their scores."),
    option("weights", parse=_input.split_numbers,
           help="Weight of each group in the score: algebra=2,reading=1."),
    output("beats", help="Write the probabilities of beating each calibrated subject (CSV)."),
    OUT,
)  # fmt: skip
def command(o: Options) -> Output:
    """Predict full scores and ranks from the items that were run."""
    prediction = o.call(groups=_input.items_column(o.items, o.groups))
    frame, groups = prediction.to_frame(), prediction.groups
    o.write("out", frame)
    if o.beats is not None:
        o.write("beats", prediction.beats())
    document = {
        "estimator": o.estimator, "level": o.level, "out": o.out, "beats": o.beats,
        "subjects": records(frame), "groups": None if groups is None else records(groups),
    }  # fmt: skip
    by_group = [] if groups is None else [groups.set_index(["subject", "group"])]
    first = frame if o.out is None else f"{prediction}; wrote them to {o.out}"
    return Output(document, [first, *by_group])

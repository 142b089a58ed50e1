"""``irtcat predict``."""

from dataclasses import replace
from typing import TYPE_CHECKING

from irtcat._common.errors import InputError
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import (
    ANSWERS,
    ESTIMAND,
    EXPECT,
    ITEMS,
    MISMATCH,
    PRIOR,
    RERUNS,
    SHORT_FORM,
    group,
    option,
    output,
    result,
)
from irtcat.cli._output import SUMMARY_ROWS, fields_of

if TYPE_CHECKING:
    import pandas as pd

    from irtcat.prediction import Prediction

EXAMPLE = (
    "irtcat select -k 60 --responses dataset:digits_crowd",
    "irtcat predict dataset:digits_crowd items.csv dataset:digits_crowd",
)

SHARES = ("score", "lower", "upper")
EQUAL = "equal"
BANK = "bank.npz"
"""The file that irtcat fit writes by default."""


@command_of(
    "irtcat.predict",
    *ANSWERS,
    SHORT_FORM,
    option("bank", read=_input.read_bank),
    option("estimator", choices="irtcat.ESTIMATORS"),
    EXPECT,
    "pooled",
    PRIOR,
    "level",
    replace(
        ESTIMAND,
        help="Whose scores and ranks: {names} (these runs, the models over reruns, items like "
        "these); by default scores of these runs and ranks of the models.",
    ),
    RERUNS,
    MISMATCH,
    *group(
        "Groups of items",
        ITEMS,
        option(
            "groups", help="Column of item groups, in --items or the metadata: adds their scores."
        ),
        option(
            "weights",
            parse=lambda text: text if text == EQUAL else _input.split_numbers(text),
            help="Weight of each group in the score: algebra=2,reading=1; or equal. Without it "
            "every item counts the same.",
        ),
    ),
    result("predictions.csv"),
    output("beats", help="Write the probabilities of beating each calibrated subject (CSV)."),
)
def command(o: Options) -> Output:
    """Predict full scores and ranks from the items that were run.

    With --short-form the only argument is RESPONSES.
    """
    if o.short_form is None:
        _check_arguments(o)
        prediction = o.call(groups=_input.items_column(o.items, o.groups))
    else:
        prediction = _by_form(o)
    frame, groups = prediction.to_frame(), prediction.groups
    whose = fields_of(prediction, "estimand", "ranks_of")
    o.write("out", frame.assign(**whose, level=o.level).join(_by_group(groups)), "predictions")
    if o.beats is not None:
        o.write("beats", prediction.beats(), "probabilities")
    document = {
        **fields_of(o, "estimator", "expect"),
        "shared_priors": prediction.shared_priors,
        "level": o.level,
        **whose,
        **fields_of(o, "out", "beats"),
        "subjects": frame,
        "groups": groups,
    }
    best = frame.sort_values("score", ascending=False, kind="stable")
    columns = ["rank", *SHARES, "rank_lower", "rank_upper", "flag", "estimator"]
    text = [
        _headline(prediction),
        prediction.question,
        Table(best[columns], rows=SUMMARY_ROWS, percent=SHARES),
        *filter(None, [prediction.pooling]),
    ]
    if groups is not None:
        text.append(Table(groups.set_index(["subject", "group"]), percent=SHARES))
    return Output(document, text, table=frame, next=("report", *_bank_of(o), o.out))


def _by_group(groups: "pd.DataFrame | None") -> "pd.DataFrame":
    """Columns with the score of each group and its interval, a row for each subject."""
    import pandas as pd

    if groups is None:
        return pd.DataFrame()
    columns = {
        f"{name}_{group}": part.set_index("subject")[name]
        for group, part in groups.groupby("group", sort=False)
        for name in SHARES
    }
    return pd.DataFrame(columns)


def _bank_of(o: Options) -> list[str]:
    """The bank to report: that of --bank, or the one of irtcat fit if it has the same items."""
    if o.unread["bank"] is not None:
        return [o.unread["bank"]]
    if not _input.is_bank(BANK):
        return []
    items = o.calibration.item_ids if o.short_form is None else o.short_form.item_ids
    try:
        known = _input.read_bank_table(BANK).table.index
    except InputError:
        return []
    return [BANK] if set(map(str, items)) <= set(map(str, known)) else []


def _check_arguments(o: Options) -> None:
    """Raise for an argument that is not given."""
    for name in ("calibration", "subset", "responses"):
        if o.unread[name] is None:
            must = "give CALIBRATION, SUBSET (of irtcat select) and RESPONSES; or RESPONSES alone "
            must += "with --short-form."
            raise o.usage_error(name, must)


def _by_form(o: Options) -> "Prediction":
    """The predictions of a short form; its responses are the first argument."""
    if o.unread["calibration"] is None or o.unread["subset"] is not None:
        raise o.usage_error("responses", "give RESPONSES and no other argument with --short-form.")
    for name in ("bank", "estimator", "prior", "items", "groups", "weights"):
        if o.unread[name] not in (None, "auto"):
            raise o.usage_error(name, "not with --short-form.")
    o.unread["responses"] = o.unread["calibration"]  # so that messages name it by what it is
    values = fields_of(o, "expect", "level", "estimand", "reruns", "mismatch", "pooled")
    prediction: Prediction = o.short_form.predict(o.responses, **values)
    return prediction


def _headline(prediction: "Prediction") -> str:
    """How many subjects, which is the best, and whether it is clearly so, also over reruns."""
    import numpy as np

    n = len(prediction)
    subjects = "1 subject" if n == 1 else f"{n} subjects, the best first"
    line = f"{subjects}; ranks among the {prediction.n_calibrated} calibrated"
    if prediction.known is not None:
        k, rest = int(prediction.known.sum()), prediction.n_calibrated - 1
        if k == n:
            line = f"{subjects}; calibrated already, ranked among the other {rest}"
        else:
            line += f"; {k} of them calibrated already, ranked among the other {rest}"
    if n < 2 or np.isnan(prediction.score).all():
        return line
    best = int(np.nanargmax(prediction.score))
    lower, upper = prediction.ranked_ends()
    overlap = int((upper >= lower[best]).sum()) - 1
    others = "that of 1 other overlaps" if overlap == 1 else f"those of {overlap} others overlap"
    again = " over reruns" if prediction.ranks_of == "model" else ""
    clear = f"not clearly{again}: its interval and {others}" if overlap else f"clearly{again}"
    return f"{line}\nBest is {prediction.subject_ids[best]}, {clear}"

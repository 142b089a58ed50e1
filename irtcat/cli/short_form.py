"""``irtcat short-form``."""

from dataclasses import replace

from irtcat import cat
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._input import read_subset, split_pairs
from irtcat.cli._options import CALIBRATION, EXPECT, SEED, option, result
from irtcat.cli._output import SUMMARY_ROWS, fields_of
from irtcat.cli.export import HTML

EXAMPLE = (
    "irtcat short-form dataset:digits_crowd -k 30 --out digits.json",
    "irtcat predict --short-form digits.json dataset:digits_crowd",
)


@command_of(
    "irtcat.short_form",
    CALIBRATION,
    option("n_items", "-k", "--n-items", min=1),
    option(
        "subset",
        read=read_subset,
        help="Take these items: output of irtcat select with the same responses.",
    ),
    option(
        "strategy",
        choices="irtcat.STRATEGIES",
        help="How the items are chosen: {names}; by default as irtcat select.",
    ),
    EXPECT,
    SEED,
    "name",
    "renew",
    option(
        "about",
        parse=split_pairs,
        help="What readers should know, such as licence=MIT,source=ADDRESS.",
    ),
    result("form.json", help="Write the form to this JSON file."),
    replace(
        HTML,
        help="Also write a test of all its items to this HTML file, which runs in a "
        "browser, offline and without a server (irtcat export FORM --html has its options).",
    ),
)
def command(o: Options) -> Output:
    """Make a short form: items and all that predicts full scores, without the responses.

    It predicts as irtcat predict does with the responses, and can be passed on.
    """
    form = o.call()
    o.write("out", form, "short form")
    frame = form.to_frame()
    document = {
        "name": form.name,
        "n_items": len(form),
        "all_items": form.n_items,
        "n_subjects": form.norms.n_subjects,
        **fields_of(form, "strategy", "expect", "seed", "made", "renew"),
        "out": o.out,
        "about": dict(form.about),
        "checksum": form.checksum,
        "items": frame,
    }
    text = [
        f"{len(form)} of {form.n_items} items by {form.strategy}, "
        f"with the norms of {form.norms.n_subjects} subjects",
        Table(frame, decimals=3, rows=SUMMARY_ROWS),
        "It holds no response and no id of a subject.",
        f"Checksum, to be published with it: {form.checksum}",
        "Run these items (irtcat export helps) on new models, and save the answers as NEW.",
    ]
    if o.html is not None:
        from irtcat.cat.offline.page import KEYS_IN_PAGE, offline_test

        every = cat.Config(criterion="sequential", max_items=len(form))
        o.write("html", offline_test(form.to_bank(), every, title=form.name or "Test"), "test")
        document |= {"html": o.html, "warning": KEYS_IN_PAGE}
        text.append(KEYS_IN_PAGE)
    after = ("predict", "--short-form", o.out or "form.json", "NEW")
    return Output(document, text, table=frame, next=after)

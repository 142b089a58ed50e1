"""``irtcat demo``."""

from irtcat import plot
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import folder, option
from irtcat.cli._output import warn

EXAMPLE = ("irtcat demo --out demo-output",)


@command_of(
    "irtcat.demo.run",
    folder(source=None),
    option("seeds", type=int, default=3, min=1, help="Number of seeds: 0, 1, …."),
)
def command(o: Options) -> Output:
    """Run the main workflow on real data.

    Hold out a quarter of the subjects, calibrate the items on the rest, select k items by several
    strategies, and predict the held-out subjects' full scores and ranks from those k.
    """
    result = o.call(seeds=range(o.seeds))
    if not result.fit.converged:
        warn(result.fit.message)
    table = result.to_frame()
    shared = [name for name in ("strategy", "n_items") if name in table]
    by_default = [name for name in table if str(name).startswith("auto_")]
    n_all, n = result.responses.n_subjects, result.fit.n_subjects
    text = [
        f"{n_all} classifiers of handwritten digits, {result.responses.n_items} images.",
        f"{n} calibrate the images; the other {n_all - n} are held out and answer k images only.",
        "How well do scores predicted from k images agree with those from all images?",
        "mean_: share of the k that is right; irt_: the model fills in the other images; auto_:",
        "the default estimator (with balanced, the default strategy: the last rows);",
        f"kendall: tau-b; mae: in percentage points. Means over {o.seeds} random hold-outs.\n",
        table[[*shared, *by_default, *table.columns.drop([*shared, *by_default])]],
        "",
        str(result.fit),
        *(f"{name:<17}{path}" for name, path in result.files.items()),
    ]
    if not plot.can_draw():
        text.append("For figures: pip install 'irtcat[plot]'")
    document = {"fit": result.fit.to_dict(), "files": result.files, "summary": table}
    return Output(document, text, table=table, next=("report", result.files["bank"]))

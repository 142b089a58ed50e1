"""``irtcat scale``."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtcat.cli import _input
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import ITEMS, RESPONSES, SEED, folder, group, option
from irtcat.cli._output import records

if TYPE_CHECKING:
    from irtcat.scale import Scales

EXAMPLE = ("irtcat scale dataset:lsat7 --two-factors skip",)


@command_of(
    "irtcat.scale.build",
    RESPONSES,
    folder(default=Path("scale"), help="Folder for banks, tables, figures and report.md."),
    option("groups", help="Column of the items' metadata (or of --items) with their scales."),
    replace(ITEMS, needs="groups COLUMN"),
    *group("Splitting", option("n_factors", min=1), "rotation", "two_factors", "criterion"),
    *group(
        "Tests of items",
        option("alpha_guessing", min=0),
        option("alpha_fit", min=0),
        option("alpha_dependence", min=0),
        "least_communality",
        "least_dependence",
        "least_share",
        option("least_items", min=3),
    ),
    option("figures", type=bool, default=True, help="Draw figures (needs matplotlib)."),
    SEED,
)
def command(o: Options) -> Output:
    """Build evaluation scales: split, test, drop, refit."""
    from irtcat import plot
    from irtcat._common.checks import InputError, shorten
    from irtcat._files.folders import OutputFolder

    folder = OutputFolder(o.out, "scale")
    folder.check(("report.md", "decisions.csv", "items.csv", "scales.csv"))
    if not o.out.exists() and not o.out.parent.is_dir():
        raise InputError(f"{o.out}: the folder {o.out.parent} does not exist. Create it first.")
    if o.figures:
        plot.check_figures()
    labels, ids = _input.items_column(o.items, o.groups), o.responses.item_ids.astype(str)
    if o.items is not None:
        if not labels.index.isin(ids).any():
            names = shorten(ids.tolist())
            raise InputError(f"{o.items}: has none of the items of the responses ({names}).")
        labels = labels.reindex(ids).tolist()
    result = o.call(groups=labels)
    plots = _figures(result) if o.figures else {}
    folder.check(plots)
    written = result.save(o.out)
    folder = OutputFolder(o.out, "scale")
    folder.add(plots)
    for name, figure in plots.items():
        plot.save(figure, o.out / name)
    written += [o.out / name for name in plots]
    table = result.to_frame()
    document = {"out": o.out, "files": [str(path) for path in written], "scales": records(table)}
    columns = ["status", "items", "retained", "rounds", "reliability_marginal", "rmsea"]
    shown = table[[name for name in columns if name in table]].reset_index()
    line = f"Wrote {len(written)} files to {o.out}; read {o.out / 'report.md'} first"
    return Output(document, [shown, line], table=table, next=("report", o.out))


def _figures(scales: "Scales") -> dict[str, Any]:
    """The figures of each scale by file name."""
    from irtcat import plot
    from irtcat.scale import file_names

    out: dict[str, Any] = {}
    stems = file_names(scales.scales)
    for name, scale in scales.scales.items():
        if scale.bank is None:
            continue
        stem = stems[name]
        retained = scale.curves[scale.curves["status"] == "retained"]
        removed = scale.curves[scale.curves["status"] == "removed"]
        out[f"{stem}_retained.png"] = plot.empirical_curves(retained)
        out[f"{stem}_information.png"] = plot.information_curve(scale.bank)
        out[f"{stem}_abilities.png"] = plot.ability_against_correct(scale.abilities)
        if len(removed):
            out[f"{stem}_removed.png"] = plot.empirical_curves(removed)
    return out

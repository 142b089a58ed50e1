"""``irtcat scale``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show
from irtcat.cli._session import progress, use_compilation_cache

if TYPE_CHECKING:
    from irtcat.scale import Scales

EXAMPLE = ("irtcat scale dataset:lsat7 --out scale --two-factors skip",)

Level = Annotated[float, typer.Option(min=0, help="Level of the test; 0 skips the test.")]


def command(
    responses: arguments.ResponsesArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for banks, tables, figures and report.md.")
    ],
    groups: Annotated[
        str | None,
        typer.Option(help="Column of the items' metadata (or of --items) with their scales."),
    ] = None,
    items: Annotated[
        Path | None, typer.Option(help="CSV of the items, ids first, with that column.")
    ] = None,
    n_factors: Annotated[
        int | None, typer.Option(min=1, help="Number of factors to split by; default: estimated.")
    ] = None,
    rotation: Annotated[str, typer.Option(help="Rotation of the factors.")] = "oblimin",
    two_factors: Annotated[
        str,
        typer.Option(help="Scales that two factors fit better: flag, refuse, or skip the test."),
    ] = "flag",
    criterion: Annotated[
        str, typer.Option(help="Criterion for that: bic, aic, sabic or caic.")
    ] = "bic",
    alpha_guessing: Level = 0.05,
    alpha_fit: Level = 0.05,
    alpha_dependence: Level = 0.05,
    least_communality: Annotated[
        float, typer.Option(help="Drop items with a lower communality.")
    ] = 0.15,
    least_dependence: Annotated[
        float, typer.Option(help="Smallest Cramer's V of a dependent pair.")
    ] = 0.0,
    least_share: Annotated[
        float, typer.Option(help="Smallest share of items that a scale must retain.")
    ] = 0.5,
    least_items: Annotated[int, typer.Option(min=3, help="Smallest number of items.")] = 4,
    figures: Annotated[bool, typer.Option(help="Draw figures (needs matplotlib).")] = True,
    seed: arguments.Seed = 0,
    as_json: arguments.Json = False,
    format: arguments.Format = None,
    subject: arguments.SubjectColumn = "subject",
    item: arguments.ItemColumn = "item",
    response: arguments.ResponseColumn = "response",
    duplicates: arguments.Duplicates = "refuse",
) -> None:
    """Build evaluation scales: split, test, drop, refit."""
    from irtcat import plot
    from irtcat._checks import InputError, shorten
    from irtcat._folders import OutputFolder
    from irtcat.scale import build

    if items is not None and groups is None:
        raise typer.BadParameter("name the column of --items.", param_hint="--groups")
    folder = OutputFolder(out, "scale")
    folder.check(("report.md", "decisions.csv", "items.csv", "scales.csv"))
    if not out.exists() and not out.parent.is_dir():
        raise InputError(f"{out}: the folder {out.parent} does not exist. Create it first.")
    if figures:
        plot.check_figures()
    use_compilation_cache()
    options = arguments.Reading(
        format=format, subject=subject, item=item, response=response, duplicates=duplicates
    )
    data = arguments.read(responses, options)
    labels: str | list[object] | None = groups
    if items is not None and groups is not None:
        column = arguments.table_column(items, groups, "items")
        if not column.index.isin(data.item_ids.astype(str)).any():
            names = shorten(data.item_ids.tolist())
            raise InputError(f"{items}: has none of the items of the responses ({names}).")
        labels = column[~column.index.duplicated()].reindex(data.item_ids.astype(str)).tolist()
    with progress("Finding factors") as report_progress:
        result = build(
            data, labels, n_factors=n_factors, rotation=rotation, two_factors=two_factors,
            criterion=criterion, alpha_guessing=alpha_guessing, alpha_fit=alpha_fit,
            alpha_dependence=alpha_dependence, least_communality=least_communality,
            least_dependence=least_dependence, least_share=least_share, least_items=least_items,
            seed=seed, progress=report_progress,
        )  # fmt: skip
    plots = _figures(result) if figures else {}
    folder.check(plots)
    written = result.save(out)
    folder = OutputFolder(out, "scale")
    folder.add(plots)
    for name, figure in plots.items():
        plot.save(figure, out / name)
    written += [out / name for name in plots]
    if as_json:
        scales = records(result.to_frame())
        emit_json({"out": out, "files": [str(path) for path in written], "scales": scales})
        return
    columns = ["status", "items", "retained", "rounds"]
    table = result.to_frame()
    more = [c for c in ("reliability_marginal", "rmsea") if c in table]
    show(table[columns + more].reset_index())
    say(f"Wrote {len(written)} files to {out}; read {out / 'report.md'} first")


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

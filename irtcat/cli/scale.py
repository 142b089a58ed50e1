"""``irtcat scale``."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import irtcat
from irtcat import plot
from irtcat._common.errors import InputError, shorten
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import ITEMS, RESPONSES, SEED, folder, group, option, own, table_by_id
from irtcat.cli._output import fields_of, warn

EXAMPLE = (
    "irtcat scale dataset:lsat7 --two-factors skip",
    "irtcat scale r.csv --exclude 'q7=two readings' --choices letters.csv --attention check=a",
)

CARELESS = "irtcat.scale.careless"
RULES = ("attention", "straight_line", "longest_run", "min_seconds")
"""Options that are rules for careless subjects."""


_rule: Callable[..., Any] = partial(option, source=CARELESS)


@command_of(
    "irtcat.scale.build",
    RESPONSES,
    folder(default=Path("scale"), help="Folder for banks, tables, figures and report.md."),
    option("groups", help="Column of the items' metadata (or of --items) with their scales."),
    replace(ITEMS, needs="groups COLUMN"),
    *group(
        "Left out",
        option(
            "exclude",
            type=list[str],
            metavar="ITEM=REASON",
            help="An item to leave out, or a CSV table of items, ids first, then reasons.",
        ),
        option(
            "exclude_subjects",
            "--exclude-subject",
            type=list[str],
            metavar="SUBJECT=REASON",
            help="A subject to leave out, or a CSV table of subjects, ids first, then reasons.",
        ),
        table_by_id(
            "choices",
            "subjects",
            source=CARELESS,
            default=None,
            help="CSV table of what subjects (ids first) chose, for the rules below; default: the "
            "responses, if in categories.",
        ),
        _rule(
            "attention",
            type=list[str],
            metavar="ITEM=CHOICE",
            help="An attention item and its right choice.",
        ),
        _rule("most_failed", min=0),
        _rule("straight_line", default=None, min=2),
        _rule("longest_run", type=int, min=1),
        _rule(
            "seconds",
            type=Path,
            needs="min_seconds NUMBER",
            read=lambda path: _input.table_column(path, "seconds", "subjects"),
            help="CSV table of subjects, ids first, with a column seconds.",
        ),
        _rule("min_seconds", needs="seconds FILE", min=0),
    ),
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
    own("figures", type=bool, default=True, help="Draw figures (needs matplotlib)."),
    SEED,
)
def command(o: Options) -> Output:
    """Build evaluation scales: split, test, drop, refit."""
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
    result = o.call(groups=labels, **_left_out(o))
    plots = _figures(result) if o.figures else {}
    folder.check(plots)
    written = result.save(o.out)
    folder = OutputFolder(o.out, "scale")
    folder.add(plots)
    for name, figure in plots.items():
        plot.save(figure, o.out / name)
    written += [o.out / name for name in plots]
    table = result.to_frame()
    document = {
        "out": o.out,
        "files": [str(path) for path in written],
        "scales": table,
        "left_out": result.left_out,
    }
    columns = ["status", "items", "retained", "rounds", "reliability_marginal", "rmsea"]
    shown = table[[name for name in columns if name in table]].reset_index()
    n = len(result.left_out)
    left_out = [f"Subjects left out: {n} of {o.responses.n_subjects} (see report.md)"] if n else []
    line = f"Wrote {len(written)} files to {o.out}; read {o.out / 'report.md'} first"
    return Output(document, [shown, *left_out, line], table=table, next=("report", o.out))


def _left_out(o: Options) -> dict[str, Any]:
    """The items and subjects to leave out, with reasons: by hand, and by the rules."""
    ids, subjects = (
        dict.fromkeys(map(str, names)) for names in (o.responses.item_ids, o.responses.subject_ids)
    )
    items = _with_reasons(o.exclude or [], ids, "items")
    people = _with_reasons(o.exclude_subjects or [], subjects, "subjects")
    if any(o.is_given(name) for name in RULES):
        found, attention = _careless(o)
        items = {item: "an attention item" for item in attention if item in ids} | items
        known = {subject: reason for subject, reason in found.items() if subject in subjects}
        people = known | people
    return {"exclude": items, "exclude_subjects": people}


def _careless(o: Options) -> tuple[dict[str, str], dict[str, str]]:
    """Reasons by careless subject, and the right choice of each attention item."""
    import numpy as np
    import pandas as pd

    attention = {}
    for text in o.attention or []:
        item, equals, choice = text.rpartition("=")
        if not equals or not item:
            raise o.usage_error("attention", f"{text!r} is not ITEM=CHOICE.")
        attention[item] = choice
    choices = o.choices
    by_choice = any(o.is_given(name) for name in RULES if name != "min_seconds")
    if choices is None and o.responses.n_categories == 2 and by_choice:
        raise InputError(
            "The rules of choices need what subjects chose, not whether it is right. Pass a table "
            "of them as --choices FILE."
        )
    ids = o.responses.subject_ids.astype(str)
    if choices is None:
        choices = pd.DataFrame(o.responses.to_numpy(), index=ids, columns=o.responses.item_ids)
    elif not choices.index.isin(ids).any():
        names = shorten(ids.tolist())
        raise InputError(
            f"{o.unread['choices']}: has none of the subjects of the responses ({names})."
        )
    without = ids[~np.isin(ids, choices.index.astype(str))]
    if len(without):
        name, who = o.unread["choices"], shorten(without.tolist())
        warn(f"{name}: no row for {len(without)} subjects ({who}), who are not judged.")
    rules = fields_of(o, "most_failed", "straight_line", "longest_run", "seconds", "min_seconds")
    found = irtcat.scale.careless(choices.map(_as_text), attention=attention, **rules)
    return {str(subject): reason for subject, reason in found.items()}, attention


def _as_text(choice: Any) -> str | None:
    """A choice as it is typed: 2 of a column of numbers with empty cells is not 2.0."""
    if choice is None or choice != choice:
        return None
    is_whole = isinstance(choice, float) and choice.is_integer()
    return str(int(choice)) if is_whole else str(choice).strip()


def _figures(scales: "irtcat.scale.Scales") -> dict[str, Any]:
    """The figures of each scale by file name."""
    out: dict[str, Any] = {}
    stems = irtcat.scale.file_names(scales.scales)
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


def _with_reasons(sources: list[str], ids: Collection[str], kind: str) -> dict[str, str]:
    """Reasons by id of texts ID=REASON or ID, and of CSV tables with ids first, then reasons.

    Args:
        sources: the texts and names of tables.
        ids: the ids of the responses, which may contain "=".
        kind: "items" or "subjects".

    Raises:
        InputError: for an id that the responses do not have.
    """
    from irtcat.scale.exclusion import BY_HAND

    reasons: dict[str, str] = {}
    for source in sources:
        if source not in ids and _input.is_file(source):
            table = _input.read_table(Path(source), kind)
            cells = table.iloc[:, 1].tolist() if table.shape[1] > 1 else [None] * len(table)
            texts = [BY_HAND if cell is None or cell != cell else str(cell) for cell in cells]
            reasons |= dict(zip(table.iloc[:, 0].astype(str), texts, strict=True))
        elif source in ids:
            reasons[source] = BY_HAND
        else:
            name, _, reason = source.partition("=")
            reasons[name] = reason or BY_HAND
    unknown = [name for name in reasons if name not in ids]
    if unknown:
        known = shorten(list(ids))
        raise InputError(f"{shorten(unknown)}: not among the {kind} of the responses ({known}).")
    return reasons

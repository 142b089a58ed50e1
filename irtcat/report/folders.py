"""Sections of output folders: evaluation scales, and evaluations of a live model."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from irtcat.report.bank import bank_section
from irtcat.report.blocks import Section, table_of
from irtcat.report.ranking import interval_name
from irtcat.report.reading import NOT_OVER
from irtcat.report.remarks import Note
from irtcat.report.sessions import sessions
from irtcat.report.tables import facts_of

if TYPE_CHECKING:
    from irtcat.cat import Session


def scale(name: str, contents: dict[str, Any]) -> list[Section]:
    """Sections of scales: an overview with all decisions, and the items of each scale."""
    tables, banks = contents["tables"], contents["banks"]
    scales, decisions = tables["scales"], tables["decisions"]
    ids = {"decisions": ("scale", "item")}
    for key, names in ids.items():
        for column_name in set(names) & set(tables[key]):
            tables[key][column_name] = tables[key][column_name].fillna("")
    facts = {
        "Scales": str(len(scales)),
        "Items offered": f"{int(scales['items'].sum()):,}",
        "Items retained": f"{int(scales['retained'].sum()):,}",
    }
    blocks = [
        table_of(scales, "Scales", long=()),
        table_of(
            decisions,
            "Decisions, in order",
            filters=[c for c in ("scale", "action") if len(set(decisions[c])) > 1],
            minor=("df",),
        ),
    ]
    if "items" in tables:
        shown = tables["items"].drop(columns=[c for c in ("se_c",) if c in tables["items"]])
        first = ["item", *[c for c in shown.columns if c != "item"]]
        blocks.append(
            table_of(
                shown[first],
                "All items, retained and removed",
                filters=[c for c in ("scale", "status") if c in shown],
                percent=("proportion_correct",),
                minor=("se_a", "se_b", "df", "communality", "s_x2"),
            )
        )
    status = scales.loc[scales["status"].astype(str) != "ok", ["scale", "status"]]
    notes = tuple(Note(f"Scale {row.scale}: {row.status}.", "Items") for row in status.itertuples())
    dropped = (decisions["action"] == "drop").sum()
    intro = f"{dropped:,} items were dropped; each decision states its statistic and threshold."
    title = f"Evaluation scales: {name}"
    out = [Section(title, (intro,), facts=facts, blocks=blocks, notes=notes)]
    for stem, bank in banks.items():
        curves = tables.get(f"{stem}_curves")
        out.append(bank_section(f"scale {stem}", bank, curves=curves))
    return out


def evaluation(
    name: str,
    contents: dict[str, Any],
    score_text: Callable[["Session"], str] | None = None,
    names: Mapping[str, str] | None = None,
) -> list[Section]:
    """Sections of the adaptive evaluation of a live model: results, items and sessions.

    Args:
        name: for the heading.
        contents: the result, the tables and the stores of the folder.
        score_text: see `sessions`.
        names: texts of items whose ids are hashes.
    """
    result, tables = contents["result"], contents["tables"]
    facts = {key: value for key, value in facts_of(_readable(result)).items() if value}
    for key in ("Unlike", "Flags", "Notes"):
        facts.pop(key, None)  # said under what to check
    notes = _notes(result)
    traced = [
        sessions(store.name, store, score_text, names, facts=not facts)
        for store in contents["stores"]
    ]
    if not facts:
        return [
            Section(f"Adaptive evaluation: {name}", notes=tuple(notes)),
            *(replace(one, title=f"{one.title} of {name}") for one in traced),
        ]
    blocks = [block for one in traced for block in one.blocks]
    for stem, frame in tables.items():
        if len(frame) and not (traced and "item" in frame):  # the steps of the session have them
            first = [c for c in ("item", "subject") if c in frame]
            rest = [c for c in frame.columns if c not in first]
            blocks.append(table_of(frame[[*first, *rest]], stem.capitalize()))
    intro = tuple(sentence for one in traced[:1] for sentence in one.intro)
    return [Section(f"Adaptive evaluation: {name}", intro, facts, blocks, tuple(notes))]


def _readable(result: dict[str, Any]) -> dict[str, Any]:
    """A result with what belongs together in one entry: score and interval, rank, ability, cost."""
    values = {key: value for key, value in result.items() if value is not None}
    for key in ("theta", "se"):  # a list if multidimensional, which is not an interval
        if isinstance(values.get(key), list):
            values[key] = ", ".join(f"{float(value):.4g}" for value in values[key])
    out: dict[str, Any] = {}
    if _all_numbers(values, "score", "lower", "upper"):
        score, low, high = (f"{100 * values.pop(key):.1f}" for key in ("score", "lower", "upper"))
        level = values.pop("level", None)
        interval = interval_name(level if isinstance(level, float) else None)
        out["score"] = f"{score} % ({interval} {low} to {high} %)"
    if _all_numbers(values, "rank", "n_calibrated"):
        out["rank"] = f"{values.pop('rank'):,} of {values.pop('n_calibrated') + 1:,}"
        if _all_numbers(values, "rank_lower", "rank_upper"):
            out["rank"] += f" ({values.pop('rank_lower'):,} to {values.pop('rank_upper'):,})"
    if _all_numbers(values, "n_items", "n_bank"):
        out["items_run"] = f"{values.pop('n_items'):,} of {values.pop('n_bank'):,}"
    if "theta" in values and "se" in values and "," not in str(values["theta"]):
        out["theta"] = f"{values.pop('theta'):.3f} (SE {values.pop('se'):.3f})"
    if _all_numbers(values, "cost", "full_cost"):
        out["cost"] = f"{values.pop('cost'):,.4g} of {values.pop('full_cost'):,.4g}"
    model = {"model": values.pop("model")} if "model" in values else {}
    return model | out | values


def _all_numbers(values: dict[str, Any], *keys: str) -> bool:
    return all(
        isinstance(values.get(key), (int, float)) and not isinstance(values[key], bool)
        for key in keys
    )


def _notes(result: dict[str, Any]) -> list[Note]:
    """What to check of a result; the ranking has what is odd about its score."""
    notes = []
    for key in ("flags", "notes", "warnings", "note", "warning"):
        value = result.get(key)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        notes += [Note(str(text), "Runs", text == NOT_OVER) for text in texts if text]
    return notes

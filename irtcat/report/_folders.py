"""Sections of output folders: evaluation scales, and evaluations of a live model."""

from typing import Any

from irtcat.report._bank import bank_section
from irtcat.report._blocks import Section, column, table, table_of
from irtcat.report._sessions import sessions
from irtcat.report._tables import facts_of

__all__ = ["evaluation", "scale"]


def scale(name: str, contents: dict[str, Any]) -> list[Section]:
    """Sections of scales: an overview with all decisions, and the items of each scale."""
    tables, banks = contents["tables"], contents["banks"]
    scales, decisions = tables["scales"], tables["decisions"]
    ids = {"decisions": ("scale", "item")}
    for key, names in ids.items():
        for column_name in set(names) & set(tables[key]):
            tables[key][column_name] = tables[key][column_name].fillna("")
    facts = {"Scales": str(len(scales)), "Items offered": f"{int(scales['items'].sum()):,}",
             "Items retained": f"{int(scales['retained'].sum()):,}"}  # fmt: skip
    blocks = [table_of(scales, "Scales", long=()),
              table_of(decisions, "Decisions, in order",
                       filters=[c for c in ("scale", "action") if len(set(decisions[c])) > 1],
                       minor=("df",))]  # fmt: skip
    if "items" in tables:
        shown = tables["items"].drop(columns=[c for c in ("se_c",) if c in tables["items"]])
        first = ["item", *[c for c in shown.columns if c != "item"]]
        blocks.append(table_of(shown[first], "All items, retained and removed",
                               filters=[c for c in ("scale", "status") if c in shown],
                               percent=("proportion_correct",),
                               minor=("se_a", "se_b", "df", "communality", "s_x2")))  # fmt: skip
    status = scales.loc[scales["status"].astype(str) != "ok", ["scale", "status"]]
    warnings = tuple(f"Scale {row.scale}: {row.status}." for row in status.itertuples())
    dropped = (decisions["action"] == "drop").sum()
    intro = f"{dropped:,} items were dropped; each decision states its statistic and threshold."
    title = f"Evaluation scales: {name}"
    out = [Section(title, (intro,), facts=facts, blocks=blocks, warnings=warnings)]
    for stem, bank in banks.items():
        curves = tables.get(f"{stem}_curves")
        out.append(bank_section(f"scale {stem}", bank, curves=curves))
    return out


def evaluation(name: str, contents: dict[str, Any]) -> list[Section]:
    """Sections of the adaptive evaluation of a live model: results, items and sessions."""
    result, tables = contents["result"], contents["tables"]
    values = {key: value for key, value in result.items() if value is not None}
    for key in ("theta", "se"):  # a list if multidimensional, which is not an interval
        if isinstance(values.get(key), list):
            values[key] = ", ".join(f"{float(value):.4g}" for value in values[key])
    facts = {key: value for key, value in facts_of(_with_interval(values)).items() if value}
    facts.pop("Unlike", None)  # shown as a warning
    notes = _notes(result)
    blocks = []
    for stem, frame in tables.items():
        if len(frame):
            first = [c for c in ("item", "subject") if c in frame]
            rest = [c for c in frame.columns if c not in first]
            blocks.append(table_of(frame[[*first, *rest]], stem.capitalize()))
    if not blocks and not facts and not notes:
        texts = [str(value) for value in result.values()]
        blocks.append(table("Result", [column("key", list(result)), column("value", texts)]))
    out = [Section(f"Adaptive evaluation: {name}", (), facts, blocks, tuple(notes))]
    return out + [sessions(f"{name}, {store.name}", store) for store in contents["stores"]]


def _with_interval(values: dict[str, Any]) -> dict[str, Any]:
    """Combine the score and its interval in one entry, as percentages."""
    keys = ("score", "lower", "upper")
    if not all(isinstance(values.get(key), (int, float)) for key in keys):
        return values
    score, low, high = (f"{values[key]:.1%}" for key in keys)
    level = values.get("level")
    suffix = f", {level:.0%} interval" if isinstance(level, float) else ""
    rest = {key: value for key, value in values.items() if key not in (*keys, "level")}
    return {"score": f"{score} ({low} to {high}{suffix})", **rest}


def _notes(result: dict[str, Any]) -> list[str]:
    """Notes, warnings and flags of a result."""
    notes = []
    for key in ("flags", "notes", "warnings", "note", "warning", "unlike"):
        value = result.get(key)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        notes += [str(text) for text in texts if text]
    return notes

"""Sections of the folders that commands write: evaluation scales, evaluations of a live model."""

from typing import Any

import pandas as pd

from irtcat.bank import ItemBank
from irtcat.report._bank import bank_section
from irtcat.report._blocks import Section, column, table, table_of
from irtcat.report._sessions import sessions
from irtcat.report._tables import facts_of

__all__ = ["evaluation", "scale"]


def scale(name: str, parts: dict[str, Any]) -> list[Section]:
    """Scales: what was kept, every decision, and each scale's items."""
    tables, banks = parts["tables"], parts["banks"]
    scales, decisions = tables["scales"], tables["decisions"]
    ids = {"decisions": ("scale", "item")}
    for key, names in ids.items():
        for column_name in set(names) & set(tables[key]):
            tables[key][column_name] = tables[key][column_name].fillna("")
    facts = {"Scales": str(len(scales)), "Items offered": f"{int(scales['items'].sum()):,}",
             "Items retained": f"{int(scales['retained'].sum()):,}"}  # fmt: skip
    blocks = [table_of(scales, "Scales", long=()),
              table_of(decisions, "Decisions, in the order they were taken",
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
    intro = f"{dropped:,} items were dropped; each decision says by which statistic and threshold."
    out = [Section(f"Evaluation scales: {name}", (intro,), facts, blocks, warnings)]
    for stem, bank in banks.items():
        out.append(_one_scale(stem, bank, tables))
    return out


def _one_scale(stem: str, bank: ItemBank, tables: dict[str, pd.DataFrame]) -> Section:
    """A scale's bank, with the empirical curves beside the model's."""
    return bank_section(f"scale {stem}", bank, None, tables.get(f"{stem}_curves"))


def evaluation(name: str, parts: dict[str, Any]) -> list[Section]:
    """A live model, evaluated adaptively: what was found, its items, and its sessions."""
    result, tables = parts["result"], parts["tables"]
    told = {key: value for key, value in result.items() if value is not None}
    for key in ("theta", "se"):  # of several abilities a list, which is no interval
        if isinstance(told.get(key), list):
            told[key] = ", ".join(f"{float(each):.4g}" for each in told[key])
    facts = {key: value for key, value in facts_of(_in_words(told)).items() if value}
    facts.pop("Unlike", None)  # it is among the warnings
    notes = _notes(result)
    blocks = []
    for stem, frame in tables.items():
        if len(frame):
            first = [c for c in ("item", "subject") if c in frame]
            rest = [c for c in frame.columns if c not in first]
            blocks.append(table_of(frame[[*first, *rest]], stem.capitalize()))
    if not blocks and not facts and not notes:
        values = [str(value) for value in result.values()]
        blocks.append(table("Result", [column("key", list(result)), column("value", values)]))
    out = [Section(f"Adaptive evaluation: {name}", (), facts, blocks, tuple(notes))]
    return out + [sessions(f"{name}, {store.name}", store) for store in parts["stores"]]


def _in_words(told: dict[str, Any]) -> dict[str, Any]:
    """The score with its interval as percentages in one entry, where both are told."""
    keys = ("score", "lower", "upper")
    if not all(isinstance(told.get(key), (int, float)) for key in keys):
        return told
    score, low, high = (f"{told[key]:.1%}" for key in keys)
    share = told.get("level")
    sure = f", {share:.0%} interval" if isinstance(share, float) else ""
    rest = {key: value for key, value in told.items() if key not in (*keys, "level")}
    return {"score": f"{score} ({low} to {high}{sure})", **rest}


def _notes(result: dict[str, Any]) -> list[str]:
    """Notes and flags of a result, whatever they are called."""
    found = []
    for key in ("flags", "notes", "warnings", "note", "warning", "unlike"):
        value = result.get(key)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        found += [str(text) for text in texts if text]
    return found

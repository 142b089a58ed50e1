"""Adaptive sessions: how the estimate moved, and why each item was asked."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat.cat import Session, Store
from irtcat.cat._why import in_words, retraced
from irtcat.report._blocks import (
    Block,
    Section,
    choice,
    column,
    line,
    lines,
    numbers,
    table,
    table_of,
)

__all__ = ["session_blocks", "sessions"]

MOST = 12
CANDIDATES = 5
CHANCE = "chance"
Z = 1.959964


def sessions(name: str, source: Any) -> Section:
    """A store of sessions, or one session.

    Of many the last `MOST` are drawn; all are listed.
    """
    if isinstance(source, Session):
        shown, listed = {source.id: source}, None
    else:
        store = Store(source, create=False) if isinstance(source, Path) else source
        try:
            listed = store.sessions()
            shown = {str(each): store.resume(str(each)) for each in listed.index[-MOST:][::-1]}
        finally:
            if isinstance(source, Path):
                store.close()
    blocks: list[Block] = []
    if shown:
        label = {key: _label(key, each) for key, each in shown.items()}
        blocks.append(choice("Session", {label[k]: session_blocks(s) for k, s in shown.items()}))
    facts = {"Sessions": f"{len(shown) if listed is None else len(listed):,}"}
    if listed is not None:
        over = (listed["over"] != "").sum()
        facts |= {"Ended": f"{over:,}", "Mean answers": f"{listed['answers'].mean():.1f}"}
        blocks.append(table_of(listed.reset_index(), "All sessions"))
    intro = "How the estimate moved with every answer; open a step to see why its item was asked."
    note = ""
    if listed is not None and len(listed) > MOST:
        note = (
            f"Of the {len(listed):,} sessions the {MOST} begun last can be chosen and are drawn; "
        )
        note += "the table below lists all."
    return Section(f"Adaptive sessions: {name}", (intro, note) if note else (intro,), facts, blocks)


def _label(key: str, session: Session) -> str:
    """A session's name for people."""
    subject = str(session.head.get("subject", ""))
    return f"{subject} ({key})" if subject and subject != key else key


def session_blocks(session: Session) -> list[Block]:
    """One session's figure, and its steps with the reasons."""
    frame, told = session.to_frame(), session.estimate()
    why = _reasons(session)
    at = np.arange(1, len(frame) + 1)
    status = f"Over: {session.reason}" if session.is_over else f"Asks {', '.join(session.asked)}"
    theta = np.atleast_1d(told["theta"])
    se = np.atleast_1d(told["se"])
    said = ", ".join(f"{t:.3f} ± {s:.3f}" for t, s in zip(theta, se, strict=True))
    facts = {"Status": status, "Ability ± SE": said, "Items": str(told["n_items"]),
             "Score on the bank": f"{told['score']:.1%} ± {told['score_sd']:.1%}"}  # fmt: skip
    blocks: list[Block] = [{"t": "facts", "facts": facts}]
    series = []
    for name in [c for c in frame.columns if c.startswith("theta")]:
        own, error = frame[name], Z * frame[name.replace("theta", "se")].replace(np.inf, np.nan)
        label = "ability" if name == "theta" else f"ability {name.removeprefix('theta_')}"
        series.append(line(label, at, own, own - error, own + error))
    if len(frame):
        blocks.append(lines("Ability after each answer", "Items answered", "Ability θ", series,
                            f"Ends at {said}; the band is ±1.96 standard errors.", marks=1,
                            whole=1))  # fmt: skip
    answers = ["skipped" if value is None or value != value else f"{value:g}"
               for value in frame["answer"].astype(object)]  # fmt: skip
    columns = [column("item", frame.index), column("step", at, "Step"),
               column("answer", answers, "Answer")]  # fmt: skip
    columns += [
        column(c, frame[c], minor=c.startswith("se")) for c in frame.columns if c != "answer"
    ]
    reason = [why.get(str(item), {}) for item in frame.index]
    columns.append(column("why", [r.get("said", "") for r in reason], "Why this item"))
    blocks.append(table("Steps", columns, sort=("step", 1),
                        why=[r.get("candidates") for r in reason]))  # fmt: skip
    return blocks


def _reasons(session: Session) -> dict[str, dict[str, Any]]:
    """For every item asked: why, in words, and the candidates it was taken from."""
    out: dict[str, dict[str, Any]] = {}
    for event, then, seen in retraced(session):
        shown = seen[seen["asked"] | (np.arange(len(seen)) < CANDIDATES)]
        worst = shown.loc[shown["asked"], "rank"].max()
        passed = ~shown["asked"] & (shown["rank"] < worst) & (shown["excluded_by"] == "")
        shown = shown.assign(excluded_by=shown["excluded_by"].mask(passed, CHANCE))
        for item in event["items"]:
            out[str(item)] = {"said": in_words(then, seen, str(item)),
                              "candidates": _candidates(shown)}  # fmt: skip
    return out


def _candidates(seen: pd.DataFrame) -> dict[str, list[Any]]:
    """The best candidates, small."""
    return {
        "item": seen.index.astype(str).tolist(),
        "value": numbers(seen["value"]),
        "rank": seen["rank"].astype(int).tolist(),
        "asked": [int(asked) for asked in seen["asked"]],
        "excluded": seen["excluded_by"].astype(str).tolist(),
    }

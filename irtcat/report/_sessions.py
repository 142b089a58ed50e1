"""The section of adaptive sessions: the estimate after each answer, and why items were chosen."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat.cat import Session, Store, in_words, retraced
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
"""Number of sessions drawn."""
CANDIDATES = 5
"""Number of candidates shown for each step."""
CHANCE = "chance"
Z = 1.959964


def sessions(name: str, source: Any) -> Section:
    """The section of a store of sessions, or of one session.

    The table lists all sessions; the last `MOST` are drawn.
    """
    if isinstance(source, Session):
        shown, listed = {source.id: source}, None
    else:
        store = Store(source, create=False) if isinstance(source, Path) else source
        try:
            listed = store.sessions()
            shown = {str(key): store.resume(str(key)) for key in listed.index[-MOST:][::-1]}
        finally:
            if isinstance(source, Path):
                store.close()
    blocks: list[Block] = []
    if shown:
        options = {_label(key, session): session_blocks(session) for key, session in shown.items()}
        blocks.append(choice("Session", options))
    facts = {"Sessions": f"{len(shown) if listed is None else len(listed):,}"}
    if listed is not None:
        over = (listed["over"] != "").sum()
        facts |= {"Ended": f"{over:,}", "Mean answers": f"{listed['answers'].mean():.1f}"}
        blocks.append(table_of(listed.reset_index(), "All sessions"))
    intro = ["The estimate after every answer; open a step to see why its item was chosen."]
    if listed is not None and len(listed) > MOST:
        intro.append(
            f"Only the {MOST} sessions started last of {len(listed):,} are drawn; the table below "
            "lists all."
        )
    return Section(f"Adaptive sessions: {name}", tuple(intro), facts, blocks)


def _label(key: str, session: Session) -> str:
    """The label of a session: subject and id."""
    subject = str(session.head.get("subject", ""))
    return f"{subject} ({key})" if subject and subject != key else key


def session_blocks(session: Session) -> list[Block]:
    """The facts and figure of one session, and the table of its steps with reasons."""
    frame, estimates = session.to_frame(), session.estimate()
    why = _reasons(session)
    at = np.arange(1, len(frame) + 1)
    status = f"Over: {session.reason}" if session.is_over else f"Next: {', '.join(session.asked)}"
    theta = np.atleast_1d(estimates["theta"])
    se = np.atleast_1d(estimates["se"])
    final = ", ".join(f"{t:.3f} ± {s:.3f}" for t, s in zip(theta, se, strict=True))
    facts = {"Status": status, "Ability ± SE": final, "Items": str(estimates["n_items"]),
             "Score on the bank":
             f"{estimates['score']:.1%} ± {estimates['score_sd']:.1%}"}  # fmt: skip
    blocks: list[Block] = [{"t": "facts", "facts": facts}]
    series = []
    for name in [c for c in frame.columns if c.startswith("theta")]:
        values, error = frame[name], Z * frame[name.replace("theta", "se")].replace(np.inf, np.nan)
        label = "ability" if name == "theta" else f"ability {name.removeprefix('theta_')}"
        series.append(line(label, at, values, values - error, values + error))
    if len(frame):
        blocks.append(lines("Ability after each answer", "Items answered", "Ability θ", series,
                            f"Ends at {final}; the band is ±1.96 standard errors.", marks=1,
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
    """For every administered item: the reason in words, and the candidates."""
    out: dict[str, dict[str, Any]] = {}
    for event, then, ranking in retraced(session):
        shown = ranking[ranking["asked"] | (np.arange(len(ranking)) < CANDIDATES)]
        worst = shown.loc[shown["asked"], "rank"].max()
        passed = ~shown["asked"] & (shown["rank"] < worst) & (shown["excluded_by"] == "")
        shown = shown.assign(excluded_by=shown["excluded_by"].mask(passed, CHANCE))
        for item in event["items"]:
            out[str(item)] = {"said": in_words(then, ranking, str(item)),
                              "candidates": _candidates(shown)}  # fmt: skip
    return out


def _candidates(candidates: pd.DataFrame) -> dict[str, list[Any]]:
    """The best candidates as JSON values."""
    return {
        "item": candidates.index.astype(str).tolist(),
        "value": numbers(candidates["value"]),
        "rank": candidates["rank"].astype(int).tolist(),
        "asked": [int(mark) for mark in candidates["asked"]],
        "excluded": candidates["excluded_by"].astype(str).tolist(),
    }

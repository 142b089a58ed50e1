"""The section of adaptive sessions: the estimate after each answer, and why items were chosen."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat import cat
from irtcat.report.blocks import (
    Block,
    Section,
    choice,
    column,
    item_names,
    line,
    lines,
    numbers,
    table,
    table_of,
)

MOST = 12
"""Number of sessions drawn."""
CANDIDATES = 5
"""Number of candidates shown for each step."""
CHANCE = "chance"
Z = 1.959964


@contextmanager
def opened_sessions(source: Any) -> Iterator[tuple[pd.DataFrame | None, dict[str, "cat.Session"]]]:
    """The list of all sessions of a store, and the last `MOST` of them; of a session only itself.

    Args:
        source: a session, a store, or the path of one, which is closed at the end.
    """
    if isinstance(source, cat.Session):
        yield None, {source.id: source}
        return
    store = cat.Store(source, create=False) if isinstance(source, Path) else source
    try:
        every = store.sessions()
        yield every, {str(key): store.resume(str(key)) for key in every.index[-MOST:][::-1]}
    finally:
        if isinstance(source, Path):
            store.close()


def sessions(
    name: str,
    source: Any,
    score_text: Callable[["cat.Session"], str],
    names: Mapping[str, str],
    facts: bool = True,
) -> Section:
    """The section of a store of sessions, or of one session.

    The table lists all sessions; the last `MOST` are drawn.

    Args:
        name: for the heading.
        source: see `opened_sessions`.
        score_text: returns the full score of a session as the page has it everywhere.
        names: texts of items whose ids are hashes.
        facts: whether each session shows its estimates above its figure.
    """
    blocks: list[Block] = []
    with opened_sessions(source) as (every, shown):
        if shown:
            options = {
                _label(key, session): session_blocks(session, score_text(session), names)[
                    not facts :
                ]
                for key, session in shown.items()
            }
            blocks.append(choice("Session", options))
    figures = {"Sessions": f"{len(shown) if every is None else len(every):,}"}
    if every is not None and len(every) > 1:
        over = (every["over"] != "").sum()
        figures |= {"Ended": f"{over:,}", "Mean answers": f"{every['answers'].mean():.1f}"}
        blocks.append(table_of(every.reset_index(), "All sessions", main=("answers", "over")))
    intro = ["The estimate after every answer; open a step to see why its item was chosen."]
    if every is not None and len(every) > MOST:
        intro.append(
            f"Only the {MOST} sessions started last of {len(every):,} are drawn; the table below "
            "lists all."
        )
    return Section(f"Adaptive sessions: {name}", tuple(intro), figures, blocks)


def _label(key: str, session: "cat.Session") -> str:
    """The label of a session: subject and id."""
    subject = session.head["subject"]
    return f"{subject} ({key})" if subject and subject != key else key


def session_blocks(
    session: "cat.Session", score: str = "", names: Mapping[str, str] | None = None
) -> list[Block]:
    """The facts and figure of one session, and the table of its steps with reasons.

    Args:
        session: the session.
        score: its full score in words; by default that of `Session.full_score`.
        names: texts of items whose ids are hashes.
    """
    frame, estimates = session.to_frame(), session.estimate()
    names = item_names([session.bank]) | dict(names or {})
    why = _reasons(session)
    at = np.arange(1, len(frame) + 1)
    status = f"Over: {session.reason}" if session.is_over else f"Next: {', '.join(session.asked)}"
    theta = np.atleast_1d(estimates["theta"])
    se = np.atleast_1d(estimates["se"])
    final = ", ".join(f"{t:.3f} ± {s:.3f}" for t, s in zip(theta, se, strict=True))
    facts = {
        "Status": status,
        "Ability ± SE": final,
        "Items": str(estimates["n_items"]),
        "Full score": score or str(session.full_score()),
    }
    blocks: list[Block] = [{"t": "facts", "facts": facts}]
    series = []
    for name in [c for c in frame.columns if c.startswith("theta")]:
        values, error = frame[name], Z * frame[name.replace("theta", "se")]
        label = "ability" if name == "theta" else f"ability {name.removeprefix('theta_')}"
        known = values.notna()  # in a batch only after its last item; gaps would cut the line
        values, error = values[known], error[known]
        series.append(line(label, at[known], values, values - error, values + error))
    if len(frame):
        blocks.append(
            lines(
                "Ability after each answer",
                "Items answered",
                "Ability θ",
                series,
                f"Ends at {final}; the band is ±1.96 standard errors.",
                marks=1,
                whole=1,
            )
        )
    answers = [
        "skipped" if value is None or value != value else f"{value:g}"
        for value in frame["answer"].astype(object)
    ]
    columns = [
        column("item", frame.index),
        column("step", at, "Step"),
        column("answer", answers, "Answer", plain=True, main=True),
    ]
    columns += [
        column(c, frame[c], minor=c.startswith("se"), main=c == "theta")
        for c in frame.columns
        if c != "answer"
    ]
    reason = [why.get(str(item), {}) for item in frame.index]
    columns.append(column("why", [r.get("said", "") for r in reason], "Why this item"))
    named: dict[str, Any] = {}
    texts = [names.get(str(item), "") for item in frame.index]
    if any(texts):
        columns.append(column("question", texts, "Question", long=True))
        named = {"texts": "question"}
    blocks.append(
        table(
            "Steps",
            columns,
            sort=("step", 1),
            page=10,
            why=[r.get("candidates") for r in reason],
            **named,
        )
    )
    return blocks


def _reasons(session: "cat.Session") -> dict[str, dict[str, Any]]:
    """For every administered item: the reason in words, and the candidates."""
    out: dict[str, dict[str, Any]] = {}
    for event, then, ranking in cat.retraced(session):
        shown = ranking[ranking["asked"] | (np.arange(len(ranking)) < CANDIDATES)]
        worst = shown.loc[shown["asked"], "rank"].max()
        passed = ~shown["asked"] & (shown["rank"] < worst) & (shown["excluded_by"] == "")
        shown = shown.assign(excluded_by=shown["excluded_by"].mask(passed, CHANCE))
        for item in event["items"]:
            out[str(item)] = {
                "said": cat.in_words(then, ranking, str(item)),
                "candidates": _candidates(shown),
            }
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

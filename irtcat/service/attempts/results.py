"""Results: the final score of an attempt, and tables of answers and results."""

import functools
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa

from irtcat.service.attempts.attempt import Attempt, attempt_of
from irtcat.service.definition import Adaptive, Fixed, Result, result_of
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service


def scored_answers(attempt: Attempt) -> dict[str, int | None]:
    """Category by item of all answers that enter the score.

    Without pretest items. Items of a fixed section without an answer are as its definition says.
    """
    out: dict[str, int | None] = {}
    progress = attempt.progress
    for at, section in enumerate(attempt.test.definition.sections):
        if at > progress.section:
            break
        answers = {name: a for name, a in progress.answers.items() if a.section == at}
        if isinstance(section, Adaptive):
            column = section.config.pretest
            pool = attempt.test.pools[at]
            marks = np.zeros(pool.n_items, bool)
            if column:
                marks = np.asarray(pool.items[column]).astype(bool)
            pretest = set(pool.item_ids[marks].tolist())
            out |= {name: a.code for name, a in answers.items() if name not in pretest}
        elif isinstance(section, Fixed) and section.scored:
            for name in section.items:
                known = answers.get(name)
                if known is None or known.response is None:
                    out[name] = 0 if section.unanswered == "wrong" else None
                else:
                    out[name] = known.code
    return out


def waiting_items(attempt: Attempt) -> list[str]:
    """Items whose answers people have to score before there is a result."""
    return [name for name, answer in attempt.progress.answers.items() if answer.code is None]


def attempt_result(attempt: Attempt) -> Result | None:
    """The result from all scored answers so far; None while people have to score some."""
    if waiting_items(attempt):
        return None
    return result_of(attempt.test.definition, attempt.test.bank, scored_answers(attempt))


def taker_report(attempt: Attempt) -> dict[str, Any]:
    """What the taker's score report may hold, once the attempt is finished."""
    if attempt.progress.status != "finished" or not attempt.test.definition.score.show:
        return {}
    result = attempt_result(attempt)
    if result is None:
        return {"waiting": True}
    return result.shown(attempt.test.definition)


def rapid_answers(attempt: Attempt) -> list[str]:
    """Items that were answered faster than the limit of their section."""
    sections = attempt.test.definition.sections
    return [
        name
        for name, answer in attempt.progress.answers.items()
        if (rule := getattr(sections[answer.section], "rapid", None)) is not None
        and answer.seconds < rule.threshold(name)
    ]


def flags_of(attempt: Attempt) -> list[str]:
    """What staff should look at: too fast answers, time limits that ended a section."""
    out = []
    rapid = rapid_answers(attempt)
    if rapid:
        out.append(f"{len(rapid)} answers faster than the limit: {', '.join(rapid)}")
    for at, reason in attempt.progress.ended.items():
        out.append(f"section {at + 1} ended by its {reason}")
    return out


def answer_table(attempt: Attempt) -> pd.DataFrame:
    """The answers of an attempt in their order."""
    rows = [
        {
            "section": answer.section + 1,
            "item": name,
            "response": answer.response,
            "code": answer.code,
            "seconds": answer.seconds,
            "at": answer.at,
        }
        for name, answer in attempt.progress.answers.items()
    ]
    return pd.DataFrame(rows, columns=["section", "item", "response", "code", "seconds", "at"])


def result_table(service: Service, test: str) -> pd.DataFrame:
    """One row per finished attempt at a test: person, times, estimate, score, interval, level.

    A process keeps the rows: it reads and scores only what was finished, reopened or rated since.
    """
    columns = tables.attempts.c
    statement = (
        sa.select(columns.id, columns.updated, columns.summary)
        .where(columns.test == test, columns.status == "finished")
        .order_by(columns.started)
    )
    rows = [
        service.results.get(
            "\n".join((row.id, row.updated, row.summary)),
            functools.partial(_result_row, service, row.id),
        )
        for row in service.rows(statement)
    ]
    names = [
        "attempt",
        "person",
        "started",
        "finished",
        "reason",
        "seconds",
        "theta",
        "se",
        "n_items",
        "score",
        "lower",
        "upper",
        "level",
        "probability",
        "flag",
    ]
    return pd.DataFrame(rows, columns=names)


def _result_row(service: Service, name: str) -> dict[str, Any]:
    attempt = attempt_of(service, name)
    result = attempt_result(attempt)
    row: dict[str, Any] = {
        "attempt": name,
        "person": attempt.head["person"],
        "started": attempt.head["started"],
        "finished": attempt.progress.last,
        "reason": attempt.progress.reason,
        "seconds": round(attempt.progress.used_test, 1),
    }
    if result is not None:
        row |= {"theta": result.theta, "se": result.se, "n_items": result.n_items}
        for field in ("score", "lower", "upper", "level", "probability"):
            row[field] = getattr(result.scaled, field)
    row["flag"] = "; ".join(flags_of(attempt))
    return row


def with_names(service: Service, frame: pd.DataFrame) -> pd.DataFrame:
    """A table with the columns ``name`` and ``external`` after its column ``person``.

    Both are empty for people who were added without, or erased.
    """
    columns = tables.people.c
    rows = service.rows(sa.select(columns.id, columns.name, columns.external))
    known = {row.id: (row.name or "", row.external or "") for row in rows}
    out, at = frame.copy(), list(frame.columns).index("person") + 1
    for place, label in enumerate(("name", "external")):
        values = [known.get(person, ("", ""))[place] for person in frame["person"]]
        out.insert(at + place, label, values)
    return out

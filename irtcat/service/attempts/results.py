"""Results: the final score of an attempt, tables of answers and results, and statistics of items.

The statistics serve while a test is taken: exposure, difficulty, and drift from the bank.
"""

import functools
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from pydantic import BaseModel, Field

from irtcat.cat import pretest_of
from irtcat.cat.rules import greatest_rate
from irtcat.models import expected_responses, response_variances, take
from irtcat.service.attempts.attempt import Attempt, attempt_of
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.definition import Adaptive, Fixed, Result, result_of
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service


class ResultRow(BaseModel):
    """The result of an attempt."""

    attempt: str
    person: str
    started: str
    finished: str
    reason: str
    seconds: float
    theta: float | None
    se: float | None
    n_items: float | None
    score: float | None
    lower: float | None
    upper: float | None
    level: str | None
    probability: float | None
    flag: str


class ItemRow(BaseModel):
    """Exposure and drift of an item."""

    item: str
    answers: int
    exposure: float | None = Field(description="Share of the attempts in which it was shown.")
    target: float | None = Field(description="Highest share that the test allows.")
    over_target: bool
    observed: float | None = Field(description="Mean score.")
    expected: float | None = Field(description="Mean score expected by the bank.")
    z: float | None = Field(description="Standardised difference of the two.")
    drift: bool = Field(description="Whether the difference is beyond chance.")
    seconds: float | None


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
            pool = attempt.test.pools[at]
            pretest = set(pool.item_ids[pretest_of(pool, section.config)].tolist())
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
    definition = attempt.test.definition
    scored = [section in definition.scored_sections for section in definition.sections]
    answers = attempt.progress.answers.items()
    return [name for name, it in answers if it.code is None and scored[it.section]]


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
    answers = attempt.progress.answers.items()
    rows = [(it.section + 1, name, it.response, it.code, it.seconds, it.at) for name, it in answers]
    return pd.DataFrame(rows, columns=["section", "item", "response", "code", "seconds", "at"])


def result_table(service: Service, test: str) -> pd.DataFrame:
    """One row per finished attempt at a test: person, times, estimate, score, interval, level.

    A process keeps the rows: it reads and scores only what was finished, reopened or rated since.
    """
    rows = []
    for row in finished_rows(service, test):
        made = functools.partial(_result_row, service, row.id)
        rows.append(service.results.get("\n".join((row.id, row.updated, row.summary)), made))
    return pd.DataFrame(rows, columns=list(ResultRow.model_fields))


def finished_rows(service: Service, test: str) -> list[sa.Row[Any]]:
    """The rows of the finished attempts at a test, in the order in which they began."""
    columns = tables.attempts.c
    statement = (
        sa.select(columns.id, columns.updated, columns.summary)
        .where(columns.test == test, columns.status == "finished")
        .order_by(columns.started, columns.id)
    )
    return service.rows(statement)


def finished_attempts(service: Service, test: str) -> list[Attempt]:
    """The finished attempts at a test, in the order in which they began.

    Raises:
        NotFoundError: for an unknown test: there, no attempts would be misleading.
    """
    published_test(service, test)
    return [attempt_of(service, row.id) for row in finished_rows(service, test)]


def _result_row(service: Service, name: str) -> dict[str, Any]:
    attempt = attempt_of(service, name)
    result = attempt_result(attempt)
    row: dict[str, Any] = {
        "attempt": name,
        "person": attempt.head["person"],
        "started": attempt.head["started"],
        "finished": attempt.progress.finished,
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


FEWEST = 20
"""Answers below which no drift is flagged: the normal approximation is poor."""

LARGEST = 3.0
"""Absolute standardised difference above which drift is flagged: one item in 370 by chance."""


def item_statistics(service: Service, test: str) -> pd.DataFrame:
    """Exposure and drift of every scored or pretest item of a test, over its finished attempts.

    For an item answered by the subjects i, with their final abilities from all answers::

        z = sum_i (x_i - E[x | theta_i]) / sqrt(sum_i Var[x | theta_i])

    It is about standard normal while the item behaves as in the bank. Since theta_i is estimated
    with the answer to the item itself, z is somewhat too small in short tests.

    Returns:
        One row per item, with the columns of `ItemRow`; where ``over_target``, ``exposure``
        is above ``target`` beyond chance; ``seconds`` is a median.

    Raises:
        NotFoundError: for an unknown test.
    """
    published = published_test(service, test)
    attempts = finished_attempts(service, test)
    answers, targets = _answers(attempts), _targets(published)
    n_shown = Counter(name for attempt in attempts for name in attempt.progress.number)
    rows = []
    for name, target in targets.items():
        of_item = answers[answers["item"] == name]
        exposure = n_shown[name] / len(attempts) if attempts else np.nan
        # An unlucky rate of few attempts is no fault: two standard errors above the target.
        margin = 2 * np.sqrt(target * (1 - target) / max(len(attempts), 1))
        over = bool(exposure > target + margin)
        use = {"exposure": exposure, "target": target, "over_target": over}
        found = {"answers": len(of_item), "observed": np.nan, "seconds": np.nan}
        if len(of_item):
            found |= {"observed": of_item["score"].mean(), "seconds": of_item["seconds"].median()}
        rows.append({"item": name, **use, **found, **_drift(published, name, of_item)})
    return pd.DataFrame(rows, columns=list(ItemRow.model_fields))


def _targets(test: PublishedTest) -> dict[str, float]:
    """Items of the bank that the test may show, with the highest rate allowed."""
    out: dict[str, float] = {}
    for at, section in enumerate(test.definition.sections):
        if isinstance(section, Adaptive):
            rule = section.config.exposure
            rate = None if rule.name == "overlap" else greatest_rate(rule)  # of pairs of tests
            for name in test.pools[at].item_ids.tolist():
                out[name] = np.nan if rate is None else rate
        elif isinstance(section, Fixed):
            known = test.categories.keys() & test.items.keys.keys()
            out |= {name: np.nan for name in section.items if name in known}
    return out


def _answers(attempts: list[Attempt]) -> pd.DataFrame:
    """Scored answers of people who have an estimate."""
    rows = []
    for attempt in attempts:
        result = attempt_result(attempt)
        if result is not None and np.isfinite(result.theta):
            rows += [
                (name, answer.code, result.theta, answer.seconds)
                for name, answer in attempt.progress.answers.items()
                if answer.code is not None and answer.response is not None
            ]
    return pd.DataFrame(rows, columns=["item", "score", "theta", "seconds"])


def _drift(test: PublishedTest, name: str, answers: pd.DataFrame) -> dict[str, float | bool]:
    if answers.empty:
        return {"expected": np.nan, "z": np.nan, "drift": False}
    item = take(test.bank.model, test.bank.positions([name]))
    theta = answers["theta"].to_numpy(float)
    expected = np.asarray(expected_responses(item, theta))[0]
    variance = np.asarray(response_variances(item, theta))[0].sum()
    z = (answers["score"].to_numpy(float) - expected).sum() / np.sqrt(variance)
    flagged = len(answers) >= FEWEST and abs(z) > LARGEST
    return {"expected": float(expected.mean()), "z": float(z), "drift": bool(flagged)}

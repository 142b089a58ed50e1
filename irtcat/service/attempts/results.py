"""Results: the final score of an attempt, tables of answers and results, and statistics of items.

The statistics serve while a test is taken: exposure, difficulty, and drift from the bank. Exports
are tables in CSV, responses for recalibration, and QTI Results Reporting 3.0.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa
from lxml import etree
from pydantic import BaseModel, Field

from irtcat._files import FORMULAS
from irtcat.cat import pretest_of
from irtcat.cat.rules import greatest_rate
from irtcat.models import expected_responses, response_variances, take
from irtcat.responses import Responses
from irtcat.service.accounts.accounts import Account
from irtcat.service.attempts.attempt import Attempt, attempt_of
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.base.errors import ConflictError, found
from irtcat.service.content.qti_xml import BASE_TYPES, CARDINALITIES
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
            given = {name: a.code for name, a in answers.items() if a.response is not None}
            missing = 0 if section.unanswered == "wrong" else None
            out |= {name: given.get(name, missing) for name in section.items}
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
    return {"waiting": True} if result is None else result.shown(attempt.test.definition)


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
    ended = attempt.progress.ended.items()
    out = [f"section {at + 1} ended by its {reason}" for at, reason in ended]
    rapid = rapid_answers(attempt)
    if rapid:
        out.insert(0, f"{len(rapid)} answers faster than the limit: {', '.join(rapid)}")
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
    people = service.frame(sa.select(columns.id, columns.name, columns.external)).set_index("id")
    named = people.reindex(frame["person"], fill_value="")
    out, at = frame.copy(), list(frame.columns).index("person") + 1
    for place, label in enumerate(named):
        out.insert(at + place, label, named[label].to_numpy())
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
        mean, seconds = of_item["score"].mean(), of_item["seconds"].median()
        given = {"answers": len(of_item), "observed": mean, "seconds": seconds}
        rows.append({"item": name, **use, **given, **_drift(published, name, of_item)})
    return pd.DataFrame(rows, columns=list(ItemRow.model_fields))


def _targets(test: PublishedTest) -> dict[str, float]:
    """Items of the bank that the test may show, with the highest rate allowed."""
    out: dict[str, float] = {}
    for at, section in enumerate(test.definition.sections):
        if isinstance(section, Adaptive):
            rule = section.config.exposure
            rate = None if rule.name == "overlap" else greatest_rate(rule)  # of pairs of tests
            out |= dict.fromkeys(test.pools[at].item_ids.tolist(), np.nan if rate is None else rate)
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


QTI = "http://www.imsglobal.org/xsd/imsqti_result_v3p0"

QTI_SCHEMA = "https://purl.imsglobal.org/spec/qti/v3p0/schema/xsd/imsqti_resultv3p0_v1p0.xsd"

NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
"""A text that is a number, such as -5: a sign at its beginning makes no formula."""

TIMES = ("started", "finished", "at")
"""Columns of times, which logs have in microseconds."""

NO_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def spreadsheet_csv(frame: pd.DataFrame) -> str:
    """A table as CSV; texts that a spreadsheet would calculate are marked as text.

    Unlike `irtcat._files.csv`, whose readers undo it, for people's spreadsheets: numbers stay
    numbers. Times have whole seconds, such as ``2026-11-27T09:30:00+00:00``.
    """

    def text(value: Any) -> Any:
        if isinstance(value, dict):
            value = "; ".join(f"{name}={text(it)}" for name, it in value.items())
        value = "|".join(map(str, value)) if isinstance(value, list) else value
        if not isinstance(value, str) or NUMBER.fullmatch(value):
            return value
        return f"'{value}" if value.startswith(FORMULAS) else value

    times = [name for name in TIMES if name in frame]
    stamps = frame[times].map(lambda at: re.sub(r"\.\d+", "", at))
    return frame.assign(**stamps).map(text).to_csv(index=False, lineterminator="\r\n")


def _csv(service: Service, frame: pd.DataFrame, names: bool) -> str:
    """A table as CSV, with the names and external ids of the people if they are asked for."""
    return spreadsheet_csv(with_names(service, frame) if names else frame)


def results_csv(service: Service, test: str, *, names: bool = False) -> str:
    """The results of a test, a row for each finished attempt (see `result_table`)."""
    published_test(service, test)
    return _csv(service, result_table(service, test), names)


def answers_csv(service: Service, test: str, *, names: bool = False) -> str:
    """The answers of all finished attempts at a test: response, category, seconds and time."""
    frames = [
        answer_table(attempt).assign(attempt=attempt.id, person=attempt.head["person"])
        for attempt in finished_attempts(service, test)
    ]
    columns = ["attempt", "person", "section", "item", "response", "code", "seconds", "at"]
    table = pd.concat(frames)[columns] if frames else pd.DataFrame(columns=columns)
    return _csv(service, table, names)


def responses_of(service: Service, test: str) -> Responses:
    """The scored responses of all finished attempts at a test, for recalibration.

    Pretest items are among them; items without an answer or a key are missing. The codes are the
    bank's, so that ``irtcat fit responses.npz --anchors bank.npz`` continues its scale.

    Raises:
        NotFoundError: for an unknown test.
        ConflictError: if no finished attempt has a scored response.
    """
    published = published_test(service, test)
    ids = published.bank.item_ids.tolist()
    keys = published.items.keys  # without one an answer has category 0, whatever it is
    at = {name: column for column, name in enumerate(ids) if name in keys}
    attempts = finished_attempts(service, test)
    values = np.full((len(attempts), len(ids)), np.nan)
    for row, attempt in enumerate(attempts):
        for name, answer in attempt.progress.answers.items():
            if name in at and answer.code is not None and answer.response is not None:
                values[row, at[name]] = answer.code + published.bank.first_code
    answered = ~np.isnan(values).all(axis=1)
    if not answered.any():
        raise ConflictError("No finished attempt at this test has a scored response.")
    first, n_codes = published.bank.first_code, max(published.categories.values())
    return Responses.from_array(
        values[answered],
        subject_ids=[attempt.id for attempt, has in zip(attempts, answered, strict=True) if has],
        item_ids=ids,
        codes=tuple(range(first, first + n_codes)),
    )


def responses_file(service: Service, test: str) -> bytes:
    """The contents of ``responses.npz`` (see `responses_of`)."""
    return responses_of(service, test).to_bytes()


FILES: dict[str, tuple[str, Callable[..., str | bytes]]] = {
    "results.csv": ("text/csv; charset=utf-8", results_csv),
    "answers.csv": ("text/csv; charset=utf-8", answers_csv),
    "responses.npz": ("application/octet-stream", responses_file),
}
"""The files of a test: media type, and the function that makes it."""


def export(
    service: Service, test: str, name: str, account: Account, names: bool = False
) -> tuple[str | bytes, str]:
    """A file of a test for staff, which the audit log records; its contents and media type.

    With ``names`` tables have the names and external ids of people, for accounts that may see them.

    Raises:
        NotFoundError: for an unknown test or file.
        ForbiddenError: for an account that may not see people.
    """
    if names:
        account.require("people")
    kind, make = found(FILES.get(name), "file")
    content = make(service, test, names=names) if kind.startswith("text/") else make(service, test)
    service.acted(account.actor, "results exported", test=test, file=name, names=names)
    return content, kind


def export_attempt(service: Service, attempt: str, *, actor: str) -> bytes:
    """An attempt as `qti_results` writes it, for staff; the audit log records it."""
    content = qti_results(service, attempt)
    service.acted(actor, "results exported", attempt=attempt, file="results.xml")
    return content


def qti_results(service: Service, attempt: str) -> bytes:
    """An attempt in QTI Results Reporting 3.0 (XML).

    The candidate is the random id of the person. The test has the outcomes SCORE, THETA and SE;
    each item has its response, its duration and its SCORE.

    Raises:
        NotFoundError: for an unknown attempt.
        ConflictError: for one that is not finished.
    """
    it = attempt_of(service, attempt)
    if it.progress.status != "finished":
        raise ConflictError("The attempt is not finished.")
    instance = "{http://www.w3.org/2001/XMLSchema-instance}schemaLocation"
    root = etree.Element(
        f"{{{QTI}}}assessmentResult",
        {instance: f"{QTI} {QTI_SCHEMA}"},
        nsmap={None: QTI, "xsi": "http://www.w3.org/2001/XMLSchema-instance"},
    )
    context = _child(root, "context", sourcedId=str(it.head["person"]))
    _child(context, "sessionIdentifier", sourceID="urn:irtcat", identifier=it.id)
    test = _child(root, "testResult", identifier=it.test.id, datestamp=str(it.progress.finished))
    result = attempt_result(it)
    if result is not None:
        _outcome(test, "SCORE", result.scaled.score)
        _outcome(test, "THETA", result.theta)
        _outcome(test, "SE", result.se)
        if result.scaled.level is not None:
            _outcome(test, "LEVEL", result.scaled.level)
    for index, (name, answer) in enumerate(it.progress.answers.items(), start=1):
        status = "final" if answer.code is not None else "pendingResponseProcessing"
        about = {"identifier": name, "sequenceIndex": str(index), "datestamp": answer.at}
        entry = _child(root, "itemResult", **about, sessionStatus=status)
        _response(entry, "duration", "duration", "single", [f"{answer.seconds:.3f}"])
        item = it.test.item(name)
        parts = {part.id: part for part in item.parts} or {"RESPONSE": item}
        responses = answer.response if item.parts else {"RESPONSE": answer.response}
        for part, field in parts.items():
            given = (responses or {}).get(part)
            values = [] if given is None else given if isinstance(given, list) else [given]
            base = BASE_TYPES.get(field.kind, "identifier" if field.choices else "string")
            _response(entry, part, base, CARDINALITIES.get(field.kind, "single"), values)
        if answer.code is not None:
            key = it.test.items.keys.get(name)
            points = float(answer.code) if key is None else key.score(answer.code)
            _outcome(entry, "SCORE", points)
    return etree.tostring(root, xml_declaration=True, encoding="UTF-8", pretty_print=True)


def _child(parent: Any, name: str, text: str | None = None, **attributes: str) -> Any:
    child = etree.SubElement(parent, f"{{{QTI}}}{name}", attributes)
    child.text = text
    return child


def _outcome(parent: Any, name: str, value: float | str | None) -> None:
    base = "string" if isinstance(value, str) else "float"
    about = {"identifier": name, "cardinality": "single", "baseType": base}
    variable = _child(parent, "outcomeVariable", **about)
    if isinstance(value, str):
        _child(variable, "value", _xml_text(value))
    elif value is not None and np.isfinite(value):
        _child(variable, "value", repr(float(value)))


def _response(parent: Any, name: str, base: str, cardinality: str, values: list[str]) -> None:
    about = {"identifier": name, "cardinality": cardinality, "baseType": base}
    given = _child(_child(parent, "responseVariable", **about), "candidateResponse")
    for value in values:
        _child(given, "value", _xml_text(value))


def _xml_text(text: Any) -> str:
    """A text without the characters that XML 1.0 cannot hold."""
    return NO_XML.sub("\ufffd", str(text))

"""Exports: tables in CSV, responses for recalibration, QTI Results Reporting 3.0."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from lxml import etree

from irtcat._files import FORMULAS
from irtcat.responses import Responses
from irtcat.service.accounts.accounts import Account
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.attempts.library import published_test
from irtcat.service.attempts.results import (
    answer_table,
    attempt_result,
    finished_attempts,
    result_table,
    with_names,
)
from irtcat.service.base.errors import ConflictError, found
from irtcat.service.content.qti_xml import BASE_TYPES, CARDINALITIES
from irtcat.service.storage.context import Service

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
    frames = []
    for attempt in finished_attempts(service, test):
        frame = answer_table(attempt)
        frame.insert(0, "attempt", attempt.id)
        frame.insert(1, "person", attempt.head["person"])
        frames.append(frame)
    columns = ["attempt", "person", "section", "item", "response", "code", "seconds", "at"]
    table = pd.concat(frames) if frames else pd.DataFrame(columns=columns)
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
                values[row, at[name]] = answer.code + published.first_code
    answered = ~np.isnan(values).all(axis=1)
    if not answered.any():
        raise ConflictError("No finished attempt at this test has a scored response.")
    n_codes = max(published.categories.values())
    return Responses.from_array(
        values[answered],
        subject_ids=[attempt.id for attempt, has in zip(attempts, answered, strict=True) if has],
        item_ids=ids,
        codes=tuple(range(published.first_code, published.first_code + n_codes)),
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
    record_export(service, account.actor, test=test, file=name, names=names)
    return content, kind


def export_attempt(service: Service, attempt: str, *, actor: str) -> bytes:
    """An attempt as `qti_results` writes it, for staff; the audit log records it."""
    content = qti_results(service, attempt)
    record_export(service, actor, attempt=attempt, file="results.xml")
    return content


def record_export(service: Service, actor: str, **details: Any) -> None:
    """Add to the audit log who took which results out of the service."""
    service.acted(actor, "results exported", **details)


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

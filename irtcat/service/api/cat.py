"""1EdTech Computer Adaptive Testing (CAT) 1.0, REST/JSON binding of February 2021.

Names and shapes are the specification's; errors are its ``imsx_StatusInfo``. Requests are read
leniently, since clients differ: additional fields are ignored, ``itemResults`` and ``results`` are
read as ``itemResult``, ``values`` and ``valueString`` as ``value``, and metadata may be an object
or Base64. The estimates go back as outcome variables of the test result.

Clients get their access tokens by OAuth 2.0 client credentials.
"""

import base64
import binascii
import math
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import unquote_plus

from fastapi import APIRouter, Depends, Form, Path, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from irtcat.service.accounts.clients import LASTS, Client, ScopeError, access_token, client_of_token
from irtcat.service.accounts.credentials import service_of, token_of
from irtcat.service.api.schemas import NAME, Out, problems
from irtcat.service.attempts import adaptive_sections
from irtcat.service.attempts.adaptive_sections import Turn
from irtcat.service.base.errors import ServiceError, UnauthorizedError
from irtcat.service.storage.context import Service

oauth = APIRouter(tags=["OAuth"])

Text = Annotated[str, Form(max_length=2000, pattern="^[ -~]*$")]


class Token(Out):
    """An access token (RFC 6749, section 5.1)."""

    access_token: str
    token_type: str = Field(examples=["bearer"])
    expires_in: int = Field(description="Seconds.")
    scope: str


class OAuthError(Out):
    """Why there is no token (RFC 6749, section 5.2)."""

    error: str = Field(examples=["invalid_client"])
    error_description: str


def _refused(status: int, error: str, description: str) -> JSONResponse:
    headers = {"WWW-Authenticate": 'Basic realm="irtcat"'} if status == 401 else {}
    body = {"error": error, "error_description": description}
    return JSONResponse(body, status_code=status, headers=headers)


@oauth.post(
    "/oauth/token",
    response_model=Token,
    responses={**problems(), 400: {"model": OAuthError}, 401: {"model": OAuthError}},
)
def token(
    request: Request,
    grant_type: Text = "",
    scope: Text = "",
    client_id: Text = "",
    client_secret: Text = "",
) -> Any:
    """An access token for the credentials of a client, in HTTP Basic or in the form."""
    if grant_type != "client_credentials":
        return _refused(400, "unsupported_grant_type", "It must be client_credentials.")
    header = request.headers.get("authorization", "")
    if header:
        client_id, client_secret = _basic(header)
    service = service_of(request)
    try:
        made, scopes = access_token(service, client_id, client_secret, scope)
    except UnauthorizedError as error:
        return _refused(401, "invalid_client", str(error))
    except ScopeError as error:
        return _refused(400, "invalid_scope", str(error))
    return {"access_token": made, "token_type": "bearer", "expires_in": LASTS, "scope": scopes}


def _basic(header: str) -> tuple[str, str]:
    """Id and secret of HTTP Basic; empty where they cannot be read.

    Example:
        >>> _basic("Basic YzE6c2VjcmV0")
        ('c1', 'secret')
    """
    scheme, _, encoded = header.partition(" ")
    try:
        text = base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return "", ""
    name, colon, secret = text.partition(":")
    if scheme.lower() != "basic" or not colon or not text.isprintable():
        return "", ""
    return unquote_plus(name), unquote_plus(secret)


PREFIX = "/ims/cat/v1p0"

MOST_TEXT = 900_000
"""Characters of a field; the body has a limit, too."""

CODES = {
    401: "unauthorisedrequest",
    403: "forbidden",
    404: "unknownobject",
    429: "server_busy",
    500: "internal_server_error",
    503: "server_busy",
}
"""The specification's codes by HTTP status; "invaliddata" for all others."""


class CodeMinorField(Out):
    imsx_codeMinorFieldName: str
    imsx_codeMinorFieldValue: str


class CodeMinor(Out):
    imsx_codeMinorField: list[CodeMinorField]


class StatusInfo(Out):
    imsx_codeMajor: str = Field(examples=["failure"])
    imsx_severity: str = Field(examples=["error"])
    imsx_description: str
    imsx_codeMinor: CodeMinor


def status_info(status: int, description: str) -> dict[str, Any]:
    """An error as the specification describes it.

    Example:
        >>> status_info(404, "There is no such section.")["imsx_codeMinor"]["imsx_codeMinorField"]
        [{'imsx_codeMinorFieldName': 'irtcat', 'imsx_codeMinorFieldValue': 'unknownobject'}]
    """
    code = CODES.get(status, "invaliddata")
    field = {"imsx_codeMinorFieldName": "irtcat", "imsx_codeMinorFieldValue": code}
    return {
        "imsx_codeMajor": "failure",
        "imsx_severity": "error",
        "imsx_description": description,
        "imsx_codeMinor": {"imsx_codeMinorField": [field]},
    }


ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": StatusInfo} for code in (400, 401, 403, 404, 413, 422, 429, 503)
}

cat = APIRouter(prefix=PREFIX, tags=["1EdTech CAT 1.0"], responses=ERRORS)


# Unknown fields of requests are ignored: clients send more of what the standard has.
Packed = Annotated[str, Field(max_length=MOST_TEXT, description="Base64.")]


class SectionData(BaseModel):
    qtiMetadata: dict[str, Any] | list[Any] | Packed | None = None
    qtiUsagedata: Packed | None = None
    sectionConfiguration: Packed = Field(description=f"{adaptive_sections.MUST}.")


class SectionMade(Out):
    sectionIdentifier: str


class ItemIds(Out):
    itemIdentifiers: list[str]


class SectionSent(Out):
    qtiMetadata: dict[str, Any] | list[Any] | str | None = None
    qtiUsagedata: str | None = None
    sectionConfiguration: str


class SectionFound(Out):
    items: ItemIds
    section: SectionSent


class PriorDatum(BaseModel):
    key: str = Field(max_length=2000)
    value: str | float | None = None


class SessionData(BaseModel):
    personalNeedsAndPreferences: Any = None
    demographics: Any = None
    priorData: list[PriorDatum] | None = Field(None, max_length=1000)


class NextItems(Out):
    """The items to show next; none at the end."""

    itemIdentifiers: list[str]
    stageLength: int = Field(description="How many of them to show before asking again.")


class Value(Out):
    baseType: str
    value: str


class OutcomeVariable(Out):
    identifier: str
    cardinality: str
    baseType: str
    value: list[Value]


class TestResult(Out):
    """The estimates: THETA and SE (THETA_1, SE_1, ... of several abilities), and N_ITEMS."""

    __test__ = False

    identifier: str
    datestamp: str
    outcomeVariables: list[OutcomeVariable]


class AssessmentResult(Out):
    """The result of the session so far."""

    context: dict[str, Any]
    testResult: TestResult


class SessionMade(Out):
    """A new session with its first items."""

    sessionIdentifier: str
    nextItems: NextItems
    sessionState: str


class ResultsData(BaseModel):
    assessmentResult: dict[str, Any] = Field(
        description="Its `itemResult` has the SCORE of each item as an outcome variable.",
        examples=[
            {
                "itemResult": [
                    {
                        "identifier": "q1",
                        "datestamp": "2026-11-23T08:00:00Z",
                        "sessionStatus": "final",
                        "outcomeVariables": [
                            {
                                "identifier": "SCORE",
                                "cardinality": "single",
                                "baseType": "float",
                                "value": [{"value": "1"}],
                            }
                        ],
                    }
                ]
            }
        ],
    )
    sessionState: str | None = Field(None, max_length=2000)


class ResultsTaken(Out):
    """The next items, and the estimates."""

    nextItems: NextItems
    assessmentResult: AssessmentResult
    sessionState: str


class Engine:
    """A request of a client."""

    def __init__(self, service: Service, client: Client):
        self.service, self.client = service, client


def needs(scope: str) -> Any:
    """The dependency that requires a scope."""

    def dependency(request: Request) -> Engine:
        service, token = service_of(request), token_of(request)
        if not token:
            raise UnauthorizedError("The header Authorization must hold an access token.")
        client = client_of_token(service, token)
        client.require(scope)
        return Engine(service, client)

    return Depends(dependency)


SectionId = Annotated[str, Path(pattern=NAME)]
SessionId = Annotated[str, Path(pattern=NAME)]
OfSection = Annotated[Engine, needs("section")]
OfSession = Annotated[Engine, needs("session")]


@cat.post("/sections", status_code=201, response_model=SectionMade)
def create_section(at: OfSection, body: SectionData) -> Any:
    """Create a section from a published test, or from a bank and a configuration."""
    made = adaptive_sections.create_section(at.service, at.client.id, body.model_dump())
    return {"sectionIdentifier": made}


@cat.get("/sections/{section}", response_model=SectionFound)
def get_section(section: SectionId, at: OfSection) -> Any:
    """The items of a section, and how it was created."""
    it = adaptive_sections.section_of(at.service, at.client.id, section)
    return {"items": {"itemIdentifiers": it.bank.item_ids.tolist()}, "section": dict(it.sent)}


@cat.delete("/sections/{section}", status_code=204)
def end_section(section: SectionId, at: OfSection) -> None:
    """Delete a section; its sessions end with it."""
    adaptive_sections.delete_section(at.service, at.client.id, section)


@cat.post("/sections/{section}/sessions", status_code=201, response_model=SessionMade)
def create_session(section: SectionId, at: OfSession, body: SessionData | None = None) -> Any:
    """Create a session, and return its first items.

    The prior datum `initialEstimatedAbility` is the mean of the person's prior. Personal needs and
    demographics are neither used nor stored.
    """
    prior = [] if body is None else [datum.model_dump() for datum in body.priorData or []]
    turn = adaptive_sections.begin_session(at.service, at.client.id, section, prior)
    return {"sessionIdentifier": turn.session, **_next(turn)}


@cat.post(
    "/sections/{section}/sessions/{session}/results",
    response_model=ResultsTaken,
    responses={409: {"model": StatusInfo}},
)
def submit_results(section: SectionId, session: SessionId, at: OfSession, body: ResultsData) -> Any:
    """Record the scores of items; return the next items and the estimates.

    Repeating a request changes nothing; another score of an item is refused.
    """
    scores = _scores(body.assessmentResult)
    turn = adaptive_sections.submit(
        at.service, at.client.id, section, session, scores, body.sessionState
    )
    sent = body.assessmentResult.get("context")
    result = {
        "context": sent if isinstance(sent, dict) else {},
        "testResult": {
            "identifier": section,
            "datestamp": at.service.now(),
            "outcomeVariables": list(_outcomes(turn)),
        },
    }
    return {**_next(turn), "assessmentResult": result}


@cat.delete("/sections/{section}/sessions/{session}", status_code=204)
def end_session(section: SectionId, session: SessionId, at: OfSession) -> None:
    """End a session; its log stays."""
    adaptive_sections.end_session(at.service, at.client.id, section, session)


def _next(turn: Turn) -> dict[str, Any]:
    items = {"itemIdentifiers": turn.items, "stageLength": len(turn.items)}
    return {"nextItems": items, "sessionState": turn.state}


def _outcomes(turn: Turn) -> Any:
    several = len(turn.theta) > 1
    values: list[tuple[str, str, str]] = []
    for at, (theta, se) in enumerate(zip(turn.theta, turn.se, strict=True), start=1):
        end = f"_{at}" if several else ""
        values += [(f"THETA{end}", "float", repr(theta)), (f"SE{end}", "float", repr(se))]
    values.append(("N_ITEMS", "integer", str(turn.n_items)))
    if turn.reason:
        values.append(("STOPPED_BY", "string", turn.reason))
    for name, base, text in values:
        if text not in ("nan", "inf"):
            value = [{"baseType": base, "value": text}]
            yield {"identifier": name, "cardinality": "single", "baseType": base, "value": value}


def _scores(document: dict[str, Any]) -> list[tuple[str, float]]:
    """Ids and scores of the items of an assessment result, in the order in which they were given.

    Of several results of one item, the one with the latest time stamp counts, else the last one.

    Raises:
        ServiceError: naming the item and what is missing.
    """
    latest: dict[str, tuple[datetime | None, float]] = {}
    for entry in _listed(_first_of(document, "itemResult", "itemResults", "results")):
        name = entry.get("identifier")
        if not isinstance(name, str) or not name:
            raise ServiceError("Every `itemResult` must have an `identifier`.")
        status = str(entry.get("sessionStatus") or "final").lower()
        if status != "final":
            raise ServiceError(f"The `sessionStatus` of {name[:100]!r} must be final.")
        stamp, score = _time(entry.get("datestamp")), _score(name, entry)
        known = latest.get(name)
        if known is not None and stamp is not None and known[0] is not None and stamp < known[0]:
            continue
        latest[name] = (stamp, score)
    return [(name, score) for name, (_, score) in latest.items()]


def _score(name: str, entry: dict[str, Any]) -> float:
    for variable in _listed(_first_of(entry, "outcomeVariables", "outcomeVariable", "variables")):
        if str(variable.get("identifier", "")).upper() != "SCORE":
            continue
        value = _first_of(variable, "value", "values")
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if isinstance(value, dict):
            value = _first_of(value, "value", "valueString")
        try:
            score = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            score = math.nan
        if math.isfinite(score):
            return score
        break
    raise ServiceError(f"The item {name[:100]!r} must have a number as its outcome SCORE.")


def _first_of(document: dict[str, Any], *names: str) -> Any:
    for name in names:
        if document.get(name) is not None:
            return document[name]
    return None


def _listed(value: Any) -> list[dict[str, Any]]:
    """Records as a list; a single one is a list of one.

    Raises:
        ServiceError: for anything else.
    """
    rows = [value] if isinstance(value, dict) else [] if value is None else value
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ServiceError("Results and variables must be lists of objects.")
    return rows


def _time(value: Any) -> datetime | None:
    try:
        stamp = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return stamp if stamp.tzinfo is not None else None


router = APIRouter()
router.include_router(oauth)
router.include_router(cat)

"""The staff's interface: banks, items and tests, people and their tickets, attempts and results.

Each row of `irtcat.service.api.actions.ACTIONS` is a route, too.
"""

from datetime import datetime
from typing import Annotated, Any

import pandas as pd
from fastapi import Query, Request, Response
from pydantic import Field

from irtcat.service.accounts import accounts, clients
from irtcat.service.accounts.credentials import Acting
from irtcat.service.api.actions import AccountRow, Made
from irtcat.service.api.schemas import (
    Body,
    Cut,
    Data,
    GivenResponse,
    Id,
    Items,
    Out,
    Page,
    StaffRouter,
    attachment,
    content_type,
    file_response,
    needs,
    problems,
    records,
    upload,
)
from irtcat.service.attempts import library, people, proctoring, results
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.base.errors import ServiceError
from irtcat.service.content.reading import uploaded_items
from irtcat.service.definition import parse_definition
from irtcat.service.outbox import audit

router = StaffRouter(prefix="/api/v1")

TABLE = "text/csv"

ITEMS = ("application/zip", TABLE)
"""Content types of item sets."""

MOST_TICKETS = 10_000
"""Rows of one table of tickets."""


# Banks, items and tests


class Hash(Out):
    """The hash of what was stored; the same contents have the same hash."""

    hash: str
    items: int


class Bank(Hash):
    model: str


class BankItem(Out):
    item: str
    parameters: dict[str, Any]


class StoredItems(Hash):
    """The hash of stored items, and what was left out when they were read."""

    notes: list[str]


class ItemSetRow(Hash):
    created: str


class PublishBody(Body):
    definition: str = Field(max_length=2**20, description="The test definition in TOML.")
    bank: str = Field(max_length=128, description="Hash of a bank.")
    items: str = Field(max_length=128, description="Hash of an item set.")
    n_simulated: int = Field(1000, ge=10, le=20_000, description="Simulated takers.")
    seed: int = Field(0, ge=0, lt=2**32)


class TestRow(Out):
    __test__ = False

    id: str
    title: str
    version: str
    status: str
    published: str
    attempts: int


class Report(Out):
    id: str
    title: str
    status: str
    published: str
    definition: dict[str, Any]
    report: dict[str, Any]


def _stored(*kinds: str) -> dict[str, Any]:
    """The options of a route that stores a file of some content types."""
    return {"status_code": 201, "responses": problems(415), "openapi_extra": upload(*kinds)}


def _bank(at: Acting, name: str) -> dict[str, Any]:
    bank = library.stored_bank(at.service, name)
    return {"hash": name, "items": bank.n_items, "model": type(bank.model).__name__}


@router.get("/banks", response_model=Page[Bank])
def list_banks(at: Annotated[Acting, needs("parameters")], cut: Cut) -> Any:
    """Item banks; a bank never changes, and is known by the hash of its contents."""
    page = cut.page(pd.DataFrame({"hash": library.bank_hashes(at.service)}), "hash")
    rows = [_bank(at, row["hash"]) for row in page["items"]]
    return {"items": rows, "next": page["next"]}


@router.post("/uploads/banks", response_model=Hash, **_stored("application/octet-stream"))
def upload_bank(request: Request, at: Annotated[Acting, needs("publish")], data: Data) -> Any:
    """Store a bank from its `.npz` file; one that is known is not stored again."""
    content_type(request, "application/octet-stream")
    name = library.add_bank(at.service, data, actor=at.actor)
    return {"hash": name, "items": library.stored_bank(at.service, name).n_items}


@router.get("/banks/{bank}", response_model=Bank)
def get_bank(bank: Id, at: Annotated[Acting, needs("parameters")]) -> Any:
    """A bank by its hash."""
    return _bank(at, bank)


@router.get("/banks/{bank}/items", response_model=Page[BankItem])
def list_bank_items(bank: Id, at: Annotated[Acting, needs("parameters")], cut: Cut) -> Any:
    """Items of a bank with their parameters."""
    frame = library.stored_bank(at.service, bank).to_frame().reset_index(names="item")
    page = cut.page(frame, "item")
    rows = [{"item": str(row.pop("item")), "parameters": row} for row in page["items"]]
    return {"items": rows, "next": page["next"]}


@router.post("/uploads/items", response_model=StoredItems, **_stored(*ITEMS))
def upload_items(request: Request, at: Annotated[Acting, needs("items")], data: Data) -> Any:
    """Store items with their keys: a table in CSV, a QTI package, or a zip of a folder.

    ``notes`` say which items and contents of the file were left out, and why.
    """
    items = uploaded_items(data, is_table=content_type(request, *ITEMS) == TABLE)
    name = library.add_items(at.service, items)
    at.service.acted(at.actor, "items added", items=name)
    return {"hash": name, "items": len(items), "notes": list(items.notes)}


@router.get("/items", response_model=Page[ItemSetRow])
def list_items(at: Annotated[Acting, needs("items")], cut: Cut) -> Any:
    """Item sets, the latest first."""
    return cut.page(library.item_sets_table(at.service), "hash")


@router.post("/tests", response_model=Made, status_code=201, responses=problems(404))
def publish(at: Annotated[Acting, needs("publish")], body: PublishBody) -> Any:
    """Check a test, simulate it, and publish it; rules that cannot be kept are refused."""
    definition = parse_definition(body.definition)
    bank = library.stored_bank(at.service, body.bank)
    items = library.item_set(at.service, body.items)
    options = body.model_dump(include={"n_simulated", "seed"})
    name, _ = library.publish(at.service, definition, bank, items, actor=at.actor, **options)
    return {"id": name}


@router.get("/tests", response_model=Page[TestRow])
def list_tests(at: Annotated[Acting, needs("watch")], cut: Cut) -> Any:
    """Published tests, the latest first."""
    return cut.page(library.published_tests(at.service), "id")


@router.get("/tests/{test}", response_model=Report)
def get_test(test: Id, at: Annotated[Acting, needs("parameters")]) -> Any:
    """A test with its definition and its publishing report."""
    it = library.published_test(at.service, test)
    return {
        "id": it.id,
        "title": it.definition.title,
        "status": it.status,
        "published": it.published,
        "definition": it.definition.to_json(),
        "report": it.report,
    }


@router.get("/tests/{test}/items", response_model=Page[results.ItemRow])
def list_item_statistics(test: Id, at: Annotated[Acting, needs("parameters")], cut: Cut) -> Any:
    """Exposure against its target, and observed against expected score, by item."""
    return cut.page(results.item_statistics(at.service, test), "item")


# People and tickets


class Person(Out):
    id: str
    name: str
    email: str
    external: str
    created: str


@router.get("/people", response_model=Page[Person])
def list_people(at: Annotated[Acting, needs("people")], cut: Cut) -> Any:
    """People that are not erased."""
    return cut.page(people.people_table(at.service), "id")


class TicketBody(Body):
    test: str = Field(max_length=128)
    person: str | None = Field(None, max_length=128, description="By default a new, unnamed one.")
    accommodations: list[Annotated[str, Field(max_length=100)]] = Field([], max_length=20)
    opens: datetime | None = Field(None, description="With a time zone.")
    expires: datetime | None = Field(None, description="With a time zone.")


class TicketRow(Out):
    """A ticket, without its token."""

    id: str
    test: str
    person: str
    accommodations: list[str]
    opens: str
    expires: str
    created: str
    status: str
    attempt: str


TestFilter = Annotated[
    str | None, Query(max_length=128, pattern=r"^[A-Za-z0-9_-]+$", description="Of this test only.")
]


@router.post(
    "/tickets", response_model=people.Ticket, status_code=201, responses=problems(404, 409)
)
def issue_ticket(at: Annotated[Acting, needs("tickets")], body: TicketBody) -> Any:
    """Issue a ticket: one person may take one test once."""
    return people.issue_ticket(at.service, actor=at.actor, **body.model_dump())


@router.get("/tickets", response_model=Page[TicketRow])
def list_tickets(at: Annotated[Acting, needs("tickets")], cut: Cut, test: TestFilter = None) -> Any:
    """Tickets, the latest first."""
    return cut.page(people.ticket_table(at.service, test), "id")


@router.post(
    "/uploads/tickets",
    responses={
        **problems(401, 403, 404, 409, 415),
        **file_response("text/csv", "The rows with their tickets."),
    },
    response_class=Response,
    openapi_extra=upload("text/csv"),
)
def upload_tickets(
    request: Request,
    at: Annotated[Acting, needs("tickets")],
    data: Data,
    test: Annotated[str, Query(max_length=128)],
    dry_run: Annotated[bool, Query(description="Check, and store nothing.")] = False,
) -> Response:
    """Issue a ticket for each row of a table, all or none.

    Columns, all optional: `external`, `name`, `email`, `accommodations` (separated by `|`). Cells
    are separated by commas, and in double quotes where they have one. An external id that is known
    with another name or e-mail is refused. The answer is the table with the columns `person`,
    `ticket` and `token`; of a dry run, with `person` and `status`: `new`, or `known: NAME`.
    """
    content_type(request, "text/csv")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ServiceError("The table must be CSV in UTF-8.") from None
    columns, lines = people.read_table(text, MOST_TICKETS)
    rows = []
    for line, status, ticket in people.issue_tickets(
        at.service, test, lines, actor=at.actor, dry_run=dry_run
    ):
        given = {**vars(line), "accommodations": "|".join(line.accommodations)}
        if dry_run:
            made = ["" if status == people.NEW else ticket.person, status]
        else:
            made = [ticket.person, ticket.id, ticket.token]
        rows.append([*(given[name] for name in columns), *made])
    own = ["person", "status"] if dry_run else ["person", "ticket", "token"]
    table = results.spreadsheet_csv(pd.DataFrame(rows, columns=[*columns, *own]))
    return attachment(table, "text/csv; charset=utf-8", "tickets.csv")


# Attempts


class AttemptRow(Out):
    attempt: str
    test: str
    person: str
    status: str
    section: int
    answers: int
    seconds: float
    started: str
    updated: str
    device: bool = Field(description="Whether a device has it.")


class Event(Out):
    """An event of an attempt's log; the other fields depend on its kind."""

    number: int
    kind: str
    at: str
    actor: str
    details: dict[str, Any]


@router.get("/board", response_model=Page[AttemptRow])
def board(at: Annotated[Acting, needs("watch")], cut: Cut, test: TestFilter = None) -> Any:
    """Attempts that are running or paused: who, where, how long, the last sign."""
    return cut.page(proctoring.board(at.service, test), "attempt")


@router.get("/attempts", response_model=Page[AttemptRow])
def list_attempts(at: Annotated[Acting, needs("watch")], cut: Cut, test: TestFilter = None) -> Any:
    """All attempts, in the order in which they began."""
    frame = proctoring.board(at.service, test, statuses=None)
    return cut.page(frame, "attempt")


@router.get("/attempts/{attempt}/events", response_model=Page[Event])
def attempt_events(attempt: Id, at: Annotated[Acting, needs("parameters")], cut: Cut) -> Any:
    """The log of an attempt, whose digests are verified."""
    about = ("kind", "at", "actor")
    rows = [
        {
            "number": number,
            **{name: event[name] for name in about},
            "details": {name: value for name, value in event.items() if name not in about},
        }
        for number, event in enumerate(proctoring.attempt_events(at.service, attempt))
    ]
    return cut.page(pd.DataFrame(rows), "number")


# Results and exports


Analyst = Annotated[Acting, needs("results")]


class AnswerRow(Out):
    section: int
    item: str
    response: GivenResponse
    code: float | None
    seconds: float
    at: str


class OneResult(Out):
    """The result of an attempt with its answers."""

    attempt: str
    status: str
    waiting: list[str] = Field(description="Items that wait for a score by people.")
    result: dict[str, Any] | None
    flags: list[str]
    answers: list[AnswerRow]


@router.get("/tests/{test}/results", response_model=Page[results.ResultRow])
def list_results(test: Id, at: Analyst, cut: Cut) -> Any:
    """Results of the finished attempts at a test."""
    library.published_test(at.service, test)
    return cut.page(results.result_table(at.service, test), "attempt")


@router.get("/attempts/{attempt}/result", response_model=OneResult)
def get_result(attempt: Id, at: Analyst) -> Any:
    """The result of an attempt so far, with its answers."""
    it = attempt_of(at.service, attempt)
    result = results.attempt_result(it)
    return {
        "attempt": attempt,
        "status": it.progress.status,
        "waiting": results.waiting_items(it),
        "result": None if result is None else result.to_json(),
        "flags": results.flags_of(it),
        "answers": records(results.answer_table(it)),
    }


Names = Annotated[
    bool, Query(description="Add names and external ids; for accounts that may see people.")
]


def exported(kind: str) -> dict[str, Any]:
    """The options of a route that returns an export."""
    documented = {**problems(409), **file_response(kind, "The file.")}
    return {"response_class": Response, "responses": documented}


def _export(at: Acting, test: str, name: str, names: bool = False) -> Response:
    content, kind = results.export(at.service, test, name, at.account, names)
    return attachment(content, kind, name)


@router.get("/tests/{test}/results.csv", **exported("text/csv"))
def export_results(test: Id, at: Analyst, names: Names = False) -> Response:
    """Results of the finished attempts, as a table."""
    return _export(at, test, "results.csv", names)


@router.get("/tests/{test}/answers.csv", **exported("text/csv"))
def export_answers(test: Id, at: Analyst, names: Names = False) -> Response:
    """Answers of the finished attempts, as a table."""
    return _export(at, test, "answers.csv", names)


@router.get("/tests/{test}/responses.npz", **exported("application/octet-stream"))
def export_responses(test: Id, at: Analyst) -> Response:
    """Responses for recalibration: `irtcat fit responses.npz --anchors bank.npz`."""
    return _export(at, test, "responses.npz")


@router.get("/attempts/{attempt}/result.xml", **exported("application/xml"))
def export_qti(attempt: Id, at: Analyst) -> Response:
    """The result of an attempt in QTI Results Reporting 3.0."""
    data = results.export_attempt(at.service, attempt, actor=at.actor)
    return attachment(data, "application/xml", "result.xml")


# Audit log, accounts and programs


class AuditRow(Out):
    """What was done."""

    number: int
    at: str
    actor: str
    action: str
    details: dict[str, Any]


class ClientRow(Out):
    id: str
    name: str
    status: str
    created: str


@router.get("/audit", response_model=Page[AuditRow])
def audit_log(
    at: Annotated[Acting, needs("audit")],
    cut: Cut,
    verified: Annotated[bool, Query(description="Verify the digests of the whole log.")] = False,
) -> Any:
    """What staff and programs did, the latest first."""
    return cut.page(audit.audit_entries(at.service, verified=verified), "number")


@router.get("/accounts", response_model=Items[AccountRow])
def list_accounts(at: Annotated[Acting, needs("accounts")]) -> Any:
    """Accounts of staff."""
    return {"items": records(accounts.account_table(at.service))}


@router.get("/clients", response_model=Page[ClientRow])
def list_clients(at: Annotated[Acting, needs("accounts")], cut: Cut) -> Any:
    """Clients of the CAT interface."""
    return cut.page(clients.client_table(at.service), "id")

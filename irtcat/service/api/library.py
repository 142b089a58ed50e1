"""The staff's interface: banks, items and tests."""

from typing import Annotated, Any

import pandas as pd
from fastapi import Request
from pydantic import Field

from irtcat.service.accounts.credentials import Acting
from irtcat.service.api.actions import Made
from irtcat.service.api.schemas import (
    ITEMS,
    TABLE,
    Body,
    Cut,
    Data,
    Id,
    Out,
    Page,
    StaffRouter,
    content_type,
    needs,
    problems,
    upload,
)
from irtcat.service.attempts import library, results
from irtcat.service.content.reading import uploaded_items
from irtcat.service.definition import parse_definition
from irtcat.service.storage.context import Service

router = StaffRouter(prefix="/api/v1")


class Bank(Out):
    hash: str
    items: int
    model: str


class BankItem(Out):
    item: str
    parameters: dict[str, Any]


class Hash(Out):
    """The hash of what was stored; the same contents have the same hash."""

    hash: str
    items: int


class StoredItems(Hash):
    """The hash of stored items, and what was left out when they were read."""

    notes: list[str]


class ItemSetRow(Out):
    hash: str
    items: int
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


def _bank(service: Service, name: str) -> dict[str, Any]:
    bank = library.stored_bank(service, name)
    return {"hash": name, "items": bank.n_items, "model": type(bank.model).__name__}


@router.get("/banks", response_model=Page[Bank])
def list_banks(at: Annotated[Acting, needs("parameters")], cut: Cut) -> Any:
    """Item banks; a bank never changes, and is known by the hash of its contents."""
    page = cut.page(pd.DataFrame({"hash": library.bank_hashes(at.service)}), "hash")
    rows = [_bank(at.service, row["hash"]) for row in page["items"]]
    return {"items": rows, "next": page["next"]}


@router.post(
    "/uploads/banks",
    response_model=Hash,
    status_code=201,
    responses=problems(415),
    openapi_extra=upload("application/octet-stream"),
)
def upload_bank(request: Request, at: Annotated[Acting, needs("publish")], data: Data) -> Any:
    """Store a bank from its `.npz` file; one that is known is not stored again."""
    content_type(request, "application/octet-stream")
    name = library.add_bank(at.service, data, actor=at.actor)
    return {"hash": name, "items": library.stored_bank(at.service, name).n_items}


@router.get("/banks/{bank}", response_model=Bank)
def get_bank(bank: Id, at: Annotated[Acting, needs("parameters")]) -> Any:
    """A bank by its hash."""
    return _bank(at.service, bank)


@router.get("/banks/{bank}/items", response_model=Page[BankItem])
def list_bank_items(bank: Id, at: Annotated[Acting, needs("parameters")], cut: Cut) -> Any:
    """Items of a bank with their parameters."""
    frame = library.stored_bank(at.service, bank).to_frame().reset_index(names="item")
    page = cut.page(frame, "item")
    rows = [{"item": str(row.pop("item")), "parameters": row} for row in page["items"]]
    return {"items": rows, "next": page["next"]}


@router.post(
    "/uploads/items",
    response_model=StoredItems,
    status_code=201,
    responses=problems(415),
    openapi_extra=upload(*ITEMS),
)
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

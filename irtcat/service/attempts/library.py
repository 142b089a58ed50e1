"""Library: items, keys and published tests of the service; they never change once stored."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import sqlalchemy as sa

from irtcat._common.checks import argument_error
from irtcat._files import json_hash, json_text
from irtcat.bank import ItemBank
from irtcat.cat import Config, ExposureParameters
from irtcat.models import item_categories
from irtcat.service.base.errors import ConflictError, found
from irtcat.service.content import (
    Item,
    ItemSet,
    Media,
    check_against_bank,
    checked_response,
    scored,
)
from irtcat.service.definition import (
    PublishingReport,
    TestDefinition,
    check_definition,
    exposure_parameters,
    pool_of,
    publish_report,
)
from irtcat.service.definition.checking import scored_items
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, TestPublished


@dataclass(frozen=True)
class PublishedTest:
    """A published test with its bank and its items.

    Attributes:
        id: its id, a hash of the definition, the bank and the items.
        definition: the definition.
        bank: the item bank.
        items: the items with their keys.
        status: "open" or "retired".
        published: when, in UTC.
        report: the publishing report as a JSON document.
        notes: sentences on what was left out when its items were read.
        exposure: parameters of the exposure rule of sections that need them, by position.
    """

    __test__ = False

    id: str
    definition: TestDefinition
    bank: ItemBank
    items: ItemSet
    status: str
    published: str
    report: dict[str, Any]
    notes: tuple[str, ...]
    exposure: dict[int, ExposureParameters]

    @cached_property
    def pools(self) -> dict[int, ItemBank]:
        """The items that each adaptive section chooses from, by the section's position."""
        adaptive = self.definition.adaptive.items()
        return {at: pool_of(self.definition, section, self.bank) for at, section in adaptive}

    @cached_property
    def categories(self) -> dict[str, int]:
        """Number of categories by the id of the item."""
        sizes = np.asarray(item_categories(self.bank.model))
        return dict(zip(self.bank.item_ids.tolist(), sizes.tolist(), strict=True))

    def item(self, name: str) -> Item:
        """The content of an item."""
        return self.items.items[name]

    def coded(self, name: str, response: Any) -> tuple[Any, int | None]:
        """A response in its normal form, and its category; None if people have to score it.

        Raises:
            InputError: for a response that the item cannot have.
        """
        item = self.item(name)
        response = checked_response(item, response)
        key = self.items.keys.get(name)
        if key is None:  # an item without a score, as in a questionnaire or for practice
            return response, 0
        n = self.categories.get(name, key.categories)
        return response, scored(key, item, response, n)


def add_items(service: Service, items: ItemSet) -> str:
    """Store items, keys, stimuli and media; return the hash of the item set.

    Keys lie in a table of their own.
    """
    name = items.hash()
    document = {**items.to_json(), "media": sorted(items.media)}
    keys = document.pop("keys")
    with service.database.writing():
        for medium in items.media.values():
            known = sa.select(tables.media.c.name).where(tables.media.c.name == medium.name)
            if not service.scalar(known):  # without reading its data
                service.insert(tables.media, **vars(medium))
        if service.get(tables.item_sets, name) is None:
            now, stored = service.now(), json.dumps(document)
            service.insert(tables.item_sets, hash=name, document=stored, created=now)
            service.insert(tables.item_keys, item_set=name, document=json.dumps(keys))
    return name


def item_set(service: Service, name: str) -> ItemSet:
    """An item set by its hash, with its keys.

    Raises:
        NotFoundError: for an unknown hash.
    """
    with service.database.reading():
        row = found(service.get(tables.item_sets, name), "item set")
        keys = found(service.get(tables.item_keys, name), "item set")
        document = json.loads(row.document)
        media = [media_file(service, medium).to_json() for medium in document["media"]]
    return ItemSet.from_json({**document, "keys": json.loads(keys.document), "media": media})


def item_sets_table(service: Service) -> pd.DataFrame:
    """All item sets, the latest first: hash, number of items, and when they were added."""
    columns = tables.item_sets.c
    statement = sa.select(columns.hash, columns.document.label("items"), columns.created)
    frame = service.frame(statement.order_by(columns.created.desc()))
    return frame.assign(items=[len(json.loads(text)["items"]) for text in frame["items"]])


def add_bank(service: Service, data: bytes, *, actor: str) -> str:
    """Store a bank from the contents of its file; return its hash.

    Raises:
        InputError: for contents that are not a bank of `irtcat.ItemBank.save`.
    """
    bank = ItemBank.from_bytes(data)
    with service.database.writing():
        name = service.store.add_bank(bank)
        service.acted(actor, "bank added", bank=name)
    return name


def stored_bank(service: Service, name: str) -> ItemBank:
    """A bank by its hash.

    Raises:
        NotFoundError: for an unknown hash.
    """
    found(name in bank_hashes(service), "bank")
    return service.store.bank(name)


def bank_hashes(service: Service) -> list[str]:
    """Hashes of all banks, in alphabetical order."""
    with service.database.reading():
        rows = service.database.execute("SELECT hash FROM banks ORDER BY hash").fetchall()
    return [str(row[0]) for row in rows]


def media_file(service: Service, name: str) -> Media:
    """A media file by its name.

    Raises:
        NotFoundError: for an unknown name.
    """
    row = found(service.get(tables.media, name), "file")
    return Media(name=row.name, type=row.type, data=bytes(row.data))


def publish(
    service: Service,
    definition: TestDefinition,
    bank: ItemBank,
    items: ItemSet,
    *,
    actor: str,
    n_simulated: int = 1000,
    seed: int = 0,
    report: PublishingReport | None = None,
) -> tuple[str, PublishingReport]:
    """Check a test, simulate it, and store it with its report; nothing of it changes afterwards.

    Args:
        service: the service.
        definition: the test.
        bank: its bank.
        items: its items, with keys; those without a language have that of the test.
        actor: who publishes it.
        n_simulated: number of simulated takers.
        seed: seed of the simulation.
        report: the report, if it was made before (`publish_report` with this seed).

    Returns:
        The id of the test, and the report.

    Raises:
        DefinitionError: for rules that cannot be kept, listing all faults; nothing is stored.
        InputError: for a report of another definition or bank.
    """
    items = items.in_language(definition.language)
    check_definition(definition, bank, items)
    check_against_bank(items, bank, scored_items(definition, bank))
    parameters = exposure_parameters(definition, bank, seed)
    if report is None:
        report = publish_report(definition, bank, n_simulated, seed=seed, parameters=parameters)
    elif (report.definition, report.bank) != (definition.hash(), bank.hash()):
        raise argument_error("report", "one of this definition and bank", report.definition[:12])
    with service.database.writing():
        stored_bank = service.store.add_bank(bank)
        item_set = add_items(service, items)
        document = definition.to_json()
        name = test_id(document, stored_bank, item_set)
        if service.get(tables.tests, name) is None:
            stored = {"report": report, "exposure": parameters, "notes": items.notes}
            service.insert(
                tables.tests,
                id=name,
                title=definition.title,
                version=definition.version,
                definition=json.dumps(document),
                bank=stored_bank,
                item_set=item_set,
                report=json_text(stored),
                status="open",
                published=service.now(),
            )
            service.publish(TestPublished(name, actor))
    return name, report


def test_id(definition: dict[str, Any], bank: str, items: str) -> str:
    """The id of a test, from the document of its definition and the hashes of bank and items."""
    content = {"definition": definition, "bank": bank, "items": items}
    return f"test_{json_hash(content)[:24]}"


test_id.__test__ = False  # type: ignore[attr-defined]  # not one of pytest's


def published_test(service: Service, name: str) -> PublishedTest:
    """A published test, kept in memory.

    Raises:
        NotFoundError: for an unknown id.
    """
    return service.tests.get(name, lambda: _load(service, name))


def _load(service: Service, name: str) -> PublishedTest:
    with service.database.reading():
        row = found(service.get(tables.tests, name), "test")
        items = item_set(service, row.item_set)
        bank = service.store.bank(row.bank)
    stored = json.loads(row.report)
    return PublishedTest(
        id=row.id,
        definition=TestDefinition.from_json(json.loads(row.definition)),
        bank=bank,
        items=items,
        status=row.status,
        published=row.published,
        report=stored["report"],
        notes=tuple(stored.get("notes", ())),
        exposure={int(at): _exposure_from_json(value) for at, value in stored["exposure"].items()},
    )


def _exposure_from_json(document: dict[str, Any]) -> ExposureParameters:
    ids, limit = np.array(document["item_ids"], dtype=object), np.array(document["limit"], float)
    config = Config.from_json(document["config"])
    return ExposureParameters(**{**document, "item_ids": ids, "limit": limit, "config": config})


def retire(service: Service, name: str, *, actor: str) -> None:
    """Issue no more tickets for a test; attempts under way go on.

    Raises:
        NotFoundError: for an unknown test.
        ConflictError: for a test that is retired.
    """
    test = published_test(service, name)
    with service.recorded(actor, "test retired", test=name):
        is_open = tables.tests.c.status == "open"
        if not service.change(tables.tests, name, is_open, status="retired"):
            raise ConflictError(f"The test {test.definition.title!r} is retired.")
    service.tests.drop(name)


def published_tests(service: Service) -> pd.DataFrame:
    """All published tests, the latest first, with their number of attempts."""
    of_test = tables.attempts.c.test == tables.tests.c.id
    attempts = tables.counted(tables.attempts, of_test).scalar_subquery().label("attempts")
    columns = [tables.tests.c[name] for name in ("id", "title", "version", "status", "published")]
    return service.frame(sa.select(*columns, attempts).order_by(tables.tests.c.published.desc()))

"""Provision: what a service needs before the first person takes a test.

A published test from files, an account that administers, and tickets with their links.
"""

import os
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from irtcat._common.checks import InputError
from irtcat.bank import ItemBank
from irtcat.service import example
from irtcat.service.accounts.accounts import add_account
from irtcat.service.attempts.library import publish, published_tests, test_id
from irtcat.service.content import ItemSet, read_items
from irtcat.service.definition import TestDefinition, beside, read_definition
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, new_secret

ADMINISTRATOR = "admin"
"""Name of the account that the first start makes."""


class SourceFiles(NamedTuple):
    """What a test is published from."""

    definition: TestDefinition
    bank: ItemBank
    items: ItemSet


def read_test(
    definition: str | os.PathLike[str],
    bank: ItemBank | None = None,
    items: str | os.PathLike[str] | None = None,
) -> SourceFiles:
    """Read a test from files.

    Args:
        definition: the definition (TOML).
        bank: the bank; by default the file that the definition names, in its folder.
        items: the items; likewise.

    Raises:
        InputError: for a file that cannot be read, or that the definition does not name.
    """
    read = read_definition(definition)
    folder = Path(definition).parent
    if bank is None:
        if not read.bank:
            raise InputError(f"{definition}: names no `bank` file. Give the `bank` argument.")
        bank = ItemBank.load(beside(folder, read.bank))
    if items is None:
        if not read.items:
            raise InputError(f"{definition}: names no `items`. Give the `items` argument.")
        items = beside(folder, read.items)
    return SourceFiles(read, bank, read_items(items))


def example_files() -> SourceFiles:
    """The test that is shipped as an example."""
    return read_test(example.folder() / "math.toml")


def publish_files(service: Service, files: SourceFiles, *, actor: str) -> tuple[str, bool]:
    """Publish a test, unless it is published; return its id, and whether it is new.

    Raises:
        DefinitionError: for rules that cannot be kept.
    """
    definition, bank, items = files
    items = items.in_language(definition.language)
    name = test_id(definition.to_json(), bank.hash(), items.hash())
    if name in set(published_tests(service)["id"]):
        return name, False
    return publish(service, definition, bank, items, actor=actor)[0], True


def add_administrator(service: Service) -> str | None:
    """Make the account of an administrator if there are no accounts; return its password.

    The password is random, stored as a hash only, and printed once.
    """
    with service.database.writing(alone=True):
        if service.row(sa.select(tables.accounts.c.name).limit(1)) is not None:
            return None
        password = new_secret()
        add_account(service, ADMINISTRATOR, password=password, roles=["admin"], actor="setup")
    return password


def only_open_test(service: Service) -> str:
    """The id of the only test that is open.

    Raises:
        InputError: if there is none, or more than one.
    """
    tests = published_tests(service)
    names = tests.loc[tests["status"] == "open", "id"].tolist()
    if len(names) != 1:
        found = "none is open" if not names else f"{len(names)} are open ({', '.join(names)})"
        raise InputError(f"The `test` argument must name a published test: {found}.")
    return str(names[0])


def take_link(base: str, token: str) -> str:
    """The link that opens a test with a ticket."""
    return f"{base.rstrip('/')}/t/{token}"


def admin_link(base: str) -> str:
    """The link to the pages of the staff."""
    return f"{base.rstrip('/')}/staff"

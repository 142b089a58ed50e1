"""Provision: what a service needs before the first person takes a test.

A published test from files, an account that administers, and tickets with their links.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import sqlalchemy as sa

from irtcat._common.checks import InputError, shorten
from irtcat.bank import ItemBank
from irtcat.io import read_parameters
from irtcat.service import example
from irtcat.service.accounts.accounts import add_account
from irtcat.service.attempts.library import publish, published_tests, test_id
from irtcat.service.base.records import faults_of
from irtcat.service.content import ItemSet, read_items
from irtcat.service.definition import (
    DefinitionError,
    TestDefinition,
    beside,
    check_definition,
    named_files,
    pool_of,
    read_definition,
)
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, new_secret

ValueT = TypeVar("ValueT")

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

    The definition is a TOML file or its folder; by default the bank and the items are those
    that it names.

    Raises:
        InputError: for a file that cannot be read, or that the definition does not name.
    """
    definition = definition_file(definition)
    read = read_definition(definition)
    folder = definition.parent
    if bank is None:
        if not read.bank:
            raise InputError(f"{definition}: names no `bank` file. Give the `bank` argument.")
        bank = read_bank(beside(folder, read.bank))
    if items is None:
        if not read.items:
            raise InputError(f"{definition}: names no `items`. Give the `items` argument.")
        items = beside(folder, read.items)
    return SourceFiles(read, bank, read_items(items))


def definition_file(path: str | os.PathLike[str]) -> Path:
    """The file of a test definition: the path itself, or the one TOML file of a folder.

    Raises:
        InputError: for a folder with none or several.
    """
    file = Path(path)
    if not file.is_dir():
        return file
    found = sorted(file.glob("*.toml"))
    if len(found) != 1:
        names = ", ".join(entry.name for entry in found) or "none"
        must = "expected one test definition (.toml) in the folder"
        raise InputError(f"{path}: {must}. Got {names}.")
    return found[0]


TABLES = (".csv", ".tsv", ".txt", ".json")
"""Endings of files of item parameters that are no bank of irtcat."""


def read_bank(path: str | os.PathLike[str]) -> ItemBank:
    """A bank from its file (``.npz``), or from a table of item parameters.

    Raises:
        InputError: for a file that is neither.
    """
    return read_parameters(path) if Path(path).suffix in TABLES else ItemBank.load(path)


class Validation(NamedTuple):
    """What is wrong with the files of a test, and what is unwise.

    Attributes:
        faults: a sentence for each fault, which names the file and the field or line.
        warnings: a sentence for each.
        files: the test; None with faults.
    """

    faults: list[str]
    warnings: list[str]
    files: SourceFiles | None


def validate(path: str | os.PathLike[str]) -> Validation:
    """Check all files of a test, and list every fault that can be seen at once.

    The definition, the bank and the items are each read, whatever is wrong with the others; how
    they fit together is checked where they could be read. Nothing is stored or simulated.

    Raises:
        InputError: if there is no definition.
    """
    file = definition_file(path)
    named = named_files(file)
    faults: list[str] = []
    warnings: list[str] = []

    def read(reader: Callable[[], ValueT]) -> ValueT | None:
        try:
            return reader()
        except InputError as error:
            where = f"{file}: " if isinstance(error, DefinitionError) else ""
            faults.extend(f"{where}{fault}" for fault in faults_of(error))
        return None

    definition = read(lambda: read_definition(file))
    bank = items = None
    if named.get("bank"):
        bank = read(lambda: read_bank(beside(file.parent, named["bank"])))
    if named.get("items"):
        items = read(lambda: read_items(beside(file.parent, named["items"])))
    for field, text in named.items():
        if not text:
            faults.append(f"{file}: The `{field}` field is missing. Name what is beside this file.")
    if items is not None:
        warnings += items.notes
    if definition is None or bank is None:
        return Validation(faults, warnings, None)
    if items is not None:
        items = items.in_language(definition.language)
    warnings += read(lambda: check_definition(definition, bank, items)) or ()
    warnings += [f"{named['bank']}: {note}." for note in bank.provenance.get("notes", ())]
    if faults or items is None:
        return Validation(faults, warnings, None)
    used = {item for section in definition.sections for item in section.items}
    for section in definition.adaptive.values():
        used.update(pool_of(definition, section, bank))
    if unused := sorted(set(items.items) - used):
        advice = "Name them in a section, or add them to the bank."
        warnings.append(f"Items are in no section: {shorten(unused)}. {advice}")
    return Validation(faults, warnings, SourceFiles(definition, bank, items))


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

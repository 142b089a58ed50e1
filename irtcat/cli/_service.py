"""What ``irtcat serve`` and ``irtcat service`` share: opening a service, and setting one up."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtcat.cli._command import Options
from irtcat.cli._options import KEY_FILE, argument, flag, group, own
from irtcat.cli._session import read_key, warn

if TYPE_CHECKING:
    from irtcat.service.storage.context import Service

ADDRESS = argument(
    "address", help="SQLite file of the service, or postgresql://user@host/database."
)
URL = own(
    "url",
    help="Public address of the service, such as https://tests.example.org, of all links, whatever "
    "host a request names; by default that of this machine.",
)
ITEMS_OF_TEST = group(
    "Test to publish",
    own(
        "test", type=Path, help="Definition of a test (TOML) or its folder, published unless it is."
    ),
    own(
        "bank",
        read=lambda path: part("operations.provision").read_bank(path),
        needs="test FILE",
        help="Bank of the test, or a table of item parameters; by default the file that the "
        "definition names.",
    ),
    own(
        "items",
        type=Path,
        needs="test FILE",
        help="Its items: a folder, a CSV table or a QTI package; by default as named there.",
    ),
    flag("example", help="Publish the example that is shipped: 30 items in mathematics."),
)
SETTINGS = (ADDRESS, *ITEMS_OF_TEST, URL, KEY_FILE)


def part(module: str) -> Any:
    """A module of `irtcat.service`, whose packages are an extra.

    Raises:
        InputError: if a package is missing.
    """
    try:
        return import_module(f"irtcat.service.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "irtcat").split(".")[0] == "irtcat":
            raise
        from irtcat._common.checks import InputError

        advice = 'pip install "irtcat[service]"'
        raise InputError(f"The service needs {advice} (no module {error.name}).") from None


@contextmanager
def opened(o: Options, create: bool = False) -> "Iterator[Service]":
    """Open the service of the command."""
    key = read_key(o.key_file)
    with part("assembly").open_service(o.address, create=create, key=key) as service:
        yield service


def test_files(o: Options) -> Any:
    """The files of the test that the options name; None without one.

    They are read before the database is opened, so that faults in them leave no database behind.
    """
    provision = part("operations.provision")
    if o.test is not None:
        files = provision.read_test(o.test, o.bank, o.items)
        for note in files.items.notes:
            warn(note)
        return files
    return provision.example_files() if o.example else None


def set_up(service: "Service", files: Any) -> tuple[str | None, bool, str | None]:
    """Publish a test from its files, and add the first administrator.

    Returns:
        The id of the test (None without one), whether it is new, and the administrator's password
        (None where there are accounts).
    """
    provision = part("operations.provision")
    test, is_new = None, False
    if files is not None:
        test, is_new = provision.publish_files(service, files, actor="setup")
    return test, is_new, provision.add_administrator(service)

"""``irtcat serve``, and what it shares with ``irtcat service``: opening one, and setting it up."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtcat._common.errors import InputError
from irtcat._common.progress import progress
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._input import read_key
from irtcat.cli._options import KEY_FILE, argument, flag, group, own
from irtcat.cli._output import say, warn

if TYPE_CHECKING:
    from irtcat.service.storage.context import Service

EXAMPLE = ("irtcat serve tests.db --example --check",)

METRICS_TOKEN = "IRTCAT_METRICS_TOKEN"
"""Environment variable with the token of ``/metrics``; other users could see an argument."""


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


@command_of(
    None,
    *SETTINGS,
    *group(
        "Server",
        own("port", type=int, default=8080, min=1, max=65535, help="Port of the server."),
        own(
            "host",
            default="127.0.0.1",
            help="Network interface: 127.0.0.1 for this machine only, 0.0.0.0 for all.",
        ),
        own(
            "workers",
            type=int,
            default=1,
            min=1,
            max=64,
            help="Number of processes; several of them need PostgreSQL to gain much.",
        ),
        own(
            "proxies",
            default="127.0.0.1",
            help="Addresses of reverse proxies whose X-Forwarded headers are believed, "
            "separated by commas.",
        ),
        flag(
            "insecure_cookies",
            help="Send cookies also without HTTPS, on a network that you trust. Always so at "
            "127.0.0.1 without a --url with https.",
        ),
        flag(
            "private_webhooks", help="Deliver webhooks also to private addresses and without HTTPS."
        ),
        own(
            "limited",
            "--limits",
            type=bool,
            default=True,
            help="Limit the rates of requests and of failed sign-ins.",
        ),
        flag("check", help="Start at a free port, ask the server whether it is ready, and stop."),
    ),
    json=False,
    csv=False,
    shows_progress=False,
)
def command(o: Options) -> Output:
    """Serve adaptive tests that people take in a browser.

    The first start creates the database, publishes the test, and adds an account that administers.
    Stop it by Ctrl-C or SIGTERM: requests under way are finished.
    """
    server = part("operations.server")
    provision = part("operations.provision")
    local = o.host in ("127.0.0.1", "::1", "localhost")
    base = o.url or f"http://{o.host if local else socket.getfqdn()}:{o.port}"
    secure = not o.insecure_cookies and not (local and base.startswith("http://"))
    files = test_files(o)
    with opened(o, create=True) as service:
        with progress("Publishing the test"):
            test, is_new, password = set_up(service, files)
        if test is not None:
            say(f"Test:             {test}, published {'now' if is_new else 'before'}")
            ticket = part("attempts.people").issue_ticket(service, test, actor="setup")
            say(f"Take the test:    {provision.take_link(base, ticket.token)}")
        say(f"Administer tests: {base.rstrip('/')}/staff")
        if password is not None:
            name = provision.ADMINISTRATOR
            say(f"                  account {name}, password {password} (shown this once)")
    if secure and not base.startswith("https://"):
        say("Cookies need HTTPS: put a proxy with TLS before it, or give --insecure-cookies.")
    sys.stdout.flush()
    key = read_key(o.key_file)
    settings = server.Settings(
        address=o.address,
        key=os.fsdecode(key) if key is not None else "",
        secure=secure,
        private_webhooks=o.private_webhooks,
        limited=o.limited,
        url=o.url or "",
        metrics_token=os.environ.get(METRICS_TOKEN, ""),
    )
    if o.check:
        seconds = server.check_start(settings, workers=o.workers)
        return Output(
            {},
            [f"Ready after {seconds:.1f} s; stopped."],
            next=("serve", o.address, "--port", o.port),
        )
    say("Ctrl-C stops it.")
    sys.stdout.flush()
    server.serve(settings, host=o.host, port=o.port, workers=o.workers, proxies=o.proxies)
    return Output({}, ["Stopped."])

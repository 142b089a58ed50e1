"""``irtcat serve``."""

import os
import socket
import sys

from irtcat._common.progress import progress
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import flag, group, own
from irtcat.cli._output import say
from irtcat.cli._service import SETTINGS, opened, part, set_up, test_files
from irtcat.cli._session import read_key

EXAMPLE = ("irtcat serve tests.db --example --check",)

METRICS_TOKEN = "IRTCAT_METRICS_TOKEN"
"""Environment variable with the token of ``/metrics``; other users could see an argument."""


def _is_local(host: str) -> bool:
    return host in ("127.0.0.1", "::1", "localhost")


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
    local = _is_local(o.host)
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
        say(f"Administer tests: {provision.admin_link(base)}")
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

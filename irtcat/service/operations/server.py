"""Server: the application with all that runs beside it, in worker processes of uvicorn.

Workers share nothing but the database. Each of them warms the engine, takes connections from one
socket, and finishes its requests when it gets a signal to stop; one that dies is replaced.
"""

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial

import httpx
import uvicorn
from fastapi import FastAPI

from irtcat._common.checks import InputError
from irtcat.cat import StoreError
from irtcat.service.app import Beside, create_app
from irtcat.service.assembly import imported, open_service
from irtcat.service.base.metrics import LOGGING, MULTIPROCESS, add_metrics
from irtcat.service.operations.background import shadowing, sweeping, warming
from irtcat.service.outbox.sending import DELIVERIES, GRADES, Outbox, repeating
from irtcat.service.storage.context import Service

ENVIRONMENT = "IRTCAT_SERVICE"
"""Environment variable by which worker processes get the settings, as JSON. Other users of the
machine cannot read it, as they could read arguments."""

START_WITHIN = 300
"""Seconds in which a worker is ready: it compiles the programs of every open test."""

DATABASE_WITHIN = 120
"""Seconds that a worker which starts waits for a database server."""

STOP_WITHIN = 30
"""Seconds in which a worker finishes its requests after a signal to stop."""

HUNG_AFTER = 30
"""Seconds without a sign after which a worker is replaced. With uvicorn's 5 s, one that starts on a
busy machine could be taken for one that hangs, again and again."""

KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than the 60 s of common proxies, which would
otherwise send a request on a connection that is being closed."""


log = logging.getLogger("irtcat.service")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a worker process has to know.

    Attributes:
        address: path or address of the database.
        key: secret key of the digests of all logs; empty for none.
        secure: see `irtcat.service.app.create_app`.
        private_webhooks: deliver messages also to private addresses.
        limited: limit the rates of requests.
        url: public address of the service; empty to believe the host of requests.
        metrics_token: with this bearer token ``/metrics`` is open to other machines.
    """

    address: str
    key: str = ""
    secure: bool = True
    private_webhooks: bool = False
    limited: bool = True
    url: str = ""
    metrics_token: str = ""


def application(settings: Settings | None = None) -> FastAPI:
    """The application of a worker process.

    By default the settings are those of the environment.
    """
    if settings is None:
        settings = Settings(**json.loads(os.environ[ENVIRONMENT]))
    service = _opened(settings)

    @asynccontextmanager
    async def closing(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    beside: list[Beside] = [closing, shadowing, warming, sweeping]
    beside += [sending(*outbox) for outbox in OUTBOXES]
    shared = ("secure", "limited", "url", "private_webhooks")
    options = {name: getattr(settings, name) for name in shared}
    app = create_app(service, observed=True, beside=beside, **options)
    add_metrics(app, settings.metrics_token)
    return app


OUTBOXES = (
    (DELIVERIES, "outbox.webhooks:send", "messages sent"),
    (GRADES, "lti.attempts:send", "grades sent"),
)
"""Outboxes, who sends their messages, and what is then done, for the log."""


def sending(outbox: Outbox, name: str, what: str) -> Beside:
    """Send the messages of an outbox while an application runs; every process takes part.

    ``name`` is a function of the application; it is imported when a message is due.
    """

    def send(app: FastAPI, is_stopped: Callable[[], bool]) -> None:
        if outbox.any_due(app.state.service):
            imported(name)(app, is_stopped)

    return lambda app: repeating(partial(send, app), what)


def _opened(settings: Settings) -> Service:
    """The service of a worker, which waits for a database server that is being restarted.

    uvicorn stops all workers if one fails to start.
    """
    until = time.monotonic() + DATABASE_WITHIN
    while True:
        try:
            return open_service(settings.address, key=settings.key or None)
        except StoreError as error:
            if "://" not in settings.address or time.monotonic() > until:
                raise
            log.warning("waiting for the database: %s", error)
            time.sleep(0.5)


def serve(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int = 1,
    proxies: str = "127.0.0.1",
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        settings: the settings of the workers.
        host: address of the network interface.
        port: port.
        workers: number of processes.
        proxies: addresses, separated by commas, whose ``X-Forwarded-For`` and ``X-Forwarded-Proto``
            are believed: those of the reverse proxy.
    """
    os.environ[ENVIRONMENT] = json.dumps(asdict(settings))
    shared: AbstractContextManager[str | None] = nullcontext()
    if workers > 1:  # the metrics of all workers are in files, which every one of them can read
        shared = tempfile.TemporaryDirectory(prefix="irtcat-metrics-")
    with shared as folder:
        if folder is not None:
            os.environ[MULTIPROCESS] = folder
        uvicorn.run(
            "irtcat.service.operations.server:application",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            access_log=False,  # `Observing` writes a log without personal data
            log_config=LOGGING,
            log_level=logging.INFO,
            server_header=False,
            proxy_headers=True,
            forwarded_allow_ips=proxies,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=STOP_WITHIN,
            timeout_worker_healthcheck=HUNG_AFTER,
            ws="none",
        )


STARTED = """
import json, sys
from irtcat.service.operations.server import Settings, serve
settings, options = json.load(sys.stdin)
serve(Settings(**settings), **options)
"""
"""The program of a server in a process of its own."""


def check_start(settings: Settings, *, workers: int = 1) -> float:
    """Start a server at a free port of this machine, wait until it is ready, and stop it.

    Returns:
        Seconds until it was ready.

    Raises:
        InputError: with the last line of its log if it does not start, or does not stop.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"port": port, "workers": workers}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", STARTED], stdin=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdin is not None
        with process.stdin as stream:
            json.dump([asdict(settings), options], stream)
        started = time.monotonic()
        try:
            seconds = _ready_after(process, port, started)
            process.terminate()
            stopped = process.wait(STOP_WITHIN) if seconds is not None else None
        except subprocess.TimeoutExpired:
            stopped = None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        log.seek(0)
        lines = log.read().strip().splitlines() or ["no log"]
    if seconds is None or stopped not in (0, -15):  # -15: uvicorn ends by the signal it got
        state = "start" if seconds is None else "stop"
        raise InputError(f"The server did not {state}: {lines[-1]}")
    return seconds


def _ready_after(process: "subprocess.Popen[str]", port: int, started: float) -> float | None:
    """Seconds until a server is ready; None if it ended, or took too long."""
    url = f"http://127.0.0.1:{port}/health/ready"
    while process.poll() is None and time.monotonic() < started + START_WITHIN:
        with suppress(httpx.HTTPError):  # it does not listen yet
            if httpx.get(url, timeout=5, trust_env=False).status_code == 200:
                return time.monotonic() - started
        time.sleep(0.1)
    return None

"""Metrics for Prometheus, and logs of one JSON object a line on stderr, without personal data.

Several worker processes write metrics to files of one folder (the variable `MULTIPROCESS` names
it), so that any of them reports the sum of all.

No address of a client, no name, no query, no ticket and no cookie is logged: paths appear as their
templates, such as ``/t/{ticket}``.
"""

import hmac
import ipaddress
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import REGISTRY, Collector

from irtcat.service.base.errors import ForbiddenError
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service
from irtcat.service.storage.tables import counted

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which prometheus_client knows the folder of all processes."""

BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper ends in seconds, with the aim of 200 ms among them."""

REQUESTS = Counter(
    "irtcat_requests", "Requests by method, route and status.", ("method", "route", "status")
)
SECONDS = Histogram(
    "irtcat_request_seconds", "Time of requests by route.", ("route",), buckets=BUCKETS
)
ANSWERS = Counter("irtcat_answers", "Answers recorded by kind of section.", ("section",))
ENGINE = Histogram(
    "irtcat_engine_seconds", "Time of the adaptive engine by step.", ("step",), buckets=BUCKETS
)
LIMITED = Counter("irtcat_limited", "Requests refused by a rate limit.", ("limit",))
SHADOW = Counter("irtcat_shadow_tests", "Shadow tests by how they were solved.", ("outcome",))
DELIVERIES = Counter("irtcat_deliveries", "Messages to webhooks by outcome.", ("outcome",))


@contextmanager
def engine_time(step: str) -> Iterator[None]:
    """Count the time of a step of the adaptive engine, with what is written for it."""
    started = time.perf_counter()
    try:
        yield
    finally:
        ENGINE.labels(step).observe(time.perf_counter() - started)


class Attempts(Collector):
    """Numbers of attempts by status, and of messages that wait, from the database."""

    def __init__(self, service: Service):
        self._service = service

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Count them now."""
        attempts, deliveries = tables.attempts.c, tables.deliveries.c
        about = "Attempts under way by status."
        family = GaugeMetricFamily("irtcat_attempts", about, labels=["status"])
        for status in ("running", "paused"):
            number = self._service.scalar(counted(tables.attempts, attempts.status == status))
            family.add_metric([status], number)
        yield family
        about = "Messages to webhooks that wait."
        number = self._service.scalar(counted(tables.deliveries, deliveries.status == "waiting"))
        yield GaugeMetricFamily("irtcat_deliveries_waiting", about, value=number)


def _is_local(request: Request) -> bool:
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def add_metrics(app: FastAPI, token: str = "") -> None:
    """Add ``/metrics``, for programs on this machine, or with a token from anywhere."""

    @app.get("/metrics", include_in_schema=False)
    def metrics(request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        permitted = token and hmac.compare_digest(given.encode(), token.encode())
        if not permitted and not _is_local(request):
            raise ForbiddenError("The metrics are for this machine only, or need a token.")
        registry = REGISTRY
        if MULTIPROCESS in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        content = generate_latest(registry) + generate_latest(Attempts(app.state.service))
        return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")


STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message", "taskName"}
"""Attributes that every record has; others were given by ``extra``."""


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time, level, logger, message, and what ``extra`` adds."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "log": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        line |= {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "irtcat.service.base.metrics.JsonFormatter"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "stream": "ext://sys.stderr",
            "formatter": "json",
        }
    },
    "loggers": {
        name: {"handlers": ["stderr"], "level": "INFO", "propagate": False}
        for name in ("irtcat", "uvicorn")
    },
}
"""Configuration of `logging` for worker processes."""

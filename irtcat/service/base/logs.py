"""Logs of the service: one JSON object a line on stderr, without personal data.

No address of a client, no name, no query, no ticket and no cookie is logged: paths appear as their
templates, such as ``/t/{ticket}``.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Any

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
    "formatters": {"json": {"()": "irtcat.service.base.logs.JsonFormatter"}},
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
